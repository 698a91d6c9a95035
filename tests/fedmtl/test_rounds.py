"""FedMTL estimators: what a round does under every rule, new clients, the drawn scenarios."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial import cKDTree
from sklearn.exceptions import NotFittedError

from skpmtl import FedMTLClassifier, FedMTLRegressor
from skpmtl.fedmtl import make_fedmtl_clients
from tests.fedmtl.test_aggregation import reference
from tests.fedmtl.test_estimators import SETS, data, features, outputs, quick

RULES = ["per-task", "similarity", "uniform", "local"]


# ----------------------------------------------------------------- rounds and averages
def linear_models(est, d, clients, n_tasks):
    """Coefficients and intercepts of networks without activation, from their predictions."""
    probe = np.vstack([np.zeros(d), np.eye(d)])
    parts = []
    for name in clients:
        values = est.predict(probe, client=[name] * (d + 1)).reshape(d + 1, n_tasks)
        parts.append(np.vstack([values[1:] - values[0], values[0]]))
    return np.array(parts)


@pytest.mark.parametrize("aggregation", RULES)
def test_a_round_is_local_training_and_the_aggregate(aggregation):
    """From equal seeds, local models after a round and the plain reference give the models of
    every rule: linear heads on the features, no shared layers."""
    frame, Y, client = data("real", full=True)
    X = features(frame)
    settings = {"hidden_layer_sizes": (), "n_rounds": 1, "threshold": 0.3}
    local = quick("real", aggregation="local", **settings).fit(X, Y, client=client)
    est = quick("real", aggregation=aggregation, **settings).fit(X, Y, client=client)
    own = linear_models(local, 4, sorted(SETS), 3)
    ids = [list(SETS[name]) for name in sorted(SETS)]
    heads = [[own[i, :, "abc".index(k)] for k in tasks] for i, tasks in enumerate(ids)]
    sizes = np.array([(client == name).sum() for name in sorted(SETS)])
    if aggregation != "local":
        _, heads, S = reference(np.zeros((5, 1)), heads, ids, sizes, 0.3, aggregation)
        assert_allclose(est.similarity_, S, rtol=0, atol=1e-9)
    found = linear_models(est, 4, sorted(SETS), 3)
    for i, tasks in enumerate(ids):
        for s, k in enumerate(tasks):
            assert_allclose(found[i, :, "abc".index(k)], heads[i][s], rtol=0, atol=1e-9)


def test_thresholds_rise_linearly_and_history_is_by_round():
    frame, Y, _ = data()
    est = quick(client_feature="client", n_rounds=5).fit(frame, Y)
    assert_allclose(est.history_["threshold"], [0.75, 0.8, 0.85, 0.9, 0.95], rtol=1e-12)
    assert set(est.history_) == {"threshold", "loss", "accuracy"}
    assert all(len(values) == 5 for values in est.history_.values())
    fixed = quick("real", client_feature="client", threshold=0.4).fit(frame, Y)
    assert_array_equal(fixed.history_["threshold"], 0.4)
    assert set(fixed.history_) == {"threshold", "loss", "mse"}
    long = quick(client_feature="client", n_rounds=40).fit(frame, Y)
    assert long.history_["loss"][-1] < 0.7 * long.history_["loss"][0]
    assert long.history_["accuracy"][-1] > long.history_["accuracy"][0]


def test_clients_with_conflicting_labels_are_distinguished():
    """Two domains, the labels of one turned round: the per-task gate keeps them apart, the plain
    mean cannot."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(12), 40)
    X = rng.normal(size=(480, 5))
    Y = (X @ rng.normal(size=(5, 2)) > 0).astype(float)
    Y[client % 2 == 1] = 1 - Y[client % 2 == 1]
    given = {"client": client}
    scores = {
        rule: FedMTLClassifier(aggregation=rule, batch_size=8, random_state=0)
        .fit(X, Y, **given)
        .score(X, Y, **given)
        for rule in ("per-task", "uniform")
    }
    assert scores["per-task"] > 0.95
    assert scores["uniform"] < 0.7


# ------------------------------------------------------------------------ new clients
@pytest.mark.parametrize("aggregation", RULES)
@pytest.mark.parametrize("kind", ["class", "real"])
def test_a_new_client_changes_nobody_else(aggregation, kind):
    frame, Y, client = data(kind)
    old = client != "cleo"
    est = quick(kind, client_feature="client", aggregation=aggregation).fit(frame[old], Y[old])
    before, history = outputs(est, frame[old]), est.history_["loss"].copy()
    with pytest.raises(ValueError, match="Unknown clients.*'cleo'.*personalize"):
        est.predict(frame)
    small = est.similarity_.copy()
    assert est.personalize(frame[~old], Y[~old]) is est
    assert_array_equal(outputs(est, frame[old]), before)
    assert_array_equal(est.history_["loss"], history)
    assert list(est.clients_) == sorted(SETS)
    assert est.similarity_.shape == (5, 5)
    stay = np.flatnonzero(est.clients_ != "cleo")
    if aggregation != "per-task":  # there, pairs without a common task have the mean of all
        assert_allclose(est.similarity_[np.ix_(stay, stay)], small, rtol=0, atol=1e-10)
    assert_array_equal(np.diag(est.similarity_), 1.0)
    new = est.predict(frame[~old])
    assert np.isfinite(new).all()  # cleo has all three tasks
    known = Y[~old].notna().to_numpy()
    if kind == "class":
        assert est.score(frame[~old], Y[~old]) == np.mean((new == Y[~old].to_numpy())[known])


def test_a_new_client_gains_from_the_others():
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(15), 40)
    X = rng.normal(size=(600, 8))
    Y = (np.tanh(X @ rng.normal(size=(8, 6))) @ rng.normal(size=(6, 3)) > 0).astype(float)
    old, new = client < 14, np.flatnonzero(client == 14)[:12]
    test = np.flatnonzero(client == 14)[12:]
    est = quick(n_rounds=15).fit(X[old], Y[old], client=client[old])
    est.personalize(X[new], Y[new], client=client[new])
    joined = est.score(X[test], Y[test], client=client[test])
    alone = quick(n_rounds=15, aggregation="local").fit(X[new], Y[new], client=client[new])
    assert joined > alone.score(X[test], Y[test], client=client[test])


def test_personalize_replaces_and_knows_a_part_of_the_tasks():
    frame, Y, client = data()
    est = quick(client_feature="client").fit(frame, Y)
    before = outputs(est, frame)
    part = client == "cleo"
    est.personalize(frame[part], Y.loc[part, ["c", "b"]])
    assert_array_equal(outputs(est, frame[~part]), before[~part])
    predicted = est.predict(frame[part])
    assert np.isnan(predicted[:, 0]).all() and np.isfinite(predicted[:, 1:]).all()
    assert list(est.clients_) == sorted(SETS)


def test_personalize_refuses_and_leaves_the_estimator_as_it_was():
    frame, Y, client = data()
    est = quick(client_feature="client").fit(frame, Y)
    before, models = outputs(est, frame), pickle.dumps(est)
    new = frame[client == "ben"].assign(client="new")
    labels = Y[client == "ben"]
    for X, y, message in [
        (new, labels.rename(columns={"c": "z"}), "Unknown tasks.*'z'"),
        (new, labels.assign(b=7.0), "Task 'b'.*not among the classes"),
        (new.assign(x1=np.nan), labels, "NaN.*'new'.*'x1'"),
        (frame, Y, "no others"),
        (new, labels["b"], "2-D"),
    ]:
        with pytest.raises(ValueError, match=message):
            est.personalize(X, y)
        assert_array_equal(outputs(est, frame), before)
        assert list(est.clients_) == sorted(SETS)
    assert_array_equal(outputs(pickle.loads(models), frame), before)
    with pytest.raises(NotFittedError):
        quick().personalize(frame, Y)


# --------------------------------------------------------------------------- scenarios
@pytest.mark.parametrize("way", [1, 3, 8, "pairs", "any"])
def test_drawn_clients(way):
    X, y, client, X_test, y_test, client_test = made = make_fedmtl_clients(
        30, 25, tasks_per_client=way, n_domains=2, n_test=9, random_state=3
    )
    assert X.shape == (750, 12) and y.shape == (750, 8) and X_test.shape == (270, 12)
    assert_array_equal(client, np.repeat(np.arange(30), 25))
    assert_array_equal(client_test, np.repeat(np.arange(30), 9))
    counts = set()
    for i in range(30):
        has = ~np.isnan(y[client == i])
        assert (has == has[0]).all()  # a row has all labels of its client
        assert_array_equal(~np.isnan(y_test[client_test == i][0]), has[0])
        tasks = np.flatnonzero(has[0])
        counts.add(len(tasks))
        if way == "pairs":
            assert tasks[0] % 2 == 0 and tasks[1] == tasks[0] + 1
    assert (
        counts == {way}
        if isinstance(way, int)
        else counts == {2}
        if way == "pairs"
        else (min(counts) == 1 and max(counts) == 8)
    )
    assert set(y[~np.isnan(y)]) == set(range(5))
    means = np.array([X[client % 2 == domain].mean(axis=0) for domain in (0, 1)])
    assert_allclose(np.sqrt((means**2).mean(axis=1)), 0.57, atol=0.05)  # `shift`
    again = make_fedmtl_clients(30, 25, tasks_per_client=way, n_domains=2, n_test=9, random_state=3)
    for first, second in zip(made, again, strict=True):
        assert_array_equal(first, second)


def test_a_diverged_client_does_not_reach_the_others():
    """Parameters of 1e60 are finite, and their averages are nobody's model."""
    rng = np.random.default_rng(0)
    X, client = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    X[client == 1] *= 1e5
    y = X @ [1.0, -1.0]
    est = FedMTLRegressor(
        (),
        solver="sgd",
        momentum=0.0,
        learning_rate=0.1,
        n_rounds=1,
        local_epochs=6,
        aggregation="uniform",
        random_state=0,
    )
    with pytest.raises(ValueError, match="training of client 1 diverged in round 1: .*2.53"):
        est.fit(X, y, client=client)
    assert not hasattr(est, "clients_")


def test_correlated_domains_agree_the_more():
    def agreement(correlation):  # of a client's labels with those of the nearest rows of the other
        X, y, client = make_fedmtl_clients(
            2,
            2000,
            3,
            n_tasks=1,
            n_classes=3,
            tasks_per_client=1,
            n_domains=2,
            shift=0.0,
            noise=0.0,
            n_hidden=4,
            correlation=correlation,
            random_state=3,
        )
        near = cKDTree(X[client == 0]).query(X[client == 1])[1]
        return np.mean(y[client == 0][near] == y[client == 1])

    found = [agreement(correlation) for correlation in (0.0, 0.5, 0.95, 1.0)]
    assert found == sorted(found) and found[0] < 0.5 and found[-1] > 0.9
    with pytest.raises(ValueError, match="correlation=1.5"):
        make_fedmtl_clients(correlation=1.5)
