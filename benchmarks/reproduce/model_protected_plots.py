"""Pictures of `benchmarks.reproduce.model_protected`, from the rows of its tables."""

import numpy as np
from matplotlib.figure import Figure

COLORS = {
    "alone": "black",
    "trace norm, not private": "tab:gray",
    "L2,1 norm, not private": "silver",
    "ours, low-rank": "tab:blue",
    "ours, low-rank, default delta": "navy",
    "ours, group-sparse": "tab:cyan",
    "Algorithm 2, Gaussian": "tab:orange",
    "Algorithm 3, Gaussian": "goldenrod",
    "Algorithm 2, as published": "tab:red",
    "Algorithm 3, as published": "lightcoral",
    "DP-AGGR, direct": "tab:green",
    "DP-AGGR, group privacy": "lightgreen",
    "DP-MTRL, direct": "tab:purple",
    "DP-MTRL, group privacy": "plum",
    "one release, Gaussian": "tab:olive",
    "one release, Wishart as published": "tab:brown",
}


def unique(rows, column):
    return list(dict.fromkeys(row[column] for row in rows))


def curve(ax, rows, x, label, logx=True):
    """Means with standard deviations over column `x`; without values there, a level."""
    style = {"color": COLORS.get(label.split(", epsilon")[0]), "label": label}
    if "as published" in label:
        style["linestyle"] = ":"  # no guarantee
    spread = [row["sd"] or 0.0 for row in rows]
    if rows[0][x] == "":
        ax.axhline(rows[0]["mean"], linestyle="--", linewidth=1.2, **style)
        return
    at = [row[x] for row in rows]
    ax.errorbar(at, [row["mean"] for row in rows], spread, marker="o", markersize=3, **style)
    if logx:
        ax.set_xscale("log")


def panels(count, width=4.3, height=4.2):
    width = max(width, 6.4 / count)
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def legend(figure, axes):
    found = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    ncols = min(4, len(axes) + 1)
    figure.legend(found.values(), found, loc="outside lower center", ncols=ncols, fontsize=7)


def budget(rows):
    rows = [row for row in rows if row["metric"] == "nMSE"]
    names = unique(rows, "data")
    figure, axes = panels(len(names), height=5.0)
    for ax, name in zip(axes, names, strict=True):
        for method in unique(rows, "method"):
            found = [r for r in rows if (r["data"], r["method"]) == (name, method)]
            curve(ax, found, "epsilon", method)
        ax.set(title=name, xlabel="epsilon", ylabel="nMSE", yscale="log")
        best = min(row["mean"] for row in rows if row["data"] == name)
        ax.set_ylim(0.9 * best, 1.3)
    legend(figure, axes)
    return figure


def allocation(rows):
    kinds = ("exponent", "Q", "releases")
    figure, axes = panels(3, height=4.8)
    for ax, kind in zip(axes, kinds, strict=True):
        metric = "nMSE" if kind == "releases" else "nMSE minus even"
        chosen = [row for row in rows if (row["parameter"], row["metric"]) == (kind, metric)]
        for method in unique(chosen, "method"):
            found = [row for row in chosen if row["method"] == method]
            found.sort(key=lambda row: row["value"])
            curve(ax, found, "value", method, logx=kind == "releases")
        ax.set(xlabel=kind, ylabel=metric, title=f"low-rank, epsilon 1: {kind}")
        ax.legend(fontsize=7)
    return figure


def by_value(rows):
    """One panel per data set, error over the varied parameter."""
    names = unique(rows, "data")
    figure, axes = panels(len(names), height=4.8)
    for ax, name in zip(axes, names, strict=True):
        for method, epsilon in dict.fromkeys((r["method"], r["epsilon"]) for r in rows):
            found = [
                r for r in rows if (r["data"], r["method"], r["epsilon"]) == (name, method, epsilon)
            ]
            label = method if epsilon == "" else f"{method}, epsilon {epsilon:g}"
            if found:
                curve(ax, found, "value", label, logx=found[0]["parameter"] == "tasks")
                if epsilon == 10.0:
                    ax.lines[-1].set_alpha(0.5)
        ax.set(title=name, xlabel=rows[0]["parameter"], ylabel="nMSE")
        own = [row for row in rows if row["data"] == name]
        top = 1.6 * max(row["mean"] for row in own if row["method"] == "alone")
        ax.set_ylim(0.9 * min(row["mean"] for row in own), min(ax.get_ylim()[1], top))
        if ax.get_xscale() == "log":
            at = unique(own, "value")
            ax.set_xticks(at, at)
            ax.minorticks_off()
    legend(figure, axes)
    return figure


def noise(rows):
    values = [row for row in rows if row["metric"] == "eigenvalue" and row["epsilon"] != ""]
    plain = [row for row in rows if row["metric"] == "eigenvalue" and row["epsilon"] == ""]
    epsilons = unique(values, "epsilon")
    figure, axes = panels(len(epsilons) + 1, width=3.6)
    for ax, epsilon in zip(axes, epsilons, strict=False):
        curve(ax, plain, "value", "no noise", logx=False)
        for method in unique(values, "method"):
            found = [r for r in values if (r["epsilon"], r["method"]) == (epsilon, method)]
            curve(ax, found, "value", method, logx=False)
        ax.set(title=f"epsilon {epsilon:g}", xlabel="number", ylabel="eigenvalue of the release")
        ax.set_yscale("symlog", linthresh=10)
    axes[0].legend(fontsize=7)
    leaked = [row for row in rows if row["metric"] == "|cos| with the last model"]
    names = [row["method"] for row in leaked]
    axes[-1].barh(names, [row["mean"] for row in leaked], xerr=[row["sd"] for row in leaked])
    axes[-1].set(xlim=(0, 1.05), title="|cos| with the last of ten models")
    return figure


def rates(rows):
    names = unique(rows, "data")
    pairs = [(name, parameter) for name in names for parameter in ("tasks", "epsilon")]
    figure, axes = panels(len(pairs), height=4.8)
    points = [row for row in rows if row["parameter"] == "tasks" and row["epsilon"] != ""]
    for ax, (name, parameter) in zip(axes, pairs, strict=True):
        sizes = unique([r for r in points if r["data"] == name], "value")
        epsilons = {m: {r["epsilon"] for r in points if r["value"] == m} for m in sizes}
        large = max(sizes, key=lambda m: len(epsilons[m]))
        for method in unique(points, "method"):
            found = [
                r
                for r in points
                if (r["data"], r["method"]) == (name, method)
                and (r["epsilon"] == 3.0 if parameter == "tasks" else r["value"] == large)
            ]
            if found:
                curve(ax, found, "value" if parameter == "tasks" else "epsilon", method)
        where = "epsilon 3" if parameter == "tasks" else f"{large} tasks"
        ax.set(title=f"{name}, {where}", xlabel=parameter, yscale="log", ylim=(2e-4, 2.0))
        ax.set_ylabel("excess nMSE, or relative error of a release")
    legend(figure, axes)
    return figure


DRAW = {
    "budget": budget,
    "allocation": allocation,
    "share": by_value,
    "tasks": by_value,
    "noise": noise,
    "rates": rates,
}
