"""Paths of a hundred strengths, and their cross-validation in five folds.

Strengths go from the largest useful one down to a thousandth of it. `mtl_path` against a loop of
single fits, each from zero ("single fits") or from the one before ("warm fits"), all at the default
`tol`; where tasks share X and the penalty is L2,1, against ``lasso_path`` of scikit-learn and
skglm, where that is installed, at their own default `tol`. "accuracy" is the worst relative
distance of an objective to the smallest that anybody found for that strength; seconds are CPU time
of one thread, without what compiles.
"""

import time
from dataclasses import replace

import numpy as np
from sklearn.linear_model import MultiTaskLassoCV, lasso_path

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLGroupSparseCV,
    MPMTLLowRank,
    MPMTLLowRankCV,
    mtl_path,
)

from ..command import run_problems
from ..problems import instances

FIELDS = ("commit", "peer", "problem", "penalty", "part", "accuracy", "seconds", "ratio")
_EPS = 1e-3


def settings(problem):
    """What our estimators and `mtl_path` are told."""
    weight = "equal" if problem.formula == "mean" else "samples"
    return {"fit_intercept": problem.fit_intercept, "task_weight": weight}


def our_path(problem, alphas):
    path = mtl_path(
        problem.X,
        problem.y,
        problem.task,
        penalty=problem.penalty,
        alphas=alphas,
        **settings(problem),
    )
    return zip(path.coefs, path.intercepts, strict=True)


def single_fits(problem, alphas, warm=False):
    kind = MPMTLLowRank if problem.penalty == "trace" else MPMTLGroupSparse
    est = kind(epsilon=None, warm_start=warm, **settings(problem))
    for alpha in alphas:
        est.set_params(alpha=alpha).fit(problem.X, problem.y, task=problem.task)
        yield est.coef_, est.intercept_


def warm_fits(problem, alphas):
    return single_fits(problem, alphas, warm=True)


def lasso(problem, alphas):
    """Coordinate descent, for one X that all tasks share."""
    X, Y = problem.X - problem.X.mean(axis=0), problem.y - problem.y.mean(axis=0)
    for coef in lasso_path(X, Y, alphas=alphas)[1].transpose(2, 0, 1):
        yield coef, problem.y.mean(axis=0) - coef @ problem.X.mean(axis=0)


def skglm_fits(problem, alphas):
    from skglm import MultiTaskLasso

    est = MultiTaskLasso(warm_start=True)
    for alpha in alphas:
        est.alpha = alpha
        est.fit(problem.X, problem.y)
        yield est.coef_.copy(), est.intercept_.copy()


def our_search(problem, _):
    kind = MPMTLLowRankCV if problem.penalty == "trace" else MPMTLGroupSparseCV
    return kind(**settings(problem)).fit(problem.X, problem.y, task=problem.task)


def lasso_search(problem, _):
    return MultiTaskLassoCV(eps=_EPS, alphas=100, cv=5).fit(problem.X, problem.y)


def measure(quick, repeats, only=""):
    """Rows of the CSV file, as dicts without the commit.

    `only`: how names of problems begin; without it the big ones are left out.
    """
    for problem, _ in instances(quick):
        wanted = problem.formula == "mean" and problem.name.startswith(only)
        if not wanted or problem.name.endswith("0.3"):
            continue  # the strength of an instance does not matter here
        if problem.name.startswith("big") and not (quick or only):
            continue  # half an hour each
        peers = {"skpmtl": our_path, "warm fits": warm_fits, "single fits": single_fits}
        searches = {"skpmtl": our_search}
        if problem.task is None:
            peers["lasso_path"], searches["MultiTaskLassoCV"] = lasso, lasso_search
            try:
                import skglm  # noqa: F401
            except ImportError:
                pass
            else:
                peers["skglm"] = skglm_fits
        top = problem.alpha_max() * (1 + 1e-10)
        alphas = np.geomspace(top, _EPS * top, 10 if quick else 100)
        for part, fits in (("path", peers), ("cv", searches)):
            if part == "path" or not quick:
                yield from compare(problem, part, fits, alphas, repeats)


def compare(problem, part, fits, alphas, repeats):
    """All peers alternately. -> rows"""
    objectives, seconds = {}, {peer: [] for peer in fits}
    for turn in range(repeats + 1):  # the first compiles, and warms the caches
        for peer, fit in fits.items():
            start = time.process_time()
            found = fit(problem, alphas)
            found = list(found) if part == "path" else found
            spent = time.process_time() - start
            if turn:
                seconds[peer].append(spent)
            elif part == "path":
                pairs = zip(alphas, found, strict=True)
                objectives[peer] = np.array(
                    [replace(problem, alpha=alpha).objective(*models) for alpha, models in pairs]
                )
    best = np.min(list(objectives.values()), axis=0) if objectives else None
    median = {peer: np.median(times) for peer, times in seconds.items()}
    for peer in fits:
        worst = "" if best is None else f"{(objectives[peer] / best - 1).max():.1e}"
        yield {
            "peer": peer,
            "problem": problem.name.removesuffix(" alpha_max*0.1"),
            "penalty": problem.penalty,
            "part": part,
            "accuracy": worst,
            "seconds": f"{median[peer]:.3f}",
            "ratio": f"{median[peer] / median['skpmtl']:.2f}",
        }


def main(arguments=None):
    return run_problems("peers.path", __doc__, FIELDS, measure, arguments)


if __name__ == "__main__":
    main()
