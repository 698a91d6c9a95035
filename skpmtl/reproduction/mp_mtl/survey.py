"""LSOA II, the survey of section 5.5, from local files.

The Second Longitudinal Study of Aging may not be redistributed. The paper does not list its 188
features and 41 outcomes, so that the columns are parameters here.
"""

from pathlib import Path

import numpy as np

from ...tables.files import TableFile

__all__ = ["read_survey", "survey_design"]


def survey_design(frame, continuous=()):
    """Features as in section 5.5.1: imputed, with dummy variables, in rows of unit length.

    Parameters
    ----------
    frame : DataFrame (n, c)
        Answers, NaN where they are missing.
    continuous : list of column names, default=()
        Their missing values become the mean of the column. Other columns must have two answers:
        one column of 0 and 1 where none is missing, and otherwise two, one for each answer, both 0
        where it is missing.

    Returns
    -------
    X : ndarray (n, d)
    names : list of str
        Of the d columns.

    Raises
    ------
    ValueError
        For a column with more than two answers that is not continuous, and one without answers.
    """
    columns, names = [], []
    for name in frame.columns:
        values = frame[name].to_numpy(dtype=float)
        known = ~np.isnan(values)
        if not known.any():
            raise ValueError(f"Column {name!r} has no answer: leave it out.")
        if name in continuous:
            columns.append(np.where(known, values, values[known].mean()))
            names.append(str(name))
            continue
        answers = np.unique(values[known])
        if len(answers) > 2:
            raise ValueError(
                f"Column {name!r} has more than two answers: name it in continuous=, or code it "
                "as binary columns."
            )
        if known.all():
            columns.append((values == answers[-1]).astype(float))
            names.append(str(name))
        else:
            for place in (0, -1):
                columns.append((values == answers[place]).astype(float))
                names.append(f"{name}={'first' if place == 0 else 'second'} answer")
    X = np.column_stack(columns)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(length > 0, length, 1.0), names


def read_survey(wave_2, wave_3, *, id_column, features, outcomes, continuous=()):
    """The two interviews of a survey, joined by person.

    Parameters
    ----------
    wave_2, wave_3 : path
        CSV, or SAS files (``.sas7bdat``, ``.xpt``), with NaN for answers that are missing.
    id_column : str
        Of the person, in both files. Persons in both files are kept.
    features : list of str
        Columns of `wave_2`.
    outcomes : list of str
        Columns of `wave_3`, with two answers each.
    continuous : list of str, default=()
        See `survey_design`.

    Returns
    -------
    X : ndarray (n, d)
    Y : ndarray (n, n_outcomes)
        0. for the smaller answer, 1. for the larger, NaN where it is missing: the wide form that
        estimators take.
    names : list of str
        Of the columns of X.
    """
    first = _read(wave_2, id_column, features)
    second = _read(wave_3, id_column, outcomes)
    persons = first.index.intersection(second.index)
    X, names = survey_design(first.loc[persons], continuous)
    answers = second.loc[persons].to_numpy(dtype=float)
    Y = np.full(answers.shape, np.nan)
    for j, name in enumerate(outcomes):
        known = ~np.isnan(answers[:, j])
        found = np.unique(answers[known, j])
        if len(found) != 2:
            raise ValueError(f"Outcome {name!r} must have two answers: leave it out.")
        Y[known, j] = answers[known, j] == found[1]
    return X, Y, names


def _read(path, id_column, columns):
    """Columns of numbers, by person; ids of a CSV file are text, exactly as written."""
    import pandas as pd

    is_sas = Path(path).suffix.lower() in (".xpt", ".sas7bdat")
    file = pd.read_sas(path) if is_sas else TableFile(path)
    names = file.columns if is_sas else file.names
    missing = [name for name in (id_column, *columns) if name not in names]
    if missing:
        raise ValueError(f"{Path(path).name} has no columns {missing}.")
    frame = file if is_sas else file.read(columns, {id_column: ()})
    return frame.set_index(id_column)[list(columns)]
