"""Curator and tasks: what they say to each other, and what is kept of it.

Read `skpmtl.exchange.protocol.run` first: it is the only place where contributions are summed and
noise is added.
"""

from .board import Board
from .half import Half
from .plan import Plan
from .protocol import Ask, Draw, Population, Question, Total, run
from .sums import clipped_sum

__all__ = [
    "Ask", "Board", "Draw", "Half", "Plan", "Population", "Question", "Total", "clipped_sum", "run",
]  # fmt: skip
