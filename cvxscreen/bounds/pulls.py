"""Intervals of the pulls ``-A' slopes - q`` around slopes that lie near the optimal ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import Point
from cvxscreen.problem import Problem
from cvxscreen.regions.boxes import Interval
from cvxscreen.regions.functionals import outward
from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]


def around(problem: Problem, slopes: Array, reach: Array) -> Interval:
    """``-A' slopes - q -+ reach`` with the rounding of the pass."""
    pull = -(problem.design.adjoint(slopes) + problem.linear)
    size = float(np.linalg.norm(slopes)) * problem.column_sizes * (1.0 + gamma(problem.n + 8))
    error = (problem.design.adjoint_factor + gamma(8)) * size + 4.0 * UNIT * np.abs(problem.linear)
    return outward(pull, reach + error)


def around_point(point: Point, reach: Array) -> Interval:
    """The same at the point's own slopes, whose pull is known: no pass is made."""
    problem = point.problem
    pull = -(point.pull + problem.linear)
    # The error of ``A' theta`` is part of `dual_error`, in the metric of 1/M.
    error = point.dual_error * np.sqrt(problem.quadratic.diagonal) * (1.0 + 8.0 * UNIT)
    error += 8.0 * UNIT * (np.abs(problem.linear) + np.abs(pull))
    return outward(pull, reach + error)
