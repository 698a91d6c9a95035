"""Public covariates of tasks -> one basis over the tasks, of which every task has a row.

A relation links the shared models of tasks: the model around which task k lies
is v_k G, where v_k (r,) is public and G (r, n_numbers) is common to all. One column of ones is the
mean of all tasks, one column for each cluster are clusters, level-2 covariates of a multilevel
model are themselves, and a graph is the smoothest vectors over its vertices.

What a task sends about G is b_k u' for its bounded update u, with |b_k| <= 1, so that a sum over
the tasks has the sensitivity of a sum of updates. Rows b_k and v_k are chosen such that

    v_k = h_k b_k,    |b_k| = 1,    sum_k b_k v_k' = I,    sum_k h_k = r:

the columns of v span what the covariates span, the released sum is G itself with the same noise in
all of its numbers, and h_k, the leverage of task k, is the part of its own update that comes back
to it. No choice of units changes that, and every task says as much as its bound allows; with
clusters of m_c tasks h = 1 / m_c. These h are the l1 Lewis weights of the covariates, the fixed
point of h_k^2 = z_k' (sum_j z_j z_j' / h_j)^-1 z_k, of which every step halves the distance (Cohen
and Peng, "Lp row sampling by Lewis weights", STOC 2015)."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from scipy import sparse

from .._runtime.public import Public
from .._runtime.stack import users_line
from .frames import indexed
from .ids import listed, locate
from .table import distinct_ids, row_products

__all__ = ["Relation", "columns_of", "laplacian", "read_relation"]

CONSTANT = "constant"
UNNAMED = "covariate"  # of a mapping of tasks to single values
_COLLINEAR = 1e-7  # part of a column beyond the former ones below which it says nothing new
_LEVERAGE = 0.5  # from which on a task follows from itself more than from others
_FEW_TASKS = 5  # for every column, below which a relation is suspect
_DEFAULT_RANK = 10
_DENSE = 1000  # vertices up to which a spectrum is found by a dense solver
_STEPS, _CLOSE = 100, 1e-13


@dataclass(eq=False)
class Relation(Public):
    """A basis over the tasks, and how covariates of later tasks become rows of it.

    Attributes
    ----------
    tasks : list of int or str
        Tasks of which covariates are known, sorted; also such that may be added after a fit.
    covariates : ndarray (n_tasks, r)
        Coded columns, the constant first.
    names : list of str
        Of the columns: a number goes by its name, a category as ``"region[north]"``.
    transform : ndarray (r, r)
        ``covariates @ transform`` are the rows v of the basis; upper triangular, so that the first
        columns of the basis are those of the first covariates.
    leverage : float
        Largest h of a task of the fit.
    n_fitted : int
        Number of tasks of the fit, over which the basis is one.
    columns : list of [str, list of str or None]
        What covariates of a later task must have: names, and levels of categories, of which the
        first has no column. Empty where there are no such covariates, as with graphs.
    chosen : list of int
        Coded columns, without the constant, that make up `covariates`; others depended on these, or
        were too many.
    n_given : int
        Columns that said something, of which the first ones were taken.
    """

    tasks: list
    covariates: np.ndarray
    names: list
    transform: np.ndarray
    leverage: float
    n_fitted: int
    columns: list
    chosen: list
    n_given: int

    @property
    def rank(self):
        """Number r of columns."""
        return len(self.names)

    @property
    def of_constant(self):
        """c (r,) with v'c = 1 for the rows v of all tasks, which is what all have in common."""
        return np.linalg.inv(self.transform)[:, 0]

    def rows(self, tasks):
        """Rows v (n, r) of the basis for task ids, an array.

        Raises ValueError for tasks without covariates.
        """
        return row_products(self._covariates_of(tasks), self.transform)

    def centres(self, tasks, coef):
        """v G (n, ...) of task ids for G (r, ...); raises as `rows`."""
        return row_products(self.rows(tasks), coef)

    def weights(self, tasks):
        """Rows b (n, r), of length 1, by which tasks of the fit multiply what they send."""
        V = self.rows(tasks)
        return V / np.maximum(np.linalg.norm(V, axis=1), 1e-300)[:, None]

    def with_tasks(self, given):
        """A copy that knows covariates of further tasks, or other covariates of known ones.

        `given` is as for `read_relation`; further columns are left out. Raises ValueError where a
        column is missing, or a category that no task of the fit has.
        """
        if not self.columns:
            raise ValueError(
                "This relation is a graph or a matrix over the tasks of the fit: it has no place "
                "for others. Fit with a graph that has them among tasks=."
            )
        ids, columns = columns_of(given)
        missing = [name for name, _ in self.columns if name not in columns]
        if missing:
            raise ValueError(f"relation= lacks the columns {listed(missing)} of the fit.")
        coded = _coded(ids, {name: columns[name] for name, _ in self.columns}, self.columns)
        odd = ids[np.isnan(coded).any(axis=1)]
        if len(odd):
            raise ValueError(
                f"Tasks {listed(odd)} have a category that no task of the fit has. Merge rare "
                "categories before the fit."
            )
        covariates = np.column_stack([np.ones(len(ids)), coded[:, self.chosen]])
        known = dict(zip(self.tasks, self.covariates, strict=True))
        locate(ids, np.array(self.tasks))  # strings among integers are refused
        known.update(zip(ids.tolist(), covariates, strict=True))
        tasks = sorted(known)
        return replace(self, tasks=tasks, covariates=np.array([known[task] for task in tasks]))

    def describe(self):
        """The line of a report."""
        rest = self.n_given - self.rank
        more = f"; the last {rest} of {self.n_given} columns are left out" if rest else ""
        names = f"{', '.join(self.names[:6])}{', ...' if self.rank > 6 else ''}"
        size = f"{self.n_fitted} x {self.rank}"
        return f"public, {size}, largest leverage {self.leverage:.3g} ({names}){more}"

    def declared(self):
        """Arrays with their shapes, as `skpmtl.exchange.Billboard.declared`."""
        n, r = len(self.tasks), len(self.names)
        if r < 1 or not 0 < self.leverage <= 1.0 + 1e-9 or self.n_fitted < 1:
            raise ValueError("its relation has no columns, tasks or leverage")
        kinds = {type(task) for task in self.tasks}
        if len(set(self.tasks)) != n or kinds not in ({int}, {str}):
            raise ValueError("tasks of its relation must be different integers, or strings")
        if any(not isinstance(name, str) for name in self.names):
            raise ValueError("columns of its relation must have names")
        yield "covariates of the relation", self.covariates, [(n, r)]
        yield "transform of the relation", self.transform, [(r, r)]

    def _covariates_of(self, tasks):
        at = locate(np.asarray(tasks), np.array(self.tasks)) if len(tasks) else np.empty(0, int)
        if (at < 0).any():
            raise ValueError(
                f"Tasks without covariates in relation=: {listed(np.asarray(tasks)[at < 0])}. Add "
                "their rows before the fit or, for tasks that come later, by relate()."
            )
        return self.covariates[at]


def read_relation(given, tasks, *, order=None, rank=None, quiet=False, most=None):
    """A relation from what users hand in.

    Parameters
    ----------
    given : DataFrame, mapping, array, sparse matrix, graph or Relation
        - DataFrame (or Series) of pandas with the tasks as its index: numbers are columns, others
          are categories, of which the first has no column of its own.
        - Mapping of task to a number, a category, a sequence of these, or a mapping of names to
          these.
        - Array (n_tasks, r) of numbers, in the order of the tasks.
        - Sparse matrix (n_tasks, n_tasks) of weights between tasks, in the order of the tasks, or a
          graph of networkx over the ids of the tasks: the smoothest vectors of its Laplacian.
        - Symmetric array (n_tasks, n_tasks): a penalty Omega, positive semi-definite; the vectors
          that it penalises least.
    tasks : ndarray (m,)
        Ids of the tasks of the fit, sorted, as from `encode_ids`.
    order : array-like, default=None
        The same ids in the order of arrays and matrices; None: as in `tasks`.
    rank : int, default=None
        Number of columns of graphs and matrices, with the constant. None: 10, or as many as
        there are five tasks for each.
    quiet : bool, default=False
        Without the warnings, where they were given before.
    most : int, default=None
        Take the first columns only, so many with the constant.

    -> relation : Relation

    Raises
    ------
    TypeError, ValueError
        Where covariates are missing, not finite or not understood; messages name tasks and columns,
        which are public.
    """
    m = len(tasks)
    order = tasks if order is None else distinct_ids(order, "The tasks")
    if isinstance(given, Relation):
        ids, coded = np.array(given.tasks), given.covariates[:, 1:]
        given._covariates_of(tasks)  # all of them are known
        relation = _on(tasks, ids, coded, given.names[1:], given.columns, True, most)
        return replace(relation, chosen=[given.chosen[j] for j in relation.chosen])
    square = np.ndim(given) == 2 and np.shape(given) == (m, m) and not hasattr(given, "columns")
    if sparse.issparse(given) or hasattr(given, "adjacency") or (square and m > 1):
        L = laplacian(given, tasks, order=order)
        k = min(_DEFAULT_RANK, max(m // _FEW_TASKS, 1)) if rank is None else int(rank)
        if not 1 <= k < max(m, 2):
            raise ValueError(f"rank={rank!r} must be from 1 to the number of tasks less one.")
        vectors = _smoothest(L, k)
        names = [f"smooth {j}" for j in range(1, k + 1)]
        if not quiet:
            _warn_of_parts(L, k)
        return _on(tasks, tasks, vectors, names, [], True, k if most is None else min(k, most), k)
    if rank is not None:
        raise ValueError(f"rank={rank!r} is for graphs and matrices over tasks; leave it at None.")
    if not hasattr(given, "to_dict") and not isinstance(given, Mapping):
        given = _array_of(given, order)
    ids, columns = columns_of(given)
    if not len(ids):
        raise ValueError("relation= has no tasks.")
    locate(ids, tasks)  # strings among integers are refused
    missing = np.setdiff1d(tasks, ids)
    if len(missing):
        raise ValueError(
            f"Tasks without a row in relation=: {listed(missing)}. Give all of tasks= a row, with "
            "ids of the same type; in a DataFrame the ids are its index (set_index)."
        )
    fitted = locate(ids, tasks) >= 0
    kinds = [[name, _levels(values, fitted)] for name, values in columns.items()]
    coded = _coded(ids, columns, kinds)
    known = ~np.isnan(coded).any(axis=1)  # others have categories of no task of the fit
    ids, coded = ids[known], coded[known]
    names = [
        label
        for name, levels in kinds
        for label in ([name] if levels is None else [f"{name}[{level}]" for level in levels[1:]])
    ]
    return _on(tasks, ids, coded, names, kinds, quiet, most)


def _on(tasks, ids, coded, names, columns, quiet, most=None, n_all=None):
    """The relation of coded columns, of which those are kept that say something new.

    The rows of `coded` (n, p) are those of `ids` (n,), with all of `tasks` (m,) among them. `most`
    is how many columns, with the constant, are taken at most, and `n_all` how many there could be;
    None: those that say something new.
    """
    at = np.argsort(ids)
    ids, coded = ids[at], coded[at]
    Z = coded[locate(tasks, ids)]
    m = len(Z)
    # Orthonormal columns in the given order, the constant first.
    Q, chosen = [np.full(m, 1.0 / math.sqrt(m))], []
    for j in range(Z.shape[1]):
        with np.errstate(all="ignore"):
            z = Z[:, j] / max(float(np.abs(Z[:, j]).max(initial=0.0)), 1e-300)
        rest = z.copy()
        for _ in range(2):  # once more, for what rounding left
            for q in Q:
                rest -= (q @ rest) * q
        length = float(np.linalg.norm(rest))
        if length > _COLLINEAR * float(np.linalg.norm(z)):
            Q.append(rest / length)
            chosen.append(j)
    dropped = [names[j] for j in range(Z.shape[1]) if j not in chosen]
    if dropped and not quiet:
        warnings.warn(
            f"relation=: the columns {listed(dropped)} are constant over the tasks of the fit, or "
            "follow from the others, and are left out. A constant is there anyway.",
            UserWarning,
            stacklevel=users_line(),
        )
    if len(Q) > max(m / _FEW_TASKS, 1) and not quiet:
        warnings.warn(
            f"relation= has {len(Q)} columns for {m} tasks: fewer than {_FEW_TASKS} tasks for "
            "each, so that noise and single tasks decide. Take fewer columns, merge categories, "
            "or lower the rank of a graph.",
            UserWarning,
            stacklevel=users_line(),
        )
    n_given = len(Q) if n_all is None else n_all
    Q, chosen = np.stack(Q[:most], axis=1), chosen[: None if most is None else most - 1]
    h = leverages(Q)
    # sum_k v_k v_k' / h_k = I for v = Q R^-1, where R'R = Q' diag(1 / h) Q: R is triangular.
    R = np.linalg.cholesky(_weighed(Q, h)).T
    covariates = np.column_stack([np.ones(len(ids)), coded[:, chosen]])
    used = covariates[locate(tasks, ids)]
    # Q = used T for a triangular T, by columns of one size.
    size = np.abs(used).max(axis=0)
    T = np.linalg.lstsq(used / size, Q, rcond=None)[0] / size[:, None]
    transform = np.triu(np.linalg.solve(R.T, T.T).T)
    relation = Relation(
        ids.tolist(),
        covariates,
        [CONSTANT, *(names[j] for j in chosen)],
        transform,
        float(h.max()),
        m,
        columns,
        [int(j) for j in chosen],
        n_given,
    )
    if relation.leverage > _LEVERAGE and m > 1 and not quiet:
        few = tasks[h > _LEVERAGE]
        warnings.warn(
            f"relation=: the models of tasks {listed(few)} would follow from their own updates, "
            f"with a leverage up to {relation.leverage:.2f}, and noise as large. Merge categories "
            "of one task, or leave out columns that only tell these tasks from others.",
            UserWarning,
            stacklevel=users_line(),
        )
    return relation


def leverages(Q):
    """The h (m,) of the tasks, from any basis Q (m, r) of the columns; see the module."""
    m, r = Q.shape
    h = np.full(m, r / m)
    for _ in range(_STEPS):
        R = np.linalg.cholesky(_weighed(Q, h)).T
        new = np.linalg.norm(np.linalg.solve(R.T, Q.T), axis=0)
        new = np.maximum(new, 1e-12 * r / m)
        done = np.abs(new - h).max() <= _CLOSE * r / m
        h = new
        if done:
            break
    return h


def _weighed(Q, h):
    return Q.T @ (Q / h[:, None])


# -------------------------------------------------------------------------- covariates
def _array_of(given, order):
    if sparse.issparse(given):
        given = given.toarray()
    try:
        Z = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "relation= is not understood: pass a DataFrame with the tasks as its index, a mapping "
            "of task to covariates, an array of numbers with a row for every task, or a graph."
        ) from None
    Z = Z[:, None] if Z.ndim == 1 else Z
    if Z.ndim != 2 or len(Z) != len(order):
        raise ValueError(
            f"relation= has the shape {Z.shape} for {len(order)} tasks: an array has a row for "
            'every one, in the order of tasks= (sorted where that is "auto").'
        )
    return dict(zip(order.tolist(), Z.tolist(), strict=True))


def columns_of(given):
    """Columns of a table of tasks: a DataFrame, a Series or a mapping.

    -> ids (n,), {name: list of n values}
    """
    table = indexed(given, "relation=")
    if table is not None:
        ids, found = table
        columns = {UNNAMED if name is None else str(name): own for name, own in found.items()}
        if len(columns) < len(found):
            raise ValueError("Columns of relation= must have different names.")
    else:
        if not isinstance(given, Mapping):
            raise TypeError(
                f"relation= of type {type(given).__name__} names no tasks: pass a DataFrame with "
                "the tasks as its index, or a mapping of task to covariates."
            )
        ids, rows = list(given), [_row(value) for value in given.values()]
        names = list(rows[0]) if rows else []
        odd = [task for task, row in zip(ids, rows, strict=True) if set(row) != set(names)]
        if odd:
            raise ValueError(
                f"Tasks {listed(odd)} of relation= have other columns than {ids[0]!r}."
            )
        columns = {name: [row[name] for row in rows] for name in names}
    ids = distinct_ids(ids, "The tasks of relation=")
    for name, values in columns.items():
        empty = [k for k, value in enumerate(values) if _is_missing(value)]
        if empty:
            raise ValueError(
                f"Column {name!r} of relation= is missing (NaN or infinite) for the tasks "
                f"{listed(ids[empty])}. Fill it in by public knowledge, or leave the column out."
            )
    return ids, columns


def _row(value):
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    if isinstance(value, (str, Real, np.bool_)) or value is None:
        return {UNNAMED: value}
    return {f"covariate {j}": item for j, item in enumerate(value, start=1)}


def _is_missing(value):
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real) and not math.isfinite(value)


def _levels(values, fitted):
    """Levels of a category among the tasks of the fit; None of a column of numbers."""
    if all(isinstance(value, (Real, np.bool_)) for value in values):
        return None
    return sorted({str(value) for value, here in zip(values, fitted, strict=True) if here})


def _coded(ids, columns, kinds):
    """Coded columns (n, p); NaN in the rows of a category that is not among the levels."""
    parts = []
    for name, levels in kinds:
        values = columns[name]
        if levels is None:
            odd = [k for k, v in enumerate(values) if not isinstance(v, (Real, np.bool_))]
            if odd:
                raise ValueError(
                    f"Column {name!r} of relation= is no number for the tasks {listed(ids[odd])}."
                )
            parts.append(np.array(values, dtype=np.float64)[:, None])
            continue
        number = {level: j for j, level in enumerate(levels)}
        at = np.array([number.get(str(value), -1) for value in values])
        one = (at[:, None] == np.arange(1, len(levels))).astype(float)
        one[at < 0] = np.nan
        if len(levels) == 1:
            one = np.where(at < 0, np.nan, 0.0)[:, None][:, :0]
        parts.append(one)
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(ids), 0))


# -------------------------------------------------------------------------- graphs
def laplacian(given, tasks, *, order=None):
    """Penalty Omega (m, m), CSR or dense, over the tasks in sorted order.

    `given` is as for `read_relation`. Of weights between tasks, a sparse matrix or graph, Omega is
    the Laplacian: tr(W Omega W') = 1/2 sum_jk weight_jk |w_j - w_k|^2. A dense array is Omega
    itself. Raises ValueError for weights below zero, or an Omega that is not symmetric or not
    positive semi-definite.
    """
    m, order = len(tasks), tasks if order is None else order
    if hasattr(given, "adjacency") and not sparse.issparse(given):  # networkx
        if getattr(given, "is_directed", bool)():
            raise ValueError("relation= is a directed graph: pass graph.to_undirected().")
        nodes = distinct_ids(list(given.nodes), "The vertices of relation=")
        at = locate(nodes, tasks)  # -1: a vertex that is no task
        missing = np.setdiff1d(tasks, nodes)
        if len(missing):
            raise ValueError(
                f"Tasks that are no vertices of relation=: {listed(missing)}. Add them with their "
                "edges; ids must be of the same type."
            )
        place = dict(zip(given.nodes, at.tolist(), strict=True))
        ends = [
            (place[u], place[v], data.get("weight", 1.0)) for u, v, data in given.edges(data=True)
        ]
        ends = np.array([end for end in ends if min(end[:2]) >= 0], dtype=float).reshape(-1, 3)
        pair = ends[:, :2].astype(np.int64).T
        A = sparse.csr_matrix((ends[:, 2], (pair[0], pair[1])), shape=(m, m))
        given, order = A + A.T, tasks
    if np.shape(given) != (m, m):
        raise ValueError(f"relation= has the shape {np.shape(given)} for {m} tasks, not {(m, m)}.")
    position = np.empty(m, dtype=np.int64)
    position[locate(order, tasks)] = np.arange(m)
    if sparse.issparse(given):
        A = sparse.csr_matrix(given, dtype=np.float64)[position][:, position]
        if not np.isfinite(A.data).all():
            raise ValueError("Weights of relation= must be finite.")
        if (A.data < 0).any():
            raise ValueError(
                "A sparse relation= holds weights between tasks, which cannot be negative. A "
                "penalty Omega, such as a Laplacian, is a dense array: .toarray()."
            )
        if abs(A - A.T).max() > 1e-9 * max(abs(A).max(), 1e-300):
            raise ValueError("Weights of relation= must be symmetric: pass (A + A.T) / 2.")
        A = A - sparse.diags(A.diagonal())
        return sparse.csr_matrix(sparse.diags(np.asarray(A.sum(axis=1)).ravel()) - A)
    Omega = np.asarray(given, dtype=np.float64)[np.ix_(position, position)]
    if not np.isfinite(Omega).all():
        raise ValueError("Omega of relation= must be finite.")
    scale = max(float(np.abs(Omega).max()), 1e-300)
    if np.abs(Omega - Omega.T).max() > 1e-9 * scale:
        raise ValueError(
            "A square relation= is a penalty Omega over the tasks, which must be symmetric: pass "
            "(Omega + Omega.T) / 2; covariates with as many columns as tasks are too many."
        )
    if np.linalg.eigvalsh(Omega)[0] < -1e-8 * scale * m:
        raise ValueError(
            "Omega of relation= is not positive semi-definite: it would reward differences. "
            "Weights between tasks are passed as a sparse matrix, scipy.sparse.csr_matrix(A)."
        )
    return Omega


def _smoothest(L, k):
    """Eigenvectors (m, k) of the k smallest eigenvalues of a Laplacian or Omega."""
    m = L.shape[0]
    if m <= _DENSE or not sparse.issparse(L) or k > m // 4:
        vectors = np.linalg.eigh(L.toarray() if sparse.issparse(L) else L)[1][:, :k]
    else:
        shift = 1e-3 * float(L.diagonal().mean()) + 1e-12
        start = np.random.default_rng(0).standard_normal(m)
        values, vectors = sparse.linalg.eigsh(L, k, sigma=-shift, which="LM", v0=start)
        vectors = vectors[:, np.argsort(values)]
    # One sign for all machines.
    top = np.abs(vectors).argmax(axis=0)
    return vectors * np.sign(vectors[top, np.arange(k)])


def _warn_of_parts(L, k):
    if not sparse.issparse(L):
        return
    n, label = sparse.csgraph.connected_components(L, directed=False)
    if n > 1:
        single = int((np.bincount(label) == 1).sum())
        warnings.warn(
            f"The graph of relation= falls into {n} parts without an edge between them, {single} "
            f"of them of one task; the {k} smoothest vectors tell parts from each other before "
            "they say anything within one. Add weak edges, or a rank above the number of parts.",
            UserWarning,
            stacklevel=users_line(),
        )
