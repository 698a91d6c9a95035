"""The curators of model-protected learning: a prior that every task uses, levels, and means.

Round t: every task computes its posterior mode w under the current prior N(0, kappa s^2 M),
with kappa and s its own; it contributes w w' / ||w||^2, whose trace is 1, so that there is
nothing to clip. The diagonal is w * w, of unit sum for pure mechanisms and of unit
length for Gaussian noise, whose sensitivity is about lengths: a direction spread over many
features then stands out further by 1 / ||w||_4^2. The curator releases the noisy sum, averages
it over the rounds and shrinks it to the next M. One more released number per round, the mean
clipped log10 signal-to-noise ratio ("vote"), centres the tasks' choice of kappa.
"""

from functools import partial

import numpy as np

from ..engine.levels import Level, log_window_of, release_spread, release_window, sum_of_octaves
from ..engine.plan import name_and_fraction
from ..engine.refine import Refinement
from ..engine.residuals import released_residuals, sum_of_shares
from ..engine.spectrum import sum_of_blocks
from ..engine.votes import sum_of_differences
from ..exchange.protocol import Query
from ..exchange.sums import clipped_sum
from ..local.prior import VOTE_RANGE, VOTE_SPREAD, even_root
from ..privacy.mechanisms import std_of
from ..privacy.moments import (
    LEAST_NOISE,
    DriftingAverage,
    root_of,
    sampling_variance,
    shrink_diagonal,
    shrink_matrix,
    sum_of_directions,
)
from ..rounds.curator import CHANCE, gains, release_centre, shrinkage
from ..rounds.plan import common_length, sum_of_bins
from .billboard import Centres, PriorBillboard
from .plan import LOG_WINDOW


def _query(billboard, made, statistic, mechanism, combine, name=None, words=None, /, **public):
    """-> what is released, which the billboard keeps, and `made` by name and words where it has
    them"""
    released = (yield Query(statistic, public, {statistic: mechanism}, combine))[statistic]
    if mechanism is not None:
        billboard.releases.append(released)
        if name is not None:
            made.append((name, words, mechanism))
    return released


def votes_of(log_loss):
    """``combine`` of the votes, less the middle of their range."""
    low, high = VOTE_RANGE[log_loss]
    middle = 0.5 * (low + high)

    def combine(contributions, positions=None):
        votes = np.clip(np.nan_to_num(contributions["vote"], nan=middle), low, high) - middle
        return {"vote": np.array([votes.sum()])}

    return combine


def release_centres(plan, relation, population, log=None):
    """The rounds in which centres of tasks follow from their covariates.

    Yields what `skpmtl.rounds.curator.release_centre` does, and before that a Query for "length".
    -> Centres, shrunk by their known noise; releases; bounds on the updates of the rounds
    """
    to, size = relation.weights(population.tasks), population.n_outputs * population.n_features
    G, length, releases, std = np.zeros((relation.rank, size)), None, [], None
    if plan.scale is not None:
        released = (yield Query("length", {}, {"bins": plan.scale}, sum_of_bins))["bins"]
        length = common_length(released, plan.scale.noise_std, population.n_tasks)
        releases.append(released)
    updates, bounds = yield from release_centre(plan, to, G, length, log)
    if plan.measures:
        step = gains(to)
        noise = np.outer([plan.update_mechanism(bound).noise_std for bound in bounds], step)
        moves = np.stack(updates).reshape(-1, *G.shape) if updates else None
        chance = CHANCE * (length or 1.0) ** 2 * np.sum(to**2, axis=0)
        factors, left = shrinkage(moves, G, noise, chance)
        G *= factors[:, None]
        std = left * factors
    own_units = plan.measures and length is None
    return Centres(relation, G, own_units, std), releases + updates, bounds


def release_prior(
    population,
    diagonal,
    *,
    moment,
    vote,
    log_loss,
    tilt,
    centres=None,
    refine=None,
    made=None,
    log=None,
):
    """The curator of the method, see `skpmtl.exchange`. -> PriorBillboard

    `moment` and `vote` are mechanisms of the releases of the second moment, and of the votes before
    each and at the end, None for one without noise. Second moments are diagonals if `diagonal`, and
    about `centres`, None: about 0. `refine` are those of three votes on evidence for every moment,
    on rank and floor, or on step, new directions and floor (`skpmtl.engine.refine`); None: no such
    votes. `made` receives (name, statistic, mechanism) of the votes on evidence, and of the rounds
    of blocks. `tilt`: see `shrink_matrix`.
    """
    m, d = population.n_tasks, population.n_features
    low, high = VOTE_RANGE[log_loss]
    middle, sum_of_votes = 0.5 * (low + high), votes_of(log_loss)
    billboard = PriorBillboard(
        diagonal, None, None, None, m, n_outputs=population.n_outputs, centres=centres
    )
    about = {} if centres is None else centres.asked()
    average, query = DriftingAverage(), partial(_query, billboard, made)

    def sum_of_moments(contributions, positions=None):
        return {"moment": sum_of_directions(contributions["moment"], diagonal, moment[t])}

    def vote_on_evidence(share, priors, what):
        name, words = f"vote on the {what} {t + 1}", "clipped differences of log evidence"
        released = yield from query(
            "evidence",
            refine[share],
            sum_of_differences("evidence"),
            name,
            words,
            priors=priors,
            snr_centre=billboard.snr_centre,
        )
        return released, std_of(refine[share])

    def block(share, prior, basis, rank):
        words = "sum of u u', unit directions inside and outside of the subspace"
        S = yield from query(
            "block",
            moment[share],
            sum_of_blocks,
            f"moment {t + 1}",
            words,
            moment=prior,
            basis=basis,
            rank=rank,
            snr_centre=billboard.snr_centre,
            snr_spread=billboard.snr_spread,
        )
        return S, std_of(moment[share]) ** 2

    refined, last = None, len(moment) - 1
    if refine is not None:
        refined = Refinement(m, tilt, vote_on_evidence, block)
    for t in range(len(moment) + 1):
        root = root_of(billboard.moment) if t else even_root(d)
        total = yield from query("vote", vote[t], sum_of_votes, root=root, **about)
        noise = 0.0
        if vote[t] is None or t < 2:
            votes = []
        votes.append(total[0] / m)
        if vote[t] is not None:
            # Votes under released priors hardly differ: their mean has less noise.
            noise = vote[t].noise_std / (m * np.sqrt(len(votes)))
        billboard.snr_centre = float(np.clip(middle + np.mean(votes), low, high))
        billboard.snr_spread = float(np.hypot(VOTE_SPREAD, noise))
        if t == len(moment):
            return billboard
        if refined and refined.spectrum is not None:
            yield from refined.block_round(t, range(3 * t, 3 * t + 3))
            billboard.moment = refined.moment
            continue
        S = yield from query(
            "moment",
            moment[t],
            sum_of_moments,
            root=root,
            snr_centre=billboard.snr_centre,
            snr_spread=billboard.snr_spread,
            **about,
        )
        std = 0.0
        if moment[t] is not None:
            # The spectrum of Wishart noise ends 18 % beyond that of a Gaussian of its variance.
            std = moment[t].noise_std * (1.18 if moment[t].norm == "nuclear" else 1.0)
        size = d if diagonal else d * (d + 1) / 2
        S, variance = average.add(S, max(std, LEAST_NOISE) ** 2, size)
        sampling = sampling_variance(m, d)
        if diagonal:
            unit_length = moment[t] is not None and moment[t].norm == "l2"
            trace = (float(m), m * np.sqrt(d)) if unit_length else float(m)
            billboard.moment = shrink_diagonal(S, np.sqrt(variance), trace, np.sqrt(sampling))
        else:
            noise, sampling = np.sqrt(variance / 2), np.sqrt(sampling / 2)
            billboard.moment = shrink_matrix(S, noise, float(m), tilt, sampling) / m
        if refined and t in (0, last):
            # Of the last moment for the prior that is published; of the first for rounds of blocks.
            shares = range(3 * t, 3 * t + 3)
            yield from refined.sharpen(S, variance, shares, refine=t < last)
            if refined.spectrum is not None:
                billboard.moment = refined.moment
        if log is not None:
            log(t + 1, std)


def release_level(billboard, plan, made):
    """Mean and spread of the levels of tasks, and the noise of a row.

    Fills ``billboard.level`` where a window of levels is public, or stands out of a histogram.
    `made` receives (name, statistic, mechanism) of the releases.
    """
    m, window = billboard.n_tasks, plan.window

    def query(share, name, words, mechanism, combine, **public):
        share, fraction = name_and_fraction(share)
        if mechanism is not None:
            spent[share] = spent.get(share, 0.0) + fraction
        return _query(billboard, made, name, mechanism, combine, share, words, **public)

    spent = {}
    if window is None:
        histogram = plan.histogram
        if plan.log_loss:  # of counts
            words = "histogram of the levels of tasks, octaves"
            counts = yield from query("window", "window", words, histogram, sum_of_octaves)
            middle = log_window_of(counts, std_of(histogram), m)
            window = None if middle is None else (middle, LOG_WINDOW)
        else:
            window = yield from release_window(query, histogram, plan.inside, plan.zooms(), m)
        if window is None:
            return
    middle, unit = window
    mechanism = plan.of_mean(unit, 1.0 - spent.get("level", 0.0))
    total = yield from query(
        "level",
        "level",
        "sum of clipped levels",
        mechanism,
        clipped_sum("level", unit),
        billboard=billboard,
        middle=middle,
        unit=unit,
    )
    level = Level(
        float(middle + np.clip(total[0] / m, -unit, unit)),
        np.zeros(billboard.n_features),
        None if plan.log_loss else unit,
        pooled=plan.all_pooled,
    )
    noise, spread = None if plan.log_loss else plan.noise, plan.spread
    billboard.level = yield from release_spread(
        query, billboard, level, ("noise", noise), ("spread", spread), m
    )


def release_intercepts(billboard, mechanism, to, clip_norm, middle, unit):
    """One release more, for unseen_task="mean" with a relation: intercepts from covariates.

    Fills ``billboard.centres.intercept``; coefficients follow from covariates already. As in
    `release_mean`, tasks send the intercepts of their models of (y - middle) / unit, less `init`;
    as in the rounds, these are multiplied by their rows `to`, of length 1.
    """
    m, r = to.shape
    shape = r, billboard.n_outputs
    public = {"billboard": billboard, "clip_norm": clip_norm, "middle": middle, "unit": unit}
    combine = clipped_sum("intercept", clip_norm, to, shape)
    query = Query("intercept", public, {"intercept": mechanism}, combine, m, task_side_adds=True)
    released = (yield query)["intercept"]
    billboard.releases.append(released)
    rows = m * unit * released.reshape(shape)
    billboard.centres.intercept = rows + middle * billboard.relation.of_constant[:, None]


def release_mean(billboard, mechanism, n_tasks, clip_norm, middle, unit):
    """One release more, for unseen_task="mean": the mean of the models of `billboard`, clipped.

    Fills ``billboard.mean``. The tasks personalise first, so that this is the last query. They send
    models of (y - middle) / unit, so that clipped values have no unit; with `init`, differences to
    it.
    """
    public = {"billboard": billboard, "clip_norm": clip_norm, "middle": middle, "unit": unit}
    query = Query("mean", public, {"mean": mechanism}, clipped_sum("mean", clip_norm), n_tasks)
    released = (yield query)["mean"]
    billboard.releases.append(released)
    billboard.mean = released * unit
    billboard.mean[-billboard.n_outputs :] += middle
    if billboard.init is not None:
        billboard.mean += np.append(billboard.init.flat(), billboard.init.intercept)


def release_residuals(billboard, mechanism, width):
    """One release more, for uncertainty="unseen": distances of targets from the mean model.

    Fills ``billboard.residuals``; `width` is that of the public range of targets.
    """
    counts = yield from _query(
        billboard, None, "residuals", mechanism, sum_of_shares, billboard=billboard
    )
    billboard.residuals = released_residuals(counts, mechanism, billboard.n_tasks, width)
