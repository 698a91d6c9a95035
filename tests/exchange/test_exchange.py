"""The halves of every private estimator on several machines, simulated, against one process."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skpmtl import (
    PPSGD,
    DPAggregation,
    DPAggregationClassifier,
    DPMetaInit,
    DPMetaInitClassifier,
    DPRelationship,
    DPRelationshipClassifier,
    MPMTLGroupSparse,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateFedAvg,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
)
from skpmtl.exchange.journal import Journal
from skpmtl.exchange.protocol import Ask, Draw, Population, run
from skpmtl.privacy.rng import noise_source
from skpmtl.tables.forms import read_training
from tests.helpers.plain_reference import even_tasks

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, N, D = 12, 9, 4
SEED = {"random_state": 3, "tasks": range(M)}
CASES = {
    "prior": MPMTLLowRank(n_releases=2, **SEED),
    "diagonal": MPMTLGroupSparse(n_releases=2, **SEED),
    "laplace": MPMTLGroupSparse(mechanism="laplace", **SEED),
    "projections": MPMTLLowRank(algorithm="proximal", epsilon=30.0, **SEED),
    "projected diagonal": MPMTLGroupSparse(algorithm="proximal", epsilon=30.0, **SEED),
    "mean model": MPMTLLowRank(unseen_task="mean", **SEED),
    "labels": MPMTLLowRankClassifier(epsilon=3.0, classes=[0, 1], **SEED),
    "rounds": PrivateMeanRegMTL(**SEED),
    "adaptive": PrivateMeanRegMTL(clip_quantile=0.5, **SEED),
    "intercept": PrivateMeanRegMTL(unseen_task="mean", **SEED),
    "clusters": PrivateMeanRegMTL(
        unseen_task="mean", clusters={k: "ab"[k % 2] for k in range(M)}, **SEED
    ),
    "fixed": PrivateMeanRegMTL(sampling="fixed", sampling_rate=0.5, **SEED),
    "algorithm 1": PrivateMeanRegMTL(update="algorithm-1", **SEED),
    "stateful": PrivateMeanRegMTL(update="stateful", sampling="fixed", sampling_rate=0.5, **SEED),
    "ridge": PrivateMeanRegMTL(ridge=0.3, **SEED),
    "classes": PrivateMeanRegMTLClassifier(epsilon=5.0, classes=range(3), **SEED),
    "averaging": PrivateFedAvg(**SEED),
    "personal part": PPSGD(personalization="none", **SEED),
    "average": DPAggregation(max_row_norm=2.0, max_target=3.0, group="direct", **SEED),
    "average, labels": DPAggregationClassifier(
        max_row_norm=2.0, group="direct", classes=[0, 1], **SEED
    ),
    "relationship": DPRelationship(
        max_row_norm=2.0, max_target=3.0, group="direct", clip_norm=0.4, epsilon=20.0, **SEED
    ),
    "relationship, records": DPRelationshipClassifier(
        max_row_norm=2.0, guarantee="record", classes=[0, 1], **SEED
    ),
    "meta": DPMetaInit(epsilon=5.0, visits=2, **SEED),
    "meta, local": DPMetaInit(epsilon=50.0, privacy="local", tasks_per_round=5, **SEED),
    "meta, labels": DPMetaInitClassifier(epsilon=5.0, classes=[0, 1], **SEED),
}
every_case = pytest.mark.parametrize("est", CASES.values(), ids=CASES)


def rows(est):
    return even_tasks(M, N, D, est._classification * (2 + ("MeanReg" in repr(est))))


def table_of(est, X, y, task):
    table, _ = read_training(est, X, y, task)
    return est._encoded(table)[0]


class Machines:
    """Task halves that hold some of the tasks each.

    Parameters
    ----------
    send : {"sums", "rows"}
        Whether they send sums, or rows that the curator bounds and adds up itself.
    """

    def __init__(self, est, parts, population, send):
        self.parts, self.send, self.asked = [], send, []
        X, y, task = rows(est)
        for tasks in parts:
            mine = np.isin(task, tasks)
            table = table_of(est, X[mine], y[mine], task[mine])
            half = est._half(table, population)
            self.parts.append((np.searchsorted(population.tasks, table.tasks), half, table))

    def answer(self, ask):
        self.asked.append(ask)
        total = None
        everything, places = [], []
        for positions, half, _ in self.parts:
            local, place = ask.local(positions)
            if self.send == "sums":
                sums = half.answer(local)
                total = sums if total is None else {k: total[k] + sums[k] for k in sums}
            else:
                everything.append(half.contributions(local))
                places.append(place)
        if self.send == "sums":
            return total
        order = np.argsort(np.concatenate(places))
        merged = {k: np.concatenate([e[k] for e in everything])[order] for k in everything[0]}
        return ask.combine(merged, np.concatenate(places)[order])

    def models(self, est, board):
        coef = np.empty((M, *np.shape(est.coef_)[1:]))
        for positions, half, table in self.parts:
            est.billboard_ = board
            models = half.final_models(board, partial(est._personalize_table, table))
            coef[positions] = models[0]
        return coef


def settings(est):
    X, y, task = rows(est)
    return est, Population.of(table_of(est, X, y, task))


@every_case
@pytest.mark.parametrize("send", ["sums", "rows"])
def test_machines_agree_with_one_process(est, send):
    X, y, task = rows(est)
    est.fit(X, y, task=task)
    whole, coef = est.billboard_, est.coef_
    _, population = settings(est)
    source = noise_source(est.random_state)
    machines = Machines(est, [[1, 4, 6, 10], [0, 2, 3, 5, 7, 8, 9, 11]], population, send)
    board = run(est._curator(population, source), machines, source)
    assert machines.asked
    for ours, theirs in zip(released(board), released(whole), strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert board.report == whole.report
    assert_allclose(machines.models(est, board), coef, rtol=1e-10, atol=1e-12)


def released(board):
    return [board.init] if hasattr(board, "init") else board.releases


class Recorder:
    """A journal in memory, which remembers what an interrupted run was told."""

    def __init__(self, replies=()):
        self.replies, self.kept, self.place = list(replies), [], 0

    def recall(self, source):
        if self.place == len(self.replies):
            return None
        reply, state = self.replies[self.place]
        self.place += 1
        source.state = state
        return {name: value.copy() for name, value in reply.items()}

    def keep(self, reply, source):
        copy = {name: np.copy(value) for name, value in reply.items()}
        self.kept.append((copy, source.state))


@pytest.mark.parametrize("name", ["prior", "projections", "fixed", "adaptive", "intercept", "meta",
                                  "relationship"])  # fmt: skip
def test_resumed_run_repeats_no_release(name):
    """Whatever was released before the cut is not asked for, nor released, again."""
    est, population = settings(CASES[name])
    parts = [list(range(5)), list(range(5, M))]

    def start(journal):
        source = noise_source(est.random_state)
        machines = Machines(est, parts, population, "sums")
        return run(est._curator(population, source), machines, source, journal), machines.asked

    first = Recorder()
    whole, asked = start(first)
    for cut in (1, len(first.kept) // 2, len(first.kept)):
        board, again = start(Recorder(first.kept[:cut]))
        for ours, theirs in zip(released(board), released(whole), strict=True):
            assert_array_equal(ours, theirs)
        draws = sum("drawn" in reply for reply, _ in first.kept[:cut])
        assert len(again) == len(asked) - (cut - draws)


def length(mechanism):
    """The norm that the sensitivity of a mechanism is in."""
    norms = {"nuclear": lambda v: np.linalg.norm(v, "nuc"), "l1": lambda v: np.abs(v).sum()}
    return norms.get(getattr(mechanism, "norm", "l2"), np.linalg.norm)


@pytest.mark.parametrize("name", ["prior", "diagonal", "projections", "rounds", "mean model",
                                  "intercept", "labels", "adaptive", "average", "average, labels",
                                  "relationship"])  # fmt: skip
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e300, -1e12])
def test_garbage_of_one_task_moves_a_sum_within_its_bound(name, garbage):
    """The curator bounds every row itself: sensitivity does not rest on those who send."""
    est, population = settings(CASES[name])
    machines = Machines(est, [list(range(M))], population, "rows")
    seen = []

    class Check:
        def answer(self, ask):
            positions, half, _ = machines.parts[0]
            honest, place = half.contributions(ask.local(positions)[0]), ask.local(positions)[1]
            broken = {k: v.copy() for k, v in honest.items()}
            for value in broken.values():
                value[2] = garbage
            a, b = ask.combine(honest, place), ask.combine(broken, place)
            for key, mechanism in ask.mechanisms.items():
                moved = length(mechanism)((a[key] - b[key]) / ask.divide)
                assert np.isfinite(moved)
                assert moved <= mechanism.sensitivity * (1 + 1e-9)
                seen.append(key)
            return a

    source = noise_source(est.random_state)
    run(est._curator(population, source), Check(), source)
    assert seen


@pytest.mark.parametrize("name", ["meta", "meta, local", "meta, labels", "meta, poisson"])
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e300, -1e12])
def test_garbage_of_one_task_moves_an_initialisation_within_its_bound(name, garbage):
    """Updates of DPMetaInit come with their noise: the bound has room for it, and not for more."""
    est = CASES.get(name)
    if est is None:
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
        est = DPMetaInit(epsilon=5.0, batches="poisson", batch_size=3, **SEED)
    est, population = settings(est)
    machines = Machines(est, [list(range(M))], population, "rows")
    longest = est._plan(population).longest_updates()
    inside, broken_sums = [], 0

    class Check:
        def answer(self, ask):
            nonlocal broken_sums
            positions, half, _ = machines.parts[0]
            local, place = ask.local(positions)
            honest = half.contributions(local)["update"]
            inside.extend(np.linalg.norm(honest, axis=(1, 2)) / longest[place])
            a = ask.combine({"update": honest}, place)
            assert_array_equal(a["update"], honest.sum(axis=0))  # to the last bit
            for k in range(len(place)):
                broken = honest.copy()
                broken[k, :, :2] = garbage
                b = ask.combine({"update": broken}, place)["update"]
                assert np.linalg.norm(a["update"] - b) <= 2.0 * longest[place[k]]
                broken_sums += 1
            return a

    source = noise_source(est.random_state)
    run(est._curator(population, source), Check(), source)
    assert broken_sums >= M
    assert 0.02 < max(inside) < 1.0


@pytest.mark.parametrize("name", ["prior", "diagonal", "projections", "rounds", "mean model",
                                  "intercept", "labels", "adaptive", "clusters", "average",
                                  "average, labels", "relationship"])  # fmt: skip
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_silent_task_counts_as_nothing_in_every_sum(name, adjacency):
    """Sums are those of the others alone, and within the sensitivity of those of all tasks."""
    est = clone(CASES[name]).set_params(adjacency=adjacency)
    est, population = settings(est)
    machines = Machines(est, [list(range(M))], population, "rows")
    seen = []

    class Check:
        def answer(self, ask):
            positions, half, _ = machines.parts[0]
            local, place = ask.local(positions)
            honest = half.contributions(local)
            silent = {k: v.copy() for k, v in honest.items()}
            for value in silent.values():
                value[2] = np.nan
            others = {k: np.delete(v, 2, axis=0) for k, v in honest.items()}
            a, b = ask.combine(honest, place), ask.combine(silent, place)
            c = ask.combine(others, np.delete(place, 2))
            for key, mechanism in ask.mechanisms.items():
                assert_allclose(b[key], c[key], rtol=1e-13, atol=1e-13)
                moved = length(mechanism)((a[key] - b[key]) / ask.divide)
                assert moved <= mechanism.sensitivity * (1 + 1e-9)
                seen.append(key)
            return a

    source = noise_source(est.random_state)
    run(est._curator(population, source), Check(), source)
    assert seen


def test_curator_sees_releases_only():
    """What is sent to the curator is the noisy number, never the sum."""
    secret = np.array([5.0])

    class Noise:
        def release(self, value, source):
            assert value == secret / 2
            return np.array([7.0])

    def curator():
        drawn = (yield Draw(lambda source: source))["drawn"]
        got = yield Ask("x", {}, {"x": Noise()}, None, 2.0)
        return drawn, got

    class Tasks:
        def answer(self, ask):
            return {"x": secret.copy(), "not asked for": np.array([1.0])}

    drawn, got = run(curator(), Tasks(), "source")
    assert drawn == "source"
    assert got == {"x": np.array([7.0])}


def test_journal_on_disk_resumes_and_refuses_other_runs(tmp_path):
    est, population = settings(CASES["fixed"])

    def start(folder, cut=None):
        source = noise_source(est.random_state)
        machines = Machines(est, [list(range(5)), list(range(5, M))], population, "sums")
        if cut is not None:
            answer, asked = machines.answer, []

            def dying(ask):
                asked.append(ask)
                if len(asked) == cut:
                    raise KeyboardInterrupt
                return answer(ask)

            machines.answer = dying
        with Journal(folder, {"estimator": repr(est), "tasks": list(range(M))}) as journal:
            board = run(est._curator(population, source), machines, source, journal)
        return board, machines.asked

    whole, asked = start(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "cut", cut=2)
    board, again = start(tmp_path / "cut")
    assert_array_equal(board.centres, whole.centres)
    assert len(again) == len(asked) - 1
    assert start(tmp_path / "cut")[1] == []  # everything was released already
    with pytest.raises(ValueError, match="another run"):
        Journal(tmp_path / "cut", {"estimator": "other"})
    replies = sorted((tmp_path / "cut").glob("*.npz"))
    kept = replies[0].read_bytes()
    replies[0].unlink()  # the second reply must not follow on a new first one
    with pytest.raises(ValueError, match="replies are missing"):
        start(tmp_path / "cut")
    replies[0].write_bytes(kept)
    damaged = replies[1]
    damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(ValueError, match="damaged"):
        start(tmp_path / "cut")
