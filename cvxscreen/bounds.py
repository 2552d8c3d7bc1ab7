"""The theorems: each bound is one short function from a point to a region.

Throughout, ``G = P(x) - D(theta)`` is the duality gap of the point, ``x_theta = M^{-1} v`` the
primal point of ``theta``, norms are in the metric of ``M``. The rounding of the point (``terms``,
``dual_error``) is added outward, so the returned radius is at least the exact one.

Worked instances. At an exact optimum ``G = 0`` and ``x = x_theta``: every ball has radius 0. With
``x = x_theta`` (any dual method) the midpoint ball has radius ``sqrt(G)``, the gap ball
``sqrt(2 G)``. With ``x = w*(C0)`` and ``theta = s theta*(C0)``, ``s = C/C0``, the midpoint ball is
the DVI ball: centre ``(1+s)/2 w*(C0)``, radius ``|s-1|/2 ||w*(C0)||``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvxscreen.duality import Point, rescaled_point
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.problem import Problem
from cvxscreen.regions import Ball, Everywhere, Region
from cvxscreen.rounding import up

Bound = Callable[[Problem, Point], Region]

_MOVE = 1e-3


def midpoint_ball(problem: Problem, point: Point) -> Region:
    """The optimum is within ``r`` of ``(x + x_theta)/2``, ``r^2 = G - ||x - x_theta||^2 / 4``.

    Add the two strong-convexity inequalities ``P(x) - P* >= 1/2 ||x - x*||^2`` and
    ``D* - D(theta) >= 1/2 ||x_theta - x*||^2``: the parallelogram law gives the ball. It holds for
    every convex loss and any primal point, and contains DVI, BT1, BT2 and the gradient ball as
    special cases (Tran et al. 2023 unify such balls; Wang et al. 2014, Theorem 6, for DVI).

    Returns `Everywhere` when the point does not provably satisfy the side constraints.
    """
    _same(problem, point)
    if not point.feasible or not np.isfinite(point.gap):
        return Everywhere(problem, "midpoint", point.gap)
    shift = up(point.shift, problem.d + 8) + point.dual_error
    radius = up(float(np.sqrt(up(point.terms + 0.25 * shift**2)))) + 0.5 * point.dual_error
    radius = up(radius + problem.drift)
    if point.shift <= _MOVE * radius:
        # Moving the centre to x saves a pass over the data and costs at most 0.05 % of the radius.
        radius = up(radius + 0.5 * shift)
        return Ball(problem, "midpoint", point.x, point.margins, radius, point.gap)
    if point.centre is not None:
        known = point.centre
        return Ball(
            problem, "midpoint", known.x, known.margins, up(radius + known.slack), point.gap
        )
    centre = 0.5 * (point.x + point.x_dual)
    return Ball(problem, "midpoint", centre, problem.design.forward(centre), radius, point.gap)


def gap_ball(problem: Problem, point: Point) -> Region:
    """The optimum is within ``sqrt(2 G)`` of ``x`` (Ndiaye et al.; Shibagaki et al. 2016, (8)).

    It keeps only half of the inequality behind `midpoint_ball` and is never smaller.
    """
    _same(problem, point)
    if not point.feasible or not np.isfinite(point.gap):
        return Everywhere(problem, "gap", point.gap)
    radius = up(float(np.sqrt(2.0 * up(point.gap)))) + problem.drift
    return Ball(problem, "gap", point.x, point.margins, up(radius), point.gap)


def dvi_ball(problem: Problem, point: Point) -> Region:
    """The DVI ball from a reference at another C, safe for an approximate reference.

    With ``s = C / C0`` the point ``s theta0`` is dual feasible at C, so the midpoint ball of
    ``(x0, s theta0)`` at C contains the optimum; for an exact reference it is the ball of Wang et
    al. 2014, Theorem 6 (in both directions of C): centre ``(1+s)/2 w0``, radius ``|1-s|/2 ||w0||``.
    With a reference of gap ``eps`` and ``x0 = x_theta0`` the radius is
    ``sqrt((1-s)^2/4 ||w0||^2 + s eps)``. As printed, without ``eps``, the rule is unsafe.
    """
    region = midpoint_ball(problem, moved(problem, point))
    if isinstance(region, Everywhere):
        return Everywhere(problem, "dvi", region.gap)
    return Ball(problem, "dvi", region.centre, region.margins, region.radius, region.gap)


def rpb_ball(problem: Problem, point: Point) -> Region:
    """The regularisation path bound (Yoshida et al. 2019: RPB, for any reference RRPB).

    In vector form it is `dvi_ball` under another name: both bound the optimum at a new parameter
    from a reference at an old one.
    """
    region = dvi_ball(problem, point)
    if isinstance(region, Everywhere):
        return region
    return Ball(problem, "rpb", region.centre, region.margins, region.radius, region.gap)


def moved(problem: Problem, point: Point) -> Point:
    """`point` of the same data at another C, its dual scaled by ``C / C0`` and evaluated anew.

    Raises
    ------
    InvalidInput
        If the two problems differ in size.
    """
    if point.problem.n != problem.n or point.problem.d != problem.d:
        raise InvalidInput(
            f"`reference` belongs to a problem of {point.problem.n} terms and {point.problem.d} "
            f"coordinates; this one has {problem.n} and {problem.d}."
        )
    return rescaled_point(problem, point)


def _same(problem: Problem, point: Point) -> None:
    if point.problem is not problem:
        raise InvalidInput(
            "`reference` was evaluated on another problem; evaluate it on this one with "
            "`reference_point(problem, x, theta)` or use bound='dvi' for a change of C."
        )


BOUNDS: dict[str, Bound] = {
    "midpoint": midpoint_ball,
    "gap": gap_ball,
    "dvi": dvi_ball,
    "rpb": rpb_ball,
}
"""Every bound by name; a new one is a function here and is then met by every safety test."""

ACROSS = ("dvi", "rpb")
"""Bounds that take a reference at another C as it is."""


def available(problem: Problem) -> tuple[str, ...]:
    """Names of the bounds that say anything about `problem`.

    With two or more unpenalised coordinates no ball bounds the margins that touch them.
    """
    return tuple(sorted(BOUNDS)) if int(problem.quadratic.free.sum()) <= 1 else ()


def named(name: str) -> Bound:
    """The bound called `name`.

    Raises
    ------
    UnknownName
    """
    if name not in BOUNDS:
        raise UnknownName.among("bound", name, BOUNDS)
    return BOUNDS[name]
