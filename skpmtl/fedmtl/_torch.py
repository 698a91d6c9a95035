"""Shared layers that are a torch module, for convolution nets and the like.

Clients are trained one after the other: on CPUs that is as fast as `torch.func.vmap` for
convolutions, or faster. Losses, heads and aggregation are those of the built-in network.
"""

import numpy as np

from .._runtime.torch_modules import build, drawing, import_torch, sow
from ..tables.assignment import random_words, shuffled
from .network import BatchLoss, Network


class TorchNetwork(Network):
    """A trunk built by `factory`, and linear heads.

    ``factory() -> torch.nn.Module`` from (batch, n_features) to (batch, width). All floating
    entries of its state (parameters, and statistics of normalisation layers) are shared.
    """

    def __init__(self, factory, n_features):
        torch = import_torch("module=")
        self.factory, self.trunk = factory, build(torch, factory, {})
        self.trunk.eval()
        with torch.no_grad():
            out = self.trunk(torch.zeros(2, n_features))
        if out.ndim != 2 or len(out) != 2:
            raise ValueError(
                f"module() maps features (2, {n_features}) to {tuple(out.shape)}; it must give "
                "(batch, width). Add torch.nn.Flatten() at the end."
            )
        self.width = out.shape[1]
        self.n_shared = sum(values.numel() for values in self._floating())

    def _floating(self):
        """Entries of the state that are shared; they are the module's own memory."""
        state = self.trunk.state_dict(keep_vars=True).values()
        return [values for values in state if values.is_floating_point()]

    def _write(self, shared):
        import torch

        at = 0
        with torch.no_grad():
            for values in self._floating():
                part = np.ascontiguousarray(shared[at : at + values.numel()], dtype=np.float32)
                values.copy_(torch.from_numpy(part).reshape(values.shape))
                at += values.numel()

    def _read(self):
        parts = [values.detach().double().numpy().ravel() for values in self._floating()]
        return np.concatenate(parts) if parts else np.empty(0)

    def initial_shared(self, rng):
        import torch

        self.trunk = build(torch, self.factory, {}, int(rng.integers(2**31)))
        return self._read()

    def scores(self, theta, X, keep=None):
        import torch

        head = theta[:, self.n_shared :].reshape(len(theta), self.width + 1, -1)
        out = np.empty((*X.shape[:2], head.shape[2]))
        self.trunk.eval()
        for i, shared in enumerate(theta[:, : self.n_shared]):
            self._write(shared)
            with torch.no_grad():
                hidden = self.trunk(torch.from_numpy(np.asarray(X[i], dtype=np.float32)))
            out[i] = hidden.double().numpy() @ head[i, :-1] + head[i, -1]
        return out

    def train(self, theta, table, heads, optimizer, rng):
        import torch

        total = count = 0.0
        seed = int(rng.integers(2**63))  # batches are those of the built-in network
        codes, ends = np.repeat(np.arange(table.n_clients), table.sizes), table.offsets
        epochs = [
            shuffled(codes, table.clients, seed, f"epoch {epoch}")
            for epoch in range(optimizer.epochs)
        ]
        words = random_words(seed, "module", table.clients) >> np.uint64(1)
        with drawing(torch):
            for i in range(table.n_clients):
                sow(torch, int(words[i]))  # for dropout
                rows = [order[ends[i] : ends[i + 1]] for order in epochs]
                loss = BatchLoss(heads.take([i]))
                value, known = self._train_client(theta[i], table, rows, loss, optimizer)
                total, count = total + value, count + known
        return total / count

    def _train_client(self, theta, table, epochs, loss, optimizer):
        import torch

        self._write(theta[: self.n_shared])
        head = theta[self.n_shared :].reshape(self.width + 1, -1)
        weight = torch.tensor(head[:-1], dtype=torch.float32, requires_grad=True)
        bias = torch.tensor(head[-1], dtype=torch.float32, requires_grad=True)
        own = [*self.trunk.parameters(), weight, bias]
        decayed = [p for p in own if p.ndim > 1]
        plain = [p for p in own if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": optimizer.alpha}, {"params": plain}]
        if optimizer.solver == "adam":
            step = torch.optim.Adam(groups, lr=optimizer.learning_rate)
        else:
            step = torch.optim.SGD(groups, lr=optimizer.learning_rate, momentum=optimizer.momentum)
        self.trunk.train()
        for rows in epochs:
            total = count = 0.0
            n_batches = -(-len(rows) // optimizer.batch_size)
            ends = np.arange(1, n_batches) * len(rows) // n_batches
            for batch in np.split(rows, ends):
                X = torch.from_numpy(table.X[batch].astype(np.float32))
                scores = self.trunk(X) @ weight + bias
                counts = None if table.weights is None else table.weights[batch][None]
                delta, value, known = loss.derivative(
                    scores.detach().double().numpy()[None], table.Y[batch][None], counts
                )
                step.zero_grad()
                scores.backward(torch.from_numpy(delta[0].astype(np.float32)))
                step.step()
                total, count = total + value, count + known
        theta[: self.n_shared] = self._read()
        head[:-1], head[-1] = weight.detach().numpy(), bias.detach().numpy()
        return total, count
