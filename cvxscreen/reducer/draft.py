"""The working state of a recognition: what is eliminated so far, and how to undo each step.

Rules (`substitution`, `epigraph`, `splitting`, `absorb`) remove helper columns one kind at a time.
Each leaves a `Step`, which later computes the values of its columns from the row values, and the
multipliers of its rows from the slopes of the loss terms. Rows are never rewritten: a new row is a
combination of old ones, kept as its weights, and the way back for multipliers is the transpose of
those weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.entries import without
from cvxscreen.reducer.stack import Stack
from cvxscreen.reducer.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

GRAM_LIMIT = 3000
"""A square of a linear map is multiplied out for at most this many columns."""


@dataclass(eq=False)
class Duals:
    """A solution on its way back to the canonical problem.

    Attributes
    ----------
    z : array, shape (N,)
        All columns.
    theta : array, shape (n,)
        Slopes of the loss terms.
    rows : array, shape (m,)
        Multipliers found so far, 0 elsewhere.
    shares : array, shape (p,)
        Slopes of the pieces of maxima that are no loss terms.
    """

    z: Array
    theta: Array
    rows: Array
    shares: Array = field(default_factory=lambda: np.zeros(0))


class Step(Protocol):
    """One elimination, undone.

    Attributes
    ----------
    columns : array of int, shape (k,)
        The columns it eliminated.
    needs : CSR array, shape (k, N)
        Non-zero where a column must be known before.
    """

    @property
    def columns(self) -> Index:
        """The columns that were eliminated."""

    @property
    def needs(self) -> Any:
        """Which other columns each of them is computed from."""

    def primal(self, values: Array) -> Array:
        """Values of `columns` from the rows' values (own columns at 0), shape (k,)."""

    def dual(self, standard: Standard, duals: Duals) -> None:
        """Fill in the multipliers of the rows that the step used."""


@dataclass(frozen=True, eq=False)
class Elimination:
    """Columns defined by equality rows: ``rows_k(z) = 0`` gives column k.

    Attributes
    ----------
    columns, source : array of int, shape (k,)
        Columns and their rows.
    factor : array, shape (k,)
        Coefficient of the column in its row.
    needs : CSR array, shape (k, N)
    """

    columns: Index
    source: Index
    factor: Array
    needs: Any

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return -values[self.source] / self.factor

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the multiplier that makes the Lagrangian stationary in the column."""
        duals.rows[self.source] = 0.0
        pull = stationarity(standard, duals, self.columns)
        duals.rows[self.source] = pull / self.factor


def stationarity(standard: Standard, duals: Duals, columns: Index) -> Array:
    """``(P z + q - A' multipliers)`` on `columns`, none of them in a dense block."""
    own = standard.rows.sparse[:, columns].T @ duals.rows
    return np.asarray(standard.quadratic[columns] @ duals.z + standard.linear[columns] - own)


@dataclass(eq=False)
class Terms:
    """Loss terms as they are found: ``f_i(weights_i @ rows(z))`` by their five numbers.

    Attributes
    ----------
    weights : list of CSR array, shape (k, m)
        The arguments as combinations of rows.
    numbers : list of array, shape (k, 5)
        Columns b, e, q, lo, hi.
    """

    weights: list[Any] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)

    def add(
        self, weights: Any, *, b: Any, e: Any = 0.0, q: Any = 0.0, lo: Any = 0.0, hi: Any = 0.0
    ) -> Index:
        """Append terms; returns their positions."""
        first, count = sum(len(part) for part in self.numbers), weights.shape[0]
        table = np.zeros((count, 5))
        for position, column in enumerate((b, e, q, lo, hi)):
            table[:, position] = column
        self.weights.append(weights)
        self.numbers.append(table)
        return np.arange(first, first + count)

    def merged(self, rows: int) -> tuple[Any, Array]:
        """All arguments, shape (n, m), and all numbers, shape (n, 5)."""
        if not self.numbers:
            return sp.csr_array((0, rows)), np.zeros((0, 5))
        whole = sp.csr_array(sp.vstack(self.weights, format="csr"))
        return whole, np.concatenate(self.numbers)


@dataclass(eq=False)
class Draft:
    """See the module's docstring.

    Attributes
    ----------
    standard : Standard
    quadratic, linear, constant
        The objective on the columns that remain, but for the loss terms.
    gone : mask, shape (N,)
        Eliminated columns.
    used : mask, shape (m,)
        Rows that are no side constraints any more.
    heads : CSR array, shape (m, m)
        Rows as they stand: the identity but for heads of second-order cones.
    open : CSR array, shape (k, m)
        Inequality rows that still constrain, as combinations.
    tilt : array, shape (m,)
        Linear part of the objective that is written in rows: ``tilt @ rows(z)``.
    eliminations : list of Elimination
        In the order in which they were found.
    steps : list of Step
    terms : Terms
    notes : list of str
        Why something was not recognised.
    beside : bool
        Whether convex parts that are no sum of loss terms may stand beside them.
    largest : list of Step
        Maxima among these parts.
    counted : tuple or None
        What the last census counted, and the census; see `substitution.census`.
    """

    standard: Standard
    quadratic: Any
    linear: Array
    constant: float
    gone: Mask
    used: Mask
    heads: Any
    open: Any
    tilt: Array
    eliminations: list[Elimination] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    terms: Terms = field(default_factory=Terms)
    notes: list[str] = field(default_factory=list)
    beside: bool = False
    largest: list[Any] = field(default_factory=list)
    counted: tuple[tuple[Any, ...], Any] | None = None

    @classmethod
    def of(cls, standard: Standard, *, beside: bool = False) -> Draft:
        """Nothing eliminated yet."""
        m, n = standard.rows.shape
        identity = sp.csr_array(sp.eye_array(m, format="csr"))
        return cls(
            standard,
            standard.quadratic,
            standard.linear.copy(),
            standard.constant,
            np.zeros(n, dtype=bool),
            np.zeros(m, dtype=bool),
            identity,
            identity[np.flatnonzero(standard.kinds() == "nonneg")],
            np.zeros(m),
            beside=beside,
        )

    def add_square(self, rows: Stack, weight: Any) -> None:
        """Add ``1/2 <r, weight r>`` to the objective, ``r = rows(z)``.

        Parameters
        ----------
        rows : Stack, shape (k, N)
        weight : CSR array, shape (k, k)
        """
        touched = np.flatnonzero(np.bincount(rows.sparse.indices, minlength=rows.shape[1]))
        touched = np.union1d(touched, np.flatnonzero(rows.dense_columns()))
        matrix = rows.columns(touched)
        fill = len(touched) ** 2 if isinstance(matrix, np.ndarray) else _fill(matrix)
        if fill > GRAM_LIMIT**2:
            raise NotScreenable(
                f"the objective squares a linear map of {len(touched)} columns, too many to "
                "multiply out"
            )
        product = sp.csr_array(matrix.T @ (weight @ matrix)).tocoo()
        where = (touched[product.row], touched[product.col])
        square = sp.csr_array((product.data, where), shape=self.quadratic.shape)
        square = 0.5 * (square + square.T)
        self.quadratic = sp.csr_array(self.quadratic + square)
        pulled = np.asarray(weight @ rows.offset)
        self.linear = self.linear + rows.adjoint(pulled)
        self.constant += 0.5 * float(rows.offset @ pulled)


def _fill(matrix: Any) -> float:
    """Entries of ``matrix' matrix`` before equal ones are merged."""
    return float((np.diff(matrix.indptr).astype(np.float64) ** 2).sum()) / 8.0


def settle(draft: Draft, weights: Any) -> Any:
    """Combinations of rows, changed by multiples of equalities to hold no defined column."""
    sparse = draft.standard.rows.sparse
    for found in draft.eliminations:
        entries = sp.csr_array((weights @ sparse)[:, found.columns])
        entries.eliminate_zeros()
        if entries.nnz:
            k = len(found.columns)
            pick = sp.csr_array(
                (1.0 / found.factor, (np.arange(k), found.source)), shape=(k, sparse.shape[0])
            )
            weights = sp.csr_array(weights - entries @ pick)
    return weights


def without_columns(rows: Stack, gone: Mask) -> Stack:
    """The rows without the entries of eliminated columns."""
    return Stack(without(rows.sparse, np.flatnonzero(gone)), rows.blocks, rows.offset)
