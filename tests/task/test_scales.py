"""A task's scales of columns, against dense normal distributions."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.special import softmax
from scipy.stats import multivariate_normal

from skpmtl.task.scales import _HETERO, _HETERO_WEIGHTS, _OWN, Summaries, own_scales


def test_scales_are_those_of_a_mixture_of_dense_normals():
    """log2 scales move together and each for itself, by one of three variances."""
    rng, m, d, common, single = np.random.default_rng(0), 4, 5, 0.3, 0.2
    std, released = 2.0 ** rng.normal(size=(m, d)), 2.0 ** rng.normal(size=d)
    std[1, 1:], std[2], std[3, 2] = 0.0, 0.0, 0.0  # one spread, none, all but one
    nothing = np.zeros(m)
    n = np.array([5.0, 9.0, 3.0, 2.0])
    summaries = Summaries(n, np.zeros((m, d)), std, nothing, nothing, nothing, nothing)
    scale, variance = own_scales(summaries, released, common, single, own_unit=True)
    r, v, G = summaries.log_spread(released), summaries.log_variance(), common + _OWN
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
        assert_allclose(np.log2(scale[t] / released), share @ np.array(means), rtol=1e-9)
        assert_allclose(variance[t], share @ np.array(variances), rtol=1e-9)
    assert_allclose(scale[2], released)
    assert_allclose(variance[2], single + G)
    bold = own_scales(summaries, released, common, single)[0]
    assert_allclose(np.log2(bold / scale), np.log(2.0) * variance, rtol=1e-9)
