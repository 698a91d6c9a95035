"""Columns of X that hold the levels of rows, of factors below and across tasks."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skpmtl import PrivateMTL
from skpmtl.tables.factors import read_places
from skpmtl.tables.folds import some_rows
from skpmtl.tables.forms import read_rows, read_training
from skpmtl.tables.table import table_of

BOTH = {"class": "below", "item": ("across", ["c", "b", "a"]), "district": "above"}
SCHOOL = np.array([2, 1, 2, 1, 2])
ITEM, CLASS = np.array(["b", "a", "c", "b", "b"]), np.array([10, 11, 10, 12, 11])
X = np.arange(10.0).reshape(5, 2)
Y = np.arange(5.0)


def frame(item=ITEM):
    columns = {"x": X[:, 0], "class": CLASS, "school": SCHOOL, "item": item, "z": X[:, 1]}
    return pd.DataFrame(columns)


def estimator(**more):
    return PrivateMTL(**{"factors": BOTH, "task_feature": "school", **more})


def read(est, *given, **named):
    table, form = read_training(est, *given, **named)
    values = dict(zip(table.levels.names, table.levels.values(), strict=True))
    return table, form, values


def test_levels_leave_the_features_and_follow_the_rows():
    est = estimator()
    table, form, values = read(est, frame(), Y)
    order = np.argsort(SCHOOL, kind="stable")
    assert_array_equal(table.X, X[order])
    assert_array_equal(values["class"], CLASS[order])
    assert_array_equal(values["item"], ITEM[order])
    assert form.columns == (2, 1, 3) and est.n_features_in_ == 5


@pytest.mark.parametrize(
    "kind", ["array", "csr", "float32", "keyword", "mapping", "arrays", "wide"]
)
def test_levels_come_from_every_form_of_input(kind):
    factors = {0: "below", 2: "across"}
    numbers = np.stack([CLASS, X[:, 0], ITEM == "b", X[:, 1]], axis=1).astype(float)
    est, order, given = estimator(factors=factors, task_feature=None), np.argsort(SCHOOL), {}
    order = np.argsort(SCHOOL, kind="stable")
    Z, y, task = numbers, Y, SCHOOL
    if kind in ("array", "csr", "float32"):
        Z, task = np.column_stack([numbers, SCHOOL]), None
        est.set_params(task_feature=4, dtype="float32" if kind == "float32" else "float64")
    if kind == "csr":
        Z = sparse.csr_array(Z)
    if kind == "mapping":
        est.set_params(factors={"class": "below", "item": "across"})
        Z = {t: frame().drop(columns="school")[t == SCHOOL] for t in (1, 2)}
    if kind == "arrays":
        Z = {t: numbers[t == SCHOOL] for t in (1, 2)}
    if kind in ("mapping", "arrays"):
        y, task = {t: Y[t == SCHOOL] for t in (1, 2)}, None
    if kind == "wide":
        y, task = np.where(SCHOOL[:, None] == [1, 2], Y[:, None], np.nan), None
    table, _, values = read(est, Z, y, task, **given)
    rows = np.arange(5) if table.rows is None else table.rows
    if kind == "wide":
        assert_array_equal(rows, order)
    found = table.X.toarray() if kind == "csr" else np.asarray(table.X)[rows]
    assert_array_equal(found, X[order])
    below, across = values.values()
    assert_array_equal(below, CLASS[order])
    assert_array_equal(across, (ITEM if kind == "mapping" else ITEM == "b")[order])


def test_parts_of_a_table_keep_the_levels_of_their_rows():
    table, *_ = read(estimator(), frame(), Y, sample_weight=[1.0, 2.0, 0.0, 1.0, 1.0])
    levels = np.stack(table.levels.values(), axis=1)
    assert_array_equal(levels[:, 0], [11, 12, 10, 11])
    part = table_of(table, np.array([1]))
    assert_array_equal(np.stack(part.levels.values(), axis=1), levels[2:])
    part, _ = some_rows(table, np.array([True, False, False, True]), spread=False)
    assert_array_equal(np.stack(part.levels.values(), axis=1), levels[[0, 3]])


def test_new_levels_are_known_as_such_in_predictions():
    est = estimator()
    table, est._form_, _ = read(est, frame(), Y)
    est.tasks_ = table.tasks
    rows = read_rows(est, frame(np.array(["a", "new", "c", "b", "older"])))
    assert_array_equal(rows.levels.among("item", np.array(["a", "b", "c"])), [0, -1, 2, 1, -1])
    assert_array_equal(rows.features(), X)


@pytest.mark.parametrize(
    ("factors", "item", "words"),
    [
        ({"class": "below", "shelf": "across"}, ITEM, "factor='shelf' is not a column of X"),
        (BOTH, np.array(["a", None, "b", "b", "b"], object), "item level id missing.*1 row"),
        (BOTH, np.array(["a", "d", "b", "b", "b"]), r"1 row\(s\).*'item' that its public list"),
        ({"school": "below"}, ITEM, "are the same column of X"),
        ({"item": "beyond"}, ITEM, 'must be "above", "below" or "across"'),
        ({"item": ("below", ["a"])}, ITEM, 'must be "above", "below" or "across"'),
        ({"item": ("across", ["a", "a"])}, ITEM, "more than once"),
        ({"item": "across", "class": "across"}, ITEM, "one factor stands across tasks"),
    ],
)
def test_faults_of_levels_are_named_with_a_remedy(factors, item, words):
    with pytest.raises(ValueError, match=words):
        read(estimator(factors=factors), frame(item), Y)


def test_factors_survive_a_clone():
    est = clone(estimator())
    assert [place for place, _ in read_places(est.factors).values()] == ["below", "across", "above"]
