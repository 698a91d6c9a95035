"""Scales of columns, which tasks release before the rounds of meta-learning.

The first guess are rows of length 1, as rounds without these queries take them; a column keeps it
where noise hides another. A record sends log2 |x| over the scale, of all columns as one vector in a
ball of length 1, in units of a reach times root(d). So one column in a far larger unit is seen, and
the last query, whose reach is short, has little noise. Without a budget sums are exact, scales are
standard deviations, and columns have centres, too.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..course.curator import FARTHEST, NEAREST
from ..course.shapes import read_scales
from ..exchange.protocol import Query
from ..privacy.mechanisms import clip_rows
from ..tables.table import rows_of

SHARE = 0.1  # of mu^2 of a record, for all queries together
PARTS = 0.25, 0.15, 0.6
# Octaves of noise in the last scale: with more nothing is asked. On six shapes of tables at epsilon
# 1 and 3, eight draws each, rounds gained nothing from scales of more, and lost 5 to 12 %.
MOST_NOISE = 0.6
FAR_BIAS = -0.9163731  # mean of log2 |z| of a normal variable z
TASKS_APART = 0.25  # variance of log2 of a task's scale: weights of tasks of few rows
_TINY = 1e-12  # of the mean of a column, a spread that is rounding


@dataclass(frozen=True)
class ColumnQuery:
    """One query about columns.

    Attributes
    ----------
    what : {"scales", "means", "squares"}
        Without a budget the latter two.
    weights : ndarray (n_tasks,)
        Of the mean over the records of a task.
    noise_std, noise_step, shrink : ndarray (n_tasks,) or None
        Of the noise on a task's sum; None without a budget.
    """

    what: str
    weights: np.ndarray
    noise_std: np.ndarray | None = None
    noise_step: np.ndarray | None = None
    shrink: np.ndarray | None = None

    def part(self, positions):
        names = "weights", "noise_std", "noise_step", "shrink"
        found = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v if v is None else v[positions] for k, v in found.items()})


def weights_of(variance):
    """Of the means of tasks, whose noise has this variance in squared octaves."""
    return 1.0 / (TASKS_APART + variance)


# ---------------------------------------------------------------------------------- curator
def release_scaling(plan):
    """The curator of the queries on columns. -> scaling (2, n_features) of the rounds, or None

    Yields a `Query` of all tasks for each of `MetaPlan.columns`; see `release_init`.
    """
    if not plan.columns:
        return plan.scaling
    d = plan.n_features
    scale, centre, reach = np.full(d, d**-0.5), np.zeros(d), FARTHEST
    for number, asked in enumerate(plan.columns):
        query = Query(
            "columns",
            {"number": number, "scale": scale, "centre": centre, "reach": reach},
            {"columns": None},
            partial(sum_of_columns, plan, asked),
            float(asked.weights.sum()),
            task_side_adds=True,
            bound=float(plan.longest_columns(asked).max()),
        )
        found = (yield query)["columns"]
        if asked.what == "scales":
            unit = reach * math.sqrt(d)
            moved, left = read_scales(unit * found, unit * plan.noise_of_columns(asked))
            scale = scale * 2.0 ** np.clip(moved, -unit, unit)
            # A long move may have been cut; otherwise noise says how far scales may still be.
            if np.linalg.norm(moved) < 0.5 * unit:
                reach = min(max(2.0 * math.sqrt(left.sum()), NEAREST), reach)
            continue
        with np.errstate(all="ignore"):  # columns that overflow stay as they are
            mean = found[:d] / found[d]
            if asked.what == "means":
                centre = np.where(np.isfinite(mean), mean, 0.0)
            else:
                scale = np.sqrt(mean)
                varies = np.isfinite(scale) & (scale > _TINY * np.abs(centre))
                scale = np.where(varies, scale, 1.0)
    if plan.mode is not None:
        scale = scale * math.sqrt(d)
    return np.stack([centre, scale])


def sum_of_columns(plan, asked, contributions, positions=None):
    """``combine`` of what tasks send, each within `MetaPlan.longest_columns`."""
    sent = np.array(contributions["columns"], dtype=float)
    if plan.mode is not None:
        positions = np.arange(len(sent)) if positions is None else positions
        bounds = (asked.weights * plan.longest_columns(asked))[positions]
        sent /= bounds[:, None]
        clip_rows(sent, 1.0)
        sent *= bounds[:, None]
    return {"columns": sent.sum(axis=0)}


# -------------------------------------------------------------------------------- task side
def sums_of_records(table, weights, block, what, public):
    """Sums of what the records of some tasks send, before noise, (len(block), d).

    Without a budget (len(block), d + 1), the sum of the weights last.
    """
    rows, ends = rows_of(table.offsets, block)
    first = ends[:-1]
    u, X = weights[rows, None], table.X[rows if table.rows is None else table.rows[rows]]
    with np.errstate(all="ignore"):  # rows that overflow are cut, or 0
        sent = _of_records(X.astype(float), what, **public)
        if what != "scales":
            return np.add.reduceat(np.hstack([u * sent, u]), first)
        clip_rows(sent, 1.0)
        return np.add.reduceat(u * sent, first)


def _of_records(X, what, scale, centre, reach, number):
    if what == "scales":
        octaves = np.log2(np.abs(X))
        octaves -= np.log2(scale) + FAR_BIAS
        octaves[~(octaves > -np.inf)] = 0.0  # which says nothing of a scale that may be anything
        octaves /= reach * math.sqrt(len(scale))
        return octaves
    return X - centre if what == "means" else (X - centre) ** 2
