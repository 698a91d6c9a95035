"""The demonstration: what it prints and draws, on generated data and on School."""

import re

import pytest

from skpmtl.__main__ import main


@pytest.fixture(autouse=True)
def no_local_copy(monkeypatch, tmp_path):
    monkeypatch.delenv("SKPMTL_SCHOOL", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


def errors(text):
    """Rows of the printed table: method -> nMSE."""
    rows = re.findall(r"^(\S.*?) {2,}(\d\.\d{4}) {2,}\d\.\d{4}$", text, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def test_generated_tasks(capsys, tmp_path):
    picture = tmp_path / "study.png"
    main(["--quick", "--output", str(picture)])
    printed = capsys.readouterr()
    assert "Data: generated" in printed.out and "fetch_school" in printed.err
    assert "[12/12]" in printed.err
    table = errors(printed.out)
    alone, tuned, pooled = "each task alone", "alone, tuned together", "one model for all"
    exact, *private = "joint, not private", "private, epsilon 1", "private, epsilon 10"
    assert list(table) == [alone, tuned, pooled, exact, *private]
    # Four unrelated blocks of equal tasks: joint helps, one model for all does not.
    assert table[exact] < table[private[1]] < table[tuned] < table[pooled]
    assert "epsilon" in printed.out.split("Privacy report")[1]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_school(capsys, tmp_path, school_mat):
    main(["--quick", "--data", str(school_mat), "--output", str(tmp_path / "study.png")])
    printed = capsys.readouterr().out
    assert "Data: School" in printed and "15362 pupils of 139 schools" in printed
    table = errors(printed)
    assert all(0.6 < value < 0.8 for value in table.values()), table
    assert table["private, epsilon 10"] < table["each task alone"]


@pytest.mark.parametrize("arguments", ["--epsilon 0", "--epsilon inf", "--repeats 0"])
def test_bad_arguments_end_before_the_study(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    assert "repeats must be at least 1" in capsys.readouterr().err


def test_missing_file_is_named(tmp_path):
    with pytest.raises(SystemExit, match="gone.mat"):
        main(["--data", str(tmp_path / "gone.mat")])
