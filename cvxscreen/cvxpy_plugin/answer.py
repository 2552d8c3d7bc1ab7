"""What a solve leaves on the user's problem: its values by CVXPY's own means, and a ``Report``.

All canonical columns and multipliers are computed first; CVXPY's reductions then take them back,
and `Problem.unpack_results` sets value, status, variables, dual values and statistics. Nothing of
the user's problem changes before that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.problems.problem import SolverStats
from cvxpy.reductions.solution import Solution
from numpy.typing import NDArray

from cvxscreen._support.tables import Record, fields
from cvxscreen.errors import InvalidInput

if TYPE_CHECKING:  # a problem that is left to CVXPY gets its report without the rest of the package
    from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
    from cvxscreen.cvxpy_plugin.recognise.standard import Canonical, Cone, Standard


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
            ],
            title="cvxscreen",
        )


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


# -- values, status, dual values -------------------------------------------------------------------


Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Named:
    """What `unpack_results` asks of a solver: its name."""

    title: str

    def name(self) -> str:
        """The name for ``solver_stats``."""
        return self.title


@dataclass(frozen=True, eq=False)
class _WayBack:
    """What `unpack_results` asks of a chain: `invert` and a solver."""

    canonical: Canonical
    solver: _Named

    def invert(self, solution: Solution, inverse_data: Any) -> Solution:
        """The canonical solution as one of the user's problem."""
        return self.canonical.invert(solution)


def dual_values(standard: Standard, multipliers: Array) -> dict[int, Any]:
    """Multipliers of all rows as CVXPY's dual values, by identifier of the canonical constraint."""
    grouped: dict[int, list[Cone]] = {}
    for cone in standard.cones:
        grouped.setdefault(cone.constraint, []).append(cone)
    out: dict[int, Any] = {}
    for position, cones in grouped.items():
        constraint = standard.canonical.problem.constraints[position]
        part = np.concatenate([multipliers[cone.rows] for cone in cones])
        kind = cones[0].kind
        if kind == "soc":
            out[constraint.id] = part
            continue
        shape = constraint.shape
        value = np.reshape(-part if kind == "zero" else part, shape, order="F")
        if kind == "psd":
            value = 0.5 * (value + value.T)
        out[constraint.id] = float(value) if shape == () else value
    for group, slack, rows in standard.slacks():  # arguments carry minus the slopes of their losses
        out |= slack.multipliers(-group.sign * multipliers[rows], group.weight)
    return out


@dataclass(frozen=True, eq=False)
class Restored:
    """A solution of the whole canonical problem.

    Attributes
    ----------
    z : array, shape (N,)
        All columns.
    multipliers : array, shape (m,)
        Of all rows.
    """

    z: Array
    multipliers: Array


def restore(
    recognition: Recognition, x: Array, theta: Array, side: Array, shares: Array | None = None
) -> Restored:
    """From the core coordinates to everything.

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
    side : array, shape (k,)
        Multipliers of the side constraints.
    shares : array, shape (p,), optional
        Slopes of the pieces of maxima.
    """
    z = recognition.columns(x)
    standard = recognition.standard
    if not (standard.cones or any(True for _ in standard.slacks())):  # nothing has a dual value
        return Restored(z, np.zeros(recognition.standard.rows.shape[0]))
    return Restored(z, recognition.multipliers(z, theta, side, shares=shares))


def status_of(ok: bool, last: str | None = None, limited: bool = False) -> str:
    """CVXPY's status of an answer: whether its certificate holds, how the solver's last call ended.

    A solver that a limit of the user's stopped, built in or not, is reported as CVXPY reports it.
    """
    if ok:
        return str(cp.OPTIMAL)
    return str(cp.USER_LIMIT if limited or last == cp.USER_LIMIT else cp.OPTIMAL_INACCURATE)


def write_back(
    recognition: Recognition,
    restored: Restored,
    *,
    status: str,
    solver: str,
    statistics: dict[str, Any],
    value: float | None = None,
) -> None:
    """Set value, status, variables, dual values and statistics of the user's problem.

    Parameters
    ----------
    restored : Restored
    status : str
        One of CVXPY's.
    solver : str
        Name for ``solver_stats``.
    statistics : dict
        By CVXPY's attribute names (``cvxpy.settings``).
    value : float, optional
        The canonical objective, where it is known.
    """
    standard = recognition.standard
    solution = Solution(
        status,
        recognition.value(restored.z) if value is None else value,
        standard.split(restored.z),
        dual_values(standard, restored.multipliers),
        dict(statistics),
    )
    original = standard.canonical.original
    if status == cp.OPTIMAL and value is not None:
        _unpack(original, standard.canonical.invert(solution), solver)
        return
    way = _WayBack(standard.canonical, _Named(solver))
    original.unpack_results(solution, way, None)


def _unpack(problem: Any, solution: Solution, solver: str) -> None:
    """What ``problem.unpack_results`` does with an optimal solution, whose value is known.

    CVXPY evaluates the objective's expression over all terms for its value.
    """
    for variable in problem.variables():
        variable.save_value(solution.primal_vars[variable.id])
    for constraint in problem.constraints:
        if constraint.id in solution.dual_vars:
            constraint.save_dual_value(solution.dual_vars[constraint.id])
    problem._value = solution.opt_val
    problem._status = solution.status
    problem._solution = solution
    problem._solver_stats = SolverStats.from_dict(solution.attr, solver)


def statistics(
    report: Report,
    *,
    solve_time: float,
    setup_time: float,
    iterations: Any,
    inner: Any,
    compilation_time: float = 0.0,
) -> dict[str, Any]:
    """Attributes for ``solver_stats``; the report goes beside what the inner solver says.

    ``extra_stats["compilation_time"]`` are the seconds that the recognition and CVXPY's compilation
    of the reduced problems took; ``prob.compilation_time`` is of CVXPY's last own compilation.
    """
    extra = with_report(report, inner)
    extra["compilation_time"] = report.times.get("recognise", 0.0) + compilation_time
    settings = cp.settings
    return {
        settings.SOLVE_TIME: solve_time,
        settings.SETUP_TIME: setup_time,
        settings.NUM_ITERS: iterations,
        settings.EXTRA_STATS: extra,
    }


USELESS = 1e-2
"""An answer with a larger certified gap (relative) is not handed out, but solved again plainly."""

RANKS = {cp.OPTIMAL: 0, cp.OPTIMAL_INACCURATE: 1, cp.USER_LIMIT: 2}
"""Which of two answers is better; any other status of CVXPY's comes behind these."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer that a problem of the user's holds, to compare it with another one.

    Attributes
    ----------
    solution : cvxpy Solution
    solver : str
        Name of the solver.
    objective : float
        Value to be minimised.
    extra : dict
        The extra statistics, with the report.
    """

    solution: Solution
    solver: str
    objective: float
    extra: Any

    @classmethod
    def of(cls, problem: Any) -> Answer:
        """The answer that `problem` holds."""
        sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
        value = float("inf") if problem.value is None else sign * float(problem.value)
        stats = problem.solver_stats
        return cls(problem.solution, stats.solver_name, value, stats.extra_stats)

    def rank(self) -> tuple[int, float]:
        """A key that sorts better answers first: by status, then by objective."""
        return RANKS.get(self.solution.status, 3), self.objective

    def write(self, problem: Any) -> None:
        """Make it the answer of `problem`."""
        self.solution.attr[cp.settings.EXTRA_STATS] = self.extra
        problem.unpack_results(self.solution, _Unchanged(_Named(self.solver)), None)


@dataclass(frozen=True, eq=False)
class _Unchanged:
    """A chain for a solution that is one of the user's problem already."""

    solver: _Named

    def invert(self, solution: Solution, inverse_data: Any) -> Solution:
        """The solution as it is."""
        return solution
