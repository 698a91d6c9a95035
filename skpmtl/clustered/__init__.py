"""Clustered multi-task learning (Jacob, Bach and Vert, 2008)."""

from .estimators import ClusteredMTL, ClusteredMTLClassifier

__all__ = ["ClusteredMTL", "ClusteredMTLClassifier"]
