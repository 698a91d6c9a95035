"""Cost of FedMTL's secure aggregation: growth in clients, heads, shared layers and servers.

    python -m benchmarks.reproduce.fedmtl_secure [--quick] [--only PART] [--engine mpc|spu]
        [--output FILE.csv]

The first row is 20 clients with 1 to 4 of 8 tasks, 4 uploaded heads of 50 parameters, 1,000 shared
parameters, 3 servers; the others change one number. All servers and clients are processes of this
machine, on loopback with TLS, so that cores are shared. Columns: ``seconds`` of the whole call
(certificates, shares, starting the servers, answers), ``server_seconds`` of the protocol alone,
``cpu_seconds`` and ``megabytes`` of all servers together, the largest difference from
`fedmtl_aggregate` divided by the largest parameter, and the least distance of a similarity
from its threshold, without which the difference means nothing. Needs the extra
``skpmtl[mpc]``.

``--engine spu`` is for the extra ``skpmtl[spu]`` and writes ``fedmtl_secure_spu.csv``: growth in
the same numbers and, as the part "paper", the size of the paper (80 clients, 8 tasks, 1.63 million
shared parameters, 45 s there). Its servers are up and have compiled: ``start_seconds`` is what that
takes once in a fit. ``megabytes`` are those of shares and answers, which go between clients and
servers, ``server_megabytes`` what goes between servers; ``weights_seconds`` is the part of
``server_seconds`` that goes by before averages begin, ``peak_megabytes`` the resident memory of the
largest server, mapped files included.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from skpmtl.fedmtl import fedmtl_aggregate
from skpmtl.fedmtl.secure import secure_aggregate

from ..run import write_rows
from . import script

BASE = {
    "n_clients": 20, "n_tasks": 8, "max_heads": 4, "head_length": 50, "n_shared": 1000,
    "n_servers": 3,
}  # fmt: skip
GROWTH = {
    "n_clients": (5, 10, 40, 80),
    "max_heads": (1, 2, 6),
    "n_tasks": (32,),
    "n_shared": (0, 10_000, 100_000),
    "head_length": (500,),
    "n_servers": (5,),
}
FIELDS = (
    "part", *BASE, "seconds", "server_seconds", "cpu_seconds", "megabytes", "difference", "margin",
)  # fmt: skip
THRESHOLD = 0.6
PAPER = BASE | {"n_clients": 80, "n_shared": 1_630_000}
SPU_GROWTH = {"n_clients": (10, 40, 80), "n_shared": (10_000, 100_000), "max_heads": (2, 6, 8)}
SPU_FIELDS = (*FIELDS[:7], "start_seconds", "seconds", "server_seconds", "cpu_seconds",
              "weights_seconds", "peak_megabytes", "megabytes", "server_megabytes", "difference",
              "margin")  # fmt: skip


def problem(n_clients, n_tasks, max_heads, head_length, n_shared, seed=0):
    """Clients of two domains, each with 1 to max_heads of the tasks."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(2, n_tasks, head_length))
    heads, tasks = [], []
    for _ in range(n_clients):
        domain, count = rng.integers(2), rng.integers(1, max_heads + 1)
        own = rng.choice(n_tasks, count, replace=False)
        heads.append(prototypes[domain, own] + 0.5 * rng.normal(size=(count, head_length)))
        tasks.append(own.tolist())
    shared = rng.normal(size=(n_clients, n_shared))
    return shared, heads, tasks, rng.integers(20, 400, n_clients), THRESHOLD


def cases(quick):
    base = BASE | {"n_clients": 4, "max_heads": 2, "n_shared": 10} if quick else BASE
    yield "base", base
    for name, values in GROWTH.items():
        for value in (3,) if quick else values:
            yield name, base | {name: value}


def run_secure(arguments, n_servers, max_heads):
    """-> shared, heads, seconds, what every server says of its run, megabytes of the clients."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        shared, heads, _ = secure_aggregate(
            *arguments, n_servers=n_servers, max_heads=max_heads, timeout=3600.0, folder=folder
        )
        seconds = time.perf_counter() - start
        ends, shares = (Path(folder).glob(f"*/round-0/{n}") for n in ("out/run.json", "*/*.shares"))
        runs = [json.loads(path.read_text()) for path in ends]
        sent = sum(path.stat().st_size for path in shares) / 1e6
    return shared, heads, seconds, runs, sent


def measure(part, settings):
    arguments = problem(**{k: v for k, v in settings.items() if k != "n_servers"})
    plain_shared, plain_heads, similarity = fedmtl_aggregate(*arguments)
    shared, heads, seconds, runs, _ = run_secure(
        arguments, settings["n_servers"], settings["max_heads"]
    )
    ours = np.concatenate([shared.ravel(), *(own.ravel() for own in heads)])
    theirs = np.concatenate([plain_shared.ravel(), *(own.ravel() for own in plain_heads)])
    return {
        "part": part,
        **settings,
        "seconds": round(seconds, 2),
        "server_seconds": round(max(run["seconds"] for run in runs), 2),
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs), 2),
        "megabytes": round(sum(run["bytes_sent"] for run in runs) / 1e6, 1),
        "difference": f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.1e}",
        "margin": f"{np.abs(similarity - THRESHOLD).min():.1e}",
    }


def spu_cases(quick):
    if quick:
        yield "base", BASE | {"n_clients": 4, "max_heads": 2, "n_shared": 10}
        return
    yield "base", BASE
    for name, values in SPU_GROWTH.items():
        for value in values:
            yield name, BASE | {name: value}
    yield "paper", PAPER


def measure_spu(part, settings):
    from skpmtl.fedmtl.secure_spu import SpuServers

    arguments = problem(**{k: v for k, v in settings.items() if k != "n_servers"})
    shared, heads, similarity = fedmtl_aggregate(*arguments)
    rounds = 1 if part == "paper" else 2
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with SpuServers(timeout=3600.0, folder=folder) as servers:
            begun = time.perf_counter() - start
            for _ in range(rounds):  # the first one compiles
                start = time.perf_counter()
                own, own_heads, _ = servers.aggregate(*arguments, max_heads=settings["max_heads"])
                seconds = time.perf_counter() - start
        ends = Path(folder).glob(f"*/round-{rounds - 1}/out/run.json")
        runs = [json.loads(path.read_text()) for path in ends]
        files = Path(folder).glob(f"*/round-{rounds - 1}/*/*.shares")
        sent = sum(path.stat().st_size for path in files) / 1e6
    largest = max(np.abs(shared).max(initial=0.0), max(np.abs(h).max() for h in heads))
    pairs = [(own, shared), *zip(own_heads, heads, strict=True)]
    difference = max(np.abs(a - b).max(initial=0.0) for a, b in pairs) / largest
    return {
        "part": part, **settings, "start_seconds": round(begun, 1), "seconds": round(seconds, 2),
        "server_seconds": round(max(run["seconds"] for run in runs), 2),
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs), 2),
        "peak_megabytes": round(max(run["peak_megabytes"] for run in runs)),
        "weights_seconds": round(max(run["seconds_of_weights"] for run in runs), 2),
        "megabytes": round(sent, 1),
        "server_megabytes": round(sum(run["bytes_sent"] for run in runs) / 1e6, 1),
        "difference": f"{difference:.1e}",
        "margin": f"{np.abs(similarity - THRESHOLD).min():.1e}",
    }  # fmt: skip


def main(arguments=None):
    parser = script("fedmtl_secure", __doc__, "small numbers", None, "fedmtl_secure.csv")
    parser.add_argument("--only", choices=["base", *GROWTH, "paper"], help="one part of the table")
    parser.add_argument("--engine", choices=["mpc", "spu"], default="mpc")
    options = parser.parse_args(arguments)
    if options.engine == "spu":
        output = options.output
        if output.name == "fedmtl_secure.csv":
            output = output.with_name("fedmtl_secure_spu.csv")
        chosen = (case for case in spu_cases(options.quick) if options.only in (None, case[0]))
        return write_rows((measure_spu(*case) for case in chosen), SPU_FIELDS, output)
    chosen = (case for case in cases(options.quick) if options.only in (None, case[0]))
    return write_rows((measure(*case) for case in chosen), FIELDS, options.output)


if __name__ == "__main__":
    main()
