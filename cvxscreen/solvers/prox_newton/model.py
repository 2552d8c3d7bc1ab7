"""The piecewise quadratic model of a proximal Newton step, and its minimum.

Over the step d on some features, with ``B`` the scaled rows of the terms that have curvature
(`CurvedRows`), g the gradient and M the diagonal weight::

    g'd + 1/2 ||B d||^2 + 1/2 d'M d + kappa' (|x + d| - |x|)

Sweeps of coordinate descent find the signs of ``x + d``; a linear system on these signs then finds
the values, as far as no coordinate steps over zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen.solvers.prox_newton.systems import CurvedRows

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CYCLES = 8
"""Rounds of sweeps and a linear system at most."""
COLD, WARM = 8, 4
"""Sweeps over what is not 0 before a linear system; they cost a small part of it."""
ENOUGH = 0.1
"""A round that gains less than this share of all is the last: the model is a model."""
LITTLE = 0.01
"""So little, as a share of all, is not worth a linear system that takes longer than the sweeps."""
LENGTHS = np.array([1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0])
"""Shares of a step over zero that are tried; 0 stands for the first zero on the way."""


class Coordinates(NamedTuple):
    """What the model has beside B, a number a feature each, shape (d,)."""

    weight: Array
    kappa: Array
    gradient: Array
    x: Array


@dataclass(eq=False)
class Model:
    """The model on some features; d is the step, ``u = B d``."""

    rows: CurvedRows
    at: Coordinates
    d: Array = field(init=False)
    u: Array = field(init=False)

    def __post_init__(self) -> None:
        self.d, self.u = np.zeros(len(self.at.x)), np.zeros(self.rows.count)
        self.curvature = self.rows.squares + self.at.weight

    def value(self) -> float:
        """The model's change against no step."""
        weight, kappa, gradient, x = self.at
        change = kappa @ (np.abs(x + self.d) - np.abs(x))
        square = 0.5 * self.u @ self.u + 0.5 * weight @ self.d**2
        return float(gradient @ self.d + square + change)

    def minimise(self, cold: bool) -> int:
        """Alternate sweeps and linear systems until little is left; sweeps made.

        `cold` says that the signs are not nearly those of the optimum yet.
        """
        total, made = 0.0, 0
        every = np.arange(len(self.d))
        for cycle in range(CYCLES):
            times = COLD if cold and cycle == 0 else WARM
            total += float(self.sweep(every, 1)[0])
            nonzero = np.flatnonzero(self.at.x + self.d)
            gains = self.sweep(nonzero, times)
            total += float(gains.sum())
            made += 1 + times
            left = _left(float(gains[0]), float(gains[-1]), times)
            if left <= LITTLE * total and self.rows.costs_more_than_sweeps(nonzero, times):
                break
            signs = np.sign(self.at.x + self.d)
            gain = self.newton()
            total += gain
            same = bool((np.sign(self.at.x + self.d) == signs).all())
            if gain <= ENOUGH * total or (same and not cold):
                break
        return made

    def sweep(self, order: Index, times: int) -> Array:
        """Sweeps of coordinate descent over `order`; by how much each decreased the model."""
        gains = np.empty(times)
        coordinate_descent(
            order, self.rows.matrix, self.curvature, self.at, self.d, self.u, gains
        )
        return gains

    def newton(self) -> float:
        """Solve on the current signs; what steps over zero stops there. The model's decrease."""
        weight, kappa, gradient, x = self.at
        here = x + self.d
        chosen = np.flatnonzero(here)
        if not len(chosen):
            return 0.0
        residual = gradient[chosen] + self.rows.adjoint(chosen, self.u)
        residual += weight[chosen] * self.d[chosen] + kappa[chosen] * np.sign(here[chosen])
        step = -self.rows.solve(chosen, weight[chosen], residual)
        work = np.empty((2, len(self.u)))
        return float(descend_along(
            chosen, self.rows.matrix, self.at, step, LENGTHS, self.d, self.u, work
        ))


def _left(first: float, last: float, times: int) -> float:
    """What more sweeps would gain if they went on as the first and the last of so many."""
    if not 0.0 < last < first:
        return 0.0 if last <= 0.0 else np.inf
    rate = (last / first) ** (1.0 / (times - 1))
    return last * rate / (1.0 - rate)


@compiled(fastmath=SUMS)
def coordinate_descent(order, matrix, curvature, at, d, u, gains):  # type: ignore[no-untyped-def]
    """Sweeps of exact coordinate steps over `order`; `gains` gets the model's decrease by each.

    ``u = B d`` follows; `curvature` is ``|B_j|^2 + M_j``.
    """
    indptr, indices, data = matrix
    weight, kappa, gradient, x = at
    for sweep in range(gains.size):
        gained = 0.0
        for k in range(order.size):
            j = order[k]
            first, last = indptr[j], indptr[j + 1]
            slope = gradient[j] + weight[j] * d[j]
            for p in range(first, last):
                slope += data[p] * u[indices[p]]
            h = curvature[j]
            old = x[j] + d[j]
            z = old - slope / h
            threshold = kappa[j] / h
            new = z - threshold if z > threshold else (z + threshold if z < -threshold else 0.0)
            step = new - old
            if step != 0.0:
                d[j] = new - x[j]
                for p in range(first, last):
                    u[indices[p]] += step * data[p]
                gained -= step * slope + 0.5 * h * step * step
                gained -= kappa[j] * (abs(new) - abs(old))
        gains[sweep] = gained


@compiled(fastmath=SUMS)
def descend_along(chosen, matrix, at, step, lengths, d, u, work):  # type: ignore[no-untyped-def]
    """Go the share of `step` on the chosen columns that lowers the model most; by how much.

    What would step over zero stops there. d and ``u = B d`` follow, and stay as they are where no
    share lowers the model. `work` has shape (2, len(u)).
    """
    indptr, indices, data = matrix
    weight, kappa, gradient, x = at
    trial, best = work[0], work[1]
    first, crossed = 1.0, False
    for k in range(chosen.size):
        here = x[chosen[k]] + d[chosen[k]]
        if (here + step[k]) * here < 0.0:
            crossed = True
            first = min(first, -here / step[k])
    lowest, picked = 0.0, -1.0
    for m in range(lengths.size):
        length = max(lengths[m], first)
        for i in range(u.size):
            trial[i] = u[i]
        change = 0.0
        for k in range(chosen.size):
            j = chosen[k]
            here = x[j] + d[j]
            place = here + length * step[k]
            if place * here <= 0.0:
                place = 0.0
            move = place - x[j] - d[j]
            for p in range(indptr[j], indptr[j + 1]):
                trial[indices[p]] += move * data[p]
            slope = gradient[j] + weight[j] * (d[j] + 0.5 * move)
            change += slope * move + kappa[j] * (abs(place) - abs(here))
        for i in range(u.size):
            change += 0.5 * (trial[i] - u[i]) * (trial[i] + u[i])
        if change < lowest:
            lowest, picked = change, length
            for i in range(u.size):
                best[i] = trial[i]
        elif picked >= 0.0:
            break
        if length <= first or not crossed:
            break
    if picked >= 0.0:
        for i in range(u.size):
            u[i] = best[i]
        for k in range(chosen.size):
            j = chosen[k]
            here = x[j] + d[j]
            place = here + picked * step[k]
            d[j] = (0.0 if place * here <= 0.0 else place) - x[j]
    return -lowest
