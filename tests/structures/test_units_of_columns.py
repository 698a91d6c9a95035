"""Fits do not depend on units of columns, on last bits, or on how few rows a task has."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from skpmtl import (
    MPMTLLowRank,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.datasets import load_school

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
UNITS = 2.0 ** np.array([9.0, -7.0, 0.0, 12.0])


def tasks(m=60, n=12, seed=0, units=UNITS):
    """Models around a mean, of columns of these units."""
    rng = np.random.default_rng(seed)
    d, task = len(units), np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d))
    W = 1.0 + 0.3 * rng.normal(size=(m, d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m)[task] + rng.normal(size=m * n)
    return X * units, y, task


@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMeanRegMTL])
@pytest.mark.parametrize("epsilon", [None, 1e4])
def test_fits_do_not_depend_on_the_units_of_columns(cls, epsilon):
    """Powers of two, which are no rounding: the same models in other units."""
    X, y, task = tasks()
    given = {"epsilon": epsilon, "random_state": 0, "tasks": range(60), "uncertainty": True}
    est = cls(**given).fit(X, y, task=task)
    assert np.abs(np.log2(est.billboard_.column_scale / UNITS)).max() <= 1.0
    other = 2.0 ** np.array([-3.0, 6.0, 2.0, 0.0])
    moved = cls(**given).fit(X * other, y, task=task)
    assert_allclose(moved.coef_ * other, est.coef_, rtol=1e-9)
    assert_allclose(moved.intercept_, est.intercept_, rtol=1e-9, atol=1e-9)
    by = np.append(other, 1.0)
    assert_allclose(moved.covariance_ * by[:, None] * by, est.covariance_, rtol=1e-7)
    again = est.personalize(X, y, task=task)
    assert_allclose(again.coef_, est.coef_, rtol=1e-9)


@pytest.mark.parametrize("cls", [PrivateMTLClassifier, PrivateMeanRegMTLClassifier])
def test_models_of_classes_do_not_depend_on_units_either(cls):
    """Without a budget, with which the scales of columns would have to be paid for."""
    X, y, task = tasks()
    y, other = y > 0, 2.0 ** np.array([-3.0, 6.0, 2.0, 0.0])
    est, moved = (cls(epsilon=None).fit(X * by, y, task=task) for by in (1.0, other))
    assert np.abs(np.log2(est.billboard_.column_scale / UNITS)).max() <= 1.0
    by = np.append(other, 1.0)
    assert_allclose(moved.coef_ * other, est.coef_, rtol=1e-6, atol=1e-12)
    assert_allclose(moved.posterior_shift_ * by, est.posterior_shift_, rtol=1e-6, atol=1e-9)
    assert_allclose(moved.covariance_ * by[:, None] * by, est.covariance_, rtol=1e-6, atol=1e-12)
    plain = cls(epsilon=None).fit(X / UNITS, y, task=task)  # whose columns are of one unit
    p, q = plain.predict_proba(X / UNITS, task=task), est.predict_proba(X, task=task)
    assert np.abs(p - q).mean() < 0.03
    again = est.personalize(X, y, task=task)
    assert_allclose(again.predict_proba(X, task=task), q, rtol=1e-6)


def test_models_are_those_of_scaled_columns(tmp_path):
    """In their own units: what a fit of scaled columns says, also of new tasks and from a file."""
    X, y, task = tasks()
    given = {"epsilon": 1e4, "random_state": 0, "tasks": range(60), "unseen_task": "mean"}
    est = PrivateMTL(**given).fit(X, y, task=task)
    assert "of their own" in est.privacy_.notes["scales of columns"]
    level = est.billboard_.level
    assert_allclose(est.mean_coef_, level.coef / est.billboard_.column_scale, rtol=1e-12)
    assert np.mean((y - est.predict(X, task=task)) ** 2) < 1.2
    assert np.mean((y - est.predict(X, task=task + 100)) ** 2) < 4.0
    save_billboard(est, tmp_path / "found.npz")
    loaded, few = load_billboard(tmp_path / "found.npz"), task < 3
    one, two = (e.personalize(X[few], y[few], task=task[few] + 500) for e in (est, loaded))
    assert_allclose(one.coef_[-3:], two.coef_[-3:], rtol=1e-12)


def test_columns_of_one_unit_are_left_alone():
    X, y, task = tasks(units=np.ones(4))
    est = PrivateMTL(epsilon=1e3, random_state=0, tasks=range(60)).fit(X, y, task=task)
    assert est.billboard_.column_scale is None
    assert "as they come" in est.privacy_.notes["scales of columns"]


@pytest.mark.parametrize("cls", [PrivateMTLClassifier, PrivateMeanRegMTLClassifier])
def test_few_rows_do_not_stretch_the_pooled_model_of_classes(cls):
    """Classes of four rows are separable: minima about a model go far from it, and did so on
    average, to slopes twice as long."""
    rng, m, slopes = np.random.default_rng(0), 400, np.array([1.0, -0.6, 0.0, 0.4])
    task, X = np.repeat(np.arange(m), 4), rng.normal(size=(4 * m, 4))
    y = rng.uniform(size=4 * m) < expit(X @ slopes + 0.5 * rng.normal(size=m)[task])
    level = cls(epsilon=None).fit(X, y, task=task).billboard_.level
    assert np.linalg.norm(level.coef - slopes) < 0.5 * np.linalg.norm(slopes)
    assert level.spread < 0.7


@pytest.mark.parametrize("cls", [PrivateMTL, MPMTLLowRank])
def test_exact_models_do_not_depend_on_last_bits(cls):
    """On School the votes give further directions almost no weight."""
    rng, school = np.random.default_rng(0), load_school()
    y = school.target * (1.0 + 2e-16 * rng.standard_normal(len(school.target)))
    one, other = (cls(epsilon=None).fit(school.data, t, school.task) for t in (school.target, y))
    assert_allclose(one.coef_, other.coef_, atol=1e-6 * np.abs(one.coef_).max())
