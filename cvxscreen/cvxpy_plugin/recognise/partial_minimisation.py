"""Columns that only one loss term sees are minimised out: they smooth it or give it a dead zone.

Let ``n`` occur in the argument ``y + gamma n`` of one loss ``g`` and nowhere else.

- With ``rho/2 n^2`` in the objective, the minimum over ``n`` is the loss whose conjugate is
  ``g* + gamma^2 / (2 rho) theta^2``: a Huber loss, a smoothed hinge.
- With ``l <= n <= h`` it is the loss whose conjugate is ``g* + gamma max(l theta, h theta)`` up to
  sign: a dead zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import Losses
from cvxscreen.cvxpy_plugin.recognise.draft import (
    ColumnCounts,
    Draft,
    Duals,
    count_columns,
    stationarity,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import without
from cvxscreen.cvxpy_plugin.recognise.row_stack import Stack, consecutive
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def minimise_out(
    draft: Draft, weights: Any, numbers: Array, linear: Array, side: Stack
) -> tuple[Array, bool]:
    """Minimise out every variable whose columns occur in one term each.

    Parameters
    ----------
    weights : CSR array, shape (n, m)
        Arguments of the terms, without defined columns.
    numbers : array, shape (n, 5)
        Their five numbers, offsets of the arguments not yet taken out.
    linear : array, shape (N,)
        Linear term of the objective, without defined columns.
    side : Stack
        The side constraints, without defined columns.

    Returns
    -------
    array, shape (n, 5)
        The new numbers.
    bool
        Whether anything was absorbed.
    """
    done = False
    for rule in (_squares, _zones):
        whole = draft.standard.rows.sparse
        run = consecutive(weights)
        inside = whole[run] if run is not None else weights @ whole
        inside = without(inside, np.flatnonzero(draft.eliminated))
        uses = np.bincount(inside.indices, minlength=len(linear))
        tally = count_columns(draft)
        free = (uses == 1) & ~draft.eliminated & ~tally.dense & ~tally.crossed & (linear == 0)
        columns = rule(draft, tally, free, side)
        if len(columns):
            numbers = _minimise(draft, weights, numbers, inside, columns, tally.square[columns])
            done = True
    return numbers, done


def _squares(draft: Draft, tally: ColumnCounts, free: Mask, side: Stack) -> Index:
    held = np.bincount(side.sparse.indices, minlength=len(free)) > 0
    return _whole(draft, free & (tally.square > 0) & ~held)


def _zones(draft: Draft, tally: ColumnCounts, free: Mask, side: Stack) -> Index:
    single = (np.diff(side.sparse.indptr) == 1) & ~side.dense_rows()
    held = np.bincount(side.sparse.indices, minlength=len(free))
    alone = np.bincount(sp.csr_array(side.sparse[single]).indices, minlength=len(free))
    boxed = (held == 2) & (alone == 2) & (tally.positive == 1) & (tally.negative == 1)
    direct = tally.zero <= 1
    return _whole(draft, free & (tally.square == 0) & boxed & direct & (tally.cone == 0))


def _whole(draft: Draft, found: Mask) -> Index:
    """The found columns of variables that are found as a whole."""
    owner = draft.standard.owner()
    some = np.ones(len(draft.standard.variables), dtype=bool)
    some[owner[~found]] = False
    return np.flatnonzero(found & some[owner])


def _minimise(
    draft: Draft, weights: Any, numbers: Array, inside: Any, columns: Index, curve: Array
) -> Array:
    """Absorb `columns`, all squares or all dead zones."""
    size, k = inside.shape[1], len(columns)
    by_column = sp.csc_array(inside)
    spot = by_column.indptr[columns]
    terms, factor = by_column.indices[spot].astype(np.intp), by_column.data[spot]
    if len(np.unique(terms)) < k:
        keep = np.sort(np.unique(terms, return_index=True)[1])
        columns, terms, factor, curve = columns[keep], terms[keep], factor[keep], curve[keep]
        k = len(columns)
    numbers = numbers.copy()
    m = draft.standard.rows.shape[0]
    low, high = np.full(k, -np.inf), np.full(k, np.inf)
    bounds = sp.csr_array((2 * k, m))
    if curve[0] > 0:
        numbers[terms, 2] += factor**2 / curve
        losses = Losses(*numbers[terms].T)
        draft.quadratic = without(draft.quadratic, columns)
    else:
        losses = Losses(*numbers[terms].T)
        low, high, bounds = _box(draft, columns)
        shift = factor * (low + high) / 2
        numbers[terms, 0] -= shift
        numbers[terms, 1] += np.abs(factor) * (high - low) / 2
    pattern = without(abs(inside[terms]), columns)
    draft.steps.append(
        MinimisedOut(
            columns,
            sp.csr_array(pattern, shape=(k, size)),
            terms,
            weights[terms],
            factor,
            losses,
            curve,
            low,
            high,
            bounds,
        )
    )
    draft.eliminated[columns] = True
    return numbers


def _box(draft: Draft, columns: Index) -> tuple[Array, Array, Any]:
    """Bounds of columns, and their rows, which cease to be side constraints."""
    inside = sp.csc_array(draft.inequalities @ draft.standard.rows.sparse)
    offsets = np.asarray(draft.inequalities @ draft.standard.rows.offset)
    start = inside.indptr[columns]
    place = np.column_stack([inside.indices[start], inside.indices[start + 1]])
    data = np.column_stack([inside.data[start], inside.data[start + 1]])
    order: NDArray[np.intp] = np.argsort(-data, axis=1)
    place, data = (np.take_along_axis(part, order, axis=1) for part in (place, data))
    ends = -offsets[place] / data
    rows = np.concatenate([place[:, 0], place[:, 1]])
    scale = sp.diags_array(1.0 / np.abs(np.concatenate([data[:, 0], data[:, 1]])))
    bounds = sp.csr_array(scale @ draft.inequalities[rows])
    draft.inequalities = draft.inequalities[
        np.setdiff1d(np.arange(draft.inequalities.shape[0]), rows)
    ]
    return ends[:, 0], ends[:, 1], bounds


@dataclass(frozen=True, eq=False)
class MinimisedOut:
    """Columns minimised out of one loss term each; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (k,)
    needs : CSR array, shape (k, N)
    terms : array of int, shape (k,)
        Positions of the terms among those found.
    argument : CSR array, shape (k, m)
        Argument of the term as a combination of rows, the absorbed columns included.
    factor : array, shape (k,)
        ``gamma``.
    losses : Losses
        For a square the loss after absorbing, for a dead zone the loss before.
    curve : array, shape (k,)
        ``rho``; 0 for a dead zone.
    low, high : array, shape (k,)
        Bounds; infinite for a square.
    bounds : CSR array, shape (2 k, m)
        The rows of the bounds, lower ones first, scaled to coefficient 1 and -1; zero for a square.
    """

    columns: Index
    needs: Any
    terms: Index
    argument: Any
    factor: Array
    losses: Losses
    curve: Array
    low: Array
    high: Array
    bounds: Any

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        y = np.asarray(self.argument @ values)
        curved = self.curve > 0
        smooth = -self.factor * self.losses.slope(y) / np.where(curved, self.curve, 1.0)
        near = np.clip(y, self.losses.b - self.losses.e, self.losses.b + self.losses.e)
        moved = np.clip((near - y) / self.factor, self.low, self.high)
        return np.where(curved, smooth, moved)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the bounds take what keeps the column from being stationary."""
        flat = np.flatnonzero(self.curve == 0)
        if len(flat):
            left = np.zeros(len(self.columns))
            left[flat] = stationarity(standard, duals, self.columns[flat])
            shares = np.concatenate([np.maximum(left, 0.0), np.maximum(-left, 0.0)])
            duals.rows += self.bounds.T @ shares
