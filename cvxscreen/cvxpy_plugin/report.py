"""``Report``: what ``prob.solve(method="screen")`` did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cvxscreen._support.tables import Record, fields
from cvxscreen.errors import InvalidInput


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
