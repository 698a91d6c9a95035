"""Other solvers, side by side with this package in one run."""
