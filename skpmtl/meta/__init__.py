"""Private meta-learning (Li et al., 2020)."""

from .estimators import DPMetaInit, DPMetaInitClassifier

__all__ = ["DPMetaInit", "DPMetaInitClassifier"]
