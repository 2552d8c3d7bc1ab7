"""Sums of many scalar terms, written in a Python loop, as a few vectorised ones.

::

    sum_i c_i f(<a_i, x> + b_i)     becomes     c @ f(A x + b)

Every term of a loop is an expression of its own to CVXPY, with rows and helper variables of its
own. Terms that are the same elementwise atoms of different affine numbers are read straight from
the tree (`pull`) and written as one, before anything is canonicalised. Variables and constraints
are the user's, and the self check compares with the user's own objective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.elementwise.elementwise import Elementwise

from cvxscreen.reducer.pull import Row, Unreadable, fixed, numbers

MANY = 50
"""Objectives of fewer terms are left as they are written."""

SPARSE = 0.25
"""Coefficients of which a smaller share is filled are kept sparse."""

STACKS = ("Hstack", "Vstack", "Concatenate")


@dataclass(frozen=True)
class Term:
    """One summand.

    Attributes
    ----------
    factor : float
        What it is multiplied by.
    scales : tuple of cvxpy.Expression
        Constants with parameters that it is multiplied by.
    expr : cvxpy.Expression
        A scalar.
    """

    factor: float
    scales: tuple[Any, ...]
    expr: Any


def terms(expr: Any, factor: float = 1.0, scales: tuple[Any, ...] = ()) -> Iterator[Term]:
    """The summands of a scalar, none of them built anew."""
    kind = type(expr).__name__
    if kind == "AddExpression" and all(arg.size == 1 for arg in expr.args):
        for arg in expr.args:
            yield from terms(arg, factor, scales)
    elif kind == "NegExpression":
        yield from terms(expr.args[0], -factor, scales)
    elif kind == "Sum" and type(expr.args[0]).__name__ in STACKS:
        parts = expr.args[0].args
        if all(part.size == 1 for part in parts):
            for part in parts:
                yield from terms(part, factor, scales)
        else:
            yield Term(factor, scales, expr)
    elif kind in ("multiply", "MulExpression", "DivExpression"):
        yield from _multiple(kind, expr, factor, scales)
    elif kind in ("reshape", "Promote") and expr.size == expr.args[0].size == 1:
        yield from terms(expr.args[0], factor, scales)
    else:
        yield Term(factor, scales, expr)


def _multiple(kind: str, expr: Any, factor: float, scales: tuple[Any, ...]) -> Iterator[Term]:
    first, second = expr.args
    divided = kind == "DivExpression"
    outer, inner = (second, first) if divided or not first.is_constant() else (first, second)
    if not (outer.size == inner.size == 1 and outer.is_constant()):
        yield Term(factor, scales, expr)
    elif fixed(outer):
        number = numbers(outer).item()
        yield from terms(inner, factor / number if divided else factor * number, scales)
    else:
        yield from terms(inner, factor, (*scales, 1 / outer if divided else outer))


@dataclass(eq=False)
class Group:
    """Terms that are the same atoms of different affine numbers.

    Attributes
    ----------
    scales : tuple of cvxpy.Expression
    sample : cvxpy.Expression
        One of the terms.
    factors : list of float
    rows : list of list of Row
        The affine numbers of every term, in the order of the tree.
    """

    scales: tuple[Any, ...]
    sample: Any
    factors: list[float] = field(default_factory=list)
    rows: list[list[Row]] = field(default_factory=list)

    def written(self, variables: dict[int, Any]) -> Any:
        """The sum of the terms."""
        count = len(self.rows[0])
        holes = iter([affine([row[k] for row in self.rows], variables) for k in range(count)])
        whole = np.array(self.factors) @ _filled(self.sample, holes)
        for scale in self.scales:
            whole = scale * whole
        return whole


def _template(expr: Any, rows: list[Row]) -> tuple[Any, ...]:
    """What tells apart the atoms of `expr`, its affine numbers appended to `rows`."""
    if not isinstance(expr, Elementwise):
        row = Row()
        row.add(expr, np.ones(expr.shape))
        rows.append(row)
        return ()
    data = tuple(_key(entry) for entry in expr.get_data() or ())
    return (type(expr), data, *(_template(arg, rows) for arg in expr.args))


def _key(entry: Any) -> Any:
    if isinstance(entry, cp.Constant) and entry.size == 1:
        return numbers(entry).item()
    if isinstance(entry, bool | int | float | str | type(None)):
        return entry
    raise Unreadable


def _filled(sample: Any, holes: Iterator[Any]) -> Any:
    """The atoms of `sample` around other arguments."""
    if not isinstance(sample, Elementwise):
        return next(holes)
    return sample.copy([_filled(arg, holes) for arg in sample.args])


def affine(rows: list[Row], variables: dict[int, Any]) -> Any:
    """Affine numbers as one vector."""
    constant = np.array([row.constant for row in rows])
    same = bool((constant == constant[0]).all())
    total: Any = cp.Constant(constant[0] if same else constant)
    keys = dict.fromkeys(key for row in rows for key in row.seen())
    if not keys:
        return total if not same else cp.Constant(constant)
    parts = []
    for key in keys:
        variable = variables[key]
        matrix = _stacked(rows, key, variable.size)
        if variable.shape == ():
            parts.append(cp.multiply(matrix.toarray().ravel(), variable))
            continue
        flat = variable if variable.ndim == 1 else cp.vec(variable, order="F")
        parts.append(matrix @ flat)
    whole = sum(parts[1:], parts[0])
    return whole if same and constant[0] == 0.0 else whole + total


def _stacked(rows: list[Row], key: int, size: int) -> Any:
    """Coefficients below each other, column-major each: dense, or CSR where few are filled."""
    filled = sum(int(np.count_nonzero(row.slopes[key])) for row in rows if key in row.slopes)
    if size > 1 and filled >= SPARSE * len(rows) * size:
        out = np.zeros((len(rows), size))
        for line, row in zip(out, rows, strict=True):
            if key in row.slopes:
                line[:] = row.slopes[key].ravel(order="F")
            for name, at, weight in row.picks:
                if name == key:
                    line[at] += weight
        return out
    found = [row.entries(key) for row in rows]
    index = np.concatenate([index for index, _ in found])
    data = np.concatenate([part for _, part in found])
    owner = np.repeat(np.arange(len(rows)), [len(index) for index, _ in found])
    return sp.csr_array((data, (owner, index)), shape=(len(rows), size))


def vectorised(problem: Any) -> Any:
    """`problem`, or the same with the loops in its objective vectorised.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        Of the same variables, parameters and constraints.
    """
    try:
        parts = list(terms(problem.objective.expr))
    except Unreadable:
        return problem
    if len(parts) < MANY:
        return problem
    groups: dict[tuple[Any, ...], Group] = {}
    rest: list[Any] = []
    for part in parts:
        rows: list[Row] = []
        try:
            shape = _template(part.expr, rows) if part.expr.size == 1 else None
        except Unreadable:
            shape = None
        if shape is None:
            rest.append(_alone(part))
            continue
        key = (shape, *(id(scale) for scale in part.scales))
        group = groups.setdefault(key, Group(part.scales, part.expr))
        group.factors.append(part.factor)
        group.rows.append(rows)
    if len(groups) + len(rest) > 0.5 * len(parts):
        return problem
    variables = {variable.id: variable for variable in problem.variables()}
    made = [*rest, *(group.written(variables) for group in groups.values())]
    objective = type(problem.objective)(sum(made[1:], made[0]))
    whole = cp.Problem(objective, problem.constraints)
    # What CVXPY knows of the sign of an argument may be lost; the user's problem is then taken.
    return whole if whole.is_dcp() else problem


def _alone(part: Term) -> Any:
    """A summand as it stands in the sum."""
    whole = part.expr if part.factor == 1.0 else part.factor * part.expr
    for scale in part.scales:
        whole = scale * whole
    return whole
