"""Share of small faults that the default tests notice: python -m tests.mutants [FILES].

A mutant is the package with one expression or statement changed. It is killed when a default test
of its file fails or takes too long. Those of `FILES` are drawn at random until the minutes are
over, and run in copies of the checkout. Survivors that compute the same as the original belong
into ``mutants_equivalent.txt``, with the reason. Texts, type hints, decorators, logging, what is
raised, ``strict=`` and tolerances (numbers below 1e-6) are not changed.

Of the tools at hand, mutmut runs all mutants of a file, in its own layout, and the operators of
cosmic-ray delete no statements, so that a missing clip would go unseen.
"""

import argparse
import ast
import copy
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
METHODS = [
    "model_protected", "mean_regularized", "structures", "meta", "output_perturbation", "rounds",
]  # fmt: skip
FILES = [
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("skpmtl/privacy/*.py")),
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("skpmtl/exchange/*.py")),
    *(f"skpmtl/{method}/{name}.py" for method in METHODS for name in ("curator", "plan")),
]
NUMBERS = ["privacy/test_numbers.py", "privacy/test_report.py"]
METHOD_TESTS = [f"{method}/test_privacy.py" for method in METHODS[:-2]]
METHOD_TESTS += ["output_perturbation/test_estimators.py"]
# The tests of a file in the folder tests, the quickest to notice first; the longest prefix counts.
TESTS = {
    "skpmtl/privacy/": ["privacy"],
    "skpmtl/privacy/_numbers.py": ["privacy/test_numbers.py", "privacy/test_mechanisms.py"],
    "skpmtl/privacy/accounting.py": ["privacy/test_accounting.py", *NUMBERS],
    "skpmtl/privacy/allocation.py": ["privacy/test_accounting.py", *METHOD_TESTS],
    "skpmtl/privacy/audit.py": ["privacy/test_audit.py"],
    "skpmtl/privacy/composition.py": ["privacy/test_accounting.py", "privacy/test_report.py"],
    "skpmtl/privacy/html.py": ["privacy/test_report.py", "test_diagram.py"],
    "skpmtl/privacy/mechanisms.py": ["privacy/test_mechanisms.py", *NUMBERS],
    "skpmtl/privacy/moments.py": ["privacy/test_moments.py", *METHOD_TESTS],
    "skpmtl/privacy/replay.py": ["privacy/test_replay.py"],
    "skpmtl/privacy/report.py": ["privacy/test_report.py", "privacy/test_replay.py"],
    "skpmtl/privacy/rng.py": ["privacy/test_rng.py", "privacy/test_secure.py"],
    "skpmtl/privacy/sampling.py": ["privacy/test_sampling.py", *NUMBERS],
    "skpmtl/privacy/selection.py": ["privacy/test_selection.py", *NUMBERS],
    "skpmtl/privacy/tape.py": ["privacy/test_report.py", "privacy/test_replay.py"],
    "skpmtl/exchange/": ["exchange"],
    "skpmtl/exchange/files.py": ["exchange/test_billboard_files.py", "exchange"],
    "skpmtl/exchange/journal.py": ["exchange/test_journal.py", "exchange"],
    "skpmtl/exchange/protocol.py": ["exchange", "federated/test_sites.py"],
    "skpmtl/exchange/servers.py": ["exchange/test_servers.py", "exchange"],
    "skpmtl/mean_regularized/": ["mean_regularized"],
    "skpmtl/meta/": ["meta/test_privacy.py", "meta"],
    "skpmtl/model_protected/": ["model_protected/test_privacy.py", "model_protected"],
    "skpmtl/output_perturbation/": ["output_perturbation"],
    "skpmtl/rounds/": [
        "mean_regularized/test_relation.py", "mean_regularized/test_privacy.py",
        "model_protected/test_relation.py", "model_protected/test_relation_exact.py",
    ],
    "skpmtl/structures/": ["structures/test_privacy.py", "structures"],
}  # fmt: skip
LOADED = ["numpy", "scipy.optimize", "scipy.stats", "sklearn.utils.estimator_checks", "numba"]
LOADED += ["pandas", "pytest"]

SWAPS = {
    ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.And: ast.Or,
    ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn,
}  # fmt: skip
SWAPS = {new: old for old, new in SWAPS.items()} | SWAPS
NAMES = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil"}
NAMES |= {new: old for old, new in NAMES.items()}
TELLS = {"warn", "debug", "info", "warning", "error", "exception"}  # calls that only tell people
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # whose swap is the negation


class Mutant(NamedTuple):
    """One changed file."""

    file: str
    line: int
    text: str
    old: str
    new: str
    source: str

    @property
    def key(self):
        """The file, the text of the line and the change, wherever the line is now."""
        return self.file, self.text, self.old, self.new


def parts(node):
    """Nodes of a tree that may be changed."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.Raise() | ast.JoinedStr() | ast.keyword(arg="strict"):
                    pass
                case ast.Call(func=ast.Attribute(attr=called)) if called in TELLS:
                    pass
                case ast.AST():
                    yield from parts(child)


def changes(node):
    """Pairs (place, what stands there instead) of a node."""

    def with_field(**fields):
        new = copy.copy(node)
        vars(new).update(fields)
        return node, new

    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield with_field(ops=[SWAPS[type(op)]()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            yield with_field(op=SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, node.operand
        case ast.Constant(value=bool()):
            yield with_field(value=not node.value)
        case ast.Constant(value=int()):
            yield with_field(value=node.value + 1)
        case ast.Constant(value=float(value)) if not 0 < value < 1e-6:
            yield with_field(value=2 * node.value if node.value else 1.0)
        case ast.Name(id=name) if name in NAMES:
            yield with_field(id=NAMES[name])
        case ast.Attribute(attr=name) if name in NAMES:
            yield with_field(attr=NAMES[name])
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, ast.Pass()
        case ast.Break():
            yield node, ast.Continue()
        case ast.Continue():
            yield node, ast.Break()
    tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
    for test in filter(None, tests):
        match test:
            case ast.UnaryOp(op=ast.Not()):
                pass
            case ast.Compare(ops=[op]) if isinstance(op, NEGATED):
                pass
            case _:
                yield test, ast.UnaryOp(op=ast.Not(), operand=test)


def mutants(file, source):
    """All `Mutant` of a file."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole, found = b"".join(lines), []
    for node in parts(ast.parse(source)):
        for place, new in changes(node):
            text, line = ast.unparse(new), lines[place.lineno - 1].decode().strip()
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            within = text if isinstance(place, ast.stmt) else f"({text})"
            changed = (whole[:begin] + within.encode() + whole[end:]).decode()
            try:
                compile(changed, file, "exec")
            except SyntaxError:  # a pattern, a break outside of a loop
                continue
            found.append(Mutant(file, place.lineno, line, ast.unparse(place), text, changed))
    return found


def equivalents(path):
    """The keys of mutants that compute the same: "file || line || old || new || reason"."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split(" || ") for line in lines if line and not line.startswith("#")]
    return {(file, text, old, new) for file, text, old, new, reason in rows}


class Failures:
    """Plugin of pytest: writes down what fails."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        os.utime(self.path)
        if report.failed:
            self.path.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def run(root, tests):
    """Run tests of a copy, in a process of their own."""
    os.setsid()
    os.chdir(root)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "skpmtl")]:
        del sys.modules[name]
    sys.path[:] = [str(root), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    import pytest

    how = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    sys.exit(int(pytest.main([*how, *tests], plugins=[Failures(root.parent / "failed")])))


def failure(root, tests, limit, context):
    """The test that fails, "time" if one takes more than `limit` seconds, or None."""
    failed = root.parent / "failed"
    failed.write_text("")
    process = context.Process(target=run, args=(root, tests))
    process.start()
    while process.exitcode is None:
        process.join(1)
        if time.time() - failed.stat().st_mtime > limit:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return "time"
    return (failed.read_text() or tests[0]) if process.exitcode else None


def tests_of(file, table):
    """The tests of a file that the table has."""
    names = table[max((prefix for prefix in table if file.startswith(prefix)), key=len)]
    return [f"tests/{name}" for name in names]


def measure(root, files, table, *, minutes, seed, limit, equivalent=(), processes=2, loaded=()):
    """-> (dict from mutants that were killed to what failed, list of those that survived)."""
    drawn = [m for file in files for m in mutants(file, (root / file).read_text())]
    drawn = [mutant for mutant in drawn if mutant.key not in equivalent]
    print(f"{len(drawn)} mutants of {len(files)} files", flush=True)
    random.Random(seed).shuffle(drawn)
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(loaded))  # tests start sooner
    killed, survived, sound = {}, [], {"time"}
    end, left = time.monotonic() + 60 * minutes, iter(drawn)

    def work(copied):
        while time.monotonic() < end and (mutant := next(left, None)):
            path = copied / mutant.file
            source = path.read_text()
            path.write_text(mutant.source)
            failed = failure(copied, tests_of(mutant.file, table), limit, context)
            path.write_text(source)
            if failed is None:
                survived.append(mutant)
                print(f"{mutant.file}:{mutant.line} survives:", flush=True)
                print(f"- {mutant.old}\n+ {mutant.new}", flush=True)
                continue
            if failed not in sound and failure(copied, [failed], limit, context):
                raise SystemExit(f"{failed} fails without a mutant: mend it first.")
            sound.add(failed)
            killed[mutant] = failed

    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, str(k), "checkout") for k in range(processes)]
        ignored = shutil.ignore_patterns(".git", ".venv*", ".hypothesis", "_build", "build", "dist")
        for copied in copies:
            shutil.copytree(root, copied, ignore=ignored)  # with the compiled kernels
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(work, copies))
    return killed, survived


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=200, help="seconds that a test may take")
    parser.add_argument("--least", type=float, default=0.9, help="share that is to be killed")
    asked = parser.parse_args(arguments)
    killed, survived = measure(
        ROOT, asked.files, TESTS, minutes=asked.minutes, seed=asked.seed, limit=asked.limit,
        equivalent=equivalents(EQUIVALENT), loaded=LOADED,
    )  # fmt: skip
    n = len(killed) + len(survived)
    share = len(killed) / n if n else 0.0
    error = (share * (1 - share) / n) ** 0.5 if n else 0.0
    slow = list(killed.values()).count("time")
    print(f"{len(killed)} of {n} mutants killed, {slow} of them by the limit of time:")
    print(f"{share:.1%}, standard error {error:.1%}")
    return int(share < asked.least)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
