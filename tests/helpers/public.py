"""Public objects by name: those of the front door, and those of ``skpmtl.reproduction``."""

import skpmtl
from skpmtl import reproduction

NAMES = skpmtl.__all__  # methods as papers print them have tests of their own


def public(name):
    return getattr(skpmtl if name in NAMES else reproduction, name)
