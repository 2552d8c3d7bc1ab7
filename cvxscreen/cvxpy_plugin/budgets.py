"""Budgets: a sum of losses in a constraint, recognised by the rules for objectives, and solved.

::

    minimise  F(x)   subject to   g_k(x) = <c_k, x> + c0_k + sum_i f_i(<a_i, x>) <= 0

A bound on a conditional value at risk, on a sum of absolute deviations or of the largest losses is
such a row: its helper columns have no cost of their own and share a budget. Adding the row to the
objective, times a multiplier, gives each of them a cost, and every rule that finds losses in an
objective finds these (`at_multipliers`). What scales with the multiplier is the budget's, what does
not is the objective's: the recognition at multipliers 1 and the same at the costs of multipliers 2
tell them apart, for whatever way the losses are written. Losses that are written as an objective's
would be are read off the constraint (`recognise.budget_losses`): none of them is a helper column
then, and the rows say what is whose.

The Lagrangian ``F + sum_k lambda_k g_k`` is a `Problem`, and a relaxation wherever ``lambda >= 0``:
its dual point is one of the whole problem.

To solve it (`ScreenedBudgets`), terms of F *and of the budgets* are replaced by the linear pieces
that the best point so far suggests. Each piece lies below its loss, so the objective falls and the
feasible set grows: the smaller problem is a relaxation. If the margins of its minimiser x are on
the pieces that were assumed, then x is feasible and as good as any point of the relaxation: it
minimises F. A wrong guess about a budget does not show in the objective; it shows as margins on
another piece, and as a budget that is exceeded. Where none is, once a level that nothing else sees
is at its lowest (`levelled`), x is feasible whatever was assumed of budgets: those that do not bind
leave their levels, and so the pieces of their losses, to chance.

The certificate is that of the Lagrangian (`certify_budgets`). With slopes ``theta_i`` in
``lambda_k [lo_i, hi_i]``, ``lambda >= 0``, every feasible y has

    F(y) >= F(y) + sum_k lambda_k g_k(y) >= F(x) + sum_k lambda_k g_k(x) - gap,

so that x is better than any of them up to ``gap + sum_k lambda_k max(-g_k(x), 0)``, where the gap
is that of a `Problem`, recomputed by `certify` on all terms.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma, up
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.losses import FIELDS, LossTerms, Piece, on_parabola
from cvxscreen.core.problem import Problem, Quadratic, relative_gap
from cvxscreen.cvxpy_plugin.answer import (
    USELESS,
    not_solved,
    restore,
    statistics,
    status_of,
    write_back,
)
from cvxscreen.cvxpy_plugin.cvxpy_solver import (
    ACCURATE,
    CvxpySolver,
    LossRows,
    slopes_of,
    written_losses,
)
from cvxscreen.cvxpy_plugin.infeasible import written_infeasible
from cvxscreen.cvxpy_plugin.recognise.budget_losses import FEWEST_HELPERS, TERMS
from cvxscreen.cvxpy_plugin.recognise.changed_costs import at_costs
from cvxscreen.cvxpy_plugin.recognise.check import HeldBudgets, check, last_check_point
from cvxscreen.cvxpy_plugin.recognise.draft import GroupTerms
from cvxscreen.cvxpy_plugin.recognise.matrices import Block, Stack, rows_of
from cvxscreen.cvxpy_plugin.recognise.recognise import one_loss, recognise_standard
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Cone, Standard
from cvxscreen.cvxpy_plugin.request import DEFAULT, Report, chosen_solver
from cvxscreen.cvxpy_plugin.size import CANNOT_PAY
from cvxscreen.cvxpy_plugin.solution_cache import last_answer, store_answer
from cvxscreen.errors import CvxscreenError, InvalidInput, NotScreenable
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.interface import SubproblemResult, call_checked
from cvxscreen.solvers.loop import run
from cvxscreen.solvers.relaxation import FEWEST, LEAST, REFUTED, WORTH, far_from_kinks, sample
from cvxscreen.solvers.screened import ScreenedProblem, Times
from cvxscreen.solvers.solution import moved_slopes
from cvxscreen.solvers.within_budgets import NothingWithin, within_budgets

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

MOST = 8
"""Budgets at most: every one of them takes a look at the numbers of its own."""

CANCELLED = 1e3
"""How many times as large as the new level of a budget the one before may be, from which it is
computed: rounding of what cancels is as many times that of the new one."""

SAME = 1e-12
"""Relative difference below which a number did not change with a multiplier."""


class BudgetedProblem(Immutable):
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

    def tied(self, original: Any) -> BudgetedProblem:
        """The same of the problem `original` (or a weak reference of it)."""
        lagrangian = self.lagrangian.tied(original)
        canonical = self.standard.canonical._replace(original=original)
        return replace(
            self, lagrangian=lagrangian, standard=self.standard._replace(canonical=canonical)
        )

    def at_costs(self, standard: Standard) -> BudgetedProblem | None:
        """The same at other costs of the objective, and other levels of the budgets, checked.

        `standard` has the same rows but for these levels; None where the rules must run.
        """
        ones = np.ones(len(self.rows))
        found = at_costs(self.lagrangian, at_multipliers(standard, self.rows, ones))
        if found is None or not np.array_equal(budget_rows(standard), self.rows):
            return None
        before, now = self.lagrangian.problem.losses, found.problem.losses
        for place in self.places[1:]:  # what a helper costs in the objective is no budget's
            if not _numbers_equal(before.take(place), now.take(place)).all():
                return None
        lower = (self.standard.rows.offset - standard.rows.offset)[self.rows]
        budgets = tuple(
            part if not change else replace(part, constant=part.constant + float(change))
            for part, change in zip(self.budgets, lower, strict=True)
        )
        for part, again in zip(self.budgets, budgets, strict=True):
            if abs(part.constant) > CANCELLED * abs(again.constant):
                return None
        with suppress(NotScreenable):
            check(found, at=last_check_point(found), budgets=_held(standard, self.rows, ones))
            own = _objective(found.problem, self.places[0], budgets)
            return replace(
                self, standard=standard, lagrangian=found, objective=own, budgets=budgets
            )
        return None

    def anew(self, standard: Standard) -> BudgetedProblem:
        """The same from the numbers of `standard`: by all rules, if more than levels changed."""
        found = self.at_costs(standard) if self._same_but_levels(standard) else None
        return recognise_budgets(standard) if found is None else found

    def _same_but_levels(self, standard: Standard) -> bool:
        """Whether `standard` has other offsets in the budgets' rows alone, at any costs."""
        old = self.standard
        alike = ("cones", "arguments", "norms")
        if any(getattr(old, name) != getattr(standard, name) for name in alike):
            return False
        if not np.array_equal(old.starts, standard.starts):
            return False
        if not old.rows.same_matrix(standard.rows):
            return False
        moved = np.flatnonzero(old.rows.offset != standard.rows.offset)
        return bool(np.isin(moved, self.rows).all())

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
        standard = at_multipliers(self.standard, self.rows, multipliers)
        found = at_costs(self.lagrangian, standard)
        if found is None:
            found = _recognised(standard)
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
    first = _recognised(at_multipliers(standard, rows, ones))
    held_rows = _held(standard, rows, ones)
    check(first, budgets=held_rows)
    made = _by_groups(standard, rows, first, held_rows)
    if made is None:
        made = _taken_apart(standard, rows, first, _at_twice(standard, rows, first))
    held = sum(part.n for part in made.budgets)
    if held < TERMS * made.objective.d or not all(part.n for part in made.budgets):
        raise NotScreenable(
            f"the budgets hold about as few losses as there are coordinates, and {CANNOT_PAY}"
        )
    return made


def _at_twice(standard: Standard, rows: Index, first: Recognition) -> list[Recognition]:
    """The recognitions at multipliers 2 for one of the budgets each, and 1."""
    ones, point, others = np.ones(len(rows)), last_check_point(first), []
    for k in range(len(rows)):
        twice = ones.copy()
        twice[k] = 2.0
        numbers = at_multipliers(standard, rows, twice)
        other = at_costs(first, numbers)
        if other is None:
            other = _recognised(numbers)
        else:
            check(other, at=point, budgets=_held(standard, rows, twice))
        others.append(other)
    return others


def _recognised(standard: Standard) -> Recognition:
    """A Lagrangian's numbers, recognised."""
    found = one_loss(standard, None) if standard.canonical.groups else None
    return recognise_standard(standard, strongly_convex=False) if found is None else found


def budget_rows(standard: Standard) -> Index:
    """Inequality rows in which many helper columns without a cost share a budget.

    And those that losses were read off already.
    """
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
    found = counts >= FEWEST_HELPERS
    found[[row for row in standard.budgets if row >= 0]] = True
    return np.flatnonzero(found)


def at_multipliers(standard: Standard, rows: Index, multipliers: Array) -> Standard:
    """`standard` with some inequality rows in its objective, times `multipliers`, instead.

    The rows keep their places, empty, in no cone.
    """
    weights = np.zeros(standard.rows.shape[0])
    weights[rows] = multipliers
    linear = standard.linear - standard.rows.adjoint(weights)
    # A level that costs what its budgets pull is a coordinate all the same.
    linear[(linear == 0.0) & (standard.linear != 0.0)] = np.finfo(np.float64).tiny
    canonical = standard.canonical
    if standard.budgets:
        canonical = canonical._replace(groups=tuple(
            group if row < 0 else replace(group.times(float(weights[row])), budget=None)
            for group, row in zip(canonical.groups, standard.budgets, strict=True)
        ))
    return standard._replace(
        canonical=canonical,
        budgets=(),
        linear=linear,
        constant=standard.constant - float(weights @ standard.rows.offset),
        rows=_emptied(standard.rows, rows),
        cones=tuple(part for cone in standard.cones for part in _around(cone, rows)),
    )


def _held(standard: Standard, rows: Index, multipliers: Array) -> HeldBudgets:
    """What `at_multipliers` has moved into the objective, by rows."""
    shape = len(rows), standard.rows.shape[0]
    pick = sp.csr_array((multipliers, rows, np.arange(len(rows) + 1)), shape)
    read = {
        row: group.budget
        for group, row in zip(standard.canonical.groups, standard.budgets, strict=False)
    }
    return HeldBudgets(
        standard, standard.rows.combine(pick), multipliers, tuple(read.get(row) for row in rows)
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
    return _by_owner(standard, rows, first, owner, budgets)


def _by_groups(
    standard: Standard, rows: Index, first: Recognition, held: HeldBudgets
) -> BudgetedProblem | None:
    """Objective and budgets where all of these were read off constraints; None elsewhere.

    And where nothing else was done to columns and terms: then the rows say what is whose. `held`
    are these rows at multipliers 1.
    """
    whole, pairing = first.problem, first.pairing
    every = np.array_equal(first.core, np.arange(standard.size))
    steps = [step for step in first.steps if isinstance(step, GroupTerms)]
    plain = len(steps) == len(first.steps)
    alone = first.maxima is None and whole.penalty is None and not first.short
    if not (every and plain and alone and set(rows.tolist()) <= set(standard.budgets)):
        return None
    if not np.array_equal(pairing.first, np.arange(whole.n)) or (pairing.second >= 0).any():
        return None
    owner, levels = np.zeros(whole.n, dtype=np.intp), -held.rows.offset
    for step in steps:
        row = standard.budgets[step.group]
        if row >= 0:
            k = int(np.searchsorted(rows, row))
            owner[step.terms] = k + 1
            levels[k] += standard.canonical.groups[step.group].constant
    slopes = -held.rows.columns(first.core)
    slopes = np.asarray(slopes if isinstance(slopes, np.ndarray) else slopes.toarray())
    return _by_owner(standard, rows, first, owner, list(zip(slopes, levels.tolist(), strict=True)))


def _by_owner(
    standard: Standard, rows: Index, first: Recognition, owner: Index,
    budgets: list[tuple[Array, float]],
) -> BudgetedProblem:
    """Objective and budgets, by the `owner` of each term, 0 the objective.

    Beside it of each budget what it is linear by, and its constant.
    """
    whole = first.problem
    places = tuple(np.flatnonzero(owner == k) for k in range(len(budgets) + 1))
    bare = Quadratic(np.zeros(whole.d))
    parts = tuple(
        replace(_part(whole, place), quadratic=bare, linear=slope, constant=level, side=None)
        for place, (slope, level) in zip(places[1:], budgets, strict=True)
    )
    own = _objective(whole, places[0], parts)
    return BudgetedProblem(standard, rows, first, own, parts, places)


def _objective(whole: Problem, place: Index, budgets: tuple[Problem, ...]) -> Problem:
    """The terms of a Lagrangian at `place`, and what the budgets leave of its linear term."""
    linear, constant = whole.linear.copy(), whole.constant
    for part in budgets:
        linear, constant = linear - part.linear, constant - part.constant
    return replace(_part(whole, place), linear=linear, constant=constant)


def _part(whole: Problem, place: Index) -> Problem:
    """Some terms of a problem."""
    if len(place) == whole.n:  # in their order: the data are not copied
        return replace(whole, layout=None)
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
                (getattr(first, name), getattr(second, name)) for name in FIELDS
            )
        ]
    return np.logical_and.reduce(same)


# -- the screening loop ---------------------------------------------------------------------------


MAX_ROUNDS = 20
"""Rounds at most before everything is kept; two to four are usual."""
KEEP = 0.5
"""Terms kept around the optimum of a sample of s of n terms, in units of ``n sqrt(d / s)``: half a
deviation of a margin. A solver of CVXPY may take the reduced problem, for which a term costs more
than for the built-in one, and what was missed is put back."""
LOOSER = (0.0, 0.03, 0.3)
"""By what share of its level a sample's budget is raised, until the sample is feasible: it is a
first guess, and a mean over a sample of thousands is off by a few per cent of it."""
LEAST_MULTIPLIER = 1e-13
"""Multiplier of a budget that does not bind, in units of the objective over the budget: its dual
point is then one of the problem with the budget in its objective, whose slopes are as good as 0."""
SMALL = 250_000
"""Entries of the constraints up to which multipliers of 0 are looked for: 40 ms (500 x 500)."""
INSIDE = 1e-6
"""Slopes are inside their intervals by more than this share of their width, multipliers of active
constraints are a larger share of the largest one: an inner point to 1e-8 leaves less."""


HALVINGS = 50
"""Of the interval between the kinks that a level is looked for in."""


class BudgetedPoint(NamedTuple):
    """A point with its margins, its slopes and its multipliers.

    `slopes` are those of the losses as they stand in a budget, not yet times its multiplier.
    """

    x: Array
    slopes: tuple[Array, ...]
    budget_multipliers: Array
    side_multipliers: Array
    margins: tuple[Array, ...]


class BudgetedPair(NamedTuple):
    """What a solver says of a reduced problem: as `BudgetedPoint`, without margins."""

    x: Array
    slopes: tuple[Array, ...]
    budget_multipliers: Array
    side_multipliers: Array


@dataclass(eq=False)
class WriteBudgets:
    """Budgets as constraints of a program of CVXPY, and their multipliers after a solve.

    Attributes
    ----------
    budgets : sequence of Problem
    """

    budgets: tuple[Problem, ...]

    def __post_init__(self) -> None:
        self._rows: list[tuple[float, Any, tuple[LossRows, ...]]] = []

    def __call__(self, z: Any) -> tuple[Any, list[Any]]:
        """No cost, and constraints in terms of the vector variable `z`."""
        constraints: list[Any] = []
        self._rows = []
        for part in self.budgets:
            size = unit(part)
            part = _divided(part, size)
            cost, more, rows = written_losses(part, z)
            bound = part.linear @ z + cost + part.constant <= 0.0
            constraints += [bound, *more]
            self._rows.append((size, bound, rows))
        return 0.0, constraints

    def read(self) -> tuple[Array, tuple[Array, ...]]:
        """Multipliers of the budgets, and slopes of their losses before these multiply them."""
        multipliers, slopes = np.zeros(len(self.budgets)), []
        for k, ((size, bound, rows), part) in enumerate(
            zip(self._rows, self.budgets, strict=True)
        ):
            value = 0.0 if bound.dual_value is None else float(np.ravel(bound.dual_value)[0])
            multipliers[k] = max(value / size, 0.0)
            found = slopes_of(rows, np.zeros(part.n))
            scaled = size * found / value if value > 0.0 else found
            slopes.append(np.clip(scaled, part.losses.lo, part.losses.hi))
        return multipliers, tuple(slopes)


def unit(part: Problem) -> float:
    """The usual slope of a budget's losses: divided by it, they are rows like any others."""
    steepest = _steepness(part.losses)
    steepest = steepest[np.isfinite(steepest) & (steepest > 0.0)]
    return float(np.median(steepest)) if len(steepest) else 1.0


def _divided(part: Problem, size: float) -> Problem:
    """A problem divided by a number, squares and all."""
    form = part.quadratic
    if not isinstance(form, Quadratic):
        raise InvalidInput("the objective's squares are no matrix.")
    return replace(
        part, losses=part.losses.scaled(1.0 / size), quadratic=form.scaled(1.0 / size),
        linear=part.linear / size, constant=part.constant / size, layout=None,
    )


class ScreenedBudgets(
    ScreenedProblem[
        tuple[Selection, ...], tuple[Problem, ...], BudgetedPair, BudgetedPair, BudgetedPoint
    ]
):
    """A problem with budgets whose terms are predicted; see the module's docstring.

    Parameters
    ----------
    made : BudgetedProblem
    parts : sequence of Problem
        The objective and the budgets: those of `made`, or samples of them.
    cvxpy_solver : CvxpySolver
        Solver of the reduced problems.
    tol : float
        Relative gap on the full problem.
    built_in : bool
        Whether the built-in interior point method is tried before `cvxpy_solver`.
    """

    def __init__(
        self,
        made: BudgetedProblem,
        parts: tuple[Problem, ...],
        cvxpy_solver: CvxpySolver,
        tol: float,
        built_in: bool = True,
    ) -> None:
        self.made, self.parts, self.cvxpy_solver, self.tol = made, parts, cvxpy_solver, tol
        self.built_in, self.steps = built_in, 0
        self.taken = False  # whether the built-in one has solved one of them
        self.sampled = parts[-1] is not made.budgets[-1]
        self.limits = cvxpy_solver.limits
        self.terms = sum(part.n for part in parts)
        self.d = parts[0].d
        self.held: list[Mask] = [np.zeros(part.n, dtype=bool) for part in parts]
        self.keep = self.terms
        self.whole = self.terms <= max(FEWEST, 40 * self.d)
        self.centre: BudgetedPoint | None = None
        self.proof: Certificate | None = None
        self.predicted = 0
        self.solving = 0.0
        self.rounds = []
        self.nothing: NothingWithin | None = None  # of all terms

    def begin(self, start: BudgetedPair | None = None) -> None:
        """From `start`, or from the optimum of a sample of the terms, found from one of its own."""
        if start is not None:
            self.whole = False
            self.centre = self.point(start)
            self.keep = max(LEAST * self.d, int(0.03 * self.terms))
            return
        if self.whole:
            return
        parts = tuple(sample(part) if part.n > self.d else part for part in self.parts)
        fewer = sum(part.n for part in parts)
        if self.terms - fewer < sum(part.n for part in parts if part.n > self.d):
            self.whole = True  # of those that are drawn more than every other one
            return
        for share in LOOSER:
            # A sample may exceed a tight budget everywhere, where all terms together do not.
            looser = (parts[0], *(
                replace(part, constant=part.constant - share * abs(part.constant))
                for part in parts[1:]
            ))
            nested = ScreenedBudgets(
                self.made, looser, self.cvxpy_solver, self.tol, self.built_in
            )
            nested.begin()
            run(nested)
            self.solving += nested.solving
            self.steps += nested.steps
            self.taken |= nested.taken
            if nested.centre is not None or nested.result.status != "infeasible":
                break
        if nested.centre is None:
            self.result, self.finished = nested.result, nested.nothing is None
            self.whole = True  # what a sample says is no proof
            return
        found = nested.centre
        slopes = tuple(
            part.losses.slope(part.design.forward(found.x)) for part in self.parts
        )
        self.centre = self.point(
            BudgetedPair(found.x, slopes, found.budget_multipliers, found.side_multipliers)
        )
        self.keep = max(int(KEEP * self.terms * np.sqrt(self.d / fewer)), LEAST * self.d)

    def end_at(self, best: BudgetedPoint, proof: Certificate) -> None:
        """Without any round: the optimum is known."""
        self.centre, self.proof, self.finished = best, proof, True
        self.record(0, proof, (0, 0, 0), Times(*2 * (perf_counter(),)))

    def point(self, pair: BudgetedPair) -> BudgetedPoint:
        """`pair` with the margins of all terms: one pass."""
        return BudgetedPoint(*pair, tuple(part.design.forward(pair.x) for part in self.parts))

    # -- the steps of a round -------------------------------------------------------------------

    def select(self) -> tuple[Selection, ...]:
        """Predict the terms that are far from a kink at the best point, but those put back."""
        nothing = tuple(_undecided(part.n) for part in self.parts)
        self.predicted = 0
        if self.centre is None or self.whole or len(self.rounds) >= MAX_ROUNDS:
            return nothing
        out = []
        for part, margins, held in zip(self.parts, self.centre.margins, self.held, strict=True):
            keep = int(np.ceil(self.keep * part.n / self.terms))
            many = part.n > 2 * self.d  # those of single coordinates cost next to nothing
            out.append(_predicted(part, margins, held, keep) if many else _undecided(part.n))
        kept = sum(len(selection.kept) for selection in out)
        if kept > WORTH * self.terms:
            return nothing
        self.predicted = self.terms - kept
        return tuple(out)

    def reduce(
        self, selection: tuple[Selection, ...]
    ) -> tuple[tuple[Problem, ...], Callable[[BudgetedPair], BudgetedPair]]:
        """Objective and budgets without what is predicted."""
        reduced = tuple(
            chosen.reduce(part) for chosen, part in zip(selection, self.parts, strict=True)
        )

        def lift(found: BudgetedPair) -> BudgetedPair:
            return found._replace(slopes=self.lifted(selection, reduced, found))

        return reduced, lift

    def lifted(
        self, selection: tuple[Selection, ...], reduced: tuple[Problem, ...],
        found: BudgetedPair | NothingWithin,
    ) -> tuple[Array, ...]:
        """The slopes of all terms, from those of the reduced problem's."""
        return tuple(
            chosen.lift(part, small, found.x, theta)[1]
            for chosen, part, small, theta in zip(
                selection, self.parts, reduced, found.slopes, strict=True
            )
        )

    def solve(
        self, reduced: tuple[Problem, ...], selection: tuple[Selection, ...]
    ) -> BudgetedPair | None:
        """The solver's answer; it takes neither a start nor a target."""
        began = perf_counter()
        if self.built_in:
            # What it does not solve is the other solver's: an infeasible or unbounded problem too.
            directly = within_budgets(reduced[0], reduced[1:], limits=self.limits)
            if directly is None and self.taken and self.predicted:
                # A relaxation that runs away: with more terms it is asked again.
                self.solving += perf_counter() - began
                self.result = SubproblemResult("unbounded", np.zeros(0), np.zeros(0))
                return None
            if isinstance(directly, NothingWithin):
                self.solving += perf_counter() - began
                self.result = SubproblemResult("infeasible", np.zeros(0), np.zeros(0))
                own, *others = self.lifted(selection, reduced, directly)
                own[~self.parts[0].losses.hard] = 0.0  # predicted losses are no constraints either
                self.nothing = replace(directly, slopes=(own, *others))
                return None
            if directly is not None:
                self.taken = True
                self.solving += perf_counter() - began
                self.steps += directly.steps
                x, slopes, multipliers = directly.x, directly.slopes, directly.multipliers
                self.result = SubproblemResult("optimal", x, slopes[0], multipliers)
                return BudgetedPair(x, slopes, directly.weights, multipliers)
        written = WriteBudgets(reduced[1:])
        self.cvxpy_solver.further = written
        given = self.cvxpy_solver.options
        # With options, nobody's name leaves the choice to CVXPY: it may not be Clarabel.
        self.cvxpy_solver.solver = chosen_solver(self.cvxpy_solver.solver, given)
        named = self.cvxpy_solver.solver is not None and self.cvxpy_solver.name == DEFAULT
        tight = ACCURATE if named else {}
        for size, options in ((self.unit(), {**tight, **given}), (1.0, given)):
            self.cvxpy_solver.options = options
            self.result = call_checked(self.cvxpy_solver, _divided(reduced[0], size))
            if self.result.usable or self.result.status == "infeasible":
                break
        self.cvxpy_solver.further, self.cvxpy_solver.options = None, given
        self.solving += perf_counter() - began
        found = self.result
        if not found.usable:
            return None
        multipliers, slopes = written.read()
        return BudgetedPair(
            found.x, (size * found.theta, *slopes), size * multipliers, size * found.multipliers
        )

    def unit(self) -> float:
        """What the objective is divided by: its size, or that of its slopes.

        A solver's tolerances are absolute where numbers are small, and returns of a day are.
        """
        size = float(np.abs(self.parts[0].linear).max(initial=0.0))
        if self.centre is not None:
            value = abs(self.parts[0].primal(self.centre.x))
            size = value if value > 1e-3 * size else size
        return size if np.isfinite(size) and size > 0.0 else 1.0

    def evaluate(
        self, lifted: BudgetedPair, selection: tuple[Selection, ...]
    ) -> BudgetedPoint:
        """Margins of all terms."""
        return self.point(lifted)

    def put_back(
        self, selection: tuple[Selection, ...], point: BudgetedPoint | None
    ) -> int:
        """Put back what is on another piece than assumed; keep more where that is much."""
        if point is None:
            # A relaxation may be unbounded where the problem itself is not, never infeasible.
            self.finished = self.predicted == 0 or self.result.status == "infeasible"
            self.keep *= 4
            return 0
        off = [
            (chosen.codes >= 0) & (part.losses.piece_within(margins, margins) != chosen.codes)
            for chosen, part, margins in zip(selection, self.parts, point.margins, strict=True)
        ]
        count = sum(int(mask.sum()) for mask in off)
        if count and not off[0].any():
            lowest = levelled(self.parts, point)
            if all(budget_value(part, lowest.x)[0] <= 0.0 for part in self.parts[1:]):
                # Whatever was assumed of budgets, the optimum of the relaxation is feasible.
                self.centre = lowest
                return 0
        if count > self.keep and self.centre is not None:
            self.keep *= 2  # the relaxation has run away: from the same point, with more terms
            return count
        for held, mask in zip(self.held, off, strict=True):
            held |= mask
        self.centre = point
        if count:
            self.keep = min(self.keep, REFUTED * max(count, 4 * self.d))
        return count

    def close(self, selection: tuple[Selection, ...], refuted: int, times: Times) -> None:
        """Record the round; certify where nothing was refuted, and stop if that holds."""
        settled = not refuted and self.result.usable and not self.finished
        if settled and self.sampled:
            self.finished = True
        elif settled and self.centre is not None:
            # With nothing refuted a larger problem has the same solution, to the same accuracy.
            self.proof, self.finished = self.certified(self.centre), True
            if not self.proof.ok and self.built_in:  # the last digits are the other solver's
                self.built_in = self.finished = False
        kept = self.terms - self.predicted
        self.record(kept, self.proof, (0, self.predicted, refuted), times)

    # -- the answer -----------------------------------------------------------------------------

    def certified(self, best: BudgetedPoint) -> Certificate:
        """The certificate of `best`, or of the same x with better multipliers, which it becomes."""
        proof = certify_budgets(self.made, best, self.tol)
        for improve in (repaired, slack_released, balanced):
            if proof.ok:
                break
            other = improve(self.made, best)
            better = certify_budgets(self.made, other, self.tol)
            if better.gap < proof.gap:
                self.centre = best = other
                proof = better
        return proof


def _undecided(n: int) -> Selection:
    return Selection(np.full(n, Piece.UNDECIDED, dtype=np.int8))


def _predicted(part: Problem, margins: Array, held: Mask, keep: int) -> Selection:
    """The linear pieces of the terms that are not among the `keep` nearest to a kink."""
    if not part.n:
        return _undecided(0)
    codes = far_from_kinks(part.losses, margins, keep, held)
    codes[on_parabola(codes)] = Piece.UNDECIDED
    return Selection(codes)


# -- better multipliers for a point ---------------------------------------------------------------


def levelled(parts: tuple[Problem, ...], point: BudgetedPoint) -> BudgetedPoint:
    """`point` with the lowest value of each budget over a level that it alone sees, as a VaR.

    Where a budget does not bind, any level that keeps it is as good, and what a solver hands out
    may lie anywhere.
    """
    objective, budgets = parts[0], parts[1:]
    seen = np.array([(part.column_sizes > 0.0) | (part.linear != 0.0) for part in budgets])
    alone = (objective.column_sizes == 0.0) & (objective.linear == 0.0) & (seen.sum(axis=0) == 1)
    for part in parts:
        form = part.quadratic
        alone &= form.untouched if isinstance(form, Quadratic) else False
    if objective.side is not None:
        alone[objective.side.matrix.indices] = False
    x, margins = point.x.copy(), list(point.margins)
    for j in np.flatnonzero(alone):
        k = int(np.argmax(seen[:, j]))
        part, column = budgets[k], budgets[k].design.take_columns(np.array([j])).dense()[:, 0]
        losses, used = part.losses, column != 0.0
        kinks = (losses.b - margins[k + 1])[used] / column[used]
        if not len(kinks):
            continue
        low, high = float(kinks.min()), float(kinks.max())
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            slope = float(losses.slope(margins[k + 1] + middle * column) @ column)
            low, high = (middle, high) if slope + part.linear[j] < 0.0 else (low, middle)
        x[j] += high
        margins[k + 1] = margins[k + 1] + high * column
    return point._replace(x=x, margins=tuple(margins))


def repaired(made: BudgetedProblem, best: BudgetedPoint) -> BudgetedPoint:
    """`best` moved to the vertex that it is near to, and its multipliers with it.

    There are a kink for every slope inside its interval, an active constraint for every multiplier,
    and the budgets that are used up: their equations say x, and that the gradient of the Lagrangian
    is 0 says slopes and multipliers. At a vertex they are as many as there are coordinates, and
    what is left is rounding; elsewhere the nearest solution is taken.
    """
    lagrangian, theta = lagrangian_at(made, best)
    losses, side = lagrangian.losses, lagrangian.side
    x, mu = best.x.copy(), best.side_multipliers.copy()
    weights = effective_multipliers(made, best.budget_multipliers)
    used = np.array([
        weight * -budget_value(part, x)[0] <= INSIDE * abs(lagrangian.primal(x))
        and weight > 0.0 for part, weight in zip(made.budgets, weights, strict=True)
    ])
    active = np.zeros(0, dtype=np.intp) if side is None else np.flatnonzero(_active(side, mu))
    width = losses.hi - losses.lo
    inner = np.minimum(theta - losses.lo, losses.hi - theta) / width
    inner[~np.isfinite(width) | (losses.q > 0)] = 0.0
    left = max(lagrangian.d - len(active) - int(used.sum()), 1)
    inside = np.argsort(-inner)[:left]
    inside = np.sort(inside[inner[inside] > INSIDE])
    slopes = np.array([
        part.linear + part.design.adjoint(u)
        for part, u in zip(made.budgets, best.slopes[1:], strict=True)
    ])[used]
    taken, kinks = lagrangian.design.take_rows(inside), losses.take(inside)
    rows = [taken.dense(), slopes]
    if side is not None:
        rows.append(-np.asarray(side.matrix[active].toarray()))
    system = np.vstack(rows)
    ends = np.cumsum([len(inside), len(slopes), len(active)])
    for _ in range(2):
        away = taken.forward(x) - kinks.b
        away -= np.sign(away) * kinks.e
        over = np.array([budget_value(part, x)[0] for part in made.budgets])[used]
        short = np.zeros(0) if side is None else side.slack(x)[active]
        x += np.linalg.lstsq(system, -np.concatenate([away, over, -short]), rcond=None)[0]
        residual = lagrangian.design.adjoint(theta) + lagrangian.linear
        residual += lagrangian.quadratic.apply(x)
        if side is not None:
            residual -= side.adjoint(mu)
        step = np.linalg.lstsq(system.T, -residual, rcond=None)[0]
        weights[used] = np.maximum(weights[used] + step[ends[0]: ends[1]], 0.0)
        moved = _with_slopes(made, best, theta, mu)
        moved = moved._replace(budget_multipliers=weights)
        lagrangian, theta = lagrangian_at(made, moved)
        theta[inside] += step[: ends[0]]
        mu[active] += step[ends[1]:]
    mu = mu if side is None else side.project_dual(mu)
    moved = best._replace(x=x, budget_multipliers=weights)
    return _with_slopes(made, moved, theta, mu)


def _active(side: SideConstraints, mu: Array) -> Mask:
    """Equalities, and inequalities with a multiplier that is more than an inner point leaves."""
    out = np.zeros(len(mu), dtype=bool)
    least = INSIDE * float(np.abs(mu).max(initial=0.0))
    for kind, _, rows in side.blocks():
        if kind in ("zero", "nonneg"):
            out[rows] = (mu[rows] > least) | (kind == "zero")
    return out


def at_zero(made: BudgetedProblem) -> BudgetedPoint | None:
    """The point 0 where that is optimal, but for rounding, and no budget matters; else None.

    No gap is small beside a value of 0, such as a norm has there. What comes close to it would be
    solved in vain.
    """
    own, x = made.objective, np.zeros(made.objective.d)
    margins = tuple(np.zeros(part.n) for part in made.parts)
    if own.constant + float(own.losses.value(margins[0]).sum()) != 0.0:
        return None
    multipliers = _multipliers_at_zero(own)
    if multipliers is None or own.losses.slope(margins[0]).any():
        return None
    for part, zeros in zip(made.budgets, margins[1:], strict=True):
        value = float(part.losses.value(zeros).sum()) + part.constant
        if value > 0.0 and value > budget_value(part, x)[2]:  # by more than its rounding
            return None
    slopes = tuple(part.losses.slope(t) for part, t in zip(made.parts, margins, strict=True))
    return BudgetedPoint(x, slopes, np.zeros(len(made.budgets)), multipliers, margins)


def _multipliers_at_zero(own: Problem) -> Array | None:
    """Of the side constraints, that take up the linear term at 0; None where there are none."""
    side = own.side
    if side is None:
        return None if own.linear.any() else np.zeros(0)
    if side.violation(np.zeros(own.d)) > 0.0:
        return None
    found, active = np.zeros(len(side.offset)), np.flatnonzero(side.offset == 0.0)
    if not own.linear.any():
        return found
    if not 0 < len(active) * own.d <= SMALL:
        return None
    rows = side.matrix[active].toarray()
    found[active] = np.linalg.lstsq(rows.T, own.linear, rcond=None)[0]
    found = side.project_dual(found)
    left = np.abs(side.adjoint(found) - own.linear)
    return found if left.max() <= INSIDE * np.abs(own.linear).max() else None


def slack_released(made: BudgetedProblem, best: BudgetedPoint) -> BudgetedPoint:
    """`best` with a multiplier of 0 for every budget that is not used up."""
    multipliers = best.budget_multipliers.copy()
    for k, part in enumerate(made.budgets):
        value, size, _ = budget_value(part, best.x)
        if value < -INSIDE * size:
            multipliers[k] = 0.0
    return best._replace(budget_multipliers=multipliers)


def balanced(made: BudgetedProblem, best: BudgetedPoint) -> BudgetedPoint:
    """`best` with the unpenalised coordinates balanced."""
    lagrangian, theta = lagrangian_at(made, best)
    theta, mu = dual_feasible(lagrangian, theta, best.side_multipliers, None, best.x)
    return _with_slopes(made, best, theta, mu)


def _with_slopes(
    made: BudgetedProblem, best: BudgetedPoint, theta: Array, mu: Array
) -> BudgetedPoint:
    """`best` with other slopes of the Lagrangian, and other multipliers of the constraints."""
    weights = np.append(1.0, effective_multipliers(made, best.budget_multipliers))
    slopes = tuple(
        np.clip(theta[place] / weight, part.losses.lo, part.losses.hi)
        for part, place, weight in zip(made.parts, made.places, weights, strict=True)
    )
    return best._replace(slopes=slopes, side_multipliers=mu)


# -- the certificate ------------------------------------------------------------------------------


def effective_multipliers(made: BudgetedProblem, multipliers: Array) -> Array:
    """Multipliers that are positive for certain; see `LEAST_MULTIPLIER`."""
    return np.maximum(multipliers, LEAST_MULTIPLIER * guessed_multipliers(made))


def guessed_multipliers(made: BudgetedProblem) -> Array:
    """The size that multipliers may have: slopes of the objective over those of the budgets."""
    own = float(np.abs(made.objective.linear).max(initial=0.0))
    sizes = [float(np.abs(part.linear).max(initial=0.0)) for part in made.budgets]
    return np.array([(own or 1.0) / (size or unit(part)) for size, part in zip(
        sizes, made.budgets, strict=True)])


def without_feasible(
    made: BudgetedProblem, screened: ScreenedBudgets, times: dict[str, float]
) -> Report | None:
    """Write back that nothing is within the budgets; None where that is not shown, on all rows.

    The multipliers of all rows go with those of the budgets, and with an objective that is no part
    of the proof: it cancels in the difference of two such answers.
    """
    nothing = screened.nothing
    if nothing is None:
        return None
    guessed = guessed_multipliers(made)
    unit = float(np.max(guessed / nothing.weights))  # of the objective's size
    sides, found = nothing.multipliers * unit, []
    for times_proof in (1.0, 2.0):
        weights = times_proof * unit * nothing.weights
        theta = np.zeros(made.terms)
        for place, slopes, weight in zip(
            made.places, nothing.slopes, (times_proof * unit, *weights), strict=True
        ):
            theta[place] = weight * slopes
        try:
            recognition = made.recognised_at(weights)
            z = recognition.columns(nothing.x)
        except CvxscreenError:
            return None
        rows = recognition.multipliers(z, theta, times_proof * sides)
        rows[made.rows] = weights
        found.append(rows)
    report = Report(
        recognised=True, mode="certified", solver="INTERIOR_POINT", terms=made.terms,
        kept=made.terms - screened.predicted, beside=made.descriptions,
        rounds=max(len(screened.rounds), 1), times=times,
    )
    return written_infeasible(made.standard, z, found[0], found[1], report, screened.steps)


def lagrangian_at(made: BudgetedProblem, point: BudgetedPoint) -> tuple[Problem, Array]:
    """The Lagrangian at a point's multipliers, and its slopes."""
    multipliers = effective_multipliers(made, point.budget_multipliers)
    lagrangian = made.at(multipliers)
    theta = np.zeros(lagrangian.n)
    weights = np.append(1.0, multipliers)
    for place, slopes, weight in zip(made.places, point.slopes, weights, strict=True):
        theta[place] = weight * slopes
    return lagrangian, np.clip(theta, lagrangian.losses.lo, lagrangian.losses.hi)


def certify_budgets(made: BudgetedProblem, point: BudgetedPoint, tol: float) -> Certificate:
    """Recompute the optimality of a point on all terms; see the module's docstring."""
    multipliers = effective_multipliers(made, point.budget_multipliers)
    if point.budget_multipliers.any():
        lagrangian, theta = lagrangian_at(made, point)
    else:  # what minimises the objective alone, and is within the budgets
        lagrangian, theta = made.objective, point.slopes[0]
        multipliers = np.zeros(len(multipliers))
    proof = certify(lagrangian, point.x, theta, point.side_multipliers, tol=tol)
    slack, excess, within = 0.0, 0.0, True
    for part, weight in zip(made.budgets, multipliers, strict=True):
        value, size, error = budget_value(part, point.x)
        slack = up(slack + up(weight * up(max(-value, 0.0) + error)))
        excess = max(excess, value)
        within = within and value <= tol * size
    primal = made.objective.primal(point.x)
    gap = up(proof.gap + slack)
    relative = float(relative_gap(gap, primal))
    ok, reason = proof.ok and relative <= tol and within, proof.reason
    if proof.ok and not within:
        reason = f"a budget of losses is exceeded by {excess:.3g}"
    elif proof.ok and not ok:
        reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
    return replace(
        proof, gap=gap, relative_gap=relative, primal=primal, dual=primal - gap, ok=ok,
        reason=reason, primal_residual=max(proof.primal_residual, excess),
    )


def budget_value(part: Problem, x: Array) -> tuple[float, float, float]:
    """``g(x)``, the size of what it is a sum of, and a bound of its rounding error."""
    margins = part.design.forward(x)
    values = part.losses.value(margins)
    linear = part.linear * x
    value = float(values.sum()) + float(linear.sum()) + part.constant
    size = float(values.sum()) + float(np.abs(linear).sum()) + abs(part.constant)
    steepest = _steepness(part.losses)
    reach = float(np.linalg.norm(x)) * float(steepest @ part.sizes)
    reach += float(steepest @ (np.abs(part.losses.b) + part.losses.e))
    # Sums of numpy are pairwise: the logarithm of their length is what counts.
    operations = part.d + 8 + 2 * int(np.log2(part.n + part.d + 2))
    return value, size, up(gamma(operations) * (size + reach))


def _steepness(losses: LossTerms) -> Array:
    return np.maximum(np.abs(losses.lo), np.abs(losses.hi))


# -- the door -------------------------------------------------------------------------------------


def screened_budgets(
    made: BudgetedProblem, cvxpy_solver: CvxpySolver, mode: str, tol: float, recognised: float
) -> Report | str:
    """Solve a problem with budgets and write back; or why CVXPY's answer is needed.

    `recognised` is the time of the recognition, in seconds.
    """
    if mode == "safe":
        return "nothing can be proven of losses in a budget before the solve"
    began, start = perf_counter(), None
    # A solver that the user names, or gives options, solves all that is solved.
    built_in = cvxpy_solver.leaves_choice
    known = last_answer(made.standard.canonical.original)
    if known is not None and cvxpy_solver.warm and isinstance(known.found, BudgetedProblem):
        if known.is_of(made) and built_in:
            again = certify_budgets(made, known.point, tol)
            if again.ok:
                return known.written_again(again, recognised, perf_counter() - began)
        start = moved_pair(known.found, known.point, made)
    screened = ScreenedBudgets(made, made.parts, cvxpy_solver, tol, built_in)
    try:
        zero = at_zero(made)
        if zero is None:
            screened.begin(start)
            run(screened)
        else:
            judged = certify_budgets(made, zero, tol)
            if not judged.ok:
                return "its value is 0 but for rounding, beside which no gap is small"
            screened.end_at(zero, judged)
    except (CvxscreenError, np.linalg.LinAlgError) as error:
        return f"the screening loop stopped: {error}"
    best, last, proof = screened.centre, cvxpy_solver.problem_solved, screened.proof
    times = {"recognise": recognised, "solve": screened.solving}
    shown = without_feasible(made, screened, times)
    if shown is not None:
        return shown
    if best is None or proof is None:
        return not_solved(screened.result.status)
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    ended = perf_counter()
    multipliers = effective_multipliers(made, best.budget_multipliers)
    try:
        recognition = made.recognised_at(multipliers)
    except CvxscreenError as error:
        return f"its dual values could not be restored: {error}"
    theta = lagrangian_at(made, best)[1]
    restored = restore(recognition, best.x, theta, best.side_multipliers)
    restored.multipliers[made.rows] = multipliers if best.budget_multipliers.any() else 0.0
    stats = None if last is None else last.solver_stats
    seconds = perf_counter() - ended
    report = Report(
        recognised=True, mode=mode,
        solver="INTERIOR_POINT" if stats is None else stats.solver_name, terms=made.terms,
        kept=screened.rounds[-1].kept,
        fixed={"zero": 0, "linear": 0, "quadratic": 0, "predicted": screened.predicted},
        beside=made.descriptions, gap=proof.gap, relative_gap=proof.relative_gap,
        rounds=len(screened.rounds),
        times={
            "recognise": recognised, "screen": ended - began - screened.solving,
            "solve": screened.solving, "restore": seconds,
        },
    )
    whole = recognition._replace(standard=made.standard)
    write_back(
        whole,
        restored,
        status=status_of(proof.ok, None if last is None else last.status),
        solver=report.solver,
        statistics=statistics(
            report, solve_time=screened.solving if stats is None else cvxpy_solver.solve_time,
            setup_time=cvxpy_solver.setup_time,
            iterations=screened.steps if stats is None else stats.num_iters,
            inner=None if stats is None else stats.extra_stats,
        ),
    )
    store_answer(made, best, whole, restored, report)
    return report


def moved_pair(
    old: BudgetedProblem, point: BudgetedPoint, made: BudgetedProblem
) -> BudgetedPair | None:
    """The last answer as a start for `made`, at other numbers; None for another problem."""
    sizes = [[(part.n, part.d) for part in problem.parts] for problem in (old, made)]
    side = made.objective.side
    rows = 0 if side is None else side.matrix.shape[0]
    if sizes[0] != sizes[1] or rows != len(point.side_multipliers):
        return None
    slopes = tuple(
        moved_slopes(slope, first.losses, second.losses)
        for slope, first, second in zip(point.slopes, old.parts, made.parts, strict=True)
    )
    return BudgetedPair(point.x, slopes, point.budget_multipliers, point.side_multipliers)
