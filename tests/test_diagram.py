"""Diagrams of scikit-learn: what was spent, and where the documentation is."""

from email.message import EmailMessage

import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from skpmtl import MPMTLLowRank, PerTask, PrivateMTL, PrivateSearch, TaskScaler, _diagram
from tests.helpers.dummy_method import PrivateRidge

BADGE = "\u03b5 = 2, \u03b4 = 1e-05 per task (replace-one)"


def private(school_like):
    table, y = school_like()
    names = sorted(table["school"].unique())
    return MPMTLLowRank(epsilon=2.0, task_feature="school", tasks=names), table, y


def test_badge_comes_with_the_fit_also_in_a_pipeline(school_like):
    est, table, y = private(school_like)
    assert "\u03b5" not in estimator_html_repr(est)
    model = make_pipeline(TaskScaler(task_feature="school"), est).fit(table, y)
    for shown in (model, model[-1]):
        assert estimator_html_repr(shown).count(BADGE) == 1
    exact = MPMTLLowRank(0.1, epsilon=None, task_feature="school").fit(table, y)
    assert "no privacy guarantee" in estimator_html_repr(exact)


def test_an_estimator_in_an_estimator_is_shown(school_like):
    _, table, y = private(school_like)
    alone = PerTask(Ridge(0.123), task_feature="school").fit(table, y)
    assert "Ridge" in estimator_html_repr(alone)


def test_a_search_shows_what_all_of_it_spent(school_like):
    est, table, y = private(school_like)
    search = PrivateSearch(est, {"n_releases": [1, 2]}, n_trials=2, epsilon=2.5)
    assert "estimator: MPMTLLowRank" in estimator_html_repr(search)
    shown = estimator_html_repr(search.fit(table, y))
    assert "best_estimator_: MPMTLLowRank" in shown
    assert f"\u03b5 = 2.5, \u03b4 = {search.privacy_.delta:.4g} per task" in shown


@pytest.mark.parametrize(
    ("urls", "link"),
    [
        (["Source, https://code.test", "Documentation, https://doc.test/x/"], "https://doc.test/x"),
        (["Documentation, https://skpmtl.example/"], ""),  # not filled in
        ((), ""),
    ],
)
def test_links_lead_where_the_package_says(monkeypatch, urls, link):
    about = EmailMessage()
    for url in urls:
        about["Project-URL"] = url
    monkeypatch.setattr(_diagram, "metadata", {"skpmtl": about}.__getitem__)
    _diagram.documentation.cache_clear()
    try:
        for est in (PrivateMTL(), TaskScaler(), PrivateSearch(None, {})):
            page = f"{link}/generated/skpmtl.{type(est).__name__}.html" if link else ""
            assert est._get_doc_link() == page
        assert PrivateRidge()._get_doc_link() == ""  # of somebody else
        assert ("doc.test" in estimator_html_repr(PrivateMTL())) == bool(link)
    finally:
        _diagram.documentation.cache_clear()
