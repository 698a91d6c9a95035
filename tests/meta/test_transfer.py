"""Few-shot transfer from DPMetaInit to tasks that took no part in the fit."""

import numpy as np
import pytest

from benchmarks.reproduce.meta_learning import (
    SCHOOL,
    SMALL,
    TABLE,
    WIDE,
    school,
    synthetic,
    transfer,
)
from skpmtl import LeaveTasksOut


def tasks_left_out(kind, m, n, d, seed, shots=10):
    """One fold of LeaveTasksOut: the other tasks with all rows, `shots` rows of each left-out
    task to adapt to, and the rest of them to score. -> (X, y, task) of each."""
    (X, y, task), *_ = synthetic(seed, kind == "logistic", m, n, d)
    cv = LeaveTasksOut(m // min(200, m // 5), tasks=range(m), random_state=seed)
    known, left_out = next(cv.split(X, y, groups=task))
    place = np.tile(np.arange(n), m)  # rows of a task are independent and lie together
    adapt, test = (left_out[part] for part in (place[left_out] < shots, place[left_out] >= shots))
    return [(X[rows], y[rows], task[rows]) for rows in (known, adapt, test)]


def scores(sets, bounds, epsilons=(1.0,)):
    """name -> mean score over the sets; "zero-out", delta 1e-3."""
    settings = {"alone": ("alone", {}), "reptile": ("reptile", {"epsilon": None})}
    for epsilon in epsilons:
        for privacy in ("task-global", "local"):
            parameters = {"privacy": privacy, "epsilon": epsilon, **TABLE}
            settings[f"{privacy} {epsilon:g}"] = privacy, parameters
    return {
        name: np.mean([transfer(parts, *how, bounds, seed) for seed, parts in enumerate(sets)])
        for name, how in settings.items()
    }


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_transfer_to_tasks_left_out(kind):
    """A small version of the slow test below, with a margin."""
    found = scores([tasks_left_out(kind, 400, 50, 20, 0)], SMALL)
    found = found if kind == "logistic" else {name: -score for name, score in found.items()}
    gain = found["reptile"] - found["alone"]
    assert gain > 0.05
    assert found["task-global 1"] - found["alone"] > 0.9 * gain, found
    assert found["task-global 1"] > found["local 1"]


def test_transfer_between_schools():
    """One split of the slow test below, with a margin."""
    found = scores([school(0)], SCHOOL)
    assert found["reptile"] < 0.69
    assert found["task-global 1"] < min(found["alone"] - 0.1, found["local 1"], 0.75), found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("m, n, d", [(700, 50, 20), (1200, 100, 50)])
def test_share_of_the_gain_that_is_kept(kind, m, n, d):
    """97 % at epsilon 1 (the target), 10 rows each, about 200 new tasks, five sets of tasks."""
    sets = [tasks_left_out(kind, m, n, d, seed) for seed in range(5)]
    found = scores(sets, SMALL if d == 20 else WIDE, (1.0, 3.0, 9.0))
    found = found if kind == "logistic" else {name: -score for name, score in found.items()}
    gain = found["reptile"] - found["alone"]
    assert gain > 0.05
    for epsilon in (1, 3, 9):
        kept = found[f"task-global {epsilon}"]
        assert kept - found["alone"] >= 0.97 * gain, found
        assert kept >= found[f"local {epsilon}"], found


@pytest.mark.slow
@pytest.mark.parametrize("shots, free, private", [(10, 0.67, 0.70), (5, 0.69, 0.71)])
def test_few_pupils_of_new_schools(shots, free, private):
    """100 schools for training, 39 new ones; the target is nMSE .70 with 10 pupils."""
    found = scores([school(seed, shots) for seed in range(5)], SCHOOL, (1.0, 3.0, 9.0))
    for epsilon in (1, 3, 9):
        assert found[f"task-global {epsilon}"] < found["alone"], found
        assert found[f"task-global {epsilon}"] <= found[f"local {epsilon}"], found
    assert found["reptile"] <= free, found
    assert found["task-global 1"] <= private, found
