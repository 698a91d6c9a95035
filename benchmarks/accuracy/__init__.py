"""Accuracy: generated and public tables, intervals, probabilities, and two commits side by side."""
