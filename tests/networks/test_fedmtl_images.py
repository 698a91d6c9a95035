"""FedMTL with convolutions that clients share, in secret shares."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from skpmtl import FedMTLClassifier

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")


def trunk(channels=(2, 3), width=5):
    """The layers of LeNet before its scores, for images of 8 x 8."""
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, channels[0], 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(channels[0], channels[1], 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * channels[1], width),
        torch.nn.ReLU(),
    )


def clients(n_clients, n_rows, seed=0):
    """Digits of clients; tasks: is it odd, is it above four. Every third client has one alone."""
    X, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    pick = rng.permutation(len(X))[: n_clients * n_rows]
    client = np.repeat(np.arange(n_clients), n_rows)
    Y = np.column_stack([digit % 2, digit > 4])[pick].astype(float)
    Y[client % 3 == 0, 1] = np.nan
    return X[pick] / 16, Y, client


def test_secret_shares_give_the_same_convolutions():
    pytest.importorskip("cryptography", reason="needs the extra skpmtl[secure]")
    X, Y, client = clients(3, 30)
    given = {"module": trunk, "n_rounds": 1, "aggregation": "similarity", "random_state": 0}
    plain = FedMTLClassifier(threshold=0.3, **given).fit(X, Y, client=client)
    off = ~np.eye(3, dtype=bool)
    assert abs(plain.similarity_[off] - 0.3).min() > 1e-5
    secret = FedMTLClassifier(threshold=0.3, secure=True, **given).fit(X, Y, client=client)
    for ours, theirs in zip(
        secret.predict_proba(X, client=client), plain.predict_proba(X, client=client), strict=True
    ):
        assert_allclose(ours, theirs, rtol=0, atol=1e-3)
    assert secret.similarity_ is None
