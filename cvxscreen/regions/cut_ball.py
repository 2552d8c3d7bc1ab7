"""A ball cut by a half-space: the dome (Ogawa et al. 2014, Theorem 11 and its corrected form)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem
from cvxscreen.regions.ball import Ball
from cvxscreen.regions.functionals import Functionals, Place, inner, length
from cvxscreen.regions.intercept import margins_over
from cvxscreen.regions.pencil import Pencil
from cvxscreen.rounding import UNIT, up

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CutBall:
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
        """The one ball."""
        return (self.ball,)

    @cached_property
    def pencil(self) -> Pencil:
        """The balls around the dome: centre ``c + y v``, ``y >= 0``."""
        free = self.problem.quadratic.free
        centre = np.where(free, 0.0, self.ball.centre)
        product, error = inner(self.problem, self.normal.x, centre)
        height = self.level - product - error - 2.0 * UNIT * (abs(self.level) + abs(product))
        square = length(self.problem, self.normal.x)[1] ** 2
        return Pencil(up(self.ball.radius) ** 2, -2.0 * height, up(square))

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
