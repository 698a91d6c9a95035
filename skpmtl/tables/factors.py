"""Factors: where the levels of a second grouping stand, and those above tasks, as districts.

Above tasks every task has one public level; below them and across them every row has one, in a
column of X that is taken out before the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from .._runtime.constraints import Interval
from .._runtime.public import Public
from .ids import encode_ids, listed, locate
from .relation import UNNAMED, columns_of
from .table import distinct_ids

__all__ = [
    "Factor",
    "FactorEffects",
    "RowFactor",
    "RowLevels",
    "factor_in",
    "read_across",
    "read_factor",
    "read_levels",
    "read_places",
    "rows_of_factors",
    "without_factors",
]

ABOVE, BELOW, ACROSS = "above", "below", "across"


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

    @property
    def place(self):
        """What `factors` of an estimator that knows it names."""
        return self

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


@dataclass(eq=False)
class RowFactor(Public):
    """Levels of a factor across tasks, such as items that pupils of many schools answer.

    Attributes
    ----------
    name : str or int
        Column of X.
    levels : list of int or str
        Sorted.
    """

    name: str | int
    levels: list

    @property
    def n_levels(self):
        return len(self.levels)

    @property
    def place(self):
        """What `factors` of an estimator names."""
        return ACROSS, self.levels

    def of(self, row_levels, rows=slice(None)):
        """Places (n_rows,) of the levels of `RowLevels`, -1 of one that is not listed."""
        return row_levels.among(self.name, np.array(self.levels), rows)

    def describe(self):
        """The line of a report."""
        return f"public, {self.name} of rows, {self.n_levels} levels"

    def check(self):
        """Raise ValueError for levels that are not different integers or strings, sorted."""
        kinds = {type(level) for level in self.levels}
        if kinds not in ({int}, {str}) or self.levels != sorted(set(self.levels)):
            raise ValueError("levels of its factor across tasks must be different, and sorted")


@dataclass(eq=False)
class FactorEffects(Public):
    """What is known of the effects of a factor above or across tasks, in units of the target.

    Attributes
    ----------
    factor : Factor or RowFactor
    effects : ndarray (n_levels,)
        What levels of tasks, or targets of rows, are moved by.
    spread : float or None
        Standard deviation of effects; None where nothing was released.
    doubt : ndarray (n_levels,) or None
        Standard deviations of the effects about what was found of them.
    """

    factor: Factor | RowFactor
    effects: np.ndarray
    spread: float | None = None
    doubt: np.ndarray | None = None

    constraints = {"spread": [Interval(Real, 0, None, closed="left"), None]}

    @classmethod
    def none(cls, factor):
        """Before anything was released."""
        return cls(factor, np.zeros(factor.n_levels))

    def of(self, *rows):
        """The effect of the level of every task or row, (n,); 0 of a level that is new."""
        return np.append(self.effects, 0.0)[self.factor.of(*rows)]

    def doubt_of(self, *rows):
        """Standard deviations of these effects, (n,); `spread` of a level that is new."""
        return np.append(self.doubt, self.spread)[self.factor.of(*rows)]

    def declared(self):
        """What `effects` and `doubt` have to be, after a check of the factor."""
        if not isinstance(self.factor, (Factor, RowFactor)):
            raise ValueError("effects without a factor")
        self.factor.check()
        if (self.spread is None) != (self.doubt is None):
            raise ValueError("its effects have a spread without errors, or errors without a spread")
        shapes = [(self.factor.n_levels,)]
        yield f"effects of {self.factor.name}", self.effects, shapes
        if self.doubt is not None:
            yield f"doubts of {self.factor.name}", self.doubt, shapes


@dataclass(frozen=True, eq=False)
class RowLevels:
    """The level of every row, of one factor or more.

    Attributes
    ----------
    names : tuple of str or int
        Columns of X, in the order of `codes`.
    labels : tuple of ndarray
        Levels of each factor, sorted: those of these rows, or of its public list.
    codes : ndarray (n_rows, n_factors) of int64
        Places of the levels of rows among `labels`.
    """

    names: tuple
    labels: tuple
    codes: np.ndarray

    def __getitem__(self, rows):
        return replace(self, codes=self.codes[rows])

    def values(self, rows=slice(None)):
        """Levels of some rows as they were given, an array of objects for each factor."""
        codes = self.codes[rows].T
        return [labels.astype(object)[own] for labels, own in zip(self.labels, codes, strict=True)]

    def column(self, name):
        """Of one factor. -> labels, codes (n_rows,)"""
        k = self.names.index(name)
        return self.labels[k], self.codes[:, k]

    def among(self, name, known, rows=slice(None)):
        """Places (n_rows,) of the levels of some rows in `known`, sorted; -1 of others."""
        k = self.names.index(name)
        return locate(self.labels[k], known, "Level")[self.codes[rows, k]]


def read_factor(factors, given, tasks):
    """The factor above the tasks that `factors` names.

    Parameters
    ----------
    factors : mapping of str to place
        See `read_places`; one column of `given` may stand above the tasks.
    given : DataFrame, Series or mapping
        Public table of the tasks, as `relation` of the estimators.
    tasks : ndarray (m,)
        Ids of the tasks of the fit, sorted.

    -> factor : Factor, or None

    Raises
    ------
    TypeError, ValueError
        Without a public table, and for tasks without a level.
    """
    name = factor_in(ABOVE, factors)
    if name is None:
        return None
    if isinstance(factors[name], Factor):
        factors[name].of(tasks)  # all of them are known
        return factors[name]
    name = str(name)
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
    name = factor_in(ABOVE, factors)
    if name is None or isinstance(factors[name], Factor) or given is None:
        return given
    name = str(name)
    ids, columns = _columns_of(given, name)
    rest = {key: column for key, column in columns.items() if key != name}
    if not rest:
        return None
    rows = zip(*rest.values(), strict=True)
    return {task: dict(zip(rest, row, strict=True)) for task, row in zip(ids, rows, strict=True)}


def read_places(factors):
    """Where each factor stands, and its public levels.

    Parameters
    ----------
    factors : mapping or None
        From columns to "above", "below" or "across", or ("across", levels) with a public list; a
        billboard has the `Factor` in place of "above".

    -> {name: (place, levels or None)}, levels of int64 or str

    Raises
    ------
    TypeError, ValueError
        For other values, and for several factors in one place.
    """
    if factors is None:
        return {}
    if not isinstance(factors, Mapping) or not factors:
        raise TypeError('factors= must be a mapping, such as {"district": "above"}.')
    places = {name: _read_place(name, given) for name, given in factors.items()}
    for place in (ABOVE, BELOW, ACROSS):
        names = [name for name, (own, _) in places.items() if own == place]
        if len(names) > 1:
            raise ValueError(
                f"factors= names {listed(list(map(str, names)))}: one factor stands {place} tasks. "
                "Join their levels to one column, or pass the others as covariates."
            )
    return places


def factor_in(place, factors):
    """Name of the factor in this place, or None."""
    for name, (own, _) in read_places(factors).items():
        if own == place:
            return name
    return None


def rows_of_factors(factors):
    """`read_places` of the factors that rows have levels of."""
    return {name: found for name, found in read_places(factors).items() if found[0] != ABOVE}


def read_across(factors, levels=None):
    """The `RowFactor` across tasks that `factors` names, or None.

    `levels` are those of the rows by name, for a factor without a public list.
    """
    for name, (place, public) in read_places(factors).items():
        if place == ACROSS:
            known = (levels or {}).get(name) if public is None else public
            if known is None:
                raise ValueError(
                    f"The list of levels of the factor {name!r} would be read from private rows. "
                    f'Pass the public list: factors={{{name!r}: ("across", levels)}}; the '
                    "categories of a column of pandas are not public by themselves."
                )
            return RowFactor(name, np.sort(known).tolist())
    return None


def read_levels(factors, columns, *, new=False):
    """Levels of rows, from the columns of the factors.

    Parameters
    ----------
    factors : mapping
        As `factors` of `PrivateMTL`.
    columns : dict of str or int to array-like (n_rows,)
        Columns of X by name.
    new : bool, default=False
        Whether levels that the public list lacks are taken.

    -> RowLevels; None without columns

    Raises
    ------
    TypeError, ValueError
        For levels that are missing, of mixed types, or not in the public list.
    """
    if not columns:
        return None
    labels, codes = [], []
    for name, (_, public) in rows_of_factors(factors).items():
        own, found = encode_ids(columns[name], f"{name} level")
        if public is not None and not new:
            public = np.sort(public)
            at = locate(found, public, "Level")
            if (at < 0).any():
                raise ValueError(
                    f"{np.sum(at[own] < 0)} row(s) have a level of the factor {name!r} that its "
                    "public list lacks: add it to the list, or drop these rows."
                )
            own, found = at[own], public
        labels.append(found)
        codes.append(own)
    return RowLevels(tuple(columns), tuple(labels), np.stack(codes, axis=1))


def _read_place(name, given):
    place, levels = ABOVE if isinstance(given, Factor) else given, None
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] == ACROSS:
        place, levels = given
        levels = distinct_ids(levels, f"Public levels of the factor {name!r}")
    if not isinstance(place, str) or place not in (ABOVE, BELOW, ACROSS):
        raise ValueError(
            f'factors={{{name!r}: {given!r}}} must be "above", "below" or "across", or '
            '("across", levels) with its public list of levels.'
        )
    return place, levels


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
