"""Model-protected multi-task learning as published by Liang et al.

The rounds are plain: read `rounds.py` next to Algorithms 1 to 3 of the paper. For everyday use
take `skpmtl.MPMTLLowRank` and `skpmtl.MPMTLGroupSparse`.

References
----------
J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected multi-task learning",
IEEE TPAMI 44(2), 2022. Its appendices A to H are not part of the text that this module follows.
"""

from .estimators import PublishedMPMTL, PublishedMPMTLClassifier
from .output_perturbation import PublishedOutputNoise, PublishedOutputNoiseClassifier
from .plan import MPMTLPlan
from .survey import read_survey, survey_design
from .wishart import PublishedWishart, SymmetrizedWishart, published_wishart_delta_bound

__all__ = [
    "MPMTLPlan",
    "PublishedMPMTL",
    "PublishedMPMTLClassifier",
    "PublishedOutputNoise",
    "PublishedOutputNoiseClassifier",
    "PublishedWishart",
    "SymmetrizedWishart",
    "published_wishart_delta_bound",
    "read_survey",
    "survey_design",
]
__dir__ = __all__.copy
