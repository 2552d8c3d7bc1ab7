"""What a round under an L1 term works on: a reduced problem, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.duality import Point
from cvxscreen.core.losses import Piece
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.columns import column_counts, cut_often, entries
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.interface import SubproblemSolver
from cvxscreen.solvers.prox_newton.systems import share_factors

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEWER = 0.7
"""A round that predicts carries a reduction out where this share of the rows or columns is left."""
NEAR = 0.9
"""Features with ``|v_j|`` above this share of ``kappa_j`` join the working set."""
HOPE = 0.02  # where features are predicted, a start with a larger gap is not asked for proofs
FIRST = 500  # violators let in at once at least; else twice as many as the support has
BESIDE = 0.25  # terms near to bending for each one that does
ROUGHLY = 0.03  # of the gap at 0 is enough where features that pull have been left out
ALONE, SOME, AT_ONCE = 400, 0.1, 10_000_000
"""Under an L1 norm alone a solver that looks for its own features gets all of them where more than
so many, or that share of all, are wanted at first, and so many entries there are at most: to keep
the matrix by columns, too, then costs less than rounds of fewer features."""


@dataclass(eq=False)
class ZeroIterate:
    """The point 0 with what the choice of a first reduction asks of it, from one pass.

    It bounds no rounding: unlike from a `Point`, nothing can be proven from it.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    At_theta : array, shape (d,)
        ``A' theta`` of the slopes at 0.
    primal, gap : float
    """

    problem: Problem
    x: Array
    At_theta: Array
    primal: float
    gap: float

    @classmethod
    def of(cls, problem: Problem) -> ZeroIterate:
        """That of `problem`."""
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        losses, x, margins = problem.losses, np.zeros(problem.d), np.zeros(problem.n)
        theta = losses.slope(margins)
        pull = problem.design.adjoint(theta)
        if problem.pure_l1:  # theta is shrunk until it is feasible
            share = 1.0 / max(1.0, float(np.max(np.abs(pull) / penalty.kappa, initial=0.0)))
            gap = float(losses.fenchel_young(margins, share * theta).sum())
        else:
            x_theta, _ = penalty.prox_and_subgradient(
                -(pull + problem.linear), problem.quadratic.diagonal
            )
            gap = 0.5 * problem.quadratic.norm(x_theta) ** 2
        return cls(problem, x, pull, problem.primal(x, margins), gap)


Iterate = Point | ZeroIterate
"""Where a prediction starts from; only from a `Point` is anything proven."""


@dataclass(eq=False)
class IndexedSubproblem:
    """The reduced problem in hand, and where its terms and features lie in the full one."""

    problem: Problem
    terms: Index
    features: Index
    first: bool = False

    @cached_property
    def size(self) -> float:
        """The work of a pass: entries, rows and columns."""
        n, d = self.problem.design.shape
        return float(entries(self.problem.design) + n + d)

    @cached_property
    def counts(self) -> tuple[Array, Array]:
        """The share of the entries in each row and in each column."""
        design = self.problem.design
        n, d = design.shape
        if not (isinstance(design, Rows) and design.sparse):
            return np.full(n, 1.0 / max(n, 1)), np.full(d, 1.0 / max(d, 1))
        rows, columns = np.diff(design.matrix.indptr) + design.extra.shape[1], column_counts(design)
        total = max(float(columns.sum()), 1.0)
        return rows / total, columns / total

    def size_of(self, rows: Mask | Index, columns: Mask | Index) -> float:
        """The work of a pass over some rows and columns, if what is in both is an average part."""
        by_row, by_column = self.counts
        left = entries(self.problem.design) * by_row[rows].sum() * by_column[columns].sum()
        count = [np.count_nonzero(k) if k.dtype == bool else len(k) for k in (rows, columns)]
        return float(left + sum(count))

    @classmethod
    def whole(cls, problem: Problem) -> IndexedSubproblem:
        """All of `problem`."""
        return cls(problem, np.arange(problem.n), np.arange(problem.d), True)

    def within(self, selection: Selection) -> IndexedSubproblem:
        """Reduced further by `selection`."""
        features = selection.features(self.problem)
        design = self.problem.design
        if self.first and len(features) < self.problem.d and getattr(design, "sparse", False):
            cut_often(design)  # type: ignore[arg-type]
        reduced = selection.reduce(self.problem)
        share_factors(design, reduced.design, features)
        return IndexedSubproblem(reduced, self.terms[selection.kept], self.features[features])


def at_once(problem: Problem, inner: SubproblemSolver, wanted: Mask) -> bool:
    """Whether the solver is given all features, and predicts for itself which of them move."""
    looks = inner.traits.selects_features and entries(problem.design) <= AT_ONCE
    many = bool(np.count_nonzero(wanted) > min(ALONE, SOME * problem.d))
    return problem.pure_l1 and looks and many


def first_goal(subproblem: IndexedSubproblem, features: int, aim: float, gap: float) -> float:
    """The gap to solve to from 0, where it is `gap`: `aim` only if this may be the last round.

    Where as many of the `features` as may be are let in, there are sure to be others.
    """
    more = FIRST <= subproblem.problem.d < features
    return max(aim, ROUGHLY * gap) if more else aim


def flat(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """The codes without quadratic pieces, which cannot be folded beside a penalty."""
    curved = (codes == Piece.LEFT) | (codes == Piece.RIGHT)
    return np.where(curved, Piece.UNDECIDED, codes).astype(np.int8)


def wanted_features(x: Array, v: Array, kappa: Array, working_set: Mask) -> Mask:
    """Features to solve for: not 0, in the working set, or with `v` near `kappa`, shape (d,)."""
    wanted = (x != 0) | working_set
    close = v > NEAR * kappa
    limit = max(FIRST, 2 * int(np.count_nonzero(wanted)))
    if int((close & ~wanted).sum()) > limit:
        ratio = np.where(wanted | (kappa == 0), 0.0, v / np.where(kappa > 0, kappa, 1.0))
        close = close & (ratio >= np.partition(ratio, -limit)[-limit])
    return np.asarray(wanted | close | (kappa == 0))


def next_features(
    point: Iterate, penalty: L1, working_set: Mask, inner: SubproblemSolver
) -> Mask:
    """The features a solver gets next, shape (d,): the wanted, or all where fewer cannot pay."""
    problem, v = point.problem, np.abs(point.At_theta + point.problem.linear)
    wanted = wanted_features(point.x, v, penalty.kappa, working_set)
    if int(wanted.sum()) > FEWER * problem.d or at_once(problem, inner, wanted):
        wanted[:] = True
    return wanted


def predicted_pieces(point: Point, kept: Mask) -> NDArray[np.int8]:
    """The flat piece on which each term is predicted to stay, -1 for those to work on, shape (n,).

    These are the `kept`, those on a curved piece, and the nearest to one: `BESIDE` times as many.
    From one value of lambda to the next few terms change their piece, and more where more bend.
    """
    problem, losses = point.problem, point.problem.losses
    codes = flat(losses.piece_within(point.margins, point.margins))
    apart = np.flatnonzero(codes >= 0)
    more = max(FIRST, int(BESIDE * (problem.n - len(apart))))
    if more >= len(apart):
        return np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
    ratio = losses.kink_distance(point.margins)[apart]
    ratio /= np.maximum(problem.norms[apart], 1e-300)
    codes[apart[ratio <= np.partition(ratio, more)[more]]] = Piece.UNDECIDED
    codes[kept] = Piece.UNDECIDED
    return codes


def pays(point: Point) -> bool:
    """Whether `point` proves so much about the terms that a prediction gets smaller by it.

    Features are predicted anyway. An estimate by the midpoint ball, without a pass.
    """
    problem = point.problem
    if point.relative_gap > HOPE:
        return False
    radius = point.reach
    room = problem.losses.kink_distance(point.margins) > radius * problem.norms
    return bool(np.count_nonzero(room) > (1.0 - FEWER) * problem.n)
