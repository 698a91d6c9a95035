"""A method that nothing knows is fitted and federated like others; the contract does the rest."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

from skpmtl import MPMTLLowRank, save_billboard
from skpmtl.exchange.journal import Journal
from skpmtl.exchange.protocol import run
from skpmtl.exchange.wire import pack, unpack
from skpmtl.federated import load_models
from skpmtl.federated.site import Refusal, Site
from skpmtl.federated.study import Study
from tests.helpers.data import even_tasks
from tests.helpers.dummy_method import PrivateRidge

M, N, D, ALPHA = 9, 8, 3, 0.3
PARTS = ([1, 4, 6], [0, 2, 8], [3, 5, 7])
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


class Sites:
    """What a curator hears of sites that send contributions."""

    def __init__(self, sites, journal):
        self.sites, self.journal = sites, journal

    def answer(self, query):
        name = query.statistic
        shapes = self.sites[0].est._query_specs(self.sites[0].population)[name].shapes
        given = {key: np.full((M, *shape), np.nan) for key, shape in shapes.items()}
        for site in self.sites:
            found = site.answer(self.journal.place, name, query.public, site.positions, "run")
            for key in shapes:
                given[key][site.positions] = found[key]
        return query.combine(given, np.arange(M))


def test_sites(rows, tmp_path):
    X, y, task = rows
    settings = {"alpha": ALPHA, "epsilon": 5.0}
    study = Study("dummy", "PrivateRidge", list(range(M)), D, settings, seed=3)
    mine = [np.isin(task, tasks) for tasks in PARTS]
    sites = [
        Site(study, (X[own], y[own], task[own]), tmp_path / str(k)) for k, own in enumerate(mine)
    ]
    est = study.build()
    source = est._source()
    with Journal(tmp_path / "journal", {"study": study.text}) as journal:
        curator = est._curator(study.population(), source)
        billboard = run(curator, Sites(sites, journal), source, journal)
    whole = estimator().fit(X, y, task=task)
    assert_allclose(billboard.releases[0], whole.billboard_.releases[0], rtol=1e-12)
    for site, tasks, own in zip(sites, PARTS, mine, strict=True):
        site.publish(unpack(*pack(billboard)))
        early = Site(study, (X[own], y[own], task[own]), tmp_path / f"early {tasks[0]}")
        assert_allclose(load_models(site.folder).coef_, whole.coef_[tasks], rtol=1e-12)
        for name, public, message in (
            ("model", {"clip_norm": 9.0}, "clip_norm=9.0 is not that of the study"),
            ("rows", {}, "releases no rows"),
        ):
            with pytest.raises(Refusal, match=message):
                early.answer(0, name, public, early.positions, "run")
