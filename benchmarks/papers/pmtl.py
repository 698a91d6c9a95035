"""Private multi-task learning (Hu, Wu, Smith): every figure and table, with its own algorithms.

    python -m benchmarks.papers.pmtl [--quick] [--only NAME ...] [--repeats R] [--output FOLDER]
        [--leaf FOLDER [--words FILE --tags FILE]]

A CSV file ``pmtl_NAME.csv`` for each NAME:

========  =====================================================================================
epsilon   figures 1, 3, 7, 8: test scores of all methods against epsilon
finetune  tables 1 and 3: four personalisations, global models, PMTL, and every task alone
rounds    figure 2: training loss and epsilon, round by round
clip      figures 4 to 6: score and epsilon over sigma and clipping norm
adjacency epsilons of the tables, and what the same noise keeps at zero-out adjacency
sampling  Algorithm 1 with q of m tasks in a round, as printed and unbiased
theorems  Theorems 1 and 5, Corollary 8 (6 of the first version): gaps and slopes
nonconvex Theorems 3 and 6, Corollary 4: squared gradients on a nonconvex loss, and slopes
sparse    a table of the shape of StackOverflow: seconds of a round
networks  figures 3, 7 and table 1 with a convolutional network (needs torch)
========  =====================================================================================

Tuning is the paper's: sigma, gamma, T (and here lam) are those with the best score on validation
rows at the given epsilon, for every method from one grid; the score is on test rows. A run with
sigma and gamma fixed gives the scores of all T at once, each with its epsilon. Data: School with 10
pupils of each school for training, the score is nMSE; Synthetic(.5, .5), a softmax model in which
models and features of tasks differ, the score is accuracy. delta = 1 / m. Replace-one adjacency as
in the paper's definitions; at zero-out adjacency the same noise is half of that epsilon's mu.

``--leaf`` runs "epsilon", "finetune", "rounds" and "clip" on files of LEAF in place of these data:
FEMNIST, or, with public lists of words and tags, posts of StackOverflow.
"""

import argparse
import itertools
import math
import time
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from skpmtl.datasets import load_leaf
from skpmtl.datasets.school import load_school
from skpmtl.exchange import run
from skpmtl.privacy import PrivacyLeakWarning, gdp_epsilon, gdp_mu
from skpmtl.privacy.rng import noise_source
from skpmtl.reproduction.pmtl import (
    PMTLPlan,
    PublishedPMTL,
    PublishedPMTLClassifier,
    PublishedPMTLTorchClassifier,
    theorem_1_noise_std,
)
from skpmtl.reproduction.pmtl.estimators import BiasedMeanWarning
from skpmtl.reproduction.pmtl.models import Block, Task, linear_model
from skpmtl.reproduction.pmtl.rounds import METHODS, GradientSteps, LocalTasks, curator, finetuned
from skpmtl.reproduction.pmtl.torch_estimators import ModuleModel

from ..command import PAPERS, command_line, write_rows

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 4.0)  # section 5.2
SHARING = ("algorithm-1", "stateful", "fedavg", "fedprox", "ppsgd", "concatenated")
CHECKPOINTS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 80, 100)
NOISES = (2.0, 6.0, 20.0, 60.0, 180.0)  # sigma q / gamma
CLIPS = (0.03, 0.1, 0.3, 1.0)
LAMS = (0.1, 1.0)
STEPS = 5  # E


# ----------------------------------------------------------------------------------------- data
class Data:
    """Rows (X, y, task) for training, validation and test, and how they are scored."""

    def __init__(self, train, valid, test, *, classes, rate):
        self.train, self.valid, self.test = train, valid, test
        self.classes, self.rate = classes, rate
        self.tasks = np.unique(train[2])
        self.metric = "accuracy" if classes else "nMSE"
        self.sign = 1.0 if classes else -1.0

    def estimator(self, method, **options):
        kind = PublishedPMTLClassifier if self.classes else PublishedPMTL
        known = {"classes": range(self.classes)} if self.classes else {}
        settings = {"local_steps": STEPS, "learning_rate": self.rate, **known, **options}
        return kind(method, tasks=self.tasks, **settings)

    def score(self, W, part):
        """Of models (m, size), features times scores, on "valid" or "test" rows."""
        X, y, task = getattr(self, part)
        c = W.shape[1] // (X.shape[1] + 1)  # 1 of two classes
        V, s = W.reshape(len(W), -1, c), np.empty((len(y), c))
        for k, name in enumerate(self.tasks):
            rows = task == name
            s[rows] = X[rows] @ V[k, :-1] + V[k, -1]
        if self.classes:
            found = s.argmax(axis=1) if c > 1 else s[:, 0] > 0
            return float((found == y).mean())
        return float(((s[:, 0] - y) ** 2).mean() / y.var())


def split(X, y, task, sizes, rng):
    """Rows of every task divided at random by `sizes`, of which the last is the rest."""
    parts = [[] for _ in range(len(sizes) + 1)]
    for name in np.unique(task):
        rows = rng.permutation(np.flatnonzero(task == name))
        cuts = np.cumsum([size if size >= 1 else int(size * len(rows)) for size in sizes])
        for part, chunk in zip(parts, np.split(rows, cuts), strict=True):
            part.append(chunk)
    return [(X[i], y[i], task[i]) for i in map(np.concatenate, parts)]


def school(seed, quick=False):
    """School: 10 pupils of each school for training, 10 for validation, the others for test."""
    bunch = load_school()
    X, y, task = bunch.data.astype(float), (bunch.target - 1.0) / 69.0, bunch.task
    X[:, 3:5] /= 100.0
    X /= np.sqrt(8.0)
    if quick:
        keep = np.isin(task, np.unique(task)[:20])
        X, y, task = X[keep], y[keep], task[keep]
    rng = np.random.default_rng(seed)
    train, valid, test = split(X, y, task, (10, 10), rng)
    return Data(train, valid, test, classes=0, rate=0.5)


def synthetic(seed, quick=False, m=150, d=15, c=4, n=20, spread=0.5, shift=0.5):
    """Synthetic(.5, .5): W_k = W_0 + s N, x ~ N(v_k, diag(j^-1.2)), y = argmax(W_k'x + .3 G)."""
    if quick:
        m, d, c = 20, 5, 3
    rng = np.random.default_rng(1000 + seed)
    scale = np.arange(1, d + 1) ** -0.6
    W = rng.standard_normal((d + 1, c)) + spread * rng.standard_normal((m, d + 1, c))
    v = np.sqrt(shift) * rng.standard_normal((m, d)) * scale
    X = v[:, None] + scale * rng.standard_normal((m, n + 60, d))
    s = X @ W[:, :-1] + W[:, None, -1] + 0.3 * rng.gumbel(size=(m, n + 60, c))
    X, y = X.reshape(-1, d) / np.sqrt(2.0), s.argmax(axis=-1).ravel()
    task = np.repeat(np.arange(m), n + 60)
    train, valid, test = split(X, y, task, (n, 20), rng)
    return Data(train, valid, test, classes=c, rate=0.5)


DATA = {"School, 10 pupils": school, "Synthetic(.5,.5)": synthetic}
DRAWN = {}  # data by name, seed and size


def leaf(folder, words=None, tags=None):
    """Files of LEAF: half of the rows of every user for training, a quarter for validation."""
    lists = [None if f is None else Path(f).read_text().split() for f in (words, tags)]
    bunch = load_leaf(folder, vocabulary=lists[0], labels=lists[1])
    y = np.unique(bunch.target, return_inverse=True)[1]

    def make(seed, quick=False):
        rng = np.random.default_rng(seed)
        parts = split(bunch.data, y, bunch.task, (0.5, 0.25), rng)
        return Data(*parts, classes=int(y.max()) + 1, rate=0.5)

    return {"LEAF": make}


# ----------------------------------------------------------------------------------------- runs
def quietly(est, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", BiasedMeanWarning)
        X, y, task = data.train
        return est.fit(X, y, task=task)


def grid(method, quick=False):
    """Settings of a method: its noise (None: neither noise nor clipping), clip norm and lam."""
    noises, clips, lams = (NOISES, CLIPS, LAMS) if not quick else ((8.0, 64.0), (0.3, 1.0), (0.3,))
    lams = (1.0,) if method == "fedavg" else lams
    for noise in (None, *noises):
        for clip in clips if noise else (1.0,):
            for lam in lams:
                yield {"noise_multiplier": noise, "clip_norm": clip, "lam": lam}


@cache
def runs(name, method, seed, quick=False):
    """Scores of all settings and checkpoints on a data set of `DATA`. -> list of dict"""
    found, data = [], drawn(name, seed, quick)
    for options in grid(method, quick):
        made = []

        def watch(t, tasks, shared, made=made, options=options):
            if t in CHECKPOINTS:
                W = tasks.results(shared)
                scores = {part: data.score(W, part) for part in ("valid", "test")}
                made.append({"T": t, **options, "method": method, **scores})

        est = data.estimator(
            method,
            epsilon=None,
            n_rounds=20 if quick else CHECKPOINTS[-1],
            monitor=watch,
            random_state=seed,
            **options,
        )
        try:
            quietly(est, data)
        except ValueError:  # of the diverged, nothing is chosen
            continue
        for row in made:
            private = options["noise_multiplier"] is not None
            row["epsilon"] = est._plan_.epsilon_after(row["T"]) if private else np.inf
            row["sigma"] = est._plan_.noise_std
        found += made
    return found


def drawn(name, seed, quick):
    key = name, seed, quick
    if key not in DRAWN:
        DRAWN[key] = DATA[name](seed, quick)
    return DRAWN[key]


def chosen(rows, epsilon, sign, by="valid"):
    """The setting with the best score on validation rows within a budget (inf: no noise)."""
    if epsilon == np.inf:
        rows = [row for row in rows if row["epsilon"] == np.inf]
    else:
        rows = [row for row in rows if row["epsilon"] <= epsilon]
    return max(rows, key=lambda row: sign * row[by]) if rows else None


def alone(data, seed, quick=False):
    """Every task by itself, its steps chosen on validation rows. -> test score"""
    made = []

    def watch(t, tasks, shared):
        if t in CHECKPOINTS:
            W = tasks.results(shared)
            made.append([data.score(W, part) for part in ("valid", "test")])

    quietly(data.estimator("local", n_rounds=20 if quick else 100, monitor=watch), data)
    return max(made, key=lambda pair: data.sign * pair[0])[1]


def summary(cells, keys):
    """Means over draws of cells (key, value). -> list of dict"""
    by_key = {}
    for key, value in cells:
        by_key.setdefault(key, []).append(value)
    for key, values in by_key.items():
        sd = f"{np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        yield {
            **dict(zip(keys, key, strict=True)),
            "mean": f"{np.mean(values):.4f}",
            "sd": sd,
            "draws": len(values),
        }


# ----------------------------------------------------------------------------- figures 1, 3, 7, 8
def measure_epsilon(quick, repeats):
    """Figures 1, 3, 7 and 8."""
    cells = []
    for name in DATA:
        for seed in range(repeats):
            data = drawn(name, seed, quick)
            cells.append(((name, data.metric, "local", "inf"), alone(data, seed, quick)))
            for method in SHARING:
                rows = runs(name, method, seed, quick)
                for epsilon in (*EPSILONS, np.inf):
                    best = chosen(rows, epsilon, data.sign)
                    if best is not None:
                        cells.append(((name, data.metric, method, epsilon), best["test"]))
    found = list(summary(cells, ("data", "metric", "method", "epsilon")))
    return [row | {"wins": _wins(row, cells)} for row in found]


def _wins(row, cells):
    """In how many draws a method is better than FedAvg at the same epsilon."""
    own, other = (
        [v for k, v in cells if k == (row["data"], row["metric"], method, row["epsilon"])]
        for method in (row["method"], "fedavg")
    )
    sign = 1.0 if row["metric"] == "accuracy" else -1.0
    if len(own) != len(other) or row["method"] == "fedavg":
        return ""
    return sum(sign * a > sign * b for a, b in zip(own, other, strict=True))


# ------------------------------------------------------------------------------ tables 1 and 3
PERSONAL = ("none", "finetune", "mean-reg", "symmetrized-kl", "ewc")


def measure_finetune(quick, repeats):
    """Tables 1 and 3: rounds as in figure 3, then steps and lam chosen on validation rows."""
    cells = []
    for seed in range(repeats):
        name = [*DATA][-1]
        data = drawn(name, seed, quick)
        cells.append((("local", "finetune", "inf"), alone(data, seed, quick)))
        for method in ("algorithm-1", "stateful", "fedavg", "fedprox"):
            rows = runs(name, method, seed, quick)
            for epsilon in (0.1, 0.8, 2.0, np.inf):
                best = chosen(rows, epsilon, data.sign)
                tasks, W, shared = _again(data, method, best, seed)
                for how in PERSONAL:
                    pairs = []
                    options = (
                        [(0, 0.0)]
                        if how == "none"
                        else itertools.product(
                            (5, 20, 100), (0.0,) if how == "finetune" else (0.03, 0.3, 3.0)
                        )
                    )
                    for steps, lam in options:
                        V = W
                        if steps:
                            step = GradientSteps(steps, data.rate, lam)
                            V = finetuned(tasks, W, shared, how, step)
                        pairs.append([data.score(V, part) for part in ("valid", "test")])
                    score = max(pairs, key=lambda pair: data.sign * pair[0])[1]
                    cells.append(((method, how, epsilon), score))
    return list(summary(cells, ("method", "personalization", "epsilon")))


def _again(data, method, row, seed):
    """The run of a chosen setting: its tasks, their models, and the shared model."""
    kept = []
    options = {name: row[name] for name in ("noise_multiplier", "clip_norm", "lam")}

    def watch(t, tasks, shared):
        kept[:] = tasks, tasks.results(shared).copy(), shared.copy()

    quietly(
        data.estimator(
            method, epsilon=None, n_rounds=row["T"], monitor=watch, random_state=seed, **options
        ),
        data,
    )
    return kept


# ------------------------------------------------------------------------------------ figure 2
def measure_rounds(quick, repeats):
    """Figure 2: one sigma and one gamma; loss of the training rows of all tasks."""
    cells = []
    for name in DATA:
        for seed in range(repeats):
            data = drawn(name, seed, quick)
            for method in ("algorithm-1", "stateful", "fedavg"):
                losses = []

                def watch(t, tasks, shared, losses=losses):
                    losses.append(tasks.losses(tasks.results(shared)).mean())

                est = data.estimator(
                    method,
                    epsilon=None,
                    noise_multiplier=16.0,
                    clip_norm=0.3,
                    lam=0.3,
                    n_rounds=20 if quick else 100,
                    monitor=watch,
                    random_state=seed,
                )
                quietly(est, data)
                for spent, loss in zip(est.history(), losses, strict=True):
                    if spent["round"] in CHECKPOINTS:
                        key = name, method, spent["round"], f"{spent['epsilon']:.3f}"
                        cells.append((key, loss))
    return list(summary(cells, ("data", "method", "round", "epsilon")))


# ------------------------------------------------------------------------------- figures 4 to 6
def measure_clip(quick, repeats):
    """Figures 4 to 6: Algorithm 1 after T rounds, lam chosen on validation rows."""
    cells = []
    top = 20 if quick else 40
    for name in DATA:
        for seed in range(repeats):
            data = drawn(name, seed, quick)
            for method in ("algorithm-1", "stateful"):
                rows = [
                    row
                    for row in runs(name, method, seed, quick)
                    if row["T"] == (18 if quick else top) and row["noise_multiplier"]
                ]
                for key, same in itertools.groupby(
                    rows, lambda row: (row["noise_multiplier"], row["clip_norm"])
                ):
                    best = max(same, key=lambda row: data.sign * row["valid"])
                    cell = (name, method, best["T"], *key)
                    cell += (f"{best['epsilon']:.3g}",)
                    cells.append((cell, best["test"]))
    keys = ("data", "method", "T", "noise_multiplier", "clip_norm", "epsilon")
    return list(summary(cells, keys))


# --------------------------------------------------------------------------- Algorithm 1, q < m
def measure_sampling(quick, repeats):
    """Length of the shared model over that of the mean model, and scores, by q."""
    cells = []
    for seed in range(repeats):
        data = synthetic(seed, quick)
        m = len(data.tasks)
        for q, method, epsilon in itertools.product(
            (m, m // 2, m // 4), ("algorithm-1", "unbiased", "stateful"), (np.inf, 2.0)
        ):
            kept = []
            options = {"epsilon": None} if epsilon == np.inf else {"epsilon": epsilon}

            def watch(t, tasks, shared, kept=kept):
                kept[:] = tasks.own.mean(axis=0), shared, tasks.results(shared)

            est = data.estimator(
                method,
                n_sampled=q,
                n_rounds=20,
                clip_norm=1.0,
                lam=0.3,
                monitor=watch,
                random_state=seed,
                **options,
            )
            quietly(est, data)
            ratio = np.linalg.norm(kept[1]) / np.linalg.norm(kept[0])
            key = f"{q}/{m}", method, epsilon
            cells.append(((*key, "length over mean"), ratio))
            cells.append(((*key, "accuracy"), data.score(kept[2], "test")))
    return list(summary(cells, ("q/m", "method", "epsilon", "metric")))


# ------------------------------------------------------------------------------------- theorems
SAME_STEPS = "E, same steps"  # the theorems count steps: T / E of theirs are rounds


def varied(base, name, value):
    """The setting with one thing varied; the noise is for the budget over `noise_T` rounds."""
    if name == SAME_STEPS:
        steps = base["E"] * base["T"]
        return base | {"E": value, "T": steps // value, "noise_T": steps}
    setting = base | {name: value}
    return setting | {"noise_T": setting["T"]}


def noise_of(setting, m, q):
    """Noise multiplier of Algorithm 1 for epsilon at delta 1e-3 over `noise_T` rounds."""
    budget = setting["epsilon"], 1e-3
    plan = PMTLPlan("algorithm-1", m, q, setting["noise_T"], 2.0, *budget, None, "replace-one")
    return plan.noise_multiplier


def measure_theorems(quick, repeats):
    """Gap (1/m) sum f_k(w_k^T; w~^T) - f_k(w_k*; w~*) on strongly convex tasks, one thing varied.

    Ridge-like tasks: squared loss on 20 rows of 5 features, lam = 1, eta = .5, gamma above every
    update of a run without noise. A slope is that of log gap over log value, by least squares.
    """
    base = {"m": 400, "q": 1.0, "E": 5, "T": 20, "epsilon": 2.0}
    vary = {
        "m": (100, 200, 400, 800),
        "epsilon": (1.0, 2.0, 4.0, 8.0),
        "T": (10, 20, 40, 80),
        "E": (1, 2, 5, 20),
        SAME_STEPS: (1, 2, 5, 20),
        "q": (0.25, 0.5, 1.0),
    }
    cells = []
    for name, values in vary.items():
        for value, private, seed in itertools.product(values, (True, False), range(repeats)):
            setting = varied(base, name, value)
            for method in ("algorithm-1", "unbiased") if name == "q" else ("algorithm-1",):
                gap = _gap(setting, private, seed, method, quick)
                cells.append(((method, name, value, "yes" if private else "no"), gap))
    return _with_slopes(cells)


def _with_slopes(cells):
    """Means over draws of cells (key, value), and slopes of their logarithms."""
    keys, values = ("method", "varied", "value", "noise"), {}
    for key, value in cells:
        values.setdefault(key, []).append(value)
    series = {}
    for key in values:
        series.setdefault((key[0], key[1], key[3]), []).append(key)
    slopes = {}
    for same, points in series.items():
        gaps = np.array([np.mean(values[key]) for key in points])
        at, ok = np.array([float(key[2]) for key in points]), gaps > 1e-13
        slopes[same] = np.polyfit(np.log(at[ok]), np.log(gaps[ok]), 1)[0]
    return [
        {
            **dict(zip(keys, key, strict=True)),
            "mean": f"{np.mean(found):.2e}",
            "sd": f"{np.std(found, ddof=1):.1e}" if len(found) > 1 else "",
            "draws": len(found),
            "slope": f"{slopes[key[0], key[1], key[3]]:.2f}",
        }
        for key, found in values.items()
    ]


class BoundedLoss(LocalTasks):
    """Tasks of the loss r^2 / (2 + 2 r^2) of residuals r, which is nonconvex and bounded."""

    def gradient(self, k, w):
        rows = self.model.rows(k)

        def slope(s):
            r = s - rows.y
            return rows.weight[..., None] * r / (1.0 + r**2) ** 2

        return self.model.pull(w, rows.X, slope)


def measure_nonconvex(quick, repeats):
    """(1/(m T)) sum over rounds and tasks of |grad f_k(w_k^t; w~^t)|^2, one thing varied."""
    base = {"m": 400, "E": 1, "T": 40, "epsilon": 2.0, "lam": 0.3}
    vary = {
        "m": (100, 200, 400, 800),
        "epsilon": (1.0, 2.0, 4.0, 8.0),
        "T": (10, 20, 40, 80, 160),
        "E": (1, 2, 5, 20),
        SAME_STEPS: (1, 2, 5, 20),
        "lam": (0.03, 0.1, 0.3, 1.0),
    }
    cells = []
    for name, values in vary.items():
        for value, private, seed in itertools.product(values, (True, False), range(repeats)):
            found = _stationarity(varied(base, name, value), private, seed, quick)
            cells.append((("algorithm-1", name, value, "yes" if private else "no"), found))
    return _with_slopes(cells)


def _stationarity(setting, private, seed, quick):
    m, n, d = setting["m"] if not quick else setting["m"] // 20, 20, 5
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n, d)) / np.sqrt(d)
    y = np.einsum("knd,kd->kn", X, 1.0 + 0.3 * rng.standard_normal((m, d)))
    y += 3.0 * (rng.random((m, n)) < 0.1)  # outlying rows, at which the loss is flat
    model = linear_model([Task(A, b[:, None]) for A, b in zip(X, y, strict=True)], 1)
    steps = GradientSteps(setting["E"], 0.5, setting["lam"])
    tasks = BoundedLoss(METHODS["algorithm-1"], model, None, steps, rng)
    plan = PMTLPlan(
        "algorithm-1",
        m,
        m,
        setting["T"],
        clip_norm=2.0,
        epsilon=None,
        delta=1e-3,
        noise_multiplier=noise_of(setting, m, m) if private else None,
        adjacency="replace-one",
    )
    found = []

    def watch(t, shared):
        own = tasks.own
        slope = tasks.gradient(np.arange(m), own) + setting["lam"] * (own - shared)
        found.append((slope**2).sum(axis=1).mean())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        run(curator(plan, model.start, watch), tasks, noise_source(seed))
    return np.mean(found)


def _gap(setting, private, seed, method, quick):
    m = setting["m"] if not quick else max(setting["m"] // 10, 4)
    n, d, lam = 20, 5, 1.0
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n, d)) / np.sqrt(d)
    y = np.einsum("knd,kd->kn", X, 1.0 + 0.3 * rng.standard_normal((m, d)))
    A, b = np.einsum("knd,kne->kde", X, X) / n, np.einsum("knd,kn->kd", X, y) / n
    R = np.linalg.inv(A + lam * np.eye(d))
    mean = np.linalg.solve(np.eye(d) - lam * R.mean(0), np.einsum("kde,ke->d", R, b) / m)
    best = np.einsum("kde,ke->kd", R, b + lam * mean)
    kept = []

    def watch(t, tasks, shared):
        kept[:] = [tasks.objective(tasks.own, shared) - tasks.objective(best, mean)]

    q = max(int(setting["q"] * m), 1)
    est = PublishedPMTL(
        method,
        lam=lam,
        epsilon=None,
        noise_multiplier=noise_of(setting, m, q) if private else None,
        delta=1e-3,
        clip_norm=2.0,
        n_rounds=setting["T"],
        n_sampled=q,
        local_steps=setting["E"],
        learning_rate=0.5,
        fit_intercept=False,
        tasks=range(m),
        random_state=seed,
        monitor=watch,
    )
    data = argparse.Namespace(train=(X.reshape(-1, d), y.ravel(), np.repeat(np.arange(m), n)))
    quietly(est, data)
    return float(abs(kept[0].mean()))


def measure_theorem_1(quick, repeats):
    """sigma of Theorem 1 over that of the exact accounting, q = m, and what it states for it."""
    rows = []
    for m, T, epsilon in itertools.product((205, 400, 515), (20, 100), (0.1, 0.4, 2.0, 4.0)):
        exact = PMTLPlan("algorithm-1", m, m, T, 1.0, epsilon, 1 / m, None, "replace-one")
        zero = PMTLPlan("algorithm-1", m, m, T, 1.0, epsilon, 1 / m, None, "zero-out")
        drawn = PMTLPlan("algorithm-1", m, 100, T, 1.0, epsilon, 1 / m, None, "replace-one")
        rows.append(
            {
                "m": m,
                "T": T,
                "epsilon": epsilon,
                "sigma, Theorem 1": f"{theorem_1_noise_std(1.0, T, m, epsilon, 1 / m):.4f}",
                "sigma, replace-one": f"{exact.noise_std:.4f}",
                "sigma, zero-out": f"{zero.noise_std:.4f}",
                "sigma, q = 100": f"{drawn.noise_std:.4f}",
            }
        )
    return rows


def measure_adjacency(quick, repeats):
    """Of q = m; "noise": sigma over gamma / m for T = 20 rounds."""
    for m, epsilon in itertools.product((139, 150), (*EPSILONS,)):
        mu = gdp_mu(epsilon, 1 / m)
        yield {
            "m": m,
            "epsilon, replace-one": epsilon,
            "epsilon, zero-out": f"{gdp_epsilon(mu / 2, 1 / m):.3f}",
            "noise, replace-one": f"{2 * math.sqrt(20) / mu:.1f}",
            "noise, zero-out": f"{math.sqrt(20) / mu:.1f}",
        }


# --------------------------------------------------------------------------------------- sparse
def measure_sparse(quick, repeats):
    """Seconds of a round on CSR rows: 10,000 words, 500 tags, 60 words a post, 100 posts a user."""
    d, c = (200, 10) if quick else (10_000, 500)
    rows = []
    many, few = (40, 4) if quick else (400, 20)
    for method in SHARING[:-1]:
        m = many if method in ("algorithm-1", "fedavg", "fedprox") else few
        rng = np.random.default_rng(0)
        n = 100 * m
        columns = np.minimum(rng.zipf(1.3, n * 60) - 1, d - 1)
        at = np.repeat(np.arange(n), 60), columns
        X = sparse.csr_matrix((np.full(n * 60, 60**-0.5), at), shape=(n, d))
        y = np.minimum(rng.zipf(1.5, n) - 1, c - 1)
        est = PublishedPMTLClassifier(
            method,
            epsilon=2.0,
            n_rounds=1,
            local_steps=1,
            tasks=range(m),
            classes=range(c),
            random_state=0,
        )
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            est.fit(X, y, task=np.repeat(np.arange(m), 100))
        kept = (METHODS[method].own or METHODS[method].split) * est.task_models_.size * 8 / 2**30
        rows.append(
            {
                "method": method,
                "m": m,
                "d": d,
                "C": c,
                "E": 1,
                "T": 1,
                "CPU seconds": f"{time.process_time() - start:.1f}",
                "GiB of kept models": f"{kept:.1f}",
            }
        )
        del est, X
    return rows


# ------------------------------------------------------------------------------------- networks
def digits(seed, quick=False, m=30, n=20):
    """Handwritten digits (8 x 8) of writers that are made by a shift, a shear and a thickness.

    Every writer has `n` images for training, 5 for validation and 10 for test, each image of the
    1,797 for one writer only.
    """
    from scipy import ndimage
    from sklearn.datasets import load_digits

    m = 6 if quick else min(m, 1797 // (n + 15))
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))[: m * (n + 15)].reshape(m, -1)
    parts = [[], [], []]
    for k, rows in enumerate(order):
        shear, shift = 0.5 * rng.uniform(-1, 1), rng.uniform(-1.5, 1.5, 2)
        power = np.exp(0.7 * rng.uniform(-1, 1))
        matrix = np.array([[1.0, shear], [0.0, 1.0]])
        centre = np.array([3.5, 3.5])
        offset = centre - matrix @ centre + shift
        made = [
            (ndimage.affine_transform(image.reshape(8, 8) / 16.0, matrix, offset, order=1) ** power)
            for image in images[rows]
        ]
        X = np.array(made).reshape(len(rows), -1)
        cuts = np.split(np.arange(len(rows)), [n, n + 5])
        for part, at in zip(parts, cuts, strict=True):
            part.append((X[at], labels[rows][at], np.full(len(at), k)))
    train, valid, test = (
        tuple(np.concatenate(column) for column in zip(*part, strict=True)) for part in parts
    )
    return Data(train, valid, test, classes=10, rate=0.5)


def network():
    """Two convolutional and two linear layers, as the paper's 4-layer CNN, on 8 x 8 pixels."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class SideBySide(ModuleModel):
    """`ModuleModel` whose tasks, here all of one length, take their steps together."""

    def blocks(self, tasks):
        return [np.asarray(tasks)]

    def rows(self, block, index=None):
        X, y = (np.stack([self.tasks[k][i] for k in block]) for i in (0, 1))
        return Block(X, y, np.full(y.shape[:2], 1.0 / y.shape[1]))

    def scores(self, W, X):
        return self._scored(W, X)[0].detach().double().numpy()

    def pull(self, W, X, slope):
        import torch

        s, back = self._scored(W, X)
        found = back(torch.as_tensor(slope(s.detach().double().numpy()), dtype=s.dtype))[0]
        return torch.cat([g.reshape(len(W), -1) for g in found.values()], dim=1).double().numpy()

    def pull_squares(self, W, X, slope):
        slopes = slope(self.scores(W, X))
        each = (self.pull(W, X[:, [i]], lambda s, i=i: slopes[:, [i]]) for i in range(X.shape[1]))
        return sum(g**2 for g in each)

    def _scored(self, W, X):
        """Scores (q, n, c) of networks W (q, size), and the function of what they pull."""
        import torch

        flat = torch.tensor(W, dtype=torch.float32)
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], dim=1)
        stacked = {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        X = torch.tensor(X, dtype=torch.float32)

        one = torch.func.vmap(partial(torch.func.functional_call, self.module))
        return torch.func.vjp(lambda parameters: one(parameters, X), stacked)


class NetworkRounds(PublishedPMTLTorchClassifier):
    """The estimator with `SideBySide`."""

    def _model(self, table, outputs):
        model = super()._model(table, outputs)
        return SideBySide(model.module, model.tasks, model.n_outputs)


NETWORK_NOISES = {None: 150, 12.0: 40, 30.0: 40}  # with the largest T; 40 of 12 are epsilon 2
NETWORK_CLIPS = (0.1, 0.3, 1.0)
NETWORK_CHECKPOINTS = (1, 3, 5, 8, 12, 18, 27, 40, 60, 80, 115, 150)


def measure_networks(quick, repeats):
    """Figure 3 and table 1 with a network from scratch: T, sigma and gamma by validation rows."""
    cells = [cell for seed in range(repeats) for cell in network_cells(seed, quick)]
    return list(summary(cells, ("method", "personalization", "epsilon", "metric")))


def network_cells(seed, quick):
    """Test accuracy and T of all methods on one draw, as of `summary`."""
    data = digits(seed, quick)

    def runs_of(method, noise, clip):
        made = []

        def watch(t, tasks, shared):
            if t in NETWORK_CHECKPOINTS:
                W = tasks.results(shared)
                row = {part: _right(data, tasks, W, part) for part in ("valid", "test")}
                made.append({"T": t, "tasks": tasks, "W": W.copy(), "shared": shared.copy(), **row})

        est = NetworkRounds(
            network,
            method,
            lam=0.1,
            epsilon=None,
            n_rounds=3 if quick else NETWORK_NOISES[noise],
            local_steps=STEPS,
            learning_rate=data.rate,
            tasks=data.tasks,
            classes=range(data.classes),
            random_state=seed,
            start_seed=seed,
            noise_multiplier=noise,
            clip_norm=clip,
            monitor=watch,
        )
        try:
            quietly(est, data)
        except ValueError:  # of the diverged, nothing is chosen
            return []
        for row in made:
            row["epsilon"] = est._plan_.epsilon_after(row["T"]) if noise else np.inf
        return made

    best = chosen(runs_of("local", None, 1.0), np.inf, 1.0)
    yield ("local", "none", np.inf, "accuracy"), best["test"]
    yield ("local", "none", np.inf, "T"), best["T"]
    for method in ("algorithm-1", "stateful", "fedavg", "fedprox"):
        rows = []
        for noise, clip in itertools.product(NETWORK_NOISES, NETWORK_CLIPS):
            # Without noise nothing is clipped, and Algorithm 1 is the update of the authors' code.
            if noise or (clip == 1.0 and method != "algorithm-1"):
                rows += runs_of(method, noise, clip)
        for epsilon in (0.1, 0.8, 2.0, np.inf):
            best = chosen(rows, epsilon, 1.0)
            if best is None:
                continue
            yield (method, "none", epsilon, "accuracy"), best["test"]
            yield (method, "none", epsilon, "T"), best["T"]
            for how in PERSONAL[1:]:
                strengths = (0.0,) if how == "finetune" else (0.001, 0.03, 0.3)
                pairs = []
                for steps, lam in itertools.product((5, 20), strengths):
                    W = _loaded(best, data, how, GradientSteps(steps, data.rate, lam))
                    pairs.append([_right(data, best["tasks"], W, p) for p in ("valid", "test")])
                yield (method, how, epsilon, "accuracy"), max(pairs, key=lambda pair: pair[0])[1]


def _right(data, tasks, W, part):
    """Accuracy of networks W on the "valid" or "test" rows, which lie task by task."""
    X, y, _ = getattr(data, part)
    s = tasks.model.scores(W, X.reshape(len(W), -1, X.shape[1]))
    return float((s.argmax(axis=2).ravel() == y).mean())


def _loaded(best, data, how, steps):
    """Fine-tuned models of a checkpoint; the rows are read from the data again."""
    tasks = best["tasks"]
    X, y, task = data.train
    eye = np.eye(data.classes)
    tasks.model.tasks = [Task(X[task == k], eye[y[task == k]]) for k in data.tasks]
    tasks.model.sizes = np.array([len(part.y) for part in tasks.model.tasks])
    return finetuned(tasks, best["W"].copy(), best["shared"], how, steps)


def wide(rows, column):
    """One row for all values of a column, each with "mean (sd)" of the draws in a column."""
    found = {}
    for row in rows:
        rest = [k for k in row if k not in (column, "mean", "sd", "slope", "wins")]
        same = found.setdefault(tuple(row[k] for k in rest), {k: row[k] for k in rest})
        same[f"{column} {row[column]}"] = row["mean"] + (f" ({row['sd']})" if row["sd"] else "")
        for name in ("slope", "wins"):
            if row.get(name, "") != "":
                same[name] = (
                    f"{same[name]} {row[name]}" if name == "wins" and name in same else (row[name])
                )
    longest_first = sorted(found.values(), key=len, reverse=True)
    names = list(dict.fromkeys(name for row in longest_first for name in row))
    names.sort(key=("slope", "wins").count)  # last
    return [{name: row.get(name, "") for name in names} for row in found.values()]


# The column whose values stand side by side in a file.
SIDE_BY_SIDE = {
    "sampling": "q/m",
    "rounds": "method",
    "epsilon": "epsilon",
    "clip": "clip_norm",
    "finetune": "personalization",
    "networks": "epsilon",
}
MEASURES = {  # name -> (function, draws)
    "theorem_1": (measure_theorem_1, 1),
    "adjacency": (measure_adjacency, 1),
    "theorems": (measure_theorems, 10),
    "nonconvex": (measure_nonconvex, 10),
    "sampling": (measure_sampling, 5),
    "rounds": (measure_rounds, 5),
    "epsilon": (measure_epsilon, 5),
    "clip": (measure_clip, 5),
    "finetune": (measure_finetune, 5),
    "sparse": (measure_sparse, 1),
    "networks": (measure_networks, 3),
}


def main(arguments=None):
    parser = command_line("papers.pmtl", __doc__, PAPERS, "small data, one draw", "by NAME")
    parser.add_argument("--only", nargs="*", choices=MEASURES, help="default: all of them")
    parser.add_argument("--leaf", type=Path, help="folder of JSON files, in place of the data")
    parser.add_argument("--words", type=Path, help="public list of words, of texts")
    parser.add_argument("--tags", type=Path, help="public list of tags, of texts")
    options = parser.parse_args(arguments)
    names = options.only or MEASURES
    if options.leaf:
        DATA.clear()
        DATA.update(leaf(options.leaf, options.words, options.tags))
        names = options.only or ("epsilon", "finetune", "rounds", "clip")
    done = {}
    for name in names:
        measure, repeats = MEASURES[name]
        repeats = options.repeats or (1 if options.quick else repeats)
        with threadpool_limits(1):
            rows = list(measure(options.quick, repeats))
        if name in SIDE_BY_SIDE:
            rows = wide(rows, SIDE_BY_SIDE[name])
        done[name] = write_rows(rows, tuple(rows[0]), options.output / f"pmtl_{name}.csv")
    return done


if __name__ == "__main__":
    main()
