"""Private meta-learning as published: the box, its privacy, and properties of its theorems."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

from skpmtl.privacy.accounting import gdp_delta, gdp_epsilon, gdp_mu
from skpmtl.reproduction.meta import (
    PublishedMetaInit,
    PublishedMetaInitClassifier,
    noisy_sgd_settings,
    replacement_delta,
)
from skpmtl.reproduction.meta.models import GeneralizedLinear

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def tasks(m=3, n=6, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n, d)) / math.sqrt(d)
    W = 1.0 + 0.3 * rng.normal(size=(m, d))
    y = np.einsum("knd,kd->kn", X, W) + 0.1 * rng.normal(size=(m, n))
    return X, y


def fitted(est, X, y):
    m, n, d = X.shape
    if isinstance(est.tasks, str):
        est.set_params(tasks=range(m))
    return est.fit(X.reshape(-1, d), y.ravel(), task=np.repeat(np.arange(m), n))


def descent_by_hand(X, y, w, steps, rate, radius=math.inf):
    iterates = []
    for _ in range(steps):
        w = w - rate * X.T @ (X @ w - y) / len(y)
        w = w * min(1.0, radius / np.linalg.norm(w))
        iterates.append(w)
    return np.mean(iterates, axis=0)


# ------------------------------------------------------------------------------ the box
@pytest.mark.parametrize("radius", [math.inf, 0.7])
def test_algorithm_1_is_a_reference_iteration(radius):
    X, y = tasks()
    est = PublishedMetaInit(
        epsilon=None,
        inner_steps=4,
        inner_learning_rate=0.7,
        diameter=None if radius == math.inf else 2 * radius,
        fit_intercept=False,
        random_state=0,
    )
    fitted(est, X, y)
    paths = []
    for order in itertools.permutations(range(3)):  # one of these is the public order
        path, sent = [np.zeros(2)], []
        for k in order:
            sent.append(descent_by_hand(X[k], y[k], path[-1], 4, 0.7, radius))
            path.append(np.mean(sent, axis=0))  # minimises the sum of 1/2 |theta^ - phi|^2
        paths.append(np.array(path))
    right = [path for path in paths if np.allclose(path, est.init_path_, rtol=0, atol=1e-12)]
    assert len(right) == 1
    np.testing.assert_allclose(est.init_coef_, right[0][:3].mean(axis=0), rtol=1e-12)


def test_new_tasks_average_their_online_descent():
    X, y = tasks()
    est = fitted(
        PublishedMetaInit(
            epsilon=None, fit_intercept=False, random_state=0, refine_learning_rate=0.4
        ),
        X,
        y,
    )
    theta, thetas = est.init_coef_, []
    for x, target in zip(X[0], y[0], strict=True):
        thetas.append(theta)
        theta = theta - 0.4 * (x @ theta - target) * x
    est.personalize(X[0], y[0], task=np.full(6, 9))
    np.testing.assert_allclose(est.task_models_[-1], np.mean(thetas, axis=0), rtol=1e-12)
    np.testing.assert_allclose(est.predict(X[0], task=np.full(6, 9)), X[0] @ est.task_models_[-1])


def test_leader_and_adaptive_descent_are_the_same_on_squares():
    X, y = tasks(5)
    paths = [
        fitted(
            PublishedMetaInit(
                epsilon=3.0, delta=1e-3, meta_step=step, tasks_per_round=2, random_state=0
            ),
            X,
            y,
        ).init_path_
        for step in ("ftl", "aogd")
    ]
    np.testing.assert_allclose(*paths, rtol=1e-9, atol=1e-9)


def test_reptile_moves_a_decaying_part_of_the_way():
    X, y = tasks()
    X[:], y[:] = X[0], y[0]  # all tasks send the same from the same initialisation
    est = PublishedMetaInit(
        epsilon=None,
        fit_intercept=False,
        inner_steps=1,
        random_state=0,
        inner_learning_rate=0.5,
        meta_step="reptile",
        meta_learning_rate=0.8,
        meta_decay=0.5,
        iterate="last",
    )
    fitted(est, X, y)
    phi = np.zeros(2)
    for rate in (0.8, 0.4, 0.2):
        phi = phi + rate * (descent_by_hand(X[0], y[0], phi, 1, 0.5) - phi)
    np.testing.assert_allclose(est.init_coef_, phi, rtol=1e-12)


def test_iterates_stay_in_the_ball_around_a_public_start():
    X, y = tasks()
    start = np.array([0.5, -0.5])
    est = PublishedMetaInit(
        epsilon=0.1,
        delta=1e-3,
        diameter=0.6,
        init=start,
        random_state=0,
        inner_iterate="last",
        meta_step="reptile",
        fit_intercept=False,
    )
    fitted(est, X, y)
    np.testing.assert_array_equal(est.init_path_[0], start)
    ways = np.linalg.norm(np.vstack([est.init_path_, est.task_models_]) - start, axis=1)
    assert ways.max() <= 0.3 * (1 + 1e-12) and (ways > 0.29).any()


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_gradients_are_those_of_the_losses(n_classes):
    rng = np.random.default_rng(0)
    model = GeneralizedLinear(3, n_classes, True)
    X, w = rng.normal(size=(5, 3)), rng.normal(size=model.size)
    y = {0: rng.normal(size=5), 2: np.array([1.0, -1, 1, 1, -1])}.get(n_classes, np.arange(5) % 4)
    h = 1e-6 * np.eye(model.size)
    slopes = [(model.losses(w + e, X, y) - model.losses(w - e, X, y)) / 2e-6 for e in h]
    np.testing.assert_allclose(model.gradients(w, X, y), np.transpose(slopes), atol=1e-7)
    np.testing.assert_allclose(model.gradient(w, X, y), np.mean(slopes, axis=1), atol=1e-7)


# ------------------------------------------------------------------------------ privacy
def sent_by(y, **settings):
    """What a task of records (1, y_i) sends in one step of length 1 from 0."""
    est = PublishedMetaInit(
        epsilon=1.0,
        delta=1e-3,
        inner_steps=1,
        inner_learning_rate=1.0,
        fit_intercept=False,
        random_state=0,
        tasks=[0],
        **settings,
    )
    est.fit(np.ones((len(y), 1)), y, task=np.zeros(len(y), dtype=int))
    return est.init_path_[-1, 0], est


@pytest.mark.parametrize(
    ("adjacency", "other", "reach"), [("replace-one", -9.0, 2.0), ("zero-out", 0.0, 1.0)]
)
def test_one_record_moves_a_sum_by_the_sensitivity(adjacency, other, reach):
    y = np.array([9.0, 0.2, -0.3])
    near = np.array([other, 0.2, -0.3])
    found = [sent_by(v, adjacency=adjacency, clip_norm=0.5) for v in (y, near)]
    moved = 3 * abs(found[0][0] - found[1][0])  # the same noise, by the seed
    assert moved == pytest.approx(reach * 0.5, rel=1e-5) and moved <= reach * 0.5
    assert set(found[0][1].privacy_.sensitivity) == {reach * 0.5}


def test_local_privacy_covers_any_two_updates():
    found = [sent_by(np.full(3, v), privacy="local", clip_norm=0.5) for v in (9.0, -9.0)]
    assert abs(found[0][0] - found[1][0]) == pytest.approx(1.0, rel=1e-5)
    assert found[0][1].privacy_.unit == "task"


@pytest.mark.parametrize(
    ("settings", "mu_of_z"),
    [
        ({"visits": 2}, math.sqrt(10)),
        ({"visits": 2, "group_size": 3}, 3 * math.sqrt(10)),
        ({"visits": 2, "privacy": "local"}, math.sqrt(2)),
    ],
)
def test_noise_spends_the_budget(settings, mu_of_z):
    X, y = tasks()
    est = PublishedMetaInit(epsilon=2.0, delta=1e-3, inner_steps=5, random_state=0, **settings)
    z = fitted(est, X, y).privacy_.releases[0]["noise_multiplier"]
    assert 2.0 * mu_of_z / z == pytest.approx(gdp_mu(2.0, 1e-3), rel=1e-9)


def test_noise_has_the_deviation_of_the_report():
    d = 4000
    est = PublishedMetaInit(
        epsilon=1.0,
        delta=1e-3,
        inner_steps=1,
        inner_learning_rate=1.0,
        fit_intercept=False,
        random_state=0,
        tasks=[0],
    )
    est.fit(np.zeros((4, d)), np.zeros(4), task=np.zeros(4, dtype=int))
    square = np.sum((4 * est.init_path_[-1] / est.privacy_.noise_std[0]) ** 2)
    assert chi2.ppf(1e-6, d) < square < chi2.isf(1e-6, d)


def test_delta_of_batches_with_replacement_is_a_mean_over_draws():
    """Two steps of two draws from three records, 81 in all; the copies of one are counted."""
    total = 0.0
    for draws in itertools.product(range(3), repeat=4):
        J = (draws[:2].count(0)) ** 2 + (draws[2:].count(0)) ** 2
        total += float(gdp_delta(2 * math.sqrt(J) / 1.7, 0.8)) / 81 if J else 0.0
    assert replacement_delta(1.7, 3, 2, 2, 0.8, "replace-one") == pytest.approx(total, rel=1e-9)


def test_noise_for_batches_with_replacement_keeps_delta():
    X, y = tasks(2, 20)
    est = PublishedMetaInit(epsilon=2.0, delta=1e-3, batch_size=5, inner_steps=6, random_state=0)
    z = fitted(est, X, y).privacy_.releases[0]["noise_multiplier"]
    delta = replacement_delta(z, 20, 5, 6, 2.0, "replace-one")
    assert 0.999e-3 < delta <= 1e-3


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 9.2])
@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_settings_of_noisy_sgd_imply_the_bound_of_lemma_b2(size, epsilon):
    M, L, log = 2.0, 3.0, np.log(1e3)
    for n in np.unique(np.geomspace(50, 1e6, 400).astype(int)):
        least = min(n / 8, (epsilon * n) ** 2 / (32 * size * log))
        if least < 1:
            continue  # one step is taken in place of none
        T, eta, batch, z = noisy_sgd_settings(n, size, epsilon, 1e-3, M, L)
        noise = size * (z * L / batch) ** 2
        risk = M**2 / (2 * eta * T) + eta * (L**2 + noise) / 2 + eta * L**2 * T / n
        rate = max(np.sqrt(size * log) / (epsilon * n), n**-0.5)
        assert risk <= 9.4 * M * L * rate


def test_the_descent_of_bassily_states_what_it_certainly_keeps():
    X, y = tasks(2, 200)
    est = PublishedMetaInit(
        epsilon=1.0, delta=1e-3, descent="bassily", diameter=4.0, random_state=0
    )
    report = fitted(est, X, y).privacy_
    steps, rate, batch, z = noisy_sgd_settings(200, 3, 1.0, 1e-3, 2.0, 1.0)
    assert (steps, batch) == (25, 20) and rate == pytest.approx(2.0 / 5.0)
    # The variance on the mean of gradients is 8 steps log(1 / delta) / (n epsilon)^2.
    assert (z / batch) ** 2 == pytest.approx(8 * 25 * math.log(1e3) / 200**2)
    assert report.releases[0]["noise_multiplier"] == z and report.releases[0]["times"] == 25
    delta = replacement_delta(z, 200, 20, 25, report.epsilon, "replace-one")
    assert 1.0 < report.epsilon and 0.999e-3 < delta <= 1e-3
    assert report.epsilon < gdp_epsilon(2 * 20 * 5 / z, 1e-3)  # one record in all draws
    assert "epsilon 1 " in report.notes["published"]


def test_servers_release_what_a_trusted_curator_does():
    X, y = tasks()
    paths = []
    for curator in ("trusted", "servers", ("servers", 3)):
        est = PublishedMetaInit(
            curator=curator, diameter=4.0, delta=1e-3, tasks_per_round=2, random_state=0
        )
        paths.append(fitted(est, X, y).init_path_)
    for path in paths[1:]:
        np.testing.assert_allclose(path, paths[0], atol=1e-9)
    assert "servers" in est.privacy_.notes


def test_a_fit_without_privacy_says_so():
    X, y = tasks()
    for est in (PublishedMetaInit(epsilon=None), PublishedMetaInit(privacy=None)):
        assert fitted(est, X, y).privacy_.guarantee == "none"


# ------------------------------------------------------------------------ input, networks
@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": -1.0},
        {"descent": "bassily"},
        {"curator": "servers"},
        {"init": [1.0]},
        {"descent": "bassily", "diameter": 1.0, "epsilon": None},
    ],
)
def test_settings_that_do_not_go_together_are_errors(settings):
    X, y = tasks()
    est = PublishedMetaInit(random_state=0, **settings)
    with pytest.raises(ValueError, match="set|must|positive"):
        fitted(est, X, y)
    assert not hasattr(est, "init_coef_")


def test_classes_and_tasks_without_rows():
    X, y = tasks(4, 30)
    codes = np.digitize(y, [0.0, 0.5])
    est = PublishedMetaInitClassifier(
        epsilon=None,
        tasks=range(5),
        classes=[0, 1, 2],
        inner_steps=30,
        inner_learning_rate=2.0,
        refine_learning_rate=1.0,
        random_state=0,
    )
    fitted(est, X, codes)
    task = np.repeat(np.arange(4), 30)
    most = np.bincount(codes.ravel()).max() / codes.size
    assert est.score(X.reshape(-1, 2), codes.ravel(), task=task) > most + 0.1
    np.testing.assert_array_equal(est.task_models_[4], est.init_coef_)


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": None},
        {"epsilon": 3.0, "delta": 1e-3, "clip_norm": 0.3},
        {"epsilon": 3.0, "delta": 1e-3, "privacy": "local"},
    ],
)
def test_a_linear_module_learns_as_the_linear_model(settings):
    torch = pytest.importorskip("torch")
    from skpmtl.reproduction.meta import PublishedMetaNetwork

    def module():
        layer = torch.nn.Linear(2, 1)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return layer

    X, y = tasks()
    batch = {
        "meta_step": "reptile",
        "iterate": "last",
        "inner_iterate": "last",
        "refine": "minibatch",
        "refine_batch_size": 4,
        "refine_epochs": 2,
        "tasks_per_round": 2,
        "random_state": 0,
    }
    linear = fitted(PublishedMetaInit(**batch, **settings), X, y)
    network = fitted(PublishedMetaNetwork(module, **batch, **settings), X, y)
    np.testing.assert_allclose(network.init_path_, linear.init_path_, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(network.task_models_, linear.task_models_, rtol=1e-4, atol=1e-4)
    assert network.privacy_ == linear.privacy_


def test_gradients_of_records_of_a_module_are_theirs():
    """A loss over positions, in modules of several layers; each record alone as a batch of one."""
    torch = pytest.importorskip("torch")
    from skpmtl.reproduction.meta.network import MetaModule

    def loss(scores, X, y):
        return ((scores - X[:, 1:]) ** 2).mean(1)

    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
    model = MetaModule(torch.nn.Sequential(*layers), loss)
    X = np.random.default_rng(0).normal(size=(6, 4))
    each = model.gradients(model.start, X, np.zeros(6))
    alone = [model.gradient(model.start, X[i : i + 1], np.zeros(1)) for i in range(6)]
    np.testing.assert_allclose(each, alone, atol=1e-6)
    np.testing.assert_allclose(model.gradient(model.start, X, np.zeros(6)), each.mean(0), atol=1e-6)
