"""Paths of a hundred strengths, and their cross-validation in five folds.

Strengths go from the largest useful one down to a thousandth of it. `mtl_path` against a loop of
single fits, each from zero ("single fits") or from the one before ("warm fits"), all at the default
`tol`; where tasks share X and the penalty is L2,1, against ``lasso_path`` of scikit-learn and
skglm, where that is installed, at their own default `tol`. "accuracy" is the worst relative
distance of an objective to the smallest that anybody found for that strength; seconds are the least
CPU time of one thread, without what compiles.
"""

from dataclasses import replace

import numpy as np
from sklearn.linear_model import MultiTaskLassoCV, lasso_path

from skpmtl import MPMTLGroupSparseCV, MPMTLLowRankCV, mtl_path

from ..command import run_problems
from ..problems import instances
from .solvers import ESTIMATORS, cpu_seconds, settings

FIELDS = ("commit", "peer", "problem", "penalty", "part", "accuracy", "seconds", "ratio")
_EPS = 1e-3


def our_path(problem, alphas):
    known = {"penalty": problem.penalty, "alphas": alphas, **settings(problem)}
    path = mtl_path(problem.X, problem.y, problem.task, **known)
    return zip(path.coefs, path.intercepts, strict=True)


def single_fits(problem, alphas, warm=False):
    est = ESTIMATORS[problem.penalty](epsilon=None, warm_start=warm, **settings(problem))
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
    """-> rows"""
    objectives, seconds = {}, {}
    for peer, fit in fits.items():

        def call(fit=fit):
            found = fit(problem, alphas)
            return list(found) if part == "path" else found

        found = call()  # compiles
        if part == "path":
            pairs = zip(alphas, found, strict=True)
            objectives[peer] = np.array(
                [replace(problem, alpha=alpha).objective(*models) for alpha, models in pairs]
            )
        seconds[peer] = cpu_seconds(call, repeats)
    best = np.min(list(objectives.values()), axis=0) if objectives else None
    for peer in fits:
        worst = "" if best is None else f"{(objectives[peer] / best - 1).max():.1e}"
        yield {
            "peer": peer,
            "problem": problem.name.removesuffix(" alpha_max*0.1"),
            "penalty": problem.penalty,
            "part": part,
            "accuracy": worst,
            "seconds": f"{seconds[peer]:.3f}",
            "ratio": f"{seconds[peer] / seconds['skpmtl']:.2f}",
        }


def main(arguments=None):
    return run_problems("peers.path", __doc__, FIELDS, measure, arguments)


if __name__ == "__main__":
    main()
