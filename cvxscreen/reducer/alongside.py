"""Losses beside another convex part, from the recognition to the answer in the user's problem."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from cvxscreen.certificate import Certificate
from cvxscreen.errors import CvxscreenError
from cvxscreen.reducer.beside import Beside
from cvxscreen.reducer.inner import CvxpyInner
from cvxscreen.reducer.minorant import Relaxed
from cvxscreen.reducer.report import Report
from cvxscreen.reducer.restore import restore, statistics, status_of, write_back
from cvxscreen.reducer.rounds import Outcome, solve_beside

USELESS = 1e-2
"""An answer with a larger certified gap (relative) is not handed out, but solved again plainly."""


def screened_beside(
    made: Beside, guest: CvxpyInner, mode: str, tol: float, recognised: float
) -> Report | str:
    """Solve losses beside another convex part and write back; or why CVXPY's answer is needed.

    `recognised` is the time of the recognition, in seconds.
    """
    try:
        found = solve_beside(made, guest, mode, tol)
    except (CvxscreenError, np.linalg.LinAlgError) as error:
        return f"the screening loop stopped: {error}"
    answer = accepted_answer(found, guest)
    if isinstance(answer, str):
        return answer
    began, point, last = perf_counter(), answer[0].point, guest.problem_solved
    recognition, stats = made.recognition, last.solver_stats
    restored = restore(recognition, point.x, point.theta, point.multipliers, found.shares)
    seconds = perf_counter() - began
    report = report_of(made, found, answer[1], mode, stats.solver_name, recognised, seconds)
    write_back(
        recognition,
        restored,
        status=status_of(answer[1].ok, last.status),
        solver=report.solver,
        statistics=statistics(
            report,
            solve_time=guest.solve_time,
            setup_time=guest.setup_time,
            iterations=stats.num_iters,
            inner=stats.extra_stats,
        ),
    )
    return report


def accepted_answer(found: Outcome, guest: CvxpyInner) -> tuple[Relaxed, Certificate] | str:
    """The answer and its certificate; or why they cannot be handed out."""
    proof = found.certificate
    if found.relaxed is None or proof is None or guest.problem_solved is None:
        return f"the reduced problem was not solved to optimality ({found.status})"
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    return found.relaxed, proof


def report_of(
    made: Beside,
    found: Outcome,
    proof: Certificate,
    mode: str,
    solver: str,
    recognised: float,
    restored: float,
) -> Report:
    """What the rounds did, as a record; the last two arguments are seconds."""
    masks = found.screening
    counts = {"zero": masks.zero, "linear": masks.linear, "quadratic": masks.quadratic}
    return Report(
        recognised=True,
        mode=mode,
        solver=solver,
        terms=made.terms,
        kept=found.kept,
        fixed={**{k: int(v.sum()) for k, v in counts.items()}, "predicted": found.predicted},
        beside=made.words,
        gap=proof.gap,
        relative_gap=proof.relative_gap,
        rounds=found.rounds,
        times={
            "recognise": recognised,
            "screen": found.seconds - found.solve_seconds,
            "solve": found.solve_seconds,
            "restore": restored,
        },
    )
