"""Models of tasks around centres: closed forms, stationary points, and no task moves another."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from scipy.stats import multivariate_normal

from skpmtl.solvers.ridge import RidgeModels
from skpmtl.solvers.strength import _SNR, _signal_to_noise
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

SIZES, D = np.array([12, 1, 30, 4, 12]), 7


def drawn(loss, n_classes=0, base=False):
    X, y, task = make_rows(SIZES, D, 6)
    rng = np.random.default_rng(8)
    if loss == "poisson":
        y = rng.poisson(np.exp(np.clip(y, -2, 2))).astype(float)
        y[task == 3] = 0.0
    elif n_classes:
        y = rng.integers(0, n_classes, len(y)).astype(float)
        y = 2 * y - 1 if n_classes == 2 else y
    table = replace(plain.long_table(X, y, task), loss=loss, n_classes=n_classes)
    if base:
        table = replace(
            table, base=rng.standard_normal((len(y), max(n_classes, 1) - (n_classes == 2)))
        )
    if loss != "poisson":
        weights = rng.uniform(0.5, 2.0, len(y))
        table = replace(table, weights=weights, masses=SIZES.astype(float))
    return table


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_squared_loss_has_the_closed_form(intercept, form):
    table = drawn("squared")
    strength, A = np.linspace(0.1, 3.0, 5), np.random.default_rng(0).standard_normal((5, 1, D))
    X = table.X
    if form == "sparse":
        table = replace(table, X=sparse.csr_matrix(X))
    if form == "float32":
        table = replace(table, X=X.astype(np.float32))
    models = RidgeModels(table, strength, fit_intercept=intercept)
    for centres in (A, 2.0 * A):  # what is kept does not depend on centres
        W, b = models.around(centres)
        for k in range(5):
            rows = slice(*table.offsets[k : k + 2])
            x, u, y = X[rows], table.weights[rows], table.y[rows]
            x = np.column_stack([x, np.full(len(x), float(intercept))])
            H = (u[:, None] * x).T @ x + np.diag([strength[k]] * D + [float(not intercept)])
            right = x.T @ (u * y) + strength[k] * np.append(centres[k, 0], 0.0)
            expected = np.linalg.solve(H, right)
            tol = 1e-4 if form == "float32" else 1e-9
            np.testing.assert_allclose(W[k, 0], expected[:D], atol=tol)
            assert b[k, 0] == pytest.approx(expected[D], abs=tol)


@pytest.mark.parametrize("loss, n_classes", [("squared", 2), ("squared", 3), ("poisson", 0)])
@pytest.mark.parametrize("base", [False, True])
def test_gradients_vanish_at_models_of_log_losses(loss, n_classes, base):
    table = drawn(loss, n_classes, base)
    C = n_classes if n_classes > 2 else 1
    strength, held = np.linspace(0.1, 3.0, 5), np.array([0.0, 0.4, 0.0, 0.2, 0.0])
    centres = np.random.default_rng(0).standard_normal((5, C, D))
    W, b = RidgeModels(table, strength, fit_intercept=True, held=held).around(centres, 1e-10)
    for k in range(5):
        rows = slice(*table.offsets[k : k + 2])
        x, y, u = table.X[rows], table.y[rows], table.counts[rows, None]
        score = x @ W[k].T + b[k] + (table.base[rows] if base else 0.0)
        if n_classes == 3:
            slope = softmax(score, axis=1) - (y[:, None] == np.arange(3))
        elif n_classes == 2:
            slope = expit(score) - (y[:, None] > 0)
        elif y.any():
            slope = np.exp(score) - y[:, None]
        else:
            continue  # a task without events has a part of one, see `with_events`
        pull = strength[k] * (W[k] - centres[k])
        if C > 1:  # but for what is common to all classes, which changes no loss
            pull -= pull.mean(axis=0)
        np.testing.assert_allclose((u * slope).T @ x + pull, 0.0, atol=1e-7)
        np.testing.assert_allclose((u * slope).sum(axis=0) + held[k] * b[k], 0.0, atol=1e-7)


@pytest.mark.parametrize("loss, n_classes", [("squared", 0), ("squared", 2)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, 0.0])
def test_no_bit_of_a_model_depends_on_other_tasks(loss, n_classes, bad):
    table = drawn(loss, n_classes)
    others = np.arange(5) != 4  # of as many rows as the first one

    def models(table, strength):
        return RidgeModels(table, strength, fit_intercept=True).around()

    strength = np.linspace(0.1, 3.0, 5)
    expected = models(table, strength)
    changed, n = table.X.copy(), table.offsets[4]
    changed[n:] = bad
    fewer = {"X": table.X[: n + 2], "y": table.y[: n + 2], "weights": table.weights[: n + 2]}
    offsets = np.append(table.offsets[:5], n + 2)
    for other in (replace(table, X=changed), replace(table, **fewer, offsets=offsets)):
        for found, wanted in zip(models(other, strength), expected, strict=True):
            np.testing.assert_array_equal(found[others], wanted[others])


@pytest.mark.parametrize("intercept", [False, True])
def test_the_ratio_of_signal_to_noise_is_likeliest(intercept):
    table = replace(drawn("squared"), weights=None, masses=None)
    criterion = np.zeros(len(_SNR))
    for k, n in enumerate(SIZES):
        rows = slice(*table.offsets[k : k + 2])
        x, y = table.X[rows], table.y[rows]
        # An orthonormal basis of what remains of the rows after the intercept.
        basis = np.linalg.svd(np.ones((1, n)))[2][1:] if intercept else np.eye(n)
        K, v = basis @ x @ x.T @ basis.T, basis @ y
        for s, snr in enumerate(_SNR if len(v) else ()):
            S = np.eye(len(v)) + snr * n / np.trace(K) * K
            noise = v @ np.linalg.solve(S, v) / len(v)
            criterion[s] -= multivariate_normal(np.zeros(len(v)), noise * S).logpdf(v)
    assert _signal_to_noise(table, intercept) == _SNR[np.argmin(criterion)]
