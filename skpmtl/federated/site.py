"""What a site computes: answers about its own rows, once each, and its own models at the end.

No engine is in here; `skpmtl.federated.answering` reads queries and writes answers. Between queries
nothing stays in memory: what must last is one file in the site's own folder, and in its books.
"""

import hmac
import json
import math
import os
from pathlib import Path

import numpy as np

from ..exchange.files import save_billboard
from ..exchange.journal import fingerprint, locked, write_file
from ..exchange.models import models_file
from ..exchange.protocol import Query
from ..tables.files import TableFile
from ..tables.forms import read_training
from ..tables.ids import listed
from ..tables.table import bound_values
from .ledger import Account, Refusal
from .secret_shares import seal

__all__ = ["Refusal", "Site", "read_rows"]


def read_rows(path, study, task="task", target="y", weight=None, event=None, entry=None):
    """Rows of a site from a file. -> X, y, task, and their weights if there are any

    The file is .csv or .parquet with a header (needs pandas and pyarrow; features that the study
    names are taken by name, else all other columns in their order), or .npz with the arrays X,
    `task` and `target`.
    `weight`, the column of the site's own weights, is as these two; None: all rows weigh the same.
    Rows of `SurvivalMTL` have the time as `target`, have `event`, a column of 0 and 1, and may have
    `entry`, the time from which they were observed; they become rows of its model of counts.

    The study declares the types of tables: its tasks and classes are text or whole numbers, all
    other columns are numbers. Raises ValueError where a cell is not as declared.
    """
    if study.has_events and (event is None or weight is not None):
        raise ValueError(
            f"Rows of {study.estimator} need event=, the column that says whether the event was "
            "seen; they may have entry=, and have no weight=."
        )
    if not study.has_events and (event, entry) != (None, None):
        raise ValueError(f"event= and entry= are of SurvivalMTL: {study.estimator} has none.")
    path = Path(path)
    known = [task, target, *(name for name in (weight, event, entry) if name is not None)]
    as_text = isinstance(study.tasks[0], str)  # "007" must not become 7
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            X, ids, y, *more = (found[name] for name in ("X", *known))
    elif path.suffix in (".csv", ".parquet"):
        file = TableFile(path)
        names = study.feature_names or [name for name in file.names if name not in known]
        labels = study.class_labels
        declared = {task: study.tasks}
        if labels is not None:
            declared[target] = labels.tolist()
        numbers = [name for name in (*names, *known) if name not in declared]
        table = file.read(numbers, dict.fromkeys(declared, ()))
        for name, values in declared.items():
            table[name] = _as_declared(table[name], values, file)
        X, (ids, y, *more) = table[names], (table[name].to_numpy() for name in known)
    else:
        raise ValueError(f"rows={str(path)!r} must end in .csv, .parquet or .npz.")
    ids = ids.astype(str) if as_text else ids
    return study.rows(X, y, ids, *more) if study.has_events else (X, y, ids, *more)


def _as_declared(column, values, file):
    """Text as one of the `values` that is written so, which are text or numbers."""
    known = {str(value): value for value in values}
    row = next((k for k, word in enumerate(column) if word not in known), None)
    if row is not None:
        raise ValueError(
            f"{file.path} has something else in {file.place(row)}, column {column.name!r}, than "
            f"the study lists, which is {listed(values)}."
        )
    return column.map(known)


class Site(Account):
    """The tasks of one site, with its copy of the study, and its own folder with the ledger.

    `rows` are X, y, task ids and, where there are some, weights, as of `read_rows`; other
    arguments are as of `Account`. Raises ValueError when rows and study do not go together, and
    Damaged when the books are not as they were left.
    """

    _needs = Account._needs | {"positions", "key", "rows"}

    def __init__(self, study, rows, folder, cap=math.inf):
        super().__init__(study, folder, cap)
        self.rows, self.est = rows, study.build()
        self.population = study.population()
        table, _ = read_training(self.est, *rows, all_rows=self.est._counts_rows())
        if table.n_features != self.population.n_features:
            raise ValueError(
                f"The rows have {table.n_features} features, the study {study.n_features}."
            )
        table = table.among(self.population.n_tasks)
        self.table = bound_values(self.est._encoded(table, study.class_labels)[0])
        self.positions = study.positions(self.table.tasks)
        if (self.positions < 0).any():
            unknown = self.table.tasks[self.positions < 0]
            raise ValueError(f"Not among the tasks of the study: {listed(unknown)}.")
        self.last()

    def _task_side(self, state):
        """The task side as the last query left it."""
        task_side = self.est._task_side(self.table, self.population)
        task_side.state = _part(state, "memory.")
        return task_side

    # ---------------------------------------------------------------------- queries
    def answer(self, number, statistic, public, positions, run="", transcript=None):
        """What the tasks at `positions` (sorted) contribute. -> {name: array (n, ...)}

        A query that was answered already gets the same answer, from the file: neither is noise
        drawn for it again, nor does a running model take a second step. Numbers of queries
        increase; `statistic` and `public` are those of `skpmtl.exchange.Query`. `run` is the token
        of the curator's journal: only the run that asked first is answered, since the noise of a
        second one would be new. `transcript` is there where the site made the query itself, or
        compared it. Raises Refusal.
        """
        with locked(self.folder):
            state, last = self._begin(number, run, transcript)
            if state and str(state["rows"]) != fingerprint(self.table, state["key"].tobytes()):
                raise Refusal(
                    "the rows here are not those of the earlier answers to this study, which a "
                    "second run answers, under another name"
                )
            if number > last:
                state = self._compute(state, number, statistic, public, positions, run, transcript)
            elif not np.array_equal(state["positions"], positions):
                raise Refusal(f"query {number} was about other tasks when it was answered")
        return _part(state, "row.")

    def sealed(self, number, transcript):
        """The sum of what the tasks here contribute, in shares that servers alone can read.

        The query follows from `transcript`, all that was released before. -> {server.name: bytes}
        """
        query = transcript.query(number)
        positions = (
            self.positions if query.pick is None else np.intersect1d(self.positions, query.pick)
        )
        found = self.answer(
            number, query.statistic, query.public, positions, transcript.run, transcript
        )
        key = self._state()["key"].tobytes()
        mark = hmac.digest(key, transcript.codes[number].encode(), "sha256")
        with np.errstate(all="ignore"):
            return seal(transcript, query, query.combine(found, positions), mark)

    def _compute(self, state, number, statistic, public, positions, run, transcript):
        if not np.isin(positions, self.positions).all() or not len(positions):
            raise Refusal("asked for tasks that are not here")
        if (np.diff(positions) <= 0).any():  # every answer would be one more visit
            raise Refusal("asked for tasks out of order, or for one of them twice")
        mine = np.searchsorted(self.positions, positions)
        question = self.study.questions.get(statistic)
        if question is None:
            raise Refusal(f"the study releases no {statistic}")
        with np.errstate(all="ignore"):
            task_side = self._task_side(state)
            try:
                query = Query(statistic, question.check(public), {}, None, pick=mine)
                task_side.check(query)
            except ValueError as error:
                raise Refusal(str(error)) from error
            found = task_side.contributions(query)
        contributions = {name: found[name] for name in question.shapes}
        for name, shape in question.shapes.items():
            if contributions[name].shape != (len(mine), *shape):
                raise Refusal(f"public numbers of another shape than in the study ({name})")
        key = state.get("key", np.frombuffer(os.urandom(32), np.uint8))
        kept = {"positions": positions, "key": key}
        kept["rows"] = np.array(fingerprint(self.table, key.tobytes()))
        kept.update({f"memory.{name}": value for name, value in task_side.state.items()})
        kept.update({f"row.{k}": np.ascontiguousarray(v) for k, v in contributions.items()})
        tasks = self.population.tasks[positions].tolist()
        return self._enter(kept, number, run, statistic, transcript, tasks=tasks)

    # ------------------------------------------------------------------------- the end
    def publish(self, billboard):
        """Write the billboard, and the models of this site's tasks, which stay here.

        Files: billboard.npz and report.txt; models.npz and models.json, which `load_models` and
        people read.
        """
        if billboard.report is None or not np.isfinite(billboard.report.epsilon):
            raise Refusal("the billboard has no privacy report")
        est = self.study.published(billboard)
        X, y, task, *weights = self.rows
        est.personalize(X, y, task=task, **dict(zip(["sample_weight"], weights, strict=False)))
        at = np.searchsorted(est.tasks_, self.table.tasks)  # others have rows without weight
        with np.errstate(all="ignore"):
            task_side = self._task_side(self._state())
            models = task_side.final_models(billboard, lambda: (est.coef_[at], est.intercept_[at]))
        est.coef_[at], est.intercept_[at] = est._finite_models(*models[:2])
        save_billboard(est, self.folder / "billboard.npz")
        (self.folder / "report.txt").write_text(f"{billboard.report}\n")
        reported = {name: getattr(est, name) for name in est._extras if hasattr(est, name)}
        buffer = models_file(est.tasks_, est.coef_, est.intercept_, **reported)
        write_file(self.folder / "models.npz", buffer)
        models = [est.export_task(name) for name in est.tasks_.tolist()]
        text = json.dumps(models, default=lambda array: array.tolist(), indent=1)
        write_file(self.folder / "models.json", text.encode())
        return est


def _part(arrays, prefix):
    """Arrays whose names start with the prefix, without it."""
    return {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
