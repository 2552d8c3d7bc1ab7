"""The loop under an L1 term: features and terms are screened together, reduced problems nest.

Where a call under an L1 term begins: at its start, or at 0.

``safe``: solve until the gap has shrunk tenfold, prove on the reduced problem (what holds there
holds on the full one), reduce further, go on. ``certified``: features far from their bound are left
out on trust, for a solver of many iterations terms far from a kink as well; the answer is checked
on the full data, violators come back in. Both end with the certificate of the full problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound
from cvxscreen.bounds.features_and_samples import bound_components
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Codes, Piece
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Prediction, Selection
from cvxscreen.screening.verdict import Verdict, judge, piece_masks
from cvxscreen.solvers.apg import Momentum
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver, call_checked
from cvxscreen.solvers.prox_newton.schedule import CUT, ScreeningCostModel
from cvxscreen.solvers.prox_newton.subproblem import (
    FEWER,
    IndexedSubproblem,
    first_goal,
    flat,
    next_features,
    pays,
    settled_terms,
)
from cvxscreen.solvers.run import Run
from cvxscreen.solvers.solution import Answer, LazyRates, Round, Solution, shares_proven

Array = NDArray[np.float64]


@dataclass(eq=False)
class ZeroIterate:
    """The point 0 with what the choice of a first reduction asks of it, from one pass.

    It bounds no rounding: unlike from a `Point`, nothing can be proven from it.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    At_theta : array, shape (d,)
        ``A' theta`` of the slopes at 0.
    primal, gap : float
    """

    problem: Problem
    x: Array
    At_theta: Array
    primal: float
    gap: float

    @classmethod
    def of(cls, problem: Problem) -> ZeroIterate:
        """That of `problem`."""
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        losses, x, margins = problem.losses, np.zeros(problem.d), np.zeros(problem.n)
        theta = losses.slope(margins)
        pull = problem.design.adjoint(theta)
        if problem.pure_l1:  # theta is shrunk until it is feasible
            share = 1.0 / max(1.0, float(np.max(np.abs(pull) / penalty.kappa, initial=0.0)))
            gap = float(losses.fenchel_young(margins, share * theta).sum())
        else:
            x_theta, _ = penalty.prox_and_subgradient(
                -(pull + problem.linear), problem.quadratic.diagonal
            )
            gap = 0.5 * problem.quadratic.norm(x_theta) ** 2
        return cls(problem, x, pull, problem.primal(x, margins), gap)


def beginning(problem: Problem, start: Start | None, proves: bool) -> Point:
    """The start, evaluated; without one 0, as a point only where something is proven from it."""
    if start is not None:
        return start.point or reference_point(problem, start.x, start.theta)
    if proves:
        return reference_point(problem, np.zeros(problem.d))
    return ZeroIterate.of(problem)  # type: ignore[return-value]  # what is asked of it is there


Index = NDArray[np.intp]

MAX_ROUNDS = 40
AGAIN = 0.7
"""Proofs go on from what they have left when this is at most that share of what it was."""


def solve_sparse(
    problem: Problem,
    inner: SubproblemSolver,
    mode: str,
    tol: float,
    start: Start | None = None,
    bounds: tuple[Bound, ...] = (),
    on_round: Callable[[Round], None] | None = None,
) -> Solution:
    """Under an L1 term; see `solve_screened`."""
    began = perf_counter()
    run = _Run(problem, inner, mode, tol, bounds, on_round)
    run.begin(start)
    step = run.predicted_round if mode == "certified" else run.proven_round
    while not run.finished and len(run.rounds) < MAX_ROUNDS:
        step()
        run.finished |= run.limits.spent()
    return run.solution(began)


class _Run(Run):
    """The state of one call, and the problem in hand."""

    best: Point

    def prepare(self) -> None:
        """The whole problem in hand, nothing let in yet."""
        self.penalty: L1 = self.problem.penalty  # type: ignore[assignment]
        self.nest = IndexedSubproblem.whole(self.problem)
        self.parts = [
            part for bound in self.bounds for part in bound_components(self.problem, bound)
        ]
        self.factor = 0.25
        self.let_in = np.zeros(self.problem.d, dtype=bool)
        self.kept = np.zeros(self.problem.n, dtype=bool)
        self.thrift = ScreeningCostModel(self.nest, self.inner, self.parts)
        self.point: Point

    def begin(self, start: Start | None) -> None:
        """Evaluate the start (0 without one) and prove what it proves."""
        problem = self.problem
        self.best = self.point = beginning(problem, start, self.mode == "safe")
        self.started = start is not None
        self.thrift.begin(self.point, self.started, None if start is None else start.rate)
        if self.worth_proving():
            self.prove()
            masks = dict(piece_masks(problem.losses, self.screening.codes))
            masks["dropped"] = self.screening.dropped
            self.before = {name: float(mask.mean()) for name, mask in masks.items()}
        else:
            before = self.bounds if start is not None else (), self.point
            self.before = LazyRates(partial(shares_proven, problem, *before))

    @property
    def answered(self) -> bool:
        """Whether a solver has found a point; 0 is no answer."""
        return bool(self.rounds)

    # -- proofs -----------------------------------------------------------------------------

    def prove(self) -> None:
        """Add what the bounds prove from the point, about the problem in hand."""
        if not self.bounds or self.screening.exhausted or not np.isfinite(self.point.gap):
            return
        if self.mode == "safe":
            self.prove_and_narrow()
            return
        for bound in self.bounds:
            self.ask(bound)

    def ask(self, bound: Bound) -> None:
        """Add what one bound proves."""
        nest = self.nest
        verdict: Verdict = judge(nest.problem, bound(nest.problem, self.point))
        self.screening = self.screening.tighten(verdict, nest.terms, nest.features)

    def prove_and_narrow(self) -> None:
        """Prove and reduce in turns, as long as what is left gets much smaller."""
        while True:
            before = self.nest.size
            parts = [*self.parts]
            while parts:
                if self.thrift.little(self.nest) or self.screening.exhausted:
                    return
                part = self.thrift.most_promising(self.nest, self.point, parts, self.aim())
                if part is None:
                    break
                parts.remove(part)
                self.ask(part)
                self.narrow()
            if self.nest.size > AGAIN * before:
                return

    def narrow(self) -> None:
        """Reduce the problem in hand, and the point, by what is proven, where it is worth it."""
        nest = self.nest
        codes = flat(self.screening.codes[nest.terms])
        selection = Selection(codes, self.screening.dropped[nest.features])
        rows, columns = selection.kept, selection.features(nest.problem)
        share = self.thrift.share(nest, self.point.gap, self.aim(), CUT)
        if not self.thrift.fits(nest, nest.size_of(rows, columns), len(columns), share):
            return
        self.nest = nest.within(selection)
        if isinstance(self.result.state, Momentum):
            self.result = replace(self.result, state=self.result.state.take(columns))
        pair = self.point.x[columns], self.point.theta[rows]
        self.point = reference_point(self.nest.problem, *pair)

    def pause(self) -> float:
        """The gap at which to prove again; 0 where that would not pay."""
        if not self.bounds or self.screening.exhausted:
            return 0.0
        return self.thrift.pause(self.nest, self.point, self.aim())

    def worth_proving(self) -> bool:
        """Whether what a start should prove is worth its passes; an estimate without one."""
        if not (self.bounds and np.isfinite(self.point.gap)):
            return False
        if self.mode != "safe":  # what is proven of terms would be among the predicted
            return self.started and not self.thrift.patient and pays(self.point)
        return self.thrift.worth_starting(self.nest, self.point, self.started, self.aim())

    # -- rounds -----------------------------------------------------------------------------

    @property
    def onward(self) -> Point:
        """The point to go on from: the best, or without a quadratic term a later, lower one.

        There a single violator makes the gap of a good point larger than that of the start.
        """
        last = self.point
        lower = self.problem.pure_l1 and last.problem is self.problem
        return last if lower and last.primal < self.best.primal else self.best

    def aim(self) -> float:
        """The absolute gap to end with."""
        return self.factor * self.tol * max(abs(self.onward.primal), 1e-300)

    def proven_round(self) -> None:
        """Reduce by proofs, solve until the gap has shrunk tenfold, look again."""
        began = perf_counter()
        proven = int((self.screening.codes >= 0).sum())
        nest = self.nest
        goal = max(self.pause(), self.aim())
        dynamic = goal > self.aim()
        start = Start(self.point.x, self.point.theta, state=self.result.state)
        solved = self.solve(nest.problem, start, goal)
        if not self.result.usable:
            self.finished = True
            return
        whole = nest.problem is self.problem
        if whole:
            self.point = self.point_of(self.lifted())
        else:
            self.point = reference_point(nest.problem, self.result.x, self.result.theta)
        self.thrift.learn(self.result, self.point.gap, goal, whole)
        last = self.point.gap <= 1.1 * self.aim() or not dynamic
        if last or whole:
            found = self.point if whole else self.point_of(self.lifted())
            self.finish(found, last, self.best.gap)
        if not self.finished:
            self.prove()
        self.record(nest.problem, self.point, (proven, 0, 0), began, solved, nest.problem.d)

    def predicted_round(self) -> None:
        """Leave features and terms out on trust, solve, look at all of them."""
        began = perf_counter()
        proven = int((self.screening.codes >= 0).sum())
        problem, point = self.problem, self.onward
        wanted = next_features(point, self.penalty, self.let_in, self.inner)
        if len(self.rounds) >= MAX_ROUNDS - 2:
            wanted[:] = True
        self.let_in = wanted & ~self.screening.dropped
        chosen = Prediction(Selection(self.told(point), ~wanted)).beside(self.screening)
        settled = flat(chosen.codes)
        if int((settled >= 0).sum()) < (1.0 - FEWER) * problem.n:
            settled = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
        chosen = Selection(settled, chosen.dropped)
        nest = IndexedSubproblem.whole(problem).within(chosen)
        goal, start = first_goal(nest, problem.d, self.aim(), point.gap), None
        if self.started or self.rounds:
            goal, start = self.aim(), Start(point.x[nest.features], point.theta[nest.terms])
        solved = self.solve(nest.problem, start, goal)
        guessed = int(chosen.dropped.sum() - self.screening.dropped.sum())  # type: ignore[union-attr]
        guessed += int(((settled >= 0) & (self.screening.codes < 0)).sum())
        if not self.result.usable:
            self.finished = True
            return
        self.nest = nest
        answer, refuted = self.lifted(settled), 0
        if answer.proof.ok and answer.feasible and answer.proof.gap <= self.best.gap:  # the last
            self.answer, self.finished = answer, True
        else:
            self.point = point = self.point_of(answer)
            pull = np.abs(point.At_theta + problem.linear)
            out = ~wanted & ~self.screening.dropped
            off = Prediction(chosen).refuted(problem, point.margins, self.screening)
            refuted = int((pull[out] > self.penalty.kappa[out]).sum()) + int(off.sum())
            self.finish(point, refuted == 0, self.best.gap)
        counts, best = (proven, guessed, refuted), answer.proof if self.answer else self.best
        self.record(nest.problem, best, counts, began, solved, nest.problem.d)

    def told(self, point: Point) -> Codes:
        """The pieces that terms are predicted to be on; of none for a solver of few passes."""
        begun = self.started or bool(self.rounds)
        if not (begun and self.thrift.patient) or len(self.rounds) >= MAX_ROUNDS - 2:
            return np.full(self.problem.n, Piece.UNDECIDED, dtype=np.int8)
        self.kept = (codes := settled_terms(point, self.kept)) < 0
        return codes

    def solve(self, problem: Problem, start: Start | None, goal: float) -> float:
        """Ask the inner solver; the time when it was done."""
        if problem.d == 0 or problem.n == 0:
            theta = np.clip(problem.losses.slope(np.zeros(problem.n)), problem.losses.lo,
                            problem.losses.hi)
            x = np.zeros(problem.d)
            if problem.d and problem.penalty is not None:
                x = problem.penalty.prox_and_subgradient(
                    -problem.linear, problem.quadratic.diagonal
                )[0]
            self.result = SubproblemResult("optimal", x, theta)
        else:
            self.result = call_checked(self.inner, problem, start, goal)
        return perf_counter()

    def lifted(self, codes: Codes | None = None) -> Answer:
        """The answer to the full problem, certified; `codes` of what the solver has not seen."""
        nest, problem = self.nest, self.problem
        left_out = flat(self.screening.codes) if codes is None else codes
        x, theta = np.zeros(problem.d), problem.losses.piece_slope(left_out)
        x[nest.features] = self.result.x
        theta[nest.terms] = self.result.theta
        theta = np.clip(theta, problem.losses.lo, problem.losses.hi)
        return Answer.of(problem, x, theta, np.zeros(0), self.tol)

    def point_of(self, answer: Answer) -> Point:
        """An answer to go on from, its certificate kept."""
        self._proof = (answer.point, answer.proof)
        return answer.point

    def finish(self, point: Point, last: bool, before: float) -> None:
        """Take over a better point; stop when the full problem is certified or nothing helps."""
        if point.gap < self.best.gap or (not self.rounds and not self.started):
            self.best = point
        if self.best.relative_gap <= self.tol and self.certified(self.best).ok:
            self.finished = True
            return
        if last:
            if self.factor < 1e-5 and point.gap > 0.5 * before:
                self.finished = True
            self.factor *= 0.2
