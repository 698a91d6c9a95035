"""Classes and counts in the loop of queries: bounds, budget, and what tasks make of a model."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, logit, softmax

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.course import queries
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.curator import Loop
from skpmtl.course.levels import read_base, read_rates, shares_of_classes
from skpmtl.course.plan import HierarchicalPlan
from skpmtl.course.scores import ScoreModels
from skpmtl.exchange.wire import pack, unpack
from skpmtl.tables.forms import read_training
from skpmtl.task.scales import Summaries, own_scales
from tests.helpers.sites import drive

LOSSES = {"two": ("squared", 2), "four": ("squared", 4), "counts": ("poisson", 0)}
D = 3

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.privacy.report.PrivacyLeakWarning")


def table(which, m=60, n=8, seed=0):
    """Rows, targets and tasks whose models have a common part."""
    rng, C = np.random.default_rng(seed), LOSSES[which][1]
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, D))
    W = rng.normal(size=(max(C, 1), D)) + 0.3 * rng.normal(size=(m, max(C, 1), D))
    s = (X[:, None] * W[task]).sum(axis=2) + 0.5 * rng.normal(size=(m, max(C, 1)))[task]
    if not C:
        return X, rng.poisson(np.exp(0.5 * s[:, 0])), task
    return X, (s + rng.gumbel(size=s.shape)).argmax(axis=1), task


def estimator(which, epsilon, m=60, **more):
    C, more = LOSSES[which][1], {"tasks": range(m), "random_state": 0, **more}
    if C:
        return PrivateMTLClassifier(epsilon=epsilon, classes=range(C), **more)
    return PrivateMTL(epsilon=epsilon, loss="poisson", **more)


@pytest.mark.parametrize("which", ["two", "four"])
def test_shares_are_those_without_the_scores_that_are_given(which):
    """With one row more, in all classes alike and of no given score, they add up to the classes."""
    C, (X, y, task) = LOSSES[which][1], table(which)
    est = estimator(which, 3.0)
    rows = est._encoded(read_training(est, X, y, task)[0], np.arange(C))[0]
    base = 3.0 * np.random.default_rng(0).normal(size=(len(y), 1 if C == 2 else C))
    models = ScoreModels(replace(rows, base=base))
    given = np.c_[np.zeros(len(y)), base] if C == 2 else base
    for t, share in enumerate(models.class_shares()):
        own = models.codes == t
        found = softmax(np.log(share) + given[own], axis=1).sum(axis=0) + share
        wanted = np.bincount(models.y[own].astype(int), minlength=C) + 1.0 / C
        np.testing.assert_allclose(found, wanted, atol=0.05)


@pytest.mark.parametrize("which", LOSSES)
def test_slopes_are_found_without_an_intercept(which):
    """Nearly as well as with one, where levels are less than what slopes explain."""
    (X, y, task), scores = table(which, m=100), []
    half = np.arange(len(y)) % 2 == 0
    for fit_intercept in (True, False):
        est = estimator(which, None, m=100, fit_intercept=fit_intercept)
        est.fit(X[half], y[half], task=task[half])
        scores.append(est.score(X[~half], y[~half], task=task[~half]))
    assert not est.intercept_.any()
    assert scores[1] > 0.8 * scores[0] > 0.3


def test_information_of_a_row_is_the_variance_of_its_class():
    est, (X, y, task) = estimator("two", 3.0), table("two")
    models = ScoreModels(est._encoded(read_training(est, X, y, task)[0], np.arange(2))[0])
    plan = HierarchicalPlan(1.0, 1e-5, "replace-one", 60, D, 1, "squared", 2)
    away, information = models.row_deviations(Loop(plan).model)
    mean = models.y - away * information
    np.testing.assert_allclose(information, mean * (1.0 - mean), rtol=1e-9)


def test_levels_of_classes_are_about_the_public_model():
    """Of log-odds near -3, of which the shares alone know as well."""
    X, _, task = table("two", m=200, n=20)
    rng = np.random.default_rng(0)
    y = rng.random(len(X)) < 1.0 / (1.0 + np.exp(3.0 - X[:, 0]))
    init = {"coef": np.zeros(D), "intercept": -3.0}
    est = estimator("two", None, m=200, init=init, unseen_task="mean").fit(X, y.astype(int), task)
    assert est.mean_intercept_ == pytest.approx(-3.0, abs=0.3)


# ------------------------------------------------------------------------------------ bounds
def questions(which):
    loss, C = LOSSES[which]
    model = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, D, 1, loss, C)).model
    yield queries.Base(C, C - 1, 0.1) if C else queries.Rates()
    yield queries.CentreStep(model.centre, 0.7, 1.0)
    yield queries.Moment(model.centre, np.eye(D))


@pytest.mark.parametrize("which", LOSSES)
def test_questions_travel_as_public_numbers(which):
    loss, C = LOSSES[which]
    loop = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, D, 1, loss, C))
    vote = queries.Vote(queries.separate([loop.part()] * 3))
    for question in [*questions(which), vote]:
        query = question.query(loop.model, {question.kind: question.mechanism("replace-one", 1.0)})
        spec = queries.query_specs(queries.Sizes(D, loss, C))[query.statistic]
        again = type(question).of(spec.check(unpack(*pack(query.public)))).query(loop.model, {})
        assert pack(again.public)[0] == pack(query.public)[0]


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("most", [1.0, 0.1])
def test_shares_of_two_tasks_are_as_far_apart_as_stated(C, most, adjacency):
    """Also of tasks that send anything; reached, and not passed."""
    rng, question = np.random.default_rng(0), queries.Base(C, 0, most)
    corners = np.concatenate([np.zeros((1, C)), np.eye(C), np.eye(C) + np.eye(C)[-1]])
    sent = np.concatenate([9e9 * corners, 3.0 * rng.normal(size=(100, C)), np.full((1, C), np.nan)])
    each = question.bounded(sent)
    others = each if adjacency == "replace-one" else np.zeros((1, C))
    apart = np.linalg.norm(each[:, None] - others, axis=2).max()
    assert apart == pytest.approx(question.sensitivity(adjacency), rel=1e-9)


# ------------------------------------------------------------------------------------- models
def test_rates_with_exposures_are_counts_of_all_of_them():
    X, y, task = table("counts")
    exposure = np.random.default_rng(1).uniform(0.5, 4.0, len(y))
    y = np.random.default_rng(2).poisson(exposure * np.exp(0.5 * X[:, 0]))
    est = estimator("counts", None).fit(X, y / exposure, task=task, sample_weight=exposure)
    assert est.score(X, y / exposure, task=task, sample_weight=exposure) > 0.3
    assert np.median(est.coef_[:, 0]) == pytest.approx(0.5, abs=0.15)
    assert np.median(est.intercept_) == pytest.approx(0.0, abs=0.2)


def test_no_rate_is_far_above_all_that_were_seen():
    """At rows that point where rates are highest, beyond every row of the task."""
    X, y, task = table("counts", n=6)
    est = estimator("counts", None).fit(X, y, task=task)
    largest = np.maximum.reduceat(y, np.arange(0, len(y), 6))
    level = np.exp(est.level_)
    rates = est.predict(1e3 * np.sign(est.coef_), task=np.arange(60))
    assert (rates <= np.e * np.maximum(largest + 1.0, np.e * level) * (1.0 + 1e-9)).all()
    assert rates.max() > y.max()


def test_rates_of_tasks_of_few_rows_add_up_to_their_counts():
    """The mean of a rate is above the rate of the mean score."""
    rng, m = np.random.default_rng(0), 600
    task, of = np.repeat(np.arange(m), 2), np.repeat(np.arange(m), 10)
    level = 0.5 + 0.8 * rng.normal(size=m)
    X, Z = rng.normal(size=(2 * m, 1)), rng.normal(size=(10 * m, 1))
    y, v = (rng.poisson(np.exp(level[k] + 0.2 * A[:, 0])) for A, k in ((X, task), (Z, of)))
    est = PrivateMTL(loss="poisson", epsilon=None, tasks=range(m)).fit(X, y, task=task)
    assert est.predict(Z, task=of).sum() == pytest.approx(v.sum(), rel=0.07)


def one_cell(grid, value):
    """Log weights of a grid with this value alone. -> the nearest value, log weights"""
    nearest = int(np.argmin(np.abs(np.log(grid / value))))
    return grid[nearest], np.where(np.arange(len(grid)) == nearest, 0.0, -1e3)


def test_unknown_levels_bring_probabilities_nearer():
    """Also at the mean row of a task, where slopes say nothing."""
    X, y, task = table("two", m=40, n=3)
    est = estimator("two", None, 40).fit(X, y, task=task)
    centre = X.reshape(40, 3, D).mean(axis=1)
    score = np.sum(centre * est.coef_, axis=1) + est.intercept_
    p = est.predict_proba(centre, task=np.arange(40))[:, 1]
    assert (logit(p) / score < 0.985).all()


def test_tasks_that_are_alike_have_the_released_share_anywhere():
    """Under wide votes, of few rows, far from the centre of columns, and of a rare class."""
    rng, m, n = np.random.default_rng(0), 300, 6
    centre, level = np.append(-3.0, np.zeros(D)), 1.0 / (1.0 + math.exp(3.0))
    board = HierarchicalBillboard(m, float(m), centre, n_classes=2, width=7.0, unit=1.0)
    known = {"scale_variance": np.zeros(2), "column_centre": np.full(D, 1e-9)}
    board = replace(board, middle=0.0, of_shares=True, **known)
    task, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, D))
    X += 1.5 * rng.normal(size=(m, D))[task]
    est = PrivateMTLClassifier.from_billboard(board, classes=range(2), tasks=range(m))
    est.personalize(X, (rng.random(m * n) < level).astype(int), task=task)
    assert est.predict_proba(X, task=task)[:, 1].mean() == pytest.approx(level, rel=0.2)


@pytest.mark.parametrize("value", [1.0, 8.0])
def test_probabilities_are_near_the_exact_average_of_softmax(value):
    """Over draws from a prior of one scale, weighted by the likelihood of the rows of a task."""
    C, d, n = 3, 2, 5
    board = HierarchicalBillboard(1, 1.0, np.zeros((C, d + 1)), n_classes=C, width=5.0, unit=1.0)
    (kappa, log_kappa), (tau, log_tau) = one_cell(board.law.kappa, value), one_cell(board.tau, 1.0)
    board = replace(
        board,
        middle=0.0,
        scale_variance=np.zeros(2),
        log_kappa=log_kappa,
        log_tau=log_tau,
        log_components=np.array([-50.0, -50.0, 0.0]),
    )
    ours, plain, task = [], [], np.zeros(n, dtype=int)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, Z = rng.normal(size=(n, d)), rng.normal(size=(80, d))
        score = X @ rng.normal(scale=np.sqrt(kappa / d), size=(d, C)) + rng.normal(size=C)
        y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
        est = PrivateMTLClassifier.from_billboard(board, classes=range(C))
        est.set_params(uncertainty=True).personalize(X, y, task=task)
        summaries = Summaries.of(X, 1.0 * y, np.array([0, n]), np.ones(n))
        scale = own_scales(summaries, np.ones(d), 0.0, 0.0)[0][0]
        W = np.sqrt(kappa / d) / scale * rng.normal(size=(20_000, C, d))
        level = tau * rng.normal(size=(20_000, 1, C))
        s = np.einsum("kcd,nd->knc", W, X - X.mean(axis=0)) + level
        weight = np.exp(log_softmax(s, axis=2)[:, np.arange(n), y].sum(axis=1))
        drawn = rng.choice(len(weight), 2000, p=weight / weight.sum())
        s = np.einsum("kcd,nd->knc", W[drawn], Z - X.mean(axis=0)) + level[drawn]
        exact = softmax(s, axis=2).mean(axis=0)
        for found, p in (
            (ours, est.predict_proba(Z, task=np.zeros(80, dtype=int))),
            (plain, softmax(Z @ est.coef_[0].T + est.intercept_[0], axis=1)),
        ):
            found.append(np.sum(exact * np.log(exact / p)) / 80)
    assert np.mean(ours) < 0.45 * np.mean(plain)


@pytest.mark.parametrize("which", ["two", "four"])
def test_rows_far_beyond_a_task_have_the_doubt_of_its_centre(which):
    """As their scores are: nothing that a task knows of its slopes holds there."""
    X, y, task = table(which)
    est = estimator(which, 1.0).fit(X, y, task=task)
    every = np.arange(60)
    far, near = est.row_centre_ + 1e9, est.row_centre_
    p, at_centre = (est.predict_proba(Z, task=every) for Z in (far, near))
    np.testing.assert_allclose(p, at_centre, atol=1e-3)


def test_levels_spread_by_what_is_not_known_of_shares():
    """Of twelve tasks at a budget that asks nothing else, so that no step or vote follows."""
    loop = Loop(HierarchicalPlan(1.0, None, "replace-one", 12, 1, C=2))
    drive(loop.run(), lambda query, name, by: np.array([6.0, 6.0]))
    likely = np.exp(loop.model.log_tau) > 1e-12
    assert loop.level_noise > 1.0
    assert loop.model.tau[likely].min() ** 2 > 0.25 * loop.level_noise


@pytest.mark.parametrize("m, epsilon, is_all", [(46, 3.0, True), (400, 10.0, False)])
def test_shares_have_the_budget_of_as_many_tasks_as_have_rows(m, epsilon, is_all):
    """Of ten of those that are listed: little is left for what so few can tell, or nothing."""
    loop = Loop(HierarchicalPlan(epsilon, 1e-5, "replace-one", m, 1, C=2))

    def release(query, name, by):
        return np.array([5.0, 10.0 * queries.COUNTED]) if name == "base" else np.zeros(by.shape)

    _, queried, _ = drive(loop.run(), release)
    spent = sum(query.mechanisms["base"].mu ** 2 for query in queried if query.statistic == "base")
    assert spent > 1.1 * loop.plan.share_of_place() * loop.plan.mu**2
    assert spent <= loop.plan.mu**2 * (1.0 + 1e-9)
    assert (spent > 0.999 * loop.plan.mu**2) == is_all


# --------------------------------------------------------------------------- how sums are read
def test_shares_of_classes_are_those_that_were_measured():
    m, shares, question = 1000.0, np.array([0.5, 0.3, 0.2]), queries.Base(3, 0)
    n, known = read_base(np.append(m * shares[1:], queries.COUNTED * m), 0.0, question, m)
    assert n == m
    np.testing.assert_allclose(shares_of_classes(known)[0], shares, atol=0.01)
    _, known = read_base(np.zeros(3), 2000.0, question, 10)  # noise alone
    np.testing.assert_allclose(shares_of_classes(known)[0], np.full(3, 1 / 3), atol=0.01)


def test_a_low_cut_is_no_bias_of_one_row_of_a_rare_class():
    """Whatever numbers of rows tasks have: plain parts of one of two rows would be cut."""
    rng, m, p = np.random.default_rng(0), 4000, 0.005
    n = rng.integers(1, 60, m)
    task, first = np.repeat(np.arange(m), n), np.cumsum(n) - n
    y = np.zeros(len(task), dtype=int)
    y[first[rng.random(m) < n * p]] = 1
    rows = read_training(estimator("two", 3.0, m), np.zeros((len(y), 1)), y, task)[0]
    tasks = ScoreModels(estimator("two", 3.0, m)._encoded(rows, np.arange(2))[0])
    question = queries.Base(2, 0, 0.1)
    found = question.total(question.bounded(question.answer(tasks, None)))
    _, (shares, _) = read_base(found, 0.0, question, m, m)
    assert shares[1] == pytest.approx(p, rel=0.15)


def test_the_window_of_rates_is_where_half_of_them_are():
    found = np.zeros(queries.BINS + 1)
    found[queries.OCTAVE + 3] = 80.0  # rates of 8 to 16
    found[queries.BINS] = 80.0 * queries.SIGN
    n, *_, (middle, half) = read_rates(found, 0.0, 100)
    assert n == pytest.approx(80.0)
    assert math.log(8.0) <= middle <= math.log(16.0) and half <= 1.0


@pytest.mark.parametrize("kind", ["classes", "counts"])
def test_columns_that_are_constant_in_a_task_have_slopes(kind):
    rng = np.random.default_rng(0)
    z, task = rng.normal(size=400), np.repeat(np.arange(400), 3)
    score = z[task]
    given = {"epsilon": 20.0, "tasks": range(400), "random_state": 0}
    if kind == "classes":
        y = rng.random(len(task)) < 1.0 / (1.0 + np.exp(-score))
        est = PrivateMTLClassifier("mean", classes=[False, True], **given)
        found = est.fit(z[task, None], y, task=task).billboard_.centre[1]
    else:
        est = PrivateMTL("mean", loss="poisson", **given)
        found = est.fit(z[task, None], rng.poisson(np.exp(score)), task=task).mean_coef_[0]
    assert 0.5 < found < 2.0


def test_rows_that_repeat_a_person_say_its_spread_once():
    """Two people who are alike by chance give no bold slope, however many rows they have."""
    X = np.repeat([[0.24, 0.3], [0.25, 1.2], [2.0, 0.5]], 6, axis=0)
    found = Summaries.of(X, np.ones(18), np.array([0, 12, 18]), np.ones(18))
    scale, _ = own_scales(found.with_repeats(X, np.array([0, 12, 18])), np.ones(2), 0.0, 0.0)
    bold, _ = own_scales(found, np.ones(2), 0.0, 0.0)
    assert scale.min() > 0.4 and bold[0, 0] < 0.1


@pytest.mark.parametrize("which", ["two", "four"])
def test_origins_of_columns_without_a_release_mean_nothing(which):
    X, y, task = table(which, m=10)
    origin, est = np.array([5.0, -2.0, 1.0]), estimator(which, 0.3, m=10)
    scores = [est.fit(Z, y, task=task).decision_function(Z, task=task) for Z in (X, X + origin)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-8, atol=1e-8)
    assert np.std(scores[0]) > 0.1


@pytest.mark.parametrize("n_none, events", [(30.0, -math.log(0.3)), (0.0, math.log(100.0))])
def test_events_of_a_task_follow_from_those_without_as_far_as_noise_says(n_none, events):
    """100 tasks of Poisson events; one task is the least number that a part is known by."""
    found = np.zeros(queries.BINS + 2)
    found[queries.BINS :] = np.array([n_none, 100.0 - n_none]) * queries.SIGN / math.sqrt(2.0)
    assert read_rates(found, 0.0, 100)[1] == pytest.approx(events)
    noise = 10.0 * queries.SIGN / math.sqrt(2.0)  # of ten tasks
    assert read_rates(found, noise, 100)[1] == pytest.approx(min(events, math.log(10.0)))


def test_noise_alone_is_rarely_a_place_of_rates():
    rng = np.random.default_rng(0)
    cells = [np.append(rng.normal(size=queries.BINS), 5.0) for _ in range(300)]
    assert sum(read_rates(found, 1.0, 100)[-1] is not None for found in cells) < 9


def test_a_vote_that_is_noise_leaves_rates_near_their_level():
    """Mean rates are the level's times exp(tau^2 / 2)."""
    plan = HierarchicalPlan(3.0, None, "replace-one", 100, 2, loss="poisson")
    loop, rng = Loop(plan), np.random.default_rng(0)
    loop.update(middle=0.0, width=1.0, log_tau=None)
    before, found = loop.model, []
    for _ in range(100):
        loop.model, loop.spent = before, 0.0
        drive(loop.vote_tau(0.1), lambda query, name, by: by.noise_std * rng.normal(size=by.shape))
        found.append(loop.model.level_spread)
    assert np.quantile(found, 0.95) < 1.3


def test_few_tasks_of_counts_have_a_centre_where_it_pays():
    """Counts of three tasks that have nothing to do with ten columns: no slopes are shared."""
    rng = np.random.default_rng(3)
    X, task = rng.normal(size=(45, 10)), np.repeat(np.arange(3), 15)
    y = rng.negative_binomial(4, 0.2, size=45)
    est = estimator("counts", None, m=3).fit(X, y, task=task)
    assert np.abs(est.billboard_.centre[1:]).max() < 0.05
