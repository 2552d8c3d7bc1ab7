"""Terms are screened: collapsed onto the pieces of their losses, by proof or by prediction.

In ``certified`` mode a prediction fixes what the margins of the best point so far suggest; the
reduced problem is then a relaxation (each loss is replaced by one of its pieces, which lies below
it), so a wrong prediction shows up as a gap on the full data. What is refuted is put back, the
prediction is made more cautious from that evidence, and after a few rounds nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.extensions import loaded
from cvxscreen._support.rounding import UNIT
from cvxscreen.certificates.certificate import cancelled, steepest_slopes
from cvxscreen.core.closed_form import without_loss
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Prediction, Screening, Selection
from cvxscreen.solvers.interface import (
    SolverSnapshot,
    Start,
    SubproblemResult,
    SubproblemSolver,
    call_checked,
)
from cvxscreen.solvers.newton import Newton, interior_point_outpaces, takes_over
from cvxscreen.solvers.prediction import (
    SMALL,
    PredictionRadius,
    accept_reduction,
    sample,
    samples,
    size_of_optimum,
)
from cvxscreen.solvers.registry import begins_by_descent
from cvxscreen.solvers.screened import ProblemInMemory, Times
from cvxscreen.solvers.solution import (
    Answer,
    LazyNumbers,
    Solution,
    shares_from,
    shares_proven,
)

# -- to which gap to solve, and when a proof pays; nothing here is proven -------------------------


Array = NDArray[np.float64]

FALL = 0.1
"""The gap falls at least so much between two proofs (14 problems in safe mode: 0.2 takes 1.1 to 1.2
times as long, 0.05 0.95 to 1.0)."""
CHEAP, CHEAP_UNDER_CONE = 100_000, 20_000
"""Where the data have fewer entries a proof costs more than the passes it can save; and the same of
metrics, whose passes take more than their entries say.

Measured in safe mode, never interrupted against always, four losses, C from 0.01 to 100, with and
without an intercept: 0.56 (1,000 x 5) and 0.71 (1,000 x 30, 3,000 x 10) of the time in the
geometric mean, 0.2 to 1.3 one by one; 0.6 to 0.9 at 100,000 entries, 0.9 to 1.0 from 100 columns
on. A proof pays most for the hinge without an intercept at a tolerance of 1e-9: up to 1.7. Metrics
from 540 triplets 0.7 to 0.8, from 1,280 to 4,320 0.9 to 1.2."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def interrupting_can_pay(problem: Problem) -> bool:
    """Whether it can pay to interrupt a solver of `problem` for a proof."""
    cheap = CHEAP if problem.penalty is None else CHEAP_UNDER_CONE
    return problem.n > SMALL and problem.n * min(problem.d, problem.n) > cheap


def gap_that_pays(
    best: Point | SolverSnapshot, screening: Screening, share: float, aim: float
) -> float:
    """The next gap on the way to `aim` that should decide a `share` more; 0 if there is none.

    A midpoint ball of gap G has a radius of about ``sqrt(G)`` and decides the terms whose margin
    is farther than that times ``||a_i||`` from a kink. The share is one of the terms that are still
    undecided. Nothing here is proven: it only says when proving is worth while.
    """
    ratio = _ratios(best, screening)
    if not len(ratio):
        return 0.0
    at = min(int((1.0 - share) * len(ratio)), len(ratio) - 1)
    radius = float(np.partition(ratio, at)[at])
    gap = min(FALL * best.gap, radius**2)
    return gap if gap > LAST * aim else 0.0


def promising(best: Point | SolverSnapshot, screening: Screening, share: float) -> bool:
    """Whether a midpoint ball from `best` should decide a `share` of what is undecided."""
    if not np.isfinite(best.gap):
        return False
    ratio = _ratios(best, screening)
    return len(ratio) > 0 and int((ratio > best.reach).sum()) >= share * len(ratio)


def _ratios(best: Point | SolverSnapshot, screening: Screening) -> Array:
    """How far the optimum may be for each undecided term to stay on its piece."""
    problem, rows = best.problem, screening.selection.kept
    away = problem.losses.kink_distance(best.margins)[rows]
    return np.asarray(away / np.maximum(problem.norms[rows], 1e-300))


AIM, CLOSE, OTHERS = 0.8, 0.95, 0.25
"""Share of the tolerance that a built-in solver uses up; `DualActiveSet`, which stops right below
it, where the size of the optimum is known; solvers whose gap is another one."""
LOOSE = 3e-4
"""Relative gap of the first look where there is nothing to predict from."""
UNKNOWN_SLOPES = 0.01
"""What a size by the steepest slopes counts for; those of an optimum are smaller."""
WORTH = 0.8
"""A reduction that keeps a larger share of the terms costs more than it saves."""


@dataclass(eq=False)
class ToleranceSchedule:
    """What to ask for in the next round of one call.

    Attributes
    ----------
    problem : Problem
    inner : SubproblemSolver
    safe : bool
        Whether only what is proven is left out.
    tol : float
        Relative gap asked for.
    factor : float
        Smaller than 1 once a share of `tol` was not enough.
    size : float or None
        About the optimal value, from below, where a start tells it.
    """

    problem: Problem
    inner: SubproblemSolver
    safe: bool
    tol: float
    factor: float = 1.0
    size: float | None = None

    @property
    def builtin(self) -> bool:
        """Whether the solver's gap is ours."""
        return self.inner.traits.reaches_target

    @property
    def selects_terms(self) -> bool:
        """Whether the solver finds out by itself which terms matter."""
        return self.inner.traits.selects_terms

    def last(self, best: Point | SolverSnapshot | None) -> float:
        """The absolute gap to end with."""
        share, size = OTHERS, self.size if best is None else None
        if self.builtin:
            known = size is not None or best is not None
            share = CLOSE if known and self.inner.traits.stops_right_below else AIM
        scale = size_of_optimum(self.problem, best) if size is None else size
        return self.factor * share * max(self.tol * scale, self._rounding_at_zero(best), 1e-300)

    def _rounding_at_zero(self, best: Point | SolverSnapshot | None) -> float:
        """The gap that certifies an optimum of 0 where all kinks are at 0; 0 if that is not known.

        See `cvxscreen.certificates.certificate.cancelled`.
        """
        problem = self.problem
        if problem.losses.b.any() or (best is not None and best.gap < abs(best.primal)):
            return 0.0
        nothing, origin = np.zeros(problem.n), np.zeros(problem.d)
        if isinstance(best, Point):
            return UNIT * cancelled(problem, origin, best.theta, nothing, nothing)
        steepest = steepest_slopes(nothing, problem.losses.lo, problem.losses.hi)
        return UNKNOWN_SLOPES * UNIT * cancelled(problem, origin, steepest, nothing, nothing)

    def next(self, best: Point | SolverSnapshot | None, screening: Screening) -> tuple[float, bool]:
        """The gap to ask for, and whether it is the last; loose while nothing can be left out."""
        aim = self.last(best)
        if (
            not self.builtin
            or self.selects_terms
            or (self.safe and not interrupting_can_pay(self.problem))
        ):
            return aim, True
        wanted = aim
        if best is None:
            if self.problem.n > SMALL:
                wanted = LOOSE * size_of_optimum(self.problem, None)
        elif self.safe:
            wanted = gap_that_pays(best, screening, 1.0 - WORTH, aim)
        return max(wanted, aim), wanted <= aim


# -- the problem that the loop screens ------------------------------------------------------------


MAX_ROUNDS = 12
"""Rounds of a call at most; the last two predict nothing. It is there for solvers that break (see
tests/solvers/test_broken_solvers.py)."""
PROMISE = 0.5 * (1.0 - WORTH)
"""Share of the undecided terms that a proof beside a built-in solver should decide."""
SAMPLE_TOLERANCE = 1e-5
"""Relative gap to which samples are solved; what lies between their optima is far larger."""
FIRST, FROM_SAMPLE = 0.05, 0.1
"""Share of the terms that a first prediction keeps; the second one from another solver's optimum of
a sample, of which it is not known how far off it is."""


NEAR = 1e-2
"""Relative gap of a point to predict from: from one farther off Newton's method took up to three
times as long as from 0 (`examples/benchmarks/cold_fits.py`)."""
SELECTED, OF_FACTOR = 1e-3, 5e-6
"""The same where a solver that selects terms could go on, and for each pass that a factor of the
others' systems costs, ``d^2 / (n filled)``, up to `NEAR`. Measured with absolute, quantile and
epsilon losses at gaps of 1e-3 to 1e-2: with 40 to 350 passes a factor (8,000 x 150 to 40,000 x 500)
the others take 0.3 to 0.7 of its time, with 500 to 2,500 (4,000 x 500 to 5,000 x 800) 1.1 to 2.3
times that, from 1e-3 down 1 to 4 times."""
INTERIOR_POINT = "cvxscreen.solvers.interior_point:InteriorPoint"
"""Imported when it is called."""
NOTHING = SubproblemResult("", np.zeros(0), np.zeros(0))
"""Stands for the result before there is one."""


class ScreenedRows(
    ProblemInMemory[Selection, Problem, SubproblemResult, tuple[Array, Array], Answer | Point]
):
    """A problem whose terms are screened: what is known of it, and how far to predict.

    Parameters as of `ProblemInMemory`.
    """

    def set_up(self) -> None:
        """What the rounds need beside what every problem in memory keeps."""
        problem, inner = self.problem, self.inner
        self.schedule = ToleranceSchedule(problem, inner, self.mode == "safe", self.tol)
        self.builtin = inner.traits.reaches_target
        self.selects_terms = inner.traits.selects_terms
        self.radius: PredictionRadius | None = None
        self.weight: float | None = None
        self.unevaluated: Start | None = None
        self.predicted = 0
        self.last = False

    # -- where a call begins ----------------------------------------------------------------

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Evaluate the start, or take a sample's optimum when the problem is large.

        `solve` is `solve_screened`, for the samples.
        """
        problem = self.problem
        settled = without_loss(problem)
        if settled is not None and self.accept(settled):
            return
        if start is not None:
            self.weight = start.weight
            if start.passes is not None and self.selects_terms and self.mode == "certified":
                self.unevaluated, self.schedule.size = start, start.size
                self.before = LazyNumbers(partial(shares_from, problem, self.bounds, start))
                return
            self.best = start.point or reference_point(
                problem, start.x, start.theta, start.multipliers
            )
            self.before = LazyNumbers(partial(shares_proven, problem, self.bounds, self.best))
            predicts = self.predicts or self.selects_terms
            if self.mode == "safe" or not predicts or not self.builtin:
                self.prove(self.best)
        elif self.builtin and self.predicts:
            self.begin_at_samples(solve)
        elif not self.builtin and problem.n > 5 * SMALL:
            found = call_checked(self.inner, sample(problem), None, 0.0)
            if found.usable:
                self.best = reference_point(problem, found.x, None, found.multipliers)
                self.radius = PredictionRadius.near(problem, self.best, FROM_SAMPLE)

    def accept(self, x: Array) -> bool:
        """Take `x`, a point without any loss, for the answer if its certificate says so."""
        problem, began = self.problem, perf_counter()
        answer = Answer.of(problem, x, np.zeros(problem.n), np.zeros(0), self.tol)
        if answer.proof.ok:
            self.answer, self.finished = answer, True
            self.record(0, answer.proof, (0, problem.n, 0), Times(began, began))
        return self.finished

    def begin_at_samples(self, solve: Callable[..., Solution]) -> None:
        """Where the problem is large: begin at a sample's optimum, and estimate its error."""
        parts = samples(self.problem)
        points: list[Array] = []
        for part in parts or ():
            start = None
            if points:
                start = Start(points[0], part.losses.slope(part.design.forward(points[0])))
            found = solve(part, self.inner, tol=SAMPLE_TOLERANCE, start=start, bounds=())
            if not np.isfinite(found.x).all():
                return
            points.append(found.x)
        if parts is not None:
            self.radius = PredictionRadius.from_samples(self.problem, parts[1], *points)
        if self.radius is not None:
            self.best = reference_point(self.problem, points[1])

    @property
    def over(self) -> bool:
        """As of every problem; another solver's pilot is something to show before any round."""
        something = bool(self.rounds) or (self.best is not None and not self.builtin)
        return self.finished or (something and self.limits.spent())

    # -- the steps of a round ---------------------------------------------------------------

    @property
    def predicts(self) -> bool:
        """Whether terms are left out on trust; what a start proves is then among them."""
        can_pay = not self.selects_terms and PredictionRadius.least_share(self.problem) <= WORTH
        return self.mode == "certified" and can_pay

    def prove(self, point: Point) -> None:
        """Add what the bounds prove from `point`."""
        self.screening = self.screening.proven_from(self.bounds, point)

    def select(self) -> Selection:
        """What to reduce by in this round; nothing where that cannot pay."""
        share = PROMISE if self.builtin else 0.0
        if self.rounds and self.best is not None and promising(self.best, self.screening, share):
            self.prove(self.best)
        chosen, known = self.choose(), self.screening.codes
        same = chosen.codes is known
        self.predicted = 0 if same else int(((chosen.codes >= 0) & (known < 0)).sum())
        return chosen

    def choose(self) -> Selection:
        """What is proven, and what may be predicted beside it."""
        problem = self.problem
        chosen = self.screening.selection
        last = len(self.rounds) >= MAX_ROUNDS - 2
        if self.predicts and self.best is not None and not last:
            if self.radius is None:
                self.radius = PredictionRadius.near(problem, self.best, FIRST)
            prediction = Prediction.from_margins(
                problem, self.best.margins, self.radius.reach(problem), self.radius.keep
            )
            chosen = prediction.beside(self.screening)
        return accept_reduction(
            problem, chosen, self.best, WORTH if self.builtin else 1.0, written=not self.builtin
        )

    def reduce(
        self, selection: Selection
    ) -> tuple[Problem, Callable[[SubproblemResult], tuple[Array, Array]]]:
        """Collapse the selected terms onto their pieces."""
        reduced = selection.reduce(self.problem, self.best)
        return reduced, lambda result: selection.lift(
            self.problem, reduced, result.x, result.theta
        )

    def solve(self, reduced: Problem, selection: Selection) -> SubproblemResult | None:
        """The solver's answer to a gap that fits the round."""
        start = self.warm(selection)
        first = not self.rounds and (start is None or self.selects_terms)
        counted: AbstractContextManager[None] = nullcontext()
        before = NOTHING
        if first and self.inner.traits.descends_first and begins_by_descent(reduced):
            from cvxscreen.solvers.dual_coordinate_descent import CLOCK, ready

            if not ready(reduced, self.inner):
                counted = CLOCK.rent()
                self.leave_to_newton(reduced, start, 0.0)
            elif (found := self.descend(reduced, start)) is not None:
                return found
            else:
                from cvxscreen.solvers.truncated_newton import without_newton_steps

                start, before = self.unevaluated or start, self.result
                counted = without_newton_steps(reduced)
        target, self.last = self.schedule.next(self.best, self.screening)
        with counted:
            self.result = call_checked(self.inner, reduced, start, target).after(before)
        if reduced is self.problem and self.mode == "safe":
            self.last = self.go_on(self.last)
        return self.result if self.result.usable else None

    def descend(self, problem: Problem, start: Start | None) -> SubproblemResult | None:
        """Begin by coordinate descent; its answer where it is one, or near enough to predict from.

        Where it ends far from the optimum, the interior point method or Newton's may take over;
        else a solver that selects terms by itself goes on from what is known there.
        """
        from cvxscreen.solvers.beginning import beginning

        first = beginning(problem, self.inner, CLOSE * self.tol)
        self.result = call_checked(first, problem, start)
        self.last = self.result.status == "optimal"
        if self.last or not self.result.usable:
            return self.result if self.result.usable else None
        state = self.result.state
        gap = self.result.info["relative_gap"]
        far = gap > self.near(problem)
        if far and self.mode == "certified" and interior_point_outpaces(problem, gap):
            path: SubproblemSolver = loaded(INTERIOR_POINT)(
                tol=CLOSE * self.tol, limits=self.inner.limits
            )
            found = call_checked(path, problem)
            if found.status == "optimal":
                self.result, self.last = found.after(self.result), True
                return self.result
        if far:
            self.leave_to_newton(problem, start, gap)
        if self.selects_terms and isinstance(state, Start):
            self.unevaluated, self.schedule.size = state, state.size
            return None
        if far:
            self.result = NOTHING
            return None
        return self.result

    def near(self, problem: Problem) -> float:
        """The relative gap from which on the point of coordinate descent is gone on from."""
        design = problem.design
        if not (self.selects_terms and isinstance(design, Rows)):
            return NEAR
        factor = problem.d**2 / (problem.n * design.filled)
        return min(max(SELECTED, OF_FACTOR * factor), NEAR)

    def leave_to_newton(self, problem: Problem, start: Start | None, gap: float) -> None:
        """From nothing, or what is no better, at a relative gap `gap`: where that is quickest."""
        if start is None and self.selects_terms and takes_over(problem, gap):
            self.inner = self.schedule.inner = Newton(limits=self.inner.limits)
            self.selects_terms = False

    def go_on(self, last: bool) -> bool:
        """Ask for more at once where the solver's own numbers promise no proof that pays."""
        result = self.result
        while not last and result.snapshot is not None and result.status == "optimal":
            if promising(result.snapshot, self.screening, PROMISE):
                break
            target, last = self.schedule.next(result.snapshot, self.screening)
            start = Start(
                result.x, result.theta, result.info["weight"], result.multipliers,
                state=result.state,
            )
            again = call_checked(self.inner, self.problem, start, target)
            result = self.result = again.after(result)
        return last

    def warm(self, selection: Selection) -> Start | None:
        """The best point so far, restricted to the kept terms."""
        best = self.best
        if best is None:
            return self.unevaluated
        if len(selection.kept) == self.problem.n:
            left = self.result.state
            return Start(best.x, best.theta, self.weight, best.multipliers, best, state=left)
        return Start(best.x, best.theta[selection.kept], self.weight, best.multipliers)

    def evaluate(self, lifted: tuple[Array, Array], selection: Selection) -> Answer | Point:
        """The pair on the full data; where it should be the last, its certificate comes first."""
        x, theta = lifted
        problem, mu = self.problem, self.result.multipliers
        if self.last and len(selection.kept) == problem.n and self.result.status == "optimal":
            return Answer.of(problem, x, theta, mu, self.tol)
        return reference_point(problem, x, theta, mu)

    def put_back(self, selection: Selection, point: Answer | Point | None) -> int:
        """Take over an answer, or be more cautious; how many predictions the full data refute."""
        if point is None:
            # A linearised problem may be unbounded where the full one is not.
            if self.predicted:
                self.radius = self.radius.wider(np.inf) if self.radius else None
            else:
                self.finished = True
            return self.predicted
        if isinstance(point, Answer):
            if point.proof.ok:
                self.answer, self.finished = point, True
                return 0
            point = point.point
        off = Prediction(selection).refuted(self.problem, point.margins, self.screening)
        self.learn(point, off)
        return int(off.sum())

    def learn(self, point: Point, off: np.ndarray) -> None:
        """Take over a better point; after a runaway stay on the segment where P is lowest."""
        best = self.best
        if best is not None and off.any():
            self.radius = None if self.radius is None else self.radius.after(best, off)
            if point.primal > best.primal:
                point = lowest_between(best, point)
        better = best is None or point.gap < best.gap
        if best is not None and not better and point.primal <= best.primal:
            # Where unpenalised coordinates balance to a rounding only, no gap tells points apart.
            blind = not np.isfinite(point.gap)
            better = bool(off.any()) or (
                blind and (np.isinf(best.gap) or self.certified(point).gap < best.gap)
            )
        if better:
            self.best = point

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record the round; stop when certified, or when another round cannot help."""
        self.weight = self.result.info.get("weight")
        best = self.best if self.answer is None else self.answer.proof
        proven = int(np.count_nonzero(self.screening.codes >= 0))
        self.record(len(selection.kept), best, (proven, self.predicted, refuted), times)
        if not self.finished:
            self.decide(self.predicted, refuted)

    def decide(self, predicted: int, refuted: int) -> None:
        """Stop, or ask the solver for more; an answer that rounding refuses is moved off kinks."""
        self.stop_or_go_on(predicted, refuted)
        if not self.finished or self.best is None:
            return
        proof = self.certified(self.best)
        moved = None if proof.ok else beyond_kinks(self.best)
        if moved is not None and self.certified(moved).gap < proof.gap:
            self.best = moved

    def stop_or_go_on(self, predicted: int, refuted: int) -> None:
        """Whether to stop, and what to ask of the solver next."""
        best, last = self.best, len(self.rounds) >= MAX_ROUNDS
        near = best is not None and (best.relative_gap <= self.tol or not np.isfinite(best.gap))
        done = best is not None and near and self.certified(best).ok
        if best is None or last or done:
            self.finished = last or done
            return
        stuck = len(self.rounds) >= 2 and self.rounds[-1].gap >= 0.5 * self.rounds[-2].gap
        first = len(self.rounds) == 1 and self.builtin
        if predicted == 0 and refuted == 0 and stuck and not first:
            if self.builtin and self.schedule.factor > 1e-3:
                self.schedule.factor *= 0.1
            else:
                self.finished = True
        elif predicted and refuted == 0:
            # Nothing refuted and still a gap: the inner solver was not accurate enough.
            if self.builtin:
                self.schedule.factor *= 0.1
                self.finished = self.schedule.factor < 1e-4
            else:
                self.finished = stuck


def beyond_kinks(point: Point) -> Point | None:
    """`point` with x a little longer: hinges at their kink come to lie on their flat side.

    A margin is known up to the rounding of a sum of products. Where C is large beside the slopes of
    the terms at a kink (separable data), that rounding times C is what a certificate must charge,
    and it may be more than the optimum itself; a longer x costs the square of what it is longer by.
    None where no loss is flat beyond its kink.
    """
    problem = point.problem
    f = problem.losses
    flat = (f.q == 0) & (((f.hi == 0) & (f.b > f.e)) | ((f.lo == 0) & (f.b < -f.e)))
    if not flat.any() or not np.isfinite(point.x).all():
        return None
    size = float(np.linalg.norm(point.x) * np.max(problem.sizes))
    room = float(np.abs(f.b[flat]).min()) - float(f.e[flat].max())
    longer = 1.0 + 4.0 * problem.design.forward_factor * size / room
    return reference_point(problem, longer * point.x, point.theta, point.multipliers)


def lowest_between(good: Point, far: Point) -> Point:
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
