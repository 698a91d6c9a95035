"""The study of private meta-learning runs, and its quick mode shows what the page says."""

import csv

import numpy as np
import pytest

from benchmarks.papers import meta

pytestmark = pytest.mark.slow


def test_record_privacy_keeps_more_than_task_privacy(tmp_path):
    found = meta.main(["--quick", "--only", "gain", "--output", str(tmp_path)])["meta_gain"]
    with (tmp_path / "meta_gain.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(found) == 18
    kept = {(r["data"], r["method"], r["epsilon"]): float(r["kept"] or 0) for r in found}
    for data in ("linear", "logistic", "school"):
        assert kept[data, "task-global", 1.0] > kept[data, "local", 1.0] + 0.2


def test_risk_falls_with_tasks_and_rows(tmp_path):
    meta.main(["--quick", "--only", "descent", "--output", str(tmp_path)])
    found = meta.main(["--quick", "--only", "risk", "--output", str(tmp_path)])["meta_slopes"]
    slope = {(r["descent"], r["swept"]): float(r["slope_square_error_of_init"]) for r in found}
    for descent in ("sgd", "bassily"):
        assert slope[descent, "n_tasks"] < -0.3 and slope[descent, "epsilon"] < -0.3


def test_an_eighth_of_the_words_is_in_no_public_vocabulary():
    learn, new = meta.generated_speakers(0)
    codes = np.stack([X for X, _ in learn + new])
    assert codes.shape == (70, 80, 11)
    assert (codes[:, :-1, -1] == codes[:, 1:, 0]).all()  # a record goes on where the last one ended
    share = np.bincount(codes[..., 1:].astype(int).ravel()) / codes[..., 1:].size
    assert 0.11 < share[0] < 0.15 and 0.09 < share[1:].max() < 0.13
