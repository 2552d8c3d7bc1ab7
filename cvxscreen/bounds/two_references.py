"""Regions from two references: at ``C_a <= C <= C_b``, or anywhere.

Norms and products are in the metric of M and relative to ``o = -M^{-1} q``, the minimiser of the
quadratic term (0 for the plain models). ``eps`` is a reference's duality gap. Everything rests on
two facts about optima: their distance from ``o`` grows with C, their loss shrinks.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from cvxscreen._support.rounding import UNIT, square, up
from cvxscreen.bounds.one_reference import ScaledReference, dvi_ball, midpoint_named, on_data_of
from cvxscreen.bounds.regions import Ball, CutBall, Everywhere, Place, Region, TwoBalls
from cvxscreen.bounds.regions.functionals import inner, length
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput


def two_sided(problem: Problem, first: Point, second: Point) -> Region:
    """The DVI balls of two references, at any C, intersected.

    With references on both sides of C it lies in the ESSNSV region (for exact references, and for
    approximate ones with ``x = x_theta``), which lies in the SSNSV region.
    """
    balls = [dvi_ball(problem, point) for point in (first, second)]
    known = [replace(ball, bound="two_sided") for ball in balls if isinstance(ball, Ball)]
    if len(known) == 2:
        return TwoBalls("two_sided", known[0], known[1])
    return known[0] if known else Everywhere(problem, "two_sided", balls[0].gap)


def ssnsv(problem: Problem, first: Point, second: Point) -> Region:
    """SSNSV (Ogawa et al. 2013; Wang et al. 2014, (29)), safe for approximate references.

    Exact references: ``<w_a, w - w_a> >= 0`` and ``||w|| <= ||w_b||``. In general, with
    ``v_a = x_theta`` of the reference at ``C_a`` and (c, r) the midpoint balls at their own C,

    * ``<v_a, w> >= 1/2 ||v_a||^2 + 1/2 (||c_a|| - r_a)_+^2 - eps_a``: ``<v_a, w>`` is at least
      ``1/2 ||v_a||^2 + D_a - L_a(w)``, and ``L_a(w) <= L_a(w_a*) = P_a* - 1/2 ||w_a*||^2``;
    * ``||w|| <= ||c_b|| + r_b``.

    For comparison: `two_sided` proves more from the same references.
    """
    return _dome("ssnsv", problem, first, second, enhanced=False)


def dome(problem: Problem, first: Point, second: Point) -> Region:
    """The dome test (Ogawa et al. 2014, Theorem 11, corrected): the region of `ssnsv`.

    As printed its lower bound exceeds the true minimum; `CutBall` has the right form.
    """
    return _dome("dome", problem, first, second, enhanced=False)


def essnsv(problem: Problem, first: Point, second: Point) -> Region:
    """ESSNSV (Wang et al. 2014, Theorem 19), safe for approximate references.

    The half-space of `ssnsv` and a smaller ball, for exact references
    ``||w - w_b/2|| <= ||w_b||/2``. In general, with ``s = C/C_b <= 1``: optimality at C gives
    ``<w, x_b - w> + L(x_b) - L(w) >= 0`` for the loss L at C, and ``L(x_b) - L(w)`` is at most
    ``s (P_b(x_b) - 1/2 ||x_b||^2 - D_b + 1/2 ||w_b*||^2)``, so ``||w - x_b/2||^2`` is at most
    ``1/4 ||x_b||^2 + s tau`` with ``tau = eps_b + 1/2 (||c_b|| + r_b)^2 - 1/2 ||x_b||^2``.
    """
    return _dome("essnsv", problem, first, second, enhanced=True)


def _dome(
    bound: str, problem: Problem, first: Point, second: Point, *, enhanced: bool
) -> Region:
    a, b = sorted((first, second), key=lambda point: point.problem.C)
    if not a.problem.C <= problem.C <= b.problem.C:
        raise InvalidInput(
            f"bound {bound!r} needs references on both sides of C = {problem.C:g}; `reference` has "
            f"C = {a.problem.C:g} and {b.problem.C:g}. Use 'two_sided' for others."
        )
    a, b = on_data_of(problem, a), on_data_of(problem, b)
    with np.errstate(over="ignore", invalid="ignore"):
        return _cut_ball(bound, problem, a, b, enhanced=enhanced)


def _cut_ball(bound: str, problem: Problem, a: Point, b: Point, *, enhanced: bool) -> Region:
    """The ball of `b` cut by the half-space of `a`, whose C is the smaller one."""
    ray_a, ray_b = ScaledReference.of(a), ScaledReference.of(b)
    ball_a, ball_b = midpoint_named(bound, a), midpoint_named(bound, b)
    if (
        ray_a is None or ray_b is None
        or not isinstance(ball_a, Ball) or not isinstance(ball_b, Ball)
    ):
        return Everywhere(problem, bound, max(a.gap, b.gap))
    gap = max(a.gap, b.gap)
    outer = _farthest(ray_b, ball_b)
    centred = _halved if enhanced else _centred
    ball = centred(bound, problem, ray_b, outer, gap)
    level = _level(problem, ray_a, ball_a, outer)
    normal = Place(ray_a.step, problem.design.forward(ray_a.step))
    sizes = square(ball.radius), square(length(problem, normal.x)[1]), level
    if not np.isfinite(sizes).all():  # squares beyond the largest number say nothing
        return Everywhere(problem, bound, gap)
    return CutBall(bound, ball, normal, level)


def _farthest(ray: ScaledReference, ball: Ball) -> float:
    """``||c_b|| + r_b``, an upper bound of ``||w||`` at every smaller C."""
    problem = ray.point.problem
    centre = np.where(problem.quadratic.free, 0.0, ball.centre - ray.origin)
    rounding = 2.0 * UNIT * length(problem, np.abs(ball.centre) + np.abs(ray.origin))[1]
    return up(length(problem, centre)[1] + rounding + ball.radius + ray.origin_error)


def _nearest(ray: ScaledReference, ball: Ball) -> float:
    """``(||c_a|| - r_a)_+``, a lower bound of ``||w_a*||``."""
    problem = ray.point.problem
    centre = np.where(problem.quadratic.free, 0.0, ball.centre - ray.origin)
    rounding = 2.0 * UNIT * length(problem, np.abs(ball.centre) + np.abs(ray.origin))[1]
    return max(
        length(problem, centre)[0] - up(rounding + ball.radius + ray.origin_error), 0.0
    ) * (1.0 - 4.0 * UNIT)


def _level(problem: Problem, ray: ScaledReference, ball: Ball, outer: float) -> float:
    """Lower bound of ``<v_a, w>_M`` over what is left, ``v_a`` as computed."""
    own = ray.point.problem
    least, most = length(own, ray.step)
    least = max(least - ray.error, 0.0)
    right = 0.5 * square(least) + 0.5 * square(_nearest(ray, ball)) - ray.point.gap
    right -= 8.0 * UNIT * (square(least) + square(outer) + ray.point.gap)
    # v_a is known up to `error`, o up to `origin_error`; w is no farther from o than `outer`.
    right -= up(ray.error * outer + most * ray.origin_error)
    product, error = inner(problem, ray.step, ray.origin)
    return right + product - error - 4.0 * UNIT * (abs(right) + abs(product))


def _centred(bound: str, problem: Problem, ray: ScaledReference, outer: float, gap: float) -> Ball:
    """``||w - o|| <= outer``."""
    centre = ray.origin.copy()
    centre[problem.quadratic.free] = ray.point.x[problem.quadratic.free]
    margins = problem.design.forward(centre)
    return Ball(problem, bound, centre, margins, up(outer + ray.origin_error), gap)


def _halved(bound: str, problem: Problem, ray: ScaledReference, outer: float, gap: float) -> Ball:
    """``||w - x_b/2||^2 <= ||x_b||^2 / 4 + s tau``, everything relative to o."""
    point, free = ray.point, problem.quadratic.free
    step = np.where(free, 0.0, point.x - ray.origin)
    least, most = length(problem, step)
    least = max(least - up(ray.origin_error + 2.0 * UNIT * most), 0.0)
    tau = max(up(point.gap + 0.5 * square(outer)) - 0.5 * square(least) * (1.0 - 4.0 * UNIT), 0.0)
    share = up(problem.C / point.problem.C)
    most = up(most + ray.origin_error)
    radius = up(sqrt(up(0.25 * square(most) + share * up(tau))) + ray.origin_error)
    centre = 0.5 * (point.x + ray.origin)
    radius = up(radius + 4.0 * UNIT * length(problem, np.abs(centre))[1])
    return Ball(problem, bound, centre, problem.design.forward(centre), radius, gap)
