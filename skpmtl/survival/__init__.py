"""Time to event: hazards of many tasks, learnt jointly."""

from .estimators import SurvivalMTL

__all__ = ["SurvivalMTL"]
__dir__ = __all__.copy
