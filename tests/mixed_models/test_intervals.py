"""Intervals of standard deviations, by profiles of the likelihood and of the restricted one."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import skpmtl

from .test_published import rail, read

SLEEP = read("sleepstudy")
# lme4, Dyestuff2: six batches that do not differ.
DYES = """
    7.298 3.846 2.434 9.566 7.990 5.220 6.556 0.608 11.788 -0.892 0.110 10.386 13.434 5.510 8.166
    2.212 4.852 7.092 9.288 4.980 0.282 9.014 4.458 9.446 7.198 1.722 4.782 8.106 0.758 3.758
"""


@pytest.mark.parametrize(
    ("data", "formula", "expected"),
    [
        (rail(), "travel ~ 1 + (1 | Rail)", [[13.92942, 45.54675], [2.824557, 6.377695]]),
        (
            pd.DataFrame({"g": np.repeat(range(6), 5), "y": np.array(DYES.split(), dtype=float)}),
            "y ~ 1 + (1 | g)",
            [[0.0, 2.084043], [2.892831, 4.815833]],
        ),
        (
            SLEEP,
            "Reaction ~ Days + (Days | Subject)",
            [[14.38138, 37.71600], [3.801164, 8.753381], [22.898267, 28.857997]],
        ),
        (
            SLEEP,
            "Reaction ~ Days + (Days || Subject)",
            [[15.25865, 37.78648], [3.964074, 8.769159], [22.880555, 28.787598]],
        ),
    ],
)
def test_they_are_those_of_lme4(data, formula, expected):
    """R 4.2.2, lme4 1.1-31: confint(lmer(formula, data)), which interpolates its profiles."""
    fit = skpmtl.mixed(formula, data, epsilon=None)
    assert_allclose(fit.deviation_intervals(restricted=False), expected, rtol=3e-5)


def test_restricted_ones_end_where_deviance_is_a_quantile_higher():
    """Written out with the covariance of all rows."""
    data = rail()
    y, same = data["travel"].to_numpy(), np.equal.outer(*2 * (data["Rail"].to_numpy(),))

    def deviance(tau, sigma):
        V = sigma**2 * np.eye(18) + tau**2 * same
        one = np.linalg.solve(V, np.ones(18))
        rest = y - one @ y / one.sum()
        return np.linalg.slogdet(V)[1] + np.log(one.sum()) + rest @ np.linalg.solve(V, rest)

    def least(of, bounds):
        return minimize_scalar(of, bounds=bounds, method="bounded", options={"xatol": 1e-9}).fun

    best = least(lambda tau: least(lambda s: deviance(tau, s), (1.0, 20.0)), (5.0, 90.0))
    fit = skpmtl.mixed("travel ~ 1 + (1 | Rail)", data, epsilon=None)
    of_rail, of_rows = fit.deviation_intervals(0.9).to_numpy()
    for end in of_rail:
        more = least(lambda sigma, tau=end: deviance(tau, sigma), (1.0, 20.0)) - best
        assert np.sqrt(more) == pytest.approx(norm.ppf(0.95), rel=1e-4)
    for end in of_rows:
        more = least(lambda tau, sigma=end: deviance(tau, sigma), (5.0, 90.0)) - best
        assert np.sqrt(more) == pytest.approx(norm.ppf(0.95), rel=1e-4)


def test_several_groupings_say_where_theirs_are():
    data = rail().assign(half=np.tile([0, 1], 9))
    fit = skpmtl.mixed("travel ~ 1 + (1 | Rail) + (1 | half)", data, epsilon=None)
    with pytest.raises(ValueError, match=r"summary\(\) has intervals"):
        fit.deviation_intervals()
