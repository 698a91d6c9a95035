"""Type hints of `skpmtl.reproduction`; written by ``python -m tests.stubs``."""

from skpmtl import LocalOnly as LocalOnly
from skpmtl import LocalOnlyClassifier as LocalOnlyClassifier
from skpmtl import PPSGD as PPSGD
from skpmtl import PPSGDClassifier as PPSGDClassifier
from skpmtl import PrivateFedAvg as PrivateFedAvg
from skpmtl import PrivateFedAvgClassifier as PrivateFedAvgClassifier
from skpmtl import PrivateFedProx as PrivateFedProx
from skpmtl import PrivateFedProxClassifier as PrivateFedProxClassifier
from skpmtl import PublishedMPMTLGroupSparse as PublishedMPMTLGroupSparse
from skpmtl import PublishedMPMTLGroupSparseClassifier as PublishedMPMTLGroupSparseClassifier
from skpmtl import PublishedMPMTLLowRank as PublishedMPMTLLowRank
from skpmtl import PublishedMPMTLLowRankClassifier as PublishedMPMTLLowRankClassifier
from skpmtl import PublishedMeanRegMTL as PublishedMeanRegMTL
from skpmtl import PublishedMeanRegMTLClassifier as PublishedMeanRegMTLClassifier

__all__ = [
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
