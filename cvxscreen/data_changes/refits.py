"""Fits without what is left out, from the solution with all terms: in blocks, or one by one.

A block of terms goes through one solver after another, each of which looks at the terms near a kink
only and certifies its answers on all of them; those that turn out to be on another piece join, and
what is not certified is solved again (`left_out_of`). There is a path for each term, of rows and of
a kernel; then small problems, for rows those of any weightings, for a kernel `Programs`. What is
left uncertified, and what no block takes, is refitted alone, screened.

*Of rows with few coordinates*: as the slope of one term goes from what it is to 0, the optimum of
all others moves along a line until a term changes its piece: a slope inside its box meets an end,
or a margin meets a kink. On each stretch the terms at a kink (E) keep their margins and those on a
parabola (C) follow theirs

::

    [ M + sum_C a a' / q   A_E' ] [ dx       ]   [ a_k theta_k ]
    [ A_E                  0    ] [ dtheta_E ] = [ 0           ]

An inverse of this matrix is kept: a piece that changes is a rank-one change of it, or one row and
column more or fewer. Without one term few pieces change, so a refit costs a few passes over
the terms that are near a kink. Nothing is proven by it: a block of
answers is certified on all terms (`cvxscreen.certificates.weightings`).

Where terms at a kink depend on each other, as rows that are there twice, their slopes are not
unique: paths begin where some are at an end of their box instead (`Snapped.at_a_vertex`), and a
margin that depends on those at a kink stays where it is.

For parametric quadratic programs this is the active-set path of Best (1996), for the weight of
single samples of a support vector machine that of Cauwenberghs and Poggio (2001), by whom the dual
matrix over E is kept; here it is that of the coordinates as well, so that rows with fewer
coordinates than terms at a kink, losses with parabolas and an intercept need nothing of their own.

*Of a kernel* the same paths are followed where the terms inside their box are so few that an
inverse over them can be made: there are no coordinates, and what the row of a term does to the
margins and to the slopes at a kink are columns of a matrix over the terms near that is made once
(`RefitStart.of_gram`). What is left, and all where nobody waits for a compiler, are programs: each
refit is a small quadratic program over a box (`cvxscreen.solvers.box_qp`), over the terms whose
margins are nearest to a kink, all others held at their slopes. Their Gram matrix is the same for
all refits. A block of answers is certified on all terms at once: the margins of all are one matrix
product with the slopes that changed (`cvxscreen.certificates.kernels.LeftOutOfGram`). Dense rows
with many features are points of the linear kernel, and points of a linear kernel with few features
are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import (
    SUMS,
    CompileClock,
    at_hand,
    compiled,
    not_imported,
    read_only,
)
from cvxscreen._support.rounding import gamma, up
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.certificates.certificate import columns
from cvxscreen.certificates.kernels import LeftOutOfGram, LeftOutProofs
from cvxscreen.certificates.weightings import Around, LeftOut, LeftOutOfRows, by_room, stays_around
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.data_changes.bootstrap import (
    Replicates,
    curvature_of_the_sum,
    in_order,
    mapped,
    together,
    waiting,
)
from cvxscreen.data_changes.reweight import refit, taken, weighted
from cvxscreen.designs.gram import Gram, GramForm, Kernel, Polynomial
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.box_qp import BoxQp, descend_singles
from cvxscreen.solvers.compiled_path.loops import margins
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# -- paths of rows with few coordinates ------------------------------------------------------------

HELD, KINK, CURVED = 0, 1, 2
"""A term at the slope of a linear piece, at a kink, on a parabola."""

NEAR, FEWEST = 6, 80
"""Terms near a kink that a path looks at first, as a multiple of the coordinates, and at least.

ijcnn1 (22 coordinates), letter-like data (16): of 10 nobody needs more, with 4 a tenth has to be
followed again among more, and all takes a fifth longer; cadata (8): 80 are enough, 48 take twice
as long."""

WIDER = 1.25
"""What the next answers may be further from the solution than those that were refuted."""

ROUNDS, MORE = 3, 8
"""How often the terms near a kink are chosen, each time around the last answers, and how many more
these may be than the last ones. Shuttle, C = 100: within reach of 5 of 6,634 paths are all 58,000
terms, among which these 5 took half of the time."""

SEVERAL = 64
"""Refits from which on distances are measured by the curvature: that takes as long as a few dozen
paths, and only where features are correlated saves it a tenth of these a second one."""

EVENTS, PER_PLACE = 200, 4
"""Changes of a piece after which a path is given up, at least, and for each place at a kink: of
1,500 x 128, C = 1, hinges, most paths have 140 to 300."""

AT_END = 1e-10, 1e-7, 1e-4
"""Shares of its box by which a slope may be off an end that it is taken to be at, one after the
other: what balances an intercept may be spread over more slopes than there are coordinates."""

FINER = 1e-12
"""Relative gap to which a solution is solved again whose pieces are not the optimum's."""

SETTLES, SETTLED = 3, 1e-14
"""Newton steps from the solution to the optimum on its pieces, at most and until they are so small
a share of it."""

EXACT = 1e-10
"""Relative size of a pivot below which a row depends on those at a kink."""

STILL = 1e-11
"""Speed of a margin, as a share of what the slope can do to it, below which the term stays on its
piece: of a term that depends on those at a kink, as where rows are there twice, it is rounding."""

AT_ONCE, FEW, MANY = 2**20, 16, 1024
"""Numbers of the paths that are followed together, 8 MB, and how many these are at least and at
most. With half of them the calls of numpy take a tenth more of all; with twice as many nothing is
gained."""

KNOWN = 2**20
"""Numbers of the solutions that paths keep, 8 MB."""

DEPENDENT = 1e8
"""Of a kernel, the largest entry of the inverse over the terms inside their box, relative: beyond,
points nearly depend on each other, and paths would follow rounding."""

PLACES = 64
"""Of a kernel, terms that may come to a kink beside those that are there."""

# Rows of the tables of `RefitStart`.
KNOT, LEVEL, CURVE = 0, 6, 9
NOW, LOW, HIGH = range(3)


class RefitStart(NamedTuple):
    """Terms near a kink where every path begins: d coordinates, m terms, S places at a kink.

    ``D = d + S`` and ``L = m + D``. What a solution of the module's matrix does to the margins is
    kept beside it: a vector of L numbers, ``A x`` for the x among its last D.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns; of a kernel without coordinates.
    squares : array, shape (m,)
        ``|a_i|^2``.
    table : array, shape (10, m)
        The pieces of their losses from the lowest slope to the highest. Pieces 0, 2 and 4 are
        lines, 1 and 3 parabolas, or kinks where ``q = 0``. From `KNOT` on stand the margins between
        which piece c is, rows c and c + 1; from `LEVEL` on the slopes of the lines; last q. There
        are five pieces where slopes on either side of 0 have a kink of the conjugate between them;
        else three.
    now : array, shape (3, L)
        Their margins, x, and the slopes at a kink; between which of these a term is on its piece:
        of margins infinite at a kink, of x and where there is no slope.
    which : array of int64, shape (m + S,)
        Their pieces; then the terms at a kink, -1 where there is none.
    inverse : array, shape (D, D)
        Of the module's matrix; rows and columns of 0 where there is no term. Of rows.
    known : array, shape (L, L)
        Of a kernel its solutions for the row of each term, and for each place at a kink; of rows
        there are none yet.
    """

    A: Array
    squares: Array
    table: Array
    now: Array
    which: NDArray[np.int64]
    inverse: Array
    known: Array

    @classmethod
    def of(cls, problem: Problem, around: Around, at: Optimum, near: Index) -> RefitStart:
        """The terms at `near`, sorted; those at a kink are among them. As many places as d."""
        A, d, have = around.as_columns(near), problem.d, len(at.inverse)
        table, now, which = _begin(problem, at, near, d)
        inverse = np.zeros((2 * d, 2 * d))
        inverse[:have, :have] = at.inverse
        none = np.empty((0, now.shape[1]))
        return cls(A, np.square(problem.sizes[near]), table, now, which, inverse, none)

    def solutions_for(self, rows: Array) -> Array:
        """The solutions of the matrix for each of `rows`, shape (K, L)."""
        x = rows @ self.inverse[:rows.shape[1]]
        return np.hstack((x[:, :rows.shape[1]] @ self.A, x))

    @classmethod
    def of_gram(cls, proofs: LeftOutOfGram, at: Optimum, near: Index) -> RefitStart:
        """The same of a kernel, the terms inside their box among them.

        With G the Gram matrix, B the terms inside their box and ``R = (G_BB + diag(q))^-1`` the
        margins answer the row of a term by ``G - G_B' R G_B``, the slopes at B by ``R G_B``.
        """
        gram, base = proofs.gram(near, near), np.flatnonzero(at.kind != HELD)
        m, E, kink = len(near), len(at.edges), at.kind[base] == KINK
        inside = gram[near.searchsorted(base)]
        slopes = at.inverse @ inside
        table, now, which = _begin(proofs.problem, at, near, E + PLACES)
        known = np.zeros((now.shape[1], now.shape[1]))
        known[:m, :m] = gram - inside.T @ slopes
        known[m:m + E, :m] = slopes[kink]
        known[:m, m:m + E] = slopes[kink].T
        known[m:m + E, m:m + E] = -at.inverse[np.ix_(kink, kink)]
        squares = np.ascontiguousarray(gram.diagonal())
        return cls(np.empty((0, m)), squares, table, now, which, np.empty((0, 0)), known)


def _begin(
    problem: Problem, at: Optimum, near: Index, places: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """`table`, `now` and `which` of the terms at `near`."""
    d, m = len(at.x), len(near)
    table, now = np.empty((10, m)), np.zeros((3, m + d + places))
    now[NOW, m:m + d], now[LOW], now[HIGH] = at.x, -np.inf, np.inf
    which = np.full(m + places, -1)
    own = tuple(read_only(*columns(problem.losses), at.theta, at.margins))
    pieces_near(own, at.kind, near, d, table, now, which)
    return table, now, which


@compiled(allocates=False)
def pieces_near(own: Any, kind: Any, near: Any, d: Any, table: Any, now: Any, which: Any) -> None:
    """Write the columns of the terms at `near`, and those at a kink to the places of their slopes.

    `own` are the columns of all losses, then all slopes and margins.
    """
    b, e, q, lo, hi, theta, margins = own
    m, place = near.size, near.size
    for i in range(m):
        k = near[i]
        s, low, high = theta[k], lo[k], hi[k]
        five = e[k] > 0.0 and low < 0.0 and high > 0.0
        table[:, i] = np.inf
        table[KNOT, i] = -np.inf
        down = q[k] * low if q[k] > 0.0 and low != 0.0 else 0.0
        rise = q[k] * high if q[k] > 0.0 and high != 0.0 else 0.0
        if low < high:
            first = b[k] - e[k] if low < 0.0 else b[k] + e[k]
            table[KNOT + 1, i] = first + down
            table[KNOT + 2, i] = first + (0.0 if five else rise)
        if five:
            table[KNOT + 3, i] = b[k] + e[k]
            table[KNOT + 4, i] = b[k] + e[k] + rise
        table[LEVEL, i], table[LEVEL + 1, i], table[LEVEL + 2, i] = low, high, high
        if five:
            table[LEVEL + 1, i] = 0.0
        table[CURVE, i] = q[k]
        if kind[k] == HELD:
            c = 0 if s <= low else 4 if five and s >= high else 2
        else:
            c = 3 if five and s > 0.0 else 1
        which[i], now[NOW, i] = c, margins[k]
        if kind[k] != KINK:
            now[LOW, i], now[HIGH, i] = table[KNOT + c, i], table[KNOT + c + 1, i]
            continue
        which[place], at = i, d + place
        now[NOW, at] = s
        now[LOW, at], now[HIGH, at] = table[LEVEL + c // 2, i], table[LEVEL + c // 2 + 1, i]
        place += 1


class Gone(NamedTuple):
    """Terms that are left out, one by each of K paths.

    Attributes
    ----------
    rows : array, shape (K, d)
    own : array of int64, shape (K,)
        Their numbers among the terms near; -1 where they are not there.
    slopes, rates : array, shape (K,)
        Their slopes, and how fast these grow with the margin.
    solutions : array, shape (K, L)
        Of the matrix at the start for their rows (`RefitStart.solutions_for`).
    """

    rows: Array
    own: NDArray[np.int64]
    slopes: Array
    rates: Array
    solutions: Array


class Room(NamedTuple):
    """What one path after another works in.

    Attributes
    ----------
    now : array, shape (5, L)
        As in `RefitStart`; how fast it changes, and how long it is until a term leaves its piece.
    which : array of int64, shape (m + S,)
        As there.
    row : array, shape (d,)
    known : array, shape (c, L)
        Solutions of the matrix at the start for the row of a term, or for its place at a kink, made
        where they are first needed: the same few terms change their pieces on most of the paths.
    at : array of int64, shape (L + 1,)
        Where in `known` that of a term, or of a place at a kink behind m + d, stands; -1 where it
        is not there. The last says how many there are. Of a kernel all are.
    changes : array, shape (events, L + 1)
        What the inverse has changed by since the start: the sum of ``w w'`` times a number, which
        stands last.
    shares : array, shape (events,)
        Of each of them, for the next.
    """

    now: Array
    which: NDArray[np.int64]
    row: Array
    known: Array
    at: NDArray[np.int64]
    changes: Array
    shares: Array

    @classmethod
    def of(cls, start: RefitStart) -> Room:
        """Room for the paths from `start`."""
        L, known = start.now.shape[1], start.known
        events = max(EVENTS, PER_PLACE * (len(start.which) - start.A.shape[1]))
        at = np.arange(L + 1) if len(known) else np.append(np.full(L, -1), 0)
        return cls(
            np.empty((5, L)), np.empty_like(start.which), np.empty(len(start.A)),
            known if len(known) else np.empty((min(KNOWN // L, L), L)), at,
            np.empty((events, L + 1)), np.empty(events),
        )


@compiled(fastmath=SUMS, allocates=False)
def solved_for(start: Any, room: Any, key: Any, out: Any) -> None:
    """Write the solution at the start for the row of term `key`, or for that place at a kink."""
    A, N, row = start.A, start.inverse, room.row
    d, m, D, L = A.shape[0], A.shape[1], N.shape[0], start.now.shape[1]
    place = room.at[key]
    if place >= 0:
        for i in range(L):
            out[i] = room.known[place, i]
        return
    if key >= m:
        for r in range(D):
            out[m + r] = N[key - m, r]
    else:
        for j in range(d):
            row[j] = A[j, key]
        margins(D, N, row, out[m:])
    margins(m, A, out[m:], out)
    if room.at[L] < room.known.shape[0]:
        room.at[key] = room.at[L]
        room.at[L] += 1
        for i in range(L):
            room.known[room.at[key], i] = out[i]


@compiled(fastmath=SUMS, allocates=False)
def follow(start: Any, gone: Any, room: Any, X: Any, theta: Any) -> None:
    """Follow each path to its end, or until its matrix is singular; write where that is.

    What belongs to the matrix changes it by ``w w'``: a parabola that is added or taken away, a
    term that comes to a kink (one row and column more) or leaves it. The changes are kept beside
    the inverse at the start, which all paths share: most paths end before these are as many as
    there are rows, and copying the inverse would take longer than many of them. So is what each
    does to all margins: the next one's are sums of these, and no pass over the terms near is made.
    """
    A, table, changes = start.A, start.table, room.changes
    d, m, L = A.shape[0], A.shape[1], start.now.shape[1]
    S = L - m - d
    begin = m * (d > 0)  # of what is written: x, of a kernel the margins
    now, low, high, speed, length = room.now[0], room.now[1], room.now[2], room.now[3], room.now[4]
    piece, slots, curve, at = room.which, room.which[m:], table[CURVE], now[m:]
    shares = room.shares
    for k in range(gone.own.size):
        for i in range(3):
            for j in range(L):
                room.now[i, j] = start.now[i, j]
        for i in range(m + S):
            piece[i] = start.which[i]
        own = gone.own[k]
        term = own
        key = own  # of what belongs to the matrix and changes: a term, or a place at a kink
        q = -1.0
        if own >= 0:
            low[own] = -np.inf
            high[own] = np.inf
            if piece[own] % 2 == 1:
                q = curve[own]
            for j in range(S):
                if slots[j] == own:
                    key = m + d + j
        elif gone.rates[k] > 0.0:
            q = 1.0 / gone.rates[k]
        still = 0.0
        for j in range(d):
            still += gone.rows[k, j] * gone.rows[k, j]
        if d == 0:
            still = start.squares[own]
        still *= (STILL * gone.slopes[k]) ** 2
        for j in range(L):
            changes[0, j] = gone.solutions[k, j]
            speed[j] = gone.slopes[k] * changes[0, j]
        left = 1.0
        count = 0
        sign = -1.0 if q >= 0.0 else 0.0  # into the matrix, or out of it
        p = -1  # a place at a kink that is taken
        for _ in range(len(shares)):
            if sign != 0.0:
                w = changes[count]
                if count > 0 or key != own:
                    solved_for(start, room, key, w)
                if count > 0:
                    for c in range(count):
                        shares[c] = changes[c, L] * changes[c, key]
                    margins(L, changes, shares[:count], length)
                    for r in range(L):
                        w[r] -= length[r]
                along = 0.0  # the row of the term that is left out, times w
                if own >= 0:
                    along = w[own]
                else:
                    for j in range(d):
                        along += gone.rows[k, j] * w[m + j]
                pivot = w[key] if key >= 0 else along
                if q > 0.0:
                    pivot += sign * q
                least = q if q > 0.0 else start.squares[term]
                if key >= m + d:
                    slots[key - m - d] = -1
                    low[key] = -np.inf
                    high[key] = np.inf
                elif p >= 0:
                    w[m + d + p] = -1.0
                if not sign * pivot > EXACT * least:
                    break
                w[L] = 1.0 / pivot
                along *= gone.slopes[k] * w[L]
                for r in range(L):
                    speed[r] -= along * w[r]
                count += 1
            # The lengths first, by themselves: a loop without branches, four at a time.
            for i in range(L):
                rate = speed[i]
                first = low[i]
                last = high[i]
                length[i] = ((last if rate > 0.0 else first) - now[i]) / rate
            size = left
            i = -1
            for j in range(L):
                if length[j] < size and speed[j] * speed[j] > (
                    still * start.squares[j] if j < m else 0.0
                ):
                    size = length[j]
                    i = j
            size = size if size > 0.0 else 0.0
            for j in range(L):
                now[j] += size * speed[j]
            left -= size
            if i < 0:
                break
            # One term changes its piece: for the next one up or down.
            up = speed[i] > 0.0
            key = i
            if i >= m + d:
                i = slots[i - m - d]
            term = i
            c = piece[i] + (1 if up else -1)
            level = table[LEVEL + piece[i] // 2, i]
            piece[i] = c
            q = curve[i]
            sign = 1.0 if c % 2 == 1 else -1.0
            low[i] = table[KNOT + c, i]
            high[i] = table[KNOT + c + 1, i]
            p = -1
            if sign > 0.0 and q == 0.0:
                p = 0
                while p < S - 1 and slots[p] >= 0:
                    p += 1
                if slots[p] >= 0:
                    break
                slots[p] = i
                at[d + p] = level
                low[m + d + p] = table[LEVEL + c // 2, i]
                high[m + d + p] = table[LEVEL + c // 2 + 1, i]
                low[i] = -np.inf
                high[i] = np.inf
        for i in range(m):
            theta[k, i] = table[LEVEL + piece[i] // 2, i]
        for j in range(X.shape[1]):
            X[k, j] = now[begin + j]
        for j in range(S):
            if slots[j] >= 0:
                theta[k, slots[j]] = at[d + j]
        if own >= 0:
            theta[k, own] = 0.0


def ends_of_paths(start: RefitStart, f: LossTerms, gone: Gone) -> tuple[Array, Array]:
    """The optimum without each of some terms, (K, d), and the theta of the terms near, (K, m).

    Of a kernel their margins in the place of the first. `f` are the losses of the terms near.
    """
    K, (d, m) = len(gone.own), start.A.shape
    X, theta = np.empty((K, d or m)), np.empty((K, m))
    follow(start, gone, Room.of(start), X, theta)
    bent, here = np.flatnonzero(f.q > 0.0), np.flatnonzero(gone.own >= 0)
    if len(bent):
        margins = X @ start.A[:, bent] if d else X[:, bent]
        theta[:, bent] = f.take(bent).slope(margins)
        theta[here, gone.own[here]] = 0.0
    return X, theta


PATHS = CompileClock(3.0)
"""Of `follow`, against any other refits. Measured: 2 to 3 CPU seconds."""


def paths_at_hand(imports: bool) -> bool:
    """Whether nobody need wait for a compiler, nor for numba unless it `imports`, or has waited."""
    return PATHS.due or ((imports or not not_imported()) and at_hand(follow))


def at_once(problem: Problem) -> int:
    """How many refits of `problem` make a block."""
    d = problem.d
    return min(max(AT_ONCE // (4 * d * d + 5 * max(NEAR * d, FEWEST)), FEW), MANY)


def in_blocks(problem: Problem) -> bool:
    """Whether refits of `problem` begin in blocks, along paths or under any weightings."""
    return paths_at_hand(True) or together(problem)


class Optimum(NamedTuple):
    """The optimum of all terms up to rounding, and the pieces that they are on there.

    Attributes
    ----------
    x : array, shape (d,)
    theta, margins : array, shape (n,)
    kind : array of int8, shape (n,)
    edges : array of int, shape (E,)
        The terms at a kink.
    inverse : array, shape (d + E, d + E)
        Of the module's matrix.
    rows : array, shape (n, d)
        The data; of a kernel none.
    """

    x: Array
    theta: Array
    margins: Array
    kind: NDArray[np.int8]
    edges: Index
    inverse: Array
    rows: Array


def optimum(solution: Solution) -> Optimum | None:
    """The optimum on the pieces that the terms of `solution` are on; None if it is not there."""
    return next((at for share in AT_END if (at := _optimum(solution, share)) is not None), None)


class Snapped(NamedTuple):
    """Slopes near an optimum, at the ends of their box where they seem to be meant so.

    Attributes
    ----------
    theta : array, shape (n,)
    low, high : array, shape (n,)
        The ends of the piece of its conjugate that each is on.
    ends : array, shape (n,)
        Where on a kink or a parabola margin t belongs to slope theta: ``t = ends + q theta``.
    kind : array of int8, shape (n,)
    """

    theta: Array
    low: Array
    high: Array
    ends: Array
    kind: NDArray[np.int8]

    @classmethod
    def of(cls, problem: Problem, theta: Array, t: Array, share: float) -> Snapped:
        """Slopes within that share of an end of their box are taken to be there.

        So are those that a proximal step leads there: their margins are off the kink by more than
        the slopes are off the end.
        """
        f = problem.losses
        low, high, side = f.lo, f.hi, np.where(f.lo >= 0.0, 1.0, -1.0)
        if f.ends("e")[1] > 0.0:  # a kink of the conjugate at 0
            low = np.where((f.e > 0.0) & (theta > 0.0), 0.0, low)
            high = np.where((f.e > 0.0) & (theta < 0.0), 0.0, high)
            side = np.where(low >= 0.0, 1.0, -1.0)
        moved = f.proximal_slope(t, theta, float(np.mean(np.square(problem.norms))))
        with np.errstate(invalid="ignore"):
            slack = share * np.minimum(high - low, np.abs(theta) + 1.0)
            theta = np.where((theta - low <= slack) | (moved <= low), low, theta)
            theta = np.where((high - theta <= slack) | (moved >= high), high, theta)
        inside = (theta > low) & (theta < high) & ((theta != 0.0) | (f.e == 0.0))
        kind = np.where(inside, np.where(f.q > 0.0, CURVED, KINK), HELD).astype(np.int8)
        return cls(theta, low, high, f.b + f.e * side, kind)

    def at_a_vertex(self, columns: Array) -> Snapped:
        """Slopes with the same sum of rows, of which those inside their box are independent.

        What depends on others, as where points are there twice, moves against them until one of all
        is at an end; if it is one of the others, the first takes its place. `columns` depend on
        each other as the rows of the terms at a kink do.
        """
        edges = np.flatnonzero(self.kind == KINK)
        if not len(edges):
            return self
        sizes = np.sqrt(np.square(columns).sum(axis=0))
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        # The routine itself: what scipy does around it takes as long as all else here.
        triangle, order, *_ = sla.lapack.dgeqp3(columns / sizes)
        order -= 1
        pivots = np.abs(triangle.diagonal())
        rank = int(np.count_nonzero(pivots > EXACT * pivots[0]))
        if rank == len(edges):
            return self
        # Of the dependent ones what they are made of: column j is the sum of `made` times others.
        made = sla.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        edges, sizes = edges[order], sizes[order]
        ends = np.array([self.low[edges], self.high[edges]]) * sizes
        at, kind, theta = self.theta[edges] * sizes, self.kind.copy(), self.theta.copy()
        of = np.arange(rank)
        for j in range(made.shape[1]):
            some, rates = np.append(of, rank + j), np.append(-made[:, j], 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                lengths = (ends[:, some] - at[some]) / rates
            lengths = np.where(rates != 0.0, lengths, np.inf)
            end, first = np.unravel_index(np.argmin(np.abs(lengths)), lengths.shape)
            if not np.isfinite(lengths[end, first]):
                return self
            at[some] += lengths[end, first] * rates
            term = edges[some[first]]
            kind[term] = HELD
            theta[term] = (self.low, self.high)[end][term]
            if first < rank:
                row = made[first] / made[first, j]
                made -= made[:, j:j + 1] * row
                made[first], of[first] = row, rank + j
        theta[edges[of]] = (at / sizes)[of]
        return self._replace(theta=theta, kind=kind)

    def holds(self, f: LossTerms, t: Array) -> bool:
        """Whether all slopes, those inside their box made anew since, belong to margins `t`."""
        inside = self.kind != HELD
        within = ((self.theta >= self.low) & (self.theta <= self.high))[inside].all()
        return bool(within) and _stay(f, t, self.theta, ~inside)


def _optimum(solution: Solution, share: float) -> Optimum | None:
    """The same of rows, slopes within that share of an end of their box taken to be there."""
    problem, f = solution.problem, solution.problem.losses
    A, d, x = cast(Rows, problem.design).dense(), problem.d, solution.x
    t = A @ x
    snapped = Snapped.of(problem, solution.theta, t, share)
    snapped = snapped.at_a_vertex(A[snapped.kind == KINK].T)
    theta, ends, kind = snapped.theta, snapped.ends, snapped.kind
    edges, curved = np.flatnonzero(kind == KINK), np.flatnonzero(kind == CURVED)
    D = d + len(edges)
    if 2 * d < D:
        return None
    matrix, diagonal = np.zeros((D, D)), problem.quadratic.diagonal
    np.fill_diagonal(matrix[:d, :d], diagonal)
    if len(curved):
        matrix[:d, :d] += problem.design.weighted_gram(curved, 1.0 / f.q[curved])
    matrix[d:, :d] = A[edges]
    matrix[:d, d:] = matrix[d:, :d].T
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return None
    right = np.empty(D)
    for _ in range(SETTLES):
        theta[curved] = (t - ends)[curved] / f.q[curved]
        np.negative(theta @ A + diagonal * x, out=right[:d])
        np.subtract(ends[edges], t[edges], out=right[d:])
        step = inverse @ right
        x = x + step[:d]
        theta[edges] += step[d:]
        t = A @ x
        if float(np.abs(step[:d]).max()) <= SETTLED * float(np.abs(x).max()):
            break
    theta[curved] = (t - ends)[curved] / f.q[curved]
    if not np.isfinite(x).all() or not snapped.holds(f, t):
        return None
    return Optimum(x, np.asarray(theta), t, kind, edges, np.asarray(inverse), A)


def optimum_of_gram(proofs: LeftOutOfGram) -> Optimum | None:
    """The same of a kernel, from the slopes of `proofs`, without coordinates.

    Its `inverse` is ``(G_BB + diag(q))^-1`` over the terms inside their box.
    """
    found = (_optimum_of_gram(proofs, share) for share in AT_END)
    return next((at for at in found if at is not None), None)


def _optimum_of_gram(proofs: LeftOutOfGram, share: float) -> Optimum | None:
    problem, f = proofs.problem, proofs.problem.losses
    snapped = Snapped.of(problem, proofs.theta, proofs.margins, share)
    edges = np.flatnonzero(snapped.kind == KINK)
    if len(edges) > MOST:
        return None
    snapped = snapped.at_a_vertex(proofs.gram(edges, edges))
    theta, kind, base = snapped.theta, snapped.kind, np.flatnonzero(snapped.kind != HELD)
    if len(base) > MOST:
        return None
    gram, q, ends = proofs.gram(base, base), f.q[base], snapped.ends[base]
    try:
        inverse = np.linalg.inv(gram + np.diag(q + RIDGE * gram.diagonal()))
    except np.linalg.LinAlgError:
        return None
    stiff = float(inverse.diagonal().max(initial=0.0))
    if not stiff * float(gram.diagonal().max(initial=0.0)) <= DEPENDENT:
        return None
    moved = np.flatnonzero(theta != proofs.theta)
    t = proofs.margins - proofs.times_gram((theta - proofs.theta)[None, moved], moved)[0]
    for _ in range(SETTLES):
        step = inverse @ (t[base] - ends - q * theta[base])
        theta[base] += step
        t = t - proofs.times_gram(step[None], base)[0]
        largest = float(np.abs(step).max(initial=0.0))
        if largest <= SETTLED * float(np.abs(theta).max(initial=0.0)):
            break
    if not np.isfinite(t).all() or not snapped.holds(f, t):
        return None
    edges, none = np.flatnonzero(kind == KINK), np.empty((0, 0))
    return Optimum(np.empty(0), theta, t, kind, edges, np.asarray(inverse), none)


def _stay(f: LossTerms, t: Array, theta: Array, held: NDArray[np.bool_]) -> bool:
    """Whether the margins of all terms that are `held` are on the linear piece of their slope."""
    below = f.b + f.e * np.where(theta <= 0.0, -1.0, 1.0) + f.q * theta
    above = f.b + f.e * np.where(theta >= 0.0, 1.0, -1.0) + f.q * theta
    slack = 1e-9 * (1.0 + np.abs(t))
    fits = ((theta <= f.lo) | (t >= below - slack)) & ((theta >= f.hi) | (t <= above + slack))
    return bool(fits[held].all())


class ByWeights:
    """Refits without single terms by the solver of any weightings, made when it is needed."""

    rounds = 1

    def __init__(self, solution: Solution, tol: float) -> None:
        self.solution, self.tol, self.near = solution, tol, np.zeros(0, dtype=np.intp)

    @cached_property
    def solver(self) -> Replicates:
        """Of the solution."""
        return Replicates(self.solution, self.tol)

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None while it is not compiled."""
        problem = self.solution.problem
        shift = _shift(problem, len(index))
        if not together(problem):
            return None
        with PATHS.rent():
            X, gap, ok = self.solver.solve(LeftOut(index, problem.n), shift)
        rows, relative = problem.design.dense(index), np.where(ok, 0.0, np.inf)
        return _proofs(problem, index, rows, X, gap, relative, self.tol, shift)


class AlongPaths:
    """Refits without single terms along the paths of their slopes; a `Solver`.

    Parameters
    ----------
    problem : Problem
    at : Optimum
    tol : float
        Relative gap of each answer.
    many : bool
        Whether it pays to measure distances by the curvature of the objective, not Euclidean.
    """

    rounds = ROUNDS

    def __init__(self, problem: Problem, at: Optimum, tol: float, many: bool = True) -> None:
        self.problem, self.at, self.tol = problem, at, tol
        problem.compute_row_norms()
        curvature = None
        if many:
            away = problem.losses.kink_distance(at.margins)
            curvature = curvature_of_the_sum(problem, at.margins, away)
        self.around = Around.at(problem, at.x, at.theta, curvature, at.rows)
        self.nearest = by_room(self.around)
        nth = min(max(NEAR * problem.d, FEWEST), problem.n - 1)
        self.least = max(float(self.around.room[self.nearest[nth]]), 0.0)
        self.near = np.flatnonzero(~stays_around(self.around, self.least))
        if not len(self.near):  # as where all rows are 0
            self.near = self.nearest[:1]
        self.start = self._start(self.near)

    def _start(self, near: Index) -> tuple[RefitStart, LeftOutOfRows]:
        """Where the paths among the terms `near` begin, and what certifies their ends."""
        start = RefitStart.of(self.problem, self.around, self.at, near)
        return start, LeftOutOfRows(self.problem, self.around, near, self.nearest)

    def without(self, index: Index, near: Index) -> LeftOutProofs:
        """See `Solver`; what has `moved` is near a kink within the reach of the refuted answers."""
        problem, around, shift = self.problem, self.around, _shift(self.problem, len(index))
        start, certificates = self.start if near is self.near else self._start(near)
        m, own = len(near), np.searchsorted(near, index)
        own = np.where((own < m) & (near[np.minimum(own, m - 1)] == index), own, -1)
        rows = around.rows[index]
        slopes, rates = around.slopes[index], around.rates[index]
        gone = Gone(rows, own, slopes, rates, start.solutions_for(rows))
        X, theta = ends_of_paths(start, problem.losses.take(near), gone)
        gap, relative, away = certificates.certify(index, own, X, theta, shift)
        proofs = _proofs(problem, index, rows, X, gap, relative, self.tol, shift)
        if proofs.ok.all():
            return proofs
        reach = max(WIDER * float(away[~proofs.ok].max()), self.least)
        # Among too few terms a path may run off by far, and not all are near that it comes past.
        reach = min(reach, float(around.room[self.nearest[min(MORE * m, problem.n) - 1]]))
        return proofs._replace(moved=np.flatnonzero(~stays_around(around, reach)))


def _shift(problem: Problem, count: int) -> Array | None:
    """Room for how far the unpenalised coordinate of each answer may be off, if there is one."""
    return np.zeros(count) if problem.quadratic.free.any() else None


def _proofs(
    problem: Problem, index: Index, rows: Array, X: Array, gap: Array, relative: Array, tol: float,
    shift: Array | None,
) -> LeftOutProofs:
    """Where the margins of the terms at `index` are, whose rows these are, by answers without."""
    d, margins = problem.d, np.einsum("kj,kj->k", rows, X)
    n_i = problem.norms[index] * (1.0 + gamma(d + 8))
    error = n_i * np.sqrt(2.0 * up(1.0) * gap) * up(1.0, 16)
    if shift is not None:
        error = error + up(1.0) * np.abs(problem.free_columns[index, 0]) * shift
    rounding = up(1.0) * gamma(d + 8) * np.linalg.norm(X, axis=1)
    error = error + rounding * problem.sizes[index]
    relative = np.where(np.isfinite(error), relative, np.inf)
    none = np.zeros(0, dtype=np.intp)
    return LeftOutProofs(margins, error, gap, relative, relative <= tol, none, X)


def row_solvers(
    solution: Solution, tol: float, count: int = SEVERAL
) -> list[ByWeights | AlongPaths]:
    """The solvers of `count` refits of rows with few coordinates, to `tol`, one after the other.

    Where the pieces of the solution are not those of the optimum there are no paths; for what these
    leave uncertified, too, refits go through `cvxscreen.data_changes.bootstrap.Replicates`, if that
    is compiled or has been waited for.
    """
    at: Optimum | None = None
    if paths_at_hand(True):
        finer = partial(refit, solution, solution.problem, solution.theta, FINER, "certified")
        at = optimum(solution) or optimum(finer())
    if at is None:
        return [ByWeights(solution, tol)]
    exact = replace(solution, x=at.x, theta=at.theta)
    return [AlongPaths(solution.problem, at, tol, count >= SEVERAL), ByWeights(exact, tol)]


# -- blocks, and refits of a kernel ---------------------------------------------------------------

BALL = 1e-8
"""Relative gap of refits in blocks, where the tolerance is not smaller still: Newton's last steps
cost little, and the interval narrows with the root."""

KERNEL_BLOCK = 32
"""Refits of a kernel that are made together: each looks at the terms of all of a block."""

NEAREST = 150
"""Terms, those inside their box apart, that a first program looks at. Measured on satimage, 6,435
points, 61 inside their box: 80 to 250 take as long, with fewer there are more second programs."""

FURTHER = 500
"""The same of many paths, to which more terms cost little: with 150 of satimage's a tenth of the
paths at C = 10 and a fortieth at C = 1 are not certified, with 550 a fiftieth and none. Of few
paths the matrix that all begin from costs more than programs for what they leave."""

TURN = 60
"""Coordinate steps before a Newton step, as a program begins near its answer: 30 to 120 take as
long, the thousands of a start from anywhere three times as long."""

RIDGE = 1e-12
"""Added to the diagonal of the terms inside their box, relative: points may be there twice."""

STEPS = 12
"""Steps of `faces` at most."""

SETTLE = 0.7
"""Share of a block's answers that have to settle in so many steps, for the next to take them."""

MOST = 2000
"""Most terms of a program, and most rows that are taken by their Gram matrix; beyond, and for what
is not certified, refits go through `solve`."""

COORDINATES = 64
"""Most features of points that are taken as rows though they have a linear kernel. Beside an
intercept there are no bounds: there refits of the kernel go one by one. Measured, 600 and 1,500
points, hinges, absolute and Huber losses, C = 0.01 and 1: with 64 0.8 to 16 times as quick, in the
geometric mean 2.3; with 128 0.3 to 3 times."""

KERNEL_ROUNDS = 4
"""How often terms on another piece than was thought may join."""

SHARE = 0.1
"""Of the tolerance, for what the program's violation may add to the gap."""


class Solver(Protocol):
    """What finds the optima of one problem without single terms.

    Attributes
    ----------
    near : array of int
        The terms that it looks at first.
    rounds : int
        How often it may be asked, each time with those that moved beside them.
    """

    near: Index
    rounds: int

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """Certified answers without each of the terms at `index`; None where it takes none.

        It looks at the terms `near`, and at those at `index`; those that `moved` are to join.
        """


def left_out_of(
    solvers: Sequence[Solver], index: Index, enough: float = 0.0, answers: Array | None = None
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The margin of each term of `index` at the optimum without it.

    Parameters
    ----------
    solvers : sequence of Solver
    index : array of int, shape (K,)
    enough : float
        Relative gap that will do where no solver comes to its own tolerance, as where the rounding
        of large slopes is more than that.
    answers : array, shape (K, d), optional
        Filled with the answers, of rows.

    Returns
    -------
    margins, error : arrays, shape (K,)
        The optimum's is within `error`, proven.
    ok : mask, shape (K,)
        Which answers are certified to the tolerance.
    """
    K = len(index)
    margins, ok = np.zeros(K), np.zeros(K, dtype=bool)
    error, relative = np.full((2, K), np.inf)
    for solver in solvers:
        near = solver.near
        for _ in range(solver.rounds):
            waiting = np.flatnonzero(~ok)
            proofs = solver.without(index[waiting], near) if len(waiting) else None
            if proofs is None:
                break
            better = np.flatnonzero(proofs.relative_gap < relative[waiting])
            now = waiting[better]
            margins[now], error[now] = proofs.margins[better], proofs.error[better]
            relative[now], ok[now] = proofs.relative_gap[better], proofs.ok[better]
            if answers is not None and proofs.answers is not None:
                answers[now] = proofs.answers[better]
            more = np.union1d(near, proofs.moved) if len(proofs.moved) else near
            if len(more) == len(near):
                break
            near = more
    return margins, error, ok | (relative <= enough)


def margins_at_the_optimum(solution: Solution) -> tuple[Array, Array]:
    """Intervals of all margins at the optimum of all terms: those of the midpoint ball."""
    return midpoint_ball(solution.problem, solution.point()).intervals()


def refits_of_terms(
    solution: Solution, terms: Index, tol: float, mode: str, n_jobs: int
) -> Iterator[Array]:
    """The refits without each of `terms`, as they are finished, some at a time.

    Arrays of shape (K, 4): the position of a term, the interval of its left-out margin, its value.
    Terms that move the optimum about as far are taken together: all of a block look at the terms
    that any of its answers may have moved.
    """
    problem, gap = solution.problem, min(tol, BALL)
    plain = problem.side is None and problem.penalty is None
    kernel, blocks = suits(problem), plain and compiled_path(problem, "auto", many=True)
    wide = plain and not blocks and of_rows_with_many_features(problem)
    in_vain: list[bool] = []
    size = KERNEL_BLOCK if kernel or wide else at_once(problem)

    @cache
    def solvers(paths: bool) -> Sequence[Solver]:  # anew where these have been waited for
        if kernel or wide:
            rows = over_their_gram(problem) if wide else problem
            return gram_solvers(rows, solution, gap, terms)
        return row_solvers(solution, gap, len(terms))

    terms = terms[np.argsort((np.abs(solution.theta) * problem.norms)[terms], kind="stable")]

    def one(k: int) -> Array:
        return _refitted(solution, terms[k:k + 1], tol, mode)

    def block(start: int) -> Array:
        return several(terms[start:start + size])

    def several(index: Index) -> Array:
        margins, error, ok = left_out_of(
            [] if in_vain else solvers(paths_at_hand(not (kernel or wide))), index, tol
        )
        if wide and not ok.any():  # long rows round more than is asked for
            in_vain.append(True)
        found = np.column_stack((index.astype(float), *outward(margins, error), margins))
        left = np.flatnonzero(~ok)
        waits = len(left) > 1 and not together(problem)  # asking may compile
        for done, k in enumerate(left, 1):
            # The first may load what it needs; the second tells what the others would cost.
            with waiting().rent(len(left) - done if done > 1 else 0):
                found[k] = _refitted(solution, index[k:k + 1], tol, mode)
            if waits and together(problem):
                found[left[done:]] = several(index[left[done:]])
                break
        return found

    if plain and kernel:
        yield from mapped(block, range(0, len(terms), size), n_jobs)
        return
    own = (lambda _: PROGRAMS.loaded_or_due, PROGRAMS) if wide else (in_blocks, PATHS)
    yield from in_order(
        problem, len(terms), one, block if blocks or wide else None, n_jobs, size=size, own=own
    )


def moves_without(solution: Solution, terms: Index, tol: float) -> Array:
    """How far the optimum without each of `terms` is from that of all, in the norm of M.

    NaN where no block of refits is certified to `tol`, or the problem takes none. Paths begin from
    the optimum of all up to rounding, and are measured from there.
    """
    problem, out = solution.problem, np.full(len(terms), np.nan)
    plain = problem.side is None and problem.penalty is None
    if not (len(terms) and plain and compiled_path(problem, "auto", many=True)):
        return out
    if not in_blocks(problem):
        return out
    solvers, size = row_solvers(solution, min(tol, BALL), len(terms)), at_once(problem)
    x = next((solver.at.x for solver in solvers if isinstance(solver, AlongPaths)), solution.x)
    for start in range(0, len(terms), size):
        index = terms[start:start + size]
        X = np.empty((len(index), problem.d))
        ok = left_out_of(solvers, index, tol, X)[2]
        moved = np.square(X - x) @ problem.quadratic.diagonal
        out[start:start + size] = np.where(ok, np.sqrt(moved), np.nan)
    return out


class Groups:
    """Terms that leave together; a term that is in several leaves with each of them.

    Parameters
    ----------
    labels : array of int, shape (n,) or (n, k)
        The groups of each term, numbered from 0. Every number is an entry: it asks for the margin
        of its term at the optimum without its group. Entries are counted row by row.

    Attributes
    ----------
    labels, of_entries : array of int, shape (n k,)
        Entry by entry: its group, and its term.
    entries : list of arrays of int
        Of each group.
    terms : list of arrays of int
        Of each group, each once.
    places : list of arrays of int
        Of each entry of a group, where its term is among these.
    """

    def __init__(self, labels: Index) -> None:
        self.labels, width = labels.ravel(), labels[0].size
        order, ends = np.argsort(self.labels, kind="stable"), np.cumsum(np.bincount(self.labels))
        self.entries = np.split(order, ends[:-1])
        self.of_entries = np.arange(len(self.labels)) // width
        members = [
            np.unique(self.of_entries[own], return_inverse=True) for own in self.entries
        ]
        self.terms = [terms for terms, _ in members]
        self.places = [places for _, places in members]


def refits_of_groups(
    solution: Solution, groups: Groups, entries: Index, tol: float, mode: str, n_jobs: int,
) -> Iterator[Array]:
    """As `refits_of_terms`, of the groups of all these `entries`, one group after another.

    The first column holds all entries of the group.
    """
    def one(group: int) -> Array:
        found = _refitted(solution, groups.terms[group], tol, mode)[groups.places[group]]
        found[:, 0] = groups.entries[group]
        return found

    yield from mapped(one, np.unique(groups.labels[entries]), n_jobs)


def _refitted(solution: Solution, terms: Index, tol: float, mode: str) -> Array:
    """As `refits_of_terms`, of `terms` at the optimum without all of them, solved for.

    They stay as rows without a loss, so that their margins are bounded with the others; those of a
    metric leave, and the optimum is within ``sqrt(2 gap)`` of the answer, in the norm of M.
    """
    problem, others = solution.problem, np.ones(solution.problem.n)
    others[terms] = 0.0
    if problem.penalty is None or problem.penalty.name == "L1":
        found = refit(
            solution, weighted(problem, others), others * solution.theta, tol, mode
        )
        below, above = (end[terms] for end in margins_at_the_optimum(found))
        value = found.point().margins[terms]
    else:
        rest, rows = np.flatnonzero(others), problem.design.take_rows(terms)
        found = refit(solution, taken(problem, rest), solution.theta[rest], tol, mode)
        value = rows.forward(found.x)
        reach = np.sqrt(2.0 * up(found.certificate.gap)) * problem.norms[terms]
        reach = up(1.0, 16) * reach * (1.0 + gamma(problem.d + 8))
        error = rows.forward_error(found.x, problem.sizes[terms])
        below, above = outward(value, reach + up(1.0) * error)
    return np.column_stack((terms.astype(float), below, above, value))


def suits(problem: Problem) -> bool:
    """Whether `Programs` take `problem`: a kernel, a point for each term, no intercept."""
    design = problem.design
    return (
        isinstance(design, Gram) and not design.intercept and not problem.linear.any()
        and len(np.unique(design.index)) == len(design.index)
    )


def of_rows_with_many_features(problem: Problem) -> bool:
    """Whether `Programs` take `problem` over the Gram matrix of its rows.

    Where no path leads through few coordinates, and M is the identity; a label is a sign. Of sparse
    rows one refit takes a few milliseconds, less than its program.
    """
    design = problem.design
    return (
        isinstance(design, Rows) and not design.sparse and problem.n <= MOST
        and design.extra.shape[1] == 0
        and (design.scale is None or bool((np.abs(design.scale) == 1.0).all()))
        and problem.quadratic.matrix is None and bool((problem.quadratic.diagonal == 1.0).all())
        and not problem.linear.any() and problem.drift == problem.imbalance == 0.0
        and not problem.losses.any_hard and not compiled_path(problem, "auto", many=True)
    )


def over_their_gram(problem: Problem) -> Problem:
    """`problem` over the Gram matrix of its rows, whose margins and optimal values are the same."""
    design = cast(Rows, problem.design)
    points = design.matrix.astype(np.float64, copy=False)
    kernel = Kernel(Polynomial(points))
    return Problem(
        Gram(kernel, design.scale), problem.losses, GramForm(Gram(kernel)),
        np.zeros(kernel.size), problem.constant, kind="kernel",
    )


def over_its_rows(problem: Problem) -> Problem | None:
    """The reverse, for a linear kernel of points with few features; else None."""
    design = problem.design
    if not isinstance(design, Gram) or problem.linear.any():
        return None
    function = design.kernel.function
    if not isinstance(function, Polynomial) or sp.issparse(function.points):
        return None
    if (function.gamma, function.coef0, function.degree) != (1.0, 0.0, 1):
        return None
    points = function.points[design.index]
    ones = np.ones((problem.n, 1)) if design.intercept else None
    rows = Rows(points, design.sign, ones, known=True)
    diagonal = np.ones(rows.shape[1])
    diagonal[points.shape[1]:] = 0.0
    over = Problem(
        rows, problem.losses, Quadratic(diagonal), np.zeros(rows.shape[1]), problem.constant,
    )
    few = design.intercept or over.d <= COORDINATES
    return over if few and compiled_path(over, "auto", many=True) else None


PROGRAMS = CompileClock(2.0, descend_singles)
"""Of `Programs` for rows, against refits one after another. Measured: numba 0.4 CPU seconds, the
loops of programs 1 to 1.5."""


class Programs:
    """Refits of a kernel problem without single terms by small quadratic programs; a `Solver`.

    Parameters
    ----------
    problem : Problem
        Which `suits`.
    solution : Solution
        Of all terms, of the same problem or of that over rows.
    tol : float
        Relative gap of each answer.
    """

    rounds = KERNEL_ROUNDS

    def __init__(self, problem: Problem, solution: Solution, tol: float) -> None:
        theta = solution.theta
        self.problem, self.theta = problem, theta
        self.proofs = LeftOutOfGram(problem, theta, tol)
        losses, t = problem.losses, self.proofs.margins
        away = losses.kink_distance(t)
        # The slope of a term inside its box changes with any other's.
        between = (theta > losses.lo) & (theta < losses.hi)
        self.inside = between & ((theta != 0.0) | (losses.e == 0.0))
        away[self.inside] = 0.0
        self._order = np.argsort(away, kind="stable")
        self.near = self.nearest(NEAREST)
        span = np.minimum(losses.hi - losses.lo, 2.0 * float(np.abs(theta).max(initial=0.0)))
        self.steps = STEPS
        self.eps = SHARE * tol * abs(solution.value) / max(float(span[self.near].sum()), 1e-300)

    def nearest(self, count: int) -> Index:
        """So many terms beside those inside their box."""
        return np.sort(self._order[:int(self.inside.sum()) + count])

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None where too many terms are near."""
        rows = np.union1d(near, index)
        if len(rows) > MOST:
            return None
        with PATHS.rent():
            slopes = self._answers(self.proofs.gram(rows, rows), rows, index)
        return self.proofs.certify(index, rows, slopes)

    def _answers(self, gram: Array, rows: Index, index: Index) -> Array:
        """The best slopes at `rows` without each term of `index`, all other terms keeping theirs.

        Where the steps of `faces` do not settle, programs are solved from where the first leads.
        Where many do not, as beside tubes or points that are there often, later blocks take one.
        """
        f, theta, own = self.problem.losses.take(rows), self.theta[rows], rows.searchsorted(index)
        margins = self.proofs.margins[rows]
        found, settled = faces(gram, f, theta, margins, self.inside[rows], own, self.steps)
        if settled.mean() < SETTLE:
            self.steps = 1
        for k in np.flatnonzero(~settled):
            lo, hi, slopes = f.lo.copy(), f.hi.copy(), found[k]
            lo[own[k]] = hi[own[k]] = 0.0
            gradient = f.b - margins + (slopes - theta) @ gram
            program = BoxQp(gram, gradient, slopes, lo, hi, f.e, f.q, balanced=False)
            program.solve(self.eps, turn=TURN)
        return found


AGAIN = 3
"""Paths of a kernel that are followed once more, among those that moved, too, at least: the matrix
that they begin from takes 6 ms of 400 points and 30 of 850, a program 4 to 12. Of points that are
there twice with either label half of a block are."""


class AlongPathsOfGram:
    """Refits of a kernel problem without single terms along the paths of their slopes; a `Solver`.

    Parameters
    ----------
    programs : Programs
        Of the slopes of the optimum.
    at : Optimum
    terms : array of int
        All that are to be refitted: paths among them and those near share one beginning.
    """

    rounds = 2

    def __init__(self, programs: Programs, at: Optimum, terms: Index) -> None:
        self.proofs, self.at = programs.proofs, at
        near = programs.nearest(min(NEAREST + len(terms), FURTHER))
        near = np.union1d(near, np.flatnonzero(at.kind != HELD))
        every = np.union1d(near, terms)
        self.near = every if len(every) <= MOST else near
        self.start = RefitStart.of_gram(self.proofs, at, self.near)

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None where too many terms are near, or too few paths go on."""
        rows = np.union1d(near, index)
        if len(rows) > MOST or (near is not self.near and len(index) < AGAIN):
            return None
        same = len(rows) == len(self.near) and near is self.near
        start = self.start if same else RefitStart.of_gram(self.proofs, self.at, rows)
        own, slopes = rows.searchsorted(index), self.at.theta[index]
        gone = Gone(np.empty((len(index), 0)), own, slopes, np.zeros(len(index)), start.known[own])
        _, theta = ends_of_paths(start, self.proofs.problem.losses.take(rows), gone)
        return self.proofs.certify(index, rows, theta)


def gram_solvers(
    problem: Problem, solution: Solution, tol: float, terms: Index
) -> Sequence[Programs | AlongPathsOfGram]:
    """The solvers of refits of a kernel without `terms`, to `tol`, one after the other.

    There are paths where nobody need wait for their loop, nor for numba to be imported for it.
    """
    programs = Programs(problem, solution, tol)
    at = optimum_of_gram(programs.proofs) if paths_at_hand(False) else None
    if at is None:
        return [programs]
    exact = Programs(problem, replace(solution, theta=at.theta), tol)
    return [AlongPathsOfGram(exact, at, terms), exact]


def faces(
    gram: Array, f: LossTerms, theta: Array, margins: Array, inside: NDArray[np.bool_], own: Index,
    most: int,
) -> tuple[Array, NDArray[np.bool_]]:
    """Slopes at the optimum without each of the terms `own`, and which of the K answers they are.

    Semismooth Newton steps of all programs together: terms are held at an end of their box or free,
    as a proximal step of each tells, and those that are free are solved for until none changes
    (Hintermueller, Ito and Kunisch 2003). What is free differs by a few terms from those `inside`
    their box at `theta`, where the inverse is known: each program is a system of these few.
    """
    K, answers, base = len(own), np.arange(len(own)), np.flatnonzero(inside)
    matrix = gram[np.ix_(base, base)] + np.diag(f.q[base] + RIDGE * gram.diagonal()[base])
    free, held = np.tile(inside, (K, 1)), np.tile(theta, (K, 1))
    free[answers, own], held[answers, own] = False, 0.0
    weight = float(np.median(gram.diagonal()))
    settled, first_at = np.zeros(K, dtype=bool), held
    try:
        inverse = np.linalg.inv(matrix)
        for step in range(most):
            other = free != inside
            few = np.flatnonzero(other.any(axis=0))
            leave, other, set_to = inside[few], other[:, few], (held - theta)[:, few]
            # Those that become free enter with their row, those that leave with a multiplier.
            rows = gram[:, few]
            U = np.where(leave, base[:, None] == few, rows[base])
            W = np.where(leave | leave[:, None], 0.0, rows[few]) + np.diag(~leave * f.q[few])
            RU, change = inverse @ U, np.where(free | inside, 0.0, held - theta)
            ends = f.b + f.e * np.sign(held) + f.q * theta
            residual = margins - ends - change @ gram
            first = residual[:, base] @ inverse
            right = np.where(leave, set_to, residual[:, few]) - first @ U
            # Each program has its own few of them, put in front.
            order = np.argsort(~other, axis=1, kind="stable")[:, :other.sum(axis=1).max()]
            there, eye = np.take_along_axis(other, order, axis=1), np.eye(order.shape[1])
            systems = (W - U.T @ RU)[order[:, :, None], order[:, None]]
            systems = np.where(there[:, :, None] & there[:, None], systems, eye)
            right = np.where(there, np.take_along_axis(right, order, axis=1), 0.0)
            steps = np.zeros(other.shape)
            np.put_along_axis(steps, order, np.linalg.solve(systems, right[:, :, None])[..., 0], 1)
            change[:, base] = first - steps @ RU.T
            change[:, few] = np.where(other, np.where(leave, set_to, steps), change[:, few])
            t, at = margins - change @ gram, theta + change
            if step == 0:
                first_at = np.clip(at, f.lo, f.hi)
            slopes = f.proximal_slope(t, at, weight)
            slopes[answers, own] = 0.0
            moves = (slopes > f.lo) & (slopes < f.hi) & ((slopes != 0.0) | (f.e == 0.0))
            moves[answers, own] = False
            settled = ((moves == free) & (free | (slopes == held))).all(axis=1)
            free, held = moves, slopes
            if settled.all():
                break
    except np.linalg.LinAlgError:
        pass
    settled &= np.isfinite(held).all(axis=1)
    return np.where(settled[:, None], held, np.nan_to_num(first_at)), settled
