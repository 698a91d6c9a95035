"""Billboards in files: forms of the input, features, labels, other estimators, damage."""

import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import skpmtl
from skpmtl import (
    DPMetaInit,
    MPMTLGroupSparse,
    MPMTLLowRank,
    PerTask,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    load_billboard,
    networks,
    save_billboard,
)
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.exchange.files import estimators
from skpmtl.exchange.wire import LARGEST, _check_field, check_arrays, check_billboard, pack, unpack
from tests.helpers.cases import EXACT, FIRST
from tests.helpers.data import about_one_model
from tests.helpers.tiny_ridge import TinyRidge

from ..helpers.public import NAMES, public

SEED = {"random_state": 0}
MEAN_UNSEEN = PrivateMeanRegMTL(epsilon=60.0, unseen_task="mean", **SEED)


def rows(n_tasks=36, n_features=4, seed=0):
    """Rows of length at most 1, scores, tasks "t0", ...; the last 6 tasks are the new ones."""
    sizes = np.random.default_rng(seed).integers(12, 20, n_tasks)
    X, score, task = about_one_model(n_tasks, sizes, n_features, noise=0.2, seed=seed)
    length = np.maximum(np.linalg.norm(X, axis=1), 1.0)
    X, score = X / length[:, None], score / length
    old = task < n_tasks - 6
    ids = np.char.add("t", task.astype(str))
    return X, score, ids, old


def labels(score, n_classes):
    cuts = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return np.array(["high", "low", "middle"])[np.searchsorted(cuts, score)]


_FITTED = {}  # pickled: every test has its own copy


def fitted(est, n_classes):
    X, y, task, old = rows()
    y = labels(y, n_classes) if n_classes else y
    if id(est) not in _FITTED:
        _FITTED[id(est)] = est, pickle.dumps(clone(est).fit(X[old], y[old], task=task[old]))
    return pickle.loads(_FITTED[id(est)][1]), X, y, task, old


def assert_same(found, expected):
    """Equal but for the last bits, which depend on where in memory an array begins."""
    assert found.shape == expected.shape
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def roundtrip(est, tmp_path):
    save_billboard(est, tmp_path / "board.npz")
    return load_billboard(tmp_path / "board.npz")


# ------------------------------------------------------------------------ forms of the input
def frames(school_like):
    table, y = school_like(n_tasks=24)
    old = (table["school"] < "s018").to_numpy()
    return table, y, old


def test_column_of_a_frame(school_like, tmp_path):
    table, y, old = frames(school_like)
    est = MPMTLLowRank(epsilon=60.0, task_feature="school", unseen_task="mean", **SEED)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        est.fit(table[old], y[old])
    there = roundtrip(est, tmp_path)
    # the mean model is there before any task; the column of tasks may be anywhere
    moved = table[~old][["x0", "x1", "x2", "x3", "school"]]
    assert_same(there.predict(moved), est.predict(table[~old]))
    assert there.score(moved, y[~old]) == pytest.approx(est.score(table[~old], y[~old]), rel=1e-9)
    assert not hasattr(there, "n_features_in_")
    est.personalize(table[~old], y[~old])
    there.personalize(moved, y[~old])
    assert_same(there.predict(moved), est.predict(table[~old]))
    assert there.feature_names_in_.tolist() == list(moved)
    assert there.n_features_in_ == 5
    here, other = there.export_task("s020"), est.export_task("s020")
    assert_same(here["coef"], other["coef"])
    assert here["feature_names"] == other["feature_names"] == ["x0", "x1", "x2", "x3"]
    save_billboard(there, tmp_path / "copy.npz")
    other = load_billboard(tmp_path / "copy.npz")
    other.personalize(table[~old], y[~old])
    assert_same(other.coef_, there.coef_)


# ------------------------------------------------------------------------- without any task
def device(tmp_path, **params):
    X, y, task, old = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = MPMTLLowRank(**{"epsilon": 60.0, **SEED, **params}).fit(
            pd.DataFrame(X[old], columns=list("abcd")), y[old], task=task[old]
        )
    new = ~old
    return roundtrip(est, tmp_path), pd.DataFrame(X[new], columns=list("abcd")), y[new], task[new]


def test_no_prediction_before_the_first_task(tmp_path):
    there, X, y, task = device(tmp_path)
    for call in (there.predict, lambda X, task: there.score(X, y, task=task)):
        with pytest.raises(NotFittedError, match=r"has no task yet: call personalize\(X, y, "):
            call(X, task=task)
    with pytest.raises(ValueError, match="has no model here"):
        there.export_task("t31")
    there, X, y, task = device(tmp_path, unseen_task="mean")
    with pytest.raises(NotFittedError, match="personalize"):
        there.predict(X)  # which tasks?
    assert there.predict(X, task=task).shape == y.shape
    by_mean = there.predict({"new": X})["new"]
    with pytest.warns(UserWarning, match="X has no feature names"):
        assert_same(there.predict({"new": sparse.csr_matrix(X)})["new"], by_mean)
    # the exact billboard has no mean model, whatever unseen_task says
    there, X, y, task = device(tmp_path, unseen_task="mean", epsilon=None, alpha=0.1)
    assert "NO differential privacy guarantee" in there.privacy_.text(None)
    with pytest.raises(NotFittedError, match="personalize"):
        there.predict(X, task=task)
    assert there.personalize(X, y, task=task).predict(X, task=task).shape == y.shape
    with pytest.raises(ValueError, match="released no mean model"):
        there.predict(X[:1], task=["somebody"])


def test_features_are_compared_with_the_billboard(tmp_path):
    there, X, y, task = device(tmp_path, unseen_task="mean")
    before = dict(vars(there))
    bad = {
        r"X has 3 features, but the billboard is for 4: \['a', 'b', 'c', 'd'\]": X[["a", "b", "c"]],
        r"unknown features \['z'\]: the billboard is for \['a', ": X.rename(columns={"b": "z"}),
        r"features in another order: the billboard is for \['a'": X[["d", "c", "b", "a"]],
        "contains NaN": X.where(X > 0),
    }
    for message, rows in bad.items():
        with pytest.raises(ValueError, match=message):
            there.personalize(rows, y, task=task)
        with pytest.raises(ValueError, match=message):
            there.predict(rows, task=task)
        assert vars(there) == before
    with pytest.warns(UserWarning, match=r"columns are taken to be those of the billboard, \['a'"):
        there.predict(X.to_numpy(), task=task)
    with pytest.warns(UserWarning, match="no feature names"):
        there.personalize(X.to_numpy(), y, task=task)
    with pytest.raises(ValueError, match="is expecting 4 features"):  # from now on as ever
        there.predict(X.to_numpy()[:, :3], task=task)
    frame = X.assign(task=task)
    column = MPMTLLowRank.from_billboard(
        there.billboard_, feature_names="abcd", task_feature="task"
    )
    with pytest.raises(ValueError, match="X has 3 features beside the task column, but"):
        column.personalize(frame.drop(columns="a"), y)
    assert column.personalize(frame, y).predict(frame).shape == y.shape


# ----------------------------------------------------------------------------- from_billboard
def test_every_estimator_with_a_billboard_is_covered():
    found = {name for name in NAMES if getattr(public(name), "_billboards", ())}
    homes = {name: cls.__module__ for name, cls in estimators().items()}
    known = {name for name, home in homes.items() if home.startswith("skpmtl.")}
    elsewhere = {*networks.__all__, "PiecewiseHazards"}  # tests/networks, tests/survival
    assert found == known - elsewhere
    covered = {*FIRST, *(type(case.estimator) for case in EXACT)}
    assert found == {cls.__name__ for cls in covered if cls.__name__ in found}


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_no_class_of_the_same_name_takes_the_place_of_another(tmp_path):
    for cls in (MPMTLLowRank, HierarchicalBillboard):
        type(cls.__name__, (cls,), {"__module__": "elsewhere"})
    est = fitted(MPMTLLowRank(**SEED), 0)[0]
    assert type(roundtrip(est, tmp_path)) is MPMTLLowRank
    other = type("HierarchicalBillboard", (HierarchicalBillboard,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="which is not part of any billboard"):
        pack(other(**vars(est.billboard_)))
    with pytest.raises(TypeError, match="board must be a billboard, not HierarchicalBillboard"):
        MPMTLLowRank.from_billboard(other(**vars(est.billboard_)))


def test_values_that_do_not_go_into_a_message():
    for value, message in (
        ({"a": {2.5: 1}}, "board.a has the key 2.5"),
        ([1, np.array([1.0, np.nan])], "board.1 holds NaN or infinity"),
        ((np.array(["a"]),), "board.0 holds <U1, not an array of float64"),
        (Ridge(), "board is of type Ridge"),
        ({"x": {1, 2}}, "board.x is of type set"),
    ):
        with pytest.raises(ValueError, match=message):
            pack(value)
    value = {"a": (1, [np.int64(2), math.inf, -math.inf]), 3: None, "b": np.float32(0.5)}
    assert unpack(*pack(value)) == {"a": (1, [2, math.inf, -math.inf]), 3: None, "b": 0.5}
    assert math.isnan(unpack(*pack(math.nan)))


@pytest.mark.parametrize("hint", [int, float, int | None, float | None])
def test_fields_of_numbers_hold_numbers(hint):
    """Whether or not their class says more about them."""
    Thing = type("Thing", (), {})
    for value in ("3", b"3", [3], True, np.ones(1), {}):
        with pytest.raises(ValueError, match="size of Thing cannot be"):
            _check_field(Thing, "size", value, hint)
    _check_field(Thing, "size", 3, hint)


def test_who_has_no_billboard(tmp_path):
    for est in (PerTask(Ridge()), TinyRidge(), Ridge()):
        with pytest.raises(ValueError, match="has no billboard that others can go on with"):
            save_billboard(est, tmp_path / "board.npz")
    with pytest.raises(NotFittedError):
        save_billboard(MPMTLLowRank(), tmp_path / "board.npz")
    assert not (tmp_path / "board.npz").exists()
    with pytest.raises(TypeError, match="not dict"):
        TinyRidge.from_billboard({"alpha": [1.0]})
    with pytest.raises(FileNotFoundError):
        load_billboard(tmp_path / "board.npz")


# ------------------------------------------------------------------------------ what is refused
def test_arrays_may_hold_what_is_below_the_largest_number():
    """And a model may have one feature."""
    for sign in (1.0, -1.0):
        below = np.array([sign * np.nextafter(LARGEST, 0.0)])
        check_arrays([("it", below, [(1,)])])
        with pytest.raises(ValueError, match=r"1e\+100 and above"):
            check_arrays([("it", np.array([sign * LARGEST]), [(1,)])])
    board = SimpleNamespace(report=None, declared=list)
    for board.n_features in (1, 2):
        check_billboard(board)
    board.n_features = 0
    with pytest.raises(ValueError, match="no features"):
        check_billboard(board)


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_from_billboard():
    est, X, y, task, old = fitted(PrivateMeanRegMTLClassifier(levels="free", **SEED), 2)
    new = ~old
    there = PrivateMeanRegMTLClassifier.from_billboard(
        est.export_billboard(), classes=["low", "high"], n_features=4, feature_names="abcd"
    )
    assert there.tasks_.shape == (0,) and there.intercept_.shape == (0,)
    assert there.coef_.shape == (0, 4) and there.classes_.tolist() == ["high", "low"]
    there.personalize(pd.DataFrame(X[new], columns=list("abcd")), y[new], task=task[new])
    est.personalize(X[new], y[new], task=task[new])
    assert_same(there.coef_, est.coef_[np.searchsorted(est.tasks_, there.tasks_)])
    billboard = est.billboard_
    make = PrivateMeanRegMTLClassifier.from_billboard
    for message, call in {
        "needs classes=, those of the fit": lambda: make(billboard),
        "which is for 2 classes": lambda: make(billboard, classes=[1, 2, 3]),
        "n_features=5, but the billboard is for 4": lambda: make(
            billboard, classes=[0, 1], n_features=5
        ),
        "must be 4 strings": lambda: make(billboard, classes=[0, 1], feature_names=list("abc")),
        r"'c', 3\] must be 4 strings": lambda: make(
            billboard, classes=[0, 1], feature_names=[*"abc", 3]
        ),
        "'tol' parameter": lambda: make(billboard, classes=[0, 1], tol=-1),
        "is for real targets, the billboard for classes": lambda: PrivateMeanRegMTL.from_billboard(
            billboard
        ),
        "PrivateMeanRegMTL has none": lambda: PrivateMeanRegMTL.from_billboard(
            billboard, classes=[0, 1]
        ),
        "DPMetaInit does not go on with this HierarchicalBillboard": lambda: (
            DPMetaInit.from_billboard(billboard)
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="board must be a billboard, not dict"):
        make({}, classes=[0, 1])
    prior = fitted(MPMTLLowRank(0.1, epsilon=None), 0)[0].billboard_
    with pytest.raises(ValueError, match="not go on with this PenaltyBillboard; .*'MPMTLLowRank'"):
        MPMTLGroupSparse.from_billboard(prior)
    billboard = est.export_billboard()
    billboard.root = billboard.root[:, :2]
    with pytest.raises(ValueError, match="root has the shape"):
        make(billboard, classes=[0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0.0}, "width"),
        ({"unit": -1.0}, "unit"),
        ({"n_present": -1.0}, "n_present"),
        ({"far": 1.0}, "far"),
        ({"column_scale": np.array([1.0, 0.0, 1.0, 1.0])}, "scale of its columns"),
        ({"column_scale": np.array([1.0, 1e-320, 1.0, 1.0])}, "scale of its columns"),
        ({"root": np.eye(4)}, "trace one"),
        ({"middle": None}, "window of levels"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_models_of_impossible_numbers_are_refused(change, message):
    board = fitted(MEAN_UNSEEN, 0)[0].export_billboard()
    assert board.has_place
    unpack(*pack(board))
    vars(board).update(change)
    with pytest.raises(ValueError, match=message):
        unpack(*pack(board))
