"""Linear scores of rows that were read for prediction."""

import numpy as np
from scipy import sparse

from .._kernels import predict
from .._runtime.threads import run_blocks, single_blas_thread
from .table import by_code, read_only

_BLOCK = 1 << 19  # numbers that a thread predicts from at a time


def row_scores(rows, coef, intercept, mean_coef, mean_intercept):
    """x' w + b of every row with the model of its task, the mean model for unseen tasks.

    -> (n_rows, [n_classes]); `coef` (n_tasks, [n_classes,] n_features), `intercept` (n_tasks,
    [n_classes]); means lack the first dimension.
    """
    X, (*several, d) = rows.X, coef.shape[1:]
    C = several[0] if several else 1
    out = np.empty((X.shape[0], C))
    mean = mean_coef.reshape(C, d), np.reshape(mean_intercept, C)
    model = coef.reshape(-1, C, d), intercept.reshape(-1, C), *mean
    position = d if rows.position is None else rows.position
    thin = sparse.issparse(X)
    if thin:
        csr = X.data.astype(np.float64, copy=False), X.indices, X.indptr
        data, indices, ends = (read_only(part) for part in csr)

    def block(first, last):
        part = slice(first, last)
        codes = rows.codes[part]
        if thin:
            predict.csr_row_scores(data, indices, ends[first : last + 1], codes, *model, out[part])
        else:
            # Integers and float32 are converted block by block: there is no second X.
            Z = read_only(np.ascontiguousarray(X[part], dtype=np.float64))
            predict.row_scores(Z, codes, position, *model, out[part])

    size = max(_BLOCK // (64 if thin else X.shape[1]), 1)
    run_blocks(block, [(i, min(i + size, len(out))) for i in range(0, len(out), size)])
    return out if several else out[:, 0]


def dense_parts(rows):
    """Slices of the rows, some at a time, and the features of each as dense numbers."""
    step = max(_BLOCK // (rows.X.shape[1] + 1), 1)
    for first in range(0, rows.X.shape[0], step):
        part = slice(first, first + step)
        Z = rows.features(part)
        yield part, Z.toarray() if sparse.issparse(Z) else Z


def row_quadratics(rows, covariance, columns, near=lambda t, X: X):
    """(x, 1)' Cov (x, 1) of every row, in the form of the scores.

    Infinite for unseen tasks, and not finite where a covariance is not. `covariance` (n_tasks,
    [n_classes,] d + 1, d + 1) has the intercept last; ``columns()`` gives positions of the tasks of
    wide predictions, and ``near(t, X)`` the rows X as they count in the task at t.
    -> (n_rows, [n_columns,] [n_classes])
    """
    n, several = rows.X.shape[0], covariance.shape[1:-2]
    wide = rows.codes is None
    tasks = columns() if wide else rows.codes
    found = np.full((n, *([len(tasks)] if wide else []), *several), np.inf)
    for part, Z in dense_parts(rows):
        out = found[part]
        every = ((k, slice(None)) for k in tasks) if wide else by_code(tasks[part])
        with np.errstate(all="ignore"), single_blas_thread():
            for j, (k, own) in enumerate(every):
                if k >= 0:
                    X = near(k, Z[own])
                    X = np.column_stack([X, np.ones(len(X))])
                    out[(own, j) if wide else own] = ((X @ covariance[k]) * X).sum(axis=-1).T
    return found


def row_variances(rows, covariance, noise_variance, dof, columns):
    """Predictive variances of every row, (x, 1)' Cov (x, 1) and the noise, and degrees of freedom.

    Both (n_rows,) or (n_rows, n_columns), infinite for unseen tasks; covariances and columns as of
    `row_quadratics`, `noise_variance` and `dof` (n_tasks,).
    """
    wide = rows.codes is None
    tasks = columns() if wide else np.maximum(rows.codes, -1)
    with np.errstate(all="ignore"):  # of tasks that know nothing it is infinite, or NaN
        found = np.maximum(row_quadratics(rows, covariance, columns), 0.0) + noise_variance[tasks]
    if wide:
        return found, np.broadcast_to(dof[tasks], found.shape)
    return np.where(tasks < 0, np.inf, found), dof[tasks]
