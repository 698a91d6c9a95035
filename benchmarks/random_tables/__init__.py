"""Random tables: any estimator against what tasks have by themselves, on tables from a law."""
