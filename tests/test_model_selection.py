"""Splits: every task on both sides, or on one, whatever rows other tasks have."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from skpmtl.model_selection import LeaveTasksOut, TaskStratifiedKFold
from tests.helpers.tiny_ridge import TinyRidge


def random_ids(seed, n_tasks=139, rows=(2, 8)):
    rng = np.random.default_rng(seed)
    return rng.permutation(np.repeat(np.arange(n_tasks), rng.integers(*rows, n_tasks)))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n_splits", [2, 5, 10])
@pytest.mark.parametrize("rows", [(2, 8), (22, 251)])
def test_every_task_is_in_every_training_set(shuffle, n_splits, rows):
    task = random_ids(n_splits, rows=rows)
    cv = TaskStratifiedKFold(
        n_splits, task_feature=1, shuffle=shuffle, random_state=0 if shuffle else None
    )
    X = np.column_stack([np.zeros(len(task)), task])
    seen, n_folds = np.zeros(len(task), dtype=int), 0
    share = np.bincount(task) / n_splits
    for train, test in cv.split(X):
        assert set(task[train]) == set(range(139))
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(task)))
        part = np.bincount(task[test], minlength=139)
        assert (abs(part - share) < 1).all()  # each task is dealt evenly
        seen[test] += 1
        n_folds += 1
    assert (seen == 1).all()
    assert cv.get_n_splits(X) == n_folds == n_splits


def test_ids_come_from_any_container(school_like):
    frame, y = school_like()
    number = np.unique(frame["school"], return_inverse=True)[1]
    expected = {
        name: [test for _, test in TaskStratifiedKFold(3).split(frame, groups=ids)]
        for name, ids in [("text", frame["school"]), ("number", number)]
    }
    array = np.column_stack([frame.drop(columns="school"), number])
    for X, feature, ids in [
        (frame, "school", "text"),
        (frame, 1, "text"),
        (pl.DataFrame(frame.to_dict("list")), "school", "text"),
        (frame.astype({"school": "category"}), "school", "text"),
        (array, -1, "number"),
        (array.tolist(), 4, "number"),
        (sparse.csr_matrix(array), -1, "number"),
        (frame.assign(school=number.astype(str)), "school", "number"),
    ]:
        cv = clone(TaskStratifiedKFold(3, task_feature=feature), safe=False)
        for (_, test), known in zip(cv.split(X, y), expected[ids], strict=True):
            assert_array_equal(test, known)


def test_shuffle_follows_the_seed():
    task = random_ids(0)

    def tests(**parameters):
        cv = TaskStratifiedKFold(3, shuffle=True, **parameters)
        return np.concatenate([test for _, test in cv.split(task, groups=task)])

    assert_array_equal(tests(random_state=1), tests(random_state=1))
    assert (tests(random_state=1) != tests(random_state=2)).any()


def test_leave_tasks_out(school_like):
    frame, _ = school_like(n_tasks=11)
    ids, left_out = frame["school"].to_numpy(), []
    cv = LeaveTasksOut(4, task_feature="school", tasks=np.unique(ids), random_state=3)
    for train, test in cv.split(frame):
        assert not set(ids[train]) & set(ids[test])
        assert len(train) + len(test) == len(frame)
        left_out.append(sorted(set(ids[test])))
    assert sorted(sum(left_out, [])) == sorted(set(ids))
    assert {len(part) for part in left_out} == {2, 3}
    again = [sorted(set(ids[test])) for _, test in cv.split(frame)]
    assert again == left_out


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("sizes", [[5] * 30, [10] * 12, [4, 9, 2, 6] * 8, [7] * 20])
def test_classes_stay_in_training_sets(sizes, shuffle):
    """Three classes, of which the rare ones have a row or two in a task."""
    task = np.repeat(np.arange(len(sizes)), sizes)
    place = np.concatenate([np.arange(n) for n in sizes])
    y = np.select([place == 0, (place < 3) & (task % 2 == 0)], ["rare", "some"], "often")
    cv = TaskStratifiedKFold(5, shuffle=shuffle, random_state=0 if shuffle else None)
    groups = {(t, c): np.sum((task == t) & (y == c)) for t in set(task) for c in set(y)}
    for train, _ in cv.split(task, y, groups=task):
        assert set(y[train]) == set(y)  # a fold with all that is rare would leave none
        assert set(task[train]) == set(task)
        held = {(t, c) for t, c in zip(task[train], y[train], strict=True)}
        assert held >= {key for key, count in groups.items() if count > 1}


@pytest.mark.parametrize("splitter", [TaskStratifiedKFold, LeaveTasksOut])
def test_bad_input_is_named(splitter):
    X, ids = np.zeros((4, 2)), [1, 1, 2, 2]
    with pytest.raises(ValueError, match="set task_feature to a column of X, or pass the ids"):
        next(splitter(2).split(X))
    for n_splits in (1, 2.0, "two"):
        with pytest.raises(ValueError, match="n_splits=.*integer of at least 2"):
            next(splitter(n_splits).split(X, groups=ids))
    with pytest.raises(ValueError, match="n_splits=5 exceeds"):
        next(splitter(5).split(X, groups=ids))
    with pytest.raises(ValueError, match="missing"):
        next(splitter(2).split(X, groups=[1, 1, None, 2]))
    with pytest.raises(ValueError, match="inconsistent"):
        next(splitter(2).split(X, groups=ids + [3]))
    with pytest.raises(ValueError, match="Did you mean 'remainder__school'"):
        frame = pd.DataFrame({"remainder__school": ids, "x": 0.0})
        next(splitter(2, task_feature="school").split(frame))


def test_a_task_of_one_row_is_always_trained_and_never_tested():
    task = np.array([0, 0, 0, 1, 2, 2, 2, 3])
    X = np.c_[task, np.arange(8.0)]
    tested = []
    for train, test in TaskStratifiedKFold(3, task_feature=0).split(X):
        assert {3, 7} <= set(train)
        tested += test.tolist()
    assert sorted(tested) == [0, 1, 2, 4, 5, 6]
    cv = TaskStratifiedKFold(3, task_feature=0)
    scores = cross_val_score(TinyRidge(task_feature=0), X, X[:, 1], cv=cv)
    assert np.isfinite(scores).all()
