"""Noise sources: distributions, independence of streams, warnings, the integer grid."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_ndtr
from scipy.stats import chi2, kstest

from skpmtl.privacy import PrivacyLeakWarning, noise_source
from skpmtl.privacy.rng import SystemSource, add_on_grid, grid_step

RARE = 1e-7  # operating-system noise cannot be seeded: false alarms of these tests


@pytest.mark.parametrize(
    "draw, distribution",
    [
        (lambda s: s.normal(20000), "norm"),
        (lambda s: s.uniform(20000), "uniform"),
        (lambda s: s.chisquare(np.full(20000, 1.0)), chi2(1).cdf),
        (lambda s: s.chisquare(np.full(20000, 28.0)), chi2(28).cdf),
    ],
)
def test_system_source_has_the_distributions(draw, distribution):
    assert kstest(draw(noise_source()), distribution).pvalue > RARE


class Words(SystemSource):
    """Given words, then further ones for the entries that ask for more bits."""

    def __init__(self, *calls):
        self._calls = [np.array(words, dtype=np.uint64) for words in calls]

    def _words(self, size):
        words = self._calls.pop(0) if self._calls else np.full(size, 2**63, dtype=np.uint64)
        return words.reshape(size)


def test_extreme_words_give_finite_symmetric_numbers():
    extreme = [0, 1, 2**64 - 1, 2**64 - 2, 2**63]
    z, u, c = (
        draw(Words(extreme))
        for draw in (
            lambda s: s.normal(5),
            lambda s: s.uniform(5),
            lambda s: s.chisquare([3.0] * 5),
        )
    )
    assert np.isfinite(z).all() and np.isfinite(c).all()
    assert z[0] == -z[1] and z[0] < -9.0  # tails reach far, and the sign is a fair bit
    assert z[2] == z[3] == 0
    assert (u > 0).all() and (u < 1).all()
    assert (c >= 0).all()
    # Where the first word says "rare" a second one goes on, and a third one after that.
    tail = Words([0, 0], [0, 2**40], [2**40, 2**50]).uniform(2)
    assert_allclose(tail, [2.0**-152, 2.0**-88], rtol=1e-12)
    assert SystemSource().chisquare(3.0).shape == ()


BITS = 191  # of a tail: 63 of the first word beside the sign, and two words more


def grid_points(draw, tails, scale):
    """Whole noise steps that the sampler makes of the tails `tails` / 2^192, integers."""
    first, second, third = ([n >> shift & 2**64 - 1 for n in tails] for shift in (128, 64, 0))
    rare = [k for k, word in enumerate(first) if word < 2**53]
    more = [k for k in rare if second[k] < 2**53]
    calls = [2 * word + 1 for word in first], [second[k] for k in rare], [third[k] for k in more]
    return np.rint(draw(Words(*calls), len(tails)) * scale).astype(np.int64)


def first_tail(draw, points, scale):
    """Largest tails, in units of 2^-192, that the sampler takes to each grid point or beyond."""
    low, high = [0] * len(points), [2**BITS - 1] * len(points)
    for _ in range(BITS):
        middle = [(a + b + 1) // 2 for a, b in zip(low, high, strict=True)]
        reached = grid_points(draw, middle, scale) >= points
        low = [m if r else a for m, a, r in zip(middle, low, reached, strict=True)]
        high = [b if r else m - 1 for m, b, r in zip(middle, high, reached, strict=True)]
    return low


@pytest.mark.parametrize("scale", [2.0**24, 1.999 * 2.0**24])
@pytest.mark.parametrize(
    "draw, log_tail, hazard, places",
    [
        # Tails of 2^-2 to 2^-100, where one more word begins (2^-11), and where the
        # approximations of the quantile function meet (z = 1.1, 8).
        (
            SystemSource.normal,
            lambda z: log_ndtr(-z),
            lambda z: np.exp(-0.5 * z * z - log_ndtr(-z)) / math.sqrt(2.0 * math.pi),
            [0.5, 1.1015, 3.0, 3.298, 6.2, 7.349, 8.0, 9.1, 11.5],
        ),
        (
            lambda s, n: 0.5 * s.chisquare(np.full(n, 2.0)),
            lambda x: -x,
            np.ones_like,
            [0.7, 7.624, 21.0, 44.361, 45.0, 68.6],
        ),
        (
            lambda s, n: 0.5 * s.chisquare(np.full(n, 4.0)),
            lambda x: np.log1p(x) - x,
            lambda x: x / (1.0 + x),
            [1.7, 9.9, 21.0, 44.361, 45.0, 68.6],
        ),
    ],
    ids=["normal", "chisquare 2", "chisquare 4"],
)
def test_no_point_of_the_grid_is_missed(draw, log_tail, hazard, places, scale):
    """Exact numbers of the 2^191 words that lead to grid points in the tails."""
    start = np.array([math.floor(place * scale) for place in places])
    points = start[:, None] + np.arange(13)
    tails = np.array(first_tail(draw, points.ravel(), scale), dtype=object).reshape(points.shape)
    counts = tails[:, :-1] - tails[:, 1:]
    assert (counts > 0).all()
    # A neighbour's noise has the probability of another grid point: ratios are what counts.
    share = (counts / tails[:, :-1]).astype(float)
    exact = -np.expm1(-hazard(points[:, :-1] / scale) / scale)
    assert_allclose(share, exact, rtol=2.0**-18)
    left = np.exp(log_tail((points[:, :-1] - 0.5) / scale))
    assert_allclose(tails[:, :-1].astype(float) * 2.0**-192, left, rtol=1e-12)


def test_permutation_is_uniform():
    source = noise_source()
    counts = np.zeros(6)
    for _ in range(3000):
        order = source.permutation(3)
        counts[
            [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)].index(
                tuple(int(i) for i in order)
            )
        ] += 1
    assert chi2(5).sf(((counts - 500) ** 2 / 500).sum()) > RARE


@pytest.mark.parametrize("make", [lambda: 3, lambda: np.random.RandomState(3)])
def test_seeded_sources_warn_and_repeat(make):
    with pytest.warns(PrivacyLeakWarning, match="seed"):
        first = noise_source(make())
    with pytest.warns(PrivacyLeakWarning):
        second = noise_source(make())
    assert first.description == "seeded: not private against anyone who knows the seed"
    for name in ("normal", "uniform", "permutation"):
        a, b = getattr(first, name)(50), getattr(second, name)(50)
        assert (a == b).all()
    assert (first.chisquare([1.0, 5.0]) == second.chisquare([1.0, 5.0])).all()


def test_one_stream_per_fit():
    """Two fits from one Generator or RandomState never share noise; nor does the caller."""
    for shared in (np.random.default_rng(3), np.random.RandomState(3)):
        with pytest.warns(PrivacyLeakWarning):
            first, second = noise_source(shared).normal(20), noise_source(shared).normal(20)
        assert (first != second).all()
    with pytest.warns(PrivacyLeakWarning):
        noise, other = (noise_source(seed).normal(20) for seed in (3, 4))
    assert (noise != np.random.default_rng(3).standard_normal(20)).all() and (noise != other).all()


def test_grid():
    assert grid_step(1.0) == 2.0**-24
    assert grid_step(3.9) == 2.0**-23
    step = grid_step(0.3)
    noise = np.rint(np.random.default_rng(0).standard_normal(1000) * 0.3 / step)
    value = np.random.default_rng(1).uniform(-5, 5, 1000)
    out = add_on_grid(value, noise, step)
    assert (out / step == np.rint(out / step)).all()
    assert (out / step - noise == np.rint(value / step)).all()  # exact integer arithmetic
    zeros = add_on_grid(np.array([-0.3, 0.3, -2.0, 2.0]), np.array([-0.0, -0.0, 2.0, -2.0]), 1.0)
    assert not np.signbit(zeros).any()  # a zero has one sign, whatever it was made of
    # Beyond 2^53 steps floats would round: the exact sum is taken and rounded once.
    huge = add_on_grid(np.array([2.0**60]), np.array([1.0]), 1.0)
    assert huge[0] == float(2**60 + 1)


def test_secure_mechanisms():
    pytest.importorskip("opendp", reason="needs the extra skpmtl[secure]")
    from skpmtl.privacy import SymmetricGaussian, VectorGaussian
    from skpmtl.reproduction.mp_mtl import SymmetrizedWishart

    source = noise_source(secure=True)
    assert "OpenDP" in source.description
    gaussian = SymmetricGaussian(3, 1.0, 0.5)
    E = np.array([gaussian.sample(source) for _ in range(500)]) / gaussian.noise_std
    assert (E == E.transpose(0, 2, 1)).all()
    assert kstest(E[:, 0, 0], "norm").pvalue > RARE
    assert kstest(E[:, 1, 0] * math.sqrt(2), "norm").pvalue > RARE
    vector = VectorGaussian(500, 1.0, 0.5)
    assert kstest(vector.sample(source) / vector.noise_std, "norm").pvalue > RARE
    with pytest.raises(ValueError, match="secure=True"):
        SymmetrizedWishart(2, 1.0, 1.0).sample(source)
