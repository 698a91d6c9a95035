"""`mixed`: a model from a formula, with a privacy budget or by restricted maximum likelihood."""

import math
import warnings
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._display.summary import (
    Summary,
    about_untold,
    check_coverage,
    effect_columns,
    variance_columns,
)
from .._runtime.hints import RandomState
from .._runtime.stack import users_line
from ..structures.estimators import PrivateMTL, PrivateMTLClassifier
from ..tables.convert import check_trials, expand_trials
from ..tables.factors import ACROSS, BELOW, rows_of_factors
from ..tables.frames import frame_of
from ..tables.ids import listed, locate
from .formula import Design, grouping, read_formula, response_of
from .laplace import FAMILIES, fit_laplace
from .offsets import OFFSET, _OffsetClassifier
from .reml import GroupedRows, fit_mixed, independent

__all__ = ["MixedResult", "mixed"]

_OF_LEVELS = "levels", "effects"
_NOTHING = 1e-13  # of an eigenvalue of products of columns: rounding
Family = Literal["gaussian", "binomial", "poisson"]
CovarianceKind = Literal["model", "CR0", "CR1", "CR2", "CR3"]
_ERRORS = {
    "model": "Standard errors are those of the model, as in lme4.",
    "CR0": "Standard errors are robust to any covariance within tasks (CR0, no correction).",
    "CR1": "Standard errors are robust to any covariance within tasks (CR1, as in statsmodels).",
    "CR2": "Standard errors are robust to any covariance within tasks (CR2, bias-reduced).",
    "CR3": "Standard errors are robust to any covariance within tasks (CR3, jackknife).",
}


def mixed(
    formula: str,
    data,
    *,
    family: Family = "gaussian",
    epsilon: float | None = 1.0,
    delta: float | None = None,
    public: Mapping[str, Any] | None = None,
    weights: str | ArrayLike | None = None,
    factors: Mapping[str, str] | None = None,
    random_state: RandomState = None,
) -> "MixedResult":
    """Fit a mixed model that is written as a formula.

    Parameters
    ----------
    formula : str
        As in lme4, such as ``"score ~ sex + prior + (1 + prior | school)"``; the target may be a
        term, such as ``log(score)``. The grouping behind
        the bar is the task, the unit that is protected. ``(x || g)`` has independent random
        effects, ``(0 | g)`` none: least squares, with errors that are robust within g.
        ``offset(t)`` is a term without a coefficient. With ``family="binomial"`` a target
        ``prop(k, n)`` is k successes out of n trials, columns of whole numbers, and one of shares
        from 0 to 1 is k / n, with n as `weights`. Without a budget
        there may be further groupings with intercepts, nested as ``(1 | school / class)`` or
        crossed as ``(1 | pupil) + (1 | item)``; with one, one that is nested in the task, one
        across tasks with a list of levels in `public`, and one above them that `factors` declares.
    data : DataFrame
        One row per observation, of pandas, or of any library whose frames have ``to_pandas``.
    family : {"gaussian", "binomial", "poisson"}, default="gaussian"
        Of the target: a number; two classes; or a count, for which the offset is the logarithm of
        an exposure.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit, for all rows of a task, which needs a fixed effect besides
        the intercept. None: no privacy; the fit is then
        maximum likelihood as in lme4, restricted with ``family="gaussian"`` and with Laplace's
        approximation for classes and counts.
    delta : float or None, default=None
        None: ``min(1e-5, 1 / n_tasks**2)``.
    public : mapping, default=None
        Public facts by column: ids of the tasks for the grouping, levels of a column of categories,
        and the range (low, high) of the target or of a number. Other names are constants of the
        formula. With a budget, lists of levels are required, since a list that is read from the
        rows discloses which levels exist. For a grouping across the tasks, such as items, the list
        of its levels; for one above them, such as districts of schools, the level of every task, as
        a mapping; the table then needs no such column.
    weights : str or array-like of shape (n_rows,), default=None
        Weights of rows, or the column that has them. Without a budget, as in lme4, the residual
        variance of a row is sigma^2 over its weight, and the weight of a class or count is its
        number of rows; with one, they count how often a row was seen.
    factors : mapping of str to str, default=None
        Where the further groupings of the formula stand, as `factors` of `PrivateMTL`:
        ``{"district": "above"}`` for ``(1 | school) + (1 | district)``. For a fit with a budget,
        since it follows from all rows.
    random_state : int, RandomState, Generator or None, default=None
        Of the noise, for tests. None: the operating system's.

    Returns
    -------
    result : MixedResult

    Raises
    ------
    ImportError
        Without pandas and formulae: ``pip install skpmtl[formula]``.
    ValueError
        For a formula that cannot be read or has not one grouping, missing values, unknown columns,
        and, under a budget, for terms and levels that would be read from all rows.

    Notes
    -----
    With a budget, which slopes differ between tasks is found by the evidence of the tasks' own
    rows, so that ``(1 | g)`` and ``(1 + x | g)`` are the same fit; the fixed effects and their
    errors are those of `PrivateMTL` with ``standard_errors=True``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import skpmtl
    >>> rng = np.random.default_rng(0)
    >>> school = np.repeat(np.arange(50), 20)
    >>> prior = rng.normal(size=1000)
    >>> score = 60 + 5 * prior + rng.normal(size=50)[school] + rng.normal(size=1000)
    >>> data = pd.DataFrame({"score": score, "prior": prior, "school": school})
    >>> fit = skpmtl.mixed("score ~ prior + (1 | school)", data, epsilon=None)
    >>> bool(abs(fit.params["prior"] - 5) < 0.1)
    True
    """
    data = _pandas(data)
    public = dict(public or {})
    if family not in ("gaussian", "binomial", "poisson"):
        raise ValueError(f'family={family!r} must be "gaussian", "binomial" or "poisson".')
    parts = read_formula(formula)
    private = epsilon is not None and math.isfinite(epsilon)
    design = Design(parts, data, public, private)
    if parts["of_response"] - {parts["response"], parts["trials"]}:
        data = data.assign(**{parts["response"]: response_of(parts, data, public, private)})
    missing = [name for name in (parts["response"], parts["trials"]) if name and name not in data]
    if missing:
        raise ValueError(f"The table has no column {listed(missing)}.")
    if parts["trials"] and family != "binomial":
        raise ValueError(f'A target prop(k, n) needs family="binomial", not {family!r}.')
    # A grouping within the task is below it by its formula, (1 | school / class).
    nested = [name for name in parts["others"] if name.startswith(f"{parts['group']}:")]
    places: dict[str, Any] = {**dict.fromkeys(nested, BELOW), **(factors or {})}
    for name in parts["others"]:  # one with a public list of levels is across tasks
        place, known = places.get(name, ACROSS), public.get(name)
        if isinstance(place, tuple):
            place, known = place
        if private and place == ACROSS and not isinstance(known, (Mapping, NoneType)):
            places[name] = ACROSS, [str(level) for level in known]
    odd = [name for name, place in places.items() if place == BELOW and name not in nested]
    if odd:
        raise ValueError(
            f"The grouping {odd[0]!r} stands below the tasks: write (1 | {parts['group']} / "
            f"{odd[0]}) in the formula, and leave it out of factors=."
        )
    odd = [name for name in places if name not in parts["others"]]
    if odd:
        raise ValueError(f"factors= names {listed(odd)}, which the formula has no (1 | ...) of.")
    odd = [name for name in parts["others"] if name not in places]
    if private and odd:
        raise ValueError(
            f"Where the groupings {listed(odd)} stand would be read from private rows. Declare one "
            f"across the tasks by its public list: public={{{odd[0]!r}: levels}}; one above them: "
            f"factors={{{odd[0]!r}: 'above'}}, and in public= the level of every task; or one "
            f"below them: (1 | {parts['group']} / {odd[0]}); or leave them out."
        )
    for name in parts["others"]:
        if isinstance(public.get(name), Mapping) and name not in data:
            data = data.assign(**{name: grouping(data, parts["group"]).map(public[name])})
    if isinstance(weights, str):
        if weights not in data:
            raise ValueError(f"The table has no column {weights!r} of weights.")
        weights = data[weights]
    if weights is not None:
        weights = np.asarray(weights, dtype=float)
        if weights.shape != (len(data),) or not (weights >= 0).all():
            raise ValueError("weights must be non-negative numbers, one for each row.")
    make = _Estimated if private else _Exact
    of_rows = list(rows_of_factors(places or None)) if private else parts["others"]
    named = [parts["group"], *of_rows]
    groups = [grouping(data, name) for name in named]
    target = data[parts["response"]]
    settings = {
        "epsilon": epsilon,
        "delta": delta,
        "random_state": random_state,
        "tasks": public.get(parts["group"], "auto"),
        "factors": places,
        "above": {name: public[name] for name in set(places) & set(public) - set(of_rows)},
        "range": public.get(parts["response"]),
    }
    if parts["trials"]:
        target = data[[parts["response"], parts["trials"]]]
    elif family == "binomial" and weights is not None and settings["range"] is None:
        # With a budget the type of the column decides, which is public as its name is.
        shares = target.dtype.kind == "f" and (private or (target % 1 > 0).any())
        target, weights = (_successes(target, weights), None) if shares else (target, weights)
    if target.ndim == 2:
        settings["range"] = [0, 1]
    kind = make(design, family, target, groups, weights, settings)
    return MixedResult(formula, family, design, kind, parts)


def _pandas(data):
    import pandas as pd

    frame = frame_of(data, "data")
    if frame is None:
        raise TypeError(f"data is a {type(data).__name__}: pass a DataFrame.")
    found = frame.to_pandas()
    if found.index.equals(pd.RangeIndex(len(found))):  # as it is, and not copied
        return found
    return found.reset_index(drop=True)


class MixedResult:
    """A fitted mixed model.

    Attributes
    ----------
    formula : str
    family : str
    estimator : BaseMTL or None
        The estimator of a fit with a budget; None without one.
    params : Series
        Fixed effects by name.
    groups : ndarray
        Ids of the tasks.
    random_effects : DataFrame, or dict of DataFrame
        Deviations of the tasks from the fixed effects, a row for each; with further groupings, by
        name. They are not private: a row is for its task alone.
    deviance : float or None
        -2 times the log likelihood, restricted with ``family="gaussian"``, without a budget.
    privacy : PrivacyReport or None
        None without a budget.
    """

    def __init__(self, formula, family, design, fit, parts):
        self.formula, self.family = formula, family
        self._design, self._fit, self._parts = design, fit, parts

    @property
    def estimator(self):
        return self._fit.estimator

    @property
    def groups(self):
        return self._fit.groups

    @property
    def deviance(self):
        return self._fit.deviance

    @property
    def privacy(self):
        estimator = self.estimator
        return None if estimator is None else getattr(estimator, "privacy_", None)

    @property
    def params(self):
        import pandas as pd

        return pd.Series(self._fit.effects(), index=self._fit.names, name="effect")

    @property
    def random_effects(self):
        import pandas as pd

        index = pd.Index(self.groups, name=self._parts["group"])
        own = pd.DataFrame(self._fit.random(), index=index, columns=self._fit.random_names)
        if not self._parts["others"]:
            return own
        frames = {self._parts["group"]: own}
        for name, (levels, effects) in self._fit.others.items():
            frames[name] = pd.DataFrame({"Intercept": effects}, index=pd.Index(levels, name=name))
        return frames

    def cov_params(self, kind: CovarianceKind | None = None):
        """Covariance of the fixed effects.

        Parameters
        ----------
        kind : {"model", "CR0", "CR1", "CR2", "CR3"} or None, default=None
            Only without a budget; with one, the covariance is the squares of the released standard
            errors, and zero elsewhere. None: "CR2" of a mean, "CR1" of classes and counts, which
            have no "CR2" and "CR3", and "model" with further groupings.

        Returns
        -------
        covariance : DataFrame

        Raises
        ------
        ValueError
            If the fit has no errors, or for an unknown kind.
        """
        import pandas as pd

        names = self._fit.names
        return pd.DataFrame(self._fit.covariance(kind)[0], index=names, columns=names)

    def model_matrix(self, data):
        """Columns of the fixed effects, in the order of `params`.

        Parameters
        ----------
        data : DataFrame

        Returns
        -------
        X : ndarray of shape (n_rows, n_effects)
        """
        return self._fit.matrix(self._design.of(_pandas(data))[0])

    def predict(self, data, *, level: Literal["task", "population"] = "task"):
        """Expected targets: means, probabilities of the second class, or expected counts.

        Parameters
        ----------
        data : DataFrame
            With the columns of the formula. Rows of a task that was not fitted, or without an id,
            are predicted at the population level.
        level : {"task", "population"}, default="task"
            "population": from the fixed effects alone, as ``re.form = NA`` of lme4.

        Returns
        -------
        expected : ndarray of shape (n_rows,)
        """
        if level not in ("task", "population"):
            raise ValueError(f'level={level!r} must be "task" or "population".')
        data = _pandas(data)
        X, offset, Z = self._design.of(data)
        if level == "population":
            return self._fit.predict(X, offset, Z, np.full(len(data), -1), None)
        codes = _codes(data, self._parts["group"], self.groups)
        return self._fit.predict(X, offset, Z, codes, data)

    def summary(self, kind: CovarianceKind | None = None, coverage: float = 0.95) -> Summary:
        """Fixed effects with errors, variance components, and what was released.

        Parameters
        ----------
        kind : {"model", "CR0", "CR1", "CR2", "CR3"} or None, default=None
            Of standard errors without a budget; see `cov_params`.
        coverage : float, default=0.95
            Of the intervals, in (0, 1).

        Returns
        -------
        summary : Summary
        """
        check_coverage(coverage)
        fit = self._fit
        components, variances, about = fit.components(coverage)
        try:
            covariance, dof, words = fit.covariance(kind)
            error = np.sqrt(np.diag(covariance))
        except ValueError as reason:
            if kind is not None:
                raise
            error, dof, words = np.full(len(fit.names), np.nan), math.inf, str(reason)
        columns = effect_columns(fit.effects(), error, coverage, dof)
        return Summary(
            title=f"Mixed model: {self.formula}",
            facts={**fit.facts(), "intervals": f"{coverage:.0%}"},
            names=list(fit.names),
            effects=columns,
            components=components,
            variances=variances,
            errors=words,
            notes=list(fit.notes(about)),
        )

    def deviation_intervals(self, coverage: float = 0.95, *, restricted: bool = True):
        """Intervals of the standard deviations of random effects and rows, by profiles.

        For a mean without a budget; with one `summary` has them.

        Parameters
        ----------
        coverage : float, default=0.95
            In (0, 1).
        restricted : bool, default=True
            Of the restricted likelihood, whose maximum the summary has. False: of the likelihood
            itself, as ``confint`` of lme4; with few tasks these cover less.

        Returns
        -------
        ends : DataFrame
            Columns "lower" and "upper".

        Raises
        ------
        ValueError
            For other fits: classes and counts, several groupings, and with a budget.
        """
        import pandas as pd

        from .intervals import deviation_intervals

        check_coverage(coverage)
        kind = self._fit
        if self.estimator is not None or self.family != "gaussian" or self._parts["others"]:
            raise ValueError(
                "Profiles are of a mean with one grouping, without a budget. With a budget "
                "summary() has intervals, and with further groupings PrivateMTL(epsilon=None, "
                "factors=...).summary()."
            )
        known = {"correlated": kind.correlated, "restricted": restricted}
        ends = deviation_intervals(kind.rows, kind.fit, coverage, **known)
        ends[:-1][kind.untold()] = np.nan
        names = [*kind.random_names, "residual"]
        return pd.DataFrame(ends, columns=["lower", "upper"], index=pd.Index(names, dtype=object))

    def __repr__(self) -> str:
        return f"<MixedResult: {self.formula}>"


class _Exact:
    """Maximum likelihood, without a budget: restricted, or by Laplace's approximation."""

    estimator = None

    def __init__(self, design, family, target, groups, weights, settings):
        if any(group.isna().any() for group in groups):
            raise ValueError("Some rows have no group: drop them.")
        y, weights = _responses(family, target, weights, settings["range"])
        kept = np.flatnonzero(weights > 0)
        kept = slice(None) if len(kept) == len(weights) else kept
        levels, numbers = zip(
            *(np.unique(group.to_numpy()[kept], return_inverse=True) for group in groups),
            strict=True,
        )
        order = np.argsort(numbers[0], kind="stable")
        # Rows that are sorted by task are not copied.
        sort = slice(None) if (order[1:] > order[:-1]).all() else order
        X, offset, Z, y, weights = (part[kept][sort] for part in (*design.fitted(), y, weights))
        offsets = np.searchsorted(numbers[0][order], np.arange(len(levels[0]) + 1))
        self.kept = independent(X)
        X = self.matrix(X)
        self.design, self.family, self.groups = design, family, levels[0]
        self.names = [design.names[j] for j in self.kept]
        self.dropped = [name for name in design.names if name not in self.names]
        self.random_names = design.random_names
        self.correlated = design.parts["correlated"]
        root, others = np.sqrt(weights) if family == "gaussian" else np.ones(len(order)), []
        for number, known in zip(numbers[1:], levels[1:], strict=True):
            places = np.arange(len(order)), number[order]
            others.append(sparse.csr_array((root, places), shape=(len(order), len(known))))
        self.default_kind = "CR2" if family == "gaussian" else "CR1"
        if others:
            self.default_kind = "model"
        if family == "gaussian":
            columns = X, Z, y - offset
            if (root != 1.0).any():
                columns = X * root[:, None], Z * root[:, None], columns[2] * root
            self.rows = GroupedRows(*columns, offsets, tuple(others))
            self.fit = fit_mixed(self.rows, correlated=self.correlated)
        else:
            self.rows = GroupedRows(X, Z, y, offsets, tuple(others))
            more = {"weight": weights, "offset": offset, "correlated": self.correlated}
            self.fit = fit_laplace(self.rows, family, **more)
        further = zip(levels[1:], self.fit.other_effects, strict=True)
        self.others = dict(zip(design.parts["others"], further, strict=True))
        self.deviance = self.fit.deviance
        if not self.fit.converged:
            warnings.warn(
                "The likelihood was not maximised: rescale columns to order one, or leave out a "
                "random effect, or columns that separate classes or counts of zero.",
                stacklevel=users_line(),
            )

    def matrix(self, X):
        return X if len(self.kept) == X.shape[1] else X[:, self.kept]

    def effects(self):
        return self.fit.coef

    def random(self):
        return self.fit.effects

    def covariance(self, kind):
        kind = self.default_kind if kind is None else kind
        if kind not in _ERRORS:
            raise ValueError(f"kind={kind!r} must be one of {', '.join(map(repr, _ERRORS))}.")
        if kind == "model":
            return self.fit.covariance, math.inf, _ERRORS[kind]
        if self.family == "gaussian":
            covariance, dof = self.fit.cluster_robust(self.rows, kind)
        else:
            covariance, dof = self.fit.sandwich(kind)
        return covariance, dof, _ERRORS[kind]

    def components(self, coverage):
        """Random effects, at the origin of the columns as in lme4, and residuals.

        -> names, columns, sentences about them
        """
        residual = [self.fit.sigma2] if self.family == "gaussian" else []
        others = np.concatenate([self.fit.other_std**2, residual])
        covariance, untold = self.fit.random_covariance.copy(), self.untold()
        covariance[untold], covariance[:, untold] = np.nan, np.nan
        columns = variance_columns(covariance, self.random_names, others)
        if not self.correlated:
            columns = {name: columns[name] for name in ("variance", "std")}
        names = [*self.random_names]
        if self.others:
            group = self.design.parts["group"]
            names = [f"{name} | {group}" for name in names]
            names += [f"Intercept | {name}" for name in self.others]
        names += ["residual"][: len(residual)]
        return names, columns, about_untold(names, columns)

    def untold(self):
        """Which random effects have variances that rows cannot tell: their columns are zero, or
        with correlations determined by others. (q,) of bool"""
        products = self.rows.products()[0]
        gram = (products if self.correlated else products**2).sum(axis=0)
        size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        values, vectors = np.linalg.eigh(gram / np.outer(size, size))
        return (np.abs(vectors[:, values < _NOTHING]) > 1e-6).any(axis=1)

    def facts(self):
        restricted = self.family == "gaussian"
        method = "restricted maximum likelihood" if restricted else "maximum likelihood (Laplace)"
        return {
            "method": f"{method} (no privacy)",
            "tasks": f"{len(self.groups):,}",
            **{name: f"{len(levels):,}" for name, (levels, _) in self.others.items()},
            "rows": f"{len(self.rows.y):,}",
            "deviance": f"{self.deviance:.6g}" + " (restricted)" * restricted,
        }

    def notes(self, about):
        if self.dropped:
            yield f"Left out, since other columns determine them: {', '.join(self.dropped)}."
        yield from about
        yield "No privacy: epsilon=None. These numbers may disclose rows of a small task."

    def predict(self, X, offset, Z, codes, data):
        own = np.where((codes >= 0)[:, None], self.fit.effects[codes], 0.0)
        eta = self.matrix(X) @ self.fit.coef + offset + (Z * own).sum(axis=1)
        for name, (levels, effects) in self.others.items() if data is not None else ():
            eta = eta + np.append(effects, 0.0)[_codes(data, name, levels)]
        return eta if self.family == "gaussian" else FAMILIES[self.family].moments(eta)[0]


class _Estimated:
    """An estimator of the package, behind a formula."""

    deviance = None

    def __init__(self, design, family, target, groups, weights, settings):
        X, offset, _ = design.fitted()
        group, *of_rows = groups
        if any(levels.isna().any() for levels in of_rows):
            raise ValueError("Some rows have no level of a grouping: drop them.")
        self.factors_of_rows = [*rows_of_factors(settings["factors"] or None)]
        self.kept = [j for j, name in enumerate(design.names) if name != "Intercept"]
        if not self.kept:
            raise ValueError(
                "The formula has an intercept alone, and fits with a budget need the slope of a "
                "column: add a fixed effect, or pass epsilon=None."
            )
        has_intercept = len(self.kept) < len(design.names)
        self.names = [design.names[j] for j in self.kept] + ["Intercept"] * has_intercept
        self.random_names, self.family = list(self.names), family
        self.has_offset = bool(design.offsets)
        common: dict[str, Any] = {
            "epsilon": settings["epsilon"],
            "delta": settings["delta"],
            "random_state": settings["random_state"],
            "tasks": settings["tasks"],
            "unseen_task": "mean",
            "fit_intercept": has_intercept,
        }
        if settings["factors"]:
            common |= {"factors": settings["factors"], "relation": _by_task(settings["above"])}
        if family == "binomial":
            levels = settings["range"]
            if levels is None:
                name = design.parts["response"]
                raise ValueError(
                    "The list of classes would be read from private rows. Pass the public list: "
                    f"public={{{name!r}: [0, 1]}}. Shares of trials need weights=, the numbers of "
                    "trials, or a target prop(successes, trials)."
                )
            kind = _OffsetClassifier if design.offsets else PrivateMTLClassifier
            est, y = kind(**common, classes=levels), target.to_numpy()
            if y.ndim == 2:  # successes and trials
                rows, y = expand_trials(*y.T)
                group, *of_rows = (part.iloc[rows] for part in groups)
                X, offset = X[rows], offset[rows]
                weights = None if weights is None else weights[rows]
        elif family == "poisson":
            est, y = PrivateMTL(**common, loss="poisson"), _numbers(target)
            if design.offsets:  # rates, whose weights are exposures
                exposure = np.exp(offset)
                y = y / exposure
                weights = exposure if weights is None else weights * exposure
            est.set_params(target_range=settings["range"])
        else:
            est = PrivateMTL(**common, standard_errors=True)
            est.set_params(target_range=settings["range"])
            y = _numbers(target) - offset
        columns = self._columns(X, of_rows, offset)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.estimator = est.fit(columns, y, task=group, sample_weight=weights)
        names = ("tasks=[...]", "group", "[...]"), ("target_range=", "response", "(low, high)")
        for warning in caught:
            text = str(warning.message)
            for name, part, of_part in names:  # as `public` has them
                text = text.replace(name, f"public={{{design.parts[part]!r}: {of_part}}}")
            warnings.warn(text, warning.category, stacklevel=users_line())
        self.groups = self.estimator.tasks_

    def _columns(self, X, levels, offset):
        """Columns of the estimator, the offset of classes, then `levels` of rows; None: of rows
        that have none."""
        columns, names = np.ascontiguousarray(X[:, self.kept]), self.names[: len(self.kept)]
        if self.family == "binomial" and self.has_offset:
            columns, names = np.c_[columns, offset], [*names, OFFSET]
        if not self.factors_of_rows:
            return columns
        import pandas as pd

        frame = pd.DataFrame(columns, columns=names)
        for k, name in enumerate(self.factors_of_rows):
            known = None if levels is None else levels[k]
            frame[name] = "" if known is None else known.fillna("").astype(str).to_numpy()
        return frame

    def matrix(self, X):
        """Columns in the order of `names`, which has the intercept last."""
        last = [j for j in range(X.shape[1]) if j not in self.kept]
        return X[:, [*self.kept, *last]]

    def effects(self):
        est = self.estimator
        if not hasattr(est, "mean_coef_") or est._has_found_nothing():
            return np.full(len(self.names), np.nan)
        kind = "effect" if hasattr(est, "effect_covariance_") else "mean"
        slopes, level = (getattr(est, f"{kind}_{name}_") for name in ("coef", "intercept"))
        return np.append(np.ravel(slopes), np.ravel(level))[: len(self.names)]

    def random(self):
        est = self.estimator
        board = est.billboard_
        above = (board.unit or 0.0) * board.effects_of(self.groups)
        own = np.c_[est.coef_.reshape(len(self.groups), -1), est.intercept_.reshape(-1, 1)]
        own[:, -1] -= above
        return own[:, : len(self.names)] - self.effects()

    @property
    def others(self):
        est, found = self.estimator, {}
        for name, factor in getattr(est, "factors_", {}).items():
            if "effects" in factor:
                found[name] = factor["levels"], factor["effects"]
        if hasattr(est, "level_effects_"):
            of_tasks = [one for one in est.level_effects_ if one]  # without tasks without rows
            levels, effects = ([getattr(one, name) for one in of_tasks] for name in _OF_LEVELS)
            found[est.billboard_.below] = np.concatenate(levels), np.concatenate(effects)
        return found

    def covariance(self, kind):
        if kind is not None:
            raise ValueError(
                f"kind={kind!r} belongs to fits without a budget: one with a budget releases one "
                "kind of standard errors. Leave kind out."
            )
        *_, dof, words = self.estimator._pooled_effects()
        covariance = getattr(self.estimator, "effect_covariance_", None)
        if covariance is not None:
            return covariance, dof, words
        if self.family != "gaussian" and not self.estimator._has_found_nothing():
            words = f"Fits with family={self.family!r} and a budget have no standard errors: how "
            words += "far effects may be off is not known."
        raise ValueError(words)

    def components(self, coverage):
        return self.estimator._variance_components(self.names, coverage)

    def facts(self):
        est = self.estimator
        report = est.privacy_
        budget = report.summary()
        return {
            "method": "PrivateMTLClassifier" if self.family == "binomial" else "PrivateMTL",
            "tasks": f"{len(self.groups):,} listed",
            "budget": budget,
        }

    def notes(self, about):
        est = self.estimator
        if not hasattr(est, "mean_coef_"):
            yield "Nothing was found about what tasks share: every task relies on its own rows."
        else:
            yield from about

    def predict(self, X, offset, Z, codes, data):
        """`data` None: from the fixed effects alone."""
        est, unknown, levels = self.estimator, codes < 0, None
        if data is not None:
            names = self.factors_of_rows
            needed = [not unknown.all() or set(name.split(":")) <= set(data) for name in names]
            pairs = zip(names, needed, strict=True)
            levels = [grouping(data, name) if given else None for name, given in pairs]
        rows = self._columns(X, levels, offset)
        out = np.empty(len(rows))
        if unknown.any():
            if not hasattr(est, "mean_coef_"):
                raise ValueError(
                    "This fit has no fixed effects, so that rows without a fitted task cannot be "
                    "predicted. A larger budget, or the range of the target in public=, finds them."
                )
            out[unknown] = self._expected(rows[unknown], level="population")
        if (~unknown).any():
            out[~unknown] = self._expected(rows[~unknown], task=self.groups[codes[~unknown]])
        return {"gaussian": out + offset, "poisson": out * np.exp(offset)}.get(self.family, out)

    def _expected(self, rows, **of):
        if self.family == "binomial":
            return self.estimator.predict_proba(rows, **of)[:, 1]
        return self.estimator.predict(rows, **of)


def _by_task(above):
    """Public levels of tasks by factor -> a table of tasks; None without one."""
    if not above:
        return None
    for name, levels in above.items():
        if not isinstance(levels, Mapping):
            raise ValueError(
                f"public[{name!r}] must map every task to its level, such as "
                f"public={{{name!r}: {{task: level}}}}."
            )
    tasks = next(iter(above.values()))
    return {task: {name: of[task] for name, of in above.items() if task in of} for task in tasks}


def _codes(data, name, levels):
    """Positions of the ids of a grouping among levels; -1 where they are new or missing."""
    try:
        ids = grouping(data, name)
    except ValueError as error:
        raise ValueError(f"{error} Add it, or pass level='population'.") from None
    codes, known = np.full(len(data), -1), ids.notna().to_numpy()
    if known.any():
        found = ids[known].to_numpy()
        is_text = found.dtype == object and levels.dtype.kind == "U"
        codes[known] = locate(found.astype(str) if is_text else found, levels)
    return codes


def _successes(shares, trials):
    """Shares of successes and numbers of trials -> a table of both as whole numbers."""
    won = np.where(trials > 0, shares * trials, 0.0)
    whole = np.round(won)
    if not (abs(won - whole) <= 1e-6 * np.maximum(trials, 1.0)).all():
        raise ValueError(
            "A target of shares of successes needs weights= that are their numbers of trials: "
            "shares times weights are whole numbers here. Or write the target as "
            "prop(successes, trials)."
        )
    return shares.to_frame("won").assign(won=whole, trials=trials)


def _responses(family, target, weights, classes):
    """-> targets of a likelihood, weights; of trials the shares of successes, and their numbers"""
    if target.ndim == 2:
        won, n = check_trials(*target.to_numpy().T)
        return won / np.maximum(n, 1), n * (1.0 if weights is None else weights)
    weights = np.ones(len(target)) if weights is None else weights
    if family != "binomial":
        y = _numbers(target)
        if family == "poisson" and (y < 0).any():
            raise ValueError("Some counts are negative.")
        return y, weights
    known = np.unique(target.dropna()) if isinstance(classes, str) or classes is None else classes
    if len(known) != 2 or not target.isin(list(known)).all():
        raise ValueError(
            'family="binomial" needs a target of two classes without gaps; successes out of trials '
            "are prop(k, n), or k / n with n as weights=."
        )
    return (target == known[1]).to_numpy(dtype=float), weights


def _numbers(target):
    try:
        y = target.to_numpy(dtype=float)
    except (TypeError, ValueError):
        raise ValueError("The target must be numbers for this family.") from None
    if not np.isfinite(y).all():
        raise ValueError("The target has missing or infinite values: drop these rows.")
    return y
