"""Which solver a problem goes to: the built-in one that suits, or one called by name."""

from __future__ import annotations

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.validation import word
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.chunks import Chunks
from cvxscreen.designs.gram import Gram
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.apg import Apg
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet, suits
from cvxscreen.solvers.interface import SubproblemSolver
from cvxscreen.solvers.metric.solver import MetricSolver, is_metric
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.prox_newton.solver import ProxNewton, takes
from cvxscreen.solvers.smo import Smo
from cvxscreen.solvers.stochastic import Sdca, Spdc

CROSSOVER = 150
"""Coordinates from which on `DualActiveSet` is the faster one on sparse data.

Measured on text-like data: hinge loss, 20,000 terms, eight values of C from 0.05 to 5, relative gap
1e-6. CPU seconds of `DualActiveSet` and `Newton`: 0.5 and 1.5 with 100 coordinates, 0.4 and 1.8
with 200, 0.5 and 2.9 with 400, 0.5 and 9.1 with 800, 0.4 and 11.5 with 1600.
"""


AUTOMATIC = ("auto", "builtin", "newton")
"""Names that leave the choice among the built-in solvers to `builtin_solver`."""

FORCED: dict[str, type[Apg] | type[Sdca] | type[Spdc]] = {"apg": Apg, "sdca": Sdca, "spdc": Spdc}
"""Built-in solvers that are used only when named."""

PILOT, KINKED = 1e-12, 1e-8
"""Relative gap asked of the built-in solver before another one sees the reduced problem; the second
under an L1 term with losses that have a kink, where the last digits are slow."""


def pilot_gap(problem: Problem) -> float:
    """The relative gap to ask of the built-in solver before another one gets `problem`."""
    kinked = isinstance(problem.penalty, L1) and (problem.losses.q == 0).any()
    return KINKED if kinked else PILOT


def builtin_solver(
    problem: Problem, limits: Limits = UNLIMITED
) -> Newton | DualActiveSet | Smo | MetricSolver | ProxNewton:
    """The built-in solver for `problem`, within `limits`.

    `MetricSolver` for metric learning, `ProxNewton` under an L1 term, `Smo` for a kernel,
    `DualActiveSet` for sparse data of many coordinates, otherwise `Newton`; over data in chunks
    `Newton` stands for the choice made anew for each reduced problem.

    Raises
    ------
    InvalidInput
        Under a penalty that none of them takes.
    """
    if isinstance(problem.design, Chunks):
        return Newton(limits=limits)
    if is_metric(problem):
        return MetricSolver(limits=limits)
    if takes(problem):
        return ProxNewton(limits=limits)
    if problem.penalty is not None:
        raise InvalidInput(
            f"`solver`: no built-in solver takes a penalty ({problem.penalty.name}); name one that "
            "CVXPY has installed."
        )
    if isinstance(problem.design, Gram):
        return Smo(limits=limits)
    if problem.d >= CROSSOVER and suits(problem):
        return DualActiveSet(limits=limits)
    return Newton(limits=limits)


def named_solver(solver: str, problem: Problem, limits: Limits = UNLIMITED) -> SubproblemSolver:
    """The solver called `solver`: the built-in one, or any that CVXPY has installed.

    Raises
    ------
    UnknownName
        If CVXPY does not know the name either; the message lists ours and those installed.
    """
    word("solver", solver, "the name of a solver, like 'auto' or 'CLARABEL', is needed")
    auto = solver.lower() == "auto" and problem.side is not None
    if solver.lower() in AUTOMATIC and not auto:
        return builtin_solver(problem, limits)
    if solver.lower() in FORCED:
        return FORCED[solver.lower()](limits=limits)
    inner: SubproblemSolver = supplied("cvxpy.solver")(
        "CLARABEL" if auto else solver, limits, (*AUTOMATIC, *FORCED)
    )
    return inner
