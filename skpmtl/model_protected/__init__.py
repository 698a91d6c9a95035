"""Model-protected multi-task learning (Liang et al., 2022)."""

from .estimators import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)

__all__ = [
    "MPMTLGroupSparse",
    "MPMTLGroupSparseClassifier",
    "MPMTLLowRank",
    "MPMTLLowRankClassifier",
]
