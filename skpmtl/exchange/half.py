"""The tasks' side of a method: what a half owes to curators, shards and sites."""

import copy

import numpy as np

__all__ = ["Half", "HalfOfSome", "contributed", "half_of"]


class Half:
    """What the tasks of one table answer, vectorised over them.

    A half sees the rows of its own tasks, and of the others nothing but what was released. A
    subclass defines `contributions`; the rest has defaults.

    Attributes
    ----------
    remembers : bool
        Whether answers may depend on earlier questions. Where a worker was lost, a new one is
        then asked them again.
    """

    remembers = True

    def contributions(self, ask):
        """Bounded answers of the tasks that are asked, before they are added up.

        Parameters
        ----------
        ask : Ask
            Its `pick` counts the tasks of this half from 0; None: all of them.

        Returns
        -------
        contributions : dict of str to ndarray (n, ...)
            One row per task, in the order of `pick`.
        """
        raise NotImplementedError

    def check(self, ask):
        """Raise ValueError, of public words, for more answers than the parameters allow.

        For sites, whose tasks trust no curator to stop.
        """

    def answer(self, ask):
        """Sums of the contributions. -> {name: ndarray}

        A half whose contributions are large adds them up as they are made.
        """
        return ask.combine(self.contributions(ask))

    @property
    def state(self):
        """Arrays by name that last from one question to the next.

        To be set again where every question meets a new process.
        """
        return {}

    @state.setter
    def state(self, arrays):
        if arrays:
            raise ValueError(f"{type(self).__name__} keeps nothing between questions.")

    def final_models(self, board, personalize):
        """Models of the tasks after the fit. -> coef, intercept

        Those of ``personalize()``, where the questions did not leave others with the tasks.
        """
        return personalize()


class HalfOfSome:
    """The half of some of the tasks of a population; the others have no rows, and nothing to add.

    Parameters
    ----------
    half : Half
    positions : ndarray (n,) of int64
        Of its tasks in the population.
    """

    def __init__(self, half, positions):
        self.half, self.positions = half, positions

    def answer(self, ask):
        return self.half.answer(ask.local(self.positions)[0])


def half_of(half, table, population):
    """The half of a population, from that of its tasks with rows, which are those of `table`."""
    if not len(table.absent):
        return half
    return HalfOfSome(half, np.searchsorted(population.tasks, table.tasks))


def contributed(tasks, ask):
    """What each task contributes to a question, from a copy of the tasks' side.

    Returns
    -------
    positions : ndarray (n,) of int64
        Of the tasks in the population.
    contributions : dict of str to ndarray (n, ...)
        Empty where tasks add their noise themselves, and where they are on other machines.
    """
    positions, half = np.empty(0, dtype=np.int64), tasks
    if isinstance(tasks, HalfOfSome):
        half = tasks.half
        ask, positions = ask.local(tasks.positions)
    if None in ask.mechanisms.values() or not isinstance(half, Half):
        return positions[:0], {}
    found = copy.deepcopy(half).contributions(ask)
    if half is tasks:
        positions = ask.pick
        if positions is None:
            positions = np.arange(len(next(iter(found.values()))))
    return positions, {name: np.array(value) for name, value in found.items()}
