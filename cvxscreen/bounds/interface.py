"""What a bound is: a theorem that turns a point into a region around the optimum."""

from __future__ import annotations

from typing import Protocol

from cvxscreen.bounds.regions import Region
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem


class Bound(Protocol):
    """A theorem with one reference.

    Any function will do that keeps to this: the region holds the optimum of `problem` whatever the
    point is, with the rounding of everything that the function computes charged. A region has a
    name for the records (`bound`); where nothing is known it is `Everywhere`.
    """

    def __call__(self, problem: Problem, point: Point, /) -> Region:
        """The region that `point` proves the optimum of `problem` to lie in."""
        ...


class PairBound(Protocol):
    """The same with two references, of which each may be of another value of the parameter."""

    def __call__(self, problem: Problem, first: Point, second: Point, /) -> Region:
        """The region that both points together prove."""
        ...
