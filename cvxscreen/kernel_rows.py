"""Kernel rows on demand: a bounded cache, and products that are summed in chunks.

Nothing larger than the cache is ever stored, whatever the number of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen.capacity import require
from cvxscreen.errors import InvalidInput
from cvxscreen.kernels import KernelFunction
from cvxscreen.rounding import UNIT

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CHUNK = 256
"""Rows that are evaluated, and coefficients that are summed, at a time."""
LEAST_ROWS = 16
"""A cache must hold at least so many rows."""


def exact_sum(values: Array) -> float:
    """The sum, rounded once."""
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
    def cached_bytes(self) -> int:
        """Bytes of the rows in the cache now."""
        return int((self._owner >= 0).sum()) * 8 * self.size

    @_alone
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

    @_alone
    def block(self, rows: Index, columns: Index) -> Array:
        """``k(x_i, x_j)`` for i in `rows` and j in `columns`, a fresh array."""
        out = np.empty((len(rows), len(columns)))
        slot = self._slot[rows]
        for k in np.flatnonzero(slot >= 0):  # several times faster than one indexing by both
            np.take(self._store[slot[k]], columns, out=out[k], mode="clip")
        for where in np.array_split(np.flatnonzero(slot < 0), len(rows) // CHUNK + 1):
            if len(where):
                out[where] = self._evaluate(rows[where], columns)
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
    def means(self) -> Array:
        """``sum_j k(x_i, x_j) / N``, shape (N,), from half of all pairs.

        Nothing is stored: most rows are never needed again, and touching fresh memory costs more
        than evaluating a kernel.
        """
        n, sums = self.size, np.zeros(self.size)
        for start in range(0, n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, n))
            block = self._evaluate(rows, np.arange(start, n))
            sums[rows] += block.sum(axis=1)
            sums[rows[-1] + 1 :] += block[:, len(rows) :].sum(axis=0)
        return sums / n
