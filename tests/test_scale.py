"""Tables that are larger than the memory that a fit may take."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.helpers.plain_reference import listed_classes

from .helpers.public import public

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sparse_text_features_are_not_densified(monkeypatch):
    """Every estimator that takes CSR rows of 10,000 columns fits and predicts without an array
    of n_rows x n_features. As many numbers as the 20 rows of one task have may be."""

    def refuse(self, *args, **kwargs):
        assert np.prod(self.shape) <= 20 * 10_000, (
            f"a sparse matrix of shape {self.shape} was made dense"
        )
        return self.tocoo().toarray()

    rng = np.random.default_rng(0)
    X = sparse.random(240, 10_000, 0.001, format="csr", random_state=rng, data_rvs=None)
    task, y = np.repeat(np.arange(12), 20), np.tile([0, 1], 120)
    for cls in (sparse.csr_matrix, sparse.csr_array):
        for method in ("toarray", "todense"):
            monkeypatch.setattr(cls, method, refuse)
    for twin in ("", "Classifier"):
        model = public("PrivateMeanRegMTL" + twin)(tasks=range(12), random_state=0)
        model.set_params(**listed_classes(model, y))
        with pytest.raises(ValueError, match="2000 at most"):
            model.fit(X, y, task=task)
    for name in ("MPMTLGroupSparse", "MPMTLGroupSparseClassifier"):
        model = public(name)(0.1, epsilon=None, max_iter=20)
        assert model.fit(X, y, task=task).predict(X, task=task).shape == (240,)


@pytest.mark.slow
def test_warm_reaches_every_kernel():
    """In a fresh process, so that nothing else has called them."""
    program = """
import importlib, inspect, pkgutil, re
import numba
import skpmtl._kernels
from skpmtl import warm
seconds, skipped = warm.warm()
assert seconds > 0
refused = ("sparse X", "dense model")  # said by the estimator
assert all(any(word in text for word in refused) for text in skipped), skipped
if not numba.config.DISABLE_JIT:
    modules = pkgutil.iter_modules(skpmtl._kernels.__path__, "skpmtl._kernels.")
    modules = [importlib.import_module(module.name) for module in modules]
    source = "".join(inspect.getsource(module) for module in modules)
    reached = 0
    for module in modules:
        for name, kernel in vars(module).items():
            if hasattr(kernel, "signatures") and kernel.__module__ == module.__name__:
                # Kernels that other kernels call are compiled into these.
                inner = re.search(r"(?<!def )\\b" + name + r"\\(", source)
                assert kernel.signatures or inner, (module.__name__, name)
                reached += bool(kernel.signatures)
    assert reached > 20
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
