"""Wishart matrices from standard variates."""

from .._runtime.jit import njit


@njit
def bartlett(normals, chi_squares, out):
    """Wishart W_d(nu, I) = A A' by Bartlett's decomposition, into `out` (d, d).

    A is lower triangular: A_ii^2 = chi_squares[i] with nu - i degrees of freedom (i from 0)
    and A_ij = normals[i (i - 1) / 2 + j] for j < i.
    """
    d = chi_squares.shape[0]
    for i in range(d):
        start_i = i * (i - 1) // 2
        root_i = chi_squares[i] ** 0.5
        for j in range(i):
            start_j = j * (j - 1) // 2
            total = normals[start_i + j] * chi_squares[j] ** 0.5
            for q in range(j):
                total += normals[start_i + q] * normals[start_j + q]
            out[i, j] = total
            out[j, i] = total
        total = root_i * root_i
        for q in range(i):
            total += normals[start_i + q] * normals[start_i + q]
        out[i, i] = total
