"""The model of one task as a file that people can read: a linear formula in the table's own units.

.. code-block:: text

    score = intercept + sum of coef * x over numbers + sum of coef[value] over categories

with ``fill`` in the place of what is missing. A task's medians, means and scales are in these
numbers, so that a file belongs to its task alone.
"""

import json
from pathlib import Path
from urllib.parse import quote

import numpy as np

from ..tables.ids import encode_ids, listed, locate

_KEYS = {"task", "task_column", "target", "classes", "intercept", "numbers", "categories"}


def write_models(folder, model, columns, tasks, target):
    """One JSON file for each of the tasks, from a fitted `Columns.pipeline`."""
    folder.mkdir(parents=True, exist_ok=True)
    imputer, _, scaler, estimator = (step for _, step in model.steps)
    tasks = encode_ids(tasks)[1]
    here, known = locate(tasks, estimator.tasks_), locate(tasks, scaler.tasks_)
    for task, k, j in zip(tasks.tolist(), here, known, strict=True):
        coef = estimator.coef_[k] / scaler.scale_[j]
        intercept = estimator.intercept_[k] - coef @ scaler.mean_[j]
        formula = _formula(coef, columns, imputer, j)
        classes = estimator.classes_.tolist() if hasattr(estimator, "classes_") else None
        about = {
            "task": task, "task_column": columns.task, "target": target, "classes": classes,
            "intercept": np.asarray(intercept).tolist(), **formula,
        }  # fmt: skip
        path = folder / f"{quote(str(task), safe=' ')}.json"
        path.write_text(json.dumps(about, indent=1), encoding="utf-8")


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


def read_models(path):
    """Models by task, of a folder or of one file.

    Raises ValueError if there is none, or a file is not a model.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    models = {}
    for file in files:
        try:
            model = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            model = None
        if not isinstance(model, dict) or set(model) != _KEYS:
            raise ValueError(f"{file} is not a model that fit or personalize wrote.")
        models[model["task"]] = model
    if not models:
        raise ValueError(f"{path} holds no models (files that end in .json).")
    return models


def predict_rows(models, table):
    """Predictions (n_rows,) of a DataFrame with the task column and all features.

    Each row has the model of its task, of `read_models`. Raises ValueError for tasks without a
    model.
    """
    first = next(iter(models.values()))
    codes, tasks = encode_ids(table[first["task_column"]])
    unknown = [task for task in tasks.tolist() if task not in models]
    if unknown:
        raise ValueError(
            f"There is no model for {listed(unknown)}: make one with python -m skpmtl personalize."
        )
    classes = first["classes"]
    out = np.empty(len(table), dtype=float if classes is None else object)
    for k, task in enumerate(tasks.tolist()):
        rows = np.flatnonzero(codes == k)
        score = _scores(models[task], table.iloc[rows])
        if classes is not None:
            best = score.argmax(axis=1) if score.ndim == 2 else (score > 0).astype(int)
            score = np.array(classes, dtype=object)[best]
        out[rows] = score
    return out


def _scores(model, rows):
    score = np.zeros((len(rows), *np.shape(model["intercept"]))) + np.asarray(model["intercept"])
    for name, term in model["numbers"].items():
        x = rows[name].astype(float).fillna(term["fill"]).to_numpy()
        score += np.multiply.outer(x, np.asarray(term["coef"]))
    for name, term in model["categories"].items():
        nothing = np.zeros(np.shape(model["intercept"]))
        words = rows[name].map(str, na_action="ignore").fillna(term["fill"])
        score += np.array([term["coef"].get(word, nothing) for word in words])
    return score
