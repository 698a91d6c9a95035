"""Measurements; README.rst has their commands."""
