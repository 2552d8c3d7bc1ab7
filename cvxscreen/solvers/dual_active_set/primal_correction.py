"""A move of x alone that closes most of the gap of a face whose duals are nearly right.

On a face of flat terms (q = 0) the duality gap at ``x = x_theta`` is linear in the residual r of
the free terms, and the dual objective is off by about ``r' K^{-1} r / 2`` only, thousands of times
less. What is left is to make the residual small, and that x alone can do: any move s with
``A_F s = -r`` will do, at the price of ``||s||^2 / 2``. The least such move is what further
conjugate gradients on the dual find; a longer one is found much faster. Columns are weighted by
``1 / sum_F a_ij^2`` so that all count alike, which brings the spectrum together, the heavy columns
are left out, and rows are scaled to length one. Conjugate gradients on the normal equations of the
second kind (Craig 1955) then take one pass over the light entries a step; the minimal residual over
their iterates is found on the way, its weights known without a product, and is a third of theirs.

Terms next to a kink that are not free take part, so that they stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled
from cvxscreen.solvers.dual_active_set.csr import (
    ONE,
    Array,
    Csr,
    Index,
    empty_rows,
    sparse_dot,
)
from cvxscreen.solvers.dual_active_set.face import HUGE, Face, next_direction
from cvxscreen.solvers.dual_active_set.working_set import WorkingSet

# These numbers decide when a move is given up for more steps on the dual; no answer depends on
# them. They were found by trial (CPU seconds of examples/benchmarks/sparse_path.py).
STEPS, STEPS_TO_HALVE = 60, 8
"""Steps at most; in so many the gap must halve."""
ENOUGH = 0.75
"""Share of the gap asked for at which a move is whole: terms left out add to it."""
TOO_DEAR = 0.8
"""Share of it that the length of the move may take."""
REACH = 5.0
"""Terms take part up to so many times the root mean square of the residual from a kink."""


@dataclass(frozen=True, eq=False)
class PrimalCorrection:
    """A move of x.

    Attributes
    ----------
    move : array
        In the working set's columns and the metric of M.
    gap : float
        What the terms that took part add to the duality gap after it, with its own price.
    steps : int
    """

    move: Array
    gap: float
    steps: int


@dataclass(frozen=True, eq=False)
class Participants:
    """Terms that take part: local rows, what their margins are off, and the room of their duals."""

    rows: Index
    residual: Array
    down: Array
    up: Array

    def gap_terms(self, residual: Array) -> Array:
        """What residuals add to the gap."""
        return np.maximum(self.up * residual, self.down * residual)


def correct_primal(
    working_set: WorkingSet, face: Face, theta: Array, v: Array, enough: float
) -> PrimalCorrection:
    """Look for a move after which the gap is at most `enough`; the best found where it is not."""
    part = participants(working_set, face, theta, v)
    light, d, n = working_set.light, len(working_set.columns), len(part.rows)
    squares = np.zeros(d)
    add_column_squares(face.rows, light, squares)
    root = np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    rows, size = empty_rows(light.lengths[part.rows], d), np.empty(n)
    normalise_rows(part.rows, light, root, rows, size)
    some = size > 0
    rest = float(part.gap_terms(np.where(some, 0.0, part.residual)).sum())
    r = np.where(some, part.residual / np.where(some, size, 1.0), 0.0)
    least_r, direction, fresh, x, least_x = r.copy(), *np.zeros((4, d))
    now = tau = step_of_residual(rows, direction, 0.0, r, fresh)
    share, gap, price, before, steps = 0.0, np.inf, 0.0, np.inf, 0
    while steps < STEPS and rest < ENOUGH * enough:
        square = next_direction(share, fresh, direction)
        if not square > 0:
            break
        length = now / square
        after = step_of_residual(rows, direction, length, r, fresh)
        weight = tau / (tau + after) if after > 0 else 1.0
        tau = weight * after
        gap = average_residual(weight, r, size, part.down, part.up, least_r) + rest
        price = 0.5 * average_move(length, weight, direction, root, x, least_x)
        steps, share, now = steps + 1, after / now, after
        if gap + price <= ENOUGH * enough or price > TOO_DEAR * enough or not after > 0:
            break
        if steps % STEPS_TO_HALVE == 0:
            if gap > 0.5 * before:
                break
            before = gap
    return PrimalCorrection(-root * least_x, gap + price, steps)


def participants(working_set: WorkingSet, face: Face, theta: Array, v: Array) -> Participants:
    """The free terms, and the other flat ones that are next to a kink or on its wrong side."""
    f, free = working_set.losses, np.zeros(len(working_set.rows), dtype=bool)
    free[face.rows] = True
    rows = working_set.order[~free[working_set.order]]
    at, slope, e = theta[rows], f.b[rows] + f.q[rows] * theta[rows], f.e[rows]
    low = np.where(at <= f.lo[rows], -np.inf, slope + np.where(at > 0, e, -e))
    high = np.where(at >= f.hi[rows], np.inf, slope + np.where(at >= 0, e, -e))
    t = working_set.forward(v, rows)
    reach = REACH * float(np.sqrt(np.mean(face.residual**2)))
    near = (np.minimum(t - low, high - t) <= reach) & (f.q[rows] == 0)
    off, at, rows = (t - np.clip(t, low, high))[near], at[near], rows[near]
    return Participants(
        np.concatenate([face.rows, rows]), np.concatenate([face.residual, off]),
        np.concatenate([face.down, np.maximum(f.lo[rows], -HUGE) - at]),
        np.concatenate([face.up, np.minimum(f.hi[rows], HUGE) - at]),
    )


# -- compiled loops --------------------------------------------------------------------------


@compiled(fastmath=CONTRACT, allocates=False)
def add_column_squares(rows: Index, matrix: Csr, out: Array) -> None:
    """``out_j += sum_i a_ij^2`` over the rows i of `rows`."""
    start, stop, indices, data = matrix
    for k in range(rows.size):
        i = rows[k]
        for p in range(start[i], stop[i]):
            out[indices[p]] += data[p] * data[p]


@compiled(fastmath=CONTRACT, allocates=False)
def normalise_rows(rows: Index, matrix: Csr, root: Array, out: Csr, size: Array) -> None:
    """Copy rows, their columns scaled by `root` and then the rows to length 1 from `size`."""
    start, stop, indices, data = matrix
    new_start, _, new_indices, new_data = out
    for k in range(rows.size):
        i = rows[k]
        a = new_start[k]
        square = 0.0
        for p in range(start[i], stop[i]):
            value = data[p] * root[indices[p]]
            square += value * value
        size[k] = np.sqrt(square)
        inverse = 1.0 / size[k] if square > 0.0 else 0.0
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = inverse * data[p] * root[indices[p]]
            a += ONE


@compiled(fastmath=CONTRACT, allocates=False)
def step_of_residual(matrix: Csr, direction: Array, length: float, r: Array, out: Array) -> float:
    """``r -= length A direction`` and ``out += A' r``, row by row; returns ``r' r``."""
    start, stop, indices, data = matrix
    square = 0.0
    for i in range(r.size):
        value = r[i] - length * sparse_dot(start[i], stop[i], indices, data, direction)
        r[i] = value
        square += value * value
        for p in range(start[i], stop[i]):
            out[indices[p]] += value * data[p]
    return square


@compiled(fastmath=SUMS, allocates=False)
def average_residual(
    weight: float, r: Array, size: Array, down: Array, up: Array, out: Array
) -> float:
    """``out += weight (r - out)``; returns what residuals ``size out`` add to the gap."""
    gap = 0.0
    for k in range(r.size):
        value = out[k] + weight * (r[k] - out[k])
        out[k] = value
        value *= size[k]
        gap += max(up[k] * value, down[k] * value)
    return gap


@compiled(fastmath=SUMS, allocates=False)
def average_move(
    length: float, weight: float, direction: Array, root: Array, x: Array, out: Array
) -> float:
    """``x += length direction``, ``out += weight (x - out)``; returns ``||root out||^2``."""
    square = 0.0
    for j in range(direction.size):
        moved = x[j] + length * direction[j]
        x[j] = moved
        value = out[j] + weight * (moved - out[j])
        out[j] = value
        value *= root[j]
        square += value * value
    return square
