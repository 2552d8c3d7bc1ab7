"""A solution at another C or lambda as a start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import moved
from cvxscreen.core.duality import Point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution
from cvxscreen.solvers.streamed.chunked import is_chunked

Array = NDArray[np.float64]


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
    if problem.without_curvature:
        theta = moved_slopes(solution.theta, solution.problem.losses, problem.losses)
        return Start(solution.x, theta, multipliers=solution.multipliers)
    info = solution.rounds[-1].solver_info if solution.rounds else {}
    start = moved_start(problem, solution.point(), info.get("weight"))
    return replace(start, rate=info.get("rate"))


def moved_slopes(theta: Array, old: Losses, new: Losses) -> Array:
    """`theta` in the box of `old`, moved to the same place in the box of `new`, shape (n,)."""

    def factor(before: Array, after: Array) -> Array:
        fits = np.isfinite(before) & np.isfinite(after) & (before != 0)
        return np.divide(after, before, out=np.ones(len(theta)), where=fits)

    moved = np.where(theta < 0, factor(old.lo, new.lo), factor(old.hi, new.hi)) * theta
    return np.clip(moved, new.lo, new.hi)


def onward_start(problem: Problem, solution: Solution, light: bool) -> Start:
    """`warm_start`, or where it may be `light` and can be, `light_start`."""
    start = light_start(problem, solution) if light else None
    return warm_start(problem, solution) if start is None else start


def light_start(problem: Problem, solution: Solution) -> Start | None:
    """As `warm_start`, from what the certificate of `solution` has computed; nothing is evaluated.

    For `problem` ``= solution.problem.with_(C=...)`` without linear term, penalty, side constraints
    and unpenalised coordinates; None otherwise. Where ``x`` is not ``x_theta``, the margins are
    those of ``x``: what lies between them is charged by who uses them, as the certificate does.
    With ``f = C/C0`` the dual objective at ``f theta`` is
    ``f (D(theta) + 1/2 ||x_theta||_M^2) - f^2/2 ||x_theta||_M^2``.
    """
    answer, old = solution.answer, solution.problem
    plain = problem.side is None and problem.penalty is None and problem.design is old.design
    plain = plain and problem.quadratic is old.quadratic and not problem.quadratic.free.any()
    if answer is None or not answer.proof.ok or not plain or problem.linear.any():
        return None
    margins, At_theta = answer.passes.margins, answer.passes.At_theta
    if margins is None or At_theta is None:
        return None
    square = problem.quadratic.norm(problem.quadratic.solve(At_theta)) ** 2
    factor = problem.C / old.C
    theta = np.clip(factor * answer.theta, problem.losses.lo, problem.losses.hi)
    size = factor * (answer.proof.dual + 0.5 * square) - 0.5 * factor**2 * square
    return Start(
        factor * answer.x, theta, passes=(factor * margins, factor * At_theta),
        size=max(size, 0.5 * min(1.0, factor) * answer.proof.dual),
    )


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
