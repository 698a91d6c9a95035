"""Comparisons of commits: intervals, alarms and pairing, on samples whose truth is known."""

import csv
import importlib
import json
import re

import numpy as np
import pytest
from scipy import stats

from benchmarks import compare
from benchmarks.accuracy import commits
from benchmarks.asv import worker
from benchmarks.checkouts import ROOT
from benchmarks.reproduce import __main__ as reproduce

from ..helpers.public import NAMES, public


def samples(rng, factor, pairs=8, turns=6, noise=0.03, bursts=2.0):
    """Seconds of two commits in pairs of processes, each of which has its own small handicap.

    Other work on the machine adds to them, in bursts of up to `bursts` times what a sample takes.
    """
    seconds = np.exp(noise * rng.standard_normal((pairs, 1, 2))) * (factor, 1.0)
    load = np.where(rng.random((pairs, turns, 2)) < 0.4, bursts * rng.random((pairs, turns, 2)), 0)
    return (seconds * (1.0 + load)).tolist()


def test_the_interval_covers_the_ratio_as_often_as_stated():
    rng = np.random.default_rng(0)
    found = [compare.compared(samples(rng, 1.07)) for _ in range(2000)]
    missed = np.mean([not one.low <= 1.07 <= one.high for one in found])
    # At most 1 - LEVEL, with five standard errors of 2,000 runs.
    assert missed <= 0.01 + 5 * np.sqrt(0.01 * 0.99 / 2000)
    assert np.mean([one.ratio for one in found]) == pytest.approx(1.07, rel=0.005)


def test_alarms_are_for_slowdowns_alone():
    rng = np.random.default_rng(1)
    assert not any(compare.compared(samples(rng, 1.0)).alarm for _ in range(300))
    found = [compare.compared(samples(rng, 1.15, pairs=16)) for _ in range(300)]
    assert np.mean([one.alarm for one in found]) > 0.98
    faster = [compare.compared(samples(rng, 0.8, pairs=16)) for _ in range(100)]
    assert not any(one.alarm for one in faster) and np.mean([one.faster for one in faster]) > 0.9


def test_a_loss_of_many_benchmarks_is_seen_without_an_alarm(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)

    def found(slower=()):
        ratios = {}
        for name in compare.benchmarks():
            ratio = np.exp(0.02 * rng.standard_normal()) * (
                1.08 if any(word in name for word in slower) else 1.0
            )
            ratios[name] = compare.Ratio(ratio, 0.9 * ratio, 1.1 * ratio, ratio, 1.0, 4)
        return ratios

    assert compare.shared(found()) == {}
    seen = compare.shared(found(["counts"]))
    assert "counts" in seen and 1.05 < seen["counts"][0] < 1.11 and "classes" not in seen
    whole = compare.shared(found(["DPMetaInit"]))  # the classifier as well
    assert {"DPMetaInit", "DPMetaInitClassifier"} >= set(whole) and "DPMetaInit" in whole
    monkeypatch.setattr(compare, "checkout", lambda revision: (revision, tmp_path))
    monkeypatch.setattr(compare, "git", lambda *_: "")
    names = [name for name in compare.benchmarks() if "Classifier" in name]
    monkeypatch.setattr(
        compare, "measure", lambda *_, **__: ({name: [[(1.07, 1.0)]] * 4 for name in names}, {})
    )
    assert compare.main(["before"]) == 1
    out = capsys.readouterr().out
    assert "in common" in out and "SLOWER" not in out


def test_a_slower_commit_ends_with_status_1_and_is_stored(monkeypatch, tmp_path, capsys):
    name = "fits.School.time_fit(trace)"

    def measured(ratio):
        return lambda *_, **__: ({name: [[(ratio, 1.0)]] * 8}, {})

    monkeypatch.setattr(compare, "checkout", lambda revision: (revision, tmp_path))
    monkeypatch.setattr(compare, "git", lambda *_: "")
    monkeypatch.setattr(compare, "measure", measured(1.2))
    path = tmp_path / "speed.csv"
    assert compare.main(["before", "--only", name, "--store", str(path)]) == 1
    assert "CHANGELOG.rst" in capsys.readouterr().out
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["commit"], row["against"], row["ratio"]) == ("HEAD", "before", "1.200")
    assert row["machine"] and row["benchmark"] == name
    monkeypatch.setattr(compare, "measure", measured(1.05))
    assert compare.main(["before", "--only", name]) == 0
    assert compare.main(["before", "--only", "no such name"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.benchmarks())
def test_each_benchmark_runs(name):
    try:
        assert worker.Measured(*worker.benchmarks()[name]).value(0.0) > 0.0
    except NotImplementedError as reason:
        assert "federation" in name, reason


def test_every_estimator_is_in_both_sets():
    """One that is in neither could become slower, or worse, unseen."""
    whole = {"PerTask", "PrivateSearch", "TaskImputer", "TaskScaler"}  # around models of others
    for name in NAMES:
        if not hasattr(public(name), "fit"):
            continue
        found = re.compile(rf"\b{name}\b").search
        assert any(map(found, worker.benchmarks())), name
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
