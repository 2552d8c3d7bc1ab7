"""Epigraph columns with a linear cost: ``c t`` over ``t >= p_1, ..., t >= p_k``.

At the optimum ``t`` is the largest piece, so the column is the loss ``c max_k p_k``. Pieces that
are affine functions of one argument ``u`` give, after dominated ones are left out,

- one piece: a linear term;
- two pieces: a hinge, an absolute value or a pinball loss around their crossing;
- three pieces: the same with a dead zone between the two crossings.

Two pieces that are not parallel give a hinge on their difference. What slope zero cannot represent
goes to the linear part of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import Draft, Duals
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import envelope
from cvxscreen.cvxpy_plugin.recognise.matrices import diagonal
from cvxscreen.cvxpy_plugin.recognise.max_affine import keep_maximum
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def fold_linear(draft: Draft, group: EpigraphGroup) -> Index:
    """Turn a group without curvature into loss terms; returns the columns that were folded."""
    ratio, reference, fits = group.parallel()
    done = [_difference(draft, group.take(~fits))] if not fits.all() else []
    if fits.any():
        part, rows = group.take(fits), np.flatnonzero(fits)
        done.append(_parallel(draft, part, ratio[rows], reference[rows]))
    return np.concatenate(done)


def _parallel(draft: Draft, group: EpigraphGroup, ratio: Array, reference: Index) -> Index:
    """Pieces that are affine in one argument, the row of the reference piece."""
    at = np.arange(len(group.columns))
    shift = group.offsets - ratio * group.offsets[at, reference][:, None]
    slopes, heights = -ratio, -shift
    active = envelope(slopes, heights)
    done = []
    for count in (1, 2, 3):
        index = np.flatnonzero(active.sum(axis=1) == count)
        if not len(index):
            continue
        key = np.where(active[index], slopes[index], np.inf)
        order = np.argsort(key, axis=1, kind="stable")[:, :count]
        part = group.take(index)
        _lines(
            draft,
            part,
            order,
            np.take_along_axis(slopes[index], order, axis=1),
            np.take_along_axis(heights[index], order, axis=1),
            reference[index],
        )
        done.append(part.columns)
    more = active.sum(axis=1) > 3
    if more.any() and draft.composite:
        done.append(_difference(draft, group.take(more)))
    elif more.any():
        draft.notes.append("a maximum of more than three pieces is not a loss of the table")
    return np.concatenate([np.zeros(0, dtype=np.intp), *done])


def _lines(
    draft: Draft,
    group: EpigraphGroup,
    order: Index,
    slopes: Array,
    heights: Array,
    reference: Index,
) -> None:
    """Fold columns with one, two or three active lines ``slope u + height``."""
    cost, count = group.cost, slopes.shape[1]
    weights = argument(group, reference)
    terms = np.full(len(cost), -1, dtype=np.intp)
    if count == 1:
        base, level = slopes[:, 0], heights[:, 0]
    elif count == 2:
        kink = (heights[:, 0] - heights[:, 1]) / (slopes[:, 1] - slopes[:, 0])
        base = np.clip(0.0, slopes[:, 0], slopes[:, 1])
        level = slopes[:, 0] * kink + heights[:, 0] - base * kink
        low, high = cost * (slopes[:, 0] - base), cost * (slopes[:, 1] - base)
        terms = _add_costly(draft, cost, weights, kink, 0.0 * kink, low, high)
    else:
        base, level = slopes[:, 1], heights[:, 1]
        left = (heights[:, 0] - heights[:, 1]) / (slopes[:, 1] - slopes[:, 0])
        right = (heights[:, 1] - heights[:, 2]) / (slopes[:, 2] - slopes[:, 1])
        low, high = cost * (slopes[:, 0] - base), cost * (slopes[:, 2] - base)
        terms = _add_costly(draft, cost, weights, (left + right) / 2, (right - left) / 2, low, high)
    draft.loss_slope += weights.T @ (cost * base)
    draft.constant += float(cost @ level)
    draft.steps.append(
        PiecewiseLinear(group.columns, group.needs, cost, group.pieces, order, slopes, base, terms)
    )


def _add_costly(
    draft: Draft, cost: Array, weights: Any, b: Array, e: Array, low: Array, high: Array
) -> Index:
    """Add the terms with a positive cost; the others get position -1."""
    out = np.full(len(cost), -1, dtype=np.intp)
    rows = np.flatnonzero(cost > 0)
    if len(rows):
        out[rows] = draft.terms.add(
            weights[rows], b=b[rows], e=e[rows], lo=low[rows], hi=high[rows]
        )
    return out


def _difference(draft: Draft, group: EpigraphGroup) -> Index:
    """Two pieces with different data: ``c p_1 + c max(0, p_2 - p_1)``."""
    if len(group.pieces) > 2 and draft.composite:
        return keep_maximum(draft, group.columns, group.needs, group.cost, group.pieces)
    if len(group.pieces) != 2 or not len(group.columns):
        draft.notes.append(
            "a maximum of more than two pieces with different data is not a loss of one argument"
        )
        return np.zeros(0, dtype=np.intp)
    first, second = group.pieces
    g = len(group.columns)
    terms = draft.terms.add(second - first, b=0.0, lo=-group.cost)
    draft.loss_slope -= first.T @ group.cost
    step = PiecewiseLinear(
        group.columns,
        group.needs,
        group.cost,
        group.pieces,
        np.tile([1, 0], (g, 1)),
        np.tile([-1.0, 0.0], (g, 1)),
        np.zeros(g),
        terms,
    )
    draft.steps.append(step)
    return group.columns


def argument(group: EpigraphGroup, reference: Index) -> Any:
    """The reference piece of each column as a combination of rows, shape (g, m)."""
    out = diagonal(np.where(reference == 0, 1.0, 0.0)) @ group.pieces[0]
    for k, piece in enumerate(group.pieces[1:], 1):
        if (reference == k).any():
            out = out + diagonal(np.where(reference == k, 1.0, 0.0)) @ piece
    return sp.csr_array(out)


@dataclass(frozen=True, eq=False)
class EpigraphGroup:
    """Epigraph columns of one shape, with everything the rules look at.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost, curve : array, shape (g,)
        ``c`` and ``rho`` of the objective ``c t + rho/2 t^2``.
    pieces : tuple of CSR array, each of shape (g, m)
        Rows ``t - p_k``; pieces with data first, then at most one constant piece.
    fingerprints : array, shape (g, k, 3)
        Images of three random points under the data of each piece, 0 for a constant.
    offsets : array, shape (g, k)
        Constants of the rows: ``p_k = -(data + offset)``.
    constant : bool
        Whether the last piece is a constant.
    """

    columns: Index
    needs: Any
    cost: Array
    curve: Array
    pieces: tuple[Any, ...]
    fingerprints: Array
    offsets: Array
    constant: bool

    def take(self, index: Any) -> EpigraphGroup:
        """The columns at `index`, increasing positions or a mask."""
        count = np.count_nonzero(index) if index.dtype == bool else len(index)
        if count == len(self.columns):
            return self
        return EpigraphGroup(
            self.columns[index],
            self.needs[index],
            self.cost[index],
            self.curve[index],
            tuple(piece[index] for piece in self.pieces),
            self.fingerprints[index],
            self.offsets[index],
            self.constant,
        )

    def parallel(self) -> tuple[Array, Index, Mask]:
        """Every piece as a multiple of the one with the largest data.

        Returns
        -------
        ratio : array, shape (g, k)
        reference : array of int, shape (g,)
        fits : mask, shape (g,)
            Whether the pieces really are parallel.
        """
        size = np.abs(self.fingerprints).max(axis=2)
        reference = size.argmax(axis=1)
        at = np.arange(len(self.columns))
        lead = self.fingerprints[at, reference]
        squared = (lead**2).sum(axis=1)
        blank = squared == 0.0
        ratio = (
            np.einsum("gkj,gj->gk", self.fingerprints, lead)
            / np.where(blank, 1.0, squared)[:, None]
        )
        near = np.round(ratio)
        ratio = np.where(np.abs(ratio - near) < 1e-12, near, ratio)
        ratio[blank] = 1.0
        if self.constant:
            ratio[blank, -1] = 0.0
        left = np.abs(self.fingerprints - ratio[:, :, None] * lead[:, None, :]).max(axis=(1, 2))
        return ratio, reference, left <= 1e-11 * size.max(axis=1)


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """``t = max_k -(pieces_k @ rows)``; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost : array, shape (g,)
        ``c``.
    pieces : tuple of CSR array, each of shape (g, m)
        Rows ``t - p_k`` as combinations of raw rows (coefficient of ``t`` is 1).
    order : array of int, shape (g, a)
        The active pieces by increasing slope.
    slopes : array, shape (g, a)
        Their slopes in the argument.
    base : array, shape (g,)
        The slope that went to the linear part.
    terms : array of int, shape (g,)
        Positions of the loss terms; -1 where there is none.
    """

    columns: Index
    needs: Any
    cost: Array
    pieces: tuple[Any, ...]
    order: Index
    slopes: Array
    base: Array
    terms: Index

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.max([-(piece @ values) for piece in self.pieces], axis=0)

    def shares(self, theta: Array) -> Array:
        """Multipliers of the active pieces: they sum to ``c``, shape (g, a)."""
        g, a = self.slopes.shape
        out = np.zeros((g, a))
        if a == 1:
            out[:, 0] = self.cost
            return out
        slope = np.where(self.terms >= 0, theta[self.terms], 0.0) + self.cost * self.base
        at = np.arange(g)
        left = np.zeros(g, dtype=np.intp)
        if a == 3:
            left = (slope > self.cost * self.slopes[:, 1]).astype(np.intp)
        low, high = self.slopes[at, left], self.slopes[at, left + 1]
        upper = np.clip((slope - self.cost * low) / (high - low), 0.0, self.cost)
        out[at, left + 1] = upper
        out[at, left] = self.cost - upper
        return out

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`."""
        shares = self.shares(duals.theta)
        for k, piece in enumerate(self.pieces):
            weight = np.where(self.order == k, shares, 0.0).sum(axis=1)
            duals.rows += piece.T @ weight
