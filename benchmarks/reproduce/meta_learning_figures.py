"""Few-shot transfer against epsilon, and against the number of rows of a new task.

    python -m benchmarks.reproduce.meta_learning_figures [--figure NAME] [--quick] [--repeats R]
                                                         [--output FOLDER] [--jobs J]

The comparison of figure 2 of Li, Khodak, Caldas and Talwalkar (2020), on the data and with the
settings of ``meta_learning.py``, which says what was tuned. Every figure writes
``meta_learning_NAME.csv`` and ``.png``; both take about three minutes of one core:

- ``epsilon``: score of new tasks with ten rows each over the budget, with the accounting of
  published comparisons ("zero-out", delta 1e-3) and with the estimator's own;
- ``shots``: score over the number of rows with which a new task adapts, epsilon 1 and 9. The
  initialisation is that of one fit, the rows of fewer shots are among those of more, and the
  test rows are the same. For classes also with the non-private initialisation halved.
"""

from functools import partial

from . import run_figures, script
from .meta_learning import DATA, DEFAULT, FIELDS, TABLE, cell, entries
from .model_protected_plots import legend, panels, unique

PLACES = ("linear d=20 n=50 m=500", "logistic d=20 n=50 m=500", "School 100 -> 39")
EPSILONS = (0.1, 0.3, 1.0, 3.0, 9.0)
SHOTS = (1, 2, 3, 5, 10, 20)
PUBLIC = ("alone", "zeros", "reptile")


def places(quick, repeats, **settings):
    """Name, data sets and clip norms."""
    for name in PLACES[:2] if quick else PLACES:
        make, own, bounds = DATA[name]
        yield name, [make(s, quick=quick, **own, **settings) for s in range(repeats)], bounds


def against_epsilon(quick=False, repeats=20):
    cases = [(method, {"epsilon": None}) for method in PUBLIC]
    cases += [
        (method, {"privacy": method, "epsilon": epsilon, **accounting})
        for method in ("task-global", "local")
        for accounting in (TABLE, DEFAULT)
        for epsilon in ((1.0,) if quick else EPSILONS)
    ]
    for name, sets, bounds in places(quick, repeats):
        yield cell(cases, sets, bounds, {10: None}, partial(entries, name))


def against_shots(quick=False, repeats=20):
    shots = (2, 10) if quick else SHOTS
    cases = [(method, {"epsilon": None}) for method in PUBLIC]
    cases += [
        (method, {"privacy": method, "epsilon": epsilon, **TABLE})
        for method in ("task-global", "local")
        for epsilon in (1.0, 9.0)
    ]
    half = [("reptile, half as long", {"epsilon": None})]
    for name, sets, bounds in places(quick, repeats, shots=max(shots)):
        own = cases + half if "logistic" in name else cases
        yield cell(own, sets, bounds, {count: count for count in shots}, partial(entries, name))


# ------------------------------------------------------------------------------ pictures
LOOKS = {
    "alone": ("black", "alone, strength tuned on test rows"),
    "reptile": ("tab:green", "not private"),
    "reptile, half as long": ("tab:olive", "not private, initialisation halved"),
    "task-global": ("tab:blue", "task-global"),
    "local": ("tab:red", "local"),
}


def draw(rows, x, label, style):
    """One panel for every data set; `style(row)`: what a curve is besides its method, dashes."""
    names = unique(rows, "data")
    figure, axes = panels(len(names))
    for ax, name in zip(axes, names, strict=True):
        curves = {}
        for row in rows:
            if row["data"] == name and row["method"] in LOOKS:
                curves.setdefault((row["method"], *style(row)), []).append(row)
        for number, ((method, text, dashes), own) in enumerate(curves.items()):
            color, kind = LOOKS[method]
            how = {"color": color, "linestyle": dashes, "label": kind + text}
            if own[0][x] == "inf":
                ax.axhline(own[0]["mean"], linewidth=1.2, **how)
                continue
            # Side by side, so that every bar is seen.
            at = [row[x] * 1.03 ** (number - len(curves) / 2) for row in own]
            spread = [row["sd"] or 0.0 for row in own]
            means = [row["mean"] for row in own]
            ax.errorbar(at, means, spread, marker="o", markersize=3, elinewidth=0.7, **how)
        ax.set(title=name, xlabel=label, ylabel=own[0]["metric"], xscale="log")
        at = [value for value in unique(rows, x) if value != "inf"]
        ax.set_xticks(at, [f"{value:g}" for value in at])
        ax.minorticks_off()
    legend(figure, axes)
    return figure


def draw_epsilon(rows):
    def style(row):
        if row["epsilon"] == "inf":
            return "", "--"
        default = row["delta"] == "default"
        return (", replace-one, default delta", ":") if default else (", zero-out, delta .001", "-")

    return draw(rows, "epsilon", "epsilon", style)


def draw_shots(rows):
    def style(row):
        if row["epsilon"] == "inf":
            return "", "--"
        return f", epsilon {row['epsilon']:g}", "-" if row["epsilon"] == 1.0 else ":"

    return draw(rows, "shots", "rows of a new task", style)


FIGURES = {
    "epsilon": (against_epsilon, 20, draw_epsilon),
    "shots": (against_shots, 20, draw_shots),
}


def main(arguments=None):
    quick = "few tasks, one budget, one draw"
    parser = script("meta_learning_figures", __doc__, quick, 20, ".", jobs=True)
    return run_figures(parser, "meta_learning", FIGURES, FIELDS, arguments)


if __name__ == "__main__":
    main()
