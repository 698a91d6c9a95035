"""relation= in every family: tasks that come later, files, and tasks in several places."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skpmtl import (
    DPMetaInit,
    DPMetaInitClassifier,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    PrivateMeanRegMTL,
    PrivateMTL,
    load_billboard,
    save_billboard,
)
from skpmtl.shards import fit_shards
from tests.helpers.data import covariates, related
from tests.helpers.sites import Sites, assert_same_fit, write_parts

M, N, D = 40, 10, 4
pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
EXACT = {"alpha": 0.03, "epsilon": None, "tol": 1e-9}
RANGES = {"epsilon": 1e4, "feature_range": (-3.0, 4.0)}
START = {"coef": [1.0, 0.0, -1.0, 0.0], "intercept": 0.3}
LOOP = [
    PrivateMTL(epsilon=1e3, target_range=(-20.0, 30.0)),
    PrivateMTL(epsilon=None, init=START),
    PrivateMeanRegMTL(epsilon=60.0, uncertainty=True),
    MPMTLLowRank(epsilon=1e4, curator=("servers", 2)),
]
OTHERS = [
    MPMTLLowRank(init=START, **EXACT),
    MPMTLGroupSparseClassifier(**EXACT),
    DPMetaInit(target_range=(-9.0, 13.0), **RANGES),
    DPMetaInitClassifier(**RANGES),
]


def table():
    X, y, task, Z, *_ = related(np.random.default_rng(4), M + 2, N, D, binary=True, level=2.0)
    return X, y, task, Z


@pytest.mark.parametrize("est", [*LOOP, *OTHERS], ids=repr)
def test_tasks_without_rows_follow_from_their_covariates(est, tmp_path):
    """Those that are listed, those that come later, here and where a file has been read."""
    X, y, task, Z = table()
    labels = "Classifier" in type(est).__name__
    y = y > 2.0 if labels else y
    old = task < M
    given = {"tasks": range(M), "unseen_task": "mean", "random_state": 0}
    given |= {"classes": [False, True]} if labels else {}
    est = clone(est).set_params(relation=covariates(Z[:M]), **given)
    listed = clone(est).set_params(relation=covariates(Z), tasks=range(M + 2))
    est.fit(X[old], y[old], task=task[old])
    answer = "decision_function" if labels else "predict"
    with pytest.raises(ValueError, match=r"without covariates in relation=: \[40\].*relate"):
        getattr(est, answer)(X[:2], task=[M, M])
    with pytest.raises(ValueError, match="without covariates in relation="):
        est.personalize(X[~old], y[~old], task=task[~old])
    save_billboard(est, tmp_path / "board.npz")
    later = covariates(Z[M:], [M, M + 1])
    est.relate(later)
    F = np.column_stack([np.ones(2), Z[M:]])
    start = START if est.get_params().get("init") else {"coef": np.zeros(D), "intercept": 0.0}
    W, b = F @ est.relation_coef_ + start["coef"], F @ est.relation_intercept_ + start["intercept"]
    which = task[~old] - M
    told = np.einsum("ij,ij->i", X[~old], W[which]) + b[which]
    assert_allclose(getattr(est, answer)(X[~old], task=task[~old]), told)
    # From the file tasks of the fit have their models again, and new ones the same as here.
    there = load_billboard(tmp_path / "board.npz").relate(later)
    assert_allclose(there.relation_coef_, est.relation_coef_)
    there.personalize(X, y, task=task)
    close = {"atol": 1e-2 * np.abs(est.coef_).max()} if hasattr(est, "alpha") else {"rtol": 1e-7}
    assert_allclose(there.coef_[:M], est.coef_, **close)  # but for what holds the covariates
    est.personalize(X[~old], y[~old], task=task[~old])
    assert_allclose(there.coef_[M:], est.coef_[M:], rtol=1e-7)
    assert est.coef_.shape == (M + 2, D)
    # Those that were listed without rows.
    if est.epsilon is not None:
        listed.fit(X[old], y[old], task=task[old])
        assert_allclose(listed.coef_[M:], F @ listed.relation_coef_, rtol=1e-7)


@pytest.mark.parametrize("est", LOOP, ids=repr)
@pytest.mark.spread(2)
def test_places_of_tasks_do_not_change_a_fit(est, tmp_path):
    """Of one process, of sites that send sums or contributions, and of parts on the disk.

    Fits without a budget have no parts.
    """
    X, y, task, Z = table()
    est = clone(est).set_params(relation=covariates(Z), tasks=range(M + 2), random_state=0)
    whole = clone(est).fit(X, y, task=task)
    parts = [range(5), range(5, 30), range(30, M + 2)]
    close = {"rtol": 1e-8, "atol": 1e-9}
    if est.epsilon is not None:
        assert_same_fit(fit_shards(est, write_parts(tmp_path, X, y, task, parts)), whole, **close)
    for send in ("sums", "contributions"):
        board = Sites(clone(est), (X, y, task), parts, send).run()
        assert_allclose(board.related, whole.billboard_.related, **close)
