"""A number that losses lie above, written by hand: a sum of the largest in its place.

::

    c t + w sum_i pos(l_i(x) - t),     0 < c < n w,

where nothing else holds t, is least at the level t above which ``c / w`` of the losses lie, and is
there ``w sum_largest(l(x), c / w)`` (Rockafellar and Uryasev, "Optimization of conditional
value-at-risk", 2000). For losses that are affine, hinges above a level are losses as they are. For
others, as a newsvendor's costs ``maximum(4 * (x - D), 9 * (D - x))``, each value is the largest of
three affine ones in two directions, of which nothing can be left out; but the largest of losses
that rise on both sides of one least value are the largest of their lines
(`loss_atoms.in_simpler_atoms`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality

from cvxscreen.cvxpy_plugin.recognise.expressions import holds, read_affine, value_at
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import OtherForm, largest_of_lines, weigh
from cvxscreen.cvxpy_plugin.recognise.matrices import csr
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, Unreadable, sum_of, summands_of


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
    inside = [[v for v in part.variables() if v.size == 1 and _may_be_any(v)] for part in parts]
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


def _may_be_any(variable: Any) -> bool:
    return not any(value not in (None, False) for value in variable.attributes.values())


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
