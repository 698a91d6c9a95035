"""The task side of a method: what it owes to curators, shards and sites."""

import copy

import numpy as np

__all__ = ["TaskSide", "PartialTaskSide", "contributed", "task_side_of"]


class TaskSide:
    """What the tasks of one table answer, vectorised over them.

    A task side sees the rows of its own tasks, and of the others nothing but what was released. A
    subclass defines `contributions`; the rest has defaults.

    Attributes
    ----------
    remembers : bool
        Whether answers may depend on earlier queries. Where a worker was lost, a new one is
        then asked them again.
    """

    remembers = True

    def contributions(self, query):
        """Bounded answers of the tasks that are asked, before they are added up.

        Parameters
        ----------
        query : Query
            Its `pick` counts the tasks of this task side from 0; None: all of them.

        Returns
        -------
        contributions : dict of str to ndarray (n, ...)
            One row per task, in the order of `pick`.
        """
        raise NotImplementedError

    def check(self, query):
        """Raise ValueError, of public words, for more answers than the parameters allow.

        For sites, whose tasks trust no curator to stop.
        """

    def answer(self, query):
        """Sums of the contributions. -> {name: ndarray}

        A task side whose contributions are large adds them up as they are made.
        """
        return query.combine(self.contributions(query))

    @property
    def state(self):
        """Arrays by name that last from one query to the next.

        To be set again where every query meets a new process.
        """
        return {}

    @state.setter
    def state(self, arrays):
        if arrays:
            raise ValueError(f"{type(self).__name__} keeps nothing between queries.")

    def final_models(self, billboard, personalize):
        """Models of the tasks after the fit. -> coef, intercept

        Those of ``personalize()``, where the queries did not leave others with the tasks.
        """
        return personalize()


class PartialTaskSide:
    """The task side of a population of which some tasks have no rows here, and nothing to add.

    Parameters
    ----------
    task_side : TaskSide
    positions : ndarray (n,) of int64
        Of its tasks in the population.
    """

    def __init__(self, task_side, positions):
        self.task_side, self.positions = task_side, positions

    def answer(self, query):
        return self.task_side.answer(query.local(self.positions)[0])


def task_side_of(task_side, table, population):
    """The task side of a population, from that of `table`, which has its tasks with rows."""
    if not len(table.absent):
        return task_side
    return PartialTaskSide(task_side, np.searchsorted(population.tasks, table.tasks))


def contributed(tasks, query):
    """What each task contributes to a query, from a copy of the task side.

    Returns
    -------
    positions : ndarray (n,) of int64
        Of the tasks in the population.
    contributions : dict of str to ndarray (n, ...)
        Empty where tasks add their noise themselves, and where they are on other machines.
    """
    positions, task_side = np.empty(0, dtype=np.int64), tasks
    if isinstance(tasks, PartialTaskSide):
        task_side = tasks.task_side
        query, positions = query.local(tasks.positions)
    if None in query.mechanisms.values() or not isinstance(task_side, TaskSide):
        return positions[:0], {}
    found = copy.deepcopy(task_side).contributions(query)
    if task_side is tasks:
        positions = query.pick
        if positions is None:
            positions = np.arange(len(next(iter(found.values()))))
    return positions, {name: np.array(value) for name, value in found.items()}
