"""Certificates of many answers over the same rows: along C, and under many weightings of the terms.

`certify_many` makes those of a path, from two compiled passes a point; its dual points are kept
packed, as most slopes are 0 or an end of their box. `certify_weightings` makes those of a
bootstrap, `LeftOutOfGram` those of kernel problems without single terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import compiled, read_only, unsigned
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import each
from cvxscreen._support.validation import array, finite, one_of, positive
from cvxscreen.certificates.certificate import (
    EPS,
    certify,
    columns,
    compiled_gap_above,
    endless_above,
    gap_above,
    relative_gap,
    steepness,
    taken_up,
    value_above,
)
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import FILLED, Rows
from cvxscreen.errors import InvalidInput

if TYPE_CHECKING:
    from cvxscreen.designs.gram import Gram

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


# The scalar formulas of a single certificate, which numpy runs on arrays, for the loops below.
_steepness = compiled(allocates=False, alone=False)(steepness)
_value_above = compiled(allocates=False, alone=False)(value_above)
_endless_above = compiled(allocates=False, alone=False)(endless_above)


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
                steep[i] = _steepness(curve[i])
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
            value = _value_above(t[i], b[i], e[i], curve[i], low, high, steep[i])
            values += value
            error = unit_error * block.sizes[i]
            gap += compiled_gap_above(t[i], theta[i], error, value, b[i], e[i], curve[i], low, high)
            if points.endless:
                gap += _endless_above(value, error, curve[i], low, high)
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
    return _totals(
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
        """Nothing is copied that is stored."""
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
        value = _value_above(margin, b, e, curve, low, high, _steepness(curve))
        values += value
        gap += compiled_gap_above(margin, s, error, value, b, e, curve, low, high)
        if low < -1e300 or high > 1e300:
            gap += _endless_above(value, error, curve, low, high)
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

    return _totals(problem, out, X, At_theta, EPS * (problem.n + 8), moves)


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


def _totals(
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


# -- one problem under many weightings of its terms -----------------------------------------------
#
# A bootstrap asks for the same terms with other counts, again and again. Around a common point x0
# most terms stay on one piece for all of the answers: linear, or a parabola with the slope
# ``s + (t - t0) / q`` at margin t. There the Fenchel-Young term is 0, and ``A' theta`` and the
# value follow from sums that are linear in the weights, matrix products for a block of weightings:
# of rows times slopes, and of the ``a a' / q`` of parabolas. Which terms these are is proven here,
# from margins at x0 made anew and the distance of the answers from it; every other term is looked
# at under each weighting.


class LeftOut(Immutable):
    """Weightings of n terms that leave out one each, and count the others once.

    They do what is asked of an array of weights, shape (K, n), without its K n numbers.

    Attributes
    ----------
    index : array of int, shape (K,)
    n : int
    """

    index: NDArray[np.intp]
    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, n)``: weightings and terms."""
        return len(self.index), self.n

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, chosen: Any) -> LeftOut:
        return LeftOut(self.index[chosen], self.n)

    def take(self, rows: NDArray[np.intp], axis: int = 1) -> Array:
        """The weights of the terms at `rows`, shape (K, m)."""
        return np.asarray(self.index[:, None] != rows, dtype=np.float64)

    def min(self, axis: int = 1) -> Array:
        """The smallest weight of each."""
        return np.zeros(len(self))


class Around(NamedTuple):
    """A point that many answers are near, and the pieces that the terms are on there.

    Attributes
    ----------
    x : array, shape (d,)
    slopes, rates : array, shape (n,)
        The slope of a term's piece at `x`, and how fast it grows with the margin: 0 on a linear
        piece, 1 / q on a parabola. Any slope in the box of the term; only those that prove to
        belong to a piece count.
    margins : array, shape (n,)
        At `x`.
    rows, columns : array, shape (n, d) and (d, n)
        The data, and its rows as columns.
    into, back : arrays, shape (d, d)
        A factor L of the curvature, and about ``L^{-T}``: distances are ``|L' v|``.
    room : array, shape (n,)
        How far from `x` (see `distance`) a term provably stays on its piece; negative where it is
        on none.
    below, above : array, shape (n,)
        Between which margins that is (`piece_of`).
    parts : array, shape (n, d + 5)
        The rows, each times its slope, then ``|slope| norm``, ``|slope a_free|``, ``f*(slope)``,
        which is minus the value where the line of the slope meets margin 0, and of parabolas
        ``rate |a|^2`` and how far the Fenchel-Young term may be from 0 by rounding.
    total : array, shape (d + 5,)
        The sums over all terms.
    place : array of int, shape (n,)
        Of a term on a parabola, its row in `hessians`; -1 elsewhere.
    hessians : array, shape (c, d (d + 1) / 2)
        ``rate a a'`` of the terms on a parabola, its lower triangle; no columns without any.
    hessian : array, shape (d (d + 1) / 2,)
        Their sum.
    """

    x: Array
    slopes: Array
    rates: Array
    margins: Array
    rows: Array
    columns: Array
    into: Array
    back: Array
    room: Array
    below: Array
    above: Array
    parts: Array
    total: Array
    place: NDArray[np.intp]
    hessians: Array
    hessian: Array

    @classmethod
    def at(
        cls, problem: Problem, x: Array, slopes: Array, curvature: Array | None = None
    ) -> Around:
        """Of dense rows.

        Distances are measured by the `curvature` of the objective, shape (d, d), positive definite:
        where features are correlated an optimum moves far along what the margins hardly feel, and
        Euclidean balls around it would reach most kinks. They are Euclidean where it is omitted, or
        has no Cholesky factor. On a parabola the slope is that at the margin, not that of `slopes`.
        """
        A, losses, d = cast(Rows, problem.design).dense(), problem.losses, problem.d
        t, rates, curved, size = A @ x, np.zeros(problem.n), None, d * (d + 1) // 2
        slopes = np.asarray(slopes, dtype=np.float64)
        if losses.ends("q")[1] > 0.0:
            there, q = losses.slope(t), losses.q
            curved = (q > 0.0) & (there > losses.lo) & (there < losses.hi)
            curved &= (losses.e == 0.0) | (there != 0.0)
            if curved.sum() * size > MOST_ENTRIES:
                curved[:] = False
            slopes = np.where(curved, there, slopes)
            rates = np.where(curved, 1.0 / np.where(curved, q, 1.0), 0.0)
        into, back = _factor(np.eye(d) if curvature is None else curvature)
        below, above = piece_of(problem, slopes, curved)
        length = float(np.linalg.norm(x)) * (1.0 + 8.0 * EPS)
        t_error = problem.design.forward_factor * length * problem.sizes
        away = np.minimum(t - below, above - t) - 16.0 * EPS * np.abs(t) - 2.0 * t_error
        room = _room(problem, A, back, away)
        parts, steep, (b, e, q, *_) = np.empty((problem.n, d + 5)), np.abs(slopes), columns(losses)
        np.multiply(slopes[:, None], A, out=parts[:, :d])
        parts[:, d] = steep * problem.norms
        parts[:, d + 1] = np.abs(parts[:, problem.free_index]).sum(axis=1)
        parts[:, d + 2] = b * slopes + e * steep + 0.5 * q * slopes * slopes
        parts[:, d + 3:] = 0.0
        if curved is not None:
            off = 2.0 * t_error + 32.0 * EPS * (np.abs(t) + np.abs(b) + e + q * steep)
            parts[:, d + 3], parts[:, d + 4] = rates * problem.sizes**2, rates * off * off
        which = np.zeros(0, dtype=np.intp) if curved is None else np.flatnonzero(curved)
        place = np.full(problem.n, -1)
        place[which] = np.arange(len(which))
        hessians, B = np.empty((len(which), size if len(which) else 0)), A[which]
        for j in range(d if len(which) else 0):
            column = (rates[which] * B[:, j])[:, None]
            np.multiply(B[:, :j + 1], column, out=hessians[:, j * (j + 1) // 2:][:, :j + 1])
        return cls(x, slopes, rates, t, A, np.ascontiguousarray(A.T), into, back, room, below,
                   above, parts, parts.sum(axis=0), place, hessians, hessians.sum(axis=0))

    def slopes_at(self, rows: NDArray[np.intp], t: Array) -> Array:
        """The slopes that the pieces of some terms have at margins `t`, shape (K, m)."""
        return np.asarray(self.slopes[rows] + self.rates[rows] * (t - self.margins[rows]))

    def square(self, hessian: Array) -> Array:
        """Symmetric matrices, (K, d, d), whose lower triangles are the rows of `hessian`."""
        i, j = np.indices((self.x.size, self.x.size))
        low, high = np.minimum(i, j), np.maximum(i, j)
        return np.asarray(hessian[:, high * (high + 1) // 2 + low])

    def times_hessian(self, hessian: Array, V: Array) -> Array:
        """The matrix of each row of `hessian` times that of `V`, (K, d); 0 without columns."""
        if not hessian.shape[1]:
            return np.zeros_like(V)
        return np.asarray(np.einsum("kij,kj->ki", self.square(hessian), V))

    def distance(self, X: Array) -> float:
        """How far from `x` the farthest of `X`, shape (K, d), is at most.

        With ``u = L' v`` and P for `back`, ``|a' v| <= |P' a| |u| + |a| |v - P u|`` whatever P is.
        The last length is rounding; `room` leaves a share of ``|a|`` for it.
        """
        d = self.x.size
        v = X - self.x
        u = v @ self.into
        length, size = np.linalg.norm(u, axis=1), np.linalg.norm(self.back)
        rest = np.linalg.norm(v - u @ self.back.T, axis=1)
        rest += 2.0 * EPS * (d + 8) * (np.linalg.norm(v, axis=1) + size * length)
        far = np.maximum(length, rest / (_share(d) * size))
        return float(far.max(initial=0.0)) * (1.0 + EPS * (d + 16))

    def weighed(self, W: NDArray[Any] | LeftOut) -> Weighed:
        """`W` with the sums of `parts` and `hessians` under them.

        Of what one leaves out the sums that stand for rounding are no less: subtracting from a
        total has that of all terms.
        """
        d, curved = self.x.size, np.flatnonzero(self.place >= 0)
        if not isinstance(W, LeftOut):
            sums, hessian = np.zeros((len(W), d + 5)), np.zeros((len(W), self.hessians.shape[1]))
            for i in range(0, W.shape[1], COUNTED):  # counts are small numbers until they are used
                some = slice(i, i + COUNTED)
                sums += np.asarray(W[:, some], dtype=np.float64) @ self.parts[some]
            for i in range(0, len(curved), COUNTED):
                some = slice(i, i + COUNTED)
                own = np.asarray(W.take(curved[some], axis=1), dtype=np.float64)
                hessian += own @ self.hessians[some]
            return Weighed(W, sums[:, :d], sums[:, d:], hessian)
        sums, hessian = np.tile(self.total[d:], (len(W), 1)), np.tile(self.hessian, (len(W), 1))
        sums[:, 2] -= self.parts[W.index, d + 2]
        parabolic = np.flatnonzero(self.place[W.index] >= 0)
        hessian[parabolic] -= self.hessians[self.place[W.index[parabolic]]]
        return Weighed(W, self.total[:d] - self.parts[W.index, :d], sums, hessian)


COUNTED = 2048
"""Terms whose weights are made numbers of 8 bytes at a time: a block's stay in the cache."""

MOST_ENTRIES = 2**24
"""Most numbers of all ``rate a a'``, 128 MB; beyond, every term on a parabola is looked at."""


class Weighed(NamedTuple):
    """K weightings of n terms, and what these sum up to at the slopes of an `Around`.

    Attributes
    ----------
    weights : array, shape (K, n), or LeftOut
    At_theta : array, shape (K, d)
        ``A' theta`` with these slopes times the weights.
    sums : array, shape (K, 5)
        Of the last five columns of `Around.parts`.
    hessian : array, shape (K, d (d + 1) / 2)
        Of `Around.hessians`.
    """

    weights: NDArray[Any] | LeftOut
    At_theta: Array
    sums: Array
    hessian: Array

    def take(self, chosen: NDArray[np.intp]) -> Weighed:
        """Some of them; all are not copied."""
        if len(chosen) == len(self.weights):
            return self
        return Weighed(
            self.weights[chosen], self.At_theta[chosen], self.sums[chosen], self.hessian[chosen]
        )

    def looked_at(
        self, around: Around, rows: NDArray[np.intp], W: Array | None = None,
        A: Array | None = None,
    ) -> LookedAt:
        """The terms at `rows` by themselves, and the sums without them.

        `W` are their weights and `A` their rows as columns, where these are at hand.
        """
        if W is None or A is None:
            W = np.asarray(self.weights.take(rows, axis=1), dtype=np.float64)
            A = np.take(around.columns, rows, axis=1)
        parts, d = around.parts[rows], around.x.size
        own, place, hessian = W @ parts, around.place[rows], self.hessian
        curved = np.flatnonzero(place >= 0)
        if len(curved):
            hessian = hessian - W[:, curved] @ around.hessians[place[curved]]
        return LookedAt(
            rows, W, A, self.At_theta - own[:, :d], self.sums[:, 2] - own[:, d + 2], hessian,
        )


class LookedAt(NamedTuple):
    """Some terms, and the sums of all others on the pieces of an `Around`, under K weightings.

    Attributes
    ----------
    rows : array of int, shape (m,)
    W : array, shape (K, m)
    A : array, shape (d, m)
        Their rows as columns.
    At_theta, others : array, shape (K, d) and (K,)
        Of the other terms ``A' theta``, and the sum of the conjugate losses.
    hessian : array, shape (K, d (d + 1) / 2)
        Of the other terms.
    """

    rows: NDArray[np.intp]
    W: Array
    A: Array
    At_theta: Array
    others: Array
    hessian: Array


def _away(problem: Problem, s: Array, t: Array) -> Array:
    """How far margins `t` provably are inside the linear piece of slope s; negative on none."""
    below, above = piece_of(problem, s)
    return np.asarray(np.minimum(t - below, above - t) - 16.0 * EPS * np.abs(t))


def piece_of(problem: Problem, s: Array, curved: Mask | None = None) -> tuple[Array, Array]:
    """Between which margins slope s is that of a linear piece, rounded inward.

    From infinity to minus infinity where it is on none; of `curved` terms the ends of the parabola
    on which they have slope s.
    """
    b, e, q, lo, hi = columns(problem.losses)
    low, high = (s == lo) & np.isfinite(lo), (s == hi) & np.isfinite(hi)
    none = ~(low | high | (s == 0.0))
    with np.errstate(invalid="ignore"):
        below = np.where(high & ~low, b + e + q * hi, -np.inf)
        above = np.where(low, b - e + q * lo, np.inf)
        if curved is not None and curved.any():
            begins = b + e * np.sign(s)
            least = np.where((e > 0.0) & (s > 0.0), 0.0, q * lo)
            most = np.where((e > 0.0) & (s < 0.0), 0.0, q * hi)
    flat = s == 0.0
    below = np.where(flat, np.where(lo == 0.0, -np.inf, b - e), np.where(none, np.inf, below))
    above = np.where(flat, np.where(hi == 0.0, np.inf, b + e), np.where(none, -np.inf, above))
    if curved is not None and curved.any():
        below = np.where(curved, begins + least, below)
        above = np.where(curved, begins + most, above)
    knots = np.where(np.isfinite(lo), -lo, 0.0) + np.where(np.isfinite(hi), hi, 0.0)
    slack = 16.0 * EPS * (np.abs(b) + e + q * knots)
    return below + slack, above - slack


def _share(d: int) -> float:
    """Of ``|P| |a|``, that a row's length has room for: several times the rounding of ``P u``."""
    return 64.0 * EPS * (d + 8)


def _factor(curvature: Array) -> tuple[Array, Array]:
    """L with ``L L'`` the curvature, and about ``L^{-T}``; the identity where there is none."""
    try:
        into = np.asarray(np.linalg.cholesky(curvature), dtype=np.float64)
        back = np.asarray(np.linalg.inv(into).T, dtype=np.float64)
        if np.isfinite(into).all() and np.isfinite(back).all():
            return into, back
    except np.linalg.LinAlgError:
        pass
    return np.eye(len(curvature)), np.eye(len(curvature))


def _room(problem: Problem, A: Array, back: Array, away: Array) -> Array:
    """How far from x (`Around.distance`) each term provably stays on its piece.

    Its margin there is `away` from the ends. A row's length there is ``|P' a|``, and a share of
    ``|a|`` for what `Around.distance` rounds.
    """
    d, sizes, turned = problem.d, problem.sizes, A @ back
    lengths = np.sqrt(np.einsum("ij,ij->i", turned, turned))
    lengths += (_share(d) + EPS * (d + 8)) * float(np.linalg.norm(back)) * sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(lengths > 0, away / lengths, np.where(away > 0, np.inf, -1.0))
    # A negative distance is not made less so by the factor, and none is taken for a proof.
    return np.asarray(far * (1.0 - EPS * (d + 40)))


def stays_around(around: Around, distance: float) -> Mask:
    """Terms that are on their piece at all x with ``around.distance(x)`` so small; proven."""
    return np.asarray((around.room >= distance * (1.0 + 8.0 * EPS)) & (around.room > 0.0))


SIZE, NORM, B, E, Q, LO, HI, SLOPE, BELOW, ABOVE, CONJUGATE = range(11)
"""Rows of `Weighted.own`."""


class Weighted(NamedTuple):
    """The terms that are looked at, and the weightings.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    own : array, shape (11, m)
        The lengths of their rows, Euclidean and in the metric of ``M^{-1}``; b, e, q, lo, hi of
        their losses at weight 1; the slopes around, between which margins they are those of a
        linear piece (`piece_of`; of a parabola none is), and the conjugate loss of them.
    W, theta : array, shape (K, m)
        Weights, and slopes under them.
    """

    A: Array
    own: Array
    W: Array
    theta: Array


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def weighted_sums(block, margins, unit_errors, free, out):  # type: ignore[no-untyped-def]
    """Sums over the terms of a block, one row of `out` a weighting.

    Value, gap, ``sum |theta| norm``, ``sum |theta a_free|``, the count of slopes outside their box.
    `unit_errors`, shape (K,), are the rounding of a margin of a row of length 1. On the linear
    piece of its slope a term adds nothing to the gap, by Fenchel's equality; most are there still,
    and are not looked at any closer.
    """
    A, own = block.A, block.own
    for k in range(unit_errors.size):
        t, unit_error = margins[k], unit_errors[k]
        values, gap, load, size, outside = 0.0, 0.0, 0.0, 0.0, 0
        for i in range(own.shape[1]):
            w, theta = block.W[k, i], block.theta[k, i]
            if w == 0.0:  # without its loss a term has no slope
                outside += theta != 0.0
                continue
            load += abs(theta) * own[NORM, i]
            if free >= 0:
                size += abs(theta * A[free, i])
            error = unit_error * own[SIZE, i]
            tiny = error + 16.0 * EPS * abs(t[i])
            inside = (t[i] - tiny >= own[BELOW, i]) & (t[i] + tiny <= own[ABOVE, i])
            if inside & (theta == w * own[SLOPE, i]):
                values += theta * t[i] - w * own[CONJUGATE, i]
                continue
            low, high, q = own[LO, i] * w, own[HI, i] * w, own[Q, i] / w
            b, e = own[B, i], own[E, i]
            value = _value_above(t[i], b, e, q, low, high, _steepness(q))
            values += value
            gap += compiled_gap_above(t[i], theta, error, value, b, e, q, low, high)
            gap += _endless_above(value, error, q, low, high)
            outside += not ((theta >= low) & (theta <= high))
        out[k, 0], out[k, 1], out[k, 2], out[k, 3] = values, gap, load, size
        out[k, 4] = outside


@compiled(allocates=False)
def weighted_takers(  # type: ignore[no-untyped-def]
    block, margins, unit_error, needed, distance, free, out
):
    """What it costs to balance each dual point by the cheapest single term of a block.

    A slope s that moves by h adds ``(b + e sign(s) + q s - t) h + q h^2 / 2`` to its Fenchel-Young
    term, t the margin at the dual point's own x: next to nothing where t is at the kink.
    """
    A, own, m = block.A, block.own, block.A.shape[1]
    for k in range(out.size):
        up, down = np.inf, np.inf
        for both in (True, False):  # those with room both ways are few, and mostly enough
            for i in range(m):
                w, s = block.W[k, i], block.theta[k, i]
                rise, fall = own[HI, i] * w - s, s - own[LO, i] * w
                if both and not (rise > 0.0 and fall > 0.0):
                    continue
                size = abs(A[free, i])
                if A[free, i] < 0.0:
                    rise, fall = fall, rise
                fits_up, fits_down = rise * size >= needed[k], fall * size >= needed[k]
                if w == 0.0 or size == 0.0 or not (fits_up or fits_down):
                    continue
                step, q, t = needed[k] / size, own[Q, i] / w, margins[k, i]
                b, e = own[B, i], own[E, i]
                if abs(s) > step:
                    off = abs(b + e * np.sign(s) + q * s - t)
                else:  # its sign may change, and the kink of the conjugate be passed
                    off = abs(b + q * s - t) + e
                off += unit_error[k] * own[SIZE, i]
                off += 8.0 * EPS * (abs(b) + e + abs(q * s) + abs(t))
                rate = off + own[NORM, i] * distance[k] + 0.5 * q * step
                if fits_up:
                    up = min(up, rate / size)
                if fits_down:
                    down = min(down, rate / size)
            if max(up, down) < np.inf:
                break
        out[k] = needed[k] * max(up, down) if needed[k] > 0.0 else 0.0


@compiled(allocates=False)
def shifts(block, margins, unit_error, needed, distance, loose, free, out):  # type: ignore[no-untyped-def]
    """How far the unpenalised coordinate of an optimum may be from that of each answer, (K,).

    For slopes theta anywhere in their boxes, balanced or not, and ``s = sum_i a_i,free theta_i``

    ::

        (b* - b) s  <=  sum_i FY_i + 1/2 |x - x_theta|^2

    as the optimal value lies above ``D(theta) + b* s`` and below the value at x. So a dual point
    with s > 0 bounds b* from above, one with s < 0 from below: that of the answer, with one more
    term moved by about the root of the gap. The best term is chosen for either side.

    Parameters
    ----------
    unit_error, needed, distance, loose : array, shape (K,)
        Rounding of a margin of a row of length 1, bounds of ``|s|`` and of ``|x - x_theta|``, and
        of the right side, at the dual point as it is.
    """
    A, own, up = block.A, block.own, 1.0 + 64.0 * EPS
    for k in range(out.size):
        rises, falls = np.inf, np.inf
        for i in range(own.shape[1]):
            w, a, s, t = block.W[k, i], A[free, i], block.theta[k, i], margins[k, i]
            size, norm, b, e = abs(a), own[NORM, i], own[B, i], own[E, i]
            if w <= 0.0 or size == 0.0:
                continue
            q = own[Q, i] / w
            growth = norm * norm + q
            for sign in (1.0, -1.0):
                end = w * (own[HI, i] if sign > 0.0 else own[LO, i])
                if e > 0.0 and sign * s < 0.0:  # the conjugate has a kink at 0: no further
                    end = 0.0
                room = min(sign * (end - s) * (1.0 - 8.0 * EPS), 1e300)
                if not room > 0.0:
                    continue
                knot = b + e * (sign if s == 0.0 else np.sign(s)) + q * s
                off = abs(knot - t) + unit_error[k] * own[SIZE, i]
                off += 8.0 * EPS * (abs(b) + e + abs(q * s) + abs(t))
                step = room
                if growth > 0.0:
                    step = min(np.sqrt(2.0 * loose[k] / growth) + 2.0 * needed[k] / size, room)
                moved = size * step * (1.0 - 8.0 * EPS) - needed[k]
                if not moved > 0.0:
                    continue
                bound = (loose[k] + step * (off + distance[k] * norm + 0.5 * step * growth)) / moved
                if sign * a > 0.0:
                    rises = min(rises, bound)
                else:
                    falls = min(falls, bound)
        out[k] = up * max(rises, falls)


class Rest(NamedTuple):
    """All other terms, on the pieces of an `Around`, under K weightings.

    Attributes
    ----------
    At_theta, others : array, shape (K, d) and (K,)
        ``A' theta`` at the slopes around, and the sum of the conjugate losses of these.
    sums : array, shape (K, 5)
        As in `Weighed`: of all terms, which is no less.
    hessian : array, shape (K, d (d + 1) / 2)
        Of the terms on parabolas; no columns without any.
    """

    At_theta: Array
    others: Array
    sums: Array
    hessian: Array


def gaps_of_answers(
    problem: Problem, around: Around, block: Weighted, rest: Rest, X: Array,
    shift: Array | None = None,
) -> tuple[Array, Array]:
    """``(gap, primal)`` of each of the answers X, shape (K,), infinite where it is no number.

    `shift` is filled as by `certify_weightings`.
    """
    n, d, A, theta = problem.n, problem.d, block.A, block.theta
    free = int(problem.free_index[0]) if len(problem.free_index) else -1
    unit_error = margin_rounding(problem) * np.sqrt(np.square(X).sum(axis=1))
    out, margins = np.zeros((len(X), 5)), X @ A
    weighted_sums(block, margins, unit_error, free, out)
    # All other terms at the slopes of their pieces.
    At_theta = rest.At_theta + theta @ A.T
    out[:, 0] += np.einsum("kj,kj->k", rest.At_theta, X) - rest.others
    out[:, 2:4] += 3.0 * rest.sums[:, :2]
    if rest.hessian.shape[1]:
        # On a parabola the rounding of a slope counts with its square; that of the sum of products
        # is no more than of the sum of |theta| |a| with theta = rate |a| |v|.
        V = X - around.x
        of_parabolas = around.times_hessian(rest.hessian, V)
        At_theta = At_theta + of_parabolas
        away, stiff = np.linalg.norm(V, axis=1) * (1.0 + EPS * (d + 8)), rest.sums[:, 3]
        out[:, 0] += 0.5 * np.einsum("kj,kj->k", of_parabolas, V)
        out[:, 1] += 2.0 * (rest.sums[:, 4] + stiff * (16.0 * EPS * away) ** 2)
        load = (4.0 + 2.0 * (d + 8) / (n + 16)) * stiff * away
        out[:, 2] += load * float((problem.norms / np.maximum(problem.sizes, 1e-300)).max())
        out[:, 3] += load

    def moves(needed: Array, distance: Array) -> Array:
        if shift is not None:
            loose = out[:, 1] * (1 + n * EPS) + 0.5 * distance**2
            shifts(block, margins, unit_error, needed, distance, loose, free, shift)
        cost = np.empty(len(X))
        weighted_takers(block, margins, unit_error, needed, distance, free, cost)
        return cost

    return _totals(problem, out, X, At_theta, EPS * (n + 16), moves)


def margin_rounding(problem: Problem) -> float:
    """Relative rounding of a margin of dense rows."""
    return EPS * (problem.d + 4) if problem.design.sparse else float(problem.design.forward_factor)


def certify_weightings(
    problem: Problem,
    around: Around,
    W: NDArray[Any] | LeftOut | Weighed,
    X: Array,
    rows: NDArray[np.intp] | LookedAt,
    theta: Array,
    *,
    tol: float,
    shift: Array | None = None,
) -> Certificates:
    """Recompute the optimality of K answers, each under weights of its own, on all of the data.

    Parameters
    ----------
    problem : Problem
        Dense rows, a diagonal M, at most one unpenalised coordinate.
    around : Around
    W : array, shape (K, n), LeftOut, or what ``around.weighed`` makes of them
        Weights, not negative.
    X : array, shape (K, d)
    rows : array of int, shape (m,), or what ``Weighed.looked_at`` makes of it
        The terms whose slopes are given; every other one has that of its piece times its weight.
    theta : array, shape (K, m)
        Slopes under the weights.
    tol : float
        Relative gap asked for.
    shift : array, shape (K,), optional
        Filled with how far the unpenalised coordinate may be from that of an optimum (`shifts`).

    Returns
    -------
    Certificates
        As those of `certify` on each weighted problem, by the same formulas; no margin is computed
        in extended precision.
    """
    whole = W if isinstance(W, Weighed) else around.weighed(W)
    here = rows if isinstance(rows, LookedAt) else whole.looked_at(around, rows)
    look = ~stays_around(around, around.distance(X))
    look[here.rows] = False
    more = np.flatnonzero(look)
    if len(more):  # few of them have left their piece
        t = X @ np.take(around.columns, more, axis=1)
        least, most = t.min(axis=0), t.max(axis=0)
        lengths = np.linalg.norm(X, axis=1).max() + np.linalg.norm(around.x)
        tiny = margin_rounding(problem) * lengths * problem.sizes[more]
        tiny += 16.0 * EPS * np.maximum(np.abs(least), np.abs(most))
        left = (least - tiny < around.below[more]) | (most + tiny > around.above[more])
        more, t = more[left], t[:, left]
    if len(more):
        f = problem.losses
        slopes = np.clip(around.slopes_at(more, t), f.lo[more], f.hi[more])
        slopes *= np.asarray(whole.weights.take(more, axis=1))
        theta = np.hstack([theta, slopes])
        here = whole.looked_at(around, np.concatenate([here.rows, more]))
    theta = np.ascontiguousarray(theta)
    block = Weighted(here.A, looked_at_closer(problem, around, here.rows), here.W, theta)
    rest = Rest(here.At_theta, here.others, whole.sums, here.hessian)
    gap, primal = gaps_of_answers(problem, around, block, rest, X, shift)
    gap = np.where(whole.weights.min(axis=1) < 0, np.inf, gap)
    return Certificates(gap, relative_gap(gap, primal), primal, tol)


def looked_at_closer(problem: Problem, around: Around, rows: NDArray[np.intp]) -> Array:
    """`Weighted.own` of the terms at `rows`."""
    own = (column[rows] for column in (problem.sizes, problem.norms, *columns(problem.losses)))
    begins = np.where(around.rates[rows] > 0.0, np.inf, around.below[rows])
    pieces = around.slopes[rows], begins, around.above[rows], around.parts[rows, problem.d + 2]
    return np.array([*own, *pieces])


# -- kernels: one term left out of many ------------------------------------------------------------


class LeftOutProofs(NamedTuple):
    """What is certified about a block of answers, each without a term of its own.

    Attributes
    ----------
    margins, error : array, shape (K,)
        Of the term that is left out, and how far its margin at the optimum may be from that.
    gap, relative_gap : array, shape (K,)
        As in `Certificates`.
    ok : mask, shape (K,)
        Which gaps are within the tolerance.
    moved : array of int
        Terms that one of the others takes to be on a piece on which they are not.
    """

    margins: Array
    error: Array
    gap: Array
    relative_gap: Array
    ok: Mask
    moved: NDArray[np.intp]


class LeftOutOfGram:
    """Certificates of answers to a kernel problem without single terms.

    The primal point is that of the slopes, ``x = -A' theta``, so that the duality gap is the sum of
    the Fenchel-Young terms ``f_j(t_j) + f_j*(theta_j) - t_j theta_j``. The primal value exceeds the
    optimal one by at least ``1/2 |x - x*|^2``, the dual one falls short of it by as much, so the
    optimum is within ``sqrt(gap)`` of x. The margins of an answer are those at `theta` and the
    product of the Gram matrix with the slopes that changed. A term with its old slope whose margin
    stays inside the linear piece of that slope adds nothing: exactly, by Fenchel's equality.

    Parameters
    ----------
    problem : Problem
        With a kernel, no intercept, no linear part, a point of its own for every term.
    theta : array, shape (n,)
        Slopes that all answers are near.
    tol : float
        Relative gap asked for.

    Attributes
    ----------
    margins : array, shape (n,)
        At `theta`.
    """

    def __init__(self, problem: Problem, theta: Array, tol: float) -> None:
        design = cast("Gram", problem.design)
        x = -design.adjoint(theta)
        self.problem, self.theta, self.tol, self.design = problem, theta, tol, design
        self.margins = design.forward(x)
        self._error = design.forward_error(x, problem.sizes)
        self._away = _away(problem, theta, self.margins) - self._error
        b, e, q, _, _ = columns(problem.losses)
        self._conjugates = b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
        self._dual = -float(self._conjugates.sum()) - 0.5 * problem.quadratic.norm(x) ** 2

    def gram(self, rows: NDArray[np.intp], others: NDArray[np.intp]) -> Array:
        """``<a_i, a_j>`` for i in `rows` and j in `others`."""
        design = self.design
        block = design.kernel.block(design.index[rows], design.index[others])
        block *= design.sign[rows][:, None]
        block *= design.sign[others]
        return block

    def _margins(self, weights: Array, rows: NDArray[np.intp]) -> Array:
        """``weights`` (K, m) times `gram` of `rows` and all terms; signs round nothing."""
        design = self.design
        products = design.kernel.combined(weights * design.sign[rows], design.index[rows])
        return products[:, design.index] * design.sign

    def certify(
        self, index: NDArray[np.intp], rows: NDArray[np.intp], slopes: Array
    ) -> LeftOutProofs:
        """Recompute the optimality of K answers on all of the data.

        Parameters
        ----------
        index : array of int, shape (K,)
            The term that each leaves out.
        rows : array of int, shape (m,)
            Terms whose slopes are given, those of `index` among them; all others have `theta`.
        slopes : array, shape (K, m)
            Of weight 1; of the term that is left out 0.
        """
        f, n = columns(self.problem.losses), self.problem.n
        K = len(index)
        answers = np.arange(K)
        change = slopes - self.theta[rows]
        used = np.flatnonzero(change.any(axis=0))
        at, part = rows[used], change[:, used]
        t = self.margins - self._margins(part, at)
        most = np.zeros(n)
        most[at] = np.abs(part).max(axis=0, initial=0.0)
        spread = self.design.spread(most)
        # A product of so many coefficients in one sum, where the design's are in chunks.
        error = self._error + (1 + len(used) // 128) * self.design.product_error(spread)
        error = error * (1.0 + 64.0 * EPS) + 4.0 * EPS * np.abs(self.margins)
        moves = np.abs(t - self.margins)
        look = ~(moves * (1.0 + 8.0 * EPS) + error + 4.0 * EPS * np.abs(t) < self._away)
        look[:, at] = True
        look[answers, index] = False
        who, term = np.nonzero(look)
        theta = np.tile(self.theta, (K, 1))
        theta[:, rows] = slopes
        s, margin = theta[who, term], t[who, term]
        b, e, q, lo, hi = (column[term] for column in f)
        value = value_above(margin, b, e, q, lo, hi, steepness(q))
        t_error = error[term] + 4.0 * EPS * np.abs(margin)
        each = gap_above(margin, s, t_error, value, b, e, q, lo, hi)
        each = each + endless_above(value, t_error, q, lo, hi)
        outside = (s < lo) | (s > hi) | ~np.isfinite(each)
        gap = np.zeros(K)
        np.add.at(gap, who, np.where(outside, np.inf, each))
        gap *= 1.0 + n * EPS
        gap = np.where(theta[answers, index] != 0.0, np.inf, gap)
        new = f[0][rows] * slopes + f[1][rows] * np.abs(slopes)
        new = (new + 0.5 * f[2][rows] * slopes * slopes - self._conjugates[rows]).sum(axis=1)
        # |x|^2 changes by minus the product of the slopes' change with both margins.
        dual = self._dual - new + 0.5 * np.einsum("km,km->k", part, t[:, at] + self.margins[at])
        relative = relative_gap(gap, dual + self.problem.constant + gap)
        away = self.problem.norms[index] * np.sqrt(gap) * (1.0 + 64.0 * EPS)
        given = np.zeros(n, dtype=bool)
        given[rows] = True
        moved = np.unique(term[(each > 0.0) & ~given[term]])
        own = t[answers, index]
        error = away + error[index] + 4.0 * EPS * np.abs(own)
        return LeftOutProofs(own, error, gap, relative, relative <= self.tol, moved)
