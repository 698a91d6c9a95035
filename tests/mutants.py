"""Share of small faults that the default tests notice: python -m tests.mutants [FILES].

A mutant is the package with one expression or statement changed. It is killed when a default test
fails or takes too long. Those of `FILES` are drawn at random until the minutes are over. Survivors
that compute the same as the original belong into ``mutants_equivalent.txt``, with the reason.
Texts, type hints, decorators, logging, what is raised, ``strict=``, compiled loops and tolerances
(numbers below 1e-6) are not changed.

Each mutant is imported by a fork of this process, from memory, so that compiled loops are those on
the disk. It gets no more than --each seconds of tests, a third of each part of `tests_of`: those of
its own folder, and of these first the files that have its name; refusals; and `OTHERS`. Tests that
start programs of their own see no mutant there.

Of the tools at hand, mutmut runs all mutants of a file, in its own layout, and the operators of
cosmic-ray delete no statements, so that a missing clip would go unseen.
"""

import argparse
import ast
import copy
import importlib
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import pytest
from scipy.stats import beta

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
FILES = [
    str(path.relative_to(ROOT))
    for place in ("privacy/*", "exchange/*", "course/*", "task/*", "meta/curator", "meta/plan")
    for path in sorted(ROOT.glob(f"skpmtl/{place}.py"))
]
OTHERS = "contract course meta search shards".split()
# What tests import and the package has no part in, so that forks need not.
LIBRARIES = "numba pandas polars sklearn.model_selection matplotlib.pyplot".split()

SWAPS = {
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.And: ast.Or,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
SWAPS = {new: old for old, new in SWAPS.items()} | SWAPS
NAMES = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil"}
NAMES |= {new: old for old, new in NAMES.items()}
# Calls that only tell people.
TELLS = {*"warn debug info warning error exception simplefilter".split()}
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # whose swap is the negation


class Mutant(NamedTuple):
    """One changed file."""

    file: str
    line: int
    text: str
    old: str
    new: str
    whole: bytes  # of the file
    begin: int  # of what is changed
    end: int
    within: str

    @property
    def source(self):
        before, after = self.whole[: self.begin], self.whole[self.end :]
        return (before + self.within.encode() + after).decode()

    def compiles(self):
        try:
            return bool(compile(self.source, self.file, "exec"))
        except SyntaxError:  # a pattern, a break outside of a loop
            return False

    @property
    def key(self):
        """The file, the text of the line and the change, wherever the line is now."""
        return self.file, self.text, self.old, self.new

    @property
    def tuned(self):
        """The key of a tuned number, whatever it is now: the names before "=", or the line."""
        return self.file, self.text.partition(" = ")[0], "*", "*"


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
                case ast.FunctionDef(decorator_list=[ast.Name("njit" | "inner")]):
                    pass
                case ast.Call(func=ast.Name("log") | ast.Attribute(ast.Name("self"), "log")):
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


def mutants(file, source, only=None):
    """All `Mutant` of a file, or those whose lines are, or begin with, texts `only`."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole, found = b"".join(lines), []
    for node in parts(ast.parse(source)):
        for place, new in changes(node):
            line = lines[place.lineno - 1].decode().strip()
            if only is not None and not {line, line.partition(" = ")[0]} & only:
                continue
            text = ast.unparse(new)
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            # Compiled loops are found by their line.
            lost = "\n" * (place.end_lineno - place.lineno)
            within = text + lost if isinstance(place, ast.stmt) else f"({text}{lost})"
            was = ast.unparse(place), text
            found.append(Mutant(file, place.lineno, line, *was, whole, begin, end, within))
    return found


def equivalents(path):
    """The keys of mutants that compute the same: "file || line || old || new || reason".

    Of a line of tuned numbers, for which no test has a truth, `old` and `new` are "*", and `line`
    is what stands before "=", if there is one.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split(" || ") for line in lines if line and not line.startswith("#")]
    return {(file, text, old, new) for file, text, old, new, reason in rows}


class Planted(SourceFileLoader):
    """Finds a mutant in the place of its module, and loads it."""

    def __init__(self, mutant):
        name = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        super().__init__(name, str(ROOT / mutant.file))
        self.code = compile(mutant.source, self.path, "exec", dont_inherit=True)

    def find_spec(self, name, path, target=None):
        if name == self.name:
            return spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname):
        return self.code


class Limit:
    """Plugin of pytest: ends after so many seconds, and keeps what failed.

    First there is one case of each test, then a second one, ...
    """

    def __init__(self, seconds):
        self.end, self.failed = time.process_time() + seconds, ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        seen, turns = Counter(), {}
        for item in items:
            test = item.nodeid.partition("[")[0]
            turns[item], seen[test] = seen[test], seen[test] + 1
        items.sort(key=turns.get)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        result = yield
        if time.process_time() > self.end:
            item.session.shouldstop = "no time is left"
        return result


def tests_of(file):
    """The tests of a file in parts: its own, those of all refusals, others that may notice it."""
    _, *rooms, name = Path(file).parts
    if rooms:
        own = (ROOT / "tests" / rooms[0].strip("_")).glob("test_*.py")
    else:
        own = (ROOT / "tests").glob(f"test_{name}")
    stem = Path(name).stem.strip("_")
    own = sorted(own, key=lambda path: (stem not in path.stem, path.stem))
    contract = ROOT / "tests" / "contract"
    others = [ROOT / "tests" / room for room in OTHERS if room not in rooms]
    return own, [contract / "test_bad_parameters.py"], others  # which has a case for every refusal


class Forks:
    """Runs mutants in forks of this process.

    Attributes
    ----------
    killed : dict of Mutant to str
        The test that failed, or "time".
    survived : list of Mutant
    broken : set of str
        Tests that fail without a mutant here; they are left out.
    """

    def __init__(self, each):
        self.each, self.killed, self.survived, self.broken, self.pipes = each, {}, [], set(), {}

    def run(self, drawn, minutes, processes):
        end, running = time.monotonic() + 60 * minutes, {}
        while (drawn and time.monotonic() < end) or running:
            while drawn and len(running) < processes and time.monotonic() < end:
                mutant = drawn.pop()
                if mutant.compiles():
                    running[self.fork(tests_of(mutant.file), mutant)] = mutant
            if not running:
                continue
            child, status = os.wait()
            mutant = running.pop(child)
            if not self.judge(mutant, self.outcome(child, status)):
                drawn.append(mutant)

    def fork(self, parts, mutant=None):
        """Run tests in a child. -> its id"""
        reading, writing = os.pipe()
        if child := os.fork():
            os.close(writing)
            self.pipes[child] = reading
            return child
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(60 + 3 * self.each),) * 2)
            signal.alarm(int(600 + 10 * self.each))  # one that waits takes no CPU time
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            if mutant is not None:
                sys.meta_path.insert(0, Planted(mutant))
            left_out = [f"--deselect={test}" for test in self.broken]
            for tests in filter(None, parts):
                given = ["-x", "-p", "no:xdist", "-p", "no:cacheprovider", *map(str, tests)]
                limit = Limit(self.each / len(parts))
                pytest.main([*given, *left_out], plugins=[limit])
                if limit.failed:
                    os.write(writing, limit.failed.encode())
                    break
        except BaseException as error:
            os.write(writing, f"! {error!r}"[:500].encode())
        os._exit(0)

    def outcome(self, child, status):
        """The test that failed in a child that has ended, "time", or "" if all passed."""
        with os.fdopen(self.pipes.pop(child)) as pipe:
            found = pipe.read()
        return found or ("time" if os.WIFSIGNALED(status) else "")

    def judge(self, mutant, failed):
        if failed.startswith("! "):
            print(f"{mutant.file}:{mutant.line} {mutant.new!r} cannot be put in: {failed[2:]}")
        elif not failed:
            self.survived.append(mutant)
            print(f"{mutant.file}:{mutant.line} survives: {mutant.text}", flush=True)
            print(f"- {mutant.old}\n+ {mutant.new}", flush=True)
        elif failed == "time" or self.sound(failed):
            self.killed[mutant] = failed
        else:
            print(f"{failed} fails without a mutant: it is left out.", flush=True)
            self.broken.add(failed)
            return False
        return True

    def sound(self, test):
        child = self.fork([[test]])
        return not self.outcome(*os.waitpid(child, 0))


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=float, default=90, help="seconds of tests for a mutant")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.9, help="share that is to be killed")
    asked = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    known = equivalents(EQUIVALENT)
    drawn = [m for file in asked.files for m in mutants(file, (ROOT / file).read_text())]
    drawn = [m for m in drawn if not {m.key, m.tuned} & known]
    print(f"{len(drawn)} mutants of {len(asked.files)} files", flush=True)
    random.Random(asked.seed).shuffle(drawn)
    found = Forks(asked.each)
    found.run(drawn, asked.minutes, asked.processes)
    k, n = len(found.killed), len(found.killed) + len(found.survived)
    low, high = interval(k, n)
    slow = list(found.killed.values()).count("time")
    print(f"{k} of {n} mutants killed, {slow} of them by the limit of time.")
    print(f"{k / max(n, 1):.1%}, 95 % interval {low:.1%} to {high:.1%}")
    return int(k < asked.least * n)


def interval(k, n):
    """Clopper-Pearson interval of a share at 95 %."""
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    return low, beta.ppf(0.975, k + 1, n - k) if k < n else 1.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
