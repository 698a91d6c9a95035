"""Private fits of tables in parts that hold whole tasks each, here or on Ray."""

from ..exchange.models import load_models
from .fit import fit_shards

__all__ = ["fit_shards", "load_models"]
