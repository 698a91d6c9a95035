"""Few-shot transfer from DPMetaInit to tasks that took no part in the fit."""

import numpy as np
import pytest

from skpmtl import DPMetaInit, DPMetaInitClassifier, LeaveTasksOut
from skpmtl.metrics import nmse
from skpmtl.reproduction import LocalOnly, LocalOnlyClassifier

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
TABLE = {"adjacency": "zero-out", "delta": 1e-3}


def tasks_left_out(kind):
    """400 tasks of 50 rows about a common model; of a fifth, ten rows are to adapt to.

    -> (X, y, task) to learn from, to adapt to, and to score
    """
    m, n, d, shots = 480, 50, 20, 10
    rng = np.random.default_rng(0)
    W = rng.standard_normal(d) + 0.5 * rng.standard_normal((m, d))
    X, task = rng.standard_normal((m * n, d)) / np.sqrt(d), np.repeat(np.arange(m), n)
    y = np.einsum("ij,ij->i", X, W[task])
    if kind == "logistic":
        y = (y + 0.3 * rng.logistic(size=len(task)) > 0).astype(int)
    else:
        y = y + rng.standard_normal(len(task))
    known, left_out = next(
        LeaveTasksOut(6, tasks=range(m), random_state=0).split(X, y, groups=task)
    )
    place = np.tile(np.arange(n), m)  # rows of a task are independent and lie together
    adapt, test = (left_out[part] for part in (place[left_out] < shots, place[left_out] >= shots))
    return [(X[rows], y[rows], task[rows]) for rows in (known, adapt, test)]


def scores(parts, bounds):
    """name -> accuracy, or nMSE, of new tasks; `bounds` are clip norms, "alone" is not private."""
    train, adapt, test = parts
    classes = train[1].dtype.kind == "i"
    alone = (LocalOnlyClassifier if classes else LocalOnly)(fit_intercept=False)
    fits = {"alone": alone.fit(*adapt[:2], task=adapt[2])}
    for name in ("reptile", "task-global", "local"):
        est = (DPMetaInitClassifier if classes else DPMetaInit)(
            **({"epsilon": None} if name == "reptile" else {"privacy": name, **TABLE}),
            clip_norm=bounds.get(name, 0.5),
            fit_intercept=False,
            tasks=np.unique(train[2]),
            random_state=0,
        )
        est.set_params(**({"classes": [0, 1]} if classes else {})).fit(*train[:2], task=train[2])
        fits[name] = est.personalize(*adapt[:2], task=adapt[2])
    found = {name: est.predict(test[0], task=test[2]) for name, est in fits.items()}
    return {k: np.mean(p == test[1]) if classes else nmse(test[1], p) for k, p in found.items()}


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_transfer_to_tasks_left_out(kind):
    found = scores(tasks_left_out(kind), {"local": 1.1})
    found = found if kind == "logistic" else {name: -score for name, score in found.items()}
    gain = found["reptile"] - found["alone"]
    assert gain > 0.05
    assert found["task-global"] - found["alone"] > 0.9 * gain, found
    assert found["task-global"] > found["local"]
