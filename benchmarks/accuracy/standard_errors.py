"""Coverage of the standard errors of common effects, on tables that the model does not expect.

    python -m benchmarks.accuracy.standard_errors [--scenes A;B] [--tasks 50,200] [--epsilon none,3]
        [--draws N] [--output FILE.csv]

Each table has tasks of 5 to 15 rows with three columns, of which the second has no effect. Levels
and slopes of tasks are normal, but exponential in "skewed models"; drifts are a random slope of the
number of the row, which is no column. A row of the csv is a scene, a number of tasks and an epsilon
(none: no privacy), over all draws:

- "given": in how many draws errors were released; without any, the remaining cells are empty;
- "slopes", "level": coverage of intervals that should cover .9;
- "false": how often the interval of the column without effect leaves out zero, .1 if errors hold;
- "std": median standard error of a slope, and "error": the standard deviation of what was found,
  1.4826 times the median absolute error.

Ten draws are made of a cell in which they give no errors.
"""

import itertools

import numpy as np
from scipy.stats import t as student

from skpmtl import PrivateMTL

from ..command import command_line, write_measured
from .cells import epsilon_of, label

EFFECTS = np.array([1.0, 0.0, -0.5])
LEVEL, SPREAD = 20.0, 2.0
NOMINAL = 0.9
SCENES = (
    "as the model expects",
    "autoregressive rows",
    "noise that differs",
    "correlated columns",
    "skewed models",
    "drifts that the model lacks",
)
FIELDS = "commit scene tasks epsilon draws given slopes level false std error".split()
FIRST = 10


def table(scene, n_tasks, seed):
    """-> X, y, task"""
    rng = np.random.default_rng([seed, n_tasks, SCENES.index(scene)])
    task = np.repeat(np.arange(n_tasks), rng.integers(5, 16, size=n_tasks))
    n, d = len(task), len(EFFECTS)
    shared = 0.9 if scene == "correlated columns" else 0.0
    X = np.sqrt(1 - shared) * rng.normal(size=(n, d)) + np.sqrt(shared) * rng.normal(size=(n, 1))
    X += 0.5 * rng.normal(size=(n_tasks, d))[task]
    noise = rng.normal(size=n)
    if scene == "autoregressive rows":
        for i in np.flatnonzero(np.diff(task) == 0):
            noise[i + 1] = 0.7 * noise[i] + np.sqrt(1.0 - 0.49) * noise[i + 1]
    if scene == "noise that differs":
        noise *= np.exp(0.5 * rng.normal(size=n_tasks))[task]
    if scene == "drifts that the model lacks":
        first = np.flatnonzero(np.diff(task, prepend=-1))
        noise += 0.2 * rng.normal(size=n_tasks)[task] * (np.arange(n) - first[task])
    own = 0.3 * rng.normal(size=(n_tasks, d))
    if scene == "skewed models":
        own = 0.2 * rng.normal(size=(n_tasks, d))
        own += (rng.exponential(size=(n_tasks, 1)) - 1.0) * np.array([0.5, 0.25, 0.25])
    level = LEVEL + SPREAD * rng.normal(size=n_tasks)
    if scene == "skewed models":
        level = LEVEL + SPREAD * (rng.exponential(size=n_tasks) - 1.0)
    y = level[task] + np.einsum("ij,ij->i", X, (EFFECTS + own)[task]) + noise
    return X, y, task


def found(scene, n_tasks, epsilon, seed):
    """-> errors of slopes and level, their standard errors, and reaches of intervals; or None"""
    noise = 1000 * SCENES.index(scene) + seed  # another one in every scene
    est = PrivateMTL(
        epsilon=epsilon, tasks=range(n_tasks), standard_errors=True, random_state=noise
    )
    X, y, task = table(scene, n_tasks, seed)
    est.fit(X, y, task=task)
    if not hasattr(est, "effect_covariance_"):
        return None
    error = np.append(est.effect_coef_, est.effect_intercept_) - np.append(EFFECTS, LEVEL)
    std = np.sqrt(np.diag(est.effect_covariance_))
    return error, std, student.ppf(0.5 + 0.5 * NOMINAL, est.effect_dof_) * std


def cell(scene, n_tasks, epsilon, draws):
    """One row of the csv."""
    rows, made = [], 0
    for seed in range(draws):
        one, made = found(scene, n_tasks, epsilon, seed), seed + 1
        rows += [one] if one is not None else []
        if made == FIRST and not rows:
            break
    row = {"scene": scene, "tasks": n_tasks, "epsilon": label(epsilon), "draws": made}
    row["given"] = len(rows)
    if rows:
        error, std, reach = (np.array(part) for part in zip(*rows, strict=True))
        inside = np.abs(error) <= reach
        figures = {
            "slopes": inside[:, :-1].mean(),
            "level": inside[:, -1].mean(),
            "false": 1.0 - inside[:, 1].mean(),
            "std": np.median(std[:, :-1]),
            "error": 1.4826 * np.median(np.abs(error[:, :-1])),
        }
        row |= {name: f"{value:.4g}" for name, value in figures.items()}
    return row


def main(arguments=None):
    parser = command_line("accuracy.standard_errors", __doc__)
    parser.add_argument("--scenes", default=";".join(SCENES))
    parser.add_argument("--tasks", default="50,200,800,2000")
    parser.add_argument("--epsilon", default="none,3,1")
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args(arguments)
    cells = itertools.product(
        map(int, options.tasks.split(",")),
        map(epsilon_of, options.epsilon.split(",")),
        options.scenes.split(";"),
    )
    rows = (cell(scene, m, epsilon, options.draws) for m, epsilon, scene in cells)
    write_measured(rows, FIELDS, options.output)


if __name__ == "__main__":
    main()
