"""Directions of models within their bound, and shapes of noisy sums of them."""

import math

import numpy as np
import pytest

from skpmtl.privacy import moments
from skpmtl.solvers.local import even_root


def test_directions_have_length_one_or_none():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 3)) * 10.0 ** np.array([0, -300, 300, 3, 0, 0])[:, None]
    W[4], W[5, 1] = 0.0, np.inf
    U = moments.directions(W)
    length = np.linalg.norm(U, axis=1)
    assert (length <= 1.0).all() and (length[:4] > 1.0 - 1e-11).all() and not U[4:].any()
    scaled = W[:4] / np.abs(W[:4]).max(axis=1)[:, None]
    np.testing.assert_allclose(U[:4], scaled / np.linalg.norm(scaled, axis=1)[:, None], rtol=1e-11)
    several = rng.normal(size=(4, 3, 2))  # of three classes: of length 1 together
    np.testing.assert_allclose(np.square(moments.directions(several)).sum(axis=(1, 2)), 1.0)


def test_a_matrix_without_noise_is_kept_and_one_of_noise_is_even():
    rng, d, trace = np.random.default_rng(3), 6, 40.0
    A = rng.normal(size=(d, d))
    A[:, 4:] = 0.0  # fewer directions than features
    S = A @ A.T
    found = moments.shrink_matrix(S, 0.0, trace)
    np.testing.assert_allclose(found, S * (trace / np.trace(S)), atol=1e-9)
    np.testing.assert_allclose(
        moments.shrink_matrix(np.zeros((d, d)), 0.0, trace), np.eye(d) * trace / d, atol=1e-12
    )
    noise = rng.normal(size=(d, d))
    even = moments.shrink_matrix(1e-3 * (noise + noise.T) + np.eye(d) * trace / d, 5.0, trace, 0.0)
    np.testing.assert_allclose(even, np.eye(d) * trace / d, atol=1e-9)


@pytest.mark.parametrize("tilt", [0.0, 0.5, 1.0])
def test_eigenvalues_within_the_noise_count_by_their_place_in_it(tilt):
    d, std, trace = 4, 2.0, 100.0
    x, edge = np.array([-6.0, -1.0, 2.0, 5.0]), 2.0 * std * math.sqrt(d)
    found = moments.shrink_matrix(np.diag(trace / d + x), std, trace, tilt)
    np.testing.assert_allclose(found, np.diag(trace / d * (1.0 + tilt * x / edge)), atol=1e-9)


def test_a_clear_direction_is_shrunk_by_the_spiked_model():
    d, std, trace, spike = 5, 1.0, 1000.0, 700.0
    values = np.full(d, (trace - spike) / d)
    values[-1] += spike
    Q = np.linalg.qr(np.random.default_rng(4).normal(size=(d, d)))[0]
    found = moments.shrink_matrix((Q * values) @ Q.T, std, trace, 0.0)
    level, edge = np.linalg.eigvalsh(found), 2.0 * std * math.sqrt(d)
    assert np.trace(found) == pytest.approx(trace)
    np.testing.assert_allclose(level[:-1], level[0], rtol=1e-9)
    # Its height is measured from the level of the others, which share what is left.
    lower = (trace - values[-1]) / (d - 1)
    height = math.sqrt((values[-1] - lower) ** 2 - edge**2)
    assert level[-1] - level[0] == pytest.approx(height, rel=1e-9)


def test_directions_that_nobody_has_share_a_thousandth():
    """Without noise their eigenvalues are 0 but for rounding, which is not what tasks say."""
    A = np.random.default_rng(6).normal(size=(6, 3))
    S, tilt = 1e3 * (A @ A.T), 0.5
    trace = np.trace(S)
    level = np.linalg.eigvalsh(moments.shrink_matrix(S, 0.0, trace, tilt, 1e3))
    np.testing.assert_allclose(level[:3], 1e-3 * trace / (3 + 3 * (1 + tilt)), rtol=0.01)


@pytest.mark.parametrize(("std", "sampling"), [(2.0, 0.0), (1.2, 1.6), (0.0, 2.0)])
@pytest.mark.parametrize("fewer", [False, True])
def test_levels_within_the_noise_and_the_chance_of_a_sample(std, sampling, fewer):
    """Both add up in squares; fewer tasks than listed have as much less of both."""
    d, whole, x = 4, 100.0, np.array([-3.0, -1.0, 1.5, 2.5])
    trace = whole
    if fewer:  # what the release says and twice the noise on its sum
        trace = 60.0 + 2.0 * std * math.sqrt(2 * d)
    middle = trace / d
    edge = 2.0 * math.sqrt(d) * math.hypot(std, sampling * math.sqrt(trace / whole))
    values = middle + x - x.mean() + (60.0 - trace if fewer else 0.0) / d
    found = moments.shrink_matrix(np.diag(values), std, whole, 0.5, sampling)
    levels = 1.0 + 0.5 * (values - middle) / edge
    np.testing.assert_allclose(found, np.diag(whole * levels / levels.sum()), atol=1e-9)


def test_noise_bounds_what_one_direction_may_hold():
    d, trace = 6, 60.0
    for std, kept in ((1e-9, 1.0 - 1e-3), (5.0, None)):
        values = np.zeros(d)
        values[0] = 5.0 * trace  # far above what the trace allows
        found = np.diag(moments.shrink_matrix(np.diag(values), std, trace, 0.0))
        if kept is None:
            edge = 2.0 * std * math.sqrt(d)
            kept = 1.0 - 0.5 * edge**2 / (edge**2 + trace**2)
        # The others share what is left; the direction has its even part of it as well.
        np.testing.assert_allclose(found[1:], trace * (1.0 - kept) / d, rtol=1e-9)
        assert found.sum() == pytest.approx(trace)
    # A sum below any noise is taken for a hundredth of the tasks: their even level.
    S = np.diag([2.0, 0.0, 0.0, -1.9])
    edge = 2.0 * 0.01 * math.sqrt(4)
    trace = max(0.1 + 2.0 * 0.01 * math.sqrt(8), 1.0)
    found = moments.shrink_matrix(S, 0.01, 100.0, 0.0)
    height = math.sqrt((2.0 - 0.0) ** 2 - edge**2)  # the others have a level of zero
    most = trace * (1.0 - max(1e-3, 0.5 * edge**2 / (edge**2 + trace**2)))
    top = 100.0 * (min(height, most) + (trace - min(height, most)) / 4) / trace
    assert found[0, 0] == pytest.approx(top, rel=1e-9)


def plain_levels(r, std, trace):
    """Evidence and mean shares of two levels, hypothesis by hypothesis and number by number."""
    d = len(r)
    half = max(1, d // 2)
    counts = {round(float(c)) for c in np.geomspace(1, half, min(half, 20))}
    shares = [0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.995]
    total, means = 0.0, np.zeros(d)
    for c in sorted(counts):
        for share in shares:
            high = trace / d * (1.0 + share * (d / c - 1.0))
            low = (trace - c * high) / (d - c)
            weight, mean = 1.0 if share < 0.99 else 50.0, []  # the most uneven one is likelier
            for number in r:
                a = c / d * math.exp(-0.5 * ((number - high) / std) ** 2)
                b = (1.0 - c / d) * math.exp(-0.5 * ((number - low) / std) ** 2)
                weight *= a + b
                mean.append((a * high + b * low) / (a + b))
            total += weight
            means += weight * np.array(mean)
    return total, means / (total * trace)


def test_roots_of_moments():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(4, 3))
    root = moments.root_of(A @ A.T)  # of rank 3: rounding may make an eigenvalue negative
    np.testing.assert_allclose(root @ root.T, A @ A.T, atol=1e-12)
    np.testing.assert_allclose(moments.root_of(np.array([4.0, 9.0])), [2.0, 3.0])
    np.testing.assert_allclose(even_root(4) ** 2, 0.25)
