"""From the penalised part of a region to the margins, with at most one unpenalised coordinate.

``t_i = <s_i, w> + e_i b``. The rows are centred first, ``s_i - e_i x0``, which moves ``<x0, w>``
into the free coordinate ``beta``; ``w`` ranges over the region and ``beta`` over
`intercept_interval`. Where a ball knows its dual point, `fy_cut` bounds ``<s_i, w> + e_i b`` at
once, and the two are intersected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Losses
from cvxscreen.problem import Problem
from cvxscreen.regions.functionals import Functionals, Place, lifted
from cvxscreen.regions.fy_cut import Known, tightened
from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]
Rows = slice | NDArray[np.intp]

_ENDS_BISECTIONS = 24
_DOUBLINGS = 80
_FINE = 4e-3


class Spanning(Protocol):
    """What this module needs of a region."""

    @property
    def problem(self) -> Problem:
        """The problem whose optimum is inside."""
        ...

    @property
    def place(self) -> Place:
        """A point well inside."""
        ...

    @property
    def balls(self) -> Sequence[Known]:
        """The balls that the region is made of."""
        ...

    def span(self, wanted: Functionals) -> tuple[Array, Array]:
        """Range of linear functionals of the penalised coordinates, rounded outward."""
        ...


def margins_over(region: Spanning) -> tuple[Array, Array]:
    """``[low, high]`` of every margin at the optimum, two arrays (n,), rounded outward.

    With two or more unpenalised coordinates only the rows that do not touch them are bounded.
    """
    problem = region.problem
    free = np.flatnonzero(problem.quadratic.free)
    if len(free) == 0:
        return region.span(Functionals.rows(problem))
    touched = problem.free_columns.any(axis=1)
    if len(free) == 1 and touched.any():
        return _through_intercept(region)
    low, high = region.span(Functionals.rows(problem))
    return np.where(touched, -np.inf, low), np.where(touched, np.inf, high)


def _through_intercept(region: Spanning) -> tuple[Array, Array]:
    problem, place = region.problem, region.place
    e = problem.free_columns[:, 0]
    free = int(np.flatnonzero(problem.quadratic.free)[0])
    wanted = centred(problem, e, free)
    start = float(place.x[free])
    if wanted.pivot is not None:
        start += lifted(problem, wanted.pivot, place.x)[0]
    low, high = region.span(wanted)
    middle, reach = 0.5 * (low + high), 0.5 * (high - low)
    lowest, highest = intercept_interval(problem, middle, reach, e, start)
    with np.errstate(invalid="ignore"):
        below = np.where(e > 0, e * lowest, e * highest)
        above = np.where(e > 0, e * highest, e * lowest)
    below[e == 0], above[e == 0] = 0.0, 0.0
    tight_low, tight_high = -_sum_above(-low, -below), _sum_above(high, above)
    if np.isfinite(lowest) and np.isfinite(highest):
        for ball in region.balls:
            cut_low, cut_high = tightened(ball, wanted, (lowest, highest))
            tight_low = np.maximum(tight_low, cut_low)
            tight_high = np.minimum(tight_high, cut_high)
    return tight_low, tight_high


def _sum_above(first: Array, second: Array) -> Array:
    """``first + second`` rounded upwards; `second` may be infinite."""
    finite = np.where(np.isfinite(second), second, 0.0)
    total = first + finite + 4.0 * UNIT * (np.abs(first) + np.abs(finite))
    return np.where(np.isfinite(second), total, second)


def centred(problem: Problem, e: Array, free: int) -> Functionals:
    """The rows around their mean, or as they are where that is no shorter."""
    mean = problem.design.adjoint(e / max(float(e @ e), 1e-300))
    mean[free] = 0.0
    plain, moved = Functionals.rows(problem), Functionals.around(problem, mean)
    return moved if moved.norms.max(initial=0.0) < plain.norms.max(initial=0.0) else plain


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
    offset = float(problem.linear[problem.quadratic.free][0])
    slopes = np.maximum(np.where(np.isfinite(losses.lo), -losses.lo, 0.0),
                        np.where(np.isfinite(losses.hi), losses.hi, 0.0))
    rising, touched = e > 0, e != 0
    typical = float(np.median(reach[touched] / np.abs(e[touched]))) + 1e-300
    fixed = 4.0 * UNIT * (2.0 * (np.abs(middle) + reach) + np.abs(losses.b) + losses.e)
    spread = np.where(rising, reach + fixed, -reach - fixed)
    lean, growth = np.where(rising, np.abs(e), -np.abs(e)), gamma(problem.n + 8)
    bounded = bool(np.isfinite(losses.lo).all() and np.isfinite(losses.hi).all())
    weight = float(np.abs(e) @ slopes)

    def chosen(beta: float, side: float, rows: Rows, of: Losses) -> Array:
        """The slopes of some terms that make the sum largest (side 1) or smallest (side -1)."""
        ends = side * (spread[rows] + (8.0 * UNIT * abs(beta)) * lean[rows])
        below, above = of.subgradient(middle[rows] + e[rows] * beta + ends)
        return np.where(rising[rows] == (side > 0), above, below)

    def excluded(total: float, slope: Array, side: float) -> bool:
        """Whether the optimality sum, `total` with these slopes, is on the wrong side of 0."""
        size = weight if bounded else float(np.abs(e) @ np.maximum(np.abs(slope), slopes))
        noise = growth * (size + abs(offset)) + problem.imbalance
        return side * (total + offset + side * noise) < 0

    def edge(side: float) -> float:
        """Outer end of the interval: side 1 gives the lower end, -1 the upper one."""

        def look(beta: float) -> tuple[bool, Array]:
            slope = chosen(beta, side, slice(None), losses)
            return excluded(float(e @ slope), slope, side), slope

        out, slope = look(start)
        current = previous = (start, slope)
        step = max(1e-3 * abs(start), typical) * (side if out else -side)
        for _ in range(_DOUBLINGS):
            beta = previous[0] + step
            beyond, slope = look(beta)
            current = (beta, slope)
            if beyond != out:
                break
            previous, step = current, 2.0 * step
        else:
            if not out:
                return -side * float("inf")
        (inner, near), (outer, far) = (current, previous) if out else (previous, current)
        # e_i theta_i is monotone in beta: what agrees at both ends is settled in between.
        rows: Rows = slice(None)
        some, settled = losses, 0.0
        if bounded:
            rows = np.flatnonzero(near != far)
            some, settled = losses.take(rows), float(e @ np.where(near == far, near, 0.0))
        for _ in range(_ENDS_BISECTIONS):
            if abs(inner - outer) <= _FINE * typical:
                break
            mid = 0.5 * (inner + outer)
            slope = chosen(mid, side, rows, some)
            if excluded(settled + float(e[rows] @ slope), slope, side):
                outer = mid
            else:
                inner = mid
        return outer

    return edge(1.0), edge(-1.0)
