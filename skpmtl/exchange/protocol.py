"""Protocol between curator and tasks: queries, answers, releases.

The curator of a method is a generator. It yields `Query`, a public question to the tasks, and is
sent what was *released* of their answers; it never sees an answer, so that everything it computes
is a function of the releases. `run` is the only place where answers are summed and noise is added.

The task side of a method has ``answer(query)``, the sums of what its tasks contribute, and
``contributions(query)``, the same before summing, for a curator elsewhere. Both may also be on
other machines: see `skpmtl.shards` and `skpmtl.federated`.
"""

import copy
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real

import numpy as np

from .._runtime.hints import Self
from ..privacy.mechanisms import rounding_factor
from ..privacy.rng import TAPE, replied
from . import servers
from .wire import check_arrays

__all__ = ["Query", "PublicDraw", "Population", "QuerySpec", "allow_for_rounding", "run"]


@dataclass(frozen=True)
class Population:
    """What is public about the participants before a fit starts.

    Parameters
    ----------
    tasks : ndarray (m,)
        Their ids, sorted.
    n_features : int
    n_classes : int, default=0
        0 for real targets.
    sizes : ndarray (m,), default=None
        Rows of every task, for methods that take them as public.
    is_sparse : bool, default=False
        Whether tasks hold CSR rows.
    levels : dict, default=None
        Levels of the factors of rows by name, of a table without a budget.
    """

    tasks: np.ndarray
    n_features: int
    n_classes: int = 0
    sizes: np.ndarray | None = None
    is_sparse: bool = False
    levels: dict | None = None

    @property
    def n_tasks(self):
        return len(self.tasks)

    @property
    def loss(self):
        """ "squared", "logistic" or "multinomial"."""
        return {0: "squared", 2: "logistic"}.get(self.n_classes, "multinomial")

    @property
    def n_outputs(self):
        """Scores of a model."""
        return self.n_classes if self.n_classes > 2 else 1

    @classmethod
    def of(cls, table) -> Self:
        """Of a table with encoded targets: of all tasks, also of those without rows."""
        tasks, sizes = table.everybody, table.sizes
        if len(table.absent):
            sizes = np.zeros(len(tasks), dtype=np.int64)
            sizes[np.searchsorted(tasks, table.tasks)] = table.sizes
        known = table.levels
        levels = None if known is None else dict(zip(known.names, known.labels, strict=True))
        return cls(tasks, table.n_features, table.n_classes, sizes, table.is_sparse, levels)


@dataclass(frozen=True)
class Query:
    """A query to the tasks, with what is to be released of their answers.

    Parameters
    ----------
    statistic : str
        What is asked for; the task side knows it by this name.
    public : dict
        Everything that a task needs to answer, besides its rows.
    mechanisms : dict of str to mechanism or None
        Names of the sums in an answer, in the order of their release; None: without noise.
    combine : callable
        ``combine(contributions, positions) -> sums`` for the tasks at `positions`, name by name.
        It bounds every contribution again: the accounting does not rest on those who sent them.
    divide : float, default=1.0
        Public number by which the sums are divided before noise is added.
    pick : ndarray of int64, default=None
        Positions of the tasks that are asked, sorted; None: all.
    task_side_adds : bool, default=False
        Whether task sides add up by themselves, so that `combine` need not travel to them.
    bound : float, default=None
        Public bound on the sums, where they are released without noise.
    """

    statistic: str
    public: dict
    mechanisms: dict
    combine: object
    divide: float = 1.0
    pick: np.ndarray | None = None
    task_side_adds: bool = False
    bound: float | None = None

    def local(self, positions):
        """The same query to the tasks at `positions` of the population, who are numbered
        from 0, and the positions of those who are asked."""
        if self.pick is None:
            return self, positions
        mine = np.flatnonzero(np.isin(positions, self.pick))
        return replace(self, pick=mine), positions[mine]


@dataclass(frozen=True)
class QuerySpec:
    """What may be asked by one name, settled before the fit: sites answer nothing else.

    Parameters
    ----------
    shapes : dict of str to tuple
        Shapes of what one task contributes, by name.
    public : dict, default={}
        What the public numbers of the query have to be, by name: the number itself, or a type
        (`numbers.Real` for any finite number, `numbers.Integral` for a count, `numpy.int64` for a
        vector of them, bool, a kind of billboard), or a list of the shapes that an array of finite
        numbers of float64 may have, or a tuple of that list for a list of such arrays, or of a
        kind of `Public` and what its ``declared`` takes for a list of these.
    """

    shapes: dict
    public: dict = field(default_factory=dict)

    def check(self, public):
        """The public numbers that the study names; a task side does not see others.

        Raises
        ------
        ValueError
            For those that are missing, or do not belong to this study.
        """
        for name, expected in self.public.items():
            if name not in public:
                raise ValueError(f"a query without {name}")
            fault = _fault(public[name], expected)
            if fault:
                raise ValueError(name + fault)
        return {name: public[name] for name in self.public}


def _fault(value, expected, *sizes):
    """What is wrong with a public number, to follow its name; None where nothing is."""
    if isinstance(expected, tuple):
        if not isinstance(value, list):
            return " is no list of arrays"
        return next(filter(None, (_fault(item, *expected) for item in value)), None)
    if isinstance(expected, list):
        # Compiled loops know one type of numbers, and do not check their bounds.
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return " is no array of float64"
        if value.shape not in expected:
            return " is of another shape than in the study"
        return None if np.isfinite(value).all() else " is not finite"
    if expected is np.int64:
        vector = isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1
        return None if vector else " is no vector of int64"
    if isinstance(expected, type):
        if isinstance(value, bool) != (expected is bool) or not isinstance(value, expected):
            return f" is no {expected.__name__}"
        if sizes:
            try:
                check_arrays(value.declared(*sizes))
            except ValueError as error:
                return f": {error}"
        if isinstance(value, Real) and not abs(value) <= sys.float_info.max:
            return " is not finite"
        return " is negative" if expected is Integral and value < 0 else None
    same = np.ndim(value) == 0 and value == expected
    return None if same else f"={value!r} is not that of the study"


@dataclass(frozen=True)
class PublicDraw:
    """A random decision of the curator, such as who takes part: ``draw(source) -> ndarray``."""

    draw: object


# ---------------------------------------------------------------------------- task side
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

    def contributions(self, query: "Query") -> dict:
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

    def recalled(self, query):
        """Take part in a query that a journal answers."""
        if self.remembers:
            self.answer(query)

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

    Its tasks are at `positions` (n,) in the population.
    """

    def __init__(self, task_side, positions):
        self.task_side, self.positions = task_side, positions

    def answer(self, query):
        return self.task_side.answer(query.local(self.positions)[0])

    def recalled(self, query):
        self.task_side.recalled(query.local(self.positions)[0])


def task_side_of(task_side, table, population):
    """The task side of a population, from that of `table`, which has its tasks with rows."""
    if not len(table.absent):
        return task_side
    return PartialTaskSide(task_side, np.searchsorted(population.tasks, table.tasks))


def contributed(tasks, query):
    """What each task contributes to a query, from a copy of the task side.

    -> positions (n,) in the population; {name: contributions (n, ...)}, empty where tasks add their
    noise themselves, and where they are on other machines
    """
    positions, task_side = np.empty(0, dtype=np.int64), tasks
    if isinstance(tasks, PartialTaskSide):
        task_side = tasks.task_side
        query, positions = query.local(tasks.positions)
    if None in query.mechanisms.values() or not isinstance(task_side, TaskSide):
        return positions[:0], {}
    contributions = copy.deepcopy(task_side).contributions(query)
    if task_side is tasks:
        positions = query.pick
        if positions is None:
            positions = np.arange(len(next(iter(contributions.values()))))
    return positions, {name: np.array(value) for name, value in contributions.items()}


# ---------------------------------------------------------------------------------- run
class NoJournal:
    """Nothing is kept: the curator lives in this process only."""

    def recall(self, source):
        return None

    def keep(self, reply, source):
        pass


def run(curator, tasks, source, journal=None, n_servers=1):
    """Run a curator to its end. -> what it returns

    Parameters
    ----------
    curator : generator of Query and PublicDraw
    tasks : object with ``answer(query) -> {name: sum}``
        Where it has ``recalled(query)``, that is called with every query that the journal answers.
        Where it has ``released(query)`` in place of ``answer``, that is the release already:
        somebody else has added the noise.
    source : noise source
    journal : object, default=None
        ``recall(source)`` gives the next reply of an earlier run, or None when there is none;
        ``keep(reply, source)`` is called with every new one before the curator sees it. A run that
        was cut off then goes on where it stopped and draws no noise twice.
    n_servers : int, default=1
        More than one: in place of a trusted curator, that many servers add shares of the sums and
        noise; see `skpmtl.exchange.servers`.
    """
    journal = NoJournal() if journal is None else journal
    reply = None
    while True:
        try:
            step = curator.send(reply)
        except StopIteration as end:
            return end.value
        reply = journal.recall(source)
        if reply is not None:
            if isinstance(step, Query) and hasattr(tasks, "recalled"):
                tasks.recalled(step)
            continue
        if isinstance(step, Query) and (tape := TAPE.get()) is not None:
            tape.query(step, partial(contributed, tasks, step))
        if isinstance(step, PublicDraw):
            reply = {"drawn": drawn(step.draw, source)}
        elif hasattr(tasks, "released"):
            reply = tasks.released(step)
        elif n_servers > 1:
            reply = servers.release(step, tasks.answer(step), source, n_servers)
        else:
            reply = release(step, tasks.answer(step), source)
        journal.keep(reply, source)


def allow_for_rounding(curator, n_tasks):
    """The queries of a curator, their sums divided by `rounding_factor` before noise is added.

    A generator as `curator` is. After the division float sums of neighbours are within the stated
    sensitivity. The price is a public factor: 1 + 1e-10 for 1,000 tasks, 1.001 for two million.
    """
    factor, reply = rounding_factor(n_tasks), None
    while True:
        try:
            step = curator.send(reply)
        except StopIteration as end:
            return end.value
        if any(mechanism is not None for mechanism in getattr(step, "mechanisms", {}).values()):
            step = replace(step, divide=step.divide * factor)
        reply = yield step


def run_away(lengths, everybody):
    """Whether rounds without noise diverged, by the lengths of their updates.

    The last one is then the longest, or near it, and many times the median. `everybody`: whether
    all tasks took part; otherwise updates differ by who did.
    """
    if not lengths or not np.isfinite(lengths).all():
        return bool(lengths)
    grown = lengths[-1] > (10.0 if everybody else 1e3) * np.median(lengths)
    return bool(grown and 2.0 * lengths[-1] >= max(lengths))


def drawn(draw, source):
    """A random decision of the curator, which an audit takes from its tape."""
    return replied(lambda: {"mechanism": "draw"}, lambda: draw(source), ())


def release(query, sums, source):
    """Divide the sums of an answer and add the noise. -> {name: released}"""
    out = {}
    for name, mechanism in query.mechanisms.items():
        total = sums[name]
        if query.divide != 1.0:
            total /= query.divide
        out[name] = total if mechanism is None else mechanism.release(total, source)
    return out
