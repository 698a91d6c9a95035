"""Estimators that reproduce the tables of papers: their options, and their baselines.

For everyday use take the estimators of ``skpmtl``, in which these options are settled.
"""

from . import fedmtl as fedmtl
from . import meta as meta
from . import mp_mtl as mp_mtl
from . import pmtl as pmtl
from .mean_regularized import (
    PPSGD,
    LocalOnly,
    LocalOnlyClassifier,
    PPSGDClassifier,
    PrivateFedAvg,
    PrivateFedAvgClassifier,
    PrivateFedProx,
    PrivateFedProxClassifier,
    PublishedMeanRegMTL,
    PublishedMeanRegMTLClassifier,
)
from .model_protected import (
    PublishedMPMTLGroupSparse,
    PublishedMPMTLGroupSparseClassifier,
    PublishedMPMTLLowRank,
    PublishedMPMTLLowRankClassifier,
)
from .output_perturbation import (
    DPAggregation,
    DPAggregationClassifier,
    DPRelationship,
    DPRelationshipClassifier,
)

__all__ = [
    "DPAggregation",
    "DPAggregationClassifier",
    "DPRelationship",
    "DPRelationshipClassifier",
    "LocalOnly",
    "LocalOnlyClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PublishedMPMTLGroupSparse",
    "PublishedMPMTLGroupSparseClassifier",
    "PublishedMPMTLLowRank",
    "PublishedMPMTLLowRankClassifier",
    "PublishedMeanRegMTL",
    "PublishedMeanRegMTLClassifier",
]


def __dir__():
    return __all__
