"""Base classes of the linear multi-task estimators: fit, predict, personalize, export.

A subclass brings its parameters and two methods, `_fit_table` and `_personalize_table`; see
`BaseMTL`. Everything about the input is settled before they are called.
"""

import logging
import math
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from ._coefficients import NamedCoefficients
from ._display.diagram import Documented, ShowsPrivacy
from ._display.summary import Summarised
from ._runtime.constraints import Interval, InvalidParameterError, StrOptions, check_parameters
from ._runtime.hints import ClassWeight, Level, Self
from ._runtime.stack import saying_once, sklearn_holds, users_line
from ._uncertainty import (
    POSTERIOR,
    Intervals,
    averaged,
    check_uncertainty,
    keeps_class_posterior,
    real_posterior,
    value_without_rows,
)
from ._version import __version__
from .callbacks import FOLLOWED, RoundCallbacks, told
from .exchange.billboard import Personal
from .exchange.files import FromBillboard, first_tasks, rows_before_tasks
from .exchange.plan import n_servers_of
from .exchange.protocol import Population, allow_for_rounding, run, task_side_of
from .privacy.report import ALONE, LittleFoundWarning, PrivacyLeakWarning, PrivacyReport
from .privacy.rng import SeededSource, noise_source
from .solvers.robust import weighted
from .tables.datafits import DATAFITS
from .tables.forms import is_mapping_of_tasks, read_rows, read_training
from .tables.ids import listed, locate
from .tables.public_init import read_public_init
from .tables.scores import row_scores
from .tables.table import (
    SingleTaskWarning,
    all_finite,
    bound_values,
    check_values,
    finite_models,
    named_floats,
)
from .tables.targets import class_targets, encode_labels, pair_known, public_classes
from .tables.weights import with_classes

__all__ = ["BaseMTL", "MTLClassifierMixin", "MTLRegressorMixin"]

logger = logging.getLogger("skpmtl")


_NOT_FINITE = (
    "The solution is not finite: features or targets differ too much in size. Rescale them to "
    "order one (StandardScaler or TaskScaler, TransformedTargetRegressor)."
)


def _is_fold_by_rows(value):
    return isinstance(value, (KFold, StratifiedKFold))


def _selects_by_coef(value):
    getter = getattr(value, "importance_getter", None)  # of SelectFromModel and RFE
    return isinstance(value, BaseEstimator) and isinstance(getter, str) and getter == "auto"


class TaskIndexed(Documented, BaseEstimator):
    """Estimator whose rows have a task: reads the input and keeps failed fits unfitted.

    Subclasses have the parameters `task_feature` and `tasks` and define

    - ``_encode_target(table, classes=None) -> (y, classes)``, targets as numbers, or codes of
      classes,
    - ``_fit_table(table) -> dict`` of all fitted attributes; it must not set any itself, and
      may read those of an earlier fit,
    - ``_with_absent(fitted, table) -> dict``, these attributes with the listed tasks without rows,
    - ``_check_parameters()``.
    """

    loss = "squared"  # of real targets; a parameter where there are others

    # Users need no set_fit_request(task=True) and so on when metadata routing is on.
    __metadata_request__fit = {"task": True}
    __metadata_request__predict = {"task": True}
    __metadata_request__predict_proba = {"task": True}
    __metadata_request__predict_log_proba = {"task": True}
    __metadata_request__decision_function = {"task": True}
    __metadata_request__score = {"task": True}

    def fit(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit all tasks.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n_samples, n_features), or mapping
            Features; with `task_feature` one column is the task. Or ``{task: X_t}``.
        y : array-like of shape (n_samples,) or (n_samples, n_tasks), or mapping
            Targets. With two dimensions there is one column per task, with NaN where a target
            is not known. With a mapping X, ``{task: y_t}``.
        task : array-like of shape (n_samples,), default=None
            Task id of every row, when there is neither a task column nor a 2-D y nor a mapping.
        sample_weight : array-like of shape (n_samples,), or mapping, default=None
            Weight of every row of X, at least 0 (the row is dropped); ``{task: w_t}`` with a
            mapping X. None: equal weights. Weights above 1 count how often a row was seen, and
            those of counts are exposures; where single records are protected they are refused.

        Returns
        -------
        self : object
            The fitted estimator. After an error it is not fitted, even if it was before; after an
            interrupt (Ctrl-C) it is as it was before.
        """
        before = dict(vars(self))
        try:
            self._check_parameters()
            self._check_selector()
            table, form = self._read_training(X, y, task, sample_weight)
            if form.kind == "single":
                warnings.warn(
                    "There is no task information: all rows are taken as one task. Set "
                    "task_feature, or pass task=, a mapping, or a 2-D y.",
                    SingleTaskWarning,
                    stacklevel=users_line(),
                )
            inferred = warn_of_inferred(self, tasks=form.kind not in ("single", "wide"))
            table, classes = self._encoded(table)
            # Warnings about overflow would depend on rows.
            with saying_once(), np.errstate(all="ignore"):
                # Asked here too: most fits never enter the module of callbacks.
                if FOLLOWED & vars(self).keys():
                    fitted = told(self, self._fit_finite, table)
                else:
                    fitted = self._fit_finite(table)
                if len(table.absent):
                    fitted = self._with_absent(fitted, table)
            if inferred and "privacy_" in fitted:
                billboard = fitted["billboard_"]
                billboard.report = fitted["privacy_"] = billboard.report.disclosing(inferred)
            seen = {} if classes is None else {"classes_": classes}
            population = replace(Population.of(table), sizes=None, is_sparse=False, levels=None)
            seen["_population_"], seen["tasks_"] = population, population.tasks
            seen["_idle_"] = table.absent
            self._become({**seen, "_form_": form, **fitted})
            warn_of_little(self, fitted)
        except BaseException as error:
            self._undo(error, before)
            raise
        return self

    def __getstate__(self):
        return {**super().__getstate__(), "_skpmtl_version": __version__}

    def __setstate__(self, state):
        written = state.get("_skpmtl_version", "an older version")
        if written != __version__:
            warnings.warn(
                f"This {type(self).__name__} was pickled by skpmtl {written} and is read by "
                f"{__version__}, which may take it for something else. Files of save_billboard and "
                "models of export_task can be read by every later version.",
                stacklevel=users_line(),
            )
        super().__setstate__({k: v for k, v in state.items() if k != "_skpmtl_version"})

    def _check_selector(self):
        """ValueError where scikit-learn would take the entries of `coef_` for columns of X."""
        if self.task_feature is not None and sklearn_holds(_selects_by_coef):
            raise ValueError(
                "Features are selected by coef_, which has no entry for the column of tasks: pass "
                "importance_getter=skpmtl.inspection.column_importances to the selector."
            )

    def _become(self, fitted):
        """Take these attributes, and keep what was seen of the input. -> self"""
        # A second fit may have fewer attributes than the first: nothing stale may stay.
        names = {"n_features_in_", "feature_names_in_"} & set(vars(self))
        seen = {name: getattr(self, name) for name in names}
        self._forget()
        for name, value in {**seen, **fitted}.items():
            setattr(self, name, value)
        return self

    def _fit_finite(self, table):
        """`_fit_table`, of which all that it returns is finite."""
        return self._fit_table(table)

    def _undo(self, error, before):
        """Be unfitted after an error, and as `before` (attributes by name) after an interrupt."""
        self._forget()
        if not isinstance(error, Exception):
            vars(self).update(before)

    def _forget(self):
        for name in [name for name in vars(self) if name.endswith("_")]:
            if not name.startswith("__"):
                delattr(self, name)

    def _is_private(self):
        return False

    def _counts_rows(self):
        """Whether the numbers of rows of a fit are public denominators, as for single records.

        Weights then stay what they are: a row of weight 0 is one more row, that adds nothing.
        """
        return False

    def _read_training(self, X, y, task=None, sample_weight=None):
        """The table of a fit, as it was given, and its form."""
        return read_training(
            self, X, y, task, sample_weight, tasks=self.tasks, all_rows=self._counts_rows()
        )

    def _read_new_tasks(self, X, y, task, sample_weight):
        """The table of personalize, with encoded targets.

        With tasks of the fit it is a part of all of them: these are computed as in the fit,
        whichever of them have rows.
        """
        check_is_fitted(self)
        table, _ = read_training(self, X, y, task, sample_weight, form=self._form_)
        tasks = table.everybody
        known = locate(tasks, self.tasks_) >= 0  # strings among integers are refused
        if known.any():
            table = table.among(len(self.tasks_) + int((~known).sum()))
        return self._encoded(table, getattr(self, "classes_", None), new=True)[0]

    @np.errstate(all="ignore")  # products of weights may overflow, which depends on rows, too
    def _encoded(self, table, classes=None, *, new=False):
        """-> the table with its targets as numbers and weights in units of rows, classes

        `new`: of tasks that are personalised alone, where no number of rows is public.
        """
        y, classes = self._encode_target(table, classes)
        n_classes = 0 if classes is None else len(classes)
        table = replace(table, y=y, n_classes=n_classes, loss=self.loss)
        given, raw = getattr(self, "class_weight", None), self._counts_rows() and not new
        if classes is not None and given is not None:
            if raw and isinstance(given, str):
                raise ValueError(
                    f"class_weight={given!r} changes the weight of a record with those of all "
                    "others of its task, which no guarantee for single records allows: give a "
                    "mapping {class: weight}."
                )
            table = with_classes(table, given, self._label_names(classes), 1.0 if raw else math.inf)
        if not raw and table.weights is not None:
            table = DATAFITS[self.loss].weigh(table)
        return self._with_targets(table), classes

    def _label_names(self, classes):
        """Classes as in the parameters, also if a tool encoded the labels of this fit."""
        return classes

    def _with_targets(self, table):
        """The table with targets as its losses take them."""
        return table

    def _forget_idle(self, tasks):
        """These tasks have rows now."""
        if "_idle_" in vars(self):
            self._idle_ = np.setdiff1d(self._idle_, tasks)

    def _add_labels(self, labels):
        """`tasks_` with new labels, and the form in which they come last in wide predictions."""
        form = self._form_
        if form.kind == "wide":
            new = labels[locate(labels, self.tasks_) < 0]
            form = replace(form, labels=np.concatenate([form.labels, new]))
        return np.union1d(self.tasks_, labels), form

    def _read_rows(self, X, task, *, mean=False):
        check_is_fitted(self)
        blank = not len(self.tasks_)
        rows = rows_before_tasks(self, X, task, mean) if blank else read_rows(self, X, task, mean)
        if rows.unseen is not None and len(rows.unseen) and not mean:
            raise ValueError(
                f"Tasks that were not fitted: {listed(rows.unseen)}. Add them with "
                "personalize()"
                + (", or set unseen_task='mean'" if hasattr(self, "unseen_task") else "")
                + ". In cross-validation, KFold without shuffling leaves out whole tasks when "
                "rows are sorted by task: use TaskStratifiedKFold, or list all tasks in tasks=."
            )
        if not mean and rows.codes is not None and len(getattr(self, "_idle_", ())):
            self._warn_of_idle(rows.codes)
        return rows

    def _warn_of_idle(self, codes):
        """A warning where a fold of `KFold` has all rows of a task, and more than one."""
        idle = np.searchsorted(self.tasks_, self._idle_)
        counts = np.bincount(codes[codes >= 0], minlength=len(self.tasks_))[idle]
        if (counts > 1).any() and sklearn_holds(_is_fold_by_rows):
            warnings.warn(
                f"This fold has all rows of some tasks: {listed(self._idle_[counts > 1])}. They "
                "are predicted from what all tasks share, or as 0. KFold leaves out whole tasks "
                "when rows are sorted by task: use TaskStratifiedKFold, or, to test on "
                "unseen tasks, LeaveTasksOut.",
                stacklevel=users_line(),
            )

    def _wide_columns(self):
        """Positions in `tasks_` of the columns of wide predictions."""
        return locate(self._form_.labels, self.tasks_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        has_column = self.task_feature is not None
        tags.input_tags.string = tags.input_tags.categorical = has_column
        return tags


def warn_of_little(est, fitted):
    """`LittleFoundWarning` where a private fit found no structure, level, mean model or scales, or
    any fit no unit.

    It follows from the billboard and from parameters alone.
    """
    report, board = fitted.get("privacy_"), fitted.get("billboard_")
    if report is None or report.notes.get("reason") == ALONE:
        return
    is_far = getattr(board, "unit_is_at_an_end", False)
    if report.guarantee == "none" and not is_far:
        return
    remedy = "a larger epsilon, or more tasks"
    wants_mean = getattr(est, "unseen_task", None) == "mean"
    if is_far:
        text = (
            "targets are larger than 2^40, about 1e12, or differ by less than 2^-40. Remedy: "
            "divide them by a public number."
        )
    elif not report.releases:
        text = f"nothing was released, and every task is alone. Remedies: {remedy}."
    elif getattr(board, "lost", False):
        text = (
            "the released initialisation is noise, and tasks set it aside. Remedies: "
            "feature_range= and target_range=, more rows, a larger epsilon, or more tasks."
        )
    elif wants_mean and "mean_coef_" not in fitted:
        known = "target_range=, " if "target_range" in est.get_params() else ""
        text = f"no mean model of what tasks share. Remedies: {known}{remedy}."
    elif wants_mean and _seeks_slopes(est) and getattr(board, "mean_is_level", False):
        text = (
            "slopes that all tasks share are below their noise, and unseen tasks have the common "
            f"level alone. Remedies: fewer columns, {remedy}."
        )
    elif _looks_for_place(est) and not getattr(board, "has_place", True):
        text = f"no place of the levels of tasks, which are not pooled. Remedies: {remedy}."
    elif _seeks_slopes(est) and getattr(board, "shares_no_slopes", False):
        text = (
            "slopes that all tasks share are below their noise, and every task has slopes of its "
            f"own alone. Remedies: fewer columns, {remedy}."
        )
    elif getattr(board, "loses_scales", False):
        text = (
            "columns are far from scale one, and the noise of their released scales is a factor of "
            f"{2.0**board.scale_noise:.2g}. Remedies: columns of public scale, fewer columns, "
            f"{remedy}."
        )
    else:
        return
    warnings.warn(f"Little was found: {text}", LittleFoundWarning, stacklevel=users_line())


def _looks_for_place(est):
    """Whether the fit looks for a place of the levels of tasks."""
    return est.get_params(deep=False).get("fit_intercept", True) and (
        getattr(est, "levels", "auto") == "auto"
    )


def _seeks_slopes(est):
    """Whether the fit looks for slopes that all tasks share."""
    return "mean" in getattr(est, "_structures", tuple)()


def warn_of_inferred(est, *, tasks=True):
    """`PrivacyLeakWarning` for each list that a private fit takes from the rows. -> their names"""
    disclosed = []
    if not est._is_private():
        return disclosed
    lists = {"tasks": "tasks"} if tasks else {}
    lists |= {"classes": "labels"} if hasattr(est, "classes") else {}
    for name, what in lists.items():
        if isinstance(getattr(est, name), str):
            warnings.warn(
                f'{name}="auto" reads the list of {name} from private rows, so that the result '
                f"discloses which {what} exist. Pass the public list: {name}=[...].",
                PrivacyLeakWarning,
                stacklevel=users_line(),
            )
            disclosed.append(f"the {name}")
    return disclosed


class BaseMTL(
    NamedCoefficients, Summarised, RoundCallbacks, ShowsPrivacy, FromBillboard, TaskIndexed
):
    """Base of the linear multi-task estimators.

    A subclass defines ``__init__`` with at least the parameters named in
    ``_parameter_constraints`` here (`epsilon`, `delta` and `adjacency` may be missing, and
    `classes` comes with `MTLClassifierMixin`), adds constraints for its own, inherits from
    `MTLRegressorMixin` or `MTLClassifierMixin` first, and implements

    ``_curator(population, source)``
        Generator of queries that returns the billboard; see `skpmtl.exchange.run`.
    ``_task_side(table, population)``
        The task side, a `skpmtl.exchange.TaskSide`.
    ``_fit_table(table) -> dict``
        Where a fit is more than these two. All fitted attributes: "coef_" (n_tasks, n_features),
        "intercept_" (n_tasks,), "billboard_", and for `unseen_task="mean"` "mean_coef_"
        (n_features,) and "mean_intercept_"; with more than two classes, "coef_" (n_tasks,
        n_classes, n_features) and so on. It must set no attribute but `billboard_`, from which
        `_personalize_table` goes on; those of an earlier fit are still there for a warm start.
    ``_fit_exact(table) -> dict``
        A fit without a budget, where that is not the same without noise; see ``exact.py`` of the
        methods.
    ``_personalize_table(table) -> Personal or (coef, intercept)``
        Models of the tasks of a table from ``self.billboard_`` and these rows only; where
        ``billboard_.personalize`` takes more than the table.
    ``_planned_report(population) -> PrivacyReport``
        What a fit states, from the parameters and public numbers alone (`Population`); where
        bounds follow the releases, with the bounds of the first round.

    What else a method may declare has defaults here: `_public_attributes`,
    `_models_without_rows`, and for federated fits
    `_federates`, `_query_specs`, `_reads_sizes`, `_check_study` and `_transport`.

    Attributes
    ----------
    _billboards : tuple of type
        Kinds of billboards that the class publishes and goes on with.
    _federates : bool
        Whether sites can answer; `_query_specs` says what.
    _name_in_studies : str or None
        Name of the estimator that a study of this class gives to its users; None: its own.
    _reads_sizes : bool
        Whether the plan needs the number of rows of every task.
    _extras : tuple of str
        Per-task attributes other than the model that some fits have; see `Personal`.
    """

    privacy_: PrivacyReport
    _classification = False
    _federates = False
    _name_in_studies: ClassVar[str | None] = None
    _reads_sizes = False
    _extras: ClassVar[tuple[str, ...]] = POSTERIOR
    _parameter_constraints: ClassVar[dict] = {
        "uncertainty": ["boolean", StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "loss": [StrOptions(set(DATAFITS))],
        "task_feature": [str, Integral, list, None],
        "tasks": [StrOptions({"auto"}), "array-like"],
        "classes": [StrOptions({"auto"}), "array-like"],
        "class_weight": [StrOptions({"balanced"}), Mapping, None],
        "unseen_task": [StrOptions({"error", "mean"})],
        "target_range": ["array-like", None],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
        "secure": ["boolean"],
        "epsilon": [Real, None],
        "delta": [Interval(Real, 0, 1, closed="neither"), None],
        "adjacency": [StrOptions({"replace-one", "zero-out"})],
        "curator": [StrOptions({"trusted", "servers"}), tuple, list],
    }

    def _check_parameters(self):
        check_parameters(self)
        epsilon = getattr(self, "epsilon", None)
        if epsilon is not None and not epsilon > 0:
            raise InvalidParameterError(
                f"epsilon={epsilon!r} must be positive. A fit without privacy is epsilon=None."
            )
        if self._n_servers > 1 and not self._is_private():
            raise ValueError(
                f"curator={self.curator!r} adds up contributions of a private fit: pass a finite "
                'epsilon, or leave it at "trusted".'
            )
        if getattr(self, "uncertainty", False):
            check_uncertainty(self)

    def _no_posterior(self):
        """Why the models of these parameters have no posterior, and what to do; None: they do."""
        return None

    @property
    def _log_loss(self):
        """Whether models are scores, of classes or of counts."""
        return self._classification or self.loss == "poisson"

    def _score_range(self):
        """Public range of the scores of regressors, for that of the target."""
        return DATAFITS[self.loss].range_of_scores(self.target_range)

    def _limits(self):
        """Public range of the scores, or None."""
        return None if getattr(self, "target_range", None) is None else self._score_range()

    @property
    def _n_servers(self):
        """Servers that add up and add the noise; one is a curator that is trusted."""
        return n_servers_of(getattr(self, "curator", "trusted"))

    def _is_private(self):
        """Whether the budget is finite."""
        epsilon = getattr(self, "epsilon", None)
        return isinstance(epsilon, Real) and math.isfinite(epsilon)

    def _fit_finite(self, table):
        private = self._is_private()
        if not private:
            # Without a budget nothing hides who has rows: sums are divided by their number. Graphs,
            # covariates and clusters are of the listed tasks.
            linked = (getattr(self, name, None) for name in ("relation", "clusters"))
            if len(table.absent) and all(given is None for given in linked):
                table = replace(table, absent=())
            check_values(table)
            try:
                fitted = self._fit_exact(table)
            except (np.linalg.LinAlgError, ArithmeticError) as error:
                raise ValueError(_NOT_FINITE) from error
            # Errors of effects are NaN where rows do not tell an effect from others.
            arrays = [value for name, value in fitted.items() if not name.startswith("effect_")]
            arrays = [value for value in arrays if isinstance(value, np.ndarray)]
            if not all_finite(*(a for a in arrays if a.dtype.kind == "f")):
                raise ValueError(_NOT_FINITE)
            return {**fitted, **self._posterior_of(table, fitted["billboard_"])}
        table = bound_values(table)
        fitted = self._fit_table(table)
        if "coef_" in fitted:
            mean = fitted.get("mean_coef_"), fitted.get("mean_intercept_")
            models = finite_models(fitted["coef_"], fitted["intercept_"], mean)
            fitted["coef_"], fitted["intercept_"] = models
        return {**fitted, **self._posterior_of(table, fitted["billboard_"])}

    # ------------------------------------------------------------------ curator and task side
    def _queries(self, population, source):
        """The curator, for `skpmtl.exchange.run` and whatever else sends its queries to tasks."""
        return allow_for_rounding(self._curator(population, source), population.n_tasks)

    def _fit_table(self, table):
        population, source = Population.of(table), self._source()
        task_side = self._task_side(table, population)
        tasks = task_side_of(task_side, table, population)
        curator = self._queries(population, source)
        with self._journal(table, population) as journal:
            billboard = run(curator, tasks, source, journal, self._n_servers)
        self.billboard_ = billboard
        personal = Personal(
            *task_side.final_models(billboard, lambda: self._personalize_table(table))
        )
        models = {"coef_": personal.coef, "intercept_": personal.intercept, **personal.extras}
        return {**models, **self._public_attributes(billboard, population)}

    def _journal(self, table, population):
        """What keeps the releases of a fit; nothing here."""
        return nullcontext()

    def _fit_exact(self, table):
        return self._fit_table(table)

    def _personalize_table(self, table):
        return self.billboard_.personalize(table)

    def _posterior_of(self, table, billboard):
        """Per-task attributes with ``uncertainty=True``, by name; none without."""
        if self._classification or not getattr(self, "uncertainty", False):
            return {}  # models of classes come with their posterior
        return real_posterior(self, table, billboard)

    def _keeps_class_posterior(self, table):
        """Whether models of classes of a table come with their posterior, by public numbers."""
        return False

    def _table_posterior(self, table, billboard):
        """`Posterior` of the tasks of a table."""
        return billboard.posterior(table)

    def _with_absent(self, fitted, table):
        """Fitted attributes with the tasks that have no rows; their extras are 0."""
        tasks = table.everybody
        here, away = np.searchsorted(tasks, table.tasks), np.searchsorted(tasks, table.absent)
        coef, intercept = self._models_without_rows(fitted, tasks, away)
        merged = {
            "coef_": merge_rows(len(tasks), here, fitted["coef_"], away, coef),
            "intercept_": merge_rows(len(tasks), here, fitted["intercept_"], away, intercept),
        }
        for name in set(self._extras) & set(fitted):
            merged[name] = merge_rows(
                len(tasks), here, fitted[name], away, value_without_rows(name)
            )
        return {**fitted, **merged}

    def _models_without_rows(self, fitted, tasks, positions):
        """Models of the listed tasks at these positions, which have no rows. -> coef, intercept

        Those of tasks that were not fitted where ``unseen_task="mean"``; otherwise those
        that the billboard gives a task without any rows, with the mean intercept where only the fit
        knows it.
        """
        billboard = fitted["billboard_"]
        coef, intercept = billboard.without_rows(tasks[positions])
        mean = self.unseen_task == "mean" or "mean_intercept_" not in billboard.attributes()
        if mean and "mean_intercept_" in fitted:
            intercept[:] = fitted["mean_intercept_"]
            if self.unseen_task == "mean" and "mean_coef_" in fitted:
                coef[:] = fitted["mean_coef_"]
        return coef, intercept

    # ------------------------------------------------------------------- a public initial model
    def _encoded(self, table, classes=None, *, new=False):
        table, classes = super()._encoded(table, classes, new=new)
        if not new and self._has_public_init():
            self._labels_ = self._label_names(classes)  # while fit runs
            self._public_init(Population.of(table))  # errors in it are raised first
        return table, classes

    def _has_public_init(self):
        return getattr(self, "init", None) is not None

    def _public_init(self, population):
        """The parameter `init` as a `PublicInit`, for these features and classes, or None."""
        if not self._has_public_init():
            return None
        classes = getattr(self, "_labels_", None)
        if classes is None and self._classification:
            classes = self._public_classes()
        names, column = getattr(self, "feature_names_in_", None), self.task_feature
        if names is not None and column is not None:
            column = column[0] if isinstance(column, list) else column
            column = column if isinstance(column, str) else column % len(names)
            names = [name for i, name in enumerate(names) if column not in (i, name)]
        return read_public_init(
            self.init,
            population.n_features,
            classes=classes,
            names=names,
            fit_intercept=self.fit_intercept,
            middle=self._middle(),
        )

    def _middle(self):
        """Intercept of a public initial model that has none."""
        return 0.0

    def __sklearn_clone__(self):
        # `init` is a public value, even if it is a fitted estimator: clones keep its fit.
        if not self._has_public_init():
            return super().__sklearn_clone__()
        bare = copy(self)
        bare.init = None
        return super(BaseMTL, bare).__sklearn_clone__().set_params(init=self.init)

    def _source(self):
        """Source of the noise, and of what is drawn without privacy."""
        if self._is_private():
            return noise_source(self.random_state, secure=getattr(self, "secure", False))
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31)
        return SeededSource(np.random.default_rng(seed))

    def _public_attributes(self, billboard, population):
        """Fitted attributes that follow from the billboard and public numbers."""
        of_fit = {
            "n_iter_": self._n_iter(billboard),
            "billboard_": billboard,
            "privacy_": billboard.report,
        }
        return {**billboard.attributes(), **of_fit}

    def _n_iter(self, billboard):
        return max(len(billboard.releases), 1)

    def _check_stored(self):
        """Raise ValueError where files of the models of tasks would not hold all of them."""

    def _n_columns(self, n_features):
        """Columns of the model of a study with so many features."""
        return n_features

    def _check_study(self):
        """Raise ValueError for parameters that sites cannot follow, or that protect nobody."""
        self._check_stored()

    def _query_specs(self, population):
        """What sites answer, whoever asks. -> {statistic: QuerySpec}"""
        raise NotImplementedError

    def _transport(self, population):
        """Whom a federated fit has to trust, where that is not the curator; else None."""
        return None

    def _progress(self, message, n_rounds=None):
        """Function that logs `message` with its arguments; None when nobody listens.

        `n_rounds`: public number of its calls, for callbacks; None if it is not known before.
        """
        if self._is_hidden:
            return None
        level = logging.INFO if self.verbose else logging.DEBUG
        if self.verbose and not logger.hasHandlers():  # logging is not set up: show it anyway
            logger.addHandler(logging.StreamHandler())
            logger.setLevel(logging.INFO)

        def log(*values):
            logger.log(level, f"{type(self).__name__} {message}", *values)

        log = log if logger.isEnabledFor(level) else None
        rounds = getattr(self, "_round_callbacks", None)
        return log if rounds is None else rounds.followed(log, message, n_rounds)

    def personalize(
        self, X, y: ArrayLike, task: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add tasks that were not in `fit`, or replace models, at no privacy cost.

        Every new model uses the billboard and the rows of its task alone. Rows are added
        to `coef_` and `intercept_`, and `tasks_` stays sorted; nothing else changes.

        Parameters
        ----------
        X, y, task, sample_weight
            As in `fit`. A 2-D y needs column names that name the tasks. The list of tasks
            in the parameter `tasks` does not apply. A task without any weight has the model of
            one without rows.

        Returns
        -------
        self : object
            The estimator; after an error it is as it was.
        """
        check_is_fitted(self)
        if not len(self.tasks_):
            return first_tasks(self, X, y, task, sample_weight)
        table = self._read_new_tasks(X, y, task, sample_weight)
        personal = self._personal_models(table)
        tasks, form = self._add_labels(table.everybody)
        old, new = np.searchsorted(tasks, self.tasks_), np.searchsorted(tasks, table.everybody)
        merged = {
            "coef_": merge_rows(len(tasks), old, self.coef_, new, personal.coef),
            "intercept_": merge_rows(len(tasks), old, self.intercept_, new, personal.intercept),
        }
        for name in self._extras:  # of which some are of the tasks of the fit only
            if name in personal.extras or hasattr(self, name):
                merged[name] = merge_rows(
                    len(tasks),
                    old,
                    getattr(self, name, np.nan),
                    new,
                    personal.extras.get(name, np.nan),
                )
        self.__dict__.update(merged, tasks_=tasks, _form_=form)
        self._forget_idle(table.tasks)
        return self

    def _personal_models(self, table):
        """`Personal`, with the mean model or zero where a model is not finite."""
        with np.errstate(all="ignore"):
            table = bound_values(table)
            personal = Personal(*self._personalize_table(table))
            extras = {**personal.extras, **self._posterior_of(table, self.billboard_)}
        models = self._finite_models(personal.coef, personal.intercept)
        if not len(table.absent):
            return Personal(*models, extras)
        # Of tasks that are new to the billboard, whatever it has for those that it was made with.
        tasks = table.everybody
        here, away = np.searchsorted(tasks, table.tasks), np.searchsorted(tasks, table.absent)
        rest = BaseMTL._models_without_rows(self, vars(self), tasks, away)
        return merged_tasks(len(tasks), here, Personal(*models, extras), away, rest)

    def _first_models(self, table):
        """Fitted attributes with the models of the first tasks after `from_billboard`."""
        personal = self._personal_models(table)
        return {"coef_": personal.coef, "intercept_": personal.intercept, **personal.extras}

    def _finite_models(self, coef, intercept):
        mean = getattr(self, "mean_coef_", None), getattr(self, "mean_intercept_", None)
        return finite_models(coef, intercept, mean)

    def export_billboard(self):
        """A copy of `billboard_`: the released numbers, which alone may be published."""
        check_is_fitted(self)
        return deepcopy(self.billboard_)

    def _linear(self, X, task, decide=None, level="task"):
        """Linear scores in the form of the input, or `decide` of them."""
        rows = self._rows_to_score(X, task, level)
        return rows.wrap(self._row_values(rows, decide))

    def _rows_to_score(self, X, task, level="task"):
        if level != "task":
            return self._rows_of_everybody(X, task, level)
        rows = self._read_rows(X, task, mean=self.unseen_task == "mean")
        if rows.unseen is not None and len(rows.unseen) and not self._has_mean():
            raise ValueError(
                f"Tasks that were not fitted: {listed(rows.unseen)}. This fit released no mean "
                "model to predict them with: take a larger epsilon, more tasks or, for regressors, "
                "a public target_range; or add them with personalize()."
            )
        return rows

    def _rows_of_everybody(self, X, task, level):
        """Rows to score by the pooled model, whatever their tasks are."""
        check_is_fitted(self)
        if level != "population":
            raise ValueError(f'level={level!r} must be "task" or "population".')
        if not self._has_mean():
            more = {"error": 'unseen_task="mean"', "mean": "a larger epsilon, or more tasks"}
            refit = more.get(getattr(self, "unseen_task", None))
            refit = f": refit with {refit}" if refit else ""
            raise ValueError(f'This fit has no pooled model for level="population"{refit}.')
        if task is None and self.task_feature is None and not is_mapping_of_tasks(X):
            task = np.repeat(self.tasks_[:1], X.shape[0] if hasattr(X, "shape") else len(X))
        rows = self._read_rows(X, task, mean=True)
        return replace(rows, codes=np.full(rows.X.shape[0], -1), unseen=None)

    def _doubt_of_rows(self, rows):
        """Variance of what a factor across tasks adds to rows, for arrays of scores; or 0."""
        return 0.0

    def _near_rows(self, t, X):
        """Rows X as they count in the task at t."""
        return X

    def _with_levels_of_rows(self, variance, rows):
        """Predictive variances of rows, with those of factors of rows, where there are any."""
        return variance

    def _has_mean(self):
        return hasattr(self, "mean_coef_") and hasattr(self, "mean_intercept_")

    def _row_values(self, rows, decide):
        """Scores within the public range, or `decide` of them, of rows that were read."""
        scores, limits = self._row_scores(rows), self._limits()
        if limits is not None:
            scores = np.clip(scores, *limits)
        return scores if decide is None else decide(scores)

    def _row_scores(self, rows):
        coef, shape = self.coef_, self.coef_.shape[1:]
        if rows.codes is None:
            column = self._wide_columns()
            scores = rows.X @ coef[column].reshape(-1, shape[-1]).T
            return scores.reshape(-1, len(column), *shape[:-1]) + self.intercept_[column]
        mean = getattr(self, "mean_coef_", None)
        mean = np.zeros(shape) if mean is None else mean
        shift = getattr(self, "mean_intercept_", None)
        shift = (np.zeros(shape[:-1]) if shape[:-1] else 0.0) if shift is None else shift
        return row_scores(rows, coef, self.intercept_, mean, shift)


class Scored:
    """One score over all tasks; stands before the mixins of scikit-learn, which have others."""

    def score(
        self: Any,  # what it stands before has `predict`
        X,
        y: ArrayLike,
        task: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy of classes, R2 of numbers, or D2 of counts, over all known targets of all tasks.

        D2 is the fraction of the deviance that the model explains, as in scikit-learn's
        `PoissonRegressor`.

        Parameters
        ----------
        X, y, task
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows of X; not with mappings.

        Returns
        -------
        score : float
        """
        known, predicted, weight = pair_known(
            y, self.predict(X, task=task), self._form_.labels, sample_weight
        )
        if is_classifier(self):
            return float(np.average(known == predicted, weights=weight))
        return DATAFITS[self.loss].score(named_floats(known, "y"), predicted, weight)


class HasCovariates:
    """Mixin of estimators with a `relation`; their billboards have it, and ``with_covariates``."""

    def relate(self, covariates):
        """Give public covariates of tasks that the relation of the fit did not have.

        Such tasks can then be personalised, and predicted where `unseen_task` allows it. Nothing
        is fitted again, and no budget spent: their rows of the basis follow from the covariates.

        Parameters
        ----------
        covariates : DataFrame or mapping
            As `relation`, with at least the columns of the fit.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Without a relation, where a column is missing, and for a category that no task of the
            fit has; a level of a factor may be new, and has the effect zero.
        """
        check_is_fitted(self)
        if all(getattr(self.billboard_, name, None) is None for name in ("relation", "above")):
            raise ValueError("This fit has no relation=, so that covariates of tasks mean nothing.")
        self.billboard_ = self.billboard_.with_covariates(covariates)
        return self

    def _has_mean(self):
        return not self.billboard_.has_one_mean or super()._has_mean()

    def _mean_models(self, unseen):
        """-> which of the models every unseen task has, these (n, n_outputs, d), and intercepts

        Raises
        ------
        ValueError
            For tasks of which the public covariates are not known.
        """
        coef, b = self.billboard_.without_rows(unseen)
        n = len(unseen)
        return np.arange(n), coef.reshape(n, -1, coef.shape[-1]), b.reshape(n, -1)

    def _row_scores(self, rows):
        return self._by_covariates(super()._row_scores(rows), rows)

    def _by_covariates(self, scores, rows):
        """The scores of rows, with those of tasks that were not fitted by their covariates."""
        if self.billboard_.has_one_mean or rows.unseen is None or not len(rows.unseen):
            return scores
        number, models, shift = self._mean_models(rows.unseen)
        new = np.flatnonzero(rows.codes < 0)
        which = number[-1 - rows.codes[new]]
        for g in np.unique(which):
            part = new[which == g]
            block = self._mean_scores(rows.features(part), models[g], shift[g])
            scores[part] = block if scores.ndim == 2 else block[:, 0]
        return scores

    def _mean_scores(self, X, coef, intercept):
        """Of rows of tasks without rows in the fit, whose mean model this is."""
        return X @ coef.T + intercept


class MTLRegressorMixin(Intervals, Scored, RegressorMixin):
    """Real targets: predict, and how sure that is."""

    # Whether a task weighs its rows for loss="huber", before anything else.
    _weighs_rows = True

    def _encode_target(self, table, classes=None):
        return DATAFITS[self.loss].targets(table, bounded=self._is_private()), None

    def _with_targets(self, table):
        table = super()._with_targets(table)
        if self.loss == "huber" and self._weighs_rows:
            return weighted(table, self.fit_intercept)
        return table

    def predict(
        self,
        X,
        task: ArrayLike | None = None,
        return_std: bool = False,
        *,
        level: Level = "task",
    ):
        """Predict targets; for counts their means, per unit of exposure.

        Parameters
        ----------
        X, task
            As in `fit`. With ``unseen_task="mean"`` rows may lack an id.
        return_std : bool, default=False
            Whether to return the standard deviation of the prediction of a target, too. It needs
            ``uncertainty=True``.
        level : {"task", "population"}, default="task"
            "population": by the pooled model, for known tasks as well, and without ids (``re.form
            = NA`` of lme4).

        Returns
        -------
        y : ndarray of shape (n_samples,), or (n_samples, n_tasks), or dict
            One value per row; after a fit with 2-D y, without task ids, one column per task
            in the order of the columns of y (tasks added later come last); for a mapping X,
            ``{task: array}``. With `return_std` a pair, (y, y_std), of which y_std has the form of
            y. It is infinite, with a warning, for tasks without rows, unless ``unseen_task="mean"``
            and levels were found, and for tasks that were fitted or added without `uncertainty`.

        Raises
        ------
        ValueError
            For `return_std` of an estimator without posterior, or at the level of the population;
            for ``level="population"`` of a fit without a pooled model.
        """
        if not return_std:
            return self._linear(X, task, DATAFITS[self.loss].mean, level)
        if level != "task":
            raise ValueError(f"return_std=True is of tasks: leave out level={level!r}.")
        rows, y, std, *_ = self._predictive(X, task)
        return rows.wrap(y), rows.wrap(std)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._is_private()
        known = isinstance(self.loss, str) and self.loss in DATAFITS  # tags are asked before `fit`
        tags.target_tags.positive_only = known and DATAFITS[self.loss].has_exposures
        return tags


class MTLClassifierMixin(Scored, ClassifierMixin):
    """The same classes for all tasks: decision_function, predict_proba, predict.

    Subclasses have the parameters `classes` and `class_weight`.
    """

    _classification = True
    # Whether labels are spread where a class is missing in a task, so that its intercept, which
    # has no penalty, stays finite; see `skpmtl.tables.targets.class_targets`.
    _spreads_labels = True
    classes: ArrayLike
    class_weight: ClassWeight
    # Whether there may be more than two classes; targets are then the numbers of the classes.
    _multiclass = False

    def _public_classes(self):
        """Sorted array of the parameter `classes`; None for "auto"."""
        return None if isinstance(self.classes, str) else public_classes(self.classes)

    def _label_names(self, classes):
        names = self._public_classes()
        return classes if names is None else names

    def _encode_target(self, table, classes=None):
        new = classes is None
        codes, classes = encode_labels(
            table, self._public_classes() if new else classes, positions=new
        )
        if len(classes) > 2 and not self._multiclass:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"there are more than two classes. {type(self).__name__} takes two; "
                f"{', '.join(_of_several_classes())} take more."
            )
        if len(classes) < 2:
            raise ValueError(
                "The targets contain only one class; a classifier needs two. If there are more "
                "than these rows show, list them: classes=[...]."
            )
        return codes, classes

    def _with_targets(self, table):
        spread = self._spreads_labels and self.fit_intercept
        y = class_targets(
            table.y, table.offsets, table.n_classes, spread=spread, support=table.support
        )
        return replace(table, y=y)

    def _keeps_class_posterior(self, table):
        asked = getattr(self, "uncertainty", False)
        return asked is not False and keeps_class_posterior(self, table)

    def decision_function(self, X, task: ArrayLike | None = None):
        """Log-odds of the second class; with more than two, one score for every class.

        Parameters
        ----------
        X, task
            As in `fit`.

        Returns
        -------
        scores : ndarray of shape (n_samples,), or (n_samples, n_tasks), or dict
            In the form of the predictions of `predict`, with one more dimension of length
            n_classes when there are more than two.
        """
        return self._linear(X, task)

    def predict(self, X, task: ArrayLike | None = None, *, level: Level = "task"):
        """Predict classes.

        Parameters
        ----------
        X, task
            As in `fit`.
        level : {"task", "population"}, default="task"
            "population": by the pooled model, for known tasks as well, and without ids.

        Returns
        -------
        y : ndarray of shape (n_samples,), or (n_samples, n_tasks), or dict
            One class per row; after a fit with 2-D y, without task ids, one column per task in
            the order of the columns of y (tasks added later come last); for a mapping X,
            ``{task: array}``.
        """

        def decide(score):
            binary = len(self.classes_) == 2
            return self.classes_[(score > 0).astype(int) if binary else score.argmax(axis=-1)]

        return self._linear(X, task, decide, level)

    def predict_proba(self, X, task: ArrayLike | None = None, *, level: Level = "task"):
        """Probabilities of the classes, averaged over the posterior of each task's model.

        With `uncertainty` a score of mean eta and variance v gives the probabilities of
        ``eta / sqrt(1 + pi v / 8)`` (MacKay), so that they are nearer to each other where a task
        knows little. `decision_function` has the scores of the model itself, whose order of the
        rows may differ. The class that `predict` gives has the highest probability, if need be by
        rounding.

        Parameters
        ----------
        X, task
            As in `fit`.
        level : {"task", "population"}, default="task"
            "population": by the pooled model, for known tasks as well, and without ids.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes), or (n_samples, n_tasks), or dict
            Columns in the order of `classes_`. After a fit with 2-D y, without task ids: the
            probability of the second of two classes for every task, or (n_samples, n_tasks,
            n_classes).
        """

        def probabilities(score):
            if len(self.classes_) > 2:
                p = np.exp(score - score.max(axis=-1, keepdims=True))
                return p / p.sum(axis=-1, keepdims=True)
            second = 0.5 * (1.0 + np.tanh(0.5 * score))  # does not overflow
            return second if second.ndim == 2 else np.column_stack([1.0 - second, second])

        if level != "task":
            return self._linear(X, task, probabilities, level)
        return averaged(self, X, task, probabilities)

    def predict_log_proba(self, X, task: ArrayLike | None = None):
        """Logarithms of the probabilities of the classes, finite also where these are 0.

        Parameters
        ----------
        X, task
            As in `fit`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes), or (n_samples, n_tasks), or dict
            As `predict_proba`.
        """

        def logarithms(score):
            if len(self.classes_) > 2:
                return log_softmax(score, axis=-1)
            second = log_expit(score)
            return second if second.ndim == 2 else np.column_stack([log_expit(-score), second])

        return averaged(self, X, task, logarithms)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multiclass
        tags.classifier_tags.multi_label = False
        tags.classifier_tags.poor_score = self._is_private()
        return tags


def _of_several_classes():
    """Names of the front door's classifiers that take more than two classes, without networks."""
    names, waiting = set(), MTLClassifierMixin.__subclasses__()
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        package, room = cls.__module__.split(".")[:2]
        own = package == __name__.partition(".")[0] and room not in ("networks", "course")
        if own and cls._multiclass and not cls.__name__.startswith("_"):
            names.add(cls.__name__)
    return sorted(names)


def merged_tasks(n_tasks, here, personal, away, models):
    """`Personal` of all tasks: of some with rows, and models of others without."""
    pairs = zip(personal[:2], models, strict=True)
    coef, intercept = (merge_rows(n_tasks, here, own, away, other) for own, other in pairs)
    extras = {
        name: merge_rows(n_tasks, here, values, away, value_without_rows(name))
        for name, values in personal.extras.items()
    }
    return Personal(coef, intercept, extras)


def merge_rows(n_rows, *pairs):
    """Array of `n_rows` with `values` at `positions`, for position, values, position, values."""
    shape = max((np.shape(values)[1:] for values in pairs[1::2]), key=len)
    kinds = [values.dtype for values in pairs[1::2] if isinstance(values, np.ndarray)]
    whole = np.empty((n_rows, *shape), dtype=object if object in kinds else float)
    for positions, values in zip(pairs[::2], pairs[1::2], strict=True):
        whole[positions] = values
    return whole
