"""`TorchFeatures`: a frozen network as a transformer."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skpmtl.networks import TorchFeatures

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")


def net():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    )


def rows(n=7, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4))


def by_hand(module, X):
    weight, bias = (p.detach().double().numpy() for p in module[0].parameters())
    return np.tanh(X @ weight.T + bias)


def test_features_are_those_of_the_layer_after_eval():
    module, X = net().train(), rows()
    frozen = TorchFeatures(module, output="2", batch_size=3).fit(X)
    Z = frozen.transform(X)
    assert Z.shape == (7, 5) and Z.dtype == np.float32
    assert_allclose(Z, by_hand(module, X), rtol=0, atol=1e-6)
    assert module.training and all(p.requires_grad for p in module.parameters())
    assert_allclose(frozen.set_params(batch_size=100).transform(X), Z, rtol=0, atol=1e-6)
    again = pickle.loads(pickle.dumps(frozen))
    assert_array_equal(again.transform(X), frozen.transform(X))
    assert clone(frozen).fit(X).transform(X).shape == Z.shape
    assert TorchFeatures(net).fit_transform(X).shape == (7, 2)
    with torch.no_grad():  # what happens to the user's module does not change a fit
        module[0].weight.zero_()
    assert_allclose(frozen.transform(X), Z, rtol=0, atol=1e-6)


class Counting(torch.nn.Module):
    """Adds the mean of all rows that it has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(4))

    def forward(self, x):
        self.sums += x.mean(dim=0)
        return x + self.sums


def test_rows_leave_nothing_behind_in_buffers():
    X = rows()
    frozen = TorchFeatures(Counting, batch_size=len(X)).fit(X)
    expected = X + X.mean(axis=0)
    for _ in range(2):
        assert_allclose(frozen.transform(X), expected, rtol=0, atol=1e-6)
    parts = frozen.set_params(batch_size=3).transform(X)
    assert_allclose(parts[3:6], X[3:6] + X[3:6].mean(axis=0), rtol=0, atol=1e-6)


def test_the_task_column_is_kept_and_comes_first():
    module, X = net(), rows()
    ids = np.array(["b", "a", "b", "c", "a", "c", "b"])
    frame = pd.DataFrame(X, columns=list("wxyz"), index=range(10, 17))
    frame.insert(2, "writer", ids)
    frozen = TorchFeatures(module, output="2", task_feature="writer").fit(frame)
    Z = frozen.transform(frame)
    assert list(Z.columns) == list(frozen.get_feature_names_out())
    assert Z.columns[0] == "writer" and Z.columns[-1] == "torchfeatures4"
    assert Z["writer"].tolist() == ids.tolist() and Z.index.tolist() == list(range(10, 17))
    assert_allclose(Z.to_numpy()[:, 1:].astype(float), by_hand(module, X), rtol=0, atol=1e-6)
    numbered = np.insert(X, 2, [1, 0, 1, 2, 0, 2, 1], axis=1)
    plain = TorchFeatures(module, output="2", task_feature=2).fit_transform(numbered)
    assert plain[:, 0].tolist() == [1, 0, 1, 2, 0, 2, 1]
    assert_allclose(plain[:, 1:], by_hand(module, X), rtol=0, atol=1e-6)
    polars = pytest.importorskip("polars")
    wide = TorchFeatures(module, task_feature=2).set_output(transform="polars")
    found = wide.fit_transform(numbered)
    assert isinstance(found, polars.DataFrame) and found.columns[0] == "task"


def test_images_and_tokens():
    images = rows(6).reshape(6, 1, 2, 2)
    conv = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 2), torch.nn.ReLU())
    frozen = TorchFeatures(conv).fit(images)
    assert frozen.transform(images).shape == (6, 3)

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(9, 2)

        def forward(self, x):
            return self.table(x.long())

    tokens = np.random.default_rng(0).integers(0, 9, size=(5, 4))
    module = Tokens()
    Z = TorchFeatures(module).fit_transform(tokens)
    expected = module.table.weight.detach().numpy()[tokens].reshape(5, 8)
    assert_array_equal(Z, expected)


def test_a_factory_does_not_move_the_users_generator():
    before = torch.random.get_rng_state()
    X = rows()
    first, second = (TorchFeatures(net).fit_transform(X) for _ in range(2))
    assert_array_equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"module": lambda: "net"}, TypeError, "str"),
        ({"module": net, "output": "9"}, ValueError, "none of the layers 0, 1, 2, 3"),
        ({"module": net, "device": "nowhere"}, ValueError, "cpu"),
        ({"module": lambda: torch.nn.Flatten(0)}, ValueError, "one entry for every row"),
    ],
)
def test_bad_settings(settings, error, message):
    frozen = TorchFeatures(**settings)
    with pytest.raises(error, match=message):
        frozen.fit(rows())
    assert not hasattr(frozen, "module_")


def test_other_rows_than_in_fit():
    frozen = TorchFeatures(net).fit(rows())
    with pytest.raises(ValueError, match="features"):
        frozen.transform(rows()[:, :3])
    X = rows()
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        frozen.transform(X)
