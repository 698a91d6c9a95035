"""Fits of networks that were cut off."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skpmtl.networks import TorchMeanRegRegressor, TorchMetaInitRegressor
from tests.networks import nets

pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
pytestmark = pytest.mark.filterwarnings("ignore:The noise of")
TASK = np.repeat(range(5), 8)
X = np.random.default_rng(0).standard_normal((40, 3))
Y = X @ [1.0, -1.0, 0.5] + 0.1 * TASK
CASES = {
    "prox": (TorchMeanRegRegressor, {"n_rounds": 4, "local_steps": 2, "personal_steps": 2}),
    "local": (TorchMeanRegRegressor, {"n_rounds": 4, "local_steps": 2, "local": "2.*"}),
    "meta": (TorchMetaInitRegressor, {"tasks_per_round": 2, "inner_steps": 2, "refine_steps": 2}),
}


def estimator(name):
    cls, settings = CASES[name]
    return cls(nets.mlp, tasks=range(6), random_state=3, **settings)


def interrupted(monkeypatch, est, after, **given):
    """A fit that is cut off at its release number `after`; -> whether it was."""
    from skpmtl.exchange import journal

    keep = journal.Journal.keep

    def dying(self, reply, source):
        if self.place == after:
            raise KeyboardInterrupt
        keep(self, reply, source)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(journal.Journal, "keep", dying)
        est.fit(X, Y, task=TASK, **given)


@pytest.mark.parametrize("name", list(CASES))
def test_a_fit_that_was_cut_off_goes_on(monkeypatch, tmp_path, name):
    whole = estimator(name).fit(X, Y, task=TASK, journal=tmp_path / "whole")
    n_replies = len(list((tmp_path / "whole").glob("*.npz")))
    assert n_replies >= 2
    est = estimator(name).fit(X, 2.0 * Y, task=TASK)
    first = est.coef_.copy()
    interrupted(monkeypatch, est, n_replies - 1, journal=tmp_path / "cut")
    assert_array_equal(est.coef_, first)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "cut").glob("*.npz")}
    assert len(kept) == n_replies - 1
    est.fit(X, Y, task=TASK, journal=tmp_path / "cut")
    for path in (tmp_path / "cut").glob("*.npz"):
        assert kept.get(path.name, path.read_bytes()) == path.read_bytes()
    assert_array_equal(est.coef_, whole.coef_)
    assert est.privacy_.epsilon == whole.privacy_.epsilon


def test_a_journal_is_of_one_module(tmp_path):
    estimator("prox").fit(X, Y, task=TASK, journal=tmp_path)
    other = estimator("prox").set_params(module__width=5)
    with pytest.raises(ValueError, match="another run"):
        other.fit(X, Y, task=TASK, journal=tmp_path)
