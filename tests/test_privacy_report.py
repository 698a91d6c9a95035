"""The statement: exact round trips, what the paragraph says, sound totals."""

import json
import math

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skpmtl.privacy import (
    DiagonalLaplace,
    PrivacyReport,
    SymmetricGaussian,
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    grid_search_cost,
    optimal_pure_epsilon,
)
from skpmtl.privacy.rng import SYSTEM_ARITHMETIC


def gaussian(epsilon=1.0, delta=1e-5, **changes):
    mu = gdp_mu(epsilon, delta or 1e-5)
    mechanism = SymmetricGaussian(3, math.sqrt(2), mu)
    values = dict(
        guarantee="joint DP per task",
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism.name,
        sensitivity=mechanism.sensitivity,
        noise_std=[mechanism.noise_std],
        shift=[mechanism.shift(1)],
        mu=mu,
        releases=[mechanism.describe("second moment of the unit-length models")],
        accountant="skpmtl 0.1.0, exact Gaussian DP",
        rng="operating system",
        arithmetic=SYSTEM_ARITHMETIC,
        public_inputs={"clip_norm": np.float64(1.0), "n_tasks": np.int64(139), "on": np.True_},
        assumptions=["the task list is public"],
    )
    return PrivacyReport(**{**values, **changes})


def laplace(epsilons, delta=0.0, **changes):
    entries = [DiagonalLaplace(3, 1.0, e).describe("diagonal") for e in epsilons]
    values = dict(epsilon=sum(epsilons), delta=delta, mu=None, releases=entries)
    return gaussian(**{**values, "mechanism": "diagonal Laplace", **changes})


def pair(epsilon, delta):
    return gaussian(epsilon=epsilon, delta=delta, mu=None, releases=(), mechanism="Poisson")


NONE = PrivacyReport("none", notes={"reason": "epsilon=None", "bound": [1.0, math.inf]})


@pytest.mark.parametrize("report", [gaussian(), laplace([0.1, 0.7]), NONE])
def test_round_trips(report):
    assert PrivacyReport.from_json(report.to_json()) == report
    assert PrivacyReport.from_json(report.to_json(indent=2)) == report
    assert PrivacyReport.from_dict(report.to_dict()) == report
    json.loads(report.to_json(), parse_constant=pytest.fail)  # strict JSON: no NaN, Infinity
    assert compose([report]) is report


def test_fields_are_plain_python():
    report = gaussian()
    assert type(report.public_inputs["n_tasks"]) is int
    assert type(report.public_inputs["clip_norm"]) is float
    assert report.public_inputs["on"] is True
    assert type(report.noise_std) is tuple and type(report.releases) is tuple
    assert type(gaussian(epsilon=1).epsilon) is float
    with pytest.raises(AttributeError):
        report.epsilon = 2.0
    with pytest.raises(ValueError, match="not fields of a privacy report: \\['eps'\\]"):
        PrivacyReport.from_dict({**report.to_dict(), "eps": 1})
    with pytest.raises(ValueError, match="adjacency='add'"):
        gaussian(adjacency="add")
    with pytest.raises(ValueError, match="unit='user'"):
        gaussian(unit="user")


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_paragraph_states_everything(adjacency):
    text = str(gaussian(adjacency=adjacency))
    for words in [
        "epsilon = 1", "delta = 1e-05", "unit: task", f"adjacency: {adjacency}",
        "symmetric Gaussian", "sensitivity 1.41421", "noise std 5.27", "public shift",
        "mu = 0.26805", "operating system", "clip_norm = 1", "n_tasks = 139",
        "the task list is public", "all tasks in every release", "2^-24", "joint",
    ]:  # fmt: skip
        assert words in text, words
    assert "\n" not in text
    assert "NO differential privacy" not in text


def test_paragraph_without_guarantee():
    text = str(NONE)
    assert "NO differential privacy guarantee: epsilon=None" in text
    published = gaussian(
        guarantee="none",
        mechanism="published Wishart",
        notes={"reason": "one-sided noise", "delta_lower_bound": 0.632},
    )
    text = str(published)
    assert "delta_lower_bound = 0.632" in text and "Nominal values, not a guarantee" in text
    seeded = gaussian(rng="seeded: not private against anyone who knows the seed")
    assert "not private against anyone who knows the seed" in str(seeded)


# ---------------------------------------------------------------- composition
def test_gaussian_fits_compose_exactly():
    reports = [gaussian(1.0), gaussian(0.3), gaussian(2.0)]
    total = compose(reports)
    mu = math.sqrt(sum(gdp_mu(e, 1e-5) ** 2 for e in (1.0, 0.3, 2.0)))
    assert total.mu == pytest.approx(mu, rel=1e-14)
    assert total.epsilon == pytest.approx(gdp_epsilon(mu, 1e-5), rel=1e-12)
    assert total.delta == 1e-5 and total.epsilon < 3.3
    assert len(total.releases) == 3 and [e["fit"] for e in total.releases] == [1, 2, 3]
    assert len(total.noise_std) == len(total.shift) == len(total.sensitivity) == 3
    assert compose(reports, delta=1e-8).epsilon == pytest.approx(gdp_epsilon(mu, 1e-8))
    assert "fixed without looking" in str(total)
    assert PrivacyReport.from_json(total.to_json()) == total
    nested = compose([compose(reports[:2]), reports[2]])
    assert nested.epsilon == pytest.approx(total.epsilon, rel=1e-12)


def test_pure_fits_compose_by_the_optimal_rule():
    reports = [laplace([0.1] * 10), laplace([0.1] * 20)]
    assert compose(reports).epsilon == pytest.approx(3.0)
    total = compose(reports, delta=1e-6)
    assert total.epsilon == pytest.approx(optimal_pure_epsilon([0.1] * 30, 1e-6))
    assert total.epsilon < 3.0 and total.mu is None


def test_mixed_fits_compose_jointly():
    total = compose([gaussian(1.0), laplace([0.5])])
    mu, p = gdp_mu(1.0, 1e-5), 1 / (1 + math.exp(-0.5))
    e = total.epsilon
    spent = p * gdp_delta(mu, e - 0.5) + (1 - p) * gdp_delta(mu, e + 0.5)
    assert spent == pytest.approx(1e-5, rel=1e-6)
    assert 1.0 < e < 1.5


def test_pairs_compose_with_their_deltas():
    total = compose([pair(0.4, 1e-6), pair(0.4, 1e-6)])
    assert total.delta == pytest.approx(2e-6, rel=1e-5)
    assert total.epsilon == pytest.approx(0.8)
    many = compose([pair(0.1, 1e-9)] * 100, delta=1e-5)
    inner = 1 - (1 - 1e-5) / (1 - 1e-9) ** 100
    assert many.epsilon == pytest.approx(optimal_pure_epsilon([0.1] * 100, inner), rel=1e-9)
    with pytest.raises(ValueError, match="pass at least that"):
        compose([pair(0.1, 1e-6)] * 3, delta=1e-6)
    with pytest.raises(ValueError, match="leaves nothing"):
        compose([gaussian(), pair(0.1, 1e-6)], delta=1e-6 * (1 - 1e-13))


def test_no_guarantee_poisons():
    total = compose([gaussian(), NONE, gaussian()])
    assert total.guarantee == "none" and total.epsilon == math.inf
    assert "fits 2 of 3" in str(total)


def test_different_statements_do_not_add_up():
    with pytest.raises(ValueError, match="adjacency.*Refit with one adjacency"):
        compose([gaussian(), gaussian(adjacency="zero-out")])
    with pytest.raises(ValueError, match="record DP"):
        compose([gaussian(), gaussian(guarantee="record DP", unit="record")])
    with pytest.raises(ValueError, match="at least one"):
        compose([])


# ---------------------------------------------------------------- grid search
class Toy(BaseEstimator):
    """Only what a search and `grid_search_cost` read."""

    def __init__(
        self, epsilon=1.0, delta=None, alpha=1.0, mechanism="gaussian", adjacency="zero-out"
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.mechanism = mechanism
        self.adjacency = adjacency

    def fit(self, X, y):
        if self.epsilon is None:
            self.privacy_ = PrivacyReport("none", notes={"reason": "epsilon=None"})
        elif self.mechanism == "laplace":
            self.privacy_ = laplace([self.epsilon], adjacency=self.adjacency)
        else:
            delta = 1e-6 if self.delta is None else self.delta
            self.privacy_ = gaussian(self.epsilon, delta, adjacency=self.adjacency)
        return self

    def predict(self, X):
        return X[:, 0] * self.alpha


def search(grid, estimator=None, **settings):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    estimator = Toy() if estimator is None else estimator
    settings = {"cv": KFold(4), "scoring": "r2", **settings}
    return GridSearchCV(estimator, grid, **settings).fit(X, X[:, 0])


def test_every_fold_and_the_refit_count():
    cost = grid_search_cost(search({"alpha": [0.5, 1.0, 2.0]}))
    mu = math.sqrt(3 * 4 + 1) * gdp_mu(1.0, 1e-6)
    assert cost.mu == pytest.approx(mu, rel=1e-12)
    assert cost.epsilon == pytest.approx(gdp_epsilon(mu, 1e-6))
    assert cost.notes["fits"] == 13
    assert "scores" in cost.notes["not_covered"] and "without noise" in str(cost)
    assert any("every training fold held all tasks" in a for a in cost.assumptions)


def test_candidates_pay_for_their_own_budget():
    pipe = make_pipeline(FunctionTransformer(), Toy(delta=1e-7))
    cost = grid_search_cost(search({"toy__epsilon": [0.5, 2.0]}, pipe, cv=3))
    squares = 3 * gdp_mu(0.5, 1e-7) ** 2 + 3 * gdp_mu(2.0, 1e-7) ** 2
    squares += gdp_mu(0.5, 1e-7) ** 2  # equal scores: the first candidate is refitted
    assert cost.mu == pytest.approx(math.sqrt(squares), rel=1e-12)
    assert not any("every training fold" in a for a in cost.assumptions)


def test_other_mechanisms_count_as_pairs():
    cost = grid_search_cost(search({"mechanism": ["gaussian", "laplace"]}, cv=2))
    assert cost.mu is None
    assert cost.epsilon > gdp_epsilon(math.sqrt(3) * gdp_mu(1.0, 1e-6), 1e-6)
    pure = grid_search_cost(
        search({"alpha": [1, 2]}, Toy(0.1, mechanism="laplace", delta=0.0), cv=2)
    )
    assert pure.epsilon == pytest.approx(0.5) and pure.delta == 0.0


def test_search_without_guarantee_or_refit():
    for estimator, grid in [(Toy(epsilon=None), {"alpha": [1]}), (Toy(), {"epsilon": [1.0, None]})]:
        cost = grid_search_cost(search(grid, estimator))
        assert cost.guarantee == "none" and "no guarantee" in str(cost)
    with pytest.raises(ValueError, match="refit=False"):
        grid_search_cost(search({"alpha": [1]}, refit=False))
