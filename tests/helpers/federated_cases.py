"""Small studies, their rows, and the same fits in one process, for the tests of federation."""

import numpy as np
import pytest

import tests.helpers.linear_rounds  # noqa: F401  (which a study names)
from skpmtl.federated.study import Study
from tests.helpers.data import even_tasks

M, N, D = 9, 8, 3
PARTS = ([1, 4, 6], [0, 2, 8], [3, 5, 7])
CASES = {
    "loop": ("PrivateMTL", {"epsilon": 60.0}),
    "loop, errors": ("PrivateMTL", {"epsilon": 1e4, "standard_errors": True}),
    "groups": ("ClusteredMTL", {"epsilon": 60.0}),
    "loop, labels": ("PrivateMTLClassifier", {"epsilon": 9.0, "structure": "sparse"}),
    "loop, start": (
        "PrivateMTL",
        {
            "epsilon": 60.0,
            "init": {"coef": [1.0, -0.5, 0.25], "intercept": 0.5},
            "unseen_task": "mean",
            "target_range": [-5.0, 5.0],
        },
    ),
    "low rank": ("MPMTLLowRank", {"epsilon": 60.0}),
    "low rank, mean": ("MPMTLLowRank", {"epsilon": 60.0, "unseen_task": "mean"}),
    "sparse": ("MPMTLGroupSparse", {"epsilon": 60.0}),
    "labels": ("MPMTLLowRankClassifier", {"epsilon": 60.0}),
    "low rank, covariates": (
        "MPMTLLowRank",
        {"epsilon": 60.0, "relation": {str(k): [k % 4] for k in range(M)}, "unseen_task": "mean"},
    ),
    "rounds": ("LinearRounds", {"clip_norm": 1.0, "n_rounds": 4}),
    "mean": ("PrivateMeanRegMTL", {"epsilon": 60.0}),
    "intercept": ("PrivateMeanRegMTL", {"epsilon": 60.0, "unseen_task": "mean"}),
    "clusters": (
        "PrivateMeanRegMTL",
        {"epsilon": 60.0, "clusters": {str(k): "ab"[k % 2] for k in range(M)}},
    ),
    "relation": (
        "PrivateMeanRegMTL",
        {"epsilon": 60.0, "relation": {str(k): [k % 4] for k in range(M)}},
    ),
    "classes": ("PrivateMeanRegMTLClassifier", {"epsilon": 60.0}),
    "meta": ("DPMetaInit", {"epsilon": 5.0, "visits": 2, "tasks_per_round": 4}),
    "meta, units": (
        "DPMetaInit",
        {"epsilon": 5.0, "visits": 2, "tasks_per_round": 4, "feature_range": [-2.0, 2.0]},
    ),
    "meta, start": (
        "DPMetaInitClassifier",
        {"epsilon": 5.0, "init": {"coef": [1.0, -0.5, 0.25], "classes": [0, 1]}},
    ),
    "meta, local": ("DPMetaInit", {"epsilon": 50.0, "privacy": "local", "tasks_per_round": 5}),
    "meta, covariates": (
        "DPMetaInit",
        {"epsilon": 1e4, "relation": {str(k): [k % 4] for k in range(M)}},
    ),
    "meta, labels": ("DPMetaInitClassifier", {"epsilon": 5.0}),
}


def and_slow(few, more):
    """Parameters of a test: a case of each kind, and the others among the slow tests."""
    return [*few, *(pytest.param(*one, marks=pytest.mark.slow) for one in map(_tuple, more))]


def _tuple(one):
    return one if isinstance(one, tuple) else (one,)


def study_of(case, **settings):
    estimator, parameters = CASES[case]
    several = estimator == "PrivateMeanRegMTLClassifier"
    given = {
        "name": "test",
        "estimator": estimator,
        "tasks": list(range(M)),
        "features": D,
        "parameters": parameters,
        "classes": list(range(2 + several)) if estimator.endswith("Classifier") else None,
        "n_rows": N if "Meta" in estimator else None,
        "seed": 3,
        "timeout": 1.0,
        "enrolment": 0.3,
    }
    return Study(**{**given, **settings})


def rows_of(study):
    return even_tasks(M, N, D, len(study.classes or ()))


def in_process(study):
    est = study.build().set_params(tasks=study.tasks)
    for name in {"clusters", "relation"} & set(study.parameters):
        est.set_params(**{name: {int(k): v for k, v in study.parameters[name].items()}})
    X, y, task = rows_of(study)
    return est.fit(X, y, task=task)


def rest_of_fit(study, lost=PARTS[1]):
    """The fit of the other tasks, with the denominator of all."""
    X, y, task = rows_of(study)
    rest = ~np.isin(task, lost)
    est = study.build().set_params(tasks=study.tasks)
    return est.fit(X[rest], y[rest], task=task[rest])


def released(billboard):
    return billboard.releases if hasattr(billboard, "releases") else [billboard.init]
