"""`SurvivalMTL`: proportional hazards with a baseline and a frailty for every task."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .._display.diagram import ShowsPrivacy
from .._display.summary import Summarised, variance_columns
from .._runtime.hints import Adjacency, Curator, RandomState, Self
from ..exchange.protocol import Population
from ..privacy.report import exact_report
from ..tables.forms import read_array, task_apart
from ..tables.ids import encode_ids, listed, locate
from .counts import PiecewiseHazards
from .frailty import fit_frailty
from .periods import Periods, read_cuts, read_survival, time_spent

__all__ = ["SurvivalMTL"]


class SurvivalMTL(Summarised, ShowsPrivacy, BaseEstimator):
    """Proportional hazards of many tasks, with or without a privacy budget.

    The hazard of row i of task t in interval j is ``lambda_j exp(x_i' w_t + b_t)``. With constant
    hazards between public cuts this is a model of counts: each row has, in each interval that it
    enters, an exposure and at most one event. With a budget it is fitted by
    ``PrivateMTL(loss="poisson")`` on these, so that levels are frailties. Slopes and the shape of
    the baseline are those of all tasks; frailties are normal with an estimated variance, as
    ``coxph(... + frailty(g, dist = "gauss"))`` of R has it.

    Parameters
    ----------
    cuts : array-like of shape (n_cuts,) or None, default=None
        Public, increasing times at which the hazard may change; the last interval has no end. With
        a budget they are required. None without one: the baseline is free between times of events
        (Cox, with Breslow's treatment of ties).
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit, for all rows of a task. None: no privacy.
    delta : float or None, default=None
        None: ``min(1e-5, 1 / n_tasks**2)``.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
    curator : "trusted", "servers" or tuple, default="trusted"
        As in `PrivateMTL`.
    task_feature : str, int or None, default=None
        Column of X that holds the task, by name or position. None: ids are passed as ``task=``.
    tasks : "auto" or array-like, default="auto"
        Public list of all tasks. "auto": those of the rows, which discloses them.
    random_state : int, RandomState, Generator or None, default=None
        Of the noise, for tests.

    Attributes
    ----------
    tasks_ : ndarray of shape (n_tasks,)
    coef_ : ndarray of shape (n_features,)
        Log hazard ratios that tasks share; NaN where a budget found nothing.
    covariance_ : ndarray of shape (n_features, n_features)
        Without a budget: of `coef_`; NaN of columns that follow from others.
    frailty_variance_ : float
        Of the logarithms of frailties; NaN where it was not released.
    frailties_ : ndarray of shape (n_tasks,)
        Without a budget: logarithms of the tasks' frailties.
    baseline_hazard_ : ndarray of shape (n_intervals,)
        Of all tasks, by interval, at X of zeros.
    ends_ : ndarray of shape (n_intervals,)
        Ends of the intervals; infinity for the last one with `cuts`.
    estimator_ : PiecewiseHazards
        With a budget: the fitted model of counts. Its columns are the features and an indicator
        for each interval but the first.
    privacy_ : PrivacyReport
        What was released; without a budget that there is no guarantee.
    n_features_in_ : int

    See Also
    --------
    PrivateMTL : The model of counts.

    Notes
    -----
    A row takes as many rows of the model of counts as it enters intervals, whose columns are
    written out pass by pass, some tasks at a time. With too few tasks for the budget nothing is
    found that tasks share: the report says so, and each task has its own model.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl.survival import SurvivalMTL
    >>> rng = np.random.default_rng(0)
    >>> X, hospital = rng.normal(size=(600, 2)), np.repeat(np.arange(30), 20)
    >>> rate = np.exp(X[:, 0] + 0.5 * rng.normal(size=30)[hospital])
    >>> ends, censored = rng.exponential(1 / rate), rng.uniform(1, 3, size=600)
    >>> y = np.rec.fromarrays([ends <= censored, np.minimum(ends, censored)], names="event,time")
    >>> model = SurvivalMTL(epsilon=None).fit(X, np.asarray(y), task=hospital)
    >>> bool(abs(model.coef_[0] - 1) < 0.2)
    True
    """

    def __init__(
        self,
        cuts: ArrayLike | None = None,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        task_feature: str | int | None = None,
        tasks: ArrayLike | Literal["auto"] = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.cuts = cuts
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.task_feature = task_feature
        self.tasks = tasks
        self.random_state = random_state

    # ------------------------------------------------------------------------------ fit
    def fit(self, X, y, task: ArrayLike | None = None, *, entry: ArrayLike | None = None) -> Self:
        """Fit all tasks.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Features; with `task_feature` one column is the task.
        y : structured array of shape (n_samples,)
            Fields event (bool) and time (positive), as of scikit-survival's ``Surv``.
        task : array-like of shape (n_samples,), default=None
            Task of every row, without a `task_feature`.
        entry : array-like of shape (n_samples,), default=None
            Times from which rows were observed (left truncation); None: 0.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For other targets, for a budget without cuts, and for missing values or ids.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        event, time = read_survival(y)
        X, ids = self._read(X, task, len(time), reset=True)
        if self.epsilon is not None and self.cuts is None:
            raise ValueError(
                "With a budget the intervals are public: pass cuts=, such as [30, 90, 365], or "
                "epsilon=None."
            )
        if self.epsilon is None:
            fitted = self._fit_exact(X, ids, Periods(event, time, entry, self.cuts))
        else:
            fitted = self._fit_counts(X, y, entry, ids)
        for name, value in fitted.items():
            setattr(self, name, value)
        return self

    def personalize(
        self, X, y, task: ArrayLike | None = None, *, entry: ArrayLike | None = None
    ) -> Self:
        """Add tasks, or give tasks other rows, from what a fit with a budget released.

        Parameters
        ----------
        X, y, task, entry
            As in `fit`.

        Returns
        -------
        self : object
        """
        check_is_fitted(self, "estimator_")
        X, ids = self._read(X, task, len(y), reset=False)
        columns, rates, ids, exposures = self.estimator_.rows(X, y, entry, ids)
        self.estimator_.personalize(columns, rates, task=ids, sample_weight=exposures)
        self.tasks_ = self.estimator_.tasks_
        return self

    def _fit_exact(self, X, ids, periods):
        codes, tasks = encode_ids(ids)
        known = tasks
        if not isinstance(self.tasks, str):
            known = np.unique(encode_ids(list(self.tasks))[1])
            place = locate(tasks, known)
            if (place < 0).any():
                raise ValueError(f"tasks= lacks tasks with rows: {listed(tasks[place < 0])}.")
            codes = place[codes]
        found = fit_frailty(X, codes, len(known), periods)
        with np.errstate(over="ignore"):
            baseline = found.hazard * np.exp(-found.centre @ found.coef)
        return {
            "tasks_": known,
            "coef_": found.coef,
            "covariance_": found.covariance,
            "frailty_variance_": found.theta,
            "frailties_": found.effects,
            "baseline_hazard_": baseline,
            "privacy_": exact_report(),
            "ends_": periods.ends,
            "_periods": periods,
            "_found": found,
        }

    def _fit_counts(self, X, y, entry, ids):
        est = PiecewiseHazards(
            np.atleast_1d(self.cuts).tolist(),
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            curator=self.curator,
            tasks=self.tasks,
            random_state=self.random_state,
            names=list(map(str, getattr(self, "feature_names_in_", ()))) or None,
        )
        m = len(encode_ids(list(ids if isinstance(self.tasks, str) else self.tasks))[1])
        try:
            est._planned_report(Population(np.arange(m), est._n_columns(X.shape[1])))
        except ValueError:  # too few tasks for a pooled model, by public numbers
            est.set_params(unseen_task="error")
        columns, events, ids = est.passes(X, y, entry, ids)
        est.fit(columns, events, task=ids)
        return _read_off(est)

    @classmethod
    def _of_counts(cls, est):
        """The fitted estimator of a model of counts, such as one from a file."""
        names = "epsilon", "delta", "adjacency", "curator"
        model = cls(est.cuts, **{name: getattr(est, name) for name in names})
        fitted = _read_off(est)
        model.n_features_in_ = len(fitted["coef_"])
        if est.names is not None:
            model.feature_names_in_ = np.array(est.names, dtype=object)
        for name, value in fitted.items():
            setattr(model, name, value)
        return model

    def _is_private(self):
        """Whether the fit has a budget, as audits ask of every estimator."""
        return self.epsilon is not None

    def _in_files(self):
        """What `save_billboard` writes, and `load_billboard` gives back as `SurvivalMTL`."""
        check_is_fitted(self, "coef_")
        if self.epsilon is None:
            raise ValueError(
                "SurvivalMTL has a billboard with a budget only: pass cuts= and epsilon=."
            )
        return self.estimator_

    def _read(self, X, task, n=None, *, reset):
        """-> features (n, d), ids (n,), which are None only where there are no `n` targets"""
        X, task, _ = task_apart(X, task, self.task_feature)
        validate_data(self, X, skip_check_array=True, reset=reset)
        X = read_array(X, dtype=np.float64, estimator=self, input_name="X")
        if not np.isfinite(X).all():
            raise ValueError("X has missing or infinite values: impute them, or drop the rows.")
        ids = None if task is None else np.asarray(task)
        if n is not None and ids is None:
            raise ValueError("Give the task of every row: set task_feature, or pass task=.")
        if n is not None and not len(X) == len(ids) == n:
            raise ValueError("X, y and the tasks must have one entry for each row.")
        return X, ids

    # -------------------------------------------------------------------------- predict
    def _cumulative(self, X, task, times):
        """Cumulative hazards, (n_samples, n_times)."""
        X, ids = self._read(X, task, reset=False)
        if self.epsilon is None:
            score = (X - self._found.centre) @ self.coef_
            if ids is not None:
                codes, names = encode_ids(ids, missing_too=True)
                place = np.append(locate(names, self.tasks_), -1)[codes]
                score = score + np.append(self.frailties_, 0.0)[place]
            base = self._periods.cumulative(self._found.hazard, times)
            return np.exp(score)[:, None] * base
        est = self.estimator_
        if ids is None and not est._has_mean():
            raise ValueError(
                "This fit found no pooled model to predict with: pass the tasks of the rows, or "
                "refit with a larger epsilon or more tasks."
            )
        level = {"level": "population"} if ids is None else {}
        if ids is None and not len(est.tasks_):  # of a billboard, for which all tasks are new
            ids, level = np.zeros(len(X), dtype=np.int64), {}
        rates = [
            est.predict(est.columns(X, np.full(len(X), j)), task=ids, **level)
            for j in range(len(self.ends_))
        ]
        return np.column_stack(rates) @ time_spent(self.ends_, times).T

    def _times(self, times):
        if times is None:
            times = self.ends_[np.isfinite(self.ends_)]
        times = np.atleast_1d(np.asarray(times, dtype=float))
        if times.ndim != 1 or not (times >= 0).all():
            raise ValueError("times= must be a list of times that are not negative.")
        return times

    def predict(self, X, task: ArrayLike | None = None):
        """Risk scores: expected numbers of events until the last finite end of an interval.

        Parameters
        ----------
        X, task
            As in `fit`. Without ids, and for tasks that were not fitted, by what tasks share.

        Returns
        -------
        risk : ndarray of shape (n_samples,)
            Higher is earlier, as the concordance index of scikit-survival takes it.
        """
        check_is_fitted(self, "coef_")
        return self._cumulative(X, task, self.ends_[np.isfinite(self.ends_)][-1:])[:, 0]

    def predict_cumulative_hazard_function(
        self, X, task: ArrayLike | None = None, *, times: ArrayLike | None = None
    ):
        """Cumulative hazards.

        Parameters
        ----------
        X, task
            As in `predict`.
        times : array-like of shape (n_times,), default=None
            None: the finite ends of the intervals.

        Returns
        -------
        hazard : ndarray of shape (n_samples, n_times)
        """
        check_is_fitted(self, "coef_")
        return self._cumulative(X, task, self._times(times))

    def predict_survival_function(
        self, X, task: ArrayLike | None = None, *, times: ArrayLike | None = None
    ):
        """Probabilities of no event until some times.

        Parameters
        ----------
        X, task
            As in `predict`.
        times : array-like of shape (n_times,), default=None
            None: the finite ends of the intervals.

        Returns
        -------
        survival : ndarray of shape (n_samples, n_times)
            The exponential of minus `predict_cumulative_hazard_function`.
        """
        return np.exp(-self.predict_cumulative_hazard_function(X, task, times=times))

    def score(self, X, y, task: ArrayLike | None = None) -> float:
        """Harrell's concordance index of `predict`.

        Parameters
        ----------
        X, y, task
            As in `fit`.

        Returns
        -------
        concordance : float
            Share of pairs, of which the earlier time is that of an event, whose risk has the right
            order; ties of risk count half. NaN without such a pair.
        """
        event, time = read_survival(y)
        return concordance(event, time, self.predict(X, task))

    # -------------------------------------------------------------------------- summary
    _title = "log hazard ratios"

    def _pooled_effects(self):
        names = [str(c) for c in getattr(self, "feature_names_in_", ())]
        names = names or [f"x{j}" for j in range(len(self.coef_))]
        error = np.full(len(self.coef_), np.nan)
        if not np.isfinite(self.coef_).all():
            words = (
                "Nothing was found about what tasks share, and there are no estimates. Pass a "
                "larger epsilon, or list more tasks."
            )
        elif self.epsilon is None:
            error = np.sqrt(np.diag(self.covariance_))
            words = (
                "Standard errors are those of the penalised likelihood, given the variance of "
                "frailties."
            )
        else:
            words = (
                "There are no standard errors. `privacy_` states the noise of all slopes, with "
                "those of intervals; effects may also be nearer to zero than the truth."
            )
        return names, self.coef_, error, np.inf, words

    def _variance_components(self, names, coverage):
        if not np.isfinite(self.frailty_variance_):
            return [], {}, ["No spread of frailties was released."]
        columns = variance_columns(np.zeros((0, 0)), (), [self.frailty_variance_])
        return ["log frailty"], columns, []


def _read_off(est):
    """What a fitted `PiecewiseHazards` says of hazards. -> {name: value} of attributes"""
    ends = read_cuts(est.cuts)
    board = est.billboard_
    d = board.n_features - len(est.cuts)
    known = board.has_place or board.slopes_are_equal  # tasks may share slopes without a level
    pooled = np.where(known, board.in_units(board.centre)[0], np.nan)
    level = float(getattr(est, "mean_intercept_", np.nan))
    return {
        "estimator_": est,
        "tasks_": est.tasks_,
        "coef_": np.array(pooled[:d]),
        "frailty_variance_": float(getattr(est, "level_spread_", np.nan)) ** 2,
        "baseline_hazard_": np.exp(level + np.append(0.0, pooled[d:])),
        "privacy_": est.privacy_,
        "ends_": ends,
    }


def concordance(event, time, risk):
    """Harrell's index, as `SurvivalMTL.score` has it. -> float"""
    pairs = right = 0.0
    for i in np.flatnonzero(event):
        later = (time > time[i]) | ((time == time[i]) & ~event)
        pairs += later.sum()
        right += (risk[later] < risk[i]).sum() + 0.5 * (risk[later] == risk[i]).sum()
    return float(right / pairs) if pairs else float("nan")
