"""The task side of several structures: votes, directions, sizes and updates."""

import numpy as np

from ..exchange.protocol import TaskSide
from ..exchange.sums import sum_of_clipped
from ..local.prior import LocalModels, VotedScale, tempered, weak_penalty
from ..privacy.mechanisms import clip_rows
from ..privacy.moments import directions, root_of
from ..tables.table import differences, row_products, scaled
from .billboard import FAMILIES
from .columns import octaves_of_columns, votes_on_columns
from .evidence import Evidence
from .groups import MOST_GROUPS
from .levels import TaskLevels, octave_of
from .members import Members
from .pooled import PooledUpdates
from .residuals import shares_of
from .spectrum import in_blocks
from .votes import differences_of, evidences


class CommonAnswers:
    """What task sides of several structures and of one prior answer alike: about levels, and about
    priors of real targets on evidence.

    Mixin of classes with `table`, `fit_intercept`, `levels`, the `TaskLevels` of their tasks, and
    ``_errors(billboard)``, slopes and squared errors under a billboard.
    """

    def _evidence(self, public):
        priors = public["priors"], public["snr_centre"]
        return differences_of(evidences(self.table, *priors, self.fit_intercept))

    def _block(self, public):
        scale = VotedScale(public["snr_centre"], public["snr_spread"])
        penalty = weak_penalty(False) + scale.penalty
        prior = np.tile(-0.5 * penalty, (self.table.n_tasks, 1))
        local = LocalModels(self.table, fit_intercept=self.fit_intercept)
        W = local.average(root_of(public["moment"]), None, prior)[1]
        return in_blocks(row_products(W, public["basis"]), public["rank"])

    def _window(self, public):
        return octave_of(self.levels.targets)

    def _inside(self, public):
        return self.levels.inside(public["middle"], public["unit"])

    def _zoom(self, public):
        return self.levels.places(public["low"], public["size"])

    def _noise(self, public):
        _, energies = self._errors(public["billboard"])
        return self.levels.noises(energies, public["level"])[:, None]

    def _spread(self, public):
        return self.levels.spreads(*self._errors(public["billboard"]), public["level"])


class StructureTaskSide(CommonAnswers, TaskSide):
    """The task side for the tasks of a table.

    An answer follows from the query and the rows; what is kept is kept for speed. `n_tasks` is that
    of the whole population. `classes_posterior`: final models of classes come with their posterior.
    """

    remembers = False

    def __init__(self, table, n_tasks, fit_intercept, plan, classes_posterior=False):
        self.classes_posterior = classes_posterior
        table = differences(tempered(table, fit_intercept), plan.public_init)
        self.fit_intercept, self.n_tasks = fit_intercept, n_tasks
        self.names, self.plan = plan.names, plan
        self._unscaled, self.column_scale = table, None
        if plan.relation is not None:
            self.relation_rows = plan.relation.rows(table.tasks)
        self._use(table)

    def _use(self, table):
        """From now on answer by this table."""
        self.table, self.related = table, None
        self.evidence = Evidence(table, self.n_tasks, fit_intercept=self.fit_intercept)
        self._last = None, None
        self._levels = self._personal = self._pooled_updates = None
        self.members = Members(self.evidence) if self.plan.groups else None

    def _scale_columns(self, scale):
        """Answer about columns over this public scale; None: as they come."""
        scale = None if scale is None or (scale == 1.0).all() else scale
        if scale is self.column_scale or np.array_equal(scale, self.column_scale):
            return
        self.column_scale = scale
        self._use(scaled(self._unscaled, scale))

    def _relate(self, billboard):
        """Answer about the models of a relation, or in own units, once that is released."""
        if billboard is not None:
            self.evidence.own_units = billboard.own_units
        if billboard is None or billboard.related is None:
            return
        related = row_products(self.relation_rows, billboard.related)
        if not np.array_equal(related, self.related):
            self.related, self._levels, self._personal = related, None, None
            own_centres = np.ascontiguousarray(related[:, :-1])
            self.evidence = Evidence(
                self.table, self.n_tasks, own_centres=own_centres, fit_intercept=self.fit_intercept
            )

    def contributions(self, query):
        """Contributions of every task, by the statistic of the query:

        - "vote": shares p of all structures that a fit may find, and p times scales in -1 ... 1,
          (m, 2 n_names);
        - "moment": direction of its model, (m, d) or (m, C, d), or of its model less its centre;
        - "direction": the same direction in the public basis, (m, n_outputs * rank);
        - "size": log2 of the length of its model, (m,);
        - "update": clipped update of the centre, (m, n_outputs * d);
        - "intercept": of the public slopes, (m, n_outputs);
        - "window", "scale": octaves of its level, and of the scale of its features, (m,);
        - "inside", "zoom": votes on a window, (m, 2), and bins of levels in one, (m,);
        - "pooled": clipped update of the pooled model, (m, d + 1);
        - "comparison": differences of log evidence of families of structures, (m, 2);
        - "evidence": of priors, one after the other, (m, `N_DIFFERENCES`);
        - "block": its model under a prior in a public basis, (m, d);
        - "residuals": shares of rows by octaves of the distance from the mean model, (m, 81);
        - "reach", "cells": size and cell of its model in a public basis, (m,) and (m, 10);
        - "mixtures": differences of log evidence of groups, (m, `N_DIFFERENCES`);
        - "groups": responsibilities, and these times directions about centres, (m, 12 * (d + 2));
        - "columns", "octaves": see `skpmtl.engine.columns`, (m, 1) and (m, d);
        - "offset": means of the columns, without a budget only, (m, d);
        - "noise", "spread": see `skpmtl.engine.levels`, (m, 1), or (m, `N_DIFFERENCES`) of classes.
        """
        self._scale_columns(query.public.get("column_scale"))
        self._relate(query.public.get("billboard"))
        sent = getattr(self, "_" + query.statistic)(query.public)
        return {query.statistic: sent if query.pick is None else sent[query.pick]}

    def answer(self, query):
        relation = self.plan.relation
        if query.statistic == "pooled" and relation is not None:
            sent, pick = self.contributions(query)["pooled"], query.pick
            to = relation.weights(self.table.tasks)[slice(None) if pick is None else pick]
            return {"pooled": sum_of_clipped(sent, query.public["clip_norm"], to)}
        if query.statistic != "groups" or query.pick is not None:
            return super().answer(query)
        self._scale_columns(query.public.get("column_scale"))
        sums = []  # contributions are larger than models: they are added up as they are made
        self._directions(
            query.public,
            lambda tasks, x: sums.append((tasks[0], query.combine({"groups": x})["groups"])),
        )
        return {"groups": sum(part for _, part in sorted(sums, key=lambda pair: pair[0]))}

    def final_models(self, billboard, personalize):
        """Those of ``personalize()``, of which the last query left the slopes."""
        known = self._personal
        if known is None or known[0][0] is not billboard.structures or billboard.init is not None:
            return personalize()
        if billboard.level is None or billboard.groups is not None:
            return personalize()
        W, _, energies = known[1]
        b = self.levels.intercepts(W, energies, billboard.level)
        extras, models = {}, (W if self.column_scale is None else W / self.column_scale, b)
        if self.classes_posterior:
            extras |= billboard.class_posterior(self.evidence, *models)
        return *models, extras

    def _vote(self, public):
        structures = public["billboard"].structures
        self.evidence.forget(structures)
        place = [self.names.index(s.name) for s in structures]
        p, q = np.zeros((2, self.table.n_tasks, len(self.names)))
        p[:, place] = self.evidence.shares(structures)
        q[:, place] = p[:, place] * self.evidence.likes(structures)
        return np.concatenate([p, q], axis=1)

    def _moment(self, public):
        return directions(self._models(public["billboard"]))

    def _direction(self, public):
        U = row_products(self._moment(public), public["basis"])
        return U.reshape(len(U), -1)

    def _size(self, public):
        W = self._models(public["billboard"])
        W = W.reshape(len(W), -1)
        largest = np.abs(W).max(axis=1)
        with np.errstate(divide="ignore"):
            # Divided by their largest entry first: squares of tiny numbers would lose the length.
            scaled = W / np.where(largest > 0, largest, 1.0)[:, None]
            return np.log2(largest) + 0.5 * np.log2(np.einsum("kj,kj->k", scaled, scaled))

    def _update(self, public):
        self.evidence.own_units = public["own_units"]
        D = self.evidence.updates(public["centre"])
        D = D.reshape(len(D), -1)
        clip_rows(D, public["clip_norm"])
        return D

    def _residuals(self, public):
        w, b = np.split(public["mean"], [-1])
        return shares_of(self.table, w[None], b)

    def _intercept(self, public):
        # As good as no freedom for the slopes.
        m = self.table.n_tasks
        scales = np.full(m, 1e-12)
        return self.evidence.around(public["centre"], scales, 1e-8)[1].reshape(m, -1)

    @property
    def levels(self):
        if self._levels is None:
            self._levels = TaskLevels(self.table, self.related)
        return self._levels

    def _scale(self, public):
        return octave_of(self.levels.scales())

    def _columns(self, public):
        return votes_on_columns(self.levels)

    def _octaves(self, public):
        return octaves_of_columns(self.levels)

    def _offset(self, public):
        return self.levels.rows

    @property
    def pooled(self):
        if self._pooled_updates is None:
            capped = self.plan.cap_curvature
            few_rows_overfit = capped or self.table.n_classes > 0
            # Tasks of counts have no separating hyperplane.
            exact = not self.plan.private and few_rows_overfit and self.table.loss != "poisson"
            levels = self.levels if capped else None
            related = self.plan.relation is not None
            self._pooled_updates = PooledUpdates(self.table, levels, exact, related)
        return self._pooled_updates

    def _pooled(self, public):
        theta = public["theta"]
        if self.plan.relation is not None:
            theta = row_products(self.relation_rows, theta)
        theta = np.ascontiguousarray(theta)
        units = (public[name] for name in ("middle", "unit", "scale", "offset"))
        D = self.pooled.at(theta, *units)
        clip_rows(D, public["clip_norm"])
        return D

    def _comparison(self, public):
        structures = public["billboard"].structures
        A, B, C = (
            self.evidence.mean([s for s in structures if s.name in names]) for names in FAMILIES
        )
        # Alone at the scales of differences to a mean, too: they must not win by being shorter.
        C = np.logaddexp(C, self.evidence.short(structures)) - np.log(2.0)
        with np.errstate(invalid="ignore"):
            differences = np.stack([np.logaddexp(A, B) - np.log(2.0) - C, A - B], axis=1)
        return np.clip(np.nan_to_num(differences), -1.0, 1.0)

    def _reach(self, public):
        return self.members.reaches(public)

    def _cells(self, public):
        return self.members.cells(public)

    def _mixtures(self, public):
        asked = public["billboard"], public["groups"], public["bare"]
        return differences_of(self.members.evidences(*asked))

    def _groups(self, public):
        out = np.empty((self.table.n_tasks, MOST_GROUPS * (2 + self.table.n_features)))
        self._directions(public, out.__setitem__)
        return out

    def _directions(self, public, take):
        (groups,) = public["groups"]
        self.members.directions(public["billboard"], groups, take)

    def _errors(self, billboard):
        """Of models under the billboard, which are made once."""
        known, key = self._personal, (billboard.structures, billboard.groups)
        if billboard.groups is not None:  # whose members follow from the level, too
            key = *key, billboard.level
        if known is None or any(a is not b for a, b in zip(known[0], key, strict=False)):
            if billboard.groups is None:
                models = self.evidence.models(billboard.structures)
            else:
                models = Members(self.evidence).models(*key)
            self._personal = known = key, models
        W, _, energies, *_ = known[1]
        return W, energies

    def _models(self, billboard):
        """Models whose directions are asked for, made once."""
        key = billboard.structures, billboard.about_centre
        known = self._last[0]
        if known is None or known[0] is not key[0] or known[1] != key[1]:
            self._last = key, self.evidence.directed(*key)
        return self._last[1]
