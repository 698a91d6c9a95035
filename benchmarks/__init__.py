"""Measurements: ``python -m benchmarks.run peers``, ``python -m benchmarks.startup``."""
