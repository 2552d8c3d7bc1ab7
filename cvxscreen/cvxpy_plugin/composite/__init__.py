"""Losses beside another convex part that is kept as it is."""
