"""Private multi-task learning as published by Hu, Wu and Smith.

The rounds are plain: read `rounds.py` beside Algorithm 1 of the paper. For everyday use take
`skpmtl.PrivateMeanRegMTL`.

References
----------
S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and applications to federated
learning", TMLR, 2023; first version: OpenReview, ICLR 2022 submission.
"""

from .estimators import PublishedPMTL, PublishedPMTLClassifier
from .plan import PMTLPlan, theorem_1_noise_std
from .torch_estimators import PublishedPMTLTorchClassifier

__all__ = [
    "PublishedPMTL",
    "PublishedPMTLClassifier",
    "PublishedPMTLTorchClassifier",
    "PMTLPlan",
    "theorem_1_noise_std",
]
__dir__ = __all__.copy
