"""Log-losses of classes and deviances of counts on random tables, over those of references.

    python -m benchmarks.random_tables.scores --n 40 --targets classes --estimators NAME ANOTHER

Targets of the tables of `law` are cut into two to four classes at random quantiles of all rows, or
are rates of counts. The references are the shares of classes (the mean rate) of all rows of the
fit, and those of every task, shrunk by one row of them. Every run without --seed draws new tables.
"""

import argparse
import math
import time
import warnings

import numpy as np

from skpmtl.privacy.accounting import gdp_mu

from .__main__ import DELTA, found
from .law import draw, log_uniform
from .references import judged_rows


def with_classes(table):
    """The table with classes 0, 1, ... of its targets."""
    rng = np.random.default_rng([20261130, table.seed])
    cuts = np.sort(rng.uniform(0.1, 0.9, rng.choice([1, 1, 2, 3])))
    ends = np.quantile(np.concatenate([table.y, table.y_test]), cuts)
    table.y, table.y_test = (np.searchsorted(ends, y) for y in (table.y, table.y_test))
    return len(cuts) + 1


def with_counts(table):
    """The table with counts, whose log rates are its targets, scaled and moved."""
    rng = np.random.default_rng([20261130, table.seed])
    y = np.concatenate([table.y, table.y_test])
    centre, scale = np.median(y), np.subtract(*np.quantile(y, [0.75, 0.25])) or y.std() or 1.0
    size, level = log_uniform(rng, 0.2, 1.0), math.log(log_uniform(rng, 0.2, 50.0))
    for name in ("y", "y_test"):
        score = np.clip((getattr(table, name) - centre) / scale, -3.0, 3.0)
        setattr(table, name, rng.poisson(np.exp(level + size * score)))
    return 0


def mean_loss(table, predicted, judged, n_classes):
    """Log-loss of probabilities (n, C), or half of the mean deviance of rates (n,)."""
    y, p = table.y_test[judged], np.maximum(predicted[judged], 1e-12)
    if n_classes:
        return float(-np.log(p[np.arange(len(y)), y]).mean())
    saturated = np.where(y > 0, y * np.log(np.maximum(y, 1) / p), 0.0)
    return float((saturated - y + p).mean())


def references(table, n_classes):
    """Predictions of the shares, or the rate, of all rows, and of those of every task."""
    Y = np.eye(n_classes)[table.y] if n_classes else table.y[:, None].astype(float)
    every = np.maximum(Y.mean(axis=0), 1e-3)
    sums = np.stack([np.bincount(table.task, row, table.n_tasks) for row in Y.T], axis=1)
    n = np.bincount(table.task, minlength=table.n_tasks)[:, None]
    own = (sums + every) / (n + 1)
    shape = (len(table.y_test), n_classes) if n_classes else (len(table.y_test),)
    base = np.broadcast_to(every, (len(table.y_test), len(every)))
    return [base.reshape(shape), own[table.task_test].reshape(shape)]


def predictions(name, table, n_classes, epsilon):
    public = {"epsilon": epsilon, "tasks": range(table.n_tasks), "random_state": table.seed}
    public |= {"classes": range(n_classes)} if n_classes else {"loss": "poisson"}
    model = found(name)(**public).fit(table.X, table.y, task=table.task)
    predict = model.predict_proba if n_classes else model.predict
    return predict(table.X_test, task=table.task_test)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_tables.scores")
    parser.add_argument("--n", type=int, default=30, help="tables")
    parser.add_argument("--seed", type=int, default=None, help="first seed; default: new ones")
    parser.add_argument("--targets", choices=["classes", "counts"], default="classes")
    parser.add_argument("--epsilons", nargs="+", default=["1", "3", "none"])
    parser.add_argument("--estimators", nargs="+", default=["PrivateMTLClassifier"])
    parser.add_argument("--most", type=int, default=10**9, help="rows of a table")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    first = given.seed if given.seed is not None else int(np.random.SeedSequence().entropy % 2**31)
    epsilons = [None if word == "none" else float(word) for word in given.epsilons]
    rows, seed = [], first
    while len({row[0] for row in rows}) < given.n:
        table = draw(seed)
        seed += 1
        if table.X.size > given.most:
            continue
        n_classes = with_classes(table) if given.targets == "classes" else with_counts(table)
        for epsilon in epsilons:
            z = math.inf if epsilon is None else table.n_present * gdp_mu(epsilon, DELTA)
            judged = judged_rows(table, z)
            base, own = (
                mean_loss(table, p, judged, n_classes) for p in references(table, n_classes)
            )
            for name in given.estimators:
                start, loss = time.process_time(), math.inf
                try:
                    p = predictions(name, table, n_classes, epsilon)
                    loss = mean_loss(table, p, judged, n_classes)
                except ValueError as fault:
                    print(f"seed {table.seed} {name} {epsilon}: {fault}"[:200], flush=True)
                cpu = time.process_time() - start
                rows.append((table.seed, name, epsilon, loss, base, own, cpu))
                words = f"{loss / base:.3f} {loss / min(base, own):.3f} {cpu:.1f} s"
                print(table.seed, name, epsilon, words, f"z {z:.0f}", table.words, flush=True)
    print(f"seeds {first} to {seed - 1}; geometric mean / 90 % / worst")
    for epsilon in epsilons:
        of = {}
        for name in given.estimators:
            at = [row for row in rows if row[1:3] == (name, epsilon)]
            of[name] = np.array([row[3] for row in at])
            cpu = sum(row[6] for row in at)
            base, own = (np.array([row[k] for row in at]) for k in (4, 5))
            for what, best in (("base", base), ("best", np.minimum(base, own))):
                print(f"{name} {epsilon} over {what} {words_of(of[name] / best)}  cpu {cpu:.1f} s")
        for name in given.estimators[1:]:
            ratio = of[name] / of[given.estimators[0]]
            print(f"{name} over {given.estimators[0]} {epsilon} {words_of(ratio)}")


def words_of(q):
    q = np.minimum(q, 1e6)
    return f"{math.exp(np.mean(np.log(q))):.3f} / {np.quantile(q, 0.9):.3f} / {q.max():.2f}"


if __name__ == "__main__":
    main()
