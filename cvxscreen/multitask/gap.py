"""The joint duality gap as a sum of non-negative terms.

Predictions of all samples, computed only where nothing else is known about them.

A term that is proven to lie on the piece its slope belongs to has a Fenchel-Young term of 0 and
the value ``p_i theta_i - f_i*(theta_i)``, so that the sum of all losses is

::

    -tr(V' U) + sum_l b_l sum_i theta_li - sum f*(theta) + sum FY(p, theta),    V = -X' theta

and needs the predictions of the other terms only.

With ``v_l = -X_l' theta_l``, ``0 = sum theta_l`` and ``A = eta I + M`` the dual is

::

    D(theta) = -sum f*(theta) - (1 / 4c) max over feasible N of tr(V' (eta I + N) V)

and ``P(U, b, M) - D(theta)`` is the sum of the Fenchel-Young terms, ``c ||U - A V / 2c||^2`` in the
metric of ``A^{-1}``, and what M falls short of the maximum, over ``4c``. Each is non-negative, so
none of it is lost to cancellation, as it is in ``P - D``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.problem import Metric, MultiTask

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Predictions:
    """``X u + b`` of all tasks at one point.

    Attributes
    ----------
    p : array, shape (n,)
    theta : array, shape (n,)
        Slopes of the same point.
    held : array of bool, shape (n,), optional
        Terms that provably lie on the piece of their slope, whose `p` is not computed.
    """

    p: Array
    theta: Array
    held: Mask | None = None

    def total(self, problem: MultiTask, U: Array, V: Array, b: Array) -> float:
        """The sum of all losses."""
        f, theta = problem.losses, self.theta
        if self.held is None:
            return float(np.sum(f.value(self.p)))
        starts = [part.start for part in problem.parts]
        conjugate = f.b @ theta + f.e @ np.abs(theta) + 0.5 * (f.q @ theta**2)
        rest = np.flatnonzero(~self.held)
        excess = f.take(rest).fenchel_young(self.p[rest], theta[rest])
        slopes = np.add.reduceat(theta, starts)
        return float(-np.sum(V * U) + b @ slopes - conjugate + excess.sum())

    def fenchel_young(self, problem: MultiTask, U: Array, b: Array, theta: Array) -> float:
        """The sum of the Fenchel-Young terms with the slopes `theta`, not only those of here."""
        f = problem.losses
        if self.held is None:
            return float(np.sum(f.fenchel_young(self.p, theta)))
        # Held terms are 0 with their own slopes; elsewhere their predictions have to be computed.
        rows = np.flatnonzero(~self.held | (theta != self.theta))
        p = complete(problem, U, b, self.p, self.held, rows)
        return float(np.sum(f.take(rows).fenchel_young(p[rows], theta[rows])))


def complete(
    problem: MultiTask, U: Array, b: Array, p: Array, held: Mask, rows: NDArray[np.intp]
) -> Array:
    """`p` with those of `rows` computed that are `held`."""
    missing = rows[held[rows]]
    if len(missing) == 0:
        return p
    p = p.copy()
    ends = np.searchsorted(missing, [part.stop for part in problem.parts])
    for k, mine in enumerate(np.split(missing, ends[:-1])):
        if len(mine):
            p[mine] = problem.X[k][mine - problem.parts[k].start] @ U[:, k] + b[k]
    return p


@dataclass(frozen=True, eq=False)
class Dual:
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
    def of(cls, theta: Array, V: Array) -> Dual:
        """With the singular values worked out."""
        W, s, _ = np.linalg.svd(V, full_matrices=False)
        return cls(theta, V, W, s**2)

    def value(self, problem: MultiTask) -> float:
        """``D(theta)``."""
        f, theta = problem.losses, self.theta
        conjugate = float(np.sum(f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2))
        top = float(self.values[: problem.h].sum()) + problem.eta * float(self.values.sum())
        return -conjugate - top / (4.0 * problem.c)


@dataclass(frozen=True, eq=False)
class Primal:
    """A feasible point with its predictions ``p`` and its objective.

    Where screening left predictions out, `known` says what is proven about them.
    """

    U: Array
    b: Array
    metric: Metric
    p: Array
    value: float
    known: Predictions | None = None

    @classmethod
    def of(cls, problem: MultiTask, U: Array, b: Array, metric: Metric, p: Array) -> Primal:
        """With the objective worked out."""
        value = float(np.sum(problem.losses.value(p))) + metric.penalty(U)
        return cls(U, b, metric, p, value)


def spectral_shortfall(metric: Metric, dual: Dual, h: int) -> float:
    """``max tr(N S) - tr(M S)`` over feasible N, ``S = VV'``, term by term."""
    values, k = dual.values, len(dual.values)
    at = values[h - 1] if h <= k else 0.0
    share = np.clip(np.sum((metric.P.T @ dual.W) ** 2 * metric.g[:, None], axis=0), 0.0, 1.0)
    inside = (values[:h] - at) * (1.0 - share[:h])
    outside = (at - values[h:]) * share[h:]
    rest = at * max(float(metric.g.sum()) - float(share.sum()), 0.0)
    return float(inside.sum()) + float(outside.sum()) + rest


def joint_gap(problem: MultiTask, primal: Primal, dual: Dual) -> float:
    """``P(U, b, M) - D(theta)``."""
    metric, known = primal.metric, primal.known
    if known is None:
        known = Predictions(primal.p, dual.theta)
    terms = known.fenchel_young(problem, primal.U, primal.b, dual.theta)
    coupling = metric.penalty(primal.U - metric.B @ dual.V)
    return terms + coupling + spectral_shortfall(metric, dual, problem.h) / (4.0 * problem.c)
