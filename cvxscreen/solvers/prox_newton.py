"""Proximal Newton, the built-in solver for problems under an L1 term.

The problem is ``sum_i f_i(a_i'x) + q'x + 1/2 x'Mx + kappa'|x|`` with piecewise quadratic losses and
a diagonal M (or none). One step of `ProxNewton` (`solver`):

1. *Evaluate* (`Iterate.evaluate`). The margins ``t = A x`` give a subgradient theta of the losses;
   one product ``A' theta`` gives the gradient and the duality gap, and the method stops on that.
2. *Model* (`QuadraticModel`). Around t only the terms on a quadratic piece have curvature,
   ``1/q_i``. With ``B = diag(q)^{-1/2} A`` on these rows, and g the gradient, the change of the
   objective is ::

       g'd + 1/2 ||B d||^2 + 1/2 d'M d + kappa' (|x + d| - |x|)

   and this is exact until a term changes its piece. Only features that are not 0, or whose gradient
   exceeds kappa_j, take part.
3. *Minimise the model.* Sweeps of exact coordinate descent find the signs; a linear system ``(B'B +
   M) step = residual`` on the surviving signs (`column_systems`) finds the values. It is solved by
   Cholesky's method on the smaller side of B, or by conjugate gradients; these are preconditioned
   by a factor of an earlier system, which is kept along a path.
4. *Line search* (`objective_change`): the whole step, and halves of it until the objective
   decreases.

A loss with a kink has no curvature there. Such losses are smoothed around the last dual point (the
proximal point method on the dual): a smoothed term is again piecewise quadratic, with
``b - s theta0`` for b and ``q + s`` for q, and the smoothing is reduced from round to round.

`rows_and_columns` screens features and terms around this solver.

References
----------
Lee, Sun and Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM J.
Optim. 24 (2014).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled, read_only
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, by_columns, column_major
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.column_systems import (
    CurvedRows,
    NamedFactors,
    add_columns,
    compressed,
    inner_products,
)
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver

Array = NDArray[np.float64]
Index = NDArray[np.intp]


# -- what a step asks of the objective ------------------------------------------------------------


class LossColumns(NamedTuple):
    """The five columns of `Losses`, shape (n,) each, as compiled loops take them."""

    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, losses: LossTerms) -> LossColumns:
        """The columns of a table of losses."""
        return cls(*read_only(losses.b, losses.e, losses.q, losses.lo, losses.hi))


class ModelStep(NamedTuple):
    """A step d on some coordinates at x, and their weights in the objective, shape (d,) each."""

    x: Array
    d: Array
    kappa: Array
    weight: Array
    linear: Array


# -- one term -------------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def slope(t, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """A subgradient of one term at t."""
    z = t - b
    z = z - e if z > e else (z + e if z < -e else 0.0)
    if q > 0.0:
        return min(max(z / q, lo), hi)
    return hi if z > 0.0 else (lo if z < 0.0 else 0.0)


@compiled(fastmath=SUMS)
def fenchel_young(t, s, theta, b, e, q):  # type: ignore[no-untyped-def]
    """``f(t) + f*(theta) - t theta`` of one term without cancellation; s is a subgradient at t."""
    away = t - b - 0.5 * q * (s + theta)
    return max(away * (s - theta) - e * (abs(s) - abs(theta)), 0.0)


# -- all terms ------------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def subgradients(t, terms, out):  # type: ignore[no-untyped-def]
    """A subgradient of every term, to `out`."""
    b, e, q, lo, hi = terms
    for i in range(t.size):
        out[i] = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])


@compiled(fastmath=SUMS)
def curved_terms(theta, terms, rows, factor):  # type: ignore[no-untyped-def]
    """The terms on a quadratic piece, to `rows`, and ``q^{-1/2}`` of each; returns their number.

    A slope within its bounds says so, except 0 where an insensitive zone has that slope as well.
    """
    _, e, q, lo, hi = terms
    count = 0
    for i in range(theta.size):
        factor[i] = 0.0
        inside = lo[i] < theta[i] < hi[i]
        if inside and (theta[i] != 0.0 or (e[i] == 0.0 and lo[i] < 0.0 < hi[i])):
            factor[i] = q[i] ** -0.5
            rows[count] = i
            count += 1
    return count


@compiled(fastmath=SUMS)
def moving_features(x, dual_residual, kappa, features):  # type: ignore[no-untyped-def]
    """The features that are not 0, or whose dual residual lets them leave it; their number."""
    count = 0
    for j in range(x.size):
        if x[j] != 0.0 or abs(dual_residual[j]) > kappa[j]:
            features[count] = j
            count += 1
    return count


@compiled(fastmath=SUMS)
def gap_with_quadratic(x, kappa, weight, dual_residual, t, theta, terms):  # type: ignore[no-untyped-def]
    """The gap of (x, theta): ``1/2 |x - x_theta|_M^2``, the norm's Fenchel gap and the terms'.

    `dual_residual` is ``A' theta + q``.
    """
    b, e, q, lo, hi = terms
    total = 0.0
    for j in range(x.size):
        s = min(max(-dual_residual[j], -kappa[j]), kappa[j])
        distance = x[j] + (dual_residual[j] + s) / weight[j]
        total += 0.5 * weight[j] * distance * distance
        total += abs(x[j]) * (kappa[j] - s if x[j] >= 0.0 else kappa[j] + s)
    for i in range(t.size):
        s = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += fenchel_young(t[i], s, theta[i], b[i], e[i], q[i])
    return total


@compiled(fastmath=SUMS)
def gap_pure_l1(x, kappa, dual_residual, t, theta, terms):  # type: ignore[no-untyped-def]
    """The gap without a quadratic term: of x and the largest feasible share of `theta`."""
    b, e, q, lo, hi = terms
    largest, total = 1.0, 0.0
    for j in range(x.size):
        largest = max(largest, abs(dual_residual[j]) / kappa[j])
    share = 1.0 / largest
    for j in range(x.size):
        total += kappa[j] * abs(x[j]) + share * dual_residual[j] * x[j]
    for i in range(t.size):
        s = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += fenchel_young(t[i], s, share * theta[i], b[i], e[i], q[i])
    return total


# -- line search ----------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def objective_change(step, length, t, dt, terms):  # type: ignore[no-untyped-def]
    """By how much ``x + length d`` changes the objective; not a difference of two large sums.

    `dt` is ``A d``.
    """
    x, d, kappa, weight, linear = step
    b, e, q, lo, hi = terms
    total = 0.0
    for j in range(x.size):
        move = length * d[j]
        here = x[j] + move
        total += (linear[j] + weight[j] * (x[j] + 0.5 * move)) * move
        if x[j] > 0.0 and here > 0.0:
            total += kappa[j] * move
        elif x[j] < 0.0 and here < 0.0:
            total -= kappa[j] * move
        else:
            total += kappa[j] * (abs(here) - abs(x[j]))
    for i in range(t.size):
        if dt[i] != 0.0:
            move = length * dt[i]
            old = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
            new = slope(t[i] + move, b[i], e[i], q[i], lo[i], hi[i])
            total += old * move + fenchel_young(t[i] + move, new, old, b[i], e[i], q[i])
    return total


LONGEST, HALVINGS = 8.0, 12
"""The largest length that `best_length` tries, and the halvings of its bracket."""
FLAT = 0.3
"""Share of the first slope along a step that is left where a whole step is good enough."""


@compiled(fastmath=SUMS)
def slope_along(length, x, kappa, t, terms, d, dt):  # type: ignore[no-untyped-def]
    """The derivative of ``sum_i f_i(t + s dt) + kappa'|x + s d|`` at ``s = length``.

    It increases with s. Terms without a quadratic piece are left out.
    """
    b, e, q, lo, hi = terms
    total = 0.0
    for i in range(t.size):
        if dt[i] != 0.0 and q[i] > 0.0:
            z = t[i] + length * dt[i] - b[i]
            z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
            total += min(max(z / q[i], lo[i]), hi[i]) * dt[i]
    for j in range(x.size):
        here = x[j] + length * d[j]
        if here > 0.0:
            total += kappa[j] * d[j]
        elif here < 0.0:
            total -= kappa[j] * d[j]
    return total


@compiled(fastmath=SUMS)
def best_length(x, kappa, t, terms, d, dt):  # type: ignore[no-untyped-def]
    """About where ``sum_i f_i(t_i + s dt_i) + kappa'|x + s d|`` is smallest, ``s > 0``.

    Newton steps for a squared hinge need it: without a quadratic term rows change their piece far
    from the model's minimum. Every loss has ``q > 0`` or is 0. A whole step that is good enough
    stays one: it keeps at 0 what the model put there.
    """
    first = slope_along(0.0, x, kappa, t, terms, d, dt)
    low, high = 0.0, 1.0
    last = slope_along(high, x, kappa, t, terms, d, dt)
    if abs(last) <= FLAT * abs(first):
        return 1.0
    while last < 0.0 and high < LONGEST:
        low, high = high, 2.0 * high
        last = slope_along(high, x, kappa, t, terms, d, dt)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if slope_along(middle, x, kappa, t, terms, d, dt) < 0.0:
            low = middle
        else:
            high = middle
    return high if low == 0.0 else low


# -- the model and its minimum --------------------------------------------------------------------
#
# The model over the step d on some features, with B the scaled rows of the terms that have
# curvature (`CurvedRows`), g the gradient and M the diagonal weight:
#
#     g'd + 1/2 ||B d||^2 + 1/2 d'M d + kappa' (|x + d| - |x|)
#
# Sweeps of coordinate descent find the signs of x + d; a linear system on these signs then finds
# the values, as far as no coordinate steps over zero.



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
class QuadraticModel:
    """The model on some features; d is the step, ``u = B d``."""

    rows: CurvedRows
    at: Coordinates
    d: Array = field(init=False)
    u: Array = field(init=False)

    def __post_init__(self) -> None:
        self.d, self.u = np.zeros(len(self.at.x)), np.zeros(self.rows.count)
        self.curvature = self.rows.squares + self.at.weight

    @np.errstate(over="ignore")  # an infinite change is no gain
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
        # The model is convex along the step but for the clipping: past the best share of those in
        # order there is no better one.
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


# -- the method -----------------------------------------------------------------------------------


INSIDE = 1e-6
"""A feature whose dual residual is by this share below its weight is 0 at the optimum."""
ROUNDED = 1.0 - 1e-14
"""So much of what is dual feasible still is when the residuals are summed in another order, mostly;
the certificate charges what is left of them in any case."""
LEAST, FIRST, MOST = 1e-8, 1e-4, 1.0
"""Damping of a step without a quadratic term, as a share of the columns' curvatures: after good
steps, at first, after bad ones."""
DRIFT = 20
"""Steps after which the margins are a product again, not a running sum."""


@dataclass(eq=False)
class Iterate:
    """A primal point with what one evaluation tells.

    `matrix` is the design by columns; `selecting` says whether a step only moves the features that
    are not 0, or whose dual residual lets them leave it.
    """

    problem: Problem
    matrix: Any
    kappa: Array
    weight: Array
    x: Array
    t: Array
    losses: LossTerms
    selecting: bool = True
    steps: int = 0
    sweeps: int = 0
    damping: float = field(init=False)
    theta: Array = field(init=False)
    dual_residual: Array = field(init=False)
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        self.sparse = bool(sp.issparse(self.matrix))
        self.every = np.arange(len(self.x))
        if self.sparse:
            self.columns = compressed(self.matrix)
        self.damping = FIRST if self.problem.pure_l1 else 0.0

    def evaluate(self) -> None:
        """Slopes, ``A' theta + q`` and the gap at x; one pass."""
        self.theta = np.empty(len(self.t))
        subgradients(self.t, LossColumns.of(self.losses), self.theta)
        self.dual_residual, self.gap = self.gap_with(self.theta, self.losses)

    def gap_with(self, theta: Array, losses: LossTerms) -> tuple[Array, float]:
        """``A' theta + q`` and the gap of (x, theta) under `losses`."""
        residual = self.residual_of(theta)
        dual = residual, self.t, theta, LossColumns.of(losses)
        if self.problem.pure_l1:  # of the share of theta that is feasible
            return residual, float(gap_pure_l1(self.x, self.kappa, *dual))
        return residual, float(gap_with_quadratic(self.x, self.kappa, self.weight, *dual))

    def residual_of(self, theta: Array) -> Array:
        """``A' theta + q``."""
        if not self.sparse:
            return np.asarray(self.matrix.T @ theta) + self.problem.linear
        out = np.empty(len(self.x))
        inner_products(self.every, self.columns, theta, out)
        out += self.problem.linear
        return out

    @property
    def feasible_share(self) -> float:
        """The share of theta that is feasible, to rounding: all of it with a quadratic term."""
        if not self.problem.pure_l1:
            return 1.0
        return ROUNDED / max(
            1.0, float(np.max(np.abs(self.dual_residual) / self.kappa, initial=0.0))
        )

    def active(self) -> Index:
        """The features that the next step moves."""
        if not self.selecting:
            return self.every
        found = np.empty(len(self.x), dtype=np.intp)
        return found[: moving_features(self.x, self.dual_residual, self.kappa, found)]

    def model(self, active: Index) -> QuadraticModel:
        """The quadratic model around the point on the `active` features."""
        rows, factor = np.empty(len(self.t), dtype=np.intp), np.empty(len(self.t))
        rows = rows[: curved_terms(self.theta, LossColumns.of(self.losses), rows, factor)]
        x, weight = self.x[active], self.weight[active]
        gradient = self.dual_residual[active] + weight * x
        if self.damping > 0:
            weight = weight + self.damping * self.problem.column_norms[active] ** 2
        factors = NamedFactors.of(self.problem.design)
        return QuadraticModel(
            CurvedRows.of(self.matrix, active, rows, factor, factors),
            Coordinates(weight, self.kappa[active], gradient, x),
        )

    def forward(self, features: Index, step: Array) -> Array:
        """``A`` times a step on some features."""
        if not self.sparse:
            full = np.zeros(len(self.x))
            full[features] = step
            return np.asarray(self.matrix @ full)
        out = np.zeros(len(self.t))
        add_columns(features, self.columns, step, out)
        return out

    def change(self, features: Index, d: Array, dt: Array, length: float) -> float:
        """By how much a step on some features changes the objective of the (smoothed) problem."""
        step = ModelStep(
            self.x[features], d, self.kappa[features], self.weight[features],
            self.problem.linear[features],
        )
        return float(objective_change(step, length, self.t, dt, LossColumns.of(self.losses)))

    def advance(self, cold: bool) -> bool:
        """One proximal Newton step with a line search; whether the objective decreased."""
        active = self.active()
        if not len(active):
            return False
        model = self.model(active)
        self.sweeps += model.minimise(cold)
        self.steps += 1
        predicted = model.value()
        if not predicted < 0:
            return False
        dt, length = self.forward(active, model.d), 1.0
        if self.damping > 0:
            length = float(best_length(
                model.at.x, model.at.kappa, self.t, LossColumns.of(self.losses), model.d, dt
            ))
        for _ in range(30):
            sufficient = 1e-3 * min(length, 1.0) * predicted
            if self.change(active, model.d, dt, length) <= sufficient:
                self.x = self.x.copy()
                self.x[active] += length * model.d
                self.t = self.t + length * dt
                if self.steps % DRIFT == 0:
                    self.t = np.asarray(self.matrix @ self.x)
                self.damp(length)
                return True
            length *= 0.5
        return False

    def damp(self, length: float) -> None:
        """Less damping after a whole step, more after a part of one."""
        if self.damping > 0:
            share = self.damping * (0.1 if length >= 0.9 else 1.0 if length > 0.3 else 10.0)
            self.damping = min(max(share, LEAST), MOST)

    def drop_remnants(self, target: float) -> None:
        """Put to 0 what shortened steps have left of features that are 0 at the optimum."""
        remnant = self.dual_residual * np.sign(self.x) > -(1.0 - INSIDE) * self.kappa
        remnant &= self.x != 0
        if remnant.any():
            before = self.x, self.t, self.gap
            self.x = np.where(remnant, 0.0, self.x)
            self.t = np.asarray(self.matrix @ self.x)
            self.evaluate()
            if self.gap > max(target, before[2]):
                self.x, self.t = before[:2]
                self.evaluate()


SMOOTHINGS = 40
"""Rounds of the proximal point method at most."""


def takes(problem: Problem) -> bool:
    """Whether the solvers under an L1 term accept `problem`."""
    fits = isinstance(problem.penalty, L1) and isinstance(problem.design, Rows)
    return fits and (problem.pure_l1 or bool((problem.quadratic.diagonal > 0).all()))


def require(problem: Problem, name: str) -> tuple[Rows, L1]:
    """The design and penalty of a problem with an L1 term, or a clear refusal."""
    if not takes(problem) or (problem.pure_l1 and name != "builtin"):
        raise InvalidInput(
            f"`solver` {name!r} needs rows of data, an L1 term and a quadratic term on every "
            "coordinate; use another solver."
        )
    return problem.design, problem.penalty  # type: ignore[return-value]


@dataclass(frozen=True)
class ProxNewton(SubproblemSolver):
    """Proximal Newton under an L1 term; the module's docstring has the method.

    Parameters
    ----------
    max_steps : int
        Newton steps at most.
    moving : bool
        Whether a step only moves the features that are not 0, or whose dual residual lets them
        leave it; else all of them, every time (for comparison: what a solver pays that does not
        look).
    limits : Limits
        Of the whole call.
    """

    max_steps: int = 500
    moving: bool = True
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)

    @property
    def traits(self) -> SolverTraits:
        """It takes a handful of passes; it looks for its own features where it may."""
        return SolverTraits(
            reaches_target=True, few_iterations=True, selects_features=self.moving
        )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Raises
        ------
        InvalidInput
            If the problem has no L1 term, or a coordinate without a quadratic one.
        """
        design, penalty = require(problem, "builtin")
        x = np.zeros(problem.d) if start is None else np.array(start.x, dtype=np.float64)
        matrix = by_columns(design) if design.sparse else column_major(design)
        iterate = Iterate(problem, matrix, penalty.kappa, problem.quadratic.diagonal, x,
                      np.asarray(matrix @ x), problem.losses, self.moving)
        kinked = (problem.losses.q == 0) & (problem.losses.lo < problem.losses.hi)
        if kinked.any():
            theta = self._proximal_point(iterate, kinked, start, target)
        else:
            self._newton_steps(iterate, target, start is None)
            theta = iterate.theta * iterate.feasible_share
        status = "optimal" if iterate.gap <= target else "inaccurate"
        info = {"steps": iterate.steps, "sweeps": iterate.sweeps, "gap": iterate.gap}
        return SubproblemResult(status, iterate.x, theta, info=info)

    def _newton_steps(self, iterate: Iterate, target: float, cold: bool) -> None:
        """Newton steps until the gap of the iterate's losses is small enough or stands still."""
        iterate.evaluate()
        best, failures = (iterate.gap, iterate.x, iterate.t), 0
        while iterate.gap > target and iterate.steps < self.max_steps and failures < 3:
            if self.limits.spent() or not iterate.advance(cold):
                break
            self.limits.spent(1)
            iterate.evaluate()
            failures = 0 if iterate.gap < 0.9 * best[0] else failures + (best[0] < 1e-9)
            if iterate.gap < best[0]:
                best = (iterate.gap, iterate.x, iterate.t)
        if iterate.gap > best[0]:
            _, iterate.x, iterate.t = best
            iterate.evaluate()
        if iterate.problem.pure_l1:
            iterate.drop_remnants(target)

    def _proximal_point(
        self, iterate: Iterate, kinked: NDArray[np.bool_], start: Start | None, target: float
    ) -> Array:
        """Proximal point steps on the dual; each is a smooth problem of the same form."""
        true = iterate.losses
        span = np.maximum(true.hi - true.lo, 1e-300)
        width = np.where(kinked, 1.0 / np.where(np.isfinite(span), span, 1.0), 0.0)
        theta = true.slope(iterate.t) if start is None else start.theta
        theta = np.clip(theta, true.lo, true.hi)
        best = (np.inf, iterate.x, iterate.t, theta)
        scale, cold, stuck = 0.5, start is None, 0
        for _ in range(SMOOTHINGS):
            soft = scale * width
            iterate.losses = Losses(true.b - soft * theta, true.e, true.q + soft, true.lo, true.hi)
            self._newton_steps(iterate, max(target, 0.1 * min(best[0], 1e300)) * 0.3, cold)
            cold, theta = False, iterate.theta
            _, gap = iterate.gap_with(theta, true)
            stuck = 0 if gap < 0.9 * best[0] else stuck + 1
            if gap < best[0]:
                best = (gap, iterate.x, iterate.t, theta)
            if gap <= target or iterate.steps >= self.max_steps or stuck > 6:
                break
            if self.limits.spent():
                break
            scale = max(0.3 * scale, 1e-6)
        iterate.gap, iterate.x, iterate.t, theta = best
        return theta
