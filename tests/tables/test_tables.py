"""Every accepted form of input ends in the same table; everything else is refused by name."""

import pickle
import re
import sys
import tracemalloc
from copy import deepcopy
from decimal import Decimal

import numba
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skpmtl import PrivateMeanRegMTL
from skpmtl.preprocessing import TaskImputer
from skpmtl.tables.convert import stack_tasks, wide_to_long
from skpmtl.tables.forms import read_training
from skpmtl.tables.table import SingleTaskWarning, TaskTable, table_of
from tests.helpers.tiny_ridge import TinyRidge


def as_forms(frame, y):
    """The same data in all forms: (parameters, X, y, task)."""
    X, ids = frame.drop(columns="school"), frame["school"]
    frames, series = ({t: part[ids == t] for t in pd.unique(ids)} for part in (X, y))
    arrays, targets = ({t: part[t].to_numpy() for t in part} for part in (frames, series))
    rows = {t: sparse.csr_matrix(part) for t, part in arrays.items()}
    columns = {t: part[:, None] for t, part in targets.items()}
    number = np.unique(ids, return_inverse=True)[1]
    last, inside = np.column_stack([X, number]), np.insert(X.to_numpy(), 2, number, axis=1)
    table, school = pl.DataFrame(frame.to_dict("list")), {"task_feature": "school"}
    return {
        "name": (school, frame, y, None),
        "position": ({"task_feature": -1}, last, y, None),
        "position in the middle": ({"task_feature": 2}, inside, y, None),
        "position in lists": ({"task_feature": 4}, last.tolist(), y.tolist(), None),
        "position in objects": ({"task_feature": 1}, frame.to_numpy(), y, None),
        "position in CSR": ({"task_feature": 4}, sparse.csr_matrix(last), y, None),
        "position in float32": ({"task_feature": 4}, last.astype(np.float32), y, None),
        "keyword": ({}, X, y, ids),
        "keyword, arrays": ({}, X.to_numpy(), y.to_numpy(), ids.to_numpy()),
        "keyword, F order": ({}, np.asfortranarray(X), y, number),
        "keyword, list": ({}, X, y, list(ids)),
        "keyword, CSC": ({}, sparse.csc_array(X.to_numpy()), y, ids),
        "keyword, DOK": ({}, sparse.dok_array(X.to_numpy()), y, ids),
        "polars": (school, table, pl.Series(y.to_list()), None),
        "polars keyword": ({}, table.drop("school"), y, pl.Series(list(ids))),
        "mapping": ({}, arrays, targets, None),
        "mapping of frames": ({}, frames, series, None),
        "mapping of CSR": ({}, rows, columns, None),
    }


EXAMPLE = pd.DataFrame({"a": [0.0], "b": [0.0], "school": ["s"]}), pd.Series([0.0])
FORMS = list(as_forms(*EXAMPLE))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.spread(8)
def test_all_forms_give_the_models_of_separate_fits(form, school_like):
    frame, y = school_like()
    parameters, X, target, task = as_forms(frame, y)[form]
    est = TinyRidge(0.5, **parameters).fit(X, target, task=task)
    tolerance = 1e-4 if "float32" in form else 1e-8
    expected = frame["school"].to_numpy().copy().astype(object)
    for k, name in enumerate(sorted(set(frame["school"]))):
        mine = (frame["school"] == name).to_numpy()
        alone = Ridge(0.5).fit(frame[mine].drop(columns="school").to_numpy(), y[mine])
        assert_allclose(est.coef_[k], alone.coef_, rtol=tolerance, atol=tolerance)
        expected[mine] = alone.predict(frame[mine].drop(columns="school").to_numpy())
    predicted = est.predict(X, task=task)
    if form.startswith("mapping"):
        assert list(predicted) == list(X)
        for name, values in predicted.items():
            mine = (frame["school"] == name).to_numpy()
            assert_allclose(values, expected[mine].astype(float), atol=tolerance)
    else:
        assert_allclose(predicted, expected.astype(float), atol=10 * tolerance)
    assert est.score(X, target, task=task) > 0.9
    if parameters:
        assert est.n_features_in_ == 5  # the task column counts
    names = getattr(est, "feature_names_in_", None)
    if form.startswith("polars"):  # old scikit-learn cannot read the names of new polars
        named = hasattr(StandardScaler().fit(X.drop("school", strict=False)), "feature_names_in_")
    else:
        named = form in ("name", "keyword", "keyword, list", "mapping of frames")
    assert (names is not None) == named


def test_polars_needs_no_pyarrow(monkeypatch, school_like):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    frame, y = school_like()
    table = pl.DataFrame({name: frame[name].tolist() for name in frame})
    est = TinyRidge(task_feature="school").fit(table, pl.Series(y.tolist()))
    same = TinyRidge(task_feature="school").fit(frame, y)
    assert_allclose(est.predict(table), same.predict(frame))


@pytest.mark.exact_bits("the memory of rows that are used in place")
def test_table_is_sorted_and_shares_memory_when_it_can():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 2)), np.arange(6.0)
    table, _ = read_training(TinyRidge(), X, y, [2, 2, 5, 5, 5, 9])
    assert table.X is X or np.shares_memory(table.X, X)
    assert table.order is None and table.rows is None
    task = np.array([5, 2, 9, 2, 5, 2])
    table, _ = read_training(TinyRidge(), X, y, task)
    assert_array_equal(table.order, [1, 3, 5, 0, 4, 2])
    assert_array_equal(table.X, X[table.order])
    assert_array_equal(table.y, y[table.order])
    assert_array_equal(table.offsets, [0, 3, 5, 6])
    assert_array_equal(table.tasks, [2, 5, 9])
    assert_array_equal(table.codes, [0, 0, 0, 1, 1, 2])
    assert_array_equal(table.sizes, [3, 2, 1])
    assert (table.n_tasks, table.n_rows, table.n_features, table.is_sparse) == (3, 6, 2, False)
    assert table.X.flags.c_contiguous and table.X.dtype == np.float64
    assert table.offsets.dtype == table.order.dtype == np.int64
    assert_array_equal(table.task(1)[0], X[[0, 4]])
    assert np.shares_memory(table.task(1)[0], table.X)


# ------------------------------------------------------------------------------- wide y
def test_wide_predictions_follow_the_columns_of_y(school_like):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = pd.DataFrame(X @ rng.normal(size=(3, 4)), columns=["d", "a", "c", "b"])
    Y.iloc[::3, 1] = np.nan
    est = TinyRidge(1e-8).fit(X, Y)
    assert_array_equal(est.tasks_, ["a", "b", "c", "d"])
    known = Y.notna().to_numpy()
    assert_allclose(est.predict(X)[known], Y.to_numpy()[known], atol=1e-5)
    assert est.score(X, Y) > 1 - 1e-9
    assert est.score(X, Y[["a", "b", "c", "d"]]) > 1 - 1e-9  # names decide, not positions
    # The same model answers for single tasks and for mappings.
    assert_allclose(est.predict(X, task=["c"] * 40), est.predict(X)[:, 2])
    assert_allclose(est.predict({"b": X[:5]})["b"], est.predict(X[:5])[:, 3])


@pytest.mark.parametrize("kind", ["polars", "nullable", "objects", "integers"])
def test_wide_y_of_other_types(kind):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(20, 2)), rng.integers(0, 9, (20, 3)).astype(float)
    if kind != "integers":
        Y[rng.random(Y.shape) < 0.3] = np.nan
    frame = pd.DataFrame(Y, columns=list("abc"))
    other = {
        "polars": lambda: pl.DataFrame({n: pl.Series(frame[n].tolist()) for n in "abc"}),
        "nullable": lambda: frame.astype("Int64"),
        "objects": lambda: frame.astype(object).where(frame.notna(), None),
        "integers": lambda: frame.astype(int),
    }[kind]()
    assert_allclose(TinyRidge().fit(X, other).coef_, TinyRidge().fit(X, frame).coef_)


# ------------------------------------------------------------------------------ task ids
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="string"), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype=object), ["a", "b"]),
        (pd.Series([7, 3, 7], dtype="Int64"), [3, 7]),
        (pd.Series([7, 3, 7], dtype="category"), [3, 7]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        (np.array([7.0, 3.0, 7.0]), [3, 7]),
        (np.array([7, 3, 7], dtype=np.uint8), [3, 7]),
        (np.array([7, 3.0, 7], dtype=object), [3, 7]),
        (np.array([True, False, True]), [0, 1]),
        (np.array([[7], [3], [7]]), [3, 7]),
        (pl.Series(["b", "a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (("b", "a", "b"), ["a", "b"]),
    ],
)
def test_types_of_ids(ids, expected):
    table, _ = read_training(TinyRidge(), np.eye(3), np.arange(3.0), ids)
    assert table.tasks.tolist() == expected
    assert type(table.tasks.tolist()[0]) is type(expected[0])
    assert_array_equal(table.y, [1, 0, 2])


# ------------------------------------------------------------------------- what is refused
X4, Y4, IDS = np.arange(8.0).reshape(4, 2), np.arange(4.0), [3, 1, 3, 2]
TWO = np.column_stack([Y4, Y4])  # two tasks
FRAME = pd.DataFrame({"school": ["u", "u", "v", "v"], "a": [1.0, 2.0, 3.0, 5.0]})
TWICE, RENAMED = (
    pd.concat([FRAME, FRAME[["school"]]], axis=1),
    FRAME.set_axis(["x__school", "a"], axis=1),
)
PARTS = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
NAMED, LISTS = {"task_feature": "school"}, re.escape("stack_tasks(X_list, y_list)")
ARRAYS = [np.ones((3, 2)), np.ones((3, 2))]
KIND, VALUE = TypeError, ValueError
REFUSED = [  # (parameters, X, y, task, error, what it says)
    *(
        ({}, X4, Y4, ids, error, words)
        for ids, error, words in (
            (["a", None, "b", None], VALUE, r"missing .* in 2 row\(s\), first at position 1"),
            ([1, 2, np.nan, 2], VALUE, r"missing .* in 1 row\(s\), first at position 2"),
            (np.array(["a", pd.NA, "b", "b"], dtype=object), VALUE, "missing .* position 1"),
            (pl.Series(["a", None, "b", "b"]), VALUE, "missing .* position 1"),
            ([1, "a", 1, "a"], KIND, "mix the types int, str"),
            ([[1, 2]] * 4, KIND, "not containers"),
            (np.array([0.1, -1.3, 0.7, 0.1]), VALUE, "3 of 3 distinct.*scaled.*ColumnTransformer"),
            (np.array([1.0, np.inf, 1.0, 1.0]), VALUE, "infinity"),
            (np.array([2**63, 1, 1, 1], dtype=np.uint64), VALUE, "use strings"),
            ([1, 2, 3], VALUE, "task has 3 entries, X has 4 rows"),
            ("a", VALUE, "one id for each of the 4 rows"),
        )
    ),
    # A wide y.
    ({}, X4, TWO, [1, 1, 2, 2], VALUE, "no other task ids"),
    ({}, X4, pd.DataFrame(TWO, columns=["a", "a"]), None, VALUE, "more than once|unique column"),
    (
        {},
        X4,
        np.where(TWO == 2.0, [[1.0, np.inf]], TWO),
        None,
        VALUE,
        r"infinity.*: 1 value\(s\), first in row 2 \(task 1",
    ),
    # A column of ids.
    ({"task_feature": "class"}, FRAME, Y4, None, VALUE, "'class' is not a column of X; its col"),
    (NAMED, RENAMED, Y4, None, VALUE, "Did you mean 'x__school'"),
    ({"task_feature": 5}, FRAME, Y4, None, VALUE, "task_feature=5 is outside X with 2 columns"),
    (NAMED, FRAME.to_numpy(), Y4, None, VALUE, "no column names.*set_output"),
    (NAMED, sparse.csr_matrix(X4), Y4, None, VALUE, "no column names"),
    (NAMED, FRAME, Y4, IDS, VALUE, "either task_feature or task="),
    (NAMED, FRAME[["school"]], Y4, None, VALUE, "n_features = 1"),
    (NAMED, FRAME[["school"]], Y4, None, VALUE, "column of zeros"),
    ({}, FRAME, Y4, None, VALUE, r"not numeric: \['school'\]; if it holds the task"),
    (NAMED, TWICE, Y4, None, VALUE, "more than once|unique column names"),
    ({"task_feature": 1.5}, FRAME, Y4, None, VALUE, "task_feature' parameter"),
    ({"task_feature": []}, FRAME, Y4, None, VALUE, "must be one column"),
    ({"task_feature": ["school", "a"]}, FRAME, Y4, None, VALUE, "must be one column"),
    (NAMED, FRAME.set_index("school"), Y4, None, VALUE, "reset_index"),
    # A public list of tasks.
    ({"tasks": [1, 2]}, X4, Y4, IDS, VALUE, r"in the data: \[3\]"),
    ({"tasks": [1, 2, 2, 3]}, X4, Y4, IDS, VALUE, r"tasks= contain \[2\] more than once"),
    ({"tasks": list("123")}, X4, Y4, IDS, KIND, "integers here, but the known tasks are strings"),
    ({"tasks": "all"}, X4, Y4, IDS, VALUE, "tasks' parameter"),
    ({"tasks": [1]}, X4, Y4, None, VALUE, "no row has a task"),
    ({"tasks": [0]}, X4, TWO, None, VALUE, r"in the data: \[1\]"),
    ({**NAMED, "tasks": FRAME[["school"]]}, FRAME, Y4, None, KIND, "column of ids"),
    # Mappings, and lists of tables.
    ({}, PARTS, [[1, 2], [3, 4]], None, KIND, "y must be one too, not list"),
    (
        {"task_feature": 0},
        PARTS,
        dict.fromkeys("ab", [1, 2]),
        None,
        VALUE,
        "needs task_feature=None",
    ),
    ({}, {"a": X4, 1: X4}, {"a": Y4, 1: Y4}, None, KIND, "mix the types"),
    *(
        ({}, X, [np.ones(3), np.ones(3)], None, KIND, LISTS)
        for X in (ARRAYS, tuple(ARRAYS), np.ones((2, 3, 2)), [pl.DataFrame({"a": [1]})])
    ),
]


@pytest.mark.parametrize("parameters, X, y, task, error, words", REFUSED)
def test_what_cannot_be_read_is_named_with_a_remedy(parameters, X, y, task, error, words):
    est = TinyRidge(**parameters)
    with pytest.raises(error, match=words):
        est.fit(X, y, task=task)
    assert not hasattr(est, "tasks_") and not hasattr(est, "n_features_in_")


def test_later_tables_have_the_columns_of_the_fit():
    with pytest.raises(ValueError, match=r"Column\(s\) \['b'\] of y hold no label"):
        TinyRidge().fit(X4, TWO).personalize(X4, pd.DataFrame({"a": Y4, "b": np.nan}))
    est = TinyRidge().fit(PARTS, dict.fromkeys("ab", [1.0, 2.0]))
    with pytest.raises(ValueError, match="expecting 2 features"):
        est.predict({"a": np.ones((2, 3))})


INEXACT = "floats too large.*Pass ids as integers or as strings"


def test_merged_ids_are_refused_in_every_form_of_input():
    task, X = 2**53 + np.repeat(np.arange(4), 3), np.arange(24.0).reshape(12, 2) % 5
    y, frame = X[:, 0], pd.DataFrame(X, columns=["a", "b"]).assign(g=task)
    assert len(TinyRidge(task_feature="g").fit(frame, y).tasks_) == 4
    joined = np.column_stack([task, X])
    columns = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="passthrough")
    fits = [
        lambda: TinyRidge(task_feature=0).fit(joined, y),
        lambda: TinyRidge(task_feature=0).fit(joined.tolist(), y),
        lambda: TinyRidge(task_feature=0).fit(sparse.csr_matrix(joined), y),
        lambda: TinyRidge(task_feature=0).fit(joined.astype(np.float32), y),
        lambda: TinyRidge(task_feature="g").fit(frame.astype(float), y),
        lambda: make_pipeline(columns, TinyRidge(task_feature=-1)).fit(frame, y),
        lambda: TinyRidge().fit(X, y, task=task.astype(float)),
        lambda: TinyRidge(tasks=[2.0**53]).fit(X, y, task=task),
        lambda: TinyRidge().fit({2.0**53: X}, {2.0**53: y}),
        lambda: TinyRidge(task_feature="g").fit(frame, y).predict(frame.astype(float)),
    ]
    for fit in fits:
        with pytest.raises(ValueError, match=INEXACT):
            fit()


def test_ids_at_predict():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    est = TinyRidge().fit(X, y, task=[1, 1, 2, 2])
    with pytest.raises(ValueError, match=r"not fitted: \[3, 7\].*TaskStratifiedKFold"):
        est.predict(X, task=[7, 1, 3, 2])
    with pytest.raises(TypeError, match="strings here, but the known tasks are integers"):
        est.predict(X, task=["1", "1", "2", "2"])
    with pytest.raises(ValueError, match="position 3"):
        est.predict(X, task=[1, 1, 2, None])
    with pytest.raises(ValueError, match=r"fitted with task ids \(2 tasks\): give task="):
        est.predict(X)
    text = TinyRidge().fit(X, y, task=list("aabb"))
    with pytest.raises(TypeError, match="integers here, but the known tasks are strings"):
        text.predict(X, task=[1, 1, 2, 2])


# --------------------------------------------------------------------------- task column
def test_a_list_of_one_name_is_a_name(school_like):
    frame, y = school_like()
    est = TinyRidge(task_feature=["school"]).fit(frame, y)
    plain = TinyRidge(task_feature="school").fit(frame, y)
    assert_array_equal(est.predict(frame), plain.predict(frame))
    assert est.coef_.shape == plain.coef_.shape


def test_names_lost_after_fit_leave_the_position(school_like):
    frame, y = school_like()
    frame["school"] = frame["school"].str[1:].astype(int)
    est = TinyRidge(task_feature="school").fit(frame, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        predicted = est.predict(frame.to_numpy())
    assert_allclose(predicted, est.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        est.predict(frame[frame.columns[::-1]])


# --------------------------------------------------------------------- public task list
def test_decimals_of_arrow_are_numbers():
    pa = pytest.importorskip("pyarrow")
    values = [Decimal("1.5"), None, Decimal("-2.25")]
    decimals = pd.Series(values, dtype=pd.ArrowDtype(pa.decimal128(5, 2)))
    frame, y = pd.DataFrame({"x": decimals, "z": 1.0, "g": 0}), decimals.fillna(Decimal(3))
    filled = TaskImputer(task_feature="g").fit_transform(frame)
    table, _ = read_training(TinyRidge(task_feature="g"), filled, y)
    assert table.X[:, 0].tolist() == [1.5, -0.375, -2.25]
    direct, _ = read_training(TinyRidge(task_feature="g"), frame.assign(x=y), y)
    assert direct.X[:, 0].tolist() == [1.5, 3.0, -2.25]


def test_without_task_information():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    with pytest.warns(SingleTaskWarning, match="all rows are taken as one task"):
        est = TinyRidge().fit(X, y)
    assert est.coef_.shape == (1, 2) and est.predict(X).shape == (4,)


# --------------------------------------------------------------------- NaN and infinity
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_located(value, school_like):
    frame, y = school_like()
    name = "NaN" if np.isnan(value) else "infinity"
    bad = frame.copy()
    bad.loc[7, "x2"] = value
    where = rf"{name}.*1 value.*row 7 \(task '{frame.school[7]}'\), column 'x2'"
    with pytest.raises(ValueError, match=where):
        TinyRidge(task_feature="school").fit(bad, y)
    est = TinyRidge(task_feature="school").fit(frame, y)
    with pytest.raises(ValueError, match=where):
        est.predict(bad)
    number = np.unique(frame["school"], return_inverse=True)[1]
    array = np.column_stack([number, bad.drop(columns="school")])
    with pytest.raises(ValueError, match=r"row 7 .*column 3"):
        TinyRidge(task_feature=0).fit(array, y)
    for container in (sparse.csr_matrix, sparse.csc_array):
        with pytest.raises(ValueError, match=r"row 7 .*column 3"):
            TinyRidge(task_feature=0).fit(container(array), y)
    with pytest.raises(ValueError, match=rf"y contains {name}.*row 9 \(task '{frame.school[9]}'"):
        TinyRidge(task_feature="school").fit(frame, y.where(y.index != 9, value))


# --------------------------------------------------------------------------- converters
def test_stack_tasks():
    a, b = np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)
    for tasks in (None, ["x", "w"]):
        X, y, task = stack_tasks([a, b], [[1, 2, 3], [4, 5]], tasks)
        assert_array_equal(X, np.vstack([a, b]))
        assert_array_equal(y, [1, 2, 3, 4, 5])
        assert_array_equal(task, np.repeat([0, 1] if tasks is None else tasks, [3, 2]))
    X, y, task = stack_tasks({"x": pd.DataFrame(a), "w": pd.DataFrame(b)})
    assert_array_equal(X, np.vstack([a, b]))
    assert y is None
    X, _, _ = stack_tasks([sparse.csc_matrix(a), b])
    assert X.format == "csr"
    assert_array_equal(X.toarray(), np.vstack([a, b]))
    assert stack_tasks(np.ones((2, 3, 4)))[0].shape == (6, 4)
    empty = {"u": a[:0], "x": a.astype(int), "w": b[:0]}
    X, y, task = stack_tasks(empty, {"u": [], "x": [1, 2, 3], "w": []})
    assert X.dtype == y.dtype == int and task.tolist() == ["x"] * 3


@pytest.mark.parametrize(
    ("X", "y", "tasks", "message"),
    [
        ({"a": np.ones((2, 2)), "b": np.ones((2, 3))}, None, None, "'b' has 3 features.*first.*2"),
        ({"a": np.ones((0, 2)), "b": np.ones((0, 2))}, None, None, "No task has rows"),
        ({"a": np.ones((2, 2)), "b": np.ones(2)}, None, None, r"'b' has the shape \(2,\)"),
        ([np.ones((2, 2))] * 2, [[1, 2], [1]], None, r"Task 1 has 2 rows .* y of shape \(1,\)"),
        ([np.ones((2, 2))] * 2, [[1, 2]], None, "inconsistent numbers of samples"),
        ([np.ones((2, 2))] * 2, None, ["a", "a"], r"contain \['a'\] more than once"),
        ({"a": np.ones((2, 2))}, {"b": [1, 2]}, None, "Task 'a' is in only one of X and y"),
        ({"a": np.ones((2, 2))}, None, ["a"], "names its tasks itself"),
        ({}, None, None, "no tasks"),
        (
            {"a": pd.DataFrame({"p": [1], "q": [2]}), "b": pd.DataFrame({"q": [1], "p": [2]})},
            None,
            None,
            "'b' has other column names",
        ),
    ],
)
def test_stack_tasks_names_the_task(X, y, tasks, message):
    with pytest.raises(ValueError, match=message):
        stack_tasks(X, y, tasks)


def test_wide_to_long_inverts(school_like):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(10, 2)), columns=["p", "q"])
    Y = pd.DataFrame(rng.normal(size=(10, 3)), columns=["c", "a", "b"])
    Y = Y.mask(rng.random(Y.shape) < 0.4)
    X_long, y, task, unit = wide_to_long(X, Y)
    assert isinstance(X_long, pd.DataFrame) and len(y) == Y.notna().to_numpy().sum()
    again = pd.DataFrame(np.nan, index=Y.index, columns=Y.columns)
    for value, t, u in zip(y, task, unit, strict=True):
        again.loc[u, t] = value
    pd.testing.assert_frame_equal(again, Y)
    assert_array_equal(X_long.to_numpy(), X.to_numpy()[unit])
    long, wide = TinyRidge().fit(X_long, y, task=task), TinyRidge().fit(X, Y)
    assert_allclose(long.coef_, wide.coef_)
    _, y, task, _ = wide_to_long(X, [["yes", None, "no"]] * 10, tasks=[3, 1, 2])
    assert set(zip(task.tolist(), y, strict=True)) == {(3, "yes"), (2, "no")}
    with pytest.raises(ValueError, match="tasks has 2 entries, Y has 3 columns"):
        wide_to_long(X, Y, tasks=["a", "b"])
    with pytest.raises(ValueError, match=r"shape \(10,\)"):
        wide_to_long(X, Y["a"])
    with pytest.raises(ValueError, match="inconsistent"):
        wide_to_long(X[:5], Y)


def long_indices(X):
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, long_indices])
def test_compiled_loops_meet_one_kind_of_array(form):
    """numba compiles them again for an array with gaps, or for one that can be written."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 3)), rng.normal(size=(9, 4))
    Y[0, 0] = np.nan
    wide, _ = read_training(PrivateMeanRegMTL(), form(X), Y, None)
    seen = [*wide.stored[:-1], wide.offsets]
    assert all(array.flags.c_contiguous for array in seen)
    assert not wide.is_sparse or all(array.dtype == np.int32 for array in wide.csr[1:])
    for other in (pickle.loads(pickle.dumps(wide)), deepcopy(wide)):
        again = [*other.stored[:-1], other.offsets]
        assert list(map(numba.typeof, again)) == list(map(numba.typeof, seen))


LONG, WIDE = (40_000, 50), (50, 40_000)


@pytest.mark.exact_bits("the memory of copies is measured")
@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        *((k, LONG) for k in ("sorted", "gaps", "unsorted by columns", "whole numbers", "map")),
        *((k, LONG) for k in ("task column", "unsorted frame")),
        *((k, WIDE) for k in ("by columns", "unsorted", "float32", "unsorted map")),
    ],
)
def test_other_layouts_cost_one_copy(layout, shape, tmp_path):
    """And rows that are sorted and in order cost none, also on a disk."""
    n, d = shape
    rng = np.random.default_rng(0)
    X, task, settings = rng.standard_normal(shape), np.repeat(np.arange(10), n // 10), {}
    size, y = X.nbytes, X[:, 0].copy()
    if "unsorted" in layout:
        task = rng.permutation(task)
    if "by columns" in layout:
        X = np.asfortranarray(X)
    elif layout == "gaps":
        X = np.repeat(X, 2, axis=1)[:, ::2]
    elif layout == "float32":
        X = X.astype(np.float32)
    elif layout == "whole numbers":
        X = np.rint(X).astype(int)
    elif "map" in layout:
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    elif layout == "task column":
        X, task, settings = np.column_stack([task, X]), None, {"task_feature": 0}
    elif layout == "unsorted frame":
        X = pd.DataFrame(X)
    estimator = TinyRidge(**settings)
    tracemalloc.start()
    read_training(estimator, X, y, task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (0.0 if layout in ("sorted", "map") else size) + 0.4 * size


def test_tasks_of_a_part_are_worked_on_as_in_the_whole():
    """Else whether a task is among them would move the last bits of the others."""
    X, ends = np.zeros((600, 3)), np.arange(601)
    table = TaskTable(X, X[:, 0], ends, ends[:600], absent=np.array([700]))
    part = table_of(table, np.array([3, 590]))
    assert part.tasks.tolist() == [3, 590]
    assert table_of(part, np.array([1])).n_listed == part.n_listed == table.n_listed == 601
