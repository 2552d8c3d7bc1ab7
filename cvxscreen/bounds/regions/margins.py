"""From the penalised part of a region to the margins, with at most one unpenalised coordinate.

``t_i = <a_i, w> + e_i b``. The rows are centred first, ``a_i - e_i x0``, which moves ``<x0, w>``
into the free coordinate ``beta``; ``w`` ranges over the region and ``beta`` over
`intercept_interval`, where its optimality condition ``sum_i e_i theta_i = 0`` can hold. Where a
ball knows its dual point, `tightened` bounds ``<a_i, w> + e_i b`` at once, and the two are
intersected (`margins_over`).

**A cut for the intercept and the margins together** (`tightened`). A ball from a pair
``(x, theta)`` comes with more than its radius: for every optimum,

::

    ||w* - c||_M^2 + sum_i FY_i(t_i*, theta_i) <= r^2.

For any slopes ``s_i`` of the losses ``FY_i(t, theta_i) >= (s_i - theta_i) t + f_i*(theta_i) -
f_i*(s_i)``, so with ``step = s - theta``, ``sigma = sum_i e_i step_i`` and the pivot
``x0 = sum_i step_i a_i / sigma`` (its penalised part)

::

    ||delta||_M^2 + K + sigma beta <= r^2,     delta = w* - c,   beta = b* - b_c + <x0, delta>,
    K = sum_i step_i t_i^c + f_i*(theta_i) - f_i*(s_i),          t^c the margins at (c, b_c),
    t_i* - t_i^c = <a_i - e_i x0, delta> + e_i beta.

Maximising over ``||delta|| <= r`` bounds every margin on one side. The slopes are those of the
losses at ``(c, b_c +- Delta)``; any ``Delta > 0`` is valid, a good one is found on a grid.

Worked instances. ``Delta -> infinity`` makes every changed row lean against the intercept; at
``Delta -> 0`` and an optimal ball ``step`` vanishes and there is no cut. A cut whose ``sigma`` is
small against one weight would be made of rounding and is discarded.

`Functionals` are what a region is asked to bound: without an intercept the rows, ``z_i = a_i``;
with one the centred rows, and in `tightened` rows around the mean of those that changed piece.

Proofs: ``docs/theory.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen.core.duality import imbalance_cost, margin_error
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem, Quadratic

Array = NDArray[np.float64]


def outward(middle: Array, reach: Array) -> tuple[Array, Array]:
    """``middle -+ reach`` with the two subtractions rounded outward."""
    rounding = 2.0 * UNIT * (np.where(np.isfinite(middle), np.abs(middle), 0.0) + reach)
    return middle - reach - rounding, middle + reach + rounding


class Place(NamedTuple):
    """A vector of the primal space with its margins ``A x`` as computed.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
    """

    x: Array
    margins: Array


def inner(problem: Problem, u: Array, v: Array) -> tuple[float, float]:
    """``<u, M v>`` over the penalised coordinates and a bound of its rounding error."""
    form = problem.quadratic
    value = form.inner(form.apply(u), v)
    if isinstance(form, Quadratic):
        size = float(np.abs(u) @ (form.diagonal * np.abs(v)))
        if form.matrix is not None:
            size += float(np.abs(u) @ (np.abs(form.matrix) @ np.abs(v)))
        return value, gamma(2 * problem.d + 8) * size
    # A norm is rounded up by what its square may be off; the error of a product is their mean.
    excess = [max(square(form.norm(w)) - form.inner(form.apply(w), w), 0.0) for w in (u, v)]
    return value, 1.01 * float(np.sqrt(excess[0] * excess[1]))


def length(problem: Problem, u: Array) -> tuple[float, float]:
    """A lower and an upper bound of ``||u||_M`` over the penalised coordinates."""
    squared, error = inner(problem, u, u)
    low = float(np.sqrt(max(squared - error, 0.0))) * (1.0 - 2.0 * UNIT)
    return low, float(np.sqrt(squared + error)) * (1.0 + 2.0 * UNIT)


def lifted(problem: Problem, pivot: Array, x: Array) -> tuple[float, float]:
    """``<pivot, x>`` over the penalised coordinates and a bound of its rounding error."""
    bent = np.where(problem.quadratic.free, 0.0, x)
    if isinstance(problem.quadratic, Quadratic):
        size = float(np.abs(pivot) @ np.abs(bent))
        return float(pivot @ bent), gamma(problem.d + 8) * size
    return inner(problem, pivot, bent)


def condition(problem: Problem) -> float:
    """An upper bound of the condition number of ``M`` where solving with it is not a division."""
    if problem.quadratic.matrix is None:
        return 1.0
    return float(np.abs(problem.quadratic.dense()).sum()) / problem.quadratic.floor + 1.0


class Functionals(NamedTuple):
    """``z_i``: the penalised part of the rows, each moved by ``e_i`` times a pivot.

    Attributes
    ----------
    problem : Problem
    norms : array, shape (n,)
        Upper bounds of ``||z_i||_{M^-1}``.
    pivot : array, shape (d,), optional
        ``x0`` in ``z_i = a_i - e_i x0``; without it the functionals are the rows themselves.
    """

    problem: Problem
    norms: Array
    pivot: Array | None = None

    @classmethod
    def rows(cls, problem: Problem) -> Functionals:
        """The rows of the design, so that the functionals are the margins."""
        return cls(problem, problem.norms * (1.0 + gamma(problem.d + 8)))

    @classmethod
    def around(cls, problem: Problem, pivot: Array) -> Functionals:
        """The rows moved by ``e_i pivot``, for a problem with one unpenalised coordinate."""
        e, form = problem.free_columns[:, 0], problem.quadratic
        represented = form.solve(pivot)
        cross, cross_error = problem.design.forward(represented), margin_error(problem, represented)
        squared, squared_error = inner(problem, represented, represented)
        size = float(np.sqrt(max(squared, 0.0) + squared_error))
        total = problem.norms**2 - 2.0 * e * cross + e**2 * squared
        # The cancellation in this sum is charged in full.
        rounding = 4.0 * gamma(problem.d + 16) * (problem.norms + np.abs(e) * size) ** 2
        rounding = rounding + 2.0 * np.abs(e) * cross_error + e**2 * squared_error
        if form.matrix is not None:
            reach = problem.sizes + np.abs(e) * float(np.linalg.norm(pivot))
            solved = 4.0 * gamma(4 * problem.d + 16) * condition(problem) / form.floor
            rounding = rounding + solved * reach**2
        norms = np.sqrt(np.maximum(total, 0.0) + rounding) * (1.0 + gamma(problem.d + 8))
        return cls(problem, norms, pivot)

    def at(self, place: Place) -> tuple[Array, Array]:
        """``<z_i, x>`` over the penalised coordinates and bounds of the errors, arrays (n,)."""
        problem, margins = self.problem, place.margins
        error = margin_error(problem, place.x)
        free = problem.free_index
        if len(free) == 0:
            return margins, error
        # The unpenalised part and the pivot's part are taken off.
        rest = problem.free_columns @ place.x[free]
        rounding = gamma(len(free) + 4) * (np.abs(problem.free_columns) @ np.abs(place.x[free]))
        if self.pivot is not None:
            e = problem.free_columns[:, 0]
            lift, error_of_lift = lifted(problem, self.pivot, place.x)
            rest, rounding = rest + e * lift, rounding + np.abs(e) * error_of_lift
        return margins - rest, error + rounding + 4.0 * UNIT * (np.abs(margins) + np.abs(rest))


Rows = slice | NDArray[np.intp]
# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.97 to 1.08 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
_DOUBLINGS = 80
"""Of a step that looks for an intercept beyond the interval's end; more give infinity."""
_ENDS_BISECTIONS, _FINE = 24, 4e-3
"""The ends of the interval are searched from outside, so often or to this share of its scale: what
is left is too wide by that, and holds all the same."""
_GRID: Array = np.exp2(np.arange(-6, 10))
"""Values of ``Delta`` that are tried, in units of `_Base.unit`; any is valid."""
_MULTIPLES = (1.0, 4.0)
"""Of the best of these, the ones a cut is made for."""
_SMALLEST = 1e-6
"""A ``sigma`` smaller than this share of the largest weight makes no cut."""
_BISECTIONS = 30
"""For the intercept at which the slopes balance; it is a guess, not a bound."""
_SAMPLE = 2000
"""Rows on which ``Delta`` is chosen; the cut itself uses all of them."""
_SUMMED = 200.0
"""Roundings of numpy's sum by pairs of any length: 128 are added up one by one, and 64 levels of
pairs are more than there are."""


class Spanning(Protocol):
    """What this module needs of a region."""

    @property
    def problem(self) -> Problem:
        """The problem whose optimum is inside."""
        ...

    @property
    def place(self) -> Place:
        """A point well inside the region, with its margins."""
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
    free = problem.free_index
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
    free = int(problem.free_index[0])
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
    if problem.design.centred:
        return Functionals.rows(problem)
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

    def chosen(beta: float, side: float, rows: Rows, of: LossTerms) -> Array:
        """The slopes of some terms that make the sum largest (side 1) or smallest (side -1)."""
        ends = side * (spread[rows] + (8.0 * UNIT * abs(beta)) * lean[rows])
        below, above = of.subgradient(middle[rows] + e[rows] * beta + ends)
        return np.where(rising[rows] == (side > 0), above, below)

    def excluded(total: float, slope: Array, side: float) -> bool:
        """Whether the optimality sum, `total` with these slopes, is on the wrong side of 0."""
        size = weight if bounded else float(np.abs(e) @ np.maximum(np.abs(slope), slopes))
        rounding = growth * (size + abs(offset)) + problem.imbalance
        return side * (total + offset + side * rounding) < 0

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


# -- the cut ---------------------------------------------------------------------------------


class Known(Protocol):
    """A ball with the dual point behind it."""

    @property
    def problem(self) -> Problem:
        """The problem whose optimum is inside."""
        ...

    @property
    def centre(self) -> Array:
        """``c``, shape (d,)."""
        ...

    @property
    def margins(self) -> Array:
        """``A c``, shape (n,)."""
        ...

    @property
    def radius(self) -> float:
        """``r``."""
        ...

    @property
    def theta(self) -> Array | None:
        """The dual point, shape (n,)."""
        ...


class _Base(NamedTuple):
    """What all cuts of one ball share.

    Attributes
    ----------
    unit : float
        What the radius typically amounts to in units of the intercept.
    t, error : array, shape (n,)
        Margins at ``(c, b_c)`` and bounds of their errors.
    reach : float
        Bound of ``|b* - b_c|``.
    imbalance : float
        Bound of ``|sum_i e_i theta_i + q_b|``.
    repair : float
        What replacing theta by an exactly balanced dual point can cost.
    """

    problem: Problem
    e: Array
    theta: Array
    radius: float
    unit: float
    t: Array
    error: Array
    reach: float
    imbalance: float
    repair: float


def tightened(
    ball: Known, wanted: Functionals, interval: tuple[float, float]
) -> tuple[Array, Array]:
    """``[low, high]`` of every margin by the best cuts found, infinite where there is none.

    Parameters
    ----------
    ball : Ball
    wanted : Functionals
        The centred rows.
    interval : tuple of float
        Known range of the intercept after the pivot of `wanted` was absorbed.
    """
    problem, theta = ball.problem, ball.theta
    low, high = np.full(problem.n, -np.inf), np.full(problem.n, np.inf)
    plain = isinstance(problem.quadratic, Quadratic) and problem.side is None
    usable = theta is not None and plain and 0.0 < ball.radius < np.inf
    base = _base(ball, wanted, interval) if usable else None
    if base is None:
        return low, high
    for side in (1.0, -1.0):
        for delta in _promising(base, side):
            excess = _excess(base, side, delta)
            if excess is None:
                continue
            leans = side * base.e > 0
            against = side * base.e < 0
            high[leans] = np.minimum(high, base.t + excess)[leans]
            low[against] = np.maximum(low, base.t - excess)[against]
    return low, high


def _base(ball: Known, wanted: Functionals, interval: tuple[float, float]) -> _Base | None:
    problem, theta = ball.problem, ball.theta
    if theta is None:
        return None
    losses, e = problem.losses, problem.free_columns[:, 0]
    free = int(problem.free_index[0])
    pivot = np.zeros(problem.d) if wanted.pivot is None else wanted.pivot
    lift = float(pivot @ np.where(problem.quadratic.free, 0.0, ball.centre))
    offset = float(problem.linear[free])
    flat = ball.margins - e * ball.centre[free]
    low, high = interval[0] - lift, interval[1] - lift
    unit = ball.radius * float(np.median(wanted.norms[e != 0] / np.abs(e[e != 0])))
    b = _balanced(problem, flat, e, offset, (low, high), 0.01 * unit)
    t = flat + e * b
    rounding = 8.0 * UNIT * (np.abs(ball.margins) + np.abs(e) * (abs(ball.centre[free]) + abs(b)))
    error = margin_error(problem, ball.centre) + rounding
    floor = float(np.sqrt(problem.quadratic.floor))
    length = float(np.linalg.norm(pivot)) / floor
    # lift itself is rounded; its error is far below the radius of any ball that is not a point.
    wobble = gamma(problem.d + 8) * float(np.abs(pivot) @ np.abs(ball.centre))
    reach = up(max(abs(high - b), abs(low - b)) + wobble + length * ball.radius)
    product = e * theta
    balance = float(np.sum(product)) + offset
    residual_error = (
        gamma(_SUMMED) * (float(np.sum(np.abs(product))) + abs(offset)) + problem.imbalance
    )
    imbalance = abs(balance) + residual_error
    # What moving theta_i by one changes in K and, over the ball, in <x0, delta>.
    sensitivity = np.abs(t - losses.b) + error + losses.e
    sensitivity = sensitivity + losses.q * (np.abs(theta) + 4.0 * imbalance)
    sensitivity = 1.01 * (sensitivity + problem.norms * ball.radius)
    one = np.ones(1)
    repair = imbalance_cost(
        problem, theta, balance * one, residual_error * one, offset * one, sensitivity
    )
    if not np.isfinite(repair):
        return None
    return _Base(
        problem=problem, e=e, theta=theta, radius=up(ball.radius), unit=unit, t=t, error=error,
        reach=reach, imbalance=imbalance, repair=repair,
    )


def _balanced(
    problem: Problem, flat: Array, e: Array, offset: float, interval: tuple[float, float],
    fine: float,
) -> float:
    """The intercept that is optimal for the margins `flat`, roughly; any value is valid."""
    low, high = interval
    for _ in range(_BISECTIONS):
        if high - low <= fine:
            break
        mid = 0.5 * (low + high)
        if float(e @ problem.losses.slope(flat + e * mid)) + offset < 0:
            low = mid
        else:
            high = mid
    return 0.5 * (low + high)


def _promising(base: _Base, side: float) -> list[float]:
    """Distances ``Delta`` whose cut bounds the intercept best, and wider ones."""
    rows = slice(None, None, max(len(base.t) // _SAMPLE, 1))
    e, theta, t, losses = base.e[rows], base.theta[rows], base.t[rows], base.problem.losses
    if len(t) < len(losses):
        losses = losses.take(np.arange(len(losses))[rows])
    share = len(t) / len(base.t)
    deltas = base.unit * _GRID
    slopes, step = _slopes(losses, e, theta, t, side * deltas[:, None])
    sigma = side * (step @ e)
    constant = np.sum(step * (t - losses.b - 0.5 * losses.q * (slopes + theta)), axis=1)
    constant -= (np.abs(slopes) - np.abs(theta)) @ losses.e
    rising = sigma > _SMALLEST * np.max(np.abs(e) * (np.abs(theta) + np.abs(step)), axis=1)
    bound = (share * square(base.radius) - constant) / np.where(rising, sigma, 1.0)
    bound = np.where(rising & (bound < np.inf), bound, np.inf)
    if not bound.min() < np.inf:
        return []
    found = float(deltas[np.argmin(bound)])
    return [found * multiple for multiple in _MULTIPLES] if found > 0 else []


def _slopes(
    losses: LossTerms, e: Array, theta: Array, t: Array, move: float | Array
) -> tuple[Array, Array]:
    """Slopes of the losses after a move of the intercept (or each of a column), and ``step``."""
    slopes = np.clip(losses.slope(t + move * e), losses.lo, losses.hi)
    return slopes, slopes - theta


def _constant(base: _Base, slopes: Array, step: Array) -> tuple[float, float]:
    """``K`` and a bound of its error."""
    theta, t, losses = base.theta, base.t, base.problem.losses
    middle = t - losses.b - 0.5 * losses.q * (slopes + theta)
    dead_zone = losses.e * (np.abs(slopes) - np.abs(theta))
    size = np.abs(t - losses.b) + 0.5 * losses.q * (np.abs(slopes) + np.abs(theta))
    size = np.abs(step) * size + losses.e * np.abs(step)
    rounding = np.abs(step) * base.error + 16.0 * UNIT * size
    total = float(np.sum(step * middle - dead_zone))
    return total, up(float(np.sum(rounding)) + gamma(_SUMMED) * float(np.sum(size)), 300)


def _excess(base: _Base, side: float, delta: float) -> Array | None:
    """Bound of ``side sign(e_i) (t_i* - t_i^c)``, shape (n,); None where the cut is discarded."""
    problem, e, radius = base.problem, base.e, base.radius
    slopes, step = _slopes(problem.losses, e, base.theta, base.t, side * delta)
    constant, constant_error = _constant(base, slopes, step)
    At_step = problem.design.adjoint(step)
    free = int(problem.free_index[0])
    sigma = side * float(At_step[free])
    factor = problem.design.adjoint_factor + 8.0 * UNIT
    sigma_error = factor * float(np.abs(e) @ np.abs(step)) + base.imbalance
    weight = float(np.max(np.abs(e) * (np.abs(base.theta) + np.abs(step))))
    if not sigma > max(_SMALLEST * weight, 100.0 * sigma_error):
        return None
    pivot = np.where(problem.quadratic.free, 0.0, side * At_step / sigma)
    norms = Functionals.around(problem, pivot).norms
    lean = factor * float(np.abs(step) @ problem.rounding_norms)
    budget = up(square(radius)) - constant + constant_error
    budget = budget + up(base.repair + lean * radius + sigma_error * base.reach)
    budget = budget + 8.0 * UNIT * (square(radius) + abs(constant))
    share = np.abs(e) / sigma
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = norms < 2.0 * share * radius
        curved = np.where(inside, norms**2 / (4.0 * share), 0.0)
    rest = np.where(inside, curved, radius * norms - share * square(radius))
    size = share * (abs(budget) + square(radius)) + radius * norms + np.abs(base.t)
    return share * budget + rest + base.error + 16.0 * UNIT * size
