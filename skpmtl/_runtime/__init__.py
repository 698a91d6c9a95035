"""Foundations: compiled loops, SIMD registers, threads, versions of libraries."""
