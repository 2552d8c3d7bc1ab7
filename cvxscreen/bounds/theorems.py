"""The theorems: from one or two references to a region that provably contains the optimum.

*One pair* ``(x, theta)``. `midpoint_ball`, `gap_ball` and `gradient_ball` rest on a pair of the
problem itself. The bounds after them take a reference at another C0, in both directions, and are
safe for an approximate one: with ``s = C / C0`` the slopes ``s theta0`` are dual feasible at C. For
an exact reference ``x0 = x_theta0 = w0``. As printed, without the reference's gap ``eps``, every
one of these rules makes wrong decisions.

*Two references*, at ``C_a <= C <= C_b`` or anywhere. Norms and products are in the metric of M and
relative to ``o = -M^{-1} q``, the minimiser of the quadratic term (0 for the plain models).
Everything rests on two facts about optima: their distance from ``o`` grows with C, their loss
shrinks.

*Over a cone*, the spheres of Yoshida et al. 2019. All but the last are the midpoint ball with
another choice of the dual point's part in the cone. With ``v = -A' theta - q`` and any ``s`` in the
polar cone, ``x_s = M^{-1} (v - s)``::

    ||x* - (x + x_s)/2||^2 <= ||x - x_s||^2 / 4 + sum_i FY_i + (-<s, x>)

which needs neither a subgradient nor an exact reference. At the optimum ``s`` of `midpoint_ball`
and of `projected_gradient_ball` make the right side 0, ``s = 0`` does not.

A sphere also holds points outside the cone. `cut` makes it smaller before it judges: by a
half-space that contains the cone, or by the cone itself.

Proofs: ``docs/theory.md``, sections 2 and 7.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen._support.validation import choice
from cvxscreen.bounds.regions import Ball, CutBall, Everywhere, Place, Region, TwoBalls
from cvxscreen.bounds.regions.margins import inner, length
from cvxscreen.core.duality import Point, imbalance_cost, reference_point, rescaled_point
from cvxscreen.core.losses import FIELDS
from cvxscreen.core.penalty import PSD, NonNegative, Penalty
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput

_MOVE = 1e-3
"""Share of the radius by which a midpoint may be off from x for the ball to be moved to x."""


def midpoint_ball(problem: Problem, point: Point) -> Region:
    """The optimum is within ``r`` of ``(x + x_theta)/2``, ``r^2 = G - ||x - x_theta||^2 / 4``.

    Add the two strong-convexity inequalities ``P(x) - P* >= 1/2 ||x - x*||^2`` and
    ``D* - D(theta) >= 1/2 ||x_theta - x*||^2``: the parallelogram law gives the ball. It holds for
    every convex loss and any primal point, and contains DVI, BT1, BT2 and the gradient ball as
    special cases (Tran et al. 2023 unify such balls; Wang et al. 2014, Theorem 6, for DVI).

    Returns `Everywhere` when the point does not provably satisfy the side constraints; equalities
    may hold up to rounding, which is charged.
    """
    _same(problem, point)
    return midpoint_named("midpoint", point)


def gap_ball(problem: Problem, point: Point) -> Region:
    """The optimum is within ``sqrt(2 G)`` of ``x`` (Ndiaye et al.; Shibagaki et al. 2016, (8)).

    It keeps only half of the inequality behind `midpoint_ball` and is never smaller.
    """
    _same(problem, point)
    return _gap_named("gap", point)


def _gap_named(bound: str, point: Point) -> Region:
    """The gap ball of `point` on its own problem, under the name of a special case."""
    problem = point.problem
    if not point.feasible or not np.isfinite(point.gap):
        return Everywhere(problem, bound, point.gap)
    radius = up(float(np.sqrt(2.0 * up(point.gap)))) + problem.drift
    return Ball(problem, bound, point.x, point.margins, up(radius), point.gap)


def gradient_ball(problem: Problem, point: Point) -> Region:
    """The gradient ball PGB: centre ``x - g/2``, radius ``||g||/2``, g a (sub)gradient at x.

    It is the midpoint ball of ``x`` with ``theta`` the subgradients of the losses at ``x``: the
    Fenchel-Young terms vanish and ``g = x - x_theta`` (Yoshida et al. 2019, PGB, in vector form).
    Only ``x`` of `point` is used, so the reference may be of any C.
    """
    same_data(problem, point)
    return midpoint_named("pgb", reference_point(problem, point.x, None, point.multipliers))


# -- from a reference at another C --------------------------------------------------------------


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
    if not np.isfinite(point.x_theta).all():
        return Everywhere(problem, "dvi_star", point.gap)
    factor = problem.C / point.problem.C
    theta, mu = factor * point.theta, factor * point.multipliers
    return midpoint_named("dvi_star", reference_point(problem, point.x_theta, theta, mu))


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


# -- what they are made of --------------------------------------------------------------------


def midpoint_named(bound: str, point: Point) -> Region:
    """The midpoint ball of `point` on its own problem, under the name of a special case."""
    problem = point.problem
    if not np.isfinite(point.gap):
        return Everywhere(problem, bound, point.gap)
    away, infeasibility_gap = (0.0, 0.0) if point.feasible else _infeasibility(problem, point)
    if not np.isfinite(infeasibility_gap):
        return Everywhere(problem, bound, point.gap)
    distance = up(point.primal_dual_distance, problem.d + 8) + point.dual_error + away
    error = 0.5 * (point.dual_error + away)
    squared = up(point.terms + infeasibility_gap + 0.25 * distance * distance)
    radius = up(float(np.sqrt(squared))) + error
    radius = up(radius + problem.drift)
    if point.primal_dual_distance <= _MOVE * radius:
        # Moving the centre to x saves a pass over the data and costs at most 0.05 % of the radius.
        radius = up(radius + 0.5 * distance)
        return Ball(problem, bound, point.x, point.margins, radius, point.gap, point.theta)
    if point.centre is not None:
        known = point.centre
        radius = up(radius + known.error)
        return Ball(problem, bound, known.x, known.margins, radius, point.gap, point.theta)
    centre = 0.5 * (point.x + point.x_theta)
    margins = problem.design.forward(centre)
    return Ball(problem, bound, centre, margins, radius, point.gap, point.theta)


def _infeasibility(problem: Problem, point: Point) -> tuple[float, float]:
    """What it costs that `point.x` satisfies the equalities only up to rounding.

    Some point ``x'`` of the feasible set is within ``e`` of x (`SideConstraints.nearness`), and the
    bound rests on ``x'``, which nobody needs to know: each margin moves by at most ``|a_i| e``, its
    Fenchel-Young term by that times the largest slopes, ``<mu, F x + f>`` by ``|F' mu| e``.

    Returns
    -------
    float
        Bound of ``||x - x'||_M``.
    float
        Bound of what the sum of the terms grows by; infinite where nothing is known.
    """
    side, losses, quadratic = problem.side, problem.losses, problem.quadratic
    nowhere = (float("inf"), float("inf"))
    if side is None or quadratic.free.any():
        return nowhere
    near = side.nearness(point.x)
    slope = np.maximum(-losses.lo, losses.hi)
    if not np.isfinite(near) or not np.isfinite(slope).all():
        return nowhere
    largest = float(quadratic.diagonal.max(initial=0.0))
    if quadratic.matrix is not None:
        largest += float(np.linalg.norm(quadratic.matrix))
    grown = float((slope + np.abs(point.theta)) @ problem.sizes)
    side_force = abs(side.matrix).T @ np.abs(point.multipliers)
    infeasibility_gap = up(
        near * (grown + float(np.linalg.norm(side_force))), problem.n + problem.d + 64
    )
    return up(near * float(np.sqrt(largest)), problem.d + 8), infeasibility_gap


# -- references ------------------------------------------------------------------------------


def moved(problem: Problem, point: Point) -> Point:
    """`point` of the same data at another C, its dual scaled by ``C / C0`` and evaluated anew.

    Raises
    ------
    InvalidInput
        If the two problems differ in size.
    """
    same_data(problem, point)
    return rescaled_point(problem, point)


def on_data_of(problem: Problem, point: Point) -> Point:
    """`point`, at its own C or lam, on the very data of `problem`: evaluated there if it was not.

    For bounds that rest on what a reference says about its own optimum: of other data that is
    nothing at all.
    """
    same_data(problem, point)
    own = point.problem
    if own is problem or _alike(problem, own):
        return point
    changed = problem.with_(C=own.C) if own.lam is None else problem.with_(lam=own.lam)
    return reference_point(changed, point.x, point.theta, point.multipliers)


def _alike(problem: Problem, own: Problem) -> bool:
    """Whether the problems differ in C or lam only."""
    factor = problem.C / own.C
    same = own.design is problem.design and problem.losses.is_multiple(own.losses, factor)
    same = same and own.side is problem.side and np.array_equal(own.linear, problem.linear)
    if own.lam is None or problem.lam is None or own.penalty is None or problem.penalty is None:
        same = same and own.penalty is problem.penalty
        return same and own.quadratic is problem.quadratic
    scale = problem.lam / own.lam
    close = np.isclose(
        problem.quadratic.diagonal, scale * own.quadratic.diagonal, rtol=1e-13, atol=0.0
    )
    plain = own.quadratic.matrix is None and problem.quadratic.matrix is None
    return same and plain and bool(close.all()) and type(own.penalty) is type(problem.penalty)


def same_data(problem: Problem, point: Point) -> None:
    """Refuse a reference whose problem has another shape."""
    if point.problem.n != problem.n or point.problem.d != problem.d:
        raise InvalidInput(
            f"`reference` belongs to a problem of {point.problem.n} terms and {point.problem.d} "
            f"coordinates; this one has {problem.n} and {problem.d}."
        )


def _same(problem: Problem, point: Point) -> None:
    """Refuse a reference of another problem; an equal one, as `with_` makes it, is the same."""
    if not _equal(problem, point.problem):
        raise InvalidInput(
            "`reference` was evaluated on another problem; evaluate it on this one with "
            "`reference_point(problem, x, theta)` or use bound='dvi' for a change of C."
        )


def _equal(first: Problem, second: Problem) -> bool:
    """Whether two problems share design, M, constraints and penalty, and the rest is equal."""
    parts = ("design", "quadratic", "side", "penalty")
    return first is second or (
        all(getattr(first, name) is getattr(second, name) for name in parts)
        and (first.drift, first.imbalance) == (second.drift, second.imbalance)
        and np.array_equal(first.linear, second.linear)
        and all(
            np.array_equal(getattr(first.losses, name), getattr(second.losses, name))
            for name in FIELDS
        )
    )


# -- one reference at every C at once -------------------------------------------------------------
#
# Without another pass over the data: at C = s C0 the losses are multiplied by s and the pair (x0, s
# theta0) is feasible. With o = -M^{-1} q its dual primal point is o + s (x_theta - o), so
#
#     gap(s)    = s T + 1/2 ||p - s k||^2,          p = x0 - o,  k = x_theta - o,  T = sum_i FY_i
#     centre(s) = (x0 + o + s k) / 2
#     r(s)^2    = s T + 1/4 ||p - s k||^2           (the midpoint ball)
#
# With o = 0 and an exact reference: centre (1+s)/2 w0, radius |1-s|/2 ||w0|| (DVI, BT1). With x0 =
# x_theta: r^2 = s eps + (1-s)^2/4 ||w0||^2.


Array = NDArray[np.float64]


class ScaledReference(Immutable):
    """The pairs ``(x0, s theta0)`` for all ``s > 0``.

    Attributes
    ----------
    point : Point
    origin : array, shape (d,)
        ``o``; on unpenalised coordinates equal to x0.
    step : array, shape (d,)
        ``k``; 0 on unpenalised coordinates.
    terms : float
        Upper bound of T, for losses whose scaling by ``s`` is rounded too.
    error : float
        Bound in the norm of M on the error of ``k``.
    origin_error : float
        The same for ``o``.
    """

    point: Point
    origin: Array
    step: Array
    terms: float
    error: float
    origin_error: float

    @classmethod
    def of(cls, point: Point) -> ScaledReference | None:
        """The ray of `point`, or None where scaling theta leaves the dual feasible set."""
        problem = point.problem
        quadratic, losses = problem.quadratic, problem.losses
        free = quadratic.free
        if problem.penalty is not None:
            return None
        if problem.linear[free].any() or not point.feasible or not np.isfinite(point.gap):
            return None
        repair = _repair(point)
        if not np.isfinite(repair):
            return None
        origin = -quadratic.solve(problem.linear)
        origin_error = 0.0
        if problem.linear.any() or problem.drift > 0.0:
            size = length(problem, origin)[1]
            conditioned = 1.0 if quadratic.matrix is None else float(
                np.abs(quadratic.dense()).sum()
            ) / quadratic.floor
            origin_error = gamma(4 * problem.d + 8) * conditioned * size + problem.drift
        origin[free] = point.x[free]
        rounding = 16.0 * UNIT * np.abs(point.theta)
        reach = np.abs(point.margins - losses.b) + losses.e + losses.q * np.abs(point.theta)
        reach = reach + point.margin_error
        return cls(
            point=point,
            origin=origin,
            step=np.where(free, 0.0, point.x_theta - origin),
            terms=up(point.terms + up(float(rounding @ reach), 300), 8),
            error=up(point.dual_error + repair + up(float(rounding @ problem.norms), 300)),
            origin_error=origin_error,
        )

    def apart(self, s: float) -> float:
        """Upper bound of ``||p - s k||``."""
        problem = self.point.problem
        step = self.point.x - self.origin - s * self.step
        rounding = 4.0 * UNIT * length(problem, np.abs(self.point.x) + np.abs(self.origin))[1]
        rounding += 4.0 * UNIT * s * length(problem, np.abs(self.step))[1]
        return up(length(problem, step)[1] + rounding + self.rounding_error(s))

    def rounding_error(self, s: float) -> float:
        """Bound of the error of ``o + s k``."""
        return up(s * self.error + abs(1.0 - s) * self.origin_error)

    def gap(self, s: float) -> float:
        """Upper bound of the duality gap of the pair at ``s``."""
        return up(s * self.terms + 0.5 * square(self.apart(s)))

    def radius(self, s: float) -> float:
        """Of the midpoint ball at ``s``, for the centre as computed."""
        squared = up(s * self.terms + 0.25 * square(self.apart(s)))
        return up(float(np.sqrt(squared)) + 0.5 * self.rounding_error(s) + self.point.problem.drift)

    def products(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """``||p - k||^2``, ``<p - k, k>`` and ``||k||^2`` as computed, and their errors."""
        problem, point = self.point.problem, self.point
        moved = np.where(problem.quadratic.free, 0.0, point.x - point.x_theta)
        dd, dk, kk = (
            inner(problem, u, v)
            for u, v in ((moved, moved), (moved, self.step), (self.step, self.step))
        )
        return (dd[0], dk[0], kk[0]), (dd[1], dk[1], kk[1])

    def places(self) -> tuple[Place, Place]:
        """``x0 + o`` and ``k`` with their margins; no pass where ``x0 = x_theta`` and ``o = 0``.

        On unpenalised coordinates they mean nothing.
        """
        problem, point = self.point.problem, self.point
        forward = problem.design.forward
        both = Place(point.x, point.margins)
        if problem.linear.any():
            both = Place(point.x + self.origin, forward(point.x + self.origin))
        elif not (point.x - point.x_theta).any():
            return both, both
        return both, Place(self.step, forward(self.step))


def _repair(point: Point) -> float:
    """How far, in the norm of M, an exactly balanced dual point may be from theta's."""
    problem = point.problem
    columns = problem.free_columns
    if not columns.shape[1]:
        return 0.0
    residual = columns.T @ point.theta
    residual_error = (
        gamma(problem.n + 8) * (np.abs(columns).T @ np.abs(point.theta)) + problem.imbalance
    )
    target = np.zeros(columns.shape[1])
    return imbalance_cost(problem, point.theta, residual, residual_error, target, problem.norms)


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
    (_, size), spread = _from_origin(ray, ball)
    return up(size + spread)


def _nearest(ray: ScaledReference, ball: Ball) -> float:
    """``(||c_a|| - r_a)_+``, a lower bound of ``||w_a*||``."""
    (size, _), spread = _from_origin(ray, ball)
    return max(size - up(spread), 0.0) * (1.0 - 4.0 * UNIT)


def _from_origin(ray: ScaledReference, ball: Ball) -> tuple[tuple[float, float], float]:
    """``||c||`` from below and above, and how much nearer or farther a point of the ball may be."""
    problem = ray.point.problem
    centre = np.where(problem.quadratic.free, 0.0, ball.centre - ray.origin)
    rounding = 2.0 * UNIT * length(problem, np.abs(ball.centre) + np.abs(ray.origin))[1]
    return length(problem, centre), rounding + ball.radius + ray.origin_error


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
    return _gap_named("dgb", _at(problem, point))


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
    """`region` as `rule` wants it; each proves at least what those before it do.

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
    rule = choice("rule", rule, RULES)
    if rule == "sphere" or not isinstance(region, Ball):
        return region
    if problem.penalty is None or not over_cone(problem):
        raise InvalidInput(f"`rule` {rule!r} is for problems over a cone (metric learning).")
    half = _half_space(problem, problem.penalty, region)
    if rule == "linear":
        return half or region
    from cvxscreen.bounds.regions.cone_ball import ConeBall

    return ConeBall(region, half)


def _half_space(problem: Problem, cone: Penalty, region: Ball) -> CutBall | None:
    """`region` cut by ``<P, X> >= 0``, where there is a P."""
    diagonal = problem.quadratic.diagonal
    normal = -cone.prox_and_subgradient(diagonal * region.centre, diagonal)[1]
    if float(np.linalg.norm(normal)) <= 1e-9 * float(np.linalg.norm(diagonal * region.centre)):
        if region.theta is None:
            return None
        dual_residual = problem.design.adjoint(region.theta) + problem.linear
        normal = -cone.prox_and_subgradient(-dual_residual, diagonal)[1]
    if not normal.any():
        return None
    place = Place(normal, problem.design.forward(normal))
    return CutBall(f"{region.bound}+linear", region, place, 0.0)
