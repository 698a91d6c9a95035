"""Unknown groups of tasks with similar slopes."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import (
    ClusteredMTL,
    ClusteredMTLClassifier,
    PrivateMTL,
    load_billboard,
    save_billboard,
)
from skpmtl.course import groups
from skpmtl.course.curator import Loop
from skpmtl.course.plan import HierarchicalPlan
from skpmtl.exchange.wire import pack, unpack
from tests.helpers.sites import drive

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


def rows_of(rng, W, n):
    """Rows of tasks with these slopes and levels of their own. -> X, scores, task"""
    task = np.repeat(np.arange(len(W)), n)
    X = rng.normal(size=(len(task), W.shape[1]))
    return X, np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=len(W))[task], task


def test_groups_are_found_without_a_budget():
    """Of a table whose three centres are nearly on one line."""
    rng = np.random.default_rng(2)
    group = np.arange(300) % 3
    W = rng.normal(size=(3, 8))[group] + 0.1 * rng.normal(size=(300, 8))
    X, y, task = rows_of(rng, W, 10)
    y = y + 0.5 * rng.normal(size=len(y))
    est = ClusteredMTL(3, epsilon=None, tasks=range(300)).fit(X, y, task=task)
    label = est.membership_.argmax(axis=1)
    named = [np.bincount(group[label == k]).argmax() for k in range(3)]
    assert sorted(named) == [0, 1, 2]
    assert np.mean(np.array([*named, -1])[label] == group) > 0.95  # label 3: of no group
    np.testing.assert_allclose(est.groups_["counts"], 100, atol=10)


@pytest.mark.parametrize("epsilon", [None, 10.0])
def test_looking_for_groups_costs_little_where_none_are(epsilon):
    ratios = []
    for seed in range(2):
        rng = np.random.default_rng(50 + seed)
        X, s, task = rows_of(rng, rng.normal(size=4) + 0.5 * rng.normal(size=(300, 4)), 12)
        y, seen = s + rng.normal(size=len(s)), np.tile(np.arange(12) < 6, 300)
        errors = []
        for structure in ("auto", "groups"):
            est = PrivateMTL(structure, epsilon=epsilon, tasks=range(300), random_state=0)
            est.fit(X[seen], y[seen], task=task[seen])
            found = est.predict(X[~seen], task=task[~seen])
            errors.append(np.mean((found - s[~seen]) ** 2))
        ratios.append(errors[1] / errors[0])
    assert np.mean(ratios) < 1.03


# ------------------------------------------------------------------------- under a budget
def test_no_groups_are_named_where_slopes_are_equal():
    """Draws in which the likelier of two lists has groups, by less than its noise."""
    named = 0
    for seed in (20, 24, 25):
        rng = np.random.default_rng(seed)
        mean = rng.normal(size=6)
        W = np.tile(1.5 * mean / np.linalg.norm(mean), (300, 1))
        X, y, task = rows_of(rng, W, 10)
        y = y + rng.normal(size=len(y))
        est = PrivateMTL("groups", epsilon=10.0, tasks=range(300), random_state=seed)
        named += est.fit(X, y, task=task).billboard_.groups is not None
    assert named <= 1


M, D, CENTRES = 200, 4, 3.0 * np.eye(3, 4)


def of_three(seed=2):
    """Tasks of 8 rows whose slopes are near one of three centres."""
    rng = np.random.default_rng(seed)
    return *rows_of(rng, CENTRES[np.arange(M) % 3] + 0.2 * rng.normal(size=(M, D)), 8), rng


def nearest(centres):
    """The true centre that is nearest to each released one, and -1 for tasks of no group."""
    return np.append(np.linalg.norm(centres[:, None] - CENTRES, axis=2).argmin(axis=1), -1)


@pytest.fixture(scope="module")
def three():
    X, y, task, _ = of_three()
    return PrivateMTL("groups", epsilon=30.0, tasks=range(M), random_state=0).fit(X, y, task=task)


def test_groups_are_found_and_named_by_their_tasks(three):
    found, own = three.groups_, three.membership_
    assert own.shape == (M, len(found["counts"]) + 1)
    assert_allclose(own.sum(axis=1), 1.0)
    assert np.mean(nearest(found["centres"])[own.argmax(axis=1)] == np.arange(M) % 3) > 0.95
    assert np.linalg.norm(found["centres"][:, None] - CENTRES, axis=2).min(axis=1).max() < 0.5
    assert found["counts"].sum() == pytest.approx(M, rel=0.25)


def test_new_tasks_find_their_groups_from_the_file_alone(three, tmp_path):
    save_billboard(three, tmp_path / "board")
    there, (X, y, task, _) = load_billboard(tmp_path / "board"), of_three(seed=3)
    there.personalize(X, y, task=task)
    named = nearest(there.groups_["centres"])[there.membership_.argmax(axis=1)]
    assert np.mean(named == np.arange(M) % 3) > 0.95


def test_membership_is_in_nothing_that_is_published(three):
    text, arrays = pack(three.billboard_)
    assert "membership" not in text + " ".join(arrays)
    assert all(np.shape(array)[:1] != (M,) for array in arrays.values())


@pytest.mark.parametrize(
    "change",
    [
        {"group_counts": np.ones(2)},
        {"groups": np.zeros((3, D + 1))},
        {"log_groups": np.zeros(3)},  # of more than all of the weight
        {"log_groups": None},
        {"group_counts": None},
        {"group_kappa": np.zeros(2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_crafted_groups_are_refused(change, three):
    board = copy.deepcopy(three.billboard_)
    unpack(*pack(board))
    vars(board).update(change)
    with pytest.raises(ValueError):
        unpack(*pack(board))


def test_groups_of_classes_are_found():
    rng, z = np.random.default_rng(0), np.arange(150) % 3
    X, s, task = rows_of(rng, 4.0 * np.eye(3, D)[z], 12)
    y = rng.uniform(size=len(s)) < 1.0 / (1.0 + np.exp(-s))
    est = ClusteredMTLClassifier(3, epsilon=60.0, classes=[False, True])
    est.set_params(tasks=range(150), random_state=0).fit(X, y, task=task)
    named = nearest(est.groups_["centres"])[est.membership_.argmax(axis=1)]
    assert np.mean(named == z) > 0.9


def test_noise_moves_no_centre_far():
    """Of groups that nobody is in, whose counts are noise around zero."""
    rng, d = np.random.default_rng(0), 5
    plan = HierarchicalPlan(3.0, 1e-5, "replace-one", 300, d)
    plan.n_groups = 6
    loop = Loop(plan)
    loop.update(unit=1.0, root=np.diag(np.sqrt([0.5, 0.3, 0.1, 0.05, 0.05])))
    kappa = float(np.exp(loop.model.log_kappa) @ loop.model.law.kappa)
    centres = []

    def release(query, name, mechanism):
        centres.append(query.public["centres"])
        return mechanism.noise_std * rng.normal(size=mechanism.shape)

    found, *_ = drive(groups.find(loop, 0.3), release)[0]
    assert len(found) == 0
    moved = np.linalg.norm(np.array(centres) - centres[0], axis=2).max()
    assert moved < 5.0 * np.sqrt(d * kappa)  # noise of a unit a round, in every column
