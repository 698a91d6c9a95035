"""Unknown groups of tasks with similar slopes: centres that tasks move by their own labels.

Starts are on both sides of the released slopes, along the directions of the released shape in
which tasks differ most. In every round a task names the group that makes its rows most probable,
and sends its clipped deviation from that centre: k-means by evidence. Groups that are not clear of
the noise are dropped, and tasks vote on the list with groups against the list without.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..task.priors import after, candidates, log_sum_of
from .queries import NEVER, Part, Question

MOST_GROUPS = 12
ROUNDS, EXACT_ROUNDS = 15, 40
_AUTO = 8  # starts where their number is not given; those that nobody takes are dropped
# Times what a direction of a flat shape has; or times the middle one, as one large direction leaves
# little of the trace to others.
_STANDS_OUT, _ABOVE_MIDDLE = 1.5, 5.0
_CLEAR = 3.0  # standard deviations of noise that a group has to clear
_MOST = 0.95  # weight of the list with groups: other tasks are unlike all of them
_LEVEL = 1.645  # standard deviations of noise: named where there are none in one fit of twenty


@dataclass
class GroupStep(Question):
    """A task's group, and its deviation from the centre of the group, in a ball of 1.

    `clip_norm` is the unit of deviations, and `root` (d, d) that of the shape about the `centres`
    (G, d) of the groups, which have the `level` at x = 0 in common.
    """

    kind, sends, length, spread = "groups", (MOST_GROUPS, "d + 1"), math.sqrt(2.0), 2.0
    level: float
    centres: Annotated[np.ndarray, range(1, MOST_GROUPS + 1), "d"]
    root: Annotated[np.ndarray, "d", "d"]
    clip_norm: float

    @property
    def size(self):
        return len(self.centres) * (self.centres.shape[1] + 1)

    def answer(self, tasks, model):
        scales = model.scales()
        about = np.insert(self.centres, 0, self.level, axis=1)
        evidence = np.stack(
            [tasks.evidence(model, centre, self.root, scales) for centre in about], axis=1
        )
        label = np.argmax(evidence, axis=1)
        sent = np.zeros((len(label), MOST_GROUPS, about.shape[1]))  # of any number the same shape
        for g, centre in enumerate(about):
            mine = label == g
            deviation = tasks.deviations(model, centre, self.root, scales)[1]
            sent[mine, g, 0] = 1.0
            sent[mine, g, 1:] = deviation[mine] / self.clip_norm
        return sent.reshape(len(label), -1)

    def bounded(self, sent):
        """One group of every task, whoever sent it."""
        sent = np.nan_to_num(np.array(sent[:, : self.size], dtype=float))
        every = sent.reshape(len(sent), len(self.centres), -1)
        label = np.argmax(every[..., 0], axis=1)
        own = every[np.arange(len(every)), label]
        there = own[:, 0] > 0.0
        with np.errstate(over="ignore"):
            size = np.sqrt(np.sum(own[:, 1:] ** 2, axis=1))
        own[:, 1:] /= np.maximum(size, 1.0)[:, None]
        own[:, 0] = 1.0
        kept = np.zeros_like(every)
        kept[np.arange(len(every)), label] = np.where(there[:, None], own, 0.0)
        return kept.reshape(len(sent), -1)


def starts(about, root, kappa, number):
    """Centres (G, d) on both sides of `about` (d,); none where no direction stands out.

    Slopes have the variance `kappa` over the shape of this root; `number` may be "auto".
    """
    values, vectors = np.linalg.eigh(root @ root.T)
    number = _AUTO if number == "auto" else number
    least = min(_STANDS_OUT / len(values), _ABOVE_MIDDLE * float(np.median(values)))
    clear = int(np.sum(values > least))
    found = []
    for j in range(1, min(clear, math.ceil(number / 2)) + 1):
        reach = math.sqrt(kappa * values[-j]) * vectors[:, -j]
        found += [about + reach, about - reach]
    return np.array(found[:number]).reshape(-1, len(about))


def find(loop, share):
    """Rounds of k-means by evidence. -> centres (G, d), counts (G,), noise of a count"""
    model = loop.model
    kappa = float(np.exp(model.log_kappa) @ model.kappa)
    centres = starts(loop.about[1:], model.root, kappa, loop.plan.n_groups)
    counts, noise, private = np.zeros(len(centres)), 0.0, loop.plan.is_private
    rounds = ROUNDS if private else EXACT_ROUNDS
    for r in range(rounds if len(centres) else 0):
        clip_norm = math.sqrt(kappa) * (1.0 - private * r / (rounds + 1.0))
        question = GroupStep(float(model.centre[0]), centres, model.flat, clip_norm)
        found, noise = yield from loop.ask(question, share / rounds)
        found = found.reshape(len(centres), -1)
        counts = found[:, 0]
        # Shrunk by the noise of what is divided, and of what it is divided by.
        size = np.maximum(counts, 0.0)
        weight = size / (size**2 + noise**2 + 1e-300)
        centres = centres + clip_norm * found[:, 1:] * weight[:, None]
    kept = counts > max(_CLEAR * noise, 1.0)
    return centres[kept], counts[kept], noise


def vote(loop, centres, counts, share):
    """The list without groups against those with, from near to the centres to far from them.

    Groups are named where the likeliest list with them is more likely than the likeliest without by
    more than the noise of the steps of the path between the two.
    """
    model, zero, grid = loop.model, loop.zero, loop.model.kappa
    logs = np.log(counts / counts.sum())
    scales = candidates(grid)
    # From near to far without groups, and back with them: neighbours are alike.
    none = np.full_like(scales, NEVER)
    parts: list[Part] = []
    for centre, root, log in (
        (zero, model.flat, model.log_components[0]),
        (zero, model.root, model.log_components[1]),
        (model.centre, model.root, model.log_components[2]),
    ):
        path = np.concatenate([scales + log, none])
        parts.append(loop.part(centre, root, axis=1, path=path))
    for slopes, log in zip(centres, logs, strict=True):
        path = np.concatenate([none, scales[::-1] + log])
        centre = np.append(model.centre[0], slopes)
        parts.append(loop.part(centre, model.flat, axis=1, path=path))
    before = loop.law.log_kappa
    log_weights, _, noise = yield from loop.vote(
        "groups", parts, share, log_prior=np.append(before, before[::-1])
    )
    without, log_weights = log_weights[: len(grid)], log_weights[len(grid) :][::-1]
    of_groups = log_sum_of(log_weights)
    steps = 2 * len(grid) - 1 - int(np.argmax(log_weights)) - int(np.argmax(without))
    if of_groups - log_sum_of(without) > _LEVEL * min(noise, 1.0) * math.sqrt(steps):
        weight = min(math.exp(of_groups), _MOST)
        mixed = np.logaddexp.reduce(log_weights[:, None] + scales, axis=0)
        loop.update(
            groups=centres,
            log_groups=math.log(weight) + logs,
            group_counts=counts,
            group_kappa=after(mixed, loop.law.log_kappa),
        )
