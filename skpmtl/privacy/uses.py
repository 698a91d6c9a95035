"""What others do with a fitted estimator: predict for their tasks, and add new tasks."""

import copy
import inspect
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from .observation import observing

_MOST_TASKS, _MOST_ROWS = 2, 12  # of what is predicted
# Attributes that stay with their task, are compared elsewhere, or are how far a generator is.
OWN = {"models_", "_idle_", "_skl_callbacks", "random_state"}
_NOT_USES = ("fit", "partial_fit", "set_", "get_", "personalize", "from_", "_")


@dataclass(frozen=True)
class RowsOfTasks:
    """Rows of tasks, as those who use a fit have them.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Without the task.
    y : ndarray of shape (n,)
        Targets as given to the fit.
    task : ndarray of shape (n,)
    levels : dict of str or int to ndarray of shape (n,), default={}
        Levels of rows by the name of their factor.
    """

    X: object
    y: np.ndarray
    task: np.ndarray
    levels: dict = field(default_factory=dict)

    @classmethod
    def of(cls, table, tasks):
        """The first rows of some tasks of a table."""
        parts = [(k, *table.task(k)) for k in np.flatnonzero(np.isin(table.tasks, tasks))]
        parts = [(k, X[:_MOST_ROWS], y[:_MOST_ROWS]) for k, X, y in parts[:_MOST_TASKS]]
        stack, levels = sparse.vstack if table.is_sparse else np.concatenate, {}
        if table.levels is not None:
            rows = np.concatenate([table.offsets[k] + np.arange(len(y)) for k, _, y in parts])
            levels = dict(zip(table.levels.names, table.levels.values(rows), strict=True))
        return cls(
            stack([X for _, X, _ in parts]),
            np.concatenate([y for *_, y in parts]),
            np.concatenate([np.repeat(table.tasks[k : k + 1], len(y)) for k, _, y in parts]),
            levels,
        )

    def twice(self, task):
        """The rows of the first task as those of two others, `task` (2,)."""
        n = int((self.task == self.task[0]).sum())
        stack = sparse.vstack if sparse.issparse(self.X) else np.concatenate
        levels = {name: np.tile(own[:n], 2) for name, own in self.levels.items()}
        given = stack([self.X[:n]] * 2), np.tile(self.y[:n], 2), np.repeat(task, n)
        return RowsOfTasks(*given, levels)

    def arguments(self, model):
        """X, y and task by name; levels, and where the estimator has it there the task, are columns
        of X."""
        given, more = {"X": self.X, "y": self.y, "task": self.task}, {}
        if getattr(model, "task_feature", None) is not None:
            more[model._form_.position] = given.pop("task")
        more |= {model._form_.factors[name]: own for name, own in self.levels.items()}
        if not more:
            return given
        dense = self.X.toarray() if sparse.issparse(self.X) else self.X
        columns = list(np.asarray(dense, dtype=object).T)
        for place in sorted(more):
            columns.insert(place, more[place])
        columns = [np.array(column.tolist()) for column in columns]
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            numbers = all(column.dtype.kind in "biuf" for column in columns)
            columns = [column.astype(float if numbers else object) for column in columns]
            given["X"] = np.stack(columns, axis=1)
        else:
            import pandas as pd

            given["X"] = pd.DataFrame(dict(zip(names, columns, strict=True)))
        return given


def new_tasks(tasks):
    """Ids of two tasks that are not among these."""
    if tasks.dtype.kind in "iuf":
        return (tasks.max() + np.arange(1, 3)).astype(tasks.dtype)
    return np.array(["~ one task more", "~ two tasks more"], dtype=object)


def outcomes(model, table, changed, newcomers):
    """What comes of the use of a fit by tasks whose rows no neighbour changes.

    Every public method that takes rows, one task, or nothing is called: for tasks of the fit, for
    tasks that the fit does not know, and for these again after ``personalize``, of which the second
    has rows without any weight.

    Parameters
    ----------
    model : estimator
        Fitted; it is not changed.
    table : TaskTable
        Where rows are taken from.
    changed : list
        Ids of the tasks of which nothing is called.
    newcomers : ndarray (2,)
        Ids of the tasks that the fit does not know.

    Returns
    -------
    found : dict of str to object
        By what was done: what came back, or the type and text of the error.
    said : dict
        See `skpmtl.privacy.observation.observing`.
    """
    found, said = {}, {}
    others = np.setdiff1d(table.tasks, changed)
    rows = RowsOfTasks.of(table, others if len(others) else table.tasks)
    new = rows.twice(newcomers)
    with observing(said), np.errstate(all="ignore"):
        found["repr"] = _outcome(repr, model)
        _call_alone(model, changed, found)
        if len(others):
            _call_all(model, rows, "other tasks", found)
        _call_all(model, new, "unseen tasks", found)
        if hasattr(model, "personalize"):
            richer = copy.copy(model)
            weight = (new.task == newcomers[0]).astype(float)
            done = _outcome(richer.personalize, sample_weight=weight, **new.arguments(model))
            found["personalize"] = done if done is not richer else None
            if done is richer:
                _call_all(richer, new, "new tasks", found)
                found["attributes after personalize"] = _new_attributes(model, richer, newcomers)
    return found, said


def _methods(model):
    """Public methods, without those that fit or set: name, method, what it takes, what it needs."""
    for name in dir(type(model)):
        if name.startswith(_NOT_USES):
            continue
        method = getattr(model, name, None)  # some are there for other parameters only
        if inspect.ismethod(method):
            accepted = inspect.signature(method).parameters.values()
            needed = [p for p in accepted if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
            yield name, method, {p.name for p in accepted}, {p.name for p in needed}


def _call_all(model, rows, whose, found):
    given = rows.arguments(model)
    for name, method, accepted, needed in _methods(model):
        if "X" in accepted and needed <= given.keys():
            known = {key: value for key, value in given.items() if key in accepted}
            found[f"{name} for {whose}"] = _outcome(method, **known)
        elif needed == {"task"}:
            for task in dict.fromkeys(rows.task.tolist()):
                found[f"{name} for {whose}", task] = _outcome(method, task)


def _call_alone(model, changed, found):
    """Methods that need no arguments; of frames with an index of tasks the rows of the others."""
    for name, method, accepted, needed in _methods(model):
        if needed or "X" in accepted:
            continue
        value = _outcome(method)
        if hasattr(value, "columns") and hasattr(value, "index"):
            rows = ~value.index.get_level_values(0).isin(changed)
            value = (
                list(value.columns),
                value.index[rows].tolist(),
                value.to_numpy()[rows],
            )
        found[name] = value


def _outcome(method, *given, **named):
    try:
        return method(*given, **named)
    except Exception as error:
        return type(error), str(error)


def _new_attributes(before, after, newcomers):
    """Attributes that `personalize` changed; of those with a row for each task, the new ones."""
    mine, n = np.isin(after.tasks_, newcomers), len(after.tasks_)
    found = {}
    for name, value in vars(after).items():
        if name not in OWN and vars(before).get(name) is not value:
            per_task = isinstance(value, np.ndarray) and value.ndim and len(value) == n
            found[name] = value[mine] if per_task else value
    return found
