"""Tests of the noise of recorded releases against their descriptions.

The noise of a release is what was released less what it was added to. By the law of its mechanism
it becomes numbers that are independent standard normals, in every release, of every task and in
every fit, whose spread, shape and independence are tested. All tests together raise a false alarm
with probability `RISK`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, gammaln, log_ndtr, ndtr, ndtri_exp
from scipy.stats import binom, chi2, gamma, kstest, norm, poisson

from .costs import is_gaussian, noise_scale
from .rng import GRID_BITS, grid_step

RISK = 1e-9
_ENOUGH = 220  # numbers that show half the stated noise
_NEAR = 2.0**-18  # numbers that differ by less are counted as repeated
_NOTHING = 1e-5  # in standard deviations
_EDGE = 1e-12  # relative distance from a power of two at which a scale may be either side of it
_BITS = 16  # lowest bits of noise that are tested: far below its scale of 2^24 steps
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)  # of which noise may be a multiple
_LAGS = 40  # up to which correlations are tested at every distance
_WITHIN, _RELEASES, _FITS = "of entries of one release", "of releases of one fit", "of two fits"
_RESOLVED = 2.0**-40  # noise below this fraction of a value is lost in the value's own rounding


@dataclass(frozen=True)
class Noise:
    """Noise of one release, or of one task's part of it."""

    # `fit`, `place`: of the fit, and of the release in it
    fit: int
    place: int
    task: object
    kind: str  # mechanism and size of one release
    # (n, d), standard normals if the noise is as stated, in vectors that were added at once
    z: np.ndarray


# ---------------------------------------------------------------- noise on a tape
def off_grid(tape):
    """Places of releases with numbers that are not on the public grid of the stated noise."""
    for place, release in enumerate(tape.releases):
        for _, reply, _, scale in _parts(release.own or release):
            # Scales at a power of two may be rounded to either side of it.
            steps = reply / grid_step(scale * (1.0 - _EDGE))
            if (steps != np.rint(steps)).any():
                yield place
                break


def noise_of(tape, fit):
    """Noise of what a fit drew itself. -> list of `Noise`"""
    found = []
    for place, release in enumerate(tape.releases):
        for task, reply, values, scale in _parts(release.own or release):
            if scale < _RESOLVED * np.abs(values).max(initial=0.0):
                continue
            name = release.entry["mechanism"]
            kind, law = f"{name}, {' x '.join(map(str, values.shape[1:]))}", _LAWS.get(name)
            if is_gaussian(release.entry):
                law = _gaussian
                # Mechanisms make room for their rounding.
                shrink = np.sqrt(values[0].size) * grid_step(scale) / release.entry["sensitivity"]
                values = values * (1.0 - shrink)
            z = law((reply - values) / scale, release.entry)
            found.append(Noise(fit, place, task, kind, z))
    return found


def differences(tapes):
    """Differences of the noise of fits with the same exact sums, in steps of the grid.

    The rounded sums cancel, so that these numbers are whole, and as random as the noise of the
    later fits, whatever that of the first one is.

    -> ndarray (n,)
    """
    first, found = {}, [np.empty(0)]
    for tape in tapes:
        for place, release in enumerate(tape.releases):
            for task, reply, values, scale in _parts(release.own or release):
                key = place, task, values.tobytes()
                if key not in first:
                    first[key] = reply
                    continue
                steps = _steps(reply, first[key], scale)
                if release.entry["norm"] in ("frobenius", "nuclear") and steps.ndim == 3:
                    i, j = np.tril_indices(steps.shape[-1])
                    steps = steps[:, i, j]
                found.append(steps[np.isfinite(steps)])
    return np.concatenate([np.ravel(steps) for steps in found])


def _steps(reply, first, scale):
    """Whole numbers of steps between two replies; NaN where floats do not resolve them."""
    for step in (grid_step(scale * (1.0 + _EDGE)), grid_step(scale * (1.0 - _EDGE))):
        a, b = reply / step, first / step
        whole = (a == np.rint(a)) & (b == np.rint(b))
        if whole.all():
            break
    exact = np.maximum(np.abs(a), np.abs(b)) < 2.0**52
    return np.where(whole & exact, a - b, np.nan)


def unlike(release, other):
    """Whether the noise of two releases from the same random bytes is not the same.

    Rounding moves sums, and the room for it those of neighbours, by some steps of the grid.
    """
    for (_, reply, values, scale), (_, reply2, values2, _) in zip(
        _parts(release), _parts(other), strict=True
    ):
        moved, step = np.abs(values2 - values), grid_step(scale)
        size = values[0].size
        room = step * (4.0 + size**1.5 * moved.max(initial=0.0) / release.entry["sensitivity"])
        room += 2.0**-48 * np.maximum(np.abs(values), np.abs(values2)).max(initial=0.0)
        if not (np.abs((reply2 - reply) - (values2 - values)) <= room).all():
            return True
    return False


def _parts(release):
    """Yield (task, reply, values, scale) of the parts of a release that have noise."""
    entry, values = release.entry, release.values
    if not len(values):
        return
    if "tasks" in entry:
        reply = release.reply.get("sums", release.reply["update"]).reshape(values.shape)
        n = len(values) // len(entry["tasks"])
        for i, (k, std) in enumerate(zip(entry["tasks"], entry["noise_std"], strict=True)):
            part = slice(i * n, (i + 1) * n)
            yield int(k), reply[part], values[part], float(std)
        return
    if entry["noise_std"] > 0 and (is_gaussian(entry) or entry["mechanism"] in _LAWS):
        scale = noise_scale(entry, values.shape[1:])
        yield None, np.asarray(release.reply)[None], values, float(scale)


def fits_needed(tape):
    """Further fits of this kind that show half the stated noise in any kind of release."""
    sizes = {}
    for noise in noise_of(tape, 0):
        sizes[noise.kind] = sizes.get(noise.kind, 0) + noise.z.size
    sizes = [size for size in sizes.values() if size]
    return max(1, -(-_ENOUGH // min(sizes))) if sizes else 0


# ---------------------------------------------------------------- laws
def _gaussian(noise, entry):
    if entry["norm"] != "frobenius":
        return noise.reshape(len(noise), -1)
    i, j = np.tril_indices(noise.shape[-1])  # entries off the diagonal have half the variance
    return noise[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _gamma(noise, entry):
    """The same directions, with the lengths that standard normals have."""
    x = noise.reshape(entry.get("n_vectors", 1), -1)
    d, length = x.shape[1], np.linalg.norm(x, axis=1)
    size = np.where(length > d, chi2.isf(gamma.sf(length, d), d), chi2.ppf(gamma.cdf(length, d), d))
    return x * (np.sqrt(size) / np.maximum(length, 1e-300))[:, None]


def _wishart(noise, entry):
    """Of E1 - E2 the diagonal, whose entries are independent differences of two chi-squares.

    These are normal with a variance of 8 G, G ~ Gamma((d + 1) / 2).
    """
    x = np.diagonal(noise, axis1=1, axis2=2)
    k = (noise.shape[-1] + 1) / 2.0
    t = np.linspace(-80.0, 9.0, 4000)  # log G
    log_weight = k * t - np.exp(t) - gammaln(k) + np.log(t[1] - t[0])
    tail = log_ndtr(-np.abs(x)[..., None] / np.sqrt(8.0 * np.exp(t))) + log_weight
    log_sf = np.minimum(np.logaddexp.reduce(tail, axis=-1), np.log(0.5))
    return np.sign(x) * -ndtri_exp(log_sf)


_LAWS = {"L2-gamma": _gamma, "symmetrised Wishart": _wishart}


# ---------------------------------------------------------------- tests
def failures(noises, steps=()):
    """Texts for what the noise of several fits, a list of `Noise`, is not.

    `steps` (n,) are their `differences`.
    """
    noises = [noise for noise in noises if noise.z.size]
    if not noises:
        return []
    if not all(np.isfinite(noise.z).all() for noise in noises):
        return ["Noise: a release is not finite."]
    found = [
        *_spreads(noises),
        *_shape(noises),
        *_absent(noises),
        *_repeated(noises),
        *_correlations(noises),
        *_coarse(np.asarray(steps)),
    ]
    limit = RISK / len(found)
    return list(dict.fromkeys(text for p, text in found if p < limit))


def spread(noises):
    """Observed over stated std of all noise."""
    z = np.concatenate([np.ravel(noise.z) for noise in noises] or [np.empty(0)])
    return float(np.sqrt(np.mean(z**2))) if z.size else float("nan")


def _spreads(noises):
    """Sums of squares: of all releases, and by release, by task and by fit."""
    groups = {}
    for noise in noises:
        keys = {"all releases": None, "release": noise.place + 1, "fit": noise.fit + 1}
        keys[noise.kind] = None
        if noise.task is not None:
            keys["task at position"] = noise.task
        for key in keys.items():
            groups.setdefault(key, []).append(noise)
    for (kind, number), members in groups.items():
        squares = sum(float(np.square(noise.z).sum()) for noise in members)
        n = sum(noise.z.size for noise in members)
        who = kind if number is None else f"{kind} {number}"
        p = 2.0 * min(chdtr(n, squares), chdtrc(n, squares))
        yield p, f"Noise: that of {who} has {np.sqrt(squares / n):.3f} times the stated std."


def _shape(noises):
    z = np.concatenate([np.ravel(noise.z) for noise in noises])
    yield kstest(z, ndtr).pvalue, "Noise: its distribution is not the stated one."


def _absent(noises):
    """Released numbers whose noise is almost 0, in any release."""
    z = np.concatenate([np.ravel(noise.z) for noise in noises])
    count = int((np.abs(z) < _NOTHING).sum())
    p = binom.sf(count - 1, z.size, 2.0 * _NOTHING * norm.pdf(0.0))
    yield p, f"Noise: {count} released numbers have none."


def _repeated(noises):
    """Numbers that occur twice, but for the sign, anywhere."""
    z = np.sort(np.abs(np.concatenate([np.ravel(noise.z) for noise in noises])))
    count, n = int((np.diff(z) < _NEAR).sum()), z.size
    # Two half-normals differ by less than h with probability 2 h / sqrt(pi), to first order.
    p = poisson.sf(count - 1, n * (n - 1) / 2 * 2.0 * _NEAR / np.sqrt(np.pi))
    yield p, f"Noise: {count} numbers of noise are used again, in this fit or in another one."


def _coarse(steps):
    """Zeros, lowest bits, and remainders of differences of noise.

    No whole number has a probability above 2^-GRID_BITS. Each bit is a fair coin, and so is its sum
    with the next one, which shows a bit that is missing from both.
    """
    n, steps = len(steps), steps.astype(np.int64)
    count = int((steps == 0).sum())
    p = _at_least(count, n, 2.0**-GRID_BITS)
    yield p, f"Noise: {count} numbers are the same in two fits of the same rows."
    text = "Noise: that of one sum differs by {}: the sum's own last digits are released."
    for kind, bits in (("bit", steps), ("bits from", steps ^ (steps >> 1))):
        for place in range(_BITS if n else 0):
            ones = int((bits >> place & 1).sum())
            p = 2.0 * bdtr(min(ones, n - ones), n, 0.5)
            yield p, text.format(f"steps of the grid whose {kind} {place} is no fair coin")
    for prime in _PRIMES if n else ():
        count = int((steps % prime == 0).sum())
        p = _at_least(count, n, 1.0 / prime)
        yield p, text.format(f"multiples of {prime} steps of the grid too often")


def _at_least(count, n, p):
    """Probability that `count` of n or more events of probability p happen."""
    return bdtrc(count - 1, n, p) if count else 1.0


def _pairs(z, lag):
    """Entries along the last axis that are `lag` apart, each in one pair at most."""
    whole = z.shape[-1] // (2 * lag) * 2 * lag
    blocks = z[..., :whole].reshape(*z.shape[:-1], -1, 2, lag)
    rest = z[..., whole:]  # of less than two blocks
    n = max(rest.shape[-1] - lag, 0)
    a, b = rest[..., :n], rest[..., lag : lag + n]
    return (
        np.concatenate([np.ravel(blocks[..., 0, :]), np.ravel(a)]),
        np.concatenate([np.ravel(blocks[..., 1, :]), np.ravel(b)]),
    )


def _lagged(stacks):
    """p-values of the products of entries that are some lag apart, for every lag.

    `stacks` are arrays whose last axis is that of the lag; given one entry of every pair the sum
    of the products is normal.
    """
    sizes = {z.shape[-1] for z in stacks}
    longest = max(sizes, default=0)
    lags = {*range(1, _LAGS), *(1 << k for k in range(30)), *(n // 2 for n in sizes)}
    for lag in sorted(lag for lag in lags if 0 < lag < longest):
        for start in (0, lag):  # pairs from an even and from an odd place
            pairs = [_pairs(z[..., start:], lag) for z in stacks if z.shape[-1] > lag + start]
            if pairs:
                a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
                size = float(np.linalg.norm(a))
                if size > 0:
                    yield 2.0 * ndtr(-abs(a @ b) / size)


def _stacked(arrays, keys, axis):
    """Arrays of equal shape and with the same key, stacked along a new axis."""
    groups = {}
    for key, z in zip(keys, arrays, strict=True):
        groups.setdefault((key, z.shape), []).append(z)
    return [np.stack(members, axis=axis) for members in groups.values()]


def _correlations(noises):
    """Sums of vectors, and products of numbers some lag apart: in one vector, from vector to
    vector of a release, from release to release, and from fit to fit."""
    text = "Noise: that {} is correlated."
    sums = [np.square(noise.z.sum(axis=1)) / noise.z.shape[1] for noise in noises]
    total, count = float(np.concatenate(sums).sum()), sum(map(len, sums))
    yield 2.0 * min(chdtr(count, total), chdtrc(count, total)), text.format(_WITHIN)
    z = [noise.z for noise in noises]
    kinds = [
        (_WITHIN, z),
        (_RELEASES, [part.T for part in z]),
        (_RELEASES, _stacked(z, [noise.fit for noise in noises], -1)),
        (_FITS, _stacked(z, [(noise.place, noise.task) for noise in noises], -1)),
    ]
    for what, arrays in kinds:
        for p in _lagged(_stacked(arrays, [None] * len(arrays), 0)):
            yield p, text.format(what)
