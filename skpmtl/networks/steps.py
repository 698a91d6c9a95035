"""Steps that tasks take with a module, each on its own rows.

Where a module is on a CPU tasks are trained one after the other, which is the fastest there for
convolutions; elsewhere many at a time (`torch.func.vmap`), because launching a step of one small
task costs as much as one of hundreds. Both take the same batches and the same steps.
"""

from typing import NamedTuple

import numpy as np

from .._runtime.torch_modules import drawing, sow
from ..tables.assignment import random_words
from .module import plain_numbers

_BLOCK = 1 << 27  # numbers that tasks trained together may hold


class Pace(NamedTuple):
    """Gradient steps with momentum: v <- momentum v + gradient, w <- w - rate v."""

    count: int  # type: ignore[assignment]  # in place of tuple.count
    rate: float
    momentum: float
    batch_size: int | None  # rows of a step, dealt anew when all were taken; None: all


class LocalSteps:
    """Training of the tasks of a table."""

    def __init__(self, network, table):
        self.network, self.table = network, table
        self.X, self.y = network.rows(table.X), network.targets(table.y)
        # An error would end the fits of all tasks: these rows count as zeros without weight.
        refused = network.refused(self.X)
        self.X[network.torch.as_tensor(refused, device=network.device)] = 0.0
        self.taken = ~(refused if table.rows is None else refused[table.rows])
        given = np.ones(table.n_rows) if table.weights is None else table.weights
        self.weights = network.tensor(given * self.taken)

    def walk(
        self,
        pick,
        starts,
        centres,
        steps,
        *,
        strength=0.0,
        salt=0,
        without=None,
    ):
        """Steps of the tasks `pick`, from `starts`, on mean loss + strength / 2 ||w - centre||^2.

        Yields places in `pick` and where these tasks end. The penalty is on the shared parameters.
        `salt` and its id determine the batches of a task; `without`, (f, n_folds), leaves out the
        rows of fold f of tasks with two rows or more.
        """
        network = self.network
        # What is random in a module is drawn for all tasks of a block at once, and must not depend
        # on which they are.
        apart = network.one_by_one or network.recurrent or network.draws
        apart = apart or network.device.type == "cpu"
        for places in self._blocks(pick, steps, not apart):
            at = network.torch.as_tensor(places, device=network.device)
            given = pick[places], starts[at], centres[at], steps, strength, salt, without
            with drawing(network.torch, None, network.device), plain_numbers(network.torch):
                ends = self._block(*given) if len(places) > 1 else self._one(*given)
            yield places, ends

    def _blocks(self, pick, steps, together):
        """Places in `pick` of those that are trained together; of about the same size."""
        if not together:
            yield from (np.array([place]) for place in range(len(pick)))
            return
        sizes = self.table.sizes[pick]
        rows = np.minimum(sizes, steps.batch_size or sizes.max(initial=1))
        order = np.argsort(rows, kind="stable")
        own = 8 * (self.network.n_shared + self.network.n_kept)
        first = 0
        while first < len(order):
            last = first + 1
            # Layers hold a few times the numbers of their rows.
            while (
                last < len(order)
                and (last + 1 - first) * (own + 32 * self.X.shape[1] * int(rows[order[last]]))
                <= _BLOCK
            ):
                last += 1
            yield order[first:last]
            first = last

    def grows(self, k, before, after):
        """Whether the loss of task k is larger, or no number, under the second of two vectors."""
        before, after = self.losses(self.rows_of(k), (before, after))
        return not after <= before

    def fold(self, k, f, n_folds):
        """Rows of the table in the f-th of so many equal parts of those of task k."""
        order = np.argsort(self._words(k, "fold", self.table.sizes[k]))
        return self.table.offsets[k] + order[f::n_folds]

    def _words(self, k, purpose, count, seed=0):
        """Random words of task k, see `random_words`."""
        return random_words(seed, purpose, self.table.tasks[k : k + 1], [int(count)])

    def rows_of(self, k, without=None):
        """Rows of the table of task k, without those of a `fold`."""
        rows = np.arange(*self.table.offsets[k : k + 2])
        return rows if without is None else np.setdiff1d(rows, self.fold(k, *without))

    def _batches(self, k, steps, salt, without):
        """Rows of the table of every step, (count, batch)."""
        own = self.rows_of(k, without)
        n = len(own)
        size = min(steps.batch_size or n, n)
        if size == n:
            batches = np.broadcast_to(np.arange(n), (steps.count, n))
        else:
            dealt = -(-steps.count * size // n)
            words = self._words(k, "batch", dealt * n, salt).reshape(dealt, n)
            batches = np.argsort(words, axis=1).ravel()
            batches = batches[: steps.count * size].reshape(steps.count, size)
        return own[batches]

    def _features(self, index):
        """Features of rows of the table."""
        index = index if self.table.rows is None else self.table.rows[index]
        at = np.ascontiguousarray(index)
        return self.X[self.network.torch.as_tensor(at, device=self.network.device)]

    def _objective(self, scores, y, weights):
        """Mean loss of a batch."""
        losses = self.network.losses(scores, y)
        return (weights * losses).sum() / weights.sum().clamp_min(1e-30)

    def _moved(self, parts, velocity, gradient, centre, steps, strength):
        """One step, in place."""
        for j, (p, v, g) in enumerate(zip(parts, velocity, gradient, strict=True)):
            v.mul_(steps.momentum).add_(g)
            if strength and j < len(centre):
                v.add_(p - centre[j], alpha=strength)
            p.sub_(v, alpha=steps.rate)

    def _one(self, pick, starts, centres, steps, strength, salt, without):
        network, torch, k = self.network, self.network.torch, int(pick[0])
        network.write(starts[0])
        parts, centre = network.trained, self._centre(centres[0])
        batches = self._batches(k, steps, salt, without)
        network.module.eval()
        network.train(batches.shape[1])
        sow(torch, int(self._words(k, "module", 1, salt)[0] >> np.uint64(1)), network.device)
        velocity = [torch.zeros_like(p) for p in parts]
        for t, rows in enumerate(batches):
            if t == 0 or not np.array_equal(rows, batches[t - 1]):
                at = torch.as_tensor(np.ascontiguousarray(rows), device=network.device)
                X, y, weights = self._features(rows), self.y[at], self.weights[at]
            value = self._objective(network.scores(network.module(X)), y, weights)
            gradient = torch.autograd.grad(value, parts, allow_unused=True)
            with torch.no_grad():
                gradient = [
                    torch.zeros_like(p) if g is None else g
                    for p, g in zip(parts, gradient, strict=True)
                ]
                self._moved(parts, velocity, gradient, centre, steps, strength)
        return network.read()[None]

    def _block(self, pick, starts, centres, steps, strength, salt, without):
        network, torch = self.network, self.network.torch
        network.reset()
        found = [self._batches(int(k), steps, salt, without) for k in pick]
        longest = max(rows.shape[1] for rows in found)
        index = np.zeros((len(pick), steps.count, longest), dtype=np.int64)
        known = np.zeros(index.shape)
        for a, rows in enumerate(found):
            index[a, :, : rows.shape[1]], known[a, :, : rows.shape[1]] = rows, 1.0
        parts = [part.clone() for part in network.split(starts)]
        centre = self._centre(centres)
        known = network.tensor(known)
        network.train(longest)
        slope = torch.func.vmap(
            torch.func.grad(lambda p, X, y, w: self._objective(network.call(p, X), y, w))
        )
        velocity = [torch.zeros_like(p) for p in parts]
        with torch.no_grad():
            for t in range(steps.count):
                rows = index[:, t]
                at = torch.as_tensor(rows, device=network.device)
                weights = self.weights[at] * known[:, t]
                gradient = slope(parts, self._features(rows), self.y[at], weights)
                self._moved(parts, velocity, gradient, centre, steps, strength)
            return network.joined(parts, 1)

    def losses(self, rows, vectors):
        """Sum of the losses of rows of the table under vectors (n, n_shared + n_kept): (n,)"""
        network, torch = self.network, self.network.torch
        X, at = self._features(rows), torch.as_tensor(rows, device=network.device)
        found = np.empty(len(vectors))
        with torch.no_grad(), drawing(torch, 0, network.device), plain_numbers(torch):
            for i, vector in enumerate(vectors):
                network.write(vector)
                network.module.eval()
                losses = network.losses(network.scores(network.module(X)), self.y[at])
                found[i] = float((self.weights[at] * losses).sum())
        return found

    def _centre(self, centres):
        """Tensors of the shared parameters alone."""
        sizes = self.network.sizes[: self.network.n_sharing]
        shapes = [shape for _, shape in self.network.layout]
        parts = zip(centres.split(sizes, dim=-1), shapes, strict=True)
        return [part.reshape(*centres.shape[:-1], *shape) for part, shape in parts]
