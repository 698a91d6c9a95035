"""One picture: error over that of the mixed model by epsilon, per table and on average."""

import numpy as np

_TICKS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0)
_GAP = 1.025  # between names of tables


def draw(tables, columns, errors, mixed, path):
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
