"""The two halves of a meta round: what tasks send, and the meta-learner that takes its mean."""

import numpy as np

from ._kernels.clip import clip_rows
from .finetune import own_rates, row_norms, run_inner
from .privacy.rng import add_on_grid
from .threads import cost_blocks

_BLOCK = 1 << 21  # numbers of noise, and marks of Poisson batches, held at once


class Visits:
    """The task half: what the tasks of a round send, clipped and noised as the plan says.

    Parameters
    ----------
    plan : MetaPlan
    table : TaskTable
    est : estimator
    source : noise source
    """

    def __init__(self, plan, table, est, source):
        self.plan, self.table, self.source = plan, table, source
        self.fit_intercept, self.average = est.fit_intercept, est.iterate == "average"
        self.norms = row_norms(table.X, est.fit_intercept)
        rate = plan.inner_rate
        if isinstance(rate, str):
            self.rate = own_rates(table, plan.kind, est.fit_intercept)
        else:
            self.rate = np.full(table.n_tasks, float(rate))

    def mean_update(self, pick, init):
        """Weighted mean of what the tasks `pick` send, in shape of `init`."""
        total = np.zeros(init.shape)
        for block in self._blocks(pick):
            total += np.tensordot(self.plan.weights[block], self._updates(block, init), axes=1)
        return total / len(pick)

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

    def _updates(self, block, init):
        plan, record = self.plan, self.plan.mode == "task-global"
        out = np.empty((len(block), *init.shape))
        batches = {"batch_size": plan.batch_size, "n_batches": plan.n_batches}
        if plan.batches == "poisson":
            batches.update(self._marks(block))
        noise = {}
        if record:
            shape = (plan.inner_steps, *init.shape)
            noise = {
                "clip_norm": plan.clip_norm,
                "noise": self._noise_steps(block, shape),
                "noise_step": plan.noise_step,
                "shrink": plan.shrink,
            }
        run_inner(
            self.table, plan.kind, self.fit_intercept, block, init, out,
            n_steps=plan.inner_steps, rate=self.rate, norms=self.norms, average=self.average,
            **batches, **noise,
        )  # fmt: skip
        if plan.mode == "local":
            flat = out.reshape(len(block), -1)
            clip_rows(flat, plan.clip_norm, 2, flat)
            k = block[0]  # all tasks add the same noise
            noise = self._noise_steps(block, flat.shape[1:])
            flat[:] = add_on_grid(flat * plan.shrink[k], noise, plan.noise_step[k])
        return out

    def _noise_steps(self, block, shape):
        """Noise in whole steps of each task's grid, (len(block), *shape)."""
        scale = (self.plan.noise_std / self.plan.noise_step)[block]
        if not self.source.exact:
            noise = self.source.normal((len(block), *shape))
            noise *= scale.reshape(-1, *[1] * len(shape))
            return np.rint(noise, out=noise)
        noise = np.empty((len(block), *shape))
        for value in np.unique(scale):
            same = np.flatnonzero(scale == value)
            noise[same] = self.source.discrete_normal(value, (len(same), *shape))
        return noise

    def _marks(self, block):
        """Poisson batches of all steps; secret randomness like the noise."""
        plan = self.plan
        counts = plan.sizes[block] * plan.inner_steps
        ends = np.concatenate([[0], np.cumsum(counts)])
        rate = np.repeat(plan.rates[block], counts)
        marks = (self.source.uniform(int(ends[-1])) < rate).view(np.uint8)
        return {"mask": marks, "mask_ends": ends}


def run_rounds(visits, init, decay, log=None):
    """All rounds of the meta-learner; moves `init` in place.

    It sees what the tasks of a round send, and nothing else of them.
    """
    plan = visits.plan
    rate, t = plan.meta_rate, 0
    for _ in range(plan.visits):
        order = visits.source.permutation(len(plan.sizes))
        for first in range(0, len(order), plan.tasks_per_round):
            pick = np.sort(order[first : first + plan.tasks_per_round])
            init += rate * decay**t * visits.mean_update(pick, init)
            t += 1
            if log is not None:
                log(t, len(pick))
