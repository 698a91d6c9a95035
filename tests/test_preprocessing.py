"""What every task does alone: scaling as far as its rows tell a scale, and filling gaps."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, polygamma
from sklearn.base import clone

from skpmtl.preprocessing import TaskImputer, TaskScaler
from skpmtl.tables.table import SingleTaskWarning


def plain_scale(rows, public):
    """The rule of the documentation, a task at a time."""
    n = len(rows)
    logs, noise = [], polygamma(1, (n - 1) / 2) if n > 1 else np.nan
    for x, s in zip(rows.T, public, strict=True):
        if np.ptp(x) > 0:
            squares = np.sum((x - x.mean()) ** 2)
            logs.append(np.log(squares / 2) - digamma((n - 1) / 2) - 2 * np.log(s))
    t = max(0.25, np.mean(np.square(logs)) - noise) if n >= 5 and logs else 0.25
    w, logs = t / (t + 3 * noise), iter(logs)
    pairs = zip(rows.T, public, strict=True)
    return [s * np.exp(w / 2 * next(logs)) if np.ptp(x) > 0 else s for x, s in pairs]


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_same_as_a_scaler_per_task(school_like, with_mean, with_std):
    frame, _ = school_like()
    frame["x1"], frame["x2"] = 7.1, 1e4 * frame["x2"]  # constant; in other units
    frame = frame.groupby("school").head(40)
    short = frame["school"].isin(sorted(set(frame["school"]))[:3])
    frame = frame[~short | (frame.groupby("school").cumcount() < 3)]
    frame = pd.concat([frame, frame[:1].assign(school="one row")], ignore_index=True)
    ids, names = frame["school"], ["x0", "x1", "x2", "x3"]
    public = [1.0, 3.0, 10.0, 0.5]
    scaler = TaskScaler(task_feature="school", with_mean=with_mean, with_std=with_std, scale=public)
    out = scaler.fit_transform(frame)
    assert list(out.columns) == list(frame.columns) and out.index.equals(frame.index)
    assert_array_equal(out["school"], ids)
    for k, t in enumerate(sorted(set(ids))):
        own = frame.loc[ids == t, names]
        scale = plain_scale(own.to_numpy(), public)
        assert_allclose(scaler.scale_[k], scale)
        mean = own.mean() if len(own) == 1 else own.mean().where(np.ptp(own, axis=0) > 0, 0.0)
        expected = (own - mean * with_mean) / (scale if with_std else 1.0)
        assert_allclose(out.loc[ids == t, names], expected, atol=1e-12)
        assert_allclose(scaler.mean_[k], mean, atol=1e-12)
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


def test_errors(school_like):
    frame, _ = school_like()
    scaler = TaskScaler(task_feature="school").fit(frame)
    with pytest.raises(ValueError, match=r"\['new'\]. Add them with personalize"):
        scaler.transform(frame.assign(school="new"))
    with pytest.raises(ValueError, match=r"NaN.*row 3 \(task"):
        scaler.transform(frame.mask((frame.index == 3)[:, None] & (frame.columns == "x2")))
    with pytest.raises(ValueError, match="missing"):
        scaler.fit(frame.mask((frame.index == 3)[:, None] & (frame.columns == "school")))
    with pytest.raises(TypeError, match="task_feature=1.5"):
        TaskScaler(task_feature=1.5).fit(frame)
    for scale in (0.0, [1.0, 2.0], np.inf, "wide"):
        with pytest.raises(ValueError, match="scale= must be None, a positive number or 4 of them"):
            TaskScaler(task_feature="school", scale=scale).fit(frame)
    for tasks, words in ((["s000"], "Not listed in tasks="), ("all", 'must be "auto" or a list')):
        with pytest.raises(ValueError, match=words):
            TaskScaler(task_feature="school", tasks=tasks).fit(frame)
    with pytest.warns(SingleTaskWarning):
        TaskScaler().fit(frame.drop(columns="school"))


@pytest.mark.parametrize("with_std", [True, False])
@pytest.mark.parametrize("scale", [None, 2.0, [2.0, np.nan]])
def test_listed_tasks_without_rows_have_features_of_zero(scale, with_std):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat([1, 3], 6), rng.normal(7.0, 2.0, size=(12, 2))])
    settings = {"task_feature": 0, "scale": scale, "with_std": with_std}
    scaler = TaskScaler(**settings, tasks=[3, 2, 1]).fit(X)
    assert_array_equal(scaler.tasks_, [1, 2, 3])
    assert_array_equal(scaler.transform([[2, 5.0, -3.0]]), [[2, 0.0, 0.0]])
    plain = TaskScaler(**settings).fit(X)
    assert_array_equal(scaler.transform(X), plain.transform(X))
    new = np.column_stack([np.repeat([2, 9], 6), rng.normal(3.0, 1.0, size=(12, 2))])
    assert_array_equal(scaler.personalize(new).tasks_, [1, 2, 3, 9])
    assert_array_equal(scaler.transform(new), TaskScaler(**settings).fit_transform(new))


def test_a_task_that_is_added_is_scaled_as_if_it_had_been_there(school_like):
    frame, _ = school_like()
    first = frame["school"] < "s005"
    scaler = TaskScaler(task_feature="school").fit(frame[first])
    kept = scaler.transform(frame[first])
    scaler.personalize(frame[~first])
    assert_array_equal(scaler.transform(frame[first]), kept)
    whole = TaskScaler(task_feature="school").fit(frame)
    assert_array_equal(scaler.tasks_, whole.tasks_)
    assert_array_equal(scaler.transform(frame), whole.transform(frame))
    with pytest.raises(TypeError, match="strings"):
        scaler.personalize(frame.assign(school=1))
    with pytest.raises(ValueError, match="feature names"):
        scaler.personalize(frame.rename(columns={"x1": "z"}))
    assert_array_equal(scaler.tasks_, whole.tasks_)


def gaps(seed=0, n=300):
    """Numbers, text and gaps; one task has no number, another no text."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n).round(),
            "clinic": rng.choice(list("abcdef"), n),
            "ward": rng.choice(["x", "y", "z"], n),
            "visits": rng.integers(0, 9, n),
        }
    )
    frame.loc[rng.random(n) < 0.3, "age"] = np.nan
    frame.loc[rng.random(n) < 0.3, "ward"] = None
    frame.loc[frame["clinic"] == "b", "age"] = np.nan
    frame.loc[frame["clinic"] == "c", "ward"] = None
    return frame


def median_age(rows):
    """pandas 2.1 warns of a median of nothing."""
    known = rows["age"].dropna()
    return known.median() if len(known) else np.nan


def plainly_filled(frame, age, ward):
    """The documentation with pandas, a task at a time."""
    parts = []
    for _, rows in frame.groupby("clinic"):
        found = rows["ward"].mode()
        median = median_age(rows)
        parts.append(
            rows.assign(
                age=rows["age"].fillna(age if np.isnan(median) else median),
                ward=rows["ward"].fillna(found[0] if len(found) else ward),
            )
        )
    return pd.concat(parts).loc[frame.index]


def test_gaps_are_filled_by_the_task_itself():
    frame = gaps()
    imputer = TaskImputer(task_feature="clinic", default={"age": 45, "ward": "x"}).fit(frame)
    expected = plainly_filled(frame, 45.0, "x")
    out = imputer.transform(frame)
    pd.testing.assert_frame_equal(out, expected, check_dtype=False)
    assert out["visits"].dtype == frame["visits"].dtype and out["age"].dtype == float
    other = gaps(seed=1)  # others' rows, filled with what the tasks had in fit
    filled = imputer.transform(other)
    for clinic, rows in frame.groupby("clinic"):
        gap = (other["clinic"] == clinic) & other["age"].isna()
        median = median_age(rows)
        assert (filled.loc[gap, "age"] == (45 if np.isnan(median) else median)).all()
    # Nothing of a task depends on another's rows.
    alone = TaskImputer(task_feature="clinic").fit(frame[frame["clinic"] == "d"])
    d = imputer.tasks_.tolist().index("d")
    assert alone.statistics_["age"][0] == imputer.statistics_["age"][d]
    assert alone.statistics_["ward"][0] == imputer.statistics_["ward"][d]


def test_unknown_tasks_have_the_public_default():
    frame = gaps()
    first = frame["clinic"] < "e"
    imputer = TaskImputer(task_feature="clinic").fit(frame[first])
    gap = ~first & frame["age"].isna()
    assert (imputer.transform(frame).loc[gap, "age"] == 0).all()
    assert (imputer.transform(frame).loc[~first & frame["ward"].isna(), "ward"] == "missing").all()
    out = imputer.personalize(frame[~first]).transform(frame)
    whole = TaskImputer(task_feature="clinic").fit(frame)
    pd.testing.assert_frame_equal(out, whole.transform(frame))


def test_a_task_without_any_value_has_the_default_of_its_kind():
    """Whatever type a column without a value has in its own rows."""
    frame = gaps()
    imputer = TaskImputer(task_feature="clinic", default={"age": 45}).fit(frame)
    new = pd.DataFrame({"age": [None] * 2, "clinic": "new", "ward": [np.nan] * 2, "visits": 1})
    for imputer_of_new in (imputer, imputer.personalize(new)):
        out = imputer_of_new.transform(new)
        assert out["age"].tolist() == [45.0, 45.0] and out["age"].dtype == float
        assert out["ward"].tolist() == ["missing"] * 2
    with pytest.raises(ValueError, match=r"not numeric: \['age'\]"):
        imputer.transform(frame.assign(age="old"))


def test_other_tables():
    frame = gaps()
    expected = TaskImputer(task_feature="clinic").fit_transform(frame)
    out = TaskImputer(task_feature=["clinic"]).fit_transform(pl.from_pandas(frame))
    assert isinstance(out, pl.DataFrame)
    pd.testing.assert_frame_equal(out.to_pandas(), expected, check_dtype=False)
    code = frame["clinic"].map(ord)
    numbers = frame.assign(clinic=code)[["age", "clinic", "visits"]].to_numpy(dtype=float)
    filled = TaskImputer(task_feature=1, default={0: 7.0}).fit_transform(numbers)
    again = TaskImputer(task_feature="clinic", default={"age": 7}).fit_transform(frame)
    assert_array_equal(filled, again.assign(clinic=code)[["age", "clinic", "visits"]])
    nullable = frame.assign(age=frame["age"].astype("Int64"), ward=frame["ward"].astype("category"))
    out = TaskImputer(task_feature="clinic").fit_transform(nullable)
    pd.testing.assert_frame_equal(out, expected, check_dtype=False)
    whole = frame.fillna({"age": 1.0, "ward": "w"})
    pd.testing.assert_frame_equal(TaskImputer(task_feature="clinic").fit_transform(whole), whole)


ODD = [10**20, -(10**400), 2**63, 1.5, True, None, "word", Decimal("2.5"), np.float32(3.0), 7]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("column", ["number", "whole", "word"])
@pytest.mark.spread(10)
def test_no_value_of_one_task_changes_what_others_fill_in(column, odd):
    """Whatever type it gives to the column."""
    frame = pd.DataFrame({"task": list("aaaabbbbcc")})
    frame["number"] = [1.0, 2.0, 6.0, np.nan, 3.0, 3.0, 9.0, np.nan, np.nan, np.nan]
    frame["whole"] = pd.Series([1, 2, 7, None, 3, 3, 9, None, None, None], dtype="Int64")
    frame["word"] = ["x", "y", "y", None, "z", "z", "x", None, None, None]
    changed = frame.astype({column: object})
    changed.loc[4, column] = odd  # of task b
    default = {"number": 5.0, "whole": 5.0, "word": "none"}
    imputer = TaskImputer(task_feature="task", default=default)
    filled = [clone(imputer).fit_transform(table)[column] for table in (frame, changed)]
    others = frame["task"] != "b"
    assert filled[0][others].tolist() == filled[1][others].tolist()
    assert filled[0][3] == (2.0 if column != "word" else "y")
    assert not filled[1].isna().any()


@pytest.mark.parametrize("first", ["1", 1, True, 1.0])
def test_values_of_other_tasks_that_look_alike_change_no_mode(first):
    """Whether their text is the same, or they are equal and of another text."""
    rows = [("a", first), ("b", 1), ("b", "1"), ("c", 1), ("c", "0"), ("c", "x"), ("c", 1)]
    frame = pd.DataFrame(rows, columns=["task", "word"]).astype(object)
    found = TaskImputer(task_feature="task").fit(frame).statistics_["word"]
    assert [repr(value) for value in found[1:]] == ["1", "1"]


def test_errors_of_the_imputer():
    frame = gaps()
    for default, problem in (({"agge": 1}, "agge.*features are"), ({"age": "old"}, "'age'")):
        with pytest.raises(ValueError, match=problem):
            TaskImputer(task_feature="clinic", default=default).fit(frame)
    with pytest.raises(ValueError, match="missing"):
        TaskImputer(task_feature="clinic").fit(frame.assign(clinic=None))
    with pytest.raises(TypeError, match="'ward' holds containers"):
        TaskImputer(task_feature="clinic").fit(frame.assign(ward=[[1]] * len(frame)))
    with pytest.raises(ValueError, match="one column"):
        TaskImputer(task_feature=["clinic", "ward"]).fit(frame)
    with pytest.warns(SingleTaskWarning):
        TaskImputer().fit(frame.drop(columns="clinic"))
