"""The closed list of what may be written to files and sent to others."""

from dataclasses import fields
from itertools import product
from typing import ClassVar

__all__ = ["Public"]


class Public:
    """Type that may be written to files and sent to others.

    A dataclass whose fields are public numbers, text, arrays, or again `Public`. Deriving from this
    class is the declaration; nothing else is ever written. Types of arrays may be ``Annotated``
    with their dimensions, as `shapes_of` has them.

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

    def arrays(self, sizes):
        """Yield (name, array, allowed shapes) of the annotated arrays that are there."""
        for name, dims in annotated(self).items():
            if (value := getattr(self, name)) is not None:
                yield name, value, shapes_of(dims, sizes)


def annotated(kind):
    """What the types of the fields of a dataclass are ``Annotated`` with, by name."""
    known = {item.name: getattr(item.type, "__metadata__", ()) for item in fields(kind)}
    return {name: found for name, found in known.items() if found}


def shapes_of(dims, sizes):
    """Shapes of an array of these dimensions: each is a number, a range of what it may be, or the
    name of a number, or of a tuple of several, among the `sizes`. -> list of tuple"""
    named = (sizes[dim] if isinstance(dim, str) else dim for dim in dims)
    ways = (dim if isinstance(dim, range) else [dim] for dim in named)
    each = ([one if isinstance(one, tuple) else (one,) for one in way] for way in ways)
    return [sum(parts, ()) for parts in product(*each)]
