"""Comparisons of commits: intervals, alarms and pairing, on samples whose truth is known."""

import csv
import json

import numpy as np
import pytest

from benchmarks import accuracy, compare
from benchmarks.asv import worker
from benchmarks.reproduce import __main__ as reproduce


def samples(rng, factor, pairs=24, noise=0.1, drift=0.5):
    """Seconds of two commits on a machine whose speed drifts, with its own noise on each."""
    load = 1.0 + drift * rng.random(pairs)
    new, old = 1.0 + noise * rng.random((2, pairs))
    return factor * load * new, load * old


def test_the_interval_covers_the_ratio_as_often_as_stated():
    rng = np.random.default_rng(0)
    found = [compare.compared(*samples(rng, 1.07)) for _ in range(2000)]
    missed = np.mean([not one.low <= 1.07 <= one.high for one in found])
    # At most 1 - LEVEL, with five standard errors of 2,000 runs.
    assert missed <= 0.01 + 5 * np.sqrt(0.01 * 0.99 / 2000)
    assert np.mean([one.ratio for one in found]) == pytest.approx(1.07, rel=0.005)


def test_alarms_are_for_slowdowns_alone():
    rng = np.random.default_rng(1)
    assert not any(compare.compared(*samples(rng, 1.0)).alarm for _ in range(500))
    assert all(compare.compared(*samples(rng, 1.15)).alarm for _ in range(500))
    faster = [compare.compared(*samples(rng, 0.8)) for _ in range(100)]
    assert all(one.faster and not one.alarm for one in faster)


def test_pairing_removes_what_both_sides_share():
    """Samples that differ a hundredfold between rounds, by exactly 12 % within each."""
    load = np.geomspace(1.0, 100.0, 12)
    found = compare.compared(1.12 * load, np.random.default_rng(0).permutation(load))
    assert found.high / found.low > 2 and not found.alarm
    found = compare.compared(1.12 * load, load)
    assert found.low == pytest.approx(1.12) and found.high == pytest.approx(1.12) and found.alarm


def test_few_pairs_give_their_range():
    found = compare.compared([1.0, 3.0, 2.0], [1.0, 1.0, 1.0])
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 1.0, 3.0))
    assert not found.alarm  # an interval that reaches 1


class Machine:
    """Sides whose clock is that of this class: every request makes it slower."""

    def __init__(self):
        self.requests, self.opened = [], 0

    def side(self, folder):
        self.opened += 1
        machine = self

        class Side:
            def value(self, name, least):
                machine.requests.append((folder, name))
                if name == "lacking":
                    return {"error": "AttributeError"} if folder == "old" else {"value": 1.0}
                return {"value": float(len(machine.requests))}

            def close(self):
                machine.opened -= 1

        return Side()


def test_both_sides_take_turns_in_processes_that_end(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(compare, "Side", machine.side)
    names = {"a": None, "lacking": None, "own": 1}
    found, faults = compare.measure(("new", "old"), names, 2, 4, note=lambda *_, **__: None)
    assert machine.opened == 0
    assert set(found) == {"a", "own"} and set(faults) == {"lacking"}
    assert [len(values) for values in (*found["a"], *found["own"])] == [8, 8, 1, 1]
    order = [folder for folder, name in machine.requests if name == "a"]
    # Adjacent samples are of different sides, and each side is first as often as the other.
    assert all(set(order[i : i + 2]) == {"new", "old"} for i in range(0, 16, 2))
    assert order[::2].count("new") == 4


def test_a_slower_commit_ends_with_status_1_and_is_stored(monkeypatch, tmp_path, capsys):
    name = "fits.School.time_fit(trace)"

    def measured(folders, names, pairs, rounds):
        return {name: ([1.2] * 8, [1.0] * 8)}, {}

    monkeypatch.setattr(compare, "checkout", lambda revision: (revision, tmp_path))
    monkeypatch.setattr(compare, "git", lambda *_: "")
    monkeypatch.setattr(compare, "measure", measured)
    path = tmp_path / "speed.csv"
    assert compare.main(["before", "--only", name, "--store", str(path)]) == 1
    assert "CHANGELOG.rst" in capsys.readouterr().out
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["commit"], row["against"], row["ratio"]) == ("HEAD", "before", "1.200")
    assert row["machine"] and row["benchmark"] == name
    measured = lambda *_: ({name: ([1.05] * 8, [1.0] * 8)}, {})  # noqa: E731
    monkeypatch.setattr(compare, "measure", measured)
    assert compare.main(["before", "--only", name]) == 0
    assert compare.main(["before", "--only", "no such name"]) == 2


def test_the_benchmarks_are_found_under_names_that_differ():
    found = worker.benchmarks()
    assert len(found) > 40
    for part in ("fits.School", "Private.time_fit(PrivateMTL", "time_predict(", "time_personalize",
                 "startup.Import", "startup.FirstFit", "federation", "peakmem"):  # fmt: skip
        assert any(part in name for name in found), part
    for cls, method, values in found.values():
        assert len(values) == len(getattr(cls, "param_names", ()))


@pytest.mark.parametrize("part", ["School.time_fit(l21)", "time_predict_one_row(MPMTLLowRank)"])
def test_benchmarks_measure_positive_seconds(part):
    (case,) = [case for name, case in worker.benchmarks().items() if part in name]
    assert 0.0 < worker.Measured(*case).value(0.0) < 60.0


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
    assert accuracy.verdict(answer(rng.permutation(new)), answer(old)) == (None, False)


def test_cells_that_cannot_be_compared_are_named():
    failed = {"failed": "ValueError: no"}
    assert accuracy.verdict(failed, answer([1.0, 2.0]))[1]
    assert not accuracy.verdict(answer([1.0, 2.0]), failed)[1]
    text, loss = accuracy.verdict(answer([2.0, 4.0], check=1), answer([1.0, 2.0], check=2))
    assert "table" in text and not loss


def test_forty_cells_whose_draws_repeat():
    assert len(accuracy.CELLS) == 40
    cell = accuracy.CELLS["low rank | MPMTLLowRank(epsilon=1.0)"]
    found = accuracy.errors(cell, 2)
    assert found == accuracy.errors(cell, 2) and len(set(found["errors"])) == 2


def test_results_name_their_commit_and_stale_ones_are_listed(monkeypatch, tmp_path, capsys):
    rows = {
        "a.csv": {"file": "a.csv", "commit": "1111111", "date": "2026-01-01"},
        "b.csv": {"file": "b.csv", "commit": "2222222", "date": "2026-01-01"},
        "c.csv": {"file": "c.csv", "commit": "3333333+", "date": "2026-01-01"},
    }
    since = {"1111111": {"skpmtl/privacy": 7}, "2222222": {}, "3333333+": None}
    monkeypatch.setattr(reproduce, "changes", since.get)
    assert reproduce.stale(rows) == ["a.csv", "c.csv"]
    out = capsys.readouterr().out
    assert "1111111" in out and "skpmtl/privacy" in out and "2 of 3" in out


def test_what_was_made_is_not_made_again(monkeypatch, tmp_path, capsys):
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
    monkeypatch.setattr(reproduce, "changes", lambda name: {})
    assert reproduce.main([]) == 1  # "bad" has no input
    assert (tmp_path / "out-one").exists() and (tmp_path / "out-two").exists()
    rows = reproduce.read(results / "commits.csv")
    assert set(rows) == {"one.csv", "two.csv"} and rows["one.csv"]["commit"] == "abc"
    (tmp_path / "out-one").unlink()
    assert reproduce.main(["--only", "one"]) == 0 and not (tmp_path / "out-one").exists()
    assert reproduce.main(["--only", "one", "--again"]) == 0 and (tmp_path / "out-one").exists()
