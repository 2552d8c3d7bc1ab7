"""A certificate of the joint problem, recomputed on all tasks by formulas of its own.

Losses from their pieces, each Fenchel-Young term as ``f + f* - p theta``, the coupling through a
Cholesky factor of ``eta I + M``, the spectral term from the eigenvalues of ``VV'``: nothing is
shared with the code that found the answer, which goes through singular values and slopes.
"""

from __future__ import annotations

from math import fsum
from typing import Any, cast

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.certificates.certificate import Certificate, piecewise_value
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.problem import MultiTask

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
FEASIBLE = 1e-9
"""How far ``M`` may be from its set, in eigenvalues and trace; what it may hide is charged."""


def certify_multitask(
    problem: MultiTask,
    U: ArrayLike,
    b: ArrayLike,
    M: ArrayLike,
    theta: ArrayLike,
    *,
    tol: float = 1e-6,
) -> Certificate:
    """Recompute the joint optimality of ``(U, b, M)`` and ``theta`` on all samples of all tasks.

    Parameters
    ----------
    problem : MultiTask
    U : array_like, shape (d, m)
    b : array_like, shape (m,)
    M : array_like, shape (d, d)
    theta : array_like, shape (n,)
        Slopes of all samples; outside their boxes the certificate is refused.
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        On wrong shapes.
    """
    one_of("problem", problem, MultiTask, "a problem from `raso` is needed")
    U, b, M, theta = array("U", U), array("b", b), array("M", M), array("theta", theta)
    tol = positive("tol", tol)
    d, m, n, f = problem.d, problem.m, problem.n, problem.losses
    if U.shape != (d, m) or b.shape != (m,) or M.shape != (d, d) or theta.shape != (n,):
        raise InvalidInput(
            f"`U` {U.shape}, `b` {b.shape}, `M` {M.shape} and `theta` {theta.shape} must have the "
            f"shapes ({d}, {m}), ({m},), ({d}, {d}) and ({n},)."
        )
    nan, inf = float("nan"), float("inf")
    violation = 0.0

    def refused(reason: str, primal: float = nan) -> Certificate:
        return Certificate(inf, inf, primal, -inf, violation, tol, False, reason)

    if not all(np.isfinite(a).all() for a in (U, b, M, theta)):
        return refused("the point holds NaN or infinity")
    M_values = np.linalg.eigvalsh(0.5 * (M + M.T))
    violation = max(
        float(-M_values[0]), float(M_values[-1]) - 1.0, abs(float(np.trace(M)) - problem.h),
        float(np.abs(M - M.T).max()), 0.0,
    )
    if violation > FEASIBLE * (1.0 + problem.h) or violation > 0.1 * problem.eta:
        return refused(f"`M` is {violation:.3g} away from tr M = h, 0 <= M <= I")
    c, eta = problem.c, problem.eta
    A = eta * np.eye(d) + 0.5 * (M + M.T)
    factor = sla.cholesky(A, lower=True)

    p = np.concatenate([X @ U[:, k] + b[k] for k, X in enumerate(problem.X)])
    values = piecewise_value(cast(Any, problem), p)  # needs `losses` only
    half = sla.solve_triangular(factor, U, lower=True)
    primal = float(values.sum()) + c * float(np.sum(half**2))
    if (theta < f.lo).any() or (theta > f.hi).any():
        return refused("a dual variable lies outside its box", primal)

    conjugates = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
    sizes = np.concatenate([np.abs(X) @ np.abs(U[:, k]) + abs(b[k])
                            for k, X in enumerate(problem.X)])
    slopes = np.maximum(np.where(np.isfinite(f.lo), -f.lo, np.abs(theta)),
                        np.where(np.isfinite(f.hi), f.hi, np.abs(theta)))
    noise = 4 * _EPS * (values + np.abs(conjugates) + np.abs(p * theta))
    terms = np.maximum(values + conjugates - p * theta, 0.0)
    error = noise + 2 * (d + 4) * _EPS * sizes * slopes
    gap = float(terms.sum()) + float(error.sum())

    V = np.column_stack([-(X.T @ part) for X, part in zip(problem.X, problem.split(theta),
                                                          strict=True)])
    lean = sla.solve_triangular(factor, U - A @ V / (2.0 * c), lower=True)
    gap += c * float(np.sum(lean**2))
    S = V @ V.T
    spectrum = np.linalg.eigvalsh(S)
    best, here = float(spectrum[-problem.h :].sum()), float(np.sum(S * M))
    rounding = 8 * d * _EPS * max(float(spectrum.sum()), 0.0)
    gap += (max(best - here, 0.0) + rounding) / (4.0 * c)

    # What a feasible M next to this one could change, and a balanced theta next to this one.
    gap += 2.0 * violation / eta * c * float(np.sum(half**2)) + violation * float(
        spectrum.sum()
    ) / (4.0 * c)
    for k, part in enumerate(problem.parts):
        total = fsum(theta[part])  # correctly rounded, so its sign is right
        off = abs(total) * (1.0 + 4 * _EPS)
        room = f.hi[part] - theta[part] if total < 0 else theta[part] - f.lo[part]
        if not (room >= off).any():
            return refused(f"the dual point of task {k} does not sum to 0", primal)
        longest = float(np.max(np.linalg.norm(problem.X[k], axis=1)))
        reach = float(np.max(np.abs(p[part]) + np.abs(f.b[part]) + f.e[part]))
        pull = longest * float(np.linalg.norm(U[:, k])) + (1.0 + eta) / c * longest * (
            float(np.linalg.norm(V[:, k])) + off * longest
        )
        gap += off * (reach + pull)

    dual = primal - gap
    relative = gap / max(abs(primal), abs(dual), 1e-300) if np.isfinite(gap) else inf
    if primal == 0.0 and gap <= 1e-300:
        relative = 0.0
    reason = "" if relative <= tol else (
        f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
    )
    return Certificate(gap, relative, primal, dual, violation, tol, not reason, reason)
