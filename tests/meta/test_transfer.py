"""Few-shot transfer from DPMetaInit to tasks that took no part in the fit."""

import numpy as np
import pytest

from benchmarks.reproduce.meta_learning import (
    SCHOOL,
    SMALL,
    TABLE,
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
