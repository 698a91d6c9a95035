"""Private mean-regularised multi-task learning (Hu, Wu and Smith, 2023)."""

from .estimators import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier

__all__ = ["PrivateMeanRegMTL", "PrivateMeanRegMTLClassifier"]
