"""Tests of noise: exact levels on noise as stated, and the laws of the mechanisms."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest, norm, poisson

from skpmtl.privacy import (
    SymmetricGaussian,
    VectorGaussian,
    noise_checks,
)
from skpmtl.privacy.mechanisms import VectorGamma
from skpmtl.privacy.noise_checks import Noise
from skpmtl.privacy.rng import SeededSource, grid_step
from skpmtl.privacy.tape import Release
from skpmtl.reproduction.mp_mtl import SymmetrizedWishart


def noises(z):
    """z (n_fits, n_releases, n, d) as noise of releases."""
    return [Noise(i, j, None, "a", z[i, j]) for i in range(len(z)) for j in range(len(z[0]))]


CHECKS = {
    "spreads": noise_checks._spreads,
    "shape": noise_checks._shape,
    "correlations": noise_checks._correlations,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("shape", [(4, 2, 3, 5), (3, 3, 3, 2)])
def test_each_p_value_is_uniform_for_noise_as_stated(check, shape):
    rng, found = np.random.default_rng(0), {}
    for _ in range(150):
        given = noises(rng.normal(size=shape))
        for number, (p, _) in enumerate(CHECKS[check](given)):
            found.setdefault(number, []).append(p)
    for values in found.values():
        assert len(values) == 150
        assert kstest(values, "uniform").pvalue > 1e-5


def planted(z, change):
    """What the checks with the smallest p-value say of noise with a fault. -> p, texts"""
    change(z)
    given = noises(z)
    rows = [
        *noise_checks._spreads(given),
        *noise_checks._shape(given),
        *noise_checks._absent(given),
        *noise_checks._repeated(given),
        *noise_checks._correlations(given),
    ]
    least = min(p for p, _ in rows)
    return least, [text for p, text in rows if p <= least * (1.0 + 1e-9)]


def scaled(place, factor):
    def change(z):
        z[place] *= factor

    return change


def mixed(a, b):
    """b follows a to a quarter of its variance, which stays what it is."""

    def change(z):
        z[b] = 0.5 * z[a] + math.sqrt(0.75) * z[b]

    return change


def uneven(z):
    """As much as stated, most of it in every other number by chance."""
    z *= np.where(np.random.default_rng(2).random(z.shape) < 0.5, 0.2, 1.4)


ALL = slice(None)
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (scaled(ALL, 0.8), "that of all releases"),
        (scaled((1,), 0.7), "that of fit 2"),
        (scaled((ALL, 2), 0.7), "that of release 3"),
        (scaled((ALL, ALL, ALL, ALL), 1.25), "that of all releases"),
        (mixed((..., EVEN), (..., ODD)), "that of entries of one release"),
        (mixed((..., slice(1, 18, 2)), (..., slice(2, 19, 2))), "that of entries of one release"),
        (mixed((..., slice(0, 10)), (..., slice(10, 20))), "that of entries of one release"),
        (
            mixed((ALL, ALL, slice(0, None, 2)), (ALL, ALL, slice(1, None, 2))),
            "that of releases of one fit",
        ),
        (mixed((ALL, 0), (ALL, 1)), "that of releases of one fit"),
        (mixed((ALL, 1), (ALL, 2)), "that of releases of one fit"),
        (mixed((EVEN,), (ODD,)), "that of two fits"),
        (mixed((2,), (3,)), "that of two fits"),
        (uneven, "its distribution is not the stated one"),
    ],
)
def test_the_check_of_a_fault_finds_it_and_names_it(change, text):
    z = np.random.default_rng(1).normal(size=(4, 4, 6, 20))
    p, told = planted(z, change)
    assert p < 1e-9 and any(one.startswith(f"Noise: {text}") for one in told), told


def test_a_kind_of_release_and_a_task_are_named():
    rng = np.random.default_rng(2)
    given = [Noise(0, k, k, "ab"[k % 2], rng.normal(size=(3, 50))) for k in range(4)]
    rows = dict((text, p) for p, text in noise_checks._spreads(given))
    for n, text in enumerate(("all releases", "release 3", "fit 1", "a", "task at position 2")):
        members = {0: given, 1: given[2:3], 2: given, 3: given[::2], 4: given[2:3]}[n]
        squares = sum(np.square(noise.z).sum() for noise in members)
        size = 150 * len(members)
        ratio = math.sqrt(squares / size)
        p = rows[f"Noise: that of {text} has {ratio:.3f} times the stated std."]
        assert p == pytest.approx(2 * min(chi2.cdf(squares, size), chi2.sf(squares, size)))
    assert len(rows) == 1 + 4 + 1 + 2 + 4


def test_noise_that_is_missing_or_repeated():
    n = 4000
    z = np.random.default_rng(3).normal(size=(1, 1, 1, n))
    flat = z.reshape(-1)
    flat[:3] = [2.0, 3.0, 4.0]
    ((p, text),) = noise_checks._absent(noises(z))
    count = int((np.abs(flat) < 1e-5).sum())
    assert text == f"Noise: {count} released numbers have none."
    flat[:3] = 0.9e-5, -0.9e-5, 0.0
    ((p, text),) = noise_checks._absent(noises(z))
    assert text == f"Noise: {count + 3} released numbers have none."
    assert p == pytest.approx(binom.sf(count + 2, n, norm.cdf(1e-5) - norm.cdf(-1e-5)), rel=1e-6)
    before = int(noise_checks._repeated(noises(z)).__next__()[1].split()[1])
    flat[:4] = [5.0, 5.0 + 2.0**-19, -5.0 - 2.0**-20, 6.0]  # but for the sign
    ((p, text),) = noise_checks._repeated(noises(z))
    count = int(text.split()[1])
    assert abs(count - before) <= 4 and count >= 2
    # The density of the difference of two half-normals at 0 is 1 / sqrt(pi), on either side of it.
    assert p == pytest.approx(poisson.sf(count - 1, n * (n - 1) / 2 * 2 * 2.0**-18 / math.pi**0.5))


def test_all_tests_together():
    rng = np.random.default_rng(4)
    z = rng.normal(size=(2, 2, 3, 40))
    assert noise_checks.failures(noises(z)) == []
    assert noise_checks.failures([]) == []
    empty = Noise(0, 0, None, "a", np.empty((0, 3)))
    assert noise_checks.failures([empty]) == [] and math.isnan(noise_checks.spread([empty]))
    found = noise_checks.failures(noises(0.5 * z))
    assert found[0].startswith("Noise: that of all releases has 0.5")
    assert noise_checks.spread(noises(0.5 * z)) == pytest.approx(0.5 * np.sqrt((z**2).mean()))
    z[0, 0, 0, 0] = np.inf
    assert noise_checks.failures(noises(z)) == ["Noise: a release is not finite."]


MECHANISMS = [
    VectorGaussian(40, 1.0, 0.5),
    SymmetricGaussian(8, 2.0, 0.5),
    VectorGamma(1, 0.1, 0.5, n_vectors=40),  # of Laplace numbers, with a std below 1
    VectorGamma(40, 1.0, 0.5),
    VectorGamma(40, 1.0, 0.5, n_vectors=4),
    SymmetrizedWishart(8, 2.0, 0.5),
]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)


@every_mechanism
def test_noise_of_each_mechanism_becomes_standard_normal(mechanism):
    source, releases = SeededSource(np.random.default_rng(7)), []
    value = np.full(mechanism.shape, 0.25)
    for _ in range(60):
        reply = mechanism.release(value, source)
        releases.append(Release(mechanism.describe(), reply, value[None]))
    tape = SimpleNamespace(releases=releases)
    found = noise_checks.noise_of(tape, 5)
    assert {(noise.fit, noise.task) for noise in found} == {(5, None)}
    assert [noise.place for noise in found] == list(range(60))
    assert len({noise.kind for noise in found}) == 1
    z = np.concatenate([noise.z.ravel() for noise in found])
    assert kstest(z, "norm").pvalue > 1e-4 and abs(z.std() - 1) < 5 / math.sqrt(2 * z.size)
    assert not [*noise_checks.off_grid(tape)]
    # Half the noise is found, and numbers off the grid.
    half = [Release(r.entry, 0.125 + 0.5 * r.reply, r.values) for r in releases]
    assert noise_checks.failures(noise_checks.noise_of(SimpleNamespace(releases=half), 0))
    step = grid_step(noise_checks.noise_scale(mechanism.describe(), mechanism.shape))
    off = [
        Release(r.entry, r.reply + (k == 2) * step / 3, r.values)
        for k, r in enumerate(releases[:4])
    ]
    assert [*noise_checks.off_grid(SimpleNamespace(releases=off))] == [2]


def test_the_law_of_a_wishart_matrix_of_one_row_is_laplace():
    """The difference of two exponentials, of scale 2 each."""
    x = np.array([-90.0, -8.0, -0.3, -1e-3, 0.02, 1.0, 20.0, 200.0])
    wishart = noise_checks._wishart(x[:, None, None], {})[:, 0]
    laplace = np.sign(x) * norm.isf(0.5 * np.exp(-np.abs(x) / 2.0))
    np.testing.assert_allclose(wishart, laplace, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("std", [np.nextafter(1.0, 0.0), 1.0, np.nextafter(1.0, 2.0)])
def test_noise_around_a_power_of_two_is_on_its_grid(std):
    """Below it the step is half of that above."""
    mechanism, value = VectorGaussian(40, std, 1.0), np.zeros(40)
    assert mechanism.noise_std == std and mechanism.step == 2.0 ** (-24 - (std < 1.0))
    reply = mechanism.release(value, SeededSource(np.random.default_rng(7)))
    release = Release(mechanism.describe(), reply, value[None])
    assert not [*noise_checks.off_grid(SimpleNamespace(releases=[release]))]


def test_the_room_for_rounding_is_no_noise():
    """Of a large value that is released without noise half a step is left at most."""
    mechanism, value = VectorGaussian(4, 1.0, 0.5), np.full(4, 1000.0)
    quiet = SimpleNamespace(exact=False, normal=np.zeros)
    release = Release(mechanism.describe(), mechanism.release(value, quiet), value[None])
    (noise,) = noise_checks.noise_of(SimpleNamespace(releases=[release]), 0)
    assert np.abs(noise.z).max() <= 0.51 * mechanism.step / mechanism.noise_std


def test_noise_of_tasks_and_what_shows_half_of_it():
    rng, stds = np.random.default_rng(5), np.array([1.0, 4.0, 2.0])
    entry = {"tasks": np.array([7, 3, 5]), "noise_std": stds, "sensitivity": 2.0}
    entry |= {"norm": "l2", "mechanism": "vector Gaussian"}
    values, reply = np.zeros((6, 5)), rng.normal(size=(6, 5)) * np.repeat(stds, 2)[:, None]

    def tape(move=0.0, tasks=3):
        n, given = 2 * tasks, {**entry, "tasks": entry["tasks"][:tasks], "noise_std": stds[:tasks]}
        sent = Release(
            given, {"update": (reply + move)[:n].reshape(tasks, -1)}, (values + move)[:n]
        )
        return SimpleNamespace(releases=[sent])

    found = noise_checks.noise_of(tape(), 0)
    assert [noise.task for noise in found] == [7, 3, 5]
    for noise, std, part in zip(found, stds, reply.reshape(3, 2, 5), strict=True):
        np.testing.assert_allclose(noise.z * std, part)
    assert [*noise_checks.off_grid(tape())] == [0]  # once, however many of its parts are
    assert noise_checks.fits_needed(tape()) == 8 and noise_checks.fits_needed(tape(tasks=1)) == 22
    assert noise_checks.fits_needed(SimpleNamespace(releases=[])) == 0
    # Noise that the value's own rounding swallows tells nothing.
    assert noise_checks.noise_of(tape(1e20), 0) == []
    found = noise_checks.noise_of(tape(np.repeat([1e20, 0.0, 0.0], 2)[:, None]), 0)
    assert [noise.task for noise in found] == [3, 5]


# ---------------------------------------------------------------- last digits
def releases_of(mechanism, n, seed=0, value=0.25, change=lambda reply: reply):
    source = SeededSource(np.random.default_rng(seed))
    value = np.full(mechanism.shape, value)
    for _ in range(n):
        reply = change(mechanism.release(value, source))
        yield SimpleNamespace(releases=[Release(mechanism.describe(), reply, value[None])])


@every_mechanism
def test_differences_of_equal_sums_are_whole_and_fair(mechanism):
    steps = noise_checks.differences(releases_of(mechanism, 60))
    numbers = 36 if len(mechanism.shape) == 2 else mechanism.shape[0]
    assert len(steps) == 59 * numbers and (steps == np.rint(steps)).all()
    assert min(p for p, _ in noise_checks._coarse(steps)) > 1e-6
    size = 2.0**24 * np.sqrt(2.0)  # of 1 to 2 of such steps: entries have other spreads
    assert 0.2 * size < steps.std() < 40 * size


def test_only_equal_sums_that_floats_resolve_are_compared():
    """And no numbers beyond 2^52 steps, or off the grid, which have no last digits."""
    mechanism = VectorGaussian(4, 1.0, 1.0)
    tapes = [*releases_of(mechanism, 1), *releases_of(mechanism, 2, value=0.5)]
    assert len(noise_checks.differences(tapes)) == 4
    far = releases_of(mechanism, 3, value=2.0**30)
    off = releases_of(mechanism, 3, change=lambda reply: reply + mechanism.step / 3)
    assert len(noise_checks.differences(far)) == len(noise_checks.differences(off)) == 0


def test_last_digits_are_fair_at_the_stated_level():
    """Of 400 sets of uniform numbers, p-values below .05 are no more than that part."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        steps = rng.integers(-(2**25), 2**25, size=60) + rng.integers(-(2**25), 2**25, size=60)
        found.append([p for p, _ in noise_checks._coarse(steps.astype(float))])
    below = (np.array(found) < 0.05).sum(axis=0)
    assert below.max() <= binom.isf(1e-6, 400, 0.05)


def test_noise_of_the_same_bytes_is_the_same_whatever_the_sum_is():
    mechanism, rng = VectorGaussian(30, 1.0, 0.5), np.random.default_rng(0)
    values = [rng.normal(size=30) for _ in range(2)]

    def drawn(value, factor=1.0):
        source = SeededSource(np.random.default_rng(3))
        normal = source.normal
        source.normal = lambda size: factor * normal(size)
        return Release(mechanism.describe(), mechanism.release(value, source), value[None])

    first = drawn(values[0])
    assert not noise_checks.unlike(first, drawn(values[1]))
    assert noise_checks.unlike(first, drawn(values[1], 1.0 + 1e-4))
    far = np.full(30, 1e4)  # equal sums leave no room, however large they are
    assert noise_checks.unlike(drawn(far), drawn(far, 1.0 + 1e-4))
