"""How estimators and what they found are shown: HTML diagrams, tables of effects."""
