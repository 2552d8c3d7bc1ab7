"""Which terms are predicted to end on the piece that they are on, and which are kept.

A term is predicted where its margin is farther from the next kink than the optimum is likely to
move it. A wrong prediction costs a round, never the certificate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.duality import Point
from cvxscreen.core.losses import Piece, on_parabola
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.interface import SolverSnapshot

Array = NDArray[np.float64]

SMALL = 400
"""Problems with fewer terms are handed over without a prediction: there is nothing to gain."""

SAMPLE = 8192
"""Values that tell where an order statistic lies well enough for a prediction."""

PILOT, SHARE, NESTED = 100_000, 15, 4
"""Problems from so many terms on are begun with two samples: one part in `SHARE`, and of it one in
`NESTED`."""

QUANTILE, MARGIN = 0.999, 1.2
"""Which of the moves between the samples' optima a prediction allows for, and how much more."""

FAR = 0.3
"""A prediction that leaves a larger share of the terms alone says little."""


class PredictionRadius(NamedTuple):
    """How far predictions reach.

    A term is left alone when its margin is within ``max(width ||a_i||, least)`` of a kink: the
    first bounds what a move of the optimum can do, the second what it usually does where norms
    differ widely. The `keep` terms nearest to a kink are left alone in any case.
    """

    width: float
    least: float
    keep: int

    def reach(self, problem: Problem) -> np.ndarray:
        """The distance from a kink below which a term is left alone, shape (n,)."""
        return np.maximum(self.width * problem.norms, self.least)

    def wider(self, needed: float) -> PredictionRadius:
        """At least twice as wide, and up to eight times where the evidence asks for it."""
        factor = max(2.0, min(needed, 8.0))
        return PredictionRadius(factor * self.width, factor * self.least, 2 * self.keep)

    def after(self, best: Point, off: NDArray[np.bool_]) -> PredictionRadius:
        """Wider, given the terms whose prediction from `best` was refuted."""
        away = best.problem.losses.kink_distance(best.margins)[off]
        needed = away / np.maximum(self.reach(best.problem)[off], 1e-300)
        return self.wider(float(np.quantile(needed, 0.9)))

    @classmethod
    def from_samples(
        cls, problem: Problem, sample: Problem, first: Array, second: Array
    ) -> PredictionRadius | None:
        """As wide as the optimum may be from the `second` of two points; None if that is far.

        `sample` holds the terms of the second one, a quarter of them those of the first. The error
        of a sample's optimum falls as the root of its size, so the two differ by about ``sqrt(3)``
        times what the larger one's is off by.
        """
        norms = np.maximum(sample.norms, 1e-300)
        moved = np.abs(sample.design.forward(second - first)) / norms
        width = MARGIN * float(np.quantile(moved, QUANTILE)) / np.sqrt(NESTED - 1.0)
        away = sample.losses.kink_distance(sample.design.forward(second)) / norms
        if float((away <= width).mean()) > FAR:
            return None
        return cls(max(width, 1e-12), 0.0, max(SMALL, 4 * problem.d))

    @staticmethod
    def least_share(problem: Problem) -> float:
        """The share of the terms that `near` keeps at least."""
        if problem.n <= SMALL:
            return 1.0
        return 0.0 if problem.d >= problem.n else 4 * problem.d / problem.n

    @classmethod
    def near(cls, problem: Problem, point: Point, share: float) -> PredictionRadius:
        """Keep the terms nearest to a kink: a `share` of them, at least four times d."""
        floor = 4 * problem.d
        if problem.d >= problem.n:  # a kernel, or more features than terms: count the curved ones
            losses, theta = problem.losses, point.theta
            floor = 2 * int(((theta > losses.lo) & (theta < losses.hi) & (theta != 0)).sum())
        keep = int(min(problem.n, max(share * problem.n, floor, SMALL)))
        away = problem.losses.kink_distance(point.margins)
        ratio = away / np.maximum(problem.norms, 1e-300)
        nearest = _order_statistic(ratio, keep)
        radius = point.reach
        usual = _order_statistic(away, keep)
        if not np.isfinite(radius):
            return cls(max(nearest, 1e-12), usual, keep)
        usual = min(usual, 0.3 * radius * float(np.median(problem.norms[:: problem.n // 1000 + 1])))
        width = max(min(nearest, 0.1 * radius), 1e-12)
        return cls(width, usual, max(SMALL, min(keep, problem.d)))


def _order_statistic(values: Array, rank: int) -> float:
    """About the `rank`-th smallest value: of a sample where there are many."""
    stride = len(values) // SAMPLE + 1
    sample = values[::stride]
    at = min(max(rank // stride, 1), len(sample)) - 1
    return float(np.partition(sample, at)[at])


@np.errstate(over="ignore")  # of an infinite size: nothing is small beside it
def size_of_optimum(problem: Problem, best: Point | SolverSnapshot | None) -> float:
    """About the optimal value: from below where the gap is known, but at least half of P."""
    if best is None:
        return float(problem.losses.value(np.zeros(problem.n)).sum()) + problem.constant  # at 0
    size = abs(best.primal)
    return max(size - best.gap, 0.5 * size)


def accept_reduction(
    problem: Problem, chosen: Selection, best: Point | None, share: float, *, written: bool = False
) -> Selection:
    """`chosen` folded and `anchored`; nothing if more than a `share` of the terms would stay.

    `written` says that the reduced problem is written out for a solver of another package.
    """
    if len(chosen.kept) == problem.n:
        return chosen
    if len(chosen.kept) <= share * problem.n:
        chosen = anchored(problem, chosen.folded(problem, written=written), best)
    if len(chosen.kept) <= share * problem.n:
        return chosen
    return Selection(np.full(problem.n, Piece.UNDECIDED, dtype=np.int8))


def anchored(problem: Problem, chosen: Selection, best: Point | None) -> Selection:
    """Keep a few terms on every side of the kinks when a coordinate is unpenalised.

    With all of them linearised the reduced problem would be flat or unbounded in that direction;
    parabolas that are folded hold it. Leaving a term in is always exact.
    """
    free = int(chosen.left_free(problem).sum())
    if free == 0 or best is None or len(chosen.kept) == problem.n:
        return chosen
    codes = chosen.codes.copy()
    distance = problem.losses.kink_distance(best.margins)
    for column in range(free):
        _release(problem, codes, distance, column)
    signs = problem.free_columns @ np.ones(free)
    for piece in np.unique(codes[codes >= 0]):
        for side in (signs > 0, signs < 0):
            members = np.flatnonzero((chosen.codes == piece) & side)
            few = 4 * free
            if len(members) > few:
                members = members[np.argpartition(distance[members], few)[:few]]
            codes[members] = -1
    return Selection(codes)


def _release(problem: Problem, codes: np.ndarray, distance: np.ndarray, column: int) -> None:
    """Put terms back, nearest to a kink first, until the kept ones can balance `column`.

    The kept slopes must be able to satisfy ``sum_i e_i theta_i = -q``; otherwise the reduced
    problem is unbounded in that coordinate. `codes` is changed in place.
    """
    losses = problem.losses
    e = problem.free_columns[:, column]
    low, high = np.minimum(e * losses.lo, e * losses.hi), np.maximum(e * losses.lo, e * losses.hi)
    curved = on_parabola(codes)
    codes[curved] = Piece.UNDECIDED
    weighted = e * losses.piece_slope(codes)
    index = int(problem.free_index[column])
    for room, sign in ((high - weighted, 1.0), (weighted - low, -1.0)):
        kept = codes == Piece.UNDECIDED
        needed = -sign * (float(problem.linear[index]) + float(weighted[~kept].sum()))
        reach = float((high if sign > 0 else -low)[kept].sum())
        lacking = 1.5 * needed - reach if needed > 0 else needed - 0.5 * reach
        if lacking <= 0:
            continue
        open_terms = np.flatnonzero(~kept & (room > 0) & (e != 0))
        order = open_terms[np.argsort(distance[open_terms])]
        gained = np.cumsum(room[order])
        codes[order[: int(np.searchsorted(gained, lacking)) + 1]] = Piece.UNDECIDED


def sample(problem: Problem) -> Problem:
    """A twentieth of the terms (at least ten times d), for a first point by any solver."""
    size = int(min(problem.n, max(SMALL, 10 * problem.d, problem.n // 20)))
    return _weighted_up(problem, _drawn(problem, size))


def samples(problem: Problem) -> tuple[Problem, Problem] | None:
    """Two nested samples, the smaller first; None where the problem is too small for them.

    Beside unpenalised coordinates terms on a parabola are never left out: where all of them may
    be on one, samples save nothing.
    """
    size = problem.n // SHARE
    curved = bool(problem.quadratic.free.any()) and bool((problem.losses.q > 0).all())
    if problem.n < PILOT or size < 10 * NESTED * problem.d or curved:
        return None
    index = _drawn(problem, size)
    return _weighted_up(problem, index[: size // NESTED]), _weighted_up(problem, index)


def _drawn(problem: Problem, size: int) -> NDArray[np.intp]:
    """Indices of `size` terms, the same ones for the same problem."""
    return np.random.default_rng(0).choice(problem.n, size=size, replace=False)


def _weighted_up(problem: Problem, index: NDArray[np.intp]) -> Problem:
    """The terms `index` (in any order), standing for all."""
    index = np.sort(index)
    return replace(
        problem,
        design=problem.design.take_rows(index),
        losses=problem.losses.take(index).scaled(problem.n / len(index)),
    )
