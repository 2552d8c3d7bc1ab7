"""The rows that `Faces` works on, next to each other, columns that most of them share apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen.designs.rows import Rows
from cvxscreen.losses import Losses
from cvxscreen.solvers.faces_loops import Loops

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Matrix = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[Any], NDArray[Any]]
"""Start and stop of each row, indices and data."""

SAMPLE = 2000
"""Rows that decide which columns are heavy."""
GRAM_COST = 12.0
"""Forming the matrix of the heavy columns may cost so many times what one pass costs."""


@dataclass(frozen=True, eq=False)
class Sparse:
    """Rows ``factor_i a_i root`` of CSR arrays that are only read."""

    arrays: Matrix
    factor: Array
    root: Array
    loops: Loops

    @classmethod
    def of(cls, rows: Rows, root: Array, loops: Loops) -> Sparse:
        """From CSR rows; nothing is copied but their pointers, unless there are extra columns."""
        matrix, extra = rows.matrix, rows.extra
        factor = np.ones(rows.shape[0]) if rows.scale is None else rows.scale
        pointers = matrix.indptr.astype(np.uint64)
        unsigned = np.uint32 if matrix.indices.dtype.itemsize == 4 else np.uint64
        arrays = (pointers[:-1], pointers[1:], matrix.indices.view(unsigned), matrix.data)
        if extra.shape[1]:
            wider = _empty(np.diff(matrix.indptr) + extra.shape[1], rows.shape[1])
            every = np.arange(len(factor))
            loops.widen(every, *arrays, extra, matrix.shape[1], wider[0], *wider[2:])
            arrays = wider
        return cls(arrays, factor, root, loops)

    def lengths(self, rows: Index) -> NDArray[np.int64]:
        """Number of stored entries of some rows."""
        return (self.arrays[1][rows] - self.arrays[0][rows]).astype(np.int64)

    def margins(self, v: Array) -> Array:
        """All margins of v: one pass."""
        out = np.empty(len(self.factor))
        self.loops.gather(np.arange(len(out)), *self.arrays, v * self.root, out)
        return out * self.factor

    def pull(self, theta: Array) -> Array:
        """The sum of ``theta_i a_i``: one pass over the rows where theta is not zero."""
        rows = np.flatnonzero(theta)
        out = np.zeros(len(self.root))
        self.loops.scatter(rows, *self.arrays, (theta * self.factor)[rows], out)
        return out * self.root

    def columns(self, rows: Index) -> tuple[Array, Array]:
        """Sum of squares and number of entries of each column over some rows."""
        squares, counts = np.zeros((2, len(self.root)))
        self.loops.energy(rows, *self.arrays, self.factor, squares, counts)
        return squares * self.root**2, counts


def _empty(lengths: NDArray[np.int64], columns: int) -> Matrix:
    """Rows of given lengths that follow each other, their entries to be filled in."""
    pointers = np.zeros(len(lengths) + 1, dtype=np.uint64)
    pointers[1:] = np.cumsum(lengths)
    size, short = int(pointers[-1]), columns <= 2**16
    indices = np.empty(size, dtype=np.uint16 if short else np.uint32)
    return pointers[:-1], pointers[1:], indices, np.empty(size)


def _stacked(first: Matrix, second: Matrix) -> Matrix:
    """The rows of `second` after those of `first`."""
    shift = np.uint64(len(first[2]))
    moved = (second[0] + shift, second[1] + shift, second[2], second[3])
    a, b, c, d = (np.concatenate(pair) for pair in zip(first, moved, strict=True))
    return a, b, c, d


class Block:
    """Some rows of a `Sparse`, copied: k heavy columns and the light ones in two matrices.

    Parameters
    ----------
    source : Sparse
    urgent, near : arrays of int
        The rows; those that are expected to be free come first in the block.
    losses : Losses
        Of all terms.
    heavy : int
        Number of columns to split off, at most.

    Attributes
    ----------
    rows : array of int
        The rows in the block's order.
    columns : array of int
        Of the source, in the block's order; those without an entry may be missing.
    square : array
        ``||a_i||^2``.
    weight : array
        Inverse of what the heavy columns leave of ``||a_i||^2 + q_i``.
    """

    def __init__(
        self, source: Sparse, urgent: Index, near: Index, losses: Losses, heavy: int
    ) -> None:
        self.source, self._loops = source, source.loops
        rows, d = np.concatenate([urgent, near]), len(source.root)
        self._partial = d > int(source.lengths(rows).sum())
        sample = rows if self._partial else rows[:: len(rows) // SAMPLE + 1]
        squares, counts = source.columns(sample)
        columns = np.flatnonzero(counts) if self._partial else np.arange(d)
        energy, heavy = squares[columns], min(heavy, len(columns))
        first = np.argpartition(-energy, heavy - 1)[:heavy] if heavy else columns[:0]
        first = first[np.argsort(-energy[first], kind="stable")]
        # The heavy entries of a row enter the small matrix in pairs.
        length = counts.sum() / max(len(sample), 1)
        pairs = (np.cumsum(counts[columns[first]]) / max(len(sample), 1)) ** 2
        first = first[pairs <= 2.0 * GRAM_COST * length]
        self.k = len(first)
        self.columns = np.concatenate([columns[first], np.delete(columns, first)])
        self._rank = np.zeros(d, dtype=np.uint32)
        self._rank[self.columns] = np.arange(len(columns), dtype=np.uint32)
        self._parts = np.zeros((0, 2))
        self.rows, self.heavy, self.light = self._copy(urgent)
        self._append(near, losses)
        self._gram = np.zeros((self.k, self.k))

    def _copy(self, rows: Index) -> tuple[Index, Matrix, Matrix]:
        """The rows, sorted by their numbers of entries (so that loops end where the last did)."""
        source = self.source
        heavy = np.empty(len(rows), dtype=np.int64)
        self._loops.count(rows, *source.arrays[:3], self._rank, self.k, heavy)
        light = source.lengths(rows) - heavy
        key = np.minimum(heavy, 255) * 256 + np.minimum(light, 255)
        order = np.argsort(key.astype(np.uint16), kind="stable")
        at = np.empty(len(rows), dtype=np.intp)
        at[order] = np.arange(len(rows))
        parts = np.empty((len(rows), 2))
        width = len(self.columns)
        first, second = _empty(heavy[order], width), _empty(light[order], width)
        self._loops.split(
            rows, *source.arrays, source.factor, source.root, self._rank, self.k,
            at, first[0], *first[2:], second[0], *second[2:], parts,
        )
        self._parts = np.vstack([self._parts, parts])
        return rows[order], first, second

    def _append(self, rows: Index, losses: Losses) -> None:
        rows, heavy, light = self._copy(rows)
        self.rows = np.concatenate([self.rows, rows])
        self.heavy, self.light = _stacked(self.heavy, heavy), _stacked(self.light, light)
        self.losses = losses.take(self.rows)
        self.square = self._parts.sum(axis=1)
        bend = self.square + self.losses.q
        self._bends = bend > 0
        self._inverse = np.where(self._bends, 1.0 / np.where(self._bends, bend, 1.0), 0.0)
        rest = np.maximum(self._parts[:, 1] + self.losses.q, 0.01 * bend)
        self.weight = 1.0 / np.where(self._bends, rest, 1.0)
        self._all = np.arange(len(self.rows))
        self._in_gram = np.zeros(len(self.rows), dtype=bool)

    def extended(self, rows: Index, losses: Losses) -> Block:
        """The block with more rows at its end (this one is spent); `losses` of all terms."""
        if self._partial:
            return Block(self.source, self.rows, rows, losses, self.k)
        before = self._in_gram
        self._append(rows, losses)
        self._in_gram[: len(before)] = before
        return self

    def margins(self, v: Array, rows: Index | None = None) -> Array:
        """Margins of v at (local) rows."""
        rows = self._all if rows is None else rows
        out = np.empty((2, len(rows)))
        self._loops.gather(rows, *self.heavy, v, out[0])
        self._loops.gather(rows, *self.light, v, out[1])
        return out[0] + out[1]

    def pull(self, x: Array, rows: Index | None = None) -> Array:
        """The sum of ``x_k a_i`` over (local) rows."""
        rows = self._all if rows is None else rows
        out = np.zeros(len(self.columns))
        self._loops.scatter(rows, *self.heavy, x, out)
        self._loops.scatter(rows, *self.light, x, out)
        return out

    def sweep(self, theta: Array, v: Array, times: int) -> None:
        """Coordinate descent over all rows, forwards and backwards; theta and v change in place."""
        f = self.losses
        for turn in range(times):
            order = np.ascontiguousarray(self._all[::-1]) if turn % 2 else self._all
            self._loops.sweep(
                order, *self.heavy, *self.light,
                self.square, self._inverse, f.b, f.e, f.lo, f.hi, theta, v,
            )

    def free(self, theta: Array) -> Index:
        """Local rows strictly inside a piece of the dual."""
        return np.flatnonzero(inside(self.losses, theta) & self._bends)

    def factor(self, rows: Index) -> Array:
        """Cholesky factor of ``I + B' D^{-1} B``, B the heavy columns of the given rows.

        Only rows that were not among those of the call before, or no longer are, cost anything.
        """
        now = np.zeros(len(self.rows), dtype=bool)
        now[rows] = True
        changed = np.flatnonzero(now != self._in_gram)
        weight = np.where(now[changed], self.weight[changed], -self.weight[changed])
        self._loops.gram(changed, weight, *self.heavy, self._gram)
        self._in_gram = now
        matrix = self._gram + self._gram.T
        matrix[np.diag_indices(self.k)] += 1.0
        return np.asarray(sla.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False))


def inside(losses: Losses, theta: Array) -> NDArray[np.bool_]:
    """Terms strictly inside a piece of the dual: not at an end of the box nor at the kink at 0."""
    return (theta > losses.lo) & (theta < losses.hi) & ((losses.e == 0) | (theta != 0))
