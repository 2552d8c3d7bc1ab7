"""The loop over data in chunks: look, reduce, solve in memory, look again, certify.

The record of a solve over data in chunks.

A pilot on samples says where to look first and how wide. A look collapses every term whose margin
is farther than that from a kink onto its piece, and gathers the others into memory; their problem
is solved by the loop for data in memory, and the next look both judges the answer and prepares the
next round. Collapsing is a prediction: what it gets wrong shows as a gap, and the band is widened
by how far the margins moved. Only the certificate, a pass of its own, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate, relative_gap
from cvxscreen.certificates.streamed import certify_chunks
from cvxscreen.core import streamed as chunk_survey
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.core.streamed import Slopes
from cvxscreen.designs.chunks import Chunks, Listed
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import FOLD_LIMIT
from cvxscreen.solvers.interface import Start, SubproblemSolver
from cvxscreen.solvers.registry import builtin_solver
from cvxscreen.solvers.solution import Round, Solution
from cvxscreen.solvers.streamed.passes import Seen, look, lowest_along, proven
from cvxscreen.solvers.streamed.reduced import (
    Model,
    Pilot,
    pilot,
    regulariser_gap,
    sample_of,
    sizes,
)


@dataclass(frozen=True, eq=False)
class ChunkedSolution(Solution):
    """A solution that holds no array over the terms.

    `theta` becomes an array where one is asked for (`cvxscreen.core.streamed.Slopes`), and so does
    `alpha`: one pass over the data each.

    Attributes
    ----------
    passes : int
        Passes over the data of this call, the certificate's included.
    """

    passes: int = 0

    @cached_property
    def decided(self) -> tuple[int, int, int]:
        """Terms that this answer *proves* to be on a zero, a linear, a quadratic piece; one pass.

        By the gap ball. It bounds no intercept: with one, nothing is proven.
        """
        return proven(self.problem, self.x, self.certificate.gap)

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; `decided` counts what the answer proves.
        """
        raise InvalidInput(
            f"the {self.problem.n:,} terms of data in chunks are not listed one by one; `decided` "
            "counts what the answer proves."
        )

    def point(self) -> Point:
        """Not available without arrays over the terms.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput(
            "a solution over data in chunks is no reference for bounds; for data that fit in "
            "memory use reference_point(p, s.x, np.asarray(s.theta))."
        )

    def __str__(self) -> str:
        last = self.rounds[-1] if self.rounds else None
        kept = f", {last.kept:,} in the last reduced problem" if last else ""
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms in chunks{kept}; "
            f"{self.passes} passes, {len(self.rounds)} rounds, {self.seconds:.3g} s\n"
            f"{self.certificate}"
        )


Array = NDArray[np.float64]

MAX_ROUNDS = 20
AIM = 0.5
"""Share of the tolerance that the gap of a reduced problem may use up."""
LEAST = 400
"""Terms that are kept in any case."""


def is_chunked(problem: Problem) -> bool:
    """Whether the data of `problem` come in chunks."""
    return isinstance(problem.design, Chunks)


def solve_chunked(
    problem: Problem,
    solve: Callable[..., Any],
    inner: SubproblemSolver | None = None,
    mode: str = "certified",
    tol: float = 1e-6,
    start: Start | None = None,
    bounds: Sequence[Bound] | None = None,
    on_round: Callable[[Round], None] | None = None,
) -> ChunkedSolution:
    """Solve `problem`, whose design is `Chunks`.

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, `sparse_svm` or `sparse_svr` over data in chunks.
    solve : callable
        ``solve(problem, inner, tol=..., start=..., bounds=...)``: the loop for a problem in memory.
    inner : callable, optional
        What it solves with; None, or one that is interchangeable, for its own choice.
    mode : {"certified"}
    tol : float
    start : Start, optional
        Only its `x` counts.
    bounds : sequence of Bound, optional
        What it proves with.
    on_round : callable, optional

    Returns
    -------
    ChunkedSolution

    Raises
    ------
    InvalidInput
        For ``mode="safe"``, and where the terms that cannot be collapsed do not fit in memory.
    """
    if mode != "certified":
        raise InvalidInput(
            '`mode` is "safe", but over data in chunks terms are also left out on prediction and '
            'the answer is certified afterwards: use mode="certified", or load the data '
            "(np.array(X)) for a solve that leaves out nothing unproven."
        )
    began = perf_counter()
    limits = UNLIMITED if inner is None else inner.limits

    def again(reduced: Problem, **options: Any) -> Any:
        own = inner is None or inner.traits.interchangeable
        chosen = builtin_solver(reduced, limits) if own else inner
        return solve(reduced, chosen, bounds=bounds, **options)

    run = _Run(problem, again, tol, on_round, limits)
    run.begin(None if start is None else np.array(start.x, dtype=np.float64))
    with np.errstate(invalid="ignore"):  # a parabola has no end, and may not touch the intercept
        while not run.finished and not (run.rounds and limits.spent()):
            run.round()
    return run.solution(perf_counter() - began)


@dataclass
class _Run:
    """The state of one call."""

    problem: Problem
    solve: Callable[..., Any]
    tol: float
    on_round: Callable[[Round], None] | None
    limits: Limits
    x: Array = field(init=False)
    width: float = field(init=False)
    pilot: Pilot = field(init=False)
    seen: Seen = field(init=False)
    slopes: Slopes = field(init=False)
    gap: float = np.inf
    lowest: tuple[float, Array] = field(init=False)
    hold: float = 0.0
    proof: Certificate | None = None
    rounds: list[Round] = field(default_factory=list)
    passes: int = 0
    aim: float = AIM
    finished: bool = False

    def begin(self, start: Array | None) -> None:
        """A pilot, and the first look."""
        self.pilot = pilot(self.problem, self.solve, start, self.budget)
        self.x = self.pilot.x
        self.width = self.allowed(self.pilot.width)
        self.seen = self.look(Listed.nothing(), None)
        self.slopes = Slopes(self.problem, self.x, Listed.nothing())
        self.lowest = (self.judged()[1], self.x)

    @property
    def fold(self) -> bool:
        """Whether terms on a parabola are collapsed too."""
        return self.problem.d <= FOLD_LIMIT

    @property
    def budget(self) -> int:
        """Terms that a reduced problem may have."""
        sample = sample_of(self.problem).block
        row = 8.0 * self.problem.d
        if self.problem.design.sparse:
            row = 12.0 * sample.nnz / sample.shape[0]
        return int(chunk_survey.MOST_BYTES / (row + chunk_survey.TERM_BYTES))

    def allowed(self, width: float) -> float:
        """The nearest width that keeps enough terms and not too many."""
        n, pilot = self.problem.n, self.pilot
        room = self.budget if self.fold else self.budget - pilot.curved * n
        if n <= self.budget and (np.isinf(width) or pilot.share(width) > 0.5):
            return np.inf
        if room < max(LEAST, 4 * self.problem.d):
            raise InvalidInput(
                f"about {pilot.curved * n:,.0f} terms lie on a quadratic piece of their loss, and "
                f"with {self.problem.d} features (more than {FOLD_LIMIT}) all of them would have "
                f"to be in memory, where {self.budget:,} fit; choose a loss without quadratic "
                "pieces, fewer features, or a machine with more memory and an ordinary array."
            )
        least = pilot.width_for(max(LEAST, 4 * self.problem.d) / n)
        return float(min(max(width, least), pilot.width_for(0.8 * room / n)))

    def look(self, listed: Listed, before: Array | None) -> Seen:
        """One pass at the current point."""
        self.passes += 1
        return look(self.problem, self.x, self.width, listed, self.fold, before)

    def round(self) -> None:
        """Solve the reduced problem of the last look, and look at its answer."""
        began, problem, width = perf_counter(), self.problem, self.width
        model = Model.of(problem, self.seen, self.x, self.hold)
        kept, decided = self.seen.index, int(self.seen.counts.sum())
        self.seen = Seen.nothing(self.seen)  # the model has its own copy of the rows
        target = self.aim * self.tol
        begin = Start(self.x, model.start) if self.x.any() else None
        found = self.solve(model.problem, tol=target, start=begin)
        promised = np.inf
        if np.isfinite(found.x).all():
            theta, promised = model.lifted(found.x, found.theta)
        failed = found.status != "optimal" and promised > 0.1 * abs(self.lowest[0])
        if failed or not np.isfinite(found.x).all():  # unbounded: too much was linearised
            self.note(began, perf_counter(), found.status, len(kept), decided, {"width": width})
            self.hold = max(10.0 * self.hold, 1e-2 * self.seen.load)
            self.back(self.x, 2.0 * width)
            return
        x, theta, promised = model.polished(found.x, theta, promised)
        solved = perf_counter()
        rows = model.kept.design
        moved = np.abs(rows.forward(x) - model.margins) / sizes(rows)
        needed = float(np.quantile(moved, 0.999)) if len(moved) else 0.0
        del model, rows
        before, self.x = self.x, x
        self.pilot = self.pilot.seen_from(self.x, problem) if np.isfinite(width) else self.pilot
        self.width = self.allowed(0.5 * width if needed <= width else min(8 * width, 2 * needed))
        listed = Listed(kept, theta)
        self.seen = self.look(listed, before)
        gap, primal = self.judged()
        if gap < self.gap or (np.isinf(self.gap) and primal <= self.lowest[0]):
            self.gap, self.slopes = gap, Slopes(problem, self.x, listed)
        info = {"width": width, "needed": needed, "promised": promised}
        relative = float(relative_gap(gap, primal))
        self.note(began, solved, found.status, len(kept), decided, info, gap, relative)
        self.decide(relative)
        if not self.finished and primal > self.lowest[0] + 1e-9 * abs(self.lowest[0]):
            self.back(self.x, 2.0 * width)
        elif primal < self.lowest[0]:
            self.lowest = (primal, self.x)
            self.hold = 0.1 * self.hold if self.hold > 1e-3 * self.seen.load else 0.0

    def judged(self) -> tuple[float, float]:
        """Gap and objective at x as the last look saw them, up to rounding."""
        problem, seen = self.problem, self.seen
        primal = seen.value + problem.quadratic.inner(
            0.5 * problem.quadratic.apply(self.x) + problem.linear, self.x
        ) + problem.constant
        if problem.penalty is not None:
            primal += problem.penalty.value(self.x)
        force = seen.At_theta + problem.linear
        gap = seen.fy + regulariser_gap(problem, self.x, force)
        free = problem.quadratic.free
        if (np.abs(force[free]) > 1e-10 * (1e-300 + seen.load)).any():
            gap = np.inf  # refuted terms have left the intercept out of balance
        return float(gap), float(primal)

    def back(self, end: Array, width: float) -> None:
        """After a runaway to `end`: look again, and wider, where the objective is lowest."""
        self.x = self.lowest[1]
        if end is not self.x:
            self.passes += 1
            self.x = lowest_along(self.problem, self.x, end)
        self.pilot = self.pilot.seen_from(self.x, self.problem)
        self.width = self.allowed(width)
        self.finished = self.finished or len(self.rounds) >= MAX_ROUNDS
        if not self.finished:
            self.seen = self.look(Listed.nothing(), None)
            self.lowest = (self.judged()[1], self.x)

    def note(
        self, began: float, solved: float, status: str, kept: int, decided: int,
        info: dict[str, float], gap: float = np.inf, relative: float = np.inf,
    ) -> None:
        """Record a round."""
        record = Round(
            number=len(self.rounds) + 1, kept=kept, proven=0, predicted=decided,
            refuted=self.seen.refuted, gap=gap, relative_gap=relative, solver_status=status,
            solver_info=info, solve_seconds=solved - began, seconds=perf_counter() - began,
        )
        self.rounds.append(record)
        if self.on_round is not None:
            self.on_round(record)

    def decide(self, relative: float) -> None:
        """Certify what promises to be good enough; stop when nothing more can be done."""
        if relative <= self.tol:
            self.proof = self.certified()
            self.finished = self.proof.ok
            self.aim *= 0.1
        self.finished = self.finished or len(self.rounds) >= MAX_ROUNDS or self.aim < 1e-4

    def certified(self) -> Certificate:
        """The certificate of the best point."""
        self.passes += 1
        return certify_chunks(self.problem, self.slopes.x, self.slopes, tol=self.tol)

    def solution(self, seconds: float) -> ChunkedSolution:
        """The record of the call."""
        x, slopes = self.slopes.x, self.slopes
        self.proof = self.certified() if self.proof is None else self.proof
        return ChunkedSolution(
            problem=self.problem, x=x, theta=slopes,  # type: ignore[arg-type]
            multipliers=np.zeros(0), status=self.limits.word(self.proof.ok),
            certificate=self.proof,
            earlier=None,  # type: ignore[arg-type]
            rounds=tuple(self.rounds), solver="BUILTIN", mode="certified", seconds=seconds,
            passes=self.passes,
        )
