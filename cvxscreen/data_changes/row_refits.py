"""Many refits of rows with few coordinates, each without one term: the path of its slope to 0.

As the slope of one term goes from what it is to 0, the optimum of all others moves along a line
until a term changes its piece: a slope inside its box meets an end, or a margin meets a kink. On
each stretch the terms at a kink (E) keep their margins and those on a parabola (C) follow theirs

::

    [ M + sum_C a a' / q   A_E' ] [ dx       ]   [ a_k theta_k ]
    [ A_E                  0    ] [ dtheta_E ] = [ 0           ]

An inverse of this matrix is kept: a piece that changes is a rank-one change of it, or one row and
column more or fewer. Without one term few pieces change, so a refit costs about as much as copying
the inverse and one pass over the terms that are near a kink. Nothing is proven by it: a block of
answers is certified on all terms (`cvxscreen.certificates.many.certify_weightings`).

For parametric quadratic programs this is the active-set path of Best (1996), for the weight of
single samples of a support vector machine that of Cauwenberghs and Poggio (2001), by whom the dual
matrix over E is kept; here it is that of the coordinates as well, so that rows with fewer
coordinates than terms at a kink, losses with parabolas and an intercept need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen._support.rounding import gamma, up
from cvxscreen.certificates.many import LeftOut, certify_weightings, stays_around
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import Replicates, together
from cvxscreen.data_changes.reweight import refit
from cvxscreen.solvers.compiled_path.loops import margins
from cvxscreen.solvers.compiled_path.segments import CompileClock, at_hand
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

HELD, KINK, CURVED, GONE = 0, 1, 2, 3
"""A term at the slope of a linear piece, at a kink, on a parabola, left out."""

NEAR, FEWEST = 6, 80
"""Terms near a kink that a path looks at first, as a multiple of the coordinates, and at least.

ijcnn1 (22 coordinates), letter-like data (16): of 10 nobody needs more, with 4 a tenth has to be
followed again among more, and all takes a fifth longer; cadata (8): 80 are enough, 48 take twice
as long."""

WIDER = 1.25
"""What the next answers may be further from the solution than those that were refuted."""

ROUNDS = 3
"""How often the terms near a kink are chosen, each time around the last answers."""

EVENTS = 200
"""Changes of a piece after which a path is given up."""

AT_END = 1e-10
"""Share of its box by which a slope may be off an end that it is taken to be at."""

FINER = 1e-12
"""Relative gap to which a solution is solved again whose pieces are not the optimum's."""

SETTLES = 3
"""Newton steps from the solution to the optimum on its pieces."""

EXACT = 1e-10
"""Relative size of a pivot below which a row depends on those at a kink."""


# Rows of the tables below: a record of few arrays is compiled in half of the time.
B, E_OF, Q, LO, HI = range(5)
T, BELOW, ABOVE, THETA, DT, LENGTH = 0, 1, 2, 3, 3, 4
LEAST, MOST = range(2)
STEP, RIGHT, COLUMN = range(3)


class Pieces(NamedTuple):
    """Terms near a kink, and where their path begins.

    Attributes
    ----------
    A, rows : array, shape (d, m) and (m, d)
        Their rows, as columns and as rows.
    loss : array, shape (5, m)
        b, e, q, lo and hi of their losses.
    start : array, shape (4, m)
        Their margins, those at which they leave their piece (infinite at a kink), and theta.
    kind : array of int8, shape (m,)
    place : array of int64, shape (m,)
        Of a term at a kink, its number among those.
    edges : array of int64, shape (E,)
        The terms at a kink.
    ends : array, shape (2, E)
        The slopes at which they leave it.
    inverse : array, shape (d + E, d + E)
        Of the module's matrix.
    x, pull, diagonal : array, shape (d,)
        The optimum, ``A' theta`` over all terms, and M.
    far : array, shape (d, d)
        How `pull` changes with x by the terms on parabolas that are not here.
    """

    A: Array
    rows: Array
    loss: Array
    start: Array
    kind: NDArray[np.int8]
    place: NDArray[np.int64]
    edges: NDArray[np.int64]
    ends: Array
    inverse: Array
    x: Array
    pull: Array
    diagonal: Array
    far: Array


class Room(NamedTuple):
    """What a path changes as it is followed; of the inverse the first d + E rows are in use.

    As in `Pieces`; `now` also has the rates of the margins, and how far each may go, `work` what
    the matrix is multiplied with.
    """

    now: Array
    kind: NDArray[np.int8]
    place: NDArray[np.int64]
    edges: NDArray[np.int64]
    ends: Array
    inverse: Array
    work: Array

    @classmethod
    def of_size(cls, d: int, m: int) -> Room:
        """For m terms of d coordinates, of which d + 1 at most are at a kink at once."""
        D = 2 * d + 1
        kind, place, edges = np.empty(m, np.int8), np.empty(m, np.int64), np.empty(d + 1, np.int64)
        return cls(
            np.empty((5, m)), kind, place, edges, np.empty((2, d + 1)), np.empty((D, D)),
            np.empty((3, D)),
        )


@compiled(allocates=False, alone=False)
def knot(loss: Any, i: Any, s: Any, way: Any) -> Any:
    """The margin at which the slope of term i moves from s to the side `way`; infinite if never."""
    if (s >= loss[HI, i]) if way > 0.0 else (s <= loss[LO, i]):
        return way * np.inf
    side = way if s == 0.0 else np.sign(s)
    return loss[B, i] + loss[E_OF, i] * side + loss[Q, i] * s


@compiled(allocates=False, alone=False)
def span(loss: Any, i: Any, s: Any, way: Any) -> Any:
    """Between which slopes term i moves, from s to the side `way`."""
    low, high = loss[LO, i], loss[HI, i]
    if loss[E_OF, i] > 0.0:
        if s > 0.0 or (s == 0.0 and way > 0.0):
            low = 0.0
        else:
            high = 0.0
    return low, high


@compiled(allocates=False, alone=False)
def kink(loss: Any, i: Any, low: Any) -> Any:
    """The margin from which slopes grow that are no less than `low`, or from `low` <= 0 fall."""
    return loss[B, i] + (loss[E_OF, i] if low >= 0.0 else -loss[E_OF, i])


@compiled(fastmath=SUMS, allocates=False, alone=False)
def times(N: Any, a: Any, D: Any, out: Any) -> Any:
    """Write ``N a`` to `out`, of the first D rows of `N` and the coordinates; ``a' N a``."""
    margins(D, N, a, out)  # which is symmetric
    square = 0.0
    for j in range(a.size):
        square += a[j] * out[j]
    return square


@compiled(fastmath=SUMS, allocates=False, alone=False)
def subtract(N: Any, w: Any, D: Any, factor: Any) -> None:
    """Subtract ``factor w w'`` from the first D rows and columns of `N`."""
    for r in range(D):
        share = factor * w[r]
        for c in range(D):
            N[r, c] -= share * w[c]


@compiled(allocates=False, alone=False)
def enlarge(room: Any, near: Any, i: Any, E: Any) -> Any:
    """Put term i among those at a kink: one row and column more. Whether it could be done."""
    N, w, a = room.inverse, room.work[COLUMN], near.rows[i]
    D, size = a.size + E, 0.0
    for j in range(a.size):
        size += a[j] * a[j]
    pivot = times(N, a, D, w)
    if N.shape[0] == D or not pivot > EXACT * size:
        return False
    subtract(N, w, D, 1.0 / pivot)
    for r in range(D):
        N[r, D] = N[D, r] = w[r] / pivot
    N[D, D] = -1.0 / pivot
    room.edges[E], room.place[i], room.kind[i] = i, E, KINK
    room.now[BELOW, i], room.now[ABOVE, i] = -np.inf, np.inf
    return True


@compiled(allocates=False, alone=False)
def reduce(room: Any, d: Any, i: Any, E: Any) -> Any:
    """Take term i from those at a kink. Whether it could be done."""
    N, w = room.inverse, room.work[COLUMN]
    D = d + E
    p = d + room.place[i]
    pivot = N[p, p]
    if not abs(pivot) > 1e-300:
        return False
    for r in range(D):
        w[r] = N[r, p]
    subtract(N, w, D, 1.0 / pivot)
    last = D - 1
    if p != last:
        for r in range(D):
            N[r, p] = N[r, last]
        for c in range(D):
            N[p, c] = N[last, c]
        N[p, p] = N[last, last]
        at, moved = p - d, room.edges[E - 1]
        room.edges[at], room.place[moved] = moved, at
        for end in (LEAST, MOST):
            room.ends[end, at] = room.ends[end, E - 1]
    return True


@compiled(allocates=False, alone=False)
def bend(room: Any, a: Any, q: Any, E: Any, way: Any) -> Any:
    """Add the parabola of a term with row a to the matrix, or take it away. Whether it could be."""
    N, w = room.inverse, room.work[COLUMN]
    pivot = way * q + times(N, a, a.size + E, w)
    if not way * pivot > EXACT * q:
        return False
    subtract(N, w, a.size + E, 1.0 / pivot)
    return True


@compiled(allocates=False, alone=False)
def leave(room: Any, near: Any, i: Any, E: Any) -> Any:
    """Take term i from the matrix. How many are at a kink then, -1 if it cannot be done."""
    if room.kind[i] == KINK:
        return E - 1 if reduce(room, near.x.size, i, E) else -1
    return E if bend(room, near.rows[i], near.loss[Q, i], E, -1.0) else -1


@compiled(allocates=False, alone=False)
def release(room: Any, near: Any, i: Any, s: Any, way: Any, E: Any) -> Any:
    """Let the slope s of term i move to the side `way`. How many are at a kink then, -1 if not."""
    low, high = span(near.loss, i, s, way)
    q = near.loss[Q, i]
    if q == 0.0:
        if not enlarge(room, near, i, E):
            return -1
        room.ends[LEAST, E], room.ends[MOST, E] = low, high
        return E + 1
    if not bend(room, near.rows[i], q, E, 1.0):
        return -1
    room.kind[i] = CURVED
    begins = kink(near.loss, i, low)
    room.now[BELOW, i], room.now[ABOVE, i] = begins + q * low, begins + q * high
    return E


@compiled(allocates=False)
def follow(
    near: Any, room: Any, rows: Any, index: Any, slopes: Any, rates: Any, X: Any, thetas: Any
) -> None:
    """The optimum without each of some terms, to `X` (K, d) and, of the terms near, `thetas`.

    `rows` (K, d) are those of the terms that are left out, `index` their numbers among the terms
    near, -1 where they are not there, `slopes` their slopes, and `rates` how fast these grow with
    the margin.
    """
    prepare(near)
    for k in range(slopes.size):
        x, theta, own, a, slope = X[k], thetas[k], index[k], rows[k], slopes[k]
        begin(near, room, x, theta)
        E, left = near.edges.size, 1.0
        if own >= 0:
            E = leave(room, near, own, E) if near.kind[own] != HELD else E
            room.kind[own] = GONE
            room.now[BELOW, own], room.now[ABOVE, own] = -np.inf, np.inf
        elif rates[k] > 0.0:
            E = E if bend(room, a, 1.0 / rates[k], E, -1.0) else -1
        for _ in range(EVENTS):
            if E < 0:
                break
            way, i, size = stretch(near.A, room, theta, a, slope, left, E)
            advance(room, x, theta, size, E)
            left -= size
            if i < 0:
                break
            E = turn(near, room, theta, i, way, E)
        if own >= 0:
            theta[own] = 0.0
        if E >= 0:
            correct(near, room, x, theta, a, slope, 0.0 if own >= 0 else rates[k], E)


@compiled(fastmath=SUMS, allocates=False, alone=False)
def prepare(near: Any) -> None:
    """Fill in the margins, and where the terms leave their pieces."""
    margins(near.place.size, near.A, near.x, near.start[T])
    for i in range(near.place.size):
        s = near.start[THETA, i]
        below, above = -np.inf, np.inf
        if near.kind[i] == HELD:
            below, above = knot(near.loss, i, s, -1.0), knot(near.loss, i, s, 1.0)
        else:
            low, high = span(near.loss, i, s, 1.0)
            if near.kind[i] == CURVED:
                begins, q = kink(near.loss, i, low), near.loss[Q, i]
                below, above = begins + q * low, begins + q * high
            else:
                near.ends[LEAST, near.place[i]], near.ends[MOST, near.place[i]] = low, high
        near.start[BELOW, i], near.start[ABOVE, i] = below, above


@compiled(allocates=False, alone=False)
def begin(near: Any, room: Any, x: Any, theta: Any) -> None:
    """Copy the state."""
    E, d = near.edges.size, near.x.size
    for j in range(d):
        x[j] = near.x[j]
    for i in range(theta.size):
        theta[i], room.kind[i], room.place[i] = near.start[THETA, i], near.kind[i], near.place[i]
    for row in (T, BELOW, ABOVE):
        for i in range(theta.size):
            room.now[row, i] = near.start[row, i]
    for p in range(E):
        room.edges[p] = near.edges[p]
        room.ends[LEAST, p], room.ends[MOST, p] = near.ends[LEAST, p], near.ends[MOST, p]
    for r in range(d + E):
        for c in range(d + E):
            room.inverse[r, c] = near.inverse[r, c]


@compiled(fastmath=SUMS, allocates=False, alone=False)
def stretch(
    A: Any, room: Any, theta: Any, a: Any, slope: Any, left: Any, E: Any
) -> Any:
    """The line up to the next change: the side it is on, the term (-1 if none), and its length."""
    step, dt, length, d = room.work[STEP], room.now[DT], room.now[LENGTH], a.size
    times(room.inverse, a, d + E, step)
    for r in range(d + E):
        step[r] *= slope
    margins(theta.size, A, step, dt)
    # The lengths first, by themselves: a loop without branches, four terms at a time.
    t, below, above = room.now[T], room.now[BELOW], room.now[ABOVE]
    for i in range(theta.size):
        rate, here, low, high = dt[i], t[i], below[i], above[i]
        length[i] = ((high if rate > 0.0 else low) - here) / rate
    size, first = left, -1
    for i in range(theta.size):
        if length[i] < size and dt[i] != 0.0:
            size, first = length[i], i
    for p in range(E):
        rate, i = step[d + p], room.edges[p]
        if rate != 0.0:
            far = room.ends[MOST if rate > 0.0 else LEAST, p] - theta[i]
            if far < size * rate if rate > 0.0 else far > size * rate:
                size, first = far / rate, i
    side = 1.0
    if first >= 0:
        way = step[d + room.place[first]] if room.kind[first] == KINK else dt[first]
        side = 1.0 if way > 0.0 else -1.0
    size = max(size, 0.0)
    return side, first, size


@compiled(fastmath=SUMS, allocates=False, alone=False)
def advance(room: Any, x: Any, theta: Any, size: Any, E: Any) -> None:
    """Go along the line."""
    step, t, dt, d = room.work[STEP], room.now[T], room.now[DT], x.size
    for j in range(d):
        x[j] += size * step[j]
    for i in range(theta.size):
        t[i] += size * dt[i]
    for p in range(E):
        theta[room.edges[p]] += size * step[d + p]


@compiled(allocates=False, alone=False)
def turn(near: Any, room: Any, theta: Any, i: Any, way: Any, E: Any) -> Any:
    """Change the piece of term i. How many are at a kink then, -1 if it cannot be done."""
    if room.kind[i] == HELD:
        return release(room, near, i, theta[i], way, E)
    if room.kind[i] == KINK:
        low, high = room.ends[LEAST, room.place[i]], room.ends[MOST, room.place[i]]
    else:
        low, high = span(near.loss, i, room.now[T, i] - near.loss[B, i], way)
    theta[i] = high if way > 0.0 else low
    E = leave(room, near, i, E)
    room.kind[i] = HELD
    for row, side in ((BELOW, -1.0), (ABOVE, 1.0)):
        room.now[row, i] = knot(near.loss, i, theta[i], side)
    return E


@compiled(fastmath=SUMS, allocates=False, alone=False)
def correct(
    near: Any, room: Any, x: Any, theta: Any, a: Any, slope: Any, rate: Any, E: Any
) -> None:
    """A Newton step on the last pieces: what rounding has left on the way.

    The term that is left out has been at `slope`, and, where it is not near, at a `rate`.
    """
    N, right, step, d = room.inverse, room.work[RIGHT], room.work[STEP], a.size
    loss, before = near.loss, near.start[THETA]
    for j in range(d):
        step[j] = x[j] - near.x[j]
        slope += rate * a[j] * step[j]
    for j in range(d):
        right[j] = a[j] * slope - near.pull[j] - near.diagonal[j] * x[j]
        for c in range(d):
            right[j] -= near.far[j, c] * step[c]
    for i in range(theta.size):
        kind = room.kind[i]
        if kind == GONE or (kind == HELD and theta[i] == before[i]):
            continue
        row, t = near.rows[i], 0.0
        for j in range(d):
            t += row[j] * x[j]
        if kind == CURVED:
            low, high = span(loss, i, t - loss[B, i], 1.0)
            theta[i] = min(max((t - kink(loss, i, low)) / loss[Q, i], low), high)
        elif kind == KINK:
            p = room.place[i]
            right[d + p] = kink(loss, i, room.ends[LEAST, p]) - t
        change = theta[i] - before[i]
        for j in range(d):
            right[j] -= change * row[j]
    for r in range(d + E):
        total = 0.0
        for c in range(d + E):
            total += N[r, c] * right[c]
        step[r] = total
    for j in range(d):
        x[j] += step[j]
    for p in range(E):
        i = room.edges[p]
        s = theta[i] + step[d + p]
        theta[i] = min(max(s, room.ends[LEAST, p]), room.ends[MOST, p])
    for i in range(theta.size):
        if room.kind[i] == CURVED:
            low, high = span(loss, i, theta[i], 1.0)
            move = 0.0
            for j in range(d):
                move += near.rows[i, j] * step[j]
            theta[i] = min(max(theta[i] + move / loss[Q, i], low), high)


PATHS = CompileClock(4.0)
"""Of `follow`, against any other refits. Measured: 3 to 6 CPU seconds."""


def along_paths(problem: Problem) -> bool:
    """Whether refits of `problem` along paths need not wait for a compiler, or waited enough."""
    return (PATHS.due or at_hand(follow)) and compiled_path(problem, "auto", many=True)


def in_blocks(problem: Problem) -> bool:
    """The same, along paths or as refits under any weightings."""
    return along_paths(problem) or together(problem)


class Optimum(NamedTuple):
    """The optimum of all terms up to rounding, and the pieces that they are on there.

    Attributes
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
    kind : array of int8, shape (n,)
    edges : array of int, shape (E,)
        The terms at a kink.
    inverse : array, shape (d + E, d + E)
        Of the module's matrix.
    """

    x: Array
    theta: Array
    kind: NDArray[np.int8]
    edges: Index
    inverse: Array


def optimum(solution: Solution) -> Optimum | None:
    """The optimum on the pieces that the terms of `solution` are on; None if it is not there."""
    problem, f = solution.problem, solution.problem.losses
    theta, d = solution.theta.copy(), problem.d
    low = np.where((f.e > 0.0) & (theta > 0.0), 0.0, f.lo)
    high = np.where((f.e > 0.0) & (theta < 0.0), 0.0, f.hi)
    with np.errstate(invalid="ignore"):
        width = np.minimum(high - low, np.abs(theta) + 1.0)
        theta = np.where(theta - low <= AT_END * width, low, theta)
        theta = np.where(high - theta <= AT_END * width, high, theta)
    inside = (theta > low) & (theta < high) & ((theta != 0.0) | (f.e == 0.0))
    kind = np.where(inside, np.where(f.q > 0.0, CURVED, KINK), HELD).astype(np.int8)
    edges, curved = np.flatnonzero(kind == KINK), np.flatnonzero(kind == CURVED)
    if len(edges) > d:
        return None
    H = np.diag(problem.quadratic.diagonal)
    if len(curved):
        H = H + problem.design.weighted_gram(curved, 1.0 / f.q[curved])
    A_E = problem.design.dense(edges)
    matrix = np.block([[H, A_E.T], [A_E, np.zeros((len(edges), len(edges)))]])
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return None
    x, side = solution.x, np.where(low >= 0.0, 1.0, -1.0)
    ends = f.b + f.e * side
    for _ in range(SETTLES):
        t = problem.design.forward(x)
        theta[curved] = ((t - ends) / np.where(f.q > 0.0, f.q, 1.0))[curved]
        residual = problem.design.adjoint(theta) + problem.quadratic.diagonal * x
        step = inverse @ np.concatenate([-residual, (ends - t)[edges]])
        x = x + step[:d]
        theta[edges] += step[d:]
    t = problem.design.forward(x)
    theta[curved] = ((t - ends) / np.where(f.q > 0.0, f.q, 1.0))[curved]
    good = np.isfinite(x).all() and bool(((theta >= low) & (theta <= high))[inside].all())
    if not good or not _stay(f, t, theta, kind == HELD):
        return None
    return Optimum(x, theta, kind, edges, inverse)


def _stay(f: LossTerms, t: Array, theta: Array, held: NDArray[np.bool_]) -> bool:
    """Whether the margins of all terms that are `held` are on the linear piece of their slope."""
    below = f.b + f.e * np.where(theta <= 0.0, -1.0, 1.0) + f.q * theta
    above = f.b + f.e * np.where(theta >= 0.0, 1.0, -1.0) + f.q * theta
    slack = 1e-9 * (1.0 + np.abs(t))
    fits = ((theta <= f.lo) | (t >= below - slack)) & ((theta >= f.hi) | (t <= above + slack))
    return bool(fits[held].all())


Found = tuple[Array, Array, NDArray[np.bool_]]
"""x, the gap, and whether it is small enough, of each answer of a block."""

Way = Callable[[LeftOut, Array, Array, "Array | None"], Found]


class RowRefits:
    """Optima of one problem of few coordinates without single terms.

    Where the pieces of the solution are not those of the optimum, and for what the paths leave
    uncertified, refits go through `cvxscreen.data_changes.bootstrap.Replicates`, if that is
    compiled or has been waited for.

    Parameters
    ----------
    solution : Solution
        Of all terms, of a problem that `in_blocks` takes.
    tol : float
        Relative gap of each answer.
    """

    def __init__(self, solution: Solution, tol: float) -> None:
        self.problem, self.tol = solution.problem, tol
        self.at: Optimum | None = None
        if along_paths(self.problem):
            self.at = optimum(solution) or optimum(
                refit(solution, solution.problem, solution.theta, FINER, "certified")
            )
        if self.at is not None:
            solution = replace(solution, x=self.at.x, theta=self.at.theta)
        self.others = Replicates(solution, tol)
        self.around = self.others.around
        nth = min(max(NEAR * self.problem.d, FEWEST), self.problem.n - 1)
        self.least = max(float(np.partition(self.around.room, nth)[nth]), 0.0)
        self.free = bool(self.problem.quadratic.free.any())

    def margins(self, index: Index) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The margin of each term of `index` at the optimum without it.

        Returns
        -------
        margins, error : arrays, shape (K,)
            The optimum's is within `error`, proven.
        ok : mask, shape (K,)
            Which answers are certified to the tolerance.
        """
        problem, d, K = self.problem, self.problem.d, len(index)
        rows, left_out = problem.design.dense(index), LeftOut(index, problem.n)
        X, shift, ok = np.zeros((K, d)), np.zeros(K), np.zeros(K, dtype=bool)
        gap = np.full(K, np.inf)
        ways: list[Way] = [] if self.at is None else [partial(self._paths, self.at)] * ROUNDS
        for way in (*ways, self._replicates):
            waiting = np.flatnonzero(~ok)
            if not len(waiting) or (way == self._replicates and not together(problem)):
                break
            away = shift[waiting] if self.free else None
            found = way(left_out[waiting], rows[waiting], X[waiting], away)
            X[waiting], gap[waiting], ok[waiting] = found
            if away is not None:
                shift[waiting] = away
        margins = np.einsum("kj,kj->k", rows, X)
        n_i = problem.norms[index] * (1.0 + gamma(d + 8))
        error = n_i * np.sqrt(2.0 * up(1.0) * gap) * up(1.0, 16)
        if self.free:
            error = error + up(1.0) * np.abs(problem.free_columns[index, 0]) * shift
        rounding = up(1.0) * gamma(d + 8) * np.linalg.norm(X, axis=1)
        return margins, error + rounding * problem.sizes[index], ok & np.isfinite(error)

    def _replicates(
        self, left_out: LeftOut, rows: Array, X: Array, shift: Array | None
    ) -> Found:
        """The optima by the solver of any weightings."""
        with PATHS.rent():
            return self.others.solve(left_out, shift)

    def _paths(
        self, at: Optimum, left_out: LeftOut, rows: Array, X: Array, shift: Array | None
    ) -> Found:
        """The optima along the paths, by the terms that are near a kink within the reach of `X`."""
        problem, around, d = self.problem, self.around, self.problem.d
        slopes, rates = around.slopes[left_out.index], around.rates[left_out.index]
        reach = self.least
        if X.any():  # there are answers
            reach = max(WIDER * around.distance(X), reach)
        near = np.flatnonzero(~stays_around(around, reach))
        parabolas = around.place[near][around.place[near] >= 0]
        bend = around.bend - around.bends[parabolas].sum(axis=0)
        far = around.square(bend[None])[0] if len(bend) else np.zeros((d, d))
        f, m = problem.losses, len(near)
        place, edges = np.full(m, -1, dtype=np.int64), np.searchsorted(near, at.edges)
        place[edges] = np.arange(len(edges))
        own = np.searchsorted(near, left_out.index)
        own = np.where((own < m) & (near[np.minimum(own, m - 1)] == left_out.index), own, -1)
        loss = np.array([column[near] for column in (f.b, f.e, f.q, f.lo, f.hi)])
        start = np.empty((4, m))
        start[THETA] = around.slopes[near]
        A = np.take(around.columns, near, axis=1)
        pieces = Pieces(
            A, np.ascontiguousarray(A.T), loss, start, at.kind[near], place, edges,
            np.empty((2, len(edges))), at.inverse, at.x, around.total[:d].copy(),
            problem.quadratic.diagonal.copy(), far,
        )
        room = Room.of_size(d, m)
        X, theta = np.empty((len(left_out), d)), np.empty((len(left_out), m))
        follow(pieces, room, np.ascontiguousarray(rows), own, slopes, rates, X, theta)
        proofs = certify_weightings(
            problem, around, left_out, X, near, theta, tol=self.tol, shift=shift
        )
        return X, proofs.gap, proofs.ok
