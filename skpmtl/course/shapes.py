"""From released moments and scales to shapes: shrunk by their known noise, or declined."""

import math

import numpy as np

FLOORS = (0.1, 0.01)  # parts of the trace that stay flat, each a prior
_DOUBT = 1.5  # standard deviations of noise taken off a diagonal, so that noise opens no column
_SPIKES = 3  # passes that separate spikes from the bulk
_SIGNALS = (0.01, 1.0, 64.0)  # variances of a released log2 scale: none, twice, 8 octaves
_CENTRES = (1e-4, 0.01, 1.0)  # of a released mean in spreads
_NO_SIGNAL = 0.8  # prior weight of the least of them


def with_floor(eigenvalues, floor):
    """Spectrum of trace one, of which the part `floor` is flat."""
    return (1.0 - floor) * eigenvalues / eigenvalues.sum() + floor / len(eigenvalues)


def diagonal_roots(diagonal):
    """Roots of diagonal shapes, from the flattest to the sharpest."""
    return [np.diag(np.sqrt(with_floor(diagonal, floor))) for floor in FLOORS]


def shrunk_diagonal(found, noise, n_present):
    """Diagonal of a moment less its background and what noise can do; may be zeros."""
    d = len(found)
    background = np.sort(found)[max(d // 4, 1) - 1] if d > 3 else found.min()
    drawn = 2.0 * background / math.sqrt(max(n_present, 1.0))
    return np.maximum(found - max(background, 0.0) - _DOUBT * noise - max(drawn, 0.0), 0.0)


def spiked(found, noise, n_present):
    """Eigenvectors and the spikes beyond the edge of noise. -> vectors, spikes (zeros: none)

    The bulk is that of d eigenvalues of a Wigner matrix of this noise plus a Wishart one of so many
    tasks (Benaych-Georges and Nadakuditi, Adv. Math. 227, 2011); a spike x over the edge e is
    shrunk to root(x^2 - e^2).
    """
    d = len(found)
    values, vectors = np.linalg.eigh(found)
    entry = noise / math.sqrt(2.0)
    aspect = d / max(n_present, 1.0)
    k = 0
    for _ in range(_SPIKES):
        bulk = max(values[: d - k].mean(), 0.0)
        edge = math.hypot(2.0 * math.sqrt(d) * entry, bulk * (2.0 * math.sqrt(aspect) + aspect))
        k = min(int((values - bulk > edge).sum()), d - 1)
    over = values - bulk
    return vectors, np.sqrt(np.maximum(over**2 - edge**2, 0.0)) * (over > edge)


def path_of_shapes(found, noise, n_present, flat, sparse=True):
    """Public path of roots: sparse ones from sharp to flat, the flat one, subspaces to sharp.

    `found`: a moment (d, d), or the diagonal (d,) of one, which knows of no subspaces.
    """
    d, roots = len(found), []
    diagonal = shrunk_diagonal(found if found.ndim == 1 else np.diag(found), noise, n_present)
    if diagonal.sum() > 0 and d > 2 and sparse:
        roots += diagonal_roots(diagonal)[::-1]
    roots.append(flat)
    if found.ndim == 1:
        return roots
    vectors, spikes = spiked(found, noise, n_present)
    if spikes.sum() > 0:
        roots += [vectors * np.sqrt(with_floor(spikes, floor)) for floor in FLOORS]
    return roots


def shrunk(values, noise, variances):
    """Empirical Bayes of values with known noise. -> posterior mean, posterior variance of one

    Every value is N(0, A) plus noise, with one A of three for all of them.
    """
    signals = np.array(variances)
    V = signals + noise**2
    prior = np.log([_NO_SIGNAL, (1.0 - _NO_SIGNAL) / 2, (1.0 - _NO_SIGNAL) / 2])
    E = prior - 0.5 * len(values) * np.log(V) - 0.5 * np.sum(values**2) / V
    w = np.exp(E - E.max())
    w /= w.sum()
    return values * (w * signals / V).sum(), float((w * signals * noise**2 / V).sum())


def read_scales(found, noise):
    """Scales of columns from means over tasks of log2 of spreads. -> (d,), variances of log2 (2,)

    The variances are of all columns together, and of a single one.
    """
    middle, of_all = shrunk(found.mean(keepdims=True), noise / math.sqrt(len(found)), _SIGNALS)
    apart, of_one = shrunk(found - found.mean(), noise, _SIGNALS)
    return 2.0 ** (middle + apart), np.array([of_all, of_one])


def read_centres(found, noise):
    """Centres of columns in their scales, from means over tasks. -> (d,)"""
    return shrunk(found, noise, _CENTRES)[0]


def falling(differences):
    """Differences made to fall along a path, by pooling adjacent violators."""
    pools = []
    for value in differences:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (b, n), (a, k) = pools.pop(), pools.pop()
            pools.append(((a * k + b * n) / (k + n), k + n))
    return np.concatenate([np.full(n, value) for value, n in pools]) if pools else differences
