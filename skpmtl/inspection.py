"""Displays of trade-offs, effects and models; summaries."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from scipy.stats import t as student_t
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ._display.importances import column_importances
from ._display.summary import Summary, compare_summaries
from ._runtime.hints import Self
from ._runtime.stack import users_line
from .privacy.report import PrivacyLeakWarning
from .tables.forms import feature_names
from .tables.ids import listed

if TYPE_CHECKING:
    from .model_protected.paths import MTLPath

__all__ = [
    "ClientSimilarityDisplay",
    "EffectsDisplay",
    "PathDisplay",
    "PrivacyUtilityDisplay",
    "RelationDisplay",
    "Summary",
    "TaskIntervalDisplay",
    "TaskRelatednessDisplay",
    "column_importances",
    "compare_summaries",
]
__dir__ = __all__.copy


class _Display:
    """A display that draws curves or points on one or several axes."""

    def _draw(self, ax, kwargs):
        """-> axes, or an array of them; subclasses say what is drawn"""
        raise NotImplementedError

    def plot(self, ax=None, **kwargs) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of them, default=None
            One for every curve or panel; None makes a figure.
        **kwargs : dict
            Keywords for the :meth:`matplotlib.axes.Axes.plot` or
            :meth:`matplotlib.axes.Axes.errorbar` of every curve or panel.

        Returns
        -------
        display : self
            This display, with its attributes set.
        """
        drawn = self._draw(ax, kwargs)
        if isinstance(drawn, np.ndarray):
            self.axes_, self.figure_ = drawn, drawn[0].figure
        else:
            self.ax_, self.figure_ = drawn, drawn.figure
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class PathDisplay(_Display):
    """Models for many strengths of a penalty: their norms, rank or number of features, and error.

    Create it with :meth:`from_estimator` or :meth:`from_path`.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,)
        Strengths, positive.
    errors : array-like of shape (n_alphas, n_folds), default=None
        Validated error of every fold; None: not drawn.
    norms : array-like of shape (n_alphas, n_tasks), default=None
        Length of every task's coefficients; None: not drawn.
    sizes : array-like of shape (n_alphas,), default=None
        Rank of all coefficients, or number of features in use; None: not drawn.
    chosen : float, default=None
        Strength that was chosen, for a vertical line.
    error_name, size_name : str
        Labels of the axes.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for every curve, from top to bottom: norms, sizes, errors.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from skpmtl.inspection import PathDisplay
    >>> display = PathDisplay(alphas=[1, 0.3, 0.1], sizes=[0, 1, 3], size_name="rank").plot()
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['rank']
    """

    alphas: ArrayLike
    errors: ArrayLike | None = None
    norms: ArrayLike | None = None
    sizes: ArrayLike | None = None
    chosen: float | None = None
    error_name: str = "validated error"
    size_name: str = "size"

    def _draw(self, ax, kwargs):
        alphas = np.asarray(self.alphas, dtype=np.float64)
        if alphas.ndim != 1 or not (alphas > 0).all():
            raise ValueError("alphas must be positive, one number per strength.")
        curves = {
            "norm of coefficients": self.norms,
            self.size_name: self.sizes,
            self.error_name: self.errors,
        }
        curves = {name: np.asarray(v, np.float64) for name, v in curves.items() if v is not None}
        if not curves or any(v.shape[:1] != alphas.shape for v in curves.values()):
            shapes = {name: v.shape for name, v in curves.items()}
            raise ValueError(
                f"The curves need one row for each of {len(alphas)} alphas, but have the shapes "
                f"{shapes}."
            )
        axes = _stacked(ax, curves)
        for axis, values in zip(axes, curves.values(), strict=True):
            if values.ndim == 2:  # tasks or folds, and what they are on average
                axis.plot(alphas, values, **{"color": "C0", "alpha": 0.3, "lw": 0.7, **kwargs})
                values = values.mean(axis=1)
            axis.plot(alphas, values, **{"color": "C1", **kwargs})
            if self.chosen is not None:
                axis.axvline(self.chosen, color="black", linestyle=":")
            axis.set_xscale("log")
        if not axes[-1].xaxis_inverted():
            axes[-1].invert_xaxis()  # as the path goes
        axes[-1].set_xlabel("alpha")
        return axes

    @classmethod
    def from_path(cls, path: "MTLPath", *, ax=None, **kwargs) -> Self:
        """Draw what :func:`skpmtl.mtl_path` returned.

        Parameters
        ----------
        path : MTLPath
            With the trace norm the rank of all coefficients is drawn, else features in use.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : PathDisplay
        """
        return cls(alphas=path.alphas, **_of_path(path)).plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator, path: "MTLPath | None" = None, *, ax=None, **kwargs) -> Self:
        """Draw the validated errors of a fitted estimator that chose its strength.

        Parameters
        ----------
        estimator : MPMTLLowRankCV, MPMTLGroupSparseCV or one of their classifiers
            Fitted.
        path : MTLPath, default=None
            Models of the same strengths, ``mtl_path(X, y, task, alphas=estimator.alphas_)``, for
            their norms and sizes.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : PathDisplay
        """
        check_is_fitted(estimator)
        errors = getattr(estimator, "mse_path_", getattr(estimator, "log_loss_path_", None))
        if errors is None:
            raise TypeError(
                f"{type(estimator).__name__} has no path of errors: pass a fitted MPMTLLowRankCV, "
                "MPMTLGroupSparseCV or one of their classifiers, or a path to from_path."
            )
        name = "log loss" if is_classifier(estimator) else "mean squared error"
        display = cls(
            alphas=estimator.alphas_,
            errors=errors,
            chosen=estimator.alpha_,
            error_name=name,
            **({} if path is None else _of_path(path)),
        )
        return display.plot(ax=ax, **kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay:
    """Error, or accuracy, against the privacy budget.

    The private method is a line over epsilon with error bars, methods without a budget are
    horizontal lines. Create it from scores, or with :meth:`from_predictions`.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Privacy budgets, positive and finite.
    scores : array-like of shape (n_epsilons, n_repeats)
        Score of every repeat at every budget.
    baselines : mapping of str to array-like of shape (n_repeats,), default=None
        Scores of methods that have no budget, by name.
    score_name : str, default=None
        What the scores are; the label of the vertical axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    errorbar_ : matplotlib ErrorbarContainer
        The private method: means over the repeats, bars of one standard deviation.
    baseline_lines_ : list of matplotlib Line2D
        The baselines' means, in the order of `baselines`.

    Examples
    --------
    >>> from skpmtl.inspection import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay(
    ...     epsilons=[0.1, 1, 10],
    ...     scores=[[0.72, 0.73], [0.66, 0.67], [0.65, 0.65]],
    ...     baselines={"each task alone": [0.72, 0.71]},
    ...     score_name="normalised MSE",
    ... )
    >>> display.plot().ax_.get_ylabel()
    'normalised MSE'
    """

    epsilons: ArrayLike
    scores: ArrayLike
    baselines: Mapping | None = None
    score_name: str | None = None

    def plot(
        self,
        ax=None,
        *,
        name: str = "private",
        errorbar_kw: dict | None = None,
        baseline_kw: dict | None = None,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.
        name : str, default="private"
            Label of the private method.
        errorbar_kw : dict, default=None
            Keywords for :meth:`matplotlib.axes.Axes.errorbar`.
        baseline_kw : dict, default=None
            Keywords for the :meth:`matplotlib.axes.Axes.axhline` of every baseline.

        Returns
        -------
        display : self
            This display, with its attributes set.
        """
        epsilons, scores = self._checked()
        if ax is None:
            _, ax = _pyplot().subplots()
        order = np.argsort(epsilons)
        # One repeat has no spread, and a bar of length zero would claim certainty.
        spread = scores.std(axis=1, ddof=1) if scores.shape[1] > 1 else None
        self.errorbar_ = ax.errorbar(
            epsilons[order],
            scores.mean(axis=1)[order],
            yerr=None if spread is None else spread[order],
            **{"marker": "o", "capsize": 3, "label": name, **(errorbar_kw or {})},
        )
        self.baseline_lines_ = []
        styles = ("--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
        for position, (label, values) in enumerate((self.baselines or {}).items()):
            look = {
                "color": f"C{position + 1}",
                "linestyle": styles[position % len(styles)],
                "label": label,
                **(baseline_kw or {}),
            }
            self.baseline_lines_.append(ax.axhline(np.mean(values), **look))
        ax.set_xscale("log")
        ax.set_xticks(epsilons[order], [f"{value:g}" for value in epsilons[order]])
        ax.minorticks_off()
        ax.set_xlabel("epsilon (privacy budget of each task)")
        if self.score_name is not None:
            ax.set_ylabel(self.score_name)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _checked(self):
        epsilons = np.asarray(self.epsilons, dtype=np.float64)
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 2 or epsilons.shape != scores.shape[:1]:
            raise ValueError(
                f"scores of shape {scores.shape} do not fit epsilons of shape "
                f"{epsilons.shape}; give one row per epsilon, one column per repeat."
            )
        if not np.all((epsilons > 0) & np.isfinite(epsilons)):
            raise ValueError(
                f"epsilons={epsilons.tolist()} must be positive and finite; a fit without "
                "privacy belongs into baselines."
            )
        return epsilons, scores

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: Mapping,
        *,
        metric: Callable | None = None,
        baselines: Mapping | None = None,
        score_name: str | None = None,
        ax=None,
        **kwargs,
    ) -> Self:
        """Score predictions and draw the display.

        Parameters
        ----------
        y_true : sequence of array-like, one per repeat
            Targets of the test rows of every repeat.
        y_pred : mapping of float to sequence of array-like
            Predictions for the same rows by epsilon, one array per repeat.
        metric : callable, default=None
            ``metric(y_true, y_pred) -> float``; None is :func:`skpmtl.metrics.nmse`.
        baselines : mapping of str to sequence of array-like, default=None
            Predictions of methods without a budget by name, one array per repeat.
        score_name : str, default=None
            Label of the vertical axis; None is the metric's name.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay
        """
        if metric is None:
            from .metrics import nmse

            metric = nmse

        def score(predictions):
            return [metric(*pair) for pair in zip(y_true, predictions, strict=True)]

        display = cls(
            epsilons=list(y_pred),
            scores=[score(predictions) for predictions in y_pred.values()],
            baselines={name: score(p) for name, p in (baselines or {}).items()},
            score_name=metric.__name__ if score_name is None else score_name,
        )
        return display.plot(ax=ax, **kwargs)


class _HeatMapDisplay:
    """Square matrix with names; subclasses say what it holds and how it looks."""

    outlier: ArrayLike | None = None  # numbers that are written next to the names of the rows
    _look: ClassVar[dict]  # keywords of imshow
    _axes: ClassVar[tuple[str, str]]

    def _content(self):
        """-> matrix, names or None, label of the colours"""
        raise NotImplementedError

    def plot(
        self,
        ax=None,
        *,
        order: ArrayLike | str | None = None,
        colorbar: bool = True,
        im_kw: dict | None = None,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.
        order : array-like of int or str, default=None
            Rows to show, in this order: positions from 0, or names as strings; None shows all
            as they come.
        colorbar : bool, default=True
            Whether to add a colour bar.
        im_kw : dict, default=None
            Keywords for :meth:`matplotlib.axes.Axes.imshow`.

        Returns
        -------
        display : self
            This display, with its attributes set.

        Raises
        ------
        ValueError
            If `order` has a position or a name that is not there.
        """
        matrix, names, label = self._content()
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"A matrix of shape {matrix.shape} is not square.")
        names = np.arange(len(matrix)) if names is None else np.asarray(names)
        if names.shape != matrix.shape[:1]:
            raise ValueError(f"{len(names)} names do not fit a matrix of shape {matrix.shape}.")
        order = np.arange(len(names)) if order is None else _positions(order, names)
        if ax is None:
            _, ax = _pyplot().subplots()
        self.image_ = ax.imshow(matrix[np.ix_(order, order)], **{**self._look, **(im_kw or {})})
        ticks = np.arange(0, len(order), -(-len(order) // _MOST_LABELS))
        shown = order[ticks]
        labels = rows = [str(name) for name in names[shown]]
        if self.outlier is not None:
            far = np.asarray(self.outlier)[shown]
            rows = [f"{label} ({value:.2g})" for label, value in zip(labels, far, strict=True)]
        ax.set_xticks(ticks, labels, rotation=90)
        ax.set_yticks(ticks, rows)
        if colorbar:
            ax.figure.colorbar(self.image_, ax=ax, label=label)
        ax.set(xlabel=self._axes[0], ylabel=self._axes[1])
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class ClientSimilarityDisplay(_HeatMapDisplay):
    """Heat map of the similarities between federated clients.

    Row i holds the weights with which client i averages the other clients, before thresholds and
    numbers of rows; it need not be symmetric. Create it from a matrix, or with
    :meth:`from_estimator`.

    Parameters
    ----------
    similarity : array-like of shape (n_clients, n_clients)
        Similarities, usually 0 to 1.
    clients : array-like of shape (n_clients,), default=None
        Names of the clients; None numbers them from 0.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    image_ : matplotlib AxesImage
        The heat map.

    Examples
    --------
    >>> from skpmtl.inspection import ClientSimilarityDisplay
    >>> display = ClientSimilarityDisplay(similarity=[[1, 0.4], [0.8, 1]], clients=["a", "b"])
    >>> [text.get_text() for text in display.plot().ax_.get_yticklabels()]
    ['a', 'b']
    """

    _look = {"vmin": 0.0, "vmax": 1.0, "cmap": "viridis"}
    _axes = "client", "client that takes"

    similarity: ArrayLike
    clients: ArrayLike | None = None

    def _content(self):
        return self.similarity, self.clients, "similarity"

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs) -> Self:
        """Draw the similarities of the last round of a fit.

        Parameters
        ----------
        estimator : FedMTLClassifier or FedMTLRegressor
            Fitted, in the clear: with ``secure=True`` the similarities stay secret.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : ClientSimilarityDisplay
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "similarity_"):
            raise TypeError(
                f"{type(estimator).__name__} has no similarity_ of clients: pass a fitted FedMTL."
            )
        if estimator.similarity_ is None:
            raise ValueError(
                "After a fit with secure=True the similarities are secret: fit with secure=False."
            )
        display = cls(similarity=estimator.similarity_, clients=estimator.clients_)
        return display.plot(ax=ax, **kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class RelationDisplay(_Display):
    """Effects of public task covariates on the coefficients, with the noise of the release.

    One panel per covariate, one point per feature: the change of the coefficients of a task when
    the covariate grows by one. Everything drawn is part of the billboard and may be published.
    Create it with :meth:`from_estimator`.

    Parameters
    ----------
    coef : array-like of shape (n_covariates, n_features)
        `relation_coef_` of an estimator, or some of its rows.
    noise_std : array-like of shape (n_covariates,) or (n_covariates, n_features), default=None
        Standard deviation of the noise in each row; None draws no bars.
    covariates : sequence of str, default=None
        Names of the covariates; None numbers them.
    features : sequence of str, default=None
        Names of the features; None numbers them.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for every covariate, from left to right.
    figure_ : matplotlib Figure
    errorbars_ : list of matplotlib ErrorbarContainer
        Points with bars of two standard deviations of the noise, in the order of `axes_`.

    Examples
    --------
    >>> from skpmtl.inspection import RelationDisplay
    >>> display = RelationDisplay(
    ...     coef=[[1.0, 0.2], [0.3, -0.1]],
    ...     noise_std=[0.1, 0.2],
    ...     covariates=["constant", "urban"],
    ... ).plot()
    >>> [ax.get_title() for ax in display.axes_]
    ['constant', 'urban']
    """

    coef: ArrayLike
    noise_std: ArrayLike | None = None
    covariates: ArrayLike | None = None
    features: ArrayLike | None = None

    def _draw(self, ax, kwargs):
        coef = np.asarray(self.coef, dtype=np.float64)
        if coef.ndim != 2:
            raise ValueError(
                f"coef has the shape {coef.shape}, not (n_covariates, n_features): of several "
                "classes draw one at a time, RelationDisplay(coef=est.relation_coef_[:, c], ...)."
            )
        r, d = coef.shape
        names = [str(j) for j in range(r)] if self.covariates is None else list(self.covariates)
        features = [str(j) for j in range(d)] if self.features is None else list(self.features)
        std = None if self.noise_std is None else np.asarray(self.noise_std, dtype=np.float64)
        shapes = (r,), (r, d)
        if len(names) != r or len(features) != d or (std is not None and std.shape not in shapes):
            raise ValueError(
                f"coef has {r} covariates and {d} features: give as many names, and one noise_std "
                "for every covariate, or for every number."
            )
        axes, self.errorbars_ = _panels(ax, names, features, "covariates"), []
        for j, axis in enumerate(axes):
            look = {**_POINTS, "capsize": 2, **kwargs}
            bars = None if std is None else np.broadcast_to(2.0 * std[j], d)
            self.errorbars_.append(axis.errorbar(coef[j], np.arange(d), xerr=bars, **look))
        axes[0].figure.supxlabel("what one more adds to the coefficient")
        return axes

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs) -> Self:
        """Read the coefficients of the covariates of a fitted estimator and draw the display.

        Parameters
        ----------
        estimator : PrivateMeanRegMTL, or another estimator with `relation`
            Fitted with covariates of its tasks.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : RelationDisplay
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "relation_coef_"):
            raise TypeError(
                f"{type(estimator).__name__} was not fitted with covariates of its tasks: pass "
                "relation= (of a Pipeline take its last step)."
            )
        names = feature_names(estimator)
        display = cls(
            coef=estimator.relation_coef_,
            noise_std=getattr(estimator, "relation_noise_std_", None),
            covariates=estimator.billboard_.relation.names,
            features=names,
        )
        return display.plot(ax=ax, **kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class EffectsDisplay(_Display):
    """Effects that all tasks share, with intervals by their standard errors.

    One point per coefficient. Errors hold differences between tasks and the noise of the budget.
    Everything drawn was released and may be published. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    effects : DataFrame
        ``summary().effects_frame()`` of an estimator, or some of its rows.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for every panel, from left to right.
    figure_ : matplotlib Figure
    errorbars_ : list of matplotlib ErrorbarContainer
        Points with their intervals, in the order of `axes_`.

    See Also
    --------
    RelationDisplay : Effects of covariates of a fit without standard errors.

    Examples
    --------
    >>> import pandas as pd
    >>> from skpmtl.inspection import EffectsDisplay
    >>> effects = pd.DataFrame(
    ...     {"effect": [0.5, 0.1], "lower": [0.3, -0.1], "upper": [0.7, 0.3]},
    ...     index=["age", "size"],
    ... )
    >>> display = EffectsDisplay(effects=effects).plot()
    >>> [label.get_text() for label in display.axes_[0].get_yticklabels()]
    ['age', 'size']
    """

    effects: Any

    def _draw(self, ax, kwargs):
        if not np.isfinite(self.effects.to_numpy(dtype=np.float64)).all():
            raise ValueError("Some effects have no standard error: leave their rows out.")
        outer = list(range(self.effects.index.nlevels - 1))
        groups = [("shared model", self.effects)]
        if outer:  # pandas 2 warns about a list of one level
            level = outer if len(outer) > 1 else outer[0]
            groups = list(self.effects.groupby(level=level, sort=False))
        titles = [", ".join(map(str, np.atleast_1d(np.array(name, object)))) for name, _ in groups]
        features = [str(name) for name in groups[0][1].index.get_level_values(-1)]
        axes = _panels(ax, titles, features, "panels")
        self.errorbars_, at = [], np.arange(len(features))
        for axis, (_, part) in zip(axes, groups, strict=True):
            effect, reach = part["effect"], part["upper"] - part["effect"]
            bars = axis.errorbar(effect, at, xerr=reach, label="interval", **{**_POINTS, **kwargs})
            self.errorbars_.append(bars)
        if ax is None:
            names = axes[-1].get_legend_handles_labels()
            axes[-1].figure.legend(*names, loc="outside lower center", ncols=2)
        else:
            axes[-1].legend()
        return axes

    @classmethod
    def from_estimator(cls, estimator, *, coverage: float = 0.9, ax=None, **kwargs) -> Self:
        """Read the standard errors of a fitted estimator and draw the display.

        Parameters
        ----------
        estimator : PrivateMTL or PrivateMeanRegMTL
            Fitted with ``standard_errors=True``.
        coverage : float, default=0.9
            Of the intervals, in (0, 1).
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : EffectsDisplay

        Raises
        ------
        TypeError
            For estimators that have no standard errors.
        ValueError
            For a fit without ``standard_errors=True``, or where none could be released.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "standard_errors"):
            raise TypeError(
                f"{type(estimator).__name__} has no standard errors: pass a PrivateMTL with "
                "standard_errors=True (of a Pipeline take its last step)."
            )
        if not hasattr(estimator, "effect_std_"):
            raise ValueError(
                "This fit has no standard errors: refit with standard_errors=True, or with a "
                "larger budget."
            )
        effects = estimator.summary(coverage).effects_frame().iloc[:-1]  # of slopes
        return cls(effects=effects).plot(ax=ax, **kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class TaskIntervalDisplay(_Display):
    """Caterpillar plot: one interval per task, in the order of the estimates.

    Coefficients, or predictions for one row, with the errors of their task's model. The picture
    shows private values of every task drawn. It is for the holder of these models, such as one
    task, or a curator that has all rows anyway; do not publish it. Create it with
    :meth:`from_estimator`.

    Parameters
    ----------
    estimate : array-like of shape (n_tasks,)
        Posterior means.
    reach : array-like of shape (n_tasks,)
        Half-widths of the intervals. Of tasks where it is not finite only the estimate is drawn.
    tasks : array-like of shape (n_tasks,), default=None
        Names of the tasks; None numbers them from 0.
    name : str, default=None
        What is estimated; the label of the axis.
    reference : float, default=None
        Value of the shared model, which is drawn as a line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    errorbar_ : matplotlib ErrorbarContainer
        Estimates with their intervals, from the lowest.

    Examples
    --------
    >>> from skpmtl.inspection import TaskIntervalDisplay
    >>> display = TaskIntervalDisplay(
    ...     estimate=[0.3, -0.1, 0.2], reach=[0.2, 0.1, 0.4], tasks=["a", "b", "c"]
    ... ).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['b', 'c', 'a']
    """

    estimate: ArrayLike
    reach: ArrayLike
    tasks: ArrayLike | None = None
    name: str | None = None
    reference: float | None = None

    def _draw(self, ax, kwargs):
        estimate = np.asarray(self.estimate, dtype=np.float64)
        reach = np.asarray(self.reach, dtype=np.float64)
        tasks = np.arange(len(estimate)) if self.tasks is None else np.asarray(self.tasks)
        if estimate.ndim != 1 or estimate.shape != reach.shape or tasks.shape != estimate.shape:
            raise ValueError(
                "estimate, reach and tasks need one entry per task, but have the shapes "
                f"{[estimate.shape, reach.shape, tasks.shape]}."
            )
        order = np.argsort(estimate, kind="stable")
        at, reach = np.arange(len(order)), np.where(np.isfinite(reach), reach, np.nan)[order]
        if ax is None:
            height = min(1.2 + 0.2 * len(order), 9.0)
            _, ax = _pyplot().subplots(figsize=(5.0, height), layout="constrained")
        if self.reference is not None:
            ax.axvline(self.reference, color="0.7", linewidth=1, zorder=0)
        self.errorbar_ = ax.errorbar(estimate[order], at, xerr=reach, **{**_POINTS, **kwargs})
        fitting = int(ax.bbox.height / ax.figure.dpi / _INCHES_OF_LABEL)
        some = at[:: -(-len(at) // max(min(fitting, _MOST_CATERPILLAR_LABELS), 1))]
        ax.set_yticks(some, [str(name) for name in tasks[order[some]]])
        ax.set_xlabel("estimate" if self.name is None else self.name)
        ax.set_ylabel("task")
        return ax

    @classmethod
    def from_estimator(
        cls,
        estimator,
        coef: str | int = "intercept",
        *,
        x: ArrayLike | None = None,
        tasks: ArrayLike | str | None = None,
        coverage: float = 0.9,
        ax=None,
        **kwargs,
    ) -> Self:
        """Read coefficients of the tasks of a fitted estimator and draw the display.

        After a fit that protects what the tasks share, and not their own models, a
        `PrivacyLeakWarning` says that the picture is made of these models.

        Parameters
        ----------
        estimator : estimator
            Fitted with ``uncertainty``: with `covariance_` of the tasks.
        coef : str or int, default="intercept"
            Coefficient to draw: "intercept", a name in ``coef_names_``, or a position.
        x : array-like of shape (n_features,), default=None
            Row, in the order of ``coef_names_``, at which to draw the expected target (for
            classifiers: the log-odds) of every task in place of a coefficient. The noise of a
            new target is not part of the interval; see ``predict_interval``.
        tasks : array-like of int or str, default=None
            Tasks to draw: positions in ``tasks_``, or names as strings; None draws all.
        coverage : float, default=0.9
            Of the intervals, in (0, 1).
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : TaskIntervalDisplay

        Raises
        ------
        ValueError
            For a fit without posterior or of more than two classes, and for a coefficient, a
            task, a row or a coverage that does not fit.

        Warns
        -----
        PrivacyLeakWarning
            After a fit whose guarantee does not cover the models of tasks together.
        """
        check_is_fitted(estimator)
        if getattr(estimator, "covariance_", np.empty(0)).ndim != 3:
            raise ValueError(
                f"This {type(estimator).__name__} keeps no covariances of one output: fit it with "
                "uncertainty=True, with two classes at most (of a Pipeline take its last step)."
            )
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage={coverage!r} must be a number in (0, 1), such as 0.9.")
        known = np.asarray(estimator.tasks_)
        some = np.arange(len(known)) if tasks is None else _positions(tasks, known, "tasks")
        names = list(estimator.coef_names_)
        z, name = _direction(coef, names), coef if isinstance(coef, str) else names[coef]
        if x is not None:
            z, name = np.append(np.asarray(x, dtype=np.float64).ravel(), 1.0), "score at x"
            if len(z) != len(names) + 1 or not np.isfinite(z).all():
                raise ValueError(f"x must be {len(names)} finite numbers, one for each feature.")
        _warn_of_models(estimator)
        model = np.column_stack([estimator.coef_, estimator.intercept_])
        covariance = estimator.covariance_[some]
        good = np.isfinite(covariance).all(axis=(1, 2))
        std = np.sqrt(np.maximum(np.where(good[:, None, None], covariance, 0.0) @ z @ z, 0.0))
        quantile = norm.ppf(0.5 * (1.0 + coverage))
        if not is_classifier(estimator):
            dof = np.where(good, estimator.dof_[some], 3.0)
            quantile = student_t.ppf(0.5 * (1.0 + coverage), dof) * np.sqrt((dof - 2.0) / dof)
        shared = np.full(len(z), np.nan)
        shared[:-1] = getattr(estimator, "mean_coef_", np.nan)
        shared[-1] = getattr(estimator, "mean_intercept_", getattr(estimator, "level_", np.nan))
        reference = float(shared[z != 0.0] @ z[z != 0.0])
        display = cls(
            estimate=model[some] @ z,
            reach=np.where(good, quantile * std, np.inf),
            tasks=known[some],
            name=name,
            reference=reference if np.isfinite(reference) else None,
        )
        return display.plot(ax=ax, **kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class TaskRelatednessDisplay(_HeatMapDisplay):
    """Heat map of the relatedness of the tasks' linear models.

    Create it from a matrix, from coefficients with :meth:`from_coef`, or with
    :meth:`from_estimator`.

    Parameters
    ----------
    relatedness : array-like of shape (n_tasks, n_tasks)
        Relatedness, -1 to 1.
    tasks : array-like of shape (n_tasks,), default=None
        Names of the tasks; None numbers them from 0.
    measure : str, default="relatedness"
        What the numbers are; the label of the colour bar.
    outlier : array-like of shape (n_tasks,), default=None
        `outlier_` of the tasks, written next to the names of the rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    image_ : matplotlib AxesImage
        The heat map.

    Examples
    --------
    >>> from skpmtl.inspection import TaskRelatednessDisplay
    >>> display = TaskRelatednessDisplay.from_coef([[1, 2, 3], [2, 4, 6], [3, 2, 1]])
    >>> display.relatedness.round(6).tolist()
    [[1.0, 1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]]
    """

    _look = {"vmin": -1.0, "vmax": 1.0, "cmap": "RdBu_r"}
    _axes = "task", "task"

    relatedness: ArrayLike
    tasks: ArrayLike | None = None
    measure: str = "relatedness"
    outlier: ArrayLike | None = None

    def _content(self):
        return self.relatedness, self.tasks, self.measure

    @classmethod
    def from_coef(
        cls,
        coef,
        *,
        tasks: ArrayLike | None = None,
        measure: Literal["correlation", "cosine"] = "correlation",
        outlier: ArrayLike | None = None,
        ax=None,
        **kwargs,
    ) -> Self:
        """Compare the rows of a matrix of coefficients and draw the display.

        Parameters
        ----------
        coef : array-like of shape (n_tasks, n_features) or (n_tasks, n_classes, n_features)
            One linear model per task.
        tasks : array-like of shape (n_tasks,), default=None
            Names of the tasks; None numbers them from 0.
        measure : {"correlation", "cosine"}, default="correlation"
            Correlation of two tasks' coefficients over the features, or their cosine, which
            does not subtract a task's mean coefficient. A task whose coefficients are all
            equal (for "cosine": all zero) has relatedness 0 to the others. Two coefficients
            always have correlation 1 or -1, which a warning says.
        outlier : array-like of shape (n_tasks,), default=None
            As of the class.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : TaskRelatednessDisplay
        """
        if measure not in ("correlation", "cosine"):
            raise ValueError(f'measure={measure!r} must be "correlation" or "cosine".')
        coef = np.asarray(coef, dtype=np.float64)
        if coef.ndim not in (2, 3):
            raise ValueError(f"coef of shape {coef.shape} must have one row per task.")
        rows = coef.reshape(len(coef), -1)
        scale = np.linalg.norm(rows, axis=1)
        if measure == "correlation":
            if rows.shape[1] <= 2:
                warnings.warn(
                    f"With {rows.shape[1]} coefficient(s) per task a correlation is 1, -1 or "
                    'nothing, whatever the tasks are: use measure="cosine".',
                    stacklevel=users_line(),
                )
            rows = rows - rows.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(rows, axis=1)
        flat = norms <= 1e-12 * scale  # equal up to rounding
        rows = np.where(flat[:, None], 0.0, rows / np.where(flat, 1.0, norms)[:, None])
        relatedness = np.clip(rows @ rows.T, -1.0, 1.0)
        np.fill_diagonal(relatedness, 1.0)
        display = cls(relatedness=relatedness, tasks=tasks, measure=measure, outlier=outlier)
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        measure: Literal["correlation", "cosine"] = "correlation",
        ax=None,
        **kwargs,
    ) -> Self:
        """Compare the models of a fitted estimator and draw the display.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `coef_` and `tasks_`; `outlier_` of a fit with `outliers` is written
            next to the tasks. After a fit that protects what the tasks share,
            and not their own models, a `PrivacyLeakWarning` says that the picture is made of
            all these models together.
        measure : {"correlation", "cosine"}, default="correlation"
            As in :meth:`from_coef`.
        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : TaskRelatednessDisplay
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "coef_"):
            raise TypeError(
                f"{type(estimator).__name__} has no coef_ to compare. Give from_coef an array "
                "with one row per task."
            )
        _warn_of_models(estimator)
        return cls.from_coef(
            estimator.coef_,
            tasks=estimator.tasks_,
            measure=measure,
            outlier=getattr(estimator, "outlier_", None),
            ax=ax,
            **kwargs,
        )


def _warn_of_models(estimator):
    guarantee = getattr(getattr(estimator, "privacy_", None), "guarantee", "none")
    # Of the other guarantees only what the tasks share is covered, not their own models.
    if guarantee not in ("none", "task DP", "record DP"):
        warnings.warn(
            "The picture compares the models that all tasks made from their own rows; the "
            f'guarantee of this fit ("{guarantee}") does not cover them together. Show it '
            "only to those who may see all rows.",
            PrivacyLeakWarning,
            stacklevel=users_line(),
        )


def _of_path(path):
    """Norms of the tasks' coefficients and sizes along a path."""
    coefs = path.coefs.reshape(len(path.alphas), len(path.tasks), -1)
    rows = path.coefs.reshape(len(path.alphas), -1, path.coefs.shape[-1])
    if path.penalty == "trace":
        values = np.linalg.svd(rows, compute_uv=False)
        name, sizes = "rank", (values > 1e-6 * values[:, :1]).sum(axis=1)
    else:
        name, sizes = "features in use", rows.any(axis=1).sum(axis=1)
    return {"norms": np.linalg.norm(coefs, axis=2), "sizes": sizes, "size_name": name}


_MOST_LABELS = 25  # on an axis; more would overlap
_MOST_CATERPILLAR_LABELS, _INCHES_OF_LABEL = 40, 0.15
_POINTS = {"fmt": "o", "markersize": 4}


def _stacked(ax, curves):
    """Axes from top to bottom, one per curve, with their names."""
    if ax is None:
        _, ax = _pyplot().subplots(len(curves), sharex=True)
    axes = np.atleast_1d(ax).ravel()
    if len(axes) != len(curves):
        raise ValueError(f"ax has {len(axes)} axes for the curves {list(curves)}.")
    for axis, name in zip(axes, curves, strict=True):
        axis.set_ylabel(name)
    return axes


def _panels(ax, titles, features, what):
    """Axes from left to right, one per title, with the features from top to bottom."""
    r, d = len(titles), len(features)
    if ax is None:
        size = 2.0 + 2.0 * r, 1.2 + 0.25 * d
        _, ax = _pyplot().subplots(1, r, sharey=True, figsize=size, layout="constrained")
    axes = np.atleast_1d(ax).ravel()
    if len(axes) != r:
        raise ValueError(f"ax has {len(axes)} axes for {r} {what}.")
    for axis, title in zip(axes, titles, strict=True):
        axis.axvline(0.0, color="0.7", linewidth=1, zorder=0)
        axis.set_title(title)
    axes[0].set_yticks(np.arange(d), features)
    axes[0].invert_yaxis()
    return axes


def _direction(coef, names):
    """Vector z such that z'(w, b) is this coefficient."""
    places = [*names, "intercept"]
    if isinstance(coef, str):
        if coef not in places:
            raise ValueError(f"coef={coef!r} is not among {listed(places)}.")
        coef = places.index(coef)
    elif not 0 <= coef < len(names):
        raise ValueError(f"coef={coef!r} must be a name, or a position below {len(names)}.")
    return np.eye(len(places))[coef]


def _positions(order, names, what="order"):
    """Rows that `order` asks for by position, or by name."""
    order, n = np.asarray(order), len(names)
    if order.dtype.kind in "UTO":
        known = {str(name): position for position, name in enumerate(names)}
        missing = [name for name in order.tolist() if str(name) not in known]
        if missing:
            raise ValueError(f"{what} has {listed(missing)}; the names are {listed(names)}.")
        return np.array([known[str(name)] for name in order.tolist()])
    if order.dtype.kind not in "iu" or not ((order >= -n) & (order < n)).all():
        raise ValueError(
            f"{what}={listed(order)} must hold positions from 0 to {n - 1}, or names as strings, "
            f"such as {str(names[0])!r}."
        )
    return order


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plotting needs matplotlib: pip install matplotlib, or skpmtl with its extra [plot]."
        ) from error
    return plt
