"""To which gap the reduced problems are solved, and at which gap a proof is worth its passes.

Nothing here is proven, and nothing that is proven depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import SolverSnapshot, SubproblemSolver
from cvxscreen.solvers.prediction import SMALL, size_of_optimum

Array = NDArray[np.float64]

FALL = 0.1
"""The gap falls at least so much between two proofs."""
CHEAP = 20_000
"""Where the data have fewer entries a proof costs more than the passes it can save."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def interrupting_can_pay(problem: Problem) -> bool:
    """Whether it can pay to interrupt a solver of `problem` for a proof."""
    return problem.n > SMALL and problem.n * min(problem.d, problem.n) > CHEAP


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
WORTH = 0.8
"""A reduction that keeps a larger share of the terms costs more than it saves."""


@dataclass(eq=False)
class ToleranceSchedule:
    """What to ask for in the next round of one call.

    Attributes
    ----------
    problem : Problem
    inner : Inner
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
        return self.factor * share * self.tol * max(scale, 1e-300)

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
