"""Auxiliary variables of the user's, written out: what they stand for, in their place.

*An epigraph's.* A variable that costs something and bounds one convex function::

    minimise  F(x) + c t   subject to   g(x) <= a t,     a > 0,  c >= 0

is ``F(x) + (c/a) g(x)``, with ``t = g(x) / a``, where nothing else holds t (Boyd and Vandenberghe,
"Convex optimization", 2004, section 4.1.3). The constraint's multiplier is ``c/a``, by stationarity
in t. A loss is written so where the constraint is to be named, or a paper writes it so:
``sum(huber(X @ w - y)) <= t``. In the objective it is read like any other.

*A level.* A number that losses lie above::

    c t + w sum_i pos(l_i(x) - t),     0 < c < n w,

where nothing else holds t, is least at the level t above which ``c / w`` of the losses lie, and is
there ``w sum_largest(l(x), c / w)`` (Rockafellar and Uryasev, "Optimization of conditional
value-at-risk", 2000). For losses that are affine, hinges above a level are losses as they are. For
others, as a newsvendor's costs ``maximum(4 * (x - D), 9 * (D - x))``, each value is the largest of
three affine ones in two directions, of which nothing can be left out; but the largest of losses
that rise on both sides of one least value are the largest of their lines
(`loss_atoms.in_simpler_atoms`).

*A name.* A variable that an equation defines::

    minimise  F(x, z)   subject to   z == A x + b,   g(x, z) <= 0

is a problem in x alone, once ``A x + b`` is written where z was. So are losses of a portfolio
often written, with a name: ``z == -R @ w``, ``cvar(z, 0.95) <= t``. The losses are then read as if
nobody had named them (`loss_atoms`), and CVXPY's cone form never sees a column for each. The user
is given z, which follows from x, and the equation's multiplier, at which the Lagrangian's gradient
in z is 0. What losses pull at z is known by their slopes (`DefinedVariable.pull`), what sums,
squares and other constraints do by the user's own expressions (`DefinedVariable.multiplier`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.wraps import Wrap
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.expressions import (
    exchanged,
    holds,
    is_quadratic_as_written,
    read_affine,
    read_objective,
    value_at,
)
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import (
    LossGroup,
    OtherForm,
    factor_of,
    largest_of_lines,
    weigh,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import Diagonal, column_sums, csr
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, Unreadable, sum_of, summands_of
from cvxscreen.cvxpy_plugin.size import FEWEST

Array = NDArray[np.float64]

FEWEST_ENTRIES = 100
"""Entries of a variable below which CVXPY's columns for them cost next to nothing."""


# -- bounds of one function ------------------------------------------------------------------------


class EpigraphVariable(NamedTuple):
    """A variable of the user's that is no column, as a function stands in its place.

    Attributes
    ----------
    variable : cvxpy.Variable
    constraint : cvxpy constraint
        ``g(x) <= a t``.
    bound : cvxpy.Expression
        ``g(x) / a``.
    cost : Term
        ``c t`` in the objective to be minimised.
    share : float
        ``a``.
    """

    variable: Any
    constraint: Any
    bound: Any
    cost: Term
    share: float

    def value(self, values: dict[int, Any]) -> Any:
        """Of the variable, at values of the others by their identifiers."""
        return np.reshape(value_at(self.bound, values), self.variable.shape)

    def is_met(self, agreement: float) -> bool:
        """Whether both sides of the user's constraint are equal, at the values there are now.

        Parameters
        ----------
        agreement : float
            Largest relative difference.
        """
        low, high = (float(np.squeeze(side.value)) for side in self.constraint.args)
        return abs(low - high) <= agreement * (1.0 + abs(low) + abs(high))

    @property
    def dual_value(self) -> Any:
        """Of the constraint, at the present values of parameters."""
        scales = (float(np.squeeze(scale.value)) for scale in self.cost.scales)
        multiplier = self.cost.factor * prod(scales) / self.share
        shape = self.constraint.shape
        return np.full(shape, multiplier) if shape else multiplier

    def write(self, values: dict[int, Any], duals: dict[int, Any]) -> None:
        """Put what was left out to `values` of variables and dual values of constraints."""
        values[self.variable.id] = self.value(values)
        duals[self.constraint.id] = self.dual_value


def without_epigraph_variables(problem: Any) -> tuple[Any, tuple[EpigraphVariable, ...]]:
    """`problem` with functions in the place of the variables that only bound them; and these.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are none.
    tuple of EpigraphVariable
    """
    scalars = {variable.id: variable for variable in problem.variables() if variable.size == 1}
    if not (scalars and problem.constraints):
        return problem, ()
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    try:
        bounds = list(_bounds(problem, scalars))
        costs = list(summands_of(problem.objective.expr, sign)) if bounds else []
    except Unreadable:
        return problem, ()
    found, made = [], []
    for constraint, place, parts in bounds:
        variable, share = place.expr, -place.factor
        mine = [cost for cost in costs if cost.expr is variable]
        others = [cost.expr for cost in costs if cost.expr is not variable]
        others += [part.expr for part in parts]
        others += [other for other in problem.constraints if other is not constraint]
        if len(mine) != 1 or any(holds(part, variable) for part in others):
            continue
        (cost,) = mine
        function = sum_of([part._replace(factor=part.factor / share) for part in parts])
        if function.is_affine() or not _leaves(variable, function):
            continue
        found.append(EpigraphVariable(variable, constraint, function, cost, share))
        made += [
            Term(cost.factor * part.factor / share, (*cost.scales, *part.scales), part.expr)
            for part in parts
        ]
    if not found:
        return problem, ()
    taken = {one.variable.id for one in found}
    rest = [cost for cost in costs if not _is_one_of(cost.expr, taken)]
    held = {one.constraint.id for one in found}
    constraints = [c for c in problem.constraints if c.id not in held]
    total = sum_of([*rest, *made])
    whole = cp.Problem(type(problem.objective)(total if sign > 0 else -total), constraints)
    # What pays, or may, would leave a function that is not convex.
    return (whole, tuple(found)) if whole.is_dcp() else (problem, ())


def _bounds(problem: Any, scalars: dict[int, Any]) -> Iterator[tuple[Any, Term, list[Term]]]:
    """Scalar constraints ``g(x) - a t <= 0``, the term of t, and those of g."""
    for constraint in problem.constraints:
        if type(constraint) is not Inequality or constraint.size != 1:
            continue
        lower, upper = constraint.args
        terms = [*summands_of(lower), *summands_of(upper, -1.0)]
        if all(term.expr.is_affine() for term in terms):
            continue
        for term in terms:
            if _is_one_of(term.expr, scalars) and term.factor < 0.0 and not term.scales:
                yield constraint, term, [other for other in terms if other is not term]


def _is_one_of(expr: Any, variables: Any) -> bool:
    return isinstance(expr, cp.Variable) and expr.id in variables


def _asked(variable: Any) -> set[str]:
    """The attributes that its values must have."""
    return {name for name, value in variable.attributes.items() if value not in (None, False)}


def _leaves(variable: Any, function: Any) -> bool:
    """Whether what is asked of `variable` holds wherever it is at `function`."""
    asked = _asked(variable)
    return not asked or (asked == {"nonneg"} and function.is_nonneg())


# -- levels that losses lie above ------------------------------------------------------------------


class LevelVariable(NamedTuple):
    """A number of the user's that is no column, as a sum of largest losses stands in its place.

    Attributes
    ----------
    variable : cvxpy.Variable
        ``t``.
    losses : cvxpy.Expression
        ``l(x)``.
    above : float
        How many of them lie above it, ``c / w``.
    """

    variable: Any
    losses: Any
    above: float

    def value(self, values: dict[int, Any]) -> Any:
        """A best level at values of the other variables, by their identifiers."""
        entries = np.sort(np.ravel(value_at(self.losses, values)))[::-1]
        return np.full(self.variable.shape, entries[int(self.above)])

    def is_met(self, agreement: float) -> bool:
        """No constraint was taken out for it, so that none is missed."""
        return True

    def write(self, values: dict[int, Any], duals: dict[int, Any]) -> None:
        """Put the variable to `values`, in place; no constraint has it for its own."""
        values[self.variable.id] = self.value(values)


def without_level_variables(problem: Any) -> tuple[Any, tuple[LevelVariable, ...]]:
    """`problem` with sums of the largest in the place of numbers that losses lie above; and these.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are none. Constraints that are written anew keep their
        identifiers.
    tuple of LevelVariable
    """
    if not KINKED & set(problem.atoms()):
        return problem, ()
    parts = [problem.objective, *problem.constraints]
    inside = [[v for v in part.variables() if v.size == 1 and not _asked(v)] for part in parts]
    holding = Counter(variable.id for variables in inside for variable in variables)
    found: list[LevelVariable] = []
    for k, variables in enumerate(inside):
        alone = [variable for variable in variables if holding[variable.id] == 1]
        if alone:
            parts[k], levels = _without(parts[k], alone)
            found += levels
    whole = cp.Problem(parts[0], parts[1:]) if found else problem
    return (whole, tuple(found)) if whole.is_dcp() else (problem, ())


KINKED = {cp.pos, cp.maximum}


def _without(part: Any, variables: list[Any]) -> tuple[Any, list[LevelVariable]]:
    """The objective or a constraint without those of `variables` that are levels; and these."""
    kind = type(part)
    try:
        if kind is Inequality and part.size == 1:
            terms = [*summands_of(part.args[0]), *summands_of(part.args[1], -1.0)]
        elif kind in (cp.Minimize, cp.Maximize):
            terms = list(summands_of(part.expr, 1.0 if kind is cp.Minimize else -1.0))
        else:
            return part, []
    except Unreadable:
        return part, []
    holding: dict[int, list[Term]] = {variable.id: [] for variable in variables}
    for term in terms:
        for variable in term.expr.variables():
            if variable.id in holding:
                holding[variable.id].append(term)
    levels, made, gone = [], [], set[int]()
    for variable in variables:
        mine = holding[variable.id]
        if len(mine) != 2 or any(id(term) in gone for term in mine):
            continue
        with suppress(OtherForm, Unreadable):
            largest, level = _largest(mine, variable)
            levels.append(level)
            made.append(largest)
            gone |= {id(term) for term in mine}
    if not levels:
        return part, []
    total = sum_of([*(term for term in terms if id(term) not in gone), *made])
    if kind is Inequality:
        return part.copy([total, cp.Constant(0.0)]), levels
    return kind(total if kind is cp.Minimize else -total), levels


def _largest(terms: list[Term], variable: Any) -> tuple[Term, LevelVariable]:
    """A sum of the largest in place of the two terms that hold `variable`.

    Raises
    ------
    OtherForm, Unreadable
        If they are not its price and losses above it.
    """
    price = next((term for term in terms if term.expr is variable), None)
    above = next((term for term in terms if term.expr is not variable), None)
    if price is None or above is None:
        raise OtherForm
    losses, weight = _above(above, variable)
    alike = len(price.scales) == len(above.scales) and all(
        one is other for one, other in zip(price.scales, above.scales, strict=True)
    )
    if not alike or not 0.0 < price.factor < weight * losses.size:
        raise OtherForm
    count = price.factor / weight
    largest = Term(weight, above.scales, largest_of_lines(cp.sum_largest(losses, count)))
    return largest, LevelVariable(variable, losses, count)


def _above(term: Term, variable: Any) -> tuple[Any, float]:
    """The losses of which `term` adds up what lies above `variable`, and what each costs."""
    found: list[tuple[Any, Any, Any]] = []
    weigh(term.expr, np.array([term.factor]), found)
    if len(found) != 1:
        raise OtherForm
    whole, weights, _ = found[0]
    args = [arg for arg in whole.args if not (arg.is_constant() and np.all(arg.value == 0.0))]
    added = len(args) == 1 and type(args[0]).__name__ == "AddExpression"
    if not (added and type(whole) in KINKED and weights[0] > 0.0) or np.ptp(weights):
        raise OtherForm
    summands = args[0].args
    mine = [arg for arg in summands if holds(arg, variable)]
    rest = [arg for arg in summands if not holds(arg, variable)]
    losses = sum(rest[1:], rest[0])
    if len(mine) != 1 or not mine[0].is_affine() or losses.is_affine():
        raise OtherForm
    read = read_affine(mine[0])
    if read.constant.any() or (csr(read.blocks[variable.id]).toarray() != -1.0).any():
        raise OtherForm
    if len(read.blocks) > 1 or losses.size != whole.size:
        raise OtherForm
    return losses, float(weights[0])


# -- names that equations give ---------------------------------------------------------------------


class Definition(NamedTuple):
    """An equation solved for a variable that it has once, by itself.

    Attributes
    ----------
    sign : float
        1 or -1, of the variable in the equation's left side less its right one.
    expr : cvxpy.Expression
        What the variable is.
    """

    sign: float
    expr: Any


def solved_for(constraint: Any, variable: Any) -> Definition | None:
    """What an equation says that `variable` is; None where it is there in another way."""
    if _asked(variable):
        return None
    left_less_right, *right = constraint.args
    if right and left_less_right is variable and not holds(right[0], variable):
        return Definition(1.0, right[0])
    if right:
        left_less_right = left_less_right - constraint.args[1]
    signs = list(_signs(left_less_right, 1.0, variable))
    if signs not in ([1.0], [-1.0]):
        return None
    none = cp.Constant(np.zeros(variable.shape))
    rest = exchanged(left_less_right, {id(variable): none})
    return Definition(signs[0], -rest if signs[0] > 0.0 else rest)


def _signs(expr: Any, sign: float, variable: Any) -> Iterator[float]:
    """The sign of each place of `variable` in a sum, 0 where it is no term by itself."""
    kind = type(expr).__name__
    if expr is variable:
        yield sign
    elif kind in ("AddExpression", "NegExpression") and expr.shape == variable.shape:
        for arg in expr.args:
            yield from _signs(arg, -sign if kind == "NegExpression" else sign, variable)
    elif holds(expr, variable):
        yield 0.0


class DefinedVariable(NamedTuple):
    """A variable of the user's that is no column, as what defines it stands in its place.

    Attributes
    ----------
    variable : cvxpy.Variable
        ``z``.
    constraint : cvxpy constraint
        The equation, as the user wrote it.
    definition : Definition
        Whose expression is in no other place, and has none of these variables.
    """

    variable: Any
    constraint: Any
    definition: Definition

    def value(self, values: dict[int, Any]) -> Any:
        """Of the variable, at values of the others by their identifiers."""
        return value_at(self.definition.expr, values)

    def is_met(self, agreement: float) -> bool:
        """Whether both sides of the user's equation are equal, at the values there are now.

        Parameters
        ----------
        agreement : float
            Largest relative difference.
        """
        left, right = (np.asarray(side.value) for side in self.constraint.args)
        size = 1.0 + max(float(np.abs(side).max(initial=0.0)) for side in (left, right))
        return bool(float(np.abs(left - right).max()) <= agreement * size)

    def pull(self, groups: Iterable[tuple[LossGroup, Array]], others: dict[int, Any]) -> Array:
        """What losses pull at the entries, column-major.

        Parameters
        ----------
        groups : iterable of (LossGroup, array)
            With the slopes of their terms in the arguments.
        others : dict
            `places` of all variables that were written out.
        """
        total = np.zeros(self.variable.size)
        for group, slopes in groups:
            argument = exchanged(group.argument, others)
            if holds(argument, self.variable):
                total += column_sums(read_affine(argument).blocks[self.variable.id], slopes)
        return total

    def multiplier(
        self, problem: Any, pull: Array, duals: dict[int, Any], values: dict[int, Any] | None,
        read: Collection[int],
    ) -> Array:
        """The equation's, where the Lagrangian's gradient in the variable is 0.

        Parameters
        ----------
        problem : cvxpy.Problem
            The user's.
        pull : array
            Of its losses.
        duals : dict
            Of its other constraints, by their identifiers.
        values : dict or None
            Of its variables; None where the objective has no part, as in a proof that nothing
            is feasible.
        read : collection of int
            Constraints of which all is among the losses.
        """
        total, key = pull.copy(), self.variable.id
        for constraint in problem.constraints:
            taken = constraint.id in read or constraint is self.constraint
            if taken or constraint.id not in duals or not holds(constraint, self.variable):
                continue
            multipliers = np.asarray(duals[constraint.id], dtype=np.float64).ravel(order="F")
            difference = constraint.args[0] - constraint.args[1]
            if difference.is_affine():
                total += column_sums(read_affine(difference).blocks[key], multipliers)
            else:  # scalar: its losses are among those that pull
                total += multipliers.item() * self._slope(difference, 1.0, values or {})
        if values is not None:
            sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
            total += self._slope(problem.objective.expr, sign, values)
        shape = self.constraint.shape
        return np.reshape(-self.definition.sign * total, shape, order="F")

    def _slope(self, expr: Any, sign: float, values: dict[int, Any]) -> Array:
        """The gradient of ``sign * expr``, a scalar, but for the losses among its summands."""
        total, key = np.zeros(self.variable.size), self.variable.id
        for part in summands_of(expr, sign):
            if not holds(part.expr, self.variable):
                continue
            factor = factor_of(part)
            if part.expr.is_affine():
                total += column_sums(read_affine(part.expr).blocks[key], np.array([factor]))
            elif is_quadratic_as_written(part.expr):
                found = read_objective(part.expr)
                if key in found.slopes:
                    total += factor * found.slopes[key]
                if key in found.squares:
                    square, at = found.squares[key], np.ravel(values[key], order="F")
                    moved = square.entries * at if isinstance(square, Diagonal) else square @ at
                    total += factor * moved
        return total


def without_defined_variables(problem: Any) -> tuple[Any, tuple[DefinedVariable, ...]]:
    """`problem` with what equations define in the place of many entries; and these variables.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are none. Constraints that are written anew keep their
        identifiers.
    tuple of DefinedVariable
        None is defined by one behind it.
    """
    large = {v.id for v in problem.variables() if v.size >= FEWEST_ENTRIES}
    found: list[DefinedVariable] = []
    if not large:
        return problem, ()
    parts, own = [problem.objective, *problem.constraints], [None, *problem.constraints]
    while (taken := next(_definitions(parts, large), None)) is not None:
        k, variable, definition = taken
        found.append(DefinedVariable(variable, own[k], definition))
        del parts[k], own[k]
        parts = [exchanged(part, {id(variable): definition.expr}) for part in parts]
    return (cp.Problem(parts[0], parts[1:]), tuple(found)) if found else (problem, ())


def _definitions(parts: list[Any], large: set[int]) -> Iterator[tuple[int, Any, Definition]]:
    """Which constraints define one of the `large` variables, that something else has, and how."""
    inside: list[dict[int, Any]] = []
    for part in parts:
        inside.append({variable.id: variable for variable in part.variables()})
    for k, constraint in enumerate(parts):
        if not (k and type(constraint) is Equality and inside[k].keys() & large):
            continue
        total = sum(variable.size for variable in inside[k].values())
        for key, variable in inside[k].items():
            rows, others = variable.size, total - variable.size
            if key not in large or variable.shape != constraint.shape or not others:
                continue
            holding = [part for j, part in enumerate(parts) if j != k and key in inside[j]]
            if rows <= FEWEST * others or not holding or not all(map(_is_plain, holding)):
                continue
            definition = solved_for(constraint, variable)
            if definition is not None:  # behind a wrap that no sum takes apart, its own
                yield k, variable, definition._replace(expr=Wrap(definition.expr))


def _is_plain(part: Any) -> bool:
    """Whether `part` is the objective, an equation or an inequality, which say their gradients."""
    return isinstance(part, cp.Minimize | cp.Maximize) or type(part) in (Equality, Inequality)


def places(defined: Iterable[DefinedVariable]) -> dict[int, Any]:
    """The variables by the identity of the expressions in their places."""
    return {id(one.definition.expr): one.variable for one in defined}


def are_read(
    defined: Iterable[DefinedVariable], groups: Iterable[LossGroup], left: Any
) -> bool:
    """Whether losses are read of the variables, and all else says what it pulls at them.

    Parameters
    ----------
    defined : iterable of DefinedVariable
    groups : iterable of LossGroup
    left : cvxpy.Problem
        Without these losses.
    """
    back = places(defined)

    def has_one(part: Any) -> bool:
        return id(part) in back or any(map(has_one, part.args))

    def says(part: Any) -> bool:
        written = exchanged(part, back)
        return bool(written.is_affine()) or is_quadratic_as_written(written)

    if not any(has_one(group.argument) for group in groups):
        return False
    try:
        summands = [part.expr for part in summands_of(left.objective.expr)]
    except Unreadable:
        return False
    rows = [arg for constraint in left.constraints for arg in constraint.args]
    return all(says(part) for part in summands if has_one(part)) and all(
        arg.is_affine() for arg in rows if has_one(arg)
    )
