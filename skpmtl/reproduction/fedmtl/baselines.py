"""What servers do in the methods of Table 3, on whole models: rows of W (n, size).

The paper takes them from PFLlib, where all clients have one architecture: the first heads of all
clients are one layer, whatever their tasks are, and so are the second ones ("position").
"""

import numpy as np

__all__ = ["BASELINES", "GLOBAL", "PERSONAL", "attention", "coupled", "mean_model", "mixture"]

GLOBAL = ("fedavg", "fedprox", "pfedme")  # one model for all clients of a group
PERSONAL = ("mocha", "fedamp")  # clients keep their models, the server sends what pulls them
BASELINES = (*GLOBAL, *PERSONAL, "fedfomo", "local")


def mean_model(W, D):
    """FedAvg (McMahan et al., 2017): the mean with the weights D (n,)."""
    return D @ W / D.sum()


def attention(W, scale):
    """FedAMP (Huang et al., AAAI 2021): u_i = sum_j xi_ij w_j.

    xi_ij = alpha A'(|w_i - w_j|^2) for j other than i with A(x) = 1 - exp(-x / sigma), and the rest
    of 1 for i itself. sigma is `scale` times the mean squared distance, and alpha the largest for
    which no weight is negative.
    """
    n, square = len(W), np.einsum("ij,ij->i", W, W)
    distance = np.maximum(square[:, None] + square - 2.0 * (W @ W.T), 0.0)
    sigma = scale * distance.sum() / max(n * (n - 1), 1)
    xi = np.exp(-distance / sigma) if sigma > 0 else np.ones((n, n))
    np.fill_diagonal(xi, 0.0)
    xi /= max(xi.sum(axis=1).max(), 1e-300)
    np.fill_diagonal(xi, 1.0 - xi.sum(axis=1))
    return xi @ W


def coupled(W):
    """MOCHA (Smith et al., NIPS 2017): where the slope of its penalty pulls the models.

    The penalty is lambda / 2 tr(W' Omega^-1 W), here with a client in every row, Omega =
    (W W')^(1/2) over its trace, and Omega^-1 divided by its largest eigenvalue. Clients take it
    linearised at the models of the round: its slope is lambda (w_i - c_i), and c_i is returned.
    """
    values, U = np.linalg.eigh(W @ W.T)
    root = np.sqrt(np.maximum(values, 0.0))
    if root[-1] == 0.0 or len(W) == 1:
        return W.copy()
    root = np.maximum(root, 1e-3 * root[-1])
    return W - (U * (root.min() / root)) @ (U.T @ W)


def mixture(before, own, candidates, loss):
    """FedFomo (Zhang et al., ICLR 2021), equations 4 and 5, at a client.

    Weights max(0, (L(before) - L(theta_n)) / |theta_n - before|), L on the validation rows of the
    client. Where no model helps, its own trained one, `own`, stays.

    Returns
    -------
    model : ndarray (size,)
    weights : ndarray (M,)
    """
    at = loss(before)
    moves = candidates - before
    far = np.linalg.norm(moves, axis=1)
    gains = np.array([max(0.0, at - loss(theta)) for theta in candidates])
    weights = gains / np.where(far > 0, far, 1.0)
    if not weights.sum() > 0:
        return own, weights
    return before + weights / weights.sum() @ moves, weights
