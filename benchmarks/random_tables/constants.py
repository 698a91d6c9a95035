"""Errors with half and twice each constant of the course, over those with its value.

    python -m benchmarks.random_tables.constants [--output FILE.csv]

Fits are paired: of the same random tables, with the same seeds of noise. Constants of standard
errors are judged by the factor that a variance of rows is off from the one without a budget.
"""

import importlib
import math

import numpy as np

from skpmtl import PrivateMTL

from ..command import command_line, write_measured
from .law import draw
from .references import error

FIELDS = ("constant", "value", "epsilon", "tables", "changed", "mean", "best", "worst", "commit")
SEEDS = range(400, 412)
# By the modules that use them. None: half and twice, which for some mean nothing.
ALWAYS: dict = {
    **dict.fromkeys(f"course.curator.{name}" for name in ("OPEN", "SURELY", "HALVINGS")),
    "course.plan.ROWS_OF_UNITS": [(3.0, 2.0, 20.0, 30.0), (3.0, 2.0, 20.0, 120.0)],
    "task.priors.LARGER": [(4,), (1, 2, 3, 4)],
}
WITHOUT_NOISE: dict = {
    **dict.fromkeys(f"course.curator.{name}" for name in ("ODDS", "FAR_SHARES")),
    **dict.fromkeys(f"task.far.{name}" for name in ("NOISIER", "_FEW", "_LEAST")),
}
OF_ERRORS: dict = {
    **dict.fromkeys(f"course.errors.{name}" for name in ("STEADY", "HEAVY", "OF_CELL")),
    "course.errors.OF_ROWS": [0.004, 0.008],  # of .016: all shares together are those of a fit
}
GROUPS = (ALWAYS, (1.0, 3.0, None)), (WITHOUT_NOISE, (None,)), (OF_ERRORS, (1.0, 3.0))


def scaled(value, times):
    if isinstance(value, int):
        return max(round(value * times), 1)
    return tuple(times * part for part in value) if isinstance(value, tuple) else times * value


def fitted(table, epsilon, of_errors):
    known = {} if epsilon is None else {"random_state": table.seed}
    known |= {"tasks": range(table.n_tasks), "standard_errors": of_errors}
    return PrivateMTL(epsilon=epsilon, **known).fit(table.X, table.y, task=table.task)


def loss(table, epsilon, of_errors, exact):
    model = fitted(table, epsilon, of_errors)
    if not of_errors:
        return error(table, model.predict(table.X_test, task=table.task_test))
    if table.seed not in exact:
        exact[table.seed] = fitted(table, None, True).billboard_.row_variance
    variances = model.billboard_.row_variance, exact[table.seed]
    known = all(variance is not None for variance in variances)
    return math.exp(abs(math.log(variances[0][0] / variances[1][0]))) if known else 1.0


def compared(tables):
    """Yield the rows of the file."""
    for constants, epsilons in GROUPS:
        known = constants is OF_ERRORS, {}
        cells = [(table, epsilon, *known) for epsilon in epsilons for table in tables]
        before = np.array([loss(*cell) for cell in cells])
        for name, values in constants.items():
            path, _, constant = name.rpartition(".")
            module = importlib.import_module(f"skpmtl.{path}")
            value = getattr(module, constant)
            for other in values or (scaled(value, 0.5), scaled(value, 2.0)):
                setattr(module, constant, other)
                ratios = np.array([loss(*cell) for cell in cells]) / before
                setattr(module, constant, value)
                for epsilon, own in zip(epsilons, np.split(ratios, len(epsilons)), strict=True):
                    numbers = math.exp(np.log(own).mean()), min(own), max(own)
                    found = constant, other, epsilon, len(own), int((own != 1.0).sum())
                    found = *found, *(round(float(number), 4) for number in numbers)
                    yield dict(zip(FIELDS[:-1], found, strict=True))


def main(arguments=None):
    given = command_line("random_tables.constants", __doc__).parse_args(arguments)
    write_measured(compared([draw(seed) for seed in SEEDS]), FIELDS, given.output)


if __name__ == "__main__":
    main()
