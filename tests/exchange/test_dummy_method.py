"""A method that nothing knows is fitted like others; the contract does the rest."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

from skpmtl import MPMTLLowRank, save_billboard
from tests.helpers.data import even_tasks
from tests.helpers.dummy_method import PrivateRidge

M, N, D, ALPHA = 9, 8, 3, 0.3
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def estimator(**params):
    return PrivateRidge(ALPHA, **{"epsilon": 5.0, "tasks": range(M), "random_state": 3, **params})


@pytest.fixture
def rows():
    return even_tasks(M, N, D)


def around(centre, X, y):
    """The model of one task, by scikit-learn."""
    ridge = Ridge(ALPHA * len(y), fit_intercept=False).fit(X, y - X @ centre)
    return centre + ridge.coef_


def test_fit(rows):
    X, y, task = rows
    est = estimator(unseen_task="mean").fit(X, y, task=task)
    (centre,) = est.billboard_.releases
    for k in range(M):
        assert_allclose(est.coef_[k], around(centre, X[task == k], y[task == k]), rtol=1e-9)
    # The release is the mean of the clipped models, up to the noise that is stated.
    alone = np.array([around(np.zeros(D), X[task == k], y[task == k]) for k in range(M)])
    alone /= np.maximum(np.linalg.norm(alone, axis=1), 1.0)[:, None]
    assert 0 < np.abs(centre - alone.mean(axis=0)).max() < 5 * est.privacy_.noise_std[0]
    assert_allclose(est.predict(X, task=np.full(len(X), M)), X @ centre, rtol=1e-12)
    assert est._planned_report(est._population_) == est.privacy_


def test_other_billboards_are_refused(rows, tmp_path):
    X, y, task = rows
    est = estimator().fit(X, y, task=task)
    with pytest.raises(ValueError, match=r"RidgeBillboard; \['PrivateRidge'\] are made for it"):
        MPMTLLowRank.from_billboard(est.billboard_)
    est.billboard_.releases = [np.ones(D), np.ones(D)]
    with pytest.raises(ValueError, match="This billboard cannot be read"):
        save_billboard(est, tmp_path / "board.npz")
