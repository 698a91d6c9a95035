"""Task side of the rounds: lengths of models, and clipped updates."""

import numpy as np

from ..exchange.protocol import TaskSide
from ..local.centred import CentredTasks, dense_copy
from ..local.updates import ProximalUpdates, lengths
from ..tables.table import differences, row_products
from .plan import bins, sum_of_bins

_PROX_STEPS, _PROX_TOL = 12, 1e-3  # of the accelerated steps of one round


class RoundsTaskSide(TaskSide):
    """What the tasks of a table answer in the rounds.

    `which` (n_tasks,) is the centre of each task, or, with dense rows, `relation` is what it is
    instead. Models are differences to `public_init`.
    `centred` serves the rounds and the personalisation, `updates` (`ProximalUpdates`, or what
    answers in the same way) is what the tasks send.
    """

    def __init__(self, table, problem, which, relation=None, public_init=None):
        self.to, self._rows = which, None
        if relation is not None:
            table, which = dense_copy(table), np.arange(table.n_tasks)
            self.to, self._rows = relation.weights(table.tasks), relation.rows(table.tasks)
        self.table, self._unit = table, None
        self.centred = CentredTasks(differences(table, public_init), problem, which)
        self.updates = ProximalUpdates(self.centred, n_steps=_PROX_STEPS, tol=_PROX_TOL)

    def unit(self):
        """Length of the model of every task, from its rows alone."""
        if self._unit is None:
            self._unit = lengths(self.centred)
        return self._unit

    def answer(self, query):
        if query.statistic == "length":
            return sum_of_bins(self.contributions(query), None)
        total, clip_norm = np.zeros(query.public["centre"].shape), query.public["clip_norm"]
        pick = np.arange(self.table.n_tasks) if query.pick is None else query.pick
        unit = self.unit() if query.public["own_units"] else None
        centres = self.around(query.public["centre"])
        self.updates.sum_of_updates(pick, centres, clip_norm, total, unit, self.to)
        return {"update": total}

    def contributions(self, query):
        """What each task contributes: "update" (n, size) or "bins" (n, 81)."""
        if query.statistic == "length":
            sent = bins(self.unit())
            return {"bins": sent if query.pick is None else sent[query.pick]}
        clip_norm, centres = query.public["clip_norm"], self.around(query.public["centre"])
        pick = np.arange(self.table.n_tasks) if query.pick is None else query.pick
        sent = np.empty((len(pick), centres.shape[1]))
        unit, related = self.unit() if query.public["own_units"] else None, self._rows is not None
        to = np.zeros(self.table.n_tasks, dtype=np.int64) if related else self.to
        for i, k in enumerate(pick):
            total = np.zeros((1, centres.shape[1]) if related else centres.shape)
            one = pick[i : i + 1]
            self.updates.sum_of_updates(one, centres, clip_norm, total, unit, to)
            sent[i] = total[to[k]]
        return {"update": sent}

    def around(self, centres):
        """Centres of `centred.which`, from those that are common to all."""
        return centres if self._rows is None else row_products(self._rows, centres)
