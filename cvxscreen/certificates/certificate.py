"""A certificate: optimality recomputed on the full problem, by formulas of its own.

The loss terms as a certificate sees them: from their pieces, not from subgradients.

Used by certificates only, which share nothing with what they judge. `value_above` and `gap_above`
are written without branches over numbers *or* arrays, so that the certificate of one point (numpy)
and that of a whole path (compiled) are the same formulas.

What an unpenalised coordinate whose dual point does not balance exactly costs a certificate.

The gap where an L1 norm alone holds the coordinates, by formulas of its own.

Serves the certificate only. Without a quadratic term the dual has the constraints
``|A_j' theta| <= kappa_j``; the largest share of theta that satisfies them for certain is judged::

    P(x) - D(s theta) = sum_i (f_i(t_i) + f_i*(s theta_i) - s theta_i t_i)
                        + sum_j (kappa_j |x_j| + s x_j A_j' theta)

What a penalty adds to the gap, by formulas of its own; serves the certificate only.

With ``g(x) = 1/2 <x, M x> + h(x)`` and ``v = -A' theta - q`` the regulariser's Fenchel-Young term
``g(x) + g*(v) - <v, x>`` is ``1/2 ||x - x_v||_M^2`` plus a non-negative rest, ``x_v`` the maximiser
in ``g*(v)``. A matrix is accepted as positive semidefinite if it is so up to the rounding of its
eigenvalues; the distance of a true member of the cone is then charged.

Nothing here is shared with the code that found the answer: losses are evaluated from their pieces
(not through subgradients), each Fenchel-Young term as ``f + f* - t theta``, the conjugate of the
regulariser from its own linear system. The gap is a sum of non-negative terms, never ``P - D``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import Loop, together
from cvxscreen._support.tables import fields
from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.core.penalty import L1, PSD, NonNegative
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]

_REFINED = 2000
_MANY = 10_000
"""Terms from which on `gap_above` is compiled, by a process that has numba loaded anyway."""
EPS = float(np.finfo(np.float64).eps)


def steepness(q: Any) -> Any:
    """``1 / (2 q)``; a huge number, only ever multiplied by 0, where ``q = 0``."""
    return 0.5 / np.maximum(q, 1e-300)


def value_above(t: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any, steep: Any) -> Any:
    """``f(t)`` from the pieces: distance to the flat part, then parabola, then line.

    `steep` is ``steepness(q)``.
    """
    total = 0.0 * t
    for distance, slope in ((b - e - t, -lo), (t - b - e, hi)):
        u = np.maximum(distance, 0.0)
        inner = np.minimum(u, q * slope)
        # Beyond the parabola, where the slope is finite; the minimum only keeps 0 * inf away.
        total = total + inner * inner * steep + np.minimum(slope, 1e300) * (u - inner)
    return total


def gap_above(
    t: Any, theta: Any, noise: Any, value: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any
) -> Any:
    """``f(t) + f*(theta) - t theta`` and what rounding can hide, margins within `noise` of `t`.

    Rounding is charged only where the term is not plainly zero: where theta sits at the slope of
    the linear piece that t is on, the three parts cancel identically.
    """
    product = t * theta
    conjugate = b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
    size = value + np.abs(conjugate) + np.abs(product)
    # The steepest slope, |theta| in place of an infinite one.
    steep = np.maximum(np.minimum(-lo, np.abs(theta) + 1e300 * (lo > -1e300)),
                       np.minimum(hi, np.abs(theta) + 1e300 * (hi < 1e300)))
    fy = np.maximum(value + conjugate - product, 0.0)
    tiny = noise + 8.0 * EPS * (np.abs(t) + np.abs(b) + e)
    low = (theta == lo) & (t + tiny <= b - e + q * lo)
    high = (theta == hi) & (t - tiny >= b + e + q * hi)
    left = (lo == 0.0) | (t - tiny >= b - e)
    right = (hi == 0.0) | (t + tiny <= b + e)
    same_piece = low | high | ((theta == 0.0) & left & right)
    settled = same_piece & (fy <= 16.0 * EPS * size)
    return (1.0 - settled) * (fy + 16.0 * EPS * size + 2.0 * steep * noise)


def each_above(  # type: ignore[no-untyped-def]
    t, theta, noise, value, b, e, q, lo, hi, out,
):
    """`gap_above` of every term, to `out`."""
    for i in range(t.size):
        out[i] = gap_above(
            t[i], theta[i], noise[i], value[i], b[i], e[i], q[i], lo[i], hi[i]
        )


@lru_cache(maxsize=1)
def _compiled() -> Loop | None:
    """`each_above`, compiled; None without numba."""
    strict = frozenset[str]()
    found = together(globals(), (("gap_above", strict), ("each_above", strict)))
    return None if found is None else found["each_above"]


def gaps_above(t: Array, theta: Array, noise: Array, value: Array, losses: Any) -> Array:
    """`gap_above` of all terms, shape (n,)."""
    loop = _compiled() if len(t) >= _MANY and "numba" in sys.modules else None
    if loop is None:
        return np.asarray(gap_above(t, theta, noise, value, *columns(losses)))
    out = np.empty(len(t))
    loop(t, theta, noise, value, *columns(losses), out)
    return out


def endless_above(value: Any, noise: Any, q: Any, lo: Any, hi: Any) -> Any:
    """What the rounding of a margin hides beyond `gap_above` where a slope is unbounded.

    That is charged with ``|theta|`` for the slope; the loss's own, ``sqrt(2 f / q)``, and how it
    grows over the noise come on top. 0 where both slopes are bounded.
    """
    endless = (lo < -1e300) | (hi > 1e300)
    bend = q + (1.0 - endless)
    return endless * noise * (np.sqrt(2.0 * value / bend) + noise / bend)


def columns(losses: Any) -> tuple[Any, ...]:
    """``b, e, q, lo, hi``."""
    return losses.b, losses.e, losses.q, losses.lo, losses.hi


def piecewise_value(problem: Problem, t: Array) -> Array:
    """``f_i(t_i)``, shape (n,); `value_above` where a loss has a parabola, else its lines alone."""
    f = problem.losses
    if f.q.any():
        return np.asarray(value_above(t, f.b, f.e, f.q, f.lo, f.hi, steepness(f.q)))
    total = np.zeros_like(t)
    for side, slope in ((-1.0, -f.lo), (1.0, f.hi)):
        if slope.any():
            total += slope * np.maximum(side * (t - f.b) - f.e, 0.0)
    return total


def blurred(
    problem: Problem, t: Array, theta: Array, values: Array, noise: Array, least: float = 0.0
) -> NDArray[np.intp]:
    """Terms inside their box (some of them), where the rounding of margins matters to the gap.

    At a kink it is multiplied by the whole jump of the slope. None where all of it is less than a
    two-hundredth of the terms themselves, or than `least` (it is charged all the same).
    """
    inside = (theta > problem.losses.lo) & (theta < problem.losses.hi) & (theta != 0)
    rows = np.flatnonzero(inside)
    s, (b, e, q, lo, hi) = theta[rows], (column[rows] for column in columns(problem.losses))
    conjugate = b * s + e * np.abs(s) + 0.5 * q * s**2
    gap = float(np.maximum(values[rows] + conjugate - t[rows] * s, 0.0).sum())
    reach = np.maximum(np.where(np.isfinite(lo), -lo, np.abs(s)),
                       np.where(np.isfinite(hi), hi, np.abs(s)))
    blur = float(reach @ noise[rows])
    return rows[:0] if blur <= max(0.005 * gap, least) else rows[:_REFINED]


def residual_cost(
    problem: Problem, theta: Array, residual: Array, sensitivity: Array
) -> float:
    """Gap charge for ``E' theta + q != 0``: an exactly balanced dual point must exist nearby."""
    columns, f = problem.free_columns, problem.losses
    if not residual.any():
        return 0.0
    if columns.shape[1] == 1:
        e, need = columns[:, 0], float(residual[0]) * (1.0 + 1e-6)
        bends = e != 0
        # Ways to raise and to lower e_i theta_i; either direction may be the one needed.
        ways = (np.where(e > 0, f.hi - theta, theta - f.lo),
                np.where(e > 0, theta - f.lo, f.hi - theta))
        costs = []
        for way in ways:
            fit = bends & (way * np.abs(e) >= need)
            costs.append(float((sensitivity[fit] / np.abs(e[fit])).min()) if fit.any() else np.inf)
        if np.isfinite(costs).all():
            return need * max(costs)
    else:
        room = np.minimum(theta - f.lo, f.hi - theta)
        order = np.argsort(-(room * np.abs(columns).sum(axis=1)))[: 4 * columns.shape[1] + 4]
        order = order[room[order] > 0]
        if len(order) >= columns.shape[1]:
            inverse = np.linalg.pinv(columns[order].T)
            defect = np.linalg.norm(columns[order].T @ inverse - np.eye(len(residual)))
            move = np.abs(inverse) @ residual * (1.0 + 1e-4)
            if defect <= 1e-6 and (move <= room[order]).all():
                return float(move @ sensitivity[order])
    return 0.0 if balanced_exactly(problem, theta) else float("inf")


def balanced_exactly(problem: Problem, theta: Array) -> bool:
    """Whether ``E' theta + q = 0`` in rational arithmetic (and nothing in it is rounded)."""
    if problem.side is not None or problem.imbalance > 0:
        return False
    used = np.flatnonzero(theta)
    for j, target in enumerate(problem.linear[problem.quadratic.free]):
        column = problem.free_columns[used, j]
        products = (Fraction(float(c)) * Fraction(float(s))
                    for c, s in zip(column, theta[used], strict=True) if c)
        if sum(products, Fraction(float(target))) != 0:
            return False
    return True


def held_parts(
    problem: Problem, x: Array, theta: Array, t: Array, values: Array, force: Array
) -> float:
    """The gap of `x` and the feasible share of `theta`, rounding included.

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
        Within the boxes.
    t, values : array, shape (n,)
        ``A x`` and the terms' values, as computed.
    force : array, shape (d,)
        ``A' theta`` as computed.
    """
    kappa, f = problem.penalty.kappa, problem.losses  # type: ignore[union-attr]
    size = float(np.sqrt(np.sum(theta * theta))) * (1.0 + 4 * (problem.n + 8) * EPS)
    off = (problem.design.adjoint_factor + 8.0 * EPS) * size * problem.column_sizes
    room = kappa - off
    if not (room > 0).all():
        return float("inf")  # rounding hides whether any multiple of theta is feasible
    beyond = float(np.max(np.abs(force) / room, initial=0.0)) * (1.0 + 8.0 * EPS)
    share = 1.0 if beyond <= 1.0 else (1.0 - 8.0 * EPS) / beyond
    slopes = share * theta
    noise = problem.design.forward_error(x, problem.sizes)
    fy = gaps_above(t, slopes, noise, values, f) + endless_above(
        values, noise, f.q, f.lo, f.hi
    )
    rest = np.abs(x) * (kappa + share * np.sign(x) * force + off + 4.0 * EPS * kappa)
    return float(fy.sum() + np.maximum(rest, 0.0).sum()) * (1 + (problem.n + problem.d) * EPS)


EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Proximity:
    """The parts of the regulariser's Fenchel-Young term.

    Attributes
    ----------
    x_theta : array, shape (d,)
        ``x_v``, within `dual_blur` (Euclidean) of one that belongs to a feasible dual point.
    rest : float
        Upper bound of the term without ``1/2 ||x - x_v||_M^2``.
    blur, dual_blur : float
        Euclidean distance of x from a point surely in the domain; the same for ``M x_v``.
    outside : str
        Why x is refused; empty if it is in the domain.
    """

    x_theta: Array
    rest: float
    blur: float = 0.0
    dual_blur: float = 0.0
    outside: str = ""


def proximity(problem: Problem, x: Array, v: Array) -> Proximity:
    """The regulariser's Fenchel-Young term of `problem` at ``(x, v)``.

    Raises
    ------
    InvalidInput
        For a penalty it does not know: no certificate without a formula of its own.
    """
    penalty, diagonal = problem.penalty, problem.quadratic.diagonal
    if isinstance(penalty, L1):
        return _l1(penalty.kappa, diagonal, x, v)
    if isinstance(penalty, NonNegative):
        outside = f"x has a negative entry, {x.min():.3g}" if (x < 0).any() else ""
        pushed = np.where(v > 0, v, 0.0)
        rest = float(np.sum(np.where(v < 0, x * np.abs(v), 0.0))) * (1 + 4 * len(x) * EPS)
        return Proximity(pushed / diagonal, rest, outside=outside)
    if isinstance(penalty, PSD):
        return _psd(penalty.side, float(diagonal[0]), x, v)
    raise InvalidInput(f"`penalty` {penalty!r} is not known to the certificate.")


def _l1(kappa: Array, diagonal: Array, x: Array, v: Array) -> Proximity:
    beyond = np.abs(v) - kappa
    bent = diagonal > 0
    x_theta = x.copy()
    x_theta[bent] = np.where(
        beyond[bent] > 0, np.sign(v[bent]) * beyond[bent] / diagonal[bent], 0.0
    )
    aligned = v * np.sign(x)
    inner = np.where(np.abs(v) <= kappa, kappa - aligned, np.where(aligned < 0, 2.0 * kappa, 0.0))
    rest = float(np.sum(np.abs(x[bent]) * inner[bent])) * (1 + 4 * len(x) * EPS)
    return Proximity(x_theta, rest)


def _psd(side: int, weight: float, x: Array, v: Array) -> Proximity:
    square, force = x.reshape(side, side), v.reshape(side, side)
    if not np.array_equal(square, square.T):
        return Proximity(np.zeros_like(x), np.inf, outside="x is not a symmetric matrix")
    values = np.linalg.eigvalsh(square)
    blur = 32.0 * side * EPS * float(np.abs(values).max(initial=0.0))
    outside = ""
    if side and values[0] < -blur:
        outside = f"x is not positive semidefinite: smallest eigenvalue {values[0]:.3g}"
    force = 0.5 * (force + force.T)
    levels, frame = np.linalg.eigh(force)
    lifted = np.maximum(levels, 0.0)
    pushed = (frame * lifted) @ frame.T
    pushed = 0.5 * (pushed + pushed.T)
    dual_blur = 32.0 * side * EPS * float(np.abs(levels).max(initial=0.0))
    pressed = pushed - force  # -s, up to dual_blur
    product = square.astype(np.longdouble) * pressed
    rounding = 4.0 * side**2 * float(np.finfo(np.longdouble).eps) * float(np.abs(product).sum())
    rest = max(float(product.sum()), 0.0) + rounding
    rest += blur * (float(np.trace(np.abs(pressed))) + side * dual_blur)
    rest += dual_blur * float(np.trace(np.abs(square)))
    root = float(np.sqrt(side))
    return Proximity(pushed.ravel() / weight, rest, root * blur, root * dual_blur, outside)


@dataclass(frozen=True)
class Certificate:
    """What the recomputation found.

    Attributes
    ----------
    gap : float
        Upper bound of ``P(x) - P*``: the duality gap, rounding of this computation included.
    relative_gap : float
        ``gap / max(|primal|, |dual|)``.
    primal, dual : float
        Objective at `x` and the bound below it (``primal - gap``).
    violation : float
        Distance of `x` from the side constraints (0 without them).
    tolerance : float
        The relative gap that was asked for.
    ok : bool
        Whether the dual point is feasible, `relative_gap` is within `tolerance` and `violation` is
        within ``tolerance * (1 + |f|)``.
    reason : str
        Why not, when not ok.
    """

    gap: float
    relative_gap: float
    primal: float
    dual: float
    violation: float
    tolerance: float
    ok: bool
    reason: str = ""

    def __str__(self) -> str:
        return fields(
            [
                ("certified", self.ok),
                ("relative gap", self.relative_gap),
                ("asked for", self.tolerance),
                ("gap", self.gap),
                ("objective", float(f"{self.primal:.12g}")),
                ("violation", self.violation),
                *([("reason", self.reason)] if self.reason else []),
            ],
            title="Certificate (recomputed on the full problem)",
        )


@dataclass(eq=False)
class Passes:
    """``A x`` and ``A' theta`` as a certificate has computed them, for who goes on from there."""

    margins: Array | None = None
    force: Array | None = None


_OTHERS: dict[type, Callable[..., Certificate]] = {}


def register_certificate(kind: type, own: Callable[..., Certificate]) -> None:
    """Let `own` judge problems whose design is of `kind`; called once by who knows them."""
    _OTHERS[kind] = own


def certify(
    problem: Problem,
    x: ArrayLike,
    theta: ArrayLike,
    multipliers: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    passes: Passes | None = None,
) -> Certificate:
    """Recompute the optimality of ``(x, theta)`` on all of `problem`.

    Parameters
    ----------
    problem : Problem
        The full problem.
    x : array_like, shape (d,)
    theta : array_like, shape (n,)
        Slopes; outside ``[lo, hi]`` the certificate is refused.
    multipliers : array_like, shape (m,), optional
        Multipliers of the side constraints, in the dual cone.
    tol : float
        Relative gap asked for.
    passes : Passes, optional
        Gets the two products (data in rows or kernels); nothing is taken from it.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        On wrong shapes, or a `tol` that is not positive.

    Notes
    -----
    ``P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i)
    + <mu, F x + f>`` with ``M x_theta = -(A' theta + q - F' mu)``. Without a quadratic term the
    gap is that of `theta` times the largest share that is dual feasible for certain.
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    for kind, own in _OTHERS.items():
        if isinstance(problem.design, kind):
            return own(problem, x, theta, tol=tol)
    x, theta, tol = array("x", x), array("theta", theta), positive("tol", tol)
    f, quadratic = problem.losses, problem.quadratic
    if x.shape != (problem.d,) or theta.shape != (problem.n,):
        raise InvalidInput(
            f"`x` {x.shape} and `theta` {theta.shape} must have shapes ({problem.d},) and "
            f"({problem.n},)."
        )

    def refused(reason: str, primal: float = float("nan")) -> Certificate:
        return Certificate(np.inf, np.inf, primal, -np.inf, violation, tol, False, reason)

    violation = 0.0
    if not (np.isfinite(x).all() and np.isfinite(theta).all()):
        return refused("the point holds NaN or infinity")
    t = problem.design.forward(x)
    values = piecewise_value(problem, t)
    primal = float(values.sum()) + quadratic.inner(0.5 * quadratic.apply(x) + problem.linear, x)
    primal += problem.constant
    if problem.penalty is not None:
        primal += problem.penalty.value(x)
    if (theta < f.lo).any() or (theta > f.hi).any():
        return refused("a dual variable lies outside its box", primal)

    force = problem.design.adjoint(theta)
    if passes is not None:
        passes.margins, passes.force = t, force
    if problem.pure_l1:
        gap = held_parts(problem, x, theta, t, values, force)
        return _judged(gap, primal, tol)
    pull = force + problem.linear
    side_gap = side_error = 0.0
    if problem.side is not None:
        m = len(problem.side.offset)
        mu = np.zeros(m) if multipliers is None else array("multipliers", multipliers)
        if mu.shape != (m,):
            raise InvalidInput(f"`multipliers` has shape {mu.shape}; ({m},) is needed.")
        if not np.isfinite(mu).all():
            return refused("the multipliers of the side constraints hold NaN or infinity", primal)
        away = float(np.linalg.norm(mu - problem.side.project_dual(mu)))
        if away > 1e-9 * (1.0 + float(np.linalg.norm(mu))):
            return refused("the multipliers of the side constraints leave the dual cone", primal)
        mu = problem.side.project_dual(mu)  # only an exact member of K* proves anything
        pull = pull - problem.side.adjoint(mu)
        slack = problem.side.slack(x)
        violation = float(np.linalg.norm(slack - problem.side.project(slack)))
        matrix, width = abs(problem.side.matrix), 4 * (m + problem.d + 8) * EPS
        room = matrix @ np.abs(x) + np.abs(problem.side.offset)
        side_gap = abs(float(mu @ slack)) + width * float(np.abs(mu) @ room)
        side_error = width * quadratic.dual_reach(matrix.T @ np.abs(mu) + np.abs(pull))

    near = None if problem.penalty is None else proximity(problem, x, -pull)
    if near is not None and near.outside:
        return refused(near.outside, primal)
    noise_t = problem.design.forward_error(x, problem.sizes)
    # Under a penalty points are exact to the last digit only by chance: far below `tol` is enough.
    least = 0.0 if near is None else 1e-4 * tol * abs(primal)
    inner = blurred(problem, t, theta, values, noise_t, least)
    if len(inner) and problem.n > 0:
        # At a kink the rounding of the margin is multiplied by the whole jump of the slope.
        t[inner], noise_t[inner] = problem.design.forward_precise(inner, x)
        values = piecewise_value(problem, t)
    if near is not None:
        noise_t = noise_t + near.blur * problem.sizes
    fy = gaps_above(t, theta, noise_t, values, f)
    if (f.lo < -1e300).any() or (f.hi > 1e300).any():
        fy = fy + endless_above(values, noise_t, f.q, f.lo, f.hi)

    bent = ~quadratic.free
    x_theta = x.copy()
    if near is None:
        x_theta[bent] = -_independent_solve(problem, pull)[bent]
    else:
        x_theta = near.x_theta
        side_gap = near.rest
        side_error = near.blur * float(np.sqrt(quadratic.diagonal.max(initial=0.0)))
        side_error += near.dual_blur / float(np.sqrt(quadratic.floor))
    step = x - x_theta
    lean = float(np.abs(theta) @ problem.rounding_norms) * problem.design.adjoint_factor
    distance = quadratic.norm(step) + lean + problem.drift + 8 * EPS * quadratic.norm(x_theta)
    distance += side_error
    imbalance = 0.0
    if quadratic.free.any():
        sensitivity = np.abs(t) + np.abs(f.b) + f.e + f.q * np.abs(theta) + problem.norms * distance
        residual = np.abs(pull[quadratic.free]) + problem.imbalance
        residual = residual + problem.design.adjoint_factor * (
            np.abs(problem.free_columns).T @ np.abs(theta)
        )
        imbalance = residual_cost(problem, theta, residual, sensitivity)

    gap = float(fy.sum()) * (1 + problem.n * EPS) + 0.5 * distance * distance
    gap += side_gap + imbalance
    dual, relative = primal - gap, float(relative_gap(gap, primal))
    scale = 1.0 if problem.side is None else 1.0 + float(np.linalg.norm(problem.side.offset))
    reason = ""
    if not relative <= tol:
        reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
        if np.isinf(imbalance):
            reason = "the dual point is not balanced on the unpenalised coordinates"
    elif violation > tol * scale:
        reason = f"the side constraints are violated by {violation:.3g}"
    return Certificate(gap, relative, primal, dual, violation, tol, not reason, reason)


def _judged(gap: float, primal: float, tol: float) -> Certificate:
    """What the gap alone decides."""
    relative = float(relative_gap(gap, primal))
    reason = ""
    if not relative <= tol:
        reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
    return Certificate(gap, relative, primal, primal - gap, 0.0, tol, not reason, reason)


def relative_gap(gap: ArrayLike, primal: ArrayLike) -> Array:
    """``gap / max(|primal|, |primal - gap|)``, infinite with the gap."""
    gap, primal = np.asarray(gap, dtype=np.float64), np.asarray(primal, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        relative = gap / np.maximum(np.maximum(np.abs(primal), np.abs(primal - gap)), 1e-300)
    return np.where(np.isfinite(gap), relative, np.inf)


def _independent_solve(problem: Problem, pull: Array) -> Array:
    """``M^{-1} pull`` by LU of the dense matrix (or a division), with one refinement."""
    quadratic = problem.quadratic
    if quadratic.matrix is None:
        return np.divide(
            pull, quadratic.diagonal, out=np.zeros_like(pull), where=quadratic.diagonal > 0
        )
    bent = np.flatnonzero(~quadratic.free)
    matrix = quadratic.dense()[np.ix_(bent, bent)]
    solution = np.linalg.solve(matrix, pull[bent])
    solution += np.linalg.solve(matrix, pull[bent] - matrix @ solution)
    out = np.zeros_like(pull)
    out[bent] = solution
    return out
