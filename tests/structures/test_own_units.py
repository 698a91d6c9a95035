"""Centres in units of each task, where targets of tasks have no common one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import (
    LocalOnly,
    PrivateMeanRegMTL,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from tests.helpers.data import rows_of

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, D = 40, 4
UNITS = 2.0 ** np.random.default_rng(5).integers(-14, 15, M)


def rows(of=0, n=8, units=UNITS):
    """Tasks around a mean, each in its unit. -> X, y, task"""
    rng = np.random.default_rng(0)
    W = np.array([1.0, -2.0, 0.5, 1.5]) + 0.3 * rng.normal(size=(M, D))
    X, y, task = rows_of(np.random.default_rng([0, of]), W, n, noise=1.0, level=rng.normal(size=M))
    return X, y * units[task], task


def fitted(cls, data=None, **options):
    X, y, task = rows() if data is None else data
    given = {"epsilon": 30.0, "tasks": range(M), "random_state": 0}
    return cls(**{**given, **options}).fit(X, y, task=task)


@pytest.fixture(scope="module", params=[PrivateMeanRegMTL, PrivateMTL])
def one(request):
    return fitted(request.param)


# ------------------------------------------------------------------------- of one task


# ------------------------------------------------------------------------------ of fits
def test_a_mean_is_found_in_units_of_each_task(one):
    X, y, task = rows(of=1)
    unit = UNITS[task]
    first = rows()
    alone = LocalOnly(tasks=range(M)).fit(*first[:2], task=first[2])
    error, other = (np.mean(((est.predict(X, task=task) - y) / unit) ** 2) for est in (one, alone))
    assert one.billboard_.own_units and one.billboard_.level is None
    assert error < 0.85 * other
    assert_array_equal(one.billboard_.centre, np.zeros(D))  # it has no length that all know
    report = " ".join(str(one.privacy_).split())
    assert "free: no window stood out" in report and "length of each task's own model" in report


def test_new_tasks_and_files_have_the_same_models(one, tmp_path):
    X, y, task = rows()
    save_billboard(one, tmp_path / "board")
    other = load_billboard(tmp_path / "board")
    assert other.billboard_.own_units
    unit = UNITS[:, None]
    other.personalize(X, y, task=task)
    assert_allclose(other.coef_ / unit, one.coef_ / unit, rtol=1e-6, atol=1e-9)
    assert_allclose(other.intercept_ / UNITS, one.intercept_ / UNITS, rtol=1e-6, atol=1e-9)


def test_targets_of_a_common_unit_keep_it():
    est = fitted(PrivateMeanRegMTL, rows(units=np.ones(M)))
    assert not est.billboard_.own_units and est.billboard_.level is not None


def test_intervals_are_about_centres_in_own_units():
    plain = fitted(PrivateMeanRegMTL, uncertainty=True)
    X, y, task = rows(of=2)
    mean, std = plain.predict(X, task=task, return_std=True)
    inside = np.abs(y - mean) <= 1.645 * std
    assert 0.84 <= inside.mean() <= 0.97


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_have_units_where_slopes_differ_much(n_classes):
    rng = np.random.default_rng(0)
    task, new = np.repeat(np.arange(M), 30), np.repeat(np.arange(M), 50)
    X, Z = rng.normal(size=(len(task), D)), rng.normal(size=(len(new), D))
    W = 2.0 * rng.normal(size=(D, n_classes))
    y, wanted = (np.argmax(A @ W + rng.gumbel(size=(len(A), n_classes)), axis=1) for A in (X, Z))
    settings = {"structure": "mean", "levels": "free", "epsilon": 300.0, "tasks": range(M)}
    settings |= {"random_state": 0}
    est = PrivateMTLClassifier(**settings, classes=range(n_classes), uncertainty=True)
    est.fit(X / UNITS[task, None], y, task=task)
    assert est.billboard_.own_units
    score = est.score(Z / UNITS[new, None], wanted, task=new)
    plain = PrivateMTLClassifier(**settings, classes=range(n_classes)).fit(X, y, task=task)
    assert score > plain.score(Z, wanted, task=new) - 0.02
    assert np.isfinite(est.predict_proba(Z / UNITS[new, None], task=new)).all()
