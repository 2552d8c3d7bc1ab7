"""Compiled loops over some columns of a sparse matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled, unsigned


class Compressed(NamedTuple):
    """The arrays of a sparse matrix by columns (CSC), or by rows (CSR).

    The entries of column j lie at ``indptr[j] <= p < indptr[j + 1]`` of `indices` (the row of each)
    and `data`. Positions and indices are unsigned: of a signed index compiled code asks whether it
    counts from the end.
    """

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]


def compressed(matrix: Any) -> Compressed:
    """The arrays of a scipy matrix in CSC or CSR format."""
    indptr, indices = unsigned(matrix.indptr, matrix.indices)
    return Compressed(indptr, indices, matrix.data)


@compiled(fastmath=SUMS)
def add_columns(columns, matrix, step, out):  # type: ignore[no-untyped-def]
    """``out += sum_k step_k B_j``, ``j = columns_k``; columns without a step are not looked at."""
    indptr, indices, data = matrix
    for k in range(columns.size):
        size = step[k]
        if size != 0.0:
            for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
                out[indices[p]] += size * data[p]


@compiled(fastmath=SUMS)
def inner_products(columns, matrix, u, out):  # type: ignore[no-untyped-def]
    """``out_k = <B_j, u>``, ``j = columns_k``."""
    indptr, indices, data = matrix
    for k in range(columns.size):
        total = 0.0
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            total += data[p] * u[indices[p]]
        out[k] = total


@compiled(fastmath=SUMS)
def copy_scaled_rows(columns, matrix, rank, factor, made):  # type: ignore[no-untyped-def]
    """Copy the entries of some columns in rows of rank >= 0, times ``factor_i``; their number.

    The k-th of the `columns` becomes column k of `made`, and row i its row ``rank_i``.
    """
    indptr, indices, data = matrix
    new_indptr, new_indices, new_data = made
    count = 0
    for k in range(columns.size):
        j = columns[k]
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            if rank[i] >= 0:
                new_indices[count] = rank[i]
                new_data[count] = data[p] * factor[i]
                count += 1
        new_indptr[k + 1] = count
    return count


@compiled(fastmath=SUMS)
def transpose_columns(columns, matrix, by_row):  # type: ignore[no-untyped-def]
    """Some columns by rows: the k-th of them is column k of the CSR arrays `by_row`.

    ``by_row.indptr`` starts at 0 throughout and has one entry more than CSR needs, for counting.
    """
    indptr, indices, data = matrix
    starts, new_indices, new_data = by_row
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            starts[indices[p] + 2] += 1
    for i in range(2, starts.size):
        starts[i] += starts[i - 1]
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            place = starts[indices[p] + 1]
            new_indices[place] = k
            new_data[place] = data[p]
            starts[indices[p] + 1] = place + 1


@compiled(fastmath=SUMS)
def add_gram(columns, matrix, scale, by_row, out):  # type: ignore[no-untyped-def]
    """The lower half of ``out_kl += scale_k scale_l <B_j, B_i>``, ``j = columns_k``, i of l.

    `by_row` is what `transpose_columns` made of these columns. One row of `out` stays in the cache.
    """
    indptr, indices, data = matrix
    starts, turned, values = by_row
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            size = scale[k] * data[p]
            for r in range(starts[indices[p]], starts[indices[p] + 1]):
                column = turned[r]
                if column > k:
                    break
                out[k, column] += size * (scale[column] * values[r])


@compiled(fastmath=SUMS)
def add_outer_products(columns, matrix, scale, out):  # type: ignore[no-untyped-def]
    """The lower half of ``out += sum_k scale_k B_j B_j'``; row numbers rise within a column."""
    indptr, indices, data = matrix
    for k in range(columns.size):
        first, last = indptr[columns[k]], indptr[columns[k] + 1]
        for p in range(first, last):
            size = scale[k] * data[p]
            for r in range(first, last):
                if indices[r] > indices[p]:
                    break
                out[indices[p], indices[r]] += size * data[r]
