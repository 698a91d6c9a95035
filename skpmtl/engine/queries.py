"""Queries that sites answer in a course over several structures, fixed before the fit."""

from dataclasses import replace
from numbers import Integral, Real

from ..exchange.protocol import QuerySpec
from .billboard import StructureBillboard
from .groups import (
    MOST_DIRECTIONS,
    MOST_GROUPS,
    Groups,
)
from .levels import (
    Level,
)
from .plan import n_directions
from .residuals import BINS
from .votes import N_DIFFERENCES


def query_specs(plan, population):
    """Queries of a `StructurePlan`. -> {statistic: QuerySpec}"""
    d, C, names = population.n_features, population.n_outputs, plan.names
    model = (d,) if C == 1 else (C, d)
    billboard, centre = {"billboard": StructureBillboard}, {"centre": [model]}
    specs = specified("vote", (2 * len(names),), **billboard)
    specs |= specified("moment", model, **billboard)
    if "mean" in names:
        rank = n_directions(population)
        specs |= specified("direction", (C * rank,), **billboard, basis=[(d, rank)])
        specs |= specified("size", (), **billboard)
        specs |= specified("update", (C * d,), **centre, clip_norm=Real, own_units=bool)
    if plan.levels:
        specs |= _query_specs_of_levels(plan, billboard)
    moments = [(d,), (d, d)]
    if plan.few_rows or plan.compares_shapes:
        specs |= specified("evidence", (N_DIFFERENCES,), snr_centre=Real, priors=(moments,))
    if plan.few_rows:
        specs |= specified(
            "block",
            (d,),
            **dict.fromkeys(("snr_centre", "snr_spread"), Real),
            moment=moments,
            basis=[(d, d)],
            rank=Integral,
        )
    if plan.with_residuals:
        specs |= specified("residuals", BINS.shape, mean=[(d + 1,)])
    if plan.groups:
        specs |= _query_specs_of_groups(d, billboard)
    if plan.scales_columns:
        specs |= {**specified("columns", (1,)), **specified("octaves", (d,))}
    if "mean intercept" in plan.budget_shares:
        specs |= specified("intercept", (C,), **centre)
    if plan.scales_columns:
        scale = {"column_scale": [(d,)]}
        specs = {name: replace(spec, public=spec.public | scale) for name, spec in specs.items()}
    return specs


def specified(name, shape, /, **public):
    """{name: `QuerySpec`} of one sum, to which a task sends an array of this shape.

    `public` is what the public numbers of the query have to be.
    """
    return {name: QuerySpec({name: shape}, public)}


def specs_of_window(log_loss):
    """{name: `QuerySpec`} of `skpmtl.engine.levels.release_window`; of counts, a histogram."""
    specs = specified("window", ())
    if not log_loss:
        specs |= specified("inside", (2,), middle=Real, unit=Real)
        specs |= specified("zoom", (), low=Real, size=Real)
    return specs


def _query_specs_of_groups(d, billboard):
    basis = [(d, k) for k in range(MOST_DIRECTIONS + 1)]
    span = {"moment": [(d, d)], "basis": basis, "centre": [(d,)]}
    span |= dict.fromkeys(("snr_centre", "snr_spread"), Real)
    groups = {**billboard, "groups": (Groups, d)}
    return {
        **specified("reach", (), **span),
        **specified("cells", (2 + MOST_DIRECTIONS,), **span, level=Level, size=Real, reach=Real),
        **specified("mixtures", (N_DIFFERENCES,), **groups, bare=bool),
        **specified("groups", (MOST_GROUPS * (2 + d),), **groups),
    }


def _query_specs_of_levels(plan, billboard):
    d, level = plan.dimension, {**billboard, "level": Level}
    public = {"theta": [(plan.n_related, d + 1)], "offset": [(d,)]}
    public |= dict.fromkeys(("clip_norm", "middle", "unit", "scale"), Real)
    return {
        **specified("pooled", (d + 1,), **public),
        **specs_of_window(plan.log_loss),
        **specified("scale", ()),
        **specified("comparison", (2,), **billboard),
        **specified("noise", (1,), **level),
        **specified("spread", (N_DIFFERENCES if plan.log_loss else 1,), **level),
    }
