"""Comparisons of commits: intervals, alarms and pairing, on samples whose truth is known."""

import csv
import importlib
import json
import re

import numpy as np
import pytest
from scipy import stats

from benchmarks import accuracy, compare
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


def test_the_number_of_a_process_is_a_low_sample_but_not_the_lowest_of_many():
    assert compare.quartile([3.0]) == 3.0 and compare.quartile([5.0, 4.0, 6.0, 7.0]) == 4.0
    assert compare.quartile([9.0, 1.0, 3.0, 2.0, 8.0]) == 2.0


def test_pairing_removes_what_both_sides_share():
    """Pairs that differ a hundredfold, by exactly 12 % within each."""
    load = np.geomspace(1.0, 100.0, 12)
    mixed = np.random.default_rng(0).permutation(load)
    found = compare.compared([[pair] for pair in zip(1.12 * load, mixed, strict=True)])
    assert found.high / found.low > 2 and not found.alarm
    found = compare.compared([[pair] for pair in zip(1.12 * load, load, strict=True)])
    assert found.low == pytest.approx(1.12) and found.high == pytest.approx(1.12) and found.alarm


def test_what_many_benchmarks_lose_is_seen_where_none_is_an_alarm(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)

    def found(slower=()):
        ratios = {}
        for name in compare.benchmarks():
            ratio = np.exp(0.02 * rng.standard_normal()) * (
                1.08 if any(word in name for word in slower) else 1.0
            )
            ratios[name] = compare.Ratio(ratio, 0.98 * ratio, 1.02 * ratio, ratio, 1.0, 4)
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


def test_few_pairs_give_their_range():
    found = compare.compared([[(1.0, 1.0)], [(3.0, 1.0)], [(2.0, 1.0)]])
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 1.0, 3.0))
    assert not found.alarm  # an interval that reaches 1


class Machine:
    """Sides that are as fast as it says."""

    def __init__(self, seconds=()):
        self.requests, self.opened, self.seconds = [], 0, dict(seconds)

    def side(self, folder):
        self.opened += 1
        machine = self

        class Side:
            def value(self, name, least):
                machine.requests.append((folder, name))
                if name == "lacking":
                    return {"error": "AttributeError"} if folder == "old" else {"value": 1.0}
                return {"value": machine.seconds.get((folder, name), 1.0)}

            def close(self):
                machine.opened -= 1

        return Side()


def test_both_sides_take_turns_in_processes_that_end(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(compare, "Side", machine.side)
    names = {"a": None, "lacking": None, "own": 1}
    found, faults = compare.measure(("new", "old"), names, 2, note=lambda *_, **__: None)
    assert machine.opened == 0
    assert set(found) == {"a", "own"} and set(faults) == {"lacking"}
    assert [len(pair) for pair in found["a"] + found["own"]] == [4, 4, 1]
    order = [folder for folder, name in machine.requests if name == "a"]
    # Adjacent samples are of different sides, and each side is first as often as the other.
    assert all(set(order[i : i + 2]) == {"new", "old"} for i in range(0, 16, 2))
    assert order[::2].count("new") == 4


def test_short_benchmarks_are_sampled_until_their_seconds_are_over(monkeypatch):
    machine = Machine({("new", "a"): 0.001, ("old", "a"): 0.02})
    monkeypatch.setattr(compare, "Side", machine.side)
    (pair,) = compare.measure(("new", "old"), {"a": None}, 1, 0.3, 0.01)[0]["a"]
    assert len(pair) == 15 and set(pair) == {(0.001, 0.02)}


def test_what_may_have_changed_is_measured_once_more(monkeypatch):
    machine = Machine({("new", "slower"): 1.15, ("new", "alike"): 1.02})
    monkeypatch.setattr(compare, "Side", machine.side)
    names = {"slower": None, "alike": None, "own": 2}
    found, faults = compare.settled(("new", "old"), names, 3)
    assert {name: len(pairs) for name, pairs in found.items()} == {
        "slower": 6,
        "alike": 3,
        "own": 2,
    }
    assert compare.compared(found["slower"]).ratio == pytest.approx(1.15) and not faults


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


def test_the_benchmarks_are_found_under_names_that_differ():
    found = worker.benchmarks()
    assert len(found) > 40
    for part in (
        "fits.School",
        "Private.time_fit(PrivateMTL",
        "Many.time_fit(DPMetaInit, 5000x50x50)",
        "time_predict(",
        "time_personalize",
        "Rounds",
        "startup.Import",
        "startup.FirstFit",
        "federation",
        "peakmem",
        "Loops",
    ):
        assert any(part in name for name in found), part
    for cls, method, values in found.values():
        assert len(values) == len(getattr(cls, "param_names", ()))


@pytest.mark.parametrize(
    "part",
    ["School.time_fit(l21)", "time_predict_one_row(MPMTLLowRank)", "time_loop(average.averages)"],
)
def test_benchmarks_measure_positive_seconds(part):
    (case,) = [case for name, case in worker.benchmarks().items() if part in name]
    assert 0.0 < worker.Measured(*case).value(0.0) < 60.0


def test_loops_are_measured_on_what_fits_give_them():
    """A repeated call changes nothing: its arguments are those of the fit each time."""
    from benchmarks.asv.speed.kernels import Loops

    loops = Loops()
    loops.setup("grams.tridiagonal")  # which overwrites its matrices
    before = [old.copy() for _, old in loops.changed]
    found = []
    for _ in range(2):
        loops.time_loop("grams.tridiagonal")
        found.append([now.copy() for now, _ in loops.changed])
    assert len(before) > 2
    for first, second, old, (_, given) in zip(*found, before, loops.changed, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(given, old)
        assert not np.array_equal(first, old)
    loops.setup("local.triangular_products")  # which writes its results only
    assert not loops.changed


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.benchmarks())
def test_each_benchmark_runs(name):
    try:
        assert worker.Measured(*worker.benchmarks()[name]).value(0.0) > 0.0
    except NotImplementedError as reason:
        assert "federation" in name, reason


def answer(values, check=1):
    return {"errors": list(values), "check": check}


def test_small_losses_stand_out_of_paired_draws():
    rng = np.random.default_rng(0)
    old = np.exp(rng.standard_normal(10))  # draws differ by factors
    new = old * np.exp(0.02 + 0.01 * rng.standard_normal(10))
    text, loss = accuracy.verdict(answer(new), answer(old))
    assert loss and text.startswith("LOSS: error +")
    text, loss = accuracy.verdict(answer(old), answer(new))
    assert not loss and text.startswith("gain: error -")
    assert accuracy.verdict(answer(old), answer(old)) == (None, False)
    bits = answer(old * (1.0 + 1e-15 * rng.standard_normal(10)))
    assert accuracy.verdict(bits, answer(old)) == (None, False)
    text, loss = accuracy.verdict(answer(rng.permutation(new)), answer(old))
    assert not loss and text.startswith("changed: error ")


def test_cells_that_cannot_be_compared_are_named():
    failed = {"failed": "ValueError: no"}
    assert accuracy.verdict(failed, answer([1.0, 2.0]))[1]
    assert not accuracy.verdict(answer([1.0, 2.0]), failed)[1]
    text, loss = accuracy.verdict(answer([2.0, 4.0], check=1), answer([1.0, 2.0], check=2))
    assert "table" in text and not loss


def test_113_cells_whose_draws_repeat():
    assert len(accuracy.CELLS) == 113
    cell = accuracy.CELLS["low rank | MPMTLLowRank(epsilon=1.0)"]
    found = accuracy.errors(cell, 2)
    assert found == accuracy.errors(cell, 2) and len(set(found["errors"])) == 2


def test_every_estimator_is_in_both_sets():
    """One that is in neither could become slower, or worse, unseen."""
    whole = {"PerTask", "PrivateSearch", "TaskImputer", "TaskScaler"}  # around models of others
    for name in NAMES:
        if not hasattr(public(name), "fit"):
            continue
        found = re.compile(rf"\b{name}\b").search
        assert any(map(found, worker.benchmarks())), name
        if name not in whole and not name.endswith("CV"):
            assert any(map(found, accuracy.CELLS)), name


@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
def test_tasks_that_join_are_not_among_those_of_the_fit():
    cell = next(cell for cell in accuracy.CELLS.values() if cell.new)
    whole = accuracy.drawn(cell.table, 0)
    first, late = accuracy.halves(whole)
    assert not set(first.task) & set(late.task)
    for part in ("X", "y_test"):
        assert sum(len(getattr(half, part)) for half in (first, late)) == len(getattr(whole, part))
    assert np.isfinite(cell.error(whole, 0))


def test_intervals_are_scored_by_width_and_by_what_they_miss():
    """The score is proper: the mean is least at the quantiles of 5 and 95 %."""
    y = stats.norm.ppf(np.linspace(0.0005, 0.9995, 1000))
    best = stats.norm.ppf(0.95)
    scores = [
        accuracy.interval_score(np.tile([-bound, bound], (1000, 1)), y)
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
    stored = {path.name for path in results.glob("*.csv")} - {"commits.csv", "speed.csv"}
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
    package = name in ("benchmarks.unseen", "benchmarks.multilevel")
    module = importlib.import_module(f"{name}.__main__" if package else name)
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


def test_the_history_has_a_column_for_each_pair_of_commits(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import history

    path = tmp_path / "speed.csv"
    even = {"fits.A.time_fit(x)": [[(1.02, 1.0)]] * 8, "fits.A.time_fit(y)": [[(1.3, 1.0)]] * 8}
    for new, old in (("b", "a"), ("c", "b")):
        results = {name: compare.compared(pairs) for name, pairs in even.items()}
        compare.store(path, results, new, old)
    pairs = history.read(path)
    assert [*pairs] == [("a", "b"), ("b", "c")] and all(len(rows) == 2 for rows in pairs.values())
    (axes,) = history.draw(pairs).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["b\nover a", "c\nover b"]
    assert [text.get_text() for text in axes.texts] == ["y", "y"]  # beyond 10 % alone
    history.main(["--input", str(path), "--output", str(tmp_path / "speed.png")])
    assert (tmp_path / "speed.png").stat().st_size > 1000
