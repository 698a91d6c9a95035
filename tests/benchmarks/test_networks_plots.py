"""The picture of networks beside linear models, from a table of images."""

from benchmarks.reproduce import networks_plots

FIELDS = ("data", "method", "personalization", "epsilon", "noise over way", "mean", "sd", "repeats")


def test_every_method_has_its_curve():
    rows = [(name, "none", "", 0.5) for name in networks_plots.LEVELS]
    budgets = "0.1", "2.0", ""
    rows += [(*key, e, 0.7) for key in networks_plots.CURVES for e in budgets]
    rows += [("cnn, scratch", "released", "0.1", 0.1)]  # not a personal model
    table = [
        dict(zip(FIELDS, ("made", m, p, e, "", v, "0.01", 3), strict=True)) for m, p, e, v in rows
    ]
    figure = networks_plots.draw(table)
    (ax,) = figure.axes
    known = {**networks_plots.CURVES, **networks_plots.LEVELS}.values()
    assert set(ax.get_legend_handles_labels()[1]) == {label for label, _ in known}
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.1", "2", "none"]
