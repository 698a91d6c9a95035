"""A task's scales of columns, against dense normal distributions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from scipy.stats import multivariate_normal

from skpmtl import PrivateMTL
from skpmtl.task.scales import _HETERO, _HETERO_WEIGHTS, _OWN, Summaries, own_scales, own_units


@pytest.mark.parametrize("own_unit", [True, False])
def test_scales_are_those_of_a_mixture_of_dense_normals(own_unit):
    """log2 scales move together and each for itself, by one of three variances."""
    rng, m, d, common, single = np.random.default_rng(0), 4, 5, 0.3, 0.2
    std, released = 2.0 ** rng.normal(size=(m, d)), 2.0 ** rng.normal(size=d)
    std[1, 1:], std[2], std[3, 2] = 0.0, 0.0, 0.0  # one spread, none, all but one
    nothing = np.zeros(m)
    n = np.array([5.0, 9.0, 3.0, 2.0])
    summaries = Summaries(n, np.zeros((m, d)), std, nothing, nothing, nothing, nothing)
    scale, variance = own_scales(summaries, released, common, single, own_unit)
    v, G = summaries.log_variance(), common + _OWN
    # The spread of the target of the same rows has the bias of those of the columns.
    r = np.log2(np.maximum(std, 1e-9) / released) if own_unit else summaries.log_spread(released)
    root_mean_square = 0.0 if own_unit else np.log(2.0)
    found = np.log2(scale / released) - root_mean_square * variance
    for t in (0, 1, 3):
        seen, logs, means, variances = std[t] > 0, [], [], []
        for h, weight in zip(_HETERO, _HETERO_WEIGHTS, strict=True):
            prior = G + h * np.eye(d)
            noisy = prior[np.ix_(seen, seen)] + v[t] * np.eye(seen.sum())
            gain = np.linalg.solve(noisy, prior[seen]).T
            logs.append(weight + multivariate_normal(cov=noisy).logpdf(r[t, seen]))
            means.append(gain @ r[t, seen])
            variances.append(np.diag(prior - gain @ prior[seen]) + single * ~seen)
        share = softmax(logs)
        assert_allclose(found[t], share @ np.array(means), rtol=1e-9)
        assert_allclose(variance[t], share @ np.array(variances), rtol=1e-9)
    assert_allclose(found[2], 0.0, atol=1e-12)
    assert_allclose(variance[2], single + G)


@pytest.mark.parametrize(
    "y, own",
    [
        ([-11.0, 11.0, 5e3], False),  # spreads of the first two are 15.6 and 17.0
        ([-12.0, 12.0, 5e3], True),
        ([3.0, -4.0, 2.0, 1.0, 1e3], False),
        ([3.0, -4.0, 2.0, 1.0, 1e6], True),
        ([0.0, 1e4], False),
        ([0.0, 1e5], True),
        ([0.0, 3e-3], False),
        (np.arange(20.0) * 1e-3, True),
        ([7.0] * 9 + [7e2], False),
        ([1e4], False),
    ],
)
def test_a_task_has_its_own_unit_where_rows_but_one_say_so(y, own):
    """Beyond 16 units, or for few rows farther below them; where all but one are not, beyond the
    square of it."""
    y = np.array(y) + 5.0
    summaries = Summaries.of(np.zeros((len(y), 1)), y, np.array([0, len(y)]), np.ones(len(y)))
    assert own_units(summaries, 1.0) == pytest.approx([y.std(ddof=1) if own else 1.0])


@pytest.mark.parametrize("weight", [1.0, 0.1, 1e-6])
def test_a_row_of_little_weight_leaves_a_task_its_own_unit(weight):
    y = np.append(100.0 * np.random.default_rng(0).normal(size=20), 1e4)
    counts = np.append(np.ones(20), weight)
    summaries = Summaries.of(np.zeros((21, 1)), y, np.array([0, 21]), counts)
    assert own_units(summaries, 1.0) == summaries.y_std


@pytest.mark.parametrize("wrong", [1e5, 1e8, 1e25])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_wrong_target_leaves_other_tasks_as_they_are(loss, wrong):
    """Such as a code of what is missing: without a budget nothing else bounds it."""
    rng, m = np.random.default_rng(1), 20
    task, X = np.repeat(np.arange(m), 6), rng.normal(size=(6 * m, 4))
    y = X.sum(axis=1) + rng.normal(size=m)[task] + 0.5 * rng.normal(size=6 * m)
    others, errors = task > 0, []
    for first in (y[0], wrong):
        target = np.append(first, y[1:])
        est = PrivateMTL(epsilon=None, loss=loss).fit(X, target, task=task)
        errors.append(np.mean((est.predict(X, task=task) - y)[others] ** 2))
    assert errors[1] < 1.5 * errors[0]
