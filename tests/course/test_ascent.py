import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl.course.ascent import Ascent


@pytest.mark.parametrize("response", [0.01, 0.3, 1.0, 20.0])
def test_steps_end_where_answers_vanish_at_any_response(response):
    target, centre, ascent = np.array([1.0, -0.5, 0.2]), np.zeros(3), Ascent(1.0)
    for _ in range(15):
        centre = centre + ascent.move(response * (target - centre), 0.0)
    assert_allclose(centre, target, atol=0.02)


def test_noise_averages_out():
    """Of 30 answers with noise v the mean has v / 30; the response is not known beforehand."""
    rng, noise, errors = np.random.default_rng(3), 0.3, []
    for _ in range(200):
        centre, target, ascent = np.zeros(4), rng.normal(size=4), Ascent(1.0)
        for _ in range(30):
            found = 0.5 * (target - centre) + noise * rng.normal(size=4)
            centre = centre + ascent.move(found, noise)
        errors.append(np.mean((centre - target) ** 2))
    assert np.mean(errors) < 2.0 * (noise / 0.5) ** 2 / 30
