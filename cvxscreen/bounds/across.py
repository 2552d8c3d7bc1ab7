"""Balls at C from a reference at another C0, in both directions, safe for an approximate one.

Throughout ``s = C / C0``; for an exact reference ``x0 = x_theta0 = w0``. As printed, without the
reference's gap ``eps``, every one of these rules makes wrong decisions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cvxscreen.bounds.balls import midpoint_named, same_data
from cvxscreen.duality import Point, reference_point, rescaled_point
from cvxscreen.problem import Problem
from cvxscreen.regions import Ball, Region, TwoBalls


def moved(problem: Problem, point: Point) -> Point:
    """`point` of the same data at another C, its dual scaled by ``C / C0`` and evaluated anew.

    Raises
    ------
    InvalidInput
        If the two problems differ in size.
    """
    same_data(problem, point)
    return rescaled_point(problem, point)


def dvi_ball(problem: Problem, point: Point) -> Region:
    """The DVI ball from a reference at another C, safe for an approximate reference.

    With ``s = C / C0`` the point ``s theta0`` is dual feasible at C, so the midpoint ball of
    ``(x0, s theta0)`` at C contains the optimum; for an exact reference it is the ball of Wang et
    al. 2014, Theorem 6 (in both directions of C): centre ``(1+s)/2 w0``, radius ``|1-s|/2 ||w0||``.
    With a reference of gap ``eps`` and ``x0 = x_theta0`` the radius is
    ``sqrt((1-s)^2/4 ||w0||^2 + s eps)``. As printed, without ``eps``, the rule is unsafe.
    """
    return midpoint_named("dvi", moved(problem, point))


def dvi_star_ball(problem: Problem, point: Point) -> Region:
    """DVI in its dual form (Wang et al. 2014, Corollaries 8, 11, 14): from ``theta0`` alone.

    The midpoint ball of ``(x_theta0, s theta0)``: whatever x the reference has is replaced by its
    dual point's. For an exact reference it is `dvi_ball`.
    """
    same_data(problem, point)
    factor = problem.C / point.problem.C
    theta, mu = factor * point.theta, factor * point.multipliers
    return midpoint_named("dvi_star", reference_point(problem, point.x_dual, theta, mu))


def rpb_ball(problem: Problem, point: Point) -> Region:
    """The regularisation path bound (Yoshida et al. 2019: RPB, for any reference RRPB).

    In vector form it is `dvi_ball` under another name: both bound the optimum at a new parameter
    from a reference at an old one.
    """
    return midpoint_named("rpb", moved(problem, point))


def bt1_ball(problem: Problem, point: Point) -> Region:
    """Ball Test 1 (Ogawa et al. 2014, Theorem 6): the primal form of DVI, the same region.

    Theorem 6 takes any feasible ``(w, xi)`` and an optimum at another C; with the reference as both
    (their section IV) it is DVI (their Appendix C), for C above and below C0 alike.
    """
    return midpoint_named("bt1", moved(problem, point))


def bt2_ball(problem: Problem, point: Point) -> Region:
    """Ball Test 2 (Ogawa et al. 2014, Theorem 7) with the best binary vector, (25).

    The midpoint ball of ``x0`` and a dual point that is a vertex where the losses are piecewise
    linear: ``theta_i`` is the slope of ``f_i`` at the margin of the DVI centre (for the hinge
    ``-C`` where ``(1+s)/2 t_i < 1``, else 0). That choice maximises ``||m1 - m2||^2 - r2^2`` for
    every convex loss, not only for the hinge. Any `x0` is allowed.
    """
    return _second(problem, point, _slopes_at_centre(problem, point, dvi_ball(problem, point)))


def it_region(problem: Problem, point: Point) -> Region:
    """The intersection test (Ogawa et al. 2014, Theorem 8): DVI (BT1) intersected with BT2.

    Never larger than either. At ``s = 1`` it is the midpoint ball intersected with (nearly) the
    gradient ball: worth two passes while the gap is large.
    """
    first = dvi_ball(problem, point)
    second = _second(problem, point, _slopes_at_centre(problem, point, first))
    if isinstance(first, Ball) and isinstance(second, Ball):
        return TwoBalls("it", replace(first, bound="it"), replace(second, bound="it"))
    return first


def _slopes_at_centre(problem: Problem, point: Point, first: Region) -> np.ndarray:
    margins = first.margins if isinstance(first, Ball) else point.margins
    return problem.losses.slope(margins)


def _second(problem: Problem, point: Point, theta: np.ndarray) -> Region:
    mu = problem.C / point.problem.C * point.multipliers
    return midpoint_named("bt2", reference_point(problem, point.x, theta, mu))
