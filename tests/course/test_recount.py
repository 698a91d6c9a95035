"""The budget of the hierarchical model, counted again from the noise of its releases."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from skpmtl.course.curator import Loop, release_model
from skpmtl.course.plan import HierarchicalPlan
from skpmtl.course.queries import Place
from skpmtl.privacy.rng import noise_source
from skpmtl.survival import SurvivalMTL
from skpmtl.tables.factors import read_across, read_factor
from skpmtl.tables.relation import read_relation
from tests.helpers.sites import drive

REPEATED = "step", "relation", "factor", "across", "groups"  # in many releases


def budget(epsilon, delta):
    """mu of Gaussian differential privacy (Dong, Roth and Su, 2022, Corollary 1)."""

    def excess(mu):
        tail = norm.logcdf(-epsilon / mu - mu / 2)
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon + tail) - delta

    return brentq(excess, 1e-6, 1e3)


def spent(report):
    """Part of mu^2 of all releases; of P servers one alone adds enough noise."""
    mu = budget(report.epsilon, report.delta)
    ratios = ((e["sensitivity"] / e["noise_std"], e.get("servers", 1)) for e in report.releases)
    return sum(n * (ratio / mu) ** 2 for ratio, n in ratios)


def course(seed, related=False, grouped=False, factored=False, crossed=False):
    """A fit of nothing but releases at random, of which some look as if there were tasks."""
    rng = np.random.default_rng(seed)
    m, d = int(10 ** rng.uniform(1, 3.5)), int(rng.integers(1, 7))
    adjacency = ("replace-one", "zero-out")[seed % 2]
    plan = HierarchicalPlan(10 ** rng.uniform(-1, 2), None, adjacency, m, d, 1 + seed % 3)
    if related:
        covariates = rng.normal(size=(m, 1 + seed % 3))
        plan.relation = read_relation(covariates, np.arange(m), quiet=True)
    if factored:
        of_task = {k: str(k % 4) for k in range(m)}
        plan.factor = read_factor({"district": "above"}, of_task, np.arange(m))
    if crossed:
        plan.across = read_across({"item": ("across", range(4))})
    plan.n_groups = "auto" if grouped else 0
    plan.has_errors, size = seed % 5 < 2, m * rng.choice([1.0, 0.3, 0.01])

    def release(query, name, mechanism):
        found = mechanism.noise_std * rng.normal(size=mechanism.shape)
        if query.statistic in ("place", "zoom") and rng.random() < 0.7:
            found[rng.integers(len(found))] += size
            found[[-1, min(120, len(found) - 1)]] += size
        elif query.statistic in (*REPEATED, "moment", "vote") and rng.random() < 0.5:
            found = found + size * rng.normal(size=found.shape) * (found.ndim == 1)
            found = found + size * np.diag(rng.random(d)) if found.ndim == 2 else found
        return found

    loop = Loop(plan)
    report = drive(release_model(loop, noise_source(None)), release)[0].report
    made = spent(report) if report.releases else 0.0
    assert loop.spent == pytest.approx(made, abs=1e-6) and made <= 1.0 + 1e-6
    return [entry["name"] for entry in report.releases], made


ASKED = "relation", "groups", "factor", "across"  # of the options of `course`, in their order


def test_shares_add_up_on_every_path():
    """Which shares there are follows from releases: fully adaptive composition by mu^2."""
    most, taken = 0.0, set()
    for seed in range(40):
        options = np.random.default_rng([seed, 1]).random(4) < 0.4
        names, made = course(seed, *options)
        asked = set(ASKED) & set(names)
        assert asked <= {ASKED[k] for k in np.flatnonzero(options)}
        most, taken = max(most, made), taken | asked
    assert most > 0.99 and taken == set(ASKED)


def test_hazards_spend_their_budget_on_steps_and_frailties():
    rng, task = np.random.default_rng(0), np.repeat(np.arange(200), 2)
    X, time = rng.normal(size=(400, 2)), rng.exponential(size=400)
    y = np.array([(True, one) for one in time], dtype=[("event", bool), ("time", float)])
    model = SurvivalMTL([0.5, 1.0], epsilon=3.0, tasks=range(200))
    report = model.fit(X, y, task=task).privacy_
    assert 0.9 < spent(report) <= 1.0 + 1e-6
    assert {"step", "vote tau"} <= {entry["name"] for entry in report.releases}


def test_a_release_beyond_the_budget_is_an_error():
    """Whatever shares follow from earlier releases, the loop ends there."""
    loop = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, 3))

    def release(query, name, mechanism):
        return np.zeros(mechanism.shape)

    drive(loop.ask(Place(), 0.7), release)
    with pytest.raises(ArithmeticError, match="more than the budget"):
        drive(loop.ask(Place(), 0.31), release)
    drive(loop.ask(Place(), 0.3), release)
    assert len(loop.entries) == 2
