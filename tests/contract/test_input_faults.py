"""Input that is damaged or foreign: an error with a remedy, without a private value in it."""

import functools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

import skpmtl
from skpmtl import (
    FedMTLRegressor,
    LeaveTasksOut,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PerTask,
    PrivacyLeakWarning,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateSearch,
    TaskScaler,
    TaskStratifiedKFold,
    stack_tasks,
    wide_to_long,
)
from skpmtl._runtime.constraints import defaults_of
from skpmtl.metrics import task_scores
from skpmtl.reproduction import LocalOnlyClassifier
from skpmtl.tables.sparse import checked
from tests.helpers.apart import apart

TASKS = ["a", "b", "c"]
TASK = np.repeat(TASKS, 6)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(18, 4)).round(3)
Y = X[:, 0] + 0.1 * RNG.normal(size=18)
LABELS = np.tile([0, 1, 1], 6)


# ----------------------------------------------------------------- sparse matrices, damaged
def csr(seed=0):
    return sparse.random(18, 4, 0.5, format="csr", random_state=np.random.default_rng(seed))


def with_parts(made, **parts):
    for name, change in parts.items():
        values = getattr(made, name).copy()
        setattr(made, name, change(values))
    return made


def put(place, value):
    def change(values):
        values[place] = value
        return values

    return change


DAMAGED = {
    "column too large": lambda: with_parts(csr(), indices=put(3, 4)),
    "column far too large": lambda: with_parts(csr(), indices=put(3, 2**30)),
    "column -1": lambda: with_parts(csr(), indices=put(3, -1)),
    "float columns": lambda: with_parts(csr(), indices=lambda v: v.astype(float)),
    "rows decrease": lambda: with_parts(csr(), indptr=put(5, 1)),
    "rows start late": lambda: with_parts(csr(), indptr=put(0, 1)),
    "rows start before": lambda: with_parts(csr(), indptr=put(0, -1)),
    "rows end behind": lambda: with_parts(csr(), indptr=put(-1, 10**6)),
    "too few rows": lambda: with_parts(csr(), indptr=lambda v: v[:-1]),
    "short indices": lambda: with_parts(csr(), indices=lambda v: v[:-1]),
    "short data": lambda: with_parts(csr(), data=lambda v: v[:-1]),
    "csc": lambda: with_parts(csr().tocsc(), indices=put(3, 18)),
    "csc, huge": lambda: with_parts(csr().tocsc(), indices=put(3, 2**30)),
    "coo": lambda: with_parts(csr().tocoo(), col=put(3, 2**30)),
    "coo, row": lambda: with_parts(csr().tocoo(), row=put(3, -(2**30))),
    "bsr": lambda: with_parts(csr().tobsr((2, 2)), indices=put(3, 2**30)),
    "dia": lambda: with_parts(csr().todia(), data=lambda v: v[:1]),
    "lil": lambda: with_parts(csr().tolil(), rows=put(2, [2**30, 1])),
}
PROGRAM = """
import faulthandler, sys, warnings
warnings.simplefilter("ignore")
from tests.contract import test_input_faults as t
for i, (name, make) in enumerate(t.DAMAGED.items()):
    for place, use in list(t.uses(make()).items())[i % 6 :: 6]:  # each place meets three of them
        try:
            use()
        except (TypeError, ValueError) as error:
            assert "sparse" in str(error), (name, place, error)
        else:
            raise AssertionError(f"{name}, {place}: no error")
print("all refused")
"""


@functools.cache
def fitted():
    kinds = MPMTLLowRank(epsilon=None), PrivateMeanRegMTL(epsilon=None), PerTask(Ridge())
    return [est.fit(csr(), Y, task=TASK) for est in kinds]


def uses(bad):
    """Everything that takes sparse rows, given these."""
    good, (billboard, mean, alone) = csr(), fitted()
    column = PerTask(Ridge(), task_feature=0)
    pairs = {"a": bad, "b": good}, {"a": Y, "b": Y}
    fold = TaskStratifiedKFold(2, task_feature=0)
    search = PrivateSearch(MPMTLLowRank(tasks=TASKS), {"tol": [1e-6]})
    return {
        "fit": lambda: MPMTLLowRank(epsilon=None).fit(bad, Y, task=TASK),
        "fit in place": lambda: PrivateMeanRegMTL(epsilon=None).fit(bad, Y, task=TASK),
        "fit of a mapping": lambda: PrivateMeanRegMTL(epsilon=None).fit(*pairs),
        "wide": lambda: MPMTLLowRank(epsilon=None).fit(bad, np.column_stack([Y, Y])),
        "column": lambda: column.fit(bad, Y),
        "predict": lambda: billboard.predict(bad, task=TASK),
        "predict in place": lambda: mean.predict(bad, task=TASK),
        "personalize": lambda: mean.personalize(bad, Y, task=TASK),
        "score": lambda: alone.score(bad, Y, task=TASK),
        "metrics": lambda: task_scores(alone, bad, Y, task=TASK),
        "metrics, column": lambda: task_scores(alone, bad, Y, task=0),
        "search": lambda: search.fit(bad, Y, task=TASK),
        "splitter": lambda: list(fold.split(bad, Y)),
        "leave out": lambda: list(LeaveTasksOut(2, task_feature=0).split(bad, Y)),
        "stack_tasks": lambda: stack_tasks(*pairs),
        "wide_to_long": lambda: wide_to_long(bad, np.column_stack([Y, Y])),
        "scaler": lambda: TaskScaler().fit(bad),
        "federated": lambda: FedMTLRegressor(n_rounds=1).fit(bad, Y, client=TASK),
    }


def test_damaged_sparse_matrices_are_refused(tmp_path):
    """In a process of its own: unchecked, some of these end it."""
    assert apart(PROGRAM, tmp_path).strip() == "all refused"


def test_entries_of_one_place_are_added_and_columns_sorted():
    whole = csr()
    parts = whole.tocoo()
    rows, columns = np.tile(parts.row, 2), np.tile(parts.col, 2)
    order = np.lexsort((-columns, rows))
    twice = sparse.csr_matrix(whole.shape)
    twice.data = np.tile(parts.data / 2, 2)[order]
    twice.indices = columns[order].astype(np.int32)
    twice.indptr = (2 * whole.indptr).astype(np.int32)
    before = twice.indices.copy(), twice.data.copy()
    for est in (MPMTLLowRank(epsilon=None), PrivateMeanRegMTL(epsilon=None), PerTask(Ridge())):
        expected = est.fit(whole, Y, task=TASK).predict(whole, task=TASK)
        found = est.fit(twice, Y, task=TASK).predict(twice, task=TASK)
        np.testing.assert_array_equal(found, expected)
    for kept, now in zip(before, (twice.indices, twice.data), strict=True):
        np.testing.assert_array_equal(kept, now)  # the caller's matrix is as it was


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.spread(7)
def test_sound_matrices_of_every_format_are_read(kind, empty):
    whole = csr() if not empty else sparse.csr_matrix((18, 4))
    for made in (whole.asformat(kind), sparse.csr_array(whole).asformat(kind)):
        np.testing.assert_array_equal(checked(made).toarray(), whole.toarray())
    wide = sparse.random(3000, 900, 0.01, format="csr", random_state=np.random.default_rng(1))
    assert checked(wide) is wide  # nothing is copied
    if kind != "dia":
        np.testing.assert_array_equal(checked(wide.asformat(kind)).toarray(), wide.toarray())


# ------------------------------------------------------------------------ ids and labels
def test_text_that_ends_in_nul_is_refused():
    ids = ["a", "a\0", "b"] * 6
    for given in (ids, np.array(ids, dtype=object), pd.Series(ids, dtype=object)):
        with pytest.raises(ValueError, match="Task ids must not end in a NUL.*strip"):
            MPMTLLowRank(epsilon=None).fit(X, Y, task=given)
    with pytest.raises(ValueError, match="NUL"):
        MPMTLLowRank(epsilon=None).fit({"a": X, "a\0": X}, {"a": Y, "a\0": Y})
    labels = ["x", "x\0", "y"] * 6
    for given in (labels, np.array(labels, dtype=object), pd.Series(labels, dtype=object)):
        with pytest.raises(ValueError, match="Class labels must not end in a NUL"):
            LocalOnlyClassifier().fit(X, given, task=TASK)
    with pytest.raises(ValueError, match="NUL"):
        stack_tasks({"a": X[:3]}, {"a": labels[:3]})


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 2")
def test_string_dtype_is_text():
    ids = np.array(TASK, dtype=np.dtypes.StringDType())
    expected = MPMTLLowRank(epsilon=None).fit(X, Y, task=TASK)
    est = MPMTLLowRank(epsilon=None).fit(X, Y, task=ids)
    assert est.tasks_.tolist() == TASKS and est.tasks_.dtype.kind == "U"
    np.testing.assert_array_equal(est.coef_, expected.coef_)
    np.testing.assert_array_equal(est.predict(X, task=ids), expected.predict(X, task=TASK))
    labels = np.array(["no", "yes"], dtype=np.dtypes.StringDType())[LABELS]
    est = LocalOnlyClassifier().fit(X, labels, task=ids)
    assert est.classes_.tolist() == ["no", "yes"]
    missing = np.array(["a", None, "b"] * 6, dtype=np.dtypes.StringDType(na_object=None))
    with pytest.raises(ValueError, match="missing"):
        MPMTLLowRank(epsilon=None).fit(X, Y, task=missing)


DAYS = pd.date_range("2021-01-01", periods=18)
TUPLES = [("a", k % 2) for k in range(18)]


@pytest.mark.parametrize(
    "ids",
    [
        DAYS.to_numpy(),
        pd.Series(DAYS),
        DAYS,
        list(DAYS),
        TUPLES,
        pd.Series(TUPLES),
        [("a",), ("b", 1)] * 9,
        [b"a"] * 18,
        np.array([b"a"] * 18),
        [{1}] * 18,
    ],
    ids=str,
)
def test_foreign_ids_and_labels_are_refused_with_a_remedy(ids):
    with pytest.raises(TypeError, match=r"strings|\.astype\(str\)"):
        MPMTLLowRank(epsilon=None).fit(X, Y, task=ids)
    if not isinstance(ids, list) or not isinstance(ids[0], (tuple, set)):
        with pytest.raises((TypeError, ValueError), match=r"strings|\.astype\(str\)|text"):
            LocalOnlyClassifier().fit(X, ids, task=TASK)


def test_points_of_time_are_no_numbers():
    for y in (DAYS.to_numpy(), pd.Series(DAYS), DAYS - DAYS[0], np.array(["p"] * 18)):
        with pytest.raises(ValueError, match=r"not numbers.*\.astype\(float\)"):
            MPMTLLowRank(epsilon=None).fit(X, y, task=TASK)
    frame = pd.DataFrame(X).assign(day=DAYS)
    frame.columns = frame.columns.astype(str)
    for given in (frame, np.tile(DAYS.to_numpy()[:, None], (1, 4))):
        with pytest.raises(ValueError, match="dates or times.*Turn them into numbers"):
            MPMTLLowRank(epsilon=None).fit(given, Y, task=TASK)


@pytest.mark.parametrize(
    "days",
    [DAYS, DAYS - DAYS[0], DAYS.tz_localize("UTC"), DAYS.to_period("D"), DAYS.astype("str")],
    ids=lambda days: str(days.dtype),
)
def test_a_column_that_is_not_numeric_is_named(days):
    """Not only where no other column makes an array of objects, nor only for pandas."""
    frame = pd.DataFrame({"task": TASK, "age": Y, "seen": days})
    frames = [frame, frame[["task", "seen"]]]
    if days.dtype.kind in "mM":
        frames.append(pl.from_pandas(frame))
    for given in frames:
        with pytest.raises(ValueError, match=r"\['seen'\].*(numbers|encode)"):
            MPMTLLowRank(epsilon=None, task_feature="task").fit(given, Y)


# ------------------------------------------------------------------ the list of classes
CLASSIFIERS = [
    value
    for name, value in vars(skpmtl).items()
    if name.endswith("Classifier")
    and hasattr(value, "_fit_table")
    and defaults_of(value).get("epsilon") is not None
]


def test_columns_of_several_levels_are_an_error_with_remedy():
    frame = pd.DataFrame(X).assign(school=TASK)
    frame.columns = pd.MultiIndex.from_product([["x"], frame.columns])
    est = MPMTLLowRank(0.1, epsilon=None, task_feature="school")
    with pytest.raises(ValueError, match="several levels: join them, X.columns ="):
        est.fit(frame, Y)


def test_cells_that_are_lists_are_an_error_with_remedy():
    frame = pd.DataFrame(X[:, :1]).assign(school=TASK, trend=[[1, 2]] * len(X))
    frame.columns = frame.columns.astype(str)
    with pytest.raises(ValueError, match="cells that are lists.* a cell is one number"):
        MPMTLLowRank(0.1, epsilon=None, task_feature="school").fit(frame, Y)


def test_numbers_as_classes_are_an_error_with_remedy():
    est = skpmtl.PrivateMTLClassifier(tasks=TASKS, classes=[0, 1])
    with pytest.raises(ValueError, match="numbers is for the estimator without Classifier"):
        est.fit(X, Y, task=TASK)


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_classes_are_a_public_list(cls):
    est = cls(tasks=TASKS)
    with pytest.warns(PrivacyLeakWarning, match=r"which labels exist.*classes=\[\.\.\.\]"):
        est.fit(X, LABELS, task=TASK)
    est.set_params(classes=(1, 0)).fit(X, LABELS, task=TASK)  # no warning
    assert est.classes_.tolist() == [0, 1]
    # A label that is not listed: neither which one, nor where.
    strange = LABELS.copy()
    strange[7] = 31337
    with pytest.raises(ValueError, match=r"labels that are not among the classes \[0, 1\]") as info:
        est.fit(X, strange, task=TASK)
    text = str(info.value)
    assert "31337" not in text and "7" not in text and "'b'" not in text
    assert not hasattr(est, "coef_")
    # Labels need not be of the type of the list.
    est.fit(X, LABELS == 1, task=TASK)
    assert est.classes_.dtype.kind == "i"


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("epsilon", [None, 2.0])
@pytest.mark.spread(6)
def test_listed_classes_need_not_be_in_the_rows(cls, epsilon):
    est = cls(tasks=TASKS, classes=["no", "yes"], epsilon=epsilon)
    est.fit(X, ["yes"] * 18, task=TASK)
    assert est.classes_.tolist() == ["no", "yes"] and est.coef_.shape == (3, 4)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    assert est.predict_proba(X, task=TASK).shape == (18, 2)
    if not cls._multiclass:
        return
    est.set_params(classes=["maybe", "no", "yes"]).fit(X, np.where(LABELS, "no", "yes"), task=TASK)
    assert est.coef_.shape == (3, 3, 4) and np.isfinite(est.coef_).all()
    assert est.predict_proba(X, task=TASK).shape == (18, 3)


def test_a_search_passes_the_list_on_and_does_not_search_it():
    listed = PrivateSearch(
        MPMTLLowRankClassifier(tasks=TASKS, classes=[1, 0]), {"tol": [1e-6]}, n_trials=1
    )
    assert listed.fit(X, LABELS, task=TASK).classes_.tolist() == [0, 1]  # no warning
    inferred = PrivateSearch(MPMTLLowRankClassifier(tasks=TASKS), {"tol": [1e-6]}, n_trials=1)
    with pytest.warns(PrivacyLeakWarning, match="which labels exist"):
        inferred.fit(X, LABELS, task=TASK)
    with pytest.raises(ValueError, match="param_distributions has 'classes'"):
        PrivateSearch(inferred.estimator, {"classes": [[0, 1]]}).fit(X, LABELS, task=TASK)


def test_a_loaded_billboard_brings_its_classes(tmp_path):
    est = PrivateMeanRegMTLClassifier(tasks=TASKS, classes=["no", "yes", "rare"])
    est.fit(X, np.where(LABELS, "yes", "no"), task=TASK)  # nobody is rare here
    skpmtl.save_billboard(est, tmp_path / "board.npz")
    there = skpmtl.load_billboard(tmp_path / "board.npz")
    assert there.classes == there.classes_.tolist() == ["no", "rare", "yes"]
    there.personalize(X, np.where(LABELS, "yes", "no"), task=TASK)
    np.testing.assert_allclose(there.coef_, est.coef_)
