"""Public objects by name: those of the front door, and those of ``skpmtl.reproduction``."""

import skpmtl
from skpmtl import reproduction

NAMES = [*skpmtl.__all__, *reproduction.__all__]


def public(name):
    papers = reproduction.meta, reproduction.mp_mtl, reproduction.pmtl
    homes = (skpmtl, reproduction, *papers)
    return next(getattr(home, name) for home in homes if name in home.__all__)
