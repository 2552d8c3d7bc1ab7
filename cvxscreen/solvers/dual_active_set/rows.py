"""Rows of CSR matrices as the loops read them: copies of some, and the block that is worked on.

Rows of CSR matrices as the loops of `DualActiveSet` read them, and copies of some of them.

The rows that `DualActiveSet` works on, next to each other, columns that most of them share apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen._support.compiled import unsigned
from cvxscreen.core.losses import Losses
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.loops import Loops

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


SAMPLE = 2000
"""Rows that decide which columns are heavy."""
GRAM_COST = 12.0
"""Forming the matrix of the heavy columns may cost so many times what one pass costs."""


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
    before : Block, optional
        Another block of these rows (spent then): its choice of columns holds, what it has copied
        need not be copied again.

    Attributes
    ----------
    rows : array of int
        The rows in the block's order.
    columns : array of int
        Of the source, in the block's order; those without an entry may be missing.
    asked : int
        The `heavy` it was made for.
    square : array
        ``||a_i||^2``.
    weight : array
        Inverse of what the heavy columns leave of ``||a_i||^2 + q_i``.
    """

    def __init__(
        self, source: Sparse, urgent: Index, near: Index, losses: Losses, heavy: int,
        before: Block | None = None,
    ) -> None:
        self.source, self._loops, self.asked = source, source.loops, heavy
        self.k: int
        self.partial: bool
        self.columns: Index
        self._rank: NDArray[np.uint32]
        if before is None:
            self._choose(np.concatenate([urgent, near]), heavy)
        else:
            self.asked, self.partial, self.k = before.asked, before.partial, before.k
            self.columns, self._rank = before.columns, before._rank
        known: Copy | None = None if before is None else before._copy
        width = len(self.columns)
        self._copy: Copy = copied(source, (urgent, near), self._rank, self.k, width, known)
        self.order = np.arange(len(self._copy.rows))  # sorted, but for the groups
        self._arrange(losses)
        self._gram = np.zeros((self.k, self.k))
        if before is not None:
            self._inherit(before)

    def _choose(self, rows: Index, heavy: int) -> None:
        """Which columns are there, and which of them to split off."""
        source, d = self.source, len(self.source.root)
        self.partial = d > int(source.lengths(rows).sum())
        sample = rows if self.partial else rows[:: len(rows) // SAMPLE + 1]
        squares, counts = source.columns(sample)
        columns = np.flatnonzero(counts) if self.partial else np.arange(d)
        energy, heavy = squares[columns], min(heavy, len(columns))
        first = np.argpartition(-energy, heavy - 1)[:heavy] if heavy else columns[:0]
        first = first[np.argsort(-energy[first], kind="stable")]
        # The heavy entries of a row enter the small matrix in pairs.
        length = counts.sum() / max(len(sample), 1)
        pairs = (np.cumsum(counts[columns[first]]) / max(len(sample), 1)) ** 2
        first = first[pairs <= 2.0 * GRAM_COST * length]
        self.k = len(first)
        light = np.delete(columns, first)
        light = light[np.argsort(-counts[light], kind="stable")]  # what is met often lies together
        self.columns = np.concatenate([columns[first], light])
        self._rank = np.zeros(d, dtype=np.uint32)
        self._rank[self.columns] = np.arange(len(columns), dtype=np.uint32)

    def _arrange(self, losses: Losses) -> None:
        """What follows from the copied rows and the losses (of all terms)."""
        copy = self._copy
        self.rows, self.heavy, self.light = copy.rows, copy.heavy, copy.light
        self.square, self.losses = copy.parts.sum(axis=1), losses.take(copy.rows)
        bend = self.square + self.losses.q
        self._bends = bend > 0
        self._inverse = np.where(self._bends, 1.0 / np.where(self._bends, bend, 1.0), 0.0)
        rest = np.maximum(copy.parts[:, 1] + self.losses.q, 0.01 * bend)
        self.weight = 1.0 / np.where(self._bends, rest, 1.0)
        self._all = np.arange(len(self.rows))
        self._in_gram = np.zeros(len(self.rows), dtype=bool)

    def renew(self, losses: Losses) -> None:
        """The same rows with other `losses` (of all terms)."""
        weight, used = self.weight, self._in_gram
        self._arrange(losses)
        if np.array_equal(weight, self.weight):
            self._in_gram = used
        else:
            self._gram[:] = 0.0

    def _inherit(self, before: Block) -> None:
        """Take over the matrix of the heavy columns; rows that are not here leave it."""
        place = np.full(len(self.source.factor), -1, dtype=np.intp)
        place[self.rows] = self._all
        used = np.flatnonzero(before._in_gram)
        at = place[before.rows[used]]
        if not np.array_equal(before.weight[used][at >= 0], self.weight[at[at >= 0]]):
            return  # other losses bend otherwise
        gone = used[at < 0]
        self._gram = before._gram
        self._loops.gram(gone, -before.weight[gone], *before.heavy, self._gram)
        self._in_gram[at[at >= 0]] = True

    def extended(self, rows: Index, losses: Losses) -> Block:
        """The block with more rows at its end (this one is spent); `losses` of all terms."""
        if self.partial:
            return Block(self.source, self.rows, rows, losses, self.k)
        before, width = self._in_gram, len(self.columns)
        self._copy = self._copy.followed_by(
            copied(self.source, (rows,), self._rank, self.k, width)
        )
        self._arrange(losses)
        self._in_gram[: len(before)] = before
        self.order = np.argsort(self._copy.key, kind="stable")
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

    def sweep(self, theta: Array, v: Array, times: int, rows: Index | None = None) -> None:
        """Coordinate descent forwards and backwards over all rows, or over some (local) ones.

        theta and v change in place.
        """
        f, rows = self.losses, self.order if rows is None else rows
        for turn in range(times):
            order = np.ascontiguousarray(rows[::-1]) if turn % 2 else rows
            self._loops.sweep(
                order, *self.heavy, *self.light,
                self.square, self._inverse, f.b, f.e, f.lo, f.hi, theta, v,
            )

    def free(self, theta: Array) -> Index:
        """Local rows strictly inside a piece of the dual."""
        return self.order[(inside(self.losses, theta) & self._bends)[self.order]]

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
