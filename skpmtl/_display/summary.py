"""What a fit found, as text, HTML, LaTeX and DataFrames."""

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from sklearn.utils.validation import check_is_fitted

__all__ = ["Summarised", "Summary", "compare_summaries"]

EFFECTS = ("effect", "std_error", "z", "lower", "upper")
_WORDS = {
    "effect": "effect",
    "std_error": "std. error",
    "z": "z",
    "lower": "lower",
    "upper": "upper",
    "std": "std. dev.",
    "variance": "variance",
}
_CORRELATIONS = 6  # columns of a page
_NONE = 1e-20  # of the largest variance: what an optimiser leaves of zero
_LATEX = {
    "~": "asciitilde",
    "^": "asciicircum",
    "\\": "backslash",
    "|": "bar",
    "<": "less",
    ">": "greater",
}


def check_coverage(coverage):
    """Raise ValueError unless it is a number in (0, 1)."""
    if not (isinstance(coverage, Real) and 0.0 < coverage < 1.0):
        raise ValueError(f"coverage={coverage!r} must be a number in (0, 1), such as 0.95.")


def effect_columns(effect, std_error, coverage, dof=math.inf):
    """Columns of a table of effects: z and the ends of intervals, from quantiles of t."""
    effect, error = np.asarray(effect, dtype=float), np.asarray(std_error, dtype=float)
    reach = stdtrit(dof, 0.5 * (1.0 + coverage)) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(error > 0, effect / error, np.nan)
    return dict(zip(EFFECTS, (effect, error, z, effect - reach, effect + reach), strict=True))


def variance_columns(covariance, names, others=(), ends=None):
    """Columns of a table of variance components.

    Parameters
    ----------
    covariance : ndarray (q, q)
        Of the random effects.
    names : list of str
        Of these effects.
    others : sequence of float
        Variances of further components, which are independent.
    ends : ndarray (q + len(others), 2) or None
        Of intervals of standard deviations.

    Returns
    -------
    columns : dict of str to ndarray (q + len(others),)
        "variance", "std", with `ends` "lower" and "upper", and for every effect but the last its
        correlations with those below.
    """
    variance = np.concatenate([np.diag(covariance), others])
    variance[variance < _NONE * np.nanmax(variance, initial=0.0)] = 0.0
    std = np.sqrt(np.maximum(variance, 0.0))
    columns = {"variance": variance, "std": std}
    if ends is not None:
        columns["lower"], columns["upper"] = np.asarray(ends, dtype=float).T
    for j, name in enumerate(names[:-1]):
        below = slice(j + 1, len(names))
        columns[f"corr. {name}"] = found = np.full(len(std), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            found[below] = covariance[below, j] / (std[j] * std[below])
    return columns


def about_untold(names, columns):
    """-> list of one sentence, or none, about components that rows cannot tell"""
    untold = [name for name, std in zip(names, columns["std"], strict=True) if math.isnan(std)]
    words = f"Rows cannot tell how much tasks differ in {', '.join(untold)}, since "
    return [words + "a column is zero or follows from others: drop it."] if untold else []


@dataclass(eq=False)
class Summary:
    """Fixed effects, variance components and terms of a fit.

    ``print`` it, leave it at the end of a notebook's cell, or take its tables. Nothing in it is of
    single tasks: after a private fit it consists of releases and may be published.

    Attributes
    ----------
    title : str
    facts : dict of str to str
        Numbers of tasks and rows as far as they are public, method, budget.
    names : list of str
        Of the effects.
    effects : dict of str to ndarray
        Columns of equal length: "effect", "std_error" (NaN where none is known), "z", "lower" and
        "upper".
    components : list of str
        Names of the variance components.
    variances : dict of str to ndarray
        Columns "variance" and "std", in units of the target, after a private fit "lower" and
        "upper" of the latter, NaN where none is known to hold, and perhaps one of correlations for
        every component before.
    errors : str
        How standard errors were made, in one sentence.
    notes : list of str
        What was released and at which budget; what is missing, and why.
    """

    title: str
    facts: dict = field(default_factory=dict)
    names: list = field(default_factory=list)
    effects: dict[str, NDArray] = field(default_factory=dict)
    components: list = field(default_factory=list)
    variances: dict[str, NDArray] = field(default_factory=dict)
    errors: str = ""
    notes: list = field(default_factory=list)

    def effects_frame(self):
        """Fixed effects, a row each. -> pandas.DataFrame"""
        return _frame(self.effects, self.names)

    def variance_frame(self):
        """Variance components, a row each. -> pandas.DataFrame"""
        return _frame(self.variances, self.components)

    def _about_effects(self):
        """Sentences about the errors, and about the effects whose intervals leave out zero."""
        found = [self.errors] if self.errors else []
        columns = self.effects
        if "lower" in columns and np.isfinite(columns["lower"]).any():
            sure = [
                f"{name} ({'+' if low > 0 else '-'})"
                for name, low, high in zip(
                    self.names, columns["lower"], columns["upper"], strict=True
                )
                if low > 0 or high < 0
            ]
            found.append(f"Intervals without zero: {', '.join(sure) or 'none'}.")
        return found

    def _shown_variances(self):
        """-> columns that a page has room for, and a sentence about those that are left out"""
        few = {k: column for k, column in self.variances.items() if not k.startswith("corr. ")}
        if len(self.variances) - len(few) <= _CORRELATIONS:
            return self.variances, []
        return few, ["Correlations are in variance_frame()."]

    def __str__(self) -> str:
        lines = [self.title, "=" * len(self.title)]
        width = max((len(name) for name in self.facts), default=0)
        lines += [f"{name:<{width}}  {value}" for name, value in self.facts.items()]
        lines += ["", "Fixed effects", *_text(self.effects, self.names)]
        lines += self._about_effects()
        if self.components:
            shown, left_out = self._shown_variances()
            lines += ["", "Variance components", *_text(shown, self.components), *left_out]
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(
            f'<tr><th style="text-align: left">{html.escape(k)}</th><td>{html.escape(v)}</td></tr>'
            for k, v in self.facts.items()
        )
        parts = [f"<h4>{html.escape(self.title)}</h4><table>{facts}</table>"]
        parts.append(_html("Fixed effects", self.effects, self.names))
        parts += [f"<p>{html.escape(line)}</p>" for line in self._about_effects()]
        if self.components:
            shown, left_out = self._shown_variances()
            parts.append(_html("Variance components", shown, self.components))
            parts += [f"<p>{line}</p>" for line in left_out]
        parts += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return "<div>" + "".join(parts) + "</div>"

    def to_latex(self) -> str:
        """Tables for a paper: ``tabular`` environments, a paragraph each, without packages.

        Correlations are a table of their own, with two digits and numbers of columns as headings,
        which fits a page.

        Returns
        -------
        text : str
        """
        parts = [_latex(self.effects, self.names)]
        if self.components:
            shown = self._shown_variances()[0]
            apart = [column for name, column in shown.items() if name.startswith("corr. ")]
            few = {name: column for name, column in shown.items() if not name.startswith("corr. ")}
            parts.append(_latex(few, self.components))
            if apart:
                columns = {f"({j})": np.round(column, 2) for j, column in enumerate(apart, 1)}
                names = [f"({j}) {name}" for j, name in enumerate(self.components, 1)]
                parts.append(_latex(columns, names[: len(apart) + 1]))
        return "\n\n".join(parts)


class Summarised:
    """Mixin of estimators that may release a pooled model."""

    _title = "pooled model"
    tasks_: NDArray
    privacy_: Any
    billboard_: Any

    def summary(self, coverage: float = 0.95) -> Summary:
        """What the fit found about all tasks: effects, variance components, budget.

        Parameters
        ----------
        coverage : float, default=0.95
            Of the intervals, in (0, 1).

        Returns
        -------
        summary : Summary
            Of releases alone: after a private fit it may be published.

        Raises
        ------
        ValueError
            If the fit has no pooled model; the message says which parameter asks for one.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        names, effect, error, dof, words = self._pooled_effects()
        components, variances, notes = self._variance_components(names, coverage)
        report = self.privacy_
        columns = effect_columns(effect, error, coverage, dof)
        return Summary(
            title=f"{type(self).__name__}: {self._title}",
            facts={
                "tasks": f"{len(self.tasks_):,} listed",
                "budget": report.summary(),
                "intervals": f"{coverage:.0%}",
            },
            names=names,
            effects=columns,
            components=components,
            variances=variances,
            errors=words,
            notes=notes,
        )

    @property
    def _of_numbers(self):
        law = getattr(self.billboard_, "law", None)
        return law is not None and not law.of_scores

    def _has_found_nothing(self):
        """Whether the mean model is that of public numbers alone."""
        board = self.billboard_
        return getattr(board, "fit_intercept", False) and not getattr(board, "has_place", True)

    def _variance_components(self, names, coverage):
        """-> names of the components, their columns, notes about them"""
        find = getattr(self.billboard_, "variance_components", None)
        found = find(coverage) if find is not None else None
        if found is None:
            if not hasattr(self, "level_spread_"):
                return [], {}, ["No spread of the levels of tasks was released."]
            columns = variance_columns(np.zeros((0, 0)), (), [self.level_spread_**2])
            return ["level at the centre of the columns"], columns, []
        # The intercept first, as in lme4.
        order = np.roll(np.arange(len(names)), 1)
        covariance, names = found.covariance[np.ix_(order, order)], [names[j] for j in order]
        of_models = found.of_models[[*order, len(order)]]
        rows = dict(zip([*names, "level at the centre of the columns"], of_models, strict=True))
        rows |= found.factors
        if found.residual is not None:
            rows["residual"] = found.residual
        std, *ends = np.array(list(rows.values())).T
        others = std[len(names) :] ** 2
        columns = variance_columns(covariance, names, others, np.transpose(ends))
        votes = (
            "Tasks voted for them on coarse grids, and they are the middle of the votes: there are "
            "no intervals of slopes; the others are wide, since they hold what single tasks may "
            "have."
        )
        squares = (
            "They were measured by the squares that the standard errors need, and the residual by "
            "what a model of a task alone leaves of its rows."
        )
        source = squares if found.measured else votes
        if self.billboard_.profiles is not None:
            named = "factors and the residual" if found.measured else "levels, factors and residual"
            source = f"Those of {named} are from profiles of the restricted likelihood"
            source += (
                "; the others were measured by the squares that the standard errors need."
                if found.measured
                else "; slopes have none."
            )
        notes = [
            "Variance components say how much tasks differ: the intercept where all columns are "
            f"zero, as in lme4. Intervals are of standard deviations. {source}"
        ]
        return list(rows), columns, [*notes, *about_untold(rows, columns)]

    def _pooled_effects(self):
        """-> names, effects, standard errors, their degrees of freedom, a sentence about them"""
        if not hasattr(self, "mean_coef_"):
            if getattr(self, "unseen_task", None) == "mean":
                raise ValueError(
                    "Nothing was found about what tasks share, so that there is no pooled model. "
                    "Pass a larger epsilon, or list more tasks."
                )
            raise ValueError('This fit has no pooled model: refit with unseen_task="mean".')
        std = getattr(self, "effect_std_", None)
        words = "This fit has no standard errors."
        if getattr(self, "standard_errors", None) is False and self._of_numbers:
            words = "This fit has no standard errors: pass standard_errors=True."
        dof = getattr(self, "effect_dof_", math.inf)
        if std is not None:
            words = "Standard errors hold whatever the dependence within tasks (CR2)"
            private = math.isfinite(getattr(self.privacy_, "epsilon", None) or math.inf)
            words += ", and include the noise of the guarantee." if private else "."
        elif getattr(self, "standard_errors", False):
            words = (
                "There are no standard errors: too few tasks, too small a budget, or a column "
                "that is constant or follows from others, which hides all errors: drop it. Effects "
                "may be much nearer to zero than the truth: by how much is not known."
            )
        if self._has_found_nothing():
            words = (
                "Nothing was found about what tasks share, and there are no estimates: the model "
                "of tasks without rows is the middle of the public range. Pass a larger epsilon, "
                "or list more tasks."
            )
        elif std is None and not np.any(self.mean_coef_):
            words = f"{words} There is no mean of slopes: variance components say how they differ."
        elif std is None and getattr(self.billboard_, "mean_is_level", False):
            words = f"{words} Slopes are below their noise: only the level is an estimate."
        coef = np.atleast_2d(self.mean_coef_ if std is None else self.effect_coef_)
        intercept = np.ravel(self.mean_intercept_ if std is None else self.effect_intercept_)
        features = [*map(str, getattr(self, "coef_names_", range(coef.shape[1]))), "intercept"]
        names = features
        if len(coef) > 1:
            names = [f"{label}, {name}" for label in self.classes_ for name in features]
        effect = np.ravel(np.c_[coef, intercept])
        if self._has_found_nothing():
            effect = np.full(len(effect), np.nan)
        error = np.full(len(effect), np.nan)
        if std is not None:
            error = np.sqrt(np.diag(self.effect_covariance_))
        if std is not None and np.isnan(error).any():
            untold = ", ".join(np.array(names)[np.isnan(error)])
            words += f" There are none of {untold}: other columns determine these."
        return names, effect, error, dof, words


def compare_summaries(summaries: Mapping[str, Summary]):
    """Effects of several fits side by side.

    Parameters
    ----------
    summaries : mapping of str to Summary
        By the heading of its columns.

    Returns
    -------
    frame : pandas.DataFrame
        A row for every effect of any fit, in the order in which they appear, and columns
        (heading, "effect") and (heading, "std_error"); NaN where a fit has no such effect.

    Raises
    ------
    TypeError
        If a value is not a `Summary`.
    """
    import pandas as pd

    for name, value in summaries.items():
        if not isinstance(value, Summary):
            raise TypeError(
                f"{name!r} is a {type(value).__name__}: pass what summary() of a fit returns."
            )
    rows = list(dict.fromkeys(row for s in summaries.values() for row in s.names))
    frames = {
        name: s.effects_frame()[["effect", "std_error"]].reindex(rows)
        for name, s in summaries.items()
    }
    return pd.concat(frames, axis=1)


def _frame(columns, names):
    import pandas as pd

    return pd.DataFrame(columns, index=pd.Index(names, dtype=object))


def _cells(columns, names, digits=5):
    """Header and rows of strings; numbers with significant digits, NaN as nothing."""
    header = ["", *(_WORDS.get(name, name) for name in columns)]
    rows = [
        [str(name), *("" if math.isnan(c[i]) else f"{c[i]:.{digits}g}" for c in columns.values())]
        for i, name in enumerate(names)
    ]
    return header, rows


def _text(columns, names):
    header, rows = _cells(columns, names)
    widths = [max(len(line[j]) for line in [header, *rows]) for j in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    ]


def _html(caption, columns, names):
    header, rows = _cells(columns, names)
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        f'<tr><th style="text-align: left">{html.escape(row[0])}</th>'
        + "".join(f"<td>{cell}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"


def _in_math(cell):
    """A number with its minus sign and power of ten."""
    number, *power = cell.split("e")
    times = "".join(f" \\cdot 10^{{{int(p)}}}" for p in power)
    return f"${number}{times}$" if cell else ""


def _latex(columns, names):
    header, rows = _cells(columns, names, digits=4)
    special = str.maketrans(
        {c: "\\" + c for c in "&%$#_{}"} | {c: f"\\text{word}{{}}" for c, word in _LATEX.items()}
    )
    rows = [[name.translate(special), *map(_in_math, cells)] for name, *cells in rows]
    header = [name.translate(special) for name in header]
    lines = [" & ".join(line) + r" \\" for line in [header, *rows]]
    lines = ["{}" * line.startswith("[") + line for line in lines]  # no argument of the row before
    columns = f"@{{}}l{'r' * (len(header) - 1)}@{{}}"
    body = "\n".join([lines[0], r"\hline", *lines[1:]])
    return f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}"
