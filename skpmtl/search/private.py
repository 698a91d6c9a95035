"""Parameter search within a privacy budget."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._display.diagram import ShowsBest
from .._runtime.constraints import Interval, InvalidParameterError, StrOptions, check_parameters
from .._runtime.hints import RandomState, Self
from .._runtime.stack import users_line
from .._version import __version__
from ..exchange.protocol import drawn
from ..metrics import check_scorer, task_scores
from ..privacy.accounting import check_budget, gdp_delta, gdp_epsilon, gdp_mu
from ..privacy.composition import per_release
from ..privacy.mechanisms import VectorGaussian, rounding_factor
from ..privacy.report import PrivacyLeakWarning
from ..privacy.rng import noise_source
from ..privacy.selection import draw_trials, selection_mu
from ..tables.table import SingleTaskWarning
from .rows import SplitRows, described, results_table

__all__ = ["PrivateSearch"]
_MOST_POISSON = 7  # above this mean a logarithmic number of trials is cheaper
_SCORE_NOISE = 0.02  # wanted noise of the mean score, as a fraction of the range of scores
_MOST_FOR_SCORE = 0.5  # of mu^2
_UNIT_SCORES = (None, "r2", "accuracy", "balanced_accuracy", "roc_auc", "f1")
# What the search decides itself, or what has to be equal for all candidates.
_RESERVED = (
    "epsilon",
    "delta",
    "adjacency",
    "curator",
    "random_state",
    "secure",
    "tasks",
    "task_feature",
    "classes",
)
# Warnings about the seed and about delta come from the search itself.
_SAID_BEFORE = ("The noise of this fit", "delta=")
# What is public whatever the candidates are; the rest follows from the one that wins.
_FACTS = (
    "n_tasks",
    "n_features",
    "n_classes",
    "target_range",
    "feature_range",
    "relation",
    "factor",
    "factor below",
    "across",
    "clusters",
    "init",
)
_PUBLIC_WARNINGS = (PrivacyLeakWarning, SingleTaskWarning)
_ROUNDING = 1e-13  # epsilon and delta carry mu to an estimator with more than 14 digits
_ACCOUNTANTS = {
    "poisson": "Renyi DP of random stopping after a Poisson number of trials",
    "logarithmic": "Renyi DP of random stopping after a logarithmic number of trials",
    "compose": "exact Gaussian differential privacy of all trials",
}
_UNSEEN = "only the winning trial is ever seen: not the others, nor how many there were"


def _by_winner(name, what):
    """A method of `best_estimator_`, for searches of estimators that have it."""

    def method(self, X, task=None, **options):
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X, task=task, **options)

    method.__name__, method.__qualname__ = name, f"PrivateSearch.{name}"
    method.__doc__ = f"""{what}, by `best_estimator_`.

        Parameters
        ----------
        X, task
            As in the `{name}` of the estimator.
        **options
            Of the same, such as ``level="population"``.

        Returns
        -------
        values : ndarray or dict
        """
    has = available_if(lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name))
    return has(method)


class PrivateSearch(ShowsBest, MetaEstimatorMixin, BaseEstimator):
    """Random search within one privacy budget, which covers fits, scores and the choice.

    Every trial draws a candidate, fits it with noise on a part of every task's rows, and
    scores it: each task scores its own model on its other rows, and the clipped scores of
    all tasks are averaged with noise. The best trial wins, and every task then computes its
    model again from the winning billboard and *all* its rows, which costs nothing.

    A `GridSearchCV` over private estimators spends budget on every fit and reads scores without
    noise. Here the number of trials is random and only the best one is shown, which costs far less
    than their sum.

    Parameters
    ----------
    estimator : estimator of this package
        With a Gaussian mechanism and a guarantee per task. The search sets its `epsilon`,
        `delta` and `random_state`. Pipelines are refused, because statistics of their steps over
        several tasks would not be charged.
    param_distributions : dict or list of dict
        Parameter names and lists of values or distributions with a method ``rvs``, as in
        `RandomizedSearchCV`. Trials draw from it independently, with replacement.
    n_trials : float, default=10
        Mean number of trials, at least 1. The actual number is random, may be several times
        larger, and is not disclosed; with ``selection="compose"`` it is this integer.
    selection : {"auto", "poisson", "logarithmic", "compose"}, default="auto"
        Distribution of the number of trials; "auto": "poisson" up to 7, "logarithmic" above.
        "compose": a fixed number of distinct candidates, all of which may be seen and are
        paid for, as when the tasks receive the billboard of every trial.
    epsilon : float, default=1.0
        Privacy budget of the search with everything that it fits.
    delta : float or None, default=None
        In (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    scoring : str, scorer or None, default=None
        Score of one task, as in scikit-learn. None: R2 or accuracy.
    score_range : "auto" or (float, float), default="auto"
        Public range (lo, hi) to which the score of a task is clipped. A task without a
        score (no row is held out, or R2 of a single row) counts as lo. "auto": (0, 1), for
        R2, accuracy, balanced accuracy, F1 and the area under the ROC curve only. Any error in the
        score of one task, such as a missing class, also counts as lo.
    score_share : "auto" or float, default="auto"
        Fraction of the mu^2 of a trial for its score. "auto": enough for noise of 2 % of the range,
        at most one half.
    test_size : float, default=0.25
        Part of the rows of every task (and class) that is held out for the score. At least
        one row is held out and one is kept where there are two.
    random_state : int, Generator, RandomState or None, default=None
        None: noise, candidates and number of trials from the operating system's generator.
        Anything else gives no protection against those who know it.

    Attributes
    ----------
    best_estimator_ : estimator
        The winner, with models from all rows. Its report, `epsilon` and `delta` are those of the
        search.
    best_params_ : dict
    best_score_ : float
        Noisy mean score of the winner.
    best_index_ : int
        Row of the winner in `cv_results_`.
    cv_results_ : dict
        "params", "param_<name>", "mean_test_score", "rank_test_score"; of the winner only,
        or of all trials with ``selection="compose"``.
    n_splits_ : int
        1.
    privacy_ : PrivacyReport
        Guarantee of everything above (for `best_estimator_`, of its billboard).
    classes_, n_features_in_, feature_names_in_
        Of `best_estimator_`.

    See Also
    --------
    skpmtl.privacy.grid_search_cost : What a plain search has spent.

    Notes
    -----
    A trial is mu-GDP with mu^2 = mu_train^2 + mu_score^2, by composition. The sensitivity of
    the mean score is (hi - lo) / n_tasks: given the billboard, a task's score depends on its
    own rows alone. The best of K trials is accounted in `skpmtl.privacy.selection`. The
    guarantee needs that the other trials and their number stay with the curator: unless
    ``selection="compose"`` their fits are neither logged nor passed to callbacks. How long a
    search takes is not hidden.

    References
    ----------
    .. [1] N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy",
       ICLR 2022.

    Examples
    --------
    >>> from skpmtl import PrivateMTL, PrivateSearch
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=60, n_features=4, random_state=0)
    >>> search = PrivateSearch(
    ...     PrivateMTL(tasks=range(60)), {"levels": ["auto", "free"]}, n_trials=3, epsilon=2.0
    ... ).fit(X, y, task=task)
    >>> search.privacy_.epsilon, len(search.cv_results_["params"])
    (2.0, 1)
    """

    # As for the estimators: with metadata routing on, `task` is asked for.
    __metadata_request__fit = {"task": True}
    __metadata_request__predict = {"task": True}
    __metadata_request__predict_proba = {"task": True}
    __metadata_request__predict_log_proba = {"task": True}
    __metadata_request__decision_function = {"task": True}
    __metadata_request__score = {"task": True}

    _parameter_constraints = {
        "param_distributions": [dict, list],
        "n_trials": [Interval(Real, 1, None, closed="left")],
        "selection": [StrOptions({"auto", "poisson", "logarithmic", "compose"})],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither"), None],
        "scoring": [str, callable, None],
        "score_range": [StrOptions({"auto"}), tuple, list],
        "score_share": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "test_size": [Interval(Real, 0, 0.5, closed="right")],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        estimator,
        param_distributions: Mapping | list,
        *,
        n_trials: float = 10,
        selection: Literal["auto", "compose", "logarithmic", "poisson"] = "auto",
        epsilon: float = 1.0,
        delta: float | None = None,
        scoring: str | Callable | None = None,
        score_range: Literal["auto"] | tuple | list = "auto",
        score_share: float | Literal["auto"] = "auto",
        test_size: float = 0.25,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.n_trials = n_trials
        self.selection = selection
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.score_range = score_range
        self.score_share = score_share
        self.test_size = test_size
        self.random_state = random_state

    # ------------------------------------------------------------------------- fit
    def fit(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Search, and fit the winner.

        Parameters
        ----------
        X, y, task
            As in the `fit` of the estimator, in the long form: `stack_tasks` and
            `wide_to_long` convert the others.
        sample_weight : array-like of shape (n_samples,), default=None
            As in the `fit` of the estimator; scores of tasks have the weights of their rows, too.

        Returns
        -------
        self : object
            The fitted search; not fitted after an error.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        for name, value in self._search(X, y, task, sample_weight).items():
            setattr(self, name, value)
        return self

    def _search(self, X, y, task, sample_weight):
        self._check_parameters()
        rows = SplitRows(self.estimator, X, y, task, self.test_size, sample_weight)
        epsilon, delta, selection = self._budget(rows.n_tasks)
        source = noise_source(self.random_state, secure=getattr(self.estimator, "secure", False))
        candidates = self._candidates(selection, source)
        n_trials = len(candidates) if selection == "compose" else self.n_trials
        mu = selection_mu(epsilon, delta, n_trials, selection)
        share = self._share(mu, rows.n_tasks)
        low, high = self._range()
        score = VectorGaussian(1, (high - low) / rows.n_tasks, mu * math.sqrt(share))
        mu_train = mu * math.sqrt(1.0 - share) * (1.0 - _ROUNDING)
        best, results = None, []
        for params in candidates:
            with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = self._fit_candidate(params, mu_train, delta, rows, source, selection)
                if best is None:
                    self._check_scoring(fitted)
                gain = self._gain(fitted, rows, low, high)
            gain = np.array([gain]) / rounding_factor(rows.n_tasks)
            value = score.release(gain, source)[0] + low
            if best is None or value > best[0]:
                best = value, params, fitted, caught
            if selection == "compose":
                results.append((params, value))
        value, params, fitted, caught = best
        # Warnings of the other trials would disclose how many there were, and most come from rows.
        for warning in caught:
            public = issubclass(warning.category, _PUBLIC_WARNINGS)
            if public and not str(warning.message).startswith(_SAID_BEFORE):
                warnings.warn(warning.message, warning.category, stacklevel=users_line())
        report = self._report(fitted.privacy_, score, selection, n_trials, epsilon, delta, mu)
        report = replace(report, rng=source.description, arithmetic=source.arithmetic)
        fitted.__dict__.pop("_is_hidden", None)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.personalize(fitted)
        # One guarantee for all of it: the fit alone would understate what was spent.
        fitted.set_params(epsilon=epsilon, delta=delta)
        fitted.privacy_ = report
        fitted.billboard_.within(report)
        results = results or [(params, value)]
        scores = np.array([value for _, value in results])
        return {
            "best_estimator_": fitted,
            "best_params_": params,
            "best_score_": float(value),
            "best_index_": int(scores.argmax()),
            "cv_results_": results_table([params for params, _ in results], scores),
            "n_splits_": 1,
            "privacy_": report,
            "_population_": fitted._population_,
        }

    def _budget(self, n_tasks):
        """-> epsilon, delta, selection"""
        selection = self.selection
        if selection == "auto":
            selection = "poisson" if self.n_trials <= _MOST_POISSON else "logarithmic"
        return *check_budget(self.epsilon, self.delta, n_tasks), selection

    def _planned_report(self, population):
        epsilon, delta, selection = self._budget(population.n_tasks)
        exact = selection == "compose" or self.n_trials == 1
        mu = float(gdp_mu(epsilon, delta)) if exact else None
        fit = clone(self.estimator).set_params(epsilon=epsilon, delta=delta)
        return replace(fit._planned_report(population), epsilon=epsilon, delta=delta, mu=mu)

    def _check_parameters(self):
        check_parameters(self)
        name = type(self.estimator).__name__
        if hasattr(self.estimator, "steps"):
            raise TypeError(
                "PrivateSearch takes the private estimator itself, not a pipeline: what the steps "
                "before it learn from the rows of several tasks would not be charged. Transform X "
                "first, with public constants or TaskScaler."
            )
        parameters = self.estimator.get_params(deep=False)
        missing = [key for key in ("epsilon", "delta", "random_state") if key not in parameters]
        if missing or not hasattr(self.estimator, "personalize"):
            raise TypeError(
                f"{name} is not a private estimator of this package "
                f"(it has no {(missing or ['personalize'])[0]}): PrivateSearch cannot charge it. "
                "Methods without a budget can be searched with GridSearchCV."
            )
        if self.estimator.epsilon is None:
            raise ValueError(
                f"{name}(epsilon=None) is a fit without privacy. PrivateSearch sets the budget of "
                "its fits itself: leave the estimator's epsilon at its default. For a search "
                "without privacy use GridSearchCV."
            )
        if getattr(self.estimator, "curator", "trusted") != "trusted":
            raise ValueError(
                f"curator={self.estimator.curator!r}: the scores of a search go to one curator, "
                'who is trusted. Leave the estimator\'s curator at "trusted".'
            )
        if self.selection == "compose" and not isinstance(self.n_trials, Integral):
            raise InvalidParameterError(
                f'n_trials={self.n_trials!r} must be an integer with selection="compose".'
            )
        grids = self.param_distributions
        for grid in [grids] if isinstance(grids, dict) else grids:
            taken = sorted(set(grid) & set(_RESERVED))
            if taken:
                raise ValueError(
                    f"param_distributions has {taken[0]!r}: the search sets the budget and the "
                    "noise of its fits, and the guarantee must be the same for all candidates."
                )
        self._range()

    def _range(self):
        """-> (lo, hi)"""
        if isinstance(self.score_range, str):
            if self.scoring not in _UNIT_SCORES:
                raise ValueError(
                    f"scoring={self.scoring!r} has no known range: pass score_range=(lo, hi), "
                    "chosen without looking at the data. Scores of tasks are clipped to it."
                )
            return 0.0, 1.0
        try:
            low, high = map(float, self.score_range)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"score_range={self.score_range!r} must be two numbers lo < hi.")
        return low, high

    def _share(self, mu, n_tasks):
        if self.score_share != "auto":
            return self.score_share
        return min(_MOST_FOR_SCORE, (1.0 / (_SCORE_NOISE * n_tasks * mu)) ** 2)

    def _candidates(self, selection, source):
        # Words of the noise source: with random_state=None not even the draw can be guessed.
        words = drawn(lambda source: source.uniform(16), source)
        state = np.random.RandomState((words * 2.0**32).astype(np.uint32))
        if selection == "compose":
            sampler = ParameterSampler(self.param_distributions, self.n_trials, random_state=state)
            return list(sampler)
        one = ParameterSampler(self.param_distributions, 1, random_state=state)
        n_trials = drawn(
            lambda source: np.array(draw_trials(self.n_trials, selection, source)), source
        )
        return [next(iter(one)) for _ in range(int(n_trials))]

    def _fit_candidate(self, params, mu, delta, rows, source, selection):
        candidate = clone(self.estimator).set_params(**params)
        candidate._is_hidden = selection != "compose"
        if self.random_state is not None:
            candidate.set_params(random_state=int(source.uniform(1)[0] * 2.0**31))
        else:
            candidate.set_params(random_state=None)
        # One point of the curve of mu-GDP; above delta(0) the curve has no point with
        # epsilon > 0. The estimator finds the same mu again, to rounding.
        delta = min(delta, 0.5 * float(gdp_delta(mu, 0.0)))
        candidate.set_params(epsilon=float(gdp_epsilon(mu, delta)), delta=delta)
        candidate.fit(*rows.training, **rows.weights(rows.kept))
        report = candidate.privacy_
        spent = report.mu if report.releases else 0.0  # some fits release nothing
        if report.guarantee != "joint DP per task" or spent is None:
            raise ValueError(
                f"the fit with {params} is not accounted by Gaussian differential privacy for "
                f"tasks (guarantee {report.guarantee!r}, {report.accountant}), which PrivateSearch "
                "needs: use a Gaussian mechanism with all tasks in every release."
            )
        if spent > mu * (1.0 + _ROUNDING):
            raise RuntimeError(
                f"the fit with {params} reports mu = {report.mu!r} instead of {mu!r}: it does not "
                "keep to the epsilon and delta that it was given."
            )
        return candidate

    def _scorer(self):
        default = "accuracy" if is_classifier(self.estimator) else "r2"
        return get_scorer(default if self.scoring is None else self.scoring)

    def _check_scoring(self, fitted):
        try:
            check_scorer(self._scorer(), fitted)
        except Exception as error:
            raise ValueError(
                f"scoring={self.scoring!r} cannot score right predictions of made-up targets of "
                f"{type(fitted).__name__}: {error} Choose another one."
            ) from error

    def _gain(self, fitted, rows, low, high):
        """Mean over all tasks of the clipped score above `low`; tasks without a score add 0."""
        if not rows.n_held_out:
            return 0.0
        scorer = self._scorer()

        def score(*given, **weights):
            try:
                return float(scorer(*given, **weights))
            except Exception:  # of one task, which nobody else may learn
                return math.nan

        weights = rows.weights(rows.tested)
        scores = task_scores(fitted, *rows.held_out, scoring=score, **weights).scores
        gains = np.where(np.isfinite(scores), np.clip(scores, low, high), low) - low
        return float(gains.sum() / rows.n_tasks)

    def _report(self, fit, score, selection, n_trials, epsilon, delta, mu):
        visible = selection == "compose"
        exact = visible or n_trials == 1
        mean = "" if exact else "a random number of, on average "
        trials = f"{n_trials:.6g} trial{'s' if n_trials != 1 else ''}"
        entry = {"name": "score", **score.describe("mean of the tasks' clipped scores")}
        public = {
            "candidates": described(self.param_distributions),
            "n_trials": n_trials,
            "selection": selection,
            "score_range": self._range(),
            "test_size": self.test_size,
        }
        return replace(
            fit,
            epsilon=epsilon,
            delta=delta,
            mechanism=f"the best of {mean}{trials}, each a fit ({fit.mechanism}) and a noisy score",
            sensitivity=(*per_release(fit), score.sensitivity),
            noise_std=(*fit.noise_std, score.noise_std),
            mu=math.sqrt(n_trials) * mu if exact else None,
            releases=(*fit.releases, entry),
            accountant=f"skpmtl {__version__}, {_ACCOUNTANTS[selection]}",
            public_inputs={k: v for k, v in fit.public_inputs.items() if k in _FACTS} | public,
            assumptions=fit.assumptions if visible else (*fit.assumptions, _UNSEEN),
            notes={
                **fit.notes,
                "releases": "those of the winning trial",
                "settings of the winning trial": ", ".join(
                    f"{k} = {v}" for k, v in fit.public_inputs.items() if k not in _FACTS
                ),
                "mu_trial": mu,
                "mu_train": fit.mu,
                "mu_score": score.mu,
            },
        )

    # ---------------------------------------------------------------- the winner at work
    predict = _by_winner("predict", "Predictions")
    predict_proba = _by_winner("predict_proba", "Probabilities of the classes")
    predict_log_proba = _by_winner("predict_log_proba", "Logarithms of these probabilities")
    decision_function = _by_winner("decision_function", "Scores of the second class")

    def score(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Score of `best_estimator_`: R2 or accuracy over all known targets together.

        Parameters
        ----------
        X, y, task, sample_weight
            As in the `score` of the estimator.

        Returns
        -------
        score : float
            Computed from rows, without noise.
        """
        check_is_fitted(self)
        return self.best_estimator_.score(X, y, task=task, sample_weight=sample_weight)

    @property
    def classes_(self):
        return _of_winner(self, "classes_")

    @property
    def n_features_in_(self):
        return _of_winner(self, "n_features_in_")

    @property
    def feature_names_in_(self):
        return _of_winner(self, "feature_names_in_")

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.regressor_tags, tags.classifier_tags = inner.regressor_tags, inner.classifier_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.target_tags.multi_output = False
        return tags


def _of_winner(search, name):
    # AttributeError, so that hasattr reports whether the search is fitted.
    if not hasattr(search, "best_estimator_"):
        raise AttributeError(f"{type(search).__name__} has no {name}: it is not fitted.")
    return getattr(search.best_estimator_, name)
