"""Plain numpy counterparts of private meta-learning: gradients row by row, Reptile, accounting."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom, norm

SQUARED, LOGISTIC, MULTINOMIAL = 0, 1, 2


def record_gradient(kind, x, target, coef, intercept):
    """Gradient of one record's loss by coef (C, d) and intercept (C,)."""
    z = coef @ x + intercept
    if kind == SQUARED:
        r = z - target
    elif kind == LOGISTIC:  # target in {-1, 1}
        r = np.array([-target * np.exp(-np.logaddexp(0.0, target * z[0]))])
    else:
        r = np.exp(z - logsumexp(z))
        r[int(target)] -= 1.0
    return np.outer(r, x), r


def clipped_sum(kind, X, y, coef, intercept, clip_norm, fit_intercept=True):
    """Sum over the rows of their clipped gradients, one row after the other.

    A factor is used only where it is below 1, and a gradient of norm zero stays zero.
    """
    G, g = np.zeros_like(coef), np.zeros_like(intercept)
    for x, target in zip(X, y, strict=True):
        A, a = record_gradient(kind, x, target, coef, intercept)
        a = a if fit_intercept else np.zeros_like(a)
        length = np.hypot(np.linalg.norm(A), np.linalg.norm(a))
        factor = clip_norm / length if length > clip_norm else 1.0
        G += factor * A
        g += factor * a
    return G, g


def inner_loop(kind, X, y, coef, intercept, *, steps, rate, batches=None, fit_intercept=True):
    """`steps` gradient steps on mean losses, without privacy. batches: lists of rows, in turn."""
    coef, intercept = coef.copy(), intercept.copy()
    batches = [np.arange(len(y))] if batches is None else batches
    for t in range(steps):
        rows = batches[t % len(batches)]
        G, g = clipped_sum(kind, X[rows], y[rows], coef, intercept, np.inf, fit_intercept)
        coef = coef - rate * G / len(rows)
        intercept = intercept - rate * g / len(rows)
    return coef, intercept


def reptile(kind, parts, order, *, n_outputs=1, meta_rate=1.0, **inner):
    """phi after the rounds of `order`, a list of lists of positions in `parts` [(X, y), ...].

    phi <- phi + meta_rate mean over the round of (phi_k - phi), from zero.
    """
    coef = np.zeros((n_outputs, parts[0][0].shape[1]))
    intercept = np.zeros(n_outputs)
    for members in order:
        models = [inner_loop(kind, *parts[k], coef, intercept, **inner) for k in members]
        coef = coef + meta_rate * np.mean([W - coef for W, _ in models], axis=0)
        intercept = intercept + meta_rate * np.mean([b - intercept for _, b in models], axis=0)
    return coef, intercept


# ------------------------------------------------------------------------ accounting
def gaussian_delta(mu, epsilon):
    """Exact delta of a release with sensitivity mu and unit noise (Balle and Wang)."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


def loss_masses(mixture, other, z, h, side):
    """Masses of log P/Q, P and Q mixtures {shift: weight} of N(shift, z^2), on multiples of h.

    P has its shifts to the right of those of Q, so that the loss grows with the output. side:
    "above" rounds losses up, "below" down. -> first multiple, masses, mass beyond the grid
    """

    def log_density(x, parts):
        return logsumexp([np.log(w) + norm.logpdf(x, s, z) for s, w in parts.items()], axis=0)

    low = min(mixture) - 9.5 * z
    high = max(mixture) + 9.5 * z
    edges = np.linspace(low, high, 60_001)
    loss = log_density(edges, mixture) - log_density(edges, other)
    assert (np.diff(loss) > -1e-9).all()
    masses = sum(w * np.diff(norm.cdf(edges, s, z)) for s, w in mixture.items())
    steps = np.ceil(loss[1:] / h - 1e-9) if side == "above" else np.floor(loss[:-1] / h + 1e-9)
    first = int(steps.min())
    table = np.bincount((steps - first).astype(int), masses)
    return first, table, max(0.0, 1.0 - masses.sum())


def composed_delta(epsilon, events, h, side="above"):
    """Upper ("above") or lower bound on delta of a composition, by convolution of losses.

    events : list of (mixture, other, z, times); see `loss_masses`.
    """
    first, beyond, spectra, length = 0, 0.0, [], 1
    for mixture, other, z, times in events:
        start, table, lost = loss_masses(mixture, other, z, h, side)
        first += times * start
        beyond += times * lost
        length += times * (len(table) - 1)
        spectra.append((table, times))
    size = 1 << int(np.ceil(np.log2(length)))
    spectrum = 1.0
    for table, times in spectra:
        spectrum = spectrum * np.fft.rfft(table, size) ** times
    masses = np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
    losses = h * (first + np.arange(length))
    over = losses > epsilon
    delta = masses[over] @ -np.expm1(epsilon - losses[over])
    return delta + (beyond if side == "above" else 0.0)


def sampled_pair(adjacency, rate, members):
    """Dominating pair of one Poisson step: `members` changed records, each in with `rate`.

    All their gradients point the same way (or, in the neighbour, the opposite way) and have
    the clip norm, which is the unit.
    """
    j = np.arange(members + 1)
    there = dict(zip(j.tolist(), binom.pmf(j, members, rate).tolist(), strict=True))
    if adjacency == "zero-out":
        return there, {0: 1.0}
    return there, {-s: w for s, w in there.items()}


def sampled_delta(epsilon, adjacency, runs, h=2e-3, side="above"):
    """delta of Poisson steps in both orders. runs: list of (rate, z, members, times)."""
    orders = []
    for mirrored in (False, True):
        events = []
        for rate, z, members, times in runs:
            P, Q = sampled_pair(adjacency, rate, members)
            if mirrored:  # Q against P, mirrored so that the loss grows again
                P, Q = {-s: w for s, w in Q.items()}, {-s: w for s, w in P.items()}
            events.append((P, Q, z, times))
        orders.append(composed_delta(epsilon, events, h, side))
    return max(orders)
