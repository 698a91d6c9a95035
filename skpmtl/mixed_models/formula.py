"""Formulas with bars, ``y ~ x + (1 + x | g)``, and the columns that they stand for."""

import re
import warnings

import numpy as np

from ..tables.ids import listed

__all__ = ["Design", "grouping", "read_formula", "response_of"]

_INSTALL = "Formulas need the package formulae: pip install skpmtl[formula]"
# As R has them, without a prefix.
_NAMES = "exp", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "abs", "floor", "pi"
_FUNCTIONS = {name: getattr(np, name) for name in _NAMES}
# What R writes in another way than formulae: powers, and that they come before a sign; independent
# effects, effects without an intercept behind the slopes, and categories.
_INSIDE = r"[^()]*"
for _ in range(8):  # parentheses within each other
    _INSIDE = rf"[^()]*(?:\({_INSIDE}\)[^()]*)*"
_BAR = rf"\(((?:[^()|]|\({_INSIDE}\))*?)"
_POWER = rf"(?=\s*[\w.]+(?:\({_INSIDE}\))?\s*\*\*)"
_OF_POWER = rf"\*\*\s*[+-]?\s*[\w.]*(?:\({_INSIDE}\))?\s*\*\*"  # a power, without parentheses
_OF_R = (
    (r"\^", "**"),
    (rf"((?:[({{,=+<>-]|(?<!\*)\*)\s*-){_POWER}", r"\1 1 *"),
    (rf"(/\s*-){_POWER}", r"\1 1 /"),
    (r"\|\|", "|"),
    (rf"{_BAR}\s*(?:\+\s*0|-\s*1)\s*\|", r"(0 + \1 |"),
    (r"\|\s*(?:as\.)?factor\(\s*([\w.]+)\s*\)", r"| \1"),
    (r"\b(?:as\.)?factor\(", "C("),
)
_COLUMN = r"[^\W\d][\w.]*"
_PROBES = 64  # rows that are made up to see whether a term looks at other rows
_RANGE = (0.5, 2.0)  # of their numbers where no public one is given: logarithms and roots exist


def read_formula(formula):
    """Split a formula into its fixed and random parts.

    Parameters
    ----------
    formula : str

    Returns
    -------
    parts : dict
        "response" (str, a column or a term of columns such as ``log(y)``), "of_response" (set of
        str, its columns), "trials" (str or None, the second column of a response ``prop(k, n)``,
        whose first one is then "response"), "fixed" (str, the right-hand side), "random" (str, the
        left-hand side of the bar of the first grouping), "group" (str, its column, or several with
        ":" between), "others" (list of str, further groupings, which have intercepts alone),
        "correlated" (bool) and "variables" (set of str, of the right-hand side without the
        groupings).

    Raises
    ------
    ImportError
        Without the package formulae.
    ValueError
        For a formula that cannot be read, and for one without a grouping, or with slopes in more
        than one.
    """
    try:
        from formulae import model_description
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    if not isinstance(formula, str):
        raise TypeError(f"formula={formula!r} must be a string, such as 'y ~ x + (1 | g)'.")
    single = _grouped(formula)
    for pattern, written in _OF_R:
        single = re.sub(pattern, written, single)
    if re.search(_OF_POWER, single):
        raise ValueError(
            f"formula={formula!r}: write parentheses, as in a^(b^c), where a power is of a power."
        )
    # A grouping without random effects, whose rows are dependent all the same, is none of formulae.
    single, n_bare = re.subn(r"\(\s*0\s*\|", "(1 |", single)
    left = single.partition("~")[0].strip()
    if re.match(r"cbind\(", left) or re.fullmatch(rf"{_COLUMN}\s*/\s*{_COLUMN}", left):
        raise ValueError(
            f"formula={formula!r}: successes out of trials are written as prop(successes, trials)."
        )
    try:
        model = model_description(single)
    except Exception as error:  # formulae has no exception of its own
        raise ValueError(
            f"formula={formula!r} cannot be read: {error} Arithmetic stands in I(...)."
        ) from None
    if model.response is None:
        raise ValueError(f"formula={formula!r} has no target: write 'y ~ ...'.")
    by_group: dict = {}
    for term in model.group_terms:
        by_group.setdefault(str(term.factor.name), []).append(_name(term.expr))
    sloped = [name for name, terms in by_group.items() if terms != ["1"]]
    if not by_group or len(sloped) > 1:
        found = f"slopes in {', '.join(sloped)}" if sloped else "no grouping"
        raise ValueError(
            f"formula={formula!r} has {found}: it needs a grouping, as in 'y ~ x + (1 | g)', and "
            "slopes, as in (1 + x | g), in at most one."
        )
    group = (sloped or list(by_group))[0]
    others = [name for name in by_group if name != group]
    for name in by_group:
        if not all(re.fullmatch(_COLUMN, part) for part in name.split(":")):
            raise ValueError(f"The grouping {name!r} must be a column of the table.")
    if n_bare and (others or n_bare > 1):
        raise ValueError(
            f"formula={formula!r}: least squares, (0 | {group}), have one grouping: the task, "
            "within which rows may depend on each other."
        )
    bars = [
        left for left, right in re.findall(rf"{_BAR}\|\s*([\w.]+)\s*\)", single) if right == group
    ]
    if len(bars) > 1 and len(by_group[group]) > len(bars):
        raise ValueError(
            f"formula={formula!r}: effects of {group} are all correlated, in one bar, or all "
            f"independent, as in (1 + x || {group})."
        )
    random = [] if n_bare else by_group[group]
    fixed = [_name(term) for term in model.common_terms]
    if not fixed:
        raise ValueError(
            f"formula={formula!r} has no fixed effects: it needs one, or an intercept."
        )
    if "1" not in fixed:
        fixed.insert(0, "0")
    if "1" not in random:
        random.insert(0, "0")
    used = {name for term in model.common_terms for name in getattr(term, "var_names", ())}
    used |= {name for term in model.group_terms for name in getattr(term.expr, "var_names", ())}
    used -= {"", "pi"}  # literals
    response, trials = str(model.response.term.name), None
    if found := re.fullmatch(rf"prop\(\s*({_COLUMN})\s*,\s*({_COLUMN})\s*\)", response):
        response, trials = found.groups()
    return {
        "response": response,
        "of_response": set(getattr(model.response.term, "var_names", ())) - {"", "pi"},
        "trials": trials,
        "fixed": " + ".join(fixed),
        "random": " + ".join(random),
        "group": group,
        "others": others,
        "correlated": "||" not in formula and len(bars) < 2,
        "variables": used,
    }


def _grouped(formula):
    """The formula with I(...) for parentheses in arithmetic, which names of formulae leave out."""
    written, inside, quote = "", [False], ""
    for character in formula:
        quote = quote.replace(character, "") if quote else character * (character in "'\"`")
        if character in "({" and not quote:
            is_call = character == "{" or bool(re.search(r"[\w.]\s*$", written))
            written += "I" * (inside[-1] and not is_call)
            inside.append(is_call or inside[-1])
        elif character in ")}" and not quote and len(inside) > 1:
            inside.pop()
        written += character
    return written


def _name(term):
    if term.name == "Intercept":
        return "1"
    names = [str(part.name) for part in getattr(term, "components", ())] or [str(term.name)]
    return ":".join(f"`{name}`" if " " in name and "(" not in name else name for name in names)


class Design:
    """Columns of the fixed and random effects of a table.

    Parameters
    ----------
    parts : dict
        As of `read_formula`.
    data : pandas.DataFrame
        That the design is made of. Every row counts: missing values are refused.
    public : dict
        Public facts by column: the list of levels of a column of categories, or the range
        (low, high) of one of numbers. Other names are constants of the formula, such as knots.
    is_private : bool
        Whether levels and terms must not be functions of the rows.

    Attributes
    ----------
    names : list of str
        Of the columns of the fixed effects, without offsets.
    random_names : list of str

    Raises
    ------
    ValueError
        For missing columns or values, for categories without a public list under a budget, and for
        terms that depend on other rows, such as ``scale(x)``, under a budget.
    """

    def __init__(self, parts, data, public, is_private):
        self.parts, self.public, self.is_private = parts, public, is_private
        known = {name for name in public if name not in data}
        self.constants = {name: public[name] for name in known}
        self.variables = sorted(parts["variables"] - known)
        self.frame = self._typed(data)
        if is_private:
            self._check_row_by_row()
        self.fixed = self._matrices(parts["fixed"], self.frame)
        self.random = (
            self._matrices(parts["random"], self.frame) if parts["random"] != "0" else None
        )
        terms = self.fixed.common.terms
        self.offsets = [name for name in terms if name.startswith("offset(")]
        columns = list(self.fixed.common.as_dataframe().columns)
        self._kept = [j for j, name in enumerate(columns) if name not in self.offsets]
        self._offset = [j for j, name in enumerate(columns) if name in self.offsets]
        self.names = [columns[j] for j in self._kept]
        self.random_names = []
        if self.random is not None:
            self.random_names = list(self.random.common.as_dataframe().columns)

    def fitted(self):
        """-> fixed columns (N, p), offset (N,), random columns (N, q), of the rows of the fit"""
        fixed = _numbers(self.fixed.common)
        bare = np.zeros((len(fixed), 0))
        return self._split(fixed, bare if self.random is None else _numbers(self.random.common))

    def of(self, data):
        """The same of other rows."""
        frame = self._typed(data)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # unseen categories are refused before
            fixed = _numbers(self.fixed.common.evaluate_new_data(frame))
            random = np.zeros((len(fixed), 0))
            if self.random is not None:
                random = _numbers(self.random.common.evaluate_new_data(frame))
        return self._split(fixed, random)

    def _split(self, fixed, random):
        kept = fixed[:, self._kept] if self._offset else fixed
        return kept, fixed[:, self._offset].sum(axis=1), random

    def _matrices(self, side, frame):
        from formulae import design_matrices

        try:
            names = {"np": np, **_FUNCTIONS, **self.constants}
            with np.errstate(all="ignore"):
                return design_matrices(side, frame, na_action="error", extra_namespace=names)
        except KeyError as error:
            raise ValueError(
                f"{side!r} uses {error}, which is no column, and none of the functions C, I, bs, "
                f"center, offset, poly, scale, {', '.join(_NAMES)}, np.*: "
                "make a column of it first."
            ) from None
        except Exception as error:  # formulae has no exception of its own
            raise ValueError(f"{side!r} cannot be made of the table: {error}") from None

    def _typed(self, data):
        """The columns that are used, with categories as they are public or were in the fit."""
        import pandas as pd

        names = self.variables
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(f"The table has no columns {listed(missing)}.")
        frame = pd.DataFrame({name: data[name] for name in names}, index=data.index, copy=False)
        if not names:  # intercepts only: formulae needs a column to see how many rows there are
            frame["_"] = 0.0
        empty = [name for name in names if frame[name].isna().any()]
        if empty:
            raise ValueError(f"Columns {listed(empty)} have missing values: fill or drop rows.")
        for name in names:
            column = frame[name]
            if pd.api.types.is_bool_dtype(column):
                frame[name] = column.astype(float)
            elif not pd.api.types.is_numeric_dtype(column):
                levels = self._levels(name, column)
                codes = pd.Index(levels).get_indexer(column)
                if (codes < 0).any():
                    raise ValueError(
                        f"Column {name!r} has categories that are not in its list of "
                        f"{len(levels)}: name all that may occur in public={{{name!r}: [...]}}."
                    )
                # Ordered, because formulae takes only those levels of others that have rows.
                frame[name] = pd.Categorical.from_codes(codes, levels, ordered=True)
            elif not np.isfinite(column.to_numpy(dtype=float)).all():
                raise ValueError(f"Column {name!r} has values that are not finite.")
        return frame

    def _levels(self, name, column):
        if name in self.public:
            return list(self.public[name])
        if self.is_private:
            raise ValueError(
                f"Column {name!r} has categories, and their list would be read from private rows. "
                f"Pass the public list: public={{{name!r}: [...]}}."
            )
        seen = getattr(self, "frame", None)
        if seen is not None:
            return list(seen[name].cat.categories)
        if hasattr(column, "cat"):
            return list(column.cat.categories)
        levels = column.unique()
        if not all(isinstance(level, str) for level in levels):
            raise ValueError(
                f"Column {name!r} has values that are neither text nor of a type of numbers: "
                ".astype(float) makes numbers of it, and .astype(str) categories."
            )
        return sorted(levels)

    def _check_row_by_row(self):
        """Refuse terms that depend on other rows, found on rows that are made up.

        The rows that are made up follow from public numbers alone, and so does the error.
        """
        import pandas as pd

        rng, columns = np.random.default_rng(0), {}
        for name, column in self.frame.items():
            if hasattr(column, "cat"):
                levels = column.cat.categories
                codes = rng.permutation(np.arange(_PROBES) % len(levels))
                columns[name] = pd.Categorical.from_codes(codes, levels, ordered=True)
            else:
                low, high = self.public.get(name, _RANGE)
                columns[name] = low + (high - low) * rng.beta(2.0, 3.0, size=_PROBES)
        probe = pd.DataFrame(columns)
        for side in {self.parts["fixed"], self.parts["random"]} - {"0"}:
            whole = self._matrices(side, probe).common.as_dataframe()
            for rows in (slice(0, _PROBES // 2), slice(_PROBES // 2, None)):
                part = self._matrices(side, probe.iloc[rows].reset_index(drop=True)).common
                part = part.as_dataframe()
                same = [
                    name
                    for name in whole
                    if name in part and np.array_equal(whole[name].to_numpy()[rows], part[name])
                ]
                odd = [name for name in whole if name not in same]
                if odd:
                    raise ValueError(
                        f"Terms {listed(odd)} depend on other rows (their mean, spread, range or "
                        "knots), which are private. Write them with public numbers, such as "
                        "{(x - 50) / 10} in place of scale(x), or bs(x, knots=at, lower_bound=0, "
                        "upper_bound=100, center=False) with public={'at': [25, 50], "
                        "'x': (0, 100)}."
                    )


def _numbers(matrix):
    found = np.asarray(matrix.design_matrix, dtype=float)
    finite = np.isfinite(found)
    if not finite.all():
        # Names of terms, and not of columns, which have levels of categories in them.
        names = [name for name, part in matrix.slices.items() if not finite[:, part].all()]
        raise ValueError(
            f"Terms {listed(names)} have values that are not finite, as logarithms of numbers "
            "below zero or polynomials of a constant column do: change them, or drop these rows."
        )
    return found


def response_of(parts, data, public, is_private):
    """Numbers of a target that is a term, such as ``log(y)``, as those of any other term: (N,)"""
    side = f"0 + {parts['response']}"
    alone = {"fixed": side, "random": "0", "variables": parts["of_response"]}
    found, *_ = Design(alone, data, public, is_private).fitted()
    if found.shape[1] != 1:
        raise ValueError(f"The target {parts['response']!r} must be one column of numbers.")
    return found[:, 0]


def grouping(data, name):
    """Ids of a grouping: a column, or several joined, as ``school:class``. -> Series

    Raises ValueError for columns that the table lacks.
    """
    columns = name.split(":")
    missing = [column for column in columns if column not in data]
    if missing:
        raise ValueError(f"The table has no column {listed(missing)}.")
    if len(columns) == 1:
        return data[name]
    joined = data[columns[0]].astype(str)
    for column in columns[1:]:
        joined = joined + ":" + data[column].astype(str)
    return joined.where(data[columns].notna().all(axis=1))
