"""Data for studies of multi-task learning: School, LEAF's files and the papers' generators."""

from .generators import make_group_sparse_tasks, make_low_rank_tasks, make_lsoa_like
from .leaf import load_leaf
from .school import load_school

__all__ = [
    "load_leaf",
    "load_school",
    "make_group_sparse_tasks",
    "make_low_rank_tasks",
    "make_lsoa_like",
]
