"""What a fit found, in words and in units of the target: a function of its billboard alone."""

import math

import numpy as np

from ..task import priors


def findings(board, with_groups=False, is_private=False):
    """What a report says was found, by name: of levels, rows, factors, slopes and groups.

    `with_groups`: groups of tasks were looked for; `is_private`: what was released has noise.
    """
    if not board.releases:
        return {}
    found = {}
    if board.fit_intercept and board.n_outputs == 1:
        found["levels"] = _levels(board, is_private)
    if board.unit is not None and not board.law.of_scores:
        spread = _round(board.unit * board.row_spread)
        found["rows"] = f"standard deviation of about {spread} around the model of their task"
    for one in board.factors:
        few = "tasks of each of its levels" if one is board.above else "tasks for so many levels"
        none = f"nothing was asked: too few {few} for this budget"
        found[str(one.factor.name)] = none if one.spread is None else _effects(board, one)
    if board.asked_below:
        found[str(board.below)] = _below(board)
    found["slopes"] = _slopes(board)
    if board.groups is not None:
        counts = ", ".join(f"{max(count, 0.0):.0f}" for count in board.group_counts)
        found["groups"] = f"{len(board.groups)} of tasks with similar slopes, of about {counts}"
    elif with_groups:
        found["groups"] = "none was found"
    return found


def _levels(board, is_private):
    """Of one score."""
    attributes = board.attributes()
    if "level_" not in attributes:
        return "no common place was found: every task has its own level"
    level, spread = attributes["level_"], attributes["level_spread_"]
    noise = board.centre_noise[0]
    if board.n_classes:
        low, middle, high = (1.0 / (1.0 + math.exp(-level - k * spread)) for k in (-1, 0, 1))
        found = (
            f"in two thirds of the tasks the second class has between {low:.0%} and {high:.0%} of "
            f"the rows; {middle:.0%} is typical"
        )
        if not noise:
            return found + _with_noise("", is_private)
        # What was measured is the mean of shares; the typical one follows from votes as well.
        share = 1.0 / (1.0 + math.exp(-board.middle - board.centre[0]))
        return (
            f"{found}, and the mean of tasks {share:.0%}, with noise of a standard deviation of "
            f"about {noise:.2g} in its log-odds"
        )
    if board.loss == "poisson":
        known = f"a factor of {math.exp(noise):.2f}" if noise else ""
        return (
            f"{_round(math.exp(level))} per unit of exposure at the released centres of the columns"
            f"{_with_noise(known, is_private)}; tasks differ from it by a factor of about "
            f"{math.exp(spread):.2f}"
        )
    known = _round(noise * board.unit) if noise else ""
    return (
        f"{_round(level, spread)} at the released centres of the columns"
        f"{_with_noise(known, is_private)}; the levels of tasks have a standard deviation of about "
        f"{_round(spread)} around it"
    )


def _with_noise(known, is_private):
    """What is said of the noise of a level, whose standard deviation in words is `known`, or ""."""
    if not is_private:
        return ""
    if not known:
        return ", roughly: from the first noisy counts alone"
    return f", with noise of a standard deviation of at most {known}"


def _effects(board, known):
    """Of the levels of a factor."""
    sizes = known.spread, float(np.abs(known.effects).max())
    spread, most = (_round(board.unit * size) for size in sizes)
    noise = _round(board.unit * math.sqrt(np.mean(known.doubt**2)))
    return f"its levels differ by about {spread}, by {most} at most, with errors of about {noise}"


def _below(board):
    spread = f"{math.sqrt(board.middle_ratio):.2g} times the standard deviation of a row"
    if board.spread_below is not None:
        spread = _round(board.spread_below)
    none = math.exp(priors.typical(board.log_ratio, priors.BEFORE_RATIO)[0])
    return (
        f"its levels differ within a task by about {spread}; the probability that they do not "
        f"differ is {none:.0%}"
    )


def _slopes(board):
    likely = int(np.argmax(board.log_components))
    lie = ""
    if board.has_shape:
        lie = f"lie in about {board.directions:.1f} of {board.n_features} directions"
    if likely < 2 or not board.centre[..., 1:].any():
        return f"those of tasks {lie}" if lie else "nothing was found that tasks have in common"
    own = math.sqrt(board.middle_kappa)
    size = math.sqrt(np.mean(np.sum(np.atleast_2d(board.centre)[:, 1:] ** 2, axis=1)))
    unit = board.unit or 1.0
    measure = "units of the score" if board.law.of_scores else "units of y"
    if board.slopes_are_equal:
        # As they are used, where the scales of columns are not known well.
        unit *= float(np.mean(board.column_scale / board.safe_scale))
        drift = unit * math.sqrt(board.n_features) * board.centre_noise[1]
        of = "columns and intervals" if board.law.of_scores else "columns"
        return (
            f"those of {of} are equal in all tasks, and change predictions by about "
            f"{_round(unit * size)} {measure}"
            + (f", with noise of about {_round(drift)}" if drift else "")
        )
    return (
        f"common ones change predictions by about {_round(unit * size)} {measure}, and those of a "
        f"single task by about {_round(unit * own)} more" + (f"; the latter {lie}" if lie else "")
    )


def _round(value, scale=None):
    """A number as text, to a hundredth of the scale; of itself where there is none."""
    size = abs(value if scale is None else scale)
    if not size or not math.isfinite(size):
        return f"{value:.3g}"
    digits = 1 - math.floor(math.log10(size))
    return f"{round(value, digits):.{max(digits, 0)}f}" if abs(digits) <= 6 else f"{value:.3g}"
