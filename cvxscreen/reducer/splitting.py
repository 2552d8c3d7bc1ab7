"""Two helper columns in one equality: what is left of it is one loss of the rest of the row.

- *Infimal convolution*: ``n + s = e`` with ``rho/2 n^2`` and a loss ``g(s)`` (``huber``) is the loss
  of ``e`` whose conjugate is ``g* + theta^2 / (2 rho)``.
- *Split sign*: ``u - v = e`` with ``u, v`` bounded below and costs ``c_u u + c_v v`` is a pinball
  loss of ``e`` (absolute value, quantile and hinge in the form linear programs are written in).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxscreen.losses import Losses
from cvxscreen.reducer.draft import Array, Draft, Duals, Index, Mask, stationarity, without
from cvxscreen.reducer.kinks import diagonal
from cvxscreen.reducer.standard import Standard
from cvxscreen.reducer.substitution import Census, census


@dataclass(frozen=True, eq=False)
class Pairs:
    """Equality rows with two helper columns each.

    Attributes
    ----------
    rows, first, second : array of int, shape (k,)
        For an infimal convolution `first` carries the square; for a split sign `first` has a
        positive and `second` a negative coefficient (after a change of sign of the row).
    smooth : mask, shape (k,)
        Which of them are infimal convolutions.
    """

    rows: Index
    first: Index
    second: Index
    smooth: Mask

    def reserved(self, count: int) -> Mask:
        """The rows as a mask, shape (count,)."""
        out = np.zeros(count, dtype=bool)
        out[self.rows] = True
        return out


def find(draft: Draft) -> Pairs:
    """Equality rows that look like one of the two shapes; the rest is decided later."""
    standard, tally = draft.standard, census(draft)
    rows = np.flatnonzero((standard.kinds() == "zero") & ~draft.used)
    block = sp.coo_array(standard.rows.sparse[rows])
    alone = (tally.zero == 1) & (tally.cone == 0) & ~tally.dense & ~draft.gone & ~tally.crossed
    held = tally.positive + tally.negative
    bowl = alone & (tally.square > 0) & (draft.linear == 0) & (held == 0)
    link = alone & (tally.square == 0) & (draft.linear == 0) & (held <= 4) & (tally.negative > 0)
    bounded = _bounded(draft)
    slack = alone & (tally.square == 0) & (held == 1) & (tally.positive == 1) & bounded

    def only(mask: Mask) -> tuple[Index, Index]:
        """For each row the number of such columns, and one of them."""
        hit = mask[block.col]
        number = np.bincount(block.row[hit], minlength=len(rows))
        some = np.zeros(len(rows), dtype=np.intp)
        some[block.row[hit]] = block.col[hit]
        return number, some

    helper = ~tally.own
    found = []
    for group in (helper, ~helper):
        bowls, bowl_at = only(bowl & group)
        links, link_at = only(link & group)
        slacks, _ = only(slack & group)
        good = (bowls == 1) & (links == 1) & (slacks == 0)
        found.append((rows[good], bowl_at[good], link_at[good], np.ones(int(good.sum()), bool)))
    sign = np.zeros(standard.size)
    sign[block.col] = np.sign(block.data)
    ups, up_at = only(slack & (sign > 0))
    downs, down_at = only(slack & (sign < 0))
    others, _ = only(bowl | link)
    good = (ups == 1) & (downs == 1) & (others == 0)
    found.append((rows[good], up_at[good], down_at[good], np.zeros(int(good.sum()), bool)))
    parts = [np.concatenate(part) for part in zip(*found, strict=True)]
    return Pairs(*parts)


def _bounded(draft: Draft) -> Mask:
    """Columns with an inequality row of their own, shape (N,)."""
    inside = sp.csr_array(draft.open @ draft.standard.rows.sparse)
    single = np.diff(inside.indptr) == 1
    for block in draft.standard.rows.blocks:
        member = np.zeros(draft.standard.rows.shape[0])
        member[block.place] = 1.0
        single &= np.asarray(abs(draft.open) @ member) == 0
    out = np.zeros(draft.standard.size, dtype=bool)
    out[sp.csr_array(inside[single]).indices] = True
    return out


@dataclass(frozen=True, eq=False)
class Bowl:
    """``n`` of an infimal convolution, from the slope of the merged loss; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (2 k,)
        All ``n``, then all ``s``.
    needs : CSR array, shape (2 k, N)
    source : array of int, shape (k,)
        The equality rows.
    losses : Losses
        The merged losses.
    argument : CSR array, shape (k, m)
        Their arguments.
    pull : array, shape (k,)
        ``gamma``: the argument of ``g`` is that of the merged loss minus ``gamma n``.
    curve, link, factor : array, shape (k,)
        ``rho``; the argument of ``g`` is ``link s``; coefficient of ``s`` in the equality.
    """

    columns: Index
    needs: Any
    source: Index
    losses: Losses
    argument: Any
    pull: Array
    curve: Array
    link: Array
    factor: Array

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        y = np.asarray(self.argument @ values)
        n = self.pull * self.losses.slope(y) / self.curve
        return np.concatenate([n, (y - self.pull * n) / self.link])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: stationarity in ``s``, whose other rows are known."""
        second = self.columns[len(self.source) :]
        duals.rows[self.source] = 0.0
        duals.rows[self.source] = stationarity(standard, duals, second) / self.factor


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
    """Turn the pairs that really have the shape into loss terms."""
    for smooth, rule in ((True, _convolve), (False, _sign)):
        index = np.flatnonzero(pairs.smooth == smooth)
        if len(index):
            rule(draft, census(draft), pairs.rows[index], pairs.first[index], pairs.second[index])


def _convolve(draft: Draft, tally: Census, rows: Index, bowl: Index, link: Index) -> None:
    standard = draft.standard
    weights, numbers = draft.terms.merged(standard.rows.shape[0])
    inside = without(weights @ standard.rows.sparse, np.flatnonzero(draft.gone))
    dense = np.zeros(standard.rows.shape[0])
    for block in standard.rows.blocks:
        dense[block.place] = 1.0
    single = (np.diff(inside.indptr) == 1) & (np.asarray(abs(weights) @ dense) == 0)
    uses = np.bincount(inside.indices, minlength=standard.size)
    term_of = np.full(standard.size, -1, dtype=np.intp)
    slope_of = np.zeros(standard.size)
    alone = sp.csr_array(inside[single])
    term_of[alone.indices], slope_of[alone.indices] = np.flatnonzero(single), alone.data
    tilted = standard.rows.sparse.T @ draft.tilt != 0
    good = (term_of[link] >= 0) & (uses[link] == 1) & ~tilted[link]
    good &= (tally.positive + tally.negative)[link] == 0
    if not good.any():
        draft.notes.append("an equality with two helper variables is not a Huber loss")
        return
    rows, bowl, link = rows[good], bowl[good], link[good]
    k, terms = len(rows), term_of[link]
    sparse = standard.rows.sparse
    at = np.arange(k)
    c_bowl = np.asarray(sparse[rows][at, bowl]).ravel()
    c_link = np.asarray(sparse[rows][at, link]).ravel()
    slope, rho = slope_of[link], tally.square[bowl]
    pull = slope * c_bowl / c_link
    select = sp.csr_array((-slope / c_link, (at, rows)), shape=(k, sparse.shape[0]))
    shift = np.asarray(weights[terms] @ standard.rows.offset)
    numbers[terms, 0] -= shift
    numbers[terms, 2] += pull**2 / rho
    keep = np.ones(len(numbers))
    keep[terms] = 0.0
    place = sp.csr_array((np.ones(k), (terms, at)), shape=(len(numbers), k))
    draft.terms.weights = [sp.csr_array(diagonal(keep) @ weights + place @ select)]
    draft.terms.numbers = [numbers]
    columns = np.concatenate([bowl, link])
    needs = without(sparse[rows], columns)
    draft.steps.append(
        Bowl(
            columns,
            sp.csr_array(sp.vstack([needs, needs])),
            rows,
            Losses(*numbers[terms].T),
            select,
            pull,
            rho,
            slope,
            c_link,
        )
    )
    draft.quadratic = without(draft.quadratic, bowl)
    draft.gone[columns] = True
    draft.used[rows] = True


def _sign(draft: Draft, tally: Census, rows: Index, up: Index, down: Index) -> None:
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
