"""The closed list of what may be written to files and sent to others."""

from dataclasses import fields
from typing import ClassVar

__all__ = ["Public"]


class Public:
    """Type that may be written to files and sent to others.

    A dataclass whose fields are public numbers, text, arrays, or again `Public`. Deriving from this
    class is the declaration; nothing else is ever written.

    Attributes
    ----------
    constraints : dict of str to list
        Values of the fields that are allowed, as in ``_parameter_constraints`` of scikit-learn.
    """

    constraints: ClassVar[dict[str, list]] = {}
    known: ClassVar[dict[str, type["Public"]]] = {}  # by name

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        old = Public.known.setdefault(cls.__name__, cls)
        if old.__module__ == cls.__module__:  # others of its name do not take its place
            Public.known[cls.__name__] = cls

    def written(self):
        """What is written: the fields, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}
