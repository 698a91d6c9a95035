"""The task side of groups: who belongs to which is a task's own posterior, and never sent.

With log-losses a task expands its likelihood at its model under the structures
(`skpmtl.local.laplace.Expansion`).
"""

from functools import cached_property

import numpy as np
from scipy.special import expit, logsumexp

from ..local.laplace import ClassPriors, Expansion, two_scales
from ..local.posterior import Priors, mixed_moments, moments
from ..local.prior import LocalModels, VotedScale, best_scale, even_root
from ..privacy.moments import directions, root_of
from ..tables.table import row_products
from .groups import IN_GROUPS, MOST_GROUPS, cells_of, parts_of_vector, scales
from .levels import TaskLevels

_LESS_SHRUNK = 10.0  # times the scale of the vote, of models whose cell is sent
_IN, _OUT = np.log(IN_GROUPS), np.log(1.0 - IN_GROUPS)


class Members:
    """Groups, with the structures that tasks have besides, for the tasks of an `Evidence`."""

    def __init__(self, evidence):
        self.evidence, self.table = evidence, evidence.table
        self._even, self._classes = even_root(self.table.n_features), self.table.n_classes > 0
        self._known = self._bare = (None, None)

    @cached_property
    def levels(self):
        return TaskLevels(self.table)

    def _under(self, structures, models=None):
        """Models under the structures, what these show of levels, and `LocalModels` by which
        centres are compared; made once. `models`: those of `Evidence.models`, where they are known.
        """
        if self._known[0] is not structures:
            W, _, energies = self.evidence.models(structures) if models is None else models
            self._known = structures, (W, self.levels.shown(W, energies), self.expanded(W))
        return self._known[1]

    def expanded(self, W):
        """`LocalModels`; of log-losses those of the expansion at these slopes."""
        if not self.table.has_log_loss:
            return LocalModels(self.table, fit_intercept=self.evidence.fit_intercept)
        score = self.levels.scores(np.where(np.isfinite(W), W, 0.0))
        return Expansion(self.table, score, self.evidence.fit_intercept)

    def coordinates(self, public):
        """Models less a centre in a public basis, (n_tasks, k)."""
        return row_products(self._less_shrunk(public), public["basis"])

    def _less_shrunk(self, public):
        """Models less a centre, (n_tasks, d)."""
        root, centre = root_of(public["moment"]), public["centre"]
        own = centre if centre.any() else None
        scale = VotedScale(public["snr_centre"], public["snr_spread"])
        local = LocalModels(
            self.table,
            fit_intercept=self.evidence.fit_intercept,
            centre=own,
            restrained=scale.is_hint,
        )
        if self.table.has_log_loss:  # the criterion is about a response at the scores so far
            local.fit(root, best_scale)
        criterion, level = local.criteria(root)
        kappa = _LESS_SHRUNK * best_scale(criterion + scale.penalty, level)
        return local.solve(root, kappa, 1e-3)[0] - centre

    def reaches(self, public):
        """Sizes of these, (n_tasks,)."""
        return np.linalg.norm(self.coordinates(public), axis=1)

    def cells(self, public):
        """See `cells_of`, (n_tasks, 10)."""
        D = None
        if public["basis"].size or self.table.has_log_loss:
            D = self._less_shrunk(public)
        W = None if D is None else D + public["centre"]
        away = self.levels.own(W) - self.levels.pooled(public["level"])
        k = public["basis"].size
        Z = row_products(D, public["basis"]) if k else np.zeros((len(away), 0))
        return cells_of(Z, public["size"], away / public["reach"])

    def bare(self, structures):
        """Log evidence of the slopes of the structures without groups, (n_tasks,)."""
        if self._bare[0] is not structures:
            local = self._under(structures)[2]
            self._bare = structures, self.evidence.likelihood(structures, local)
        return self._bare[1]

    def _of_levels(self, structures, groups, level):
        """Log density of the level of a task about those of the groups, (n_tasks, K), and about
        the pooled one, (n_tasks,); 0 where levels are pooled over all groups."""
        if groups.levels is None or level is None:
            return 0.0, 0.0
        shown = self._under(structures)[1]
        likely = [self.levels.likely(shown, own) for own in groups.own_levels(level)]
        return np.stack(likely, axis=1), self.levels.likely(shown, level)

    def evidences(self, billboard, candidates, bare):
        """Log evidence of each candidate, after that of the structures where `bare` is asked."""
        structures = billboard.structures
        slopes, evidences = self.bare(structures), []
        for groups, logs in zip(candidates, self._parts(structures, candidates), strict=True):
            own, pooled = self._of_levels(structures, groups, billboard.level)
            ungrouped = slopes + pooled
            evidences += [ungrouped] if bare and not evidences else []
            evidences.append(np.logaddexp(_IN + logsumexp(logs + own, axis=1), _OUT + ungrouped))
        return np.stack(evidences, axis=1)

    def _parts(self, structures, candidates):
        """log pi_j + log evidence of slopes about each centre, (n_tasks, K), of every candidate."""
        sets = {g.centres.tobytes(): g.centres for g in candidates if not g.levels_alone}
        if not sets:
            yield from (self.bare(structures)[:, None] + g.log_weights for g in candidates)
            return
        ends = np.cumsum([0] + [len(c) for c in sets.values()])
        place = dict(zip(sets, zip(ends[:-1], ends[1:], strict=True), strict=True))
        whole = np.vstack(list(sets.values()))
        priors = {
            g.spreads.tobytes(): g.even_scales(self._classes)
            for g in candidates
            if not g.levels_alone
        }
        used = {key: prior for key, prior in priors.items() if np.isfinite(prior).any()}
        energies, local = {}, self._under(structures)[2]
        if used:
            E = local.about(self._even, whole, np.stack(list(used.values())))
            energies = {key: E[:, :, p] for p, key in enumerate(used)}
        shaped = None
        if any(g.spreads[0] > 0 for g in candidates):
            root = root_of(candidates[0].moment)
            shaped = local.about(root, whole, scales(0, self._classes)[None])[:, :, 0]
        for g in candidates:
            columns = slice(*place[g.centres.tobytes()])
            E = energies.get(g.spreads.tobytes())
            E = -np.inf if E is None else E[:, columns]
            if g.spreads[0] > 0:
                E = np.logaddexp(E, np.log(g.spreads[0]) + shaped[:, columns])
            yield np.where(np.isnan(E), -np.inf, E) + g.log_weights

    def directions(self, billboard, groups, take):
        """Responsibilities, and these times directions of models from the centres, and levels.

        ``take(tasks, x)`` receives x (n, 12 * (d + 2)) of some tasks at a time.
        """
        structures, level = billboard.structures, billboard.level
        own, pooled = self._of_levels(structures, groups, level)
        ungrouped = self.bare(structures) + pooled + _OUT
        K, m = len(groups.counts), self.table.n_tasks
        of_slopes, of_levels = parts_of_vector(groups)
        W, _, local = self._under(structures)
        away = np.zeros((m, K))
        if level is not None:
            targets = self.levels.own(W)
            away = np.stack(
                [targets - self.levels.pooled(part) for part in groups.own_levels(level)], axis=1
            )
            away = np.nan_to_num(np.clip(away / groups.reach(level), -1.0, 1.0))

        def send(tasks, logs, D):
            logs = logs + own[tasks] + groups.log_weights + _IN
            logs = np.column_stack([logs, ungrouped[tasks]])
            r = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))[:, :-1]
            x = np.zeros((len(tasks), MOST_GROUPS, self.table.n_features + 2))
            x[:, :K, 0] = r
            if D is not None:
                x[:, :K, 1:-1] = of_slopes * r[:, :, None] * D
            x[:, :K, -1] = of_levels * r * away[tasks]
            take(tasks, x.reshape(len(x), -1))

        if groups.levels_alone:
            every = np.arange(m)
            send(every, np.tile(self.bare(structures)[:, None], (1, K)), None)
            return
        shaped = None
        if groups.spreads[0] > 0:
            E = local.about(root_of(groups.moment), groups.centres, scales(0, self._classes)[None])
            shaped = np.log(groups.spreads[0]) + E[:, :, 0]

        def some(tasks, evidence, W, b, energies):
            logs = evidence[:, :, 0]
            if shaped is not None:
                logs = np.logaddexp(logs, shaped[tasks])
            D = directions((W - groups.centres).reshape(-1, W.shape[2])).reshape(W.shape)
            send(tasks, logs, D)

        local.about(self._even, groups.centres, groups.even_scales(self._classes)[None], some)

    def models(self, structures, groups, level=None):
        """Averages over structures and groups. -> W, b, energies, and membership (n_tasks, K + 1)

        The last column of the membership is that of no group.
        """
        (*models,) = self.evidence.models(structures)
        m, K = self.table.n_tasks, len(groups.counts)
        if not K:
            return *models, np.ones((m, 1))
        local = self._under(structures, models)[2]
        own, pooled = self._of_levels(structures, groups, level)
        if groups.levels_alone:
            logs = own + groups.log_weights + _IN
            logs = np.column_stack([logs, pooled + np.full(m, _OUT)])
            return *models, np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        own = np.broadcast_to(own, (m, K))
        parts = list(self._priors(groups))
        logs = np.full((m, 1 + K * len(parts)), -np.inf)
        logs[:, 0] = self.bare(structures) + pooled + _OUT
        means = [[part] for part in models]
        for i, (root, prior) in enumerate(parts):
            columns = slice(1 + i * K, 1 + (i + 1) * K)
            of_part = [np.zeros(np.shape(part)) for part in models]

            def take(tasks, evidence, W, *numbers, columns=columns, of_part=of_part):
                E = evidence[:, :, 0] + own[tasks] + groups.log_weights + _IN
                E[~np.isfinite(W).all(axis=2) | ~np.isfinite(E)] = -np.inf
                logs[tasks, columns] = E
                top = E.max(axis=1, keepdims=True)
                r = np.exp(E - np.where(np.isfinite(top), top, 0.0))
                r /= np.maximum(r.sum(axis=1, keepdims=True), 1e-300)
                of_part[0][tasks] = np.einsum("nk,nkj->nj", r, np.where(r[:, :, None] > 0, W, 0))
                for out, part in zip(of_part[1:], numbers, strict=True):
                    out[tasks] = (r * np.where(r > 0, part, 0.0)).sum(axis=1)

            local.about(root, groups.centres, prior[None], take)
            for mean, part in zip(means, of_part, strict=True):
                mean.append(part)
        logs[np.isnan(logs)] = -np.inf
        logs[~np.isfinite(logs).any(axis=1), 0] = 0.0
        p = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        p = p / p.sum(axis=1, keepdims=True)
        share = np.column_stack([p[:, 0], p[:, 1:].reshape(m, -1, K).sum(axis=2)])
        W, b, energies = (
            sum(_times(w, part) for w, part in zip(share.T, parts, strict=True)) for parts in means
        )
        membership = p[:, 1:].reshape(m, -1, K).sum(axis=1)
        return W, b, energies, np.column_stack([membership, p[:, 0]])

    def moments(self, structures, groups, sums, level=None):
        """`Moments` of the slopes of which `models` gives the means; `sums`: `TaskSums`."""
        mixture = self.evidence.moments(structures, sums)
        if groups.levels_alone or not len(groups.counts):
            return mixture
        of_levels, pooled = self._of_levels(structures, groups, level)
        logs, m = self.bare(structures) + pooled + _OUT, self.table.n_tasks
        of_levels = np.broadcast_to(of_levels, (m, len(groups.counts))).T
        for root, prior in self._priors(groups):
            weights = np.tile(prior, (m, 1))
            own_weights = groups.log_weights[:, None] + _IN + of_levels
            for centre, own in zip(groups.centres, own_weights, strict=True):
                other = moments(sums, Priors(root, weights, centre=centre))
                p = expit(np.nan_to_num(other.evidence + own - logs, nan=-np.inf))
                mixture = mixed_moments([mixture, other], np.stack([1.0 - p, p]))
                logs = np.logaddexp(logs, other.evidence + own)
        return mixture

    def class_priors(self, structures, groups, membership):
        """As `Evidence.class_priors`, with those about the centres by membership."""
        priors = self.evidence.class_priors(structures)
        if groups.levels_alone or not len(groups.counts):
            return priors
        for prior in priors:
            prior.share = prior.share * membership[:, -1:]
        local = LocalModels(self.table, fit_intercept=self.evidence.fit_intercept)
        scale = np.maximum(local.criteria(self._even)[1], 1e-300)[:, None]
        kappa = two_scales(-2.0 * groups.even_scales(self._classes)[None]) / scale
        even = np.full(self.table.n_features, 1.0 / self.table.n_features)
        for share, centre in zip(membership.T, groups.centres, strict=False):
            share = np.repeat(0.5 * share[:, None], 2, axis=1)
            priors.append(ClassPriors(share, kappa, even, centre))
        return priors

    def _priors(self, groups):
        """Shapes and scales of models about the centres."""
        yield self._even, groups.even_scales(self._classes)
        if groups.spreads[0] > 0:
            yield root_of(groups.moment), np.log(groups.spreads[0]) + scales(0, self._classes)


def gain(membership):
    """Log evidence of structures and groups together, less that of the structures, (n_tasks,).

    Zero where there are no groups.
    """
    if membership.shape[1] == 1:
        return np.zeros(len(membership))
    return _OUT - np.log(np.maximum(membership[:, -1], 1e-300))


def _times(weight, part):
    """Weights (n_tasks,) times numbers of tasks; what has no weight need not be finite."""
    weight = weight.reshape(-1, *[1] * (np.ndim(part) - 1))
    return weight * np.where(weight > 0, part, 0.0)
