"""Choice of parameters within one privacy budget."""

from .private import PrivateSearch

__all__ = ["PrivateSearch"]
__dir__ = __all__.copy
