"""Fits of neighbours from the same releases: nothing else may differ, for every estimator."""

import dataclasses
import importlib.util
import logging
import warnings

import numpy as np
import pytest

from skpmtl import (
    DPMetaInit,
    MPMTLLowRank,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateSearch,
)
from skpmtl.exchange.protocol import Population, run
from skpmtl.model_protected import prior as empirical_bayes
from skpmtl.privacy import audit, noise_source
from skpmtl.privacy.tape import distance
from skpmtl.tables.forms import read_training
from skpmtl.tables.table import TaskTable
from tests.helpers.private_cases import (
    CASES,
    CHANGED,
    FIRST,
    N_ROWS,
    TASKS,
    arguments,
    everybody,
    labels,
    long_data,
    neighbour,
    replaced,
)

ALL = pytest.mark.parametrize("case", [case.param for case in CASES])
ONE_OF_EVERY = pytest.mark.parametrize("case", [case.param for case in FIRST.values()])


def check(case, other):
    if case.needs and not importlib.util.find_spec(case.needs):
        pytest.skip(f"needs {case.needs}")
    data = long_data(case.n_classes)
    return audit(
        case.estimator, arguments(case, data), arguments(case, other(case, data)), replay=True
    )


@ALL
def test_only_releases_depend_on_a_neighbour(case):
    result = check(case, neighbour)
    assert result.passed, str(result)
    if result.n_replayed and not case.sampled:
        # The neighbours are far apart, so that the check of sensitivities has something to see.
        assert result.sensitivity_observed > 0.01 * result.sensitivity_stated


@ALL
def test_only_releases_depend_on_all_rows(case):
    """Whatever is public and depends on rows comes from releases, which the report lists."""
    result = check(case, everybody)
    assert result.passed, str(result)


# ---------------------------------------------------------------- adversarial neighbours
def _filled(value):
    def rows(X, y):
        return np.full_like(X, value), np.full_like(y, value) if y.dtype.kind == "f" else y

    return rows


def _scaled(factor):
    def rows(X, y):
        return factor * X, factor * y if y.dtype.kind == "f" else y

    return rows


ROWS = {  # of the task, or of the record, that the neighbour has
    "1e150": _scaled(1e150),
    "1e308": _filled(1e308),
    "alternating 1e308": lambda X, y: (1e308 * np.sign(X), y),
    "denormal": _scaled(1e-310),
    "constant": _filled(7.0),
    "zero": _filled(0.0),
    "duplicate": lambda X, y: (np.repeat(X[:1], len(X), axis=0), np.repeat(y[:1], len(y))),
    "target 1e300": lambda X, y: (X, np.full_like(y, 1e300) if y.dtype.kind == "f" else y),
    "one row": lambda X, y: (X[:1], y[:1]),
    "one class": lambda X, y: (X, np.full_like(y, y[0])),
}


QUICK = ("1e150", "1e308", "one row", "one class")


@pytest.mark.parametrize(
    "rows",
    [pytest.param(rows, marks=() if rows in QUICK else pytest.mark.slow) for rows in ROWS],
)
@ONE_OF_EVERY
def test_adversarial_neighbours(case, rows):
    if rows in ("one row", "one class", "duplicate") and "MPMTL" in case.name and case.n_classes:
        pytest.skip("a task of one class is no valid input")
    if rows == "one row" and case.sizes_public:
        pytest.skip("numbers of rows are public")

    def other(case, data):
        X, y, task = data
        mine = np.flatnonzero(task == CHANGED)
        X, y = X[mine].copy(), y[mine].copy()
        part = slice(0, 1) if case.record else slice(None)
        if rows == "one row":
            X, y = ROWS[rows](X, y)
        else:
            X[part], y[part] = ROWS[rows](X[part], y[part])
        return replaced(data, CHANGED, X, y)

    result = check(case, other)
    assert result.passed, str(result)


@pytest.mark.slow
@ONE_OF_EVERY
def test_neighbour_of_twenty_thousand_rows(case):
    if case.sizes_public:
        pytest.skip("numbers of rows are public")

    def other(case, data):
        rng = np.random.default_rng(3)
        y = labels(rng.normal(size=20_000), case.n_classes)
        return replaced(data, CHANGED, rng.normal(size=(20_000, 3)), y)

    result = check(case, other)
    assert result.passed, str(result)


# ---------------------------------------------------------------- who is silent
class Sites:
    """Every task on a machine of its own; the bound of what each contributes is checked."""

    def __init__(self, est, table, population):
        self.halves, self.largest = [], 0.0
        for k in range(table.n_tasks):
            X, y = table.task(k)
            mine = TaskTable(X, y, np.array([0, len(y)]), table.tasks[k : k + 1])
            self.halves.append(est._half(mine, population))

    def answer(self, ask):
        answers, positions = [], []
        for k, half in enumerate(self.halves):
            local, mine = ask.local(np.array([k]))
            if not len(mine):
                continue
            rows = half.contributions(local)
            alone = ask.combine({name: np.array(row) for name, row in rows.items()}, mine)
            for name, mechanism in ask.mechanisms.items():
                size = distance(alone[name] / ask.divide, mechanism.norm)
                assert size <= mechanism.sensitivity * (1.0 + 1e-9), (name, size)
                self.largest = max(self.largest, size / mechanism.sensitivity)
            answers.append(rows)
            positions.append(mine)
        if not answers:
            return {name: np.zeros(m.shape) for name, m in ask.mechanisms.items()}
        rows = {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}
        return ask.combine(rows, np.concatenate(positions))


SILENT = [
    case
    for case in CASES
    if case.estimator.adjacency == "zero-out"
    and hasattr(case.estimator, "_curator")
    and "DPMetaInit" not in case.name
    and "LocalOnly" not in case.name
]


@pytest.mark.parametrize("case", [case.param for case in SILENT])
def test_a_silent_task_is_no_further_away_than_stated(case):
    """A replay compares two tasks that speak; here each one is compared with silence."""
    data = neighbour(case, everybody(case, long_data(case.n_classes)))
    est = case.estimator
    table, _ = read_training(est, *arguments(case, data), tasks=est.tasks)
    table, _ = est._encoded(table)
    population = Population.of(table)
    source = noise_source(None)
    sites = Sites(est, table, population)
    run(est._curator(population, source), sites, source)
    assert sites.largest > 0.4


# ---------------------------------------------------------------- planted faults
class Planted(PrivateMeanRegMTL):
    """An estimator to break; neighbours have larger rows in one task."""

    def _fit_table(self, table):
        fitted = super()._fit_table(table)
        self._spoil(fitted, table)
        return fitted

    def _spoil(self, fitted, table):
        pass


class Warns(Planted):
    def _spoil(self, fitted, table):
        if np.abs(table.X).max() > 10:
            warnings.warn("large rows", UserWarning, stacklevel=2)


class Logs(Planted):
    def _spoil(self, fitted, table):
        logging.getLogger("skpmtl").debug("largest number %.3g", np.abs(table.X).max())


class CountsSteps(Planted):
    def _spoil(self, fitted, table):
        fitted["n_iter_"] = int(np.abs(table.X).max())


class Tells(Planted):
    def _spoil(self, fitted, table):
        notes = {"rows": float(np.abs(table.X).max())}
        report = dataclasses.replace(fitted["privacy_"], notes=notes)
        fitted["privacy_"] = fitted["billboard_"].report = report


class PublishesMean(Planted):
    def _spoil(self, fitted, table):
        fitted["feature_means_"] = table.X.mean(axis=0)


class RareAttribute(Planted):
    def _spoil(self, fitted, table):
        if np.abs(table.X).max() > 10:
            fitted["large_rows_"] = True


class OnTheBoard(Planted):
    def _spoil(self, fitted, table):
        fitted["billboard_"].clip_norms[0] += 1e-12 * np.abs(table.X).max()


class OthersModels(Planted):
    """Each task's model gets a bit of the mean of all, exactly."""

    def _spoil(self, fitted, table):
        fitted["coef_"] += 1e-9 * fitted["coef_"].mean(axis=0)


class Fails(Planted):
    def _spoil(self, fitted, table):
        if np.abs(table.X).max() > 10:
            raise RuntimeError("too large")


class MeanStep(Planted):
    """Tasks take a step size of all tasks together."""

    def _half(self, table, population):
        tasks = super()._half(table, population)
        tasks.centred.prox_pull[:] = tasks.centred.prox_pull.mean()
        return tasks


class Rescales(Planted):
    """The noise depends on the rows."""

    def _fit_table(self, table):
        return self._with_clip(table, 1.0 + np.abs(table.X).max())

    def _with_clip(self, table, clip_norm):
        given, self.clip_norm = self.clip_norm, clip_norm
        try:
            return super()._fit_table(table)
        finally:
            self.clip_norm = given


class RunsLonger(Planted):
    """The number of releases depends on the rows."""

    def _n_rounds(self, epsilon):
        return 3 + self._more

    def _fit_table(self, table):
        self._more = int(np.abs(table.X).max() > 10)
        return super()._fit_table(table)


class Hidden(Planted):
    """One more noisy release, which the report leaves out."""

    def _spoil(self, fitted, table):
        mechanism = self._plan(Population.of(table), 1).mechanisms(1.0)[0]
        value = np.clip(table.X.mean(axis=0), -1e-3, 1e-3)
        fitted["extra_"] = mechanism.release(value, noise_source(None))


class Unclipped(MPMTLLowRank):
    def _fit_table(self, table):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(empirical_bayes, "directions", lambda W: W)
            return super()._fit_table(table)


class Unnoised(MPMTLLowRank):
    def _fit_table(self, table):
        with pytest.MonkeyPatch.context() as patch:
            name = "skpmtl.privacy.mechanisms._Mechanism.release"
            patch.setattr(name, lambda self, value, source: value)
            return super()._fit_table(table)


FAULTS = [
    (Warns, "Said: warnings depend on the rows."),
    (Logs, "Said: log lines depend on the rows."),
    (CountsSteps, "Attribute: n_iter_ depends on more"),
    (Tells, "Attribute: privacy_['notes']['rows'] depends on more"),
    (Tells, "Report: its text depends on the rows."),
    (PublishesMean, "Attribute: feature_means_ depends on more"),
    (RareAttribute, "Attribute: large_rows_ (whether it is there)"),
    (OnTheBoard, "Attribute: billboard_['clip_norms'][0] depends on more"),
    (OthersModels, "Attribute: coef_ depends on more"),
    (OthersModels, "Attribute: export_task(0) depends on more"),
    (Fails, "Fit: with the rows of the neighbour it ends with RuntimeError."),
    (MeanStep, "Sensitivity: release"),
    (Rescales, "Releases: with the rows of the neighbour release 1 (Gaussian) has other noise"),
    (RunsLonger, "Releases: with the rows of the neighbour"),
    (Hidden, "Report: it lists 10 releases, and the fit made 11"),
    (Unclipped, "Sensitivity: release 2 (symmetric Gaussian) differs by"),
    (Unnoised, "Report: it lists 3 releases, and the fit made 0"),
    (Unnoised, "Attribute: billboard_['moment'] depends on more"),
]


@pytest.mark.parametrize(("cls", "text"), FAULTS, ids=[f"{c.__name__}-{t[:9]}" for c, t in FAULTS])
def test_planted_faults_are_found(cls, text):
    data = long_data()
    rng = np.random.default_rng(1)
    X, score = 20.0 * rng.normal(size=(N_ROWS, 3)), 30.0 * rng.normal(size=N_ROWS)
    other = replaced(data, CHANGED, X, score)
    result = audit(cls(tasks=TASKS), data, other, replay=True)
    assert not result.passed
    assert any(failure.startswith(text) for failure in result.failures), str(result)
    # The same data are no neighbour: nothing is left to find but what the report leaves out.
    if cls not in (Hidden, Unnoised):
        assert audit(cls(tasks=TASKS), data, data, replay=True).passed


MULTICLASS = [case for case in CASES if case.n_classes == 3 and not case.needs]


@pytest.mark.parametrize("case", [case.param for case in MULTICLASS])
def test_a_label_of_one_task_alone(case):
    """Of three public classes the others have two; the neighbour brings the third, or does not."""

    def other(case, data):
        mine = data[2] == CHANGED
        X, y = data[0][mine].copy(), data[1][mine].copy()
        y[: 1 if case.record else 5] = 2
        return replaced(data, CHANGED, X, y)

    data = long_data(2)
    pair = arguments(case, data), arguments(case, other(case, data))
    for first, second in (pair, pair[::-1]):
        result = audit(case.estimator, first, second, replay=True)
        assert result.passed, str(result)


def test_classes_of_private_rows_are_found():
    X, y, task = data = long_data(2)
    mine = task == CHANGED
    other = replaced(data, CHANGED, X[mine], np.where(np.arange(mine.sum()) == 0, 7, y[mine]))
    result = audit(PrivateMeanRegMTLClassifier(tasks=TASKS), data, other, replay=True)
    assert not result.passed, str(result)


def test_unnoised_gradients_of_a_task_are_found():
    class Quiet(DPMetaInit):
        def _plan(self, of, people=False):
            plan = super()._plan(of, people)
            plan.noise_std = plan.noise_std / 2
            return plan

    case = next(case for case in CASES if case.record)
    data = long_data()
    result = audit(Quiet(tasks=TASKS), data, neighbour(case, data), replay=True)
    assert result.passed  # the report is of the same plan: half the noise is stated, and ...
    result = audit(Quiet(tasks=TASKS), data, neighbour(case, data), n_draws=40, random_state=0)
    assert any("cost epsilon" in text for text in result.failures), str(result)


# ---------------------------------------------------------------- the statistical audit
META = [case for case in CASES if "DPMetaInit" in case.name and not case.n_classes]


@pytest.mark.parametrize("case", [case.param for case in META if not case.unit])
def test_statistical_audit_of_meta_learning(case):
    if case.needs or case.estimator.secure:
        pytest.skip("slow to draw")
    data = long_data()
    pair = arguments(case, data), arguments(case, neighbour(case, data))
    result = audit(case.estimator, *pair, n_draws=40, random_state=0)
    assert result.passed, str(result)
    assert np.abs(np.array(result.noise_ratio) - 1.0).max() < 0.4


# ---------------------------------------------------------------- what an audit takes
def test_data_that_are_no_neighbours_are_judged_by_what_is_public():
    case = FIRST[MPMTLLowRank]
    data = long_data()
    result = audit(case.estimator, data, everybody(case, data), replay=True)
    assert result.passed and np.isnan(result.sensitivity_observed)
    assert "replay of 3 releases and draws" in str(result)
    with pytest.raises(ValueError, match="no draws to plot"):
        result.plot()


def test_fits_without_privacy_fail():
    data = long_data()
    for est in (MPMTLLowRank(epsilon=None), DPMetaInit(privacy=None), DPMetaInit(epsilon=None)):
        result = audit(est, data, neighbour(CASES[0], data), replay=True)
        assert any("no guarantee is claimed" in text for text in result.failures)


def test_what_cannot_be_replayed():
    data = long_data()
    with pytest.raises(ValueError, match="have other tasks"):
        audit(MPMTLLowRank(), data, [part[data[2] > 0] for part in data], replay=True)
    with pytest.raises(ValueError, match="needs data and neighbour"):
        audit(MPMTLLowRank(), data, replay=True)
    with pytest.raises(ValueError, match="for estimators"):
        audit(empirical_bayes, data, data, replay=True)
    with pytest.raises(ValueError, match="NaN"):
        audit(MPMTLLowRank(), (data[0] * np.nan, *data[1:]), data, replay=True)


def test_a_search_is_replayed():
    case = FIRST[MPMTLLowRank]
    data = long_data()
    search = PrivateSearch(
        MPMTLLowRank(tasks=TASKS), {"n_releases": [1, 2]}, n_trials=3, selection="compose",
        random_state=0, scoring="neg_mean_squared_error", score_range=(-1.0, 0.0),
    )  # fmt: skip
    result = audit(search, data, neighbour(case, data), replay=True)
    assert result.passed, str(result)
