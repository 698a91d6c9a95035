"""Parameters out of range, and those that do not go together, for all estimators in one table."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skpmtl import (
    ClusteredMTL,
    DPMetaInit,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateMeanRegMTL,
    PrivateMTL,
    PrivateMTLClassifier,
)
from skpmtl.reproduction import LocalOnly
from tests.helpers.data import about_one_model

M, D = 6, 3
X, Y, TASK = about_one_model(M, 8, D)
LABELS = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3]))
RING = sparse.csr_matrix(np.roll(np.eye(M), 1, axis=1) + np.roll(np.eye(M), -1, axis=1))
FACTS = {task: [task % 3, task % 2] for task in range(M)}
DISTRICTS, ABOVE = {task: "ab"[task % 2] for task in range(M)}, {"district": "above"}
EXACT = {"epsilon": None}
LOW, MEAN, MTL = MPMTLLowRank(), PrivateMeanRegMTL(), PrivateMTL()
SEEN = {"unseen_task": "mean"}
ON_GRAPH = PrivateMeanRegMTL(0.5, relation=RING, relation_rank="all", **EXACT)

# (estimator, what is changed of a fit that works, what the error says)
BAD = [
    # Of one parameter.
    *(
        (est, {"epsilon": 0}, "epsilon=0 must be positive.*epsilon=None")
        for est in (LOW, MEAN, MTL)
    ),
    *((est, {"epsilon": float("nan")}, "epsilon=nan must be") for est in (LOW, MEAN, MTL)),
    *((est, {"epsilon": -1.5}, "epsilon=-1.5 must be positive") for est in (MTL, DPMetaInit())),
    (MTL, {"epsilon": "big"}, "'epsilon' parameter .* Got 'big'"),
    (MTL, {"fit_intercept": "yes"}, "'fit_intercept'"),
    (MTL, {"random_state": "seed"}, "'random_state'"),
    *((est, {"delta": 1.0}, "'delta'") for est in (LOW, MEAN, MTL, DPMetaInit())),
    *((est, {"delta": float("nan")}, "Got nan") for est in (MTL, DPMetaInit())),
    *((est, {"adjacency": "add-remove"}, "'adjacency'") for est in (LOW, MEAN, MTL, DPMetaInit())),
    *((est, {"unseen_task": "ignore"}, "'unseen_task'") for est in (LOW, MEAN, MTL, DPMetaInit())),
    *(
        (DPMetaInit(), {name: value}, f"'{name}'")
        for name, value in {
            "delta": 0.0,
            "privacy": "global",
            "clip_norm": 0.0,
            "inner_steps": 0,
            "inner_learning_rate": -1.0,
            "meta_learning_rate": 0.0,
            "tasks_per_round": 0,
            "visits": 0,
            "group_size": 0,
            "max_rows_per_unit": 0,
            "refine": "ridge",
            "refine_steps": -1,
            "refine_learning_rate": 0.0,
        }.items()
    ),
    *(
        (DPMetaInit(), {"feature_range": given}, "feature_range= must be .low, high., finite")
        for given in (3.0, (1, 0), (0, np.inf), ([0, 0], [1, 1]), ("a", "b"))
    ),
    (DPMetaInit(), {"tasks_per_round": "some"}, "'tasks_per_round'"),
    (DPMetaInit(), {"batches": "shuffle", "batch_size": 4}, "'batches'"),
    (DPMetaInit(), {"batches": "disjoint", "batch_size": 0}, "'batch_size'"),
    (DPMetaInit(), {"batch_size": 8}, 'batch_size=8.*"full"'),
    *((DPMetaInit(), {"batches": how}, "needs a batch_size") for how in ("disjoint", "poisson")),
    *((est, {"loss": "hinge"}, "'loss'") for est in (LOW, MEAN, MTL, LocalOnly())),
    *((est, {"target_range": (1.0, 1.0)}, "target_range") for est in (LOW, MEAN, MTL)),
    *((est, {"target_range": (0.0, np.inf)}, "target_range") for est in (LOW, MEAN, MTL)),
    *((est, {"target_range": "ab"}, "target_range") for est in (LOW, MEAN, MTL)),
    *(
        (LOW, {name: value}, name)
        for name, value in (
            ("alpha", -1.0),
            ("tol", 0.0),
            ("algorithm", "sgd"),
            ("outliers", "rows"),
        )
    ),
    *(
        (MEAN, {name: value}, f"'{name}'")
        for name, value in (
            ("lam", 0.0),
            ("lam", "best"),
            ("clusters", [0, 1]),
            ("standard_errors", "yes"),
            ("levels", "none"),
        )
    ),
    *(
        (MTL, {"structure": value}, "structure")
        for value in ([], ["sparse", "trace"], ["auto", "mean"], "l1", "group")
    ),
    *((ClusteredMTL(), {name: 0, **EXACT}, name) for name in ("alpha", "ridge", "n_clusters")),
    # Of two that contradict each other.
    (LOW, {"alpha": 0.0, **EXACT}, "pass a positive alpha or ridge"),
    (LOW, {"algorithm": "proximal"}, "skpmtl.reproduction.PublishedMPMTL"),
    (LOW, {"delta": 0.0}, 'PublishedMPMTL with mechanism="wishart" and delta=0'),
    (LOW, {"outliers": "entries"}, "epsilon=None"),
    (LOW, {"outliers": "tasks", "alpha": 0.0, "ridge": 1.0, **EXACT}, "positive alpha"),
    (LOW, {"outliers": "tasks", "outlier_alpha": 0.0, **EXACT}, "outlier_alpha"),
    *(
        (
            LOW,
            {"relation": FACTS, "alpha": 0.1, "algorithm": "proximal", **EXACT, **other},
            "with a positive alpha",
        )
        for other in ({"ridge": 0.1}, {"alpha": 0.0})
    ),
    *(
        (est, {"relation_rank": 3}, "relation_rank=3 has no effect")
        for est in (LOW, MEAN, DPMetaInit())
    ),
    *((est, {"relation": {0: 1.0}}, "without a row in relation=") for est in (LOW, MEAN)),
    (MTL, {"relation": dict.fromkeys(range(M), np.nan)}, "missing .NaN or infinite."),
    (MTL, {"relation": {}}, "has no tasks"),
    (MEAN, {"relation": FACTS, "clusters": dict.fromkeys(range(M), 0)}, "one of clusters= and rel"),
    (MEAN, {"clusters": {k: 0 for k in range(M) if k != 3}}, r"without a cluster: \[3\]"),
    (MEAN, {"standard_errors": True, "loss": "poisson"}, 'they are of loss="squared"'),
    (MEAN, {"levels": "pooled"}, "'levels'"),
    *(
        (est, {name: value}, f"{name}=.* number as {strength}.*leave {name} at")
        for est, strength, options in (
            (MEAN, "lam", {"lam": 0.3, "ridge": 0.3, "l1": 0.1, "task_weight": "samples"}),
            (LOW, "alpha", {"alpha": 0.3, "ridge": 0.3, "outliers": "tasks", "outlier_alpha": 1.0}),
            (ClusteredMTL(), "alpha", {"alpha": 0.3, "ridge": 0.3, "task_weight": "samples"}),
        )
        for name, value in options.items()
    ),
    (LOW, {"ridge": 0.3, **EXACT}, "leave ridge at 0.0"),
    *((est, {"relation": FACTS, "loss": "poisson"}, "belong to exact fits") for est in (MEAN, MTL)),
    (ON_GRAPH, {"epsilon": 1.0}, "Leave lam at"),
    (ON_GRAPH, {"lam": "auto"}, "number as lam"),
    (ON_GRAPH, {"relation": None}, "no effect without relation"),
    (ON_GRAPH, {"clusters": dict.fromkeys(range(M), "a")}, "one of clusters= and relation="),
    (ON_GRAPH, {"relation": -np.eye(M)}, "positive semi-definite"),
    (ON_GRAPH, {"relation": np.ones((M, 2))}, "shape"),
    (ON_GRAPH, {"relation_rank": "most"}, "relation_rank"),
    (MTL, {"delta": 0}, "'delta'"),
    (MTL, {"levels": "free", **SEEN}, 'pass levels="auto"'),
    (PrivateMTLClassifier(), {"structure": "groups", "classes": range(3)}, "two classes"),
    (ClusteredMTL(13), {"epsilon": 1.0}, "at most 12"),
    (ClusteredMTL(13), EXACT, 'alpha="auto"'),
    (ClusteredMTL("auto"), {"alpha": 1.0, **EXACT}, 'needs alpha="auto"'),
    (ClusteredMTL(2), {"alpha": 1.0, "loss": "huber", **EXACT}, 'Leave alpha at "auto"'),
    (ClusteredMTL(2), {"epsilon": 1.0, "delta": 0.0}, "delta"),
    # Who adds up what tasks send.
    *((MTL, {"curator": given}, "'curator' parameter") for given in ("server", 3)),
    *(
        (MTL, {"curator": given}, "P from 2 to 16")
        for given in (("servers", 1), ("servers", 17), ("servers", 2.5), ("servers",))
    ),
    (DPMetaInit(), {"curator": ["sites", 3, 2]}, "P from 2 to 16"),
    (LOW, {"curator": "servers", **EXACT}, "pass a finite epsilon"),
    (DPMetaInit(), {"curator": "servers", "privacy": None}, "of a private fit"),
    # Factors.
    *(
        (MTL, {"factors": factors, "relation": relation}, words)
        for factors, relation, words in (
            ({"district": "over"}, DISTRICTS, 'must be "above"'),
            (ABOVE, None, "private rows.*relation="),
            (ABOVE, {t: {"region": "a"} for t in range(M)}, "no column 'district'"),
            (ABOVE, {t: "a" for t in range(M - 1)}, r"without a row in relation=: \[5\]"),
            ({**ABOVE, "region": "above"}, DISTRICTS, "one factor"),
        )
    ),
    # Uncertainty that is not derived.
    *(
        (est, {"uncertainty": True, **given}, f"uncertainty=True, but .*{words}")
        for est, given, words in (
            (LOW, {"alpha": 0.1, **EXACT}, 'leave alpha at "auto"'),
            (DPMetaInit(), {"refine": "sgd"}, 'refine=.sgd.*refine="prox"'),
            (ON_GRAPH, {}, 'take lam="auto"'),
            (MTL, {"loss": "poisson"}, 'loss="squared"'),
            (MTL, {"loss": "huber"}, 'loss="squared"'),
        )
    ),
    # Losses.
    *(
        (LOW, {"loss": loss, "alpha": 0.1, "outliers": "tasks", **EXACT}, "loss=")
        for loss in ("poisson", "huber")
    ),
    (LOW, {"loss": "poisson", "target_range": (0.0, 10.0)}, "positive"),
    (LOW, {"loss": "huber", "alpha": 0.1, **EXACT}, 'leave alpha at "auto"'),
    (MEAN, {"loss": "huber", "lam": 0.1, **EXACT}, 'lam="auto"'),
    # Starts.
    *(
        (est, {"init": np.ones(D + 1)}, r"\(4,\), .* has \(3,\), without the task")
        for est in (LOW, MEAN, MTL, DPMetaInit())
    ),
    (MEAN, {"init": np.ones((2, D))}, r"the shape \(2, 3\)"),
    (MEAN, {"init": np.ones((2, 2, D))}, r"init= takes coefficients, .*\(2, 2, 3\)"),
    (MEAN, {"init": np.full(D, np.nan)}, "must be finite"),
    (MEAN, {"init": "zero"}, "init= takes coefficients"),
    (MEAN, {"init": Ridge}, "is a class: pass a fitted model"),
    (MEAN, {"init": Ridge()}, "Ridge without coef_: it is not fitted"),
    (MEAN, {"init": make_pipeline(StandardScaler(), Ridge())}, "those of transformed features"),
    (MEAN, {"init": {"weights": np.ones(D)}}, "this mapping has the keys .'weights'"),
    (MEAN, {"init": {"coef": ["a"] * D}}, "its coefficients are no numbers"),
    (MEAN, {"init": {"coef": np.ones(D), "intercept": [1.0, 2.0]}}, "one intercept for each"),
    (
        MEAN,
        {"init": {"coef": np.ones(D), "intercept": 1.0}, "fit_intercept": False},
        "set fit_intercept=True, or pass",
    ),
    (MEAN, {"init": {"coef": np.ones(D), "classes": [0, 1]}}, "targets are numbers here"),
    # Classes.
    *(
        (MPMTLLowRankClassifier(), {"classes": classes}, words)
        for classes, words in (
            ([1], "two labels or more"),
            ({}, "two labels or more"),
            ([0, None], "missing"),
            ([0.0, np.nan], "missing"),
            ([1, "a"], "mix"),
            ([("a", 1), ("b", 2)], "strings, numbers"),
            (["a", "a\0"], "NUL"),
        )
    ),
    *(
        (MPMTLLowRankClassifier(), {"class_weight": given, **EXACT}, words)
        for given, words in (
            ({5: 0.5}, "not among the classes"),
            *(({1: bad}, "finite, at least 0") for bad in (-0.5, np.nan, "much")),
            ("even", "class_weight"),
        )
    ),
    *(
        (MPMTLLowRankClassifier(), {"init": init}, words)
        for init, words in (
            ({"coef": np.ones((2, D)), "classes": [0, 1]}, "knows nothing of the class"),
            ({"coef": np.ones((3, D)), "classes": [0, 1]}, "3 rows of coefficients for 2 classes"),
            ({"coef": np.ones((3, D)), "classes": ["0", "1", "2"]}, "labels of the same type"),
            (np.ones(D), r"has \(3, 3\)"),
        )
    ),
]


def told(case):
    est, change, _ = case
    return f"{type(est).__name__}-{','.join(change)}"


@pytest.mark.parametrize("est, change, words", BAD, ids=map(told, BAD))
def test_fit_refuses_and_leaves_nothing(est, change, words):
    """A fit that worked before is gone, too."""
    classes = {"classes": range(3)} if est._classification else {}
    y = LABELS if classes else np.abs(np.rint(Y)) if change.get("loss") == "poisson" else Y
    est = clone(est).set_params(tasks=range(M), **classes)
    if not isinstance(est, ClusteredMTL | PrivateMTLClassifier):
        est.fit(X, y, task=TASK)
    est.set_params(**change)
    with pytest.raises((TypeError, ValueError), match=f"(?i){words}"):
        est.fit(X, y, task=TASK)
    assert not [name for name in vars(est) if name.endswith("_") and not name.startswith("_")]
