"""Fits of FedMTL that were cut off, and servers that ended in the middle of one."""

import os
import signal

import numpy as np
import pytest

from skpmtl import FedMTLClassifier
from skpmtl.fedmtl import make_fedmtl_clients, secure, training

X, Y, CLIENT = make_fedmtl_clients(n_clients=4, n_tasks=2, n_samples=20, random_state=0)


def network(**settings):
    settings = {"n_rounds": 4, **settings}
    return FedMTLClassifier(hidden_layer_sizes=(4,), random_state=0, **settings)


def cut_off(monkeypatch, est, rounds, **given):
    """A fit that is interrupted after so many rounds."""
    scores, count = training.training_scores, iter(range(rounds + 1))

    def interrupted(*arguments):
        if next(count) == rounds:
            raise KeyboardInterrupt
        return scores(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "training_scores", interrupted)
        est.fit(X, Y, client=CLIENT, **given)


def test_a_fit_that_was_cut_off_goes_on(monkeypatch, tmp_path):
    whole, est = network().fit(X, Y, client=CLIENT), network()
    cut_off(monkeypatch, est, 2, journal=tmp_path)
    assert not hasattr(est, "clients_")
    scores, rounds = training.training_scores, []
    monkeypatch.setattr(training, "training_scores", lambda *a: rounds.append(0) or scores(*a))
    est.fit(X, Y, client=CLIENT, journal=tmp_path)
    assert len(rounds) == 2  # the others are those of the journal
    np.testing.assert_array_equal(est._models_.theta, whole._models_.theta)
    np.testing.assert_array_equal(est.similarity_, whole.similarity_)
    for name, values in whole.history_.items():
        np.testing.assert_array_equal(est.history_[name], values)
    assert {path.stat().st_mode & 0o77 for path in tmp_path.iterdir()} <= {0} or os.name == "nt"


def test_an_interrupted_second_fit_leaves_the_first(monkeypatch):
    est = network().fit(X, Y, client=CLIENT)
    first = est.predict(X, client=CLIENT)
    cut_off(monkeypatch, est.set_params(learning_rate=0.1), 1)
    np.testing.assert_array_equal(est.predict(X, client=CLIENT), first)


def test_a_journal_is_of_one_fit(tmp_path):
    network().fit(X, Y, client=CLIENT, journal=tmp_path)
    for est, rows in ((network(alpha=0.1), X), (network(), X + 1.0)):
        with pytest.raises(ValueError, match="journal of another fit"):
            est.fit(rows, Y, client=CLIENT, journal=tmp_path)
    (tmp_path / "round.npz").write_bytes(b"half")
    with pytest.raises(ValueError, match="is damaged"):
        network().fit(X, Y, client=CLIENT, journal=tmp_path)


def test_servers_that_ended_are_started_again(monkeypatch):
    pytest.importorskip("cryptography", reason="needs the extra skpmtl[secure]")
    given = {"aggregation": "similarity", "threshold": 0.4, "n_rounds": 2}
    plain = network(**given).fit(X, Y, client=CLIENT)
    aggregate, killed = secure.SecureServers.aggregate, []

    def struck(servers, *arguments, **settings):
        if servers.processes and not killed:  # in the second round
            killed.append(servers.processes[1].pid)
            os.kill(killed[0], signal.SIGTERM)
            servers.processes[1].wait()
        return aggregate(servers, *arguments, **settings)

    monkeypatch.setattr(secure.SecureServers, "aggregate", struck)
    est = network(secure=True, n_servers=2, **given).fit(X, Y, client=CLIENT)
    assert killed
    np.testing.assert_allclose(est._models_.theta, plain._models_.theta, rtol=0, atol=1e-3)
