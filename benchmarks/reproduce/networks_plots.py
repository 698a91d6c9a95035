"""Picture of `networks_images`: linear models of public features beside networks, over the budget.

A panel for each data set of the table. Personal networks are those of
``personalization="mean-reg"``, as the linear models are; points at the right end have no budget,
dotted lines release nothing. Of starts and budgets that a table lacks nothing is drawn.
"""

from .model_protected_plots import legend, panels, unique

# (method, personalization) -> label, colour
CURVES = {
    ("linear, public head", "mean-reg"): ("linear, public features and start", "tab:blue"),
    ("linear, features", "mean-reg"): ("linear, public features", "tab:cyan"),
    ("linear, pixels", "mean-reg"): ("linear, pixels", "silver"),
    ("cnn, public start", "mean-reg"): ("network, public start, personal", "tab:orange"),
    ("cnn, public start", "released"): ("network, public start, released", "tab:brown"),
    ("cnn, scratch", "mean-reg, all of the way"): ("network, from scratch, personal", "tab:red"),
}
LEVELS = {
    "alone, public start": ("network of every task alone, public start", "tab:green"),
    "alone, linear, public head": ("linear model of every task alone, public start", "tab:olive"),
    "public network": ("public network, as it is", "black"),
    "public network, wide": ("public network of the features, as it is", "dimgray"),
}


def draw(rows):
    names = unique(rows, "data")
    figure, axes = panels(len(names), height=4.6)
    for ax, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        budgets = sorted({float(row["epsilon"]) for row in own if row["epsilon"]})
        last = budgets[-1] * 4.0  # where points without a budget stand
        for what, (label, color) in CURVES.items():
            mine = [row for row in own if (row["method"], row["personalization"]) == what]
            found = {row["epsilon"] and float(row["epsilon"]): row for row in mine}
            at = [epsilon for epsilon in (*budgets, "") if epsilon in found]
            if not at:
                continue
            ax.errorbar(
                [epsilon or last for epsilon in at],
                [float(found[epsilon]["mean"]) for epsilon in at],
                [float(found[epsilon]["sd"] or 0.0) for epsilon in at],
                marker="o",
                markersize=3,
                color=color,
                label=label,
            )
        for method, (label, color) in LEVELS.items():
            for row in own:
                if row["method"] == method:
                    mean = float(row["mean"])
                    ax.axhline(mean, linestyle=":", linewidth=1.2, color=color, label=label)
        ax.set(title=name, xlabel="epsilon", ylabel="accuracy", xscale="log")
        ax.set_xticks([*budgets, last], [*(f"{epsilon:g}" for epsilon in budgets), "none"])
        ax.minorticks_off()
    legend(figure, axes)
    return figure
