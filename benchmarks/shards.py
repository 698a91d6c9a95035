"""What Ray adds to a release: queries to two actors against the work of the slower one.

Every repeat fits once in process, once on actors, and once on actors that answer with zeros, in
turn; numbers are medians over all queries and repeats, in milliseconds of the clock. `overhead`
is the time of a query through Ray less the time that the slowest actor says it worked on it,
`overhead_least` its minimum, and `empty` the time of a query without work. `rebuilt_ms` is the
query during which an actor was killed, and `same_bits` whether the result of that fit is that
of an undisturbed one. `load` is the load average of the machine meanwhile, which had better be
less than its number of processors.

With ``--only large`` a table of 4 GB is fitted by four actors, which keep the models, and one of
them is killed in the middle of its third query. `peak_gb` is the largest resident memory of a
process of the fit (the driver or an actor), read every .1 s, the mapped rows of its part included,
and `anonymous_gb` that without mapped files. `seconds` is the time of that fit, start of
its actors included, and `undisturbed` that of one without a loss.
"""

import os
import statistics
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone

import skpmtl
from skpmtl.exchange.protocol import run
from skpmtl.shards import fit as shards
from skpmtl.shards import load_models
from skpmtl.shards.fit import fit_shards

from .memory import write_parts

FIELDS = (
    "commit",
    "suite",
    "estimator",
    "tasks",
    "rows",
    "features",
    "actors",
    "questions",
    "in_process_ms",
    "ray_ms",
    "slowest_actor_ms",
    "overhead_ms",
    "overhead_least_ms",
    "empty_ms",
    "rebuilt_ms",
    "same_bits",
    "load",
    "peak_gb",
    "anonymous_gb",
    "seconds",
    "undisturbed",
)
LARGE, LARGE_ACTORS = (100_000, 50, 100), 4
SHAPE, QUICK, ACTORS = (10_000, 50, 100), (200, 50, 20), 2
ESTIMATORS = (
    ("PrivateMTL", {}),
    ("MPMTLLowRank", {}),
    ("DPMetaInit", {}),
)


class Timed(shards.Shard):
    """Knows for how long it worked on the last message."""

    def receive(self, place, message):
        start = time.perf_counter()
        reply = super().receive(place, message)
        self.spent = time.perf_counter() - start
        return reply

    def seconds(self):
        return self.spent


class Empty(shards.Shard):
    """Answers with zeros, whose shapes it learns from its own answers: the first fit is slow."""

    def answer(self, query):
        known = vars(self).setdefault("shapes", {})
        if not known.keys() >= query.mechanisms.keys():
            known |= {name: np.shape(value) for name, value in super().answer(query).items()}
        return {name: np.zeros(known[name]) for name in query.mechanisms}


class Watched:
    """Asks workers, and keeps the seconds of every query."""

    def __init__(self, workers):
        self.workers, self.seconds, self.slowest = workers, [], []

    def answer(self, query):
        start = time.perf_counter()
        found = self.workers.answer(query)
        self.seconds.append(time.perf_counter() - start)
        if getattr(self.workers, "shard", None) is Timed:
            self.slowest.append(max(self.workers.each("seconds")))
        return found


def _query(workers, est, parts):
    """One curator, up to the release; -> Watched"""
    watched = Watched(workers)
    population, classes, _ = shards._population(est, parts, workers.each("survey"))
    workers.prepare(population, classes)
    source = est._source()
    run(est._curator(population, source), watched, source)
    return watched


def _actors(kind):
    return type(f"_{kind.__name__}", (shards._Actors,), {"shard": kind})


class _Deadly(shards._Actors):
    """One actor dies in the middle of the third query."""

    told, seconds = 0, []

    def _get(self, references):
        if self.told == 3:
            self.told += 1
            self.ray.kill(self.actors[-1], no_restart=False)
        return super()._get(references)

    def send(self, method, argument):
        self.told += 1
        start = time.perf_counter()
        found = super().send(method, argument)
        if self.told == 4:
            self.seconds.append(time.perf_counter() - start)
            self.told += 1
        return found


def _lose_one(est, parts, **settings):
    """-> fitted estimator, seconds of the query that met a death"""
    usual = shards._Actors
    shards._Actors = _Deadly
    try:
        return fit_shards(est, parts, **settings), _Deadly.seconds.pop()
    finally:
        shards._Actors = usual


def measure(quick, repeats, only=""):
    """Yield rows; needs Ray, which is started here with `ACTORS` processors."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # 15 is the default: other work would come first
    m, n, d = QUICK if quick else SHAPE
    large = only == "large"
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    threads = {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    ray.init(
        num_cpus=ACTORS,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": threads},
    )
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if large:
                yield from _large(folder, *(QUICK if quick else LARGE))
                return
            parts = write_parts(folder, m, n, d, ACTORS)
            os.mkdir(os.path.join(folder, "whole"))
            whole = write_parts(os.path.join(folder, "whole"), m, n, d, 1)
            for name, settings in ESTIMATORS:
                est = getattr(skpmtl, name)(**settings, epsilon=1.0, tasks=range(m), random_state=0)
                if only in repr(est):
                    yield _one(est, whole, parts, repeats, (m, n, d), settings)
    finally:
        ray.shutdown()


def _large(folder, m, n, d):
    """A fit that loses an actor, with the memory of every process; and one that does not."""
    parts = write_parts(folder, m, n, d, LARGE_ACTORS)
    options = {"num_cpus": 0.5, "memory": 2 * 2**30}
    for name, settings in ESTIMATORS:
        est = getattr(skpmtl, name)(**settings, epsilon=1.0, tasks=range(m), random_state=0)
        kept = [os.path.join(folder, f"{name}-{k}") for k in range(2)]
        arguments = {"backend": "ray", "options": options}
        with _Memory() as memory:
            start = time.perf_counter()
            _, rebuilt = _lose_one(clone(est), parts, **arguments, models=kept[0])
            seconds = time.perf_counter() - start
        start = time.perf_counter()
        fit_shards(clone(est), parts, **arguments, models=kept[1])
        undisturbed = time.perf_counter() - start
        a, b = (load_models(folder) for folder in kept)
        text = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        yield {
            "suite": "shards",
            "estimator": f"{name}({text})",
            "tasks": m,
            "rows": n,
            "features": d,
            "actors": len(parts),
            "rebuilt_ms": round(1e3 * rebuilt, 2),
            "same_bits": bool(np.array_equal(a.coef_, b.coef_)),
            "load": round(os.getloadavg()[0], 1),
            "peak_gb": round(memory.peak / 1e9, 2),
            "anonymous_gb": round(memory.anonymous / 1e9, 2),
            "seconds": round(seconds, 1),
            "undisturbed": round(undisturbed, 1),
        }


class _Memory:
    """Watches the memory of this process and of Ray's actors."""

    def __enter__(self):
        self.peak = self.anonymous = 0
        self.done = threading.Event()
        self.watcher = threading.Thread(target=self._watch)
        self.watcher.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        self.watcher.join()

    def _watch(self):
        while not self.done.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    name = (process / "cmdline").read_bytes()
                    if process.name != str(os.getpid()) and not name.startswith(b"ray::"):
                        continue
                    text = (process / "status").read_text()
                except OSError:  # it ended
                    continue
                size = {
                    line.split(":")[0]: int(line.split()[1]) * 1024
                    for line in text.split("\n")
                    if line.startswith(("VmRSS:", "RssAnon:"))
                }
                self.peak = max(self.peak, size.get("VmRSS", 0))
                self.anonymous = max(self.anonymous, size.get("RssAnon", 0))


def _one(est, whole, parts, repeats, shape, settings):
    here = shards._Here(est, whole, None)
    engines = here, _actors(Timed)(est, parts, None), _actors(Empty)(est, parts, None)
    found = [[], [], []]
    load = []
    for repeat in range(repeats + 1):
        for k, engine in enumerate(engines):
            if k:
                engine.log.clear()
            watched = _query(engine, est, whole if k == 0 else parts)
            if repeat:
                found[k].append(watched)
                load.append(os.getloadavg()[0])
    for engine in engines:
        engine.close()
    seconds = [np.array([w.seconds for w in runs]) for runs in found]
    slowest = np.array([w.slowest for w in found[1]])
    overhead = seconds[1] - slowest
    fitted = fit_shards(clone(est), parts)
    lost, rebuilt = _lose_one(clone(est), parts, backend="ray")
    text = ", ".join(f"{key}={value!r}" for key, value in settings.items())

    def ms(values):
        return round(1e3 * float(np.median(values)), 2)

    return {
        "suite": "shards",
        "estimator": f"{type(est).__name__}({text})",
        "tasks": shape[0],
        "rows": shape[1],
        "features": shape[2],
        "actors": len(parts),
        "questions": seconds[1].size,
        "in_process_ms": ms(seconds[0]),
        "ray_ms": ms(seconds[1]),
        "slowest_actor_ms": ms(slowest),
        "overhead_ms": ms(overhead),
        "overhead_least_ms": ms(overhead.min()),
        "empty_ms": ms(seconds[2]),
        "rebuilt_ms": ms(rebuilt),
        "same_bits": bool(
            np.array_equal(lost.coef_, fitted.coef_)
            and np.array_equal(lost.intercept_, fitted.intercept_)
        ),
        "load": round(statistics.mean(load), 1),
    }
