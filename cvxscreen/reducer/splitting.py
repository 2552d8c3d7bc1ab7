"""Two bounded columns of opposite sign in one equality are one loss of the rest of the row.

``u - v = e`` with ``u, v`` bounded below and costs ``c_u u + c_v v`` is a pinball loss of ``e``
(absolute value, quantile and hinge in the form that linear programs are written in).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxscreen.reducer.draft import Array, Draft, Duals, Index, Mask
from cvxscreen.reducer.entries import diagonal, without
from cvxscreen.reducer.standard import Standard
from cvxscreen.reducer.substitution import census


@dataclass(frozen=True, eq=False)
class Pairs:
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


def find(draft: Draft) -> Pairs:
    """Equality rows of this shape."""
    standard, tally = draft.standard, census(draft)
    rows = np.flatnonzero((standard.kinds() == "zero") & ~draft.used)
    block = sp.coo_array(standard.rows.sparse[rows])
    alone = (tally.zero == 1) & (tally.cone == 0) & ~tally.data & ~draft.gone & ~tally.crossed
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
    return Pairs(rows[good], some[0][good], some[1][good])


def _bounded(draft: Draft) -> Mask:
    """Columns with an inequality row of their own, shape (N,)."""
    inside = sp.csr_array(draft.open @ draft.standard.rows.sparse)
    dense = np.asarray(abs(draft.open) @ draft.standard.rows.dense_rows()) > 0
    single = (np.diff(inside.indptr) == 1) & ~dense
    out = np.zeros(draft.standard.size, dtype=bool)
    out[sp.csr_array(inside[single]).indices] = True
    return out


@dataclass(frozen=True, eq=False)
class Sign:
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
        force = duals.theta[self.terms] + self.base
        duals.rows[self.source] = force / self.factor
        left = np.concatenate([self.costs[0] - force, self.costs[1] + self.ratio * force])
        duals.rows += self.bounds.T @ np.maximum(left, 0.0)


def fold(draft: Draft, pairs: Pairs) -> None:
    """Turn the pairs into loss terms."""
    if not len(pairs.rows):
        return
    rows, up, down = pairs.rows, pairs.up, pairs.down
    standard = draft.standard
    sparse, m = standard.rows.sparse, standard.rows.shape[0]
    inside = sp.csc_array(draft.open @ sparse)
    offsets = np.asarray(draft.open @ standard.rows.offset)
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
    draft.tilt += select.T @ base
    draft.constant += float((costs * floors).sum() - (base * kink).sum())
    draft.linear[up] = draft.linear[down] = 0.0
    columns = np.concatenate([up, down])
    needs = without(sparse[rows], columns)
    bounds = sp.csr_array(diagonal(1.0 / factor) @ draft.open[place])
    both = sp.csr_array(sp.vstack([needs, needs]))
    draft.steps.append(Sign(columns, both, rows, c_up, ratio, floors, bounds, costs, base, terms))
    draft.gone[columns] = True
    draft.used[rows] = True
    draft.open = draft.open[np.setdiff1d(np.arange(draft.open.shape[0]), place)]
