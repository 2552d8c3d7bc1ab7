"""Under an L1 term: the gap at which the next proof should leave little enough to be worth it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound, dual_ball, joint, synergy
from cvxscreen.duality import Point
from cvxscreen.penalty import L1
from cvxscreen.pieces import kinked
from cvxscreen.problem import Problem
from cvxscreen.solvers.choice import OWN
from cvxscreen.solvers.inner import Inner
from cvxscreen.solvers.sparse_nest import Nest

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHRINK = 0.1
"""The gap shrinks at least to this share of itself between two screenings."""
SMALL = 50_000
"""The work of a pass below which a proof takes less time than the start of a solve."""
LAST = 5.0
"""No proof is worth while when the gap need only fall so much further."""


def sides_of(parts: Sequence[Bound]) -> str:
    """What the bounds decide: "features", "samples" or "both"."""
    if [*parts] == [dual_ball]:
        return "features"
    return "both" if {dual_ball, joint, synergy} & {*parts} else "samples"


def eager(nest: Nest, inner: Inner) -> bool:
    """Whether all that is proven is used, whatever it costs.

    So before a solver that is not built in, which takes longer than any proof, and on little data.
    """
    return not isinstance(inner, OWN) or nest.size <= SMALL


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
        slack = np.maximum(penalty.kappa - np.abs(point.pull + problem.linear), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = (problem.losses.kink_distance(point.margins) / problem.norms) ** 2
            found = rows, (slack / problem.column_norms) ** 2
        point.__dict__["_deciding_gaps"] = found
    return found


def size_after(nest: Nest, point: Point, gap: float, sides: str) -> float:
    """The work of a pass over what a proof should leave; see `left_after`."""
    return nest.size_of(*left_after(point, gap, sides))


def gap_that_pays(
    nest: Nest, point: Point, worth: Callable[[float], float], aim: float, sides: str
) -> float:
    """The first of a tenth, a hundredth, ... of the point's gap at which to prove; 0 without one.

    There a proof should leave at most the share `worth` (of that gap) of the work of a pass.
    """
    gap = SHRINK * point.gap
    if not curved(nest.problem):
        return gap  # without curvature there is no such radius
    while gap > LAST * aim:
        if size_after(nest, point, gap, sides) <= worth(gap) * nest.size:
            return float(gap)
        gap *= SHRINK
    return 0.0


def curved(problem: Problem) -> bool:
    """Whether every term bends, so that the dual optimum lies in a ball."""
    losses = problem.losses
    return not kinked(losses.q, losses.lo, losses.hi).any()
