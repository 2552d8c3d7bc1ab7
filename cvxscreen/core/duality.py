"""Dual feasible points, and the duality gap as a sum of non-negative terms.

With ``v = -A' theta - q + F' mu`` and ``x_theta = M^{-1} v`` (under a penalty its proximal point,
and one more non-negative term, see `cvxscreen.core.penalty`) the gap of a primal ``x`` and a dual
feasible ``theta`` is, without any cancellation,

::

    P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i FY_i(<a_i, x>, theta_i) + <mu, F x + f>

(Fenchel and Young). Unpenalised coordinates ask for ``(A' theta + q - F' mu)_j = 0``; a dual point
is repaired to satisfy it up to the last rounding (`cvxscreen.core.balance`).

Where an L1 norm alone holds the coordinates, M = 0, there is no ``x_theta`` and ``v`` itself must
lie in the domain of ``h*``: ``|A_j' theta| <= kappa_j``. The boxes of the slopes contain 0, so any
theta is made feasible by a factor (Ndiaye et al. 2017, (12)), in exact arithmetic by one rounded
down (`feasible_share`).

A `Point` is what one evaluation of both sides tells. `reference_point` makes it in two passes over
the data, `rescaled_point` in none where only the parameter has changed.

Proofs: ``docs/theory.md``, section 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.validation import finite, one_of
from cvxscreen.core.balance import FEW, balance, balance_with_multipliers, imbalance_cost
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic

__all__ = ["Centre", "Point", "dual_feasible", "margin_error", "reference_point", "rescaled_point"]
Array = NDArray[np.float64]
REFINED_ROWS = 2000
"""At most so many margins are recomputed in extended precision."""


@dataclass(frozen=True, eq=False)
class Centre:
    """A point close to ``(x + x_theta)/2`` whose margins are known without a pass.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
        ``<a_i, x>``.
    error : float
        Bound of its distance from the true midpoint, in the norm of ``M``.
    """

    x: Array
    margins: Array
    error: float


@dataclass(frozen=True, eq=False)
class Point:
    """A primal point with a dual feasible point, and all that one evaluation of both tells.

    Built by `reference_point` only, so that a region always rests on a consistent pair.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    theta : array, shape (n,)
        Slopes in ``[lo, hi]``; the public dual variable is ``alpha = -theta``.
    multipliers : array, shape (m,)
        Of the side constraints; empty without them.
    margins : array, shape (n,)
        ``<a_i, x>`` as computed; the true value is within `margin_error`.
    x_theta : array, shape (d,)
        ``x_theta``; on unpenalised coordinates equal to `x`.
    primal_dual_distance : float
        ``||x - x_theta||_M`` as computed, within `dual_error`.
    terms : float
        Upper bound of ``sum_i FY_i`` (plus the side constraints' complementarity).
    gap : float
        Upper bound of the duality gap, rounding included.
    primal : float
        Objective at `x`.
    feasible : bool
        Whether `x` provably satisfies the side constraints (always true without them).
    At_theta : array, shape (d,)
        ``A' theta`` as computed (without a quadratic term: of the slopes as they were given,
        before they were shrunk to be feasible).
    penalty_subgradient : array, shape (d,)
        ``s``, the dual point's part in the domain of ``h*``; empty without a penalty.
    centre : Centre or None
        Of a rescaled point; None means that a bound computes the midpoint's margins itself.
    At_theta_error : float
        Relative error of ``A' theta`` beyond that of the pass, where it was not made anew.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> point = cvxscreen.reference_point(solution.problem, solution.x, solution.theta)
    >>> bool(point.relative_gap <= 1e-9), point.margins.shape
    (True, (200,))
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    margins: Array
    margin_error: Array
    x_theta: Array
    dual_error: float
    primal_dual_distance: float
    terms: float
    gap: float
    primal: float
    feasible: bool
    At_theta: Array
    penalty_subgradient: Array
    centre: Centre | None = None
    At_theta_error: float = 0.0

    @property
    def reach(self) -> float:
        """About the radius of its midpoint ball, without the rounding that would prove anything."""
        distance = self.primal_dual_distance
        return float(np.sqrt(self.terms + 0.25 * distance * distance))

    @property
    def relative_gap(self) -> float:
        """``gap / max(|primal|, |dual|)``."""
        dual = self.primal - self.gap
        return self.gap / max(abs(self.primal), abs(dual), 1e-300)


def reference_point(
    problem: Problem,
    x: ArrayLike,
    theta: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
    *,
    known: tuple[Array, Array] | None = None,
) -> Point:
    """Evaluate a primal and a dual point together: two passes over the data.

    Parameters
    ----------
    x : array_like, shape (d,)
    theta : array_like, shape (n,), optional
        Any slopes; they are made dual feasible. The subgradients at `x` when omitted.
    multipliers : array_like, shape (m,), optional
        Of the side constraints.
    known : pair of arrays, optional
        ``design.forward(x)`` and ``design.adjoint(theta)`` where both have been computed, without a
        penalty that moves x; the second is computed again if `theta` is not feasible as it is.

    Returns
    -------
    Point
        With an upper bound of the duality gap that includes all rounding.

    Raises
    ------
    InvalidInput
        On wrong shapes or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> point = cvxscreen.reference_point(cvxscreen.svm(X, y, C=0.1), np.zeros(3))
    >>> round(point.primal, 4), round(point.gap, 4)             # at 0 every hinge is 1
    (20.0, 336.1691)
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    x = finite("x", x, (problem.d,)).copy()
    if problem.penalty is not None:
        x = problem.penalty.project(x)
    margins = problem.design.forward(x) if known is None else known[0]
    if theta is None:
        theta = problem.losses.slope(margins)
    given = theta = finite("theta", theta, (problem.n,))
    if multipliers is not None:
        m = 0 if problem.side is None else len(problem.side.offset)
        multipliers = finite("multipliers", multipliers, (m,))
    theta, mu = dual_feasible(problem, theta, multipliers, margins, x)
    same = known is not None and np.array_equal(theta, given)
    At_theta = known[1] if known is not None and same else problem.design.adjoint(theta)
    error = margin_error(problem, x)
    return _assemble(problem, x, theta, mu, margins, error, At_theta, 0.0)


def rescaled_point(problem: Problem, point: Point) -> Point:
    """`point` of the same data at another C: its primal point with its dual times ``C / C0``.

    The scaled slopes are dual feasible at the new C. Margins and ``A' theta`` are known up to the
    factor, so no pass over the data is made (where there are side constraints or a linear term, the
    pair is evaluated anew).
    """
    old = point.problem
    factor = problem.C / old.C
    if problem.pure_l1:
        return _rescaled_pure_l1(problem, point)
    same = problem.design is old.design and problem.side is None
    plain = not problem.linear.any() and not old.linear.any()
    same = same and (plain or (factor == 1.0 and np.array_equal(problem.linear, old.linear)))
    if not (same and problem.losses.is_multiple(old.losses, factor)):
        return reference_point(problem, point.x, factor * point.theta, factor * point.multipliers)
    losses, theta = problem.losses, factor * point.theta
    theta = np.where(point.theta == old.losses.lo, losses.lo, theta)
    theta = np.where(point.theta == old.losses.hi, losses.hi, theta)
    theta = np.clip(theta, losses.lo, losses.hi)
    moved = _assemble(
        problem, point.x, theta, point.multipliers, point.margins, point.margin_error,
        factor * point.At_theta, gamma(8),
        up(float(np.abs(theta - factor * point.theta) @ problem.rounding_norms), problem.n + 8),
    )
    if problem.quadratic is not old.quadratic or problem.penalty is not None or not plain:
        return moved
    error = 0.5 * factor * (up(point.primal_dual_distance, problem.d + 8) + point.dual_error)
    if error > 0.02 * moved.primal_dual_distance:
        return moved
    middle = 0.5 * (1.0 + factor)
    return replace(moved, centre=Centre(middle * point.x, middle * point.margins, error))


def dual_feasible(
    problem: Problem,
    theta: ArrayLike,
    multipliers: ArrayLike | None = None,
    margins: Array | None = None,
    x: Array | None = None,
) -> tuple[Array, Array]:
    """Clip `theta` into its box, `multipliers` into K*, and `balance` the unpenalised part.

    `x` is needed where M is singular: the slope of M there is part of what is balanced.
    """
    losses = problem.losses
    linear = problem.linear if x is None else linear_at(problem, x)
    theta = np.clip(np.asarray(theta, dtype=np.float64), losses.lo, losses.hi)
    if problem.side is None:
        mu = np.zeros(0)
        target = linear[problem.quadratic.free]
    else:
        raw = np.zeros(len(problem.side.offset)) if multipliers is None else multipliers
        mu = problem.side.project_dual(raw)
        target = (linear - problem.side.adjoint(mu))[problem.quadratic.free]
    return balance(problem, theta, target, margins), mu


def balanced(
    problem: Problem, x: Array, theta: Array, mu: Array, margins: Array
) -> Iterator[tuple[Array, Array]]:
    """Pairs near slopes and multipliers that balance to a tolerance only, the likelier one first.

    Slopes alone can move, or multipliers of side constraints with them; which comes nearer the
    certificate says. The helpers of norms are balanced by multipliers alone.
    """
    side = problem.side
    cones = side is not None and any(kind == "soc" for kind, _ in side.dims)
    if not cones:
        yield dual_feasible(problem, theta, mu, margins, x)
    if side is not None:
        yield balance_with_multipliers(problem, theta, side.project_dual(mu), linear_at(problem, x))
    if cones:
        yield dual_feasible(problem, theta, mu, margins, x)


def linear_at(problem: Problem, x: Array) -> Array:
    """``q``, and where M is singular ``M x + q``: there the dual point is a gradient at x.

    For any y in the domain ``1/2 <y, M y> >= 1/2 <x, M x> + <M x, y - x>``, so slopes with
    ``A' theta + M x + q = 0`` give the same gap as an exact dual point.
    """
    quadratic = problem.quadratic
    if not isinstance(quadratic, Quadratic) or not quadratic.singular:
        return problem.linear
    return problem.linear + quadratic.apply(x)


def free_load(problem: Problem, theta: Array) -> Array:
    """``sum_i |a_ij theta_i|`` of the unpenalised coordinates j, or more than that, shape (m,)."""
    free = problem.quadratic.free
    if int(free.sum()) <= FEW:
        return np.asarray(np.abs(problem.free_columns).T @ np.abs(theta))
    size = float(np.linalg.norm(theta)) * (1.0 + gamma(problem.n + 8)) ** 2  # Cauchy and Schwarz
    return np.asarray(problem.column_sizes[free] * size)


def feasible_share(
    problem: Problem, theta: Array, At_theta: Array, At_theta_error: float = 0.0
) -> tuple[float, Array]:
    """The share of `theta` that is feasible for certain, and how far off its ``A' theta`` may be.

    Parameters
    ----------
    theta : array, shape (n,)
        In their boxes.
    At_theta : array, shape (d,)
        ``A' theta`` as computed.
    At_theta_error : float
        Its relative error beyond that of one pass.

    Returns
    -------
    share : float
        At most 1; ``share * theta``, rounded, satisfies ``|A_j' theta| <= kappa_j``.
    error : array, shape (d,)
        Bound of the error of ``share * At_theta`` as ``A' (share * theta)``, both rounded.

    Notes
    -----
    A pass is off by at most ``factor sum_i |a_ij theta_i| <= factor ||A_j|| ||theta||``; rounding
    ``share * theta`` adds a unit of that, rounding ``share * At_theta`` a unit of itself.
    """
    penalty: L1 = problem.penalty  # type: ignore[assignment]
    reach = up(float(np.linalg.norm(theta)), problem.n + 8)
    reach *= 1.0 + gamma(problem.n + 8)  # of the columns' norms
    factor = problem.design.adjoint_factor + At_theta_error + gamma(8)
    error = factor * reach * problem.column_sizes
    largest = float(np.max((np.abs(At_theta) + error) / penalty.kappa, initial=0.0))
    if largest * (1.0 + 8.0 * UNIT) <= 1.0:
        return 1.0, error
    share = (1.0 - 16.0 * UNIT) / largest
    return share, share * error * (1.0 + 8.0 * UNIT)


def margin_error(problem: Problem, x: Array) -> Array:
    """Rounding bound of ``A x``, shape (n,)."""
    return up(1.0) * problem.design.forward_error(x, problem.sizes)


def _assemble(
    problem: Problem,
    x: Array,
    theta: Array,
    mu: Array,
    margins: Array,
    error: Array,
    At_theta: Array,
    At_theta_error: float,
    moved: float = 0.0,
) -> Point:
    """The record of a pair whose passes are done.

    `At_theta_error` is a further relative error of `At_theta`, `moved` an absolute one in the dual
    norm.
    """
    if problem.pure_l1:
        return _assemble_pure_l1(problem, x, theta, margins, error, At_theta, At_theta_error)
    losses, quadratic = problem.losses, problem.quadratic
    linear = linear_at(problem, x)
    dual_residual = At_theta + linear
    size = float(np.abs(theta) @ problem.rounding_norms)
    factor = problem.design.adjoint_factor + At_theta_error
    side_gap, side_error, feasible = 0.0, 0.0, problem.side is None
    if problem.side is not None:
        dual_residual = dual_residual - problem.side.adjoint(mu)
        slack = problem.side.slack(x)
        matrix, width = abs(problem.side.matrix), gamma(len(mu) + problem.d + 8)
        room = matrix @ np.abs(x) + np.abs(problem.side.offset)
        side_gap = max(float(mu @ slack), 0.0) + width * float(np.abs(mu) @ room)
        sum_of_sizes = matrix.T @ np.abs(mu) + np.abs(At_theta + linear)
        side_error = width * quadratic.dual_reach(sum_of_sizes)
        feasible = problem.side.surely_holds(x)
    s, penalty_gap = np.zeros(0), 0.0
    if problem.penalty is None:
        x_theta = -quadratic.solve(dual_residual)
    else:
        x_theta, s = problem.penalty.prox_and_subgradient(-dual_residual, quadratic.diagonal)
        penalty_gap = problem.penalty.fenchel_gap(x, s)
    x_theta[quadratic.free] = x[quadratic.free]
    dual_error = factor * size + _solve_error(problem, x_theta, dual_residual) + problem.drift
    dual_error += side_error + moved
    apart = quadratic.norm(x - x_theta)

    imbalance_gap = 0.0
    if quadratic.free.any():
        reach = np.abs(margins - losses.b) + losses.e + losses.q * np.abs(theta)
        reach = reach + error + problem.norms * (apart + dual_error)
        residual = dual_residual[quadratic.free]
        residual_error = factor * free_load(problem, theta)
        residual_error += UNIT * np.abs(residual)
        target = linear[quadratic.free]
        imbalance_gap = imbalance_cost(
            problem, theta, residual, residual_error + problem.imbalance, target, reach
        )

    fy, margins, error = _fenchel_young(problem, x, margins, error, theta)
    terms = up(float(np.sum(fy)), 64) + side_gap + penalty_gap + imbalance_gap
    distance = up(apart, problem.d + 8) + dual_error
    return Point(
        problem=problem,
        x=x,
        theta=theta,
        multipliers=mu,
        margins=margins,
        margin_error=error,
        x_theta=x_theta,
        dual_error=dual_error,
        primal_dual_distance=apart,
        terms=terms,
        gap=up(terms + 0.5 * distance * distance),
        primal=problem.primal(x, margins),
        feasible=feasible,
        At_theta=At_theta,
        penalty_subgradient=s,
    )


def _assemble_pure_l1(
    problem: Problem, x: Array, theta: Array, margins: Array, error: Array, At_theta: Array,
    At_theta_error: float,
) -> Point:
    """The same without a quadratic term: `theta` is shrunk until ``|A' theta| <= kappa``.

    With ``s = -A' theta`` in the domain of ``h*`` the gap is ``sum_i FY_i + h(x) - <s, x>``.
    """
    penalty: L1 = problem.penalty  # type: ignore[assignment]
    shrunk, s_error = feasible_share(problem, theta, At_theta, At_theta_error)
    s = np.clip(-shrunk * At_theta, -penalty.kappa, penalty.kappa)
    theta = shrunk * theta
    fy, margins, error = _fenchel_young(problem, x, margins, error, theta)
    penalty_gap = penalty.fenchel_gap(x, s) + up(float(np.abs(x) @ s_error), problem.d + 8)
    terms = up(float(np.sum(fy)), 64) + penalty_gap
    return Point(
        problem=problem, x=x, theta=theta, multipliers=np.zeros(0), margins=margins,
        margin_error=error, x_theta=x.copy(), dual_error=0.0, primal_dual_distance=0.0, terms=terms,
        gap=up(terms), primal=problem.primal(x, margins), feasible=True, At_theta=At_theta,
        penalty_subgradient=s, At_theta_error=At_theta_error,
    )


def _rescaled_pure_l1(problem: Problem, point: Point) -> Point:
    """`rescaled_point` without a quadratic term: no pass where only lam has changed."""
    old = point.problem
    factor = problem.C / old.C
    same = problem.design is old.design and factor == 1.0
    if not (same and problem.losses.is_multiple(old.losses, 1.0)):
        return reference_point(problem, point.x, factor * point.theta)
    return _assemble_pure_l1(
        problem, point.x, point.theta, point.margins, point.margin_error,
        -point.penalty_subgradient, point.At_theta_error + gamma(8),
    )


def _fenchel_young(
    problem: Problem, x: Array, margins: Array, error: Array, theta: Array
) -> tuple[Array, Array, Array]:
    """Upper bounds of the terms; margins whose rounding dominates them are computed better."""
    losses = problem.losses
    fy = losses.fenchel_young_above(margins, error, theta)
    if losses.any_hard and not np.isfinite(fy).all():
        return fy, margins, error  # a violated constraint: infinite, whatever is computed better
    excess = fy - losses.fenchel_young(margins, theta)
    if float(excess.sum()) <= 0.01 * float(fy.sum()) or not problem.n:
        return fy, margins, error
    # Without a kink rounding enters squared: nothing to gain far below any tolerance.
    small = 1e-12 * float(np.abs(theta) @ np.abs(margins - losses.b))
    if problem.penalty is not None and (losses.q > 0).all() and float(excess.sum()) <= small:
        return fy, margins, error
    worst = np.argsort(-excess)[:REFINED_ROWS]
    worst = worst[excess[worst] > 0]
    better, left = problem.design.forward_precise(worst, x)
    margins, error = margins.copy(), error.copy()
    margins[worst], error[worst] = better, np.minimum(left, error[worst])
    return losses.fenchel_young_above(margins, error, theta), margins, error


def _solve_error(problem: Problem, x_theta: Array, dual_residual: Array) -> float:
    """Bound in the norm of M on the error of solving ``M x_theta = -dual_residual``."""
    quadratic = problem.quadratic
    if quadratic.matrix is None:
        return 4.0 * UNIT * quadratic.norm(x_theta)
    kept = ~quadratic.free
    if not kept.any():
        return 0.0
    residual = (quadratic.apply(x_theta) + dual_residual)[kept]
    rounding = 4.0 * problem.d * UNIT * (np.abs(quadratic.dense())[np.ix_(kept, kept)]
                                         @ np.abs(x_theta[kept]) + np.abs(dual_residual[kept]))
    size = float(np.linalg.norm(np.abs(residual) + rounding))
    return size / float(np.sqrt(quadratic.floor))
