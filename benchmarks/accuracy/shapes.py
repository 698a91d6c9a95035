"""Unseen tables: small seeded generators of tables that a default has to live with.

The constants of the package's defaults were chosen on tables like those with the role "tuning".
Those with the role "fresh" were written afterwards, and nothing may be chosen on them.
"""

from dataclasses import dataclass
from functools import partial
from zlib import crc32

import numpy as np

from skpmtl.datasets import load_school, make_lsoa_like

TEST_ROWS = 20  # of a task, in most tables


@dataclass(frozen=True)
class Sample:
    """One draw of a table: rows to fit, rows to judge by, and what is public about it.

    X, y, task: training rows in any order; X_test, y_test, task_test: those to predict. tasks: the
    public list. unit: what an error of each test row is divided by, for tasks of different units.
    """

    X: np.ndarray
    y: np.ndarray
    task: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    task_test: np.ndarray
    tasks: np.ndarray
    unit: np.ndarray | float = 1.0


@dataclass(frozen=True)
class Shape:
    """A kind of table. classes: their number, 0 for regression. make: function of a generator."""

    name: str
    role: str
    classes: int
    make: object

    def draw(self, seed):
        """-> Sample; another one for every seed, and for every shape with the same seed."""
        return self.make(np.random.default_rng([crc32(self.name.encode()), seed]))


# ----------------------------------------------------------------- what tables are made of
def sizes_between(low, high):
    return lambda rng, m: rng.integers(low, high + 1, m)


def zipf(low, high):
    """Rows of the k-th largest task proportional to 1 / k, within bounds."""
    return lambda rng, m: np.clip(high // np.arange(1, m + 1), low, high)


def normal_rows(rng, task, d):
    return rng.standard_normal((len(task), d))


def unit_rows(rng, task, d):
    X = rng.standard_normal((len(task), d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def columns_of_units(rng, task, d):
    """Columns with a scale from 1e-3 to 1e3 and a mean of up to ten of it."""
    scale = 10.0 ** rng.uniform(-3, 3, d)
    return scale * (rng.standard_normal((len(task), d)) + rng.uniform(-10, 10, d))


def shifted_rows(rng, task, d):
    """Every task has rows around a place of its own."""
    place = 2.0 * rng.standard_normal((task.max() + 1, d))
    return place[task] + rng.standard_normal((len(task), d))


def long_tails(rng, task, d):
    """Log-normal columns: incomes, populations, prices."""
    return np.exp(1.2 * rng.standard_normal((len(task), d)))


def one_hot(rng, task, d):
    """Three questions with one answer each, coded 0 / 1, and two numbers."""
    levels = np.array([d - 2 - 2 * ((d - 2) // 3), (d - 2) // 3, (d - 2) // 3])
    parts = [rng.standard_normal((len(task), 2))]
    for size in levels:
        odds = 1.0 / np.arange(1, size + 1)  # rare levels that most tasks never see
        answer = rng.choice(size, len(task), p=odds / odds.sum())
        parts.append(np.eye(size)[answer])
    return np.concatenate(parts, axis=1)


def twins(rng, task, d):
    """Columns that nearly repeat each other, and one that never varies."""
    X = rng.standard_normal((len(task), d))
    X[:, 1::2] = X[:, ::2][:, : X[:, 1::2].shape[1]] + 1e-3 * X[:, 1::2]
    X[:, -1] = 1.0
    return X


def around_mean(spread=0.4):
    return lambda rng, m, d: rng.standard_normal(d) + spread * rng.standard_normal((m, d))


def low_rank(rank=2, own=0.05):
    def models(rng, m, d):
        W = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d)) / np.sqrt(rank)
        return W + own * rng.standard_normal((m, d))

    return models


def sparse(active=4):
    def models(rng, m, d):
        W = np.zeros((m, d))
        use = rng.choice(d, active, replace=False)
        W[:, use] = rng.uniform(0.5, 2.0, (m, active)) * rng.choice([-1.0, 1.0], (m, active))
        return W

    return models


def unrelated(rng, m, d):
    return rng.standard_normal((m, d))


def clusters(count=4, spread=0.3):
    def models(rng, m, d):
        centres = rng.standard_normal((count, d))
        return centres[rng.integers(count, size=m)] + spread * rng.standard_normal((m, d))

    return models


def opposite(rng, m, d):
    """Half of the tasks around w, half around -w: their mean says nothing."""
    side = rng.choice([-1.0, 1.0], (m, 1))
    return side * rng.standard_normal(d) + 0.3 * rng.standard_normal((m, d))


def with_outliers(share=0.1, times=10.0):
    def models(rng, m, d):
        W = around_mean(0.3)(rng, m, d)
        odd = rng.random(m) < share
        W[odd] = times * rng.standard_normal((odd.sum(), d))
        return W

    return models


def skewed(rng, m, d):
    """Tasks on one side of the common model, a few of them far."""
    return rng.standard_normal(d) + 0.5 * rng.exponential(1.0, (m, 1)) * rng.standard_normal(d)


def mean_and_low_rank(rng, m, d):
    return rng.standard_normal(d) + low_rank(2, 0.15)(rng, m, d)


def spread_units(rng, m):
    return 10.0 ** rng.uniform(-4, 4, m)


def some_thousands(rng, m):
    return np.where(rng.random(m) < 0.05, 1e3, 1.0)


def gauss(rng, n):
    return rng.standard_normal(n)


def student(rng, n):
    """Noise with next to no variance of its own: t with 2.1 degrees of freedom."""
    return rng.standard_t(2.1, n)


def _rows(rng, m, d, n, rows, n_test):
    """Rows of all tasks, those to fit first within each. -> X, task, whether a row is to fit"""
    sizes = np.full(m, n) if isinstance(n, int) else n(rng, m)
    task = np.repeat(np.arange(m), sizes + n_test)
    fit = np.concatenate([np.arange(size + n_test) < size for size in sizes])
    return rows(rng, task, d), task, fit


def _split(X, y, task, fit, unit=1.0):
    unit = unit if np.ndim(unit) == 0 else unit[~fit]
    tasks = np.unique(task)
    return Sample(X[fit], y[fit], task[fit], X[~fit], y[~fit], task[~fit], tasks, unit)


def regression(
    rng,
    m,
    n,
    d,
    models,
    *,
    rows=normal_rows,
    noise=1.0,
    tails=gauss,
    offset=0.0,
    scale=1.0,
    spread=1.0,
    units=None,
    n_test=TEST_ROWS,
):
    """y = scale (x' w_k + b_k + noise) + offset.

    Scores are brought to a variance of about 4, so that `noise` is half of their std whatever the
    rows. `spread` is the std of b_k, `units` gives tasks scales of their own.
    """
    X, task, fit = _rows(rng, m, d, n, rows, n_test)
    # Columns count by their std: a column in millimetres matters as much as one in kilometres.
    W = models(rng, m, d)
    score = np.einsum("nj,nj->n", (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9), W[task])
    score *= 2.0 / score.std()
    y = score + spread * rng.standard_normal(m)[task] + noise * tails(rng, len(task))
    own = np.ones(m) if units is None else units(rng, m)
    return _split(X, scale * own[task] * y + offset, task, fit, (scale * own)[task])


def classification(
    rng, m, n, d, models, *, rows=normal_rows, classes=2, base=0.0, spread=0.5, n_test=TEST_ROWS
):
    """Labels 0, 1, ... from logistic models with scores of std 2, and `base` on those of 1 to C."""
    X, task, fit = _rows(rng, m, d, n, rows, n_test)
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    score = np.zeros((len(task), classes))
    for c in range(1, classes):
        W = models(rng, m, d)
        part = np.einsum("nj,nj->n", Z, W[task])
        score[:, c] = 2.0 * part / part.std() + base + spread * rng.standard_normal(m)[task]
    draws = score + rng.gumbel(size=score.shape)  # the largest is a draw of the softmax
    return _split(X, draws.argmax(axis=1).astype(float), task, fit)


# ------------------------------------------------------------- tables that are more than that
def houses(rng, m=80, n_test=TEST_ROWS):
    """Regions on a map: prices whose models change smoothly from place to place, in plain units."""
    sizes = rng.integers(8, 61, m)
    task = np.repeat(np.arange(m), sizes + n_test)
    fit = np.concatenate([np.arange(size + n_test) < size for size in sizes])
    where = rng.uniform(0, 10, (m, 2))  # degrees, or hundreds of kilometres
    places = rng.uniform(0, 10, (6, 2))
    near = np.exp(-((where[:, None] - places) ** 2).sum(axis=2) / 8.0)  # smooth on the map
    place = where[task] + 0.1 * rng.standard_normal((len(task), 2))
    area = np.exp(4.4 + 0.35 * rng.standard_normal(len(task)))  # m^2
    year = rng.integers(1900, 2021, len(task)).astype(float)
    income = np.exp(10.2 + near @ rng.standard_normal(6) * 0.3)[task]
    income *= np.exp(0.2 * rng.standard_normal(len(task)))
    rooms = np.maximum(1.0, np.round(area / 25 + rng.standard_normal(len(task))))
    garden = (rng.random(len(task)) < 0.4).astype(float)
    X = np.column_stack([place, area, year, income, rooms, garden])
    per_metre = 2_500 + 1_200 * near @ rng.standard_normal(6)
    price = per_metre[task] * area + 400 * (year - 1960) + 1.5 * income + 20_000 * garden
    price += (60_000 * near @ rng.standard_normal(6))[task]
    return _split(X, price + 25_000 * rng.standard_normal(len(task)), task, fit, 1e5)


def questionnaire(rng, persons=120, tasks=25, d=30, known=0.4):
    """Answers of the same persons to many questions, most of them missing: a task is a question."""
    X = np.concatenate(
        [one_hot(rng, np.zeros(2 * persons, int), d - 6), rng.integers(1, 6, (2 * persons, 6))],
        axis=1,
    )
    W = low_rank(3, 0.3)(rng, tasks, d)
    Y = X @ W.T
    Y = 3.0 + Y / Y.std() + 0.7 * rng.standard_normal(Y.shape)
    person, task = np.divmod(np.arange(Y.size), tasks)
    fit = person < persons
    kept = ~fit | (rng.random(Y.size) < known * rng.uniform(0.2, 1.8, tasks)[task])
    order = np.flatnonzero(kept)
    order = order[np.argsort(task[order], kind="stable")]
    return _split(X[person[order]], Y.ravel()[order], task[order], fit[order])


def health(rng, persons=150, tasks=20, d=60):
    """A health survey: yes or no outcomes of the same persons, some of them rare or not known."""
    seed = int(rng.integers(2**31))
    X, Y = make_lsoa_like(2 * persons, d, tasks, random_state=seed)
    person, task = np.divmod(np.arange(Y.size), tasks)
    order = np.flatnonzero(~np.isnan(Y.ravel()))
    order = order[np.argsort(task[order], kind="stable")]
    fit = person[order] < persons
    return _split(X[person[order]], Y.ravel()[order], task[order], fit)


def school(rng, share=0.3, most=None):
    """Examination scores of pupils in 139 schools; `share` of the pupils, or `most`, to fit."""
    data = load_school(scale="public")
    place = rng.permutation(len(data.target))
    order = place[np.argsort(data.task[place], kind="stable")]
    X, y, task = data.data[order], data.target[order], data.task[order]
    starts = np.flatnonzero(np.diff(task, prepend=-1))
    sizes = np.diff(np.append(starts, len(task)))
    within = np.arange(len(task)) - np.repeat(starts, sizes)
    taken = np.round(share * sizes) if most is None else np.full(len(sizes), most)
    fit = within < np.repeat(taken, sizes)
    return _split(X, y, task, fit)


def _regressions():
    few = sizes_between(5, 14)
    mean = around_mean()
    for m in (3, 10, 30, 300):
        yield f"mean, {m} tasks", "tuning", (m, few, 8, mean), {}
    for m in (10, 100):
        yield f"mean, {m} tasks, 200 columns", "tuning", (m, few, 200, mean), {}
    yield "low rank", "tuning", (200, 30, 20, low_rank()), {"rows": unit_rows}
    yield "group-sparse", "tuning", (200, 30, 20, sparse()), {"rows": unit_rows}
    yield "mean and low rank", "tuning", (200, zipf(4, 60), 20, mean_and_low_rank), {}
    yield "clusters", "tuning", (120, 15, 10, clusters()), {}
    yield "outlier tasks", "tuning", (100, 20, 10, with_outliers()), {}
    yield "unrelated", "tuning", (100, 20, 10, unrelated), {}
    yield "unrelated, y of 1e-4", "tuning", (60, few, 8, unrelated), {"scale": 1e-4}
    yield "column units and offsets", "tuning", (60, 12, 10, mean), {"rows": columns_of_units}
    yield "a unit per task", "tuning", (60, few, 8, mean), {"units": spread_units}
    yield "a few tasks x 1,000", "tuning", (60, few, 8, mean), {"units": some_thousands}
    yield "3 to 8 rows, 40 columns", "tuning", (100, sizes_between(3, 8), 40, mean), {}
    yield "opposite groups", "tuning", (100, 15, 10, opposite), {}

    yield "y of 1e-3", "fresh", (150, 12, 10, mean), {"scale": 1e-3}
    yield "y of 1e3", "fresh", (150, 12, 10, mean), {"scale": 1e3}
    yield "y at 1e4", "fresh", (150, 12, 10, mean), {"offset": 1e4}
    yield "y of 100 at -5,000", "fresh", (40, few, 6, low_rank()), {"scale": 100.0, "offset": -5e3}
    yield "2 to 4 rows", "fresh", (500, sizes_between(2, 4), 3, mean), {"n_test": 5}
    yield "600 rows", "fresh", (8, 600, 20, mean), {"n_test": 100}
    yield "2,000 tasks of 5 rows", "fresh", (2000, 5, 4, mean), {"n_test": 5}
    yield "2,000 unrelated tasks", "fresh", (2000, 8, 3, unrelated), {"n_test": 5}
    yield "Zipf from 600 to 2 rows", "fresh", (300, zipf(2, 600), 10, mean), {}
    yield "Zipf, group-sparse", "fresh", (120, zipf(3, 300), 40, sparse(3)), {}
    yield "noise of long tails", "fresh", (100, 20, 8, mean), {"tails": student}
    yield "columns of long tails", "fresh", (100, 20, 8, mean), {"rows": long_tails}
    yield "one-hot columns", "fresh", (60, 25, 20, mean), {"rows": one_hot}
    yield "one-hot, unrelated", "fresh", (40, 15, 26, unrelated), {"rows": one_hot}
    yield "columns that repeat", "fresh", (80, 15, 9, mean), {"rows": twins}
    yield "rows in places of tasks", "fresh", (100, 15, 8, mean), {"rows": shifted_rows}
    yield "skewed mean", "fresh", (150, 12, 10, skewed), {}
    yield "low rank, 60 columns", "fresh", (300, 15, 60, low_rank(3)), {}
    yield "unrelated, 100 columns", "fresh", (200, 10, 100, unrelated), {"n_test": 10}
    yield "nothing but noise", "fresh", (100, 12, 8, mean), {"noise": 20.0, "spread": 0.0}
    yield "next to no noise", "fresh", (100, 12, 8, mean), {"noise": 0.05}


def _classifications():
    mean = around_mean()
    yield "logistic, mean", "tuning", (100, 20, 8, mean), {}
    yield "logistic, low rank", "tuning", (150, 30, 15, low_rank()), {}
    yield "logistic, 5 tasks", "tuning", (5, 15, 8, mean), {}
    yield "three classes, mean", "tuning", (60, 30, 8, mean), {"classes": 3}

    yield "logistic, unrelated", "fresh", (80, 25, 8, unrelated), {}
    yield "logistic, rare", "fresh", (100, 40, 6, mean), {"base": -3.5}
    yield "logistic, one-class tasks", "fresh", (150, 6, 5, mean), {"spread": 3.0}
    yield "logistic, column units", "fresh", (60, 25, 8, mean), {"rows": columns_of_units}
    yield "logistic, 100 columns", "fresh", (80, 12, 100, mean), {}
    yield "logistic, 2,000 tasks", "fresh", (2000, 5, 4, mean), {"n_test": 5}
    yield "logistic, one-hot", "fresh", (50, 30, 20, mean), {"rows": one_hot}
    yield "three classes, some missing", "fresh", (80, 8, 6, mean), {"classes": 3, "spread": 2.0}
    yield "three classes, unrelated", "fresh", (40, 40, 6, unrelated), {"classes": 3}


def _shapes():
    for name, role, (m, n, d, models), more in _regressions():
        yield Shape(name, role, 0, partial(regression, m=m, n=n, d=d, models=models, **more))
    yield Shape("houses on a map", "fresh", 0, houses)
    yield Shape("questionnaire, gaps", "fresh", 0, questionnaire)
    yield Shape("School", "tuning", 0, school)
    yield Shape("School, 10 pupils", "tuning", 0, partial(school, most=10))
    for name, role, (m, n, d, models), more in _classifications():
        make = partial(classification, m=m, n=n, d=d, models=models, **more)
        yield Shape(name, role, more.get("classes", 2), make)
    yield Shape("health survey", "fresh", 2, health)


SHAPES = {shape.name: shape for shape in _shapes()}
