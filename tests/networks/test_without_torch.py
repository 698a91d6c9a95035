"""Where torch is missing, errors name the extra."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from skpmtl import networks
from skpmtl.exchange import Population


@pytest.mark.parametrize(
    "name", ["TorchFeatures", "TorchMeanRegClassifier", "TorchMetaInitRegressor"]
)
def test_the_extra_is_named(name, monkeypatch):
    cls = getattr(networks, name)
    for module in [name for name in sys.modules if name.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    X, y, task = np.ones((4, 2)), np.array([0, 1, 0, 1]), [0, 0, 1, 1]
    est = cls(lambda: None)
    options = {"task": task} if hasattr(est, "tasks") else {}
    if options:
        est.set_params(tasks=[0, 1], epsilon=None)
    with pytest.raises(ImportError, match=r"skpmtl with its extra \[torch\]"):
        est.fit(X, y, **options)
    assert [name for name in vars(est) if name.endswith("_")] == []


@pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
@pytest.mark.parametrize("name", ["TorchMeanReg", "TorchMetaInit"])
@pytest.mark.parametrize("n_classes", [0, 3])
def test_budgets_need_no_torch(name, n_classes, monkeypatch):
    """All that plans read of linear estimators is there; only the number of parameters is not."""
    cls = getattr(networks, name + ("Classifier" if n_classes else "Regressor"))
    size = SimpleNamespace(n_shared=5, describe=lambda: "5 shared numbers")
    monkeypatch.setattr(cls, "_network_of", lambda self, population: size)
    est = cls(lambda: None, epsilon=2.0, random_state=0, tasks=range(50))
    population = Population(np.arange(50), 3, n_classes, np.full(50, 20))
    report = est._planned_report(population)
    assert report.epsilon == 2.0 and report.noise_std[0] > 0
    assert est._query_specs(population)["update"].shapes["update"] in ((5,), (1, 5))
