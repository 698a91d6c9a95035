"""Private fits of tables in parts that hold whole tasks each, here or on Ray."""

from .fit import fit_shards

__all__ = ["fit_shards"]
