"""TaskScaler is a StandardScaler per task that keeps the task column."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skpmtl.preprocessing import TaskScaler
from skpmtl.tables.table import SingleTaskWarning
from tests.helpers.tiny_ridge import TinyRidge


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_same_as_a_scaler_per_task(school_like, with_mean, with_std):
    frame, _ = school_like()
    frame["x1"] = 7.1  # constant
    ids, names = frame["school"], ["x0", "x1", "x2", "x3"]
    scaler = TaskScaler(task_feature="school", with_mean=with_mean, with_std=with_std)
    out = scaler.fit_transform(frame)
    assert list(out.columns) == list(frame.columns) and out.index.equals(frame.index)
    assert_array_equal(out["school"], ids)
    for k, t in enumerate(sorted(set(ids))):
        own = frame.loc[ids == t, names]
        expected = StandardScaler(with_mean=with_mean, with_std=with_std).fit_transform(own)
        assert_allclose(out.loc[ids == t, names], expected, atol=1e-12)
        assert_allclose(scaler.mean_[k], own.mean())
    assert scaler.tasks_.tolist() == sorted(set(ids))


def test_containers(school_like):
    frame, _ = school_like()
    number = np.unique(frame["school"], return_inverse=True)[1]
    expected = TaskScaler(task_feature="school").fit_transform(frame)
    features = expected.drop(columns="school").to_numpy()
    array = np.column_stack([frame.drop(columns="school"), number])
    assert_allclose(
        TaskScaler(task_feature=-1).fit_transform(array), np.column_stack([features, number])
    )
    table = pl.DataFrame(frame.to_dict("list"))
    out = TaskScaler(task_feature="school").fit_transform(table)
    assert isinstance(out, pl.DataFrame) and out.columns == table.columns
    assert out["school"].to_list() == frame["school"].to_list()
    assert_allclose(out.drop("school").to_numpy(), features)
    named = TaskScaler(task_feature="school").set_output(transform="pandas").fit(frame)
    pd.testing.assert_frame_equal(named.transform(frame), expected)
    assert_array_equal(named.get_feature_names_out(), frame.columns)
    objects = TaskScaler(task_feature=1).fit_transform(frame.to_numpy())
    assert_array_equal(objects[:, 1], frame["school"])
    assert_allclose(np.delete(objects, 1, axis=1).astype(float), features)
    nullable = frame.assign(school=pd.Series(number, dtype="Int64"))
    kept = TaskScaler(task_feature="school").fit_transform(nullable)
    assert kept["school"].dtype == "Int64"


def test_in_a_pipeline(school_like):
    frame, y = school_like()
    model = make_pipeline(TaskScaler(task_feature="school"), TinyRidge(task_feature="school"))
    assert model.fit(frame, y).score(frame, y) > 0.9
    assert_array_equal(model[-1].feature_names_in_, frame.columns)


def test_errors(school_like):
    frame, _ = school_like()
    scaler = TaskScaler(task_feature="school").fit(frame)
    with pytest.raises(ValueError, match=r"\['new'\]. Scale the rows of a new task"):
        scaler.transform(frame.assign(school="new"))
    with pytest.raises(ValueError, match=r"NaN.*row 3 \(task"):
        scaler.transform(frame.mask((frame.index == 3)[:, None] & (frame.columns == "x2")))
    with pytest.raises(ValueError, match="missing"):
        scaler.fit(frame.mask((frame.index == 3)[:, None] & (frame.columns == "school")))
    with pytest.raises(TypeError, match="task_feature=1.5"):
        TaskScaler(task_feature=1.5).fit(frame)
    with pytest.warns(SingleTaskWarning):
        TaskScaler().fit(frame.drop(columns="school"))
