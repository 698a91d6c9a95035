"""Scales of columns: votes, histograms, and fits that do not depend on the units of columns."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skpmtl import (
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.engine.columns import (
    octaves_of_columns,
    scales_of,
    sum_of_columns,
    votes_on_columns,
)
from skpmtl.engine.levels import OCTAVES, TaskLevels
from skpmtl.tables.table import TaskTable, scaled

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
UNITS = 2.0 ** np.array([9.0, -7.0, 0.0, 12.0])


def table_of(X, sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return TaskTable(X, np.zeros(len(X)), offsets, np.arange(len(sizes)))


def tasks(m=60, n=12, seed=0, units=UNITS):
    """Models around a mean, of columns of these units."""
    rng = np.random.default_rng(seed)
    d, task = len(units), np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d))
    W = 1.0 + 0.3 * rng.normal(size=(m, d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m)[task] + rng.normal(size=m * n)
    return X * units, y, task


def test_tasks_say_what_their_own_columns_say():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(46, 4)) * UNITS
    X[20:40] = rng.normal(size=(20, 4))  # of one unit
    X[41:, 1:] = 7.0  # one column varies: nothing to compare
    levels = TaskLevels(table_of(X, [20, 20, 1, 5]))
    assert_array_equal(votes_on_columns(levels)[:, 0], [0.5, -0.5, 0.0, 0.0])
    found = octaves_of_columns(levels)
    std = X[:20].std(axis=0)
    assert_array_equal(found[0], 2.0 ** np.floor(np.log2(std)))
    assert np.isnan(found[2]).all()  # of a single row
    assert_array_equal(found[3, 1:], np.full(3, 4.0))  # the octave of 7
    assert_array_equal(
        octaves_of_columns(TaskLevels(table_of(np.zeros((3, 2)), [3]))), [[np.nan] * 2]
    )


def test_few_rows_do_not_make_columns_differ():
    """Standard deviations of two rows differ by chance, which is taken away."""
    X = np.random.default_rng(1).normal(size=(2000, 6))
    assert votes_on_columns(TaskLevels(table_of(X, [2] * 1000))).mean() < -0.2


def test_a_contribution_is_bounded_and_sensitivities_are_reached():
    one, other = np.array([1.0, 4.0, 1e-3]), np.array([2.0, 1.0, 1e3])

    def total(sent):
        return sum_of_columns({"octaves": np.array([sent])})["octaves"]

    assert np.linalg.norm(total(one) - total(other)) == pytest.approx(np.sqrt(2.0 * 3), rel=1e-12)
    assert np.linalg.norm(total(one)) == pytest.approx(np.sqrt(3.0), rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(100):
        sent = rng.normal(size=3) * 10.0 ** rng.uniform(-300, 300, size=3)
        sent[rng.uniform(size=3) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        assert total(sent).max() <= 1.0 and np.linalg.norm(total(sent)) <= np.sqrt(3.0)


@pytest.mark.parametrize("std", [0.0, 6.0])
def test_scales_are_found_in_noise(std):
    rng, m = np.random.default_rng(2), 100
    sent = UNITS * np.exp(0.2 * rng.normal(size=(m, 4)))
    counts = sum_of_columns({"octaves": sent})["octaves"]
    counts = counts + std * rng.normal(size=counts.shape)
    found = scales_of(counts, std, m)
    assert np.abs(np.log2(found / UNITS)).max() <= 1.0
    h = counts.reshape(4, OCTAVES)
    h[1] = 0.0  # no task has this column: it gets the scale of the others
    assert scales_of(h.ravel(), std, m)[1] == pytest.approx(np.median(found[[0, 2, 3]]))


def test_columns_that_no_task_has_get_no_small_scale():
    """There is a largest bin in noise, too. Of School, whose rows were of length 1, fits at epsilon
    10 had errors of 1e10: a few tasks had such a column, and coefficients over a scale of 1e-9."""
    rng, m, d, std = np.random.default_rng(4), 140, 28, 7.0
    sent = np.exp2(rng.integers(-3, 3, size=d) + 0.2 * rng.normal(size=(m, d)))
    sent[:, d // 2 :], small = np.nan, 0
    counts = sum_of_columns({"octaves": sent})["octaves"]
    for _ in range(100):
        scales = scales_of(counts + std * rng.normal(size=counts.shape), std, m)
        assert np.abs(np.log2(scales[: d // 2] / np.median(sent[:, : d // 2], axis=0))).max() <= 1.5
        small += scales.min() < 2.0**-10
    assert small <= 2


def test_nothing_is_scaled_where_no_column_is_clear():
    noise = 100.0 * np.random.default_rng(3).normal(size=4 * OCTAVES)
    assert scales_of(noise, 100.0, 100) is None


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


def test_rows_are_scaled_in_every_form():
    X = np.random.default_rng(0).normal(size=(5, 4)) * UNITS
    table = table_of(X, [2, 3])
    assert scaled(table, None) is table
    thin = scaled(replace(table, X=sparse.csr_matrix(X.astype(np.float32))), UNITS)
    assert thin.X.dtype == np.float32 and sparse.issparse(thin.X)
    assert_allclose(thin.X.toarray(), X / UNITS, rtol=1e-6)
