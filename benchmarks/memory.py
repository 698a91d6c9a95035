"""Fits of a table that is larger than the memory that they may take.

The table is a memory map that is sorted by task, or parts of it for `skpmtl.shards`. Every fit runs
in a process of its own, with half the size of X as RLIMIT_DATA where that is 2 GB or more, which
limits what a process may allocate and write to; pages of a read-only map can be dropped at any time
and do not count. `peak_gb` is the largest amount of anonymous memory that was resident (RssAnon,
every 20 ms).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FIELDS = (
    "commit",
    "suite",
    "estimator",
    "parts",
    "tasks",
    "rows",
    "features",
    "threads",
    "table_gb",
    "limit_gb",
    "peak_gb",
    "seconds",
    "cpu_seconds",
    "outcome",
)
SHAPES = ((200_000, 50, 100),)  # 8 GB
QUICK = ((1_500, 50, 100),)
_LEAST = 1 << 31  # a process without data has a few hundred MB; small tables get no limit
ESTIMATORS = (
    ("PrivateMeanRegMTL", {"epsilon": 1.0}),
    ("MPMTLLowRank", {"epsilon": 1.0}),
    ("DPMetaInit", {"epsilon": 1.0}),
)
_PARTS = 8
_NAMES = ("X", "y", "task")


def write_parts(folder, m, n, d, n_parts, seed=0):
    """Folders with X.npy, y.npy, task.npy; the rows do not depend on `n_parts`. -> paths"""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(d) / np.sqrt(d)
    paths, ends = [], np.linspace(0, m, n_parts + 1).astype(int).tolist()
    for k in range(n_parts):
        path = Path(folder, f"part-{k:03d}")
        path.mkdir()
        paths.append(str(path))
    at = [np.searchsorted(ends, k, side="right") - 1 for k in range(m)]
    step, files = max((1 << 20) // (n * d), 1), None
    for first in range(0, m, step):
        rng = np.random.default_rng([seed, first])
        count = min(step, m - first)
        X = rng.standard_normal((count, n, d))
        W = shared + 0.3 * rng.standard_normal((count, d)) / np.sqrt(d)
        y = np.einsum("knj,kj->kn", X, W) + rng.standard_normal((count, n))
        for k in range(count):
            part = at[first + k]
            start = first + k - ends[part]
            if start == 0:
                size = (ends[part + 1] - ends[part]) * n
                files = [
                    np.lib.format.open_memmap(
                        Path(paths[part], f"{name}.npy"), "w+", dtype, (size, *shape)
                    )
                    for name, dtype, shape in zip(
                        _NAMES, (float, float, np.int64), ((d,), (), ()), strict=True
                    )
                ]
            rows = slice(start * n, (start + 1) * n)
            files[0][rows], files[1][rows], files[2][rows] = X[k], y[k], first + k
    return paths


def measure_one(name, settings, m, n, d, paths):
    """One fit of the parts at `paths`, in this process; a single part goes to `fit`."""
    import resource
    import threading
    import time
    import warnings

    import skpmtl
    from skpmtl.shards.fit import fit_shards

    warnings.simplefilter("ignore")

    def fit(paths, tasks):
        est = getattr(skpmtl, name)(**settings, tasks=range(tasks), random_state=0)
        if len(paths) > 1:
            return fit_shards(est, paths)
        X, y, task = (np.load(Path(paths[0], f"{name}.npy"), mmap_mode="r") for name in _NAMES)
        return est.fit(X[: tasks * n], y[: tasks * n], task=task[: tasks * n])

    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], _anonymous())

    if len(paths) == 1:
        fit(paths, 70)  # compiles what is not in the cache
    size = m * n * d * 8
    limit = size // 2 if size >= _LEAST else None
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, start = time.process_time(), time.perf_counter()
    try:
        fit(paths, m)
        outcome = "fitted"
    except MemoryError as error:
        outcome = f"MemoryError: {error}"
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    done.set()
    watcher.join()
    return {
        "threads": skpmtl.get_num_threads(),
        "table_gb": round(size / 1e9, 3),
        "limit_gb": limit and limit / 1e9,
        "peak_gb": round(peak[0] / 1e9, 3),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "outcome": outcome,
    }


def _anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024


def measure(quick, only="", shapes=None, folder=None):
    """Yield rows; writes the table to a temporary folder, in `folder` if given."""
    for m, n, d in shapes or (QUICK if quick else SHAPES):
        for n_parts in (1, _PARTS):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                paths = write_parts(place, m, n, d, n_parts)
                for name, settings in ESTIMATORS:
                    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in settings.items())})"
                    if only not in text:
                        continue
                    given = json.dumps([name, settings, m, n, d, paths])
                    done = subprocess.run(
                        [sys.executable, "-m", "benchmarks.memory", given],
                        capture_output=True,
                        text=True,
                        cwd=Path(__file__).parents[1],
                    )
                    if done.returncode:
                        raise RuntimeError(f"{text} failed:\n{done.stderr}")
                    yield {
                        "suite": "memory",
                        "estimator": text,
                        "parts": n_parts,
                        "tasks": m,
                        "rows": n,
                        "features": d,
                        **json.loads(done.stdout.splitlines()[-1]),
                    }


if __name__ == "__main__":
    print(json.dumps(measure_one(*json.loads(sys.argv[1]))))
