"""What tasks compute from their own rows and a released model: local, and free of charge."""

import numpy as np

from ..tables.table import WrittenRows, blocks_of, differences, row_dots
from ..task import priors
from ..task.far import about_medians, chances, far_rows
from ..task.nested import (
    LevelEffects,
    RatioPart,
    Subgroups,
    averages,
    each,
    gains,
    information,
    log_evidence,
    moved,
)
from ..task.posterior import Decomposition, LevelRows, TaskRows, log_sum
from ..task.scales import Summaries, own_scales, own_units

NOTHING, LEVELS, ALL = range(3)  # what counts of the models that follow from covariates
NEAR = 3.0  # scales of a column to which a mean row counts in a level, and rows are always believed
_WIDER = 0.5, 0.25  # ranges that predictions may leave a task's own by: at least, and for every row
HULL = 2.0  # units about its level that a task's predictions may always take
# Variance of log2 of a scale that halves the reach of rows beyond a task's own: with its own alone
# errors of 20 random tables were 1.10 to 1.14 times as large, the worst 3.6.
DISTRUST = 1.0
SURE = 1e-12  # the same of slopes that all tasks have: rows are believed wherever they are
# Numbers of all kept shapes together; four are kept however large. Votes on a shape come back to
# one of ten before: where these are kept, fits of 2,000 x 8 x 10 take .93 of the CPU time.
_KEPT = 1 << 21


class TaskModels:
    """The tasks of one table under released models.

    Every array has one entry per task, which follows from the model and the rows of that task. The
    rows in units of the last model, and decompositions of the last shapes, are kept for speed.

    Parameters
    ----------
    table : TaskTable
        With real targets, as differences to the public initial model; sparse rows are written out.
    released_scales : bool
        Whether columns have the released scales in all tasks, instead of a task's own.
    """

    def __init__(self, table, released_scales=False):
        self.X = np.array(WrittenRows(table)[:], order="C")
        self.y, self.offsets, self.codes = np.array(table.y, float), table.offsets, table.codes
        self.table, self.counts, self.tasks = table, table.weights, table.tasks
        self.released_scales = released_scales
        self.row_levels = table.levels
        self.summaries = Summaries.of(self.X, self.y, self.offsets, table.counts)
        self._placed, self._shapes, self._near, self.subgroups = (), [], (), None
        self._far: tuple = ((),)
        self._deviations = self.products = None

    def about(self, public_init):
        """The same tasks with targets less the scores of this model, in released scales."""
        return TaskModels(differences(self.table, public_init), released_scales=True)

    def _place(self, model):
        """Rows, scales and units under the released units of a model."""
        key = model.middle, model.unit, model.width, model.column_scale, model.column_centre
        key = *key, model.across and model.across.effects, model.ratio, model.slopes_are_equal
        if not same(key, self._placed):
            self._place_rows(model, key)
        self.near_mean = self.rows[0][2]

    def _place_rows(self, model, key):
        self._placed, self._shapes = key, []
        self.constant = self.summaries.x_std == 0.0
        if model.slopes_are_equal:
            return self._place_levels(model)
        if model.below is not None and self.subgroups is None:
            self.level_names, codes = self.row_levels.column(model.below)
            self.subgroups = Subgroups.of(self.codes, codes, self.table.counts, len(self.tasks))
        known = self.summaries, model.column_scale, *model.scale_variance, model.unit is None
        self.scale, self.scale_variance = own_scales(*known)
        if self.released_scales:
            self.scale = np.broadcast_to(model.column_scale, self.scale.shape)
        self.unit = own_units(self.summaries, model.unit)
        Z, y = self._in_units(model)
        rows = TaskRows.of(Z, y, self.offsets, self.counts)
        near_mean = bounded(rows.x_mean) if model.fit_intercept else rows.x_mean
        self.rows = [(rows, np.zeros(len(rows.n)), near_mean)]
        if self.subgroups is not None:
            known = Z, y, self.offsets, self.table.counts
            for ratio in model.ratio[1:]:
                found, log_root = self.subgroups.rows(*known, ratio)
                near = near_mean + (found.x_mean - rows.x_mean)
                self.rows.append((found, log_root, near))
            self.subgroup_means = self.subgroups.means(np.c_[Z, y], self.table.counts)

    def _in_units(self, model):
        """Rows and targets in scales and units of their tasks."""
        middle = model.middle if model.has_place else 0.0
        y = (self.y - middle - model.row_effects(self.row_levels)) / self.unit[self.codes]
        return (self.X - model.column_centre) / self.scale[self.codes], y

    def _place_levels(self, model):
        """The same where slopes are equal: in released units, and the rows are only read."""
        known = self.X, self.y, self.table.counts, self.offsets
        known = *known, self.summaries.x_mean, self.summaries.y_mean
        units = model.column_centre, model.column_scale, model.middle, model.unit
        rows = LevelRows.about(known, *units)
        self.scale = np.broadcast_to(model.column_scale, rows.x_mean.shape)
        doubt = max(model.scale_variance.sum(), SURE)
        self.scale_variance = np.broadcast_to(doubt, rows.x_mean.shape)
        self.unit = np.full(len(rows.n), model.unit)
        self.rows = [(rows, np.zeros(len(rows.n)), rows.x_mean)]

    def level_products(self, model, ratio, some):
        """Of a model with equal slopes: see `LevelRows.products`."""
        self._place(model)
        return self.rows[0][0].products(ratio, some)

    def decomposition(self, model, root, *, joined=True):
        """Of a shape; `joined`: whether mean rows are seen as rows, or as the level alone.

        Of columns that are constant in a task it is always a row: all that the task knows of them.
        With far rows, see `skpmtl.task.far`, also of the part of tasks that have some.
        -> list of `RatioPart`
        """
        self._place(model)
        found = self._parts(self._shapes, self.rows, root, joined)
        if not model.far:
            return found
        key = *self._placed, model.centre, model.log_components, model.root
        key = *key, model.log_kappa, model.log_sigma, model.log_tau, np.array(model.far)
        key = *key, model.related, model.above and model.above.effects
        if not same(key, self._far[0]):
            self._far = key, [self._find_far(model)], []
        alike = found[0].log_root + self.summaries.n * np.log1p(-model.far)
        more = self._parts(self._far[2], self._far[1], root, joined)
        return [found[0]._replace(log_root=alike), *more]

    def _parts(self, kept, every, root, joined):
        """Of `every` (rows, log weights, mean rows); the last shapes are `kept`, four or more."""
        same_shape, as_rows = None, joined or self.constant
        for known, were_joined, found in kept:
            if np.array_equal(known, root):
                if were_joined == joined:
                    return found
                same_shape = found
        if same_shape is None:
            found = [
                RatioPart(Decomposition(rows, root, mean, as_rows), log_weight, cell)
                for cell, (rows, log_weight, mean) in enumerate(every)
            ]
        else:
            found = [part._replace(dec=part.dec.with_mean_rows(as_rows)) for part in same_shape]
        most = max(_KEPT // max(sum(rows.X.size for rows, *_ in every), 1), 4)
        kept[:] = [(root, joined, found), *kept][:most]
        return found

    def _find_far(self, model):
        """-> `TaskRows`, log of their weight (m,), mean rows (m, d)"""
        Z, y = self._in_units(model)
        own, (level, slopes) = self.rows[0][0], self.around(model, model.centre)
        slopes = np.exp(model.log_components[2]) * np.broadcast_to(slopes, own.x_mean.shape)
        F = Z + (self.near_mean - own.x_mean)[self.codes]
        r = y - np.broadcast_to(level, len(slopes))[self.codes] - row_dots(F, slopes[self.codes])
        r, about_rows = about_medians(r, self.offsets, self.table.counts, self.summaries.n)
        variance = model.middle_kappa * np.sum((F @ model.root) ** 2, axis=1)
        variance += (model.middle_tau**2 * ~about_rows)[self.codes]
        q = chances(r, model.middle_sigma**2, variance, model.far)
        rows, log_weight = far_rows(Z, y, self.offsets, self.table.counts, *q)
        moved = np.where(rows.n[:, None] > 0, rows.x_mean - own.x_mean, 0.0)
        return rows, log_weight, self.rows[0][2] + moved

    def around(self, model, centre, related=ALL, some=slice(None)):
        """Level and slopes that these tasks are about: those of `centre`, a factor and covariates.

        -> float, (d,); levels (m,) with a factor above tasks, and with a relation (m,), (m, d)
        """
        tasks = self.tasks[some]
        level, slopes = centre[0] + model.effects_of(tasks), centre[1:]
        if model.relation is not None and related != NOTHING:
            own = model.relation.centres(tasks, model.related)
            level, slopes = level + own[:, 0], slopes + own[:, 1:] * (related == ALL)
        return level, slopes

    def around_part(self, model, part):
        """`around` the centre of a component; slopes of covariates are those of "mean" alone."""
        centre = np.append(model.centre[0], part.slopes)
        return self.around(model, centre, ALL if part.name == "mean" else LEVELS)

    def evidence(self, model, centre, root, scales, by=None, related=ALL):
        """Log evidence under N(a, kappa root root') with (c, a) = `centre`.

        -> (m,); with `by` = "kappa", "sigma", "tau" or "ratio" of every cell of its grid, (m, n)
        """
        parts = self.decomposition(model, root)
        return log_evidence(parts, *self.around(model, centre, related), scales, by)

    def deviations(self, model, centre, root, scales, related=ALL):
        """Posterior mean less the centre, of level (m,) and slopes (m, d), under a prior."""
        dec = self.decomposition(model, root)
        return averages(dec, *self.around(model, centre, related), scales)[1:]

    def pull(self, model, centre, near):
        """As `deviations` under the prior of the model, with mean rows seen as the level alone.

        Weights of scales are those about the centre `near`, so that the sum over many centres near
        to it costs no more than that of one. Without levels the mean row is a row as all others.
        """
        if not model.fit_intercept:
            return self.deviations(model, centre, model.root, model.scales())
        parts = self.decomposition(model, model.root, joined=False)
        key = *self._placed, model.log_sigma, model.log_tau, model.root
        key = *key, near, model.related, model.above and model.above.effects, model.log_ratio
        if not same(key, self._near):
            self._near = key
            self._gains = gains(parts, *self.around(model, near), model.scales())
        return moved(parts, self._gains, *self.around(model, centre))

    def row_deviations(self, model):
        """Targets less the model of their task, as known so far, in units. -> (N,), weights (N,)"""
        if self._deviations is not None and self._deviations[0] is model:
            return self._deviations[1]
        self._place(model)
        level, slopes = self.around(model, model.centre)
        scales = model.scales(model.log_kappa)
        of_level, of_slopes = self.deviations(model, model.centre, model.root, scales)
        slopes = slopes + of_slopes
        at_mean = level + of_level + row_dots(self.near_mean, slopes)
        effects = model.row_effects(self.row_levels)
        y = (self.y - model.middle - effects) / self.unit[self.codes]
        Z = (self.X - self.summaries.x_mean[self.codes]) / self.scale[self.codes]
        left = y - at_mean[self.codes] - row_dots(Z, slopes[self.codes])
        found = left * (self.unit / model.unit)[self.codes], self.table.counts
        self._deviations = model, found
        return found

    def information(self, model, scales, some=slice(None)):
        """Score and information of the centre of the model, of these tasks: see `information`."""
        dec = self.decomposition(model, model.root)
        return information(dec, *self.around(model, model.centre, some=some), scales, some)

    def evidence_apart(self, model):
        """Log evidence about the centre without what a task itself adds to it, (m,).

        With score s and information J of the task and the covariance C of the centre, the others
        have the mode (C^-1 - J)^-1 s below that of all. Priors of larger tasks are left out: of 150
        tables with outliers and large tasks they changed the choice between centres of one.
        """
        score, J = self.information(model, model.scales(model.log_kappa))
        C = model.centre_doubt
        moved = np.linalg.solve(np.eye(len(C)) - J @ C, score[..., None])[..., 0] @ C
        found = []
        for part in model.components():
            level, slopes = self.around_part(model, part)
            if part.name == "mean":
                slopes = slopes - moved[:, 1:]
            about = level - moved[:, 0], slopes
            dec = self.decomposition(model, part.root)
            found.append(part.log_weight + log_evidence(dec, *about, part.scales))
        return log_sum(np.stack(found, axis=1))

    def squares_of_rows(self, model):
        """Sum of squares of residuals of a task about its own least squares, and their degrees of
        freedom; with a factor below tasks, a mean over its spreads.

        -> (m,), in released units, (m,)
        """
        self._place(model)
        weights = np.ones(1)
        if len(self.rows) > 1:
            weights = np.exp(priors.typical(model.log_ratio, priors.BEFORE_RATIO))
        squares = sum(w * rows.rest for w, (rows, *_) in zip(weights, self.rows, strict=True))
        dof = self.rows[0][0].dof - self.X.shape[1]
        some = (np.diff(self.offsets) - 1 > self.X.shape[1]) & (dof > 0.0)
        squares = squares * (self.unit / model.unit) ** 2
        return np.where(some, squares, 0.0), np.where(some, dof, 0.0)

    def personal(self, model):
        """Models of the tasks. -> coef (m, d), intercept (m,), extras

        Extras are what bounds predictions, `row_centre_` (m, d), `row_reach_` (m, d) and
        `prediction_range_` (m, 2), which is that of differences to the public initial model.
        """
        found = []
        for part in model.all_components():
            dec, about = self.decomposition(model, part.root), self.around_part(model, part)
            known = each(dec, *about, part.scales.possible())
            for own, (logs, *means) in zip(dec, known, strict=True):
                found.append((model.ratio[own.cell], *about, *means, part.log_weight + logs))
        total = log_sum(np.stack([logs for *_, logs in found], axis=1))
        coef = np.zeros_like(self.near_mean)
        level = np.zeros(len(coef))
        for _, c, a, of_level, of_slopes, logs in found:
            share = np.exp(logs - total)
            slopes = share[:, None] * (a + of_slopes)
            coef += slopes
            level += share * (c + of_level) + row_dots(self.near_mean, slopes)
        middle = model.middle if model.has_place else 0.0
        at_mean = middle + self.unit * level
        coef = coef * self.unit[:, None] / self.scale
        centre = self.summaries.x_mean
        bounds = self._bounds(model, at_mean)
        models = model.add_init(coef, (at_mean - row_dots(centre, coef)) * model.fit_intercept)
        extras = {"row_centre_": centre, **bounds}
        if model.groups is not None:
            logs = np.stack([logs for *_, logs in found], axis=1)
            of_ratios = (logs - total[:, None]).reshape(-1, len(dec))
            extras["membership_"] = membership(
                log_sum(of_ratios).reshape(len(total), -1), len(model.groups)
            )
        if model.below is not None:
            extras["level_effects_"] = self._effects_of_levels(found, total)
        return *models, extras

    def _effects_of_levels(self, found, total):
        """Of the parts of `personal`. -> (m,) of `LevelEffects`"""
        groups, means = self.subgroups, self.subgroup_means
        t, near = groups.tasks, self.near_mean - self.rows[0][0].x_mean
        effects, shrunk, left = np.zeros((3, len(t)))
        of_new = np.zeros(len(self.tasks))
        for ratio, c, a, of_level, of_slopes, logs in found:
            share, slopes = np.exp(logs - total), a + of_slopes
            level = c + of_level + row_dots(near, slopes)
            rest = means[:, -1] - level[t] - row_dots(means[:, :-1], slopes[t])
            s = share[t] * groups.shrunk(ratio)
            effects += s * rest
            shrunk += s
            left += share[t] * ratio / (1.0 + ratio * groups.counts)
            of_new += share * ratio
        effects *= self.unit[t]
        values = np.stack([effects, shrunk, left])
        x_means = groups.means(self.X, self.table.counts)
        none = np.zeros(len(of_new))
        return LevelEffects.by_task(groups, self.level_names, values, of_new, x_means, none)

    def _bounds(self, model, at_mean):
        """How far rows and predictions of a task may be from its own."""
        s = self.summaries
        low, high = s.y_low, s.y_high
        if not model.fit_intercept:  # rows of the other sign have targets of the other sign
            high = np.maximum(np.abs(low), np.abs(high))
            low = -high
        wider = (high - low) * np.maximum(_WIDER[0], _WIDER[1] * s.n)
        # Rows of a task may be few, and far from those of others; what all share is known from all.
        level, slopes = self.around(model, model.centre)
        shared = np.exp(model.log_components[2]) * np.linalg.norm(slopes, axis=-1)
        hull = HULL * np.hypot(1.0, shared) * self.unit * model.has_place
        pooled = model.middle + self.unit * level if model.has_place else at_mean
        low = np.minimum(np.minimum(low - wider, at_mean - hull), pooled)
        high = np.maximum(np.maximum(high + wider, at_mean + hull), pooled)
        return reach_and_range(self, model, low, high)


def membership(log_shares, n_groups):
    """Posterior weights of the groups, and last of none of them, (m, n_groups + 1)."""
    shares = np.exp(log_shares)
    own = shares[:, -n_groups:]
    return np.concatenate([own, 1.0 - own.sum(axis=1, keepdims=True)], axis=1)


def reach_and_range(tasks, model, *ends):
    """How far from the mean row of a task rows count in predictions, (m, d), and what bounds these:
    ends (m,), within the public range of scores."""
    if model.target_range is not None and model.init is None:
        ends = [np.clip(end, *model.target_range) for end in ends]
    far, offsets = np.zeros_like(tasks.near_mean), np.asarray(tasks.offsets)
    for first, last in blocks_of(offsets, far.shape[1]):
        own = first + np.flatnonzero(np.diff(offsets[first : last + 1]))
        if len(own):
            X, mean = tasks.X[slice(*offsets[[first, last]])], tasks.summaries.x_mean[own]
            starts = offsets[own] - offsets[first]
            low, high = (end.reduceat(X, starts) for end in (np.minimum, np.maximum))
            far[own] = np.maximum(high - mean, mean - low)
    reach = np.maximum(far, NEAR * tasks.scale) * (1.0 + DISTRUST / tasks.scale_variance)
    return {"row_reach_": reach, "prediction_range_": np.stack(ends, axis=1)}


def bounded(Z, reach=NEAR):
    """Distances of rows from a centre; those beyond `reach` count less the farther they are.

    Where a released centre or scale is wrong, all rows are far, and none says anything.
    """
    size = np.abs(Z)
    return Z * np.divide(reach, size, out=np.ones_like(size), where=size > reach) ** 2


def same(one, other):
    return len(one) == len(other) and all(
        a is b or np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )
