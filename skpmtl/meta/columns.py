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

from .._kernels.passes import column_moments
from .._kernels.records import octave_sums
from .._runtime.threads import cost_blocks, run_blocks
from .._runtime.traced import WIDE
from ..course.curator import FARTHEST, NEAREST
from ..course.shapes import read_scales
from ..exchange.protocol import Query
from ..privacy.mechanisms import clip_rows
from ..tables.table import rows_of
from .steps import RoundRows

# Of mu^2 of a record, for all queries together. On 1,000 x 20 x 10 whose columns had one unit they
# cost .3 % at epsilon 3 and .8 % at 1 (eight draws, at most 1 and 4 %).
SHARE = 0.1
# Of that, for each query: the last is what rounds go on with, and the others have only to lead it
# there. Not measured against other parts.
PARTS = 0.25, 0.15, 0.6
# Octaves of noise in the last scale: with more nothing is asked. On two shapes of tables, six draws
# each, rounds gained nothing from scales of more, and lost 7 to 12 %.
MOST_NOISE = 0.6
FAR_BIAS = -0.9163731  # mean of log2 |z| of a normal variable z
_TINY = 1e-12  # of the mean of a column, a spread that is rounding
_BLOCK = 1 << 18  # numbers of X that a thread works on at a time


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
    of_some = _octaves if what == "scales" else _powers
    parts = run_blocks(
        lambda first, last: of_some(table, weights, block[first:last], what, **public),
        cost_blocks(table.sizes[block] * table.n_features, _BLOCK),
    )
    return np.concatenate(parts)


def _octaves(table, weights, block, what, scale, centre, reach, number):
    """Of octaves over the scales, in units of the reach, in a ball of length 1."""
    d, found = len(scale), np.empty((len(block), len(scale)))
    lines = np.zeros((2, -(-d // WIDE), WIDE))
    lines[0].flat[:d] = np.log(scale) + FAR_BIAS * math.log(2.0)
    unit = 1.0 / (reach * math.sqrt(d) * math.log(2.0))
    shared = table.rows is not None
    rows = table.rows if shared else np.empty(0, dtype=np.int64)
    octave_sums(table.X, rows, shared, table.offsets, block, weights, *lines, unit, found)
    return found


def _powers(table, weights, block, what, scale, centre, reach, number):
    own, (rows, ends) = RoundRows(table, False).part(block), rows_of(table.offsets, block)
    u = weights[rows]
    n = np.add.reduceat(u, ends[:-1])
    mean, square = np.zeros((2, len(block), len(centre)))
    column_moments(own.X, ends, u, np.where(n > 0, n, 1.0), np.ones(len(n)), mean, square)
    with np.errstate(all="ignore"):  # columns that overflow stay as they are
        away, n = mean - centre, n[:, None]
        return np.hstack([n * away if what == "means" else square + n * away**2, n])
