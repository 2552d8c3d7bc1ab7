"""The joint duality gap as a sum of non-negative terms, what it proves, and its certificate.

With ``v_l = -X_l' theta_l``, ``0 = sum theta_l`` and ``A = eta I + M`` the dual is

::

    D(theta) = -sum f*(theta) - (1 / 4c) max over feasible N of tr(V' (eta I + N) V)

and ``P(U, b, M) - D(theta)`` is the sum of the Fenchel-Young terms, ``c ||U - A V / 2c||^2`` in the
metric of ``A^{-1}``, and what M falls short of the maximum, over ``4c``. Each is non-negative, so
none of it is lost to cancellation, as it is in ``P - D``.

**What it proves.** The joint objective is jointly convex but **not strongly convex** in U: along
``V = D A^{-1} U`` its curvature vanishes, U* need not be unique, and a ball
``sum ||u_l - u_l*||^2 <= 2 gap / mu`` holds only for the gap of the problem at a fixed M. It is
easily refuted for the joint gap and is not offered here. What is true, with ``G`` the joint gap of
``(U, b, M)`` and ``theta``:

* `dual_ball`: ``V* = -X' theta*`` is unique and within a ball; no condition;
* `eigengap`: every prediction within a computed distance, under the condition that the h-th and the
  next eigenvalue of ``VV'`` are apart by more than G explains.

**The certificate** recomputes the gap on all tasks by formulas of its own: losses from their
pieces, each Fenchel-Young term as ``f + f* - p theta``, the coupling through a Cholesky factor of
``A``, the spectral term from the eigenvalues of ``VV'``. Nothing is shared with the code that finds
the answer, which goes through singular values and slopes.

Proofs: ``docs/theory.md``, section 8.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.bounds.regions import intercept_interval
from cvxscreen.certificates.certificate import (
    EPS,
    Certificate,
    piecewise_value,
    refused,
    steepest_slopes,
    verdict,
)
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.problem import MultiTask, TaskMetric
from cvxscreen.screening.reduction import Verdict

Array = NDArray[np.float64]


class DualCandidate(Immutable):
    """A dual feasible point.

    Attributes
    ----------
    theta : array, shape (n,)
    V : array, shape (d, m)
    W : array, shape (d, k)
        Left singular vectors of V.
    values : array, shape (k,)
        Eigenvalues of ``VV'``, decreasing; the other ``d - k`` are zero.
    """

    theta: Array
    V: Array
    W: Array
    values: Array

    @classmethod
    def of(cls, theta: Array, V: Array) -> DualCandidate:
        """With the singular values worked out."""
        W, s, _ = np.linalg.svd(V, full_matrices=False)
        return cls(theta, V, W, s**2)

    def value(self, problem: MultiTask) -> float:
        """``D(theta)``."""
        f, theta = problem.losses, self.theta
        conjugate = float(np.sum(f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2))
        top = float(self.values[: problem.h].sum()) + problem.eta * float(self.values.sum())
        return -conjugate - top / (4.0 * problem.c)


class PrimalCandidate(Immutable):
    """A feasible point with its predictions ``p`` and its objective."""

    U: Array
    b: Array
    metric: TaskMetric
    p: Array
    value: float

    @classmethod
    def of(
        cls, problem: MultiTask, U: Array, b: Array, metric: TaskMetric, p: Array
    ) -> PrimalCandidate:
        """A candidate from U, the intercepts and the predictions `p`."""
        value = float(np.sum(problem.losses.value(p))) + metric.penalty(U)
        return cls(U, b, metric, p, value)


def spectral_shortfall(metric: TaskMetric, dual: DualCandidate, h: int) -> float:
    """``max tr(N S) - tr(M S)`` over feasible N, ``S = VV'``, term by term."""
    values, k = dual.values, len(dual.values)
    at = values[h - 1] if h <= k else 0.0
    share = np.clip(np.sum((metric.P.T @ dual.W) ** 2 * metric.g[:, None], axis=0), 0.0, 1.0)
    inside = (values[:h] - at) * (1.0 - share[:h])
    outside = (at - values[h:]) * share[h:]
    rest = at * max(float(metric.g.sum()) - float(share.sum()), 0.0)
    return float(inside.sum()) + float(outside.sum()) + rest


def joint_gap(problem: MultiTask, primal: PrimalCandidate, dual: DualCandidate) -> float:
    """``P(U, b, M) - D(theta)``."""
    metric = primal.metric
    terms = float(np.sum(problem.losses.fenchel_young(primal.p, dual.theta)))
    coupling = metric.penalty(primal.U - metric.B @ dual.V)
    return terms + coupling + spectral_shortfall(metric, dual, problem.h) / (4.0 * problem.c)


# -- what it proves ---------------------------------------------------------------------------


def intercept_ranges(problem: MultiTask, middle: Array, reach: Array) -> tuple[Array, Array]:
    """Lowest and highest optimal intercept of every task, rounded outward, two arrays (m,).

    Intercepts are not penalised; what bounds them are the terms that any optimal one must leave in
    balance, with ``<x_i, u>`` within ``reach_i`` of ``middle_i``.
    """
    metric = problem.flat_metric()  # which one it is does not matter to the balance
    ends = [
        intercept_interval(
            problem.task(k, metric), middle[part], reach[part], np.ones(problem.sizes[k]), 0.0
        )
        for k, part in enumerate(problem.parts)
    ]
    low, high = np.array(ends).T
    return low, high


class DualBall(Immutable):
    """``||V - centre||_F <= radius`` contains the one ``V*`` of the optimum."""

    centre: Array
    radius: float

    def contains(self, V: Array) -> bool:
        """Whether `V` is in the ball."""
        return float(np.linalg.norm(V - self.centre)) <= self.radius


def dual_ball(problem: MultiTask, U: Array, M: Array, theta: Array, gap: float) -> DualBall:
    """``||V* - (V + V_U)/2||^2 <= 2 c G / eta - ||V - V_U||^2 / 4``, ``V_U = 2 c A^{-1} U``.

    From ``c ||U - A V / 2c||^2`` in the metric of ``A^{-1}`` and the optimality of ``V*`` in the
    dual: ``||V_U - V*||^2 + ||V - V*||^2 <= 4 c G / eta``. Holds for every joint gap G.
    """
    A = problem.eta * np.eye(problem.d) + M
    V, V_U = problem.minus_adjoint(theta), 2.0 * problem.c * np.linalg.solve(A, U)
    apart = float(np.linalg.norm(V - V_U))
    size = float(np.linalg.norm(V)) + float(np.linalg.norm(V_U))
    rounding = 16.0 * gamma(problem.n + problem.d**2) * size * (1.0 + 1.0 / problem.eta)
    square = 2.0 * problem.c * up(gap) / problem.eta - 0.25 * max(apart - rounding, 0.0) ** 2
    return DualBall(0.5 * (V + V_U), up(float(np.sqrt(max(square, 0.0)))) + rounding)


def eigengap(problem: MultiTask, theta: Array, gap: float) -> Verdict:
    """Pieces proven for the joint optimum, permanently, where ``VV'`` has a gap at h.

    With ``P`` the projector on the first h eigenvectors of ``S = VV'`` and ``delta`` the gap of its
    eigenvalues there, ``tr(S (P - M*)) >= delta (h - tr(P M*))`` bounds how far ``M*`` is from P,
    and with it every ``x' u_l*`` around ``x' (eta I + P) v_l / 2c``. Says nothing where ``delta``
    is lost in G or in rounding (as it is whenever the optimal M is no projector: then the
    eigenvalues of ``V* V*'`` tie at h), or for losses that are not piecewise linear.
    """
    d, h, c, eta = problem.d, problem.h, problem.c, problem.eta
    f = problem.losses
    nothing = Verdict(
        f, np.full(problem.n, -1, dtype=np.int8), "eigengap", np.inf, gap, np.zeros(d, dtype=bool)
    )
    if f.q.any() or not np.isfinite(gap):
        return nothing
    V = problem.minus_adjoint(theta)
    W, s, _ = np.linalg.svd(V, full_matrices=True)
    values = np.zeros(d)
    values[: len(s)] = s**2
    top = float(values[0])
    # Computed eigenvalues and the rounding of V itself.
    size = sum(
        float(np.abs(part) @ np.linalg.norm(X, axis=1))
        for X, part in zip(problem.X, problem.split(theta), strict=True)
    )
    lost = 32.0 * gamma(problem.n + d * d) * np.sqrt(max(top, 0.0)) * size + 1e-300
    delta = float(values[h - 1] - (values[h] if h < d else 0.0)) - 2.0 * lost
    gap = up(gap)
    if h == d:
        tilt = reach_t = 0.0
        delta = np.inf
    else:
        if delta <= 0:
            return nothing
        reach_t = 4.0 * c * gap / delta
        tilt = 4.0 * lost / delta  # of the computed projector
    P = W[:, :h]
    low, high = np.empty(problem.n), np.empty(problem.n)
    middle, reach = np.empty(problem.n), np.empty(problem.n)
    for k, part in enumerate(problem.parts):
        X, v = problem.X[k], V[:, k]
        inside = X @ P
        centre = (eta * (X @ v) + inside @ (P.T @ v)) / (2.0 * c)
        whole = np.linalg.norm(X, axis=1) * up(1.0, d + 8)
        along = np.minimum(np.linalg.norm(inside, axis=1), whole) + tilt * whole
        across = np.sqrt(np.maximum(whole**2 - (along - 2.0 * tilt * whole).clip(0.0) ** 2, 0.0))
        across = across + tilt * whole
        v_along, v_size = float(np.linalg.norm(P.T @ v)), float(np.linalg.norm(v))
        v_across = float(np.sqrt(max(v_size**2 - v_along**2, 0.0))) + (tilt + 1e-12) * v_size
        v_along = v_along + (tilt + 1e-12) * v_size
        metric = np.minimum(
            (1.0 + eta) * whole**2,
            eta * whole**2 + along**2 + whole**2 * min(1.0, np.sqrt(reach_t) + reach_t),
        )
        cross, straight = along * v_across + across * v_along, along * v_along + across * v_across
        away = np.sqrt(gap / c) * np.sqrt(metric + cross**2 / delta) + 2.0 * gap * straight / delta
        rounding = (tilt + 64.0 * gamma(d + sum(problem.sizes))) * whole * (
            (1.0 + eta) * size / (2.0 * c)
        )
        middle[part], reach[part] = centre, up(1.0, 64) * away + rounding
    left, right = intercept_ranges(problem, middle, reach)
    low = middle - reach + np.repeat(left, problem.sizes)
    high = middle + reach + np.repeat(right, problem.sizes)
    slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
    with np.errstate(invalid="ignore"):
        codes = f.piece_within(low - slack, high + slack)
    return Verdict(f, codes, "eigengap", float(np.max(reach)), gap, np.zeros(d, dtype=bool))


# -- the certificate --------------------------------------------------------------------------


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
    if not all(np.isfinite(a).all() for a in (U, b, M, theta)):
        return refused("the point holds NaN or infinity", tol)
    M_values = np.linalg.eigvalsh(0.5 * (M + M.T))
    violation = max(
        float(-M_values[0]), float(M_values[-1]) - 1.0, abs(float(np.trace(M)) - problem.h),
        float(np.abs(M - M.T).max()), 0.0,
    )
    if violation > FEASIBLE * (1.0 + problem.h) or violation > 0.1 * problem.eta:
        reason = f"`M` is {violation:.3g} away from tr M = h, 0 <= M <= I"
        return refused(reason, tol, violation=violation)
    c, eta = problem.c, problem.eta
    A = eta * np.eye(d) + 0.5 * (M + M.T)
    factor = sla.cholesky(A, lower=True)

    p = np.concatenate([X @ U[:, k] + b[k] for k, X in enumerate(problem.X)])
    values = piecewise_value(problem.losses, p)
    half = sla.solve_triangular(factor, U, lower=True)
    primal = float(values.sum()) + c * float(np.sum(half**2))
    if (theta < f.lo).any() or (theta > f.hi).any():
        return refused("a dual variable lies outside its box", tol, primal, violation)

    conjugates = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
    sizes = np.concatenate([np.abs(X) @ np.abs(U[:, k]) + abs(b[k])
                            for k, X in enumerate(problem.X)])
    slopes = steepest_slopes(theta, f.lo, f.hi)
    sum_error = 4 * EPS * (values + np.abs(conjugates) + np.abs(p * theta))
    terms = np.maximum(values + conjugates - p * theta, 0.0)
    error = sum_error + 2 * (d + 4) * EPS * sizes * slopes
    gap = float(terms.sum()) + float(error.sum())

    V = np.column_stack([-(X.T @ part) for X, part in zip(problem.X, problem.split(theta),
                                                          strict=True)])
    mismatch = sla.solve_triangular(factor, U - A @ V / (2.0 * c), lower=True)
    gap += c * float(np.sum(mismatch**2))
    S = V @ V.T
    spectrum = np.linalg.eigvalsh(S)
    best, here = float(spectrum[-problem.h :].sum()), float(np.sum(S * M))
    rounding = 8 * d * EPS * max(float(spectrum.sum()), 0.0)
    gap += (max(best - here, 0.0) + rounding) / (4.0 * c)

    # What a feasible M next to this one could change, and a balanced theta next to this one.
    gap += 2.0 * violation / eta * c * float(np.sum(half**2)) + violation * float(
        spectrum.sum()
    ) / (4.0 * c)
    for k, part in enumerate(problem.parts):
        total = fsum(theta[part])  # correctly rounded, so its sign is right
        off = abs(total) * (1.0 + 4 * EPS)
        room = f.hi[part] - theta[part] if total < 0 else theta[part] - f.lo[part]
        if not (room >= off).any():
            reason = f"the dual point of task {k} does not sum to 0"
            return refused(reason, tol, primal, violation)
        longest = float(np.max(np.linalg.norm(problem.X[k], axis=1)))
        reach = float(np.max(np.abs(p[part]) + np.abs(f.b[part]) + f.e[part]))
        others = longest * float(np.linalg.norm(U[:, k])) + (1.0 + eta) / c * longest * (
            float(np.linalg.norm(V[:, k])) + off * longest
        )
        gap += off * (reach + others)

    if primal == 0.0 and gap <= 1e-300:
        return Certificate(gap, 0.0, primal, -gap, violation, tol, True)
    return replace(verdict(gap, primal, tol), violation=violation)
