"""Model-protected learning (Liang et al.): every figure and table, with its own algorithms.

    python -m benchmarks.papers.mp_mtl [--quick] [--only NAME ...] [--repeats R] [--output FOLDER]

A CSV file ``mp_mtl_NAME.csv`` for each NAME (``mp_mtl_NAME_rows.csv``: with the chosen parameters):

==========  ===================================================================================
tradeoff    figures 6, 7, 9a, 10a: nMSE against epsilon on generated data and School
survey      figures 9b, 10b: AUC against epsilon on data of the shape of LSOA II
allocation  figure 4: how the budget is divided among the rounds, four curves
matrices    figure 3: how much of the relationship and of the models is recovered
noise       figure 5: noise to signal over the rounds
tasks       figure 8: the first 20 tasks, with more tasks at their side
leak        figure 2 and Proposition 1, with the published noise and with sound noise
rates       table 2: excess against epsilon and m, with slopes, for its eight rows
theory      lemmas 1 and 2, Claim 2
share       appendix E: the share of the rows for training
own         models with a part that stays with its task, where some tasks are outliers
step        step size 1 / L with L = 1, the bound for rows of length 1, beside the measured L
==========  ===================================================================================

Tuning is the paper's: cross-validation on training rows, for every method, data set and epsilon,
without charge; of its five folds two, of the first draw, are used, each with noise of its own, and
the other draws take the same parameters. `search` tries 60 settings of every method, private or
not: a grid of its parameters, then ever smaller steps around the best (survey: one fold). The step
size is 1 / L with the largest L_i of the tasks, and K a multiple of the median length of a model
learned alone; both are read from the rows, which is not charged either. delta is 1 / (m log m). "as
published": the Wishart noise of the paper, whose epsilon is nominal only. Data: see
`skpmtl.datasets.make_low_rank_tasks`; School with 30 % of the pupils; all rows of length 1.
"""

import itertools
import math
from copy import copy
from functools import cache

import numpy as np
from scipy.stats import mannwhitneyu
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import normalize

from skpmtl.datasets.generators import (
    make_group_sparse_tasks,
    make_low_rank_tasks,
    make_lsoa_like,
)
from skpmtl.datasets.school import load_school
from skpmtl.metrics import nmse
from skpmtl.privacy.rng import noise_source
from skpmtl.reproduction.mp_mtl import (
    MPMTLPlan,
    PublishedMPMTL,
    PublishedMPMTLClassifier,
    PublishedOutputNoise,
    PublishedOutputNoiseClassifier,
)
from skpmtl.reproduction.mp_mtl.losses import MeanLogistic, MeanSquares, ridge_models
from skpmtl.reproduction.mp_mtl.plan import bound_exponent
from skpmtl.reproduction.mp_mtl.rounds import PROJECTIONS

from .tables import best, line, number, run, sd

EPSILONS = (0.1, 1.0, 10.0, 100.0, 1000.0)
PENALTIES = {"Algorithm 2": "low-rank", "Algorithm 3": "group-sparse"}
SETTINGS, QUICK_SETTINGS = 60, 16  # of every search
HALF_DECADES = tuple(float(f"{x:.2g}") for x in 10.0 ** np.arange(-2.5, 1.6, 0.5))


# ----------------------------------------------------------------------------------------- data
class Data:
    """One draw: training and test rows (X, y, task) of tasks 0 to m - 1, and what is read off them.

    `scored`: the number of first tasks whose test rows count.
    """

    def __init__(self, train, test, scored=None):
        self.train, self.test, self.scored = train, test, scored
        self.classes = set(np.unique(train[1])) <= {0.0, 1.0}
        self.m = int(train[2].max()) + 1
        tasks = self.tasks()
        signed = [(X, 2 * y - 1) for X, y in tasks] if self.classes else tasks
        loss = MeanLogistic(signed) if self.classes else MeanSquares(signed)
        self.rate = 1.0 / loss.curvature().max()
        self.length = float(np.median(np.linalg.norm(ridge_models(signed, 1e-2), axis=1)))
        if self.classes:  # least squares on signs is short for log-odds
            self.length *= 4.0

    def tasks(self):
        X, y, task = self.train
        return [(X[task == k], y[task == k]) for k in range(self.m)]

    def folds(self, n):
        """The first `n` of five folds of the training rows, as `Data`."""
        X, y, task = self.train
        labels = task * 2 + (y > 0) if self.classes else task
        cuts = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, labels))
        for a, b in cuts[:n]:
            part = copy(self)
            part.train, part.test = (X[a], y[a], task[a]), (X[b], y[b], task[b])
            yield part

    def score(self, est):
        """nMSE, or the mean over tasks of 1 - AUC, so that less is better."""
        X, y, task = self.test
        if self.scored is not None:
            rows = task < self.scored
            X, y, task = X[rows], y[rows], task[rows]
        if not self.classes:
            return float(nmse(y, est.predict(X, task=task)))
        return 1.0 - float(np.mean(self.areas(est)))

    def areas(self, est):
        X, y, task = self.test
        s, names = est.decision_function(X, task=task), range(self.m)
        both = [k for k in names if len(np.unique(y[task == k])) == 2]
        return np.array([roc_auc_score(y[task == k], s[task == k]) for k in both])

    def squares(self, est):
        X, y, task = self.test
        return np.bincount(task, (y - est.predict(X, task=task)) ** 2, minlength=self.m)


def low_rank(seed, quick=False, coef=False, **how):
    size = {"n_tasks": 40, "n_test": 30} if quick else {"n_test": 270}
    parts = make_low_rank_tasks(random_state=seed, coef=coef, **size, **how)
    data = Data(parts[:3], parts[3:6])
    data.coef = parts[-1] if coef else None
    return data


def group_sparse(seed, quick=False):
    size = {"n_tasks": 40, "n_test": 30} if quick else {"n_test": 270}
    parts = make_group_sparse_tasks(random_state=seed, **size)
    return Data(parts[:3], parts[3:6])


@cache
def _pupils():
    bunch = load_school(scale="public")
    return normalize(bunch.data), bunch.target, bunch.task


def school(seed, quick=False, share=0.3):
    X, y, task = _pupils()
    if quick:
        rows = task < 30
        X, y, task = X[rows], y[rows], task[rows]
    parts = train_test_split(X, y, task, train_size=share, stratify=task, random_state=seed)
    return Data(tuple(parts[::2]), tuple(parts[1::2]))


def survey(seed, quick=False, share=0.3):
    size = {"n_samples": 600, "n_features": 20, "n_tasks": 8} if quick else {}
    X, Y = make_lsoa_like(**size, random_state=seed)
    first = int(share * len(X))
    return Data(*(_long(X[part], Y[part]) for part in (slice(first), slice(first, None))))


def _long(X, Y):
    place, task = np.nonzero(~np.isnan(Y.T))[::-1]
    return X[place], Y[place, task], task


DATA = {"low-rank": low_rank, "group-sparse": group_sparse, "School": school}


# -------------------------------------------------------------------------------------- methods
def estimator(method, data, epsilon, seed=0, **how):
    """An estimator of one of the methods with parameters as of `search`."""
    known = {"classes": [0.0, 1.0]} if data.classes else {}
    known |= {"tasks": range(data.m), "random_state": seed}
    if method == "DP-MTRL, columns":
        how["output"] = "columns"
    if method.startswith(("DP-", "MTRL", "AGGR")):
        kind = PublishedOutputNoiseClassifier if data.classes else PublishedOutputNoise
        name = "dp-mtrl" if "MTRL" in method else "dp-aggr"
        how = dict(how)
        if "ratio" in how:
            how["alpha"] = how.pop("ratio") * how["lam"]
        return kind(name, epsilon=epsilon if method.startswith("DP") else None, **known, **how)
    kind = PublishedMPMTLClassifier if data.classes else PublishedMPMTL
    how = {"clip": 1.5, "learning_rate": data.rate, **how}
    clip_norm = how.pop("clip") * data.length
    if method in ("STL, l2", "STL, l1"):
        return kind("none" if method == "STL, l2" else "l1", start="zeros", **known, **how)
    name, noise, *directions = method.split(", ")
    if noise == "not private":
        return kind(PENALTIES[name], epsilon=None, start="zeros", **known, **how)
    mechanism = {"as published": "published", "Gaussian": "gaussian", "Wishart": "wishart"}[noise]
    return kind(
        PENALTIES[name],
        epsilon=epsilon,
        clip_norm=clip_norm,
        mechanism=mechanism,
        start="zeros",
        all_directions=bool(directions),
        **known,
        **how,
    )


def stages(method, best, d, quick=False, long=False):
    """Candidates of the stages of a search, given the best of the stages before; without an end.

    First a grid of what a method has, then ever smaller steps around the best. `d`: number of
    features. `long`: more rounds, for a short step.
    """
    lams = HALF_DECADES[1::3] if quick else HALF_DECADES
    rounds = (10, 50) if quick else (10, 30, 100)
    rounds = tuple(3 * T for T in rounds) if long else rounds
    if method in ("STL, l2", "STL, l1"):
        name = "ridge" if method == "STL, l2" else "l1"
        strengths = (0.0, *(s / 100 for s in HALF_DECADES), *(s / 1e4 for s in HALF_DECADES[:8]))
        yield [{name: s, "n_rounds": T} for s in strengths[:: 4 if quick else 1] for T in rounds]
    elif method in ("AGGR", "DP-AGGR"):
        yield [{"lam": number(lam)} for lam in 10.0 ** np.arange(-4.5, 3.6, 2.0 if quick else 0.25)]
    elif "MTRL" in method:
        strengths = [
            lam * 10.0**k
            for k in ((-2, 0) if method == "MTRL" else (-2, 0, 3))
            for lam in lams[::2]
        ]
        yield [
            {"lam": lam, "ratio": ratio, "n_rounds": T}
            for lam in strengths
            for ratio in (0.01, 0.1, 1.0)
            for T in ((20,) if method == "MTRL" else (1,))
        ]
        if method.startswith("DP-"):
            yield [{**best[0], "n_rounds": T} for T in (1, 2, 5, 20)]
    else:
        sound = "Gaussian" in method or "Wishart" in method
        edge = float(round(math.sqrt(2 * d)))  # of the eigenvalues of Gaussian noise
        start = {"noise_shift": edge} if sound else {}
        yield [{"lam": lam, "n_rounds": T, **start} for lam in lams for T in rounds]
        if not method.endswith("not private"):
            # Acceleration, strong convexity, and how the budget is divided.
            yield [
                {**best[0], "accelerated": a, "ridge": mu, "allocation": how}
                for a in (True, False)
                for mu in (0.0, 1e-3)
                for how in (
                    (0.4, 1.0, 2.0, 4.0) if not mu else (("geometric", 0.95), ("geometric", 1.0))
                )
            ]
            yield [{**best[0], "clip": K} for K in ((1.0, 3.0) if quick else (0.7, 1.0, 2.0, 3.0))]
        if sound:
            yield [{**best[0], "noise_shift": s * edge} for s in (0.0, 0.25, 0.5, 2.0)]
    for step in 2.0**0.75 ** np.arange(20):
        for name in tuple(best[0]):
            for factor in (1 / step, step):
                value = best[0][name]
                if name == "n_rounds":
                    yield [{**best[0], name: min(max(1, round(value * factor)), 3 * rounds[-1])}]
                elif isinstance(value, float) and value:
                    yield [{**best[0], name: number(value * factor)}]


def fitted(est, data):
    X, y, task = data.train
    return est.fit(X, y, task=task)


def score(method, data, epsilon, seed, how):
    """Error of a fit on the test rows."""
    return data.score(fitted(estimator(method, data, epsilon, seed, **how), data))


def tried_on(folds, method, epsilon, how):
    """Mean error over folds, each with noise of its own; infinite where the rounds diverged."""
    try:
        return np.mean([score(method, fold, epsilon, 7 + i, how) for i, fold in enumerate(folds)])
    except ValueError:
        return np.inf


def search(method, data, epsilon, quick=False, n_folds=2, **fixed):
    """Parameters with the least error by cross-validation, of as many for every method. -> dict"""
    folds, tried, found = list(data.folds(1 if quick else n_folds)), {}, [{}, np.inf]
    d = data.train[0].shape[1]
    for grid in stages(method, found, d, quick, "learning_rate" in fixed):
        for how in grid:
            key = repr(sorted(how.items()))
            if key in tried or len(tried) == (QUICK_SETTINGS if quick else SETTINGS):
                continue
            tried[key] = tried_on(folds, method, epsilon, how | fixed)
            if tried[key] < found[1]:
                found[:] = how, tried[key]
    return {**found[0], **fixed}, found[1]


def measured(method, draws, epsilon, how):
    """-> errors, fitted estimators, over the draws"""
    ests = [fitted(estimator(method, d, epsilon, k, **how), d) for k, d in enumerate(draws)]
    return np.array([d.score(e) for d, e in zip(draws, ests, strict=True)]), ests


SINGLE = ("STL, l2", "STL, l1")
JOINT = ("Algorithm 2, not private", "Algorithm 3, not private", "MTRL", "AGGR")


def row(data, method, epsilon, values, **more):
    mean, several = number(np.mean(values)), len(values) > 1
    found = line("data, method, epsilon, mean", data, method, epsilon or "", mean)
    return {**found, "sd": number(sd(values)) if several else "", "draws": len(values), **more}


# ----------------------------------------------------------------------------- figures 6, 7, 9, 10
PRIVATE = (
    "Algorithm 2, as published",
    "Algorithm 3, as published",
    "Algorithm 2, Gaussian",
    "DP-MTRL",
    "DP-MTRL, columns",
    "DP-AGGR",
)


def text(how):
    return ", ".join(f"{k}={v}" for k, v in how.items())


def measure_tradeoff(quick, repeats):
    rows = []
    for name, make in DATA.items():
        draws = [make(seed, quick) for seed in range(repeats)]
        rows += against_epsilon(name, draws, PRIVATE, (1.0,) if quick else EPSILONS, quick)
    return {"tradeoff_rows": rows, "tradeoff": rows}


def against_epsilon(name, draws, methods, epsilons, quick, n_folds=2):
    groups = {"STL, l2": SINGLE[:1], "STL, better of l1 and l2": SINGLE, "MTL, best of four": JOINT}
    found = {name: search(name, draws[0], None, quick, n_folds) for name in (*SINGLE, *JOINT)}
    # Figure 6 compares with the l2 norm, figure 9 with the better norm.
    compared = SINGLE[0] if "-sparse" in name or "-rank" in name else "STL, better of l1 and l2"
    for label, group in groups.items():
        method = min(group, key=lambda name: found[name][1])
        errors, ests = measured(method, draws, None, found[method][0])
        if label == compared:
            alone = ests
        how = f"{method}: {text(found[method][0])}"
        yield row(name, label, None, shown(draws[0], errors), worse="", chosen=how)
    each, sign = ("areas", -1.0) if draws[0].classes else ("squares", 1.0)
    for method, epsilon in itertools.product(methods, epsilons):
        how, _ = search(method, draws[0], epsilon, quick, n_folds)
        errors, ests = measured(method, draws, epsilon, how)
        pairs = [
            [sign * getattr(d, each)(e) for e in two]
            for d, *two in zip(draws, ests, alone, strict=True)
        ]
        more = {"worse": number(np.mean([np.mean(e > a) for e, a in pairs])), "chosen": text(how)}
        yield row(name, method, epsilon, shown(draws[0], errors), **more)


def shown(data, errors):
    """What the paper shows for errors: the nMSE, or the AUC."""
    return 1.0 - errors if data.classes else errors


def measure_survey(quick, repeats):
    """As `measure_tradeoff`, but the AUC, and Algorithm 2 with all directions, too."""
    draws = [survey(seed, quick) for seed in range(repeats)]
    methods = (*PRIVATE[:2], *(f"{PRIVATE[k]}, all directions" for k in (0, 2)), *PRIVATE[3:])
    epsilons = (1.0,) if quick else (1.0, 100.0)
    rows = list(against_epsilon("LSOA-like", draws, methods, epsilons, quick, n_folds=1))
    return {"survey_rows": rows, "survey": rows}


# -------------------------------------------------------------------------------------- figure 4
def measure_allocation(quick, repeats):
    """nMSE by 5-fold cross-validation on training rows, epsilon 1, as in the paper."""
    draws = [low_rank(seed, quick) for seed in range(repeats)]
    method = "Algorithm 2, as published"
    exponents = (0.0, 1.0) if quick else (-2.0, -1.0, -0.5, 0.0, 0.4, 1.0, 2.0, 4.0)
    ratios = (1.0, 0.98) if quick else (1.2, 1.05, 1.0, 0.994, 0.99, 0.98, 0.95, 0.9, 0.8)
    for convex, accelerated in itertools.product((True, False), (True, False)):
        fixed = {"accelerated": accelerated, "ridge": 0.0 if convex else 1e-3}
        fixed["allocation"] = 0.0 if convex else ("geometric", 1.0)
        rounds, folds = (20,) if quick else (30, 60, 100, 200), list(draws[0].folds(1))
        pairs = itertools.product(HALF_DECADES[2:8], rounds)
        grid = [{"lam": lam, "n_rounds": T, **fixed} for lam, T in pairs]
        how, lines = best(grid, lambda how, f=folds: -tried_on(f, method, 1.0, how)), {}
        for value in exponents if convex else ratios:
            how["allocation"] = value if convex else ("geometric", value)
            lines[value] = np.zeros(repeats)
            for seed, data in enumerate(draws):
                errors = [
                    score(method, f, 1.0, 5 * seed + i, how) for i, f in enumerate(data.folds(5))
                ]
                lines[value][seed] = np.mean(errors)
        for value, values in lines.items():
            curve = "strongly " * (not convex) + "convex, " + "not " * (not accelerated)
            minus = values - lines[0.0 if convex else 1.0]
            yield line(
                "curve, parameter, value, nMSE, sd, minus even, sd of that, draws, rounds, lam",
                curve + "accelerated",
                "alpha" if convex else "Q",
                value,
                *(number(f(part)) for part in (values, minus) for f in (np.mean, sd)),
                repeats,
                how["n_rounds"],
                how["lam"],
            )


# -------------------------------------------------------------------------------------- figure 3
def measure_matrices(quick, repeats):
    """At epsilon .1: does the learned relationship show the four blocks, do models agree?"""
    m, first = 40 if quick else 320, low_rank(0, quick)
    block = np.arange(m) * 4 // m
    other = block[:, None] != block
    same = ~other & ~np.eye(m, dtype=bool)
    for method in ("Algorithm 2, as published", "Algorithm 2, Gaussian", "DP-MTRL", "STL, l2"):
        contrasts, agreements = [], []
        how, _ = search(method, first, 0.1, quick)
        for seed in range(repeats):
            data = low_rank(seed, quick, coef=True)
            W = fitted(estimator(method, data, 0.1, seed, **how), data).coef_
            U = normalize(W)
            C = U @ U.T
            contrasts.append(C[same].mean() - C[other].mean())
            agreements.append(np.corrcoef(W.ravel(), data.coef.ravel())[0, 1])
        what = "mean cosine within blocks minus between"
        yield row("low-rank", method, 0.1, contrasts, measure=what)
        what = "correlation of models with the true ones"
        yield row("low-rank", method, 0.1, agreements, measure=what)


# -------------------------------------------------------------------------------------- figure 5
def measure_noise(quick, repeats):
    """log10 of |E|_F / |moment|_F by round, epsilon .1; DP-MTRL: noise on models over models."""
    method, first = "Algorithm 2, as published", low_rank(0, quick)
    how, _ = search(method, first, 0.1, quick)
    how |= {"accelerated": True, "ridge": 0.0, "allocation": 0.4}
    joint, found, own = search("DP-MTRL", first, 0.1, quick)[0] | {"n_rounds": 1}, [], []
    for seed in range(repeats):
        data, ratios = low_rank(seed, quick), []
        sent = [np.zeros((data.m, 30))]
        how["monitor"] = lambda t, tasks, P, sent=sent: sent.append(tasks.clipped())
        est = fitted(estimator(method, data, 0.1, seed, **how), data)
        for sigma, W in zip(est.billboard_.moments, sent, strict=False):
            signal = np.linalg.norm(W.T @ W)
            if signal:
                ratios.append(math.log10(np.linalg.norm(sigma - W.T @ W) / signal))
        found.append(ratios)
        noisy = fitted(estimator("DP-MTRL", data, 0.1, seed, **joint), data).coef_
        exact = fitted(estimator("MTRL", data, None, seed, **joint), data).coef_
        own.append(math.log10(np.linalg.norm(noisy - exact) / np.linalg.norm(exact)))
    found = np.array(found)
    T = found.shape[1]
    for t in sorted({0, 1, 4, 9, 19, 49, T - 1} & set(range(T))):
        yield row("low-rank", method, 0.1, found[:, t], round=t + 2)
    yield row("low-rank", "DP-MTRL", 0.1, own, round=1)


# -------------------------------------------------------------------------------------- figure 8
def first_tasks(seed, m, quick, interleave):
    whole = low_rank(seed, quick, interleave=interleave)
    parts = (tuple(part[rows[2] < m] for part in rows) for rows in (whole.train, whole.test))
    return Data(*parts, scored=min(20, m))


def measure_tasks(quick, repeats):
    """nMSE of the first 20 tasks; p: Mann-Whitney-Wilcoxon, against half as many tasks.

    With fewer tasks than features, both as printed and with all directions (then also in p).
    """
    rows = []
    for interleave, epsilon in itertools.product((True, False), (1.0,) if quick else EPSILONS[:3]):
        label = "blocks in turn" if interleave else "blocks one by one"
        before = None
        for m in (20, 40) if quick else (20, 40, 80, 160, 320):
            draws = [first_tasks(seed, m, quick, interleave) for seed in range(repeats)]
            # With 30 tasks or more all directions are those that are printed.
            kinds = {PRIVATE[0] + ", min(d, m) directions" * (m < 30): PRIVATE[0]}
            if m < 30:
                kinds[PRIVATE[0]] = f"{PRIVATE[0]}, all directions"
            for name, method in kinds.items():
                # Few tasks have few rows.
                how, _ = search(method, draws[0], epsilon, quick, 5 if m < 100 else 2)
                errors, _ = measured(method, draws, epsilon, how)
                more = {"tasks": m, "p": "", "chosen": text(how)}
                if before is not None:
                    more["p"] = number(mannwhitneyu(errors, before, alternative="less").pvalue)
                rows.append(row(f"low-rank, {label}", name, epsilon, errors, **more))
            before = errors
    return {"tasks_rows": rows, "tasks": rows}


# -------------------------------------------------------------------------- figure 2, Proposition 1
def measure_leak(quick, repeats):
    """Ten tasks in five dimensions, the last model 100 times as long, one round, lambda 50.

    "cosine": mean over the other tasks of |cos| with the last model. "distance": of the projection
    from the nearest multiple of the identity, over its length. "largest": share of draws in which
    the two features with the longest rows in W(0) of tasks 1 to 9 are those of the output.
    """
    m, d = 10, 5
    settings = [("no noise", None, "published", 0.0), ("alone", None, None, 0.0)]
    kinds = (("as published", "published", 0.0), ("Wishart", "wishart", 4.0))
    kinds += (("Gaussian", "gaussian", 4.0), ("Gaussian without shift", "gaussian", 0.0))
    for (name, kind, shift), e in itertools.product(kinds, EPSILONS[:4]):
        settings.append((f"{name}, epsilon {e:g}", e, kind, shift))
    size = {"clip_norm": 100.0 * math.sqrt(5.0), "threshold": 50.0}
    for label, epsilon, kind, shift in settings:
        rng, found = np.random.default_rng(0), []
        delta = 1.0 / (m * math.log(m)) if kind == "gaussian" else 0.0
        if kind is not None:
            budget = {"epsilon": epsilon, "delta": delta, "mechanism": kind, "noise_shift": shift}
            plan = MPMTLPlan("low-rank", m, d, 1, **size, **budget)
        for seed in range(repeats):
            W = rng.uniform(0.0, 1.0, (m, d))
            W[-1] *= 100.0
            M = np.eye(d)
            if kind is not None:
                S = W.T @ W
                if epsilon is not None:
                    S = plan.mechanism(0).release(S, noise_source(seed)) + plan.shift(0) * M
                M = PROJECTIONS["low-rank"](S, 50.0, d)
            H = W @ M
            if not H.any(axis=1).all():
                continue
            U, even = normalize(H), np.trace(M) / d * np.eye(d)
            top, kept = (set(np.argsort(np.linalg.norm(w[:-1], axis=0))[-2:]) for w in (W, H))
            distance = np.linalg.norm(M - even) / np.linalg.norm(M)
            found.append((np.abs(U[:-1] @ U[-1]).mean(), distance, top == kept, np.trace(M) / d))
        names = "setting, cosine, distance, largest, mean diagonal, draws"
        yield line(names, label, *map(number, np.mean(found, axis=0)), len(found))


# --------------------------------------------------------------------------------------- table 2
def measure_rates(quick, repeats):
    """Excess of the objective over its optimum (published noise), over epsilon and over m.

    lambda = c sqrt(m) as in the theorems, W(0) = 0, K the longest model of the optimum; T is the
    best of a grid. Without acceleration and with strong convexity: |W - W*|_F / sqrt(m).
    """
    epsilons = (3.0, 30.0) if quick else (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    sizes = (40, 80) if quick else (80, 160, 320, 640)
    rounds = (5, 20) if quick else (1, 2, 4, 8, 16, 32, 64, 128)
    makers = {"low-rank": make_low_rank_tasks, "group-sparse": make_group_sparse_tasks}
    for penalty, make in makers.items():
        cases = [("epsilon", e, 80 if quick else 320, e) for e in epsilons]
        cases += [("m", m, m, 100.0) for m in sizes]
        found = {}
        for (varied, x, m, epsilon), seed in itertools.product(cases, range(repeats)):
            data = Data(make(m, random_state=seed), None)
            for strong in (False, True):
                optimum = Optimum(data, penalty, 1e-3 if strong else 0.0)
                for accelerated, pure in itertools.product((False, True), (True, False)):
                    how = {"epsilon": epsilon, "delta": 0.0 if pure else 1e-5}
                    how |= {"accelerated": accelerated, "random_state": seed}
                    value = min(optimum.excess(n_rounds=T, **how) for T in rounds)
                    key = (strong, accelerated, pure), varied
                    found.setdefault(key, {}).setdefault(x, []).append(value)
        for ((strong, accelerated, pure), varied), points in found.items():
            means = [np.mean(v) for v in points.values()]
            slope = np.polyfit(np.log(list(points)), np.log(means), 1)[0]
            paper = -bound_exponent(accelerated, strong, pure)
            paper *= 0.5 if penalty == "low-rank" and varied == "m" else 1.0
            yield line(
                "penalty, delta, acceleration, convexity, over",
                penalty,
                "0" if pure else "> 0",
                "yes" if accelerated else "no",
                "strong" if strong else "convex",
                varied,
            ) | {
                "paper": number(paper),
                "measured": number(slope),
                "excess, first": number(means[0]),
                "excess, last": number(means[-1]),
                "draws": repeats,
            }


class Optimum:
    """The optimum of the objective without noise, and how far private fits are from it."""

    def __init__(self, data, penalty, mu):
        self.data, self.penalty, self.mu = data, penalty, mu
        self.given = {"lam": 0.02 * math.sqrt(data.m), "ridge": mu, "start": "zeros"}
        self.given |= {"tasks": range(data.m), "learning_rate": 1.0 / (1.0 / data.rate + mu)}
        exact = PublishedMPMTL(penalty, epsilon=None, n_rounds=1500, **self.given)
        self.coef = fitted(exact, data).coef_
        self.given["clip_norm"] = float(np.linalg.norm(self.coef, axis=1).max())
        self.least = self.objective(self.coef)

    def objective(self, W):
        low_rank = self.penalty == "low-rank"
        norm = np.linalg.norm(W, "nuc") if low_rank else np.linalg.norm(W, axis=0).sum()
        values = MeanSquares(self.data.tasks()).value(W).sum() + 0.5 * self.mu * (W**2).sum()
        return (values + self.given["lam"] * norm) / self.data.m

    def excess(self, accelerated, **how):
        average = not accelerated and not self.mu
        how |= {"accelerated": accelerated, "average": average, **self.given}
        W = fitted(PublishedMPMTL(self.penalty, **how), self.data).coef_
        if self.mu and not accelerated:
            return float(np.linalg.norm(W - self.coef) / math.sqrt(self.data.m))
        return max(self.objective(W) - self.least, 1e-12)


# ---------------------------------------------------------------------------- lemmas, Claim 2
def measure_theory(quick, repeats):
    """Lemmas: median of excess over bound. Claim 2: T of the theorems, and the best T measured."""
    rng, d, m, threshold = np.random.default_rng(0), 10, 50, 2.0
    names = "statement, setting, figure, value, largest, draws"
    for lemma, penalty in (("lemma 1", "low-rank"), ("lemma 2", "group-sparse")):
        for size in (1e-6, 1e-4, 1e-2):
            ratios = []
            for _ in range(20 if quick else 200):
                C, s, k = model_matrix(rng, d, m, penalty, threshold)
                G = rng.standard_normal((d, d + 1))
                ratios.append(np.divide(*lemma_sides(C, s, k, size * G @ G.T, penalty, threshold)))
            values = number(np.median(ratios)), number(np.max(ratios)), len(ratios)
            yield line(names, lemma, f"noise {size:g}", "excess / bound", *values)
    grid = (5, 20) if quick else (5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320)
    for mu, accelerated in itertools.product((0.0, 1e-3), (True, False)):
        how, found = {"lam": 0.3, "accelerated": accelerated, "ridge": mu}, []
        for seed in range(repeats):
            of = PRIVATE[0], low_rank(seed, quick), 10.0, seed
            found.append(best(grid, lambda T, of=of, how=how: -score(*of, how | {"n_rounds": T})))
        setting = f"mu {mu:g}, " + "not " * (not accelerated) + "accelerated"
        values = number(np.median(found)), number(np.max(found)), len(found)
        yield line(names, "Claim 2", setting, "best T", *values)


def model_matrix(rng, d, m, penalty, threshold):
    """C (d, m), its singular values or row lengths, and how many are above the threshold."""
    s = np.array([9.0, 6.0, 4.0, *np.linspace(1.0, 0.1, d - 3)])
    if penalty == "low-rank":
        U, V = (np.linalg.qr(rng.standard_normal((n, d)))[0] for n in (d, m))
        return (U * s) @ V.T, s, 3
    return normalize(rng.standard_normal((d, m))) * s[:, None], s, 3


def lemma_sides(C, s, k, E, penalty, threshold):
    """What steps 4 to 9 leave of the proximal problem with eta = 1, and its bound."""
    d = len(C)
    M = PROJECTIONS[penalty](C @ C.T + E, threshold, d)
    if penalty == "low-rank":
        U, _, Vt = np.linalg.svd(C, full_matrices=False)
        best = (U * np.maximum(s - threshold, 0.0)) @ Vt
        e = np.linalg.norm(E, 2)
        factor = (k**2 / threshold + 2 * k) * e + (d - k) * math.sqrt(e)
        bound = (s[0] ** 2 / threshold + s[0]) * factor
    else:
        best = C * np.maximum(1.0 - threshold / s, 0.0)[:, None]
        e = np.abs(np.diag(E)).max()
        factor = k / (2 * threshold) * e + (d - k) * math.sqrt(e)
        bound = (d / threshold * s[0] ** 2 + s[0]) * factor

    def value(W):
        norm = (
            np.linalg.norm(W, "nuc") if penalty == "low-rank" else (np.linalg.norm(W, axis=1).sum())
        )
        return 0.5 * np.sum((W - C) ** 2) + threshold * norm

    return value(M @ C) - value(best), bound


# ----------------------------------------------------------------------- appendix E, decomposition
def measure_share(quick, repeats):
    """School: tuned at every share; survey: with the parameters of its table, share .3."""
    school_shares = (0.3,) if quick else (0.1, 0.2, 0.3, 0.5, 0.7)
    cases = [("School", school, share, repeats) for share in school_shares]
    cases += [("LSOA-like", survey, share, min(repeats, 2)) for share in (0.1, 0.5) if not quick]
    found = {}
    for name, make, share, n in cases:
        draws = [make(seed, quick, share) for seed in range(n)]
        classes, metric = draws[0].classes, "AUC" if draws[0].classes else "nMSE"
        second = PRIVATE[0] + ", all directions" * classes
        plain = [("STL, l2", None), ("Algorithm 2, not private", None)]
        for method, epsilon in (*plain, (second, 1.0), (PRIVATE[1], 1.0)):
            if not classes:
                found[name, method] = search(method, draws[0], epsilon, quick)
            elif (name, method) not in found:
                found[name, method] = search(method, make(0, quick), epsilon, quick, n_folds=1)
            errors, _ = measured(method, draws, epsilon, found[name, method][0])
            more = {"share": share, "metric": metric}
            yield row(name, method, epsilon, shown(draws[0], errors), **more)


def measure_own(quick, repeats):
    """Low-rank data in which some tasks have other models; nMSE of the other tasks and of all.

    A tenth of the tasks have independent models that are three times as long.
    """
    draws, method = [with_outliers(seed, quick) for seed in range(repeats)], PRIVATE[0]
    folds = list(draws[0].folds(1))
    shared = [{"lam": lam, "n_rounds": T} for lam in (0.1, 0.3, 1.0) for T in (30, 100)]
    pairs = [(p, s) for p in ("l1", "norm") for s in (1e-2, 3e-2, 0.1, 0.3)]
    own = [how | {"own_penalty": p, "own_strength": s} for how in shared for p, s in pairs]
    grids = {"shared models": shared, "with an own part": own}
    for epsilon, (label, grid) in itertools.product(
        (1.0,) if quick else EPSILONS[1:4], grids.items()
    ):
        how = best(grid, lambda how, e=epsilon: -tried_on(folds, method, e, how))
        errors, ests = measured(method, draws, epsilon, how)
        squares = [d.squares(e) for d, e in zip(draws, ests, strict=True)]
        usual = [s[: int(0.9 * len(s))].sum() / s.sum() for s in squares]
        more = {"usual": number(np.mean(usual * errors)), "chosen": text(how)}
        yield row("low-rank, outlier tasks", f"{method}, {label}", epsilon, errors, **more)


def with_outliers(seed, quick):
    m, n_test = (40, 30) if quick else (320, 90)
    whole = make_low_rank_tasks(m, n_test=n_test, random_state=seed)
    odd = {"correlation": 0.0, "variance": 1080.0, "random_state": 10_000 + seed}
    odd, parts = make_low_rank_tasks(m, n_test=n_test, **odd), []
    for rows, other in ((whole[:3], odd[:3]), (whole[3:6], odd[3:6])):
        swap = rows[2] >= int(0.9 * m)
        X, y = (
            np.where(swap.reshape(-1, *[1] * (a.ndim - 1)), b, a)
            for a, b in zip(rows[:2], other[:2], strict=True)
        )
        parts.append((X, y, rows[2]))
    return Data(*parts)


def measure_step(quick, repeats):
    """Low-rank data, Algorithm 2: figure 4 has Q_0 = 1 - sqrt(mu), so that L is 1 there."""
    draws, method = [low_rank(seed, quick) for seed in range(repeats)], PRIVATE[0]
    for label, fixed in (("measured L", {}), ("L = 1", {"learning_rate": 1.0})):
        for epsilon in (1.0,) if quick else EPSILONS[:3]:
            how, _ = search(method, draws[0], epsilon, quick, **fixed)
            errors, _ = measured(method, draws, epsilon, how)
            yield row("low-rank", f"{method}, {label}", epsilon, errors, chosen=text(how))
    errors, _ = measured("STL, l2", draws, None, {"n_rounds": 130, "learning_rate": 1.0})
    yield row("low-rank", "STL without penalty, L = 1", None, errors, chosen="n_rounds=130")


TABLES = {
    "tradeoff": (measure_tradeoff, 10, "epsilon"),
    "allocation": (measure_allocation, 5),
    "matrices": (measure_matrices, 10),
    "noise": (measure_noise, 10),
    "tasks": (measure_tasks, 10, "tasks"),
    "leak": (measure_leak, 300),
    "rates": (measure_rates, 5),
    "theory": (measure_theory, 5),
    "own": (measure_own, 5),
    "step": (measure_step, 5),
    "share": (measure_share, 5),
    "survey": (measure_survey, 3, "epsilon"),
}


def main(arguments=None):
    return run("mp_mtl", __doc__, TABLES, arguments)


if __name__ == "__main__":
    main()
