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
    X, shape = rows.X, coef.shape[1:]
    out = np.empty((X.shape[0], *shape[:-1]))
    model = coef, intercept, mean_coef, mean_intercept
    position = shape[-1] if rows.position is None else rows.position
    thin = sparse.issparse(X)
    if thin:
        csr = X.data.astype(np.float64, copy=False), X.indices, X.indptr
        data, indices, ends = (read_only(part) for part in csr)
    multi = "_multi" if shape[:-1] else ""
    kernel = getattr(predict, ("csr_row_scores" if thin else "row_scores") + multi)

    def block(first, last):
        part = slice(first, last)
        codes = rows.codes[part]
        if thin:
            kernel(data, indices, ends[first : last + 1], codes, *model, out[part])
        else:
            # Integers and float32 are converted block by block: there is no second X.
            Z = read_only(np.ascontiguousarray(X[part], dtype=np.float64))
            kernel(Z, codes, position, *model, out[part])

    size = max(_BLOCK // (64 if thin else X.shape[1]), 1)
    run_blocks(block, [(i, min(i + size, len(out))) for i in range(0, len(out), size)])
    return out
