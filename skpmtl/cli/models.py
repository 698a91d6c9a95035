"""The model of one task as a file that people can read: a linear formula in the table's own units.

.. code-block:: text

    score = intercept + sum of coef * x over numbers + sum of coef[value] over categories

with ``fill`` in the place of what is missing. ``posterior`` of a classifier is for probabilities:
mean minus model, and covariance, of all coefficients in the order of the file (values of
categories, numbers, intercept). A task's medians are in these numbers, so that a
file belongs to its task alone.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from scipy.special import softmax

from ..tables.ids import encode_ids, listed, locate
from ..task.mixture import averaged_scores
from .columns import Columns

_KEYS = {
    "task",
    "task_column",
    "target",
    "classes",
    "intercept",
    "numbers",
    "categories",
    "posterior",
}
# Bytes of a file name without its ending: eCryptfs, the narrowest in use, has 143 with it.
_LONGEST = 120


def file_name(task):
    """Name of the file of a task, different for different tasks, for any text.

    Letters and digits of any script, spaces and ``-_.`` are as in the id, and all else
    percent-encoded. A name of more than 120 bytes is cut, and a digest of the id put at its end.
    """
    name = "".join(
        c if c.isalnum() or c in " -_." else "".join(f"%{byte:02X}" for byte in c.encode())
        for c in task
    )
    if len(name.encode()) > _LONGEST:
        digest = hashlib.sha256(task.encode()).hexdigest()[:32]
        name = name.encode()[: _LONGEST - len(digest) - 1].decode(errors="ignore")
        name = f"{name}~{digest}"  # no short name has a tilde
    return f"{name}.json"


def write_models(folder, model, columns, tasks):
    """One JSON file for each of the tasks, from a fitted `Columns.pipeline`.

    Raises FileExistsError where there is one already.
    """
    imputer, _, estimator = (step for _, step in model.steps)
    tasks, scale = encode_ids(tasks)[1], np.array(columns.scales())
    here, known = locate(tasks, estimator.tasks_), locate(tasks, imputer.tasks_)
    for task, k, j in zip(tasks.tolist(), here, known, strict=True):
        coef, intercept = estimator.coef_[k] / scale, estimator.intercept_[k]
        formula = _formula(coef, columns, imputer, j)
        classes = estimator.classes_.tolist() if hasattr(estimator, "classes_") else None
        about = {
            "task": task,
            "task_column": columns.task,
            "target": columns.target,
            "classes": classes,
            "intercept": np.asarray(intercept).tolist(),
            **formula,
            "posterior": _posterior(estimator, k, scale),
        }
        # Not over another one, where a file system takes "a" and "A" for the same.
        with (folder / file_name(task)).open("x", encoding="utf-8") as file:
            file.write(json.dumps(about, indent=1))


def _formula(coef, columns, imputer, j):
    """Coefficients (..., features) by column; features are categories first, then numbers."""
    values = iter(np.moveaxis(np.asarray(coef), -1, 0).tolist())
    categories = {
        name: {"fill": imputer.statistics_[name][j], "coef": {word: next(values) for word in words}}
        for name, words in columns.categories.items()
    }
    numbers = {
        name: {"fill": float(imputer.statistics_[name][j]), "coef": next(values)}
        for name in columns.numbers
    }
    return {"numbers": numbers, "categories": categories}


def _posterior(estimator, k, scale):
    """Of a classifier that keeps it, in units of the table; otherwise None."""
    if not (hasattr(estimator, "classes_") and "covariance_" in vars(estimator)):
        return None
    covariance = estimator.covariance_[k]
    if not np.isfinite(covariance).all():
        return None
    units = np.diag([*1 / scale, 1.0])  # x / scale and 1, from x and 1
    return {"covariance": (units.T @ covariance @ units).tolist()}


def read_models(path):
    """Models by task, of a folder or of one file, and the columns that they take.

    Raises ValueError if there is none, a file is not a model, or they are of several fits.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    models, columns = {}, None
    for file in files:
        try:
            model = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            model = None
        if not isinstance(model, dict) or set(model) != _KEYS:
            raise ValueError(f"{file} is not a model that fit or personalize wrote.")
        words = {name: list(term["coef"]) for name, term in model["categories"].items()}
        found = Columns(
            model["task_column"],
            model["target"],
            list(model["numbers"]),
            words,
            classes=model["classes"],
        )
        if columns not in (None, found):
            raise ValueError(f"{path} holds models of several fits, with other columns.")
        models[model["task"]], columns = model, found
    if not models:
        raise ValueError(f"{path} holds no models (files that end in .json).")
    return models, columns


def predict_rows(models, columns, table):
    """Predictions of a DataFrame with the task column and all features. -> (n_rows,), probabilities

    Each row has the model of its task; `models` and `columns` are of `read_models`. Probabilities
    are of the classes, (n_rows, n_classes), averaged over the posterior of the task's model, see
    ``predict_proba`` of the estimators; None for numbers. Raises ValueError for tasks without a
    model.
    """
    codes, tasks = encode_ids(table[columns.task])
    unknown = [task for task in tasks.tolist() if task not in models]
    if unknown:
        raise ValueError(
            f"There is no model for {listed(unknown)}: make one with python -m skpmtl personalize."
        )
    shape = np.shape(models[tasks[0]]["intercept"])
    score, average = np.empty((len(table), *shape)), np.empty((len(table), *shape))
    for k, task in enumerate(tasks.tolist()):
        rows = np.flatnonzero(codes == k)
        score[rows], average[rows] = _scores(models[task], table.iloc[rows])
    if columns.classes is None:
        return score, None
    best = score.argmax(axis=1) if score.ndim == 2 else (score > 0).astype(int)
    average = average if score.ndim == 2 else np.column_stack([np.zeros(len(table)), average])
    return np.array(columns.classes, dtype=object)[best], softmax(average, axis=1)


def _scores(model, rows):
    """Scores, and those of averaged probabilities, of rows of one task."""
    X, coef = [], []
    for name, term in model["categories"].items():
        words = rows[name].fillna(term["fill"])
        X += [words == word for word in term["coef"]]
        coef += term["coef"].values()
    for name, term in model["numbers"].items():
        X.append(rows[name].fillna(term["fill"]))
        coef.append(term["coef"])
    X = np.column_stack([*X, np.ones(len(rows))]).astype(float)
    coef = np.array([*coef, model["intercept"]])
    score, posterior = X @ coef, model["posterior"]
    if posterior is None:
        return score, score
    variance = ((X @ np.array(posterior["covariance"])) * X).sum(axis=-1).T
    return score, averaged_scores(score, variance, len(model["classes"]))
