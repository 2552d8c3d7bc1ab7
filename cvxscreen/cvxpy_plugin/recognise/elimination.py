"""Columns that are removed for good: by an equality, in closed form, or by minimising over them.

- `eliminate` substitutes what one equality defines.
- `find_split_variables` and `fold_split_variables`: two bounded columns of opposite sign in one
  equality are one loss of the rest of the row.
- `minimise_out`: what only one loss term sees smooths it, or gives it a dead zone.
- `substitute_bounds`: ``norm(v) <= T <= bound`` becomes ``norm(v) <= bound``.
- `square_norms`: ``rho/2 T^2`` with ``norm(v) <= T`` becomes ``rho/2 |v|^2`` (``norm(w, 2)**2``).
- `keep_squared_residuals`: beside an L1 norm and nothing else, squares of residuals are losses.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.cvxpy_plugin.recognise.draft import (
    FEW_ROWS,
    ColumnCounts,
    DefinedColumns,
    Draft,
    Duals,
    Elimination,
    Step,
    count_columns,
    stationarity,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import (
    Stack,
    cleared,
    diagonal,
    picked,
    rows_of,
    some_entries,
    without,
)
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.size import WIDE_COLUMNS, WIDE_SHARE
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


TALL = 4
"""Rows of squared residuals for every coordinate, and every other row of data, with which they are
the loss of a problem: with fewer, other terms may be what there is to leave out."""


_CHAIN = 10
"""Rounds of substitution at most. What people write takes six; a cumulative sum of n numbers takes
n, and each round goes through all rows (8,000 numbers: two minutes, where a solve takes 0.6 s)."""


# -- what one equality defines --------------------------------------------------------------------
#
# Columns that one equality defines are substituted everywhere.
#
# ``r == X @ w - y``, or the helper that CVXPY makes for ``sum_squares(X @ w)``. Rows are not
# touched: that a column stands for others is remembered (`ColumnCounts.indirect`) and resolved in
# the end.


def eliminate(draft: Draft, reserved: Mask) -> None:
    """Substitute every column that an equality row defines; rows in `reserved` are left alone."""
    for round_ in count():
        found = _definitions(draft, reserved)
        if found is None:
            return
        if round_ == _CHAIN:
            raise NotScreenable(
                f"more than {_CHAIN} variables are each defined by the one before, "
                f"{draft.standard.label(int(found.columns[0]))} among them, as in a cumulative sum "
                "(`cp.cumsum(X @ w)` is `np.cumsum(X, axis=0) @ w`)"
            )
        leave_out(draft, found)
        substitute(draft, found)


def leave_out(draft: Draft, found: Elimination) -> None:
    """Columns stand for what defines them from now on."""
    draft.eliminations.append(found)
    draft.steps.append(found)
    draft.used_rows[found.source] = True
    draft.eliminated[found.columns] = True


def _take_back(draft: Draft, found: Elimination) -> None:
    """As before `leave_out`, which came last."""
    draft.eliminations.pop()
    draft.steps.pop()
    draft.used_rows[found.source] = False
    draft.eliminated[found.columns] = False


def _definitions(draft: Draft, reserved: Mask) -> Elimination | None:
    """Equality rows with exactly one best column to eliminate.

    CVXPY's helpers come before the user's variables. Among helpers, those that others are bounded
    by come first (the residual of a Huber loss), then those that occur nowhere else (the argument
    of a square); among the user's, those without a square (residuals rather than features). Before
    all of them come outliers, ``o`` with an absolute value in ``h == y - X w - o``: what is left
    sees the square of ``h`` in that value alone, which makes it Huber's loss (`minimise_out`).
    """
    standard, tally = draft.standard, count_columns(draft)
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows & ~reserved)
    if not len(rows):
        return None
    block = sp.coo_array(standard.rows.sparse[rows])
    private = (tally.zero == 1) & ~tally.dense & ~draft.eliminated
    rows_of_others = tally.positive + tally.negative + tally.arguments
    private &= rows_of_others <= FEW_ROWS
    bare = (rows_of_others + tally.cone) == 0
    plain = (tally.square == 0) & ~tally.crossed
    link = plain & (draft.linear == 0) & (tally.negative > 0)
    score = np.where(tally.own, 1 + 4 * plain + 2 * bare, 10 + 8 * link + 4 * bare + 2 * plain)
    outliers = private & link & tally.own & (tally.positive == 1) & (tally.negative == 1)
    if outliers.any():
        squared = _one_a_square(block, outliers, private & (tally.square > 0))
        data = standard.rows.counts()[rows[squared]] > 2
        if 2 * np.count_nonzero(data) > len(data):
            score[block.col[outliers[block.col] & np.isin(block.row, squared)]] = 20
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


def _one_a_square(block: Any, some: Mask, squared: Mask) -> Index:
    """The rows that define a squared column, where each of these has just one of `some`; else none.

    Parameters
    ----------
    block : COO array, shape (k, N)
        Rows.
    some, squared : mask, shape (N,)
        Columns.
    """
    count = block.shape[0]
    found = np.flatnonzero(np.bincount(block.row[squared[block.col]], minlength=count))
    alone = np.bincount(block.row[some[block.col]], minlength=count)[found]
    return found if (alone == 1).all() else found[:0]


def substitute(draft: Draft, found: Elimination) -> None:
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
    draft.quadratic = cleared(draft.quadratic, columns)
    draft.linear[columns] = 0.0
    draft.linear = draft.linear + given.adjoint(slope)
    draft.constant += float(slope @ given.offset)
    for part in (np.flatnonzero(curved & heavy), np.flatnonzero(curved & ~heavy)):
        if len(part):
            select = sp.csr_array(sp.eye_array(len(columns), format="csr"))[part]
            draft.add_square(given.combine(select), sp.csr_array(inside[part][:, part]))


# -- differences of two bounded columns -----------------------------------------------------------
#
# Two bounded columns of opposite sign in one equality are one loss of the rest of the row.
#
# ``u - v = e`` with ``u, v`` bounded below and costs ``c_u u + c_v v`` is a pinball loss of ``e``
# (absolute value, quantile and hinge in the form that linear programs are written in).


def find_split_variables(draft: Draft) -> SplitVariables:
    """Equality rows of this shape."""
    standard = draft.standard
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows)
    if not len(rows):
        return SplitVariables(*np.zeros((3, 0), dtype=np.intp))
    tally = count_columns(draft)
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


class SplitVariables(Immutable):
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


def _inequalities(draft: Draft) -> tuple[Any, Mask]:
    """What the inequalities have in sparse columns, and whether they have dense ones as well."""
    rows = draft.standard.rows
    dense = np.asarray(abs(draft.inequalities) @ rows.dense_rows()) > 0
    return sp.csr_array(draft.inequalities @ rows.sparse), dense


def _bounded(draft: Draft) -> Mask:
    """Columns with an inequality row of their own, shape (N,)."""
    inside, dense = _inequalities(draft)
    single = (np.diff(inside.indptr) == 1) & ~dense
    out = np.zeros(draft.standard.size, dtype=bool)
    out[sp.csr_array(inside[single]).indices] = True
    return out


class SplitVariable(Step, Immutable):
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

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        up, down = np.split(self.columns, 2)
        return [(up, self.terms), (down, self.terms)]

    def times(self, ratio: Array) -> SplitVariable:
        """See `Step.times`."""
        factor = ratio[self.columns].reshape(2, -1)
        return replace(self, costs=self.costs * factor, base=self.base * factor[0])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the equality carries the slope, the bounds what the costs leave."""
        slope = duals.theta[self.terms] + self.base
        duals.rows[self.source] = slope / self.factor
        left = np.concatenate([self.costs[0] - slope, self.costs[1] + self.ratio * slope])
        duals.rows += self.bounds.T @ np.maximum(left, 0.0)


# -- what only one loss sees ----------------------------------------------------------------------
#
# Columns that only one loss term sees are minimised out: they smooth it or give it a dead zone.
#
# Let ``n`` occur in the argument ``y + gamma n`` of one loss ``g`` and nowhere else.
#
# - With ``rho/2 n^2`` in the objective, the minimum over ``n`` is the loss whose conjugate is
#   ``g* + gamma^2 / (2 rho) theta^2``: a Huber loss, a smoothed hinge.
# - With ``l <= n <= h`` it is the loss whose conjugate is ``g* + gamma max(l theta, h theta)`` up
#   to sign: a dead zone.


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
    done, whole = False, draft.standard.rows.sparse
    if not (draft.standard.cones or (np.bincount(whole.indices) == 1).any()):
        return numbers, done  # the rows are the arguments
    for rule in (_squared, _boxed):
        inside = without(picked(weights, whole), np.flatnonzero(draft.eliminated))
        uses = np.bincount(inside.indices, minlength=len(linear))
        tally = count_columns(draft)
        free = (uses == 1) & ~draft.eliminated & ~tally.dense & ~tally.crossed & (linear == 0)
        columns = rule(draft, tally, free, side)
        if len(columns):
            numbers = _minimise(draft, weights, numbers, inside, columns, tally.square[columns])
            done = True
    return numbers, done


def _squared(draft: Draft, tally: ColumnCounts, free: Mask, side: Stack) -> Index:
    held = np.bincount(side.sparse.indices, minlength=len(free)) > 0
    return _whole(draft, free & (tally.square > 0) & ~held)


def _boxed(draft: Draft, tally: ColumnCounts, free: Mask, side: Stack) -> Index:
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


class MinimisedOut(Step, Immutable):
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
    losses: LossTerms
    curve: Array
    low: Array
    high: Array
    bounds: Any
    stage: ClassVar[int] = 2

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        y = np.asarray(self.argument @ values)
        curved = self.curve > 0
        smooth = -self.factor * self.losses.slope(y) / np.where(curved, self.curve, 1.0)
        near = np.clip(y, self.losses.b - self.losses.e, self.losses.b + self.losses.e)
        moved = np.clip((near - y) / self.factor, self.low, self.high)
        return np.where(curved, smooth, moved)

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        return [(self.columns, self.terms)]

    def times(self, ratio: Array) -> MinimisedOut:
        """See `Step.times`."""
        factor = ratio[self.columns]
        return replace(self, losses=self.losses.weighted(factor), curve=self.curve * factor)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the bounds take what keeps the column from being stationary."""
        flat = np.flatnonzero(self.curve == 0)
        if len(flat):
            left = np.zeros(len(self.columns))
            left[flat] = stationarity(standard, duals, self.columns[flat])
            shares = np.concatenate([np.maximum(left, 0.0), np.maximum(-left, 0.0)])
            duals.rows += self.bounds.T @ shares


# -- second-order cones in closed form ------------------------------------------------------------


def substitute_bounds(draft: Draft) -> None:
    """Put the only upper bound of a cone's epigraph column in the column's place.

    Growing the column must never leave the cone: its coefficients form a point of the cone, as for
    the head of a norm, or for ``t`` in the cone of ``sum_squares(w) <= t``. Of several that share
    a bound, a budget for norms of blocks, each stays what holds its own.
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
    place = inside.indices[inside.indptr[:-1]]
    # The bound has to be one row of the problem, and nothing but one cone the rest of the column.
    one = np.diff(draft.inequalities.indptr)[place] == 1
    bound = draft.inequalities.indices[draft.inequalities.indptr[place]]
    entries = sp.csc_array(sparse[:, columns])
    row, data, of = entries.indices, entries.data, rows_of(entries.T)
    inner = row != bound[of]
    least, most = np.full(len(columns), len(cone_of)), np.full(len(columns), -1)
    np.minimum.at(least, of[inner], cone_of[row[inner]])
    np.maximum.at(most, of[inner], cone_of[row[inner]])
    one &= (least == most) & (most >= 0)
    head = row == np.array([cone.rows.start for cone in draft.standard.cones])[most[of]]
    at_head = np.bincount(of, data * (inner & head), len(columns))
    beyond = np.bincount(of, data**2 * (inner & ~head), len(columns))
    chosen = np.flatnonzero(one & (at_head >= np.sqrt(beyond)))
    shared = np.bincount(place[chosen], minlength=draft.inequalities.shape[0]) > 1
    chosen = chosen[~shared[place[chosen]]]
    if not len(chosen):
        return
    factor = np.zeros(len(columns))
    factor[of[~inner]] = data[~inner]
    lifted = inner & np.isin(of, chosen)
    at, source = row[lifted], bound[of[lifted]]
    value = -data[lifted] / factor[of[lifted]]
    shape = draft.current_rows.shape
    draft.current_rows = sp.csr_array(
        draft.current_rows + sp.csr_array((value, (at, source)), shape=shape)
    )
    left = np.ones(draft.inequalities.shape[0], dtype=bool)
    left[place[chosen]] = False
    draft.inequalities = draft.inequalities[np.flatnonzero(left)]
    columns, bound = columns[chosen], bound[chosen]
    draft.eliminated[columns] = True
    needs = sp.csr_array(sparse[bound])
    needs = some_entries(needs, needs.indices != columns[rows_of(needs)])
    draft.steps.append(ColumnAtBound(columns, bound, factor[chosen], needs))


class ColumnAtBound(DefinedColumns):
    """A column that sits at its only upper bound, which is part of the cone's head; see `Step`."""


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


class SquaredNorm(Step, Immutable):
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

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        if self.terms is None:
            return []
        return [(np.repeat(self.columns, len(self.terms)), self.terms)]

    def times(self, ratio: Array) -> SquaredNorm:
        """See `Step.times`."""
        return replace(self, rho=self.rho * float(ratio[self.columns[0]]))

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the cone's multiplier is ``rho / scale^2`` times (norm, -tail)."""
        if self.terms is None:
            slope = self.rho / self.scale**2 * standard.rows.values(duals.z)[self.tail]
        else:
            slope = duals.theta[self.terms]
        duals.rows += self.head.T @ np.array([float(np.linalg.norm(slope))])
        duals.rows[self.tail] = -slope


# -- the lasso and the elastic net ----------------------------------------------------------------
#
# Squares of residuals as losses: the lasso and the elastic net.
#
# ``rho/2 |X w - y|^2`` is part of the regulariser where there are losses: multiplied out, it makes
# the objective strongly convex. Beside an L1 norm and nothing else it is the loss. Its terms are
# then squared losses in the rows of X, so that the data are never multiplied with themselves and
# features are screened (`find_l1_norm`). It is the loss, too, where it has nearly all the rows of
# data there are: least squares with bounds, sums, balls. Two spellings: a column that an equality
# defines and the objective squares (``sum_squares``), and the square of a norm's epigraph column
# (``norm(X @ w - y, 2)**2``).


def keep_squared_residuals(draft: Draft) -> None:
    """Turn squares of residuals into loss terms where no other losses stand beside them."""
    weightless = _weightless(draft)
    if weightless is not None:
        leave_out(draft, weightless)
    predictions = _predictions(draft)
    if predictions is not None:
        leave_out(draft, predictions)
        if _kept_squares(draft, predictions.columns):
            return
        _take_back(draft, predictions)
    _kept_squares(draft, np.zeros(0, dtype=np.intp))


def _kept_squares(draft: Draft, predictions: Index) -> bool:
    """Whether they are loss terms now; not where not all of `predictions` would be part of them."""
    tally = count_columns(draft)
    columns, source, factor = _defined(draft, tally)
    norms = [
        (cone, column, scale)
        for cone, column, scale in private_heads(draft, tally)
        if tally.square[column] > 0.0 and draft.linear[column] == 0.0
        and not tally.positive[column] + tally.negative[column]
    ]
    taken = np.bincount(draft.standard.rows.sparse[source].indices, minlength=draft.standard.size)
    if not (len(columns) or norms) or (taken[predictions] != 1).any():
        return False
    mine = np.zeros(draft.standard.rows.shape[0], dtype=bool)
    mine[source] = True
    for cone, _, _ in norms:
        mine[cone.rows] = True
    touched = _columns_of(draft, mine)
    for found in draft.eliminations:
        passed = touched[found.columns]
        if passed.any():
            behind = np.zeros(len(mine), dtype=bool)
            behind[found.source[passed]] = True
            touched |= _columns_of(draft, behind)
    # Residuals and predictions themselves, the user's own as slack variables, are none.
    touched[columns] = touched[draft.eliminated] = False
    beside = _nearly_all(draft, mine, touched) or _beside_l1_norm(draft, tally, mine, touched)
    if not (beside or _columns_can_go(draft, tally, mine, touched)):
        return False
    if len(columns):
        _squares(draft, columns, source, factor)
    for cone, column, scale in norms:
        _square_of_norm(draft, cone, column, scale, float(tally.square[column]))
    return True


def _weightless(draft: Draft) -> Elimination | None:
    """CVXPY's columns that a row defines and nothing else has, at no cost: squares weighed by 0."""
    standard, tally = draft.standard, count_columns(draft)
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows)
    elsewhere = tally.positive + tally.negative + tally.cone + tally.arguments
    idle = (elsewhere == 0) & (tally.zero == 1) & (tally.square == 0) & (draft.linear == 0)
    idle &= ~(tally.own | tally.data | tally.crossed | draft.eliminated)
    if not (len(rows) and idle.any()):
        return None
    return one_a_row(draft, rows, idle)


def _predictions(draft: Draft) -> Elimination | None:
    """Columns that a row of data defines and a squared residual takes up alone.

    ``f == X @ w`` under ``sum_squares(f - y)``, or ``e == X @ w - y`` under weights: CVXPY's
    residual is then defined by two columns, and the data are one row further on.
    """
    standard, tally = draft.standard, count_columns(draft)
    counts = standard.rows.counts()
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows)
    elsewhere = tally.positive + tally.negative + tally.cone + tally.arguments
    private = (elsewhere == 0) & ~tally.data & ~tally.crossed & ~draft.eliminated
    passes = private & tally.own & (tally.zero == 2) & (tally.square == 0) & (draft.linear == 0)
    ends = private & (tally.zero == 1) & (tally.square > 0)
    short, long = rows[counts[rows] == 2], rows[counts[rows] > 2]
    if not (len(short) and len(long) and passes.any() and ends.any()):
        return None
    size = standard.size
    pairs = sp.coo_array(standard.rows.sparse[short])
    ended = np.bincount(pairs.row[ends[pairs.col]], minlength=len(short)) == 1
    here = np.zeros(size, dtype=bool)
    here[pairs.col[passes[pairs.col] & ended[pairs.row]]] = True
    return one_a_row(draft, long, here)


def one_a_row(draft: Draft, rows: Index, some: Mask) -> Elimination | None:
    """What `rows` with just one of `some` columns, shape (N,), define; None without such a row."""
    sparse = draft.standard.rows.sparse
    block = sp.coo_array(sparse[rows])
    hit = some[block.col]
    hit &= (np.bincount(block.row[hit], minlength=len(rows)) == 1)[block.row]
    if not hit.any():
        return None
    columns, source = block.col[hit].astype(np.intp), rows[block.row[hit]]
    return Elimination(columns, source, block.data[hit], without(sparse[source], columns))


def _defined(draft: Draft, tally: ColumnCounts) -> tuple[Index, Index, Array]:
    """Squared columns that one row of data defines and that occur nowhere else."""
    standard = draft.standard
    rows = np.flatnonzero(standard.inside("zero") & ~draft.used_rows)
    private = (tally.zero == 1) & (tally.positive + tally.negative + tally.cone == 0)
    private &= ~tally.data & ~tally.crossed & (tally.square > 0) & ~draft.eliminated
    if not (len(rows) and private.any()):
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    block = sp.coo_array(standard.rows.sparse[rows])
    hit = private[block.col]
    alone = np.bincount(block.row[hit], minlength=len(rows)) == 1
    passed = draft.eliminated[block.col]
    data = standard.rows.counts()[rows] > 2
    data |= np.bincount(block.row[passed], minlength=len(rows)) > 0
    hit &= (alone & data)[block.row]
    # With a column of its own in every row (``X w - y = h + s``) this is a Huber loss.
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[block.row[hit]] = True
    rest = chosen[block.row] & ~hit & ~tally.dense[block.col] & ~passed
    single = np.bincount(block.col[rest], minlength=standard.size) == 1
    if chosen.any() and np.isin(np.flatnonzero(chosen), block.row[rest & single[block.col]]).all():
        hit[:] = False
    return block.col[hit].astype(np.intp), rows[block.row[hit]], block.data[hit]


def _columns_of(draft: Draft, mine: Mask) -> Mask:
    """The columns that the rows `mine` have entries in, shape (N,)."""
    pick = sp.csr_array(sp.eye_array(len(mine), format="csr"))[np.flatnonzero(mine)]
    used = draft.standard.rows.combine(pick)
    touched = used.dense_columns()
    touched[used.sparse.indices] = True
    return touched


def _nearly_all(draft: Draft, mine: Mask, touched: Mask) -> bool:
    """Whether the rows of data are `mine`, but for fewer than could be a loss beside them."""
    rows = draft.standard.rows
    coordinates = int((touched & draft.standard.own()).sum())
    others = int((~mine & ~draft.used_rows & (rows.counts() > 2)).sum())
    return int(mine.sum()) >= TALL * max(coordinates, others, 1)


def _beside_l1_norm(draft: Draft, tally: ColumnCounts, mine: Mask, touched: Mask) -> bool:
    """Whether all rows but `mine` bound costly columns by one column each.

    A column of `mine` that has neither such a bound nor a square is no coordinate of a lasso. With
    bounds of single columns besides, or of what passes one on (``norm_inf(w) <= u``), it is one
    where columns can go all the same, in a wide one without squares.
    """
    standard = draft.standard
    if standard.canonical.groups:
        return False
    others = ~mine & ~draft.used_rows & ~standard.inside("nonneg")
    if (others & (standard.rows.counts() > 2)).any():
        return False
    inside, dense = _inequalities(draft)
    entries = np.diff(inside.indptr)
    if not inside.shape[0] or dense.any() or (entries < 1).any() or (entries > 2).any():
        return False
    costly = (draft.linear > 0) & (tally.square == 0) & (tally.negative == 0)
    if (entries == 1).any():
        costly |= ~tally.own & (draft.linear == 0) & (tally.square == 0) & (tally.negative == 1)
    bounds = np.add.reduceat(costly[inside.indices].astype(np.int64), inside.indptr[:-1])
    held = (tally.square > 0) | (tally.positive + tally.negative > 0) | draft.eliminated
    if (entries == 1).any():
        coordinates = int((touched & standard.own() & (tally.square == 0)).sum())
        if coordinates < max(WIDE_COLUMNS, WIDE_SHARE * int(mine.sum())):
            return False
    return bool((bounds[entries == 2] == 1).all() and held[touched].all())


def _columns_can_go(
    draft: Draft, tally: ColumnCounts, mine: Mask, touched: Mask
) -> bool:
    """Whether rows of one or two entries, as of an L1 norm or bounds, hold most of many columns.

    So do equations of three, as of ``w == u - v``, and norms of blocks. Columns can go then
    whatever few constraints, or an intercept, stand beside them.
    """
    standard = draft.standard
    if standard.canonical.groups:
        return False
    touched = touched & standard.own() & ~draft.eliminated
    coordinates = int(touched.sum())
    if coordinates < max(WIDE_COLUMNS, WIDE_SHARE * int(mine.sum())):
        return False
    inside, dense = _inequalities(draft)
    entries = np.diff(inside.indptr)
    short = ~dense & (entries >= 1) & (entries <= 2)
    others = ~mine & ~draft.used_rows & ~standard.inside("nonneg")
    counts = standard.rows.counts()
    split = others & (counts == 3)
    many = int((others & (counts > 3)).sum()) + int((~short).sum())
    held = np.zeros(standard.size, dtype=bool)
    held[inside[np.flatnonzero(short)].indices] = True
    held[standard.rows.sparse[np.flatnonzero(split)].indices] = True
    norms = [cone.rows for cone, _, _ in private_heads(draft, tally) if not mine[cone.rows.start]]
    if norms:
        of_norms = np.concatenate([np.arange(rows.start + 1, rows.stop) for rows in norms])
        held[standard.rows.sparse[of_norms[counts[of_norms] == 1]].indices] = True
    return WIDE_SHARE * (int(mine.sum()) + many) <= coordinates <= 2 * int((touched & held).sum())


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

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        return [(self.columns, self.terms)]

    def times(self, ratio: Array) -> SquaredResiduals:
        """See `Step.times`."""
        return replace(self, slope=self.slope * ratio[self.columns])

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the row carries the slope of the loss."""
        duals.rows[self.source] = (duals.theta[self.terms] + self.slope) / self.factor
