"""The spheres of Yoshida et al. 2019 for problems over a cone, and how the cone cuts them.

All but the last are the midpoint ball with another choice of the dual point's part in the cone.
With ``v = -A' theta - q`` and any ``s`` in the polar cone, ``x_s = M^{-1} (v - s)``::

    ||x* - (x + x_s)/2||^2 <= ||x - x_s||^2 / 4 + sum_i FY_i + (-<s, x>)

which needs neither a subgradient nor an exact reference. At the optimum ``s`` of `midpoint_ball`
and of `projected_gradient_ball` make the right side 0, ``s = 0`` does not.

A sphere also holds points outside the cone. `cut` makes it smaller before it judges: by a
half-space that contains the cone, or by the cone itself.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, up
from cvxscreen._support.validation import choice_in_any_case
from cvxscreen.bounds.one_reference import midpoint_named, on_data_of, same_data
from cvxscreen.bounds.regions import Ball, ConeBall, CutBall, Everywhere, Place, Region
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.penalty import PSD, NonNegative, Penalty
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]


def gradient_bound(problem: Problem, point: Point) -> Region:
    """GB (Theorem 1): ``s = 0``, the dual point the subgradients at x.

    Its centre leaves the cone, so its radius does not vanish at the optimum.
    """
    here = _at(problem, point)
    return _sphere_of("gb", here, np.zeros(problem.d))


def projected_gradient_ball(problem: Problem, point: Point) -> Region:
    """PGB (Theorem 2) in its stable form: the ``s`` of the smallest radius.

    The projection of GB's centre onto the cone is the midpoint for ``s`` the negative part of
    ``M x + v``; no difference of squares is taken.
    """
    here = _at(problem, point)
    cone, diagonal = _cone(problem), problem.quadratic.diagonal
    _, s = cone.prox_and_subgradient(diagonal * here.x - here.At_theta - problem.linear, diagonal)
    return _sphere_of("pgb", here, s)


def duality_gap_ball(problem: Problem, point: Point) -> Region:
    """DGB (Theorem 4): ``sqrt(2 G)`` around x."""
    _cone(problem)
    here = _at(problem, point)
    return Ball(problem, "dgb", here.x, here.margins, up(sqrt(2.0 * up(here.gap))), here.gap)


def constrained_dual_ball(problem: Problem, point: Point) -> Region:
    """CDGB (Theorem 14): ``sqrt(G(x_theta, theta))`` around ``x_theta``, which must be feasible.

    As printed, for any dual feasible point, it is wrong; here ``x_theta`` is always in the cone.
    """
    _cone(problem)
    here = _at(problem, point)
    return midpoint_named("cdgb", reference_point(problem, here.x_theta, here.theta))


def relaxed_path_ball(problem: Problem, point: Point) -> Region:
    """RRPB (Theorem 6): from a reference at another lam, its distance ``e`` to its own optimum.

    ``|M1* - (l0 + l1)/(2 l1) M0| <= |l0 - l1|/(2 l1) |M0| + max(l0, l1)/l1 e`` with
    ``e = sqrt(2 G0 / l0)``; no pass over the data. The midpoint ball of the same reference at
    ``l1`` (`rpb`) lies inside.
    """
    _cone(problem)
    point = on_data_of(problem, point)
    own = point.problem
    old, new = float(own.quadratic.diagonal[0]), float(problem.quadratic.diagonal[0])
    flat = bool((problem.quadratic.diagonal == new).all()) and not problem.drift
    if not (np.isfinite(point.gap) and flat):
        return Everywhere(problem, "rrpb", point.gap)
    factor = 0.5 * (old + new) / new
    size = up(float(np.linalg.norm(point.x)), problem.d + 8)
    away = up(sqrt(up(2.0 * up(point.gap) / old))) * up(max(old, new) / new)
    radius = up(0.5 * abs(old - new) / new * size + away + 8.0 * UNIT * factor * size)
    return Ball(
        problem, "rrpb", factor * point.x, factor * point.margins, up(radius * sqrt(new)), point.gap
    )


CONES = {
    "gb": gradient_bound,
    "dgb": duality_gap_ball,
    "cdgb": constrained_dual_ball,
    "rrpb": relaxed_path_ball,
}
"""Bounds only for problems over a cone; `pgb` and `midpoint` are in the general table."""


def _sphere_of(bound: str, point: Point, s: Array) -> Region:
    """The ball of the module's docstring for the pair of `point` and any `s` in the polar cone."""
    problem = point.problem
    cone, diagonal = _cone(problem), problem.quadratic.diagonal
    if not np.isfinite(point.gap):
        return Everywhere(problem, bound, point.gap)
    v = -(point.At_theta + problem.linear)
    x_theta = (v - s) / diagonal
    root = sqrt(float(diagonal.min()))
    size = sum(float(np.linalg.norm(part)) for part in (v, s, diagonal * x_theta))
    error = up(point.dual_error + 8.0 * UNIT * size / root, problem.d + 8)
    fy = problem.losses.fenchel_young_above(point.margins, point.margin_error, point.theta)
    rest = up(float(fy.sum()), 64) + (cone.fenchel_gap(point.x, s) if s.any() else 0.0)
    distance = up(problem.quadratic.norm(point.x - x_theta), problem.d + 8) + error
    centre = 0.5 * (point.x + x_theta)
    rounding = 4.0 * UNIT * problem.quadratic.norm(np.abs(point.x) + np.abs(x_theta))
    radius = sqrt(up(up(rest) + 0.25 * distance * distance)) + 0.5 * error + rounding
    radius = up(radius + problem.drift)
    margins = problem.design.forward(centre)
    return Ball(problem, bound, centre, margins, radius, point.gap)


def _at(problem: Problem, point: Point) -> Point:
    """`point`'s primal part on `problem` with the subgradients there."""
    same_data(problem, point)
    theta = problem.losses.slope(point.margins)
    if point.problem is problem and np.array_equal(theta, point.theta):
        return point
    return reference_point(problem, point.x)


def over_cone(problem: Problem) -> bool:
    """Whether the spheres of this module say anything about `problem`."""
    return isinstance(problem.penalty, PSD | NonNegative)


def _cone(problem: Problem) -> Penalty:
    if problem.penalty is None or not over_cone(problem):
        raise InvalidInput("`bound`: this one is for problems over a cone (metric learning).")
    return problem.penalty


RULES = ("sphere", "linear", "cone", "sdls")
"""The ball alone; cut by ``<P, X> >= 0``, P in the cone; cut by the cone (two names for it)."""


def cut(problem: Problem, region: Region, rule: str) -> Region:
    """`region` as `rule` wants it.

    ``"linear"`` takes P from what the projection onto the cone takes off the ball's centre, or,
    where the centre is inside, off the dual residual: both point out of the cone where the
    ball is most likely to leave it.

    Raises
    ------
    UnknownName
        If `rule` is not one of `RULES`.
    InvalidInput
        For ``"linear"`` and ``"cone"`` without a cone.
    """
    rule = choice_in_any_case("rule", rule, RULES)
    if rule == "sphere" or not isinstance(region, Ball):
        return region
    if problem.penalty is None or not over_cone(problem):
        raise InvalidInput(f"`rule` {rule!r} is for problems over a cone (metric learning).")
    if rule in ("cone", "sdls"):
        return ConeBall(region)
    diagonal = problem.quadratic.diagonal
    normal = -problem.penalty.prox_and_subgradient(diagonal * region.centre, diagonal)[1]
    if float(np.linalg.norm(normal)) <= 1e-9 * float(np.linalg.norm(diagonal * region.centre)):
        if region.theta is None:
            return region
        dual_residual = problem.design.adjoint(region.theta) + problem.linear
        normal = -problem.penalty.prox_and_subgradient(-dual_residual, diagonal)[1]
    if not normal.any():
        return region
    place = Place(normal, problem.design.forward(normal))
    return CutBall(f"{region.bound}+linear", region, place, 0.0)
