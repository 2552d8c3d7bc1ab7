"""Losses from epigraph columns: ``t`` costs something and is only ever bounded from below.

A column is an epigraph column if its objective is ``c t + rho/2 t^2`` with ``c, rho >= 0``, no
equality and no cone holds it, every inequality that it occurs in bounds it from below, and it is
the only such column in those rows. CVXPY's own helpers are taken first, then the user's columns
with a linear cost (slacks), then whole variables with a square (squared slacks). At the optimum
``t`` is its largest lower bound, so the column is a loss of what bounds it.

In the order in which `recognise` calls them: `take_groups` (losses that were read off the objective
already), `chain_bounds` (columns in between: ``pos(abs(e) - eps)`` bounds ``t`` by a helper that is
bounded by ``e`` and ``-e``, so every lower bound is chained with the upper one), `fold_epigraphs`
with its two kinds of columns, `take_many_inequalities` and, on all terms, `join_opposite_hinges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.recognise.draft import (
    FEW_ROWS,
    ColumnCounts,
    Draft,
    Duals,
    GroupTerms,
    Pairing,
    Step,
    count_columns,
)
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import envelope
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, diagonal, rows_of, some_entries
from cvxscreen.cvxpy_plugin.recognise.max_affine import keep_maximum
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.size import MANY_ROWS

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


MANY_SUMS = 100
"""Rows ``abs(u) + abs(v) <= t`` from which on each of them becomes four."""

MOST_LINKS = 12
"""Bounds that are passed on from one helper to the next: those of a running maximum of 3,000 values
took 31 s, one link after the other, and end in no loss."""

MOST_LINES, MOST_PIECES = 12, 1000
"""A maximum of more pieces is not looked at; the second where maxima of any data are."""

PARALLEL_SEED = 20130617
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
    most = MOST_PIECES if draft.composite else MOST_LINES
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
    points = np.random.default_rng(PARALLEL_SEED).standard_normal((draft.standard.size, 3))
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
        squared = tally.square[index] > 0
        for shape in np.flatnonzero(np.bincount(2 * data + squared)):
            count, curved = divmod(int(shape), 2)
            here = (data == count) & (squared == curved)
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
    for _ in range(MOST_LINKS):
        if not _chain_once(draft):
            break


def _chain_once(draft: Draft) -> bool:
    """Chain the columns that may be chained now.

    CVXPY's helpers always may (``abs(w) <= 1``), the user's only below one other column
    (``s <= t``): a data column with a single upper bound is better left alone. Sums of helpers
    (``norm1(w) <= 1``) would need a row for every choice of signs, so an upper row with two of them
    is left alone too, but where there are many (``abs(u) + abs(v) <= t``): four rows take the place
    of five then, one helper after the other.
    """
    tally = count_columns(draft)
    passing = (
        ~draft.eliminated & ~tally.data & (tally.zero == 0) & (tally.cone == 0) & ~tally.crossed
    )
    passing &= (tally.square == 0) & (draft.linear == 0) & (tally.arguments == 0)
    pair = ~tally.own & (tally.positive == 2)
    passing &= (tally.negative == 1) & (tally.positive >= 1) | pair & (tally.negative == 2)
    passing &= ~tally.own | (tally.positive <= FEW_ROWS)
    if not passing.any():
        return False
    inside = sp.csr_array(draft.inequalities @ draft.standard.rows.sparse)
    dense = np.asarray(abs(draft.inequalities) @ draft.standard.rows.dense_rows()) > 0
    entries = sp.csc_array(inside)[:, np.flatnonzero(passing)].tocoo()
    columns, rows = np.flatnonzero(passing)[entries.col], entries.row
    down = entries.data < 0
    rising = np.asarray(sp.csr_array(inside > 0).sum(axis=1)).ravel() == 1
    below_one = (np.diff(inside.indptr) == 2) & ~dense & rising
    alone = np.bincount(rows, minlength=len(dense)) == 1
    chosen = passing.copy()
    chosen[columns[down & ~alone[rows]]] = False
    chosen[columns[down & tally.own[columns] & ~below_one[rows]]] = False
    chosen |= _first_of_two(passing & pair, columns[down], rows[down], len(dense))
    # No row may belong to two of them.
    uses = np.bincount(rows[chosen[columns]], minlength=len(dense))
    chosen[columns[(uses[rows] > 1) & chosen[columns]]] = False
    if chosen.any():
        keep = chosen[columns]
        _chain(draft, inside, columns[keep], rows[keep], entries.data[keep])
    return bool(chosen.any())


def _first_of_two(pair: Mask, columns: Index, rows: Index, count: int) -> Mask:
    """The first of two helpers in each of `count` rows that hold two, where many rows do.

    `columns` and `rows` are the places in which columns that may be chained fall.
    """
    out = np.zeros(len(pair), dtype=bool)
    order = np.lexsort((columns, rows))
    columns, rows = columns[order], rows[order]
    held = np.bincount(rows, minlength=count)
    two = (held == 2) & (np.bincount(rows, pair[columns], minlength=count) == 2)
    first = np.flatnonzero(two[rows])[::2]
    if len(first) >= MANY_SUMS:
        out[columns[first]] = True
    return out


def _chain(draft: Draft, inside: Any, columns: Index, rows: Index, data: Any) -> None:
    """Replace the rows of each column by its upper bounds plus multiples of the lower ones.

    Parameters
    ----------
    columns, rows, data : arrays, shape (k,)
        The entries of the chosen columns.
    """
    down = data < 0
    low, owner, rise = rows[~down], columns[~down], data[~down]
    below, above = _pairs(owner, columns[down])
    fall = -data[down][above]
    chained = draft.inequalities[rows[down][above]] + (
        diagonal(fall / rise[below]) @ draft.inequalities[low[below]]
    )
    order = np.argsort(owner, kind="stable")
    names, start, counts = np.unique(owner[order], return_index=True, return_counts=True)
    for count in np.unique(counts):
        group, begin = names[counts == count], start[counts == count]
        spot = order[begin[:, None] + np.arange(count)]
        each = spot.ravel()
        pieces = sp.csr_array(diagonal(1.0 / rise[each]) @ draft.inequalities[low[each]])
        draft.steps.append(ChainedBounds(group, _pattern(low[spot], inside, group), pieces))
    draft.eliminated[names] = True
    rest = draft.inequalities[np.setdiff1d(np.arange(draft.inequalities.shape[0]), rows)]
    draft.inequalities = sp.csr_array(sp.vstack([rest, chained], format="csr"))


def _pairs(first: Index, second: Index) -> tuple[Index, Index]:
    """Positions in `first` and in `second` of all pairs of equal entries."""
    order = np.argsort(second, kind="stable")
    start = np.searchsorted(second[order], first)
    count = np.searchsorted(second[order], first, side="right") - start
    begin = np.repeat(start - np.cumsum(count) + count, count)
    return np.repeat(np.arange(len(first)), count), order[begin + np.arange(len(begin))]


class ChainedBounds(Step, Immutable):
    """Columns at the largest of their lower bounds; their multipliers come with the chained rows.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    lower : CSR array, shape (g k, m)
        Rows ``column - p`` as combinations of raw rows, the k of each column one after the other.
    """

    columns: Index
    needs: Any
    lower: Any

    def primal(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Step.primal`."""
        return np.asarray(-(self.lower @ values)).reshape(len(self.columns), -1).max(axis=1)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: nothing to add."""


def _pattern(rows: Index, inside: Any, columns: Index) -> Any:
    """The columns that some rows hold, but for `columns`; rows of shape (g, k) are united."""
    count, k = rows.shape
    unite = sp.csr_array((np.ones(rows.size), np.arange(rows.size), k * np.arange(count + 1)))
    out = sp.csr_array(unite @ abs(inside[rows.ravel()])).tocoo()
    keep = out.col != columns[out.row]
    return sp.csr_array((out.data[keep], (out.row[keep], out.col[keep])), shape=out.shape)


# -- columns with a linear cost --------------------------------------------------------------------
#
# Epigraph columns with a linear cost: ``c t`` over ``t >= p_1, ..., t >= p_k``.
#
# At the optimum ``t`` is the largest piece, so the column is the loss ``c max_k p_k``. Pieces that
# are affine functions of one argument ``u`` give, after dominated ones are left out,
#
# - one piece: a linear term;
# - two pieces: a hinge, an absolute value or a pinball loss around their crossing;
# - three pieces: the same with a dead zone between the two crossings;
# - more: the inner ones so, and for every two kinks further out a loss with a dead zone between.
#
# Two pieces that are not parallel give a hinge on their difference, and so do each of two that are
# never both above a third one where bounds of columns hold (``max(e - s, -e - s, 0)`` with
# ``s >= 0``). What slope zero cannot represent goes to the linear part of the objective.


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
    counts = active.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        index = np.flatnonzero(counts == count)
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
    return np.concatenate([np.zeros(0, dtype=np.intp), *done])


def _lines(
    draft: Draft,
    group: EpigraphGroup,
    order: Index,
    slopes: Array,
    heights: Array,
    reference: Index,
) -> None:
    """Fold columns with the active lines ``slope u + height``, slopes increasing.

    Kinks pair up from outside, each pair around a stretch in which the one in the middle lies.
    """
    cost, count = group.cost, slopes.shape[1]
    weights = argument(group, reference)
    with np.errstate(invalid="ignore"):
        kinks = (heights[:, :-1] - heights[:, 1:]) / np.diff(slopes, axis=1)
    middle = (count - 1) // 2
    base, level = slopes[:, middle], heights[:, middle]
    terms: list[Index] = []
    if count % 2 == 0:
        kink, low, high = kinks[:, middle], slopes[:, middle], slopes[:, middle + 1]
        base = np.clip(0.0, low, high)
        level = low * kink + level - base * kink
        sides = cost * (low - base), cost * (high - base)
        terms.append(_add_costly(draft, cost, weights, kink, 0.0 * kink, *sides))
    for left in range((count - 1) // 2):
        right = count - 2 - left
        low, high = kinks[:, left], kinks[:, right]
        sides = (
            cost * (slopes[:, left] - slopes[:, left + 1]),
            cost * (slopes[:, right + 1] - slopes[:, right]),
        )
        terms.append(
            _add_costly(draft, cost, weights, (low + high) / 2, (high - low) / 2, *sides)
        )
    draft.loss_slope += weights.T @ (cost * base)
    draft.constant += float(cost @ level)
    draft.steps.append(
        PiecewiseLinear(
            group.columns, group.needs, cost, group.pieces, order, slopes, base, tuple(terms)
        )
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
    if len(group.pieces) == 3:
        apart = _one_above_at_most(draft, group)
        if len(apart):
            rest = group.take(~np.isin(group.columns, apart))
            return np.concatenate([apart, _difference(draft, rest)])
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
        (terms,),
    )
    draft.steps.append(step)
    return group.columns


def _one_above_at_most(draft: Draft, group: EpigraphGroup) -> Index:
    """Three pieces of which two are never both above the third one p: two hinges, and ``c p``.

    That is so where ``2 p - p_1 - p_2`` is not negative, all data cancel in it but some single
    columns, and bounds of these say so. Returns the columns that were folded.
    """
    standard, done = draft.standard, []
    lower, upper, bounds = _column_bounds(draft)
    points = np.random.default_rng(PARALLEL_SEED).standard_normal((standard.size, 3))
    for base in (2, 1, 0):
        first, second = (k for k in range(3) if k != base)
        images = group.fingerprints
        above = images[:, first] + images[:, second] - 2.0 * images[:, base]
        level = group.offsets[:, first] + group.offsets[:, second] - 2.0 * group.offsets[:, base]
        weights = group.pieces[first] + group.pieces[second] - 2.0 * group.pieces[base]
        inside = sp.csr_array(weights @ standard.rows.sparse)
        size = np.abs(images).max(axis=(1, 2))
        inside = some_entries(inside, np.abs(inside.data) > CLOSE * size[rows_of(inside)])
        ends = np.where(inside.data > 0, lower[inside.indices], upper[inside.indices])
        least = level + np.bincount(rows_of(inside), inside.data * ends, len(level))
        rounding = CLOSE * np.abs(group.offsets).max(axis=1)
        fits = np.abs(above - inside @ points).max(axis=1) <= CLOSE * size
        fits &= (least >= -rounding) & ~draft.eliminated[inside.indices].any()
        if fits.any():
            part, place = group.take(fits), inside[np.flatnonzero(fits)]
            pieces = tuple(part.pieces[k] for k in (base, first, second))
            terms = tuple(draft.terms.add(p - pieces[0], b=0.0, lo=-part.cost) for p in pieces[1:])
            draft.loss_slope -= pieces[0].T @ part.cost
            used = np.unique(place.indices)
            draft.steps.append(
                OneAboveAtMost(
                    part.columns, part.needs, part.cost, pieces, terms, place, used,
                    lower[used], upper[used], bounds,
                )
            )
            done.append(part.columns)
            group = group.take(~fits)
    return np.concatenate([np.zeros(0, dtype=np.intp), *done])


def _column_bounds(draft: Draft) -> tuple[Array, Array, Any]:
    """Lower and upper bounds of single columns, shape (N,), and their rows, shape (2 N, m).

    The rows are scaled to coefficients 1 and -1, lower bounds first; without entries where there is
    no bound.
    """
    rows, size = draft.standard.rows, draft.standard.size
    inside = sp.csr_array(draft.inequalities @ rows.sparse)
    inside.eliminate_zeros()
    dense = np.asarray(abs(draft.inequalities) @ rows.dense_rows()) > 0
    single = np.flatnonzero((np.diff(inside.indptr) == 1) & ~dense)
    column, factor = inside.indices[inside.indptr[single]], inside.data[inside.indptr[single]]
    ends = -np.asarray(draft.inequalities @ rows.offset)[single] / factor
    place = np.where(factor > 0, column, size + column)
    order = np.lexsort((np.where(factor > 0, -ends, ends), place))  # the tightest first
    place, best = np.unique(place[order], return_index=True)
    best = order[best]
    found = np.concatenate([np.full(size, -np.inf), np.full(size, np.inf)])
    found[place] = ends[best]
    scaled = diagonal(1.0 / np.abs(factor[best])) @ draft.inequalities[single[best]]
    lift = sp.csr_array(
        (np.ones(len(place)), (place, np.arange(len(place)))), shape=(2 * size, len(place))
    )
    return found[:size], found[size:], sp.csr_array(lift @ scaled)


class EpigraphLosses(Step):
    """Epigraph columns whose maxima are loss terms; base of steps."""

    cost: Array
    terms: tuple[Index, ...]

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        none = [] if self.terms else [np.full(len(self.columns), -1, dtype=np.intp)]
        return [(self.columns, terms) for terms in [*self.terms, *none]]

    def times(self, ratio: Array) -> Self:
        """See `Step.times`."""
        return replace(cast(Any, self), cost=self.cost * ratio[self.columns])  # a dataclass


class OneAboveAtMost(EpigraphLosses, Immutable):
    """``t = max(p, p_1, p_2)`` where bounds of columns keep ``p_1 + p_2 <= 2 p``; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost : array, shape (g,)
    pieces : tuple of CSR array, each of shape (g, m)
        Of p, p_1 and p_2.
    terms : tuple of array of int, each of shape (g,)
        Positions of the hinges of p_1 and p_2 above p.
    apart : CSR array, shape (g, N)
        ``2 p - p_1 - p_2``, constants aside.
    bounded : array of int, shape (k,)
        The columns that occur in it.
    lower, upper : array, shape (k,)
        Their bounds.
    bounds : CSR array, shape (2 N, m)
        The rows of the bounds; see `_column_bounds`.
    """

    columns: Index
    needs: Any
    cost: Array
    pieces: tuple[Any, ...]
    terms: tuple[Index, ...]
    apart: Any
    bounded: Index
    lower: Array
    upper: Array
    bounds: Any

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.max([-(piece @ values) for piece in self.pieces], axis=0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: where both hinges pull by more than the cost, bounds take the rest."""
        first, second = (-duals.theta[index] for index in self.terms)
        over = 0.5 * np.maximum(first + second - self.cost, 0.0)
        first, second = first - over, second - over
        shares = (self.cost - first - second, first, second)
        for piece, share in zip(self.pieces, shares, strict=True):
            duals.rows += piece.T @ share
        sides = self.apart.maximum(0.0), (-self.apart).maximum(0.0)
        duals.rows += self.bounds.T @ np.concatenate([side.T @ over for side in sides])

    def within(self, core: Index, x: Array) -> Array:
        """See `Step.within`: a loss only within the bounds of the columns."""
        out, place = x.copy(), np.searchsorted(self.bounded, core)
        for at, k in enumerate(place):
            if k < len(self.bounded) and self.bounded[k] == core[at]:
                low, high = self.lower[k], self.upper[k]
                near = low + abs(x[at] - low) if np.isfinite(low) else high - abs(high - x[at])
                out[at] = np.clip(near, low, high)
        return out


def argument(group: EpigraphGroup, reference: Index) -> Any:
    """The reference piece of each column as a combination of rows, shape (g, m)."""
    out = diagonal(np.where(reference == 0, 1.0, 0.0)) @ group.pieces[0]
    for k, piece in enumerate(group.pieces[1:], 1):
        if (reference == k).any():
            out = out + diagonal(np.where(reference == k, 1.0, 0.0)) @ piece
    return sp.csr_array(out)


class EpigraphGroup(Immutable):
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


class PiecewiseLinear(EpigraphLosses, Immutable):
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
    terms : tuple of array of int, each of shape (g,)
        Positions of the loss terms; -1 where there is none.
    """

    columns: Index
    needs: Any
    cost: Array
    pieces: tuple[Any, ...]
    order: Index
    slopes: Array
    base: Array
    terms: tuple[Index, ...]

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
        slope = self.cost * self.base
        for index in self.terms:
            slope = slope + np.where(index >= 0, theta[index], 0.0)
        at = np.arange(g)
        left = (slope[:, None] > self.cost[:, None] * self.slopes[:, 1:-1]).sum(axis=1)
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


# -- columns with a square -------------------------------------------------------------------------
#
# Epigraph columns with a square: ``c t + rho/2 t^2`` over ``t >= p_1, ...`` (squared slacks).
#
# Without any row the column would sit at ``-c/rho``; that is one more constant piece. Above it the
# column is a squared hinge of its piece, with a hinge on top where a constant piece lies higher;
# two opposite pieces give a squared distance with a dead zone.


def fold_quadratic(draft: Draft, group: EpigraphGroup) -> Index:
    """Turn a group with curvature into loss terms; returns the columns that were folded."""
    rest = -group.cost / group.curve
    floor = -group.offsets[:, -1] if group.constant else np.full(len(rest), -np.inf)
    data = len(group.pieces) - int(group.constant)
    if data == 1:
        above = floor > rest
        _one_sided(draft, group.take(~above), rest[~above])
        _above_a_floor(draft, group.take(above), floor[above], rest[above])
        return group.columns
    if data == 0:
        height = np.maximum(floor, rest)
        _keep(draft, group, (), group.cost * height + 0.5 * group.curve * height**2)
        return group.columns
    if data == 2:
        return _two_sided(draft, group, floor, rest)
    draft.notes.append("the square of a maximum of more than two pieces is not a loss of the table")
    return np.zeros(0, dtype=np.intp)


def _one_sided(draft: Draft, group: EpigraphGroup, rest: Array) -> None:
    """``rho/2 (t + c/rho)^2`` above its own minimum: a squared hinge."""
    if not len(rest):
        return
    terms = draft.terms.add(group.pieces[0], b=-rest, q=1.0 / group.curve, lo=-np.inf)
    _keep(draft, group, (terms,), -0.5 * group.curve * rest**2)


def _above_a_floor(draft: Draft, group: EpigraphGroup, floor: Array, rest: Array) -> None:
    """The constant piece lies above the minimum: a squared hinge and a hinge from there."""
    if not len(rest):
        return
    height = floor - rest
    square = draft.terms.add(group.pieces[0], b=-floor, q=1.0 / group.curve, lo=-np.inf)
    line = draft.terms.add(group.pieces[0], b=-floor, lo=-group.curve * height)
    _keep(draft, group, (square, line), 0.5 * group.curve * (height**2 - rest**2))


def _two_sided(draft: Draft, group: EpigraphGroup, floor: Array, rest: Array) -> Index:
    """Opposite pieces that are never both above the minimum: a squared distance."""
    pair = EpigraphGroup(
        group.columns,
        group.needs,
        group.cost,
        group.curve,
        group.pieces[:2],
        group.fingerprints[:, :2],
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


def _keep(draft: Draft, group: EpigraphGroup, terms: tuple[Index, ...], constant: Array) -> None:
    draft.constant += float(constant.sum())
    draft.steps.append(
        PiecewiseQuadratic(
            group.columns,
            group.needs,
            group.cost,
            group.curve,
            group.pieces,
            group.constant,
            terms,
        )
    )


class PiecewiseQuadratic(EpigraphLosses, Immutable):
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

    def times(self, ratio: Array) -> Self:
        """See `Step.times`."""
        return replace(super().times(ratio), curve=self.curve * ratio[self.columns])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the pieces with data take the slope, the constant one what is left."""
        total = self.cost + self.curve * duals.z[self.columns]
        data = self.pieces[:-1] if self.constant else self.pieces
        slope = sum((duals.theta[index] for index in self.terms), np.zeros(len(self.columns)))
        shares = [np.maximum(-slope, 0.0), np.maximum(slope, 0.0)][: len(data)]
        for piece, share in zip(data, shares, strict=True):
            duals.rows += piece.T @ share
            total = total - share
        if self.constant:
            duals.rows += self.pieces[-1].T @ np.maximum(total, 0.0)


# -- constraints as terms --------------------------------------------------------------------------
#
# Rows of ``A x <= b`` as terms, where there are many of them.
#
# An inequality is a loss with an infinite slope: 0 up to its end, infinite beyond it
# (`Losses.hard`). A row that is not active is then a term on its zero piece, and is left out like
# any other. What is only a handful of rows beside the losses, or bounds of single coordinates,
# stays a side constraint.


def take_many_inequalities(draft: Draft) -> None:
    """Turn the inequalities that hold data into terms, if there are many of them."""
    rows = draft.standard.rows
    open_rows = draft.inequalities
    coordinates = int(np.count_nonzero(~draft.eliminated))
    if open_rows.shape[0] <= MANY_ROWS * coordinates:
        return
    dense = np.asarray(abs(open_rows) @ rows.dense_rows()) > 0
    inside = sp.csr_array(open_rows @ rows.sparse)
    inside.eliminate_zeros()
    data = dense | (np.diff(inside.indptr) > 1)
    index = np.flatnonzero(data)
    if len(index) <= MANY_ROWS * coordinates:
        return
    weights = sp.csr_array(-open_rows[index])
    terms = draft.terms.add(weights, b=0.0, lo=0.0, hi=np.inf)
    nothing = np.zeros(0, dtype=np.intp), sp.csr_array((0, draft.standard.size))
    draft.steps.append(InequalityTerms(*nothing, weights, terms))
    draft.inequalities = open_rows[np.flatnonzero(~data)]


class InequalityTerms(Step, Immutable):
    """Inequalities that became terms; no column is eliminated. See `Step`.

    Attributes
    ----------
    columns : array of int, shape (0,)
    needs : CSR array, shape (0, N)
    weights : CSR array, shape (k, m)
        The arguments as combinations of rows: ``-row(z) <= 0``.
    terms : array of int, shape (k,)
    """

    columns: Index
    needs: Any
    weights: Any
    terms: Index

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the slope of a term is the multiplier of its row."""
        duals.rows -= self.weights.T @ duals.theta[self.terms]

    def still_held(self) -> Index:
        """See `Step.still_held`: all of them."""
        return np.asarray(self.weights.indices)


# -- two hinges that are one loss ------------------------------------------------------------------
#
# Two hinges that look at one argument from both sides are one loss with a dead zone.
#
# ``c_1 max(0, l - t) + c_2 max(0, t - r)`` with ``l <= r`` is an epsilon-insensitive loss (pinball
# for ``l = r``), and so it is with two squares. This is what regression with two slack variables,
# and sums of ``pos(e)`` and ``neg(e)``, come to; together they are one term instead of two.


OPPOSITE_SEED = 19790401
"""Of the random points that tell opposite arguments."""

CLOSE = 1e-11
"""Images of opposite rows differ by rounding only: relative, some 1e4 units in the last place."""


def join_opposite_hinges(
    rows: Stack, numbers: Array, expressions: Sequence[Index] = ()
) -> tuple[Pairing, Array]:
    """Join opposite hinges.

    Parameters
    ----------
    rows : Stack, shape (found, N)
        Arguments of the terms found.
    numbers : array, shape (found, 5)
        Their five numbers.
    expressions : sequence of array of int
        Consecutive terms that come from one expression each: a loss with two sides that is written
        as one has been read as one, so that no pairs are looked for where all are of one.

    Returns
    -------
    Pairing
    array, shape (n, 5)
        The five numbers of the joined terms.
    """
    count = len(numbers)
    b, e, q, lo, hi = numbers.T
    plain = np.flatnonzero((e == 0) & (hi == 0) & (lo < 0))
    second = np.full(count, -1, dtype=np.intp)
    within_one = any(
        len(index) and index[0] <= plain[0] and plain[-1] <= index[-1]
        for index in (expressions if len(plain) else ())
    )
    if len(plain) > 1 and not within_one:
        points = np.random.default_rng(OPPOSITE_SEED).standard_normal((rows.shape[1], 3))
        left, right = _opposite(plain, rows.apply(points)[plain])
        apart = (b[left] <= -b[right]) & (q[left] == q[right])
        second[left[apart]] = right[apart]
    if not (second >= 0).any():
        return Pairing(np.arange(count), second, count), numbers
    taken = np.zeros(count, dtype=bool)
    taken[second[second >= 0]] = True
    first = np.flatnonzero(~taken)
    joined, other = numbers[first].copy(), second[first]
    both = other >= 0
    near, far = numbers[first[both], 0], -numbers[other[both], 0]
    joined[both, 0], joined[both, 1] = (near + far) / 2, (far - near) / 2
    joined[both, 4] = -numbers[other[both], 3]
    return Pairing(first, other, count), joined


def _opposite(index: Index, images: Array) -> tuple[Index, Index]:
    """Neighbours by size whose images are each other's negative."""
    order = np.argsort(np.abs(images[:, 0]), kind="stable")
    sorted_images, names = images[order], index[order]
    size = np.abs(sorted_images).max(axis=1)
    gap = np.abs(sorted_images[1:] + sorted_images[:-1]).max(axis=1)
    match = (gap <= CLOSE * size[1:]) & (size[1:] > 0)
    # Every term belongs to one pair at most: take every other one of a run of matches.
    run = np.flatnonzero(match)
    keep: list[int] = []
    for place in run:
        if not keep or place > keep[-1] + 1:
            keep.append(int(place))
    spot = np.array(keep, dtype=np.intp)
    one, two = names[spot], names[spot + 1]
    return np.minimum(one, two), np.maximum(one, two)
