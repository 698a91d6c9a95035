"""Every script of the gallery runs without a warning and draws something with labels."""

import runpy
from pathlib import Path

import matplotlib
import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "doc" / "examples").glob("plot_*.py"))
# The task column is left to every run, and the quick start to that of the README.
SLOW = "private_selection school missing_outcomes new_tasks fedmtl private_mean "
SLOW += "audit few_shot task_facts public_start curves how_sure quick_start"
NEEDS = {"plot_task_facts": "statsmodels"}
pytestmark = pytest.mark.filterwarnings("error:The noise of this fit is reproducible")


@pytest.fixture(autouse=True)
def without_screen():
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    yield pyplot
    pyplot.close("all")
    matplotlib.use(backend)


def slow(path):
    return [pytest.mark.slow] if path.stem.removeprefix("plot_") in SLOW.split() else []


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=slow(path)) for path in SCRIPTS]
)
def test_script_runs_and_draws(path, without_screen):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason=f"needs {NEEDS[path.stem]}")
    runpy.run_path(str(path), run_name="__main__")
    figures = [without_screen.figure(number) for number in without_screen.get_fignums()]
    assert len(figures) >= 2
    for figure in figures:
        assert any(ax.get_xlabel() for ax in figure.axes)
        assert any(ax.has_data() for ax in figure.axes)
        figure.canvas.draw()
