"""From one reference to a range of the parameter: how long its decisions hold, how good it stays.

Along C for data of vectors, along lambda for metric learning. Everything is rounded inward.

*Along C* both read a `ScaledReference`, the pairs ``(x0, s theta0)`` at ``C = s C0``. With
``o = 0``, ``x0 = x_theta`` and ``eps`` its gap, a hinge decision holds between the roots of
``A s^2 + B s + D``: ``A = (m^2 - N^2 W^2)/4``, ``B = m (m/2 - 1) - N^2 (eps - W^2/2)``,
``D = (m/2 - 1)^2 - N^2 W^2/4``, with ``m`` the margin, ``N = ||a_i||``, ``W = ||x0||``. An exact
reference is good to a relative ``eps`` for all C up to
``C0 (B + sqrt(B^2 - (1+eps) W^4)) / ((1+eps) W^2)`` with ``B = W^2 + eps sum_i alpha_i`` (hinge;
the eps-approximation path of Ogawa et al.).

*Along lambda* a reference ``(M0, theta0)`` of any problem over a cone gives a sphere at every
lambda at once. With ``K0 = -A' theta0 - q``, ``G0 = [K0]_+`` and ``s = 1/lam`` its midpoint sphere
has

::

    centre (M0 + s G0) / 2,    r(s)^2 = |M0 - s G0|^2 / 4 + s T,    T = sum FY + <M0, [-K0]_+>

and where r is convex (`_Sphere.convex`) a term decided at two lambdas is decided between them: the
ranges are the roots of one quadratic a term. The sphere RRPB (Yoshida et al. 2019, Theorem 10, and
its counterpart for the linear piece) gives shorter ranges without ``G0``.

Proofs: ``docs/theory.md``, section 4.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen._support.validation import choice, one_of, tolerance
from cvxscreen.bounds import ScaledReference, midpoint_ball
from cvxscreen.bounds.regions import Ball, Functionals, Place, margins_over, outward
from cvxscreen.bounds.regions.margins import inner, lifted
from cvxscreen.bounds.theorems import over_cone
from cvxscreen.core.closed_form import piece_ends
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.losses import Codes, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import judge

Array = NDArray[np.float64]

_RATIOS = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0)
_SHRINKS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
"""Shares by which a root found is moved inward until it provably holds: a root is off by rounding,
so one of the first few does; where none does the range ends at the reference."""


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


class _Sweep(Immutable):
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
        """The problem that the reference is the optimum of."""
        return self.ray.point.problem

    @property
    def place(self) -> Place:
        """The reference's primal point and its margins."""
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


class _Strip(Immutable):
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


Surplus = Callable[[Array], Array]



class _Sphere(Immutable):
    """Numbers of the reference; arrays over the terms, norms in Frobenius'."""

    lam: float
    m: Array
    m_error: Array
    k: Array
    k_error: Array
    h: Array
    M_norm: float  # |M0|
    G_norm: float  # |G0|
    cross: float  # <M0, G0>
    terms: float  # T
    off: float  # error of G0
    relative_error: float  # of sums over the coordinates, and so of the three numbers above
    distance: float  # sqrt(2 gap / lam)

    def radius(self, s: Array) -> Array:
        """Of the midpoint sphere at ``1/s``, rounded up."""
        squared = square(self.M_norm) - 2.0 * s * self.cross + (s * self.G_norm) ** 2
        size = (self.M_norm + s * self.G_norm) ** 2
        apart = np.sqrt(np.maximum(squared, 0.0) + 64.0 * UNIT * size) + s * self.off
        return (np.sqrt(0.25 * apart**2 + s * self.terms) + 0.5 * s * self.off) * (1 + 16 * UNIT)

    def convex(self) -> bool:
        """Whether r is convex in s for certain.

        ``r^2 = a + b s + c s^2`` has a convex root if and only if ``|b| <= 2 sqrt(a c)``, that is
        ``|T - <M0, G0>/2| <= |M0| |G0| / 2``. As ``T >= 0``, Cauchy and Schwarz give one half of
        it, with equality for an exact reference; only ``T <= (<M0, G0> + |M0| |G0|)/2`` is asked,
        which an accurate reference satisfies by far.
        """
        product = self.M_norm * self.G_norm
        error = self.M_norm * self.off + 4.0 * self.relative_error * product
        return self.terms <= 0.5 * (self.cross + product) - error


def lam_interval(point: Point, bound: str = "midpoint") -> tuple[Array, Array, Codes]:
    """For every term the values of lambda over which its decision at the reference's holds.

    Parameters
    ----------
    point : Point
        The reference, from a solution or `reference_point`; it need not be exact.
    bound : {"midpoint", "rrpb"}

    Returns
    -------
    low, high : array, shape (n,)
        At every lambda in ``[low_i, high_i]`` the term sits on its piece. NaN where nothing is
        proven at the reference's own lambda.
    codes : array of int8, shape (n,)
        The pieces: `Piece.ZERO` (R in the paper), `Piece.LOW` (L) or undecided.

    Raises
    ------
    InvalidInput
        For a problem that is not over a cone.
    UnknownName
        For another bound.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0), tol=1e-8)
    >>> low, high, piece = cvxscreen.lam_interval(solution.point())
    >>> decided = low <= high                                   # False where NaN
    >>> int(decided.sum()), bool(((low <= 10) & (10 <= high))[decided].all())
    (156, True)
    """
    one_of("point", point, Point, "a point is needed, as `solution.point()` or `reference_point`")
    bound = choice("bound", bound, ("midpoint", "rrpb"))
    if not over_cone(point.problem) or point.problem.drift > 0.0:
        raise InvalidInput("`point`: ranges over lambda are for full problems over a cone.")
    sphere = _sphere(point)
    problem = point.problem
    n = problem.n
    low, high = np.full(n, np.nan), np.full(n, np.nan)
    codes = np.full(n, Piece.UNDECIDED, dtype=np.int8)
    if not np.isfinite(point.gap) or (bound == "midpoint" and not sphere.convex()):
        return low, high, codes
    zero = np.full(n, Piece.ZERO, dtype=np.int8)
    linear = np.full(n, Piece.LOW, dtype=np.int8)
    for piece, sign in ((zero, 1.0), (linear, -1.0)):
        ends = piece_ends(problem.losses, piece)
        level = ends[0] if sign > 0 else -ends[1]
        surplus = (_midpoint if bound == "midpoint" else _relaxed)(sphere, sign, level)
        guess = (_roots if bound == "midpoint" else _relaxed_ends)(sphere, sign, level)
        rows = surplus(np.full(n, sphere.lam)) > 0.0
        codes[rows] = piece[rows]
        low[rows] = _end_that_holds(surplus, sphere.lam, guess[0])[rows]
        high[rows] = _end_that_holds(surplus, sphere.lam, guess[1])[rows]
    return low, high, codes


def _sphere(point: Point) -> _Sphere:
    problem = point.problem
    lam = float(problem.quadratic.diagonal[0])
    G = lam * point.x_theta
    return _Sphere(
        lam=lam,
        m=point.margins,
        m_error=point.margin_error,
        k=problem.design.forward(G),
        k_error=margin_error(problem, G),
        h=problem.norms * np.sqrt(lam) * (1.0 + gamma(problem.d + 16)),
        M_norm=float(np.linalg.norm(point.x)),
        G_norm=float(np.linalg.norm(G)),
        cross=float(point.x @ G),
        terms=up(point.terms, 64),
        relative_error=gamma(problem.d + 16),
        off=up(np.sqrt(lam) * point.dual_error, 16),
        distance=up(float(np.sqrt(2.0 * up(point.gap) / lam)), 16),
    )


def _midpoint(sphere: _Sphere, sign: float, level: Array) -> Surplus:
    """Lower bound of ``sign <H, M*> - level`` at every lambda, by the midpoint sphere."""

    def surplus(lam: Array) -> Array:
        s = 1.0 / lam
        middle = 0.5 * sign * (sphere.m + s * sphere.k)
        error = 0.5 * (sphere.m_error + s * sphere.k_error) + sphere.h * sphere.radius(s)
        size = np.abs(sphere.m) + s * np.abs(sphere.k) + error + np.abs(level)
        return np.asarray(middle - error - 8.0 * UNIT * size - level)

    return surplus


def _relaxed(sphere: _Sphere, sign: float, level: Array) -> Surplus:
    """The same bound by the relaxed regularisation path bound (RRPB)."""

    def surplus(lam: Array) -> Array:
        grown = 0.5 * (sphere.lam + lam) / lam
        radius = 0.5 * np.abs(sphere.lam - lam) / lam * sphere.M_norm * (1.0 + gamma(64))
        radius = radius + np.maximum(sphere.lam, lam) / lam * sphere.distance
        error = grown * sphere.m_error + sphere.h * radius * (1.0 + 16.0 * UNIT)
        size = grown * np.abs(sphere.m) + error + np.abs(level)
        return np.asarray(sign * grown * sphere.m - error - 8.0 * UNIT * size - level)

    return surplus


def _roots(sphere: _Sphere, sign: float, level: Array) -> tuple[Array, Array]:
    """Where the midpoint rule stops to hold, below and above the reference's lambda."""
    a, c = 0.25 * square(sphere.M_norm), 0.25 * square(sphere.G_norm)
    b = sphere.terms - 0.5 * sphere.cross
    shift, slope, h2 = sign * sphere.m - 2.0 * level, sign * sphere.k, 4.0 * sphere.h**2
    A, B, C = slope**2 - h2 * c, 2.0 * shift * slope - h2 * b, shift**2 - h2 * a
    here = 1.0 / sphere.lam
    with np.errstate(all="ignore"):
        root = np.sqrt(np.maximum(B * B - 4.0 * A * C, 0.0))
        q = -0.5 * (B + np.where(B >= 0, root, -root))
        both = np.array([q / A, C / q])
        flat = -shift / slope  # where the left side changes sign
        both = np.vstack([both, flat[None]])
        below = np.where(np.isfinite(both) & (both > 0) & (both < here), both, 0.0).max(axis=0)
        above = np.where(np.isfinite(both) & (both > here), both, np.inf).min(axis=0)
        return 1.0 / above, 1.0 / below


def _relaxed_ends(sphere: _Sphere, sign: float, level: Array) -> tuple[Array, Array]:
    """Theorem 10 in terms of ``<sign H, M0>`` and a threshold of either sign."""
    m, nh, eh = sign * sphere.m, sphere.M_norm * sphere.h, sphere.distance * sphere.h
    with np.errstate(all="ignore"):
        down, upward = m - 2.0 * level + nh, nh - m + 2.0 * level + 2.0 * eh
        low = np.where(down > 0, (nh - m + 2.0 * eh) / down, np.inf)
        high = np.where(upward > 0, (nh + m) / upward, np.inf)
        return sphere.lam * np.maximum(low, 0.0), sphere.lam * high


def _end_that_holds(surplus: Surplus, lam: float, end: Array) -> Array:
    """The end moved towards `lam` until the rule holds there, rounding included; else `lam`."""
    far = np.clip(np.where(np.isfinite(end), end, lam * 1e12), lam * 1e-12, lam * 1e12)
    out = np.full(len(end), lam)
    done = np.zeros(len(end), dtype=bool)
    for shrink in _SHRINKS:
        tried = far + shrink * (lam - far)
        good = ~done & (surplus(tried) > 0.0)
        out[good] = tried[good]
        done |= good
    return out
