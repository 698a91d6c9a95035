"""What FedMTL costs over plain averaging, and what secrecy costs over the clear.

    python -m benchmarks.reproduce.fedmtl_overhead [--quick] [--repeats R] [--output FOLDER]

The ratios of figure 9 of Sen and Borcea (2024), on clients that are drawn as in
``fedmtl_secure.py``: 1 to 4 of 8 tasks, heads of 165 parameters, 416 shared ones, which is the
network of ``fedmtl.py``. Writes ``fedmtl_overhead.csv`` and ``.png`` in about four minutes of one
core. Quantities, each with the mean over repeats and its ratio to the method in ``over``:

- ``server, CPU seconds``: one aggregation. "plain average" is one weighted mean of the shared
  layers and of each task's heads for everybody; the others make an average for every client.
  "secure": similarity with three servers and a dealer on this machine, the CPU seconds of
  all of them and of what clients do for it;
- ``round, CPU seconds``: an epoch of local training at all clients, the aggregation, and the
  training score, with `FedMTLClassifier`, its defaults and 117 rows per client;
- ``traffic, megabytes``: from all clients and back, float64. For "secure" their shares, and what
  servers and dealer send each other. Similarity moves the numbers that averaging moves: every
  client sends its layers and gets its layers.

The secure rows need the extra ``skpmtl[secure]``; without it they are left out.
"""

import functools
import importlib.util
import time

import numpy as np

from skpmtl.fedmtl import FedMTLClassifier, fedmtl_aggregate, make_fedmtl_clients

from . import run_figures, script
from .fedmtl_secure import problem, run_secure
from .plots import legend, panels, unique

FIELDS = ("quantity", "n_clients", "method", "mean", "sd", "over", "ratio", "repeats")
RULES = ("uniform", "per-task", "similarity")
SERVER, ROUND, TRAFFIC = "server, CPU seconds", "round, CPU seconds", "traffic, megabytes"
ROUNDS = 5


def plain_average(shared, heads, tasks, sizes):
    """One model for all: means weighted by numbers of rows, of a task over those that have it."""
    mean = sizes @ shared / sizes.sum()
    rows, number = np.concatenate(heads), np.unique(np.concatenate(tasks), return_inverse=True)[1]
    weight = np.repeat(sizes, [len(own) for own in tasks])
    total = np.zeros((number.max() + 1, rows.shape[1]))
    np.add.at(total, number, weight[:, None] * rows)
    return mean, total / np.bincount(number, weight)[:, None]


def cpu_seconds(functions, least):
    """Name -> seconds of a call, from about `least` seconds of calls of each.

    They take turns, so that a machine that slows down hits all alike.
    """
    total, count = dict.fromkeys(functions, 0.0), 0
    while count < 2 or sum(total.values()) < least * len(functions):
        for name, function in functions.items():
            start = time.process_time()
            function()
            total[name] += (time.process_time() - start) * (count > 0)  # the first warms up
        count += 1
    return {name: seconds / (count - 1) for name, seconds in total.items()}


def on_server(arguments, least):
    """CPU seconds of the aggregations."""
    calls = {
        rule: functools.partial(fedmtl_aggregate, *arguments, aggregation=rule) for rule in RULES
    }
    return cpu_seconds({"plain average": lambda: plain_average(*arguments[:-1]), **calls}, least)


def of_rounds(n_clients, seed, least):
    X, y, client = make_fedmtl_clients(n_clients, tasks_per_client=4, random_state=seed)
    y = y[:, ~np.isnan(y).all(axis=0)]
    calls = {}
    for rule in RULES:
        est = FedMTLClassifier(n_rounds=ROUNDS, aggregation=rule, random_state=seed)
        calls[rule] = functools.partial(est.fit, X, y, client=client)
    return {rule: seconds / ROUNDS for rule, seconds in cpu_seconds(calls, least).items()}


def entries(quantity, n_clients, found):
    """Rows of a quantity: `found` has one mapping of methods to values for every repeat.

    The first method is what others are compared with; "secure" is compared with "similarity".
    """
    for method in found[0]:
        over = "similarity" if method == "secure" else next(iter(found[0]))
        values, base = [own[method] for own in found], np.mean([own[over] for own in found])
        yield {
            "quantity": quantity,
            "n_clients": n_clients,
            "method": method,
            "mean": f"{np.mean(values):.3g}",
            "sd": f"{np.std(values, ddof=1):.1g}" if len(values) > 1 else "",
            "over": over,
            "ratio": f"{np.mean(values) / base:.3g}",
            "repeats": len(values),
        }


def overhead(quick=False, repeats=3):
    sizes = (4, 8) if quick else (5, 10, 20, 40, 80, 160)
    hidden = sizes[:1] if quick else sizes[:4]
    if importlib.util.find_spec("cryptography") is None:
        hidden = ()
    cap, least = (2, 0.02) if quick else (4, 0.3)
    for n in sizes:
        draws = [problem(n, 8, cap, 165, 416, seed) for seed in range(repeats)]
        found = [on_server(arguments, least) for arguments in draws]
        numbers = [sum(416 + 165 * len(own) for own in tasks) for _, _, tasks, _, _ in draws]
        moved = [dict.fromkeys(("plain average", "similarity"), 16e-6 * count) for count in numbers]
        if n in hidden:
            for arguments, times, megabytes in zip(draws, found, moved, strict=True):
                *_, costs = run_secure(arguments, 3, cap)
                _, times["secure"], megabytes["secure"] = costs["whole round"]
        yield from entries(SERVER, n, found)
        yield from entries(TRAFFIC, n, moved)
        rounds = [of_rounds(n, seed, least) for seed in range(repeats)]
        yield from entries(ROUND, n, rounds)


# ------------------------------------------------------------------------------ picture
LOOKS = {
    "plain average": ("black", "--", "one average for all"),
    "uniform": ("tab:gray", "-", "uniform (G)"),
    "per-task": ("tab:blue", "-", "per-task"),
    "similarity": ("tab:red", "-", "similarity, the paper's rule"),
    "secure": ("tab:purple", "-", "the same on secret shares"),
}


def draw(rows):
    shown = (
        (SERVER, "mean", "CPU seconds of an aggregation"),
        (ROUND, "ratio", "CPU seconds of a round / uniform"),
        (TRAFFIC, "mean", "megabytes of a round"),
    )
    figure, axes = panels(len(shown))
    for ax, (quantity, column, text) in zip(axes, shown, strict=True):
        own = [row for row in rows if row["quantity"] == quantity]
        for method in unique(own, "method"):
            color, dashes, label = LOOKS[method]
            points = [row for row in own if row["method"] == method]
            ax.plot(
                [row["n_clients"] for row in points],
                [float(row[column]) for row in points],
                marker="o",
                markersize=3,
                color=color,
                linestyle=dashes,
                label=label,
            )
        at = unique(own, "n_clients")
        ax.set(title=text, xlabel="clients", xscale="log")
        ax.set_xticks(at, [f"{value:g}" for value in at])
        if column == "mean":
            ax.set_yscale("log")
        ax.minorticks_off()
    legend(figure, axes)
    return figure


FIGURES = {"overhead": (overhead, 3, draw)}


def main(arguments=None):
    parser = script("fedmtl_overhead", __doc__, "few clients, one draw", 3, ".")
    return run_figures(parser, "fedmtl", FIGURES, FIELDS, arguments)


if __name__ == "__main__":
    main()
