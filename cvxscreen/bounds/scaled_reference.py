"""What one reference says about every C at once, without another pass over the data.

At ``C = s C0`` the losses are multiplied by ``s`` and the pair ``(x0, s theta0)`` is feasible.
With ``o = -M^{-1} q`` its dual primal point is ``o + s (x_theta - o)``, so

::

    gap(s)    = s T + 1/2 ||p - s k||^2,          p = x0 - o,  k = x_theta - o,  T = sum_i FY_i
    centre(s) = (x0 + o + s k) / 2
    r(s)^2    = s T + 1/4 ||p - s k||^2           (the midpoint ball)

Worked instances. With ``o = 0`` and an exact reference: centre ``(1+s)/2 w0``, radius
``|1-s|/2 ||w0||`` (DVI, BT1). With ``x0 = x_theta``: ``r^2 = s eps + (1-s)^2/4 ||w0||^2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen.bounds.regions import Place
from cvxscreen.bounds.regions.functionals import inner, length
from cvxscreen.core.balance import imbalance_cost
from cvxscreen.core.duality import Point

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScaledReference:
    """The pairs ``(x0, s theta0)`` for all ``s > 0``.

    Attributes
    ----------
    point : Point
    origin : array, shape (d,)
        ``o``; on unpenalised coordinates equal to x0.
    step : array, shape (d,)
        ``k``; 0 on unpenalised coordinates.
    terms : float
        Upper bound of T, for losses whose scaling by ``s`` is rounded too.
    error : float
        Bound in the norm of M on the error of ``k``.
    origin_error : float
        The same for ``o``.
    """

    point: Point
    origin: Array
    step: Array
    terms: float
    error: float
    origin_error: float

    @classmethod
    def of(cls, point: Point) -> ScaledReference | None:
        """The ray of `point`, or None where scaling theta leaves the dual feasible set."""
        problem = point.problem
        quadratic, losses = problem.quadratic, problem.losses
        free = quadratic.free
        if problem.penalty is not None:
            return None
        if problem.linear[free].any() or not point.feasible or not np.isfinite(point.gap):
            return None
        repair = _repair(point)
        if not np.isfinite(repair):
            return None
        origin = -quadratic.solve(problem.linear)
        origin_error = 0.0
        if problem.linear.any() or problem.drift > 0.0:
            size = length(problem, origin)[1]
            conditioned = 1.0 if quadratic.matrix is None else float(
                np.abs(quadratic.dense()).sum()
            ) / quadratic.floor
            origin_error = gamma(4 * problem.d + 8) * conditioned * size + problem.drift
        origin[free] = point.x[free]
        rounding = 16.0 * UNIT * np.abs(point.theta)
        reach = np.abs(point.margins - losses.b) + losses.e + losses.q * np.abs(point.theta)
        reach = reach + point.margin_error
        return cls(
            point=point,
            origin=origin,
            step=np.where(free, 0.0, point.x_theta - origin),
            terms=up(point.terms + up(float(rounding @ reach), 300), 8),
            error=up(point.dual_error + repair + up(float(rounding @ problem.norms), 300)),
            origin_error=origin_error,
        )

    def apart(self, s: float) -> float:
        """Upper bound of ``||p - s k||``."""
        problem = self.point.problem
        step = self.point.x - self.origin - s * self.step
        rounding = 4.0 * UNIT * length(problem, np.abs(self.point.x) + np.abs(self.origin))[1]
        rounding += 4.0 * UNIT * s * length(problem, np.abs(self.step))[1]
        return up(length(problem, step)[1] + rounding + self.rounding_error(s))

    def rounding_error(self, s: float) -> float:
        """Bound of the error of ``o + s k``."""
        return up(s * self.error + abs(1.0 - s) * self.origin_error)

    def gap(self, s: float) -> float:
        """Upper bound of the duality gap of the pair at ``s``."""
        return up(s * self.terms + 0.5 * square(self.apart(s)))

    def radius(self, s: float) -> float:
        """Of the midpoint ball at ``s``, for the centre as computed."""
        squared = up(s * self.terms + 0.25 * square(self.apart(s)))
        return up(float(np.sqrt(squared)) + 0.5 * self.rounding_error(s) + self.point.problem.drift)

    def products(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """``||p - k||^2``, ``<p - k, k>`` and ``||k||^2`` as computed, and their errors."""
        problem, point = self.point.problem, self.point
        moved = np.where(problem.quadratic.free, 0.0, point.x - point.x_theta)
        dd, dk, kk = (
            inner(problem, u, v)
            for u, v in ((moved, moved), (moved, self.step), (self.step, self.step))
        )
        return (dd[0], dk[0], kk[0]), (dd[1], dk[1], kk[1])

    def places(self) -> tuple[Place, Place]:
        """``x0 + o`` and ``k`` with their margins; no pass where ``x0 = x_theta`` and ``o = 0``.

        On unpenalised coordinates they mean nothing.
        """
        problem, point = self.point.problem, self.point
        forward = problem.design.forward
        both = Place(point.x, point.margins)
        if problem.linear.any():
            both = Place(point.x + self.origin, forward(point.x + self.origin))
        elif not (point.x - point.x_theta).any():
            return both, both
        return both, Place(self.step, forward(self.step))


def _repair(point: Point) -> float:
    """How far, in the norm of M, an exactly balanced dual point may be from theta's."""
    problem = point.problem
    columns = problem.free_columns
    if not columns.shape[1]:
        return 0.0
    residual = columns.T @ point.theta
    residual_error = (
        gamma(problem.n + 8) * (np.abs(columns).T @ np.abs(point.theta)) + problem.imbalance
    )
    target = np.zeros(columns.shape[1])
    return imbalance_cost(problem, point.theta, residual, residual_error, target, problem.norms)
