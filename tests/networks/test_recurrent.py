"""Recurrent layers as equations, beside those of torch."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl.exchange import Population
from skpmtl.networks import TorchMetaInitClassifier

torch = pytest.importorskip("torch")
spelled_out = pytest.importorskip("skpmtl.networks.recurrent").spelled_out


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN", "relu", "projected"])
@pytest.mark.parametrize(
    "n_layers, both_ways, batch_first, bias",
    [(1, False, True, True), (2, True, False, False), (2, True, True, True)],
)
def test_equations_are_those_of_the_layer(kind, n_layers, both_ways, batch_first, bias):
    own = {"relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 3}}.get(kind, {})
    cls = getattr(torch.nn, {"relu": "RNN", "projected": "LSTM"}.get(kind, kind))
    torch.manual_seed(0)
    layer = cls(
        4,
        5,
        num_layers=n_layers,
        bidirectional=both_ways,
        batch_first=batch_first,
        bias=bias,
        **own,
    ).double()
    for shape in ((3, 6, 4), (6, 4)):
        x = torch.randn(*shape, dtype=torch.float64)
        begin = None
        for _ in range(2):  # from zeros, and from where the first walk ended
            expected, end = layer(x, begin)
            with spelled_out(torch, torch.nn.Sequential(layer)):
                found, found_end = layer(x, begin)
            pairs = [(found, expected), *zip(found_end, end, strict=True)]
            for a, b in pairs:
                assert_allclose(a.detach(), b.detach(), rtol=0, atol=1e-12)
            begin = end
    assert layer.forward.__func__ is cls.forward  # all is as it was


class Tokens(torch.nn.Module):
    def __init__(self, kind="GRU", hook=None):
        super().__init__()
        self.table, self.hook = torch.nn.Embedding(5, 3), hook
        self.walk = getattr(torch.nn, kind)(3, 4, batch_first=True)
        self.out = torch.nn.Linear(4, 5)

    def forward(self, x):
        if self.hook is not None:
            self.hook(x)
        return self.out(self.walk(self.table(x.long()))[0][:, -1])


def task_side_of(module, **arguments):
    rng = np.random.default_rng(0)
    X, task = rng.integers(0, 5, size=(24, 6)).astype(float), np.repeat(range(3), 8)
    y = np.arange(24) % 5
    est = TorchMetaInitClassifier(module, tasks=range(3), classes=range(5), **arguments)
    table, _ = est._read_training(X, y, task)
    table, _ = est._encoded(table)
    return est._task_side(table, Population.of(table)), X, y


def sums(net, X, y, clip_norm):
    """Of clipped gradients of records, one after the other."""
    total = 0.0
    for one, label in zip(X, y, strict=True):
        net.zero_grad()
        score = net(torch.from_numpy(one[None]).float())
        torch.nn.functional.cross_entropy(score, torch.tensor([label])).backward()
        g = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).double().numpy()
        total = total + g * min(1.0, clip_norm / np.linalg.norm(g))
    return total


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_gradients_of_records_are_made_together(kind):
    task_side, X, y = task_side_of(Tokens, module__kind=kind)
    network, rows = task_side.network, np.arange(24)
    found = task_side.clipped_sum(np.zeros(network.n_shared), rows, 0.4)
    assert not network.one_by_one
    network.write(network.start)
    assert_allclose(found, sums(network.module, X, y, 0.4), rtol=0, atol=1e-6)


def test_modules_that_vmap_does_not_take_go_one_by_one():
    def hook(x):
        assert x.sum() >= 0  # of numbers that vmap does not show

    task_side, X, y = task_side_of(Tokens, module__hook=hook)
    network = task_side.network
    found = task_side.clipped_sum(np.zeros(network.n_shared), np.arange(24), 0.4)
    assert network.one_by_one
    network.write(network.start)
    assert_allclose(found, sums(network.module, X, y, 0.4), rtol=0, atol=1e-6)
