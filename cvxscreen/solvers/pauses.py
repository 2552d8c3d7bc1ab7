"""When to stop and prove: the gap at which a proof decides enough to be worth its passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import Point
from cvxscreen.problem import Problem
from cvxscreen.screening import Screening
from cvxscreen.solvers.guess import SMALL
from cvxscreen.solvers.inner import Look

Array = NDArray[np.float64]

FALL = 0.1
"""The gap falls at least so much between two proofs."""
CHEAP = 20_000
"""Where the data have fewer entries a proof costs more than the passes it can save."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def pauses(problem: Problem) -> bool:
    """Whether it can pay to interrupt a solver of `problem` for a proof."""
    return problem.n > SMALL and problem.n * min(problem.d, problem.n) > CHEAP


def gap_that_pays(
    best: Point | Look, screening: Screening, share: float, aim: float
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


def promising(best: Point | Look, screening: Screening, share: float) -> bool:
    """Whether a midpoint ball from `best` should decide a `share` of what is undecided."""
    if not np.isfinite(best.gap):
        return False
    ratio = _ratios(best, screening)
    return len(ratio) > 0 and int((ratio > best.reach).sum()) >= share * len(ratio)


def _ratios(best: Point | Look, screening: Screening) -> Array:
    """How far the optimum may be for each undecided term to stay on its piece."""
    problem, rows = best.problem, screening.selection.kept
    away = problem.losses.kink_distance(best.margins)[rows]
    return np.asarray(away / np.maximum(problem.norms[rows], 1e-300))
