"""Kernel terms: margins through a Gram matrix, coordinates that are coefficients.

``x = (c, b)`` stands for ``w = sum_j c_j z_j`` in the kernel's space, with an unpenalised intercept
b or without; the margin of term i is ``s_i (<z_i, w> + b)``. A linear functional ``<v, .>`` of w is
written by its coefficients too, so that ``A' theta`` is ``s theta``, exactly, and ``M`` and its
inverse are the identity; what is not Euclidean is the inner product ``<v, w> = v' K c``.

With an intercept the points are centred, ``z_j - p``: the intercept absorbs the difference, the
norms of the terms shrink, and bounds on the intercept tighten. Any p would do; it is the mean of at
most `CENTRE` of the points, so that ``<z_j, p>`` is no pass over all pairs. `Gram.offset` is the
difference.

A kernel function says how far a computed value may be from the exact one, point by point: `Rbf` and
`Polynomial` are evaluated here, blocks at a time, from one matrix product; `Precomputed` is a Gram
matrix, held by reference; `Called` any function of two blocks of points.

`Kernel` computes rows of the Gram matrix on demand, keeps a bounded number of them and sums
products in chunks: nothing larger than that cache is ever stored, whatever the number of points.
`Gram` is the design over it, `GramForm` the quadratic term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, wraps
from itertools import pairwise
from threading import RLock
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import blas_threads, require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import array
from cvxscreen.designs.rows import UNDERFLOWN
from cvxscreen.designs.rows_on_demand import KernelPoints, RowsOnDemand, exponent
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class KernelFunction(Protocol):
    """What a cache of kernel rows asks of a function on pairs of points."""

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

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """``k(x_i, x_j)``, i in `rows`, j in `columns` (all when omitted).

        A fresh matrix, or `into` where that is given (C-contiguous and of this shape).
        """
        ...

    def cross(self, points: Any) -> Array:
        """``k(p, x_j)`` for new points p, shape (len(points), N)."""
        ...

    def identities(self, rows: Index) -> list[bytes]:
        """What is the same of two points i in `rows` only where ``z_i`` is the same."""
        ...

    def joined(self, points: Any) -> KernelFunction:
        """The same on its points and, after them, on new ones."""
        ...

    @property
    def source(self) -> KernelPoints | None:
        """What compiled loops evaluate single rows from; None where blocks of them are quicker."""
        ...


def _times(left: Any, right: Any, into: Array | None = None) -> Array:
    """``left right'`` as a dense array."""
    if sp.issparse(left) or sp.issparse(right):
        product = left @ right.T
        return _placed(np.asarray(product.toarray() if sp.issparse(product) else product), into)
    return np.asarray(np.dot(left, right.T, out=into))


def _placed(found: Array, into: Array | None) -> Array:
    """`found`, in `into` where that is given."""
    if into is None:
        return found
    into[:] = found
    return into


@compiled(allocates=False)
def exponents(out: Array, gamma: float, left: Array, right: Array) -> None:
    """From inner products to ``-gamma ||x - z||^2``, in place; `left`, `right` squared norms."""
    for i in range(out.shape[0]):
        own = gamma * left[i]
        for j in range(out.shape[1]):
            out[i, j] = exponent(out[i, j], gamma, own, right[j])


class Rbf(Immutable):
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
        """Ones: ``k(x, x) = 1`` for every point."""
        return np.ones(self.size)

    @cached_property
    def _squares(self) -> Array:
        return _row_squares(self.points)

    @cached_property
    def errors(self) -> Array:
        """Of the squared distance (cancellation included), through the exponential."""
        return 2.0 * self.gamma * gamma(self.points.shape[1] + 12) * self._squares + 4.0 * UNIT

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        squares = self._squares if columns is None else self._squares[columns]
        found = _times(self.points[rows], other, into)
        return self._finish(found, self._squares[rows], squares)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        if not sp.issparse(self.points):
            points = np.asarray(points, dtype=np.float64) - self._middle  # type: ignore[attr-defined]
        return self._finish(_times(points, self.points), _row_squares(points), self._squares)

    def identities(self, rows: Index) -> list[bytes]:
        """See `KernelFunction.identities`."""
        return _bytes_of_rows(self.points[rows])

    def joined(self, points: Any) -> Rbf:
        """See `KernelFunction.joined`."""
        new = _stored_like(points, self.points)
        if not sp.issparse(new):
            new = new - self._middle  # type: ignore[attr-defined]
        return Rbf(_stacked(self.points, new), self.gamma)

    @property
    def source(self) -> KernelPoints | None:
        """See `KernelFunction.source`; None for sparse points, and many features."""
        if sp.issparse(self.points) or self.points.shape[1] > FEW_FEATURES:
            return None
        return KernelPoints.of(self.points, self._squares, self.gamma)

    def _finish(self, out: Array, left: Array, right: Array) -> Array:
        exponents(out, self.gamma, left, right)
        return np.exp(out, out=out)


class Polynomial(Immutable):
    """``(gamma <x, z> + coef0)^degree``; the linear kernel is its first degree."""

    source: ClassVar[None] = None
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

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return self._finish(_times(self.points[rows], other, into))

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._finish(_times(points, self.points))

    def identities(self, rows: Index) -> list[bytes]:
        """See `KernelFunction.identities`."""
        return _bytes_of_rows(self.points[rows])

    def joined(self, points: Any) -> Polynomial:
        """See `KernelFunction.joined`."""
        both = _stacked(self.points, points)
        return Polynomial(both, self.gamma, self.coef0, self.degree)

    def _finish(self, out: Array) -> Array:
        out *= self.gamma
        out += self.coef0
        return out if self.degree == 1 else np.power(out, self.degree, out=out)


class Precomputed(Immutable):
    """A symmetric Gram matrix, held by reference; `error` bounds its relative asymmetry."""

    source: ClassVar[None] = None
    matrix: NDArray[Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.matrix.shape[0])

    @cached_property
    def errors(self) -> Array:
        """Half of what bounds the asymmetry: either of two entries may be meant."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of the matrix as given."""
        return np.array(np.diagonal(self.matrix), dtype=np.float64)

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        part = self.matrix[rows] if columns is None else self.matrix[np.ix_(rows, columns)]
        return _placed(part.astype(np.float64), into)

    def cross(self, points: Any) -> Array:
        """`points` are rows of kernel values already."""
        return np.asarray(points, dtype=np.float64)

    def identities(self, rows: Index) -> list[bytes]:
        """See `KernelFunction.identities`."""
        return _by_values(self, rows)

    def joined(self, points: Any) -> Precomputed:
        """Refused: what new points have with each other is not known."""
        raise InvalidInput(
            "the Gram matrix of `solution` was given, and what new points have with each other is "
            "not known; name the kernel and give points."
        )


class Called(Immutable):
    """Any ``function(A, B) -> matrix`` of two blocks of points; its values count as given."""

    source: ClassVar[None] = None
    points: Any
    function: Callable[[Any, Any], Any]
    error: float = 0.0

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @cached_property
    def errors(self) -> Array:
        """Half of what bounds the asymmetry: either of two entries may be meant."""
        return np.full(self.size, 0.5 * self.error)

    @cached_property
    def diagonal(self) -> Array:
        """``k(x_i, x_i)``, shape (N,), from blocks of 64 points."""
        parts = [np.arange(s, min(s + 64, self.size)) for s in range(0, self.size, 64)]
        return np.concatenate([np.diagonal(self.block(part, part)) for part in parts])

    def block(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        """See `KernelFunction.block`."""
        other = self.points if columns is None else self.points[columns]
        return _placed(self._checked(self.points[rows], other), into)

    def cross(self, points: Any) -> Array:
        """See `KernelFunction.cross`."""
        return self._checked(points, self.points)

    def identities(self, rows: Index) -> list[bytes]:
        """See `KernelFunction.identities`."""
        return _by_values(self, rows)

    def joined(self, points: Any) -> Called:
        """See `KernelFunction.joined`."""
        return Called(_stacked(self.points, points), self.function, self.error)

    def _checked(self, left: Any, right: Any) -> Array:
        out = array("kernel", self.function(left, right)).copy()
        shape = (left.shape[0], right.shape[0])
        if out.shape != shape or not np.isfinite(out).all():
            raise InvalidInput(
                f"`kernel` returned shape {out.shape} or NaN for blocks of {shape[0]} and "
                f"{shape[1]} points; a finite matrix {shape} is needed."
            )
        return out


def _stored_like(new: Any, points: Any) -> Any:
    """New points as the known ones are stored: CSR or an array of float64."""
    if sp.issparse(points):
        return sp.csr_matrix(new, dtype=np.float64)
    return np.asarray(new.toarray() if sp.issparse(new) else new, dtype=np.float64)


def _stacked(points: Any, new: Any) -> Any:
    """Points and new ones below them, stored as the first are."""
    both = [points, _stored_like(new, points)]
    return sp.vstack(both, format="csr") if sp.issparse(points) else np.vstack(both)


def _bytes_of_rows(points: Any) -> list[bytes]:
    if not sp.issparse(points):
        rows = np.ascontiguousarray(points)
        whole = rows.view(f"V{rows.dtype.itemsize * rows.shape[1]}")
        return cast(list[bytes], whole.ravel().tolist())
    ends = points.indptr.tolist()
    spans = [slice(start, end) for start, end in pairwise(ends)]
    return [points.indices[span].tobytes() + points.data[span].tobytes() for span in spans]


def _by_values(function: Precomputed | Called, rows: Index) -> list[bytes]:
    """Points are the same where ``k_ii = k_ij = k_jj``, as where rows of values among them are.

    If either of two different entries may be meant, nothing is known.
    """
    if function.error > 0.0:
        return [i.to_bytes(8) for i in rows.tolist()]
    return _bytes_of_rows(function.block(rows, rows))


def _row_squares(points: Any) -> Array:
    if sp.issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", points, points)


CHUNK = 256
"""Coefficients that are summed at a time, and rows that are evaluated for others to use."""
ROWS = 64
"""Rows that are evaluated into the cache at a time: those of 5,000 points fit into a core's."""
CENTRE = 64
"""Points whose mean is the centre: a squared norm is larger than around the mean of all by about a
64th of their variance, and 64 rows are a share of what any fit evaluates."""
SMALL = 2**20
"""Numbers that the points have, up to which BLAS evaluates `ROWS` rows in one thread: 5 ms at most,
and the exponentials, which have one thread anyway, take as long up to some 100 features. With two
threads on two busy cores 21 problems of 660 x 19 took 15 times the CPU seconds."""
FEW_FEATURES = 64
"""Features up to which a loop evaluates single rows about as fast as they are in blocks: relative
to all rows at once an entry takes 2 to 4 times as long up to 64, 4 to 8 at 160, 8 to 11 at 320."""
LEAST_ROWS = 16
"""A cache must hold at least so many rows."""


def exact_sum(values: Array) -> float:
    """The sum of all values, rounded only once."""
    return math.fsum(values[values != 0.0].tolist())


Method = TypeVar("Method", bound=Callable[..., Any])


def _alone(method: Method) -> Method:
    """One thread at a time: the rows of a slot must not change while another reads them."""

    @wraps(method)
    def locked(self: Kernel, *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    return cast(Method, locked)


@dataclass(eq=False)
class Kernel:
    """Kernel rows on demand, with a cache of at most `cache_bytes`.

    Several threads may use one at once; they then wait for each other.

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
    _lock: Any = field(init=False, repr=False, default_factory=RLock)

    def __post_init__(self) -> None:
        n = self.function.size
        self.slots = min(n, int(self.cache_bytes) // (8 * n))
        if self.slots < min(n, LEAST_ROWS):
            raise InvalidInput(
                f"`cache_bytes` is {self.cache_bytes:,}; {n:,} points need at least "
                f"{8 * n * min(n, LEAST_ROWS):,} bytes ({LEAST_ROWS} rows), and the whole Gram "
                f"matrix is {8 * n * n:,} bytes."
            )
        require(
            8 * self.slots * n,
            f"a cache of {self.slots:,} of the {n:,} rows of the Gram matrix",
            "choose a smaller `cache_bytes` (rows are computed again where they are not kept)",
        )
        self._store = np.empty((self.slots, n))
        self._slot = np.full(n, -1, dtype=np.intp)
        self._owner = np.full(self.slots, -1, dtype=np.intp)
        self._used = np.zeros(self.slots, dtype=np.int64)
        self._clock = 0
        self._memo: list[tuple[Array, Array]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    @property
    def size(self) -> int:
        """Number of points N."""
        return self.function.size

    @property
    def small(self) -> bool:
        """Whether rows are so soon evaluated that threads of BLAS would wait for each other."""
        function = self.function
        return isinstance(function, Rbf | Polynomial) and math.prod(function.points.shape) <= SMALL

    @property
    def known(self) -> int:
        """Number of rows in the cache."""
        return int(np.count_nonzero(self._owner >= 0))

    @property
    def filled(self) -> bool:
        """Whether every row is in the cache, in order."""
        return self.slots == self.size and bool((self._slot == np.arange(self.size)).all())

    def matrix(self) -> Array | None:
        """The whole Gram matrix where the cache is `filled`, to be read only; else None.

        It is no copy. Rows that are all in their places stay there: none is ever missing.
        """
        return self._store if self.filled else None

    @_alone
    def fill(self) -> bool:
        """Have every row in the cache; whether they fit.

        From then on nothing changes there, so that several problems may read it, and every product
        is summed in the same order: its bits do not depend on what was computed before.
        """
        n = self.size
        if self.slots < n:
            return False
        # Rows take the places of others: whoever interrupts this must not find them by old names.
        self._slot[:], self._owner[:] = -1, -1
        with blas_threads(n * n) if self.small else nullcontext():
            for start in range(0, n, CHUNK):  # a block and its mirror image
                stop = min(start + CHUNK, n)
                block = self._evaluate(np.arange(start, stop), np.arange(start, n))
                self._store[start:stop, start:] = block
                self._store[start:, start:stop] = block.T
        self._slot[:], self._owner[:] = np.arange(n), np.arange(n)
        return True

    def sibling(self) -> Kernel:
        """A kernel of its own over the same rows, for another thread; after `fill` only."""
        other = copy(self)
        other._lock, other._memo, other.evaluations = RLock(), [], 0
        return other

    @contextmanager
    def on_demand(self) -> Iterator[RowsOnDemand]:
        """The whole matrix for a compiled loop, with the room that there is in the cache.

        The rows that the loop has wanted are in the cache afterwards. There is no room where loops
        cannot evaluate rows, or those in the cache have not come one after another.
        """
        with self._lock:
            source, known = self.function.source, self.known
            if source is None or not (self._owner[:known] >= 0).all():
                yield RowsOnDemand.without_room(self.size)
                return
            slot = self._slot.copy()
            yield RowsOnDemand.evaluated(source, self._store, slot, known)
            new = np.flatnonzero(slot >= known)
            self._clock += 1
            self._owner[slot[new]], self._slot[:] = new, slot
            self._used[slot[new]] = self._clock
            self.evaluations += len(new) * self.size

    @_alone
    def fetch(self, rows: Index) -> None:
        """Have `rows` (as many as fit) in the cache."""
        self._clock += 1
        known = self._slot[rows] >= 0
        self._used[self._slot[rows[known]]] = self._clock
        missing = rows[~known]
        room = np.flatnonzero(self._used < self._clock)
        room = room[np.argsort(self._used[room], kind="stable")][: len(missing)]
        for start in range(0, len(room), ROWS):
            slots = room[start : start + ROWS]
            part = missing[start : start + len(slots)]
            gone = self._owner[slots]
            self._slot[gone[gone >= 0]] = -1
            if (np.diff(slots) == 1).all():
                self._evaluate(part, into=self._store[slots[0] : slots[-1] + 1])
            else:
                self._store[slots] = self._evaluate(part)
            self._owner[slots], self._slot[part], self._used[slots] = part, slots, self._clock

    def _evaluate(
        self, rows: Index, columns: Index | None = None, into: Array | None = None
    ) -> Array:
        out = self.function.block(rows, columns, into)
        self.evaluations += out.size
        return out

    @_alone
    def block(self, rows: Index, columns: Index) -> Array:
        """``k(x_i, x_j)`` for i in `rows` and j in `columns`, a fresh array."""
        out = np.empty((len(rows), len(columns)))
        slot = self._slot[rows]
        gather(self._store, slot, columns, out)
        for where in np.array_split(np.flatnonzero(slot < 0), len(rows) // CHUNK + 1):
            if len(where):
                out[where] = self._evaluate(rows[where], columns)
        return out

    @_alone
    def combined(self, weights: Array, rows: Index) -> Array:
        """``weights K_rows``, shape (k, N), of weights (k, m): the rows stay in the cache."""
        self.fetch(rows[:self.slots])
        slot, out = self._slot[rows], np.zeros((len(weights), self.size))
        stored, absent = np.flatnonzero(slot >= 0), np.flatnonzero(slot < 0)
        for start in range(0, len(stored), CHUNK):
            some = stored[start:start + CHUNK]
            out += weights[:, some] @ self._store[slot[some]]
        for start in range(0, len(absent), CHUNK):
            some = absent[start:start + CHUNK]
            out += weights[:, some] @ self._evaluate(rows[some])
        return out

    @_alone
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
        out = np.zeros(self.size)
        slot = self._slot[used]
        self._add_stored(out, used[slot >= 0], coefficients)
        if rows is not None:
            out = out[rows]
        absent = used[slot < 0]
        for start in range(0, len(absent), CHUNK):
            some = absent[start : start + CHUNK]
            out += coefficients[some] @ self._evaluate(some, rows)
        if rows is None and remember:
            self._memo = [(coefficients.copy(), out.copy()), *self._memo[:3]]
        return out

    def _add_stored(self, out: Array, used: Index, coefficients: Array) -> None:
        """Add what the cached rows `used` contribute, `CHUNK` slots at a time.

        Where most rows of a chunk are used it is read in place, the others with weight 0: copying
        rows costs more than multiplying them.
        """
        weights = np.zeros(self.slots)
        weights[self._slot[used]] = coefficients[used]
        slots = np.sort(self._slot[used])
        for start in range(0, self.slots, CHUNK):
            first, last = np.searchsorted(slots, (start, start + CHUNK))
            some = slots[first:last]
            if not len(some):
                continue
            span = slice(some[0], some[-1] + 1)
            if 3 * len(some) >= span.stop - span.start and (self._owner[span] >= 0).all():
                out += weights[span] @ self._store[span]
            else:
                out += weights[some] @ self._store[some]

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
    def centre(self) -> Index:
        """Points whose mean is ``p``: all, or `CENTRE` spread evenly over them."""
        n = self.size
        return np.arange(CENTRE) * n // CENTRE if n > CENTRE else np.arange(n)

    @cached_property
    def means(self) -> Array:
        """``<z_i, p>``, shape (N,)."""
        rows = self._store[self.centre] if self.filled else self._evaluate(self.centre)
        return np.asarray(rows.mean(axis=0))

    @property
    def square_of_centre(self) -> float:
        """``<p, p>``."""
        return float(self.means[self.centre].mean())


@compiled(allocates=False)
def gather(store: Array, slot: Index, columns: Index, out: Array) -> None:
    """The entries at `columns` of the rows in `slot` (skipped where negative)."""
    for k in range(len(slot)):
        if slot[k] >= 0:
            for j in range(len(columns)):
                out[k, j] = store[slot[k], columns[j]]


Selector = NDArray[np.intp] | NDArray[np.bool_]

_PRECISE_BYTES = 2**26
"""Of kernel values in extended precision at a time."""


class Gram:
    """Rows ``s_i (z_i, 1)`` of kernel terms; see the module's docstring.

    Parameters
    ----------
    kernel : Kernel
        Of all N points.
    sign : array_like, shape (n,), optional
        -1 or +1 for each term (labels); +1 when omitted.
    intercept : bool
        Whether there is an unpenalised last coordinate.
    index : array of int, shape (n,), optional
        The point of each term; all points in order when omitted.
    """

    streamed, centred = False, True
    reach: Array | None = None

    def __init__(
        self,
        kernel: Kernel,
        sign: ArrayLike | None = None,
        intercept: bool = False,
        index: NDArray[np.intp] | None = None,
    ) -> None:
        self.kernel, self.intercept = kernel, intercept
        self.index = np.arange(kernel.size) if index is None else index
        n = len(self.index)
        self.sign = np.ones(n) if sign is None else np.array(sign, dtype=np.float64)
        if self.sign.shape != (n,) or not (np.abs(self.sign) == 1.0).all():
            raise InvalidInput(f"`sign` must hold -1 or +1 for each of the {n} terms.")
        self.shape: tuple[int, int] = (n, kernel.size + int(intercept))

    @property
    def sparse(self) -> bool:
        """False: there are no rows of numbers to store."""
        return False

    @property
    def small(self) -> bool:
        """See `Kernel.small`."""
        return self.kernel.small

    # -- the centred kernel ---------------------------------------------------------------------

    @cached_property
    def _roots(self) -> Array:
        """``sqrt(k_ii)`` of every point, rounded up."""
        # What is smaller may have lost its digits to underflow, and products with others theirs.
        squares = np.maximum(self.kernel.function.diagonal, 2.0 * UNDERFLOWN)
        return np.sqrt(squares) * (1.0 + 8.0 * UNIT)

    @cached_property
    def _root_mean(self) -> float:
        return float(self._roots[self.kernel.centre].mean()) if self.intercept else 0.0

    @staticmethod
    def _depth(terms: int) -> float:
        """Rounding of a product with so many coefficients."""
        return gamma(CHUNK + terms // CHUNK + 48)

    def centred_product(self, c: Array) -> Array:
        """``<z_i, w>`` of every point for ``w = sum_j c_j z_j``, points centred if need be."""
        out = self.kernel.product(c)
        if not self.intercept:
            return out
        means, total = self.kernel.means, exact_sum(c)
        out -= float(means @ c)
        return out - total * (means - self.kernel.square_of_centre) if total else out

    def product_error(self, c: Array) -> Array:
        """Bound of the error of `centred_product` at each term, shape (n,).

        An error common to all terms is left out: it is a shift of the intercept.
        """
        roots, errors = self._roots[self.index], self.kernel.function.errors
        depth = self._depth(int(np.count_nonzero(c)))
        near = float(np.abs(c) @ (errors * self._roots)) * (1.0 + gamma(len(c) + 4))
        error = roots * ((depth + errors[self.index]) * self.size_of(c) + near)
        return error + self._imbalance(c, roots) if self.intercept else error

    def _imbalance(self, c: Array, roots: Array) -> Array:
        """What the rounding of the means adds where the coefficients do not sum to 0."""
        total = abs(exact_sum(c)) * (1.0 + UNIT)
        return 3.0 * self.forward_factor * self._root_mean * total * (roots + self._root_mean)

    def size_of(self, c: Array) -> float:
        """``sum_j |c_j| (sqrt(k_jj) + mean)``, at least the norm of w (centred or not)."""
        roots = self._roots + self._root_mean
        return float(np.abs(c) @ roots) * (1.0 + gamma(self.kernel.size + 8))

    @cached_property
    def squares(self) -> Array:
        """Squared norms of the (centred) points, rounded up, shape (N,)."""
        plain = self._roots**2 * (1.0 + 4.0 * UNIT)
        if not self.intercept:
            return plain * (1.0 + 4.0 * self.kernel.function.errors)
        means = self.kernel.means
        rounding = 4.0 * self.forward_factor * (self._roots + self._root_mean) ** 2
        around = np.maximum(plain - 2.0 * means + self.kernel.square_of_centre, 0.0)
        return np.minimum(around + rounding,
                          (self._roots + self._root_mean) ** 2 * (1.0 + 8.0 * UNIT))

    def offset(self, x: ArrayLike) -> float:
        """What centring has added to the intercept: the margin of the centre."""
        c = np.asarray(x, dtype=np.float64)[: self.kernel.size]
        return float(self.kernel.means @ c) if self.intercept else 0.0

    def features(self) -> Array:
        """Points with these inner products, shape (N, r): rows of a root of the (centred) matrix.

        Eigenvalues that are rounding of the largest one are left out.
        """
        n = self.kernel.size
        require(24 * n * n, f"the Gram matrix of {n:,} points and its eigenvectors",
                "use the built-in solver, which stores no more than its cache of rows")
        every = np.arange(n)
        matrix = self.kernel.block(every, every)
        if self.intercept:
            means = self.kernel.means
            matrix -= means + means[:, None] - self.kernel.square_of_centre
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        used = values > n * UNIT * values[-1]
        return np.ascontiguousarray(vectors[:, used] * np.sqrt(values[used]))

    # -- the two passes -------------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """Margins, shape (n,): kernel products with the non-zero coefficients."""
        x = np.asarray(x, dtype=np.float64)
        n_points = self.kernel.size
        out = self.centred_product(x[:n_points])[self.index]
        return (out + x[n_points]) * self.sign if self.intercept else out * self.sign

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (n,); `sizes` is not needed."""
        x = np.asarray(x, dtype=np.float64)
        c = x[: self.kernel.size]
        error = self.product_error(c)
        if self.intercept:
            error = error + 4.0 * UNIT * (abs(float(x[-1])) + self._root_mean * self.size_of(c))
        return error

    def forward_precise(self, index: Selector, x: ArrayLike) -> tuple[Array, Array]:
        """A few margins summed in extended precision, and a bound of the error left.

        What is left is the kernel's own rounding; where that is the larger part anyway, the
        margins are those of `forward`. A Gram matrix that was given has none.
        """
        x = np.asarray(x, dtype=np.float64)
        c = x[: self.kernel.size]
        used = np.flatnonzero(c)
        errors = self.kernel.function.errors
        if 2.0 * float(errors.max()) >= self._depth(len(used)):
            return self.forward(x)[index], self.forward_error(x, np.zeros(0))[index]
        points = self.index[index]
        wide = np.longdouble
        total = np.zeros(len(points), dtype=wide)
        size = np.zeros(len(points))
        step = max(1, _PRECISE_BYTES // (16 * max(len(points), 1)))
        for start in range(0, len(used), step):
            some = used[start : start + step]
            block = self.kernel.block(some, points)
            total += c[some].astype(wide) @ block.astype(wide)
            size += np.abs(c[some]) @ np.abs(block)
        roots = self._roots[points]
        error = 2.02 * (len(used) + 4) * float(np.finfo(wide).eps) * size
        near = float(np.abs(c) @ (errors * self._roots)) * (1.0 + gamma(len(c) + 4))
        error = error + roots * (errors[points] * self.size_of(c) + near)
        if self.intercept:
            means, excess = self.kernel.means, exact_sum(c)
            total += x[-1] - float(means @ c)
            total -= excess * (means[points] - self.kernel.square_of_centre)
            error = error + self._imbalance(c, roots)
        out = np.asarray(total * self.sign[index], dtype=np.float64)
        return out, error + UNIT * np.abs(out)

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,): the coefficients ``s theta``, and their exact sum."""
        weights = np.asarray(theta, dtype=np.float64) * self.sign
        head = self.spread(weights)
        return np.append(head, exact_sum(weights)) if self.intercept else head

    def spread(self, values: Array) -> Array:
        """One value a term as coefficients of all points (summed where terms share a point)."""
        out = np.bincount(self.index, weights=values, minlength=self.kernel.size)
        return np.asarray(out, dtype=np.float64)

    @property
    def forward_factor(self) -> float:
        """Relative rounding of `forward` for dense coefficients."""
        return self._depth(self.kernel.size) + 2.0 * float(self.kernel.function.errors.max())

    @property
    def adjoint_factor(self) -> float:
        """Coefficients are exact, their sum is rounded once."""
        return 4.0 * UNIT

    # -- norms; closed under taking rows ----------------------------------------------------------

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """Squared norms of the terms: `weights` holds one value for w and one for the intercept."""
        weights = np.asarray(weights, dtype=np.float64)
        out = weights[0] * self.squares[self.index]
        return out + weights[-1] if self.intercept else out

    def column(self, j: int) -> Array:
        """Coordinate `j` of every term, shape (n,)."""
        if self.intercept and j == self.kernel.size:
            return self.sign.copy()
        unit = np.zeros(self.shape[1])
        unit[j] = 1.0
        return self.forward(unit)

    def take_rows(self, index: Selector) -> Gram:
        """The terms at `index`; coordinates stay."""
        return Gram(self.kernel, self.sign[index], self.intercept, self.index[index])

    # -- terms with each other, and with those of new points ---------------------------------------

    @property
    def reaches(self) -> Array:
        """What the rounding of a term's inner products goes with: no less than its norm, (n,)."""
        return self._roots[self.index] + self._root_mean

    def inner_products(self, rows: Index, other: Gram, others: Index) -> Array:
        """``<a_i, a_j>`` without the intercept, i of `rows`, j of the terms `others` of `other`.

        Both have one kernel. The error of an entry is at most ``8 forward_factor`` times the
        product of both `reaches`.
        """
        points, columns = self.index[rows], other.index[others]
        out = self.kernel.block(points, columns)
        if self.intercept:
            means = self.kernel.means
            out -= means[points][:, None] + (means[columns] - self.kernel.square_of_centre)
        out *= self.sign[rows][:, None]
        out *= other.sign[others]
        return out

    @property
    def width(self) -> int:
        """Features of a point; of a Gram matrix that was given the values that a row of it has."""
        function = self.kernel.function
        if isinstance(function, Precomputed):
            return function.size
        return int(cast(Any, function).points.shape[1])

    def with_points(self, points: Any) -> Gram:
        """The same terms where new points have coefficients, too: the last coordinates.

        An intercept stays behind them. Its centre is another one (`offset`).
        """
        kernel = Kernel(self.kernel.function.joined(points), self.kernel.cache_bytes)
        return Gram(kernel, self.sign, self.intercept, self.index)

    def at_points(self, points: Index) -> Gram:
        """Rows ``(z_i, 1)`` at these points, whatever the terms are: their predictions."""
        return Gram(self.kernel, None, self.intercept, points)

    def dense(self, index: Selector | None = None) -> Array:
        """Refused: a kernel's points have no coordinates."""
        raise InvalidInput(
            "a kernel problem has no matrix of features, which this solver or export needs; use "
            "the built-in solver, or an explicit feature map with kernel=None."
        )

    rows_csr = dense
    take_columns = dense

    def weighted_gram(self, index: Selector | None, weights: ArrayLike) -> Array:
        """Refused, as `dense`."""
        return self.dense(index)


class GramForm(Immutable):
    """``1/2 ||w||^2`` of the kernel's space, in coefficients; `gram` belongs to all N points."""

    gram: Gram
    matrix: None = None

    @cached_property
    def diagonal(self) -> Array:
        """1 for a coefficient, 0 for the intercept: M on coefficients of functionals."""
        out = np.ones(self.gram.shape[1])
        if self.gram.intercept:
            out[-1] = 0.0
        return out

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which coordinates the form leaves free: the intercept, if there is one."""
        return self.diagonal == 0.0

    @property
    def floor(self) -> float:
        """``M`` is the identity of the kernel's space."""
        return 1.0

    def apply(self, x: ArrayLike) -> Array:
        """The functional ``<x, .>``: the same coefficients, none for the intercept."""
        return self.diagonal * np.asarray(x, dtype=np.float64)

    def solve(self, v: ArrayLike) -> Array:
        """The point that represents the functional v."""
        return self.apply(v)

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """``<v, x> = v' K c + v_b b``."""
        v, x = np.asarray(v, dtype=np.float64), np.asarray(x, dtype=np.float64)
        n_points = self.gram.kernel.size
        left, right = v[:n_points], x[:n_points]
        value = 0.0
        if left.any() and right.any():
            value = float(left @ self.gram.centred_product(right))
        return value + float(v[n_points:] @ x[n_points:])

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(c' K c)``, the rounding of the products added."""
        c = np.asarray(x, dtype=np.float64)[: self.gram.kernel.size]
        if not c.any():
            return 0.0
        value = max(float(c @ self.gram.centred_product(c)), 0.0)
        factor = 8.0 * self.gram.forward_factor + gamma(self.gram.kernel.size)
        size = self.gram.size_of(c)
        return float(np.sqrt(value + factor * size * size))  # a power of a float would raise

    def dual_reach(self, v: ArrayLike) -> float:
        """An upper bound of the norm of the functional v, without a pass."""
        c = np.asarray(v, dtype=np.float64)[: self.gram.kernel.size]
        return self.gram.size_of(c)

    def dual_norms(self, design: Gram) -> Array:
        """Norms of the terms of `design`, shape (n,)."""
        return np.sqrt(design.weighted_squares(self.diagonal)) * (1.0 + 2.0 * UNIT)

    def dense(self) -> Array:
        """Refused, as `Gram.dense`."""
        return self.gram.dense()
