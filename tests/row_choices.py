"""List of the calls that could let the rows of all tasks make one choice together.

``python -m tests.row_choices`` prints the calls of the package that ``row_choices.csv`` does not
list, as lines for that file without a reason, and the listed ones that are gone.

A call is listed by its file, function and name, with the number of such calls in the function.
Only public calls of numpy, scikit-learn, torch and Python are known by name here: random
generators, sorts, counts, quantiles, types and extremes.
"""

import ast
import csv
from collections import Counter
from pathlib import Path

from tests.helpers.trees import tree

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".csv")
CALLS = frozenset(
    # random
    "choice default_rng integers permutation permuted rand randint randn random random_sample "
    "shuffle standard_normal uniform random_words shuffled deal hold_out draw_seed "
    # sorts
    "argpartition argsort lexsort partition sort "
    # counts
    "bincount count_nonzero histogram unique value_counts "
    # quantiles
    "median nanmedian nanpercentile nanquantile percentile quantile "
    # types
    "min_scalar_type promote_types result_type type_of_target "
    # extremes
    "amax amin argmax argmin nanargmax nanargmin nanmax nanmin ptp".split()
)
# Of arrays only: the functions of Python are used for all kinds of small numbers.
METHODS = frozenset({"max", "min"})
# Folders and modules without rows of tasks, and why.
WITHOUT_ROWS = {
    "_runtime/": "compilation, threads and versions of libraries",
    "datasets/": "public data and generators",
    "planning.py": "draws of its own, before data are read",
    "warm.py": "compiles on draws of its own",
    "_display/diagram.py": "pictures of parameters",
    "fedmtl/datasets.py": "a generator",
    "fedmtl/mpc/": "secret shares of layers, without differential privacy",
    "reproduction/fedmtl/": "methods as published, without differential privacy",
    "inspection.py": "plots of what it is given, with a warning",
    "cli/plan.py": "planning before data are read",
    "privacy/html.py": "prints a report",
    "privacy/noise_checks.py": "checks of drawn noise",
}


class _Calls(ast.NodeVisitor):
    def __init__(self, file):
        self.file, self.inside, self.found = file, [], Counter()

    def _enter(self, node):
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _enter

    def visit_Call(self, node):
        method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if method else getattr(node.func, "id", None)
        if name in CALLS or (method and name in METHODS):
            self.found[self.file, ".".join(self.inside) or "-", name] += 1
        self.generic_visit(node)


def calls(folder=ROOT / "skpmtl"):
    """Calls of a package. -> {(file, function, name): count}"""
    found = Counter()
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder).as_posix()
        if not file.startswith(tuple(WITHOUT_ROWS)):
            visitor = _Calls(file)
            visitor.visit(tree(path))
            found += visitor.found
    return found


def listed():
    """Entries of the list. -> {(file, function, name): (count, reason)}"""
    with open(LIST, newline="", encoding="utf-8") as file:
        return {
            (row["file"], row["function"], row["call"]): (int(row["count"]), row["reason"])
            for row in csv.DictReader(file)
        }


def differences(found, known):
    """Calls that are not listed with their count, and listed ones that are gone."""
    new = {key: count for key, count in found.items() if known.get(key, (0,))[0] != count}
    return new, sorted(set(known) - set(found))


if __name__ == "__main__":
    new, gone = differences(calls(), listed() if LIST.exists() else {})
    for key, count in sorted(new.items()):
        print(*key, count, "", sep=",")
    for key in gone:
        print("gone:", *key)
