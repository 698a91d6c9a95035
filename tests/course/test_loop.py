"""The loop of queries: budget, bounds, and what models may depend on."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.course import queries, tasks
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.curator import Loop
from skpmtl.course.errors import RowSquares
from skpmtl.course.groups import GroupStep
from skpmtl.course.levels import read_place, read_zoom
from skpmtl.course.plan import STRUCTURES, HierarchicalPlan
from skpmtl.course.shapes import FLOOR, path_of_shapes, softened, standing_out
from skpmtl.course.tasks import HierarchicalTaskSide
from skpmtl.datasets import make_low_rank_tasks
from skpmtl.exchange.wire import pack, unpack
from skpmtl.privacy.mechanisms import std_of
from skpmtl.tables.forms import read_training
from skpmtl.task.priors import SIGMA, after, at_least, before_tau, between, bump, ends, middle
from tests.helpers.sites import drive


def table(m=60, seed=0):
    return make_low_rank_tasks(n_tasks=m, n_samples=8, n_features=3, random_state=seed)


def fitted(m=60, **parameters):
    X, y, task = table(m)
    return PrivateMTL(tasks=range(m), random_state=0, **parameters).fit(X, y, task=task)


pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.privacy.report.PrivacyLeakWarning")


# ------------------------------------------------------------------------------------ bounds
def questions(d=3):
    yield queries.Place()
    yield queries.Zoom(2.0, 4.0, 0.25)
    yield queries.ColumnUnits(np.ones(d), np.zeros(d), 8.0)
    yield queries.ColumnUnits(np.ones(d), np.zeros(d), 2.0, of_means=True)
    yield queries.CentreStep(np.zeros(d + 1), 0.7, 2.5)
    yield queries.CentreStep(np.zeros(d + 1), 0.7, 0.0)
    yield queries.Moment(np.zeros(d + 1), np.eye(d))
    part = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, d)).part()
    yield queries.Vote(queries.separate([part] * 8))
    yield queries.Vote(queries.separate([part] * 2))
    yield GroupStep(0.5, np.arange(3.0 * d).reshape(3, d), np.eye(d), 0.7)


@pytest.mark.parametrize(
    "question", [q for q in questions() if q.kind not in ("place", "zoom")], ids=lambda q: q.kind
)
def test_what_is_within_the_bound_stays_as_it_is(question):
    ((size,),) = type(question).spec(queries.Sizes(3)).shapes.values()
    sent = 0.01 * np.random.default_rng(0).normal(size=(20, size))
    if question.kind == "groups":  # a task has one group, whose count is one
        sent *= np.arange(size) < 4
        sent[:, 0] = 1.0
    if question.kind == "step" and not question.level_unit:  # levels that are not pooled
        sent[:, 0] = 0.0
    found = question.bounded(sent)
    np.testing.assert_allclose(found, sent[:, : found.shape[1]], rtol=1e-12)
    assert found.any()


@pytest.mark.parametrize("question", [*questions()], ids=lambda q: q.kind)
def test_a_question_travels_as_public_numbers(question):
    """As text and arrays, within what the study knows of it; any other model is refused."""
    d = 3
    model = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, d)).model
    query = question.query(model, {question.kind: question.mechanism("replace-one", 1.0)})
    public = unpack(*pack(query.public))
    spec = type(question).spec(queries.Sizes(d))
    again = type(question).of(spec.check(public)).query(model, {})
    assert pack(again.public)[0] == pack(query.public)[0]
    side = HierarchicalTaskSide(read_training(PrivateMTL(), *table(4))[0])
    query = replace(query, public=spec.check(public))
    side.check(query)
    (sent,) = side.contributions(query).values()
    assert sent.shape == (4, *spec.shapes[query.statistic])
    (released,) = query.combine({query.statistic: sent}).values()
    assert released.shape == query.mechanisms[query.statistic].shape
    if "model" in public:
        other = replace(model, centre=np.zeros(d + 2), root=None, column_scale=None)
        with pytest.raises(ValueError, match="other columns"):
            side.check(replace(query, public={**public, "model": other}))


# ------------------------------------------------------------------------------------ memory
def test_exact_steps_add_up_tasks_in_blocks(monkeypatch):
    X, y, task = table(20)
    est = PrivateMTL(epsilon=None, relation={k: [k % 3] for k in range(20)})
    whole = clone(est).fit(X, y, task=task)
    monkeypatch.setattr(tasks, "_BLOCK", 3 * 16)
    np.testing.assert_allclose(est.fit(X, y, task=task).coef_, whole.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    "est", [PrivateMTLClassifier(classes=range(3)), PrivateMTL(standard_errors=True)]
)
def test_matrices_of_all_tasks_are_refused_with_a_remedy(est):
    """Before one of them is made: 400 tasks of 1,000 columns."""
    X = sparse.csr_matrix((400, 1000))
    with pytest.raises(ValueError, match="for 400 tasks more than .* fewer columns"):
        est.set_params(tasks=range(400)).fit(X, np.arange(400) % 3, task=np.arange(400))


# --------------------------------------------------------------------------- robust predictions
def test_tasks_without_rows_are_predicted_near_the_level():
    """Rows far from all that was released, with columns whose scales are mostly noise."""
    rng = np.random.default_rng(0)
    m, n, d = 120, 5, 40
    X, task = rng.normal(size=(m * n, d)) * 10.0 ** rng.uniform(-3, 4, d), np.repeat(range(m), n)
    y = 0.4 + 0.1 * rng.normal(size=m * n)
    keep = task < 60
    est = PrivateMTL(epsilon=3.0, tasks=range(m), random_state=0).fit(X[keep], y[keep], task[keep])
    assert est.billboard_.has_place
    p = est.predict(100.0 * X[~keep], task=task[~keep])
    assert np.abs(p - 0.4).max() < 3.0


def test_without_a_place_the_public_range_has_one():
    X, y, task = table(12)
    keep = task < 6
    est = PrivateMTL(epsilon=0.1, tasks=range(12), random_state=0, target_range=(2.0, 4.0))
    est.fit(X[keep], y[keep], task=task[keep])
    assert (est.predict(X[~keep], task=task[~keep]) == 3.0).all()


# --------------------------------------------------------------------------- how sums are read
@pytest.mark.parametrize("coverage", [0.0, 0.5, 0.9])
def test_ends_of_an_even_vote_are_as_far_from_its_middle(coverage):
    octaves, before = np.arange(-3.0, 4.0), np.zeros(7)
    known = after(-0.7 * np.abs(octaves), before), before - np.log(7.0), 3.0 * 2.0**octaves
    low, high = ends(*known, coverage)
    assert middle(*known) == pytest.approx(np.sqrt(low * high), rel=1e-9)
    assert (high > 1.1 * low) == (coverage > 0.0)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("signal", [0.0, 100.0])
def test_what_stands_out_of_a_noisy_moment_is_its_signal(signal, columns):
    """A direction, or a column, over the noise is found; a flat moment has none."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        N, u = rng.normal(size=(20, 20)), np.eye(20)[11] if columns else rng.normal(size=20)
        u /= np.linalg.norm(u)
        moment = signal * np.outer(u, u) + 5.0 * np.eye(20) + (N + N.T) / 2
        vectors, values = standing_out(moment, 1.0, 1e4, columns)
        if signal:
            assert abs(vectors[:, values.argmax()] @ u) > 0.97
            assert 90.0 < values.max() < 105.0
        assert np.sort(values)[-1 - (signal > 0)] < 4.0


def test_shapes_have_trace_one_and_a_floor():
    root = np.diag(np.sqrt([0.6, 0.2, 0.1, 0.1]))
    for L in path_of_shapes(np.diag([9.0, 5.0, 1.0, 1.0]), 0.1, 100.0, root, STRUCTURES)[:4]:
        values = np.linalg.eigvalsh(L @ L.T)
        np.testing.assert_allclose(values.sum(), 1.0)
        assert values[0] >= FLOOR / 4 - 1e-12


def test_a_softened_shape_is_flat_for_a_flat_one():
    flat = np.eye(9) / 3.0
    np.testing.assert_allclose(softened(flat), flat, atol=1e-12)
    u = np.ones(9) / 3.0
    soft = softened(np.outer(u, u) + 1e-6 * np.eye(9))
    np.testing.assert_allclose(np.linalg.eigvalsh(soft @ soft)[-1], (3 + 1 / 9) / 4, rtol=1e-4)


def test_moments_are_of_deviations_in_units_of_the_shape():
    tasks = HierarchicalTaskSide(read_training(PrivateMTL(), *table(40))[0]).models
    model = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, 3)).model
    centre, root = np.array([0.0, 1.0, -1.0, 0.5]), np.linalg.cholesky(0.2 * np.eye(3) + 0.1)
    sent = queries.Moment(centre, root).answer(tasks, model)
    slopes = tasks.deviations(model, centre, root, model.scales())[1]
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), 1.0)
    back = sent @ root.T
    back *= (np.linalg.norm(slopes, axis=1) / np.linalg.norm(back, axis=1))[:, None]
    np.testing.assert_allclose(back, slopes, atol=1e-10)


def test_levels_of_outlying_tasks_of_one_row_are_believed(epsilon=3.0):
    rng = np.random.default_rng(0)
    m = 400
    level = np.where(np.arange(m) % 40 == 0, 50.0, 1.0) * rng.normal(size=m)
    X, y = rng.normal(size=(m, 2)), level + 0.3 * rng.normal(size=m)
    est = PrivateMTL(epsilon=epsilon, tasks=range(m), random_state=0)
    est.fit(X, y, task=range(m))
    far = np.abs(level) > 20.0
    p = est.predict(X[far], task=np.flatnonzero(far))
    assert far.any() and (np.abs(p - level[far]) < 0.3 * np.abs(level[far])).all()


@pytest.mark.parametrize("off", [-0.5, -0.25, 0.0, 0.3])
@pytest.mark.parametrize("sd", [0.1, 0.3, 1.0])
def test_a_sure_vote_finds_a_middle_between_two_points(sd, off):
    """Half an octave of noise is a factor of two in its variance."""
    octaves = np.log2(SIGMA)
    truth = octaves[len(SIGMA) // 2] + off
    log_weights, priors = between(-0.5 * ((octaves - truth) / sd) ** 2, SIGMA)
    found = np.exp(np.logaddexp.reduce(log_weights[:, None] + priors, axis=0))
    assert found @ octaves == pytest.approx(truth, abs=0.03)


def test_large_shared_slopes_reach_beyond_own_ranges():
    """Slopes that explain .96 of the variance, of tasks of one row; that of one is far away."""
    rng, m = np.random.default_rng(0), 400
    task = np.repeat(np.arange(m), 6)
    X = rng.normal(size=(len(task), 4))
    y = X @ [3.0, -4.0, 5.0, 1.0] + rng.normal(size=m)[task] + rng.normal(size=len(task))
    X[0], y[0] = [6.0, -6.0, 6.0, 6.0], 78.0
    fit = np.tile(np.arange(6) < 1, m)
    est = PrivateMTL(epsilon=None).fit(X[fit], y[fit], task=task[fit])
    assert np.mean((est.predict(X[~fit], task=task[~fit]) - y[~fit]) ** 2) < 0.25 * y.var()
    assert abs(est.predict(np.zeros((1, 4)), task=[0])[0]) < 5.0


@pytest.mark.parametrize("of_rows", [True, False])
def test_other_tasks_tell_whether_a_lone_row_is_noise_or_level(of_rows):
    """Tasks of five rows differ by their noise, or by their levels; others have one row."""
    rng = np.random.default_rng(0)
    n = np.repeat([5, 1], 100)
    size = np.exp2(rng.uniform(0.0, 5.0, len(n)))
    size[-1] = 32.0
    level = rng.normal(size=len(n)) * (1.0 if of_rows else size)
    task = np.repeat(np.arange(len(n)), n)
    y = level[task] + rng.normal(size=len(task)) * (size[task] if of_rows else 1.0)
    y[-1] = 60.0
    est = PrivateMTL(epsilon=None).fit(rng.normal(size=(len(y), 1)), y, task=task)
    p = est.predict(np.zeros((1, 1)), task=[len(n) - 1])[0]
    assert p < 15.0 if of_rows else p > 45.0


def test_a_far_row_is_noise_where_others_of_its_task_agree():
    """One of six rows, of which twenty slopes could explain all."""
    rng, (m, n, d) = np.random.default_rng(2), (60, 6, 20)
    task = np.repeat(np.arange(m), n)
    X = 0.6 * rng.normal(size=(m * n, d)) + 0.8 * rng.normal(size=(m * n, 1))
    y = rng.normal(size=m)[task] + 0.5 * X[:, 0] + 0.5 * rng.normal(size=m * n)
    Z = 0.6 * rng.normal(size=(200, d)) + 0.8 * rng.normal(size=(200, 1))
    y[0] += 15.0
    p = PrivateMTL(epsilon=None).fit(X, y, task=task).predict(Z, task=np.zeros(200, dtype=int))
    assert np.sqrt(np.mean((p - 0.5 * Z[:, 0] - y[1:n].mean()) ** 2)) < 0.6


def test_a_lone_far_row_of_two_is_not_the_unit_of_its_task():
    rng, task = np.random.default_rng(0), np.repeat(np.arange(60), 4)
    X = rng.normal(size=(240, 3))
    y = X @ [1.0, 2.0, 1.0] + rng.normal(size=240)
    y[2] += 1500.0
    est = PrivateMTL(epsilon=None).fit(X[2:], y[2:], task=task[2:])
    p = est.predict(X[4:], task=np.zeros(236, dtype=int))
    assert np.sqrt(np.mean((p - y[4:]) ** 2)) < 1.2


def zooms(listed):
    """Zooms, none of them sure, after the place of 100 of the tasks that are listed."""
    place = np.zeros(queries.Place().size)
    place[[queries.BINS // 2 + 9, -2]] = 100.0, 100.0 * queries.SIGN
    loop = Loop(HierarchicalPlan(1.5, 1e-5, "replace-one", listed, 2))
    _, asked, _ = drive(
        loop.find_place(),
        lambda query, name, mechanism: place if name == "place" else np.zeros(mechanism.shape),
    )
    return [query for query in asked if query.statistic == "zoom"]


def test_zooms_have_the_share_of_the_tasks_with_rows():
    few, many = (std_of(zooms(listed)[0].mechanisms["zoom"]) for listed in (100, 2000))
    assert many == pytest.approx(few)


def test_a_zoom_that_is_not_sure_is_asked_twice_more():
    first, *again = (query.public for query in zooms(100))
    assert again == [first, first]


@pytest.mark.parametrize("says, halvings", [(0.0, (2.2, 8.0)), (1e3, (2.99, 3.01))])
def test_a_unit_that_votes_leave_open_is_taken_to_be_small(says, halvings):
    """A unit that is too large moves tasks of few rows by many times their noise."""
    loop = Loop(HierarchicalPlan(3.0, 1e-5, "replace-one", 30, 2))
    loop.update(middle=480.0, width=200.0, unit=200.0, n_present=30.0, log_tau=None)
    vote = loop.vote_unit(0.05)
    next(vote)
    with pytest.raises(StopIteration):
        vote.send({"vote": says * np.repeat([1.0, -1.0], [3, 7])})
    assert halvings[0] <= math.log2(200.0 / loop.model.unit) <= halvings[1]


def test_without_a_budget_few_tasks_share_no_chance_slopes():
    """More columns than tasks, and targets without slopes: the mean of all is as good as any."""
    rng = np.random.default_rng(0)
    task, test = np.repeat(np.arange(16), 5), np.repeat(np.arange(16), 30)
    X, y = rng.normal(size=(80, 40)), rng.normal(size=80)
    est = PrivateMTL(epsilon=None, tasks=range(16)).fit(X, y, task=task)
    p = est.predict(rng.normal(size=(len(test), 40)), task=test)
    assert np.sqrt(np.mean(p**2)) < 0.5


def test_a_place_is_where_most_tasks_are_clear_of_noise():
    """Three bins of noise hold more than one full bin, whose window is wider."""
    found = np.zeros(162)
    found[2:5], found[50] = 30.0, 100.0
    found[160:] = 100.0 / np.sqrt(2.0)  # as many signs of each
    *_, (middle, half) = read_place(found, 8.0, 200)
    assert abs(middle) < 0.1 * half and half > 2.0**10


@pytest.mark.parametrize(
    ("octaves_away", "z", "is_unit"), [(2, 4, True), (45, 4, False), (45, 7, True)]
)
def test_units_far_from_all_means_must_be_clearer(octaves_away, z, is_unit):
    """Among 80 bins noise often makes one peak, and most of them are nowhere near the targets."""
    bumps = queries.bumps(80, True)
    means, spreads = 150.0 * bumps[60], z * 8.0 * bumps[60 - octaves_away]
    signs = np.full(2, 200.0 / np.sqrt(2.0))
    unit = read_place(np.concatenate([means, spreads, signs]), 8.0, 200)[1]
    assert (unit is not None) == is_unit


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    "question, is_reached",
    [
        (queries.Place(), True),
        (queries.Rates(True), True),
        (queries.Zoom(0.0, 16.0, 1.0), True),
        (queries.Zoom(0.0, 1.0, 1.0), False),  # of two bins that share most of their bumps
        (queries.Zoom(0.0, 1.0, 2.0), True),
    ],
)
def test_bumps_of_two_tasks_are_as_far_apart_as_stated(question, is_reached, adjacency):
    """Also of tasks that send no bin at all, or anything."""
    rng, n = np.random.default_rng(0), max(question.counts)
    ends = np.array([[a, b] for a in (-1.0, 0.0, n - 1.0) for b in (0.0, n - 1.0, np.nan)])
    sent = rng.integers(-1, n + 1, (60, len(question.counts))).astype(float)
    sent[:9, :2], sent[:9, 2:] = ends[:, : sent.shape[1]], rng.integers(0, 2, (9, 1))
    sent[9:12], sent[12] = [[0.0], [n - 1.0], [1e300]], n // 2
    sent[10:13, -1] = 1.0 if sent.shape[1] > 1 else sent[10:13, -1]
    each = np.stack([question.total(question.bounded(one[None])) for one in sent])
    others = each if adjacency == "replace-one" else np.zeros((1, each.shape[1]))
    apart = np.linalg.norm(each[:, None] - others, axis=2).max()
    stated = question.sensitivity(adjacency)
    assert apart <= stated * (1.0 + 1e-9)
    assert not is_reached or apart == pytest.approx(stated, rel=1e-9)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    "question",
    [
        *(q for q in questions() if q.kind not in ("place", "zoom")),
        queries.CentreStep(np.zeros(4), 0.7, 2.5, False),
        queries.RelationStep(np.zeros(4), 0.7, 2.5, rank=2),
        queries.FactorStep(3, 1.0),
        queries.AcrossStep(3, 1.0),
        queries.AcrossStep(3, 1.0, True),
        RowSquares(),
    ],
    ids=lambda q: q.kind if isinstance(q, queries.Question) else q,
)
def test_two_tasks_are_as_far_apart_as_stated(question, adjacency):
    """Also of tasks that send anything; reached, and not passed."""
    sizes = queries.Sizes(3, rank=2, n_levels=3, n_across=3)
    ((size,),) = type(question).spec(sizes).shapes.values()
    rng = np.random.default_rng(0)
    wild = rng.normal(size=(20, size)) * 10.0 ** rng.uniform(-2, 200, (20, 1))
    wild[0, 0], wild[1, 0], wild[2] = np.nan, np.inf, -np.inf
    ends = np.concatenate([np.eye(size), np.ones((1, size))])
    each = [
        question.total(question.bounded(one[None])).ravel()
        for one in np.concatenate([wild, 1e9 * ends, -1e9 * ends])
    ]
    others = each if adjacency == "replace-one" else np.zeros((1, len(each[0])))
    apart = max(np.linalg.norm(a - b) for a in each for b in others)
    assert apart == pytest.approx(question.sensitivity(adjacency), rel=1e-6)
    assert apart <= question.sensitivity(adjacency) * (1.0 + 1e-9)


def test_levels_over_octaves_are_seen_in_noise_that_hides_each():
    """No octave has a third of the tasks, whose number is then known better than by signs."""
    rng, m, question, found = np.random.default_rng(0), 100, queries.Place(), []
    for _ in range(40):
        level = 250.0 * np.abs(rng.normal(size=m))
        sent = np.stack([queries.octave(level), np.full(m, -1), level < 0], axis=1)
        cells = question.total(sent.astype(float))
        found.append(read_place(cells + 12.0 * rng.normal(size=len(cells)), 12.0, 1000))
    assert np.mean([window is not None for *_, window in found]) > 0.9
    assert np.sqrt(np.mean([(n - m) ** 2 for n, *_ in found])) < 20.0


def anywhere(rng, m):
    return rng.choice([-1.0, 1.0], m) * 2.0 ** rng.uniform(-40.0, 40.0, m)


@pytest.mark.parametrize(
    "levels, least, most",
    [
        # In one octave, at either end of it, of one sign.
        (lambda rng, m: rng.choice([1040.0, 2030.0]) + 4.0 * rng.normal(size=m), 0.8, 1.0),
        (lambda rng, m: 250.0 * rng.normal(size=m), 0.8, 1.0),
        (lambda rng, m: -np.exp(4.0 + rng.normal(size=m)), 0.8, 1.0),
        (lambda rng, m: np.where(rng.random(m) < 0.7, rng.normal(0.02, 0.004, m), 1e6), 0.8, 1.0),
        (anywhere, 0.0, 0.1),
    ],
)
def test_windows_hold_most_levels_of_any_law(levels, least, most):
    """With noise that half of the tasks clear by five standard deviations; where levels are
    anywhere there is no window."""
    rng, m, question = np.random.default_rng(0), 100, queries.Place()
    held = []
    for _ in range(10):
        level = levels(rng, m)
        sent = [queries.octave(level), queries.octave(np.ones(m)), level < 0]
        found = question.total(np.stack(sent, axis=1).astype(float))
        *_, window = read_place(found + 9.0 * rng.normal(size=len(found)), 9.0, m)
        held.append(window is not None and np.mean(np.abs(level - window[0]) <= window[1]) > 0.6)
    assert least <= np.mean(held) <= most


@pytest.mark.parametrize("octaves, is_sure", [((30, 48), False), ((30, 30), True)])
def test_windows_are_sure_of_the_size_of_levels(octaves, is_sure):
    """Half of the tasks in each of two octaves, of one sign, have a place for sure, but no size."""
    found = np.zeros(162)
    np.add.at(found, list(octaves), 50.0)
    found[160] = 100.0 * queries.SIGN
    assert (read_place(found, 6.0, 100)[-1] is not None) == is_sure


# ------------------------------------------------------------------------------ without levels
@pytest.mark.parametrize("n, worst", [(1, 5.0), (4, 2.2)])
def test_without_an_intercept_mean_rows_know_slopes(n, worst):
    """Tasks of one row, too: without levels each of them is a row of a regression."""
    rng = np.random.default_rng(0)
    m, task = 400, np.repeat(np.arange(400), 2 * n)
    X = rng.normal(size=(len(task), 3)) + 1.0
    W = np.arange(3.0) + 0.3 * rng.normal(size=(m, 3))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=len(task))
    test = np.arange(len(y)) % 2 == 0
    est = PrivateMTL(epsilon=6.0, tasks=range(m), fit_intercept=False, random_state=0)
    est.fit(X[~test], y[~test], task=task[~test])
    assert not est.intercept_.any()
    assert np.mean((est.predict(X[test], task=task[test]) - y[test]) ** 2) < worst


@pytest.mark.parametrize("structure", ["low-rank", "sparse", "mean"])
def test_a_named_structure_releases_nothing_of_the_others(structure):
    est = fitted(200, structure=structure, epsilon=4.0)
    names = [entry["name"] for entry in est.privacy_.releases]
    assert ("vote centre" in names) == (structure == "mean")
    assert ("moment" in names) == (structure != "mean")


@pytest.mark.parametrize("epsilon", [3.0, None])
def test_free_levels_follow_the_task_alone(epsilon):
    """Far outliers among levels move nothing of what other tasks learn."""
    X, y, task = table(80)
    est = PrivateMTL(levels="free", epsilon=epsilon, tasks=range(80), random_state=0)
    one = clone(est).fit(X, y, task=task)
    two = clone(est).fit(X, y + 1e3 * (task % 2), task=task)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-6, atol=1e-8)


def test_stated_noise_is_how_far_steps_move_a_model_by_it():
    """Of tasks of which slopes go the whole way within a bound: a chain of first order."""
    rng, found, n, d = np.random.default_rng(0), [], 40, 20
    slopes = np.append(0.0, np.ones(d))
    for _ in range(40):
        loop = Loop(HierarchicalPlan(3.0, 1e-5, "replace-one", n, d))
        loop.update(middle=0.0, width=6.0, unit=1.0, n_present=float(n), log_tau=None)
        loop.rest = 1.0

        def release(query, name, mechanism, loop=loop):
            sent = -n * min(query.public["clip_norm"], 1.0) * loop.model.centre * slopes
            return sent + mechanism.noise_std * rng.normal(size=d + 1)

        drive(loop.bounded_steps(0.3, True), release)
        found.append(loop.model.centre)
    moved = np.var(found, axis=0)
    assert 0.3 < moved[0] / loop.level_noise < 2.0
    assert moved[1:].mean() == pytest.approx(loop.drift, rel=0.25)


# ----------------------------------------------------------------------- shrunk by known noise
@pytest.mark.parametrize("variance, kept", [(0.0, 1.0), (0.02, 0.92), (0.5, 0.0)])
def test_the_centre_is_shrunk_as_james_and_stein_do(variance, kept):
    """By 1 - (number) (variance of a number) / (squared length), and not below 0."""
    loop = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 40, 4))
    loop.update(centre=np.array([0.3, 0.5, -0.5, 0.5, 0.5]))
    loop.drift = variance
    drive(loop.vote_centre(0.1), lambda query, name, mechanism: np.full(mechanism.shape, 1e4))
    assert loop.pooled  # the vote keeps all that is left
    np.testing.assert_allclose(loop.model.centre, [0.3, *kept * np.array([0.5, -0.5, 0.5, 0.5])])


def test_slopes_of_the_mean_model_are_in_root_mean_square_scales():
    """Of log2 scales with a normal error, so that noise makes no bold slope."""
    variance = np.array([0.2, 0.3])
    scale = 4.0 * 2.0 ** (np.sqrt(0.5) * np.random.default_rng(0).normal(size=200_000))
    model = HierarchicalBillboard(
        50, 50.0, np.array([0.0, 1.0]), middle=0.0, width=2.0, unit=3.0, scale_variance=variance
    )
    model = replace(model, column_scale=np.array([4.0]), log_components=np.array([-30, -30, 0.0]))
    assert model.mean[0] == pytest.approx(3.0 / np.sqrt(np.mean(scale**2)), rel=0.01)


def test_scales_of_columns_are_those_of_tasks_with_several_rows():
    """A task of one row has no spread, and is no reason to take columns for smaller."""
    rng, m = np.random.default_rng(0), 200
    task = np.concatenate([np.arange(80), np.repeat(np.arange(80, m), 12)])
    X = rng.normal(size=(len(task), 2)) * [32.0, 0.5]
    y = rng.normal(size=m)[task] + rng.normal(size=len(task))
    est = PrivateMTL(epsilon=None).fit(X, y, task=task)
    np.testing.assert_allclose(est.billboard_.column_scale, [32.0, 0.5], rtol=0.3)


def test_a_place_of_few_of_the_listed_tasks_is_asked_for_again():
    """With the share that is right for as many as the first release counted."""
    X, y, task = table(40)
    found = []
    for seed in range(3):
        est = PrivateMTL(epsilon=3.0, tasks=range(3000), random_state=seed)
        est.fit(X, y + 50.0, task=task)
        assert [entry["name"] for entry in est.privacy_.releases[:2]] == ["place", "place"]
        found.append(est.billboard_.has_place and est.billboard_.n_present < 400)
    assert any(found)


@pytest.mark.parametrize("levels, looks", [("auto", 1), ("free", 3)])
def test_a_look_is_repeated_where_it_found_too_little(levels, looks):
    """Here it finds a window and no unit, which free levels need, and few of the listed tasks."""
    loop = Loop(HierarchicalPlan(3.0, 1e-5, "replace-one", 3000, 2))
    loop.plan.levels = levels
    said = 40.0, None, (0.0, 1.0)
    look = loop.look(queries.Place(), loop.plan.looks_of_place, lambda *given: said)
    _, asked, _ = drive(look, lambda query, name, mechanism: np.zeros(mechanism.shape))
    assert len(asked) == looks


@pytest.mark.parametrize("n_sizes", [2, 16])
def test_votes_that_are_noise_leave_weights_as_they_were(n_sizes):
    """Noise that is far above what all tasks could vote; without noise it is the evidence."""
    rng, moved = np.random.default_rng(0), {}
    for epsilon in (0.01, None):
        loop = Loop(HierarchicalPlan(epsilon, 1e-5, "replace-one", 40, 3))
        parts = queries.separate([loop.part()] * n_sizes)
        for _ in range(100):
            vote = loop.vote("shape", parts, 0.001)
            mechanism = next(vote).mechanisms["vote"]
            found = np.cumsum(np.ones(n_sizes - 1))[::-1]
            if mechanism is not None:
                found = found + std_of(mechanism) * rng.normal(size=n_sizes - 1)
            with pytest.raises(StopIteration) as end:
                vote.send({"vote": found})
            moved.setdefault(epsilon, []).append(np.ptp(end.value.value[0]))
    assert max(moved[0.01]) < 0.05 and moved[None][0] == pytest.approx(found.sum())


def test_a_window_that_steps_cannot_cross_is_noise_of_the_level():
    """Levels may be anywhere in it, so that tasks of few rows are not bound to its middle."""
    loop = Loop(HierarchicalPlan(1.0, 1e-5, "replace-one", 80, 2))
    loop.update(middle=5.0, width=8.0, unit=1.0, log_tau=None)
    tau, before = loop.model.tau, loop.model.log_tau
    for reach, least in ((0.0, 4.0), (0.75, 1.0), (1.5, 0.0)):
        loop.reach = reach
        weights = np.exp(loop.above_noise(before))
        assert weights.sum() == pytest.approx(1.0) and weights[tau < least].max(initial=0.0) < 1e-9
    np.testing.assert_allclose(weights, np.exp(before))


@pytest.mark.parametrize("place", [17.0, 656.0])
def test_tasks_of_one_row_are_never_far_worse_than_alone(place):
    """Levels that are close for their place: neither its window nor its votes bind tasks to it."""
    rng, m = np.random.default_rng(1), 110
    sizes = np.where(np.arange(m) < 20, 20, 1) * (np.arange(m) < 100)
    level = place + rng.normal(size=m)
    task, u = np.repeat(np.arange(m), sizes), np.repeat(np.arange(m), 8)
    X, Z = rng.normal(size=(len(task), 2)), rng.normal(size=(len(u), 2))
    y = level[task] + 0.3 * rng.normal(size=len(task))
    of_one, absent = (u >= 20) & (u < 100), u >= 100
    alone = np.mean((y[np.searchsorted(task, u[of_one])] - level[u[of_one]]) ** 2) + 0.09
    worst = []
    for seed in range(6):
        est = PrivateMTL(epsilon=1.0, tasks=range(m), random_state=seed).fit(X, y, task=task)
        left = (est.predict(Z, task=u) - level[u]) ** 2
        worst.append((left[of_one].mean() + 0.09) / alone)
        worst.append(left[absent].mean())
    assert max(worst[::2]) < 6.0 and np.median(worst[1::2]) < 4.0


@pytest.mark.parametrize("size", [0.003, 5.0, 3e4])
def test_the_unit_is_within_an_octave_of_the_spread_of_rows(size):
    rng, task = np.random.default_rng(0), np.repeat(np.arange(100), 6)
    y = size * (rng.normal(size=600) + 3.0 * rng.normal(size=100)[task])
    est = PrivateMTL(epsilon=8.0, tasks=range(100), random_state=0)
    unit = est.fit(rng.normal(size=(600, 2)), y, task=task).billboard_.unit
    assert 0.5 <= unit / size <= 2.0


@pytest.mark.parametrize("epsilon", [None, 10.0])
def test_targets_that_are_mostly_zero_have_a_window_of_the_others(epsilon):
    """Of 300 tasks of one row seven in ten have 0, and the others about 20."""
    r, m = np.random.default_rng(0), 300
    X, task = r.normal(size=(m, 2)), np.arange(m)
    y = np.where(r.random(m) < 0.7, 0.0, 20.0 * np.exp(0.5 * r.normal(size=m)))
    seed = {} if epsilon is None else {"random_state": 0}
    est = PrivateMTL(epsilon=epsilon, tasks=range(m), **seed).fit(X, y, task=task)
    width = est.billboard_.width
    assert width is None or width > 1e-3
    assert np.abs(est.predict(X, task=task)).max() < 200.0


def test_noise_alone_is_rarely_a_place_to_zoom_into():
    """Also where half of the tasks are fewer than bins of noise seem to hold."""
    zoom, rng = queries.Zoom(0.0, 16.0, 1.0), np.random.default_rng(0)
    found = [read_zoom(10.0 * rng.normal(size=32), 10.0, zoom, 5.0) for _ in range(200)]
    assert sum(one is not None for one in found) < 60
    full = np.where(np.arange(32) == 20, 300.0, 0.0)
    middle, half = read_zoom(full + 10.0 * rng.normal(size=32), 10.0, zoom, 300.0)
    assert 4.0 <= middle <= 5.0 and half < 1.0


@pytest.mark.parametrize("part, is_place", [(0.5, False), (0.85, True)])
def test_levels_in_two_places_are_no_place_to_zoom_into(part, is_place):
    zoom, bins, rng = (
        queries.Zoom(0.0, 16.0, 1.0),
        queries.bumps(32, True),
        np.random.default_rng(1),
    )
    sums = 300.0 * (part * bins[:, 8] + (1.0 - part) * bins[:, 24])
    found = [read_zoom(sums + 10.0 * rng.normal(size=32), 10.0, zoom, 300.0) for _ in range(20)]
    assert np.mean([one is not None and one[1] < 4.0 for one in found]) == is_place


def test_slopes_without_noise_have_finite_models():
    """Levels follow slopes, and nothing but rounding is left of the rows."""
    r = np.random.default_rng(0)
    task, X = np.arange(40).repeat(6), r.normal(size=(240, 3))
    W = r.normal(size=(40, 3))
    y = W[task, 0] + np.sum(X * W[task], axis=1)
    found = PrivateMTL(epsilon=None).fit(X, y, task=task).predict(X, task=task)
    np.testing.assert_allclose(found, y, atol=0.1)


@pytest.mark.parametrize("epsilon", [None, 30.0])
def test_a_part_of_every_prior_stays_for_odd_tasks(epsilon):
    """Of components and of all scales 5 %, whatever the votes were."""
    X, y, task = table(100)
    board = PrivateMTL(epsilon=epsilon, tasks=range(100), random_state=0)
    board = board.fit(X, y, task=task).billboard_
    before = {
        "log_components": np.full(3, -np.log(3.0)),
        "log_kappa": board.law.log_kappa,
        "log_sigma": board.law.log_sigma,
        "log_tau": before_tau(board.tau),
    }
    for name, prior in before.items():
        found = getattr(board, name)
        assert np.exp(found).sum() == pytest.approx(1.0)
        part = np.exp(prior) / np.exp(prior).sum()
        assert (np.exp(found) >= 0.05 * part * (1.0 - 1e-9)).all(), name
    weights = [np.exp(part.log_weight) for part in board.all_components()]
    assert len(weights) > 3 and np.sum(weights) == pytest.approx(1.0)


def test_far_rows_leave_predictions_near_those_of_the_task():
    """Within twice the own range of eight rows; where rows are bounded follows their number."""
    X, y, task = table(20)
    est = PrivateMTL(levels="free", epsilon=None, tasks=range(20)).fit(X, y, task=task)
    p = est.predict(1e6 * X, task=task).reshape(20, -1)
    own = y.reshape(20, -1)
    low, high = own.min(axis=1, keepdims=True), own.max(axis=1, keepdims=True)
    far = (2.0 + 1e-9) * (high - low)  # the bound itself is reached
    assert (p >= low - far).all() and (p <= high + far).all()
    rng, of = np.random.default_rng(0), np.repeat([0, 1], [4, 400])
    Z = rng.normal(size=(404, 2))
    reach = PrivateMTL(epsilon=None).fit(Z, Z[:, 0] + rng.normal(size=404), task=of).row_reach_
    assert (reach[0] < reach[1]).all() and reach.max() < 1e4


def test_slopes_of_larger_tasks_are_multiples_of_shared_ones():
    """Four rows say little of six slopes; zero, or those of the others, are .4 and more away."""
    rng, a = np.random.default_rng(0), np.arange(1.0, 7.0)
    task, larger = np.repeat(np.arange(60), 4), np.arange(60) < 8
    X, size = rng.normal(size=(240, 6)), np.where(larger, 4.0, 1.0)[task]
    y = size * (X @ a + rng.normal(size=60)[task] + rng.normal(size=240))
    slopes = PrivateMTL(epsilon=None, tasks=range(60)).fit(X, y, task=task).coef_[larger]
    assert np.mean((slopes - 4.0 * a) ** 2) < 0.33**2 * np.mean((4.0 * a) ** 2)


def test_a_far_row_widens_no_interval_of_its_task():
    rng, task, std = np.random.default_rng(0), np.repeat(np.arange(30), 8), []
    X = rng.normal(size=(240, 2))
    y = rng.normal(size=30)[task] + X @ [1.0, -1.0] + 0.5 * rng.normal(size=240)
    est = PrivateMTL(epsilon=None, uncertainty=True, tasks=range(30))
    for far in (0.0, 30.0):  # counted with the others it is 20 times as wide
        y[0] += far
        std.append(est.fit(X, y, task=task).predict(X[:8], task[:8], return_std=True)[1])
    assert (std[1] < 1.5 * std[0]).all()


@pytest.mark.parametrize("epsilon, origin", [(None, 30.0), (30.0, 1.5)])
def test_mean_rows_say_levels_about_any_released_centre(epsilon, origin):
    """As much as where columns lie about zero."""
    rng, m, a = np.random.default_rng(0), 300, np.array([3.0, -4.0, 5.0, 1.0])
    task, of = np.repeat(np.arange(m), 4), np.repeat(np.arange(m), 5)
    X, Z, level = rng.normal(size=(4 * m, 4)), rng.normal(size=(5 * m, 4)), rng.normal(size=m)
    y, errors = X @ a + level[task] + rng.normal(size=4 * m), []
    for place in (0.0, origin):
        est = PrivateMTL(epsilon=epsilon, tasks=range(m), random_state=0)
        est.fit(X + place, y, task=task)
        errors.append(np.mean((est.predict(Z + place, task=of) - Z @ a - level[of]) ** 2))
    assert errors[1] < 1.1 * errors[0]


def test_a_noisy_centre_bounds_spreads_from_below():
    """Cells above the noise stay, those below move to it; no weight is lost."""
    variances = 4.0 ** np.arange(-4, 4)
    prior = bump(np.sqrt(variances), -2.0, 1.0)
    found = np.exp(at_least(prior, variances, 2.0))  # half-way between the cells 1 and 4
    assert found.sum() == pytest.approx(1.0)
    assert not found[variances < 1.0].max() > 1e-200
    below = np.exp(prior)[variances < 2.0].sum()
    assert found[4] == pytest.approx(0.5 * below)
    assert found[5] == pytest.approx(0.5 * below + np.exp(prior)[5])
    np.testing.assert_allclose(at_least(prior, variances, 0.0), prior)


@pytest.mark.parametrize("times", [10.0, 60.0, 200.0])
def test_a_task_of_which_all_is_larger_keeps_its_level(times):
    """Three rows far from all others that agree within a quarter of their size are no noise."""
    rng, task = np.random.default_rng(0), np.repeat(np.arange(100), 3)
    X, y = rng.normal(size=(300, 2)), 2.0 + rng.normal(size=100)[task]
    y += 0.7 * rng.normal(size=300)
    y[:3] = times * np.array([0.8, 1.25, 0.95])
    est = PrivateMTL(epsilon=None, tasks=range(100)).fit(X, y, task=task)
    assert est.predict(X[:3], task=task[:3]).mean() > 0.7 * times
