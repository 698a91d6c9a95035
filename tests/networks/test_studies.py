"""The studies of networks: who is in which part of the data, and their quick modes."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproduce import networks_images, networks_text

ROOT = Path(__file__).parents[2]


def test_no_character_of_training_is_in_a_row_of_the_test():
    """Characters that are their own places in the text of all speakers."""
    length, sizes = networks_text.LENGTH, np.arange(100, 1600, 100)
    begin = np.cumsum(sizes + length) - sizes - length
    X = np.concatenate([np.arange(n) + first for n, first in zip(sizes, begin, strict=True)])
    X = X[:, None] + np.arange(length)
    ends = np.cumsum(sizes)
    speakers = {
        f"s{k}": np.arange(end - n, end) for k, (n, end) in enumerate(zip(sizes, ends, strict=True))
    }

    def read():
        return X, X[:, -1] + 1, speakers

    names = []
    for tune in (False, True):
        learn, adapt, test = networks_text.drawn(read, 3, tune)
        said = [{*part[0].ravel().astype(int), *part[1]} for part in (learn, adapt, test)]
        assert not (said[0] & said[1] or said[0] & said[2] or said[1] & said[2])
        assert set(adapt[2]) == set(test[2])
        mosts = networks_text.LEARN, networks_text.ADAPT, networks_text.ADAPT
        for part, most in zip((learn, adapt, test), mosts, strict=True):
            assert max(np.unique(part[2], return_counts=True)[1]) <= most
            for rows, target, name in zip(*part, strict=True):
                assert begin[int(name[1:])] <= rows[0] and target == rows[-1] + 1
        names.append([set(learn[2]), set(test[2])])
    (learn, test), (same, apart) = names
    assert learn == same and not test & apart
    assert sorted([*learn, *test, *apart]) == sorted(speakers)
    assert {*[*networks_text.drawn(read, 4, True)][2][2]} == apart


def test_generated_plays_are_read_like_others():
    X, y, speakers = networks_text.rows_of("plays", None, True)
    assert len(speakers) == 15 and X.shape[1] == networks_text.LENGTH
    assert X.max() < networks_text.N_CLASSES
    assert min(map(len, speakers.values())) >= networks_text.LEAST


def test_typefaces_are_one_of_every_family_that_has_all_letters(tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="its fonts are the test data")
    pytest.importorskip("PIL", reason="it draws letters")
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "STIXSizOneSymReg"):
        shutil.copy(fonts / f"{name}.ttf", tmp_path)  # the last one has no letters
    (tmp_path / "text.otf").write_text("no font")
    (tmp_path / "broken.ttf").write_bytes((fonts / "DejaVuSans.ttf").read_bytes()[:5000])
    (tmp_path / "gone.ttf").symlink_to(tmp_path / "nowhere.ttf")
    found = [face.getname() for face in networks_images.typefaces(tmp_path)]
    assert found == [("DejaVu Sans", "Book"), ("DejaVu Serif", "Book")]
    X, y = networks_images.glyphs(20, str(tmp_path))
    assert X.shape == (20, 400) and X.max() <= 1.0 and (X.max(axis=1) > 0.3).all()


def test_constants_are_the_best_of_the_tuning(tmp_path, monkeypatch):
    monkeypatch.setattr(networks_images, "RESULTS", tmp_path)
    rows = [
        {
            "method": start,
            "epsilon": 2.0,
            "clip_norm": clip,
            "learning_rate": 0.1,
            "lam": 0.1,
            "released": 0.9 - clip / 10,
            "mean-reg": score,
        }
        for start, clip, score in (
            ("scratch", 1.0, 0.3),
            ("scratch", 2.0, 0.4),
            ("public start", 8.0, 0.8),
        )
    ]
    with (tmp_path / networks_images.TUNING).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    networks_images.chosen.cache_clear()
    try:
        assert networks_images.chosen("scratch")["clip_norm"] == 2.0
        assert networks_images.chosen("public start")["clip_norm"] == 8.0
    finally:
        networks_images.chosen.cache_clear()


def test_text_has_constants_for_every_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(networks_text, "RESULTS", tmp_path)
    given = {"method": "task-global", "refine_learning_rate": 0.5}
    rows = [
        {"model": model, "epsilon": epsilon, "clip_norm": clip, "score": score, **given}
        for model, epsilon, clip, score in (
            ("LSTM", 9.0, 1.0, 0.3),
            ("LSTM", 9.0, 2.0, 0.4),
            ("LSTM", 3.0, 3.0, 0.5),
            ("3-gram", 9.0, 4.0, 0.6),
        )
    ]
    rows.append({"model": "LSTM", "method": "not private", "clip_norm": 5.0, "score": 0.7})
    with (tmp_path / networks_text.TUNING).open("w", newline="") as file:
        fields = ("model", "method", "epsilon", *networks_text.TUNED, "score")
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
    networks_text.chosen.cache_clear()
    try:
        best = networks_text.chosen("LSTM", "task-global", 9.0)
        assert best == {"clip_norm": 2.0, "refine_learning_rate": 0.5}
        assert networks_text.chosen("LSTM", "task-global", 3.0)["clip_norm"] == 3.0
        assert networks_text.chosen("LSTM", "not private", None) == {"clip_norm": 5.0}
    finally:
        networks_text.chosen.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("study", [networks_images, networks_text], ids=["images", "text"])
def test_quick_modes(study, tmp_path):
    pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
    rows = study.main(["--quick", "--tune", "--output", str(tmp_path / "tuning.csv")])
    assert len(rows) > 5
    path = tmp_path / "table.csv"
    command = [sys.executable, "-m", study.__name__, "--quick", "--jobs", "2", "--output", path]
    subprocess.run(command, cwd=ROOT, check=True)
    with path.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) > 5 and all(0 <= float(row["mean"]) <= 1 for row in rows)
    assert path.with_suffix(".png").exists() == (study is networks_images)
