"""What mean-regularised rounds publish: sensitivity, calibration, sampling, the report."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import binom

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from skpmtl._kernels.losses import NUMBER
from skpmtl.exchange.protocol import run
from skpmtl.exchange.wire import pack
from skpmtl.local.centred import CentredTasks, Problem
from skpmtl.local.updates import ProximalUpdates
from skpmtl.mean_regularized.plan import MeanPlan
from skpmtl.privacy import gdp_delta, gdp_epsilon, gdp_mu
from skpmtl.privacy.rng import SeededSource
from skpmtl.reproduction import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PrivateFedAvg,
    PrivateFedProx,
    PublishedMeanRegMTL,
)
from skpmtl.reproduction.mean_regularized import RunningModels
from skpmtl.rounds.curator import release_centre
from skpmtl.rounds.plan import BlockGaussian, epsilon_of_rounds
from skpmtl.tables.table import TaskTable
from tests.helpers.plain_reference import listed_classes

LOSSES = tuple(NUMBER)

M = 6
TASKS = list(range(M))


def rows(kind=0, seed=0, d=5, scale=1.0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 12, M)
    X = scale * rng.normal(size=(sizes.sum(), d))
    y = [X[:, 0] + 0.2, np.sign(X[:, 0] + 1e-9), rng.integers(0, 3, len(X))][kind].astype(float)
    return TaskTable(X, y, np.concatenate([[0], np.cumsum(sizes)]), np.arange(M))


def neighbour(table, kind, how):
    """The table with the rows of task 2 replaced by extreme ones."""
    X, y = table.X.copy(), table.y.copy()
    mine = slice(table.offsets[2], table.offsets[3])
    X[mine] *= {"huge": 1e6, "tiny": 1e-9, "zero": 0.0, "flip": -1.0}[how]
    y[mine] = {0: 1e7 if how == "huge" else -y[mine], 1: -y[mine], 2: 2 - y[mine]}[kind]
    return TaskTable(X, y, table.offsets, table.tasks)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize(
    "form, update",
    [(form, name) for form in ("dense", "csr") for name in ("prox", "ridge", "fedavg", "fedprox")]
    + [("dense", name) for name in ("stateful", "algorithm-1", "ppsgd")],  # refuse sparse rows
)
def test_neighbours_over_replayed_rounds(kind, form, update):
    """Every release moves by at most 2 clip / q when one task's rows are replaced."""
    C, clip = 3 if kind == 2 else 1, 0.2
    table = rows(kind)
    problem = Problem(LOSSES[kind], C, True, lam="auto", ridge=0.3 if update == "ridge" else 0.0)
    # The history is public: the same noisy models go to both data sets.
    history = np.random.default_rng(1).normal(size=(4, 1, C * 5))
    largest = 0.0
    for how in ("huge", "tiny", "zero", "flip"):
        sums = []
        for data in (table, neighbour(table, kind, how)):
            if form == "csr":
                data = TaskTable(sparse.csr_matrix(data.X), data.y, data.offsets, data.tasks)
            local_tasks, released = CentredTasks(data, problem), []
            if update in ("prox", "ridge"):
                updates = ProximalUpdates(local_tasks, n_steps=9, tol=1e-3)
            else:
                updates = RunningModels(local_tasks, update, C * 5, n_steps=5, rate=1.0)
            for anchor in history:
                total = np.zeros_like(anchor)
                updates.sum_of_updates(np.arange(M), anchor, clip, total)
                released.append(total)
            sums.append(released)
        moved = [np.linalg.norm(a - b) for a, b in zip(*sums, strict=True)]
        assert max(moved) <= 2 * clip * (1 + 1e-9)
        largest = max(largest, *moved)
    assert largest > 0.5 * clip  # the bound is not met by sending nothing


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_contributions_that_are_not_finite_send_nothing(bad):
    from skpmtl.local.updates import add_clipped_rows

    D, total = np.ones((2, 3)), np.zeros((1, 3))
    D[0, 1] = bad
    add_clipped_rows(D, np.zeros(2, dtype=np.int64), 1.0, total)
    assert np.isfinite(total).all() and np.linalg.norm(total) <= 2.0


# ------------------------------------------------------------------------- calibration
def fit(cls=PublishedMeanRegMTL, kind=0, **parameters):
    table = rows(kind)
    task = np.repeat(np.arange(M), table.sizes)
    public = {"tasks": TASKS, "epsilon": 1.0, "delta": 1e-3, **listed_classes(cls, table.y)}
    public["clip_norm"] = 1.0
    return cls(**{**public, **parameters}).fit(table.X, table.y, task=task)


@pytest.mark.parametrize("adjacency, c", [("zero-out", 1), ("replace-one", 2)])
def test_all_tasks_noise(adjacency, c):
    est = fit(adjacency=adjacency, clip_norm=0.7, n_rounds=8)
    sigma = c * 0.7 * math.sqrt(8) / (M * gdp_mu(1.0, 1e-3))
    assert_allclose(est.privacy_.noise_std, np.full(8, sigma), rtol=1e-6)
    assert_allclose(est.privacy_.sensitivity, np.full(8, c * 0.7 / M))
    assert est.privacy_.mu == pytest.approx(gdp_mu(1.0, 1e-3))
    assert est.privacy_.guarantee == "joint DP per task"
    assert len(est.billboard_.releases) == 8 == len(est.privacy_.releases)


@pytest.mark.parametrize("adjacency, c", [("zero-out", 1), ("replace-one", 2)])
def test_fixed_sampling_has_no_amplification(adjacency, c):
    est = fit(adjacency=adjacency, sampling="fixed", sampling_rate=0.5, n_rounds=10, delta=1e-6)
    z = est.privacy_.noise_std[0] * 3 / 1.0  # noise on the sum of 3 participants over the clip
    n = np.arange(11)
    spent = binom.pmf(n, 10, 0.5) @ gdp_delta(c * np.sqrt(n) / z, 1.0)
    assert spent == pytest.approx(1e-6, rel=1e-3)
    # A task that knows of half its rounds: never below the noise of those rounds alone.
    assert z > c * math.sqrt(5) / gdp_mu(1.0, 1e-6)
    assert "no amplification" in est.privacy_.accountant
    assert "constant denominator q = 3" in est.privacy_.sampling
    assert est.privacy_.mu is None


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.spread(1)
def test_poisson_sampling(adjacency):
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    from skpmtl.privacy.sampling import poisson_epsilon

    est = fit(adjacency=adjacency, sampling="poisson", sampling_rate=0.5, n_rounds=6)
    z = est.privacy_.noise_std[0] * 3
    assert poisson_epsilon(z, 6, 0.5, 1e-3, adjacency) == pytest.approx(1.0, rel=5e-3)
    assert "dp-accounting" in est.privacy_.accountant
    assert "Poisson" in est.privacy_.sampling


class _Tasks:
    """A task side: `contribute` adds to the sum of updates."""

    def __init__(self, contribute):
        self.contribute = contribute

    def answer(self, query):
        total = np.zeros(query.public["centre"].shape)
        self.contribute(query.pick, query.public["centre"], query.public["clip_norm"], total)
        return {"update": total}


class _Settings:
    """The parameters that `MeanPlan` reads."""

    epsilon, delta, adjacency = 1.0, 1e-3, "zero-out"
    clip_norm, server_learning_rate = 1.0, 1.0
    sampling, sampling_rate, clusters, update = "fixed", 0.5, None, "prox"
    _log_loss, _n_servers, standard_errors = False, 1, False

    def _is_private(self):
        return True

    def _n_rounds(self, epsilon):
        return 5


def test_denominator_is_constant_when_nobody_takes_part():
    """An empty draw publishes pure noise over the same q."""
    plan = MeanPlan(_Settings(), M, 2000)
    plan.sampling = "poisson"
    plan.rate, plan.denominator = 1e-12, 3.0
    seen = []

    def contribute(pick, anchor, clip_norm, total):
        seen.append(len(pick))
        return 0

    anchor = np.zeros((1, 2000))
    source = SeededSource(np.random.default_rng(0))
    curator = release_centre(plan, np.zeros(M, dtype=int), anchor)
    releases, bounds = run(curator, _Tasks(contribute), source)
    assert seen == [0] * 5
    std = plan.noise_multiplier / 3.0
    for release, entry in zip(releases, plan.entries(bounds), strict=True):
        assert entry["noise_std"] == pytest.approx(std, rel=1e-6)
        assert np.std(release) == pytest.approx(std, rel=0.08)
    assert_allclose(anchor[0], np.sum(releases, axis=0))


def test_sums_that_grow_are_an_error_without_noise_alone():
    """With noise it would tell about rows."""

    def course(multiplier):
        plan, sums = MeanPlan(_Settings(), M, 3), iter(100.0 ** np.arange(5))
        plan.noise_multiplier = multiplier

        def contribute(pick, anchor, clip_norm, total):
            total += next(sums)
            return len(pick)

        curator = release_centre(plan, np.zeros(M, dtype=int), np.zeros((1, 3)))
        return run(curator, _Tasks(contribute), SeededSource(np.random.default_rng(0)))

    with pytest.raises(ValueError, match="The rounds diverged"):
        course(None)
    assert len(course(1.0)[0]) == 5


def test_everybody_counts_the_same_and_the_sum_is_divided_by_q():
    plan = MeanPlan(_Settings(), M, 3)
    assert plan.denominator == 3.0
    drawn = []

    def contribute(pick, anchor, clip_norm, total):
        drawn.append(pick)
        total += len(pick)
        return len(pick)

    source = SeededSource(np.random.default_rng(0))
    plan.noise_multiplier *= 1e-6
    curator = release_centre(plan, np.zeros(M, dtype=int), np.zeros((1, 3)))
    releases, *_ = run(curator, _Tasks(contribute), source)
    assert_allclose(releases, 1.0, atol=1e-3)
    assert all(len(pick) == 3 == len(set(pick)) for pick in drawn)
    assert len({tuple(pick) for pick in drawn}) > 1


@pytest.mark.parametrize(
    "rate, m, q", [(0.35, 6, 2), (0.35, 7, 2), (0.35, 8, 3), (0.04, 7, 1), (0.04, 38, 2)]
)
def test_a_fixed_rate_means_a_whole_number_of_tasks(rate, m, q):
    """Who is drawn, the denominator, the noise and its accounting are all about q of m tasks."""
    settings = _Settings()
    settings.sampling_rate = rate
    plan = MeanPlan(settings, m, 3)
    source = SeededSource(np.random.default_rng(0))
    drawn = [plan.draw(source) for _ in range(400)]
    assert {len(set(pick)) for pick in drawn} == {q}
    share = np.bincount(np.concatenate(drawn), minlength=m) / len(drawn)
    assert_allclose(share, q / m, atol=4.5 * math.sqrt(q / m / 400))
    assert plan.denominator == pytest.approx(q, rel=1e-15)
    # The noise is the least that covers Binomial(5, q / m) participations.
    participations = np.arange(6)
    mus = np.sqrt(participations) / plan.noise_multiplier
    delta = binom.pmf(participations, 5, q / m) @ gdp_delta(mus, 1.0)
    assert delta == pytest.approx(1e-3, rel=1e-9)
    spent = epsilon_of_rounds(plan.noise_multiplier, 5, "fixed", plan.rate, 1e-3, "zero-out")
    assert spent == pytest.approx(1.0, rel=1e-9)
    # Everybody sends 1: the released mean is 1, whatever the rate that was asked for.
    plan.noise_multiplier *= 1e-9

    def contribute(pick, anchor, clip_norm, total):
        total += len(pick)
        return len(pick)

    curator = release_centre(plan, np.zeros(m, dtype=int), np.zeros((1, 3)))
    releases, bounds = run(curator, _Tasks(contribute), source)
    assert_allclose(releases, 1.0, rtol=1e-5)
    std = plan.noise_multiplier / q
    assert [e["noise_std"] for e in plan.entries(bounds)] == pytest.approx([std] * 5)
    assert f"{q} of {m} tasks in every round" in plan.scheme() and f"q = {q}" in plan.scheme()


def test_copies_of_rows_do_not_change_a_contribution():
    """Weights by the number of rows are impossible: repeated rows leave mean losses as they are."""
    table = rows()
    twice = [table.task(k) for k in range(M)]
    twice[1] = tuple(np.concatenate([part] * 9) for part in twice[1])
    sizes = [len(y) for _, y in twice]
    more = TaskTable(
        np.concatenate([X for X, _ in twice]),
        np.concatenate([y for _, y in twice]),
        np.concatenate([[0], np.cumsum(sizes)]),
        table.tasks,
    )
    sums = []
    for data in (table, more):
        total = np.zeros((1, 5))
        centred = CentredTasks(data, Problem("squared", 1, True))
        updates = ProximalUpdates(centred, n_steps=5, tol=0.0)
        updates.sum_of_updates(np.arange(M), np.zeros((1, 5)), 0.1, total)
        sums.append(total)
    assert_allclose(sums[0], sums[1], rtol=1e-6)


# ----------------------------------------------------------------------------- options
def test_clusters_cost_nothing():
    one = fit(n_rounds=4)
    two = fit(n_rounds=4, clusters={k: k % 2 for k in TASKS})
    assert two.privacy_.epsilon == one.privacy_.epsilon
    assert two.privacy_.mu == one.privacy_.mu
    assert_allclose(two.privacy_.noise_std, one.privacy_.noise_std, rtol=1e-5)
    assert two.billboard_.mean.shape == (2, 5)
    # w~ of a cluster moves by the sum of its tasks over their number.
    assert_allclose(two.billboard_.mean, 2 * np.sum(two.billboard_.releases, axis=0))


def test_replayed_releases_give_the_mean_and_the_personal_models():
    est = fit(n_rounds=5, server_learning_rate=0.5)
    assert_allclose(est.mean_coef_, 0.5 * np.sum(est.billboard_.releases, axis=0), rtol=1e-12)
    assert_array_equal(est.billboard_.mean, est.mean_coef_)


def test_mean_intercept_is_one_more_release():
    est = fit(PrivateMeanRegMTLClassifier, kind=1, unseen_task="mean", n_rounds=4)
    entries = est.privacy_.releases
    assert [entry["name"] for entry in entries][-1] == "mean intercept"
    mus = [entry["sensitivity"] / entry["noise_std"] for entry in entries]
    assert math.sqrt(np.sum(np.square(mus))) == pytest.approx(gdp_mu(1.0, 1e-3), rel=1e-5)
    assert est.mean_intercept_ == est.billboard_.releases[-1][0]
    X = np.random.default_rng(0).normal(size=(4, 5))
    score = X @ est.mean_coef_ + est.mean_intercept_
    assert_allclose(est.decision_function(X, task=[77] * 4), score)
    free = fit(unseen_task="mean", n_rounds=4, fit_intercept=False)
    assert free.mean_intercept_ == 0.0 and len(free.privacy_.releases) == 4


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_mean_intercept_next_to_sampled_rounds(sampling):
    """Rounds at 90 % of epsilon and delta, the intercept at 10 %: basic composition."""
    from skpmtl.privacy.sampling import fixed_size_delta, poisson_epsilon

    if sampling == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    est = fit(
        sampling=sampling,
        sampling_rate=0.5,
        unseen_task="mean",
        n_rounds=4,
        clip_norm=0.7,
        delta=1e-4,
    )
    *rounds, last = est.privacy_.releases
    assert len(rounds) == 4 and last["name"] == "mean intercept"
    z = rounds[0]["noise_std"] * 3 / 0.7
    if sampling == "fixed":
        assert fixed_size_delta(z, 4, 0.5, 0.9, "replace-one") == pytest.approx(9e-5, rel=1e-6)
    else:
        assert poisson_epsilon(z, 4, 0.5, 9e-5, "replace-one") == pytest.approx(0.9, rel=5e-3)
    assert gdp_epsilon(2 * 0.7 / M / last["noise_std"], 1e-5) == pytest.approx(0.1, rel=1e-5)
    assert est.privacy_.epsilon == 1.0 and est.privacy_.delta == 1e-4
    assert "by basic composition" in est.privacy_.text(None)
    assert est.billboard_.history()[-1]["epsilon"] == pytest.approx(0.9, rel=5e-3)
    assert est.mean_intercept_ == est.billboard_.releases[-1][0]


def test_intercepts_of_clusters_cost_nothing_more():
    """One vector of all clusters: a task moves one part of it, by at most 2 clip / m."""
    one = fit(unseen_task="mean", n_rounds=4)
    two = fit(unseen_task="mean", n_rounds=4, clusters={k: int(k > 3) for k in TASKS})
    assert_allclose(two.privacy_.noise_std, one.privacy_.noise_std, rtol=1e-5)
    assert two.privacy_.sensitivity == one.privacy_.sensitivity
    released = two.billboard_.releases[-1]
    assert_allclose(two.billboard_.mean_intercept[:, 0], released * [6 / 4, 6 / 2])
    # Almost without noise it is the mean of the clipped intercepts.
    near = fit(
        unseen_task="mean",
        n_rounds=1,
        epsilon=1e9,
        clip_norm=0.25,
        clusters={k: int(k > 3) for k in TASKS},
    )
    b = np.clip(near.intercept_, -0.25, 0.25)
    assert (np.abs(near.intercept_) > 0.25).any()
    expected = [[b[:4].mean()], [b[4:].mean()]]
    assert_allclose(near.billboard_.mean_intercept, expected, atol=1e-3)


def test_updates_of_large_models_are_not_kept(monkeypatch):
    from skpmtl.rounds import curator

    settings = {"n_rounds": 3, "random_state": 0, "server_learning_rate": 0.5}
    with pytest.warns(UserWarning, match="reproducible"):
        kept = fit(unseen_task="mean", **settings)
    monkeypatch.setattr(curator, "_KEPT", 3 * 5 - 1)
    with pytest.warns(UserWarning, match="reproducible"):
        est = fit(unseen_task="mean", **settings)
    assert_allclose(est.mean_coef_, kept.mean_coef_, rtol=1e-12)
    assert_allclose(est.coef_, kept.coef_, rtol=1e-9)
    # The intercept stays; so do the noise levels.
    assert_array_equal(est.billboard_.releases, [[kept.mean_intercept_]])
    assert est.privacy_ == kept.privacy_
    assert est.billboard_.history() == kept.billboard_.history()
    assert_allclose(kept.billboard_.replay()[-1, 0], kept.mean_coef_, rtol=1e-12)
    with pytest.raises(ValueError, match="updates of this fit were not kept"):
        est.billboard_.replay()


@pytest.mark.parametrize(
    "epsilon, rounds", [(0.1, 3), (0.11, 10), (1.0, 10), (2.0, 30), (4.0, 100)]
)
def test_public_rule_for_the_rounds(epsilon, rounds):
    assert fit(epsilon=epsilon).n_iter_ == rounds


def test_history_says_noise_and_budget_and_nothing_else():
    est = fit(n_rounds=4)
    history = est.billboard_.history()
    assert [set(h) for h in history] == [{"round", "clip_norm", "noise_std", "epsilon"}] * 4
    mu = gdp_mu(1.0, 1e-3)
    expected = [gdp_epsilon(mu * math.sqrt(t / 4), 1e-3) for t in (1, 2, 3, 4)]
    assert_allclose([h["epsilon"] for h in history], expected, rtol=1e-9)
    fixed = fit(n_rounds=4, sampling="fixed", sampling_rate=0.5, delta=1e-6)
    assert fixed.billboard_.history()[-1]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    public = set(vars(est)) - set(est.get_params())
    assert public == {
        "coef_",
        "intercept_",
        "mean_coef_",
        "billboard_",
        "privacy_",
        "n_iter_",
        "tasks_",
        "_form_",
        "_idle_",
        "_population_",
        "n_features_in_",
    }


@pytest.mark.parametrize("cls", [PrivateMeanRegMTL, PrivateFedAvg, PrivateFedProx, PPSGD])
def test_reports(cls):
    est = fit(cls, n_rounds=3)
    report = est.privacy_
    text = report.text(None)
    for part in (
        "epsilon = 1",
        "delta = 0.001",
        "replace-one",
        "operating system",
        "clip_norm",
        "all tasks in every round",
    ):
        assert part in text, part
    assert report.public_inputs["denominator"] == M


def test_local_only_publishes_nothing():
    est = fit(LocalOnly)
    assert est.privacy_.epsilon == 0.0 and est.privacy_.releases == ()
    assert not est.billboard_.mean.any()
    assert "nothing is released" in est.privacy_.text(None)


@pytest.mark.parametrize("cls", [LocalOnly, LocalOnlyClassifier])
@pytest.mark.parametrize("epsilon", [None, math.inf, 1.0])
@pytest.mark.parametrize("unseen_task", ["error", "mean"])
@pytest.mark.parametrize("clusters", [None, {k: k % 2 for k in range(M)}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_epsilon_0_means_that_no_row_counts(cls, epsilon, unseen_task, clusters, fit_intercept):
    """Billboard and public attributes after fits on neighbours are the same to the last bit."""
    parameters = dict(unseen_task=unseen_task, clusters=clusters, fit_intercept=fit_intercept)
    found = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)  # all rows are different, not only those of a task
        X, task = rng.normal(seed, 1 + seed, (6 * M, 3)), np.repeat(np.arange(M), 6)
        y = X[:, 0] + 3.0 * seed + rng.normal(size=6 * M)
        if cls is LocalOnlyClassifier:
            y, parameters["classes"] = (y > np.median(y)).astype(int), [0, 1]
        est = cls(epsilon=epsilon, tasks=range(M), **parameters).fit(X, y, task=task)
        assert est.privacy_.epsilon == 0.0 and est.privacy_.guarantee != "none"
        public = {k: v for k, v in vars(est).items() if k not in ("coef_", "intercept_")}
        text, arrays = pack(public.pop("billboard_"))
        found.append((text, [a.tobytes() for a in arrays.values()], repr(public)))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("d", [5, 30, 70])
def test_rows_of_a_task_do_not_change_how_others_compute(kind, d):
    """One row more in one task: whatever the sizes, no other task sends another number."""
    rng = np.random.default_rng(0)
    m, n = (1200, 30) if d == 30 else (40, d)

    def contributions(extra):
        sizes = np.full(m, n)
        sizes[-1] += extra
        X = np.random.default_rng(1).standard_normal((m * n + 50, d))[: sizes.sum()]
        y = np.sign(X[:, 0] + 0.1)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        local_tasks = CentredTasks(
            TaskTable(X, y, offsets, np.arange(m)), Problem(LOSSES[kind], 1, True)
        )
        updates, out = ProximalUpdates(local_tasks, n_steps=12, tol=1e-3), []
        for k in (0, m // 2):
            total = np.zeros((1, d))
            updates.sum_of_updates(np.array([k]), anchor, 1.0, total)
            out.append(total)
        return np.array(out), local_tasks.curvature[:-1]

    anchor = rng.standard_normal((1, d))
    updates, curvature = contributions(0)
    for extra in (-n // 2, 1, 50):
        again, same = contributions(extra)
        assert_allclose(again, updates, rtol=1e-9, atol=1e-12)
        assert_allclose(same, curvature, rtol=1e-12)


def test_noise_is_added_to_the_array_that_is_released():
    """Also when it is not in C order, where a flat view would be a copy."""
    mechanism = BlockGaussian(12, 1.0, 1.0)
    value = np.asfortranarray(np.zeros((3, 4)))
    released = mechanism.release(value, SeededSource(np.random.default_rng(0)))
    assert released.shape == (3, 4)
    assert np.abs(released).min() > 0
