"""Frozen tables, the clock of the benchmarks, and classes by name.

The tables are written in numpy here: a changed generator of the package does not change them.
"""

import os
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import skpmtl
import skpmtl.reproduction

SCHOOL = Path("skpmtl", "datasets", "data", "school.npz")
HERE = Path(__file__).resolve().parents[3]  # as it is here, whichever commit is measured
if not (HERE / SCHOOL).is_file():  # tests of an installed package
    HERE = Path(find_spec("skpmtl").origin).parents[1]
SCHOOL = HERE / SCHOOL


def cpu_seconds():
    """CPU seconds of this process and of the children that it has waited for."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def public(name):
    """A class of ``skpmtl.reproduction``, or else of ``skpmtl``, at any commit."""
    home = skpmtl.reproduction if hasattr(skpmtl.reproduction, name) else skpmtl
    return getattr(home, name)


def unit_rows(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


@cache
def school():
    """30 % of each school, rows of unit length, centred scores. -> X, y, task"""
    with np.load(SCHOOL) as file:
        X, y = file["features"].astype(float), file["score"].astype(float)
        task = np.repeat(np.arange(len(file["sizes"])), file["sizes"])
    rng, train = np.random.default_rng(20261121), np.zeros(len(y), bool)
    for k in np.unique(task):
        rows = np.flatnonzero(task == k)
        train[rng.permutation(rows)[: round(0.3 * len(rows))]] = True
    return unit_rows(X[train]), y[train] - y[train].mean(), task[train]


@cache
def generated(kind, m, n, d, seed=0):
    """Tasks with models of rank 2 ("lowrank") or with 4 features ("groupsparse"). -> X, y, task"""
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.standard_normal((m, n, d)))
    if kind == "lowrank":
        W = 3.0 * rng.standard_normal((m, 2)) @ rng.standard_normal((2, d))
    else:
        W = np.zeros((m, d))
        W[:, :4] = rng.uniform(1, 50, (m, 4)) * rng.choice([-1.0, 1.0], (m, 4))
    y = np.einsum("knj,kj->kn", X, W) + rng.standard_normal((m, n))
    return X.reshape(-1, d), y.ravel(), np.repeat(np.arange(m), n)


@cache
def shared_rows(m, n, d, seed=0):
    """The same rows for all tasks, a column of y for each. -> X (n, d), Y (n, m)"""
    rng = np.random.default_rng(seed)
    X, W = unit_rows(rng.standard_normal((n, d))), np.zeros((d, m))
    W[: d // 20] = rng.uniform(1, 50, (d // 20, m)) * rng.choice([-1.0, 1.0], (d // 20, m))
    return X, X @ W + rng.standard_normal((n, m))


def largest_alpha(X, y, task, penalty):
    """Dual norm of the gradient of the mean squared losses at zero: alpha that gives zero."""
    if task is None:
        G = X.T @ (y - y.mean(axis=0)) / len(X)
    else:
        parts = (task == k for k in np.unique(task))
        G = np.array([X[part].T @ (y[part] - y[part].mean()) / part.sum() for part in parts]).T
    return np.linalg.norm(G, 2) if penalty == "trace" else np.linalg.norm(G, axis=1).max()
