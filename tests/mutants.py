"""Share of small faults that the default tests notice: python -m tests.mutants [FILES].

A mutant is the package with one expression or statement changed. It is killed when a default test
fails or takes too long. Those of `FILES` are drawn at random until the minutes are over. Survivors
that compute the same as the original belong into ``mutants_equivalent.txt``, with the reason.
Texts, type hints, decorators, logging, what is raised, ``strict=``, compiled loops and tolerances
(numbers below 1e-6) are not changed.

One process imports the package and collects the tests, and a fork of it runs each mutant: code,
defaults and constants are replaced in place. It gets the tests that reach the changed line, as
recorded by coverage (``build/mutants.json``, made anew with --record, or for some tests with
--record TESTS), and no more than --each seconds of them: the shortest for half
of that time, where cases of one function, and tests of other folders, count for longer than they
are; and those that run most of the file, one case of each. Of these, tests that have killed other
mutants of the file come first. Tests that start programs of their own see no mutant there.

Of the tools at hand, mutmut runs all mutants of a file, in its own layout, and the operators of
cosmic-ray delete no statements, so that a missing clip would go unseen.
"""

import argparse
import ast
import copy
import dataclasses
import functools
import gc
import importlib
import inspect
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import beta

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
RECORD = ROOT / "build" / "mutants.json"
FILES = [
    str(path.relative_to(ROOT))
    for place in ("privacy/*", "exchange/*", "course/*", "task/*", "meta/curator", "meta/plan")
    for path in sorted(ROOT.glob(f"skpmtl/{place}.py"))
]
ROOMS = "privacy exchange course task structures model_protected mean_regularized meta contract "
ROOMS += "federated search shards"
TESTS = [f"tests/{room}" for room in ROOMS.split()]
TESTS += [f"tests/test_{name}.py" for name in ("counts", "planning", "scale", "uncertainty")]

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
    end: int
    text: str
    old: str
    new: str
    original: str
    source: str

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
            within = text if isinstance(place, ast.stmt) else f"({text})"
            changed = (whole[:begin] + within.encode() + whole[end:]).decode()
            try:
                compile(changed, file, "exec")
            except SyntaxError:  # a pattern, a break outside of a loop
                continue
            at = file, place.lineno, place.end_lineno, line
            found.append(Mutant(*at, ast.unparse(place), text, source, changed))
    return found


def equivalents(path):
    """The keys of mutants that compute the same: "file || line || old || new || reason".

    Of a line of tuned numbers, for which no test has a truth, `old` and `new` are "*", and `line`
    is what stands before "=", if there is one.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split(" || ") for line in lines if line and not line.startswith("#")]
    return {(file, text, old, new) for file, text, old, new, reason in rows}


class Lines:
    """Plugin of pytest: which test runs which lines of the package, and its seconds.

    A mutant meets each test in a fresh process, so every test has the lines that it would run
    alone: the caches of functions are emptied before it, and what runs in a shared fixture counts
    for all tests that use it. Tests that start programs are left out.
    """

    def __init__(self, known):
        os.environ.setdefault("COVERAGE_CORE", "ctrace")  # the newer one has no contexts
        given = {"data_file": None, "config_file": False, "source": [str(ROOT / "skpmtl")]}
        self.coverage, self.found = importlib.import_module("coverage").Coverage(**given), known
        self.starts, self.seconds, self.caches = False, {}, []
        self.users = defaultdict(list)  # of a shared fixture
        sys.addaudithook(self.hear)
        start = multiprocessing.process.BaseProcess.start

        def started(process):
            self.starts = True
            return start(process)

        multiprocessing.process.BaseProcess.start = started

    def hear(self, event, arguments):
        self.starts |= event in ("subprocess.Popen", "os.fork", "os.posix_spawn")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self):
        load_kernels()
        self.caches = [
            value
            for name, module in list(sys.modules.items())
            if name.startswith(("skpmtl", "tests"))
            for value in vars(module).values()
            if hasattr(value, "cache_clear")
        ]
        self.coverage.start()
        try:
            return (yield)
        finally:
            self.coverage.stop()
            self.write()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        if fixturedef.scope != "function":
            self.coverage.switch_context(f"fixture {id(fixturedef)}")
        try:
            return (yield)
        finally:
            self.coverage.switch_context(self.test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        for cache in self.caches:
            cache.cache_clear()
        self.test, self.starts, start = item.nodeid, False, time.process_time()
        self.coverage.switch_context(self.test)
        try:
            return (yield)
        finally:
            for fixture in itertools.chain(*item._fixtureinfo.name2fixturedefs.values()):
                self.users[f"fixture {id(fixture)}"].append(self.test)
            if not self.starts:
                self.seconds[self.test] = time.process_time() - start

    def write(self):
        """Keep the seconds and lines of every test."""
        data, lines = self.coverage.get_data(), defaultdict(lambda: defaultdict(list))
        for path in data.measured_files():
            file = str(Path(path).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(path).items():
                for test in {t for name in contexts for t in self.users.get(name, [name])}:
                    lines[test][file].append(line)
        self.found |= {test: (seconds, lines[test]) for test, seconds in self.seconds.items()}
        RECORD.write_text(json.dumps(self.found))


def load_kernels():
    """Load all compiled loops that are kept on the disk: forks then need not load them each."""
    for name, module in list(sys.modules.items()):
        if name.startswith("skpmtl._kernels."):
            for kernel in vars(module).values():
                file = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
                for signature, *_ in file._load_index() if file else ():
                    kernel.compile(signature)


WRAPPED = {
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    functools.partial: ("func",),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
}


def functions(module):
    """-> dict: (qualified name, line) -> functions of a module, of its classes and constants"""
    found, seen = defaultdict(list), set()

    def visit(value):
        if id(value) in seen:
            return
        seen.add(id(value))
        for name in WRAPPED.get(type(value), ("__wrapped__",)):
            if not isinstance(value, type) and (inner := getattr(value, name, None)) is not None:
                visit(inner)
        if isinstance(value, types.FunctionType):
            if value.__code__.co_filename == module.__file__:
                found[value.__code__.co_qualname, value.__code__.co_firstlineno].append(value)
            for cell in value.__closure__ or ():  # of decorators without `functools.wraps`
                try:
                    if callable(cell.cell_contents):
                        visit(cell.cell_contents)
                except ValueError:  # still empty
                    pass
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                visit(member)
        elif isinstance(value, dict | list | tuple):
            for member in value.values() if isinstance(value, dict) else value:
                visit(member)

    for value in list(vars(module).values()):
        visit(value)
    return found


def codes(code):
    """Yield the codes of the functions of a module and of its classes."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            if not part.co_flags & inspect.CO_NEWLOCALS:  # the body of a class
                yield from codes(part)
            elif not part.co_name.startswith("<") or part.co_name == "<lambda>":
                yield part


PLAIN = (bool, int, float, str, tuple, frozenset, dict, list, set, type(None))
PLAIN += (np.ndarray, np.generic)


def replace(mutant):
    """Put a mutant in the place of what this process has imported."""
    module = sys.modules[mutant.file.removesuffix(".py").replace("/", ".")]
    code = compile(mutant.source, module.__file__, "exec")
    live, changed = functions(module), False
    before = compile(mutant.original, module.__file__, "exec")
    for old, new in zip(codes(before), codes(code), strict=True):
        if old != new:
            changed = True
            for function in live[old.co_qualname, old.co_firstlineno]:
                function.__code__ = new.replace(co_firstlineno=function.__code__.co_firstlineno)
    if changed:
        return
    # Outside of functions: constants, defaults and members of classes.
    other = types.ModuleType(module.__name__)
    other.__file__, other.__package__ = module.__file__, module.__package__
    exec(code, vars(other))
    news = {name: found[0] for (name, _), found in functions(other).items()}
    for (name, _), found in live.items():
        for function in found if name in news else ():
            function.__defaults__ = news[name].__defaults__
            function.__kwdefaults__ = news[name].__kwdefaults__
    holders = [(vars(module), vars(other))]
    for name, value in vars(other).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            holders.append((vars(module)[name], vars(value)))
            if dataclasses.is_dataclass(value):  # whose __init__ is of no file
                replace_defaults(vars(module)[name].__init__, value.__init__)
    for holder, news in holders:
        members = holder if isinstance(holder, dict) else vars(holder)
        for name, new in list(news.items()):
            old = members.get(name)
            if name.startswith("__") or not isinstance(new, PLAIN) or repr(new) == repr(old):
                continue
            if not isinstance(holder, dict):
                setattr(holder, name, new)
                continue
            for one in list(sys.modules.values()):
                if getattr(one, "__dict__", {}).get(name) is old:
                    setattr(one, name, new)


def replace_defaults(old, new):
    """Plain default values of a function for those of another one."""
    if old.__defaults__:
        old.__defaults__ = tuple(
            b if isinstance(b, PLAIN) else a
            for a, b in zip(old.__defaults__, new.__defaults__, strict=True)
        )


class Forks:
    """Plugin of pytest: in place of running the tests, runs mutants in forks of this process.

    Attributes
    ----------
    killed : dict of Mutant to str
        The test that failed, or "time".
    survived : list of Mutant
    broken : set of str
        Tests that fail without a mutant here; they are left out.
    """

    def __init__(self, files, record, *, minutes, seed, each, processes, equivalent):
        self.files, self.record, self.each, self.processes = files, record, each, processes
        self.end, self.seed, self.equivalent = time.monotonic() + 60 * minutes, seed, equivalent
        self.killed, self.survived, self.broken, self.pipes = {}, [], set(), {}
        self.kills = Counter()  # of tests, by file

    def pytest_runtestloop(self, session):
        self.items = {item.nodeid: item for item in session.items}
        self.by_line = defaultdict(set)
        for test, (_, lines) in self.record.items():
            if test in self.items:
                for file, numbers in lines.items():
                    for line in (None, *numbers):
                        self.by_line[file, line].add(test)
        drawn = [m for file in self.files for m in mutants(file, (ROOT / file).read_text())]
        drawn = [m for m in drawn if not {m.key, m.tuned} & self.equivalent]
        print(f"\n{len(drawn)} mutants of {len(self.files)} files", flush=True)
        random.Random(self.seed).shuffle(drawn)
        load_kernels()
        gc.freeze()
        running = {}
        while (drawn and time.monotonic() < self.end) or running:
            while drawn and len(running) < self.processes and time.monotonic() < self.end:
                mutant = drawn.pop()
                if tests := self.tests(mutant):
                    running[self.fork(tests, mutant)] = mutant, tests
                else:
                    self.survive(mutant, "no test gets there")
            if running:
                child, status = os.wait()
                mutant, tests = running.pop(child)
                if not self.judge(mutant, tests, self.outcome(child, status)):
                    drawn.append(mutant)
        return True

    def tests(self, mutant):
        """The tests that reach a mutant, in the order in which they run."""
        lines = range(mutant.line, mutant.end + 1)
        found = set().union(*(self.by_line[mutant.file, line] for line in lines))
        found = (found or self.by_line[mutant.file, None]) - self.broken
        order, count, wide = [], defaultdict(int), {}
        own = f"tests/{Path(mutant.file).parent.name}/"  # what is written for these lines
        for test in sorted(found, key=self.seconds):
            function = test.partition("[")[0]
            count[function] += 1  # its cases are alike
            cost = self.seconds(test) * count[function] * (1.0 if test.startswith(own) else 4.0)
            order.append((cost, test))
            wide.setdefault(function, test)
        short = [test for _, test in sorted(order)]
        wide = sorted(wide.values(), key=lambda test: -len(self.record[test][1][mutant.file]))
        chosen, left = short[:1], self.each - sum(map(self.seconds, short[:1]))
        for tests, rest in ((short, 0.5 * self.each), (wide, 0.0)):
            for test in tests:
                if test not in chosen and left - self.seconds(test) >= rest:
                    left -= self.seconds(test)
                    chosen.append(test)
        return sorted(chosen, key=lambda test: (-self.kills[mutant.file, test], self.seconds(test)))

    def seconds(self, test):
        return self.record[test][0]

    def fork(self, tests, mutant=None):
        """Run tests in a child. -> its id"""
        reading, writing = os.pipe()
        if child := os.fork():
            os.close(writing)
            self.pipes[child] = reading
            return child
        try:
            seconds = sum(map(self.seconds, tests))
            resource.setrlimit(resource.RLIMIT_CPU, (int(30 + 5 * seconds),) * 2)
            signal.alarm(int(90 + 10 * seconds))  # one that waits takes no CPU time
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            self.told = writing
            if mutant is not None:
                replace(mutant)
            items = [self.items[test] for test in tests]
            for item, following in itertools.zip_longest(items, items[1:]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException as error:
            os.write(writing, f"! {error!r}"[:500].encode())
        os._exit(0)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            os.write(self.told, report.nodeid.encode())
            os._exit(1)

    def outcome(self, child, status):
        """The test that failed in a child that has ended, "time", or "" if all passed."""
        with os.fdopen(self.pipes.pop(child)) as pipe:
            found = pipe.read()
        return found or ("time" if os.WIFSIGNALED(status) else "")

    def judge(self, mutant, tests, failed):
        if failed.startswith("! "):
            print(f"{mutant.file}:{mutant.line} {mutant.new!r} cannot be put in: {failed[2:]}")
        elif not failed:
            self.survive(mutant, f"{len(tests)} tests")
        elif failed == "time" or self.sound(failed):
            self.killed[mutant] = failed
            self.kills[mutant.file, failed] += 1
        else:
            print(f"{failed} fails without a mutant: it is left out.", flush=True)
            self.broken.add(failed)
            return False
        return True

    @functools.cache  # noqa: B019
    def sound(self, test):
        child = self.fork([test])
        return not self.outcome(*os.waitpid(child, 0))

    def survive(self, mutant, why):
        self.survived.append(mutant)
        print(f"{mutant.file}:{mutant.line} survives ({why}): {mutant.text}", flush=True)
        print(f"- {mutant.old}\n+ {mutant.new}", flush=True)


def record(tests, known):
    """The lines that each test runs, and its seconds; of others what is `known`."""
    child = os.fork()
    if child == 0:
        RECORD.parent.mkdir(exist_ok=True)
        given = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", *tests]
        pytest.main(given, plugins=[Lines(known)])
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(RECORD.read_text())


def measure(files, tests, lines, **how):
    """-> `Forks` that ran mutants of the files with these tests"""
    forks = Forks(files, lines, **how)
    pytest.main(["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", *tests], plugins=[forks])
    return forks


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=float, default=60, help="seconds of tests for a mutant")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.9, help="share that is to be killed")
    parser.add_argument("--record", nargs="*", metavar="TESTS", help="trace these anew, or all")
    asked = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if asked.record is not None or not known:
        again = tuple(asked.record or ("tests/",))
        known = {test: value for test, value in known.items() if not test.startswith(again)}
        known = record(asked.record or TESTS, known)
    found = measure(
        asked.files,
        TESTS,
        known,
        minutes=asked.minutes,
        seed=asked.seed,
        each=asked.each,
        processes=asked.processes,
        equivalent=equivalents(EQUIVALENT),
    )
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
