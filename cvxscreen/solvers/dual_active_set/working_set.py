"""The rows that are worked on: a copy of them, a few columns that most of them share apart.

In text-like data almost every row has an entry in a few columns (the frequent words). Those k
columns are the *heavy* ones: split off as B they leave a matrix whose spectrum is that of a random
one, so the face step can precondition by ``D + B B'`` with D diagonal (see `face`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, compiled, unsigned
from cvxscreen.core.losses import Losses
from cvxscreen.designs.rows import Rows

# -- rows of a CSR matrix -------------------------------------------------------------------------
#
# Products, sums over columns, copies. Positions and indices are unsigned, so that no access has to
# ask whether it counts from the end.


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


# -- the working set ------------------------------------------------------------------------------


SAMPLE = 2000
"""Rows that decide which columns are heavy: their shares of the entries are then known to 1 %."""
GRAM_COST = 12.0
"""Forming the matrix of the heavy columns may cost so many times what one pass over the rows does.

By trial: CPU seconds of ``examples/benchmarks/sparse_path.py``; no answer depends on it."""
LEAST_REST = 0.01
"""Share of a row's curvature that its weight in the preconditioner is at least: no row's light part
then dominates the others."""


def inside(losses: Losses, theta: Array) -> NDArray[np.bool_]:
    """Terms strictly inside a piece of the dual: not at an end of the box nor at the kink at 0."""
    return (theta > losses.lo) & (theta < losses.hi) & ((losses.e == 0) | (theta != 0))


class DualTerms(NamedTuple):
    """What coordinate descent needs to know of each term of a working set.

    Attributes
    ----------
    square : array
        ``||a_i||^2``.
    inverse_curvature : array
        ``1 / (||a_i||^2 + q_i)``, 0 where that is infinite.
    b, e, lo, hi : arrays
        Of the losses.
    """

    square: Array
    inverse_curvature: Array
    b: Array
    e: Array
    lo: Array
    hi: Array


class WorkingSet:
    """Some rows of a `ScaledRows`, copied: k heavy columns and the light ones in two matrices.

    Parameters
    ----------
    source : ScaledRows
    urgent, near : arrays of int
        The rows; those that are expected to be free come first.
    losses : Losses
        Of all terms.
    heavy : int
        Number of columns to split off, at most.
    before : WorkingSet, optional
        Another working set of the same source (spent then): its choice of columns holds, what it
        has copied need not be copied again.

    Attributes
    ----------
    rows : array of int
        The rows in the order of the copy.
    columns : array of int
        Of the source, in the order of the copy, heavy ones first; those without an entry may be
        missing.
    partial : bool
        Whether they are.
    k : int
        Number of heavy columns.
    heavy_asked : int
        The `heavy` it was made for.
    heavy, light : Csr
        The rows' entries in the two groups of columns.
    order : array of int
        Local rows in the order in which loops go over them.
    losses : Losses
        Of these rows.
    terms : DualTerms
    weight : array
        Inverse of what the heavy columns leave of ``||a_i||^2 + q_i``.
    """

    def __init__(
        self, source: ScaledRows, urgent: Index, near: Index, losses: Losses, heavy: int,
        before: WorkingSet | None = None,
    ) -> None:
        self.source, self.heavy_asked = source, heavy
        self.k: int
        self.partial: bool
        self.columns: Index
        self._rank: NDArray[np.uint32]
        self._in_gram: NDArray[np.bool_]
        if before is None:
            self._choose_columns(np.concatenate([urgent, near]), heavy)
        else:
            self.heavy_asked, self.partial, self.k = before.heavy_asked, before.partial, before.k
            self.columns, self._rank = before.columns, before._rank
        known: SplitRows | None = None if before is None else before._copy
        width = len(self.columns)
        self._copy: SplitRows = split_copy(
            source, (urgent, near), self._rank, self.k, width, known
        )
        self.order = np.arange(len(self._copy.rows))  # sorted, but for the groups
        self._derive(losses)
        self._gram = np.zeros((self.k, self.k))
        if before is not None:
            self._inherit_gram(before)

    def forward(self, v: Array, rows: Index | None = None) -> Array:
        """Margins of v at (local) rows."""
        rows = self._all if rows is None else rows
        out = np.empty((2, len(rows)))
        row_products(rows, self.heavy, v, out[0])
        row_products(rows, self.light, v, out[1])
        return out[0] + out[1]

    def adjoint(self, x: Array, rows: Index | None = None) -> Array:
        """The sum of ``x_k a_i`` over (local) rows."""
        rows = self._all if rows is None else rows
        out = np.zeros(len(self.columns))
        add_rows(rows, self.heavy, x, out)
        add_rows(rows, self.light, x, out)
        return out

    def sweep(self, theta: Array, v: Array, times: int, rows: Index | None = None) -> None:
        """Coordinate descent forwards and backwards over all rows, or over some (local) ones.

        theta and v change in place.
        """
        rows = self.order if rows is None else rows
        for turn in range(times):
            order = np.ascontiguousarray(rows[::-1]) if turn % 2 else rows
            sweep_rows(order, self.heavy, self.light, self.terms, theta, v)

    def free(self, theta: Array) -> Index:
        """Local rows strictly inside a piece of the dual, in the order of `order`."""
        return self.order[(inside(self.losses, theta) & self._curved)[self.order]]

    def cholesky(self, rows: Index) -> Array:
        """Cholesky factor of ``I + B' D^{-1} B``, B the heavy columns of the given rows.

        Only rows that were not among those of the call before, or no longer are, cost anything.
        """
        now = np.zeros(len(self.rows), dtype=bool)
        now[rows] = True
        changed = np.flatnonzero(now != self._in_gram)
        weight = np.where(now[changed], self.weight[changed], -self.weight[changed])
        add_half_gram(changed, weight, self.heavy, self._gram)
        self._in_gram = now
        matrix = self._gram + self._gram.T
        matrix[np.diag_indices(self.k)] += 1.0
        return np.asarray(sla.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False))

    def renew(self, losses: Losses) -> None:
        """The same rows with other `losses` (of all terms)."""
        weight, used = self.weight, self._in_gram
        self._derive(losses)
        if np.array_equal(weight, self.weight):
            self._in_gram = used
        else:
            self._gram[:] = 0.0

    def extended(self, rows: Index, losses: Losses) -> WorkingSet:
        """With more rows at its end (this one is spent); `losses` of all terms."""
        if self.partial:
            return WorkingSet(self.source, self.rows, rows, losses, self.k)
        before, width = self._in_gram, len(self.columns)
        self._copy = self._copy.followed_by(
            split_copy(self.source, (rows,), self._rank, self.k, width)
        )
        self._derive(losses)
        self._in_gram[: len(before)] = before
        self.order = np.argsort(self._copy.key, kind="stable")
        return self

    def _choose_columns(self, rows: Index, heavy: int) -> None:
        """Which columns are there, and which of them to split off."""
        source, d = self.source, len(self.source.root)
        self.partial = d > int(source.lengths(rows).sum())
        sample = rows if self.partial else rows[:: len(rows) // SAMPLE + 1]
        squares, counts = source.column_sums(sample)
        columns = np.flatnonzero(counts) if self.partial else np.arange(d)
        squares, heavy = squares[columns], min(heavy, len(columns))
        first = np.argpartition(-squares, heavy - 1)[:heavy] if heavy else columns[:0]
        first = first[np.argsort(-squares[first], kind="stable")]
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

    def _derive(self, losses: Losses) -> None:
        """What follows from the copied rows and the losses (of all terms)."""
        copy = self._copy
        self.rows, self.heavy, self.light = copy.rows, copy.heavy, copy.light
        self.losses = f = losses.take(copy.rows)
        square = copy.squares.sum(axis=1)
        curvature = square + f.q
        self._curved = curvature > 0
        inverse = np.where(self._curved, 1.0 / np.where(self._curved, curvature, 1.0), 0.0)
        self.terms = DualTerms(square, inverse, f.b, f.e, f.lo, f.hi)
        rest = np.maximum(copy.squares[:, 1] + f.q, LEAST_REST * curvature)
        self.weight = 1.0 / np.where(self._curved, rest, 1.0)
        self._all = np.arange(len(self.rows))
        self._in_gram = np.zeros(len(self.rows), dtype=bool)

    def _inherit_gram(self, before: WorkingSet) -> None:
        """Take over the matrix of the heavy columns; rows that are not here leave it."""
        place = np.full(len(self.source.factor), -1, dtype=np.intp)
        place[self.rows] = self._all
        used = np.flatnonzero(before._in_gram)
        at = place[before.rows[used]]
        if not np.array_equal(before.weight[used][at >= 0], self.weight[at[at >= 0]]):
            return  # other losses have another curvature
        gone = used[at < 0]
        self._gram = before._gram
        add_half_gram(gone, -before.weight[gone], before.heavy, self._gram)
        self._in_gram[at[at >= 0]] = True


# -- copies of rows --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Copied rows in two matrices: columns of a low rank and the others.

    Attributes
    ----------
    rows : array of int
        Of the source, in the copy's order.
    heavy, light : Csr
        Their indices are ranks.
    squares : array, shape (len(rows), 2)
        Squared norms in the two matrices.
    key : array
        Numbers of entries: the processor predicts where a row ends best when rows of one length
        follow each other.
    """

    rows: Index
    heavy: Csr
    light: Csr
    squares: Array
    key: NDArray[np.uint16]

    def followed_by(self, other: SplitRows) -> SplitRows:
        """These rows, then those of `other`."""
        return SplitRows(
            np.concatenate([self.rows, other.rows]), self.heavy.followed_by(other.heavy),
            self.light.followed_by(other.light), np.vstack([self.squares, other.squares]),
            np.concatenate([self.key, other.key]),
        )


def split_copy(
    source: ScaledRows, groups: tuple[Index, ...], rank: NDArray[np.uint32], k: int, width: int,
    known: SplitRows | None = None,
) -> SplitRows:
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
    count_heavy(rows[new], source.matrix, rank, k, fresh)
    heavy[new] = fresh
    if known is not None:
        heavy[old] = known.heavy.lengths[local[old]]
    light = source.lengths(rows) - heavy
    key = (np.minimum(heavy, 255) * 256 + np.minimum(light, 255)).astype(np.uint16)
    first = np.cumsum([0, *map(len, groups)])
    order = np.concatenate([
        a + np.argsort(key[a:b], kind="stable") for a, b in pairwise(first)
    ])
    at = np.empty(len(rows), dtype=np.intp)
    at[order] = np.arange(len(rows))
    split = Split(
        empty_rows(heavy[order], width), empty_rows(light[order], width), np.empty((len(rows), 2))
    )
    split_rows(rows[new], source.matrix, source.factor, source.root, rank, k, at[new], split)
    if known is not None:  # in the order of the copy, which is nearly that of the known one
        moved = np.flatnonzero(local[order] >= 0)
        came = local[order[moved]]
        split.squares[moved] = known.squares[came]
        copy_rows(came, known.heavy, moved, split.heavy)
        copy_rows(came, known.light, moved, split.light)
    return SplitRows(rows[order], *split, key[order])


# -- compiled loops --------------------------------------------------------------------------


class Split(NamedTuple):
    """Where `split_rows` writes: the two matrices, and their rows' squared norms side by side."""

    heavy: Csr
    light: Csr
    squares: Array


@compiled(fastmath=CONTRACT, allocates=False)
def count_heavy(
    rows: Index, matrix: Csr, rank: NDArray[np.uint32], k: int, out: NDArray[np.int64]
) -> None:
    """Number of entries of each row in columns of rank < k."""
    start, stop, indices, _ = matrix
    for number in range(rows.size):
        i = rows[number]
        count = 0
        for p in range(start[i], stop[i]):
            count += rank[indices[p]] < k
        out[number] = count


@compiled(fastmath=CONTRACT, allocates=False)
def split_rows(
    rows: Index, matrix: Csr, factor: Array, root: Array, rank: NDArray[np.uint32], k: int,
    at: Index, out: Split,
) -> None:
    """Copy rows, scaled by ``factor_i root_j``, into two matrices: rank < k, and the others.

    The n-th of `rows` becomes row ``at_n`` of both.
    """
    start, stop, indices, data = matrix
    heavy_start, _, heavy_indices, heavy_data = out.heavy
    light_start, _, light_indices, light_data = out.light
    squares = out.squares
    for number in range(rows.size):
        i, row = rows[number], at[number]
        a, b = heavy_start[row], light_start[row]
        first, second = 0.0, 0.0
        for p in range(start[i], stop[i]):
            j = indices[p]
            value = factor[i] * data[p] * root[j]
            if rank[j] < k:
                heavy_indices[a] = rank[j]
                heavy_data[a] = value
                first += value * value
                a += ONE
            else:
                light_indices[b] = rank[j]
                light_data[b] = value
                second += value * value
                b += ONE
        squares[row, 0] = first
        squares[row, 1] = second


@compiled(fastmath=CONTRACT, allocates=False)
def add_half_gram(rows: Index, weight: Array, matrix: Csr, out: Array) -> None:
    """Add half of ``sum_k weight_k a_i a_i'`` to `out`: with its transpose it is the whole."""
    start, stop, indices, data = matrix
    for k in range(rows.size):
        i = rows[k]
        for p in range(start[i], stop[i]):
            value = weight[k] * data[p]
            j = indices[p]
            for s in range(start[i], p):
                out[j, indices[s]] += value * data[s]
            out[j, j] += 0.5 * value * data[p]


@compiled(fastmath=CONTRACT, allocates=False)
def sweep_rows(
    rows: Index, heavy: Csr, light: Csr, terms: DualTerms, theta: Array, v: Array
) -> None:
    """Exact minimisation over one dual after another; v follows theta. Both change in place."""
    start, stop, indices, data = heavy
    light_start, light_stop, light_indices, light_data = light
    square, inverse_curvature, b, e, lo, hi = terms
    for k in range(rows.size):
        i = rows[k]
        third = 0.0
        first = sparse_dot(start[i], stop[i], indices, data, v)
        for p in range(light_start[i], light_stop[i]):
            third += light_data[p] * v[light_indices[p]]
        z = first + third - b[i] + square[i] * theta[i]
        z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
        if inverse_curvature[i] > 0.0:
            new = min(max(z * inverse_curvature[i], lo[i]), hi[i])
        else:
            new = hi[i] if z > 0.0 else (lo[i] if z < 0.0 else 0.0)
        step = new - theta[i]
        if step != 0.0:
            theta[i] = new
            for p in range(start[i], stop[i]):
                v[indices[p]] -= step * data[p]
            for p in range(light_start[i], light_stop[i]):
                v[light_indices[p]] -= step * light_data[p]
