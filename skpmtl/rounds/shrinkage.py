"""How much of a released centre is noise, from public numbers and the releases."""

import numpy as np

_LEAST = 0.1  # part of the distance to the optimum by which the first round contracts it at least
# Squared length of facts that mean nothing, over that of as many models of tasks of random signs.
CHANCE = 2.0
_TELLING = 5  # rounds from which on releases tell it
_NEAR = 0.3  # of the rounds, after which centres are near enough for updates to be linear in them


def shrinkage(updates, centres, noise_std, chance=0.0):
    """Factor of every centre that its known noise leaves.

    Parameters
    ----------
    updates : ndarray (n_rounds, n_centres, size) or None
        Noisy moves of the centres, which start at zero; None where they were not kept.
    centres : ndarray (n_centres, size)
        Their sums.
    noise_std : ndarray (n_rounds, n_centres)
        Of one number of a move; in proportion to the bounds on updates.
    chance : ndarray (n_centres,), default=0.0
        Squared length that centres have by chance, without noise.

    Returns
    -------
    factors : ndarray (n_centres,)
        max(0, 1 - N / ||a||^2), with N the expected square of the noise that is left in a, and
        `chance`.
    left : ndarray (n_centres,)
        Standard deviation of the noise that is left in a number of a, sqrt(N / size).

    Notes
    -----
    A move of the rounds is r_t = b_t (a* - a_t) + noise. What round t added in noise is corrected
    by all that follow, N = d sum_t sd_t^2 prod_(u > t) (1 - b_u)^2. Where most updates are clipped
    b_t is in proportion to the bound, as sd_t is: b_t = min(b p_t, 1) with p_t = sd_t / max sd,
    which is 1 in every round where bounds do not fall. b is the regression of r_t / p_t, whose
    noise is the same in all rounds, on a_t, over the last n rounds, 70 % of all: far from a*
    clipped updates have a bounded length, and their slope is too small. It is biased by 4 / n, as
    an autoregression is: noise moves a_(t+1) and is corrected in r_(t+1).
    """
    T, size = len(noise_std), centres.shape[1]
    chance = np.broadcast_to(chance, len(centres))
    factors, left = np.zeros(len(centres)), np.zeros(len(centres))
    near = slice(int(_NEAR * T), T)
    for g, a in enumerate(centres):
        sd, b = noise_std[:, g], _LEAST
        pace = sd / sd.max()
        if updates is not None and T >= _TELLING:
            r = updates[:, g]
            at, r = (np.cumsum(r, axis=0) - r)[near], r[near] / pace[near, None]
            at = at - at.mean(axis=0)
            slope = -(r * at).sum() / max((at * at).sum(), 1e-300)
            b = max(float(slope) - 4.0 / len(r), _LEAST)
        later = np.cumprod((1.0 - np.minimum(b * pace[:0:-1], 1.0)) ** 2)[::-1]
        noise = size * float(sd**2 @ np.append(later, 1.0))
        factors[g] = max(0.0, 1.0 - (noise + chance[g]) / max(float(a @ a), 1e-300))
        left[g] = np.sqrt(noise / size)
    return factors, left
