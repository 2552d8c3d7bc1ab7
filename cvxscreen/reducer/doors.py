"""What a user calls beside ``prob.solve(method="screen")``: explain, reduce, verify."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Any

import cvxpy as cp

from cvxscreen.certificate import Certificate, certify
from cvxscreen.duality import reference_point
from cvxscreen.errors import NotCertified, NotScreenable
from cvxscreen.inputs import positive
from cvxscreen.problem import Problem
from cvxscreen.reducer.build import Built, build
from cvxscreen.reducer.compare import cvxpy_problem, verify
from cvxscreen.reducer.inner import CvxpyInner
from cvxscreen.reducer.recognise import recognise
from cvxscreen.reducer.recognition import Recognition
from cvxscreen.reducer.report import Explanation, Report
from cvxscreen.reducer.restore import restore, statistics, status_of, write_back
from cvxscreen.rules import piece_masks
from cvxscreen.screening import Screening
from cvxscreen.selection import Selection
from cvxscreen.solvers.loop import solve_screened

__all__ = ["Reduced", "explain", "fixed", "reduce", "verify"]

PILOT = 1e-8
"""Relative gap of the solve that `reduce` proves its fixings from."""


def explain(problem: Any) -> Explanation:
    """What `problem` is recognised as, or why it is not; nothing is solved.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Explanation
        With ``recognised`` and ``reasons``; prints as a table.
    """
    cvxpy_problem(problem)
    began = process_time()
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        return Explanation(False, (str(refusal),), seconds=process_time() - began)
    return Explanation.of(recognition.problem, process_time() - began)


@dataclass(frozen=True, eq=False)
class Reduced:
    """A smaller problem with the same solution, and the way back.

    Attributes
    ----------
    problem : cvxpy.Problem
        To be solved with anything; its only vector variable of the original's are the core
        coordinates.
    screening : Screening
        What was proven, and from what.
    """

    problem: Any
    screening: Screening
    _recognition: Recognition
    _selection: Selection
    _source: Problem
    _built: Built

    def restore(self, tol: float = 1e-6) -> Certificate:
        """Write the solution of `problem` onto the original, values and duals.

        Parameters
        ----------
        tol : float
            Relative gap that the certificate asks for.

        Returns
        -------
        Certificate
            Recomputed on the full problem.

        Raises
        ------
        NotCertified
            If `problem` has not been solved; the original is then left as it is.
        """
        tol = positive("tol", tol)
        status = self.problem.status
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT):
            word = "has not been solved" if status is None else f"has status {status!r}"
            raise NotCertified(
                f"the reduced problem {word}, so there is nothing to restore: call "
                "`reduced.problem.solve()` first."
            )
        full = self._recognition.problem
        x, theta, side = self._built.read()
        x, theta = self._selection.lift(full, self._source, x, theta)
        point = reference_point(full, x, theta, side)
        proof = certify(full, point.x, point.theta, point.multipliers, tol=tol)
        stats = self.problem.solver_stats
        report = Report(
            recognised=True,
            mode="safe",
            solver=stats.solver_name,
            terms=full.n,
            kept=self._source.n,
            fixed=fixed(full, self._selection),
            gap=proof.gap,
            relative_gap=proof.relative_gap,
        )
        write_back(
            self._recognition,
            restore(self._recognition, point.x, point.theta, point.multipliers),
            status=status_of(proof.ok, status),
            solver=stats.solver_name,
            statistics=statistics(
                report,
                solve_time=stats.solve_time,
                setup_time=stats.setup_time,
                iterations=stats.num_iters,
                inner=stats.extra_stats,
            ),
        )
        return proof

    def __str__(self) -> str:
        return str(self.screening)


def fixed(problem: Problem, selection: Selection) -> dict[str, int]:
    """Number of terms that `selection` takes out, by kind of piece."""
    masks = piece_masks(problem.losses, selection.codes)
    return {name: int(masks[name].sum()) for name in ("zero", "linear", "quadratic")}


def reduce(problem: Any) -> Reduced:
    """A smaller ``cvxpy.Problem`` with the same solution, to be solved with anything.

    Every fixing is proven (nothing is predicted), from a solve by the built-in solver or, with side
    constraints, by Clarabel.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Reduced

    Raises
    ------
    InvalidInput
        If `problem` is no cvxpy.Problem.
    NotScreenable
        If `problem` is not recognised, with the reason.
    NotCertified
        If no first point was found, because the problem is infeasible or unbounded.
    """
    cvxpy_problem(problem)
    recognition = recognise(problem)
    full = recognition.problem
    pilot = None if full.side is None else CvxpyInner()
    found = solve_screened(full, pilot, tol=PILOT)
    if found.status not in ("optimal", "inaccurate"):
        raise NotCertified(f"no point to screen from was found: the solver says {found.status!r}.")
    selection = found.screening.selection.folded(full)
    source = selection.reduce(full)
    built = build(source)
    return Reduced(built.problem, found.screening, recognition, selection, source, built)
