"""Hidden groups: ``PrivateMTL("groups")`` against the default, on tasks with and without groups.

    python -m benchmarks.groups [--draws 2] [--epsilons 3 10] [--only WORD] [--output FILE.csv]

The csv has for each draw, shape and epsilon the errors on new rows of the same tasks, of the
default and with groups, and the number of groups that were released: the squared error over the
variance of the target, the log-loss of classes, and half of the mean deviance of counts.
"""

import warnings

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss, mean_poisson_deviance
from threadpoolctl import threadpool_limits

from skpmtl import PrivateMTL, PrivateMTLClassifier

from .command import command_line, with_commit, write_rows

NEW_ROWS = 8
FIELDS = (
    "commit",
    "shape",
    "tasks",
    "rows",
    "columns",
    "epsilon",
    "draw",
    "auto",
    "groups",
    "found",
)


def slopes(rng, kind, m, d, length, own, shares):
    """Models of m tasks, (m, d)."""
    if kind == "groups":
        centres = rng.normal(size=(len(shares), d))
        centres *= length / np.linalg.norm(centres, axis=1, keepdims=True)
        W = centres[rng.choice(len(shares), m, p=np.array(shares) / sum(shares))]
    else:
        mean = rng.normal(size=d) * (kind != "plane")
        plane = np.linalg.qr(rng.normal(size=(d, 2)))[0]
        W = length * mean / max(np.linalg.norm(mean), 1e-300)
        W = W + (kind != "mean") * 1.2 * rng.normal(size=(m, 2)) @ plane.T
    return W + own * rng.normal(size=(m, d)) / np.sqrt(d)


# m, n, d, length of centres or mean, std of a task's own part, shares of the groups; the first word
# says whether of classes or of counts
SHAPES = {
    "4 groups": ("groups", 600, 10, 30, 2.0, 0.4, (1, 1, 1, 1)),
    "6 groups, 60 columns": ("groups", 1500, 8, 60, 2.5, 0.5, (1,) * 6),
    "5 unequal groups": ("groups", 900, 9, 24, 2.2, 0.5, (5, 4, 3, 2, 1)),
    "2 groups": ("groups", 500, 6, 16, 2.5, 0.7, (2, 1)),
    "no groups: mean": ("mean", 700, 10, 24, 1.8, 0.5, ()),
    "no groups: plane": ("plane", 700, 9, 25, 0.0, 0.3, ()),
    "no groups: mean and plane": ("both", 600, 8, 20, 1.5, 0.3, ()),
    "classes: 4 groups": ("groups", 600, 20, 12, 3.0, 0.4, (1, 1, 1, 1)),
    "classes: 3 unequal groups": ("groups", 900, 15, 20, 3.5, 0.5, (3, 2, 1)),
    "classes: no groups, mean": ("mean", 700, 15, 12, 2.0, 0.5, ()),
    "classes: no groups, mean and plane": ("both", 600, 15, 12, 1.5, 0.3, ()),
    "counts: 4 groups": ("groups", 600, 10, 15, 0.9, 0.15, (1, 1, 1, 1)),
    "counts: 6 groups": ("groups", 1000, 8, 20, 0.9, 0.15, (1,) * 6),
    "counts: no groups, mean": ("mean", 700, 10, 15, 0.8, 0.2, ()),
    "counts: no groups, mean and plane": ("both", 600, 10, 15, 0.5, 0.1, ()),
}


def draw(seed, loss, kind, m, n, d, length, own, shares):
    """-> X, y, task, and new rows"""
    rng = np.random.default_rng(seed)
    W, levels = slopes(rng, kind, m, d, length, own, shares), rng.normal(size=m)
    if loss != "squared":
        levels = 0.5 * levels + (loss == "counts")
    if loss == "counts" and kind == "both":
        W *= 0.35  # as means of counts are exponentials
    found = []
    for count in (n, NEW_ROWS):
        task = np.repeat(np.arange(m), count)
        X = rng.normal(size=(len(task), d))
        y = np.einsum("ij,ij->i", X, W[task]) + levels[task]
        if loss == "classes":
            y = (rng.uniform(size=len(y)) < expit(y)).astype(int)
        elif loss == "counts":
            y = rng.poisson(np.exp(np.minimum(y, 8.0)))
        else:
            y += rng.normal(size=len(y))
        found += [X, y, task]
    return found


def fitted(loss, structure, X, y, task, **options):
    if loss == "classes":
        est = PrivateMTLClassifier(structure, classes=[0, 1], uncertainty=False, **options)
    else:
        est = PrivateMTL(structure, loss="poisson" if loss == "counts" else loss, **options)
    return est.fit(X, y, task=task)


def error(loss, est, X, y, task):
    if loss == "classes":
        return log_loss(y, est.predict_proba(X, task=task))
    predicted = est.predict(X, task=task)
    if loss == "counts":
        return 0.5 * mean_poisson_deviance(y, np.maximum(predicted, 1e-9))
    return np.mean((predicted - y) ** 2) / np.var(y)


def measured(draws, epsilons, only):
    """Yield rows of the csv."""
    for seed in range(draws):
        for name, shape in SHAPES.items():
            loss = name.split(":")[0] if name.startswith("c") else "squared"
            m, n, d = shape[1:4]
            for epsilon in epsilons if only in name else ():
                X, y, task, *new = draw(seed, loss, *shape)
                row = {"shape": name, "tasks": m, "rows": n, "columns": d}
                row |= {"epsilon": f"{epsilon:g}", "draw": seed}
                for structure in ("auto", "groups"):
                    options = {"epsilon": epsilon, "tasks": range(m), "random_state": seed}
                    est = fitted(loss, structure, X, y, task, **options)
                    row[structure] = f"{error(loss, est, *new):.4f}"
                found = getattr(est, "groups_", {"counts": ()})  # missing where none were found
                yield {**row, "found": len(found["counts"])}


def main(arguments=None):
    parser = command_line("groups", __doc__)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3.0, 10.0])
    parser.add_argument("--only", default="")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        rows = measured(given.draws, given.epsilons, given.only)
        write_rows(with_commit(rows), FIELDS, given.output)


if __name__ == "__main__":
    main()
