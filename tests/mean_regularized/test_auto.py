"""Defaults of the mean family: a task's own average, bounds that follow the lengths of models."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits

from skpmtl import MPMTLLowRank, PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from skpmtl.exchange.protocol import Population
from skpmtl.local.average import (
    CLASS_STRENGTHS,
    HELD,
    STRENGTHS,
    Candidates,
    averaged_class_models,
    averaged_models,
    determinants,
    held_evidence,
)
from skpmtl.mean_regularized.plan import MeanPlan
from skpmtl.privacy import gdp_epsilon, gdp_mu
from skpmtl.reproduction import LocalOnly, LocalOnlyClassifier, PublishedMeanRegMTL
from skpmtl.rounds.curator import shrinkage
from skpmtl.rounds.plan import bins, common_length, histogram, path, speeds, sum_of_bins
from skpmtl.tables.public_init import PublicInit
from skpmtl.tables.table import TaskTable, differences
from tests.helpers.sites import play

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def tasks(m, sizes=(5, 15), d=8, shared=1.0, spread=0.4, noise=1.0, seed=0):
    """Rows of m tasks around one model, with intercepts. -> X, y, task"""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), rng.integers(*sizes, m))
    W = shared * rng.normal(size=d) + spread * rng.normal(size=(m, d))
    X = rng.normal(size=(len(task), d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m)[task]
    return X, y + noise * rng.normal(size=len(task)), task


# ------------------------------------------------------------------------------- the average
def plain_average(A, target, centre, pulls, reaches, prior, intercept):
    """Average of one task from matrices n x n: the marginal likelihood of a Student t."""
    n = len(A)
    Z, v = A, target
    if intercept:
        Z, v = A - A.mean(axis=0), target - target.mean()
    weights, models = [], []
    for pull, reach, log_prior in zip(pulls, reaches, prior, strict=True):
        rho, mean = n * pull, reach * centre
        w = np.linalg.solve(Z.T @ Z + rho * np.eye(len(centre)), Z.T @ v + rho * mean)
        S = np.eye(n) + Z @ Z.T / rho
        r = v - Z @ mean
        Q = r @ np.linalg.solve(S, r)
        weights.append(
            log_prior - 0.5 * (n - intercept) * np.log(Q) - 0.5 * np.linalg.slogdet(S)[1]
        )
        models.append(w)
    p = np.exp(np.array(weights) - max(weights))
    w = p @ np.array(models) / p.sum()
    return w, (target - A @ w).mean() if intercept else 0.0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [4, 13])
def test_average_of_a_task_is_that_of_dense_formulas(intercept, d):
    """Of 2 to 30 rows, for centres that are good, bad and in units of the task."""
    sizes, rng = np.array([2, 4, 13, 14, 30, 7]), np.random.default_rng(0)
    X = 2.0 + rng.normal(size=(sizes.sum(), d))
    y = X @ rng.normal(size=d) + rng.normal(size=len(X))
    table = TaskTable(X, y, np.concatenate([[0], np.cumsum(sizes)]), np.arange(6))
    own, lone = rng.uniform(0.1, 2.0, (2, 6))
    doubt, unit = rng.uniform(0.3, 2.0, 6), np.array([1.0, 0.5, 3.0, 1.0, 1.0, 2.0])
    centres, which = rng.normal(size=(2, d)), np.array([0, 1, 0, 1, 0, 1])
    found = Candidates(own, doubt, ((1.0, 0.6), (3.0, 0.4)), 0.2, lone)
    assert_allclose(found.strength[:, 1 : 1 + len(STRENGTHS)], own[:, None] * STRENGTHS + 0.2)
    assert_allclose(np.exp(found.prior).sum(axis=1), doubt + 1.0)
    _, W, b = averaged_models(table, intercept, 1 / sizes, found, centres, which, unit)
    for k in range(6):
        rows = table.task(k)
        w, level = plain_average(
            *rows,
            unit[k] * centres[which[k]],
            found.strength[k],
            found.reach[k],
            found.prior[k],
            intercept,
        )
        assert_allclose(W[k], w, rtol=1e-9, atol=1e-9)
        assert_allclose(b[k], level, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows", [np.ones((3, 4)), np.full((1, 4), 2.0)])
def test_a_task_whose_rows_do_not_differ_has_its_centre(rows):
    table = TaskTable(rows, np.arange(len(rows)) + 5.0, np.array([0, len(rows)]), np.arange(1))
    found = Candidates(np.ones(1), np.ones(1))
    centre = np.arange(4.0)
    _, W, b = averaged_models(
        table, True, np.ones(1), found, centre[None], np.zeros(1, dtype=np.int64), np.ones(1)
    )
    assert_allclose(W[0], centre)
    assert b[0] == pytest.approx(table.y.mean() - rows[0] @ centre)


def plain_class_average(A, y, C, centre, pulls, reaches, prior, intercept):
    """Average of one task by a general minimiser and dense matrices; (C, d + 1). -> and evidence"""
    (n, d), several = A.shape, C > 1
    Z, even = A - intercept * A.mean(axis=0), 0.125
    weights, models = [], []
    for rho, reach, log_prior in zip(n * pulls, reaches, prior, strict=True):

        def objective(x, rho=rho, reach=reach):
            D, level = x[: C * d].reshape(C, d), intercept * x[C * d :]
            s = Z @ (reach * centre + D).T + level
            if not several:  # the other class has the score 0
                s, level = np.column_stack([0 * s, s]), np.append(0.0, level)
            loss = (logsumexp(s, axis=1) - s[np.arange(n), y]).sum()
            held = HELD * intercept * (len(level) * logsumexp(level) - level.sum())
            slopes = softmax(s, axis=1)
            slopes[np.arange(n), y] -= 1.0
            up = slopes.sum(axis=0) + HELD * (len(level) * softmax(level) - 1.0)
            grads = (slopes[:, -C:].T @ Z + rho * D).ravel(), intercept * up[-C:]
            return loss + held + 0.5 * rho * (D**2).sum(), np.concatenate(grads)

        best = minimize(objective, np.zeros(C * d + C), jac=True, options={"gtol": 1e-7})
        W, level = reach * centre + best.x[: C * d].reshape(C, d), intercept * best.x[C * d :]
        if several:  # one eigenvalue is 0: all scores may rise
            p = softmax(Z @ W.T + level, axis=1)
            even = np.mean([np.linalg.eigvalsh(np.diag(q) - np.outer(q, q))[1:] for q in p])
        logdet = np.linalg.slogdet(np.eye(n) + even * Z @ Z.T / rho)[1]
        weights.append(log_prior - best.fun - 0.5 * determinants(C) * logdet)
        models.append(np.column_stack([W, level - intercept * W @ A.mean(axis=0)]))
    p = np.exp(np.array(weights) - max(weights))
    return np.einsum("s,scj->cj", p / p.sum(), np.array(models)), logsumexp(weights)


@pytest.mark.parametrize(
    "C, d, intercept",
    [
        (1, 4, True),
        (3, 3, False),
        (6, 2, True),
        pytest.param(1, 9, False, marks=pytest.mark.slow),
        pytest.param(3, 5, True, marks=pytest.mark.slow),
    ],
)
def test_average_of_classes_is_that_of_a_general_minimiser(C, d, intercept):
    """Of 1 to 14 rows, some of one class; log-losses."""
    sizes, rng = np.array([1, 3, 14, 7]), np.random.default_rng(0)
    X, m = 2.0 + rng.normal(size=(sizes.sum(), d)), len(sizes)
    y = rng.integers(max(C, 2), size=len(X))
    table = TaskTable(
        X,
        (2.0 * y - 1.0 if C == 1 else y.astype(float)),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.arange(m),
    )
    own, doubt, unit = rng.uniform(0.1, 2.0, m) / sizes, rng.uniform(0.3, 2.0, m), np.arange(m) / 2
    centres, which = rng.normal(size=(2, C * d)), np.arange(m) % 2
    reaches, strengths = ((0.5, 0.4), (0.1, 0.6)), np.array([0.5, 5.0])
    found = Candidates(own, doubt, reaches, 0.01, strengths=strengths)
    assert_allclose(np.exp(found.prior).sum(axis=1), doubt + 1.0)
    loss = "logistic" if C == 1 else "multinomial"
    evidence, W, b, _ = averaged_class_models(
        table, intercept, loss, 1 / sizes, found, centres, which, unit
    )
    held = HELD * max(C, 2) * intercept
    for k in range(m):
        rows, centre = table.task(k)[0], unit[k] * centres[which[k]].reshape(C, d)
        own_y = y[table.offsets[k] : table.offsets[k + 1]]
        good, likely = plain_class_average(
            rows, own_y, C, centre, found.strength[k], found.reach[k], found.prior[k], intercept
        )
        assert_allclose(evidence[k], likely + held_evidence(held, sizes[k], C), atol=2e-3)
        got = np.column_stack([W[k], b[k]])
        if C > 1:  # what all classes have in common is free
            got[:, -1] -= got[:, -1].mean()
            good[:, -1] -= good[:, -1].mean()
        assert_allclose(got, good, atol=3e-3)


def test_tasks_of_many_classes_are_alone_what_local_only_makes_of_them():
    """Where nothing is released: evidence that is hard on weak pulls costs half of the log-loss."""
    X, y = load_digits(return_X_y=True)
    X, task = X / 16.0, np.repeat(np.arange(12), 145)[: len(X)]
    X, y, fit = X[: len(task)], y[: len(task)], np.arange(len(task)) % 145 < 80
    alone = LocalOnlyClassifier(tasks=range(12), classes=range(10))
    ours = PrivateMeanRegMTLClassifier(epsilon=0.1, tasks=range(12), classes=range(10))
    errors = []
    for estimator in alone, ours:
        estimator.fit(X[fit], y[fit], task=task[fit])
        p = estimator.predict_proba(X[~fit], task=task[~fit])
        errors.append(-np.log(p[np.arange(len(p)), y[~fit]]).mean())
    assert not ours.mean_coef_.any()  # nothing was released
    assert errors[1] < 1.05 * errors[0]


@pytest.mark.parametrize("kind", ["real", "two", "three"])
def test_averages_by_steps_are_those_of_dense_rows(kind):
    """From one billboard CSR rows give the same models, for squared loss the closed form."""
    X, y, task = tasks(6, d=5)
    X *= np.random.default_rng(1).random(X.shape) < 0.7
    cls = PrivateMeanRegMTL if kind == "real" else PrivateMeanRegMTLClassifier
    y = {"real": y, "two": y > 0, "three": np.digitize(y, [-1, 1])}[kind]
    listed = {} if kind == "real" else {"classes": np.unique(y)}
    settings = {"epsilon": 20.0, "delta": 1e-3, "clip_norm": 1.0, "random_state": 0, **listed}
    est = cls(tasks=range(6), **settings).fit(X, y, task=task)
    coef, intercept = est.coef_.copy(), est.intercept_.copy()
    est.personalize(sparse.csr_matrix(X), y, task=task)
    atol = 1e-5 if kind == "real" else 1e-2  # classes end their steps earlier
    assert_allclose(est.coef_, coef, atol=atol)
    assert_allclose(est.intercept_, intercept, atol=atol)


# ---------------------------------------------------------------------------- the histogram
def test_sensitivity_of_the_histogram():
    rng = np.random.default_rng(0)
    sent = np.concatenate([bins(10.0 ** rng.uniform(-14, 14, 300)), 5 * rng.normal(size=(100, 81))])
    sent[310, 3], sent[311, 4] = np.nan, np.inf
    bounded = np.array([sum_of_bins({"bins": row[None]}, None)["bins"] for row in sent])
    assert bounded.min() >= 0 and np.linalg.norm(bounded, axis=1).max() <= 1 + 1e-12
    distances = np.linalg.norm(bounded[:, None] - bounded[None], axis=2)
    assert 1.4 < distances.max() <= histogram("replace-one", 0.3).sensitivity * (1 + 1e-12)
    assert histogram("zero-out", 0.3).sensitivity == 1.0
    assert_array_equal(bins(np.array([0.0, 1.0, 1e300]))[:, [0, 40, 80]], np.eye(3))


def test_length_of_most_models():
    counts = np.zeros(81)
    counts[[39, 40, 41]] = 20, 60, 20
    assert common_length(counts, 1.0, 110) == pytest.approx(1.0)
    assert common_length(counts, 1.0, 210) is None  # not of most
    assert common_length(counts, 20.0, 110) is None  # not clear
    counts[:] = 0
    counts[80] = 50
    assert common_length(counts, 1.0, 60) == pytest.approx(2.0**40)


def course(rng, reach, sd, d=4000):
    """Rounds that contract the distance to an optimum by reach * sd_t / max sd at most 1, with
    noise of std sd_t. -> moves, where they end, what is left of the noise"""
    T, best = len(sd), 0.3 * rng.normal(size=d)
    moves, a, without = np.empty((T, 1, d)), np.zeros(d), np.zeros(d)
    for t in range(T):
        b = min(reach * sd[t] / sd.max(), 1.0)
        moves[t, 0] = b * (best - a) + sd[t] * rng.normal(size=d)
        a, without = a + moves[t, 0], without + b * (best - without)
    return moves, a, a - without


@pytest.mark.parametrize("reach", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("falling", [False, True])
def test_shrinkage_of_a_known_process(reach, falling):
    """Noise of early rounds is corrected less than it seems where bounds fall."""
    T = 40
    sd = 0.5 * (speeds(T) / speeds(T)[0] if falling else np.ones(T))
    moves, a, noise = course(np.random.default_rng(1), reach, sd)
    factor, left = shrinkage(moves, a[None], sd[:, None])
    assert left[0] == pytest.approx(np.std(noise), rel=0.2)
    assert factor[0] == pytest.approx(max(1 - len(a) * left[0] ** 2 / (a @ a), 0.0))
    more = shrinkage(moves, a[None], sd[:, None], np.array([20.0]))[0]
    assert more == pytest.approx(max(factor[0] - 20.0 / (a @ a), 0.0))
    # Without the moves the least contraction is taken.
    assert shrinkage(None, a[None], sd[:, None])[1] > left
    assert shrinkage(None, 1e-3 * a[None], sd[:, None])[0] == 0.0


def spread_and_stated(cls, m, n, d, tau, epsilon, related, n_seeds):
    """Standard deviations over the noise alone of a number of the shared models, and stated."""
    rng = np.random.default_rng(5)
    second = (np.arange(m) % 2 == 1) & related
    A = rng.normal(size=(2, d))
    W = A[0] + second[:, None] * A[1] + tau * rng.normal(size=(m, d))
    task, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m * n)
    relation = {k: {"second": float(second[k])} for k in range(m)} if related else None
    found, stated = [], []
    for seed in range(n_seeds):
        given = {} if cls is MPMTLLowRank else {"levels": "free"}
        est = cls(epsilon=epsilon, tasks=range(m), relation=relation, random_state=seed, **given)
        est.fit(X, y, task=task)
        found.append(est.relation_coef_ if related else est.mean_coef_[None])
        noise = est.relation_noise_std_ if related else est.billboard_.noise_std
        stated.append(noise)
    return np.sqrt(np.var(found, axis=0, ddof=1).mean(axis=1)), np.mean(stated, axis=0)


@pytest.mark.parametrize(
    "setting",
    [
        (PrivateMeanRegMTL, 400, 30, 6, 0.3, 1.0, False, 12),
        (PrivateMeanRegMTL, 400, 30, 6, 0.3, 3.0, True, 12),
        *(
            pytest.param((cls, *numbers, 50), marks=pytest.mark.slow)
            for cls, *numbers in (
                (PrivateMeanRegMTL, 400, 30, 6, 0.3, 1.0, False),
                (PrivateMeanRegMTL, 400, 30, 6, 0.3, 3.0, False),
                (PrivateMeanRegMTL, 400, 30, 6, 1.0, 1.0, False),
                (PrivateMeanRegMTL, 2000, 15, 6, 0.3, 1.0, False),
                (PrivateMeanRegMTL, 400, 15, 20, 0.3, 3.0, False),
                (PrivateMeanRegMTL, 400, 20, 100, 0.1, 1.0, False),
                (PrivateMeanRegMTL, 400, 30, 6, 0.3, 1.0, True),
                (PrivateMeanRegMTL, 400, 30, 6, 0.3, 3.0, True),
                (MPMTLLowRank, 400, 30, 6, 0.3, 3.0, True),
            )
        ),
    ],
    ids=lambda setting: "-".join(str(getattr(part, "__name__", part)) for part in setting),
)
def test_noise_that_is_published_is_that_of_the_fits(setting):
    found, stated = spread_and_stated(*setting)
    assert (np.maximum(found / stated, stated / found) < 1.5).all(), (found, stated)


# -------------------------------------------------------------------------------- the plan
@pytest.mark.parametrize("adjacency, c", [("zero-out", 1.0), ("replace-one", 2.0)])
def test_budget_of_automatic_bounds(adjacency, c):
    m = 250
    X, y, task = tasks(m)
    est = PrivateMeanRegMTL(
        levels="free",
        epsilon=1.0,
        delta=1e-4,
        adjacency=adjacency,
        tasks=range(m),
        unseen_task="mean",
        target_range=(-20.0, 20.0),
        random_state=0,  # one draw of 150 shows no common length
    ).fit(X, y, task=task)
    first, *rounds, last = est.privacy_.releases
    mu = gdp_mu(1.0, 1e-4)
    spent = [e["sensitivity"] / e["noise_std"] for e in (first, *rounds, last)]
    assert math.sqrt(np.sum(np.square(spent))) == pytest.approx(mu, rel=1e-5)
    assert spent[0] == pytest.approx(0.2 * mu, rel=1e-5)
    assert first["sensitivity"] == pytest.approx(math.sqrt(c))
    billboard = est.billboard_
    ratio = 2 / c * m * mu / math.sqrt(8)
    assert len(rounds) == path(ratio, 8)[0] == len(billboard.clip_norms)
    length = common_length(billboard.releases[0], first["noise_std"], m)
    assert_allclose(
        billboard.clip_norms, path(ratio, 8)[1] * length * speeds(len(rounds)), rtol=1e-12
    )
    assert_allclose([e["sensitivity"] for e in rounds], c / m * np.array(billboard.clip_norms))
    assert last["sensitivity"] == pytest.approx(c * 20 / m)
    assert billboard.history()[-1]["epsilon"] == pytest.approx(gdp_epsilon(mu * 0.9**0.5, 1e-4))
    assert_allclose(billboard.replay()[-1] * billboard.shrinkage, billboard.centres, rtol=1e-12)
    assert "histogram of lengths" in est.privacy_.text(None)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_ratio_of_sampled_rounds_is_that_of_their_noise(sampling):
    if sampling == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    est = PublishedMeanRegMTL(
        epsilon=4.0, delta=1e-4, sampling=sampling, sampling_rate=0.5, n_rounds=10
    )
    plan = MeanPlan(est, 100, 8)
    assert plan.scale is None and plan.measures  # units of the tasks
    std = plan.update_mechanism(1.0).noise_std  # of ten rounds on the mean
    assert plan.ratio == pytest.approx(2 * math.sqrt(10) / (std * math.sqrt(8)), rel=1e-6)


def test_hopeless_rounds_release_nothing():
    X, y, task = tasks(3)
    est = PrivateMeanRegMTL(epsilon=1.0, tasks=range(3)).fit(X, y, task=task)
    assert est.privacy_.epsilon == 0.0 and est.billboard_.releases == []
    assert "nothing is released" in est.privacy_.text(None)
    assert not est.mean_coef_.any() and est.billboard_.history() == []
    # Of the budget of an intercept everything is left.
    est.set_params(unseen_task="mean", target_range=(-20, 20)).fit(X, y, task=task)
    (entry,) = est.privacy_.releases
    assert entry["sensitivity"] / entry["noise_std"] == pytest.approx(est.privacy_.mu, rel=1e-6)
    assert est.predict(X[:2], task=[7, 7])[0] == est.mean_intercept_


def test_tasks_of_many_classes_go_further_from_a_public_start():
    rng = np.random.default_rng(0)
    C, m = 40, 60
    X, y = rng.normal(size=(8 * m, 6)), rng.integers(0, C, 8 * m)
    given = {"tasks": range(m), "classes": range(C), "random_state": 0, "delta": 1e-3}
    found, start = {}, {"coef": np.zeros((C, 6)), "intercept": np.zeros(C), "classes": range(C)}
    for epsilon in (0.3, 0.7, 2.0):
        for init in (None, start):
            est = PrivateMeanRegMTLClassifier(epsilon=epsilon, init=init, **given)
            public = est.fit(X, y, task=np.repeat(range(m), 8)).privacy_.public_inputs
            found[epsilon, init is None] = (
                public.get("n_rounds", 0),
                public.get("path"),
                est.privacy_.epsilon,
            )
    # Ratios .5, 1.1 and 2.7: below 1.5 nothing is released, but half of that is enough for a start.
    assert [found[epsilon, True][0] for epsilon in (0.3, 0.7, 2.0)] == [0, 0, 10]
    assert [found[epsilon, False][0] for epsilon in (0.3, 0.7, 2.0)] == [0, 10, 10]
    assert found[2.0, True][1] == 2.0 and found[2.0, False][1] == pytest.approx(4.0)
    assert found[0.7, False][2] == pytest.approx(0.7) and found[0.7, True][2] == 0.0


def test_clusters_are_as_hopeful_as_the_smallest():
    est = PrivateMeanRegMTL(epsilon=1.0, delta=1e-4, clusters={})
    whole, parts = (
        MeanPlan(est, 100, 8 * len(groups), groups=groups)
        for groups in (np.array([100]), np.array([90, 10]))
    )
    assert parts.ratio == pytest.approx(whole.ratio / 10)


# ------------------------------------------------------------------- units, offsets, ranges
@pytest.mark.parametrize("m, own_units", [(12, True), (60, False)])
def test_units_of_targets_do_not_matter(m, own_units):
    X, y, task = tasks(m)
    settings = {"epsilon": 8.0, "delta": 1e-3, "tasks": range(m), "random_state": 0}
    settings["levels"] = "free"
    est = PrivateMeanRegMTL(**settings).fit(X, y, task=task)
    assert est.billboard_.own_units == own_units and est.billboard_.centres.any()
    small = PrivateMeanRegMTL(**settings).fit(X, 2.0**-20 * y, task=task)
    # A histogram has other noise in other bins.
    assert_allclose(2.0**20 * small.coef_, est.coef_, atol=1e-9 if own_units else 0.1)
    if own_units:  # a unit for every task
        unit = 2.0 ** np.random.default_rng(0).integers(-30, 30, m)
        other = PrivateMeanRegMTL(**settings).fit(X, unit[task] * y, task=task)
        assert_allclose(other.coef_ / unit[:, None], est.coef_, rtol=1e-6)


@pytest.mark.parametrize("shift", [100.0, 1e4])
@pytest.mark.parametrize("m", [10, 60])
def test_offsets_of_targets_do_not_matter_with_their_range(shift, m):
    X, y, task = tasks(m)
    settings = {
        "epsilon": 5.0,
        "delta": 1e-3,
        "tasks": range(m),
        "random_state": 0,
        "unseen_task": "mean",
    }
    ids = np.where(np.arange(len(X)) % 2, task, m + 3)
    predicted = [
        PrivateMeanRegMTL(target_range=(low - 10, low + 10), **settings)
        .fit(X, y + low, task=task)
        .predict(X, task=ids)
        - low
        for low in (0.0, shift)
    ]
    assert_allclose(*predicted, atol=1e-9 * shift)


def test_ranges_that_are_missing_or_wrong():
    X, y, task = tasks(60)
    est = PrivateMeanRegMTL(levels="free", epsilon=5.0, tasks=range(60), unseen_task="mean")
    with pytest.raises(ValueError, match=r"target_range=\(low, high\), or a number as clip_norm"):
        est.fit(X, y, task=task)
    for wrong in ((1.0, 1.0), (0.0, np.inf), (1.0, 2.0, 3.0), "ab"):
        with pytest.raises(ValueError, match="target_range"):
            est.set_params(target_range=wrong).fit(X, y, task=task)


# ------------------------------------------------------------------------------ strangers
@pytest.mark.parametrize(
    "m, d, epsilon",
    [
        (3, 8, 10.0),
        (3, 8, None),
        (10, 8, 1.0),
        (10, 8, None),
        (30, 200, 1.0),
        (30, 200, None),
        pytest.param(30, 200, 10.0, marks=pytest.mark.slow),
    ],
)
def test_few_rows_are_not_far_below_alone(m, d, epsilon):
    X, y, task = tasks(m, sizes=(25, 35), d=d, noise=2.0)
    place = np.arange(len(task)) - np.searchsorted(task, task)
    train = place < 5 + task % 9
    settings = {"tasks": range(m), "random_state": 0}
    error = [
        np.mean(
            (
                est.fit(X[train], y[train], task=task[train]).predict(X[~train], task=task[~train])
                - y[~train]
            )
            ** 2
        )
        for est in (PrivateMeanRegMTL(epsilon=epsilon, **settings), LocalOnly(**settings))
    ]
    assert error[0] < 1.1 * error[1]


@pytest.mark.parametrize("wide", [False, True])
def test_without_a_budget_no_task_pulls_farther_than_most(wide):
    """Where the shared model ends, clipped ways to the tasks' models cancel."""
    rng = np.random.default_rng(3)
    task, X = np.repeat(np.arange(30), 12), rng.standard_normal((360, 5))
    models = np.ones(5) + 0.2 * rng.standard_normal((30, 5))
    models[:6] = [1e4, -300, 20, 20, -20]  # a fifth that is elsewhere
    y = np.einsum("nj,nj->n", X, models[task]) + 0.1 * rng.standard_normal(360)
    est = PrivateMeanRegMTL(epsilon=None, levels="free", max_iter=500)
    est.fit(sparse.csr_matrix(X) if wide else X, y, task=task)
    assert not est.billboard_.own_units
    assert np.abs(est.mean_coef_ - 1.0).max() < 0.2
    ways = []
    for k in range(30):
        A, v = X[task == k] - X[task == k].mean(axis=0), est.mean_coef_
        r = y[task == k] - y[task == k].mean() - A @ v
        ways.append(np.linalg.solve(A.T @ A + 12 * est.lam_ * np.eye(5), A.T @ r))
    norms = np.linalg.norm(ways, axis=1)
    clipped = np.minimum(1.0, np.median(norms) / norms) @ np.array(ways)
    assert np.linalg.norm(clipped) < 0.02 * np.median(norms) * 30


def test_without_a_budget_tasks_may_have_units_of_their_own():
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(40), 8), rng.standard_normal((320, 6))
    y = X @ np.ones(6) + 0.5 * rng.standard_normal(320)
    unit = 10.0 ** rng.uniform(-4, 4, 40)
    one = PrivateMeanRegMTL(epsilon=None, levels="free").fit(X, y, task=task)
    own = PrivateMeanRegMTL(epsilon=None).fit(X, unit[task] * y, task=task)
    assert own.billboard_.own_units and not one.billboard_.own_units
    error = np.abs(own.coef_ / unit[:, None] - 1.0).mean()
    alone = LocalOnly(epsilon=None).fit(X, y, task=task)
    assert error < 0.7 * np.abs(alone.coef_ - 1.0).mean()
    again = PrivateMeanRegMTL(epsilon=None).fit(X, 1024.0 * unit[task] * y, task=task)
    assert_allclose(again.coef_, 1024.0 * own.coef_, rtol=1e-9)


@pytest.mark.parametrize("C, loss", [(1, "logistic"), (3, "multinomial")])
@pytest.mark.parametrize("n, d", [(10, 15), (15, 6)])
def test_scores_that_are_given_are_those_of_a_centre(C, loss, n, d):
    """Without intercepts a start of all tasks and a centre at its place are one thing."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * n, d)), rng.integers(0, max(C, 2), 2 * n).astype(float)
    y = 2.0 * y - 1.0 if C == 1 else y
    table = TaskTable(X, y, np.array([0, n, 2 * n]), np.arange(2), n_classes=max(C, 2))
    start, which = rng.normal(size=(C, d)), np.zeros(2, dtype=np.int64)
    moved = differences(table, PublicInit(start, np.zeros(C)))
    for strength in CLASS_STRENGTHS:
        given = np.full(2, 1.0 / n), Candidates.one(np.full(2, 0.2 * strength))
        one = averaged_class_models(
            table, False, loss, *given, start.reshape(1, -1), which, np.ones(2)
        )
        other = averaged_class_models(
            moved, False, loss, *given, np.zeros((1, C * d)), which, np.ones(2)
        )
        assert_allclose(other[1] + start, one[1], rtol=1e-9, atol=1e-12)
        assert_allclose(other[0], one[0], rtol=1e-9)


def test_rounds_within_a_given_bound_state_the_noise_that_is_left():
    """Recounted from chosen releases; the means of two clusters are what these add up to."""
    rng = np.random.default_rng(0)
    est = PrivateMeanRegMTL(
        epsilon=4.0,
        n_rounds=6,
        clip_norm=1.0,
        tasks=range(60),
        unseen_task="mean",
        clusters={k: "aab"[k % 3] for k in range(60)},
        target_range=(-3.0, 9.0),
        init={"coef": [1.0, 0.0, -1.0], "intercept": 2.0},
    )

    def release(query, name, mechanism):
        return mechanism.noise_std * (rng.normal(size=mechanism.shape) + 3.0)

    billboard, queries, replies = play(est, Population(np.arange(60), 3), release)
    *rounds, last = queries
    reach = np.array([60 / 40, 60 / 20])
    moves = np.array([reach[:, None] * reply["update"].reshape(2, 3) for reply in replies[:-1]])
    noise = [reach * query.mechanisms["update"].noise_std for query in rounds]
    factors, left = shrinkage(moves, moves.sum(axis=0), np.array(noise))
    assert len(moves) == 6 and (0.0 < factors).all() and (factors < 0.99).all()
    assert_allclose(billboard.centres, moves.sum(axis=0))
    assert_allclose(billboard.shrinkage, factors)
    assert_allclose(billboard.noise_std, left)
    level = replies[-1]["intercept"].ravel() * reach + last.public["middle"] + 2.0
    assert_allclose(np.ravel(billboard.mean_intercept), level)
    assert len(billboard.releases) == len(billboard.report.releases) == 7
