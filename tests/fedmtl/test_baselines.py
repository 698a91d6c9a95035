"""MOCHA, FedAMP and FedFomo: their equations, written out client by client."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import FedMTLClassifier, FedMTLRegressor
from skpmtl.fedmtl import baselines, make_fedmtl_clients
from skpmtl.fedmtl.clients import ClientTable
from skpmtl.fedmtl.network import Heads, Network

WHOLE = ("fedamp", "mocha", "fedfomo")


def test_attention_is_equation_6():
    W = np.random.default_rng(0).normal(size=(5, 7))
    n, scale = len(W), 0.7
    D = np.array([[np.sum((a - b) ** 2) for b in W] for a in W])
    sigma = scale * D[~np.eye(n, dtype=bool)].mean()
    slope = np.exp(-D / sigma) / sigma  # A'
    largest = max(sum(slope[i, j] for j in range(n) if j != i) for i in range(n))
    for i, got in enumerate(baselines.attention(W, scale)):
        own = [slope[i, j] / largest if j != i else 0.0 for j in range(n)]
        own[i] = 1.0 - sum(own)
        assert min(own) >= -1e-15
        assert_allclose(got, sum(x * w for x, w in zip(own, W, strict=True)), atol=1e-13)
    # Near models count for more, and a model alone or among equal ones stays what it is.
    assert_allclose(baselines.attention(W[:1], 1.0), W[:1])
    assert_allclose(baselines.attention(np.ones((3, 2)), 1.0), np.ones((3, 2)))


def test_coupling_is_the_slope_of_the_penalty():
    W = np.random.default_rng(1).normal(size=(4, 9))
    values, U = np.linalg.eigh(W @ W.T)
    omega = (U * np.sqrt(values)) @ U.T
    inverse = np.linalg.inv(omega / np.trace(omega))
    inverse /= np.linalg.eigvalsh(inverse).max()

    def penalty(W):
        return 0.5 * np.trace(W.T @ inverse @ W)

    slope, step = np.empty_like(W), 1e-6
    for at in np.ndindex(W.shape):
        high, low = W.copy(), W.copy()
        high[at] += step
        low[at] -= step
        slope[at] = (penalty(high) - penalty(low)) / (2 * step)
    assert_allclose(W - baselines.coupled(W), slope, atol=1e-8)
    assert_allclose(baselines.coupled(W[:1]), W[:1])
    assert_allclose(baselines.coupled(np.zeros((3, 2))), 0.0)
    # Models that nearly agree are pulled together, and not blown up.
    near = np.ones((3, 4)) + 1e-9 * W[:3, :4]
    assert np.abs(baselines.coupled(near) - 1.0).max() < 1e-2


def clients(seed=0):
    """Three clients with tasks {0, 1}, one with {0}; squared loss."""
    rng = np.random.default_rng(seed)
    slots = np.array([[0, 1], [0, 1], [0, -1], [0, 1]])
    sizes = np.array([6, 5, 4, 7])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    Y = rng.normal(size=(sizes.sum(), 2))
    Y[offsets[2] : offsets[3], 1] = np.nan
    Y[1, 0] = np.nan
    table = ClientTable(rng.normal(size=(sizes.sum(), 3)), Y, offsets, np.arange(4), slots)
    heads = Heads(slots, np.ones(2, dtype=np.int64), False)
    network = Network(3, (2,), "tanh")
    count = network.n_shared + (network.width + 1) * 2
    return network, table, heads, rng.normal(size=(2, 4, count))


def test_first_order_weights_are_equations_4_and_5():
    network, table, heads, (before, uploads) = clients()

    def loss(theta, i):  # half the squared errors, by task the mean over its known labels
        rows = slice(table.offsets[i], table.offsets[i + 1])
        Y = table.Y[rows]
        scores = network.scores(theta[None], table.X[rows][None])[0]
        return 0.5 * np.nansum((scores - Y) ** 2)

    got = baselines.first_order_weights(network, before, uploads, table, heads)
    assert np.abs(got - before).max() > 0.1  # somebody moves
    for i in range(4):
        group = [2] if i == 2 else [0, 1, 3]
        weights = []
        for n in group:
            gain = loss(before[i], i) - loss(uploads[n], i)
            weights.append(max(0.0, gain / np.linalg.norm(uploads[n] - before[i])))
        expected = before[i].copy()
        if sum(weights) > 0:
            for w, n in zip(weights, group, strict=True):
                expected += w / sum(weights) * (uploads[n] - before[i])
        assert_allclose(got[i], expected, atol=1e-12)


def test_validation_rows_are_held_out():
    table = clients()[1]
    train, held = baselines.split_rows(table, 0.34, 0)
    assert held.sizes.tolist() == [2, 2, 1, 2]
    assert (train.sizes + held.sizes).tolist() == table.sizes.tolist()
    for i in range(4):
        whole = table.X[table.offsets[i] : table.offsets[i + 1]]
        parts = [t.X[t.offsets[i] : t.offsets[i + 1]] for t in (train, held)]
        order = np.lexsort(whole.T)
        both = np.vstack(parts)
        assert_allclose(both[np.lexsort(both.T)], whole[order])
    one = ClientTable(table.X[:1], table.Y[:1], np.array([0, 1]), np.arange(1), table.slots[:1])
    assert [t.sizes.tolist() for t in baselines.split_rows(one, 0.2, 0)] == [[1]] * 2


@pytest.mark.parametrize("aggregation", WHOLE)
def test_estimators_learn_and_repeat(aggregation):
    settings = {"n_clients": 12, "n_tasks": 2, "n_test": 50, "random_state": 0}
    X, y, client, X_test, y_test, client_test = make_fedmtl_clients(**settings)
    given = {"n_rounds": 6, "random_state": 0, "hidden_layer_sizes": (16,)}
    est = FedMTLClassifier(aggregation=aggregation, **given).fit(X, y, client=client)
    score = est.score(X_test, y_test, client=client_test)
    alone = FedMTLClassifier(aggregation="local", **given).fit(X, y, client=client)
    assert score > alone.score(X_test, y_test, client=client_test) - 0.05 > 0.3
    again = FedMTLClassifier(aggregation=aggregation, **given).fit(X, y, client=client)
    assert (again._models_.theta == est._models_.theta).all()
    with pytest.raises(ValueError, match="train together"):
        est.personalize(X[:200], y[:200], client=client[:200] + 1000)


@pytest.mark.parametrize("aggregation", WHOLE)
def test_sets_of_tasks_stay_apart(aggregation):
    """What a client gets does not depend on clients with other tasks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    client = np.repeat(np.arange(6), 20)
    Y = np.column_stack([X @ rng.normal(size=3), X @ rng.normal(size=3)])
    Y[client >= 3, 1] = np.nan
    given = {"aggregation": aggregation, "n_rounds": 2, "hidden_layer_sizes": (3,)}
    est = FedMTLRegressor(random_state=0, **given).fit(X, Y, client=client)
    other = Y.copy()
    other[client >= 3, 0] += 1.0
    changed = FedMTLRegressor(random_state=0, **given).fit(X, other, client=client)
    assert (est._models_.theta[:3] == changed._models_.theta[:3]).all()
    assert not (est._models_.theta[3:] == changed._models_.theta[3:]).all()


@pytest.mark.parametrize(
    "settings", [{"attention_scale": 0.0}, {"validation_fraction": 0.0}, {"validation_fraction": 1}]
)
def test_bad_parameters(settings):
    X, y, client = make_fedmtl_clients(n_clients=4, n_tasks=2, n_samples=20, random_state=0)
    with pytest.raises(ValueError, match=next(iter(settings))):
        FedMTLClassifier(aggregation="fedamp", **settings).fit(X, y, client=client)
