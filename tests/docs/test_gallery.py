"""Every script of the gallery runs without a warning and draws something with labels."""

import runpy
from pathlib import Path

import matplotlib
import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "doc" / "examples").glob("plot_*.py"))
# Quick start and task column are left to every run.
SLOW = {
    "plot_private_selection", "plot_school", "plot_missing_outcomes", "plot_new_tasks",
    "plot_fedmtl", "plot_private_mean", "plot_audit", "plot_few_shot",
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_screen():
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    yield pyplot
    pyplot.close("all")
    matplotlib.use(backend)


@pytest.fixture(autouse=True)
def no_school(monkeypatch, tmp_path):
    """Hides copies of the School data that the machine may have."""
    monkeypatch.delenv("SKPMTL_SCHOOL", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in SCRIPTS
    ],
)
def test_script_runs_and_draws(path, without_screen):
    runpy.run_path(str(path), run_name="__main__")
    figures = [without_screen.figure(number) for number in without_screen.get_fignums()]
    assert len(figures) >= 2
    for figure in figures:
        assert any(ax.get_xlabel() for ax in figure.axes)
        assert any(ax.has_data() for ax in figure.axes)
        figure.canvas.draw()


@pytest.mark.parametrize("there", [True, False])
def test_school_study_says_which_data(there, request, monkeypatch, capsys):
    if there:
        monkeypatch.setenv("SKPMTL_SCHOOL", str(request.getfixturevalue("school_mat")))
    text = (SCRIPTS[0].parent / "plot_school.py").read_text()
    # The data are named before anything is fitted.
    exec(compile(text.split("# 30 % of each")[0], "plot_school.py", "exec"), {})
    out = capsys.readouterr().out
    assert ("These are the School data." in out) == there
    assert ("these are generated tasks" in out) == (not there)
    assert "139 schools" in out
