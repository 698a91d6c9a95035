"""Where torch is missing, errors name the extra."""

import sys

import numpy as np
import pytest

from skpmtl import networks


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
