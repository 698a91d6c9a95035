"""Replay audit: only the releases of a fit may depend on one task's rows."""

import copyreg
import inspect
import io
import types
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..tables.forms import read_training
from . import noise_checks
from .costs import epsilon_of_tape
from .observation import closure, global_chance, lasting, observing
from .tape import Tape, TapeError, alike, distance, memory
from .uses import OWN, new_tasks, outcomes

# A row belongs to its task alone, as of what an estimator names as extras.
_ROWS = "coef_", "intercept_", "models_", "task_models_", "outlier_"
# What a fit of these guarantees computes is private altogether, the models of all tasks too.
_ALL_PUBLIC = ("task DP", "record DP")
_OF_TASKS = ("record-level DP (task-global)", "local DP per task")  # which add the noise
_TOLERANCE = 1e-9
_COST = 1e-6  # relative, for rounding and for the noise of Poisson batches that is searched for
_SAME = 1e-9  # relative, for what other tasks contribute: where their rows lie in memory matters
_MOST_FITS = 60


# ---------------------------------------------------------------- one fit, and what was seen
@dataclass
class Playback:
    """A fit with all that can be seen of it."""

    fitted: object  # None: `error` says why
    tape: Tape
    said: dict  # warnings, log lines, printed text, files and calls of callbacks
    lasting: dict  # see `skpmtl.privacy.observation.lasting`
    moved: list  # names of the random generators of the process that it drew from
    error: BaseException | None = None


@dataclass
class _Listener:
    """Callback of scikit-learn, which keeps what it is called with."""

    calls: list = field(default_factory=list)

    max_propagation_depth = None

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
    model, tape, listener = clone(estimator), Tape(played, with_queries=True), _Listener()
    if hasattr(model, "set_callbacks"):
        model.set_callbacks(listener)
    said, error, before = {}, None, global_chance()
    try:
        with observing(said), tape.running():
            model.fit(*data)
    except Exception as failure:
        error = failure
    said["calls of callbacks"] = listener.calls
    moved = [name for name, state in global_chance().items() if state != before[name]]
    return Playback(None if error else model, tape, said, lasting(estimator), moved, error)


# ---------------------------------------------------------------- the audit
def replay(estimator, data, neighbour, n_fits=None):
    """-> failures, Playback of `data`, largest (observed, stated) sensitivity, spread of noise"""
    first = observed_fit(estimator, data)
    if first.error is not None:
        raise first.error
    report = first.fitted.privacy_
    silent = report.guarantee in _OF_TASKS
    changed, n_rows, positions, table = changed_tasks(estimator, data, neighbour, silent)
    second = observed_fit(estimator, neighbour, first.tape)
    failures, worst = list(_unstated(report, first.tape)), (np.nan, np.nan)
    if not failures:
        failures += _costs(first)
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
        hidden = [] if report.guarantee in _ALL_PUBLIC else changed
        failures += _uses(first.fitted, second.fitted, table, hidden)
        failures += _queries(first.tape, second.tape, positions)
        seeded = getattr(estimator, "random_state", None) is not None
        failures += _own_replies(first.tape, second.tape, seeded)
    if _are_neighbours(report, len(changed), n_rows):
        found, worst = _sensitivities(first.tape, second.tape, report.adjacency)
        failures += found
    spread = np.nan
    if report.guarantee != "none":
        more = list(_more_noise(estimator, (neighbour, data), first.tape, n_fits))
        found, spread = _noise(first.tape, second.tape, more)
        failures += found
    return failures, first, worst, spread


# ---------------------------------------------------------------- noise and its cost
def _more_noise(estimator, pair, tape, n_fits):
    """Tapes of more fits, of the neighbour and of the data in turn, with noise of their own.

    They are given the releases of `tape`, so that fits of the same rows add their noise to the same
    sums. -> yield (whether of the data, tape)
    """
    enough = min(_MOST_FITS, noise_checks.fits_needed(tape))
    seeded = getattr(estimator, "random_state", None) is not None
    for number in range(enough if n_fits is None else n_fits):
        model, own = clone(estimator), Tape(tape, fresh=True)
        if seeded:  # the same seed would give the same noise again, which is no fault
            model.set_params(random_state=1_000_003 * (number + 1))
        try:
            with observing({}), own.running():
                model.fit(*pair[number % 2])
        except Exception:
            continue  # what fails depends on rows, which the replay says
        yield number % 2 == 1, own


def _noise(first, second, more):
    """-> failures of the noise of all fits, its spread

    The noise of `second` is made of the random bytes of `first`: it is compared only with that of
    other fits of the neighbour.
    """
    tapes = [first, *(tape for _, tape in more)]
    found = [
        f"Noise: release {place + 1} of fit {number + 1} is not on the public grid of its noise."
        for number, tape in enumerate(tapes)
        for place in list(noise_checks.off_grid(tape))[:1]
    ]
    noises = [noise for n, tape in enumerate(tapes) for noise in noise_checks.noise_of(tape, n)]
    steps = [
        noise_checks.differences([own, *(tape for of_data, tape in more if of_data == side)])
        for side, own in ((True, first), (False, second))
    ]
    found += noise_checks.failures(noises, np.concatenate(steps))
    return found, noise_checks.spread(noises)


def _own_replies(first, second, seeded):
    """What chance replies to two fits from the same random bytes, but for the rows."""
    found = {}
    for place, (a, b) in enumerate(zip(first.releases, second.releases, strict=True)):
        name, kind = f"{place + 1} ({a.entry['mechanism']})", None
        if not alike(a.reply, b.own.reply):
            kind = "form"
            text = f"Release: names, types or shapes of release {name} depend on the rows."
        elif any(True for _ in differing(a.behind, b.behind, "")):
            kind = "memory"
            text = f"Release: {name} is a view of memory with numbers that are not released."
        elif None in (a.bits, b.own.bits):
            continue  # a generator that cannot be made to repeat itself
        elif not len(a.values):
            if any(True for _ in differing(a.reply, b.own.reply, "")):
                kind = "draw"
                text = (
                    f"Draw: {name}, such as who takes part, depends on the rows, or on other "
                    "chance than that of the noise source."
                )
        elif a.bits or b.own.bits or seeded:
            same = len(a.bits) == len(b.own.bits)
            # A task may draw batches of its own from as many bytes as it has rows.
            own = "tasks" in a.entry and not same
            if not own and (not same or noise_checks.unlike(a, b.own)):
                kind = "noise"
                text = (
                    f"Noise: that of release {name} depends on the rows: the same random bytes "
                    "make another one of it."
                )
        if kind is not None:
            found.setdefault(kind, text)
    yield from found.values()


def _costs(first):
    """What the releases on the tape cost, against what the report states."""
    report, fitted = first.fitted.privacy_, first.fitted
    spent = epsilon_of_tape(report, first.tape, fitted)
    if spent is not None and spent > report.epsilon * (1.0 + _COST):
        yield (
            f"Cost: sensitivities and noise of the releases cost epsilon = {spent:.6g} at delta = "
            f"{report.delta:.6g}, but {report.epsilon:.6g} is stated."
        )


def changed_tasks(estimator, data, neighbour, silent_without_rows=False):
    """-> ids of the tasks whose rows or weights differ, in how many rows; their positions; table

    The table is that of `data`. Raises ValueError for other tasks or, with `silent_without_rows`,
    other tasks that have rows.
    """
    names, tables = list(inspect.signature(estimator.fit).parameters), []
    for given in (data, neighbour):
        reader = clone(estimator)
        reader = getattr(reader, "estimator", reader)  # of a search
        given = dict(zip(names, given, strict=False))
        X, y, task = (given.get(name) for name in ("X", "y", "task"))
        all_rows = hasattr(reader, "_counts_rows") and reader._counts_rows()
        table, _ = read_training(
            reader, X, y, task, given.get("sample_weight"), tasks=reader.tasks, all_rows=all_rows
        )
        tables.append(table)
    everybody = [table.everybody for table in tables]
    if not np.array_equal(*everybody):
        raise ValueError(
            "data and neighbour have other tasks, which are public: neighbours differ in the rows "
            "of one task."
        )
    if silent_without_rows and not np.array_equal(*(table.tasks for table in tables)):
        raise ValueError(
            "data and neighbour have other tasks with rows, which are public here: a task without "
            "rows sends nothing where tasks add their noise themselves."
        )
    changed, positions, n_rows = [], [], 0
    for position, task in enumerate(everybody[0].tolist()):
        (X, y, w), (X2, y2, w2) = (_rows_of(table, task) for table in tables)
        if X.shape != X2.shape:
            n_differ = max(len(y), len(y2))
        else:
            X, X2 = (x.toarray() if hasattr(x, "toarray") else x for x in (X, X2))
            n_differ = int(((X != X2).any(axis=1) | (y != y2) | (w != w2).any(axis=1)).sum())
        if n_differ:
            changed.append(task)
            positions.append(position)
            n_rows += n_differ
    return changed, n_rows, positions, tables[0]


def _rows_of(table, task):
    """-> X, y, and weights and levels, of the rows of a task"""
    k = np.flatnonzero(table.tasks == task)
    if not len(k):
        return table.X[:0], table.y[:0], np.empty((0, 1))
    X, y = table.task(k[0])
    rows = slice(table.offsets[k[0]], table.offsets[k[0] + 1])
    own = [table.counts[rows].astype(object)]
    if table.levels is not None:
        own += table.levels.values(rows)
    return X, y, np.stack(own, axis=1)


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
            verb = "depends" if what == "printed text" else "depend"
            yield f"Said: {what} {verb} on the rows."
    for name in sorted(set(first.lasting) | set(second.lasting)):
        if first.lasting.get(name) != second.lasting.get(name):
            yield f"Process: {name} holds what depends on the rows."
    for name in first.moved:
        yield (
            f"Process: the fit draws from {name}, from whose state anybody in the process can "
            "compute what was drawn."
        )
    a, b = first.fitted, second.fitted
    for name in _public_differences(a, b, changed, all_public, ""):
        yield f"Attribute: {name} depends on more than the releases."
    if str(a.privacy_) != str(b.privacy_):
        yield "Report: its text depends on the rows."
    try:
        billboards = [_saved(getattr(model, "best_estimator_", model)) for model in (a, b)]
    except ValueError:
        return  # of a class that others cannot go on with
    for name in differing(*billboards, "array"):
        yield f"File: {name} of the saved billboard depends on more than the releases."


def _uses(a, b, table, changed):
    """In what the use of two fits from the same releases differs, for tasks not in `changed`."""
    a, b = (getattr(model, "best_estimator_", model) for model in (a, b))
    if not (hasattr(a, "tasks_") and hasattr(b, "tasks_")):
        return
    newcomers = new_tasks(a.tasks_)
    (found, said), (found2, said2) = (outcomes(m, table, changed, newcomers) for m in (a, b))
    for what, lines in said.items():
        if lines != said2[what]:
            yield f"Said: {what} of what is called after the fit depend on the rows."
    names = {}
    for key in [*found, *(key for key in found2 if key not in found)]:
        name = key if isinstance(key, str) else key[0]
        if any(True for _ in differing(found.get(key), found2.get(key), "")):
            names[name] = f"Use: {name} depends on more than the releases."
    yield from names.values()


def _queries(first, second, changed):
    """What depends on more than the releases of what tasks are asked, and of what they answer.

    The rows of the tasks at the positions `changed` differ.
    """
    if len(first.queries) != len(second.queries):
        yield f"Query: there are {len(second.queries)} instead of {len(first.queries)}."
        return
    found = {}
    for number, (a, b) in enumerate(zip(first.queries, second.queries, strict=True)):
        where = f"query {number + 1} ({a.public['statistic']!r})"
        for name in differing(a.public, b.public, ""):
            found.setdefault(name, f"Query: {name} of {where} depends on more than the releases.")
        same = np.setdiff1d(np.intersect1d(a.positions, b.positions), changed)
        for name in a.contributions:
            left, right = (q.contributions[name][np.isin(q.positions, same)] for q in (a, b))
            size = np.abs(left[np.isfinite(left)]).max(initial=0)
            if not np.allclose(left, right, _SAME, _SAME * size, equal_nan=True):
                text = f"Query: {name!r} of other tasks in {where} depends on the rows of this one."
                found.setdefault((name, "contributions"), text)
    yield from found.values()


def _public_differences(a, b, changed, all_public, prefix):
    keep = np.ones(0, dtype=bool)
    if hasattr(a, "tasks_"):
        keep = ~np.isin(a.tasks_, [] if all_public else changed)
    names = [sorted(set(vars(model)) - OWN) for model in (a, b)]
    if names[0] != names[1]:
        for name in sorted(set(names[0]) ^ set(names[1])):
            yield f"{prefix}{name} (whether it is there)"
        return
    values = [{**vars(model), **_properties(model)} for model in (a, b)]
    for name in sorted((set(values[0]) & set(values[1])) - OWN):
        pair = [found[name] for found in values]
        if all(isinstance(value, BaseEstimator) for value in pair):
            yield from _public_differences(*pair, changed, all_public, f"{prefix}{name}.")
            continue
        of_tasks = (*_ROWS, *getattr(a, "_extras", ()))
        if name in of_tasks and all(np.shape(value)[:1] == keep.shape for value in pair):
            pair = [value[keep] for value in pair]
        yield from differing(*pair, prefix + name)
    if hasattr(a, "export_task") and hasattr(a, "tasks_"):
        for task in a.tasks_[keep].tolist():
            if any(True for _ in differing(a.export_task(task), b.export_task(task), "")):
                yield f"{prefix}export_task({task!r})"


def _properties(model):
    """Values of properties, such as models that are written out at every access."""
    found = {}
    for name, _ in inspect.getmembers(type(model), lambda member: isinstance(member, property)):
        try:
            value = getattr(model, name)
        except Exception:  # of another kind of fit
            continue
        if not callable(value):
            found[name] = value
    return found


def _saved(model):
    model = model._in_files() if hasattr(model, "_in_files") else model
    if not hasattr(model, "_billboard_file"):
        return {}  # of a method as published
    with np.load(io.BytesIO(model._billboard_file())) as file:
        return {name: file[name] for name in file.files}


def differing(a, b, name, seen=None):
    """Yield the names of the parts in which two values differ in a bit."""
    seen = {} if seen is None else seen
    if type(a) is not type(b):
        yield name
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"{name} (dtype or shape)"
        elif a.dtype.hasobject or a.dtype.kind == "T":
            yield from differing(a.tolist(), b.tolist(), name, seen)
        elif a.tobytes() != b.tobytes():
            yield name
        elif (memory(a) is not a or memory(b) is not b) and (id(a), id(b)) not in seen:
            seen[id(a), id(b)] = a, b
            yield from differing(memory(a), memory(b), f"{name}.base", seen)
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
    elif isinstance(a, (type, types.ModuleType, types.BuiltinFunctionType)):
        if a is not b:
            yield name
    elif (id(a), id(b)) not in seen:
        seen[id(a), id(b)] = a, b  # kept: others would get the ids of parts that are made for us
        parts = [_parts(value) for value in (a, b)]
        if None not in parts:
            yield from differing(*parts, name, seen)
        elif type(a).__eq__ is not object.__eq__ and a != b:
            yield name


def _parts(value):
    """What an object consists of; None where it does not say, as locks and generators."""
    if isinstance(value, (str, bytes, int, set, frozenset)) or value is None:
        return None
    if isinstance(value, types.FunctionType):
        given = value.__defaults__, value.__kwdefaults__, vars(value)
        return {"name": value.__qualname__, "closure": closure(value), "given": given}
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if hasattr(value, "iloc"):  # of pandas, whose insides are caches, too
        frame = value.to_frame() if value.ndim == 1 else value
        return {"dtypes": [str(kind) for kind in frame.dtypes], **frame.to_dict("split")}
    if hasattr(value, "__dict__") and type(value).__reduce__ is object.__reduce__:
        slots = copyreg._slotnames(type(value))
        return {**{n: getattr(value, n) for n in slots if hasattr(value, n)}, **vars(value)}
    try:
        return [list(p) if hasattr(p, "__next__") else p for p in value.__reduce_ex__(4)]
    except Exception:
        return None
