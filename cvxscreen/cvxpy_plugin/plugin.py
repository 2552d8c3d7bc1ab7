"""``prob.solve(method="screen")``: recognise, screen, solve what is left, certify, write back.

A problem that is not recognised, or whose reduced problem is not solved to optimality, goes to
CVXPY as it is, with the reason in the report: the answer, the status and the exceptions are then
CVXPY's.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from inspect import signature
from time import perf_counter
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.reductions.solvers.solving_chain import DPP_ERROR_MSG
from cvxpy.utilities.warn import warn

from cvxscreen._support.limits import ITERATIONS, TIME, Limits
from cvxscreen._support.validation import choice, one_of, tolerance
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.composite.problem import CompositeProblem, recognise_refused
from cvxscreen.cvxpy_plugin.composite.rounds import USELESS, screened_composite
from cvxscreen.cvxpy_plugin.cvxpy_solver import (
    ACCURACY,
    DEFAULT,
    GENERAL,
    CvxpySolver,
    check_options,
    chosen_solver,
    ignore_warnings,
    installed,
    options_for,
)
from cvxscreen.cvxpy_plugin.metric_start import metric_start
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.report import Counts, Report
from cvxscreen.cvxpy_plugin.restore import (
    Answer,
    restore,
    statistics,
    status_of,
    with_report,
    write_back,
)
from cvxscreen.cvxpy_plugin.solution_cache import (
    LastSolution,
    cached_recognition,
    known_refusal,
    last_start,
    store_refusal,
    store_solution,
)
from cvxscreen.cvxpy_plugin.worthwhile import most_seconds, why_not_worthwhile
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.compiled_path.segments import ready
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import MODES, solve_screened
from cvxscreen.solvers.registry import (
    builtin_solver,
    builtin_takes,
    compiled_path,
    fine_gap,
)
from cvxscreen.solvers.solution import Round, Solution
from cvxscreen.solvers.solve import in_units, solve_problem

CvxpyProblem = cp.Problem
"""The type of the problems that the plugin takes."""

BUILTIN = "BUILTIN"
"""``solver="builtin"`` (in any case) asks for the built-in solver: no CVXPY solve at all."""

LIMITS = ("time_limit", "max_iter")
"""Options that the built-in solver takes, as `cvxscreen.solve` does."""

NO_SIDE = "the built-in solver takes no such side constraints (linear ones only)"

ELSEWHERE = ("gp", "qcp", "requires_grad", "nlp")
"""Arguments of ``prob.solve`` that ask for something else than a convex solve."""


POSITIONAL = (
    "warm_start", "verbose", "bibtex", "gp", "qcp", "requires_grad", "enforce_dpp", "ignore_dpp",
    "canon_backend", "nlp",
)
"""Names of CVXPY's positional arguments of ``prob.solve`` after the solver."""


def solve(
    problem: Any,
    solver: Any = None,
    *further: Any,
    mode: str = "certified",
    tol: float = 1e-6,
    verbose: bool = False,
    always: bool = False,
    **options: Any,
) -> Any:
    """Solve a ``cvxpy.Problem`` by screening; registered as ``prob.solve(method="screen")``.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or solver object, optional
        Solver of the reduced problem. When omitted, the built-in engine to a relative gap of 1e-10
        where it takes the problem (`cvxscreen.solve`'s choice), Clarabel elsewhere; CVXPY's choice
        when omitted but for its options. ``"builtin"`` for the built-in one to `tol`, without any
        solver of CVXPY.
    *further
        As in ``prob.solve(solver, warm_start, verbose, ...)``.
    mode : {"certified", "safe"}
        Whether terms may be fixed by prediction (and certified afterwards) or by proof only.
    tol : float
        Relative duality gap on the full problem.
    verbose : bool
        Say what was recognised and kept, and let the solver talk.
    always : bool
        Screen even where the problem's size says that it saves nothing, as ``mode="safe"`` and
        ``solver="builtin"`` do. Without it such a problem is solved plainly at once.
    **options
        Passed to the solver untouched; the built-in one takes `time_limit` and `max_iter`, and its
        answer then has status ``"user_limit"`` where it is not certified.

    Returns
    -------
    float
        The optimal value, as from ``prob.solve()``.

    Raises
    ------
    cvxpy.error.SolverError
        As from ``prob.solve()``.
    cvxpy.error.DPPError
        With ``enforce_dpp=True``, as from ``prob.solve()``.
    UnknownName, InvalidInput
        For a mode or a tolerance that does not exist.
    """
    given = dict(zip(POSITIONAL, further, strict=False))
    verbose = bool(given.pop("verbose", verbose))
    request = Request(solver, mode, tol, verbose, {**given, **options}, always)
    request.check()
    began = perf_counter()
    found = _recognised(problem, request)
    if isinstance(found, str):
        return plain(problem, request, found, DEFAULT if found == NO_SIDE else None)
    spent = perf_counter() - began
    request.check_options(problem)
    # Where another solve follows an answer without certificate, its warning is not the last word.
    with nullcontext() if request.chooses_accuracy else ignore_warnings():
        if isinstance(found, CompositeProblem):
            cvxpy_solver = request.cvxpy_solver()
            outcome = screened_composite(
                found, cvxpy_solver, request.mode, request.tol, spent
            )
            if isinstance(outcome, Report):
                request.say(outcome)
        else:
            request.say(found.problem)
            outcome = _screened(found, request, spent)
    if isinstance(outcome, Report):
        if problem.status == cp.OPTIMAL or request.chooses_accuracy:
            return problem.value
        reason = f"the answer is not certified: its relative gap is {outcome.relative_gap:.3g}"
        return plain_after_failure(problem, request, reason, Answer.of(problem))
    return plain_after_failure(problem, request, outcome)


@dataclass(frozen=True)
class Request:
    """The arguments of one solve.

    Attributes
    ----------
    solver : str, solver object or None
    mode : {"certified", "safe"}
    tol : float
    verbose : bool
    options : dict
        Everything else, for the inner solver.
    always : bool
        Whether the size of a problem is no reason to solve it plainly.
    """

    solver: Any = None
    mode: str = "certified"
    tol: float = 1e-6
    verbose: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    always: bool = False

    @property
    def insists(self) -> bool:
        """Whether screening was asked for whatever it saves."""
        return self.always or self.builtin or self.mode != "certified"

    @property
    def builtin(self) -> bool:
        """Whether the built-in solver was asked for."""
        return isinstance(self.solver, str) and self.solver.upper() == BUILTIN

    @property
    def chooses_accuracy(self) -> bool:
        """Whether the options bound accuracy or effort, so that no second solve is due."""
        return any(part in name.lower() for name in self.options for part in ACCURACY)

    @property
    def leaves_choice(self) -> bool:
        """Whether neither the solver nor its options nor a mode of solving have been chosen."""
        return self.solver is None and set(self.options) <= GENERAL and self.mode == "certified"

    def check(self) -> None:
        """Refuse what cannot be meant, before any work.

        Raises
        ------
        cvxpy.error.SolverError
            For the name of a solver that is not installed, or what is no solver at all.
        UnknownName, InvalidInput
            For `mode` and `tol`.
        """
        choice("mode", self.mode, MODES)
        tolerance(self.tol)
        named = isinstance(self.solver, str) and not self.builtin
        strange = not (self.solver is None or named or self.builtin or hasattr(self.solver, "name"))
        if any(self.options.get(name) for name in ELSEWHERE):
            return  # CVXPY has more to say about that solve, and says it first
        if strange or (named and self.solver.upper() not in installed()):
            cp.Problem(cp.Minimize(cp.Variable())).solve(solver=self.solver)

    def check_options(self, problem: Any) -> None:
        """Say what CVXPY and the solver that was named say of the options to a plain solve.

        Raises
        ------
        cvxpy.error.DPPError
            For ``enforce_dpp=True`` where the parameters do not follow the DPP rules.
        TypeError, ValueError, ...
            For options that the solver does not know.
        """
        if isinstance(self.solver, str) and not self.builtin:
            check_options(self.solver, self.options)
        if not (self.options.get("ignore_dpp") or _follows_dpp(problem)):
            if self.options.get("enforce_dpp"):
                raise cp.error.DPPError(DPP_ERROR_MSG)
            warn(DPP_ERROR_MSG)

    def cvxpy_solver(self) -> CvxpySolver:
        """The solver of CVXPY that was asked for."""
        options = dict(options_for(self.solver, self.options), verbose=self.verbose)
        return CvxpySolver(self.solver, options)

    def say(self, text: object) -> None:
        """Print when verbose, as CVXPY does."""
        if self.verbose:
            print(text)


def _follows_dpp(problem: Any) -> bool:
    """Whether CVXPY takes `problem` for one that follows the DPP rules, with squares in a QP."""
    if not problem.parameters() or problem.is_dpp():
        return True
    looser = "quad_form_dpp" in signature(cp.Problem.is_dpp).parameters  # since CVXPY 1.9
    return looser and bool(problem.is_dpp(quad_form_dpp="qp"))


def require_cvxpy_problem(problem: Any) -> None:
    """Refuse what is no problem of CVXPY.

    Raises
    ------
    InvalidInput
    """
    needed = "a cvxpy.Problem is needed"
    if hasattr(problem, "to_cvxpy"):
        needed += " (`problem.to_cvxpy()` gives one)"
    one_of("problem", problem, cp.Problem, needed)


def _recognised(problem: Any, request: Request) -> Recognition | CompositeProblem | str:
    """The recognition, or why there is none."""
    other = [name for name in ELSEWHERE if request.options.get(name)]
    if other:
        return f"the argument `{other[0]}` asks for a solve of another kind"
    if not request.insists:
        useless = why_not_worthwhile(problem)
        if useless:
            return useless
    known = known_refusal(problem, request.builtin)
    if known is not None:
        return known
    found: Recognition | CompositeProblem | str
    try:
        recognition = cached_recognition(problem, recognise)
    except NotScreenable as refusal:
        found = _second_try(problem, request, refusal)
    except Exception as defect:  # a problem that CVXPY can solve must not fail on its way here
        found = f"the recogniser stopped with {type(defect).__name__}: {defect}"
    else:
        found = recognition
    if isinstance(found, str):
        store_refusal(problem, request.builtin, found)
    elif request.builtin and isinstance(found, Recognition) and not builtin_takes(found.problem):
        return NO_SIDE
    return found


def _second_try(
    problem: Any, request: Request, refusal: NotScreenable
) -> Recognition | CompositeProblem | str:
    """`problem` as losses beside another convex part, or in general; else why not."""
    try:
        found = recognise_refused(problem, refusal)
    except NotScreenable as reason:
        return str(reason)
    if isinstance(found, CompositeProblem):
        return str(refusal) if request.builtin else found
    return cached_recognition(problem, lambda _: found)


def plain(problem: Any, request: Request, reason: str, solver: Any = None) -> Any:
    """Solve `problem` by CVXPY alone, and say why; `solver` where the user asked for none."""
    request.say(f"cvxscreen: solved plainly by CVXPY, because {reason}")
    if not (request.builtin or request.solver is None):
        solver = request.solver
    talk = {"verbose": True} if request.verbose else {}
    value = problem.solve(solver=solver, **talk, **request.options)
    stats = problem.solver_stats
    if stats is not None:
        report = Report(False, reason, request.mode, stats.solver_name)
        stats.extra_stats = with_report(report, stats.extra_stats)
    return value


def plain_after_failure(
    problem: Any, request: Request, reason: str, screened: Answer | None = None
) -> Any:
    """Solve `problem` plainly after a screened solve without a certificate; keep the better answer.

    Where the user names no solver, Clarabel comes first: it copes with scales at which the solver
    that CVXPY would choose for a quadratic program stops at its iteration limit.

    Parameters
    ----------
    screened : Answer, optional
        What the screened solve found, where that is worth comparing.
    """
    named = not (request.builtin or request.solver is None)
    first = chosen_solver(None, request.options)
    answers = [] if screened is None else [screened]
    if screened is not None:  # CVXPY compiles some atoms by the values that variables have
        for variable in problem.variables():
            variable.save_value(None)
    failures: list[cp.error.SolverError] = []
    for solver in [None] if named or first is None else [first, None]:
        try:
            value = plain(problem, request, reason, solver)
        except cp.error.SolverError as error:
            failures.append(error)
            continue
        if problem.status == cp.OPTIMAL:
            return value
        answers.append(Answer.of(problem))
        if problem.status in cp.settings.INF_OR_UNB and problem.constraints:
            break  # without constraints that word of a solver is a numerical failure
    if not answers:
        raise failures[-1]
    best = min(answers, key=Answer.rank)
    if best is screened or best.solution is not problem.solution:
        best.write(problem)
    return problem.value


def run(recognition: Recognition, request: Request) -> tuple[Solution, CvxpySolver | None]:
    """A recognised problem solved, and the solver of CVXPY that took part.

    Where the user names no solver, the built-in engine solves it as `cvxscreen.solve` does; a
    solver of CVXPY comes in where the engine does not take the problem or certifies no answer.
    """
    problem, request_of = recognition.problem, request.options.get
    own = request.leaves_choice and builtin_takes(problem)
    # The compiled path is at its end before it could have made use of a start.
    cold = own and compiled_path(in_units(problem)[0], "auto") and ready()
    start: Start | None = None
    if request_of("warm_start", True) and not cold:
        # The values that other solvers have left in the variables are theirs to go on from.
        start = last_start(recognition) if own else warm_start(recognition)
    with np.errstate(over="ignore", invalid="ignore"):  # of an unbounded problem's iterates
        if request.builtin:
            limits = Limits(*(request_of(name) for name in LIMITS))
            return solve_screened(
                problem, builtin_solver(problem, limits), mode=request.mode, tol=request.tol,
                start=start,
            ), None
        if own:
            found = engine_solution(problem, request, start)
            proof = found.certificate
            if not proof.ok and proof.relative_gap <= request.tol:
                proof = certify(problem, found.x, found.theta, found.multipliers, tol=request.tol)
                found = replace(found, status="optimal", certificate=proof)
            if proof.ok:
                return found, None
            if found.status == TIME:
                raise TooSlow(
                    f"screening took {found.seconds:.2g} s, about as long as a plain solve is "
                    "likely to take (`always=True` goes on)"
                )
            if np.isfinite(found.x).all():
                start = Start(found.x, found.theta)
        cvxpy_solver = request.cvxpy_solver()
        start = metric_start(problem) if start is None else start
        return solve_screened(
            problem, cvxpy_solver, mode=request.mode, tol=request.tol, start=start
        ), cvxpy_solver


class TooSlow(Exception):
    """What a solve of the reduced problem costs exceeds what it can save."""


NEARLY = 10.0
"""From a gap so many times the one aimed at on, as much again as was spent may be spent on it:
the last digits can lie below rounding."""


def engine_solution(problem: Problem, request: Request, start: Start | None) -> Solution:
    """The built-in engine's answer, within the time that a plain solve would take.

    The compiled path is at its end before it could be interrupted.
    """
    aim = min(request.tol, fine_gap(problem))
    if request.insists or compiled_path(in_units(problem)[0], "auto"):
        return solve_problem(problem, tol=aim, start=start)
    began, limits = perf_counter(), Limits(most_seconds(problem))

    def last_digits(entry: Round) -> None:
        if entry.relative_gap <= NEARLY * aim:
            limits.within(perf_counter() - began)

    return solve_problem(problem, tol=aim, start=start, limits=limits, on_round=last_digits)


def warm_start(recognition: Recognition) -> Start | None:
    """The problem's last solution (at other parameters, say) as a start; None without one."""
    known = last_start(recognition)
    if known is not None:
        return known
    standard, problem = recognition.standard, recognition.problem
    values = standard.canonical.current()
    if values is None:
        return None
    x = standard.join(values)[recognition.core]
    if not np.isfinite(x).all():
        return None
    return Start(x, problem.losses.slope(problem.design.forward(x)))


def _screened(recognition: Recognition, request: Request, recognised: float) -> Report | str:
    """Solve and write back; or why the answer of CVXPY itself is needed."""
    try:
        solution, cvxpy_solver = run(recognition, request)
    except TooSlow as reason:
        return str(reason)
    except Exception as error:  # whatever it is, CVXPY may solve the problem all the same
        return f"the screening loop stopped with {type(error).__name__}: {error}"
    limited = solution.status in (TIME, ITERATIONS)
    if solution.status not in ("optimal", "inaccurate") and not limited:
        return f"the reduced problem was not solved to optimality ({solution.status})"
    last = None if cvxpy_solver is None else cvxpy_solver.problem_solved
    if cvxpy_solver is not None and last is None and cvxpy_solver.failure:
        return f"the solver failed on the reduced problem: {cvxpy_solver.failure}"
    proof = solution.certificate
    room = USELESS * (1.0 + float(np.linalg.norm(solution.x)))
    outside = max(proof.violation, proof.primal_residual)
    useful = proof.relative_gap <= USELESS and outside <= room
    if not (proof.ok or limited or useful):
        return f"the answer could not be certified: {proof.reason}"
    store_solution(recognition.standard.canonical.original, LastSolution.of(solution))
    began = perf_counter()
    restored = restore(recognition, solution.x, solution.theta, solution.multipliers)
    stats = None if last is None else last.solver_stats
    name = BUILTIN.lower() if stats is None else stats.solver_name
    report = make_report(solution, request, name, recognised, perf_counter() - began)
    if cvxpy_solver is not None:
        # Its rounds start from a first point's, which is no reference of an earlier solve.
        report = replace(report, before={})
    write_back(
        recognition,
        restored,
        status=status_of(proof.ok, None if last is None else last.status, limited),
        value=solution.value,
        solver=report.solver,
        statistics=statistics(
            report,
            solve_time=report.times["solve"] if cvxpy_solver is None else cvxpy_solver.solve_time,
            setup_time=0.0 if cvxpy_solver is None else cvxpy_solver.setup_time,
            iterations=len(solution.rounds) if stats is None else stats.num_iters,
            inner=None if stats is None else stats.extra_stats,
            compilation_time=0.0 if cvxpy_solver is None else cvxpy_solver.compilation_time,
        ),
    )
    request.say(report)
    return report


def make_report(
    solution: Solution, request: Request, name: str, recognised: float, restored: float
) -> Report:
    """What the loop did, as a record; the last two arguments are seconds."""
    last, features = solution.rounds[-1], 0
    if solution.problem.penalty is not None:
        # A solver that finds the features that are not 0 by itself has been given all of them.
        left_out = 0 if last.features is None else solution.problem.d - last.features
        features = max(left_out, int(np.count_nonzero(solution.screening.dropped)))
    inner = sum(entry.solve_seconds for entry in solution.rounds)
    return Report(
        recognised=True,
        mode=request.mode,
        solver=name,
        terms=solution.problem.n,
        kept=last.kept,
        fixed=Counts(lambda: _fixed(solution)),
        dropped=features,
        gap=solution.certificate.gap,
        relative_gap=solution.certificate.relative_gap,
        rounds=len(solution.rounds),
        before=solution.before,  # worked out when somebody looks
        times={
            "recognise": recognised,
            "screen": max(solution.seconds - inner, 0.0),
            "solve": inner,
            "restore": restored,
        },
    )


def _fixed(solution: Solution) -> dict[str, int]:
    """Terms by what is proven of them, and those that were only predicted."""
    screening = solution.screening
    proven = {"zero": screening.zero, "linear": screening.linear, "quadratic": screening.quadratic}
    counts = {name: int(mask.sum()) for name, mask in proven.items()}
    return {**counts, "predicted": solution.rounds[-1].predicted}
