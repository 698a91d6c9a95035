"""One task's side of the hierarchical model: priors, and the posterior of its own rows."""
