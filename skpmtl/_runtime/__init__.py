"""Foundations: compiled loops, traced kernels, threads, versions of libraries."""
