"""Data in chunks as a problem for the loop: one pass judges a point and reduces around it.

A pilot on samples says where to look first and how wide. A look collapses every term whose margin
is farther than that from a kink onto its piece, and gathers the others into memory; their problem
is solved by the loop for data in memory, and the next look both judges the answer and prepares the
next round. Collapsing is a prediction: what it gets wrong shows as a gap, and the band is widened
by how far the margins moved. Only the certificate, a pass of its own, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from cvxscreen.solvers.screened import ScreenedProblem, Times
from cvxscreen.solvers.solution import Round, Solution
from cvxscreen.solvers.streamed.passes import Seen, look, lowest_along, proven
from cvxscreen.solvers.streamed.reduced import (
    QUANTILE,
    Model,
    Pilot,
    pilot,
    regulariser_gap,
    sample_of,
    sizes,
)


@dataclass(frozen=True, eq=False, repr=False)
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
Index = NDArray[np.intp]
Pair = tuple[Array, Array]

MAX_ROUNDS = 20
AIM = 0.5
"""Share of the tolerance that the gap of a reduced problem may use up."""
FAILED = 0.1
"""A reduced problem that promises a gap of more than this share of the lowest objective, and that
was not solved, was unbounded."""
LEAST = 400
"""Terms that are kept in any case."""


def is_chunked(problem: Problem) -> bool:
    """Whether the data of `problem` come in chunks."""
    return isinstance(problem.design, Chunks)


class Judged(NamedTuple):
    """Gap and objective of a point as a pass over the data saw them, up to rounding."""

    gap: float
    primal: float

    @property
    def relative(self) -> float:
        """The relative gap."""
        return float(relative_gap(self.gap, self.primal))


class ScreenedChunks(ScreenedProblem[float, Model, tuple[Array, Array, float], Pair, Judged]):
    """A problem over data in chunks, which one pass both judges and reduces.

    What a round fixes is said by a width: every term whose margin is farther than that from a kink
    (in units of the size of its row) is predicted to stay on its piece.

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, `sparse_svm` or `sparse_svr` over data in chunks.
    inner : SubproblemSolver
        What reduced problems are solved with; one that is interchangeable leaves it to each of
        them.
    mode : {"certified"}
    tol : float
        Relative duality gap on all data.
    bounds : sequence of Bound, optional
        What the loop in memory proves with.
    on_round : callable, optional

    Raises
    ------
    InvalidInput
        For ``mode="safe"``.
    """

    pilot: Pilot
    seen: Seen
    slopes: Slopes
    x: Array
    width: float
    lowest: tuple[float, Array]

    def __init__(
        self,
        problem: Problem,
        inner: SubproblemSolver,
        mode: str,
        tol: float,
        bounds: Sequence[Bound] | None,
        on_round: Callable[[Round], None] | None,
    ) -> None:
        if mode != "certified":
            raise InvalidInput(
                '`mode` is "safe", but over data in chunks terms are also left out on prediction '
                'and the answer is certified afterwards: use mode="certified", or load the data '
                "(np.array(X)) for a solve that leaves out nothing unproven."
            )
        self.problem, self.inner, self.tol = problem, inner, tol
        self.bounds, self.on_round, self.limits = bounds, on_round, inner.limits
        self.rounds = []
        self.gap, self.hold, self.aim = np.inf, 0.0, AIM
        self.proof: Certificate | None = None
        self.passes = self.decided = 0
        self.kept: Index = np.zeros(0, dtype=np.intp)
        self.judged: Judged | None = None
        self.status = "not run"
        self.info: dict[str, float] = {}

    def begin(self, start: Start | None, solve: Callable[..., Any]) -> None:
        """A pilot, and the first pass; of a start only its `x` counts.

        ``solve(problem, inner, tol=..., start=..., bounds=...)`` is the loop for data in memory.

        Raises
        ------
        InvalidInput
            Where the terms that cannot be collapsed do not fit in memory.
        """

        def again(reduced: Problem, **options: Any) -> Any:
            inner = self.inner
            if inner.traits.interchangeable:
                inner = builtin_solver(reduced, self.limits)
            return solve(reduced, inner, bounds=self.bounds, **options)

        self.in_memory = again
        x = None if start is None else np.array(start.x, dtype=np.float64)
        self.pilot = pilot(self.problem, again, x, self.budget)
        self.x = self.pilot.x
        self.width = self.allowed(self.pilot.width)
        self.seen = self.look(Listed.nothing(), None)
        self.slopes = Slopes(self.problem, self.x, Listed.nothing())
        self.lowest = (self.judge().primal, self.x)

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

    # -- the steps of a round ---------------------------------------------------------------

    def select(self) -> float:
        """The width of the band around the kinks that the last pass has kept."""
        return self.width

    def reduce(
        self, selection: float
    ) -> tuple[Model, Callable[[tuple[Array, Array, float]], Pair]]:
        """The terms that the last pass has gathered, all others collapsed."""
        model = Model.of(self.problem, self.seen, self.x, self.hold)
        self.kept, self.decided = self.seen.index, int(self.seen.counts.sum())
        self.seen = Seen.nothing(self.seen)  # the model has its own copy of the rows

        def lift(found: tuple[Array, Array, float]) -> Pair:
            x, theta, promised = model.polished(*found)
            rows = model.kept.design
            moved = np.abs(rows.forward(x) - model.margins) / sizes(rows)
            needed = float(np.quantile(moved, QUANTILE)) if len(moved) else 0.0
            self.info = {"width": selection, "needed": needed, "promised": promised}
            return x, theta

        return model, lift

    def solve(self, reduced: Model, selection: float) -> tuple[Array, Array, float] | None:
        """The answer of the loop in memory, and the gap that it promises; None if unbounded."""
        begin = Start(self.x, reduced.start) if self.x.any() else None
        found = self.in_memory(reduced.problem, tol=self.aim * self.tol, start=begin)
        self.status, self.info = found.status, {"width": selection}
        if not np.isfinite(found.x).all():
            return None
        theta, promised = reduced.lifted(found.x, found.theta)
        if found.status != "optimal" and promised > FAILED * abs(self.lowest[0]):
            return None  # too much was linearised
        return found.x, theta, promised

    def evaluate(self, lifted: Pair, selection: float) -> Judged:
        """One pass, which also gathers what the next round keeps."""
        (x, theta), needed = lifted, self.info["needed"]
        before, self.x = self.x, x
        if np.isfinite(selection):
            self.pilot = self.pilot.seen_from(x, self.problem)
        wider = min(8 * selection, 2 * needed)
        self.width = self.allowed(0.5 * selection if needed <= selection else wider)
        listed = Listed(self.kept, theta)
        self.seen = self.look(listed, before)
        found = self.judge()
        if found.gap < self.gap or (np.isinf(self.gap) and found.primal <= self.lowest[0]):
            self.gap, self.slopes = found.gap, Slopes(self.problem, x, listed)
        return found

    def put_back(self, selection: float, point: Judged | None) -> int:
        """Terms that have left their piece; the pass has gathered those near a kink already."""
        self.judged = point
        return 0 if point is None else self.seen.refuted

    def judge(self) -> Judged:
        """Gap and objective at x as the last pass saw them, up to rounding."""
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
        return Judged(float(gap), float(primal))

    def close(self, selection: float, refuted: int, times: Times) -> None:
        """Record the round; certify, or go back where the objective is lowest."""
        found, lowest = self.judged, self.lowest[0]
        self.note(refuted, times)
        if found is None:
            self.hold = max(10.0 * self.hold, 1e-2 * self.seen.load)
            self.back(self.x, 2.0 * selection)
            return
        self.decide(found.relative)
        if not self.finished and found.primal > lowest + 1e-9 * abs(lowest):
            self.back(self.x, 2.0 * selection)
        elif found.primal < lowest:
            self.lowest = (found.primal, self.x)
            self.hold = 0.1 * self.hold if self.hold > 1e-3 * self.seen.load else 0.0

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
            self.lowest = (self.judge().primal, self.x)

    def note(self, refuted: int, times: Times) -> None:
        """Record a round."""
        found = Judged(np.inf, 0.0) if self.judged is None else self.judged
        record = Round(
            number=len(self.rounds) + 1, kept=len(self.kept), proven=0, predicted=self.decided,
            refuted=refuted, gap=found.gap,
            relative_gap=np.inf if self.judged is None else found.relative,
            solver_status=self.status, solver_info=self.info,
            solve_seconds=times.solved - times.began, seconds=perf_counter() - times.began,
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

    def solution(self, began: float) -> ChunkedSolution:
        """The record of the call, which began at that `perf_counter`."""
        x, slopes = self.slopes.x, self.slopes
        self.proof = self.certified() if self.proof is None else self.proof
        return ChunkedSolution(
            problem=self.problem, x=x, theta=slopes,  # type: ignore[arg-type]
            multipliers=np.zeros(0), status=self.limits.word(self.proof.ok),
            certificate=self.proof,
            earlier=None,  # type: ignore[arg-type]
            rounds=tuple(self.rounds), solver=self.inner.name, mode="certified",
            seconds=perf_counter() - began,
            passes=self.passes,
        )
