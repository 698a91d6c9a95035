"""Courses of `PrivateMTL` on releases of chance, which visit many of their branches."""

import numpy as np

from skpmtl.engine.curator import _Course
from skpmtl.engine.plan import StructurePlan
from tests.helpers.sites import drive


def released(query, mechanism, rng, m):
    """A release of chance, of a kind that curators make something of."""
    name, shape = query.statistic, mechanism.shape
    big = rng.uniform() < 0.5
    if name in ("window", "zoom", "scale", "size", "reach"):
        counts = rng.normal(size=shape)
        if big:
            first = rng.integers(shape[0] - 2)
            counts[first : first + rng.integers(1, 3)] += m / 2.0
        return counts
    if name in ("moment", "block"):
        d = shape[0]
        A = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-2, 0)
        top = rng.normal(size=(max(d // 4, 1), d)) * (np.sqrt(m / d) if big else 0.0)
        S = 0.1 * m / d * (A + A.T) + top.T @ top + m / d * np.eye(d)
        return S if len(shape) == 2 else np.diag(S)
    if name == "inside":
        return m * rng.choice([-0.5, 0.5, 0.5], size=2)
    if name == "columns":
        return m * rng.choice([-0.5, -0.5, -0.5, 0.5], size=1)
    if name == "octaves":  # of columns, of which some are clear
        counts = rng.normal(size=(shape[0] // 80, 80))
        counts[::2, rng.integers(80)] += m if big else 0.0
        return counts.ravel()
    if name in ("cells", "groups"):
        x = rng.uniform(size=(shape[0] // 10, 10)) if name == "cells" else rng.normal(size=shape)
        return (m / 5.0 if big else 1.0) * x.ravel()
    if name == "mixtures" and big:
        return m * rng.uniform(-0.2, 1.0, size=shape) * np.repeat([1.0, -1.0], [4, shape[0] - 4])
    if name in ("comparison", "evidence", "mixtures", "noise"):
        return rng.normal(size=shape) * (m if big else 1.0)
    if name == "vote" and shape[0] > 1:
        p = rng.dirichlet(np.ones(shape[0] // 2))
        return np.concatenate([p, p * rng.uniform(-1, 1, size=len(p))])
    return rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 1)


def course_of(est, population, rng):
    """Drive a course to its end. -> plan, course, queries"""
    plan = StructurePlan(est, population, est._structures())
    course, queries = _Course(population, plan, None), []

    def release(query, name, mechanism):
        assert name == query.statistic and len(query.mechanisms) == 1
        queries.append((query, mechanism))
        return released(query, mechanism, rng, population.n_tasks)

    if plan.budget_shares:
        drive(course.run(), release)
    return plan, course, queries
