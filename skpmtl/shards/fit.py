"""Private fits of tables in parts that hold whole tasks each, here or on Ray.

Every part has a worker that reads it and answers the queries of the curator (`skpmtl.exchange`)
with sums; rows stay with the worker. Sums are added in the order of the parts, and noise is added
once, where the curator is. Answers of some methods depend on earlier queries (running models,
starting values), so that a lost worker is rebuilt by asking it all of them again: what it is asked
follows from releases, and its answers of earlier rounds are not used.
"""

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Literal

import numpy as np
from sklearn.base import clone

from .._uncertainty import value_without_rows
from ..base import merge_rows, warn_of_inferred
from ..exchange.files import file_of, load_billboard
from ..exchange.journal import Journal
from ..exchange.protocol import Population, run
from ..tables.ids import listed, locate
from ..tables.table import distinct_ids, finite_models
from .models import make_folder, write_billboard, write_models
from .parts import address, called
from .worker import Shard

__all__ = ["fit_shards"]
_RESTARTS = 3  # of a worker, before the fit is given up


def fit_shards(
    est,
    parts,
    *,
    target: str | None = None,
    weight: str | None = None,
    backend: Literal["process", "ray"] = "process",
    journal=None,
    models=None,
    options: Mapping | None = None,
):
    """Fit a private estimator on a table that is stored in parts.

    Parameters
    ----------
    est : estimator
        Of a class whose fit is that of a curator and tasks, as of all private estimators, with a
        finite `epsilon`. Its parameter `tasks` is the public list of all tasks.
    parts : sequence of path-like, address or pair, or ray.data.Dataset
        One worker each. A part has all rows of its tasks and is either a folder with the files
        ``X.npy`` (n_samples, n_features), ``y.npy`` and ``task.npy``, and ``weight.npy`` where rows
        have weights (`sample_weight` of ``fit``), or a parquet file with the
        column `task_feature` of `est` and the column `target` (extra ``skpmtl[tables]``), or a
        pair of such a file and the numbers of some of its row groups, which alone are read. X
        of type float64, in C order, with rows sorted by task, is read from the disk as it is
        needed; everything else is copied into the memory of the worker. An address with a
        scheme, such as ``s3://bucket/part-0``, is opened by fsspec (extra ``skpmtl[remote]``).
        A dataset of Ray is divided by `task_feature` into as many parts as it has blocks.
    target : str, default=None
        Column of the targets in parquet files.
    weight : str, default=None
        Column of the weights in parquet files; None: there are none.
    backend : {"process", "ray"}, default="process"
        "process": in this process, part after part. "ray": on Ray actors (extra
        ``skpmtl[ray]``), which open the parts by the same paths. They join the cluster that
        ``ray.init`` connected to; without it Ray is started on this machine.
    journal : path-like or address, default=None
        Folder for what was released. A fit that was cut off goes on from there when it is called
        again with the same arguments and rows, and spends nothing twice. One fit at a time uses
        it. An address with a scheme is that of an object store (extra ``skpmtl[remote]``), which
        only the curator may read.
    models : path-like or address, default=None
        Folder to which every worker writes the models of its part, next to the billboard. They then
        do not come here: the estimator is as one of `load_billboard`, and `load_models` reads
        those of some tasks. None: the estimator has the models of all tasks.
    options : mapping, default=None
        Of Ray's actors, such as ``{"num_cpus": 4, "memory": 8 * 2**30}``; see
        ``ray.actor.ActorClass.options``.

    Returns
    -------
    est : estimator
        Fitted as by ``fit`` on all rows, with the models of all tasks; after an error it is not
        fitted, and after an interrupt as it was before. With the same `random_state` numbers agree
        with ``fit`` but for the rounding of sums, which are added in another order, and for Poisson
        batches of records, which are drawn in another order.

    Raises
    ------
    ValueError
        If `epsilon` is not finite, a part cannot be read (it is named), a task is in two parts or
        not in the list, parts differ in their features, or `journal` holds another fit or one of
        other rows, is used by another process, or cannot refuse to overwrite a file.
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
    workers, before = None, dict(vars(est))
    try:
        inferred = _check(est, backend)
        if models is not None:
            est._check_stored()
        dataset = hasattr(parts, "to_arrow_refs")
        if dataset:
            if backend != "ray" or not isinstance(est.task_feature, str):
                raise ValueError(
                    'A dataset of Ray needs backend="ray", and the name of the task column as '
                    "task_feature."
                )
        elif isinstance(parts, (str, os.PathLike)) or not len(parts):
            raise ValueError(f"parts={parts!r} must be a list of paths, at least one.")
        else:
            parts = [address(part) for part in parts]
        # Before the source of the noise: a shared generator has the same state for all of them.
        if backend == "ray":
            workers = _Actors(est, parts, target, weight, options)
        else:
            workers = _Here(est, parts, target, weight)
        parts = workers.names
        surveys = workers.each("survey")
        population, classes, positions = _population(est, parts, surveys)
        workers.prepare(population, classes)
        if models is not None:
            make_folder(os.fspath(models))
        source = est._source()
        if journal is not None:
            journal = Journal(journal, _run_of(est, population, classes))
            prints = workers.each("fingerprint", journal.key, population, classes)
            names = [f"Part {part}" for part in parts]
            journal.same_rows(list(zip(names, prints, strict=True)))
        curator = est._queries(population, source)
        billboard = run(curator, workers, source, journal, est._n_servers)
        billboard.report = billboard.report.disclosing(inferred)
        public = est._public_attributes(billboard, population)
        if models is None:
            found = workers.send("models", billboard)
            fitted = _fitted(est, public, population, positions, found)
        else:
            fitted = _left(est, public, population, classes, surveys[0].seen, models, workers)
    except BaseException as error:
        est._undo(error, before)
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


def _left(est, public, population, classes, seen, folder, workers):
    """The attributes of a fit whose models the workers write; they have those of a billboard."""
    folder, published = os.fspath(folder), clone(est)
    known = {} if classes is None else {"classes_": classes}
    for name, value in {**seen, **public, **known}.items():
        setattr(published, name, value)
    written = file_of(published)
    write_billboard(folder, written)
    mean = public.get("mean_coef_"), public.get("mean_intercept_")
    numbers = {name: f"{k:05d}" for k, name in enumerate(workers.names)}
    extras = workers.send("keep", (published.billboard_, mean, folder, numbers))[0]
    absent = np.flatnonzero(population.sizes == 0)
    if len(absent):
        rest = finite_models(*est._models_without_rows(public, population.tasks, absent), mean)
        filled = {
            name: np.full((len(absent), *shape), value_without_rows(name))
            for name, shape in extras.items()
        }
        write_models(folder, "without-rows", population.tasks[absent], *rest, **filled)
    blank = load_billboard(io.BytesIO(written))
    return {name: value for name, value in vars(blank).items() if name.endswith("_")}


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
    return warn_of_inferred(est)


# ------------------------------------------------------------------------- where they run
class _Here:
    """Workers in this process; `each` calls a method of all of them, in the order of the parts."""

    def __init__(self, est, parts, *columns):
        self.names = [called(part) for part in parts]
        self.shards = [Shard(est, part, *columns) for part in parts]

    def each(self, method, *arguments):
        return [getattr(shard, method)(*arguments) for shard in self.shards]

    def prepare(self, population, classes):
        self.remember = all(self.each("prepare", population, classes))

    def send(self, method, argument):
        """Replies to a message of the curator."""
        return self.each(method, argument)

    def answer(self, query):
        """Sum of the answers to a query."""
        total = None
        for sums in self.send("answer", query):
            if total is None:  # copied, because what came from elsewhere is read-only
                total = {name: np.array(value) for name, value in sums.items()}
            else:
                total = {name: total[name] + sums[name] for name in total}
        return total

    def recalled(self, query):
        """Let the workers take part in a query that a journal answers."""
        if self.remember:
            self.send("answer", query)

    def close(self):
        pass


class _Actors(_Here):
    """Workers on Ray. The log of messages rebuilds those that are lost."""

    shard = Shard

    def __init__(self, est, parts, target, weight=None, options=None):
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
            **{
                "max_restarts": _RESTARTS,
                "max_task_retries": _RESTARTS,
                "scheduling_strategy": "SPREAD",
                **(options or {}),
            }
        )
        if hasattr(parts, "to_arrow_refs"):
            parts = self._blocks(parts, est.task_feature)
            self.names = [f"{k} of the dataset" for k in range(len(parts))]
        else:
            self.names = [called(part) for part in parts]
        pairs = zip(parts, self.names, strict=True)
        self.actors = [actor.remote(est, part, target, weight, name) for part, name in pairs]

    def _blocks(self, dataset, task_feature):
        """Tables with all rows of their tasks, as references."""
        n_blocks = max(dataset.materialize().num_blocks(), 1)
        blocks = dataset.repartition(n_blocks, keys=[task_feature]).to_arrow_refs()
        count = self.ray.remote(lambda table: table.num_rows)
        sizes = self.ray.get([count.remote(block) for block in blocks])
        return [block for block, size in zip(blocks, sizes, strict=True) if size]

    def each(self, method, *arguments):
        return self._get([getattr(actor, method).remote(*arguments) for actor in self.actors])

    def prepare(self, population, classes):
        self.setup = self.ray.put(population), classes
        super().prepare(*self.setup)

    def send(self, method, argument):
        if method == "answer" and argument.task_side_adds:
            argument = replace(argument, combine=None)
        if not self.remember:
            self.log.clear()
        # Pickled at once: the curator goes on to change what it shows. In the store once for all.
        self.log.append(self.ray.put(self.ray.cloudpickle.dumps((method, argument))))
        replies = self.each("receive", len(self.log) - 1, self.log[-1])
        for k, reply in enumerate(replies):
            if reply is None:
                (replies[k],) = self._get([self.actors[k].replay.remote(*self.setup, *self.log)])
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
                    f"Part {part}: {what} is {value}, but {first[what]} in part {parts[0]}."
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
            raise ValueError(f"Part {part}: tasks that are not listed in tasks=: {unknown}.")
        taken = place[owner[place] >= 0]
        if len(taken):
            raise ValueError(
                f"Part {part}: task {tasks[taken[0]].item()!r} is also in part "
                f"{parts[owner[taken[0]]]}; all rows of a task must be in one part."
            )
        owner[place], sizes[place] = k, found.sizes
        positions.append(place)
    classes, n_classes = None, 0
    if est._classification:
        classes = est._public_classes()
        if classes is None:
            classes = np.unique(np.concatenate([found.labels for found in surveys]))
        n_classes = max(len(classes), 2)
    return Population(tasks, surveys[0].n_features, n_classes, sizes), classes, positions


def _run_of(est, population, classes):
    """What a journal is about."""
    params = est.get_params(deep=False).items()
    return {
        "estimator": type(est).__name__,
        "params": {k: v for k, v in params if k not in ("classes", "tasks")},
        "tasks": population.tasks.tolist(),
        "sizes": population.sizes.tolist(),
        "n_features": population.n_features,
        "classes": None if classes is None else classes.tolist(),
    }


def _fitted(est, public, population, positions, models):
    """The attributes that `fit` sets."""
    absent = np.flatnonzero(population.sizes == 0)
    extras = {name: [part.extras[name] for part in models] for name in models[0].extras}
    models = [[part[k] for part in models] for k in range(2)]
    if len(absent):
        rest = est._models_without_rows(public, population.tasks, absent)
        positions = [*positions, absent]
        models = [[*parts, more] for parts, more in zip(models, rest, strict=True)]
        extras = {name: [*parts, value_without_rows(name)] for name, parts in extras.items()}

    def merged(parts):
        return merge_rows(population.n_tasks, *chain(*zip(positions, parts, strict=True)))

    coef, intercept = map(merged, models)
    mean = public.get("mean_coef_"), public.get("mean_intercept_")
    coef, intercept = finite_models(coef, intercept, mean)
    return {
        **public,
        **{name: merged(parts) for name, parts in extras.items()},
        "tasks_": population.tasks,
        "coef_": coef,
        "intercept_": intercept,
        "_population_": replace(population, sizes=None),
        "_idle_": population.tasks[absent],
    }
