"""Sensitivities by search, noise by its moments, guarantees by exact events and densities."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta, gamma, kstest, laplace

from skpmtl.networks import rounds
from skpmtl.networks.rounds import PiecewiseGaussian
from skpmtl.privacy import (
    SymmetricGaussian,
    VectorGamma,
    VectorGaussian,
    mean_sensitivity,
    second_moment_sensitivity,
)
from skpmtl.privacy.mechanisms import clip_rows
from skpmtl.privacy.rng import SeededSource
from skpmtl.reproduction.mp_mtl import PublishedWishart, SymmetrizedWishart

ADJACENCIES = ["zero-out", "replace-one"]


def seeded(seed):
    """A source for tests: the noise must be the same in every run of the test."""
    return SeededSource(np.random.default_rng(seed))


def mechanisms(d):
    return [
        SymmetricGaussian(d, 2.0, 0.7),
        VectorGaussian(d, 0.1, 3.0),
        SymmetrizedWishart(d, 2.0, 0.5),
        PublishedWishart(d, 1.3, 0.5),
        VectorGamma(d, 2.0, 0.5),
    ]


# ---------------------------------------------------------------- sensitivities
def pairs(d, adjacency, bound, rng):
    """Neighbouring contributions: random ones and the corners where the maximum sits."""
    corners = [np.zeros(d), *(bound * np.eye(d)), *(-bound * np.eye(d))]
    noise = rng.standard_normal((300, d)) * rng.uniform(size=(300, 1)) ** -0.5
    W = np.vstack([corners, noise])
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    W *= np.minimum(1.0, bound * (1.0 - 1e-12) / np.maximum(norms, 1e-300))
    if adjacency == "zero-out":
        return [(w, np.zeros(d)) for w in W]
    return list(itertools.product(W[:40], W)) + list(zip(W, -W, strict=True))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("d", [1, 5])
def test_sensitivities_are_attained_and_never_exceeded(adjacency, d):
    K = 1.7
    rng = np.random.default_rng(d)
    distances = {"frobenius": [], "nuclear": [], "mean": []}
    for w, v in pairs(d, adjacency, K, rng):
        D = np.outer(w, w) - np.outer(v, v)
        distances["frobenius"].append(np.linalg.norm(D))
        distances["nuclear"].append(np.abs(np.linalg.eigvalsh(D)).sum())
        distances["mean"].append(np.linalg.norm(w - v) / 20)
    stated = {
        "frobenius": second_moment_sensitivity(K, adjacency, dimension=d),
        "nuclear": second_moment_sensitivity(K, adjacency, dimension=d, norm="nuclear"),
        "mean": mean_sensitivity(K, 20, adjacency),
    }
    for name, seen in distances.items():
        assert max(seen) == pytest.approx(stated[name], rel=1e-9), name
        assert max(seen) <= stated[name] * (1 + 1e-15), name


def test_one_number_has_no_other_direction_and_two_have_one():
    """Two tasks may have the two directions of a plane, and the sums then differ in both."""
    moved = 1.5**2 * np.diag([1.0, -1.0])
    for norm, order in (("frobenius", "fro"), ("nuclear", "nuc")):
        for adjacency in ADJACENCIES:
            assert second_moment_sensitivity(1.5, adjacency, dimension=1, norm=norm) == 1.5**2
        found = second_moment_sensitivity(1.5, "replace-one", dimension=2, norm=norm)
        assert found == pytest.approx(np.linalg.norm(moved, order), rel=1e-12)


def test_sensitivity_errors():
    with pytest.raises(ValueError, match="adjacency='add'"):
        second_moment_sensitivity(1.0, "add")
    with pytest.raises(ValueError, match="norm='max'"):
        second_moment_sensitivity(1.0, "zero-out", norm="max")


# ---------------------------------------------------------------- clipping
def test_clip():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((60, 6)) * 10.0 ** rng.uniform(-3, 3, size=(60, 1))
    W[0] = 0.0
    W[1, 2], W[2, 3], W[3, 0] = np.nan, np.inf, -np.inf
    W[4] = 1e308 * np.linspace(-1.0, 0.5, 6)  # finite, but its square is not
    W[5] = 1e-310 * np.linspace(-1.0, 0.5, 6)
    out, tiny = W.copy(), W.copy()
    clip_rows(tiny, 1e-220)
    before = clip_rows(out, 2.0)
    assert np.isfinite(out).all() and (out[:4] == 0).all()
    assert (before[:4] == [0.0, np.inf, np.inf, np.inf]).all()
    assert before[5] / 1e-310 == pytest.approx(np.linalg.norm(np.linspace(-1.0, 0.5, 6)))
    norms = np.linalg.norm(out, axis=1)
    assert (norms <= 2.0).all()
    assert norms[4] == pytest.approx(2.0, rel=1e-11)
    assert (out[5] == W[5]).all()
    norm = np.linalg.norm(W[6:], axis=1)
    np.testing.assert_allclose(before[6:], norm, rtol=1e-14)
    expected = W[6:] * np.minimum(1.0, 2.0 / norm)[:, None]
    np.testing.assert_allclose(out[6:], expected, rtol=3e-12)
    inside = norm < 1.9
    assert (out[6:][inside] == W[6:][inside]).all()
    assert np.linalg.norm(tiny[6:] * 1e220, axis=1) == pytest.approx(1.0, rel=1e-11)
    large = np.full((1, 2), -1e308)
    clip_rows(large, 1e5)  # the bound times a number is none
    assert np.linalg.norm(large) == pytest.approx(1e5, rel=1e-11)


# ---------------------------------------------------------------- noise
def test_stated_noise_is_sensitivity_over_budget():
    """Rounding moves neighbours by a step per entry; the value, not the noise, makes room."""
    for d in [1, 27, 295]:
        for mechanism, ideal, steps in [
            (SymmetricGaussian(d, 2.0, 0.4), 5.0, d),
            (VectorGaussian(d, 2.0, 0.4), 5.0, math.sqrt(d)),
            (PiecewiseGaussian(d, 2.0, 0.4), 5.0, math.sqrt(d)),
            (VectorGamma(d, 2.0, 0.4), 5.0 * math.sqrt(d + 1), math.sqrt(d)),
            (SymmetrizedWishart(d, 2.0, 0.4), 2.5 * 2 * math.sqrt(d + 1), d**1.5),
        ]:
            assert mechanism.noise_std == pytest.approx(ideal, rel=1e-14)
            assert mechanism.step <= 2.0**-24 * mechanism.noise_std
            assert math.log2(mechanism.step) == round(math.log2(mechanism.step))
            # The largest signal shrinks by what rounding may add, and not by more.
            value = np.full(mechanism.shape, 3e4)
            noise = mechanism.sample(seeded(4))
            shrink = ((mechanism.release(value.copy(), seeded(4)) - noise) / value).mean()
            assert shrink == pytest.approx(1 - steps * mechanism.step / 2.0, abs=1e-10)
            assert shrink > 0.9996


def test_symmetric_gaussian_is_isotropic():
    """<E, D> ~ N(0, s^2 ||D||_F^2) for every symmetric D: what makes mu = Delta / s exact."""
    d, mechanism = 4, SymmetricGaussian(4, 1.0, 1.0)
    source = seeded(5)
    E = np.array([mechanism.sample(source) for _ in range(4000)])
    rng = np.random.default_rng(0)
    for _ in range(5):
        D = rng.standard_normal((d, d))
        D = (D + D.T) / 2
        z = (E * D).sum(axis=(1, 2)) / np.linalg.norm(D) / mechanism.noise_std
        assert kstest(z, "norm").pvalue > 1e-4


@pytest.mark.parametrize("d", [1, 2, 5])
def test_l2_gamma_has_its_density(d):
    """exp(-epsilon |x| / Delta): radius Gamma(d, Delta / epsilon), uniform direction."""
    sensitivity, epsilon = 1.5, 0.6
    scale = sensitivity / epsilon
    one = VectorGamma(d, sensitivity, epsilon)
    E = VectorGamma(d, sensitivity, epsilon, n_vectors=4000).sample(seeded(20 + d))
    E = E.reshape(4000, d)
    radius = np.linalg.norm(E, axis=1)
    assert kstest(radius, gamma(d, scale=scale).cdf).pvalue > 1e-4
    if d == 1:
        assert kstest(E[:, 0], laplace(scale=scale).cdf).pvalue > 1e-4
    else:  # (u_1 + 1) / 2 of a uniform direction is Beta((d-1)/2, (d-1)/2)
        half = (d - 1) / 2
        for j in range(d):
            assert kstest((E[:, j] / radius + 1) / 2, beta(half, half).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(radius, E[:, 0])[0, 1]) < 4.5 / math.sqrt(4000)
    assert abs(np.corrcoef(radius[1:], radius[:-1])[0, 1]) < 4.5 / math.sqrt(4000)
    # The density of the radius over r^(d-1) falls by exp(-epsilon) over the sensitivity.
    f = gamma(d, scale=one.scale)
    at = np.array([1.0, 1.0 + sensitivity])
    log_density = f.logpdf(at) - (d - 1) * np.log(at)
    assert log_density[0] - log_density[1] == pytest.approx(epsilon, rel=1e-12)
    assert one.noise_std == pytest.approx(scale * math.sqrt(d + 1))


def test_l2_gamma_vectors_are_one_release():
    mechanism = VectorGamma(3, 1.0, 0.7, n_vectors=5)
    value, neighbour = np.ones(15), np.ones(15)
    neighbour[6:9] += np.array([0.6, 0.8, 0.0])  # the third vector moves by the sensitivity
    first, second = (mechanism.release(v, seeded(2)) for v in (value, neighbour))
    moved = (second - first).reshape(5, 3)
    assert not moved[[0, 1, 3, 4]].any()
    assert 0.999 < np.linalg.norm(moved) <= 1.0
    assert (first / mechanism.step == np.rint(first / mechanism.step)).all()
    assert mechanism.describe()["epsilon"] == 0.7 and mechanism.describe()["norm"] == "l2"
    with pytest.raises(ValueError, match="shape"):
        mechanism.release(np.ones((5, 3)), seeded(0))

    class Exact:
        exact = True

    with pytest.raises(ValueError, match="no exact sampler for L2-gamma"):
        mechanism.release(value, Exact())


# ---------------------------------------------------------------- guarantees
@pytest.mark.parametrize("i", range(5))
def test_coupled_releases_differ_by_the_signal_only(i):
    d = 5
    mechanism = mechanisms(d)[i]
    value, neighbour = np.zeros(mechanism.shape), np.zeros(mechanism.shape)
    neighbour[(1,) * value.ndim] = mechanism.sensitivity
    first = mechanism.release(value, seeded(3))
    second = mechanism.release(neighbour, seeded(3))
    difference = second - first
    assert np.abs(difference - neighbour).max() <= mechanism.step * (1 + d**1.5)
    norm = {
        "l1": lambda D: np.abs(D).sum(),
        "nuclear": lambda D: np.abs(np.linalg.eigvalsh(D)).sum(),
    }.get(mechanism.norm, np.linalg.norm)
    assert norm(difference) <= mechanism.sensitivity * (1 + 1e-14)
    assert (first / mechanism.step == np.rint(first / mechanism.step)).all()
    assert (first == mechanism.sample(seeded(3))).all()


# ---------------------------------------------------------------- arithmetic
def test_release_hides_the_low_order_bits_of_the_value():
    mechanism = VectorGaussian(2, 1.0, 1.0)
    base = np.array([0.25, 0.5])
    below = mechanism.step / 5
    assert (mechanism.release(base, seeded(1)) == mechanism.release(base + below, seeded(1))).all()


def test_release_checks_its_value():
    mechanism = SymmetricGaussian(2, 1.0, 1.0)
    source = seeded(0)
    with pytest.raises(ValueError, match="shape"):
        mechanism.release(np.zeros(2), source)
    with pytest.raises(ValueError, match="not finite"):
        mechanism.release(np.array([[np.nan, 0], [0, 0]]), source)
    slightly = np.array([[1.0, 0.3], [0.3 + 4.0 * mechanism.step, 1.0]])
    out = mechanism.release(slightly, source)
    assert (out == out.T).all()
    steps = mechanism.steps(slightly)
    assert (steps == steps.T).all()
    with pytest.raises(ValueError, match="leaves nothing of a statistic"):
        VectorGaussian(1, 1.0, 2.0**-24)  # whose step is the sensitivity
    for bad in [(2, 0.0, 1.0), (2, 1.0, math.inf), (2, math.nan, 1.0)]:
        with pytest.raises(ValueError, match="positive, finite"):
            SymmetricGaussian(*bad)


@pytest.mark.parametrize("order", ["C", "F"])
def test_noise_piece_by_piece_is_that_of_the_whole(order, monkeypatch):
    """On the same grid, with the same spread, and added to the array that is released."""
    monkeypatch.setattr(rounds, "_BLOCK", 7)
    mechanism = PiecewiseGaussian(2000, 0.25, 0.5)
    value = np.full((20, 100), 3.0, order=order)
    found = mechanism.release(value, seeded(1))
    assert found.shape == (20, 100)
    noise = (found - 3.0) / mechanism.noise_std
    assert abs(noise.mean()) < 5 / math.sqrt(2000)
    assert noise.std() == pytest.approx(1.0, abs=5 / math.sqrt(4000))
    steps = found / mechanism.step
    assert (steps == np.rint(steps)).all() and len(np.unique(steps)) > 1990
    for bad in (np.nan, np.inf):
        wrong = np.full((20, 100), 3.0)
        wrong[3, 1] = bad  # one of many
        with pytest.raises(ValueError, match="not finite"):
            mechanism.release(wrong, seeded(1))
