"""The tool that changes the package and looks whether tests notice."""

import ast
import subprocess
import sys

import pytest

from tests import mutants

TOY = """
def clipped(x, bound: float = 2.0):
    '''One of 3 words.'''
    if bound < 0:
        raise ValueError("the bound is negative: give 1 or more" + "!")
    return min(x, bound)

FACTOR = 3

def tripled(x):
    return FACTOR * x

class Above:
    least = 1

    @property
    def chosen(self):
        return [item for item in (0, 1, 2) if item > self.least]

def cubed(x, scale=4.0):
    return scale * x**3

from dataclasses import dataclass

@dataclass
class Half:
    of: float = 8.0

    def __post_init__(self):
        self.half = self.of / 2.0
"""
TEST = """
from toy import FACTOR, Above, Half, clipped, cubed, tripled

def test_clipped():
    assert clipped(3, 2.0) == 2.0

def test_tripled():
    assert tripled(2) == FACTOR * 2 == 6

def test_above():
    assert Above().chosen == [2]

def test_default():
    assert cubed(1) == 4.0

def test_field():
    assert Half().half == 4.0
"""


def changed(source):
    return [(mutant.line, mutant.old, mutant.new) for mutant in mutants.mutants("toy.py", source)]


def test_texts_hints_and_raises_stay():
    assert sorted(changed(TOY)) == [
        (2, "2.0", "4.0"),
        (4, "0", "1"),
        (4, "bound < 0", "bound <= 0"),
        (4, "bound < 0", "not bound < 0"),
        (6, "min", "max"),
        (8, "3", "4"),
        (11, "FACTOR * x", "FACTOR / x"),
        (14, "1", "2"),
        (18, "0", "1"),
        (18, "1", "2"),
        (18, "2", "3"),
        (18, "item > self.least", "item >= self.least"),
        (18, "item > self.least", "not item > self.least"),
        (20, "4.0", "8.0"),
        (21, "3", "4"),
        (21, "scale * x ** 3", "scale / x ** 3"),
        (21, "x ** 3", "x * 3"),
        (27, "8.0", "16.0"),
        (30, "2.0", "4.0"),
        (30, "self.half = self.of / 2.0", "pass"),
        (30, "self.of / 2.0", "self.of * 2.0"),
    ]


@pytest.mark.parametrize(
    ("source", "news"),
    [
        ("a.append(b)", ["pass"]),
        ("a = 1e-9, 1e-3, 0.0", ["0.002", "1.0"]),
        ("a.b = 0", ["pass", "1"]),
        ("a += b", ["a -= b"]),
        ("a = not b and -c", ["not b or -c", "b", "c"]),
        ("a = [b for b in c if b == d]", ["b != d"]),
        ("for a in b:\n    continue", ["break"]),
        ("log.info(3)\na: int = True", ["pass", "False"]),
        ("log(t + 1, 2.0)\na = math.log(2.0)", ["pass", "4.0"]),
    ],
)
def test_what_is_changed(source, news):
    assert [new for *_, new in changed(source)] == news


TOOL = """
import sys
from pathlib import Path
from tests import mutants

mutants.ROOT = Path(sys.argv[1])
mutants.RECORD = mutants.ROOT / "build" / "mutants.json"
sys.path.insert(0, sys.argv[1])
files, tests = ["toy.py"], [sys.argv[1]]
found = mutants.measure(
    files, tests, mutants.record(files, tests), minutes=1, seed=0, each=10, processes=2,
    equivalent=mutants.equivalents(mutants.ROOT / "equivalent.txt"),
)
print({(m.line, m.new): test.partition("::")[2] for m, test in sorted(found.killed.items())})
print(sorted((m.line, m.new) for m in found.survived), sorted(found.broken))
"""


@pytest.mark.slow  # a program of its own
def test_toy(tmp_path):
    """Constants, defaults, members and nested code are replaced where they are already in use."""
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "test_toy.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "equivalent.txt").write_text(
        "# file || line || old || new || reason\n"
        "toy.py || if bound < 0: || bound < 0 || not bound < 0 || toy\n"
        "toy.py || if bound < 0: || bound < 0 || bound <= 0 || toy\n"
        "toy.py || if bound < 0: || 0 || 1 || toy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", TOOL, str(tmp_path)],
        cwd=mutants.ROOT,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    *_, killed, survived = done.stdout.splitlines()
    assert ast.literal_eval(killed) == {
        (6, "max"): "test_clipped",
        (8, "4"): "test_tripled",
        (11, "FACTOR / x"): "test_tripled",
        (14, "2"): "test_above",
        (18, "2"): "test_above",
        (18, "3"): "test_above",
        (18, "item >= self.least"): "test_above",
        (18, "not item > self.least"): "test_above",
        (20, "8.0"): "test_default",
        (21, "x * 3"): "test_default",
        (27, "16.0"): "test_field",
        (30, "4.0"): "test_field",
        (30, "pass"): "test_field",
        (30, "self.of * 2.0"): "test_field",
    }
    # The tests give a bound always, and numbers for which these make no difference.
    left = [(2, "4.0"), (18, "1"), (21, "4"), (21, "scale / x ** 3")]
    assert survived == f"{left} []"
    assert (tmp_path / "toy.py").read_text() == TOY


@pytest.mark.skipif(not (mutants.ROOT / "skpmtl").is_dir(), reason="needs the sources")
def test_equivalent_mutants_are_mutants():
    """A line of the list that no longer fits the source hides nothing, and goes."""
    keys = mutants.equivalents(mutants.EQUIVALENT)
    for file in {file for file, *_ in keys}:
        own = {key for key in keys if key[0] == file}
        texts = {text for _, text, _, _ in own}
        found = mutants.mutants(file, (mutants.ROOT / file).read_text(), texts)
        assert own <= {mutant.key for mutant in found} | {mutant.tuned for mutant in found}
