"""FedMTL as published: equations, versions, competitors, data, and modules of Table 2's sizes."""

import importlib.util

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import approx_fprime
from sklearn.metrics import jaccard_score

from skpmtl.reproduction.fedmtl import (
    PublishedFedMTL,
    dirichlet_sizes,
    load_celeba,
    make_faces,
    make_scenes,
    mean_iou,
    split_rows,
    task_sets,
)
from skpmtl.reproduction.fedmtl.aggregation import VERSIONS, Upload, aggregate
from skpmtl.reproduction.fedmtl.baselines import attention, coupled, mixture
from skpmtl.reproduction.fedmtl.models import Perceptron
from skpmtl.reproduction.fedmtl.outputs import Attributes, Categories
from tests.fedmtl.test_aggregation import reference

BASELINES = ("fedavg", "fedprox", "pfedme", "mocha", "fedamp", "fedfomo")


def uploads(n=7, n_tasks=4, seed=0, threshold=0.5):
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(n_tasks, 6))
    found = []
    for _ in range(n):
        own = sorted(rng.choice(n_tasks, rng.integers(1, n_tasks + 1), replace=False).tolist())
        heads = kinds[own] + 0.5 * rng.normal(size=(len(own), 6))
        found.append(Upload(rng.normal(size=3), heads, own, int(rng.integers(1, 50)), threshold))
    return found


def faces(n_clients=6, n_rows=240, distribution="D1", seed=0, **settings):
    sizes = dirichlet_sizes(n_rows, n_clients, random_state=seed)
    sets = task_sets(n_clients, 4, distribution, random_state=seed)
    return make_faces(
        sizes,
        sets,
        np.zeros(n_clients, dtype=int),
        n_tasks=4,
        n_attributes=3,
        random_state=seed,
        **settings,
    )


def models_of(est):
    return [client.w for client in est.models_.of.values()]


# ------------------------------------------------------------------------------ equations 2 to 9
@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("fedmtl", "similarity"),
        ("fedmtl-x", "shared-only"),
        ("fedmtl-g", "uniform"),
        ("fedmtl-j", "jaccard"),
        ("fedmtl-e", "exact-match"),
    ],
)
@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.8])
def test_versions_agree_with_plain_loops(version, rule, threshold):
    found = uploads(threshold=threshold)
    shared, heads = aggregate(found, *VERSIONS[version](found))
    fields = ("shared", "heads", "tasks", "size")
    given = [[getattr(u, name) for u in found] for name in fields]
    other = reference(np.array(given[0]), *given[1:], threshold, rule)
    np.testing.assert_allclose(shared, other[0], atol=1e-12)
    for ours, theirs in zip(heads, other[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_version_t_has_the_heads_of_fedmtl_and_mean_layers():
    found = uploads()
    shared, heads = aggregate(found, *VERSIONS["fedmtl-t"](found))
    mean = np.average([u.shared for u in found], axis=0, weights=[u.size for u in found])
    np.testing.assert_allclose(shared, np.tile(mean, (len(found), 1)))
    for ours, same in zip(heads, aggregate(found, *VERSIONS["fedmtl"](found))[1], strict=True):
        np.testing.assert_array_equal(ours, same)


def test_thresholds_are_those_of_each_client_and_rise():
    """Three clients of one kind: the one with Z = 1 keeps its model, the others agree."""
    X, y, client = faces(3, 90, seed=1)
    y = np.broadcast_to(y[:, [0, 1]].copy(), y[:, [0, 1]].shape).copy()
    y[:] = np.where(np.isnan(y), 0.0, y)
    settings = {"n_rounds": 2, "learning_rate": 0.01, "random_state": 0}
    Z = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    est = PublishedFedMTL(threshold=Z, **settings).fit(X, y, client)
    free = PublishedFedMTL(threshold=0.0, **settings).fit(X, y, client)
    ours, same = models_of(est), models_of(free)
    np.testing.assert_array_equal(ours[0], same[0])
    assert np.abs(ours[2] - same[2]).max() > 1e-4


# ------------------------------------------------------------------------------ rounds
def test_a_round_of_fedavg_on_whole_tables_is_a_gradient_step():
    X, y, client = faces(4, 80)
    y = np.nan_to_num(y[:, :2])
    est = PublishedFedMTL(
        (), method="fedavg", n_rounds=1, batch_size=1000, learning_rate=0.7, random_state=3
    )
    W = models_of(est.fit(X, y, client))
    model = Perceptron(X.shape[1], (), Attributes(3))
    shared, heads = model.start(2, np.random.default_rng(3))
    w = np.concatenate([shared, heads.ravel()])
    np.testing.assert_allclose(W[0], w - 0.7 * model.gradient(w, X, y), atol=1e-12)
    assert all(other is W[0] for other in W)


def test_fedprox_is_drawn_to_what_it_received():
    X, y, client = faces(1, 40)
    y = np.nan_to_num(y[:, :2])
    est = PublishedFedMTL(
        (5,),
        method="fedprox",
        n_rounds=1,
        local_epochs=2,
        batch_size=99,
        strength=0.4,
        random_state=0,
    )
    found = models_of(est.fit(X, y, client))[0]
    model = Perceptron(X.shape[1], (5,), Attributes(3))
    shared, heads = model.start(2, np.random.default_rng(0))
    w0 = np.concatenate([shared, heads.ravel()])
    w1 = w0 - 0.1 * model.gradient(w0, X, y)
    w2 = w1 - 0.1 * (model.gradient(w1, X, y) + 0.4 * (w1 - w0))
    np.testing.assert_allclose(found, w2, atol=1e-12)


def test_pfedme_minimises_its_envelope():
    X, y, client = faces(1, 40)
    y = np.nan_to_num(y[:, :2])
    est = PublishedFedMTL(
        (),
        method="pfedme",
        n_rounds=1,
        batch_size=99,
        learning_rate=0.3,
        inner_steps=400,
        strength=0.5,
        random_state=0,
    ).fit(X, y, client)
    model = Perceptron(X.shape[1], (), Attributes(3))
    w = model.start(2, np.random.default_rng(0))[1].ravel()
    (one,) = est.models_.of.values()
    slope = model.gradient(one.w, X, y) + 0.5 * (one.w - w)
    assert np.abs(slope).max() < 1e-6
    np.testing.assert_allclose(one.received, w - 0.3 * 0.5 * (w - one.w), atol=1e-12)


def test_fedamp_stays_within_groups_of_near_models():
    rng = np.random.default_rng(0)
    W = np.repeat([np.zeros(4), np.full(4, 100.0)], 3, axis=0) + 0.01 * rng.normal(size=(6, 4))
    found = attention(W, 0.01)
    assert np.abs(found[:3]).max() < 0.1 and np.abs(found[3:] - 100).max() < 0.1
    assert np.ptp(found[:3], axis=0).max() < np.ptp(W[:3], axis=0).max()
    np.testing.assert_allclose(attention(np.ones((3, 2)), 1.0), np.ones((3, 2)))


def test_mocha_pulls_by_the_slope_of_its_penalty():
    W = np.random.default_rng(0).normal(size=(4, 6))
    root = np.real(sqrtm(W @ W.T))
    inverse = np.linalg.inv(root / np.trace(root))
    penalty = inverse / np.linalg.norm(inverse, 2)

    def value(flat):
        return 0.5 * np.trace(flat.reshape(W.shape).T @ penalty @ flat.reshape(W.shape))

    slope = approx_fprime(W.ravel(), value).reshape(W.shape)
    np.testing.assert_allclose(W - coupled(W), slope, atol=1e-6)


def test_fedfomo_weighs_gain_by_distance():
    models = np.array([[2.0], [4.0], [-1.0]])
    found, weights = mixture(np.zeros(1), np.full(1, 9.0), models, lambda w: (w[0] - 3.0) ** 2)
    np.testing.assert_allclose(weights, [(9 - 1) / 2, (9 - 1) / 4, 0.0])
    np.testing.assert_allclose(found, [(4 * 2 + 2 * 4) / 6])
    own = mixture(np.full(1, 3.0), np.full(1, 9.0), models, lambda w: (w[0] - 3.0) ** 2)[0]
    assert own == 9.0


@pytest.mark.parametrize("method", ["mocha", "fedamp"])
def test_without_strength_personal_models_are_local(method):
    X, y, client = faces()
    settings = {"n_rounds": 2, "random_state": 0}
    alone = PublishedFedMTL(method="local", **settings).fit(X, y, client)
    est = PublishedFedMTL(method=method, strength=0.0, **settings).fit(X, y, client)
    for ours, theirs in zip(models_of(est), models_of(alone), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_heads_start_equal_or_each_on_its_own():
    X, y, client = faces(3, 60, "pairs")
    heads = {}
    for start in ("common", "own"):
        est = PublishedFedMTL(
            method="local", start=start, n_rounds=1, learning_rate=1e-9, random_state=0
        )
        W = models_of(est.fit(X, y, client))
        heads[start] = [w[est.n_shared_ :] for w in (W[0], W[2])]  # both have tasks 0 and 1
        np.testing.assert_allclose(W[0][: est.n_shared_], W[2][: est.n_shared_], atol=1e-6)
    np.testing.assert_allclose(*heads["common"], atol=1e-6)
    assert abs(np.corrcoef(*heads["own"])[0, 1]) < 0.5


@pytest.mark.parametrize("method", ["fedmtl", "mocha", "fedfomo"])
def test_clients_out_of_a_round_keep_their_model(method):
    X, y, client = faces()
    est = PublishedFedMTL(method=method, n_rounds=1, participation=0.5, random_state=0)
    est.fit(X, y, client)
    shared, heads = est.models_.of[0].model.start(4, np.random.default_rng(0))
    kept = [
        np.array_equal(one.w, np.concatenate([shared, heads[one.tasks].ravel()]))
        for one in est.models_.of.values()
    ]
    assert sum(kept) == 3 and est.history_["participants"].tolist() == [3]


def test_traffic_is_a_model_each_way_but_of_fedfomo():
    X, y, client = faces()
    sent = {}
    for method in ("fedmtl", "local", *BASELINES):
        est = PublishedFedMTL(method=method, n_rounds=2, n_candidates=3, random_state=0)
        history = est.fit(X, y, client).history_
        sent[method] = (history["uploaded"][0], history["downloaded"][0])
    size = sum(map(len, models_of(est)))
    assert size == 6 * (est.n_shared_ + 2 * est.head_size_)
    assert sent.pop("local") == (0, 0) and sent.pop("fedfomo") == (size, 3 * size)
    assert set(sent.values()) == {(size, size)}


@pytest.mark.skipif(importlib.util.find_spec("cryptography") is None, reason="skpmtl[secure]")
def test_servers_on_shares_return_the_same_models():
    X, y, client = faces(4, 60, "D2")
    settings = {"n_rounds": 2, "threshold": (0.5, 0.6), "random_state": 0}
    plain = PublishedFedMTL((4,), **settings).fit(X, y, client)
    secret = PublishedFedMTL((4,), secure=True, n_servers=2, **settings).fit(X, y, client)
    for ours, theirs in zip(models_of(secret), models_of(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert secret.privacy_.guarantee == plain.privacy_.guarantee == "none"


# ------------------------------------------------------------------------------ models
@pytest.mark.parametrize("outputs", [Attributes(3), Categories(3)], ids=lambda o: type(o).__name__)
def test_gradients_are_those_of_the_loss(outputs):
    rng = np.random.default_rng(0)
    model = Perceptron(4, (5, 3), outputs)
    shared, heads = model.start(2, rng)
    w = np.concatenate([shared, heads.ravel()])
    X = rng.normal(size=(9, 4))
    Y = (
        rng.integers(0, 2, (9, 2, 3))
        if isinstance(outputs, Attributes)
        else rng.integers(3, size=(9, 2))
    )
    Y = Y.astype(float)
    Y[:4, 1] = np.nan
    slope = approx_fprime(w, lambda v: outputs.loss(model.scores(v, X), Y))
    np.testing.assert_allclose(model.gradient(w, X, Y), slope, atol=1e-6)


def test_loss_of_a_task_does_not_depend_on_missing_rows():
    rng = np.random.default_rng(0)
    s, Y = rng.normal(size=(6, 2, 3)), rng.integers(0, 2, (6, 2, 3)).astype(float)
    Y[2:, 1] = np.nan
    parts = [Attributes(3).loss(s[:, [0]], Y[:, [0]]), Attributes(3).loss(s[:2, 1:], Y[:2, 1:])]
    assert Attributes(3).loss(s, Y) == pytest.approx(sum(parts))


def test_mean_iou_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, found = rng.integers(0, 3, (2, 5, 2, 4, 4)).astype(float)
    gone = rng.random(y.shape) < 0.2
    want = jaccard_score(y[~gone], found[~gone], average="macro")
    assert mean_iou(np.where(gone, np.nan, y), found) == pytest.approx(want)


def test_attributes_with_missing_tasks_are_learned():
    X, y, client = faces(8, 1600, "D2", missing=0.3, noise=(0.2, 0.2))
    part = split_rows(client, random_state=0)
    est = PublishedFedMTL(learning_rate=1.0, n_rounds=10, random_state=0)
    curve = []
    est.set_params(
        monitor=lambda t, m: curve.append(m.score(*(a[part == 2] for a in (X, y, client))))
    )
    est.fit(X[part == 0], y[part == 0], client[part == 0])
    assert len(curve) == 10 and curve[-1] > 0.68 > curve[0]
    assert curve[-1] == est.score(X[part == 2], y[part == 2], client[part == 2])
    known = ~np.isnan(est.predict(X, client)).any(axis=2)
    for i, one in est.models_.of.items():
        assert known[client == i].all(axis=0).nonzero()[0].tolist() == one.tasks


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"method": "fedmtl-j", "secure": True}, "secure=True"),
        ({"threshold": (0.5, 1.5)}, "threshold"),
        ({"threshold": np.zeros((2, 2))}, "threshold"),
        ({"method": "fedavg"}, "equal sets"),
        ({"learning_rate": 1e200}, "diverged"),
    ],
)
def test_settings_that_do_not_go_together_are_errors(settings, text):
    X, y, client = faces(distribution="D2")
    est = PublishedFedMTL(n_rounds=2, random_state=0, **settings)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=text):
        est.fit(X, y, client)
    assert not hasattr(est, "models_")


# ------------------------------------------------------------------------------ section 7.1
def test_rows_and_tasks_of_clients_are_those_of_the_paper():
    sizes = dirichlet_sizes(12_000, 60, random_state=0)
    assert sizes.sum() == 12_000 and sizes.min() >= 10 and sizes.std() > 100
    sets = task_sets(60, 8, "D1", random_state=0)
    assert {len(own) for own in sets} == {2} and len({tuple(own) for own in sets}) > 15
    assert {len(own) for own in task_sets(300, 8, "D2", random_state=0)} == set(range(1, 9))
    assert {tuple(own) for own in task_sets(8, 8, "pairs")} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    client = np.repeat(np.arange(60), sizes)
    part = split_rows(client, random_state=0)
    np.testing.assert_allclose(np.bincount(part) / 12_000, [0.7, 0.15, 0.15], atol=0.005)
    assert all(set(part[client == i]) == {0, 1, 2} for i in range(60))


def test_files_of_celeba_are_read(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng, names = np.random.default_rng(0), [f"A{k}" for k in range(40)]
    values = rng.choice([-1, 1], (6, 40))
    files = [f"{i + 1:06d}.jpg" for i in range(6)]
    lines = [f + " " + " ".join(map(str, row)) for f, row in zip(files, values, strict=True)]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(["6", " ".join(names), *lines]))
    (tmp_path / "img_align_celeba").mkdir()
    for i, name in enumerate(files):
        pixels = np.full((218, 178, 3), 40 * i, dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / "img_align_celeba" / name)
    X, y, tasks = load_celeba(tmp_path, 6, side=8)
    assert X.shape == (6, 3, 8, 8) and tasks[7] == names[35:]
    np.testing.assert_allclose(X.mean(axis=(1, 2, 3)), 40 * np.arange(6) / 127.5 - 1, atol=0.02)
    np.testing.assert_array_equal(y.reshape(6, 40), (values + 1) / 2)
    picked = load_celeba(tmp_path, 3, side=8, random_state=0)[1]
    assert all(any(np.array_equal(row, other) for other in y) for row in picked)
    with pytest.raises(ValueError, match="n_rows"):
        load_celeba(tmp_path, 7)


# ------------------------------------------------------------------------------ torch
def test_a_linear_module_learns_as_the_perceptron():
    torch = pytest.importorskip("torch")
    from skpmtl.reproduction.fedmtl.network import SharedModule

    model = SharedModule(torch.nn.Identity, lambda: torch.nn.Linear(4, 3), Attributes(3))
    other = Perceptron(4, (), Attributes(3))
    rng = np.random.default_rng(0)
    shared, heads = model.start(2, rng)
    X, Y = rng.normal(size=(8, 4)), rng.integers(0, 2, (8, 2, 3)).astype(float)
    assert (len(shared), model.head_size) == (0, other.head_size)
    turned = np.concatenate([np.r_[h[:12].reshape(3, 4).T.ravel(), h[12:]] for h in heads])
    gradient, slope = model.gradient(heads.ravel(), X, Y), other.gradient(turned, X, Y)
    np.testing.assert_allclose(model.scores(heads.ravel(), X), other.scores(turned, X), atol=1e-5)
    back = [np.r_[g[:12].reshape(3, 4).T.ravel(), g[12:]] for g in gradient.reshape(2, -1)]
    np.testing.assert_allclose(np.concatenate(back), slope, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shared", "head"),
    [
        ("lenet", 1_628_210, 2_505),
        ("mobilenet_v2", 2_223_872, 6_405),
        ("segnet", 24_943_296, 37_123),
    ],
)
def test_modules_have_the_numbers_of_parameters_of_table_2(name, shared, head):
    pytest.importorskip("torch")
    from skpmtl.reproduction.fedmtl import network

    parts = [make() for make in getattr(network, name)()]
    assert [sum(p.numel() for p in part.parameters()) for part in parts] == [shared, head]


def test_maps_are_learned_pixel_by_pixel():
    pytest.importorskip("torch")
    from skpmtl.reproduction.fedmtl import PublishedFedMTLNetwork, segnet

    sets = task_sets(3, 4, "pairs")
    X, y, client = make_scenes([20] * 3, sets, side=8, random_state=0)
    est = PublishedFedMTLNetwork(
        *segnet(filters=(6, 8)), n_rounds=10, batch_size=2, learning_rate=0.1, random_state=0
    )
    est.fit(X, y, client)
    assert est.predict(X, client).shape == y.shape
    found = est.models_.score(X, y, client, mean_iou)
    assert est.score(X, y, client) > 0.5 and 0.3 < found < est.score(X, y, client)


def test_modules_with_buffers_are_refused():
    torch = pytest.importorskip("torch")
    from skpmtl.reproduction.fedmtl import PublishedFedMTLNetwork

    X, y, client = faces()
    est = PublishedFedMTLNetwork(lambda: torch.nn.BatchNorm1d(24), lambda: torch.nn.Linear(24, 3))
    with pytest.raises(ValueError, match="GroupNorm"):
        est.fit(X, y, client)
