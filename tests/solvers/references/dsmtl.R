# Values of dsMTL 2025 on problem.csv: Rscript dsmtl.R CLIENT BASE > dsmtl.csv, the folders of
# dsMTLClient and dsMTLBase. Every task is a server in this process, in place of DataSHIELD.
folders <- commandArgs(TRUE)
for (folder in folders) for (file in list.files(file.path(folder, "R"), full.names = TRUE))
  source(file)
dimDS <- function(x) dim(eval(parse(text = x), envir = parent.frame()))
aggregate_here <- function(servers, calls, ...) {
  found <- lapply(seq_along(servers), function(k)
    eval(if (is.list(calls)) calls[[k]] else calls, envir = servers[[k]]))
  names(found) <- names(servers)
  found
}
`::` <- function(package, name) {  # of DSI only this is called
  name <- as.character(substitute(name))
  if (name == "datashield.aggregate") aggregate_here
  else getExportedValue(as.character(substitute(package)), name)
}
table <- read.csv("problem.csv")
servers <- lapply(split(table, table$task), function(p) {
  server <- new.env()
  server$X <- as.matrix(p[, 5:9])
  server$Y <- as.matrix(p$y)
  server$L <- as.matrix(p$label)
  server
})
m <- length(servers)
group <- (seq_len(m) - 1) %% 2
G <- diag(m) - outer(group, group, "==") / (m / 2)
opts <- list(init = 0, w0 = NULL, tol = 1e-14, maxIter = 3000, ter = 2)
say <- function(call, lam, C, fit)
  cat(call, lam, C, sprintf("%.12g", tail(fit$Obj, 1)), sep = ",", fill = TRUE)
cat("call,lam,C,value\n")
for (kind in c("LS", "LR")) {
  y <- if (kind == "LS") "Y" else "L"
  run <- function(name, lam, C, ...) {
    solver <- get(paste0("ds.", kind, "_", name))
    say(paste0("ds.", kind, "_", name), lam, C,
        solver("X", y, lam, C, ..., opts = opts, datasources = servers, nDigits = 14))
  }
  run("MTL_L21", 0.1, 0.02)
  run("MTL_Trace", 0.1, 0.02)
  run("MTL_Net", 0, 0.2, G)
  run("MTL_Net", 0.05, 0.2, G)
  run("Lasso", 0.05, 0.02)
}
