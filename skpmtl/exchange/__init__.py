"""Protocol between curator and tasks, its billboards, files and journal.

Read `skpmtl.exchange.protocol.run` first: it is the only place where contributions are summed and
noise is added.
"""

from .billboard import Billboard
from .plan import Plan
from .protocol import Population, PublicDraw, Query, QuerySpec, TaskSide, run
from .sums import clipped_sum

__all__ = [
    "Billboard",
    "Plan",
    "Population",
    "PublicDraw",
    "Query",
    "QuerySpec",
    "TaskSide",
    "clipped_sum",
    "run",
]
__dir__ = __all__.copy
