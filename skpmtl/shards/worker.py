"""Worker of a sharded fit: reads its part of the table and answers for its tasks.

Rows stay here; what leaves is a survey of public numbers, sums, and in the end the models.
"""

import pickle
import warnings
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from ..base import merged_tasks
from ..exchange.billboard import Personal
from ..exchange.journal import fingerprint
from ..privacy.report import PrivacyLeakWarning
from ..tables.forms import read_training
from ..tables.table import bound_values, finite_models
from ..tables.targets import encode_labels
from .models import write_models
from .parts import called, read_part

__all__ = ["Shard", "Survey"]


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
            "the positions of columns of tasks and factors": self.seen["_form_"].columns,
            "the type of the task ids": _kind(self.tasks),
            "the type of the classes": None if self.labels is None else _kind(self.labels),
        }


def _kind(ids):
    return "text" if ids.dtype.kind == "U" else "numbers"


class Shard:
    """The rows of a part, and the task side of the method for them."""

    def __init__(self, est, part, target, weight=None, name=None):
        self.est, self.part, self.target, self.weight = clone(est), part, target, weight
        self.name = called(part) if name is None else name
        self.given = self.task_side = self.reply = None
        self.n_received = 0

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
        tasks = table.everybody  # also those without any weight
        sizes = np.zeros(len(tasks), dtype=np.int64)
        sizes[np.searchsorted(tasks, table.tasks)] = table.sizes
        return Survey(tasks, sizes, labels, table.n_features, {**seen, "_form_": form})

    def prepare(self, population, classes):
        """-> whether answers may depend on earlier questions"""
        with self._named(), warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # said by the curator
            table = self._read()[0].among(population.n_tasks)
            self.table = bound_values(self.est._encoded(table, classes)[0])
            with np.errstate(all="ignore"):
                self.task_side = self.est._task_side(self.table, population)
        self.population = population
        self.positions = np.searchsorted(population.tasks, self.table.tasks)
        self.n_received = 0
        self.remembers = self.task_side.remembers
        return self.remembers

    def fingerprint(self, key, population, classes):
        if self.task_side is None:  # a new worker
            self.prepare(population, classes)
        return fingerprint(self.table, key)

    def answer(self, query):
        with np.errstate(all="ignore"):
            return self.task_side.answer(query.local(self.positions)[0])

    def models(self, billboard):
        """-> Personal, of the tasks of the part"""
        self.est.billboard_ = billboard
        with np.errstate(all="ignore"):
            personal = Personal(
                *self.task_side.final_models(
                    billboard, lambda: self.est._personalize_table(self.table)
                )
            )
        extras = {**personal.extras, **self.est._posterior_of(self.table, billboard)}
        personal = personal._replace(extras=extras)
        tasks = self._read()[0].everybody
        if len(tasks) == self.table.n_tasks:
            return personal
        # Rows or classes without weight may leave a task without rows.
        here = np.searchsorted(tasks, self.table.tasks)
        away = np.delete(np.arange(len(tasks)), here)
        public = self.est._public_attributes(billboard, self.population)
        places = np.searchsorted(self.population.tasks, tasks[away])
        rest = self.est._models_without_rows(public, self.population.tasks, places)
        return merged_tasks(len(tasks), here, personal, away, rest)

    def keep(self, given):
        """Write the models of the part; `given` is the billboard, the mean model, folder and name.
        -> shapes of the extras of a task, by name
        """
        billboard, mean, folder, names = given
        coef, intercept, extras = self.models(billboard)
        models = finite_models(coef, intercept, mean)
        write_models(folder, names[self.name], self._read()[0].everybody, *models, **extras)
        return {name: values.shape[1:] for name, values in extras.items()}

    # Messages are numbered, as a worker may be lost, and may get one twice.
    def receive(self, place, message):
        """Reply to a message; None when this is a new worker that missed what came before."""
        if self.task_side is None or place > self.n_received:
            return None
        if place == self.n_received:
            method, argument = pickle.loads(message)
            self.reply = getattr(self, method)(argument)
            self.n_received += self.remembers
        return self.reply

    def replay(self, population, classes, *messages):
        """Prepare, and receive all messages. -> the last reply"""
        self.prepare(population, classes)
        for place, message in enumerate(messages):
            reply = self.receive(place, message)
        return reply

    def _read(self):
        if self.given is None:
            given = read_part(self.part, self.est.task_feature, self.target, self.weight)
            self.given = read_training(self.est, *given, all_rows=self.est._counts_rows())
        return self.given

    @contextmanager
    def _named(self):
        try:
            yield
        except (ValueError, TypeError, OSError) as error:
            raise ValueError(f"Part {self.name}: {error}") from error
