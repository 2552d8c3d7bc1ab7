"""All constraint rows of a problem as one matrix: a sparse part and large dense blocks.

::

    rows(z) = A z + offset,      A = sparse + sum of dense blocks

Data that come dense stay dense: they are never turned into a sparse matrix and back. New rows are
linear combinations of old ones (`combine`), which is all that eliminating helper columns takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.reducer.affine import Matrix, csr

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

DENSE_SIZE = 5000
"""Blocks with fewer entries are kept sparse, whatever they hold."""

DENSE_SHARE = 0.3
"""Blocks with a smaller share of non-zero entries are kept sparse."""


def is_dense(block: Matrix) -> bool:
    """Whether `block` is worth keeping as a dense array."""
    if not isinstance(block, np.ndarray) or block.size < DENSE_SIZE:
        return False
    return bool(np.count_nonzero(block) >= DENSE_SHARE * block.size)


@dataclass(frozen=True, eq=False)
class Block:
    """A dense block of the matrix.

    Parameters
    ----------
    rows : array of int, shape (k,)
        Increasing.
    start : int
        First column.
    matrix : array, shape (k, width)
    """

    rows: Index
    start: int
    matrix: Array

    @property
    def span(self) -> slice:
        """The columns of the block."""
        return slice(self.start, self.start + self.matrix.shape[1])

    @property
    def place(self) -> Any:
        """The rows of the block, as a slice where they are consecutive."""
        return _as_slice(self.rows)


def _as_slice(index: Index) -> Any:
    if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


@dataclass(frozen=True, eq=False)
class Stack:
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

    def apply(self, z: Array) -> Array:
        """``A z`` without the offset, for one vector (N,) or several (N, k)."""
        out = np.asarray(self.sparse @ z)
        for block in self.blocks:
            out[block.place] += block.matrix @ z[block.span]
        return out

    def values(self, z: Array) -> Array:
        """``A z + offset``, shape (m,)."""
        return self.apply(z) + self.offset

    def adjoint(self, multipliers: Array) -> Array:
        """``A' multipliers``, shape (N,)."""
        out = np.asarray(self.sparse.T @ multipliers)
        for block in self.blocks:
            out[block.span] += multipliers[block.place] @ block.matrix
        return out

    def counts(self) -> NDArray[np.int64]:
        """Number of entries of each row, dense blocks counted in full, shape (m,)."""
        out = np.diff(self.sparse.indptr).astype(np.int64)
        for block in self.blocks:
            out[block.place] += block.matrix.shape[1]
        return out

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
        sparse = sp.csr_array(self.sparse[:, index])
        rows, d = sparse.shape
        parts = []
        for block in self.blocks:
            inside = (index >= block.start) & (index < block.start + block.matrix.shape[1])
            if inside.any():
                wanted = index[inside] - block.start
                matrix = block.matrix
                if len(wanted) != matrix.shape[1]:
                    matrix = matrix[:, wanted]
                parts.append((block.place, _as_slice(np.flatnonzero(inside)), matrix))
        filled = sparse.nnz + sum(matrix.size for _, _, matrix in parts)
        if filled < 0.25 * rows * d:
            for place, where, matrix in parts:
                wide = sp.lil_array((rows, d))
                wide[place, where] = matrix
                sparse = sp.csr_array(sparse + sp.csr_array(wide))
            return sp.csr_matrix(sparse)
        out = sparse.toarray()
        for place, where, matrix in parts:
            if isinstance(place, slice) or isinstance(where, slice):
                out[place, where] += matrix
            else:
                out[np.ix_(place, where)] += matrix
        return out


def _pick(weights: Any, block: Block) -> Block | None:
    """The part of ``weights @ A`` that comes from one dense block."""
    place = block.place
    part = sp.csr_array(weights[:, place])
    count = np.diff(part.indptr)
    rows = np.flatnonzero(count)
    if not len(rows):
        return None
    if count.max() > 1:
        return Block(rows, block.start, np.asarray(part[rows] @ block.matrix))
    source, factor = _as_slice(part.indices.astype(np.intp)), part.data
    matrix = block.matrix[source]
    if (factor != 1.0).any():
        matrix = matrix * factor[:, None]
    return Block(rows, block.start, matrix)


def assemble(
    entries: list[tuple[int, int, Matrix]], offset: Array, columns: int
) -> Stack:
    """Put matrices at their places.

    Parameters
    ----------
    entries : list of (first row, first column, matrix)
    offset : array, shape (m,)
    columns : int
        Number N of columns.
    """
    blocks, rows, cols, data = [], [], [], []
    for row, column, matrix in entries:
        if is_dense(matrix):
            place = np.arange(row, row + matrix.shape[0])
            blocks.append(Block(place, column, matrix))
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
