"""Variables of the user's that an equation defines, with what they are in their place.

::

    minimise  F(x, z)   subject to   z == A x + b,   g(x, z) <= 0

is a problem in x alone, once ``A x + b`` is written where z was. So are losses of a portfolio
often written, with a name: ``z == -R @ w``, ``cvar(z, 0.95) <= t``. The losses are then read as if
nobody had named them (`loss_atoms`), and CVXPY's cone form never sees a column for each.

The user is given z, which follows from x, and the equation's multiplier, at which the Lagrangian's
gradient in z is 0. What losses pull at z is known by their slopes (`DefinedVariable.pull`), what
sums, squares and other constraints do by the user's own expressions (`DefinedVariable.multiplier`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
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
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import LossGroup, factor_of
from cvxscreen.cvxpy_plugin.recognise.matrices import Diagonal, column_sums
from cvxscreen.cvxpy_plugin.recognise.python_loops import Unreadable, summands_of
from cvxscreen.cvxpy_plugin.size import FEWEST

Array = NDArray[np.float64]

FEWEST_ENTRIES = 100
"""Entries of a variable below which CVXPY's columns for them cost next to nothing."""


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
    if any(variable.attributes.values()):
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
