"""Few-shot transfer from a private initialisation, beside none, a non-private and a local one.

    python -m benchmarks.reproduce.meta_learning [--quick] [--repeats R] [--output FILE.csv]
                                                 [--jobs J] [--only TEXT]

The comparison of figure 2 of Li, Khodak, Caldas and Talwalkar (2020): tasks that took no part
in training adapt with 5 or 10 rows each, from an initialisation that is

- zero, with the estimator's own strength of the pull ("zeros"), and with the one strength that
  is best on the very test rows ("alone"), which no user could know;
- learned by Reptile without privacy;
- learned with record-level guarantees inside every task ("task-global");
- learned from whole updates that every task makes private alone ("local").

Data: linear and logistic synthetic tasks w_k ~ N(w*, .25 I) in several sizes, 200 new tasks
with 10 rows each; School, 100 schools for training and 39 to adapt to. The score is nMSE (less
is better) or accuracy on other rows of the new tasks. ``kept`` is the share of the gain of
non-private Reptile over the better of "zeros" and "alone". Privacy is "zero-out" with delta 1e-3,
as in published comparisons; the estimator's own defaults ("replace-one" and delta =
min(1e-5, 1 / n_rows^2)) are shown at epsilon 1 as well.

All hyper-parameters are the estimators' defaults, which read public numbers only, but for
``clip_norm``, which follows its documented rule: for records .5 (School: .1, half of a fifth of
the range of the target, rows of length 1), for whole updates a quarter of the length of w*
(sqrt(d); School: 1). No intercept: School has a column of ones. The last rows are seconds and
memory of one large fit.
"""

import math
import multiprocessing
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from skpmtl import DPMetaInit, DPMetaInitClassifier, PrivacyLeakWarning
from skpmtl.datasets.school import load_school
from skpmtl.metrics import nmse

from ..run import write_rows
from . import computed, script

FIELDS = (
    "data",
    "metric",
    "shots",
    "method",
    "epsilon",
    "delta",
    "adjacency",
    "mean",
    "sd",
    "kept",
    "repeats",
)
EPSILONS = (1.0, 3.0, 9.0)


def synthetic(seed, logistic=False, m=500, n=50, d=20, shots=10, quick=False):
    """Rows N(0, I / d), w* ~ N(0, I), w_k ~ N(w*, .25 I); targets x'w_k + N(0, 1), or the sign
    of x'w_k + .3 times logistic noise. -> training, adaptation and test rows: X, y, task each."""
    m, new = (60, 40) if quick else (m, 200)
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(d)
    W = centre + 0.5 * rng.standard_normal((m + new, d))
    tasks = np.arange(m), np.arange(m, m + new), np.arange(m, m + new)
    parts = []
    for members, count in zip(tasks, (n, shots, 50), strict=True):
        task = np.repeat(members, count)
        X = rng.standard_normal((len(task), d)) / np.sqrt(d)
        score = np.einsum("ij,ij->i", X, W[task])
        if logistic:
            y = (score + 0.3 * rng.logistic(size=len(task)) > 0).astype(int)
        else:
            y = score + rng.standard_normal(len(task))
        parts.append((X, y, task))
    return parts


def school(seed, shots=10, quick=False):
    """100 schools with all their pupils; `shots` pupils of each of the other 39. Shares / 100,
    everything / sqrt(8), targets on [0, 1]."""
    bunch = load_school()
    X, task = bunch.data.astype(float), bunch.task
    X[:, 3:5] /= 100.0
    X /= np.sqrt(8.0)
    y = (bunch.target - 1.0) / 69.0
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(task))
    train = np.isin(task, names[:100])
    adapt = np.zeros(len(task), dtype=bool)
    for name in names[100:]:
        adapt[rng.permutation(np.flatnonzero(task == name))[:shots]] = True
    return [(X[r], y[r], task[r]) for r in (train, adapt, ~train & ~adapt)]


SCHOOL = {"task-global": 0.1, "local": 0.25}  # clip norms
SMALL, WIDE = {"local": 1.1}, {"local": 1.8}
DATA = {
    "linear d=20 n=50 m=500": (synthetic, {}, SMALL),
    "linear d=20 n=50 m=2000": (synthetic, {"m": 2000}, SMALL),
    "linear d=50 n=100 m=1000": (synthetic, {"m": 1000, "n": 100, "d": 50}, WIDE),
    "logistic d=20 n=50 m=500": (synthetic, {"logistic": True}, SMALL),
    "logistic d=20 n=50 m=2000": (synthetic, {"logistic": True, "m": 2000}, SMALL),
    "School 100 -> 39": (school, {}, SCHOOL),
    "School 100 -> 39, 5 pupils": (school, {"shots": 5}, SCHOOL),
}
QUICK = ("linear d=20 n=50 m=500", "logistic d=20 n=50 m=500", "School 100 -> 39, 5 pupils")
SHRUNK = {"zeros": 0.0, "reptile, half as long": 0.5}  # factors of the initialisation
DEFAULT = {"adjacency": "replace-one", "delta": None}
TABLE = {"adjacency": "zero-out", "delta": 1e-3}


def cases(quick=False):
    """(method, parameters) of the table."""
    yield "alone", {"epsilon": None}
    yield "zeros", {"epsilon": None}
    yield "reptile", {"epsilon": None}
    for privacy in ("task-global", "local"):
        for epsilon in EPSILONS[:1] if quick else EPSILONS:
            yield privacy, {"privacy": privacy, "epsilon": epsilon, **TABLE}
        yield privacy, {"privacy": privacy, "epsilon": 1.0, **DEFAULT}


def alone(adapt, test, classification):
    """Best score over one common strength of ridge or logistic regression of each new task.

    Each task adapts with the same number of rows. Steps of a fixed majorant of the Hessian, which
    for ridge is the Hessian.
    """
    names, codes = np.unique(adapt[2], return_inverse=True)
    order = np.argsort(codes, kind="stable")
    X = adapt[0][order].reshape(len(names), -1, adapt[0].shape[1])
    y = adapt[1][order].reshape(X.shape[:2])
    which = np.searchsorted(names, test[2])
    scores = []
    for strength in np.logspace(-2.0, 2.0, 13):
        W = np.zeros((len(names), X.shape[2]))
        curvature = np.matmul(X.transpose(0, 2, 1), X) / (4.0 if classification else 1.0)
        inverse = np.linalg.inv(curvature + strength * np.eye(X.shape[2]))
        for _ in range(300 if classification else 1):
            z = np.matmul(X, W[:, :, None])[:, :, 0]
            r = 1.0 / (1.0 + np.exp(-z)) - y if classification else z - y
            gradient = np.matmul(r[:, None, :], X)[:, 0] + strength * W
            W -= np.matmul(inverse, gradient[:, :, None])[:, :, 0]
        z = np.einsum("ij,ij->i", test[0], W[which])
        scores.append(np.mean((z > 0) == test[1]) if classification else -nmse(test[1], z))
    return float(abs(max(scores)))


def transfer(parts, method, parameters, bounds, seed=0, shots=(None,)):
    """Scores on the test rows of new tasks after `personalize` with the first rows of each.

    `bounds`: clip norms; `shots`: numbers of rows, None for all. One score for each of them.
    """
    train, adapt, test = parts
    classification = train[1].dtype.kind == "i"
    few = [first_rows(adapt, count) for count in shots]
    if method == "alone":
        return [alone(rows, test, classification) for rows in few]
    cls = DPMetaInitClassifier if classification else DPMetaInit
    est = cls(
        **parameters,
        clip_norm=bounds.get(method, 0.5),
        fit_intercept=False,
        tasks=np.unique(train[2]),
        random_state=seed,
    )
    if classification:
        est.set_params(classes=np.unique(train[1]))
    with warnings.catch_warnings():  # the noise is seeded
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        est.fit(*train[:2], task=train[2])
    est.billboard_.init = SHRUNK.get(method, 1.0) * est.billboard_.init
    scores = []
    for X, y, task in few:  # replaces the models of the new tasks; the initialisation stays
        predicted = est.personalize(X, y, task=task).predict(test[0], task=test[2])
        right = np.mean(predicted == test[1]) if classification else nmse(test[1], predicted)
        scores.append(float(right))
    return scores


def first_rows(rows, count):
    """The first `count` rows of every task; None: all."""
    if count is None:
        return rows
    codes = np.unique(rows[2], return_inverse=True)[1]
    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes)
    place = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return tuple(part[np.sort(order[place < count])] for part in rows)


def measure(quick=False, repeats=None, only=None):
    """Cells of the table, as of `computed`."""
    count = repeats or (1 if quick else 5)
    for label, (make, settings, bounds) in DATA.items():
        if (only and only not in label) or (quick and label not in QUICK):
            continue
        sets = [make(seed, quick=quick, **settings) for seed in range(count)]
        shots = settings.get("shots", 10)
        yield cell(list(cases(quick)), sets, bounds, {shots: None}, partial(entries, label))


def cell(cases, sets, bounds, shots, rows):
    """Calls of all methods on all sets, and their rows, as of `computed`.

    `shots`: by what the rows are for, the number of rows that a new task adapts with.
    """
    calls = [
        (transfer, parts, method, how, bounds, seed, tuple(shots.values()))
        for method, how in cases
        for seed, parts in enumerate(sets)
    ]

    def finish(found):
        by_method = [found[i : i + len(sets)] for i in range(0, len(found), len(sets))]
        for position, count in enumerate(shots):
            columns = [[scores[position] for scores in own] for own in by_method]
            yield from rows(count, [(*case, own) for case, own in zip(cases, columns, strict=True)])

    return calls, finish


def entries(label, shots, found):
    """Rows of one data set, from (method, parameters, scores); the public methods come first."""
    better = max if "logistic" in label else min
    means = {}
    for method, parameters, scores in found:
        means[method] = mean = float(np.mean(scores))
        start = better(means["alone"], means.get("zeros", means["alone"]))
        gain = means["reptile"] - start if "reptile" in means else 0.0
        delta = parameters.get("delta", "")
        yield {
            "data": label,
            "metric": "accuracy" if "logistic" in label else "nMSE",
            "shots": shots,
            "method": method,
            "epsilon": parameters["epsilon"] or "inf",
            "delta": "default" if delta is None else delta,
            "adjacency": parameters.get("adjacency", ""),
            "mean": round(mean, 4),
            "sd": round(float(np.std(scores, ddof=1)), 4) if len(scores) > 1 else "",
            "kept": round((mean - start) / gain, 3) if gain else "",
            "repeats": len(scores),
        }


# --------------------------------------------------------------------------- one large fit
def resident(field, reset=False):
    """Bytes of memory in use ("VmRSS") or of its peak since a reset ("VmHWM"); Linux only.

    The peak of getrusage would include that of the process that started this one.
    """
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return math.nan
    return 1024.0 * int(status.split(f"{field}:")[1].split()[0])


def large_fit(n_tasks, n_rows, n_features, parameters, results):
    """In a fresh process: seconds of the second fit of this kind, and peak memory over X."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((n_tasks, n_features))
    X = rng.standard_normal((n_tasks * n_rows, n_features))
    X /= np.sqrt(n_features)
    task = np.repeat(np.arange(n_tasks), n_rows)
    y = np.empty(len(task))
    for k in range(n_tasks):
        part = slice(k * n_rows, (k + 1) * n_rows)
        y[part] = X[part] @ W[k] + rng.standard_normal(n_rows)

    def fit(some):
        rows = slice(some * n_rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            est = DPMetaInit(**parameters, tasks=range(some))
            return est.fit(X[rows], y[rows], task=task[rows])

    with threadpool_limits(1):
        fit(min(20, n_tasks))  # compiles
        before = resident("VmRSS", reset=True)
        wall, cpu = time.perf_counter(), time.process_time()
        fit(n_tasks)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    results.put((wall, cpu, 1.0 + (resident("VmHWM") - before) / X.nbytes))


def large(quick=False):
    """Time and memory rows; memory is the peak, counted in sizes of X (which is 1 of it)."""
    shape = (50, 20, 10) if quick else (2000, 100, 50)
    methods = {
        "task-global": {},
        "reptile": {"epsilon": None},
        "local": {"privacy": "local"},
    }
    for method, parameters in list(methods.items())[: 1 if quick else None]:
        spawn = multiprocessing.get_context("spawn")
        results = spawn.Queue()
        process = spawn.Process(target=large_fit, args=(*shape, parameters, results))
        process.start()
        found = results.get(timeout=600)
        process.join()
        for metric, value in zip(
            ("wall seconds", "CPU seconds", "peak memory / X"), found, strict=True
        ):
            private = parameters.get("epsilon", 1.0) is not None
            yield {
                "data": f"{shape[0]} tasks x {shape[1]} x {shape[2]}",
                "metric": metric,
                "shots": "",
                "method": method,
                "epsilon": 1.0 if private else "inf",
                "delta": "default" if private else "",
                "adjacency": "replace-one" if private else "",
                "mean": round(value, 3),
                "sd": "",
                "kept": "",
                "repeats": 1,
            }


def main(arguments=None):
    parser = script(
        "meta_learning",
        __doc__,
        "small data, epsilon 1, one seed",
        5,
        "meta_learning.csv",
        jobs=True,
    )
    parser.add_argument("--only", help="part of the name of a data set, or large")
    options = parser.parse_args(arguments)

    def rows():
        yield from computed(measure(options.quick, options.repeats, options.only), options.jobs)
        if options.only in (None, "large"):
            yield from large(options.quick)

    with threadpool_limits(1):
        return write_rows(rows(), FIELDS, options.output)


if __name__ == "__main__":
    main()
