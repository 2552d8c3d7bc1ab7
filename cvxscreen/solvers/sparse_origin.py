"""Where a call under an L1 term begins: at its start, or at 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import Point, reference_point
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import Start

Array = NDArray[np.float64]


@dataclass(eq=False)
class Origin:
    """The point 0 with what the choice of a first reduction asks of it, from one pass.

    It bounds no rounding: unlike from a `Point`, nothing can be proven from it.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    pull : array, shape (d,)
        ``A' theta`` of the slopes at 0.
    primal, gap : float
    """

    problem: Problem
    x: Array
    pull: Array
    primal: float
    gap: float

    @classmethod
    def of(cls, problem: Problem) -> Origin:
        """That of `problem`."""
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        losses, x, margins = problem.losses, np.zeros(problem.d), np.zeros(problem.n)
        theta = losses.slope(margins)
        pull = problem.design.adjoint(theta)
        if problem.held:  # theta is shrunk until it is feasible
            share = 1.0 / max(1.0, float(np.max(np.abs(pull) / penalty.kappa, initial=0.0)))
            gap = float(losses.fenchel_young(margins, share * theta).sum())
        else:
            x_dual, _ = penalty.split(-(pull + problem.linear), problem.quadratic.diagonal)
            gap = 0.5 * problem.quadratic.norm(x_dual) ** 2
        return cls(problem, x, pull, problem.primal(x, margins), gap)


def beginning(problem: Problem, start: Start | None, proves: bool) -> Point:
    """The start, evaluated; without one 0, as a point only where something is proven from it."""
    if start is not None:
        return start.point or reference_point(problem, start.x, start.theta)
    if proves:
        return reference_point(problem, np.zeros(problem.d))
    return Origin.of(problem)  # type: ignore[return-value]  # what is asked of it is there
