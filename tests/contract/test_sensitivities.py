"""Sensitivity of every release: reached by two contributions, and passed by none."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

from skpmtl import (
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    PrivateMeanRegMTL,
    PrivateMTL,
    PrivateMTLClassifier,
)
from skpmtl.exchange.protocol import Population
from skpmtl.privacy.rng import SeededSource
from tests.helpers.data import about_one_model, covariates
from tests.helpers.sites import Sites

pytestmark = pytest.mark.filterwarnings("ignore:Intervals of tasks without rows")
M, D = 60, 6
SEEN = {"epsilon": 60.0, "delta": 1e-5, "unseen_task": "mean"}
RANGE = {"target_range": (-9.0, 9.0)}
FACTS = {"relation": covariates(np.random.default_rng(0).normal(size=(M, 2)))}
DISTRICTS = {"relation": {k: "abc"[k % 3] for k in range(M)}, "factors": {"district": "above"}}
ITEMS = {"factors": {D: ("across", range(4))}}  # a column more
ESTIMATORS = {
    "any": (PrivateMTL(standard_errors=True, **SEEN), 0),
    "groups": (PrivateMTL("groups", **SEEN), 0),
    "districts": (PrivateMTL(**DISTRICTS, **SEEN), 0),
    "items": (PrivateMTL(**ITEMS, **SEEN), 0),
    "counts": (PrivateMTL(loss="poisson", **SEEN), 0),
    "classes": (PrivateMTLClassifier(**SEEN), 2),
    "three classes": (PrivateMTLClassifier(**SEEN), 3),
    "low rank, related": (MPMTLLowRank(**FACTS, **RANGE, **SEEN), 0),
    "sparse of classes": (MPMTLGroupSparseClassifier(**SEEN), 2),
    "mean": (PrivateMeanRegMTL(**SEEN), 0),
}


def released(query, mechanism, rng, m):
    """A release of chance, of a kind that the loop makes something of."""
    found = rng.normal(size=mechanism.shape) * 10.0 ** rng.uniform(-2, 1)
    if query.statistic in ("place", "zoom", "rates", "base") and rng.uniform() < 0.7:
        first = rng.integers(max(found.size - 3, 1))
        found[first : first + 2] += m / 2.0
    if query.statistic == "place":
        found[-2:] += m / 2.0
    if query.statistic == "moment":
        found = found + found.T + m / len(found) * np.diag(rng.exponential(size=len(found)) ** 2)
    if query.statistic == "vote":
        found *= m
    return found


def length(mechanism, value):
    """The norm that the sensitivity of a mechanism is in."""
    norms = {"nuclear": lambda v: np.linalg.norm(v, "nuc")}
    return norms.get(getattr(mechanism, "norm", "l2"), np.linalg.norm)(value)


@cache
def shapes_of(name):
    """{statistic: {name: shape of what one task sends}}, of runs with rows."""
    est, n_classes = ESTIMATORS[name]
    X, y, task = about_one_model(M, 4, D, level=1.0)
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    if est.factors == ITEMS["factors"]:
        X = np.c_[X, np.arange(len(X)) % 4]
    shapes = {}
    for query, sites in courses(est, n_classes, lambda est: Sites(est, (X, y, task), [range(M)])):
        sent, _ = sites.contributions(query)
        shapes.setdefault(query.statistic, {key: v.shape[1:] for key, v in sent.items()})
    return shapes


def courses(est, n_classes, make, n_courses=3, **given):
    """Yield the queries of runs on releases of chance, and the task sides that `make` makes."""
    rng = np.random.default_rng(0)
    given |= {"classes": range(n_classes)} if n_classes else {}
    est = clone(est).set_params(tasks=range(M), **given)
    for _ in range(n_courses):
        sites = make(est)
        population = Population(np.arange(M), D, n_classes)
        steps, reply = est._curator(population, SeededSource(rng)), None
        while True:
            try:
                query = steps.send(reply)
            except StopIteration:
                break
            yield query, sites
            reply = {n: released(query, m, rng, M) for n, m in query.mechanisms.items()}


def attacks(shapes, rng):
    """What one task may send: single numbers, bins, signs, numbers of chance. -> dicts"""
    ones = [lambda n, j=j, s=s: s * np.eye(n)[min(j, n - 1)] for j in (0, 1) for s in (9e20, -7e20)]
    ones += [lambda n, s=s: np.full(n, s) for s in (9e20, -7e20, 3.0, 50.0)]
    ones += [lambda n: 10.0 ** rng.uniform(-3, 4) * rng.normal(size=n) for _ in range(12)]
    ones += [lambda n, s=s: np.full(n, s) for s in (np.nan, np.inf, -np.inf, 1e308, 5e-324)]
    # Bins, of which those far from each other share nothing, and a sign.
    ones += [lambda n, j=j: np.full(n, float(j)) for j in (0, 1, 15, 30)]
    ones += [lambda n: np.append(np.full(n - 1, 30.0), 1.0)]
    for one in ones:
        yield {k: one(math.prod(shape)).reshape(1, *shape) for k, shape in shapes.items()}


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_sensitivity_is_reached_and_not_passed(name, adjacency):
    shapes, rng, found, seen = shapes_of(name), np.random.default_rng(0), {}, set()
    for query, _ in courses(*ESTIMATORS[name], lambda est: None, adjacency=adjacency):
        # Every form of a question, such as with and without slopes, and all that it releases.
        flags = [k for k, v in query.public.items() if v is True]
        form = query.statistic, *query.mechanisms, *flags
        if form in seen or query.statistic not in shapes:
            continue
        seen.add(form)
        sent = list(attacks(shapes[query.statistic], rng))
        sums = [query.combine(one, np.array([1])) for one in sent]
        for one in sent:  # what is no number is as if it had not come
            if all(np.isnan(value).all() for value in one.values()):
                both = {k: np.concatenate([sent[0][k], one[k]]) for k in one}
                for key, total in query.combine(both, np.array([0, 1])).items():
                    alone = query.combine({k: v[:1] for k, v in both.items()}, np.array([0]))
                    np.testing.assert_allclose(total, alone[key], rtol=1e-13)
        for key, mechanism in query.mechanisms.items():
            if adjacency == "zero-out":
                moved = [one[key] for one in sums]
            else:
                moved = [one[key] - other[key] for one, other in itertools.combinations(sums, 2)]
            most = max(length(mechanism, value / query.divide) for value in moved)
            found[form, key] = most / mechanism.sensitivity
    assert len(found) >= 3 and max(found.values()) <= 1.0 + 1e-12
    short = {form[0]: part for (form, _), part in found.items() if part < 1.0 - 1e-9}
    # Of these no pair above is the farthest: several full votes, and squares of roots.
    assert short.keys() <= {"vote", "errors"}, short
    assert min(found.values()) > 0.6
