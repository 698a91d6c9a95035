"""One vote for all choices: sums of clipped differences of log evidence.

Public is an ordered list of priors. A task has the log evidence E_j of its rows under each, and
sends l_j = E_(j+1) - E_j, every number clipped to +-c / 2 and all together to length c. The sum is
a log-likelihood of all tasks, up to clipping. Differences of neighbours and not centred numbers:
clipping those would favour the dull end of the list.
"""

import numpy as np
from scipy.special import logsumexp

from ..local.prior import SNR, LocalModels, VotedScale, weak_penalty
from ..privacy.mechanisms import clip_rows
from ..privacy.moments import root_of

CLIP = 2.0  # c
N_DIFFERENCES = 12  # numbers of a contribution; those without a prior are 0
_RANGE, _SPREAD = (0.5, 3.0), 0.6  # of the scale under which priors are compared
_FAR = 4.5  # less likely scales, in logarithms, do not count


def sum_of_differences(name):
    """``combine`` of the clipped differences `name`; numbers that are not finite count as 0.

    Sensitivity 2 c for replace-one, c for zero-out: a task without rows sends zeros.
    """

    def combine(contributions, positions=None):
        found = np.nan_to_num(np.array(contributions[name], dtype=float), posinf=0.0, neginf=0.0)
        np.clip(found, -0.5 * CLIP, 0.5 * CLIP, out=found)
        clip_rows(found, CLIP)
        return {name: found.sum(axis=0)}

    return combine


class Tally:
    """The outcome of a vote on evidence.

    `std` is that of the noise of one of the released differences; `total` (n_priors,) is the
    log-likelihood of each prior, less that of the first.
    """

    def __init__(self, released, std, n_priors):
        self.total = np.concatenate([[0.0], np.cumsum(released[: n_priors - 1])])
        self.std = std

    def weights(self, prior):
        """Posterior weights, for logarithms of public prior weights (n_priors,)."""
        logs = (self.total - self.total.max()) / max(1.0, self.std) + prior
        return np.exp(logs - logsumexp(logs))


def evidences(table, priors, snr_centre, fit_intercept):
    """Log evidence of every task under each prior N(0, kappa s^2 M), (n_tasks, n_priors).

    Of real targets. `priors` are M (d, d) or (d,), of trace 1; the evidence is averaged over scales
    about `snr_centre`.
    """
    m, local = table.n_tasks, LocalModels(table, fit_intercept=fit_intercept)
    penalty = VotedScale(float(np.clip(snr_centre, *_RANGE)), _SPREAD).penalty
    scales = -0.5 * (weak_penalty(False) + penalty)
    used = scales > scales.max() - _FAR
    snr, scales = SNR[used], scales[used] - logsumexp(scales[used])
    parts = [spikes_of(M) for M in priors]
    found = np.empty((m, len(priors)))
    few = np.array([part is not None for part in parts])
    with np.errstate(all="ignore"):
        if few.any():
            parts = [part for part in parts if part is not None]
            V = np.hstack([part[0] for part in parts])
            ends = np.cumsum([0] + [part[0].shape[1] for part in parts])
            U, held, _ = np.linalg.svd(V, full_matrices=False)  # all are made of few directions
            basis = np.ascontiguousarray(U[:, held > 1e-10 * held[0]])
            floors = np.array([part[1] for part in parts])
            found[:, few] = local.spiked(basis, basis.T @ V, ends, floors, snr, scales)
        weights = np.full((m, len(SNR)), -np.inf)
        weights[:, used] = scales
        for j in np.flatnonzero(~few):
            found[:, j] = local.average(root_of(priors[j]), None, weights)[0]
    return found


def spikes_of(M):
    """V (d, c) and f with M = f I + V V' and few columns; None where M is not of that kind."""
    if M.ndim == 1:
        return None
    values, Q = np.linalg.eigh(M)
    floor = float(values[0])
    high = values > floor + 1e-9 * values[-1]
    c, d = int(high.sum()), len(values)
    if not 0 < c <= max(d // 3, 1) or floor <= 0.0:
        return None
    return Q[:, high] * np.sqrt(values[high] - floor), floor


def differences_of(found):
    """Contributions (n_tasks, `N_DIFFERENCES`) from the log evidence (n_tasks, n_priors)."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(found, axis=1)
    out = np.zeros((len(found), N_DIFFERENCES))
    out[:, : steps.shape[1]] = np.nan_to_num(steps, posinf=0.0, neginf=0.0)
    return out


def sensitivity(replace_one):
    """Of `sum_of_differences`."""
    return (2.0 if replace_one else 1.0) * CLIP
