"""FedMTL estimators: forms of input, rounds, baselines, new clients, errors."""

import logging
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_fedmtl_aggregation import reference

from benchmarks.reproduce import fedmtl as reproduce
from skpmtl import FedMTLClassifier, FedMTLRegressor
from skpmtl.tasks import SingleTaskWarning

RULES = ["per-task", "similarity", "uniform", "shared-only", "heads-by-similarity", "jaccard"]
BASELINES = ["exact-match", "local", "fedavg", "fedprox", "pfedme"]
SETS = {"anna": "ab", "ben": "bc", "cleo": "abc", "dan": "ab", "eve": "c"}


@pytest.mark.filterwarnings("ignore::skpmtl.tasks.SingleTaskWarning")
@parametrize_with_checks(
    [
        FedMTLClassifier(n_rounds=5, learning_rate=0.1, batch_size=16),
        FedMTLRegressor(n_rounds=5, learning_rate=0.1, batch_size=16),
        FedMTLRegressor((), n_rounds=10, solver="sgd", learning_rate=0.02),
    ]
)
def test_scikit_learn_suite(estimator, check):
    check(estimator)


def data(kind="class", rows=(20, 33), d=4, seed=0, full=False):
    """-> frame of features with the column "client", frame of labels with NaN, client ids.

    Tasks "a" (two classes), "b" (three), "c" (two) of the clients in `SETS`, rows mixed.
    """
    rng = np.random.default_rng(seed)
    client = rng.permutation(np.repeat(list(SETS), rng.integers(*rows, len(SETS))))
    X = rng.normal(size=(len(client), d))
    H = np.tanh(X @ rng.normal(size=(d, 5)))
    Y = {}
    for k, task in enumerate("abc"):
        z = H @ rng.normal(size=(5, 3)) + 0.2 * rng.normal(size=(len(X), 3))
        y = z[:, 0] if kind == "real" else z.argmax(axis=1) if k == 1 else z[:, 0] > 0.2
        has = np.array([task in SETS[name] for name in client])
        has &= full or rng.random(len(X)) < 0.8
        Y[task] = np.where(has, y, np.nan)
    names = [f"x{j}" for j in range(d)]
    frame = pd.DataFrame(X, columns=names)
    frame.insert(2, "client", client)
    return frame, pd.DataFrame(Y), client


def features(frame):
    return frame.drop(columns="client").to_numpy()


def quick(kind="class", **settings):
    settings = {"hidden_layer_sizes": (6,), "n_rounds": 3, "random_state": 0, **settings}
    return (FedMTLRegressor if kind == "real" else FedMTLClassifier)(**settings)


def outputs(est, frame, **given):
    """All numbers that a fitted estimator predicts, as one array."""
    if isinstance(est, FedMTLRegressor):
        return est.predict(frame, **given)
    p = est.predict_proba(frame, **given)
    return np.hstack(p) if isinstance(p, list) else p


# --------------------------------------------------------------------- forms of input
@pytest.mark.parametrize("kind", ["class", "real"])
def test_forms_of_the_client_column(kind):
    frame, Y, client = data(kind)
    est = quick(kind, client_feature="client").fit(frame, Y)
    expected = outputs(est, frame)
    assert list(est.clients_) == sorted(SETS)
    assert list(est.task_names_) == ["a", "b", "c"]
    assert est.n_features_in_ == 5 and list(est.feature_names_in_)[2] == "client"
    assert est.n_iter_ == 3
    X = features(frame)
    keyword = quick(kind).fit(X, Y, client=client)
    assert_array_equal(outputs(keyword, X, client=client), expected)
    assert_array_equal(outputs(keyword, X.astype(np.float32), client=list(client)).shape,
                       expected.shape)  # fmt: skip
    mixed = frame.to_numpy()  # objects
    for position in (2, -3):
        by_position = quick(kind, client_feature=position).fit(mixed, Y.to_numpy())
        assert_array_equal(outputs(by_position, mixed), expected)
        assert_array_equal(by_position.task_names_, [0, 1, 2])
    numbers = np.unique(client, return_inverse=True)[1]
    coded = quick(kind, client_feature=2).fit(np.insert(X, 2, numbers, axis=1), Y)
    assert_array_equal(outputs(coded, np.insert(X, 2, numbers, axis=1)), expected)
    assert_array_equal(coded.clients_, range(5))
    series = quick(kind).fit(X, Y, client=pd.Series(client, dtype="category"))
    assert_array_equal(outputs(series, X, client=client), expected)


@pytest.mark.parametrize("kind", ["class", "real"])
def test_wide_predictions_have_no_value_for_tasks_of_others(kind):
    frame, Y, client = data(kind)
    est = quick(kind, client_feature="client").fit(frame, Y)
    predicted = est.predict(frame)
    assert predicted.shape == Y.shape
    lacks = np.array([[task not in SETS[name] for task in "abc"] for name in client])
    assert_array_equal(np.isnan(predicted), lacks)
    known = Y.notna().to_numpy()
    pairs = Y.to_numpy()[known], predicted[known]
    if kind == "real":
        assert est.score(frame, Y) == pytest.approx(r2_score(*pairs), rel=1e-12)
        mse = np.mean((pairs[0] - pairs[1]) ** 2)
        assert est.history_["mse"][-1] == pytest.approx(mse, rel=1e-10)
        return
    assert est.score(frame, Y) == accuracy_score(*pairs)
    assert est.history_["accuracy"][-1] == pytest.approx(est.score(frame, Y), rel=1e-12)
    proba = est.predict_proba(frame)
    assert [p.shape[1] for p in proba] == [2, 3, 2]
    for k, p in enumerate(proba):
        assert_array_equal(np.isnan(p).any(axis=1), lacks[:, k])
        assert_allclose(p[~lacks[:, k]].sum(axis=1), 1, rtol=1e-12)
        assert_array_equal(est.classes_[k], range(3 if k == 1 else 2))
        assert_array_equal(p[~lacks[:, k]].argmax(axis=1), predicted[~lacks[:, k], k])
    assert_array_equal(est.predict(frame.iloc[:1]), predicted[:1])  # one row, one client


def test_long_form():
    frame, Y, client = data()
    row, column = np.nonzero(Y.notna().to_numpy())
    task, y = np.array(list("abc"))[column], Y.to_numpy()[row, column].astype(int)
    long = frame.iloc[row].assign(task=task)
    est = quick(client_feature="client", task_feature="task").fit(long, y)
    assert list(est.task_names_) == ["a", "b", "c"]
    assert_array_equal(est.classes_, [0, 1, 2])  # of all tasks
    predicted = est.predict(long)
    assert predicted.shape == y.shape and predicted.dtype == y.dtype
    assert est.score(long, y) == accuracy_score(y, predicted) > 0.4
    p = est.predict_proba(long)
    assert p.shape == (len(y), 3)
    assert_array_equal(p[task != "b", 2], 0.0)  # a and c have no third class
    assert_array_equal(p.argmax(axis=1), predicted)
    assert_allclose(p.sum(axis=1), 1)
    X = features(frame)[row]
    keyword = quick().fit(X, y, client=client[row], task=task)
    assert_array_equal(keyword.predict_proba(X, client=client[row], task=task), p)
    # Any task that the client has may be asked for, in any row; others may not.
    ben = {"client": ["ben"] * 2, "task": ["b", "c"]}
    pair = keyword.predict_proba(X[:2], **ben)
    alone = keyword.predict_proba(X[:1], client=["ben"], task=["b"])
    assert_allclose(pair[:1], alone, rtol=1e-14)
    with pytest.raises(ValueError, match="'ben'.*'a'"):
        keyword.predict(X[:1], client=["ben"], task=["a"])
    with pytest.raises(ValueError, match="Unknown tasks.*'z'"):
        keyword.predict(X[:1], client=["ben"], task=["z"])
    with pytest.raises(ValueError, match="task="):
        keyword.predict(X[:1], client=["ben"])


@pytest.mark.parametrize("kind", ["class", "real"])
def test_long_and_wide_forms_are_one_problem(kind):
    """With all labels known and all rows in a batch, the loss is the same; so are the averages
    when every client has two rows of the long form for one of the wide."""
    frame, Y, client = data(kind, full=True)
    two = np.array([len(SETS[name]) == 2 for name in client])
    frame, Y, client = frame[two], Y[two], client[two]
    settings = {"batch_size": 1000, "solver": "sgd", "learning_rate": 0.2}
    wide = quick(kind, client_feature="client", **settings).fit(frame, Y)
    row, column = np.nonzero(Y.notna().to_numpy())
    y = Y.to_numpy()[row, column]
    task = np.array(list("abc"))[column]
    X = features(frame)[row]
    long = quick(kind, **settings).fit(X, y, client=client[row], task=task)
    if kind == "real":
        expected = wide.predict(frame)[row, column]
        found = long.predict(X, client=client[row], task=task)
    else:
        expected = np.array([wide.predict_proba(frame)[k][i, 1] for i, k in zip(row, column)])  # noqa: B905
        found = long.predict_proba(X, client=client[row], task=task)[:, 1]
    assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert_allclose(long.similarity_, wide.similarity_, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["class", "real"])
def test_order_of_rows_and_columns_does_not_matter_to_full_batches(kind):
    frame, Y, client = data(kind)
    settings = {"batch_size": 1000, "solver": "sgd", "learning_rate": 0.2}
    est = quick(kind, client_feature="client", **settings).fit(frame, Y)
    order = np.random.default_rng(1).permutation(len(frame))
    other = quick(kind, client_feature="client", **settings).fit(frame.iloc[order], Y.iloc[order])
    expected = outputs(est, frame)
    assert_allclose(outputs(other, frame), expected, rtol=0, atol=1e-10)
    assert_allclose(outputs(other, frame.iloc[order]), expected[order], rtol=0, atol=1e-10)


def test_one_task_and_labels_of_any_type():
    frame, Y, client = data(full=True)
    X = features(frame)
    b = Y["b"].notna().to_numpy()
    codes = Y["b"][b].astype(int).to_numpy()
    names = np.array(["low", "mid", "top"])
    est = quick(n_rounds=30).fit(X[b], names[codes], client=client[b])
    plain = quick(n_rounds=30).fit(X[b], codes, client=client[b])
    assert_array_equal(est.classes_, names)
    predicted = est.predict(X[b], client=client[b])
    assert_array_equal(predicted, names[plain.predict(X[b], client=client[b])])
    assert est.score(X[b], names[codes], client=client[b]) > 0.6
    texts = Y.astype(object).where(Y.notna(), None)
    for k, (no, yes) in {"a": ("no", "yes"), "c": ("out", "in")}.items():
        texts[k] = [None if v is None else (no, yes)[int(v)] for v in texts[k]]
    texts["b"] = [None if v is None else names[int(v)] for v in texts["b"]]
    wide = quick(client_feature="client").fit(frame, texts)
    assert [list(own) for own in wide.classes_] == [
        ["no", "yes"], ["low", "mid", "top"], ["in", "out"]
    ]  # fmt: skip
    found = wide.predict(frame)
    assert_array_equal(pd.isna(found), Y.isna())
    assert set(found[:, 2]) == {None, "in", "out"}
    assert 0 < wide.score(frame, texts) <= 1


def test_one_client_is_warned_about():
    frame, Y, _ = data(full=True)
    with pytest.warns(SingleTaskWarning, match="client="):
        est = quick().fit(features(frame), Y["b"].fillna(0))
    assert est.clients_.shape == (1,)
    assert est.predict(features(frame)).shape == (len(frame),)


# ----------------------------------------------------------------- rounds and averages
def linear_models(est, d, clients, n_tasks):
    """Coefficients and intercepts of networks without activation, from their predictions."""
    probe = np.vstack([np.zeros(d), np.eye(d)])
    parts = []
    for name in clients:
        values = est.predict(probe, client=[name] * (d + 1)).reshape(d + 1, n_tasks)
        parts.append(np.vstack([values[1:] - values[0], values[0]]))
    return np.array(parts)


def test_fedavg_of_one_full_batch_step_is_descent_on_all_rows():
    """From the second round on all clients start equal, and the mean of their steps, weighted by
    rows, is the step of the pooled loss."""
    rng = np.random.default_rng(0)
    client = np.repeat(["a", "b", "c"], [10, 25, 40])
    X = rng.normal(size=(75, 3))
    Y = X @ rng.normal(size=(3, 2)) + 0.3
    settings = {"solver": "sgd", "momentum": 0.0, "learning_rate": 0.1, "batch_size": 100}
    Z = np.column_stack([X, np.ones(75)])
    for rule in ("fedavg", "uniform", "exact-match", "jaccard"):
        models = []
        for n_rounds in (1, 2, 3):
            est = quick("real", hidden_layer_sizes=(), aggregation=rule, n_rounds=n_rounds,
                        alpha=0.0, **settings)  # fmt: skip
            est.fit(X, Y, client=client)
            models.append(linear_models(est, 3, "abc", 2))
            assert_allclose(models[-1], models[-1][:1].repeat(3, axis=0), rtol=0, atol=1e-12)
            assert_array_equal(est.similarity_, np.ones((3, 3)))
        for before, after in zip(models, models[1:], strict=False):
            slope = Z.T @ (Z @ before[0] - Y) / 75
            assert_allclose(after[0], before[0] - 0.1 * slope, rtol=0, atol=1e-12)


def test_penalty_is_on_weights_only():
    rng = np.random.default_rng(0)
    X, client = rng.normal(size=(40, 3)), np.repeat([1, 2], 20)
    Y = X[:, :2] + 2.0
    models = []
    for n_rounds in (1, 2):
        est = quick("real", hidden_layer_sizes=(), aggregation="uniform", n_rounds=n_rounds,
                    alpha=0.7, solver="sgd", momentum=0.0, learning_rate=0.1, batch_size=100)
        models.append(linear_models(est.fit(X, Y, client=client), 3, (1, 2), 2)[0])
    Z = np.column_stack([X, np.ones(40)])
    slope = Z.T @ (Z @ models[0] - Y) / 40
    slope[:3] += 0.7 * models[0][:3]
    assert_allclose(models[1], models[0] - 0.1 * slope, rtol=0, atol=1e-12)


@pytest.mark.parametrize("aggregation", [r for r in [*RULES, *BASELINES] if "fed" not in r])
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


@pytest.mark.parametrize("kind", ["class", "real"])
def test_fedprox(kind):
    frame, Y, _ = data(kind)
    given = {"client_feature": "client", "n_rounds": 4, "batch_size": 4}
    plain = quick(kind, aggregation="fedavg", **given).fit(frame, Y)
    free = quick(kind, aggregation="fedprox", proximal_strength=0.0, **given).fit(frame, Y)
    assert_array_equal(outputs(free, frame), outputs(plain, frame))
    assert_array_equal(
        outputs(quick(kind, aggregation="exact-match", **given).fit(frame, Y), frame),
        outputs(plain, frame),
    )
    near = quick(kind, aggregation="fedprox", proximal_strength=1.0, **given).fit(frame, Y)
    assert np.nanmax(abs(outputs(near, frame) - outputs(plain, frame))) > 1e-3


def test_pfedme_keeps_personal_models_near_the_average():
    """anna and dan have equal tasks: the stronger the pull, the nearer they are."""
    frame, Y, _ = data("real")
    anna = frame.assign(client="anna").drop(columns="client").to_numpy()
    apart = []
    for strength in (0.0, 1.0, 10.0):
        est = quick("real", aggregation="pfedme", proximal_strength=strength, n_rounds=15,
                    solver="sgd", learning_rate=0.02, momentum=0.0).fit(
            features(frame), Y, client=frame["client"])  # fmt: skip
        first, second = (
            est.predict(anna, client=[name] * len(anna))[:, :2] for name in ("anna", "dan")
        )
        apart.append(np.abs(first - second).mean())
    assert apart[0] > apart[1] > apart[2] > 0
    local = quick("real", aggregation="local", n_rounds=15, solver="sgd", learning_rate=0.02,
                  momentum=0.0).fit(features(frame), Y, client=frame["client"])  # fmt: skip
    free = clone(local).set_params(aggregation="pfedme", proximal_strength=0.0)
    free.fit(features(frame), Y, client=frame["client"])
    given = {"client": frame["client"]}
    assert_array_equal(outputs(free, features(frame), **given),
                       outputs(local, features(frame), **given))  # fmt: skip


@pytest.mark.parametrize("aggregation", [*RULES, *BASELINES])
def test_who_hears_of_whom(aggregation):
    """Changed labels of eve (task c) reach others only as the rule says."""
    frame, Y, client = data("real")
    other = Y.copy()
    other.loc[client == "eve", "c"] *= -3.0
    first, second = (
        quick("real", client_feature="client", aggregation=aggregation, threshold=0.0, n_rounds=2)
        .fit(frame, labels).predict(frame)
        for labels in (Y, other)
    )  # fmt: skip
    change = np.nan_to_num(abs(first - second))
    reached = {name for name in SETS if change[client == name].max() > 1e-9}
    alone = aggregation in BASELINES  # eve's set of tasks is nobody else's
    assert reached == ({"eve"} if alone else set(SETS))


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


def test_a_threshold_of_one_leaves_everybody_alone():
    frame, Y, _ = data("real")
    paper = quick("real", client_feature="client", aggregation="similarity", threshold=1.0)
    local = quick("real", client_feature="client", aggregation="local")
    assert_allclose(
        outputs(paper.fit(frame, Y), frame), outputs(local.fit(frame, Y), frame), atol=1e-12
    )
    assert_array_equal(local.similarity_, np.eye(5))
    loose = quick("real", client_feature="client", aggregation="similarity", threshold=0.0)
    assert np.nanmax(abs(outputs(loose.fit(frame, Y), frame) - outputs(local, frame))) > 1e-3


@pytest.mark.parametrize("hidden", [(), 5, (5,), (6, 4), [3]])
@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_sizes_of_the_network(hidden, solver):
    frame, Y, _ = data()
    est = quick(hidden_layer_sizes=hidden, client_feature="client", solver=solver)
    before = est.get_params()
    assert 0.3 < est.fit(frame, Y).score(frame, Y) <= 1
    assert est.get_params() == before


def test_clients_with_conflicting_labels_are_told_apart():
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
        .fit(X, Y, **given).score(X, Y, **given)
        for rule in ("per-task", "uniform")
    }  # fmt: skip
    assert scores["per-task"] > 0.95
    assert scores["uniform"] < 0.7


# ------------------------------------------------------------------------ new clients
@pytest.mark.parametrize("aggregation", [*RULES, *BASELINES])
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
    # Close to a member from the beginning.
    rows = np.concatenate([np.flatnonzero(old), new])
    member = quick(n_rounds=15).fit(X[rows], Y[rows], client=client[rows])
    assert joined > member.score(X[test], Y[test], client=client[test]) - 0.1


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


def test_personalize_without_the_others_clients_order():
    """New ids sort before, between and after the old ones."""
    frame, Y, client = data("real")
    est = quick("real", client_feature="client").fit(frame, Y)
    rename = {"anna": "aaron", "dan": "zoe"}
    part = np.isin(client, list(rename))
    named = frame[part].assign(client=[rename[name] for name in client[part]])
    before = outputs(est, frame)
    est.personalize(named, Y[part])
    assert list(est.clients_) == sorted([*SETS, *rename.values()])
    assert_array_equal(outputs(est, frame), before)
    assert np.isfinite(est.predict(named)[:, :2]).all()


def test_personalize_refuses_and_leaves_the_estimator_as_it_was():
    frame, Y, client = data()
    est = quick(client_feature="client").fit(frame, Y)
    before, models = outputs(est, frame), pickle.dumps(est)
    new = frame[client == "ben"].assign(client="new")
    labels = Y[client == "ben"]
    for X, y, message in [
        (new, labels.rename(columns={"c": "z"}), "Unknown tasks.*'z'"),
        (new, labels.assign(b=7.0), "7"),
        (new, labels * np.nan, "'new'"),
        (new.assign(x1=np.nan), labels, "NaN.*'new'.*'x1'"),
        (new.drop(columns="x3"), labels, "x3"),
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


# ------------------------------------------------------------------- tools and reports
def test_clone_pickle_and_seeds():
    frame, Y, _ = data()
    est = quick(client_feature="client", random_state=3)
    first = outputs(est.fit(frame, Y), frame)
    assert_array_equal(outputs(pickle.loads(pickle.dumps(est)), frame), first)
    copy = clone(est)
    with pytest.raises(NotFittedError):
        copy.predict(frame)
    assert_array_equal(outputs(copy.fit(frame, Y), frame), first)
    assert np.nanmax(abs(outputs(est.set_params(random_state=4).fit(frame, Y), frame) - first)) > 0
    for seed in (np.random.default_rng(1), None):
        assert np.isfinite(est.set_params(random_state=seed).fit(frame, Y).history_["loss"]).all()
    pair = [
        outputs(clone(est).set_params(random_state=np.random.RandomState(5)).fit(frame, Y), frame)
        for _ in range(2)
    ]
    assert_array_equal(*pair)


def test_report_says_that_there_is_no_guarantee():
    frame, Y, _ = data()
    report = quick(client_feature="client").fit(frame, Y).privacy_
    assert report.guarantee == "none" and report.epsilon == np.inf
    assert "NO differential privacy" in str(report)
    assert report.from_json(report.to_json()) == report


def test_progress_is_logged(caplog):
    frame, Y, _ = data()
    with caplog.at_level(logging.INFO, logger="skpmtl"):
        quick(client_feature="client").fit(frame, Y)
        assert caplog.messages == []
        quick(client_feature="client", verbose=1).fit(frame, Y)
    assert len(caplog.messages) == 3
    assert "round 3 of 3" in caplog.messages[-1] and "accuracy" in caplog.messages[-1]


def test_heat_map_of_similarities():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from skpmtl.inspection import ClientSimilarityDisplay

    frame, Y, _ = data()
    est = quick(client_feature="client").fit(frame, Y)
    display = ClientSimilarityDisplay.from_estimator(est)
    (image,) = display.ax_.images
    shown = np.asarray(image.get_array())
    names = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert sorted(names) == sorted(SETS)
    order = [list(est.clients_).index(name) for name in names]
    assert_allclose(shown, est.similarity_[np.ix_(order, order)])
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == names
    assert display.figure_ is display.ax_.figure
    _, ax = pyplot.subplots()
    part = ClientSimilarityDisplay.from_estimator(est, ax=ax, order=[3, 0], colorbar=False)
    assert part.ax_ is ax and len(ax.figure.axes) == 1
    assert_allclose(ax.images[0].get_array(), est.similarity_[np.ix_([3, 0], [3, 0])])
    with pytest.raises(NotFittedError):
        ClientSimilarityDisplay.from_estimator(quick())
    est.similarity_ = None  # as after secure="mpc"
    with pytest.raises(ValueError, match="mpc"):
        ClientSimilarityDisplay.from_estimator(est)
    pyplot.close("all")


def test_optional_packages_are_not_imported():
    code = (
        "import sys, numpy as np, skpmtl, skpmtl.fedmtl, skpmtl.inspection\n"
        "X = np.random.default_rng(0).normal(size=(20, 2))\n"
        "skpmtl.FedMTLRegressor(n_rounds=1).fit(X, X, client=[0, 1] * 10)\n"
        "found = {'torch', 'mpyc', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("settings", "package", "extra"),
    [
        ({"module": lambda: None}, "torch", r"\[torch\]"),
        ({"secure": "mpc", "aggregation": "similarity"}, "mpyc", r"\[mpc\]"),
    ],
)
def test_missing_extras_are_named(settings, package, extra, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    frame, Y, _ = data()
    est = quick(client_feature="client", **settings)
    with pytest.raises(ImportError, match=extra):
        est.fit(frame, Y)
    assert [name for name in vars(est) if name.endswith("_")] == []


def test_secure_aggregation_gives_the_same_models():
    pytest.importorskip("mpyc", reason="needs the extra skpmtl[mpc]")
    frame, Y, client = data("real")
    few = np.isin(client, ["anna", "ben", "dan"])
    given = {"client_feature": "client", "aggregation": "similarity", "threshold": 0.3,
             "hidden_layer_sizes": (2,), "n_rounds": 1}  # fmt: skip
    plain = quick("real", **given).fit(frame[few], Y[few])
    off = ~np.eye(3, dtype=bool)
    assert abs(plain.similarity_[off] - 0.3).min() > 1e-5
    secret = quick("real", secure="mpc", **given).fit(frame[few], Y[few])
    assert_allclose(outputs(secret, frame[few]), outputs(plain, frame[few]), rtol=1e-3, atol=1e-3)
    assert secret.similarity_ is None
    assert secret.privacy_.guarantee == "none"
    assert "servers" in str(secret.privacy_)
    with pytest.raises(ValueError, match="mpc"):
        secret.personalize(frame[~few], Y[~few])


# ------------------------------------------------------------------------------ errors
def changed(**changes):
    frame, Y, client = data()
    given = {"X": features(frame), "y": Y, "client": client}
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return given


def with_cell(row, column, value):
    def change(values):
        values = values.copy()
        values[row, column] = value
        return values

    return change


def unlabelled(Y):
    return Y.mask(np.repeat((data()[2] == "ben")[:, None], 3, axis=1))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"X": with_cell(3, 1, np.nan)}, ValueError, "NaN.*row 3.*column 1"),
        ({"X": with_cell(3, 1, np.inf)}, ValueError, r"infinity.*row 3.*column 1"),
        ({"X": lambda X: X[:-1]}, ValueError, "."),
        ({"X": lambda X: X[0]}, ValueError, "2D|2-D"),
        ({"client": lambda c: c[:-1]}, ValueError, "one id for each"),
        ({"client": lambda c: [None, *c[1:]]}, ValueError, "Client id missing.*position 0"),
        ({"client": lambda c: c[:, None].repeat(2, axis=1)}, (ValueError, TypeError), "."),
        ({"y": unlabelled}, ValueError, "'ben'"),
        ({"y": lambda Y: Y.assign(c=np.nan)}, ValueError, "'c'"),
        ({"y": lambda Y: Y.assign(a=Y["a"] * 0)}, ValueError, "'a'.*one class"),
        ({"y": lambda Y: Y.assign(a=Y["a"] + 0.25)}, ValueError, "continuous|Unknown label"),
        ({"y": lambda Y: Y.set_axis(["a", "b", "b"], axis=1)}, ValueError, "'b'"),
        ({"y": None}, ValueError, "y"),
        ({"y": lambda Y: Y.to_numpy()[:, :, None]}, ValueError, "dim|shape"),
        ({"task": ["a"] * 7}, ValueError, "task"),
    ],
)
def test_bad_data_are_named_and_nothing_is_fitted(changes, error, message):
    est = quick().fit(**changed())
    with pytest.raises(error, match=message):
        est.fit(**changed(**changes))
    assert [name for name in vars(est) if name.endswith("_")] == []


def test_infinite_targets_are_refused():
    frame, Y, _ = data("real")
    Y.iloc[4, 1] = np.inf
    with pytest.raises(ValueError, match="infinity.*row 4.*'b'"):
        quick("real", client_feature="client").fit(frame, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (3.5,)}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": -1}, "hidden_layer_sizes"),
        ({"activation": "softsign"}, "'activation'.*'softsign'"),
        ({"threshold": 1.5}, "threshold.*1.5"),
        ({"threshold": (0.5, 1.5)}, "threshold.*1.5"),
        ({"threshold": (0.5, 0.6, 0.7)}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"n_rounds": 0}, "'n_rounds'.*0"),
        ({"local_epochs": 0}, "'local_epochs'"),
        ({"batch_size": 0}, "'batch_size'"),
        ({"learning_rate": 0.0}, "'learning_rate'"),
        ({"momentum": 1.0}, "'momentum'"),
        ({"alpha": -1.0}, "'alpha'"),
        ({"solver": "lbfgs"}, "'solver'"),
        ({"aggregation": "median"}, "'aggregation'.*'median'"),
        ({"proximal_strength": -1.0}, "'proximal_strength'"),
        ({"secure": "yes"}, "'secure'.*'yes'"),
        ({"secure": "mpc"}, 'secure="mpc".*per-task'),
        ({"secure": "mpc", "aggregation": "local"}, 'secure="mpc".*local'),
        ({"random_state": "seed"}, "'random_state'"),
        ({"client_feature": "shop"}, "client_feature='shop' is not a column"),
        ({"client_feature": 9}, "client_feature=9 is outside"),
        ({"client_feature": "client", "task_feature": "client"}, "same column"),
    ],
)
def test_bad_parameters_are_found_in_fit(settings, message):
    frame, Y, _ = data()
    est = quick(**{"client_feature": "client", **settings})
    with pytest.raises(ValueError, match=message):
        est.fit(frame, Y)
    assert [name for name in vars(est) if name.endswith("_")] == []


def test_bad_rows_to_predict_are_named():
    frame, Y, client = data()
    X = features(frame)
    est = quick().fit(X, Y, client=client)
    for given, message in [
        ({"X": X[:2], "client": ["ben", "zed"]}, "Unknown clients.*'zed'"),
        ({"X": X[:2]}, "client="),
        ({"X": X[:2, :3], "client": ["ben", "ben"]}, "3 features.*4 features"),
        ({"X": with_cell(1, 2, np.nan)(X[:2]), "client": ["ben", "ben"]}, "NaN.*row 1"),
        ({"X": X[:2], "client": ["ben"]}, "one id for each"),
        ({"X": X[:2], "client": ["ben"] * 2, "task": ["a"] * 2}, "without task="),
    ]:
        with pytest.raises(ValueError, match=message):
            est.predict(**given)
    with pytest.raises(TypeError, match="Client ids"):
        est.predict(X[:2], client=[1, 2])
    wrong = Y.copy()
    wrong.loc[client == "eve", "a"] = 1.0
    with pytest.raises(ValueError, match="do not have"):
        est.score(X, wrong, client=client)


def test_training_that_diverges_is_reported():
    frame, Y, _ = data("real")
    est = quick("real", client_feature="client", solver="sgd", learning_rate=1e6, n_rounds=20)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="diverged.*learning_rate"):
        est.fit(frame, Y)
    assert not hasattr(est, "clients_")


# --------------------------------------------------------------------------- scenarios
@pytest.mark.slow
@pytest.mark.parametrize("scenario", reproduce.SCENARIOS)
def test_scores_of_the_scenarios(scenario):
    """The paper's rule as in the prototype, the per-task rule beside the best of all rules."""
    rows = {row["method"]: row for row in reproduce.measure(repeats=5, only=scenario)}
    mean = {method: row["mean"] for method, row in rows.items()}
    assert len(mean) == len(reproduce.METHODS)
    paper = "similarity, .75-.95"
    assert mean[paper] == pytest.approx(rows[paper]["prototype"], abs=0.01)
    assert mean["per-task"] >= max(mean.values()) - 0.005
    assert mean["per-task"] > mean["local"] + 0.05


def test_tasks_by_position():
    y = np.array([[np.nan, 1, 2], [np.nan, np.nan, 0], [3, np.nan, np.nan], [4, np.nan, np.nan]])
    expected = [[1, 2], [np.nan, 0], [3, np.nan], [4, np.nan]]
    assert_array_equal(reproduce.by_position(y, np.array([5, 5, 7, 7])), expected)
