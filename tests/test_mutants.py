"""The tool that changes the package and looks whether tests notice."""

import pytest

from tests import mutants

TOY = """
def clipped(x, bound: float = 2.0):
    '''One of 3 words.'''
    if bound < 0:
        raise ValueError("the bound is negative: give 1 or more" + "!")
    return min(x, bound)
"""
TEST = """
from toy import clipped

def test_clipped():
    assert clipped(3, 2.0) == 2.0
"""


def changed(source):
    return [(mutant.line, mutant.old, mutant.new) for mutant in mutants.mutants("toy.py", source)]


def test_texts_hints_and_raises_stay():
    assert changed(TOY) == [
        (2, "2.0", "4.0"),
        (4, "bound < 0", "not bound < 0"),
        (4, "bound < 0", "bound <= 0"),
        (4, "0", "1"),
        (6, "min", "max"),
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
    ],
)
def test_what_is_changed(source, news):
    assert [new for *_, new in changed(source)] == news


def test_toy(tmp_path, capsys):
    """The test notices max in place of min, but not another default; the rest is equivalent."""
    tmp_path /= "toy"
    tmp_path.mkdir()
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    told = tmp_path / "equivalent.txt"
    told.write_text(
        "# file || line || old || new || reason\n"
        "toy.py || if bound < 0: || bound < 0 || not bound < 0 || toy\n"
        "toy.py || if bound < 0: || bound < 0 || bound <= 0 || toy\n"
        "toy.py || if bound < 0: || 0 || 1 || toy\n"
    )
    killed, survived = mutants.measure(
        tmp_path, ["toy.py"], {"toy": ["test_toy.py"]}, minutes=1, seed=0, limit=60,
        equivalent=mutants.equivalents(told), processes=1,
    )  # fmt: skip
    assert {mutant.new: test for mutant, test in killed.items()} == {
        "max": "tests/test_toy.py::test_clipped"
    }
    assert [mutant.new for mutant in survived] == ["4.0"]
    assert "toy.py:2 survives:\n- 2.0\n+ 4.0" in capsys.readouterr().out
    assert (tmp_path / "toy.py").read_text() == TOY


def test_each_file_has_tests():
    for file in mutants.FILES:
        for path in mutants.tests_of(file, mutants.TESTS):
            assert (mutants.ROOT / path).exists()


@pytest.mark.skipif(not (mutants.ROOT / "skpmtl").is_dir(), reason="needs the sources")
def test_equivalent_mutants_are_mutants():
    """A line of the list that no longer fits the source hides nothing, and goes."""
    keys = mutants.equivalents(mutants.EQUIVALENT)
    for file in {file for file, *_ in keys}:
        found = mutants.mutants(file, (mutants.ROOT / file).read_text())
        assert {key for key in keys if key[0] == file} <= {mutant.key for mutant in found}
