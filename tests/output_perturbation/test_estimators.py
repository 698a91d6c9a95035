"""DP-AGGR and DP-MTRL: closed forms without noise, bounds for any data, budgets, reports."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from scipy.stats import norm

from skpmtl.exchange.protocol import Population
from skpmtl.privacy import audit, compose, gdp_mu, group_privacy
from skpmtl.reproduction import (
    DPAggregation,
    DPAggregationClassifier,
    DPRelationship,
    DPRelationshipClassifier,
)
from skpmtl.reproduction.output_perturbation.bounds import Bounds, bounded
from skpmtl.reproduction.output_perturbation.plan import PerturbationPlan
from skpmtl.reproduction.output_perturbation.relationship import smooth
from skpmtl.reproduction.output_perturbation.tasks import NewtonModels
from tests.helpers import plain_reference as plain

AGGREGATION = [DPAggregation, DPAggregationClassifier]
RELATIONSHIP = [DPRelationship, DPRelationshipClassifier]
ESTIMATORS = AGGREGATION + RELATIONSHIP
SEEDED = "ignore:The noise of this fit is reproducible:skpmtl.privacy.PrivacyLeakWarning"
SIZES = (9, 14, 11, 20, 6)
M = len(SIZES)
R, Y = 3.0, 4.0  # public bounds of the tests
NATIVE = {"guarantee": "record"}
GROUPS = {
    "record": NATIVE,
    "published": {"max_task_rows": 20},
    "tight": {"group": "tight", "max_task_rows": 20},
    "published, Gaussian": {"max_task_rows": 20, "mechanism": "gaussian"},
    "Gaussian": {"group": "gaussian", "max_task_rows": 20},
    "direct": {"group": "direct"},
    "direct, gamma": {"group": "direct", "mechanism": "gamma"},
}


def public(cls):
    of_targets = {"classes": [-1, 1]} if cls._classification else {"max_target": Y}
    return {"max_row_norm": R, **of_targets}


def private(cls, **parameters):
    return cls(**{**public(cls), "tasks": range(M), "random_state": 0, **parameters})


def problem(cls, d=3, seed=0, sizes=SIZES):
    X, y, task = plain.make_rows(list(sizes), d, seed, labels=cls._classification)
    return X, y, task


def by_task(X, y, task, intercept):
    Z = np.column_stack([X, np.ones(len(X))]) if intercept else X
    return [(Z[task == t], y[task == t]) for t in np.unique(task)]


def local_model(Z, y, lam, logistic, centre=0.0, curvature=None):
    """argmin of the mean loss + lam/2 |w - centre|^2 + 1/2 w' curvature w, by other means."""
    d = Z.shape[1]
    H = lam * np.eye(d) + (0.0 if curvature is None else curvature)
    pull = lam * (centre + np.zeros(d))
    if not logistic:
        return np.linalg.solve(Z.T @ Z / len(y) + H, Z.T @ y / len(y) + pull)

    def objective(w):
        z = y * (Z @ w)
        value = np.logaddexp(0, -z).mean() + 0.5 * w @ H @ w - pull @ w
        return value, H @ w - pull - Z.T @ (y * expit(-z)) / len(y)

    w = minimize(objective, np.zeros(d), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    for _ in range(3):  # polish
        p = expit(Z @ w)
        w = w - np.linalg.solve((Z * (p * (1 - p))[:, None]).T @ Z / len(y) + H, objective(w)[1])
    return w


# -------------------------------------------------------------------------- without noise
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("cls", AGGREGATION)
def test_average_of_regularised_models(cls, intercept):
    X, y, task = problem(cls)
    models = [
        local_model(Z, t, 0.3, cls._classification) for Z, t in by_task(X, y, task, intercept)
    ]
    expected = np.mean(models, axis=0)
    est = cls(0.3, epsilon=None, fit_intercept=intercept).fit(X, y, task=task)
    assert_allclose(est.coef_, np.tile(expected[:3], (M, 1)), rtol=1e-8)
    assert_allclose(est.intercept_, np.full(M, expected[3] if intercept else 0.0), rtol=1e-8)
    csr = cls(0.3, epsilon=math.inf, fit_intercept=intercept)
    csr.fit(sparse.csr_matrix(X), y, task=task)
    assert_allclose(csr.coef_, est.coef_, rtol=1e-9)
    assert est.privacy_.guarantee == "none" and est.n_iter_ == 1
    # One model for all: of unseen tasks, and of tasks that are added.
    new = est.predict(X, task=np.full(len(X), 99))
    assert_array_equal(new, est.predict(X, task=np.zeros(len(X), dtype=int)))
    est.personalize(X[:9], y[:9], task=np.full(9, 7))
    assert_array_equal(est.coef_[-1], est.mean_coef_)


def omega_of(V, ridge=0.0):
    """(V'V + ridge I)^(1/2) / trace for columns V[k], by the n_tasks x n_tasks matrix."""
    values, Q = np.linalg.eigh(V @ V.T)
    root = (Q * np.sqrt(np.maximum(values, 0.0) + ridge)) @ Q.T
    return root / np.trace(root)


def objective(data, W, V, lam, alpha, logistic, omega=None):
    """With the best Omega, whose term is ||V||_*^2, or a given one."""
    loss = 0.0
    for (Z, y), w in zip(data, W, strict=True):
        z = Z @ w
        loss += np.logaddexp(0, -y * z).mean() if logistic else 0.5 * np.mean((y - z) ** 2)
    relation = np.linalg.svd(V, compute_uv=False).sum() ** 2
    if omega is not None:
        relation = np.trace(V.T @ np.linalg.pinv(omega, rcond=1e-10, hermitian=True) @ V)
    return loss + 0.5 * lam * np.sum((W - V) ** 2) + 0.5 * alpha * relation


@pytest.mark.parametrize("cls", RELATIONSHIP)
@pytest.mark.parametrize("lam, alpha", [(0.1, 0.02), (0.3, 0.05)])
@pytest.mark.spread(2)
def test_plain_alternation_descends_to_the_exact_solution(cls, lam, alpha):
    """Omega, W and V in turn, each at its optimum for the others, with m x m matrices.

    It gets stuck where Omega becomes singular, since its range cannot turn any more, and is
    slow with a small ridge under the root: the next test says what the optimum is.
    """
    X, y, task = problem(cls)
    data, logistic = by_task(X, y, task, False), cls._classification
    est = cls(lam, alpha, epsilon=None, fit_intercept=False).fit(X, y, task=task)
    ends = []
    for ridge in (0.0, 1e-5):
        W = V = np.zeros((M, 3))
        omega, values = np.eye(M) / M, []
        for _ in range(40 if logistic else 300):
            W = [local_model(*one, lam, logistic, v) for one, v in zip(data, V, strict=True)]
            W = np.array(W)
            V = np.linalg.solve(omega + alpha / lam * np.eye(M), omega @ W)
            omega = omega_of(V, ridge)
            values.append(objective(data, W, V, lam, alpha, logistic))
        if not ridge:
            assert (np.diff(values) <= 1e-8 * np.abs(values[:-1])).all()
        assert values[0] > 1.001 * values[-1]
        assert est.objective_ <= values[-1] * (1 + 1e-8)
        ends.append(values[-1])
    assert ends[1] < ends[0]
    assert est.objective_ == pytest.approx(ends[1], rel=2e-3)
    own = est.billboard_
    assert_allclose(own.relationship, omega_of(own.columns), atol=1e-7)
    assert np.trace(own.relationship) == pytest.approx(1.0)
    value = objective(data, est.coef_, own.columns, lam, alpha, logistic, own.relationship)
    assert est.objective_ == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("cls", RELATIONSHIP)
def test_exact_solution_is_stationary(cls):
    """For W and Omega together: the regulariser is 1/2 tr(W (Omega/alpha + I/lam)^-1 W')."""
    lam, alpha = 0.2, 0.03
    X, y, task = problem(cls)
    est = cls(lam, alpha, epsilon=None, fit_intercept=False).fit(X, y, task=task)
    W, logistic = est.coef_, cls._classification
    descent, _ = plain.descent(X, y, task, W, np.zeros(M), logistic=logistic)
    P = np.linalg.inv(est.billboard_.relationship / alpha + np.eye(M) / lam)
    assert_allclose(P @ W, descent, atol=1e-7 * np.abs(descent).max())
    # No other relationship of trace 1 is better for these columns.
    V, rng = est.billboard_.columns, np.random.default_rng(0)
    best = np.linalg.svd(V, compute_uv=False).sum() ** 2
    for _ in range(50):
        A = rng.standard_normal((M, M))
        other = est.billboard_.relationship + 0.1 * A @ A.T
        other /= np.trace(other)
        assert np.trace(V.T @ np.linalg.solve(other, V)) >= best


def test_smoothing_minimises_over_columns_and_relationship():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((7, 4))
    for ratio in (1e-3, 0.3, 20.0):
        V = smooth(W, ratio)
        s = np.linalg.svd(W, compute_uv=False)
        value = 0.5 * np.sum((W - V) ** 2)
        value += 0.5 * ratio * np.linalg.svd(V, compute_uv=False).sum() ** 2
        best = minimize_scalar(
            lambda t, s=s, ratio=ratio: (
                0.5 * np.sum(np.minimum(s, t) ** 2) + 0.5 * ratio * np.maximum(s - t, 0).sum() ** 2
            ),
            bounds=(0.0, s[0]),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert value == pytest.approx(best.fun, rel=1e-10)
        for _ in range(20):
            other = V + 1e-3 * rng.standard_normal(V.shape)
            far = 0.5 * np.sum((W - other) ** 2)
            far += 0.5 * ratio * np.linalg.svd(other, compute_uv=False).sum() ** 2
            assert far > value
    assert not smooth(np.zeros((3, 2)), 1.0).any()


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("cls", RELATIONSHIP)
def test_rounds_are_the_alternation(cls):
    """A budget so large that the noise is invisible: round t is iteration t."""
    X, y, task = problem(cls)
    X, y = 0.3 * X, 0.3 * y if not cls._classification else y
    assert np.linalg.norm(X, axis=1).max() < R and np.abs(y).max() < Y
    lam, alpha, logistic = 0.3, 0.02, cls._classification
    data = by_task(X, y, task, True)
    V, values = np.zeros((M, 4)), []
    for t in range(1, 4):
        W = np.array([local_model(*one, lam, logistic, v) for one, v in zip(data, V, strict=True)])
        est = private(cls, lam=lam, alpha=alpha, epsilon=1e9, n_rounds=t, **NATIVE)
        est.fit(X, y, task=task)
        assert_allclose(np.column_stack([est.coef_, est.intercept_]), W, atol=2e-6)
        V = shortened(smooth(W, alpha / lam), est)
        assert_allclose(est.billboard_.columns, V, atol=1e-5)
        values.append(objective(data, W, V, lam, alpha, logistic))
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("cls", RELATIONSHIP)
@pytest.mark.parametrize("intercept", [True, False])
def test_personalize_uses_the_prior_of_the_columns(cls, intercept):
    X, y, task = problem(cls)
    lam, alpha, logistic = 0.2, 0.03, cls._classification
    est = cls(lam, alpha, epsilon=None, fit_intercept=intercept, tol=1e-12).fit(X, y, task=task)
    coef, intercepts = est.coef_.copy(), est.intercept_.copy()
    est.personalize(X, y, task=task)  # the same tasks again: both sides of one optimum
    assert_allclose(est.coef_, coef, atol=1e-6 * np.abs(coef).max())
    assert_allclose(est.intercept_, intercepts, atol=1e-6 * np.abs(coef).max())
    new_X, new_y, _ = problem(cls, seed=5, sizes=(8,))
    est.personalize(new_X, new_y, task=np.full(8, 9))
    V = est.billboard_.columns
    M_side = omega_of(V.T)
    prior = np.linalg.inv(M_side / alpha + np.eye(len(M_side)) / lam)
    ((Z, t),) = by_task(new_X, new_y, np.zeros(8), intercept)
    w = local_model(Z, t, 0.0, logistic, curvature=prior)
    assert_allclose(est.coef_[-1], w[:3], atol=1e-7)
    assert_array_equal(est.coef_[:-1].shape, coef.shape)


def test_more_iterations_are_requested():
    from sklearn.exceptions import ConvergenceWarning

    X, y, task = problem(DPRelationship)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        DPRelationship(epsilon=None, max_iter=2).fit(X, y, task=task)


# ------------------------------------------------------- how far a record moves a model
def bounds_of(logistic, lam=0.4, clip_norm=None):
    return Bounds(R, None if logistic else Y, clip_norm, lam, False)


@pytest.mark.filterwarnings(SEEDED)
def test_sparse_rows_of_float32_stay_within_the_bounds():
    rows = np.random.default_rng(0).normal(size=(200, 30)).astype("float32") * np.float32(10.0)
    clipped, _ = bounds_of(True).clip(rows, np.ones(200))
    assert np.linalg.norm(clipped.astype(float), axis=1).max() <= R
    # and so do the models, which are those of the same rows in float64
    task, y = np.repeat(np.arange(20), 10), (rows[:, 0] > 0).astype(int)
    found = [
        DPAggregationClassifier(
            epsilon=1.0,
            group="direct",
            max_row_norm=R,
            classes=[0, 1],
            tasks=range(20),
            random_state=0,
        )
        .fit(sparse.csr_matrix(X), y, task=task)
        .coef_
        for X in (rows, rows.astype(float))
    ]
    assert_array_equal(*found)


def solve_one(bounds, Z, y, centre, logistic):
    """The exact model of clipped rows, by other means."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    Z = Z * np.minimum(1.0, R / np.maximum(length, 1e-300))
    y = y if logistic else np.clip(y, -Y, Y)
    return local_model(Z, y, bounds.lam, logistic, centre)


def rows_for(rng, n, d, logistic):
    """Random data that lean towards the bounds."""
    u = rng.standard_normal(d)
    Z = np.where(rng.random((n, 1)) < 0.5, u, rng.standard_normal((n, d)))
    Z *= R * rng.choice([1.0, 0.3, 5.0], (n, 1)) / np.linalg.norm(Z, axis=1, keepdims=True)
    y = rng.choice([-1.0, 1.0], n)
    return Z, y if logistic else Y * y * rng.choice([1.0, 0.5, 3.0], n)


@pytest.mark.parametrize("logistic", [False, True])
def test_bounds_hold_for_any_data_and_are_met(logistic):
    rng = np.random.default_rng(0)
    for lam in (0.02, 0.4, 30.0):
        bounds, reached = bounds_of(logistic, lam), []
        for _ in range(30):
            Z, y = rows_for(rng, int(rng.integers(1, 6)), 2, logistic)
            centre = rng.choice([0.0, 1.0]) * rng.standard_normal(2)
            v = np.linalg.norm(centre)
            w = solve_one(bounds, Z, y, centre, logistic)
            reached.append(np.linalg.norm(w - centre) / bounds.distance(v))
            Z, y = bounds.clip(Z, y)
            slope = expit(-y * (Z @ w)) if logistic else np.abs(Z @ w - y)
            largest = (slope * np.linalg.norm(Z, axis=1)).max()
            assert largest <= bounds.lipschitz(v) * (1 + 1e-9)
        assert max(reached) <= 1 + 1e-9
        # One record of the worst length attains the bound on the distance, or nearly.
        a = np.linspace(0.01, R, 100)
        far = [
            solve_one(bounds, np.array([[r, 0.0]]), np.array([Y]) ** (not logistic), 0.0, logistic)[
                0
            ]
            for r in a
        ]
        assert max(far) > 0.84 * bounds.distance(0.0)
    # 0.2785 is the largest value of t / (1 + e^t).
    t = np.linspace(0, 5, 100_001)
    assert bounds_of(True, 0.02).distance(0.0) ** 2 * 0.02 == pytest.approx(
        (t / (1 + np.exp(t))).max(), rel=1e-8
    )


class Settings:
    """What PerturbationPlan reads of an estimator."""

    def __init__(self, logistic=False, lam=0.4, **settings):
        self._classification, self._n_servers = logistic, 1
        self.__dict__.update(
            {
                "guarantee": "record",
                "group": "published",
                "mechanism": "auto",
                "epsilon": 1.0,
                "delta": None,
                "adjacency": "replace-one",
                "max_task_rows": None,
                "min_task_rows": None,
                "max_row_norm": R,
                "max_target": Y,
                "clip_norm": None,
                "lam": lam,
                "fit_intercept": False,
                **settings,
            }
        )


def contributions(table, plan, centre, logistic):
    models = NewtonModels(
        table,
        fit_intercept=False,
        lam=plan.bounds.lam,
        bounds=plan.bounds,
    )
    reach = plan.reach(np.linalg.norm(centre, axis=1))
    return bounded(models.solve(centre, gradient=reach.gradient) - centre, reach.limit), reach


def worst_movement(logistic, lam, setting, change, clip_norm=None, tries=150):
    """Largest movement of a contribution over the stated one, over random neighbours.

    `change` says whether the first row or all rows of the task are replaced.
    """
    rng = np.random.default_rng(3)
    pairs = []
    for i in range(tries):
        n = int(rng.integers(1, 5))
        Z, y = rows_for(rng, n, 2, logistic)
        other_Z, other_y = Z.copy(), y.copy()
        rows = slice(0, 1) if change == "record" else slice(None)
        if i % 2:  # the same rows with the opposite answer
            other_y[rows] = -y[rows]
        else:
            other_Z[rows], other_y[rows] = (a[rows] for a in rows_for(rng, n, 2, logistic))
        if setting.get("adjacency") == "zero-out":
            other_Z[rows] = 0.0  # a record that says nothing, for the squared loss also in y
            other_y[rows] = other_y[rows] if logistic else 0.0
        pairs.append((Z, y, other_Z, other_y, rng.choice([0.0, 1.0]) * rng.standard_normal(2)))
    first = plain.long_table(*stacked(pairs, 0))
    second = plain.long_table(*stacked(pairs, 2))
    centre = np.array([pair[4] for pair in pairs])
    settings = Settings(logistic, lam, clip_norm=clip_norm, max_task_rows=4, **setting)
    plan = PerturbationPlan(settings, first, 1)
    (a, reach), (b, _) = (contributions(t, plan, centre, logistic) for t in (first, second))
    moved = np.linalg.norm(a - b, axis=1)
    assert (moved <= reach.sensitivity * (1 + 1e-12)).all()
    if clip_norm is not None:
        assert np.linalg.norm(a, axis=1).max() <= clip_norm
    return (moved / reach.sensitivity).max()


def stacked(pairs, k):
    sizes = [len(pair[1]) for pair in pairs]
    X = np.concatenate([pair[k] for pair in pairs])
    return X, np.concatenate([pair[k + 1] for pair in pairs]), np.repeat(range(len(pairs)), sizes)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("lam", [0.02, 0.4, 30.0])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_one_record_moves_a_model_within_the_sensitivity(logistic, lam, clip_norm, adjacency):
    setting = {"guarantee": "record", "adjacency": adjacency}
    used = worst_movement(logistic, lam, setting, "record", clip_norm)
    assert used > (0.4 if adjacency == "replace-one" else 0.3)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("lam", [0.02, 30.0])
def test_one_task_moves_a_model_within_the_sensitivity(logistic, lam):
    for clip_norm in (None, 0.5):
        setting = {"guarantee": "task", "group": "direct"}
        assert worst_movement(logistic, lam, setting, "task", clip_norm) > 0.6
    # Group privacy pays for `max_task_rows` changes of one record.
    setting = {"guarantee": "task", "group": "published"}
    assert worst_movement(logistic, lam, setting, "task") > 0.1


def test_a_bound_on_rows_allows_their_number_to_change():
    """With min_task_rows the sensitivity covers neighbours with other numbers of rows."""
    plan = PerturbationPlan(
        Settings(guarantee="task", max_task_rows=8, min_task_rows=2),
        plain.long_table(np.zeros((4, 1)), np.zeros(4), np.zeros(4)),
        1,
    )
    reach = plan.reach(np.zeros(1))
    assert not plan.rows_are_public
    # No two models are further apart than this, whatever their rows.
    assert reach.sensitivity[0] >= 2 * plan.bounds.distance(0.0)


def test_solver_stops_within_the_stated_gap():
    rng = np.random.default_rng(0)
    for logistic in (False, True):
        Z, y = rows_for(rng, 40, 2, logistic)
        table = plain.long_table(Z, y, np.repeat(range(4), 10))
        plan = PerturbationPlan(Settings(logistic, 5.0), table, 1)
        centre, bounds = np.zeros((4, 2)), plan.bounds
        U, reach = contributions(table, plan, centre, logistic)
        gap = reach.gradient / bounds.lam
        assert_allclose(gap, 1e-6 * bounds.lipschitz(0.0) / (10 * 5.0))
        for k in range(4):
            rows = slice(10 * k, 10 * k + 10)
            exact = solve_one(bounds, Z[rows], y[rows], 0.0, logistic)
            assert np.linalg.norm(U[k] - exact) <= gap[k]
        # Twice the gap is in the sensitivity.
        assert_allclose(reach.record, 2 * (1 + 1e-6) * bounds.lipschitz(0.0) / (10 * 5.0))
        models = NewtonModels(table, fit_intercept=False, lam=5.0)
        with pytest.raises(ValueError, match="Raise lam"):
            models.solve(centre, gradient=np.zeros(4))


# --------------------------------------------------------------- releases of estimators
def record_neighbours(cls, scale=1.0):
    """One row of task 2 beyond the bounds, and the same with the opposite answer."""
    X, y, task = problem(cls)
    row = np.flatnonzero(task == 2)[0]
    X[task == 2] *= 0.1
    X[row] = scale * 100 * R * np.array([1.0, 0.0, 0.0])
    y[row] = 1.0 if cls._classification else 100 * Y
    other = y.copy()
    other[row] = -y[row]
    return (X, y, task), (X, other, task)


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_releases_move_within_the_sensitivity_and_are_all_there_is(cls, name, adjacency):
    model = private(cls, adjacency=adjacency, **GROUPS[name])
    data, other = record_neighbours(cls)
    if adjacency == "zero-out":
        X, y = data[0].copy(), data[1].copy()
        row = np.flatnonzero(data[2] == 2)[0]
        X[row], y[row] = 0.0, y[row] if cls._classification else 0.0
        other = X, y, data[2]
        # A zero row still pulls the intercept: without one it contributes nothing.
        model.set_params(fit_intercept=False)
    first = model.fit(data[0], data[1], task=data[2])
    releases, report, coef = first.billboard_.releases, first.privacy_, first.coef_
    again = model.fit(other[0], other[1], task=other[2])
    moved = np.linalg.norm(again.billboard_.releases[0] - releases[0])
    entry = report.releases[0]
    assert 0 < moved <= entry["sensitivity"] * (1 + 1e-9) + 1e-5 * entry["noise_std"]
    assert (again.coef_ != coef).any()
    if cls in AGGREGATION:
        assert again.privacy_ == report
    # Everything fitted follows from the releases.
    billboard = again.billboard_
    if cls in AGGREGATION:
        mean = billboard.releases[0]
        assert_array_equal(again.coef_, np.tile(mean[:3], (M, 1)))
        return
    V = np.zeros((M, len(releases[0]) // M))
    for noisy, unit in zip(billboard.releases, billboard.sensitivity, strict=True):
        W = V + unit[:, None] * noisy.reshape(M, -1)
        V = shortened(smooth(W, again.alpha / again.lam), again)
    assert_allclose(again.coef_, W[:, :3], rtol=1e-9, atol=1e-9)
    assert_allclose(billboard.columns, V, rtol=1e-9, atol=1e-9)
    # The noise of a round depends on public columns only.
    assert np.isfinite(billboard.sensitivity).all()


def shortened(V, est):
    """Columns no longer than the longest first update, by the formulas of the docstrings."""
    r, lam = math.hypot(R, float(est.fit_intercept)), est.lam
    if est._classification:
        limit = min(r / (2 * lam), math.sqrt(0.27846454276107377 / lam))
        lipschitz = r * expit(r * limit)
    else:
        limit = min(r * Y / lam, Y / (2 * math.sqrt(lam)))
        lipschitz = r * (Y + r * limit)
    rows = 1 if est.group == "direct" and est.guarantee == "task" else min(SIZES)
    limit += 1e-6 * lipschitz / (rows * lam)
    return V * np.minimum(1.0, limit / np.linalg.norm(V, axis=1))[:, None]


# One of each method and of each loss; the others are slow.
QUICK_AND_SLOW = pytest.mark.parametrize(
    "cls",
    [
        DPAggregation,
        DPRelationshipClassifier,
        pytest.param(DPAggregationClassifier, marks=pytest.mark.slow),
        pytest.param(DPRelationship, marks=pytest.mark.slow),
    ],
)
AUDITED = {"record": {**NATIVE, "lam": 0.5}, "direct": {"group": "direct", "lam": 0.5}}


@QUICK_AND_SLOW
@pytest.mark.parametrize("name", AUDITED)
@pytest.mark.spread(1)
def test_audit_passes(cls, name):
    est = (
        cls(**public(cls), tasks=range(M), n_rounds=1)
        if cls in RELATIONSHIP
        else cls(**public(cls), tasks=range(M))
    )
    est.set_params(**AUDITED[name], epsilon=3.0)
    result = audit(est, *record_neighbours(cls), n_draws=60, random_state=1)
    assert result.passed, str(result)
    assert 0.01 < result.sensitivity_observed / result.sensitivity_stated <= 1 + 1e-7


@QUICK_AND_SLOW
@pytest.mark.spread(1)
def test_audit_finds_rows_that_are_not_clipped(cls, monkeypatch):
    """Without the bounds on rows and targets the stated sensitivity is wrong, and shows."""
    settings = {"n_rounds": 1} if cls in RELATIONSHIP else {}
    est = cls(**public(cls), tasks=range(M), epsilon=0.5, lam=30.0, **NATIVE, **settings)
    data = record_neighbours(cls)
    assert audit(est, *data, n_draws=60, random_state=1).passed
    monkeypatch.setattr(Bounds, "clip", lambda self, X, y: (np.ascontiguousarray(X), y))
    bounds = "skpmtl.reproduction.output_perturbation.bounds"
    monkeypatch.setattr(f"{bounds}.clip_rows", lambda *args: None)
    result = audit(est, *data, n_draws=60, random_state=1)
    assert not result.passed
    assert any("Sensitivity" in text for text in result.failures)
    if not cls._classification:
        assert result.epsilon_lower > 0.5  # its draws alone give it away


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize(
    "cls, name", [(DPAggregation, "record"), (DPRelationshipClassifier, "Gaussian")]
)
@pytest.mark.spread(1)
def test_draws_show_the_stated_noise(cls, name):
    X, y, task = problem(cls)
    more = {"n_rounds": 1} if cls in RELATIONSHIP else {}
    model = private(cls, **GROUPS[name], **more)
    draws = []
    n = 130
    for seed in range(n):
        est = model.set_params(random_state=seed).fit(X, y, task=task)
        draws.append(est.billboard_.releases[0])
    E = np.array(draws) - np.mean(draws, axis=0)
    squares = np.square(E / est.privacy_.noise_std[0])
    spread = squares.mean(axis=1).std() / math.sqrt(n)
    assert abs(squares.mean() * n / (n - 1) - 1) < 4 * spread < 0.5


# -------------------------------------------------------------------------------- budgets
def noise_of(est):
    return est.privacy_.noise_std[0]


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("adjacency, c", [("replace-one", 2), ("zero-out", 1)])
def test_aggregation_noise_by_hand(adjacency, c):
    X, y, task = problem(DPAggregation)
    lam, n, d = 2.0, 20, 4
    r = math.hypot(R, 1.0)
    B = min(r * Y / lam, Y / (2 * math.sqrt(lam)))
    record = min(c * r * (Y + r * B) / (min(SIZES) * lam), 2 * B) / M
    root = math.sqrt(d + 1)  # std of one entry of the gamma noise over its scale
    mu = gdp_mu(0.7, 1e-4)
    expected = {
        "record": record * root / 0.7,
        "published": n * record * root / 0.7,
        "tight": n * record * root / 0.7,
        "Gaussian": n * record / mu,
        "direct": c * B / M / mu,
        "direct, gamma": c * B / M * root / 0.7,
        "published, Gaussian": record / gdp_mu(0.7 / n, 1e-4 / (n * math.exp(0.7))),
    }
    for name, noise in expected.items():
        gaussian = "Gaussian" in name or name == "direct"
        est = private(
            DPAggregation,
            lam=lam,
            epsilon=0.7,
            adjacency=adjacency,
            **GROUPS[name],
            delta=1e-4 if gaussian else None,
        ).fit(X, y, task=task)
        assert noise_of(est) == pytest.approx(noise, rel=3e-5), name
        assert est.privacy_.delta == (1e-4 if gaussian else 0.0)
        assert (est.privacy_.mu is not None) == gaussian
        # The guarantee follows from the noise and the movement of all rows of a task.
        if gaussian:
            assert est.privacy_.mu <= mu * (1 + 1e-9)
    # n times the influence of a record is more than a task can do.
    assert expected["Gaussian"] > 1.5 * expected["direct"]
    few = private(DPAggregation, lam=90.0, min_task_rows=3, **NATIVE).fit(X, y, task=task)
    plenty = private(DPAggregation, lam=90.0, **NATIVE).fit(X, y, task=task)
    assert noise_of(few) == pytest.approx(2 * noise_of(plenty))
    small = private(
        DPAggregation,
        lam=lam,
        clip_norm=0.1,
        group="direct",
        delta=1e-4,
        epsilon=0.7,
        adjacency=adjacency,
    ).fit(X, y, task=task)
    assert noise_of(small) == pytest.approx(c * 0.1 / M / mu)


@pytest.mark.filterwarnings(SEEDED)
def test_cost_of_the_lemma():
    """Noise of Proposition 3 over that of exact Gaussian group privacy, n = 30 (m = 139)."""
    X, y, task = problem(DPAggregation)
    delta = 1 / (139 * math.log(139))

    def noise(epsilon, group):
        est = private(
            DPAggregation,
            epsilon=epsilon,
            delta=delta,
            group=group,
            max_task_rows=30,
            mechanism="gaussian",
        )
        return noise_of(est.fit(X, y, task=task))

    for epsilon, ratio in [(0.1, 1.01), (1.0, 1.06), (10.0, 1.29)]:
        exact = noise(epsilon, "gaussian")
        assert noise(epsilon, "published") / exact == pytest.approx(ratio, abs=0.006)
        assert 1.0 <= noise(epsilon, "tight") / exact <= noise(epsilon, "published") / exact


def cb(epsilons, delta):
    """Equation 6 of the model-protected paper."""
    e = np.asarray(epsilons)
    drift, squares = np.sum(e * np.tanh(e / 2)), np.sum(e**2)
    log = min(math.log(1 / delta), math.log(math.e + math.sqrt(squares) / delta))
    return min(e.sum(), drift + math.sqrt(2 * squares * log))


@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("n_rounds", [1, 3, 80])
def test_relationship_rounds_compose_to_the_budget(n_rounds):
    X, y, task = problem(DPRelationship)
    epsilon, delta, n = 2.0, 1e-4, 20

    def report(**settings):
        est = private(DPRelationship, epsilon=epsilon, delta=delta, n_rounds=n_rounds, **settings)
        return est.fit(X, y, task=task).privacy_

    published = report(**GROUPS["published"])
    shares = [entry["epsilon"] / n for entry in published.releases]  # of one record
    assert len(shares) == n_rounds
    assert cb(shares, delta / (n * math.exp(epsilon))) == pytest.approx(epsilon / n, rel=1e-6)
    assert shares[0] >= epsilon / n / n_rounds * (1 - 1e-12)
    assert published.noise_std[0] == pytest.approx(math.sqrt(5) / (n * shares[0]))
    tight = report(**GROUPS["tight"])
    assert tight.releases[0]["epsilon"] >= published.releases[0]["epsilon"] * (1 - 1e-9)
    gaussian = report(**GROUPS["Gaussian"])
    assert_allclose(gaussian.noise_std, np.full(n_rounds, math.sqrt(n_rounds)) / gaussian.mu)
    assert gaussian.mu == pytest.approx(gdp_mu(epsilon, delta))
    # delta of mu-GDP in the other direction, from the normal distribution function
    mu = gaussian.mu
    spent = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert spent == pytest.approx(delta, rel=1e-6)
    direct = report(**GROUPS["direct"])
    assert_allclose(direct.noise_std, gaussian.noise_std)
    low, high = direct.notes["sensitivity of the models in round 1"]
    assert low == high < gaussian.notes["sensitivity of the models in round 1"][0]


@pytest.mark.filterwarnings(SEEDED)
def test_sensitivities_follow_rows_and_columns():
    X, y, task = problem(DPRelationship)
    est = private(DPRelationship, epsilon=50.0, lam=2.0, fit_intercept=False, **NATIVE)
    billboard = est.fit(X, y, task=task).billboard_

    def unit(v, n):
        Yk = Y + R * v
        B = min(R * Yk / 2.0, Yk / (2 * math.sqrt(2.0)))
        return min(2 * R * (Yk + R * B) / (n * 2.0), 2 * B)

    expected = [unit(0.0, n) for n in SIZES]
    assert_allclose(billboard.sensitivity[0], expected, rtol=3e-6)
    assert est.privacy_.notes["sensitivity of the models in round 1"] == pytest.approx(
        (min(expected), max(expected)), rel=3e-6
    )
    assert (billboard.sensitivity[1] > billboard.sensitivity[0]).all()  # further from zero
    shown = []
    est._progress = lambda text, n: lambda *numbers: shown.append(numbers)
    reach = est.fit(X, y, task=task).billboard_.sensitivity
    stds = [est.privacy_.noise_std[t] * reach[t] for t in range(len(shown))]
    assert shown == [(t + 1, s.min(), s.max()) for t, s in enumerate(stds)]


# -------------------------------------------------------------------------------- reports
@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("name", GROUPS)
def test_report(cls, name):
    X, y, task = problem(cls)
    est = private(cls, epsilon=1.5, **GROUPS[name]).fit(X, y, task=task)
    report, rounds = est.privacy_, 3 if cls in RELATIONSHIP else 1
    unit = "record" if name == "record" else "task"
    assert (report.unit, report.guarantee, report.epsilon) == (unit, f"{unit} DP", 1.5)
    assert len(report.releases) == len(est.billboard_.releases) == rounds
    assert est.n_iter_ == rounds and not hasattr(est, "objective_")
    text = report.text(None)
    assert f"differentially private in every {unit}" in text
    assert "clipped" in text and "coef_ may be published" in text.replace("with it coef_,", "coef_")
    assert ("number of rows of every task is public" in text) == ("direct" not in name)
    assert ("max_task_rows = 20" in text) == (
        name in ("published", "tight", "Gaussian", "published, Gaussian")
    )
    if "Gaussian" in name or name == "direct":
        assert report.notes["epsilon_exact"] <= 1.5 * (1 + 1e-9)
    if "group" in report.notes:
        assert "in every record" in report.notes["group"]
    twice = compose([report, report])
    assert 1.5 < twice.epsilon <= 3.0 * (1 + 1e-9) and twice.unit == unit


@pytest.mark.filterwarnings(SEEDED)
def test_default_delta_counts_the_units():
    X, y, task = problem(DPAggregation, sizes=(200, 200, 200))
    settings = {"tasks": range(3), "mechanism": "gaussian"}
    record = private(DPAggregation, **NATIVE, **settings).fit(X, y, task=task)
    assert record.privacy_.delta == pytest.approx(1 / 600**2)
    whole = private(DPAggregation, group="direct", **settings).fit(X, y, task=task)
    assert whole.privacy_.delta == 1e-5
    with pytest.warns(UserWarning, match="1/n_records = 0.00167: publishing one random record"):
        private(DPAggregation, **NATIVE, delta=0.1, **settings).fit(X, y, task=task)


def test_group_lemma_gives_back_the_budget():
    table = plain.long_table(np.zeros((4, 1)), np.zeros(4), np.zeros(4))
    for group, exact in (("published", False), ("tight", True)):
        budget = PerturbationPlan(
            Settings(
                guarantee="task",
                group=group,
                max_task_rows=30,
                delta=1e-5,
                epsilon=2.0,
                mechanism="gaussian",
            ),
            table,
            1,
        )
        epsilon, delta = group_privacy(*budget.record, 30)
        assert epsilon == pytest.approx(2.0)
        assert delta == pytest.approx(1e-5) if exact else delta < 1e-5


# --------------------------------------------------------------------------------- errors
@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_errors(cls):
    X, y, task = problem(cls)

    def fit(**settings):
        return private(cls, **settings).fit(X, y, task=task)

    with pytest.raises(ValueError, match=r"needs max_row_norm= \(a public bound"):
        fit(max_row_norm=None, **NATIVE)
    if not cls._classification:
        with pytest.raises(ValueError, match="max_row_norm= .* and max_target= "):
            fit(max_row_norm=None, max_target=None, **NATIVE)
    else:
        assert "max_target" not in cls().get_params()
    with pytest.raises(ValueError, match='group="published"|needs max_task_rows'):
        fit()
    with pytest.raises(ValueError, match=r"more rows than max_task_rows=13: \[1, 3\] \(14 rows"):
        fit(max_task_rows=13)
    with pytest.raises(ValueError, match=r"fewer rows than min_task_rows=10: \[0, 4\]"):
        fit(min_task_rows=10, **NATIVE)
    with pytest.raises(ValueError, match="min_task_rows=9 exceeds max_task_rows=5"):
        fit(min_task_rows=9, max_task_rows=5)
    with pytest.raises(ValueError, match='mechanism="gaussian" or "auto"'):
        fit(group="gaussian", mechanism="gamma", max_task_rows=20)
    for bad in (
        {"guarantee": "person"},
        {"group": "sum"},
        {"lam": 0.0},
        {"max_row_norm": -1.0},
        {"max_task_rows": 0},
        {"mechanism": "laplace"},
        {"clip_norm": 0.0},
        *([] if cls._classification else [{"max_target": -1.0}]),
    ):
        (name,) = bad
        with pytest.raises(ValueError, match=f"'{name}' parameter"):
            fit(**{**NATIVE, **bad})
    with pytest.raises(ValueError, match="delta"):
        fit(mechanism="gaussian", delta=0.0, **NATIVE)
    est = fit(group="direct")
    with pytest.raises(ValueError, match="public bound"):
        est.set_params(max_row_norm=None).fit(X, y, task=task)
    assert not hasattr(est, "coef_")
    if cls._classification:
        with pytest.raises(ValueError, match="binary"):
            private(cls, classes=range(3), **NATIVE).fit(X, np.arange(len(y)) % 3, task=task)


def test_one_class_tasks_are_allowed():
    X, y, task = problem(DPAggregationClassifier)
    y[task == 1] = 1.0
    for cls in (DPAggregationClassifier, DPRelationshipClassifier):
        est = cls(0.1, epsilon=None).fit(X, y, task=task)
        assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
        assert est.predict_proba(X, task=task).shape == (len(X), 2)


def test_secure_noise():
    pytest.importorskip("opendp", reason="needs the extra skpmtl[secure]")
    X, y, task = problem(DPAggregation)
    secure = {"secure": True, "random_state": None}
    est = private(DPAggregation, group="direct", **secure).fit(X, y, task=task)
    assert "exact" in est.privacy_.arithmetic and "OpenDP" in est.privacy_.rng
    with pytest.raises(ValueError, match="L2-gamma"):
        private(DPAggregation, **NATIVE, **secure).fit(X, y, task=task)


# ---------------------------------------------------------------- what is public about rows
@pytest.mark.parametrize("cls", [DPAggregation, DPRelationship])
def test_sizes_that_are_not_public_are_requested_another_way(cls):
    """A curator elsewhere knows the tasks, and of their rows what the parameters say."""
    population = Population(np.arange(M), 3)
    source = np.random.default_rng(0)

    def start(**settings):
        est = private(cls, **settings)
        est._check_study()
        next(est._curator(population, source))

    start(group="direct")
    start(max_task_rows=20, min_task_rows=5)
    start(min_task_rows=5, **NATIVE)
    with pytest.raises(ValueError, match="across sites needs min_task_rows="):
        start(max_task_rows=20)
    with pytest.raises(ValueError, match="across sites needs min_task_rows="):
        start(group="direct", **NATIVE)
    with pytest.raises(ValueError, match="pass min_task_rows="):
        next(private(cls, **NATIVE)._curator(population, source))
    with pytest.raises(ValueError, match="pass delta="):
        start(min_task_rows=5, mechanism="gaussian", **NATIVE)


@pytest.mark.parametrize("cls", [DPAggregation, DPRelationship])
def test_tasks_refuse_other_sizes_than_the_noise_is_made_for(cls):
    X, y, task = problem(cls)
    table = plain.long_table(X, y, task)
    task_side = private(cls, **NATIVE)._task_side
    task_side(table, Population.of(table))
    wrong = table.sizes.copy()
    wrong[3] += 4  # more rows would mean less noise
    with pytest.raises(ValueError, match=r"other numbers of rows than are public: \[3\]"):
        task_side(table, Population(table.tasks, 3, 0, wrong))
    private(cls, min_task_rows=6, **NATIVE)._task_side(table, Population(table.tasks, 3, 0, wrong))
    with pytest.raises(ValueError, match="fewer rows than min_task_rows=7"):
        private(cls, min_task_rows=7, **NATIVE)._task_side(table, Population.of(table))
