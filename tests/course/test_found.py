"""What a report says was found, against what the tables were made of."""

import re

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.found import findings

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


def numbers(text):
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?", text)]


def made(seed, m=300, n=8, noise=2.0):
    """Levels 50 +- 5, slopes (2, -1) +- .5, rows +- `noise`."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, 2))
    slopes = np.array([2.0, -1.0]) + 0.5 * rng.normal(size=(m, 2))
    levels = 50.0 + 5.0 * rng.normal(size=m)
    y = levels[task] + np.sum(X * slopes[task], axis=1) + noise * rng.normal(size=m * n)
    return X, y, task


@pytest.mark.parametrize(("epsilon", "within"), [(None, 1.45), (3.0, 2.4)])
def test_numbers_are_those_of_the_table_in_units_of_y(epsilon, within):
    X, y, task = made(0)
    est = PrivateMTL(tasks=range(300), epsilon=epsilon, random_state=0).fit(X, y, task=task)
    found = est.privacy_.found()
    assert "groups" not in found  # they were not sought
    level, *noise, spread = numbers(found["levels"])
    assert abs(level - 50.0) < 1.0 and 5.0 / within < spread < 5.0 * within
    assert len(noise) == (epsilon is not None)
    assert 2.0 / within < numbers(found["rows"])[0] < 2.0 * within
    shared, own = numbers(found["slopes"])[:2]
    assert np.sqrt(5.0) / within < shared < np.sqrt(5.0) * within
    assert np.sqrt(0.5) / (2.0 * within) < own < np.sqrt(0.5) * 2.0 * within


def test_classes_are_told_as_shares_of_rows():
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(200), 20)
    score = -1.0 + 0.8 * rng.normal(size=200)[task]
    y = rng.random(4000) < 1.0 / (1.0 + np.exp(-score))
    est = PrivateMTLClassifier(epsilon=None).fit(rng.normal(size=(4000, 1)), y, task=task)
    low, high, middle = (x for x in numbers(est.privacy_.found()["levels"]) if x > 1.0)
    expected = 100.0 / (1.0 + np.exp(-np.array([-1.8, -0.2, -1.0])))
    np.testing.assert_allclose([low, high, middle], expected, atol=5.0)


def test_directions_are_counted_by_the_shape_of_slopes():
    board = HierarchicalBillboard(9, 9.0, np.zeros(5), unit=1.0, releases=[np.zeros(1)])
    board.log_components = np.log([0.1, 0.8, 0.1])
    board.root = np.diag(np.sqrt([0.5, 0.5, 0.0, 0.0]))
    assert "2.0 of 4 directions" in findings(board)["slopes"]
    board.root = np.eye(4) / 2.0
    assert "nothing was found" in findings(board)["slopes"]
    board.log_components = np.log([0.8, 0.1, 0.1])
    board.root = np.diag(np.sqrt([0.5, 0.5, 0.0, 0.0]))
    assert "nothing was found" in findings(board)["slopes"]
    # The component with a mean is about 0 where no mean was sought.
    board.log_components = np.log([0.1, 0.1, 0.8])
    assert findings(board)["slopes"] == "those of tasks lie in about 2.0 of 4 directions"


def test_what_was_sought_and_not_found_is_told():
    board = HierarchicalBillboard(9, 9.0, np.zeros(3), releases=[np.zeros(1)])
    found = findings(board, with_groups=True)
    assert "no common place" in found["levels"] and "none" in found["groups"]
    assert findings(HierarchicalBillboard(9, 9.0, np.zeros(3))) == {}


def test_levels_of_classes_and_counts_state_their_noise():
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(60), 10), rng.normal(size=(600, 2))
    y = (rng.random(600) < 0.5).astype(int)
    settings = {"tasks": range(60), "random_state": 0}
    for epsilon, least in ((0.3, r"[1-9]"), (10.0, "0")):  # a coin's share is hardly known at .3
        est = PrivateMTLClassifier(epsilon=epsilon, classes=[0, 1], **settings)
        found = est.fit(X, y, task=task).privacy_.found()["levels"]
        assert re.search(rf"about {least}\.\d+ in its log-odds", found)
    est = PrivateMTL(epsilon=10.0, loss="poisson", **settings).fit(X, y, task=task)
    assert re.search(r"at most a factor of 1\.\d+;", est.privacy_.found()["levels"])
