"""Algorithms 1 to 3 of Liang et al.: the curator, and the steps of the tasks.

Algorithm 1 is the frame: `curator` has its steps 4 to 6 and `ModelTasks` its steps 3 and 7.
Algorithms 2 and 3 are `low_rank_projection` and `group_sparse_projection` for step 6, and
`ModelTasks.step` for step 7. Models are rows here, W (m, d), and columns in the paper.
"""

import math

import numpy as np

from ...exchange.protocol import Query, TaskSide
from ...privacy.mechanisms import clip_rows

__all__ = [
    "ModelTasks",
    "OwnPart",
    "PROJECTIONS",
    "curator",
    "group_sparse_projection",
    "kept_share",
    "low_rank_projection",
]


# ----------------------------------------------------------------- step 6: what is shared
def kept_share(moments, threshold):
    """S_ii = max(0, 1 - threshold / sqrt(moment)); 0 where a moment is not positive."""
    root = np.sqrt(np.maximum(moments, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(root > 0, 1.0 - threshold / root, 0.0)
    return np.maximum(share, 0.0)


def low_rank_projection(sigma, threshold, n_directions):
    """Steps 6 to 8 of Algorithm 2: M = U S U'.

    Parameters
    ----------
    sigma : ndarray (d, d)
        Noisy second moment.
    threshold : float
        eta lambda.
    n_directions : int
        Leading directions that are kept, min(d, m) as printed; the others become 0.

    Returns
    -------
    M : ndarray (d, d)
    """
    values, U = np.linalg.eigh(sigma)
    share = kept_share(values, threshold)
    share[: len(values) - n_directions] = 0.0  # eigenvalues ascend
    return (U * share) @ U.T


def group_sparse_projection(sigma, threshold, n_directions):
    """Steps 6 and 7 of Algorithm 3: M = S, from the diagonal of the noisy moment alone."""
    return np.diag(kept_share(np.diag(sigma), threshold))


PROJECTIONS = {"low-rank": low_rank_projection, "group-sparse": group_sparse_projection}


# ------------------------------------------------------------------- Algorithm 1, curator
def curator(plan, watch=None):
    """Steps 4 to 6 in T rounds: a generator of queries, as `skpmtl.exchange.run` takes them.

    Parameters
    ----------
    plan : MPMTLPlan
    watch : callable, default=None
        ``watch(t, projection)`` after round t = 1, ..., T, once all tasks have made its step.

    Yields
    ------
    Query for "moment", the second moment of the clipped models; one more after the last round,
    which brings the last projection and asks for nothing.

    Returns
    -------
    moments, projections : lists of ndarray (d, d)
        What was released, and the projections that follow from it.
    """
    moments, projections, M = [], [], None
    d = plan.dimension
    bound = plan.clip_norm if plan.private else math.inf

    def second_moment(contributions, positions=None):
        W = np.array(contributions["model"], dtype=float)
        clip_rows(W, bound)
        return {"moment": W.T @ W}

    for t in range(plan.n_rounds):
        query = Query("model", {"projection": M}, {"moment": plan.mechanism(t)}, second_moment)
        sigma = (yield query)["moment"]  # steps 4 and 5
        if watch is not None and M is not None:
            watch(t, M)
        moments.append(sigma)
        shifted = sigma + plan.shift(t) * np.eye(d)
        M = PROJECTIONS[plan.penalty](shifted, plan.threshold, plan.n_directions)
        projections.append(M)
    yield Query("last", {"projection": M}, {}, lambda contributions, positions=None: {})
    if watch is not None:
        watch(plan.n_rounds, M)
    return moments, projections


# --------------------------------------------------------------------- Algorithm 1, tasks
class OwnPart:
    """Part q of a decomposed model w = p + q, which never leaves its task.

    Only p is clipped, sent and projected. After every step of p the task makes a gradient step of
    q and applies the proximal operator of a penalty:

    - ``"l1"``: strength sum_j \\|q_j\\|, entries that are outliers;
    - ``"l2"``: strength / 2 \\|q\\|^2;
    - ``"norm"``: strength \\|q\\|, tasks that are outliers.

    The paper promises this extension "at no extra privacy loss" and refers to its appendix A.
    """

    def __init__(self, penalty, strength):
        self.penalty, self.strength = penalty, float(strength)

    def proximal(self, Q, rate):
        """argmin over q of rate * penalty(q) + 1/2 |q - Q|^2, of every row."""
        t = rate * self.strength
        if self.penalty == "l1":
            return np.sign(Q) * np.maximum(np.abs(Q) - t, 0.0)
        if self.penalty == "l2":
            return Q / (1.0 + t)
        length = np.linalg.norm(Q, axis=1, keepdims=True)
        return Q * np.maximum(1.0 - t / np.maximum(length, 1e-300), 0.0)


class ModelTasks(TaskSide):
    """The models of all tasks, and their steps.

    Parameters
    ----------
    losses : object with ``gradient(W) -> (m, d)``
        Of the mean loss of every task, see `losses`.
    start : ndarray (m, d)
        W(0).
    clip_norm : float
        K; infinite without privacy.
    rate : float or ndarray (m, 1)
        eta.
    accelerated : bool
    ridge : float, default=0.0
        mu: mu/2 |w|^2 is added to every loss.
    project : {"clipped", "unclipped"}, default="clipped"
        Which model is projected in step 9. As printed it is the clipped one.
    own : OwnPart, default=None
    l1 : float, default=0.0
        Strength of sum_j |w_j|, for single-task learning.

    Attributes
    ----------
    projected : ndarray (m, d)
        Models after the last round, W^(t).
    total : ndarray (m, d)
        Their sum over the rounds.
    """

    def __init__(
        self,
        losses,
        start,
        clip_norm,
        rate,
        accelerated,
        *,
        ridge=0.0,
        project="clipped",
        own=None,
        l1=0.0,
    ):
        self.losses, self.clip_norm, self.rate = losses, clip_norm, rate
        self.accelerated, self.ridge, self.project = accelerated, ridge, project
        self.own, self.l1 = own, l1
        self.W = np.array(start, dtype=float)
        self.projected = self.clipped()  # step 3 at t = 1
        self.Q = None if own is None else np.zeros_like(self.W)
        self.total, self.t = np.zeros_like(self.W), 0

    def clipped(self):
        """Step 3."""
        W = self.W.copy()
        clip_rows(W, self.clip_norm)
        return W

    def contributions(self, query):
        self._catch_up(query)
        return {"model": self.clipped()}

    def answer(self, query):
        self._catch_up(query)
        # `combine` clips: once is enough.
        return query.combine({"model": self.W})

    def _catch_up(self, query):
        if query.public["projection"] is not None:
            self.step(query.public["projection"])

    def momentum(self):
        """beta_t."""
        if not self.accelerated:
            return 0.0
        if self.ridge:
            root = np.sqrt(np.minimum(self.ridge * self.rate, 1.0))  # sqrt(mu / L)
            return (1.0 - root) / (1.0 + root)
        return (self.t - 1.0) / (self.t + 2.0)

    def step(self, M):
        """Steps 9 to 11 of Algorithm 2 (8 to 10 of Algorithm 3) with the projection M (d, d)."""
        self.t += 1
        start = self.clipped() if self.project == "clipped" else self.W
        projected = np.matmul(start[:, None, :], M)[:, 0]  # task by task: M is symmetric
        self._move(projected)

    def step_alone(self):
        """The same of single-task learning: no projection, and the proximal operator of `l1`."""
        self.t += 1
        t = self.rate * self.l1
        self._move(np.sign(self.W) * np.maximum(np.abs(self.W) - t, 0.0))

    def _move(self, projected):
        Z = projected + self.momentum() * (projected - self.projected)
        self.W = Z - self.rate * self._gradient(Z)
        self.projected = projected
        if self.own is not None:
            ahead = self.Q - self.rate * self._gradient(self.W, of_own=True)
            self.Q = self.own.proximal(ahead, self.rate)
        self.total += self.models()

    def _gradient(self, P, of_own=False):
        whole = P if self.Q is None else P + self.Q
        return self.losses.gradient(whole) + (0.0 if of_own else self.ridge * P)

    def models(self):
        """Models of the tasks after the rounds so far, (m, d)."""
        return self.projected if self.Q is None else self.projected + self.Q
