"""Rows and losses as loops over single dual variables read them, and what one of them asks.

`DescentRows` are rows as they are stored, `DescentTerms` the losses with finite ends of their
boxes; the compiled functions are written into loops that visit one term after another
(`dual_coordinate_descent`) or move some together (`dual_pivots`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled, read_only, unsigned
from cvxscreen.core.losses import LossTerms
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.working_set import Array, Index, sparse_dot

HUGE = 1e300
"""Stands for an endless end of a box, so that products with 0 are 0."""
WIDENED = 10_000_000
"""Values in single precision up to which they are copied in double: 20 ms at most, and the loops
for single ones would be compiled at their first use, 17 CPU seconds for sparse rows."""


class DescentRows(NamedTuple):
    """Rows ``factor_i [data, extra_i]`` as they are stored, sparse or dense.

    Attributes
    ----------
    start, stop : arrays of uint64, shape (n,)
        The entries of each row.
    indices : array of unsigned int
        Their columns; empty for dense rows.
    data : array of float
    factor : array, shape (n,)
    extra : array, shape (n, k)
        The last k columns.
    """

    start: NDArray[np.uint64]
    stop: NDArray[np.uint64]
    indices: NDArray[Any]
    data: NDArray[Any]
    factor: Array
    extra: Array

    @classmethod
    def of(cls, rows: Rows, root: Array) -> DescentRows:
        """The rows times `root` by columns.

        Copied only where `root` differs between features, or if in single precision and few.
        """
        matrix, n, p = rows.matrix, rows.shape[0], rows.matrix.shape[1]
        factor = np.ones(n) if rows.scale is None else rows.scale
        even = bool((root[:p] == root[:1]).all())
        if rows.sparse:
            pointers = matrix.indptr.astype(np.uint64)
            (indices,) = unsigned(matrix.indices)
            data = matrix.data if even else matrix.data * root[indices]
        else:
            pointers = np.arange(n + 1, dtype=np.uint64) * np.uint64(p)
            indices = np.zeros(0, dtype=np.uint32)
            data = np.ravel(matrix if even else matrix * root[:p])
        if data.size <= WIDENED:
            data = data.astype(np.float64, copy=False)
        first = float(root[0]) if even and p else 1.0
        extra = np.ascontiguousarray(rows.extra * (root[p:] / first))
        if first != 1.0:
            factor = factor * first
        return cls(*read_only(pointers[:-1], pointers[1:], indices, data, factor, extra))

    def take(self, rows: Index) -> DescentRows:
        """A copy of some rows."""
        if self.indices.size:  # by what SciPy has compiled
            signed = np.dtype(f"i{self.indices.itemsize}")
            pointers = np.append(self.start, self.stop[-1:]).astype(signed)
            shape = len(self.start), int(self.indices.max()) + 1
            parts = self.data, self.indices.view(signed), pointers
            matrix = sp.csr_matrix(parts, shape, copy=False)[rows]
            (indices,), data = unsigned(matrix.indices), matrix.data
            ends = matrix.indptr.astype(np.uint64)
        else:
            size = self.data.size // max(len(self.start), 1)
            data, indices = self.data.reshape(-1, size)[rows].ravel(), self.indices
            ends = np.arange(len(rows) + 1, dtype=np.uint64) * np.uint64(size)
        return DescentRows(*read_only(
            ends[:-1], ends[1:], indices, data, self.factor[rows], self.extra[rows]
        ))


class DescentTerms(NamedTuple):
    """``||a_i||^2`` and the losses of all terms, with finite ends."""

    square: Array
    q: Array
    b: Array
    e: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, square: Array, losses: LossTerms) -> DescentTerms:
        """From the squared norms, in the metric of v."""
        f, lo, hi = losses, np.maximum(losses.lo, -HUGE), np.minimum(losses.hi, HUGE)
        return cls(*read_only(square, f.q, f.b, f.e, lo, hi))


# -- compiled: written into the loops ----------------------------------------------------------


@compiled(fastmath=SUMS, allocates=False)
def dense_dot(first: np.uint64, size: np.uint64, data: NDArray[Any], v: Array) -> float:
    """``sum_j data[first + j] v_j``."""
    total = 0.0
    for j in range(size):
        total += data[first + j] * v[j]
    return total


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def row_product(i: int, rows: DescentRows, v: Array) -> float:
    """``<a_i, v>``."""
    start, stop = rows.start[i], rows.stop[i]
    if rows.indices.size:
        product = sparse_dot(start, stop, rows.indices, rows.data, v)
    else:
        product = dense_dot(start, stop - start, rows.data, v)
    first = v.size - rows.extra.shape[1]
    for k in range(rows.extra.shape[1]):
        product += rows.extra[i, k] * v[first + k]
    return rows.factor[i] * product


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def slope_at(away: float, q: float, e: float, lo: float, hi: float) -> float:
    """A slope of the loss at the margin ``b + away``."""
    shrunk = max(away - e, 0.0) + min(away + e, 0.0)
    slope = hi if shrunk > 0.0 else (lo if shrunk < 0.0 else 0.0)
    if q > 0.0:
        slope = min(max(shrunk / q, lo), hi)
    return slope


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def pair_gap(away: float, theta: float, slope: float, q: float, e: float) -> float:
    """What theta adds to the gap at the margin ``b + away``, where `slope` is a slope."""
    gap = (away - 0.5 * q * (slope + theta)) * (slope - theta) - e * (abs(slope) - abs(theta))
    return max(gap, 0.0)


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def is_inside(i: int, terms: DescentTerms, theta: float) -> bool:
    """Whether theta is strictly inside a piece of the dual."""
    return terms.lo[i] < theta < terms.hi[i] and (terms.e[i] == 0.0 or theta != 0.0)


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def subtract_multiple(i: int, step: float, rows: DescentRows, v: Array) -> None:
    """``v -= step a_i``."""
    start, stop = rows.start[i], rows.stop[i]
    step = step * rows.factor[i]
    if rows.indices.size:
        for p in range(start, stop):
            v[rows.indices[p]] -= step * rows.data[p]
    else:
        for j in range(stop - start):
            v[j] -= step * rows.data[start + j]
    first = v.size - rows.extra.shape[1]
    for k in range(rows.extra.shape[1]):
        v[first + k] -= step * rows.extra[i, k]
