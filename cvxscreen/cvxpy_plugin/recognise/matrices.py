"""Matrices behind affine expressions, and all constraint rows of a problem as one matrix.

First the matrices of one expression: dense, CSR or diagonal, whichever the data already are.
`Diagonal` stands for the common ``c * variable``, `Scaled` for ``labels * X``; they are never
expanded before they must be, so that data of a gigabyte stay where the caller has them. All other
operations keep a dense matrix dense and a sparse one sparse, and copy nothing they need not.

Then all of them put at their places, a `Stack`::

    rows(z) = A z + offset,      A = sparse + sum of dense blocks

Data that come dense stay dense: they are never turned into a sparse matrix and back. New rows are
linear combinations of old ones (`Stack.combine`), which is all that eliminating columns takes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Diagonal(NamedTuple):
    """The square matrix ``diag(entries)``.

    Parameters
    ----------
    entries : array, shape (n,)
    """

    entries: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.entries), len(self.entries)


class Scaled(NamedTuple):
    """The dense matrix ``diag(factor) @ matrix``.

    Parameters
    ----------
    matrix : array, shape (n, p)
    factor : array, shape (n,)
    """

    matrix: Array
    factor: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.shape[0], self.matrix.shape[1]


def repeated(factor: Array) -> Scaled:
    """One column: what a scalar has in every row (an intercept). No ones are stored for it."""
    return Scaled(np.broadcast_to(1.0, (len(factor), 1)), factor)


def repeated_along(matrix: Matrix, copies: int) -> Any:
    """The block diagonal matrix of so many copies, CSR: what ``matrix @ W`` does to vec(W)."""
    one = csr(matrix)
    rows, columns = one.shape
    shift = np.arange(copies)
    ends = (shift[:, None] * one.nnz + one.indptr[1:]).ravel()
    return sp.csr_array(
        (
            np.tile(one.data, copies), (shift[:, None] * columns + one.indices).ravel(),
            np.append(0, ends),
        ),
        shape=(copies * rows, copies * columns),
    )


def is_repeated(matrix: Matrix) -> bool:
    """Whether `matrix` is such a column."""
    return isinstance(matrix, Scaled) and _one_number(matrix.matrix)


def _one_number(matrix: Array) -> bool:
    """Whether an array is the column of ones of `repeated`."""
    return matrix.strides == (0, 0) and matrix.shape[1] == 1 and bool((matrix[:1] == 1.0).all())


Matrix = Any
"""A `Diagonal`, a `Scaled`, a 2-D ndarray or a CSR array."""

LARGE = 5000
"""Smaller dense matrices are multiplied out at once."""

FEW, ROWS = 4, 2048
"""Columns of a sparse factor with more entries are left to SciPy; rows that are taken together."""


def expanded(matrix: Matrix) -> Matrix:
    """`matrix`, multiplied out where it is `Scaled`."""
    return matrix.matrix * matrix.factor[:, None] if isinstance(matrix, Scaled) else matrix


def csr(matrix: Matrix) -> sp.csr_array:
    """`matrix` as a CSR array."""
    matrix = expanded(matrix)
    if isinstance(matrix, Diagonal):
        n = len(matrix.entries)
        return sp.csr_array((matrix.entries, np.arange(n), np.arange(n + 1)), shape=(n, n))
    return sp.csr_array(matrix)


def stored(value: Any) -> Matrix:
    """A constant's value as a float64 matrix: sparse ones as CSR, all others as 2-D arrays."""
    if sp.issparse(value):
        return sp.csr_array(value, dtype=np.float64)
    return np.asarray(value, dtype=np.float64)


def times(left: Matrix, matrix: Matrix) -> Matrix:
    """``left @ matrix`` for a dense or sparse `left`, shape (k, n) times (n, p)."""
    if isinstance(matrix, Diagonal):
        if (matrix.entries == 1.0).all():
            return left
        if sp.issparse(left):
            return sp.csr_array(left @ sp.diags_array(matrix.entries))
        return left * matrix.entries
    if isinstance(matrix, Scaled):
        left = left @ sp.diags_array(matrix.factor) if sp.issparse(left) else left * matrix.factor
        matrix = matrix.matrix
    if sp.issparse(matrix) and isinstance(left, np.ndarray) and left.size >= LARGE:
        columns = sp.csc_array(matrix)
        if np.diff(columns.indptr).max(initial=0) <= FEW:
            return gathered(left, columns)
    product = left @ matrix
    return sp.csr_array(product) if sp.issparse(product) else np.asarray(product)


def gathered(left: Array, columns: Any) -> Array:
    """``left @ columns`` for a CSC array with few entries in each column, row by row in memory.

    A symmetric variable stands behind its entries through such a matrix.
    """
    counts = np.diff(columns.indptr)
    out = np.zeros((left.shape[0], columns.shape[1]))
    for k in range(int(counts.max(initial=0))):
        where = np.flatnonzero(counts > k)
        entry = columns.indptr[where] + k
        index, factor = columns.indices[entry], columns.data[entry]
        for start in range(0, len(left), ROWS):
            part = left[start : start + ROWS].take(index, axis=1)
            if (factor != 1.0).any():
                part *= factor
            if len(where) == len(counts):
                out[start : start + ROWS] += part
            else:
                out[start : start + ROWS, where] += part
    return out


def scale_rows(matrix: Matrix, factor: Array) -> Matrix:
    """``diag(factor) @ matrix``; the matrix itself where all factors are 1."""
    if (factor == 1.0).all():
        return matrix
    if isinstance(matrix, Diagonal):
        return Diagonal(matrix.entries * factor)
    if isinstance(matrix, Scaled):
        return Scaled(matrix.matrix, matrix.factor * factor)
    if sp.issparse(matrix):
        data = matrix.data * np.repeat(factor, np.diff(matrix.indptr))
        return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    return matrix * factor[:, None] if matrix.size < LARGE else Scaled(matrix, factor)


def take_rows(matrix: Matrix, index: Index) -> Matrix:
    """The rows at `index`; an entry of -1 asks for a row of zeros."""
    missing = index < 0
    if not missing.any():
        count = matrix.shape[0]
        if len(index) == count and (index == np.arange(count)).all():
            return matrix
        if isinstance(matrix, Scaled):
            return Scaled(matrix.matrix[index], matrix.factor[index])
        return csr(matrix)[index] if isinstance(matrix, Diagonal) else matrix[index]
    picked = take_rows(matrix, np.where(missing, 0, index))
    return scale_rows(picked, np.where(missing, 0.0, 1.0))


def rows_of_several(parts: list[tuple[Matrix, Index]]) -> Matrix:
    """The sum of what `take_rows` makes of each matrix and its index.

    No two of them have a row for the same place, so that dense rows are copied once.
    """
    if len(parts) > 1 and all(isinstance(part, np.ndarray | Scaled) for part, _ in parts):
        out = np.zeros((len(parts[0][1]), parts[0][0].shape[1]))
        for part, index in parts:
            place = as_slice(np.flatnonzero(index >= 0))
            source = as_slice(index[place])
            out[place] = part.matrix[source] if isinstance(part, Scaled) else part[source]
            if isinstance(part, Scaled):
                out[place] *= part.factor[source, None]
        return out
    total, *others = (take_rows(part, index) for part, index in parts)
    for other in others:
        total = add(total, other)
    return total


def add(first: Matrix, second: Matrix) -> Matrix:
    """The sum of two matrices of one shape."""
    if isinstance(first, Diagonal) and isinstance(second, Diagonal):
        return Diagonal(first.entries + second.entries)
    if is_repeated(first) and is_repeated(second):
        return repeated(first.factor + second.factor)
    first, second = expanded(first), expanded(second)
    total = (csr(first) if isinstance(first, Diagonal) else first) + (
        csr(second) if isinstance(second, Diagonal) else second
    )
    return sp.csr_array(total) if sp.issparse(total) else np.asarray(total)


def stack(matrices: list[tuple[int, Matrix]], rows: int, columns: int) -> Matrix:
    """Matrices below each other, each starting at its own row, zeros elsewhere.

    Parameters
    ----------
    matrices : list of (int, matrix)
        First row and matrix.
    rows, columns : int
        Shape of the result.
    """
    matrices = [(start, expanded(matrix)) for start, matrix in matrices]
    if any(isinstance(matrix, np.ndarray) for _, matrix in matrices):
        out = np.zeros((rows, columns))
        for start, matrix in matrices:
            part = csr(matrix).toarray() if not isinstance(matrix, np.ndarray) else matrix
            out[start : start + part.shape[0]] += part
        return out
    parts = [csr(matrix).tocoo() for _, matrix in matrices]
    row = [part.row + start for part, (start, _) in zip(parts, matrices, strict=True)]
    column = [part.col for part in parts]
    data = [part.data for part in parts]
    return sp.csr_array(
        (np.concatenate(data), (np.concatenate(row), np.concatenate(column))),
        shape=(rows, columns),
    )


def column_sums(matrix: Matrix, weights: Array) -> Array:
    """``weights @ matrix`` as a vector, shape (columns,)."""
    if isinstance(matrix, Diagonal):
        return matrix.entries * weights
    if isinstance(matrix, Scaled):
        return np.asarray(matrix.matrix.T @ (weights * matrix.factor))
    return np.asarray(matrix.T @ weights).ravel()


def diagonal(factor: NDArray[np.float64]) -> Any:
    """A sparse diagonal matrix."""
    n = len(factor)
    return sp.csr_array((factor, np.arange(n), np.arange(n + 1)), shape=(n, n))


def without(matrix: Any, columns: Index) -> Any:
    """A sparse matrix with some columns set to zero."""
    whole = sp.csr_array(matrix)
    if not len(columns) and whole.data.all():
        return whole
    keep = np.ones(whole.shape[1], dtype=bool)
    keep[columns] = False
    return some_entries(whole, keep[whole.indices])


def cleared(quadratic: Any, columns: Index) -> Any:
    """The quadratic term without some columns and rows."""
    keep = np.ones(quadratic.shape[0], dtype=bool)
    keep[columns] = False
    return some_entries(quadratic, keep[quadratic.indices] & keep[rows_of(quadratic)])


def square_block(matrix: Any, index: Index) -> Any:
    """The rows and columns of a square matrix at `index`; itself where that is all, in order."""
    if np.array_equal(index, np.arange(matrix.shape[0])):
        return matrix
    return sp.csr_array(matrix[index][:, index])


def rows_of(matrix: Any) -> Index:
    """The row of each entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def some_entries(matrix: Any, chosen: NDArray[np.bool_]) -> Any:
    """A CSR matrix with the chosen ones of its entries, without explicit zeros."""
    chosen = chosen & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr]
    return sp.csr_array((matrix.data[chosen], matrix.indices[chosen], ends), shape=matrix.shape)


FEW_MORE = 4
"""At most so many columns beside a dense block leave it where it is (an intercept)."""

FEW_OF = 4
"""Rows are taken out of a dense block for a product where at most one in so many has a weight."""

CHUNK = 65536
"""Rows that are looked at together, so that no temporary grows with the data."""

FIRST_LOOK = 256
"""Rows of a dense block that are looked at before all others: nearly always they say it all."""

DENSE_SHARE = 0.3
"""Blocks with a smaller share of non-zero entries are kept sparse."""


class Block(Immutable):
    """A dense block of the matrix, ``diag(factor) @ matrix``.

    Parameters
    ----------
    rows : array of int, shape (k,)
        Increasing.
    start : int
        First column.
    matrix : array, shape (k, width)
        The caller's own data where possible; never written to.
    factor : array, shape (k,), or None
        None for 1.
    """

    rows: Index
    start: int
    matrix: Array
    factor: Array | None = None

    @property
    def span(self) -> slice:
        """The columns of the block."""
        return slice(self.start, self.start + self.matrix.shape[1])

    @property
    def repeated(self) -> bool:
        """Whether it is the column of a scalar; see `repeated`."""
        return _one_number(self.matrix)

    @cached_property
    def place(self) -> Any:
        """The rows of the block, as a slice where they are consecutive."""
        first, last = self.rows[0], self.rows[-1]  # increasing
        return slice(first, last + 1) if last - first == len(self.rows) - 1 else self.rows

    def times(self, z: Array) -> Array:
        """The block times one vector (width,) or several (width, k)."""
        out = self.matrix @ z
        if self.factor is None:
            return np.asarray(out)
        return np.asarray(out * (self.factor if z.ndim == 1 else self.factor[:, None]))

    def weigh(self, weights: Array) -> Array:
        """`weights`, shape (k,), for rows of `matrix` alone."""
        return weights if self.factor is None else weights * self.factor

    def columns(self, index: Index | None = None) -> Array:
        """The columns at `index` (all when omitted), multiplied out."""
        out = self.matrix if index is None else self.matrix[:, index]
        return out if self.factor is None else out * self.factor[:, None]


class Stack(Immutable):
    """``A z + offset``; see the module's docstring.

    Parameters
    ----------
    sparse : CSR array, shape (m, N)
        Without explicit zeros.
    blocks : tuple of Block
    offset : array, shape (m,)
    """

    sparse: Any
    blocks: tuple[Block, ...]
    offset: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.sparse.shape
        return rows, columns

    def same_matrix(self, other: Stack) -> bool:
        """Whether `other` has the same entries in the same form, whatever its offset is."""
        mine, theirs = self.sparse, other.sparse
        if self.shape != other.shape or len(self.blocks) != len(other.blocks):
            return False
        pairs = [(getattr(mine, name), getattr(theirs, name))
                 for name in ("indptr", "indices", "data")]
        for block, again in zip(self.blocks, other.blocks, strict=True):
            if block.start != again.start or (block.factor is None) != (again.factor is None):
                return False
            pairs += [
                (block.rows, again.rows), (block.matrix, again.matrix),
                (block.factor, again.factor),
            ]
        return all(a is b or np.array_equal(a, b) for a, b in pairs)

    def apply(self, z: Array) -> Array:
        """``A z`` without the offset, for one vector (N,) or several (N, k)."""
        out = np.asarray(self.sparse @ z)
        for block in self.blocks:
            out[block.place] += block.times(z[block.span])
        return out

    def values(self, z: Array) -> Array:
        """``A z + offset``, shape (m,)."""
        return self.apply(z) + self.offset

    def values_at(self, index: Index, z: Array) -> Array:
        """``A z + offset`` of the rows at `index`."""
        out = self.offset[index]
        if self.sparse.nnz:
            out = out + self.sparse[index] @ z
        for block in self.blocks:
            if isinstance(block.place, slice):
                inside = (block.place.start <= index) & (index < block.place.stop)
                at = index[inside] - block.place.start
            else:
                inside = np.isin(index, block.rows)
                at = np.searchsorted(block.rows, index[inside])
            product = block.matrix[at] @ z[block.span]
            out[inside] += product if block.factor is None else product * block.factor[at]
        return out

    def part(self, start: int, stop: int) -> Stack:
        """The rows ``start:stop``, without a copy where that is all of them."""
        if start == 0 and stop == self.shape[0]:
            return self
        run = slice(start, stop)
        blocks = [part for block in self.blocks if (part := _cut(block, run)) is not None]
        return Stack(self.sparse[run], tuple(blocks), self.offset[run])

    def adjoint(self, multipliers: Array) -> Array:
        """``A' multipliers``, shape (N,)."""
        out = np.asarray(self.sparse.T @ multipliers)
        for block in self.blocks:
            weights = block.weigh(multipliers[block.place])
            at = np.flatnonzero(weights)
            if FEW_OF * len(at) < len(weights):
                out[block.span] += weights[at] @ block.matrix[at]
            else:
                out[block.span] += weights @ block.matrix
        return out

    def counts(self) -> NDArray[np.int64]:
        """Number of entries of each row, dense blocks counted in full, shape (m,)."""
        out = np.diff(self.sparse.indptr).astype(np.int64)
        for block in self.blocks:
            out[block.place] += block.matrix.shape[1]
        return out

    def touched(self) -> Mask:
        """Columns with an entry that is not 0, shape (N,)."""
        out = np.bincount(self.sparse.indices, minlength=self.shape[1]) > 0
        for block in self.blocks:
            start, size = 0, FIRST_LOOK
            open_columns = np.arange(block.matrix.shape[1])
            while start < len(block.rows) and len(open_columns):
                part = block.matrix[start : start + size, open_columns] != 0
                if block.factor is not None:
                    part = part[block.factor[start : start + size] != 0]
                hit = part.any(axis=0)
                out[block.start + open_columns[hit]] = True
                open_columns, start, size = open_columns[~hit], start + size, CHUNK
        return out

    def reached(self) -> Mask:
        """Columns that an entry or a dense block stands in, whatever its numbers, shape (N,)."""
        out = self.dense_columns()
        out[self.sparse.indices] = True
        return out

    def filled(self) -> NDArray[np.int64]:
        """Number of non-zero entries of each row, shape (m,)."""
        rows = np.diff(self.sparse.indptr).astype(np.int64)
        for block in self.blocks:
            for start in range(0, len(block.rows), CHUNK):
                part = block.matrix[start : start + CHUNK] != 0
                if block.factor is not None:
                    part &= (block.factor[start : start + CHUNK] != 0)[:, None]
                rows[block.rows[start : start + CHUNK]] += np.count_nonzero(part, axis=1)
        return rows

    def finite(self) -> bool:
        """Whether all numbers but those of dense blocks are finite; the check sees to these."""
        parts = [self.offset, self.sparse.data]
        parts += [block.factor for block in self.blocks if block.factor is not None]
        return all(np.isfinite(part).all() for part in parts)

    def dense_columns(self) -> Mask:
        """Columns that a dense block touches, shape (N,)."""
        out = np.zeros(self.shape[1], dtype=bool)
        for block in self.blocks:
            out[block.span] = True
        return out

    def dense_rows(self) -> Mask:
        """Rows that a dense block touches, shape (m,)."""
        out = np.zeros(self.shape[0], dtype=bool)
        for block in self.blocks:
            out[block.place] = True
        return out

    def combine(self, weights: Any) -> Stack:
        """The rows ``weights @ A`` with offset ``weights @ offset``.

        Parameters
        ----------
        weights : CSR array, shape (k, m)
        """
        if not weights.nnz:
            k, columns = weights.shape[0], self.shape[1]
            return Stack(sp.csr_array((k, columns)), (), np.zeros(k))
        run = consecutive(weights)
        if run is not None:
            return self.part(run.start, run.stop)
        sparse = sp.csr_array(weights @ self.sparse)
        sparse.eliminate_zeros()
        by_column = sp.csc_array(weights) if self.blocks else None
        blocks = []
        for block in self.blocks:
            found = _pick(by_column, block)
            if found is not None:
                blocks.append(found)
        return Stack(sparse, tuple(blocks), np.asarray(weights @ self.offset))

    def columns(self, index: Index) -> Array | Any:
        """The columns at `index`: a dense array where at least a quarter is filled, else CSR.

        Parameters
        ----------
        index : array of int, shape (d,)
            Increasing.

        Returns
        -------
        array or CSR matrix, shape (m, d)
        """
        every = np.array_equal(index, np.arange(self.shape[1]))
        sparse = self.sparse if every else sp.csr_array(self.sparse[:, index])
        rows, d = sparse.shape
        parts = []
        for block in self.blocks:
            inside = (index >= block.start) & (index < block.start + block.matrix.shape[1])
            if inside.any():
                wanted = index[inside] - block.start
                whole = len(wanted) == block.matrix.shape[1]
                matrix = block.columns(None if whole else wanted)
                parts.append((block.place, as_slice(np.flatnonzero(inside)), matrix))
        filled = sparse.nnz + sum(matrix.size for _, _, matrix in parts)
        if filled < 0.25 * rows * d:
            for place, where, matrix in parts:
                full = np.zeros(rows + 1, dtype=np.intp)
                full[1:][place] = matrix.shape[1]
                index = np.tile(np.arange(d)[where], len(matrix))
                entries = matrix.flatten()  # a copy: to leave out zeros moves the others
                wide = sp.csr_array((entries, index, np.cumsum(full)), shape=(rows, d))
                wide.eliminate_zeros()
                sparse = sp.csr_array(sparse + wide)
            return sp.csr_matrix(sparse)
        out = sparse.toarray()
        for place, where, matrix in parts:
            if isinstance(place, slice) or isinstance(where, slice):
                out[place, where] += matrix
            else:
                out[np.ix_(place, where)] += matrix
        return out

    def design(self, index: Index) -> tuple[Rows, Index]:
        """The columns at `index` as a design, and the order in which it has them.

        One dense block over all rows, with a few other columns beside it, stays the caller's array.
        Columns that no row reaches come last then, and no zeros are stored for them.

        Parameters
        ----------
        index : array of int, shape (d,)
            Increasing.

        Returns
        -------
        Rows, shape (m, d)
        array of int, shape (d,)
            Positions in `index`.
        """
        same = np.arange(len(index))
        wide = [block for block in self.blocks if not block.repeated]
        if len(wide) != 1 or any(len(block.rows) != self.shape[0] for block in self.blocks):
            return Rows(self.columns(index)), same
        block = wide[0]
        inside = (index >= block.start) & (index < block.span.stop)
        beside = ~inside & self.reached()[index]
        others, nowhere = index[beside], ~(inside | beside)
        factor = block.factor
        plain = factor is None or bool((np.abs(factor) == 1.0).all())
        overlap = bool(self.sparse.nnz and self.sparse[:, index[inside]].nnz)
        if overlap or len(others) > FEW_MORE or not (plain or not len(others)):
            return Rows(self.columns(index)), same
        extra = np.zeros((self.shape[0], len(others)))
        if self.sparse.nnz:
            extra += self.sparse[:, others].toarray()
        for k, column in [(k, b) for k in range(len(others)) for b in self.blocks if b.repeated]:
            if column.start == others[k]:
                extra[:, k] += 1.0 if column.factor is None else column.factor
        if factor is not None:
            extra *= factor[:, None]  # of size 1, so that multiplying divides
        wanted = index[inside] - block.start
        matrix = block.matrix
        if len(wanted) != matrix.shape[1]:
            matrix = matrix[:, wanted]
        order = np.concatenate([same[inside], same[beside], same[nowhere]])
        known = matrix.flags.c_contiguous  # whether all numbers are finite is for the check
        return Rows(
            matrix, factor, extra if len(others) else None, known=known, absent=int(nowhere.sum())
        ), order


def consecutive(weights: Any) -> slice | None:
    """The rows that ``weights @`` picks, where these are consecutive ones as they are."""
    index, k = weights.indices, weights.shape[0]
    if len(index) != k or not k or index[-1] - index[0] != k - 1:
        return None
    once = (np.diff(weights.indptr) == 1).all() and (np.diff(index) == 1).all()
    return slice(int(index[0]), int(index[-1]) + 1) if once and (weights.data == 1).all() else None


def picked(weights: Any, matrix: Any) -> Any:
    """``weights @ matrix`` for CSR arrays, as it is where that only picks consecutive rows."""
    run = consecutive(weights)
    if run is None:
        return sp.csr_array(weights @ matrix)
    return matrix if run.stop - run.start == matrix.shape[0] else matrix[run]


def _cut(block: Block, run: slice) -> Block | None:
    """The part of a block in consecutive rows, counted from the first of them."""
    low, high = np.searchsorted(block.rows, [run.start, run.stop])
    if low == high:
        return None
    if high - low == len(block.rows):
        return Block(block.rows - run.start, block.start, block.matrix, block.factor)
    factor = None if block.factor is None else block.factor[low:high]
    rows = block.rows[low:high] - run.start
    return Block(rows, block.start, block.matrix[low:high], factor)


def _pick(weights: Any, block: Block) -> Block | None:
    """The part of ``weights @ A`` that comes from one dense block."""
    place = block.place
    part = sp.csr_array(weights[:, place])
    count = np.diff(part.indptr)
    rows = np.flatnonzero(count)
    if not len(rows):
        return None
    if count.max() > 1:
        if block.factor is not None:
            part = sp.csr_array(part @ sp.diags_array(block.factor))
        return Block(rows, block.start, np.asarray(part[rows] @ block.matrix))
    source = as_slice(part.indices.astype(np.intp))
    factor = part.data if block.factor is None else part.data * block.factor[source]
    plain = bool((factor == 1.0).all())
    return Block(rows, block.start, block.matrix[source], None if plain else factor)


def assemble(
    entries: list[tuple[int, int, Matrix]], offset: Array, columns: int, arguments: int
) -> Stack:
    """Put matrices at their places.

    Parameters
    ----------
    entries : list of (first row, first column, matrix)
    offset : array, shape (m,)
    columns : int
        Number N of columns.
    arguments : int
        First row that is the argument of a loss. There the column of a scalar is data like those
        beside it; before, it may be a helper, which the rules look for among sparse columns.
    """
    blocks, rows, cols, data = [], [], [], []
    places: dict[tuple[int, int], Index] = {}
    dense = [is_dense(matrix) for _, _, matrix in entries]
    beside = {
        row for (row, _, matrix), is_wide in zip(entries, dense, strict=True)
        if is_wide and not is_repeated(matrix) and row >= arguments
    }
    for (row, column, matrix), stays in zip(entries, dense, strict=True):
        if row in beside if is_repeated(matrix) else stays:
            span = row, row + matrix.shape[0]
            if span not in places:
                places[span] = np.arange(*span)
            place = places[span]
            data_of, factor = matrix, None
            if isinstance(matrix, Scaled):
                data_of, factor = matrix.matrix, matrix.factor
            blocks.append(Block(place, column, data_of, factor))
            continue
        part = csr(matrix).tocoo()
        rows.append(part.row + row)
        cols.append(part.col + column)
        data.append(part.data)
    shape = (len(offset), columns)
    if not data:
        return Stack(sp.csr_array(shape), tuple(blocks), offset)
    where = (np.concatenate(rows), np.concatenate(cols))
    sparse = sp.csr_array((np.concatenate(data), where), shape=shape)
    sparse.sum_duplicates()
    sparse.eliminate_zeros()
    return Stack(sparse, tuple(blocks), offset)


def below_each_other(parts: list[Stack]) -> Stack:
    """The rows of all, in this order; the first one may have dense blocks."""
    parts = [parts[0], *(part for part in parts[1:] if part.shape[0])]
    if not parts[0].shape[0] and len(parts) > 1:
        parts = parts[1:]
    if len(parts) == 1:
        return parts[0]
    sparse = sp.csr_array(sp.vstack([part.sparse for part in parts], format="csr"))
    return Stack(sparse, parts[0].blocks, np.concatenate([part.offset for part in parts]))


def is_dense(block: Matrix) -> bool:
    """Whether `block` is worth keeping as a dense array; small ones are not, whatever they hold."""
    if isinstance(block, Scaled):
        block = block.matrix
    if not isinstance(block, np.ndarray) or block.size < LARGE:
        return False
    look = block[:: max(len(block) // FIRST_LOOK, 1)]
    if np.count_nonzero(look) >= 2.0 * DENSE_SHARE * look.size:
        return True
    return bool(np.count_nonzero(block) >= DENSE_SHARE * block.size)


def as_slice(index: Index) -> Any:
    """`index` as a slice where it is consecutive, so that taking rows copies nothing."""
    if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
