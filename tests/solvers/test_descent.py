"""Coordinate descent on working sets ends where optimality conditions hold on all features."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from skpmtl._kernels.blocks import shrink
from skpmtl.solvers.losses import make_loss
from skpmtl.solvers.minimize import minimize
from skpmtl.solvers.penalties import GroupNorm
from tests.helpers import plain_reference as plain


@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(0.0, 3.0), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_block_is_minimised_exactly(m, seed, spread, flat):
    """Against the root of the norm's equation by bisection; curvatures up to 1e6 apart or zero."""
    rng = np.random.default_rng(seed)
    u, h = rng.standard_normal(m), 10.0 ** rng.uniform(-spread, spread, m)
    u[0] += 1.0
    if flat:  # a constant column of a task
        h[-1], u[-1] = 0.0, 0.0
    alpha = 10.0 ** rng.uniform(-2, 0.5)
    w = u.copy()
    getattr(shrink, "py_func", shrink)(w, h, alpha, 10.0 ** rng.uniform(-3, 3))
    if np.linalg.norm(u) <= alpha:
        assert not w.any()
        return
    part = u[u != 0], h[u != 0]
    top = np.linalg.norm(part[0]) / part[1].min()
    t = brentq(lambda t: np.linalg.norm(part[0] / (part[1] * t + alpha)) - 1, 0, top, xtol=1e-14)
    np.testing.assert_allclose(w, t * u / (h * t + alpha), rtol=1e-8, atol=1e-10)


def residual(table, W, k, intercept, weighted):
    X, y = table.task(k)
    rows = slice(table.offsets[k], table.offsets[k + 1])
    w = table.weights[rows] if weighted else np.ones(len(y))
    r = y - X @ W[k]
    return X, w * (r - (np.average(r, weights=w) if intercept else 0.0))


@pytest.mark.parametrize(
    "kind, weighted",
    [
        ("rows", False),
        ("rows", True),
        ("tall", False),
        ("tall", True),
        ("wide", False),
        ("gaps", False),
    ],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.spread(8)
def test_optimality_on_random_tables(kind, weighted, seed):
    """Equal and constant columns, tasks of one row, weights, ridges, shared rows with gaps."""
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(2, 7)), 8 if kind == "tall" else int(rng.integers(70, 160))
    sizes = rng.integers(1, 25, m) if kind != "tall" else rng.integers(30, 60, m)
    n = sizes.sum() if kind in ("rows", "tall") else 30
    X = rng.standard_normal((n, d))
    X[:, 1], X[:, 2], X[:, 3] = X[:, 0], 5.0, 1e3 * X[:, 4]
    if kind in ("rows", "tall"):
        y = X[:, 0] + 0.01 * X[:, 3] + rng.standard_normal(n)
        table = plain.long_table(X, y, np.repeat(np.arange(m), sizes))
        table = replace(table, weights=rng.uniform(0.5, 3.0, n)) if weighted else table
    else:
        Y = X[:, [0]] + rng.standard_normal((n, m))
        Y[rng.uniform(size=Y.shape) < (0.3 if kind == "gaps" else 0.0)] = np.nan
        table = plain.wide_table(X, Y)
    intercept, ridge = bool(seed % 2), (0.0, 0.05, 0.0)[seed]
    loss = make_loss(table, fit_intercept=intercept, ridge=ridge)
    top = np.linalg.norm(loss.evaluate(np.zeros(loss.shape))[1], axis=0).max()
    for share in (0.6, 0.1):
        alpha = share * top
        found = minimize(loss, GroupNorm(), alpha, tol=1e-10)
        W = found.W
        assert found.converged
        V = np.empty(W.shape)
        for k in range(len(W)):
            x, r = residual(table, W, k, intercept, weighted)
            V[k] = loss.scale[k] * (x.T @ r) - ridge * W[k]
        norms, used = np.linalg.norm(W, axis=0), W.any(axis=0)
        assert np.linalg.norm(V, axis=0).max() <= alpha * (1 + 1e-4)
        gap = alpha * norms[used] - np.einsum("kj,kj->j", V, W)[used]
        assert abs(gap).sum() <= 1e-4 * found.objective
        assert not used[2] or not intercept


def test_sets_that_crawl_are_left_early():
    """Where there are too few cycles at the rate of the first ones, and only there."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 8)) + 30 * rng.standard_normal((120, 1))
    table = plain.long_table(X, X[:, 0] + 30 * rng.standard_normal(120), np.repeat([0, 1], 60))
    members = make_loss(table, fit_intercept=False, ridge=0.0).working_set(1e-3)
    members.add(np.arange(8))
    _, needed, done = members.descend(np.zeros((8, 2)), 0.0, 1e-8, 200_000)
    assert done and needed > 500
    _, cycles, done = members.descend(np.zeros((8, 2)), 0.0, 1e-8, 500)
    assert not done and cycles < 250
