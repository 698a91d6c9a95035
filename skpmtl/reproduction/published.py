"""What the estimators of three papers have in common: parameters, forms of rows, predictions."""

import inspect
import math
import warnings
from numbers import Integral

import numpy as np

from .._runtime.constraints import StrOptions, check_parameters, take
from ..base import TaskIndexed
from ..privacy.report import PrivacyReport
from ..privacy.rng import noise_source
from ..tables.table import by_code

__all__ = ["Published", "by_task", "with_classes"]


class Published(TaskIndexed):
    """An estimator without weights, and with the models of its tasks.

    A subclass has `_scores_of`, the scores of rows of task number k: (n,), or (n, n_classes).
    """

    _parameter_constraints = {
        "task_feature": [str, Integral, list, None],
        "tasks": [StrOptions({"auto"}), "array-like"],
        "classes": [StrOptions({"auto"}), "array-like"],
        "random_state": ["random_state", np.random.Generator],
    }

    def _check_parameters(self):
        check_parameters(self)

    def _is_private(self):
        return self.epsilon is not None and math.isfinite(self.epsilon)

    def _source(self):
        with warnings.catch_warnings():
            if not self._is_private():
                warnings.simplefilter("ignore")  # about a seed: no noise is drawn
            return noise_source(self.random_state, secure=getattr(self, "secure", False))

    def _refuse_weights(self, table):
        if table.weights is not None:
            raise ValueError(
                f"{type(self).__name__} has no weights, as its paper has none: leave out "
                "sample_weight."
            )

    def _report_of(self, plan, source):
        """Of a plan; None: of a fit without clipping and without noise."""
        if plan is None:
            reason = "there is no clipping and no noise"
            return PrivacyReport(guarantee="none", notes={"reason": reason})
        report = plan.report(source)
        if getattr(self, "monitor", None) is not None:
            report.notes["monitor"] = "what monitor= read of the rows is outside the guarantee"
        return report

    def _with_absent(self, fitted, table):
        return fitted  # the rounds had them

    _rows_to_score = TaskIndexed._read_rows

    def _linear(self, X, task, decide=None, level="task"):
        if level != "task":
            raise ValueError(f'level={level!r} must be "task": this method predicts no other one.')
        rows = self._read_rows(X, task)
        return rows.wrap(self._row_values(rows, decide))

    def _row_values(self, rows, decide):
        if rows.codes is None:
            X = rows.features()
            score = np.stack([self._scores_of(k, X) for k in self._wide_columns()], axis=1)
        else:
            score = None
            for k, part in by_code(rows.codes):
                found = self._scores_of(k, rows.features(part))
                if score is None:
                    score = np.empty((len(rows.codes), *found.shape[1:]))
                score[part] = found
        return score if decide is None else decide(score)


def by_task(table, y):
    """Rows of all tasks, and what `y` has for them. -> list of (X, y)

    They are in the order of ``everybody``; tasks without rows have none.
    """
    found = {}
    for k, name in enumerate(table.tasks):
        part = slice(table.offsets[k], table.offsets[k + 1])
        found[name] = table.X[part if table.rows is None else table.rows[part]], y[part]
    return [found.get(name, (table.X[:0], y[:0])) for name in table.everybody]


def with_classes(init):
    """The ``__init__`` of an estimator that classifies: `init`, and "classes" after "tasks"."""
    known = inspect.signature(init)
    parameters = list(known.parameters.values())
    at = list(known.parameters).index("tasks")
    parameters.insert(at + 1, parameters[at].replace(name="classes"))
    whole = known.replace(parameters=parameters)

    def __init__(self, *args, **named):
        given = whole.bind(self, *args, **named)
        given.apply_defaults()
        take(self, given.arguments)

    __init__.__signature__ = whole
    return __init__
