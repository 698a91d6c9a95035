"""What a task makes of several structures: evidence, shares, and the average of its models.

With the rows of task k and structure j, `LocalModels.criteria` gives for every scale i of a public
grid C_kji, about -2 log evidence (half of it from left-out rows). With a public prior on the
scales, pi_ji = exp(-penalty_ji / 2) of sum 1, and public weights v_j of the structures,

    L_kj = log sum_i pi_ji exp(-C_kji / 2),    p_kj = v_j exp(L_kj) / sum_l v_l exp(L_kl),

and the model of the task is sum_j p_kj w_kj. For squared loss w_kj averages the modes under
structure j over the scales, with the terms of L_kj as weights; for the logistic loss it is the mode
at the best scale. Going alone, a task averages by evidence itself, and over the ridge of
`LocalOnly` too: with about as many rows as features, left-out rows determine little. All of it is
local and free, and no number depends on another task's rows.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from .._runtime.threads import run_blocks
from ..local.grams import largest_eigenvalues
from ..local.laplace import ClassPriors, two_scales
from ..local.posterior import Priors, mixed_moments, moments
from ..local.prior import (
    SNR,
    VOTE_RANGE,
    LocalModels,
    alone_scale,
    alone_weight,
    best_scale,
    criteria_of,
    even_root,
    weak_penalty,
)
from ..privacy.moments import root_of
from ..tables.datafits import events

# Centre of the weak prior on log10(snr) of differences to a centre, for squared and log-losses.
# Chosen from three on the tables of the role "tuning" in ``benchmarks/accuracy``, and four of tasks
# with few rows around a mean.
_AROUND = {False: -1.0, True: -2.0}
# Penalty on the distance of an update from its centre, as a part of a task's own curvature.
_STRENGTH, _STRENGTH_OF_CLASSES = 0.05, 0.005
_BLOCK = 1 << 16  # numbers of criteria that a thread sums at a time
_LOOSE = 1e-3  # Newton steps of models of which only the direction counts


class Measured(NamedTuple):
    """What is known of one structure; `criterion` goes without the prior on the scale."""

    local: LocalModels
    root: np.ndarray
    scores: np.ndarray  # at the mode
    criterion: np.ndarray
    level: np.ndarray


class Evidence:
    """Criteria and models of all tasks of a table, of one structure after another.

    `n_tasks` is how many tasks shaped the structures. `own_centres` (n_tasks, d) are centres of the
    tasks, of a relation, in place of those of structures that have one. With `own_units` a task
    multiplies centres by the length of its own model, `units`.
    """

    def __init__(self, table, n_tasks, *, fit_intercept, own_centres=None, own_units=False):
        self.table, self.n_tasks, self.log_loss = table, n_tasks, table.has_log_loss
        self.own_centres, self.own_units = own_centres, own_units
        self.fit_intercept, self._known = fit_intercept, {}

    @cached_property
    def prior_scales(self):
        """Scales of priors I / d whose regularisation is `_STRENGTH` times the curvature."""
        table = self.table
        curvature = largest_eigenvalues(table, self.fit_intercept)
        C, strength = table.n_classes, _STRENGTH
        if C == 0 and table.has_log_loss:
            strength = _STRENGTH_OF_CLASSES * events(table) / table.sizes
        elif C:  # a row counts a quarter in logistic loss, and for each of C classes 1 / C
            strength = _STRENGTH_OF_CLASSES / (4.0 if C == 2 else C)
        return table.n_features / np.maximum(strength * curvature, 1e-300)

    @cached_property
    def alone_scale(self):
        """Scale of the models of `LocalOnly`, (n_tasks,)."""
        return alone_scale(self.table, self.fit_intercept)

    @cached_property
    def units(self):
        """Lengths of the models that `around` 0 gives, of all classes together, (n_tasks,)."""
        W = self.around(None, self.prior_scales, _LOOSE)[0]
        W = W.reshape(len(W), -1)
        with np.errstate(over="ignore"):
            found = np.sqrt(np.einsum("kj,kj->k", W, W))
        return np.where(np.isfinite(found), found, 0.0)

    def around(self, centre, kappa, tol):
        """Models around a centre, or one of each task, and priors I / d of scales. -> W, b"""
        local = LocalModels(self.table, centre=centre, fit_intercept=self.fit_intercept)
        return local.solve(even_root(self.table.n_features), kappa, tol)

    def updates(self, centre):
        """From a centre to models around it, (n_tasks, d) or (n_tasks, C, d); in own units."""
        if not self.own_units:
            return self.around(centre, self.prior_scales, _LOOSE)[0] - centre
        centres = np.multiply.outer(self.units, centre)
        D = self.around(centres, self.prior_scales, _LOOSE)[0] - centres
        unit = _like(self.units, D)
        return np.divide(D, unit, out=np.zeros_like(D), where=unit > 0.0)

    def shares(self, structures):
        """p_kj, (n_tasks, n_structures); NaN for tasks whose rows overflow."""
        L = self._logs(structures)
        with np.errstate(invalid="ignore"):
            return np.exp(L - logsumexp(L, axis=1, keepdims=True))

    def total(self, structures):
        """log sum_j v_j exp(L_kj), (n_tasks,)."""
        return logsumexp(self._logs(structures), axis=1)

    def mean(self, structures):
        """`total` of weights that sum to 1."""
        return self.total(structures) - np.log(sum(s.weight for s in structures))

    def likelihood(self, structures, local):
        """`total`, by the evidence of the rows alone, as `local` has it, (n_tasks,)."""
        shapes, logs = {}, []
        for s in structures:
            shapes.setdefault(s.moment.tobytes(), []).append(s)
        for of_shape in shapes.values():
            centres = np.stack([s.centre for s in of_shape])
            priors = np.stack([-0.5 * self._penalty(s) for s in of_shape])
            found = local.about(root_of(of_shape[0].moment), centres, priors)
            logs += [found[:, j, j] + np.log(s.weight) for j, s in enumerate(of_shape)]
        logs = np.stack(logs, axis=1)
        logs[np.isnan(logs)] = -np.inf
        return logsumexp(logs, axis=1)

    def short(self, structures):
        """Log evidence of models alone with the prior of the scales of "mean", (n_tasks,)."""
        named = {s.name: s for s in structures}
        return _log_sums(self._measured(named["alone"]).criterion, self._penalty(named["mean"]))

    def _logs(self, structures):
        self._measure(structures)
        L = np.stack(
            [
                np.log(s.weight) + _log_sums(self._measured(s).criterion, self._penalty(s))
                for s in structures
            ],
            axis=1,
        )
        L[np.isnan(L)] = -np.inf
        return L

    def likes(self, structures):
        """log10 of the snr that each task likes best, (n_tasks, n_structures), in -1 ... 1.

        As a part of `VOTE_RANGE`, and by the rows alone: priors on the scale do not count. Around
        a centre the weak one does: few rows do not discriminate there, and fit anything.
        """
        low, high = VOTE_RANGE[self.log_loss]
        best = [
            (self._measured(s).criterion + s.centre.any() * self._weak(s)).argmin(axis=1)
            for s in structures
        ]
        likes = np.clip(np.log10(SNR)[np.stack(best, axis=1)], low, high)
        return (2.0 * likes - low - high) / (high - low)

    def models(self, structures, about_centre=False, tol=1e-8):
        """Averages over the structures. -> W (n_tasks, d), b (n_tasks,), or those of several
        classes, and the squared errors of models of squared loss, (n_tasks,)

        With `about_centre` every model is taken less the centre of its structure. Models that
        overflow do not count; a task of which all do has NaN.
        """
        p, total = self.shares(structures), np.zeros(self.table.n_tasks)
        W = b = energies = 0.0
        shapes = [s.moment.tobytes() for s in structures]
        for j in sorted(range(len(shapes)), key=lambda j: shapes.index(shapes[j])):  # one by one
            s = structures[j]
            Wj, bj, *energy = self._modes(s, tol) if self.log_loss else self._averages(s)
            if about_centre:
                Wj = Wj - (self._centre(s) if self.own_units and s.centre.any() else s.centre)
            good = np.isfinite(p[:, j])
            for part in (Wj, bj):
                good &= np.isfinite(part.reshape(len(p), -1)).all(axis=1)
            share = np.where(good, p[:, j], 0.0)
            W = W + _like(share, Wj) * np.where(_like(good, Wj), Wj, 0.0)
            b = b + _like(share, bj) * np.where(_like(good, bj), bj, 0.0)
            for Q in energy:
                energies = energies + share * np.where(good, Q, 0.0)
            total += share
        with np.errstate(all="ignore"):
            return W / _like(total, W), b / _like(total, b), energies / total

    def _modes(self, structure, tol):
        known = self._measured(structure)
        known.local._scores[:] = known.scores  # whatever was asked before
        kappa = best_scale(self._penalised(structure), known.level)
        return known.local.solve(known.root, kappa, tol)

    def _averages(self, structure):
        root, kappa, weights, trust = self._priors(structure)
        return self._measured(structure).local.average(root, kappa, weights, trust=trust)[1:]

    def _priors(self, structure):
        """What the average over the scales of a structure takes; see `LocalModels.average`.

        -> root, kappa, log weights, trust
        """
        root = self._measured(structure).root
        if structure.name == "alone":
            penalty = self._penalty(structure)
            weight = np.log(alone_weight(self.n_tasks, self.table.support))
            weights = np.column_stack([weight, np.tile(-0.5 * penalty, (len(weight), 1))])
            return root, self.alone_scale, weights, 1.0
        return root, None, -0.5 * self._penalised(structure), 0.0

    def moments(self, structures, sums):
        """`Moments` of the slopes of which `models` gives the means, of real targets.

        sums : TaskSums
            Of the table.
        """
        found = []
        for s in structures:
            root, kappa, weights, trust = self._priors(s)
            centre = self._centre(s)
            found.append(moments(sums, Priors(root, weights, kappa, trust=trust, centre=centre)))
        good = np.stack([np.isfinite(part.evidence) for part in found])
        shares = np.where(good, np.nan_to_num(self.shares(structures)).T, 0.0)
        with np.errstate(invalid="ignore"):
            return mixed_moments(found, shares / sum(shares))

    def class_priors(self, structures):
        """Priors of models of classes, of these structures at two scales each."""
        p, priors = self.shares(structures), []
        for s, share in zip(structures, p.T, strict=True):
            level = np.maximum(self._measured(s).level, 1e-300)[:, None]
            kappa = two_scales(self._penalised(s)) / level
            share = np.repeat(0.5 * np.nan_to_num(share)[:, None], 2, axis=1)
            priors.append(ClassPriors(share, kappa, s.moment, self._centre(s)))
        return priors

    def directed(self, structures, about_centre):
        """`models` whose directions are asked for."""
        return self.models(structures, about_centre, _LOOSE)[0]

    def forget(self, structures):
        """Keep what is known of these structures only."""
        keys = {self._key(s) for s in structures}
        self._known = {key: value for key, value in self._known.items() if key in keys}

    def _penalised(self, structure):
        """Criteria with the prior on the scales, (n_tasks, len(SNR))."""
        return self._measured(structure).criterion + self._penalty(structure)

    def _weak(self, structure):
        """The weak prior on the scales: differences to a centre are shorter than models."""
        weak = weak_penalty(self.log_loss)
        if structure.centre.any():
            weak = 0.5 * (np.log10(SNR) - _AROUND[self.log_loss]) ** 2
        if self.table.loss == "poisson":
            weak = weak + self._measured(structure).local.restraint
        return weak

    def _penalty(self, structure):
        """The prior on the scales, normalised, (len(SNR),); of counts of every task."""
        scale, weak = structure.scale, self._weak(structure)
        penalty = scale.penalty + weak if scale.is_hint else scale.penalty
        return penalty + 2.0 * logsumexp(-0.5 * penalty, axis=-1, keepdims=True)

    def _centre(self, structure):
        """Centre of a structure, or those of the tasks; None: 0."""
        if not structure.centre.any():
            return None
        if self.own_units:
            return np.multiply.outer(self.units, structure.centre)
        return structure.centre if self.own_centres is None else self.own_centres

    def _key(self, structure):
        return self.own_units, structure.centre.tobytes(), structure.moment.tobytes()

    def _measured(self, structure):
        self._measure([structure])
        return self._known[self._key(structure)]

    def _measure(self, structures):
        """Have `_known` of these: of squared loss, those of one shape together.

        The first shape last, with which `models` begins: forms of two shapes stay.
        """
        shapes, weak = {}, weak_penalty(self.log_loss)
        for s in structures:
            if self._key(s) not in self._known:
                shapes.setdefault(s.moment.tobytes(), {})[self._key(s)] = s
        for of_shape in reversed(shapes.values()):
            s, *_ = of_shape.values()
            root = root_of(s.moment)
            models = [
                LocalModels(self.table, centre=self._centre(s), fit_intercept=self.fit_intercept)
                for s in of_shape.values()
            ]
            if self.log_loss:
                # The criterion is about a response that belongs to the scores so far: those of zero
                # first, then those of the mode.
                for local in models:
                    local.fit(root, best_scale)
                found = [local.criteria(root) for local in models]
            else:
                found = criteria_of(models, root)
            for key, local, (criterion, level) in zip(of_shape, models, found, strict=True):
                criterion = criterion - weak - local.restraint
                if self.log_loss:
                    criterion += 0.5 * local.excess()[:, None]
                scores = local._scores.copy()
                self._known[key] = Measured(local, root, scores, criterion, level)


def _log_sums(criterion, penalty):
    """log sum_i exp(-(criterion + penalty)_ki / 2), (n_tasks,).

    For some tasks at a time: allocating arrays for all of them takes longer than filling them.
    """
    penalty, out = np.broadcast_to(penalty, criterion.shape), np.empty(len(criterion))

    def block(first, last):
        some = slice(first, last)
        out[some] = logsumexp(-0.5 * (criterion[some] + penalty[some]), axis=1)

    step = max(_BLOCK // criterion.shape[1], 1)
    run_blocks(block, [(first, first + step) for first in range(0, len(out), step)])
    return out


def averaged(found, others, odds):
    """Models and intercepts of tasks, and those of others by their log odds (n_tasks,)."""
    share, mixed = expit(np.nan_to_num(odds)), []
    for one, other in zip(found, others, strict=True):
        p = _like(share, one)
        good = np.isfinite(other)
        mixed.append(np.where(good, (1.0 - p) * one + p * np.where(good, other, 0.0), one))
    return tuple(mixed)


def _like(of_tasks, models):
    """A number of every task, to go with its numbers in `models`."""
    return of_tasks.reshape(-1, *[1] * (models.ndim - 1))
