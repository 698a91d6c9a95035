"""Exact fits for many strengths of the penalty, and the strength that cross-validation chooses.

Without privacy: a validated error is a number of the rows, and so is the strength that it chooses.
"""

import math
import warnings
from functools import wraps
from numbers import Integral, Real
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from .._docstrings import fill_docstring
from .._runtime.constraints import Interval, take
from .._runtime.hints import ClassWeight
from .._runtime.stack import users_line
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..solvers.losses import SquaredLoss
from ..solvers.path import alpha_grid, follow
from ..tables.folds import folds_of, some_rows
from ..tables.forms import read_training
from ..tables.table import check_values
from . import exact
from .estimators import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    _GroupSparse,
    _LowRank,
)

__all__ = [
    "MPMTLGroupSparseCV",
    "MPMTLGroupSparseClassifierCV",
    "MPMTLLowRankCV",
    "MPMTLLowRankClassifierCV",
    "MTLPath",
    "mtl_path",
]


class MTLPath(NamedTuple):
    """What `mtl_path` returns.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
        From the largest down.
    coefs : ndarray of shape (n_alphas, n_tasks, n_features)
        With more than two classes (n_alphas, n_tasks, n_classes, n_features).
    gaps : ndarray of shape (n_alphas,)
        Duality gaps, in the unit of the objective.
    n_iter : ndarray of int of shape (n_alphas,)
    intercepts : ndarray of shape (n_alphas, n_tasks)
        With more than two classes (n_alphas, n_tasks, n_classes).
    tasks : ndarray of shape (n_tasks,)
        Task ids in the order of the coefficients.
    penalty : str
        "trace" or "l21".
    """

    alphas: np.ndarray
    coefs: np.ndarray
    gaps: np.ndarray
    n_iter: np.ndarray
    intercepts: np.ndarray
    tasks: np.ndarray
    penalty: str


_ESTIMATORS = {
    ("trace", "squared"): MPMTLLowRank,
    ("trace", "logistic"): MPMTLLowRankClassifier,
    ("trace", "multinomial"): MPMTLLowRankClassifier,
    ("l21", "squared"): MPMTLGroupSparse,
    ("l21", "logistic"): MPMTLGroupSparseClassifier,
    ("l21", "multinomial"): MPMTLGroupSparseClassifier,
}


def mtl_path(
    X,
    y: ArrayLike,
    task: ArrayLike | None = None,
    *,
    penalty: Literal["trace", "l21"] = "trace",
    loss: Literal["squared", "logistic", "multinomial"] = "squared",
    eps: float = 1e-3,
    n_alphas: int = 100,
    alphas: ArrayLike | None = None,
    ridge=0.0,
    task_weight="equal",
    fit_intercept=True,
    task_feature=None,
    sample_weight: ArrayLike | None = None,
    max_iter=10_000,
    tol=1e-6,
    dtype=np.float64,
) -> "MTLPath":
    """Exact solutions for many strengths of the penalty, without privacy.

    The objective is that of `MPMTLLowRank` ("trace") or `MPMTLGroupSparse` ("l21") with
    ``epsilon=None``. Every solution starts at that of the previous strength; matrices of the tasks
    are computed once. With the L2,1 norm and many features, only features that may be in use are
    updated. This changes no result: the duality gap of every solution covers all features.

    Parameters
    ----------
    X, y, task, sample_weight
        As in `MPMTLLowRank.fit`.
    penalty : {"trace", "l21"}, default="trace"
        Trace norm, or sum of the norms of the features' weights.
    loss : {"squared", "logistic", "multinomial"}, default="squared"
        Loss of a row: of numbers, of two classes, of more.
    eps : float, default=1e-3
        Smallest strength as a fraction of the largest.
    n_alphas : int, default=100
        Number of strengths, from the smallest for which all weights are zero.
    alphas : array-like, default=None
        Strengths, instead of these two; they are sorted.
    ridge, task_weight, fit_intercept, task_feature, max_iter, tol, dtype
        As in `MPMTLLowRank`; `max_iter` and `tol` are those of every strength.

    Returns
    -------
    path : MTLPath
        Named tuple (alphas, coefs, gaps, n_iter, intercepts, tasks, penalty).

    Raises
    ------
    ValueError
        For an unknown penalty or loss, for strengths that are not positive, and as in `fit`.

    Warns
    -----
    ConvergenceWarning
        When duality gaps are above ``tol`` times the objective.

    See Also
    --------
    MPMTLLowRankCV, MPMTLGroupSparseCV : Choose a strength by cross-validation.

    Examples
    --------
    >>> from skpmtl import mtl_path
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> path = mtl_path(X, y, task, n_alphas=10)
    >>> path.coefs.shape, bool(path.coefs[0].any())
    ((10, 20, 5), False)
    """
    if (penalty, loss) not in _ESTIMATORS:
        raise ValueError(
            f"penalty={penalty!r} and loss={loss!r}: penalty is 'trace' or 'l21', loss is "
            "'squared', 'logistic' or 'multinomial'."
        )
    est = _ESTIMATORS[penalty, loss](
        epsilon=None,
        algorithm="proximal",
        ridge=ridge,
        task_weight=task_weight,
        fit_intercept=fit_intercept,
        task_feature=task_feature,
        max_iter=max_iter,
        tol=tol,
        dtype=dtype,
    )
    est._check_parameters()
    table, classes = est._encoded(read_training(est, X, y, task, sample_weight)[0])
    if classes is not None and (len(classes) > 2) != (loss == "multinomial"):
        raise ValueError(
            f"There are {len(classes)} classes: loss='logistic' is for two, 'multinomial' for more."
        )
    check_values(table)
    with np.errstate(all="ignore"):
        made = est._loss(table)
        alphas = _strengths(made, est._penalty(), alphas, eps, n_alphas)
        fits, shape = [], (table.n_tasks, *exact.several(table))
        for solution in follow(made, est._penalty(), alphas, tol=tol, max_iter=max_iter):
            W = solution.W
            fits.append((W, solution.gap, solution.n_iter, made.intercepts(W), solution.converged))
    coefs, gaps, n_iter, intercepts, converged = map(np.array, zip(*fits, strict=True))
    _warn_unless(converged.sum(), len(converged))
    coefs = coefs.reshape(len(alphas), *shape, table.n_features)
    intercepts = intercepts.reshape(len(alphas), *shape)
    return MTLPath(alphas, coefs, gaps, n_iter, intercepts, table.tasks, penalty)


def _strengths(loss, penalty, alphas, eps, n_alphas):
    """`alphas` from the largest down, or a grid."""
    if alphas is None:
        if not (isinstance(eps, Real) and 0 < eps < 1):
            raise ValueError(f"eps={eps!r} must be a number between 0 and 1.")
        if not (isinstance(n_alphas, Integral) and n_alphas >= 1):
            raise ValueError(f"n_alphas={n_alphas!r} must be an integer of at least 1.")
        return alpha_grid(loss, penalty, eps, n_alphas)
    alphas = np.sort(np.asarray(alphas, dtype=np.float64).ravel())[::-1]
    if not len(alphas) or not (np.isfinite(alphas).all() and alphas[-1] > 0):
        raise ValueError("alphas= must be positive and finite numbers, at least one.")
    return alphas


def _warn_unless(n_converged, n_fits):
    if n_converged < n_fits:
        warnings.warn(
            f"{n_fits - n_converged} of {n_fits} fits did not reach the duality gap of tol times "
            "the objective. Raise max_iter or tol, scale the features, or leave out the smallest "
            "alphas.",
            ConvergenceWarning,
            stacklevel=users_line(),
        )


# ---------------------------------------------------------------------- cross-validation
def _exact_only(init):
    """An ``__init__`` that says where to go with a budget."""

    @wraps(init)
    def refuse(self, *values, **named):
        if "epsilon" in named or "delta" in named:
            raise TypeError(
                f"{type(self).__name__} chooses alpha by errors on rows, without noise, so that it "
                "has no budget. With one, MPMTLLowRank and MPMTLGroupSparse have no alpha to "
                "choose."
            )
        # Python's errors of wrong arguments show it.
        init.__qualname__ = f"{type(self).__qualname__}.__init__"
        init(self, *values, **named)

    return refuse


class _Validated:
    """Mixin, before an estimator, that chooses its strength by cross-validation."""

    # What the estimator of one strength has as parameters.
    epsilon, outliers, warm_start, algorithm = None, None, False, "proximal"
    alpha: float | str = "auto"
    relation, relation_rank, init = None, None, None
    _billboards: ClassVar[
        tuple[type, ...]
    ] = ()  # a model of one strength has files: that of `alpha_`
    _federates = False
    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "alphas": ["array-like", None],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "n_alphas": [Interval(Integral, 1, None, closed="left")],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    @_exact_only
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 1e-3,
        n_alphas: int = 100,
        cv=5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10_000,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        self.alphas = alphas
        self.eps = eps
        self.n_alphas = n_alphas
        self.cv = cv
        self.ridge = ridge
        self.task_weight = task_weight
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.dtype = dtype

    def _fit_exact(self, table):
        loss, penalty = self._loss(table), self._penalty()
        alphas = _strengths(loss, penalty, self.alphas, self.eps, self.n_alphas)
        del loss
        folds = folds_of(table, 5 if self.cv is None else self.cv)
        log = self._progress("fold %d: smallest error %.6g at alpha %.3g", len(folds))
        errors, converged = np.empty((len(alphas), len(folds))), 0
        # Without what a running fit has besides its parameters, which no process can be sent.
        plain = type(self)(**{**self.get_params(deep=False), "cv": None})
        tasks = (delayed(_errors)(plain, table, *sides, alphas) for sides in folds)
        if effective_n_jobs(self.n_jobs) == 1:
            columns = (function(*args, **named) for function, args, named in tasks)
        else:
            columns = Parallel(n_jobs=self.n_jobs)(tasks)
        for k, (column, count) in enumerate(columns):
            errors[:, k] = column
            converged += count
            if log is not None:
                log(k + 1, column.min(), alphas[column.argmin()])
        _warn_unless(converged, errors.size)
        alpha = float(alphas[errors.mean(axis=1).argmin()])
        fitted = exact.fit(self, table, alpha)
        return {**fitted, "alphas_": alphas, f"{self._error}_path_": errors}


def _errors(est, table, train, test, alphas):
    """Mean error of the test rows for every alpha, and how many fits have converged.

    A task without rows to train on has the mean intercept, and weights of zero, or the mean model
    with ``unseen_task="mean"``, as listed tasks without rows have.
    """
    part, here = some_rows(table, train, spread=est._spreads_labels and est.fit_intercept)
    rest, there = some_rows(table, test, spread=False)
    shape = table.n_tasks, math.prod(exact.several(table)), table.n_features
    reader = SquaredLoss(rest, np.ones(rest.n_tasks), False, 0.0)
    mean = est.unseen_task == "mean"
    errors, converged = [], 0
    with np.errstate(all="ignore"):
        loss = est._loss(part)
        for solution in follow(loss, est._penalty(), alphas, tol=est.tol, max_iter=est.max_iter):
            W = solution.W.reshape(len(here), *shape[1:])
            b = loss.intercepts(solution.W).reshape(len(here), shape[1])
            coef, intercept = np.zeros(shape), np.empty(shape[:2])
            coef[:], intercept[:] = W.mean(axis=0) if mean else 0.0, b.mean(axis=0)
            coef[here], intercept[here] = W, b
            scores = [
                reader.scores(coef[there, c]) + intercept[there, c][rest.codes]
                for c in range(shape[1])
            ]
            errors.append(est._mean_error(rest.y, np.array(scores), rest.given_weights))
            converged += solution.converged
    return np.array(errors), converged


class _ValidatedRegressor(_Validated):
    _error = "mse"
    _spreads_labels = False

    @staticmethod
    def _mean_error(y, scores, weights):
        """Mean squared error."""
        return float(np.average((y - scores[0]) ** 2, weights=weights))


class _ValidatedClassifier(_Validated):
    _error = "log_loss"

    @_exact_only
    def __init__(
        self,
        alphas: ArrayLike | None = None,
        *,
        eps: float = 1e-3,
        n_alphas: int = 100,
        cv=5,
        ridge: float = 0.0,
        task_weight: Literal["equal", "samples"] = "equal",
        fit_intercept: bool = True,
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        max_iter: int = 10_000,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        verbose: int = 0,
        dtype: type | str = np.float64,
    ) -> None:
        take(self, locals())

    @staticmethod
    def _mean_error(y, scores, weights):
        """Mean of -log of the probability of the class that a row has."""
        if len(scores) == 1:
            losses = np.logaddexp(0.0, -y * scores[0])
        else:
            own = np.take_along_axis(scores, y.astype(np.int64)[None], axis=0)[0]
            losses = np.logaddexp.reduce(scores, axis=0) - own
        return float(np.average(losses, weights=weights))


_DOC = """{summary}

    Without privacy only: the errors that select `alpha_` are computed from rows, without noise. For
    a choice within a budget see `PrivateSearch`; `{single}` without ``alpha``
    needs none.

    Every fold follows the strengths from the largest useful one down, each fit from the one before
    (`mtl_path`); the strength of the smallest mean error is then fitted to all rows.

    Parameters
    ----------
    alphas : array-like, default=None
        Strengths of the penalty. None: `n_alphas` from the smallest for which all weights are
        zero down to `eps` times it.
    eps : float, default=1e-3
        Smallest strength as a fraction of the largest.
    n_alphas : int, default=100
        Number of strengths.
    cv : int, splitter or iterable, default=5
        A number splits the rows of every task into so many folds, as `TaskStratifiedKFold` does, or
        the rows of X if all tasks share them. Any other value that scikit-learn accepts splits the
        rows of X, with the tasks as groups; a task without training rows is predicted by the mean
        over the tasks. Weights of rows also apply to their errors.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2``.
    {task_weight}
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the mean model.
    max_iter : int, default=10000
        Bound on the iterations for one strength.
    tol : float, default=1e-6
        A fit stops when the duality gap is below `tol` times the objective.
    n_jobs : int or None, default=None
        Number of folds to fit at the same time, in processes of joblib.
    {verbose}
    {dtype}

    Attributes
    ----------
    alpha_ : float
        Strength with the smallest mean of `{error}_path_` over the folds.
    alphas_ : ndarray of shape (n_alphas,)
        From the largest down.
    {error}_path_ : ndarray of shape (n_alphas, n_folds)
        {what} of the test rows of every fold.
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Models for `alpha_`.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    tasks_ : ndarray of shape (n_tasks,)
        Task ids in the order of `coef_`.{classes}
    n_iter_, objective_, dual_gap_
        Of the fit to all rows.
    mean_coef_, mean_intercept_ : ndarray of shape (n_features,), float{means}
        Mean model.
    billboard_ : object
        What `personalize` reads.
    {privacy_}
    {features_in_}

    See Also
    --------
    {single} : One strength; also with privacy.
    mtl_path : Models for all strengths.
    PrivateSearch : Choices within a privacy budget.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import {generator}
    >>> X, y, task = {generator}(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(n_alphas=10).fit(X, {target}, task=task)
    >>> model.{error}_path_.shape, bool(model.alpha_ in model.alphas_)
    ((10, 5), True)
    """
_TRACE = {"generator": "make_low_rank_tasks"}
_L21 = {"generator": "make_group_sparse_tasks"}
_NUMBERS = {"error": "mse", "what": "Mean squared error"}
_CLASSES = {"error": "log_loss", "what": "Mean log loss", "classes": "several"}


class MPMTLLowRankCV(_ValidatedRegressor, MTLRegressorMixin, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Low-rank multi-task regression, its strength chosen by cross-validation.",
        name="MPMTLLowRankCV",
        single="MPMTLLowRank",
        **_TRACE,
        **_NUMBERS,
    )


class MPMTLGroupSparseCV(_ValidatedRegressor, MTLRegressorMixin, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Group-sparse multi-task regression, its strength chosen by cross-validation.",
        name="MPMTLGroupSparseCV",
        single="MPMTLGroupSparse",
        **_L21,
        **_NUMBERS,
    )


class MPMTLLowRankClassifierCV(_ValidatedClassifier, MTLClassifierMixin, _LowRank):
    __doc__ = fill_docstring(
        _DOC,
        summary="Low-rank multi-task classification, its strength chosen by cross-validation.",
        name="MPMTLLowRankClassifierCV",
        single="MPMTLLowRankClassifier",
        **_TRACE,
        **_CLASSES,
    )
    _multiclass = True


class MPMTLGroupSparseClassifierCV(_ValidatedClassifier, MTLClassifierMixin, _GroupSparse):
    __doc__ = fill_docstring(
        _DOC,
        summary="Group-sparse multi-task classification, its strength chosen by cross-validation.",
        name="MPMTLGroupSparseClassifierCV",
        single="MPMTLGroupSparseClassifier",
        **_L21,
        **_CLASSES,
    )
    _multiclass = True
