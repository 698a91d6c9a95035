"""Algorithm 1: meta-initialisations from tasks that run a private descent.

In the words of the paper, for tasks t = 1..T in a public random order:

1. The meta-learner sends the initialisation phi_t to task t.
2. The task runs noisy gradient descent from phi_t and sends its outcome theta^_t, which has its
   noise when it leaves the task (`MetaTasks`).
3. The meta-learner updates phi by an online algorithm for the losses 1/2 |theta^_t - phi|^2
   (`META_STEPS`).

The result is the average of phi_1..phi_T. A new task starts from it, takes one non-private step of
projected gradient descent on every row, and averages its iterates (`online_descent`). The batch
version of the experiments takes several tasks at a time, full batches and the last iterate.
"""

from functools import partial

import numpy as np

from ...exchange.protocol import PublicDraw, Query, TaskSide
from ...privacy.mechanisms import VectorGaussian, clip_rows

__all__ = ["META_STEPS", "MetaTasks", "minibatch_descent", "online_descent", "projected"]


def projected(w, centre, radius):
    """The point of the ball that is closest to w."""
    way = w - centre
    length = np.linalg.norm(way)
    return w if length <= radius else centre + way * (radius / length)


# ----------------------------------------------------------------------------- meta-learner
class FollowTheLeader:
    """phi_{t+1} minimises the sum of the losses so far: the mean of all theta^."""

    def __init__(self, settings):
        self.total, self.count = 0.0, 0

    def __call__(self, phi, mean, n_tasks):
        self.total, self.count = self.total + n_tasks * mean, self.count + n_tasks
        return self.total / self.count


class AdaptiveDescent:
    """Gradient steps of length 1 over the sum of the curvatures so far (adaptive online descent).

    A loss 1/2 |theta^ - phi|^2 has curvature 1, so that the step after t tasks is 1 / t.
    """

    def __init__(self, settings):
        self.curvature = 0.0

    def __call__(self, phi, mean, n_tasks):
        self.curvature += n_tasks
        return phi - n_tasks / self.curvature * (phi - mean)


class Reptile:
    """A constant part of the way to the mean, which decays by a factor per round."""

    def __init__(self, settings):
        self.rate, self.decay = settings.meta_learning_rate, settings.meta_decay

    def __call__(self, phi, mean, n_tasks):
        rate = self.rate
        self.rate *= self.decay
        return phi + rate * (mean - phi)


META_STEPS = {"ftl": FollowTheLeader, "aogd": AdaptiveDescent, "reptile": Reptile}


def meta_learner(settings, start):
    """The meta-learner as a curator. -> (phi^, all initialisations phi_1.. (n_rounds + 1, size))

    Parameters
    ----------
    settings : object
        With `n_tasks`, `tasks_per_round`, `visits`, `meta_step`, `meta_learning_rate`,
        `meta_decay`, `iterate` and `radius`.
    start : ndarray (size,)
        phi_1.
    """
    phi, path = start, [start]
    step = META_STEPS[settings.meta_step](settings)
    for _ in range(settings.visits):
        order = (yield PublicDraw(lambda source: source.permutation(settings.n_tasks)))["drawn"]
        for first in range(0, len(order), settings.tasks_per_round):
            pick = np.sort(order[first : first + settings.tasks_per_round])
            query = Query(
                "model",
                {"phi": phi, "round": len(path) - 1},
                {"model": None},
                partial(_sum_of_models, settings.radius),
                len(pick),
                pick,
                bound=settings.radius if np.isfinite(settings.radius) else None,
            )
            mean = start + (yield query)["model"]
            phi = projected(step(phi, mean, len(pick)), start, settings.radius)
            path.append(phi)
    path = np.array(path)
    # phi_{T+1} is what the last update made: the algorithm plays phi_1..phi_T.
    return (path[:-1].mean(axis=0) if settings.iterate == "average" else path[-1]), path


def _sum_of_models(radius, contributions, positions=None):
    """``combine`` of what tasks send, each within the ball."""
    return {"model": sum(projected(w, 0.0, radius) for w in contributions["model"])}


# ------------------------------------------------------------------------------------ tasks
class MetaTasks(TaskSide):
    """What tasks send: the outcome of a private descent from phi, less the public start.

    Parameters
    ----------
    model : model of `models` or `network`
    rows : list of (X (n, d), y (n,))
        Of every task.
    plan : MetaRoundsPlan
    source : noise source
    """

    remembers = False

    def __init__(self, model, rows, plan, source):
        self.model, self.rows, self.plan, self.source = model, rows, plan, source

    def contributions(self, query):
        """ "model": theta^ of the tasks that are asked, within the ball, (n, size)."""
        phi = query.public["phi"]
        return {"model": np.array([self._sent(k, phi) for k in query.pick]) - self.model.start}

    def answer(self, query):
        return query.combine(self.contributions(query))

    def _sent(self, k, phi):
        plan = self.plan
        found = self.descent(k, phi)
        if plan.mode == "local":
            mechanism = VectorGaussian(self.model.size, plan.sensitivity, plan.mu_of_one(k))
            update = (found - phi)[None]
            clip_rows(update, plan.clip_norm)
            found = phi + mechanism.release(update[0], self.source)
        return projected(found, self.model.start, plan.radius)

    def descent(self, k, phi):
        """Gradient descent of a task from phi: noisy SGD, Algorithm 1 of Bassily et al.

        w_{s+1} = projection of w_s - eta (mean of clipped gradients of a batch + noise), a batch
        of `batch_size` rows drawn with replacement, or all rows. -> average or last iterate
        """
        plan, (X, y), start = self.plan, self.rows[k], self.model.start
        n, batch, rate = len(X), plan.batch_sizes[k], plan.rates[k]
        noisy, w, total = plan.mode == "task-global", phi, np.zeros(self.model.size)
        if noisy:
            mechanism = VectorGaussian(self.model.size, plan.sensitivity, plan.mu_of_one(k))
        for _ in range(plan.inner_steps[k]):
            some = slice(None)
            if batch is not None:
                some = np.minimum((self.source.uniform(batch) * n).astype(int), n - 1)
            if noisy:
                G = self.model.gradients(w, X[some], y[some])
                clip_rows(G, plan.clip_norm)
                gradient = mechanism.release(G.sum(axis=0), self.source) / len(G)
            else:
                gradient = self.model.gradient(w, X[some], y[some])
            w = projected(w - rate * gradient, start, plan.radius)
            total += w
        return total / plan.inner_steps[k] if plan.inner_iterate == "average" else w


# -------------------------------------------------------------------------------- new tasks
def online_descent(model, phi, X, y, rate, radius):
    """Projected gradient descent with one step on each row in turn.

    -> average of theta_1 = phi, ..., theta_n (size,), losses of theta_i on row i (n,)
    """
    theta, total, losses = phi, np.zeros(model.size), np.empty(len(X))
    for i in range(len(X)):
        total += theta
        losses[i] = model.losses(theta, X[i : i + 1], y[i : i + 1])[0]
        gradient = model.gradient(theta, X[i : i + 1], y[i : i + 1])
        theta = projected(theta - rate * gradient, model.start, radius)
    return (total / len(X) if len(X) else phi), losses


def minibatch_descent(model, phi, X, y, rate, radius, n_epochs, batch_size):
    """The refinement of the experiments: epochs over batches of rows in their order."""
    theta, size = phi, len(X) if batch_size is None else batch_size
    for _ in range(n_epochs):
        for first in range(0, len(X), max(size, 1)):
            some = slice(first, first + size)
            gradient = model.gradient(theta, X[some], y[some])
            theta = projected(theta - rate * gradient, model.start, radius)
    return theta
