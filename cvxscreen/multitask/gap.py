"""The joint duality gap as a sum of non-negative terms.

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
    """A feasible point with its predictions ``p`` and its objective."""

    U: Array
    b: Array
    metric: Metric
    p: Array
    value: float

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
    metric = primal.metric
    terms = float(np.sum(problem.losses.fenchel_young(primal.p, dual.theta)))
    coupling = metric.penalty(primal.U - metric.B @ dual.V)
    return terms + coupling + spectral_shortfall(metric, dual, problem.h) / (4.0 * problem.c)
