"""What uncertainty=True owes, for every estimator that has it with each option.

The posterior has the model as its mean, whatever the option; and it stays with the task.
"""

import logging
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import load_billboard, save_billboard
from skpmtl._uncertainty import POSTERIOR
from skpmtl.exchange.wire import pack
from skpmtl.shards import fit_shards
from tests.helpers import posteriors
from tests.helpers.cases import CASES, EXACT, arguments, every, fit, fitted, long_data, seeded
from tests.helpers.sites import write_parts


def has_posterior(case):
    if "uncertainty" not in case.estimator.get_params() or case.estimator.loss != "squared":
        return False
    if case.n_classes:  # see tests/test_probabilities.py
        return False
    return case.estimator._no_posterior() is None


HAVE = [case for case in CASES + EXACT if has_posterior(case)]


# One of every class, whose noise can be repeated.
PLAIN = {
    type(case.estimator): case
    for case in HAVE[::-1]
    if case.form == "long" and case.private and not case.needs and not case.unit
}.values()


def certain(case):
    return seeded(case).set_params(uncertainty=case.estimator.uncertainty or True)


@every(PLAIN)
def test_it_changes_neither_models_nor_what_is_published(case):
    plain, data = fitted(case)
    est = fit(certain(case), *arguments(case, data))
    assert_array_equal(est.coef_, plain.coef_)
    assert_array_equal(est.intercept_, plain.intercept_)
    assert pack(est.billboard_)[0] == pack(plain.billboard_)[0]  # with the report
    assert np.isfinite(est.covariance_).all() and (est.noise_variance_ > 0).all()
    values = np.linalg.eigvalsh(est.covariance_)
    assert values.min() >= -1e-12 * values.max()


@every(PLAIN)
def test_it_goes_through_files_and_pickles(case, tmp_path):
    data = long_data()
    est = fit(certain(case), *arguments(case, data))
    save_billboard(est, tmp_path / "board.npz")
    there = load_billboard(tmp_path / "board.npz")
    assert not there.uncertainty and not set(POSTERIOR) & set(vars(there))
    X, y, task = data
    there.set_params(uncertainty=True).personalize(X, y, task=task)
    again = pickle.loads(pickle.dumps(est)).personalize(X + 1.0, y, task=task + 20)
    for name in POSTERIOR:
        assert_allclose(getattr(there, name), getattr(est, name), rtol=1e-5)
        assert_array_equal(getattr(again, name)[: len(est.tasks_)], getattr(est, name))
        assert len(getattr(again, name)) == 2 * len(est.tasks_)
    own, x = est.export_task(3), np.append(X[0], 1.0)
    variance = x @ own["covariance"] @ x + own["noise_variance"]
    assert est.predict(X[:1], task=[3], return_std=True)[1] ** 2 == pytest.approx(variance)


@every(PLAIN)
@pytest.mark.spread(3)
def test_covariances_leave_nowhere(case, tmp_path, caplog, capsys):
    """Who has all that is published, printed, logged, or kept for a restart finds no number of a
    posterior in it, as text or as bytes."""
    data, est = long_data(), certain(case).set_params(verbose=1)
    with caplog.at_level(logging.DEBUG):
        X, y, task = data
        parts = write_parts(tmp_path, np.asfortranarray(X), y, task, [[1, 4], [0, 2, 3, 5]])
        own = fit_shards(est, parts, journal=tmp_path / "journal")
        fit(est, *arguments(case, data))
    public = est.export_billboard()
    save_billboard(est, tmp_path / "board.npz")
    text = [repr(est), str(est.privacy_), repr(est.privacy_), repr(public), caplog.text]
    text = "\n".join([*text, *capsys.readouterr(), est.privacy_.to_json()])
    files = [path for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    assert files
    binary = [pickle.dumps(public), (tmp_path / "board.npz").read_bytes()]
    binary += [path.read_bytes() for path in files]
    for path in [tmp_path / "board.npz", *files]:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                binary += [arrays[name].tobytes() for name in arrays.files]
                assert not {name.strip("_") for name in arrays.files} & set(POSTERIOR)
    binary, secrets = b"\n".join(binary), 0
    for fitted_est in (est, own):
        # Where they are kept they are found in this way.
        assert fitted_est.covariance_.max().tobytes() in pickle.dumps(fitted_est)
        secrets += posteriors.search(fitted_est, text, binary)
    assert secrets > 10
