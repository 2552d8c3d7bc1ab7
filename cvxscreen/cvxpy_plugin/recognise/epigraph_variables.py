"""A variable that costs something and bounds one convex function: that function in its place.

::

    minimise  F(x) + c t   subject to   g(x) <= a t,     a > 0,  c >= 0

is ``F(x) + (c/a) g(x)``, with ``t = g(x) / a``, where nothing else holds t (Boyd and Vandenberghe,
"Convex optimization", 2004, section 4.1.3). The constraint's multiplier is ``c/a``, by stationarity
in t. A loss is written so where the constraint is to be named, or a paper writes it so:
``sum(huber(X @ w - y)) <= t``. In the objective it is read like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality

from cvxscreen.cvxpy_plugin.recognise.expressions import holds, value_at
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, Unreadable, sum_of, summands_of


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


def _leaves(variable: Any, function: Any) -> bool:
    """Whether what is asked of `variable` holds wherever it is at `function`."""
    asked = {name for name, value in variable.attributes.items() if value not in (None, False)}
    return not asked or (asked == {"nonneg"} and function.is_nonneg())
