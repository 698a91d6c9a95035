"""Restricted maximum likelihood against published values, closed forms and jackknives."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl.mixed_models.reml import GroupedRows, fit_mixed, independent


def generated(seed=0, m=12, p=3, q=2):
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 9, size=m)
    offsets = np.concatenate([[0], np.cumsum(n)])
    N = offsets[-1]
    X = np.c_[np.ones(N), rng.normal(size=(N, p - 1)) * 10.0 ** rng.uniform(-2, 2, size=p - 1)]
    Z = np.c_[np.ones(N), rng.normal(size=N)][:, :q]
    y = X @ rng.normal(size=p) + rng.normal(size=N)
    y += (Z * rng.normal(size=(m, q))[np.repeat(np.arange(m), n)]).sum(axis=1)
    return GroupedRows(X, Z, y, offsets)


def without(rows, t):
    lo, hi = rows.offsets[t : t + 2]
    kept = np.r_[0:lo, hi : len(rows.y)]
    sizes = np.delete(np.diff(rows.offsets), t)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return GroupedRows(rows.X[kept], rows.Z[kept], rows.y[kept], offsets)


def marginal(rows, fit):
    """Covariance of all targets, (N, N)."""
    V, D = np.eye(len(rows.y)) * fit.sigma2, fit.random_covariance
    for lo, hi in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        V[lo:hi, lo:hi] += rows.Z[lo:hi] @ D @ rows.Z[lo:hi].T
    return V


@pytest.mark.parametrize("seed", range(3))
def test_estimates_are_generalised_least_squares(seed):
    rows = generated(seed)
    fit = fit_mixed(rows)
    V = marginal(rows, fit)
    W = np.linalg.inv(V)
    covariance = np.linalg.inv(rows.X.T @ W @ rows.X)
    assert_allclose(fit.coef, covariance @ rows.X.T @ W @ rows.y, rtol=1e-7)
    assert_allclose(fit.covariance, covariance, rtol=1e-6)
    residuals = rows.y - rows.X @ fit.coef
    value = np.linalg.slogdet(V)[1] + np.linalg.slogdet(rows.X.T @ W @ rows.X)[1]
    value += residuals @ W @ residuals + (len(V) - 3) * np.log(2.0 * np.pi)
    assert_allclose(fit.deviance, value, rtol=1e-9)
    lo, hi = rows.offsets[:2]
    effect = fit.random_covariance @ rows.Z[lo:hi].T @ (W @ residuals)[lo:hi]
    assert_allclose(fit.effects[0], effect, rtol=1e-6, atol=1e-8)


def test_cr3_is_the_jackknife_over_tasks():
    rows = generated(q=0)
    fit = fit_mixed(rows)
    moved = np.array([fit_mixed(without(rows, t)).coef - fit.coef for t in range(12)])
    assert_allclose(fit.cluster_robust(rows, "CR3")[0], moved.T @ moved, rtol=1e-7)


def test_cr2_has_no_bias_where_rows_are_independent():
    rows = generated(q=0)
    N, p = rows.X.shape
    total = np.zeros((p, p))
    for i in range(N):  # a quadratic form of y: its mean is the sum over unit vectors
        unit = GroupedRows(rows.X, rows.Z, np.eye(N)[i], rows.offsets)
        total += fit_mixed(unit).cluster_robust(unit, "CR2")[0]
    assert_allclose(total, np.linalg.inv(rows.X.T @ rows.X), rtol=1e-7, atol=1e-12)


def test_robust_errors_do_not_depend_on_the_unit():
    rows = generated()
    unit = np.array([1.0, 1e3, 1e-4])
    other = GroupedRows(rows.X * unit, rows.Z, rows.y, rows.offsets)
    first = fit_mixed(rows).cluster_robust(rows)
    second = fit_mixed(other).cluster_robust(other)
    assert_allclose(second[0] * np.outer(unit, unit), first[0], rtol=1e-5)
    assert_allclose(second[1], first[1], rtol=1e-5)


def test_columns_that_others_determine_are_left_out():
    X = generated().X
    more = np.c_[X[:, :2], X @ [0.0, 2.0, 0.0], np.zeros(len(X)), X[:, 2], X.sum(axis=1)]
    assert independent(more).tolist() == [0, 1, 4]
    with pytest.raises(ValueError, match="cannot determine"):
        independent(X[:3])


# Fifteen tasks of 2 to 6 rows: y, x, z (constant in tasks), task.
UNBALANCED = np.loadtxt(Path(__file__).with_name("unbalanced.csv"), delimiter=",", skiprows=1)


@pytest.mark.parametrize("mixed", [False, True])
def test_robust_errors_under_correlated_columns(mixed):
    """R 4.2.2, nlme 3.1-162, clubSandwich 0.5.8: vcovCR and coef_test(...)$df_Satt of lm and of
    lme(random = ~1 | g, control = lmeControl(opt = "optim", reltol = 1e-14)), y ~ x + v + h with
    v = x + .45 sin(i), h = x - .45 cos(2 i), which have correlations of .95."""
    y, x, _, g = UNBALANCED.T
    places, ones = np.arange(1, len(y) + 1), np.ones(len(y))
    X = np.c_[ones, x, x + 0.45 * np.sin(places), x - 0.45 * np.cos(2.0 * places)]
    starts = np.searchsorted(g, [*np.unique(g), np.inf])
    rows = GroupedRows(X, ones[:, None][:, : int(mixed)], y, starts)
    fit = fit_mixed(rows)
    found = {kind: fit.cluster_robust(rows, kind) for kind in ("CR0", "CR2", "CR3")}
    std = {kind: np.sqrt(np.diag(covariance)) for kind, (covariance, _) in found.items()}
    if mixed:
        assert_allclose(fit.coef, [0.424799177, 0.987037715, 0.200102613, -0.182671115], rtol=1e-5)
        cr0 = [0.179881263, 0.483828362, 0.366492059, 0.494647211]
        cr2 = [0.188293815, 0.507318378, 0.386803153, 0.520061408]
        cr3 = [0.196598407, 0.533510734, 0.408880456, 0.548053258]
        dof = [13.48838934, 9.15570247, 10.42579970, 11.13086820]
    else:
        cr0 = [0.178481034, 0.478043602, 0.412958413, 0.480820836]
        cr2 = [0.189873618, 0.503004733, 0.438561218, 0.503940301]
        cr3 = [0.202335305, 0.529750504, 0.466181489, 0.528570447]
        dof = [12.1003018, 10.0984235, 11.6401482, 11.5572603]
    assert_allclose(std["CR0"], cr0, rtol=1e-5)
    assert_allclose(std["CR3"], cr3, rtol=1e-5)
    # Of a mixed model they take another root of I - S_t, which is not unique.
    assert_allclose(std["CR2"], cr2, rtol=4e-3 if mixed else 1e-7)
    assert_allclose(found["CR2"][1], dof, rtol=5e-3 if mixed else 1e-7)
