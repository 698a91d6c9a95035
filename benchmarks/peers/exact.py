"""Exact fits of the problems of the study, compared with FISTA and libraries.

    python -m benchmarks.peers.exact [--quick] [--only TEXT] [--repeats N] [--output FILE.csv]

Who takes part, and how, is in `benchmarks.peers.solvers`; `ratio` is the time of a peer over ours.
"""

from ..command import run_problems
from ..problems import instances
from .solvers import compared, rows_of

FIELDS = ("problem", "penalty", "peer", "seconds", "ratio", "reached", "commit")


def measure(quick, repeats, only=""):
    """Rows of the CSV file; `only`: how names of problems begin."""
    for problem, optimum in instances(quick):
        if problem.name.startswith(only):
            found = compared(problem, repeats, optimum)
            yield from rows_of(FIELDS, problem, found, reverse=True)


def main(arguments=None):
    return run_problems("peers.exact", __doc__, FIELDS, measure, arguments)


if __name__ == "__main__":
    main()
