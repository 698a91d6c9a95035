"""A relation that levels follow, too: what is summed, what it costs, and what is found."""

import math

import numpy as np
import pytest

from skpmtl import PrivateMeanRegMTL
from skpmtl.exchange.protocol import Population
from skpmtl.mean_regularized.billboard import MeanBillboard, PooledBillboard
from tests.helpers.data import covariates

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, D = 200, 3
RANGE = (-10.0, 14.0)
B = np.array([[1.0, -2.0, 0.5, 2.0], [0.5, 0.0, 0.0, 1.5], [0.0, 0.5, 0.0, -1.0]])  # level last


def rows(seed=0, n=8, m=M):
    """Rows of tasks whose slopes and levels follow two facts. -> X, y, task, facts"""
    rng = np.random.default_rng(seed)
    Z, task = rng.normal(size=(m, 2)), np.repeat(np.arange(m), n)
    X = rng.normal(size=(len(task), D))
    models = np.column_stack([np.ones(m), Z]) @ B + 0.2 * rng.normal(size=(m, D + 1))
    y = np.einsum("ij,ij->i", X, models[task, :-1]) + models[task, -1]
    return X, y + 0.5 * rng.normal(size=len(task)), task, Z


def made(Z, **parameters):
    given = {"epsilon": 3.0, "delta": 1e-4, "tasks": range(M), "random_state": 0}
    given |= {"relation": covariates(Z), "target_range": RANGE, "unseen_task": "mean"}
    return PrivateMeanRegMTL(**{**given, **parameters})


def test_levels_and_slopes_follow_the_facts():
    """Nearly without noise: the coefficients of both, and models of tasks without rows."""
    X, y, task, Z = rows()
    est = made(Z, epsilon=1e3).fit(X, y, task=task)
    assert isinstance(est.billboard_, PooledBillboard) and not hasattr(est, "mean_coef_")
    # The models of 200 tasks spread by .2: coefficients by .2 / sqrt(200).
    assert np.abs(est.relation_coef_ - B[:, :-1]).max() < 6 * 0.2 / math.sqrt(M)
    assert np.abs(est.relation_intercept_ - B[:, -1]).max() < 6 * 0.3 / math.sqrt(M)
    assert est.level_spread_ < 1.0  # the least is 2^-4 of the window, .75
    new, target, which, later = rows(seed=1, m=50)
    est.relate(covariates(later, range(M, M + 50)))
    error = np.mean((est.predict(new, task=which + M) - target) ** 2)
    # Of noise .25, and models .04 about the relation of 4 numbers: .41
    assert error < 0.6
    own = est.personalize(new, target, task=which + M)
    assert np.mean((own.predict(new, task=which + M) - target) ** 2) < error
    mean = PrivateMeanRegMTL(
        epsilon=1e3, delta=1e-4, tasks=range(M), random_state=0, unseen_task="mean"
    ).fit(X, y, task=task)
    assert np.mean((mean.predict(new, task=which + M) - target) ** 2) > 4.0 * error


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"target_range": None, "unseen_task": "error"}, "needs a public range"),
        ({"loss": "poisson", "target_range": (0.1, 60.0)}, "of classes and counts"),
        ({"standard_errors": True}, "free levels only"),
        ({"epsilon": None}, "without a budget is exact"),
    ],
)
def test_other_relations_have_free_levels_and_say_so(given, reason):
    X, y, task, Z = rows()
    y = np.abs(np.rint(y)) if given.get("loss") == "poisson" else y
    est = made(Z, **given).fit(X, y, task=task)
    assert isinstance(est.billboard_, MeanBillboard)
    assert reason in est._course(Population(np.arange(M), D))[1]
    if est.epsilon is not None:
        assert reason in est.privacy_.public_inputs["levels"]
