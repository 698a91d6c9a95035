"""DPMetaInit: clipped sums, rounds against plain Reptile, fine-tuning, errors."""

import itertools
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skpmtl import DPMetaInit, DPMetaInitClassifier
from skpmtl._kernels.records import MARGIN, clipped_sum, record_norms, scaled_rows
from skpmtl.meta import columns, finetune, steps
from skpmtl.meta.columns import NEAREST, sums_of_records
from skpmtl.meta.steps import RoundRows
from skpmtl.solvers.grams import largest_eigenvalues
from skpmtl.tables.table import TaskTable, read_only
from tests.helpers import plain_reptile as plain
from tests.helpers.data import random_tasks
from tests.helpers.sites import Sites

KINDS = {"real": plain.SQUARED, "binary": plain.LOGISTIC, "multi": plain.MULTINOMIAL}


def problem(kind, m=6, d=4, C=3, seed=0, rows=(9, 25), spread=0.3):
    return random_tasks(kind, m, d, C, seed, rows, spread)


def numeric(kind, y):
    """Targets as the losses take them: logistic ones are -1 and 1."""
    return np.where(y, 1.0, -1.0) if kind == "binary" else np.asarray(y, dtype=float)


def parts_of(kind, X, y, task):
    """Rows of every task in the order given."""
    target = numeric(kind, y)
    return [(X[task == k], target[task == k]) for k in np.unique(task)]


def outputs(kind):
    return 3 if kind == "multi" else 1


def model(kind, **parameters):
    if kind == "real":
        return DPMetaInit(**parameters)
    return DPMetaInitClassifier(classes=range(3 if kind == "multi" else 2), **parameters)


# ------------------------------------------------------------------ clipped gradients
def kernel_sum(
    loss, X, y, W, b, clip_norm, intercept=True, rows=None, mask=None, window=None, weights=None
):
    """`clipped_sum` at coef W (C, d) and intercept b (C,)."""
    n, C, size = len(y), len(W), X.shape[1] + intercept
    Z, norms, scaling = np.empty((n, size)), np.empty(n), np.empty((2, 0))
    shared = rows is not None
    rows = rows if shared else np.empty(0, dtype=np.int64)
    X = read_only(X)  # as fits hand it over: compiled once
    scaled_rows(X, rows, shared, 0, n, scaling, intercept, Z)
    record_norms(Z, n, norms)
    model, G = np.column_stack([W, b]) if intercept else W, np.full((C, size), np.nan)
    at = np.arange(n)[slice(*window)] if window else np.arange(n)
    at = at if mask is None else at[mask[at] > 0]
    weights = np.ones(n) if weights is None else weights
    clipped_sum(Z, at, y, norms, 0, loss, clip_norm, model, np.empty((1, C)), G, weights)
    return G


def odd_rows(kind, n=40, d=5, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.logspace(-9, 7, n)[:, None]
    X[4] = 0.0
    X[7, 1:] = 0.0
    X[9] = 1e-170
    y = {
        "real": 3 * rng.normal(size=n),
        "binary": np.sign(rng.normal(size=n)),
        "multi": rng.integers(0, 3, n).astype(float),
    }[kind]
    return X, y


@pytest.mark.parametrize("clip_norm", [1e-3, 0.7, 1e4, np.inf])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.spread(10)
def test_clipped_sums_against_a_loop(kind, intercept, clip_norm):
    X, y = odd_rows(kind)
    if clip_norm > 1e3:  # nothing to compare digits with beside gradients of length 1e14
        X *= np.minimum(1.0, 3.0 / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.3):
        W, b = scale * rng.normal(size=(outputs(kind), 5)), scale * rng.normal(size=outputs(kind))
        b = b if intercept else np.zeros_like(b)
        found = kernel_sum(KINDS[kind], X, y, W, b, clip_norm, intercept)
        lengths = [
            np.linalg.norm(
                kernel_sum(KINDS[kind], X[i : i + 1], y[i : i + 1], W, b, clip_norm, intercept)
            )
            for i in range(len(y))
        ]
        # The bound is kept with a margin of 1e-12 of it against rounding.
        for bound, digits in ((clip_norm, 1.1e-12), (clip_norm * (1.0 - MARGIN), 3e-13)):
            G, g = plain.clipped_sum(KINDS[kind], X, y, W, b, bound, intercept)
            expected = np.column_stack([G, g]) if intercept else G
            assert_allclose(found, expected, rtol=0, atol=digits * sum(lengths))
        assert sum(lengths) > 0 or (kind == "real" and not y.any())


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_the_clipped_sum(kind):
    X, y = odd_rows(kind)
    rng = np.random.default_rng(2)
    W, b = rng.normal(size=(outputs(kind), 5)), rng.normal(size=outputs(kind))
    some = rng.random(40) < 0.4
    bound = 0.7 * (1.0 - MARGIN)
    chosen = plain.clipped_sum(KINDS[kind], X[some], y[some], W, b, bound)
    found = kernel_sum(KINDS[kind], X, y, W, b, 0.7, mask=some.astype(np.uint8))
    assert_allclose(found, np.column_stack(chosen), rtol=1e-12, atol=1e-12)
    every = slice(3, 31, 4)
    chosen = plain.clipped_sum(KINDS[kind], X[every], y[every], W, b, bound)
    found = kernel_sum(KINDS[kind], X, y, W, b, 0.7, window=(3, 31, 4))
    assert_allclose(found, np.column_stack(chosen), rtol=1e-12, atol=1e-12)
    rows = rng.integers(0, 40, 40)  # many tasks share X
    chosen = plain.clipped_sum(KINDS[kind], X[rows], y, W, b, bound)
    found = kernel_sum(KINDS[kind], X, y, W, b, 0.7, rows=rows)
    assert_allclose(found, np.column_stack(chosen), rtol=1e-12, atol=1e-12)
    nothing = kernel_sum(KINDS[kind], X, y, W, b, 0.7, mask=np.zeros(40, dtype=np.uint8))
    assert_array_equal(nothing, np.zeros_like(nothing))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_never_sends_more_than_the_bound(kind, intercept):
    rng = np.random.default_rng(0)
    values = [0.0, 1e-300, 1e-30, 1.0, -1e3, 1e100, -1e200, 1.7e308]
    targets = {"real": [0.0, 1e-300, 1e8, -1e308], "binary": [-1.0, 1.0], "multi": [0.0, 2.0]}
    for _ in range(300):
        X = rng.choice(values, size=(1, 3)) * rng.choice([1.0, 0.3], size=(1, 3))
        y = rng.choice(targets[kind], size=1)
        W = rng.choice([0.0, 1.0, -1e150, 1e308], size=(outputs(kind), 3))
        b = rng.choice([0.0, -1.0, 1e308], size=outputs(kind))
        G = kernel_sum(KINDS[kind], X, y, W, b, 0.7, intercept)
        assert np.isfinite(G).all()
        assert np.linalg.norm(G) <= 0.7


# ------------------------------------------------------------------------- the rounds
@pytest.mark.parametrize("d, rows", [(4, (9, 25)), (30, (1, 13))])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_without_privacy_it_is_reptile(kind, intercept, d, rows):
    """All tasks in every round: gradient steps in numpy, row by row."""
    X, y, task = problem(kind, d=d, rows=rows)
    given = {"inner_steps": 3, "inner_learning_rate": 0.3, "meta_learning_rate": 0.7, "visits": 3}
    est = model(kind, epsilon=None, tasks_per_round="all", fit_intercept=intercept, **given)
    est.fit(X, y, task=task)
    how = {"n_outputs": outputs(kind), "meta_rate": 0.7, "steps": 3, "rate": 0.3}
    parts, rounds = parts_of(kind, X, y, task), [range(6)] * 3
    W, b = plain.reptile(KINDS[kind], parts, rounds, fit_intercept=intercept, **how)
    assert_allclose(np.reshape(est.init_coef_, W.shape), W, rtol=0, atol=1e-10)
    assert_allclose(np.reshape(est.init_intercept_, b.shape), b, rtol=0, atol=1e-10)
    assert np.abs(W).max() > 0.01 and est.n_iter_ == 3
    assert est.init_coef_.shape == ((3, d) if kind == "multi" else (d,))
    assert np.shape(est.init_intercept_) == ((3,) if kind == "multi" else ())


@pytest.mark.parametrize("length", [1.0, 1e-10])
@pytest.mark.parametrize("intercept", [True, False])
def test_products_of_few_rows(intercept, length):
    """Nothing of a row that is not finite; largest eigenvalues as the rows themselves give them."""
    rng, ends = np.random.default_rng(0), np.array([0, 1, 13, 22])
    X, scaling = rng.normal(size=(22, 30)), rng.uniform(1.0, 2.0, (2, 30))
    X *= length
    scaling[0] *= length
    weights = rng.uniform(size=22)

    def rows_of(X):
        table = TaskTable(read_only(X), np.zeros(22), ends, np.arange(3), weights=weights)
        return RoundRows(table, intercept, scaling)

    rows = rows_of(X)
    expected = largest_eigenvalues(rows.part(np.arange(3)), False)
    assert_allclose(rows.products[2], expected, rtol=1e-9)
    X[3] = np.inf
    starts, K, _ = rows_of(X).products
    Z = np.column_stack([(X - scaling[0]) / scaling[1], np.full(22, float(intercept))])
    Z[3] = 0.0
    error = 1e-12 * (1.0 if intercept else length**2)
    for k in range(3):
        own = Z[ends[k] : ends[k + 1]]
        found = K[starts[k] : starts[k + 1]].reshape(len(own), -1)[:, : len(own)]
        assert_allclose(found, own @ own.T, rtol=1e-12, atol=error)


def test_disjoint_batches_are_taken_in_turn_over_all_visits():
    """With one step in a visit, each visit sees other rows: five of them see all, and again."""
    X, y, task = problem("real", m=1, rows=(11, 12))
    given = {"batches": "disjoint", "batch_size": 4, "inner_steps": 1, "visits": 5}
    given |= {"inner_learning_rate": 0.3, "meta_learning_rate": 1.0, "tasks_per_round": "all"}
    est = model("real", epsilon=None, **given).fit(X, y, task=task)
    (part,) = parts_of("real", X, y, task)
    thirds = [np.arange(i, 11, 3) for i in range(3)]
    # A task that is alone, at a meta learning rate of 1, goes on from its own last model.
    (expected,), _ = plain.reptile(KINDS["real"], [part], [[0]], batches=thirds, steps=5, rate=0.3)
    assert_allclose(est.init_coef_, expected, rtol=0, atol=1e-12)


def orders(m, visits, size):
    """Every sequence in which each of m tasks occurs `visits` times, cut into rounds."""
    found = set(itertools.permutations(list(range(m)) * visits))
    for sequence in sorted(found):
        yield [list(sequence[i : i + size]) for i in range(0, m * visits, size)]


@pytest.mark.parametrize("size, visits", [(1, 1), (2, 1), (1, 2)])
def test_tasks_are_visited_in_random_order_and_as_often(size, visits):
    X, y, task = problem("real", m=3)
    parts = parts_of("real", X, y, task)
    inner = {"steps": 3, "rate": 0.3, "meta_rate": 0.9}
    known = [(plan, plain.reptile(0, parts, plan, **inner)) for plan in orders(3, visits, size)]
    seen = []
    for seed in range(6):
        given = {"tasks_per_round": size, "visits": visits, "random_state": seed}
        given |= {"inner_steps": 3, "inner_learning_rate": 0.3, "meta_learning_rate": 0.9}
        est = DPMetaInit(epsilon=None, **given).fit(X, y, task=task)
        matches = [
            rounds
            for rounds, (W, b) in known
            if np.allclose(est.init_coef_, W[0], rtol=0, atol=1e-10)
            and np.allclose(est.init_intercept_, b[0], rtol=0, atol=1e-10)
        ]
        assert matches, seed
        seen.append(str(sorted(matches[0][0])))
        assert est.n_iter_ == len(matches[0])
    assert len(set(seen)) > 1


def test_poisson_batches_without_a_budget():
    """Unit rows make a batch visible: coordinate i moves by rate / B when record i is in it."""
    n, B, rate = 200, 50, 1e-6
    given = {"epsilon": None, "batches": "poisson", "batch_size": B, "inner_steps": 3}
    given |= {"inner_learning_rate": rate, "meta_learning_rate": 1.0, "fit_intercept": False}
    est = DPMetaInit(**given, tasks_per_round="all", refine="sgd", random_state=0)
    rows = np.eye(n), np.ones(n)
    times = est.fit(*rows, task=np.zeros(n, dtype=int)).init_coef_ * B / rate
    assert_allclose(times, np.rint(times), atol=1e-4)
    # Binomial(3, 1/4) for every record, independent over steps and records.
    p = np.array([27, 27, 9, 1]) / 64
    found = np.bincount(np.rint(times).astype(int).ravel(), minlength=4) / n
    assert np.abs((found - p) / np.sqrt(p * (1 - p) / n)).max() < 4.5
    # A batch larger than the task: everybody, and still the constant denominator.
    est.set_params(batch_size=400, inner_steps=1).fit(*rows, task=np.zeros(n, dtype=int))
    assert_allclose(est.init_coef_ * 400 / rate, np.ones(n), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_clipping_without_noise_to_speak_of(kind):
    """One step, a small bound, a huge epsilon: sums of clipped gradients, then the mean."""
    X, y, task = problem(kind, rows=(15, 16))
    C = outputs(kind)
    given = {"clip_norm": 0.3, "inner_steps": 1, "inner_learning_rate": 0.5}
    given |= {"meta_learning_rate": 0.8, "tasks_per_round": "all", "tasks": range(6)}
    est = model(kind, epsilon=1e14, delta=1e-3, **given).fit(X, y, task=task)
    moves = []
    for A, target in parts_of(kind, X, y, task):
        G, g = plain.clipped_sum(KINDS[kind], A, target, np.zeros((C, 4)), np.zeros(C), 0.3)
        moves.append(-0.5 * np.column_stack([G, g]) / len(A))
    found = np.column_stack([est.init_coef_.reshape(C, 4), np.reshape(est.init_intercept_, C)])
    assert_allclose(found, 0.8 * np.mean(moves, axis=0), rtol=0, atol=1e-6)


# ------------------------------------------------------------------------- fine-tuning
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_sgd_refinement_is_gradient_steps_from_the_start(kind, intercept):
    X, y, task = problem(kind)
    C = outputs(kind)
    given = {"refine": "sgd", "refine_steps": 5, "refine_learning_rate": 0.3}
    given |= {"inner_steps": 2, "inner_learning_rate": 0.1, "fit_intercept": intercept}
    est = model(kind, epsilon=None, **given).fit(X, y, task=task)
    start = est.init_coef_.reshape(C, 4), np.reshape(est.init_intercept_, C)
    how = {"steps": 5, "rate": 0.3, "fit_intercept": intercept}
    for k, (A, target) in enumerate(parts_of(kind, X, y, task)):
        W, b = plain.inner_loop(KINDS[kind], A, target, *start, **how)
        assert_allclose(est.coef_[k].reshape(C, 4), W, rtol=0, atol=1e-10)
        assert_allclose(np.reshape(est.intercept_[k], C), b, rtol=0, atol=1e-10)


def test_a_few_tasks_of_another_unit_are_not_all_that_is_learned():
    """Three of sixty, their targets a thousand times as large: without a budget, too."""
    X, y, task = problem("real", m=60, rows=(5, 12), seed=1)
    far = np.where(task < 3, 1e3, 1.0)
    given = {"epsilon": None, "random_state": 0, "tasks": range(60)}
    clean, odd = (DPMetaInit(**given).fit(X, t, task=task) for t in (y, far * y))
    way = np.linalg.norm(clean.init_coef_)
    assert np.linalg.norm(odd.init_coef_ - clean.init_coef_) < 0.3 * way
    given["inner_learning_rate"] = 0.1  # plain Reptile, as asked for
    odd = DPMetaInit(**given).fit(X, far * y, task=task)
    assert np.linalg.norm(odd.init_coef_) > 10.0 * way


@pytest.mark.parametrize("refine", ["prox", "sgd"])
@pytest.mark.parametrize("intercept", [True, False])
def test_units_and_offsets_of_targets_do_not_matter(intercept, refine):
    """Targets and range times a number, and shifted where there is an intercept."""
    X, y, task = problem("real", m=30, rows=(4, 9))
    X /= np.linalg.norm(X, axis=1).mean()
    settings = {"epsilon": 5.0, "tasks": range(30), "random_state": 0, "unseen_task": "mean"}
    settings |= {"refine": refine, "fit_intercept": intercept}
    own = DPMetaInit(target_range=(-2.5, 2.5), **settings).fit(X, y, task=task)
    same = DPMetaInit(**settings).fit(X, y, task=task)  # the unit is 1, the middle 0
    assert_allclose(own.coef_, same.coef_, rtol=1e-12)
    assert own.init_coef_.any() and not own.billboard_.lost
    for scale, shift in ((1e-3, 0.0), (1e3, 0.0), (1.0, 1e2), (1.0, 1e4), (20.0, -1e4)):
        shift = shift if intercept else 0.0
        given = (shift - 2.5 * scale, shift + 2.5 * scale)
        other = DPMetaInit(target_range=given, **settings).fit(X, scale * y + shift, task=task)
        tol = 1e-9 * (scale + abs(shift))
        for rows in (task, np.full(len(X), 99)):  # fitted tasks, and one that is not
            found, expected = other.predict(X, task=rows), own.predict(X, task=rows)
            assert_allclose(found, scale * expected + shift, rtol=1e-6, atol=tol)
        assert other.privacy_.public_inputs["target_range"] == given
        lost = DPMetaInit(target_range=given, **{**settings, "epsilon": 0.01})
        lost = lost.fit(X, scale * y + shift, task=task)
        nothing = lost.billboard_.without_rows(["new"])
        assert lost.billboard_.lost and not nothing[0].any()
        assert_allclose(nothing[1], shift, rtol=1e-12)


@pytest.mark.parametrize("refine", ["prox", "sgd"])
@pytest.mark.parametrize("kind, intercept", [("real", True), ("real", False), ("multi", True)])
def test_units_and_offsets_of_features_do_not_matter(kind, intercept, refine):
    X, y, task = problem(kind, m=30, rows=(4, 9))
    d, rng = X.shape[1], np.random.default_rng(0)
    settings = dict(
        epsilon=5.0, random_state=0, refine=refine, fit_intercept=intercept, unseen_task="mean"
    )
    unit = np.full(d, 2.5 * np.sqrt(1.0 / d))  # half of a range whose fifth is 1 / sqrt(d)
    rate = 0.5 if kind == "real" and intercept else 1.0  # with which columns stay as they are
    same = model(kind, tasks=range(30), inner_learning_rate=rate, **settings).fit(X, y, task=task)
    low, high = -unit, unit
    own = model(kind, tasks=range(30), feature_range=(low, high), **settings)
    own = own.fit(X, y, task=task)
    assert_allclose(own.coef_, same.coef_, rtol=1e-10, atol=1e-13)  # units are 1, middles 0
    assert own.init_coef_.any() and not own.billboard_.lost
    predict = "decision_function" if kind != "real" else "predict"
    for _ in range(3):
        scale, shift = 10.0 ** rng.uniform(-3, 3, d), 100.0 * rng.standard_normal(d) * intercept
        ranges = scale * (low + shift), scale * (high + shift)
        other = model(kind, tasks=range(30), feature_range=ranges, **settings)
        other = other.fit(scale * (X + shift), y, task=task)
        for rows in (task, np.full(len(X), 99)):  # fitted tasks, and one that is not
            found = getattr(other, predict)(scale * (X + shift), task=rows)
            assert_allclose(found, getattr(own, predict)(X, task=rows), rtol=1e-6, atol=1e-7)
        assert "feature_range" in other.privacy_.public_inputs


@pytest.mark.parametrize("refine", ["prox", "sgd"])
@pytest.mark.parametrize("kind, intercept", [("real", True), ("real", False), ("multi", True)])
def test_exact_fits_take_features_of_any_unit_and_origin(kind, intercept, refine):
    X, y, task = problem(kind, m=12, rows=(4, 9))
    settings = dict(
        epsilon=None, random_state=0, refine=refine, fit_intercept=intercept, unseen_task="mean"
    )
    predict = "decision_function" if kind != "real" else "predict"
    own = model(kind, **settings).fit(X, y, task=task)
    scale = np.array([1e6, 1.0, 1e-4, 1e7])
    moved = scale * (X + np.array([0.0, 3.0, 0.0, 160.0]) * intercept)
    other = model(kind, **settings).fit(moved, y, task=task)
    for rows in (task, np.full(len(X), 99)):
        found = getattr(other, predict)(moved, task=rows)
        assert_allclose(found, getattr(own, predict)(X, task=rows), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale, origin", [(50.0, 0.0), (1e6, 0.0), (1e7, 3e8), (1e-6, 0.0)])
def test_a_column_of_another_unit_does_not_hide_the_others(scale, origin):
    """Tasks release scales: the initialisation is good for tasks without rows. A column far from 0
    is lost itself, and no other."""
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(100 * 30, 4)), np.repeat(np.arange(100), 30)
    y = X @ [0.3, -0.6, 0.5, 0.4] + 0.2 * rng.normal(size=len(X))
    moved = X.copy()
    moved[:, 0] = origin + scale * X[:, 0]
    est = DPMetaInit(epsilon=100.0, tasks=range(100), unseen_task="mean").fit(moved, y, task=task)
    least = 0.75 if origin else 0.9  # a tenth of the variance is the first column's
    assert est.score(moved, y, task=np.full(len(y), 999)) > least
    _, unit = est.billboard_.scaling
    assert np.abs(np.log2(unit / (2.0 * np.append(scale + origin, np.ones(3))))).max() < 1.5


def test_what_a_record_says_of_columns_is_its_octaves():
    """Over the mean of log2 |z| of a normal variable z, in parts of the reach."""
    scale, octaves = np.array([1e-2, 1.0, 1e3]), np.array([[1.0, -2.0, 0.5]])
    mean = -(np.euler_gamma + np.log(2.0)) / (2.0 * np.log(2.0))
    X = scale * 2.0 ** (octaves + mean)
    table = TaskTable(X=X, y=np.zeros(1), offsets=np.arange(2), tasks=np.arange(1))
    public = {"scale": scale, "centre": np.zeros(3), "reach": NEAREST, "number": 0}
    found = sums_of_records(table, np.array([0.7]), np.arange(1), "scales", public)
    assert_allclose(found, 0.7 * octaves / (NEAREST * np.sqrt(3.0)), rtol=1e-6)


def test_contributions_have_the_weights_of_their_tasks():
    """Contributions of tasks with more rows have less noise, and larger weights in the sum."""
    X, y, task = problem("real", rows=(2, 60))
    est = DPMetaInit(epsilon=1.0, tasks=range(6), random_state=0)
    sites = Sites(est, (X, y, task), [[0, 1, 2], [3, 4, 5]], "contributions")
    assert np.ptp(sites.sites[0][1].plan.weights) > 0.1
    assert_allclose(sites.run().init, est.fit(X, y, task=task).billboard_.init, rtol=1e-9)


@pytest.mark.parametrize("what, power", [("means", 1), ("squares", 2)])
def test_moments_without_a_budget_are_about_the_centre(what, power):
    rng = np.random.default_rng(0)
    X, weights, centre = rng.normal(3.0, 2.0, size=(9, 3)), rng.random(9), rng.normal(size=3)
    table = TaskTable(X=X, y=np.zeros(9), offsets=np.array([0, 2, 6, 9]), tasks=np.arange(3))
    public = {"scale": np.ones(3), "centre": centre, "reach": NEAREST, "number": 0}
    found = sums_of_records(table, weights, np.array([0, 2]), what, public)
    for sent, own in zip(found, (slice(0, 2), slice(6, 9)), strict=True):
        moment = weights[own] @ (X[own] - centre) ** power
        assert_allclose(sent, [*moment, weights[own].sum()], rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, -1e200])
def test_what_a_record_says_of_columns_is_bounded(bad):
    """In a ball of length 1, whatever it holds and whatever was released before."""
    X = np.array([[bad, 1.0, 0.0], [0.0, -1e-300, bad], [1.0, 2.0, 3.0], [-bad, bad, bad]])
    table = TaskTable(X=X, y=np.zeros(4), offsets=np.arange(5), tasks=np.arange(4))
    for scale in (1e-250, 1.0, 1e250):
        public = {"scale": np.full(3, scale), "centre": np.zeros(3), "reach": NEAREST, "number": 0}
        sent = sums_of_records(table, np.ones(4), np.arange(4), "scales", public)
        assert np.isfinite(sent).all() and (np.linalg.norm(sent, axis=1) <= 1.0).all()
        assert sent.any()


@pytest.mark.parametrize("refine", ["prox", "sgd"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_initialisation_is_not_used(kind, refine):
    """Public numbers say that noise hides it: models are those of tasks that start from 0."""
    X, y, task = problem(kind)
    common = {"epsilon": 0.01, "tasks": list(range(6)), "refine": refine}
    a, b = (model(kind, random_state=seed, **common).fit(X, y, task=task) for seed in (0, 1))
    assert a.billboard_.lost and (a.init_coef_ != b.init_coef_).all()
    assert_array_equal(a.coef_, b.coef_)
    assert not model(kind, epsilon=None).fit(X, y, task=task).billboard_.lost


# ------------------------------------------------------------------------------ errors
def test_units_are_checked():
    X, y, task = problem("real")
    persons = np.array([f"p{i}" for i in range(len(X))], dtype=object)
    est = DPMetaInit(tasks=list(range(6)), delta=1e-3, max_rows_per_unit=3, group_size=2)
    est.fit(X, y, task=task, unit=persons)
    # Three rows of one person, in three tasks, are allowed; a fourth is not.
    rows = [np.flatnonzero(task == k)[0] for k in range(4)]
    persons[rows[:3]] = "anna"
    est.fit(X, y, task=task, unit=persons)
    persons[rows[3]] = "anna"
    with pytest.raises(ValueError, match="'anna'.*4.*3"):
        est.fit(X, y, task=task, unit=persons)
    with pytest.raises(NotFittedError):
        est.predict(X, task=task)
    # At most group_size rows within one task.
    persons = np.arange(len(X))
    persons[np.flatnonzero(task == 1)[:3]] = 7_000
    with pytest.raises(ValueError, match="7000.*3.*2"):
        est.fit(X, y, task=task, unit=persons)
    with pytest.raises(ValueError, match="max_rows_per_unit"):
        est.set_params(max_rows_per_unit=None).fit(X, y, task=task, unit=persons)
    with pytest.raises(ValueError, match="unit"):
        est.set_params(max_rows_per_unit=3).fit(X, y, task=task)
    with pytest.raises(ValueError, match=f"{len(X) - 1}.*{len(X)}"):
        est.fit(X, y, task=task, unit=np.arange(len(X) - 1))


@pytest.mark.filterwarnings("ignore::skpmtl.privacy.PrivacyLeakWarning")
def test_delta_has_a_default_by_the_protected_unit():
    X, y, task = problem("real")
    est = DPMetaInit(tasks=list(range(6))).fit(X, y, task=task)
    assert est.privacy_.delta == min(1e-5, 1.0 / len(X) ** 2)
    est.set_params(privacy="local").fit(X, y, task=task)
    assert est.privacy_.delta == min(1e-5, 1.0 / 36)
    X, y, task = problem("real", m=400, rows=(2, 3))
    est.set_params(privacy="task-global", tasks=list(range(400))).fit(X, y, task=task)
    assert est.privacy_.delta == 1.0 / 800**2
    est.set_params(privacy="local").fit(X, y, task=task)
    assert est.privacy_.delta == 1.0 / 400**2


@pytest.mark.exact_bits("memory is measured")
def test_a_fit_that_finds_scales_holds_no_second_table(monkeypatch):
    for module, name in ((columns, "_BLOCK"), (steps, "_BLOCK"), (finetune, "_BLOCK")):
        monkeypatch.setattr(module, name, 1 << 14)
    X, task = np.random.default_rng(0).standard_normal((10_000, 50)), np.repeat(np.arange(50), 200)
    y = X[:, 0]
    model = DPMetaInit(epsilon=100.0, tasks=range(50), random_state=0)
    model.fit(X[:2000], y[:2000], task=task[:2000])  # loads the compiled loops
    tracemalloc.start()
    try:
        model.fit(X, y, task=task)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model._plan_[0].columns
    assert peak < 0.5 * X.nbytes, peak / X.nbytes
