"""Cost of FedMTL's secure aggregation: growth in clients, heads, shared layers and servers.

    python -m benchmarks.reproduce.fedmtl_secure [--quick] [--only PART] [--output FILE.csv]

The first row is 20 clients with 1 to 4 of 8 tasks, 4 uploaded heads of 50 parameters, 1,000 shared
parameters, 3 servers; the others change one number. All servers and clients are processes of this
machine, on loopback with TLS, so that cores are shared. Columns: ``seconds`` of the whole call
(certificates, shares, starting the servers, answers), ``server_seconds`` of the protocol alone,
``cpu_seconds`` and ``megabytes`` of all servers together, the largest difference from
`fedmtl_aggregate` divided by the largest parameter, and the least distance of a similarity
from its threshold, without which the difference means nothing. Needs the extra ``skpmtl[mpc]``.
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
    "n_clients": (5, 10, 40),
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
        runs = [json.loads(path.read_text()) for path in Path(folder).glob("*/out/run.json")]
        sent = sum(path.stat().st_size for path in Path(folder).glob("*/*/*.shares")) / 1e6
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


def main(arguments=None):
    parser = script("fedmtl_secure", __doc__, "small numbers", None, "fedmtl_secure.csv")
    parser.add_argument("--only", choices=["base", *GROWTH], help="one part of the table")
    options = parser.parse_args(arguments)
    chosen = (case for case in cases(options.quick) if options.only in (None, case[0]))
    return write_rows((measure(*case) for case in chosen), FIELDS, options.output)


if __name__ == "__main__":
    main()
