"""Models that every task fits alone: under a prior, around a centre."""
