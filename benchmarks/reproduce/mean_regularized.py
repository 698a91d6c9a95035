"""Private mean-regularised learning beside its baselines, with every personalisation.

    python -m benchmarks.reproduce.mean_regularized [--quick] [--repeats R] [--output FILE.csv]
                                                    [--jobs J] [--only TEXT]
                                                    [--leaf FOLDER [--words FILE] [--tags FILE]]

Data: School with 80 % of each school's pupils for training, School with 10 pupils a school, and
Synthetic(.5, .5). Task-level privacy, zero-out adjacency, delta = 1 / n_tasks as in the
paper. The score is nMSE (less is better) or accuracy. Beside the CSV there are pictures of the
same name: scores against epsilon, and ``..._personalization.png``.
`mean_regularized_figures` varies the strength lam, tasks, rows, heterogeneity and accounting.

With ``--leaf`` the data are JSON of the LEAF benchmark (`skpmtl.datasets.load_leaf`): the folders
``train`` and ``test`` of FOLDER, or its files, 70 % of the rows of each user for training. Numbers
are taken for FEMNIST, whose paper is 1 and ink 0, and turned around; texts (StackOverflow) need
the public words to count, one a line, and for posts with several tags the public list of those
that count. Rows get unit length and a constant feature. Sparse rows leave out the
methods that keep a dense model per task.

One rule gives the hyper-parameters of every method, data set and epsilon; it reads public
numbers only:

- ``clip_norm`` = 1.9 s / r with r the typical length of a row, and s the scale of the scores: a
  fifth of the public range of the target for squared loss, the root of the number of classes
  for the logistic loss;
- everything else is the estimators' default: ``lam="auto"`` (a task's own choice), the
  number of rounds and the server's step by the public rules of epsilon, the noise-aware
  personalisation. "nothing set" is `PrivateMeanRegMTL` with ``clip_norm="auto"`` too.

Tasks have no local intercept here: a column of ones is one of the features, so that methods with
one global model are not helped by local intercepts.
"""

import warnings
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from skpmtl.datasets.leaf import load_leaf
from skpmtl.datasets.school import load_school
from skpmtl.metrics import nmse
from skpmtl.privacy import PrivacyLeakWarning
from skpmtl.reproduction import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
    PublishedMeanRegMTL,
    PublishedMeanRegMTLClassifier,
)

from ..run import write_rows
from . import computed, script
from .mean_regularized_plots import against_epsilon, personalizations

FIELDS = ("data", "metric", "epsilon", "method", "personalization", "mean", "sd", "repeats")
EPSILONS = (0.1, 0.4, 0.8, 2.0, 4.0, None)
METHODS = {
    "local only": (LocalOnly, LocalOnlyClassifier, {}),
    "fedavg": (PrivateFedAvg, PrivateFedAvgClassifier, {}),
    "fedprox": (PrivateFedProx, PrivateFedProxClassifier, {}),
    "ppsgd": (PPSGD, PPSGDClassifier, {}),
    "algorithm-1": (PublishedMeanRegMTL, PublishedMeanRegMTLClassifier, {"update": "algorithm-1"}),
    "stateful": (PublishedMeanRegMTL, PublishedMeanRegMTLClassifier, {"update": "stateful"}),
    "prox": (PublishedMeanRegMTL, PublishedMeanRegMTLClassifier, {}),
    "nothing set": (PublishedMeanRegMTL, PublishedMeanRegMTLClassifier, {"clip_norm": "auto"}),
}
DENSE = ("ppsgd", "algorithm-1", "stateful")  # keep a dense model per task
VARIANTS = ("none", "mean-reg", "finetune", "symmetrized-kl", "ewc")


def clip_norm(row_length, score_scale):
    return 1.9 * score_scale / row_length


def school(seed, n_train=None, quick=False):
    """-> training X, y, task, test X, y, task, clip_norm; targets on [0, 1].

    80/20: features standardised by every school alone. 10 pupils: 0/1 features and shares as
    they are, divided by sqrt(8) (public).
    """
    bunch = load_school()
    X, task = bunch.data, bunch.task
    y = (bunch.target - 1.0) / 69.0
    rng = np.random.default_rng(seed)
    train, test = [], []
    for name in np.unique(task)[: 30 if quick else None]:
        rows = rng.permutation(np.flatnonzero(task == name))
        cut = n_train or int(0.8 * len(rows))
        A, B = X[rows[:cut]].astype(float), X[rows[cut:]].astype(float)
        if n_train:
            A[:, 3:5] /= 100.0
            B[:, 3:5] /= 100.0
            A, B = A / np.sqrt(8.0), B / np.sqrt(8.0)
        else:
            mean, sd = A[:, :-1].mean(axis=0), A[:, :-1].std(axis=0)
            sd[sd == 0] = 1.0
            A = np.column_stack([(A[:, :-1] - mean) / sd, np.ones(len(A))])
            B = np.column_stack([(B[:, :-1] - mean) / sd, np.ones(len(B))])
        train.append((A, y[rows[:cut]], np.full(cut, name)))
        test.append((B, y[rows[cut:]], np.full(len(rows) - cut, name)))
    length = 1.0 if n_train else np.sqrt(X.shape[1])
    parts = [np.concatenate(column) for column in zip(*train, strict=True)]
    parts += [np.concatenate(column) for column in zip(*test, strict=True)]
    return (*parts, clip_norm(length, 0.2))


def synthetic(seed, m=200, d=60, C=10, spread=0.5, shift=0.5, median=40, n_test=50, quick=False):
    """Synthetic(s, b): W_k = W_0 + s N(0, 1), x ~ N(v_k, diag(j^-1.2)), v_k = sqrt(b) N(0, 1)
    j^-.6, y = argmax(W_k x + .3 Gumbel), log-normal sizes."""
    if quick:
        m, d, C, n_test = 40, 12, 4, 20
    rng = np.random.default_rng(seed)
    W0 = rng.standard_normal((d + 1, C))
    S = np.arange(1, d + 1) ** -0.6
    sizes = np.clip(rng.lognormal(np.log(median), 0.7, m).astype(int), 10, 10 * median)
    train, test = [], []
    for k, n in enumerate(sizes):
        W = W0 + spread * rng.standard_normal((d + 1, C))
        v = np.sqrt(shift) * rng.standard_normal(d) * S
        X = np.column_stack([v + S * rng.standard_normal((n + n_test, d)), np.ones(n + n_test)])
        y = (X @ W + 0.3 * rng.gumbel(size=(len(X), C))).argmax(axis=1)
        train.append((X[:n], y[:n], np.full(n, k)))
        test.append((X[n:], y[n:], np.full(n_test, k)))
    length = np.sqrt(1.0 + (1.0 + shift) * (S**2).sum())
    parts = [np.concatenate(column) for column in zip(*train, strict=True)]
    parts += [np.concatenate(column) for column in zip(*test, strict=True)]
    return (*parts, clip_norm(length, np.sqrt(C)))


def leaf(folder, words=None, tags=None):
    """-> data set by seed, as `school`; `words` and `tags` are files with one word a line."""
    lists = [path and path.read_text(encoding="utf-8").split() for path in (words, tags)]
    how = dict(zip(("vocabulary", "labels"), lists, strict=True))
    fixed = (folder / "train").is_dir()
    bunch = load_leaf(folder / "train" if fixed else folder, **how)
    rows = _unit(bunch.data), bunch.target, bunch.task
    bound = clip_norm(np.sqrt(2.0), np.sqrt(len(np.unique(bunch.target))))
    if fixed:
        bunch = load_leaf(folder / "test", **how)
        known = np.isin(bunch.task, rows[2])
        test = [part[known] for part in (_unit(bunch.data), bunch.target, bunch.task)]
        return lambda seed, quick=False: (*rows, *test, bound)

    def make(seed, quick=False):
        order = np.random.default_rng(seed).permutation(len(rows[2]))
        order = order[np.argsort(rows[2][order], kind="stable")]
        _, starts, sizes = np.unique(rows[2][order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(starts, sizes)
        train = place < np.maximum(0.7 * np.repeat(sizes, sizes), 1)
        parts = [part[order[train]] for part in rows] + [part[order[~train]] for part in rows]
        return (*parts, bound)

    return make


def _unit(X):
    """Rows of length sqrt(2), a constant feature included."""
    if sparse.issparse(X):
        return sparse.hstack([normalize(X), np.ones((X.shape[0], 1))], format="csr")
    return np.column_stack([normalize(1.0 - X), np.ones(len(X))])


DATA = {
    "School 80/20": (school, "nMSE", 10),
    "School 10-shot": (lambda seed, quick=False: school(seed, 10, quick), "nMSE", 10),
    "Synthetic(.5,.5)": (synthetic, "accuracy", 5),
}


def scores(name, variants, epsilon, data, seed, classification, **parameters):
    """Score of the test rows for every personalisation after one fit: the releases are the same,
    and personalisation is free."""
    X, y, task, X_test, y_test, task_test, bound = data
    regressor, classifier, extra = METHODS[name]
    tasks = np.unique(task)
    est = (classifier if classification else regressor)(
        epsilon=epsilon,
        delta=1.0 / len(tasks),
        adjacency="zero-out",
        fit_intercept=False,
        personalization=variants[0],
        tasks=tasks,
        random_state=seed,
        **{"clip_norm": bound, **extra, **parameters},
    )
    if classification:
        est.set_params(classes=np.unique(y))
    with warnings.catch_warnings():  # delta = 1/m is the paper's, and the noise is seeded
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        est.fit(X, y, task=task)
    found = []
    for variant in variants:
        if variant != variants[0]:
            est.billboard_.personalization = variant
            est.personalize(X, y, task=task)
        predicted = est.predict(X_test, task=task_test)
        right = np.mean(predicted == y_test) if classification else nmse(y_test, predicted)
        found.append(float(right))
    return found


def cases(quick):
    """(method, personalisations, epsilon) of the table; local learning has one row."""
    yield "local only", ("mean-reg",), None
    for epsilon in (0.4, None) if quick else EPSILONS:
        for name in METHODS:
            if name == "nothing set":
                if epsilon is not None:
                    yield name, ("mean-reg",), epsilon
            elif name == "prox" and epsilon is None:
                yield name, ("mean-reg",), None  # the exact optimum is personalised already
            elif name != "local only":
                yield name, ("none", "mean-reg") if quick else VARIANTS, epsilon


def measure(quick=False, repeats=None, only=None, problems=DATA):
    """Cells of the table, as of `computed`."""
    for label, (make, metric, default) in problems.items():
        if only and only not in label:
            continue
        count = repeats or (1 if quick else default)
        sets = [make(seed, quick=quick) for seed in range(count)]
        for name, variants, epsilon in cases(quick):
            if sparse.issparse(sets[0][0]) and name in DENSE:
                continue
            calls = [
                (scores, name, variants, epsilon, data, seed, metric == "accuracy")
                for seed, data in enumerate(sets)
            ]
            about = {
                "data": label,
                "metric": metric,
                "method": name,
                "epsilon": "inf" if epsilon is None else epsilon,
            }
            yield calls, partial(entries, about, variants)


def entries(about, variants, table):
    """Rows of one fit, from its scores by draw and personalisation."""
    count = len(table)
    for variant, column in zip(variants, np.transpose(table), strict=True):
        yield {
            **about,
            "personalization": variant,
            "mean": round(float(np.mean(column)), 4),
            "sd": round(float(np.std(column, ddof=1)), 4) if count > 1 else "",
            "repeats": count,
        }


def main(arguments=None):
    parser = script(
        "mean_regularized",
        __doc__,
        "small data, two personalisations",
        "10 splits or 5 sets",
        "mean_regularized.csv",
        jobs=True,
    )
    parser.add_argument("--only", default=None, help="part of the name of a data set")
    parser.add_argument("--leaf", type=Path, help="folder with JSON of LEAF, instead of the others")
    parser.add_argument("--words", type=Path, help="LEAF: public vocabulary, one word a line")
    parser.add_argument("--tags", type=Path, help="LEAF: public labels, one a line")
    options = parser.parse_args(arguments)
    problems, path = DATA, options.output
    if options.leaf:
        make = leaf(options.leaf, options.words, options.tags)
        problems = {f"LEAF, {options.leaf.resolve().name}": (make, "accuracy", 3)}
        if path == parser.get_default("output"):
            path = path.with_name("mean_regularized_leaf.csv")
    with threadpool_limits(1):
        cells = measure(options.quick, options.repeats, options.only, problems)
        rows = write_rows(computed(cells, options.jobs), FIELDS, path)
    against_epsilon(rows).savefig(path.with_suffix(".png"), dpi=100)
    personalizations(rows).savefig(path.with_name(f"{path.stem}_personalization.png"), dpi=100)
    return rows


if __name__ == "__main__":
    main()
