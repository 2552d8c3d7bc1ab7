"""Close to the optimum of a sum of kinks, without solving anything: Newton's method, smoothed.

The mean of a loss over an interval, ``f^h(t) = 1/2h int f(t + u) du, |u| <= h``, is smooth, with

::

    slope      (f(t + h) - f(t - h)) / 2h
    curvature  (f'(t + h) - f'(t - h)) / 2h

(convolution with a uniform kernel: Fernandes, Guerre and Horta 2021; He, Pan, Tan and Zhou 2023),
and differs from f within h of a kink alone. A step of Newton's method takes one matrix of the terms
there, and is kept if the objective itself falls. The interval shrinks to what a step takes across
their kinks: after three to five steps that are some dozens of a hundred thousand terms. The first
intervals hold half of a small sample; the optimum of a sample is where the steps over ten times as
many terms begin, their intervals as wide as its error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import KnownSlopes

Array = NDArray[np.float64]

KEEP = 2.0
"""Terms within reach of the error of the optimum of a sample of s of n terms, in units of ``n
sqrt(d / s)``. Margins of a quantile regression there are off by a normal variable with deviation
``sqrt(d tau (1 - tau) / s)`` over the density at the kink (Koenker 2005, section 4.2), so that
twice two deviations hold at most this many."""
TIES = 1e-9
"""Terms that are all so much nearer to their kinks than others are tied there, and no density."""
STEPS = 20
"""Steps at most; three to five are usual."""
SHORTER = (1.0, 0.3, 0.1)
"""Shares of a step that are tried before the interval is made shorter."""
SETTLED, NARROWEST = 2, 4
"""Terms that the last step takes across their kinks, and least ones for a density, in units of the
coordinates."""
MANY = 0.25
"""Share of the first interval's terms up to which one is short although steps over it do not
settle."""
BESIDE, NARROWER = 5, 8
"""Terms that are kept around the last point, in units of those that the last step took across, and
the share of its interval's terms that are kept, or go on, at least."""
FEW = 0.5
"""Share of the terms up to which different values are few."""
FLAT = 1e-9
"""What is added to the diagonal of the curvature, relatively: columns may depend on each other."""


@dataclass(frozen=True, eq=False)
class Nearby:
    """A point near an optimum.

    Attributes
    ----------
    x : array, shape (d,)
    margins : array, shape (n,)
    value : float
        The objective there.
    known : KnownSlopes
        Slopes of the smoothed losses at the last step's beginning, with their ``A' theta``.
    reach : int
        Terms nearest to their kinks among which those of the optimum are.
    """

    x: Array
    margins: Array
    value: float
    known: KnownSlopes | None
    reach: int


def applies(problem: Problem) -> bool:
    """Whether the terms are kinks in one unit, and nothing but a quadratic form is beside them."""
    own = problem.layout is not None and problem.layout.penalty_terms > 0
    bent = problem.losses.q.any() or problem.losses.any_hard
    alone = problem.side is None and problem.penalty is None
    return alone and not own and not bent and isinstance(problem.design, Rows)


def near_optimum(
    problem: Problem, x: Array, margins: Array, wide: int, settled: int | None = None,
    known: KnownSlopes | None = None,
) -> Nearby | None:
    """Steps from x, the first one smoothed over its `wide` terms nearest to their kinks.

    They end with one that takes at most `settled` terms across, or where none descends. None where
    that leaves many terms, or where terms are tied.
    """
    f, reach = problem.losses, problem.n
    settled = SETTLED * problem.d if settled is None else settled
    M, least = problem.quadratic.dense(), NARROWEST * problem.d
    wide = min(wide, problem.n - 1)
    most = max(MANY * wide, 2 * least)
    value, sides = problem.primal(x, margins), f.slope(margins)
    size = float(np.abs(margins).max(initial=0.0))
    for _ in range(STEPS):
        away = f.kink_distance(margins)
        edge = float(np.partition(away, wide)[wide])
        if not TIES * (float(away.max()) + size) < edge < np.inf:
            return None
        near = np.flatnonzero(away <= edge)
        few, t = f.take(near), margins[near]
        slopes = sides.copy()
        slopes[near] = (few.value(t + edge) - few.value(t - edge)) / (2.0 * edge)
        curvature = (few.slope(t + edge) - few.slope(t - edge)) / (2.0 * edge)
        pull = problem.design.adjoint(slopes) if known is None else known.adjoint(problem, slopes)
        known = KnownSlopes(slopes, pull)
        H = problem.design.weighted_gram(near, curvature) + M
        step = solved(H, pull + problem.linear + problem.quadratic.apply(x))
        if step is None:
            break
        moved = problem.design.forward(step)
        for share in SHORTER:
            there = margins - share * moved
            reached = problem.primal(x - share * step, there)
            if reached < value:
                break
        else:
            if wide <= least:
                break
            wide = max(wide // 2, least)
            continue
        before, sides = sides, f.slope(there)
        crossed = int(np.count_nonzero(sides != before))
        x, margins, value = x - share * step, there, reached
        reach = wide
        if share < 1.0:
            wide = max(wide // 2, least)
            continue
        reach = max(BESIDE * crossed, wide // NARROWER)
        if crossed <= settled:
            return Nearby(x, margins, value, known, reach)
        if crossed < wide // 2:
            wide = max(2 * crossed, wide // NARROWER, least)
    return Nearby(x, margins, value, known, reach) if reach <= most else None


def repeats(problem: Problem) -> bool:
    """Whether kinks and entries of rows take few values, as whole numbers do.

    An optimum then holds many more terms at their kinks than there are coordinates, and no density
    says how many terms are near them.
    """
    if not len(np.unique(problem.losses.b)) < FEW * problem.n:
        return False
    return len(np.unique(problem.design.dense())) < FEW * problem.n


def least_squares(problem: Problem) -> Array | None:
    """The point whose margins are nearest to the kinks, weighted by the jumps of the slopes."""
    f, everything = problem.losses, np.arange(problem.n)
    jumps = f.hi - f.lo
    H = problem.design.weighted_gram(everything, jumps)
    return solved(H, problem.design.adjoint(jumps * f.b))


def solved(H: Array, right: Array) -> Array | None:
    """The solution of ``H x = right``; None where H is not positive definite."""
    diagonal = np.diag(H)
    H[np.diag_indices(len(H))] += np.where(diagonal > 0, FLAT * diagonal, 1.0)
    _, x, failed = lapack.dposv(H, right)
    return None if failed or not np.isfinite(x).all() else np.asarray(x)
