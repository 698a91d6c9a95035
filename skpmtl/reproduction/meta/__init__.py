"""Differentially private meta-learning as published by Li, Khodak, Caldas and Talwalkar.

The rounds are plain: read `rounds.py` next to Algorithm 1 of the paper. For everyday use take
`skpmtl.DPMetaInit`.

References
----------
J. Li, M. Khodak, S. Caldas, A. Talwalkar, "Differentially private meta-learning", ICLR, 2020.

R. Bassily, V. Feldman, K. Talwar, A. Thakurta, "Private stochastic convex optimization with optimal
rates", NeurIPS, 2019: the noisy descent within a task.
"""

from .estimators import PublishedMetaInit, PublishedMetaInitClassifier
from .network import PublishedMetaNetwork
from .plan import MetaRoundsPlan, noisy_sgd_settings, replacement_delta

__all__ = [
    "MetaRoundsPlan",
    "PublishedMetaInit",
    "PublishedMetaInitClassifier",
    "PublishedMetaNetwork",
    "noisy_sgd_settings",
    "replacement_delta",
]
__dir__ = __all__.copy
