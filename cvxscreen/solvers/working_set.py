"""The rows that are worked on, the face of their free duals, and the steps that solve it.

`WorkingSet` is a copy of some rows, the few columns that most of them share apart. `Face` solves
for its free duals by conjugate gradients; `correct_primal` finds what x alone can still gain.

In text-like data almost every row has an entry in a few columns (the frequent words). Those k
columns are the *heavy* ones: split off as B they leave a matrix whose spectrum is that of a random
one, so the face step can precondition by ``D + B B'`` with D diagonal.

On the face of the free terms F the dual (see `cvxscreen.solvers.dual_active_set`) is a quadratic
with the system ``(A_F A_F' + Q) step = r``. Its spectrum is that of a random matrix but for the k
heavy columns; with those split off as B, the preconditioner ``D + B B'`` (D diagonal) leaves only
the bulk. It is applied by the Woodbury identity,

::

    z = (D + B B')^{-1} r = D^{-1} (r - B u),       u = (I + B' D^{-1} B)^{-1} B' D^{-1} r = B' z

and costs no pass of its own: ``B u`` and ``B' z = u`` are what the product with ``A_F A_F'`` needs.
Where the bulk is wide, too, as of about as many free terms as columns, conjugate gradients are cut
off round after round; once they have read as much as the matrix and its factor cost, these are
made instead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled, unsigned
from cvxscreen._support.immutable import Immutable
from cvxscreen.core.losses import LossTerms
from cvxscreen.designs.rows import ENTRYWISE, Rows, add_outer_products
from cvxscreen.solvers.newton import GRAM_LIMIT

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

    def matrix(self, columns: int) -> sp.csr_matrix:
        """The rows as SciPy has them, where each begins at the end of the one before."""
        pointers = np.append(self.start, self.stop[-1:]).astype(np.int64)
        shape = (len(self.start), columns)
        return sp.csr_matrix((self.data, self.indices.astype(np.int32), pointers), shape=shape)

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


class ScaledRows(Immutable):
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


class ScaledDesign(Immutable):
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


# -- compiled loops -------------------------------------------------------------------------------
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


def inside(losses: LossTerms, theta: Array) -> NDArray[np.bool_]:
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
    unfinished : float
        Entries that conjugate gradients have read without an end since a face was last factorised.
    """

    def __init__(
        self, source: ScaledRows, urgent: Index, near: Index, losses: LossTerms, heavy: int,
        before: WorkingSet | None = None,
    ) -> None:
        self.source, self.heavy_asked = source, heavy
        self.unfinished: float = 0.0 if before is None else before.unfinished
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
        add_outer_products(changed, weight, *self.heavy, self._gram)
        self._in_gram = now
        matrix = self._gram + self._gram.T
        matrix[np.diag_indices(self.k)] += 1.0
        return np.asarray(sla.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False))

    def factor_cost(self, rows: Index) -> float:
        """What `products` of the given rows and their factor cost, in stored entries read."""
        number, width = len(rows), max(len(self.columns), 1)
        if number > GRAM_LIMIT:
            return np.inf
        pairs = min(self.stored(rows) ** 2, (ENTRYWISE * number * width) ** 2) / width
        return 0.5 * pairs + CUBE * number**3

    def stored(self, rows: Index) -> float:
        """Entries of the given rows."""
        return float(self.heavy.lengths[rows].sum() + self.light.lengths[rows].sum())

    def products(self, rows: Index) -> Array:
        """Products of the given rows with each other, of which the lower half is right."""
        number, width = len(rows), len(self.columns)
        both = self.heavy.matrix(width)[rows] + self.light.matrix(width)[rows]
        if both.nnz > ENTRYWISE * number * width:
            dense = both.toarray()
            return np.asarray(dense @ dense.T)
        columns, out = both.tocsc(), np.zeros((number, number))
        columns.sort_indices()
        start, indices = unsigned(columns.indptr, columns.indices)
        add_outer_products(
            np.arange(width), np.ones(width), start, start[1:], indices, columns.data, out
        )
        out[np.diag_indices(number)] *= 2.0
        return out

    def renew(self, losses: LossTerms) -> None:
        """The same rows with other `losses` (of all terms)."""
        weight, used = self.weight, self._in_gram
        self._derive(losses)
        if np.array_equal(weight, self.weight):
            self._in_gram = used
        else:
            self._gram[:] = 0.0

    def extended(self, rows: Index, losses: LossTerms) -> WorkingSet:
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

    def _derive(self, losses: LossTerms) -> None:
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
        add_outer_products(gone, -before.weight[gone], *before.heavy, self._gram)
        self._in_gram[at[at >= 0]] = True


# -- copies of rows -------------------------------------------------------------------------------


class SplitRows(Immutable):
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


# -- compiled loops -------------------------------------------------------------------------------


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


# -- the step of the free duals -------------------------------------------------------------------


HUGE = 1e300
"""Stands for an endless end of a box, so that products with 0 are 0."""
CUT = 0.1
"""Conjugate gradients stop when clipping takes away more than this share of the residual: solving
more closely would solve for another face. By trial, as `STEPS` (no answer depends on either)."""
STEPS = 150
"""Conjugate gradient steps at most; a sweep between two runs costs about as much as two of them."""
CUBE = 0.03
"""Of a face's matrix and factor, for each cube of its rows, in the time of an entry that is read
(measured, 1,500 to 3,500 rows: 0.1 to 1.5 s)."""
SMALL_FALL, SMALL_CURVATURE = 1e-28, 1e-15
"""The squared residual may fall by so much, and the curvature along a direction must be so large
relative to its squared length: the square of the rounding unit and the unit, with some room."""
LENGTHS = tuple(0.5**k for k in range(9))
"""Shares of a step that are tried where clipping has spoilt the whole one: less is clipped then.
The last resort is the share at which nothing is. (On farmads, 50 values of C, the shorter trials
took 0.43 times the CPU.)"""


REGULAR = 1.0 + 1e-14
"""What the diagonal of a face's matrix is multiplied by before it is factorised: some fifty units
of rounding, so that rows that nearly depend on each other do not end it."""


class Face:
    """The free rows of a working set at one dual point.

    Attributes
    ----------
    rows : array of int
        Local indices.
    residual : array
        How far the margins are from where theta is a slope.
    down, up : arrays
        Room of theta in its cell (the piece that it is inside of).
    flat : bool
        Whether no free term has curvature (q = 0).
    gap : float
        After `move`: what the free terms add to the duality gap, about.
    steps : int
        After `move`: conjugate gradient steps.
    near : bool
        After `move`: whether it ended because little is lacking.
    """

    def __init__(self, working_set: WorkingSet, theta: Array, v: Array) -> None:
        f, self._working_set = working_set.losses, working_set
        self.rows = rows = working_set.free(theta)
        at, q = theta[rows], f.q[rows]
        kinked = f.e[rows] > 0
        lo = np.where(kinked & (at > 0), 0.0, np.maximum(f.lo[rows], -HUGE))
        hi = np.where(kinked & (at < 0), 0.0, np.minimum(f.hi[rows], HUGE))
        self._terms = FreeTerms(at, q, lo, hi, working_set.weight[rows])
        slope = f.b[rows] + f.e[rows] * np.sign(at) + q * at
        self.residual = working_set.forward(v, rows) - slope
        self.down, self.up = lo - at, hi - at
        self.flat = not q.any()
        self.gap, self.steps, self.near = 0.0, 0, False

    @property
    def lacking(self) -> float:
        """What the dual objective lacks on the face, from below: ``r' D^{-1} r / 2``."""
        return 0.5 * float(self.residual @ (self._terms.weight * self.residual))

    def move(self, theta: Array, v: Array, enough: float, close: float = 0.0) -> None:
        """Solve, clip, and go as far as the dual improves; theta and v change in place.

        Parameters
        ----------
        theta, v : arrays
            Of the working set.
        enough : float
            Duality gap of the free terms at which solving more closely does not pay.
        close : float
            Where the dual objective lacks no more than about this, nothing more is solved.
        """
        if not len(self.rows):
            return
        step, best, most = self._solve(enough, close), None, 0.0
        if self.near and not self.steps:
            return
        at, q, lo, hi, _ = self._terms
        for share in (*LENGTHS, 0.0):
            length = share or self._unclipped_share(step)
            new = np.clip(at + length * step, lo, hi)
            change = new - at
            v_change = self._working_set.adjoint(change, self.rows)
            slope = float(self.residual @ change)
            curvature = float(v_change @ v_change) + float((q * change) @ change)
            whole = slope > 0.5 * curvature
            far = 1.0 if whole else slope / max(curvature, 1e-300)
            gain = far * (slope - 0.5 * far * curvature) if slope > 0 else 0.0
            if gain > most:
                best, most = (new if whole else at + far * change, far * v_change), gain
            elif best is not None:
                break
            if whole:
                break
        if best is not None:
            theta[self.rows] = best[0]
            v -= best[1]

    def _unclipped_share(self, step: Array) -> float:
        """The share of the step at which the first free term reaches an end of its cell."""
        room = np.where(step > 0, self.up, -self.down)
        return float((room / np.maximum(np.abs(step), 1e-300)).min(initial=1.0))

    def _solve(self, enough: float, close: float) -> Array:
        """Approximate solution of ``(A_F A_F' + Q) x = r``, r the residual at theta.

        Stops when the clipped point's duality gap on F is at most `enough`, when ``r' z / 2`` is
        at most `close`, or when clipping would undo more than is left to gain.
        """
        working_set, terms = self._working_set, self._terms
        upper = np.ascontiguousarray(working_set.cholesky(self.rows).T)
        cg = ConjugateGradients.start(
            self.residual, terms.weight, working_set.k, len(working_set.columns)
        )
        self.steps, self.gap, near = conjugate_gradients(
            self.rows, working_set.heavy, working_set.light, upper, terms, cg, enough, close
        )
        self.near = self.near or near
        singular = self.flat and len(self.rows) > len(working_set.columns)
        if self.steps < STEPS or self.gap <= enough or near or singular:
            return cg.x
        working_set.unfinished += 2.0 * self.steps * working_set.stored(self.rows)
        if working_set.unfinished < working_set.factor_cost(self.rows):
            return cg.x
        working_set.unfinished = 0.0
        return self._solved_directly(cg.x)

    def _solved_directly(self, otherwise: Array) -> Array:
        """The solution by a factor of the system; `otherwise` where there is none."""
        matrix = self._working_set.products(self.rows)
        own = np.diag_indices_from(matrix)
        matrix[own] = REGULAR * matrix[own] + self._terms.q
        try:  # in the order that LAPACK reads, and in place: the matrix may be large
            factor = sla.cho_factor(matrix.T, overwrite_a=True, check_finite=False)
        except sla.LinAlgError:
            return otherwise
        step = np.asarray(sla.cho_solve(factor, self.residual, check_finite=False))
        self.gap = 0.0
        return step


# -- compiled loops -------------------------------------------------------------------------------


class FreeTerms(NamedTuple):
    """The free terms of a face, at the point where the conjugate gradients begin.

    Attributes
    ----------
    theta, q : arrays
        Duals and the curvature of their conjugates.
    lo, hi : arrays
        Finite ends of the cells.
    weight : array
        ``1 / D``.
    """

    theta: Array
    q: Array
    lo: Array
    hi: Array
    weight: Array


class ConjugateGradients(NamedTuple):
    """The vectors of the iteration; the loops change them in place.

    Attributes
    ----------
    x, r : arrays, shape (free rows,)
        Solution so far, its residual.
    z : array, shape (free rows,)
        ``D^{-1} r``, and the preconditioned residual once ``D^{-1} B u`` has been taken off.
    p, Kp : arrays, shape (free rows,)
        Direction, and its product with the system's matrix.
    Bu, Bp : arrays, shape (free rows,)
        ``B u = B B' z`` and ``B B' p``.
    u : array, shape (heavy columns,)
        ``B' z``.
    At_z, At_p : arrays, shape (columns,)
        ``A_F' z`` and ``A_F' p``.
    """

    x: Array
    r: Array
    z: Array
    p: Array
    Kp: Array
    Bu: Array
    Bp: Array
    u: Array
    At_z: Array
    At_p: Array

    @classmethod
    def start(cls, r: Array, weight: Array, heavy: int, columns: int) -> ConjugateGradients:
        """The state at x = 0, where the residual is `r`."""
        x, p, Bp = np.zeros((3, len(r)))
        Bu, Kp = np.empty((2, len(r)))
        At_z, At_p = np.zeros((2, columns))
        return cls(x, r.copy(), weight * r, p, Kp, Bu, Bp, np.zeros(heavy), At_z, At_p)


@compiled(fastmath=SUMS, allocates=False, alone=False)
def solve_cholesky(upper: Array, u: Array) -> None:
    """``u <- (L L')^{-1} u`` in place, `upper` being ``L'``, row by row in memory."""
    k = np.uint64(u.size)
    for j in range(k):
        value = u[j] / upper[j, j]
        u[j] = value
        for i in range(j + ONE, k):
            u[i] -= value * upper[j, i]
    for back in range(k):
        row = k - ONE - np.uint64(back)
        value = 0.0
        for i in range(row + ONE, k):
            value += upper[row, i] * u[i]
        u[row] = (u[row] - value) / upper[row, row]


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def finish_preconditioner(
    rows: Index, heavy: Csr, weight: Array, cg: ConjugateGradients
) -> float:
    """``Bu = B u`` and ``z -= weight Bu``; returns ``r' z``."""
    start, stop, indices, data = heavy
    r, z, Bu, u = cg.r, cg.z, cg.Bu, cg.u
    product = 0.0
    for k in range(rows.size):
        i = rows[k]
        Bu[k] = sparse_dot(start[i], stop[i], indices, data, u)
        z[k] -= weight[k] * Bu[k]
        product += r[k] * z[k]
    return product


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def multiply_direction(
    rows: Index, light: Csr, share: float, q: Array, cg: ConjugateGradients
) -> tuple[float, float]:
    """``p = z + share p``, ``Bp = Bu + share Bp``, and ``Kp = A At_p + Bp + q p``.

    Returns ``p' Kp`` and ``p' p``.
    """
    start, stop, indices, data = light
    z, p, Kp, Bu, Bp, At_p = cg.z, cg.p, cg.Kp, cg.Bu, cg.Bp, cg.At_p
    curvature, square = 0.0, 0.0
    for k in range(rows.size):
        i = rows[k]
        own = sparse_dot(start[i], stop[i], indices, data, At_p)
        p[k] = z[k] + share * p[k]
        Bp[k] = Bu[k] + share * Bp[k]
        Kp[k] = own + Bp[k] + q[k] * p[k]
        curvature += p[k] * Kp[k]
        square += p[k] * p[k]
    return curvature, square


@compiled(fastmath=SUMS, allocates=False)
def next_direction(share: float, fresh: Array, direction: Array) -> float:
    """``direction = fresh + share direction`` and fresh = 0; returns the squared length."""
    square = 0.0
    for j in range(direction.size):
        value = fresh[j] + share * direction[j]
        fresh[j] = 0.0
        direction[j] = value
        square += value * value
    return square


@compiled(fastmath=SUMS, allocates=False)
def advance(
    length: float, terms: FreeTerms, cg: ConjugateGradients
) -> tuple[float, float, float]:
    """``x += length p``, ``r -= length Kp``, ``z = weight r``, and what is known of the new point.

    Returns a bound of the duality gap of ``theta + x`` clipped to its cells (finite numbers), how
    much the clipping takes away, and the sum of ``|r|``.
    """
    theta, q, lo, hi, weight = terms
    x, r, z, p, Kp = cg.x, cg.r, cg.z, cg.p, cg.Kp
    gap, cut, left = 0.0, 0.0, 0.0
    for k in range(p.size):
        moved = x[k] + length * p[k]
        x[k] = moved
        residual = r[k] - length * Kp[k]
        r[k] = residual
        z[k] = weight[k] * residual
        moved += theta[k]
        inside = min(max(moved, lo[k]), hi[k])
        room = max((hi[k] - inside) * residual, (lo[k] - inside) * residual)
        if q[k] > 0.0:
            room = min(room, 0.5 * residual * residual / q[k])
        gap += room
        cut += abs(moved - inside)
        left += abs(residual)
    return gap, cut, left


@compiled(fastmath=CONTRACT, allocates=False)
def conjugate_gradients(
    rows: Index, heavy: Csr, light: Csr, upper: Array, terms: FreeTerms, cg: ConjugateGradients,
    enough: float, close: float,
) -> tuple[int, float, bool]:
    """Solve ``(A_F A_F' + Q) x = r``, F being `rows`, with the preconditioner ``D + B B'``.

    Parameters
    ----------
    rows, heavy, light
        Free rows, and the entries of all rows in the heavy columns and in the others.
    upper : array, shape (k, k)
        ``L'`` of the Cholesky factorisation ``L L' = I + B' D^{-1} B``.
    terms, cg
        The free terms; the vectors of the iteration, at their start.
    enough, close : float
        See `Face.move`.

    Returns
    -------
    steps : int
    gap : float
        What the free terms add to the duality gap, about; infinite before the first step.
    near : bool
        Whether the iteration ended because the dual objective lacks little.
    """
    steps, gap, before, first = 0, np.inf, 0.0, 0.0
    while steps < STEPS:
        # z = (D + B B')^{-1} r; u is then B' z.
        for j in range(cg.u.size):
            cg.u[j] = 0.0
        add_rows(rows, heavy, cg.z, cg.u)
        solve_cholesky(upper, cg.u)
        rz = finish_preconditioner(rows, heavy, terms.weight, cg)
        if steps == 0:
            first = rz
        if 0.5 * rz <= close:
            return steps, gap, True
        # The next direction, and its product with the matrix.
        add_rows(rows, light, cg.z, cg.At_z)
        for j in range(cg.u.size):
            cg.At_z[j] = cg.u[j]
        share = rz / before if before > 0.0 else 0.0
        before = rz
        next_direction(share, cg.At_z, cg.At_p)
        curvature, square = multiply_direction(rows, light, share, terms.q, cg)
        steps += 1
        if not (rz > SMALL_FALL * first and curvature > SMALL_CURVATURE * square):
            break
        gap, cut, left = advance(rz / curvature, terms, cg)
        if gap <= enough or cut > CUT * left:
            break
    return steps, gap, False


# -- the move of x alone --------------------------------------------------------------------------
#
# On a face of flat terms (q = 0) the duality gap at x = x_theta is linear in the residual r of the
# free terms, and the dual objective is off by about r' K^{-1} r / 2 only, thousands of times less.
# What is left is to make the residual small, and that x alone can do: any move s with A_F s = -r
# will do, at the price of ||s||^2 / 2. The least such move is what further conjugate gradients on
# the dual find; a longer one is found much faster. Columns are weighted by 1 / sum_F a_ij^2 so that
# all count alike, which brings the spectrum together, the heavy columns are left out, and rows are
# scaled to length one. Conjugate gradients on the normal equations of the second kind (Craig 1955)
# then take one pass over the light entries a step; the minimal residual over their iterates is
# found on the way, its weights known without a product, and is a third of theirs. Terms next to a
# kink that are not free take part, so that they stay where they are.


# These numbers decide when a move is given up for more steps on the dual; no answer depends on
# them. They were found by trial (CPU seconds of examples/benchmarks/sparse_path.py).
CORRECTION_STEPS, STEPS_TO_HALVE = 60, 8
"""Steps at most; in so many the gap must halve."""
ENOUGH = 0.75
"""Share of the gap asked for at which a move is whole: terms left out add to it."""
TOO_DEAR = 0.8
"""Share of it that the length of the move may take."""
REACH = 5.0
"""Terms take part up to so many times the root mean square of the residual from a kink."""


class PrimalCorrection(Immutable):
    """A move of x.

    Attributes
    ----------
    move : array
        In the working set's columns and the metric of M.
    gap : float
        What the terms that took part add to the duality gap after it, with its own price.
    steps : int
    """

    move: Array
    gap: float
    steps: int


class Participants(Immutable):
    """Terms that take part: local rows, what their margins are off, and the room of their duals."""

    rows: Index
    residual: Array
    down: Array
    up: Array

    def gap_terms(self, residual: Array) -> Array:
        """What residuals add to the gap."""
        return np.maximum(self.up * residual, self.down * residual)


def correct_primal(
    working_set: WorkingSet, face: Face, theta: Array, v: Array, enough: float
) -> PrimalCorrection:
    """Look for a move after which the gap is at most `enough`; the best found where it is not."""
    part = participants(working_set, face, theta, v)
    light, d, n = working_set.light, len(working_set.columns), len(part.rows)
    squares = np.zeros(d)
    add_column_squares(face.rows, light, squares)
    root = np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    rows, size = empty_rows(light.lengths[part.rows], d), np.empty(n)
    normalise_rows(part.rows, light, root, rows, size)
    some = size > 0
    rest = float(part.gap_terms(np.where(some, 0.0, part.residual)).sum())
    r = np.where(some, part.residual / np.where(some, size, 1.0), 0.0)
    least_r, direction, fresh, x, least_x = r.copy(), *np.zeros((4, d))
    now = tau = step_of_residual(rows, direction, 0.0, r, fresh)
    share, gap, price, before, steps = 0.0, np.inf, 0.0, np.inf, 0
    while steps < CORRECTION_STEPS and rest < ENOUGH * enough:
        square = next_direction(share, fresh, direction)
        if not square > 0:
            break
        length = now / square
        after = step_of_residual(rows, direction, length, r, fresh)
        weight = tau / (tau + after) if after > 0 else 1.0
        tau = weight * after
        gap = average_residual(weight, r, size, part.down, part.up, least_r) + rest
        price = 0.5 * average_move(length, weight, direction, root, x, least_x)
        steps, share, now = steps + 1, after / now, after
        if gap + price <= ENOUGH * enough or price > TOO_DEAR * enough or not after > 0:
            break
        if steps % STEPS_TO_HALVE == 0:
            if gap > 0.5 * before:
                break
            before = gap
    return PrimalCorrection(-root * least_x, gap + price, steps)


def participants(working_set: WorkingSet, face: Face, theta: Array, v: Array) -> Participants:
    """The free terms, and the other flat ones that are next to a kink or on its wrong side."""
    f, free = working_set.losses, np.zeros(len(working_set.rows), dtype=bool)
    free[face.rows] = True
    rows = working_set.order[~free[working_set.order]]
    at, slope, e = theta[rows], f.b[rows] + f.q[rows] * theta[rows], f.e[rows]
    low = np.where(at <= f.lo[rows], -np.inf, slope + np.where(at > 0, e, -e))
    high = np.where(at >= f.hi[rows], np.inf, slope + np.where(at >= 0, e, -e))
    t = working_set.forward(v, rows)
    reach = REACH * float(np.sqrt(np.mean(face.residual**2)))
    near = (np.minimum(t - low, high - t) <= reach) & (f.q[rows] == 0)
    off, at, rows = (t - np.clip(t, low, high))[near], at[near], rows[near]
    return Participants(
        np.concatenate([face.rows, rows]), np.concatenate([face.residual, off]),
        np.concatenate([face.down, np.maximum(f.lo[rows], -HUGE) - at]),
        np.concatenate([face.up, np.minimum(f.hi[rows], HUGE) - at]),
    )


# -- compiled loops -------------------------------------------------------------------------------


@compiled(fastmath=CONTRACT, allocates=False)
def add_column_squares(rows: Index, matrix: Csr, out: Array) -> None:
    """``out_j += sum_i a_ij^2`` over the rows i of `rows`."""
    start, stop, indices, data = matrix
    for k in range(rows.size):
        i = rows[k]
        for p in range(start[i], stop[i]):
            out[indices[p]] += data[p] * data[p]


@compiled(fastmath=CONTRACT, allocates=False)
def normalise_rows(rows: Index, matrix: Csr, root: Array, out: Csr, size: Array) -> None:
    """Copy rows, their columns scaled by `root` and then the rows to length 1 from `size`."""
    start, stop, indices, data = matrix
    new_start, _, new_indices, new_data = out
    for k in range(rows.size):
        i = rows[k]
        a = new_start[k]
        square = 0.0
        for p in range(start[i], stop[i]):
            value = data[p] * root[indices[p]]
            square += value * value
        size[k] = np.sqrt(square)
        inverse = 1.0 / size[k] if square > 0.0 else 0.0
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = inverse * data[p] * root[indices[p]]
            a += ONE


@compiled(fastmath=CONTRACT, allocates=False)
def step_of_residual(matrix: Csr, direction: Array, length: float, r: Array, out: Array) -> float:
    """``r -= length A direction`` and ``out += A' r``, row by row; returns ``r' r``."""
    start, stop, indices, data = matrix
    square = 0.0
    for i in range(r.size):
        value = r[i] - length * sparse_dot(start[i], stop[i], indices, data, direction)
        r[i] = value
        square += value * value
        for p in range(start[i], stop[i]):
            out[indices[p]] += value * data[p]
    return square


@compiled(fastmath=SUMS, allocates=False)
def average_residual(
    weight: float, r: Array, size: Array, down: Array, up: Array, out: Array
) -> float:
    """``out += weight (r - out)``; returns what residuals ``size out`` add to the gap."""
    gap = 0.0
    for k in range(r.size):
        value = out[k] + weight * (r[k] - out[k])
        out[k] = value
        value *= size[k]
        gap += max(up[k] * value, down[k] * value)
    return gap


@compiled(fastmath=SUMS, allocates=False)
def average_move(
    length: float, weight: float, direction: Array, root: Array, x: Array, out: Array
) -> float:
    """``x += length direction``, ``out += weight (x - out)``; returns ``||root out||^2``."""
    square = 0.0
    for j in range(direction.size):
        moved = x[j] + length * direction[j]
        x[j] = moved
        value = out[j] + weight * (moved - out[j])
        out[j] = value
        value *= root[j]
        square += value * value
    return square
