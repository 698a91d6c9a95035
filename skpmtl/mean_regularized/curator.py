"""Curator of mean-regularised rounds: lengths, centres, mean intercepts."""

import numpy as np

from ..exchange.protocol import Query
from ..exchange.sums import clipped_sum
from ..rounds.curator import CHANCE, gains, kept, release_centre, shrinkage
from ..rounds.plan import common_length, sum_of_bins
from .billboard import PooledBillboard
from .errors import WORDS, StandardErrors, read, released_errors, sum_of_deviations


def publish(plan, billboard, population, to, source, log=None):
    """The curator of a fit, see `skpmtl.exchange`: the rounds, then the mean intercepts.

    Returns `billboard`, which has the public settings and the first centres; and is filled with
    releases. `to` is public: the centre of each task, (n_tasks,), or what it multiplies its
    contribution by, rows (n_tasks, n_centres) of length 1 at most. `source` is for the report,
    which names it.

    Yields a Query for "length", the histogram of lengths, "deviation", for standard errors, and
    "intercept", where `plan` has budgets for them, and between them what `release_centre` does.
    """
    m, reach = population.n_tasks, gains(to)
    billboard.releases, billboard.scale_mu = [], plan.scale_mu
    billboard.step = reach[:, None]
    length = None
    if plan.scale is not None:
        query = Query("length", {}, {"bins": plan.scale}, sum_of_bins)
        billboard.releases.append((yield query)["bins"])
        length = common_length(billboard.releases[0], plan.scale.noise_std, m)
    billboard.own_units = plan.measures and length is None
    releases, bounds = yield from release_centre(plan, to, billboard.centres, length, log)
    billboard.releases += releases
    billboard.clip_norms = bounds
    billboard.alone_weight[:] = plan.alone_weight
    yield from _standard_errors(plan, billboard, to)
    if plan.noise_multiplier is not None:
        noise = [plan.update_mechanism(bound).noise_std for bound in bounds]
        updates = billboard.moves() if kept(plan, billboard.centres) else None
        chance = 0.0
        if plan.measures and billboard.relation is not None and len(reach) > 1:
            # tasks can leave a centre aside, but not one row of it
            chance = CHANCE * (length or 1.0) ** 2 * np.sum(to**2, axis=0)
        billboard.shrinkage, left = shrinkage(
            updates, billboard.centres, np.outer(noise, billboard.step), chance
        )
        billboard.noise_std = left
        if plan.measures:
            billboard.centres *= billboard.shrinkage[:, None]
            billboard.noise_std = left * billboard.shrinkage
    if plan.intercept is not None:
        shape = len(reach), population.n_outputs
        middle, bound = plan.intercept_range
        query = Query(
            "intercept",
            {"billboard": billboard, "clip_norm": bound, "middle": middle},
            {"intercept": plan.intercept},
            clipped_sum("intercept", bound, to, shape),
            m,
        )
        released = (yield query)["intercept"]
        billboard.releases.append(released)
        if billboard.init is not None:
            middle = middle + billboard.init.intercept
        billboard.set_intercept(released.reshape(shape) * reach[:, None], middle)
    billboard.report = plan.report(source, bounds)
    return billboard


def _standard_errors(plan, billboard, to):
    """One release more, at the centres as they are before they are shrunk."""
    if plan.no_errors == "not asked for":
        return
    reason, centres = plan.no_errors, billboard.centres
    if reason is None and billboard.own_units:
        reason = "lengths of the models of tasks have no common bin: tasks sent in their own units"
        plan.deviation = None  # is not released, and the report lists what is
    if reason is not None:
        billboard.errors = StandardErrors(reason=reason)
        return
    size, bounds = centres.shape[1], billboard.clip_norms
    query = Query(
        "deviation",
        {"centre": centres.copy()},
        {"deviation": plan.deviation},
        sum_of_deviations(size),
    )
    released = (yield query)["deviation"]
    billboard.releases.append(released)
    found = read(released, plan.deviation.noise_std, len(to), size, bounds[0])
    noise = [plan.update_mechanism(bound).noise_std for bound in bounds]
    related = billboard.relation is not None
    transform = billboard.relation.transform if related else np.eye(len(centres))
    billboard.errors = released_errors(
        found,
        billboard.presented(centres),
        transform @ centres,
        np.outer(noise, billboard.step),
        bounds,
        design=to.T @ to if related else np.diag(1.0 / np.bincount(to)),
        transform=transform,
    )


def around_a_mean(course):
    """The last steps of a course around a pooled model: standard errors, and the billboard."""
    plan, errors = course.plan, None
    if plan.errors and course.theta is None:
        errors = StandardErrors(reason="no window of levels stood out")
    elif plan.errors:
        errors = yield from _errors_of_course(course)
    course.billboard = PooledBillboard(
        **vars(course.billboard), errors=errors, relation=plan.relation
    )


def _errors_of_course(course):
    (middle, unit), scale, (theta,) = course.window, course.scale, course.theta
    mechanism, size = course.plan.deviation("deviation"), len(theta)
    released = yield from course.query(
        "deviation",
        "deviation",
        WORDS,
        mechanism,
        sum_of_deviations(size),
        theta=theta[None],
        middle=middle,
        unit=unit,
        scale=scale,
    )
    columns = course.billboard.column_scale
    of_columns = np.ones(size - 1) if columns is None else columns
    units = np.append(unit, unit / (scale * of_columns))
    bounds, noise = zip(*course.pooled_bounds, strict=True)
    # Windows are wider than the levels of tasks, and updates longer than the bounds.
    found = read(released, mechanism.noise_std, course.m, size, 2.0 * bounds[0])
    moved = units * theta
    estimate, init = moved.copy(), course.plan.public_init
    estimate[0] += middle
    if init is not None:
        estimate += np.append(init.intercept, init.flat())
    errors = released_errors(
        found,
        estimate[None],
        moved[None],
        np.array(noise)[:, None],
        bounds,
        design=np.eye(1) / course.m,
        transform=np.eye(1),
        unit=units,
    )
    return errors.with_first_last()
