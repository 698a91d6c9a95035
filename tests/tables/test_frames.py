"""Tables of several libraries are read alike."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.linear_model import LinearRegression

from skpmtl import PerTask, PrivateMTL, TaskImputer
from skpmtl.tables.frames import column_labels, safe_indexing

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
ROWS = {
    "school": ["b", "a", "b", "a", "b", "a"],
    "x": [1.0, 2.0, None, 4.0, 5.0, 7.0],
    "kind": ["u", "v", "u", None, "u", "v"],
    "z": [3, 1, 4, 1, 5, 9],
}
Y = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 6.0])


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def test_imputing_keeps_the_library_and_the_values(make):
    table = make(ROWS)
    filled = TaskImputer(task_feature="school").fit_transform(table)
    assert type(filled) is type(table) and column_labels(filled) == list(ROWS)
    assert np.asarray(filled["x"]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]
    assert np.asarray(filled["kind"]).tolist() == ["u", "v", "u", "v", "u", "v"]
    assert np.asarray(filled["school"]).tolist() == ROWS["school"]


def test_imputing_keeps_the_index_of_pandas():
    table = pd.DataFrame(ROWS, index=list("pqrstu"))
    filled = TaskImputer(task_feature="school").fit_transform(table)
    assert filled.index.tolist() == list("pqrstu")


@pytest.mark.parametrize(
    "kind", [PrivateMTL(epsilon=None), TaskImputer(), PerTask(LinearRegression())]
)
def test_tables_without_rows_yet_are_refused(kind):
    rows = pl.LazyFrame({"school": ROWS["school"], "z": ROWS["z"]})
    with pytest.raises(TypeError, match=r"X\.collect"):
        kind.set_params(task_feature="school").fit(rows, Y)
    with pytest.raises(TypeError, match=r"y\.collect"):
        PrivateMTL(task_feature="school", epsilon=None).fit(rows.collect(), pl.LazyFrame({"y": Y}))


@pytest.mark.parametrize("places", [[2, 0], np.array([1])], ids=["list", "array"])
@pytest.mark.parametrize("kind", ["numpy", "scipy", *MAKERS])
def test_rows_and_columns_are_taken_by_position(kind, places):
    rows = np.arange(9.0).reshape(3, 3)
    made = {"numpy": np.array, "scipy": sparse.csr_array}
    X = (
        MAKERS[kind]({"c": rows[:, 0], "a": rows[:, 1], "b": rows[:, 2]})
        if kind in MAKERS
        else made[kind](rows)
    )
    if kind == "pandas":
        X.index = [7, 8, 9]
    for axis in (0, 1):
        found = safe_indexing(X, places, axis=axis)
        assert type(found) is type(X)
        found = found.toarray() if kind == "scipy" else np.asarray(found)
        assert_array_equal(found, np.take(rows, places, axis=axis))
    one = X["a"] if kind in MAKERS else np.asarray(rows[:, 1])
    assert_array_equal(np.asarray(safe_indexing(one, places)), rows[places, 1])
    assert safe_indexing(["a", "b"], [1, 0]) == ["b", "a"]
