"""A face of the dual: its minimum by conjugate gradients, and what x alone can still gain there.

On the face of the free terms F the dual (see the package) is a quadratic with the system
``(A_F A_F' + Q) step = r``. Its spectrum is that of a random matrix but for the k heavy columns;
with those split off as B, the preconditioner ``D + B B'`` (D diagonal) leaves only the bulk. It is
applied by the Woodbury identity,

::

    z = (D + B B')^{-1} r = D^{-1} (r - B u),       u = (I + B' D^{-1} B)^{-1} B' D^{-1} r = B' z

and costs no pass of its own: ``B u`` and ``B' z = u`` are what the product with ``A_F A_F'`` needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled
from cvxscreen.solvers.dual_active_set.working_set import (
    ONE,
    Array,
    Csr,
    Index,
    WorkingSet,
    add_rows,
    empty_rows,
    sparse_dot,
)

# -- the step of the free duals -------------------------------------------------------------------


HUGE = 1e300
"""Stands for an endless end of a box, so that products with 0 are 0."""
CUT = 0.1
"""Conjugate gradients stop when clipping takes away more than this share of the residual: solving
more closely would solve for another face. By trial, as `STEPS` (no answer depends on either)."""
STEPS = 150
"""Conjugate gradient steps at most; a sweep between two runs costs about as much as two of them."""
SMALL_FALL, SMALL_CURVATURE = 1e-28, 1e-15
"""The squared residual may fall by so much, and the curvature along a direction must be so large
relative to its squared length: the square of the rounding unit and the unit, with some room."""
LENGTHS = tuple(0.5**k for k in range(9))
"""Shares of a step that are tried where clipping has spoilt the whole one: less is clipped then.
The last resort is the share at which nothing is. (On farmads, 50 values of C, the shorter trials
took 0.43 times the CPU.)"""


class Face:
    """The free rows of a working set at one dual point.

    Attributes
    ----------
    rows : array of int
        Local indices.
    residual : array
        How far the margins are from where theta is a slope.
    down, up : arrays
        Room of theta in its cell (the piece that it is inside of).
    flat : bool
        Whether no free term has curvature (q = 0).
    gap : float
        After `move`: what the free terms add to the duality gap, about.
    steps : int
        After `move`: conjugate gradient steps.
    near : bool
        After `move`: whether it ended because little is lacking.
    """

    def __init__(self, working_set: WorkingSet, theta: Array, v: Array) -> None:
        f, self._working_set = working_set.losses, working_set
        self.rows = rows = working_set.free(theta)
        at, q = theta[rows], f.q[rows]
        kinked = f.e[rows] > 0
        lo = np.where(kinked & (at > 0), 0.0, np.maximum(f.lo[rows], -HUGE))
        hi = np.where(kinked & (at < 0), 0.0, np.minimum(f.hi[rows], HUGE))
        self._terms = FreeTerms(at, q, lo, hi, working_set.weight[rows])
        slope = f.b[rows] + f.e[rows] * np.sign(at) + q * at
        self.residual = working_set.forward(v, rows) - slope
        self.down, self.up = lo - at, hi - at
        self.flat = not q.any()
        self.gap, self.steps, self.near = 0.0, 0, False

    @property
    def lacking(self) -> float:
        """What the dual objective lacks on the face, from below: ``r' D^{-1} r / 2``."""
        return 0.5 * float(self.residual @ (self._terms.weight * self.residual))

    def move(self, theta: Array, v: Array, enough: float, close: float = 0.0) -> None:
        """Solve, clip, and go as far as the dual improves; theta and v change in place.

        Parameters
        ----------
        theta, v : arrays
            Of the working set.
        enough : float
            Duality gap of the free terms at which solving more closely does not pay.
        close : float
            Where the dual objective lacks no more than about this, nothing more is solved.
        """
        if not len(self.rows):
            return
        step, best, most = self._solve(enough, close), None, 0.0
        if self.near and not self.steps:
            return
        at, q, lo, hi, _ = self._terms
        for share in (*LENGTHS, 0.0):
            length = share or self._unclipped_share(step)
            new = np.clip(at + length * step, lo, hi)
            change = new - at
            v_change = self._working_set.adjoint(change, self.rows)
            slope = float(self.residual @ change)
            curvature = float(v_change @ v_change) + float((q * change) @ change)
            whole = slope > 0.5 * curvature
            far = 1.0 if whole else slope / max(curvature, 1e-300)
            gain = far * (slope - 0.5 * far * curvature) if slope > 0 else 0.0
            if gain > most:
                best, most = (new if whole else at + far * change, far * v_change), gain
            elif best is not None:
                break
            if whole:
                break
        if best is not None:
            theta[self.rows] = best[0]
            v -= best[1]

    def _unclipped_share(self, step: Array) -> float:
        """The share of the step at which the first free term reaches an end of its cell."""
        room = np.where(step > 0, self.up, -self.down)
        return float((room / np.maximum(np.abs(step), 1e-300)).min(initial=1.0))

    def _solve(self, enough: float, close: float) -> Array:
        """Approximate solution of ``(A_F A_F' + Q) x = r``, r the residual at theta.

        Stops when the clipped point's duality gap on F is at most `enough`, when ``r' z / 2`` is
        at most `close`, or when clipping would undo more than is left to gain.
        """
        working_set, terms = self._working_set, self._terms
        upper = np.ascontiguousarray(working_set.cholesky(self.rows).T)
        cg = ConjugateGradients.start(
            self.residual, terms.weight, working_set.k, len(working_set.columns)
        )
        self.steps, self.gap, near = conjugate_gradients(
            self.rows, working_set.heavy, working_set.light, upper, terms, cg, enough, close
        )
        self.near = self.near or near
        return cg.x


# -- compiled loops --------------------------------------------------------------------------


class FreeTerms(NamedTuple):
    """The free terms of a face, at the point where the conjugate gradients begin.

    Attributes
    ----------
    theta, q : arrays
        Duals and the curvature of their conjugates.
    lo, hi : arrays
        Finite ends of the cells.
    weight : array
        ``1 / D``.
    """

    theta: Array
    q: Array
    lo: Array
    hi: Array
    weight: Array


class ConjugateGradients(NamedTuple):
    """The vectors of the iteration; the loops change them in place.

    Attributes
    ----------
    x, r : arrays, shape (free rows,)
        Solution so far, its residual.
    z : array, shape (free rows,)
        ``D^{-1} r``, and the preconditioned residual once ``D^{-1} B u`` has been taken off.
    p, Kp : arrays, shape (free rows,)
        Direction, and its product with the system's matrix.
    Bu, Bp : arrays, shape (free rows,)
        ``B u = B B' z`` and ``B B' p``.
    u : array, shape (heavy columns,)
        ``B' z``.
    At_z, At_p : arrays, shape (columns,)
        ``A_F' z`` and ``A_F' p``.
    """

    x: Array
    r: Array
    z: Array
    p: Array
    Kp: Array
    Bu: Array
    Bp: Array
    u: Array
    At_z: Array
    At_p: Array

    @classmethod
    def start(cls, r: Array, weight: Array, heavy: int, columns: int) -> ConjugateGradients:
        """At x = 0."""
        x, p, Bp = np.zeros((3, len(r)))
        Bu, Kp = np.empty((2, len(r)))
        At_z, At_p = np.zeros((2, columns))
        return cls(x, r.copy(), weight * r, p, Kp, Bu, Bp, np.zeros(heavy), At_z, At_p)


@compiled(fastmath=SUMS, allocates=False)
def solve_cholesky(upper: Array, u: Array) -> None:
    """``u <- (L L')^{-1} u`` in place, `upper` being ``L'``, row by row in memory."""
    k = np.uint64(u.size)
    for j in range(k):
        value = u[j] / upper[j, j]
        u[j] = value
        for i in range(j + ONE, k):
            u[i] -= value * upper[j, i]
    for back in range(k):
        row = k - ONE - np.uint64(back)
        value = 0.0
        for i in range(row + ONE, k):
            value += upper[row, i] * u[i]
        u[row] = (u[row] - value) / upper[row, row]


@compiled(fastmath=CONTRACT, allocates=False)
def finish_preconditioner(
    rows: Index, heavy: Csr, weight: Array, cg: ConjugateGradients
) -> float:
    """``Bu = B u`` and ``z -= weight Bu``; returns ``r' z``."""
    start, stop, indices, data = heavy
    r, z, Bu, u = cg.r, cg.z, cg.Bu, cg.u
    product = 0.0
    for k in range(rows.size):
        i = rows[k]
        Bu[k] = sparse_dot(start[i], stop[i], indices, data, u)
        z[k] -= weight[k] * Bu[k]
        product += r[k] * z[k]
    return product


@compiled(fastmath=CONTRACT, allocates=False)
def multiply_direction(
    rows: Index, light: Csr, share: float, q: Array, cg: ConjugateGradients
) -> tuple[float, float]:
    """``p = z + share p``, ``Bp = Bu + share Bp``, and ``Kp = A At_p + Bp + q p``.

    Returns ``p' Kp`` and ``p' p``.
    """
    start, stop, indices, data = light
    z, p, Kp, Bu, Bp, At_p = cg.z, cg.p, cg.Kp, cg.Bu, cg.Bp, cg.At_p
    curvature, square = 0.0, 0.0
    for k in range(rows.size):
        i = rows[k]
        own = sparse_dot(start[i], stop[i], indices, data, At_p)
        p[k] = z[k] + share * p[k]
        Bp[k] = Bu[k] + share * Bp[k]
        Kp[k] = own + Bp[k] + q[k] * p[k]
        curvature += p[k] * Kp[k]
        square += p[k] * p[k]
    return curvature, square


@compiled(fastmath=SUMS, allocates=False)
def next_direction(share: float, fresh: Array, direction: Array) -> float:
    """``direction = fresh + share direction`` and fresh = 0; returns the squared length."""
    square = 0.0
    for j in range(direction.size):
        value = fresh[j] + share * direction[j]
        fresh[j] = 0.0
        direction[j] = value
        square += value * value
    return square


@compiled(fastmath=SUMS, allocates=False)
def advance(
    length: float, terms: FreeTerms, cg: ConjugateGradients
) -> tuple[float, float, float]:
    """``x += length p``, ``r -= length Kp``, ``z = weight r``, and what is known of the new point.

    Returns a bound of the duality gap of ``theta + x`` clipped to its cells (finite numbers), how
    much the clipping takes away, and the sum of ``|r|``.
    """
    theta, q, lo, hi, weight = terms
    x, r, z, p, Kp = cg.x, cg.r, cg.z, cg.p, cg.Kp
    gap, cut, left = 0.0, 0.0, 0.0
    for k in range(p.size):
        moved = x[k] + length * p[k]
        x[k] = moved
        residual = r[k] - length * Kp[k]
        r[k] = residual
        z[k] = weight[k] * residual
        moved += theta[k]
        inside = min(max(moved, lo[k]), hi[k])
        room = max((hi[k] - inside) * residual, (lo[k] - inside) * residual)
        if q[k] > 0.0:
            room = min(room, 0.5 * residual * residual / q[k])
        gap += room
        cut += abs(moved - inside)
        left += abs(residual)
    return gap, cut, left


@compiled(fastmath=CONTRACT, allocates=False)
def conjugate_gradients(
    rows: Index, heavy: Csr, light: Csr, upper: Array, terms: FreeTerms, cg: ConjugateGradients,
    enough: float, close: float,
) -> tuple[int, float, bool]:
    """Solve ``(A_F A_F' + Q) x = r``, F being `rows`, with the preconditioner ``D + B B'``.

    Parameters
    ----------
    rows, heavy, light
        Free rows, and the entries of all rows in the heavy columns and in the others.
    upper : array, shape (k, k)
        ``L'`` of the Cholesky factorisation ``L L' = I + B' D^{-1} B``.
    terms, cg
        The free terms; the vectors of the iteration, at their start.
    enough, close : float
        See `Face.move`.

    Returns
    -------
    steps : int
    gap : float
        What the free terms add to the duality gap, about; infinite before the first step.
    near : bool
        Whether the iteration ended because the dual objective lacks little.
    """
    steps, gap, before, first = 0, np.inf, 0.0, 0.0
    while steps < STEPS:
        # z = (D + B B')^{-1} r; u is then B' z.
        for j in range(cg.u.size):
            cg.u[j] = 0.0
        add_rows(rows, heavy, cg.z, cg.u)
        solve_cholesky(upper, cg.u)
        rz = finish_preconditioner(rows, heavy, terms.weight, cg)
        if steps == 0:
            first = rz
        if 0.5 * rz <= close:
            return steps, gap, True
        # The next direction, and its product with the matrix.
        add_rows(rows, light, cg.z, cg.At_z)
        for j in range(cg.u.size):
            cg.At_z[j] = cg.u[j]
        share = rz / before if before > 0.0 else 0.0
        before = rz
        next_direction(share, cg.At_z, cg.At_p)
        curvature, square = multiply_direction(rows, light, share, terms.q, cg)
        steps += 1
        if not (rz > SMALL_FALL * first and curvature > SMALL_CURVATURE * square):
            break
        gap, cut, left = advance(rz / curvature, terms, cg)
        if gap <= enough or cut > CUT * left:
            break
    return steps, gap, False


# -- the move of x alone --------------------------------------------------------------------------
#
# On a face of flat terms (q = 0) the duality gap at x = x_theta is linear in the residual r of the
# free terms, and the dual objective is off by about r' K^{-1} r / 2 only, thousands of times less.
# What is left is to make the residual small, and that x alone can do: any move s with A_F s = -r
# will do, at the price of ||s||^2 / 2. The least such move is what further conjugate gradients on
# the dual find; a longer one is found much faster. Columns are weighted by 1 / sum_F a_ij^2 so that
# all count alike, which brings the spectrum together, the heavy columns are left out, and rows are
# scaled to length one. Conjugate gradients on the normal equations of the second kind (Craig 1955)
# then take one pass over the light entries a step; the minimal residual over their iterates is
# found on the way, its weights known without a product, and is a third of theirs. Terms next to a
# kink that are not free take part, so that they stay where they are.


# These numbers decide when a move is given up for more steps on the dual; no answer depends on
# them. They were found by trial (CPU seconds of examples/benchmarks/sparse_path.py).
CORRECTION_STEPS, STEPS_TO_HALVE = 60, 8
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
    while steps < CORRECTION_STEPS and rest < ENOUGH * enough:
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
