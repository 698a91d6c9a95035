"""Rounds of fits as tasks of callbacks: what is counted, and that nothing private is told."""

import numpy as np
import pytest
from sklearn.base import clone

from skpmtl import DPMetaInit, FedMTLRegressor, MPMTLLowRank, PrivateMTL
from skpmtl.reproduction import LocalOnly
from tests.helpers.data import about_one_model

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
# The fits that are compared have seeds, which those with a budget warn about.
pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


class Recorder:
    """Everything that a callback is given."""

    max_propagation_depth = None  # pipelines and searches pass it on

    def __init__(self, fail_at=None):
        self.events, self.fail_at = [], fail_at

    def _note(self, event, context, values=None):
        place = (context.task_name, context.task_id, context.max_subtasks)
        self.events.append((event, *place, context.parent is None, values))
        if event == self.fail_at and context.parent is not None:
            raise RuntimeError("the callback fails")

    def setup(self, estimator, context):
        self._note("setup", context)

    def teardown(self, estimator, context):
        self._note("teardown", context)

    def on_fit_task_begin(self, estimator, context):
        self._note("begin", context)

    def on_fit_task_end(self, estimator, context):
        self._note("end", context)
        return True  # asks to stop, which no fit does

    def names(self):
        return [(event, name, number) for event, name, number, *_ in self.events]


class Curious(Recorder):
    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        self._note("end", context, (X, y, metadata, fitted_estimator))


def data(labels=False):
    X, y, task = about_one_model(6, 20, 3, own=0.0)
    return np.column_stack([task, X]), (y > 0) if labels else y


COMMON = {"task_feature": 0, "tasks": range(6)}
PRIVATE = {"epsilon": 1.0, "random_state": 0, **COMMON}
FITS = [
    (DPMetaInit(tasks_per_round=2, **PRIVATE), "round", 3),
    (FedMTLRegressor(client_feature=0, n_rounds=4, random_state=0), "round", 4),
]
IDS = [f"{type(est).__name__}-{name}" for est, name, _ in FITS]
CASES = pytest.mark.parametrize(("est", "name", "count"), FITS, ids=IDS)


def rounds(name, count):
    """What a fit of so many rounds tells."""
    inner = [(event, name, t) for t in range(count) for event in ("begin", "end")]
    return [
        ("setup", "fit", 0),
        ("begin", "fit", 0),
        *inner,
        ("end", "fit", 0),
        ("teardown", "fit", 0),
    ]


def models(est):
    X, _ = data()
    return est.predict(X)


@CASES
def test_every_round_is_a_subtask_of_the_fit(est, name, count):
    X, y = data(labels=hasattr(est, "predict_proba"))
    recorder = Recorder()
    told = clone(est).set_callbacks(recorder).fit(X, y)
    assert recorder.names() == rounds(name, count)
    assert {event[3] for event in recorder.events if event[4]} == {count}  # for a bar's length
    assert {event[3] for event in recorder.events if not event[4]} <= {0}
    # The fit is the same, and nothing of the protocol stays behind.
    silent = clone(est).fit(X, y)
    np.testing.assert_array_equal(models(told), models(silent))
    assert set(vars(told)) == set(vars(silent)) | {"_skl_callbacks"}


@CASES
def test_callbacks_get_neither_rows_nor_models(est, name, count):
    X, y = data(labels=hasattr(est, "predict_proba"))
    curious, seen = Curious(), []
    curious._note = lambda event, context, values=None: seen.append(values)
    with pytest.warns(UserWarning, match="Curious asks for X, y, metadata, fitted_estimator.*None"):
        est = clone(est).set_callbacks(curious)
    est.fit(X, y)
    assert {values for values in seen if values is not None} == {(None,) * 4}
    with pytest.warns(UserWarning, match="ScoringMonitor asks for"):
        monitor = callback.ScoringMonitor(scoring=None)
        est.set_callbacks(monitor).fit(X, y)
    with pytest.raises(ValueError, match="No logs"):
        monitor.get_logs()


@CASES
def test_an_error_ends_callbacks_and_leaves_no_fit(est, name, count):
    X, y = data(labels=hasattr(est, "predict_proba"))
    recorder = Recorder(fail_at="end")
    est = clone(est).set_callbacks(recorder)
    with pytest.raises(RuntimeError, match="the callback fails"):
        est.fit(X, y)
    assert recorder.names() == [*rounds(name, count)[:4], ("teardown", "fit", 0)]
    assert [key for key in vars(est) if key.endswith("_")] == []
    assert not {"_round_callbacks", "_callback_fit_ctx"} & set(vars(est))
    bad = np.full(len(y), np.nan)
    recorder.events.clear()
    with pytest.raises(ValueError, match="NaN"):
        est.fit(X, bad)
    assert recorder.events == []  # nothing was begun


def test_fits_without_a_known_number_of_rounds():
    """Rounds that data or releases decide: none, releases of the loop, iterations."""
    X, y = data()
    recorder = Recorder()
    LocalOnly(**COMMON).set_callbacks(recorder).fit(X, y)
    assert recorder.names() == rounds("round", 0)
    recorder.events.clear()
    est = PrivateMTL(**{**PRIVATE, "epsilon": 1e3})
    told = clone(est).set_callbacks(recorder).fit(X, y)
    assert recorder.names() == rounds("release", len(told.billboard_.releases))
    np.testing.assert_array_equal(models(told), models(est.fit(X, y)))
    recorder.events.clear()
    est = MPMTLLowRank(epsilon=None, alpha=0.01, **COMMON).set_callbacks(recorder).fit(X, y)
    inner = [e for e in recorder.names() if e[1] == "iteration"]
    assert inner == rounds("iteration", len(inner) // 2)[2:-2] and 1 <= len(inner) // 2
    assert len(inner) // 2 <= est.n_iter_
    assert {event[3] for event in recorder.events if event[4]} == {None}
