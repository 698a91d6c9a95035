"""Models of wide sparse tasks, stored as differences to the centre."""

import numpy as np
from scipy import sparse

from ..base import BaseMTL, merge_rows
from ..tables.table import bound_values, by_code
from .personal import PersonalModels


class Computed:
    """Attribute that fits with `models_` compute at every access; the others store it."""

    def __init__(self, compute, exists=lambda est: True):
        self.compute, self.exists = compute, exists

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, est, owner=None):
        if est is None:
            return self
        if "models_" in vars(est) and self.exists(est):
            return self.compute(est)
        raise AttributeError(f"{type(est).__name__!r} object has no attribute {self.name!r}")


class WideSparse:
    """Mixin of estimators that may have `models_`, a `SparseModels`, in the place of `coef_`.

    The estimator has ``_mean_models``, the centres of tasks that it was not fitted with.
    """

    def personalize(self, X, y, task=None, sample_weight=None):
        if "models_" not in vars(self):
            return super().personalize(X, y, task, sample_weight)
        table = bound_values(self._read_new_tasks(X, y, task, sample_weight))
        with np.errstate(all="ignore"):
            models = PersonalModels(table, self.billboard_, dense=False)
        b = models.intercept if len(self.billboard_.shape) == 2 else models.intercept[:, 0]
        tasks, form = self._add_labels(table.everybody)
        old, new = np.searchsorted(tasks, self.tasks_), np.searchsorted(tasks, table.tasks)
        known, intercept = self.models_, self.intercept_
        if len(table.absent):
            away = np.searchsorted(tasks, table.absent)
            rest = RestingModels(vars(self), table.absent)
            known = known.merged(len(tasks), old, away, rest)
            intercept = merge_rows(len(tasks), old, intercept, away, rest.intercept)
            old = np.arange(len(tasks))
        self.models_ = known.merged(len(tasks), old, new, models)
        self.intercept_ = merge_rows(len(tasks), old, intercept, new, b)
        self.tasks_, self._form_ = tasks, form
        self._forget_idle(table.tasks)
        return self

    personalize.__doc__ = BaseMTL.personalize.__doc__

    def _with_absent(self, fitted, table):
        if "models_" not in fitted:
            return super()._with_absent(fitted, table)
        tasks = table.everybody
        here, away = np.searchsorted(tasks, table.tasks), np.searchsorted(tasks, table.absent)
        rest = RestingModels(fitted, table.absent)
        models = fitted["models_"].merged(len(tasks), here, away, rest)
        b = merge_rows(len(tasks), here, fitted["intercept_"], away, rest.intercept)
        return {**fitted, "models_": models, "intercept_": b}

    # Coefficients of wide sparse tasks are written out only when somebody asks for them.
    coef_ = Computed(lambda est: est.models_.coef())
    mean_coef_ = Computed(lambda est: est.billboard_.mean, lambda est: est.billboard_.has_one_mean)

    def _task_coef(self, position):
        if "models_" in vars(self):
            return self.models_.task_coef(position)
        return super()._task_coef(position)

    def _row_values(self, rows, decide):
        if "models_" not in vars(self):
            return super()._row_values(rows, decide)
        X = sparse.csr_matrix(rows.X, dtype=np.float64)
        single = len(self.billboard_.shape) == 1
        if rows.unseen is not None and len(rows.unseen):
            cluster, models, shift = self._mean_models(rows.unseen)

        def values(part, k):
            if k < 0:
                scores = part @ models[cluster[-1 - k]].T + shift[cluster[-1 - k]]
            else:
                scores = self.models_.scores(part, k)
            scores = np.asarray(scores[:, 0] if single else scores)
            return scores if decide is None else decide(scores)

        if rows.codes is None:
            return np.stack([values(X, k) for k in self._wide_columns()], axis=1)
        out = None
        for k, part in by_code(rows.codes):
            some = values(X[part], k)
            if out is None:
                out = np.empty((X.shape[0], *some.shape[1:]), dtype=some.dtype)
            out[part] = some
        return out


class RestingModels:
    """Models of tasks without rows: centres, each kept once."""

    def __init__(self, fitted, tasks):
        billboard = fitted["billboard_"]
        self.which, self.models = billboard.resting(tasks)
        shape = len(tasks), *fitted["intercept_"].shape[1:]
        self.intercept = np.zeros(shape)
        if billboard.init is not None:
            self.intercept[:] = billboard.init.intercept.reshape(shape[1:])
        if billboard.mean_intercept is not None:
            shift = np.atleast_2d(billboard.mean_intercept)
            zero = (
                np.zeros((1, shift.shape[1]))
                if billboard.init is None
                else billboard.init.intercept
            )
            zero = np.atleast_2d(zero)
            self.intercept[:] = np.concatenate([shift, zero])[self.which].reshape(shape)

    def task_coef(self, k):
        return self.models[self.which[k]].copy()

    def scores(self, X, k):
        model = self.models[self.which[k]]
        return X @ model.reshape(-1, model.shape[-1]).T + self.intercept[k]


class SparseModels:
    """Personal models of wide sparse tasks, from one or several calls."""

    def __init__(self, models):
        self.parts = [models]
        self.owner = np.zeros(len(models.which), dtype=np.int64)
        self.place = np.arange(len(models.which))

    def merged(self, n_tasks, old, new, models):
        """A copy with the tasks of `models` at the positions `new`, the known ones at `old`."""
        out = object.__new__(SparseModels)
        out.parts = [*self.parts, models]
        out.owner = np.full(n_tasks, len(self.parts))
        out.place = np.empty(n_tasks, dtype=np.int64)
        out.owner[old], out.place[old] = self.owner, self.place
        out.owner[new], out.place[new] = len(self.parts), np.arange(len(new))
        return out

    def task_coef(self, k):
        """Coefficients of the task at position k."""
        return self.parts[self.owner[k]].task_coef(int(self.place[k]))

    def scores(self, X, k):
        """Scores (n_rows, n_outputs) of CSR rows of the task at position k."""
        return self.parts[self.owner[k]].scores(X, int(self.place[k]))

    def coef(self):
        """All coefficients as one dense array."""
        return np.stack([self.task_coef(k) for k in range(len(self.owner))])
