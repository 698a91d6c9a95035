"""Type hints of `skpmtl.datasets`; written by ``python -m tests.stubs``."""

from os import PathLike
from typing import Any, Literal
from numpy.random import RandomState
from sklearn.utils import Bunch

CHARACTERS: str

def fetch_school(
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    *,
    scale: Any = None,
    as_frame: Any = False,
) -> Bunch: ...

def fetch_shakespeare(
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    *,
    length: Any = 80,
    step: Any = 1,
    characters: Any = ...,
) -> Bunch: ...

def load_leaf(
    path: str | PathLike[str],
    *,
    vectorizer: Any = None,
    vocabulary: Any = None,
    labels: Any = None,
    characters: str | None = None,
    images: str | PathLike[str] | None = None,
    image_size: int = 84,
) -> Bunch: ...

def load_school(
    path: str | PathLike[str] | None = None,
    *,
    scale: Literal["public"] | None = None,
    as_frame: bool = False,
) -> Bunch: ...

def load_shakespeare(
    path: str | PathLike[str],
    *,
    length: int = 80,
    step: int = 1,
    characters: str = ...,
) -> Bunch: ...

def make_clinics(
    n_tasks: int = 120,
    n_rows: tuple[Any, ...] = ...,
    *,
    missing: float = 0.12,
    random_state: int | RandomState | None = None,
) -> Bunch: ...

def make_group_sparse_tasks(
    n_tasks: Any = 320,
    n_samples: Any = 30,
    n_features: Any = 30,
    *,
    n_informative: int = 4,
    coef_range: tuple[Any, ...] = ...,
    noise: Any = 1.0,
    n_test: Any = 0,
    coef: Any = False,
    random_state: Any = None,
) -> tuple[Any, ...]: ...

def make_low_rank_tasks(
    n_tasks: Any = 320,
    n_samples: Any = 30,
    n_features: Any = 30,
    *,
    n_blocks: int = 4,
    correlation: float = 0.999,
    variance: float = 120.0,
    interleave: bool = False,
    noise: float = 1.0,
    n_test: int = 0,
    coef: bool = False,
    random_state: int | RandomState | None = None,
) -> tuple[Any, ...]: ...

def make_lsoa_like(
    n_samples: Any = 4299,
    n_features: Any = 295,
    n_tasks: Any = 41,
    *,
    n_continuous: int = 10,
    missing: float = 0.137,
    coef: bool = False,
    random_state: int | RandomState | None = None,
) -> tuple[Any, ...]: ...

def make_survey(
    n_samples: Any = 4299,
    n_features: Any = 295,
    n_tasks: Any = 41,
    *,
    missing: Any = 0.137,
    random_state: Any = None,
) -> Bunch: ...

__all__ = [
    "CHARACTERS",
    "fetch_school",
    "fetch_shakespeare",
    "load_leaf",
    "load_school",
    "load_shakespeare",
    "make_clinics",
    "make_group_sparse_tasks",
    "make_low_rank_tasks",
    "make_lsoa_like",
    "make_survey",
]
