"""The changed problem and its fit from the solution at hand, for whatever the change is.

Weights multiply the boxes of the slopes; a removed term leaves, or stays as a row of weight 0,
which keeps its margin in view. The pair ``(x, w theta)`` is feasible for the changed problem and is
where the fit begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.validation import one_of
from cvxscreen.api import solve
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.solution import Solution
from cvxscreen.solvers.streamed.chunked import is_chunked

__all__ = ["accepted", "is_classification", "refit", "taken", "weighted"]

Array = NDArray[np.float64]


def accepted(solution: Any) -> Problem:
    """The problem of `solution`, if its terms can change.

    Raises
    ------
    InvalidInput
        For something else than a solution, data in chunks, no quadratic term, no optimum, a metric,
        a reduced problem.
    """
    one_of("solution", solution, Solution, "what `solve` returned for a problem of terms is needed")
    problem = solution.problem
    if is_chunked(problem):
        raise InvalidInput("`solution` is over data in chunks; terms are left out in memory only.")
    if problem.pure_l1:
        raise InvalidInput(
            "`solution` is of a problem without a quadratic term, whose margins nothing bounds."
        )
    if solution.answer is None:
        raise InvalidInput(f"`solution` has no optimum (its status is {solution.status!r}).")
    if problem.penalty is not None and problem.penalty.name != "L1":
        raise InvalidInput(
            "`solution` is a metric; terms that share points are not left out one by one."
        )
    if problem.drift > 0 or problem.imbalance > 0:
        raise InvalidInput("`solution` is of a reduced problem; solve the full one.")
    return problem


def is_classification(problem: Problem) -> bool:
    """Whether margins are right where they are positive, or belong to residuals."""
    return "regression" not in problem.kind and "svr" not in problem.kind


def weighted(problem: Problem, w: Array) -> Problem:
    """`problem` with the weights of its terms multiplied by `w`; a term of weight 0 is a bare row.

    Raises
    ------
    InvalidInput
        For negative weights, or none that is positive.
    """
    if (w < 0).any() or not (w > 0).any():
        raise InvalidInput(
            f"`weights` go from {w.min():g} to {w.max():g}; they must not be negative, and one "
            "must be positive."
        )
    f, used = problem.losses, w > 0
    factor = np.where(used, w, 1.0)
    lo, hi = np.where(used, factor * f.lo, 0.0), np.where(used, factor * f.hi, 0.0)
    table = Losses(f.b, f.e, np.where(used, f.q / factor, 0.0), lo, hi)
    new = replace(problem, losses=table)
    new.known.inherit_rows(problem.known)
    return new


def taken(problem: Problem, rows: NDArray[np.intp]) -> Problem:
    """`problem` with the terms at `rows` only, in that order."""
    left = replace(
        problem, design=problem.design.take_rows(rows), losses=problem.losses.take(rows)
    )
    left.known.inherit_rows(problem.known, rows)
    return left


def refit(
    solution: Solution, problem: Problem, theta: Array, tol: float, mode: str,
    x: Array | None = None,
) -> Solution:
    """Solve the changed `problem` from ``(x, theta)``; from the old x where none is given."""
    at = solution.x if x is None else x
    start = replace(solution, problem=problem, x=at, theta=theta, answer=None)
    return solve(problem, tol=tol, mode=mode, start=start)
