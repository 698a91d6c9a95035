"""Tasks unlike all others under a released prior: what they chose, which is theirs alone."""

import numpy as np
import pytest

from benchmarks.outliers import measured
from skpmtl import MPMTLGroupSparse, MPMTLLowRank, MPMTLLowRankClassifier, load_billboard
from skpmtl import save_billboard as save
from skpmtl.privacy import audit
from tests.helpers.data import rows_of

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit:skpmtl.PrivacyLeakWarning")
M, N, D = 100, 20, 8


def tasks_with_outliers(seed=0):
    """-> X, y, task, which of the tasks have models outside of the subspace of the others"""
    rng = np.random.default_rng(seed)
    W = 2.0 * rng.normal(size=(M, 1)) * np.eye(D)[0]
    off = np.arange(M) % 5 == 0
    W[off] = 1.5 * rng.normal(size=(off.sum(), D))
    return *rows_of(rng, W, N, noise=1.0), off


def fit(cls, options, X, y, task):
    known = {"epsilon": 5.0, "delta": 1e-5, "tasks": range(M), "random_state": 0}
    return cls(**known, **options).fit(X, y, task=task)


@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLGroupSparse, MPMTLLowRankClassifier])
def test_outliers_are_reported_and_models_are_the_same(cls, tmp_path):
    X, y, task, off = tasks_with_outliers()
    options = {}
    if cls is MPMTLLowRankClassifier:
        y, options = y > 0, {"classes": [False, True]}
    plain = fit(cls, options, X, y, task)
    est = fit(cls, {**options, "outliers": "tasks"}, X, y, task)
    np.testing.assert_array_equal(est.coef_, plain.coef_)
    assert est.outlier_.shape == (M,) and ((est.outlier_ >= 0) & (est.outlier_ <= 1)).all()
    pairs = est.outlier_[off][:, None] > est.outlier_[~off]
    assert pairs.mean() > 0.85  # area under the curve
    assert str(est.privacy_) == str(plain.privacy_)
    # The same from the file, of these tasks and of one that comes later.
    save(est, tmp_path / "board.npz")
    there = load_billboard(tmp_path / "board.npz").personalize(X, y, task=task)
    np.testing.assert_allclose(there.outlier_, est.outlier_, atol=1e-9)
    est.personalize(X[:N], y[:N], task=[M] * N)
    assert est.outlier_.shape == (M + 1,)
    assert est.outlier_[M] == pytest.approx(est.outlier_[0], abs=1e-9)


def test_the_weights_of_others_do_not_depend_on_a_task():
    X, y, task, _ = tasks_with_outliers()
    other = np.where(task == 3, -3.0 * y, y)
    known = {"epsilon": 5.0, "delta": 1e-5, "tasks": range(M), "outliers": "tasks"}
    result = audit(MPMTLLowRank(**known), (X, y, task), (X, other, task), replay=True)
    assert result.passed, result


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
def test_outliers_cost_the_others_less_than_an_exact_trace_norm(share):
    errors = {row["method"]: float(row["all"]) for row in measured(share, 100)}
    for epsilon in (1, 10):
        with_outliers = errors[f"private with outliers, epsilon {epsilon}"]
        assert with_outliers <= errors[f"private, epsilon {epsilon}"]
        assert with_outliers < errors["trace norm"]


def test_tasks_without_rows_are_no_outliers():
    X, y, task, _ = tasks_with_outliers()
    some = task < M - 1
    est = fit(MPMTLLowRank, {"outliers": "tasks"}, X[some], y[some], task[some])
    assert est.outlier_.shape == (M,) and est.outlier_[-1] == 0.0
