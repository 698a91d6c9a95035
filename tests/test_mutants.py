"""The tool that changes the package and looks whether tests notice."""

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


@pytest.mark.skipif(not (mutants.ROOT / "skpmtl").is_dir(), reason="needs the sources")
def test_equivalent_mutants_are_mutants():
    """A line of the list that no longer fits the source hides nothing, and goes."""
    keys = mutants.equivalents(mutants.EQUIVALENT)
    for file in {file for file, *_ in keys}:
        own = {key for key in keys if key[0] == file}
        texts = {text for _, text, _, _ in own}
        found = mutants.mutants(file, (mutants.ROOT / file).read_text(), texts)
        assert own <= {mutant.key for mutant in found} | {mutant.tuned for mutant in found}
