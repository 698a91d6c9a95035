"""One task's rows never change which rows of another task are trained on."""

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from skpmtl import (
    LeaveTasksOut,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    TaskStratifiedKFold,
    task_train_test_split,
)
from skpmtl.cli import table as cli
from skpmtl.search.rows import SplitRows
from skpmtl.tables.folds import folds_of
from skpmtl.tables.forms import read_training
from tests.helpers.drawn import drawn

LISTED = [*(f"t{k}" for k in range(15))]


def folds(splitter, y, task):
    """Fold of each row."""
    fold = np.full(len(task), -1)  # rows that are never tested
    for k, (_, test) in enumerate(splitter.split(task, y, groups=task)):
        fold[test] = k
    return fold


def held_out(y, task):
    rows = np.arange(len(task))
    _, test, *_ = task_train_test_split(rows, task=task, test_size=0.4, random_state=3)
    return np.isin(rows, test)


def command_line(y, task):
    return np.isin(np.arange(len(task)), cli.split(pd.Series(task), 0.4)[1])


def internal(y, task, cv=2):
    """Folds of the estimators that select a strength."""
    table, _ = read_training(MPMTLLowRank(epsilon=None), np.zeros((len(task), 1)), y, task)
    order = np.arange(len(task)) if table.order is None else table.order
    fold = np.full(len(task), -1)  # rows that are never tested
    for k, (_, test) in enumerate(folds_of(table, cv)):
        fold[order[test]] = k
    return fold


def private_search(y, task):
    rows = SplitRows(MPMTLLowRankClassifier(), np.zeros((len(task), 1)), y, task, 0.4)
    return np.isin(np.arange(len(task)), rows.tested)


SPLITS = {
    "folds": lambda y, task: folds(TaskStratifiedKFold(2), y, task),
    "shuffled": lambda y, task: folds(
        TaskStratifiedKFold(3, shuffle=True, random_state=0), y, task
    ),
    "tasks left out": lambda y, task: folds(LeaveTasksOut(2, random_state=0), y, task),
    "listed tasks left out": lambda y, task: folds(
        LeaveTasksOut(3, tasks=LISTED, random_state=0), y, task
    ),
    "held out": held_out,
    "command line": command_line,
    "private search": private_search,
    "internal": internal,
    "internal, of a splitter": lambda y, task: internal(y, task, TaskStratifiedKFold(2)),
}


@st.composite
def neighbours(draw):
    """Targets and ids of rows in any order, and of a table in which one task has other rows."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=15, max_size=15))
    task = np.array(draw(st.permutations(np.repeat(LISTED, sizes).tolist())), dtype="U3")
    values = st.sampled_from([0.0, 1.0, 2.0, 0.5])
    y = np.array(draw(st.lists(values, min_size=len(task), max_size=len(task))))
    changed = draw(st.sampled_from(LISTED))
    kept = task != changed
    hypothesis.assume(kept.sum() > 9)
    more = draw(st.integers(0, 5))
    places = draw(st.lists(st.integers(0, int(kept.sum())), min_size=more, max_size=more))
    new_y = draw(st.lists(values, min_size=more, max_size=more))
    other = np.insert(y[kept], places, new_y), np.insert(task[kept], places, changed)
    return (y, task), other, changed


@pytest.mark.parametrize("name", SPLITS)
def test_rows_of_one_task_move_no_row_of_another(name):
    @drawn(15, pair=neighbours())
    def check(pair):
        first, second, changed = pair
        try:
            found = [SPLITS[name](*rows) for rows in (first, second)]
        except ValueError as error:  # few rows: a fold is empty
            hypothesis.assume("rows" not in str(error) and "tasks" not in str(error))
            raise
        others = (part[of != changed] for part, (_, of) in zip(found, pair[:2], strict=True))
        np.testing.assert_array_equal(*others)

    check()
