"""Dual feasible points and the duality gap as a sum of non-negative terms.

With ``v = -A' theta - q + F' mu`` and ``x_theta = M^{-1} v`` the gap of a primal ``x`` and a dual
feasible ``theta`` is, without any cancellation,

::

    P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i FY_i(<a_i, x>, theta_i) + <mu, F x + f>

(`theory`: Fenchel-Young). Unpenalised coordinates ask for ``(A' theta + q - F' mu)_j = 0``; a dual
point is repaired to satisfy it up to the last rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.problem import Problem
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]

_NEWTON_STEPS = 60


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
    x_dual : array, shape (d,)
        ``x_theta``; on unpenalised coordinates equal to `x`.
    shift : float
        ``||x - x_theta||_M`` as computed, within `dual_error`.
    terms : float
        Upper bound of ``sum_i FY_i`` (plus the side constraints' complementarity).
    gap : float
        Upper bound of the duality gap, rounding included.
    primal : float
        Objective at `x`.
    feasible : bool
        Whether `x` provably satisfies the side constraints (always true without them).
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    margins: Array
    margin_error: Array
    x_dual: Array
    dual_error: float
    shift: float
    terms: float
    gap: float
    primal: float
    feasible: bool

    @property
    def relative_gap(self) -> float:
        """``gap / max(|primal|, |dual|)``."""
        dual = self.primal - self.gap
        return self.gap / max(abs(self.primal), abs(dual), 1e-300)


def margin_error(problem: Problem, x: Array) -> Array:
    """Rounding bound of ``A x``, shape (n,)."""
    factor = problem.design.forward_factor * float(np.linalg.norm(x))
    return up(1.0) * factor * problem.sizes


def balance(
    problem: Problem, theta: Array, target: Array, margins: Array | None = None
) -> Array:
    """A point of the box near `theta` with ``E' theta = -target``, E the free columns.

    The projection in a metric that makes terms far from a kink of `margins` reluctant to move (their
    Fenchel-Young term pays for it): Newton's method on its m-dimensional dual, then a last
    correction on coordinates inside the box. Best effort: what is left over is charged to the gap.
    """
    losses, columns = problem.losses, problem.free_columns
    if columns.shape[1] == 0 or problem.n == 0:
        return theta
    shift = np.zeros(columns.shape[1])
    ease = np.ones(problem.n)
    if margins is not None:
        away = losses.kink_distance(margins)
        typical = 1e-3 * float(np.median(away)) + 1e-300
        ease = typical / (typical + away)

    def trial(tau: Array) -> Array:
        return np.clip(theta - ease * (columns @ tau), losses.lo, losses.hi)

    current = trial(shift)
    residual = columns.T @ current + target
    scale = np.abs(columns).T @ np.abs(current) + np.abs(target) + 1e-300
    for _ in range(_NEWTON_STEPS):
        if (np.abs(residual) <= 4.0 * UNIT * scale).all():
            break
        inside = (current > losses.lo) & (current < losses.hi)
        active = columns[inside]
        hessian = active.T @ (active * ease[inside, None])
        hessian += 1e-12 * np.diag(ease @ columns**2 + 1e-300)
        step = np.linalg.solve(hessian, residual)
        size, merit = 1.0, float(residual @ residual)
        for _ in range(40):
            candidate = trial(shift + size * step)
            left = columns.T @ candidate + target
            if float(left @ left) < merit:
                break
            size *= 0.5
        else:
            break
        shift, current, residual = shift + size * step, candidate, left
    return _polish(problem, current, target, ease)


def _polish(problem: Problem, theta: Array, target: Array, ease: Array) -> Array:
    """Remove the last residual of `balance` on a few coordinates well inside the box."""
    losses, columns = problem.losses, problem.free_columns
    room = np.minimum(theta - losses.lo, losses.hi - theta) * np.abs(columns).max(axis=1) * ease
    best = np.argsort(-room)[: 4 * columns.shape[1]]
    best = best[room[best] > 0]
    if not len(best):
        return theta
    for _ in range(3):
        residual = columns.T @ theta + target
        if not residual.any():
            break
        step = np.linalg.lstsq(columns[best].T, -residual, rcond=None)[0]
        moved = theta.copy()
        moved[best] = np.clip(theta[best] + step, losses.lo[best], losses.hi[best])
        if np.linalg.norm(columns.T @ moved + target) >= np.linalg.norm(residual):
            break
        theta = moved
    return theta


def dual_feasible(
    problem: Problem,
    theta: ArrayLike,
    multipliers: ArrayLike | None = None,
    margins: Array | None = None,
) -> tuple[Array, Array]:
    """Clip `theta` into its box, `multipliers` into K*, and `balance` the unpenalised part."""
    losses = problem.losses
    theta = np.clip(np.asarray(theta, dtype=np.float64), losses.lo, losses.hi)
    if problem.side is None:
        mu = np.zeros(0)
        target = problem.linear[problem.quadratic.free]
    else:
        raw = np.zeros(len(problem.side.offset)) if multipliers is None else multipliers
        mu = problem.side.project_dual(raw)
        target = (problem.linear - problem.side.adjoint(mu))[problem.quadratic.free]
    return balance(problem, theta, target, margins), mu


def imbalance_charge(problem: Problem, theta: Array, residual: Array, reach: Array) -> float:
    """What an exactly feasible dual point close to `theta` can cost, or infinity if none is near.

    `residual` is ``E' theta + target`` with its rounding; some coordinates with room in the box
    take it up, and moving ``theta_i`` by ``s`` changes the gap by at most ``|s| reach_i``.
    """
    losses, columns = problem.losses, problem.free_columns
    if columns.shape[1] == 0 or not residual.any():
        return 0.0
    room = np.minimum(theta - losses.lo, losses.hi - theta) * np.abs(columns).max(axis=1)
    best = np.argsort(-room)[: 4 * columns.shape[1]]
    best = best[room[best] > 0]
    if not len(best):
        return float("inf")
    block = columns[best].T
    rank_values = np.linalg.svd(block, compute_uv=False)
    if len(rank_values) < len(residual) or rank_values[-1] <= 1e-8 * rank_values[0]:
        return float("inf")
    bound = float(np.linalg.norm(residual)) / float(rank_values[-1]) * (1.0 + 1e-6)
    space = np.minimum(theta - losses.lo, losses.hi - theta)[best]
    if (space < bound).any():
        return float("inf")
    return bound * float(np.sum(reach[best]))


def reference_point(
    problem: Problem,
    x: ArrayLike,
    theta: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
) -> Point:
    """Evaluate a primal and a dual point together: two passes over the data.

    Parameters
    ----------
    x : array_like, shape (d,)
    theta : array_like, shape (n,), optional
        Any slopes; they are made dual feasible. The subgradients at `x` when omitted.
    multipliers : array_like, shape (m,), optional
        Of the side constraints.

    Returns
    -------
    Point
        With an upper bound of the duality gap that includes all rounding.

    Raises
    ------
    InvalidInput
        On wrong shapes or NaN.
    """
    losses, quadratic = problem.losses, problem.quadratic
    x = np.array(x, dtype=np.float64)
    if x.shape != (problem.d,) or not np.isfinite(x).all():
        raise InvalidInput(f"`x` must be finite with shape ({problem.d},); found {x.shape}.")
    margins = problem.design.forward(x)
    theta = losses.slope(margins) if theta is None else np.asarray(theta, dtype=np.float64)
    if theta.shape != (problem.n,) or not np.isfinite(theta).all():
        raise InvalidInput(f"`theta` must be finite with shape ({problem.n},).")
    theta, mu = dual_feasible(problem, theta, multipliers, margins)
    error = margin_error(problem, x)

    pull = problem.design.adjoint(theta) + problem.linear
    size = float(np.abs(theta) @ problem.noise_norms)
    factor = problem.design.adjoint_factor
    side_cost, feasible = 0.0, problem.side is None
    if problem.side is not None:
        pull = pull - problem.side.adjoint(mu)
        slack = problem.side.slack(x)
        side_cost = max(float(mu @ slack), 0.0)
        feasible = _surely_inside(problem, x, slack)
    x_dual = -quadratic.solve(pull)
    x_dual[quadratic.free] = x[quadratic.free]
    dual_error = factor * size + _solve_error(problem, x_dual, pull) + problem.drift
    shift = quadratic.norm(x - x_dual)

    reach = np.abs(margins - losses.b) + losses.e + losses.q * np.abs(theta)
    reach = reach + error + problem.norms * (shift + dual_error)
    residual = pull[quadratic.free]
    slop = factor * (np.abs(problem.free_columns).T @ np.abs(theta)) + UNIT * np.abs(residual)
    slop = slop + problem.imbalance
    charge = imbalance_charge(problem, theta, np.abs(residual) + slop, reach)

    fy, margins, error = _fenchel_young(problem, x, margins, error, theta)
    terms = up(float(np.sum(fy)), 64) + side_cost + charge
    distance = up(shift, problem.d + 8) + dual_error
    return Point(
        problem=problem,
        x=x,
        theta=theta,
        multipliers=mu,
        margins=margins,
        margin_error=error,
        x_dual=x_dual,
        dual_error=dual_error,
        shift=shift,
        terms=terms,
        gap=up(terms + 0.5 * distance**2),
        primal=problem.primal(x, margins),
        feasible=feasible,
    )


def _surely_inside(problem: Problem, x: Array, slack: Array) -> bool:
    """Whether ``F x + f`` lies in K for certain; only inequalities can be checked that way."""
    side = problem.side
    if side is None:
        return True
    if any(kind != "nonneg" for kind, _ in side.dims):
        return False
    size = abs(side.matrix) @ np.abs(x) + np.abs(side.offset)
    return bool((slack >= gamma(problem.d + 4) * size).all())


REFINED_ROWS = 2000
"""At most so many margins are recomputed in extended precision."""


def _fenchel_young(
    problem: Problem, x: Array, margins: Array, error: Array, theta: Array
) -> tuple[Array, Array, Array]:
    """Upper bounds of the terms; margins whose rounding dominates them are computed better."""
    losses = problem.losses
    fy = losses.fenchel_young_above(margins, error, theta)
    excess = fy - losses.fenchel_young(margins, theta)
    if float(excess.sum()) <= 0.01 * float(fy.sum()) or not problem.n:
        return fy, margins, error
    worst = np.argsort(-excess)[:REFINED_ROWS]
    worst = worst[excess[worst] > 0]
    better, left = problem.design.forward_precise(worst, x)
    margins, error = margins.copy(), error.copy()
    margins[worst], error[worst] = better, np.minimum(left, error[worst])
    return losses.fenchel_young_above(margins, error, theta), margins, error


def _solve_error(problem: Problem, x_dual: Array, pull: Array) -> float:
    """Bound in the norm of M on the error of solving ``M x_dual = -pull``."""
    quadratic = problem.quadratic
    if quadratic.matrix is None:
        return 4.0 * UNIT * quadratic.norm(x_dual)
    kept = ~quadratic.free
    if not kept.any():
        return 0.0
    residual = (quadratic.apply(x_dual) + pull)[kept]
    rounding = 4.0 * problem.d * UNIT * (np.abs(quadratic.dense())[np.ix_(kept, kept)]
                                         @ np.abs(x_dual[kept]) + np.abs(pull[kept]))
    size = float(np.linalg.norm(np.abs(residual) + rounding))
    return size / float(np.sqrt(quadratic.floor))
