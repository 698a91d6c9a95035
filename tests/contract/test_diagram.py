"""Diagrams of scikit-learn: what was spent, and no value of a task."""

import re
import warnings

import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from skpmtl import (
    ClusteredMTL,
    DPMetaInit,
    MPMTLGroupSparse,
    MPMTLLowRank,
    PerTask,
    PrivateMeanRegMTL,
    PrivateMTL,
    PrivateSearch,
    TaskScaler,
)

BADGE = "\u03b5 = 60, \u03b4 = 1e-05 per task (replace-one)"


def private(school_like):
    table, y = school_like()
    names = sorted(table["school"].unique())
    return MPMTLLowRank(epsilon=60.0, task_feature="school", tasks=names), table, y


def test_badge_comes_with_the_fit_also_in_a_pipeline(school_like):
    est, table, y = private(school_like)
    assert "\u03b5" not in estimator_html_repr(est)
    model = make_pipeline(TaskScaler(task_feature="school"), est).fit(table, y)
    for shown in (model, model[-1]):
        assert estimator_html_repr(shown).count(BADGE) == 1
    exact = MPMTLLowRank(0.1, epsilon=None, task_feature="school").fit(table, y)
    assert "no privacy guarantee" in estimator_html_repr(exact)


SCHOOLS = [f"s{t:03d}" for t in range(8)]
SHOWN = [
    MPMTLLowRank(epsilon=2.0),
    MPMTLLowRank(0.1, epsilon=None),
    MPMTLGroupSparse(epsilon=2.0, unseen_task="mean", target_range=(-50.0, 50.0)),
    PrivateMTL(epsilon=5.0),
    PrivateMeanRegMTL(epsilon=2.0),
    DPMetaInit(epsilon=2.0, privacy="task-global"),
    ClusteredMTL(2, alpha=0.1, epsilon=None),
    PerTask(Ridge()),
    PrivateSearch(MPMTLLowRank(), {"tol": [1e-6, 1e-5]}, n_trials=2, epsilon=2.5),
]


@pytest.mark.parametrize("est", SHOWN, ids=lambda est: type(est).__name__)
@pytest.mark.parametrize("with_scaler", [False, True])
@pytest.mark.spread(9)
def test_no_number_of_a_task_is_shown(school_like, est, with_scaler):
    """A diagram of other rows is the same diagram; scikit-learn 1.9 would show models."""
    table, y = school_like()
    mine = clone(est)
    (mine.estimator if hasattr(mine, "n_trials") else mine).set_params(
        task_feature="school", tasks=SCHOOLS
    )
    if hasattr(mine, "random_state"):
        mine.set_params(random_state=0)
    model = make_pipeline(TaskScaler(task_feature="school"), mine) if with_scaler else mine
    shown = []
    for other in (False, True):
        X = table.assign(x1=1.7 * table["x1"] + 0.3) if other else table
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = clone(model).fit(X, y**2 if other else y)
        html = fitted._repr_mimebundle_()["text/html"]
        assert type(fitted).__name__ in html
        shown.append(re.sub(r"sk-(container|estimator)-id-\d+", "id", html))
    assert shown[0] == shown[1]
