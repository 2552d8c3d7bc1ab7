"""``prob.solve(method="screen")`` from outside: what is asked, what CVXPY does at once, the report.

What a problem's size decides (`size`) is decided before the rest of the package is imported: a
problem that is left to CVXPY costs no more in the first call of a process either. So are names of
solvers and their options, which are wrong whatever the problem is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import signature
from threading import Lock
from time import thread_time
from typing import Any

import cvxpy as cp
from cvxpy.reductions.solvers.solving_chain import DPP_ERROR_MSG
from cvxpy.utilities.warn import warn

from cvxscreen._support.extensions import supplied
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import MODES, check_request, flag, one_of, plain_name
from cvxscreen.cvxpy_plugin.history import (
    ONCE,
    RENT,
    as_it_was,
    history,
    keep_answered,
    on_trial,
    short_squares_pay,
    size_of_squares,
    why_wait,
)
from cvxscreen.cvxpy_plugin.size import CHAINED, OF_A_KIND, SMALL, measured
from cvxscreen.errors import InvalidInput, NotScreenedWarning

TIGHT: dict[str, dict[str, Any]] = {
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000, "rho_x": 1e-3},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 20_000, "polishing": True},
}
"""Options for solvers whose defaults are too loose for a certificate, where the user gave none.

OSQP gets twice the iterations that CVXPY gives it: what it has not solved to 1e-9 by then (CVaR of
2,000 and 8,000 scenarios) took ten times as many for 38 and 49 CPU seconds instead of 6 and 7.
SCS's systems are all but singular at its default ``rho_x`` of 1e-6 where a coordinate, such as an
intercept, is not squared: 75 hinges that are left of 10,000 ended at residuals of 1e-8 to 1e-7
after all 200,000 iterations, and with its former default of 1e-3 at 1e-11 after 1,475.
"""

ACCURACY = ("eps", "tol", "max_iter", "feas", "abstol", "reltol", "time_limit", "polish")
"""Parts of option names that say the user has chosen an accuracy."""

FINE = 1e-8
"""Clarabel's default tolerances: who asks for as much, or more, wants an answer that is certified,
if need be by a second solve."""

GENERAL = frozenset(
    ("verbose", "warm_start", "ignore_dpp", "enforce_dpp", "canon_backend", "bibtex")
)
"""Options of ``prob.solve`` that are CVXPY's own, whatever the solver."""

DEFAULT = "CLARABEL"
"""The solver when the user names none; it comes with CVXPY."""


@cache
def installed() -> tuple[str, ...]:
    """CVXPY's solvers that are installed; it looks for the missing ones anew in every call."""
    return tuple(cp.installed_solvers())


def solver_name(solver: Any) -> str:
    """The name of `solver`: a text, None for the default, or a solver object of CVXPY."""
    if solver is None:
        return DEFAULT
    return solver.upper() if isinstance(solver, str) else str(solver.name())


def chosen_solver(solver: Any, options: dict[str, Any]) -> Any:
    """The solver to name to CVXPY: its own choice where the user gives options but no solver."""
    return DEFAULT if solver is None and set(options) <= GENERAL else solver


_TAKEN: set[str] = set()
"""Solvers with options that they are known to take."""


def check_options(solver: str, options: dict[str, Any]) -> None:
    """Let `solver` refuse options that it does not know, on a problem of one variable.

    The built-in engine may be at the end before a solver of CVXPY is called; a misspelt option is
    an error all the same, and the solver's own.

    Raises
    ------
    TypeError, ValueError, ...
        What the solver raises, but for cvxpy.error.SolverError.
    """
    own = {name: value for name, value in options.items() if name not in GENERAL}
    key = f"{solver.upper()} {sorted(own.items())!r}"
    if not own or key in _TAKEN:
        return
    x = cp.Variable()
    with ignore_warnings(), suppress(cp.error.SolverError):
        cp.Problem(cp.Minimize(x), [x >= 1.0]).solve(solver=solver, **own)
    _TAKEN.add(key)


def options_for(solver: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The options to pass on: those given, and tight tolerances where none are among them."""
    chosen = any(part in name.lower() for name in given for part in ACCURACY)
    tight = {} if chosen else TIGHT.get(solver_name(solver), {})
    return {**tight, **given}


_LOCK = Lock()

_INSIDE: list[Any] = []
"""One entry a thread inside; the first is what restores the filters."""


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore warnings inside the block; other threads are silent too while it lasts."""
    with _LOCK:
        _INSIDE.append(None if _INSIDE else _start_ignoring())
    try:
        yield
    finally:
        with _LOCK:
            restore = _INSIDE[0]
            _INSIDE.pop()
            if not _INSIDE:
                restore.__exit__(None, None, None)


def _start_ignoring() -> Any:
    saved = warnings.catch_warnings()
    saved.__enter__()
    warnings.simplefilter("ignore")
    return saved


BUILTIN = "BUILTIN"
"""``solver="builtin"`` (in any case) asks for the built-in solver: no CVXPY solve at all."""

LIMITS = ("time_limit", "max_iter")
"""Options that the built-in solver takes, as `cvxscreen.solve` does."""

STEP_ASIDE = True
"""Whether a size may decide at all. ``always=True`` says no for one solve; tests of what follows
the decision set this to False (``tests/conftest.py``)."""

ELSEWHERE = ("gp", "qcp", "requires_grad", "nlp")
"""Arguments of ``prob.solve`` that ask for something else than a convex solve."""


POSITIONAL = (
    "warm_start", "verbose", "bibtex", "gp", "qcp", "requires_grad", "enforce_dpp", "ignore_dpp",
    "canon_backend", "nlp",
)
"""Names of CVXPY's positional arguments of ``prob.solve`` after the solver."""


def positional(further: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """CVXPY's positional arguments after the solver, by name.

    Raises
    ------
    TypeError
        As Python says it of CVXPY's own function.
    """
    if len(further) > len(POSITIONAL):
        most, given = len(POSITIONAL) + 2, len(further) + 2
        raise TypeError(f"solve() takes at most {most} positional arguments but {given} were given")
    found = dict(zip(POSITIONAL, further, strict=False))
    for name in found.keys() & options.keys():
        raise TypeError(f"solve() got multiple values for argument {name!r}")
    return found


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
        For a mode or a tolerance that does not exist, an `always` that is no truth value, and
        options that the built-in solver does not take.
    TypeError
        For more positional arguments than CVXPY has, or one that is named as well.
    """
    given = positional(further, options)
    verbose = bool(given.pop("verbose", verbose))
    request = Request(solver, mode, tol, verbose, {**given, **options}, flag("always", always))
    request.check()
    useless = request.why_plain(problem)
    short = useless == SHORT
    if short:
        if solved_with_triangles(problem, request):
            return problem.value
        useless = request.why_not_screened(problem)
    if useless == CHAINED and request.leaves_choice and not history(problem).why_not():
        useless = supplied("cvxpy.chained")(problem, request)
        if not useless:
            return problem.value
    if not useless and solved_by_first_steps(problem, request):
        return problem.value
    if not useless:
        trial, began = on_trial(problem), thread_time()
        value = supplied("cvxpy.screened")(problem, request)
        if trial:
            report = _report(problem)
            done = report is not None and report.recognised
            history(problem).count_trial(thread_time() - began, done)
        add_estimate(problem, request)
        return value
    limited = within_patience(problem, request, useless)
    try:
        silent = nullcontext() if limited is request else ignore_warnings()  # another may follow
        with RENT.paying() if useless.endswith(ONCE) else nullcontext(), silent:
            value = plain(problem, limited, useless, triangles=not short)
    except cp.error.SolverError as failure:
        clarabel_s = f"'{DEFAULT}'" in str(failure)  # which is what would be tried next
        if not request.leaves_choice or problem.is_mixed_integer() or clarabel_s:
            raise
        return supplied("cvxpy.another_solver")(problem, request, useless, failure)
    given_up = problem.status == cp.USER_LIMIT
    if limited is not request:
        request.check_options(problem)
        given_up |= problem.status == cp.OPTIMAL_INACCURATE
    if request.leaves_choice and given_up:
        # OSQP stops so on hinges and absolute values with constraints from 2,000 terms on.
        first = history(problem).solving
        value = supplied("cvxpy.another_solver")(problem, request, useless)
        history(problem).solving += first
        return value
    if useless.endswith(OF_A_KIND) and not solved_shorter(problem):
        warn_once(useless, CALLS_BETWEEN - 1)
    return value


FIRST_STEPS, FEWEST_STEPS = 700, 200
"""Steps of OSQP that tell problems of largest values (Crammer and Singer's losses, 2,000 to 20,000
terms x 10 to 40 in 3 to 6 classes) apart: labels that nothing explains take 50 to 175, the others
250 to 5,050. The first where they are cheap: of small problems 700 take as long as screening."""

STEPS, OF_STEP = 0.3, 5e-9
"""Seconds that more steps than the fewest may take, and those of a step for each entry of the data
(2,000 x 10 in 3 classes to 20,000 x 15: 4.5 to 6 ns; 700 steps of 20,000 x 15 in 3 classes take
3.4 s, screening 1.3)."""

MOST_STEPS = 10_000
"""Those that CVXPY gives OSQP."""

PATIENCE, FEWEST_OF_SMALL = 1.0, 1000
"""Seconds of OSQP's steps, by `OF_STEP`, that a small problem is left to it for; steps at least:
where they are not enough it goes to its limit of 10,000 (squared hinges and Huber's loss beside an
L1 norm or bounds, 1,500 to 6,000 terms: 2 to 10 s in 5 of 12 random problems, the others 40 to 250
ms), and Clarabel follows in 0.1 to 0.3. Not less: what OSQP has solved it goes on from at other
parameters (500 to 1,000 terms: 80 to 900 ms, then 4 to 30; a tenth of a second had Clarabel take
100 to 270 each time)."""


def within_patience(problem: Any, request: Request, useless: str) -> Request:
    """`request`, with a limit for OSQP's steps where that is CVXPY's choice for a small problem.

    Or as it was for the last answer, where CVXPY is to go on from that.
    """
    if useless == AS_IT_WAS:
        return going_on(problem, request) or request
    return with_fewer_steps(problem, request) if useless.startswith(SMALL) else request


def with_fewer_steps(problem: Any, request: Request) -> Request:
    """`request` with that limit; unchanged where OSQP is not the choice, or has time enough."""
    asked = request.leaves_choice and not request.options
    size = measured(problem)
    if not (asked and size.quadratic and "OSQP" in installed() and problem.is_qp()):
        return request
    few = by_osqp(request, size.filled, PATIENCE, (FEWEST_OF_SMALL, MOST_STEPS))
    return request if few.options["max_iter"] == MOST_STEPS else few


def going_on(problem: Any, request: Request) -> Request | None:
    """`request` as the last answer was asked for, where CVXPY goes on from that; else None."""
    known = history(problem).answered
    if known is None or request.options or not (request.leaves_choice and as_it_was(problem)):
        return None
    for asked in (request, with_fewer_steps(problem, request)):
        if (asked.solver, asked.options) == (known.solver, known.options):
            return asked
    return None


def by_osqp(request: Request, filled: float, seconds: float, steps: tuple[int, int]) -> Request:
    """`request` to OSQP, for about so many `seconds` of steps, at least and at most so many."""
    fewest, most = steps
    affordable = seconds / (OF_STEP * max(filled, 1.0))
    limit = int(min(most, max(fewest, affordable)))
    return replace(request, solver="OSQP", options={**request.options, "max_iter": limit})


def solved_by_first_steps(problem: Any, request: Request) -> bool:
    """Solve a problem of largest values plainly if OSQP needs a few steps only; else say no.

    Where no weights are much better than none, every term is undecided and nothing can be left
    out; but OSQP is at its end at once. Nothing in the expressions tells of either.

    Raises
    ------
    cvxpy.error.DPPError
        With ``enforce_dpp=True``, as from ``prob.solve()``.
    """
    size = measured(problem)
    fitting = size.takes_osqp_only(request.named)
    if request.insists or not fitting or "OSQP" not in installed():
        return False
    if history(problem).steps_in_vain or not set(request.options) <= GENERAL:
        return False
    few = by_osqp(request, size.filled, STEPS, (FEWEST_STEPS, FIRST_STEPS))
    with ignore_warnings(), suppress(cp.error.SolverError):
        plain(problem, few, f"the first {few.options['max_iter']} steps of OSQP are enough for it")
        if problem.status == cp.OPTIMAL:
            request.check_options(problem)
            return True
    history(problem).steps_in_vain = True
    return False


SHORT = (
    "a triangle stands for the data of its squares, and with that CVXPY is quicker than screening "
    "(`always=True` screens all the same)"
)
"""Why problems `of_short_squares` are left to CVXPY."""

AS_IT_WAS = (
    "nothing has changed since CVXPY solved it, and its solver goes on from that answer "
    "(`always=True` screens all the same)"
)
"""Why a problem is left to CVXPY once more."""

ALREADY_SAID: list[str] = []
"""The reason that this process was warned about; tests that are not about the warning fill it."""

CALLS_BETWEEN = 6
"""From `warn_once` up to the line that called ``prob.solve``: `screened_solve`, the two functions
``solve`` of `request` and `registration`, and CVXPY's."""


def solved_shorter(problem: Any) -> bool:
    """Whether the last solve was a plain one with long residuals as short ones."""
    report = _report(problem)
    return report is not None and bool(report.beside)


def warn_once(reason: str, calls: int = CALLS_BETWEEN) -> None:
    """Say for the first problem of a process that is not recognised why it was solved plainly."""
    if not ALREADY_SAID:
        ALREADY_SAID.append(reason)
        warnings.warn(
            f"cvxscreen did not recognise this problem, and CVXPY solved it plainly: {reason}. "
            "`print(cvxscreen.explain(prob))` says more, docs/cvxpy.md what is screened. This is "
            "said once; the report (`cvxscreen.Report.of(prob)`) and `verbose=True` say it always.",
            NotScreenedWarning,
            stacklevel=calls,
        )


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
        return self.always or self.builtin or self.mode != "certified" or not STEP_ASIDE

    @property
    def builtin(self) -> bool:
        """Whether the built-in solver was asked for."""
        return isinstance(self.solver, str) and self.solver.upper() == BUILTIN

    @property
    def chooses_accuracy(self) -> bool:
        """Whether the options bound accuracy or effort, so that no second solve is due."""
        def fine(name: str, value: object) -> bool:  # a tolerance, not a limit of time
            return isinstance(value, float) and 0.0 < value <= FINE and "time" not in name.lower()

        return any(
            part in name.lower() and not fine(name, value)
            for name, value in self.options.items() for part in ACCURACY
        )

    @property
    def leaves_choice(self) -> bool:
        """Whether neither the solver nor its options nor a mode of solving have been chosen."""
        return self.solver is None and set(self.options) <= GENERAL and self.mode == "certified"

    def __post_init__(self) -> None:
        if plain_name(self.mode) in MODES:
            object.__setattr__(self, "mode", plain_name(self.mode))

    def check(self) -> None:
        """Refuse what cannot be meant, before any work.

        Raises
        ------
        cvxpy.error.SolverError
            For the name of a solver that is not installed, or what is no solver at all.
        UnknownName, InvalidInput
            For `mode` and `tol`, and what the built-in solver does not take.
        """
        check_request(self.mode, self.tol)
        if self.builtin:
            self.check_builtin()
        named = isinstance(self.solver, str) and not self.builtin
        strange = not (self.solver is None or named or self.builtin or hasattr(self.solver, "name"))
        if any(self.options.get(name) for name in ELSEWHERE):
            return  # CVXPY has more to say about that solve, and says it first
        if strange or (named and self.solver.upper() not in installed()):
            cp.Problem(cp.Minimize(cp.Variable())).solve(solver=self.solver)

    def check_builtin(self) -> None:
        """Refuse options that the built-in solver does not take.

        Raises
        ------
        InvalidInput
        """
        unknown = self.options.keys() - GENERAL - {*LIMITS, *ELSEWHERE}
        if unknown:
            raise InvalidInput(
                f"`{min(unknown)}` is no option of the built-in solver, which takes "
                f"{' and '.join(LIMITS)}; name another solver (`solver='{DEFAULT}'`) for its own."
            )

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

    def why_plain(self, problem: Any) -> str:
        """Why CVXPY is to solve `problem` at once; an empty text where screening may save time."""
        other = [name for name in ELSEWHERE if self.options.get(name)]
        if other:
            return f"the argument `{other[0]}` asks for a solve of another kind"
        if self.insists:
            return ""
        return SHORT if of_short_squares(problem) else self.why_not_screened(problem)

    def why_not_screened(self, problem: Any) -> str:
        """The same without a look at whether a triangle stands for the data."""
        name = self.named
        known = history(problem)
        useless = measured(problem).why_not(name, known.solving) or why_wait(problem, name)
        if useless.startswith(SMALL) and on_trial(problem):
            useless = ""
        useless = useless or known.why_not()
        return AS_IT_WAS if not useless and going_on(problem, self) else useless

    @property
    def named(self) -> str:
        """The name of the solver that was asked for, or an empty text."""
        return "" if self.solver is None else solver_name(self.solver)

    @property
    def solver_options(self) -> dict[str, Any]:
        """The options for the solver of CVXPY that was asked for."""
        return dict(options_for(self.solver, self.options), verbose=self.verbose)

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


def plain(
    problem: Any, request: Request, reason: str, solver: Any = None, *, triangles: bool = True
) -> Any:
    """Solve `problem` by CVXPY alone, and say why; `solver` where the user asked for none.

    With `triangles` for its data where these pay.
    """
    request.say(f"cvxscreen: solved plainly by CVXPY, because {reason}")
    if not (request.builtin or request.solver is None):
        solver = request.solver
    beside: tuple[str, ...] = ()
    began = thread_time()
    try:
        convex = not any(map(request.options.get, ELSEWHERE))
        if triangles and convex and short_squares_pay(problem):
            beside = _solve_short(problem, request, solver)
        if not beside:
            _solve_as_asked(problem, request, solver)
    finally:
        spent = thread_time() - began
        history(problem).count_plain(spent)
    _report_plain(problem, request, reason, beside, spent)
    return problem.value


def solved_with_triangles(problem: Any, request: Request) -> bool:
    """Solve a problem `of_short_squares` by CVXPY; False where its solver is not sure of it.

    By Clarabel where the choice is left: it is as quick as OSQP here, and closer by some digits.
    """
    began = thread_time()
    beside = _solve_short(problem, request, DEFAULT if request.leaves_choice else request.solver)
    if beside:
        spent = thread_time() - began
        history(problem).count_plain(spent)
        request.say(f"cvxscreen: solved plainly by CVXPY, because {SHORT}")
        _report_plain(problem, request, SHORT, beside, spent)
    return bool(beside)


def _solve_short(problem: Any, request: Request, solver: Any) -> tuple[str, ...]:
    """Solve `problem` with triangles for its data, and say of which; nothing where that fails."""
    short = supplied("cvxpy.short_squares")(problem)
    if short is None:
        return ()
    with suppress(cp.error.SolverError):  # the user's own problem raises it again, or not
        with ignore_warnings():
            _solve_as_asked(short.problem, request, solver)
        sure = short.problem.status not in (cp.OPTIMAL_INACCURATE, cp.USER_LIMIT)
        if sure and supplied("cvxpy.short_answer")(problem, short):
            return tuple(one.text for one in short.shortened)
    return ()


def _report_plain(
    problem: Any, request: Request, reason: str, beside: tuple[str, ...], spent: float
) -> None:
    """Write the report of a plain solve that has taken `spent` CPU seconds."""
    stats = problem.solver_stats
    if stats is not None:
        history(problem).solving = min(spent, stats.solve_time or 0.0)
        by = "" if beside else stats.solver_name
        keep_answered(problem, by, request.solver, request.options)
        report = Report(False, reason, request.mode, stats.solver_name, beside=beside)
        stats.extra_stats = with_report(report, stats.extra_stats)


def of_short_squares(problem: Any) -> bool:
    """Whether `problem` is squares of few coordinates, whose data a triangle is made for."""
    size = size_of_squares(problem)
    if not (size.only_short_squares() and short_squares_pay(problem)):
        return False
    found = supplied("cvxpy.short_squares")(problem)
    # As they are written, a part may be out of its reach.
    shorter = 0 if found is None else sum(one.residuals.size for one in found.shortened)
    return 2.0 * shorter * size.coordinates >= size.squares


def _solve_as_asked(problem: Any, request: Request, solver: Any) -> None:
    """CVXPY's own solve, with the options of `request`."""
    talk = {"verbose": True} if request.verbose else {}
    try:
        problem.solve(solver=solver, **talk, **request.options)
    except TypeError as error:
        if not _compiling_by_values(error):
            raise
        with _without_values(problem):
            problem.solve(solver=solver, **talk, **request.options)


def _compiling_by_values(error: TypeError) -> bool:
    """Whether CVXPY has failed to compile `sum_largest` of a fractional number of known values.

    An answer from here may be the first that the variables have.
    """
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_name == "sum_largest_canon"


@contextmanager
def _without_values(problem: Any) -> Iterator[None]:
    """The variables of `problem` have no values inside, and those they had after an exception."""
    held = [(variable, variable.value) for variable in problem.variables()]
    for variable, _ in held:
        variable.save_value(None)
    try:
        yield
    except BaseException:
        for variable, value in held:
            variable.save_value(value)
        raise


def add_estimate(problem: Any, request: Request) -> None:
    """Put into the report of a screened solve what a plain one is estimated to take."""
    report = _report(problem)
    if report is not None and report.recognised:
        about = measured(problem).estimate(request.named)
        problem.solver_stats.extra_stats["cvxscreen"] = replace(report, plain_estimate=about)


# -- the report -----------------------------------------------------------


class Report(Record, Immutable):
    """What ``prob.solve(method="screen")`` did; in ``solver_stats.extra_stats["cvxscreen"]``.

    Attributes
    ----------
    recognised : bool
        Whether the problem was solved by screening; if not, CVXPY solved it plainly.
    reason : str
        Why it was solved plainly; or what shows that nothing satisfies its constraints.
    mode, solver : str
    terms, kept : int
        Loss terms of the problem, and those that the last reduced problem still had.
    fixed : mapping of str to int
        Terms that are proven *at the end* to lie on a piece ("zero", "linear", "quadratic"), by the
        answer itself, and those that were "predicted" in the last round, hence covered by the
        certificate alone. They are no complement of `kept`, which counts what the solver saw: more
        may be proven in the end than was left out on the way, and squares need not be left out.
    dropped : int
        Features fixed at zero.
    beside : tuple of str
        Convex parts of the objective that are no sum of losses, budgets of losses, and long
        residuals that were written as short ones (after a plain solve as well).
    gap, relative_gap : float
        Of the certificate on the full problem.
    rounds : int
    before : mapping of str to float
        Share of the terms on each kind of piece that the last solution proved before this solve
        (known for the built-in solver).
    named : str
        What a solver of CVXPY did: its status, its iterations and seconds, in how many calls.
    times : mapping of str to float
        Wall seconds of "recognise", "screen", "solve" (inner solver) and "restore".
    plain_estimate : float
        CPU seconds that a plain solve by the solver that was asked for (by CVXPY's choice where
        none was) is *estimated* to take, from sizes alone; nothing is measured. Where it was
        compared (1,000 to 10,000 terms x 5 to 100, seven losses and constraints), Clarabel took 0.7
        to 3.4 times as long, OSQP 0.8 to 4.4. NaN elsewhere: for sparse data, other solvers,
        squares beside an L1 norm. `verify` measures.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> value = prob.solve(method="screen")
    >>> report = cvxscreen.Report.of(prob)
    >>> report.recognised, report.terms, bool(report.relative_gap <= 1e-6)
    (True, 200, True)
    >>> 0.0 <= report.saved <= 1.0 and report.plain_estimate > 0.0
    True
    """

    recognised: bool
    reason: str = ""
    mode: str = "certified"
    solver: str = ""
    terms: int = 0
    kept: int = 0
    fixed: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    beside: tuple[str, ...] = ()
    gap: float = float("nan")
    relative_gap: float = float("nan")
    rounds: int = 0
    before: Mapping[str, float] = field(default_factory=dict)
    named: str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    plain_estimate: float = float("nan")

    @classmethod
    def of(cls, problem: Any) -> Report:
        """The report of a problem's last solve: ``solver_stats.extra_stats["cvxscreen"]``, typed.

        Parameters
        ----------
        problem : cvxpy.Problem

        Raises
        ------
        InvalidInput
            If `problem` was not solved by ``prob.solve(method="screen")``.
        """
        found = _report(problem)
        if found is None:
            raise InvalidInput(
                "`problem` has no report; solve it with prob.solve(method='screen') first."
            )
        return found

    @property
    def saved(self) -> float:
        """Share of the loss terms that the solver did not see; 0 after a plain solve.

        `plain_estimate` says in seconds what a plain solve may have taken, `verify` measures it.
        """
        return 1.0 - self.kept / self.terms if self.recognised and self.terms else 0.0

    def _brief(self) -> str:
        if not self.recognised:
            return f"solved plainly by CVXPY ({self.reason})"
        if self.reason:
            return self.reason
        return (
            f"{self.terms:,} terms, {self.kept:,} kept for {self.solver}, certified relative gap "
            f"{self.relative_gap:.1e}"
        )

    def __str__(self) -> str:
        if not self.recognised:
            lines = [("screened", False), ("reason", self.reason), ("solver", self.solver)]
            lines += [("shorter", words) for words in self.beside]
            return fields(lines, title="cvxscreen: solved plainly by CVXPY")
        proven = dict(self.fixed)
        guessed = proven.pop("predicted", 0)
        gaps = [("relative gap", self.relative_gap), ("gap", self.gap)]
        return fields(
            [
                ("terms", self.terms),
                ("seen by the solver (kept)", self.kept),
                ("saved: terms not seen", f"{self.saved:.1%}"),
                *([("left out on a prediction", guessed)] if guessed else []),
                *((f"proven at the end: {name}", count) for name, count in proven.items()),
                ("features dropped", self.dropped),
                *(("beside", words) for words in self.beside),
                *([("reason", self.reason)] if self.reason else gaps),
                ("rounds", self.rounds),
                ("mode", self.mode),
                ("solver", self.solver),
                *([(f"{self.solver} did", self.named)] if self.named else []),
                *((f"seconds, {name}", seconds) for name, seconds in self.times.items()),
                *self._estimated(),
            ],
            title="cvxscreen",
        )

    def _estimated(self) -> list[tuple[str, str]]:
        if not self.plain_estimate > 0.0:
            return []
        about = f"about {self.plain_estimate:.1g} (a guess from sizes; `verify` measures)"
        return [("seconds, plain: ESTIMATE", about)]


def _report(problem: Any) -> Report | None:
    """The report of a problem's last solve; None where it was not solved by screening."""
    stats = getattr(getattr(problem, "solver_stats", None), "extra_stats", None)
    found = stats.get("cvxscreen") if isinstance(stats, dict) else None
    return found if isinstance(found, Report) else None


class ExtraStats(dict[str, Any]):
    """A solver's extra statistics with others beside them.

    What the solver gave is ``["solver"]`` where it is no dictionary, and its attributes are found
    as before: ``prob.solver_stats.extra_stats.info`` of OSQP, say.

    Parameters
    ----------
    inner : object
        What the solver gave.
    """

    def __init__(self, inner: Any = None) -> None:
        super().__init__(inner if isinstance(inner, dict) else {})
        if inner is not None and not isinstance(inner, dict):
            self["solver"] = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "solver" not in self:
            raise AttributeError(name)
        return getattr(self["solver"], name)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return ExtraStats, (dict(self),)


def with_report(report: Report, inner: Any) -> ExtraStats:
    """A solver's own extra statistics, whatever they are, with `report` beside them."""
    extra = ExtraStats(inner)
    extra["cvxscreen"] = report
    return extra
