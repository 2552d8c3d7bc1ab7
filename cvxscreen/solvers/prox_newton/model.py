"""The piecewise quadratic model of a step: its terms, how far to go along it, and its minimum.

What a step under an L1 norm asks of the terms and of the point: slopes, rows that bend, gaps.

One loop where numpy would go through them a dozen times. Compiled on first use; without numba the
loops run as they are.

How far to go along a step under an L1 norm: of the quadratic model, and of the objective.

Compiled on first use; without numba the loops run as they are.

The piecewise quadratic model of `ProxNewton`, minimised by sweeps and linear systems.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import Loop, together_or_plain
from cvxscreen.core.losses import Losses
from cvxscreen.solvers.prox_newton.loops import loops
from cvxscreen.solvers.prox_newton.systems import Bent, Known

Array = NDArray[np.float64]


def _slope(t, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """A subgradient of one term."""
    z = t - b
    z = z - e if z > e else (z + e if z < -e else 0.0)
    if q > 0.0:
        return min(max(z / q, lo), hi)
    return hi if z > 0.0 else (lo if z < 0.0 else 0.0)


def _young(t, s, theta, b, e, q):  # type: ignore[no-untyped-def]
    """``f(t) + f*(theta) - t theta`` of one term without cancellation; s is a subgradient at t."""
    lean = t - b - 0.5 * q * (s + theta)
    return max(lean * (s - theta) - e * (abs(s) - abs(theta)), 0.0)


def _slopes(t, b, e, q, lo, hi, out):  # type: ignore[no-untyped-def]
    """A subgradient of every term."""
    for i in range(t.size):
        out[i] = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])


def _bending(theta, e, q, lo, hi, rows, factor):  # type: ignore[no-untyped-def]
    """The terms on a quadratic piece, with ``q^{-1/2}`` of each; their number."""
    count = 0
    for i in range(theta.size):
        factor[i] = 0.0
        inside = lo[i] < theta[i] < hi[i]
        if inside and (theta[i] != 0.0 or (e[i] == 0.0 and lo[i] < 0.0 < hi[i])):
            factor[i] = q[i] ** -0.5
            rows[count] = i
            count += 1
    return count


def _moving(x, slope, kappa, features):  # type: ignore[no-untyped-def]
    """The features that are not 0, or pull to leave it; their number."""
    count = 0
    for j in range(x.size):
        if x[j] != 0.0 or abs(slope[j]) > kappa[j]:
            features[count] = j
            count += 1
    return count


def _held_gap(x, kappa, pull, t, theta, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """The gap without a quadratic term, of the share of `theta` that is feasible."""
    largest, total = 1.0, 0.0
    for j in range(x.size):
        largest = max(largest, abs(pull[j]) / kappa[j])
    share = 1.0 / largest
    for j in range(x.size):
        total += kappa[j] * abs(x[j]) + share * pull[j] * x[j]
    for i in range(t.size):
        s = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += _young(t[i], s, share * theta[i], b[i], e[i], q[i])
    return total


def _bent_gap(x, kappa, weight, pull, t, theta, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """The gap with a quadratic term: its distance, the norm's part and the terms'."""
    total = 0.0
    for j in range(x.size):
        s = min(max(-pull[j], -kappa[j]), kappa[j])
        away = x[j] + (pull[j] + s) / weight[j]
        total += 0.5 * weight[j] * away * away
        total += abs(x[j]) * (kappa[j] - s if x[j] >= 0.0 else kappa[j] + s)
    for i in range(t.size):
        s = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += _young(t[i], s, theta[i], b[i], e[i], q[i])
    return total


def _change(  # type: ignore[no-untyped-def]
    x, d, kappa, weight, linear, t, dt, length, b, e, q, lo, hi
):
    """By how much ``x + length d`` changes the objective; not a difference of two large sums."""
    total = 0.0
    for j in range(x.size):
        step = length * d[j]
        here = x[j] + step
        total += (linear[j] + weight[j] * (x[j] + 0.5 * step)) * step
        if x[j] > 0.0 and here > 0.0:
            total += kappa[j] * step
        elif x[j] < 0.0 and here < 0.0:
            total -= kappa[j] * step
        else:
            total += kappa[j] * (abs(here) - abs(x[j]))
    for i in range(t.size):
        if dt[i] != 0.0:
            step = length * dt[i]
            old = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
            new = _slope(t[i] + step, b[i], e[i], q[i], lo[i], hi[i])
            total += old * step + _young(t[i] + step, new, old, b[i], e[i], q[i])
    return total


class Terms(NamedTuple):
    """The loops of this module."""

    slopes: Loop
    bending: Loop
    moving: Loop
    held_gap: Loop
    bent_gap: Loop
    change: Loop


@lru_cache(maxsize=1)
def terms() -> Terms:
    """The loops, compiled where numba is installed."""
    names = [f"_{name}" for name in ("slope", "young", *Terms._fields)]
    free = frozenset({"contract", "reassoc", "nsz"})
    found = together_or_plain(globals(), [(name, free) for name in names])
    return Terms(*[found[name] for name in names[2:]])


def table(losses: Losses) -> tuple[Array, Array, Array, Array, Array]:
    """The five columns of the losses, as the loops take them."""
    return losses.b, losses.e, losses.q, losses.lo, losses.hi


LENGTHS = np.array([1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0])
"""Shares of a step over zero that are tried; 0 stands for the first zero on the way."""
LONGEST, HALVINGS, FLAT = 8.0, 12, 0.3
"""The largest length, the halvings of the search, and the share of the first slope along the step
that is left where a whole step is good enough."""


def best_length(x: Array, kappa: Array, t: Array, losses: Losses, d: Array, dt: Array) -> float:
    """About where ``sum_i f_i(t + s dt) + kappa'|x + s d|`` is smallest, ``s > 0``.

    It is the root of a derivative that increases. Newton steps for a squared hinge need it: without
    a quadratic term rows change their piece far from the model's minimum. Every loss has ``q > 0``
    or is 0.
    """
    limits = LONGEST, HALVINGS, FLAT
    return float(searches().root(x, kappa, t, *table(losses), d, dt, *limits))


def _root(  # type: ignore[no-untyped-def]
    x, kappa, t, b, e, q, lo, hi, d, dt, longest, halvings, flat
):
    """The search of `best_length`; an exact 1 keeps at 0 what the model put there."""
    low, high, state, done = 0.0, 0.0, 0, 0
    first = 0.0
    while True:
        length = high if state < 2 else 0.5 * (low + high)
        slope = 0.0
        for i in range(t.size):
            if dt[i] != 0.0 and q[i] > 0.0:
                z = t[i] + length * dt[i] - b[i]
                z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
                slope += min(max(z / q[i], lo[i]), hi[i]) * dt[i]
        for j in range(x.size):
            here = x[j] + length * d[j]
            if here > 0.0:
                slope += kappa[j] * d[j]
            elif here < 0.0:
                slope -= kappa[j] * d[j]
        if state == 0:  # the slope at the start
            first, high, state = slope, 1.0, 1
        elif state == 1:  # forwards, until the slope is positive
            if high == 1.0 and abs(slope) <= flat * abs(first):
                return 1.0
            if slope < 0.0 and high < longest:
                low, high = high, 2.0 * high
            else:
                state = 2
        else:
            if slope < 0.0:
                low = 0.5 * (low + high)
            else:
                high = 0.5 * (low + high)
            done += 1
        if done == halvings:
            return high if low == 0.0 else low


def _shortened(  # type: ignore[no-untyped-def]
    chosen, indptr, indices, data, weight, kappa, slope, x, step, lengths, d, u
):
    """Go the share of `step` on the chosen columns that lowers the model most; by how much.

    What would step over zero stops there. The model is that of `descend`; d and ``u = B d`` follow,
    and stay as they are where no share lowers it.
    """
    first, crossed = 1.0, False
    for k in range(chosen.size):
        here = x[chosen[k]] + d[chosen[k]]
        if (here + step[k]) * here < 0.0:
            crossed = True
            first = min(first, -here / step[k])
    lowest, picked = 0.0, -1.0
    trial, kept = np.empty_like(u), np.empty_like(u)
    for m in range(lengths.size):
        length = max(lengths[m], first)
        trial[:] = u
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
            bend = weight[j] * (d[j] + 0.5 * move)
            change += (slope[j] + bend) * move + kappa[j] * (abs(place) - abs(here))
        for i in range(u.size):
            change += 0.5 * (trial[i] - u[i]) * (trial[i] + u[i])
        if change < lowest:
            lowest, picked = change, length
            kept[:] = trial
        elif picked >= 0.0:
            break
        if length <= first or not crossed:
            break
    if picked >= 0.0:
        u[:] = kept
        for k in range(chosen.size):
            j = chosen[k]
            here = x[j] + d[j]
            place = here + picked * step[k]
            d[j] = (0.0 if place * here <= 0.0 else place) - x[j]
    return -lowest


class Searches(NamedTuple):
    """The loops of this module."""

    root: Loop
    shortened: Loop


@lru_cache(maxsize=1)
def searches() -> Searches:
    """The loops, compiled where numba is installed."""
    free = frozenset({"contract", "reassoc", "nsz"})
    return Searches(*together_or_plain(globals(), [("_root", free), ("_shortened", free)]).values())


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
