"""The School study: ``python -m skpmtl``.

How well does one linear model per school predict examination scores when the schools learn
alone, pooled, jointly, and jointly under differential privacy for whole schools?
"""

import argparse
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from . import MPMTLLowRank, PrivateMTL
from .baselines import PerTask
from .datasets.generators import make_low_rank_tasks
from .datasets.school import load_school
from .inspection import PrivacyUtilityDisplay
from .metrics import nmse

ALONE = "each task alone"
TUNED = "alone, tuned together"
POOLED = "one model for all"
EXACT = "joint, not private"
BASELINES = (ALONE, TUNED, POOLED, EXACT)

RIDGE = np.logspace(-4, 2, 13)

LEGEND = """\
each task alone        ridge, its penalty chosen by the task itself
alone, tuned together  ridge, one penalty for all, chosen on held-out rows (not private)
one model for all      ridge on the rows of all tasks (not private)
joint, not private     trace norm, exact; alpha chosen on held-out rows
private                PrivateMTL with nothing but epsilon and delta set"""
CAUTION = """\
Each private fit stands for itself: whoever publishes several on the same tasks adds them
up. The errors in the table are computed from test rows without noise; they are here to
judge the method and are not covered by the guarantee."""


def main(arguments=None):
    options = parse(arguments)
    start = time.perf_counter()
    title, how, draw, tasks = study(options)
    print(f"Data: {title}\n{how}\n")
    scores = {name: [] for name in (*BASELINES, *options.epsilon)}
    shown, reported = min(options.epsilon, key=lambda epsilon: abs(np.log(epsilon))), None
    total, done = options.repeats * len(scores), 0
    # Matrices this small are slower on several threads, much slower on a busy machine.
    with threadpool_limits(1):
        for repeat in range(options.repeats):
            train, test = draw(repeat)
            for name in scores:
                done += 1
                progress(f"[{done}/{total}] repeat {repeat + 1}, {label(name)}")
                predicted, report = fit_predict(name, train, test, tasks, options.delta)
                scores[name].append(nmse(test[1], predicted))
                if name == shown:
                    reported = report
    progress(f"done in {time.perf_counter() - start:.0f} s", last=True)
    print(table(scores))
    print(f"\n{LEGEND}\n\nPrivacy report of one fit (epsilon {shown:g}):\n")
    print(textwrap.fill(str(reported), 88))
    print(f"\n{CAUTION}")
    picture(scores, title, options)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m skpmtl", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        help="school.mat of the MALSAR toolbox; default: the file named by SKPMTL_SCHOOL, "
        "then scikit-learn's data home, then generated data",
    )
    parser.add_argument("--repeats", type=int, help="splits (default 8)")
    parser.add_argument("--epsilon", type=float, nargs="+", help="default: 0.1 0.3 1 3 10")
    parser.add_argument("--delta", type=float, help="default: min(1e-5, 1/m^2) for m tasks")
    parser.add_argument("--output", type=Path, default=Path("skpmtl-study.png"), help="picture")
    parser.add_argument("--quick", action="store_true", help="2 splits, 2 epsilon, fewer rows")
    options = parser.parse_args(arguments)
    if options.repeats is None:
        options.repeats = 2 if options.quick else 8
    if options.epsilon is None:
        options.epsilon = [1.0, 10.0] if options.quick else [0.1, 0.3, 1.0, 3.0, 10.0]
    if options.repeats < 1 or min(options.epsilon) <= 0 or not np.isfinite(max(options.epsilon)):
        parser.error("repeats must be at least 1, epsilon positive and finite")
    return options


def study(options):
    """Title, description, a function repeat -> ((X, y, task), (X, y, task)), public task list."""
    try:
        # Percentages have a public range, and a row of unit length uses only itself, so
        # neither step releases anything about a school.
        school = load_school(options.data, scale="public")
    except FileNotFoundError as error:
        if options.data is not None:
            raise SystemExit(str(error)) from None
        print(
            "School was not found, so generated tasks are used. For the real data give "
            "--data school.mat,\nor download it once:\n"
            '  python -c "from skpmtl.datasets import fetch_school; fetch_school()"\n',
            file=sys.stderr,
        )
    else:
        rows = normalize(school.data), school.target, school.task

        def split(repeat):
            parts = train_test_split(*rows, train_size=0.3, stratify=rows[2], random_state=repeat)
            return parts[::2], parts[1::2]

        how = (
            f"{len(rows[1])} pupils of {rows[2].max() + 1} schools, {rows[0].shape[1]} features; "
            "30 % of each school's pupils train, the others test."
        )
        return f"School ({school.filename})", how, split, np.unique(rows[2])

    n_tasks = 80 if options.quick else 320

    def generate(repeat):
        parts = make_low_rank_tasks(n_tasks, n_test=90, random_state=repeat)
        return parts[:3], parts[3:]

    how = f"{n_tasks} tasks in 4 related blocks, 30 rows each to train, 90 to test, 30 features."
    return "generated (make_low_rank_tasks)", how, generate, np.arange(n_tasks)


def fit_predict(name, train, test, tasks, delta):
    """Predictions for the test rows, and the privacy report of a private fit."""
    X, y, task = train
    if name == POOLED:
        return RidgeCV(RIDGE, fit_intercept=False).fit(X, y).predict(test[0]), None
    if name == ALONE:
        # Leave-one-out, the best that a task of a dozen rows can do by itself: five folds
        # give .77 on School where this gives .74.
        estimator = PerTask(RidgeCV(RIDGE, fit_intercept=False))
    elif name == TUNED:
        estimator = tuned(train, [{"alpha": 0, "ridge": r} for r in np.geomspace(0.1, 1e-4, 13)])
    elif name == EXACT:
        largest = alpha_max(*train)
        fractions = np.geomspace(0.5, 0.002, 12)
        estimator = tuned(train, [{"alpha": fraction * largest} for fraction in fractions])
    else:
        estimator = PrivateMTL(
            epsilon=name, delta=delta, tasks=tasks.tolist(), fit_intercept=False
        )
    estimator.fit(X, y, task=task)
    return estimator.predict(test[0], task=test[2]), getattr(estimator, "privacy_", None)


def tuned(train, candidates):
    """Exact estimator with the candidate that is best on a quarter of every task's rows."""
    parts = train_test_split(*train, test_size=0.25, stratify=train[2], random_state=0)
    (X, y, task), (X_val, y_val, task_val) = parts[::2], parts[1::2]
    estimator = MPMTLLowRank(epsilon=None, fit_intercept=False, warm_start=True, tol=1e-4)
    errors = []
    for parameters in candidates:
        estimator.set_params(**parameters).fit(X, y, task=task)
        errors.append(nmse(y_val, estimator.predict(X_val, task=task_val)))
    best = candidates[int(np.argmin(errors))]
    return MPMTLLowRank(epsilon=None, fit_intercept=False).set_params(**best)


def alpha_max(X, y, task):
    """The alpha above which all coefficients are zero."""
    labels, sizes = np.unique(task, return_counts=True)
    moments = np.array([X[task == k].T @ y[task == k] for k in labels])
    return np.linalg.norm(moments / sizes[:, None], 2)


def label(name):
    return f"private, epsilon {name:g}" if isinstance(name, float) else name


def table(scores):
    lines = [f"{'method':<24}{'nMSE':>8}{'sd':>8}", "-" * 40]
    for name, values in scores.items():
        spread = f"{np.std(values, ddof=1):8.4f}" if len(values) > 1 else f"{'':>8}"
        lines.append(f"{label(name):<24}{np.mean(values):8.4f}{spread}")
    repeats = len(values)
    lines += ["-" * 40, f"test MSE / variance, mean of {repeats} repeats; 1 is a constant guess"]
    return "\n".join(lines)


def picture(scores, title, options):
    display = PrivacyUtilityDisplay(
        epsilons=options.epsilon,
        scores=[scores[epsilon] for epsilon in options.epsilon],
        baselines={name: scores[name] for name in BASELINES},
        score_name="normalised test MSE",
    )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("\nNo picture: matplotlib is not installed (pip install matplotlib).")
        return
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    display.plot(axes, name="joint, private")
    axes.set_title(title.split(" (")[0])
    figure.savefig(options.output, dpi=150)
    print(f"\nPicture: {options.output}")


def progress(message, last=False):
    """One line that rewrites itself on a terminal, a line each elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
