"""The one loop: predict or prove, reduce, solve, certify on the full data, put back, repeat.

The best point of a segment between two evaluated points, without another pass over the data.

``safe`` fixes only what a region proves. ``certified`` may fix what the margins of the best point
so far suggest; the reduced problem is then a relaxation (each loss is replaced by one of its
pieces, which lies below it), so a wrong guess shows up as a gap on the full data. What is refuted
is put back, the guess is widened from that evidence, and after a few rounds nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from cvxscreen.bounds import Bound, default_bounds
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Prediction, Selection
from cvxscreen.solvers.interface import (
    MODES,
    Start,
    SubproblemResult,
    SubproblemSolver,
    call_checked,
    check_request,
)
from cvxscreen.solvers.prediction import SMALL, PredictionRadius, accept_reduction, sample, samples
from cvxscreen.solvers.prox_newton.loop import solve_sparse
from cvxscreen.solvers.registry import builtin_solver, pilot_gap
from cvxscreen.solvers.run import Run
from cvxscreen.solvers.schedule import WORTH, ToleranceSchedule, promising
from cvxscreen.solvers.solution import (
    Answer,
    LazyRates,
    Round,
    Solution,
    shares_from,
    shares_proven,
)
from cvxscreen.solvers.streamed.loop import is_chunked, solve_chunked

__all__ = ["SubproblemSolver", "SubproblemResult", "MODES", "Start", "solve_screened"]

def blend(good: Point, far: Point) -> Point:
    """The point of ``[good.x, far.x]`` with the lowest objective, and the better dual point.

    The objective is convex along the segment and margins interpolate linearly, so a golden-section
    search costs O(n) a step. Used when a prediction was far too narrow and its reduced problem ran
    away: the step is kept only as far as it helps the full problem.
    """
    problem = good.problem
    quadratic, losses = problem.quadratic, problem.losses
    step, dt = far.x - good.x, far.margins - good.margins

    def slope(size: float) -> float:
        x = good.x + size * step
        theta = losses.slope(good.margins + size * dt)
        return quadratic.inner(quadratic.apply(x) + problem.linear, step) + float(dt @ theta)

    low, high = 0.0, 1.0
    for _ in range(40):
        mid = 0.5 * (low + high)
        low, high = (mid, high) if slope(mid) < 0 else (low, mid)
    dual = far if far.primal - far.gap > good.primal - good.gap else good
    x = good.x + low * step
    if not np.isfinite(x).all():
        x = good.x
    return reference_point(problem, x, dual.theta, dual.multipliers)


MAX_ROUNDS = 12
PROMISE = 0.5 * (1.0 - WORTH)
"""Share of the undecided terms that a proof beside a built-in solver should decide."""
SOUNDING = 1e-5
"""Relative gap to which samples are solved."""


def solve_screened(
    problem: Problem,
    inner: SubproblemSolver | None = None,
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
    solver: SubproblemSolver = builtin_solver(problem) if inner is None else inner
    bounds = default_bounds(problem) if bounds is None else tuple(bounds)
    sparse = isinstance(problem.penalty, L1) and not problem.quadratic.free.any()
    if problem.side is None and not solver.traits.reaches_target:
        # The built-in solver is the pilot: another solver then only sees what is hard to decide.
        first = builtin_solver(problem, solver.limits)
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
    return run.solution(began)


class _Run(Run):
    """The state of one call, and how far to guess."""

    def prepare(self) -> None:
        """Whose gaps to ask for, and nothing guessed yet."""
        self.goals = ToleranceSchedule(self.problem, self.inner, self.mode == "safe", self.tol)
        self.builtin, self.sees = self.goals.builtin, self.goals.sees
        self.guess: PredictionRadius | None = None
        self.weight: float | None = None
        self.light: Start | None = None

    # -- steps of a round -----------------------------------------------------------------

    def begin(self, start: Start | None) -> None:
        """Evaluate the start, or take a pilot on a sample when the problem is large."""
        problem = self.problem
        if start is not None:
            self.weight = start.weight
            if start.passes is not None and self.sees and self.mode == "certified":
                self.light, self.goals.size = start, start.size
                self.before = LazyRates(partial(shares_from, problem, self.bounds, start))
                return
            self.best = start.point or reference_point(
                problem, start.x, start.theta, start.multipliers
            )
            self.before = LazyRates(partial(shares_proven, problem, self.bounds, self.best))
            if self.mode == "safe" or not (self.predicts or self.sees) or not self.builtin:
                self.prove(self.best)
        elif self.builtin and self.predicts:
            self.sound()
        elif not self.builtin and problem.n > 5 * SMALL:
            found = call_checked(self.inner, sample(problem), None, 0.0)
            if found.usable:
                self.best = reference_point(problem, found.x, None, found.multipliers)
                self.guess = PredictionRadius.near(problem, self.best, 0.1)

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
            self.guess = PredictionRadius.from_samples(self.problem, parts[1], *points)
        if self.guess is not None:
            self.best = reference_point(self.problem, points[1])

    @property
    def predicts(self) -> bool:
        """Whether terms are left out on trust; what a start proves is then among them."""
        can_pay = not self.sees and PredictionRadius.least_share(self.problem) <= WORTH
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
                self.guess = PredictionRadius.near(problem, self.best, 0.05)
            prediction = Prediction.from_margins(
                problem, self.best.margins, self.guess.reach(problem), self.guess.keep
            )
            chosen = prediction.beside(self.screening)
        return accept_reduction(problem, chosen, self.best, WORTH if self.builtin else 1.0)

    def round(self) -> None:
        """One pass of the loop in the module's docstring."""
        began, problem = perf_counter(), self.problem
        chosen, known = self.choose(), self.screening.codes
        guessed = 0 if chosen.codes is known else int(((chosen.codes >= 0) & (known < 0)).sum())
        reduced = chosen.reduce(problem, self.best)
        goal, last = self.goals.next(self.best, self.screening)
        self.result = call_checked(self.inner, reduced, self.warm(chosen), goal)
        if reduced is problem and self.mode == "safe":
            last = self.go_on(last)
        solved = perf_counter()
        refuted, proven = 0, int(np.count_nonzero(known >= 0))
        if self.result.usable:
            x, theta = chosen.lift(problem, reduced, self.result.x, self.result.theta)
            refuted = self.judge(chosen, guessed, x, theta, last)
        elif guessed:
            # A linearised problem may be unbounded where the full one is not.
            self.guess = self.guess.wider(np.inf) if self.guess else None
        else:
            self.finished = True
        self.weight = self.result.info.get("weight")
        best = self.best if self.answer is None else self.answer.proof
        self.record(reduced, best, (proven, guessed, refuted), began, solved)
        self.decide(guessed, refuted)
        share = PROMISE if self.builtin else 0.0
        going = None if self.finished else self.best
        if going is not None and promising(going, self.screening, share):
            self.prove(going)

    def go_on(self, last: bool) -> bool:
        """Ask for more at once where the solver's own numbers promise no proof that pays."""
        result = self.result
        while not last and result.look is not None and result.status == "optimal":
            if promising(result.look, self.screening, PROMISE):
                break
            goal, last = self.goals.next(result.look, self.screening)
            start = Start(
                result.x, result.theta, result.info["weight"], result.multipliers,
                state=result.state,
            )
            result = self.result = call_checked(self.inner, self.problem, start, goal).after(result)
        return last

    def judge(
        self, chosen: Selection, guessed: int, x: np.ndarray, theta: np.ndarray, last: bool
    ) -> int:
        """Take over an answer; the number of its guesses that the full data refute.

        Where it should be the last, the certificate comes first: nothing else may be needed.
        """
        problem, mu = self.problem, self.result.multipliers
        if last and len(chosen.kept) == problem.n and self.result.status == "optimal":
            answer = Answer.of(problem, x, theta, mu, self.tol)
            if answer.proof.ok:
                self.answer, self.finished = answer, True
                return 0
            point = answer.point
        else:
            point = reference_point(problem, x, theta, mu)
        off = Prediction(chosen).refuted(problem, point.margins, self.screening)
        self.learn(point, off, guessed)
        return int(off.sum())

    def warm(self, chosen: Selection) -> Start | None:
        """The best point so far, restricted to the kept terms."""
        best = self.best
        if best is None:
            return self.light
        if len(chosen.kept) == self.problem.n:
            left = self.result.state
            return Start(best.x, best.theta, self.weight, best.multipliers, best, state=left)
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
            if self.builtin and self.goals.factor > 1e-3:
                self.goals.factor *= 0.1
            else:
                self.finished = True
        elif guessed and refuted == 0:
            # Nothing refuted and still a gap: the inner solver was not accurate enough.
            if self.builtin:
                self.goals.factor *= 0.1
                self.finished = self.goals.factor < 1e-4
            else:
                self.finished = stuck
