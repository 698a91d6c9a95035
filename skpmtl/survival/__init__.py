"""Time to event: hazards of many tasks, learnt jointly."""

from .estimators import SurvivalMTL

__all__ = ["SurvivalMTL"]


def __dir__():
    return __all__
