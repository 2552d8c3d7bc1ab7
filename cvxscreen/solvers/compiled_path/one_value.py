"""One value of C by the compiled path: the screening loop as a whole, with the same record."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate, Passes
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.compiled_path.loops import COLUMNS
from cvxscreen.solvers.compiled_path.segments import CompiledPath
from cvxscreen.solvers.solution import Answer, Round, Solution

FEW, FINE = 400, 1e-13
"""Up to so many terms, a relative gap of 1e-13 is asked for: a Newton step or two, and then what
does not depend on the data's order or on repeated rows does not depend on them in the answer."""


def solve_one(problem: Problem, tol: float, bounds: tuple[Bound, ...]) -> Solution | None:
    """Solve `problem` in the certified mode; None where the certificate refuses the answer.

    Parameters
    ----------
    problem : Problem
        One that `suits`.
    tol : float
        Relative gap.
    bounds : tuple of Bound
        What the answer proves is proven by.
    """
    began = perf_counter()
    aim = min(tol, FINE) if problem.n <= FEW else tol
    found = CompiledPath(problem, "certified", aim).solve(np.array([problem.C]))
    if not len(found) or not found.proofs.relative_gap[0] <= tol:
        return None
    gap, primal = float(found.proofs.gap[0]), float(found.proofs.primal[0])
    proof = Certificate(
        gap, float(found.proofs.relative_gap[0]), primal, primal - gap, 0.0, tol, True
    )
    answer = Answer(problem, found.X[0], found.theta.row(0), np.zeros(0), proof, Passes())
    work = dict(zip(COLUMNS, found.record[0].tolist(), strict=True))
    only = Round(
        number=1, kept=int(work["kept"]), proven=0, predicted=int(work["predicted"]),
        refuted=int(work["refuted"]), gap=answer.proof.gap,
        relative_gap=answer.proof.relative_gap, solver_status="optimal",
        solver_info={"steps": int(work["steps"]), "passes": work["passes"]},
        solve_seconds=found.seconds, seconds=perf_counter() - began,
    )
    return Solution(
        problem=problem, x=answer.x, theta=answer.theta, multipliers=answer.multipliers,
        status="optimal", certificate=answer.proof, earlier=Screening.empty(problem),
        rounds=(only,), bounds=bounds, answer=answer, solver="BUILTIN", mode="certified",
        seconds=perf_counter() - began,
    )
