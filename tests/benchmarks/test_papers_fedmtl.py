"""The study of FedMTL runs, and its quick mode shows what the page says."""

import importlib.util

import numpy as np
import pytest

from benchmarks.papers import fedmtl

pytestmark = pytest.mark.slow
TORCH = importlib.util.find_spec("torch") is not None
SECURE = importlib.util.find_spec("cryptography") is not None


def run(part, folder):
    return fedmtl.main(["--quick", "--only", part, "--output", str(folder)])


def test_heads_are_near_by_task_and_shared_layers_hardly(tmp_path):
    found = run("figures", tmp_path)["layers"]
    value = {(r["layer"], r["quantity"]): float(r["round_1"]) for r in found if r["figure"] == "2"}
    near = {
        layer: value[layer, "cosine within"] - value[layer, "cosine between"] for layer, _ in value
    }
    assert near.pop("task layers, by task") > 0.5 > 0.1 > max(near.values())


def test_tables_have_every_method(tmp_path):
    found = run("table3", tmp_path)
    by_position = {r["method"] for r in found["table3"] if r["heads"] == "position"}
    assert by_position == set(fedmtl.OWN)
    assert len(found["curves"]) == len(found["table3"])
    versions = run("ablation", tmp_path)["ablation"]
    assert {r["version"] for r in versions} == set(fedmtl.ABLATION)


def test_fedmtl_sends_what_fedavg_sends(tmp_path):
    found = run("overhead", tmp_path)
    sent = {r["method"]: (r["sent_up"], r["sent_down"]) for r in found["overhead"]}
    assert sent["fedmtl"] == sent["fedavg"] == ("1.00", "1.00") != sent["fedfomo"]


@pytest.mark.skipif(not SECURE, reason="needs skpmtl[secure]")
def test_a_secure_round_sends_2_p_models(tmp_path):
    found = run("secure", tmp_path)
    sent = {row["2_P"]: float(row["sent_over_delta"]) for row in found["sizes"] if row["2_P"]}
    assert list(sent) == [4, 6, 10] and list(sent.values()) == pytest.approx(list(sent), rel=0.01)
    assert all(float(row["difference"]) < 1e-5 for row in found["secure"])
    assert all(row["plain"] == row["secure"] for row in found["secret"])


@pytest.mark.skipif(not TORCH, reason="needs skpmtl[torch]")
def test_scenes_and_files_of_celeba(tmp_path):
    image = pytest.importorskip("PIL.Image")
    assert {r["method"] for r in run("scenes", tmp_path)["scenes"]} <= set(fedmtl.OWN)
    rng = np.random.default_rng(0)
    (tmp_path / "img_align_celeba").mkdir()
    lines = ["80", " ".join(f"A{k}" for k in range(40))]
    for i in range(80):
        pixels = rng.integers(0, 256, (218, 178, 3), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / "img_align_celeba" / f"{i}.jpg")
        lines.append(f"{i}.jpg " + " ".join(map(str, rng.choice([-1, 1], 40))))
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines))
    found = fedmtl.main(["--quick", "--celeba", str(tmp_path), "--output", str(tmp_path)])
    assert 0.3 < float(found["celeba"][0]["accuracy"]) < 0.7
