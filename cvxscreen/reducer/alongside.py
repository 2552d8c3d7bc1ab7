"""Losses beside another convex part, from the recognition to the answer in the user's problem."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from cvxscreen.errors import CvxscreenError
from cvxscreen.reducer.beside import Beside
from cvxscreen.reducer.inner import CvxpyInner
from cvxscreen.reducer.report import Report
from cvxscreen.reducer.restore import restore, statistics, status_of, write_back
from cvxscreen.reducer.rounds import solve_beside

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
    proof, last = found.certificate, guest.problem_solved
    if found.relaxed is None or proof is None or last is None:
        return f"the reduced problem was not solved to optimality ({found.status})"
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    began, point, stats = perf_counter(), found.relaxed.point, last.solver_stats
    recognition, masks = made.recognition, found.screening
    restored = restore(recognition, point.x, point.theta, point.multipliers, found.shares)
    counts = {"zero": masks.zero, "linear": masks.linear, "quadratic": masks.quadratic}
    report = Report(
        recognised=True,
        mode=mode,
        solver=stats.solver_name,
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
            "restore": perf_counter() - began,
        },
    )
    write_back(
        recognition,
        restored,
        status=status_of(proof.ok, last.status),
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
