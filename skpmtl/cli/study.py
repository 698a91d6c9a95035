"""The School study: ``python -m skpmtl``.

How well does one linear model per school predict examination scores when the schools learn
alone, pooled, jointly, and jointly under differential privacy for whole schools?
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from .. import MPMTLGroupSparse, MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from ..baselines import PerTask
from ..datasets.school import load_school
from ..inspection import PrivacyUtilityDisplay
from ..metrics import nmse
from ..model_selection import task_train_test_split
from ..privacy import LittleFoundWarning
from ..reproduction import PublishedMPMTL

ALONE = "each school alone"
TUNED = "alone, tuned together"
POOLED = "one model for all"
EXACT = "joint, not private"
BASELINES = (ALONE, TUNED, POOLED, EXACT)
SPECIALISTS = (MPMTLLowRank, MPMTLGroupSparse, PrivateMeanRegMTL)
FRONT, PUBLISHED = PrivateMTL.__name__, "published, NO guarantee"
METHODS = (FRONT, *(cls.__name__ for cls in SPECIALISTS), PUBLISHED)

RIDGE = np.logspace(-4, 2, 13)

LEGEND = f"""\
{ALONE:<25}ridge, its penalty chosen by the school itself
{TUNED:<25}ridge, one penalty for all, chosen on held-out rows (not private)
{POOLED:<25}ridge on the rows of all schools (not private)
{EXACT:<25}trace norm, exact; alpha chosen on held-out rows
{FRONT:<25}the one to begin with: finds out what schools share, within epsilon
{"MPMTL..., PrivateMean...":<25}for those who know what schools share: a subspace, the
{"":<25}same few features, a mean; in these four only epsilon is set
{"":<25}(equal errors at a small budget: nothing is released, and
{"":<25}every school is alone, under the prior of these fits)
{PUBLISHED:<25}Algorithm 2 of Liang et al. 2022 with its own noise, which is NOT
{"":<25}differentially private; parameters chosen on held-out rows and
{"":<25}clipping bound from all models, uncharged"""
CAUTION = """\
Each private fit stands for itself: whoever publishes several on the same tasks adds them
up. The errors in the tables are computed from test rows without noise; they are here to
judge the methods and are not covered by the guarantee."""
NEXT = """\
What to do next:

    from skpmtl import PrivateMTL
    from skpmtl.datasets import load_school
    school = load_school(scale="public")                    # or rows of your own
    est = PrivateMTL(epsilon=1.0, tasks=range(139))         # a public list of the tasks
    est.fit(school.data, school.target, task=school.task)
    print(est.privacy_)                                     # before you promise anything

A table of your own, from the shell: python -m skpmtl fit --help; in Python: doc/first_table.rst.
What is protected from whom: doc/privacy_guide.rst. Options of this study: --help."""


def main(arguments=None):
    """Run the study; `arguments` are those of the command line."""
    options = parse(arguments)
    start = time.perf_counter()
    school, (X, y, task) = data(options)
    schools = np.unique(task)
    print(
        f"Data: School ({school.filename})\n{len(y)} pupils of {len(schools)} schools, "
        f"{X.shape[1]} features; 30 % of each school's pupils train, the others test.\n"
    )
    scores = {name: [] for name in BASELINES}
    scores |= {(name, epsilon): [] for name in METHODS for epsilon in options.epsilon}
    shown, reported = min(options.epsilon, key=lambda epsilon: abs(np.log(epsilon))), None
    total, done = options.repeats * len(scores), 0
    # Matrices this small are slower on several threads, much slower on a busy machine.
    with threadpool_limits(1):
        for repeat in range(options.repeats):
            parts = task_train_test_split(X, y, task=task, train_size=0.3, random_state=repeat)
            train, test = parts[::2], parts[1::2]
            for name in scores:
                done += 1
                progress(f"[{done}/{total}] repeat {repeat + 1}, {label(name)}")
                predicted, report = fit_predict(name, train, test, schools, options.delta)
                scores[name].append(nmse(test[1], predicted))
                if name == (FRONT, shown):
                    reported = report
    progress(f"done in {time.perf_counter() - start:.0f} s", last=True)
    print(tables(scores, options.epsilon))
    print(f"\n{LEGEND}\n\nPrivacy report of one fit ({FRONT}, epsilon {shown:g}):\n")
    print(reported)
    print(f"\n{CAUTION}")
    picture(scores, options)
    print(f"\n{NEXT}")


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl",
        description=__doc__,
        epilog="A table of your own: python -m skpmtl fit --help (also personalize, predict). "
        "What a budget buys, before any data are touched: python -m skpmtl plan --help.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="a school.mat of the MALSAR toolbox; default: the file that SKPMTL_SCHOOL names, "
        "else the table of the package",
    )
    parser.add_argument("--repeats", type=int, help="splits (default 5)")
    parser.add_argument("--epsilon", type=float, nargs="+", help="default: 0.1 0.3 1 3 10")
    parser.add_argument("--delta", type=float, help="default: min(1e-5, 1/m^2) for m tasks")
    parser.add_argument("--output", type=Path, default=Path("skpmtl-study.png"), help="picture")
    parser.add_argument("--quick", action="store_true", help="2 splits, 2 epsilon, 40 schools")
    options = parser.parse_args(arguments)
    if options.repeats is None:
        options.repeats = 2 if options.quick else 5
    if options.epsilon is None:
        options.epsilon = [1.0, 10.0] if options.quick else [0.1, 0.3, 1.0, 3.0, 10.0]
    if options.repeats < 1 or min(options.epsilon) <= 0 or not np.isfinite(max(options.epsilon)):
        parser.error("repeats must be at least 1, epsilon positive and finite")
    return options


def data(options):
    """-> the data set; features, targets and schools of its pupils."""
    try:
        # Percentages have a public range, so that scaling releases nothing about a school.
        school = load_school(options.data, scale="public")
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(str(error)) from None
    rows = school.data, school.target, school.task
    few = school.task < 40
    return school, tuple(part[few] for part in rows) if options.quick else rows


def fit_predict(name, train, test, schools, delta):
    """Predictions for the test rows, and the privacy report of a private fit."""
    X, y, task = train
    if name == POOLED:
        return RidgeCV(RIDGE).fit(X, y).predict(test[0]), None
    if name == ALONE:
        # Leave-one-out, the best that a task of a dozen rows can do by itself: five folds
        # give .77 on School where this gives .74.
        estimator = PerTask(RidgeCV(RIDGE))
    elif name == TUNED:
        exact = MPMTLLowRank(epsilon=None, warm_start=True, tol=1e-4)
        candidates = [{"alpha": 0, "ridge": r} for r in np.geomspace(0.1, 1e-4, 13)]
        estimator = tuned(exact, train, candidates).set_params(tol=1e-6)
    elif name == EXACT:
        exact = MPMTLLowRank(epsilon=None, warm_start=True, tol=1e-4)
        largest = alpha_max(*train)
        candidates = [{"alpha": fraction * largest} for fraction in np.geomspace(0.5, 0.002, 12)]
        estimator = tuned(exact, train, candidates).set_params(tol=1e-6)
    else:
        method, epsilon = name
        public = {"delta": delta, "tasks": schools.tolist()}
        if method == PUBLISHED:
            # It has no intercept; the paper takes rows of unit length.
            train, test = ((normalize(X), *rest) for X, *rest in (train, test))
            X = train[0]
            estimator = published(train, epsilon=epsilon, **public)
        else:
            classes = {cls.__name__: cls for cls in (PrivateMTL, *SPECIALISTS)}
            estimator = classes[method](epsilon=epsilon, **public)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LittleFoundWarning)  # at small budgets, see the legend
        estimator.fit(X, y, task=task)
    return estimator.predict(test[0], task=test[2]), getattr(estimator, "privacy_", None)


def published(train, **public):
    """Algorithm 2 as printed, with its own noise, tuned."""
    alone = PerTask(RidgeCV(RIDGE, fit_intercept=False)).fit(*train[:2], task=train[2])
    lengths = [np.linalg.norm(model.coef_) for model in alone.estimators_.values()]
    clip = 1.5 * float(np.median(lengths))
    unit = clip * np.sqrt(len(public["tasks"]))
    estimator = PublishedMPMTL("low-rank", clip_norm=clip, **public)
    candidates = [
        {"lam": fraction * unit, "n_rounds": n_rounds}
        for fraction in (0.001, 0.004, 0.016)
        for n_rounds in (5, 20)
    ]
    return tuned(estimator, train, candidates)


def tuned(estimator, train, candidates):
    """`estimator` with the parameters that are best on a quarter of every task's rows."""
    X, y, task = train
    parts = task_train_test_split(X, y, task=task, random_state=0)
    (X, y, task), (X_val, y_val, task_val) = parts[::2], parts[1::2]
    errors = []
    for parameters in candidates:
        estimator.set_params(**parameters).fit(X, y, task=task)
        errors.append(nmse(y_val, estimator.predict(X_val, task=task_val)))
    return clone(estimator).set_params(**candidates[int(np.argmin(errors))])


def alpha_max(X, y, task):
    """The alpha above which all coefficients are zero."""
    labels, sizes = np.unique(task, return_counts=True)
    moments = np.array(
        [(X[task == k] - X[task == k].mean(axis=0)).T @ y[task == k] for k in labels]
    )
    return np.linalg.norm(moments / sizes[:, None], 2)


def label(name):
    return name if isinstance(name, str) else f"{name[0]}, epsilon {name[1]:g}"


def tables(scores, epsilons):
    """Errors without a budget, then one line per method with a column per budget."""
    spread = [np.std(values, ddof=1) if len(values) > 1 else np.nan for values in scores.values()]
    line = "-" * (25 + 8 * len(epsilons))
    lines = ["Test error (MSE / variance; 1 is a constant guess)", "", "without a budget", line]
    lines += [f"{name:<25}{np.mean(scores[name]):8.4f}" for name in BASELINES]
    heads = "".join(f"{epsilon:8g}" for epsilon in epsilons)
    lines += ["", f"{'at epsilon':<25}{heads}", line]
    for name in METHODS:
        means = "".join(f"{np.mean(scores[name, epsilon]):8.4f}" for epsilon in epsilons)
        lines.append(f"{name:<25}{means}")
    repeats = len(next(iter(scores.values())))
    about = f"means of {repeats} repeats"
    if repeats > 1:
        about += f"; standard deviations over them are {min(spread):.4f} to {max(spread):.4f}"
    return "\n".join([*lines, line, about])


def picture(scores, options):
    display = PrivacyUtilityDisplay(
        epsilons=options.epsilon,
        scores=[scores[FRONT, epsilon] for epsilon in options.epsilon],
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
    axes.set_title("School")
    figure.savefig(options.output, dpi=150)
    print(f"\nPicture: {options.output}")


def progress(message, last=False):
    """One line that rewrites itself on a terminal, a line each elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(message, file=sys.stderr, flush=True)
