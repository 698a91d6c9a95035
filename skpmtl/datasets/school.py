"""The School data: examination scores in 139 schools."""

import os
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from .download import fetched

SCHOOL_ENV = "SKPMTL_SCHOOL"
SCHOOL_FILE = "school.mat"
SCHOOL_URL = (
    "https://raw.githubusercontent.com/jiayuzhou/MALSAR/"
    "ca3d55b878cc4113f0d9603e8ac46538aeb1ecd9/data/school.mat"
)
SCHOOL_SHA256 = "57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068"
SCHOOL_TABLE = Path(__file__).with_name("data") / "school.npz"
SCHOOL_FEATURES = (
    *("year_a", "year_b", "year_c"),
    *("pct_free_school_meals", "pct_vr_band_1"),
    *("girl", "boy"),
    *("vr_band_3", "vr_band_1", "vr_band_2"),
    *("ethnic_eswi", "ethnic_african", "ethnic_arab", "ethnic_bangladeshi"),
    *("ethnic_caribbean", "ethnic_greek", "ethnic_indian", "ethnic_pakistani"),
    *("ethnic_south_east_asian", "ethnic_turkish", "ethnic_other"),
    *("school_mixed", "school_boys", "school_girls"),
    *("school_maintained", "school_church_of_england", "school_roman_catholic"),
    "constant",
)
_PERCENTAGES = [SCHOOL_FEATURES.index(name) for name in SCHOOL_FEATURES if "pct_" in name]
_SCHOOL_DESCR = """\
School data set (Inner London Education Authority)
--------------------------------------------------
Examination scores of 15,362 pupils from 139 secondary schools in inner London, in three
years (1985 to 1987). One task is one school: predict the score of its pupils.

:Rows: 15,362 pupils, 22 to 251 a school, sorted by school
:Tasks: 139 schools, labelled 0 to 138 in the order of the file
:Target: examination score, whole numbers from 1 to 70
:Features: 28, of which 25 are 0/1 indicators

===========  =============================================================================
column       meaning
===========  =============================================================================
0 to 2       year of the examination (indicators; the file does not say in which order)
3            percentage of the school's pupils eligible for free school meals, 0 to 100
4            percentage of the school's pupils in verbal reasoning band 1, 0 to 100
5, 6         girl, boy
7 to 9       the pupil's own verbal reasoning band: 3 (lowest), 1 (highest), 2
10 to 20     ethnic group, eleven indicators; the first is English, Scottish, Welsh, Irish
21 to 23     mixed, boys', girls' school
24 to 26     maintained, Church of England, Roman Catholic school
27           the constant 1
===========  =============================================================================

Columns 21 to 27 are constant within each school, columns 3 and 4 within each school and
year. The indicator groups each add up to one (a few pupils have no verbal reasoning band),
so the pooled matrix has rank 23. The file has no column names: the ones used here follow
the published coding of the survey and agree with the data (means, scores, and the columns
that determine each other).

The numbers are those of the file distributed with the MALSAR toolbox (J. Zhou, J. Chen, J. Ye);
the multi-task form goes back to A. Argyriou, T. Evgeniou, M. Pontil, Convex multi-task feature
learning, Machine Learning 73, 2008. Origin and terms are in ``datasets/data/README.rst``.
"""


def load_school(
    path: str | PathLike[str] | None = None,
    *,
    scale: Literal["public"] | None = None,
    as_frame: bool = False,
) -> Bunch:
    """Load the School data set, which comes with the package; nothing is downloaded.

    Parameters
    ----------
    path : str or path-like, default=None
        A MATLAB file ``school.mat`` of the MALSAR toolbox to read instead. None takes the file that
        the environment variable ``SKPMTL_SCHOOL`` names, if it is set, else the table of the
        package.
    scale : {None, "public"}, default=None
        "public" divides the two percentages (columns 3 and 4) by 100. That range is known
        without looking at the data, so the scaling releases nothing about any school, and
        rows of unit length then keep the indicators visible: with raw percentages these
        two columns make up nearly all of a row's length, which costs about .03 of
        normalised error. ``sklearn.preprocessing.normalize(school.data)`` afterwards gives
        the rows of unit length (constant column included) with which this package states
        its School results; normalising uses nothing but the row itself.
    as_frame : bool, default=False
        Return pandas objects; ``data`` then has the task column "school" first.

    Returns
    -------
    school : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (15362, 28), or DataFrame of shape (15362, 29)
            Pupils, sorted by school.
        target : ndarray or Series of shape (15362,)
            Examination scores, 1 to 70.
        task : ndarray or Series of shape (15362,)
            School of each pupil, 0 to 138.
        frame : DataFrame of shape (15362, 30)
            Task, features and target; only with ``as_frame=True``, else None.
        feature_names : list of str
            Names of the 28 features.
        target_names : list of str
            ``["exam_score"]``.
        DESCR : str
            What the columns mean and where the data come from.
        filename : str
            The file that was read.

    Raises
    ------
    FileNotFoundError
        If a file was named that is not there.
    ValueError
        If the file is not the School data set, or `scale` is unknown.

    Examples
    --------
    >>> from skpmtl.datasets import load_school
    >>> school = load_school(as_frame=True)
    >>> school.frame.shape, school.task.nunique()
    ((15362, 30), 139)
    """
    if scale not in (None, "public"):
        raise ValueError(f'scale={scale!r} is unknown; use None or "public".')
    for source, named in (("path", path), (SCHOOL_ENV, os.environ.get(SCHOOL_ENV))):
        if named:
            if not Path(named).is_file():
                raise FileNotFoundError(f"{source}={os.fspath(named)!r} is not a file.")
            filename = os.fspath(named)
            X, y, sizes = _read_cells(named)
            break
    else:
        filename = os.fspath(SCHOOL_TABLE)
        with np.load(SCHOOL_TABLE) as table:
            X, y, sizes = table["features"], table["score"], table["sizes"]
    X, y = X.astype(np.float64), y.astype(np.float64)
    if scale == "public":
        X[:, _PERCENTAGES] /= 100.0
    task = np.repeat(np.arange(len(sizes)), sizes)
    names, frame = list(SCHOOL_FEATURES), None
    if as_frame:
        import pandas as pd

        frame = pd.DataFrame(X, columns=names)
        frame.insert(0, "school", task)
        frame["exam_score"] = y
        X, y, task = frame.drop(columns="exam_score"), frame["exam_score"], frame["school"]
    return Bunch(
        data=X,
        target=y,
        task=task,
        frame=frame,
        feature_names=names,
        target_names=["exam_score"],
        DESCR=_SCHOOL_DESCR,
        filename=filename,
    )


def fetch_school(
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    *,
    scale=None,
    as_frame=False,
) -> Bunch:
    """Load the School data set from the file of the MALSAR toolbox, downloaded once.

    Only needed for the file itself: :func:`load_school` has the same numbers without a network.
    The file (45 kB) is checked against its known SHA-256 and kept.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder of the copy; None is scikit-learn's data home (``~/scikit_learn_data``).
    download_if_missing : bool, default=True
        False raises an OSError rather than use the network.
    scale, as_frame
        As in :func:`load_school`.

    Returns
    -------
    school : :class:`~sklearn.utils.Bunch`
        As :func:`load_school`.

    Raises
    ------
    OSError
        If the file is missing and may not be, or cannot be, downloaded, or the download
        does not have the expected checksum.
    """
    otherwise = "load_school() has the same numbers without a file"
    kept = fetched(
        SCHOOL_URL, SCHOOL_FILE, SCHOOL_SHA256, data_home, download_if_missing, otherwise
    )
    return load_school(kept, scale=scale, as_frame=as_frame)


def _read_cells(path):
    """The MATLAB file of the toolbox -> features, scores, pupils of each school."""
    try:
        from scipy.io import loadmat  # with all of its formats

        content = loadmat(path)
        cells = content["X"].ravel(), content["Y"].ravel()
        sizes = [len(y) for y in cells[1]]
        X, y = np.vstack(cells[0]), np.concatenate([y.ravel() for y in cells[1]])
        if [len(x) for x in cells[0]] != sizes or X.shape[1] != len(SCHOOL_FEATURES):
            raise ValueError(f"cells of shape {X.shape} and {y.shape}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not the School data set of MALSAR (cells X and Y, one "
            f"per school, {len(SCHOOL_FEATURES)} columns): {error}"
        ) from error
    return X, y, sizes
