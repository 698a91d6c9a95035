"""Factors above tasks: every task has one of their public levels, as a school has a district."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from .._runtime.public import Public
from .ids import listed, locate
from .relation import UNNAMED, columns_of

__all__ = ["Factor", "read_factor", "without_factors"]

ABOVE = "above"
_REMEDIES = {
    "below": "it is part of the rows of a task, and their noise has its variance. Leave it out; or "
    "make its levels the tasks, if they are what is protected.",
    "across": "give X a column of zeros and ones for every level of its public list, as "
    "OneHotEncoder(categories=[...]) makes them.",
}


@dataclass(eq=False)
class Factor(Public):
    """Levels of one factor above the tasks.

    Attributes
    ----------
    name : str
    levels : list of str
        That tasks of the fit have, sorted.
    tasks : list of int or str
        Tasks whose level is known, sorted, including those that may be added after a fit.
    codes : list of int
        Their places among `levels`; -1 of a level that no task of the fit has.
    counts : list of int
        Tasks of the fit by level.
    """

    name: str
    levels: list
    tasks: list
    codes: list
    counts: list

    @property
    def n_levels(self):
        return len(self.levels)

    def of(self, tasks):
        """Places (n,) of the levels of task ids, -1 of a level that no task of the fit has.

        Raises ValueError for tasks whose level is not known.
        """
        at = locate(np.asarray(tasks), np.array(self.tasks)) if len(tasks) else np.empty(0, int)
        if (at < 0).any():
            raise ValueError(
                f"Tasks without a {self.name} in relation=: {listed(np.asarray(tasks)[at < 0])}. "
                "Add their rows before the fit or, for tasks that come later, by relate()."
            )
        return np.array(self.codes, dtype=int)[at]

    def indicators(self, tasks):
        """(n, n_levels) with a one where the level of a task is."""
        return (self.of(tasks)[:, None] == np.arange(self.n_levels)).astype(float)

    def effects(self, tasks, effects, of_new=0.0):
        """The effect of the level of every task, (n,); `of_new` of a level that is new."""
        return np.append(effects, of_new)[self.of(tasks)]

    def with_tasks(self, given):
        """A copy that knows the level of further tasks, as `Relation.with_tasks`."""
        ids, values = _values_of(given, self.name)
        locate(ids, np.array(self.tasks))  # strings among integers are refused
        known = dict(zip(self.tasks, self.codes, strict=True))
        known.update(zip(ids.tolist(), self._codes(values), strict=True))
        tasks = sorted(known)
        return replace(self, tasks=tasks, codes=[known[task] for task in tasks])

    def _codes(self, values):
        number = {level: j for j, level in enumerate(self.levels)}
        return [number.get(str(value), -1) for value in values]

    def describe(self):
        """The line of a report."""
        return f"public, {self.name} of {sum(self.counts)} tasks, {self.n_levels} levels"

    def check(self):
        """Raise ValueError for levels that do not go together with tasks."""
        n = len(self.tasks)
        kinds = {type(task) for task in self.tasks}
        if len(set(self.tasks)) != n or kinds not in ({int}, {str}):
            raise ValueError("tasks of its factor must be different integers, or strings")
        known = all(isinstance(level, str) for level in self.levels)
        if not known or len(set(self.levels)) != self.n_levels or not self.levels:
            raise ValueError("levels of its factor must be different strings")
        if len(self.codes) != n or len(self.counts) != self.n_levels:
            raise ValueError("its factor has another number of tasks or levels than of numbers")
        if not all(type(c) is int and -1 <= c < self.n_levels for c in self.codes):
            raise ValueError("tasks of its factor have levels that it lacks")
        if not all(type(c) is int and c > 0 for c in self.counts):
            raise ValueError("levels of its factor must have tasks")


def read_factor(factors, given, tasks):
    """The factor above the tasks that `factors` names.

    Parameters
    ----------
    factors : mapping of str to "above", or Factor
        Columns of `given` that stand above the tasks: one.
    given : DataFrame, Series or mapping
        Public table of the tasks, as `relation` of the estimators.
    tasks : ndarray (m,)
        Ids of the tasks of the fit, sorted.

    -> factor : Factor

    Raises
    ------
    TypeError, ValueError
        For other kinds of factors, with the remedy, and for tasks without a level.
    """
    if isinstance(factors, Factor):
        factors.of(tasks)  # all of them are known
        return factors
    name = _name_of(factors)
    if given is None:
        raise ValueError(
            f"factors= says that {name!r} stands above the tasks, and which task has which level "
            f"would be read from private rows. Pass the public table: relation={{task: {name}}}."
        )
    ids, values = _values_of(given, name)
    at = locate(tasks, ids)
    if (at < 0).any():
        raise ValueError(
            f"Tasks without a row in relation=: {listed(tasks[at < 0])}. Give all of tasks= a row, "
            "with ids of the same type."
        )
    levels, counts = np.unique([str(values[k]) for k in at], return_counts=True)
    factor = Factor(name, levels.tolist(), ids.tolist(), [], counts.tolist())
    return replace(factor, codes=factor._codes(values))


def without_factors(factors, given):
    """What remains of `relation` once its factors are taken out; None where nothing does."""
    if factors is None or isinstance(factors, Factor) or given is None:
        return given
    ids, columns = _columns_of(given, _name_of(factors))
    rest = {name: column for name, column in columns.items() if name not in factors}
    if not rest:
        return None
    rows = zip(*rest.values(), strict=True)
    return {task: dict(zip(rest, row, strict=True)) for task, row in zip(ids, rows, strict=True)}


def _name_of(factors):
    if not isinstance(factors, Mapping) or not factors:
        raise TypeError('factors= must be a mapping, such as {"district": "above"}.')
    for name, place in factors.items():
        if place in _REMEDIES:
            raise ValueError(f"The factor {name!r} stands {place} tasks: {_REMEDIES[place]}")
        if place != ABOVE:
            raise ValueError(f'factors={{{name!r}: {place!r}}} must be "above".')
    if len(factors) > 1:
        raise ValueError(
            f"factors= names {listed(list(factors))}: one factor stands above tasks. Join their "
            "levels to one column, or pass the others as covariates."
        )
    return str(next(iter(factors)))


def _columns_of(given, name):
    """-> ids (n,), {name: list of n values}; a single column without a name is the factor"""
    ids, columns = columns_of(given)
    return ids, {name: columns[UNNAMED]} if list(columns) == [UNNAMED] else columns


def _values_of(given, name):
    """-> ids (n,), sorted, and list of n levels"""
    ids, columns = _columns_of(given, name)
    if name not in columns:
        raise ValueError(f"relation= has no column {name!r}, which factors= names.")
    order = np.argsort(ids)
    return ids[order], [columns[name][k] for k in order]
