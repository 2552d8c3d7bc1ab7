"""Columns that one equality defines are substituted everywhere.

``r == X @ w - y``, or the helper that CVXPY makes for ``sum_squares(X @ w)``. Rows are not touched:
that a column stands for others is remembered (`Census.indirect`) and resolved in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.draft import Array, Draft, Elimination, Mask
from cvxscreen.reducer.entries import cleared, rows_of, without

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
