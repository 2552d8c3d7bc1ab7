"""Second-order cones in closed form, and squares of residuals that stay losses.

- `substitute_bounds`: ``norm(v) <= T <= bound`` becomes ``norm(v) <= bound``.
- `square_norms`: ``rho/2 T^2`` with ``norm(v) <= T`` becomes ``rho/2 |v|^2`` (``norm(w, 2)**2``).
- `keep_squared_residuals`: beside an L1 norm and nothing else, squares of residuals are losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import (
    ColumnCounts,
    DefinedColumns,
    Draft,
    Duals,
    count_columns,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import cleared, without
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def substitute_bounds(draft: Draft) -> None:
    """Put the only upper bound of a cone's epigraph column in the column's place.

    Growing the column must never leave the cone: its coefficients form a point of the cone, as for
    the head of a norm, or for ``t`` in the cone of ``sum_squares(w) <= t``.
    """
    tally = count_columns(draft)
    sparse = draft.standard.rows.sparse
    free = (tally.cone > 0) & (tally.zero == 0) & ~tally.dense & ~tally.crossed & ~draft.eliminated
    free &= (tally.square == 0) & (draft.linear == 0)
    free &= (tally.positive == 0) & (tally.negative == 1) & (tally.arguments == 0)
    columns = np.flatnonzero(free)
    if not len(columns):
        return
    cone_of = np.full(sparse.shape[0], -1)
    for k, cone in enumerate(draft.standard.cones):
        cone_of[cone.rows] = k if cone.kind == "soc" else -1
    inside = sp.csc_array(draft.inequalities @ sparse)[:, columns]
    entries = sp.csc_array(sparse[:, columns])
    dropped, lifts = [], []
    for k, column in enumerate(columns):
        place = int(inside.indices[inside.indptr[k]])
        weights = draft.inequalities[[place]]
        span = slice(entries.indptr[k], entries.indptr[k + 1])
        rows, data = entries.indices[span], entries.data[span]
        if len(weights.indices) != 1 or place in dropped:
            continue
        bound = int(weights.indices[0])
        limited_options = rows != bound
        held = np.unique(cone_of[rows[limited_options]])
        if len(held) != 1 or held[0] < 0:
            continue
        head = rows[limited_options] == draft.standard.cones[held[0]].rows.start
        if data[limited_options][head].sum() < np.linalg.norm(data[limited_options][~head]):
            continue
        factor = float(data[~limited_options][0])
        lifts += [
            (float(value) / -factor, int(row), bound)
            for row, value in zip(rows[limited_options], data[limited_options], strict=True)
        ]
        dropped.append(place)
        draft.eliminated[column] = True
        where = np.array([column])
        needs = without(sparse[[bound]], where)
        draft.steps.append(ColumnAtBound(where, needs, np.array([bound]), np.array([factor])))
    if lifts:
        value, at, source = (np.array(part) for part in zip(*lifts, strict=True))
        shape = draft.current_rows.shape
        draft.current_rows = sp.csr_array(
            draft.current_rows + sp.csr_array((value, (at, source)), shape=shape)
        )
        draft.inequalities = draft.inequalities[
            np.delete(np.arange(draft.inequalities.shape[0]), dropped)
        ]


@dataclass(frozen=True, eq=False)
class ColumnAtBound:
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


def square_norms(draft: Draft) -> None:
    """Put the square of a norm's epigraph column in closed form."""
    tally = count_columns(draft)
    sparse = draft.standard.rows.sparse
    for cone, column, scale in private_heads(draft, tally):
        rho = float(tally.square[column])
        bounded = tally.positive[column] or tally.negative[column] or tally.arguments[column]
        if rho <= 0.0 or draft.linear[column] != 0.0 or bounded:
            continue
        tail = slice(cone.rows.start + 1, cone.rows.stop)
        count = cone.rows.stop - tail.start
        weight = sp.csr_array(sp.eye_array(count, format="csr") * (rho / scale**2))
        draft.quadratic = cleared(draft.quadratic, np.array([column]))
        draft.add_square(draft.standard.rows.combine(draft.current_rows[tail]), weight)
        draft.used_rows[cone.rows] = True
        draft.eliminated[column] = True
        needs = sp.csr_array(np.ones((1, count))) @ abs(sparse[tail])
        head = draft.current_rows[[cone.rows.start]]
        where = np.array([column])
        draft.steps.append(SquaredNorm(where, sp.csr_array(needs), head, tail, scale, rho))


def private_heads(draft: Draft, tally: ColumnCounts) -> list[tuple[Any, int, float]]:
    """Second-order cones whose head is one column that occurs in no other cone or equality."""
    cones = [
        c for c in draft.standard.cones if c.kind == "soc" and not draft.used_rows[c.rows.start]
    ]
    if not cones:
        return []
    weights = draft.current_rows[[cone.rows.start for cone in cones]]
    heads = without(weights @ draft.standard.rows.sparse, np.flatnonzero(draft.eliminated))
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


@dataclass(frozen=True, eq=False)
class SquaredNorm:
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
    terms : array of int or None
        Positions of the loss terms that the tail is, where it is no part of the regulariser.
    """

    columns: Index
    needs: Any
    head: Any
    tail: slice
    scale: float
    rho: float
    terms: Index | None = None

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.array([np.linalg.norm(values[self.tail]) / self.scale])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the cone's multiplier is ``rho / scale^2`` times (norm, -tail)."""
        if self.terms is None:
            slope = self.rho / self.scale**2 * standard.rows.values(duals.z)[self.tail]
        else:
            slope = duals.theta[self.terms]
        duals.rows += self.head.T @ np.array([float(np.linalg.norm(slope))])
        duals.rows[self.tail] = -slope


# -- the lasso and the elastic net -----------------------------------------------------------------
#
# Squares of residuals as losses: the lasso and the elastic net.
#
# ``rho/2 |X w - y|^2`` is part of the regulariser for every other problem: multiplied out, it makes
# the objective strongly convex. Beside an L1 norm and nothing else it is the loss. Its terms are
# then squared losses in the rows of X, so that the data are never multiplied with themselves and
# features are screened (`find_l1_norm`). Two spellings: a column that an equality defines and the
# objective squares (``sum_squares``), and the square of a norm's epigraph column (``norm(X @ w - y,
# 2)**2``).


def keep_squared_residuals(draft: Draft) -> None:
    """Turn squares of residuals into loss terms where nothing but an L1 norm stands beside them."""
    tally = count_columns(draft)
    columns, source, factor = _defined(draft, tally)
    norms = [
        (cone, column, scale)
        for cone, column, scale in private_heads(draft, tally)
        if tally.square[column] > 0.0 and draft.linear[column] == 0.0
        and not tally.positive[column] + tally.negative[column]
    ]
    if not (len(columns) or norms):
        return
    mine = np.zeros(draft.standard.rows.shape[0], dtype=bool)
    mine[source] = True
    for cone, _, _ in norms:
        mine[cone.rows] = True
    if not _beside_l1_norm(draft, tally, mine):
        return
    if len(columns):
        _squares(draft, columns, source, factor)
    for cone, column, scale in norms:
        _square_of_norm(draft, cone, column, scale, float(tally.square[column]))


def _defined(draft: Draft, tally: ColumnCounts) -> tuple[Index, Index, Array]:
    """Squared columns that one row of data defines and that occur nowhere else."""
    standard = draft.standard
    rows = np.flatnonzero((standard.kinds() == "zero") & ~draft.used_rows)
    private = (tally.zero == 1) & (tally.positive + tally.negative + tally.cone == 0)
    private &= ~tally.data & ~tally.crossed & (tally.square > 0) & ~draft.eliminated
    if not (len(rows) and private.any()):
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    block = sp.coo_array(standard.rows.sparse[rows])
    hit = private[block.col]
    alone = np.bincount(block.row[hit], minlength=len(rows)) == 1
    data = standard.rows.counts()[rows] > 2
    hit &= (alone & data)[block.row]
    # With a column of its own in every row (``X w - y = h + s``) this is a Huber loss.
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[block.row[hit]] = True
    rest = chosen[block.row] & ~hit & ~tally.dense[block.col]
    single = np.bincount(block.col[rest], minlength=standard.size) == 1
    if chosen.any() and np.isin(np.flatnonzero(chosen), block.row[rest & single[block.col]]).all():
        hit[:] = False
    return block.col[hit].astype(np.intp), rows[block.row[hit]], block.data[hit]


def _beside_l1_norm(draft: Draft, tally: ColumnCounts, mine: Mask) -> bool:
    """Whether all rows but `mine` bound costly columns by one column each.

    A column of `mine` that has neither such a bound nor a square is no coordinate of a lasso.
    """
    standard = draft.standard
    if standard.canonical.groups:
        return False
    others = ~mine & ~draft.used_rows & (standard.kinds() != "nonneg")
    if (others & (standard.rows.counts() > 2)).any():
        return False
    inside = sp.csr_array(draft.inequalities @ standard.rows.sparse)
    dense = np.asarray(abs(draft.inequalities) @ standard.rows.dense_rows()) > 0
    if not inside.shape[0] or dense.any() or (np.diff(inside.indptr) != 2).any():
        return False
    costly = (draft.linear > 0) & (tally.square == 0) & (tally.negative == 0)
    bounds = np.add.reduceat(costly[inside.indices].astype(np.int64), inside.indptr[:-1])
    held = (tally.square > 0) | (tally.positive + tally.negative > 0) | draft.eliminated
    pick = sp.csr_array(sp.eye_array(len(mine), format="csr"))[np.flatnonzero(mine)]
    used = standard.rows.combine(pick)
    touched = used.dense_columns()
    touched[used.sparse.indices] = True
    return bool((bounds == 1).all() and held[touched].all())


def _squares(draft: Draft, columns: Index, source: Index, factor: Array) -> None:
    """``rho/2 h^2 + c h`` with ``h = -rest / factor``: squared losses of the row without h."""
    k, m = len(columns), draft.standard.rows.shape[0]
    rho, slope = draft.quadratic.diagonal()[columns], draft.linear[columns].copy()
    select = sp.csr_array((-1.0 / factor, (np.arange(k), source)), shape=(k, m))
    terms = draft.terms.add(select, b=0.0, q=1.0 / rho, lo=-np.inf, hi=np.inf)
    draft.loss_slope += select.T @ slope
    needs = without(draft.standard.rows.sparse[source], columns)
    draft.steps.append(SquaredResiduals(columns, source, factor, needs, slope, terms))
    draft.quadratic = cleared(draft.quadratic, columns)
    draft.linear[columns] = 0.0
    draft.eliminated[columns] = True
    draft.used_rows[source] = True


def _square_of_norm(draft: Draft, cone: Any, column: int, scale: float, rho: float) -> None:
    """``rho/2 T^2`` with ``scale T >= |tail|``: squared losses of the rows of the tail."""
    tail = slice(cone.rows.start + 1, cone.rows.stop)
    weights = draft.current_rows[tail]
    terms = draft.terms.add(weights, b=0.0, q=scale**2 / rho, lo=-np.inf, hi=np.inf)
    where = np.array([column])
    sparse = draft.standard.rows.sparse
    needs = sp.csr_array(np.ones((1, len(terms)))) @ abs(sparse[tail])
    head = draft.current_rows[[cone.rows.start]]
    draft.steps.append(SquaredNorm(where, sp.csr_array(needs), head, tail, scale, rho, terms))
    draft.quadratic = cleared(draft.quadratic, where)
    draft.used_rows[cone.rows] = True
    draft.eliminated[column] = True


@dataclass(frozen=True, eq=False)
class SquaredResiduals(DefinedColumns):
    """Defined columns ``h`` that the objective squares, ``rho/2 h^2 + c h``; see `Step`.

    Attributes
    ----------
    slope : array, shape (k,)
        ``c``.
    terms : array of int, shape (k,)
        Positions of the loss terms.
    """

    slope: Array
    terms: Index

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the row carries the slope of the loss."""
        duals.rows[self.source] = (duals.theta[self.terms] + self.slope) / self.factor
