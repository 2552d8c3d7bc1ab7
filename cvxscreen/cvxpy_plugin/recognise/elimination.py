"""The working state of a recognition: what is eliminated so far, and how to undo each step.

Rules (`substitution`, `epigraph`, `splitting`, `absorb`) remove helper columns one kind at a time.
Each leaves a `Step`, which later computes the values of its columns from the row values, and the
multipliers of its rows from the slopes of the loss terms. Rows are never rewritten: a new row is a
combination of old ones, kept as its weights, and the way back for multipliers is the transpose of
those weights.

Columns that one equality defines are substituted everywhere.

``r == X @ w - y``, or the helper that CVXPY makes for ``sum_squares(X @ w)``. Rows are not touched:
that a column stands for others is remembered (`Census.indirect`) and resolved in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.affine import cleared, rows_of, without
from cvxscreen.cvxpy_plugin.recognise.standard import Stack, Standard
from cvxscreen.errors import NotScreenable

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


FEW = 4
"""A column in more inequalities than this is data, not a helper."""


@dataclass(frozen=True, eq=False)
class Census:
    """How often each column occurs where, each array of shape (N,).

    Attributes
    ----------
    zero, cone, positive, negative : array of int
        Occurrences in equality rows, in second-order and PSD rows, and in open inequality rows with
        a positive and with a negative coefficient.
    square : array
        Diagonal of the quadratic term.
    crossed, dense, indirect, own : mask
        Columns with mixed squares, columns of dense blocks, columns that occur in the place of an
        eliminated one, columns of the user's variables.
    """

    zero: NDArray[np.int64]
    cone: NDArray[np.int64]
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    square: Array
    crossed: Mask
    dense: Mask
    indirect: Mask
    own: Mask

    @property
    def data(self) -> Mask:
        """Columns that are data, whatever else they look like, shape (N,)."""
        return self.dense | self.indirect


def census(draft: Draft) -> Census:
    """Count the columns of `draft` as it stands; the last count holds while nothing changes."""
    parts = (draft.heads, draft.open, draft.quadratic)  # replaced, never written into
    state = (*parts, len(draft.eliminations), draft.used.tobytes())
    if draft.counted is not None:
        last, tally = draft.counted
        if all(a is b for a, b in zip(last[:3], parts, strict=True)) and last[3:] == state[3:]:
            return tally
    draft.counted = state, _count(draft)
    return draft.counted[1]


def _count(draft: Draft) -> Census:
    standard, size = draft.standard, draft.standard.size
    kinds, sparse = standard.kinds(), standard.rows.sparse

    def count(columns: Any) -> NDArray[np.int64]:
        return np.bincount(columns, minlength=size).astype(np.int64)

    live = ~draft.used
    curved = live & ((kinds == "soc") | (kinds == "psd"))
    cone = np.zeros(size, dtype=np.int64)
    if curved.any():
        cone = count(sp.csr_array(draft.heads[curved] @ sparse).indices)
    inside = sp.csr_array(draft.open @ sparse)
    square = draft.quadratic.diagonal()
    mixed = (rows_of(draft.quadratic) != draft.quadratic.indices) & (draft.quadratic.data != 0)
    zero = count(sparse.indices[(live & (kinds == "zero"))[rows_of(sparse)]])
    occurs = (zero + cone + count(inside.indices) > 0).astype(np.float64)
    indirect = np.zeros(size)
    for found in draft.eliminations:
        # A later elimination may define a column of an earlier one, never the other way round.
        seen = (occurs + indirect)[found.columns] > 0
        indirect += abs(found.needs).T @ seen.astype(np.float64)
    return Census(
        zero=zero,
        cone=cone,
        positive=count(inside.indices[inside.data > 0]),
        negative=count(inside.indices[inside.data < 0]),
        square=square,
        crossed=count(draft.quadratic.indices[mixed]) > 0,
        dense=standard.rows.dense_columns(),
        indirect=indirect > 0,
        own=standard.own(),
    )


def eliminate(draft: Draft, reserved: Mask) -> None:
    """Substitute every column that an equality row defines; rows in `reserved` are left alone."""
    while True:
        found = _definitions(draft, reserved)
        if found is None:
            return
        draft.eliminations.append(found)
        draft.steps.append(found)
        draft.used[found.source] = True
        draft.gone[found.columns] = True
        _substitute(draft, found)


def _definitions(draft: Draft, reserved: Mask) -> Elimination | None:
    """Equality rows with exactly one best column to eliminate.

    CVXPY's helpers come before the user's variables. Among helpers, those that others are bounded
    by come first (the residual of a Huber loss), then those that occur nowhere else (the argument
    of a square); among the user's, those without a square (residuals rather than features).
    """
    standard, tally = draft.standard, census(draft)
    rows = np.flatnonzero((standard.kinds() == "zero") & ~draft.used & ~reserved)
    if not len(rows):
        return None
    block = sp.coo_array(standard.rows.sparse[rows])
    private = (tally.zero == 1) & ~tally.dense & ~draft.gone
    private &= tally.positive + tally.negative <= FEW
    bare = (tally.positive + tally.negative + tally.cone) == 0
    plain = (tally.square == 0) & ~tally.crossed
    link = plain & (draft.linear == 0) & (tally.negative > 0)
    score = np.where(tally.own, 1 + 4 * plain + 2 * bare, 10 + 8 * link + 4 * bare + 2 * plain)
    score = np.where(private, score, 0)
    best = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(best, block.row, score[block.col])
    hit = (score[block.col] == best[block.row]) & (best[block.row] > 0)
    ties = np.bincount(block.row[hit], minlength=len(rows))
    chosen = hit & (ties[block.row] == 1)
    if not chosen.any():
        return None
    columns, source = block.col[chosen].astype(np.intp), rows[block.row[chosen]]
    needs = without(standard.rows.sparse[source], columns)
    return Elimination(columns, source, block.data[chosen], needs)


def _substitute(draft: Draft, found: Elimination) -> None:
    """Move the objective of the eliminated columns onto the columns that define them."""
    standard, columns = draft.standard, found.columns
    m = standard.rows.shape[0]
    curved = np.diff(draft.quadratic[columns].indptr) > 0
    slope = draft.linear[columns].copy()
    if not curved.any() and not slope.any():
        return
    pick = sp.csr_array(
        (-1.0 / found.factor, (np.arange(len(columns)), found.source)), shape=(len(columns), m)
    )
    given = standard.rows.combine(pick)
    given = type(given)(without(given.sparse, columns), given.blocks, given.offset)
    heavy = np.zeros(len(columns), dtype=bool)
    for block in given.blocks:
        heavy[block.rows] = True
    inside = draft.quadratic[columns][:, columns]
    outside = without(draft.quadratic[columns], columns)
    if outside.nnz or inside[heavy][:, ~heavy].nnz:
        raise NotScreenable(
            f"the objective mixes {standard.label(int(columns[0]))} with other columns in a square"
        )
    draft.quadratic = cleared(draft.quadratic, columns)
    draft.linear[columns] = 0.0
    draft.linear = draft.linear + given.adjoint(slope)
    draft.constant += float(slope @ given.offset)
    for part in (np.flatnonzero(curved & heavy), np.flatnonzero(curved & ~heavy)):
        if len(part):
            select = sp.csr_array(sp.eye_array(len(columns), format="csr"))[part]
            draft.add_square(given.combine(select), sp.csr_array(inside[part][:, part]))
