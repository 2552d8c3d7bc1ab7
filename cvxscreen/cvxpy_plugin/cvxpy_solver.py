"""A solver of CVXPY as the solver of the reduced problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.build import build, explicit_features, joint_sdp
from cvxscreen.cvxpy_plugin.solver_options import (
    chosen_solver,
    ignore_warnings,
    installed,
    options_for,
    solver_name,
)
from cvxscreen.errors import UnknownName
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver

# What solvers call a limit of their own; others are left alone until they are done.
SECONDS = {
    "CLARABEL": "time_limit", "HIGHS": "time_limit", "OSQP": "time_limit", "SCS": "time_limit_secs"
}

ITERATIONS = {"CLARABEL": "max_iter", "OSQP": "max_iter", "SCS": "max_iters"}


@dataclass(eq=False)
class CvxpySolver(SubproblemSolver):
    """Calls CVXPY on each reduced problem.

    Parameters
    ----------
    solver : str, solver object or None
        As in ``prob.solve(solver=...)``; see `chosen_solver` for None.
    options : dict
        Passed to every solve untouched.
    limits : Limits
        Of the whole call; the solver is told what is left, where it can be (`SECONDS`,
        `ITERATIONS`).

    Attributes
    ----------
    problem_solved : cvxpy.Problem or None
        The last reduced problem, for its statistics.
    failure : str
        What CVXPY said when it raised, in the last such call.
    solve_time, setup_time : float
        Sums over all calls of what the solver reports.
    compilation_time : float
        Seconds that CVXPY took to compile the reduced problems, over all calls.
    calls : int
        How often CVXPY was called.
    further : callable or None
        From the vector variable to a further cost and its constraints.
    interior_points : dict
        A strictly feasible point (or None) for the side constraints met so far.
    """

    solver: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    limits: Limits = UNLIMITED
    problem_solved: Any = None
    failure: str = ""
    solve_time: float = 0.0
    setup_time: float = 0.0
    compilation_time: float = 0.0
    calls: int = 0
    further: Callable[[Any], tuple[Any, list[Any]]] | None = None
    interior_points: dict[int, tuple[SideConstraints, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The solver's name."""
        return solver_name(self.solver)

    def account(self) -> str:
        """What the solver did, in words; empty where it was not needed."""
        if not self.calls:
            return ""
        if self.problem_solved is None:
            return f"failed in {self.calls} calls: {self.failure}"
        stats = self.problem_solved.solver_stats
        often = "one call" if self.calls == 1 else f"{self.calls} calls"
        return (
            f"{self.problem_solved.status} after {stats.num_iters} iterations, "
            f"{self.solve_time:.2g} s in {often}, {self.compilation_time:.2g} s compiling"
        )

    def limited_options(self) -> dict[str, Any]:
        """The options, with what is left of the limits."""
        options, name = dict(self.options), self.name
        for left, names in ((self.limits.seconds, SECONDS), (self.limits.iterations, ITERATIONS)):
            if left is not None and name in names:
                options[names[name]] = min(left, options.get(names[name], left))
        return options

    def moved_inside(self, side: SideConstraints, x: Any) -> Any:
        """`x` moved inside `side` for certain where that can be done; see `strictly_feasible`."""
        key = id(side)
        if key not in self.interior_points:
            self.interior_points[key] = (side, strictly_feasible_point(side))
        towards = self.interior_points[key][1]
        return x if towards is None else side.moved_inside(x, towards)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem`; start and target are for solvers that can use them.

        Returns
        -------
        SubproblemResult
            ``"optimal"``, ``"inaccurate"``, or CVXPY's own status (``"solver_error"`` when it
            raises).
        """
        self.calls += 1
        built = build(explicit_features(problem), self.further)
        solver = chosen_solver(self.solver, self.options)
        try:
            with ignore_warnings():
                built.problem.solve(solver=solver, **self.limited_options())
        except cp.error.SolverError as error:
            self.failure = str(error)
            return _failed(cp.SOLVER_ERROR, str(error))
        self.problem_solved = built.problem
        stats = built.problem.solver_stats
        self.solve_time += stats.solve_time or 0.0
        self.setup_time += stats.setup_time or 0.0
        self.compilation_time += built.problem.compilation_time or 0.0
        self.limits.spent(stats.num_iters or 0)
        status = built.problem.status
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT):
            return _failed(status, status)
        if built.variable.value is None:
            return _failed(status, status)
        x, theta, multipliers = built.read()
        if built.source is not problem:  # of a kernel problem: coefficients follow from the slopes
            free = problem.quadratic.free
            intercept = x[built.source.quadratic.free]
            x = problem.quadratic.solve(-problem.design.adjoint(theta) - problem.linear)
            x[free] = intercept
        if problem.side is not None:
            x = self.moved_inside(problem.side, x)
        word = "optimal" if status == cp.OPTIMAL else "inaccurate"
        return SubproblemResult(word, x, theta, multipliers, {"iterations": stats.num_iters})


def _failed(status: str, message: str) -> SubproblemResult:
    nothing = np.zeros(0)
    return SubproblemResult(status, nothing, nothing, nothing, {"message": message})


def named_cvxpy_solver(
    name: str, limits: Limits = UNLIMITED, others: Sequence[str] = ("auto", "builtin")
) -> CvxpySolver:
    """The inner solver that calls CVXPY's solver `name`, with tolerances tight enough to certify.

    Raises
    ------
    UnknownName
        If CVXPY has no such solver installed; `others` are names known elsewhere, to be listed.
    """
    if name.upper() not in installed():
        raise UnknownName.among("solver", name, [*others, *installed()])
    return CvxpySolver(name.upper(), options_for(name, {}), limits)


def solve_joint_sdp(
    problem: MultiTask, name: str, limits: Limits = UNLIMITED, others: Sequence[str] = ()
) -> tuple[Any, Any, Any, Any]:
    """``(U, b, M, theta)`` of a multi-task problem by CVXPY's solver `name`, on all of it.

    Raises
    ------
    UnknownName
        If CVXPY has no such solver installed; `others` are names known elsewhere, to be listed.
    cvxpy.error.SolverError
        Where the solver finds no answer.
    """
    solver = named_cvxpy_solver(name, limits, others)
    sdp = joint_sdp(problem)
    with ignore_warnings():
        sdp.solve(solver=solver.name, **solver.limited_options())
    limits.spent(sdp.solver_stats.num_iters or 0)
    found = sdp.var_dict
    if found["U"].value is None:
        raise cp.error.SolverError(f"{solver.name} ended without an answer ({sdp.status}).")
    theta = -np.asarray(sdp.constraints[0].dual_value).ravel()
    theta = np.clip(theta, problem.losses.lo, problem.losses.hi)
    return found["U"].value, found["b"].value, found["M"].value, theta


# -- points inside the side constraints for certain -----------------------------------------------
#
# Bounds may rest on them. A solver ends on the boundary, a rounding error inside or outside; no
# theorem holds for a point outside. A step towards a strictly feasible point makes up for the
# rounding: the constraints are convex, so a small part of the way leaves everything inside, and the
# duality gap, computed at the point where the step ends, pays for it. Equalities have no interior;
# they hold up to rounding, which the bounds charge (`SideConstraints.nearness`), and the step goes
# along them.


Array = NDArray[np.float64]

ROWS, MATRIX = 20_000, 30
"""Larger side constraints (rows, side of a PSD matrix) are not worth a solve of their own."""


def strictly_feasible_point(side: SideConstraints) -> Array | None:
    """A point well inside `side`, or None where there is none, or none to be found cheaply.

    Parameters
    ----------
    side : SideConstraints

    Returns
    -------
    array, shape (d,), or None
    """
    large = any(kind == "psd" and size > MATRIX for kind, size in side.dims)
    if large or side.matrix.shape[0] > ROWS:
        return None
    x, room = cp.Variable(side.matrix.shape[1]), cp.Variable()
    constraints: list[Any] = [room <= 1.0]
    for kind, size, rows in side.blocks():
        matrix = sp.csc_array(side.matrix[rows])
        value = matrix @ x + side.offset[rows]
        if kind == "zero":
            constraints.append(value == 0)
        elif kind == "nonneg":
            reach = np.sqrt(np.asarray(abs(matrix).power(2).sum(axis=1)).ravel())
            constraints.append(value >= room * np.maximum(reach, 1e-300))
        elif kind == "soc":
            constraints.append(cp.norm(value[1:]) <= value[0] - room)
        else:
            square = cp.reshape(value, (size, size), order="F")
            constraints.append(0.5 * (square + square.T) >> room * np.eye(size))
    problem = cp.Problem(cp.Minimize(1e-3 * cp.sum_squares(x) - room), constraints)
    try:
        problem.solve(solver="CLARABEL")
    except cp.error.SolverError:
        return None
    if x.value is None or room.value is None or not float(room.value) > 1e-8:
        return None
    found = np.asarray(x.value, dtype=np.float64)
    return found if np.isfinite(side.nearness(found)) else None
