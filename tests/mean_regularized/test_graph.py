"""The whole penalty of a graph or Omega, without a budget: against RMTL, cvxpy, direct solvers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from tests.helpers.shelf import LABEL, TASK, X, Y

M, D = 8, X.shape[1]
RING = sparse.csr_matrix(np.roll(np.eye(M), 1, axis=1) + np.roll(np.eye(M), -1, axis=1))
LAPLACIAN = 2 * np.eye(M) - RING.toarray()
THIRDS = np.concatenate(  # all classes in every task
    [3 * Y[TASK == k].argsort().argsort() // (TASK == k).sum() for k in range(M)]
)


def exact(lam, relation, classes=0, **parameters):
    cls = PrivateMeanRegMTLClassifier if classes else PrivateMeanRegMTL
    return cls(lam, epsilon=None, relation=relation, relation_rank="all", **parameters)


def objective(est, y, Omega, lam, ridge, weights):
    """From the formula; targets of no class, two or several."""
    W = est.coef_.reshape(M, -1)
    z = np.einsum("ij,i...j->i...", X, est.coef_[TASK]) + est.intercept_[TASK]
    if len(y) and not hasattr(est, "classes_"):
        losses = 0.5 * (y - z) ** 2
    elif z.ndim == 1:
        losses = np.logaddexp(0.0, np.where(y == est.classes_[1], -z, z))
    else:
        losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    value = losses @ weights[TASK] + 0.5 * ridge * np.vdot(W, W)
    return value + 0.5 * lam * np.trace(W.T @ Omega @ W)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("weight", ["equal", "samples"])
def test_direct_solution(weight, ridge):
    lam, scale = 0.7, 1.0 / np.bincount(TASK) if weight == "equal" else np.ones(M)
    A, b = np.zeros((M * D, M * D)), np.zeros(M * D)
    for k in range(M):
        Z = X[TASK == k] - X[TASK == k].mean(axis=0)
        part = slice(k * D, (k + 1) * D)
        A[part, part] = scale[k] * Z.T @ Z
        b[part] = scale[k] * Z.T @ Y[TASK == k]
    A += np.kron(lam * LAPLACIAN + ridge * np.eye(M), np.eye(D))
    est = exact(lam, RING, task_weight=weight, ridge=ridge).fit(X, Y, task=TASK)
    assert_allclose(est.coef_.ravel(), np.linalg.solve(A, b), rtol=1e-8)
    dense = exact(lam, LAPLACIAN, task_weight=weight, ridge=ridge).fit(X, Y, task=TASK)
    assert_allclose(dense.coef_, est.coef_, rtol=1e-9)
    assert est.objective_ == pytest.approx(
        objective(est, Y, LAPLACIAN, lam, ridge, scale), rel=1e-12
    )


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_optimum_of_cvxpy_with_an_l1_norm(classes):
    cp = pytest.importorskip("cvxpy")
    y = [Y, None, LABEL, THIRDS][classes]
    est = exact(0.3, RING, classes, l1=0.1, ridge=0.02).fit(X, y, task=TASK)
    n_models, scale = max(classes, 2) - 1 if classes < 3 else 3, 1.0 / np.bincount(TASK)
    W, b = cp.Variable((M, n_models * D)), cp.Variable((M, n_models))
    root = np.linalg.cholesky(LAPLACIAN + 1e-12 * np.eye(M)).T
    value = 0.15 * cp.sum_squares(root @ W) + 0.01 * cp.sum_squares(W) + 0.1 * cp.sum(cp.abs(W))
    for k in range(M):
        mine = TASK == k
        z = X[mine] @ cp.reshape(W[k], (D, n_models), order="F") + cp.reshape(
            b[k], (1, n_models), order="F"
        )
        if not classes:
            losses = 0.5 * cp.square(y[mine] - z[:, 0])
        elif classes == 2:
            losses = cp.logistic(cp.multiply(-LABEL[mine], z[:, 0]))
        else:
            losses = cp.log_sum_exp(z, axis=1) - cp.sum(cp.multiply(np.eye(3)[y[mine]], z), axis=1)
        value += scale[k] * cp.sum(losses)
    optimum = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    assert est.objective_ == pytest.approx(optimum, rel=1e-7)
    assert est.dual_gap_ <= 1e-10 * est.objective_
    assert 0.1 < np.mean(est.coef_ == 0) < 0.9
    whole = objective(est, y, LAPLACIAN, 0.3, 0.02, scale) + 0.1 * np.abs(est.coef_).sum()
    assert est.objective_ == pytest.approx(whole, rel=1e-12)


def test_an_l1_norm_with_tasks_of_one_class():
    # Their labels are spread, as beside the other penalties that leave intercepts free.
    label = np.where(TASK == 2, 1, LABEL)
    est = exact(0.3, RING, 2, l1=0.02).fit(X, label, task=TASK)
    assert est.dual_gap_ <= 1e-10 * est.objective_
    assert 1.0 < est.intercept_[2] < 10.0


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_gap_covers_what_a_rough_fit_misses(classes, ridge):
    y = [Y, None, LABEL, THIRDS][classes]
    fine = exact(0.3, RING, classes, ridge=ridge).fit(X, y, task=TASK)
    rough = exact(0.3, RING, classes, ridge=ridge, tol=0.3).fit(X, y, task=TASK)
    scale = 1.0 / np.bincount(TASK)
    assert fine.objective_ == pytest.approx(
        objective(fine, y, LAPLACIAN, 0.3, ridge, scale), rel=1e-12
    )
    assert 0 < fine.dual_gap_ < 1e-10 * fine.objective_
    assert fine.objective_ <= rough.objective_ * (1 + 1e-14)
    assert rough.objective_ - rough.dual_gap_ <= fine.objective_
    if classes:
        assert rough.objective_ > fine.objective_ + 1e-12  # there is something to cover


@pytest.mark.parametrize("classes", [0, 2])
def test_the_unit_of_the_rows_does_not_matter(classes):
    y, unit = LABEL if classes else Y, 2.0**20
    est = exact(0.2, RING, classes, ridge=0.1).fit(X, y, task=TASK)
    far = exact(0.2 * unit**2, RING, classes, ridge=0.1 * unit**2).fit(unit * X, y, task=TASK)
    assert far.objective_ == est.objective_ and far.dual_gap_ == est.dual_gap_
    assert_allclose(far.coef_ * unit, est.coef_, rtol=1e-12)
    # Where the penalty is next to nothing the gap still tells.
    weak = exact(0.2, RING, classes).fit(1e6 * X, y, task=TASK)
    assert weak.dual_gap_ < 1e-10 * weak.objective_


def test_the_gap_covers_what_rounding_does():
    wide, spread = np.longdouble, 10.0 ** np.linspace(-2, 3, D)

    def precise(W):
        z = np.array([X[i] * spread @ W[TASK[i]].astype(wide) for i in range(len(Y))]) - Y
        value = wide(0.15) * (np.diff(W[np.r_[:M, 0]].astype(wide), axis=0) ** 2).sum()
        for k in range(M):
            value += ((z[TASK == k] - z[TASK == k].mean()) ** 2).mean() / 2
        return value

    best = precise(exact(0.3, RING).fit(X * spread, Y, task=TASK).coef_)
    for shift in 1e2, 1e4, 1e6:  # means of up to so many deviations
        rows = (X + shift * np.linspace(-1, 1, D)) * spread
        est = exact(0.3, RING).fit(rows, Y + shift, task=TASK)
        assert float(precise(est.coef_) - best) <= est.dual_gap_ < 1e-3 * est.objective_


def test_a_gap_that_says_too_little_is_said():
    with pytest.warns(ConvergenceWarning, match="Scale the features, or add a ridge"):
        # Relative to the objective the gap is the square of a rounded sum over the penalty, some
        # 1e3. Of classes the minimum would be at infinity, where rounding says when steps end.
        est = exact(0.2, RING).fit(1e16 * X, Y, task=TASK)
    assert est.dual_gap_ > 1e-3 * est.objective_


def test_tasks_without_rows_follow_their_neighbours():
    part = TASK != 3
    est = exact(0.5, RING, tasks=range(M)).fit(X[part], Y[part], task=TASK[part])
    assert_allclose(est.coef_[3], 0.5 * (est.coef_[2] + est.coef_[4]), rtol=1e-9)
    # As with a row that says nothing.
    empty = exact(0.5, RING, fit_intercept=False)
    rows, y, task = np.r_[X[part], np.zeros((1, D))], np.r_[Y[part], 0.0], np.r_[TASK[part], 3]
    whole = empty.fit(rows, y, task=task)
    bare = exact(0.5, RING, tasks=range(M), fit_intercept=False)
    bare.fit(X[part], Y[part], task=TASK[part])
    assert_allclose(bare.coef_, whole.coef_, rtol=1e-8)
    assert bare.objective_ == pytest.approx(whole.objective_, rel=1e-10)
