"""Formulas with bars, as in lme4: `mixed` and what it returns."""
