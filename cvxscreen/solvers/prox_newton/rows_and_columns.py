"""Under an L1 term features and terms are screened together, and reduced problems nest.

``safe`` (`ProvenRowsAndColumns`): solve until the gap has shrunk enough, prove on the reduced
problem (what holds there holds on the full one), reduce further, go on. ``certified``
(`PredictedRowsAndColumns`): features far from their bound are left out on trust, for a solver of
many iterations terms far from a kink as well; the answer is checked on the full data, violators
come back in. Both end with the certificate of the full problem.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound
from cvxscreen.bounds.features_and_samples import bound_components
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Codes, Piece
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Prediction, Selection
from cvxscreen.screening.verdict import judge
from cvxscreen.solvers.apg import Momentum
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver, call_checked
from cvxscreen.solvers.prox_newton.schedule import CUT, ScreeningCostModel
from cvxscreen.solvers.prox_newton.subproblem import (
    FEWER,
    IndexedSubproblem,
    Iterate,
    ZeroIterate,
    first_goal,
    flat,
    next_features,
    pays,
    predicted_pieces,
)
from cvxscreen.solvers.screened import P, ProblemInMemory, Times
from cvxscreen.solvers.solution import Answer, LazyRates, Round, Solution, shares_of, shares_proven

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

MAX_ROUNDS = 40
"""Rounds of a call at most; the last two leave no feature out on trust."""
AGAIN = 0.7
"""Proofs go on from what they have left when this is at most that share of what it was."""
FIRST_SHARE, SMALLEST_SHARE, LESS = 0.25, 1e-5, 0.2
"""Share of the tolerance that a solver is asked for; when to give up on asking for less of it; by
which factor the share falls where the certificate wants more than the solver's gap said."""


def beginning(problem: Problem, start: Start | None, proves: bool) -> Iterate:
    """The start, evaluated; without one 0, as a point only where something is proven from it."""
    if start is not None:
        return start.point or reference_point(problem, start.x, start.theta)
    return reference_point(problem, np.zeros(problem.d)) if proves else ZeroIterate.of(problem)


class RowsAndColumns(
    ProblemInMemory[Selection, IndexedSubproblem, SubproblemResult, Pair, P]
):
    """What is known of a problem under an L1 term, and the reduced problem in hand.

    Attributes
    ----------
    subproblem : IndexedSubproblem
        The reduced problem in hand.
    point : Point or ZeroIterate
        The last one that was evaluated.
    cost : ScreeningCostModel
        What pays.
    factor : float
        Share of the tolerance that the solver is asked for.
    """

    point: Iterate

    def __init__(
        self,
        problem: Problem,
        inner: SubproblemSolver,
        mode: str,
        tol: float,
        bounds: tuple[Bound, ...],
        on_round: Callable[[Round], None] | None,
    ) -> None:
        super().__init__(problem, inner, mode, tol, bounds, on_round)
        self.penalty: L1 = problem.penalty  # type: ignore[assignment]
        self.subproblem = IndexedSubproblem.whole(problem)
        self.components = [
            component for bound in bounds for component in bound_components(problem, bound)
        ]
        self.cost = ScreeningCostModel(self.subproblem, inner, self.components)
        self.factor = FIRST_SHARE
        self.started = self.last = False
        self.target = 0.0

    # -- where a call begins ----------------------------------------------------------------

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Evaluate the start (0 without one) and prove what it proves."""
        problem, self.started = self.problem, start is not None
        self.point = beginning(problem, start, self.mode == "safe")
        if isinstance(self.point, Point):
            self.best = self.point
        self.cost.begin(self.point, self.started, None if start is None else start.rate)
        if isinstance(self.point, Point) and self.worth_proving(self.point):
            self.prove()
            self.before = shares_of(self.screening)
        elif isinstance(self.point, Point) and self.started:
            self.before = LazyRates(partial(shares_proven, problem, self.bounds, self.point))
        else:
            self.before = LazyRates(partial(shares_of, self.screening))

    @abstractmethod
    def worth_proving(self, point: Point) -> bool:
        """Whether what a start should prove is worth its passes; an estimate without one."""

    @abstractmethod
    def prove(self) -> None:
        """Add what the bounds prove from the point, about the problem in hand."""

    def ask(self, bound: Bound, point: Point) -> None:
        """Add what one bound proves from `point`."""
        held = self.subproblem
        verdict = judge(held.problem, bound(held.problem, point))
        self.screening = self.screening.tighten(verdict, held.terms, held.features)

    # -- what every round asks --------------------------------------------------------------

    @property
    def over(self) -> bool:
        """As of every problem; there is a largest number of rounds."""
        return len(self.rounds) >= MAX_ROUNDS or super().over

    @property
    def answered(self) -> bool:
        """Whether a solver has found a point; neither 0 nor a start is an answer."""
        return bool(self.rounds)

    @property
    def least_gap(self) -> float:
        """The gap of the best point, or of where the call begins."""
        return self.point.gap if self.best is None else self.best.gap

    @property
    def onward(self) -> Iterate:
        """The point to go on from: the best, or without a quadratic term a later, lower one.

        There a single violator makes the gap of a good point larger than that of the start.
        """
        last = self.point
        if self.best is None:
            return last
        lower = self.problem.pure_l1 and last.problem is self.problem
        return last if lower and last.primal < self.best.primal else self.best

    def aim(self) -> float:
        """The absolute gap to end with."""
        return self.factor * self.tol * max(abs(self.onward.primal), 1e-300)

    def called(
        self, problem: Problem, start: Start | None, target: float
    ) -> SubproblemResult | None:
        """The inner solver's result; in closed form where nothing is left."""
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
            self.result = call_checked(self.inner, problem, start, target)
        return self.result if self.result.usable else None

    def lifted(self, result: SubproblemResult, codes: Codes) -> Pair:
        """The answer to the problem in hand for the full one; `codes` of what it leaves out."""
        held, problem = self.subproblem, self.problem
        x, theta = np.zeros(problem.d), problem.losses.piece_slope(codes)
        x[held.features] = result.x
        theta[held.terms] = result.theta
        return x, np.clip(theta, problem.losses.lo, problem.losses.hi)

    def point_of(self, answer: Answer) -> Point:
        """An answer to go on from, its certificate kept."""
        self._proof = (answer.point, answer.proof)
        return answer.point

    def finish(self, point: Point, last: bool) -> None:
        """Take over a better point; stop when the full problem is certified or nothing helps."""
        before = self.least_gap
        if self.best is None or point.gap < self.best.gap or not (self.rounds or self.started):
            self.best = point
        if self.best.relative_gap <= self.tol and self.certified(self.best).ok:
            self.finished = True
            return
        if last:
            if self.factor < SMALLEST_SHARE and point.gap > 0.5 * before:
                self.finished = True
            self.factor *= LESS


class ProvenRowsAndColumns(RowsAndColumns[Point]):
    """Only what is proven is left out; see the module's docstring."""

    point: Point

    def worth_proving(self, point: Point) -> bool:
        """Whether what a start should prove is worth its passes; an estimate without one."""
        if not (self.bounds and np.isfinite(point.gap)):
            return False
        return self.cost.worth_starting(self.subproblem, point, self.started, self.aim())

    def prove(self) -> None:
        """Prove and reduce in turns, as long as what is left gets much smaller."""
        if not self.bounds or self.screening.exhausted or not np.isfinite(self.point.gap):
            return
        while True:
            before = self.subproblem.size
            components = [*self.components]
            while components:
                if self.cost.little(self.subproblem) or self.screening.exhausted:
                    return
                component = self.cost.most_promising(
                    self.subproblem, self.point, components, self.aim()
                )
                if component is None:
                    break
                components.remove(component)
                self.ask(component, self.point)
                self.narrow()
            if self.subproblem.size > AGAIN * before:
                return

    def narrow(self) -> None:
        """Reduce the problem in hand, and the point, by what is proven, where it is worth it."""
        held = self.subproblem
        codes = flat(self.screening.codes[held.terms])
        selection = Selection(codes, self.screening.dropped[held.features])
        rows, columns = selection.kept, selection.features(held.problem)
        share = self.cost.share(held, self.point.gap, self.aim(), CUT)
        if not self.cost.fits(held, held.size_of(rows, columns), len(columns), share):
            return
        self.subproblem = held.within(selection)
        if isinstance(self.result.state, Momentum):
            self.result = replace(self.result, state=self.result.state.take(columns))
        pair = self.point.x[columns], self.point.theta[rows]
        self.point = reference_point(self.subproblem.problem, *pair)

    def pause(self) -> float:
        """The gap at which to prove again; 0 where that would not pay."""
        if not self.bounds or self.screening.exhausted:
            return 0.0
        return self.cost.pause(self.subproblem, self.point, self.aim())

    def select(self) -> Selection:
        """What the last point proves, added to what is known; a start has been asked before."""
        if self.rounds:
            self.prove()
        return self.screening.selection

    def reduce(
        self, selection: Selection
    ) -> tuple[IndexedSubproblem, Callable[[SubproblemResult], Pair]]:
        """The problem in hand: proofs and reductions take turns, so it is there already."""
        return self.subproblem, lambda result: (result.x, result.theta)

    def solve(
        self, reduced: IndexedSubproblem, selection: Selection
    ) -> SubproblemResult | None:
        """The solver's answer to the gap at which another proof should pay, else to the last."""
        aim = self.aim()
        self.target = max(self.pause(), aim)
        self.last = not self.target > aim
        start = Start(self.point.x, self.point.theta, state=self.result.state)
        return self.called(reduced.problem, start, self.target)

    def evaluate(self, lifted: Pair, selection: Selection) -> Point:
        """On the problem in hand, for proofs to go on from; on everything if it may be the last."""
        held, problem = self.subproblem.problem, self.problem
        whole = held is problem
        if whole:
            pair = self.lifted(self.result, flat(self.screening.codes))
            found = self.point_of(Answer.of(problem, *pair, np.zeros(0), self.tol))
        else:
            found = reference_point(held, *lifted)
        self.cost.learn(self.result, found.gap, self.target, whole)
        self.point = found
        self.last = self.last or found.gap <= 1.1 * self.aim()
        if self.last and not whole:
            pair = self.lifted(self.result, flat(self.screening.codes))
            return self.point_of(Answer.of(problem, *pair, np.zeros(0), self.tol))
        return found

    def put_back(self, selection: Selection, point: Point | None) -> int:
        """Nothing: what is proven stays out. Take over a point of the full problem."""
        if point is None:
            self.finished = True
        elif point.problem is self.problem:
            self.finish(point, self.last)
        return 0

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record a round that found a point."""
        if self.result.usable:
            proven = int((self.screening.codes >= 0).sum())
            part = self.subproblem.problem
            self.record(part.n, self.point, (proven, 0, refuted), times, part.d)


class PredictedRowsAndColumns(RowsAndColumns[Answer]):
    """Features and terms are left out on trust; see the module's docstring."""

    def __init__(
        self,
        problem: Problem,
        inner: SubproblemSolver,
        mode: str,
        tol: float,
        bounds: tuple[Bound, ...],
        on_round: Callable[[Round], None] | None,
    ) -> None:
        super().__init__(problem, inner, mode, tol, bounds, on_round)
        self.working_set = np.zeros(problem.d, dtype=bool)
        self.kept_terms = np.zeros(problem.n, dtype=bool)
        self.wanted = self.working_set
        self.predicted = 0

    def worth_proving(self, point: Point) -> bool:
        """Whether a start proves enough: what it proves of terms is among the predicted."""
        if not (self.bounds and np.isfinite(point.gap)):
            return False
        return self.started and not self.cost.patient and pays(point)

    def prove(self) -> None:
        """Add what the bounds prove from the start."""
        point = self.point
        if self.bounds and isinstance(point, Point) and not self.screening.exhausted:
            for bound in self.bounds:
                self.ask(bound, point)

    def select(self) -> Selection:
        """The features that are 0 and far from leaving it, and the terms far from a kink."""
        problem, point, known = self.problem, self.onward, self.screening
        wanted = next_features(point, self.penalty, self.working_set, self.inner)
        if len(self.rounds) >= MAX_ROUNDS - 2:
            wanted[:] = True
        self.wanted, self.working_set = wanted, wanted & ~known.dropped
        chosen = Prediction(Selection(self.pieces(point), ~wanted)).beside(known)
        codes = flat(chosen.codes)
        if int((codes >= 0).sum()) < (1.0 - FEWER) * problem.n:
            codes = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
        chosen = Selection(codes, chosen.dropped)
        self.predicted = int(chosen.dropped.sum() - known.dropped.sum())  # type: ignore[union-attr]
        self.predicted += int(((codes >= 0) & (known.codes < 0)).sum())
        return chosen

    def pieces(self, point: Iterate) -> Codes:
        """The pieces that terms are predicted to be on; of none for a solver of few passes."""
        last = len(self.rounds) >= MAX_ROUNDS - 2
        if isinstance(point, ZeroIterate) or not self.cost.patient or last:
            return np.full(self.problem.n, Piece.UNDECIDED, dtype=np.int8)
        self.kept_terms = (codes := predicted_pieces(point, self.kept_terms)) < 0
        return codes

    def reduce(
        self, selection: Selection
    ) -> tuple[IndexedSubproblem, Callable[[SubproblemResult], Pair]]:
        """Leave them out of the full problem."""
        self.subproblem = IndexedSubproblem.whole(self.problem).within(selection)
        return self.subproblem, partial(self.lifted, codes=selection.codes)

    def solve(
        self, reduced: IndexedSubproblem, selection: Selection
    ) -> SubproblemResult | None:
        """The solver's answer to the last gap, or from 0 to a rough one."""
        point = self.onward
        if isinstance(point, ZeroIterate):
            return self.called(
                reduced.problem, None,
                first_goal(reduced, self.problem.d, self.aim(), point.gap),
            )
        start = Start(point.x[reduced.features], point.theta[reduced.terms])
        return self.called(reduced.problem, start, self.aim())

    def evaluate(self, lifted: Pair, selection: Selection) -> Answer:
        """The pair with its certificate; as a point only once one is needed."""
        return Answer.of(self.problem, *lifted, np.zeros(0), self.tol)

    def put_back(self, selection: Selection, point: Answer | None) -> int:
        """Take over an answer; else count the features that leave 0 and the terms that move."""
        if point is None:
            self.finished = True
            return 0
        proof = point.proof
        if proof.ok and point.feasible and proof.gap <= self.least_gap:
            self.answer, self.finished = point, True
            return 0
        here = self.point_of(point)
        violation = np.abs(here.At_theta + self.problem.linear)
        out = ~self.wanted & ~self.screening.dropped
        off = Prediction(selection).refuted(self.problem, here.margins, self.screening)
        refuted = int((violation[out] > self.penalty.kappa[out]).sum()) + int(off.sum())
        self.point = here
        self.finish(here, refuted == 0)
        return refuted

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record a round that found a point."""
        if not self.result.usable:
            return
        best = self.best if self.answer is None else self.answer.proof
        proven = int((self.screening.codes >= 0).sum())
        part = self.subproblem.problem
        self.record(part.n, best, (proven, self.predicted, refuted), times, part.d)
