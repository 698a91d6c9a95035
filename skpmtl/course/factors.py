"""Effects of the levels of factors above and across tasks, such as districts and items.

The level of a task k is l_k ~ N(c + u_j, tau^2) for its public level j of the factor, with effects
u_j ~ N(0, omega^2). A task sends the deviation of its level from c + f_j, for the effects f that
are known so far, clipped at one spread of levels and in the block of j. It has one block, so that
its whole contribution is a deviation of one at most.

Of level j, query q then finds the mean deviation

    s_qj = r (u_j - f_qj + e_j) + noise,

with the known variance of the noise of the guarantee, tasks e_j that are the same in all queries,
and a response r in (0, 1]: less than one, because deviations are clipped, and shrunk where tasks
have few rows. With grids of r and omega, and a flat prior of c, all of this is normal, so that the
posterior of u is a closed form (`posterior`). Half of the prior is on omega = 0, so that districts
that do not matter are shrunk away. It is a function of releases and of public numbers of tasks, and
costs nothing.

A factor across tasks, such as items that pupils of many schools answer, has an effect v_j ~
N(0, omega^2) on the targets of the rows of a level. A task sends the mean deviations of its rows
from its own model, level by level, with weights that make their whole length about one
(`skpmtl.course.queries.AcrossStep`), so that the same posterior follows from their sums. How much
the rows of a level count is not public, and asked first. Without a budget real targets have the
effects and spreads of `skpmtl.course.likelihood`. Effects of classes and counts are the posterior
means given all scales, by steps of EM in which tasks take their own models from the residuals, and
omega has the largest restricted likelihood of what the rows of a level say.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from ..task.priors import normalised
from . import queries

# Queries of equal shares. With 300 schools in 10 districts at epsilon 3 (six draws; error of new
# schools over that without districts) 4 give .717 and 2 give .723 for districts that spread twice
# as much as schools, .895 and .901 as much, .982 and .985 half as much.
STEPS = 4
# From .5 on: .68 of a normal deviation is left by its bound of one, less where tasks have few rows.
# From .1 on, effects that do not exist cost 1.7 % of the error of 100 tasks, in place of .8 %.
RESPONSE = np.arange(5, 11) / 10.0
OMEGA = np.append(0.0, 2.0 ** np.arange(-4.0, 3.0))  # in spreads of levels
LOG_OMEGA = normalised(np.append(math.log(len(OMEGA) - 1.0), np.zeros(len(OMEGA) - 1)))

# Of the variance of a task, for responses that are not the same everywhere. With a budget it does
# not matter (.7173 for .7174); without one it is all that answers may differ by.
UNEVEN = 0.01

# Of the budget of a factor across tasks, for how much the rows of its levels count.
OF_COUNTS = 0.125
LEAST_COUNT = 0.05  # of the mean: rarer levels count as much
# Without a budget passes end where no effect moves by this part of the spread of rows. Of the
# response of rows that their tasks follow closely, this is kept.
EXACT_PASSES, EXACT, LEAST_RESPONSE = 50, 1e-4, 0.1


def find(loop, share):
    """Queries about the factor of a loop, and its effects, in units."""
    model, factor = loop.model, loop.plan.factor
    if not (model.has_place and loop.pools_levels):
        return
    counts = np.array(factor.counts) * (model.n_present / sum(factor.counts))
    spread = model.middle_tau  # of levels over all tasks, in units
    question = queries.FactorStep(factor.n_levels, spread, loop.plan.is_private)
    yield from _ask(loop, factor, question, share, spread, counts, spread**2 / counts)


def find_across(loop, share):
    """Queries about the factor across the tasks of a loop, and its effects, in units.

    The first one is about how much the rows of every level count.
    """
    model, factor = loop.model, loop.plan.across
    if not (model.has_place and loop.pools_levels):
        return
    k = factor.n_levels
    unit = 1.0 if model.n_classes else model.row_spread
    if not loop.plan.is_private:
        yield from exact_across(loop, unit)
        return
    question = queries.AcrossStep(k, unit, True)
    found, noise = yield from loop.ask(question, share * OF_COUNTS)
    counts = count_of(found, noise, model.n_present) / math.sqrt(queries.WITHIN)
    # Rows are those of all queries; together they have a length of one in every task.
    own = unit**2 * model.n_present / (counts.sum() * counts)
    question = queries.AcrossStep(k, unit)
    yield from _ask(loop, factor, question, share * (1.0 - OF_COUNTS), unit, counts, own)


def _ask(loop, factor, question, share, unit, counts, own):
    """Ask `STEPS` times, in this unit, each about the effects that are known so far."""
    asked, effects = [], np.zeros(factor.n_levels)
    for _ in range(STEPS):
        loop.update_effects(factor, effects=effects)
        sums, noise = yield from loop.ask(question, share / STEPS)
        asked.append((effects, unit * sums / counts))
        noise = (unit * noise / counts) ** 2
        mean, effects, omega, doubt = posterior(asked, noise, own, OMEGA * unit)
    _take(loop, factor, effects, mean, omega, doubt)


def _take(loop, factor, effects, mean, omega, doubt):
    """Effects of a factor; the centre takes their mean."""
    centre = loop.model.centre.copy()
    centre[0] += mean
    loop.update(centre=centre)
    loop.update_effects(factor, effects=effects - mean, spread=omega, doubt=doubt)


def count_of(found, noise, n_present):
    """Weights of levels from noisy ones, shrunk to their mean, which is public within a factor.

    The mean is taken at its upper end, with which effects are too small rather than too large.
    """
    k = len(found)
    least, most = math.sqrt(queries.WITHIN) * n_present / k, n_present / math.sqrt(k)
    mean = min(max(np.mean(found) + noise / math.sqrt(k), least), most)
    apart = found - np.mean(found)
    kept = max(0.0, 1.0 - noise**2 * (k - 1) / max(apart @ apart, 1e-300))
    return np.maximum(mean + kept * apart, LEAST_COUNT * mean)


def exact_across(loop, unit):
    """Without a budget: effects of largest posterior, about omega of largest likelihood.

    Residuals of rows, less the model of their task, answer to effects by r times the information n
    of a level: r is less than one, because tasks move their levels and slopes. It is found as the
    mean over levels, from the answer to effects that alternate in sign.
    """
    k, model = loop.plan.across.n_levels, loop.model
    effects, apart = model.across.effects, 0.01 * unit * (-1.0) ** np.arange(k)

    def ask(effects, of_rows=False):
        loop.update_effects(loop.plan.across, effects=effects)
        question = queries.AcrossStep(k, unit, of_rows, False)
        return (yield from loop.ask(question, 0.0))[0]

    n = yield from ask(effects, True)
    # Levels of tasks have the mean over rows.
    mean = np.average(effects, weights=n + 1e-12)
    loop.update(centre=model.centre + np.append(mean, np.zeros(loop.d)))
    effects = effects - mean
    sums = yield from ask(effects)
    moved = yield from ask(effects + apart)
    r = min(max(float(apart @ (sums - moved) / (apart @ (n * apart))), LEAST_RESPONSE), 1.0)
    n = np.maximum(n, 1e-12)
    own = unit**2 / (r * n)
    for _ in range(EXACT_PASSES):
        omega = spread_of(effects + sums / (r * n), own)
        now = (effects + sums / n) * omega**2 / (omega**2 + r * own)
        now -= np.average(now, weights=n)
        done = np.abs(now - effects).max() <= EXACT * unit
        effects = now
        sums = yield from ask(effects)
        if done:
            break
    doubt = np.sqrt(omega**2 * own / (omega**2 + own))
    mean = np.average(effects, weights=1.0 / (omega**2 + own))
    _take(loop, loop.plan.across, effects, mean, omega, doubt)


def spread_of(level, own):
    """omega of largest restricted likelihood, for levels N(c, omega^2 + own)."""

    def loss(log_omega2):
        v = math.exp(log_omega2) + own
        mean = np.sum(level / v) / np.sum(1.0 / v)
        return np.sum(np.log(v) + (level - mean) ** 2 / v) + math.log(np.sum(1.0 / v))

    most = 2.0 * math.log(np.std(level) + 1e-100)
    found = minimize_scalar(loss, bounds=(most - 20.0, most + 2.0), method="bounded")
    nothing = loss(-700.0)
    return math.exp(0.5 * found.x) if found.fun < nothing else 0.0


def posterior(asked, noise, own, omega, log_omega=LOG_OMEGA):
    """Posterior of the effects of a factor.

    `asked` has the effects that queries were about and mean deviations from them, `noise` the
    variance of one query, and `own` that which the tasks of a level have in common in all queries,
    at most: all (n_levels,). `omega` is a grid of standard deviations of effects.

    -> mean of the effects, effects (n_levels,), root mean square of omega, standard deviations of
    effects (n_levels,) given the mean
    """
    about, found = (np.stack(parts) for parts in zip(*asked, strict=True))
    noise = noise + UNEVEN * own
    r, omega2 = RESPONSE[:, None, None], omega[:, None] ** 2
    level = found + r * about  # (n_responses, n_queries, n_levels)
    of_level = level.mean(axis=1, keepdims=True)
    log_fit = -0.5 * ((level - of_level) ** 2 / noise).sum(axis=(1, 2))
    w = 1.0 / (r**2 * omega2 + noise / len(found) + own)
    mean = (w * of_level).sum(axis=2) / w.sum(axis=2)
    apart = of_level - mean[:, :, None]
    log_weights = log_fit[:, None] + log_omega - 0.5 * np.log(w.sum(axis=2))
    log_weights += 0.5 * (np.log(w) - w * apart**2).sum(axis=2)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = mean / RESPONSE[:, None]
    effects = mean[:, :, None] + r * omega2 * w * apart
    average = np.tensordot(weights, effects, axes=2)
    own_effect = effects - mean[:, :, None]
    square = omega2 * (1.0 - r**2 * omega2 * w) + own_effect**2
    square = np.tensordot(weights, square, axes=2)
    doubt = np.sqrt(square - np.tensordot(weights, own_effect, axes=2) ** 2)
    omega = math.sqrt(weights.sum(axis=0) @ omega**2)
    return float((weights * mean).sum()), average, omega, doubt
