"""Finding the epigraph columns: ``t`` costs something and is only ever bounded from below.

A column is an epigraph column if its objective is ``c t + rho/2 t^2`` with ``c, rho >= 0``, no
equality and no cone holds it, every inequality that it occurs in bounds it from below, and it is
the only such column in those rows. CVXPY's own helpers are taken first, then the user's columns
with a linear cost (slacks), then whole variables with a square (squared slacks). What the columns
of one shape become is the matter of `piecewise_linear` and `piecewise_quadratic`.

`chain_bounds` first removes columns in between (``pos(abs(e) - eps)`` bounds ``t`` by a helper that
is bounded by ``e`` and ``-e``): every lower bound is chained with the upper one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import (
    FEW_ROWS,
    ColumnCounts,
    Draft,
    Duals,
    count_columns,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import diagonal
from cvxscreen.cvxpy_plugin.recognise.piecewise_linear import EpigraphGroup, fold_linear
from cvxscreen.cvxpy_plugin.recognise.piecewise_quadratic import fold_quadratic
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

MOST_PIECES = 1000
"""A maximum of more pieces is not looked at, where maxima of any data are."""

SEED = 20130617
"""Of the random points that tell parallel rows apart."""


def take_groups(draft: Draft) -> None:
    """The losses that were read off the objective, as terms; those of weight 0 are none."""
    standard, m = draft.standard, draft.standard.rows.shape[0]
    nothing = np.zeros(0, dtype=np.intp), sp.csr_array((0, standard.size))
    for number, (group, rows) in enumerate(
        zip(standard.canonical.groups, standard.arguments, strict=True)
    ):
        paying = np.flatnonzero(group.weight > 0)
        k = len(paying)
        at = rows.start + paying
        pick = sp.csr_array((np.ones(k), at, np.arange(k + 1)), shape=(k, m))
        b, e, q, lo, hi = group.weighed(paying)
        terms = draft.terms.add(pick, b=b, e=e, q=q, lo=lo, hi=hi)
        draft.steps.append(GroupTerms(*nothing, number, paying, at, terms))
        draft.constant += group.constant


@dataclass(frozen=True, eq=False)
class GroupTerms:
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

    def primal(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Step.primal`: no columns."""
        return np.zeros(0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: no constraint; what the terms pull at the columns of their rows."""
        duals.rows[self.rows] = -duals.theta[self.terms]


def fold_epigraphs(draft: Draft) -> None:
    """Turn every epigraph column into a loss term, and its rows into the term's pieces."""
    tally = count_columns(draft)
    inside = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    columns = _owners(draft, tally, inside)
    if not len(columns):
        return
    folded = [
        fold_quadratic(draft, group) if group.curve[0] > 0 else fold_linear(draft, group)
        for group in _groups(draft, tally, inside, columns)
    ]
    done = np.concatenate([np.zeros(0, dtype=np.intp), *folded])
    held = np.zeros(draft.standard.size)
    held[done] = 1.0
    draft.eliminated[done] = True
    draft.inequalities = draft.inequalities[np.flatnonzero(np.asarray(abs(inside) @ held) == 0)]


def _owners(draft: Draft, tally: ColumnCounts, inside: Any) -> Index:
    """Columns that own their rows; see the module's docstring."""
    able = ~draft.eliminated & ~tally.data & (tally.zero == 0) & (tally.cone == 0) & ~tally.crossed
    able &= tally.arguments == 0
    most = MOST_PIECES if draft.composite else FEW_ROWS
    able &= (tally.negative == 0) & (tally.positive >= 1) & (tally.positive <= most)
    able &= (draft.linear >= 0) & (tally.square >= 0)
    paying = (draft.linear > 0) | (tally.square > 0)
    owner = draft.standard.owner()

    def with_companions(found: Mask) -> Mask:
        """Columns of the same variables that cost nothing (terms with weight 0) belong to them."""
        of_variable = np.zeros(len(draft.standard.variables), dtype=bool)
        of_variable[owner[found]] = True
        return found | (able & ~paying & of_variable[owner])

    whole = np.ones(len(draft.standard.variables), dtype=bool)
    whole[owner[~(able & paying)]] = False
    classes = (
        with_companions(able & paying & ~tally.own),
        with_companions(able & tally.own & (draft.linear > 0) & (tally.square == 0)),
        able & tally.own & (tally.square > 0) & whole[owner],
    )
    pattern = sp.csr_array(inside != 0).astype(np.int64)
    claimed = np.zeros(inside.shape[0], dtype=np.int64)
    chosen = np.zeros(len(owner), dtype=bool)
    for candidates in classes:
        clash = np.asarray(pattern.T @ claimed) > 0
        mine = candidates & ~clash
        crowded = (np.asarray(pattern @ mine.astype(np.int64)) > 1).astype(np.int64)
        mine &= np.asarray(pattern.T @ crowded) == 0
        chosen |= mine
        claimed |= np.asarray(pattern @ mine.astype(np.int64)) > 0
    return np.flatnonzero(chosen)


def _groups(
    draft: Draft, tally: ColumnCounts, inside: Any, columns: Index
) -> Iterator[EpigraphGroup]:
    """The epigraph columns by number of pieces, constants and curvature."""
    rows = draft.standard.rows
    points = np.random.default_rng(SEED).standard_normal((draft.standard.size, 3))
    points[columns] = 0.0
    fingerprints = np.asarray(draft.inequalities @ rows.apply(points))
    offsets = np.asarray(draft.inequalities @ rows.offset)
    dense = np.asarray(abs(draft.inequalities) @ draft.standard.rows.dense_rows()) > 0
    bare = (np.diff(inside.indptr) == 1) & ~dense
    by_column = sp.csc_array(inside)
    counts = np.diff(by_column.indptr)[columns]
    for k in np.unique(counts):
        index = columns[counts == k]
        spot = by_column.indptr[index][:, None] + np.arange(k)
        place, factor = by_column.indices[spot].astype(np.intp), by_column.data[spot]
        height = np.where(bare[place], -offsets[place] / factor, -np.inf)
        # Rows with data come first, then the highest constant one.
        key = np.where(bare[place], 1.0, 0.0)
        order = np.lexsort((-height, key), axis=1)
        place, factor = (np.take_along_axis(part, order, axis=1) for part in (place, factor))
        data = (~bare[place]).sum(axis=1)
        shapes = np.unique(np.column_stack([data, tally.square[index] > 0]), axis=0)
        for count, curved in shapes:
            here = (data == count) & ((tally.square[index] > 0) == curved)
            width = min(count + 1, int(k))
            group = _scaled_rows(draft, place[here][:, :width], factor[here][:, :width])
            at = place[here][:, :width]
            scale = factor[here][:, :width]
            images = fingerprints[at]
            images /= scale[:, :, None]
            if width > count:
                images[:, -1] = 0.0
            yield EpigraphGroup(
                columns=index[here],
                needs=_pattern(at, inside, index[here]),
                cost=draft.linear[index[here]],
                curve=tally.square[index[here]],
                pieces=group,
                fingerprints=images,
                offsets=offsets[at] / scale,
                constant=width > count,
            )


def _scaled_rows(draft: Draft, place: Index, factor: Any) -> tuple[Any, ...]:
    """The rows of each column, scaled so that the column has coefficient 1."""
    return tuple(
        sp.csr_array(diagonal(1.0 / factor[:, k]) @ draft.inequalities[place[:, k]])
        for k in range(place.shape[1])
    )


def chain_bounds(draft: Draft) -> None:
    """Chain the bounds of columns that only pass a bound on."""
    while _chain_once(draft):
        pass


def _chain_once(draft: Draft) -> bool:
    """Chain the columns that may be chained now.

    CVXPY's helpers always may (``abs(w) <= 1``), the user's only below one other column
    (``s <= t``): a data column with a single upper bound is better left alone. Sums of helpers
    (``norm1(w) <= 1``) would need a row for every choice of signs, so an upper row with two of them
    is left alone too.
    """
    tally = count_columns(draft)
    passing = (
        ~draft.eliminated & ~tally.data & (tally.zero == 0) & (tally.cone == 0) & ~tally.crossed
    )
    passing &= (tally.square == 0) & (draft.linear == 0) & (tally.arguments == 0)
    passing &= (tally.negative == 1) & (tally.positive >= 1)
    passing &= ~tally.own | (tally.positive <= FEW_ROWS)
    if not passing.any():
        return False
    inside = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    dense = np.asarray(abs(draft.inequalities) @ draft.standard.rows.dense_rows()) > 0
    entries = sp.csc_array(inside)[:, np.flatnonzero(passing)].tocoo()
    columns, rows = np.flatnonzero(passing)[entries.col], entries.row
    down = entries.data < 0
    upper = np.zeros(len(passing), dtype=np.intp)
    upper[columns[down]] = rows[down]
    rising = np.asarray(sp.csr_array(inside > 0).sum(axis=1)).ravel() == 1
    below_one = (np.diff(inside.indptr) == 2) & ~dense & rising
    alone = np.bincount(rows, minlength=len(dense)) == 1
    chosen = passing & alone[upper] & (~tally.own | below_one[upper])
    # No row may belong to two of them.
    uses = np.bincount(rows[chosen[columns]], minlength=len(dense))
    chosen[columns[(uses[rows] > 1) & chosen[columns]]] = False
    if chosen.any():
        keep = chosen[columns]
        _chain(draft, inside, columns[keep], rows[keep], entries.data[keep])
    return bool(chosen.any())


def _chain(draft: Draft, inside: Any, columns: Index, rows: Index, data: Any) -> None:
    """Replace the rows of each column by its upper bound plus multiples of the lower ones.

    Parameters
    ----------
    columns, rows, data : arrays, shape (k,)
        The entries of the chosen columns.
    """
    down = data < 0
    size = draft.standard.size
    upper, fall = np.zeros(size, dtype=np.intp), np.zeros(size)
    upper[columns[down]], fall[columns[down]] = rows[down], -data[down]
    low, owner, rise = rows[~down], columns[~down], data[~down]
    chained = (
        draft.inequalities[upper[owner]] + diagonal(fall[owner] / rise) @ draft.inequalities[low]
    )
    order = np.argsort(owner, kind="stable")
    names, start, counts = np.unique(owner[order], return_index=True, return_counts=True)
    for count in np.unique(counts):
        group, begin = names[counts == count], start[counts == count]
        spot = order[begin[:, None] + np.arange(count)]
        pieces = tuple(
            sp.csr_array(diagonal(1.0 / rise[spot[:, k]]) @ draft.inequalities[low[spot[:, k]]])
            for k in range(count)
        )
        draft.steps.append(ChainedBounds(group, _pattern(low[spot], inside, group), pieces))
    draft.eliminated[names] = True
    rest = draft.inequalities[np.setdiff1d(np.arange(draft.inequalities.shape[0]), rows)]
    draft.inequalities = sp.csr_array(sp.vstack([rest, chained], format="csr"))


@dataclass(frozen=True, eq=False)
class ChainedBounds:
    """Columns at the largest of their lower bounds; their multipliers come with the chained rows.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    lower : tuple of CSR array, each of shape (g, m)
        Rows ``column - p`` as combinations of raw rows.
    """

    columns: Index
    needs: Any
    lower: tuple[Any, ...]

    def primal(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Step.primal`."""
        return np.max([-(piece @ values) for piece in self.lower], axis=0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: nothing to add."""


def _pattern(rows: Index, inside: Any, columns: Index) -> Any:
    """The columns that some rows hold, but for `columns`; rows of shape (g, k) are united."""
    total = abs(inside[rows[:, 0]])
    for k in range(1, rows.shape[1]):
        total = total + abs(inside[rows[:, k]])
    out = sp.csr_array(total).tocoo()
    keep = out.col != columns[out.row]
    return sp.csr_array((out.data[keep], (out.row[keep], out.col[keep])), shape=out.shape)
