"""Type hints of `skpmtl.metrics`; written by ``python -m tests.stubs``."""

from collections.abc import Callable
from typing import Any
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

def average_auc(
    y_true: Any,
    y_score: ArrayLike,
    task: Any = None,
    sample_weight: Any = None,
) -> float: ...

def nmse(y_true: Any, y_pred: ArrayLike, sample_weight: Any = None) -> float: ...

def task_scorer(scoring: Any) -> Callable[..., Any]: ...

def task_scores(
    estimator: Any,
    X: Any,
    y: Any,
    task: Any = None,
    *,
    scoring: Any = None,
    sample_weight: Any = None,
) -> Bunch: ...

__all__ = [
    "average_auc",
    "nmse",
    "task_scorer",
    "task_scores",
]
