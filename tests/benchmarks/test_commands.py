"""Benchmarks cover all estimators, and results of a release have commands."""

import importlib
import itertools
import json
import pkgutil
import re

import numpy as np
import pytest
from scipy import stats

from benchmarks import reproduce
from benchmarks.accuracy import commits
from benchmarks.asv import speed
from benchmarks.checkouts import ROOT

from ..helpers.public import NAMES, public


def benchmarks():
    """{name: (class, method, values of parameters)}, as asv finds them."""
    found = {}
    for info in pkgutil.iter_modules(speed.__path__):
        module = importlib.import_module(f"{speed.__name__}.{info.name}")
        for cls in vars(module).values():
            for method in dir(cls) if isinstance(cls, type) and cls.__name__[0] != "_" else ():
                if method.startswith(("time_", "peakmem_")):
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


def test_every_estimator_is_in_both_sets():
    """One that is in neither could become slower, or worse, unseen."""
    whole = {"PerTask", "PrivateSearch", "TaskImputer", "TaskScaler"}  # around models of others
    for name in NAMES:
        if not hasattr(public(name), "fit"):
            continue
        found = re.compile(rf"\b{name}\b").search
        assert any(map(found, BENCHMARKS)), name
        if name not in whole and not name.endswith("CV"):
            assert any(map(found, commits.CELLS)), name


def test_intervals_are_scored_by_width_and_by_what_they_miss():
    """The score is proper: the mean is least at the quantiles of 5 and 95 %."""
    y = stats.norm.ppf(np.linspace(0.0005, 0.9995, 1000))
    best = stats.norm.ppf(0.95)
    scores = [
        commits.interval_score(np.tile([-bound, bound], (1000, 1)), y)
        for bound in (0.9 * best, best, 1.1 * best)
    ]
    assert scores[1] < min(scores[0], scores[2])
    # E|Z| beyond a quantile: 2 (pdf(q) - (1 - F(q)) q), over .05 on each side
    mean = 2.0 * best + 40.0 * (stats.norm.pdf(best) - 0.05 * best)
    assert scores[1] == pytest.approx(mean, rel=0.01)


@pytest.mark.skipif(not (ROOT / reproduce.RESULTS).is_dir(), reason="needs the sources")
def test_each_result_has_a_command_and_a_release():
    made = {file for files in reproduce.COMMANDS.values() for file in files}
    results = ROOT / reproduce.RESULTS
    stored = {path.name for path in results.glob("*.csv")} - {"commits.csv"}
    assert stored <= made
    rows = reproduce.read(results / "commits.csv")
    assert stored == rows.keys() and all(row["release"] for row in rows.values())
    table = (ROOT / "benchmarks" / "README.rst").read_text(encoding="utf-8")
    words = [command.removeprefix("benchmarks.").split() for command in reproduce.COMMANDS]
    named = {" ".join(given[: 2 if given[0] == "run" else 1]) for given in words}
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


def test_a_release_is_measured_once(monkeypatch, tmp_path, capsys):
    results = tmp_path / reproduce.RESULTS
    results.mkdir(parents=True)
    commands = {
        f"json.tool {name}.json out-{name}": [f"{name}.csv"] for name in ("one", "bad", "two")
    }
    (tmp_path / "one.json").write_text(json.dumps([1]))
    (tmp_path / "two.json").write_text(json.dumps([2]))
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce, "COMMANDS", commands)
    monkeypatch.setattr(reproduce, "git", lambda *words: "abc" if "rev-parse" in words else "")
    assert reproduce.main([]) == 1  # "bad" has no input
    assert (tmp_path / "out-one").exists() and (tmp_path / "out-two").exists()
    rows = reproduce.read(results / "commits.csv")
    assert set(rows) == {"one.csv", "two.csv"} and rows["one.csv"]["commit"] == "abc"
    (tmp_path / "out-one").unlink()
    assert reproduce.main(["--only", "one"]) == 0 and not (tmp_path / "out-one").exists()
    assert reproduce.main(["--only", "one", "--again"]) == 0 and (tmp_path / "out-one").exists()
    (tmp_path / "out-one").unlink()
    monkeypatch.setattr(reproduce, "__version__", "9.9")
    assert reproduce.main(["--only", "one"]) == 0 and (tmp_path / "out-one").exists()
    assert reproduce.read(results / "commits.csv")["one.csv"]["release"] == "9.9"
