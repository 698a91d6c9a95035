"""How sure models and predictions are: what follows from the parameter `uncertainty`.

The posterior of each task's model comes from `skpmtl.course.uncertainty` for real targets, and from
`skpmtl.course.scores` for classes. Fits without `uncertainty` do not come here.
"""

import warnings
from numbers import Real

import numpy as np
from scipy.stats import t as student_t

from ._runtime.constraints import InvalidParameterError
from ._runtime.stack import users_line
from .tables.scores import dense_parts, row_quadratics, row_variances
from .task.mixture import averaged_scores

# Per-task attributes, as `skpmtl.task.mixture.Posterior` has them; of classes the first alone.
POSTERIOR = "covariance_", "noise_variance_", "dof_"
_ONE_STD = 0.6827  # of a normal number, within its standard deviation
LARGEST_COVARIANCE = 1 << 28  # numbers of all tasks together
_AUTO_COVARIANCE = 1 << 24  # the same, up to which classifiers keep them by default
_AUTO_CLASSES = 3  # of more, averages class by class are too flat: 10 digits, log-loss .50 -> .68


def check_uncertainty(est):
    """Raise a ValueError if the models of an estimator have no posterior of the kind requested."""
    uncertainty, reason = est.uncertainty, None
    if uncertainty == "auto" and not est._classification:
        raise InvalidParameterError("uncertainty='auto' is of classifiers: pass True or False.")
    if uncertainty != "auto":
        reason = est._no_posterior()
        if est.loss != "squared" and not est._classification:
            reason = (
                f'the posterior is that of loss="squared", and not of {est.loss!r}: pass '
                "uncertainty=False, or that loss."
            )
    if reason is not None:
        raise ValueError(f"uncertainty={uncertainty!r}, but {reason}")


def real_posterior(est, table, billboard):
    """Attributes of the posterior of each task's model of real targets, by name."""
    _check_covariances(table)
    with np.errstate(all="ignore"):
        return est._table_posterior(table, billboard).attributes()


def keeps_class_posterior(est, table):
    """Whether a classifier with `uncertainty` keeps the posterior of models of this table."""
    if est.uncertainty is True:
        _check_covariances(table)
        return True
    few = table.n_classes <= _AUTO_CLASSES and est._no_posterior() is None
    return few and _covariance_size(table) * table.n_listed <= _AUTO_COVARIANCE


def _covariance_size(table):
    """Numbers in the covariances of a task."""
    several = table.n_classes if table.n_classes > 2 else 1
    return several * (table.n_features + 1) ** 2


def _check_covariances(table):
    n_tasks = len(table.everybody)
    if _covariance_size(table) * n_tasks > LARGEST_COVARIANCE:
        raise ValueError(
            f"uncertainty=True keeps a covariance of {table.n_features + 1} numbers squared "
            f"for each of {n_tasks} tasks, which are more than {LARGEST_COVARIANCE} "
            "numbers: take fewer features, or personalise fewer tasks at a time."
        )


def value_without_rows(name):
    """Value of the extra of this name for a task without rows, which does not know its noise."""
    return np.inf if name in POSTERIOR[:2] else 0.0


class Intervals:
    """Standard deviations and intervals of predictions; mixin of regressors."""

    def predict_interval(self, X, task=None, coverage=0.9):
        """Predict intervals that hold targets with a probability.

        The interval is ``y +- t_dof((1 + coverage) / 2) sqrt((dof - 2) / dof) y_std``, with the
        degrees of freedom of the noise of the task. What is not covered: targets far from where
        the task has rows, rows that depend on each other, and change.

        Parameters
        ----------
        X, task
            As in `fit`.
        coverage : float, default=0.9
            Probability, in (0, 1).

        Returns
        -------
        interval : ndarray of shape (n_samples, 2), or (n_samples, n_tasks, 2), or dict
            Lower and upper ends, in the form of the predictions of `predict`; infinite where
            `y_std` is.

        Raises
        ------
        ValueError
            If `coverage` is not in (0, 1), and of an estimator without posterior.
        """
        if not isinstance(coverage, Real) or not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage={coverage!r} must be a number in (0, 1), such as 0.9.")
        rows, y, std, dof, unseen = self._predictive(X, task)
        sure = np.isfinite(std) & ~unseen
        dof = np.where(sure, dof, 3.0)
        reach = student_t.ppf(0.5 * (1.0 + coverage), dof) * np.sqrt((dof - 2.0) / dof)
        reach = np.where(sure, reach * std, np.inf)
        if unseen.any():
            reach = np.where(unseen, self._reach_without_rows(rows, coverage), reach)
        return rows.wrap(np.stack([y - reach, y + reach], axis=-1))

    def _reach_without_rows(self, rows, coverage):
        """Distances within which targets of tasks without rows are, (n_samples,), (n_tasks,) or
        (n_samples, n_tasks)."""
        given = [self.tasks_] if rows.unseen is None else [self.tasks_, rows.unseen[::-1]]
        board, tasks = self.billboard_, rows.codes
        residuals = board.residuals
        more = np.concatenate([residuals.of_slopes(Z) for _, Z in dense_parts(rows)])
        if tasks is None:
            more, tasks = more[:, None], self._wide_columns()
        doubts = np.concatenate([board.level_doubt(some) for some in given])
        more = more + doubts[tasks] + self._doubt_of_rows(rows)
        return residuals.quantiles(coverage, more)

    def _predictive(self, X, task):
        """-> rows, predictions, their standard deviations, degrees of freedom, and whether both are
        those of tasks without rows"""
        rows, residuals = self._rows_to_score(X, task), getattr(self.billboard_, "residuals", None)
        known = "covariance_" in vars(self)
        if not known and (residuals is None or self.unseen_task != "mean"):
            remedy = "; those with a parameter uncertainty= do."
            if self.loss != "squared":
                remedy = f', which is that of loss="squared", and not of {self.loss!r}.'
            elif "uncertainty" in self.get_params(deep=False):
                remedy = ": pass uncertainty=True and fit again, or personalize() the task."
            raise ValueError(f"This {type(self).__name__} keeps no posterior of its models{remedy}")
        y = self._row_values(rows, None)
        variance, dof = np.full((2, *y.shape), np.inf)
        if known:
            variance, dof = row_variances(
                rows, self.covariance_, self.noise_variance_, self.dof_, self._wide_columns
            )
            variance = self._with_levels_of_rows(variance, rows) + self._doubt_of_rows(rows)
        unknown = ~np.isfinite(variance)
        std = np.where(unknown, np.inf, np.sqrt(np.where(unknown, 0.0, variance)))
        unseen = np.zeros(std.shape, dtype=bool)
        if residuals is not None and self.unseen_task == "mean":
            idle = np.isin(self.tasks_, getattr(self, "_idle_", ()))
            codes = self._wide_columns() if rows.codes is None else np.maximum(rows.codes, -1)
            unseen = np.broadcast_to(np.append(idle, True)[codes], std.shape)
            if unseen.any():
                std = np.where(unseen, self._reach_without_rows(rows, _ONE_STD), std)
        unknown &= ~unseen
        if unknown.any():
            warnings.warn(
                f"{int(unknown.sum())} predictions have an infinite standard deviation: their "
                "tasks have no rows, or were fitted or added without uncertainty=True. "
                'unseen_task="mean" gives those of tasks without rows, where levels were found.',
                stacklevel=users_line(),
            )
        return rows, y, std, dof, unseen


def averaged(est, X, task, decide):
    """What `decide` makes of scores whose probabilities are averaged over the posterior."""
    rows = est._rows_to_score(X, task)
    if "covariance_" not in vars(est):
        return rows.wrap(est._row_values(rows, decide))
    score = est._row_values(rows, None)
    variance = row_quadratics(rows, est.covariance_, est._wide_columns, est._near_rows)
    variance += est._doubt_of_rows(rows)
    # Tasks without rows vary as levels do; released shares are means over levels already.
    averaged_already = getattr(est.billboard_, "of_shares", False)
    spread = 0.0 if averaged_already else getattr(est, "level_spread_", 0.0)
    variance[~np.isfinite(variance)] = spread**2
    return rows.wrap(decide(averaged_scores(score, variance, len(est.classes_))))
