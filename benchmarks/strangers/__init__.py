"""The table of strangers: every estimator at its defaults on shapes of tables, against alone."""
