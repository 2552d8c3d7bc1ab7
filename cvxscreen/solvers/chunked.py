"""The loop over data in chunks: look, reduce, solve in memory, look again, certify.

A pilot on samples says where to look first and how wide. A look collapses every term whose margin
is farther than that from a kink onto its piece, and gathers the others into memory; their problem
is solved by the loop for data in memory, and the next look both judges the answer and prepares the
next round. Collapsing is a prediction: what it gets wrong shows as a gap, and the band is widened
by how far the margins moved. Only the certificate, a pass of its own, ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificate import Certificate
from cvxscreen.chunk_certificate import certify_chunks
from cvxscreen.chunk_slopes import Slopes
from cvxscreen.chunks import Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.problem import Problem
from cvxscreen.row_columns import Listed
from cvxscreen.selection import FOLD_LIMIT
from cvxscreen.solvers.chunk_look import Seen, look
from cvxscreen.solvers.chunk_model import Model, regulariser_gap
from cvxscreen.solvers.chunk_pilot import Pilot, pilot, sample_of, sizes
from cvxscreen.solvers.chunk_solution import ChunkedSolution
from cvxscreen.solvers.inner import Start
from cvxscreen.solvers.solution import Round

Array = NDArray[np.float64]

MAX_ROUNDS = 20
MOST_BYTES = 2**29
"""Memory for the terms of a reduced problem, the solver's work on them included."""
TERM_BYTES = 400
"""Of which a term takes this much besides its row."""
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
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    start: Start | None = None,
    on_round: Callable[[Round], None] | None = None,
) -> ChunkedSolution:
    """Solve `problem`, whose design is `Chunks`.

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, `sparse_svm` or `sparse_svr` over data in chunks.
    solve : callable
        ``solve(problem, tol=..., start=...)``: the loop for a problem in memory.
    mode : {"certified"}
    tol : float
    start : Start, optional
        Only its `x` counts.
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
    run = _Run(problem, solve, tol, on_round)
    run.begin(None if start is None else np.array(start.x, dtype=np.float64))
    while not run.finished:
        run.round()
    return run.solution(perf_counter() - began)


@dataclass
class _Run:
    """The state of one call."""

    problem: Problem
    solve: Callable[..., Any]
    tol: float
    on_round: Callable[[Round], None] | None
    x: Array = field(init=False)
    width: float = field(init=False)
    pilot: Pilot = field(init=False)
    seen: Seen = field(init=False)
    slopes: Slopes = field(init=False)
    best: float = np.inf
    best_primal: float = np.inf
    proof: Certificate | None = None
    rounds: list[Round] = field(default_factory=list)
    passes: int = 0
    aim: float = AIM
    finished: bool = False

    def begin(self, start: Array | None) -> None:
        """A pilot, and the first look."""
        self.pilot = pilot(self.problem, self.solve, start)
        self.x = self.pilot.x
        self.width = self.allowed(self.pilot.width)
        self.seen = self.look(Listed.nothing(), None)

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
        return int(MOST_BYTES / (row + TERM_BYTES))

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
        began, problem = perf_counter(), self.problem
        model = Model.of(problem, self.seen, self.x)
        target = self.aim * self.tol
        found = self.solve(model.problem, tol=target, start=Start(self.x, model.start))
        theta, promised = model.lifted(found.x, found.theta)
        scale = abs(found.value)
        if promised > 2.0 * target * scale:  # the parabolas' slopes are those at x, not the dual's
            again = self.solve(
                model.problem, tol=0.01 * target, start=Start(found.x, np.asarray(found.theta))
            )
            other, gap = model.lifted(again.x, again.theta)
            if gap < promised:
                found, theta, promised = again, other, gap
        solved = perf_counter()
        rows = model.kept.design
        moved = np.abs(rows.forward(found.x) - model.margins) / sizes(rows)
        needed = float(np.quantile(moved, 0.999)) if len(moved) else 0.0
        kept, decided, width = self.seen.index, self.seen.counts, self.width
        del model, rows
        before, self.x = self.x, found.x
        self.pilot = self.pilot.seen_from(self.x, problem) if np.isfinite(width) else self.pilot
        self.width = self.allowed(0.5 * width if needed <= width else min(8 * width, 2 * needed))
        listed = Listed(kept, theta)
        self.seen = Seen.nothing(self.seen)  # frees the rows before the next are gathered
        self.seen = self.look(listed, before)
        gap, primal = self.judged()
        self.learn(gap, primal, listed)
        relative = gap / max(abs(primal), abs(primal - gap), 1e-300)
        record = Round(
            number=len(self.rounds) + 1, kept=len(kept), proven=0, predicted=int(decided.sum()),
            refuted=self.seen.refuted, gap=gap, relative_gap=relative, solver_status=found.status,
            solver_info={"width": width, "needed": needed, "promised": promised},
            solve_seconds=solved - began, seconds=perf_counter() - began,
        )
        self.rounds.append(record)
        if self.on_round is not None:
            self.on_round(record)
        self.decide(relative)

    def judged(self) -> tuple[float, float]:
        """Gap and objective at x as the last look saw them, up to rounding."""
        problem, seen = self.problem, self.seen
        primal = seen.value + problem.quadratic.inner(
            0.5 * problem.quadratic.apply(self.x) + problem.linear, self.x
        ) + problem.constant
        if problem.penalty is not None:
            primal += problem.penalty.value(self.x)
        force = seen.pull + problem.linear
        gap = seen.fy + regulariser_gap(problem, self.x, force)
        free = problem.quadratic.free
        if (np.abs(force[free]) > 1e-10 * (1e-300 + seen.load)).any():
            gap = np.inf  # refuted terms have left the intercept out of balance
        return float(gap), float(primal)

    def learn(self, gap: float, primal: float, listed: Listed) -> None:
        """Keep the best point."""
        if not self.rounds or gap < self.best:
            self.best, self.slopes = gap, Slopes(self.problem, self.x, listed)
        self.best_primal = min(primal, self.best_primal)

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
            multipliers=np.zeros(0), status="optimal" if self.proof.ok else "inaccurate",
            certificate=self.proof,
            earlier=None,  # type: ignore[arg-type]
            rounds=tuple(self.rounds), solver="BUILTIN", mode="certified", seconds=seconds,
            passes=self.passes,
        )
