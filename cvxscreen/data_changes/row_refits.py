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
from cvxscreen.certificates.many import LeftOut, certify_weightings, linear_around
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import Replicates, together
from cvxscreen.data_changes.reweight import refit
from cvxscreen.solvers.compiled_path.segments import CompileClock, at_hand
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

HELD, KINK, CURVED, GONE = 0, 1, 2, 3
"""A term at the slope of a linear piece, at a kink, on a parabola, left out."""

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


class Pieces(NamedTuple):
    """Terms near a kink, and where their path begins.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    b, e, q, lo, hi : array, shape (m,)
        Their losses.
    theta : array, shape (m,)
    t : array, shape (m,)
        Their margins.
    below, above : array, shape (m,)
        Where they leave their piece: slopes inside a box, margins elsewhere.
    kind : array of int8, shape (m,)
    place : array of int64, shape (m,)
        Of a term at a kink, its number among those.
    edges : array of int64, shape (E,)
        The terms at a kink.
    inverse : array, shape (d + E, d + E)
        Of the module's matrix.
    x, pull, diagonal : array, shape (d,)
        The optimum, ``A' theta`` over all terms, and M.
    """

    A: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array
    theta: Array
    t: Array
    below: Array
    above: Array
    kind: NDArray[np.int8]
    place: NDArray[np.int64]
    edges: NDArray[np.int64]
    inverse: Array
    x: Array
    pull: Array
    diagonal: Array


class Room(NamedTuple):
    """What a path changes as it is followed; of the inverse the first d + E rows are in use."""

    t: Array
    dt: Array
    below: Array
    above: Array
    kind: NDArray[np.int8]
    place: NDArray[np.int64]
    edges: NDArray[np.int64]
    inverse: Array
    step: Array
    right: Array
    column: Array

    @classmethod
    def of_size(cls, d: int, m: int) -> Room:
        """For m terms of d coordinates, of which d + 1 at most are at a kink at once."""
        D = 2 * d + 1
        (t, dt, below, above), (step, right, column) = np.empty((4, m)), np.empty((3, D))
        kind, place, edges = np.empty(m, np.int8), np.empty(m, np.int64), np.empty(d + 1, np.int64)
        return cls(
            t, dt, below, above, kind, place, edges, np.empty((D, D)), step, right, column
        )


@compiled(allocates=False)
def knot(near: Any, i: Any, s: Any, way: Any) -> Any:
    """The margin at which the slope of term i moves from s to the side `way`; infinite if never."""
    if (s >= near.hi[i]) if way > 0.0 else (s <= near.lo[i]):
        return way * np.inf
    side = way if s == 0.0 else np.sign(s)
    return near.b[i] + near.e[i] * side + near.q[i] * s


@compiled(allocates=False)
def knots(near: Any, i: Any, s: Any) -> Any:
    """Between which margins the slope of term i stays s."""
    return knot(near, i, s, -1.0), knot(near, i, s, 1.0)


@compiled(allocates=False)
def span(near: Any, i: Any, s: Any, way: Any) -> Any:
    """Between which slopes term i moves, from s to the side `way`."""
    low, high = near.lo[i], near.hi[i]
    if near.e[i] > 0.0:
        if s > 0.0 or (s == 0.0 and way > 0.0):
            low = 0.0
        else:
            high = 0.0
    return low, high


@compiled(fastmath=SUMS, allocates=False)
def enlarge(room: Any, near: Any, i: Any, E: Any) -> Any:
    """Put term i among those at a kink: one row and column more. Whether it could be done."""
    A, N, w = near.A, room.inverse, room.column
    d = A.shape[0]
    D = d + E
    size = 0.0
    for j in range(d):
        size += A[j, i] * A[j, i]
    pivot = 0.0
    for r in range(D):
        total = 0.0
        for j in range(d):
            total += N[r, j] * A[j, i]
        w[r] = total
        if r < d:
            pivot += A[r, i] * total
    if N.shape[0] == D or not pivot > EXACT * size:
        return False
    for r in range(D):
        for c in range(D):
            N[r, c] -= w[r] * w[c] / pivot
        N[r, D] = N[D, r] = w[r] / pivot
    N[D, D] = -1.0 / pivot
    room.edges[E], room.place[i], room.kind[i] = i, E, KINK
    return True


@compiled(fastmath=SUMS, allocates=False)
def reduce(room: Any, near: Any, i: Any, E: Any) -> Any:
    """Take term i from those at a kink. Whether it could be done."""
    d, N, w = near.A.shape[0], room.inverse, room.column
    D = d + E
    p = d + room.place[i]
    pivot = N[p, p]
    if not abs(pivot) > 1e-300:
        return False
    for r in range(D):
        w[r] = N[r, p]
    for r in range(D):
        for c in range(D):
            N[r, c] -= w[r] * w[c] / pivot
    last = D - 1
    if p != last:
        for r in range(D):
            N[r, p] = N[r, last]
        for c in range(D):
            N[p, c] = N[last, c]
        N[p, p] = N[last, last]
        moved = room.edges[E - 1]
        room.edges[p - d], room.place[moved] = moved, p - d
    return True


@compiled(fastmath=SUMS, allocates=False)
def bend(room: Any, near: Any, i: Any, E: Any, way: Any) -> Any:
    """Add the parabola of term i to the matrix, or take it away. Whether it could be done."""
    A, N, w = near.A, room.inverse, room.column
    d = A.shape[0]
    D = d + E
    pivot = way * near.q[i]
    for r in range(D):
        total = 0.0
        for j in range(d):
            total += N[r, j] * A[j, i]
        w[r] = total
        if r < d:
            pivot += A[r, i] * total
    if not way * pivot > EXACT * near.q[i]:
        return False
    for r in range(D):
        for c in range(D):
            N[r, c] -= w[r] * w[c] / pivot
    return True


@compiled(allocates=False)
def leave(room: Any, near: Any, i: Any, E: Any) -> Any:
    """Take term i from the matrix. How many are at a kink then, -1 if it cannot be done."""
    if room.kind[i] == KINK:
        return E - 1 if reduce(room, near, i, E) else -1
    return E if bend(room, near, i, E, -1.0) else -1


@compiled(allocates=False)
def release(room: Any, near: Any, i: Any, s: Any, way: Any, E: Any) -> Any:
    """Let the slope s of term i move to the side `way`. How many are at a kink then, -1 if not."""
    edge = near.q[i] == 0.0
    if edge:
        if not enlarge(room, near, i, E):
            return -1
    else:
        if not bend(room, near, i, E, 1.0):
            return -1
        room.kind[i] = CURVED
    room.below[i], room.above[i] = span(near, i, s, way)
    return E + 1 if edge else E


@compiled(allocates=False)
def follow(
    near: Any, room: Any, rows: Any, index: Any, slopes: Any, X: Any, thetas: Any
) -> None:
    """The optimum without each of some terms, to `X` (K, d) and, of the terms near, `thetas`.

    `rows` (K, d) are those of the terms that are left out, `index` their numbers among the terms
    near, -1 where they are not there, `slopes` their slopes.
    """
    prepare(near)
    for k in range(slopes.size):
        x, theta, own, a, slope = X[k], thetas[k], index[k], rows[k], slopes[k]
        E = begin(near, room, x, theta, own)
        left = 1.0
        for _ in range(EVENTS):
            if E < 0:
                break
            way, i, size = stretch(near, room, theta, a, slope, left, E)
            advance(near, room, x, theta, size, E)
            left -= size
            if i < 0:
                break
            E = turn(near, room, theta, i, way, E)
        if own >= 0:
            theta[own] = 0.0
        if E >= 0:
            correct(near, room, x, theta, a, slope, E)


@compiled(fastmath=SUMS, allocates=False)
def prepare(near: Any) -> None:
    """Fill in the margins, and where the terms leave their pieces."""
    for i in range(near.t.size):
        near.t[i] = 0.0
    for j in range(near.x.size):
        x = near.x[j]
        for i in range(near.t.size):
            near.t[i] += near.A[j, i] * x
    for i in range(near.t.size):
        if near.kind[i] == HELD:
            near.below[i], near.above[i] = knots(near, i, near.theta[i])
        else:
            near.below[i], near.above[i] = span(near, i, near.theta[i], 1.0)


@compiled(allocates=False)
def begin(near: Any, room: Any, x: Any, theta: Any, own: Any) -> Any:
    """Copy the state, less the term that is left out. How many are at a kink, -1 if it fails."""
    E, d = near.edges.size, near.x.size
    for j in range(d):
        x[j] = near.x[j]
    for i in range(theta.size):
        theta[i], room.t[i] = near.theta[i], near.t[i]
        room.below[i], room.above[i] = near.below[i], near.above[i]
        room.kind[i], room.place[i] = near.kind[i], near.place[i]
    for p in range(E):
        room.edges[p] = near.edges[p]
    for r in range(d + E):
        for c in range(d + E):
            room.inverse[r, c] = near.inverse[r, c]
    if own >= 0:
        if room.kind[own] != HELD:
            E = leave(room, near, own, E)
        room.kind[own] = GONE
    return E


@compiled(fastmath=SUMS, allocates=False)
def stretch(
    near: Any, room: Any, theta: Any, a: Any, slope: Any, left: Any, E: Any
) -> Any:
    """The line up to the next change: the side it is on, the term (-1 if none), and its length."""
    A, N, step, dt = near.A, room.inverse, room.step, room.dt
    d = A.shape[0]
    for r in range(d + E):
        total = 0.0
        for j in range(d):
            total += N[r, j] * a[j]
        step[r] = total * slope
    for i in range(theta.size):
        dt[i] = 0.0
    for j in range(d):
        rate = step[j]
        for i in range(theta.size):
            dt[i] += A[j, i] * rate
    size, first, side = left, -1, 1.0
    for i in range(theta.size):
        kind = room.kind[i]
        if kind == HELD:
            here, rate = room.t[i], dt[i]
        elif kind == GONE:
            continue
        else:
            here = theta[i]
            rate = step[d + room.place[i]] if kind == KINK else dt[i] / near.q[i]
        if rate > 0.0:
            far = room.above[i] - here
            if far < size * rate:
                size, first, side = max(far / rate, 0.0), i, 1.0
        elif rate < 0.0:
            far = room.below[i] - here
            if far > size * rate:
                size, first, side = max(far / rate, 0.0), i, -1.0
    return side, first, size


@compiled(fastmath=SUMS, allocates=False)
def advance(near: Any, room: Any, x: Any, theta: Any, size: Any, E: Any) -> None:
    """Go along the line."""
    d = near.A.shape[0]
    for j in range(d):
        x[j] += size * room.step[j]
    for i in range(theta.size):
        room.t[i] += size * room.dt[i]
        if room.kind[i] == CURVED:
            theta[i] += size * room.dt[i] / near.q[i]
    for p in range(E):
        theta[room.edges[p]] += size * room.step[d + p]


@compiled(allocates=False)
def turn(near: Any, room: Any, theta: Any, i: Any, way: Any, E: Any) -> Any:
    """Change the piece of term i. How many are at a kink then, -1 if it cannot be done."""
    if room.kind[i] == HELD:
        return release(room, near, i, theta[i], way, E)
    theta[i] = room.above[i] if way > 0.0 else room.below[i]
    E = leave(room, near, i, E)
    room.kind[i] = HELD
    room.below[i], room.above[i] = knots(near, i, theta[i])
    return E


@compiled(fastmath=SUMS, allocates=False)
def correct(
    near: Any, room: Any, x: Any, theta: Any, a: Any, slope: Any, E: Any
) -> None:
    """A Newton step on the last pieces: what rounding has left on the way."""
    A, N, right, step = near.A, room.inverse, room.right, room.step
    d = A.shape[0]
    for j in range(d):
        right[j] = a[j] * slope - near.pull[j] - near.diagonal[j] * x[j]
    for i in range(theta.size):
        kind = room.kind[i]
        if kind == GONE or (kind == HELD and theta[i] == near.theta[i]):
            continue
        t = 0.0
        for j in range(d):
            t += A[j, i] * x[j]
        side = 1.0 if room.below[i] >= 0.0 else -1.0
        if kind == CURVED:
            s = (t - near.b[i] - near.e[i] * side) / near.q[i]
            theta[i] = min(max(s, room.below[i]), room.above[i])
        elif kind == KINK:
            right[d + room.place[i]] = near.b[i] + near.e[i] * side - t
        change = theta[i] - near.theta[i]
        for j in range(d):
            right[j] -= change * A[j, i]
    for r in range(d + E):
        total = 0.0
        for c in range(d + E):
            total += N[r, c] * right[c]
        step[r] = total
    for j in range(d):
        x[j] += step[j]
    for i in range(theta.size):
        move = 0.0
        if room.kind[i] == KINK:
            move = step[d + room.place[i]]
        elif room.kind[i] == CURVED:
            for j in range(d):
                move += A[j, i] * step[j] / near.q[i]
        if move != 0.0:
            theta[i] = min(max(theta[i] + move, room.below[i]), room.above[i])


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
        slopes = around.slopes[left_out.index]
        reach = self.others.least
        if X.any():  # there are answers
            reach = max(WIDER * around.distance(X), reach)
        near = np.flatnonzero(~linear_around(around, reach))
        f, m = problem.losses, len(near)
        place, edges = np.full(m, -1, dtype=np.int64), np.searchsorted(near, at.edges)
        place[edges] = np.arange(len(edges))
        own = np.searchsorted(near, left_out.index)
        own = np.where((own < m) & (near[np.minimum(own, m - 1)] == left_out.index), own, -1)
        b, e, q, lo, hi, theta = (
            column[near] for column in (f.b, f.e, f.q, f.lo, f.hi, around.slopes)
        )
        t, below, above = np.empty((3, m))
        pieces = Pieces(
            np.take(around.columns, near, axis=1), b, e, q, lo, hi, theta, t, below, above,
            at.kind[near], place, edges, at.inverse, at.x, around.total[:d].copy(),
            problem.quadratic.diagonal.copy(),
        )
        room = Room.of_size(d, m)
        X, theta = np.empty((len(left_out), d)), np.empty((len(left_out), m))
        follow(pieces, room, np.ascontiguousarray(rows), own, slopes, X, theta)
        proofs = certify_weightings(
            problem, around, left_out, X, near, theta, tol=self.tol, shift=shift
        )
        return X, proofs.gap, proofs.ok
