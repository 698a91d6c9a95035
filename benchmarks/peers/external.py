"""The peers of R and MATLAB, where they are installed: RMTL on R, MALSAR on Octave.

Neither comes from Python's package index. For RMTL install R, then ``install.packages("RMTL")``, or
name the folder of its sources in the environment variable ``RMTL`` where R has the packages that it
needs (corpcor, MASS, psych, doParallel, foreach). For MALSAR install Octave, take the toolbox apart
somewhere and name its folder in the environment variable ``MALSAR``. What is missing is skipped.
Every fit runs in a fresh interpreter, which says itself how long the fit took, without its start
and the reading of files. They take 1,500 iterations at most, as in the examples of both manuals,
and the loosest tolerance of their own with which they get within 1e-6 of the optimum; one that does
not get there shows how near it came.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from .exact import ACCURACY, instances, loosest, skpmtl_fit

_LIMIT = 600  # seconds that one fit may take; without a row after that
_STEPS = 1500

_RMTL = """
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]; penalty <- arguments[2]
alpha <- as.numeric(arguments[3]); tol <- as.numeric(arguments[4])
read <- function(name, what, n) readBin(file.path(folder, name), what, n)
shape <- read("shape", "integer", 2); sizes <- read("sizes", "integer", shape[1])
rows <- matrix(read("X", "double", sum(sizes) * shape[2]), ncol = shape[2], byrow = TRUE)
y <- read("y", "double", sum(sizes)); task <- rep(seq_along(sizes), sizes)
X <- lapply(seq_along(sizes), function(k) rows[task == k, , drop = FALSE])
Y <- lapply(seq_along(sizes), function(k) matrix(y[task == k], ncol = 1))
kind <- if (penalty == "trace") "Trace" else "L21"
sources <- Sys.getenv("RMTL")
files <- if (nzchar(sources)) list.files(file.path(sources, "R"), full.names = TRUE) else NULL
for (file in files) source(file)
start <- proc.time()
model <- (if (nzchar(sources)) MTL else RMTL::MTL)(
  X, Y, type = "Regression", Regularization = kind, Lam1 = alpha, Lam2 = 0,
  opts = list(init = 0, tol = tol, maxIter = as.integer(arguments[5])))
spent <- proc.time() - start
writeBin(c(as.vector(model$W), as.vector(model$C), sum(spent[c(1, 2)]), length(model$Obj)),
         file.path(folder, "out"))
"""

_MALSAR = """
arguments = argv(); folder = arguments{1}; penalty = arguments{2};
alpha = str2double(arguments{3}); tol = str2double(arguments{4});
addpath(genpath(getenv("MALSAR"))); warning("off", "all");
function values = pull(path, what, n)
  handle = fopen(path); values = fread(handle, n, what); fclose(handle);
end
shape = pull([folder "/shape"], "int32", 2); sizes = pull([folder "/sizes"], "int32", shape(1));
rows = reshape(pull([folder "/X"], "double", sum(sizes) * shape(2)), shape(2), [])';
y = pull([folder "/y"], "double", sum(sizes)); ends = [0; cumsum(sizes)];
X = cell(1, shape(1)); Y = cell(1, shape(1));
for k = 1:shape(1)
  X{k} = rows(ends(k) + 1:ends(k + 1), :); Y{k} = y(ends(k) + 1:ends(k + 1));
end
opts = struct("init", 2, "tFlag", 1, "tol", tol, "maxIter", str2double(arguments{5}));
start = cputime();
if strcmp(penalty, "trace")
  [W, values] = Least_Trace(X, Y, alpha, opts);
else
  [W, values] = Least_L21(X, Y, alpha, opts);
end
spent = cputime() - start;
out = [W(:); spent; numel(values)];
handle = fopen([folder "/out"], "w"); fwrite(handle, out, "double"); fclose(handle);
"""


def installed():
    """{name: function (problem, tol) -> coef, intercept, seconds, steps} of the peers here."""
    found = {}
    rscript, sources = shutil.which("Rscript"), os.environ.get("RMTL")
    there = rscript and (
        Path(sources, "R", "MTL.R").is_file()
        if sources
        else _runs([rscript, "-e", "stopifnot(requireNamespace('RMTL', quietly=TRUE))"])
    )
    if there:
        found["RMTL"] = partial(_fit, [rscript], _RMTL, ".R")
    octave, toolbox = shutil.which("octave-cli"), os.environ.get("MALSAR")
    if octave and toolbox and list(Path(toolbox).rglob("Least_Trace.m")):
        found["MALSAR"] = partial(_fit, [octave, "--no-gui", "--quiet"], _MALSAR, ".m")
    return found


def _runs(command):
    return subprocess.run(command, capture_output=True).returncode == 0


def _fit(command, script, suffix, problem, tol):
    """Fit in a fresh interpreter. -> coef, intercept, CPU seconds of the fit alone, steps"""
    tasks = problem.tasks()
    sizes = np.array([len(y) for _, y in tasks], dtype=np.int32)
    m, d = len(tasks), problem.X.shape[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.array([m, d], dtype=np.int32).tofile(folder / "shape")
        sizes.tofile(folder / "sizes")
        np.concatenate([X for X, _ in tasks]).astype(float).tofile(folder / "X")
        np.concatenate([y for _, y in tasks]).astype(float).tofile(folder / "y")
        path = folder / f"fit{suffix}"
        path.write_text(script)
        numbers = [repr(float(value)) for value in (problem.alpha, tol)]
        arguments = [str(path), name, problem.penalty, *numbers, str(_STEPS)]
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            env={**os.environ, **one_thread},
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed on {problem.name}: {done.stderr[-500:]}")
        out = np.fromfile(folder / "out")
    coef, rest = out[: m * d].reshape(m, d), out[m * d :]  # W is d x m, by columns
    intercept = rest[:m] if problem.fit_intercept else np.zeros(m)
    return coef, intercept, float(rest[-2]), int(rest[-1])


def measure(quick, repeats, only=""):
    """Rows of the CSV file, like those of `exact.measure`; RMTL centres, MALSAR does not.

    `only`: how names of problems begin.
    """
    formula = {"RMTL": "mean", "MALSAR": "sum"}
    found = installed()
    for problem, optimum in instances(quick) if found else ():
        for peer, fit in found.items():
            wanted = problem.formula == formula[peer] and problem.name.startswith(only)
            if wanted and problem.task is not None:
                if optimum is None:
                    optimum = problem.objective(*skpmtl_fit(problem, 1e-10))
                try:
                    yield from compare(problem, optimum, peer, fit, repeats)
                except subprocess.TimeoutExpired:
                    continue


def compare(problem, optimum, peer, fit, repeats):
    """Both alternately; a peer that never gets there shows how near it came."""

    def accuracy(coef, intercept, *_):
        return problem.objective(coef, intercept) / optimum - 1

    # Their stops are tests on the change of the objective: follow them down to rounding errors.
    for tol in 10.0 ** -np.arange(3, 16, 2):
        *solution, _, steps = fit(problem, tol)
        if accuracy(*solution) <= ACCURACY or steps >= _STEPS:
            break
    ours = loosest(problem, optimum, partial(skpmtl_fit, problem))
    seconds = {"skpmtl": [], peer: []}
    for _ in range(repeats):
        *solution, spent, _ = fit(problem, tol)
        seconds[peer].append(spent)
        start = time.process_time()
        mine = ours()
        seconds["skpmtl"].append(time.process_time() - start)
    reached = {"skpmtl": accuracy(*mine), peer: accuracy(*solution)}
    median = {name: statistics.median(times) for name, times in seconds.items()}
    for name in seconds:
        yield {
            "peer": name,
            "problem": problem.name,
            "penalty": problem.penalty,
            "accuracy": f"{reached[name]:.1e}",
            "seconds": f"{median[name]:.5f}",
            "ratio": f"{median[name] / median['skpmtl']:.2f}",
            "megabytes": "",
        }
