"""Coordinate descent on the dual and conjugate gradients on its faces: for large sparse data."""
