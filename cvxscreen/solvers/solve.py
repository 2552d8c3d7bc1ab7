"""One problem in, one certified solution out: which engine solves it, for whoever asks.

`cvxscreen.solve` and ``prob.solve(method="screen")`` take the same way: the compiled path where the
problem suits it and the code is there (or has become due, see `segments.CompileClock`; few terms go
by numpy until then), metric learning by its own method, everything else by the loop of screening
with the solver that suits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.bounds import Bound, default_bounds, midpoint_ball
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.compiled_path.one_value import (
    few,
    solve_by_descent,
    solve_one,
    solve_uncompiled,
)
from cvxscreen.solvers.compiled_path.segments import PARTS, ready
from cvxscreen.solvers.dual_coordinate_descent import begins
from cvxscreen.solvers.dual_coordinate_descent import ready as descent_ready
from cvxscreen.solvers.interface import Start, SubproblemSolver
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.metric.solver import MetricSolver, solve_metric
from cvxscreen.solvers.registry import compiled_path, named_solver
from cvxscreen.solvers.solution import Answer, Round, Solution
from cvxscreen.solvers.warm_start import warm_start


def solve_problem(
    problem: Problem,
    *,
    tol: float,
    mode: str = "certified",
    solver: str | SubproblemSolver = "auto",
    bounds: tuple[Bound, ...] | None = None,
    start: Solution | Start | None = None,
    limits: Limits = UNLIMITED,
    on_round: Callable[[Round], None] | None = None,
) -> Solution:
    """Solve `problem` by the engine that suits it, or by the solver that is named.

    Parameters
    ----------
    problem : Problem
    tol : float
        Relative duality gap on the full problem.
    mode : {"certified", "safe"}
    solver : str or SubproblemSolver
        As for `cvxscreen.solve`.
    bounds : tuple of Bound, optional
        What to prove with; the default of the problem when omitted.
    start : Solution or Start, optional
        Of the same problem or of the same data at another C (a solution), or on the very problem.
    limits : Limits
    on_round : callable, optional
        Gets the record of every finished round.

    Returns
    -------
    Solution

    Raises
    ------
    UnknownName, InvalidInput
        For a solver that does not exist, or does not take the problem.
    """
    default = default_bounds(problem)
    chosen = default if bounds is None else bounds
    plain = start is None and bounds is None and mode == "certified" and on_round is None
    unit, size = in_units(problem)
    waiting = plain and limits is UNLIMITED and compiled_path(unit, solver)
    found = None
    if waiting and ready():
        if begins(unit) and descent_ready(unit):
            found = solve_by_descent(unit, tol, tuple(chosen))
        if found is None:
            found = solve_one(unit, tol, tuple(chosen))
    elif waiting and few(unit):
        with PARTS.rent():
            found = solve_uncompiled(unit, tol, tuple(chosen))
    if found is not None and size != 1.0:
        found = times(found, problem, size, tol)
    if found is not None:
        return found
    inner = named_solver(solver, problem, limits)
    # Metric learning has a way of its own, which proves by the midpoint ball alone.
    if isinstance(inner, MetricSolver) and chosen == (midpoint_ball,):
        return solve_metric(
            problem, mode=mode, tol=tol, method=inner.method, bounds=chosen, on_round=on_round,
            limits=limits,
            start=None if start is None else Start(start.x, start.theta),
        )
    with PARTS.rent() if waiting else nullcontext():
        return solve_screened(
            problem,
            inner,
            mode=mode,
            tol=tol,
            start=warm_start(problem, start) if isinstance(start, Solution) else start,
            bounds=chosen,
            on_round=on_round,
        )


def in_units(problem: Problem) -> tuple[Problem, float]:
    """`problem` divided by the factor of its squared norm, for engines of ``M = I``.

    ``lam |w|^2 + losses`` has the optimum of ``1/2 |w|^2 + losses / (2 lam)``.

    Returns
    -------
    Problem
        `problem` itself where its squares have different factors, or no other.
    float
        The factor.
    """
    quadratic = problem.quadratic
    if problem.side is not None or problem.penalty is not None or quadratic.matrix is not None:
        return problem, 1.0
    squared = quadratic.diagonal[quadratic.diagonal > 0.0]
    size = float(squared[0]) if len(squared) else 1.0
    if size == 1.0 or not (squared == size).all() or not np.isfinite(1.0 / size):
        return problem, 1.0
    unit = replace(
        problem,
        losses=problem.losses.scaled(1.0 / size),
        quadratic=Quadratic((quadratic.diagonal > 0.0).astype(np.float64)),
        linear=problem.linear / size,
        constant=problem.constant / size,
    )
    unit.known.inherit_rows(problem.known, same_form=False)
    return unit, size


def times(found: Solution, problem: Problem, size: float, tol: float) -> Solution | None:
    """A solution of `problem` divided by `size` as one of `problem`, certified on it."""
    losses = problem.losses
    theta = np.clip(size * found.theta, losses.lo, losses.hi)
    answer = Answer.of(problem, found.x, theta, found.multipliers, tol)
    if not answer.proof.ok:
        return None
    return replace(
        found, problem=problem, theta=theta, certificate=answer.proof, answer=answer,
        earlier=Screening.empty(problem),
    )
