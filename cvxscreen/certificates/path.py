"""Certificates of many points of one problem along C, from two compiled passes a point.

The dual points of a path are kept packed: most slopes are 0 or an end of their box.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import Loop, together
from cvxscreen._support.validation import array, finite, one_of, positive
from cvxscreen.certificates.certificate import (
    EPS,
    certify,
    columns,
    endless_above,
    gap_above,
    relative_gap,
    steepness,
    value_above,
)
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]

ZERO, LOW, HIGH, OTHER = 0, 1, 2, 3
"""What a code says: slope 0, ``lo``, ``hi``, or the next number of the pool."""


def unpack(
    n: int, codes: Any, pool: Any, first: Any, lo: Any, hi: Any, factor: float, out: Any
) -> Any:
    """Write one dual point to `out`; its own numbers begin at ``pool[first]``. Returns their end.

    Plain loops: the certificate compiles this very function.
    """
    for i in range(n):
        code = codes[i]
        out[i] = (lo[i] if code == 1 else hi[i] if code == 2 else 0.0) * factor
    p = first
    for i in range(n):
        if codes[i] == 3:
            out[i] = pool[p]
            p += 1
    return p


@dataclass(frozen=True, eq=False)
class PackedSlopes:
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
    def of(cls, theta: Array, losses: Losses, factors: Array) -> PackedSlopes:
        """Plain dual points, shape (K, n), as they are."""
        K, n = theta.shape
        codes = np.full((K, n), OTHER, dtype=np.int8)
        return cls(losses.lo, losses.hi, factors, codes, theta.ravel(), n * np.arange(K))

    def __len__(self) -> int:
        return len(self.codes)

    def row(self, k: int) -> Array:
        """Dual point k, shape (n,)."""
        codes, out = self.codes[k], np.zeros(self.codes.shape[1])
        out[codes == LOW] = self.lo[codes == LOW] * self.factors[k]
        out[codes == HIGH] = self.hi[codes == HIGH] * self.factors[k]
        other = codes == OTHER
        first = int(self.first[k])
        out[other] = self.pool[first:first + int(other.sum())]
        return out

    def head(self, count: int) -> PackedSlopes:
        """The first `count` points."""
        return PackedSlopes(
            self.lo, self.hi, self.factors[:count], self.codes[:count], self.pool,
            self.first[:count],
        )


WIDTH = 256
"""Coordinates up to which the compiled passes are used; beyond, certificates are made singly."""

BLOCK, ROWS = 2**16, 256
"""Numbers of the data that the passes take at a time, and the fewest rows."""

TAKERS = 64
"""Terms inside their box that are asked to balance a dual point before all are."""


def sums(  # type: ignore[no-untyped-def]
    A, start, sizes, norms, b, e, q, lo, hi, codes, pool, place, factors, free, forward, X, out,
    pull,
):
    """Add the sums over a block of terms, columns of `A` from term `start` on; one row a point.

    To `out`: value, gap, ``sum |theta| norm``, ``sum |theta a_free|``, and the count of slopes
    outside their box; to `pull` ``A' theta``. `place` is where the block's slopes begin in `pool`,
    and is moved on.
    """
    d, n = A.shape
    end = start + n
    b, e, q = b[start:end], e[start:end], q[start:end]
    lo, hi, sizes, norms = lo[start:end], hi[start:end], sizes[start:end], norms[start:end]
    curved, endless = q.max() > 0.0, lo.min() < -1e300 or hi.max() > 1e300
    t, theta, bend, steep = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(factors.size):
        factor, x = factors[k], X[k]
        if k == 0 or curved:
            for i in range(n):
                bend[i] = q[i] / factor
                steep[i] = steepness(bend[i])
        place[k] = unpack(n, codes[k, start:end], pool, place[k], lo, hi, factor, theta)
        length = 0.0
        for i in range(n):
            t[i] = 0.0
        for j in range(d):
            length += x[j] * x[j]
            total = 0.0
            for i in range(n):
                t[i] += x[j] * A[j, i]
                total += theta[i] * A[j, i]
            pull[k, j] += total
        noise = forward * np.sqrt(length)
        values, gap, load, size, outside = 0.0, 0.0, 0.0, 0.0, 0
        for i in range(n):
            low, high = lo[i] * factor, hi[i] * factor
            value = value_above(t[i], b[i], e[i], bend[i], low, high, steep[i])
            values += value
            gap += gap_above(
                t[i], theta[i], noise * sizes[i], value, b[i], e[i], bend[i], low, high
            )
            if endless:
                gap += endless_above(value, noise * sizes[i], bend[i], low, high)
            load += abs(theta[i]) * norms[i]
            outside += not ((theta[i] >= low) & (theta[i] <= high))
        if free >= 0:
            for i in range(n):
                size += abs(theta[i] * A[free, i])
        out[k, 0] += values
        out[k, 1] += gap
        out[k, 2] += load
        out[k, 3] += size
        out[k, 4] += outside


def takers(  # type: ignore[no-untyped-def]
    A, norms, b, e, q, lo, hi, codes, pool, first, factors, free, X, needed, distance, out
):
    """The cheapest single term that can raise, and that can lower, ``sum_i a_i,free theta_i``.

    `out` gets the larger of the two costs a point; infinity where one way is closed.
    """
    d, n = A.shape
    theta = np.empty(n)
    for k in range(factors.size):
        unpack(n, codes[k], pool, first[k], lo, hi, factors[k], theta)
        up, down = np.inf, np.inf
        for i in range(n):
            t, s, size = 0.0, theta[i], abs(A[free, i])
            for j in range(d):
                t += X[k, j] * A[j, i]
            rise, fall = hi[i] * factors[k] - s, s - lo[i] * factors[k]
            rate = abs(t) + abs(b[i]) + e[i] + q[i] / factors[k] * abs(s) + norms[i] * distance[k]
            if A[free, i] < 0.0:
                rise, fall = fall, rise
            if size > 0.0 and rise * size >= needed[k]:
                up = min(up, rate / size)
            if size > 0.0 and fall * size >= needed[k]:
                down = min(down, rate / size)
        out[k] = needed[k] * max(up, down) if needed[k] > 0.0 else 0.0


@lru_cache(maxsize=1)
def compiled() -> tuple[Loop, Loop] | None:
    """``(sums, takers)``, compiled; None without numba."""
    strict, any_order = frozenset[str](), frozenset({"reassoc"})
    names = (("steepness", strict), ("value_above", strict), ("gap_above", strict),
             ("endless_above", strict),
             ("unpack", strict), ("sums", any_order), ("takers", strict))
    found = together(globals(), names)
    return None if found is None else (found["sums"], found["takers"])


@dataclass(frozen=True, eq=False)
class Certificates:
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
    def ok(self) -> NDArray[np.bool_]:
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
        is given to `certify` itself (as is every point of a problem that the compiled passes do not
        take: side constraints, penalties, CSR, many coordinates).

    Raises
    ------
    InvalidInput
        On wrong shapes.
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    C, tol = finite("values", values), positive("tol", tol)
    if C.ndim != 1 or not (C > 0).all():
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
    loops, free = compiled(), np.flatnonzero(problem.quadratic.free)
    plain = problem.side is None and problem.quadratic.matrix is None and problem.penalty is None
    plain = plain and isinstance(problem.design, Rows) and not problem.design.sparse
    if loops is None or not plain or len(free) > 1 or problem.d > WIDTH:
        gap, primal = np.full(len(C), np.inf), np.full(len(C), np.nan)
    else:
        gap, primal = _sums(problem, loops, factors, points, theta)
    relative = relative_gap(gap, primal)
    for k in np.flatnonzero(~(relative <= tol)):
        proof = certify(problem.with_(C=float(C[k])), points[k], theta.row(int(k)), tol=tol)
        gap[k], primal[k] = proof.gap, proof.primal
        relative[k] = proof.relative_gap if proof.ok else max(proof.relative_gap, 2.0 * tol)
    return Certificates(gap, relative, primal, tol)


def _sums(
    problem: Problem, loops: tuple[Loop, Loop], factors: Array, points: Array, theta: PackedSlopes
) -> tuple[Array, Array]:
    """``(gap, primal)`` of every point, shape (K,) each; infinite gaps where slopes leave a box."""
    indices = np.flatnonzero(problem.quadratic.free)
    free = int(indices[0]) if len(indices) else -1
    f, design = columns(problem.losses), cast(Rows, problem.design)
    out, pull = np.zeros((len(factors), 5)), np.zeros_like(points)
    place, rows = theta.first.copy(), max(ROWS, BLOCK // problem.d)
    for start in range(0, problem.n, rows):  # a block stays in the cache while points pass over it
        A = np.ascontiguousarray(design.dense(slice(start, start + rows)).T)
        loops[0](A, start, problem.sizes, problem.norms, *f, theta.codes, theta.pool, place,
                 factors, free, design.forward_factor, points, out, pull)
    values, fy, load, size, outside = out.T
    pull += problem.linear
    diagonal, rounding = problem.quadratic.diagonal, EPS * (problem.n + 8)
    bent = diagonal > 0.0
    x_theta = np.where(bent, -pull / np.where(bent, diagonal, 1.0), points)
    weighted = np.sqrt(diagonal)
    primal = values + points @ problem.linear + problem.constant
    primal += 0.5 * np.square(points * weighted).sum(axis=1)
    distance = np.linalg.norm((points - x_theta) * weighted, axis=1) + rounding * load
    distance += problem.drift + 8 * EPS * np.linalg.norm(x_theta * weighted, axis=1)
    gap = fy * (1 + problem.n * EPS) + 0.5 * distance**2
    if free >= 0:
        needed = (np.abs(pull[:, free]) + problem.imbalance + rounding * size) * (1.0 + 1e-6)
        moves = _moves(problem, loops[1], factors, points, theta, free, needed, distance)
        gap += moves
    return np.where((outside > 0) | ~np.isfinite(gap), np.inf, gap), primal


def _moves(
    problem: Problem, loop: Loop, factors: Array, points: Array, theta: PackedSlopes, free: int,
    needed: Array, distance: Array,
) -> Array:
    """What it costs to balance each dual point by a single term, shape (K,).

    By one of those inside their box where these have the room, which mostly they have; else by the
    cheapest of all.
    """
    f, moves = columns(problem.losses), np.full(len(factors), np.inf)
    for k, factor in enumerate(factors if problem.n * problem.d > BLOCK else ()):
        rows = np.flatnonzero(theta.codes[k] == OTHER)
        s = theta.pool[theta.first[k]:theta.first[k] + len(rows)]
        room = np.minimum(s - f[3][rows] * factor, f[4][rows] * factor - s)
        inside = np.flatnonzero(room > 0.0)[:TAKERS]
        if len(inside):
            rows, s = rows[inside], s[inside]
            own = (column[rows] for column in f)
            out, A = np.empty(1), np.ascontiguousarray(problem.design.dense(rows).T)
            codes, first = np.full((1, len(rows)), OTHER, np.int8), np.zeros(1, np.int64)
            one = slice(k, k + 1)
            loop(A, problem.norms[rows], *own, codes, s, first, factors[one], free, points[one],
                 needed[one], distance[one], out)
            moves[k] = out[0]
    left = np.flatnonzero(~np.isfinite(moves))
    if len(left):
        out, A = np.empty(len(left)), np.ascontiguousarray(problem.design.dense().T)
        loop(A, problem.norms, *f, theta.codes[left], theta.pool, theta.first[left], factors[left],
             free, points[left], needed[left], distance[left], out)
        moves[left] = out
    return moves
