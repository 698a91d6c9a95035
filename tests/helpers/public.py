"""Public objects by name: those of the front door, and those of ``skpmtl.reproduction``."""

import skpmtl
from skpmtl import reproduction

NAMES = [*skpmtl.__all__, *reproduction.__all__]


def public(name):
    return getattr(reproduction if name in reproduction.__all__ else skpmtl, name)
