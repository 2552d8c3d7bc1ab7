"""Epigraph columns: linear and squared costs over maxima, and second-order cones in closed form.

Epigraph columns with a square: ``c t + rho/2 t^2`` over ``t >= p_1, ...`` (squared slacks).

Without any row the column would sit at ``-c/rho``; that is one more constant piece. Above it the
column is a squared hinge of its piece, with a hinge on top where a constant piece lies higher; two
opposite pieces give a squared distance with a dead zone.

Columns of second-order cones in closed form.

- `bound_heads`: ``norm(v) <= T <= bound`` becomes ``norm(v) <= bound``.
- `square_heads`: ``rho/2 T^2`` with ``norm(v) <= T`` becomes ``rho/2 |v|^2`` (``norm(w, 2)**2``).

Finding the epigraph columns: ``t`` costs something and is only ever bounded from below.

A column is an epigraph column if its objective is ``c t + rho/2 t^2`` with ``c, rho >= 0``, no
equality and no cone holds it, every inequality that it occurs in bounds it from below, and it is
the only such column in those rows. CVXPY's own helpers are taken first, then the user's columns
with a linear cost (slacks), then whole variables with a square (squared slacks).

`nest` first removes columns in between (``pos(abs(e) - eps)`` bounds ``t`` by a helper that is
bounded by ``e`` and ``-e``): every lower bound is chained with the upper one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise import piecewise_linear as kinks
from cvxscreen.cvxpy_plugin.recognise.affine import cleared, diagonal, without
from cvxscreen.cvxpy_plugin.recognise.elimination import (
    FEW,
    Array,
    Census,
    Draft,
    Duals,
    Index,
    Mask,
    census,
)
from cvxscreen.cvxpy_plugin.recognise.piecewise_linear import Group
from cvxscreen.cvxpy_plugin.recognise.standard import Standard


@dataclass(frozen=True, eq=False)
class Bent:
    """``t = max(-c/rho, max_k -(pieces_k @ rows))``; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost, curve : array, shape (g,)
    pieces : tuple of CSR array, each of shape (g, m)
        One or two pieces with data, then the constant one if there is one.
    constant : bool
    terms : tuple of array of int, each of shape (g,)
        Positions of the loss terms of the piece(s) with data.
    """

    columns: Index
    needs: Any
    cost: Array
    curve: Array
    pieces: tuple[Any, ...]
    constant: bool
    terms: tuple[Index, ...]

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.max([-self.cost / self.curve, *(-(p @ values) for p in self.pieces)], axis=0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the pieces with data take the slope, the constant one what is left."""
        total = self.cost + self.curve * duals.z[self.columns]
        data = self.pieces[:-1] if self.constant else self.pieces
        force = sum((duals.theta[index] for index in self.terms), np.zeros(len(self.columns)))
        shares = [np.maximum(-force, 0.0), np.maximum(force, 0.0)][: len(data)]
        for piece, share in zip(data, shares, strict=True):
            duals.rows += piece.T @ share
            total = total - share
        if self.constant:
            duals.rows += self.pieces[-1].T @ np.maximum(total, 0.0)


def fold_squares(draft: Draft, group: Group) -> Index:
    """Turn a group with curvature into loss terms; returns the columns that were folded."""
    rest = -group.cost / group.curve
    floor = -group.offsets[:, -1] if group.constant else np.full(len(rest), -np.inf)
    data = len(group.pieces) - int(group.constant)
    if data == 1:
        above = floor > rest
        _one_sided(draft, group.take(~above), rest[~above])
        _lifted(draft, group.take(above), floor[above], rest[above])
        return group.columns
    if data == 0:
        height = np.maximum(floor, rest)
        _keep(draft, group, (), group.cost * height + 0.5 * group.curve * height**2)
        return group.columns
    if data == 2:
        return _two_sided(draft, group, floor, rest)
    draft.notes.append("the square of a maximum of more than two pieces is not a loss of the table")
    return np.zeros(0, dtype=np.intp)


def _keep(draft: Draft, group: Group, terms: tuple[Index, ...], constant: Array) -> None:
    draft.constant += float(constant.sum())
    draft.steps.append(
        Bent(
            group.columns,
            group.needs,
            group.cost,
            group.curve,
            group.pieces,
            group.constant,
            terms,
        )
    )


def _one_sided(draft: Draft, group: Group, rest: Array) -> None:
    """``rho/2 (t + c/rho)^2`` above its own minimum: a squared hinge."""
    if not len(rest):
        return
    terms = draft.terms.add(group.pieces[0], b=-rest, q=1.0 / group.curve, lo=-np.inf)
    _keep(draft, group, (terms,), -0.5 * group.curve * rest**2)


def _lifted(draft: Draft, group: Group, floor: Array, rest: Array) -> None:
    """The constant piece lies above the minimum: a squared hinge and a hinge from there."""
    if not len(rest):
        return
    height = floor - rest
    square = draft.terms.add(group.pieces[0], b=-floor, q=1.0 / group.curve, lo=-np.inf)
    line = draft.terms.add(group.pieces[0], b=-floor, lo=-group.curve * height)
    _keep(draft, group, (square, line), 0.5 * group.curve * (height**2 - rest**2))


def _two_sided(draft: Draft, group: Group, floor: Array, rest: Array) -> Index:
    """Opposite pieces that are never both above the minimum: a squared distance."""
    pair = Group(
        group.columns,
        group.needs,
        group.cost,
        group.curve,
        group.pieces[:2],
        group.prints[:, :2],
        group.offsets[:, :2],
        False,
    )
    ratio, _, fits = pair.parallel()
    opposite = (ratio[:, 0] == -ratio[:, 1]) & (np.abs(ratio[:, 0]) == 1.0)
    left = -rest
    right = group.offsets[:, :2].sum(axis=1) + rest
    scale = np.abs(left) + np.abs(right)
    apart = left <= right + 1e-12 * scale
    good = fits & opposite & apart & (floor <= rest)
    if not good.all():
        draft.notes.append("the square of a maximum of two such pieces is not a loss of the table")
    part = group.take(good)
    if good.any():
        b, e = (left + right)[good] / 2, np.maximum(right - left, 0.0)[good] / 2
        terms = draft.terms.add(
            part.pieces[0], b=b, e=e, q=1.0 / part.curve, lo=-np.inf, hi=np.inf
        )
        _keep(draft, part, (terms,), -0.5 * part.curve * rest[good] ** 2)
    return part.columns


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
    """Put the only upper bound of a cone's epigraph column in the column's place.

    Growing the column must never leave the cone: its coefficients form a point of the cone, as for
    the head of a norm, or for ``t`` in the cone of ``sum_squares(w) <= t``.
    """
    tally = census(draft)
    sparse = draft.standard.rows.sparse
    free = (tally.cone > 0) & (tally.zero == 0) & ~tally.dense & ~tally.crossed & ~draft.gone
    free &= (tally.square == 0) & (draft.linear == 0)
    free &= (tally.positive == 0) & (tally.negative == 1)
    columns = np.flatnonzero(free)
    if not len(columns):
        return
    cone_of = np.full(sparse.shape[0], -1)
    for k, cone in enumerate(draft.standard.cones):
        cone_of[cone.rows] = k if cone.kind == "soc" else -1
    inside = sp.csc_array(draft.open @ sparse)[:, columns]
    entries = sp.csc_array(sparse[:, columns])
    dropped, lifts = [], []
    for k, column in enumerate(columns):
        place = int(inside.indices[inside.indptr[k]])
        weights = draft.open[[place]]
        span = slice(entries.indptr[k], entries.indptr[k + 1])
        rows, data = entries.indices[span], entries.data[span]
        if len(weights.indices) != 1 or place in dropped:
            continue
        bound = int(weights.indices[0])
        within = rows != bound
        held = np.unique(cone_of[rows[within]])
        if len(held) != 1 or held[0] < 0:
            continue
        head = rows[within] == draft.standard.cones[held[0]].rows.start
        if data[within][head].sum() < np.linalg.norm(data[within][~head]):
            continue
        factor = float(data[~within][0])
        lifts += [
            (float(value) / -factor, int(row), bound)
            for row, value in zip(rows[within], data[within], strict=True)
        ]
        dropped.append(place)
        draft.gone[column] = True
        where = np.array([column])
        needs = without(sparse[[bound]], where)
        draft.steps.append(Bound(where, needs, np.array([bound]), np.array([factor])))
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
        draft.quadratic = cleared(draft.quadratic, np.array([column]))
        draft.add_square(draft.standard.rows.combine(draft.heads[tail]), weight)
        draft.used[cone.rows] = True
        draft.gone[column] = True
        needs = sp.csr_array(np.ones((1, count))) @ abs(sparse[tail])
        head = draft.heads[[cone.rows.start]]
        where = np.array([column])
        draft.steps.append(SquaredHead(where, sp.csr_array(needs), head, tail, scale, rho))


MANY = 1000
"""A maximum of more pieces is not looked at, where maxima of any data are."""

SEED = 20130617
"""Of the random points that tell parallel rows apart."""


@dataclass(frozen=True, eq=False)
class Nested:
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


def nest(draft: Draft) -> None:
    """Chain the bounds of columns that only pass a bound on."""
    while _nest_once(draft):
        pass


def _nest_once(draft: Draft) -> bool:
    """Chain the columns that may be chained now.

    CVXPY's helpers always may (``abs(w) <= 1``), the user's only below one other column
    (``s <= t``): a data column with a single upper bound is better left alone. Sums of helpers
    (``norm1(w) <= 1``) would need a row for every choice of signs, so an upper row with two of them
    is left alone too.
    """
    tally = census(draft)
    passing = ~draft.gone & ~tally.data & (tally.zero == 0) & (tally.cone == 0) & ~tally.crossed
    passing &= (tally.square == 0) & (draft.linear == 0)
    passing &= (tally.negative == 1) & (tally.positive >= 1)
    passing &= ~tally.own | (tally.positive <= FEW)
    if not passing.any():
        return False
    inside = sp.csr_array(draft.open @ draft.standard.rows.sparse)
    dense = np.asarray(abs(draft.open) @ draft.standard.rows.dense_rows()) > 0
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
    chained = draft.open[upper[owner]] + diagonal(fall[owner] / rise) @ draft.open[low]
    order = np.argsort(owner, kind="stable")
    names, start, counts = np.unique(owner[order], return_index=True, return_counts=True)
    for count in np.unique(counts):
        group, begin = names[counts == count], start[counts == count]
        spot = order[begin[:, None] + np.arange(count)]
        pieces = tuple(
            sp.csr_array(diagonal(1.0 / rise[spot[:, k]]) @ draft.open[low[spot[:, k]]])
            for k in range(count)
        )
        draft.steps.append(Nested(group, _pattern(low[spot], inside, group), pieces))
    draft.gone[names] = True
    rest = draft.open[np.setdiff1d(np.arange(draft.open.shape[0]), rows)]
    draft.open = sp.csr_array(sp.vstack([rest, chained], format="csr"))


def _owners(draft: Draft, tally: Census, inside: Any) -> Index:
    """Columns that own their rows; see the module's docstring."""
    able = ~draft.gone & ~tally.data & (tally.zero == 0) & (tally.cone == 0) & ~tally.crossed
    most = MANY if draft.beside else FEW
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


def fold(draft: Draft) -> None:
    """Turn every epigraph column into a loss term, and its rows into the term's pieces."""
    tally = census(draft)
    inside = sp.csr_array(draft.open @ draft.standard.rows.sparse)
    columns = _owners(draft, tally, inside)
    if not len(columns):
        return
    folded = [
        fold_squares(draft, group) if group.curve[0] > 0 else kinks.fold(draft, group)
        for group in _groups(draft, tally, inside, columns)
    ]
    done = np.concatenate([np.zeros(0, dtype=np.intp), *folded])
    held = np.zeros(draft.standard.size)
    held[done] = 1.0
    draft.gone[done] = True
    draft.open = draft.open[np.flatnonzero(np.asarray(abs(inside) @ held) == 0)]


def _groups(draft: Draft, tally: Census, inside: Any, columns: Index) -> Iterator[Group]:
    """The epigraph columns by number of pieces, constants and curvature."""
    rows = draft.standard.rows
    points = np.random.default_rng(SEED).standard_normal((draft.standard.size, 3))
    points[columns] = 0.0
    prints = np.asarray(draft.open @ rows.apply(points))
    offsets = np.asarray(draft.open @ rows.offset)
    dense = np.asarray(abs(draft.open) @ draft.standard.rows.dense_rows()) > 0
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
            images = prints[at]
            images /= scale[:, :, None]
            if width > count:
                images[:, -1] = 0.0
            yield Group(
                columns=index[here],
                needs=_pattern(at, inside, index[here]),
                cost=draft.linear[index[here]],
                curve=tally.square[index[here]],
                pieces=group,
                prints=images,
                offsets=offsets[at] / scale,
                constant=width > count,
            )


def _scaled_rows(draft: Draft, place: Index, factor: Any) -> tuple[Any, ...]:
    """The rows of each column, scaled so that the column has coefficient 1."""
    return tuple(
        sp.csr_array(diagonal(1.0 / factor[:, k]) @ draft.open[place[:, k]])
        for k in range(place.shape[1])
    )
