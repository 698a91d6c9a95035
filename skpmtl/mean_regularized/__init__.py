"""Private mean-regularised multi-task learning (Hu, Wu and Smith, 2023), and its baselines."""

from .baselines import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
)
from .estimators import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier

__all__ = [
    "LocalOnly",
    "LocalOnlyClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
]
