"""Optimality recomputed on the full data, by formulas that share nothing with the solvers."""
