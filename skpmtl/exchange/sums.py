"""Sums of clipped contributions, to which noise is added."""

import numpy as np
from numpy.typing import NDArray

from ..privacy.mechanisms import clip_rows

__all__ = ["clipped_sum", "sum_of_clipped"]


def sum_of_clipped(vectors, bound, to=None, shape=None):
    """Sum of vectors, each scaled down to the length `bound`; one that is not finite counts as 0.

    `to`: place (n,) of every vector in the sum, of `shape` (p, size) before it is flattened; or the
    row (n, p), of length 1 at most, by which it is multiplied. None: all at one place.

    Rounding can move the sums of neighbours further apart than vectors of this length can:
    `skpmtl.exchange.protocol.allow_for_rounding` takes that in.
    """
    D = np.array(vectors, dtype=float)
    clip_rows(D, bound)
    if to is None:
        return D.sum(axis=0)
    if to.ndim == 2:
        return (to.T @ D).ravel()
    total = np.zeros(shape)
    np.add.at(total, to, D)
    return total.ravel()


def clipped_sum(name: str, bound, to=None, shape=None, less: float | NDArray | None = None):
    """``combine`` of a `Query` for `sum_of_clipped`.

    Parameters
    ----------
    name : str
        Of the contributions and their sum.
    bound, shape
        As of `sum_of_clipped`.
    to : ndarray (n_tasks,) or (n_tasks, p), default=None
        Of all tasks, as of `sum_of_clipped`.
    less : float or ndarray, default=None
        Public value that is subtracted from every contribution before it is clipped.
    """

    def combine(contributions, positions=None):
        vectors = contributions[name] if less is None else contributions[name] - less
        places = to if to is None or positions is None else to[positions]
        return {name: sum_of_clipped(vectors, bound, places, shape)}

    return combine
