"""Columns that one equality defines are substituted everywhere.

``r == X @ w - y``, or the helper that CVXPY makes for ``sum_squares(X @ w)``. Rows are not touched:
that a column stands for others is remembered (`ColumnCounts.indirect`) and resolved in the end.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import FEW_ROWS, Draft, Elimination, count_columns
from cvxscreen.cvxpy_plugin.recognise.matrices import cleared, without
from cvxscreen.errors import NotScreenable

Mask = NDArray[np.bool_]


def eliminate(draft: Draft, reserved: Mask) -> None:
    """Substitute every column that an equality row defines; rows in `reserved` are left alone."""
    while True:
        found = _definitions(draft, reserved)
        if found is None:
            return
        draft.eliminations.append(found)
        draft.steps.append(found)
        draft.used_rows[found.source] = True
        draft.eliminated[found.columns] = True
        _substitute(draft, found)


def _definitions(draft: Draft, reserved: Mask) -> Elimination | None:
    """Equality rows with exactly one best column to eliminate.

    CVXPY's helpers come before the user's variables. Among helpers, those that others are bounded
    by come first (the residual of a Huber loss), then those that occur nowhere else (the argument
    of a square); among the user's, those without a square (residuals rather than features).
    """
    standard, tally = draft.standard, count_columns(draft)
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows & ~reserved)
    if not len(rows):
        return None
    block = sp.coo_array(standard.rows.sparse[rows])
    private = (tally.zero == 1) & ~tally.dense & ~draft.eliminated
    rows_of_others = tally.positive + tally.negative + tally.arguments
    private &= rows_of_others <= FEW_ROWS
    bare = (rows_of_others + tally.cone) == 0
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
