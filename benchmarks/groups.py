"""Hidden groups: ``PrivateMTL("groups")`` against the default, on tasks with and without groups.

``python -m benchmarks.groups [--draws 2] [--epsilons 3 10] [--only WORD]`` prints, for every shape
and epsilon, the squared error on new rows of the same tasks over the variance of the target
(default, groups), and how many groups each draw released.
"""

import argparse
import warnings

import numpy as np

from skpmtl import PrivateMTL

NEW_ROWS = 8


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


# m, n, d, length of centres or mean, std of a task's own part, shares of the groups
SHAPES = {
    "4 groups": ("groups", 600, 10, 30, 2.0, 0.4, (1, 1, 1, 1)),
    "6 groups, 60 columns": ("groups", 1500, 8, 60, 2.5, 0.5, (1,) * 6),
    "5 unequal groups": ("groups", 900, 9, 24, 2.2, 0.5, (5, 4, 3, 2, 1)),
    "2 groups": ("groups", 500, 6, 16, 2.5, 0.7, (2, 1)),
    "no groups: mean": ("mean", 700, 10, 24, 1.8, 0.5, ()),
    "no groups: plane": ("plane", 700, 9, 25, 0.0, 0.3, ()),
    "no groups: mean and plane": ("both", 600, 8, 20, 1.5, 0.3, ()),
}


def draw(seed, kind, m, n, d, length, own, shares):
    """-> X, y, task, and new rows"""
    rng = np.random.default_rng(seed)
    W, levels = slopes(rng, kind, m, d, length, own, shares), rng.normal(size=m)
    found = []
    for count in (n, NEW_ROWS):
        task = np.repeat(np.arange(m), count)
        X = rng.normal(size=(len(task), d))
        y = np.einsum("ij,ij->i", X, W[task]) + levels[task] + rng.normal(size=len(task))
        found += [X, y, task]
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3.0, 10.0])
    parser.add_argument("--only", default="")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for name, shape in SHAPES.items():
        for epsilon in given.epsilons if given.only in name else ():
            errors, numbers = np.zeros((given.draws, 2)), []
            for seed in range(given.draws):
                X, y, task, *new = draw(seed, *shape)
                for j, structure in enumerate(("auto", "groups")):
                    est = PrivateMTL(
                        structure, epsilon=epsilon, tasks=range(shape[1]), random_state=seed
                    ).fit(X, y, task=task)
                    residual = est.predict(new[0], task=new[2]) - new[1]
                    errors[seed, j] = np.mean(residual**2) / np.var(new[1])
                numbers.append(len(est.groups_["counts"]))
            auto, groups = errors.mean(axis=0)
            print(f"{name:26s} epsilon {epsilon:4g}  {auto:.3f}  {groups:.3f}  {numbers}")


if __name__ == "__main__":
    main()
