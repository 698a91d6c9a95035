"""Tests with other last bits in tables: ``pytest --rounding SEED``, ``python -m tests.rounding``.

The order of sums differs between processors, and with it the last digits of every result. Under a
seed the last bit of each number of a table is a hash of its other bits, so that sums round
otherwise, as on another processor: what hangs on rounding fails here. Equal numbers stay equal, and
a table that is made again stays as it is. Numbers that float32 holds, integers among them, stay,
since tables of both types are to hold the same.

``python -m tests.rounding`` runs all tests under each of several seeds, with ``--parts`` a part of
their cases under each, so that all seeds together meet every case once.
"""

import argparse
import subprocess
import sys
from dataclasses import fields
from functools import wraps
from pathlib import Path

import numpy as np
from scipy import sparse

# Numbers of the tables of `change_tables`, by name of the field.
NUMBERS = {"X", "y", "Y", "weights", "base", "matrix"}
changed = None  # the seed of this process


def rounded(a, seed):
    """An array whose numbers have a last bit of the seed; the array itself if none changes.

    Parameters
    ----------
    a : object
        An array or a CSR matrix of float64; anything else is returned as it is.
    seed : int
    """
    if sparse.issparse(a):
        data = rounded(a.data, seed)
        if data is a.data:
            return a
        a = a.copy()
        a.data = data
        return a
    if not isinstance(a, np.ndarray) or a.dtype != np.float64:
        return a
    bits, one = np.ascontiguousarray(a).view(np.uint64).reshape(a.shape), np.uint64(1)
    # The finalizer of MurmurHash3: each bit hangs on all others. Products wrap around.
    mixed = (bits & ~one) ^ np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    with np.errstate(over="ignore", under="ignore"):
        held = (a == a.astype(np.float32)) | (a == np.rint(a)) | ~np.isfinite(a)
    held |= np.abs(a) <= np.finfo(np.float64).tiny
    other = ~held & ((bits & one) != mixed >> np.uint64(63))
    return (bits ^ other).view(np.float64) if other.any() else a


def change_tables(seed):
    """All tables that this process makes from now on have last bits of the seed."""
    global changed
    changed = seed
    from skpmtl.fedmtl.clients import ClientRows, ClientTable
    from skpmtl.tables.forms import Rows
    from skpmtl.tables.table import TaskTable

    def changing(make, names):
        @wraps(make)
        def made(self, *values, **named):
            named |= dict(zip(names, values, strict=False))
            make(self, **{k: rounded(v, seed) if k in NUMBERS else v for k, v in named.items()})

        return made

    def changing_features(features):
        # Of columns that are no numbers yet when the rows are read.
        return wraps(features)(lambda *given, **named: rounded(features(*given, **named), seed))

    for table in (TaskTable, Rows, ClientTable, ClientRows):
        table.__init__ = changing(table.__init__, [field.name for field in fields(table)])
    for rows in (Rows, ClientRows):
        rows.features = changing_features(rows.features)


def main(arguments):
    parser = argparse.ArgumentParser("python -m tests.rounding", allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=8, metavar="N", help="how many (default 8)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of them")
    parser.add_argument("--parts", action="store_true", help="deal the cases out to the seeds")
    options, others = parser.parse_known_args(arguments)  # others are for pytest
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    seeds, failed = range(options.first, options.first + options.seeds), []
    for k, seed in enumerate(seeds):
        part = ["--part", f"{k}/{len(seeds)}"] if options.parts else []
        command = ["-m", "pytest", "--rounding", str(seed), *part, *others]
        print("python", *command, flush=True)
        if subprocess.run([sys.executable, *command], cwd=Path(__file__).parents[1]).returncode:
            failed.append(seed)
    print(f"Seeds {seeds[0]} to {seeds[-1]}; failed: {failed or 'none'}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
