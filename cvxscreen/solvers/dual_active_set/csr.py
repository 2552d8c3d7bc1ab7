"""Rows of CSR matrices as compiled loops read them: products, sums over columns, copies.

`ScaledRows` is the design of a problem in this form, only read; `Csr` is any such matrix. Positions
and indices are unsigned, so that no access has to ask whether it counts from the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, compiled, unsigned
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ONE, TWO = np.uint64(1), np.uint64(2)


class Csr(NamedTuple):
    """A CSR matrix: row i holds the entries at ``start_i <= p < stop_i``.

    Attributes
    ----------
    start, stop : arrays of uint64, shape (rows,)
    indices : array of unsigned int, shape (entries,)
        Columns; not sorted within a row.
    data : array of float, shape (entries,)
    """

    start: NDArray[np.uint64]
    stop: NDArray[np.uint64]
    indices: NDArray[Any]
    data: NDArray[Any]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of entries of each row."""
        return (self.stop - self.start).astype(np.int64)

    def followed_by(self, other: Csr) -> Csr:
        """These rows, then those of `other`."""
        shift = np.uint64(len(self.indices))
        moved = Csr(other.start + shift, other.stop + shift, other.indices, other.data)
        return Csr(*(np.concatenate(pair) for pair in zip(self, moved, strict=True)))


def empty_rows(lengths: NDArray[np.int64], columns: int) -> Csr:
    """Rows of given lengths that follow each other, their entries to be filled in."""
    pointers = np.zeros(len(lengths) + 1, dtype=np.uint64)
    pointers[1:] = np.cumsum(lengths)
    size, short = int(pointers[-1]), columns <= 2**16
    indices = np.empty(size, dtype=np.uint16 if short else np.uint32)
    return Csr(pointers[:-1], pointers[1:], indices, np.empty(size))


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """The rows ``factor_i a_i root`` (root by columns) of CSR arrays that are only read.

    Parameters
    ----------
    matrix : Csr
    factor : array, shape (n,)
    root : array, shape (d,)
        ``M^{-1/2}``.
    """

    matrix: Csr
    factor: Array
    root: Array

    @classmethod
    def of(cls, rows: Rows, root: Array) -> ScaledRows:
        """From CSR rows; nothing is copied but their pointers, unless there are extra columns."""
        matrix, extra = rows.matrix, rows.extra
        factor = np.ones(rows.shape[0]) if rows.scale is None else rows.scale
        pointers = matrix.indptr.astype(np.uint64)
        (indices,) = unsigned(matrix.indices)
        csr = Csr(pointers[:-1], pointers[1:], indices, matrix.data)
        if extra.shape[1]:
            wider = empty_rows(np.diff(matrix.indptr) + extra.shape[1], rows.shape[1])
            prepend_columns(csr, extra, matrix.shape[1], wider)
            csr = wider
        return cls(csr, factor, root)

    def lengths(self, rows: Index) -> NDArray[np.int64]:
        """Number of stored entries of some rows."""
        return (self.matrix.stop[rows] - self.matrix.start[rows]).astype(np.int64)

    def forward(self, v: Array) -> Array:
        """All margins of v: one pass."""
        out = np.empty(len(self.factor))
        row_products(np.arange(len(out)), self.matrix, v * self.root, out)
        return out * self.factor

    def adjoint(self, theta: Array) -> Array:
        """The sum of ``theta_i a_i``: one pass over the rows where theta is not zero."""
        rows = np.flatnonzero(theta)
        out = np.zeros(len(self.root))
        add_rows(rows, self.matrix, (theta * self.factor)[rows], out)
        return out * self.root

    def column_sums(self, rows: Index) -> tuple[Array, Array]:
        """Sum of squares and number of entries of each column over some rows."""
        lengths, d = self.lengths(rows), len(self.root)
        first = self.matrix.start[rows].astype(np.intp)
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(first, lengths) + within
        columns = self.matrix.indices[entries].astype(np.intp)
        values = self.matrix.data[entries] * np.repeat(self.factor[rows], lengths)
        squares = np.bincount(columns, values * values, d) * self.root**2
        return squares, np.bincount(columns, minlength=d).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ScaledDesign:
    """The products of the rows ``a_i root`` of any rows in memory, as they are stored."""

    rows: Rows
    root: Array

    def forward(self, v: Array) -> Array:
        """All margins of v: one pass."""
        return self.rows.forward(v * self.root)

    def adjoint(self, theta: Array) -> Array:
        """The sum of ``theta_i a_i``: one pass unless theta is 0."""
        if not theta.any():
            return np.zeros(len(self.root))
        return self.rows.adjoint(theta) * self.root


# -- compiled loops --------------------------------------------------------------------------
# Two numba signatures of a loop are ordinary: the caller's matrix has 32-bit indices (or 64), our
# copies have 16-bit ones where that is enough, which halves what a product reads of them.


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def sparse_dot(
    start: np.uint64, stop: np.uint64, indices: NDArray[Any], data: NDArray[Any], v: Array
) -> float:
    """``sum_p data_p v[indices_p]`` over ``start <= p < stop``.

    Written into its callers: a call for each row costs 15 % of a pass over rows of 12 entries.
    """
    even = start + ((stop - start) // TWO) * TWO
    first, second = 0.0, 0.0  # two sums, so that an addition need not wait for the last
    for p in range(start, even, TWO):
        first += data[p] * v[indices[p]]
        second += data[p + ONE] * v[indices[p + ONE]]
    for p in range(even, stop):
        first += data[p] * v[indices[p]]
    return first + second


@compiled(fastmath=CONTRACT, allocates=False)
def row_products(rows: Index, matrix: Csr, v: Array, out: Array) -> None:
    """``out_k = <a_i, v>`` for the k-th row i of `rows`."""
    start, stop, indices, data = matrix
    for k in range(rows.size):
        i = rows[k]
        out[k] = sparse_dot(start[i], stop[i], indices, data, v)


@compiled(fastmath=CONTRACT, allocates=False)
def add_rows(rows: Index, matrix: Csr, x: Array, out: Array) -> None:
    """``out += sum_k x_k a_i`` over the k-th row i of `rows`."""
    start, stop, indices, data = matrix
    for k in range(rows.size):
        i = rows[k]
        value = x[k]
        for p in range(start[i], stop[i]):
            out[indices[p]] += value * data[p]


@compiled(fastmath=CONTRACT, allocates=False)
def prepend_columns(matrix: Csr, extra: Array, first: int, wider: Csr) -> None:
    """Copy all rows, each behind its entries in further dense columns ``first, first + 1, ...``."""
    start, stop, indices, data = matrix
    new_start, _, new_indices, new_data = wider
    for i in range(start.size):
        a = new_start[i]
        for j in range(extra.shape[1]):
            new_indices[a] = first + j
            new_data[a] = extra[i, j]
            a += ONE
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = data[p]
            a += ONE


@compiled(fastmath=CONTRACT, allocates=False)
def copy_rows(rows: Index, matrix: Csr, at: Index, out: Csr) -> None:
    """Copy rows to other places: the k-th of `rows` becomes row ``at_k`` of `out`."""
    start, stop, indices, data = matrix
    new_start, _, new_indices, new_data = out
    for k in range(rows.size):
        i = rows[k]
        a = new_start[at[k]]
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = data[p]
            a += ONE
