"""The best point of a segment between two evaluated points, without another pass over the data."""

from __future__ import annotations

import numpy as np

from cvxscreen.duality import Point, reference_point


def blend(good: Point, far: Point) -> Point:
    """The point of ``[good.x, far.x]`` with the lowest objective, and the better dual point.

    The objective is convex along the segment and margins interpolate linearly, so a golden-section
    search costs O(n) a step. Used when a prediction was far too narrow and its reduced problem ran
    away: the step is kept only as far as it helps the full problem.
    """
    problem = good.problem
    quadratic, losses = problem.quadratic, problem.losses
    step, dt = far.x - good.x, far.margins - good.margins

    def slope(size: float) -> float:
        x = good.x + size * step
        theta = losses.slope(good.margins + size * dt)
        return quadratic.inner(quadratic.apply(x) + problem.linear, step) + float(dt @ theta)

    low, high = 0.0, 1.0
    for _ in range(40):
        mid = 0.5 * (low + high)
        low, high = (mid, high) if slope(mid) < 0 else (low, mid)
    dual = far if far.primal - far.gap > good.primal - good.gap else good
    x = good.x + low * step
    if not np.isfinite(x).all():
        x = good.x
    return reference_point(problem, x, dual.theta, dual.multipliers)
