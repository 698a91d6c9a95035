"""Algorithm 1 of Hu, Wu and Smith and its competitors, against plain iterations and theorems."""

import math
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.special import rel_entr, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skpmtl.privacy import LittleFoundWarning, PrivacyLeakWarning, audit, gdp_epsilon
from skpmtl.reproduction.pmtl import (
    PMTLPlan,
    PublishedPMTL,
    PublishedPMTLClassifier,
    PublishedPMTLTorchClassifier,
    theorem_1_noise_std,
)
from skpmtl.reproduction.pmtl.estimators import BiasedMeanWarning
from skpmtl.reproduction.pmtl.models import Task, linear_model
from skpmtl.reproduction.pmtl.outputs import Classes, Numbers, TwoClasses
from skpmtl.reproduction.pmtl.plan import FixedRelation
from skpmtl.reproduction.pmtl.rounds import (
    METHODS,
    GradientSteps,
    LocalTasks,
    curator,
    finetuned,
    kept_models,
)

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.privacy.PrivacyLeakWarning")
M, N, D = 8, 12, 3
SHARING = [name for name in METHODS if METHODS[name].sends != "nothing"]


def data(seed=0, m=M, n=N, d=D):
    rng = np.random.default_rng(seed)
    W = 1.0 + 0.5 * rng.standard_normal((m, d))
    X = rng.standard_normal((m, n, d)) / math.sqrt(d)
    y = np.einsum("knd,kd->kn", X, W) + 0.1 * rng.standard_normal((m, n))
    return X, y


def long(X, y):
    return X.reshape(-1, X.shape[2]), y.ravel(), np.repeat(np.arange(len(X)), X.shape[1])


def plan_of(method, *, q=M, m=M, T=4, clip=0.3, z=1.0, adjacency="replace-one"):
    return PMTLPlan(method, m, q, T, clip, None, 0.01, z, adjacency)


def local_tasks(method, X, y, steps, loss="mean"):
    tasks = [Task(A, b[:, None]) for A, b in zip(X, y, strict=True)]
    model = linear_model(tasks, 1, fit_intercept=False, loss=loss)
    return LocalTasks(METHODS[method], model, Numbers(), steps, np.random.default_rng(0))


def without_noise(plan, tasks, drawn):
    """The queries of the curator answered, clipped and divided, but not noised."""
    rounds, reply, drawn = curator(plan, np.zeros(tasks.model.size)), None, iter(drawn)
    while True:
        try:
            step = rounds.send(reply)
        except StopIteration as end:
            return end.value[0]
        if hasattr(step, "draw"):
            reply = {"drawn": next(drawn)}
        else:
            reply = {"update": tasks.answer(step)["update"] / step.divide}


def iteration(method, X, y, drawn, *, lam, eta, E, clip, divide):
    """Algorithm 1, and what the other methods change in it, one task at a time."""
    m, d = len(X), X[0].shape[1]
    w, theta, shared = np.zeros((m, d)), np.zeros((m, d)), np.zeros(d)
    for S in drawn:
        total = np.zeros(d)
        for k in S:
            v = w[k] if method in ("algorithm-1", "unbiased", "stateful") else shared
            old = v.copy()
            for _ in range(E):
                at = v + theta[k] if method == "ppsgd" else v
                g = X[k].T @ (X[k] @ at - y[k]) / len(y[k])
                if method == "ppsgd":
                    v, theta[k] = v - eta * g, theta[k] - eta * (g + lam * theta[k])
                else:
                    pull = 0.0 if method == "fedavg" else lam
                    v = v - eta * (g + pull * (v - shared))
            sent = v - shared if method == "stateful" else v - old
            w[k] = v
            total += sent * min(1.0, clip / np.linalg.norm(sent))
        shared = shared + total / divide
    if method == "ppsgd":
        return shared, shared + theta
    return shared, np.tile(shared, (m, 1)) if method in ("fedavg", "fedprox") else w


# ------------------------------------------------------------------------------- the rounds
@pytest.mark.parametrize("q", [M, 3])
@pytest.mark.parametrize("method", [name for name in SHARING if name != "concatenated"])
def test_rounds_are_the_iteration_of_the_paper(method, q):
    X, y = data()
    rng = np.random.default_rng(1)
    drawn = [np.sort(rng.permutation(M)[:q]) for _ in range(4)]
    tasks = local_tasks(method, X, y, GradientSteps(5, 0.4, 0.7))
    shared = without_noise(plan_of(method, q=q), tasks, drawn)
    divide = M if method == "unbiased" else q
    expected = iteration(method, X, y, drawn, lam=0.7, eta=0.4, E=5, clip=0.3, divide=divide)
    np.testing.assert_allclose(shared, expected[0], atol=1e-12)
    np.testing.assert_allclose(tasks.results(shared), expected[1], atol=1e-12)


def test_sum_of_losses_is_rows_times_their_mean():
    X, y = data()
    steps = {"mean": GradientSteps(3, 0.01 * N, 0.2 / N), "sum": GradientSteps(3, 0.01, 0.2)}
    found = [
        without_noise(plan_of("algorithm-1"), local_tasks("algorithm-1", X, y, steps[how], how), [])
        for how in steps
    ]
    np.testing.assert_allclose(*found, atol=1e-12)


@pytest.mark.parametrize("E", [1, 5, 20])
def test_without_noise_rounds_reach_the_optimum_of_equation_2(E):
    """Theorem 5 and Corollary 8 allow a neighbourhood of it."""
    X, y = data()
    lam = 0.5
    A = np.einsum("knd,kne->kde", X, X) / N
    b = np.einsum("knd,kn->kd", X, y) / N
    # (A_k + lam) w_k = b_k + lam mean(w)
    R = np.linalg.inv(A + lam * np.eye(D))
    mean = np.linalg.solve(np.eye(D) - lam * R.mean(axis=0), np.einsum("kde,ke->d", R, b) / M)
    W = np.einsum("kde,ke->kd", R, b + lam * mean)
    tasks = local_tasks("algorithm-1", X, y, GradientSteps(E, 0.8, lam))
    shared = without_noise(plan_of("algorithm-1", T=1500 // E + 100, clip=1e9), tasks, [])
    np.testing.assert_allclose(tasks.own, W, atol=1e-8)
    gap = tasks.objective(tasks.own, shared) - tasks.objective(W, mean)
    assert abs(gap.mean()) < 1e-10


# ------------------------------------------------------------------------------------ privacy
@pytest.mark.parametrize("q", [M, 3])
@pytest.mark.parametrize("method", SHARING)
def test_sensitivity_is_reached_and_not_passed(method, q):
    q = M if METHODS[method].parts else q
    plan = plan_of(method, q=q, clip=0.3)
    rounds = curator(plan, np.zeros(D))
    step = next(rounds)
    if hasattr(step, "draw"):
        step = rounds.send({"drawn": np.arange(q)})
    rng = np.random.default_rng(0)
    sent = 1e3 * rng.standard_normal((q, D))
    distances = []
    for replaced in (-sent[1], 1e-3 * sent[1], rng.standard_normal(D), np.full(D, np.nan)):
        other = sent.copy()
        other[1] = replaced
        sums = [step.combine({"update": v})["update"] for v in (sent, other)]
        distances.append(np.linalg.norm(sums[0] - sums[1]) / step.divide)
    reached = max(distances)
    sensitivity = step.mechanisms["update"].sensitivity
    assert reached == pytest.approx(sensitivity, rel=1e-9)
    assert sensitivity == pytest.approx(2 * 0.3 / plan.denominator)


def test_noise_of_a_release_is_sigma_of_the_paper():
    d, m = 4000, 3
    X, y = np.zeros((m, 2, d)), np.zeros((m, 2))
    est = PublishedPMTL(
        epsilon=None,
        noise_multiplier=5.0,
        clip_norm=0.2,
        n_rounds=1,
        fit_intercept=False,
        tasks=range(m),
        random_state=0,
        delta=0.01,
    ).fit(*long(X, y)[:2], task=long(X, y)[2])
    sigma = 5.0 * 0.2 / m
    assert np.std(est.billboard_.shared) == pytest.approx(sigma, rel=5 / math.sqrt(2 * d))
    assert est.history()[0]["noise_std"] == pytest.approx(sigma)


@pytest.mark.parametrize("q", [None, 3])
def test_noise_for_a_budget_gives_that_budget(q):
    q = M if q is None else q
    for adjacency in ("replace-one", "zero-out"):
        noise = PMTLPlan("stateful", M, q, 7, 1.0, 2.0, 0.01, None, adjacency).noise_multiplier
        plan = PMTLPlan("stateful", M, q, 7, 1.0, None, 0.01, noise, adjacency)
        assert plan.epsilon == pytest.approx(2.0, rel=1e-6)
        spent = [plan.epsilon_after(t) for t in range(1, 8)]
        assert np.all(np.diff(spent) > 0) and spent[-1] == plan.epsilon
    one = PMTLPlan("stateful", M, q, 7, 1.0, 2.0, 0.01, None, "zero-out").noise_multiplier
    both = PMTLPlan("stateful", M, q, 7, 1.0, 2.0, 0.01, None, "replace-one").noise_multiplier
    assert both == pytest.approx(2 * one, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_sigma_of_theorem_1_suffices_for_its_budget(epsilon):
    for m in (10, 205, 515):
        for T in (1, 100):
            delta = 1.0 / m
            sigma = theorem_1_noise_std(0.5, T, m, epsilon, delta)
            mu = math.sqrt(T) * (2 * 0.5 / m) / sigma  # replace-one
            assert gdp_epsilon(mu, delta) < epsilon <= 2 * math.log(1 / delta)


def test_reports_state_what_is_private_and_what_is_not():
    X, y, task = long(*data())
    est = PublishedPMTL(epsilon=2.0, tasks=range(M), random_state=0, n_rounds=3)
    report = est.fit(X, y, task=task).privacy_
    assert report.guarantee == "joint DP per task" and report.adjacency == "replace-one"
    assert (report.epsilon, report.delta) == (pytest.approx(2.0), 1 / M)
    assert len(report.releases) == 3
    est.set_params(method="concatenated").fit(X, y, task=task)
    assert est.privacy_.guarantee == "task DP"
    assert "its own model only" not in est.privacy_.text(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LittleFoundWarning)  # nothing was to be found
        assert est.set_params(method="local").fit(X, y, task=task).privacy_.epsilon == 0.0
    est.set_params(method="stateful", epsilon=None).fit(X, y, task=task)
    assert est.privacy_.guarantee == "none" and est.history()[0]["epsilon"] is None


@pytest.mark.parametrize("method", SHARING)
def test_a_task_moves_others_by_what_is_released_alone(method):
    """Two data sets that differ in one task, and one list of releases for both."""
    X, y = data()
    other = y.copy()
    other[0] += 5.0
    plan, found = plan_of(method), []
    releases = np.random.default_rng(5).standard_normal((4, M * D if METHODS[method].parts else D))
    for targets in (y, other):
        tasks, rounds, reply = (
            local_tasks(method, X, targets, GradientSteps(3, 0.4, 0.5)),
            None,
            None,
        )
        rounds = curator(plan, np.zeros(D))
        for t in range(4):
            query = rounds.send(reply)
            tasks.answer(query)
            reply = {"update": releases[t]}
        with pytest.raises(StopIteration) as end:
            rounds.send(reply)
        found.append(tasks.results(end.value.value[0]))
    np.testing.assert_array_equal(found[0][1:], found[1][1:])
    alone = METHODS[method].own and not METHODS[method].parts or METHODS[method].split
    assert (found[0][0] != found[1][0]).any() == alone


# ------------------------------------------------------------------------- fixed relations
def ring(m=M):
    """A quarter of the Laplacian of a ring: every task lies between its two neighbours."""
    step = np.roll(np.eye(m), 1, axis=1)
    return (2.0 * np.eye(m) - step - step.T) / 4.0


def test_the_mean_relation_is_algorithm_1():
    X, y, task = long(*data())
    est = PublishedPMTL(epsilon=None, tasks=range(M), n_rounds=6).fit(X, y, task=task)
    omega = np.eye(M) - 1.0 / M
    other = clone(est).set_params(relation=omega).fit(X, y, task=task)
    np.testing.assert_allclose(other.task_models_, est.task_models_, atol=1e-12)
    plans = [
        PMTLPlan("algorithm-1", M, M, 6, 0.3, 2.0, 0.01, None, "replace-one", r)
        for r in (None, FixedRelation(omega, M))
    ]
    noise = plans[1].noise_std * np.linalg.norm(plans[1].relation.out, axis=1)
    np.testing.assert_allclose(noise, plans[0].noise_std, rtol=1e-9)


def test_rounds_with_a_relation_reach_the_optimum_of_equation_1():
    X, y = data()
    lam, A = 0.5, np.einsum("knd,kne->kde", X, X) / N
    b = np.einsum("knd,kn->kd", X, y) / N
    system = lam * np.kron(ring(), np.eye(D))
    for k in range(M):
        system[k * D : (k + 1) * D, k * D : (k + 1) * D] += A[k]
    expected = np.linalg.solve(system, b.ravel()).reshape(M, D)
    A, targets, task = long(X, y)
    est = PublishedPMTL(
        lam=lam,
        epsilon=None,
        relation=ring(),
        n_rounds=400,
        learning_rate=0.8,
        tasks=range(M),
        fit_intercept=False,
    ).fit(A, targets, task=task)
    np.testing.assert_allclose(est.coef_, expected, atol=1e-8)


def test_sensitivity_with_a_relation_is_reached_and_not_passed():
    omega = ring()
    omega[0, 0] += 0.3  # one task counts more than others
    plan = PMTLPlan(
        "algorithm-1", M, M, 3, 0.3, 2.0, 0.01, None, "replace-one", FixedRelation(omega, M)
    )
    step = next(curator(plan, np.zeros(D)))
    distances = []
    for k in range(M):
        sent = np.ones((M, D))
        sums = []
        for sign in (1.0, -1.0):
            sent[k] = sign
            sums.append(step.combine({"update": sent.copy()})["update"])
        distances.append(np.linalg.norm(sums[0] - sums[1]) / step.divide)
    assert max(distances) == pytest.approx(step.mechanisms["update"].sensitivity, rel=1e-9)
    assert min(distances) < 0.999 * max(distances)
    assert plan.epsilon == pytest.approx(2.0)


# ------------------------------------------------------------------------- personalisation
def test_slopes_of_divergences_are_those_of_differences():
    rng = np.random.default_rng(0)
    s, s0, h = rng.standard_normal((1, 1, 3)), rng.standard_normal((1, 1, 3)), 1e-6

    def both(s):
        p, r = softmax(s, axis=-1), softmax(s0, axis=-1)
        return rel_entr(p, r).sum() + rel_entr(r, p).sum()

    slope = [(both(s + h * e) - both(s - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(Classes().divergence_slope(s, s0)[0, 0], slope, atol=1e-8)
    # Two classes are the softmax of (0, s).
    pair = [np.concatenate([np.zeros((1, 1, 1)), v[..., :1]], axis=-1) for v in (s, s0)]
    two = TwoClasses().divergence_slope(s[..., :1], s0[..., :1])
    np.testing.assert_allclose(two[..., 0], Classes().divergence_slope(*pair)[..., 1])


def test_finetuning_reaches_the_optimum_of_each_penalty():
    X, y = data()
    tasks = local_tasks("fedavg", X, y, GradientSteps(1, 0.1, 1.0))
    shared, lam = np.full(D, 0.3), 0.4
    A = np.einsum("knd,kne->kde", X, X) / N
    b = np.einsum("knd,kn->kd", X, y) / N
    residual = y - X @ shared
    fisher = np.einsum("knd,kn->kd", X**2, residual**2) / N
    for how, weight in (
        ("finetune", np.zeros((M, D))),
        ("mean-reg", np.ones((M, D))),
        ("ewc", fisher),
    ):
        F = lam * np.einsum("kd,de->kde", weight, np.eye(D))
        expected = np.linalg.solve(A + F, (b + F @ shared)[..., None])[..., 0]
        W = finetuned(tasks, np.zeros((M, D)), shared, how, GradientSteps(4000, 0.8, lam))
        np.testing.assert_allclose(W, expected, atol=1e-7, err_msg=how)


def test_a_strong_divergence_keeps_the_shared_predictions():
    X, y = data()
    A, c, task = long(X, (y > y.mean()).astype(int))
    est = PublishedPMTLClassifier(
        "fedavg", epsilon=None, personalization="symmetrized-kl", tasks=range(M), classes=[0, 1]
    )
    distance = []
    for lam in (0.0, 5.0):
        est.set_params(personal_lam=lam).fit(A, c, task=task)
        distance.append(np.linalg.norm(est.task_models_ - est.billboard_.shared))
    assert 0 < distance[1] < 0.5 * distance[0]


# ------------------------------------------------------------------------------ estimators
@pytest.mark.parametrize("method", ["algorithm-1", "fedavg", "ppsgd", "concatenated"])
@pytest.mark.parametrize("personalization", ["none", "ewc"])
def test_sparse_rows_give_the_models_of_dense_ones(method, personalization):
    X, y, task = long(*data())
    y = np.digitize(y, [-0.3, 0.3])
    est = PublishedPMTLClassifier(
        method,
        tasks=range(M),
        classes=[0, 1, 2],
        random_state=0,
        n_rounds=3,
        batch_size=None,
        n_sampled=None if method == "concatenated" else 5,
        personalization=personalization,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiasedMeanWarning)
        dense = clone(est).fit(X, y, task=task)
        found = clone(est).fit(sparse.csr_matrix(X), y, task=task)
    np.testing.assert_allclose(found.coef_, dense.coef_, atol=1e-10)
    np.testing.assert_array_equal(
        found.predict(sparse.csr_matrix(X), task=task), dense.predict(X, task=task)
    )


def test_models_beyond_a_gibibyte_lie_in_a_file():
    W = kept_models(3, 2**26)
    assert isinstance(W, np.memmap)
    W[1, -2:] = 1.0
    np.testing.assert_array_equal(W[:, -3:], [[0, 0, 0], [0, 1, 1], [0, 0, 0]])


def test_tasks_of_other_lengths_move_no_bit():
    X, y = data()
    tasks = [Task(A[: n + 1], b[: n + 1, None]) for A, b, n in zip(X, y, range(M), strict=True)]
    found = []
    for others in (tasks[1:], [Task(np.tile(A, (9, 1)), np.tile(b, (9, 1))) for A, b in tasks[1:]]):
        model = linear_model([tasks[0], *others], 1, fit_intercept=False)
        side = LocalTasks(METHODS["stateful"], model, Numbers(), GradientSteps(5, 0.4, 0.5), None)
        side.take_part(np.arange(M), np.full(D, 0.3))
        found.append(side.own)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    rows = [A for A, _ in tasks], [b[:, 0] for _, b in tasks], [range(M)]
    w = iteration("stateful", *rows, lam=0.5, eta=0.4, E=5, clip=1e9, divide=M)[1]
    model = linear_model(tasks, 1, fit_intercept=False)
    side = LocalTasks(METHODS["stateful"], model, Numbers(), GradientSteps(5, 0.4, 0.5), None)
    side.take_part(np.arange(M), np.zeros(D))
    np.testing.assert_allclose(side.own, w, atol=1e-12)


def test_batches_of_rows_are_gradients_on_average():
    X, y = data()
    tasks = local_tasks("fedavg", X, y, GradientSteps(1, 0.1, 0.0, batch_size=4))
    full = local_tasks("fedavg", X, y, GradientSteps(1, 0.1, 0.0))
    k, w = np.arange(M), np.full((M, D), 0.2)
    draws = np.array([tasks.gradient(k, w) for _ in range(3000)])
    error = draws.mean(axis=0) - full.gradient(k, w)
    assert np.abs(error / (draws.std(axis=0) / math.sqrt(3000))).max() < 5


def test_listed_tasks_without_rows_keep_the_shared_model():
    X, y, task = long(*data())
    est = PublishedPMTL("fedavg", epsilon=None, tasks=range(M + 2)).fit(X, y, task=task)
    np.testing.assert_array_equal(est.task_models_[-1], est.billboard_.shared)
    small = PublishedPMTL("fedavg", epsilon=None, tasks=range(M)).fit(X, y, task=task)
    assert not np.allclose(est.billboard_.shared, small.billboard_.shared)  # m is public


def test_algorithm_1_with_few_tasks_in_a_round_warns():
    X, y, task = long(*data())
    est = PublishedPMTL(epsilon=2.0, n_sampled=2, tasks=range(M), random_state=0)
    with pytest.warns(BiasedMeanWarning, match="4 times the mean"):
        est.fit(X, y, task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BiasedMeanWarning)
        est.set_params(method="unbiased").fit(X, y, task=task)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise_multiplier": 1.0}, "epsilon=None"),
        ({"method": "concatenated", "n_sampled": 2}, "n_sampled=None"),
        ({"personalization": "symmetrized-kl"}, "mean-reg"),
        ({"relation": np.eye(M)}, "local"),
        ({"relation": np.ones((2, 2))}, "symmetric matrix"),
        ({"relation": np.ones((M, M)), "n_sampled": 2}, "relation=None"),
        ({"epsilon": None, "learning_rate": 1e9, "n_rounds": 99}, "smaller learning_rate"),
    ],
)
def test_faults_state_the_remedy_and_leave_no_fit(parameters, message):
    X, y, task = long(*data())
    est = PublishedPMTL(tasks=range(M), random_state=0, **parameters)
    with pytest.raises(ValueError, match=message):
        est.fit(X, y, task=task)
    with pytest.raises(NotFittedError):
        est.predict(X, task=task)


@pytest.mark.parametrize("personalization", ["none", "finetune"])
@pytest.mark.parametrize("method", SHARING)
def test_rows_that_overflow_end_no_private_fit(method, personalization):
    """Others get the same whichever they are: the task sends zeros, and keeps a finite model."""
    X, y, task = long(*data())
    est = PublishedPMTL(
        method=method, tasks=range(M), personalization=personalization, random_state=0
    )
    found = []
    for scale in (1.0, 1e160, -1e300):
        odd = np.where((task == 0)[:, None], scale * X, X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BiasedMeanWarning)
            found.append(clone(est).fit(odd, y, task=task).task_models_)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[1][1:], found[2][1:])
    assert (found[0][1:] != found[1][1:]).any()


@pytest.mark.filterwarnings("ignore::skpmtl.reproduction.pmtl.estimators.BiasedMeanWarning")
def test_private_rounds_are_audited():
    X, y, task = long(*data())
    odd = np.where((task == 0)[:, None], -1e160, X)
    result = audit(PublishedPMTL(tasks=range(M)), (X, y, task), (odd, y, task), n_draws=0)
    assert result.passed, str(result)


def test_a_monitor_sees_losses_fall_over_rounds():
    X, y, task = long(*data())
    losses = []
    PublishedPMTL(
        epsilon=None,
        tasks=range(M),
        n_rounds=10,
        monitor=lambda t, tasks, shared: losses.append(tasks.losses(tasks.results(shared)).mean()),
    ).fit(X, y, task=task)
    assert len(losses) == 10 and np.all(np.diff(losses) < 0)


def test_tasks_taken_from_rows_are_stated_as_disclosed():
    X, y, task = long(*data())
    with pytest.warns(PrivacyLeakWarning, match="tasks"):
        est = PublishedPMTL(random_state=0).fit(X, y, task=task)
    assert "disclosed" in est.privacy_.text(None)


# ----------------------------------------------------------------------------------- torch
@pytest.mark.parametrize("method", ["algorithm-1", "fedprox", "concatenated"])
@pytest.mark.parametrize("personalization", ["symmetrized-kl", "ewc"])
def test_a_linear_module_gives_the_linear_models(method, personalization):
    torch = pytest.importorskip("torch")
    X, y, task = long(*data())
    y = np.digitize(y, [-0.3, 0.3])

    def module():
        layer = torch.nn.Linear(D, 3)
        for p in layer.parameters():
            torch.nn.init.zeros_(p)
        return layer

    options = {
        "tasks": range(M),
        "classes": [0, 1, 2],
        "n_rounds": 3,
        "lam": 0.3,
        "epsilon": None,
        "personalization": personalization,
    }
    linear = PublishedPMTLClassifier(method, **options).fit(X, y, task=task)
    found = PublishedPMTLTorchClassifier(module, method, **options).fit(X, y, task=task)
    score = found.decision_function(X, task=task)
    np.testing.assert_allclose(score, linear.decision_function(X, task=task), atol=1e-4)


def test_modules_with_buffers_are_refused():
    torch = pytest.importorskip("torch")
    X, y, task = long(*data())

    def module():
        return torch.nn.Sequential(torch.nn.BatchNorm1d(D), torch.nn.Linear(D, 1))

    est = PublishedPMTLTorchClassifier(module, tasks=range(M), classes=[0, 1], random_state=0)
    with pytest.raises(ValueError, match="GroupNorm"):
        est.fit(X, y > 0, task=task)
