"""Errors with factors below and across tasks over those without, of ``doc/relations.rst``.

    python -m benchmarks.accuracy.factors [below|across] [--epsilon none,3,1] [--draws N]

Root mean squared errors: means over draws, in brackets the largest. Factors spread as much as
rows, half as much, and not at all. "below": 100 schools with three classes of ten pupils, other
pupils of the same classes and of new ones. "across": 300 schools of 14 rows and 20 items, others
of these schools and those of new ones.
"""

import argparse

import numpy as np
import pandas as pd

from skpmtl import PrivateMTL

SPREADS = (1.0, 0.5, 0.0)
ITEMS = [f"item {j:02d}" for j in range(20)]
FACTORS = {"below": {"class": "below"}, "across": {"item": ("across", ITEMS)}}
OTHERS = {"below": ("same classes", "new classes"), "across": ("other rows", "new schools")}


def below(seed, spread, m=100, classes=3):
    """-> rows of a fit, of the same classes, and of others"""
    rng = np.random.default_rng(seed)
    level, slopes = 20.0 + rng.normal(size=m), [1.0, -1.0] + 0.3 * rng.normal(size=(m, 2))
    effects, frames = spread * rng.normal(size=(m, 2 * classes)), []
    for first, size in ((0, 10), (0, 20), (classes, 20)):
        school = np.repeat(np.arange(m), classes * size)
        number = first + np.tile(np.repeat(np.arange(classes), size), m)
        X = rng.normal(size=(len(school), 2))
        y = level[school] + (X * slopes[school]).sum(axis=1) + effects[school, number]
        names = np.array([f"c{k}" for k in range(2 * classes)])[number]
        frame = {"x": X[:, 0], "z": X[:, 1], "school": school, "class": names}
        frames.append(pd.DataFrame({**frame, "y": y + rng.normal(size=len(y))}))
    return frames


def across(seed, spread, m=300, new=100, n=20):
    """-> rows of a fit, other rows of its tasks, and rows of new tasks"""
    rng = np.random.default_rng(seed)
    effects, level = rng.normal(size=len(ITEMS)), 20.0 + rng.normal(size=m + new)
    effects *= spread / np.std(effects)
    school = np.repeat(np.arange(m + new), n)
    item = rng.integers(len(ITEMS), size=(m + new) * n)
    X = rng.normal(size=(len(school), 2))
    y = level[school] + effects[item] + X @ [1.0, -1.0] + rng.normal(size=len(school))
    frame = {"x": X[:, 0], "z": X[:, 1], "school": school, "item": np.array(ITEMS)[item], "y": y}
    rows, number = pd.DataFrame(frame), np.tile(np.arange(n), m + new)
    is_old = school < m
    return rows[is_old & (number < 14)], rows[is_old & (number >= 14)], rows[~is_old]


def ratios(kind, frames, epsilon):
    """Of the errors of both kinds of other rows: (2,)"""
    errors = []
    for factors in (FACTORS[kind], None):
        left_out = ["y"] if factors else ["y", frames[0].columns[3]]
        est = PrivateMTL(epsilon=epsilon, factors=factors, random_state=0, task_feature="school")
        est.set_params(tasks=range(frames[0]["school"].max() + 1))
        est.set_params(unseen_task="mean" if kind == "across" else "error")
        est.fit(frames[0].drop(columns=left_out), frames[0]["y"])
        found = [est.predict(rows.drop(columns=left_out)) - rows["y"] for rows in frames[1:]]
        errors.append([np.sqrt(np.mean(one**2)) for one in found])
    return np.divide(*errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=FACTORS)
    parser.add_argument("--epsilon", default="none,3,1")
    parser.add_argument("--draws", type=int, default=6)
    args = parser.parse_args()
    make, seeds = {"below": (below, 9100), "across": (across, 9200)}[args.kind]
    seeds = range(seeds, seeds + args.draws)
    for name in args.epsilon.split(","):
        epsilon = None if name == "none" else float(name)
        for spread in SPREADS:
            found = [ratios(args.kind, make(seed, spread), epsilon) for seed in seeds]
            mean, most = np.mean(found, axis=0), np.max(found, axis=0)
            parts = zip(OTHERS[args.kind], mean, most, strict=True)
            text = "  ".join(f"{what} {m:.3f} ({high:.3f})" for what, m, high in parts)
            print(f"epsilon {name:<4}  spread {spread:.1f}  {text}", flush=True)


if __name__ == "__main__":
    main()
