"""The stated gap is never below the true one, whatever rounding does."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skpmtl.solvers.graph import LossOnGraph
from skpmtl.solvers.losses import GramLoss, LogisticLoss, SquaredLoss, make_loss
from skpmtl.solvers.minimize import minimize, solve
from skpmtl.solvers.penalties import EntryNorm, GroupNorm, TraceNorm
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

EXTENDED = np.longdouble
PENALTIES = {"trace": TraceNorm(), "l21": GroupNorm()}
needs_extended = pytest.mark.skipif(
    np.finfo(EXTENDED).eps > 1e-18, reason="needs floats of more than 64 bits"
)


def ill_scaled(seed, logistic):
    """Columns of means up to 1e7 times their deviations. -> (table, the same centred)"""
    rng = np.random.default_rng(seed)
    m, n, d = (int(rng.integers(low, high)) for low, high in ((2, 9), (4, 40), (2, 20)))
    scales = 10.0 ** rng.uniform(0, rng.choice([0, 3]), d)
    X = rng.standard_normal((m * n, d)) * scales
    task = np.repeat(np.arange(m), n)
    score = np.einsum("ij,ij->i", X, (rng.standard_normal((m, d)) / scales)[task])
    y = score + 10.0 ** rng.uniform(-4, 0) * rng.standard_normal(m * n)
    y = np.where(score + rng.logistic(size=m * n) > 0, 1.0, -1.0) if logistic else y
    y[::n], y[1::n] = (1.0, -1.0) if logistic else (y[::n], y[1::n])
    far = X + 10.0 ** rng.integers(0, 5 if logistic else 8) * rng.standard_normal(d) * scales
    target = y if logistic else y + 10.0 ** rng.integers(0, 6)
    near, aim = np.empty_like(X), np.array(y)
    for k in range(m):
        rows = slice(k * n, (k + 1) * n)
        near[rows] = far[rows] - far[rows].astype(EXTENDED).mean(axis=0)
        if not logistic:
            aim[rows] = target[rows] - target[rows].astype(EXTENDED).mean()
    return plain.long_table(far, target, task), plain.long_table(near, aim, task)


def precise(table, W, penalty, alpha, ridge, logistic):
    """The objective in extended precision, with the best intercepts."""
    value = EXTENDED(ridge) / 2 * (W.astype(EXTENDED) ** 2).sum()
    for k in range(table.n_tasks):
        X, y = table.task(k)
        z, y = X.astype(EXTENDED) @ W[k], y.astype(EXTENDED)
        z -= z.mean()
        if not logistic:
            value += ((y - y.mean() - z) ** 2).mean() / 2
            continue
        low, high = EXTENDED(-1e3), EXTENDED(1e3)
        for _ in range(90):
            b = (low + high) / 2
            low, high = (b, high) if (y / (1 + np.exp(y * (z + b)))).sum() > 0 else (low, b)
        value += np.log1p(np.exp(-y * (z + b))).mean()
    if isinstance(penalty, EntryNorm):
        return value + EXTENDED(alpha) * np.abs(W).astype(EXTENDED).sum()
    if isinstance(penalty, GroupNorm):
        return value + EXTENDED(alpha) * np.sqrt((W.astype(EXTENDED) ** 2).sum(axis=0)).sum()
    return value + EXTENDED(alpha) * np.linalg.svd(W, compute_uv=False).sum()


def solved(loss, better, penalty, share, rng):
    """-> strength, tolerance, a solution for `loss`, one of a far longer run for `better`"""
    V = better.evaluate(np.zeros(better.shape))[1]
    alpha, tol = share * penalty.dual_levels(V).max(), 10.0 ** rng.integers(-12, -4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = minimize(loss, penalty, alpha, tol=tol, max_iter=1000)
        best = minimize(better, penalty, alpha, W=found.W, tol=1e-14, max_iter=1000)
    return alpha, tol, found, best


@needs_extended
@pytest.mark.parametrize("kind", [SquaredLoss, GramLoss, LogisticLoss])
@pytest.mark.parametrize("name", PENALTIES)
def test_no_gap_is_below_the_truth(name, kind):
    """Against the objective of weights from a far longer run on centred rows, both precisely."""
    penalty, logistic, closed = PENALTIES[name], kind is LogisticLoss, 0
    for seed in range(4 if logistic else 10):
        rng = np.random.default_rng(100 + seed)
        far, near = ill_scaled(seed, logistic)
        ridge, share = rng.choice([0.0, 1e-2]), 10.0 ** rng.uniform(-2, -0.3)
        loss = kind(far, 1 / far.sizes, True, ridge)
        better = make_loss(near, ridge=ridge)
        alpha, tol, found, best = solved(loss, better, penalty, share, rng)
        at, lowest = (precise(far, W, penalty, alpha, ridge, logistic) for W in (found.W, best.W))
        assert found.gap >= float(at - lowest)
        assert found.objective == pytest.approx(float(at), rel=max(1e-9, found.gap / float(at)))
        assert found.converged == (found.gap <= tol * found.objective)
        closed += found.converged
    assert closed >= 2  # the allowance is no excuse


@needs_extended
@pytest.mark.parametrize("logistic", [False, True])
def test_no_gap_on_a_graph_is_below_the_truth(logistic):
    """As above; features of scales up to 1e3 apart, and pulls from weak to far above the rows."""
    penalty, closed = EntryNorm(1), 0
    for seed in range(4 if logistic else 8):
        rng = np.random.default_rng(200 + seed)
        far, near = ill_scaled(seed, logistic)
        m = far.n_tasks
        path = np.diag(np.ones(m - 1), 1)
        Omega = np.diag((path + path.T).sum(axis=0)) - path - path.T
        lam, share = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-2, -0.3)
        losses = [make_loss(table) for table in (far, near)]
        loss, better = (LossOnGraph(inner, Omega, lam, 0.0) for inner in losses)
        alpha, _, found, best = solved(loss, better, penalty, share, rng)
        at, lowest = (
            precise(far, W, penalty, alpha, 0.0, logistic)
            + EXTENDED(lam) / 2 * (np.diff(W.astype(EXTENDED), axis=0) ** 2).sum()
            for W in (found.W, best.W)
        )
        assert found.gap >= float(at - lowest)
        assert found.objective == pytest.approx(float(at), rel=max(1e-9, found.gap / float(at)))
        closed += found.converged
    assert closed >= 2


def test_rounding_ends_a_fit_and_says_so():
    X, y, task = make_rows([20] * 4, 5, 0)
    loss = SquaredLoss(plain.long_table(X + 1e7, y, task), np.full(4, 0.05), True, 0.0)
    with pytest.warns(ConvergenceWarning, match="Rounding hides what is left: centre"):
        found = minimize(loss, TraceNorm(), 0.1, tol=1e-12)
    assert found.n_iter < 500 and not found.converged
    assert 1e-12 * found.objective < found.gap < 1e-4 * found.objective
    centred = make_loss(plain.long_table(X, y, task))
    assert minimize(centred, TraceNorm(), 0.1, tol=1e-12).converged


@pytest.mark.parametrize("kind", ["rows", "wide", "csr", "several"])
def test_working_sets_change_nothing(kind):
    X, y, task = make_rows([20] * 5, 90, 2, labels=kind == "several")
    if kind == "wide":
        Y = np.where(np.arange(100).reshape(20, 5) % 7, y.reshape(5, 20).T, np.nan)
        table = plain.wide_table(X[:20], Y)
    elif kind == "several":
        y = np.digitize(X[:, :3].sum(axis=1), [-0.7, 0.7])
        table = replace(plain.long_table(X, y, task), n_classes=3)
    else:
        table = plain.long_table(sparse.csr_matrix(X) if kind == "csr" else X, y, task)
    loss = make_loss(table)
    top = GroupNorm().dual_levels(loss.evaluate(np.zeros(loss.shape))[1]).max()
    for share in (0.5, 0.05):
        whole = minimize(loss, GroupNorm(), share * top, tol=1e-9)
        parts = solve(loss, GroupNorm(), share * top, None, 1e-9, 5000, by_sets=True)
        assert parts.converged and parts.objective == pytest.approx(whole.objective, rel=2e-9)
        np.testing.assert_allclose(parts.W, whole.W, atol=2e-4 * abs(whole.W).max())
