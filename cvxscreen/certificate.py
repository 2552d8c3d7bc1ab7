"""A certificate: optimality recomputed on the full problem, by formulas of its own.

Nothing here is shared with the code that found the answer: losses are evaluated from their pieces
(not through subgradients), each Fenchel-Young term as ``f + f* - t theta``, the conjugate of the
regulariser from its own linear system. The gap is a sum of non-negative terms, never ``P - D``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.certificate_balance import residual_cost
from cvxscreen.certificate_held import held_parts
from cvxscreen.certificate_terms import EPS as _EPS
from cvxscreen.certificate_terms import blurred, endless_above, gaps_above, piecewise_value
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import array, one_of, positive
from cvxscreen.problem import Problem
from cvxscreen.proximity import proximity
from cvxscreen.tables import fields

Array = NDArray[np.float64]


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
    if problem.held:
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
        matrix, width = abs(problem.side.matrix), 4 * (m + problem.d + 8) * _EPS
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
    x_dual = x.copy()
    if near is None:
        x_dual[bent] = -_independent_solve(problem, pull)[bent]
    else:
        x_dual = near.x_dual
        side_gap = near.rest
        side_error = near.blur * float(np.sqrt(quadratic.diagonal.max(initial=0.0)))
        side_error += near.dual_blur / float(np.sqrt(quadratic.floor))
    step = x - x_dual
    lean = float(np.abs(theta) @ problem.noise_norms) * problem.design.adjoint_factor
    distance = quadratic.norm(step) + lean + problem.drift + 8 * _EPS * quadratic.norm(x_dual)
    distance += side_error
    imbalance = 0.0
    if quadratic.free.any():
        sensitivity = np.abs(t) + np.abs(f.b) + f.e + f.q * np.abs(theta) + problem.norms * distance
        residual = np.abs(pull[quadratic.free]) + problem.imbalance
        residual = residual + problem.design.adjoint_factor * (
            np.abs(problem.free_columns).T @ np.abs(theta)
        )
        imbalance = residual_cost(problem, theta, residual, sensitivity)

    gap = float(fy.sum()) * (1 + problem.n * _EPS) + 0.5 * distance * distance
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
