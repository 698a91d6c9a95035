"""The task side of a meta round: inner steps from the initialisation, with the task's own noise."""

from dataclasses import replace

import numpy as np

from .._runtime.threads import cost_blocks
from ..exchange.protocol import TaskSide
from ..privacy.mechanisms import clip_rows
from ..privacy.rng import SeededSource, add_on_grid, replied
from .columns import sums_of_records
from .steps import RoundRows, even_weights

_BLOCK = 1 << 21  # numbers of noise, and marks of Poisson batches, held at once


class MetaTaskSide(TaskSide):
    """What the tasks of a round send, clipped and noised as the plan says.

    Unlike in the other methods it is the task side that adds noise: no task trusts anybody else.
    The tasks of the table are at `positions` of the population that the plan is of.
    """

    remembers = False  # tasks draw their noise anew, and are not asked twice if it can be helped

    def __init__(self, est, plan, table, positions, source):
        self.plan, self.source = plan.part(positions, table.sizes), source
        # With seeded noise those of a larger population leave out what the others draw.
        self.positions = None if len(positions) == len(plan.sizes) else positions
        self.visits = np.zeros(table.n_tasks, dtype=np.int64)
        self.asked = 0  # queries on columns
        self.table, self.rows = table, RoundRows(table, est.fit_intercept, loss=plan.loss)
        # Where records are protected the divisors are public, and weights are those of records.
        public = self.plan.mode == "task-global"
        self.weights = table.counts if public else even_weights(table)
        if not self.plan.columns:  # otherwise with their scales
            self._scale(plan.scaling)

    def _scale(self, scaling):
        """Go on with features in these units."""
        self.rows, rate = replace(self.rows, scaling=scaling), self.plan.inner_rate
        own = isinstance(rate, str)
        self.rate = self.rows.own_rates() if own else np.full(self.table.n_tasks, float(rate))

    def answer(self, query):
        """Weighted sum of what the tasks of the round send, in shape of the initialisation."""
        plan = self.plan
        if query.statistic == "columns":
            return {"columns": self.contributions(query)["columns"].sum(axis=0)}
        if plan.holds:  # against the length of most
            return query.combine(self.contributions(query), query.pick)
        total = np.zeros(query.public["init"].shape)
        for block, updates in self._sent(query):
            weights = plan.weights[block]
            if plan.to is not None:
                weights = (weights[:, None] * plan.to[block]).T
            total += np.tensordot(weights, updates, axes=1)
        return {"update": total}

    def contributions(self, query):
        """What each task of the round sends: "update" (n, n_outputs, size)."""
        if query.statistic == "columns":
            return {"columns": self._of_columns(query)}
        init = query.public["init"]
        self.visits[query.pick] += 1
        found, done = np.empty((len(query.pick), *init.shape[-2:])), 0
        for block, sent in self._sent(query):
            own = found[done : done + len(block)]
            np.multiply(self.plan.weights[block, None, None], sent, out=own)
            done += len(block)
        return {"update": found}

    def check(self, query):
        # Here the tasks spend the budget, and no curator can make them spend more.
        if query.statistic == "columns":
            if query.public["number"] != self.asked or self.asked >= len(self.plan.columns):
                raise ValueError(f"of columns tasks answer {len(self.plan.columns)} queries once")
        elif (self.visits[query.pick] >= self.plan.visits).any():
            raise ValueError(f"tasks take part {self.plan.visits} times, which is done")

    @property
    def state(self):
        """How often each task took part, and how many queries on columns it answered."""
        return {"visits": self.visits, "asked": np.array(self.asked)}

    @state.setter
    def state(self, arrays):
        self.visits = arrays.get("visits", self.visits)
        self.asked = int(arrays.get("asked", self.asked))

    def _of_columns(self, query):
        """Weighted means over the records of each task, with its noise."""
        plan, number = self.plan, query.public["number"]
        self.asked = number + 1
        m, d = self.table.n_tasks, plan.n_features
        source, parts = self.source.stream(plan.n_rounds + number), []
        if self.positions is None or not isinstance(source, SeededSource):
            blocks = self._blocks(np.arange(m))
        else:  # the same noise wherever the rows of a task are
            blocks = np.arange(m)[:, None]
        before = 0
        for block in blocks:
            if self.positions is not None and isinstance(source, SeededSource):
                source.normal((self.positions[block[0]] - before) * d)
                before = self.positions[block[0]] + 1
            parts.append(self._mean_columns(block, query.public, plan.columns[number], source))
        return np.concatenate(parts)

    def _mean_columns(self, block, public, asked, source):
        # Without a budget rows count as often as they were seen.
        weights = self.table.counts if self.plan.mode is None else self.weights

        def exact():
            return sums_of_records(self.table, weights, block, asked.what, public)

        if self.plan.mode is None:
            return exact()
        divisor = self.table.sizes[block, None]
        before, after = (1.0, divisor) if self.plan.mode == "task-global" else (divisor, 1.0)

        def draw():
            noise = self._noise_steps(block, (self.plan.n_features,), source, asked)
            step, shrink = asked.noise_step[block, None], asked.shrink[block, None]
            return {"update": add_on_grid(exact() / before * shrink, noise, step)}

        sent = replied(
            lambda: self.plan.describe(block, asked), draw, lambda reply: exact() / before
        )
        return asked.weights[block, None] * sent["update"] / after

    def _sent(self, query):
        if "scaling" in query.public and not np.array_equal(
            self.rows.scaling, query.public["scaling"]
        ):
            self._scale(query.public["scaling"])
        init, number = query.public["init"], query.public["round"]
        source, begun = self.source.stream(number), self.plan.steps_before(number)
        if self.positions is None or not isinstance(source, SeededSource):
            for block in self._blocks(query.pick):
                yield block, self._updates(block, self.plan.starts(init, block), begun, source)
            return
        # Reproducible noise is one stream for all tasks of a round, of which these take their part.
        numbers = self.plan.n_outputs * self.plan.size
        numbers *= self.plan.inner_steps if self.plan.mode == "task-global" else 1
        places = np.searchsorted(query.public["everybody"], self.positions[query.pick])
        gaps = np.diff(places, prepend=-1) - 1
        for k, gap in zip(query.pick, gaps, strict=True):
            source.normal(gap * numbers)
            one = np.array([k])
            yield one, self._updates(one, self.plan.starts(init, one), begun, source)

    def _blocks(self, pick):
        """`pick` in pieces whose noise and marks stay small."""
        plan = self.plan
        cost = np.full(len(pick), plan.n_outputs * plan.size)
        if plan.mode == "task-global":
            cost *= plan.inner_steps
        if plan.batches == "poisson":
            cost = cost + plan.inner_steps * plan.sizes[pick]
        for first, last in cost_blocks(cost, _BLOCK):
            yield pick[first:last]

    def _updates(self, block, init, begun, source):
        """What the tasks of a block send, (n, n_outputs, size); `init` as of `MetaPlan.starts`."""
        plan, shape = self.plan, init.shape[-2:]

        def draw():
            marks = self._marks(block, source)
            if plan.mode == "task-global":
                # The kernel writes the released sum of a step where it has read its noise.
                sums = self._noise_steps(block, (plan.inner_steps, *shape), source)
                sent = self._walk(
                    block,
                    init,
                    begun,
                    marks,
                    clip_norm=plan.clip_norm,
                    noise=sums,
                    noise_step=plan.noise_step,
                    shrink=plan.shrink,
                    gradients=sums,
                )
                return {"update": sent, "sums": sums, "marks": marks}
            sent = self._walk(block, init, begun, marks)
            if plan.mode == "local":
                k, flat = block[0], self._clipped(sent)  # all tasks add the same noise
                noise = self._noise_steps(block, flat.shape[1:], source)
                flat[:] = add_on_grid(flat * plan.shrink[k], noise, plan.noise_step[k])
            return {"update": sent, "marks": marks}

        def values(reply):
            if plan.mode == "local":
                return self._clipped(self._walk(block, init, begun, reply["marks"]))
            return self._exact_sums(block, init, begun, reply).reshape(-1, shape[0] * shape[1])

        if plan.mode is None:
            return draw()["update"]
        return replied(lambda: plan.describe(block), draw, values)["update"]

    def _walk(self, block, init, begun, marks, **noise):
        """Inner steps of the tasks of a block. -> how far they lead"""
        plan = self.plan
        settings = {"n_steps": plan.inner_steps, "rate": self.rate, "weights": self.weights}
        if plan.batches == "full" and not noise:
            return self.rows.free_steps(block, init, **settings)
        return self.rows.steps(
            block,
            init,
            begun=begun,
            batch_size=plan.batch_size,
            n_batches=plan.n_batches,
            **settings,
            **marks,
            **noise,
        )

    def _clipped(self, sent):
        """Updates of privacy="local", flat, clipped in place."""
        flat = sent.reshape(len(sent), -1)
        clip_rows(flat, self.plan.clip_norm)
        return flat

    def _exact_sums(self, block, init, begun, reply):
        """Sums of clipped gradients on the way that the released sums of a reply lead along.

        For an audit, which compares them with what was released: a task takes its next step from
        the noisy sum, so that all of its sums are functions of its rows and of the releases.
        """
        plan, sums = self.plan, reply["sums"]
        out = np.empty(sums.shape)
        for a, k in enumerate(block):
            n, W = plan.sizes[k], (init if init.ndim == 2 else init[a]).copy()
            batch = np.arange(n) % plan.n_batches[k]
            for t in range(plan.inner_steps):
                marked = batch == (begun + t) % plan.n_batches[k]
                divisor = marked.sum()
                if reply["marks"]:
                    begin = reply["marks"]["mask_ends"][a] + t * n
                    marked = reply["marks"]["mask"][begin : begin + n]
                    divisor = plan.batch_size
                self.rows.steps(
                    block[a : a + 1],
                    W,
                    n_steps=1,
                    rate=self.rate,
                    clip_norm=plan.clip_norm,
                    mask=marked.view(np.uint8),
                    mask_ends=np.array([0, n]),
                    weights=self.weights,
                    gradients=out[a : a + 1, t : t + 1],
                )
                W -= self.rate[k] / divisor * sums[a, t]
        return out

    def _noise_steps(self, block, shape, source, asked=None):
        """Noise in whole steps of each task's grid, (len(block), *shape)."""
        noise = self.plan if asked is None else asked
        scale = (noise.noise_std / noise.noise_step)[block]
        if not source.exact:
            noise = source.normal((len(block), *shape))
            noise *= scale.reshape(-1, *[1] * len(shape))
            return np.rint(noise, out=noise)
        noise = np.empty((len(block), *shape))
        for value in np.unique(scale):
            same = np.flatnonzero(scale == value)
            noise[same] = source.discrete_normal(value, (len(same), *shape))
        return noise

    def _marks(self, block, source):
        """Poisson batches of all steps; secret randomness like the noise."""
        plan = self.plan
        if plan.batches != "poisson":
            return {}
        counts = plan.sizes[block] * plan.inner_steps
        ends = np.concatenate([[0], np.cumsum(counts)])
        if isinstance(source, SeededSource):  # the same wherever the rows of a task are
            places = block if self.positions is None else self.positions[block]
            pairs = zip(places.tolist(), counts.tolist(), strict=True)
            drawn = np.concatenate([source.stream(k).uniform(n) for k, n in pairs])
        else:
            drawn = source.uniform(int(ends[-1]))
        marks = (drawn < np.repeat(plan.rates[block], counts)).view(np.uint8)
        return {"mask": marks, "mask_ends": ends}
