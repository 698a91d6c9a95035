"""Levels of tasks of counts with equal slopes, against numerical integration."""

import numpy as np
import pytest
from scipy.integrate import quad

from skpmtl.task.rates import of_level

TAU, WEIGHTS = np.array([0.1, 0.7, 2.0]), np.log([0.2, 0.5, 0.3])


@pytest.mark.parametrize(("events", "rate"), [(0, 0.3), (0, 40.0), (1, 5.0), (30, 2.0)])
def test_moments_are_those_of_quadrature(events, rate):
    found = of_level(np.array([float(events)]), np.array([rate]), TAU, WEIGHTS)
    sums = np.zeros((3, len(TAU)))
    for j, tau in enumerate(TAU):

        def density(v, power=0, grow=0.0, tau=tau):
            log = events * v - rate * np.exp(v) - 0.5 * (v / tau) ** 2
            return v**power * np.exp(log + grow * v) / (tau * np.sqrt(2.0 * np.pi))

        ends = {"limit": 200, "epsabs": 0.0, "points": [np.log((events + 0.5) / rate)]}
        for k, how in enumerate(((0, 0.0), (1, 0.0), (0, 1.0))):
            sums[k, j] = quad(density, -12.0 * tau - 3.0, 12.0 * tau + 3.0, args=how, **ends)[0]
    total = sums @ np.exp(WEIGHTS)
    expected = np.log(sums[0]), total[1] / total[0], np.log(total[2] / total[0])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-4, atol=1e-4)
