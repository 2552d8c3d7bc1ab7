"""A cold start for data in chunks: solve samples of growing size, and learn how far they are off.

The sample's solution is off by a statistical error. Two nested samples, one four times the other,
show how large it is: the smaller one's error is about twice the larger one's, and their difference
is what they disagree by. From that comes the first width of the band around the kinks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.chunk_rows import Chunk, Sample
from cvxscreen.chunk_slopes import in_chunks
from cvxscreen.designs.rows import Rows
from cvxscreen.losses import Losses, Piece
from cvxscreen.problem import Problem
from cvxscreen.row_columns import entries
from cvxscreen.solvers.inner import Start

Array = NDArray[np.float64]

STEP = 4
"""How much larger the second sample is."""
QUANTILE, MARGIN = 0.999, 1.2
"""Which of the sample's moves, relative to the size of the row, the band must hold."""
TOLERANCE = 1e-6
VAGUE = 0.01
"""Coordinates a row of the sample from which on its margins are off by more than a tenth."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Where to look first.

    Attributes
    ----------
    x : array, shape (d,)
    ratio : array, shape (m,)
        Distance of the sample's margins from a kink, in units of the size of the row.
    width : float
        How far a margin may be off in these units; infinite where the sample is everything.
    curved : float
        Share of the sample on a parabola.
    """

    x: Array
    ratio: Array
    width: float
    curved: float

    def share(self, width: float) -> float:
        """About which share of all terms lies within `width` of a kink."""
        return float((self.ratio <= width).mean())

    def width_for(self, share: float) -> float:
        """The width that about a `share` of all terms lies within."""
        return float(np.quantile(self.ratio, min(max(share, 0.0), 1.0), method="higher"))

    def seen_from(self, x: Array, problem: Problem) -> Pilot:
        """The same sample, its distances measured at another point."""
        part = sampled(problem, 1)
        ratio, curved = _distances(part, x)
        return replace(self, x=x, ratio=ratio, curved=curved)


def sample_of(problem: Problem) -> Sample:
    """The rows that are in memory; drawn by the survey, or gathered where there was none."""
    design, _ = in_chunks(problem)
    if design.sample is None:
        n = design.shape[0]
        index = np.arange(0, n, max(1, n // 10_000))
        design.sample = Sample(index, design.engine.gather(design.source, index))
    return design.sample


def sampled(problem: Problem, every: int) -> Problem:
    """Each `every`-th row of the sample, weighted up to the whole."""
    sample = sample_of(problem)
    design, _ = in_chunks(problem)
    index = sample.index[::every]
    block = sample.block if every == 1 else sample.block[::every]
    rows: Rows = Chunk.of(block, entries(design.scale, index), design.intercept).rows()
    losses: Losses = problem.losses.take(index).scaled(problem.n / len(index))
    return replace(problem, design=rows, losses=losses)


def sizes(design: Any) -> Array:
    """Euclidean lengths of the rows."""
    return np.sqrt(np.maximum(design.weighted_squares(np.ones(design.shape[1])), 1e-300))


def _distances(part: Problem, x: Array) -> tuple[Array, float]:
    t = part.design.forward(x)
    codes = part.losses.piece_within(t, t)
    curved = float(((codes == Piece.LEFT) | (codes == Piece.RIGHT)).mean())
    return part.losses.kink_distance(t) / sizes(part.design), curved


def pilot(problem: Problem, solve: Any, start: Array | None, budget: int) -> Pilot:
    """Solve the samples, unless all terms are better taken into memory at once.

    Parameters
    ----------
    problem : Problem
        Of data in chunks.
    solve : callable
        ``solve(problem, tol=..., start=...)``, the loop for problems in memory.
    start : array, shape (d,), or None
        Where to begin.
    budget : int
        Terms that fit in memory.
    """
    rows = len(sample_of(problem).index)
    if rows >= problem.n or (budget >= problem.n and problem.d > VAGUE * rows):
        x = np.zeros(problem.d) if start is None else start
        return Pilot(x, np.zeros(1), np.inf, 0.0)
    small = sampled(problem, STEP)
    begin = None if start is None else _from(small, start)
    first = solve(small, tol=TOLERANCE, start=begin).x
    large = sampled(problem, 1)
    second = solve(large, tol=TOLERANCE, start=_from(large, first)).x
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return Pilot(np.zeros(problem.d), np.zeros(1), np.inf, 0.0)
    moved = np.abs(large.design.forward(second - first)) / sizes(large.design)
    off = float(np.quantile(moved, QUANTILE)) / np.sqrt(STEP - 1.0)
    ratio, curved = _distances(large, second)
    return Pilot(second, ratio, MARGIN * off, curved)


def _from(part: Problem, x: Array) -> Start:
    return Start(x, part.losses.slope(part.design.forward(x)))
