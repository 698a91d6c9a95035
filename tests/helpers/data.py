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
