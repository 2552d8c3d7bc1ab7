"""Matrices behind affine expressions: dense, CSR or diagonal, whichever the data already are.

`Diagonal` stands for the common ``c * variable``, `Scaled` for ``labels * X``; they are never
expanded before they must be, so that data of a gigabyte stay where the caller has them. All other
operations keep a dense matrix dense and a sparse one sparse, and copy nothing they need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Diagonal:
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


@dataclass(frozen=True, eq=False)
class Scaled:
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


def add(first: Matrix, second: Matrix) -> Matrix:
    """The sum of two matrices of one shape."""
    if isinstance(first, Diagonal) and isinstance(second, Diagonal):
        return Diagonal(first.entries + second.entries)
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
    return _entries(whole, keep[whole.indices])


def cleared(quadratic: Any, columns: Index) -> Any:
    """The quadratic term without some columns and rows."""
    keep = np.ones(quadratic.shape[0], dtype=bool)
    keep[columns] = False
    return _entries(quadratic, keep[quadratic.indices] & keep[rows_of(quadratic)])


def rows_of(matrix: Any) -> Index:
    """The row of each entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _entries(matrix: Any, chosen: NDArray[np.bool_]) -> Any:
    """A CSR matrix with the chosen ones of its entries, without explicit zeros."""
    chosen = chosen & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr]
    return sp.csr_array((matrix.data[chosen], matrix.indices[chosen], ends), shape=matrix.shape)
