"""Tables that are larger than the memory that a fit may take."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.helpers.plain_reference import listed_classes

from .helpers.public import public

ROOT = Path(__file__).resolve().parents[1]

# The limit counts what a process may write to, heap and anonymous memory, not mapped files.
MEMMAP = """
import json, pathlib, resource, sys, tempfile, warnings
import numpy as np
import skpmtl
from skpmtl.shards import fit_shards
warnings.simplefilter("ignore")
skpmtl.set_num_threads(1)
path, name, settings, m, n, d, n_parts = json.loads(sys.argv[1])
classify = name.endswith("Classifier")
def save_parts(folder, **table):
    parts = [pathlib.Path(folder, str(k)) for k in range(n_parts)]
    ends = np.linspace(0, m, n_parts + 1).astype(int) * n
    for part, first, last in zip(parts, ends, ends[1:]):
        part.mkdir()
        for name, values in table.items():
            np.save(part / name, values[first:last])
    return parts
def fit(X, tasks, parts=()):
    task = np.repeat(np.arange(tasks), n)
    y = np.asarray(X[:, 0])
    if classify:
        y = (y > 0).astype(float)
        y[::n], y[1::n] = 0.0, 1.0
    public = {"tasks": range(tasks), "random_state": 0} if settings.get("epsilon") else {}
    if classify:
        public["classes"] = [0, 1]
    model = getattr(skpmtl, name)(**settings, **public)
    fit_shards(model, parts) if parts else model.fit(X, y, task=task)
    return float(np.abs(model.predict(X, task=task) - y).mean())
X = np.memmap(path, dtype=float, mode="r", shape=(m * n, d))
fit(X[: 750 * n], 750)  # compiles what the whole table needs
parts = ()
if n_parts:
    folder = tempfile.TemporaryDirectory(dir=pathlib.Path(path).parent)
    parts = save_parts(folder.name, X=X, y=X[:, 0], task=np.repeat(np.arange(m), n))
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
limit = used + X.nbytes * 3 // 4
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.ones(X.shape)
except MemoryError:
    error = fit(X, m, parts)
    print(json.dumps(error))
else:
    print(json.dumps("no limit here"))
"""


@pytest.fixture(scope="module")
def table_on_disk(tmp_path_factory):
    """125 MB of rows, sorted by task."""
    path, m, n, d = tmp_path_factory.mktemp("memmap") / "X.dat", 2_600, 60, 100
    X = np.memmap(path, dtype=float, mode="w+", shape=(m * n, d))
    rng = np.random.default_rng(0)
    for first in range(0, m * n, 8_000):
        part = X[first : first + 8_000]
        part[:] = rng.uniform(-1, 1, part.shape)
    X.flush()
    yield str(path), m, n, d
    path.unlink()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the limit of Linux")
@pytest.mark.parametrize(
    "name, settings, n_parts",
    [("DPMetaInit", {"epsilon": 1.0}, 0), ("DPMetaInit", {"epsilon": 1.0}, 2)],
)
@pytest.mark.slow
def test_memory_map_larger_than_the_memory_allowed(table_on_disk, name, settings, n_parts):
    """A fit, of X or of parts of it, and a prediction where a copy of X is impossible: three
    quarters of X may be allocated."""

    path, m, n, d = table_on_disk
    program = [sys.executable, "-c", MEMMAP, json.dumps([path, name, settings, m, n, d, n_parts])]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    error = json.loads(done.stdout)
    if error == "no limit here":
        pytest.skip("RLIMIT_DATA does not limit anonymous memory here")
    assert error < 0.5  # y is a column of X, of mean absolute value 1/2


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
