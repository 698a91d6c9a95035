"""Noisy rounds of clipped updates, in which tasks move the centres around which they lie."""
