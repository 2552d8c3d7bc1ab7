"""Linear systems on some columns of the model, and a factor of an earlier one kept along a path.

``(B'B + diag(weight)) step = right_side``, B the scaled rows of the terms with curvature, goes to
Cholesky's method on the smaller side of B (the other side by the Woodbury identity), and where both
are large to conjugate gradients.

From one Newton step, reduced problem or value of lambda to the next a few columns and rows come and
go. A Cholesky factor of one system (of its heaviest columns, in single precision) therefore
preconditions the next ones; a column it does not have is divided by its curvature. It is made anew
where it no longer helps. A factor only ever directs the search: residuals of the system itself say
when a solution is good enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import strsv
from scipy.linalg.lapack import dposv, spotrf

from cvxscreen._support.compiled import SUMS, compiled, unsigned
from cvxscreen.designs.protocols import Design
from cvxscreen.designs.rows import add_outer_products

# -- compiled loops over columns ------------------------------------------------------------------


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


# -- linear systems -------------------------------------------------------------------------------


Array = NDArray[np.float64]
Index = NDArray[np.intp]
Single = NDArray[np.float32]
Linear = Callable[[Array], Array]
Gram = Callable[[Index, Array], Single]

DIRECT = 1000
"""Largest side of a linear system that is solved by Cholesky's method."""
FEW = 64
"""So many columns make a small system, whatever the rows."""
FASTER = 30
"""Multiplications of Cholesky's method in the time of one of a sweep."""
FULL = 0.3
"""Share of entries from which on products are those of dense matrices."""
STEPS, SHARE = 200, 1e-2
"""Of conjugate gradients: at most so many, to a tenth of the residual (its square's share)."""
BLOCK = 4096
"""Rows of dense data that are copied at once for a factor."""


@dataclass(eq=False)
class CurvedRows:
    """``B``: some rows, scaled, of some columns; by columns, and as one array for dense data.

    Row numbers rise within a column.

    Attributes
    ----------
    matrix : Compressed
        B by columns.
    count : int
        Its rows.
    dense : array, shape (count, columns), optional
    factors : NamedFactors, optional
        Where factors of systems on these columns are kept.
    """

    matrix: Compressed
    count: int
    dense: Array | None = None
    factors: NamedFactors | None = None

    @classmethod
    def of(
        cls, matrix: Any, active: Index, rows: Index, factor: Array,
        factors: NamedFactors | None = None,
    ) -> CurvedRows:
        """The `active` columns of `matrix` (CSC, or by columns) at `rows`, times ``factor_i``.

        `factors` are those of all columns of `matrix`.
        """
        factors = None if factors is None else factors.take(active)
        if not sp.issparse(matrix):
            turned = matrix.T if len(active) == matrix.shape[1] else matrix.T[active]
            dense = (np.take(turned, rows, axis=1) * factor[rows]).T
            every = np.tile(np.arange(len(rows), dtype=np.uint32), len(active))
            starts = np.arange(len(active) + 1, dtype=np.uint32) * np.uint32(len(rows))
            flat = Compressed(starts, every, dense.ravel(order="F"))
            return cls(flat, len(rows), dense, factors)
        rank = np.full(matrix.shape[0], -1, dtype=np.int32)
        rank[rows] = np.arange(len(rows))
        room = int((matrix.indptr[active + 1] - matrix.indptr[active]).sum())
        made = Compressed(
            np.zeros(len(active) + 1, dtype=np.uint32), np.empty(room, dtype=np.uint32),
            np.empty(room),
        )
        size = copy_scaled_rows(active, compressed(matrix), rank, factor, made)
        made = made._replace(indices=made.indices[:size], data=made.data[:size])
        return cls(made, len(rows), factors=factors)

    @property
    def columns(self) -> int:
        """How many columns B has."""
        return len(self.matrix.indptr) - 1

    @cached_property
    def squares(self) -> Array:
        """``||B_j||^2``."""
        out = np.zeros(self.columns)
        used = np.flatnonzero(np.diff(self.matrix.indptr))
        if len(used):
            out[used] = np.add.reduceat(self.matrix.data**2, self.matrix.indptr[used])
        return out

    def forward(self, chosen: Index, step: Array) -> Array:
        """``sum_k step_k B_j``, ``j = chosen_k``."""
        if self.dense is not None:
            full = np.zeros(self.dense.shape[1])
            full[chosen] = step
            return np.asarray(self.dense @ full)
        out = np.zeros(self.count)
        add_columns(chosen, self.matrix, step, out)
        return out

    def adjoint(self, chosen: Index, u: Array) -> Array:
        """``<B_j, u>`` for the chosen columns."""
        if self.dense is not None:
            return np.asarray(self.dense.T @ u)[chosen]
        out = np.empty(len(chosen))
        inner_products(chosen, self.matrix, u, out)
        return out

    # -- systems ----------------------------------------------------------------------------------

    def costs_more_than_sweeps(self, chosen: Index, sweeps: int) -> bool:
        """Whether a linear system on the `chosen` columns takes longer than so many sweeps."""
        entries = float(self._entries(chosen))
        side = min(len(chosen), max(self.count, FEW))
        gram = 0.0 if self._small_gram is not None else 0.5 * entries**2 / max(self.count, 1)
        return side**3 / FASTER + gram > sweeps * entries

    def solve(self, chosen: Index, weight: Array, right_side: Array) -> Array:
        """``(B'B + diag(weight))^{-1} right_side`` on the `chosen` columns."""
        columns = len(chosen)
        if columns <= min(self.count, DIRECT) or columns <= FEW:
            found = _cholesky_solve(self._gram(chosen), weight, right_side)
            if found is not None:
                return found
        elif self.count <= DIRECT:
            inverse = 1.0 / np.sqrt(weight)
            ones = np.ones(self.count)
            inner = right_side * inverse
            back = _cholesky_solve(
                self._outer(chosen, 1.0 / weight), ones, self.forward(chosen, inner * inverse)
            )
            if back is not None:
                return np.asarray((inner - self.adjoint(chosen, back) * inverse) * inverse)
        own = NamedFactors(FactorCache(), chosen)
        system = System(
            lambda v: self.adjoint(chosen, self.forward(chosen, v)) + weight * v,
            self.squares[chosen] + weight, right_side,
        )
        return conjugate_gradients(
            system, own if self.factors is None else self.factors.take(chosen),
            lambda some, scale: self._single_gram(chosen[some], scale), STEPS, SHARE,
        )

    # -- products of columns ----------------------------------------------------------------------

    def _entries(self, chosen: Index) -> int:
        return int((self.matrix.indptr[chosen + 1] - self.matrix.indptr[chosen]).sum())

    @cached_property
    def _small_gram(self) -> Array | None:
        """``B'B`` where it is small and B dense: every linear system then is a part of it."""
        if self.dense is None or self.dense.shape[1] > DIRECT:
            return None
        return np.asarray(self.dense.T @ self.dense)

    def _gram(self, chosen: Index) -> Array:
        """``B'B`` on the chosen columns; the upper half is not needed."""
        if self._small_gram is not None:
            every = len(chosen) == self.columns
            return self._small_gram.copy() if every else self._small_gram[np.ix_(chosen, chosen)]
        full = self._nearly_full(chosen)
        if full is not None:
            return np.asarray(full.T @ full)
        out = np.zeros((len(chosen), len(chosen)))
        self._add_gram(chosen, np.ones(len(chosen)), out)
        return out

    def _single_gram(self, chosen: Index, scale: Array) -> Single:
        """As `_gram`, in single precision, of the columns times `scale`."""
        out = np.zeros((len(chosen), len(chosen)), dtype=np.float32)
        if self.dense is None:
            self._add_gram(chosen, scale, out)
            return out
        for start in range(0, self.count, BLOCK):
            block = (self.dense[start : start + BLOCK][:, chosen] * scale).astype(np.float32)
            out += block.T @ block
        return out

    def _add_gram(self, chosen: Index, scale: Array, out: NDArray[Any]) -> None:
        """Add the lower half of ``B'B``, of the chosen columns times `scale`."""
        entries = self._entries(chosen)
        by_row = Compressed(
            np.zeros(self.count + 2, dtype=np.uint32), np.empty(entries, dtype=np.uint32),
            np.empty(entries),
        )
        transpose_columns(chosen, self.matrix, by_row)
        add_gram(chosen, self.matrix, scale, by_row, out)

    def _outer(self, chosen: Index, scale: Array) -> Array:
        """``sum_k scale_k B_j B_j'`` over the chosen columns; the upper half is not needed."""
        full = self._nearly_full(chosen)
        if full is not None:
            scaled = full * np.sqrt(scale)
            return np.asarray(scaled @ scaled.T)
        out = np.zeros((self.count, self.count))
        start, indices, data = self.matrix
        add_outer_products(chosen, scale, start, start[1:], indices, data, out)
        out.flat[:: self.count + 1] *= 2.0
        return out

    def _nearly_full(self, chosen: Index) -> Array | None:
        """The chosen columns as a dense array where little of it is 0."""
        if self.dense is not None:
            return self.dense[:, chosen]
        if self._entries(chosen) <= FULL * self.count * len(chosen):
            return None
        indptr, indices, data = self.matrix
        signed = data, indices.view(np.int32), indptr.view(np.int32)
        whole = sp.csc_matrix(signed, shape=(self.count, self.columns))
        return np.asarray(whole[:, chosen].toarray(order="F"))


def _cholesky_solve(gram: Array, weight: Array, right_side: Array) -> Array | None:
    """``(gram + diag(weight))^{-1} right_side`` from the lower half; None where it breaks down."""
    if not len(gram):
        return right_side
    gram.flat[:: len(gram) + 1] += weight
    # What lies by rows is, for LAPACK, the transpose by columns: the lower half is its upper one.
    _, found, failed = dposv(gram.T, right_side, lower=0, overwrite_a=1)
    return None if failed else np.asarray(found)


# -- conjugate gradients, preconditioned by a factor that is kept ---------------------------------

LARGEST = 2000
"""Columns of a factor at most: 16 MB."""
PATIENCE = 15
"""A new factor costs as much as about so many steps of conjugate gradients with it."""
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3)
"""Added to the unit diagonal, until Cholesky's method goes through in single precision."""


@dataclass(frozen=True)
class Factor:
    """``U'U`` of the system on some columns, divided by the roots of their curvatures."""

    columns: Index
    upper: Single

    def preconditioner(self, columns: Index, curvature: Array) -> Linear:
        """For a system on `columns` with the diagonal `curvature`."""
        _, mine, its = np.intersect1d(
            columns, self.columns, assume_unique=True, return_indices=True
        )
        root = np.sqrt(curvature)

        def solved(residual: Array) -> Array:
            out = residual / root
            largest = float(np.abs(out).max()) or 1.0  # single precision has no range to spare
            part = np.zeros(len(self.columns), dtype=np.float32)
            part[its] = out[mine] / largest
            part = strsv(self.upper, part, trans=1, overwrite_x=1)
            out[mine] = largest * strsv(self.upper, part, overwrite_x=1)[its]
            return np.asarray(out / root)

        return solved


@dataclass(eq=False)
class FactorCache:
    """The factor that systems on the columns of one matrix leave for each other."""

    factor: Factor | None = None
    usual_steps: int = 0
    """Steps that a system took with the factor made of itself."""

    def preconditioner(self, columns: Index, curvature: Array) -> Linear:
        """By the factor, or without one by the diagonal `curvature` alone."""
        if self.factor is None:
            return lambda residual: residual / curvature
        return self.factor.preconditioner(columns, curvature)

    def renew(self, columns: Index, curvature: Array, gram: Gram) -> None:
        """Factor the system with this diagonal; ``gram(some, scale)`` is a part of ``B'B``."""
        heavy = np.arange(len(columns))
        if len(columns) > LARGEST:
            heavy = np.sort(np.argpartition(-curvature, LARGEST)[:LARGEST])
        scaled = gram(heavy, 1.0 / np.sqrt(curvature[heavy]))
        self.factor = None
        for ridge in RIDGES:
            scaled.flat[:: len(heavy) + 1] = 1.0 + ridge
            # What lies by rows is, for LAPACK, the transpose by columns.
            upper, failed = spotrf(scaled.T, lower=0, clean=0)
            if not failed:
                self.factor = Factor(columns[heavy], upper)
                return


@dataclass(frozen=True)
class NamedFactors:
    """A cache, and the names it has for the columns in hand."""

    cache: FactorCache
    columns: Index

    @classmethod
    def of(cls, design: Design) -> NamedFactors:
        """The cache of a design; it lives as long."""
        found = _FACTORS.get(design)
        if found is None:
            found = _FACTORS[design] = cls(FactorCache(), np.arange(design.shape[1]))
        return found

    def take(self, some: Index) -> NamedFactors:
        """The same cache, asked for the columns at `some`."""
        return NamedFactors(self.cache, self.columns[some])


_FACTORS: WeakKeyDictionary[Design, NamedFactors] = WeakKeyDictionary()


def share_factors(design: Design, narrow: Design, features: Index) -> None:
    """Let `narrow`, the `features` of `design` (some rows of them), share its factors."""
    if narrow is not design:
        _FACTORS[narrow] = NamedFactors.of(design).take(features)


@dataclass(frozen=True)
class System:
    """A positive definite linear system: times a vector, its diagonal, its right-hand side."""

    product: Linear
    curvature: Array
    right_side: Array


def conjugate_gradients(
    system: System, factors: NamedFactors, gram: Gram, limit: int, share: float
) -> Array:
    """Solve a system roughly, by preconditioned conjugate gradients.

    Parameters
    ----------
    system : System
    factors : NamedFactors
        The factor that preconditions it, by the names of its columns.
    gram : callable
        See `FactorCache.renew`.
    limit, share : int, float
        Until the squared residual is `share` of the first, both in the metric of the preconditioner
        and in that of the diagonal, or for `limit` steps (with each preconditioner).
    """
    cache, columns = factors.cache, factors.columns
    x, residual = np.zeros_like(system.right_side), system.right_side.copy()
    if not residual.any():
        return x
    patience = min(cache.usual_steps + PATIENCE, limit)
    apply = cache.preconditioner(columns, system.curvature)
    steps = _iterate(system, apply, x, residual, patience, share)
    if steps == patience < limit:
        cache.renew(columns, system.curvature, gram)
        apply = cache.preconditioner(columns, system.curvature)
        cache.usual_steps = _iterate(system, apply, x, residual, limit, share)
    return x


def _iterate(
    system: System, apply: Linear, x: Array, residual: Array, limit: int, share: float
) -> int:
    """Steps made from `x` on; `x` and `residual` follow.

    The preconditioner's metric is about that of the error, if it is a good one. What it takes for
    heavy and is not would be left as it is: hence the second metric.
    """
    right_side, curvature = system.right_side, system.curvature
    z = apply(residual)
    size, target = float(residual @ z), share * float(right_side @ apply(right_side))
    plain_target = share * float(right_side @ (right_side / curvature))
    direction = z.copy()
    for made in range(limit):
        if size <= target and float(residual @ (residual / curvature)) <= plain_target:
            return made
        image = system.product(direction)
        length = size / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = apply(residual)
        # Polak and Ribiere's direction: rounded to single precision, `apply` is not quite linear.
        direction *= -length * float(z @ image) / size
        direction += z
        size = float(residual @ z)
    return limit
