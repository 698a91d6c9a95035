"""Training of all clients at once against one client after the other, in plain numpy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax

from skpmtl.fedmtl.clients import ClientTable
from skpmtl.fedmtl.network import Heads, Network, Optimizer
from skpmtl.tables.assignment import random_words

ACTIVATION = {  # function, derivative from the output
    "identity": (lambda z: z, np.ones_like),
    "logistic": (expit, lambda a: a * (1 - a)),
    "tanh": (np.tanh, lambda a: 1 - a * a),
    "relu": (lambda z: np.maximum(z, 0), lambda a: (a > 0).astype(float)),
}


class PlainClient:
    """One client's network as lists of matrices: `shared` [(W, b)], `heads` {task: (V, c)}."""

    def __init__(self, theta, hidden, d, tasks, n_outputs, slots, width):
        theta = theta.copy()
        sizes = [d, *hidden]
        self.shared, self.heads = [], {}
        for before, after in zip(sizes, hidden, strict=False):
            W, theta = theta[: before * after].reshape(before, after), theta[before * after :]
            b, theta = theta[:after], theta[after:]
            self.shared.append((W, b))
        block = theta.reshape(sizes[-1] + 1, slots, width)
        for s, k in enumerate(tasks):
            own = block[:, s, : n_outputs[k]]
            self.heads[k] = (own[:-1].copy(), own[-1].copy())

    def parameters(self):
        pairs = [*self.shared, *self.heads.values()]
        return [part for pair in pairs for part in pair]

    def forward(self, X, activation):
        outs = [X]
        for W, b in self.shared:
            outs.append(ACTIVATION[activation][0](outs[-1] @ W + b))
        return outs

    def gradient(self, X, Y, activation, classification, alpha):
        outs = self.forward(X, activation)
        back, slopes = np.zeros_like(outs[-1]), []
        for s, (V, c) in enumerate(self.heads.values()):
            known = ~np.isnan(Y[:, s])
            Z, y = outs[-1][known] @ V + c, Y[known, s]
            if not classification:
                R = Z - y[:, None]
            elif Z.shape[1] == 1:
                R = expit(Z) - y[:, None]
            else:
                R = softmax(Z, axis=1) - (y[:, None] == np.arange(Z.shape[1]))
            R = R / max(len(y), 1)
            slopes += [outs[-1][known].T @ R + alpha * V, R.sum(axis=0)]
            back[known] += R @ V.T
        layers = []
        for (W, _), a, below in zip(self.shared[::-1], outs[:0:-1], outs[-2::-1], strict=True):
            back = back * ACTIVATION[activation][1](a)
            layers = [below.T @ back + alpha * W, back.sum(axis=0), *layers]
            back = back @ W.T
        return layers + slopes

    def vector(self):
        return np.concatenate([part.ravel() for part in self.parameters()])


class PlainStep:
    """The solver of one client."""

    def __init__(self, client, o):
        self.parts, self.o, self.t = client.parameters(), o, 0
        self.m = [np.zeros_like(p) for p in self.parts]
        self.v = [np.zeros_like(p) for p in self.parts]

    def __call__(self, slopes):
        self.t += 1
        o = self.o
        for p, g, m, v in zip(self.parts, slopes, self.m, self.v, strict=True):
            if o.solver == "sgd":
                m[...] = o.momentum * m + g
                p -= o.learning_rate * m
            else:
                m[...] = 0.9 * m + 0.1 * g
                v[...] = 0.999 * v + 0.001 * g * g
                unbiased = m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)
                p -= o.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)


def plain_training(clients, table, o, rng, activation, classification):
    """Epochs of every client for itself, in orders that follow from its id and the seed."""
    seed = int(rng.integers(2**63))
    steps = [PlainStep(client, o) for client in clients]
    for epoch in range(o.epochs):
        for i, client in enumerate(clients):
            own = slice(table.offsets[i], table.offsets[i + 1])
            one = table.clients[i : i + 1], table.sizes[i : i + 1]
            order = np.argsort(random_words(seed, f"epoch {epoch}", *one))
            X, Y = table.X[own][order], table.Y[own][order]
            count = -(-len(X) // o.batch_size)  # batches of equal size, up to one row
            for b in range(count):
                batch = slice(b * len(X) // count, (b + 1) * len(X) // count)
                steps[i](client.gradient(X[batch], Y[batch], activation, classification, o.alpha))


# ----------------------------------------------------------------------------- problems
def problem(classification, seed=0, sizes=(9, 23, 4, 16), d=3, hidden=(5, 4), activation="tanh"):
    """Clients of different size with 1 to 3 of 4 tasks (1, 3, 1 and 4 outputs), rows missing."""
    rng = np.random.default_rng(seed)
    sets = [[0, 1, 3], [1, 2], [3], [0, 2]]
    n_outputs = np.array([1, 3, 1, 4] if classification else [1, 1, 1, 1])
    slots = np.array([own + [-1] * (3 - len(own)) for own in sets])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], d))
    Y = np.full((offsets[-1], 3), np.nan)
    for i, own in enumerate(sets):
        for s, k in enumerate(own):
            rows = np.arange(offsets[i], offsets[i + 1])
            if s:
                rows = rng.permutation(rows)[: max(len(rows) // 2, 1)]
            y = rng.integers(max(n_outputs[k], 2), size=len(rows)) * 1.0
            Y[rows, s] = y if classification else X[rows] @ rng.normal(size=d) + y
    table = ClientTable(X, Y, offsets, np.arange(len(sets)), slots)
    heads = Heads(slots, n_outputs, classification)
    network = Network(d, hidden, activation)
    shared = network.initial_shared(rng)
    own = network.initial_heads(heads, rng).reshape(len(sets), -1)
    theta = np.hstack([np.tile(shared, (len(sets), 1)), own])
    return network, table, heads, theta, sets


def plain(network, table, heads, theta, sets):
    hidden = [after for _, after in network.layers]
    d = table.X.shape[1]
    slots = heads.slots.shape[1]
    return [
        PlainClient(row, hidden, d, own, heads.n_outputs, slots, heads.width)
        for row, own in zip(theta, sets, strict=True)
    ]


def assert_same_parameters(theta, clients, case, tol=1e-10):
    network, table, heads, _, sets = case
    for client, found in zip(clients, plain(network, table, heads, theta, sets), strict=True):
        assert_allclose(found.vector(), client.vector(), rtol=0, atol=tol)


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize(
    "solver, batch_size, activation",
    [("sgd", 100, "tanh"), ("momentum", 10, "logistic"), ("adam", 4, "relu")],
)
def test_training_is_that_of_every_client_alone(classification, solver, batch_size, activation):
    """The same mini-batches; clients have from 1 to 6 of them an epoch."""
    case = problem(classification, hidden=(6,), activation=activation)
    network, table, heads, theta, sets = case
    name = "adam" if solver == "adam" else "sgd"
    o = Optimizer(name, 0.05, 0.9 if solver == "momentum" else 0.0, 0.01, batch_size, 3)
    clients = plain(*case)
    plain_training(clients, table, o, np.random.default_rng(5), activation, classification)
    network.train(theta, table, heads, o, np.random.default_rng(5))
    assert_same_parameters(theta, clients, case)


def test_parameters_that_do_not_exist_stay_zero():
    case = problem(True)
    network, table, heads, theta, _ = case
    o = Optimizer("adam", 0.05, 0.0, 0.01, 8, 3)
    network.train(theta, table, heads, o, np.random.default_rng(5))
    blocks = network.head_blocks(theta, heads)
    gone = ~np.broadcast_to(heads.outputs()[:, None], blocks.shape)
    assert gone.any()
    assert_array_equal(blocks[gone], 0.0)


def test_large_scores_do_not_overflow():
    for classification in (True, False):
        case = problem(classification, hidden=())
        network, table, heads, theta, _ = case
        theta *= 1e4
        o = Optimizer("sgd", 1e-9, 0.0, 0.0, 100, 1)
        clients = plain(*case)
        plain_training(clients, table, o, np.random.default_rng(0), "tanh", classification)
        loss = network.train(theta, table, heads, o, np.random.default_rng(0))
        assert np.isfinite(loss) and np.isfinite(theta).all()
        assert_same_parameters(theta, clients, case, 1e-8)


# ------------------------------------------------------------------------ torch modules
def tanh_trunk():
    torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh())


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_a_torch_trunk_trains_like_the_built_in_one(classification, solver):
    """All rows in one batch, in the precision of float32."""
    pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
    from skpmtl.fedmtl._torch import TorchNetwork

    network, table, heads, theta, sets = problem(classification, hidden=(5,))
    o = Optimizer(solver, 0.05, 0.5, 0.02, 100, 4)
    torch_network = TorchNetwork(tanh_trunk, 3)
    assert (torch_network.width, torch_network.n_shared) == (5, network.n_shared)

    def other_layout(theta, shape):  # torch keeps weights as (outputs, inputs)
        theta = theta.copy()
        theta[:, :15] = theta[:, :15].reshape(-1, *shape).transpose(0, 2, 1).reshape(-1, 15)
        return theta

    found = other_layout(theta, (3, 5))
    arguments = table, heads, o, np.random.default_rng(0)
    loss = torch_network.train(found, *arguments)
    assert loss == pytest.approx(network.train(theta, *arguments), rel=1e-5)
    blocks = network.head_blocks(theta, heads)
    exists = np.broadcast_to(heads.outputs()[:, None], blocks.shape)
    assert_allclose(other_layout(found, (5, 3))[:, :20], theta[:, :20], rtol=0, atol=1e-5)
    ours = network.head_blocks(found, heads)
    assert_allclose(ours[exists], blocks[exists], rtol=0, atol=1e-5)
    X = table.X[None, :7].repeat(4, axis=0)
    assert_allclose(torch_network.scores(found, X), network.scores(theta, X), rtol=0, atol=1e-4)
