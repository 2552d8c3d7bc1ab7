"""Records of the CVXPY door: what was recognised, what a solve did, and how two solves compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.tables import fields, table
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem


def loss_names(losses: Losses) -> NDArray[np.str_]:
    """The everyday name of each term, shape (n,)."""
    one_sided = (losses.lo == 0) | (losses.hi == 0)
    steep = np.isinf(losses.lo) | np.isinf(losses.hi)
    curved, flat = losses.q > 0, losses.e > 0
    equal = -losses.lo == losses.hi
    out = np.full(len(losses), "pinball", dtype="<U28")
    out[equal] = "absolute"
    out[flat] = "epsilon-insensitive"
    out[curved & flat] = "smoothed epsilon-insensitive"
    out[curved & ~flat] = "Huber"
    out[curved & steep] = "squared"
    out[curved & steep & flat] = "squared epsilon-insensitive"
    out[one_sided] = "hinge"
    out[one_sided & curved] = "smoothed hinge"
    out[one_sided & steep] = "squared hinge"
    return out


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


@dataclass(frozen=True)
class Explanation:
    """What a CVXPY problem was recognised as, or why it was not.

    Attributes
    ----------
    recognised : bool
    reasons : tuple of str
        Why not; empty when recognised.
    terms : mapping of str to int
        Loss terms by kind.
    coordinates : int
        Core variables.
    unpenalised : int
        Those among them without a square in the objective (an intercept).
    shrunk : int
        Those under an L1 norm, which can be dropped.
    side : tuple of (str, int)
        Side constraints: cone and size.
    beside : tuple of str
        Convex parts of the objective that are no sum of losses.
    seconds : float
        CPU time of the recognition.
    """

    recognised: bool
    reasons: tuple[str, ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)
    coordinates: int = 0
    unpenalised: int = 0
    shrunk: int = 0
    side: tuple[tuple[str, int], ...] = ()
    beside: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, problem: Problem, seconds: float) -> Explanation:
        """Describe a recognised problem."""
        names, counts = np.unique(loss_names(problem.losses), return_counts=True)
        return cls(
            True,
            (),
            {str(name): int(count) for name, count in zip(names, counts, strict=True)},
            problem.d,
            int(problem.quadratic.free.sum()),
            int((problem.penalty.kappa > 0).sum()) if isinstance(problem.penalty, L1) else 0,
            () if problem.side is None else problem.side.dims,
            seconds=seconds,
        )

    def __str__(self) -> str:
        if not self.recognised:
            listed = [("reason", reason) for reason in self.reasons]
            return fields([("recognised", False), *listed], title="Explanation")
        return fields(
            [
                ("recognised", True),
                *((f"{name} terms", count) for name, count in self.terms.items()),
                ("coordinates", self.coordinates),
                ("unpenalised", self.unpenalised),
                *([("under an L1 norm", self.shrunk)] if self.shrunk else []),
                *((f"side constraint ({kind})", size) for kind, size in self.side),
                *(("beside", words) for words in self.beside),
                ("seconds (CPU)", self.seconds),
            ],
            title="Explanation",
        )


@dataclass(frozen=True)
class Report:
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
        Terms that are proven to lie on a piece ("zero", "linear", "quadratic") by the answer, and
        those that were "predicted" in the last round, hence covered by the certificate alone. More
        may be proven in the end than was left out on the way, and squares need not be left out.
    dropped : int
        Features fixed at zero.
    beside : tuple of str
        Convex parts of the objective that are no sum of losses.
    gap, relative_gap : float
        Of the certificate on the full problem.
    rounds : int
    before : mapping of str to float
        Share of the terms on each kind of piece that the last solution proved before this solve
        (known for the built-in solver).
    times : mapping of str to float
        Wall seconds of "recognise", "screen", "solve" (inner solver) and "restore".
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
    times: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.recognised:
            lines = [("screened", False), ("reason", self.reason), ("solver", self.solver)]
            return fields(lines, title="cvxscreen: solved plainly by CVXPY")
        return fields(
            [
                ("terms", self.terms),
                ("kept", self.kept),
                *((f"fixed, {name}", count) for name, count in self.fixed.items()),
                ("features dropped", self.dropped),
                *(("beside", words) for words in self.beside),
                ("relative gap", self.relative_gap),
                ("gap", self.gap),
                ("rounds", self.rounds),
                ("mode", self.mode),
                ("solver", self.solver),
                *((f"seconds, {name}", seconds) for name, seconds in self.times.items()),
            ],
            title="cvxscreen",
        )


@dataclass(frozen=True)
class Comparison:
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

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [
            ("status", *self.status, ""),
            ("objective", *(f"{v:.10g}" for v in self.value), _small(*self.value)),
            ("CPU seconds", *(f"{v:.3g}" for v in self.seconds), ""),
            ("loss terms", str(self.terms), str(self.kept), ""),
            ("variables", "", "", f"{self.primal:.2g}"),
            *((f"dual of {name}", "", "", f"{gap:.2g}") for name, gap in self.duals.items()),
        ]
        word = "agree" if self.agrees else "DO NOT AGREE"
        title = f"plain and screened solve {word} ({self.report.solver})"
        return table(("", "plain", "screened", "difference"), rows, title=title)


def _small(first: float, second: float) -> str:
    return f"{abs(first - second) / max(1.0, abs(first)):.2g}"


@dataclass(frozen=True)
class Comparisons:
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
        title = f"full and reduced problem {word} (differences from the first line)"
        return table(header, self.lines, title=title)
