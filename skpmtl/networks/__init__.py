"""Networks of torch: frozen features, and networks in private rounds and in meta-learning.

torch, of the extra ``skpmtl[torch]``, is imported when one of them is fitted.
"""

from .billboard import NetworkBillboard
from .estimators import TorchMeanRegClassifier, TorchMeanRegRegressor
from .features import TorchFeatures
from .meta import InitBillboard, TorchMetaInitClassifier, TorchMetaInitRegressor

__all__ = [
    "InitBillboard",
    "NetworkBillboard",
    "TorchFeatures",
    "TorchMeanRegClassifier",
    "TorchMeanRegRegressor",
    "TorchMetaInitClassifier",
    "TorchMetaInitRegressor",
]
