"""Errors of estimators on random tables, over the best reference, by epsilon and band.

    python -m benchmarks.random_tables --n 60 --seed 7 --estimators PrivateMTL MODULE:CLASS
    python -m benchmarks.random_tables --targets classes

Every run without --seed draws new tables. Bands are of z = (tasks with rows) times mu, at delta
1e-5: below 20 nothing that tasks share can be found, and the reference is what a task has by
itself; above it, the best of that, shrunken task means, and the mean. Of classes and counts see
`scores`; "over base" compares with the shares, or the rate, of all rows.
"""

import importlib
import math
import time
import warnings

import numpy as np

import skpmtl
from skpmtl.privacy.accounting import gdp_mu

from ..accuracy.cells import epsilon_of
from ..command import command_line, write_rows
from . import scores
from .law import draw
from .references import best_of, error, judged_rows, references

BANDS = ((0, 20), (20, 80), (80, math.inf))
DELTA = 1e-5
FIELDS = "seed words estimator epsilon z error reference ratio base cpu".split()


def found(name):
    """A class by its name in skpmtl, or "module:class"."""
    module, _, of = name.rpartition(":")
    return getattr(importlib.import_module(module) if module else skpmtl, of)


def band(z):
    return (
        next(f"{low} < z < {high}" for low, high in BANDS if z < high) if z < math.inf else "none"
    )


def judge(table, targets):
    """-> what an estimator is told, its error of predictions, errors of base and best reference

    Errors are functions of predictions and z, and of z.
    """
    if targets == "real":
        known = references(table)

        def of(predicted, z):
            return error(table, predicted, judged_rows(table, z))

        return {}, of, lambda z: (of(known["mean"], z), best_of(table, known, z))
    n_classes = (scores.with_classes if targets == "classes" else scores.with_counts)(table)
    both = scores.references(table, n_classes)

    def of(predicted, z):
        return scores.mean_loss(table, predicted, judged_rows(table, z), n_classes)

    def best(z):
        losses = [of(predicted, z) for predicted in both]
        return losses[0], min(losses)

    return {"classes": range(n_classes)} if n_classes else {"loss": "poisson"}, of, best


def measure(table, names, epsilons, targets):
    """Yield a row of the CSV file for every estimator and epsilon."""
    given, of, best = judge(table, targets)
    for epsilon in epsilons:
        z = math.inf if epsilon is None else table.n_present * gdp_mu(epsilon, DELTA)
        base, reference = best(z)
        for name in names:
            start = time.process_time()
            seeded = {} if epsilon is None else {"random_state": table.seed}
            try:
                model = found(name)(epsilon=epsilon, tasks=range(table.n_tasks), **given, **seeded)
                model.fit(table.X, table.y, task=table.task)
                predict = model.predict_proba if "classes" in given else model.predict
                value = of(predict(table.X_test, task=table.task_test), z)
            except ValueError as fault:
                print(f"seed {table.seed} {name} {epsilon}: {fault}"[:200], flush=True)
                value = math.inf
            cpu = time.process_time() - start
            numbers = z, value, reference, value / reference, value / base, cpu
            yield dict(zip(FIELDS, (table.seed, table.words, name, epsilon, *numbers), strict=True))


def summary(rows):
    """Lines of the geometric mean, 90 % and worst of the ratios, and of pairs of estimators."""
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    for name in names:
        of = [row for row in rows if row["estimator"] == name]
        for epsilon in dict.fromkeys(row["epsilon"] for row in of):
            at = [row for row in of if row["epsilon"] == epsilon]
            bands = dict.fromkeys(sorted(band(row["z"]) for row in at))
            for which in ["all", *bands] if len(bands) > 1 else ["all"]:
                q = [r for r in at if which in ("all", band(r["z"]))]
                yield f"{name:40s} epsilon {epsilon}  {which:14s} {words(q)}"
            yield f"{name:40s} epsilon {epsilon}  over base      {words(at, 'base')}"
    for name in names[1:]:
        for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
            of = {(r["estimator"], r["seed"]): r["error"] for r in rows if r["epsilon"] == epsilon}
            pairs = [of[name, s] / of[names[0], s] for e, s in of if e == name]
            pairs = np.minimum(pairs, 1e6)
            mean = math.exp(np.mean(np.log(pairs)))
            yield f"{name} over {names[0]}  epsilon {epsilon}  geometric mean {mean:.3f}"


def words(rows, what="ratio"):
    q = np.array([min(row[what], 1e6) for row in rows])
    worst = rows[int(q.argmax())]
    return (
        f"{len(q):4d} tables  {math.exp(np.mean(np.log(q))):.3f} / {np.quantile(q, 0.9):.3f} / "
        f"{q.max():.2f}  (seed {worst['seed']}: {worst['words']})  "
        f"cpu {sum(r['cpu'] for r in rows):.1f} s"
    )


def main(arguments=None):
    parser = command_line("random_tables", __doc__)
    parser.add_argument("--n", type=int, default=40, help="tables")
    parser.add_argument("--seed", type=int, default=None, help="first seed; default: new ones")
    parser.add_argument("--epsilons", nargs="+", default=["1", "3", "none"])
    parser.add_argument("--estimators", nargs="+", help="default: ours for the targets")
    parser.add_argument("--targets", choices=["real", "classes", "counts"], default="real")
    parser.add_argument("--tidy", action="store_true", help="the law before people store tables")
    given = parser.parse_args(arguments)
    default = "PrivateMTLClassifier" if given.targets == "classes" else "PrivateMTL"
    estimators = given.estimators or [default]
    warnings.simplefilter("ignore")
    first = given.seed if given.seed is not None else int(np.random.SeedSequence().entropy % 2**31)
    epsilons = [epsilon_of(word) for word in given.epsilons]
    tables = (draw(seed, not given.tidy) for seed in range(first, first + given.n))
    rows = (row for t in tables for row in measure(t, estimators, epsilons, given.targets))
    rows = write_rows(rows, FIELDS, given.output)
    print(f"seeds {first} to {first + given.n - 1}")
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
