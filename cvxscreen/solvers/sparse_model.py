"""The piecewise quadratic model of `ProxNewton`, minimised by sweeps and linear systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.solvers.sparse_factor import Known
from cvxscreen.solvers.sparse_loops import loops
from cvxscreen.solvers.sparse_systems import Bent

Array = NDArray[np.float64]

CYCLES = 8
COLD, WARM = 8, 4
"""Sweeps over what is not 0 before a linear system; they cost a small part of it."""
ENOUGH = 0.1
"""A cycle that gains less than this share of all is the last: the model is a model."""
LENGTHS = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0)
"""Shares of a step over zero that are tried; 0 stands for the first zero on the way."""


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

    def sweep(self, order: NDArray[np.intp]) -> float:
        """Coordinate descent over `order`."""
        return float(loops().descend(
            order, *self.bent.arrays, self.curve, self.weight, self.kappa, self.slope, self.x,
            self.d, self.u,
        ))

    def newton(self) -> bool:
        """Solve on the current signs; what steps over zero stops there. Whether it decreased."""
        here = self.x + self.d
        chosen = np.flatnonzero(here)
        if not len(chosen):
            return False
        weight, sign = self.weight[chosen], np.sign(here[chosen])
        residual = self.slope[chosen] + self.bent.pull(chosen, self.u) + weight * self.d[chosen]
        residual += self.kappa[chosen] * sign
        step = -self.bent.solve(chosen, weight, residual)
        crossed = (here[chosen] + step) * sign < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(crossed, here[chosen] / np.where(crossed, -step, 1.0), 1.0)
        best, first = self.value(self.d, self.u), float(room.min(initial=1.0))
        found = None
        for share in LENGTHS if crossed.any() else LENGTHS[:1]:
            length = max(share, first)
            place = here[chosen] + length * step
            place[place * sign <= 0] = 0.0
            d = self.d.copy()
            d[chosen] = place - self.x[chosen]
            u = self.u + self.bent.times(chosen, d[chosen] - self.d[chosen])
            after = self.value(d, u)
            if after < best:
                best, found = after, (d, u)
            elif found is not None:
                break
            if share <= first:
                break
        if found is None:
            return False
        self.d, self.u = found
        return True

    def minimise(self, cold: bool) -> int:
        """Alternate sweeps and linear systems until little is left; sweeps made."""
        total, made = 0.0, 0
        every = np.arange(len(self.x))
        for cycle in range(CYCLES):
            before = self.value(self.d, self.u)
            self.sweep(every)
            some = np.flatnonzero(self.x + self.d)
            made += 1
            for _ in range(COLD if cold and cycle == 0 else WARM):
                self.sweep(some)
                made += 1
            signs, middle = np.sign(self.x + self.d), self.value(self.d, self.u)
            self.newton()
            after = self.value(self.d, self.u)
            total += before - after
            same = bool((np.sign(self.x + self.d) == signs).all())
            if middle - after <= ENOUGH * total or (same and not cold):
                break
        return made
