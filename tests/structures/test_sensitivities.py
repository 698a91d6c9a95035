"""Sensitivities of what levels and few rows send: reached by two tasks, and not passed."""

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine.plan import STRUCTURES, StructurePlan
from skpmtl.engine.queries import query_specs
from skpmtl.exchange.protocol import Population

M, D, BOUND = 400, 6, 0.3
E = np.eye(D + 1)
# By statistic: share, mechanism of the plan, the two contributions that are farthest from each
# other, and by what their sum is divided.
FAR = {
    "window": ("window", "window", 3.0, -5.0, 1.0),
    "inside": (("window", 0.2), "inside", np.full(2, 9.0), np.full(2, -9.0), 1.0),
    "zoom": (("pooled", 0.1), "zoom", 3.0, 5.0, 1.0),
    "scale": ("scale", "scale", 3.0, 50.0, 1.0),
    "columns": ("columns", "number", np.full(1, 9.0), np.full(1, -9.0), 1.0),
    "octaves": ("main", "column_scales", np.full(D, 3.0), np.full(D, 50.0), 1.0),
    "pooled": ("pooled", "pooled", 9.0 * E[0], -7.0 * E[0], M),
    "comparison": ("comparison 1", "comparison", np.full(2, 9.0), np.full(2, -9.0), 1.0),
    "noise": (("spread", 0.5), "number", np.full(1, 9.0), np.full(1, -9.0), 1.0),
    "spread": (("spread", 0.5), "number", np.full(1, 9.0), np.full(1, -9.0), 1.0),
    "evidence": ("rank", "evidence", np.full(12, 9.0), np.full(12, -9.0), 1.0),
    "residuals": ("residuals", "residuals", 9.0 * np.eye(81)[0], 9.0 * np.eye(81)[1], 1.0),
    "block": ("main", "moment", 9.0 * E[0, :D], 9.0 * E[1, :D], 1.0),
}
OF_CLASSES = {"spread": ("spread", "evidence", np.full(12, 9.0), np.full(12, -9.0), 1.0)}
HISTOGRAMS = (
    "window",
    "zoom",
    "scale",
    "column_scales",
    "residuals",
    "moment",
)  # whose contributions are at right angles
CASES = [(PrivateMTL, name, FAR[name]) for name in FAR]
CASES += [(PrivateMTLClassifier, name, OF_CLASSES[name]) for name in OF_CLASSES]


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
@pytest.mark.parametrize("cls, name, far", CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_sensitivities_are_reached_and_not_passed(cls, name, far, adjacency, factor):
    """By what curators, and sites in their place, make of contributions of any kind."""
    share, kind, one, other, divide = far
    population = Population(np.arange(M), D)
    unseen = {"uncertainty": "unseen"} if cls is PrivateMTL else {}
    est = cls(epsilon=10.0, adjacency=adjacency, unseen_task="mean", **unseen)
    plan = StructurePlan(est, population, STRUCTURES)
    options = {"pooled": (BOUND, 30)}.get(name, (0.5,))
    mechanism = getattr(plan, kind)(share, *(options if kind in ("pooled", "number") else ()))
    spec = query_specs(plan, population)[name]
    assert spec.total is not None
    public = {"clip_norm": BOUND}

    def total(sent):
        return spec.total.add({name: np.array([sent], dtype=float)}, public, None) / divide

    reach = mechanism.sensitivity
    assert spec.total.reach(public) / divide == pytest.approx(
        reach / (1.0 if not factor else np.sqrt(2.0) if kind in HISTOGRAMS else 2.0), rel=1e-9
    )
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
        assert np.linalg.norm(found) <= reach / (np.sqrt(2.0) if factor else 1.0) * (1.0 + 1e-12)
