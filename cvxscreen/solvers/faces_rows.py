"""Rows of CSR matrices as the loops of `Faces` read them, and copies of some of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.compiling import unsigned
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.faces_loops import Loops

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Matrix = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[Any], NDArray[Any]]
"""Start and stop of each row, indices and data."""


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
        arrays = (pointers[:-1], pointers[1:], *unsigned(matrix.indices), matrix.data)
        if extra.shape[1]:
            wider = empty(np.diff(matrix.indptr) + extra.shape[1], rows.shape[1])
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


def empty(lengths: NDArray[np.int64], columns: int) -> Matrix:
    """Rows of given lengths that follow each other, their entries to be filled in."""
    pointers = np.zeros(len(lengths) + 1, dtype=np.uint64)
    pointers[1:] = np.cumsum(lengths)
    size, short = int(pointers[-1]), columns <= 2**16
    indices = np.empty(size, dtype=np.uint16 if short else np.uint32)
    return pointers[:-1], pointers[1:], indices, np.empty(size)


def stacked(first: Matrix, second: Matrix) -> Matrix:
    """The rows of `second` after those of `first`."""
    shift = np.uint64(len(first[2]))
    moved = (second[0] + shift, second[1] + shift, second[2], second[3])
    a, b, c, d = (np.concatenate(pair) for pair in zip(first, moved, strict=True))
    return a, b, c, d


@dataclass(frozen=True, eq=False)
class Copy:
    """Copied rows in two matrices: columns of a low rank and the others.

    Attributes
    ----------
    rows : array of int
        Of the source, in the copy's order.
    heavy, light : Matrix
        Their indices are ranks.
    parts : array, shape (len(rows), 2)
        Squared norms in the two matrices.
    key : array
        Numbers of entries: loops over rows in this order end where the last did.
    """

    rows: Index
    heavy: Matrix
    light: Matrix
    parts: Array
    key: NDArray[np.uint16]

    def followed_by(self, other: Copy) -> Copy:
        """These rows, then those of `other`."""
        return Copy(
            np.concatenate([self.rows, other.rows]), stacked(self.heavy, other.heavy),
            stacked(self.light, other.light), np.vstack([self.parts, other.parts]),
            np.concatenate([self.key, other.key]),
        )


def copied(
    source: Sparse, groups: tuple[Index, ...], rank: NDArray[np.uint32], k: int, width: int,
    known: Copy | None = None,
) -> Copy:
    """The rows of `groups`, one after another, each sorted by numbers of entries.

    Columns of rank < k go to the heavy matrix; all ranks are below `width`. Rows that are among
    the `known` ones (split in the same way) are moved, which is several times faster.
    """
    rows = np.concatenate(groups)
    place = np.full(len(source.factor), -1, dtype=np.intp)
    if known is not None:
        place[known.rows] = np.arange(len(known.rows))
    local = place[rows]
    old, new = np.flatnonzero(local >= 0), np.flatnonzero(local < 0)
    heavy, fresh = np.empty(len(rows), dtype=np.int64), np.empty(len(new), dtype=np.int64)
    source.loops.count(rows[new], *source.arrays[:3], rank, k, fresh)
    heavy[new] = fresh
    if known is not None:
        heavy[old] = (known.heavy[1] - known.heavy[0])[local[old]]
    light = source.lengths(rows) - heavy
    key = (np.minimum(heavy, 255) * 256 + np.minimum(light, 255)).astype(np.uint16)
    first = np.cumsum([0, *map(len, groups)])
    order = np.concatenate([
        a + np.argsort(key[a:b], kind="stable") for a, b in pairwise(first)
    ])
    at = np.empty(len(rows), dtype=np.intp)
    at[order] = np.arange(len(rows))
    parts = np.empty((len(rows), 2))
    one, two = empty(heavy[order], width), empty(light[order], width)
    source.loops.split(
        rows[new], *source.arrays, source.factor, source.root, rank, k,
        at[new], one[0], *one[2:], two[0], *two[2:], parts,
    )
    if known is not None:  # in the order of the copy, which is nearly that of the known one
        moved = np.flatnonzero(local[order] >= 0)
        came = local[order[moved]]
        parts[moved] = known.parts[came]
        for before, after in ((known.heavy, one), (known.light, two)):
            source.loops.move(came, *before, moved, after[0], *after[2:])
    return Copy(rows[order], one, two, parts, key[order])
