"""Queries that sites answer in a course over several structures, fixed before the fit."""

from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from ..exchange.protocol import QuerySpec, Total
from ..exchange.sums import clipped_sum
from .billboard import StructureBillboard
from .columns import sum_of_columns
from .curator import histogram, sum_of_comparisons, sum_of_moments, sum_of_votes
from .groups import (
    MOST_CELLS,
    MOST_DIRECTIONS,
    MOST_GROUPS,
    Groups,
    sum_of_cells,
    sum_of_groups,
    sum_of_reaches,
)
from .levels import (
    CORNER,
    LEVEL_BINS,
    OCTAVES,
    PLACES,
    Level,
    sum_of_octaves,
    sum_of_places,
    sum_of_scales,
)
from .plan import SIZE_BINS, n_directions
from .residuals import BINS, sum_of_shares
from .spectrum import sum_of_blocks
from .votes import CLIP, N_DIFFERENCES, sum_of_differences


def query_specs(plan, population):
    """Queries of a `StructurePlan`. -> {statistic: QuerySpec}"""
    d, C, names = population.n_features, population.n_outputs, plan.names
    model = (d,) if C == 1 else (C, d)
    billboard, centre = {"billboard": StructureBillboard}, {"centre": [model]}
    votes = 2 * len(names)
    of_votes = Total.of(sum_of_votes, "vote", votes, np.sqrt(2.0))
    specs = {
        "vote": QuerySpec({"vote": (votes,)}, billboard, of_votes),
        "moment": QuerySpec({"moment": model}, billboard, Total.of_moment(sum_of_moments, d)),
    }
    if "mean" in names:
        rank = n_directions(population)
        basis = {**billboard, "basis": [(d, rank)]}
        unit = Total.of(clipped_sum("direction", 1.0), "direction", C * rank, 1.0)
        specs["direction"] = QuerySpec({"direction": (C * rank,)}, basis, unit)
        sizes = Total.of(histogram, "size", SIZE_BINS, 1.0)
        specs["size"] = QuerySpec({"size": ()}, billboard, sizes)

        def updates(contributions, public, positions):
            return clipped_sum("update", public["clip_norm"])(contributions)["update"]

        of_round = Total(C * d, "clip_norm", updates)
        public = {**centre, "clip_norm": Real, "own_units": bool}
        specs["update"] = QuerySpec({"update": (C * d,)}, public, of_round)
    if plan.levels:
        specs |= _query_specs_of_levels(plan, population, billboard)
    if plan.few_rows or plan.compares_shapes:
        scale, moments = {"snr_centre": Real}, [(d,), (d, d)]
        of_votes = Total.of(sum_of_differences("evidence"), "evidence", N_DIFFERENCES, CLIP)
        public = {**scale, "priors": (moments,)}
        specs["evidence"] = QuerySpec({"evidence": (N_DIFFERENCES,)}, public, of_votes)
    if plan.few_rows:
        total = Total.of_moment(sum_of_blocks, d, "block")
        public = {
            **scale,
            "snr_spread": Real,
            "moment": moments,
            "basis": [(d, d)],
            "rank": Integral,
        }
        specs["block"] = QuerySpec({"block": (d,)}, public, total)
    if plan.with_residuals:
        total = Total.of(sum_of_shares, "residuals", len(BINS), 1.0)
        mean = {"mean": [(d + 1,)]}
        specs["residuals"] = QuerySpec({"residuals": BINS.shape}, mean, total)
    if plan.groups:
        specs |= _query_specs_of_groups(d, billboard)
    if plan.scales_columns:
        bins = d * OCTAVES, np.sqrt(d), sum_of_columns, (d,)
        specs |= {**specified("columns", 1, 0.5), **specified("octaves", *bins)}
    if "mean intercept" in plan.budget_shares:
        low, high = plan.target_range
        reach = 0.5 * (high - low)
        combine = clipped_sum("intercept", reach, less=0.5 * (low + high))
        of_mean = Total.of(combine, "intercept", C, reach)
        specs["intercept"] = QuerySpec({"intercept": (C,)}, centre, of_mean)
    if plan.scales_columns:
        scale = {"column_scale": [(d,)]}
        specs = {name: replace(spec, public=spec.public | scale) for name, spec in specs.items()}
    return specs


def specified(name, size, bound, combine=None, shape=None, /, **public):
    """{name: `QuerySpec`} of one sum of `size` numbers, to which a task adds `bound` at most.

    `combine`: None, clipped vectors. `shape` of what a task sends; None: (size,). `public` is what
    the public numbers of the query have to be.
    """
    combine = clipped_sum(name, bound) if combine is None else combine
    total = Total.of(combine, name, size, bound)
    return {name: QuerySpec({name: (size,) if shape is None else shape}, public, total)}


def specs_of_window(log_loss):
    """{name: `QuerySpec`} of `skpmtl.engine.levels.release_window`; of counts, a histogram."""
    specs = specified("window", LEVEL_BINS, 1.0, sum_of_octaves, ())
    if not log_loss:
        specs |= specified("inside", 2, CORNER, middle=Real, unit=Real)
        specs |= specified("zoom", PLACES, 1.0, sum_of_places, (), low=Real, size=Real)
    return specs


def _query_specs_of_groups(d, billboard):
    basis = [(d, k) for k in range(MOST_DIRECTIONS + 1)]
    span = {"moment": [(d, d)], "basis": basis, "centre": [(d,)]}
    span |= dict.fromkeys(("snr_centre", "snr_spread"), Real)
    groups = {**billboard, "groups": (Groups, d)}
    cells, centres = MOST_CELLS * (2 + MOST_DIRECTIONS), MOST_GROUPS * (2 + d)
    of_votes = N_DIFFERENCES, CLIP, sum_of_differences("mixtures")
    return {
        **specified("reach", OCTAVES, 1.0, sum_of_reaches, (), **span),
        **specified(
            "cells",
            cells,
            1.0,
            sum_of_cells,
            (2 + MOST_DIRECTIONS,),
            **span,
            level=Level,
            **dict.fromkeys(("size", "reach"), Real),
        ),  # fmt: skip
        **specified("mixtures", *of_votes, **groups, bare=bool),
        **specified("groups", centres, 1.0, sum_of_groups, **groups),
    }


def _query_specs_of_levels(plan, population, billboard):
    d, relation = plan.dimension, plan.relation
    to, shape = None, (plan.n_related, d + 1)
    if relation is not None:
        to = relation.weights(population.tasks)

    def updates(contributions, public, positions):
        combine = clipped_sum("pooled", public["clip_norm"], to, shape)
        return combine(contributions, positions)["pooled"]

    of_rounds = Total(plan.n_related * (d + 1), "clip_norm", updates)
    public = {"theta": [shape], "offset": [(d,)]}
    public |= dict.fromkeys(("clip_norm", "middle", "unit", "scale"), Real)
    spread = (1, 0.5)
    if plan.log_loss:
        spread = (N_DIFFERENCES, CLIP, sum_of_differences("spread"))
    level = {**billboard, "level": Level}
    return {
        "pooled": QuerySpec({"pooled": (d + 1,)}, public, of_rounds),
        **specs_of_window(plan.log_loss),
        **specified("scale", OCTAVES, 1.0, sum_of_scales, ()),
        **specified("comparison", 2, np.sqrt(2.0), sum_of_comparisons, **billboard),
        **specified("noise", 1, 0.5, **level),
        **specified("spread", *spread, **level),
    }
