"""A round of tasks with a network, on a CPU and, where there is one, on a GPU.

    python -m benchmarks.networks [--quick] [--output FILE.csv]

206 writers with 6 to 36 images of 20 x 20 and 62 classes, as in the test split of FEMNIST; numbers
are random, which changes no time. The network has 26 thousand parameters (two convolutions and a
linear layer), a round 5 steps of every writer. "seconds" are those of one round, the best of
three; "cpu" is what it takes of the CPU; "apart" is the largest difference of a number of an update
from the one on the CPU, over the largest number of an update. Everything on the CPU has one thread.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from skpmtl import networks
from skpmtl.exchange import Population, Query

from .run import write_rows

FIELDS = ("what", "device", "parameters", "tasks", "rows", "seconds", "cpu", "ratio", "apart")
CLASSES = 62


def cnn(widths=(8, 16)):
    """26,238 parameters."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 20, 20)),
        torch.nn.Conv2d(1, widths[0], 5, padding=2, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(widths[0], widths[1], 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(25 * widths[1], CLASSES),
    )


def writers(n_tasks, seed=0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), rng.integers(6, 37, n_tasks))
    X = rng.uniform(size=(len(task), 400))
    return X, rng.integers(0, CLASSES, len(task)), task


def timed(device, given, update, personalization, kind):
    """Seconds, seconds of the CPU, and numbers, of one round or of all personal networks."""
    import torch

    X, y, task = given
    est = networks.TorchMeanRegClassifier(
        cnn,
        epsilon=None,
        n_rounds=1,
        update=update,
        device=device,
        classes=range(CLASSES),
        tasks=range(task.max() + 1),
        personalization=personalization,
    )
    table, _ = est._read_training(X, y, task)
    table, _ = est._encoded(table)
    task_side = est._task_side(table, Population.of(table))
    centre = {"centre": np.zeros((1, task_side.network.n_shared)), "clip_norm": 1.0}
    query = Query("update", {**centre, "own_units": 0}, {}, None)
    best = None
    for _ in range(4):  # the first one warms up
        begin, cpu = time.perf_counter(), time.process_time()
        found = (
            task_side.answer(query)["update"]
            if kind == "round"
            else task_side.contributions(query)["update"]
        )
        if device != "cpu":
            torch.cuda.synchronize()
        spent = time.perf_counter() - begin, time.process_time() - cpu
        best = spent if best is None else min(best, spent)
    return *best, found, task_side.network.n_shared


def measure(quick=False):
    import torch

    torch.set_num_threads(1)
    given = writers(20 if quick else 206)
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    for what, kind in (("round", "round"), ("round, updates one by one", "each")):
        reference = None
        for device in devices:
            seconds, cpu, found, size = timed(device, given, "fedavg", "none", kind)
            if reference is None:
                reference, first = found, seconds
            apart = np.abs(found - reference).max() / np.abs(reference).max()
            yield {
                "what": what,
                "device": device,
                "parameters": size,
                "tasks": len(np.unique(given[2])),
                "rows": len(given[2]),
                "seconds": f"{seconds:.4g}",
                "cpu": f"{cpu:.4g}",
                "ratio": f"{first / seconds:.3g}",
                "apart": f"{apart:.2g}",
            }


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.networks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="20 tasks")
    parser.add_argument("--output", type=Path, help="CSV")
    options = parser.parse_args(arguments)
    return write_rows(measure(options.quick), FIELDS, options.output)


if __name__ == "__main__":
    main()
