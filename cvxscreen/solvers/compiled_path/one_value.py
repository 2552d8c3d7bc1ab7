"""One value of C by the compiled path, or of few terms without it: with the record of the loop."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate, Passes
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.compiled_path.loops import COLUMNS
from cvxscreen.solvers.compiled_path.segments import CompiledPath
from cvxscreen.solvers.few_terms import solve_few
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
    counts = {name: int(work[name]) for name in ("kept", "predicted", "refuted")}
    info = {"steps": int(work["steps"]), "passes": work["passes"]}
    return _solution(answer, bounds, counts, info, (began, found.seconds))


def solve_uncompiled(
    problem: Problem, tol: float, bounds: tuple[Bound, ...]
) -> Solution | None:
    """The same for a problem of `few` terms, compiling nothing."""
    began = perf_counter()
    with np.errstate(all="ignore"):  # judged by the certificate
        x, theta, steps = solve_few(problem, 1e-2 * tol)
    spent = perf_counter() - began
    if not np.isfinite(x).all():
        return None
    answer = Answer.of(problem, x, theta, np.zeros(0), tol)
    if not answer.proof.ok:
        return None
    counts = {"kept": problem.n, "predicted": 0, "refuted": 0}
    info = {"steps": steps, "passes": 3.0 * steps}
    return _solution(answer, bounds, counts, info, (began, spent))


def _solution(
    answer: Answer, bounds: tuple[Bound, ...], counts: dict[str, int], info: dict[str, float],
    times: tuple[float, float],
) -> Solution:
    """The record of a call of one round that began at the first of `times`."""
    began, spent = times
    only = Round(
        number=1, proven=0, **counts, gap=answer.proof.gap,
        relative_gap=answer.proof.relative_gap, solver_status="optimal", solver_info=info,
        solve_seconds=spent, seconds=perf_counter() - began,
    )
    return Solution(
        problem=answer.problem, x=answer.x, theta=answer.theta, multipliers=answer.multipliers,
        status="optimal", certificate=answer.proof, earlier=Screening.empty(answer.problem),
        rounds=(only,), bounds=bounds, answer=answer, solver="BUILTIN", mode="certified",
        seconds=perf_counter() - began,
    )
