"""Standard errors of common slopes: bounds of what is sent, and that the errors hold."""

import numpy as np
import pytest

from skpmtl import PrivateMTL
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.errors import LONGEST, Errors, effects
from skpmtl.privacy.mechanisms import ADJACENCIES

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_bounds_of_all_sums_hold_and_are_reached(adjacency):
    d, rng = 2, np.random.default_rng(0)
    question = Errors(np.zeros(d + 1), np.ones(d + 1), 1.0, 1.0, 1.0)
    (size,) = question.wire(d)[0]
    sent = rng.standard_t(1, size=(400, size)) * 10.0 ** rng.uniform(-3, 6, (400, 1))
    axes = np.concatenate([np.eye(d + 1), -np.eye(d + 1)])
    roots = np.concatenate([np.eye((d + 1) ** 2)[:: d + 2], np.zeros((d + 1, (d + 1) ** 2))])
    sent[: len(axes)] = 9 * np.c_[axes, roots]
    sent[-1], sent[-2] = np.nan, np.inf
    totals = [question.totals(row[None]) for row in sent]
    for name, mechanism in question.mechanisms(adjacency, 1.0).items():
        flat = np.array([total[name].ravel() for total in totals])
        assert np.isfinite(flat).all()
        others = np.zeros((1, flat.shape[1])) if adjacency == "zero-out" else flat[:100]
        most = max(np.linalg.norm(flat - other, axis=1).max() for other in others)
        assert 0.99 * mechanism.sensitivity < most <= mechanism.sensitivity * (1 + 1e-12)


def table(m, seed, n=10):
    """Noise that follows itself within tasks, which differ in how much there is of it."""
    rng = np.random.default_rng(seed)
    task, a = np.repeat(np.arange(m), n), np.array([1.0, 0.0, -0.5])
    X = rng.normal(size=(m * n, 3)) + 0.5 * rng.normal(size=(m, 3))[task]
    e = rng.normal(size=(m, n))
    for i in range(1, n):
        e[:, i] = 0.6 * e[:, i - 1] + 0.8 * e[:, i]
    e *= np.exp(0.5 * rng.normal(size=(m, 1)))
    W = a + 0.3 * rng.normal(size=(m, 3))
    level = 20.0 + 2.0 * rng.exponential(size=m)[task]
    return (X, level + np.einsum("ij,ij->i", X, W[task]) + e.ravel(), task), a


@pytest.mark.parametrize("m, epsilon, times", [(60, None, 24), (800, 5.0, 5)])
def test_errors_hold_for_rows_that_depend_on_each_other(m, epsilon, times):
    """Nine in ten intervals, within three standard deviations of such a count."""
    inside, made = [], 0
    for seed in range(times):
        data, a = table(m, seed)
        est = PrivateMTL(epsilon=epsilon, tasks=range(m), random_state=seed, standard_errors=True)
        est.fit(*data)
        if hasattr(est, "effect_std_"):
            made += 1
            inside.append(np.abs(est.effect_coef_ - a) < 1.645 * est.effect_std_)
    assert made > 0.7 * times
    assert abs(np.mean(inside) - 0.9) < 3 * np.sqrt(0.09 / (3 * made))


def test_below_the_noise_there_are_none():
    data, _ = table(100, 0)
    est = PrivateMTL(epsilon=1.0, tasks=range(100), random_state=0, standard_errors=True).fit(*data)
    assert not hasattr(est, "effect_std_")


def test_errors_have_the_unit_of_the_target():
    (X, y, task), _ = table(80, 0)
    one, other = (
        PrivateMTL(epsilon=None, standard_errors=True).fit(X, unit * y, task=task)
        for unit in (1.0, 64.0)
    )
    np.testing.assert_allclose(other.effect_coef_, 64.0 * one.effect_coef_, rtol=1e-8)
    np.testing.assert_allclose(other.effect_std_, 64.0 * one.effect_std_, rtol=1e-8)


def test_a_public_start_moves_effects_and_no_errors():
    (X, y, task), _ = table(200, 0)
    start = {"coef": [1.0, 2.0, 0.0], "intercept": 0.25}
    given = {"epsilon": 30.0, "tasks": range(200), "standard_errors": True, "random_state": 0}
    one = PrivateMTL(**given).fit(X, y, task=task)
    moved = PrivateMTL(init=start, **given).fit(X, y + X @ start["coef"] + 0.25, task=task)
    np.testing.assert_allclose(moved.effect_std_, one.effect_std_, rtol=1e-6)
    np.testing.assert_allclose(moved.effect_coef_ - one.effect_coef_, start["coef"], atol=1e-6)
    names = [entry["name"] for entry in one.privacy_.releases]
    assert names.count("errors") == 3 and len(names) == len(one.billboard_.releases)


def test_noise_of_sums_is_part_of_the_errors():
    """Of sums that are nothing but noise; and there are none where it hides the information."""
    d, rng = 2, np.random.default_rng(0)
    question = Errors(np.zeros(d + 1), np.ones(d + 1), 1.0, 1.0, 1.0)
    known = {"middle": 0.0, "width": 2.0, "unit": 1.0}
    model = HierarchicalBillboard(500, 500.0, np.zeros(d + 1), **known)
    noise = {"score": 3.0, "square": 0.0, "information": 0.5}
    sums = {"square": np.zeros((d + 1, d + 1)), "information": 100.0 * np.eye(d + 1)}
    found = [
        effects(model, question, {**sums, "score": 3.0 * rng.normal(size=d + 1)}, noise)
        for _ in range(400)
    ]
    estimates, stds = np.moveaxis(np.array(found), 1, 0)
    np.testing.assert_allclose(estimates.std(axis=0), 3.0 * LONGEST / 100.0, rtol=0.15)
    np.testing.assert_allclose(stds.mean(axis=0), 3.0 * LONGEST / 100.0, rtol=0.05)
    hidden = {**sums, "score": np.zeros(d + 1), "information": 3.0 * np.eye(d + 1)}
    assert effects(model, question, hidden, noise) is None
    assert effects(model, question, hidden, {**noise, "information": 0.1}) is not None
