"""The budget of the hierarchical model, counted again from the table of shares and the report."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from skpmtl.course.curator import Loop, release_model
from skpmtl.course.plan import COURSES, ERRORS, STRUCTURES, HierarchicalPlan, course_of
from skpmtl.course.plan import shares_of as shares_of_course
from skpmtl.course.queries import Place
from skpmtl.privacy.rng import noise_source
from skpmtl.survival import SurvivalMTL
from skpmtl.tables.factors import read_across, read_factor
from skpmtl.tables.relation import read_relation
from tests.helpers.sites import drive

# Largest distance of the contributions of two tasks, and largest length of one, by kind. A step of
# length C has 2 C and C; the noise of a release follows from this and its share alone.
DISTANCES = {"columns": (2.0, 1.0), "moment": (math.sqrt(2.0), 1.0)}
DISTANCES["factor"] = DISTANCES["across"] = 2.0, 1.0
DISTANCES["groups"] = 2.0, math.sqrt(2.0)  # one cell, and a deviation of length 1
DISTANCES["place"] = math.sqrt(2.0 * 2.5), math.sqrt(2.5)  # two bins, and one of weight root(1/2)
DISTANCES["rates"] = math.sqrt(2.5), math.sqrt(1.5)  # one cell counts the tasks
FIRST = (
    "place",
    "rates",
    "zoom",
    "columns",
    "vote unit",
)  # of the whole budget; the table is of the rest
# Without a place, without a moment that clears, and without directions to look for groups.
MAY_BE_LEFT_OUT = "vote tau", "factor", "across", "vote shape", "groups", "vote groups"
REPEATED = "step", "relation", "factor", "across", "groups"  # in many releases
KINDS = {"step or moment": ("step", "moment")}


def budget(epsilon, delta):
    """mu of Gaussian differential privacy (Dong, Roth and Su, 2022, Corollary 1)."""

    def excess(mu):
        tail = norm.logcdf(-epsilon / mu - mu / 2)
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon + tail) - delta

    return brentq(excess, 1e-6, 1e3)


def shares_of(report):
    """(name, part of mu^2) of all releases; of P servers one alone adds enough noise."""
    mu = budget(report.epsilon, report.delta)
    for entry in report.releases:
        sensitivity, std = entry["sensitivity"], entry["noise_std"]
        if entry["name"] in DISTANCES:
            known = DISTANCES[entry["name"]][report.adjacency == "zero-out"]
            assert sensitivity == pytest.approx(known)
        yield entry["name"], entry.get("servers", 1) * (sensitivity / std / mu) ** 2


def explained(found, row, rest):
    """Whether a row of the table explains releases, in order, each in its share of the rest."""
    left = list(found)
    for name, share in row:
        spent, kind = 0.0, None
        while left and left[0][0] in KINDS.get(name, (name,)) and kind in (None, left[0][0]):
            if kind in REPEATED or spent == 0.0:
                kind, part = left.pop(0)
                spent += part
            else:
                break
            if math.isclose(spent, share * rest, rel_tol=1e-6):
                break
        whole = math.isclose(spent, share * rest, rel_tol=1e-6)
        if not whole and (spent or name not in MAY_BE_LEFT_OUT):
            return False
    return not left


TABLE = tuple(row for row in COURSES if row != "equal")  # of slopes that may differ


def recount(report, related, grouped, factored, crossed, table=TABLE):
    """Raises AssertionError unless the releases are those of the table. -> name of the row"""
    found = list(shares_of(report))
    assert sum(share for _, share in found) <= 1.0 + 1e-6
    first = [share for name, share in found if name in FIRST]
    last = [share for name, share in found if name == "errors"]
    assert not last or sum(last) == pytest.approx(ERRORS)
    rest, found = 1.0 - sum(first) - sum(last), found[: len(found) - len(last)]
    rows = [
        row
        for row in table
        # Few tasks of a level: nothing is asked about a factor.
        for asked in itertools.product({factored, False}, {crossed, False})
        if explained(
            found[len(first) :],
            shares_of_course(course_of(row, STRUCTURES, "auto", related, grouped, *asked)),
            rest,
        )
    ]
    assert rows, [name for name, _ in found]
    return rows[0]


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
    made = sum(share for _, share in shares_of(report)) if report.releases else 0.0
    assert loop.spent == pytest.approx(made, abs=1e-6)
    return report


OPTIONS = "related", "grouped", "factored", "crossed"


@pytest.mark.parametrize("taken", [(), *((one,) for one in OPTIONS), OPTIONS], ids=str)
def test_shares_add_up_on_every_path(taken):
    """Which shares there are follows from releases: fully adaptive composition by mu^2."""
    options = [name in taken for name in OPTIONS]
    reports = [course(seed, *options) for seed in range(60 if taken else 120)]
    rows = {recount(report, *options) for report in reports if report.releases}
    assert rows | {"tiny"} == set(TABLE)  # of which most release nothing
    names = {entry["name"] for report in reports for entry in report.releases}
    known = dict(zip(("relation", "groups", "factor", "across"), options, strict=True))
    assert {name: name in names for name in known} == known


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_hazards_spend_their_budget_on_steps_and_frailties(adjacency):
    rng = np.random.default_rng(0)
    task, X, time = (
        np.repeat(np.arange(200), 2),
        rng.normal(size=(400, 2)),
        rng.exponential(size=400),
    )
    y = np.array([(True, one) for one in time], dtype=[("event", bool), ("time", float)])
    model = SurvivalMTL([0.5, 1.0], epsilon=3.0, tasks=range(200), adjacency=adjacency)
    report = model.fit(X, y, task=task).privacy_
    assert recount(report, False, False, False, False, ("equal",)) == "equal"


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
