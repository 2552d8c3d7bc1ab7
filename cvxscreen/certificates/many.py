"""Certificates of many answers over the same rows: along C, and at neighbouring quantile levels.

`certify_many` makes those of a path over C, from two compiled passes a point; its dual points are
kept packed, as most slopes are 0 or an end of their box. `certify_levels` makes those of a path
over tau, and `certify_lassos` those of a lasso over C, all in one pass over the data (proofs:
``docs/theory.md``, section 9, and below).

Nothing is taken from the code that finds the points: neither margins nor sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import compiled, read_only, unsigned
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import each
from cvxscreen._support.validation import array, finite, one_of, positive
from cvxscreen.certificates.certificate import (
    ENOUGH,
    EPS,
    Certificate,
    Residual,
    certify,
    columns,
    compiled_endless_above,
    compiled_gap_above,
    compiled_steepness,
    compiled_value_above,
    nearby_cost,
    taken_up,
)
from cvxscreen.core.lasso import Lasso
from cvxscreen.core.losses import Codes, Losses, LossTerms, Piece
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.designs.rows import FILLED, Rows, column_squares
from cvxscreen.errors import InvalidInput

if TYPE_CHECKING:
    pass


Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ZERO, LOW, HIGH, OTHER = 0, 1, 2, 3
"""What a code says: slope 0, ``lo``, ``hi``, or the next number of the pool."""


@compiled(allocates=False)
def unpack(codes, pool, first, lo, hi, factor, out):  # type: ignore[no-untyped-def]
    """Write a dual point to `out`; its own numbers begin at ``pool[first]``. Returns their end."""
    for i in range(codes.size):
        code = codes[i]
        out[i] = (lo[i] if code == 1 else hi[i] if code == 2 else 0.0) * factor
    p = first
    for i in range(codes.size):
        if codes[i] == 3:
            out[i] = pool[p]
            p += 1
    return p


class PackedSlopes(Immutable):
    """K dual points of one table of losses, at K multiples of it.

    Attributes
    ----------
    lo, hi : array, shape (n,)
        The boxes at factor 1.
    factors : array, shape (K,)
    codes : array of int8, shape (K, n)
    pool : array
        The slopes coded OTHER, point after point.
    first : array of int64, shape (K,)
        Where those of each point begin.
    """

    lo: Array
    hi: Array
    factors: Array
    codes: NDArray[np.int8]
    pool: Array
    first: NDArray[np.int64]

    @classmethod
    def of(cls, theta: Array, losses: LossTerms, factors: Array) -> PackedSlopes:
        """Plain dual points, shape (K, n), as they are."""
        K, n = theta.shape
        codes = np.full((K, n), OTHER, dtype=np.int8)
        return cls(losses.lo, losses.hi, factors, codes, theta.ravel(), n * np.arange(K))

    def __len__(self) -> int:
        return len(self.codes)

    def row(self, k: int) -> Array:
        """Dual point k, shape (n,)."""
        codes, out = self.codes[k], np.zeros(self.codes.shape[1])
        np.multiply(self.lo, self.factors[k], out=out, where=codes == LOW)
        np.multiply(self.hi, self.factors[k], out=out, where=codes == HIGH)
        other = codes == OTHER
        first = int(self.first[k])
        out[other] = self.pool[first:first + np.count_nonzero(other)]
        return out

    def times(self, factor: float, losses: LossTerms) -> PackedSlopes:
        """The first dual point times `factor`, as slopes of `losses`, which are larger by that."""
        other = self.codes[0] == OTHER
        first = int(self.first[0])
        pool = factor * self.pool[first:first + int(other.sum())]
        pool = np.clip(pool, losses.lo[other], losses.hi[other])
        return PackedSlopes(
            losses.lo, losses.hi, np.ones(1), self.codes[:1], pool, np.zeros(1, dtype=np.int64)
        )

    def head(self, count: int) -> PackedSlopes:
        """The slopes of the first `count` points."""
        return PackedSlopes(
            self.lo, self.hi, self.factors[:count], self.codes[:count], self.pool,
            self.first[:count],
        )


# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.98 to 1.01 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
WIDTH = 256
"""Coordinates up to which the passes over dense blocks are used; beyond, dense rows are certified
singly, sparse ones multiplied as they are stored."""

BLOCK, ROWS = 2**16, 256
"""Numbers of the data that the passes take at a time, and the fewest rows."""

BLOCKS = 16
"""So many of these each thread takes at a time."""

TAKERS = 64
"""Terms inside their box that are asked to balance a dual point before all are."""


class TermBlock(NamedTuple):
    """Terms next to each other, as the passes take them.

    Attributes
    ----------
    A : array, shape (d, n)
        Their rows as columns.
    sizes, norms : array, shape (n,)
        Their lengths: Euclidean, for rounding, and in the metric of ``M^{-1}``.
    b, e, q, lo, hi : array, shape (n,)
        The losses at factor 1 (`cvxscreen.core.losses`).
    """

    A: Array
    sizes: Array
    norms: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, A: Array, problem: Problem, rows: Any) -> TermBlock:
        """Some rows of a problem, whose A is given."""
        own = (problem.sizes, problem.norms, *columns(problem.losses))
        return cls(A, *read_only(*(column[rows] for column in own)))


class PackedPoints(NamedTuple):
    """K points along C.

    Attributes
    ----------
    X : array, shape (K, d)
    factors : array, shape (K,)
        C of each over that of the table of losses.
    pool : array
        The slopes that are neither 0 nor an end of their box.
    free : int
        The unpenalised coordinate, -1 without one.
    forward : float
        Relative rounding of a margin.
    curved, endless : bool
        Whether any loss has a parabola, a slope without end.
    """

    X: Array
    factors: Array
    pool: Array
    free: int
    forward: float
    curved: bool
    endless: bool


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def sums(block, points, codes, place, room, out, At_theta):  # type: ignore[no-untyped-def]
    """Add the sums over a block of terms; one row a point.

    To `out`: value, gap, ``sum |theta| norm``, ``sum |theta a_free|``, and the count of slopes
    outside their box; to `At_theta` its ``A' theta``. `codes` (K, n) are those of the block, and
    `place` (K,), where its slopes begin in the pool, is moved on; `room` is four vectors over it.
    """
    A, b, e, q, lo, hi = block.A, block.b, block.e, block.q, block.lo, block.hi
    d, n = A.shape
    t, theta, curve, steep = room[0], room[1], room[2], room[3]
    for k in range(points.factors.size):
        factor, x = points.factors[k], points.X[k]
        if k == 0 or points.curved:
            for i in range(n):
                curve[i] = q[i] / factor
                steep[i] = compiled_steepness(curve[i])
        place[k] = unpack(codes[k], points.pool, place[k], lo, hi, factor, theta)
        length = 0.0
        for i in range(n):
            t[i] = 0.0
        for j in range(d):
            length += x[j] * x[j]
            total = 0.0
            for i in range(n):
                t[i] += x[j] * A[j, i]
                total += theta[i] * A[j, i]
            At_theta[k, j] += total
        unit_error = points.forward * np.sqrt(length)
        values, gap, load, size, outside = 0.0, 0.0, 0.0, 0.0, 0
        for i in range(n):
            low, high = lo[i] * factor, hi[i] * factor
            value = compiled_value_above(t[i], b[i], e[i], curve[i], low, high, steep[i])
            values += value
            error = unit_error * block.sizes[i]
            gap += compiled_gap_above(t[i], theta[i], error, value, b[i], e[i], curve[i], low, high)
            if points.endless:
                gap += compiled_endless_above(value, error, curve[i], low, high)
            load += abs(theta[i]) * block.norms[i]
            outside += not ((theta[i] >= low) & (theta[i] <= high))
        if points.free >= 0:
            for i in range(n):
                size += abs(theta[i] * A[points.free, i])
        out[k, 0] += values
        out[k, 1] += gap
        out[k, 2] += load
        out[k, 3] += size
        out[k, 4] += outside


@compiled()
def takers(block, points, codes, first, needed, distance, out):  # type: ignore[no-untyped-def]
    """The cheapest single term that can raise, and that can lower, ``sum_i a_i,free theta_i``.

    Where `out` is infinite it gets the larger of the two costs, which is that if a way is closed.
    """
    A, b, e, q, lo, hi = block.A, block.b, block.e, block.q, block.lo, block.hi
    norms, free = block.norms, points.free
    d, n = A.shape
    theta = np.empty(n)
    for k in range(points.factors.size):
        if out[k] < np.inf:
            continue
        factor = points.factors[k]
        unpack(codes[k], points.pool, first[k], lo, hi, factor, theta)
        up, down = np.inf, np.inf
        for i in range(n):
            t, s, size = 0.0, theta[i], abs(A[free, i])
            for j in range(d):
                t += points.X[k, j] * A[j, i]
            rise, fall = hi[i] * factor - s, s - lo[i] * factor
            rate = abs(t) + abs(b[i]) + e[i] + q[i] / factor * abs(s) + norms[i] * distance[k]
            if A[free, i] < 0.0:
                rise, fall = fall, rise
            if size > 0.0 and rise * size >= needed[k]:
                up = min(up, rate / size)
            if size > 0.0 and fall * size >= needed[k]:
                down = min(down, rate / size)
        out[k] = needed[k] * max(up, down) if needed[k] > 0.0 else 0.0


class Certificates(Immutable):
    """Certificates of many points, one number a point in each array, shape (K,).

    Attributes
    ----------
    gap, relative_gap, primal : array
        As in `Certificate`.
    tolerance : float
    """

    gap: Array
    relative_gap: Array
    primal: Array
    tolerance: float

    @property
    def ok(self) -> Mask:
        """Which points are within the tolerance."""
        return self.relative_gap <= self.tolerance

    def __len__(self) -> int:
        return len(self.gap)


def certify_many(
    problem: Problem,
    values: ArrayLike,
    X: ArrayLike,
    theta: ArrayLike | PackedSlopes,
    *,
    tol: float = 1e-6,
) -> Certificates:
    """Recompute the optimality of a point at every C, on all of `problem`.

    Parameters
    ----------
    problem : Problem
        At any C.
    values : array_like, shape (K,)
        The values of C.
    X : array_like, shape (K, d)
    theta : array_like, shape (K, n), or PackedSlopes
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificates
        Each as valid as that of `certify` on ``problem.with_(C=value)``: the same formulas, but no
        margin is recomputed in extended precision. A point that this leaves outside the tolerance
        is given to `certify` itself (as is every point of a problem with side constraints, a
        penalty, a quadratic term that is no diagonal, many dense columns, or no rows in memory).

    Raises
    ------
    InvalidInput
        On wrong shapes.
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    C, tol = finite("values", values), positive("tol", tol)
    if C.ndim != 1 or C.min(initial=np.inf) <= 0.0:
        raise InvalidInput(
            f"`values` has shape {C.shape} and goes down to {C.min(initial=np.inf):g}; a "
            "non-empty list of positive values of C is needed."
        )
    points, factors = np.ascontiguousarray(array("X", X)), C / problem.C
    if not isinstance(theta, PackedSlopes):
        given = array("theta", theta)
        shape = given.shape
        if given.ndim == 2:
            theta = PackedSlopes.of(np.ascontiguousarray(given), problem.losses, factors)
    if isinstance(theta, PackedSlopes):
        shape = theta.codes.shape
    if (
        not isinstance(theta, PackedSlopes)
        or points.shape != (len(C), problem.d)
        or shape != (len(C), problem.n)
    ):
        raise InvalidInput(
            f"`X` {points.shape} and `theta` {shape} must have shapes ({len(C)}, {problem.d}) and "
            f"({len(C)}, {problem.n})."
        )
    gap, primal = _gaps(problem, factors, points, theta)
    relative = relative_gap(gap, primal)
    for k in (~(relative <= tol)).nonzero()[0]:
        proof = certify(problem.with_(C=float(C[k])), points[k], theta.row(int(k)), tol=tol)
        gap[k], primal[k] = proof.gap, proof.primal
        relative[k] = proof.relative_gap if proof.ok else max(proof.relative_gap, 2.0 * tol)
    return Certificates(gap, relative, primal, tol)


def _gaps(
    problem: Problem, factors: Array, points: Array, theta: PackedSlopes
) -> tuple[Array, Array]:
    """``(gap, primal)`` of every point, shape (K,) each, by the passes; infinite gaps without."""
    plain = problem.side is None and problem.quadratic.matrix is None and problem.penalty is None
    if plain and isinstance(problem.design, Rows) and len(problem.free_index) <= 1:
        if problem.design.filled >= FILLED and problem.d <= WIDTH:
            return _sums(problem, factors, points, theta)
        if problem.design.sparse:
            return _stored_sums(problem, factors, points, theta)
    return np.full(len(factors), np.inf), np.full(len(factors), np.nan)


def _sums(
    problem: Problem, factors: Array, points: Array, theta: PackedSlopes
) -> tuple[Array, Array]:
    """``(gap, primal)`` of every point, shape (K,) each; infinite gaps where slopes leave a box."""
    free = int(problem.free_index[0]) if len(problem.free_index) else -1
    design = cast(Rows, problem.design)
    rows = min(max(ROWS, BLOCK // problem.d), problem.n)
    endless = problem.losses.ends("lo")[0] < -1e300 or problem.losses.ends("hi")[1] > 1e300
    # That of sparse rows counts their own entries, in their own order.
    factor = EPS * (problem.d + 4) if design.sparse else design.forward_factor
    curved = problem.losses.ends("q")[1] > 0.0
    (pool,) = read_only(theta.pool)
    all_points = PackedPoints(points, factors, pool, free, float(factor), curved, endless)
    parts = [slice(start, min(start + BLOCKS * rows, problem.n))
             for start in range(0, problem.n, BLOCKS * rows)]
    only: list[TermBlock] = []

    def own_numbers(part: slice) -> NDArray[np.int64]:
        return np.count_nonzero(theta.codes[:, part] == OTHER, axis=1)

    def add(part: slice, place: NDArray[np.int64]) -> tuple[Array, Array]:
        """The sums over a part; a block of it stays in the cache while points pass over it."""
        out, At_theta = np.zeros((len(factors), 5)), np.zeros_like(points)
        room = np.empty((4, rows))
        for start in range(part.start, part.stop, rows):
            terms = slice(start, min(start + rows, part.stop))
            A = np.empty((problem.d, terms.stop - start))
            design.dense(terms, A.T)
            codes = np.ascontiguousarray(theta.codes[:, terms])  # of one type, compiled once
            block = TermBlock.of(A, problem, terms)
            sums(block, all_points, codes, place, room, out, At_theta)
            if terms.stop - start == problem.n:
                only.append(block)
        return out, At_theta

    if len(parts) == 1:
        out, At_theta = add(parts[0], theta.first.copy())
    else:
        places = np.cumsum([theta.first, *each(own_numbers, parts[:-1])], axis=0)
        found = each(lambda share: add(*share), list(zip(parts, places, strict=True)))
        out, At_theta = (np.sum(some, axis=0) for some in zip(*found, strict=True))
    return gaps_of_sums(
        problem, out, points, At_theta, EPS * (problem.n + 8),
        lambda needed, distance: _moves(problem, all_points, theta, needed, distance, *only),
    )


class StoredRows(NamedTuple):
    """CSR rows ``scale_i [x_i, extra_i]`` and their losses.

    Attributes
    ----------
    start : array of int, shape (n + 1,)
    indices : array of unsigned int
    data : array of float
    scale, sizes, norms, b, e, q, lo, hi : array, shape (n,)
        The last seven as in `TermBlock`.
    extra : array, shape (n, k)
    """

    start: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    scale: Array
    extra: Array
    sizes: Array
    norms: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, problem: Problem) -> StoredRows:
        """The rows and losses of `problem`, as views of what it stores."""
        design = cast(Rows, problem.design)
        matrix = design.matrix
        start, indices = unsigned(matrix.indptr, matrix.indices)
        scale = np.ones(problem.n) if design.scale is None else design.scale
        rest = (problem.sizes, problem.norms, *columns(problem.losses))
        return cls(*read_only(start, indices, matrix.data, scale, design.extra, *rest))


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def stored_sums(rows, x, theta, factor, forward, t, At_theta, out):  # type: ignore[no-untyped-def]
    """`sums` of one point over all rows as they are stored.

    `t` and `At_theta` get the margins and ``A' theta``; `out` what that of `sums` does, but for
    ``sum |theta a_free|``.
    """
    n, d = t.size, x.size
    first = d - rows.extra.shape[1]
    length = 0.0
    for j in range(d):
        length += x[j] * x[j]
        At_theta[j] = 0.0
    unit_error = forward * np.sqrt(length)
    values, gap, load, outside = 0.0, 0.0, 0.0, 0
    for i in range(n):
        low, high, curve = rows.lo[i] * factor, rows.hi[i] * factor, rows.q[i] / factor
        b, e, s, scale, margin = rows.b[i], rows.e[i], theta[i], rows.scale[i], 0.0
        for p in range(rows.start[i], rows.start[i + 1]):
            margin += rows.data[p] * x[rows.indices[p]]
        for k in range(d - first):
            margin += rows.extra[i, k] * x[first + k]
        margin *= scale
        if s != 0.0:
            for p in range(rows.start[i], rows.start[i + 1]):
                At_theta[rows.indices[p]] += scale * s * rows.data[p]
            for k in range(d - first):
                At_theta[first + k] += scale * s * rows.extra[i, k]
        t[i], error = margin, unit_error * rows.sizes[i]
        value = compiled_value_above(margin, b, e, curve, low, high, compiled_steepness(curve))
        values += value
        gap += compiled_gap_above(margin, s, error, value, b, e, curve, low, high)
        if low < -1e300 or high > 1e300:
            gap += compiled_endless_above(value, error, curve, low, high)
        load += abs(s) * rows.norms[i]
        outside += not ((s >= low) & (s <= high))
    out[0], out[1], out[2], out[4] = values, gap, load, outside


def _stored_sums(
    problem: Problem, factors: Array, X: Array, theta: PackedSlopes
) -> tuple[Array, Array]:
    """What `_sums` makes, of rows that are multiplied as they are stored."""
    rows, forward = StoredRows.of(problem), float(cast(Rows, problem.design).forward_factor)
    K, free, (_, _, q, lo, hi) = len(X), problem.free_columns, columns(problem.losses)
    out, room, At_theta = np.zeros((K, 5)), np.empty((K, problem.n)), np.empty((K, problem.d))
    for k in range(K):
        slopes = theta.row(k)
        stored_sums(rows, X[k], slopes, factors[k], forward, room[k], At_theta[k], out[k])
        if free.shape[1]:
            out[k, 3] = float(np.abs(free[:, 0]) @ np.abs(slopes))

    def moves(needed: Array, distance: Array) -> Array:
        cost = np.zeros(K)
        for k in np.flatnonzero(needed > 0.0):
            s, factor = theta.row(int(k)), factors[k]
            rate = np.abs(room[k]) + np.abs(rows.b) + rows.e + rows.norms * distance[k]
            rate += q / factor * np.abs(s)
            cost[k] = taken_up(free[:, 0], hi * factor - s, s - lo * factor, rate, needed[k])
        return cost

    return gaps_of_sums(problem, out, X, At_theta, EPS * (problem.n + 8), moves)


class ProblemConstants(NamedTuple):
    """What a problem and its rounding add to every certificate.

    Attributes
    ----------
    constant, drift, imbalance : float
        As in `Problem`.
    rounding : float
        What a unit of ``sum |theta| norm`` may be off by.
    sums : float
        Relative rounding of a sum over all terms.
    """

    constant: float
    drift: float
    imbalance: float
    rounding: float
    sums: float


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def totals(X, At_theta, diagonal, linear, sums, fixed, out):  # type: ignore[no-untyped-def]
    """What a point's certificate consists of, from its `sums` over the terms; a row of `out` each.

    The value; the gap but for the balance, infinite where slopes leave their box; what has to be
    balanced; the distance from ``x_theta`` in the metric of M.
    """
    for k in range(len(X)):
        form, apart, reach, off = 0.0, 0.0, 0.0, 0.0
        for j in range(len(linear)):
            own, M, x = At_theta[k, j] + linear[j], diagonal[j], X[k, j]
            form += x * (0.5 * M * x + linear[j])
            if M > 0.0:
                apart += (M * x + own) * (M * x + own) / M
                reach += own * own / M
            else:
                off = own
        distance = np.sqrt(apart) + fixed.rounding * sums[k, 2] + fixed.drift
        distance += 8.0 * EPS * np.sqrt(reach)
        distance *= 1.0 + (len(linear) + 8) * EPS  # of the sums
        gap = sums[k, 1] * (1.0 + fixed.sums) + 0.5 * distance * distance
        out[k, 0] = sums[k, 0] + form + fixed.constant
        out[k, 1] = gap if sums[k, 4] == 0.0 and gap < np.inf else np.inf
        out[k, 2] = (abs(off) + fixed.imbalance + fixed.rounding * sums[k, 3]) * (1.0 + 1e-6)
        out[k, 3] = distance


def gaps_of_sums(
    problem: Problem, sums: Array, X: Array, At_theta: Array, rounding: float,
    moves: Callable[[Array, Array], Array],
) -> tuple[Array, Array]:
    """``(gap, primal)`` of every point from the sums over its terms, by the module's formula.

    `At_theta` has shape (K, d); `rounding` is what a unit of ``sum |theta| norm`` may be off by;
    ``moves(needed, distance)`` is what it costs to balance.
    """
    fixed = ProblemConstants(
        problem.constant, float(problem.drift), float(problem.imbalance), rounding,
        problem.n * EPS,
    )
    out, form = np.empty((len(X), 4)), problem.quadratic
    X, At_theta = np.ascontiguousarray(X), np.ascontiguousarray(At_theta)
    totals(X, At_theta, form.diagonal, problem.linear, sums, fixed, out)
    primal, gap, needed, distance = np.ascontiguousarray(out.T)
    if len(problem.free_index):
        gap += moves(needed, distance)
        gap[~np.isfinite(gap)] = np.inf
    return gap, primal


def _moves(
    problem: Problem, points: PackedPoints, theta: PackedSlopes, needed: Array, distance: Array,
    whole: TermBlock | None = None,
) -> Array:
    """What it costs to balance each dual point by a single term, shape (K,).

    By one of those inside their box where these have the room, which mostly they have; else by the
    cheapest of all, which `whole` holds where they were one block.
    """
    factors = points.factors
    f, moves = columns(problem.losses), np.full(len(factors), np.inf)
    for k, factor in enumerate(factors if problem.n * problem.d > BLOCK else ()):
        rows = np.flatnonzero(theta.codes[k] == OTHER)
        s = theta.pool[theta.first[k]:theta.first[k] + len(rows)]
        room = np.minimum(s - f[3][rows] * factor, f[4][rows] * factor - s)
        inside = np.flatnonzero(room > 0.0)[:TAKERS]
        if len(inside):
            rows, s = rows[inside], s[inside]
            A = np.ascontiguousarray(problem.design.dense(rows).T)
            codes, first = np.full((1, len(rows)), OTHER, np.int8), np.zeros(1, np.int64)
            one = slice(k, k + 1)
            (pool,) = read_only(s)
            here = points._replace(X=points.X[one], factors=factors[one], pool=pool)
            block = TermBlock.of(A, problem, rows)
            takers(block, here, codes, first, needed[one], distance[one], moves[one])
    if whole is None and np.isinf(moves).any():
        A = np.ascontiguousarray(problem.design.dense().T)
        whole = TermBlock.of(A, problem, slice(None))
    if whole is not None:
        codes = np.ascontiguousarray(theta.codes)
        takers(whole, points, codes, theta.first, needed, distance, moves)
    return moves


# -- neighbouring quantile levels ------------------------------------------------------------------
#
# Between neighbouring levels most terms stay on one side of their kink, and have the slope of that
# side at all of them: ``h_i w_i - tau w_i``, ``h_i`` 1 where a term rises and 0 where it falls.
# Their ``A' theta`` at every level are two sums (`codes` says which side). The slopes of the other
# terms are given level by level. Of a term on its side the Fenchel-Young term is 0; where rounding
# leaves the side open it is charged with the whole jump of the slope times the rounding of the
# margin, and where the margin is on the other side nothing is certified. Of the others it is
#
#     f(t) + f*(theta) - t theta = (hi - theta) (t - b)    where t > b,
#                                  (theta - lo) (b - t)    where t < b.
#
# What is left of ``A' theta``, rounding included, has to be taken up by slopes inside their
# intervals (`nearby_cost`); objectives are summed from all terms.


def certify_levels(
    problem: Problem, codes: Codes, levels: Array, X: Array, theta: Array, *, tol: float
) -> tuple[list[Certificate], Array, Array]:
    """Certificates of a quantile regression at K levels.

    Parameters
    ----------
    problem : Problem
        Pinball losses alone over rows, nothing else, at any level.
    codes : array, shape (n,)
        `Piece.LOW` or `Piece.HIGH`, the side of a term at all levels; -1 for the others.
    levels : array, shape (K,)
    X : array, shape (K, d)
        A point for each level.
    theta : array, shape (K, m)
        The slopes of the others, those of the first level first.
    tol : float
        Relative gap asked for.

    Returns
    -------
    list of Certificate
        Up to the first level that is not certified.
    array, shape (2, n)
        The margins at the last two levels (at one, where there is but one).
    array, shape (K, d)
        ``A' theta``.
    """
    f, design, sizes = problem.losses, cast(Rows, problem.design), problem.sizes
    K, kept, weight = len(levels), np.flatnonzero(codes < 0), f.hi - f.lo
    fixed, high = codes >= 0, codes == Piece.HIGH
    # Of a margin by its product, and of its difference from b.
    length = float(np.linalg.norm(X, axis=1).max()) * (1.0 + (problem.d + 8) * EPS)
    error = 8.0 * EPS * np.abs(f.b) + (design.forward_factor + 16.0 * EPS) * length * sizes
    clear = np.where(high, error, -error)
    last, others = np.empty((min(K, 2), problem.n)), np.empty((K, len(kept)))
    sums = dict[int, Array]()  # by the first row, the same whatever the threads

    def look(rows: slice, t: Array) -> Array:
        w, mine, side = weight[rows], fixed[rows], high[rows]
        last[:, rows] = t[-2:]
        t -= f.b[rows]
        at = slice(*np.searchsorted(kept, (rows.start, rows.stop)))
        others[:, at] = t[:, kept[at] - rows.start]
        wrong = charge = np.zeros(K)
        unsure = (t > clear[rows]) != side
        unsure &= mine
        if unsure.any():
            near = np.abs(t) <= error[rows]
            wrong, charge = (unsure & ~near).any(axis=1), (unsure & near) @ (w * error[rows])
        total = t @ w
        np.maximum(t, 0.0, out=t)
        sums[rows.start] = np.array([wrong, charge, total, t @ w])
        slopes = np.zeros((K + 2, len(w)))
        slopes[0], slopes[1] = w * side, w * mine
        slopes[2:, kept[at] - rows.start] = theta[:, at]
        return slopes

    adjoints = design.both_ways(X, look)
    wrong, charge, total, rising = np.sum([sums[start] for start in sorted(sums)], axis=0)
    At_theta = adjoints[0] - levels[:, None] * adjoints[1] + adjoints[2:]
    # Three sums of slopes no longer than all weights, and what they are multiplied with.
    unsure = (3.0 * design.adjoint_factor + 16.0 * EPS) * (1.0 + 4.0 * (problem.n + 8) * EPS)
    unsure *= float(np.linalg.norm(weight))
    found: list[Certificate] = []
    for k, level in enumerate(map(float, levels)):
        lo, hi = -level * weight[kept], (1.0 - level) * weight[kept]
        below, above, z, off = theta[k] - lo, hi - theta[k], others[k], error[kept]
        if wrong[k] or (below < 0.0).any() or (above < 0.0).any():
            break
        primal = float(rising[k] - level * total[k]) + problem.constant
        fy = np.maximum(above * (z + off), below * (off - z))
        gap = float(np.maximum(fy, 0.0).sum() + charge[k]) * (1.0 + (problem.n + 64) * EPS)
        inside = np.flatnonzero((below > 0.0) & (above > 0.0))
        r = Residual(np.arange(problem.d), At_theta[k], unsure * problem.column_sizes)
        none, some = np.zeros(len(inside)), kept[inside]
        movable = replace(
            problem, design=design.take_rows(some),
            losses=Losses(f.b[some], none, none, lo[inside], hi[inside]),
        )
        gap += nearby_cost(
            movable, r, np.ones(problem.d, dtype=bool), np.zeros(problem.d),
            (theta[k, inside], z[inside] + f.b[some], off[inside]), 0.0,
            ENOUGH * tol * abs(primal),
        )
        relative = float(relative_gap(gap, primal))
        proof = Certificate(
            gap, relative, primal, primal - gap, 0.0, tol, relative <= tol,
            residual=float(r.above.max()),
        )
        if np.isinf(gap):  # as where fewer slopes than coordinates have room
            here = problem.with_(tau=level)
            whole = np.where(high, here.losses.hi, here.losses.lo)
            whole[kept] = np.clip(theta[k], lo, hi)
            proof = certify(here, X[k], whole, tol=tol)
        if not proof.ok or np.isfinite(proof.within):
            break
        found.append(proof)
    return found, last, At_theta


# -- a lasso along C or lambda ---------------------------------------------------------------------
#
# Of squares the Fenchel-Young term is ``c (t - b - theta / c)^2 / 2`` exactly. The slopes are those
# at x, c times the residuals r, made feasible: less ``rho c``, as if the intercept were another, so
# that they balance, and s times that, so that the slopes theta have ``|A_j' theta| <= kappa_j``:
#
#     P - D = sum_i c_i (r_i - s (r_i - rho))^2 / 2 + sum_j (kappa_j |w_j| + w_j A_j' theta)
#
# Only the first r is exact, the second is as it was computed. By Minkowski's inequality the first
# sum is at most ``((1 - s) |r| + |error of r| + |rho| |1|)^2 / 2`` in the norm of the weights c.


def certify_lassos(
    lasso: Lasso, factors: Array, norms: Array, X: Array, *, tol: float
) -> Certificates:
    """Certificates of a lasso at K values of C or lambda, in one pass over the data.

    Parameters
    ----------
    lasso : Lasso
    factors, norms : array, shape (K,)
        What its weights and its norm are multiplied by.
    X : array, shape (K, d)
        A point for each; its slopes are those of the squares at it, made feasible.
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificates
    """
    rows, b, c, kappa = lasso.rows, lasso.targets, lasso.weights, lasso.kappa
    (n, width), d, K = rows.shape, len(kappa), len(X)
    lengths = np.sqrt(rows.weighted_squares(np.ones(width)))
    columns_above = np.sqrt(column_squares(rows, np.ones(n)))[:d]
    reach = np.linalg.norm(X, axis=1) * rows.forward_factor
    sums = dict[int, Array]()  # by the first row, the same whatever the threads

    def look(at: slice, t: Array) -> Array:
        error = reach[:, None] * lengths[at] + 4.0 * EPS * (np.abs(t) + np.abs(b[at]))
        t -= b[at]
        slopes = c[at] * t
        sums[at.start] = np.array([
            np.einsum("ki,ki->k", slopes, t), np.square(error) @ c[at], slopes.sum(axis=1),
            np.abs(slopes).sum(axis=1), np.einsum("ki,ki->k", slopes, slopes),
        ])
        return slopes

    At_theta = rows.both_ways(X, look)[:, :d]
    squares, errors, total, load, size = np.sum([sums[at] for at in sorted(sums)], axis=0)
    more = 1.0 + 4.0 * (n + d + 64) * EPS  # of any of these sums, and of a root of them
    left, hidden, size = (more * np.sqrt(part) for part in (squares, errors, size))
    weight, rho = float(c.sum()), np.zeros(K)
    if lasso.intercept:
        rho = more * (np.abs(total) + rows.adjoint_factor * load) / weight
    off = rho[:, None] * (more * float(np.linalg.norm(c))) + rows.adjoint_factor * size[:, None]
    off = off * columns_above
    wall = kappa * (norms / factors)[:, None]  # the objective is divided by its factor meanwhile
    share = (wall / np.maximum((np.abs(At_theta) + off) * more, wall)).min(axis=1, initial=1.0)
    share *= 1.0 - 16.0 * EPS * (share < 1.0)
    w = np.abs(X[:, :d])
    norm = wall * more + share[:, None] * (np.sign(X[:, :d]) * At_theta + off)
    root = (1.0 - share + 8.0 * EPS) * left + hidden + rho * np.sqrt(weight)
    gap = factors * more * (0.5 * root * root + (w * np.maximum(norm, 0.0)).sum(axis=1))
    primal = factors * (0.5 * squares + (wall * w).sum(axis=1)) + lasso.problem.constant
    gap[~np.isfinite(gap)] = np.inf
    return Certificates(gap, relative_gap(gap, primal), primal, tol)
