"""Paths of strengths, and the strength that cross-validation chooses."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, PredefinedSplit

import skpmtl
from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseCV,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    MPMTLLowRankClassifierCV,
    MPMTLLowRankCV,
    PrivateSearch,
    TaskStratifiedKFold,
    mtl_path,
    save_billboard,
    stack_tasks,
)
from skpmtl.solvers.losses import LogisticLoss, make_loss
from skpmtl.solvers.path import alpha_grid, follow
from skpmtl.solvers.penalties import GroupNorm
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

SINGLE = {
    ("trace", "squared"): MPMTLLowRank,
    ("trace", "logistic"): MPMTLLowRankClassifier,
    ("l21", "squared"): MPMTLGroupSparse,
    ("l21", "multinomial"): skpmtl.MPMTLGroupSparseClassifier,
}


def rows(loss="squared", sizes=(14, 9, 20, 11, 16), d=5, seed=0):
    X, y, task = make_rows(sizes, d, seed, labels=loss == "logistic")
    return X, np.digitize(y, [-1.0, 1.0]) if loss == "multinomial" else y, task


@pytest.mark.parametrize("penalty, loss", SINGLE)
def test_path_is_that_of_single_fits(penalty, loss):
    X, y, task = rows(loss)
    settings = {"ridge": 0.01, "task_weight": "samples", "tol": 1e-11}
    path = mtl_path(X, y, task, penalty=penalty, loss=loss, eps=0.02, n_alphas=6, **settings)
    assert not path.coefs[0].any() and path.coefs[1].any()
    np.testing.assert_allclose(path.alphas[1:] / path.alphas[:-1], 0.02**0.2)
    for k, alpha in enumerate(path.alphas):
        single = SINGLE[penalty, loss](alpha, epsilon=None, **settings).fit(X, y, task=task)
        size = abs(single.coef_).max()
        np.testing.assert_allclose(path.coefs[k], single.coef_, atol=2e-5 * size, rtol=0)
        np.testing.assert_allclose(path.intercepts[k], single.intercept_, atol=1e-4)
        again = SINGLE[penalty, loss](
            alpha, epsilon=None, warm_start=True, **{**settings, "tol": 1e-9}
        )
        again.coef_ = path.coefs[k]  # its objective, to 1e-9
        again.fit(X, y, task=task)
        assert again.n_iter_ <= 6  # the first look at a start of zero
        assert again.objective_ == pytest.approx(single.objective_, rel=1e-9)
        assert path.gaps[k] <= 1e-11 * single.objective_
    assert path.coefs.shape[1:] == single.coef_.shape
    assert path.tasks.tolist() == [0, 1, 2, 3, 4] and path.n_iter.shape == (6,)


@pytest.mark.parametrize("form", ["rows", "grams", "wide", "logistic"])
def test_screening_changes_nothing(form):
    X, y, task = make_rows([40 if form == "rows" else 150] * 5, 90, 3, labels=form[0] == "l")
    X[:, 6:] *= 0.3
    table = plain.long_table(X, y, task)
    if form == "wide":
        table = plain.wide_table(X[:150], y.reshape(5, 150).T)
    found = []
    for screen in (True, False):
        loss = make_loss(table)
        alphas = alpha_grid(loss, GroupNorm(), 0.05, 8)
        found.append(list(follow(loss, GroupNorm(), alphas, tol=1e-10, screen=screen)))
    for part, whole in zip(*found, strict=True):
        assert part.converged and whole.converged
        assert part.objective == pytest.approx(whole.objective, rel=2e-10)
        np.testing.assert_allclose(part.W, whole.W, atol=1e-4 * (abs(whole.W).max() + 1e-9))
    used = [int(s.W.any(axis=0).sum()) for s in found[0]]
    assert used[0] == 0 and 0 < used[2] < 23  # sets of less than a quarter were enough


GRID = {"alpha": [0.5, 0.1, 0.02]}


@pytest.mark.parametrize(
    "cls, single, n_classes",
    [
        (MPMTLGroupSparseCV, MPMTLGroupSparse, 0),
        (MPMTLLowRankClassifierCV, MPMTLLowRankClassifier, 2),
        (MPMTLLowRankClassifierCV, MPMTLLowRankClassifier, 3),
    ],
)
def test_errors_are_those_of_a_grid_search(cls, single, n_classes):
    """Also where a fold leaves one class to a task, whose labels are then spread."""
    form, rtol = ("multinomial", 1e-5) if n_classes else ("squared", 1e-6)
    X, y, task = rows(form, (14, 9, 20, 11, 4 if n_classes else 2))
    if n_classes:
        y = y > 1 if n_classes == 2 else y
        y[task == 3] = y[0]
        y[np.flatnonzero(task == 3)[0]] = not y[0] if n_classes == 2 else (y[0] + 1) % 3
    table, y = np.column_stack([task, X])[::-1].copy(), y[::-1]  # not sorted
    model = cls(GRID["alpha"], cv=3, tol=1e-9, task_feature=0).fit(table, y)
    search = GridSearchCV(
        single(epsilon=None, tol=1e-9, task_feature=0),
        GRID,
        cv=TaskStratifiedKFold(3, task_feature=0),
        scoring="neg_log_loss" if n_classes else "neg_mean_squared_error",
    ).fit(table, y)
    expected = [search.cv_results_[f"split{k}_test_score"] for k in range(3)]
    found = model.log_loss_path_ if n_classes else model.mse_path_
    np.testing.assert_allclose(found, -np.array(expected).T, rtol=rtol)
    assert model.alpha_ == search.best_params_["alpha"]
    np.testing.assert_allclose(model.coef_, search.best_estimator_.coef_, atol=rtol)
    assert model.dual_gap_ <= 1e-9 * model.objective_
    assert model.predict(table[:2]).shape == (2,)


@pytest.mark.parametrize("penalty", ["trace", "l21"])
def test_paths_through_squared_models_end_where_single_fits_do(penalty, monkeypatch):
    """Collinear columns: splitting takes long, and the path goes on with models of the loss."""
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((240, 5)), np.repeat(np.arange(8), 30)
    X = X[:, :1] + 0.1 * X
    y = (X @ rng.standard_normal(5) * 3 + rng.logistic(size=240) > 0).astype(int)
    used, inner = [], LogisticLoss.model
    monkeypatch.setattr(LogisticLoss, "model", lambda *args: used.append(1) or inner(*args))
    settings = {"penalty": penalty, "loss": "logistic", "n_alphas": 8, "tol": 1e-9}
    found = mtl_path(X, y, task, **settings).coefs
    assert used
    monkeypatch.setattr(LogisticLoss, "has_models", False)
    plain_path = mtl_path(X, y, task, **settings).coefs
    np.testing.assert_allclose(found, plain_path, atol=1e-4 * np.abs(found).max())


def test_forms_of_input():
    """The same folds of the same rows: long, shuffled, a mapping, CSR; wide and unfolded."""
    X, y, task = rows()
    fold = np.arange(len(X)) % 3
    settings = {"n_alphas": 4, "eps": 0.05, "tol": 1e-11}
    expected = MPMTLLowRankCV(cv=PredefinedSplit(fold), **settings).fit(X, y, task=task)
    order = np.random.default_rng(0).permutation(len(X))
    parts = {k: X[task == k] for k in range(5)}, {k: y[task == k] for k in range(5)}
    for folds, given in (
        (fold[order], (X[order], y[order], task[order])),
        (fold, parts),
        (fold, (sparse.csr_matrix(X), y, task)),
    ):
        model = MPMTLLowRankCV(cv=PredefinedSplit(folds), **settings).fit(*given)
        np.testing.assert_allclose(model.mse_path_, expected.mse_path_, rtol=1e-5)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    assert stack_tasks(*parts)[0].shape == X.shape

    Y = np.random.default_rng(1).standard_normal((30, 4)) + X[:30, :1]
    Y[::4, 1] = Y[3, 0] = np.nan
    fold, (column, row) = np.arange(30) % 5, np.nonzero(~np.isnan(Y.T))
    wide = MPMTLGroupSparseCV(cv=PredefinedSplit(fold), **settings).fit(X[:30], Y)
    long = MPMTLGroupSparseCV(cv=PredefinedSplit(fold[row]), **settings)
    long.fit(X[row], Y[row, column], task=column)
    np.testing.assert_allclose(wide.mse_path_, long.mse_path_, rtol=1e-5)
    assert wide.mse_path_.shape == (4, 5)


@pytest.mark.parametrize("unseen", ["error", "mean"])
def test_tasks_without_rows_to_train_on(unseen):
    X, y, task = rows()
    model = MPMTLLowRankCV([0.1], cv=LeaveOneGroupOut(), tol=1e-9, unseen_task=unseen)
    model.fit(X, y, task=task)
    for k in range(5):
        single = MPMTLLowRank(0.1, epsilon=None, tol=1e-9).fit(
            X[task != k], y[task != k], task=task[task != k]
        )
        w = single.mean_coef_ if unseen == "mean" else np.zeros(5)
        error = np.mean((y[task == k] - X[task == k] @ w - single.mean_intercept_) ** 2)
        assert model.mse_path_[0, k] == pytest.approx(error, rel=1e-5)


def test_a_budget_is_refused_with_a_way_out():
    for name in ("epsilon", "delta"):
        with pytest.raises(TypeError, match="have no alpha to choose"):
            MPMTLLowRankCV(**{name: 1.0})
    with pytest.raises(ValueError, match="Invalid parameter 'epsilon'"):
        MPMTLGroupSparseCV().set_params(epsilon=1.0)
    X, y, task = rows()
    with pytest.raises((TypeError, ValueError), match="MPMTLLowRankCV"):
        PrivateSearch(MPMTLLowRankCV(), {"eps": [0.1, 0.2]}, n_trials=2).fit(X, y, task=task)
    model = MPMTLLowRankCV(n_alphas=2, cv=2).fit(X, y, task=task)
    assert model.privacy_.guarantee == "none"
    with pytest.raises(ValueError, match="MPMTLLowRankCV has no billboard"):
        save_billboard(model, "nowhere")
    with pytest.raises(ValueError, match="'MPMTLLowRank'"):
        MPMTLLowRankCV.from_billboard(model.billboard_)
