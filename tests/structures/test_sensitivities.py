"""Sensitivities of what levels and few rows send: reached by two tasks, and not passed."""

from functools import cache

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.exchange.protocol import Population
from tests.helpers.courses import course_of

M, D = 400, 6
E = np.eye(D + 1)
# By statistic: the two contributions that are farthest from each other.
FAR = {
    "window": (3.0, -5.0),
    "inside": (np.full(2, 9.0), np.full(2, -9.0)),
    "zoom": (3.0, 5.0),
    "scale": (3.0, 50.0),
    "columns": (np.full(1, 9.0), np.full(1, -9.0)),
    "octaves": (np.full(D, 3.0), np.full(D, 50.0)),
    "pooled": (9e9 * E[0], -7e9 * E[0]),
    "comparison": (np.full(2, 9.0), np.full(2, -9.0)),
    "noise": (np.full(1, 9.0), np.full(1, -9.0)),
    "spread": (np.full(1, 9.0), np.full(1, -9.0)),
    "evidence": (np.full(12, 9.0), np.full(12, -9.0)),
    "residuals": (9.0 * np.eye(81)[0], 9.0 * np.eye(81)[1]),
    "block": (9.0 * E[0, :D], 9.0 * E[1, :D]),
}
OF_CLASSES = {"spread": (np.full(12, 9.0), np.full(12, -9.0))}
# Those whose contributions are at right angles.
HISTOGRAMS = {"window", "zoom", "scale", "octaves", "residuals", "block"}
CASES = [(PrivateMTL, name, FAR[name]) for name in FAR]
CASES += [(PrivateMTLClassifier, name, OF_CLASSES[name]) for name in OF_CLASSES]


@cache
def queries_of(cls, adjacency):
    """{statistic: (query, mechanism)} of courses, until there is one of each in `FAR`."""
    given = {"structure": ["low-rank", "mean"], "epsilon": 10.0, "adjacency": adjacency}
    given |= {"unseen_task": "mean"}
    given |= {"uncertainty": "unseen"} if cls is PrivateMTL else {}
    rng, found, wanted = np.random.default_rng(0), {}, FAR if cls is PrivateMTL else OF_CLASSES
    for _ in range(200):
        _, _, queries = course_of(cls(**given), Population(np.arange(M), D), rng)
        found |= {query.statistic: (query, mechanism) for query, mechanism in queries}
        if found.keys() >= wanted.keys():
            break
    return found


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
@pytest.mark.parametrize("cls, name, far", CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_sensitivities_are_reached_and_not_passed(cls, name, far, adjacency, factor):
    """By what curators make of contributions of any kind."""
    one, other = far
    query, mechanism = queries_of(cls, adjacency)[name]
    reach = mechanism.sensitivity

    def total(sent):
        contributions = {name: np.array([sent], dtype=float)}
        return query.combine(contributions, np.array([0]))[name] / query.divide

    assert np.linalg.norm(total(one) - factor * total(other)) == pytest.approx(reach, rel=1e-9)
    rng, shape = np.random.default_rng(0), np.shape(one)
    for _ in range(100):
        a, b = 10.0 ** rng.uniform(-3, 4, size=2)
        moved = total(a * rng.normal(size=shape)) - factor * total(b * rng.normal(size=shape))
        assert np.linalg.norm(moved) <= reach * (1.0 + 1e-12)
    for broken in (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324):
        found = total(np.full(shape, broken))
        assert np.isfinite(found).all()
        # One task moves a sum by half of what two do, or by 1 / sqrt(2) in a histogram.
        alone = 1.0 if not factor else np.sqrt(2.0) if name in HISTOGRAMS else 2.0
        assert np.linalg.norm(found) <= reach / alone * (1.0 + 1e-12)
