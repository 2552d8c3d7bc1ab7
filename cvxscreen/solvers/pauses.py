"""When to stop and prove: the gap at which a proof decides enough to be worth its passes."""

from __future__ import annotations

import numpy as np

from cvxscreen.duality import Point
from cvxscreen.problem import Problem
from cvxscreen.screening import Screening
from cvxscreen.solvers.guess import SMALL

FALL = 0.1
"""The gap falls at least so much between two proofs."""
CHEAP = 20_000
"""Where the data have fewer entries a proof costs more than the passes it can save."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def pauses(problem: Problem) -> bool:
    """Whether it can pay to interrupt a solver of `problem` for a proof."""
    return problem.n > SMALL and problem.n * min(problem.d, problem.n) > CHEAP


def gap_that_pays(best: Point, screening: Screening, share: float, aim: float) -> float:
    """The next gap on the way to `aim` that should decide a `share` more; 0 if there is none.

    A midpoint ball of gap G has a radius of about ``sqrt(G)`` and decides the terms whose margin
    is farther than that times ``||a_i||`` from a kink. The share is one of the terms that are still
    undecided. Nothing here is proven: it only says when proving is worth while.
    """
    problem, rows = best.problem, screening.selection.kept
    if not len(rows):
        return 0.0
    away = problem.losses.kink_distance(best.margins)[rows]
    ratio = away / np.maximum(problem.norms[rows], 1e-300)
    at = min(int((1.0 - share) * len(rows)), len(rows) - 1)
    radius = float(np.partition(ratio, at)[at])
    gap = min(FALL * best.gap, radius**2)
    return gap if gap > LAST * aim else 0.0
