"""Data for studies of multi-task learning: School, plays, LEAF's files and papers' generators."""

from .examples import make_clinics
from .generators import make_group_sparse_tasks, make_low_rank_tasks, make_lsoa_like
from .leaf import load_leaf
from .school import fetch_school, load_school
from .shakespeare import CHARACTERS, fetch_shakespeare, load_shakespeare

__all__ = [
    "CHARACTERS",
    "fetch_school",
    "fetch_shakespeare",
    "load_leaf",
    "load_school",
    "load_shakespeare",
    "make_clinics",
    "make_group_sparse_tasks",
    "make_low_rank_tasks",
    "make_lsoa_like",
]
__dir__ = __all__.copy
