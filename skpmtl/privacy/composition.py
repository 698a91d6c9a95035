"""Total cost of several fits on the same tasks."""

import math
import re
import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._version import __version__
from .accounting import check_delta, compose_gdp, gdp_epsilon, optimal_pure_epsilon
from .report import PrivacyReport

_ADAPTIVE = (
    "the number of fits and their budgets were fixed without looking at any output of the "
    "fits; data and other settings may depend on earlier published outputs"
)


def compose(reports, delta: float | None = None) -> "PrivacyReport":
    """Report on several fits that used the same tasks, by the tightest sound rule.

    Gaussian-DP fits add up exactly (mu^2 = sum mu_i^2). Pure releases enter the exact optimal
    composition, jointly with the Gaussian ones, by their epsilon_t (a fit that states only
    an (epsilon, delta) pair enters as a randomised response of that epsilon, and the deltas
    combine as 1 - prod(1 - delta_i); Kairouz et al. 2017). One fit without a guarantee leaves
    the total without one.

    Parameters
    ----------
    reports : sequence of PrivacyReport
        Fits on *different* tasks need no composition: the largest epsilon and delta hold.
    delta : float, default=None
        delta of the total. None: the largest delta of the Gaussian and pure fits, combined
        with those of the fits that state a pair only.

    Returns
    -------
    PrivacyReport

    Raises
    ------
    ValueError
        For reports of different units or adjacencies.
    """
    reports = tuple(reports)
    if delta is not None:
        check_delta(delta, zero=True)
    if not reports:
        raise ValueError("compose needs at least one report.")
    if len(reports) == 1 and delta is None:
        return reports[0]
    total = _merged(reports)
    unprotected = [i for i, r in enumerate(reports) if r.guarantee == "none"]
    if unprotected:
        reason = f"fits {', '.join(str(i + 1) for i in unprotected)} of {len(reports)} have none"
        notes = {**total.notes, "reason": reason}
        return replace(total, guarantee="none", epsilon=math.inf, delta=0.0, notes=notes)
    for attribute in ("guarantee", "unit", "adjacency"):
        values = sorted({getattr(r, attribute) for r in reports})
        if len(values) > 1:
            raise ValueError(
                f"the reports have different {attribute} {values}: their numbers do not add up. "
                f"Refit with one {attribute} (search with one at a time), or compose each group "
                "alone and state both. (A "
                '"replace-one" guarantee implies "zero-out" with the same numbers.)'
            )
    gaussian = [r for r in reports if r.mu is not None]
    pure = [r for r in reports if r.mu is None and _is_pure(r)]
    pairs = [r for r in reports if r.mu is None and not _is_pure(r)]
    epsilons = [e["epsilon"] for r in pure for e in r.releases] + [r.epsilon for r in pairs]
    epsilons = [epsilon for epsilon in epsilons if epsilon > 0]  # of nothing released, 0
    log_kept = sum(math.log1p(-r.delta) for r in pairs)  # no pair fails outright
    if delta is None:
        inner = max((r.delta for r in gaussian + pure), default=0.0)
        delta = -math.expm1(math.log1p(-inner) + log_kept) if pairs else inner
    else:
        inner = -math.expm1(math.log1p(-delta) - log_kept)
        if inner < -1e-12:
            raise ValueError(
                f"delta={delta!r} is below {-math.expm1(log_kept):.6g}, what the fits that state "
                "only an (epsilon, delta) pair have spent: pass at least that."
            )
        inner = max(inner, 0.0)
    mu = compose_gdp([r.mu for r in gaussian]) if gaussian else 0.0
    if mu and not inner > 0:
        raise ValueError(
            f"delta={delta!r} leaves nothing for the Gaussian fits: pass a larger one."
        )
    if not epsilons:
        epsilon = float(gdp_epsilon(mu, inner)) if mu else 0.0
    else:
        epsilon = optimal_pure_epsilon(epsilons, inner, mu)
    return replace(
        total,
        epsilon=epsilon,
        delta=delta,
        mu=mu if mu and not epsilons else None,
        accountant=f"skpmtl {__version__}, exact composition of {len(reports)} fits",
    )


def _is_pure(report):
    return bool(report.releases) and all("epsilon" in entry for entry in report.releases)


def _merged(reports):
    """Everything but the numbers: releases one after the other, texts side by side."""
    first = reports[0]

    def texts(attribute):
        return "; ".join(dict.fromkeys(getattr(r, attribute) for r in reports))

    releases = tuple({"fit": i + 1, **e} for i, r in enumerate(reports) for e in r.releases)
    sensitivities = tuple(s for r in reports for s in per_release(r))
    return PrivacyReport(
        guarantee=first.guarantee,
        unit=first.unit,
        adjacency=first.adjacency,
        mechanism=f"{len(reports)} fits: {texts('mechanism')}",
        sensitivity=sensitivities,
        noise_std=sum((r.noise_std for r in reports), ()),
        shift=sum((r.shift for r in reports), ()),
        releases=releases,
        sampling=texts("sampling"),
        rng=texts("rng"),
        arithmetic=texts("arithmetic"),
        public_inputs={
            key: _shared([r.public_inputs.get(key) for r in reports])
            for key in dict.fromkeys(key for r in reports for key in r.public_inputs)
        },
        assumptions=tuple(dict.fromkeys(a for r in reports for a in r.assumptions)) + (_ADAPTIVE,),
        notes={f"fit {i + 1}": dict(r.notes) for i, r in enumerate(reports) if r.notes},
    )


def per_release(report):
    if isinstance(report.sensitivity, tuple):
        return report.sensitivity
    return (report.sensitivity,) * len(report.noise_std)


def _shared(values):
    return values[0] if all(value == values[0] for value in values) else tuple(values)


def grid_search_cost(search) -> "PrivacyReport":
    """Cost of everything a fitted grid or random search released, as a report.

    Every fit is one more release on the same tasks. The training folds of a
    cross-validation overlap: a task that has rows in a fold contributes to all fits outside
    it, so folds compose like fits on the same data and never as disjoint ones. The cost is
    that of `n_splits_` fits of every candidate and of the refit. (If folds are made of whole
    tasks, each task misses one of them and the true cost is a little smaller.)

    What a candidate's fits stated follows from its own parameters and public numbers, as in the
    fits themselves. Where ``delta=None`` depends on the number of records, which differs between
    folds, it is taken as if every task had one row, where it is largest.

    **The scores are not covered.** The search reads them without noise, so which candidate
    won, `cv_results_`, and therefore the choice of `best_estimator_`, are outside the
    guarantee. The note `not_covered` says so.

    Parameters
    ----------
    search : fitted GridSearchCV, RandomizedSearchCV or a successive-halving search
        Its estimator, or the last step of its pipeline, is an estimator of this package. Its
        ``cv`` is a splitter of `skpmtl.model_selection`: the folds of others depend on the rows of
        all tasks together, so that one task can change all contributions to a fit. Needs
        ``refit``: the refitted estimator knows the tasks and the features.

    Returns
    -------
    PrivacyReport
        With guarantee "none" and epsilon infinite if any fit had no guarantee.

    Raises
    ------
    ValueError
        If candidates differ in guarantee, unit or adjacency, the search was run with
        ``refit=False``, or its folds or samples of rows are those of another package.
    TypeError
        If the estimator is none of this package with a report.
    """
    check_is_fitted(search, "cv_results_")
    if not hasattr(search, "best_estimator_"):
        raise ValueError(
            "the search was run with refit=False, so no fitted report says how delta, unit and "
            "adjacency were resolved: compose the reports of your own fits instead."
        )
    fitted = _last_step(search.best_estimator_)
    if not hasattr(fitted, "_planned_report"):
        raise TypeError(
            f"{type(fitted).__name__} does not say beforehand what a fit spends: add up the "
            "privacy_ of your own fits with compose."
        )
    sampled = getattr(search, "resource", None) == "n_samples"
    if sampled or not getattr(search.cv, "_splits_by_task", False):
        name = "resource='n_samples'" if sampled else f"cv={type(search.cv).__name__}"
        raise ValueError(
            f"{name} chooses the rows of all tasks together, so that a row of one task changes "
            "what others contribute, and no cost can be stated. Set cv= to TaskStratifiedKFold or "
            "LeaveTasksOut, and resource= of a halving search to a parameter."
        )
    population = fitted._population_
    population = replace(population, sizes=np.ones(population.n_tasks, dtype=np.int64))
    results, reports = search.cv_results_, []
    for i, settings in enumerate(results["params"]):
        candidate = _last_step(clone(search.estimator).set_params(**settings))
        try:
            reports += [_planned(candidate, population)] * search.n_splits_
        except ValueError:
            # A setting that is wrong by itself: fits end with it before they publish anything.
            scores = [results[key][i] for key in results if re.match("split[0-9]+_test_", key)]
            if not np.isnan(scores).all():
                raise
    total = compose(reports + [fitted.privacy_])
    notes = {
        "fits": len(reports) + 1,
        "not_covered": "the cross-validation scores, cv_results_ and the choice of the best "
        "candidate were computed from private rows without noise",
    }
    if total.guarantee == "none":
        notes["reason"] = "at least one fit of the search had no guarantee"
    return replace(total, notes=notes)


def _last_step(estimator):
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _planned(candidate, population):
    """Report of a fit on a fold, of whose noise only what does not depend on rows is stated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fits themselves have warned
        candidate._check_parameters()
        plan = candidate._planned_report(population)
    assumptions = plan.assumptions
    if plan.guarantee != "none" and candidate.delta is None:
        assumptions += (_ALL_TASKS,)
    releases = [
        {name: entry[name] for name in ("name", "mechanism", "epsilon", "mu") if name in entry}
        for entry in plan.releases
    ]
    return replace(
        plan, releases=releases, assumptions=assumptions, noise_std=(), shift=(), sensitivity=()
    )


_ALL_TASKS = "every training fold held all tasks, so that delta=None meant the same everywhere"
