"""The one loop: predict or prove, reduce, solve, certify on the full data, put back, repeat.

``safe`` fixes only what a region proves. ``certified`` may fix what the margins of the best point
so far suggest; the reduced problem is then a relaxation (each loss is replaced by one of its
pieces, which lies below it), so a wrong guess shows up as a gap on the full data. What is refuted
is put back, the guess is widened from that evidence, and after a few rounds nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from cvxscreen.bounds import Bound, default_bounds
from cvxscreen.duality import Point, reference_point
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.screening import Prediction
from cvxscreen.selection import Selection
from cvxscreen.shares import Shares
from cvxscreen.solvers.choice import BUILTIN, OWN, builtin_solver, pilot_gap
from cvxscreen.solvers.chunked import is_chunked, solve_chunked
from cvxscreen.solvers.compare import blend
from cvxscreen.solvers.evaluate import evaluated
from cvxscreen.solvers.faces import Faces
from cvxscreen.solvers.guess import SMALL, Guess, samples, size_of_optimum, subsample, usable
from cvxscreen.solvers.inner import MODES, Inner, InnerResult, Start, ask, check_request, limits_of
from cvxscreen.solvers.pauses import gap_that_pays, pauses, promising
from cvxscreen.solvers.run import Run
from cvxscreen.solvers.smo import Smo
from cvxscreen.solvers.solution import Round, Solution, shares_proven
from cvxscreen.solvers.sparse_loop import solve_sparse

__all__ = ["MODES", "Inner", "InnerResult", "Start", "solve_screened"]

MAX_ROUNDS = 12
AIM, CLOSE = 0.8, 0.95
"""Share of the tolerance that a built-in solver uses up; `Faces` stops right below it."""
SOUNDING = 1e-5
"""Relative gap to which samples are solved."""
WORTH = 0.8
"""A reduction that keeps a larger share of the terms costs more than it saves."""


def solve_screened(
    problem: Problem,
    inner: Inner | None = None,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    start: Start | None = None,
    bounds: Sequence[Bound] | None = None,
    on_round: Callable[[Round], None] | None = None,
) -> Solution:
    """Solve `problem` by rounds of screening and reduced solves.

    Parameters
    ----------
    problem : Problem
    inner : callable, optional
        Solver of the reduced problems, the built-in one that suits when omitted; its limits are
        those of the call.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    start : Start, optional
        A warm start on the full problem.
    bounds : sequence of Bound, optional
    on_round : callable, optional
        Gets the record of every finished round.

    Returns
    -------
    Solution
        ``"optimal"`` only if the certificate on the full problem holds, else maybe cut short.

    Raises
    ------
    UnknownName
        For a mode that does not exist.
    InvalidInput
        For a tolerance that is not positive.
    """
    check_request(mode, tol)
    began = perf_counter()
    if is_chunked(problem):
        return solve_chunked(problem, solve_screened, inner, mode, tol, start, bounds, on_round)
    solver: Inner = builtin_solver(problem) if inner is None else inner
    bounds = default_bounds(problem) if bounds is None else tuple(bounds)
    sparse = isinstance(problem.penalty, L1) and not problem.quadratic.free.any()
    if problem.side is None and not isinstance(solver, OWN if sparse else BUILTIN):
        # The built-in solver is the pilot: another solver then only sees what is hard to decide.
        first = builtin_solver(problem, limits_of(solver))
        aim = min(tol, pilot_gap(problem))
        pilot = solve_screened(problem, first, mode=mode, tol=aim, start=start, bounds=bounds)
        start = Start(pilot.x, pilot.theta)
    if sparse:
        return solve_sparse(problem, solver, mode, tol, start, bounds, on_round)
    run = _Run(problem, solver, mode, tol, tuple(bounds), on_round)
    run.begin(start)
    piloted = run.best is not None and not run.builtin
    while not run.finished and not ((run.rounds or piloted) and run.limits.spent()):
        run.round()
    return replace(run.solution(), seconds=perf_counter() - began)


class _Run(Run):
    """The state of one call, and how far to guess."""

    def __init__(
        self,
        problem: Problem,
        inner: Inner,
        mode: str,
        tol: float,
        bounds: tuple[Bound, ...],
        on_round: Callable[[Round], None] | None,
    ) -> None:
        super().__init__(problem, inner, mode, tol, bounds, on_round)
        self.builtin = isinstance(inner, BUILTIN)
        self.sees = isinstance(inner, Faces | Smo)  # finds out by itself which terms matter
        self.guess: Guess | None = None
        self.weight: float | None = None
        self.target_factor = (CLOSE if isinstance(inner, Faces) else AIM) if self.builtin else 0.25

    # -- steps of a round -----------------------------------------------------------------

    def begin(self, start: Start | None) -> None:
        """Evaluate the start, or take a pilot on a subsample when the problem is large."""
        problem = self.problem
        if start is not None:
            self.weight = start.weight
            self.best = start.point or reference_point(
                problem, start.x, start.theta, start.multipliers
            )
            self.before = Shares(partial(shares_proven, problem, self.bounds, self.best))
            if self.mode == "safe" or not (self.predicts or self.sees) or not self.builtin:
                self.prove(self.best)
        elif self.builtin and self.predicts:
            self.sound()
        elif not self.builtin and problem.n > 5 * SMALL:
            found = ask(self.inner, subsample(problem), None, 0.0)
            if found.usable:
                self.best = reference_point(problem, found.x, None, found.multipliers)
                self.guess = Guess.near(problem, self.best, 0.1)

    def sound(self) -> None:
        """Where the problem is large: begin at a sample's optimum, and guess how far off it is."""
        parts = samples(self.problem)
        points: list[np.ndarray] = []
        for part in parts or ():
            start = None
            if points:
                start = Start(points[0], part.losses.slope(part.design.forward(points[0])))
            found = solve_screened(part, self.inner, tol=SOUNDING, start=start, bounds=())
            if not np.isfinite(found.x).all():
                return
            points.append(found.x)
        if parts is not None:
            self.guess = Guess.from_samples(self.problem, parts[1], *points)
        if self.guess is not None:
            self.best = reference_point(self.problem, points[1])

    @property
    def predicts(self) -> bool:
        """Whether terms are left out on trust; what a start proves is then among them."""
        can_pay = not self.sees and Guess.least_share(self.problem) <= WORTH
        return self.mode == "certified" and can_pay

    def prove(self, point: Point) -> None:
        """Add what the bounds prove from `point`."""
        self.screening = self.screening.proven_from(self.bounds, point)

    def choose(self) -> Selection:
        """What to reduce by in this round; nothing where that cannot pay."""
        problem = self.problem
        chosen = self.screening.selection
        last = len(self.rounds) >= MAX_ROUNDS - 2
        if self.predicts and self.best is not None and not last:
            if self.guess is None:
                self.guess = Guess.near(problem, self.best, 0.05)
            prediction = Prediction.from_margins(
                problem, self.best.margins, self.guess.reach(problem), self.guess.keep
            )
            chosen = prediction.beside(self.screening)
        return usable(problem, chosen, self.best, WORTH if self.builtin else 1.0)

    def target(self) -> float:
        """Absolute gap for the inner solver; loose while there is nothing to reduce by."""
        scale = size_of_optimum(self.problem, self.best)
        aim = self.target_factor * self.tol * max(scale, 1e-300)
        if not self.builtin:
            return aim
        safe = self.mode == "safe"
        if self.sees or (safe and not pauses(self.problem)):
            return aim
        if self.best is None:
            return max(3e-4 * scale, aim) if self.problem.n > SMALL else aim
        return max(gap_that_pays(self.best, self.screening, 1.0 - WORTH, aim), aim) if safe else aim

    def round(self) -> None:
        """One pass of the loop in the module's docstring."""
        began, problem = perf_counter(), self.problem
        chosen = self.choose()
        guessed = int(((chosen.codes >= 0) & (self.screening.codes < 0)).sum())
        reduced = chosen.reduce(problem, self.best)
        self.result = ask(self.inner, reduced, self.warm(chosen), self.target())
        solved = perf_counter()
        refuted, proven = 0, int((self.screening.codes >= 0).sum())
        if self.result.usable:
            x, theta = chosen.lift(problem, reduced, self.result.x, self.result.theta)
            last = self.sees and reduced is problem and self.result.status == "optimal"
            pair = (x, theta, self.result.multipliers)
            point, proof = evaluated(problem, *pair, self.tol if last else None)
            self.proof = self.proof if proof is None else (point, proof)
            off = Prediction(chosen).refuted(problem, point.margins, self.screening)
            refuted = int(off.sum())
            self.learn(point, off, guessed)
        elif guessed:
            # A linearised problem may be unbounded where the full one is not.
            self.guess = self.guess.wider(np.inf) if self.guess else None
        else:
            self.finished = True
        self.weight = self.result.info.get("weight")
        best = self.best
        self.record(reduced, best, (proven, guessed, refuted), began, solved)
        self.decide(guessed, refuted)
        share = 0.5 * (1.0 - WORTH) if self.builtin else 0.0
        if not self.finished and best is not None and promising(best, self.screening, share):
            self.prove(best)

    def warm(self, chosen: Selection) -> Start | None:
        """The best point so far, restricted to the kept terms."""
        best = self.best
        if best is None:
            return None
        if len(chosen.kept) == self.problem.n:
            return Start(best.x, best.theta, self.weight, best.multipliers, best)
        return Start(best.x, best.theta[chosen.kept], self.weight, best.multipliers)

    def learn(self, point: Point, off: np.ndarray, guessed: int) -> None:
        """Take over a better point; after a runaway stay on the segment where P is lowest."""
        best = self.best
        if best is not None and off.any():
            self.guess = None if self.guess is None else self.guess.after(best, off)
            if point.primal > best.primal:
                point = blend(best, point)
        if best is None or point.gap < best.gap or (off.any() and point.primal <= best.primal):
            self.best = point

    def decide(self, guessed: int, refuted: int) -> None:
        """Stop when certified, or when another round cannot help."""
        if self.finished:
            return
        best, last = self.best, len(self.rounds) >= MAX_ROUNDS
        done = best is not None and best.relative_gap <= self.tol and self.certified(best).ok
        if best is None or last or done:
            self.finished = last or done
            return
        stuck = len(self.rounds) >= 2 and self.rounds[-1].gap >= 0.5 * self.rounds[-2].gap
        first = len(self.rounds) == 1 and self.builtin
        if guessed == 0 and refuted == 0 and stuck and not first:
            if self.builtin and self.target_factor > 1e-3:
                self.target_factor *= 0.1
            else:
                self.finished = True
        elif guessed and refuted == 0:
            # Nothing refuted and still a gap: the inner solver was not accurate enough.
            if self.builtin:
                self.target_factor *= 0.1
                self.finished = self.target_factor < 1e-4
            else:
                self.finished = stuck
