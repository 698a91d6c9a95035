"""Algorithms of Liang et al. and their competitors, against plain iterations and theorems."""

import math
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skpmtl.datasets import make_low_rank_tasks
from skpmtl.privacy import audit, gdp_mu
from skpmtl.privacy.rng import SystemSource, noise_source
from skpmtl.reproduction.mp_mtl import (
    MPMTLPlan,
    PublishedMPMTL,
    PublishedMPMTLClassifier,
    PublishedOutputNoise,
    PublishedOutputNoiseClassifier,
    read_survey,
    survey_design,
)
from skpmtl.reproduction.mp_mtl.losses import MeanLogistic, MeanSquares, own_rates
from skpmtl.reproduction.mp_mtl.output_perturbation import estimated_lipschitz, relationship_columns
from skpmtl.reproduction.mp_mtl.plan import best_allocation, bound_exponent
from skpmtl.reproduction.mp_mtl.rounds import (
    PROJECTIONS,
    ModelTasks,
    OwnPart,
    curator,
)

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.privacy.PrivacyLeakWarning")
M, N, D, T = 9, 14, 4, 6
ETA, LAM, K = 1.5, 0.4, 1.2


def data(seed=0, m=M, n=N, d=D):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((m, 2)) @ rng.standard_normal((2, d))
    X = rng.standard_normal((m, n, d)) / math.sqrt(d)
    y = np.einsum("knd,kd->kn", X, W) + 0.1 * rng.standard_normal((m, n))
    return X, y


def long(X, y):
    return X.reshape(-1, X.shape[2]), y.ravel(), np.repeat(np.arange(len(X)), X.shape[1])


def plan_of(penalty="low-rank", **how):
    given = {"clip_norm": K, "threshold": ETA * LAM, "epsilon": 1.0, "delta": 0.05, **how}
    return MPMTLPlan(penalty, given.pop("m", M), D, given.pop("T", T), **given)


def with_noise(plan, tasks, noise):
    """The queries of the curator answered, with given noise."""
    rounds, reply, noise = curator(plan), None, iter(noise)
    while True:
        try:
            query = rounds.send(reply)
        except StopIteration as end:
            return end.value
        reply = {name: total + next(noise) for name, total in tasks.answer(query).items()}


def printed(penalty, X, y, W, noise, *, accelerated, mu=0.0, logistic=False, released=False):
    """Algorithm 2 or 3 line by line, models as columns; `released`: moments in place of noise."""
    W, previous, sequence = W.T.copy(), None, []
    d, m = W.shape
    for t, E in enumerate(noise, start=1):
        clipped = W / np.maximum(1.0, np.linalg.norm(W, axis=0) / K)
        previous = clipped if t == 1 else previous
        sigma = E if released else clipped @ clipped.T + E
        if penalty == "low-rank":
            U, values, _ = np.linalg.svd(sigma)
            S = np.zeros(d)
            for i in range(min(d, m)):
                S[i] = max(0.0, 1.0 - ETA * LAM / math.sqrt(values[i]))
            P = U @ np.diag(S) @ U.T
        else:
            P = np.diag([max(0.0, 1.0 - ETA * LAM / math.sqrt(s)) for s in np.diag(sigma)])
        projected = P @ clipped
        beta = (t - 1) / (t + 2) if accelerated else 0.0
        if accelerated and mu:
            beta = (1 - math.sqrt(mu * ETA)) / (1 + math.sqrt(mu * ETA))
        Z = projected + beta * (projected - previous)
        for i in range(m):
            if logistic:
                g = -X[i].T @ (y[i] * expit(-y[i] * (X[i] @ Z[:, i]))) / len(y[i])
            else:
                g = X[i].T @ (X[i] @ Z[:, i] - y[i]) / len(y[i])
            W[:, i] = Z[:, i] - ETA * (g + mu * Z[:, i])
        previous = projected
        sequence.append(projected.T)
    return np.array(sequence)


def wisharts(seed=0, scale=0.3):
    G = np.random.default_rng(seed).standard_normal((T, D, D + 1))
    return scale * np.matmul(G, np.swapaxes(G, 1, 2))


# -------------------------------------------------------------------------------- the box
@pytest.mark.parametrize("penalty", PROJECTIONS)
@pytest.mark.parametrize(("accelerated", "mu"), [(False, 0.0), (True, 0.0), (True, 0.05)])
@pytest.mark.parametrize("m", [M, 3])
def test_rounds_are_the_algorithm_line_by_line(penalty, accelerated, mu, m):
    X, y = data(m=m)
    start = np.random.default_rng(1).standard_normal((m, D))
    losses = MeanSquares(list(zip(X, y, strict=True)))
    tasks = ModelTasks(losses, start, K, ETA, accelerated, ridge=mu)
    sequence, expected = (
        [],
        printed(penalty, X, y, start, wisharts(), accelerated=accelerated, mu=mu),
    )
    plan = plan_of(penalty, m=m)
    rounds, reply = curator(plan, lambda t, M_t: sequence.append(tasks.models())), None
    noise = iter(wisharts())
    with pytest.raises(StopIteration):
        while True:
            query = rounds.send(reply)
            reply = {name: total + next(noise) for name, total in tasks.answer(query).items()}
    np.testing.assert_allclose(sequence, expected, atol=1e-10)
    lengths = np.linalg.norm(start, axis=1)
    assert lengths.max() > K > lengths.min()  # the clip binds for some tasks
    plain = ModelTasks(losses, start, K, ETA, accelerated, ridge=mu)
    for _ in range(T):
        plain.step(np.eye(D))
    assert np.abs(plain.models() - expected[-1]).max() > 1e-2  # and projections change models


def test_two_classes_take_steps_of_the_logistic_loss():
    X, y = data()
    signs = np.where(y > 0, 1.0, -1.0)
    tasks = ModelTasks(
        MeanLogistic(list(zip(X, signs, strict=True))), np.zeros((M, D)), K, ETA, True
    )
    with_noise(plan_of(), tasks, wisharts())
    expected = printed(
        "low-rank", X, signs, np.zeros((M, D)), wisharts(), accelerated=True, logistic=True
    )
    np.testing.assert_allclose(tasks.models(), expected[-1], atol=1e-10)


def test_the_estimator_is_the_box_with_the_noise_of_its_plan():
    A, b, task = long(*data())
    found = []
    est = PublishedMPMTL(
        "group-sparse",
        lam=LAM,
        learning_rate=ETA,
        clip_norm=K,
        n_rounds=T,
        random_state=3,
        start="zeros",
        tasks=range(M),
        monitor=lambda t, tasks, P: found.append(tasks.models()),
    ).fit(A, b, task=task)
    X, y = data()
    moments = est.billboard_.moments
    start = np.zeros((M, D))
    sequence = printed("group-sparse", X, y, start, moments, accelerated=True, released=True)
    np.testing.assert_allclose(found, sequence, atol=1e-9)
    np.testing.assert_array_equal(est.coef_, found[-1])
    average = clone(est).set_params(average=True, monitor=None).fit(A, b, task=task)
    np.testing.assert_allclose(average.coef_, np.mean(found, axis=0), atol=1e-12)


@pytest.mark.parametrize("penalty", PROJECTIONS)
def test_without_noise_rounds_reach_the_optimum(penalty):
    """Optimality of problems (2) and (3): -gradient / lambda is a subgradient of the norm."""
    X, y = data()
    A, b, task = long(X, y)
    lam = 0.1
    est = PublishedMPMTL(
        penalty, lam=lam, epsilon=None, n_rounds=3000, learning_rate=1.0, tasks=range(M)
    ).fit(A, b, task=task)
    W = est.coef_
    residual = y - np.einsum("knd,kd->kn", X, W)
    G = np.einsum("knd,kn->kd", X, residual) / (N * lam)
    if penalty == "low-rank":
        dual, norm = np.linalg.norm(G, 2), np.linalg.norm(W, "nuc")
    else:
        dual, norm = np.linalg.norm(G, axis=0).max(), np.linalg.norm(W, axis=0).sum()
    assert norm > 0 and dual <= 1 + 1e-7
    assert np.vdot(G, W) == pytest.approx(norm, rel=1e-7)
    assert est.privacy_.guarantee == "none"


@pytest.mark.parametrize("penalty", ["l1", "none"])
def test_tasks_alone_reach_their_own_optimum(penalty):
    X, y = data()
    A, b, task = long(X, y)
    strength, mu = (0.05, 0.0) if penalty == "l1" else (0.0, 0.1)
    est = PublishedMPMTL(
        penalty, l1=strength, ridge=mu, n_rounds=2000, learning_rate=1.0, tasks=range(M)
    ).fit(A, b, task=task)
    residual = y - np.einsum("knd,kd->kn", X, est.coef_)
    G = np.einsum("knd,kn->kd", X, residual) / N - mu * est.coef_
    assert np.abs(G).max() <= strength + 1e-8
    assert np.vdot(G, est.coef_) == pytest.approx(strength * np.abs(est.coef_).sum(), abs=1e-7)
    # Claim 1.
    assert (est.privacy_.epsilon, est.privacy_.delta) == (0.0, 0.0)
    assert est.billboard_.moments == []


def test_own_parts_take_outliers_and_stay_with_their_task():
    X, y = data()
    tasks = list(zip(X, y, strict=True))
    strength = 0.05
    models = ModelTasks(
        MeanSquares(tasks), np.zeros((M, D)), K, 0.5, False, own=OwnPart("l1", strength)
    )
    for _ in range(5000):
        models.step(0.5 * np.eye(D))
    assert 0 < np.count_nonzero(models.Q) < models.Q.size
    G = -MeanSquares(tasks).gradient(models.W + models.Q)
    on = models.Q != 0
    np.testing.assert_allclose(G[on], strength * np.sign(models.Q[on]), atol=1e-6)
    assert np.abs(G[~on]).max() <= strength + 1e-6
    # What leaves is the clipped shared part.
    query = next(curator(plan_of()))
    sent = models.contributions(query)["model"]
    lengths = np.linalg.norm(models.W, axis=1, keepdims=True)
    np.testing.assert_allclose(sent, models.W / np.maximum(1.0, lengths / K), rtol=1e-12)


@pytest.mark.parametrize("penalty", ["l1", "l2", "norm"])
def test_proximal_steps_minimise_their_penalties(penalty):
    rng = np.random.default_rng(0)
    part, rate, Q = OwnPart(penalty, 0.7), 0.5, rng.standard_normal((5, 3))

    def objective(q, at):
        size = {"l1": np.abs(q).sum(), "l2": 0.5 * q @ q, "norm": np.linalg.norm(q)}[penalty]
        return rate * 0.7 * size + 0.5 * (q - at) @ (q - at)

    for found, at in zip(part.proximal(Q, rate), Q, strict=True):
        near = found + 0.01 * rng.standard_normal((200, 3))
        assert objective(found, at) <= min(objective(q, at) for q in near)


# ------------------------------------------------------------- propositions and theorems
@pytest.mark.parametrize("accelerated", [False, True])
def test_theorem_6_minimises_the_bounds(accelerated):
    """The bounds of theorems 2 to 5 as functions of alpha and Q, minimised numerically."""
    near = 2.0 if accelerated else 1.0  # (alpha / 2 - near)^2
    found = minimize_scalar(
        lambda a: -0.5 * math.log(2 * a + 1) - 2 * math.log(near - a / 2),
        bounds=(-0.49, 1.9),
        method="bounded",
        options={"xatol": 1e-9},
    ).x
    assert found == pytest.approx(best_allocation(accelerated, False), abs=1e-5)
    q0 = 0.8
    lead = math.sqrt(q0) if accelerated else q0
    found = minimize_scalar(
        lambda Q: -0.5 * math.log(1 - Q**2) - 2 * math.log(1 - lead / math.sqrt(Q)),
        bounds=(lead**2 + 1e-6, 1 - 1e-6),
        method="bounded",
        options={"xatol": 1e-9},
    ).x
    name, Q = best_allocation(accelerated, True, q0)
    assert name == "geometric" and found == pytest.approx(Q, abs=1e-5)


def test_acceleration_and_strong_convexity_raise_the_exponents():
    for pure in (False, True):
        exponents = {
            (a, s): bound_exponent(a, s, pure) for a in (False, True) for s in (False, True)
        }
        assert exponents[True, False] > exponents[False, False]
        assert exponents[True, True] > exponents[False, True] > exponents[False, False]
    assert bound_exponent(True, False, False) == 4 / 9


# ------------------------------------------------------------------------------- privacy
def composed(e, delta):
    """Equation 6."""
    e = np.asarray(e)
    drift = np.sum((np.exp(e) - 1) * e / (np.exp(e) + 1))
    squares = np.sum(e**2)
    return min(
        e.sum(),
        drift + math.sqrt(2 * squares * math.log(1 / delta)),
        drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / delta)),
    )


@pytest.mark.parametrize("allocation", [0.0, 0.4, ("geometric", 0.9)])
def test_budgets_of_the_rounds_compose_to_epsilon(allocation):
    plan = plan_of(T=40, allocation=allocation)
    assert composed(plan.budgets, plan.delta) == pytest.approx(1.0)
    t = np.arange(1, 41)
    shape = t**allocation if isinstance(allocation, float) else allocation[1] ** -t.astype(float)
    np.testing.assert_allclose(plan.budgets / plan.budgets[0], shape / shape[0])
    pure = plan_of(T=40, allocation=allocation, delta=0.0)
    assert sum(pure.budgets) == pytest.approx(1.0)
    assert sum(pure.budgets) < sum(plan.budgets)


def test_published_noise_has_the_printed_scale_and_no_guarantee():
    plan = plan_of(T=1, epsilon=0.5, delta=0.0)
    assert plan.mechanism(0).scale == K**2 / (2 * 0.5)
    report = plan.report(noise_source(0))
    assert report.guarantee == "none" and "positive semi-definite" in report.summary()
    assert report.notes["delta_lower_bound"] == pytest.approx(1 - math.exp(-0.5))


@pytest.mark.parametrize("mechanism", ["gaussian", "wishart"])
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_sensitivity_is_reached_and_not_passed(mechanism, adjacency):
    plan = plan_of(mechanism=mechanism, adjacency=adjacency)
    query = next(curator(plan))
    rng = np.random.default_rng(0)
    distances = []
    for extreme in (True, False):
        W = rng.standard_normal((M, D))
        other = W.copy()
        W[0], other[0] = 9 * np.eye(D)[0], 9 * np.eye(D)[1]
        if not extreme:
            W[0], other[0] = rng.standard_normal((2, D))
        if adjacency == "zero-out":
            other[0] = 0.0
        change = query.combine({"model": W})["moment"] - query.combine({"model": other})["moment"]
        distances.append(np.linalg.norm(change, "fro" if mechanism == "gaussian" else "nuc"))
    sensitivity = query.mechanisms["moment"].sensitivity
    assert distances[0] == pytest.approx(sensitivity, rel=1e-9)
    assert max(distances) <= sensitivity
    report = plan.report(noise_source(0))
    assert report.guarantee == "joint DP per task" and report.epsilon == 1.0


def test_noise_is_that_of_the_operating_system_by_default():
    A, b, task = long(*data())
    one, other = (PublishedMPMTL(tasks=range(M)).fit(A, b, task=task) for _ in range(2))
    assert one.privacy_.rng == SystemSource.description
    assert (one.coef_ != other.coef_).any()


def test_given_budgets_are_composed_in_the_report():
    A, b, task = long(*data())
    est = PublishedMPMTL(
        budgets=[0.1, 0.2, 0.4],
        n_rounds=3,
        mechanism="wishart",
        delta=0.01,
        tasks=range(M),
        epsilon=None,
        random_state=0,
    ).fit(A, b, task=task)
    assert est.privacy_.epsilon == pytest.approx(composed([0.1, 0.2, 0.4], 0.01))
    assert [entry["epsilon"] for entry in est.privacy_.releases] == [0.1, 0.2, 0.4]


# -------------------------------------------------------------------- output perturbation
def test_relationship_columns_are_the_minimum_over_both():
    """Optimality of the squared trace norm, and the best Omega for it."""
    rng = np.random.default_rng(0)
    W, ratio = rng.standard_normal((M, D)), 0.2
    V = relationship_columns(W, ratio)
    trace = np.linalg.norm(V, "nuc")
    G = (W - V) / (ratio * trace)
    assert np.linalg.norm(G, 2) <= 1 + 1e-12
    assert np.vdot(G, V) == pytest.approx(trace)
    U, s, _ = np.linalg.svd(V, full_matrices=False)
    omega = (U * s / s.sum()) @ U.T
    assert np.trace(V.T @ np.linalg.pinv(omega) @ V) == pytest.approx(trace**2)


def test_noise_on_models_follows_the_slopes_of_each_task():
    X, y = data()
    A, b, task = long(X, y)
    lam, epsilon, delta = 0.5, 2.0, 0.04
    exact = PublishedOutputNoise(lam=lam, epsilon=None, tasks=range(M)).fit(A, b, task=task)
    est = PublishedOutputNoise(lam=lam, epsilon=epsilon, delta=delta, tasks=range(M))
    noise = np.array(
        [
            clone(est).set_params(random_state=s).fit(A, b, task=task).coef_ - exact.coef_
            for s in range(400)
        ]
    )
    slope = estimated_lipschitz(list(zip(X, y, strict=True)), exact.coef_)
    scale = 2 * slope / (N * lam) / (epsilon / N)  # Proposition 3: epsilon / n for a record
    expected = D * scale  # mean of a Gamma(d) radius
    found = np.linalg.norm(noise, axis=2)
    error = (found.mean(axis=0) - expected) / (found.std(axis=0) / math.sqrt(400))
    assert np.abs(error).max() < 5
    report = clone(est).set_params(random_state=0).fit(A, b, task=task).privacy_
    assert report.guarantee == "none" and "Lipschitz" in report.summary()


def test_rounds_of_a_relationship_reach_its_optimum():
    """Objective of Zhang and Yeung: the gradient in every w_k is 0 at the fixed point."""
    X, y = data()
    A, b, task = long(X, y)
    lam, alpha = 0.3, 0.2
    W = (
        PublishedOutputNoise(lam=lam, alpha=alpha, epsilon=None, n_rounds=3000, tasks=range(M))
        .fit(A, b, task=task)
        .coef_
    )
    V = relationship_columns(W, alpha / lam)
    residual = np.einsum("knd,kd->kn", X, W) - y
    G = np.einsum("knd,kn->kd", X, residual) / N + lam * (W - V)
    np.testing.assert_allclose(G, 0.0, atol=1e-8)


def test_the_average_is_one_model_for_all_tasks():
    X, y = data()
    A, b, task = long(X, y)
    est = PublishedOutputNoise("dp-aggr", lam=0.5, epsilon=None, tasks=range(M)).fit(
        A, b, task=task
    )
    H = np.einsum("knd,kne->kde", X, X) / N + 0.5 * np.eye(D)
    alone = np.linalg.solve(H, np.einsum("knd,kn->kd", X, y)[..., None] / N)[..., 0]
    np.testing.assert_allclose(est.coef_, np.tile(alone.mean(axis=0), (M, 1)))


def test_clipped_models_move_a_release_by_what_is_stated():
    """Opposite targets of one task, with the same noise: the bound is reached and not passed."""
    X, y, task = make_low_rank_tasks(n_tasks=M, n_samples=N, n_features=D, random_state=0)
    for method, reach in (("dp-aggr", 2.0 * 0.7 / M), ("dp-mtrl", 2.0 * 0.7)):
        est = PublishedOutputNoise(
            method, lam=0.1, epsilon=2.0, delta=1e-3, clip_norm=0.7, tasks=range(M), random_state=0
        )
        sent = []
        for sign in (1.0, -1.0):
            far = np.where(task == 2, 1e3 * sign * X[:, 0], y)
            sent.append(est.fit(X, far, task=task).coef_)
        moved = np.linalg.norm(sent[0] - sent[1], axis=1)
        assert moved[2] == pytest.approx(reach, rel=1e-5) and moved.max() <= reach * (1 + 1e-5)
        assert method == "dp-aggr" or np.delete(moved, 2).max() == 0.0
        (release,) = est.privacy_.releases
        assert est.privacy_.guarantee == "task DP"
        assert release["sensitivity"] == pytest.approx(reach)
        assert release["noise_std"] == pytest.approx(reach / gdp_mu(2.0, 1e-3), rel=1e-6)


SOUND = {"epsilon": 5.0, "delta": 1e-3, "tasks": range(M)}


@pytest.mark.parametrize(
    "est",
    [
        PublishedOutputNoise("dp-mtrl", clip_norm=1.0, **SOUND),
        PublishedOutputNoise("dp-aggr", clip_norm=1.0, **SOUND),
        PublishedOutputNoiseClassifier("dp-mtrl", clip_norm=1.0, classes=[0, 1], **SOUND),
        PublishedMPMTL(mechanism="gaussian", **SOUND),
        PublishedMPMTL("group-sparse", mechanism="wishart", **SOUND),
        PublishedMPMTLClassifier(mechanism="gaussian", classes=[0, 1], **SOUND),
    ],
    ids=repr,
)
def test_rows_of_one_task_end_no_fit_with_a_guarantee(est):
    """A task far from the others has equal columns, and second moments without an inverse."""
    X, y, task = long(*data())
    odd = np.where((task == 2)[:, None], 1e9, X)
    y = (y > 0).astype(int) if hasattr(est, "classes") else y
    assert np.isfinite(clone(est).fit(odd, y, task=task).coef_).all()
    result = audit(est, (X, y, task), (odd, y, task), n_draws=0)
    assert result.passed, str(result)


# ---------------------------------------------------------------------------- estimators
@pytest.mark.parametrize("start", ["alone", "zeros", np.full((M, D), 0.2)])
def test_sparse_rows_give_the_models_of_dense_ones(start):
    A, b, task = long(*data())
    est = PublishedMPMTL(start=start, random_state=0, tasks=range(M))
    dense = clone(est).fit(A, b, task=task)
    found = clone(est).fit(sparse.csr_matrix(A), b, task=task)
    np.testing.assert_allclose(found.coef_, dense.coef_, atol=1e-12)
    np.testing.assert_allclose(
        found.predict(sparse.csr_matrix(A), task=task), dense.predict(A, task=task)
    )


@pytest.mark.parametrize(
    "est",
    [
        PublishedMPMTLClassifier(start="zeros", n_rounds=5, random_state=0),
        PublishedOutputNoiseClassifier("dp-aggr", random_state=0),
        PublishedOutputNoiseClassifier("dp-mtrl", epsilon=None),
    ],
)
def test_classes_follow_from_coefficients(est):
    A, b, task = long(*data())
    c = np.where(b > 0, "yes", "no")
    est = clone(est).set_params(tasks=range(M), classes=["no", "yes"]).fit(A, c, task=task)
    score = np.einsum("nd,nd->n", A, est.coef_[task])
    np.testing.assert_allclose(est.decision_function(A, task=task), score)
    np.testing.assert_allclose(est.predict_proba(A, task=task)[:, 1], expit(score))
    np.testing.assert_array_equal(est.predict(A, task=task), np.where(score > 0, "yes", "no"))


def test_listed_tasks_without_rows_send_a_zero_model():
    A, b, task = long(*data())
    est = PublishedMPMTL(epsilon=None, lam=0.01, tasks=range(M + 2)).fit(A, b, task=task)
    np.testing.assert_array_equal(est.coef_[M:], 0.0)
    same = PublishedMPMTL(epsilon=None, lam=0.01, tasks=range(M)).fit(A, b, task=task)
    np.testing.assert_array_equal(est.coef_[:M], same.coef_)


def test_rows_of_other_tasks_move_no_bit_of_a_step():
    X, y = data()
    others = [(X[1:], y[1:]), (np.tile(X[1:], (1, 3, 1)), np.tile(y[1:], (1, 3)))]
    P, found = 0.7 * np.eye(D), []
    for A, b in others:
        rows = [(X[0], y[0]), *zip(A, b, strict=True)]
        losses = MeanSquares(rows)
        tasks = ModelTasks(losses, np.ones((M, D)), K, own_rates(losses, 0.0), True)
        for _ in range(5):
            tasks.step(P)
        found.append(tasks.models()[0])
    np.testing.assert_array_equal(*found)


def test_steps_of_their_own_are_the_inverse_curvatures():
    X, y = data()
    tasks = list(zip(X, y, strict=True))
    expected = [N / np.linalg.norm(A, 2) ** 2 for A in X]
    np.testing.assert_allclose(own_rates(MeanSquares(tasks), 0.0)[:, 0], expected)
    np.testing.assert_allclose(own_rates(MeanLogistic(tasks), 0.0)[:, 0], 4 * np.array(expected))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"budgets": [0.1] * 20, "mechanism": "gaussian"}, "pure releases"),
        ({"mechanism": "gaussian", "delta": 0.0}, "delta=0"),
        ({"start": np.ones((2, 2))}, "start must be"),
        ({"learning_rate": 1e9, "epsilon": None}, "smaller learning_rate"),
    ],
)
def test_bad_parameters_leave_the_estimator_unfitted(parameters, message):
    A, b, task = long(*data())
    est = PublishedMPMTL(tasks=range(M), n_rounds=20, lam=0.0).set_params(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ValueError, match=message):
            est.fit(A, b, task=task)
    with pytest.raises(NotFittedError):
        est.predict(A, task=task)


def test_a_task_above_the_public_number_of_rows_is_an_error():
    A, b, task = long(*data())
    est = PublishedOutputNoise(max_task_rows=N - 1, tasks=range(M), delta=0.01)
    with pytest.raises(ValueError, match="larger bound"):
        est.fit(A, b, task=task)


# -------------------------------------------------------------------------------- survey
def test_surveys_are_coded_as_in_the_paper(tmp_path):
    pd = pytest.importorskip("pandas")
    nan = np.nan
    first = pd.DataFrame(
        {
            "id": [4, 1, 2, 9],
            "age": [70.0, nan, 80.0, 90.0],
            "walks": [1, 2, 2, 1],
            "cooks": [1.0, nan, 2.0, 1.0],
        }
    )
    second = pd.DataFrame({"id": [1, 2, 4], "bath": [2, 1, 2], "eats": [1.0, 2.0, nan]})
    first.to_csv(tmp_path / "wave2.csv", index=False)
    second.to_csv(tmp_path / "wave3.csv", index=False)
    X, Y, names = read_survey(
        tmp_path / "wave2.csv",
        tmp_path / "wave3.csv",
        id_column="id",
        features=["age", "walks", "cooks"],
        outcomes=["bath", "eats"],
        continuous=["age"],
    )
    assert names == ["age", "walks", "cooks=first answer", "cooks=second answer"]
    raw = np.array([[70.0, 0, 1, 0], [75.0, 1, 0, 0], [80.0, 1, 0, 1]])
    np.testing.assert_allclose(X, raw / np.linalg.norm(raw, axis=1, keepdims=True))
    np.testing.assert_array_equal(Y, [[1.0, nan], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="no columns"):
        read_survey(
            tmp_path / "wave2.csv",
            tmp_path / "wave3.csv",
            id_column="id",
            features=["x"],
            outcomes=["bath"],
        )
    with pytest.raises(ValueError, match="more than two answers"):
        survey_design(first[["age"]])
