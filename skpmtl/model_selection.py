"""Splitters by task; they read task ids from X, so that no metadata has to be routed."""

from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length

from .tables.folds import deal
from .tables.forms import take_column, task_position
from .tables.ids import encode_ids
from .tables.sparse import checked

__all__ = ["LeaveTasksOut", "TaskStratifiedKFold"]


def __dir__():
    return __all__


_CLASSES = ("binary", "multiclass")  # of `type_of_target`


class _TaskSplitter(BaseCrossValidator):
    __metadata_request__split = {"groups": True}

    def get_n_splits(self, X=None, y=None, groups=None):
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
        """Task number of every row, number of tasks."""
        if not isinstance(self.n_splits, Integral) or self.n_splits < 2:
            raise ValueError(f"n_splits={self.n_splits!r} must be an integer of at least 2.")
        if groups is None:
            if self.task_feature is None:
                raise ValueError(
                    f"{type(self).__name__} needs the task of every row: set task_feature to a "
                    "column of X, or pass the ids as groups=."
                )
            X = checked(X) if hasattr(X, "columns") or sparse.issparse(X) else np.asarray(X)
            groups = take_column(X, task_position(X, self.task_feature))
        codes, tasks = encode_ids(groups)
        check_consistent_length(codes, X, y)
        return codes, len(tasks)

    def split(self, X, y=None, groups=None):
        """Row numbers of the training and test sets.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Used by `TaskStratifiedKFold` if it has classes: text, booleans or whole numbers.
        groups : array-like of shape (n_samples,), default=None
            Task ids, instead of those in `task_feature`.

        Yields
        ------
        train, test : ndarray of int
        """
        fold = self._fold(X, y, groups)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


class TaskStratifiedKFold(_TaskSplitter):
    """K folds that each contain rows of every task, so that every task stays in every training set.

    The rows are dealt out task after task, one to each fold in turn. A task of two or more
    rows is in every training set, and fold sizes differ by at most one row. With classes in y
    the rows of a task are dealt class after class, so that a class with two or more rows in a
    task is in every training set too, and begin with another fold in every task, so that a class
    with one row in each of some tasks is. A task with a single row cannot be kept.

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
        Seed of the shuffling.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import TaskStratifiedKFold
    >>> X = np.array([[0, 1.], [0, 2.], [0, 3.], [1, 4.], [1, 5.]])
    >>> for train, test in TaskStratifiedKFold(2, task_feature=0).split(X):
    ...     print(train, test)
    [1 3] [0 2 4]
    [0 2 4] [1 3]
    """

    def __init__(self, n_splits=5, *, task_feature=None, shuffle=False, random_state=None):
        self.n_splits = n_splits
        self.task_feature = task_feature
        self.shuffle = shuffle
        self.random_state = random_state

    def _fold(self, X, y, groups):
        codes, _ = self._codes(X, y, groups)
        if self.n_splits > len(codes):
            raise ValueError(f"n_splits={self.n_splits} exceeds the {len(codes)} rows.")
        labels = order = None
        if y is not None and np.ndim(y) == 1 and type_of_target(y) in _CLASSES:
            labels = np.asarray(y)
        if self.shuffle:
            order = check_random_state(self.random_state).random_sample(len(codes))
        return deal(codes, self.n_splits, labels, order)


class LeaveTasksOut(_TaskSplitter):
    """K folds of whole tasks: the tasks of a test set are not in its training set.

    This measures how well a method predicts tasks that it has not seen: tasks that the estimator
    lists in ``tasks=`` get the released model, others need ``unseen_task="mean"``.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2 and at most the number of tasks.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: the ids are passed to
        `split` as `groups`.
    random_state : int, RandomState instance or None, default=None
        Seed of the assignment of tasks to folds, which is always random.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import LeaveTasksOut
    >>> task = np.repeat([1, 2, 3, 4], 2)
    >>> for train, test in LeaveTasksOut(2, random_state=0).split(task, groups=task):
    ...     print(len(test), set(task[train]) & set(task[test]))
    4 set()
    4 set()
    """

    def __init__(self, n_splits=5, *, task_feature=None, random_state=None):
        self.n_splits = n_splits
        self.task_feature = task_feature
        self.random_state = random_state

    def _fold(self, X, y, groups):
        codes, n_tasks = self._codes(X, None, groups)
        if self.n_splits > n_tasks:
            raise ValueError(f"n_splits={self.n_splits} exceeds the number of tasks, {n_tasks}.")
        fold = check_random_state(self.random_state).permutation(n_tasks) % self.n_splits
        return fold[codes]
