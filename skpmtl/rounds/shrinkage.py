"""How much of a released centre is noise, from public numbers and the releases."""

import numpy as np

_CONTRACTION = 0.1, 0.9  # of the distance to the optimum in a round: the least, the most
# Squared length of facts that mean nothing, over that of as many models of tasks of random signs.
CHANCE = 2.0
_TELLING = 5  # rounds from which on releases tell it


def shrinkage(updates, centres, noise_std, falls=False, chance=0.0):
    """Factor of every centre that its known noise leaves.

    Parameters
    ----------
    updates : ndarray (n_rounds, n_centres, size) or None
        Noisy moves of the centres, which start at zero; None where they were not kept.
    centres : ndarray (n_centres, size)
        Their sums.
    noise_std : ndarray (n_rounds, n_centres)
        Of one number of a move.
    falls : bool, default=False
        Whether rounds contract less and less, as their bounds fall; otherwise all of them do alike,
        and the noise that is left is the least that there may be.
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
    b_t is in proportion to the bound, as sd_t is: b_t = b p_t with p_t = sd_t / max sd, else
    p_t = 1. b is the regression of r_t / p_t on a_t, weighted by (p_t / sd_t)^2, less 4 / T for
    what noise alone would show (it moves a_(t+1) and is corrected in r_(t+1)), and between .1
    and .9.
    """
    T, size = len(noise_std), centres.shape[1]
    chance = np.broadcast_to(chance, len(centres))
    factors, left = np.zeros(len(centres)), np.zeros(len(centres))
    for g, a in enumerate(centres):
        sd, b = noise_std[:, g], _CONTRACTION[0]
        pace = sd / sd.max() if falls else np.ones(T)
        if updates is not None and T >= _TELLING:
            r = updates[:, g]
            weight = (sd.min() * pace / sd) ** 2
            weight = (weight / weight.sum())[:, None]
            at = np.cumsum(r, axis=0) - r
            r = r / pace[:, None]
            r, at = r - (weight * r).sum(axis=0), at - (weight * at).sum(axis=0)
            slope = -(weight * r * at).sum() / max((weight * at * at).sum(), 1e-300)
            b = float(np.clip(slope - 4.0 / T, *_CONTRACTION))
        later = np.cumprod((1.0 - b * pace[:0:-1]) ** 2)[::-1]
        noise = size * float(sd**2 @ np.append(later, 1.0))
        factors[g] = max(0.0, 1.0 - (noise + chance[g]) / max(float(a @ a), 1e-300))
        left[g] = np.sqrt(noise / size)
    return factors, left
