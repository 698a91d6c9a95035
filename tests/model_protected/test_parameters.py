"""Parameters of the loop and of the exact solver: what is refused, and what has no effect."""

import numpy as np
import pytest

from skpmtl import MPMTLGroupSparse, MPMTLLowRank
from skpmtl.datasets import make_low_rank_tasks
from skpmtl.reproduction import PublishedMPMTL

M = 20


@pytest.fixture(scope="module")
def data():
    return make_low_rank_tasks(M, 12, 4, random_state=0)


@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLGroupSparse])
def test_a_pure_guarantee_is_refused_with_one_that_is_pure(cls, data):
    X, y, task = data
    est = cls(delta=0.0, tasks=range(M))
    with pytest.raises(ValueError, match='PublishedMPMTL with mechanism="wishart" and delta=0'):
        est.fit(X, y, task=task)
    assert not hasattr(est, "coef_")
    remedy = PublishedMPMTL(mechanism="wishart", delta=0, tasks=range(M)).fit(X, y, task=task)
    assert (remedy.privacy_.epsilon, remedy.privacy_.delta) == (1.0, 0.0)


@pytest.mark.parametrize(
    "solver",
    [{"max_iter": 1}, {"tol": 0.5}, {"warm_start": True}],
    ids=lambda given: next(iter(given)),
)
def test_parameters_of_the_solver_leave_the_loop_alone(solver, data):
    X, y, task = data
    plain, given = (MPMTLLowRank(epsilon=None, **more) for more in ({}, solver))
    for est in (plain, given):
        est.fit(X, y, task=task)
    np.testing.assert_array_equal(given.coef_, plain.coef_)
