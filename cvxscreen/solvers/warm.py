"""Solutions at other parameters as starts."""

from __future__ import annotations

import numpy as np

from cvxscreen.bounds import moved
from cvxscreen.duality import Point
from cvxscreen.errors import InvalidInput
from cvxscreen.problem import Problem
from cvxscreen.solvers.chunked import is_chunked
from cvxscreen.solvers.inner import Start
from cvxscreen.solvers.solution import Solution


def warm_start(problem: Problem, solution: Solution) -> Start:
    """`solution` as a start for `problem`; its dual point is scaled to the new C.

    Over data in chunks only ``solution.x`` counts.
    """
    if solution.problem.n != problem.n or solution.problem.d != problem.d:
        raise InvalidInput(
            f"`start` has {solution.problem.n} terms and {solution.problem.d} coordinates; the "
            f"problem has {problem.n} and {problem.d}."
        )
    if is_chunked(problem):
        return Start(solution.x, np.zeros(0))
    weight = solution.rounds[-1].solver_info.get("weight") if solution.rounds else None
    return moved_start(problem, solution.point(), weight)


def moved_start(problem: Problem, reference: Point, weight: float | None = None) -> Start:
    """A point of the same data at another C or lambda as a start for `problem`."""
    factor = problem.C / reference.problem.C
    point = moved(problem, reference)
    return Start(
        point.x,
        point.theta,
        None if weight is None else 4.0 * float(weight) / factor,
        point.multipliers,
        point,
    )
