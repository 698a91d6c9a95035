"""Checks of sparse input, whose index arrays compiled code follows."""

import numpy as np
from scipy import sparse

_BLOCK = 2**20  # entries compared at a time, which bounds temporary memory
_NARROW = np.iinfo(np.int32).max


def checked(X):
    """A sparse matrix whose arrays are sound; anything else as it is.

    Compiled loops, here and in scipy, do not check indices: one that is out of range reads and
    writes the memory of something else. The result is the same object if there is nothing to mend;
    otherwise a CSR matrix with the entries of a row in the order of their columns, those of one
    place added up, and indices of 32 bits where they suffice: loops are compiled again for others.
    Raises ValueError for arrays that do not describe a matrix of this shape.
    """
    if not sparse.issparse(X):
        return X
    if X.ndim != 2:
        raise ValueError(f"X is a sparse array of {X.ndim} dimension(s); it must have two.")
    if X.format == "dok":
        X = X.tocoo()
    if X.format == "coo":
        if len({np.shape(part) for part in (X.row, X.col, X.data)}) > 1 or np.ndim(X.row) != 1:
            raise _damaged("row, col and data have different lengths")
        _check_range(X.row, X.shape[0], "row")
        _check_range(X.col, X.shape[1], "column")
    elif X.format == "dia":
        if np.ndim(X.data) != 2 or X.offsets.shape != X.data.shape[:1]:
            raise _damaged("it needs one row of data for each diagonal")
        _check_integers(X.offsets, "offsets")
    elif X.format == "lil":
        if [*map(len, X.rows)] != [*map(len, X.data)] or len(X.rows) != X.shape[0]:
            raise _damaged("rows and data have different lengths")
    else:
        _check_compressed(X)
    if X.format != "csr":
        X = X.tocsr()
        _check_compressed(X)  # lists of columns may hold anything
    return _tidy(X)


def _check_compressed(X):
    major, minor = X.shape if X.format != "csc" else X.shape[::-1]
    data, indices, indptr = X.data, X.indices, X.indptr
    if X.format == "bsr":
        if data.ndim != 3 or not all(data.shape[1:]):
            raise _damaged("data must hold one block for each index")
        if major % data.shape[1] or minor % data.shape[2]:
            raise _damaged("its shape is not made of whole blocks")
        major, minor = major // data.shape[1], minor // data.shape[2]
    elif data.ndim != 1:
        raise _damaged("data must be a vector")
    if indices.ndim != 1 or indptr.shape != (major + 1,):
        raise _damaged(f"indptr must have {major + 1} entries, one more than there are rows")
    _check_integers(indptr, "indptr")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise _damaged("indptr must start at 0 and not decrease")
    nnz = int(indptr[-1])
    if nnz > min(len(indices), len(data)):
        raise _damaged("indptr ends behind the end of indices or data")
    _check_range(indices[:nnz], minor, "column" if X.format != "csc" else "row")


def _tidy(X):
    """CSR with increasing columns in every row: loops take every entry for another column."""
    data, indices, indptr = X.data, X.indices, X.indptr
    nnz = int(indptr[-1])
    if max(nnz, X.shape[1]) <= _NARROW and not indices.dtype == indptr.dtype == np.int32:
        indices, indptr = indices.astype(np.int32), indptr.astype(np.int32)
        X = type(X)((data, indices, indptr), shape=X.shape, copy=False)
    whole = nnz == len(indices) == len(data) and indices.dtype == indptr.dtype
    if whole and _increasing(indices, indptr):
        return X
    made = type(X)((data[:nnz].copy(), indices[:nnz].copy(), indptr.copy()), shape=X.shape)
    made.sum_duplicates()
    return made


def _increasing(indices, indptr):
    """Whether columns increase within every row of CSR arrays."""
    for start in range(0, len(indices) - 1, _BLOCK):
        part = indices[start : start + _BLOCK + 1]
        down = start + 1 + np.flatnonzero(part[1:] <= part[:-1])
        if len(down):  # allowed where a row starts
            row = np.searchsorted(indptr, down)
            if (indptr[np.minimum(row, len(indptr) - 1)] != down).any():
                return False
    return True


def _check_range(indices, length, what):
    _check_integers(indices, f"{what} indices")
    if len(indices) and (indices.min() < 0 or indices.max() >= length):
        raise _damaged(f"a {what} index lies outside of 0 to {length - 1}")


def _check_integers(indices, what):
    if indices.dtype.kind not in "iu":
        raise _damaged(f"{what} must be integers, not {indices.dtype}")


def _damaged(reason):
    return ValueError(
        f"X is a damaged sparse matrix: {reason}. Build it anew from rows, columns and values, "
        "for example with scipy.sparse.coo_array((values, (rows, columns)), shape).tocsr(); "
        "X.check_format() finds such faults."
    )
