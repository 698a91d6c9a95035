"""The cost of a search against the reports of all its fits, made again one by one."""

import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from skpmtl import (
    DPMetaInit,
    DPMetaInitClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
    PrivateSearch,
    TaskImputer,
    TaskScaler,
)
from skpmtl.model_selection import TaskStratifiedKFold
from skpmtl.privacy import compose, gdp_epsilon, gdp_mu, grid_search_cost
from skpmtl.privacy.report import PrivacyLeakWarning

M, N, D = 6, 8, 3
TASKS = range(M)
LARGE = 1e3  # of which there is enough for all kinds of releases


def rows(n=N):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((M * n, D)) / 2
    return np.column_stack([np.repeat(TASKS, n), X]), X @ [1.0, -1.0, 0.5]


def searched(estimator, grid, cls=GridSearchCV, n=N, **settings):
    table, y = rows(n)
    estimator = estimator.set_params(**_column(estimator))
    settings = {"cv": TaskStratifiedKFold(2, task_feature=0), **settings}
    with warnings.catch_warnings():
        for text in ("delta=", "The noise of this fit"):
            warnings.filterwarnings("ignore", text, PrivacyLeakWarning)
        if is_classifier(estimator):
            y = np.tile([0, 1], len(y) // 2)
        return cls(estimator, grid, **settings).fit(table, y), table, y


def _column(estimator):
    names = [name for name in estimator.get_params() if name.split("__")[-1] == "task_feature"]
    prefixes = [name[: -len("task_feature")] for name in names]
    return {
        **dict.fromkeys(names, 0),
        **{f"{p}tasks": TASKS for p in prefixes if f"{p}tasks" in estimator.get_params()},
        **{f"{p}classes": [0, 1] for p in prefixes if f"{p}classes" in estimator.get_params()},
    }


def reports_of_fits(search, table, y):
    """Of really fitting every candidate on every fold; the refit comes last."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        for params in search.cv_results_["params"]:
            for train, _ in search.cv.split(table, y):
                est = clone(search.estimator).set_params(**params).fit(table[train], y[train])
                found.append(last(est).privacy_)
    return [*found, last(search.best_estimator_).privacy_]


def last(est):
    return est.steps[-1][1] if hasattr(est, "steps") else est


def assert_same_cost(cost, expected):
    for name in ("guarantee", "unit", "adjacency"):
        assert getattr(cost, name) == getattr(expected, name)
    assert cost.delta == pytest.approx(expected.delta, rel=1e-12, abs=0)
    assert cost.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    assert (cost.mu is None) == (expected.mu is None)
    if expected.mu is not None:
        assert cost.mu == pytest.approx(expected.mu, rel=1e-12)


GRIDS = [
    (
        make_pipeline(TaskImputer(), TaskScaler(), PrivateMTL(epsilon=LARGE)),
        {"privatemtl__levels": ["free", "auto"]},
    ),
    (PrivateMTL(), {"epsilon": [0.01, LARGE]}),  # the first releases nothing
    (PrivateMTL(epsilon=LARGE), {"epsilon": [LARGE, None]}),
    (PrivateMTL(delta=1e-4), {"epsilon": [LARGE, math.inf]}),
    (PrivateMTLClassifier(epsilon=LARGE), {"delta": [None, 1e-6, 1e-3]}),
    (PrivateMTL(epsilon=LARGE, adjacency="zero-out"), {"structure": ["mean", "groups"]}),
    (DPMetaInit(), {"privacy": ["task-global", None]}),
    (DPMetaInit(privacy="local"), {"epsilon": [1.0, 2.0]}),
    (DPMetaInit(), [{"batches": ["full"]}, {"batches": ["disjoint"], "batch_size": [2]}]),
    (DPMetaInit(group_size=3), {"visits": [1, 2], "adjacency": ["zero-out"]}),
    (DPMetaInitClassifier(), {"inner_steps": [1, 4], "epsilon": [1.0, 4.0]}),
    (
        PrivateSearch(PrivateMTL(), {"levels": ["auto", "free"]}, n_trials=2, epsilon=LARGE),
        {"selection": ["compose", "poisson"]},
    ),
]


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
@pytest.mark.parametrize("estimator, grid", GRIDS, ids=lambda v: str(v).replace("\n", "")[:60])
@pytest.mark.spread(4)
def test_cost_is_that_of_the_fits(estimator, grid):
    search, table, y = searched(clone(estimator), grid)
    cost = grid_search_cost(search)
    reports = reports_of_fits(search, table, y)
    assert cost.notes["fits"] == len(reports)
    assert_same_cost(cost, compose(reports))


@pytest.mark.parametrize(
    "estimator, grid, words",
    [
        (DPMetaInit(), {"privacy": ["task-global", "local"]}, "different guarantee"),
        (DPMetaInit(), {"group_size": [1, 5]}, "different unit"),
        (
            PrivateMTL(epsilon=LARGE),
            {"adjacency": ["zero-out", "replace-one"]},
            "different adjacency",
        ),
    ],
)
def test_searches_that_mix_statements_are_refused(estimator, grid, words):
    search, _, _ = searched(estimator, grid)
    with pytest.raises(ValueError, match=f"{words}.*search with one at a time"):
        grid_search_cost(search)


@pytest.mark.parametrize(
    "cls, settings",
    [
        (GridSearchCV, {"cv": KFold(2, shuffle=True, random_state=0)}),
        (GridSearchCV, {"cv": StratifiedKFold(2, shuffle=True, random_state=0)}),
        (HalvingGridSearchCV, {"resource": "n_samples", "min_resources": 32}),
    ],
)
def test_folds_and_samples_of_all_rows_have_no_stated_cost(cls, settings):
    search, _, _ = searched(PrivateMTLClassifier(), {"epsilon": [1.0, 2.0]}, cls, **settings)
    with pytest.raises(ValueError, match="no cost can be stated. Set cv= to TaskStratifiedKFold"):
        grid_search_cost(search)


def test_folds_have_no_more_records_than_the_refit():
    """delta=None is larger with fewer records: the cost is an upper bound, tasks being known."""
    search, table, y = searched(DPMetaInit(), {"inner_steps": [1, 2]}, n=200)
    cost, exact = grid_search_cost(search), compose(reports_of_fits(search, table, y))
    assert search.best_estimator_.privacy_.delta < exact.delta < cost.delta == 1e-5
    assert exact.mu < cost.mu < 1.2 * exact.mu
    assert any("every training fold held all tasks" in a for a in cost.assumptions)
    given, _, _ = searched(DPMetaInit(delta=1e-6), {"inner_steps": [1, 2]}, n=200)
    cost = grid_search_cost(given)
    assert not any("every training fold" in a for a in cost.assumptions)
    assert cost.mu == pytest.approx(math.sqrt(5) * gdp_mu(1.0, 1e-6), rel=1e-12)
    assert cost.epsilon == pytest.approx(gdp_epsilon(cost.mu, 1e-6))


def test_tasks_added_later_do_not_count():
    """delta=None was resolved by the tasks of the fit."""
    table, y = rows()
    search, _, _ = searched(PrivateMTL(epsilon=LARGE), {"levels": ["auto"]})
    expected = grid_search_cost(search)
    new = np.column_stack([np.arange(1000, 2000), np.ones((1000, D))])
    search.best_estimator_.personalize(new, np.ones(1000))
    assert grid_search_cost(search) == expected
