"""Second-order cones are screened: left out where they seem not to press, and put back.

A problem with many cones ``F_i x + f_i in K_i`` and few coordinates (the smallest enclosing ball
has one for each point) is bound by about as many of them as it has coordinates. Without the others
it is a relaxation; where its answer satisfies them it is an answer to the full problem, with their
multipliers 0. So few are kept, those that an answer violates most are put back, and the certificate
is made on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import Point, balance_with_multipliers, linear_at, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import Start, SubproblemResult, call_checked
from cvxscreen.solvers.screened import ProblemInMemory, Times
from cvxscreen.solvers.solution import Answer, Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FIRST, AT_ONCE = 50, 50
"""How many cones are kept at first, and put back in a round, at least; and that many times the
coordinates (enclosing balls of 2,000 to 200,000 points in 2 to 50 dimensions: 3 to 6 rounds)."""
PER_COORDINATE = 4

MAX_ROUNDS = 12
"""After so many rounds all cones are kept."""

OUTSIDE = 1e-9
"""By how much, relative to its own size, a point may be outside of a cone that was left out."""


def has_cones_alone(problem: Problem) -> bool:
    """Whether `problem` has no losses, but second-order cones among its constraints."""
    side = problem.side
    return side is not None and not problem.n and bool(side.second_order.any())


def are_many(problem: Problem) -> bool:
    """Whether `problem` has many second-order cones, and no losses."""
    side = problem.side
    return side is not None and not problem.n and side.many_cones


def _side(problem: Problem) -> SideConstraints:
    """The constraints of a problem that has some."""
    if problem.side is None:
        raise InvalidInput("the problem has no side constraints.")
    return problem.side


class ScreenedCones(ProblemInMemory[Mask, Problem, SubproblemResult, SubproblemResult, Point]):
    """A problem in memory whose second-order cones are left out and put back."""

    piloted: ClassVar[bool] = False

    def set_up(self) -> None:
        """Every cone that is of another kind stays."""
        self.second = _side(self.problem).second_order
        self.kept = ~self.second | (self.mode == "safe")
        self.refuted = 0

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """The cones nearest to a start, or to 0, and some of all the others."""
        x = np.zeros(self.problem.d) if start is None else start.x
        room = self.room(x)
        count = max(FIRST, PER_COORDINATE * self.problem.d)
        self.keep(room, count)
        every = np.flatnonzero(self.second)
        self.kept[every[:: max(1, len(every) // count)]] = True

    def room(self, x: Array) -> Array:
        """How far inside of each second-order cone `x` is, relative to its size; infinite else."""
        side = _side(self.problem)
        slack, out = side.slack(x), []
        for kind, size, rows in side.runs:
            if kind == "soc":
                table = slack[rows].reshape(-1, size)
                head, norm = table[:, 0], np.linalg.norm(table[:, 1:], axis=1)
                out.append((head - norm) / np.maximum(np.abs(head) + norm, 1e-300))
            else:
                count = 1 if kind == "psd" else (rows.stop - rows.start) // size
                out.append(np.full(count, np.inf))
        return np.concatenate(out)

    def keep(self, room: Array, count: int) -> None:
        """Keep the `count` second-order cones with the least room besides those kept already."""
        left = np.where(self.kept, np.inf, room)
        count = min(count, int((~self.kept).sum()))
        if count:
            self.kept[np.argpartition(left, count - 1)[:count]] = True

    def select(self) -> Mask:
        """The cones that are kept; all of them where many rounds have not been enough."""
        if len(self.rounds) >= MAX_ROUNDS:
            self.kept[:] = True
        return self.kept.copy()

    def reduce(
        self, selection: Mask
    ) -> tuple[Problem, Callable[[SubproblemResult], SubproblemResult]]:
        """The problem with these cones only; the others' multipliers are 0."""
        side = _side(self.problem)
        left, rows = side.take(selection)

        reduced = replace(self.problem, side=left, layout=None)

        def lift(found: SubproblemResult) -> SubproblemResult:
            # A solver's multipliers balance to its tolerance only, which costs the gap far away.
            slope, near = linear_at(reduced, found.x), left.project_dual(found.multipliers)
            multipliers = np.zeros(len(side.offset))
            multipliers[rows] = balance_with_multipliers(reduced, found.theta, near, slope)[1]
            return replace(found, multipliers=multipliers)

        return reduced, lift

    def solve(self, reduced: Problem, selection: Mask) -> SubproblemResult | None:
        """Solve the problem with the kept cones; None where the solver has no point."""
        self.result = call_checked(self.inner, reduced)
        return self.result if self.result.usable else None

    def evaluate(self, lifted: SubproblemResult, selection: Mask) -> Point:
        """The answer on all cones."""
        return reference_point(self.problem, lifted.x, lifted.theta, lifted.multipliers)

    def put_back(self, selection: Mask, point: Point | None) -> int:
        """The cones that the answer violates most; many more where there is no answer."""
        count = max(AT_ONCE, PER_COORDINATE * self.problem.d)
        if point is None:  # a relaxation may be unbounded where the problem is not
            self.refuted = int((~selection).sum())
            if self.refuted:
                x = np.zeros(self.problem.d) if self.best is None else self.best.x
                self.keep(self.room(x), 8 * int(selection.sum()) + count)
            return self.refuted
        room = self.room(point.x)
        outside = ~selection & (room < -OUTSIDE)
        self.refuted = int(outside.sum())
        self.best = point
        if self.refuted:
            self.keep(room, min(self.refuted, count))
        return self.refuted

    def close(self, selection: Mask, refuted: int, times: Times) -> None:
        """Record the round; over where nothing was refuted."""
        kept, predicted = int((selection & self.second).sum()), int((~selection).sum())
        self.record(kept, self.best, (0, predicted, refuted), times)
        self.finished = refuted == 0
        if self.finished and self.best is not None:
            best = self.best
            self.answer = Answer.known(best, self.certified(best))
