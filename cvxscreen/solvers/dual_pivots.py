"""From near the optimum of a dual over a box to the optimum: pivots with a Cholesky factor.

Coordinate descent (`cvxscreen.solvers.dual_coordinate_descent`) finds soon which duals are strictly
inside their box, and creeps to their values. Here a *basis* B of such terms, with independent rows,
is moved to the minimum of the dual over them,

::

    (A_B A_B' + Q_B) step = r_B,       r_i = <a_i, v> - b_i - e_i sign(theta_i) - q_i theta_i

by the factor ``R' R`` of that matrix. A step ends where the first of them meets an end of its
piece; that one leaves, and the step goes on with the rest. At the minimum the term that is farthest
from optimal enters, and so on: an active set method whose dual objective rises with every step, to
an optimum as exact as the factor is. The residual of all others in the basis being zero then, a
pivot costs one product with the rows, one triangular solve and one change of the factor.

**Dependent rows** (as repeated ones) do not enter: their slopes stay where they are, which is right
where the basis brings their margin to its kink. Where it does not, the term and the basis move
together without changing v, ``theta_i += s, theta_B -= s (A_B A_B')^{-1} A_B a_i``, as far as the
box allows: a straight way up, whose blocking term leaves the basis to the one that moves.

**Unpenalised coordinate.** It has a proximal term whose weight is next to none here, so that its
column is as good as free; two or three steps of the proximal point method do the rest.

Everything is a guess that coordinate descent judges by the gap on all terms.

Source: Best, Ritter: Quadratic Programming with Computer Programs, 2017 (primal active sets);
Moré, Toraldo, SIAM J. Optim. 1, 93-113 (1991), for what finds the face before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvxscreen._support.compiled import CONTRACT, SUMS, CompileClock, compiled
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, entries
from cvxscreen.solvers.dual_terms import (
    DescentRows,
    DescentTerms,
    is_inside,
    pair_gap,
    row_product,
    slope_at,
    subtract_multiple,
)
from cvxscreen.solvers.working_set import Array, Index

# The numbers below steer the work; no answer depends on them. They were found by trial.

ROOM, GROWTH = 1500, 64
"""Most terms of a basis (18 MB), and by how many more than the active ones it may grow."""
INDEPENDENT = 1e-8
"""Share of ``||a_i||^2 + q_i`` that has to be left of a row beside the basis for it to enter."""
STILL = 1e-10
"""A rate of the basis, relative to the term that moves, that may be rounding alone."""
BATCH, STILL_WRONG = 8, 0.3
"""Terms that enter after one look at the active ones at most, while each still adds to the gap such
a share of what it did."""
REFRESH = 64
"""Pivots after which the residuals of the whole basis are computed afresh."""
CENTRES, CENTRED = 30, 1e-10
"""Steps of the proximal point method at most, and the relative move of the coordinate at which they
end: the price of what is left is a square."""
FREE_WEIGHT = 1e-4
"""Weight of that proximal term, relative to the one of coordinate descent: the smaller, the fewer
steps of that method and the more rounding in the factor."""
IDLE = 60
"""Looks at the active terms without a gap below all before after which rounding is all that moves.
"""
FAR = 1e200
"""A step that stands for none: the dual rises without end."""

VISIT, FACTOR, SHARE, PIVOT, EACH = 20.0, 0.2, 0.25, 0.5, 10.0
"""Costs in the time of one stored entry in a product, some 1.3 ns: a visit of coordinate descent
beside its entries, a number of the triangle in the solves that build the factor, pivots for each
active term, a number of the factor in a pivot, a row of a product beside its entries. Measured, 12
to 45 entries a row and a basis of 50 to 300 terms, within a factor of two."""


class Basis(NamedTuple):
    """The terms of the basis, with room for more, and what pivots write to.

    Attributes
    ----------
    factor : array, shape (room, room)
        R, upper triangle.
    rows : array of int, shape (room,)
    kinks : array, shape (room,)
        ``b_i + e_i sign`` of the piece that each moves on.
    place : array of int, shape (n,)
        Where a term is in `rows`; -1 for none.
    moves : array, shape (room,)
    dense : array, shape (d,)
        Zero between uses.
    gaps : array, shape (n,)
        Of the active terms, in their order.
    sizes : array, shape (n,)
        ``||a_i||^2 + q_i`` without the unpenalised coordinate.
    """

    factor: Array
    rows: Index
    kinks: Array
    place: Index
    moves: Array
    dense: Array
    gaps: Array
    sizes: Array

    @classmethod
    def of(cls, problem: Problem, active: int) -> Basis:
        """Empty, for so many active terms."""
        (n, d), room = problem.design.shape, min(rank_bound(problem), active + GROWTH)
        return cls(
            np.empty((room, room)), np.empty(room, dtype=np.intp), np.empty(room),
            np.full(n, -1, dtype=np.intp), np.empty(room), np.zeros(d), np.empty(n),
            problem.norms**2 + problem.losses.q,
        )


class PivotPlan(NamedTuple):
    """When pivots end.

    Attributes
    ----------
    aim : float
        Gap of the active terms that is enough.
    most : int
        Pivots at most.
    free : int
        The unpenalised coordinate; -1 for none.
    """

    aim: float
    most: int
    free: int


def rank_bound(problem: Problem) -> int:
    """How many terms a basis of `problem` may have."""
    n, d = problem.design.shape
    flat = not bool((problem.losses.q > 0.0).any())
    return min(n, d + 1, ROOM) if flat else min(n, ROOM)


def stored_entries(rows: Rows) -> float:
    """Entries of a row, on average."""
    return entries(rows) / max(rows.shape[0], 1)


@compiled(fastmath=CONTRACT, allocates=False)
def pivot_price(size: float, stored: float) -> float:
    """About what a pivot over a basis of so many terms costs, in visits of coordinate descent."""
    return (PIVOT * size * size + 2.0 * size * (stored + EACH)) / (stored + VISIT)


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def pivot_cost(active: int, most: int, stored: float) -> float:
    """About what pivots over so many active terms cost, in visits of coordinate descent.

    `most` is `rank_bound`, `stored` are the entries of a row.
    """
    k = float(min(active, most))
    build = FACTOR * k * k * k / 6.0 + 0.5 * k * k * (stored + EACH)
    looks = active / BATCH * (stored + EACH) / (stored + VISIT)
    return build / (stored + VISIT) + SHARE * active * (pivot_price(k, stored) + looks)


# -- the factor -----------------------------------------------------------------------------------
#
# Positions are unsigned: of others compiled code asks whether they count from the end, which takes
# three times as long (a solve of 295 rows 8 us for 30).

ZERO, ONE = np.uint64(0), np.uint64(1)


@compiled(fastmath=SUMS, allocates=False)
def solve_transposed(factor: Array, size: np.uint64, values: Array) -> None:
    """Overwrite the first `size` numbers of `values` by ``R^{-T}`` of them."""
    for p in range(size):
        value = values[p] / factor[p, p]
        values[p] = value
        for i in range(p + ONE, size):
            values[i] -= value * factor[p, i]


@compiled(fastmath=SUMS, allocates=False)
def solve_factor(factor: Array, size: np.uint64, values: Array) -> None:
    """The same by ``R^{-1}``."""
    p = size
    while p > ZERO:
        p -= ONE
        total = 0.0
        for i in range(p + ONE, size):
            total += factor[p, i] * values[i]
        values[p] = (values[p] - total) / factor[p, p]


@compiled(fastmath=CONTRACT, allocates=False)
def drop_column(factor: Array, size: np.uint64, column: np.uint64) -> None:
    """The factor without a column: those behind it move on, and rotations make it a triangle."""
    last = size - ONE
    for p in range(column):
        for i in range(column, last):
            factor[p, i] = factor[p, i + ONE]
    for p in range(column, last):
        below = p + ONE
        first, second = factor[p, below], factor[below, below]
        length = np.sqrt(first * first + second * second)
        c, s = first / length, second / length
        for i in range(p, last):
            here, there = factor[p, i + ONE], factor[below, i + ONE]
            factor[p, i] = c * here + s * there
            factor[below, i + ONE] = c * there - s * here


# -- pivots ---------------------------------------------------------------------------------------


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def end_of(i: int, terms: DescentTerms, now: float, way: float) -> float:
    """Where a piece of the dual ends for theta_i on its way up or down from `now`."""
    if way > 0.0:
        return terms.hi[i] if terms.e[i] == 0.0 or now >= 0.0 else 0.0
    return terms.lo[i] if terms.e[i] == 0.0 or now <= 0.0 else 0.0


# What is written into its callers is compiled as often as it is: here once each.


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def margins_of(which: Index, size: np.uint64, rows: DescentRows, v: Array, out: Array) -> None:
    """Write ``<a_i, v>`` for the first `size` of the terms `which`."""
    for p in range(size):
        out[p] = row_product(which[p], rows, v)


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def margin_of(i: int, rows: DescentRows, v: Array) -> float:
    """``<a_i, v>``."""
    return row_product(i, rows, v)


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def add_multiple(i: int, step: float, rows: DescentRows, v: Array) -> None:
    """``v += step a_i``."""
    subtract_multiple(i, -step, rows, v)


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def added_gap(i: int, away: float, terms: DescentTerms, now: float) -> float:
    """What a term adds to the gap at the margin ``b_i + away``."""
    q, e = terms.q[i], terms.e[i]
    return pair_gap(away, now, slope_at(away, q, e, terms.lo[i], terms.hi[i]), q, e)


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def beside_basis(
    i: int, rows: DescentRows, terms: DescentTerms, basis: Basis, size: np.uint64
) -> float:
    """Write ``R^{-T} A_B a_i`` to `moves`; what is left of ``||a_i||^2 + q_i``."""
    dense, moves = basis.dense, basis.moves
    add_multiple(i, 1.0, rows, dense)
    margins_of(basis.rows, size, rows, dense, moves)
    for p in range(rows.start[i], rows.stop[i]):
        dense[rows.indices[p] if rows.indices.size else p - rows.start[i]] = 0.0
    for k in range(rows.extra.shape[1]):
        dense[dense.size - rows.extra.shape[1] + k] = 0.0
    solve_transposed(basis.factor, size, moves)
    left = terms.square[i] + terms.q[i]
    for p in range(size):
        left -= moves[p] * moves[p]
    return left


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def take_in(i: int, basis: Basis, size: np.uint64, left: float, kink: float) -> np.uint64:
    """Let a term in whose `beside_basis` has just been found; how many there are now."""
    for p in range(size):
        basis.factor[p, size] = basis.moves[p]
    basis.factor[size, size] = np.sqrt(left)
    basis.rows[size], basis.kinks[size], basis.place[i] = i, kink, np.int64(size)
    return size + ONE


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def let_out(basis: Basis, size: np.uint64, column: np.uint64) -> np.uint64:
    """Let the term of that position out; how many there are now."""
    basis.place[basis.rows[column]] = -1
    drop_column(basis.factor, size, column)
    last = size - ONE
    for p in range(column, last):
        basis.rows[p], basis.kinks[p] = basis.rows[p + ONE], basis.kinks[p + ONE]
        basis.place[basis.rows[p]] = np.int64(p)
    return last


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def advance(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, basis: Basis, size: np.uint64,
    most: float, least_rate: float,
) -> tuple[float, np.int64]:
    """Move the basis along `moves` as far as the box allows, and by `most` times that at most.

    Returns how far, and the position of the term that is at an end then (-1: none).
    """
    length, block, moves = most, np.int64(-1), basis.moves
    for p in range(size):
        i, rate = basis.rows[p], moves[p]
        if abs(rate) > least_rate:
            room = (end_of(i, terms, theta[i], rate) - theta[i]) / rate
            if room < length:
                length, block = max(room, 0.0), np.int64(p)
    if length >= FAR:
        return length, block
    for p in range(size):
        i, rate = basis.rows[p], moves[p]
        if rate != 0.0:
            now = theta[i]
            end = end_of(i, terms, now, rate)
            new = now + length * rate
            new = min(new, end) if rate > 0.0 else max(new, end)
            theta[i] = end if np.int64(p) == block else new
            add_multiple(i, now - theta[i], rows, v)
    return length, block


@compiled(fastmath=CONTRACT, allocates=False)
def pivot(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, active: Index, basis: Basis,
    held: int, centre: float, plan: PivotPlan,
) -> tuple[int, np.int64, int, float, float]:
    """Pivots until the active terms have the gap of the plan, or no pivot helps.

    Parameters
    ----------
    rows, terms, theta, v : as of coordinate descent
        Those of the proximal weight here.
    active : array of int
        Terms that may enter.
    basis : Basis
        Where `held` is 0, the active terms inside their pieces are let in first.
    held : int
        How many terms are in it.
    centre : float
        Of the unpenalised coordinate, in the metric of v.
    plan : PivotPlan

    Returns
    -------
    tuple
        The pivots done, how many terms the basis has, looks at the active terms, their gap, the
        centre.
    """
    factor, moves, gaps, place = basis.factor, basis.moves, basis.gaps, basis.place
    size, room, free = np.uint64(held), np.uint64(factor.shape[0]), plan.free
    for k in range(active.size if held == 0 else 0):
        i = active[k]
        now = theta[i]
        if is_inside(i, terms, now) and size < room:
            left = beside_basis(i, rows, terms, basis, size)
            if left > INDEPENDENT * basis.sizes[i]:
                e = terms.e[i]
                kink = terms.b[i] + (e if now > 0.0 else -e)
                size = take_in(i, basis, size, left, kink)
    done, looks, since, known, gap = 0, 0, 0, False, np.inf
    centres, batch, least, best_look = 0, 0, np.inf, 0
    while done < plan.most:
        # To the minimum over the basis. Once that is known, only the last term is away from it.
        while size > ZERO:
            if known:
                last = size - ONE
                i = basis.rows[last]
                for p in range(last):
                    moves[p] = 0.0
                moves[last] = margin_of(i, rows, v) - basis.kinks[last] - terms.q[i] * theta[i]
                moves[last] /= factor[last, last]
            else:
                margins_of(basis.rows, size, rows, v, moves)
                for p in range(size):
                    i = basis.rows[p]
                    moves[p] -= basis.kinks[p] + terms.q[i] * theta[i]
                solve_transposed(factor, size, moves)
            solve_factor(factor, size, moves)
            _, block = advance(rows, terms, theta, v, basis, size, 1.0, 0.0)
            if block < 0:
                known = True
                break
            entered = known and np.uint64(block) == size - ONE
            size = let_out(basis, size, np.uint64(block))
            done, since = done + 1, since + 1
            if entered or done >= plan.most:
                break
        if since >= REFRESH:
            known, since = False, 0
            continue
        # The term that is farthest from optimal; after a while all are looked at again.
        i = -1
        while i < 0:
            if batch == 0:
                gap, batch, looks = 0.0, BATCH, looks + 1
                margins_of(active, np.uint64(active.size), rows, v, gaps)
                for k in range(active.size):
                    i = active[k]
                    gaps[k] = added_gap(i, gaps[k] - terms.b[i], terms, theta[i])
                    gap += gaps[k]
                i = -1
                if gap < least:
                    least, best_look = gap, looks
                if gap <= plan.aim or looks > best_look + IDLE:
                    break
            worst, at = 0.0, -1
            for k in range(active.size):
                if gaps[k] > worst and place[active[k]] < 0:
                    worst, at = gaps[k], k
            if at < 0:
                if batch == BATCH:
                    break
                batch = 0
                continue
            gaps[at], batch = 0.0, batch - 1
            other = active[at]
            away = margin_of(other, rows, v) - terms.b[other]
            if added_gap(other, away, terms, theta[other]) > STILL_WRONG * worst:
                i = other
        if i < 0:
            if free < 0 or centres >= CENTRES:
                break
            ahead = v[free]
            moved = abs(ahead - centre)
            v[free] = 2.0 * ahead - centre
            centre, centres, known, batch = ahead, centres + 1, False, 0
            least, best_look = np.inf, looks
            if centres > 1 and moved <= CENTRED * max(abs(ahead), 1e-300):
                break
            continue
        away = margin_of(i, rows, v) - terms.b[i] - terms.q[i] * theta[i]
        way = 1.0 if away > 0.0 else -1.0
        now, e = theta[i], terms.e[i]
        sign = way if now == 0.0 else (1.0 if now > 0.0 else -1.0)
        kink = terms.b[i] + sign * e
        left = beside_basis(i, rows, terms, basis, size)
        if left > INDEPENDENT * basis.sizes[i]:
            if size >= room:
                break
            size = take_in(i, basis, size, left, kink)
            done, since = done + 1, since + 1
            continue
        # No curvature: the term and the basis move without v, and that up to an end.
        way = 1.0 if away > kink - terms.b[i] else -1.0
        solve_factor(factor, size, moves)
        for p in range(size):
            moves[p] *= -way
        length, block = advance(
            rows, terms, theta, v, basis, size, (end_of(i, terms, now, way) - now) / way, STILL
        )
        if length >= FAR:
            break
        new = now + way * length if block >= 0 else end_of(i, terms, now, way)
        add_multiple(i, now - new, rows, v)
        theta[i] = new
        done, since = done + 1, since + 1
        if block >= 0:
            size = let_out(basis, size, np.uint64(block))
            left = beside_basis(i, rows, terms, basis, size)
            if left > 0.1 * INDEPENDENT * basis.sizes[i] and is_inside(i, terms, new):
                size = take_in(i, basis, size, left, kink)
    return done, np.int64(size), looks, gap, centre


CLOCK = CompileClock(3.2, pivot)
"""Of `pivot`. Measured on a fresh cache: 1.25 times what coordinate descent takes."""
