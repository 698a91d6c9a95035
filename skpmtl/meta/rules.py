"""Rules for "auto" in private meta-learning: numbers of rounds and steps, and their rates.

They read public numbers only. Rows are taken to be of length 1 and spread evenly over the
directions, bounds to be half a typical gradient, and residuals (or scores) to be 2 clip_norm:
users scale X to that. Then all rounds together go as far as minimises what is left of the error
plus what the noise adds.
"""

import math
from typing import NamedTuple

import numpy as np

BOUND = {"squared": 1.0, "logistic": 0.25, "multinomial": 0.5}  # of the second derivative
_ROUNDS = 25, 100  # of tasks_per_round="auto", for one visit
_FREE_ROUNDS, _FREE_STEPS = 20, 5  # of all tasks, without privacy: few steps keep to the few rows
# Part of the noise that is left in an initialisation, over that for rows of length 1.
LEFT = {"squared": 0.5, "logistic": 1.0, "multinomial": 1.0}
_UPDATES = 4.0  # clipped updates from 0 to the initialisation, privacy="local"
# Part of the curvature that is left at bounds of about half a typical gradient.
_CLIPPED = {"squared": 0.3, "logistic": 0.6, "multinomial": 0.6}
_MAX_INNER_STEPS = 50
_MAX_FOLDS = 6.0  # bound on the "auto" reduction of the error, in powers of e


class Course(NamedTuple):
    """Numbers and lengths of the steps of a fit."""

    tasks_per_round: int
    n_rounds: int
    visits: int
    inner_steps: int
    # step length; "own" is 1 / smoothness of every task's own loss, where that need not be
    # public
    inner_rate: float | str
    meta_rate: float
    init_error: float  # squared error that is expected of the initialisation, over that of 0
    gained: float  # powers of e by which all rounds together are expected to shrink an error
    least: float  # what `init_error` would be with "auto" steps


def course(est, mode, loss, size, n_tasks, noise, rank=1):
    """Settle what is "auto". -> Course

    `size` is how many numbers one output of a model has, intercept included. `noise`, over
    clip_norm: root mean square of the noise, over all tasks, that one inner step would have if it
    were the only one; "local": length of the noise of an
    update. Of the `rank` columns of a relation one has, on average, the rows, and the noise, of one
    in so many tasks.
    """
    per_round, visits = est.tasks_per_round, est.visits
    if per_round == "auto" and mode is None:  # visits cost nothing
        per_round, visits = n_tasks, visits * _FREE_ROUNDS
    elif isinstance(per_round, str):
        rounds = min(max(n_tasks // 10, _ROUNDS[0]), _ROUNDS[1])
        per_round = n_tasks if per_round == "all" else -(-n_tasks // rounds)
    per_round = min(int(per_round), n_tasks)
    n_rounds = visits * -(-n_tasks // per_round)
    inner_rate, public = est.inner_learning_rate, mode == "task-global"
    bound = BOUND[loss]
    if isinstance(inner_rate, str):
        inner_rate = 1.0 / (bound * (1 + est.fit_intercept)) if public else "own"
    # Rows of length 1 that are spread evenly have this curvature in every direction, and
    # a bound of half a typical gradient leaves a part of it.
    curvature = bound / (size - est.fit_intercept)
    curvature *= _CLIPPED[loss] if public else 1.0
    if public:
        noise *= 0.5 * math.sqrt(1 + est.fit_intercept) * bound / curvature
    noise /= math.sqrt(2.0 * n_tasks / rank)
    grid = np.geomspace(0.01, _MAX_FOLDS, 100)
    # Rows of a relation are shrunk by their noise: rounds go on as if it were less.
    at = _error(grid, noise / rank**0.25).argmin()
    folds, least = float(grid[at]), float(_error(grid[at], noise))
    steps = est.inner_steps
    if isinstance(steps, str):
        steps = _FREE_STEPS if mode is None else _MAX_INNER_STEPS
        if public:
            steps = math.ceil(folds / (inner_rate * curvature * n_rounds))
        steps = min(max(steps, 1), _MAX_INNER_STEPS)
    steps = int(steps)
    # Powers of e that all rounds gain at a meta learning rate of 1.
    reach = n_rounds / _UPDATES
    if public:
        reach = n_rounds * steps * inner_rate * curvature
    meta_rate = est.meta_learning_rate
    if isinstance(meta_rate, str):
        meta_rate = 1.0 if mode is None else min(1.0, folds / reach)
    gained = min(meta_rate * reach, _MAX_FOLDS)
    init_error = float(_error(gained, noise)) if mode is not None else 0.0
    return Course(
        per_round, n_rounds, visits, steps, inner_rate, meta_rate, init_error, gained, least
    )


def _error(folds, noise):
    """Squared error of the initialisation, over that of 0, after `folds` powers of e.

    With noise of std a on the mean gradient of a task, gradient steps that shrink an error of w
    in every coefficient by exp(-u) leave exp(-2u) + u (a / (h w))^2 / (2 m) (1 - exp(-2u)) of
    its square, h the curvature and m the number of tasks; `noise` is a / (h w sqrt(2 m)).
    Residuals are taken to be 2 clip_norm / length, for rows of that length, and so are scores;
    with privacy="local" the error is `_UPDATES` clipped updates.
    """
    rest = np.exp(-2.0 * folds)
    return rest + folds * noise**2 * (1.0 - rest)


def task_weights(variance, n_numbers):
    """Weights of the tasks' updates, of mean 1: less for more noise, equal without any.

    In units of the bound the mean gradient of a task is taken to have a variance of 1/4, spread
    over its `n_numbers` coefficients, to which that of the noise of all inner steps together is
    added: `variance` (n_tasks,). So is that of octaves of a scale, of one number.
    """
    weights = 1.0 / (0.25 / n_numbers + variance)
    return weights / weights.mean()
