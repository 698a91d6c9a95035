"""Tasks that share this or that."""

import numpy as np
import pytest

from tests.helpers.data import rows_of


def make(kind, m=200, n=12, d=10, n_test=40, noise=1.0, seed=0):
    """-> X, y, task, and the same for test rows as a tuple"""
    rng = np.random.default_rng(seed)
    if kind == "low-rank":
        W = 2.0 * rng.normal(size=(m, 2)) @ rng.normal(size=(2, d))
    elif kind == "sparse":
        W = np.zeros((m, d))
        W[:, :2] = 2.0 * rng.normal(size=(m, 2))
    elif kind == "mean":
        W = 2.0 * rng.normal(size=d) + 0.3 * rng.normal(size=(m, d))
    else:
        W = rng.normal(size=(m, d))
    return *rows_of(rng, W, n, noise=noise), rows_of(rng, W, n_test, noise=noise)


@pytest.fixture
def tasks_of():
    return make
