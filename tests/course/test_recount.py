"""The budget of the hierarchical model, counted again from the table of shares and the report."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from skpmtl.course.curator import Loop, release_model
from skpmtl.course.plan import ERRORS, SHARES, HierarchicalPlan
from skpmtl.privacy.rng import noise_source
from tests.helpers.sites import drive

# Largest distance of the contributions of two tasks, and largest length of one, by kind. A step of
# length C has 2 C and C; the noise of a release follows from this and its share alone.
DISTANCES = {"columns": (2.0, 1.0), "moment": (math.sqrt(2.0), 1.0)}
DISTANCES["place"] = math.sqrt(2.0 * 2.5), math.sqrt(2.5)  # two bins, and one of weight root(1/2)
FIRST = "place", "zoom", "columns", "vote unit"  # of the whole budget; the table is of the rest
MAY_BE_LEFT_OUT = ("vote tau", "vote shape")  # without a place, and without a moment that clears
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
            if kind == "step" or spent == 0.0:
                kind, part = left.pop(0)
                spent += part
            else:
                break
            if math.isclose(spent, share * rest, rel_tol=1e-6):
                break
        if spent > share * rest * (1.0 + 1e-6) or (not spent and name not in MAY_BE_LEFT_OUT):
            return False
    return not left


def recount(report):
    """Raises AssertionError unless the releases are those of the table. -> name of the row"""
    found = list(shares_of(report))
    assert sum(share for _, share in found) <= 1.0 + 1e-6
    first = [share for name, share in found if name in FIRST]
    last = [share for name, share in found if name == "errors"]
    assert not last or sum(last) == pytest.approx(ERRORS)
    rest, found = 1.0 - sum(first) - sum(last), found[: len(found) - len(last)]
    rows = [name for name, row in SHARES.items() if explained(found[len(first) :], row, rest)]
    assert rows, [name for name, _ in found]
    return rows[0]


def course(seed):
    """A fit of nothing but releases at random, of which some look as if there were tasks."""
    rng = np.random.default_rng(seed)
    m, d = int(10 ** rng.uniform(1, 3.5)), int(rng.integers(1, 7))
    adjacency = ("replace-one", "zero-out")[seed % 2]
    plan = HierarchicalPlan(10 ** rng.uniform(-1, 2), None, adjacency, m, d, 1 + seed % 3)
    plan.has_errors, size = seed % 5 < 2, m * rng.choice([1.0, 0.3, 0.01])

    def release(query, name, mechanism):
        found = mechanism.noise_std * rng.normal(size=mechanism.shape)
        if query.statistic in ("place", "zoom") and rng.random() < 0.7:
            found[rng.integers(len(found))] += size
            found[[-1, min(120, len(found) - 1)]] += size
        elif query.statistic in ("step", "moment", "vote") and rng.random() < 0.5:
            found = found + size * rng.normal(size=found.shape) * (found.ndim == 1)
            found = found + size * np.diag(rng.random(d)) if found.ndim == 2 else found
        return found

    return drive(release_model(Loop(plan), noise_source(None)), release)[0].report


def test_shares_add_up_on_every_path():
    """Which shares there are follows from releases: fully adaptive composition by mu^2."""
    rows = {recount(report) for report in map(course, range(120)) if report.releases}
    assert rows == set(SHARES)
