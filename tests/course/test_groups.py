"""Unknown groups of tasks with similar slopes."""

import numpy as np
import pytest

from skpmtl import ClusteredMTL, PrivateMTL

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


def rows_of(rng, W, n):
    """Rows of tasks with these slopes and levels of their own. -> X, scores, task"""
    task = np.repeat(np.arange(len(W)), n)
    X = rng.normal(size=(len(task), W.shape[1]))
    return X, np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=len(W))[task], task


def test_groups_are_found_without_a_budget():
    """Of a table whose three centres are nearly on one line."""
    rng = np.random.default_rng(2)
    group = np.arange(600) % 3
    W = rng.normal(size=(3, 8))[group] + 0.1 * rng.normal(size=(600, 8))
    X, y, task = rows_of(rng, W, 10)
    y = y + 0.5 * rng.normal(size=len(y))
    est = ClusteredMTL(3, epsilon=None, tasks=range(600)).fit(X, y, task=task)
    label = est.membership_.argmax(axis=1)
    named = [np.bincount(group[label == k]).argmax() for k in range(3)]
    assert sorted(named) == [0, 1, 2]
    assert np.mean(np.array([*named, -1])[label] == group) > 0.95  # label 3: of no group
    np.testing.assert_allclose(est.groups_["counts"], 200, atol=20)


@pytest.mark.parametrize("epsilon", [None, 10.0])
def test_looking_for_groups_costs_little_where_none_are(epsilon):
    ratios = []
    for seed in range(3):
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
