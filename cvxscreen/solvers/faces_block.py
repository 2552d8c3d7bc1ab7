"""The rows that `Faces` works on, next to each other, columns that most of them share apart."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen.losses import Losses
from cvxscreen.solvers.faces_rows import Array, Copy, Index, Sparse, copied

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
