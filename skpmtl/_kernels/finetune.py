"""How well each prior scale explains a task, from the spectrum of its rows."""

import numpy as np

from .._jit import njit


@njit
def evidence(values, products, squares, sizes, kind, snr, out, level):
    """out[k, s] = -2 log evidence of task k at prior variance snr[s] / level[k], up to a constant.

    Parameters
    ----------
    values : (m, r)
        Eigenvalues of A_k' A_k.
    products : (m, n_outputs, r)
        A_k' response in the eigenbasis.
    squares : (m,)
        Sum of the squared responses.
    sizes : (m,)
        Rows.
    kind : int
        0: the noise variance is profiled out. Otherwise it is 1, and with n_outputs > 1 one of
        the outputs counts for nothing, as the scores of the classes have a common shift.
    out : (m, len(snr)), level : (m,)
        Results; level[k] = sum(values[k]) / sizes[k].
    """
    m, r = values.shape
    C = products.shape[1]
    free = C - 1.0 if C > 1 else 1.0
    for k in range(m):
        total = 0.0
        for j in range(r):
            total += values[k, j]
        level[k] = total / sizes[k]
        tiny = 1e-9 * squares[k] + 1e-300
        for s in range(snr.shape[0]):
            kappa = snr[s] / level[k] if level[k] > 0 else 0.0
            fit, logdet = 0.0, 0.0
            for j in range(r):
                f = kappa / (1.0 + kappa * values[k, j])
                logdet += np.log1p(kappa * values[k, j])
                for c in range(C):
                    fit += f * products[k, c, j] ** 2
            if kind == 0:
                quad = max(squares[k] - fit, tiny)
                out[k, s] = sizes[k] * np.log(quad / sizes[k]) + logdet
            else:
                out[k, s] = free * logdet - fit
