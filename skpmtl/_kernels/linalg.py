"""Dense kernels on one small symmetric matrix per task."""

import numpy as np

from .._jit import njit


@njit
def spd_inverse(A):
    """Replace every symmetric positive definite A[k] by its inverse. -> False if one is not.

    Cholesky factor, inverse of the factor, product: r^3 multiply-adds per matrix and no
    library call, which for r below about 100 costs more than the arithmetic.
    """
    r = A.shape[1]
    row = np.empty(r)
    for k in range(A.shape[0]):
        L = A[k]
        for j in range(r):  # factor, by rows of the lower triangle
            for i in range(j, r):
                s = L[i, j]
                for q in range(j):
                    s -= L[i, q] * L[j, q]
                L[i, j] = s
            if not L[j, j] > 0.0:
                return False
            root = L[j, j] ** 0.5
            for i in range(j, r):
                L[i, j] /= root
        for i in range(r):  # inverse of the factor, row by row
            pivot = 1.0 / L[i, i]
            for j in range(i):
                row[j] = 0.0
            for q in range(i):
                a = L[i, q] * pivot
                for j in range(q + 1):
                    row[j] -= a * L[q, j]
            for j in range(i):
                L[i, j] = row[j]
            L[i, i] = pivot
        for i in range(r):  # inverse = M' M for the inverse factor M, into the upper triangle
            for j in range(i + 1):
                row[j] = 0.0
            for q in range(i, r):
                a = L[q, i]
                for j in range(i + 1):
                    row[j] += a * L[q, j]
            for j in range(i + 1):
                L[j, i] = row[j]
        for i in range(r):
            for j in range(i):
                L[i, j] = L[j, i]
    return True
