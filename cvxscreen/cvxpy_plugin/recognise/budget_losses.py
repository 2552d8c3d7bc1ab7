"""Losses that a constraint bounds, read off it as they are written.

::

    a(x) + sum_i c_i max_k (s_k <a_i, x> + h_k)  <=  0

`loss_atoms` reads the losses of such a constraint as it reads an objective's, slack variables
among them; the constraint is left with ``a(x) <= 0``, one row of the cone form, and the losses are
groups of their own that name it (`LossGroup.budget`). CVXPY's cone form would have a column and
two rows for each loss. Only with `budgets` is that constraint the user's again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality

from cvxscreen.cvxpy_plugin.recognise.loss_atoms import (
    Level,
    LossGroup,
    above_a_level,
    is_above_a_level,
    split_losses,
    without_what_was_read,
)
from cvxscreen.cvxpy_plugin.recognise.python_loops import (
    Term,
    Unreadable,
    fixed,
    sum_of,
    summands_of,
)
from cvxscreen.errors import NotScreenable

FEWEST_HELPERS = 100
"""Losses in a constraint below which leaving some out cannot pay."""

TERMS = 4
"""Losses in budgets for every coordinate at least: those of ``norm1(w) <= 1`` alone are no data."""

NONE = "no constraint bounds a sum of losses as an objective would have them"


def budgets_above_levels(problem: Any) -> Any:
    """`problem` with sums of the largest entries in scalar constraints as losses above a level.

    See `loss_atoms.above_levels`: a constraint bounds the least value over the level where some
    level keeps it.
    """
    made = [_above_levels(constraint) for constraint in problem.constraints]
    if all(new is old for new, old in zip(made, problem.constraints, strict=True)):
        return problem
    return cp.Problem(problem.objective, made)


def _above_levels(constraint: Any) -> Any:
    if not (_is_scalar(constraint) and {cp.sum_largest, cp.max} & set(constraint.atoms())):
        return constraint
    terms = []
    for part in _terms(constraint):
        expr = part.expr
        if is_above_a_level(expr) and part.factor > 0.0:
            part = part._replace(expr=above_a_level(Level(cp.Variable(), expr)))
        terms.append(part)
    return constraint.copy([sum_of(terms), cp.Constant(0.0)])


def _is_scalar(constraint: Any) -> bool:
    return type(constraint) is Inequality and constraint.shape == ()


def _terms(constraint: Any) -> list[Term]:
    """What a constraint puts below 0, summand by summand."""
    lower, upper = constraint.args
    found = [*summands_of(lower), *summands_of(upper, -1.0)]
    return [part for part in found if not _is_nothing(part.expr)]


def _is_nothing(expr: Any) -> bool:
    return fixed(expr) and not np.any(expr.value)


def may_have_losses(problem: Any) -> Iterator[Any]:
    """The scalar constraints with a sum of many losses, or of many variables, in them."""
    tied = _tied(problem)
    for constraint in problem.constraints:
        if not _is_scalar(constraint):
            continue
        if constraint.expr.is_affine():
            if any(variable.id in tied for variable in constraint.variables()):
                yield constraint
        elif _longest(constraint.expr) >= FEWEST_HELPERS:
            yield constraint


def have_too_few(problem: Any, constraints: list[Any]) -> bool:
    """Whether all losses that `constraints` may have are fewer than `TERMS` for each coordinate.

    Seen without reading any: a loss has two terms at most, and variables that are not `_tied` are
    neither losses nor said by an equation.
    """
    tied = _tied(problem)
    least = sum(v.size for v in problem.variables() if v.id not in tied)
    most = sum(
        2 * _entries(c.expr) + sum(v.size for v in c.variables() if v.id in tied)
        for c in constraints
    )
    return most < TERMS * least


def _tied(problem: Any) -> frozenset[int]:
    """The long variables that constraints tie to other ones, by identifier."""
    found: set[int] = set()
    for constraint in problem.constraints:
        if len(inside := constraint.variables()) > 1:
            found.update(v.id for v in inside if v.size >= FEWEST_HELPERS)
    return frozenset(found)


def _entries(expr: Any) -> int:
    """The entries that atoms which are not affine take, of arguments that are affine."""
    if expr.is_affine():
        return 0
    inner = sum(map(_entries, expr.args))
    return inner or sum(arg.size for arg in expr.args)


def _longest(expr: Any) -> int:
    """The most entries that an atom which is not affine takes, of arguments that are affine."""
    if expr.is_affine():
        return 0
    inner = max(map(_longest, expr.args), default=0)
    return inner or max((arg.size for arg in expr.args), default=0)


def take_budgets(problem: Any) -> tuple[Any, tuple[LossGroup, ...], tuple[Any, ...]]:
    """The same as `loss_atoms.take_losses`, with the losses of constraints behind the objective's.

    Raises
    ------
    NotScreenable
        If no constraint has any that are read so, or they are not piecewise linear.
    """
    groups, others = split_losses(problem)
    found, left = budget_groups(problem)
    if not found:
        raise NotScreenable(NONE)
    slacks = [group.slack for group in (*groups, *found) if group.slack is not None]
    gone = frozenset(v.id for slack in slacks for v in slack.variables)
    paid = {v.id for group in found if group.slack is not None for v in group.slack.variables}
    if paid & {v.id for v in problem.objective.variables()}:
        raise NotScreenable(NONE)
    taken = {constraint.id for slack in slacks for constraint in slack.constraints}
    constraints = [
        constraint.copy([sum_of(left[constraint.id]), cp.Constant(0.0)])
        if constraint.id in left else constraint
        for constraint in problem.constraints if constraint.id not in taken
    ]
    small, free = without_what_was_read(problem, others, constraints, gone)
    return small, (*groups, *found), free


def read_budgets(problem: Any) -> tuple[LossGroup, ...]:
    """The losses of constraints at the parameters' present values."""
    return budget_groups(problem)[0]


def budget_groups(problem: Any) -> tuple[tuple[LossGroup, ...], dict[int, list[Term]]]:
    """The losses of constraints, and what else those put below 0, by their identifiers."""
    found: list[LossGroup] = []
    left: dict[int, list[Term]] = {}
    for constraint in may_have_losses(problem):
        try:
            total = sum_of(_terms(constraint))
        except Unreadable:
            continue
        others = [other for other in problem.constraints if other is not constraint]
        groups, rest = split_losses(cp.Problem(cp.Minimize(total), others))
        linear = all(not np.any(group.numbers[2]) for group in groups)
        if groups and linear and sum(len(group.weight) for group in groups) >= FEWEST_HELPERS:
            found += [replace(group, budget=constraint.id, origin=None) for group in groups]
            left[constraint.id] = rest
    return tuple(found), left
