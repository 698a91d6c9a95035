"""Rows of tasks with linear models."""

import numpy as np


def rows_of(rng, W, sizes, *, noise=0.1, level=0.0, scale=1.0):
    """Rows of tasks with the models W (m, d) and normal features. -> X, y, task

    `sizes` and `level` are numbers, or one for every task; `scale` is that of features.
    """
    m, d = W.shape
    task = np.repeat(np.arange(m), sizes)
    X = scale * rng.normal(size=(len(task), d))
    y = np.einsum("ij,ij->i", X, W[task]) + np.broadcast_to(level, m)[task]
    return X, y + noise * rng.normal(size=len(task)), task


def about_one_model(m, sizes, d, *, own=0.3, seed=0, **how):
    """Rows of `m` tasks around one model, see `rows_of`."""
    rng = np.random.default_rng(seed)
    return rows_of(rng, rng.normal(size=d) + own * rng.normal(size=(m, d)), sizes, **how)


def make_rows(sizes, d, seed=0, *, labels=False):
    """Gaussian rows of tasks with correlated coefficients: X, y, task."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((int(np.sum(sizes)), d))
    task = np.repeat(np.arange(len(sizes)), sizes)
    W = rng.standard_normal(d) + 0.5 * rng.standard_normal((len(sizes), d))
    b = rng.standard_normal(len(sizes))
    y = np.einsum("ij,ij->i", X, W[task]) + b[task] + 0.5 * rng.standard_normal(len(X))
    if labels:
        y = np.where(y > b[task], 1.0, -1.0)
        y[np.searchsorted(task, np.arange(len(sizes)))] = 1.0  # both classes in every task
        y[np.searchsorted(task, np.arange(len(sizes)), side="right") - 1] = -1.0
    return X, y, task


def random_tasks(kind, m, d, C, seed, rows, spread):
    """X, y, task in random order, around a common model; kind "real", "binary" or "multi"."""
    rng = np.random.default_rng(seed)
    task = rng.permutation(np.repeat(np.arange(m), rng.integers(*rows, m)))
    X = rng.normal(size=(len(task), d)) + 0.3
    n_outputs = C if kind == "multi" else 1
    W = rng.normal(size=(n_outputs, d)) + spread * rng.normal(size=(m, n_outputs, d))
    z = np.einsum("id,icd->ic", X, W[task]) + rng.gumbel(size=(len(task), n_outputs))
    y = z.argmax(axis=1) if kind == "multi" else z[:, 0] > 0.5 if kind == "binary" else z[:, 0]
    return X, y, task


def even_tasks(m, n, d, n_classes=0):
    """X, y, task of `m` tasks of `n` rows with nearly the same model; 0, 2 or 3 classes."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d)) / 2
    W = np.ones(d) + 0.2 * rng.normal(size=(m, d))
    y = np.einsum("ij,ij->i", X, W[task]) + 0.1 * rng.normal(size=m * n)
    if n_classes:
        y = np.digitize(y, np.quantile(y, [0.3, 0.6]) if n_classes > 2 else [0.0])
    return X, y, task


def related(rng, m, n, d, *, own=0.3, binary=False, **how):
    """Rows of tasks whose models follow from two covariates. -> X, y, task, covariates (m, 2), B,
    models

    Of the covariates the second is 0 or 1 where `binary` says so; B (3, d) are the coefficients of
    a constant and the covariates.
    """
    Z = rng.normal(size=(m, 1 if binary else 2))
    if binary:
        Z = np.column_stack([Z, np.arange(m) % 3 == 0])
    B = rng.normal(size=(3, d))
    W = np.column_stack([np.ones(m), Z]) @ B + own * rng.normal(size=(m, d))
    return *rows_of(rng, W, n, **how), Z, B, W


def covariates(Z, tasks=None):
    """relation= of tasks with the covariates Z, numbered or named."""
    return dict(zip(range(len(Z)) if tasks is None else tasks, Z.tolist(), strict=True))
