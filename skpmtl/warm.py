"""Compile and cache every kernel ahead of the first fit.

    python -m skpmtl.warm

For container images and benchmarks: numba compiles a loop at its first call and keeps it in
its cache folder (``NUMBA_CACHE_DIR``, or ``__pycache__`` next to the package), where later
processes of the same user and kind of processor find it. Every estimator is fitted on a few
rows, dense, sparse and wide; with ``dtype="float32"`` the loops that meet dense rows are compiled
at the first call.
"""

import inspect
import time
import warnings

import numpy as np
from scipy import sparse

import skpmtl

from .base import BaseMTL

# More rows than features, and no row norm above 1.
_TASKS, _ROWS, _FEATURES = 66, 12, 9
_SETTINGS = {
    "tasks": range(_TASKS),
    "random_state": 0,
    "n_alphas": 2,  # of a path, near its beginning: what compiles is the same
    "eps": 0.5,
    "cv": 2,
}


def estimators():
    """Instances of all linear estimators, with and without privacy."""
    alone = skpmtl.reproduction.LocalOnly, skpmtl.reproduction.LocalOnlyClassifier
    for cls in (*(getattr(skpmtl, name) for name in skpmtl.__all__), *alone):
        if not (inspect.isclass(cls) and issubclass(cls, BaseMTL)):
            continue
        known = inspect.signature(cls).parameters
        settings = {name: value for name, value in _SETTINGS.items() if name in known}
        if "epsilon" in known:  # as much as all queries need
            yield cls(epsilon=10.0, **settings)
            yield cls(epsilon=None, **settings)
        else:
            yield cls(**settings)
        if {"ridge", "alpha", "epsilon"} <= set(known):  # the convex problem of a given alpha
            yield cls(alpha=0.1, epsilon=None, **settings)


def inputs(n_classes):
    """Tuples (X, y, task); n_classes 0: regression. Task None: a column of y per task."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (_TASKS * _ROWS, _FEATURES))
    task = np.repeat(np.arange(_TASKS), _ROWS)
    wide = rng.standard_normal((_ROWS, _TASKS))
    y = X[:, 0] + 0.1 * rng.standard_normal(len(X))
    if n_classes:
        y = np.tile(np.arange(_ROWS) % n_classes, _TASKS)
        wide = np.repeat((np.arange(_ROWS) % n_classes)[:, None], _TASKS, axis=1)
    yield X, y, task
    yield sparse.csr_matrix(X), y, task
    yield X[:_ROWS], wide, None


def warm():
    """Fit and predict with every estimator on every kind of input.

    Returns
    -------
    seconds : float
    skipped : list of str
        Estimators and inputs that do not go together.
    """
    start, skipped = time.perf_counter(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, y, task = next(inputs(0))
        short = slice(None, None, _ROWS // 2)  # two rows a task, fewer than features
        for settings in ({"epsilon": None}, {"tasks": range(_TASKS)}):
            skpmtl.PrivateMeanRegMTL(**settings).fit(X[short], y[short], task=task[short])
        skpmtl.DPMetaInit(epsilon=None).fit(X[short], y[short], task=task[short])
        skpmtl.reproduction.LocalOnly(loss="huber").fit(X, y, task=task)
        for given in ({"alpha": 0.1, "epsilon": None}, {"tasks": range(_TASKS)}):
            skpmtl.MPMTLLowRank(**given, loss="poisson").fit(X, np.exp(y), task=task)
        label = np.arange(2 * _TASKS) % 2
        model = skpmtl.PrivateMeanRegMTLClassifier(epsilon=None, lam=0.1)
        model.fit(X[short], label, task=task[short])
        # So many features that matrices of the rows are smaller by more than does not matter.
        many = np.random.default_rng(0).standard_normal((2 * _TASKS, 256))
        skpmtl.PrivateMeanRegMTL(epsilon=None).fit(many, y[short], task=task[short])
        model = skpmtl.MPMTLLowRankClassifier(0.1, epsilon=None, max_iter=60)
        model.fit(many, label, task=task[short])
        for estimator in estimators():
            labels = (2, 3) if getattr(estimator, "_multiclass", False) else (2,)
            for n_classes in labels if hasattr(estimator, "predict_proba") else (0,):
                for X, y, task in inputs(n_classes):
                    try:
                        estimator.fit(X, y, task=task).predict(X, task=task)
                    except (TypeError, ValueError) as error:
                        kind = "wide" if task is None else type(X).__name__
                        skipped.append(f"{estimator} with {kind} X: {error}")
    return time.perf_counter() - start, skipped


def main():
    seconds, _ = warm()
    print(f"All kernels are compiled and cached: {seconds:.1f} s.")


if __name__ == "__main__":
    main()
