"""Linear systems on some columns of the model, and a factor of an earlier one kept along a path.

Conjugate gradients with a factor of an earlier linear system, kept along a path.

From one Newton step, reduced problem or value of lambda to the next a few columns and rows come and
go. A Cholesky factor of one system (of its heaviest columns, in single precision) therefore
preconditions the next ones; a column it does not have is divided by its curvature. It is made anew
where it no longer helps. A factor only ever directs the search: residuals of the system itself say
when a solution is good enough.

The bending rows of the model of `ProxNewton`, and linear systems on some of its columns.

``(B'B + diag(weight)) step = force`` goes to Cholesky on the smaller side of B (the other side by
the Woodbury identity), and where both are large to conjugate gradients (`sparse_factor`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import strsv
from scipy.linalg.lapack import dposv, spotrf

from cvxscreen._support.compiled import unsigned
from cvxscreen.designs.protocols import Design
from cvxscreen.solvers.prox_newton.loops import loops

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Single = NDArray[np.float32]
Linear = Callable[[Array], Array]
Gram = Callable[[Index, Array], Single]

LARGEST = 2000
"""Columns of a factor at most: 16 MB."""
PATIENCE = 15
"""A new factor costs as much as about so many steps of conjugate gradients with it."""
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3)
"""Added to the unit diagonal, until Cholesky goes through in single precision."""


@dataclass(frozen=True)
class Kept:
    """``U'U`` of the system on some columns, divided by the roots of their curvatures."""

    columns: Index
    upper: Single

    def preconditioner(self, columns: Index, curve: Array) -> Linear:
        """For a system on `columns` with the diagonal `curve`."""
        _, mine, its = np.intersect1d(
            columns, self.columns, assume_unique=True, return_indices=True
        )
        root = np.sqrt(curve)

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
class Memory:
    """What the systems on the columns of one matrix leave for each other."""

    kept: Kept | None = None
    usual: int = 0
    """Steps that a system took with the factor made of itself."""

    def preconditioner(self, columns: Index, curve: Array) -> Linear:
        """By the factor, or without one by the diagonal `curve` alone."""
        kept = self.kept
        if kept is None:
            return lambda residual: residual / curve
        return kept.preconditioner(columns, curve)

    def renew(self, columns: Index, curve: Array, gram: Gram) -> None:
        """Factor the system with this diagonal; ``gram(some, scale)`` is a part of ``B'B``."""
        heavy = np.arange(len(columns))
        if len(columns) > LARGEST:
            heavy = np.sort(np.argpartition(-curve, LARGEST)[:LARGEST])
        scaled = gram(heavy, 1.0 / np.sqrt(curve[heavy]))
        self.kept = None
        for ridge in RIDGES:
            scaled.flat[:: len(heavy) + 1] = 1.0 + ridge
            # What lies by rows is, for LAPACK, the transpose by columns.
            upper, failed = spotrf(scaled.T, lower=0, clean=0)
            if not failed:
                self.kept = Kept(columns[heavy], upper)
                return


@dataclass(frozen=True)
class Known:
    """A memory, and the names it has for the columns in hand."""

    memory: Memory
    columns: Index

    @classmethod
    def of(cls, design: Design) -> Known:
        """The memory of a design; kept."""
        found: Known | None = design.__dict__.get("_known")
        if found is None:
            found = design.__dict__["_known"] = cls(Memory(), np.arange(design.shape[1]))
        return found

    def of_some(self, some: Index) -> Known:
        """The same for some of the columns."""
        return Known(self.memory, self.columns[some])


def hand_on(design: Design, narrow: Design, features: Index) -> None:
    """Let `narrow`, the `features` of `design` (some rows of them), share its memory."""
    if narrow is not design:
        narrow.__dict__["_known"] = Known.of(design).of_some(features)


@dataclass(frozen=True)
class System:
    """A positive definite linear system: times a vector, its diagonal, its right-hand side."""

    product: Linear
    curve: Array
    force: Array


def conjugate(system: System, known: Known, gram: Gram, limit: int, share: float) -> Array:
    """Solve a system roughly, by preconditioned conjugate gradients.

    Parameters
    ----------
    system : System
    known : Known
        What is known about its columns.
    gram : callable
        See `Memory.renew`.
    limit, share : int, float
        Until the squared residual is `share` of the first, both in the metric of the preconditioner
        and in that of the diagonal, or for `limit` steps (with each preconditioner).
    """
    memory, columns = known.memory, known.columns
    x, residual = np.zeros_like(system.force), system.force.copy()
    if not residual.any():
        return x
    patience = min(memory.usual + PATIENCE, limit)
    apply = memory.preconditioner(columns, system.curve)
    steps = _descend(system, apply, x, residual, patience, share)
    if steps == patience < limit:
        memory.renew(columns, system.curve, gram)
        apply = memory.preconditioner(columns, system.curve)
        memory.usual = _descend(system, apply, x, residual, limit, share)
    return x


def _descend(
    system: System, apply: Linear, x: Array, residual: Array, limit: int, share: float
) -> int:
    """Steps made from `x` on; `x` and `residual` follow.

    The preconditioner's metric is about that of the error, if it is a good one. What it takes for
    heavy and is not would be left as it is: hence the second metric.
    """
    force, curve = system.force, system.curve
    z = apply(residual)
    size, aim = float(residual @ z), share * float(force @ apply(force))
    plain = share * float(force @ (force / curve))
    direction = z.copy()
    for made in range(limit):
        if size <= aim and float(residual @ (residual / curve)) <= plain:
            return made
        bent = system.product(direction)
        length = size / float(direction @ bent)
        x += length * direction
        residual -= length * bent
        z = apply(residual)
        # Polak and Ribiere's direction: rounded to single precision, `apply` is not quite linear.
        direction *= -length * float(z @ bent) / size
        direction += z
        size = float(residual @ z)
    return limit


DIRECT = 1000
"""Largest side of a linear system that is solved by Cholesky."""
FEW = 64
"""So many columns make a small system, whatever the rows."""
FASTER = 30
"""Multiplications of Cholesky's method in the time of one of a sweep."""
FULL = 0.3
"""Share of entries from which on products are those of dense matrices."""
STEPS, SHARE = 200, 1e-2
"""Of conjugate gradients: at most so many, to a tenth of the residual."""
BLOCK = 4096
"""Rows of dense data that are copied at once for a factor."""


@dataclass(eq=False)
class Bent:
    """``B``, some rows of some columns: CSC arrays, and as one array where the data are dense.

    Row numbers rise within a column.
    """

    indptr: NDArray[np.uint32]
    indices: NDArray[np.uint32]
    data: Array
    rows: int
    dense: Array | None = None
    known: Known | None = None

    @classmethod
    def around(
        cls, matrix: Any, active: Index, rows: Index, factor: Array, known: Known | None = None
    ) -> Bent:
        """The `active` columns of `matrix` (CSC, or by columns) at `rows`, times ``factor_i``.

        `known` is the memory of the columns of `matrix`.
        """
        known = None if known is None else known.of_some(active)
        if not sp.issparse(matrix):
            turned = matrix.T if len(active) == matrix.shape[1] else matrix.T[active]
            dense = (np.take(turned, rows, axis=1) * factor[rows]).T
            every = np.tile(np.arange(len(rows), dtype=np.uint32), len(active))
            starts = np.arange(len(active) + 1, dtype=np.uint32) * np.uint32(len(rows))
            return cls(starts, every, dense.ravel(order="F"), len(rows), dense, known)
        rank = np.full(matrix.shape[0], -1, dtype=np.int32)
        rank[rows] = np.arange(len(rows))
        room = int((matrix.indptr[active + 1] - matrix.indptr[active]).sum())
        indptr = np.zeros(len(active) + 1, dtype=np.uint32)
        indices, data = np.empty(room, dtype=np.uint32), np.empty(room)
        arrays = *unsigned(matrix.indptr, matrix.indices), matrix.data
        size = loops().chosen_rows(active, *arrays, rank, factor, indptr, indices, data)
        return cls(indptr, indices[:size], data[:size], len(rows), known=known)

    @property
    def arrays(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], Array]:
        """The CSC arrays."""
        return self.indptr, self.indices, self.data

    @cached_property
    def squares(self) -> Array:
        """``||B_j||^2``."""
        out = np.zeros(len(self.indptr) - 1)
        used = np.flatnonzero(np.diff(self.indptr))
        if len(used):
            out[used] = np.add.reduceat(self.data**2, self.indptr[used])
        return out

    @cached_property
    def gram(self) -> Array | None:
        """``B'B`` where it is small and B dense: every linear system then is a part of it."""
        if self.dense is None or self.dense.shape[1] > DIRECT:
            return None
        return np.asarray(self.dense.T @ self.dense)

    def times(self, chosen: Index, step: Array) -> Array:
        """``sum_k step_k B_j``, ``j = chosen_k``."""
        if self.dense is not None:
            full = np.zeros(self.dense.shape[1])
            full[chosen] = step
            return np.asarray(self.dense @ full)
        out = np.zeros(self.rows)
        loops().add_columns(chosen, *self.arrays, step, out)
        return out

    def pull(self, chosen: Index, u: Array) -> Array:
        """``<B_j, u>`` for the chosen columns."""
        if self.dense is not None:
            return np.asarray(self.dense.T @ u)[chosen]
        out = np.empty(len(chosen))
        loops().pull_columns(chosen, *self.arrays, u, out)
        return out

    def dear(self, chosen: Index, sweeps: int) -> bool:
        """Whether a linear system on the `chosen` columns takes longer than so many sweeps."""
        entries = float((self.indptr[chosen + 1] - self.indptr[chosen]).sum())
        side = min(len(chosen), max(self.rows, FEW))
        gram = 0.0 if self.gram is not None else 0.5 * entries**2 / max(self.rows, 1)
        return side**3 / FASTER + gram > sweeps * entries

    def solve(self, chosen: Index, weight: Array, force: Array) -> Array:
        """``(B'B + diag(weight))^{-1} force`` on the `chosen` columns."""
        columns = len(chosen)
        if columns <= min(self.rows, DIRECT) or columns <= FEW:
            found = _positive(self._inner(chosen), weight, force)
            if found is not None:
                return found
        elif self.rows <= DIRECT:
            inverse = 1.0 / np.sqrt(weight)
            ones = np.ones(self.rows)
            inner = force * inverse
            back = _positive(
                self._outer(chosen, 1.0 / weight), ones, self.times(chosen, inner * inverse)
            )
            if back is not None:
                return np.asarray((inner - self.pull(chosen, back) * inverse) * inverse)
        known = Known(Memory(), chosen) if self.known is None else self.known.of_some(chosen)
        system = System(
            lambda v: self.pull(chosen, self.times(chosen, v)) + weight * v,
            self.squares[chosen] + weight, force,
        )
        return conjugate(
            system, known, lambda some, scale: self._single(chosen[some], scale), STEPS, SHARE
        )

    def _crowded(self, chosen: Index) -> Array | None:
        """The chosen columns as a dense array where little of it is 0."""
        if self.dense is not None:
            return self.dense[:, chosen]
        count = int((self.indptr[chosen + 1] - self.indptr[chosen]).sum())
        if count <= FULL * self.rows * len(chosen):
            return None
        indices, indptr = self.indices.view(np.int32), self.indptr.view(np.int32)
        shape = self.rows, len(self.indptr) - 1
        whole = sp.csc_matrix((self.data, indices, indptr), shape=shape)
        return np.asarray(whole[:, chosen].toarray(order="F"))

    def _inner(self, chosen: Index) -> Array:
        """``B'B`` on the chosen columns; the upper half is not needed."""
        if self.gram is not None:
            every = len(chosen) == len(self.indptr) - 1
            return self.gram.copy() if every else self.gram[np.ix_(chosen, chosen)]
        crowded = self._crowded(chosen)
        if crowded is not None:
            return np.asarray(crowded.T @ crowded)
        out = np.zeros((len(chosen), len(chosen)))
        self._add_inner(chosen, np.ones(len(chosen)), out)
        return out

    def _single(self, chosen: Index, scale: Array) -> NDArray[np.float32]:
        """As `_inner`, in single precision, of the columns times `scale`."""
        out = np.zeros((len(chosen), len(chosen)), dtype=np.float32)
        if self.dense is None:
            self._add_inner(chosen, scale, out)
            return out
        for start in range(0, self.rows, BLOCK):
            block = (self.dense[start : start + BLOCK][:, chosen] * scale).astype(np.float32)
            out += block.T @ block
        return out

    def _add_inner(self, chosen: Index, scale: Array, out: NDArray[Any]) -> None:
        """Add the lower half of ``B'B``, of the chosen columns times `scale`."""
        count = int((self.indptr[chosen + 1] - self.indptr[chosen]).sum())
        starts = np.zeros(self.rows + 2, dtype=np.uint32)
        indices, data = np.empty(count, dtype=np.uint32), np.empty(count)
        loops().turned(chosen, *self.arrays, starts, indices, data)
        loops().inner_sums(chosen, *self.arrays, scale, starts, indices, data, out)

    def _outer(self, chosen: Index, scale: Array) -> Array:
        """``sum_k scale_k B_j B_j'`` over the chosen columns; the upper half is not needed."""
        crowded = self._crowded(chosen)
        if crowded is not None:
            scaled = crowded * np.sqrt(scale)
            return np.asarray(scaled @ scaled.T)
        out = np.zeros((self.rows, self.rows))
        loops().pair_sums(chosen, *self.arrays, scale, out)
        return out


def _positive(gram: Array, weight: Array, force: Array) -> Array | None:
    """``(gram + diag(weight))^{-1} force`` from the lower half; None where Cholesky breaks down."""
    if not len(gram):
        return force
    gram.flat[:: len(gram) + 1] += weight
    # What lies by rows is, for LAPACK, the transpose by columns: the lower half is its upper one.
    _, found, failed = dposv(gram.T, force, lower=0, overwrite_a=1)
    return None if failed else np.asarray(found)
