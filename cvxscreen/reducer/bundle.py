"""Scalar constraints written in a Python loop as one constraint, and their dual values apart again.

::

    for i: y_i (<x_i, w> + b) >= 1 - xi_i       becomes     A z + c >= 0

with the rows read straight from the tree (`pull`). CVXPY compares every row at a random point
before anything is made of them; dual values are handed back one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality

from cvxscreen.reducer.borrowing import borrowed
from cvxscreen.reducer.pull import Row, Unreadable
from cvxscreen.reducer.vectorise import MANY, affine

AGREEMENT = 1e-11
"""Largest relative difference between a row and CVXPY's own evaluation of it."""

SEED = 20141203


@dataclass(frozen=True, eq=False)
class Bundle:
    """Constraints of the user's that became one.

    Attributes
    ----------
    whole : cvxpy constraint
    parts : tuple of cvxpy constraint
        In the order of the entries of `whole`.
    """

    whole: Any
    parts: tuple[Any, ...]

    def apart(self, duals: dict[int, Any]) -> dict[int, Any]:
        """Dual values by identifier of the user's constraints instead of that of `whole`."""
        if self.whole.id not in duals:
            return duals
        left = dict(duals)
        values = np.asarray(left.pop(self.whole.id), dtype=np.float64).ravel()
        for part, value in zip(self.parts, values, strict=True):
            left[part.id] = float(value) if part.shape == () else np.full(part.shape, value)
        return left


def bundled(problem: Any) -> tuple[Any, tuple[Bundle, ...]]:
    """`problem` with its many scalar affine constraints in one or two, and which those are.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are few, or a row is not what CVXPY says.
    tuple of Bundle
    """
    found: dict[type, list[tuple[Any, Row]]] = {Inequality: [], Equality: []}
    rest: list[Any] = []
    for constraint in problem.constraints:
        row = _row(constraint) if type(constraint) in found and constraint.size == 1 else None
        if row is None:
            rest.append(constraint)
        else:
            found[type(constraint)].append((constraint, row))
    large = {kind: pairs for kind, pairs in found.items() if len(pairs) >= MANY}
    rest += [c for kind, pairs in found.items() if kind not in large for c, _ in pairs]
    if not large or not all(_agrees(problem, pairs) for pairs in large.values()):
        return problem, ()
    variables = {variable.id: variable for variable in problem.variables()}
    bundles = []
    for kind, pairs in large.items():
        whole = affine([row for _, row in pairs], variables)
        made = whole >= 0 if kind is Inequality else whole == 0
        bundles.append(Bundle(made, tuple(constraint for constraint, _ in pairs)))
    constraints = [*rest, *(bundle.whole for bundle in bundles)]
    return cp.Problem(problem.objective, constraints), tuple(bundles)


def _row(constraint: Any) -> Row | None:
    """The right side minus the left one, or the other way round for an equality."""
    sign = 1.0 if type(constraint) is Equality else -1.0
    row = Row()
    try:
        for arg, weight in zip(constraint.args, (sign, -sign), strict=True):
            row.add(arg, np.full(arg.shape, weight))
    except Unreadable:
        return None
    return row if row.seen() else None


def _agrees(problem: Any, pairs: list[tuple[Any, Row]]) -> bool:
    """Whether all rows are what CVXPY says at a random point."""
    rng = np.random.default_rng(SEED)
    variables = problem.variables()
    points = {v.id: rng.standard_normal(v.shape) for v in variables}
    for variable in variables:
        if any(variable.attributes[name] for name in ("PSD", "NSD", "symmetric")):
            points[variable.id] = points[variable.id] + points[variable.id].T
        elif variable.attributes["diag"]:
            points[variable.id] = np.diag(np.diag(points[variable.id]))
    flat = {key: point.ravel(order="F") for key, point in points.items()}
    with borrowed(variables):
        for variable in variables:
            variable.save_value(points[variable.id])
        for constraint, row in pairs:
            first, second = (np.asarray(arg.value, dtype=float).sum() for arg in constraint.args)
            sign = 1.0 if type(constraint) is Equality else -1.0
            ours, size = row.constant, abs(first) + abs(second) + abs(row.constant)
            for key in dict.fromkeys(row.seen()):
                index, weights = row.entries(key)
                terms = weights * flat[key][index]
                ours, size = ours + terms.sum(), size + np.abs(terms).sum()
            if not abs(ours - sign * (first - second)) <= AGREEMENT * (1.0 + size):
                return False
    return True
