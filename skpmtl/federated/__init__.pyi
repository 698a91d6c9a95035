"""Type hints of `skpmtl.federated`; written by ``python -m tests.stubs``."""

from os import PathLike
from typing import Any
from numpy.typing import ArrayLike
from typing_extensions import Self

class Study:
    name: str
    estimator: str
    tasks: list[Any] | int
    features: int | list[Any]
    parameters: dict[Any, Any]
    classes: list[Any]
    n_rows: int
    timeout: float
    enrolment: float
    secure_sum: int
    noise_sites: list[Any]
    servers: dict[Any, Any]
    seed: int
    min_sites: int
    min_tasks: int
    least: Any
    n_features: Any
    feature_names: Any
    class_labels: Any
    def __init__(
        self,
        name: str,
        estimator: str,
        tasks: list[Any] | int,
        features: int | list[Any],
        parameters: dict[Any, Any] = ...,
        classes: list[Any] | None = None,
        n_rows: int | None = None,
        timeout: float = 60.0,
        enrolment: float = 300.0,
        secure_sum: int | None = None,
        noise_sites: list[Any] | None = None,
        servers: dict[Any, Any] | None = None,
        seed: int | None = None,
        min_sites: int | None = None,
        min_tasks: int | None = None,
    ) -> None: ...
    def build(self) -> Any: ...
    @classmethod
    def load(cls, path: Any) -> Self: ...
    def population(self) -> Any: ...
    def positions(self, names: Any) -> Any: ...
    def published(self, billboard: Any) -> Any: ...
    def room(self, total: Any) -> Any: ...
    def sum_range(self, statistic: Any, public: Any) -> Any: ...
    def to_json(self) -> Any: ...

def load_models(folder: str | PathLike[str], tasks: ArrayLike | None = None) -> Any: ...

__all__ = [
    "Study",
    "load_models",
]
