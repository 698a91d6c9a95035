"""Rounds: local epochs of all clients, upload, aggregation, and back.

The two halves stay apart: clients see their rows and their own model, the server uploads only.
"""

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from .aggregation import LARGEST, fedmtl_aggregate
from .network import BatchLoss, Heads, Optimizer

logger = logging.getLogger("skpmtl")
_EVALUATION_ROWS = 1 << 16  # rows evaluated at a time


@dataclass(frozen=True)
class Schedule:
    """How the rounds go."""

    aggregation: str  # a rule of `fedmtl_aggregate`, or "local"
    thresholds: np.ndarray  # (n_rounds,), threshold of every round
    optimizer: Optimizer
    secure: dict | None = None  # n_servers, max_heads and max_size; None: in the clear


@dataclass(frozen=True)
class ClientModels:
    """Parameters of clients."""

    clients: np.ndarray  # (N,), ids, sorted
    heads: Heads
    theta: np.ndarray  # (N, n_parameters), what the clients predict with
    # (N, n_parameters), what they sent last; None where no server has it in the clear
    uploads: np.ndarray | None
    sizes: np.ndarray  # (N,)

    def take(self, pick):
        uploads = None if self.uploads is None else self.uploads[pick]
        return ClientModels(
            self.clients[pick], self.heads.take(pick), self.theta[pick], uploads, self.sizes[pick]
        )

    def merge(self, other, network):
        """Clients of both, those of `other` last; they may differ in the number of slots."""
        n_slots = max(self.heads.slots.shape[1], other.heads.slots.shape[1])
        both = [(part, _with_slots(part.heads, n_slots)) for part in (self, other)]
        theta = [_with_parameters(network, p.theta, p.heads, heads) for p, heads in both]
        uploads = [_with_parameters(network, p.uploads, p.heads, heads) for p, heads in both]
        return ClientModels(
            np.concatenate([self.clients, other.clients]),
            replace(self.heads, slots=np.vstack([heads.slots for _, heads in both])),
            np.vstack(theta),
            np.vstack(uploads),
            np.concatenate([self.sizes, other.sizes]),
        )


def _with_slots(heads, n_slots):
    missing = n_slots - heads.slots.shape[1]
    return replace(heads, slots=np.pad(heads.slots, ((0, 0), (0, missing)), constant_values=-1))


def _with_parameters(network, theta, heads, wider):
    own = network.head_blocks(theta, heads)
    out = np.zeros((len(theta), network.width + 1, wider.slots.shape[1], heads.width))
    out[:, :, : own.shape[2]] = own
    return np.hstack([theta[:, : network.n_shared], out.reshape(len(theta), -1)])


def initial_parameters(network, heads, rng):
    """One start of the shared layers for all clients, one of its own for every head."""
    shared = network.initial_shared(rng)
    own = network.initial_heads(heads, rng)
    n = len(own)
    return np.hstack([np.broadcast_to(shared, (n, len(shared))), own.reshape(n, -1)])


def run_rounds(network, table, heads, theta, schedule, rng, *, others=None, progress=None):
    """Train the clients of a table, from `theta` (N, n_parameters), which is changed in place.

    The uploads of `others` do not change: they are averaged with, no more.

    -> theta; uploads, None with `secure`; similarity of the last round (the clients of the table
    come first), or None; history, dict of ndarray (n_rounds,)
    """
    optimizer = schedule.optimizer
    score = "accuracy" if heads.classification else "mse"
    history = {"threshold": schedule.thresholds, "loss": [], score: []}
    if schedule.secure is not None:
        history |= {"cpu_seconds": [], "megabytes": []}
    similarity = uploads = None
    alone = others is None and len(theta) == 1  # nobody's layers are averaged with these
    limit = np.finfo(np.float64).max if alone else LARGEST
    with ExitStack() as stack:
        servers = _Servers(schedule, stack)
        for number, threshold in enumerate(schedule.thresholds):
            with np.errstate(over="ignore", invalid="ignore"):  # the error below says more
                loss = network.train(theta, table, heads, optimizer, rng)
            sound = (np.abs(theta) <= limit).all(axis=1)
            if not sound.all():
                client = table.clients[~sound][0].item()
                raise ValueError(
                    f"The training of client {client!r} diverged in round {number + 1}: its "
                    "parameters are not finite, or above 2^53. Scale the features, and for "
                    f"regression the targets, or lower learning_rate={optimizer.learning_rate:g}."
                )
            uploads = theta.copy()
            theta[:], similarity = server_round(
                network,
                uploads,
                heads,
                table.sizes,
                float(threshold),
                schedule,
                others,
                servers.aggregate if schedule.secure else None,
            )
            history["loss"].append(loss)
            if schedule.secure is not None:
                for name, value in servers.cost().items():
                    history[name].append(value)
            total, count = training_scores(network, theta, table, heads)
            history[score].append(total.sum() / count.sum())
            if progress is not None:
                progress(number + 1, len(schedule.thresholds), loss, score, history[score][-1])
    history = {name: np.array(values) for name, values in history.items()}
    return theta, None if schedule.secure else uploads, similarity, history


class _Servers:
    """Servers of secret shares that stay up from round to round, if `schedule` has them.

    Where one of them ended, all are started again, once in a round: shares are drawn anew, and
    nothing was opened before.
    """

    def __init__(self, schedule, stack):
        self.schedule, self.stack, self.running = schedule, stack, None

    def aggregate(self, *arguments):
        from .secure import SecureServers

        bounds = dict(self.schedule.secure)
        n_servers = bounds.pop("n_servers")
        if self.running is not None:
            try:
                return self.running.aggregate(*arguments, **bounds)
            except RuntimeError as error:
                logger.warning("The servers are started again: %s", error)
                self.running.close()
        self.running = self.stack.enter_context(SecureServers(n_servers=n_servers))
        return self.running.aggregate(*arguments, **bounds)

    def cost(self):
        """Of the last round: CPU seconds and megabytes sent, of clients, servers and dealer."""
        parts = [part for own in self.running.costs.values() for part in own.values()]
        return {
            "cpu_seconds": sum(part[1] for part in parts),
            "megabytes": sum(part[2] for part in parts) / 1e6,
        }


def server_round(network, uploads, heads, sizes, threshold, schedule, others=None, secure=None):
    """The server's half of a round: -> parameters back to the clients, similarity.

    `secure`, a function of the arguments of `fedmtl_aggregate`, aggregates in its place.
    """
    if schedule.aggregation == "local":
        return uploads, np.eye(len(uploads) + (0 if others is None else len(others.sizes)))
    layers = [_layers(network, uploads, heads)]
    if others is not None:
        layers.append(_layers(network, others.uploads, others.heads))
        sizes = np.concatenate([sizes, others.sizes])
    shared = np.vstack([part[0] for part in layers])
    vectors = [own for part in layers for own in part[1]]
    tasks = [own for part in layers for own in part[2]]
    arguments = shared, vectors, tasks, sizes, threshold
    if secure is not None:
        shared, vectors, similarity = secure(*arguments)
    else:
        shared, vectors, similarity = fedmtl_aggregate(*arguments, aggregation=schedule.aggregation)
    n = len(uploads)
    return _parameters(network, shared[:n], vectors[:n], heads, uploads), similarity


def _layers(network, theta, heads):
    """Parameter vectors -> shared layers, heads and task ids of every client."""
    own = network.head_blocks(theta, heads)
    outputs = heads.n_outputs.tolist()
    vectors, tasks = [], []
    for i, row in enumerate(heads.slots.tolist()):
        mine = [k for k in row if k >= 0]
        tasks.append(mine)
        vectors.append([own[i, :, s, : outputs[k]].ravel() for s, k in enumerate(mine)])
        if len({outputs[k] for k in mine}) == 1:
            vectors[i] = np.array(vectors[i])
    return theta[:, : network.n_shared], vectors, tasks


def _parameters(network, shared, vectors, heads, like):
    """Inverse of `_layers`; what is no client's stays as in `like`."""
    theta = like.copy()
    theta[:, : network.n_shared] = shared
    own = network.head_blocks(theta, heads)
    for i, mine in enumerate(vectors):
        for s, vector in enumerate(mine):
            outputs = heads.n_outputs[heads.slots[i, s]]
            own[i, :, s, :outputs] = np.reshape(vector, (network.width + 1, outputs))
    return theta


def training_scores(network, theta, table, heads):
    """Hits, or squared errors, and known labels of the training rows: sums by task, (K,) each."""
    total, count = np.zeros((2, len(heads.n_outputs)))
    order = np.argsort(table.sizes, kind="stable")
    limit = max(_EVALUATION_ROWS // max(heads.slots.shape[1] * heads.width, 1), 1)
    first = 0
    while first < len(order):  # blocks of clients of similar size, padded
        last = first + 1
        while last < len(order) and table.sizes[order[last]] * (last + 1 - first) <= limit:
            last += 1
        clients = order[first:last]
        place = np.arange(table.sizes[clients[-1]])
        valid = place < table.sizes[clients, None]
        rows = np.where(valid, table.offsets[clients, None] + place, 0)
        with np.errstate(over="ignore", invalid="ignore"):  # steps that diverge
            scores = network.scores(theta[clients], table.X[rows])
        Y = np.where(valid[..., None], table.Y[rows], np.nan)
        correct, known = BatchLoss(heads.take(clients)).score(scores, Y)
        held = heads.slots[clients] >= 0
        np.add.at(total, heads.slots[clients][held], correct[held])
        np.add.at(count, heads.slots[clients][held], known[held])
        first = last
    return total, count


def unlearned(network, theta, table, heads):
    """Tasks (positions) whose real targets were not learned because of a scale.

    These are errors of twice the mean square of the targets; and, where features or targets are
    not of order one, also errors of 90 % of the variance, which elsewhere may be a weak signal.
    """
    total, count = training_scores(network, theta, table, heads)
    known = ~np.isnan(table.Y)
    task, y = np.repeat(table.slots, table.sizes, axis=0)[known], table.Y[known]
    mean = np.bincount(task, y) / count
    variance = np.bincount(task, (y - mean[task]) ** 2) / count
    square = variance + mean**2
    odd = _odd(square) | _odd(np.vdot(table.X, table.X) / table.X.size)
    limit = np.where(odd, 0.9 * variance, 2.0 * square)
    return np.flatnonzero(~(total / count < limit) & (variance > 1e-24 * square))


def _odd(mean_square):
    return (mean_square < 0.01) | (mean_square > 100.0)


def average_start(network, stored, heads, rng):
    """Start of new clients: the mean of what the others sent, weighted by their rows."""
    theta = initial_parameters(network, heads, rng)
    weights = stored.sizes / stored.sizes.sum()
    theta[:, : network.n_shared] = weights @ stored.uploads[:, : network.n_shared]
    _, vectors, tasks = _layers(network, stored.uploads, stored.heads)
    own = network.head_blocks(theta, heads)
    for k in np.unique(heads.slots[heads.slots >= 0]):
        held = [(i, ids.index(k)) for i, ids in enumerate(tasks) if k in ids]
        if not held:
            continue  # all clients that had the task are being replaced
        weight = np.array([stored.sizes[i] for i, _ in held])
        mean = weight @ np.array([vectors[i][s] for i, s in held]) / weight.sum()
        outputs = heads.n_outputs[k]
        i, s = np.nonzero(heads.slots == k)
        own[i, :, s, :outputs] = mean.reshape(network.width + 1, outputs)
    return theta
