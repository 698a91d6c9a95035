"""One fit, or one call, of each kind that `fits` and `calls` have not.

Targets, tables, relations and options lead through code of their own: a kind that no benchmark
has can become slower unseen. Every public estimator is in `fits` or here.
"""

import tempfile
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.linear_model import Ridge

import skpmtl

from .tables import cpu_seconds, generated, public, shared_rows

TASKS, ROWS, FEATURES = 200, 20, 10
NAMES = np.arange(TASKS)
START = {"coef": np.linspace(-1.0, 1.0, FEATURES).tolist(), "intercept": 0.5}
GROUPS = {"clusters": {k: k % 4 for k in range(TASKS)}}
RELATED = {"relation": {k: [k % 7, "abc"[k % 3]] for k in range(TASKS)}}
RING = sparse.csr_matrix(np.roll(np.eye(TASKS), 1, axis=1))
GRAPH = {"relation": RING + RING.T, "relation_rank": "all", "lam": 0.3}
UNSEEN = {"unseen_task": "mean", "uncertainty": True, "target_range": (-30.0, 30.0)}
EXACT = {"epsilon": None}
WEAK = {"epsilon": None, "alpha": 0.01}  # an objective with a penalty
# Estimator, settings in addition to epsilon=3, and the kind of table ("numbers" by default).
FITS = (
    ("PrivateMTL", {"loss": "poisson"}, "counts"),
    ("PrivateMTL", {"loss": "huber"}, "outlying rows"),
    ("PrivateMTL", {"structure": "groups"}),
    ("PrivateMTL", {"levels": "free"}),
    ("PrivateMTL", {"uncertainty": True}),
    ("PrivateMTL", {"init": START}),
    ("PrivateMTL", {}, "sparse"),
    ("PrivateMTL", {}, "wide"),
    ("PrivateMTL", {}, "weights"),
    ("PrivateMTL", {}, "mapping"),
    ("PrivateMTL", UNSEEN),
    ("MPMTLLowRank", UNSEEN),
    ("PrivateMTLClassifier", {}, "classes"),
    ("PrivateMTLClassifier", {}, "three classes"),
    ("PrivateMTLClassifier", {"class_weight": "balanced"}, "classes"),
    ("PrivateMTL", EXACT),
    ("PrivateMTLClassifier", EXACT, "classes"),
    ("MPMTLLowRank", {"loss": "poisson"}, "counts"),
    ("MPMTLLowRank", {"levels": "free"}),
    ("MPMTLLowRank", {**EXACT, "loss": "poisson"}, "counts"),
    ("MPMTLLowRank", RELATED),
    ("MPMTLLowRank", EXACT),
    ("MPMTLLowRank", {**WEAK, **RELATED}),
    ("MPMTLLowRank", WEAK, "sparse"),
    ("MPMTLLowRank", {**WEAK, "outliers": "tasks"}),
    ("MPMTLLowRank", {**EXACT, "loss": "huber"}),
    ("MPMTLLowRankClassifier", {}, "three classes"),
    ("MPMTLLowRankClassifier", WEAK, "three classes"),
    ("MPMTLLowRankClassifier", EXACT, "classes"),
    ("MPMTLLowRankCV", {"n_alphas": 10, "cv": 3}),
    ("MPMTLLowRankClassifierCV", {"n_alphas": 5, "cv": 2}, "classes"),
    ("MPMTLGroupSparse", {"loss": "huber"}),
    ("MPMTLGroupSparse", EXACT),
    ("MPMTLGroupSparse", {**WEAK, "loss": "poisson"}, "counts"),
    ("MPMTLGroupSparseClassifier", {}, "classes"),
    ("MPMTLGroupSparseClassifier", EXACT, "classes"),
    ("MPMTLGroupSparseCV", {"n_alphas": 10, "cv": 3}),
    ("MPMTLGroupSparseClassifierCV", {"n_alphas": 5, "cv": 2}, "classes"),
    ("PrivateMeanRegMTL", {"loss": "poisson"}, "counts"),
    ("PrivateMeanRegMTL", {"loss": "huber"}, "outlying rows"),
    ("PrivateMeanRegMTL", RELATED),
    ("PrivateMeanRegMTL", GROUPS),
    ("PrivateMeanRegMTL", {"standard_errors": True}),
    ("PrivateMeanRegMTL", {"uncertainty": True}),
    ("PrivateMeanRegMTL", UNSEEN),
    ("PrivateMeanRegMTL", {**EXACT, **GRAPH}),
    ("PrivateMeanRegMTL", EXACT),
    ("PrivateMeanRegMTL", {**EXACT, **RELATED, "lam": 1.0}),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}, "sparse"),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}, "wide"),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}, "weights"),
    ("PrivateMeanRegMTLClassifier", {**EXACT, "lam": 1.0}, "classes"),
    ("PrivateMeanRegMTLClassifier", {}, "three classes"),
    ("PrivateMeanRegMTLClassifier", {**EXACT, "lam": 1.0}, "three classes"),
    ("PrivateMeanRegMTLClassifier", {**EXACT, **GRAPH}, "classes"),
    ("LocalOnly", {}),
    ("LocalOnly", {"loss": "poisson"}, "counts"),
    ("LocalOnlyClassifier", {}, "classes"),
    ("DPMetaInit", {"privacy": "local"}),
    ("DPMetaInit", EXACT),
    ("DPMetaInit", RELATED),
    ("DPMetaInit", {"refine": "sgd"}),
    ("DPMetaInit", {"batches": "disjoint", "batch_size": 5}),
    ("DPMetaInitClassifier", {}, "classes"),
    ("DPMetaInitClassifier", {}, "three classes"),
    ("ClusteredMTL", {**EXACT, "n_clusters": 4}),
    ("ClusteredMTL", {**EXACT, "n_clusters": 4, "alpha": 1.0}),
    ("ClusteredMTL", {}),
    ("ClusteredMTLClassifier", {**EXACT, "n_clusters": 3}, "classes"),
    ("FedMTLClassifier", {"n_rounds": 5}, "clients"),
    ("FedMTLClassifier", {"n_rounds": 5, "aggregation": "similarity"}, "clients"),
    ("FedMTLRegressor", {"n_rounds": 5}, "numbers of clients"),
    ("PrivateMTL", {}, "long tasks"),
    ("MPMTLLowRank", {}, "long tasks"),
    ("PrivateMeanRegMTL", {**EXACT, "lam": 1.0}, "long tasks"),
    ("DPMetaInit", {}, "long tasks"),
    ("ClusteredMTL", {**EXACT, "n_clusters": 4}, "long tasks"),
)


def table(kind):
    """-> X, y, task; no ids of tasks where X is a mapping, or y has a column for each task"""
    if kind == "wide":
        return *shared_rows(TASKS // 2, 2 * ROWS, 2 * FEATURES), None
    sizes = (ROWS, FEATURES) if kind != "long tasks" else (4 * ROWS, 3 * FEATURES)
    X, y, task = generated("lowrank", TASKS, *sizes)
    if kind == "sparse":
        X = sparse.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0))
    elif kind == "mapping":
        X, y = ({k: part[task == k] for k in NAMES.tolist()} for part in (X, y))
        task = None
    elif kind == "classes":
        y = (y > 0).astype(int)
    elif kind == "three classes":
        y = np.digitize(y, [-1.0, 1.0])
    elif kind == "counts":
        y = np.random.default_rng(0).poisson(np.exp(np.clip(y, -2.0, 2.0)))
    elif kind == "outlying rows":
        y = y + np.where(np.arange(len(y)) % 10, 0.0, 30.0)
    return X, y, task


def _estimator(name, settings, kind):
    given = {**settings}
    if name.endswith("CV"):
        return public(name)(**given)
    if name.startswith("FedMTL"):
        return public(name)(**given, random_state=0)
    if not name.startswith("LocalOnly"):
        given.setdefault("epsilon", 3.0)
    if given.get("epsilon"):
        given["random_state"] = 0
        if kind != "wide":
            given["tasks"] = NAMES
        if name.endswith("Classifier"):
            given["classes"] = range(3 if kind == "three classes" else 2)
    return public(name)(**given)


def _label(name, settings, kind="numbers"):
    words = [kind] + [
        key if isinstance(value, (dict, list)) or sparse.issparse(value) else f"{key}={value}"
        for key, value in settings.items()
    ]
    return f"{name}: {' '.join(words)}"


KINDS = {_label(*case): case for case in FITS}


@cache
def fitted(name, kind="numbers", **settings):
    """-> model, X, y, task"""
    X, y, task = table(kind)
    return _estimator(name, settings, kind).fit(X, y, task=task), X, y, task


def _personalize(*case, **settings):
    model, X, y, task = fitted(*case, **settings)
    return partial(model.personalize, X, y, task=task + TASKS)


def _of_rows(method, *case, **settings):
    model, X, _, task = fitted(*case, **settings)
    return partial(getattr(model, method), X, task=task)


def _there_and_back():
    model, folder = fitted("PrivateMTL", levels="free")[0], tempfile.TemporaryDirectory()

    def both():
        path = Path(folder.name, "billboard.npz")
        skpmtl.save_billboard(model, path)
        return skpmtl.load_billboard(path)

    return both


def _export():
    model = fitted("PrivateMTL")[0]
    return lambda: [model.export_task(k) for k in range(0, TASKS, 10)]


def _metric(name, *case):
    model, X, y, task = fitted(*case)
    scores = model.decision_function(X, task=task) if len(case) > 1 else model.predict(X, task=task)
    given = (task,) if name == "average_auc" else ()
    return partial(getattr(skpmtl.metrics, name), y, scores, *given)


def _with_task(gaps=False):
    X, _, task = table("numbers")
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1 * gaps, np.nan, X)
    return np.column_stack([X, task])


def _transform(name, gaps=False):
    return partial(public(name)(task_feature=-1).fit_transform, _with_task(gaps))


def _path(penalty):
    return partial(skpmtl.mtl_path, *table("numbers"), n_alphas=20, penalty=penalty)


def _search():
    X, y, task = table("numbers")
    search = skpmtl.PrivateSearch(
        skpmtl.MPMTLLowRank(tasks=NAMES),
        {"levels": ["auto", "free"]},
        n_trials=2,
        epsilon=3.0,
        random_state=0,
    )
    return partial(search.fit, X, y, task=task)


def _clients():
    sizes = {"n_clients": 20, "n_samples": 40, "n_tasks": 4, "random_state": 0}
    return skpmtl.fedmtl.make_fedmtl_clients(**sizes)[:3]


def _of_clients(method):
    X, y, client = _clients()
    model = skpmtl.FedMTLClassifier(n_rounds=5, random_state=0).fit(X, y, client=client)
    if method == "personalize":
        return partial(model.personalize, X[:40], y[:40], client=np.full(40, 99))
    return partial(getattr(model, method), X, *[y] * (method == "score"), client=client)


def _new_tasks():
    """Of tasks without rows."""
    model, X, _, task = fitted("PrivateMTL", **UNSEEN)
    return partial(model.predict_interval, X, task=task + TASKS)


def _folds():
    X, y, task = table("numbers")
    splitter = skpmtl.TaskStratifiedKFold(5)
    return lambda: list(splitter.split(X, y, task))


def _stack():
    X, y, _ = table("mapping")
    return partial(skpmtl.stack_tasks, X, y)


CALLS = {
    "personalize numbers": partial(_personalize, "PrivateMTL"),
    "personalize counts": partial(_personalize, "PrivateMTL", "counts", loss="poisson"),
    "personalize classes": partial(_personalize, "PrivateMTLClassifier", "classes"),
    "personalize three classes": partial(_personalize, "PrivateMTLClassifier", "three classes"),
    "personalize an initialisation": partial(_personalize, "DPMetaInit"),
    "personalize an exact prior": partial(_personalize, "MPMTLLowRank", epsilon=None, alpha=0.01),
    "personalize with intervals": partial(_personalize, "PrivateMTL", uncertainty=True),
    "personalize a client": partial(_of_clients, "personalize"),
    "predict of clients": partial(_of_clients, "predict"),
    "score of clients": partial(_of_clients, "score"),
    "intervals of new tasks": _new_tasks,
    "TaskStratifiedKFold": _folds,
    "stack_tasks": _stack,
    "frame of coefficients": lambda: fitted("PrivateMTL")[0].coef_frame,
    "intervals": partial(_of_rows, "predict_interval", "PrivateMTL", uncertainty=True),
    "probabilities": partial(_of_rows, "predict_proba", "PrivateMTLClassifier", "three classes"),
    "predict counts": partial(_of_rows, "predict", "PrivateMTL", "counts", loss="poisson"),
    "predict sparse": partial(_of_rows, "predict", "PrivateMTL", "sparse"),
    "billboard there and back": _there_and_back,
    "export tasks": _export,
    "nmse": partial(_metric, "nmse", "PrivateMTL"),
    "average_auc": partial(_metric, "average_auc", "PrivateMTLClassifier", "classes"),
    "TaskScaler": partial(_transform, "TaskScaler"),
    "TaskImputer": partial(_transform, "TaskImputer", gaps=True),
    "PerTask": lambda: partial(
        skpmtl.PerTask(Ridge(), task_feature=-1).fit, _with_task(), table("numbers")[1]
    ),
    "PrivateSearch": _search,
    "mtl_path, trace": partial(_path, "trace"),
    "mtl_path, l21": partial(_path, "l21"),
    "plan": lambda: partial(skpmtl.plan, 50, 20, 5, epsilons=(1.0, 3.0), n_repeats=2),
}


class _Kind:
    timer = staticmethod(cpu_seconds)
    sample_time = 0.05


class Calls(_Kind):
    params, param_names = [list(CALLS)], ["call"]

    def setup(self, name):
        warnings.simplefilter("ignore")
        self.call = CALLS[name]()

    def time_call(self, name):
        self.call()


class Fits(_Kind):
    params, param_names = [list(KINDS)], ["kind"]

    def setup(self, label):
        warnings.simplefilter("ignore")
        name, settings, kind = (*KINDS[label], "numbers")[:3]
        self.model = _estimator(name, settings, kind)
        if "clients" in kind:
            X, y, client = _clients()
            y = y if kind == "clients" else np.where(np.isnan(y), y, y + X[:, :1])
            self.fit = partial(self.model.fit, X, y, client=client)
            return
        X, y, task = table(kind)
        given = {} if task is None else {"task": task}
        if kind == "weights":
            given["sample_weight"] = np.linspace(0.5, 1.0, len(y))
        self.fit = partial(self.model.fit, X, y, **given)

    def time_fit(self, label):
        self.fit()
