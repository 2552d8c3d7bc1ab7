"""What a user calls beside ``prob.solve(method="screen")``: explain, reduce, verify."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate import Certificate, certify
from cvxscreen.duality import reference_point
from cvxscreen.errors import NotCertified, NotScreenable
from cvxscreen.problem import Problem
from cvxscreen.reducer.build import Built, build
from cvxscreen.reducer.inner import CvxpyInner, options_for, solver_name
from cvxscreen.reducer.plugin import solve
from cvxscreen.reducer.recognise import recognise
from cvxscreen.reducer.recognition import Recognition
from cvxscreen.reducer.report import Comparison, Explanation, Report
from cvxscreen.reducer.restore import restore, statistics, write_back
from cvxscreen.screening import Screening
from cvxscreen.selection import Selection
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.newton import Newton

Array = NDArray[np.float64]

PILOT = 1e-8
"""Relative gap of the solve that `reduce` proves its fixings from."""

SHOWN = 48
"""Characters of a constraint's text in a table."""


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
            fixed=fixed(self.screening),
            gap=proof.gap,
            relative_gap=proof.relative_gap,
        )
        write_back(
            self._recognition,
            restore(self._recognition, point.x, point.theta, point.multipliers),
            status=cp.OPTIMAL if proof.ok else cp.OPTIMAL_INACCURATE,
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


def fixed(screening: Screening) -> dict[str, int]:
    """Number of terms proven on each kind of piece."""
    return {name: int(getattr(screening, name).sum()) for name in ("zero", "linear", "quadratic")}


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
    NotScreenable
        If `problem` is not recognised, with the reason.
    NotCertified
        If no first point was found, because the problem is infeasible or unbounded.
    """
    recognition = recognise(problem)
    full = recognition.problem
    pilot = Newton() if full.side is None else CvxpyInner()
    found = solve_screened(full, pilot, tol=PILOT)
    if found.status not in ("optimal", "inaccurate"):
        raise NotCertified(f"no point to screen from was found: the solver says {found.status!r}.")
    selection = found.screening.selection.folded(full)
    source = selection.reduce(full)
    built = build(source)
    return Reduced(built.problem, found.screening, recognition, selection, source, built)


@dataclass(frozen=True, eq=False)
class _Snapshot:
    """A problem's answer, copied."""

    status: str
    value: float
    seconds: float
    variables: tuple[Array, ...]
    duals: tuple[Array | None, ...]

    @classmethod
    def of(cls, problem: Any, seconds: float) -> _Snapshot:
        found = [variable.value for variable in problem.variables()]
        return cls(
            problem.status,
            float("nan") if problem.value is None else float(problem.value),
            seconds,
            tuple(_flat(value) for value in found if value is not None),
            tuple(_dual(constraint) for constraint in problem.constraints),
        )


def _flat(value: Any) -> Array:
    dense = value.toarray() if hasattr(value, "toarray") else np.asarray(value, dtype=np.float64)
    return np.atleast_1d(dense).ravel()


def _dual(constraint: Any) -> Array | None:
    value = constraint.dual_value
    parts = value if isinstance(value, list) else [value]
    if any(part is None for part in parts):
        return None
    return np.concatenate([_flat(part) for part in parts])


def verify(
    problem: Any,
    solver: Any = None,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    **options: Any,
) -> Comparison:
    """Solve `problem` plainly and by screening, and compare.

    Afterwards the problem holds the screened solution. Both solves get the same options: those
    given, or tight tolerances for solvers whose defaults are loose.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str, optional
        Clarabel when omitted.
    mode, tol
        As in ``prob.solve(method="screen")``.
    **options
        Passed to the solver.

    Returns
    -------
    Comparison
        With ``agrees``; prints as a table.
    """
    given = options_for(solver, options)
    began = process_time()
    problem.solve(solver=solver_name(solver) if solver is None else solver, **given)
    plain = _Snapshot.of(problem, process_time() - began)
    began = process_time()
    solve(problem, solver, mode=mode, tol=tol, **given)
    screened = _Snapshot.of(problem, process_time() - began)
    return _compare(problem, plain, screened, tol)


def _compare(problem: Any, plain: _Snapshot, screened: _Snapshot, tol: float) -> Comparison:
    report: Report = problem.solver_stats.extra_stats["cvxscreen"]
    primal = float("nan")
    if plain.variables and len(plain.variables) == len(screened.variables):
        first, second = np.concatenate(plain.variables), np.concatenate(screened.variables)
        primal = _distance(first, second)
    duals = {}
    for k, constraint in enumerate(problem.constraints):
        one, other = plain.duals[k], screened.duals[k]
        if one is not None and other is not None:
            text = " ".join(str(constraint).split())
            name = f"{k}: {text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}"
            duals[name] = _distance(one, other)
    gap = abs(plain.value - screened.value) / max(1.0, abs(plain.value))
    same = plain.status == screened.status
    agrees = same and (plain.value == screened.value or gap <= max(tol, 1e-6))
    return Comparison(
        agrees=bool(agrees),
        status=(plain.status, screened.status),
        value=(plain.value, screened.value),
        seconds=(plain.seconds, screened.seconds),
        primal=primal,
        duals=duals,
        terms=report.terms,
        kept=report.kept,
        tolerance=max(tol, 1e-6),
        report=report,
    )


def _distance(first: Array, second: Array) -> float:
    """Largest difference relative to the largest entry."""
    size = max(1.0, float(np.abs(first).max(initial=0.0)))
    return float(np.abs(first - second).max(initial=0.0)) / size
