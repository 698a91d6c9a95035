"""Pictures of `mean_regularized` and `mean_regularized_figures`, from the rows of their tables."""

import numpy as np

from .model_protected_plots import legend, panels, unique

# (method, personalisation) -> label and colour
METHODS = {
    ("local only", "mean-reg"): ("alone", "black"),
    ("fedavg", "none"): ("one model (FedAvg)", "tab:red"),
    ("fedavg", "mean-reg"): ("FedAvg, then mean-reg", "tab:orange"),
    ("fedavg", "finetune"): ("FedAvg, then finetune", "gold"),
    ("algorithm-1", "none"): ("Algorithm 1", "tab:purple"),
    ("stateful", "none"): ("as in the authors' code", "tab:brown"),
    ("prox", "mean-reg"): ("PrivateMeanRegMTL", "tab:blue"),
    ("nothing set", "mean-reg"): ("PrivateMeanRegMTL, nothing set", "tab:cyan"),
}
LABELS = dict(METHODS.values())  # label -> colour
LINES = {"": "-", 2.0: "-", 0.4: "--"}
BUDGETS = {"": "black", 2.0: "tab:blue", 0.4: "tab:orange"}


def _number(row):
    """Rows of a CSV file have texts, rows that were just measured numbers."""
    return {
        **row,
        "epsilon": "" if row["epsilon"] in ("inf", "") else float(row["epsilon"]),
        "mean": float(row["mean"]),
        "sd": float(row["sd"] or 0.0),
    }


def _limits(ax, metric, levels, alone):
    """Show the best of `levels` and what is not a fifth worse than learning alone."""
    if metric == "nMSE":
        low, high = min(levels), min(max(levels), 1.2 * alone)
    else:
        low, high = max(min(levels), 0.8 * alone), max(levels)
    room = 0.1 * (high - low) or 0.05
    ax.set_ylim(low - room, high + room)


def against_epsilon(rows):
    """A panel per data set; dashed: without privacy."""
    rows = [_number(row) for row in rows]
    names = unique(rows, "data")
    figure, axes = panels(len(names), height=4.8)
    for ax, name in zip(axes, names, strict=True):
        seen, alone = [], 0.0
        for key, (label, color) in METHODS.items():
            found = [
                r for r in rows if (r["data"], r["method"], r["personalization"]) == (name, *key)
            ]
            curves = [row for row in found if row["epsilon"] != ""]
            if curves:
                _errorbar(ax, curves, label, color, x="epsilon")
            for row in found:
                if row["epsilon"] == "" and label in ("alone", "PrivateMeanRegMTL"):
                    text = label if label == "alone" else f"{label}, not private"
                    ax.axhline(row["mean"], linestyle="--", linewidth=1.2, color=color, label=text)
                    alone = row["mean"] if label == "alone" else alone
            seen += [row["mean"] for row in found]
        metric = found[0]["metric"]
        ax.set(title=name, xlabel="epsilon", ylabel=metric, xscale="log")
        _limits(ax, metric, seen, alone)
    legend(figure, axes)
    return figure


def personalizations(rows):
    """Gain of the ways from one private model (FedAvg) to personal ones over the model itself."""
    rows = [_number(row) for row in rows]
    rows = [row for row in rows if row["method"] == "fedavg" and row["epsilon"] != ""]
    names = unique(rows, "data")
    variants = [name for name in unique(rows, "personalization") if name != "none"]
    figure, axes = panels(len(names), height=4.2)
    for ax, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        sign = -1.0 if own[0]["metric"] == "nMSE" else 1.0
        at = {(r["epsilon"], r["personalization"]): r["mean"] for r in own}
        epsilons = unique(own, "epsilon")
        for j, variant in enumerate(variants):
            gain = [sign * (at[e, variant] - at[e, "none"]) for e in epsilons]
            place = np.arange(len(epsilons)) + (j - (len(variants) - 1) / 2) * 0.8 / len(variants)
            ax.bar(place, gain, 0.8 / len(variants), label=variant)
        ax.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
        ax.axhline(0.0, color="black", linewidth=0.8)
        ax.set(title=f"{name}, after private FedAvg", xlabel="epsilon")
        ax.set_ylabel("less nMSE" if sign < 0 else "more accuracy")
    legend(figure, axes)
    return figure


def by_strength(rows):
    """Scores over lam; colour is the budget, levels are one model (dashed) and alone (dotted)."""
    names = unique(rows, "data")
    figure, axes = panels(len(names), height=4.8)
    for ax, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for method, epsilon in dict.fromkeys((r["method"], r["epsilon"]) for r in own):
            found = [r for r in own if (r["method"], r["epsilon"]) == (method, epsilon)]
            budget = "not private" if epsilon == "" else f"epsilon {epsilon:g}"
            color = BUDGETS.get(epsilon, "tab:green")
            if method == "alone":
                alone = found[0]["mean"]
                ax.axhline(alone, linestyle=":", color="gray", label="alone")
            elif found[0]["value"] == "":
                level = {"linestyle": "--", "color": color, "label": f"{method}, {budget}"}
                ax.axhline(found[0]["mean"], linewidth=1.0, **level)
            else:
                _errorbar(ax, found, f"{method}, {budget}", color)
        ax.set(title=name, xlabel="lam", ylabel=own[0]["metric"], xscale="log")
        _limits(ax, own[0]["metric"], [row["mean"] for row in own], alone)
    legend(figure, axes)
    return figure


def _errorbar(ax, rows, label, color, linestyle="-", x="value"):
    at, means = [row[x] for row in rows], [row["mean"] for row in rows]
    spread = [row["sd"] or 0.0 for row in rows]
    ax.errorbar(
        at, means, spread, marker="o", markersize=3, color=color, linestyle=linestyle, label=label
    )


def by_value(rows):
    """Scores over a property of the data; colour is the method, dashed lines have epsilon 0.4."""
    names = unique(rows, "data")
    figure, axes = panels(len(names), width=5.0, height=4.8)
    for ax, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for method, epsilon in dict.fromkeys((r["method"], r["epsilon"]) for r in own):
            found = [r for r in own if (r["method"], r["epsilon"]) == (method, epsilon)]
            label = method if epsilon == "" else f"{method}, epsilon {epsilon:g}"
            _errorbar(ax, found, label, LABELS[method], LINES[epsilon])
        at = unique(own, "value")
        if own[0]["parameter"] != "spread":
            ax.set_xscale("log")
            ax.set_xticks(at, at)
            ax.minorticks_off()
        ax.set(title=name, xlabel=own[0]["parameter"], ylabel=own[0]["metric"])
    legend(figure, axes)
    return figure


def accounting(rows):
    """What an epsilon that is stated is worth, and what it costs."""
    names = unique(rows, "data")
    figure, axes = panels(1 + len(names), height=4.8)
    styles = {
        "all tasks": ("tab:blue", "-"),
        "all tasks, Theorem 1": ("tab:green", "-"),
        "fixed size": ("tab:orange", "-"),
        "fixed size, accounted as Poisson": ("tab:red", ":"),
    }
    for ax, name in zip(axes, names[-1:] + names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for scheme, style in styles.items():
            found = [row for row in own if row["method"] == scheme]
            if ax is axes[0]:
                found = [{**row, "mean": row["epsilon"], "sd": 0.0} for row in found]
            _errorbar(ax, found, scheme, *style)
        ax.set(title=name, xlabel="epsilon as stated", ylabel=own[0]["metric"], xscale="log")
        at = unique(own, "value")
        ax.set_xticks(at, at)
        ax.minorticks_off()
    axes[0].set(ylabel="exact epsilon", yscale="log")
    axes[0].set_title(f"zero-out, delta = 1/m, {rows[-1]['tasks']} tasks")
    legend(figure, axes)
    return figure
