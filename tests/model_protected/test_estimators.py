"""Behaviour of the model-protected estimators: budgets, shapes, structure, errors."""

import numpy as np
import pytest

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from tests.helpers import plain_reference as plain

REGRESSORS = [MPMTLLowRank, MPMTLGroupSparse]
CLASSIFIERS = [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]
ESTIMATORS = REGRESSORS + CLASSIFIERS
# epsilon=None with a number for alpha is the exact solver, else a noise-free prior.
WAYS = {
    "exact": {"alpha": 0.1, "epsilon": None},
    "noise-free": {"epsilon": None, "algorithm": "empirical-bayes"},
    "empirical-bayes": {"epsilon": 2.0},
}
SEEDED = "ignore:The noise of this fit is reproducible:skpmtl.privacy.PrivacyLeakWarning"


def problem(labels=False, sizes=(9, 14, 6, 20, 11, 8), d=5, seed=0):
    X, y, task = plain.make_rows(list(sizes), d, seed, labels=labels)
    return X, y, task


def fitted(cls, X, y, task=None, **parameters):
    tasks = sorted(set(task.tolist())) if task is not None else "auto"
    parameters = {"tasks": tasks, **plain.listed_classes(cls, y), **parameters}
    return cls(**parameters).fit(X, y, task=task)


# ------------------------------------------------------------------------- combinations


# -------------------------------------------------------------------------- personalize
@pytest.mark.parametrize("penalty_dead", [True, False])
def test_personalize_of_an_empty_fit(penalty_dead):
    """Exact fit at or above alpha_max: the shape is zero and new models are intercepts."""
    X, y, task = problem()
    model = fitted(MPMTLLowRank, X, y, task, epsilon=None, alpha=1e6 if penalty_dead else 1e-3)
    model.personalize(X[task == 1], y[task == 1], task=np.full(14, 77))
    assert model.coef_[-1].any() != penalty_dead
    if penalty_dead:
        assert model.intercept_[-1] == pytest.approx(y[task == 1].mean())


# ---------------------------------------------------------------------- forms of input


# ------------------------------------------------------------------- report and exports


# ---------------------------------------------------------------------- what methods do


# ------------------------------------------------------------------------------- errors
