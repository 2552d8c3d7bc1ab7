"""The one loop: predict or prove, reduce, solve, evaluate on everything, put back, repeat.

What is screened differs, the loop does not. A `cvxscreen.solvers.screened.ScreenedProblem` knows

- what may be fixed (`select`): in ``safe`` mode only what a bound proves from the best point,
  in ``certified`` mode also what that point suggests;
- the smaller problem and the way back (`reduce`);
- which solver it goes to, from which start and to which gap (`solve`);
- margins, gap and residual of the lifted answer on all data (`evaluate`);
- what that point refutes (`put_back`), and whether another round may help (`close`).

Which one a problem gets, `screened_as` says:

- `ScreenedRows` collapses terms onto the pieces of their losses; without strong convexity
  `ScreenedRelaxation` does and, in safe mode, `ProximalSteps`; `ScreenedColumns` lets in columns
  where terms of their own hold many coordinates at 0;
- `ProvenRowsAndColumns` and `PredictedRowsAndColumns` leave out features as well, under an L1 term,
  and reduce what they have reduced before;
- `ScreenedLinearProgram` lets features into a linear program, `ScreenedCones` leaves out
  second-order cones; `ScreenedNorms` leaves out nothing, but eliminates bounds of norms;
- `ScreenedChunks` reduces data in chunks to a problem in memory, which comes back here.

In the CVXPY plugin `ScreenedComposite` takes the part of a problem that is not screened into every
reduced problem, and `ScreenedBudgets` screens losses that a constraint bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from cvxscreen._support.extensions import loaded
from cvxscreen._support.limits import UNLIMITED, Limits, blas_threads
from cvxscreen._support.validation import MODES, check_request
from cvxscreen.bounds import Bound, default_bounds
from cvxscreen.core.lasso import lasso_rows
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, entries
from cvxscreen.solvers.interface import (
    WITHOUT_SOLUTION,
    Start,
    SubproblemResult,
    SubproblemSolver,
)
from cvxscreen.solvers.reformulations import (
    Centred,
    KeptForm,
    Reformulation,
    ShortSquares,
    WithoutIntercept,
)
from cvxscreen.solvers.registry import (
    builtin_solver,
    builtin_takes,
    has_norms,
    pilot_gap,
    solver_of_one,
    waits_for_loops,
)
from cvxscreen.solvers.rows import ScreenedRows
from cvxscreen.solvers.screened import ProblemInMemory, one_round, run
from cvxscreen.solvers.solution import Round, Solution

__all__ = [
    "SubproblemSolver", "SubproblemResult", "MODES", "Start", "one_round", "run", "solve_screened",
]

MANY_COLUMNS, OF_TERMS = 300, 4
"""Coordinates from which on columns are left out, and terms at most for each, theirs included: an
absolute loss with an L1 norm, 200 x 1,000, takes 1 to 7 s with all columns and 0.5 to 1.3 so."""

HALF = 0.5
"""Share of the tolerance that another form is solved to: what the way back rounds has the rest."""


def solve_screened(
    problem: Problem,
    inner: SubproblemSolver | None = None,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    start: Start | None = None,
    bounds: Sequence[Bound] | None = None,
    on_round: Callable[[Round], None] | None = None,
    limits: Limits = UNLIMITED,
    kept: KeptForm | None = None,
) -> Solution:
    """Solve `problem` by rounds of screening and reduced solves.

    Parameters
    ----------
    problem : Problem
    inner : callable, optional
        Solver of the reduced problems, the built-in one that suits when omitted; its limits are
        those of the call.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    start : Start, optional
        A warm start on the full problem.
    bounds : sequence of Bound, optional
    on_round : callable, optional
        Gets the record of every finished round.
    limits : Limits
        Of the built-in solver, where `inner` is omitted.
    kept : KeptForm, optional
        What earlier solves of the same data at other costs have left, and what this one leaves.

    Returns
    -------
    Solution
        ``"optimal"`` only if the certificate on the full problem holds, else maybe cut short.

    Raises
    ------
    UnknownName
        For a mode that does not exist.
    InvalidInput
        For a tolerance that is not positive.
    """
    mode = check_request(mode, tol)
    began = perf_counter()
    if problem.design.streamed:
        from cvxscreen.solvers.streamed import ScreenedChunks

        whole = builtin_solver(problem, limits) if inner is None else inner
        chunks = ScreenedChunks(problem, whole, mode, tol, bounds, on_round)
        chunks.begin(start, solve_screened)
        with np.errstate(invalid="ignore"):  # a parabola has no end, nor need it touch an intercept
            run(chunks)
        return chunks.solution(began)
    theirs, often = inner is not None or bounds is not None, kept is not None
    other = None
    if mode == "certified":
        other = (kept.at(problem) if kept else None) or reformulated(problem, theirs, often)
    if other is not None:
        if kept is not None:
            kept.keep(other)
        found = solve_screened(
            other.equivalent, inner, mode=mode, tol=HALF * tol, start=start and other.apply(start),
            bounds=bounds, on_round=on_round, limits=limits, kept=kept and kept.within,
        )
        answer = other.invert(found, tol)
        if answer.status != "inaccurate" or not other.lossy:
            return answer if bounds is not None else replace(answer, bounds=default_bounds(problem))
        start = Start(answer.x, answer.theta, multipliers=answer.multipliers)
    bounds = default_bounds(problem) if bounds is None else tuple(bounds)
    if inner is None:  # what is solved often waits for the loops that are the quickest
        inner = (builtin_solver if often else solver_of_one)(problem, limits)
    solver: SubproblemSolver = inner
    kind = screened_as(problem, mode)
    piloted = kind.piloted
    if piloted and not solver.traits.reaches_target and builtin_takes(problem):
        # The built-in solver is the pilot: another solver then only sees what is hard to decide.
        first = builtin_solver(problem, solver.limits)
        aim = min(tol, pilot_gap(problem, mode))
        pilot = solve_screened(problem, first, mode=mode, tol=aim, start=start, bounds=bounds)
        if pilot.status in WITHOUT_SOLUTION:
            return pilot
        if np.isfinite(pilot.x).all():
            start = Start(pilot.x, pilot.theta, multipliers=pilot.multipliers)
    if solver.name == "INTERIOR_POINT" and not kind.narrows:
        solver = loaded("cvxscreen.solvers.interior_point:able")(solver, problem, solver.limits)
    screened = kind(problem, solver, mode, tol, bounds, on_round)
    with _few_blas_threads(problem):
        screened.begin(start, solve_screened)
        run(screened)
        return screened.solution(began)


def screened_as(problem: Problem, mode: str) -> type[ProblemInMemory[Any, Any, Any, Any, Any]]:
    """What is left out of a problem in memory, and on which grounds.

    All but the rows are imported by those who have such a problem.
    """
    cones = problem.side is not None and not problem.n
    if has_norms(problem):
        place = "cvxscreen.solvers.cones:ScreenedNorms"
    elif cones and loaded("cvxscreen.solvers.cones:has_cones_alone")(problem):
        place = "cvxscreen.solvers.cones:ScreenedCones"
    elif mode == "certified" and held_at_zero(problem):
        place = "cvxscreen.solvers.columns:ScreenedColumns"
    elif problem.without_curvature:
        proximal = mode == "safe" and not problem.losses.any_hard
        name = "ProximalSteps" if proximal else "ScreenedRelaxation"
        place = f"cvxscreen.solvers.relaxation:{name}"
    elif problem.linear_program:
        place = "cvxscreen.solvers.linear_program:ScreenedLinearProgram"
    elif isinstance(problem.penalty, L1) and not problem.quadratic.free.any():
        name = "ProvenRowsAndColumns" if mode == "safe" else "PredictedRowsAndColumns"
        place = f"cvxscreen.solvers.rows_and_columns:{name}"
    else:
        return ScreenedRows
    kind: type[ProblemInMemory[Any, Any, Any, Any, Any]] = loaded(place)
    return kind


def held_at_zero(problem: Problem) -> bool:
    """Whether terms of their own hold most of many coordinates at 0, so that columns can go."""
    design = problem.design
    if problem.d < MANY_COLUMNS or problem.n > OF_TERMS * problem.d or design.streamed:
        return False
    if isinstance(design, Rows) and problem.side is None and 2 * len(design.light[0]) < problem.d:
        return False  # such terms have rows of one entry, and half of the coordinates need some
    return loaded("cvxscreen.solvers.columns:HeldColumns").of(problem) is not None


def reformulated(
    problem: Problem, theirs: bool = False, often: bool = False
) -> Reformulation | None:
    """`problem` in the form that pays.

    About the centre of its features, without its intercept, with a triangle for its squares, or
    with terms for its bounds. `theirs` says that a solver or bounds are named, which are for the
    coordinates that there are; `often`, that the form is kept for other costs.
    """
    form: Reformulation | None = Centred.of(problem, exact=False)
    rows = 0 if form is not None or theirs else lasso_rows(problem)
    if rows and not waits_for_loops(problem, rows, often):
        form = WithoutIntercept.of(problem, often=often)
    return form or ShortSquares.of(problem) or dual_form(problem) or bounds_as_terms(problem)


def dual_form(problem: Problem) -> Reformulation | None:
    """The dual of `problem`, where that has far fewer coordinates; else None."""
    if problem.side is None or problem.d < MANY_COLUMNS or problem.n > problem.d:
        return None  # without an import for it
    found: Reformulation | None = loaded("cvxscreen.solvers.dual_form:DualForm").of(problem)
    return found


def bounds_as_terms(problem: Problem) -> Reformulation | None:
    """`problem` with terms for its bounds, where columns can go then; else None."""
    if problem.side is None or problem.d < MANY_COLUMNS or problem.design.streamed:
        return None
    if has_norms(problem):
        return None
    found: Reformulation | None = loaded("cvxscreen.solvers.columns:BoundsAsTerms").of(problem)
    return found if found is not None and held_at_zero(found.equivalent) else None


def _few_blas_threads(problem: Problem) -> AbstractContextManager[None]:
    """One thread of BLAS for products too short to be shared, as `blas_threads` has it."""
    design = problem.design
    if isinstance(design, Rows):
        return blas_threads(entries(design), min(problem.n, problem.d))
    if isinstance(design, loaded("cvxscreen.designs.gram:Gram")) and design.small:
        return blas_threads(entries(design))
    return nullcontext()
