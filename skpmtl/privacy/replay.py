"""Does anything but the releases of a fit depend on one task's rows?"""

import io
import logging
import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..tables.forms import read_training
from .tape import Tape, TapeError, distance

_ROWS = ("coef_", "intercept_", "models_", "outlier_")  # a row belongs to its task alone
# What a fit of these guarantees computes is private altogether, the models of all tasks too.
_ALL_PUBLIC = ("task DP", "record DP")
_TOLERANCE = 1e-9


# ---------------------------------------------------------------- one fit, and what was seen
@dataclass
class Playback:
    """A fit with all that can be seen of it.

    Attributes
    ----------
    fitted : estimator or None
        None: `error` says why.
    tape : Tape
    said : dict of str to list
        Warnings, log lines and calls of callbacks.
    """

    fitted: object
    tape: Tape
    said: dict
    error: BaseException | None = None


@dataclass
class _Listener(logging.Handler):
    """Handler of the logger and callback of scikit-learn, which keep what they are told."""

    lines: list = field(default_factory=list)
    calls: list = field(default_factory=list)

    max_propagation_depth = None

    def __post_init__(self):
        logging.Handler.__init__(self, logging.DEBUG)

    __hash__ = logging.Handler.__hash__

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))

    def _call(self, event, context):
        self.calls.append((event, context.task_name, context.task_id, context.max_subtasks))

    def setup(self, estimator, context):
        self._call("setup", context)

    def teardown(self, estimator, context):
        self._call("teardown", context)

    def on_fit_task_begin(self, estimator, context):
        self._call("begin", context)

    def on_fit_task_end(self, estimator, context):
        self._call("end", context)


def observed_fit(estimator, data, played=None):
    """Fit a clone, on a new tape or on one that is played. -> Playback"""
    model, tape, listener = clone(estimator), Tape(played), _Listener()
    if hasattr(model, "set_callbacks"):
        model.set_callbacks(listener)
    logger = logging.getLogger("skpmtl")
    level, error = logger.level, None
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught, tape.running():
            warnings.simplefilter("always")
            model.fit(*data)
    except Exception as failure:
        error = failure
    finally:
        logger.setLevel(level)
        logger.removeHandler(listener)
    said = {
        "warnings": [(warning.category.__name__, str(warning.message)) for warning in caught],
        "log lines": listener.lines,
        "calls of callbacks": listener.calls,
    }
    return Playback(None if error else model, tape, said, error)


# ---------------------------------------------------------------- the audit
def replay(estimator, data, neighbour):
    """-> failures, Playback of `data`, largest (observed, stated) sensitivity"""
    first = observed_fit(estimator, data)
    if first.error is not None:
        raise first.error
    report = first.fitted.privacy_
    changed, n_rows = changed_tasks(estimator, data, neighbour)
    second = observed_fit(estimator, neighbour, first.tape)
    failures, worst = list(_unstated(report, first.tape)), (np.nan, np.nan)
    if isinstance(second.error, TapeError):
        failures.append(f"Releases: with the rows of the neighbour {second.error}.")
    elif second.error is not None:
        failures.append(
            f"Fit: with the rows of the neighbour it ends with {type(second.error).__name__}."
        )
    elif len(second.tape.releases) < len(first.tape.releases):
        failures.append(
            f"Releases: with the rows of the neighbour there are {len(second.tape.releases)} "
            f"instead of {len(first.tape.releases)}."
        )
    else:
        failures += _differences(first, second, changed, report.guarantee in _ALL_PUBLIC)
    if _are_neighbours(report, len(changed), n_rows):
        found, worst = _sensitivities(first.tape, second.tape, report.adjacency)
        failures += found
    return failures, first, worst


def changed_tasks(estimator, data, neighbour):
    """Ids of the tasks whose rows differ, and in how many rows."""
    tables = []
    for X, y, *rest in (data, neighbour):
        reader = clone(estimator)
        reader = getattr(reader, "estimator", reader)  # of a search
        tables.append(read_training(reader, X, y, *rest[:1], tasks=reader.tasks)[0])
    everybody = [table.everybody for table in tables]
    if not np.array_equal(*everybody):
        raise ValueError(
            "data and neighbour have other tasks, which are public: neighbours differ in the rows "
            "of one task."
        )
    changed, n_rows = [], 0
    for task in everybody[0].tolist():
        (X, y), (X2, y2) = (_rows_of(table, task) for table in tables)
        if X.shape != X2.shape:
            changed.append(task)
            n_rows += max(len(y), len(y2))
            continue
        X, X2 = (x.toarray() if hasattr(x, "toarray") else x for x in (X, X2))
        n_differ = int(((X != X2).any(axis=1) | (y != y2)).sum())
        if n_differ:
            changed.append(task)
            n_rows += n_differ
    return changed, n_rows


def _rows_of(table, task):
    k = np.flatnonzero(table.tasks == task)
    return table.task(k[0]) if len(k) else (table.X[:0], table.y[:0])


def _are_neighbours(report, n_tasks, n_rows):
    if report.unit == "person":
        return n_rows <= report.public_inputs["max_rows_per_unit"]
    number = report.unit.rpartition("record")[0]  # of records; nothing in "task"
    most = int(number or 1) if "record" in report.unit else np.inf
    return n_tasks == 1 and n_rows <= most


def _unstated(report, tape):
    """Noisy releases that the report does not list, or lists otherwise."""
    if report.guarantee == "none":
        yield f"Report: no guarantee is claimed ({report.notes.get('reason', report.mechanism)})."
        return
    made = [r.entry for r in tape.releases if len(r.values)]
    if any("tasks" in entry for entry in made):  # each by a task: the report lists the kinds
        listed_ones = {(e["sensitivity"], e["noise_std"]) for e in report.releases}
        found = {(e["sensitivity"], std) for e in made for std in e["noise_std"].tolist()}
        if found != listed_ones:
            yield "Report: noise or sensitivity of the releases of the tasks is not what it lists."
        return
    stated = [(e["sensitivity"], e["noise_std"]) for e in report.releases]
    found = [(e["sensitivity"], e["noise_std"]) for e in made]
    # A search lists what the winner released, and says so.
    if set(stated) - set(found) if "releases" in report.notes else stated != found:
        yield (
            f"Report: it lists {len(stated)} releases, and the fit made {len(found)}, or their "
            "noise or sensitivity differ."
        )


def _sensitivities(first, second, adjacency):
    """-> failures, (observed, stated) of the release that is nearest to its bound"""
    failures, worst = [], (np.nan, np.nan)
    # Where a neighbour is silent, two data sets are two such steps apart.
    steps = 2.0 if adjacency == "zero-out" else 1.0
    for place, (a, b) in enumerate(zip(first.releases, second.releases, strict=False)):
        if not len(a.values):
            continue
        stated, kind = a.entry["sensitivity"], a.entry["norm"]
        if a.values.shape != b.values.shape:
            failures.append(f"Sensitivity: release {place + 1} is of other shape.")
            continue
        seen = max(
            distance(left - right, kind) for left, right in zip(a.values, b.values, strict=True)
        )
        if not seen <= steps * stated * (1.0 + _TOLERANCE):
            failures.append(
                f"Sensitivity: release {place + 1} ({a.entry['mechanism']}) differs by {seen:.6g} "
                f"({kind}), but {steps * stated:.6g} is "
                f"{'twice what is stated' if steps > 1 else 'stated'}."
            )
        if not seen / (steps * stated) <= worst[0] / worst[1]:
            worst = seen, steps * stated
    return failures, worst


# ---------------------------------------------------------------- what others can see
def _differences(first, second, changed, all_public):
    """One text for every public thing in which two fits from the same releases differ."""
    for what, lines in first.said.items():
        if lines != second.said[what]:
            yield f"Said: {what} depend on the rows."
    a, b = first.fitted, second.fitted
    for name in _public_differences(a, b, changed, all_public, ""):
        yield f"Attribute: {name} depends on more than the releases."
    if str(a.privacy_) != str(b.privacy_):
        yield "Report: its text depends on the rows."
    try:
        boards = [_saved(getattr(model, "best_estimator_", model)) for model in (a, b)]
    except ValueError:
        return  # of a class that others cannot go on with
    for name in differing(*boards, "array"):
        yield f"File: {name} of the saved billboard depends on more than the releases."


def _public_differences(a, b, changed, all_public, prefix):
    keep = slice(None)
    if hasattr(a, "tasks_") and not all_public:
        keep = ~np.isin(a.tasks_, changed)
    names = [sorted(n for n in vars(m) if n.endswith("_") and n[:2] != "__") for m in (a, b)]
    if names[0] != names[1]:
        for name in sorted(set(names[0]) ^ set(names[1])):
            yield f"{prefix}{name} (whether it is there)"
        return
    if hasattr(a, "coef_") and "coef_" not in names[0]:  # written out at every access
        names[0].append("coef_")
    for name in names[0]:
        if name == "models_":
            continue
        values = [getattr(model, name) for model in (a, b)]
        if isinstance(values[0], BaseEstimator):
            yield from _public_differences(*values, changed, all_public, f"{prefix}{name}.")
            continue
        if name in _ROWS and np.shape(values[0]) == np.shape(values[1]):
            values = [value[keep] for value in values]
        yield from differing(*values, prefix + name)
    if hasattr(a, "export_task"):
        for task in a.tasks_[keep].tolist():
            if any(True for _ in differing(a.export_task(task), b.export_task(task), "")):
                yield f"{prefix}export_task({task!r})"


def _saved(model):
    with np.load(io.BytesIO(model._billboard_file())) as file:
        return {name: file[name] for name in file.files}


def differing(a, b, name, seen=None):
    """Yield the names of the parts in which two values differ in a bit."""
    seen = set() if seen is None else seen
    if type(a) is not type(b):
        yield name
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"{name} (dtype or shape)"
        elif a.dtype.hasobject or a.dtype.kind == "T":
            yield from differing(a.tolist(), b.tolist(), name, seen)
        elif a.tobytes() != b.tobytes():
            yield name
    elif isinstance(a, (float, complex, np.generic)):
        if np.asarray(a).tobytes() != np.asarray(b).tobytes():
            yield name
    elif isinstance(a, dict):
        if list(a) != list(b):
            yield f"{name} (keys)"
            return
        for key in a:
            yield from differing(a[key], b[key], f"{name}[{key!r}]", seen)
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            yield f"{name} (length)"
            return
        for place, pair in enumerate(zip(a, b, strict=True)):
            yield from differing(*pair, f"{name}[{place}]", seen)
    elif hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        if (id(a), id(b)) not in seen:
            seen.add((id(a), id(b)))
            yield from differing(vars(a), vars(b), name, seen)
    elif callable(a):
        if getattr(a, "__qualname__", a) != getattr(b, "__qualname__", b):
            yield name
    elif a != b:
        yield name
