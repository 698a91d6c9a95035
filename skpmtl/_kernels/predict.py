"""Scores of rows in any order, each with the coefficients of its own task."""

from .._runtime.jit import njit


@njit
def row_scores(X, codes, position, coef, intercept, mean_coef, mean_intercept, out):
    """out[i] = W x_i + b of the task codes[i]; of the mean model where codes[i] is negative.

    coef is (n_tasks, n_outputs, d). X may still hold the task column, at `position`; otherwise
    `position` is the number of features.
    """
    d = coef.shape[2]
    for i in range(X.shape[0]):
        k = codes[i]
        for c in range(out.shape[1]):
            w = coef[k, c] if k >= 0 else mean_coef[c]
            s = 0.0
            for j in range(position):
                s += X[i, j] * w[j]
            for j in range(position, d):
                s += X[i, j + 1] * w[j]
            out[i, c] = s + (intercept[k, c] if k >= 0 else mean_intercept[c])


@njit
def csr_row_scores(data, indices, indptr, codes, coef, intercept, mean_coef, mean_intercept, out):
    """The same for the rows of a CSR matrix."""
    for i in range(indptr.shape[0] - 1):
        k = codes[i]
        for c in range(out.shape[1]):
            w = coef[k, c] if k >= 0 else mean_coef[c]
            s = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                s += data[p] * w[indices[p]]
            out[i, c] = s + (intercept[k, c] if k >= 0 else mean_intercept[c])
