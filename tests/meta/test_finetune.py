"""Fine-tuning against the priors written out row by row, and what it may not depend on."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

from skpmtl.meta import finetune
from skpmtl.meta.finetune import KnownModel, fine_tuned
from skpmtl.meta.steps import RoundRows
from skpmtl.tables.table import TaskTable
from skpmtl.task import priors
from tests.helpers.data import random_tasks

KINDS = {"real": 0, "binary": 2, "multi": 3}


def problem(kind, m=9, d=4, rows=(3, 20), seed=0):
    return random_tasks(kind, m, d, 3, seed, rows, 0.8)


def table_of(kind, X, y, task):
    order = np.argsort(task, kind="stable")
    labels, sizes = np.unique(task, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    y = np.where(y, 1.0, -1.0) if kind == "binary" else np.asarray(y, dtype=float)
    X = np.ascontiguousarray(X[order])
    return TaskTable(X, y[order], ends, labels, n_classes=KINDS[kind])


def outputs(kind):
    return 3 if kind == "multi" else 1


def around(init):
    return [KnownModel(init, 0.2, 0.0), KnownModel(np.zeros_like(init), 1.0, -1.0)]


def tuned(kind, X, y, task, init, **options):
    return fine_tuned(RoundRows(table_of(kind, X, y, task), True), around(init), **options)[0]


def cells(error, intercept):
    """Variances of slopes, noise and levels, and their log prior, for real targets."""
    log_kappa = np.log2(finetune._KAPPA / (10.0 ** finetune._CHANGE_OF_TARGETS[0] + error))
    log_kappa = -0.5 * (log_kappa / np.log2(10.0) / finetune._CHANGE_OF_TARGETS[1]) ** 2
    centre, width = finetune._SIGMA
    log_sigma = -0.5 * ((np.log2(priors.SIGMA) - centre) / width) ** 2
    tau = finetune._TAU if intercept else np.zeros(1)
    for kappa, a in zip(finetune._KAPPA, log_kappa - logsumexp(log_kappa), strict=True):
        for sigma, b in zip(priors.SIGMA, log_sigma - logsumexp(log_sigma), strict=True):
            for spread in tau:
                yield kappa, sigma**2, spread**2, a + b - np.log(len(tau))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d, rows", [(4, (2, 12)), (9, (3, 5))])
def test_models_are_means_of_a_mixture_of_gaussians(d, rows, intercept, monkeypatch):
    """From covariances (n, n) of the responses, and of these with the model."""
    monkeypatch.setattr(finetune, "_TAU", finetune._TAU[:-1])  # free levels leave them no digits
    X, y, task = problem("real", m=4, d=d, rows=rows)
    init = np.random.default_rng(1).normal(size=(1, d + intercept))
    rows = RoundRows(table_of("real", X, y, task), intercept)
    found, wide, _ = fine_tuned(rows, around(init), spread=True)
    assert_allclose(fine_tuned(rows, around(init))[0], found)
    scales = finetune.TargetTasks(rows.table, intercept, False).columns
    for k in range(4):
        A, t = X[task == k] / scales[k], y[task == k]
        n, mean = len(A), A.mean(axis=0)
        length = np.sqrt(np.sum((A - mean * intercept) ** 2) / n)
        unit = t.std(ddof=1) if intercept else np.sqrt(np.mean(t**2))
        near = mean / length
        shift = near * (1.0 - np.minimum(1.0, 3.0 / np.linalg.norm(near)) ** 2) * intercept
        Z = np.column_stack([A / length - shift, np.ones(n)]) * unit
        # Models (w, b) follow from slopes and the level.
        T = np.zeros((d + 1, d + 1))
        T[:d, :d], T[d, :d], T[d, d] = np.eye(d) / length, -shift, 1.0
        T *= unit
        T[:d] /= scales[k, :, None]
        logs, means, squares = [], [], []
        for part in around(init):
            w0 = np.append(part.models[0], np.zeros(1 - intercept))
            r = t - X[task == k] @ w0[:d] - w0[d]
            for kappa, noise, spread, log in cells(part.error, intercept):
                S = np.diag(np.append(np.full(d, kappa), spread))
                V = Z @ S @ Z.T + noise * unit**2 * np.eye(n)
                gain = np.linalg.solve(V, Z @ S).T
                logs.append(part.log_weight + log - 0.5 * np.linalg.slogdet(V)[1])
                logs[-1] -= 0.5 * r @ np.linalg.solve(V, r)
                means.append(w0 + T @ gain @ r)
                squares.append(T @ (S - gain @ Z @ S) @ T.T + np.outer(means[-1], means[-1]))
        share = np.exp(logs - logsumexp(logs))
        w = share @ np.array(means)
        expected = np.tensordot(share, np.array(squares), 1) - np.outer(w, w)
        assert_allclose(found[k, 0], w[: d + intercept], rtol=1e-6, atol=1e-6)
        scale = np.sqrt(np.diag(expected)) + 1e-9
        assert_allclose(
            wide[k, 0] / np.outer(scale, scale), expected / np.outer(scale, scale), atol=1e-4
        )


def test_models_of_classes_are_means_of_their_posterior():
    """Of one slope, by integration; Laplace's approximation is off by a little."""
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(60, 1)), np.repeat([0, 1], [10, 50])
    y = rng.random(60) < expit(1.5 * X[:, 0])
    init = np.array([[1.0]])
    rows = RoundRows(table_of("binary", X, y, task), False)
    found, wide, _ = fine_tuned(rows, around(init), spread=True)
    centre, width = finetune._CHANGE_OF_SCORES
    w = np.linspace(-20.0, 20.0, 8001)
    for k in range(2):
        A, t = X[task == k], np.where(y[task == k], 1.0, -1.0)
        length, density = np.sqrt(np.mean(A**2)), 0.0
        likely = np.exp(-np.logaddexp(0.0, -t[:, None] * A * w).sum(axis=0))
        for part in around(init):
            logs = np.log10(finetune._KAPPA_OF_SCORES)
            logs = -0.5 * ((logs - np.log10(10.0**centre + part.error)) / width) ** 2
            for kappa, share in zip(
                finetune._KAPPA_OF_SCORES, np.exp(logs - logsumexp(logs)), strict=True
            ):
                std = np.sqrt(kappa) / length
                normal = np.exp(-0.5 * ((w - part.models[0, 0]) / std) ** 2) / std
                density = density + np.exp(part.log_weight) * share * normal * likely
        density /= density.sum()
        mean = density @ w
        std = np.sqrt(density @ (w - mean) ** 2)
        assert found[k, 0, 0] == pytest.approx(mean, abs=0.1 * std)
        assert wide[k, 0, 0, 0] == pytest.approx(std**2, rel=0.3)


@pytest.mark.parametrize("scale", [1e-6, 0.03, 30.0, 1e6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.spread(5)
def test_the_unit_of_a_column_hardly_changes_a_score(kind, scale):
    """Of tasks of thirty rows: fewer know their own scales of columns less well."""
    X, y, task = problem(kind, rows=(30, 40))
    rows, T = np.column_stack([X, np.ones(len(X))]), np.array([1.0, scale, 1.0, 1.0, 1.0])
    init = np.random.default_rng(1).normal(size=(outputs(kind), 5))
    given = tuned(kind, X, y, task, init)
    moved = tuned(kind, X * T[:-1], y, task, init / T) * T
    a, b = (np.einsum("ij,icj->ic", rows, W[task]) for W in (given, moved))
    assert np.linalg.norm(b - a) < 0.05 * np.linalg.norm(a - a.mean(axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_zeros_change_no_model(kind):
    """Few rows of many columns are written in a basis of their own, many rows are not."""
    X, y, task = problem(kind, d=6)
    init = np.random.default_rng(0).normal(size=(outputs(kind), 7))
    wide = np.insert(init, np.full(50, 6), 0.0, axis=1)
    W = tuned(kind, X, y, task, init)
    other = tuned(kind, np.column_stack([X, np.zeros((len(X), 50))]), y, task, wide)
    # Classes end at a precision of their modes.
    tol = 1e-6 if kind == "real" else 1e-4
    assert_allclose(np.delete(other, np.s_[6:56], axis=2), W, rtol=tol, atol=tol)
    assert_allclose(other[..., 6:56], 0.0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_far_from_the_initialisation_leaves_it(kind):
    """Rows that are far on the wrong side of it: models classify them better than it does."""
    X, y, task = problem(kind, m=12, rows=(15, 30))
    init = 30.0 * np.random.default_rng(0).normal(size=(outputs(kind), 5))
    W = tuned(kind, X, y, task, init)
    assert np.isfinite(W).all() and np.linalg.norm(W) < 0.5 * np.linalg.norm(init) * np.sqrt(12)
    none = tuned(kind, X, y, task, np.zeros_like(init))
    assert np.linalg.norm(W - none) < 0.2 * np.linalg.norm(init) * np.sqrt(12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows, d", [(1, 4), (3, 4), (1, 8), (2, 8), (4, 8)])
def test_rows_that_are_alike_and_short_say_little_of_slopes(kind, rows, d):
    """A task of one row near the centre has a level, and no slope that is large elsewhere."""
    X, y, task = problem(kind, m=12, d=d, rows=(rows, rows + 1))
    X = 1e-3 * X[np.unique(task, return_index=True)[1][task]]
    init = np.random.default_rng(0).normal(size=(outputs(kind), d + 1))
    (W, *_) = fine_tuned(RoundRows(table_of(kind, X, y, task), True), [KnownModel(init, 0.2, 0.0)])
    assert_allclose(W[..., :d], np.broadcast_to(init[:, :d], W[..., :d].shape), atol=0.05)
    assert (W[..., d] != init[:, d]).any()


@pytest.mark.parametrize("level", [1e5, 1e7])
def test_the_unit_of_targets_is_how_they_vary_about_a_far_level(level):
    """By less than 1e-6 of it, where the level itself had been the unit, and was shrunk."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(30), 3)
    y = level + 2e-7 * level * rng.normal(size=len(task))
    table = table_of("real", rng.normal(size=(len(task), 2)), y, task)
    (W, *_) = fine_tuned(RoundRows(table, True), [KnownModel(np.zeros((1, 3)), 1.0, 0.0)])
    assert_allclose(W[:, 0, 2], level, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [6, 12])
def test_a_model_knows_nothing_of_other_tasks(kind, d):
    """Other rows, another number of them, or numbers that overflow: not a bit changes."""
    X, y, task = problem(kind, d=d)
    init = np.random.default_rng(0).normal(size=(outputs(kind), d + 1))
    W = tuned(kind, X, y, task, init)
    mine, keep = task == 4, task != 4
    for scale, pick in ((-3.0, mine), (1e200, mine), (2.0, np.flatnonzero(mine)[:1])):
        rows = np.concatenate([X[keep], scale * X[pick]])
        targets = np.concatenate([y[keep], y[pick]])
        other = tuned(kind, rows, targets, np.concatenate([task[keep], task[pick]]), init)
        assert_array_equal(np.delete(other, 4, 0), np.delete(W, 4, 0))
        assert (other[4] != W[4]).any() and np.isfinite(other[4]).all()


@pytest.mark.exact_bits("memory is measured")
@pytest.mark.parametrize("kind", KINDS)
def test_fine_tuning_holds_few_models_of_a_task(kind):
    """Models, and what blocks of tasks work on; not copies of all kinds."""
    X, y, task = problem(kind, m=800, d=200, rows=(2, 4))
    given = kind, X, y, task, np.zeros((outputs(kind), 201))
    tuned(*given)  # loads the compiled loops
    tracemalloc.start()
    try:
        models = tuned(*given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12.0 * models.nbytes, peak / models.nbytes
