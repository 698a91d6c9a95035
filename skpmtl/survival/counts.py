"""The model of counts of hazards that are constant between cuts."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._runtime.constraints import StrOptions, take
from .._runtime.hints import Adjacency, Curator, RandomState
from ..course.plan import EQUAL
from ..course.scores import Asked, GivenRows
from ..structures.estimators import PrivateMTL
from ..tables.ids import encode_ids
from ..tables.table import FAR, WrittenRows, bounded, row_dots
from .periods import Periods, read_cuts, read_survival

__all__ = ["PeriodRows", "PiecewiseHazards"]


class PeriodRows:
    """Rows of the model of counts by pair of a row and an interval, which are never stored.

    Parameters
    ----------
    X : ndarray (n, d)
        Sorted by task.
    periods : Periods
        Of the same rows, between cuts.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, X, periods):
        self.data, self.periods = bounded(X), periods  # other numbers are zeros and ones
        self.shape = int(periods.starts[-1]), X.shape[1] + len(periods.ends) - 1
        self._last = slice(0), None

    def _pairs(self, places):
        """As of `Periods`; those of a slice are kept for the next call."""
        if not isinstance(places, slice):
            return self.periods.pairs(places)
        if places != self._last[0]:
            self._last = places, self.periods.pairs(places)
        return self._last[1]

    def __getitem__(self, places):
        """Of some pairs (R,), or a slice of them. -> (R, d + n_cuts)"""
        rows, intervals = self._pairs(places)
        found, d = np.zeros((len(rows), self.shape[1])), self.data.shape[1]
        found[:, :d] = self.data[rows]
        some = np.flatnonzero(intervals)
        found[some, d + intervals[some] - 1] = 1.0
        return found

    def rates(self, slopes, about, some, starts):
        """As of `WrittenRows`, from columns that are not written out."""
        (rows, intervals), d = self._pairs(some), self.data.shape[1]
        first, last = rows[0], rows[-1] + 1
        X, begins = self.data[first:last], self.periods.starts[first:last] - some.start
        score = about + row_dots(X, slopes[:d])[rows - first]
        score += np.append(0.0, slopes[d:])[intervals]
        mean = np.exp(np.clip(score, -FAR, FAR))
        of_rows, own = np.add.reduceat(mean, begins), np.searchsorted(begins, starts)
        J, t = len(self.periods.ends), len(starts)
        task = np.repeat(np.arange(t), np.diff(np.append(starts, len(mean))))
        of_intervals = np.bincount(task * J + intervals, mean, minlength=t * J).reshape(t, J)
        of_columns = np.add.reduceat(of_rows[:, None] * X, own)
        return np.add.reduceat(of_rows, own), np.c_[of_columns, of_intervals[:, 1:]]

    def blocks(self, offsets):
        return WrittenRows.blocks(self, offsets)

    def rows_of(self, table):
        """`GivenRows` of the pairs, for a table of the rows and their events."""
        codes, periods = table.codes, self.periods

        def events(places):
            rows, intervals = self._pairs(places)
            return (table.y[rows] > 0) * (intervals == periods.which[rows]) * 1.0

        def exposures(places):
            return np.log(periods.spent(*self._pairs(places)))[:, None]

        n, tasks = self.shape[:1], lambda at: codes[self._pairs(at)[0]]
        numbers = Asked(events, n), np.broadcast_to(1.0, n), Asked(exposures, (*n, 1))
        starts = periods.starts[table.offsets]
        return GivenRows(self, *numbers, Asked(tasks, n), starts, (self.data, table.offsets))

    def nothing(self):
        """A matrix of a row for each row of X without numbers, for checks of what comes with it."""
        return sparse.csr_array((len(self.data), self.shape[1]))


class PiecewiseHazards(PrivateMTL):
    """Rates of events, whose columns are features and an indicator of every interval but the first.

    It is `PrivateMTL` with slopes that are the same in all tasks, and what sites of a study of
    `SurvivalMTL` fit; `rows` makes its rows.

    Parameters
    ----------
    cuts : list of float
        As of `SurvivalMTL`; required.
    names : list of str or None, default=None
        Of the features, as a study has them.
    loss, fit_intercept, epsilon, delta, adjacency, curator, tasks, unseen_task, random_state
        As of `PrivateMTL`; the loss is that of counts.
    """

    _parameter_constraints = {
        **PrivateMTL._parameter_constraints,
        "cuts": "no_validation",  # by `read_cuts`
        "names": [list, None],
        "loss": [StrOptions({"poisson"})],
    }
    _name_in_studies = "SurvivalMTL"
    structure, init, target_range, task_feature = "auto", None, None, None
    uncertainty, secure, verbose, dtype = False, False, 0, np.float64

    def __init__(
        self,
        cuts: ArrayLike | None = None,
        *,
        names: list | None = None,
        loss: Literal["poisson"] = "poisson",
        fit_intercept: bool = True,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "mean",
        random_state: RandomState = None,
    ) -> None:
        take(self, locals())

    def _check_parameters(self):
        super()._check_parameters()
        read_cuts(self.cuts)

    def _structures(self):
        return (EQUAL,)

    def _plan(self, population):
        plan = super()._plan(population)
        plan.n_indicators = len(self.cuts)
        return plan

    def _n_columns(self, n_features):
        return n_features + len(self.cuts)

    def _read_training(self, X, y, task=None, sample_weight=None):
        if not isinstance(X, PeriodRows):
            return super()._read_training(X, y, task, sample_weight)
        # A row of the input stands for all of its pairs, which are in its task and order.
        table, form = super()._read_training(X.nothing(), y, task)
        return replace(table, X=X), form

    def passes(self, X, y, entry, ids):
        """What `fit` takes: columns that are written out where they are asked for, an event and an
        id for each row of X, in the order of tasks."""
        order = np.argsort(encode_ids(ids)[0], kind="stable")
        event, time = read_survival(y)
        entry = None if entry is None else np.asarray(entry, dtype=float)[order]
        columns = PeriodRows(X[order], Periods(event[order], time[order], entry, self.cuts))
        return columns, event[order].astype(float), ids[order]

    def columns(self, X, intervals):
        """Columns of the rows of X in these intervals. -> csr_array"""
        some = np.flatnonzero(intervals)
        places = np.ones(len(some)), (some, intervals[some] - 1)
        indicators = sparse.coo_array(places, shape=(len(X), len(self.cuts)))
        return sparse.hstack([sparse.csr_array(X), indicators], format="csr")

    def rows(self, X, y, entry, ids):
        """One row for every row and interval in which it was observed.

        -> columns, rates, task ids, exposures: what `fit` takes
        """
        event, time = read_survival(y)
        rows, intervals, events, exposures = Periods(event, time, entry, self.cuts).table()
        some = exposures > 0
        rows, intervals, exposures = rows[some], intervals[some], exposures[some]
        return self.columns(X[rows], intervals), events[some] / exposures, ids[rows], exposures

    def __repr__(self, N_CHAR_MAX=700):
        """As `SurvivalMTL`, by which people know it."""
        from .estimators import SurvivalMTL

        names = set(SurvivalMTL().get_params()) & set(self.get_params())
        shown = SurvivalMTL(**{name: getattr(self, name) for name in names})
        return shown.__repr__(N_CHAR_MAX=N_CHAR_MAX)

    def _for_users(self):
        from .estimators import SurvivalMTL

        return SurvivalMTL._of_counts(self)
