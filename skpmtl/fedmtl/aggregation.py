"""One aggregation of FedMTL: personalised weighted averages of layers, as a function on arrays.

Equation numbers are those of P. Sen, C. Borcea, FedMTL: privacy-preserving federated multi-task
learning. The per-task rule is ours.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["AGGREGATIONS", "fedmtl_aggregate"]

AGGREGATIONS = ("per-task", "similarity", "uniform")

# Of a parameter, where there are others, and of the ratio of two sizes: beyond, an average in
# float64 keeps nothing of what is of order one, and one client would replace everybody's layers.
LARGEST = 2.0**53

# The per-task rule, fixed before it was tried on any data: cosine to this power for heads,
# least weight of another client's shared layers.
_POWER, _FLOOR = 4, 0.1
# Heads of few rows are far from all others, and those of many rows near to all: distances are
# relative to those of the nearest quarter of the others. Chosen on draws that no page reports.
_NEAREST, _FALL = 0.75, 16


def fedmtl_aggregate(shared, heads, task_ids, sizes, thresholds, *, aggregation="similarity"):
    """Aggregate the layers of N clients, with weights of each client's own.

    Parameters
    ----------
    shared : array-like of shape (N, P)
        Shared layers of every client, flattened; P may be 0.
    heads : sequence of length N
        Heads of every client, flattened with their biases: an array of shape (K_i, D), or,
        where heads differ in length, a list of K_i vectors.
    task_ids : sequence of length N
        For every client the K_i ids of the tasks of its heads, in their order; hashable.
    sizes : array-like of shape (N,)
        Numbers of rows D_i > 0.
    thresholds : float or array-like of shape (N,)
        Z_i in [0, 1], the least similarity of a neighbour. The rules other than "similarity" have
        no threshold.
    aggregation : {"similarity", "per-task", "uniform"}, default="similarity"
        ============  ========================================================================
        "similarity"  the paper. H_ij is the largest sum of cosines of a one-to-one
                      matching of the heads of i and j, where a pair may stay
                      unmatched at 0 (eqs. 4, 5); S_ij = H_ij / K_i and S_ii = 1
                      (eq. 6). Neighbours j have S_ij >= Z_i (eq. 7). Shared layers:
                      mean over the neighbours with the weights S_ij D_j (eqs. 8, 2);
                      head of task k: the same over the neighbours that have k
                      (eqs. 9, 3)
        "per-task"    ours. Head of task k: weights c_ij^4 min(1, c_ij / r_ij)^16 D_j
                      over the clients that have k, with c_ij = max(0, cos) of the
                      two heads of k, and r_ij the geometric mean of two quantiles,
                      of i and j: that of .75 of c between a client and the others
                      that have k. Shared layers: weights S_ij D_j, S_ij the squared
                      mean of c_ij over the common tasks, at least 0.1; without a
                      common task, the mean of S over all other pairs (client and
                      itself included)
        "uniform"     weights D_j over all clients that have the layer
        ============  ========================================================================

    Returns
    -------
    shared : ndarray of shape (N, P)
    heads : list of length N
        In the form of the argument, new arrays.
    similarity : ndarray of shape (N, N)
        S_ij that weights the shared layers, before the threshold.

    Raises
    ------
    ValueError
        For shapes that do not agree, a client without heads, parameters that are not finite or
        (of two clients or more) above 2^53 in absolute value, sizes that are not positive or 2^53
        times smaller than the largest, a task twice at a client, a task whose heads differ in
        length between clients, thresholds outside [0, 1]. Nothing was aggregated then.

    Notes
    -----
    The cosine of heads of different length is 0: they cannot be of one kind. So is that of a
    head of zeros. The inputs are never modified.

    Examples
    --------
    Two clients, tasks {a, b} and {a, c}. Eq. 5 matches the heads of a; those of b and c differ.

    >>> import numpy as np
    >>> from skpmtl.fedmtl import fedmtl_aggregate
    >>> shared, heads, S = fedmtl_aggregate(
    ...     shared=[[0.0], [1.0]],
    ...     heads=[np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, -1.0]])],
    ...     task_ids=[["a", "b"], ["a", "c"]],
    ...     sizes=[1, 3],
    ...     thresholds=0.5,
    ... )
    >>> S.tolist(), shared.round(3).tolist(), heads[0].round(3).tolist()
    ([[1.0, 0.5], [0.5, 1.0]], [[0.6], [0.857]], [[1.4, 0.0], [0.0, 1.0]])
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation={aggregation!r} must be one of {list(AGGREGATIONS)}.")
    uploads = _Uploads(shared, heads, task_ids, sizes, thresholds)
    n, sizes = len(uploads.sizes), uploads.sizes
    if aggregation == "per-task":
        similarity, blocks = _per_task(uploads, uploads.cosines())
        weights = similarity * sizes
    elif aggregation == "similarity":
        similarity = _matchings(uploads, uploads.cosines()) / uploads.counts[:, None]
        np.fill_diagonal(similarity, 1.0)  # rounding must not drop a client's own model
        near = similarity >= uploads.thresholds[:, None]
        weights = np.where(near, similarity, 0.0) * sizes
        blocks = _same_task(uploads, weights)
    else:
        similarity = np.ones((n, n))
        weights = similarity * sizes
        blocks = _same_task(uploads, weights)
    new_heads = uploads.vectors.copy()
    for rows, head_weights in blocks:
        new_heads[rows] = _averages(head_weights, uploads.vectors[rows])
    return _averages(weights, uploads.shared), uploads.by_client(new_heads), similarity


def directions_of(heads):
    """Unit vectors of heads (R, D); of those of zeros zeros, with the cosine 0 with everything."""
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    largest = np.abs(heads).max(axis=1, keepdims=True)
    unit = heads / np.where(largest > 0, largest, 1.0)
    norm = np.linalg.norm(unit, axis=1, keepdims=True)
    return unit / np.where(norm > 0, norm, 1.0)


def _averages(weights, values):
    return (weights / weights.sum(axis=1, keepdims=True)) @ values


def _same_task(uploads, weights):
    """Weights between the clients that have a task, for every task."""
    return [
        (rows, weights[np.ix_(uploads.owner[rows], uploads.owner[rows])])
        for rows in uploads.rows_of_task
    ]


def _per_task(uploads, cosines):
    n, sizes = len(uploads.sizes), uploads.sizes
    total, common, blocks = np.zeros((n, n)), np.zeros((n, n)), []
    for rows in uploads.rows_of_task:
        cosine = np.maximum(cosines[np.ix_(rows, rows)], 0.0)
        owners = uploads.owner[rows]
        pairs = np.ix_(owners, owners)
        total[pairs] += cosine
        common[pairs] += 1
        blocks.append((rows, cosine**_POWER * _near(cosine) * sizes[owners]))
    known = common > 0
    similarity = np.maximum(_FLOOR, (total / np.maximum(common, 1)) ** 2)
    np.fill_diagonal(similarity, 1.0)
    similarity[~known] = similarity[known].mean()
    return similarity, blocks


def _near(cosine):
    """Nearness of the heads of one task, relative to the nearest ones, (n, n)."""
    n = len(cosine)
    near = np.ones((n, n))
    if n > 2:
        others = cosine[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        root = np.sqrt(np.quantile(others, _NEAREST, axis=1))
        reference = root[:, None] * root
        np.divide(cosine, reference, out=near, where=reference > cosine)
        near **= _FALL
    return near


def _matchings(uploads, cosines):
    """Values H of the largest matchings, (N, N)."""
    n, starts = len(uploads.sizes), uploads.starts
    gains = np.maximum(cosines, 0.0)  # a pair of negative cosine stays unmatched
    values = np.diag(uploads.counts.astype(np.float64))
    for i in range(n):
        for j in range(i + 1, n):
            gain = gains[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
            row, column = linear_sum_assignment(gain, maximize=True)
            values[i, j] = values[j, i] = gain[row, column].sum()
    return values


class _Uploads:
    """Checked arguments of an aggregation, all heads stacked and padded to one length.

    `shared` (N, P); `vectors` (R, D), the heads of all clients, client after client, those of
    client i at starts[i]:starts[i + 1]; `counts`, `sizes`, `thresholds` (N,); `owner` (R,), client
    of every head; `rows_of_task`, heads of every task.
    """

    def __init__(self, shared, heads, task_ids, sizes, thresholds):
        self.shared = _finite_matrix(shared)
        n = len(self.shared)
        for name, values in (("heads", heads), ("task_ids", task_ids), ("sizes", sizes)):
            if len(values) != n:
                raise ValueError(
                    f"{name} has {len(values)} entries, but shared has {n} rows, one per client."
                )
        self._as_array = [isinstance(own, np.ndarray) for own in heads]
        vectors = [_client_heads(i, own) for i, own in enumerate(heads)]
        if n > 1:
            _check_magnitudes(self.shared, vectors)
        self.sizes = _positive_sizes(sizes)
        self.thresholds = _thresholds(thresholds, n)
        self.counts = np.array([len(own) for own in vectors])
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        self.owner = np.repeat(np.arange(n), self.counts)
        self.lengths = np.array([len(vector) for own in vectors for vector in own])
        self.vectors = np.zeros((len(self.owner), self.lengths.max()))
        for row, vector in enumerate(vector for own in vectors for vector in own):
            self.vectors[row, : len(vector)] = vector
        self.rows_of_task = self._group(task_ids)

    def _group(self, task_ids):
        rows_of_task = {}
        for i, own in enumerate(task_ids):
            own = list(own)
            if len(own) != self.counts[i]:
                raise ValueError(
                    f"Client {i} has {self.counts[i]} heads, but {len(own)} task ids: {own}."
                )
            twice = [task for task in own if own.count(task) > 1]
            if twice:
                raise ValueError(f"Client {i} has task {twice[0]!r} more than once.")
            for row, task in enumerate(own, start=self.starts[i]):
                rows_of_task.setdefault(task, []).append(row)
        for task, rows in rows_of_task.items():
            other = np.flatnonzero(self.lengths[rows] != self.lengths[rows[0]])
            if len(other):
                row = rows[other[0]]
                raise ValueError(
                    f"The head of task {task!r} has {self.lengths[row]} parameters at client "
                    f"{self.owner[row]}, but {self.lengths[rows[0]]} at client "
                    f"{self.owner[rows[0]]}."
                )
        return [np.array(rows) for rows in rows_of_task.values()]

    def cosines(self):
        """Eq. 4 for all pairs of heads, (R, R)."""
        unit = directions_of(self.vectors)
        cosines = unit @ unit.T
        cosines[self.lengths[:, None] != self.lengths] = 0.0
        np.fill_diagonal(cosines, 1.0)  # also for a head of zeros: it stays a part of its mean
        return cosines

    def by_client(self, vectors):
        """Stacked heads in the form of the argument."""
        out = []
        for i, as_array in enumerate(self._as_array):
            rows = range(self.starts[i], self.starts[i + 1])
            own = [vectors[row, : self.lengths[row]].copy() for row in rows]
            out.append(np.array(own) if as_array else own)
        return out


def _finite_matrix(shared):
    try:
        shared = np.asarray(shared, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(
            "The shared layers of all clients must be real numbers and have the same length."
        ) from error
    if shared.ndim != 2 or not len(shared):
        raise ValueError(
            f"shared has the shape {shared.shape}; it must be (n_clients, n_parameters)."
        )
    bad = np.argwhere(~np.isfinite(shared))
    if len(bad):
        i, p = bad[0]
        raise ValueError(
            f"The shared layers of client {i} are not finite: parameter {p} is {shared[i, p]}. "
            "Train with a smaller learning rate, or leave the client out."
        )
    return shared


def _check_magnitudes(shared, vectors):
    own = [("The shared layers", i, row) for i, row in enumerate(shared)]
    own += [("The heads", i, row) for i, heads in enumerate(vectors) for row in heads]
    for what, i, row in own:
        if not (np.abs(row) <= LARGEST).all():
            raise ValueError(
                f"{what} of client {i} have a parameter above 2^53: averages would keep nothing "
                "of the other clients. Train with a smaller learning rate, or leave the client out."
            )


def _client_heads(i, own):
    try:
        vectors = [np.asarray(vector, dtype=np.float64) for vector in own]
    except (ValueError, TypeError) as error:
        raise ValueError(f"The heads of client {i} must be vectors of real numbers.") from error
    if not vectors:
        raise ValueError(f"Client {i} has no heads (K_i = 0); leave it out.")
    for k, vector in enumerate(vectors):
        if vector.ndim != 1 or not len(vector):
            raise ValueError(
                f"Head {k} of client {i} has the shape {vector.shape}; it must be a vector of "
                "weights and biases."
            )
        if not np.isfinite(vector).all():
            raise ValueError(
                f"Head {k} of client {i} is not finite: it contains "
                f"{vector[~np.isfinite(vector)][0]}. Train with a smaller learning rate, or "
                "leave the client out."
            )
    return vectors


def _positive_sizes(sizes):
    sizes = np.asarray(sizes, dtype=np.float64)
    if sizes.ndim != 1:
        raise ValueError(f"sizes has the shape {sizes.shape}; it must be (n_clients,).")
    bad = np.flatnonzero(~(np.isfinite(sizes) & (sizes > 0)))
    if len(bad):
        raise ValueError(
            f"Client {bad[0]} has the size {sizes[bad[0]]:g}; sizes must be positive and finite."
        )
    sizes = sizes / sizes.max()  # only ratios matter
    small = np.flatnonzero(sizes < 1.0 / LARGEST)
    if len(small):
        raise ValueError(
            f"The size of client {small[0]} is more than 2^53 times smaller than the largest: "
            "averages would keep nothing of that client. Sizes are numbers of rows."
        )
    return sizes


def _thresholds(thresholds, n):
    array = np.asarray(thresholds, dtype=np.float64)
    if array.ndim and array.shape != (n,):
        raise ValueError(
            f"thresholds has the shape {array.shape}; it must be one number or one for each of "
            f"the {n} clients."
        )
    array = np.broadcast_to(array, (n,))
    bad = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if len(bad):
        raise ValueError(f"The threshold of client {bad[0]}, {array[bad[0]]:g}, is not in [0, 1].")
    return array
