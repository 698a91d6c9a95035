"""The strength of a penalty where nobody names one."""

import numpy as np
import pytest

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from skpmtl.solvers.losses import make_loss
from skpmtl.solvers.penalties import GroupNorm, TraceNorm
from skpmtl.solvers.strength import SHARE, auto_alpha
from tests.helpers import plain_reference as plain

PENALTIES = {"trace": TraceNorm(), "l21": GroupNorm()}
ESTIMATORS = (MPMTLLowRank, MPMTLGroupSparse)


def rows(m=12, n=15, d=6, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(n // 2, 2 * n, m)
    task = np.repeat(np.arange(m), sizes)
    X = rng.standard_normal((len(task), d)) * rng.uniform(0.3, 3.0, d) + 5.0
    W = rng.standard_normal(d) + 0.3 * rng.standard_normal((m, d))
    return X, np.einsum("ij,ij->i", X, W[task]) + rng.standard_normal(len(task)), task


@pytest.mark.parametrize("weight", ["equal", "samples"])
@pytest.mark.parametrize("name", PENALTIES)
def test_the_dual_norm_of_noise(name, weight):
    """Against gradients of noise alone: the formula is close to their mean dual norm."""
    X, _, task = rows(m=40, n=30, d=10)
    rng, found, formula = np.random.default_rng(1), [], []
    for _ in range(20):
        y = 2.0 * rng.standard_normal(len(task)) + 7.0
        loss = make_loss(plain.long_table(X, y, task), task_weight=weight)
        V = loss.evaluate(np.zeros(loss.shape))[1]
        found.append(PENALTIES[name].dual_levels(V).max())
        formula.append(auto_alpha(loss, PENALTIES[name]) / SHARE)
    assert 0.95 < np.mean(formula) / np.mean(found) < 1.5  # the trace norm has a bound


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_units_do_not_matter(estimator, intercept):
    X, y, task = rows()
    how = {"epsilon": None, "algorithm": "proximal", "tol": 1e-9, "fit_intercept": intercept}
    one = estimator(**how).fit(X, y, task=task)
    assert one.alpha_ > 0 and one.dual_gap_ <= 1e-9 * one.objective_
    other = estimator(**how).fit(X / 50.0, 1e4 * y, task=task)
    np.testing.assert_allclose(other.coef_, 50e4 * one.coef_, rtol=1e-3, atol=1e-3)
    if intercept:
        shifted = estimator(**how).fit(X, y + 1e4, task=task)
        np.testing.assert_allclose(shifted.coef_, one.coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("estimator", [MPMTLLowRankClassifier, MPMTLGroupSparseClassifier])
def test_classes(estimator):
    X, y, task = rows(m=20, n=30)
    y = y > np.median(y)
    model = estimator(epsilon=None, algorithm="proximal").fit(X, y, task=task)
    zero = make_loss(plain.long_table(X, 2.0 * y - 1.0, task))
    top = model._penalty().dual_levels(zero.evaluate(np.zeros(zero.shape))[1]).max()
    assert 0.001 * top < model.alpha_ < 0.5 * top
    three = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.7]))
    model = estimator(epsilon=None, algorithm="proximal").fit(X, three, task=task)
    again = estimator(model.alpha_, epsilon=None).fit(7 * X, three, task=task)
    assert model.coef_.shape == (20, 3, 6) and 0 < again.dual_gap_ <= 1e-6 * again.objective_
    free = estimator(epsilon=None, algorithm="proximal").fit(7 * X, three, task=task)
    assert free.alpha_ == pytest.approx(7 * model.alpha_, rel=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nothing_to_learn(estimator):
    """Targets or rows that do not vary inside any task: means, and tasks that join later."""
    X, y, task = rows()
    for features, target in ((X, task * 2.0), (0.0 * X, y), (X[:3], y[:3])):
        who = task if len(target) == len(task) else np.arange(3)
        model = estimator(epsilon=None, algorithm="proximal").fit(features, target, task=who)
        assert model.alpha_ == 1.0 and not model.coef_.any()
        model.personalize(features[:1], target[:1], task=[99])
        assert model.predict(features[:1], task=[99])[0] == pytest.approx(target[0])


def test_what_alpha_decides():
    """A number is a convex problem; nothing named is the prior, which has nothing to tune."""
    X, y, task = rows()
    assert hasattr(MPMTLLowRank(0.1, epsilon=None).fit(X, y, task=task), "objective_")
    model = MPMTLLowRank(epsilon=None).fit(X, y, task=task)
    assert not hasattr(model, "objective_") and model.billboard_.root.shape == (6, 6)
    with pytest.raises(ValueError, match="alpha"):
        MPMTLLowRank("best", epsilon=None).fit(X, y, task=task)
