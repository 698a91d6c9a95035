"""Types of parameters that many estimators share."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING or sys.version_info >= (3, 11):
    from typing import Self
else:
    Self = Any

__all__ = ["Adjacency", "ClassWeight", "Curator", "Level", "RandomState", "Self"]

Adjacency: TypeAlias = Literal["replace-one", "zero-out"]
ClassWeight: TypeAlias = Mapping | Literal["balanced"] | None
Curator: TypeAlias = Literal["trusted", "servers"] | tuple | list
Level: TypeAlias = Literal["task", "population"]
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
