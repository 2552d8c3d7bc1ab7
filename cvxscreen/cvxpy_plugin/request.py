"""``prob.solve(method="screen")`` from outside: what was asked for, and what CVXPY does at once.

What a problem's size decides is decided here, before the rest of the package is imported: a problem
that is left to CVXPY costs no more in the first call of a process either. So are names of solvers
and their options, which are wrong whatever the problem is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from threading import Lock
from typing import Any

import cvxpy as cp
from cvxpy.reductions.solvers.solving_chain import DPP_ERROR_MSG
from cvxpy.utilities.warn import warn

from cvxscreen._support.extensions import supplied
from cvxscreen._support.validation import check_request, one_of
from cvxscreen.cvxpy_plugin.answer import Report, with_report
from cvxscreen.cvxpy_plugin.worthwhile import why_not_worthwhile

TIGHT: dict[str, dict[str, Any]] = {
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000, "polishing": True},
}
"""Options for solvers whose defaults are too loose for a certificate, where the user gave none."""

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
    useless = request.why_plain(problem)
    if useless:
        return plain(problem, request, useless)
    return supplied("cvxpy.screened")(problem, request)


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

    def check(self) -> None:
        """Refuse what cannot be meant, before any work.

        Raises
        ------
        cvxpy.error.SolverError
            For the name of a solver that is not installed, or what is no solver at all.
        UnknownName, InvalidInput
            For `mode` and `tol`.
        """
        check_request(self.mode, self.tol)
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

    def why_plain(self, problem: Any) -> str:
        """Why CVXPY is to solve `problem` at once; an empty text where screening may save time."""
        other = [name for name in ELSEWHERE if self.options.get(name)]
        if other:
            return f"the argument `{other[0]}` asks for a solve of another kind"
        return "" if self.insists else why_not_worthwhile(problem)

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
