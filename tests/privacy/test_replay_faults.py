"""Faults in noise, budgets and side channels, planted in estimators, are found by a replay."""

import functools
import os
import sys

import numpy as np
import pytest

from skpmtl import DPMetaInit, PrivateMTL
from skpmtl.course.curator import Loop
from skpmtl.course.queries import Moment
from skpmtl.meta.tasks import MetaTaskSide
from skpmtl.networks.rounds import PiecewiseGaussian
from skpmtl.privacy import audit, mechanisms
from skpmtl.privacy.rng import SeededSource, SystemSource
from tests.helpers.cases import CHANGED, N_ROWS, TASKS, long_data, replaced
from tests.helpers.linear_rounds import LinearRounds

ROUNDS = {"tasks": TASKS, "n_rounds": 6}
LOOP = {"tasks": TASKS, "epsilon": 1e3, "structure": "low-rank", "levels": "free"}
KEPT = {}  # what a faulty estimator keeps for later


def pair():
    """Data, and a neighbour whose rows are larger in one task."""
    data, rng = long_data(), np.random.default_rng(1)
    X, score = 20.0 * rng.normal(size=(N_ROWS, 3)), 30.0 * rng.normal(size=N_ROWS)
    return data, replaced(data, CHANGED, X, score)


def found(estimator, text, data=None, n_draws=None):
    """The result of a replay, which has this text among its failures."""
    # Without tests of noise, which need more fits, where there is another fault.
    if not ("Noise" in text or "std" in text or "used" in text or "none" in text):
        n_draws = 0
    result = audit(estimator, *(data or pair()), replay=True, n_draws=n_draws)
    assert not result.passed
    assert any(text in failure for failure in result.failures), str(result)
    return result


# ---------------------------------------------------------------- sources of faulty noise
class Faulty(SystemSource):
    """Noise of the operating system that a fault is made of."""

    def __init__(self, fault):
        self.fault, self.kept = fault, {}

    def normal(self, size):
        return self.fault(self, super().normal(size))

    def chisquare(self, degrees):
        return self.fault(self, super().chisquare(degrees))


def halved(source, z):
    return 0.5 * z


def reused(source, z):
    """The same numbers whenever as many are needed."""
    return source.kept.setdefault(z.shape, z).copy()


def mirrored(source, z):
    """Every other time the negative of the last ones."""
    last = source.kept.pop(z.shape, None)
    if last is None:
        source.kept[z.shape] = z
    return z if last is None else -last


def drifting(source, z):
    """Mostly the last noise again."""
    last = source.kept.get(z.shape, z)
    source.kept[z.shape] = z = 0.95 * last + np.sqrt(1.0 - 0.95**2) * z
    return z


def common(source, z):
    """Entries that move together."""
    return 0.1 * z + np.sqrt(0.99) * super(Faulty, source).normal(1)


def pairwise(source, z):
    """Entries that repeat the one before, nearly."""
    flat = z.reshape(-1)
    flat[1::2] = 0.2 * flat[1::2] - np.sqrt(0.96) * flat[: flat.size // 2 * 2 : 2]
    return z


def mixed(source, z):
    """As much noise as stated, most of it on every other number."""
    return z * np.where(source.uniform(z.shape) < 0.5, 0.2, 1.4)


def first_of(source, z):
    """No noise but on the first entries."""
    z.reshape(-1)[z.size // 2 + 1 :] = 0.0
    return z


def with_noise(cls, fault):
    class Noisy(cls):
        def _source(self):
            return Faulty(fault)

    return Noisy


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (halved, "times the stated std"),
        (reused, "are used again"),
        (mirrored, "are used again"),
        (drifting, "of releases of one fit is correlated"),
        (common, "of entries of one release is correlated"),
        (pairwise, "of entries of one release is correlated"),
        (mixed, "its distribution is not the stated one"),
        (first_of, "released numbers have none"),
    ],
)
def test_faulty_noise(fault, text):
    estimator = with_noise(LinearRounds, fault)(**ROUNDS)
    if fault is mixed:  # as much of it: more numbers are needed
        estimator.set_params(n_rounds=500)
    result = audit(estimator, *pair(), replay=True)
    assert any(text in failure for failure in result.failures), str(result)
    assert {failure.partition(":")[0] for failure in result.failures} == {"Noise"}


LAWS = [  # of vectors and matrices, and of the tasks' own noise
    PrivateMTL(**LOOP),
    DPMetaInit(tasks=TASKS, inner_steps=3),
    DPMetaInit(tasks=TASKS, privacy="local"),
]


@pytest.mark.parametrize("estimator", LAWS, ids=["loop", "global", "local"])
def test_half_the_noise_of_every_law(estimator):
    """Means over 40 fits of releases of 4 numbers spread by .04; 0.7 is a chance of 1e-7."""
    cls = with_noise(type(estimator), halved)
    result = found(cls(**estimator.get_params()), "times the stated std", n_draws=40)
    assert 0.4 < result.noise_ratio[0] < 0.7


def test_noise_off_the_grid(monkeypatch):
    monkeypatch.setattr(mechanisms, "add_on_grid", lambda value, n, step: value + n * step)
    assert len(found(PrivateMTL(**LOOP), "not on the public grid").failures) == 1


def test_clip_after_the_noise(monkeypatch):
    add = mechanisms.add_on_grid
    monkeypatch.setattr(mechanisms, "add_on_grid", lambda *given: np.clip(add(*given), -1.0, 1.0))
    found(PrivateMTL(**LOOP), "Noise: ", n_draws=1)


def test_noise_that_is_skipped_in_the_last_round(monkeypatch):
    add, rounds = PiecewiseGaussian._noisy, []

    def noisy(mechanism, value, source):
        rounds.append(value)
        quiet = Faulty(lambda source, z: 0.0 * z)
        return add(mechanism, value, quiet if len(rounds) % 6 == 0 else source)

    monkeypatch.setattr(PiecewiseGaussian, "_noisy", noisy)
    found(LinearRounds(**ROUNDS), "Noise: that of release 6 has 0.000 times")


def test_noise_that_is_skipped_for_one_task(monkeypatch):
    draw = MetaTaskSide._noise_steps

    def noise_steps(task_side, block, shape, source):
        noise = draw(task_side, block, shape, source)
        noise[block == 2] = 0.0
        return noise

    monkeypatch.setattr(MetaTaskSide, "_noise_steps", noise_steps)
    result = found(DPMetaInit(tasks=TASKS, inner_steps=3), "released numbers have none")
    assert "Noise: that of task at position 2 has" in str(result)


class Scaled(LinearRounds):
    """The noise grows with the rows, and nothing says so."""

    def _fit_table(self, table):
        self._largest = np.abs(table.X).max()
        return super()._fit_table(table)

    def _source(self):
        factor = max(1.0, self._largest / 10.0)
        del self._largest
        return Faulty(lambda source, z: factor * z)


def test_noise_that_follows_the_rows():
    found(Scaled(**ROUNDS), "Noise: that of fit 2 has")


class Seeded(LinearRounds):
    def _source(self):
        return SeededSource(np.random.default_rng(0))


def test_the_same_noise_in_two_fits():
    found(Seeded(**ROUNDS), "used again, in this fit or in another one")


# ---------------------------------------------------------------- budgets
def test_a_share_of_twice_its_budget(monkeypatch):
    """The shares add up, and moments have the noise of more than theirs."""
    moment = Moment.mechanism
    monkeypatch.setattr(Moment, "mechanism", lambda q, adjacency, mu: moment(q, adjacency, 2 * mu))
    found(PrivateMTL(**LOOP), "Cost: ")


def test_shares_that_are_more_than_the_budget(monkeypatch):
    """Without the filter on what is spent, and with half as much again for every question."""
    ask = Loop.ask
    monkeypatch.setattr(Loop, "spend", lambda *given: None)
    monkeypatch.setattr(Loop, "ask", lambda loop, q, share, *name: ask(loop, q, 1.5 * share, *name))
    found(PrivateMTL(**LOOP), "Cost: ")


class DearRounds(LinearRounds):
    """The stated noise is that of half the rounds, in the report as well."""

    def _plan(self, *given):
        plan = super()._plan(*given)
        plan.noise_multiplier /= np.sqrt(2.0)
        return plan


@pytest.mark.parametrize("curator", ["trusted", "servers"])
def test_noise_that_is_too_small_for_the_budget(curator):
    found(DearRounds(**ROUNDS, curator=curator), "Cost: ")


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
    found(DearMeta(tasks=TASKS, **options), "Cost: ", data)


# ---------------------------------------------------------------- what others can see
class Spoilt(LinearRounds):
    def _fit_table(self, table):
        fitted = super()._fit_table(table)
        self._spoil(table)
        return fitted


class Hidden(Spoilt):
    def _spoil(self, table):
        self.cache = {"rows": [np.abs(table.X).max(axis=0)]}


class Enclosed(Spoilt):
    def _spoil(self, table):
        largest = np.abs(table.X).max()
        self.compare = lambda x: x > largest


class Bound(Spoilt):
    def _spoil(self, table):
        self.compare = functools.partial(max, float(np.abs(table.X).max()))


class Prints(Spoilt):
    def _spoil(self, table):
        print("largest", np.abs(table.X).max())


class PrintsErrors(Spoilt):
    def _spoil(self, table):
        print("largest", np.abs(table.X).max(), file=sys.stderr)


class WritesOut(Spoilt):
    def _spoil(self, table):
        os.write(1, f"{np.abs(table.X).max()}\n".encode())


class OfModule(Spoilt):
    def _spoil(self, table):
        KEPT["largest"] = float(np.abs(table.X).max())


class OfClass(Spoilt):
    largest = []

    def _spoil(self, table):
        self.largest.append(float(np.abs(table.X).max()))


@functools.lru_cache
def cached(value):
    return value


class Remembers(Spoilt):
    def _spoil(self, table):
        cached(float(np.abs(table.X).max()))


class LogsElsewhere(Spoilt):
    def _spoil(self, table):
        import logging

        logger = logging.getLogger("elsewhere")
        logger.propagate = False
        logger.info("largest %r", np.abs(table.X).max())


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Hidden, "Attribute: cache['rows'][0] depends"),
        (Enclosed, "Attribute: compare['closure']['largest'] depends"),
        (Bound, "Attribute: compare"),
        (Prints, "Said: printed text depends"),
        (PrintsErrors, "Said: printed text depends"),
        (WritesOut, "Said: printed text depends"),
        (OfModule, "test_replay_faults.KEPT holds"),
        (OfClass, "test_replay_faults.OfClass.largest holds"),
        (Remembers, "test_replay_faults.cached holds"),
        (LogsElsewhere, "Said: log lines depend"),
    ],
)
def test_side_channels(cls, text):
    result = found(cls(**ROUNDS), text)
    kinds = {failure.partition(":")[0] for failure in result.failures}
    assert kinds == {text.partition(":")[0] if ":" in text else "Process"}


def test_files(tmp_path):
    class Saves(Spoilt):
        def _spoil(self, table):
            np.save(tmp_path / "rows.npy", table.X)

    class SavesText(Spoilt):
        def _spoil(self, table):
            (tmp_path / "rows.txt").write_text(str(table.X.max()))

    for cls in (Saves, SavesText):
        assert found(cls(**ROUNDS), "Said: files depend").failures == (
            "Said: files depend on the rows.",
        )


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
    found(AsksByRows(**ROUNDS), "Query: ['public']['level'] of query 1")


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
    found(ClipsByRows(**ROUNDS), "of other tasks in query 1")


# ---------------------------------------------------------------- weights
@pytest.mark.parametrize("cls", [PrivateMTL, DPMetaInit])
def test_neighbours_that_differ_in_weights(cls):
    X, y, task = long_data()
    options = LOOP if cls is PrivateMTL else {"tasks": TASKS}
    w = np.random.default_rng(0).random(len(y))
    other = w.copy()
    rows = np.flatnonzero(task == CHANGED)
    other[rows[:1] if cls is DPMetaInit else rows] = 0.01
    unit = (None,) if cls is DPMetaInit else ()
    result = audit(
        cls(**options), (X, y, task, *unit, w), (X, y, task, *unit, other), replay=True, n_draws=0
    )
    assert result.passed, str(result)
    assert result.sensitivity_observed > 0


def test_many_sound_fits_raise_no_alarm():
    """Noise of sound mechanisms, of all laws, is what is stated."""
    for estimator in LAWS:
        result = audit(estimator, *([long_data()] * 2), replay=True, n_draws=8)
        assert result.passed, str(result)
        assert result.confidence == 1.0 - 1e-9
