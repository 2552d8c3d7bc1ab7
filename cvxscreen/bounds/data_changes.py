"""How far an optimum can move when terms lose their weight: one ball, known without a solve.

Let ``(x, theta)`` belong to a problem and let the weights of its terms change from ``c_i`` to
``c_i w_i``. The slopes ``w_i theta_i`` are dual feasible for the new problem, its Fenchel-Young
terms are ``w_i FY_i``, and its dual point's primal point differs by ``M^{-1} A' ((1 - w) theta)``.
So the midpoint ball of the new problem is known from the old pair. At an exact optimum

::

    centre  x - 1/2 M^{-1} A' ((w - 1) theta),    radius  1/2 |A' ((w - 1) theta)|_{M^{-1}}

Okumura, Suzuki and Takeuchi (2015) bound incremental changes of the data by such balls; the
midpoint ball halves their radius and needs no exact optimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.bounds.regions.functionals import outward
from cvxscreen.core.duality import Point, margin_error

__all__ = ["left_out_margins", "takes_left_out"]

Array = NDArray[np.float64]


def takes_left_out(point: Point) -> bool:
    """Whether `left_out_margins` applies: every coordinate penalised, nothing but losses and M."""
    problem = point.problem
    plain = problem.side is None and problem.penalty is None and problem.quadratic.matrix is None
    return plain and not problem.quadratic.free.any() and bool(np.isfinite(point.gap))


def left_out_margins(point: Point) -> tuple[Array, Array]:
    """For every term an interval of its margin ``<a_i, x>`` at the optimum without that term.

    With ``G`` the sum of the Fenchel-Young terms, ``d = x - x_theta`` and all norms in the metric
    of ``M^{-1}`` the optimum without term i lies in the ball

    ::

        centre  (x + x_theta + theta_i M^{-1} a_i) / 2 radius  sqrt(G + |d - theta_i M^{-1} a_i|^2 /
        4)  <=  sqrt(G + (|d| + |theta_i| |a_i|)^2 / 4)

    (`cvxscreen.bounds.midpoint_ball` of the pair with ``theta_i = 0``). At an exact optimum the
    interval is from ``t_i`` to ``t_i + theta_i |a_i|^2``, and a term with ``theta_i = 0`` changes
    nothing.

    Parameters
    ----------
    point : Point
        Any primal and dual feasible point of a problem for which `takes_left_out` holds; the closer
        to its optimum, the shorter the intervals.

    Returns
    -------
    low, high : arrays, shape (n,)
        Rounded outward.
    """
    problem = point.problem
    n_i = problem.norms * (1.0 + gamma(problem.d + 8))
    size = np.abs(point.theta)
    other = problem.design.forward(point.x_theta)
    pulled = point.theta * problem.norms**2
    middle = 0.5 * (point.margins + other + pulled)
    error = 0.5 * (
        point.margin_error
        + margin_error(problem, point.x_theta)
        + n_i * (point.dual_error + problem.drift)
        + gamma(2 * problem.d + 24) * np.abs(pulled)
    ) + 4.0 * UNIT * (np.abs(point.margins) + np.abs(other) + np.abs(pulled))
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + problem.drift
    away = up(1.0, 16) * (distance + size * n_i)
    radius = up(1.0, 16) * np.sqrt(up(point.terms) + 0.25 * away * away)
    return outward(middle, up(1.0, 8) * (n_i * radius + error))
