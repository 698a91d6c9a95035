"""Benchmarks run, and results of a release have commands."""

import importlib
import itertools
import pkgutil

import pytest

from benchmarks import reproduce
from benchmarks.asv import speed
from benchmarks.asv.speed import errors
from benchmarks.command import ROOT
from benchmarks.command import stored as stored_rows

from ..helpers.public import NAMES, public


def benchmarks():
    """{name: (class, method, values of parameters)}, as asv finds them."""
    found = {}
    for info in pkgutil.iter_modules(speed.__path__):
        module = importlib.import_module(f"{speed.__name__}.{info.name}")
        for cls in vars(module).values():
            for method in dir(cls) if isinstance(cls, type) and cls.__name__[0] != "_" else ():
                if method.startswith(("time_", "peakmem_", "track_")):
                    for values in itertools.product(*getattr(cls, "params", ())):
                        label = f"{info.name}.{cls.__name__}.{method}({', '.join(values)})"
                        found[label] = cls, method, values
    return found


BENCHMARKS = benchmarks()


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_runs(name):
    cls, method, values = BENCHMARKS[name]
    case = cls()
    getattr(case, "setup", lambda *_: None)(*values)
    getattr(case, method)(*values)


def test_errors_of_every_estimator_are_compared():
    """One that is left out could become worse unseen."""
    whole = {"PerTask", "PrivateSearch", "TaskImputer", "TaskScaler"}  # around models of others
    for name in NAMES:
        if hasattr(public(name), "fit") and name not in whole and not name.endswith("CV"):
            assert any(name == cell[1] for cell in errors.CELLS), name


@pytest.mark.skipif(not (ROOT / reproduce.RESULTS).is_dir(), reason="needs the sources")
def test_each_result_has_a_command_and_a_release():
    made = set(reproduce.COMMANDS.values())
    results = ROOT / reproduce.RESULTS
    stored = {path.name for path in results.glob("*.csv")} - {"commits.csv"}
    assert stored <= made
    rows = stored_rows(results / "commits.csv", lambda row: row["file"])
    assert stored == rows.keys() and all(row["release"] for row in rows.values())
    table = (ROOT / "benchmarks" / "README.rst").read_text(encoding="utf-8")
    named = {command.split()[0].removeprefix("benchmarks.") for command in reproduce.COMMANDS}
    assert [name for name in sorted(named) if f"``{name}``" not in table] == []


@pytest.mark.slow  # imports all scripts
@pytest.mark.parametrize("command", reproduce.COMMANDS)
def test_each_command_is_understood(command, capsys):
    name, *given = command.split()
    module = importlib.import_module(name)
    with pytest.raises(SystemExit) as end:
        module.main([*given, "--help"])
    assert end.value.code == 0
    known = capsys.readouterr().out
    assert all(word in known for word in given if word.startswith("--"))
