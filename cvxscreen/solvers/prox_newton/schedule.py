"""Under an L1 term: when to prove, and which proofs and reductions should save more than they cost.

Nothing here is proven, and nothing that is proven depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound, dual_ball, joint, midpoint_ball, synergy
from cvxscreen.bounds.features_and_samples import primal_ball
from cvxscreen.core.duality import Point
from cvxscreen.core.losses import kinked
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.interface import SubproblemResult, SubproblemSolver
from cvxscreen.solvers.prox_newton.subproblem import IndexedSubproblem, Iterate

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHRINK = 0.1
"""The gap shrinks at least to this share of itself between two screenings."""
SMALL = 50_000
"""The work of a pass below which a proof takes less time than the start of a solve."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def sides_of(components: Sequence[Bound]) -> str:
    """What the bounds decide: "features", "samples" or "both"."""
    if [*components] == [dual_ball]:
        return "features"
    return "both" if {dual_ball, joint, synergy} & {*components} else "samples"


def eager(subproblem: IndexedSubproblem, inner: SubproblemSolver) -> bool:
    """Whether all that is proven is used, whatever it costs.

    So before a solver that is not built in, which takes longer than any proof, and on little data.
    """
    return not inner.traits.reaches_target or subproblem.size <= SMALL


def left_after(point: Point, gap: float, sides: str) -> tuple[Mask, Mask]:
    """The terms and the features that a proof should leave at `gap`, shapes (n,) and (d,).

    A ball of gap G has a radius of about ``sqrt(G)`` and decides the terms whose margin is farther
    than that times ``||a_i||`` from a kink, and the features whose pull is farther than that times
    ``||A_j||`` from leaving 0. Nothing here is proven. `sides` says what is asked: "features",
    "samples" or "both".
    """
    problem, (rows, columns) = point.problem, deciding_gaps(point)
    every = np.ones(problem.n, dtype=bool), np.ones(problem.d, dtype=bool)
    return (
        every[0] if sides == "features" else rows < gap,
        every[1] if sides == "samples" else columns < gap,
    )


def deciding_gaps(point: Point) -> tuple[Array, Array]:
    """The gap at which a proof should decide each term and each feature; kept. See `left_after`."""
    found: tuple[Array, Array] | None = point.__dict__.get("_deciding_gaps")
    if found is None:
        problem = point.problem
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        slack = np.maximum(penalty.kappa - np.abs(point.At_theta + problem.linear), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = (problem.losses.kink_distance(point.margins) / problem.norms) ** 2
            found = rows, (slack / problem.column_norms) ** 2
        point.__dict__["_deciding_gaps"] = found
    return found


def size_after(subproblem: IndexedSubproblem, point: Point, gap: float, sides: str) -> float:
    """The work of a pass over what a proof should leave; see `left_after`."""
    return subproblem.size_of(*left_after(point, gap, sides))


def gap_that_pays(
    subproblem: IndexedSubproblem,
    point: Point,
    worth: Callable[[float], float],
    aim: float,
    sides: str,
) -> float:
    """The first of a tenth, a hundredth, ... of the point's gap at which to prove; 0 without one.

    There a proof should leave at most the share `worth` (of that gap) of the work of a pass.
    """
    gap = SHRINK * point.gap
    if not curved(subproblem.problem):
        return gap  # without curvature there is no such radius
    while gap > LAST * aim:
        if size_after(subproblem, point, gap, sides) <= worth(gap) * subproblem.size:
            return float(gap)
        gap *= SHRINK
    return 0.0


def curved(problem: Problem) -> bool:
    """Whether every term bends, so that the dual optimum lies in a ball."""
    losses = problem.losses
    return not kinked(losses.q, losses.lo, losses.hi).any()


WORTH, EAGER = 0.7, 0.95
"""A reduction by proofs is carried out when it leaves at most this share of the work of a pass; the
second before a solver that is not built in, on little data, and at most."""
QUICKLY = 0.05
"""The same from a warm start, where the solver takes a handful of passes in all."""
LITTLE = 0.05
"""A problem of at most this share of the work of a pass is reduced no further for such a solver."""
PROOF, CUT = 1.0, 0.5
"""What a proof on one side with its reduction, and the reduction alone, take of a solver that takes
many: so many iterations on the same data, and those of `SMALL` data on top."""

ONE_SIDED: tuple[Bound, ...] = (dual_ball, primal_ball, midpoint_ball)
"""Bounds of which it is estimated what they leave; others are asked in any case."""


class ScreeningCostModel:
    """What is worth while in one call.

    Parameters
    ----------
    nest : Nest
        The whole problem.
    inner : Inner
    parts : sequence of Bound
        What is asked in turns.

    Attributes
    ----------
    eager : bool
        Whether all that is proven is used, whatever it costs.
    quick : bool
        Whether the solver takes a handful of passes in all; see `begin`.
    rate : float or None
        Iterations to a tenth of the gap, where something is known: of this call, before the first
        of them of the one whose answer it starts from.
    """

    def __init__(
        self, subproblem: IndexedSubproblem, inner: SubproblemSolver, components: Sequence[Bound]
    ) -> None:
        self.everything, self.components, self.sides = (
            subproblem.size,
            len(components),
            sides_of(components),
        )
        self.eager = eager(subproblem, inner)
        self.bends = curved(subproblem.problem)
        self.few_iterations = inner.traits.few_iterations
        self.quick = False
        self.rate: float | None = None
        self.first, self.iterations = 0.0, 0

    @property
    def patient(self) -> bool:
        """Whether the solver takes many iterations, and few terms change their piece meanwhile."""
        return not (self.few_iterations or self.eager) and self.bends

    def begin(self, point: Iterate, started: bool, rate: float | None) -> None:
        """Where the call starts from; `rate` as the call that led there has found it."""
        self.quick = started and not self.eager and self.few_iterations
        self.first = point.gap
        if not (self.few_iterations or self.eager):
            self.rate = rate

    def learn(self, result: SubproblemResult, gap: float, goal: float, whole: bool) -> None:
        """A solve has ended at `gap`; what it tells goes with its record to the next call.

        What the last iteration does beyond the goal is not counted; no iteration tells nothing.
        Few iterations on a reduced problem do not say that few had been enough for the `whole`.
        """
        self.iterations += int(result.info.get("epochs", result.info.get("steps", 0)))
        if self.few_iterations or self.eager:
            return
        fall = self.first / max(gap, goal, 1e-300)
        if self.iterations and fall > 2.0:
            rate = self.iterations / float(np.log10(fall))
            self.rate = rate if whole or self.rate is None else max(rate, self.rate)
        result.info["rate"] = self.rate

    def share(
        self, subproblem: IndexedSubproblem, gap: float, aim: float, cost: float = PROOF
    ) -> float:
        """What may be left of a pass for iterations worth `cost` to be saved on the way to `aim`.

        Negative where there are not so many to come.
        """
        if self.eager or self.rate is None:
            return EAGER if self.eager else WORTH
        left = self.rate * float(np.log10(max(gap / max(aim, 1e-300), 1.0)))
        cost *= 1.0 + SMALL / subproblem.size
        return min(1.0 - cost / left, EAGER) if left > 0.0 else -1.0

    def little(self, subproblem: IndexedSubproblem) -> bool:
        """Whether what is left costs nothing beside the passes of the certificate."""
        if not (subproblem.problem.n and subproblem.problem.d):
            return True
        return (self.few_iterations or self.eager) and subproblem.size <= LITTLE * self.everything

    def most_promising(
        self, subproblem: IndexedSubproblem, point: Point, components: Sequence[Bound], aim: float
    ) -> Bound | None:
        """The one that should leave least; None where none should leave little enough."""
        share, left, good = self.share(subproblem, point.gap, aim), {}, []
        for component in components:
            left[component] = 0.0
            if component in ONE_SIDED:
                rows, columns = left_after(point, point.gap, sides_of([component]))
                left[component] = subproblem.size_of(rows, columns)
                if not self.fits(subproblem, left[component], int(columns.sum()), share):
                    continue
            good.append(component)
        return min(good, key=lambda component: left[component], default=None)

    def fits(self, subproblem: IndexedSubproblem, size: float, features: int, share: float) -> bool:
        """Whether so much is left of the work of a pass, or so few features, at most.

        To a solver of many iterations features that end at 0 but are near to leaving it cost
        iterations, however few entries they have.
        """
        few = not (self.few_iterations or self.eager) and features <= share * subproblem.problem.d
        return few or size <= share * subproblem.size

    def pause(self, subproblem: IndexedSubproblem, point: Point, aim: float) -> float:
        """The gap at which to prove again; 0 where that would not pay."""
        if self.quick or self.little(subproblem):
            return 0.0
        if self.eager:
            return gap_that_pays(subproblem, point, lambda gap: np.inf, aim, self.sides)
        cost = PROOF * self.components
        return gap_that_pays(
            subproblem, point, lambda gap: self.share(subproblem, gap, aim, cost), aim, self.sides
        )

    def worth_starting(
        self, subproblem: IndexedSubproblem, point: Point, started: bool, aim: float
    ) -> bool:
        """Whether what the start should prove is worth its passes; an estimate without one."""
        if self.eager:
            return started or point.gap > aim
        if point.gap <= aim or not curved(subproblem.problem):
            return point.gap > aim
        left = size_after(subproblem, point, point.gap, self.sides)
        share = (
            QUICKLY
            if self.quick
            else self.share(subproblem, point.gap, aim, PROOF * self.components)
        )
        return left <= share * subproblem.size
