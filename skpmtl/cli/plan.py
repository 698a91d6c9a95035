"""What a budget buys at given sizes, before any data are touched: ``python -m skpmtl plan``."""

import argparse
from pathlib import Path

from ..planning import plan
from ..structures.estimators import PrivateMTL, PrivateMTLClassifier


def main(arguments=None):
    """Print the table of a plan; `arguments` are those of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl plan",
        description="Expected error by privacy budget at given sizes, by what tasks might share. "
        "Simulated in seconds; reads no data and costs no privacy.",
    )
    parser.add_argument("--tasks", type=int, required=True, help="number of tasks")
    parser.add_argument("--rows", type=int, required=True, help="rows of a typical task")
    parser.add_argument("--features", type=int, required=True, help="columns without the task")
    parser.add_argument(
        "--epsilon",
        type=_budget,
        nargs="+",
        metavar="EPS",
        default=[0.3, 1.0, 3.0, 10.0, None],
        help="budgets, or none; default: .3 1 3 10 none",
    )
    parser.add_argument("--delta", type=float, help="default: min(1e-5, 1/m^2) for m tasks")
    parser.add_argument("--classes", action="store_true", help="a yes/no target, not a number")
    parser.add_argument(
        "--explained",
        type=float,
        default=0.5,
        help="share of the variance within a task that its features explain (default .5)",
    )
    parser.add_argument("--repeats", type=int, help="simulations of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="also draw it")
    options = parser.parse_args(arguments)
    front = PrivateMTLClassifier if options.classes else PrivateMTL
    try:
        found = plan(
            options.tasks,
            options.rows,
            options.features,
            epsilons=options.epsilon,
            estimator=front(delta=options.delta),
            explained=options.explained,
            n_repeats=options.repeats,
            random_state=options.seed,
        )
    except ValueError as fault:
        parser.error(str(fault))
    print(found)
    if options.picture:
        found.plot().figure.savefig(options.picture, dpi=110, bbox_inches="tight")
        print(f"Picture: {options.picture}")


def _budget(text):
    return None if text == "none" else float(text)
