"""The loop under an L1 term: features and terms are screened together, reduced problems nest.

``safe``: solve until the gap has shrunk tenfold, prove on the reduced problem (what holds there
holds on the full one), reduce further, go on. ``certified``: features far from their bound are left
out on trust; the answer is checked on the full data, violators come back in. Both end with the
certificate of the full problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound
from cvxscreen.duality import Point, reference_point
from cvxscreen.losses import Piece
from cvxscreen.penalty import L1
from cvxscreen.problem import Problem
from cvxscreen.rules import Verdict, judge, piece_masks
from cvxscreen.screening import Prediction
from cvxscreen.selection import Selection
from cvxscreen.shares import Shares
from cvxscreen.solvers.inner import Inner, InnerResult, Start, ask
from cvxscreen.solvers.run import Run
from cvxscreen.solvers.solution import Round, Solution, shares_proven
from cvxscreen.solvers.sparse_nest import FEWER, Nest, flat, pays, wanted_features

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MAX_ROUNDS = 40
SHRINK = 0.1
"""The gap shrinks to this share of itself between two screenings."""
WORTH = 0.95
"""A reduction is carried out when it leaves at most this share of the rows or of the columns."""


def solve_sparse(
    problem: Problem,
    inner: Inner,
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
    return replace(run.solution(), seconds=perf_counter() - began)


class _Run(Run):
    """The state of one call, and the problem in hand."""

    best: Point

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
        self.penalty: L1 = problem.penalty  # type: ignore[assignment]
        self.nest = Nest(problem, np.arange(problem.n), np.arange(problem.d))
        self.factor = 0.25
        self.let_in = np.zeros(problem.d, dtype=bool)
        self.point: Point

    def begin(self, start: Start | None) -> None:
        """Evaluate the start (0 without one) and prove what it proves."""
        problem = self.problem
        if start is not None:
            self.point = start.point or reference_point(problem, start.x, start.theta)
        else:
            self.point = reference_point(problem, np.zeros(problem.d))
        self.best = self.point
        self.started = start is not None
        if self.mode == "safe" or (start is not None and self.bounds and pays(self.point)):
            self.prove()
            masks = dict(piece_masks(problem.losses, self.screening.codes))
            masks["dropped"] = self.screening.dropped
            self.before = {name: float(mask.mean()) for name, mask in masks.items()}
        else:
            bounds = self.bounds if start is not None else ()
            self.before = Shares(partial(shares_proven, problem, bounds, self.point))

    @property
    def answered(self) -> bool:
        """Whether a solver has found a point; 0 is no answer."""
        return bool(self.rounds)

    # -- proofs -----------------------------------------------------------------------------

    def prove(self) -> None:
        """Add what the bounds prove from the point, about the problem in hand."""
        here = self.nest.problem
        if self.screening.exhausted or not np.isfinite(self.point.gap):
            return
        for bound in self.bounds:
            verdict: Verdict = judge(here, bound(here, self.point))
            self.screening = self.screening.tighten(verdict, self.nest.terms, self.nest.features)

    def narrow(self) -> None:
        """Reduce the problem in hand by what is proven, where it is worth it."""
        nest = self.nest
        codes = flat(self.screening.codes[nest.terms])
        selection = Selection(codes, self.screening.dropped[nest.features])
        few_terms = len(selection.kept) <= WORTH * len(nest.terms)
        few_features = int((~self.screening.dropped[nest.features]).sum())
        if few_terms or few_features <= WORTH * len(nest.features):
            x, theta = self.point.x[~self.screening.dropped[nest.features]], self.point.theta
            self.nest = nest.within(selection)
            self.start = Start(x, theta[selection.kept])
        else:
            self.start = Start(self.point.x, self.point.theta)

    # -- rounds -----------------------------------------------------------------------------

    @property
    def onward(self) -> Point:
        """The point to go on from: the best, or without a quadratic term a later, lower one.

        There a single violator makes the gap of a good point larger than that of the start.
        """
        last = self.point
        lower = self.problem.held and last.problem is self.problem
        return last if lower and last.primal < self.best.primal else self.best

    def aim(self) -> float:
        """The absolute gap to end with."""
        return self.factor * self.tol * max(abs(self.onward.primal), 1e-300)

    def proven_round(self) -> None:
        """Reduce by proofs, solve until the gap has shrunk tenfold, look again."""
        began = perf_counter()
        proven = int((self.screening.codes >= 0).sum())
        self.narrow()
        nest = self.nest
        dynamic = bool(self.bounds) and not self.screening.exhausted
        goal = max(SHRINK * self.point.gap, self.aim()) if dynamic else self.aim()
        solved = self.solve(nest.problem, self.start, goal)
        if not self.result.usable:
            self.finished = True
            return
        self.point = reference_point(nest.problem, self.result.x, self.result.theta)
        last = self.point.gap <= 1.1 * self.aim() or not dynamic
        if last or nest.problem is self.problem:
            before = self.best.gap
            self.finish(self.lifted(self.point), last, before)
        if not self.finished:
            self.prove()
        self.record(nest.problem, self.point, (proven, 0, 0), began, solved, nest.problem.d)

    def predicted_round(self) -> None:
        """Leave features out on trust, solve, look at all of them."""
        began = perf_counter()
        proven = int((self.screening.codes >= 0).sum())
        point, kappa = self.onward, self.penalty.kappa
        pull = np.abs(point.pull + self.problem.linear)
        wanted = wanted_features(point.x, pull, kappa, self.let_in)
        if len(self.rounds) >= MAX_ROUNDS - 2 or int(wanted.sum()) > FEWER * self.problem.d:
            wanted[:] = True
        self.let_in = wanted & ~self.screening.dropped
        codes = np.full(self.problem.n, Piece.UNDECIDED, dtype=np.int8)
        chosen = Prediction(Selection(codes, ~wanted)).beside(self.screening)
        settled = flat(chosen.codes)
        few = int((settled >= 0).sum()) < (1.0 - FEWER) * self.problem.n
        chosen = Selection(codes if few else settled, chosen.dropped)
        nest = Nest(self.problem, np.arange(self.problem.n), np.arange(self.problem.d))
        nest = nest.within(chosen)
        start = None
        if self.started or self.rounds:
            start = Start(point.x[nest.features], point.theta[nest.terms])
        solved = self.solve(nest.problem, start, self.aim())
        guessed = int(chosen.dropped.sum() - self.screening.dropped.sum())  # type: ignore[union-attr]
        if not self.result.usable:
            self.finished = True
            return
        self.nest = nest
        self.point = self.lifted(None)
        pull = np.abs(self.point.pull + self.problem.linear)
        refuted = int(((pull > kappa) & ~wanted & ~self.screening.dropped).sum())
        before = self.best.gap
        self.finish(self.point, refuted == 0, before)
        counts = (proven, guessed, refuted)
        self.record(nest.problem, self.best, counts, began, solved, nest.problem.d)

    def solve(self, problem: Problem, start: Start | None, goal: float) -> float:
        """Ask the inner solver; the time when it was done."""
        if problem.d == 0 or problem.n == 0:
            theta = np.clip(problem.losses.slope(np.zeros(problem.n)), problem.losses.lo,
                            problem.losses.hi)
            x = np.zeros(problem.d)
            if problem.d and problem.penalty is not None:
                x = problem.penalty.split(-problem.linear, problem.quadratic.diagonal)[0]
            self.result = InnerResult("optimal", x, theta)
        else:
            self.result = ask(self.inner, problem, start, goal)
        return perf_counter()

    def lifted(self, point: Point | None) -> Point:
        """The inner solver's answer as a point of the full problem."""
        if point is not None and point.problem is self.problem:
            return point
        nest, problem = self.nest, self.problem
        x, theta = np.zeros(problem.d), problem.losses.piece_slope(flat(self.screening.codes))
        x[nest.features] = self.result.x
        theta[nest.terms] = self.result.theta
        return reference_point(problem, x, theta)

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
