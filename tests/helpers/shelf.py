"""The small table on which other people's code was run, and what it found; see references/."""

import csv
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "solvers" / "references"
_TABLE = np.loadtxt(FOLDER / "problem.csv", delimiter=",", skiprows=1)
TASK, FOLD = _TABLE[:, 0].astype(int), _TABLE[:, 1].astype(int)
Y, LABEL, X = _TABLE[:, 2], _TABLE[:, 3].astype(int), _TABLE[:, 4:]


def rows(name):
    """Rows of a file of values, as dictionaries."""
    with open(FOLDER / name, newline="") as file:
        return list(csv.DictReader(file))


def malsar(function, at=0):
    """-> rho1, rho2, value, extra of one of the rows of a function"""
    row = [row for row in rows("malsar.csv") if row["function"] == function][at]
    return [float(row[name]) for name in ("rho1", "rho2", "value", "extra")]


def rmtl(call, kind, regularization):
    """-> [(Lam1, Lam2, value), ...] of the rows of RMTL for a call, a type and a regularisation."""
    wanted = {"call": call, "type": kind, "regularization": regularization}
    return [
        tuple(float(row[name]) for name in ("Lam1", "Lam2", "value"))
        for row in rows("rmtl.csv")
        if wanted.items() <= row.items()
    ]
