"""Networks of all clients at once: shared hidden layers, linear heads, mini-batch training.

The parameters of client i are one vector: the shared layers (weights, then bias, layer after
layer), then the heads as a matrix (width + 1, S * C), the bias in its last row. A client has up
to S heads ("slots") of up to C outputs; what is beyond its own is 0 and stays 0.
"""

from dataclasses import dataclass

import numpy as np

from ..tables.assignment import shuffled

ACTIVATIONS = ("identity", "logistic", "tanh", "relu")
_EPS, _BETA1, _BETA2 = 1e-8, 0.9, 0.999  # Adam


@dataclass(frozen=True)
class Heads:
    """What the heads of the clients look like."""

    slots: np.ndarray  # (N, S) of int, task of every slot, -1 for none
    # (K,) of int, outputs of every task; classification with two classes has one
    n_outputs: np.ndarray
    classification: bool

    @property
    def width(self):
        """C, outputs of a slot."""
        return int(self.n_outputs.max())

    def outputs(self):
        """Mask of the outputs that exist, (N, S, C)."""
        count = np.where(self.slots >= 0, self.n_outputs[self.slots], 0)
        return np.arange(self.width) < count[..., None]

    def take(self, clients):
        return Heads(self.slots[clients], self.n_outputs, self.classification)


@dataclass(frozen=True)
class Optimizer:
    """Mini-batch training at a client; moments start at zero in every round."""

    solver: str
    learning_rate: float
    momentum: float
    alpha: float
    batch_size: int
    epochs: int


class Network:
    """Fully connected hidden layers of the widths `hidden`; () gives heads on the features."""

    def __init__(self, n_features, hidden, activation):
        self.layers = list(zip((n_features, *hidden), hidden, strict=False))
        self.width = (n_features, *hidden)[-1]
        self.activation = activation
        self.n_shared = sum((before + 1) * after for before, after in self.layers)

    # ------------------------------------------------------------------ parameters
    def initial_shared(self, rng):
        """Glorot's uniform start, as in scikit-learn's MLP; the same for all clients, (P,)."""
        scale = 2.0 if self.activation == "logistic" else 6.0
        parts = []
        for before, after in self.layers:
            bound = np.sqrt(scale / (before + after))
            parts.append(rng.uniform(-bound, bound, (before + 1) * after))
        return np.concatenate(parts) if parts else np.empty(0)

    def initial_heads(self, heads, rng):
        """A tenth of Glorot's uniform start, for every head its own, (N, width + 1, S * C).

        Small, so that the cosine of two heads soon depends on their tasks and not on the draw.
        """
        bound = 0.1 * np.sqrt(6.0 / (self.width + heads.n_outputs))[heads.slots]
        n, slots = heads.slots.shape
        draws = rng.uniform(-1.0, 1.0, (n, self.width + 1, slots, heads.width))
        draws *= (bound[..., None] * heads.outputs())[:, None]
        return draws.reshape(n, self.width + 1, -1)

    def head_blocks(self, theta, heads):
        """View of the heads by slot, (N, width + 1, S, C)."""
        n, slots = heads.slots.shape
        return theta[:, self.n_shared :].reshape(n, self.width + 1, slots, heads.width)

    def _views(self, theta):
        """Weights and biases of the hidden layers, and the head matrix, of clients (N, ...)."""
        views, at, n = [], 0, len(theta)
        for before, after in self.layers:
            weight = theta[:, at : at + before * after].reshape(n, before, after)
            at += before * after
            views.append((weight, theta[:, None, at : at + after]))
            at += after
        return views, theta[:, at:].reshape(n, self.width + 1, -1)

    def _decayed(self, n_columns):
        """1 for weights, 0 for biases, over the parameter vector of a client."""
        mask = np.ones((1, self.n_shared + (self.width + 1) * n_columns))
        views, head = self._views(mask)
        for _, bias in views:
            bias[:] = 0.0
        head[:, -1] = 0.0
        return mask

    # ------------------------------------------------------------------ passes
    def scores(self, theta, X, keep=None):
        """Outputs of the heads, (N, B, S * C), for features (N, B, d).

        The outputs of all hidden layers are appended to the list `keep`.
        """
        views, head = self._views(theta)
        hidden = X
        for weight, bias in views:
            hidden = np.matmul(hidden, weight)
            hidden += bias
            _activate(hidden, self.activation)
            if keep is not None:
                keep.append(hidden)
        out = np.matmul(hidden, head[:, :-1])
        out += head[:, -1:]
        return out

    def _gradient(self, theta, X, delta, hidden, out):
        """Gradient of the data loss into `out`, from its derivative in the scores."""
        views, head = self._views(theta)
        slopes, head_slope = self._views(out)
        below = [X, *hidden]
        np.matmul(below[-1].transpose(0, 2, 1), delta, out=head_slope[:, :-1])
        delta.sum(axis=1, out=head_slope[:, -1])
        weight = head[:, :-1]
        for layer in range(len(views) - 1, -1, -1):
            delta = np.matmul(delta, weight.transpose(0, 2, 1))
            _times_derivative(delta, hidden[layer], self.activation)
            slope, bias_slope = slopes[layer]
            np.matmul(below[layer].transpose(0, 2, 1), delta, out=slope)
            delta.sum(axis=1, keepdims=True, out=bias_slope)
            weight = views[layer][0]

    # ------------------------------------------------------------------ training
    def train(self, theta, table, heads, optimizer, rng):
        """Local epochs of all clients, in place, theta (N, P + (width + 1) * S * C). -> loss

        The loss of a batch is the sum over the client's tasks of the mean over the rows of the
        batch whose label is known, plus alpha / 2 times the squared weights. The result is the
        mean data loss of a label in the last epoch, while it was trained on.
        """
        # Clients with many batches first: those that still have one are then a leading part.
        order = np.argsort(-table.sizes, kind="stable")
        local, heads = theta[order], heads.take(order)
        loss = BatchLoss(heads)
        decay = optimizer.alpha * self._decayed(heads.slots.shape[1] * heads.width)
        step = _Stepper(local, optimizer)
        gradient = np.empty_like(local)
        starts, sizes = table.offsets[order], table.sizes[order]
        n_batches = -(-sizes // optimizer.batch_size)
        codes = np.repeat(np.arange(table.n_clients), table.sizes)
        seed = int(rng.integers(2**63))
        for epoch in range(optimizer.epochs):
            dealt = shuffled(codes, table.clients, seed, f"epoch {epoch}")
            total = count = 0.0
            for number in range(n_batches[0]):
                active = int(np.searchsorted(-n_batches, -number))
                # Batches of equal size: a last one of two rows would undo the others' work.
                first, last = (
                    (number + end) * sizes[:active] // n_batches[:active] for end in (0, 1)
                )
                place = first[:, None] + np.arange((last - first).max())
                valid = place < last[:, None]
                rows = dealt[np.where(valid, starts[:active, None] + place, 0)]
                X, hidden = table.X[rows], []
                scores = self.scores(local[:active], X, hidden)
                Y = np.where(valid[..., None], table.Y[rows], np.nan)
                counts = None if table.weights is None else table.weights[rows]
                delta, value, known = loss.derivative(scores, Y, counts)
                total, count = total + value, count + known
                slope = gradient[:active]
                self._gradient(local[:active], X, delta, hidden, slope)
                slope += decay * local[:active]
                step(slope)
        theta[order] = local
        return total / count


class BatchLoss:
    """Loss of padded batches, logistic / softmax or squared, and its derivative."""

    def __init__(self, heads):
        self.heads = heads
        self.mask = heads.outputs()
        # One output is the log-odds of class 1: a softmax with a second score fixed at 0.
        self.single = self.mask.sum(axis=-1) == 1
        self.label = np.where(self.single[..., None], 1, np.arange(heads.width))

    def derivative(self, scores, Y, counts=None):
        """-> derivative in the scores (N, B, S * C), summed loss, number of labels.

        `Y` (N, B, S) holds NaN where a label is not known; `counts` (N, B, S): weights of the
        labels; None: 1. Their sum is then the number of labels.
        """
        n, batch, _ = scores.shape
        known = ~np.isnan(Y)
        if counts is not None:
            return self._weighted(scores, Y, np.where(known, counts, 0.0))
        count = known.sum(axis=1, keepdims=True)
        weight = known / np.maximum(count, 1)
        if self.heads.classification:
            scores = scores.reshape(n, batch, -1, self.heads.width)
            p, log_total, shifted, zero = self._softmax(scores)
            hit = (Y[..., None] == self.label[:n, None]) & self.mask[:n, None]
            value = (known * log_total).sum() - shifted[hit].sum()
            value -= zero[self.single[:n, None] & (Y == 0)].sum()
            p -= hit
        else:
            p = scores.reshape(n, batch, -1, 1) - np.where(known, Y, 0.0)[..., None]
            value = 0.5 * ((p[..., 0] ** 2) * known).sum()
        p *= weight[..., None]
        return p.reshape(n, batch, -1), value, known.sum()

    def _weighted(self, scores, Y, counts):
        """`derivative` with weights of the labels."""
        n, batch, _ = scores.shape
        if self.heads.classification:
            scores = scores.reshape(n, batch, -1, self.heads.width)
            p, log_total, shifted, zero = self._softmax(scores)
            hit = (Y[..., None] == self.label[:n, None]) & self.mask[:n, None]
            own = np.where(hit, shifted, 0.0).sum(axis=-1)
            own += np.where(self.single[:n, None] & (Y == 0), zero, 0.0)
            losses = log_total - own
            p -= hit
        else:
            p = scores.reshape(n, batch, -1, 1) - np.where(counts > 0, Y, 0.0)[..., None]
            losses = 0.5 * p[..., 0] ** 2
        value = (counts * losses).sum()
        p *= (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300))[..., None]
        return p.reshape(n, batch, -1), value, counts.sum()

    def score(self, scores, Y):
        """Hits, or squared errors, and known labels: two sums over the rows, (N, S) each."""
        known = ~np.isnan(Y)
        scores = scores.reshape(*Y.shape, self.heads.width)
        if not self.heads.classification:
            error = np.where(known, scores[..., 0] - Y, 0.0)
            with np.errstate(over="ignore"):  # steps that diverge
                return np.sum(error**2, axis=1), known.sum(axis=1)
        best = np.where(self.mask[:, None], scores, -np.inf).argmax(axis=-1)
        best = np.where(self.single[:, None], scores[..., 0] > 0, best)
        return np.sum(best == Y, axis=1), known.sum(axis=1)

    def _softmax(self, scores):
        """-> probabilities, log of their normaliser, scores shifted like it, shifted zero."""
        mask, single = self.mask[: len(scores), None], self.single[: len(scores), None]
        scores = np.where(mask, scores, -np.inf)
        top = scores.max(axis=-1)
        top = np.where(single, np.maximum(top, 0.0), np.where(mask.any(axis=-1), top, 0.0))
        scores -= top[..., None]
        p = np.exp(scores)
        total = p.sum(axis=-1) + np.where(single, np.exp(-top), 0.0)
        total = np.where(total > 0, total, 1.0)  # slots that do not exist
        p /= total[..., None]
        return p, np.log(total), scores, -top


class _Stepper:
    """SGD with momentum, or Adam, on leading parts of a block of parameters."""

    def __init__(self, theta, optimizer):
        self.theta, self.optimizer = theta, optimizer
        self.t = np.zeros((len(theta), 1))  # steps of every client
        adam = optimizer.solver == "adam"
        self.first = np.zeros_like(theta) if adam or optimizer.momentum else None
        self.second = np.zeros_like(theta) if adam else None

    def __call__(self, slope):
        active, rate = len(slope), self.optimizer.learning_rate
        theta = self.theta[:active]
        if self.first is None:
            slope *= rate
            theta -= slope
            return
        first = self.first[:active]
        if self.second is None:
            first *= self.optimizer.momentum
            first += slope
            theta -= rate * first
            return
        second = self.second[:active]
        self.t[:active] += 1
        t = self.t[:active]
        first += (1 - _BETA1) * (slope - first)
        np.square(slope, out=slope)
        second += (1 - _BETA2) * (slope - second)
        np.sqrt(second / (1 - _BETA2**t), out=slope)
        slope += _EPS
        theta -= rate / (1 - _BETA1**t) * first / slope


def _activate(z, activation):
    if activation == "relu":
        np.maximum(z, 0.0, out=z)
    elif activation == "tanh":
        np.tanh(z, out=z)
    elif activation == "logistic":
        z *= 0.5
        np.tanh(z, out=z)
        z += 1.0
        z *= 0.5


def _times_derivative(delta, output, activation):
    if activation == "relu":
        delta *= output > 0
    elif activation == "tanh":
        delta *= 1.0 - output**2
    elif activation == "logistic":
        delta *= output * (1.0 - output)
