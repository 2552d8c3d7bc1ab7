"""A solver of CVXPY as the solver of the reduced problems."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

import cvxpy as cp
import numpy as np

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.build import build, explicit_features, joint_sdp
from cvxscreen.cvxpy_plugin.strictly_feasible import strictly_feasible_point
from cvxscreen.errors import UnknownName
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver

TIGHT: dict[str, dict[str, Any]] = {
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True},
}
"""Options for solvers whose defaults are too loose for a certificate, where the user gave none."""

ACCURACY = ("eps", "tol", "max_iter", "feas", "abstol", "reltol", "time_limit", "polish")
"""Parts of option names that say the user has chosen an accuracy."""

GENERAL = frozenset(
    ("verbose", "warm_start", "ignore_dpp", "enforce_dpp", "canon_backend", "bibtex")
)
"""Options of ``prob.solve`` that are CVXPY's own, whatever the solver."""

# What solvers call a limit of their own; others are left alone until they are done.
SECONDS = {
    "CLARABEL": "time_limit", "HIGHS": "time_limit", "OSQP": "time_limit", "SCS": "time_limit_secs"
}

ITERATIONS = {"CLARABEL": "max_iter", "OSQP": "max_iter", "SCS": "max_iters"}

DEFAULT = "CLARABEL"
"""The solver when the user names none; it comes with CVXPY."""


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
    further: Callable[[Any], tuple[Any, list[Any]]] | None = None
    interior_points: dict[int, tuple[SideConstraints, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The solver's name."""
        return solver_name(self.solver)

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


@cache
def installed() -> tuple[str, ...]:
    """CVXPY's solvers that are installed; it looks for the missing ones anew in every call."""
    return tuple(cp.installed_solvers())


def solver_name(solver: Any) -> str:
    """The name of `solver`: a text, None for the default, or a solver object of CVXPY."""
    if solver is None:
        return DEFAULT
    return solver.upper() if isinstance(solver, str) else str(solver.name())


def chosen_solver(solver: Any, options: dict[str, Any]) -> Any:
    """The solver to name to CVXPY: its own choice where the user gives options but no solver."""
    return DEFAULT if solver is None and set(options) <= GENERAL else solver


_TAKEN: set[str] = set()
"""Solvers with options that they are known to take."""


def check_options(solver: str, options: dict[str, Any]) -> None:
    """Let `solver` refuse options that it does not know, on a problem of one variable.

    The built-in engine may be at the end before a solver of CVXPY is called; a misspelt option is
    an error all the same, and the solver's own.

    Raises
    ------
    TypeError, ValueError, ...
        What the solver raises, but for cvxpy.error.SolverError.
    """
    own = {name: value for name, value in options.items() if name not in GENERAL}
    key = f"{solver.upper()} {sorted(own.items())!r}"
    if not own or key in _TAKEN:
        return
    x = cp.Variable()
    with ignore_warnings(), suppress(cp.error.SolverError):
        cp.Problem(cp.Minimize(x), [x >= 1.0]).solve(solver=solver, **own)
    _TAKEN.add(key)


def options_for(solver: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options to pass on: those given, and tight tolerances where none are among them."""
    chosen = any(part in name.lower() for name in given for part in ACCURACY)
    tight = {} if chosen else TIGHT.get(solver_name(solver), {})
    return {**tight, **given}


_LOCK = Lock()

_INSIDE: list[Any] = []
"""One entry a thread inside; the first is what restores the filters."""


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore warnings inside the block; other threads are silent too while it lasts."""
    with _LOCK:
        _INSIDE.append(None if _INSIDE else _start_ignoring())
    try:
        yield
    finally:
        with _LOCK:
            restore = _INSIDE[0]
            _INSIDE.pop()
            if not _INSIDE:
                restore.__exit__(None, None, None)


def _start_ignoring() -> Any:
    saved = warnings.catch_warnings()
    saved.__enter__()
    warnings.simplefilter("ignore")
    return saved
