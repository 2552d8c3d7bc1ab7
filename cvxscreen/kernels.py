"""Kernel functions with a bound of their own rounding, and a bounded cache of their rows.

* `Rbf`, `Polynomial`: evaluated here, blocks at a time, from one matrix product;
* `Precomputed`: a Gram matrix, held by reference;
* `Called`: any function of two blocks of points.

Each says how far a computed value may be from the exact one, point by point. A
`Kernel` adds the cache: nothing larger than it is ever stored, whatever the number of points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CHUNK = 256
"""Rows that are evaluated, and coefficients that are summed, at a time."""
LEAST_ROWS = 16
"""A cache must hold at least so many rows."""


class KernelFunction(Protocol):
    """What a `Kernel` asks of a function on pairs of points."""

    @property
    def size(self) -> int:
        """Number of points."""
        ...

    @property
    def diagonal(self) -> Array:
        """``k(x_i, x_i)``, shape (N,)."""
        ...

    @property
    def errors(self) -> Array:
        """``|computed - exact| <= (errors_i + errors_j) sqrt(k_ii k_jj)``, shape (N,)."""
        ...

    def block(self, rows: Index, columns: Index | None = None) -> Array:
        """A fresh matrix ``k(x_i, x_j)``, i in `rows`, j in `columns` (all when omitted)."""
        ...

    def cross(self, points: Any) -> Array:
        """``k(p, x_j)`` for new points p, shape (len(points), N)."""
        ...


def _times(left: Any, right: Any) -> Array:
    """``left right'`` as a dense array."""
    product = left @ right.T
    return np.asarray(product.toarray() if sp.issparse(product) else product)


@dataclass(frozen=True, eq=False)
class Rbf:
    """``exp(-gamma ||x - z||^2)``; `points` is a float64 array or CSR."""

    points: Any
    gamma: float

    def __post_init__(self) -> None:
        # Distances do not change, and their rounding shrinks with the points.
        middle = np.zeros(self.points.shape[1])
        if not sp.issparse(self.points):
            middle = self.points.mean(axis=0)
            object.__setattr__(self, "points", np.ascontiguousarray(self.points - middle))
        object.__setattr__(self, "_middle", middle)

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @property
    def diagonal(self) -> Array:
        """Ones."""
        return np.ones(self.size)

    @cached_property
    def _squares(self) -> Array:
        return _row_squares(self.points)

    @cached_property
    def errors(self) -> Array:
        """Of the squared distance (cancellation included), through the exponential."""
        return 2.0 * self.gamma * gamma(self.points.shape[1] + 12) * self._squares + 4.0 * UNIT

    def block(self, rows: Index, columns: Index | None = None) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        squares = self._squares if columns is None else self._squares[columns]
        return self._finish(_times(self.points[rows], other), self._squares[rows], squares)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        if not sp.issparse(self.points):
            points = np.asarray(points, dtype=np.float64) - self._middle  # type: ignore[attr-defined]
        return self._finish(_times(points, self.points), _row_squares(points), self._squares)

    def _finish(self, out: Array, left: Array, right: Array) -> Array:
        out *= 2.0 * self.gamma
        out -= self.gamma * left[:, None]
        out -= self.gamma * right
        np.minimum(out, 0.0, out=out)
        return np.exp(out, out=out)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """``(gamma <x, z> + coef0)^degree``; the linear kernel is its first degree."""

    points: Any
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 1

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @cached_property
    def diagonal(self) -> Array:
        """``(gamma ||x||^2 + coef0)^degree``."""
        return np.asarray((self.gamma * _row_squares(self.points) + self.coef0) ** self.degree)

    @cached_property
    def errors(self) -> Array:
        """By Cauchy-Schwarz: the rounding of ``<x, z>``, `degree` times."""
        rounding = self.degree * gamma(self.points.shape[1] + 8) + 8.0 * UNIT
        return np.full(self.size, 0.5 * rounding)

    def block(self, rows: Index, columns: Index | None = None) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return self._finish(_times(self.points[rows], other))

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._finish(_times(points, self.points))

    def _finish(self, out: Array) -> Array:
        out *= self.gamma
        out += self.coef0
        return out if self.degree == 1 else np.power(out, self.degree, out=out)


@dataclass(frozen=True, eq=False)
class Precomputed:
    """A symmetric Gram matrix, held by reference; `error` bounds its relative asymmetry."""

    matrix: NDArray[Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.matrix.shape[0])

    @cached_property
    def errors(self) -> Array:
        """Half of the asymmetry."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """The matrix's own."""
        return np.array(np.diagonal(self.matrix), dtype=np.float64)

    def block(self, rows: Index, columns: Index | None = None) -> Array:
        """See `KernelFunction.block`."""
        part = self.matrix[rows] if columns is None else self.matrix[np.ix_(rows, columns)]
        return part.astype(np.float64)

    def cross(self, points: Any) -> Array:
        """`points` are rows of kernel values already."""
        return np.asarray(points, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Called:
    """Any ``function(A, B) -> matrix`` of two blocks of points; its values count as given."""

    points: Any
    function: Callable[[Any, Any], Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @cached_property
    def errors(self) -> Array:
        """As given."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """From blocks of 64 points."""
        parts = [np.arange(s, min(s + 64, self.size)) for s in range(0, self.size, 64)]
        return np.concatenate([np.diagonal(self.block(part, part)) for part in parts])

    def block(self, rows: Index, columns: Index | None = None) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return self._checked(self.points[rows], other)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._checked(points, self.points)

    def _checked(self, left: Any, right: Any) -> Array:
        out = np.array(self.function(left, right), dtype=np.float64)
        shape = (left.shape[0], right.shape[0])
        if out.shape != shape or not np.isfinite(out).all():
            raise InvalidInput(
                f"`kernel` returned shape {out.shape} or NaN for blocks of {shape[0]} and "
                f"{shape[1]} points; a finite matrix {shape} is needed."
            )
        return out


def _row_squares(points: Any) -> Array:
    if sp.issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", points, points)


@dataclass(eq=False)
class Kernel:
    """Kernel rows on demand, with a cache of at most `cache_bytes`.

    Parameters
    ----------
    function : KernelFunction
    cache_bytes : int
        Rows are stored in double precision until this is full; then the least recently used go.

    Attributes
    ----------
    evaluations : int
        Kernel values computed so far.
    """

    function: KernelFunction
    cache_bytes: int = 2**30
    evaluations: int = 0
    _store: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = self.function.size
        self.slots = min(n, int(self.cache_bytes) // (8 * n))
        if self.slots < min(n, LEAST_ROWS):
            raise InvalidInput(
                f"`cache_bytes` is {self.cache_bytes:,}; {n:,} points need at least "
                f"{8 * n * min(n, LEAST_ROWS):,} bytes ({LEAST_ROWS} rows), and the whole Gram "
                f"matrix is {8 * n * n:,} bytes."
            )
        self._store = np.empty((self.slots, n))
        self._slot = np.full(n, -1, dtype=np.intp)
        self._owner = np.full(self.slots, -1, dtype=np.intp)
        self._used = np.zeros(self.slots, dtype=np.int64)
        self._clock = 0
        self._memo: list[tuple[Array, Array]] = []

    @property
    def size(self) -> int:
        """Number of points N."""
        return self.function.size

    @property
    def cached_bytes(self) -> int:
        """Bytes of the rows in the cache now."""
        return int((self._owner >= 0).sum()) * 8 * self.size

    def fetch(self, rows: Index) -> None:
        """Have `rows` (as many as fit) in the cache."""
        self._clock += 1
        known = self._slot[rows] >= 0
        self._used[self._slot[rows[known]]] = self._clock
        missing = rows[~known]
        room = np.flatnonzero(self._used < self._clock)
        room = room[np.argsort(self._used[room], kind="stable")][: len(missing)]
        for start in range(0, len(room), CHUNK):
            slots = room[start : start + CHUNK]
            part = missing[start : start + len(slots)]
            gone = self._owner[slots]
            self._slot[gone[gone >= 0]] = -1
            self._store[slots] = self._evaluate(part)
            self._owner[slots], self._slot[part], self._used[slots] = part, slots, self._clock

    def _evaluate(self, rows: Index, columns: Index | None = None) -> Array:
        out = self.function.block(rows, columns)
        self.evaluations += out.size
        return out

    def block(self, rows: Index, columns: Index) -> Array:
        """``k(x_i, x_j)`` for i in `rows` and j in `columns`, a fresh array."""
        out = np.empty((len(rows), len(columns)))
        slot = self._slot[rows]
        for where in np.array_split(np.flatnonzero(slot >= 0), len(rows) // CHUNK + 1):
            out[where] = self._store[slot[where][:, None], columns]
        for where in np.array_split(np.flatnonzero(slot < 0), len(rows) // CHUNK + 1):
            if len(where):
                out[where] = self._evaluate(rows[where], columns)
        return out

    def product(
        self, coefficients: Array, rows: Index | None = None, remember: bool = True
    ) -> Array:
        """``K c`` (at `rows` when given), summed `CHUNK` coefficients at a time."""
        known = self._remembered(coefficients)
        if known is not None:
            return known.copy() if rows is None else known[rows]
        used = np.flatnonzero(coefficients)
        if rows is None or 3 * len(rows) >= self.size:
            spare = int((self._owner < 0).sum())
            new = used[self._slot[used] < 0]
            self.fetch(new[:spare])
        out = np.zeros(self.size if rows is None else len(rows))
        slot = self._slot[used]
        for inside in (True, False):
            part = used[(slot >= 0) == inside]
            for start in range(0, len(part), CHUNK):
                some = part[start : start + CHUNK]
                if inside:
                    block = self._store[self._slot[some]]
                    block = block if rows is None else block[:, rows]
                else:
                    block = self._evaluate(some, rows)
                out += coefficients[some] @ block
        if rows is None and remember:
            self._memo = [(coefficients.copy(), out.copy()), *self._memo[:3]]
        return out

    def _remembered(self, coefficients: Array) -> Array | None:
        """A product known up to a factor: for c and any multiple of c the rows are not read."""
        for vector, result in self._memo:
            top = int(np.argmax(np.abs(vector)))
            factor = coefficients[top] / vector[top] if vector[top] else 0.0
            if factor == 0.0:
                if not coefficients.any():
                    return np.zeros(self.size)
                continue
            if (np.abs(coefficients - factor * vector) <= 32 * UNIT * np.abs(coefficients)).all():
                return factor * result
        return None

    @cached_property
    def means(self) -> Array:
        """``sum_j k(x_i, x_j) / N``, shape (N,): half of all pairs, kept where the cache allows."""
        n, sums = self.size, np.zeros(self.size)
        whole = self.slots == n
        if whole:
            self._slot[:] = self._owner[:] = np.arange(n)
        for start in range(0, n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, n))
            block = self._evaluate(rows, np.arange(start, n))
            sums[rows] += block.sum(axis=1)
            sums[rows[-1] + 1 :] += block[:, len(rows) :].sum(axis=0)
            if whole:
                self._store[rows, start:] = block
                self._store[rows[-1] + 1 :, rows] = block[:, len(rows) :].T
        return sums / n
