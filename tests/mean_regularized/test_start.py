"""A public start: what a fit is about are differences to it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from skpmtl import MPMTLLowRank, PrivateMeanRegMTL, PrivateMeanRegMTLClassifier
from skpmtl.tables.public_init import read_public_init
from tests.helpers.data import about_one_model

M, N, D = 30, 12, 4
TASKS = range(M)
pytestmark = [
    pytest.mark.filterwarnings('ignore:(tasks|classes)="auto" reads'),
]


def test_forms_of_one_start():
    X, y, task = about_one_model(M, N, D, level=2.0)
    label = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    model = LogisticRegression().fit(X, label)
    some = label != "b"
    given = {"tasks": TASKS, "random_state": 0, "epsilon": 3.0}
    start = read_public_init(model, D, classes=np.array(["a", "c"]))
    p = model.predict_proba(X)
    odds = np.log(p[:, 2] / p[:, 0])  # of two of its classes: given that it is one of them
    assert_allclose(X @ start.coef[0] + start.intercept, odds, rtol=1e-9)
    parts = {"coef": model.coef_[::-1], "intercept": model.intercept_[::-1], "classes": list("cba")}
    shared = PrivateMeanRegMTLClassifier(
        classes=list("abc"), unseen_task="mean", init=model, **given
    ).fit(X, label, task=task)
    forms = [model, parts, shared, shared.export_billboard()]
    found = [read_public_init(form, D, classes=np.array(list("abc"))) for form in forms]
    assert_array_equal(found[0].coef, found[1].coef)
    assert_array_equal(found[0].intercept, found[1].intercept)
    assert_array_equal(found[2].coef, shared.mean_coef_)
    assert_array_equal(found[2].intercept, found[3].intercept)
    two = PrivateMeanRegMTLClassifier(classes=["a", "c"], init=model, **given)
    two.fit(X[some], label[some], task=task[some])
    again = clone(two)
    assert again.init is model
    again.fit(X[some], label[some], task=task[some])
    assert_array_equal(again.coef_, two.coef_)
    one = shared.export_task(0)
    assert_array_equal(read_public_init(one, D, classes=np.array(list("abc"))).coef, one["coef"])


def test_names_and_columns_of_a_start():
    pd = pytest.importorskip("pandas")
    X, y, task = about_one_model(M, N, D, level=2.0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = Ridge().fit(frame, y)
    given = {"tasks": TASKS, "random_state": 0, "task_feature": "task", "init": model}
    est = PrivateMeanRegMTL(**given, epsilon=8.0).fit(frame.assign(task=task), y)
    again = PrivateMeanRegMTL(**{**given, "init": est}).fit(frame.assign(task=task), y)
    assert_array_equal(read_public_init(est, D).coef[0], est.mean_coef_)
    assert again.coef_.shape == (M, D)
    other = frame[list("badc")].assign(task=task)
    with pytest.raises(ValueError, match="its features in another order"):
        PrivateMeanRegMTL(**given).fit(other, y)
    with pytest.raises(ValueError, match="features that X lacks, .'d'"):
        PrivateMeanRegMTL(**given).fit(frame.rename(columns={"d": "e"}).assign(task=task), y)
    with pytest.raises(ValueError, match="has no shared model to start from"):
        low = MPMTLLowRank(tasks=TASKS, random_state=0).fit(X, y, task=task)
        PrivateMeanRegMTL(tasks=TASKS, init=low).fit(X, y, task=task)
