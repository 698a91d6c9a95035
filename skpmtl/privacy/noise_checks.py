"""Tests of the noise of recorded releases against their descriptions.

The noise of a release is what was released less what it was added to. By the law of its mechanism
it becomes numbers that are independent standard normals, in every release, of every task and in
every fit, whose spread, shape and independence are tested. All tests together raise a false alarm
with probability `RISK`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri_exp
from scipy.stats import binom, chi2, gamma, kstest, norm, poisson

from .costs import is_gaussian, noise_scale
from .rng import grid_step

RISK = 1e-9
_ENOUGH = 220  # numbers that show half the stated noise
_NEAR = 2.0**-18  # numbers that differ by less are counted as repeated
_NOTHING = 1e-5  # in standard deviations
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
        for _, reply, _, scale in _parts(release):
            # Scales at a power of two may be rounded to either side of it.
            steps = reply / grid_step(scale * (1.0 - 1e-12))
            if (steps != np.rint(steps)).any():
                yield place
                break


def noise_of(tape, fit):
    """-> list of `Noise`"""
    found = []
    for place, release in enumerate(tape.releases):
        for task, reply, values, scale in _parts(release):
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


def _laplace(noise, entry):
    x = np.abs(noise)
    return np.sign(noise) * -ndtri_exp(-x - np.log(2.0))


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


_LAWS = {"diagonal Laplace": _laplace, "L2-gamma": _gamma, "symmetrised Wishart": _wishart}


# ---------------------------------------------------------------- tests
def failures(noises):
    """Texts for what the noise of several fits, a list of `Noise`, is not."""
    noises = [noise for noise in noises if noise.z.size]
    if not noises:
        return []
    if not all(np.isfinite(noise.z).all() for noise in noises):
        return ["Noise: a release is not finite."]
    found = [
        *_spreads(noises), *_shape(noises), *_absent(noises), *_repeated(noises),
        *_correlations(noises),
    ]  # fmt: skip
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
        p = 2.0 * min(chi2.cdf(squares, n), chi2.sf(squares, n))
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


def _correlations(noises):
    """Products of numbers that should be independent: given one half, the sum is normal."""
    pairs = {"of entries of one release": [], "of releases of one fit": [], "of two fits": []}
    sums = [np.square(noise.z.sum(axis=1)) / noise.z.shape[1] for noise in noises]
    total, count = float(np.concatenate(sums).sum()), sum(map(len, sums))
    p = 2.0 * min(chi2.cdf(total, count), chi2.sf(total, count))
    yield p, "Noise: that of entries of one release is correlated."
    within = pairs["of entries of one release"]
    for z in (noise.z for noise in noises):
        half = z.shape[1] // 2
        within.append((0, z[:, : 2 * half : 2], z[:, 1 : 2 * half : 2]))
        odd = z[:, 1:]
        within.append((1, odd[:, : odd.shape[1] // 2 * 2 : 2], odd[:, 1::2]))
        within.append((2, z[:, :half], z[:, half : 2 * half]))
        rows = len(z) // 2 * 2
        pairs["of releases of one fit"].append((2, z[:rows:2], z[1:rows:2]))
    for i, (a, b) in enumerate(zip(noises, noises[1:], strict=False)):
        if a.fit == b.fit and a.z.shape == b.z.shape:
            pairs["of releases of one fit"].append((i % 2, a.z, b.z))
    places = {(noise.fit, noise.place, noise.task): noise.z for noise in noises}
    for (fit, place, task), z in places.items():
        other = places.get((fit + 1, place, task))
        if fit % 2 == 0 and other is not None and other.shape == z.shape:
            pairs["of two fits"].append((0, z, other))
    for what, members in pairs.items():
        for kind in {kind for kind, *_ in members}:
            mine = [(np.ravel(a), np.ravel(b)) for k, a, b in members if k == kind]
            a, b = (np.concatenate(side) for side in zip(*mine, strict=True))
            size = float(np.linalg.norm(a))
            if size > 0:
                yield 2.0 * norm.sf(abs(a @ b) / size), f"Noise: that {what} is correlated."
