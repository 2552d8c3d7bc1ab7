"""For how long, along lambda, what one reference proves about a metric stays proven.

A reference ``(M0, theta0)`` of any problem over a cone gives a sphere at every lambda at once. With
``K0 = -A' theta0 - q``, ``G0 = [K0]_+`` and ``s = 1/lam`` its midpoint sphere has

::

    centre (M0 + s G0) / 2,    r(s)^2 = |M0 - s G0|^2 / 4 + s T,    T = sum FY + <M0, [-K0]_+>

and where r is convex (`_Sphere.convex`) a term decided at two lambdas is decided between them: the
ranges are the roots of one quadratic a term. The sphere RRPB (Yoshida et al. 2019, Theorem 10, and
its counterpart for the linear piece) gives shorter ranges without ``G0``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, square, up
from cvxscreen._support.validation import choice_in_any_case, one_of
from cvxscreen.bounds.cone_spheres import over_cone
from cvxscreen.core.closed_form import piece_ends
from cvxscreen.core.duality import Point, margin_error
from cvxscreen.core.losses import Codes, Piece
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Surplus = Callable[[Array], Array]

_SHRINKS = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)


@dataclass(frozen=True, eq=False)
class _Sphere:
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
    bound = choice_in_any_case("bound", bound, ("midpoint", "rrpb"))
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
        low[rows] = _settled(surplus, sphere.lam, guess[0])[rows]
        high[rows] = _settled(surplus, sphere.lam, guess[1])[rows]
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
    """The same by RRPB."""

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


def _settled(surplus: Surplus, lam: float, end: Array) -> Array:
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
