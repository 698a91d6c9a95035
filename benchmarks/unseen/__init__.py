"""Defaults on unseen tables: every estimator at its defaults on shapes of tables, against alone."""
