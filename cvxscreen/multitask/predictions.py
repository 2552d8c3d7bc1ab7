"""Predictions of all samples, computed only where nothing else is known about them.

A term that is proven to lie on the piece its slope belongs to has a Fenchel-Young term of 0 and
the value ``p_i theta_i - f_i*(theta_i)``, so that the sum of all losses is

::

    -tr(V' U) + sum_l b_l sum_i theta_li - sum f*(theta) + sum FY(p, theta),    V = -X' theta

and needs the predictions of the other terms only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.problem import MultiTask

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
