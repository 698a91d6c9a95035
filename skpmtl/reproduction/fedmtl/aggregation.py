"""Sections 3 and 4.2 of the paper, equation by equation: from uploads to personalised models.

Equations are numbered as in the paper. A head is what the paper calls a task layer.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["VERSIONS", "Upload", "aggregate", "cosines", "h_score", "similarity", "thresholded"]


@dataclass(frozen=True)
class Upload:
    """What client i sends.

    Parameters
    ----------
    shared : ndarray (ds,)
        W_i^S.
    heads : ndarray (K_i, dt)
        W_i^T.
    tasks : list of int
        U_i, in the order of the heads: the mapping M_i.
    size : int
        D_i, rows of training.
    threshold : float
        Z_i of this round.
    """

    shared: np.ndarray
    heads: np.ndarray
    tasks: list
    size: int
    threshold: float


def cosines(heads, others):
    """A_ij of equation 4, (K_i, K_j); 0 for a head of zeros."""
    length = np.linalg.norm(heads, axis=1)[:, None] * np.linalg.norm(others, axis=1)
    return heads @ others.T / np.where(length > 0, length, 1.0)


def h_score(A):
    """H_ij of equation 5: the value of the best one-to-one matching of heads.

    Negative cosines count as 0, so that S_ij is in [0, 1], as the paper has it.
    """
    gain = np.maximum(A, 0.0)
    return float(gain[linear_sum_assignment(gain, maximize=True)].sum())


def similarity(uploads):
    """S of equation 6, (N, N): H_ij / K_i. A client is similar to itself, S_ii = 1."""
    K = np.array([len(u.tasks) for u in uploads])
    W = np.concatenate([u.heads for u in uploads])
    A = cosines(W, W)  # of all pairs of clients at once
    ends = np.cumsum(K)
    of = [slice(end - count, end) for end, count in zip(ends, K, strict=True)]
    S = np.eye(len(K))
    for i, own in enumerate(of):
        for j in range(i + 1, len(K)):
            H = h_score(A[own, of[j]])
            S[i, j], S[j, i] = H / K[i], H / K[j]
    return S


def thresholded(S, Z):
    """Equation 7: 0 where S_ij is below Z_i."""
    return np.where(np.asarray(Z)[:, None] > S, 0.0, S)


def aggregate(uploads, scores, head_scores):
    """Equations 8 and 2 with `scores`, 9 and 3 with `head_scores`, both (N, N).

    Returns
    -------
    shared : ndarray (N, ds)
        W_i^S*.
    heads : list of ndarray (K_i, dt)
        W_i^T*.
    """
    D = np.array([u.size for u in uploads], dtype=float)
    p = scores * D  # (8)
    shared = p @ np.stack([u.shared for u in uploads]) / p.sum(axis=1, keepdims=True)  # (2)
    heads = [np.empty_like(u.heads) for u in uploads]
    places = {}
    for i, u in enumerate(uploads):
        for place, k in enumerate(u.tasks):
            places.setdefault(k, []).append((i, place))
    for having in places.values():  # the clients with T_k in U_j
        i = [client for client, _ in having]
        q = head_scores[np.ix_(i, i)] * D[i]  # (9)
        W = np.stack([uploads[j].heads[place] for j, place in having])
        found = q @ W / q.sum(axis=1, keepdims=True)  # (3)
        for row, (j, place) in zip(found, having, strict=True):
            heads[j][place] = row
    return shared, heads


# ----------------------------------------------------- section 7.2, the versions of figure 8
def _ones(uploads):
    return np.ones((len(uploads), len(uploads)))


def _similar(uploads):
    return thresholded(similarity(uploads), [u.threshold for u in uploads])


def _jaccard(uploads):
    sets = [set(u.tasks) for u in uploads]
    return np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])


def _fedmtl(uploads):
    S = _similar(uploads)
    return S, S


def _x(uploads):
    return _ones(uploads), np.eye(len(uploads))


def _g(uploads):
    return _ones(uploads), _ones(uploads)


def _t(uploads):
    return _ones(uploads), _similar(uploads)


def _j(uploads):
    J = _jaccard(uploads)
    return J, J


def _e(uploads):
    E = (_jaccard(uploads) == 1.0).astype(float)
    return E, E


# Scores of equation 8 and of equation 9. FedMTL-Z is "fedmtl" with a threshold that stays.
VERSIONS = {
    "fedmtl": _fedmtl,
    "fedmtl-x": _x,
    "fedmtl-g": _g,
    "fedmtl-t": _t,
    "fedmtl-j": _j,
    "fedmtl-e": _e,
}
