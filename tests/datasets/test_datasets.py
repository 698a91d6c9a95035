"""The School loader against the file itself, the generators against what they promise."""

import hashlib

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.stats import f_oneway

from skpmtl.datasets import school as datasets
from skpmtl.datasets.examples import make_clinics
from skpmtl.datasets.generators import make_group_sparse_tasks, make_low_rank_tasks, make_lsoa_like
from skpmtl.datasets.school import fetch_school, load_school

ORIGIN = datasets.SCHOOL_TABLE.with_name("README.rst")


@pytest.fixture(autouse=True)
def no_local_copy(monkeypatch):
    """The environment of whoever runs the tests does not decide."""
    monkeypatch.delenv(datasets.SCHOOL_ENV, raising=False)


@pytest.fixture
def small_mat(tmp_path):
    """A file in School's format: three schools of 2, 1 and 3 pupils."""
    rng = np.random.default_rng(0)
    X, Y = np.empty((1, 3), object), np.empty((1, 3), object)
    for k, n in enumerate((2, 1, 3)):
        X[0, k] = rng.integers(0, 100, (n, 28), dtype=np.uint8)
        Y[0, k] = rng.integers(1, 71, (n, 1), dtype=np.uint8)
    path = tmp_path / "small.mat"
    savemat(path, {"X": X, "Y": Y})
    return path


def test_school_is_the_file_of_the_toolbox(school_mat):
    found = hashlib.sha256(school_mat.read_bytes()).hexdigest()
    assert found == datasets.SCHOOL_SHA256 and found in ORIGIN.read_text()
    school, cells = load_school(), loadmat(school_mat)
    assert school.data.shape == (15362, 28) and school.data.dtype == np.float64
    assert school.target.shape == (15362,) and school.target.dtype == np.float64
    for k in range(139):
        np.testing.assert_array_equal(school.data[school.task == k], cells["X"][0, k])
        np.testing.assert_array_equal(school.target[school.task == k], cells["Y"][0, k].ravel())
    given = load_school(school_mat)
    for key in ("data", "target", "task"):
        np.testing.assert_array_equal(given[key], school[key])
    sizes = np.bincount(school.task)
    assert (len(sizes), sizes.min(), sizes.max()) == (139, 22, 251)


def test_school_public_scale_divides_the_percentages_only():
    raw, scaled = load_school(), load_school(scale="public")
    factor = np.ones(28)
    factor[[3, 4]] = 100
    np.testing.assert_allclose(scaled.data * factor, raw.data, rtol=1e-15)
    assert scaled.data.max() == 1


def test_school_as_frame():
    array, frame = load_school(), load_school(as_frame=True)
    assert list(frame.data.columns) == ["school", *array.feature_names]
    np.testing.assert_array_equal(frame.data["school"], array.task)
    np.testing.assert_array_equal(frame.data[array.feature_names], array.data)
    np.testing.assert_array_equal(frame.frame["exam_score"], array.target)
    assert array.frame is None and frame.target.name == "exam_score"


def test_school_sources_in_order(monkeypatch, tmp_path, small_mat):
    """Argument before environment before the table of the package."""
    assert load_school().filename == str(datasets.SCHOOL_TABLE)
    other = tmp_path / "other.mat"
    other.write_bytes(small_mat.read_bytes())
    monkeypatch.setenv(datasets.SCHOOL_ENV, str(other))
    assert load_school().filename == str(other) and load_school().data.shape == (6, 28)
    assert load_school(small_mat).filename == str(small_mat)
    monkeypatch.setenv(datasets.SCHOOL_ENV, str(tmp_path / "gone.mat"))
    with pytest.raises(FileNotFoundError, match="SKPMTL_SCHOOL=.*gone.mat"):
        load_school()


def test_school_rejects_other_files(tmp_path, small_mat):
    savemat(tmp_path / "other.mat", {"X": np.eye(3), "Z": np.eye(3)})
    with pytest.raises(ValueError, match="other.mat.*is not the School data set"):
        load_school(tmp_path / "other.mat")
    (tmp_path / "text.mat").write_text("not MATLAB " * 50)
    with pytest.raises(ValueError, match="is not the School data set"):
        load_school(tmp_path / "text.mat")
    with pytest.raises(ValueError, match="scale='unit' is unknown"):
        load_school(small_mat, scale="unit")


def test_fetch_downloads_once_and_checks(monkeypatch, tmp_path, small_mat):
    content = small_mat.read_bytes()
    monkeypatch.setattr(datasets, "SCHOOL_URL", small_mat.as_uri())
    with pytest.raises(OSError, match="download_if_missing is False"):
        fetch_school(tmp_path / "data", download_if_missing=False)
    with pytest.raises(OSError, match="has SHA-256"):
        fetch_school(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []

    monkeypatch.setattr(datasets, "SCHOOL_SHA256", hashlib.sha256(content).hexdigest())
    school = fetch_school(tmp_path / "data")
    assert school.data.shape == (6, 28)
    assert (tmp_path / "data" / datasets.SCHOOL_FILE).read_bytes() == content
    small_mat.unlink()
    np.testing.assert_array_equal(fetch_school(tmp_path / "data").data, school.data)
    with pytest.raises(OSError, match="could not be downloaded"):
        fetch_school(tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_low_rank_tasks_have_the_stated_moments():
    X, y, task, W = make_low_rank_tasks(
        n_tasks=400, n_features=200, variance=9.0, correlation=0.75, coef=True, random_state=0
    )
    assert X.shape == (400 * 30, 200) and y.shape == task.shape == (400 * 30,)
    np.testing.assert_array_equal(np.bincount(task), 30)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    # 4 blocks: 800 block means and 80000 deviations enter the variances below.
    blocks = W.reshape(4, 100, 200)
    within = blocks.var(axis=1, ddof=1).mean()
    assert within == pytest.approx(9 * 0.25, rel=0.03)
    assert blocks.mean(axis=1).var() + within * (1 - 1 / 100) == pytest.approx(9, rel=0.15)
    noise = y - np.einsum("ij,ij->i", X, W[task])
    assert noise.std() == pytest.approx(1, rel=0.03)


def test_group_sparse_tasks():
    X, y, task, W = make_group_sparse_tasks(200, coef=True, random_state=0)
    assert np.all(W[:, 4:] == 0)
    assert np.all((np.abs(W[:, :4]) >= 1) & (np.abs(W[:, :4]) <= 50))
    assert np.abs(W[:, :4]).mean() == pytest.approx(25.5, rel=0.06)
    assert np.mean(W[:, :4] > 0) == pytest.approx(0.5, abs=0.06)
    assert (y - np.einsum("ij,ij->i", X, W[task])).std() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("make", [make_low_rank_tasks, make_group_sparse_tasks])
def test_generators_test_set_and_seed(make):
    X, y, task, X_test, y_test, task_test, W = make(
        5, 4, 6, n_test=36, noise=0.0, coef=True, random_state=3
    )
    assert X_test.shape == (180, 6)
    np.testing.assert_array_equal(np.bincount(task_test), 36)
    for rows, target, of in ((X, y, task), (X_test, y_test, task_test)):
        np.testing.assert_allclose(target, np.einsum("ij,ij->i", rows, W[of]), atol=1e-12)
    # The training part does not depend on whether a test set is asked for.
    np.testing.assert_array_equal(make(5, 4, 6, noise=0.0, random_state=3)[0], X)
    assert not np.array_equal(make(5, 4, 6, random_state=4)[0], X)


def test_lsoa_like():
    X, Y, W, intercept = make_lsoa_like(coef=True, random_state=0)
    assert X.shape == (4299, 295) and Y.shape == (4299, 41)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    assert all(len(np.unique(row[row > 0])) == 1 for row in X[:20, :285])
    # 4299 * 41 labels: the standard deviation of the missing share is .0008.
    assert np.isnan(Y).mean() == pytest.approx(0.137, abs=0.003)
    known = ~np.isnan(Y)
    assert set(np.unique(Y[known])) == {0, 1}
    share = np.nanmean(Y, axis=0)
    assert share.min() > 0.1 and share.max() < 0.7
    # The labels follow the returned model: calibrated, outcome by outcome.
    probability = 1 / (1 + np.exp(-(X @ W.T + intercept)))
    expected = np.where(known, probability, 0).sum(axis=0)
    spread = np.sqrt(np.where(known, probability * (1 - probability), 0).sum(axis=0))
    assert np.all(np.abs(np.nansum(Y, axis=0) - expected) < 4 * spread)


def test_public_covariates_about_clinics_tell_of_their_models():
    """Slopes of age, fitted by every clinic, vary more between regions than by chance."""
    ratios = []
    for seed in range(10):
        clinics = make_clinics(200, (60, 80), random_state=seed)
        age, clinic = clinics.data["age"] - 58, clinics.data["clinic"]
        y = clinics.target - clinics.target.groupby(clinic).transform("mean")
        slope = (age * y).groupby(clinic).sum() / (age**2).groupby(clinic).sum()
        groups = [part for _, part in slope.groupby(clinics.tasks["region"])]
        ratios.append(f_oneway(*groups).statistic)  # 1 by chance
    assert np.mean(ratios) > 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_clinics(missing=1.0), "missing=1.0"),
        (lambda: make_clinics(n_rows=(5, 2)), r"n_rows=\(5, 2\)"),
        (lambda: make_low_rank_tasks(4, correlation=1.5), "correlation=1.5"),
        (lambda: make_group_sparse_tasks(4, n_informative=31), "n_informative=31"),
        (lambda: make_lsoa_like(50, n_continuous=0), "n_continuous=0"),
        (lambda: make_lsoa_like(50, missing=1.0), "missing=1.0"),
    ],
)
def test_generators_name_the_offending_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()
