"""Real multilevel tables: our estimators by epsilon, against mixed models and other peers."""
