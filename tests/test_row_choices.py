"""Calls that could let the rows of all tasks choose together are listed, each with a reason."""

from tests.row_choices import ROOT, WITHOUT_ROWS, calls, differences, listed


def test_calls_that_choose_by_rows_are_listed_with_reasons():
    """``python -m tests.row_choices`` prints the lines that are missing."""
    known = listed()
    new, gone = differences(calls(), known)
    assert not new, f"look at these and add them to tests/row_choices.csv: {new}"
    assert not gone, f"these are gone, delete them from tests/row_choices.csv: {gone}"
    assert all(reason.strip() for _, reason in known.values())


def test_modules_without_rows_exist():
    assert all((ROOT / "skpmtl" / name).exists() for name in WITHOUT_ROWS)


def test_a_new_call_and_one_that_is_gone_are_found(tmp_path):
    (tmp_path / "module.py").write_text(
        "import numpy as np\n"
        "class A:\n    def f(self, x):\n        return np.sort(x), x.max(), max(x), np.sort(x)\n"
        "order = np.argsort([2, 1])\n"
    )
    found = calls(tmp_path)
    assert found == {
        ("module.py", "A.f", "sort"): 2,
        ("module.py", "A.f", "max"): 1,
        ("module.py", "-", "argsort"): 1,
    }
    known = {key: (count, "public") for key, count in found.items()}
    assert differences(found, known) == ({}, [])
    assert differences(found, known | {("module.py", "g", "min"): (1, "public")})[1]
    known["module.py", "A.f", "sort"] = 1, "public"
    assert list(differences(found, known)[0]) == [("module.py", "A.f", "sort")]
