"""The notebooks run without a warning, and hold the outputs of a run."""

import json
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "doc" / "notebooks").glob("*.ipynb"))
pytestmark = pytest.mark.filterwarnings("error:The noise of this fit is reproducible")


def cells(path):
    return [
        (cell["cell_type"], "".join(cell["source"]), cell.get("outputs", []))
        for cell in json.loads(path.read_text())["cells"]
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_outputs_and_are_linked(path):
    found = cells(path)
    assert found[0][0] == "markdown" and found[0][1].startswith("# ")
    outputs = [output for _, _, several in found for output in several]
    kinds = {output["output_type"] for output in outputs}
    assert kinds <= {"stream", "execute_result", "display_data"} and "stream" in kinds
    assert {output["name"] for output in outputs if "name" in output} == {"stdout"}
    assert f"notebooks/{path.name}" in (ROOT / "doc" / "examples" / "README.rst").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    if any("marginaleffects" in source for kind, source, _ in cells(path) if kind == "code"):
        pytest.importorskip("marginaleffects")
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    try:
        for number, (kind, source, _) in enumerate(cells(path)):
            if kind == "code":
                exec(compile(source, f"{path.name}, cell {number}", "exec"), names)
    finally:
        from matplotlib import pyplot

        pyplot.close("all")
        matplotlib.use(backend)
    assert list(tmp_path.iterdir()) == []  # what it wrote it has removed
