"""Splits by task, in which the rows of one task never change the split of another.

Task ids are read from X, so that no metadata has to be routed.
"""

from collections.abc import Iterator
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import indexable
from sklearn.utils.validation import check_consistent_length

from ._runtime.hints import RandomState
from .tables.assignment import deal, draw_seed, hold_out, random_words
from .tables.forms import encode_rows, take_column, task_position
from .tables.frames import by_position, safe_indexing
from .tables.ids import encode_ids, listed, locate
from .tables.table import distinct_ids

__all__ = ["LeaveTasksOut", "TaskStratifiedKFold", "task_train_test_split"]
__dir__ = __all__.copy


def _task_column(X, task_feature):
    X = by_position(X)
    return take_column(X, task_position(X, task_feature))


def task_train_test_split(
    *arrays,
    task: ArrayLike | None = None,
    task_feature: str | int | None = None,
    test_size: float | None = None,
    train_size: float | None = None,
    random_state: RandomState = None,
) -> list:
    """Split the rows of every task into training and test rows.

    Which rows of a task are test rows follows from the seed, the task's id and the order of its
    rows. Another row in one task changes no other task's split, so a private fit to the training
    rows has the privacy of its report. This does not hold for `train_test_split` of scikit-learn,
    with ``stratify=`` or without it. The split itself adds no privacy: `random_state` may be
    known.

    Parameters
    ----------
    *arrays : sequence of array-like or DataFrame with n_samples rows each
        What to split, such as X and y.
    task : array-like of shape (n_samples,), default=None
        Task ids; they are split too.
    task_feature : str, int or None, default=None
        Column of the first array that holds the task ids, by name or position, instead of `task`.
    test_size : float, default=None
        Share of the rows of every task to test on, between 0 and 1. None: the rest of
        `train_size`, or 0.25. Where it gives a task no whole number of test rows, this number is
        rounded up or down at random; a task with rows keeps at least one training row.
    train_size : float, default=None
        Share of the rows to train on. None: the rest of `test_size`.
    random_state : int, RandomState instance or None, default=None
        Seed of the split.

    Returns
    -------
    splits : list
        Training and test rows of each array, in turn, then of `task`.

    Raises
    ------
    ValueError
        For shares outside 0 to 1, for both or none of `task` and `task_feature`, for missing ids,
        and where no task has enough rows to test on one.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import task_train_test_split
    >>> X, task = np.arange(8), np.repeat(["a", "b"], 4)
    >>> train, test, task_train, task_test = task_train_test_split(
    ...     X, task=task, test_size=0.5, random_state=0)
    >>> task_train.tolist(), task_test.tolist()
    (['a', 'a', 'b', 'b'], ['a', 'a', 'b', 'b'])
    """
    if not arrays:
        raise ValueError("task_train_test_split needs at least one array to split.")
    if (task is None) == (task_feature is None):
        raise ValueError(
            "Give the task of every row: either task=, or task_feature=, a column of the first "
            "array."
        )
    shares = {"test_size": test_size, "train_size": train_size}
    for name, share in shares.items():
        if share is not None and not (isinstance(share, Real) and 0 < share < 1):
            raise ValueError(f"{name}={share!r} must be a share of rows, between 0 and 1.")
    if test_size is None:
        test_size = 0.25 if train_size is None else 1 - train_size
    elif train_size is not None and not np.isclose(test_size + train_size, 1):
        raise ValueError(
            f"test_size={test_size} and train_size={train_size} must add up to 1: give one of them."
        )
    arrays = indexable(*arrays)
    n_rows = arrays[0].shape[0] if hasattr(arrays[0], "shape") else len(arrays[0])
    ids = _task_column(arrays[0], task_feature) if task is None else task
    codes, tasks = encode_rows(ids, n_rows)
    held = hold_out(codes, tasks, float(test_size), draw_seed(random_state))
    if not held.any():
        raise ValueError(
            f"No task has enough rows for test_size={test_size:g}: raise it, or use more rows."
        )
    arrays += [] if task is None else indexable(task)
    sides = np.flatnonzero(~held), np.flatnonzero(held)
    return [safe_indexing(values, rows) for values in arrays for rows in sides]


class _TaskSplitter(BaseCrossValidator):
    __metadata_request__split = {"groups": True}
    _splits_by_task = True  # for `skpmtl.privacy.grid_search_cost`

    def get_n_splits(self, X=None, y: ArrayLike | None = None, groups=None) -> int:
        """Number of folds; the arguments are not used.

        Parameters
        ----------
        X, y, groups : object
            Not used.

        Returns
        -------
        n_splits : int
        """
        return self.n_splits

    def _codes(self, X, y, groups):
        """Task number of every row, ids of the tasks."""
        if not isinstance(self.n_splits, Integral) or self.n_splits < 2:
            raise ValueError(f"n_splits={self.n_splits!r} must be an integer of at least 2.")
        if groups is None:
            if self.task_feature is None:
                raise ValueError(
                    f"{type(self).__name__} needs the task of every row: set task_feature to a "
                    "column of X, or pass the ids as groups=."
                )
            groups = _task_column(X, self.task_feature)
        codes, tasks = encode_ids(groups)
        check_consistent_length(codes, X, y)
        return codes, tasks

    def split(
        self, X, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Row numbers of the training and test sets.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Labels that `TaskStratifiedKFold` spreads over the folds.
        groups : array-like of shape (n_samples,), default=None
            Task ids, instead of those in `task_feature`.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            Without ids, for a wrong `n_splits`, and where a fold has no rows.
        """
        fold = self._fold(X, y, groups)
        if len(np.unique(fold[fold >= 0])) < self.n_splits:
            raise ValueError(f"n_splits={self.n_splits} leaves a fold without rows: {self._remedy}")
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


class TaskStratifiedKFold(_TaskSplitter):
    """K folds that each contain rows of every task, so that every task stays in every training set.

    The rows of a task are dealt out one to each fold in turn, from a fold that is drawn for the
    task. A task of two or more rows is in every training set, and its shares of the folds differ by
    at most one row. A task deals its rows label after label of y, so that a class with two or more
    rows in a task is in every training set too; targets that are all different are dealt as they
    come. A task with a single row is in every training set and is never tested, since no model of
    it could be: ``cross_val_predict``, which wants every row tested once, refuses such tables.

    The folds of a task follow from the seed, its id and its own rows. Another row in one task
    changes no other task's folds, so a private fit to a training set has the privacy of its report.
    The folds themselves add no privacy: their seed may be known.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: the ids are passed to
        `split` as `groups`.
    shuffle : bool, default=False
        Deal the rows of a task in random order.
    random_state : int, RandomState instance or None, default=None
        Seed of the first folds of the tasks and of the shuffling. None: with ``shuffle=True`` a new
        one for every split, otherwise 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import TaskStratifiedKFold
    >>> X = np.array([[0, 1.], [0, 2.], [0, 3.], [1, 4.], [1, 5.]])
    >>> for train, test in TaskStratifiedKFold(2, task_feature=0).split(X):
    ...     print(train, test)
    [0 2 4] [1 3]
    [1 3] [0 2 4]
    """

    _remedy = (
        "lower it, or use another random_state. A task of one row is never tested: LeaveTasksOut "
        "tests whole tasks."
    )

    def __init__(
        self,
        n_splits: int = 5,
        *,
        task_feature: str | int | None = None,
        shuffle: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_splits = n_splits
        self.task_feature = task_feature
        self.shuffle = shuffle
        self.random_state = random_state

    def _fold(self, X, y, groups):
        codes, tasks = self._codes(X, y, groups)
        if self.n_splits > len(codes):
            raise ValueError(f"n_splits={self.n_splits} exceeds the {len(codes)} rows.")
        fixed = self.random_state is None and not self.shuffle
        fold = deal(
            codes,
            tasks,
            self.n_splits,
            labels=y if np.ndim(y) == 1 else None,
            seed=0 if fixed else draw_seed(self.random_state),
            shuffle=self.shuffle,
        )
        fold[np.bincount(codes)[codes] == 1] = -1
        return fold


class LeaveTasksOut(_TaskSplitter):
    """K folds of whole tasks: the tasks of a test set are not in its training set.

    This measures how well a method predicts tasks that it has not seen: tasks that the estimator
    lists in ``tasks=`` get the released model, others need ``unseen_task="mean"``.

    Each task goes to a fold by its id and the seed alone, so that rows of one task, or its absence,
    never change the folds of others. Without `tasks` the folds therefore differ in size.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2 and at most the number of tasks.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: the ids are passed to
        `split` as `groups`.
    tasks : array-like or None, default=None
        Public list of all tasks, with or without rows, which are dealt out evenly to the folds.
    random_state : int, RandomState instance or None, default=None
        Seed of the assignment of tasks to folds, which is always random.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import LeaveTasksOut
    >>> task = np.repeat([1, 2, 3, 4], 2)
    >>> for train, test in LeaveTasksOut(2, tasks=range(1, 5), random_state=0).split(
    ...     task, groups=task
    ... ):
    ...     print(len(test), set(task[train]) & set(task[test]))
    4 set()
    4 set()
    """

    _remedy = (
        "list all tasks in tasks=, which deals them out evenly, lower n_splits, or use another "
        "random_state."
    )

    def __init__(
        self,
        n_splits: int = 5,
        *,
        task_feature: str | int | None = None,
        tasks=None,
        random_state: RandomState = None,
    ) -> None:
        self.n_splits = n_splits
        self.task_feature = task_feature
        self.tasks = tasks
        self.random_state = random_state

    def _fold(self, X, y, groups):
        codes, present = self._codes(X, None, groups)
        known = present if self.tasks is None else np.sort(distinct_ids(self.tasks, "tasks="))
        if self.n_splits > len(known):
            raise ValueError(f"n_splits={self.n_splits} exceeds the number of tasks, {len(known)}.")
        place = locate(present, known)
        if (place < 0).any():
            raise ValueError(f"tasks= lacks tasks that have rows: {listed(present[place < 0])}.")
        number = random_words(draw_seed(self.random_state), "tasks", known)
        if self.tasks is not None:  # ranks in a public list, which fill the folds evenly
            number = np.argsort(np.argsort(number)).astype(np.uint64)
        return (number % np.uint64(self.n_splits)).astype(np.int64)[place][codes]
