"""``prob.solve(solver=cvxscreen.Screened("CLARABEL"))``: screening behind CVXPY's own compilation.

A custom conic solver: CVXPY compiles the problem as always, and keeps what it compiled between
solves with other parameter values; screening happens on the compiled matrices. It pays the full
compilation, which ``method="screen"`` does not, so it is for code that hands
solvers around, and for what only shows after compilation.

::

    minimise  1/2 <x, P x> + <c, x>     subject to    b - A x in K

Only numbers are left here: no expressions, no names. What a rule can prove from numbers alone is
proven as for any other problem.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cache
from time import perf_counter
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.solution import Solution as CvxpySolution
from cvxpy.reductions.solvers import utilities
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC
from cvxpy.reductions.solvers.solver import Solver

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.answer import RANKS, USELESS, Restored, not_solved, restore, status_of
from cvxscreen.cvxpy_plugin.composite import (
    ScreenedComposite,
    accepted_answer,
    composite_of,
    report_of,
)
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.plugin import cvxpy_solver_of, make_report
from cvxscreen.cvxpy_plugin.recognise.changed_costs import at_costs
from cvxscreen.cvxpy_plugin.recognise.check import check, last_check_point
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise_standard
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Cone, Standard
from cvxscreen.cvxpy_plugin.request import Report, Request, installed, with_report
from cvxscreen.cvxpy_plugin.size import OF_ROW, OF_SQUARE, PLAIN
from cvxscreen.cvxpy_plugin.solution_cache import LastSolution, start_from
from cvxscreen.errors import NotScreenable, UnknownName
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.solution import Solution

NAMES = ("CLARABEL", "SCS")
"""Conic solvers that take squares in the objective, and come with CVXPY."""


def Screened(solver: str = "CLARABEL", *, mode: str = "certified", tol: float = 1e-6) -> Any:
    """A solver object for ``prob.solve(solver=...)`` that screens what `solver` is to solve.

    Parameters
    ----------
    solver : {"CLARABEL", "SCS"}
        Solves the reduced problem, and whatever is not recognised: a conic solver that takes
        squares in the objective. ``method="screen"`` works with every solver of CVXPY.
    mode, tol
        As in ``prob.solve(method="screen")``. ``"safe"`` also screens problems so small that it
        saves nothing, which are otherwise solved plainly at once.

    Returns
    -------
    cvxpy solver
        Two of the same arguments are equal, so CVXPY's compiled problem is found again.

    Raises
    ------
    UnknownName, InvalidInput
        For arguments that do not exist.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> value = prob.solve(solver=cvxscreen.Screened("CLARABEL"))
    >>> prob.status, round(float(value), 3)
    ('optimal', 5.396)
    """
    if not isinstance(solver, str) or solver.upper() not in NAMES:
        unknown = UnknownName.among("solver", str(solver), NAMES)
        if isinstance(solver, str) and solver.upper() in installed():
            raise UnknownName(
                f"{unknown} `Screened` stands behind CVXPY's compilation for conic solvers that "
                "take squares; any solver works with "
                f"`prob.solve(method='screen', solver={solver!r})`."
            )
        raise unknown
    request = Request(solver.upper(), mode, tol)
    request.check()
    return _screened_class(solver.upper())(request)


@cache
def _screened_class(name: str) -> Any:
    """CVXPY's class of the solver `name`, screened."""
    base: Any = type(SOLVER_MAP_CONIC[name])

    class ScreenedSolver(base):
        """See `Screened`."""

        def __init__(self, request: Request) -> None:
            super().__init__()
            self.request = request

        def name(self) -> str:
            return f"SCREENED_{self.request.solver}"

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and other.request == self.request

        def __hash__(self) -> int:
            return hash((type(self), self.request.solver, self.request.mode, self.request.tol))

        def solve_via_data(
            self,
            data: dict[str, Any],
            warm_start: bool,
            verbose: bool,
            solver_opts: dict[str, Any],
            solver_cache: Any = None,
        ) -> _Answer:
            given = {k: v for k, v in solver_opts.items() if k != "use_quad_obj"}
            request = replace(self.request, verbose=verbose, options=given)
            found = _why_plain(data, request) or _solve(data, request, warm_start, solver_cache)
            if isinstance(found, _Answer):
                if found.status == cp.OPTIMAL or request.chooses_accuracy:
                    return found
                gap = found.report.relative_gap
                reason = f"the answer is not certified: its relative gap is {gap:.3g}"
            else:
                reason = found
            request.say(f"cvxscreen: solved plainly, because {reason}")
            plain = super().solve_via_data(data, warm_start, verbose, solver_opts, solver_cache)
            report = Report(False, reason, request.mode, self.name())
            return _Answer(report, plain, found if isinstance(found, _Answer) else None)

        def invert(self, solution: _Answer, inverse_data: Any) -> CvxpySolution:
            if solution.plain is None:
                return _inverted(self, solution, inverse_data)
            found = super().invert(solution.plain, inverse_data)
            other = solution.screened
            if other is not None and RANKS.get(found.status, 3) > RANKS.get(other.status, 3):
                return _inverted(self, other, inverse_data)
            extra = found.attr.get(cp.settings.EXTRA_STATS)
            found.attr[cp.settings.EXTRA_STATS] = with_report(solution.report, extra)
            return found

    return ScreenedSolver


class _Answer(Immutable):
    """What one call found: its columns and multipliers, or the plain solver's own result.

    Beside a plain result may stand a screened one without certificate; the better status decides.
    """

    report: Report
    plain: Any = None
    screened: _Answer | None = None
    x: Any = None
    z: Any = None
    value: float = 0.0
    status: str = ""
    seconds: float = 0.0
    iterations: Any = None


@dataclass(eq=False)
class _Cached:
    """The last problem and its solution, in the solver cache that CVXPY keeps with a problem."""

    fingerprint: bytes
    recognition: Recognition
    last: LastSolution | None = None


PAYS = 0.25
"""Estimated seconds of the plain solver from which on screening pays behind CVXPY's compilation.

Clarabel, CPU: hinge, absolute values and Huber's loss, 300 to 1,000 terms x 10 10 to 30 ms plainly,
40 to 60 screened; 3,000 x 10 50 to 80 for 70 to 110; 6,000 x 20 220 to 410 for 110 to 200."""


def _why_plain(data: dict[str, Any], request: Request) -> str:
    """Why screening what CVXPY compiled cannot pay; an empty text where it may.

    Each of the solver's steps takes the squares of its rows, as in `size.Size.seconds`.
    """
    if request.insists:
        return ""
    rows = np.bincount(data[cp.settings.A].indices, minlength=len(data[cp.settings.B]))
    seconds = PLAIN + OF_ROW * len(rows) + OF_SQUARE * float(np.square(rows, dtype=float).sum())
    if seconds >= PAYS:
        return ""
    return (
        f"it is small ({len(rows)} compiled rows), and solved before screening could save anything "
        "(`mode='safe'` screens all the same)"
    )


def _solve(
    data: dict[str, Any], request: Request, warm_start: bool, solver_cache: Any
) -> _Answer | str:
    """Screen and solve; or why the plain solver is needed."""
    began = perf_counter()
    key = f"SCREENED_{request.solver}_KEPT"
    cached = None if solver_cache is None else solver_cache.get(key)
    try:
        standard = from_standard_form(data)
        kept = _recognised(standard, data, cached)
    except NotScreenable as reason:
        return _composite(data, request, began) or str(reason)
    except Exception as defect:  # what the plain solver can solve must not fail here
        return f"the recogniser stopped with {type(defect).__name__}: {defect}"
    recognised = perf_counter() - began
    problem = kept.recognition.problem
    last = kept.last if warm_start else None
    start = None if last is None else start_from(last, problem)
    cvxpy_solver = cvxpy_solver_of(request)
    try:
        found = solve_screened(
            problem, cvxpy_solver, mode=request.mode, tol=request.tol, start=start
        )
    except Exception as error:  # whatever it is, the plain solver may solve the problem
        return f"the screening loop stopped with {type(error).__name__}: {error}"
    proof = found.certificate
    if found.status not in ("optimal", "inaccurate") or cvxpy_solver.problem_solved is None:
        return not_solved(found.status)
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    if solver_cache is not None:
        solver_cache[key] = with_last(kept, found)
    began, recognition = perf_counter(), kept.recognition
    restored = restore(recognition, found.x, found.theta, found.multipliers)
    name, seconds = f"SCREENED_{request.solver}", perf_counter() - began
    report = make_report(found, request, name, recognised, seconds)
    return _answer(recognition, restored, report, proof, cvxpy_solver, request)


def _composite(data: dict[str, Any], request: Request, began: float) -> _Answer | str:
    """The same for maxima of many pieces beside the losses; why not, or an empty text."""
    cvxpy_solver = cvxpy_solver_of(request)
    try:
        recognition = recognise_standard(from_standard_form(data), composite=True)
        check(recognition)
        made = composite_of(recognition, None)
        recognised = perf_counter() - began
        found = ScreenedComposite(made, cvxpy_solver, request.mode, request.tol).solved()
    except Exception:  # the first reason is the one to give
        return ""
    answer = accepted_answer(found, cvxpy_solver)
    if isinstance(answer, str):
        return answer
    began, point = perf_counter(), answer[0].point
    restored = restore(recognition, point.x, point.theta, point.multipliers, found.shares)
    name, seconds = f"SCREENED_{request.solver}", perf_counter() - began
    report = report_of(made, found, answer[1], request.mode, name, recognised, seconds)
    return _answer(recognition, restored, report, answer[1], cvxpy_solver, request)


def _answer(
    recognition: Recognition,
    restored: Restored,
    report: Report,
    proof: Any,
    cvxpy_solver: CvxpySolver,
    request: Request,
) -> _Answer:
    request.say(report)
    return _Answer(
        report,
        x=restored.z,
        z=restored.multipliers,
        value=recognition.standard.value(restored.z),
        status=status_of(proof.ok, cvxpy_solver.problem_solved.status),
        seconds=cvxpy_solver.solve_time,
        iterations=cvxpy_solver.problem_solved.solver_stats.num_iters,
    )


def _inverted(solver: Any, answer: _Answer, inverse_data: Any) -> CvxpySolution:
    """Columns and multipliers as CVXPY's variables and dual values."""
    zero = inverse_data[ConicSolver.DIMS].zero
    duals = utilities.get_dual_values(
        answer.z[:zero], utilities.extract_dual_value, inverse_data[solver.EQ_CONSTR]
    )
    duals = duals | utilities.get_dual_values(
        answer.z[zero:], utilities.extract_dual_value, inverse_data[solver.NEQ_CONSTR]
    )
    statistics = {
        cp.settings.SOLVE_TIME: answer.seconds,
        cp.settings.NUM_ITERS: answer.iterations,
        cp.settings.EXTRA_STATS: with_report(answer.report, None),
    }
    value = answer.value + inverse_data[cp.settings.OFFSET]
    primal = {inverse_data[solver.VAR_ID]: answer.x}
    return CvxpySolution(answer.status, value, primal, duals, statistics)


def _recognised(standard: Standard, data: dict[str, Any], cached: _Cached | None) -> _Cached:
    """The recognition, from the last one where the rows are the same."""
    digest = hashlib.blake2b(digest_size=16)
    rows = standard.rows
    for part in (rows.sparse.indptr, rows.sparse.indices, rows.sparse.data, rows.offset):
        digest.update(np.ascontiguousarray(part).data)
    digest.update(repr(data[Solver.DIMS]).encode())
    fingerprint = digest.digest()
    if cached is not None and cached.fingerprint == fingerprint:
        known = at_costs(cached.recognition, standard)
        if known is not None:
            check(known, at=last_check_point(known))
            return _Cached(fingerprint, known, cached.last)
    found = recognise_standard(standard)
    check(found)
    return _Cached(fingerprint, found, None if cached is None else cached.last)


def with_last(kept: _Cached, found: Solution) -> _Cached:
    """`kept` with another last solution."""
    return _Cached(kept.fingerprint, kept.recognition, LastSolution.of(found))


class CompiledProblem(Immutable):
    """Stands where a `Canonical` does; there is no problem of the user's to go back to.

    Attributes
    ----------
    own : dict of int to cvxpy.Variable
        The variables that rules take for the user's.
    """

    own: dict[int, Any]
    original: Any = None
    sign: float = field(default=1.0, init=False)
    groups: tuple[Any, ...] = field(default=(), init=False)
    shortened: tuple[Any, ...] = field(default=(), init=False)
    norms: tuple[Any, ...] = field(default=(), init=False)

    def current(self) -> None:
        """None: a compiled problem says nothing of its parameters' values."""


def from_standard_form(data: dict[str, Any]) -> Standard:
    """The numbers of a conic problem.

    Parameters
    ----------
    data : dict
        As given to a conic solver's ``solve_via_data``.

    Raises
    ------
    NotScreenable
        For cones other than zero, non-negative and second-order, or integer variables.
    """
    dims = data[Solver.DIMS]
    if dims.psd or dims.exp or dims.p3d or getattr(dims, "pnd", None):
        raise NotScreenable("the compiled problem has PSD, exponential or power cones")
    if data.get(cp.settings.BOOL_IDX) or data.get(cp.settings.INT_IDX):
        raise NotScreenable("the problem has integer or boolean variables")
    if data.get(cp.settings.LOWER_BOUNDS) is not None:
        raise NotScreenable("the compiled problem has bounds beside its rows")
    linear = np.asarray(data[cp.settings.C], dtype=np.float64)
    offset = np.asarray(data[cp.settings.B], dtype=np.float64)
    rows = sp.csr_array(-sp.csr_array(data[cp.settings.A]))
    rows.eliminate_zeros()
    squares = data.get(cp.settings.P)
    size = len(linear)
    quadratic = sp.csr_array((size, size)) if squares is None else sp.csr_array(squares)
    quadratic.eliminate_zeros()
    numbers = (linear, offset, rows.data, quadratic.data)
    if not all(np.isfinite(part).all() for part in numbers):
        raise NotScreenable("the data hold NaN or infinity")
    program = data[cp.settings.PARAM_PROB]
    variables = sorted(program.variables, key=lambda v: program.var_id_to_col[v.id])
    starts = np.concatenate([[0], np.cumsum([v.size for v in variables])]).astype(np.intp)
    if starts[-1] != size:
        raise NotScreenable("the variables of the compiled problem do not fill its columns")
    canonical: Any = CompiledProblem({v.id: v for v in variables})
    return Standard(
        canonical, tuple(variables), starts, quadratic, linear, 0.0,
        Stack(rows, (), offset), tuple(_cones(dims)),
    )


def _cones(dims: Any) -> list[Cone]:
    sizes = [("zero", dims.zero), ("nonneg", dims.nonneg), *(("soc", k) for k in dims.soc)]
    out: list[Cone] = []
    row = 0
    for kind, size in sizes:
        if size:
            out.append(Cone(kind, slice(row, row + int(size)), int(size), len(out)))
            row += int(size)
    return out
