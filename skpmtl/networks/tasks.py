"""The task side of the rounds with networks: what tasks send, and what they keep."""

import numpy as np

from ..exchange.protocol import TaskSide
from ..tables.table import row_products
from .steps import LocalSteps, Pace

_WAYS = np.linspace(0.0, 1.0, 5)  # parts of the way from the shared network to a task's own


class NetworkTaskSide(TaskSide):
    """Updates of the shared parameters; all else stays with the tasks.

    A task trains from w~, and sends its network - w~.

    Parameters
    ----------
    est : estimator
    network : FlatModule
    table : TaskTable
    which : ndarray (n_tasks,) of int64, centre of each task
    relation : Relation, default=None, what `which` is instead

    Attributes
    ----------
    kept : tensor (n_tasks, n_kept), local parameters and statistics, from round to round
    round : int, rounds that were asked, which batches follow from
    """

    def __init__(self, est, network, table, which, relation=None):
        self.network, self.table, self.to, self._rows = network, table, which, None
        if relation is not None:
            self.to, self._rows = relation.weights(table.tasks), relation.rows(table.tasks)
        self.local = LocalSteps(network, table)
        self.strength = 0.0 if est.update == "fedavg" else est.lam
        self.steps = Pace(est.local_steps, est.learning_rate, est.momentum, est.batch_size)
        kept = network.start[network.n_shared :]
        self.kept, self.round = kept.repeat(table.n_tasks, 1), 0

    @property
    def _keeps(self):
        return self.network.n_kept > 0

    def contributions(self, query):
        """Of each task asked: "update" (n, size), clipped."""
        pick = self._asked(query)
        sent = np.empty((len(pick), self.network.n_shared))
        for places, D in self._clipped(pick, query.public):
            sent[places] = D.cpu().numpy()
        return {"update": sent}

    def answer(self, query):
        torch, pick = self.network.torch, self._asked(query)
        shape = query.public["centre"].shape
        total = torch.zeros(shape, dtype=torch.float64, device=self.network.device)
        for places, D in self._clipped(pick, query.public):
            to = self.to[pick[places]]
            if to.ndim == 1:
                to = to[:, None] == np.arange(shape[0])
            to = torch.as_tensor(to.astype(float), device=self.network.device)
            total += to.T @ D
        return {"update": total.cpu().numpy()}

    def recalled(self, query):
        if self._keeps:
            self.answer(query)
        else:
            self.round += 1  # all that the next answers depend on

    def _asked(self, query):
        return np.arange(self.table.n_tasks) if query.pick is None else query.pick

    def _clipped(self, pick, public):
        """Clipped updates of the tasks, some at a time: places, float64 (n, size)."""
        network, torch = self.network, self.network.torch
        clip_norm = public["clip_norm"]
        centres = self._own(public["centre"], pick)
        kept = self.kept[torch.as_tensor(pick, device=network.device)]
        starts = torch.cat([centres, kept], dim=1)
        self.round += 1
        how = {"strength": self.strength, "salt": self.round}
        walk = self.local.walk(pick, starts, centres, self.steps, **how)
        for places, ends in walk:
            ends[~torch.isfinite(ends).all(dim=1)] = torch.nan  # sends, and keeps, nothing
            new, own = ends.split([network.n_shared, network.n_kept], dim=1)
            tasks = torch.as_tensor(pick[places], device=network.device)
            D = new.double() - centres[places].double()
            norms = torch.linalg.vector_norm(D, dim=1)
            good = torch.isfinite(norms)
            # Without a bound it is reported: the rounds diverged.
            D = torch.where(good[:, None], D, 0.0 if np.isfinite(clip_norm) else torch.nan)
            D *= torch.clamp(clip_norm / norms.nan_to_num(0.0).clamp_min(1e-300), max=1.0)[:, None]
            self.kept[tasks[good]] = own[good]
            yield places, D

    def _own(self, centres, pick):
        """Shared parameters around which each of the tasks lies, as a tensor (n, n_shared)."""
        network = self.network
        if self._rows is None:
            mine = centres[self.to[pick]]
        else:
            mine = row_products(self._rows[pick], centres)
        first = network.start[: network.n_shared].double().cpu().numpy()
        return network.tensor(first + mine)

    @property
    def state(self):
        """Number of the round; kept numbers of the tasks."""
        found = {"round": np.array(self.round)}
        if self._keeps:
            found["kept"] = self.kept.double().cpu().numpy()
        return found

    @state.setter
    def state(self, arrays):
        for name, values in arrays.items():
            value = int(values) if name == "round" else self.network.tensor(values)
            setattr(self, name, value)

    def final_models(self, billboard, personalize):
        """Networks of the tasks from what the rounds left with them. -> coef, intercept"""
        if not self._keeps:
            return personalize()
        return personal_networks(billboard, self.network, self.local, self.kept)


def personal_networks(billboard, network, local, kept=None):
    """Networks of the tasks of a table from the billboard, and from what they kept.

    `local` is of these tasks; `kept` (n_tasks, n_kept) is as at the start where it is None. -> coef
    (n_tasks, n_shared + n_kept); intercept, zeros
    """
    torch, table = network.torch, local.table
    which, centres = billboard.around(table.tasks)
    first, rest = np.split(billboard.start, [network.n_shared])
    centres = network.tensor(first + centres)[torch.as_tensor(which, device=network.device)]
    if kept is None:
        kept = network.tensor(rest).repeat(table.n_tasks, 1)
    starts = torch.cat([centres, kept], dim=1)
    coef, variant = np.empty(starts.shape), billboard.personalization
    if variant == "none":
        return starts.double().cpu().numpy(), np.zeros(len(coef))
    strength = 0.0 if variant == "finetune" else billboard.lam
    steps = Pace(
        billboard.personal_steps, billboard.learning_rate, billboard.momentum, billboard.batch_size
    )
    everybody, given = np.arange(table.n_tasks), {"strength": strength}
    if billboard.personal_folds is not None:
        public = torch.cat([network.tensor(first).repeat(len(coef), 1), kept], dim=1)
        losses = [
            local.losses(local.rows_of(k), ends)
            for k, ends in enumerate(zip(starts, public, strict=True))
        ]
        back = network.tensor(_likely(local, np.reshape(losses, (-1, 2)))[:, 1])
        starts = starts + back[:, None] * (public - starts)
        centres = starts[:, : network.n_shared]
    for places, ends in local.walk(everybody, starts, centres, steps, **given):
        coef[places] = ends.double().cpu().numpy()
    begin = starts.double().cpu().numpy()
    if billboard.personal_folds is not None:
        likely = _held_out(billboard.personal_folds, local, starts, centres, steps, given)
        way = row_products(likely, _WAYS)
        coef = begin + way[:, None] * (coef - begin)
    # Steps that ran away: the task stays where it began.
    lost = ~np.isfinite(coef).all(axis=1)
    coef[lost] = begin[lost]
    return coef, np.zeros(len(coef))


def _held_out(n_folds, local, starts, centres, steps, given):
    """Length of the way of every task, chosen on rows that are left out. -> (n_tasks, len(_WAYS))

    Weights of `_WAYS` from where the task begins to its own network: how probable they make the
    rows of each of `n_folds` folds, where it learnt from the others. Tasks of one row stay at the
    beginning. Other arguments are those of `LocalSteps.walk`.
    """
    torch, sizes = local.network.torch, local.table.sizes
    several, total = np.flatnonzero(sizes > 1), np.zeros((len(sizes), len(_WAYS)))
    for f in range(min(n_folds, int(sizes.max(initial=0)))):
        pick = several[sizes[several] > f]  # the fold has a row
        at = torch.as_tensor(pick, device=starts.device)
        begin = starts[at]
        walk = local.walk(pick, begin, centres[at], steps, **given, without=(f, n_folds))
        for places, ends in walk:
            for place, end in zip(places, ends, strict=True):
                ways = [begin[place] + float(c) * (end - begin[place]) for c in _WAYS]
                total[pick[place]] += local.losses(local.fold(pick[place], f, n_folds), ways)
    return _likely(local, total)


def _likely(local, losses):
    """How probable networks make the rows that they have these losses of, (n_tasks, n).

    Real targets have the variance that they have then. One row determines no variance: the first
    is certain.
    """
    if local.network.loss == "squared":
        losses = 0.5 * local.table.support[:, None] * np.log(losses + 1e-300)
    known = np.isfinite(losses)
    nothing = (local.table.sizes < 2) | ~known.any(axis=1)
    losses = np.where(known & ~nothing[:, None], losses, np.inf)
    losses[nothing, 0] = 0.0
    weight = np.exp(losses.min(axis=1, keepdims=True) - losses)
    return weight / weight.sum(axis=1, keepdims=True)
