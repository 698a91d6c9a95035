"""Algorithm 1, and the same rounds for the methods that the paper compares with.

`run` is the server with its loop over rounds, `Client` a device: its rows, its tasks, its model.
Everything is one process.
"""

import time
from dataclasses import dataclass

import numpy as np

from .aggregation import VERSIONS, Upload, aggregate
from .baselines import GLOBAL, PERSONAL, attention, coupled, mean_model, mixture

__all__ = ["Client", "FedMTLPlan", "run"]


@dataclass(frozen=True)
class FedMTLPlan:
    """Public settings of a fit.

    Parameters
    ----------
    method : str
        One of `VERSIONS` or `BASELINES`.
    n_rounds : int
        R.
    n_participants : int
        N, clients of a round.
    thresholds : ndarray (n_clients, 2)
        Z of the first and of the last round, of every client; linear in between.
    epochs, batch_size : int
        Of local training.
    rate : float
        Step size of mini-batch SGD.
    strength : float
        Of "fedprox", "pfedme", "mocha" and "fedamp".
    inner_steps : int
        Steps of "pfedme" on every batch.
    scale : float
        Of "fedamp", see `attention`.
    n_candidates : int
        Models that "fedfomo" sends to a client.
    by_position : bool
        Whether baselines take heads by their position, or work among clients with equal tasks.
    """

    method: str
    n_rounds: int
    n_participants: int
    thresholds: np.ndarray
    epochs: int
    batch_size: int
    rate: float
    strength: float
    inner_steps: int
    scale: float
    n_candidates: int
    by_position: bool


class Client:
    """A device.

    Parameters
    ----------
    model : Perceptron or SharedModule
    X : ndarray (D_i, ...)
    Y : ndarray (D_i, K_i, ...)
        NaN where a target is missing.
    tasks : list of int
        U_i.
    held : tuple (X, Y)
        Validation rows, for "fedfomo".

    Attributes
    ----------
    w : ndarray (size,)
        The model that predicts, W_i^* of "fedmtl".
    received : ndarray (size,)
        What the server sent last.
    """

    def __init__(self, model, X, Y, tasks, held=None):
        self.model, self.X, self.Y, self.tasks, self.held = model, X, Y, tasks, held
        self.w = self.received = None

    def train(self, plan, rng):
        """Local epochs. -> what the client sends"""
        if plan.method == "pfedme":
            return self._moreau(plan, rng)
        start = self.w if plan.method in (*PERSONAL, "local") else self.received
        centre, pull = self.received, 0.0
        if plan.method in ("fedprox", *PERSONAL):
            pull = plan.strength
        w = start.copy()
        for rows in self._batches(plan, rng):
            gradient = self.model.gradient(w, self.X[rows], self.Y[rows])
            if pull:
                gradient += pull * (w - centre)
            w -= plan.rate * gradient
        if plan.method in (*PERSONAL, "local"):
            self.w = w
        return w

    def _moreau(self, plan, rng):
        """pFedMe (Dinh et al., NeurIPS 2020): theta nearly minimises f + strength / 2 |. - w|^2."""
        w = self.received.copy()
        theta = w.copy()
        for rows in self._batches(plan, rng):
            for _ in range(plan.inner_steps):
                gradient = self.model.gradient(theta, self.X[rows], self.Y[rows])
                theta -= plan.rate * (gradient + plan.strength * (theta - w))
            w -= plan.rate * plan.strength * (w - theta)
        self.w = theta
        return w

    def _batches(self, plan, rng):
        for _ in range(plan.epochs):
            order = rng.permutation(len(self.X))
            yield from np.split(order, range(plan.batch_size, len(order), plan.batch_size))

    def upload(self, w, threshold):
        """F_SU without its encryption: shared layers, heads, M_i, D_i, Z_i."""
        ds = self.model.n_shared
        heads = w[ds:].reshape(len(self.tasks), -1)
        return Upload(w[:ds], heads, self.tasks, len(self.X), threshold)

    def loss_on_held(self, w):
        """Loss on the validation rows, infinite where it is not finite."""
        loss = self.model.outputs.loss(self.model.scores(w, self.held[0]), self.held[1])
        return loss if np.isfinite(loss) else np.finfo(float).max / 4


def run(plan, clients, start, rng, watch=None, servers=None):
    """Rounds of all clients, whose `w` they leave behind.

    Parameters
    ----------
    plan : FedMTLPlan
    clients : list of Client
    start : (ndarray (ds,), ndarray (K, dt) or (n_clients, K, dt))
        W^S(0) and W^Tk(0), public; or heads of each client's own.
    rng : numpy.random.Generator
    watch : callable, default=None
        ``watch(t)`` after round t.
    servers : skpmtl.fedmtl.secure.SecureServers, default=None
        They aggregate on shares: lines 4 to 12 of Algorithm 1. None: in the clear.

    Returns
    -------
    history : dict of ndarray (n_rounds,)
        "participants"; "uploaded" and "downloaded", numbers of parameters, of all clients together;
        "client_seconds" of local work and "server_seconds", CPU time.
    """
    shared, heads = start
    heads = np.broadcast_to(heads, (len(clients), *heads.shape[-2:]))
    for client, own in zip(clients, heads, strict=True):
        client.w = client.received = np.concatenate([shared, own[client.tasks].ravel()])
    groups = _groups(plan, clients)
    affinity = np.eye(len(clients))  # of "fedfomo"
    names = ("participants", "uploaded", "downloaded", "client_seconds", "server_seconds")
    history = {name: [] for name in names}
    for r in range(plan.n_rounds):
        chosen = np.sort(rng.choice(len(clients), plan.n_participants, replace=False))
        before = [clients[i].received for i in chosen]
        clock = time.process_time()
        W = [clients[i].train(plan, rng) for i in chosen]
        seconds = [time.process_time() - clock]
        for i, w in zip(chosen, W, strict=True):
            if not np.isfinite(w).all():
                raise ValueError(
                    f"The training of client {i} diverged in round {r + 1}: take a smaller "
                    "learning_rate, or scale the features."
                )
        clock, extra = time.process_time(), 0.0
        uploaded = downloaded = sum(map(len, W))
        if plan.method in VERSIONS:
            part = r / max(plan.n_rounds - 1, 1)
            Z = (1.0 - part) * plan.thresholds[chosen, 0] + part * plan.thresholds[chosen, 1]
            _fedmtl_round(plan, [clients[i] for i in chosen], W, Z, servers)
        elif plan.method == "local":
            uploaded = downloaded = 0
        else:
            of = {i: position for position, i in enumerate(chosen)}
            for group in groups:
                mine = [i for i in group if i in of]
                if not mine:
                    continue
                V = np.stack([W[of[i]] for i in mine])
                if plan.method in GLOBAL:
                    D = np.array([len(clients[i].X) for i in mine], dtype=float)
                    mean = mean_model(V, D)
                    for i in group:
                        clients[i].received = mean
                        if plan.method != "pfedme":
                            clients[i].w = mean
                elif plan.method in PERSONAL:
                    back = coupled(V) if plan.method == "mocha" else attention(V, plan.scale)
                    for i, row in zip(mine, back, strict=True):
                        clients[i].received = row
                else:
                    moment = time.process_time()
                    downloaded += _fomo_round(plan, clients, mine, V, before, of, affinity, rng)
                    extra += time.process_time() - moment
        seconds = [seconds[0] + extra, time.process_time() - clock - extra]
        found = (len(chosen), uploaded, downloaded, *seconds)
        for name, value in zip(names, found, strict=True):
            history[name].append(value)
        if watch is not None:
            watch(r + 1)
    return {name: np.array(values) for name, values in history.items()}


def _groups(plan, clients):
    if plan.by_position:
        return [list(range(len(clients)))]
    sets = {}
    for i, client in enumerate(clients):
        sets.setdefault(tuple(client.tasks), []).append(i)
    return list(sets.values())


def _fedmtl_round(plan, clients, W, Z, servers):
    """Lines 3 to 13 of Algorithm 1."""
    uploads = [c.upload(w, z) for c, w, z in zip(clients, W, Z, strict=True)]
    if servers is None:
        shared, heads = aggregate(uploads, *VERSIONS[plan.method](uploads))
    else:
        shared, heads, _ = servers.aggregate(
            np.stack([u.shared for u in uploads]),
            [u.heads for u in uploads],
            [u.tasks for u in uploads],
            [u.size for u in uploads],
            Z,
        )
    for client, own, own_heads in zip(clients, shared, heads, strict=True):
        client.w = client.received = np.concatenate([own, own_heads.ravel()])  # F_SR


def _fomo_round(plan, clients, mine, V, before, of, affinity, rng):
    """The mixtures of a group. -> numbers that are sent beyond one model for each client"""
    more = 0
    tie = rng.random(len(mine))
    for place, i in enumerate(mine):
        order = np.lexsort((tie, -affinity[i, mine]))[: plan.n_candidates]
        found, weights = mixture(before[of[i]], V[place], V[order], clients[i].loss_on_held)
        affinity[i, np.array(mine)[order]] += weights
        clients[i].w = clients[i].received = found
        more += (len(order) - 1) * len(found)
    return more
