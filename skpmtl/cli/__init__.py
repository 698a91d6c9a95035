"""What ``python -m skpmtl`` does."""
