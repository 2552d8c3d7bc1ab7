"""Two bounded columns of opposite sign in one equality are one loss of the rest of the row.

``u - v = e`` with ``u, v`` bounded below and costs ``c_u u + c_v v`` is a pinball loss of ``e``
(absolute value, quantile and hinge in the form that linear programs are written in).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import Draft, Duals, count_columns
from cvxscreen.cvxpy_plugin.recognise.matrices import diagonal, without
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


def find_split_variables(draft: Draft) -> SplitVariables:
    """Equality rows of this shape."""
    standard, tally = draft.standard, count_columns(draft)
    rows = np.flatnonzero((standard.kinds() == "zero") & ~draft.used_rows)
    block = sp.coo_array(standard.rows.sparse[rows])
    alone = (tally.zero == 1) & (tally.cone == 0) & ~tally.data & ~draft.eliminated & ~tally.crossed
    alone &= tally.arguments == 0
    held = tally.positive + tally.negative
    slack = alone & (tally.square == 0) & (held == 1) & (tally.positive == 1) & _bounded(draft)
    number, some = [], []
    for sign in (1.0, -1.0):
        hit = slack[block.col] & (np.sign(block.data) == sign)
        number.append(np.bincount(block.row[hit], minlength=len(rows)))
        one = np.zeros(len(rows), dtype=np.intp)
        one[block.row[hit]] = block.col[hit]
        some.append(one)
    good = (number[0] == 1) & (number[1] == 1)
    return SplitVariables(rows[good], some[0][good], some[1][good])


def fold_split_variables(draft: Draft, pairs: SplitVariables) -> None:
    """Turn the pairs into loss terms."""
    if not len(pairs.rows):
        return
    rows, up, down = pairs.rows, pairs.up, pairs.down
    standard = draft.standard
    sparse, m = standard.rows.sparse, standard.rows.shape[0]
    inside = sp.csc_array(draft.inequalities @ sparse)
    offsets = np.asarray(draft.inequalities @ standard.rows.offset)
    at, k = np.arange(len(rows)), len(rows)
    c_up, c_down = (np.asarray(sparse[rows][at, c]).ravel() for c in (up, down))
    ratio = -c_down / c_up
    place = inside.indices[inside.indptr[np.concatenate([up, down])]]
    factor = inside.data[inside.indptr[np.concatenate([up, down])]]
    floors = (-offsets[place] / factor).reshape(2, k)
    costs = np.vstack([draft.linear[up], draft.linear[down]])
    good = costs[1] + ratio * costs[0] > 0
    if not good.all():
        draft.notes.append("a difference of two bounded variables has no loss to give")
        return
    kink = floors[0] - ratio * floors[1]
    low, high = -costs[1] / ratio, costs[0]
    base = np.clip(0.0, low, high)
    select = sp.csr_array((-1.0 / c_up, (at, rows)), shape=(k, m))
    terms = draft.terms.add(select, b=kink, lo=low - base, hi=high - base)
    draft.loss_slope += select.T @ base
    draft.constant += float((costs * floors).sum() - (base * kink).sum())
    draft.linear[up] = draft.linear[down] = 0.0
    columns = np.concatenate([up, down])
    needs = without(sparse[rows], columns)
    bounds = sp.csr_array(diagonal(1.0 / factor) @ draft.inequalities[place])
    both = sp.csr_array(sp.vstack([needs, needs]))
    draft.steps.append(
        SplitVariable(columns, both, rows, c_up, ratio, floors, bounds, costs, base, terms)
    )
    draft.eliminated[columns] = True
    draft.used_rows[rows] = True
    draft.inequalities = draft.inequalities[
        np.setdiff1d(np.arange(draft.inequalities.shape[0]), place)
    ]


@dataclass(frozen=True, eq=False)
class SplitVariables:
    """Equality rows with two bounded columns each.

    Attributes
    ----------
    rows, up, down : array of int, shape (k,)
        `up` has a positive coefficient in its row, `down` a negative one.
    """

    rows: Index
    up: Index
    down: Index

    def reserved(self, count: int) -> Mask:
        """The rows as a mask, shape (count,)."""
        out = np.zeros(count, dtype=bool)
        out[self.rows] = True
        return out


def _bounded(draft: Draft) -> Mask:
    """Columns with an inequality row of their own, shape (N,)."""
    inside = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    dense = np.asarray(abs(draft.inequalities) @ draft.standard.rows.dense_rows()) > 0
    single = (np.diff(inside.indptr) == 1) & ~dense
    out = np.zeros(draft.standard.size, dtype=bool)
    out[sp.csr_array(inside[single]).indices] = True
    return out


@dataclass(frozen=True, eq=False)
class SplitVariable:
    """``u`` and ``v`` of a split sign; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (2 k,)
        All ``u``, then all ``v``.
    needs : CSR array, shape (2 k, N)
    source : array of int, shape (k,)
        The equality rows.
    factor : array, shape (k,)
        Coefficient of ``u``.
    ratio : array, shape (k,)
        ``delta > 0`` in ``u = e + delta v``.
    floors : array, shape (2, k)
        Lower bounds of ``u`` and ``v``.
    bounds : CSR array, shape (2 k, m)
        The rows of the lower bounds, scaled to coefficient 1.
    costs : array, shape (2, k)
    base : array, shape (k,)
        Slope that went to the linear part.
    terms : array of int, shape (k,)
    """

    columns: Index
    needs: Any
    source: Index
    factor: Array
    ratio: Array
    floors: Array
    bounds: Any
    costs: Array
    base: Array
    terms: Index

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        e = -values[self.source] / self.factor
        v = np.maximum(self.floors[1], (self.floors[0] - e) / self.ratio)
        return np.concatenate([e + self.ratio * v, v])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the equality carries the slope, the bounds what the costs leave."""
        slope = duals.theta[self.terms] + self.base
        duals.rows[self.source] = slope / self.factor
        left = np.concatenate([self.costs[0] - slope, self.costs[1] + self.ratio * slope])
        duals.rows += self.bounds.T @ np.maximum(left, 0.0)
