"""Seconds and memory of fit and predict against the number of rows.

Every estimator and shape runs in a process of its own, on a quarter and on all of the tasks.
`memory` is the peak of the process above what it held before the data, over the size of X, y
and the task ids; `exponent` is the slope of log CPU seconds against log rows.
"""

import ctypes
import time
import warnings

import numpy as np

import skpmtl

from .command import command_line, commit, in_own_process, write_rows

FIELDS = (
    "commit suite estimator tasks rows features "
    "threads fit_seconds predict_seconds cpu_seconds memory exponent"
).split()
SHAPES = ((10_000, 50, 100), (100_000, 20, 50))
MOST = (1_000_000, 5, 20)  # of the estimators `WITH_MOST`
QUICK = ((200, 50, 20),)
_PARTS = (4, 1)
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


def _give_back():
    """What earlier work left free in this process would be taken again, and not be counted."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # not of glibc
        pass


def _status(name):
    """A number of kB from the status of this process, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024


def measure_one(name, settings, m, n, d, parts=_PARTS):
    """One estimator on parts of one data set, in this process. -> list of rows"""
    warnings.simplefilter("ignore")

    def estimator(tasks):
        public = {"tasks": range(tasks), "random_state": 0} if settings.get("epsilon") else {}
        if classify:
            public["classes"] = [0, 1]
        return getattr(skpmtl, name)(**settings, **public)

    classify = name.endswith("Classifier")

    def rows_of(tasks):
        X, y, task = make_rows(tasks, n, d)
        if classify:
            y = (y > 0).astype(float)
            y[::n], y[1::n] = 0.0, 1.0  # both classes in every task
        return X, y, task

    X, y, task = rows_of(70)  # compiles what is not in the cache
    estimator(70).fit(X, y, task=task).predict(X, task=task)
    del X, y, task
    _give_back()
    before = _status("VmRSS")
    X, y, task = rows_of(m)
    everything = _status("VmRSS") - before
    size = X.nbytes + y.nbytes + task.nbytes
    out = []
    for part in parts:
        tasks = m // part
        rows = tasks * n
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak starts anew
        except OSError:
            pass
        cpu, start = time.process_time(), time.perf_counter()
        fitted = estimator(tasks).fit(X[:rows], y[:rows], task=task[:rows])
        middle = time.perf_counter()
        fitted.predict(X[:rows], task=task[:rows])
        end = time.perf_counter()
        spent = time.process_time() - cpu
        peak = _status("VmHWM") - before - max(everything, size) + size / part
        out.append(
            {
                "estimator": text_of(name, settings),
                "tasks": tasks,
                "rows": n,
                "features": d,
                "threads": skpmtl.get_num_threads(),
                "fit_seconds": round(middle - start, 3),
                "predict_seconds": round(end - middle, 3),
                "cpu_seconds": round(spent, 3),
                "memory": round(peak * part / size, 2),
            }
        )
        del fitted
    used = [row["cpu_seconds"] for row in out]
    if len(out) > 1 and min(used) >= _LEAST:
        slope = np.polyfit(np.log([row["tasks"] for row in out]), np.log(used), 1)[0]
        out[-1]["exponent"] = round(float(slope), 2)
    return out


def measure(quick, only="", shapes=None):
    """Yield rows of the estimators whose text contains `only`, at all shapes."""
    cases = [
        (*one, shape) for shape in shapes or (QUICK if quick else SHAPES) for one in ESTIMATORS
    ]
    if not (quick or shapes):
        cases += [(name, {"epsilon": 1.0}, MOST) for name in WITH_MOST]
    for name, settings, shape in cases:
        if only in text_of(name, settings):
            yield from in_own_process(measure_one, name, settings, *shape)


def main(arguments=None):
    parser = command_line("scale", __doc__, None, "small problems")
    parser.add_argument("--only", default="", help="text of estimators")
    options = parser.parse_args(arguments)
    rows, about = measure(options.quick, options.only), {"commit": commit(), "suite": "scale"}
    return write_rows(({**about, **row} for row in rows), FIELDS, options.output)


if __name__ == "__main__":
    main()
