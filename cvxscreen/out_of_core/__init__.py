"""Sources of chunks: where the rows of a matrix past memory come from."""
