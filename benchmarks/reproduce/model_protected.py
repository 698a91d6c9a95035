"""Model-protected multi-task learning (Liang et al., TPAMI 2022): its experiments, run again.

    python -m benchmarks.reproduce.model_protected [--figure NAME] [--quick] [--repeats R]
                                                   [--output FOLDER]

Every figure writes ``model_protected_NAME.csv`` and ``.png``; all of them take about eight minutes
of one core:

- ``budget``: error against epsilon on the low-rank and the group-sparse generator and School,
  beside learning alone, non-private multi-task learning, DP-AGGR and DP-MTRL;
- ``allocation``: how the budget is divided among the releases (figure 4), and how many;
- ``share``: School with 10 % to 70 % of the pupils for training;
- ``tasks``: error of the first 20 tasks while others join (figure 8);
- ``noise``: what the noise leaves of the second moment, and what leaks (figure 2);
- ``rates``: error against the number of tasks and epsilon on logarithmic axes (table 2).

Settings of the paper: rows of unit length, nMSE over all test rows, delta = 1 / (m log m). Low
rank: variance and correlation are not published; the generator's are those that give the paper's
non-private error. School: 30 % for training, percentages as shares. No intercepts (School has a
column of ones). Adjacency is replace-one, the default.

**What was tuned.** "alone", the non-private methods, Algorithms 2 and 3 and the DP baselines get,
for every data set and epsilon, the parameters that are best on further draws (School: on a
quarter of the training rows), two for "budget" and "share" and one for the other figures. As in
the paper nobody is charged for that.
"ours" are the estimators with their defaults: nothing is tuned, and everything is charged.

``delta`` is the nominal one; ``delta_at_least`` a lower bound of the delta for which a guarantee
with that epsilon can hold at all. They differ for the published Wishart noise, which protects
nobody: 1 - exp(-sum of the releases' epsilon).
"""

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.privacy import PrivacyLeakWarning, gdp_mu
from skpmtl.privacy.mechanisms import (
    PublishedWishart,
    SymmetricGaussian,
    second_moment_sensitivity,
)
from skpmtl.privacy.rng import noise_source
from skpmtl.reproduction.model_protected import project

from ..run import write_rows
from .model_protected_methods import (
    EXACT,
    FIELDS,
    OUTPUT,
    PRIVATE_MTL,
    SEVERAL,
    Problem,
    candidates,
    entry,
    evaluate,
    group_sparse,
    low_rank,
    measured,
    number,
    prefix,
    school,
)
from .model_protected_plots import DRAW

RESULTS = Path(__file__).resolve().parents[1] / "results"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


# ---------------------------------------------------------------------------- figures
def three(quick, repeats):
    """The data of the main comparison."""
    small = {"m": 40, "n_test": 20} if quick else {}
    folds = 1 if quick else 2
    yield Problem("low-rank", lambda s: low_rank(s, **small), repeats, folds)
    yield Problem("group-sparse", lambda s: group_sparse(s, **small), repeats, folds)
    yield school_problem(repeats, folds, m=30 if quick else None)


def school_problem(repeats, folds=2, share=0.3, **how):
    # 251 pupils in the largest school; scores from 1 to 70, around 20 by a public guess.
    facts = {"max_target": 50.0, "centre": 20.0, "max_task_rows": int(np.ceil(251 * share)) + 1}
    return Problem(
        "School",
        lambda s: school(s, share, how.get("m")),
        repeats,
        folds,
        split=True,
        scored=how.get("scored"),
        **facts,
    )


def budget(quick=False, repeats=8):
    epsilons = (1.0,) if quick else EPSILONS
    for problem in three(quick, repeats):
        alone, own, _ = measured("alone", None, problem, quick)
        yield entry(problem, "alone", None, alone)
        for name in EXACT:
            yield entry(problem, name, None, measured(name, None, problem, quick)[0])
        for name in (*PRIVATE_MTL, *OUTPUT):
            for epsilon in epsilons:
                errors, squares, report = measured(name, epsilon, problem, quick)
                yield entry(problem, name, epsilon, errors, report=report)
                if name in PRIVATE_MTL:
                    worse = [np.mean(a > b) for a, b in zip(squares, own, strict=True)]
                    yield entry(
                        problem, name, epsilon, worse, "share of tasks worse than alone", report
                    )
        kept, problem.delta = problem.delta, None  # the estimators' own: 1e-5 here
        for epsilon in epsilons:
            errors, _, report = measured("ours, low-rank", epsilon, problem, quick)
            yield entry(problem, "ours, low-rank, default delta", epsilon, errors, report=report)
        problem.delta = kept


def allocation(quick=False, repeats=8):
    small = {"m": 40, "n_test": 20} if quick else {}
    problem = Problem("low-rank", lambda s: low_rank(s, **small), repeats, 1)
    published = "Algorithm 2, as published"
    exponents = (0.0, 1.0) if quick else (0.0, -2.0, -1.0, 0.4, 1.0, 2.0, 4.0)
    ratios = (1.0,) if quick else (1.0, 1.2, 1.05, 0.994, 0.988, 0.9, 0.8)
    settings = [
        (published, f"{published}{text}", "exponent", a, {"acceleration": on, "allocation": a})
        for on, text in ((True, ""), (False, ", no acceleration"))
        for a in exponents
    ]
    settings += [
        (published, f"{published}, ridge", "Q", q, {"ridge": 1e-4, "allocation": ("geometric", q)})
        for q in ratios
    ]
    settings += [
        (name, name, "exponent", a, {"allocation": a}) for name in SEVERAL for a in exponents
    ]
    counts = (2, 10) if quick else (1, 2, 3, 5, 10, 20, 50)
    first = {}
    for name, label, parameter, value, fixed in settings:
        errors, _, report = measured(name, 1.0, problem, quick, **fixed)
        yield entry(problem, label, 1.0, errors, "nMSE", report, parameter, value)
        # The first setting of every method is the even one; same data, same seeds.
        change = errors - first.setdefault((label, parameter), errors)
        yield entry(problem, label, 1.0, change, "nMSE minus even", report, parameter, value)
    for name in ("ours, low-rank", "Algorithm 2, Gaussian", published):
        for count in counts:
            if name.startswith("ours"):
                errors, _, report = measured(name, 1.0, problem, quick, n_releases=count)
            else:
                errors, report = _with_releases(name, count, problem, quick)
            yield entry(problem, name, 1.0, errors, "nMSE", report, "releases", count)


def _with_releases(name, count, problem, quick):
    """Algorithm 2 with a given number of releases, the rest chosen."""
    grid = [p for p in candidates(name) if p["n_releases"] == 5]
    grid = [{**p, "n_releases": count} for p in (grid[::3] if quick else grid)]
    error = [
        np.mean(
            [evaluate(name, 1.0, problem, fold, s, **p)[0] for s, fold in enumerate(problem.folds)]
        )
        for p in grid
    ]
    best = grid[int(np.argmin(error))]
    runs = [evaluate(name, 1.0, problem, data, s, **best) for s, data in enumerate(problem.sets)]
    return np.array([run[0] for run in runs]), runs[0][2]


CURVES = (
    ("alone", None),
    ("trace norm, not private", None),
    ("ours, low-rank", 1.0),
    ("ours, low-rank", 10.0),
    ("Algorithm 2, Gaussian", 1.0),
    ("Algorithm 2, as published", 1.0),
    ("DP-AGGR, direct", 1.0),
    ("DP-MTRL, direct", 1.0),
)


def share(quick=False, repeats=8):
    for part in (0.3,) if quick else (0.1, 0.2, 0.3, 0.5, 0.7):
        problem = school_problem(repeats, 2, part, m=30 if quick else None)
        for name, epsilon in CURVES:
            errors, _, report = measured(name, epsilon, problem, quick)
            yield entry(problem, name, epsilon, errors, "nMSE", report, "training share", part)


def tasks(quick=False, repeats=8):
    first = 20
    for label in ("low-rank, blocks in turn", "low-rank, blocks one by one", "School"):
        sizes = (20, 40, 80, 139) if label == "School" else (20, 40, 80, 160, 320)
        for m in sizes[:2] if quick else sizes:
            if label == "School":
                problem = school_problem(repeats, 1, m=m, scored=first)
            else:
                make = functools.partial(
                    _first_tasks, m=m, interleave="turn" in label, n_test=20 if quick else 270
                )
                problem = Problem(label, make, repeats, 1, scored=first)
            for name, epsilon in CURVES[: 3 if quick else 6]:
                errors, _, report = measured(name, epsilon, problem, quick)
                yield entry(problem, name, epsilon, errors, "nMSE", report, "tasks", m)


def _first_tasks(seed, m, interleave, n_test):
    """The first `m` of 320 tasks."""
    train, test = low_rank(seed, interleave=interleave, n_test=n_test)
    return prefix(train, m), prefix(test, m)


def noise(quick=False, repeats=300):
    """Figure 2: ten tasks in five dimensions, the last model a hundred times as long; one release.

    ``|cos| with the last model``: mean over the others, after projection. It is 1 when the last
    model has taken over, and as it was before when the projection shares nothing.
    """
    m, d, epsilon = 10, 5, 0.1
    delta, clip, lowered = 1.0 / (m * np.log(m)), 100.0 * np.sqrt(d), 50.0
    made = {
        "no noise": None,
        "Wishart, as published": PublishedWishart(d, clip, epsilon),
        "Gaussian": _gaussian(d, clip, epsilon, delta),
        "alone": None,
    }
    rng = np.random.default_rng(0)
    found = {name: [] for name in made}
    for draw in range(20 if quick else repeats):
        W = rng.uniform(0.0, 1.0, (m, d))
        W[-1] *= 100.0
        for name, mechanism in made.items():
            S = W.T @ W
            if mechanism is not None:
                S = mechanism.release(S, seeded(draw))
                S += mechanism.shift(1, 1.0) * np.eye(d)
            M = np.eye(d) if name == "alone" else project(S, lowered)
            H = W @ M
            even = np.trace(M) / d * np.eye(d)
            size = np.linalg.norm(M)
            if not H.any(axis=1).all():
                continue
            U, start = normalize(H), normalize(W)
            found[name].append(
                (
                    np.abs(U[:-1] @ U[-1]).mean(),
                    np.linalg.norm(M - even) / size,
                    np.sum(U[:-1] * start[:-1], axis=1).mean(),
                )
            )
    metrics = "|cos| with the last model", "unevenness of the projection", "cos with own start"
    for name, rows in found.items():
        for metric, values in zip(metrics, np.array(rows).T, strict=True):
            row = entry("ten tasks", name, None, values, metric)
            if made[name] is not None:
                row |= {"epsilon": epsilon, "delta": number(delta)}
                row["delta_at_least"] = number(_delta_at_least(made[name], delta))
            yield row
    yield from _spectra(quick)


def seeded(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return noise_source(seed)


def _gaussian(d, clip, epsilon, delta):
    sensitivity = second_moment_sensitivity(clip, "replace-one", dimension=d)
    return SymmetricGaussian(d, sensitivity, gdp_mu(epsilon, delta))


def _delta_at_least(mechanism, delta):
    return getattr(mechanism, "delta_lower_bound", delta)


def _spectra(quick):
    """Eigenvalues of the released moment of the true low-rank models, largest first, and what is
    left of the true moment in the four directions that carry it."""
    W = make_low_rank_tasks(60 if quick else 320, coef=True, random_state=0)[-1]
    m, d = W.shape
    W = normalize(W)
    S, delta = W.T @ W, 1.0 / (m * np.log(m))
    top = np.linalg.eigh(S)[1][:, -4:]
    for epsilon in (None, 0.1, 1.0, 10.0):
        made = {"no noise": None}
        if epsilon is not None:
            made = {
                "Gaussian": _gaussian(d, 1.0, epsilon, delta),
                "Wishart, as published": PublishedWishart(d, 1.0, epsilon),
            }
        for name, mechanism in made.items():
            draws = (
                [S] * 3
                if mechanism is None
                else [mechanism.release(S, seeded(seed)) for seed in range(3 if quick else 20)]
            )
            values = np.array([np.linalg.eigvalsh(A)[::-1] for A in draws]).T
            rows = [("eigenvalue", j + 1, v) for j, v in enumerate(values)]
            kept = [np.sum((np.linalg.eigh(A)[1][:, -4:].T @ top) ** 2) / 4.0 for A in draws]
            for parameter, j, v in (*rows, ("", "", kept)):
                metric = "eigenvalue" if parameter else "overlap of the top four directions"
                row = entry("low-rank", name, epsilon, v, metric, None, parameter, j)
                if mechanism is not None:
                    row["delta"] = number(delta)
                    row["delta_at_least"] = number(_delta_at_least(mechanism, delta))
                yield row


def rates(quick=False, repeats=5):
    """Excess of the error over the same method without noise (ours), or over the exact optimum of
    the same penalty (Algorithm 2); relative spectral error of one release. Fixed delta = 1e-5."""
    sizes = (30, 60) if quick else (80, 160, 320, 640, 1280)
    budgets = (3.0,) if quick else (0.3, 1.0, 3.0, 10.0)
    centre, large = 3.0, sizes[-2]
    for label, make, ours, exact, published in (
        (
            "low-rank",
            functools.partial(low_rank, interleave=True),
            "ours, low-rank",
            "trace norm, not private",
            "Algorithm 2",
        ),
        (
            "group-sparse",
            group_sparse,
            "ours, group-sparse",
            "L2,1 norm, not private",
            "Algorithm 3",
        ),
    ):
        curves = {}
        for m in () if quick and label == "group-sparse" else sizes:
            source = functools.partial(make, m=m, n_test=30 if quick else 60)
            problem = Problem(label, source, repeats, 1, delta=1e-5)
            plain = _ours_without_noise(ours, problem)
            optimum = measured(exact, None, problem, quick)[0]
            for epsilon in budgets if m == large else (centre,):
                for name, base in (
                    (ours, plain),
                    (f"{published}, Gaussian", optimum),
                    (f"{published}, as published", optimum),
                ):
                    errors, _, report = measured(name, epsilon, problem, quick)
                    excess = errors - base
                    _collect(curves, name, "excess nMSE", m, epsilon, large, centre, excess)
                    row = entry(problem, name, epsilon, excess, "excess nMSE", report, "tasks", m)
                    yield row
                if label == "low-rank":
                    for name, values in _release_error(problem, m, epsilon).items():
                        metric = "relative error of the release"
                        _collect(curves, name, metric, m, epsilon, large, centre, values)
                        row = entry(problem, name, epsilon, values, metric, None, "tasks", m)
                        yield row
        if not quick:
            yield from _slopes(label, curves)


def _ours_without_noise(name, problem):
    how = {"algorithm": "empirical-bayes"}
    runs = [evaluate(name, None, problem, data, 0, **how)[0] for data in problem.sets]
    return np.array(runs)


def _release_error(problem, m, epsilon, draws=20):
    """|release - moment| / |moment| (spectral norms) for unit contributions."""
    W = normalize(make_low_rank_tasks(m, interleave=True, coef=True, random_state=0)[-1])
    S, d = W.T @ W, W.shape[1]
    size = np.linalg.norm(S, 2)
    made = {
        "one release, Gaussian": _gaussian(d, 1.0, epsilon, problem.delta),
        "one release, Wishart as published": PublishedWishart(d, 1.0, epsilon),
    }
    return {
        name: [
            np.linalg.norm(mechanism.release(S, seeded(seed)) - S, 2) / size
            for seed in range(draws)
        ]
        for name, mechanism in made.items()
    }


def _collect(curves, name, metric, m, epsilon, large, centre, values):
    if epsilon == centre:
        curves.setdefault((name, metric, "tasks"), []).append((m, np.mean(values)))
    if m == large:
        curves.setdefault((name, metric, "epsilon"), []).append((epsilon, np.mean(values)))


def _slopes(label, curves):
    """Least-squares slopes of log mean over log x; also over mu(epsilon), the unit of the noise."""
    for (name, metric, parameter), points in curves.items():
        x, y = np.array(sorted(points)).T
        axes = {parameter: x}
        if parameter == "epsilon":
            axes["mu"] = np.array([gdp_mu(e, 1e-5) for e in x])
        for axis, positions in axes.items():
            if (y > 0).all():
                slope = np.polyfit(np.log(positions), np.log(y), 1)[0]
                yield entry(label, name, None, [slope], f"slope of {metric}", None, axis)


FIGURES = {
    "budget": (budget, 8),
    "allocation": (allocation, 8),
    "share": (share, 6),
    "tasks": (tasks, 6),
    "noise": (noise, 300),
    "rates": (rates, 4),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce.model_protected",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--figure", choices=FIGURES, help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="small data, one repeat")
    parser.add_argument("--repeats", type=int, help="default: 4 to 8, noise 300")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of CSV and PNG")
    options = parser.parse_args(arguments)
    done = {}
    with threadpool_limits(1):
        for name in [options.figure] if options.figure else FIGURES:
            measure, repeats = FIGURES[name]
            repeats = options.repeats or (1 if options.quick else repeats)
            path = options.output / f"model_protected_{name}.csv"
            done[name] = write_rows(measure(options.quick, repeats), FIELDS, path)
            DRAW[name](done[name]).savefig(path.with_suffix(".png"), dpi=100)
    return done


if __name__ == "__main__":
    main()
