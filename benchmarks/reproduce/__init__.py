"""Scripts that reproduce figures and tables of the papers; CSV files go to results/."""
