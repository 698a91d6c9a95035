"""Personal models from the billboard of the rounds and the rows of each task."""

from copy import copy
from dataclasses import replace

import numpy as np
from scipy.special import expit

from .._kernels.average import csr_fits, csr_gram, log_dets
from .._kernels.grams import tridiagonal
from .._kernels.losses import NUMBER
from .._runtime.registers import LANES
from .._runtime.threads import in_order
from ..engine.billboard import Structure, alone
from ..engine.evidence import Evidence
from ..local.average import (
    CLASS_STRENGTHS,
    ROUNDING,
    Candidates,
    averaged_class_models,
    averaged_models,
    determinants,
    held_evidence,
    rows_held,
)
from ..local.centred import CentredTasks, Local, dense_copy, share_of_centre
from ..local.laplace import ClassPriors, class_posterior, free_level
from ..local.posterior import (
    Priors,
    TaskSums,
    by_evidence,
    free_intercept,
    mixed_moments,
    moments,
    own_noise,
    posterior,
    shifted,
)
from ..local.prior import mixed, tempered
from ..local.robust import huber_models
from ..local.updates import is_squared, lengths
from ..tables.table import differences, padded, weighted_sum

_NO_INIT = 2.0  # prior weight of going without a public initial model, against about as much for it
_FEW_ROWS = 3.0  # of the single-task strength, added for log-losses: rows may be separable
_CLEAR = 0.5  # of the signal over the noise of a centre, as long as it may be taken to be
# Squared lengths of a centre over that of a task's own model that its `alone_weight` follows.
_SHORT = 0.02, 4.0
_LONGEST = 256  # rows of a CSR task whose products are held
DENSE_LIMIT = 1 << 20  # coefficients of all tasks are an array up to this many numbers


class PersonalModels:
    """Personal models of the tasks of a table.

    Wide sparse tasks differ from their centre on the columns that occur in their rows only. These
    differences are kept when they are small compared with the rows; otherwise the rows are, and a
    model is computed again when it is asked for. `dense`: all coefficients are an array, `coef`;
    None: unless rows are sparse and wide. `centred`, of this table, is from the rounds, and made
    here where it is missing or for another problem.
    """

    def __init__(self, table, billboard, centred=None, dense=None):
        if billboard.relation is not None:
            table = dense_copy(table)
        billboard = billboard.for_rows(table.is_sparse)
        self.billboard, self.problem = billboard, billboard.problem
        self.which, self.centres = billboard.around(table.tasks)
        if centred is None or centred.problem != billboard.problem:
            centred = CentredTasks(
                differences(table, billboard.init), billboard.problem, self.which
            )
        self.centred, self._given = centred, table
        self.shape = billboard.shape
        self.intercept = np.empty((table.n_tasks, billboard.problem.n_outputs))
        size = table.n_listed * self.centres.shape[1]
        self.dense = not table.is_sparse or size <= DENSE_LIMIT if dense is None else dense
        everybody = np.arange(table.n_tasks)
        # Tasks of their own units multiply the centre by them.
        self._unit = lengths(self.centred) if billboard.own_units else np.ones(table.n_tasks)
        self._hold, self._strength = float(billboard.problem.ridge), self.centred.own_strength
        self._candidates, self._bare, self._stored = None, None, None
        self._shares = {}  # of the priors of classes, by whether they are `_bare`
        self.share = self._unit.copy()  # of the centre, around which a model is solved for
        self.share_of_init = np.ones(table.n_tasks)
        self.share *= share_of_centre(self._strength, self._hold)
        if isinstance(billboard.problem.lam, str) and billboard.problem.lam == "auto":
            around, single = self.centred.own_strength, self.centred.single_strength
            alone_weight = self._alone_weights()
            reaches = billboard.reaches if self.centres.any() else ()
            if self.problem.loss == "squared":
                # Alone a task has its own strength, or any: as where nothing was released.
                reaches = *reaches, (0.0, alone_weight)
                self._candidates = Candidates(around, alone_weight, reaches, self._hold, single)
            elif self.problem.loss == "poisson":
                self._candidates = alone_weight, reaches
            else:
                around = around + _FEW_ROWS * single
                given = alone_weight, reaches, self._hold
                self._candidates = Candidates(around, *given, strengths=CLASS_STRENGTHS)
            if billboard.init is not None:  # which may be a bad one
                self._bare = self._without_init(around, single)
        if self.dense:
            self.coef = self._dense(everybody)
            return
        # Columns and values of a model against the indices and values of the rows.
        C = billboard.problem.n_outputs
        room = 2 * len(table.X.data)
        if (C + 1) * int(self.centred.widths.sum()) <= room:
            self._stored = [None] * table.n_tasks
        averages = self._candidates is not None
        if self._stored is not None or billboard.problem.fit_intercept or averages:
            for local in self._locals(everybody):
                for k, columns, values in self._solved(local):
                    if self._stored is not None:
                        self._stored[k] = columns, values
        else:
            self.intercept[:] = 0.0
        if self._stored is not None:
            self.centred = self._given = self._bare = None

    def posterior(self, width=None):
        """`skpmtl.local.posterior.Posterior` of all tasks, of squared loss."""
        problem, start = self.problem, self.billboard.init
        one, other = self._candidates, None if self._bare is None else self._bare[1]
        if one is None:
            one = Candidates.one(self._strength, self._hold)
        sums = bare = TaskSums(self._given, problem.fit_intercept)
        if start is not None:
            sums = sums.less(start.coef[0], start.intercept[0])
        scale, root = self.centred.scale[:, None], np.ones(sums.mean.shape[1])
        centre = self.centres[self.which] * self._unit[:, None]

        def under(sums, priors):
            return moments(
                sums,
                Priors(
                    root,
                    priors.prior,
                    strength=priors.strength / scale,
                    centre=centre,
                    reach=priors.reach,
                    share=priors.share,
                    rounding=ROUNDING,
                ),
            )

        found = under(sums, one)
        if start is not None:
            found = shifted(found, start.coef[0])
        if other is not None:
            found = [found, under(bare, other)]
            found = mixed_moments(found, by_evidence(found))
        return posterior(free_intercept(found, bare), *own_noise(found, bare, width))

    def class_posterior(self):
        """Of dense models of classes, by attribute; see `skpmtl.local.laplace`."""
        billboard, table, init = self.billboard, self.centred.table, self.billboard.init
        around, scale = self._candidates, self.centred.scale[:, None]
        shares = self._shares.get(False)
        if around is None:
            around = Candidates.one(self._strength, self._hold)
            shares = np.ones(around.prior.shape)
        which = billboard.shaped(self.centres)[self.which]
        reach = around.reach * self._unit[:, None]
        part = 1.0 if self._bare is None else self.share_of_init[:, None]
        priors = [ClassPriors(part * shares, scale / around.strength, None, which, reach)]
        W, b = self.coef, self.intercept if len(self.shape) == 2 else self.intercept[:, 0]
        if init is not None:
            whole = init.coef.reshape(self.shape)
            W, b = W - whole, b - init.intercept.reshape(self.shape[:-1])
            if self._bare is not None:
                own = (1.0 - part) * self._shares[True], scale / self._bare[1].strength
                priors.append(ClassPriors(*own, None, -whole))
        level = free_level if self.problem.fit_intercept else None
        return class_posterior(table, W, b, priors, level)

    def _without_init(self, around, single):
        """-> tasks around 0, and the priors by which they go without the start"""
        alone_weight = np.full(len(self.which), _NO_INIT)
        if self.problem.loss == "squared":
            found = Candidates(around, alone_weight, ((0.0, alone_weight),), self._hold, single)
        elif self.problem.loss == "poisson":
            found = alone_weight, ()
        else:
            found = Candidates(around, alone_weight, (), self._hold, strengths=CLASS_STRENGTHS)
        tasks = copy(self.centred)
        tasks.table = self._given
        return tasks, found

    def _alone_weights(self):
        """Prior weights of the single-task model: larger for a centre that is short compared with
        the task's own model, since tasks then have less in common. If the centre was not shrunk by
        its known noise, its length is reduced by that noise, and bounded by a share of signal over
        noise. Without a centre the weight is 1, that of the model in its place."""
        billboard = self.billboard
        squares = np.einsum("kj,kj->k", self.centres, self.centres)
        if billboard.relation is None:
            signal, alone_weight = billboard.signal[self.which], billboard.alone_weight[self.which]
            squares = squares[self.which]
        else:
            signal = np.full(len(squares), billboard.signal.mean())
            alone_weight = billboard.alone_weight[0]
        with np.errstate(all="ignore"):  # rows that overflow
            if not billboard.own_units:  # in which the task's own model has length 1
                exact = {"n_steps": 200, "tol": 1e-7} if self.problem.loss == "squared" else {}
                squares /= np.maximum(lengths(self.centred, **exact) ** 2, 1e-300)
            least, most = _SHORT
            most = np.clip(_CLEAR * signal / (1.0 - signal), least, most)
            return np.where(
                squares > 0.0, alone_weight / np.clip(signal**2 * squares, least, most), 1.0
            )

    def _average(self, block):
        """Models of a block of tasks with CSR rows, averaged over their candidates; sets their
        shares."""
        f, share, local = self._averaged(block, self.centred, self._candidates)
        self.share[block] = share
        if self.billboard.init is None:
            return local
        b = local.b + self.billboard.init.intercept
        other, _, bare = self._averaged(block, *self._bare)
        part = expit(np.nan_to_num(f - other))
        self.share_of_init[block] = part
        self.share[block] *= part
        each, part = np.repeat(part, np.diff(local.ends)), part[:, None]
        D = each * local.D + (1.0 - each) * bare.D
        return replace(local, D=D, b=part * b + (1.0 - part) * bare.b)

    def _averaged(self, block, centred, found):
        """-> evidence, shares of the centre, `Local` of a block of tasks with CSR rows

        Every candidate is found by steps, from the next one on where its centre is the same, and
        weighted by its evidence: as `skpmtl._kernels.average.class_averages` says, for squared loss
        as in `averages`. Of tasks with many rows Hadamard's bound by columns is its determinant.
        """
        problem = self.problem
        C, squared = problem.n_outputs, problem.loss == "squared"
        held = 0.0 if squared else rows_held(centred.table, C, problem.fit_intercept)
        steps, tol = (1000, 1e-8) if squared else (3000, 1e-4)
        models, reach = [], found.reach[block]
        for s in range(found.strength.shape[1] - 1, -1, -1):
            same = models and np.array_equal(reach[:, s], reach[:, s + 1])
            models.append(
                centred.steps(
                    block,
                    self.centres,
                    found.strength[:, s].copy(),
                    unit=self._unit * found.reach[:, s],
                    n_steps=steps,
                    tol=tol,
                    start=models[-1].D if same else None,
                    rows_held=held,
                )
            )
        models.reverse()
        D, b = np.stack([one.D for one in models]), np.stack([one.b for one in models])
        first, table, sizes = models[0], centred.table, centred.table.sizes[block]
        share = self._unit[block, None] * reach
        rho = found.strength[block] / centred.scale[block, None]
        f, even = np.empty(share.shape), np.empty(share.shape)
        squares = np.empty(len(first.columns))
        _, *csr, rows, offsets = centred._rows
        place, own = np.full(centred.table.n_features, -1), (first.columns, first.ends)
        csr_fits(
            *csr,
            rows,
            offsets,
            centred.table.y,
            block,
            NUMBER[problem.loss],
            held,
            self.centres,
            self.which,
            share,
            rho,
            own,
            D,
            b,
            place,
            f,
            even,
            squares,
            table.counts,
            table.given,
        )
        det, line = np.empty(share.shape), np.zeros(centred.table.n_features)
        for a, n in enumerate(sizes):
            diag, off = squares[first.ends[a] // C : first.ends[a + 1] // C], line
            if n <= _LONGEST:
                K, R = np.zeros((1, padded(n, 4) + 4, padded(n + 1, LANES))), padded(n + 1, LANES)
                csr_gram(
                    *csr,
                    rows,
                    offsets[block[a]],
                    n,
                    problem.fit_intercept,
                    line,
                    K[0],
                    table.counts,
                )
                T = np.zeros((2, 1, R))
                tridiagonal(K, np.array([0, n]), n, *T, np.zeros(R), np.zeros(R))
                diag, off = T[0, 0, :n], T[1, 0]
            log_dets(diag, off, len(diag), even[a] / rho[a], det[a])
        if squared:
            dof = table.support[block] - float(problem.fit_intercept)
            f = 0.5 * dof[:, None] * np.log(2.0 * f + 1e-300)
        f = -f - 0.5 * determinants(C) * det
        weight = found.prior[block] + np.nan_to_num(f, nan=-np.inf)
        top = weight.max(axis=1, keepdims=True)
        weight = np.exp(weight - top)
        whole = weight.sum(axis=1, keepdims=True)
        weight /= whole
        each = np.repeat(weight, np.diff(first.ends), axis=0)
        D, b = weighted_sum(each.T, D), weighted_sum(weight.T, b)
        local = Local(block, first.columns, first.ends, D, b)
        if not squared:
            key = found is not self._candidates
            self._shares.setdefault(key, np.zeros(found.prior.shape))[block] = weight
        evidence = (top + np.log(whole))[:, 0] + held_evidence(held, table.support[block], C)
        return evidence, np.einsum("ks,ks->k", weight, share), local

    def _local(self, block):
        if self._candidates is not None:
            return self._average(block)
        local = self._towards_centre(block)
        if self.billboard.init is not None:
            local.b += self.billboard.init.intercept
        return local

    def _towards_centre(self, block):
        steps, tol = (1000, 1e-8) if self.problem.loss == "squared" else (60, 1e-4)
        return self.centred.steps(
            block,
            self.centres,
            self._strength,
            hold=self._hold,
            unit=self._unit,
            n_steps=steps,
            tol=tol,
        )

    def _locals(self, pick):
        """`Local` of the tasks `pick`, block by block."""
        several = 1 if self._candidates is None else 2 * self._candidates.strength.shape[1]
        several *= 1 + (self._bare is not None)
        return in_order(self._local, self.centred.blocks(pick, several))

    def _solved(self, local):
        """Yield (task, columns, values (n_columns, n_outputs)) of a block of sparse tasks."""
        C = self.problem.n_outputs
        self.intercept[local.pick] = local.b
        for a, k in enumerate(local.pick):
            ends = slice(local.ends[a], local.ends[a + 1])
            columns = slice(local.ends[a] // C, local.ends[a + 1] // C)
            yield int(k), local.columns[columns].copy(), local.D[ends].reshape(-1, C).copy()

    def _weighed(self, centred, found):
        """-> evidence, models (n, n_outputs, d) and intercepts of all tasks, of dense rows"""
        problem, table = self.problem, centred.table
        if problem.loss == "poisson":
            return self._weighed_counts(table, *found)
        given = centred.scale, found, self.centres, self.which, self._unit
        if problem.loss == "squared":
            evidence, W, b = averaged_models(table, problem.fit_intercept, *given)
            return evidence, W[:, None], b[:, None]
        *models, shares = averaged_class_models(table, problem.fit_intercept, problem.loss, *given)
        self._shares[found is not self._candidates] = shares
        return models

    def _weighed_counts(self, table, alone_weight, reaches):
        """`_weighed` of counts: averages by `Evidence`, around multiples of each task's centre.

        `reaches`: multiples, and their prior weights.
        """
        d, own = table.n_features, self._unit[:, None] * self.centres[self.which]
        found = [alone(d)] + [Structure("mean", w, c * own, alone(d).moment) for c, w in reaches]
        found[0].weight = alone_weight
        table = tempered(table, self.problem.fit_intercept)
        evidence = Evidence(table, table.n_tasks, fit_intercept=self.problem.fit_intercept)
        W, b, _ = evidence.models(found)
        return evidence.total(found), W[:, None], b[:, None]

    def _huber_models(self):
        """Coefficients of tasks alone; a strength that is no number is in units of the task."""
        table, relative = self.centred.table, isinstance(self.problem.lam, str)
        strength = (self._strength + self._hold) / (self.centred.scale * table.support)
        W, b, _ = huber_models(table, self.problem.fit_intercept, strength, relative)
        if self.billboard.init is not None:
            W, b = W + self.billboard.init.coef[0], b + self.billboard.init.intercept[0]
        self.intercept[:] = b[:, None]
        return W

    def _dense(self, everybody):
        """Coefficients (n_tasks, *shape) of all tasks."""
        centred, C = self.centred, self.problem.n_outputs
        if centred.table.loss == "huber":
            return self._huber_models()
        if self._candidates is not None and not centred.table.is_sparse:
            found = self._weighed(centred, self._candidates)
            W, b = found[1], found[2]
            if self.billboard.init is not None:
                public_init = self.billboard.init
                found = found[0], W + public_init.coef, b + public_init.intercept
                bare = self._weighed(*self._bare)
                self.share_of_init = expit(np.nan_to_num(found[0] - bare[0]))
                W, b = mixed([found, bare])
            self.intercept[:] = b
            return W.reshape(len(W), *self.shape)
        if is_squared(centred):
            W, b = self._weighed(centred, Candidates.one(self._strength, self._hold))[1:]
            if self.billboard.init is not None:
                W, b = W + self.billboard.init.coef, b + self.billboard.init.intercept
            self.intercept[:] = b
            return W[:, 0]
        centres = self.billboard.shaped(self.centres)
        coef = np.empty((len(self.which), *self.shape))
        for local in self._locals(everybody):
            pick = local.pick
            coef[pick] = centres[self.which[pick]]
            coef[pick] *= self.share[pick].reshape(-1, *[1] * len(self.shape))
            if self.billboard.init is not None:
                whole = self.billboard.init.coef.reshape(self.shape)
                coef[pick] += np.multiply.outer(self.share_of_init[pick], whole)
            if centred.table.is_sparse:
                for k, columns, values in self._solved(local):
                    coef[k].reshape(C, -1)[:, columns] += values.T
            else:
                self.intercept[pick] = local.b
                coef[pick] += local.D.reshape(len(pick), *self.shape)
        return coef

    def differences(self, pick):
        """Yield (task, columns, values) of the tasks at the positions `pick`, sparse only."""
        if self._stored is not None:
            for k in pick:
                yield (int(k), *self._stored[k])
            return
        for local in self._locals(np.asarray(pick)):
            yield from self._solved(local)

    def task_coef(self, k):
        """Coefficients of one task, of shape `shape`."""
        if self.dense:
            return self.coef[k].copy()
        centres = self.billboard.shaped(self.centres)
        coef = centres[self.which[k]] * self.share[k]
        if self.billboard.init is not None:
            coef += self.share_of_init[k] * self.billboard.init.coef.reshape(self.shape)
        for _, columns, values in self.differences([k]):
            coef.reshape(self.problem.n_outputs, -1)[:, columns] += values.T
        return coef

    def scores(self, X, k):
        """Scores (n_rows, n_outputs) of CSR rows under the model of task k."""
        shared = self.centres[self.which[k]].reshape(X.shape[1], -1)
        out = self.share[k] * (X @ shared)
        if self.billboard.init is not None:
            out += self.share_of_init[k] * (X @ self.billboard.init.coef.T)
        for _, columns, values in self.differences([k]):
            out += X[:, columns] @ values
        return out + self.intercept[k]
