"""Fits across sites on NVFlare (extra ``skpmtl[nvflare]``): rows and personal models stay put.

Curator and sites hold the same `Study`, the public settings. A site answers the curator's
queries with bounded contributions of its tasks; the curator adds them up, adds noise, and sends
the result to all sites, who make their own models of it. See the guide on federation for the
commands; `controller`, `executor` and `jobs` are the only modules that import NVFlare.
"""

from ..exchange.models import load_models
from .study import Study

__all__ = ["Study", "load_models"]
__dir__ = __all__.copy
