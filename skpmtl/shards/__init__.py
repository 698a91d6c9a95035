"""Private fits of tables that come in parts of whole tasks, in this process or on Ray."""

from ..exchange.models import load_models
from .fit import fit_shards

__all__ = ["fit_shards", "load_models"]
__dir__ = __all__.copy
