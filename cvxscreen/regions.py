"""Regions that provably contain the optimum, and the interval of every margin over them.

* `Ball`: ``||x - c||_M <= r``; the margin ``<a_i, x>`` lies in ``<a_i, c> -+ r ||a_i||_{M^-1}``.
* `Everywhere`: no information; every interval is the whole line.
* With unpenalised coordinates a ball bounds the penalised part only. For one such coordinate (an
  intercept) the optimality condition ``sum_i e_i theta_i = 0`` bounds it: see `intercept_interval`.

All intervals are rounded outward here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import margin_error
from cvxscreen.problem import Problem
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ball:
    """``{x : ||x - centre||_M <= radius}``, the optimum of `problem` proven inside.

    Attributes
    ----------
    problem : Problem
    bound : str
        Name of the theorem it rests on.
    centre : array, shape (d,)
    margins : array, shape (n,)
        ``<a_i, centre>``.
    radius : float
        Rounded outward.
    gap : float
        Duality gap of the point it came from.
    """

    problem: Problem
    bound: str
    centre: Array
    margins: Array
    radius: float
    gap: float

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, two arrays (n,), rounded outward."""
        problem = self.problem
        free = np.flatnonzero(problem.quadratic.free)
        if len(free) == 0:
            reach = up(self.radius) * problem.norms * (1.0 + gamma(problem.d + 8))
            reach = reach + margin_error(problem, self.centre)
            return outward(self.margins, reach)
        touched = problem.free_columns.any(axis=1)
        if len(free) == 1 and touched.any():
            return intercept_intervals(self)
        low, high = np.full(problem.n, -np.inf), np.full(problem.n, np.inf)
        reach = up(self.radius) * problem.norms * (1.0 + gamma(problem.d + 8))
        inner, outer = outward(self.margins, reach + margin_error(problem, self.centre))
        low[~touched], high[~touched] = inner[~touched], outer[~touched]
        return low, high

    def contains(self, x: Array) -> bool:
        """Whether `x` is in the ball (penalised coordinates)."""
        step = np.where(self.problem.quadratic.free, 0.0, np.asarray(x) - self.centre)
        return self.problem.quadratic.norm(step) <= self.radius


@dataclass(frozen=True, eq=False)
class Everywhere:
    """No information: used where no theorem applies."""

    problem: Problem
    bound: str
    gap: float

    def intervals(self) -> tuple[Array, Array]:
        """The whole line for every margin."""
        return np.full(self.problem.n, -np.inf), np.full(self.problem.n, np.inf)

    def contains(self, x: Array) -> bool:
        """Always true."""
        return True


Region = Ball | Everywhere


def outward(middle: Array, reach: Array) -> tuple[Array, Array]:
    """``middle -+ reach`` with the two subtractions rounded outward."""
    slack = 2.0 * UNIT * (np.where(np.isfinite(middle), np.abs(middle), 0.0) + reach)
    return middle - reach - slack, middle + reach + slack


# -- one unpenalised coordinate -----------------------------------------------------------------

_BISECTIONS = 24
_DOUBLINGS = 80


def intercept_intervals(ball: Ball) -> tuple[Array, Array]:
    """Margins' intervals when one coordinate is unpenalised.

    ``t_i = <s_i, w> + e_i b``. The rows are centred first, ``s_i - e_i x0``, which moves
    ``<x0, w>`` into the free coordinate ``beta``; ``w`` ranges over the ball and ``beta`` over
    `intercept_interval`.
    """
    problem = ball.problem
    e = problem.free_columns[:, 0]
    free = int(np.flatnonzero(problem.quadratic.free)[0])
    weights = e / max(float(e @ e), 1e-300)
    x0 = problem.design.adjoint(weights)
    x0[free] = 0.0
    w = np.where(problem.quadratic.free, 0.0, ball.centre)
    # ||s_i - e_i x0||^2 in the metric of M^-1, its cancellation charged.
    cross = problem.design.forward(problem.quadratic.solve(x0))
    length = float(np.sqrt(max(float(x0 @ problem.quadratic.solve(x0)), 0.0)))
    square = problem.norms**2 - 2.0 * e * cross + e**2 * length**2
    noise = 4.0 * gamma(problem.d + 16) * (problem.norms + np.abs(e) * length) ** 2
    if problem.quadratic.matrix is not None:
        floor = problem.quadratic.floor
        noise = noise + 4.0 * gamma(4 * problem.d + 16) * (
            problem.sizes + np.abs(e) * float(np.linalg.norm(x0))
        ) ** 2 * (float(np.abs(problem.quadratic.dense()).sum()) / floor + 1.0) / floor
    norms = np.minimum(np.sqrt(np.maximum(square, 0.0) + noise), problem.norms + np.abs(e) * length)
    if not norms.max(initial=0.0) < problem.norms.max(initial=0.0):
        x0, norms = np.zeros_like(x0), problem.norms
    lift = float(x0 @ w)
    error = margin_error(problem, ball.centre) + np.abs(e) * (
        gamma(problem.d + 8) * float(np.abs(x0) @ np.abs(w)) + 4.0 * UNIT * abs(lift)
    )
    middle = ball.margins - e * (ball.centre[free] + lift)
    error = error + 4.0 * UNIT * (np.abs(ball.margins) + np.abs(e) * abs(ball.centre[free] + lift))
    reach = up(ball.radius) * norms * (1.0 + gamma(problem.d + 8)) + error
    start = float(ball.centre[free] + lift)
    lowest, highest = intercept_interval(problem, middle, reach, e, start)
    with np.errstate(invalid="ignore"):
        ends = np.sort(np.column_stack([e * lowest, e * highest]), axis=1)
    ends[e == 0] = 0.0
    low, _ = outward(middle + ends[:, 0], reach)
    _, high = outward(middle + ends[:, 1], reach)
    return low, high


def intercept_interval(
    problem: Problem, middle: Array, reach: Array, e: Array, start: float
) -> tuple[float, float]:
    """An interval that contains every optimal value of the one unpenalised coordinate.

    At the optimum ``0 = q_b + sum_i e_i theta_i`` with ``theta_i`` a subgradient of ``f_i`` at
    ``t_i`` in ``middle_i -+ reach_i + e_i beta``. The largest possible sum is non-decreasing in
    ``beta``, so every ``beta`` where it is negative lies below the optimum; the smallest possible
    sum bounds it from above. Bisection keeps the outer end, so stopping early is safe.
    """
    losses = problem.losses
    free = problem.quadratic.free
    offset = float(problem.linear[free][0])
    slopes = np.maximum(np.where(np.isfinite(losses.lo), -losses.lo, 0.0),
                        np.where(np.isfinite(losses.hi), losses.hi, 0.0))
    rising = e > 0
    touched = e != 0
    typical = float(np.median(reach[touched] / np.abs(e[touched]))) + 1e-300

    def extreme(beta: float, side: float) -> float:
        """Largest (side 1) or smallest (side -1) value of the optimality sum at `beta`."""
        ends = middle + e * beta + np.where(rising, side, -side) * reach
        slack = 4.0 * UNIT * (
            np.abs(middle) + np.abs(e * beta) + reach + np.abs(losses.b) + losses.e
        )
        ends = ends + np.where(rising, side, -side) * slack
        low, high = losses.subgradient(ends)
        chosen = np.where(rising == (side > 0), high, low)
        noise = gamma(problem.n + 8) * float(
            np.abs(e) @ np.maximum(np.abs(chosen), slopes) + abs(offset)
        ) + problem.imbalance
        return float(e @ chosen) + offset + side * noise

    def edge(side: float) -> float:
        """Outer end of the interval: side 1 gives the lower end, -1 the upper one."""

        def excluded(beta: float) -> bool:
            return side * extreme(beta, side) < 0

        step = max(1e-3 * abs(start), typical)
        inner = outer = start
        if excluded(start):
            for _ in range(_DOUBLINGS):
                inner = inner + side * step
                if not excluded(inner):
                    break
                outer, step = inner, 2.0 * step
        else:
            for _ in range(_DOUBLINGS):
                outer = outer - side * step
                if excluded(outer):
                    break
                inner, step = outer, 2.0 * step
            else:
                return -side * float("inf")
        for _ in range(_BISECTIONS):
            if abs(inner - outer) <= 1e-3 * typical:
                break
            mid = 0.5 * (inner + outer)
            if excluded(mid):
                outer = mid
            else:
                inner = mid
        return outer

    return edge(1.0), edge(-1.0)
