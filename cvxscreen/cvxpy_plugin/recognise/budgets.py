"""Budgets: a sum of losses in a constraint, recognised by the rules for objectives.

::

    minimise  F(x)   subject to   g_k(x) = <c_k, x> + c0_k + sum_i f_i(<a_i, x>) <= 0

A bound on a conditional value at risk, on a sum of absolute deviations or of the largest losses is
such a row: its helper columns have no cost of their own and share a budget. Adding the row to the
objective, times a multiplier, gives each of them a cost, and every rule that finds losses in an
objective finds these (`at_multipliers`). What scales with the multiplier is the budget's, what does
not is the objective's: two recognitions, at multipliers 1 and 2, tell them apart, for whatever way
the losses are written.

The Lagrangian ``F + sum_k lambda_k g_k`` is a `Problem`, and a relaxation wherever ``lambda >= 0``:
its dual point is one of the whole problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.matrices import Block, Stack, rows_of
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise_standard
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Cone, Standard
from cvxscreen.cvxpy_plugin.request import CANNOT_PAY
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEWEST = 100
"""Helper columns with a shared budget below which leaving some out cannot pay."""

MOST = 8
"""Budgets at most: every one of them takes a recognition of its own."""

TERMS = 4
"""Losses in budgets for every coordinate at least: those of ``norm1(w) <= 1`` alone are no data."""

SAME = 1e-12
"""Relative difference below which a number did not change with a multiplier."""


@dataclass(frozen=True, eq=False)
class BudgetedProblem:
    """``F`` with its budgets, tied to the user's problem.

    Attributes
    ----------
    standard : Standard
        The canonical problem, all of it.
    rows : array of int, shape (k,)
        The budgets' rows among those of `standard`.
    lagrangian : Recognition
        Of the problem with every budget in its objective, at multipliers 1.
    objective : Problem
        ``F`` with the side constraints.
    budgets : tuple of Problem
        Each ``g_k``, without constraints.
    places : tuple of array of int
        The terms of `objective` and of each of `budgets` among those of `lagrangian`.
    """

    standard: Standard
    rows: Index
    lagrangian: Recognition
    objective: Problem
    budgets: tuple[Problem, ...]
    places: tuple[Index, ...]

    @property
    def parts(self) -> tuple[Problem, ...]:
        """The objective and the budgets."""
        return (self.objective, *self.budgets)

    @property
    def terms(self) -> int:
        """Loss terms of all of them."""
        return self.lagrangian.problem.n

    @property
    def descriptions(self) -> tuple[str, ...]:
        """What the budgets hold, for records."""
        return tuple(f"a budget of {part.n} losses" for part in self.budgets)

    def at(self, multipliers: Array) -> Problem:
        """The Lagrangian as a `Problem`, its terms in the order of `lagrangian`."""
        weights = np.ones(self.terms)
        linear, constant = self.objective.linear.copy(), self.objective.constant
        for part, place, weight in zip(self.budgets, self.places[1:], multipliers, strict=True):
            weights[place] = weight
            linear += weight * part.linear
            constant += weight * part.constant
        whole = self.lagrangian.problem
        made = replace(
            whole, losses=whole.losses.weighted(weights), linear=linear, constant=constant,
            layout=None,
        )
        made.known.inherit_rows(whole.known)
        return made

    def recognised_at(self, multipliers: Array) -> Recognition:
        """The Lagrangian's recognition at `multipliers`, to restore helpers and dual values by."""
        found = recognise_standard(
            at_multipliers(self.standard, self.rows, multipliers), strongly_convex=False
        )
        if not np.array_equal(found.core, self.lagrangian.core):
            raise NotScreenable("the budgets' losses are others at other multipliers")
        return found


def recognise_budgets(standard: Standard) -> BudgetedProblem:
    """Read a canonical problem as losses, or a linear function, with losses in budgets.

    Raises
    ------
    NotScreenable
        If there is no budget of many losses, or the rest is not recognised.
    """
    rows = budget_rows(standard)
    if not 0 < len(rows) <= MOST:
        raise NotScreenable("no constraint bounds a sum of losses")
    ones = np.ones(len(rows))
    first = recognise_standard(at_multipliers(standard, rows, ones), strongly_convex=False)
    check(first, beyond=lambda z: -float(standard.rows.values(z)[rows].sum()))
    others = []
    for k in range(len(rows)):
        twice = ones.copy()
        twice[k] = 2.0
        others.append(
            recognise_standard(at_multipliers(standard, rows, twice), strongly_convex=False)
        )
    made = _taken_apart(standard, rows, first, others)
    held = sum(part.n for part in made.budgets)
    if held < TERMS * made.objective.d or not all(part.n for part in made.budgets):
        raise NotScreenable(
            f"the budgets hold about as few losses as there are coordinates, and {CANNOT_PAY}"
        )
    return made


def budget_rows(standard: Standard) -> Index:
    """Inequality rows in which many helper columns without a cost share a budget."""
    sparse = standard.rows.sparse
    bounded = standard.inside("nonneg")
    size = standard.size
    entry_rows = rows_of(sparse)
    falling = sparse.data < 0
    within = bounded[entry_rows]
    elsewhere = np.bincount(sparse.indices[~within], minlength=size) > 0
    helper = (standard.linear == 0) & ~elsewhere & ~standard.rows.dense_columns()
    helper &= np.bincount(sparse.indices[within & falling], minlength=size) == 1
    helper &= np.bincount(sparse.indices[within & ~falling], minlength=size) >= 1
    if standard.quadratic.nnz:
        helper &= np.bincount(standard.quadratic.indices, minlength=size) == 0
    counted = within & falling & helper[sparse.indices]
    counts = np.bincount(entry_rows[counted], minlength=sparse.shape[0])
    return np.flatnonzero(counts >= FEWEST)


def at_multipliers(standard: Standard, rows: Index, multipliers: Array) -> Standard:
    """`standard` with some inequality rows in its objective, times `multipliers`, instead.

    The rows keep their places, empty, in no cone.
    """
    weights = np.zeros(standard.rows.shape[0])
    weights[rows] = multipliers
    return replace(
        standard,
        linear=standard.linear - standard.rows.adjoint(weights),
        constant=standard.constant - float(weights @ standard.rows.offset),
        rows=_emptied(standard.rows, rows),
        cones=tuple(part for cone in standard.cones for part in _around(cone, rows)),
    )


def _emptied(stack: Stack, rows: Index) -> Stack:
    """The rows without any entry in some of them."""
    keep = np.ones(stack.shape[0])
    keep[rows] = 0.0
    sparse = sp.csr_array(sp.diags_array(keep) @ stack.sparse)
    sparse.eliminate_zeros()
    blocks = []
    for block in stack.blocks:
        stay = keep[block.rows] > 0
        if stay.all():
            blocks.append(block)
        elif stay.any():
            factor = None if block.factor is None else block.factor[stay]
            blocks.append(Block(block.rows[stay], block.start, block.matrix[stay], factor))
    return Stack(sparse, tuple(blocks), stack.offset * keep)


def _around(cone: Cone, rows: Index) -> list[Cone]:
    """The cone without some of its rows."""
    if cone.kind != "nonneg":
        return [cone]
    inside = np.sort(rows[(rows >= cone.rows.start) & (rows < cone.rows.stop)])
    ends = [cone.rows.start, *(int(r) + 1 for r in inside)]
    stops = [*(int(r) for r in inside), cone.rows.stop]
    return [
        Cone("nonneg", slice(start, stop), stop - start, cone.constraint)
        for start, stop in zip(ends, stops, strict=True)
        if stop > start
    ]


def _taken_apart(
    standard: Standard, rows: Index, first: Recognition, others: list[Recognition]
) -> BudgetedProblem:
    """Objective and budgets, from the recognitions at multipliers 1, and 2 for one of them each."""
    whole = first.problem
    if first.maxima is not None or whole.penalty is not None:
        raise NotScreenable("beside a budget of losses stands another convex part")
    owner = np.zeros(whole.n, dtype=np.intp)
    linear, constant = whole.linear.copy(), whole.constant
    budgets: list[tuple[Array, float]] = []
    probe = np.random.default_rng(whole.n).standard_normal(whole.d)
    margins = whole.design.forward(probe)
    for k, other in enumerate(others):
        found = other.problem
        alike = np.array_equal(other.core, first.core) and found.n == whole.n
        if not (
            alike and found.penalty is None
            and _equal(found.quadratic.apply(probe), whole.quadratic.apply(probe)).all()
            and _equal(found.design.forward(probe), margins).all()
        ):
            raise NotScreenable("the budgets' losses are others at other multipliers")
        doubled = _numbers_equal(found.losses, whole.losses.weighted(np.full(whole.n, 2.0)))
        same = _numbers_equal(found.losses, whole.losses)
        if not (doubled | same).all() or (doubled & (owner > 0)).any():
            raise NotScreenable("a loss belongs to the objective and to a budget")
        owner[doubled & ~same] = k + 1
        budgets.append((found.linear - whole.linear, found.constant - whole.constant))
    for slope, level in budgets:
        linear, constant = linear - slope, constant - level
    places = tuple(np.flatnonzero(owner == k) for k in range(len(others) + 1))
    bare = Quadratic(np.zeros(whole.d))
    parts = [
        replace(
            _part(whole, place), quadratic=bare, linear=slope, constant=level, side=None,
        )
        for place, (slope, level) in zip(places[1:], budgets, strict=True)
    ]
    own = replace(_part(whole, places[0]), linear=linear, constant=constant)
    return BudgetedProblem(standard, rows, first, own, tuple(parts), places)


def _part(whole: Problem, place: Index) -> Problem:
    """Some terms of a problem."""
    return replace(
        whole, design=whole.design.take_rows(place), losses=whole.losses.take(place), layout=None
    )


def _equal(first: Array, second: Array) -> Mask:
    """Where two arrays agree up to rounding."""
    return np.abs(first - second) <= SAME * (1.0 + np.maximum(np.abs(first), np.abs(second)))


def _numbers_equal(first: LossTerms, second: LossTerms) -> Mask:
    """Where the five numbers of two losses agree up to rounding."""
    with np.errstate(invalid="ignore"):
        same = [
            (mine == other) | _equal(mine, other)
            for mine, other in (
                (first.b, second.b), (first.e, second.e), (first.q, second.q),
                (first.lo, second.lo), (first.hi, second.hi),
            )
        ]
    return np.logical_and.reduce(same)
