"""Faults that are planted in estimators are found by a replay.

In noise and its last digits, in budgets, in who takes part, in memory, in what others can see of a
fit, and in what is called after it.
"""

import dataclasses
import functools
import logging
import os
import sys
import warnings
import zlib

import numpy as np
import pytest

from skpmtl import DPMetaInit, PrivateMTL, PrivateMTLClassifier
from skpmtl.course import queries
from skpmtl.course.curator import Loop
from skpmtl.course.queries import Moment
from skpmtl.exchange.protocol import Population
from skpmtl.meta.tasks import MetaTaskSide
from skpmtl.networks import rounds as rounds_module
from skpmtl.networks.rounds import PiecewiseGaussian
from skpmtl.privacy import VectorGaussian, audit, mechanisms
from skpmtl.privacy.mechanisms import clip_rows
from skpmtl.privacy.replay import changed_tasks
from skpmtl.privacy.rng import SystemSource, noise_source
from skpmtl.privacy.uses import new_tasks, outcomes
from tests.helpers.cases import (
    CASES,
    CHANGED,
    FIRST,
    N_ROWS,
    TASKS,
    arguments,
    every,
    fitted,
    long_data,
    replaced,
)
from tests.helpers.linear_rounds import LinearRounds

ROUNDS = {"tasks": TASKS, "n_rounds": 6}
LOOP = {"tasks": TASKS, "epsilon": 1e3, "structure": "low-rank", "levels": "free"}
DRAWN = {"tasks": TASKS, "tasks_per_round": 2, "inner_steps": 2, "visits": 6}
KEPT = {}  # what a faulty estimator keeps for later


def pair(offset=0.0):
    """Data, and a neighbour whose rows are larger in one task."""
    data, rng = long_data(), np.random.default_rng(1)
    X, score = offset + 20.0 * rng.normal(size=(N_ROWS, 3)), 30.0 * rng.normal(size=N_ROWS)
    return data, replaced(data, CHANGED, X, score)


def failures(estimator, n_draws=0, data=None):
    """What a replay finds; without tests of noise, which need more fits, for `n_draws` = 0."""
    result = audit(estimator, *(data or pair()), n_draws=n_draws)
    assert result.passed == (not result.failures)
    return result.failures


def kinds(found):
    return {text.partition(":")[0] for text in found}


def finds(text, estimator, n_draws=0, data=None):
    found = failures(estimator, n_draws, data)
    assert any(text in failure for failure in found), found
    return found


def largest(table):
    return float(np.abs(table.X).max())


# ---------------------------------------------------------------- faulty noise
class Source(SystemSource):
    """Noise of the operating system that a fault is made of: `fault(z, kept, rows)`."""

    def __init__(self, fault, rows=None):
        self.fault, self.kept, self.rows = fault, {}, rows

    def normal(self, size):
        return self.fault(super().normal(size), self.kept, self.rows)

    def chisquare(self, degrees):
        return self.fault(super().chisquare(degrees), self.kept, self.rows)


class KeepsRows:
    """Mixin: the rows of a fit are kept where an audit does not see them."""

    def _fit_table(self, table):
        self._rows = table
        try:
            return super()._fit_table(table)
        finally:
            del self._rows


def with_noise(fault, cls=LinearRounds):
    class Noisy(KeepsRows, cls):
        def _source(self):
            return Source(fault, self._rows)

    return Noisy


def halved(z, kept, rows):
    return 0.5 * z


def reused(z, kept, rows):
    """The same numbers whenever as many are needed."""
    return kept.setdefault(z.shape, z).copy()


def of_the_rows(z, kept, rows):
    """The same noise for the same data."""
    kept["calls"] = kept.get("calls", 0) + 1
    seed = [zlib.crc32(rows.X.tobytes()), kept["calls"]]
    return np.random.default_rng(seed).normal(size=z.shape)


@pytest.mark.parametrize(
    ("fault", "n_rounds", "n_draws"), [(reused, 6, None), (of_the_rows, 24, 8)]
)
def test_noise_that_is_used_again(fault, n_rounds, n_draws):
    found = finds("are used again", with_noise(fault)(tasks=TASKS, n_rounds=n_rounds), n_draws)
    assert kinds(found) == {"Noise"}


LAWS = [  # of vectors and matrices, and of the tasks' own noise
    PrivateMTL(**LOOP),
    DPMetaInit(tasks=TASKS, inner_steps=3),
    DPMetaInit(tasks=TASKS, privacy="local"),
]


@pytest.mark.parametrize("estimator", LAWS, ids=["loop", "global", "local"])
def test_half_the_noise_of_every_law(estimator):
    """Means over 20 fits of releases of 4 numbers spread by .06; 0.8 is a chance of 1e-7."""
    est = with_noise(halved, type(estimator))(**estimator.get_params())
    result = audit(est, *pair(), n_draws=20)
    assert any("times the stated std" in text for text in result.failures)
    assert 0.3 < result.noise_ratio < 0.8


def test_noise_off_the_grid(monkeypatch):
    monkeypatch.setattr(mechanisms, "add_on_grid", lambda value, n, step: value + n * step)
    assert len(finds("not on the public grid", PrivateMTL(**LOOP))) == 1


def test_noise_that_is_skipped_for_one_task(monkeypatch):
    draw = MetaTaskSide._noise_steps

    def noise_steps(task_side, block, shape, source):
        noise = draw(task_side, block, shape, source)
        noise[block == 2] = 0.0
        return noise

    monkeypatch.setattr(MetaTaskSide, "_noise_steps", noise_steps)
    found = finds("released numbers have none", DPMetaInit(tasks=TASKS, inner_steps=3), None)
    assert any("Noise: that of task at position 2 has" in text for text in found)


def wasted(z, kept, rows):
    """How many random bytes there are before the noise follows the rows."""
    source = noise_source(None)
    source.normal(int(largest(rows)))
    return source.normal(z.shape)


def signed(z, kept, rows):
    """The sign of some of the noise follows the rows: its law is what is stated."""
    z[-1:] *= np.sign(largest(rows) - 10.0)
    return z


@pytest.mark.parametrize(
    "fault", [lambda z, kept, rows: z * (1.0 + 1e-3 * largest(rows)), signed, wasted]
)
def test_noise_that_follows_rows(fault):
    found = failures(with_noise(fault)(**ROUNDS))
    assert len(found) == 1 and "the same random bytes make another one" in found[0]


def test_noise_of_the_random_state_of_the_process():
    state = with_noise(lambda z, kept, rows: np.random.standard_normal(z.shape))  # noqa: NPY002
    assert "Process" in kinds(failures(state(**ROUNDS)))


def test_many_sound_fits_raise_no_alarm():
    """Noise of sound mechanisms, of all laws, is what is stated."""
    for estimator in LAWS:
        result = audit(estimator, *([long_data()] * 2), n_draws=8)
        assert result.passed, str(result)
        assert result.confidence == 1.0 - 1e-9


# ---------------------------------------------------------------- the last digits
def _rounded_to(multiple, offset=0):
    add = mechanisms.add_on_grid
    return lambda value, n, step: add(value, multiple * np.rint(n / multiple) + offset, step)


def _without_bit(bit):
    add = mechanisms.add_on_grid
    return lambda value, n, step: add(value, n - (n.astype(np.int64) & (1 << bit)), step)


LAST_DIGITS = {
    "threes": _rounded_to(3, 1),
    "bit 5": _without_bit(5),
}


@pytest.mark.parametrize("digits", LAST_DIGITS)
def test_noise_that_leaves_the_last_digits(digits, monkeypatch):
    monkeypatch.setattr(rounds_module, "add_on_grid", LAST_DIGITS[digits])
    found = failures(LinearRounds(**ROUNDS), 60)
    named = ["own last digits are released" in text for text in found]
    repeated = ["used again" in text for text in found]  # as coarse noise may be
    assert any(named) and all(map(bool.__or__, named, repeated)), found


class Even(VectorGaussian):
    def _noise_steps(self, source):
        return 2.0 * np.rint(0.5 * super()._noise_steps(source))


def test_even_noise_of_a_mechanism():
    assert "bit 0 is no fair coin" in str(audit(Even(2, 1.0, 1.0), n_draws=100))
    assert audit(VectorGaussian(2, 1.0, 1.0), n_draws=100).passed


# ---------------------------------------------------------------- budgets
def test_a_share_of_twice_its_budget(monkeypatch):
    """The shares add up, and moments have the noise of more than theirs."""
    moment = Moment.mechanism

    def less_noise(question, adjacency, mu, *name):
        return moment(question, adjacency, 2 * mu, *name)

    monkeypatch.setattr(Moment, "mechanism", less_noise)
    finds("Cost: ", PrivateMTL(**LOOP))


def test_shares_that_are_more_than_the_budget(monkeypatch):
    """Without the filter on what is spent, and with half as much again for every question."""
    ask = Loop.ask_sums

    def half_as_much_again(loop, question, shares, *name):
        spent, loop.spent = loop.spent, -np.inf
        more = {of: 1.5 * share for of, share in shares.items()}
        found = yield from ask(loop, question, more, *name)
        loop.spent = spent + sum(shares.values())
        return found

    monkeypatch.setattr(Loop, "ask_sums", half_as_much_again)
    finds("Cost: ", PrivateMTL(**LOOP))


class DearRounds(LinearRounds):
    """The stated noise is that of half the rounds, in the report as well."""

    def _plan(self, *given):
        plan = super()._plan(*given)
        plan.noise_multiplier /= np.sqrt(2.0)
        return plan


@pytest.mark.parametrize("curator", ["trusted", "servers"])
def test_noise_that_is_too_small_for_the_budget(curator):
    finds("Cost: ", DearRounds(**ROUNDS, curator=curator))


class DearMeta(DPMetaInit):
    def _plan(self, *given, **more):
        plan = super()._plan(*given, **more)
        if not getattr(plan, "spoilt", False):
            plan.noise_std, plan.spoilt = 0.7 * plan.noise_std, True
        return plan


@pytest.mark.parametrize(
    "options",
    [
        {"inner_steps": 3},
        {"inner_steps": 5, "batches": "disjoint", "batch_size": 4},
        {"privacy": "local", "visits": 2},
        {"inner_steps": 2, "group_size": 3},
        {"inner_steps": 2, "max_rows_per_unit": 6},
        {"inner_steps": 2, "batches": "poisson", "batch_size": 4},
    ],
    ids=["full", "disjoint", "local", "group", "person", "poisson"],
)
def test_own_noise_of_tasks_that_is_too_small(options):
    if options.get("batches") == "poisson":
        pytest.importorskip("dp_accounting")
    data = pair()
    if "max_rows_per_unit" in options:
        data = [(*rows, np.arange(len(rows[2])) % N_ROWS) for rows in data]
    finds("Cost: ", DearMeta(tasks=TASKS, **options), 0, data)


# ---------------------------------------------------------------- who takes part
class SelectsNearly(KeepsRows, DPMetaInit):
    """Chance decides, but tasks with large rows have better chances."""

    def _source(self):
        largest = np.abs(self._rows.X).reshape(len(TASKS), -1).max(axis=1)

        class Source(SystemSource):
            def permutation(self, n):
                return np.argsort(self.uniform(n) - 0.1 * largest[:n])

        return Source()


def test_participants_that_follow_rows():
    found = failures(SelectsNearly(**DRAWN))
    assert kinds(found) == {"Draw"} and "who takes part" in found[0]


# ---------------------------------------------------------------- what others can see
def spoilt(spoil):
    """Rounds after which `spoil(est, fitted, table)` is called."""

    class Spoilt(LinearRounds):
        def _fit_table(self, table):
            fitted = super()._fit_table(table)
            spoil(self, fitted, table)
            return fitted

    return Spoilt


def when_large(action):
    return lambda est, fitted, table: action(fitted) if largest(table) > 10 else None


@functools.lru_cache
def cached(value):
    return value


ELSEWHERE = logging.getLogger("elsewhere")  # an audit listens to loggers that are there before it
ELSEWHERE.propagate = False


def logs_elsewhere(est, fitted, table):
    ELSEWHERE.info("largest %r", largest(table))


def tells(est, fitted, table):
    report = dataclasses.replace(fitted["privacy_"], notes={"rows": largest(table)})
    fitted["privacy_"] = fitted["billboard_"].report = report


def nests(est, fitted, table):
    """An estimator's name comes before that of what depends on the rows."""
    fitted.update(feature_means_=table.X.mean(axis=0), base_=PrivateMTL())


def encloses(est, fitted, table):
    top = largest(table)
    est.compare = lambda x: x > top


def on_the_billboard(est, fitted, table):
    fitted["billboard_"].clip_norms[0] += 1e-12 * largest(table)


def others_models(est, fitted, table):
    """Each task's model gets a bit of the mean of all, exactly."""
    fitted["coef_"] += 1e-9 * fitted["coef_"].mean(axis=0)


def extra_release(est, fitted, table):
    mechanism = est._plan(Population.of(table)).update_mechanism()
    value = np.clip(table.X.mean(axis=0), -1e-3, 1e-3)
    fitted["extra_"] = mechanism.release(value, noise_source(None))


def rare_release(est, fitted, table):
    """One that a neighbour does not make."""
    if largest(table) <= 10:
        extra_release(est, fitted, table)


def warns(fitted):
    warnings.warn("large rows", UserWarning, stacklevel=2)


def fails(fitted):
    raise RuntimeError("too large")


SPOILS = {
    "Attribute: cache['rows'][0] depends": lambda est, fitted, table: setattr(
        est, "cache", {"rows": [np.abs(table.X).max(axis=0)]}
    ),
    "Attribute: compare['closure']['top'] depends": encloses,
    "Attribute: larger[": lambda est, fitted, table: setattr(
        est, "larger", functools.partial(max, largest(table))
    ),
    "Attribute: n_iter_ depends on more": lambda est, fitted, table: fitted.update(
        n_iter_=int(largest(table))
    ),
    "Attribute: feature_means_ depends on more": nests,
    "Attribute: large_rows_ (whether it is there)": when_large(
        lambda fitted: fitted.update(large_rows_=True)
    ),
    "Attribute: billboard_['clip_norms'][0] depends on more": on_the_billboard,
    "Attribute: coef_ depends on more": others_models,
    "Attribute: export_task(0) depends on more": others_models,
    "Attribute: privacy_['notes']['rows'] depends on more": tells,
    "Report: its text depends on the rows.": tells,
    "Report: it lists 6 releases, and the fit made 7": extra_release,
    "Releases: with the rows of the neighbour there are 6 instead of 7.": rare_release,
    "Fit: with the rows of the neighbour it ends with RuntimeError.": when_large(fails),
    "Said: warnings depend on the rows.": when_large(warns),
    "Said: log lines depend on the rows.": lambda est, fitted, table: logging.getLogger(
        "skpmtl"
    ).debug("largest number %.3g", largest(table)),
    "Said: log lines depend": logs_elsewhere,
    "Said: printed text depends": lambda est, fitted, table: print(largest(table)),
    "Said: printed text depends on": lambda est, fitted, table: print(
        largest(table), file=sys.stderr
    ),
    "Said: printed text": lambda est, fitted, table: os.write(1, f"{largest(table)}\n".encode()),
    "test_replay_faults.KEPT holds": lambda est, fitted, table: KEPT.update(top=largest(table)),
    "test_replay_faults.cached holds": lambda est, fitted, table: cached(largest(table)),
}


@pytest.mark.parametrize("text", SPOILS)
def test_side_channels(text):
    est, data, kind = spoilt(SPOILS[text])(**ROUNDS), pair(100.0), text.partition(":")[0]
    found = finds(text, est, 0, data)
    if kind in ("Fit", "Said") or kind == text:
        assert kinds(found) == {kind if kind != text else "Process"}


def every_sound(est, fitted, table):
    """All of these but releases that the report leaves out."""
    for spoil in SPOILS.values():
        if spoil not in (extra_release, rare_release):
            spoil(est, fitted, table)


@pytest.mark.parametrize("spoil", [every_sound, extra_release, rare_release])
def test_the_same_data_are_no_neighbour(spoil):
    """Nothing is left to find but what the report leaves out."""
    sound = failures(spoilt(spoil)(**ROUNDS), 0, pair(100.0)[:1] * 2) == ()
    assert sound == (spoil is every_sound)


def test_files(tmp_path):
    def saves(est, fitted, table):
        np.save(tmp_path / "rows.npy", table.X)

    assert failures(spoilt(saves)(**ROUNDS)) == ("Said: files depend on the rows.",)


# ---------------------------------------------------------------- releases
class MeanStep(LinearRounds):
    """Tasks take a step size of all tasks together."""

    def _task_side(self, table, population):
        tasks, size = super()._task_side(table, population), np.square(table.X).mean()
        send = tasks.contributions

        def contributions(query):
            sent = 20.0 * send(query)["update"] / size
            clip_rows(sent, query.public["clip_norm"])
            return {"update": sent}

        tasks.contributions = contributions
        return tasks


class Rescales(LinearRounds):
    """The noise depends on the rows."""

    def _fit_table(self, table):
        given = self.clip_norm
        self.clip_norm = given + int(largest(table) > 10)
        try:
            return super()._fit_table(table)
        finally:
            self.clip_norm = given


class Unclipped(PrivateMTL):
    def _fit_table(self, table):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queries, "_balls", lambda sent, radius: np.array(sent))
            return super()._fit_table(table)


class Unnoised(PrivateMTL):
    def _fit_table(self, table):
        with pytest.MonkeyPatch.context() as patch:
            name = "skpmtl.privacy.mechanisms.Mechanism.release"
            patch.setattr(name, lambda self, value, source: value)
            return super()._fit_table(table)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (MeanStep, "Sensitivity: release"),
        (Rescales, "Releases: with the rows of the neighbour release 1 (Gaussian) has other noise"),
        (Unclipped, "Sensitivity: release 3 (Gaussian) differs by"),
        (Unnoised, "Attribute: billboard_['column_scale'] depends on more"),
    ],
)
def test_releases_that_are_not_as_stated(cls, text):
    est, data = cls(**LOOP if issubclass(cls, PrivateMTL) else ROUNDS), pair(100.0)
    found = finds(text, est, 0, data)
    assert any("releases, and the fit made 0" in one for one in found) == (cls is Unnoised)
    # The same data are no neighbour: nothing is left to find but what the report leaves out.
    assert (failures(est, 0, data[:1] * 2) == ()) == (cls is not Unnoised)


def test_classes_of_private_rows_are_found():
    X, _, task = long_data()
    one = (task == CHANGED) & (np.arange(len(task)) % 2 > 0)  # no other task has this class
    pair = [(X, np.where(one, label, 0), task) for label in (1, 7)]
    result = audit(PrivateMTLClassifier(tasks=TASKS), *pair, n_draws=0)
    assert any(text.startswith("Attribute: classes_") for text in result.failures), str(result)


# ---------------------------------------------------------------- memory and form of releases
def _view(mechanism, value, source, plain=PiecewiseGaussian._noisy):
    block = np.stack([value, value])
    plain(mechanism, block[1], source)
    return block[1]


def test_a_release_that_is_a_view_of_the_exact_sum(monkeypatch):
    monkeypatch.setattr(PiecewiseGaussian, "_noisy", _view)
    found = failures(LinearRounds(**ROUNDS))
    assert kinds(found) <= {"Release", "Attribute"}
    assert any("is a view of memory with" in text for text in found)


class KeepsSum(KeepsRows, LinearRounds):
    """What is published lies in the memory of the rows."""

    def _fit_table(self, table):
        fitted = super()._fit_table(table)
        mean = fitted["mean_coef_"]
        block = np.stack([mean, table.X.mean(axis=0)])
        fitted["mean_coef_"] = block[0]
        return fitted


def test_an_attribute_that_is_a_view_of_private_memory():
    assert [text[:31] for text in failures(KeepsSum(**ROUNDS))] == [
        "Attribute: mean_coef_.base depe"
    ]


class Typed(KeepsRows, LinearRounds):
    """The type of the released numbers follows the rows."""

    def _curator(self, population, source):
        release = PiecewiseGaussian._noisy
        large = np.abs(self._rows.X).max() > 10

        def noisy(mechanism, value, source):
            out = release(mechanism, value, source)
            return out.astype(np.longdouble) if large else out

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PiecewiseGaussian, "_noisy", noisy)
            return (yield from super()._curator(population, source))


def test_types_of_releases_that_follow_rows():
    assert "types or shapes of release 1" in failures(Typed(**ROUNDS))[-1]


# ---------------------------------------------------------------- what tasks are asked
class AsksByRows(LinearRounds):
    """A public number of the queries is read from rows, and has no effect on the releases."""

    def _task_side(self, table, population):
        self._quantile = float(np.quantile(table.y, 0.9))
        return super()._task_side(table, population)

    def _curator(self, population, source):
        curator, reply = super()._curator(population, source), None
        while True:
            try:
                query = curator.send(reply)
            except StopIteration as end:
                return end.value
            if hasattr(query, "public"):
                query.public["level"] = self.__dict__.pop("_quantile", None)
            reply = yield query


def test_questions_that_follow_rows():
    finds("Query: ['public']['level'] of query 1", AsksByRows(**ROUNDS))


class ClipsByRows(LinearRounds):
    """Tasks bound what they send by the longest row of all tasks."""

    def _task_side(self, table, population):
        tasks, longest = super()._task_side(table, population), np.abs(table.X).max()
        send = tasks.contributions

        def contributions(query):
            return {name: value / (1.0 + longest) for name, value in send(query).items()}

        tasks.contributions = contributions
        tasks.answer = lambda query: query.combine(contributions(query), np.arange(len(TASKS)))
        return tasks


def test_contributions_that_follow_the_rows_of_others():
    finds("of other tasks in query 1", ClipsByRows(**ROUNDS))


# ---------------------------------------------------------------- what is called after the fit
class Predicts(LinearRounds):
    """Unseen tasks are predicted by the mean of the models of all tasks."""

    def predict(self, X, task=None, return_std=False):
        if np.isin(task, self.tasks_).all():
            return super().predict(X, task, return_std)
        return X @ self.coef_.mean(axis=0)


class Welcomes(LinearRounds):
    """Newcomers begin at the mean of the models of all tasks."""

    def _personalize_table(self, table):
        coef, intercept, *_ = super()._personalize_table(table)
        if "coef_" in vars(self):
            coef = 0.5 * coef + 0.5 * self.coef_.mean(axis=0)
        return coef, intercept


class Compares(LinearRounds):
    """A method of its own compares a task with the others."""

    def distance(self, task):
        return np.linalg.norm(self.coef_ - self.export_task(task)["coef"], axis=1).mean()


class Shows(LinearRounds):
    def __repr__(self, *given):
        return f"{super().__repr__(*given)} {getattr(self, 'coef_', np.zeros(1)).mean()}"


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Predicts, "Use: predict for unseen tasks"),
        (Welcomes, "Use: predict for new tasks"),
        (Compares, "Use: distance for other tasks"),
        (Shows, "Use: repr"),
    ],
)
def test_what_is_called_after_a_fit(cls, text):
    found = failures(cls(**ROUNDS))
    assert any(one.startswith(text) for one in found), found
    assert kinds(found) == {text.partition(":")[0]}


USED = [FIRST[cls] for cls in (PrivateMTL, PrivateMTLClassifier, DPMetaInit)]


@every([*USED, *(case for case in CASES if case.form == "levels")])
def test_other_and_new_tasks_are_really_predicted(case):
    """What every fit refuses would be the same in all of them."""
    est, data = fitted(case)
    given = arguments(case, data)
    table = changed_tasks(est, given, given)[3]
    found, _ = outcomes(est, table, [CHANGED], new_tasks(est.tasks_))
    for whose in ("other tasks", "new tasks"):
        for name in ("predict", "score", "export_task"):
            values = [found[k] for k in found if f"{name} for {whose}" in (k, k[0])]
            assert values and not any(isinstance(value, tuple) for value in values)
    new = found["attributes after personalize"]["coef_"]
    assert len(new) == 2 and np.isfinite(new).all() and len(est.tasks_) == len(TASKS)


class Absent(LinearRounds):
    """Listed tasks without rows get the mean of the models of all others."""

    def _models_without_rows(self, fitted, tasks, positions):
        coef, intercept = super()._models_without_rows(fitted, tasks, positions)
        return coef + fitted["coef_"].mean(axis=0), intercept


def test_models_of_absent_tasks():
    found = failures(Absent(**{**ROUNDS, "tasks": [*TASKS, 77]}))
    assert any(text.startswith("Attribute: coef_") for text in found), found
