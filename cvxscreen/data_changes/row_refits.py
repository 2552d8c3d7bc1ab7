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

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, CompileClock, at_hand, compiled
from cvxscreen._support.rounding import gamma, up
from cvxscreen.certificates.many import (
    Around,
    LeftOut,
    LeftOutProofs,
    certify_weightings,
    stays_around,
)
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import Replicates, together
from cvxscreen.data_changes.reweight import refit
from cvxscreen.solvers.compiled_path.loops import margins
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

HELD, KINK, CURVED = 0, 1, 2
"""A term at the slope of a linear piece, at a kink, on a parabola."""

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

AT_END = 1e-10, 1e-7, 1e-4
"""Shares of its box by which a slope may be off an end that it is taken to be at, one after the
other: what balances an intercept may be spread over more slopes than there are coordinates."""

FINER = 1e-12
"""Relative gap to which a solution is solved again whose pieces are not the optimum's."""

SETTLES = 3
"""Newton steps from the solution to the optimum on its pieces."""

EXACT = 1e-10
"""Relative size of a pivot below which a row depends on those at a kink."""

AT_ONCE, FEW, MANY = 2**20, 16, 1024
"""Numbers of the paths that are followed together, 8 MB, and how many these are at least and at
most. With half of them the calls of numpy take a tenth more of all; with twice as many nothing is
gained."""

# Rows of the tables of `RefitStart` and `Paths`.
KNOT, LEVEL, CURVE = 0, 6, 9
T, BELOW, ABOVE, THETA = range(4)
LEAST, MOST = range(2)
STEP, CHANGE, PULL, AT = range(4)
SLOT, BEND = range(2)


def tabled(f: LossTerms) -> tuple[Array, NDArray[np.bool_]]:
    """The pieces of losses from the lowest slope to the highest, shape (10, m).

    Pieces 0, 2 and 4 are lines, 1 and 3 parabolas, or kinks where ``q = 0``. From `KNOT` on stand
    the margins between which piece c is, rows c and c + 1; from `LEVEL` on the slopes of the lines;
    last q. There are five pieces where slopes on either side of 0 have a kink of the conjugate
    between them, the mask; else three.
    """
    five = (f.e > 0.0) & (f.lo < 0.0) & (f.hi > 0.0)
    first, second = f.b + np.where(f.lo < 0.0, -f.e, f.e), f.b + f.e
    bent = f.q > 0.0
    low, high = (np.where(bent, f.q * np.where(bent, end, 0.0), 0.0) for end in (f.lo, f.hi))
    never, some = np.full(len(low), np.inf), f.lo < f.hi
    table = np.array([
        -never, np.where(some, first + low, never),
        np.where(some, first + np.where(five, 0.0, high), never), np.where(five, second, never),
        np.where(five, second + high, never), never,
        f.lo, np.where(five, 0.0, f.hi), f.hi, f.q,
    ])
    return table, five


class RefitStart(NamedTuple):
    """Terms near a kink where every path begins: d coordinates, m terms, ``D = 2 d``.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    losses : LossTerms
    table : array, shape (10, m)
        See `tabled`.
    now : array, shape (4, m)
        Their margins, those at which they leave their piece (infinite at a kink), and theta.
    piece : array of int8, shape (m,)
    slots : array of int64, shape (d,)
        The terms at a kink; -1 where there is none.
    ends : array, shape (2, d)
        The slopes at which they leave it, infinite where there is none.
    inverse : array, shape (D, D)
        Of the module's matrix; rows and columns of 0 where there is no term.
    x : array, shape (d,)
    """

    A: Array
    losses: LossTerms
    table: Array
    now: Array
    piece: NDArray[np.int8]
    slots: NDArray[np.int64]
    ends: Array
    inverse: Array
    x: Array

    @classmethod
    def of(cls, problem: Problem, around: Around, at: Optimum, near: Index) -> RefitStart:
        """The terms at `near`, sorted; those at a kink are among them."""
        A, f, d = np.take(around.columns, near, axis=1), problem.losses.take(near), problem.d
        (table, five), theta, every = tabled(f), around.slopes[near], np.arange(len(near))
        line = np.where(theta <= f.lo, 0, np.where(five & (theta >= f.hi), 4, 2))
        moving = np.where(five & (theta > 0.0), 3, 1)
        piece = np.where(at.kind[near] == HELD, line, moving).astype(np.int8)
        kink = at.kind[near] == KINK
        below, above = (table[KNOT + piece + side, every] for side in (0, 1))
        margins = [around.margins[near], np.where(kink, -np.inf, below)]
        now = np.array([*margins, np.where(kink, np.inf, above), theta])
        E = len(at.edges)
        slots, ends = np.full(d, -1), np.full((2, d), np.inf)
        slots[:E] = edges = np.searchsorted(near, at.edges)
        half, ends[LEAST] = piece[edges] // 2, -np.inf
        ends[:, :E] = table[LEVEL + half, edges], table[LEVEL + half + 1, edges]
        inverse = np.zeros((2 * d, 2 * d))
        inverse[:d + E, :d + E] = at.inverse
        return cls(A, f, table, now, piece, slots, ends, inverse, at.x)


class Paths(NamedTuple):
    """K paths: where they are, and, in the end, where they have led.

    Attributes
    ----------
    now, piece, slots, ends, inverse : array, shape (K, ...)
        As in `RefitStart`; the theta of terms at a kink is in `lines`.
    rows : array, shape (K, d)
        The row whose part of the matrix changes, at first of the term that is left out.
    lines : array, shape (K, 4, D)
        How x and the slopes at a kink change; the last change of the inverse; the row of the term
        that is left out, times its slope; x and the slopes at a kink.
    begin : array, shape (K, 2)
        Of the term that is left out the slot, or -1, and q: 0 at a kink, -1 where it is not in the
        matrix.
    """

    now: Array
    piece: NDArray[np.int8]
    slots: NDArray[np.int64]
    ends: Array
    inverse: Array
    rows: Array
    lines: Array
    begin: Array


@compiled(fastmath=SUMS, allocates=False)
def follow(A: Any, table: Any, paths: Any, room: Any) -> None:
    """Follow each path to its end, or until its matrix is singular.

    What belongs to the matrix changes it by ``w w'``: a parabola that is added or taken away, a
    term that comes to a kink (one row and column more) or leaves it. `room` is for two vectors over
    the terms.
    """
    (d, m), D = A.shape, paths.lines.shape[2]
    rates, length = room[0], room[1]
    for k in range(len(paths.begin)):
        N, row, slots, ends = paths.inverse[k], paths.rows[k], paths.slots[k], paths.ends[k]
        step, w = paths.lines[k, STEP], paths.lines[k, CHANGE]
        pull, at = paths.lines[k, PULL], paths.lines[k, AT]
        t, below, above = paths.now[k, 0], paths.now[k, 1], paths.now[k, 2]
        p, bend, left = int(paths.begin[k, 0]), paths.begin[k, 1], 1.0
        sign = -1.0 if bend >= 0.0 else 0.0  # into the matrix, or out of it
        for _ in range(EVENTS):
            if sign != 0.0:
                pivot, size, along = sign * bend, 0.0, 0.0
                if p >= 0 and sign < 0.0:
                    for r in range(D):
                        w[r] = N[d + p, r]
                    pivot = w[d + p]
                    slots[p], ends[0, p], ends[1, p] = -1, -np.inf, np.inf
                else:
                    margins(D, N, row, w)
                    for j in range(d):
                        pivot += row[j] * w[j]
                        size += row[j] * row[j]
                    if p >= 0:
                        w[d + p] = -1.0
                if not sign * pivot > EXACT * (bend if bend > 0.0 else size):
                    break
                for j in range(d):
                    along += w[j] * pull[j]
                for r in range(D):
                    share = w[r] / pivot
                    step[r] -= along * share
                    for c in range(D):
                        N[r, c] -= share * w[c]
            margins(m, A, step, rates)
            # The lengths first, by themselves: a loop without branches, four terms at a time.
            for i in range(m):
                rate, here, low, high = rates[i], t[i], below[i], above[i]
                length[i] = ((high if rate > 0.0 else low) - here) / rate
            i, p, size = -1, -1, left
            for j in range(m):
                if length[j] < size and rates[j] != 0.0:
                    size, i = length[j], j
            for r in range(D - d):
                rate, here = step[d + r], at[d + r]
                far = (ends[1, r] if rate > 0.0 else ends[0, r]) - here
                if rate != 0.0 and far / rate < size:
                    size, p = far / rate, r
            size = max(size, 0.0)
            for r in range(D):
                at[r] += size * step[r]
            for j in range(m):
                t[j] += size * rates[j]
            left -= size
            if i < 0 and p < 0:
                break
            # One term changes its piece: for the next one up or down.
            up = rates[i] > 0.0
            if p >= 0:
                i, up = slots[p], step[d + p] > 0.0
            c = paths.piece[k, i] + (1 if up else -1)
            paths.piece[k, i], bend, sign = c, table[CURVE, i], 1.0 if c % 2 else -1.0
            below[i], above[i] = table[KNOT + c, i], table[KNOT + c + 1, i]
            for j in range(d):
                row[j] = A[j, i]
            if c % 2 == 0:
                paths.now[k, THETA, i] = table[LEVEL + c // 2, i]
            elif bend == 0.0:
                while p + 1 < D - d and (p < 0 or slots[p] >= 0):
                    p += 1
                if slots[p] >= 0:
                    break
                slots[p], at[d + p] = i, paths.now[k, THETA, i]
                ends[0, p], ends[1, p] = table[LEVEL + c // 2, i], table[LEVEL + c // 2 + 1, i]
                below[i], above[i] = -np.inf, np.inf


def ends_of_paths(
    start: RefitStart, rows: Array, own: Index, slopes: Array, rates: Array
) -> tuple[Array, Array]:
    """The optimum without each of some terms, (K, d), and the theta of the terms near, (K, m).

    `rows` (K, d) are those of the terms that are left out, `own` their numbers among the terms
    near, -1 where they are not there, `slopes` their slopes, and `rates` how fast these grow with
    the margin.
    """
    paths = _begun(start, rows, own, slopes, rates)
    follow(start.A, start.table, paths, np.empty((2, start.A.shape[1])))
    X, theta = paths.lines[:, AT, :rows.shape[1]], paths.now[:, THETA]
    k, slot = np.nonzero(paths.slots >= 0)
    theta[k, paths.slots[k, slot]] = paths.lines[k, AT, rows.shape[1] + slot]
    bent, here = np.flatnonzero(start.losses.q > 0.0), np.flatnonzero(own >= 0)
    if len(bent):
        theta[:, bent] = start.losses.take(bent).slope(X @ start.A[:, bent])
    theta[here, own[here]] = 0.0
    return X, theta


def _begun(start: RefitStart, rows: Array, own: Index, slopes: Array, rates: Array) -> Paths:
    """Paths at their beginning."""
    K, d, D, E = len(rows), rows.shape[1], len(start.inverse), start.slots
    same: tuple[NDArray[Any], ...] = start.now, start.piece, start.slots, start.ends, start.inverse
    now, piece, slots, ends, inverse = (  # in the order of C, as compiled
        np.broadcast_to(part, (K, *part.shape)).copy() for part in same
    )
    begin, lines = np.ones((K, 2)), np.zeros((K, 4, D))
    here = np.flatnonzero(own >= 0)
    with np.errstate(divide="ignore"):
        begin[:, SLOT], begin[:, BEND] = -1.0, np.where(rates > 0.0, 1.0 / rates, -1.0)
    mine, q = own[here], start.table[CURVE, own[here]]
    begin[here, BEND] = np.where(start.piece[mine] % 2 == 1, q, -1.0)
    which, slot = np.nonzero(own[:, None] == np.where(E >= 0, E, -2))
    begin[which, SLOT] = slot
    piece[here, mine], now[here, BELOW, mine], now[here, ABOVE, mine] = -1, -np.inf, np.inf
    lines[:, PULL, :d] = slopes[:, None] * rows
    lines[:, STEP] = lines[:, PULL, :d] @ start.inverse[:d]
    lines[:, AT, :d] = start.x
    lines[:, AT, d:][:, E >= 0] = start.now[THETA, E[E >= 0]]
    return Paths(now, piece, slots, ends, inverse, rows.copy(), lines, begin)


PATHS = CompileClock(3.0)
"""Of `follow`, against any other refits. Measured: 2 to 3 CPU seconds."""


def along_paths(problem: Problem) -> bool:
    """Whether refits of `problem` along paths need not wait for a compiler, or waited enough."""
    return (PATHS.due or at_hand(follow)) and compiled_path(problem, "auto", many=True)


def at_once(problem: Problem) -> int:
    """How many refits of `problem` make a block."""
    d = problem.d
    return min(max(AT_ONCE // (4 * d * d + 5 * max(NEAR * d, FEWEST)), FEW), MANY)


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
    return next((at for share in AT_END if (at := _optimum(solution, share)) is not None), None)


def _optimum(solution: Solution, share: float) -> Optimum | None:
    """The same, slopes within that share of an end of their box taken to be there."""
    problem, f = solution.problem, solution.problem.losses
    theta, d = solution.theta.copy(), problem.d
    low = np.where((f.e > 0.0) & (theta > 0.0), 0.0, f.lo)
    high = np.where((f.e > 0.0) & (theta < 0.0), 0.0, f.hi)
    with np.errstate(invalid="ignore"):
        width = np.minimum(high - low, np.abs(theta) + 1.0)
        theta = np.where(theta - low <= share * width, low, theta)
        theta = np.where(high - theta <= share * width, high, theta)
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


class ByWeights:
    """Refits without single terms by the solver of any weightings; a `Solver`."""

    rounds = 1

    def __init__(self, solver: Replicates) -> None:
        self.solver, self.near = solver, np.zeros(0, dtype=np.intp)

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None while it is not compiled."""
        problem, shift = self.solver.problem, _shift(self.solver.problem, len(index))
        if not together(problem):
            return None
        with PATHS.rent():
            X, gap, ok = self.solver.solve(LeftOut(index, problem.n), shift)
        return _proofs(problem, index, X, gap, ok, shift)


class AlongPaths:
    """Refits without single terms along the paths of their slopes; a `Solver`.

    Parameters
    ----------
    solver : Replicates
        Of the solution at `at`.
    at : Optimum
    """

    rounds = ROUNDS

    def __init__(self, solver: Replicates, at: Optimum) -> None:
        self.problem, self.around, self.tol, self.at = solver.problem, solver.around, solver.tol, at
        nth = min(max(NEAR * self.problem.d, FEWEST), self.problem.n - 1)
        self.least = max(float(np.partition(self.around.room, nth)[nth]), 0.0)
        self.near = np.flatnonzero(~stays_around(self.around, self.least))
        self.start = RefitStart.of(self.problem, self.around, at, self.near)

    def without(self, index: Index, near: Index) -> LeftOutProofs:
        """See `Solver`; what has `moved` is near a kink within the reach of the refuted answers."""
        problem, around, shift = self.problem, self.around, _shift(self.problem, len(index))
        start = self.start if near is self.near else RefitStart.of(problem, around, self.at, near)
        m, own = len(near), np.searchsorted(near, index)
        own = np.where((own < m) & (near[np.minimum(own, m - 1)] == index), own, -1)
        gone = problem.design.dense(index), own, around.slopes[index], around.rates[index]
        X, theta = ends_of_paths(start, *gone)
        found = certify_weightings(
            problem, around, LeftOut(index, problem.n), X, near, theta, tol=self.tol, shift=shift
        )
        proofs = _proofs(problem, index, X, found.gap, found.ok, shift)
        if proofs.ok.all():
            return proofs
        reach = max(WIDER * around.distance(X[~proofs.ok]), self.least)
        return proofs._replace(moved=np.flatnonzero(~stays_around(around, reach)))


def _shift(problem: Problem, count: int) -> Array | None:
    """Room for how far the unpenalised coordinate of each answer may be off, if there is one."""
    return np.zeros(count) if problem.quadratic.free.any() else None


def _proofs(
    problem: Problem, index: Index, X: Array, gap: Array, ok: NDArray[np.bool_],
    shift: Array | None,
) -> LeftOutProofs:
    """Where the margins of the terms at `index` are, from answers without them."""
    d, rows = problem.d, problem.design.dense(index)
    margins = np.einsum("kj,kj->k", rows, X)
    n_i = problem.norms[index] * (1.0 + gamma(d + 8))
    error = n_i * np.sqrt(2.0 * up(1.0) * gap) * up(1.0, 16)
    if shift is not None:
        error = error + up(1.0) * np.abs(problem.free_columns[index, 0]) * shift
    rounding = up(1.0) * gamma(d + 8) * np.linalg.norm(X, axis=1)
    error = error + rounding * problem.sizes[index]
    return LeftOutProofs(margins, error, gap, ok & np.isfinite(error), np.zeros(0, dtype=np.intp))


def row_solvers(solution: Solution, tol: float) -> list[ByWeights | AlongPaths]:
    """The solvers of refits of rows with few coordinates, to `tol`, one after the other.

    Where the pieces of the solution are not those of the optimum there are no paths; for what these
    leave uncertified, too, refits go through `cvxscreen.data_changes.bootstrap.Replicates`, if that
    is compiled or has been waited for.
    """
    at: Optimum | None = None
    if along_paths(solution.problem):
        finer = partial(refit, solution, solution.problem, solution.theta, FINER, "certified")
        at = optimum(solution) or optimum(finer())
    if at is None:
        return [ByWeights(Replicates(solution, tol))]
    solver = Replicates(replace(solution, x=at.x, theta=at.theta), tol)
    return [AlongPaths(solver, at), ByWeights(solver)]
