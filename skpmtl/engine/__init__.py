"""Parts of private fits that methods share: levels, pooled rounds, votes on evidence, spectra."""
