"""The mathematics: losses, quadratic terms, penalties, cones, the problem, duality."""
