"""The task side of the rounds: what tasks send, and what they keep."""

import numpy as np

from .._kernels.clip import clip_rows
from .._runtime.threads import in_order
from ..exchange.sums import sum_of_clipped
from ..local.updates import add_clipped_columns, add_clipped_rows, in_units
from ..rounds.tasks import RoundsTaskSide

_PLAIN_STEPS = 20  # gradient steps of one round of the other updates
KEEP_MODELS = ("algorithm-1", "stateful", "ppsgd")  # updates with a dense model per task


class RunningModels:
    """Updates by plain gradient steps, some with a model that every task keeps over the rounds.

    ==============  ======================  ======================================
    update          starts from             sends
    ==============  ======================  ======================================
    "algorithm-1"   its model w_k           new w_k - old w_k
    "stateful"      its model w_k           new w_k - w~
    "fedavg"        w~ (no penalty)         new model - w~
    "fedprox"       w~                      new model - w~
    "ppsgd"         w~ + theta_k            movement of the shared part
    ==============  ======================  ======================================

    Parameters
    ----------
    centred : CentredTasks
    update : str
    n_steps : int
    rate : float
        Steps have length rate / (smoothness of the task's objective).

    Attributes
    ----------
    W : ndarray (n_tasks, size) or None
        Running models ("ppsgd": personal parts theta_k).
    """

    def __init__(self, centred, update, size, *, n_steps, rate):
        self.centred, self.update, self.n_steps, self.rate = centred, update, n_steps, rate
        keeps = update in KEEP_MODELS
        if centred.table.is_sparse and keeps:
            raise ValueError(
                f"update={update!r} keeps a dense model for every task, which sparse X is not "
                'meant for: use PrivateMeanRegMTL with update="prox", or X.toarray().'
            )
        self.W = np.zeros((centred.table.n_tasks, size)) if keeps else None
        self.pull = np.zeros_like(centred.pull) if update == "fedavg" else centred.pull

    def sum_of_updates(self, pick, centres, clip_norm, total, unit=None, to=None):
        """As `ProximalUpdates.sum_of_updates`; moves the running models of the tasks `pick`."""
        centred, inside, to = self.centred, 0, self.centred.which if to is None else to

        def shared(block):
            mine = centres[centred.which[block]]
            return mine if unit is None else unit[block, None] * mine

        def solve(block):
            start = None
            if self.W is not None:
                start = self.W[block] - (0.0 if self.update == "ppsgd" else shared(block))
            return centred.steps(
                block, centres, self.pull, unit=unit, n_steps=self.n_steps, accelerate=False,
                rate=self.rate, start=start, trace=self.update == "ppsgd",
            )  # fmt: skip

        for local in in_order(solve, centred.blocks(pick)):
            if centred.table.is_sparse:
                in_units(local.D, unit, np.repeat(local.pick, np.diff(local.ends)))
                whole = np.ones(len(centred.which))
                inside += add_clipped_columns(local, centred, centres, whole, clip_norm, total)
                continue
            block, D = local.pick, local.D.reshape(len(local.pick), -1)
            if self.update == "ppsgd":
                self.W[block] = D - local.descent
                D = local.descent
            elif self.update == "algorithm-1":
                old = self.W[block]
                self.W[block] = shared(block) + D
                D = self.W[block] - old
            elif self.update == "stateful":
                self.W[block] = shared(block) + D
            in_units(D, unit, block)
            inside += add_clipped_rows(D, to[block], clip_norm, total)
        return inside

    def models(self, centres, unit):
        """Personal models that the rounds left, (n_tasks, size), or None."""
        if self.update == "ppsgd":
            return unit[:, None] * centres[self.centred.which] + self.W
        return self.W


class MeanTaskSide(RoundsTaskSide):
    """The task side of the rounds, with intercepts at the end.

    Parameters
    ----------
    est : estimator
    table, problem, which, relation, start
        As of `RoundsTaskSide`.
    """

    def __init__(self, est, table, problem, which, relation=None, start=None):
        update, steps = est._update_name(), est.local_steps
        given = {} if isinstance(steps, str) else {"n_steps": steps}
        super().__init__(table, problem, which, relation, start, **given)
        self._models = None, None
        if update != "prox":
            self.updates = RunningModels(
                self.centred, update, problem.n_outputs * self.table.n_features,
                rate=est.local_learning_rate, **{"n_steps": _PLAIN_STEPS, **given},
            )  # fmt: skip

    @property
    def remembers(self):
        return self.updates.W is not None

    def answer(self, query):
        if query.statistic != "intercept":
            return super().answer(query)
        b, billboard = self.contributions(query)["intercept"], query.public["billboard"]
        shape = len(billboard.centres), b.shape[1]
        return {"intercept": sum_of_clipped(b, query.public["clip_norm"], self.to, shape)}

    def contributions(self, query):
        """As of `RoundsTaskSide`, or "intercept" (n, n_outputs)."""
        if query.statistic != "intercept":
            return super().contributions(query)
        billboard = query.public["billboard"]
        b = self.models(billboard).intercept - query.public["middle"]
        if billboard.init is not None:
            b -= billboard.init.intercept
        clip_rows(b, query.public["clip_norm"], 2, b)
        return {"intercept": b if query.pick is None else b[query.pick]}

    @property
    def state(self):
        """The running models."""
        return {"running": self.updates.W} if self.remembers else {}

    @state.setter
    def state(self, arrays):
        if arrays:
            self.updates.W = arrays["running"]

    def final_models(self, billboard, personalize):
        coef, intercept = personalize()
        own = self.own_models(billboard)
        return coef if own is None else own, intercept

    def own_models(self, billboard):
        """Coefficients that the rounds left with the tasks, for personalization="none"; or None."""
        if not self.remembers or billboard.personalization != "none":
            return None
        unit = self.unit() if billboard.own_units else np.ones(self.table.n_tasks)
        return billboard.models(self.updates.models(self.around(billboard.centres), unit))

    def models(self, billboard):
        """`PersonalModels` under a billboard, made once."""
        if self._models[0] is not billboard:
            self._models = billboard, billboard.personalize(self.table, self.centred)
        return self._models[1]
