"""Levels of rows: of factors below tasks, as classes of a school, and across them, as items.

The column of such a factor is a column of X, which is taken out before the model.
"""

from dataclasses import dataclass, replace

import numpy as np

from .factors import rows_of_factors
from .ids import encode_ids, locate

__all__ = ["RowLevels", "read_levels"]


@dataclass(frozen=True, eq=False)
class RowLevels:
    """The level of every row, of one factor or more.

    Attributes
    ----------
    names : tuple of str or int
        Columns of X, in the order of `codes`.
    labels : tuple of ndarray
        Levels of each factor, sorted: those of these rows, or of its public list.
    codes : ndarray (n_rows, n_factors) of int64
        Places of the levels of rows among `labels`.
    """

    names: tuple
    labels: tuple
    codes: np.ndarray

    def __getitem__(self, rows):
        return replace(self, codes=self.codes[rows])

    def values(self, rows=slice(None)):
        """Levels of some rows as they were given, an array of objects for each factor."""
        codes = self.codes[rows].T
        return [labels.astype(object)[own] for labels, own in zip(self.labels, codes, strict=True)]

    def column(self, name):
        """Of one factor. -> labels, codes (n_rows,)"""
        k = self.names.index(name)
        return self.labels[k], self.codes[:, k]

    def among(self, name, known, rows=slice(None)):
        """Places (n_rows,) of the levels of some rows in `known`, sorted; -1 of others."""
        k = self.names.index(name)
        return locate(self.labels[k], known, "Level")[self.codes[rows, k]]


def read_levels(factors, columns, *, new=False):
    """Levels of rows, from the columns of the factors.

    Parameters
    ----------
    factors : mapping
        As `factors` of `PrivateMTL`.
    columns : dict of str or int to array-like (n_rows,)
        Columns of X by name.
    new : bool, default=False
        Whether levels that the public list lacks are taken.

    -> RowLevels; None without columns

    Raises
    ------
    TypeError, ValueError
        For levels that are missing, of mixed types, or not in the public list.
    """
    if not columns:
        return None
    labels, codes = [], []
    for name, (_, public) in rows_of_factors(factors).items():
        own, found = encode_ids(columns[name], f"{name} level")
        if public is not None and not new:
            public = np.sort(public)
            at = locate(found, public, "Level")
            if (at < 0).any():
                raise ValueError(
                    f"{np.sum(at[own] < 0)} row(s) have a level of the factor {name!r} that its "
                    "public list lacks: add it to the list, or drop these rows."
                )
            own, found = at[own], public
        labels.append(found)
        codes.append(own)
    return RowLevels(tuple(columns), tuple(labels), np.stack(codes, axis=1))
