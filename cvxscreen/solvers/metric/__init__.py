"""Metric learning: its task, its methods, one value of lambda and a path over it."""
