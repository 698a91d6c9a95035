"""The law of random tables: sizes, columns, what tasks share, noise, and how people store them.

Every table follows from a seed. `draw` with raw=False has columns of mean near 0 and spread near 1
(three in ten tables: of any unit), two rows of every task or more, and targets without bounds. With
raw=True the same tables come as people have them: columns in any unit and on any origin, constant
and repeated columns, skewed, bounded and rounded targets, tasks of one row, listed tasks without
rows, and heavy tails.
"""

import math
from dataclasses import dataclass

import numpy as np

N_TEST = 12  # rows of every task on which predictions are judged
MOST_ROWS, MOST_NUMBERS = 20_000, 500_000  # of a table, so that a draw takes seconds


@dataclass
class RandomTable:
    """Rows (n, d), targets and task numbers for the fit and for the judgement; m listed tasks."""

    seed: int
    X: np.ndarray
    y: np.ndarray
    task: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    task_test: np.ndarray
    n_tasks: int
    words: str

    @property
    def n_present(self):
        """Tasks with rows."""
        return len(np.unique(self.task))


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def draw(seed, raw=True):
    """-> RandomTable"""
    rng = np.random.default_rng([20261129, seed, raw])
    while True:
        m, n = int(log_uniform(rng, 10, 1500)), log_uniform(rng, 3, 120)
        d = int(log_uniform(rng, 2, 60))
        if m * n <= MOST_ROWS and m * n * d <= MOST_NUMBERS:
            break
    law = rng.choice(["equal", "poisson", "zipf"])
    sizes = _sizes(rng, law, m, n)
    notes = [f"m{m} n{n:.0f} {law} d{d}"]
    both = sizes + N_TEST
    task = np.repeat(np.arange(m), both)
    X, kind = _columns(rng, task, m, d)
    W, shared = _slopes(rng, m, d)
    notes += [kind, "+".join(shared)]
    f = (X * W[task]).sum(axis=1)
    f /= f.std()
    tails = rng.random() < 0.2
    level = log_uniform(rng, 0.1, 3) * (rng.random() < 0.8)
    f += (level * rng.normal(size=m))[task]
    e = rng.standard_t(3, len(task)) / math.sqrt(3) if tails else rng.normal(size=len(task))
    y = f + log_uniform(rng, 0.15, 2.5) * e
    place = rng.normal() * log_uniform(rng, 1, 30) if rng.random() < 0.5 else 0.0
    y = log_uniform(rng, 1e-2, 1e3) * (y + place)
    if not raw and rng.random() < 0.3:
        X = X * 10.0 ** rng.uniform(-2, 2, d)
    position = np.concatenate([np.arange(k) for k in both])
    test = position >= sizes[task]
    if raw:
        X, words = _raw_columns(rng, X)
        y, more = _raw_targets(rng, y, task, m)
        keep, rare = _few_rows(rng, position, task, test, m)
        notes += words + more + rare
        X, y, task, test = X[keep], y[keep], task[keep], test[keep]
    split = [a[part] for part in (~test, test) for a in (X, y, task)]
    return RandomTable(seed, *split, m, " ".join(notes + ["heavy tails"] * tails))


def _sizes(rng, law, m, n):
    if law == "equal":
        sizes = np.full(m, round(n))
    elif law == "poisson":
        sizes = 1 + rng.poisson(n - 1, m)
    else:
        sizes = ((n * m / math.log(m + 1)) / np.arange(1, m + 1)).astype(int)
        sizes = np.clip(sizes, 2, int(12 * n))
    return np.maximum(sizes, 2)


def _columns(rng, task, m, d):
    kind = rng.choice(["normal", "correlated", "one-hot", "skewed", "places"])
    X = rng.normal(size=(len(task), d))
    if kind == "correlated":
        X = 0.6 * X + 0.8 * rng.normal(size=(len(task), 1))
    elif kind == "skewed":
        X = np.exp(0.8 * X) - math.exp(0.32)
    elif kind == "places":
        X = X + 1.5 * rng.normal(size=(m, d))[task]
    elif kind == "one-hot" and d > 3:
        k = d // 2
        p = 1 / np.arange(1, k + 1)
        X[:, :k] = np.eye(k)[rng.choice(k, len(task), p=p / p.sum())]
    return X, kind


def _slopes(rng, m, d):
    chance = {"mean": 0.6, "low": 0.35, "sparse": 0.25, "groups": 0.2, "own": 0.5}
    shared = [name for name, p in chance.items() if rng.random() < p] or ["own"]
    W = np.zeros((m, d))

    def size():
        return log_uniform(rng, 0.3, 3)

    if "mean" in shared:
        W += size() * rng.normal(size=d)
    if "low" in shared:
        k = rng.integers(1, min(4, d) + 1)
        W += size() * rng.normal(size=(m, k)) @ rng.normal(size=(k, d)) / math.sqrt(k)
    if "sparse" in shared:
        used = rng.choice(d, max(1, d // 8), replace=False)
        W[:, used] += 2 * size() * rng.normal(size=(m, len(used)))
    if "groups" in shared:
        k = rng.integers(2, 6)
        W += size() * rng.normal(size=(k, d))[rng.integers(0, k, m)]
    if "own" in shared:
        W += 0.5 * size() * rng.normal(size=(m, d))
    return W, shared


def _raw_columns(rng, X):
    d, words = X.shape[1], []
    if rng.random() < 0.6:
        X, words = X * 10.0 ** rng.uniform(-3, 4, d), ["units"]
    if rng.random() < 0.4:
        X = X + X.std(axis=0) * rng.choice([0.0, 1.0, 10.0, 100.0], d) * rng.normal(size=d)
        words.append("origins")
    if d > 3 and rng.random() < 0.15:
        X = X.copy()
        X[:, 0] = X[0, 0]
        words.append("constant column")
    if d > 3 and rng.random() < 0.15:
        X = np.c_[X[:, :-1], X[:, -2:-1] * log_uniform(rng, 0.1, 10)]
        words.append("repeated column")
    return X, words


def _raw_targets(rng, y, task, m):
    u = (y - np.median(y)) / y.std()
    kind = rng.choice(
        ["as is", "skewed", "bounded", "rounded", "outliers"], p=[0.5, 0.2, 0.1, 0.1, 0.1]
    )
    size = log_uniform(rng, 1e-2, 1e5)
    if kind == "skewed":
        y = size * np.exp(np.clip(u, -5, 5) * rng.uniform(0.5, 1.2))
    elif kind == "bounded":
        y = size / (1 + np.exp(-2 * u))
    elif kind == "rounded":
        y = np.round(u * rng.integers(1, 6)) + rng.integers(0, 2000)
    elif kind == "outliers":
        y = y + y.std() * (30 * rng.normal(size=m) * (rng.random(m) < 0.03))[task]
    return y, [] if kind == "as is" else [f"{kind} y"]


def _few_rows(rng, position, task, test, m):
    """Rows that stay: some tables have tasks of one row, and listed tasks without any."""
    keep, words = np.ones(len(task), dtype=bool), []
    if rng.random() < 0.3:
        single = rng.random(m) < rng.choice([0.1, 0.5, 0.9])
        keep &= test | (position == 0) | ~single[task]
        words.append(f"{single.mean():.0%} one row")
    if rng.random() < 0.25:
        gone = rng.random(m) < rng.choice([0.1, 0.5, 0.9])
        gone[0] = False
        keep &= test | ~gone[task]
        words.append(f"{gone.mean():.0%} absent")
    return keep, words
