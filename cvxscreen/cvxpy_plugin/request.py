"""``prob.solve(method="screen")`` from outside: what is asked, what CVXPY does at once, the report.

What a problem's size decides is decided here, before the rest of the package is imported: a problem
that is left to CVXPY costs no more in the first call of a process either. So are names of solvers
and their options, which are wrong whatever the problem is.

Nothing can be saved, and CVXPY solves the problem at once, for

* a problem with about as many coordinates as terms (total variation, trend filters, isotonic fits,
  control over a horizon): each row of it has a coordinate of its own, and no row can go;
* a small problem, which CVXPY has compiled and solved before anything could be recognised;
* integer variables, and losses that cannot be screened (exponential cones).

What decides is read from the expression tree alone (`measure`): in how many rows that may be left
out does a variable occur, per entry of it? ``X @ w`` with n rows and d columns: ``n / d``. A slack
``xi_i`` is in two or three rows, ``x[t]`` of a time series in two to six. No number is computed and
nothing is canonicalised; of the many pieces that a Python loop has written a few stand for all.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from inspect import signature
from threading import Lock
from typing import Any

import cvxpy as cp
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.reductions.solvers.solving_chain import DPP_ERROR_MSG
from cvxpy.utilities.warn import warn

from cvxscreen._support.extensions import supplied
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import MODES, check_request, one_of, plain_name
from cvxscreen.errors import InvalidInput, NotScreenedWarning

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
    if not useless and solved_by_first_steps(problem, request):
        return problem.value
    if not useless:
        value = supplied("cvxpy.screened")(problem, request)
        add_estimate(problem, request)
        return value
    try:
        value = plain(problem, request, useless)
    except cp.error.SolverError as failure:
        if not request.leaves_choice:
            raise
        return supplied("cvxpy.another_solver")(problem, request, useless, failure)
    if request.leaves_choice and problem.status == cp.USER_LIMIT:
        # OSQP stops so on hinges and absolute values with constraints from 2,000 terms on.
        return supplied("cvxpy.another_solver")(problem, request, useless)
    if useless.endswith(OF_A_KIND):
        warn_once(useless, CALLS_BETWEEN - 1)
    return value


FIRST_STEPS = 700
"""Steps of OSQP that tell problems of largest values (Crammer and Singer's losses, 1,000 to 10,000
terms x 10 to 20 in 3 to 6 classes) apart: labels that nothing explains take 50 to 175 and small
weights of the losses up to 675, where screening takes 1.1 to 10 times as long; all others 5,550 and
more, of which these are about half of what screening takes."""

_SLOW: weakref.WeakSet[Any] = weakref.WeakSet()
"""Problems that the first steps have not solved; they are not asked for again."""


def solved_by_first_steps(problem: Any, request: Request) -> bool:
    """Solve a problem of largest values plainly if OSQP needs a few steps only; else say no.

    Where no weights are much better than none, every term is undecided and nothing can be left
    out; but OSQP is at its end at once. Nothing in the expressions tells of either.

    Raises
    ------
    cvxpy.error.DPPError
        With ``enforce_dpp=True``, as from ``prob.solve()``.
    """
    named = "" if request.solver is None else solver_name(request.solver)
    fitting = STEP_ASIDE and not request.insists and measured(problem).takes_osqp_only(named)
    if not fitting or "OSQP" not in installed() or problem in _SLOW:
        return False
    if not set(request.options) <= GENERAL:
        return False
    few = replace(request, solver="OSQP", options={**request.options, "max_iter": FIRST_STEPS})
    with ignore_warnings(), suppress(cp.error.SolverError):
        plain(problem, few, f"the first {FIRST_STEPS} steps of OSQP are enough for it")
        if problem.status == cp.OPTIMAL:
            request.check_options(problem)
            return True
    _SLOW.add(problem)
    return False


ALREADY_SAID: list[str] = []
"""The reason that this process was warned about; tests that are not about the warning fill it."""

CALLS_BETWEEN = 6
"""From `warn_once` up to the line that called ``prob.solve``: `screened_solve`, the two functions
``solve`` of `request` and `registration`, and CVXPY's."""


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
        named = "" if self.solver is None else solver_name(self.solver)
        return "" if self.insists else why_not_worthwhile(problem, named)

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


# -- the report -----------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Report(Record):
    """What ``prob.solve(method="screen")`` did; in ``solver_stats.extra_stats["cvxscreen"]``.

    Attributes
    ----------
    recognised : bool
        Whether the problem was solved by screening; if not, CVXPY solved it plainly.
    reason : str
        Why it was solved plainly.
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
        Convex parts of the objective that are no sum of losses, and budgets of losses.
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
        stats = getattr(getattr(problem, "solver_stats", None), "extra_stats", None)
        found = stats.get("cvxscreen") if isinstance(stats, dict) else None
        if not isinstance(found, cls):
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
        return (
            f"{self.terms:,} terms, {self.kept:,} kept for {self.solver}, certified relative gap "
            f"{self.relative_gap:.1e}"
        )

    def __str__(self) -> str:
        if not self.recognised:
            lines = [("screened", False), ("reason", self.reason), ("solver", self.solver)]
            return fields(lines, title="cvxscreen: solved plainly by CVXPY")
        proven = dict(self.fixed)
        guessed = proven.pop("predicted", 0)
        return fields(
            [
                ("terms", self.terms),
                ("seen by the solver (kept)", self.kept),
                ("saved: terms not seen", f"{self.saved:.1%}"),
                *([("left out on a prediction", guessed)] if guessed else []),
                *((f"proven at the end: {name}", count) for name, count in proven.items()),
                ("features dropped", self.dropped),
                *(("beside", words) for words in self.beside),
                ("relative gap", self.relative_gap),
                ("gap", self.gap),
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


class Counts(Mapping[str, int]):
    """Numbers that are computed when somebody looks at them.

    Parameters
    ----------
    count : callable
        Returns them; called once.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    @cached_property
    def _found(self) -> Mapping[str, int]:
        return self._count()

    def __getitem__(self, key: str) -> int:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type, tuple[dict[str, int]]]:
        return dict, (dict(self),)


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


# -- whether it can pay -----------------------------------------------------------


EXPONENTIAL = frozenset(
    (
        "exp", "log", "log1p", "entr", "kl_div", "rel_entr", "logistic", "log_sum_exp",
        "log_det", "xexp",
    )
)
"""Atoms that need the exponential cone, named in a refusal."""

OF_A_KIND = "is of a kind that cannot be screened"
"""How a refusal ends that is no matter of size."""

CANNOT_PAY = "leaving some out cannot pay"
"""How the recogniser's refusals end that are, like those of this module, a matter of size."""


STEP_ASIDE = True
"""Whether a size may decide at all. ``always=True`` says no for one solve; tests of what follows
the decision set this to False (``tests/conftest.py``)."""

ROWS_PER_ENTRY = 10.0
"""A variable is a coordinate of a fit, not a slack or a moment of a time series, from this many
rows per entry on: slacks have up to 3, and control problems with bounds on everything up to 6
(``examples/benchmarks/never_worse.py``)."""

DENSE_ROWS, DENSE_SHARE, DENSE = 3.0, 0.3, 300_000
"""Fewer rows per entry will do where the data in front of it are dense, such a share of them, and
so many entries: absolute values, pinball and hinge losses and CVaR of 1,200 x 400 take 0.5 to 2.1
CPU seconds, plainly 0.9 to 5.3, of 2,400 x 400 0.6 to 1.8 for 6 to 14 (600 x 200 as long as plainly
for two of the four)."""

TERMS = 200
"""Fewer terms are not worth it where the objective squares the coordinates and nothing else is
asked of them: from here on the first and the second call are within the bar of a plain solve (300
terms x 10: 9 ms for 32, and 2 for 2.4; 100 terms: 10 for 8.5, and 1.2 for 1.8)."""

OTHERWISE = 5000
"""So many are worth it, however few coordinates there are, with constraints on the coordinates,
sums of largest terms, or no squares: those take the interior point method or a solver of CVXPY
(1,000 absolute values x 10: 36 ms for 33; 10,000: 137 for 265). Fewer are where a plain solve is
estimated to take more than one of the next two."""

ALONE, BESIDE = 0.04, 0.2
"""Seconds of a plain solve from which on losses without squares and without anything beside them
are worth it (1,000 to 3,000 absolute values or pinball losses x 5 to 100: 15 to 80 ms for 17 to
1,500), and other problems (constraints, L1 norms, `cvar`: 30 to 250 for 17 to 1,900; rows of a
linear program: 6,000 x 8 with ``norm_inf(w) <= 5`` 130 for 50, 6,000 x 40 100 for 280; hinges with
squares and a norm or a logistic part, 6,000 x 10: 100 to 200 for 100 to 180, 20,000 x 20 180 to 500
for 900 to 1,400)."""

UNSURE = 0.6
"""The same where there are inequalities and squares of something else than the coordinates, or
Huber's loss: OSQP takes 0.2 to 5 times what is estimated (3,000 x 10 and 3,000 x 40, estimated 0.5
and 0.8: absolute values and a variance on the simplex 1.1 and 3.2; squares of one side there 1.1
and 2.6; Huber's loss with bounds 0.3 and 1.0; CVaR and a variance 0.1 and 0.2; all of them screened
0.02 to 0.12)."""

PLAIN, OF_ROW, OF_SQUARE = 4e-3, 1e-5, 7e-8
"""Seconds that CVXPY and Clarabel take for any problem, for each term, and for each product of two
coordinates in a term (the same problems, 600 to 3,000 terms: 0.4 to 2 times what was measured)."""

OSQP_ROW, OSQP_ENTRY = 1.3e-4, 3e-6
"""Seconds of OSQP, which CVXPY chooses for a quadratic program, for each term and for each
coordinate in it (hinges and absolute values with squares and constraints, 600 to 3,000 terms x 5 to
60; mostly 0.2 to 1 times what was measured: from 1,600 terms on it often stops at its limit)."""

SMOOTH = 200_000
"""Entries of the data from which Huber's loss is taken where the objective squares nothing: in the
first call of a process 20,000 terms x 10 take 0.24 s, plainly 0.43, and with an L1 norm 0.66 and
0.97; half as many terms 0.24 for 0.16, and 0.68 for 0.42. With inequalities OSQP takes as long as
for kinks."""

PIECES = 60
"""Fewer pieces from a Python loop are not worth it; CVXPY compiles each of them in about 1 ms."""

WIDE, WIDE_OTHERWISE = 10_000, 200_000
"""Entries of the data from which a problem with few rows per entry is taken, too, where the
objective squares the coordinates: more columns than rows. The second where `OTHERWISE` holds. (CPU
seconds of hinge, quantile and Huber's loss: sparse 500 x 1,000 with 10 entries a row 0.01, plainly
0.07 to 0.16; dense 100 x 300 0.01 for 0.06 to 0.1; 60 x 400 0.01 to 0.03 for 0.02 to 0.12.)"""

SHRUNK, SHRUNK_ALONE, SHRUNK_AGAIN = 1_500_000, 700_000, 50_000
"""The same for squares of residuals beside an L1 norm (with other parts, 1,000 x 100: 0.18 s,
plainly 0.07; 20,000 x 100: 0.74, and 4.1). The second where nothing else stands in the problem
(20,000 x 30: 0.66, and 0.53; 6,000 x 100: 0.70, and 1.4), most of that for what is loaded once a
process; the third from then on (500 x 100, 100 x 500: 0.015 and 0.017, plainly 0.036 and 0.09)."""

OF_ENTRY, OF_PRODUCT, TIED = 5e-7, 1e-8, 10.0
"""Seconds that CVXPY takes for least squares: for each entry of the data and for each product with
a coordinate (OSQP, 5,000 x 20 to 20,000 x 50, 30,000 x 80 with a tenth filled: 0.5 to 2.2, in the
sparse case 7 times what was measured); and by how much longer OSQP takes where constraints tie
coordinates (``norm1(w) <= 1``, the simplex: 15 to 30 times)."""

ENTRIES, ROW_ENTRIES = 40.0, 8.0
"""Entries of the data per coordinate, or per row, that tell data from differences of neighbours (2
to 4 of both). Words of texts are in few rows each, but every row has dozens of them."""

ROWS = (cp.constraints.Inequality, cp.NonNeg, cp.NonPos, cp.constraints.Equality, cp.Zero)
"""Constraints whose rows may go. A coordinate that is in many equalities is there beside slacks (a
linear program's ``X @ w - y == u - v``): without them they would leave it no freedom."""

EQUATIONS = (cp.constraints.Equality, cp.Zero)
"""Those of them beside which OSQP is as quick as without."""

SAMPLE = 24
"""So many of the pieces that a Python loop has written stand for all of them."""

VISITS = 2000
"""No more expressions are looked at; one takes a microsecond or two, its compilation 50."""

KINKED = frozenset(
    (
        "abs", "maximum", "minimum", "huber", "norm1", "max", "min", "norm_inf", "sum_largest",
        "cvar", "MixedNorm", "dotsort",
    )
)
"""Atoms whose arguments are terms: on all but one piece of theirs, a term is known."""

NORMS = frozenset(("Pnorm", "PnormApprox"))
"""Atoms with one cone for each value: as many terms as values."""


SIMPLE = frozenset(("abs", "maximum", "minimum", "huber", "norm1"))
"""Those with one term for each of their values."""

SIGNS = ("nonneg", "nonpos", "pos", "neg", "PSD", "NSD", "bounds")
"""Attributes of a variable that constrain it."""

CONIC = NORMS | EXPONENTIAL | {"MixedNorm"}
"""Atoms that no solver of quadratic programs takes."""

SQUARES = frozenset(("quad_over_lin", "Power", "PowerApprox"))
FORM = "QuadForm"
"""Squares with a matrix, which is as large as the data where it is a kernel."""


@dataclass(frozen=True)
class Size:
    """What the tree says of a problem.

    Attributes
    ----------
    terms : float
        The most rows, among those that could be left out, in which one tall variable occurs.
    coordinates : int
        Entries of the variables that are tall, or wide.
    least : float
        Terms with which a problem of this kind is taken whatever else it has.
    slow : float
        Seconds of a plain solve from which on it is, too.
    quadratic : bool
        Whether CVXPY's own choice for the problem is a solver of quadratic programs.
    grouped : bool
        Whether terms are the largest of several values each: only OSQP takes longer for them than
        screening does (Crammer and Singer's losses, 3,000 x 5 in 3 classes: 0.09 s, OSQP 1.0,
        Clarabel 0.09; 3,000 x 10 in 6: 0.75, 4.1 and 0.47).
    pieces : float
        Terms and constraints that were written one by one, where the objective squares the
        coordinates.
    wide, shrunk : float
        Entries of the data in front of variables that are not tall, but meet many of them: those
        that the objective squares, and those under an L1 norm.
    broad, least_shrunk : float
        Entries in `wide` and in `shrunk` that a problem of this kind needs.
    filled : float
        Entries of the data in front of the tall variables.
    smooth : bool
        Whether Huber's loss is among the terms.
    folded : float
        Entries of the data in squares that have far more rows than coordinates.
    tied : bool
        Whether a constraint has several coordinates.
    reason : str
        Why the problem cannot be screened whatever its size, or empty.
    """

    terms: float = 0.0
    coordinates: int = 0
    least: float = TERMS
    slow: float = BESIDE
    quadratic: bool = False
    grouped: bool = False
    pieces: float = 0.0
    wide: float = 0.0
    broad: float = WIDE
    shrunk: float = 0.0
    least_shrunk: float = SHRUNK
    filled: float = 0.0
    smooth: bool = False
    folded: float = 0.0
    tied: bool = False
    reason: str = ""

    def seconds(self, solver: str = "") -> float:
        """About how long CVXPY takes with `solver`, or with the solver of its choice."""
        found = PLAIN + self.terms * (OF_ROW + OF_SQUARE * self.coordinates**2)
        slower = self.terms * (OSQP_ROW + OSQP_ENTRY * self.coordinates)
        return max(found, slower) if self._osqp(solver) else found

    def estimate(self, solver: str = "") -> float:
        """The same where it has been compared with what was measured; NaN elsewhere.

        Huber's loss is no work for OSQP (0.1 to 0.2 times `seconds`) and has no estimate there.
        """
        dense = self.filled >= 0.5 * self.terms * self.coordinates > 0.0
        tried = solver.upper() in ("", DEFAULT) or self._osqp(solver)
        easy = self.smooth and self._osqp(solver)
        return self.seconds(solver) if dense and tried and not easy else float("nan")

    def takes_osqp_only(self, solver: str = "") -> bool:
        """Whether the problem is taken only because OSQP may take long for it."""
        return self.grouped and self._osqp(solver) and self.pieces < PIECES

    def _of_squares(self, solver: str) -> float:
        """`seconds` of what `folded` counts."""
        found = self.folded * (OF_ENTRY + OF_PRODUCT * self.coordinates)
        return TIED * found if self.tied and self._osqp(solver) else found

    def _osqp(self, solver: str) -> bool:
        return solver.upper() == "OSQP" or (self.quadratic and not solver)

    def why_not(self, solver: str = "") -> str:
        """Why screening cannot save anything; an empty text where it may.

        Parameters
        ----------
        solver : str
            The one that was named, which would solve the problem plainly.
        """
        if self.reason:
            return self.reason
        if not self.coordinates:
            return (
                "it has about as many coordinates as terms, or too few data, so there is nothing "
                "to be saved (`always=True` screens all the same)"
            )
        slow = self.seconds(solver) >= self.slow and (not self.grouped or self._osqp(solver))
        enough = (
            self.terms >= self.least, slow,
            self.pieces >= PIECES, self.wide >= self.broad, self.shrunk >= self.least_shrunk,
            self._of_squares(solver) >= BESIDE,
        )
        if any(enough):
            return ""
        size = f"{self.terms:.0f} terms"
        if self.folded and not self.terms:
            size = f"{self.folded:.0f} entries of data in its squares"
        return (
            f"it is small ({size}), and compiled and solved before screening "
            "could save anything (`always=True` screens all the same)"
        )


_MEASURED: weakref.WeakKeyDictionary[Any, Size] = weakref.WeakKeyDictionary()
"""The size of each problem met; an expression tree never changes."""


def why_not_worthwhile(problem: Any, solver: str = "") -> str:
    """Why screening `problem` cannot save anything; an empty text where it may.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str
        The one that was named.
    """
    return measured(problem).why_not(solver) if STEP_ASIDE else ""


def measured(problem: Any) -> Size:
    """The size of a ``cvxpy.Problem``, read once."""
    known = _MEASURED.get(problem)
    if known is None:
        known = _MEASURED[problem] = measure(problem)
    return known


def add_estimate(problem: Any, request: Request) -> None:
    """Put into the report of a screened solve what a plain one is estimated to take."""
    extra: Any = getattr(problem.solver_stats, "extra_stats", None)
    report = extra.get("cvxscreen") if isinstance(extra, dict) else None
    if isinstance(report, Report) and report.recognised:
        named = "" if request.solver is None else solver_name(request.solver)
        about = measured(problem).estimate(named)
        extra["cvxscreen"] = replace(report, plain_estimate=about)


def measure(problem: Any) -> Size:
    """Read the size of a ``cvxpy.Problem`` from its expressions.

    Parameters
    ----------
    problem : cvxpy.Problem
    """
    variables = problem.variables()
    if any(v.attributes["integer"] or v.attributes["boolean"] for v in variables):
        return Size(reason="the problem has integer or boolean variables")
    walk = _Walk()
    walk.follow(problem.objective.expr, 0.0, 1.0, objective=True)
    constraints = problem.constraints
    chosen, weight = _some(constraints)
    for constraint in chosen:
        rows = 0.0
        if type(constraint) in ROWS:
            rows = float(constraint.size)
        elif type(constraint) is cp.SOC:
            rows = float(constraint.args[0].size)
        walk.conic |= type(constraint) not in ROWS
        for part in constraint.args:
            walk.follow(part, rows, weight)
        own = constraint.variables()
        walk.constrained.append({variable.id for variable in own})
        walk.tied |= constraint.size < sum(variable.size for variable in own)
        walk.limited |= type(constraint) not in EQUATIONS
    signed = [{v.id} for v in variables if any(v.attributes[name] for name in SIGNS)]
    walk.constrained += signed
    walk.limited |= bool(signed)
    walk.pieces = max(walk.pieces, float(len(constraints)))
    return walk.size({v.id: v for v in variables})


class _Walk:
    """Rows and entries of the data of each variable, summed over a tree."""

    def __init__(self) -> None:
        self.rows: dict[int, float] = {}
        self.entries: dict[int, float] = {}
        self.smooth: dict[int, float] = {}
        self.shrunk: set[int] = set()
        self.squared: set[int] = set()
        self.residuals: dict[int, float] = {}
        self.tied = self.limited = self.beside = False
        self.under_squares: set[int] = set()
        self.formed: set[int] = set()
        self.constrained: list[set[int]] = []
        self.kinds: set[str] = set()
        self.conic = False
        self.squares = False
        self.grouped = False
        self.pieces = 0.0
        self.kinked = 0.0
        self.foreign: set[str] = set()
        self.foreign_rows = 0.0
        self.left = VISITS

    def follow(self, expr: Any, rows: float, weight: float, *, objective: bool = False) -> None:
        """Count `expr`, an argument of something with so many `rows`, `weight` times."""
        # Beside each expression: the rows of the affine map that it is part of (0: none of them
        # can go), the entries of the data in front of it, how many expressions it stands for.
        stack: list[tuple[Any, float, float, float]] = [(expr, rows, 0.0, weight)]
        while stack and self.left > 0:
            self.left -= 1
            here, rows, data, weight = stack.pop()
            if not here.args:
                if isinstance(here, cp.Variable):
                    self._variable(here, rows, data, weight)
                continue
            if isinstance(here, AffAtom):
                parts, more = _some(here.args)
                if more > 1.0:
                    self.pieces = max(self.pieces, weight * len(here.args))
                data = max(data, _entries(here))
                stack += [(part, rows, data, weight * more) for part in parts]
                continue
            name = type(here).__name__
            if name in EXPONENTIAL:
                self.foreign.add(name)
                self.foreign_rows += weight * here.size
            if name in ("norm1", "abs"):
                self.shrunk |= _bare(here.args[0])
            if objective and name in SQUARES:
                inner = here.args[0]
                if type(inner).__name__ in NORMS:
                    self.under_squares.add(id(inner))
                    inner = inner.args[0]
                self.squared |= _bare(inner)
                for variable in inner.variables() if inner.size >= ROWS_PER_ENTRY else ():
                    rows = self.residuals.get(variable.id, 0.0) + weight * inner.size
                    self.residuals[variable.id] = rows
            if objective and name == FORM:
                self.formed |= _bare(here.args[0])
            square = name in SQUARES or name == FORM
            self.squares |= square
            self.conic |= name in CONIC or (square and not objective)
            self.beside |= name in CONIC and id(here) not in self.under_squares
            if name in KINKED:
                self.kinds.add(name)
            for part in here.args:
                below = 0.0
                if name in KINKED:  # a maximum along an axis is one term for each of its values
                    own = isinstance(here, Elementwise) or here.size > 1
                    below = float(here.size if own else part.size)
                    self.grouped |= own and name == "max"
                elif name in NORMS and here.size > 1:
                    below = float(here.size)
                self.kinked += weight * below
                stack.append((part, below, 0.0, weight))

    def _variable(self, variable: Any, rows: float, data: float, weight: float) -> None:
        key, size = variable.id, variable.size
        self.rows[key] = self.rows.get(key, 0.0) + weight * rows
        if rows:
            most = weight * min(max(data, rows), rows * size)
            self.entries[key] = self.entries.get(key, 0.0) + most
        else:
            self.smooth[key] = self.smooth.get(key, 0.0) + weight * data

    def size(self, variables: dict[int, Any]) -> Size:
        """What was counted."""
        tall: set[int] = set()
        broad: set[int] = set()
        terms, wide, shrunk, coordinates, filled = 0.0, 0.0, 0.0, 0, 0.0
        for key, rows in self.rows.items():
            entries, count = self.entries.get(key, 0.0), variables[key].size
            dense = rows >= DENSE_ROWS * count
            dense = dense and entries >= max(DENSE_SHARE * rows * count, DENSE)
            if rows >= ROWS_PER_ENTRY * count or dense:
                tall.add(key)
                terms, coordinates = max(terms, rows), coordinates + count
                filled += entries
                if key in self.shrunk:
                    shrunk += self.smooth.get(key, 0.0)
            elif key in self.shrunk and self.smooth.get(key, 0.0) >= ENTRIES * count:
                shrunk, coordinates = shrunk + self.smooth[key], coordinates + count
            elif key in self.squared and entries >= min(ENTRIES * count, ROW_ENTRIES * rows) > 0:
                broad.add(key)
                wide, coordinates = wide + entries, coordinates + count
        # As many entries as the matrix that they fold into.
        folded, count = 0.0, sum(variables[key].size for key in self.residuals)
        if min(self.residuals.values(), default=0.0) >= ROWS_PER_ENTRY * count:
            entries = sum(self.smooth.get(key, 0.0) for key in self.residuals)
            if entries >= count * max(ENTRIES, count):
                others = (variables[key].size for key in self.residuals.keys() - tall - broad)
                folded, coordinates = entries, coordinates + sum(others)
        if self.foreign and self.foreign_rows >= 0.5 * terms:
            named = ", ".join(sorted(self.foreign))
            return Size(reason=f"its loss ({named}) {OF_A_KIND}")
        squared = sum(variables[key].size for key in tall & (self.squared | self.formed))
        held = 2 * squared >= sum(variables[key].size for key in tall) > 0
        bound = any(ids <= tall | broad for ids in self.constrained)
        shrinks = bool((tall | broad) & self.shrunk)
        simple = self.kinds <= SIMPLE and not (bound or self.beside or self.foreign or shrinks)
        least, slow = float(OTHERWISE), BESIDE
        if held and simple:
            least = TERMS
        elif held and self.beside:
            least = float("inf")
        elif not held and "huber" in self.kinds and not self.limited:
            least, slow = 0.0 if filled >= SMOOTH else float("inf"), float("inf")
        elif not held and 2.0 * self.kinked < terms and tall == set(variables):
            least = float("inf")  # rows of a linear program, which no loss and no slack is in
        elif self.grouped:
            least = float("inf")
        elif simple and not (self.squares or self.conic):
            slow = ALONE
        cones = any(v.attributes["PSD"] or v.attributes["NSD"] for v in variables.values())
        other = self.limited and (self.squares or "huber" in self.kinds) and not held
        quadratic = (held or other or not terms) and not (self.conic or cones)
        slow = UNSURE if other and quadratic else slow
        pieces = self.pieces if held else 0.0
        enough = WIDE if simple else WIDE_OTHERWISE
        alone = self.shrunk >= set(variables) and self.kinds <= {"norm1", "abs"}
        least_shrunk = SHRUNK
        if alone and not self.constrained:
            least_shrunk = SHRUNK_AGAIN if _loops_loaded() else SHRUNK_ALONE
        return Size(
            terms, coordinates, least, slow, quadratic, self.grouped, pieces, wide, enough, shrunk,
            least_shrunk, filled, "huber" in self.kinds, folded, self.tied,
        )


def _loops_loaded() -> bool:
    """Whether this process has loaded the compiled loops that squares beside an L1 norm take."""
    solver = sys.modules.get("cvxscreen.solvers.prox_newton")
    return solver is not None and bool(solver.coordinate_descent.loaded)


def _entries(atom: Any) -> float:
    """Entries of the constant that an affine atom multiplies something by; 0 for other atoms."""
    name = type(atom).__name__
    if name == "MulExpression":
        for data, other in (atom.args, atom.args[::-1]):
            if data.is_constant():
                count = _stored(data)
                columns = other.shape[-1] if len(other.shape) == 2 and data is atom.args[0] else 1
                return count * columns
    return 0.0


def _stored(data: Any) -> float:
    """Entries of a constant that are stored."""
    value = data.value if isinstance(data, cp.Constant) else None
    return float(data.size if value is None else getattr(value, "nnz", data.size))


def _some(parts: Sequence[Any]) -> tuple[Sequence[Any], float]:
    """A few of many `parts`, evenly spread, and how many each of them stands for."""
    if len(parts) <= 2 * SAMPLE:
        return parts, 1.0
    step = len(parts) / SAMPLE
    return [parts[int(k * step)] for k in range(SAMPLE)], step


def _bare(expr: Any) -> set[int]:
    """The variable that `expr` is a scaled part of, as a set of its identifier; else empty."""
    while isinstance(expr, AffAtom):
        moving = [part for part in expr.args if not part.is_constant()]
        if len(moving) != 1 or type(expr).__name__ == "MulExpression":
            return set()
        expr = moving[0]
    return {expr.id} if isinstance(expr, cp.Variable) else set()
