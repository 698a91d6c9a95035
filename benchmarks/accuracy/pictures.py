"""Pictures: a heat map of generated tables, and public tables."""

import numpy as np

_TICKS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0)
_GAP = 1.025  # between names of tables
_WORST = 10.0  # ratios beyond this, or below 1 / this, have the last colour


def draw(rows, path):
    """Write the picture of the cells `rows`, as `generated` makes or reads them."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["estimator"] not in ("alone",)]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    columns = list(dict.fromkeys((row["estimator"], _budget(row["epsilon"])) for row in rows))
    table, raised = np.full((2, len(shapes), len(columns)), np.nan)
    for row in rows:
        place = columns.index((row["estimator"], _budget(row["epsilon"])))
        if row["median"] in ("", None):
            raised[shapes.index(row["shape"]), place] = 1.0
        else:
            table[shapes.index(row["shape"]), place] = float(row["median"])

    figure = Figure(figsize=(3.6 + 0.2 * len(columns), 1.8 + 0.19 * len(shapes)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    # Grey where an error was raised; white where nothing was measured.
    grey = np.ma.masked_invalid(raised)
    axes.imshow(grey, cmap="Greys", vmin=0.0, vmax=3.0, aspect="auto")
    norm = LogNorm(1.0 / _WORST, _WORST)
    image = axes.imshow(np.ma.masked_invalid(table), cmap="RdBu_r", norm=norm, aspect="auto")
    axes.set_xticks(range(len(columns)), [budget for _, budget in columns], rotation=90)
    roles = {row["shape"]: row["role"] for row in rows}
    names = [shape + (" *" if roles[shape] == "tuning" else "") for shape in shapes]
    axes.set_yticks(range(len(shapes)), names)
    axes.tick_params(length=0, labelsize=7)
    starts = [i for i, column in enumerate(columns) if not i or columns[i - 1][0] != column[0]]
    for start, stop in zip(starts, [*starts[1:], len(columns)], strict=True):
        axes.axvline(stop - 0.5, color="white", linewidth=2)
        axes.text(start - 0.3, -0.8, columns[start][0], rotation=30, fontsize=7, va="bottom")
    axes.set_xlabel("epsilon; * tuning set")
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, extend="both")
    bar.set_label("error over each task alone (median)")
    bar.set_ticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _budget(epsilon):
    return "exact" if epsilon in ("", None) else f"{float(epsilon):g}"


def draw_real(tables, columns, errors, mixed, path):
    """Write the picture.

    Parameters
    ----------
    tables : list of str
    columns : list of (estimator, epsilon)
        An epsilon of None is a peer, or a fit without a budget if the estimator has others.
    errors : ndarray of shape (tables, columns)
    mixed : ndarray of shape (tables,)
    path : Path
    """
    from matplotlib.figure import Figure

    ratios = errors / mixed[:, None]
    ours = list(dict.fromkeys(name for name, epsilon in columns if epsilon is not None))
    figure = Figure(figsize=(1.0 + 4.4 * max(len(ours), 1), 5.2))
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, max(len(ours), 1), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, ours, strict=False):
        chosen = [j for j, column in enumerate(columns) if column[0] == name]
        chosen.sort(key=lambda j: np.inf if columns[j][1] is None else columns[j][1])
        places = range(len(chosen))
        heights = _spread(ratios[:, chosen[0]])
        for table, values, height in zip(tables, ratios[:, chosen], heights, strict=True):
            (line,) = axes.plot(places, values, linewidth=0.9, alpha=0.7)
            if np.isfinite(values[0]):
                axes.annotate(
                    table,
                    (0, values[0]),
                    (-0.55, height),
                    ha="right",
                    va="center",
                    fontsize=7,
                    color=line.get_color(),
                    arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.4},
                )
        whole = np.isfinite(ratios[:, chosen]).all(axis=1)
        if not whole.any():  # there was no mixed model to divide by
            continue
        average = np.exp(np.log(ratios[whole][:, chosen]).mean(axis=0))
        axes.plot(places, average, "o-", color="black", linewidth=2, label="geometric mean")
        for style, (j, (peer, _)) in zip(
            ("--", ":", "-."),
            [(j, c) for j, c in enumerate(columns) if c[0] in ("pooled", "alone", "boosting")],
            strict=False,
        ):
            known = whole & np.isfinite(ratios[:, j])
            level = np.exp(np.log(ratios[known, j]).mean())
            axes.axhline(level, color="0.4", linestyle=style, linewidth=1, label=peer)
        axes.axhline(1.0, color="0.7", linewidth=1)
        labels = ["none" if columns[j][1] is None else f"{columns[j][1]:g}" for j in chosen]
        axes.set_xticks(places, labels)
        axes.set_xlim(-1.5, len(chosen) - 0.7)
        axes.set_yscale("log")
        axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axes.minorticks_off()
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("epsilon")
        axes.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("error over the mixed model")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _spread(values):
    """The values, each moved up until it is `_GAP` above the one below."""
    out, last = values.copy(), 0.0
    for place in np.argsort(values):
        out[place] = last = max(values[place], last * _GAP)
    return out
