"""Type hints of `skpmtl.inspection`; written by ``python -m tests.stubs``."""

from collections.abc import Callable, Mapping
from typing import Any, Literal
from numpy.typing import ArrayLike
from typing_extensions import Self
from skpmtl import MTLPath as MTLPath

class ClientSimilarityDisplay:
    similarity: ArrayLike
    clients: ArrayLike
    ax_: Any
    figure_: Any
    image_: Any
    def __init__(self, *, similarity: ArrayLike, clients: ArrayLike | None = None) -> None: ...
    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self: ...
    def plot(
        self,
        ax: Any = None,
        *,
        order: ArrayLike | str | None = None,
        colorbar: bool = True,
        im_kw: dict[Any, Any] | None = None,
    ) -> Self: ...

class ConvergenceDisplay:
    epsilon: ArrayLike
    noise_std: ArrayLike
    scores: ArrayLike
    score_name: str
    axes_: Any
    figure_: Any
    lines_: Any
    def __init__(
        self,
        *,
        epsilon: ArrayLike,
        noise_std: ArrayLike,
        scores: ArrayLike | None = None,
        score_name: str | None = None,
    ) -> None: ...
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        task: Any = None,
        *,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...

class EffectsDisplay:
    effects: Any
    axes_: Any
    figure_: Any
    errorbars_: Any
    noise_bars_: Any
    def __init__(self, *, effects: Any) -> None: ...
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...

class PathDisplay:
    alphas: ArrayLike
    errors: ArrayLike
    norms: ArrayLike
    sizes: ArrayLike
    chosen: float
    error_name: str
    size_name: str
    axes_: Any
    figure_: Any
    def __init__(
        self,
        *,
        alphas: ArrayLike,
        errors: ArrayLike | None = None,
        norms: ArrayLike | None = None,
        sizes: ArrayLike | None = None,
        chosen: float | None = None,
        error_name: str = "validated error",
        size_name: str = "size",
    ) -> None: ...
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        path: MTLPath | None = None,
        *,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    @classmethod
    def from_path(cls, path: MTLPath, *, ax: Any = None, **kwargs: Any) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...

class PrivacyUtilityDisplay:
    epsilons: ArrayLike
    scores: ArrayLike
    baselines: Mapping[Any, Any]
    score_name: str
    ax_: Any
    figure_: Any
    errorbar_: Any
    baseline_lines_: Any
    def __init__(
        self,
        *,
        epsilons: ArrayLike,
        scores: ArrayLike,
        baselines: Mapping[Any, Any] | None = None,
        score_name: str | None = None,
    ) -> None: ...
    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Mapping[Any, Any],
        *,
        metric: Callable[..., Any] | None = None,
        baselines: Mapping[Any, Any] | None = None,
        score_name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(
        self,
        ax: Any = None,
        *,
        name: str = "private",
        errorbar_kw: dict[Any, Any] | None = None,
        baseline_kw: dict[Any, Any] | None = None,
    ) -> Self: ...

class RelationDisplay:
    coef: ArrayLike
    noise_std: Any
    covariates: Any
    features: Any
    axes_: Any
    figure_: Any
    errorbars_: Any
    def __init__(
        self,
        *,
        coef: ArrayLike,
        noise_std: Any = None,
        covariates: Any = None,
        features: Any = None,
    ) -> None: ...
    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...

class TaskIntervalDisplay:
    estimate: ArrayLike
    reach: ArrayLike
    tasks: ArrayLike
    name: str
    reference: float
    ax_: Any
    figure_: Any
    errorbar_: Any
    def __init__(
        self,
        *,
        estimate: ArrayLike,
        reach: ArrayLike,
        tasks: ArrayLike | None = None,
        name: str | None = None,
        reference: float | None = None,
    ) -> None: ...
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        coef: str | int = "intercept",
        *,
        x: ArrayLike | None = None,
        tasks: ArrayLike | str | None = None,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...

class TaskRelatednessDisplay:
    relatedness: ArrayLike
    tasks: ArrayLike
    measure: str
    outlier: ArrayLike
    ax_: Any
    figure_: Any
    image_: Any
    def __init__(
        self,
        *,
        relatedness: ArrayLike,
        tasks: ArrayLike | None = None,
        measure: str = "relatedness",
        outlier: ArrayLike | None = None,
    ) -> None: ...
    @classmethod
    def from_coef(
        cls,
        coef: Any,
        *,
        tasks: ArrayLike | None = None,
        measure: Literal["correlation", "cosine"] = "correlation",
        outlier: ArrayLike | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        measure: Literal["correlation", "cosine"] = "correlation",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(
        self,
        ax: Any = None,
        *,
        order: ArrayLike | str | None = None,
        colorbar: bool = True,
        im_kw: dict[Any, Any] | None = None,
    ) -> Self: ...

__all__ = [
    "ClientSimilarityDisplay",
    "ConvergenceDisplay",
    "EffectsDisplay",
    "PathDisplay",
    "PrivacyUtilityDisplay",
    "RelationDisplay",
    "TaskIntervalDisplay",
    "TaskRelatednessDisplay",
]
