"""Methods that FedMTL is compared with, as functions of whole models of clients.

A whole model is only to be compared with one of the same heads: each of these methods works among
the clients with the same set of tasks, like the other baselines.
"""

from dataclasses import replace

import numpy as np

from ..tables.assignment import shuffled
from .network import BatchLoss

__all__ = ["BASELINES", "PERSONAL", "WHOLE_MODELS", "attention", "coupled", "first_order_weights"]

# Methods whose clients keep their own models, and are regularised towards what the server sends.
PERSONAL = ("pfedme", "fedamp", "mocha")
BASELINES = ("local", "fedavg", "fedprox", *PERSONAL, "fedfomo")
WHOLE_MODELS = ("fedamp", "mocha", "fedfomo")  # which no average of layers stands for


def groups_of(heads):
    """Positions of the clients of every set of tasks."""
    sets = {}
    for i, row in enumerate(heads.slots.tolist()):
        sets.setdefault(tuple(row), []).append(i)
    return [np.array(own) for own in sets.values()]


def _squared_distances(W):
    square = np.einsum("ij,ij->i", W, W)
    return np.maximum(square[:, None] + square - 2.0 * (W @ W.T), 0.0)


def attention(W, scale):
    """FedAMP's cloud models of a group, (n, P) like the models W.

    The server's step of Y. Huang et al., "Personalized cross-silo federated learning on non-IID
    data", AAAI 2021 (arXiv:2007.03797): u_i = sum_j xi_ij w_j, xi_ij = alpha A'(||w_i - w_j||^2)
    for j other than i, the rest of 1 for i itself, with A(x) = 1 - exp(-x / sigma). sigma is
    `scale` times the mean squared distance in the group, and alpha the largest step that leaves
    all weights non-negative. (PFLlib has the same weights with fixed sigma and alpha, and takes
    the distance instead of its square.)
    """
    n, D = len(W), _squared_distances(W)
    mean = D.sum() / max(n * (n - 1), 1)
    if mean == 0.0:  # one client, or all the same
        return W.copy()
    xi = np.exp(-D / (scale * mean))
    np.fill_diagonal(xi, 0.0)
    xi /= max(xi.sum(axis=1).max(), 1e-300)
    np.fill_diagonal(xi, 1.0 - xi.sum(axis=1))
    return xi @ W


def coupled(W):
    """Where MOCHA's coupling draws the models of a group, (n, P).

    The penalty of V. Smith et al., "Federated multi-task learning", NIPS 2017, as the authors'
    program ``run_mocha.m`` has it (github.com/gingsmith/fmtl, where W has clients in columns, this
    Omega is ``Sigma``, and the loss is that of a linear SVM): lambda / 2 tr(W' Omega^-1 W) with
    Omega = (W W')^(1/2) / trace, here with one client in every row. Clients go by its slope at the
    models of the round, lambda (w_i - c_i) with c_i = w_i - sum_j (Omega^-1)_ij w_j. Omega^-1 is
    divided by its largest eigenvalue, so that lambda is the largest strength.
    """
    values, U = np.linalg.eigh(W @ W.T)
    root = np.sqrt(np.maximum(values, 0.0))
    if root[-1] == 0.0 or len(W) == 1:
        return W.copy()
    root = np.maximum(root, 1e-3 * root[-1])  # models that are nearly the same
    inverse = root.min() / root
    return W - (U * inverse) @ (U.T @ W)


def split_rows(table, fraction, seed):
    """Training and validation rows of every client, of which it keeps one each. -> two tables

    A client with one row has it in both.
    """
    codes, sizes = np.repeat(np.arange(table.n_clients), table.sizes), table.sizes
    count = np.clip(np.round(fraction * sizes), 1, np.maximum(sizes - 1, 1))
    place = np.arange(len(codes)) - np.repeat(table.offsets[:-1], sizes)
    held = np.zeros(len(codes), dtype=bool)
    held[shuffled(codes, table.clients, seed)] = place < np.repeat(count, sizes)
    single = np.repeat(table.sizes == 1, table.sizes)
    return _rows(table, ~held | single), _rows(table, held)


def _rows(table, keep):
    starts = np.concatenate([[0], np.cumsum(keep)])
    weights = None if table.weights is None else table.weights[keep]
    return replace(
        table, X=table.X[keep], Y=table.Y[keep], offsets=starts[table.offsets], weights=weights
    )


def first_order_weights(network, before, uploads, table, heads):
    """FedFomo's models, (N, n_parameters).

    Eqs. 4 and 5 of M. Zhang et al., "Personalized federated learning with first order model
    optimization", ICLR 2021: client i goes from its model of the last round by
    sum_n w_n (theta_n - theta_i), w_n = max(0, (L_i(theta_i) - L_i(theta_n)) / ||theta_n -
    theta_i||), divided by their sum; L_i is the loss on its validation rows. A client whom no
    model helps stays where it was. All clients with the same tasks are candidates, itself included
    (M = n, epsilon = 0), and theta_i is what the client began the round with, as
    ``compute_fomo_weights`` of the authors' program (github.com/NVlabs/FedFomo) has it with the
    model before local training as its baseline.
    """
    out = before.copy()
    for group in groups_of(heads):
        for i in group:
            rows = slice(table.offsets[i], table.offsets[i + 1])
            models = np.vstack([before[i : i + 1], uploads[group]])
            losses = _losses(network, models, table.X[rows], table.Y[rows], heads, i)
            moves = models[1:] - before[i]
            far = np.linalg.norm(moves, axis=1)
            gains = np.maximum(losses[0] - losses[1:], 0.0) / np.where(far > 0, far, 1.0)
            if gains.sum() > 0:
                out[i] += (gains / gains.sum()) @ moves
    return out


def _losses(network, models, X, Y, heads, client):
    loss = BatchLoss(heads.take(np.array([client])))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.array(
            [loss.derivative(network.scores(model[None], X[None]), Y[None])[1] for model in models]
        )
    return np.where(np.isfinite(found), found, np.finfo(float).max / 4)
