"""Where `ProxNewton` stands: a point, its margins and slopes, and the model around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.compiling import unsigned
from cvxscreen.losses import Losses
from cvxscreen.problem import Problem
from cvxscreen.solvers.sparse_factor import Known
from cvxscreen.solvers.sparse_loops import loops
from cvxscreen.solvers.sparse_model import Model
from cvxscreen.solvers.sparse_terms import table, terms

Array = NDArray[np.float64]
Index = NDArray[np.intp]

INSIDE = 1e-6
"""A feature whose pull is by this share short of its weight is 0 at the optimum."""
ROUNDED = 1.0 - 1e-14
"""So much of what is feasible still is when its pulls are summed in another order, mostly."""
LEAST, FIRST, MOST = 1e-8, 1e-4, 1.0
"""Damping of a step without a quadratic term, as a share of the columns' curvatures: after good
steps, at first, after bad ones."""


@dataclass(eq=False)
class State:
    """A primal point with what one evaluation tells.

    `matrix` is the design by columns; `moving` says whether a step only moves the features that are
    not 0 or pull to leave it.
    """

    problem: Problem
    matrix: Any
    kappa: Array
    weight: Array
    x: Array
    t: Array
    losses: Losses
    moving: bool = True
    steps: int = 0
    sweeps: int = 0
    damping: float = field(init=False)
    theta: Array = field(init=False)
    slope: Array = field(init=False)
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        self.sparse = bool(sp.issparse(self.matrix))
        self.every = np.arange(len(self.x))
        if self.sparse:
            m = self.matrix
            self.columns = *unsigned(m.indptr, m.indices), m.data
        self.damping = FIRST if self.problem.held else 0.0

    def evaluate(self) -> None:
        """Slopes, gradient and gap at x; one pass."""
        self.theta = np.empty(len(self.t))
        terms().slopes(self.t, *table(self.losses), self.theta)
        self.slope, self.gap = self.judged(self.theta, self.losses)

    def judged(self, theta: Array, losses: Losses) -> tuple[Array, float]:
        """The pull of `theta` and the gap of (x, theta) under `losses`."""
        pull = self.pull(theta)
        rest = pull, self.t, theta, *table(losses)
        if self.problem.held:  # of the share of theta that is feasible
            return pull, float(terms().held_gap(self.x, self.kappa, *rest))
        return pull, float(terms().bent_gap(self.x, self.kappa, self.weight, *rest))

    def pull(self, theta: Array) -> Array:
        """``A' theta`` and the linear term."""
        if not self.sparse:
            return np.asarray(self.matrix.T @ theta) + self.problem.linear
        pull = np.empty(len(self.x))
        loops().pull_columns(self.every, *self.columns, theta, pull)
        pull += self.problem.linear
        return pull

    @property
    def share(self) -> float:
        """The share of theta that is feasible, to rounding: all of it with a quadratic term."""
        if not self.problem.held:
            return 1.0
        return ROUNDED / max(1.0, float(np.max(np.abs(self.slope) / self.kappa, initial=0.0)))

    def active(self) -> Index:
        """The features that the next step moves."""
        if not self.moving:
            return self.every
        found = np.empty(len(self.x), dtype=np.intp)
        return found[: terms().moving(self.x, self.slope, self.kappa, found)]

    def model(self, active: Index) -> Model:
        """The quadratic model around the point on the `active` features."""
        losses, rows = self.losses, np.empty(len(self.t), dtype=np.intp)
        factor = np.empty(len(self.t))
        rows = rows[: terms().bending(self.theta, *table(losses)[1:], rows, factor)]
        x, weight = self.x[active], self.weight[active]
        slope = self.slope[active] + weight * x
        if self.damping > 0:
            weight = weight + self.damping * self.problem.column_norms[active] ** 2
        known = Known.of(self.problem.design)
        return Model.around(
            self.matrix, active, rows, factor, weight, self.kappa[active], slope, x, known
        )

    def moved(self, features: Index, step: Array) -> Array:
        """``A`` times a step on some features."""
        if not self.sparse:
            full = np.zeros(len(self.x))
            full[features] = step
            return np.asarray(self.matrix @ full)
        out = np.zeros(len(self.t))
        loops().add_columns(features, *self.columns, step, out)
        return out

    def change(self, features: Index, d: Array, dt: Array, length: float) -> float:
        """By how much a step on some features changes the objective of the (smoothed) problem."""
        place = self.x[features], d, self.kappa[features], self.weight[features]
        linear = self.problem.linear[features]
        return float(terms().change(*place, linear, self.t, dt, length, *table(self.losses)))

    def dust(self, target: float) -> None:
        """Put to 0 what shortened steps have left of features that pull too little."""
        short = self.slope * np.sign(self.x) > -(1.0 - INSIDE) * self.kappa
        short &= self.x != 0
        if short.any():
            before = self.x, self.t, self.gap
            self.x = np.where(short, 0.0, self.x)
            self.t = np.asarray(self.matrix @ self.x)
            self.evaluate()
            if self.gap > max(target, before[2]):
                self.x, self.t = before[:2]
                self.evaluate()

    def damp(self, length: float) -> None:
        """Less damping after a whole step, more after a part of one."""
        if self.damping > 0:
            share = self.damping * (0.1 if length >= 0.9 else 1.0 if length > 0.3 else 10.0)
            self.damping = min(max(share, LEAST), MOST)
