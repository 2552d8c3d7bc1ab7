"""A problem of squares as CVXPY gets it: with triangles in place of tall data (`triangular`).

A variable may stand for the residuals::

    minimize  g(|e|^2, x)   subject to  e = A x - b, ...

is a problem in x alone, once they are written out. The user is given e, which follows from x, and
the equation's multiplier, at which the Lagrangian's gradient in e is 0: ``s nu = -(d/de) g`` with
the sign s of e in the equation.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import solved_for
from cvxscreen.cvxpy_plugin.recognise.expressions import exchanged, holds
from cvxscreen.cvxpy_plugin.recognise.triangular import (
    Shortened,
    squares_and_norms,
    with_triangles,
)
from cvxscreen.cvxpy_plugin.size import equations_of_residuals

Array = NDArray[np.float64]


class ResidualVariable(NamedTuple):
    """A variable and what it stands for.

    Attributes
    ----------
    variable : cvxpy.Variable
    constraint : int
        Identifier of the equation.
    sign : float
        1 or -1, of the variable in the equation's left side less its right one.
    residuals : cvxpy.Expression
    """

    variable: Any
    constraint: int
    sign: float
    residuals: Any

    def multipliers(self, objective: Any) -> Array | None:
        """The equation's, at the values that all variables have; None where g has no gradient."""
        nodes = [
            node for node, _ in squares_and_norms(objective.expr, True)
            if holds(node, self.variable)
        ]
        # What is added to them may have no gradient: it is a number here.
        fixed = {id(other): cp.Constant(other.value) for other in objective.expr.variables()}
        places = {id(node): cp.Variable(value=node.value) for node in nodes}
        outer = exchanged(objective.expr, fixed | places).grad
        total = np.zeros((self.variable.size, 1))
        for node in nodes:
            slope, inner = outer[places[id(node)]], node.grad[self.variable]
            if slope is None or inner is None:
                return None
            total += inner * _number(slope)
        least = 1.0 if isinstance(objective, cp.Minimize) else -1.0
        return np.reshape(-self.sign * least * total, self.variable.shape, order="F")


class ShortProblem(NamedTuple):
    """What is solved in place of the user's problem.

    Attributes
    ----------
    problem : cvxpy.Problem
        With the same variables and constraints, but for those of `defined`.
    shortened : tuple of Shortened
    defined : tuple of ResidualVariable
    """

    problem: Any
    shortened: tuple[Shortened, ...]
    defined: tuple[ResidualVariable, ...]


_KNOWN: weakref.WeakKeyDictionary[Any, ShortProblem | None] = weakref.WeakKeyDictionary()
"""What became of each problem that is solved plainly; an expression tree never changes."""

_WRITTEN: weakref.WeakKeyDictionary[Any, tuple[Any, tuple[ResidualVariable, ...]] | None] = (
    weakref.WeakKeyDictionary()
)
"""The same with residuals written out; a problem that has none must not hold itself."""


def with_short_squares(problem: Any) -> ShortProblem | None:
    """`problem` with triangles in place of all long residuals; None where it has none.

    What CVXPY has compiled of it is kept for the next solve.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    if problem not in _KNOWN:
        _KNOWN[problem] = None
        if problem.is_dcp():
            written, defined = written_out(problem)
            short, shortened = with_triangles(written, objective=True)
            if shortened:
                _KNOWN[problem] = ShortProblem(short, shortened, defined)
    return _KNOWN[problem]


def written_out(problem: Any) -> tuple[Any, tuple[ResidualVariable, ...]]:
    """`problem` with residuals in place of variables that stand for them, and these.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are none.
    tuple of ResidualVariable
    """
    if problem not in _WRITTEN:
        _WRITTEN[problem] = _written_out(problem)
    return _WRITTEN[problem] or (problem, ())


def _written_out(problem: Any) -> tuple[Any, tuple[ResidualVariable, ...]] | None:
    expr, found = problem.objective.expr, list[ResidualVariable]()
    left = list(problem.constraints)
    for constraint, variable in equations_of_residuals(problem):
        others = [other for other in left if other is not constraint]
        defined = None
        if not any(holds(other, variable) for other in others):
            defined = _defined(constraint, variable)
        if defined is None or not _only_squared(expr, variable):
            continue
        expr = exchanged(expr, {id(variable): defined.residuals})
        found.append(defined)
        left = others
    if not found:
        return None
    return cp.Problem(type(problem.objective)(expr), left), tuple(found)


def _defined(constraint: Any, variable: Any) -> ResidualVariable | None:
    """What an equation says that `variable` is; None where it is there in another way."""
    found = solved_for(constraint, variable)
    return None if found is None else ResidualVariable(variable, constraint.id, *found)


def _only_squared(expr: Any, variable: Any) -> bool:
    """Whether `variable` is nowhere in `expr` but in squares and norms of residuals."""
    none = {id(node): cp.Constant(0.0) for node, _ in squares_and_norms(expr, True)}
    return holds(expr, variable) and not holds(exchanged(expr, none), variable)


def _number(value: Any) -> float:
    """The only entry of a gradient, which CVXPY makes sparse."""
    return float(value.toarray()[0, 0] if sp.issparse(value) else np.ravel(value)[0])
