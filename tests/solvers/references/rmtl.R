# Values of RMTL 0.9.9 on problem.csv: Rscript rmtl.R > rmtl.csv
library(RMTL)
table <- read.csv("problem.csv")
parts <- split(table, table$task)
X <- lapply(parts, function(p) as.matrix(p[, 5:9]))
names(X) <- NULL
Y <- list(Regression = lapply(parts, function(p) as.matrix(p$y)),
          Classification = lapply(parts, function(p) as.matrix(p$label)))
Y <- lapply(Y, function(y) { names(y) <- NULL; y })
m <- length(X)
# Every task against the mean of those of its parity, as Create_simulated_data does.
group <- (seq_len(m) - 1) %% 2
G <- diag(m) - outer(group, group, "==") / (m / 2)
opts <- list(init = 0, tol = 1e-15, maxIter = 50000)
Lam1 <- c(L21 = 0.1, Trace = 0.1, Lasso = 0.05, Graph = 0.2, CMTL = 0.1)
Lam2 <- c(L21 = 0.02, Trace = 0, Lasso = 0.02, Graph = 0.02, CMTL = 0.05)
say <- function(...) cat(paste(..., sep = ","), "\n", sep = "")
number <- function(x) sprintf("%.12g", x)
say("call", "type", "regularization", "Lam1", "Lam2", "value")
for (type in names(Y)) for (penalty in names(Lam1)) {
  y <- Y[[type]]
  fit <- MTL(X, y, type = type, Regularization = penalty, Lam1 = Lam1[[penalty]],
             Lam2 = Lam2[[penalty]], opts = opts, G = G, k = 3)
  value <- tail(fit$Obj, 1)
  # The histories of the sparse penalties hold all of the objective, or all but the penalty.
  say("MTL", type, penalty, Lam1[[penalty]], Lam2[[penalty]], number(value))
  say("calcError", type, penalty, Lam1[[penalty]], Lam2[[penalty]], number(calcError(fit, X, y)))
  say("predict", type, penalty, Lam1[[penalty]], Lam2[[penalty]],
      number(predict(fit, X)[[3]][4]))
}
# cvMTL draws its folds: these are those of the column "fold".
folds <- lapply(0:2, function(f) list(lapply(parts, function(p) which(p$fold != f)),
                                      lapply(parts, function(p) which(p$fold == f))))
assignInNamespace("getCVPartition", function(...) folds, "RMTL")
seq1 <- c(1, 0.3, 0.1, 0.03)
for (penalty in names(Lam1)) {
  cv <- cvMTL(X, Y$Regression, type = "Regression", Regularization = penalty, Lam1_seq = seq1,
              Lam2 = Lam2[[penalty]], opts = opts, G = G, k = 3, nfolds = 3)
  for (i in seq_along(seq1))
    say("cvMTL", "Regression", penalty, seq1[i], Lam2[[penalty]], number(cv$cvm[i]))
}
slow <- MTL(X, Y$Regression, type = "Regression", Regularization = "CMTL", Lam1 = 1,
            Lam2 = Lam2[["CMTL"]], opts = list(init = 0, tol = 1e-15, maxIter = 3000), k = 3)
say("3000 steps", "Regression", "CMTL", 1, Lam2[["CMTL"]], number(tail(slow$Obj, 1)))
# With the gradient in M of the objective that it states.
code <- gsub("-c * (t(W) %*% W %*% invIM %*% invIM)", "-c * (invIM %*% t(W) %*% W %*% invIM)",
             deparse(RMTL:::LS_CMTL), fixed = TRUE)
right <- eval(parse(text = code), envir = asNamespace("RMTL"))
for (lam in c(1, 0.3)) {
  fit <- right(X, Y$Regression, lam, Lam2[["CMTL"]], 3, opts)
  say("gradient put right", "Regression", "CMTL", lam, Lam2[["CMTL"]], number(tail(fit$Obj, 1)))
}
