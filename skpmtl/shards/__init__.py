"""Private fits of tables in parts that hold whole tasks each, here or on Ray."""

from .fit import fit_shards
from .models import load_models

__all__ = ["fit_shards", "load_models"]
