"""A released second moment in parts: directions that stand out, and a floor under all.

Where tasks have fewer rows than columns the directions of their models lie mostly outside of the
subspace that they share: a moment shows the subspace, and gives it too little weight. Everything
here is a function of released numbers; which floor, rank, step or further direction is right the
tasks decide by a vote on evidence (`skpmtl.engine.votes`).
"""

from dataclasses import dataclass

import numpy as np

from ..privacy.mechanisms import clip_rows
from ..privacy.moments import directions, shrunk_spectrum

# Candidates for the vote, in an order in which the differences that matter come first.
FLOORS = np.array([1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4])
STEPS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])
WEIGHTS_OF_NEW = np.array([0.0, 0.05, 0.15, 0.5])
_RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
RANK_FLOOR = 0.1  # under which ranks are compared
_LEAST = 0.25  # eigenvalues of the moment inside of the subspace, over their mean
_LEAST_WEIGHT = 1e-3  # of further directions
# Logarithms of public prior weights of the candidates.
PRIOR_OF_FLOORS = -0.5 * ((np.log10(FLOORS) + 1.0) / 1.2) ** 2
PRIOR_OF_STEPS = np.where(
    STEPS > 0, -0.5 * (np.log(np.maximum(STEPS, 0.02) / 0.75) / 0.9) ** 2, -3.0
)
PRIOR_OF_NEW = np.where(WEIGHTS_OF_NEW > 0, -1.0, 0.0)
# Rivals have fewer floors: for each of these priors the rows of all tasks are reduced anew.
RIVAL_FLOORS, PRIOR_OF_RIVALS = FLOORS[::2], PRIOR_OF_FLOORS[::2]


@dataclass(frozen=True)
class Spectrum:
    """Q diag(spikes + floor) Q', of trace 1 at the floor as it is."""

    Q: np.ndarray  # (d, d), orthonormal; directions that stand out are the last ones
    spikes: np.ndarray  # (d,), what they hold beyond the floor; 0 for others
    floor: np.ndarray  # (d,)

    @classmethod
    def of(cls, S, std, trace, tilt, sampling):
        """Of a noisy moment, as `skpmtl.privacy.moments.shrink_matrix` shrinks it."""
        Q, spikes, floor = shrunk_spectrum(S, std, trace, tilt, sampling)
        return cls(Q, spikes / trace, floor / trace)

    @property
    def rank(self):
        return int((self.spikes > 0).sum())

    @property
    def basis(self):
        """Q with the directions that stand out first, (d, d)."""
        k = self.rank
        return np.ascontiguousarray(np.hstack([self.Q[:, -k:], self.Q[:, :-k]]))

    def moment(self, floor=1.0):
        """M of trace 1, with `floor` times the floor."""
        levels = self.spikes + floor * self.floor
        return (self.Q * (levels / levels.sum())) @ self.Q.T

    def of_ranks(self):
        """The same with fewer directions, and an even floor of all the rest.

        -> ranks, descending, up to a quarter of the features; spectra
        """
        k, d = self.rank, len(self.spikes)
        most = max(d // 4, 1)
        ranks = {j for j in _RANKS if j <= min(k, most)} | ({k} if k <= most else set())
        ranks = sorted(ranks, reverse=True)
        spectra = []
        for j in ranks:
            spikes = self.spikes.copy()
            spikes[:-j] = 0.0
            even = np.full(d, max(1.0 - spikes.sum(), 1e-3) / d)
            spectra.append(Spectrum(self.Q, spikes, even))
        return ranks, spectra

    def moved(self, step):
        """Directions moved by `step` (d, rank); what they hold goes with them."""
        k = self.rank
        U, held, _ = np.linalg.svd((self.Q[:, -k:] + step) * np.sqrt(self.spikes[-k:]))
        squares = held**2 * (self.spikes.sum() / (held**2).sum())
        spikes = np.zeros_like(self.spikes)
        spikes[-k:] = squares[::-1]
        Q = np.hstack([U[:, k:], U[:, :k][:, ::-1]])
        return Spectrum(Q, spikes, np.full_like(self.floor, self.floor.mean()))

    def grown(self, E, sizes, weight):
        """With further directions E (d, j), which together hold `weight` times their sizes.

        Without them where `weight` is below `_LEAST_WEIGHT`: they would be rounding errors.
        """
        if weight < _LEAST_WEIGHT:
            return self
        k, total = self.rank, self.spikes.sum()
        further = E * np.sqrt(weight * total / k * sizes / sizes.max())
        F = np.hstack([self.Q * np.sqrt(self.spikes), further])
        values, Q = np.linalg.eigh(F @ F.T)
        j = min(k + E.shape[1], len(values) - 1)
        spikes = np.zeros_like(values)
        spikes[-j:] = np.maximum(values[-j:], 1e-12)
        spikes *= total / spikes.sum()
        return Spectrum(Q, spikes, np.full_like(self.floor, self.floor.mean()))

    # --------------------------------------------------------------------- block rounds
    def read_block(self, S, std, tilt, sampling, n_tasks):
        """What a release S (d, d) of `sum_of_blocks` in `basis` says.

        `std`, `tilt` and `sampling` are as of `of`. -> step (d, rank), towards which the directions
        move, up to its length; E (d, j), further directions that stand out; their sizes (j,)
        """
        k, B = self.rank, self.basis
        values, R = np.linalg.eigh(S[:k, :k])
        values = np.maximum(values, _LEAST * max(values.mean(), 1e-9))
        step = B[:, k:] @ (S[k:, :k] @ (R / values) @ R.T)
        if len(S) - k <= 2:
            return step, B[:, :0], np.empty(0)
        P, spikes, _ = shrunk_spectrum(S[k:, k:], std, n_tasks / 2.0, tilt, 0.5 * sampling)
        out = spikes > 0
        return step, B[:, k:] @ P[:, out], spikes[out]


def in_blocks(W, rank):
    """Models (n, d) or (n, C, d) in a basis: each block of length 1 / sqrt(2), or 0.

    Under a sharp prior what a model has outside of the subspace is a small multiple of the score
    of its residual: its length says nothing, and its correlation with the part inside is the error
    of the subspace.
    """
    both = directions(W[..., :rank]), directions(W[..., rank:])
    return np.concatenate(both, axis=-1) / np.sqrt(2.0)


def sum_of_blocks(contributions, positions=None):
    """Sum of u u' of vectors, each scaled down to length 1; one that is not finite counts as 0.

    u u' is positive semi-definite with trace at most 1, as in a second moment of directions:
    sensitivity sqrt(2) for replace-one, 1 for zero-out, in Frobenius norm.
    """
    U = np.array(contributions["block"], dtype=float)
    clip_rows(U, 1.0)
    return {"block": U.T @ U}
