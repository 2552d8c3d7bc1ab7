"""One ball, and the absence of information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem
from cvxscreen.regions.functionals import Functionals, Place, outward
from cvxscreen.regions.intercept import margins_over
from cvxscreen.rounding import up

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


@dataclass(frozen=True, eq=False)
class Everywhere:
    """No information: used where no theorem applies."""

    problem: Problem
    bound: str
    gap: float

    @property
    def balls(self) -> tuple[Ball, ...]:
        """None."""
        return ()

    def intervals(self) -> tuple[Array, Array]:
        """The whole line for every margin."""
        return np.full(self.problem.n, -np.inf), np.full(self.problem.n, np.inf)

    def contains(self, x: Array) -> bool:
        """Always true."""
        return True
