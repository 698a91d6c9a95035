"""One estimator for several structures: every task averages over them by its own evidence."""

from .estimators import PrivateMTL, PrivateMTLClassifier

__all__ = ["PrivateMTL", "PrivateMTLClassifier"]
