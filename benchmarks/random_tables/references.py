"""What tasks and curators without privacy have: references for errors on a random table."""

import numpy as np
from sklearn.linear_model import RidgeCV

ALPHAS = np.logspace(-4, 4, 17)


def error(table, predicted, judged=slice(None)):
    """Squared error over the variance of the judged targets; infinite where it is not finite."""
    y = table.y_test[judged]
    value = np.mean((predicted[judged] - y) ** 2) / y.var()
    return float(value) if np.isfinite(value) else np.inf


def judged_rows(table, z):
    """Where predictions are judged, for (tasks with rows) times mu: below 20 not of tasks without
    rows, which have nothing by themselves and of which nothing can be released."""
    return np.isin(table.task_test, table.task) | (z >= 20)


def references(table):
    """Predictions of references for all test rows. -> {name: ndarray}

    - "own mean", "own ridge": each task by its own rows; leave-one-out ridge from three rows on;
    - "shrunken means": means of tasks towards the mean of means, by the method of moments;
    - "mean": 1 where the judged rows have the mean of those of the fit;
    - "pooled": one leave-one-out ridge for all rows;
    - "mixed": a mixed model with random intercepts, if statsmodels can be imported.
    """
    t, y = table.task, table.y
    n = np.bincount(t, minlength=table.n_tasks)
    own = np.bincount(t, y, table.n_tasks) / np.maximum(n, 1)
    own[n == 0] = y.mean()
    u = table.task_test
    centre, scale = table.X.mean(axis=0), table.X.std(axis=0)
    scale[scale <= 1e-12 * np.abs(centre)] = np.inf
    A, B = (table.X - centre) / scale, (table.X_test - centre) / scale
    pooled = RidgeCV(ALPHAS).fit(A, y)
    ridge = own[u]
    starts = np.searchsorted(t, np.arange(table.n_tasks + 1))
    for k in np.flatnonzero(n >= 3):
        rows, judged = slice(starts[k], starts[k + 1]), u == k
        ridge[judged] = RidgeCV(ALPHAS).fit(A[rows], y[rows]).predict(B[judged])
    found = {
        "own mean": own[u],
        "own ridge": ridge,
        "shrunken means": shrunken_means(y, t, n, own)[u],
        "mean": np.full(len(u), y.mean()),
        "pooled": pooled.predict(B),
    }
    A, B = (np.c_[np.ones(len(rows)), rows] for rows in (A, B))
    mixed = mixed_model(A, y, t, B, u)
    if mixed is not None:
        found["mixed"] = mixed
    return found


def shrunken_means(y, t, n, own):
    """Means of tasks, shrunk by the variance between and within tasks (method of moments)."""
    present = n > 0
    within = np.sum((y - own[t]) ** 2) / max(len(y) - present.sum(), 1)
    spread = own[present].var(ddof=1) if present.sum() > 1 else 0.0
    between = max(spread - within * np.mean(1 / n[present]), 0.0)
    weight = between / np.maximum(between + within / np.maximum(n, 1), 1e-300)
    middle = own[present].mean()
    return np.where(present, middle + weight * (own - middle), middle)


def mixed_model(A, y, t, B, u):
    """Predictions of statsmodels' MixedLM with random intercepts; None where it finds no model.

    `A` and `B`: columns with fixed effects, of rows of tasks `t` for the fit and `u` to predict.
    """
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM

        fit = MixedLM(y, A, t).fit()
        effects = {k: float(np.asarray(v)[0]) for k, v in fit.random_effects.items()}
    except (ImportError, np.linalg.LinAlgError, ValueError):
        return None
    return B @ fit.fe_params + np.array([effects.get(k, 0.0) for k in u])


def best_of(table, known, z):
    """Error of the reference for (tasks with rows) times mu: below 20 what a task has by itself."""
    names = ["own mean", "own ridge"] + (["shrunken means", "mean"] if z >= 20 else [])
    return min(error(table, known[name], judged_rows(table, z)) for name in names)
