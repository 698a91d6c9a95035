"""The algorithms of four papers as their texts have them, with the methods they compare with.

Each paper has a module, which shares nothing with the estimators of ``skpmtl`` but forms of tables,
the exchange of messages and the accounting of privacy. `LocalOnly` is the baseline of all of them:
the model of ``PrivateMTL``, every task alone.
"""

from ..baselines import LocalOnly, LocalOnlyClassifier
from . import fedmtl as fedmtl
from . import meta as meta
from . import mp_mtl as mp_mtl
from . import pmtl as pmtl
from .fedmtl import PublishedFedMTL, PublishedFedMTLNetwork
from .meta import (
    PublishedMetaInit,
    PublishedMetaInitClassifier,
    PublishedMetaNetwork,
)
from .mp_mtl import (
    PublishedMPMTL,
    PublishedMPMTLClassifier,
    PublishedOutputNoise,
    PublishedOutputNoiseClassifier,
)
from .pmtl import PublishedPMTL, PublishedPMTLClassifier, PublishedPMTLTorchClassifier

__all__ = [
    "LocalOnly",
    "LocalOnlyClassifier",
    "PublishedFedMTL",
    "PublishedFedMTLNetwork",
    "PublishedMPMTL",
    "PublishedMPMTLClassifier",
    "PublishedMetaInit",
    "PublishedMetaInitClassifier",
    "PublishedMetaNetwork",
    "PublishedOutputNoise",
    "PublishedOutputNoiseClassifier",
    "PublishedPMTL",
    "PublishedPMTLClassifier",
    "PublishedPMTLTorchClassifier",
]
__dir__ = __all__.copy
