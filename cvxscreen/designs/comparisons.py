"""Margins of metric learning: differences of squared distances, through the unique pairs.

Term t has the symmetric matrix ``H_t = a a' - b b'`` (a, b differences of points; either may be
missing) and the margin ``<H_t, M>``. The coordinates are all d * d entries of M in C order, so that
the Euclidean norm is Frobenius'; for a diagonal metric the d diagonal entries. A pass costs
``O(n d^2 + P d + T)`` for P unique pairs; no H is formed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.limits import require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen.designs.term_sets import PairTable, Terms
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]

_BLOCK_BYTES = 2**24


def _rows(index: Index) -> NDArray[np.intp]:
    chosen = np.asarray(index)
    return np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.intp)


class Pairs:
    """The design of T terms over a table of pairs; shape (T, d * d), or (T, d) when diagonal.

    Parameters
    ----------
    table : PairTable
    terms : Indexed or Products
    """

    streamed, centred = False, False

    def __init__(self, table: PairTable, terms: Terms) -> None:
        self.table, self.terms = table, terms
        self.shape: tuple[int, int] = (len(terms), table.size)

    @property
    def sparse(self) -> bool:
        """False: there are no rows of numbers to store."""
        return False

    @property
    def diagonal(self) -> bool:
        """Whether the metric is a vector."""
        return self.table.diagonal

    # -- the two passes -----------------------------------------------------------------------

    def forward(self, x: ArrayLike) -> Array:
        """``<H_t, M>``, shape (T,)."""
        return self.terms.margins(self.table.values(x))

    def adjoint(self, theta: ArrayLike) -> Array:
        """``sum_t theta_t H_t`` in C order, a symmetric matrix; shape of x."""
        omega = self.terms.scatter(np.asarray(theta, dtype=np.float64))
        return self.table.adjoint(omega).ravel()

    @cached_property
    def reach(self) -> Array:
        """What the rounding of a term is relative to, at least ``|a|^2 + |b|^2``, shape (T,)."""
        plus, minus = self.terms.index()
        return (self.table.spread[plus] + self.table.spread[minus]) * (1.0 + 4.0 * UNIT)

    @property
    def forward_factor(self) -> float:
        """``|computed - exact| <= forward_factor |M| reach_t`` of `forward`."""
        return 2.0 * gamma(2 * self.table.d + 12) * float(np.sqrt(self.table.d)) + 4.0 * UNIT

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (T,)."""
        plus, minus = self.terms.index()
        reach = (self.table.reach[plus] + self.table.reach[minus]) * (1.0 + 4.0 * UNIT)
        return self.forward_factor * float(np.linalg.norm(np.asarray(x))) * reach

    @cached_property
    def adjoint_factor(self) -> float:
        """``|computed - exact| <= adjoint_factor sum_t |theta_t| reach_t`` in Frobenius norm."""
        return self.table.adjoint_factor(self.terms.load)

    def offset(self, x: ArrayLike) -> float:
        """There is no intercept: 0."""
        return 0.0

    def forward_precise(self, index: Index, x: ArrayLike) -> tuple[Array, Array]:
        """A few margins in extended precision, and a bound of the error left."""
        wide = np.longdouble
        metric = np.asarray(x, dtype=wide)
        rows = _rows(index)
        chosen = self.terms.take(rows)
        total = np.zeros(len(rows), dtype=wide)
        size = np.zeros(len(rows), dtype=wide)
        points, table = self.table.points, self.table
        for sign, pairs in ((1, chosen.plus), (-1, chosen.minus)):
            real = np.flatnonzero(pairs < len(table))
            at = pairs[real]
            a = points[table.left[at]].astype(wide) - points[table.right[at]].astype(wide)
            if self.diagonal:
                total[real] += sign * ((a * a) @ metric)
                size[real] += (a * a) @ np.abs(metric)
            else:
                square = metric.reshape(table.d, table.d)
                total[real] += sign * ((a @ square) * a).sum(axis=1)
                size[real] += ((np.abs(a) @ np.abs(square)) * np.abs(a)).sum(axis=1)
        unit = float(np.finfo(wide).eps)
        rounded = np.asarray(total, dtype=np.float64)
        error = 2.0 * (2 * table.d + 10) * unit * np.asarray(size, dtype=np.float64)
        return rounded, 1.01 * error + UNIT * np.abs(rounded)

    # -- norms and small matrices -------------------------------------------------------------

    @cached_property
    def frobenius(self) -> Array:
        """``|H_t|`` rounded up, shape (T,)."""
        return self.table.norms(*self.terms.index())

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j h_tj^2``, shape (T,)."""
        weights = np.asarray(weights, dtype=np.float64)
        if weights.size and (weights == weights[0]).all():
            return weights[0] * self.frobenius**2
        out = np.empty(len(self.terms))
        for rows in self._blocks():
            out[rows] = self.dense(np.arange(rows.start, rows.stop)) ** 2 @ weights
        return out

    def _blocks(self) -> list[slice]:
        step = max(_BLOCK_BYTES // (8 * max(self.shape[1], 1)), 1)
        n = len(self.terms)
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def dense(self, index: Index | None = None) -> Array:
        """The H at `index` (all when omitted), one row each."""
        rows = None if index is None else _rows(index)
        count, width = len(self.terms if rows is None else rows), self.shape[1]
        require(
            (16 if self.diagonal else 24) * count * width,
            f"the matrix of {count:,} comparisons x {width:,} entries of the metric, which only "
            "other solvers and exports need,",
            "use the built-in solver, which never forms it, fewer comparisons, or `diagonal=True`",
        )
        chosen = self.terms.take(np.arange(count) if rows is None else rows)
        a = self.table.differences(chosen.plus)
        b = self.table.differences(chosen.minus)
        if self.diagonal:
            # (a - b)(a + b) has no cancellation where a and b are close.
            return np.asarray((np.abs(a) - np.abs(b)) * (np.abs(a) + np.abs(b)))
        outer = a[:, :, None] * a[:, None, :] - b[:, :, None] * b[:, None, :]
        return outer.reshape(len(a), -1)

    def rows_csr(self, index: Index) -> sp.csr_matrix:
        """The rows at `index` as CSR."""
        return sp.csr_matrix(self.dense(index))

    def weighted_gram(self, index: Index | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J``, dense."""
        block = self.dense(index) * np.sqrt(np.asarray(weights, dtype=np.float64))[:, None]
        return np.asarray(block.T @ block)

    def column(self, j: int) -> Array:
        """Coordinate `j` of every term, shape (T,)."""
        unit = np.zeros(self.shape[1])
        unit[j] = 1.0
        return self.forward(unit)

    def take_rows(self, index: Index) -> Pairs:
        """The design made of the terms at `index`, over the pairs they use."""
        terms, kept = self.terms.take(index).compact()
        return Pairs(self.table.take(kept), terms)

    def take_columns(self, index: Index) -> Pairs:
        """The design itself; a metric cannot lose single entries.

        Raises
        ------
        InvalidInput
            For any proper subset.
        """
        mask = np.zeros(self.shape[1], dtype=bool)
        mask[index] = True
        if mask.all():
            return self
        if not self.diagonal:
            raise InvalidInput("single entries of a full metric cannot be dropped.")
        table = PairTable(
            np.ascontiguousarray(self.table.points[:, mask]), self.table.left, self.table.right,
            True,
        )
        return Pairs(table, self.terms)
