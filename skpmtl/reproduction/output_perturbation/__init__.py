"""Baselines that add noise to models: DP-AGGR and DP-MTRL."""

from .estimators import (
    DPAggregation,
    DPAggregationClassifier,
    DPRelationship,
    DPRelationshipClassifier,
)

__all__ = ["DPAggregation", "DPAggregationClassifier", "DPRelationship", "DPRelationshipClassifier"]
