"""Costs of recorded releases, against the formulas of the accounting."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from skpmtl.privacy import (
    SymmetricGaussian,
    VectorGaussian,
    compose_gdp,
    gdp_epsilon,
)
from skpmtl.privacy.accounting import pure_epsilon
from skpmtl.privacy.costs import epsilon_of_pure, epsilon_of_tape, n_servers, pure_cost
from skpmtl.privacy.mechanisms import VectorGamma
from skpmtl.privacy.sampling import poisson_epsilon
from skpmtl.privacy.selection import selection_epsilon
from skpmtl.privacy.tape import Release
from skpmtl.reproduction.mp_mtl import SymmetrizedWishart

DELTA = 1e-5


def tape(*entries, values=None):
    values = np.zeros((1, 3)) if values is None else values
    return SimpleNamespace(releases=[Release(entry, np.zeros(3), values) for entry in entries])


def gaussian(sensitivity, noise_std, **more):
    return {"sensitivity": sensitivity, "noise_std": noise_std, "mechanism": "Gaussian", **more}


def report(mu=None, releases=(), notes=(), **more):
    given = {"epsilon": 1.0, "delta": DELTA, "mu": mu, "releases": releases, "notes": dict(notes)}
    given |= {"adjacency": "replace-one", "sampling": "none", "public_inputs": {}}
    given |= {"guarantee": "joint DP per task", "unit": "task"}
    return SimpleNamespace(**given | more)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("sensitivity", [0.5, 2.0])
def test_pure_mechanisms_cost_what_they_were_made_for(epsilon, sensitivity):
    """From the std of the noise alone, by the law of each."""
    for mechanism in (
        SymmetrizedWishart(4, sensitivity, epsilon),
        VectorGamma(4, sensitivity, epsilon),
        VectorGamma(12, sensitivity, epsilon, n_vectors=3),
    ):
        found = pure_cost(mechanism.describe(), mechanism.shape)
        assert found == pytest.approx(epsilon, rel=1e-9), mechanism.name
    unknown = {"epsilon": 1.0, "mechanism": "another", "noise_std": 1.0, "sensitivity": 1.0}
    assert pure_cost(unknown, (4,)) is None
    assert epsilon_of_tape(report(), tape(unknown), None) is None
    pure = VectorGamma(3, sensitivity, epsilon).describe()
    spent = epsilon_of_tape(report(), tape(pure, pure), None)
    assert spent == pytest.approx(pure_epsilon([epsilon, epsilon], DELTA))
    # Gaussian releases beside them would need the trade-off of both: no number is better.
    assert epsilon_of_tape(report(), tape(pure, gaussian(1.0, 1.0)), None) is None


def test_a_release_that_costs_nothing_adds_nothing():
    assert compose_gdp([0.0, 0.3]) == pytest.approx(0.3) and compose_gdp([0.0]) == 0.0
    with pytest.raises(ValueError):
        compose_gdp([0.3, -0.1])


def test_noise_of_several_servers():
    """P servers, one of which is honest, divide the variance."""
    assert n_servers(report()) == 1
    assert n_servers(report(releases=({"name": "a"}, {"servers": 4}))) == 4
    entries = [gaussian(2.0, 4.0, servers=4), gaussian(3.0, 4.0, servers=4)]
    mu = math.hypot(2 / 4, 3 / 4)
    found = epsilon_of_tape(report(mu, entries), tape(*entries), None)
    assert found == pytest.approx(gdp_epsilon(2.0 * mu, DELTA))
    for mechanism in (
        VectorGaussian(3, 1.0, 0.7),
        SymmetricGaussian(3, 1.0, 0.7),
    ):
        found = epsilon_of_tape(report(0.7), tape(mechanism.describe()), None)
        assert found == pytest.approx(gdp_epsilon(0.7, DELTA), rel=1e-5)
    nothing = tape(gaussian(1.0, 1.0), values=np.zeros((0, 3)))
    assert epsilon_of_tape(report(0.7), nothing, None) == 0.0


@pytest.mark.parametrize("epsilon", [2.0, 10.0])
def test_groups_of_records(epsilon):
    """The smaller of the releases of the whole group and of one record by the group lemma."""
    size, epsilons = 4, np.full(20, 0.4)
    whole = pure_epsilon(epsilons, DELTA)
    delta = DELTA * math.expm1(epsilon / size) / math.expm1(epsilon)
    one = size * pure_epsilon(epsilons / size, delta)
    assert (one < 0.99 * whole) if epsilon == 2.0 else (whole < 0.99 * one)
    given = report(epsilon=epsilon, notes={"group": 4}, public_inputs={"max_task_rows": size})
    assert epsilon_of_pure(given, epsilons) == pytest.approx(min(whole, one))
    given.notes = {}
    assert epsilon_of_pure(given, epsilons) == pytest.approx(whole)
    given = report(notes={"group": 4}, public_inputs={"max_task_rows": size}, delta=0.0)
    assert epsilon_of_pure(given, [0.1, 0.2]) == pytest.approx(0.3)
    given.epsilon = 1e4  # e^x is no number
    assert epsilon_of_pure(given, [0.1, 0.2]) == pytest.approx(0.3)


def test_a_search_costs_what_its_dearest_trial_does():
    score, fit = gaussian(1.0, 10.0), gaussian(1.0, 2.0)
    trials = tape(fit, score, fit, fit, score, fit, score)
    dearest = math.sqrt(2 * 0.5**2 + 0.1**2)
    public = {"n_trials": 3.0, "selection": "poisson"}
    given = report(releases=(fit, score), notes={"mu_trial": 1.0}, public_inputs=public)
    expected = selection_epsilon(dearest, 3.0, "poisson", DELTA)
    assert epsilon_of_tape(given, trials, None) == pytest.approx(expected)
    dearest = math.sqrt(3) * 0.5  # a fit at the end that has no score yet
    expected = selection_epsilon(dearest, 3.0, "poisson", DELTA)
    found = epsilon_of_tape(given, tape(fit, score, fit, fit, fit), None)
    assert found == pytest.approx(expected)


def of_tasks(steps, noise, reach=2.0, **more):
    """Releases of three tasks, `steps` each in every release."""
    entry = {"tasks": np.array([0, 1, 2]), "noise_std": np.array(noise), "sensitivity": reach}
    return Release(entry | more, {}, np.zeros((3 * steps, 2)))


def test_tasks_that_release_themselves_compose_in_parallel():
    noise = [4.0, 5.0, 8.0]
    made = SimpleNamespace(releases=[of_tasks(6, noise), of_tasks(4, noise)])
    rows = {"a": 4, "b": 9, "c": 8}
    fitted = SimpleNamespace(
        batches="full",
        batch_size=4,
        tasks_=["a", "b", "c"],
        task_privacy=lambda name: {"n_rows": rows[name]},
    )
    found = epsilon_of_tape(report(1.0), made, fitted)
    assert found == pytest.approx(gdp_epsilon(2.0 / 4.0 * math.sqrt(10), DELTA))
    # A record is in every n-th batch: of 1, 3 and 2 batches.
    fitted.batches = "disjoint"
    mus = [2 / 4 * math.sqrt(6 + 4), 2 / 5 * math.sqrt(2 + 2), 2 / 8 * math.sqrt(3 + 2)]
    assert epsilon_of_tape(report(1.0), made, fitted) == pytest.approx(gdp_epsilon(mus[0], DELTA))
    rows["a"] = 17
    mus[0] = 2 / 4 * math.sqrt(2 + 1)  # of five batches
    found = epsilon_of_tape(report(1.0), made, fitted)
    assert found == pytest.approx(gdp_epsilon(max(mus), DELTA))
    # With privacy="local" there are no batches, whatever the parameter says.
    local = report(1.0, guarantee="local DP")
    found = epsilon_of_tape(local, made, fitted)
    assert found == pytest.approx(gdp_epsilon(2.0 / 4.0 * math.sqrt(10), DELTA))
    # A person owns five rows: two groups of two records in one task each, and half a group.
    public = {"max_rows_per_unit": 5, "group_size": 2}
    person = report(1.0, unit="person", public_inputs=public)
    found = epsilon_of_tape(person, made, fitted)
    assert found == pytest.approx(gdp_epsilon(max(mus) * math.sqrt(2 + 0.25), DELTA))


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_poisson_batches_of_tasks(adjacency):
    noise, rows = [4.0, 5.0, 8.0], {"a": 2, "b": 40, "c": 8}
    more = [std + 1.0 for std in noise]  # the least noise of a task counts for all of its releases
    made = SimpleNamespace(releases=[of_tasks(3, more), of_tasks(2, noise)])
    fitted = SimpleNamespace(
        batches="poisson",
        batch_size=4,
        tasks_=["a", "b", "c"],
        task_privacy=lambda name: {"n_rows": rows[name]},
    )
    factor = {"replace-one": 2.0, "zero-out": 1.0}[adjacency]
    given = report(unit="record", adjacency=adjacency)
    expected = [
        poisson_epsilon(factor * std / 2.0, 5, min(1.0, 4 / n), DELTA, adjacency)
        for std, n in zip(noise, rows.values(), strict=True)
    ]
    assert epsilon_of_tape(given, made, fitted) == pytest.approx(max(expected))
    assert epsilon_of_tape(report(unit="person"), made, fitted) is None
