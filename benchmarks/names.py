"""Classes by name, at this commit and at those that it is compared with."""

import skpmtl
import skpmtl.reproduction

HOMES = (skpmtl.reproduction, skpmtl)


def public(name):
    """A class of ``skpmtl.reproduction``, or else of ``skpmtl``."""
    home = skpmtl.reproduction if hasattr(skpmtl.reproduction, name) else skpmtl
    return getattr(home, name)
