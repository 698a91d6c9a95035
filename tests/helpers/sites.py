"""Tasks in several places: sites in one process, and parts of a table on the disk."""

from functools import partial

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl.exchange.protocol import Population, run
from skpmtl.privacy.rng import noise_source
from skpmtl.tables.forms import read_training


class Sites:
    """Task sides that hold some of the tasks each, asked by one curator.

    Parameters
    ----------
    rows : X, y and task ids in the long form
    parts : list of lists of task ids
    send : {"sums", "contributions"}
        Whether sites add up what their tasks send, or the curator does.
    """

    def __init__(self, est, rows, parts, send="sums"):
        self.est, self.send, self.asked, self.sites = est, send, [], []
        X, y, task = rows
        self.population = Population.of(self._table(X, y, task))
        for tasks in parts:
            mine = np.isin(task, tasks)
            table = self._table(X[mine], y[mine], task[mine])
            task_side = est._task_side(table, self.population)
            place = np.searchsorted(self.population.tasks, table.tasks)
            self.sites.append((place, task_side, table))

    def _table(self, X, y, task):
        table, _ = read_training(self.est, X, y, task)
        return self.est._encoded(table)[0]

    def run(self, journal=None):
        """-> the billboard of a fit with these sites"""
        source = noise_source(self.est.random_state)
        curator = self.est._queries(self.population, source)
        return run(curator, self, source, journal, self.est._n_servers)

    def answer(self, query):
        self.asked.append(query)
        if self.send == "contributions":
            return query.combine(*self.contributions(query))
        total = None
        for positions, task_side, _ in self.sites:
            sums = task_side.answer(query.local(positions)[0])
            total = sums if total is None else {k: total[k] + sums[k] for k in sums}
        return total

    def recalled(self, query):
        """What a journal answers: task sides that remember are asked all the same."""
        for positions, task_side, _ in self.sites:
            task_side.answer(query.local(positions)[0])

    def contributions(self, query):
        """Of all tasks that are asked, and their positions."""
        everything, places = [], []
        for positions, task_side, _ in self.sites:
            local, place = query.local(positions)
            everything.append(task_side.contributions(local))
            places.append(place)
        places = np.concatenate(places)
        order = np.argsort(places)
        names = everything[0]
        return {k: np.concatenate([e[k] for e in everything])[order] for k in names}, places[order]

    def models(self, billboard):
        """Coefficients of all tasks, from the billboard and the rows of each site."""
        self.est.billboard_ = billboard
        coef = None
        for positions, task_side, table in self.sites:
            mine = task_side.final_models(billboard, partial(self.est._personalize_table, table))[0]
            coef = np.empty((self.population.n_tasks, *mine.shape[1:])) if coef is None else coef
            coef[positions] = mine
        return coef


def drive(steps, release):
    """The same for a curator, or a part of one, that has begun. -> what it returns, and these"""
    queries, replies, reply = [], [], None
    while True:
        try:
            query = steps.send(reply)
        except StopIteration as end:
            return end.value, queries, replies
        queries.append(query)
        replies.append({n: release(query, n, m) for n, m in query.mechanisms.items()})
        reply = {n: value.copy() for n, value in replies[-1].items()}  # which they may change


def released(billboard):
    return billboard.releases if hasattr(billboard, "releases") else [billboard.init]


def write_part(path, X, y, task):
    path.mkdir()
    for name, values in (("X", X), ("y", y), ("task", task)):
        np.save(path / f"{name}.npy", values)
    return path


def write_parts(folder, X, y, task, split):
    """A folder with the rows of the tasks of every list of `split`. -> their paths"""
    return [
        write_part(folder / f"part-{k}", *(v[np.isin(task, tasks)] for v in (X, y, task)))
        for k, tasks in enumerate(split)
    ]


def assert_same_fit(ours, theirs, **tolerance):
    """All fitted attributes, of which floats may differ by rounding."""
    assert set(vars(ours)) == set(vars(theirs))
    for name, value in vars(theirs).items():
        if name in ("coef_", "intercept_", "mean_coef_", "mean_intercept_", "init_coef_"):
            assert_allclose(getattr(ours, name), value, err_msg=name, **tolerance)
        elif name in ("tasks_", "classes_", "n_iter_", "n_features_in_", "feature_names_in_"):
            assert_array_equal(getattr(ours, name), value, err_msg=name)
    assert ours.privacy_ == theirs.privacy_
    billboards = [getattr(e.billboard_, "releases", [e.billboard_]) for e in (ours, theirs)]
    for a, b in zip(*billboards, strict=True):
        if hasattr(a, "init"):
            a, b = a.init, b.init
        assert_allclose(a, b, **tolerance)
