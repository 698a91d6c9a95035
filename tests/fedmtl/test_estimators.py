"""FedMTL estimators: forms of input, predictions, reports, errors."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score, r2_score

from skpmtl import FedMTLClassifier, FedMTLRegressor

SETS = {"anna": "ab", "ben": "bc", "cleo": "abc", "dan": "ab", "eve": "c"}


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
    keyword = quick(kind, hidden_layer_sizes=6).fit(X, Y, client=client)  # as (6,)
    assert_array_equal(outputs(keyword, X, client=client), expected)
    assert_array_equal(
        outputs(keyword, X.astype(np.float32), client=list(client)).shape, expected.shape
    )
    mixed = frame.to_numpy()  # objects
    for position in (2, -3):
        by_position = quick(kind, client_feature=position).fit(mixed, Y.to_numpy())
        assert_array_equal(outputs(by_position, mixed), expected)
        assert_array_equal(by_position.task_names_, [0, 1, 2])
    numbers = np.unique(client, return_inverse=True)[1]
    coded = quick(kind, client_feature=2).fit(np.insert(X, 2, numbers, axis=1), Y)
    by_number = quick(kind).fit(X, Y, client=numbers)  # other ids have other batches
    assert_array_equal(
        outputs(coded, np.insert(X, 2, numbers, axis=1)), outputs(by_number, X, client=numbers)
    )
    assert_array_equal(coded.clients_, range(5))
    series = quick(kind, hidden_layer_sizes=[6])
    series.fit(X, Y, client=pd.Series(client, dtype="category"))
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
        ["no", "yes"],
        ["low", "mid", "top"],
        ["in", "out"],
    ]
    found = wide.predict(frame)
    assert_array_equal(pd.isna(found), Y.isna())
    assert set(found[:, 2]) == {None, "in", "out"}
    assert 0 < wide.score(frame, texts) <= 1


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
    assert "NO differential privacy" in report.text(None)
    assert report.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("settings", "package", "extra"),
    [
        ({"module": lambda: None}, "torch", r"\[torch\]"),
        ({"secure": True, "aggregation": "similarity"}, "cryptography", r"\[secure\]"),
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
    pytest.importorskip("cryptography", reason="needs the extra skpmtl[secure]")
    frame, Y, client = data("real")
    few = np.isin(client, ["anna", "ben", "dan"])
    given = {
        "client_feature": "client",
        "aggregation": "similarity",
        "threshold": 0.3,
        "hidden_layer_sizes": (2,),
        "n_rounds": 1,
    }
    plain = quick("real", **given).fit(frame[few], Y[few])
    off = ~np.eye(3, dtype=bool)
    assert abs(plain.similarity_[off] - 0.3).min() > 1e-5
    servers = {"n_servers": 2, "max_heads": 3, "max_size": 1000}
    secret = quick("real", secure=True, **servers, **given).fit(frame[few], Y[few])
    assert_allclose(outputs(secret, frame[few]), outputs(plain, frame[few]), rtol=1e-4, atol=1e-4)
    assert all(secret.history_[name].shape == (1,) for name in ("cpu_seconds", "megabytes"))
    assert secret.similarity_ is None
    assert secret.privacy_.guarantee == "none"
    assert "servers" in secret.privacy_.text(None)
    with pytest.raises(ValueError, match="secure=True"):
        secret.personalize(frame[~few], Y[~few])


def small_trunk():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU())


@pytest.mark.parametrize("kind", ["class", "real"])
def test_torch_module(kind):
    torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
    frame, Y, client = data(kind)
    est = quick(kind, client_feature="client", module=small_trunk, n_rounds=8)
    before = torch.random.get_rng_state()
    first = outputs(est.fit(frame, Y), frame)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert est.history_["loss"][-1] < est.history_["loss"][0]
    assert_array_equal(outputs(pickle.loads(pickle.dumps(est)), frame), first)
    assert_array_equal(outputs(clone(est).fit(frame, Y), frame), first)
    old = client != "cleo"
    est.fit(frame[old], Y[old])
    first = outputs(est, frame[old])
    est.personalize(frame[~old], Y[~old])
    assert_array_equal(outputs(est, frame[old]), first)
    assert np.isfinite(est.predict(frame[~old])).all()
    for bad, error, message in [
        (lambda: torch.nn.Unflatten(1, (2, 2)), ValueError, "Flatten"),
        (lambda: "net", TypeError, "str"),
    ]:
        with pytest.raises(error, match=message):
            est.set_params(module=bad).fit(frame, Y)
        assert not hasattr(est, "clients_")


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
    ("changes", "message"),
    [
        ({"X": with_cell(3, 1, np.nan)}, "NaN.*row 3.*column 1"),
        ({"client": lambda c: c[:-1]}, "one id for each"),
        ({"client": lambda c: [None, *c[1:]]}, "Client id missing.*position 0"),
        ({"y": unlabelled}, "'ben'"),
        ({"y": lambda Y: Y.assign(c=np.inf)}, "infinity.*'c'"),
        ({"y": lambda Y: Y.assign(c=np.nan)}, "'c'"),
        ({"y": lambda Y: Y.assign(a=Y["a"] * 0 + 7)}, "'a'.*one class"),
        ({"y": lambda Y: Y.set_axis(["a", "b", "b"], axis=1)}, "'b'"),
        ({"task": ["a"] * 7}, "task"),
    ],
)
def test_bad_data_are_named_and_nothing_is_fitted(changes, message):
    est = quick().fit(**changed())
    with pytest.raises(ValueError, match=message):
        est.fit(**changed(**changes))
    assert [name for name in vars(est) if name.endswith("_")] == []


@pytest.mark.parametrize("kind", ["wide", "long", "personalize"])
def test_a_task_of_one_class_is_no_error(kind):
    """It has the classes of the tasks that have its own, and is sure of that one."""
    frame, Y, client = data()
    if kind == "long":
        row, column = np.nonzero(Y.notna().to_numpy())
        task, y = Y.columns.to_numpy()[column], Y.to_numpy()[row, column]
        X, client = features(frame)[row], client[row]
        y = np.where(task == "a", 1.0, y)
        est = quick(n_rounds=30).fit(X, y, client=client, task=task)
        p = est.predict_proba(X, client=client, task=task)[task == "a"]
        assert est.classes_.tolist() == [0.0, 1.0, 2.0]
    else:
        X, Y = features(frame), Y.assign(a=Y["a"] * 0 + 1)
        est = quick(n_rounds=30).fit(X, Y, client=client)
        assert [own.tolist() for own in est.classes_] == [[0, 1, 2], [0, 1, 2], [0, 1]]
        p = est.predict_proba(X, client=client)[0]
        p = p[~np.isnan(p[:, 0])]
        if kind == "personalize":  # clients that come later bring what the fit has not seen
            before = est.predict(X, client=client)
            est.personalize(X, Y.assign(a=Y["a"] * 0), client=np.array(["zoe"] * len(X)))
            np.testing.assert_array_equal(est.predict(X, client=client), before)
    assert p.shape[1] == 3 and (p[:, 1] > 0.5).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"threshold": 1.5}, "threshold.*1.5"),
        ({"threshold": ("geometric", 0.5)}, "threshold"),
        ({"n_rounds": 0}, "'n_rounds'.*0"),
        ({"secure": True}, "secure=True.*per-task"),
        ({"client_feature": "shop"}, "client_feature='shop' is not a column"),
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
        ({"X": with_cell(1, 2, np.nan)(X[:2]), "client": ["ben", "ben"]}, "NaN.*row 1"),
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


def far_from_order_one(features, targets, offset=0.0):
    rng = np.random.default_rng(0)
    X, client = rng.normal(size=(240, 4)), np.repeat(range(6), 40)
    Y = X @ rng.normal(size=(4, 2)) + 0.3 * rng.normal(size=(240, 2))
    Y[client == 2, 0] = np.nan
    Y[:, 1] = offset + targets * Y[:, 1]  # the other task is as it should be
    return X * features, Y, client


@pytest.mark.parametrize(
    ("scale", "tasks"),
    [((1, 1e-4), r"\[1\]"), ((1, 1.0, 30.0), r"\[1\]"), ((1e4, 1.0), r"\[0, 1\]")],
)
def test_targets_and_features_of_another_scale_are_warned_about(scale, tasks):
    """Adam hides a wrong scale: nothing overflows, and nothing is learned."""
    X, Y, client = far_from_order_one(*scale)
    est = FedMTLRegressor(random_state=0)
    with pytest.warns(ConvergenceWarning, match=f"{tasks} were not learned.*order one"):
        est.fit(X, Y, client=client)
    mean = np.nanmean(Y, axis=0)
    known = ~np.isnan(Y)
    error = np.where(known, est.predict(X, client=client) - Y, 0.0)
    assert np.sum(error[:, 1] ** 2) > 0.9 * np.sum((Y[:, 1] - mean[1]) ** 2)


def test_other_fits_are_not_warned_about():
    X, Y, client = far_from_order_one(1, 1.0)
    assert FedMTLRegressor(random_state=0).fit(X, Y, client=client).score(X, Y, client=client) > 0.9
    noise = np.random.default_rng(1).normal(size=Y.shape)  # nothing can be learned: no fault
    FedMTLRegressor(n_rounds=1, random_state=0).fit(X, noise, client=client)
    constant = np.where(np.isnan(Y), np.nan, 1e3)
    FedMTLRegressor(n_rounds=1, random_state=0).fit(X, constant, client=client)


def test_a_column_of_clients_that_nobody_named_is_recognised():
    frame, Y, _ = data()
    frame = frame.astype({"client": object})
    with pytest.raises(ValueError, match="holds the client or the task.*client_feature or task"):
        quick().fit(frame, Y)
    frame = frame.assign(outcome="a").astype({"outcome": object})
    with pytest.raises(ValueError, match="holds the task, give its name as task_feature"):
        quick(client_feature="client").fit(frame, Y["a"].fillna(0))
