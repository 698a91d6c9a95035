"""Private fits of tables in parts that hold whole tasks each, here or on Ray.

Every part has a worker that reads it and answers the questions of the curator (`skpmtl.exchange`)
with sums; rows stay with the worker. Sums are added in the order of the parts, and noise is added
once, where the curator is. Answers of some methods depend on earlier questions (running models,
starting values), so that a lost worker is rebuilt by asking it all of them again: what it is asked
follows from releases, and its answers of earlier rounds are not used.
"""

import os
import pickle
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from sklearn.base import clone

from ..base import merge_rows, warn_of_inferred
from ..exchange.journal import Journal, fingerprint
from ..exchange.protocol import Population, run
from ..privacy.report import PrivacyLeakWarning
from ..tables.finite import bound_values, finite_models
from ..tables.forms import read_training
from ..tables.ids import listed, locate
from ..tables.table import distinct_ids
from ..tables.targets import encode_labels

__all__ = [
    "fit_shards",
]
_RESTARTS = 3  # of a worker, before the fit is given up


def fit_shards(est, parts, *, target=None, backend="process", journal=None):
    """Fit a private estimator on a table that is stored in parts.

    Parameters
    ----------
    est : estimator
        Of a class whose fit is that of a curator and tasks, as of all private estimators, with a
        finite `epsilon`. Its parameter `tasks` is the public list of all tasks.
    parts : sequence of path-like
        One worker each. A part has all rows of its tasks and is either a folder with the files
        ``X.npy`` (n_samples, n_features), ``y.npy`` and ``task.npy``, or a parquet file with the
        column `task_feature` of `est` and the column `target` (extra ``skpmtl[parquet]``). X
        of type float64, in C order, with rows sorted by task, is read from the disk as it is
        needed; everything else is copied into the memory of the worker.
    target : str, default=None
        Column of the targets in parquet files.
    backend : {"process", "ray"}, default="process"
        "process": in this process, part after part. "ray": on Ray actors (extra
        ``skpmtl[ray]``), which open the parts by the same paths. They join the cluster that
        ``ray.init`` connected to; without it Ray is started on this machine.
    journal : path-like, default=None
        Folder for what was released. A fit that was cut off goes on from there when it is called
        again with the same arguments and rows, and spends nothing twice. One fit at a time uses it.

    Returns
    -------
    est : estimator
        Fitted as by ``fit`` on all rows, with the models of all tasks; after an error it is not
        fitted. With the same `random_state` numbers agree with ``fit`` but for the rounding of
        sums, which are added in another order.

    Raises
    ------
    ValueError
        If `epsilon` is not finite, a part cannot be read (it is named), a task is in two parts or
        not in the list, a listed task has no rows, parts differ in their features, or `journal`
        holds another fit or one of other rows, or is used by another process.
    ImportError
        If Ray is missing.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from skpmtl import MPMTLLowRank
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> from skpmtl.shards import fit_shards
    >>> X, y, task = make_low_rank_tasks(n_tasks=40, n_samples=15, n_features=5, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = [Path(folder, "a"), Path(folder, "b")]
    ...     for part, mine in zip(parts, [task < 20, task >= 20]):
    ...         part.mkdir()
    ...         np.save(part / "X.npy", X[mine])
    ...         np.save(part / "y.npy", y[mine])
    ...         np.save(part / "task.npy", task[mine])
    ...     est = fit_shards(MPMTLLowRank(epsilon=1.0, tasks=range(40)), parts)
    >>> est.coef_.shape
    (40, 5)
    """
    workers = None
    try:
        _check(est, backend)
        if isinstance(parts, (str, os.PathLike)) or not len(parts):
            raise ValueError(f"parts={parts!r} must be a list of paths, at least one.")
        parts = [os.fspath(part) for part in parts]
        # Before the source of the noise: a shared generator has the same state for all of them.
        workers = (_Actors if backend == "ray" else _Here)(est, parts, target)
        surveys = workers.each("survey")
        population, classes, positions = _population(est, parts, surveys)
        workers.prepare(population, classes)
        source = est._source()
        if journal is not None:
            journal = Journal(journal, _run_of(est, population, classes))
            prints = workers.each("fingerprint", journal.key, population, classes)
            names = [f"Part {part!r}" for part in parts]
            journal.same_rows(list(zip(names, prints, strict=True)))
        board = run(est._curator(population, source), workers, source, journal)
        models = workers.tell("models", board)
        fitted = _fitted(est, board, population, positions, models)
    except BaseException:
        est._forget()
        raise
    finally:
        if workers is not None:
            workers.close()
        if isinstance(journal, Journal):
            journal.close()
    est._forget()
    if classes is not None:
        fitted["classes_"] = classes
    for name, value in {**surveys[0].seen, **fitted}.items():
        setattr(est, name, value)
    return est


def _check(est, backend):
    if not hasattr(est, "_curator"):
        raise ValueError(f"{type(est).__name__} needs all rows in one place: use its fit.")
    est._check_parameters()
    if backend not in ("process", "ray"):
        raise ValueError(f'backend={backend!r} must be "process" or "ray".')
    if not est._is_private():
        raise ValueError(
            f"{type(est).__name__} without privacy needs all rows in one place: set a finite "
            "epsilon, or use fit, to which X may be a memory map."
        )
    warn_of_inferred(est, stacklevel=4)


# -------------------------------------------------------------------- what a worker does
@dataclass
class Survey:
    """What the curator has to know of a part before it asks anything."""

    tasks: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray | None  # distinct ones of a classification
    n_features: int
    seen: dict  # what reading the input sets

    def layout(self):
        """What all parts must have in common, by the words of an error."""
        names = self.seen.get("feature_names_in_")
        return {
            "the number of features": self.n_features,
            "the names of the columns": None if names is None else names.tolist(),
            "the position of the task column": self.seen["_form_"].position,
            "the type of the task ids": _kind(self.tasks),
            "the type of the classes": None if self.labels is None else _kind(self.labels),
        }


def _kind(ids):
    return "text" if ids.dtype.kind == "U" else "numbers"


class Shard:
    """The rows of a part, and the task half of the method for them."""

    def __init__(self, est, part, target):
        self.est, self.part, self.target = clone(est), part, target
        self.given = self.half = self.reply = None
        self.heard = 0

    def survey(self):
        with self._named():
            table, form = self._read()
            labels = None
            if self.est._classification:
                labels = encode_labels(table, self.est._public_classes())[1]
            else:
                self.est._encode_target(table)
        names = ("n_features_in_", "feature_names_in_")
        seen = {name: value for name, value in vars(self.est).items() if name in names}
        return Survey(
            table.tasks, table.sizes, labels, table.n_features, {**seen, "_form_": form}
        )

    def prepare(self, population, classes):
        """-> whether answers may depend on earlier questions"""
        with self._named(), warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # said by the curator
            table, _ = self._read()
            self.table = bound_values(self.est._encoded(table, classes)[0])
            with np.errstate(all="ignore"):
                self.half = self.est._half(self.table, population)
        self.positions = np.searchsorted(population.tasks, table.tasks)
        self.heard = 0
        self.remembers = self.half.remembers
        return self.remembers

    def fingerprint(self, key, population, classes):
        if self.half is None:  # a new worker
            self.prepare(population, classes)
        return fingerprint(self.table, key)

    def answer(self, ask):
        with np.errstate(all="ignore"):
            return self.half.answer(ask.local(self.positions)[0])

    def models(self, board):
        """-> coef, intercept of the tasks of the part"""
        self.est.billboard_ = board
        with np.errstate(all="ignore"):
            return self.half.final_models(board, lambda: self.est._personalize_table(self.table))

    # Messages are numbered, as a worker may be lost, and may get one twice.
    def hear(self, place, message):
        """Reply to a message; None when this is a new worker that missed what came before."""
        if self.half is None or place > self.heard:
            return None
        if place == self.heard:
            method, argument = pickle.loads(message)
            self.reply = getattr(self, method)(argument)
            self.heard += self.remembers
        return self.reply

    def replay(self, population, classes, messages):
        """Prepare, and hear all messages. -> the last reply"""
        self.prepare(population, classes)
        for place, message in enumerate(messages):
            reply = self.hear(place, message)
        return reply

    def _read(self):
        if self.given is None:
            path = Path(self.part)
            if path.is_dir():
                X, y, task = (_load(path / name) for name in ("X.npy", "y.npy", "task.npy"))
            elif path.is_file():
                (X, y), task = self._read_parquet(path), None
            else:
                raise FileNotFoundError("there is no such folder or file")
            self.given = read_training(self.est, X, y, task)
        return self.given

    def _read_parquet(self, path):
        try:
            import pandas
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "Parquet parts need pandas and pyarrow: pip install skpmtl[parquet]"
            ) from error
        if self.est.task_feature is None or self.target is None:
            raise ValueError("a parquet file needs task_feature= of the estimator, and target=")
        frame = pandas.read_parquet(path)
        if self.target not in frame.columns:
            raise ValueError(f"target={self.target!r} is not among {listed(frame.columns, 20)}")
        y = frame.pop(self.target)
        return frame, y

    @contextmanager
    def _named(self):
        try:
            yield
        except (ValueError, TypeError, OSError) as error:
            raise ValueError(f"Part {self.part!r}: {error}") from error


def _load(path):
    return np.load(path, mmap_mode="r", allow_pickle=False)


# ------------------------------------------------------------------------- where they run
class _Here:
    """Workers in this process; `each` calls a method of all of them, in the order of the parts."""

    def __init__(self, est, parts, target):
        self.shards = [Shard(est, part, target) for part in parts]

    def each(self, method, *arguments):
        return [getattr(shard, method)(*arguments) for shard in self.shards]

    def prepare(self, population, classes):
        self.remember = all(self.each("prepare", population, classes))

    def tell(self, method, argument):
        """Replies to a message of the curator."""
        return self.each(method, argument)

    def answer(self, ask):
        """Sum of the answers to a question."""
        total = None
        for sums in self.tell("answer", ask):
            if total is None:  # copied, because what came from elsewhere is read-only
                total = {name: np.array(value) for name, value in sums.items()}
            else:
                total = {name: total[name] + sums[name] for name in total}
        return total

    def recalled(self, ask):
        """Let the workers take part in a question that a journal answers."""
        if self.remember:
            self.tell("answer", ask)

    def close(self):
        pass


class _Actors(_Here):
    """Workers on Ray. The log of messages rebuilds those that are lost."""

    shard = Shard

    def __init__(self, est, parts, target):
        try:
            import ray
        except ImportError as error:
            raise ImportError(
                'backend="ray" needs Ray: install the extra with  pip install skpmtl[ray]'
            ) from error
        self.ray, self.log = ray, []
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init()
        actor = ray.remote(self.shard).options(
            max_restarts=_RESTARTS, max_task_retries=_RESTARTS, scheduling_strategy="SPREAD"
        )
        self.actors = [actor.remote(est, part, target) for part in parts]

    def each(self, method, *arguments):
        return self._get([getattr(actor, method).remote(*arguments) for actor in self.actors])

    def prepare(self, population, classes):
        self.setup = self.ray.put(population), classes
        super().prepare(*self.setup)

    def tell(self, method, argument):
        if method == "answer" and argument.half_adds:
            argument = replace(argument, combine=None)
        if not self.remember:
            self.log.clear()
        # Pickled at once: the curator goes on to change what it shows.
        self.log.append(self.ray.cloudpickle.dumps((method, argument)))
        replies = self.each("hear", len(self.log) - 1, self.log[-1])
        for k, reply in enumerate(replies):
            if reply is None:
                (replies[k],) = self._get([self.actors[k].replay.remote(*self.setup, self.log)])
        return replies

    def _get(self, references):
        try:
            return self.ray.get(references)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def close(self):
        for actor in self.actors:
            self.ray.kill(actor)


# --------------------------------------------------------------------------- the curator
def _population(est, parts, surveys):
    """-> Population, classes or None, positions of the tasks of every part; all checked"""
    first = surveys[0].layout()
    for part, found in zip(parts, surveys, strict=True):
        for what, value in found.layout().items():
            if value != first[what]:
                raise ValueError(
                    f"Part {part!r}: {what} is {value}, but {first[what]} in part {parts[0]!r}."
                )
    if isinstance(est.tasks, str):
        tasks = np.unique(np.concatenate([found.tasks for found in surveys]))
    else:
        tasks = np.sort(distinct_ids(list(est.tasks), "tasks="))
    owner, sizes = np.full(len(tasks), -1), np.zeros(len(tasks), dtype=np.int64)
    positions = []
    for k, (part, found) in enumerate(zip(parts, surveys, strict=True)):
        place = locate(found.tasks, tasks)
        if (place < 0).any():
            unknown = listed(found.tasks[place < 0])
            raise ValueError(f"Part {part!r}: tasks that are not listed in tasks=: {unknown}.")
        taken = place[owner[place] >= 0]
        if len(taken):
            raise ValueError(
                f"Part {part!r}: task {tasks[taken[0]].item()!r} is also in part "
                f"{parts[owner[taken[0]]]!r}; all rows of a task must be in one part."
            )
        owner[place], sizes[place] = k, found.sizes
        positions.append(place)
    if (owner < 0).any():
        raise ValueError(
            f"Listed in tasks= but in no part: {listed(tasks[owner < 0])}. Remove them from "
            "tasks=; personalize() can add them later."
        )
    classes, n_classes = None, 0
    if est._classification:
        classes = est._public_classes()
        if classes is None:
            classes = np.unique(np.concatenate([found.labels for found in surveys]))
        n_classes = max(len(classes), 2)
    return Population(tasks, surveys[0].n_features, n_classes, sizes), classes, positions


def _run_of(est, population, classes):
    """What a journal is about."""
    params = est.get_params(deep=False)
    return {
        "estimator": type(est).__name__,
        "params": {k: v for k, v in params.items() if k not in ("classes", "tasks")},
        "tasks": population.tasks.tolist(),
        "sizes": population.sizes.tolist(),
        "n_features": population.n_features,
        "classes": None if classes is None else classes.tolist(),
    }


def _fitted(est, board, population, positions, models):
    """The attributes that `fit` sets."""
    coef, intercept = (
        merge_rows(population.n_tasks, *chain(*zip(positions, values, strict=True)))
        for values in zip(*models, strict=True)
    )
    public = est._public_attributes(board, population)
    mean = public.get("mean_coef_"), public.get("mean_intercept_")
    coef, intercept = finite_models(coef, intercept, mean)
    return {
        **public,
        "tasks_": population.tasks,
        "coef_": coef,
        "intercept_": intercept,
        "_population_": replace(population, sizes=None),
    }
