"""A relation that levels follow, too: what is summed, what it costs, and what is found."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import PrivateMeanRegMTL
from skpmtl.engine import plan as rules
from skpmtl.exchange.protocol import Population
from skpmtl.mean_regularized.billboard import MeanBillboard, PooledBillboard
from skpmtl.privacy import gdp_mu
from tests.helpers.data import covariates
from tests.helpers.sites import play

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


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
def test_sensitivities_of_rounds_are_reached_and_not_passed(adjacency, factor):
    """Of updates times the public row of a task."""
    Z, rng = rows()[3], np.random.default_rng(0)
    est, population = made(Z, adjacency=adjacency), Population(np.arange(M), D)
    queries = play(est, population, lambda query, name, noise: rng.normal(size=noise.shape))[1]
    query = next(query for query in queries if query.statistic == "pooled")
    reach, bound = query.mechanisms["pooled"].sensitivity * M, query.public["clip_norm"]
    assert query.divide == M and reach == pytest.approx(2.0 * bound if factor else bound)

    def total(sent, position):
        return query.combine({"pooled": np.array([sent])}, np.array([position]))["pooled"]

    assert total(np.ones(D + 1), 0).size == 3 * (D + 1)
    for position in range(0, M, 20):
        far = total(9e9 * np.eye(D + 1)[0], position)
        moved = far - factor * total(-7e9 * np.eye(D + 1)[0], position)
        assert np.linalg.norm(moved) == pytest.approx(reach, rel=1e-9)
        for _ in range(10):
            one, other = rng.normal(size=(2, D + 1)) * 10.0 ** rng.uniform(-3, 4, size=(2, 1))
            moved = total(one, position) - factor * total(other, position)
            assert np.linalg.norm(moved) <= reach * (1.0 + 1e-12)


def test_releases_spend_the_budget():
    X, y, task, Z = rows()
    est = made(Z).fit(X, y, task=task)
    spent = [e["sensitivity"] / e["noise_std"] for e in est.privacy_.releases]
    assert math.sqrt(np.sum(np.square(spent))) <= gdp_mu(3.0, 1e-4) * (1.0 + 1e-6)
    assert "200 x 3" in est.privacy_.public_inputs["relation"]
    assert "pooled" in est.privacy_.notes["levels"]


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


def test_little_budget_carries_few_columns():
    Z = rows()[3]
    plans = [made(Z, epsilon=e)._course(Population(np.arange(M), D))[0] for e in (0.3, 0.5, 10.0)]
    assert [plan.relation.rank for plan in plans] == [1, 2, 3]
    assert "left out" in plans[1].public_inputs()["relation"]
    # Each of r columns has 1 / r of the signal over noise, and with little of it a shorter path.
    free = made(Z, relation=None)._course(Population(np.arange(M), D))[0]
    for plan, least in zip((*plans, free), (*[rules._RELATED_PATH] * 3, 2.0), strict=True):
        rank = 1 if plan.relation is None else plan.relation.rank
        ratio = M * plan.mu_of("pooled") / (math.sqrt(D + 1) * rank)
        bounds = plan.bounds_of_pooled("pooled", 0.0)
        assert sum(bounds) == pytest.approx(min(least, 0.2 * ratio))


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


def test_a_file_of_another_relation_is_refused():
    X, y, task, Z = rows()
    billboard = made(Z).fit(X, y, task=task).billboard_
    assert_allclose(billboard.models_of_relation(np.arange(M)).shape, (M, D + 1))
    billboard.related = None
    with pytest.raises(ValueError, match="its relation has no models"):
        list(billboard.declared())
