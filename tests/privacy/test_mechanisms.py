"""Sensitivities by search, noise by its moments, guarantees by exact events and densities."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, chi2, gamma, kstest, laplace

from skpmtl._kernels.clip import clip
from skpmtl._kernels.wishart import bartlett
from skpmtl.privacy import (
    PublishedWishart,
    SymmetricGaussian,
    SymmetrizedWishart,
    VectorGamma,
    VectorGaussian,
    gdp_mu,
    mean_sensitivity,
    noise_source,
    second_moment_sensitivity,
)
from skpmtl.privacy.rng import SeededSource

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
@pytest.mark.parametrize("kernel", [clip, getattr(clip, "py_func", clip)])
def test_clip(kernel):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((60, 6)) * 10.0 ** rng.uniform(-3, 3, size=(60, 1))
    W[0] = 0.0
    W[1, 2], W[2, 3], W[3, 0] = np.nan, np.inf, -np.inf
    W[4] = 1e308 * np.linspace(-1.0, 0.5, 6)  # finite, but its square is not
    W[5] = 1e-310 * np.linspace(-1.0, 0.5, 6)
    out, before, tiny = W.copy(), np.empty(len(W)), W.copy()
    with np.errstate(all="ignore"):
        kernel(tiny, 1e-220, before)
        kernel(out, 2.0, before)
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
    with np.errstate(all="ignore"):
        kernel(large, 1e5, before[:1])  # the bound times a number is none
    assert np.linalg.norm(large) == pytest.approx(1e5, rel=1e-11)


# ---------------------------------------------------------------- noise
@pytest.mark.parametrize("i", range(5))
@pytest.mark.parametrize("d", [1, 4])
def test_two_thousand_draws_show_the_stated_noise(i, d):
    mechanism = mechanisms(d)[i]
    source = seeded(10 * d + i)
    E = np.array([mechanism.sample(source) for _ in range(2000)])
    mean = getattr(mechanism, "noise_mean", 0.0)
    diagonal = np.diagonal(E, axis1=1, axis2=2) if E.ndim == 3 else E
    centred = diagonal - mean
    z = centred / mechanism.noise_std
    error = (z**2).std(axis=0) / math.sqrt(2000)
    assert (np.abs((z**2).mean(axis=0) - 1) < 4.5 * error).all()
    assert (np.abs(z.mean(axis=0)) < 4.5 / math.sqrt(2000)).all()
    assert (error < 0.1).all()  # the test can see 20 % of the std at least
    if E.ndim == 3 and d > 1:
        assert (E == E.transpose(0, 2, 1)).all()
        ratio = (E[:, 1, 0] / mechanism.noise_std) ** 2
        assert abs(ratio.mean() - 0.5) < 4.5 * ratio.std() / math.sqrt(2000)


def test_stated_noise_is_sensitivity_over_budget():
    """Rounding moves neighbours by a step per entry; the value, not the noise, makes room."""
    for d in [1, 27, 295]:
        for mechanism, ideal, steps in [
            (SymmetricGaussian(d, 2.0, 0.4), 5.0, d),
            (VectorGaussian(d, 2.0, 0.4), 5.0, math.sqrt(d)),
            (VectorGamma(d, 2.0, 0.4), 5.0 * math.sqrt(d + 1), math.sqrt(d)),
            (SymmetrizedWishart(d, 2.0, 0.4), 2.5 * 2 * math.sqrt(d + 1), d**1.5),
        ]:
            assert mechanism.noise_std == pytest.approx(ideal, rel=1e-14)
            assert mechanism.step <= 2.0**-24 * mechanism.noise_std
            assert math.log2(mechanism.step) == round(math.log2(mechanism.step))
            # The largest signal shrinks by what rounding may add, and not by more.
            value = np.full(mechanism.shape, 3e4)
            noise = mechanism.sample(seeded(4))
            shrink = ((mechanism.release(value, seeded(4)) - noise) / value).mean()
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


def test_bartlett_is_wishart():
    d, nu, n = 3, 7, 4000
    rng = np.random.default_rng(1)
    python = getattr(bartlett, "py_func", bartlett)
    W = np.empty((n, d, d))
    for i in range(n):
        z, c = rng.standard_normal(d * (d - 1) // 2), rng.chisquare(nu - np.arange(d))
        bartlett(z, c, W[i])
        if i < 20:
            A = np.diag(np.sqrt(c))
            A[np.tril_indices(d, -1)] = z
            np.testing.assert_allclose(W[i], A @ A.T, rtol=1e-13, atol=1e-14)
            again = np.empty((d, d))
            python(z, c, again)
            np.testing.assert_allclose(W[i], again, rtol=1e-14, atol=1e-15)
    x = rng.standard_normal(d)
    x /= np.linalg.norm(x)
    quadratic = np.einsum("i,nij,j->n", x, W, x)
    assert kstest(quadratic, chi2(nu).cdf).pvalue > 1e-4
    inverse = 1 / np.einsum("i,nij,j->n", x, np.linalg.inv(W), x)
    assert kstest(inverse, chi2(nu - d + 1).cdf).pvalue > 1e-4


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


def published_event(mechanism, n, seed):
    """How often release - K^2 e1 e1' is not PSD, without the task and with it."""
    source = seeded(seed)
    signal = np.zeros(mechanism.shape)
    signal[0, 0] = mechanism.sensitivity
    without = np.array([mechanism.release(0 * signal, source) for _ in range(n)])
    with_task = np.array([mechanism.release(signal, source) for _ in range(n)])
    # Rounding to the grid moves eigenvalues by at most d steps.
    edge = -mechanism.dimension * mechanism.step
    return [
        float((np.linalg.eigvalsh(S - signal)[:, 0] < edge).mean()) for S in (without, with_task)
    ]


def assert_event_within_budget(mechanism, epsilon, delta, n=2000, seed=0):
    p, q = published_event(mechanism, n, seed)
    allowance = 4.5 * math.sqrt((p + math.exp(2 * epsilon) * q + 1 / n) / n)
    assert p <= math.exp(epsilon) * q + delta + allowance
    assert q <= math.exp(epsilon) * p + delta + allowance


@pytest.mark.parametrize("d, epsilon", [(1, 0.3), (5, 1.0)])
def test_the_event_that_breaks_the_published_mechanism(d, epsilon):
    mechanism = PublishedWishart(d, 1.4, epsilon)
    p, q = published_event(mechanism, 2000, d)
    expected = 1 - math.exp(-epsilon)
    assert q == 0.0
    assert abs(p - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 2000)
    assert mechanism.delta_lower_bound == pytest.approx(expected)
    with pytest.raises(AssertionError):
        assert_event_within_budget(mechanism, epsilon, 1e-5)
    sound = [SymmetrizedWishart(d, 1.4, epsilon), SymmetricGaussian(d, 1.4, gdp_mu(epsilon, 1e-5))]
    for mechanism in sound:
        assert_event_within_budget(mechanism, epsilon, 1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_symmetrised_wishart_density_ratio(d):
    """x'Ex = V (chi2_{d+1} - chi2_{d+1}'): its log-density moves by at most epsilon."""
    epsilon, sensitivity = 0.8, 1.5
    V = SymmetrizedWishart(d, sensitivity, epsilon).scale
    half, whole = (d + 1) / 2, math.gamma((d + 1) / 2) * (2 * V) ** ((d + 1) / 2)

    def f(x):  # a tenth of what the method of scipy takes
        return x ** (half - 1) * math.exp(-x / (2 * V)) / whole

    assert f(1.3) == pytest.approx(chi2(d + 1, scale=V).pdf(1.3), rel=1e-12)

    def density(x):
        x = abs(x)
        return quad(lambda t: f(t + x) * f(t), 0, 60 * V + 4 * V * d, epsrel=1e-10)[0]

    grid = np.linspace(-15 * V, 15 * V, 61)
    ratios = [abs(math.log(density(x) / density(x - sensitivity))) for x in grid]
    assert max(ratios) <= epsilon * (1 + 1e-6)
    assert max(ratios) > 0.6 * epsilon  # it approaches the budget in the tails
    if d == 1:  # Laplace of scale 2V = sensitivity / epsilon
        assert density(0.7) == pytest.approx(math.exp(-0.7 / (2 * V)) / (4 * V), rel=1e-6)


def test_wishart_log_density_is_lipschitz_in_nuclear_norm():
    """Importance sampling of h at d = 2, with differences of two signs (replace-one)."""
    d, V = 2, 0.5
    rng = np.random.default_rng(7)
    G = rng.standard_normal((200_000, d, d + 1))
    F = V * G @ G.transpose(0, 2, 1)  # density of E is E_F[p_W(E + F)]

    def log_density(E):
        S = E + F
        inside = (S[:, 0, 0] > 0) & (np.linalg.det(S) > 0)
        return math.log(np.where(inside, np.exp(-np.trace(S, axis1=1, axis2=2) / 2 / V), 0).mean())

    for _ in range(20):
        E = rng.standard_normal((d, d))
        E = E + E.T
        w, v = rng.standard_normal((2, d))
        D = np.outer(w, w) / (w @ w) - np.outer(v, v) / (v @ v)
        bound = np.abs(np.linalg.eigvalsh(D)).sum() / (2 * V)
        assert abs(log_density(E) - log_density(E - D)) <= bound + 0.05


# ---------------------------------------------------------------- arithmetic
def test_release_stays_exact_when_noise_is_tiny():
    mechanism = SymmetricGaussian(3, 1.0, 1e20)  # the paper runs epsilon = 1e40
    value = np.diag([1e3, 2.0, 3.0])
    released = mechanism.release(value, seeded(0))
    np.testing.assert_allclose(released, value, rtol=1e-15, atol=1e-18)


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


def test_release_with_the_system_source_differs_every_time():
    mechanism = VectorGaussian(4, 1.0, 1.0)
    source = noise_source()
    assert (mechanism.sample(source) != mechanism.sample(source)).all()


def test_published_wishart_adds_its_noise_to_the_value_as_it_is():
    """The paper leaves no room for rounding: what is on the grid stays what it is."""
    mechanism, value = PublishedWishart(2, 1.0, 1.0), np.array([[0.75, 0.25], [0.25, 0.5]])
    found, noise = (mechanism.release(v, seeded(3)) for v in (value, np.zeros((2, 2))))
    np.testing.assert_array_equal(found - noise, value)


def test_describe_names_the_budget():
    gaussian = SymmetricGaussian(3, 2.0, 0.5).describe("second moment")
    assert gaussian["mu"] == 0.5 and "epsilon" not in gaussian
    assert gaussian["statistic"] == "second moment" and gaussian["norm"] == "frobenius"
    assert gaussian["noise_std"] == pytest.approx(4.0, rel=1e-5)
    assert VectorGamma(3, 2.0, 0.5).describe()["epsilon"] == 0.5
