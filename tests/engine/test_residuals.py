"""Intervals of tasks without rows: the family that reads the histogram, and what it covers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import DPMetaInit, MPMTLGroupSparse, MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.engine.residuals import BINS, Residuals, shares, sum_of_shares
from skpmtl.exchange.protocol import Population

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def released(distances, noise_std=0.0, m=500, width=8.0, seed=0):
    """Of tasks that all have these distances, with noise."""
    n = len(distances)
    mean = shares(distances, np.zeros(n, dtype=int), np.full(n, 1.0 / n), 1)[0]
    noise = noise_std * np.random.default_rng(seed).normal(size=len(BINS))
    return Residuals(m * mean + noise, noise_std, m, width)


@pytest.mark.parametrize("noise_std", [0.0, 10.0])
@pytest.mark.parametrize("scale", [0.3, 1.7, 9.0])
def test_quantiles_are_those_of_normal_distances(scale, noise_std):
    draws = np.abs(scale * np.random.default_rng(0).normal(size=100_000))
    found = released(draws, noise_std, width=6.0 * scale)
    for coverage in (0.5, 0.9, 0.95):
        assert found.quantile(coverage) == pytest.approx(np.quantile(draws, coverage), rel=0.08)


def test_tails_are_read_off():
    draws = np.abs(np.random.default_rng(0).standard_t(3, size=100_000))
    assert released(draws).quantile(0.95) == pytest.approx(np.quantile(draws, 0.95), rel=0.1)


def test_noise_alone_leaves_the_public_prior():
    found = released(np.ones(3), noise_std=1e6, width=10.0)
    assert 2.0 < found.quantile(0.6827) < 4.0  # of a scale of 2 and what it may be


def test_shares_sum_to_one_and_weigh_rows():
    codes, weights = np.array([0, 0, 0, 1]), np.array([0.5, 0.25, 0.25, 1.0])
    sent = shares(np.array([1.0, 4.0, 4.1, 0.0]), codes, weights, 2)
    assert_allclose(sent.sum(axis=1), 1.0)
    assert_allclose(sent[0, [40, 42]], 0.5)
    assert sent[1, 0] == 1.0
    total = sum_of_shares({"residuals": np.vstack([sent, np.full(81, np.nan), 9.0 * sent[:1]])})
    assert np.linalg.norm(total["residuals"] - sent.sum(axis=0)) <= 1.0 + 1e-12


def nested(m=250, n=12, seed=0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, 3))
    level = rng.normal(size=m)[task]
    return X, 1.0 + X @ [1.0, -1.0, 0.5] + level + rng.normal(size=m * n), task


@pytest.mark.parametrize("epsilon, least, most", [(None, 0.85, 0.96), (5.0, 0.82, 0.96)])
@pytest.mark.parametrize("cls", [PrivateMTL, MPMTLLowRank, MPMTLGroupSparse])
def test_intervals_of_tasks_without_rows_cover(cls, epsilon, least, most):
    X, y, task = nested()
    known = task < 200
    est = cls(
        epsilon=epsilon,
        tasks=range(205),
        unseen_task="mean",
        uncertainty="unseen",
        random_state=0,
        target_range=None if cls is PrivateMTL else (-9.0, 9.0),
    ).fit(X[known], y[known], task=task[known])
    Z, v, of = X[~known], y[~known], task[~known]
    low, high = est.predict_interval(Z, task=of).T
    assert least < np.mean((low <= v) & (v <= high)) < most
    assert np.ptp(high - low) < 1e-9
    assert np.mean(high - low) == pytest.approx(2.0 * 1.645 * np.sqrt(2.0), rel=0.25)
    mean, std = est.predict(Z, task=of, return_std=True)
    assert_allclose(mean, 0.5 * (low + high))
    inside = est.predict_interval(Z, task=of, coverage=0.6827)
    assert_allclose(inside[:, 1] - mean, std)
    own = est.predict(X[known], task=task[known], return_std=True)[1]
    assert own.mean() < 0.9 * std.mean()  # who has rows knows more
    if epsilon is None:
        return
    assert "residuals" in [entry["name"] for entry in est.privacy_.releases]
    assert est.privacy_.epsilon <= epsilon * (1.0 + 1e-9)
    there = cls.from_billboard(est.export_billboard(), unseen_task="mean")
    assert_array_equal(there.predict_interval(Z, task=of), est.predict_interval(Z, task=of))


def test_a_share_is_charged_and_others_are_smaller():
    population = Population(np.arange(200), 3)
    options = {"epsilon": 3.0, "unseen_task": "mean", "target_range": (-9.0, 9.0)}
    plain, unseen = (PrivateMTL(uncertainty=u, **options) for u in (True, "unseen"))
    plans = [est._plan(population) for est in (plain, unseen)]
    assert plans[0].mu == plans[1].mu and plans[1].budget_shares["residuals"] == 0.05
    for plan in plans:
        assert sum(plan.budget_shares.values()) == pytest.approx(1.0)
    for name, part in plans[0].budget_shares.items():
        assert plans[1].budget_shares[name] == pytest.approx(0.95 * part)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_model_protected_noise_is_that_of_the_sensitivity(mechanism, adjacency):
    """Of shares in one octave each, as far from each other as shares can be."""
    X, y, task = nested(m=20)
    est = MPMTLGroupSparse(
        epsilon=3.0,
        tasks=range(20),
        unseen_task="mean",
        uncertainty="unseen",
        mechanism=mechanism,
        target_range=(-9.0, 9.0),
        adjacency=adjacency,
        random_state=0,
    )
    with pytest.warns(UserWarning, match="say little"):
        entry = est.fit(X, y, task=task).privacy_.releases[-1]
    one, other = shares(np.array([1.0, 4.0]), np.array([0, 1]), np.ones(2), 2)
    order = 2 if mechanism == "gaussian" else 1
    most = np.linalg.norm(one - (other if adjacency == "replace-one" else 0.0), order)
    assert entry["name"] == "residuals" and entry["sensitivity"] == pytest.approx(most)
    budget = {"gaussian": "mu", "laplace": "epsilon"}[mechanism]
    total = est.privacy_.mu if mechanism == "gaussian" else est.privacy_.epsilon
    assert entry[budget] <= total


def test_few_tasks_get_a_warning():
    X, y, task = nested(m=40)
    est = PrivateMTL(
        epsilon=1.0,
        tasks=range(40),
        unseen_task="mean",
        uncertainty="unseen",
        random_state=0,
        target_range=(-9.0, 9.0),
    )
    with pytest.warns(UserWarning, match="counts of 40 tasks whose noise.*say little"):
        est.fit(X, y, task=task)


@pytest.mark.parametrize(
    "est, message",
    [
        (PrivateMTL(uncertainty="unseen"), 'unseen_task="mean"'),
        (MPMTLLowRank(uncertainty="unseen", unseen_task="mean"), "needs the public range"),
        (DPMetaInit(uncertainty="unseen", unseen_task="mean"), "releases no distances"),
        (
            PrivateMeanRegMTL(0.1, uncertainty="unseen", unseen_task="mean", target_range=(-9, 9)),
            "needs pooled levels, but lam=0.1",
        ),
        (
            PrivateMeanRegMTL(0.1, uncertainty="unseen", unseen_task="mean", epsilon=None),
            "needs pooled levels, but lam=0.1",
        ),
    ],
)
def test_who_cannot_says_so(est, message):
    X, y, task = nested(m=20)
    with pytest.raises(ValueError, match=message):
        est.set_params(tasks=range(20)).fit(X, y, task=task)
