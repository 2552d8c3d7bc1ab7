"""The intersection of two balls (Ogawa et al. 2014, Theorem 8), for any pair."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem
from cvxscreen.regions.ball import Ball
from cvxscreen.regions.functionals import Functionals, Place, length
from cvxscreen.regions.intercept import margins_over
from cvxscreen.regions.pencil import Pencil
from cvxscreen.rounding import UNIT, up

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TwoBalls:
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
        """The two balls."""
        return self.first, self.second

    @cached_property
    def pencil(self) -> Pencil:
        """The balls around the intersection: centre ``c2 + y (c1 - c2)``, ``0 <= y <= 1``."""
        problem = self.problem
        step = np.where(problem.quadratic.free, 0.0, self.first.centre - self.second.centre)
        noise = 2.0 * UNIT * length(problem, np.abs(step))[1]
        # y (1 - y) ||c1 - c2||^2 is taken off the squared radius: the lower bound is the safe one.
        apart = max(length(problem, step)[0] - noise, 0.0) * (1.0 - 2.0 * UNIT)
        square = apart**2 * (1.0 - 2.0 * UNIT)
        r1, r2 = up(self.first.radius) ** 2, up(self.second.radius) ** 2
        return Pencil(r2, r1 - r2 - square, square, r1)

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
