"""What tasks compute of classes and counts; see `skpmtl.course.personal`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from ..tables.table import WrittenRows, row_dots, weighted_sum
from ..task import rates
from ..task.losses import LOGISTIC, POISSON, SOFTMAX, ScoreRows, posterior
from ..task.mixture import flatter
from ..task.nested import LevelEffects, Subgroups
from ..task.posterior import log_sum
from ..task.scales import Summaries, own_scales, typical_squares
from .personal import SURE, bounded, membership, reach_and_range, same

LARGEST = 30.0  # score of classes: a probability of 1 but for 1e-13
_NO_EVENTS = 0.5  # events more in the rate of a task, so that it is finite
_SCALINGS = 30  # of shares about given scores, which start a fit: levels to .01 in most tasks
_FINE, _LAST = 0.1, 0.02  # precision of modes, in scores: of votes on levels, of the last models


@dataclass
class Asked:
    """Rows (N, d), or numbers of them (N,) or (N, C), made where they are asked for, by places."""

    make: Callable
    shape: tuple

    def __getitem__(self, places):
        return self.make(places)


@dataclass
class GivenRows:
    """Rows (N,) of the tasks of a table of classes or counts: arrays, or `Asked`."""

    X: object
    y: object  # numbers of classes, or counts
    weights: object  # how much rows count
    given: object  # scores besides those of the model
    codes: object  # positions of their tasks
    offsets: np.ndarray  # (m + 1,), rows of task t are ``offsets[t]:offsets[t + 1]``
    values: tuple  # rows that have all values which these have, and offsets of them

    @classmethod
    def of(cls, table):
        if hasattr(table.X, "rows_of"):
            return table.X.rows_of(table)
        C, X, y, given = table.n_classes, WrittenRows(table), table.y, table.base
        if C:
            y = y > 0 if C == 2 else np.floor(y)
        if given is None:
            given = np.zeros((len(y), C if C > 2 else 1))
        numbers = (np.asarray(x, dtype=float) for x in (y, table.counts, given))
        return cls(X, *numbers, table.codes, table.offsets, (X, table.offsets))


class ScoreModels:
    """The tasks of one table of classes or counts under released models.

    Parameters
    ----------
    table : TaskTable
        Targets as `skpmtl.tables.targets.class_targets` makes them, or counts, and the scores of a
        public initial model, if there is one, as base. Rows stay as they are, sparse or shared by
        tasks, and are written out and scaled some at a time.
    """

    def __init__(self, table):
        rows = GivenRows.of(table)
        self.X, self.y, self.weights, self.given = rows.X, rows.y, rows.weights, rows.given
        self.offsets, self.codes, self.tasks = rows.offsets, rows.codes, table.tasks
        self.n_classes, self.row_levels = table.n_classes, table.levels
        self.is_free = table.base is None  # of given scores
        self.kind = (LOGISTIC if table.n_classes == 2 else SOFTMAX) if table.n_classes else POISSON
        found = Summaries.of(self.X, self.y, self.offsets, self.weights)
        self.summaries = found.with_repeats(*rows.values)
        self._placed, self._near, self._deviations, self._information = (), (), None, None
        self.subgroups = None

    # --------------------------------------------------------------------------- first queries
    def class_shares(self):
        """Parts of the rows of every task in the classes, (m, n_classes); zeros without rows.

        Where scores are given, those that rows would have without them: with one row more, in all
        classes alike, they follow from the sums of the classes by iterative scaling (Darroch and
        Ratcliff, Ann. Math. Stat. 43, 1972).
        """
        m, C = len(self.summaries.n), self.n_classes
        cells = self.codes * C + self.y.astype(np.int64)
        counts = np.bincount(cells, self.weights, minlength=m * C).reshape(m, C)
        total = _over(counts)
        if self.is_free:
            return counts / np.where(total > 0, total, 1.0)
        given = self.given if C > 2 else np.c_[np.zeros(len(self.given)), self.given]
        odds = np.exp(given - given.max(axis=1, keepdims=True))
        shares = wanted = (counts + 1.0 / C) / (total + 1.0)
        cells = self.codes[:, None] * C + np.arange(C)
        for _ in range(_SCALINGS):
            p = shares[self.codes] * odds
            p *= self.weights[:, None] / np.maximum(_over(p), 1e-300)
            found = np.bincount(cells.ravel(), p.ravel(), minlength=m * C).reshape(m, C)
            shares = shares * wanted * (total + 1.0) / (found + shares)
            shares = shares / _over(shares)
        return shares * (total > 0)

    def log_rates(self):
        """Logarithms of events per exposure of every task, (m,)."""
        s = self.summaries
        most, exposure = np.zeros((2, len(s.n)))
        for some, codes in self._blocks():
            given = self.given[some][:, 0]
            np.maximum.at(most, codes, given)
            np.add.at(exposure, codes, np.exp(given - most[codes]))
        return np.log((s.n * s.y_mean + _NO_EVENTS) / np.maximum(exposure, 1e-300)) - most

    def _blocks(self):
        """Rows of some tasks at a time, and their tasks."""
        return ((some, self.codes[some]) for some in self.X.blocks(self.offsets))

    # ------------------------------------------------------------------------------- posteriors
    def _place(self, model):
        key = model.middle, model.width, model.column_scale, model.column_centre
        key = *key, model.across and model.across.effects, self._is_equal(model)
        if same(key, self._placed):
            return
        self._placed, self._near = key, ()
        if self._is_equal(model):
            return self._place_levels(model)
        known = self.summaries, model.column_scale, *model.scale_variance
        self.scale, self.scale_variance = own_scales(*known)
        self.size = typical_squares(self.summaries, self.scale_variance)
        mean = (self.summaries.x_mean - model.column_centre) / self.scale
        mean[self.summaries.n == 0] = 0.0
        self.near_mean = bounded(mean) if model.fit_intercept else mean
        if self.n_classes and model.fit_intercept and not model.column_centre.any():
            # How far mean rows are from zero says nothing of levels, and taken for a row it makes
            # all rows alike. A single row is all that a task knows of slopes. Counts, whose levels
            # are those of mean rates, were .7 % worse with this rule at epsilon 3.
            self.near_mean = self.near_mean * (np.diff(self.offsets) == 1)[:, None]
        self.shift = mean - self.near_mean
        if not model.fit_intercept:
            self.shift = np.broadcast_to(-model.column_centre / self.scale, mean.shape)
        self._place_middle(model)
        effects = np.c_[model.row_effects(self.row_levels)]
        known = self.given if model.across is None else self.given + effects
        given = Asked(lambda at: known[at] + self.middle[self.codes[at], None], known.shape)
        # About the centre of columns, in scales of their task, less its shift.
        Z = Asked(self._scaled(model.column_centre), self.X.shape)
        self._rows = ScoreRows(self.kind, Z, self.y, self.weights, given, self.offsets)
        self._nested = None
        if model.below is not None:
            if self.subgroups is None:
                self.level_names, levels = self.row_levels.column(model.below)
                self.subgroups = Subgroups.of(self.codes, levels, self.weights, len(self.tasks))
            self._nested = replace(self._rows, subgroups=self.subgroups)

    def _scaled(self, centre):
        def rows(places):
            of = self.codes[places]
            return (self.X[places] - centre) / self.scale[of] - self.shift[of]

        return rows

    def _place_middle(self, model):
        middle = 0.0
        if model.fit_intercept:
            middle = model.middle if model.has_place else self.log_rates()
        self.middle = np.broadcast_to(middle, len(self.tasks))

    def _is_equal(self, model):
        """Whether tasks of counts have the slopes of the centre, so that they learn levels."""
        return self.kind == POISSON and model.slopes_are_equal

    def _place_levels(self, model):
        """The same where slopes are equal: in released units."""
        self._place_middle(model)
        shape = self.summaries.x_mean.shape
        self.scale = np.broadcast_to(model.safe_scale, shape)
        self.scale_variance = np.broadcast_to(max(model.scale_variance.sum(), SURE), shape)
        self.near_mean = (self.summaries.x_mean - model.column_centre) / model.safe_scale
        self.shift = np.zeros(shape)

    def _equal(self, model, level, slopes, scales, moments=None):
        """As `posterior`, where slopes are equal; with "information" scores of level and slopes."""
        (m, d), b = self.near_mean.shape, slopes[0] / model.safe_scale
        about = self.middle + level[..., 0] - model.column_centre @ b
        total, of_columns = np.zeros(m), np.zeros((m, d))
        for some, codes in self._blocks():
            own, given = slice(codes[0], codes[-1] + 1), self.given[some][:, 0] + about[codes]
            starts = self.offsets[own] - some.start
            total[own], of_columns[own] = self.X.rates(b, given, some, starts)
        events = self.summaries.n * self.summaries.y_mean
        evidence, mean, log_mean = rates.of_level(events, total, scales.tau, scales.log_tau)
        score = np.zeros((m, d))
        if moments == "information":
            of_columns = self.products - np.exp(log_mean)[:, None] * of_columns
            mean = events - np.exp(log_mean) * total
            score = (of_columns - mean[:, None] * model.column_centre) / model.safe_scale
        none = np.zeros((m, 1, d + 1, d + 1))
        typical = np.c_[log_mean, np.ones(m)][:, None]
        known = evidence[:, None, None], mean[:, None], score[:, None], none, typical
        return *known, np.zeros((3, 0, 1))

    @cached_property
    def products(self):
        """Sums of counts times rows, (m, d)."""
        found = np.zeros_like(self.summaries.x_mean)
        for some, codes in self._blocks():
            starts = self.offsets[codes[0] : codes[-1] + 1] - some.start
            both = self.y[some][:, None] * self.X[some]
            found[codes[0] : codes[-1] + 1] = np.add.reduceat(both, starts)
        return found

    def _levels_of_means(self, model):
        """Whether levels are those of mean rates or of mean shares."""
        return model.fit_intercept and (self.kind == POISSON or model.of_shares)

    def _posteriors(self, model, centre, root, scales, **options):
        """Of `skpmtl.task.losses`, by the spread of effects of a factor below tasks, of which the
        first is none. -> list, log weights of cells (K, F, T)"""
        self._place(model)
        scales, centre = scales.possible(), np.atleast_2d(centre)
        level, slopes = centre[:, 0], centre[:, 1:]
        if model.above is not None:
            level = level + model.effects_of(self.tasks)[:, None]
        grids = scales.kappa, scales.sigma**2, scales.tau
        if self._is_equal(model):
            moments = options.get("moments")
            return [self._equal(model, level, slopes, scales, moments)], scales.log_tau
        logs = scales.log_kappa[:, None, None] + scales.log_sigma[:, None] + scales.log_tau
        if self._levels_of_means(model):
            # Which no spreads move. Rates are over those of the mean row.
            options["size"] = self.size + self.near_mean**2 * (self.n_classes > 0)
        known = root, level, slopes, grids, logs
        found = [posterior(self._rows, *known, **options)]
        for ratio in model.ratio[1:]:
            found.append(posterior(self._nested, *known, ratio=ratio, **options))
        return found, logs

    def _posterior(self, model, centre, root, scales, **options):
        """`_posteriors`, averaged, and log weights of cells last."""
        found, logs = self._posteriors(model, centre, root, scales, **options)
        if len(found) == 1:
            return (*found[0], logs)
        found[0] = *found[0][:-1], np.zeros_like(found[1][-1])
        evidence, *means, effects = zip(*found, strict=True)
        evidence = [E + log for E, log in zip(evidence, scales.log_ratio, strict=True)]
        total = np.stack([log_sum(E + logs) for E in evidence], axis=1)
        share = np.exp(total - log_sum(total)[:, None]).T
        means = [weighted_sum(share, x) if len(x[0]) else x[0] for x in means]
        of_groups = share[:, self.subgroups.tasks]
        effects = [weighted_sum(of_groups, x) for x in zip(*effects, strict=True)]
        # Typical, as of `priors.middle_ratio`: means of rates would be those of the widest.
        some = np.maximum(share[1:].sum(axis=0), 1e-300)
        self._of_new = some * 2.0 ** (np.log2(model.ratio[1:]) @ share[1:] / some)
        return np.logaddexp.reduce(evidence), *means, np.stack(effects), logs

    def evidence(self, model, centre, root, scales, by=None, related=None):
        if by == "tau":  # every spread of levels has modes of its own
            every = map(scales.only, range(len(scales.tau)))
            cells = [self._posterior(model, centre, root, one, tol=_FINE) for one in every]
            return np.stack([log_sum(E + logs) for E, *_, logs in cells], axis=1)
        if by == "ratio":
            found, logs = self._posteriors(model, centre, root, scales)
            return np.stack([log_sum(E + logs) for E, *_ in found], axis=1) + scales.log_ratio
        E, *_, logs = self._posterior(model, centre, root, scales)
        E = E + logs
        if by is None:
            return log_sum(E)
        E = np.moveaxis(E, 1 if by == "kappa" else 2, 1)
        m, n = E.shape[:2]
        return log_sum(E.reshape(m * n, -1)).reshape(m, n)

    def deviations(self, model, centre, root, scales, related=None):
        _, level, slopes, *_ = self._posterior(model, centre, root, scales, moments="means")
        return self._of_outputs(level, slopes)

    def pull(self, model, centre, near):
        scales = model.scales(model.log_kappa)
        if self._is_equal(model):
            known = model, centre, model.root, scales
            _, level, score, *_ = self._posterior(*known, moments="information")
            return self._of_outputs(level, score)
        if not model.fit_intercept:
            return self.deviations(model, centre, model.root, scales)
        known = model.log_kappa, model.log_sigma, model.log_tau, model.root
        key = *self._placed, *known, near, model.above and model.above.effects, model.log_ratio
        if not same(key, self._near):
            found = self._posterior(model, near, model.root, scales, moments="kept")
            self._near, self._kept = key, found[1:4]
        level, slopes, kept = self._kept
        move = np.atleast_2d(centre - near)
        moves = np.broadcast_to(move, (len(level), *move.shape))
        inside = moves.copy()
        back = np.linalg.pinv(model.root)
        inside[..., 1:] = np.matmul(moves[..., 1:], back.T)
        held = np.matmul(kept, inside[..., None])[..., 0]
        level = level + held[..., 0] - moves[..., 0]
        slopes = slopes + np.matmul(held[..., 1:], model.root.T) - moves[..., 1:]
        present = (self.summaries.n > 0)[:, None]
        return self._of_outputs(level * present, slopes * present[..., None])

    def information(self, model, scales, some=slice(None)):
        """Score and information of the centre.

        -> score (m, C (1 + d)), information (m, C (1 + d), C (1 + d))
        """
        if self._information is None or self._information[0] is not model:
            options = {"tol": _FINE, "moments": "information"}
            _, level, slopes, info, *_ = self._posterior(
                model, model.centre, model.root, scales, **options
            )
            present = (self.summaries.n > 0)[:, None, None]
            score = np.concatenate([level[..., None], slopes], axis=2) * present
            self._information = model, score, info * present[..., None]
        score, of_class = (found[some] for found in self._information[1:])
        m, C, d = score.shape
        info = np.zeros((m, C, d, C, d))
        for c in range(C):
            info[:, c, :, c] = of_class[:, c]
        return score.reshape(m, -1), info.reshape(m, C * d, C * d)

    def row_deviations(self, model):
        """Working residuals of scores about the model of their task, and their information."""
        if self._deviations is not None and self._deviations[0] is model:
            return self._deviations[1]
        scales = model.scales(model.log_kappa)
        level, slopes = self.deviations(model, model.centre, model.root, scales)
        level = model.centre[0] + model.effects_of(self.tasks) + level
        score = self._rows.given[:][:, 0] + level[self.codes]
        of_task = (model.centre[1:] + slopes)[self.codes]
        for some in self.X.blocks(self.offsets):
            score[some] += row_dots(self._rows.X[some], of_task[some])
        score = np.clip(score, -LARGEST, LARGEST)
        mean = expit(score) if self.n_classes else np.exp(score)
        information = mean * (1.0 - mean) if self.n_classes else mean
        information = np.maximum(information, 1e-12)
        found = (self.y - mean) / information, self.weights * information
        self._deviations = model, found
        return found

    def _of_outputs(self, level, slopes):
        return (level, slopes) if self.n_classes > 2 else (level[:, 0], slopes[:, 0])

    def _of_classes(self, values):
        """(..., C), without the last axis where there is one score."""
        return values if self.n_classes > 2 else values[..., 0]

    # ---------------------------------------------------------------------------------- models
    def personal(self, model, *, posterior=False):
        """As of `TaskModels`; `posterior`: with covariances of the models, intercept last."""
        found, below = [], []
        for part in model.components():
            centre = np.concatenate([model.centre[..., :1], part.slopes], axis=-1)
            E, level, slopes, second, one, of_levels, logs = self._posterior(
                model, centre, part.root, part.scales, tol=_LAST, moments="second"
            )
            of_new = self._of_new if model.below is not None else 0.0
            below.append((of_levels, of_new))
            found.append((part, level, slopes, second, one, part.log_weight + log_sum(E + logs)))
        total = log_sum(np.stack([logs for *_, logs in found], axis=1))
        first = np.atleast_2d(model.centre)[:, 0] + np.c_[model.effects_of(self.tasks)]
        m, C, d = len(total), first.shape[1], model.n_features
        level, slopes = np.zeros((m, C)), np.zeros((m, C, d))
        square, typical = np.zeros((m, C, d + 1, d + 1)), np.zeros((m, C, 2))
        for part, of_level, of_slopes, second, of_typical, logs in found:
            a = np.atleast_2d(part.slopes)
            if not self.n_classes:  # mean rates are over those of the centre
                of_typical[..., 0] += _dots(np.broadcast_to(a, (m, C, d)), self.near_mean)
            share = np.exp(logs - total)[:, None]
            typical += share[..., None] * of_typical
            level += share * of_level
            slopes += share[..., None] * (a + of_slopes)
            # Covariances of (l - c, w), from second moments of (l - c, L^-1 (w - a)).
            T = np.zeros((d + 1, 1 + part.root.shape[1]))
            T[0, 0], T[1:, 1:] = 1.0, part.root
            one = np.matmul(np.matmul(T, second), T.T)
            one -= _squares(np.concatenate([of_level[..., None], of_slopes], axis=2))
            one += _squares(np.concatenate([of_level[..., None], a + of_slopes], axis=2))
            square += share[..., None, None] * one
        square -= _squares(np.concatenate([level[..., None], slopes], axis=2))
        if self.n_classes:
            square *= flatter(typical)[..., None, None]
        coef = slopes / self.scale[:, None]
        # Scores are l + (x - place)' w, in units of columns.
        place = model.column_centre + self.shift * self.scale
        intercept = self.middle[:, None] + first + level - _dots(coef, place)
        extras = {"row_centre_": self.summaries.x_mean, **self._bounds(model)}
        if model.below is not None:
            shares = np.stack([np.exp(logs - total) for *_, logs in found])
            extras["level_effects_"] = self._effects_of_levels(shares, below, level, square)
        if model.groups is not None:
            logs = np.stack([logs for *_, logs in found], axis=1)
            extras["membership_"] = membership(logs - total[:, None], len(model.groups))
        if not self.n_classes:
            at_mean = self.middle[:, None] + first + typical[..., 0]
            intercept = (at_mean - _dots(coef, self.summaries.x_mean)) * model.fit_intercept
        elif posterior:
            T = np.zeros((m, 1, d + 1, d + 1))
            T[:, 0, d, 0] = 1.0
            T[:, 0, np.arange(d), 1 + np.arange(d)] = 1.0 / self.scale
            T[:, 0, d, 1:] = -place / self.scale
            covariance = np.matmul(np.matmul(T, square), T.transpose(0, 1, 3, 2))
            extras["covariance_"] = covariance if C > 1 else covariance[:, 0]
        if C == 1:
            coef, intercept = coef[:, 0], intercept[:, 0]
        return *model.add_init(coef, intercept), extras

    def _effects_of_levels(self, shares, below, level, square):
        """From shares of the components (n, m) and what each found. -> (m,) of `LevelEffects`

        A row of the task has the score s and in a subgroup s + v: of v all but its mean is the
        variance that it adds, with that of its covariance with the level.
        """
        groups, by_part = self.subgroups, shares[:, self.subgroups.tasks]
        known, of_new = zip(*below, strict=True)
        effects, squares, joint = (weighted_sum(by_part, x) for x in zip(*known, strict=True))
        t, of_new = groups.tasks, weighted_sum(shares, of_new)
        own = squares - effects**2
        left = own + 2.0 * (joint - effects * level[t])
        of_rates = np.zeros(len(shares[0]))
        if not self.n_classes:
            # Means of rates, not of their logarithms. What rows determine is at their events.
            by_rows = 1.0 - own / np.maximum(of_new[t, None], 1e-300)
            whole = np.maximum(square[t, :, 0, 0] + left, 0.0)
            effects, of_rates = effects + 0.5 * (left - by_rows * whole), 0.5 * of_new
        values = self._of_classes(np.stack([effects, np.zeros(effects.shape), left]))
        none = np.zeros((len(t), self.X.shape[1]))
        return LevelEffects.by_task(groups, self.level_names, values, of_new, none, of_rates)

    def _bounds(self, model):
        if self.n_classes:
            high = np.full(len(self.tasks), LARGEST)
            return reach_and_range(self, model, -high, high)
        # No rate is above e^2 times that of the level, or of any row.
        top = self.middle + np.atleast_2d(model.centre)[0, 0] + 1.0
        top = top + model.effects_of(self.tasks)
        for some, codes in self._blocks():
            np.maximum.at(top, codes, np.log(self.y[some] + 1.0) - self.given[some][:, 0])
        low = np.minimum(self.middle - LARGEST, top + 1.0)
        return reach_and_range(self, model, low, top + 1.0)


def _over(values):
    """Sums of the rows of (m, C), one column after the other. (m, 1)"""
    return sum(values[:, c] for c in range(values.shape[1]))[:, None]


def _squares(means):
    """(..., D) -> (..., D, D)"""
    return means[..., None] * means[..., None, :]


def _dots(coef, place):
    """Inner products of models (m, C, d) and vectors (m, d), one column after the other. (m, C)"""
    return sum(coef[:, :, j] * place[:, j, None] for j in range(coef.shape[2]))
