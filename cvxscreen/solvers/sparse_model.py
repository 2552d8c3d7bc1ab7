"""The piecewise quadratic model of `ProxNewton`, minimised by sweeps and linear systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.solvers.sparse_factor import Known
from cvxscreen.solvers.sparse_loops import loops
from cvxscreen.solvers.sparse_search import LENGTHS, searches
from cvxscreen.solvers.sparse_systems import Bent

Array = NDArray[np.float64]

CYCLES = 8
COLD, WARM = 8, 4
"""Sweeps over what is not 0 before a linear system; they cost a small part of it."""
ENOUGH = 0.1
"""A cycle that gains less than this share of all is the last: the model is a model."""
LITTLE = 0.01
"""So little, as a share of all, is not worth a linear system that takes longer than the sweeps."""


@dataclass(eq=False)
class Model:
    """The quadratic model on some features; d is the step, ``u = B d``."""

    bent: Bent
    weight: Array
    kappa: Array
    slope: Array
    x: Array
    d: Array = field(init=False)
    u: Array = field(init=False)

    def __post_init__(self) -> None:
        self.d, self.u = np.zeros(len(self.x)), np.zeros(self.bent.rows)
        self.curve = self.bent.squares + self.weight

    @classmethod
    def around(
        cls, matrix: Any, active: NDArray[np.intp], rows: NDArray[np.intp], factor: Array,
        weight: Array, kappa: Array, slope: Array, x: Array, known: Known | None = None,
    ) -> Model:
        """The model on the `active` columns of `matrix`; `factor` multiplies the bending `rows`."""
        return cls(Bent.around(matrix, active, rows, factor, known), weight, kappa, slope, x)

    def value(self, d: Array, u: Array) -> float:
        """The model's change against no step."""
        change = self.kappa @ (np.abs(self.x + d) - np.abs(self.x))
        return float(self.slope @ d + 0.5 * u @ u + 0.5 * self.weight @ d**2 + change)

    def sweep(self, order: NDArray[np.intp], times: int = 1) -> float:
        """Coordinate descent over `order`; by how much the model decreased."""
        return float(loops().descend(
            order, *self.bent.arrays, self.curve, self.weight, self.kappa, self.slope, self.x,
            self.d, self.u, times,
        ))

    def newton(self) -> float:
        """Solve on the current signs; what steps over zero stops there. The model's decrease."""
        here = self.x + self.d
        chosen = np.flatnonzero(here)
        if not len(chosen):
            return 0.0
        weight = self.weight[chosen]
        residual = self.slope[chosen] + self.bent.pull(chosen, self.u) + weight * self.d[chosen]
        residual += self.kappa[chosen] * np.sign(here[chosen])
        step = -self.bent.solve(chosen, weight, residual)
        return float(searches().shortened(
            chosen, *self.bent.arrays, self.weight, self.kappa, self.slope, self.x, step, LENGTHS,
            self.d, self.u,
        ))

    def minimise(self, cold: bool) -> int:
        """Alternate sweeps and linear systems until little is left; sweeps made."""
        total, made = 0.0, 0
        every = np.arange(len(self.x))
        for cycle in range(CYCLES):
            times = COLD if cold and cycle == 0 else WARM
            total += self.sweep(every)
            nonzero = np.flatnonzero(self.x + self.d)
            first = self.sweep(nonzero)
            total += first + self.sweep(nonzero, times - 2)
            last = self.sweep(nonzero)
            total += last
            made += 1 + times
            if _left(first, last, times) <= LITTLE * total and self.bent.dear(nonzero, times):
                break
            signs = np.sign(self.x + self.d)
            last = self.newton()
            total += last
            same = bool((np.sign(self.x + self.d) == signs).all())
            if last <= ENOUGH * total or (same and not cold):
                break
        return made


def _left(first: float, last: float, times: int) -> float:
    """What more sweeps would gain if they went on as the first and the last of so many."""
    if not 0.0 < last < first:
        return 0.0 if last <= 0.0 else np.inf
    rate = (last / first) ** (1.0 / (times - 1))
    return last * rate / (1.0 - rate)
