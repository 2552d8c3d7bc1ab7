"""The working state of a recognition: what is eliminated so far, and how to undo each step.

Every rule removes one kind of helper columns and leaves a `Step`, which later computes the values
of its columns from the row values, and the multipliers of its rows from the slopes of the loss
terms. Rows are never rewritten: a new row is a combination of old ones, kept as its weights, and
the way back for multipliers is the transpose of those weights. Here is what all steps have, and
what a problem takes that no rule has anything to do with; the others stand beside their rules
(`elimination`, `epigraph`, `max_affine`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, diagonal, picked, rows_of, without
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Step:
    """One elimination, undone; the base of all steps.

    Attributes
    ----------
    columns : array of int, shape (k,)
        The columns it eliminated.
    needs : CSR array, shape (k, N)
        Non-zero where a column must be known before.
    stage : int
        Multipliers of equalities come after those of the terms, those of dead zones last.
    substituted : bool
        Whether the columns are substituted everywhere by what `needs` holds.
    """

    columns: Index
    needs: Any
    stage: ClassVar[int] = 0
    substituted: ClassVar[bool] = False

    def primal(self, values: Array) -> Array:
        """Values of `columns` from the rows' values (own columns at 0), shape (k,)."""
        return np.zeros(len(self.columns))

    def dual(self, standard: Standard, duals: Duals) -> None:
        """Fill in the multipliers of the rows that the step used."""

    def within(self, core: Index, x: Array) -> Array:
        """The values `x` of the columns `core`, moved to where the step holds."""
        return x

    def still_held(self) -> Index:
        """Inequalities of the user's that are losses now, and may be violated on the way."""
        return np.zeros(0, dtype=np.intp)

    def paid(self) -> list[tuple[Index, Index]]:
        """Which columns pay for which of the terms found, -1 for none: pairs of both."""
        return []

    def times(self, ratio: Array) -> Step:
        """The same with the cost of each column multiplied by its entry of `ratio`, shape (N,)."""
        return self


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


class GroupTerms(Step, Immutable):
    """The terms of one group of losses that was read off the objective; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (0,)
    needs : CSR array, shape (0, N)
    group : int
        Its position.
    paying : array of int, shape (k,)
        Which entries of the group have a weight.
    rows : array of int, shape (k,)
        Their rows.
    terms : array of int, shape (k,)
        Their positions among the terms found.
    """

    columns: Index
    needs: Any
    group: int
    paying: Index
    rows: Index
    terms: Index

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: no constraint; what the terms pull at the columns of their rows."""
        duals.rows[self.rows] = -duals.theta[self.terms]


class Pairing(NamedTuple):
    """Which of the terms found are which of the problem's terms.

    Attributes
    ----------
    first : array of int, shape (n,)
        The found term whose row the problem's term has.
    second : array of int, shape (n,)
        The found term on the other side, with the opposite row; -1 for a term of its own.
    found : int
        Number of terms found.
    """

    first: Index
    second: Index
    found: int

    def split(self, theta: Array) -> Array:
        """Slopes of the problem's terms as slopes of the terms found, shape (found,)."""
        paired = self.second >= 0
        if not paired.any():
            return theta
        out = np.zeros(self.found)
        out[self.first] = np.where(paired, np.minimum(theta, 0.0), theta)
        out[self.second[paired]] = -np.maximum(theta[paired], 0.0)
        return out


Mask = NDArray[np.bool_]

GRAM_LIMIT = 3000
"""A square of a linear map is multiplied out for at most this many columns."""

FEW_ROWS = 4
"""A column in more inequalities than this is data, not a helper."""


def stationarity(standard: Standard, duals: Duals, columns: Index) -> Array:
    """``(P z + q - A' multipliers)`` on `columns`, none of them in a dense block."""
    own = standard.rows.sparse[:, columns].T @ duals.rows
    return np.asarray(standard.quadratic[columns] @ duals.z + standard.linear[columns] - own)


@dataclass(eq=False)
class DraftTerms:
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
        table = np.zeros((count, 5), order="F")  # written, and read, by columns
        for position, column in enumerate((b, e, q, lo, hi)):
            table[:, position] = column
        self.weights.append(weights)
        self.numbers.append(table)
        return np.arange(first, first + count)

    def merged(self, rows: int) -> tuple[Any, Array]:
        """All arguments, shape (n, m), and all numbers, shape (n, 5)."""
        if not self.numbers:
            return sp.csr_array((0, rows)), np.zeros((0, 5))
        if len(self.weights) == 1:
            return self.weights[0], self.numbers[0]
        whole = sp.csr_array(sp.vstack(self.weights, format="csr"))
        return whole, np.concatenate(self.numbers)


class DefinedColumns(Step, Immutable):
    """Columns that equality rows define: ``rows_k(z) = 0`` gives column k. Base of steps.

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


class Elimination(DefinedColumns):
    """Defined columns that are substituted everywhere."""

    stage: ClassVar[int] = 1
    substituted: ClassVar[bool] = True

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the multiplier that makes the Lagrangian stationary in the column."""
        duals.rows[self.source] = 0.0
        gradient = stationarity(standard, duals, self.columns)
        duals.rows[self.source] = gradient / self.factor


class UnusedColumns(Step, Immutable):
    """Columns that nothing depends on; they are put at 0. See `Step`.

    Attributes
    ----------
    columns : array of int, shape (k,)
    needs : CSR array, shape (k, N)
    """

    columns: Index
    needs: Any


@dataclass(eq=False)
class Draft:
    """See the module's docstring.

    Attributes
    ----------
    standard : Standard
    quadratic, linear, constant
        The objective on the columns that remain, but for the loss terms.
    eliminated : mask, shape (N,)
        Eliminated columns.
    used_rows : mask, shape (m,)
        Rows that are no side constraints any more.
    current_rows : CSR array, shape (m, m)
        Rows as they stand: the identity but for heads of second-order cones.
    inequalities : CSR array, shape (k, m)
        Inequality rows that still constrain, as combinations.
    loss_slope : array, shape (m,)
        Linear part of the objective that is written in rows: ``loss_slope @ rows(z)``.
    eliminations : list of Elimination
        In the order in which they were found.
    steps : list of Step
    terms : DraftTerms
    notes : list of str
        Why something was not recognised.
    composite : bool
        Whether convex parts that are no sum of loss terms may stand beside them.
    strongly_convex : bool or None
        Whether the objective has to square what the losses use; None until that is settled.
    maxima : list of Step
        Maxima among these parts.
    counted : tuple or None
        What was counted last, and the counts; see `count_columns`.
    """

    standard: Standard
    quadratic: Any
    linear: Array
    constant: float
    eliminated: Mask
    used_rows: Mask
    current_rows: Any
    inequalities: Any
    loss_slope: Array
    eliminations: list[Elimination] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    terms: DraftTerms = field(default_factory=DraftTerms)
    notes: list[str] = field(default_factory=list)
    composite: bool = False
    strongly_convex: bool | None = True
    maxima: list[Any] = field(default_factory=list)
    counted: tuple[tuple[Any, ...], Any] | None = None

    @classmethod
    def of(
        cls, standard: Standard, *, composite: bool = False, strongly_convex: bool | None = True
    ) -> Draft:
        """The draft of `standard` in which nothing is eliminated yet."""
        m, n = standard.rows.shape
        identity = diagonal(np.ones(m))
        bounds = np.flatnonzero(standard.inside("nonneg"))
        return cls(
            standard,
            standard.quadratic,
            standard.linear.copy(),
            standard.constant,
            np.zeros(n, dtype=bool),
            np.zeros(m, dtype=bool),
            identity,
            identity[bounds] if len(bounds) else sp.csr_array((0, m)),
            np.zeros(m),
            composite=composite,
            strongly_convex=strongly_convex,
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
        weighted_offset = np.asarray(weight @ rows.offset)
        self.linear = self.linear + rows.adjoint(weighted_offset)
        self.constant += 0.5 * float(rows.offset @ weighted_offset)


def _fill(matrix: Any) -> float:
    """Entries of ``matrix' matrix`` before equal ones are merged."""
    return float((np.diff(matrix.indptr).astype(np.float64) ** 2).sum()) / 8.0


def substitute_defined(draft: Draft, weights: Any) -> Any:
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


class ColumnCounts(Immutable):
    """How often each column occurs where, each array of shape (N,).

    Attributes
    ----------
    zero, cone, positive, negative : array of int
        Occurrences in equality rows, in second-order and PSD rows, and in open inequality rows with
        a positive and with a negative coefficient.
    square : array
        Diagonal of the quadratic term.
    arguments : array of int
        Occurrences in arguments of losses that were read off the objective.
    crossed, dense, indirect, own : mask
        Columns with mixed squares, columns of dense blocks, columns that occur in the place of an
        eliminated one or in a loss term, columns of the user's variables.
    """

    zero: NDArray[np.int64]
    cone: NDArray[np.int64]
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    arguments: NDArray[np.int64]
    square: Array
    crossed: Mask
    dense: Mask
    indirect: Mask
    own: Mask

    @property
    def data(self) -> Mask:
        """Columns that are data, whatever else they look like, shape (N,)."""
        return self.dense | self.indirect


def count_columns(draft: Draft) -> ColumnCounts:
    """Count the columns of `draft` as it stands; the last count holds while nothing changes."""
    parts = (
        draft.current_rows,
        draft.inequalities,
        draft.quadratic,
    )  # replaced, never written into
    found = len(draft.terms.numbers)
    state = (*parts, len(draft.eliminations), found, draft.used_rows.tobytes())
    if draft.counted is not None:
        last, tally = draft.counted
        if all(a is b for a, b in zip(last[:3], parts, strict=True)) and last[3:] == state[3:]:
            return tally
    draft.counted = state, _count(draft)
    return draft.counted[1]


def _count(draft: Draft) -> ColumnCounts:
    standard, size = draft.standard, draft.standard.size
    sparse = standard.rows.sparse

    def count(columns: Any) -> NDArray[np.int64]:
        return np.bincount(columns, minlength=size).astype(np.int64)

    live = ~draft.used_rows
    curved = live & standard.inside("soc", "psd")
    cone = np.zeros(size, dtype=np.int64)
    if curved.any():
        cone = count(sp.csr_array(draft.current_rows[curved] @ sparse).indices)
    inside = sp.csr_array(draft.inequalities @ sparse)
    square = draft.quadratic.diagonal()
    mixed = (rows_of(draft.quadratic) != draft.quadratic.indices) & (draft.quadratic.data != 0)
    equal = live & standard.inside("zero")
    zero = np.zeros(size, dtype=np.int64)
    if equal.any():
        zero = count(sparse.indices[equal[rows_of(sparse)]])
    arguments = standard.argument_uses()
    occurs = (zero + cone + count(inside.indices) + arguments > 0).astype(np.float64)
    indirect = np.zeros(size)
    for weights in draft.terms.weights:
        indirect[picked(weights, sparse).indices] = 1.0
    for found in draft.eliminations:
        # A later elimination may define a column of an earlier one, never the other way round.
        seen = (occurs + indirect)[found.columns] > 0
        indirect += abs(found.needs).T @ seen.astype(np.float64)
    return ColumnCounts(
        zero=zero,
        cone=cone,
        positive=count(inside.indices[inside.data > 0]),
        negative=count(inside.indices[inside.data < 0]),
        arguments=arguments,
        square=square,
        crossed=count(draft.quadratic.indices[mixed]) > 0,
        dense=standard.rows.dense_columns(),
        indirect=indirect > 0,
        own=standard.own(),
    )
