"""``cvxscreen.verify``: plain and screened solve of one problem side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import process_time
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.tables import Record, table
from cvxscreen.cvxpy_plugin.certification import certify_cvxpy
from cvxscreen.cvxpy_plugin.recognise.variable_values import preserved_values
from cvxscreen.cvxpy_plugin.report import Report
from cvxscreen.cvxpy_plugin.request import Request, require_cvxpy_problem, solve
from cvxscreen.cvxpy_plugin.solver_options import chosen_solver, options_for, solver_name
from cvxscreen.errors import CvxscreenError, InvalidInput

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Comparison(Record):
    """A plain solve and a screened one of the same problem.

    Attributes
    ----------
    agrees : bool
        Same status, and objective values within `tolerance`. Variables and duals are reported, not
        judged: they need not be unique.
    status, value, seconds : pair
        Plain first; CPU seconds.
    primal : float
        Largest difference of a variable's value, relative to the largest of all values.
    duals : mapping of str to float
        Largest difference of each constraint's dual value, relative to its own size.
    terms, kept : int
    tolerance : float
        Relative difference of the objective that still counts as agreement.
    report : Report
    gaps : pair
        Where they do not agree: the relative gap of either answer, certified on the full data (see
        `cvxscreen.certify`); NaN where there is nothing to certify.
    """

    agrees: bool
    status: tuple[str, str]
    value: tuple[float, float]
    seconds: tuple[float, float]
    primal: float
    duals: Mapping[str, float]
    terms: int
    kept: int
    tolerance: float
    report: Report
    gaps: tuple[float, float] = (float("nan"), float("nan"))

    @property
    def wrong(self) -> str:
        """Which of two answers that do not agree is proven to be off: "plain", "screened" or ""."""
        good = [gap <= self.tolerance for gap in self.gaps]
        if self.agrees or good[0] == good[1] or not np.isfinite(self.gaps).all():
            return ""
        return "screened" if good[0] else "plain"

    def _brief(self) -> str:
        plain, screened = (float(f"{s:.3g}") for s in self.seconds)
        return (
            f"{'agrees' if self.agrees else 'DISAGREES'}, {plain:g} s plain, {screened:g} s "
            f"screened, {self.kept:,} of {self.terms:,} terms kept"
        )

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [
            ("status", *self.status, ""),
            ("objective", *(f"{v:.10g}" for v in self.value), _small(*self.value)),
            ("CPU seconds", *(f"{v:.3g}" for v in self.seconds), ""),
            ("loss terms", str(self.terms), str(self.kept), ""),
            ("variables", "", "", f"{self.primal:.2g}"),
            *((f"dual of {name}", "", "", f"{gap:.2g}") for name, gap in self.duals.items()),
        ]
        if not self.agrees:
            rows.append(("certified gap", *(f"{gap:.2g}" for gap in self.gaps), ""))
        word = "agree" if self.agrees else "DO NOT AGREE"
        if self.wrong:
            word += f": the {self.wrong} answer is wrong"
        title = f"plain and screened solve {word} ({self.report.solver})"
        return table(("", "plain", "screened", "difference"), rows, title=title)


@dataclass(frozen=True, repr=False)
class Comparisons(Record):
    """Plain and screened solves of one problem by several solvers.

    Attributes
    ----------
    runs : tuple of Comparison
        One for each solver that could take the problem.
    lines : tuple
        Of the table: solver, full or reduced, status, value, then differences from the first plain
        solve (of the value, the variables, the worst dual value), CPU seconds, terms.
    whole : bool
        Whether every solver could take the problem.
    """

    runs: tuple[Comparison, ...]
    lines: tuple[tuple[object, ...], ...]
    whole: bool

    @property
    def agrees(self) -> bool:
        """Whether plain and screened solve agree for every solver that took the problem."""
        return bool(self.runs) and all(run.agrees for run in self.runs)

    def __str__(self) -> str:
        header = (
            "solver", "problem", "status", "value", "of value", "of variables", "of duals",
            "CPU s", "terms",
        )
        word = "agree" if self.agrees else "DO NOT AGREE"
        for run in self.runs:
            if run.wrong:
                word += f"; the {run.wrong} answer of {run.report.solver} is wrong"
        title = f"full and reduced problem {word} (differences from the first line)"
        return table(header, self.lines, title=title)


def _small(first: float, second: float) -> str:
    return f"{abs(first - second) / max(1.0, abs(first)):.2g}"



SHOWN = 48
"""Characters of a constraint's text in a table."""


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
    dense = np.atleast_1d(value.toarray() if hasattr(value, "toarray") else np.asarray(value))
    if np.iscomplexobj(dense):
        dense = np.concatenate([dense.real, dense.imag])
    return np.asarray(dense, dtype=np.float64).ravel()


def _dual(constraint: Any) -> Array | None:
    value = constraint.dual_value
    parts = value if isinstance(value, list) else [value]
    if any(part is None for part in parts):
        return None
    return np.concatenate([_flat(part) for part in parts])


@overload
def verify(
    problem: Any,
    solver: list[Any] | tuple[Any, ...],
    *,
    mode: str = ...,
    tol: float = ...,
    **options: Any,
) -> Comparisons: ...


@overload
def verify(
    problem: Any,
    solver: str | None = ...,
    *,
    mode: str = ...,
    tol: float = ...,
    **options: Any,
) -> Comparison: ...


def verify(
    problem: Any,
    solver: Any = None,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    **options: Any,
) -> Comparison | Comparisons:
    """Solve `problem` plainly and by screening, and compare; with one solver or with several.

    Afterwards the problem holds the screened solution. Both solves get the same options: those
    given, or tight tolerances for solvers whose defaults are loose.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or list of str, optional
        Clarabel when omitted.
    mode, tol
        As in ``prob.solve(method="screen")``.
    **options
        Passed to the solver.

    Returns
    -------
    Comparison, or Comparisons for a list
        With ``agrees``; prints as a table: time, value, variables, dual values, kept terms.

    Raises
    ------
    InvalidInput
        For what is no cvxpy.Problem, an empty list of solvers, or a tolerance outside (0, 1).
    cvxpy.error.SolverError
        As from ``prob.solve()``, for one solver; within a list, a solver that cannot take the
        problem gets a line that says so.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> found = cvxscreen.verify(prob, solver="CLARABEL")
    >>> found.agrees, found.status, found.terms
    (True, ('optimal', 'optimal'), 200)
    """
    require_cvxpy_problem(problem)
    Request(None, mode, tol).check()
    if isinstance(solver, list | tuple):
        return _several(problem, list(solver), mode, tol, options)
    return _one(problem, solver, mode, tol, options)[0]


def _several(
    problem: Any, solvers: list[Any], mode: str, tol: float, options: dict[str, Any]
) -> Comparisons:
    """One comparison a solver, all against the first plain solve."""
    if not solvers:
        raise InvalidInput("`solver` is an empty list; name at least one.")
    runs: list[Comparison] = []
    lines: list[tuple[object, ...]] = []
    truth: _Snapshot | None = None
    for solver in solvers:
        name = solver_name(solver)
        try:
            found, plain, screened = _one(problem, solver, mode, tol, options)
        except Exception as error:  # the others go on, whatever this one cannot do
            text = " ".join(str(error).split())
            lines.append((name, "full", f"failed: {text[:SHOWN]}", *6 * ("",)))
            continue
        truth = plain if truth is None else truth
        runs.append(found)
        kept = found.kept if found.report.recognised else found.terms
        lines.append((name, "full", *_line(plain, truth, found.terms)))
        lines.append((name, "reduced", *_line(screened, truth, kept)))
    return Comparisons(tuple(runs), tuple(lines), len(runs) == len(solvers))


def _line(run: _Snapshot, truth: _Snapshot, terms: int) -> tuple[object, ...]:
    """Status, value, seconds, terms, and differences from `truth`."""
    primal, dual = float("nan"), float("nan")
    if truth.variables and len(run.variables) == len(truth.variables):
        primal = _distance(np.concatenate(truth.variables), np.concatenate(run.variables))
    pairs = [
        _distance(a, b)
        for a, b in zip(truth.duals, run.duals, strict=True)
        if a is not None and b is not None
    ]
    dual = max(pairs) if pairs else dual
    gap = abs(run.value - truth.value) / max(1.0, abs(truth.value))
    seconds = float(f"{run.seconds:.3g}")
    return run.status, f"{run.value:.10g}", gap, primal, dual, seconds, terms


def _one(
    problem: Any, solver: Any, mode: str, tol: float, options: dict[str, Any]
) -> tuple[Comparison, _Snapshot, _Snapshot]:
    """Both solves with one solver."""
    Request(solver, mode, tol).check()
    given = options_for(solver, options)
    for variable in problem.variables():
        # With values, CVXPY may refuse its own helpers' within bounds that it derives for HIGHS.
        variable.save_value(None)
    began = process_time()
    problem.solve(solver=chosen_solver(solver, given), **given)
    plain = _Snapshot.of(problem, process_time() - began)
    began = process_time()
    solve(problem, solver, mode=mode, tol=tol, always=True, **given)
    screened = _Snapshot.of(problem, process_time() - began)
    found = _compare(problem, plain, screened, tol)
    if not found.agrees:
        gaps = _certified_gap(problem, plain, tol), _certified_gap(problem, screened, tol)
        found = replace(found, gaps=gaps)
    return found, plain, screened


def _certified_gap(problem: Any, answer: _Snapshot, tol: float) -> float:
    """The relative gap of an answer on the full data; NaN where there is nothing to certify."""
    variables = problem.variables()
    if len(answer.variables) != len(variables) or not np.isfinite(answer.value):
        return float("nan")
    with preserved_values(variables):
        try:
            for variable, value in zip(variables, answer.variables, strict=True):
                variable.save_value(value.reshape(variable.shape))
            proof = certify_cvxpy(problem, tol=tol)
        except (CvxscreenError, ValueError):
            return float("nan")
    return proof.relative_gap if proof.ok or proof.violation <= tol else float("inf")


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
