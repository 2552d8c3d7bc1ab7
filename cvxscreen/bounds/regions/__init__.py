"""Regions that provably contain the optimum, and the interval of every margin over them.

* `Ball`: ``||x - c||_M <= r``; the margin ``<a_i, x>`` lies in ``<a_i, c> -+ r ||a_i||_{M^-1}``.
* `TwoBalls`: the intersection of two balls, the exact range of every margin over it.
* `CutBall`: a ball cut by a half-space (a dome), the same.
* `Boxes`: intervals of the primal and of the dual optimum together.
* `ConeBall`: a ball cut by the cone of metrics, tightened where that can decide a term.
* `Everywhere`: no information; every interval is the whole line.

With unpenalised coordinates a region bounds the penalised part only. For one such coordinate (an
intercept) the optimality condition ``sum_i e_i theta_i = 0`` bounds it: see `intercept`.

All intervals are rounded outward here and nowhere else. Every region answers one question, the
range of linear functionals of the penalised coordinates (`span`); the rest is written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from cvxscreen.bounds.regions.balls import Ball, Boxes, CutBall, Everywhere, TwoBalls
from cvxscreen.bounds.regions.margins import (
    Functionals,
    Place,
    intercept_interval,
    margins_over,
    outward,
)
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem

if TYPE_CHECKING:
    from cvxscreen.bounds.regions.cone_ball import ConeBall

Region: TypeAlias = "Ball | TwoBalls | CutBall | ConeBall | Boxes | Everywhere"

__all__ = [
    "Ball",
    "Bound",
    "Boxes",
    "CutBall",
    "Everywhere",
    "Functionals",
    "PairBound",
    "Place",
    "Region",
    "TwoBalls",
    "intercept_interval",
    "margins_over",
    "outward",
]


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
