"""From one reference to every C: how long its decisions hold, and how long it is good enough.

Both read a `ScaledReference`, the pairs ``(x0, s theta0)`` at ``C = s C0``. Everything is rounded
inward.

Worked instances. With ``o = 0``, ``x0 = x_theta`` and ``eps`` its gap, a hinge decision holds
between the roots of ``A s^2 + B s + D``: ``A = (m^2 - N^2 W^2)/4``, ``B = m (m/2 - 1) -
N^2 (eps - W^2/2)``, ``D = (m/2 - 1)^2 - N^2 W^2/4``, with ``m`` the margin, ``N = ||a_i||``,
``W = ||x0||``. An exact reference is good to a relative ``eps`` for all C up to
``C0 (B + sqrt(B^2 - (1+eps) W^4)) / ((1+eps) W^2)`` with ``B = W^2 + eps sum_i alpha_i`` (hinge).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.validation import one_of, tolerance
from cvxscreen.bounds import ScaledReference, midpoint_ball
from cvxscreen.bounds.regions import Ball, Functionals, Place, margins_over, outward
from cvxscreen.bounds.regions.functionals import inner, lifted
from cvxscreen.core.closed_form import piece_ends
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.losses import Codes
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.verdict import judge

Array = NDArray[np.float64]

_RATIOS = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0)
_SHRINKS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


def c_interval(problem: Problem, point: Point) -> tuple[Array, Array]:
    """For every term the values of C over which its decision at the reference's C holds.

    Parameters
    ----------
    problem : Problem
        At any C; only the sizes must fit.
    point : Point
        The reference, at ``C0 = point.problem.C``; it need not be exact.

    Returns
    -------
    low, high : array, shape (n,)
        At every C in ``[low_i, high_i]`` the term is on the piece that the midpoint ball of `point`
        proves at C0. NaN where it proves none. Exact roots; with an unpenalised coordinate the
        largest of a few ranges of C over which the decision could be proven as a whole.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> low, high = cvxscreen.c_interval(solution.problem, solution.point())
    >>> decided = low <= high                                   # False where NaN
    >>> int(decided.sum()), bool(((low <= 0.1) & (0.1 <= high))[decided].all())
    (198, True)
    >>> int(((low <= 0.2) & (0.2 <= high)).sum())               # still decided at C = 0.2
    137
    """
    _fits(problem, point)
    own = point.problem
    codes = judge(own, midpoint_ball(own, point)).codes
    low = np.where(codes >= 0, own.C, np.nan)
    high = low.copy()
    ray = ScaledReference.of(point)
    if ray is None:
        return low, high
    if own.quadratic.free.any():
        return _stepwise(ray, codes)
    strip = _Strip.of(ray)
    below, above = piece_ends(own.losses, codes)
    down, upward = strip.extents(1.0, above), strip.extents(-1.0, -below)
    rows = codes >= 0
    shrink = np.minimum(down[0], upward[0])
    grow = np.minimum(down[1], upward[1])
    with np.errstate(over="ignore"):
        low[rows] = own.C * np.maximum(1.0 - shrink[rows], 0.0) * (1.0 + 4.0 * UNIT)
        high[rows] = own.C * (1.0 + grow[rows]) * (1.0 - 4.0 * UNIT)
    return np.minimum(low, own.C), np.maximum(high, own.C)


def _stepwise(ray: ScaledReference, codes: Codes) -> tuple[Array, Array]:
    """`c_interval` with unpenalised coordinates, from the regions of whole ranges of C."""
    own = ray.point.problem
    low = np.where(codes >= 0, own.C, np.nan)
    high = low.copy()
    if own.imbalance > 0.0:
        return low, high
    for ends, first in ((low, -1.0), (high, 1.0)):
        for ratio in _RATIOS:
            s = ratio**first
            found = own.losses.piece_within(*_Sweep(ray, min(s, 1.0), max(s, 1.0)).intervals())
            same = (codes >= 0) & (found == codes)
            if not same.any():
                break
            ends[same] = own.C * s * (1.0 - first * 4.0 * UNIT)
    return low, high


@dataclass(frozen=True, eq=False)
class _Sweep:
    """The midpoint balls of all pairs ``(x0, s theta0)``, ``first <= s <= last``, as one region.

    The centre is linear in ``s`` and the radius convex, so both are largest at an end. The
    optimality condition of the intercept does not depend on the scale of the losses.
    """

    ray: ScaledReference
    first: float
    last: float
    balls: tuple[Ball, ...] = ()

    @property
    def problem(self) -> Problem:
        """The reference's own problem."""
        return self.ray.point.problem

    @property
    def place(self) -> Place:
        """The reference's primal point."""
        return Place(self.ray.point.x, self.ray.point.margins)

    def span(self, wanted: Functionals) -> tuple[Array, Array]:
        """Range of the functionals over all of the balls, rounded outward."""
        (start, start_error), (rate, rate_error) = map(wanted.at, self.ray.places())
        ends = [0.5 * (start + s * rate) for s in (self.first, self.last)]
        size = np.abs(start) + self.last * np.abs(rate)
        error = 0.5 * (start_error + self.last * rate_error) + 4.0 * UNIT * size
        radius = max(self.ray.radius(self.first), self.ray.radius(self.last))
        reach = up(radius) * wanted.norms + error
        low, _ = outward(np.minimum(*ends), reach)
        _, high = outward(np.maximum(*ends), reach)
        return low, high

    def intervals(self) -> tuple[Array, Array]:
        """``[low, high]`` of every margin at every optimum of the range."""
        return margins_over(self)


@dataclass(frozen=True, eq=False)
class _Strip:
    """The ball at ``s = 1 - u``: margins ``middle + u drift -+ N r(u)``.

    ``r(u)^2 = c0 + c1 u + c2 u^2`` up to ``errors`` in each coefficient.

    Attributes
    ----------
    middle, drift : array, shape (n,)
    error, error_rate : array, shape (n,)
        Bound of all that is not in the square root: ``error + s error_rate``.
    norms : array, shape (n,)
    """

    middle: Array
    drift: Array
    error: Array
    error_rate: Array
    norms: Array
    square: tuple[float, float, float]
    errors: tuple[float, float, float]

    @classmethod
    def of(cls, ray: ScaledReference) -> _Strip:
        """The strip of a ray on its own problem."""
        problem = ray.point.problem
        both, step = ray.places()
        norms = problem.norms * (1.0 + gamma(problem.d + 8))
        extra = 2.0 * ray.origin_error + problem.drift
        (dd, dk, kk), rounding = ray.products()
        return cls(
            middle=0.5 * (both.margins + step.margins),
            drift=-0.5 * step.margins,
            error=0.5 * margin_error(problem, both.x) + norms * extra,
            error_rate=0.5 * margin_error(problem, step.x) + norms * (ray.error + extra),
            norms=norms,
            square=(ray.terms + 0.25 * dd, 0.5 * dk - ray.terms, 0.25 * kk),
            errors=(
                0.25 * rounding[0] + 4.0 * UNIT * (ray.terms + dd),
                0.5 * rounding[1] + 4.0 * UNIT * (ray.terms + abs(dk)),
                0.25 * rounding[2] + 4.0 * UNIT * kk,
            ),
        )

    def extents(self, side: float, end: Array) -> tuple[Array, Array]:
        """How far ``s`` may fall below and rise above 1 with ``side t < end``, arrays (n,).

        ``h(u) = (a0 + a1 u)^2 - N^2 r(u)^2`` must stay positive, from ``u = 0`` on.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            return self._extent(side, end, 1.0), self._extent(side, end, -1.0)

    def _extent(self, side: float, end: Array, direction: float) -> Array:
        finite = np.isfinite(end)
        end = np.where(finite, end, 0.0)
        # s = 1 - direction v: the error grows with s.
        a0 = end - side * self.middle - self.error - self.error_rate
        a1 = direction * (self.error_rate - side * self.drift)
        size0 = np.abs(end) + np.abs(self.middle) + self.error + self.error_rate
        a0 = a0 - 4.0 * UNIT * size0
        size1 = np.abs(self.drift) + self.error_rate
        n2 = self.norms**2 * (1.0 + 4.0 * UNIT)
        c0, c1, c2 = self.square
        e0, e1, e2 = self.errors
        q0 = a0**2 - n2 * (c0 + e0) - 8.0 * UNIT * (a0**2 + n2 * c0)
        q1 = 2.0 * a0 * a1 - n2 * (direction * c1 + e1)
        q1 = q1 - 16.0 * UNIT * (np.abs(a0) * size1 + n2 * abs(c1))
        q2 = a1**2 - n2 * (c2 + e2) - 16.0 * UNIT * (size1**2 + n2 * c2)
        far = _first_root(q0, q1, q2)
        return np.where(finite, np.where((a0 > 0) & (q0 > 0), far, 0.0), np.inf)


def _first_root(q0: Array, q1: Array, q2: Array) -> Array:
    """The smallest ``v > 0`` with ``q0 + q1 v + q2 v^2 = 0``, rounded down, infinite if none.

    For ``q0 > 0``; elsewhere the result means nothing.
    """
    product = 4.0 * q2 * q0
    rounding = 8.0 * UNIT * (q1**2 + np.abs(product))
    discriminant = q1**2 - product + rounding
    root = np.sqrt(np.maximum(discriminant, 0.0))
    lower = np.sqrt(np.maximum(discriminant - 2.0 * rounding, 0.0))
    with np.errstate(divide="ignore"):
        # Both forms are the same root; each avoids a difference of like numbers.
        falling = 2.0 * q0 / np.maximum(root - q1, 0.0)
        rising = (q1 + lower) / np.maximum(-2.0 * q2, 0.0)
    out = np.where(q1 <= 0, falling, np.where(q2 < 0, rising, np.inf))
    none = (discriminant < 0) & (q2 > 0)
    return np.where(none, np.inf, out * (1.0 - 16.0 * UNIT))


def eps_interval(problem: Problem, point: Point, eps: float) -> tuple[float, float]:
    """The values of C for which the scaled reference is optimal to a relative `eps`.

    At every C of the interval the duality gap of ``(x0, C/C0 theta0)`` is at most `eps` times the
    optimal value (Ogawa et al. 2014, (35), in both directions and for an approximate reference);
    the upper end is the next C of an eps-approximate path.

    Parameters
    ----------
    problem : Problem
        At any C; only the sizes must fit.
    point : Point
    eps : float
        Relative accuracy, in (0, 1).

    Returns
    -------
    low, high : float
        NaN where the reference is not that accurate at its own C.

    Raises
    ------
    InvalidInput
        For `eps` outside (0, 1).

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> low, high = cvxscreen.eps_interval(solution.problem, solution.point(), 0.01)
    >>> round(low, 3), round(high, 3)
    (0.079, 0.126)
    """
    _fits(problem, point)
    tolerance(eps, "eps")
    own, ray = point.problem, ScaledReference.of(point)
    nothing = (float("nan"), float("nan"))
    if ray is None:
        return nothing
    slopes = np.maximum(*(np.abs(side) for side in own.losses.subgradient(point.margins)))
    loss = float(np.sum(own.losses.value(point.margins)))
    rest = point.primal - loss
    rounding = gamma(own.n + own.d + 32) * (abs(loss) + abs(rest) + abs(own.constant))
    rounding += float(slopes @ point.margin_error)
    rounding += _smooth_error(own, point.x)

    def good(s: float) -> bool:
        """Whether the gap at ``s`` is small enough; both sides are convex along the ray."""
        value = rest + s * loss - (1.0 + s) * rounding
        return s > 0.0 and (1.0 + eps) * ray.gap(s) * (1.0 + 8.0 * UNIT) <= eps * value

    if not good(1.0):
        return nothing
    (dd, dk, kk), _ = ray.products()
    j0 = eps * point.primal - (1.0 + eps) * (ray.terms + 0.5 * dd)
    j1 = (1.0 + eps) * (ray.terms - dk) - eps * loss
    j2 = 0.5 * (1.0 + eps) * kk
    ends = []
    for direction in (1.0, -1.0):
        one = np.ones(1)
        far = float(_first_root(max(j0, 0.0) * one, direction * j1 * one, -j2 * one)[0])
        # Without bound: any finite C is as good.
        far = min(far, 1.0 if direction > 0 else 1e15)
        tried = (1.0 - direction * far * (1.0 - cut) for cut in _SHRINKS)
        ends.append(next((s for s in tried if good(s)), 1.0))
    return own.C * ends[0] * (1.0 + 4.0 * UNIT), own.C * ends[1] * (1.0 - 4.0 * UNIT)


def _smooth_error(problem: Problem, x: Array) -> float:
    """Bound of the rounding error of ``1/2 <x, M x> + <q, x>``, whatever a coordinate means."""
    free, q = problem.quadratic.free, problem.linear
    bent = np.where(free, 0.0, x)
    error = 0.5 * inner(problem, bent, bent)[1] + lifted(problem, q, x)[1]
    return error + gamma(problem.d + 8) * float(np.abs(x[free]) @ np.abs(q[free]))


def _fits(problem: Problem, point: Point) -> None:
    """Refuse what is no pair of a problem and a point of its size."""
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    one_of("point", point, Point, "a point is needed, from `reference_point` or `Solution.point()`")
    if point.problem.n != problem.n or point.problem.d != problem.d:
        raise InvalidInput(
            f"`point` belongs to a problem of {point.problem.n} terms and {point.problem.d} "
            f"coordinates; this one has {problem.n} and {problem.d}."
        )
