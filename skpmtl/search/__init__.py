"""Choice of parameters within one privacy budget."""

from .private import PrivateSearch

__all__ = ["PrivateSearch"]


def __dir__():
    return __all__
