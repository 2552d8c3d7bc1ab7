"""What an unpenalised coordinate whose dual point does not balance exactly costs a certificate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cvxscreen.problem import Problem

Array = NDArray[np.float64]


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
