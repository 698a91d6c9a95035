"""A mean-regularised round of many tasks against the same round in PyTorch, task by task.

In a round every task receives w~, minimises its loss + lam / 2 ||w - w~||^2, clips the
difference to w~, and the clipped differences are averaged. PyTorch loops over tasks as
research code does, with autograd and `STEPS` accelerated steps on the whole task; ours makes as
many steps on the multinomial loss and solves squared loss exactly. Our time of a round is that
of a longer fit minus that of a fit of one round, so that reading the input and factorising,
once per fit, do not count, but drawing the noise does; "fit of one round" counts everything.
"accuracy" is the largest difference of the two clipped means over the largest entry.

PyTorch takes part where it is installed.
"""

import statistics
import time
from functools import partial

import numpy as np

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier

STEPS, LAM, CLIP = 12, 0.1, 0.3


def squared_tasks(m, n=50, d=28):
    """Tasks as large as the schools: unit rows, targets of scale 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m * n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ (2.0 * rng.standard_normal(d)) + rng.standard_normal(m * n)
    return X, y, np.repeat(np.arange(m), n)


def multinomial_tasks(m, n=50, d=60, n_classes=10):
    """Unit rows with a constant last column, so that no task needs an intercept of its own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m * n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = np.column_stack([X, np.ones(len(X))])
    scores = X @ rng.standard_normal((d + 1, n_classes)) * 3.0
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    y[:n_classes] = np.arange(n_classes)
    return X, y, np.repeat(np.arange(m), n)


def ours(kind, data, n_rounds):
    """A fit of so many rounds; -> w~."""
    X, y, task = data
    estimator = kind(
        LAM,
        epsilon=1e8,  # so little noise that the results can be compared; it is drawn all the same
        clip_norm=CLIP,
        n_rounds=n_rounds,
        fit_intercept=False,
        tasks=np.unique(task),
    )
    if estimator._classification:
        estimator.set_params(classes=np.unique(y))
    return estimator.fit(X, y, task=task).billboard_.mean


def torch_round(torch, data, n_classes):
    """The first round in PyTorch; -> w~ (d,) or (n_classes, d)."""
    X, y, task = data
    cuts = np.flatnonzero(np.diff(task)) + 1
    shape = (X.shape[1],) if n_classes is None else (n_classes, X.shape[1])
    total = torch.zeros(shape, dtype=torch.float64)
    shared = torch.zeros_like(total)
    for rows, labels in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        rows, labels = torch.from_numpy(rows), torch.from_numpy(labels)
        top = float(torch.linalg.matrix_norm(rows, 2)) ** 2 / len(rows)
        step = 1.0 / ((1.0 if n_classes is None else 0.5) * top + LAM)
        momentum = (1 - (step * LAM) ** 0.5) / (1 + (step * LAM) ** 0.5)
        w = shared.clone().requires_grad_()
        before = w.detach().clone()
        for _ in range(STEPS):
            if n_classes is None:
                loss = 0.5 * torch.nn.functional.mse_loss(rows @ w, labels)
            else:
                loss = torch.nn.functional.cross_entropy(rows @ w.T, labels)
            loss = loss + 0.5 * LAM * ((w - shared) ** 2).sum()
            (gradient,) = torch.autograd.grad(loss, w)
            with torch.no_grad():
                after = w - step * gradient
                w.copy_(after + momentum * (after - before))
                before = after
        difference = before - shared
        total += difference * min(1.0, CLIP / float(difference.norm()))
    return (total / (len(cuts) + 1)).numpy()


def measure(quick, repeats):
    """Rows of the CSV file, as dicts without the commit."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    m = 50 if quick else 10_000
    for loss, kind, data, n_classes, extra in (
        ("squared", PrivateMeanRegMTL, squared_tasks(m), None, 200),
        ("multinomial", PrivateMeanRegMTLClassifier, multinomial_tasks(m), 10, 3),
    ):
        fits = {
            "one": partial(ours, kind, data, 1),
            "more": partial(ours, kind, data, 1 + extra),
            "torch": partial(torch_round, torch, data, n_classes),
        }
        mean, expected = fits["one"](), fits["torch"]()  # also compiles
        error = np.abs(mean - expected).max() / np.abs(expected).max()
        times = {peer: [] for peer in fits}
        for _ in range(min(repeats, 3)):
            for peer, fit in fits.items():
                start = time.process_time()
                fit()
                times[peer].append(time.process_time() - start)
        median = {peer: statistics.median(values) for peer, values in times.items()}
        round_time = (median["more"] - median["one"]) / extra
        for peer, seconds in (
            ("skpmtl", round_time),
            ("skpmtl, fit of one round", median["one"]),
            ("torch", median["torch"]),
        ):
            yield {
                "peer": peer,
                "problem": f"mean-regularised round, {m} tasks, {loss}",
                "penalty": "mean",
                "accuracy": f"{error:.1e}",
                "seconds": f"{seconds:.5f}",
                "ratio": f"{seconds / round_time:.2f}",
                "megabytes": "",
            }
