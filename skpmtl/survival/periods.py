"""Rows of survival data as exposures and events in intervals of time."""

from functools import cached_property

import numpy as np
from scipy import sparse

__all__ = ["Periods", "read_cuts", "read_survival", "time_spent"]

_MOST = 50_000_000  # exposures of event times that are not zero, which are held in memory


def read_survival(y):
    """Targets as scikit-survival has them. -> event (n,) bool, time (n,)

    Raises ValueError unless y is a structured array of an event (bool) and a positive, finite time,
    in this order, as ``sksurv.util.Surv.from_arrays(event, time)`` makes it.
    """
    fields = getattr(getattr(y, "dtype", None), "names", None)
    if fields is None or len(fields) != 2 or np.ndim(y) != 1:
        raise ValueError(
            "y must be a structured array with two fields, the event and the time, as "
            "sksurv.util.Surv.from_arrays(event, time) makes it, or "
            "numpy.array([(True, 3.5), ...], dtype=[('event', bool), ('time', float)])."
        )
    event, time = y[fields[0]], np.asarray(y[fields[1]], dtype=float)
    if event.dtype != bool:
        raise ValueError(
            f"The field {fields[0]!r} of y must be of bool: whether the event was seen."
        )
    if not (np.isfinite(time) & (time > 0)).all():
        raise ValueError(f"The field {fields[1]!r} of y must hold positive, finite times.")
    return event, time


def read_cuts(cuts):
    """Ends of the intervals between cuts; the last one is infinity. -> (n_cuts + 1,)

    Raises ValueError unless cuts are positive, finite and increase.
    """
    cuts = np.asarray(cuts, dtype=float)
    if cuts.ndim != 1 or not ((cuts > 0) & np.isfinite(cuts)).all():
        raise ValueError("cuts= must be a list of positive, finite times.")
    if (np.diff(cuts) <= 0).any():
        raise ValueError("cuts= must increase.")
    return np.append(cuts, np.inf)


def time_spent(ends, times):
    """Time in each interval until some times, (n_times, n_intervals)."""
    begins = np.concatenate([[0.0], ends[:-1]])
    return np.clip(np.asarray(times, dtype=float)[:, None], begins, ends) - begins


class Periods:
    """Intervals (c_j-1, c_j] of time, and how long every row was at risk in each.

    Parameters
    ----------
    event : ndarray of shape (n,)
        Whether a row ended by the event.
    time : ndarray of shape (n,)
    entry : ndarray of shape (n,) or None
        Times from which rows were observed (left truncation); None: 0.
    cuts : ndarray of shape (n_cuts,) or None
        Increasing, positive ends of intervals; the last one has no end. None: every distinct time
        of an event ends an interval of length one, whatever its length in time, which makes the
        likelihood that of Cox with Breslow's treatment of ties.

    Attributes
    ----------
    first : ndarray of shape (n,)
        Interval in which a row was first at risk.
    starts : ndarray of shape (n + 1,)
        Numbers of pairs with intervals of the rows before.
    which : ndarray of shape (n,)
        Interval in which a row ended.
    ends : ndarray of shape (n_intervals,)
        Ends of the intervals; infinity for the last one with `cuts`.
    """

    def __init__(self, event, time, entry, cuts):
        entry = np.zeros(len(time)) if entry is None else np.asarray(entry, dtype=float)
        if entry.shape != time.shape or not ((entry >= 0) & (entry < time)).all():
            raise ValueError("entry= must hold one time for every row, from 0 to below its time.")
        self.is_cox = cuts is None
        if self.is_cox:
            self.ends = np.unique(time[event])
            if not len(self.ends):
                raise ValueError("No row has the event: there is nothing to learn hazards from.")
        else:
            self.ends = read_cuts(cuts)
        first = np.searchsorted(self.ends, entry, side="right")  # entry < end
        last = np.searchsorted(self.ends, time, side="right" if self.is_cox else "left")
        # At risk at an event time: entry < end <= time. In an interval: from its begin on.
        stop = last if self.is_cox else last + 1
        counts = np.maximum(stop - first, 0)
        if self.is_cox and counts.sum() > _MOST:  # with a budget no number of rows may be told
            raise ValueError(
                f"{counts.sum():,} pairs of rows and intervals are too many: pass cuts=, some "
                "times between which the hazard is constant."
            )
        self.first, self.starts = first, np.concatenate([[0], np.cumsum(counts)])
        self.entry, self.time, self.event = entry, time, event
        self.which = np.minimum(last - self.is_cox, len(self.ends) - 1)

    def pairs(self, places=slice(None)):
        """Rows and intervals of some pairs of these, in the order of rows. -> rows, intervals"""
        if isinstance(places, slice):
            lo, hi, _ = places.indices(self.starts[-1])
            first, last = np.searchsorted(self.starts, (lo, hi - 1), side="right") - (1, 0)
            sizes = np.diff(np.clip(self.starts[first : last + 1], lo, hi))
            rows, places = np.repeat(np.arange(first, last), sizes), np.arange(lo, hi)
        else:
            rows = np.searchsorted(self.starts, places, side="right") - 1
        return rows, (self.first - self.starts[:-1])[rows] + places

    def spent(self, rows, columns):
        """How long these rows were at risk in these intervals."""
        if self.is_cox:
            return np.ones(len(rows))
        begins = np.concatenate([[0.0], self.ends[:-1]])
        end = np.minimum(self.time[rows], self.ends[columns])
        return end - np.maximum(self.entry[rows], begins[columns])

    @cached_property
    def exposure(self):
        """csr_array (n, n_intervals)"""
        rows, columns = self.pairs()
        shape = len(self.time), len(self.ends)
        return sparse.csr_array((self.spent(rows, columns), columns, self.starts), shape=shape)

    def events(self):
        """Numbers of events by interval, (n_intervals,)."""
        return np.bincount(self.which[self.event], minlength=len(self.ends)).astype(float)

    def table(self):
        """One row for every row and interval. -> rows, intervals, events, exposures"""
        E = self.exposure.tocoo()
        rows, columns = E.coords
        ended = self.event[rows] & (columns == self.which[rows])
        return rows, columns, ended.astype(float), E.data

    def cumulative(self, hazard, times):
        """Cumulative hazard of the baseline at some times, (len(times),)."""
        times = np.asarray(times, dtype=float)
        if self.is_cox:
            total = np.concatenate([[0.0], np.cumsum(hazard)])
            return total[np.searchsorted(self.ends, times, side="right")]
        return time_spent(self.ends, times) @ hazard
