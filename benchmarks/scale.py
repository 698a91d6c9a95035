"""Seconds and memory of fit and predict against the number of rows.

Every fit has a process of its own, of a quarter and of all of the tasks. `memory` is the peak of
the process, data included, above that of a small fit, over the size of X, y and the task ids;
`exponent` is the slope of log CPU seconds against log rows.
"""

import time
import warnings

import numpy as np

import skpmtl

from .command import command_line, commit, in_own_process, peak_memory, write_rows

FIELDS = (
    "commit suite estimator tasks rows features "
    "threads fit_seconds predict_seconds cpu_seconds memory exponent"
).split()
SHAPES = ((10_000, 50, 100), (100_000, 20, 50))
MOST = (1_000_000, 5, 20)  # of the estimators `WITH_MOST`
QUICK = ((200, 50, 20),)
_PARTS = 4, 1
_LEAST = 0.02  # CPU seconds below which an exponent would be one of overheads

# Without privacy and with; estimators of several methods appear once per method.
ESTIMATORS = tuple(
    (name + twin, settings)
    for name, variants in {
        "PrivateMTL": ({"epsilon": 1.0},),
        "MPMTLLowRank": ({"epsilon": 1.0}, {"epsilon": None, "alpha": 0.1}),
        "MPMTLGroupSparse": ({"epsilon": 1.0}, {"epsilon": None, "alpha": 0.1}),
        "PrivateMeanRegMTL": ({"epsilon": 1.0}, {"epsilon": None}),
        "DPMetaInit": ({"epsilon": 1.0},),
    }.items()
    for twin in ("", "Classifier")
    for settings in variants
)
WITH_MOST = ("PrivateMTL", "MPMTLLowRank", "PrivateMeanRegMTL", "DPMetaInit")


def text_of(name, settings):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def make_rows(m, n, d, seed=0):
    """X (m n, d), y and task ids: tasks near one model; nothing of the size of X beside X."""
    rng = np.random.default_rng(seed)
    X, y = np.empty((m * n, d)), np.empty(m * n)
    shared = rng.standard_normal(d) / np.sqrt(d)
    step = max((1 << 20) // (n * d), 1)
    for first in range(0, m, step):
        count = min(step, m - first)
        rows = slice(first * n, (first + count) * n)
        X[rows] = rng.standard_normal((count * n, d))
        W = shared + 0.3 * rng.standard_normal((count, d)) / np.sqrt(d)
        y[rows] = np.einsum("knj,kj->kn", X[rows].reshape(count, n, d), W).ravel()
    y += rng.standard_normal(m * n)
    return X, y, np.repeat(np.arange(m), n)


def measure_one(name, settings, m, n, d):
    """One estimator on one data set, in this process. -> row"""
    warnings.simplefilter("ignore")
    classify = name.endswith("Classifier")

    def problem(tasks):
        public = {"tasks": range(tasks), "random_state": 0} if settings.get("epsilon") else {}
        X, y, task = make_rows(tasks, n, d)
        if classify:
            public["classes"] = [0, 1]
            y = (y > 0).astype(float)
            y[::n], y[1::n] = 0.0, 1.0  # both classes in every task
        return getattr(skpmtl, name)(**settings, **public), X, y, task

    est, X, y, task = problem(70)  # compiles what is not in the cache
    est.fit(X, y, task=task).predict(X, task=task)
    before = peak_memory()
    est, X, y, task = problem(m)
    cpu, start = time.process_time(), time.perf_counter()
    est.fit(X, y, task=task)
    middle = time.perf_counter()
    est.predict(X, task=task)
    seconds = middle - start, time.perf_counter() - middle, time.process_time() - cpu
    known = text_of(name, settings), m, n, d, skpmtl.get_num_threads()
    size = (X.nbytes + y.nbytes + task.nbytes) / 2**20
    used = round((peak_memory() - before) / size, 2)
    return dict(zip(FIELDS[2:], (*known, *(round(x, 3) for x in seconds), used), strict=False))


def measure(quick, only="", shapes=None):
    """Yield rows of the estimators whose text contains `only`, at all shapes."""
    cases = [
        (*one, shape) for shape in shapes or (QUICK if quick else SHAPES) for one in ESTIMATORS
    ]
    if not (quick or shapes):
        cases += [(name, {"epsilon": 1.0}, MOST) for name in WITH_MOST]
    for name, settings, shape in cases:
        if only in text_of(name, settings):
            m, n, d = shape
            rows = [in_own_process(measure_one, name, settings, m // k, n, d) for k in _PARTS]
            less, more = (row["cpu_seconds"] for row in rows)
            if less >= _LEAST:
                rows[-1]["exponent"] = round(np.log(more / less) / np.log(_PARTS[0]), 2)
            yield from rows


def main(arguments=None):
    parser = command_line("scale", __doc__, None, "small problems")
    parser.add_argument("--only", default="", help="text of estimators")
    options = parser.parse_args(arguments)
    rows, about = measure(options.quick, options.only), {"commit": commit(), "suite": "scale"}
    return write_rows(({**about, **row} for row in rows), FIELDS, options.output)


if __name__ == "__main__":
    main()
