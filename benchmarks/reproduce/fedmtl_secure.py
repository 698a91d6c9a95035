"""Cost of FedMTL's secure aggregation, part by part, for two, three and five servers.

    python -m benchmarks.reproduce.fedmtl_secure [--quick] [--only CASE] [--output FILE.csv]

The case "base" is 20 clients with 1 to 4 of 8 tasks, 4 uploaded heads of 50 parameters and 1,000
shared parameters; "clients", "heads" and "shared" change one number of it. "paper" is the size of
figure 9 of Sen and Borcea (2024): 80 clients, 8 tasks, 8 uploaded heads and 1.63 million shared
parameters (45 s there, with three servers).

All processes are on this machine, which plays the clients too, and share its cores. Columns of a
part: ``seconds`` by the clock, of the slowest process; ``cpu_seconds`` and ``megabytes`` (sent) of
all processes together. The part "whole round" has the seconds of the call, without the "start" of
the processes, which a fit has once, the largest ``difference`` from `fedmtl_aggregate` divided by
the largest parameter, and the ``margin``, the least distance of a similarity from its threshold.
The first round, which also loads code, is left out but for "paper". Needs the extra
``skpmtl[secure]``.
"""

import time

import numpy as np

from skpmtl.fedmtl import fedmtl_aggregate
from skpmtl.fedmtl.secure import SecureServers

from ..run import write_rows
from . import script

BASE = {"n_clients": 20, "n_tasks": 8, "max_heads": 4, "head_length": 50, "n_shared": 1000}
CASES = {
    "base": BASE,
    "clients": BASE | {"n_clients": 80},
    "heads": BASE | {"max_heads": 8},
    "shared": BASE | {"n_shared": 100_000},
    "paper": BASE | {"n_clients": 80, "max_heads": 8, "n_shared": 1_630_000},
}
SERVERS = 2, 3, 5
FIELDS = (
    "case",
    "n_servers",
    *BASE,
    "part",
    "seconds",
    "cpu_seconds",
    "megabytes",
    "difference",
    "margin",
)
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


def run_secure(arguments, n_servers, max_heads, warm=True):
    """-> shared, heads; part -> (seconds, CPU seconds, megabytes) of a round, and its start"""
    start = time.perf_counter()
    with SecureServers(n_servers=n_servers, timeout=3600.0) as servers:
        few = tuple(x if np.isscalar(x) else x[:2] for x in arguments)
        servers.aggregate(few[0][:, :1], *few[1:])
        begun = time.perf_counter() - start
        for _ in range(1 + warm):
            start = time.perf_counter()
            shared, heads, _ = servers.aggregate(*arguments, max_heads=max_heads)
            seconds = time.perf_counter() - start
    parts = {}
    for own in servers.costs.values():
        for part, values in own.items():
            parts.setdefault(part, []).append(values)
    costs = {
        part: (max(v[0] for v in own), sum(v[1] for v in own), sum(v[2] for v in own) / 1e6)
        for part, own in parts.items()
    }
    _, cpu, sent = np.sum(list(costs.values()), axis=0)
    return shared, heads, {"start": (begun, "", ""), **costs, "whole round": (seconds, cpu, sent)}


def measure(case, n_servers, shape):
    """Yield a row for every part."""
    arguments = problem(**shape)
    plain_shared, plain_heads, similarity = fedmtl_aggregate(*arguments)
    shared, heads, costs = run_secure(arguments, n_servers, shape["max_heads"], case != "paper")
    pairs = [(shared, plain_shared), *zip(heads, plain_heads, strict=True)]
    largest = max(np.abs(theirs).max(initial=0.0) for _, theirs in pairs)
    difference = max(np.abs(ours - theirs).max(initial=0.0) for ours, theirs in pairs) / largest
    for part, values in costs.items():
        seconds, cpu, megabytes = (x if x == "" else float(f"{x:.3g}") for x in values)
        row = {"case": case, "n_servers": n_servers, **shape, "part": part, "seconds": seconds}
        row |= {"cpu_seconds": cpu, "megabytes": megabytes, "difference": "", "margin": ""}
        if part == "whole round":
            row["difference"] = f"{difference:.1e}"
            row["margin"] = f"{np.abs(similarity - THRESHOLD).min():.1e}"
        yield row


def rows(quick, only):
    small = BASE | {"n_clients": 4, "max_heads": 2, "n_shared": 10}
    for case, shape in ({"base": small} if quick else CASES).items():
        if only in (None, case):
            for n_servers in SERVERS[:1] if quick else SERVERS:
                yield from measure(case, n_servers, shape)


def main(arguments=None):
    parser = script("fedmtl_secure", __doc__, "small numbers", None, "fedmtl_secure.csv")
    parser.add_argument("--only", choices=list(CASES), help="one case of the table")
    options = parser.parse_args(arguments)
    return write_rows(rows(options.quick, options.only), FIELDS, options.output)


if __name__ == "__main__":
    main()
