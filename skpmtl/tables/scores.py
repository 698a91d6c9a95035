"""Linear scores of rows that were read for prediction."""

import numpy as np
from scipy import sparse

from .._kernels import predict
from .._runtime.threads import run_blocks
from .table import read_only

_BLOCK = 1 << 19  # numbers that a thread predicts from at a time


def row_scores(rows, coef, intercept, mean_coef, mean_intercept):
    """x' w + b of every row with the model of its task, the mean model for unseen tasks.

    Parameters
    ----------
    rows : skpmtl.tables.forms.Rows
    coef : ndarray (n_tasks, n_features) or (n_tasks, n_classes, n_features)
    intercept : ndarray (n_tasks,) or (n_tasks, n_classes)
    mean_coef, mean_intercept
        Without the first dimension.

    Returns
    -------
    scores : ndarray (n_rows,) or (n_rows, n_classes)
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


def row_variances(rows, covariance, noise_variance, dof, columns):
    """Predictive variances of every row, (x, 1)' Cov (x, 1) and the noise, and degrees of freedom.

    Parameters
    ----------
    rows : skpmtl.tables.forms.Rows
    covariance : ndarray (n_tasks, n_features + 1, n_features + 1)
        Of coefficients and, last, the intercept.
    noise_variance, dof : ndarray (n_tasks,)
    columns : callable
        Of positions of the tasks of wide predictions.

    Returns
    -------
    variance, dof : ndarray (n_rows,), or (n_rows, n_columns)
        Infinite for unseen tasks.
    """
    n, D = rows.X.shape[0], covariance.shape[1]
    wide = rows.codes is None
    tasks = columns() if wide else np.maximum(rows.codes, -1)
    found = np.empty((n, len(tasks)) if wide else n)
    step = max(_BLOCK // (D if wide else D * D), 1)
    for first in range(0, n, step):
        part = slice(first, first + step)
        Z = rows.features(part)
        Z = Z.toarray() if sparse.issparse(Z) else Z
        Z = np.column_stack([Z, np.ones(len(Z))])
        with np.errstate(all="ignore"):  # of tasks that know nothing it is infinite, or NaN
            if wide:
                for j, k in enumerate(tasks):
                    found[part, j] = np.einsum("ij,ij->i", Z @ covariance[k], Z)
            else:
                found[part] = np.einsum("ni,nij,nj->n", Z, covariance[tasks[part]], Z)
    found = np.maximum(found, 0.0) + noise_variance[tasks]
    if wide:
        return found, np.broadcast_to(dof[tasks], found.shape)
    return np.where(tasks < 0, np.inf, found), dof[tasks]
