"""Data for studies of multi-task learning: School, LEAF's files and the papers' generators."""

from .examples import make_clinics, make_survey
from .generators import make_group_sparse_tasks, make_low_rank_tasks, make_lsoa_like
from .leaf import load_leaf
from .school import fetch_school, load_school

__all__ = [
    "fetch_school",
    "load_leaf",
    "load_school",
    "make_clinics",
    "make_group_sparse_tasks",
    "make_low_rank_tasks",
    "make_lsoa_like",
    "make_survey",
]
