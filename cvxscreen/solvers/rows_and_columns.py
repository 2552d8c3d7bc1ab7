"""Under an L1 term features and terms are screened together, and reduced problems nest.

``safe`` (`ProvenRowsAndColumns`): solve until the gap has shrunk enough, prove on the reduced
problem (what holds there holds on the full one), reduce further, go on. ``certified``
(`PredictedRowsAndColumns`): features far from their bound are left out on trust, for a solver of
many iterations terms far from a kink as well; the answer is checked on the full data, violators
come back in. Both end with the certificate of the full problem.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import Bound, dual_ball, joint, midpoint_ball, synergy
from cvxscreen.bounds.features_and_samples import bound_components, primal_ball
from cvxscreen.core.duality import Point, reference_point, regulariser_gap
from cvxscreen.core.losses import Codes, Piece, kinked, on_parabola
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, column_counts, cut_often, entries
from cvxscreen.screening.reduction import Prediction, Selection, judge
from cvxscreen.solvers.apg import Momentum
from cvxscreen.solvers.column_systems import share_factors
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver, call_checked
from cvxscreen.solvers.screened import P, ProblemInMemory, Times
from cvxscreen.solvers.solution import Answer, LazyNumbers, Solution, shares_of, shares_proven

# -- the reduced problem in hand ------------------------------------------------------------------


Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEWER = 0.7
"""A round that predicts carries a reduction out where this share of the rows or columns is left."""
NEAR = 0.9
"""Features with ``|v_j|`` above this share of ``kappa_j`` join the working set."""
LOOSEST_GAP = 0.02
"""Relative gap of a start from which on nothing is proven where features are predicted."""
LEAST_VIOLATORS = 500
"""Features that join the working set at once, at least; else twice as many as the support has."""
NEARBY_SHARE = 0.25
"""Terms near a curved piece that are kept for each one on it."""
ROUGH_GAP = 0.03
"""Share of the gap at 0 that is solved to where features that violate optimality are left out."""
MANY_FEATURES, LARGE_SHARE, MOST_ENTRIES = 400, 0.1, 10_000_000
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
        """Evaluate x = 0, with a pass over the data."""
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        losses, x, margins = problem.losses, np.zeros(problem.d), np.zeros(problem.n)
        theta = losses.slope(margins)
        At_theta = problem.design.adjoint(theta)
        if problem.pure_l1:  # theta is shrunk until it is feasible
            share = 1.0 / max(1.0, float(np.max(np.abs(At_theta) / penalty.kappa, initial=0.0)))
            gap = float(losses.fenchel_young(margins, share * theta).sum())
        else:
            gap = regulariser_gap(problem, x, At_theta + problem.linear)
        return cls(problem, x, At_theta, problem.primal(x, margins), gap)


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
        """`problem` with all of its terms and features."""
        return cls(problem, np.arange(problem.n), np.arange(problem.d), True)

    def within(self, selection: Selection) -> IndexedSubproblem:
        """The subproblem without what `selection` fixes in it."""
        features = selection.features(self.problem)
        design = self.problem.design
        fewer = self.first and len(features) < self.problem.d
        if fewer and isinstance(design, Rows) and design.sparse:
            cut_often(design)
        reduced = selection.reduce(self.problem)
        share_factors(design, reduced.design, features)
        return IndexedSubproblem(reduced, self.terms[selection.kept], self.features[features])


def takes_all_features(problem: Problem, inner: SubproblemSolver, wanted: Mask) -> bool:
    """Whether the solver is given all features, and predicts for itself which of them move."""
    looks = inner.traits.selects_features and entries(problem.design) <= MOST_ENTRIES
    many = bool(np.count_nonzero(wanted) > min(MANY_FEATURES, LARGE_SHARE * problem.d))
    return problem.pure_l1 and looks and many


def first_target(subproblem: IndexedSubproblem, features: int, aim: float, gap: float) -> float:
    """The gap to solve to from 0, where it is `gap`: `aim` only if this may be the last round.

    Where as many of the `features` as may be are let in, there are sure to be others.
    """
    more = LEAST_VIOLATORS <= subproblem.problem.d < features
    return max(aim, ROUGH_GAP * gap) if more else aim


def without_parabolas(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """The codes without quadratic pieces, which cannot be folded beside a penalty."""
    curved = on_parabola(codes)
    return np.where(curved, Piece.UNDECIDED, codes).astype(np.int8)


def wanted_features(x: Array, v: Array, kappa: Array, working_set: Mask) -> Mask:
    """Features to solve for: not 0, in the working set, or with `v` near `kappa`, shape (d,)."""
    wanted = (x != 0) | working_set
    close = v > NEAR * kappa
    limit = max(LEAST_VIOLATORS, 2 * int(np.count_nonzero(wanted)))
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
    if int(wanted.sum()) > FEWER * problem.d or takes_all_features(problem, inner, wanted):
        wanted[:] = True
    return wanted


def predicted_pieces(point: Point, kept: Mask) -> NDArray[np.int8]:
    """The flat piece on which each term is predicted to stay, -1 for those to work on, shape (n,).

    These are the `kept`, those on a curved piece, and the nearest to one: `NEARBY_SHARE` times as
    many.
    From one value of lambda to the next few terms change their piece, more where more are curved.
    """
    problem, losses = point.problem, point.problem.losses
    codes = without_parabolas(losses.piece_within(point.margins, point.margins))
    apart = np.flatnonzero(codes >= 0)
    more = max(LEAST_VIOLATORS, int(NEARBY_SHARE * (problem.n - len(apart))))
    if more >= len(apart):
        return np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
    ratio = losses.kink_distance(point.margins)[apart]
    ratio /= np.maximum(problem.norms[apart], 1e-300)
    codes[apart[ratio <= np.partition(ratio, more)[more]]] = Piece.UNDECIDED
    codes[kept] = Piece.UNDECIDED
    return codes


def proof_pays(point: Point) -> bool:
    """Whether `point` proves so much about the terms that a prediction gets smaller by it.

    Features are predicted anyway. An estimate by the midpoint ball, without a pass.
    """
    problem = point.problem
    if point.relative_gap > LOOSEST_GAP:
        return False
    radius = point.reach
    room = problem.losses.kink_distance(point.margins) > radius * problem.norms
    return bool(np.count_nonzero(room) > (1.0 - FEWER) * problem.n)


# -- when a proof or a reduction pays; nothing here is proven -------------------------------------


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


def left_after(point: Point, gap: float, sides: str) -> tuple[Mask, Mask]:
    """The terms and the features that a proof should leave at `gap`, shapes (n,) and (d,).

    A ball of gap G has a radius of about ``sqrt(G)`` and decides the terms whose margin is farther
    than that times ``||a_i||`` from a kink, and the features whose ``|A_j' theta + q_j|`` is
    farther than that times ``||A_j||`` below ``kappa_j``. Nothing here is proven. `sides` says what
    is asked: "features", "samples" or "both".
    """
    problem, (rows, columns) = point.problem, deciding_gaps(point)
    every = np.ones(problem.n, dtype=bool), np.ones(problem.d, dtype=bool)
    return (
        every[0] if sides == "features" else rows < gap,
        every[1] if sides == "samples" else columns < gap,
    )


_DECIDING_GAPS: WeakKeyDictionary[Point, tuple[Array, Array]] = WeakKeyDictionary()


def deciding_gaps(point: Point) -> tuple[Array, Array]:
    """The gap at which a proof should decide each term and each feature; kept. See `left_after`."""
    found = _DECIDING_GAPS.get(point)
    if found is None:
        problem = point.problem
        penalty: L1 = problem.penalty  # type: ignore[assignment]
        slack = np.maximum(penalty.kappa - np.abs(point.At_theta + problem.linear), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = (problem.losses.kink_distance(point.margins) / problem.norms) ** 2
            found = rows, (slack / problem.column_norms) ** 2
        _DECIDING_GAPS[point] = found
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
    """Whether every term has a curved piece, so that the dual optimum lies in a ball."""
    losses = problem.losses
    return not kinked(losses.q, losses.lo, losses.hi).any()


WORTH, EAGER = 0.7, 0.95
"""A reduction by proofs is carried out when it leaves at most this share of the work of a pass; the
second before a solver that is not built in, on little data, and at most."""
QUICKLY = 0.05
"""The same from a warm start, where the solver takes a handful of passes in all."""
NEGLIGIBLE = 0.05
"""A problem of at most this share of the work of a pass is reduced no further for such a solver."""
PROOF_COST, REDUCTION_COST = 1.0, 0.5
"""What a proof on one side with its reduction, and the reduction alone, take of a solver that takes
many: so many iterations on the same data, and those of `SMALL` data on top."""

ONE_SIDED: tuple[Bound, ...] = (dual_ball, primal_ball, midpoint_ball)
"""Bounds of which it is estimated what they leave; others are asked in any case."""


class ScreeningCostModel:
    """Says which of the proofs and reductions in one call save more work than they cost.

    Parameters
    ----------
    subproblem : IndexedSubproblem
        The whole problem.
    inner : SubproblemSolver
    components : sequence of Bound
        What is asked in turns.

    Attributes
    ----------
    eager : bool
        Whether all that is proven is used, whatever it costs: before a solver that is not built in,
        which takes longer than any proof, and on little data.
    quick : bool
        Whether the solver takes a handful of passes in all; see `begin`.
    rate : float or None
        Iterations to a tenth of the gap, where something is known: of this call, before the first
        of them of the one whose answer it starts from.
    """

    def __init__(
        self, subproblem: IndexedSubproblem, inner: SubproblemSolver, components: Sequence[Bound]
    ) -> None:
        self.everything = subproblem.size
        self.components, self.sides = len(components), sides_of(components)
        self.eager = not inner.traits.reaches_target or subproblem.size <= SMALL
        self.curved = curved(subproblem.problem)
        self.few_iterations = inner.traits.few_iterations
        self.quick = False
        self.rate: float | None = None
        self.first, self.iterations = 0.0, 0

    @property
    def patient(self) -> bool:
        """Whether the solver takes many iterations, and few terms change their piece meanwhile."""
        return not (self.few_iterations or self.eager) and self.curved

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

    def remaining_share(
        self, subproblem: IndexedSubproblem, gap: float, aim: float, cost: float = PROOF_COST
    ) -> float:
        """What may be left of a pass for iterations worth `cost` to be saved on the way to `aim`.

        Negative where there are not so many to come.
        """
        if self.eager or self.rate is None:
            return EAGER if self.eager else WORTH
        left = self.rate * float(np.log10(max(gap / max(aim, 1e-300), 1.0)))
        cost *= 1.0 + SMALL / subproblem.size
        return min(1.0 - cost / left, EAGER) if left > 0.0 else -1.0

    def is_negligible(self, subproblem: IndexedSubproblem) -> bool:
        """Whether what is left costs nothing beside the passes of the certificate."""
        if not (subproblem.problem.n and subproblem.problem.d):
            return True
        return (
            self.few_iterations or self.eager
        ) and subproblem.size <= NEGLIGIBLE * self.everything

    def most_promising(
        self, subproblem: IndexedSubproblem, point: Point, components: Sequence[Bound], aim: float
    ) -> Bound | None:
        """The one that should leave least; None where none should leave little enough."""
        share, left, good = self.remaining_share(subproblem, point.gap, aim), {}, []
        for component in components:
            left[component] = 0.0
            if component in ONE_SIDED:
                rows, columns = left_after(point, point.gap, sides_of([component]))
                left[component] = subproblem.size_of(rows, columns)
                if not self.worth_reducing(subproblem, left[component], int(columns.sum()), share):
                    continue
            good.append(component)
        return min(good, key=lambda component: left[component], default=None)

    def worth_reducing(
        self, subproblem: IndexedSubproblem, size: float, features: int, share: float
    ) -> bool:
        """Whether so much is left of the work of a pass, or so few features, at most.

        To a solver of many iterations features that end at 0 but are near to leaving it cost
        iterations, however few entries they have.
        """
        few = not (self.few_iterations or self.eager) and features <= share * subproblem.problem.d
        return few or size <= share * subproblem.size

    def next_proof_gap(self, subproblem: IndexedSubproblem, point: Point, aim: float) -> float:
        """The gap at which to prove again; 0 where that would not pay."""
        if self.quick or self.is_negligible(subproblem):
            return 0.0
        if self.eager:
            return gap_that_pays(subproblem, point, lambda gap: np.inf, aim, self.sides)
        cost = PROOF_COST * self.components
        return gap_that_pays(
            subproblem,
            point,
            lambda gap: self.remaining_share(subproblem, gap, aim, cost),
            aim,
            self.sides,
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
        cost = PROOF_COST * self.components
        share = QUICKLY if self.quick else self.remaining_share(subproblem, point.gap, aim, cost)
        return left <= share * subproblem.size


# -- the problem that the loop screens ------------------------------------------------------------


Pair = tuple[Array, Array]

MAX_ROUNDS = 40
"""Rounds of a call at most; the last two leave no feature out on trust."""
SMALLER = 0.7
"""Proofs go on from what they have left when this is at most that share of what it was."""
FIRST_SHARE, SMALLEST_SHARE, STRICTER = 0.25, 1e-5, 0.2
"""Share of the tolerance that a solver is asked for; when to give up on asking for less of it; by
which factor the share falls where the certificate wants more than the solver's gap said."""


def beginning(problem: Problem, start: Start | None, proves: bool) -> Iterate:
    """The start, evaluated; without one 0, as a point only where something is proven from it."""
    if start is not None:
        return start.point or reference_point(problem, start.x, start.theta)
    return reference_point(problem, np.zeros(problem.d)) if proves else ZeroIterate.of(problem)


class RowsAndColumns(
    ProblemInMemory[Selection, IndexedSubproblem, SubproblemResult, Pair, P]
):
    """What is known of a problem under an L1 term, and the reduced problem in hand.

    Attributes
    ----------
    subproblem : IndexedSubproblem
        The reduced problem in hand.
    point : Point or ZeroIterate
        The last one that was evaluated.
    cost : ScreeningCostModel
        What pays.
    factor : float
        Share of the tolerance that the solver is asked for.
    """

    point: Iterate

    def set_up(self) -> None:
        """What the rounds need beside what every problem in memory keeps."""
        problem = self.problem
        self.penalty: L1 = problem.penalty  # type: ignore[assignment]
        self.subproblem = IndexedSubproblem.whole(problem)
        self.components = [
            component for bound in self.bounds for component in bound_components(problem, bound)
        ]
        self.cost = ScreeningCostModel(self.subproblem, self.inner, self.components)
        self.factor = FIRST_SHARE
        self.started = self.last = False
        self.target = 0.0

    # -- where a call begins ----------------------------------------------------------------

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Evaluate the start (0 without one) and prove what it proves."""
        problem, self.started = self.problem, start is not None
        self.point = beginning(problem, start, self.mode == "safe")
        if isinstance(self.point, Point):
            self.best = self.point
        self.cost.begin(self.point, self.started, None if start is None else start.rate)
        if isinstance(self.point, Point) and self.worth_proving(self.point):
            self.prove()
            self.before = shares_of(self.screening)
        elif isinstance(self.point, Point) and self.started:
            self.before = LazyNumbers(partial(shares_proven, problem, self.bounds, self.point))
        else:
            self.before = LazyNumbers(partial(shares_of, self.screening))

    @abstractmethod
    def worth_proving(self, point: Point) -> bool:
        """Whether what a start should prove is worth its passes; an estimate without one."""

    @abstractmethod
    def prove(self) -> None:
        """Add what the bounds prove from the point, about the problem in hand."""

    def prove_with(self, bound: Bound, point: Point) -> None:
        """Add what one bound proves from `point`."""
        held = self.subproblem
        verdict = judge(held.problem, bound(held.problem, point))
        self.screening = self.screening.tighten(verdict, held.terms, held.features)

    # -- what every round asks --------------------------------------------------------------

    @property
    def over(self) -> bool:
        """As of every problem; there is a largest number of rounds."""
        return len(self.rounds) >= MAX_ROUNDS or super().over

    @property
    def answered(self) -> bool:
        """Whether a solver has found a point; neither 0 nor a start is an answer."""
        return bool(self.rounds)

    @property
    def least_gap(self) -> float:
        """The gap of the best point, or of where the call begins."""
        return self.point.gap if self.best is None else self.best.gap

    @property
    def incumbent(self) -> Iterate:
        """The point to go on from: the best, or without a quadratic term a later, lower one.

        There a single violator makes the gap of a good point larger than that of the start.
        """
        last = self.point
        if self.best is None:
            return last
        lower = self.problem.pure_l1 and last.problem is self.problem
        return last if lower and last.primal < self.best.primal else self.best

    def aim(self) -> float:
        """The absolute gap to end with."""
        return self.factor * self.tol * max(abs(self.incumbent.primal), 1e-300)

    def call_solver(
        self, problem: Problem, start: Start | None, target: float
    ) -> SubproblemResult | None:
        """The inner solver's result; in closed form where nothing is left."""
        if problem.d == 0 or problem.n == 0:
            theta = np.clip(problem.losses.slope(np.zeros(problem.n)), problem.losses.lo,
                            problem.losses.hi)
            x = np.zeros(problem.d)
            if problem.d and problem.penalty is not None:
                x = problem.penalty.prox_and_subgradient(
                    -problem.linear, problem.quadratic.diagonal
                )[0]
            self.result = SubproblemResult("optimal", x, theta)
        else:
            self.result = call_checked(self.inner, problem, start, target)
        return self.result if self.result.usable else None

    def lifted(self, result: SubproblemResult, codes: Codes) -> Pair:
        """The answer to the problem in hand for the full one; `codes` of what it leaves out."""
        held, problem = self.subproblem, self.problem
        x, theta = np.zeros(problem.d), problem.losses.piece_slope(codes)
        x[held.features] = result.x
        theta[held.terms] = result.theta
        return x, np.clip(theta, problem.losses.lo, problem.losses.hi)

    def point_of(self, answer: Answer) -> Point:
        """An answer to go on from, its certificate kept."""
        self._proof = (answer.point, answer.proof)
        return answer.point

    def accept_point(self, point: Point, last: bool) -> None:
        """Take over a better point; stop when the full problem is certified or nothing helps."""
        before = self.least_gap
        if self.best is None or point.gap < self.best.gap or not (self.rounds or self.started):
            self.best = point
        if self.best.relative_gap <= self.tol and self.certified(self.best).ok:
            self.finished = True
            return
        if last:
            if self.factor < SMALLEST_SHARE and point.gap > 0.5 * before:
                self.finished = True
            self.factor *= STRICTER


class ProvenRowsAndColumns(RowsAndColumns[Point]):
    """Only what is proven is left out; see the module's docstring."""

    point: Point

    def worth_proving(self, point: Point) -> bool:
        """Whether what a start should prove is worth its passes; an estimate without one."""
        if not (self.bounds and np.isfinite(point.gap)):
            return False
        return self.cost.worth_starting(self.subproblem, point, self.started, self.aim())

    def prove(self) -> None:
        """Prove and reduce in turns, as long as what is left gets much smaller."""
        if not self.bounds or self.screening.exhausted or not np.isfinite(self.point.gap):
            return
        while True:
            before = self.subproblem.size
            components = [*self.components]
            while components:
                if self.cost.is_negligible(self.subproblem) or self.screening.exhausted:
                    return
                component = self.cost.most_promising(
                    self.subproblem, self.point, components, self.aim()
                )
                if component is None:
                    break
                components.remove(component)
                self.prove_with(component, self.point)
                self.reduce_further()
            if self.subproblem.size > SMALLER * before:
                return

    def reduce_further(self) -> None:
        """Reduce the problem in hand, and the point, by what is proven, where it is worth it."""
        held = self.subproblem
        codes = without_parabolas(self.screening.codes[held.terms])
        selection = Selection(codes, self.screening.dropped[held.features])
        rows, columns = selection.kept, selection.features(held.problem)
        share = self.cost.remaining_share(held, self.point.gap, self.aim(), REDUCTION_COST)
        if not self.cost.worth_reducing(held, held.size_of(rows, columns), len(columns), share):
            return
        self.subproblem = held.within(selection)
        if isinstance(self.result.state, Momentum):
            self.result = replace(self.result, state=self.result.state.take(columns))
        pair = self.point.x[columns], self.point.theta[rows]
        self.point = reference_point(self.subproblem.problem, *pair)

    def next_proof_gap(self) -> float:
        """The gap at which to prove again; 0 where that would not pay."""
        if not self.bounds or self.screening.exhausted:
            return 0.0
        return self.cost.next_proof_gap(self.subproblem, self.point, self.aim())

    def select(self) -> Selection:
        """What the last point proves, added to what is known; a start has been asked before."""
        if self.rounds:
            self.prove()
        return self.screening.selection

    def reduce(
        self, selection: Selection
    ) -> tuple[IndexedSubproblem, Callable[[SubproblemResult], Pair]]:
        """The problem in hand: proofs and reductions take turns, so it is there already."""
        return self.subproblem, lambda result: (result.x, result.theta)

    def solve(
        self, reduced: IndexedSubproblem, selection: Selection
    ) -> SubproblemResult | None:
        """The solver's answer to the gap at which another proof should pay, else to the last."""
        aim = self.aim()
        self.target = max(self.next_proof_gap(), aim)
        self.last = not self.target > aim
        start = Start(self.point.x, self.point.theta, state=self.result.state)
        return self.call_solver(reduced.problem, start, self.target)

    def evaluate(self, lifted: Pair, selection: Selection) -> Point:
        """On the problem in hand, for proofs to go on from; on everything if it may be the last."""
        held, problem = self.subproblem.problem, self.problem
        whole = held is problem
        if whole:
            pair = self.lifted(self.result, without_parabolas(self.screening.codes))
            found = self.point_of(Answer.of(problem, *pair, np.zeros(0), self.tol))
        else:
            found = reference_point(held, *lifted)
        self.cost.learn(self.result, found.gap, self.target, whole)
        self.point = found
        self.last = self.last or found.gap <= 1.1 * self.aim()
        if self.last and not whole:
            pair = self.lifted(self.result, without_parabolas(self.screening.codes))
            return self.point_of(Answer.of(problem, *pair, np.zeros(0), self.tol))
        return found

    def put_back(self, selection: Selection, point: Point | None) -> int:
        """Nothing: what is proven stays out. Take over a point of the full problem."""
        if point is None:
            self.finished = True
        elif point.problem is self.problem:
            self.accept_point(point, self.last)
        return 0

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record a round that found a point."""
        if self.result.usable:
            proven = int((self.screening.codes >= 0).sum())
            part = self.subproblem.problem
            self.record(part.n, self.point, (proven, 0, refuted), times, part.d)


class PredictedRowsAndColumns(RowsAndColumns[Answer]):
    """Features and terms are left out on trust; see the module's docstring."""

    def set_up(self) -> None:
        """What the rounds need beside what every problem in memory keeps."""
        super().set_up()
        problem = self.problem
        self.working_set = np.zeros(problem.d, dtype=bool)
        self.kept_terms = np.zeros(problem.n, dtype=bool)
        self.wanted = self.working_set
        self.predicted = 0

    def worth_proving(self, point: Point) -> bool:
        """Whether a start proves enough: what it proves of terms is among the predicted."""
        if not (self.bounds and np.isfinite(point.gap)):
            return False
        return self.started and not self.cost.patient and proof_pays(point)

    def prove(self) -> None:
        """Add what the bounds prove from the start."""
        point = self.point
        if self.bounds and isinstance(point, Point) and not self.screening.exhausted:
            for bound in self.bounds:
                self.prove_with(bound, point)

    def select(self) -> Selection:
        """The features that are 0 and far from leaving it, and the terms far from a kink."""
        problem, point, known = self.problem, self.incumbent, self.screening
        wanted = next_features(point, self.penalty, self.working_set, self.inner)
        if len(self.rounds) >= MAX_ROUNDS - 2:
            wanted[:] = True
        self.wanted, self.working_set = wanted, wanted & ~known.dropped
        chosen = Prediction(Selection(self.pieces(point), ~wanted)).beside(known)
        codes = without_parabolas(chosen.codes)
        if int((codes >= 0).sum()) < (1.0 - FEWER) * problem.n:
            codes = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
        chosen = Selection(codes, chosen.dropped)
        self.predicted = int(chosen.dropped.sum() - known.dropped.sum())  # type: ignore[union-attr]
        self.predicted += int(((codes >= 0) & (known.codes < 0)).sum())
        return chosen

    def pieces(self, point: Iterate) -> Codes:
        """The pieces that terms are predicted to be on; of none for a solver of few passes."""
        last = len(self.rounds) >= MAX_ROUNDS - 2
        if isinstance(point, ZeroIterate) or not self.cost.patient or last:
            return np.full(self.problem.n, Piece.UNDECIDED, dtype=np.int8)
        self.kept_terms = (codes := predicted_pieces(point, self.kept_terms)) < 0
        return codes

    def reduce(
        self, selection: Selection
    ) -> tuple[IndexedSubproblem, Callable[[SubproblemResult], Pair]]:
        """Leave them out of the full problem."""
        self.subproblem = IndexedSubproblem.whole(self.problem).within(selection)
        return self.subproblem, partial(self.lifted, codes=selection.codes)

    def solve(
        self, reduced: IndexedSubproblem, selection: Selection
    ) -> SubproblemResult | None:
        """The solver's answer to the last gap, or from 0 to a rough one."""
        point = self.incumbent
        if isinstance(point, ZeroIterate):
            return self.call_solver(
                reduced.problem, None,
                first_target(reduced, self.problem.d, self.aim(), point.gap),
            )
        start = Start(point.x[reduced.features], point.theta[reduced.terms])
        return self.call_solver(reduced.problem, start, self.aim())

    def evaluate(self, lifted: Pair, selection: Selection) -> Answer:
        """The pair with its certificate; as a point only once one is needed."""
        return Answer.of(self.problem, *lifted, np.zeros(0), self.tol)

    def put_back(self, selection: Selection, point: Answer | None) -> int:
        """Take over an answer; else count the features that leave 0 and the terms that move."""
        if point is None:
            self.finished = True
            return 0
        proof = point.proof
        if proof.ok and point.feasible and proof.gap <= self.least_gap:
            self.answer, self.finished = point, True
            return 0
        here = self.point_of(point)
        violation = np.abs(here.At_theta + self.problem.linear)
        out = ~self.wanted & ~self.screening.dropped
        off = Prediction(selection).refuted(self.problem, here.margins, self.screening)
        refuted = int((violation[out] > self.penalty.kappa[out]).sum()) + int(off.sum())
        self.point = here
        self.accept_point(here, refuted == 0)
        return refuted

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record a round that found a point."""
        if not self.result.usable:
            return
        best = self.best if self.answer is None else self.answer.proof
        proven = int((self.screening.codes >= 0).sum())
        part = self.subproblem.problem
        self.record(part.n, best, (proven, self.predicted, refuted), times, part.d)
