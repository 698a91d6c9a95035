"""Sizes from which the package takes another path, or cuts another block: found by a rule.

Such a size is a whole number of 32 or more that a module binds to a name in capitals. Whoever adds
one has it made tiny in `tests.contract.test_last_bits`, without doing anything for it.
"""

import ast
import importlib
import sys
from pathlib import Path

import skpmtl
from tests.helpers.trees import tree

LEAST = 32
# Without arithmetic of private rows, by folder or module.
ELSEWHERE = (
    "cli",
    "datasets",
    "federated",
    "fedmtl",
    "inspection.py",
    "networks",
    "planning.py",
    "privacy/",
)
# Names that are no sizes of data, and why.
NO_SIZES = {
    "LARGEST_COVARIANCE": "of the public list, above it is an error",
    "MOST_COLUMNS": "public, above it is an error",
    "MOST_STEPS": "bound on what a file may ask for",
    "OCTAVE": "bins of a histogram",
    "_FREE_BITS": "bits of a grid",
    "_MAX_INNER_STEPS": "steps",
    "_MOST_COLUMNS": "of a relation, public",
    "_AHEAD": "steps, of a fit without privacy",
    "_STEPS": "steps",
    "_TURN": "steps, of a fit without privacy",
    "_ZIP64": "bytes of a file",
}


def sources():
    """Paths below the package, and syntax trees, of the modules that may compute with rows."""
    root = Path(skpmtl.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(ELSEWHERE):
            yield name, tree(path)


def whole(node):
    """The number that a literal, a shift or a power of such is; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.Pow)):
        a, b = whole(node.left), whole(node.right)
        if a is not None and b is not None:
            return a << b if isinstance(node.op, ast.LShift) else a**b
    return None


def numbers():
    """Module, name and value of every whole number from `LEAST` on that has a name."""
    for path, source in sources():
        for statement in source.body:
            if isinstance(statement, ast.Assign) and (whole(statement.value) or 0) >= LEAST:
                module = "skpmtl." + path.removesuffix(".py").replace("/", ".")
                for target in statement.targets:
                    yield module, target.id, whole(statement.value)


def make_tiny(monkeypatch, size):
    """All sizes become `size`, also where other modules have imported them."""
    for name, constant, value in list(numbers()):
        if constant in NO_SIZES:
            continue
        importlib.import_module(name)
        for other, module in list(sys.modules.items()):
            imports = other == name or not constant.startswith("_")
            if other.startswith("skpmtl") and imports and vars(module).get(constant) == value:
                monkeypatch.setattr(module, constant, size)
