"""FedMTL with convolutions that clients share, in the clear and in secret shares."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from skpmtl import FedMTLClassifier

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")


def lenet(channels=(6, 16), width=84):
    """The layers of LeNet-5 before its scores, for images of 8 x 8."""
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


def tiny():
    return lenet((2, 3), 5)


def clients(n_clients, n_rows, seed=0):
    """Digits of clients; tasks: is it odd, is it above four. Every third client has one alone."""
    X, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    pick = rng.permutation(len(X))[: n_clients * n_rows]
    client = np.repeat(np.arange(n_clients), n_rows)
    Y = np.column_stack([digit % 2, digit > 4])[pick].astype(float)
    Y[client % 3 == 0, 1] = np.nan
    return X[pick] / 16, Y, client


def test_convolutions_are_shared_in_the_clear():
    X, Y, client = clients(6, 120)
    train = np.arange(len(X)) % 4 > 0
    scores = {}
    for rule in ("local", "per-task"):
        est = FedMTLClassifier(
            module=lenet,
            n_rounds=10,
            local_epochs=3,
            random_state=0,
            aggregation=rule,
            learning_rate=0.005,
        )
        est.fit(X[train], Y[train], client=client[train])
        scores[rule] = est.score(X[~train], Y[~train], client=client[~train])
        assert est.history_["loss"][-1] < 0.7 * est.history_["loss"][0]
    assert min(scores.values()) > 0.7, scores


@pytest.mark.parametrize("shared", [tiny, pytest.param(lenet, marks=pytest.mark.slow)])
def test_secret_shares_give_the_same_convolutions(shared):
    pytest.importorskip("cryptography", reason="needs the extra skpmtl[secure]")
    X, Y, client = clients(3, 30)
    given = {"module": shared, "n_rounds": 1, "aggregation": "similarity", "random_state": 0}
    plain = FedMTLClassifier(threshold=0.3, **given).fit(X, Y, client=client)
    off = ~np.eye(3, dtype=bool)
    assert abs(plain.similarity_[off] - 0.3).min() > 1e-5
    secret = FedMTLClassifier(threshold=0.3, secure=True, **given).fit(X, Y, client=client)
    for ours, theirs in zip(
        secret.predict_proba(X, client=client), plain.predict_proba(X, client=client), strict=True
    ):
        assert_allclose(ours, theirs, rtol=0, atol=1e-3)
    assert secret.similarity_ is None
