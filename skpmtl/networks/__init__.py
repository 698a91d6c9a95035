"""Networks of torch: frozen features, and networks in private rounds and in meta-learning.

torch, of the extra ``skpmtl[torch]``, is imported when one of them is fitted.
"""

from .._runtime.names import name_methods as _name_methods
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
__dir__ = __all__.copy


_name_methods(*(globals()[name] for name in __all__ if hasattr(globals()[name], "fit")))
