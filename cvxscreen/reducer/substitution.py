"""Helper columns that an equation gives: equalities, and heads of second-order cones.

- `bound_heads`: ``norm(v) <= T <= bound`` becomes ``norm(v) <= bound``.
- `square_heads`: ``rho/2 T^2`` with ``norm(v) <= T`` becomes ``rho/2 |v|^2`` (``norm(w, 2)**2``).
- `eliminate`: a column that one equality row defines (``r == X @ w - y``, or the helper of
  ``sum_squares(X @ w)``) is substituted everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.draft import Array, Draft, Duals, Elimination, Index, Mask, without
from cvxscreen.reducer.standard import Standard

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
    crossed, dense, own : mask
        Columns with mixed squares, columns of dense blocks, columns of the user's variables.
    """

    zero: NDArray[np.int64]
    cone: NDArray[np.int64]
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    square: Array
    crossed: Mask
    dense: Mask
    own: Mask


def census(draft: Draft) -> Census:
    """Count the columns of `draft` as it stands."""
    standard, size = draft.standard, draft.standard.size
    kinds, sparse = standard.kinds(), standard.rows.sparse

    def count(rows: Any) -> NDArray[np.int64]:
        return np.bincount(rows.indices, minlength=size).astype(np.int64)

    live = ~draft.used
    cones = draft.heads[live & ((kinds == "soc") | (kinds == "psd"))] @ sparse
    inside = sp.csr_array(draft.open @ sparse)
    signs = np.sign(inside.data)
    square = draft.quadratic.diagonal()
    mixed = draft.quadratic - sp.diags_array(square)
    mixed = sp.csr_array(mixed)
    mixed.eliminate_zeros()
    return Census(
        zero=count(sparse[live & (kinds == "zero")]),
        cone=count(sp.csr_array(cones)),
        positive=np.bincount(inside.indices[signs > 0], minlength=size).astype(np.int64),
        negative=np.bincount(inside.indices[signs < 0], minlength=size).astype(np.int64),
        square=square,
        crossed=count(mixed) > 0,
        dense=standard.rows.dense_columns(),
        own=standard.own(),
    )


@dataclass(frozen=True, eq=False)
class SquaredHead:
    """``T = |tail| / scale`` with ``rho/2 T^2`` in the objective; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (1,)
    needs : CSR array, shape (1, N)
    head : CSR array, shape (1, m)
        The cone's head as a combination of rows.
    tail : slice
        Rows of the tail.
    scale, rho : float
    """

    columns: Index
    needs: Any
    head: Any
    tail: slice
    scale: float
    rho: float

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.array([np.linalg.norm(values[self.tail]) / self.scale])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the cone's multiplier is ``rho / scale^2`` times (norm, -tail)."""
        tail = standard.rows.values(duals.z)[self.tail]
        weight = self.rho / self.scale**2
        duals.rows += self.head.T @ np.array([weight * float(np.linalg.norm(tail))])
        duals.rows[self.tail] = -weight * tail


def _lonely_heads(draft: Draft, tally: Census) -> list[tuple[Any, int, float]]:
    """Second-order cones whose head is one column that occurs in no other cone or equality."""
    cones = [c for c in draft.standard.cones if c.kind == "soc" and not draft.used[c.rows.start]]
    if not cones:
        return []
    weights = draft.heads[[cone.rows.start for cone in cones]]
    heads = without(weights @ draft.standard.rows.sparse, np.flatnonzero(draft.gone))
    offsets = np.asarray(weights @ draft.standard.rows.offset)
    found = []
    for k, cone in enumerate(cones):
        start, stop = heads.indptr[k], heads.indptr[k + 1]
        if stop - start != 1 or offsets[k] != 0.0:
            continue
        column, scale = int(heads.indices[start]), float(heads.data[start])
        alone = tally.cone[column] == 1 and tally.zero[column] == 0 and not tally.dense[column]
        if alone and scale > 0 and not tally.crossed[column]:
            found.append((cone, column, scale))
    return found


def bound_heads(draft: Draft) -> None:
    """Put the only upper bound of a norm's epigraph column in the column's place."""
    tally = census(draft)
    sparse = draft.standard.rows.sparse
    inside = sp.csc_array(draft.open @ sparse)
    dropped, lifts = [], []
    for cone, column, scale in _lonely_heads(draft, tally):
        free = tally.square[column] == 0.0 and draft.linear[column] == 0.0
        if not free or tally.positive[column] or tally.negative[column] != 1:
            continue
        place = int(inside.indices[inside.indptr[column]])
        weights = draft.open[[place]]
        if len(weights.indices) != 1:
            continue
        row = int(weights.indices[0])
        factor = float(inside.data[inside.indptr[column]] / weights.data[0])
        lifts.append((scale / -factor, cone.rows.start, row))
        dropped.append(place)
        draft.gone[column] = True
        where = np.array([column])
        needs = without(sparse[[row]], where)
        draft.steps.append(Bound(where, needs, np.array([row]), np.array([factor])))
    if lifts:
        value, at, source = (np.array(part) for part in zip(*lifts, strict=True))
        shape = draft.heads.shape
        draft.heads = sp.csr_array(draft.heads + sp.csr_array((value, (at, source)), shape=shape))
        draft.open = draft.open[np.delete(np.arange(draft.open.shape[0]), dropped)]


@dataclass(frozen=True, eq=False)
class Bound:
    """A column that sits at its only upper bound; see `Step`."""

    columns: Index
    needs: Any
    source: Index
    factor: Array

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return -values[self.source] / self.factor

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: nothing to add, the row is part of the cone's head."""


def square_heads(draft: Draft) -> None:
    """Put the square of a norm's epigraph column in closed form."""
    tally = census(draft)
    sparse = draft.standard.rows.sparse
    for cone, column, scale in _lonely_heads(draft, tally):
        rho = float(tally.square[column])
        bounded = tally.positive[column] or tally.negative[column]
        if rho <= 0.0 or draft.linear[column] != 0.0 or bounded:
            continue
        tail = slice(cone.rows.start + 1, cone.rows.stop)
        count = cone.rows.stop - tail.start
        weight = sp.csr_array(sp.eye_array(count, format="csr") * (rho / scale**2))
        draft.quadratic = _clear(draft.quadratic, np.array([column]))
        draft.add_square(draft.standard.rows.combine(draft.heads[tail]), weight)
        draft.used[cone.rows] = True
        draft.gone[column] = True
        needs = sp.csr_array(np.ones((1, count))) @ abs(sparse[tail])
        head = draft.heads[[cone.rows.start]]
        where = np.array([column])
        draft.steps.append(SquaredHead(where, sp.csr_array(needs), head, tail, scale, rho))


def _clear(quadratic: Any, columns: Index) -> Any:
    """The quadratic term without some columns and rows."""
    keep = np.ones(quadratic.shape[0])
    keep[columns] = 0.0
    mask = sp.diags_array(keep)
    out = sp.csr_array(mask @ quadratic @ mask)
    out.eliminate_zeros()
    return out


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

    CVXPY's helpers come before the user's variables; among helpers those that occur nowhere else,
    among the user's those without a square (residuals rather than features).
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
    score = np.where(tally.own, 1 + 4 * plain + 2 * bare, 10 + 4 * bare + 2 * plain)
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
    draft.quadratic = _clear(draft.quadratic, columns)
    draft.linear[columns] = 0.0
    draft.linear = draft.linear + given.adjoint(slope)
    draft.constant += float(slope @ given.offset)
    for part in (np.flatnonzero(curved & heavy), np.flatnonzero(curved & ~heavy)):
        if len(part):
            select = sp.csr_array(sp.eye_array(len(columns), format="csr"))[part]
            draft.add_square(given.combine(select), sp.csr_array(inside[part][:, part]))
