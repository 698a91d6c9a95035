"""Baselines that add noise to models: DP-AGGR and DP-MTRL."""

from .aggregation import DPAggregation, DPAggregationClassifier
from .relationship import DPRelationship, DPRelationshipClassifier

__all__ = [
    "DPAggregation",
    "DPAggregationClassifier",
    "DPRelationship",
    "DPRelationshipClassifier",
]
