"""FedMTL: clients with different sets of tasks, aggregated by similarity."""

from .aggregation import fedmtl_aggregate
from .datasets import make_fedmtl_clients
from .estimators import FedMTLClassifier, FedMTLRegressor

__all__ = ["FedMTLClassifier", "FedMTLRegressor", "fedmtl_aggregate", "make_fedmtl_clients"]
__dir__ = __all__.copy
