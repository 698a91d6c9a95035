"""Scales and centres of columns: what is found of them, and what models make of it."""

import numpy as np
import pytest

from skpmtl import PrivateMTL
from skpmtl.course import queries
from skpmtl.course.curator import Loop
from skpmtl.course.personal import TaskModels
from skpmtl.course.plan import EQUAL, HierarchicalPlan
from skpmtl.course.shapes import read_scales
from skpmtl.tables.forms import read_training
from tests.helpers.sites import drive

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.privacy.report.PrivacyLeakWarning")


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_one_column_of_another_unit_leaves_the_others(noise):
    """Scales of all columns are found, as far apart as they are; what is not clear is shrunk."""
    found, variance = read_scales(np.array([20.0, 0.1, -0.1, 0.0, 0.1]), noise)
    np.testing.assert_allclose(found, [20.0, 0.0, 0.0, 0.0, 0.0], atol=0.4)
    assert variance.sum() <= 0.2


def test_no_column_takes_the_ball_of_the_others():
    """A mean that is 10,000 scales off leaves three quarters of the length of a near one."""
    rng = np.random.default_rng(0)
    X, y, task = rng.normal(size=(200, 4)) + 1.0, rng.normal(size=200), np.repeat(np.arange(4), 50)
    question = queries.ColumnUnits(np.ones(4), np.zeros(4), reach=8.0, of_means=True)
    sent = []
    for far in (0.0, 1e4):
        tasks = TaskModels(read_training(PrivateMTL(), X + [far, 0.0, 0.0, 0.0], y, task)[0])
        sent.append(question.bounded(question.answer(tasks, None)))
    assert (np.abs(sent[1][:, 1:]) > 0.75 * np.abs(sent[0][:, 1:])).all()


def test_answers_are_cut_at_what_is_unknown_of_equal_slopes():
    """Where answers say that columns are as they seemed, the later ones at a scale and a bit."""
    plan = HierarchicalPlan(10.0, 1e-5, "replace-one", 3000, 4, loss="poisson")
    plan.structures = (EQUAL,)
    _, asked, _ = drive(Loop(plan).find_columns(0.1), lambda *query: np.zeros(4))
    first, *_, last = (query.public["reach"] for query in asked)
    assert first > 3.0 and 1.0 <= last < 1.2


@pytest.mark.parametrize(("unit", "origin"), [(1e6, 0.0), (50.0, 0.0), (1e5, 1500.0)])
def test_mean_slopes_do_not_depend_on_a_unit_or_an_origin(unit, origin):
    rng = np.random.default_rng(3)
    task = np.repeat(np.arange(300), 8)
    X, slopes = rng.normal(size=(2400, 5)), np.array([3.0, 0.6, 2.0, -5.0, 2.5])
    y = X @ slopes + rng.normal(size=300)[task] + 1.7 * rng.normal(size=2400)
    moved = (X + origin * np.eye(5)[0]) * [unit, 1.0, 1.0, 1.0, 1.0]
    est = PrivateMTL(epsilon=8.0, tasks=range(300), unseen_task="mean", random_state=0)
    coef = est.fit(moved, y, task=task).mean_coef_ * [unit, 1.0, 1.0, 1.0, 1.0]
    assert np.linalg.norm(coef - slopes) < 0.1 * np.linalg.norm(slopes)


@pytest.mark.parametrize(("unit", "origin"), [(1e-4, 0.0), (30.0, 1e5)])
def test_columns_of_tasks_have_no_unit_without_a_budget(unit, origin):
    """A column that varies between tasks alone, such as the size of a school."""
    rng = np.random.default_rng(0)
    task, size = np.repeat(np.arange(60), 4), rng.normal(size=60)
    x = rng.normal(size=240)
    y = x + 1.5 * size[task] + 0.5 * rng.normal(size=60)[task] + rng.normal(size=240)
    est = PrivateMTL(epsilon=None, tasks=range(60))
    models = []
    for column in (size, unit * size + origin):
        X = np.column_stack([x, column[task]])
        models.append(est.fit(X, y, task=task).predict(X + [1.0, 0.0], task=task))
    np.testing.assert_allclose(models[1], models[0], atol=0.02)


def test_slopes_of_columns_constant_within_tasks_are_found():
    """All that tasks know of them are their levels. 24 draws had errors of .20 to .41 of the
    variance, .23 on average, and of .9 where levels told nothing."""
    rng, task = np.random.default_rng(1), np.repeat(np.arange(300), 4)
    X = np.c_[rng.normal(size=(1200, 2)), rng.normal(size=(300, 2))[task]]
    y = X @ [0.5, -0.3, 1.0, -0.7] + 0.4 * rng.normal(size=300)[task] + 0.6 * rng.normal(size=1200)
    fit = task < 200
    est = PrivateMTL(epsilon=30.0, tasks=range(200), unseen_task="mean").fit(
        X[fit], y[fit], task=task[fit]
    )
    error = np.mean((est.predict(X[~fit], task=task[~fit]) - y[~fit]) ** 2)
    assert error < 0.6 * y[~fit].var()
