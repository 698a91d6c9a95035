"""Algorithm 1 of Hu, Wu and Smith, and the methods that its experiments compare.

`curator` is the global learner, lines 2 to 9; `LocalTasks` are the clients, lines 4 to 6 and 11 to
14. A row of `METHODS` says what distinguishes a method:

=================  ==============  ======================  =========  ========================
method             steps start at  a task sends            penalty    the sum is divided by
=================  ==============  ======================  =========  ========================
"algorithm-1"      its w_k         w_k new - w_k old       lam        \\|S_t\\|, as printed
"unbiased"         its w_k         w_k new - w_k old       lam        m
"stateful"         its w_k         w_k new - w~            lam        \\|S_t\\|
"fedavg"           w~              w new - w~              none       \\|S_t\\|
"fedprox"          w~              w new - w~              lam        \\|S_t\\|
"ppsgd"            w~ and theta_k  movement of w           on theta_k \\|S_t\\|
"concatenated"     its w_k         w_k new - w_k old       lam        1, one part for a task
"local"            its w_k         nothing                 none
=================  ==============  ======================  =========  ========================

"stateful" is the update of the authors' code, without its other differences from the paper.
"""

import math
import tempfile
from dataclasses import dataclass

import numpy as np

from ...exchange.protocol import PublicDraw, Query, TaskSide
from ...exchange.sums import clipped_sum
from ...privacy.mechanisms import clip_rows

__all__ = ["METHODS", "LocalTasks", "Method", "curator", "finetuned"]


@dataclass(frozen=True)
class Method:
    """What distinguishes a method, see the table above.

    Parameters
    ----------
    own : bool
        Whether steps start at the task's own model, which then is its result.
    sends : {"own", "shared", "nothing"}
        What the new model is compared with in what a task sends.
    penalty : bool, default=True
        Whether local steps have the mean regularisation.
    over_tasks : bool, default=False
        Whether sums are divided by the number of all tasks.
    parts : bool, default=False
        Whether every task has its own part of what is released.
    split : bool, default=False
        Whether a model is w + theta_k.
    """

    own: bool
    sends: str
    penalty: bool = True
    over_tasks: bool = False
    parts: bool = False
    split: bool = False


METHODS = {
    "algorithm-1": Method(True, "own"),
    "unbiased": Method(True, "own", over_tasks=True),
    "stateful": Method(True, "shared"),
    "fedavg": Method(False, "shared", penalty=False),
    "fedprox": Method(False, "shared"),
    "ppsgd": Method(False, "shared", split=True),
    "concatenated": Method(True, "own", parts=True),
    "local": Method(True, "nothing", penalty=False),
}


def curator(plan, start, watch=None):
    """The global learner: a generator of queries, as `skpmtl.exchange.run` takes them.

    Parameters
    ----------
    plan : PMTLPlan
    start : ndarray (size,)
        w~ of round 0, public.
    watch : callable, default=None
        ``watch(t, shared)`` after round t = 1, ..., T.

    Yields
    ------
    PublicDraw of S_t, where a part of the tasks is drawn, and Query for "update".

    Returns
    -------
    shared : ndarray (size,), or (m, size) where every task has its own part, or (r, size) with a
        relation of rank r
    lengths : list of float
        Of the released updates, round by round.
    """
    method, m = METHODS[plan.method], plan.n_tasks
    clip_norm = math.inf if plan.noise_multiplier is None else plan.clip_norm
    shared, combine = start.copy(), clipped_sum("update", clip_norm)  # w~^0
    if method.parts:
        shared, combine = np.tile(start, (m, 1)), _side_by_side(clip_norm)
    elif plan.relation is not None:
        places = plan.relation.places
        shared = np.outer(places.sum(axis=0) * plan.relation.largest, start)
        combine = clipped_sum("update", clip_norm, places)
    lengths = []
    for t in range(plan.n_rounds):
        selected = None  # S_t: all tasks
        if plan.n_sampled < m:
            selected = (yield PublicDraw(plan.draw))["drawn"]
        released = yield Query(
            "update",
            {"shared": shared},
            {"update": plan.mechanism_of(shared.size)},
            combine,
            plan.denominator,
            selected,
        )
        shared = shared + released["update"].reshape(shared.shape)  # line 8
        lengths.append(float(np.linalg.norm(released["update"])))
        if watch is not None:
            watch(t + 1, shared)
    return shared, lengths


def _side_by_side(clip_norm):
    """``combine`` that does not add: the clipped vectors of all tasks one after the other."""

    def combine(contributions, positions=None):
        vectors = np.array(contributions["update"], dtype=float)
        clip_rows(vectors, clip_norm)
        return {"update": vectors.ravel()}

    return combine


@dataclass(frozen=True)
class GradientSteps:
    """Gradient steps of a task.

    Parameters
    ----------
    n_steps : int
        E of the paper.
    rate : float
        eta of the paper.
    lam : float
    batch_size : int or None
        Rows of a step, drawn with replacement. None: all rows.
    """

    n_steps: int
    rate: float
    lam: float
    batch_size: int | None = None


def kept_models(m, size):
    """Zeros (m, size) for the models of all tasks; beyond 1 GiB in a file that has no name."""
    if m * size <= 2**27:
        return np.zeros((m, size))
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=float, shape=(m, size))


class LocalTasks(TaskSide):
    """The clients of all tasks, each with its model w_k.

    Parameters
    ----------
    method : Method
    model : DenseLinear, SparseLinear or ModuleModel
        With the rows of all tasks.
    outputs : Numbers, TwoClasses or Classes
    steps : GradientSteps
    rng : numpy.random.Generator
        Of the batches; its draws stay with the tasks.
    out : ndarray (m, r), default=None
        Of a `FixedRelation`: its rows times what is released are the centres of the tasks. None:
        all tasks have one centre.

    Attributes
    ----------
    own : ndarray (m, size) or None
        w_k; theta_k of split models.
    """

    def __init__(self, method, model, outputs, steps, rng, out=None):
        self.method, self.model, self.outputs, self.steps = method, model, outputs, steps
        self.rng, self.out, m = rng, out, len(model.sizes)
        self.own = kept_models(m, model.size) if method.own or method.split else None
        if method.own and model.start.any():
            self.own[:] = model.start

    def contributions(self, query):
        m = len(self.model.sizes)
        selected = np.arange(m) if query.pick is None else query.pick
        return {"update": self.take_part(selected, query.public["shared"])}

    def answer(self, query):
        # Block by block: where tasks go one by one, their updates are not held together.
        m = len(self.model.sizes)
        selected = np.arange(m) if query.pick is None else query.pick
        if self.method.parts:
            return super().answer(query)
        total, shared = np.zeros(query.public["shared"].size), query.public["shared"]
        for block in self.model.blocks(selected):
            sent = {"update": self.take_part(block, shared)}
            total += query.combine(sent, block)["update"]
        return {"update": total}

    def centres(self, k, shared):
        """w~ of the tasks k (q,) from what is released. -> (q, size)"""
        if self.out is not None:
            return self.out[k] @ shared
        # With a part of its own for every task w~ is their mean.
        return np.tile(shared.mean(axis=0) if self.method.parts else shared, (len(k), 1))

    def take_part(self, selected, shared):
        """Lines 4 to 6: one round of the selected tasks. -> g_k (q, size), not yet clipped"""
        sent = np.empty((len(selected), self.model.size))
        for k in self.model.blocks(selected):
            part = np.searchsorted(selected, k)
            centre = self.centres(k, shared)
            if self.method.split:
                w, self.own[k] = self.split_update(k, centre, self.own[k])
                sent[part] = w - centre
                continue
            start = self.own[k] if self.method.own else centre
            if self.method.parts:
                start = shared[k]
            w = self.client_update(k, start, centre)
            sent[part] = w - (centre if self.method.sends == "shared" else start)
            if self.method.own:
                self.own[k] = w
        return sent

    def client_update(self, k, w, centre):
        """Lines 11 to 14: E steps of the tasks k (q,) from w (q, size)."""
        lam = self.steps.lam if self.method.penalty else 0.0
        for _ in range(self.steps.n_steps):
            w = w - self.steps.rate * (self.gradient(k, w) + lam * (w - centre))
        return w

    def split_update(self, k, w, theta):
        """PP-SGD (Bietti et al., 2022): steps of both parts on l(w + theta) + lam/2 |theta|^2."""
        for _ in range(self.steps.n_steps):
            g = self.gradient(k, w + theta)
            w, theta = (
                w - self.steps.rate * g,
                theta - self.steps.rate * (g + self.steps.lam * theta),
            )
        return w, theta

    def gradient(self, k, w):
        """Gradients of the losses of the tasks k (q,) at w (q, size), on a batch or on all rows."""
        index = None
        if self.steps.batch_size is not None:
            rank = self.rng.random((len(k), self.steps.batch_size))
            index = (rank * self.model.sizes[k, None]).astype(np.int64)
        rows = self.model.rows(k, index)

        def slope(s):
            return rows.weight[..., None] * (self.outputs.mean(s) - rows.y)

        return self.model.pull(w, rows.X, slope)

    def losses(self, W):
        """Loss of every task at its model W (m, size), without penalties. -> (m,)"""
        found = np.empty(len(W))
        for k in self.model.blocks(np.arange(len(W))):
            rows = self.model.rows(k)
            each = self.outputs.loss(self.model.scores(W[k], rows.X), rows.y)
            found[k] = (rows.weight * each).sum(axis=1)
        return found

    def objective(self, W, shared):
        """f_k(w_k; w~) of equation 8, of every task. -> (m,)"""
        away = W - self.centres(np.arange(len(W)), shared)
        return self.losses(W) + 0.5 * self.steps.lam * (away**2).sum(axis=1)

    def results(self, shared):
        """Models of the tasks after, or during, the rounds. -> (m, size)"""
        m = len(self.model.sizes)
        if self.method.parts:
            return shared.copy()
        if self.own is None:
            return np.broadcast_to(shared, (m, len(shared)))
        return np.add(
            self.own, shared if self.method.split else 0.0, out=kept_models(m, len(self.own[0]))
        )


# ------------------------------------------------------------- personalisation, section 5.3
def finetuned(tasks, W, shared, how, steps):
    """Models after fine-tuning, from W and the rows of each task alone.

    Parameters
    ----------
    tasks : LocalTasks
    W : ndarray (m, size)
        Where the tasks start.
    shared : ndarray
        What was released, as of `curator`.
    how : {"finetune", "mean-reg", "symmetrized-kl", "ewc"}
        The loss alone; plus lam/2 |w - w~|^2; plus lam (KL(p || r) + KL(r || p)), averaged over the
        rows, p and r the probabilities of w and w~; plus lam/2 sum_j F_j (w_j - w~_j)^2 with F the
        mean over the rows of squared gradients of their losses at w~ (elastic weight
        consolidation).
    steps : GradientSteps
        All rows in every step.

    Returns
    -------
    W : ndarray (m, size)
    """
    model, outputs, W = tasks.model, tasks.outputs, W.copy()
    for k in model.blocks(np.arange(len(W))):
        rows, centre = model.rows(k), tasks.centres(k, shared)
        weight = rows.weight[..., None]
        mean_weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        at = model.scores(centre, rows.X) if how == "symmetrized-kl" else None

        def slope(s, rows=rows, weight=weight, at=at, mean_weight=mean_weight):
            found = weight * (outputs.mean(s) - rows.y)
            if at is None:
                return found
            return found + steps.lam * mean_weight * outputs.divergence_slope(s, at)

        def root_of_information(s, rows=rows, mean_weight=mean_weight):
            return np.sqrt(mean_weight) * (outputs.mean(s) - rows.y)

        stiffness = {"finetune": 0.0, "mean-reg": 1.0, "symmetrized-kl": 0.0}.get(how)
        if how == "ewc":
            stiffness = model.pull_squares(centre, rows.X, root_of_information)
        w = W[k]
        for _ in range(steps.n_steps):
            g = model.pull(w, rows.X, slope)
            w = w - steps.rate * (g + steps.lam * stiffness * (w - centre))
        W[k] = w
    return W
