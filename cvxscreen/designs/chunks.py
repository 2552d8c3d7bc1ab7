"""The design of data in chunks: rows that are read a chunk at a time and never all held.

Row ``i`` is ``a_i = scale_i [x_i, 1]``, as in `cvxscreen.designs.rows.Rows`, of which `Chunks` is
the counterpart past memory: the same methods, each of them one pass of an engine over a source
(`cvxscreen.out_of_core.streams`). Sums over rows are made in strips within a chunk and by a tree
over the chunks, so the rounding of `adjoint` follows from the cut, and no worker changes a bit of
it.

In the order of the file: columns that are no arrays (one that is absent, one that knows a few
rows), the rows of one chunk and the task that asks something of all chunks, the design.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma
from cvxscreen.designs.rows import UNDERFLOWN, Rows, factors_of
from cvxscreen.out_of_core import streams
from cvxscreen.out_of_core.streams import STRIP, Column, Engine, Source

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]


@dataclass(frozen=True)
class AbsentColumn:
    """A column that says nothing about any row."""

    def __getitem__(self, rows: slice) -> None:
        return None


ABSENT = AbsentColumn()


@dataclass(frozen=True)
class ListedValues:
    """A column that knows a value for a few rows: which rows of a chunk, and their values.

    Parameters
    ----------
    index : array, shape (k,)
        Increasing.
    values : array, shape (k,)
    """

    index: Any
    values: Any

    def __getitem__(self, rows: slice) -> tuple[Any, Any]:
        first, last = np.searchsorted(self.index, [rows.start, rows.stop])
        return self.index[first:last] - rows.start, self.values[first:last]

    @classmethod
    def nothing(cls) -> ListedValues:
        """A list of no rows."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros(0))


def entries(column: Column, rows: Any) -> Any:
    """``column[rows]`` for a column that may only know slices; None where it is absent."""
    if isinstance(column, AbsentColumn):
        return None
    if isinstance(column, np.ndarray):
        return column[rows]
    found = [np.asarray(column[slice(int(i), int(i) + 1)]) for i in rows]
    return np.concatenate(found) if found else np.zeros(0)


class Chunk(Immutable):
    """The rows ``scale_i [block_i, 1]`` of one chunk; the 1 where there is an `intercept`."""

    block: Any
    scale: Array | None
    intercept: bool

    @classmethod
    def of(cls, block: Any, scale: Any, intercept: bool) -> Chunk:
        """A chunk whose row factors may be integers, or missing."""
        return cls(
            block, None if scale is None else np.asarray(scale, dtype=np.float64), intercept
        )

    def __len__(self) -> int:
        return int(self.block.shape[0])

    @property
    def width(self) -> int:
        """Columns, the intercept's included."""
        return int(self.block.shape[1]) + self.intercept

    def margins(self, x: Array) -> Array:
        """``<a_i, x>``."""
        p = self.block.shape[1]
        if sp.issparse(self.block):
            out = np.asarray(self.block @ x[:p], dtype=np.float64)
        else:
            out = streams.margins(self.block, x[:p])
        if self.intercept:
            out += x[p]
        if self.scale is not None:
            out *= self.scale
        return out

    def adjoint(self, theta: Array) -> Array:
        """``sum_i theta_i a_i``."""
        weights = theta if self.scale is None else theta * self.scale
        p = self.block.shape[1]
        out = np.zeros(self.width)
        if sp.issparse(self.block):
            out[:p] = self.block.T @ weights
        else:
            out[:p] = streams.adjoint(self.block, weights)
        if self.intercept:
            out[p] = weights.sum()
        return out

    def squares(self, weights: Array) -> Array:
        """``sum_j weights_j a_ij^2``."""
        p = self.block.shape[1]
        if sp.issparse(self.block):
            out = np.asarray(self.block.astype(np.float64).power(2) @ weights[:p])
        else:
            out = streams.squares(self.block, weights[:p])
        if self.intercept:
            out += weights[p]
        out = out if self.scale is None else out * self.scale * self.scale
        few = np.flatnonzero(out < UNDERFLOWN * factors_of(weights, self.scale))
        if few.size:  # underflow may have taken something off
            out[few] = self.take(few).rows().weighted_squares(weights)
        return out

    def take(self, rows: Any) -> Chunk:
        """The rows at `rows`, copied."""
        return Chunk(
            self.block[rows], None if self.scale is None else self.scale[rows], self.intercept
        )

    def gram(self, weights: Array) -> Array:
        """``sum_i weights_i a_i a_i'``; rows of weight 0 are not read."""
        total = np.zeros((self.width, self.width))
        for first in range(0, len(self), STRIP):
            used = np.flatnonzero(weights[first : first + STRIP]) + first
            rows = self.take(used).rows().dense()
            total += rows.T @ (rows * weights[used, None])
        return total

    def rows(self) -> Rows:
        """The same rows as an ordinary design."""
        extra = np.ones((len(self), 1)) if self.intercept else None
        return Rows(self.block, self.scale, extra, known=True)


class SampledRows(Immutable):
    """Rows of a source that stay in memory: their indices (increasing), and the rows."""

    index: NDArray[np.intp]
    block: Any


Method = Callable[[Chunk, Any], Any]
"""A method of `Chunk` with one argument."""


@dataclass(frozen=True)
class MethodTask(streams.Task):
    """The task that calls a method of every chunk; results in a list or summed.

    `call` is a method of `Chunk` with one argument: `fixed`, or where that is None the column.
    """

    call: Method
    fixed: Any
    intercept: bool
    summed: bool

    def __call__(self, block: Any, start: int, scale: Any, column: Any) -> Any:
        """The method's result for one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        argument = np.asarray(column, dtype=np.float64) if self.fixed is None else self.fixed
        found = self.call(chunk, argument)
        return found if self.summed else [found]


class Chunks:
    """The design ``A`` (n x d) of rows ``a_i = scale_i [x_i, 1]``, chunk by chunk.

    Parameters
    ----------
    source : Source
    engine : Engine
    scale : Column
        Factor of each row, or `ABSENT`.
    intercept : bool
        Whether there is a last column of ones (times `scale`).
    longest : int, optional
        Most entries of a row that are not 0; the number of columns when omitted.
    sample : Sample, optional
        Some rows that are kept in memory.
    """

    streamed, centred = True, False
    reach: Array | None = None

    def __init__(
        self,
        source: Source,
        engine: Engine,
        scale: Column = ABSENT,
        intercept: bool = False,
        longest: int | None = None,
        sample: SampledRows | None = None,
    ) -> None:
        self.source, self.engine, self.scale = source, engine, scale
        self.intercept = bool(intercept)
        n, p = source.shape
        self.shape: tuple[int, int] = (int(n), int(p) + self.intercept)
        self.longest = p if longest is None else longest
        self.sample = sample

    @property
    def sparse(self) -> bool:
        """Whether chunks are CSR."""
        return self.source.sparse

    def _each(
        self, call: Method, fixed: Any, column: Column = ABSENT, *, summed: bool
    ) -> Any:
        """What `call` says of all chunks: their sum, or one array in their order."""
        task = MethodTask(call, fixed, self.intercept, summed)
        found = self.engine.run(task, self.source, (self.scale, column))
        return found if summed else np.concatenate(found)

    # -- the two passes -----------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """``A x``, shape (n,)."""
        return np.asarray(self._each(Chunk.margins, np.array(x, dtype=np.float64), summed=False))

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,)."""
        return np.asarray(self._each(Chunk.adjoint, None, np.asarray(theta), summed=True))

    @cached_property
    def forward_factor(self) -> float:
        """``|computed - exact| <= forward_factor * sum_j |a_ij x_j|`` in every row."""
        return gamma(self.longest + self.intercept + 4)

    @cached_property
    def adjoint_factor(self) -> float:
        """``|computed - exact| <= adjoint_factor * sum_i |a_ij theta_i|`` in every column."""
        sizes = [stop - start for start, stop in pairwise(self.source.bounds)]
        most, levels = max(sizes), int(np.ceil(np.log2(len(sizes))))
        within = most if self.sparse else min(most, STRIP) + most // STRIP + 1
        return gamma(within + levels + 4)

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (n,); `sizes` are ``||a_i||``."""
        return self.forward_factor * float(np.linalg.norm(np.asarray(x))) * sizes

    def forward_precise(self, index: Index, x: ArrayLike) -> tuple[Array, Array]:
        """``<a_i, x>`` of a few rows in extended precision, and a bound of the error left."""
        rows = self.take_rows(index)
        return rows.forward_precise(np.arange(rows.shape[0]), x)

    def offset(self, x: ArrayLike) -> float:
        """What the design has added to an intercept: nothing."""
        return 0.0

    # -- norms and small matrices -------------------------------------------------------------

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j a_ij^2``, shape (n,)."""
        return np.asarray(
            self._each(Chunk.squares, np.array(weights, dtype=np.float64), summed=False)
        )

    def weighted_gram(self, index: Index | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J`` for the rows J at `index` (None: all), dense (d, d)."""
        column = np.zeros(self.shape[0])
        column[slice(None) if index is None else index] = np.asarray(weights, dtype=np.float64)
        return np.asarray(self._each(Chunk.gram, None, column, summed=True))

    def column(self, j: int) -> Array:
        """Coordinate `j` of every row, shape (n,)."""
        unit = np.zeros(self.shape[1])
        unit[j] = 1.0
        return self.forward(unit)

    # -- into memory, and closed under taking columns -----------------------------------------

    def take_rows(self, index: Index) -> Rows:
        """The rows at `index`, gathered into memory."""
        given = np.asarray(index)
        rows = np.flatnonzero(given) if given.dtype == bool else given.astype(np.intp)
        order, back = np.unique(rows, return_inverse=True)
        block = self.engine.gather(self.source, order)
        if not np.array_equal(order, rows):
            block = block[back]
        scale = entries(self.scale, rows)
        return Chunk.of(block, scale, self.intercept).rows()

    def dense(self, index: Index | None = None) -> Array:
        """The rows at `index` (all when omitted) as a dense float64 array."""
        return self.take_rows(np.arange(self.shape[0]) if index is None else index).dense()

    def rows_csr(self, index: Index) -> sp.csr_matrix:
        """The rows at `index` as CSR float64, the intercept's column included."""
        rows = self.take_rows(index)
        return rows.rows_csr(np.arange(rows.shape[0]))

    def take_columns(self, index: Index) -> Chunks:
        """The design made of the coordinates at `index` (in the order of the columns)."""
        mask = np.zeros(self.shape[1], dtype=bool)
        mask[index] = True
        p = self.source.shape[1]
        narrow = ColumnSubset(self.source, np.flatnonzero(mask[:p]))
        intercept = self.intercept and bool(mask[p])
        return Chunks(narrow, self.engine, self.scale, intercept)


@dataclass(frozen=True)
class ColumnSubset:
    """Some columns of a source."""

    source: Source
    columns: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, int]:
        """All rows, and the columns that stay."""
        return self.source.shape[0], len(self.columns)

    @property
    def sparse(self) -> bool:
        """Whether the chunks are CSR."""
        return self.source.sparse

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where the chunks begin and end, which hold the same rows as the whole."""
        return self.source.bounds

    def load(self, k: int) -> Any:
        """Copy the chosen columns of chunk `k`."""
        block = self.source.load(k)[:, self.columns]
        return block if self.sparse else np.ascontiguousarray(block)
