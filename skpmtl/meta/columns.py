"""Scales and centres of columns, which tasks release before the rounds of meta-learning.

The first guess are rows of length 1 about 0, as rounds without these queries take them. A record
sends log2 |x - centre| over the scale, or asinh of x - centre in scales, of all columns as one
vector in a ball of length 1, in units of a reach times root(d). So one column in a far larger unit
is seen, and the last queries, whose reach is short, have little noise. Without a budget sums are
exact, and scales are standard deviations.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..course.shapes import read_centres, read_scales
from ..exchange.protocol import Query
from ..privacy.mechanisms import clip_rows
from ..tables.table import rows_of
from ..task.scales import MOST_VARIANCE

SHARE = 0.1  # of mu^2 of a record, for all queries together
SCALES = ("scales", 0.3), ("scales", 0.7)
IN_TURN = (
    *(("scales", 0.2), ("centres", 0.1)),
    *(("scales", 0.1), ("centres", 0.15)),
    *(("scales", 0.1), ("centres", 0.2)),
    ("scales", 0.15),
)
EXACT = "means", "squares"
# Octaves of noise in the last scale: with more nothing is asked; centres are where there is less.
MOST_NOISE, CENTRES_NOISE = 1.2, 0.6
FARTHEST, NEAREST = 8.0, 2.0  # reach in octaves, at first and later; of asinh of centres the latter
# Small values count as LEAST where a scale moved by less than KNOWN octaves: it is kept in a
# column that is mostly one number. Means of log2 |z| and max(log2 |z|, LEAST) of normal variables.
KNOWN, LEAST, FAR_BIAS, NEAR_BIAS = 1.0, -1.0, -0.9163731, -0.3486387
TASKS_APART = 0.25  # variance of log2 of a task's scale: weights of tasks of few rows
_TINY = 1e-12  # of the mean of a column, a spread that is rounding


@dataclass(frozen=True)
class ColumnQuery:
    """One query about columns.

    Attributes
    ----------
    what : {"scales", "centres", "means", "squares"}
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


def order_of(noise):
    """Queries and their parts of `SHARE`, by the noise of a scale that all of it would leave."""
    if noise / math.sqrt(SCALES[-1][1]) > MOST_NOISE:
        return ()
    last = [part for what, part in IN_TURN if what == "scales"][-1]
    return IN_TURN if noise / math.sqrt(last) < CENTRES_NOISE else SCALES


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
    scale, centre, known = np.full(d, d**-0.5), np.zeros(d), np.zeros(d)
    reach, variance = FARTHEST, FARTHEST**2
    for number, asked in enumerate(plan.columns):
        public = {"number": number, "scale": scale, "centre": centre, "known": known}
        public["reach"] = reach
        query = Query(
            "columns",
            public,
            {"columns": None},
            partial(sum_of_columns, plan, asked),
            float(asked.weights.sum()),
            task_side_adds=True,
            bound=float(plan.longest_columns(asked).max()),
        )
        found = (yield query)["columns"]
        if asked.what in EXACT:
            with np.errstate(all="ignore"):  # columns that overflow stay as they are
                mean = found[:d] / found[d]
                if asked.what == "means":
                    centre = np.where(np.isfinite(mean), mean, 0.0)
                else:
                    scale = np.sqrt(mean)
                    varies = np.isfinite(scale) & (scale > _TINY * np.abs(centre))
                    scale = np.where(varies, scale, 1.0)
            continue
        unit = (reach if asked.what == "scales" else NEAREST) * math.sqrt(d)
        noise = unit * plan.noise_of_columns(asked)
        if asked.what == "centres":
            moved = read_centres(unit * found, noise)
            centre = centre + scale * np.sinh(np.clip(moved, -unit, unit))
        else:
            moved, left = read_scales(unit * found, noise)
            scale = scale * 2.0 ** np.clip(moved, -unit, unit)
            known = (np.abs(moved) < KNOWN).astype(float)
            moved = math.sqrt(np.mean(moved**2))
            # Where a move may have been cut, what is left is as unknown as it was before.
            short = max(reach - moved, 0.0)
            variance = left.sum() + variance * math.exp(-0.5 * short**2 / left.sum())
            reach = FARTHEST if moved > 0.5 * reach else NEAREST
    if plan.mode is not None:
        # Too long rows spoil all columns, and too short ones little: a root mean square.
        scale = scale * math.sqrt(d) * 2.0 ** (math.log(2.0) * min(variance, MOST_VARIANCE))
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
        if what in EXACT:
            return np.add.reduceat(np.hstack([u * sent, u]), first)
        clip_rows(sent, 1.0)
        return np.add.reduceat(u * sent, first)


def _of_records(X, what, scale, centre, known, reach, number):
    away = X - centre
    if what in EXACT:
        return away if what == "means" else away**2
    if what == "centres":
        return np.arcsinh(away / scale) / (NEAREST * math.sqrt(X.shape[1]))
    octaves = np.log2(np.abs(away)) - np.log2(scale)
    # 0 says nothing of a scale that may be anything.
    far = np.where(octaves > -np.inf, octaves - FAR_BIAS, 0.0)
    octaves = np.where(known > 0.0, np.maximum(octaves, LEAST) - NEAR_BIAS, far)
    return octaves / (reach * math.sqrt(X.shape[1]))
