"""The shapes of regions: balls, cut balls, two balls, boxes; and the absence of information.

A `CutBall` (a dome) and `TwoBalls` give the exact range of a linear functional through their
`Pencil`. Where ``||x - c2||^2 <= r2^2`` and a second inequality of the same kind (a ball) or a
linear one (a half-space) hold, every combination of the two with non-negative weights holds: a ball
with centre ``c + y u`` and squared radius ``a0 + a1 y + a2 y^2``, for ``0 <= y <= top``. The best
of these is exact for a linear functional (Lagrangian duality; Ogawa et al. 2014, Theorem 8; Wang et
al. 2014, Lemma 20). Each one is valid, so `y` may be computed carelessly: only the ball itself is
rounded.

Worked instances. Two balls: ``c = c2``, ``u = c1 - c2``, ``y`` in [0, 1], ``a0 = r2^2``,
``a0 + a1 + a2 = r1^2``, ``a2 = ||u||^2``. A half-space ``<v, x> >= delta``: ``u = v``, ``y >= 0``,
``a0 = r^2``, ``a1 = -2 (delta - <v, c>)``, ``a2 = ||v||^2``. A nested or tangent ball: the end of
the range of ``y`` wins, with no case for it.

Proofs: ``docs/theory.md``, section 2.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, square, up
from cvxscreen.bounds.regions.margins import (
    Functionals,
    Place,
    inner,
    length,
    margins_over,
    outward,
)
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]
Values = tuple[Array, Array]
"""Values of functionals and bounds of their errors."""
Interval = tuple[Array, Array]
"""Lower and upper ends."""
_LARGE = 1e7
"""A ball so many times wider than the given one is as good as one without end, up to rounding: what
it is off by falls with the square, to 1e-14."""


def narrower(first: Interval, second: Interval) -> Interval:
    """The intersection of two intervals, entry by entry."""
    return np.maximum(first[0], second[0]), np.minimum(first[1], second[1])


class Everywhere(Immutable):
    """No information: used where no theorem applies."""

    problem: Problem
    bound: str
    gap: float

    @property
    def radius(self) -> float:
        """Infinite: nothing is known of the optimum."""
        return float("inf")

    @property
    def balls(self) -> tuple[Ball, ...]:
        """No ball: there is none that the region lies in."""
        return ()

    def intervals(self) -> tuple[Array, Array]:
        """The whole line for every margin."""
        return np.full(self.problem.n, -np.inf), np.full(self.problem.n, np.inf)

    def contains(self, x: Array) -> bool:
        """True of every point."""
        return True


class Ball(Immutable):
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
    theta : array, shape (n,), optional
        The dual point behind it, where the stronger inequality
        ``||x* - centre||_M^2 + sum_i FY_i(<a_i, x*>, theta_i) <= radius^2`` holds as well.
    """

    problem: Problem
    bound: str
    centre: Array
    margins: Array
    radius: float
    gap: float
    theta: Array | None = None

    @property
    def place(self) -> Place:
        """The centre with its margins."""
        return Place(self.centre, self.margins)

    @property
    def balls(self) -> tuple[Ball, ...]:
        """The balls that the region is made of."""
        return (self,)

    def span(self, wanted: Functionals) -> tuple[Array, Array]:
        """Range of the functionals over the ball, rounded outward."""
        values, error = wanted.at(self.place)
        return outward(values, up(self.radius) * wanted.norms + error)

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, two arrays (n,), rounded outward."""
        return margins_over(self)

    def contains(self, x: Array) -> bool:
        """Whether `x` is in the ball (penalised coordinates)."""
        step = np.where(self.problem.quadratic.free, 0.0, np.asarray(x) - self.centre)
        return self.problem.quadratic.norm(step) <= self.radius


class CutBall(Immutable):
    """``{x : ||x - c||_M <= r, <v, x>_M >= level}``, the optimum proven inside.

    With ``c = 0``, ``v = w_a``, ``level = gamma_a = ||w_a||^2`` and ``r^2 = gamma_b`` this is the
    dome: the smallest ``<z, x>`` is ``-sqrt(gamma_b) ||z||`` if
    ``-<z, w_a> / ||z|| >= gamma_a / sqrt(gamma_b)``, otherwise
    ``<z, w_a> - sqrt((gamma_b - gamma_a)/gamma_a (gamma_a ||z||^2 - <z, w_a>^2))``.

    Attributes
    ----------
    bound : str
        Name of the theorem it rests on.
    ball : Ball
    normal : Place
        ``v`` with its margins; 0 on unpenalised coordinates.
    level : float
        Rounded outward (down).
    """

    bound: str
    ball: Ball
    normal: Place
    level: float

    @property
    def problem(self) -> Problem:
        """The problem the ball belongs to."""
        return self.ball.problem

    @property
    def gap(self) -> float:
        """Duality gap of the point behind the ball."""
        return self.ball.gap

    @property
    def place(self) -> Place:
        """The centre of the ball."""
        return self.ball.place

    @property
    def balls(self) -> tuple[Ball, ...]:
        """The ball that is cut, alone."""
        return (self.ball,)

    @cached_property
    def pencil(self) -> Pencil:
        """The balls around the dome: centre ``c + y v``, ``y >= 0``."""
        free = self.problem.quadratic.free
        centre = np.where(free, 0.0, self.ball.centre)
        product, error = inner(self.problem, self.normal.x, centre)
        height = self.level - product - error - 2.0 * UNIT * (abs(self.level) + abs(product))
        growth = square(length(self.problem, self.normal.x)[1])
        return Pencil(square(up(self.ball.radius)), -2.0 * height, up(growth))

    @property
    def radius(self) -> float:
        """Of the smallest ball of the pencil around the dome."""
        return self.pencil.smallest

    def span(self, wanted: Functionals) -> tuple[Array, Array]:
        """Range of the functionals over the dome, rounded outward."""
        start, along = wanted.at(self.ball.place), wanted.at(self.normal)
        return self.pencil.spans(start, along, wanted.norms)

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, two arrays (n,), rounded outward."""
        return margins_over(self)

    def contains(self, x: Array) -> bool:
        """Whether `x` is in the dome (penalised coordinates), up to rounding."""
        product, error = inner(self.problem, self.normal.x, np.asarray(x, dtype=np.float64))
        return self.ball.contains(x) and product + error >= self.level


class TwoBalls(Immutable):
    """``{x : ||x - c1||_M <= r1, ||x - c2||_M <= r2}``, the optimum proven inside.

    Attributes
    ----------
    bound : str
        Name of the theorem it rests on.
    first, second : Ball
        Of the same problem; nested, tangent and equal ones are welcome.
    """

    bound: str
    first: Ball
    second: Ball

    @property
    def problem(self) -> Problem:
        """The problem both balls belong to."""
        return self.first.problem

    @property
    def gap(self) -> float:
        """Duality gap of the better of the two points."""
        return min(self.first.gap, self.second.gap)

    @property
    def place(self) -> Place:
        """The centre of the smaller ball."""
        smaller = self.first if self.first.radius <= self.second.radius else self.second
        return smaller.place

    @property
    def balls(self) -> tuple[Ball, ...]:
        """Both balls, whose intersection the region is."""
        return self.first, self.second

    @cached_property
    def pencil(self) -> Pencil:
        """The balls around the intersection: centre ``c2 + y (c1 - c2)``, ``0 <= y <= 1``."""
        problem = self.problem
        step = np.where(problem.quadratic.free, 0.0, self.first.centre - self.second.centre)
        rounding = 2.0 * UNIT * length(problem, np.abs(step))[1]
        # y (1 - y) ||c1 - c2||^2 is taken off the squared radius: the lower bound is the safe one.
        apart = max(length(problem, step)[0] - rounding, 0.0) * (1.0 - 2.0 * UNIT)
        growth = square(apart) * (1.0 - 2.0 * UNIT)
        r1, r2 = square(up(self.first.radius)), square(up(self.second.radius))
        return Pencil(r2, r1 - r2 - growth, growth, r1)

    @property
    def radius(self) -> float:
        """Of the smallest ball of the pencil around the intersection."""
        return self.pencil.smallest

    def span(self, wanted: Functionals) -> tuple[Array, Array]:
        """Range of the functionals over the intersection, rounded outward."""
        at_first, at_second = wanted.at(self.first.place), wanted.at(self.second.place)
        return self.pencil.spans(at_second, at_first, wanted.norms)

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at the optimum, two arrays (n,), rounded outward."""
        return margins_over(self)

    def contains(self, x: Array) -> bool:
        """Whether `x` is in both balls (penalised coordinates)."""
        return self.first.contains(x) and self.second.contains(x)


class Boxes(Immutable):
    """Intervals of margins, coordinates, slopes and v at the optimum, rounded outward.

    Attributes
    ----------
    problem : Problem
    bound : str
        Name of the theorem behind it.
    margins : pair of arrays, shape (n,)
        Of ``<a_i, x*>``.
    slopes : pair of arrays, shape (n,)
        Of ``theta*``.
    coordinates : pair of arrays, shape (d,)
        Of ``x*``.
    v : pair of arrays, shape (d,)
        Of ``v* = -A' theta* - q``: ``v_j* - M_jj x_j*`` is a subgradient of ``kappa_j |.|``.
    radius, gap : float
        Of the primal ball, of the point.
    rounds, skipped : int
        How often primal and dual were alternated, and the rule evaluations that safe keeping saved.
    """

    problem: Problem
    bound: str
    margins: Interval
    slopes: Interval
    coordinates: Interval
    v: Interval
    radius: float
    gap: float
    rounds: int = 1
    skipped: int = 0

    @classmethod
    def nothing(cls, problem: Problem, bound: str, gap: float) -> Boxes:
        """No information but the boxes of the slopes."""
        whole = (np.full(problem.n, -np.inf), np.full(problem.n, np.inf))
        wide = (np.full(problem.d, -np.inf), np.full(problem.d, np.inf))
        slopes = (problem.losses.lo, problem.losses.hi)
        return cls(problem, bound, whole, slopes, wide, wide, np.inf, gap)

    @property
    def balls(self) -> tuple[()]:
        """None: it is not an intersection of balls."""
        return ()

    def intervals(self) -> Interval:
        """``[low, high]`` of every margin at the optimum."""
        return self.margins

    def contains(self, x: Array) -> bool:
        """Whether `x` satisfies the intervals of the coordinates."""
        low, high = self.coordinates
        return bool(((x >= low) & (x <= high)).all())


class Pencil(Immutable):
    """Balls with squared radius ``a0 + a1 y + a2 y^2``, ``0 <= y <= top``, all valid.

    Attributes
    ----------
    a0, a1, a2 : float
        Rounded so that the squared radius is not underestimated.
    end : float or None
        The squared radius at ``y = 1`` where that is the top (two balls); None for a half-space,
        whose balls grow without bound.
    """

    a0: float
    a1: float
    a2: float
    end: float | None = None

    @property
    def top(self) -> float:
        """The largest y that gives a ball."""
        return float("inf") if self.end is None else 1.0

    def radius(self, y: Array) -> Array:
        """Radius at `y`, rounded outward; at the ends with no cancellation at all."""
        if self.end is None:
            squared = self.a0 + y * (self.a1 + y * self.a2)
            size = self.a0 + y * abs(self.a1) + y * y * self.a2
        else:
            rest = 1.0 - y
            outer, curvature = rest * self.a0 + y * self.end, y * rest * self.a2
            squared, size = outer - curvature, outer + curvature
        return np.sqrt(np.maximum(squared, 0.0) + 8.0 * UNIT * size) * (1.0 + 4.0 * UNIT)

    @property
    def narrowest(self) -> float:
        """The ``y`` of the smallest ball."""
        if self.a2 <= 0.0:
            return 1.0 if self.end is not None and self.end < self.a0 else 0.0
        return float(np.clip(-0.5 * self.a1 / self.a2, 0.0, self.top))

    @property
    def smallest(self) -> float:
        """Radius of the smallest ball, rounded outward."""
        ends = [0.0, self.narrowest] if self.end is None else [0.0, self.narrowest, 1.0]
        return float(self.radius(np.array(ends)).min())

    def upper(self, start: Values, other: Values, norms: Array) -> Array:
        """The largest value of every functional over all of the region.

        Parameters
        ----------
        start : tuple of arrays (n,)
            Values at ``c`` and bounds of their errors.
        other : tuple of arrays (n,)
            The same at the centre for ``y = 1`` (two balls) or at ``u`` (a half-space).
        norms : array, shape (n,)
            Upper bounds of the functionals' norms.
        """
        (first, first_error), (second, second_error) = start, other

        def value(y: Array) -> Array:
            rest = np.ones_like(y) if self.end is None else 1.0 - y
            middle = rest * first + y * second
            reach = rest * first_error + y * second_error + norms * self.radius(y)
            return middle + reach + 4.0 * UNIT * (rest * np.abs(first) + y * np.abs(second) + reach)

        rate = second if self.end is None else second - first
        zero = np.zeros_like(first)
        best = value(zero)
        if self.end is not None:
            best = np.minimum(best, value(zero + 1.0))
        if self.a2 <= 0.0:
            return best
        span = float(np.sqrt(self.a2))
        zeta, along = -0.5 * self.a1 / span, rate / span
        kappa = float(np.sqrt(max(self.a0 - square(zeta), 0.0)))
        across = np.sqrt(np.maximum(norms**2 - along**2, 0.0))
        # d/dy (along y + norm sqrt((y - zeta)^2 + kappa^2)) = 0, in units of ||u||.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            stationary = zeta - along * kappa / across
        stationary = np.where(np.isnan(stationary), zeta, stationary) / span
        # Where the best ball is infinitely large, one this large is as good up to rounding.
        limit = min(self.top, (abs(zeta) + _LARGE * float(np.sqrt(self.a0))) / span)
        for y in (np.clip(stationary, 0.0, limit), zero + self.narrowest):
            best = np.minimum(best, value(y))
        return best

    def spans(self, start: Values, other: Values, norms: Array) -> tuple[Array, Array]:
        """The range of every functional, rounded outward; parameters as in `upper`."""
        low = -self.upper((-start[0], start[1]), (-other[0], other[1]), norms)
        return low, self.upper(start, other, norms)
