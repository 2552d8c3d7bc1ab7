"""A ``cvxpy.Problem`` read as a regularised sum of losses, or the reason why it is none."""
