"""Conjugate gradients with a factor of an earlier linear system, kept along a path.

From one Newton step, reduced problem or value of lambda to the next a few columns and rows come and
go. A Cholesky factor of one system (of its heaviest columns, in single precision) therefore
preconditions the next ones; a column it does not have is divided by its curvature. It is made anew
where it no longer helps. A factor only ever directs the search: residuals of the system itself say
when a solution is good enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strsv
from scipy.linalg.lapack import spotrf

from cvxscreen.designs.protocols import Design

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
