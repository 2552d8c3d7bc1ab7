"""Dual coordinate descent with shrinking: the cheapest first answer on sparse or wide data.

The dual (see `cvxscreen.solvers.dual_active_set`), in the metric of a diagonal M,

::

    minimise  1/2 ||v||^2 + sum_i (b_i theta_i + e_i |theta_i| + q_i/2 theta_i^2)
    over      lo_i <= theta_i <= hi_i,       v = -M^{-1/2} (linear + A' theta)

is minimised over one ``theta_i`` after another, v following; an *epoch* visits every active term
once. It needs no preparation and reads each row where it lies, so it is done with an easy problem
before anything else has begun; on a hard one (large C, correlated features) it slows down, and says
so.

**Order.** Blocks of `BLOCK` neighbouring rows are visited in random order, each from its first row
to its last: rows come from memory in streams, at half of the time or less that rows in random order
take, and the epochs needed are about the same, or fewer by shorter blocks, which then are taken.

**Shrinking.** A term at an end of its box (or at the kink of ``|theta_i|``) is left out once its
margin is farther from where theta would move than the worst violation of the epoch before, both
relative to ``||a_i||`` (Hsieh et al. 2008). A violation is how far the margin was from where it
should be, not how far the box let theta go, by which too many were left out (up to 2.3 times the
epochs). That is a guess; the gap on all terms judges it. Where that gap is too large all terms are
active again, but for those that the midpoint ball of the pair leaves at their end:
``||a_i|| sqrt(gap)`` is how far their margins may move (beside an unpenalised coordinate that is a
guess, too).

**Extrapolation.** Epochs in one and the same order fall along few directions: once the gap is
small, the combination of the last ones whose differences nearly cancel, within the boxes, takes
their place where its dual objective is higher (Bertrand & Massias 2021), at the centre that an
unpenalised coordinate has just then. One order is not for all data: where over sparse rows the
combination brings next to nothing, ten epochs in ever new orders come before the next one.

**Copying.** Where few terms are left, their rows and losses are copied to lie together: what a
visit reads beside its row is else spread over as many cache lines as there are arrays.

**Stopping.** The steps of an epoch tell a gap: what each term added just before its step. Where it
and its fall promise that the target is met, margins and gap are computed on all terms; while few
are active a few epochs more come before that, as they cost less.

**Pivots.** On the face that has been found epochs fall by the same share each, however long that
takes. Once they have cost as much as the way to the optimum of the face by pivots would
(`dual_pivots`), that way is taken.

**Many values of C** (`descend_along`). Slopes are continued on the line through the last two
solutions, or stay as they are where losses are lines and no slope is at an end of its box that
moves with C: the solution is then the same for every larger C. Nothing is reduced or copied in
between.

**Unpenalised coordinate.** As in `dual_active_set`: a proximal term holds it to a centre, which
follows it after every epoch. That is slow where the losses alone hold it, and the same share of the
way each time: once the gap is small the rest of the way is taken at once (Aitken). A look at all
terms is at the centre, which the last epoch has gone by, and not where the next one begins.

Sources: Hsieh et al.: A dual coordinate descent method for large-scale linear SVM, ICML 2008;
Bertrand & Massias: Anderson acceleration of coordinate descent, AISTATS 2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, SUMS, CompileClock, compiled, read_only
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.compiled_path.segments import before_loading, charge
from cvxscreen.solvers.dual_active_set import AT_END, BALANCED, BALANCING_ROUNDS, DualIterate
from cvxscreen.solvers.dual_pivots import (
    CLOCK as PIVOT_CLOCK,
    FREE_WEIGHT,
    SHARE,
    VISIT,
    Basis,
    PivotPlan,
    pivot,
    pivot_cost,
    pivot_price,
    rank_bound,
    stored_entries,
)
from cvxscreen.solvers.dual_terms import (
    HUGE,
    DescentRows,
    DescentTerms,
    is_inside,
    pair_gap,
    row_product,
    slope_at,
    subtract_multiple,
)
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)
from cvxscreen.solvers.newton import (
    Newton,
    interior_point_outpaces,
    products_pay,
    systems_are_cheap,
)
from cvxscreen.solvers.working_set import Array, Index, inside

# The numbers below steer the work; no answer depends on them. They were found by trial: CPU seconds
# of examples/benchmarks/cold_fits.py.

BLOCK, SHORT_BLOCK, NEAR_ROWS = 16, 4, 10_000
"""Neighbouring rows that are visited together; where every loss has a parabola and so few rows lie
in a near cache as many as the second number says: neighbours may be alike, or of one class, and
epochs that keep them together are more. Passes, squared hinge, with 16 and 4: C = 0.01, mushrooms
13.0 and 8.7, dna 13.3 and 9.4, with an intercept pcmac 15.5 and 11.0; not tuned on, binary 3,000 x
150 14.3 and 10.2, text-like 6,000 x 5,000, C = 0.1, 14.9 and 8.5. A pass takes up to a tenth more
then, and a third on 20,000 rows of 10 entries. Beside kinks as many took more passes as fewer
(mushrooms, C = 0.1, 20.2 and 26.0, farmads, C = 1, 198 and 245)."""
BUDGET, FACTORS = 60.0, 100.0
"""Passes after which the solver that follows is cheaper, were its systems solved for nothing.

Some forty factors of Newton's method, as kinks need, cost about ``d^2 / (n filled)`` more over
sparse rows (8,000 x 300 to 20,000 x 500, a pass 1 ns an entry); where that is more than the second
number the interior point method makes a third of them (`interior_point_outpaces`)."""
BESIDE_FACTORS = 2e7
"""Beside the factors these steps cost so many stored entries of a pass, however few rows there are:
20 ms or more, as they are in numpy. Hinges, C = 1, without an intercept and with one, CPU ms
without so many passes more and with them: dna 147 and 242, 27 and 32, binary rows 3,000 x 150 132
and 125, 31 and 33, not tuned on 6,000 x 200 94 and 85, 65 and 62, normal ones 4,000 x 250 70 and
108, 58 and 72; where both are given up, C = 7, 0.97 and 1.03 in the geometric mean of seven sets.
"""
GRAM_PASSES = 1.25
"""The systems of Newton's method on tall dense rows, some fifty of about ``2 d`` rows each, cost so
many passes for each of ``2 d d / n``. Measured: 2,000 x 500 and 10,000 x 300, 0.8 ns an entry in a
pass and 1 ns for ``2 d^3``."""
PRODUCT_BUDGET, PRODUCT_PASSES = 300.0, 0.4
"""Where the products of dense rows are formed once (`newton.products_pay`), Newton's method takes
as long as so many passes, and for each of ``n^2 / d`` so many more. Measured with hinges, C from
0.01 to 100: 150 x 150 360 to 750, 300 x 300 580 to 830, 500 x 500 430 to 620, 1,500 x 1,500 860 to
1,050, 500 x 1,500 370 to 510, 900 x 500 640 to 980; medians up to ten times as many."""
PATH_BUDGET = 200.0
"""The same where both begin at the solution for a smaller C. By trial, hinges, five folds of 20
values of C from 1e-3 to 10 to 1e-6, CPU seconds with 100, 200 and 400: generated counts of words,
1,427 x 4,322, 1.3, 0.7, 0.7, half of news20 4.7, 4.0, 4.0, farmads 12.5, 13.2, 17.3."""
TALL_BUDGET, WIDE = 100.0, 90
"""The same of more rows than columns beside kinks, where `DualActiveSet` or the interior point
method go on, pivots not being enough; and from so many columns on, below which the compiled path is
quicker. Measured, hinges, 20 values, with an intercept and without, the time of what it was before
(the compiled path below 150 columns) and with epochs and pivots: dna 533 and 481 ms, 210 and 176;
mushrooms (112 columns) 436, 113; generated binary rows, 20,000 x 300, 994 and 1,025, 429 and 447;
a9a 855 and 756, 696 and 539; text-like rows 20,000 x 200 648 and 598, 458 and 344, 8,000 x 600 371
and 274, 385 and 322, 20,000 x 1,000 1,061 and 910, 1,054 and 888; with fewer columns phishing (68)
128 and 86, 170 and 120, covtype (54) 377 and 319, 597 and 369, ijcnn1 (22) 142 and 212, 597."""
FEW_PASSES, PATH_PASSES = 12.0, 2.0
"""The same of the compiled path, whose systems are of size d: so many passes, and for each of
``min(n, 2 d) d / n``; where pivots can end them, over sparse rows, more by the inverse of the share
of entries that is stored. Half or less of what was measured: 5,000 x 68 37 passes, 5,000 x 256 160
to 220, 500 x 500 80 to 500 ms, 2,000 x 500 350 to 2,100, 300 x 200 7 to 80; a pass 0.8 ns an entry.
"""
SIDE = 500
"""Problems whose shorter side is at most this do not wait for a compiler: Newton steps on them take
milliseconds."""
NEARBY, HALF = 3e-3, 0.5
"""Relative gap, and share of the budget, from which on `DualActiveSet` goes on as quickly: hinges
and absolute losses, 8,000 x 300 to 30,000 x 300, C from 0.1 to 10, it takes 10 to 120 ms from 1e-3
on, as many more epochs do, and from a gap of 1 on 0.3 to 5 s."""
WINDOW = 4
"""Epochs over which the fall of the gap is measured near the end; the least before a forecast."""
FORECAST = 0.06
"""Share of the budget that is spent before a forecast counts: early ones are too high, above all
after terms have become active again."""
DOUBTED = 2.0
"""Epochs fall more slowly towards the end: so many times what a forecast says are left."""
CLOSE = 0.9
"""Share of the target at which the epochs' own estimate has to be."""
FURTHER, OF_LOOK = 0.3, 0.2
"""Share of the target to which epochs of few active terms go on, and passes that this may take: a
look at all terms, which costs one and a half, is then more often the last."""
FEW, SPREAD = 0.25, 1000
"""Share of the rows from which on the active ones are copied, and rows below which nothing is: they
lie in a near cache anyway. (24,000 x 300, 12 entries a row, hinge, C = 0.5: 50 us an epoch of some
300 active rows where they lie, 21 copied.)"""
EPOCHS = 100_000
"""Epochs of a call at most."""
OF_TIME, TURN, UNIT = 0.05, 0.05, 1.3e-9
"""Share of the seconds that are left, and seconds, after which epochs look at the clock, if not
after `WINDOW` of them: each look is one at all terms, too. And what a stored entry takes."""
DONE, SLOW, COPY, FACE = range(4)
"""Why epochs end: they seem to have reached the target (or their number), the budget will not do,
few terms are left, or these are so few that pivots are cheaper."""
FACES, JOINS, OF_AIM = 3, 8, 0.3
"""How often pivots may end above the target before epochs are all that is left; looks at all terms
after each of which those that turned out to be on the wrong piece join; and the share of the aim
that the active terms may have of it."""
ON_FACE = 0.1
"""Relative gap, as the steps of an epoch tell it, from which on the face is taken to be found."""
COMBINED, SETTLED, RIDGE = 5, 1e-2, 1e-12
"""Epochs that an extrapolation combines; relative gap, as the steps tell it, from which on it is
tried; and what keeps its system from being singular, relative to the trace. By trial: five or seven
took as many passes, four more; from 1e-3 or 1e-1 on about as many. Epochs of hinges: text-like
20,000 x 1,000, C = 1, 320 -> 194, binary 20,000 x 300, C = 0.1, 1,168 -> 265, dna, C = 0.01,
278 -> 143."""
QUICKEST, SLOWEST = 0.65, 0.98
"""Shares of its last step between which a step of the centre is taken for one of a geometric
series and made as long as its sum. Passes, looks included, without and so, squared hinge with an
intercept, C = 0.01 and 0.1: mushrooms 23 and 87, 12 and 25, dna 18 and 40, 16 and 33, pcmac 14 and
24, 16 and 22; with 0.3 for the first number as many, but more on wide rows (farmads, C = 0.2, 14
for 9). Where there are kinks, or before the gap is small, it led astray (mushrooms, hinge, 120 for
19). In short blocks the share is the same from step to step, 0.97 at worst: with 0.95 for the
second number mushrooms, C = 0.1, takes 72 passes for 15, categories in 20 columns 139 for 14."""
LITTLE, REST = 2e-4, 10
"""Share of the gap from which on an extrapolation has helped, and epochs in ever new orders after
one that has not. On counts of words, 4,000 x 12,000, where the gain is 1e-5 to 5e-4 of it, one
order costs far more than it brings (hinge, C = 0.1: 270 passes, never done, for 64; so 72); 1e-4
and 1e-3, 5 and 20 epochs do as well, or up to a fifth less. Dense rows keep their order: 1,000 x
1,000, C = 1, 82 passes, and 98 otherwise, 3,000 x 300, C = 0.01, 41 and 90."""
PIVOTS_EACH, PIVOTS_LEAST = 1.0, 100
"""Pivots for each active term at most, and so many more: where it takes more the face was none."""


def ready(problem: Problem, then: SubproblemSolver | None = None, many: int = 1) -> bool:
    """Whether `problem` need not wait for a compiler, is worth it, or has waited long enough.

    Where `then`, which goes on, selects terms by itself, it is compiled, too, and can begin as
    well: no call is to compile both. Of so `many` problems nearly alike none waits for loading that
    they cost together; nor do sparse rows whose losses all have a parabola for what is loaded
    already. (Where there are kinks it may be given up, and what goes on is not loaded: absolute
    losses of a9a 150 ms for 65.)
    """
    both = then is not None and then.traits.selects_terms
    smooth = problem.design.sparse and problem.losses.ends("q")[0] > 0.0
    if not both and not (smooth and descend.loaded) and before_loading(problem):
        charge(problem, times=many)
        if many == 1 or before_loading(problem):
            return False
    return CLOCK.bought or (min(problem.n, problem.d) > SIDE and not both)


def budget(problem: Problem, then: SubproblemSolver | None) -> float:
    """Passes of coordinate descent that cost what `then` would; None is the compiled path."""
    n, d = problem.design.shape
    if then is None:
        passes = FEW_PASSES + PATH_PASSES * min(n, 2 * d) * d / max(n, 1)
        if isinstance(problem.design, Rows) and _suits_pivots(problem):
            passes /= problem.design.filled
        return passes
    if not isinstance(problem.design, Rows):
        return BUDGET
    if problem.design.sparse:
        factors = _takes_factors(problem)
        return BUDGET + (min(d * d / (n * problem.design.filled), FACTORS) if factors else 0.0)
    if products_pay(problem):
        return PRODUCT_BUDGET + PRODUCT_PASSES * n * n / d
    return BUDGET + GRAM_PASSES * min(n, 2 * d) * min(n, d) / max(n, 1)


def _takes_factors(problem: Problem) -> bool:
    """Whether the solver that follows over sparse rows needs some forty factors, as of kinks."""
    kinked = bool((problem.losses.q == 0.0).any())
    return (kinked and systems_are_cheap(problem)) or interior_point_outpaces(problem)


def further(problem: Problem) -> float:
    """Passes beyond the `budget` where pivots can end them, and are no more than that in all."""
    rows = problem.design
    if not (isinstance(rows, Rows) and pivots_end(problem) and _takes_factors(problem)):
        return 0.0
    n, stored, rank = problem.n, stored_entries(rows), rank_bound(problem)
    pivots = SHARE * rank * pivot_price(rank, stored)
    return BESIDE_FACTORS / (n * (stored + VISIT)) if pivots <= BUDGET * n else 0.0


@dataclass(frozen=True)
class DualCoordinateDescent(SubproblemSolver):
    """Dual coordinate descent on the rows of a problem; see the module.

    What `DualIterate` does not take goes to `Newton`.

    Parameters
    ----------
    shrinking : bool
        Whether terms are left out while they seem to stay at an end of their box.
    budget : float
        Passes over the data after which, or as soon as they are foreseen, the work is given up.
    further : float
        So many more where pivots end it.
    tol : float
        Relative gap that is enough, whatever the target: the dual objective is known here.
    near : float
        Relative gap from which on another solver goes on as quickly: what has got there within
        the budget has not been given up before.
    exact : bool
        Whether others begin at this solution, which is the better for its last digits then.
    limits : Limits
        Of the whole call.
    seed : int
        Of the order of the blocks.
    """

    shrinking: bool = True
    budget: float = np.inf
    further: float = 0.0
    tol: float = 0.0
    near: float = 0.0
    exact: bool = False
    name: str = "DCD"
    limits: Limits = field(default=UNLIMITED, compare=False)
    seed: int = 0

    @property
    def traits(self) -> SolverTraits:
        """With shrinking it finds out by itself which terms matter."""
        return SolverTraits(
            reaches_target=True, stops_right_below=True, selects_terms=self.shrinking
        )

    @classmethod
    def beginning(
        cls, problem: Problem, then: SubproblemSolver | None, tol: float
    ) -> DualCoordinateDescent:
        """The first passes of a cold solve that `then` goes on with, to a relative gap `tol`."""
        limits = UNLIMITED if then is None else then.limits
        near = NEARBY if then is not None and then.traits.selects_terms else 0.0
        more = 0.0 if then is None else further(problem)
        return cls(
            budget=budget(problem, then), further=more, tol=tol, near=near, limits=limits
        )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Returns
        -------
        SubproblemResult
            Status ``"optimal"`` when the target was reached, ``"inaccurate"`` otherwise; its state
            is a `Start` that knows its products.

        Raises
        ------
        InvalidInput
            For another design than rows in memory, or a penalty.
        """
        refuse_side(problem)
        rows = problem.design
        if not isinstance(rows, Rows) or problem.penalty is not None:
            raise InvalidInput(
                "`solver` is 'dcd', which takes rows in memory and no penalty; use 'auto'."
            )
        if not DualIterate.takes(problem):  # such as a parabola that a reduction has folded into M
            return Newton(limits=self.limits)(problem, start, target)
        run = _Descent(problem, rows, start, target, self)
        run.run()
        return run.result()


def without_shrinking(limits: Limits = UNLIMITED) -> DualCoordinateDescent:
    """The method without its own guesses of what stays: what is left out, screening leaves out."""
    return DualCoordinateDescent(shrinking=False, name="DCD_NO_SHRINKING", limits=limits)


def along(problem: Problem, many: int) -> bool:
    """Whether coordinate descent is to follow `problem` over so many values of C.

    Over sparse rows: most of them free, under losses that all have a parabola, or of many columns
    where pivots can end what epochs have begun.
    """
    if not (problem.design.sparse and DualIterate.takes(problem)):
        return False
    few = problem.d > problem.n or problem.losses.ends("q")[0] > 0.0
    return (few or pivots_end(problem)) and ready(problem, many=many)


def pivots_end(problem: Problem) -> bool:
    """Whether pivots make coordinate descent the quickest over sparse rows beside kinks."""
    return _suits_pivots(problem) and PIVOT_CLOCK.bought


def _suits_pivots(problem: Problem) -> bool:
    """Whether they would, were they compiled."""
    wide = problem.design.sparse and problem.d >= WIDE and DualIterate.takes(problem)
    return wide and not problem.losses.ends("q")[0] > 0.0


def without_pivots(problem: Problem) -> AbstractContextManager[None]:
    """Count what is done within as done for want of pivots, where they are not compiled yet."""
    missed = _suits_pivots(problem) and not PIVOT_CLOCK.bought
    return PIVOT_CLOCK.rent() if missed else nullcontext()


def descend_along(
    problem: Problem, values: Array, tol: float, budget: float = PATH_BUDGET,
    known: Sequence[tuple[float, Array, Array]] = (),
) -> Iterator[tuple[float, Array, Array]]:
    """C, x and theta at increasing values of C, each begun where those before point to.

    To a relative gap `tol` by the estimate of the descent; it ends before the first C for which
    `budget` passes will not do. `known` are C, x and theta of solutions at smaller values.
    """
    rows = problem.design
    if problem.n > problem.d and not problem.losses.ends("q")[0] > 0.0:
        budget = min(budget, TALL_BUDGET)
    solver = DualCoordinateDescent(budget=budget, tol=tol, exact=True)
    found = list(known[-2:])
    if not isinstance(rows, Rows):
        return
    for C in values:
        here = problem.with_(C=float(C))
        start = extrapolated(here, found)
        run = _Descent(here, rows, start, 0.0, solver)
        run.run()
        if run.iterate.gap > run.aim:
            return
        x, theta = run.iterate.v * run.iterate.root, run.iterate.balanced
        found = [*found[-1:], (float(C), x, theta)]
        yield found[-1]


def one_epoch(problem: Problem, factor: float) -> tuple[Array, Array]:
    """Where one epoch from 0 leads, x and theta, with the losses multiplied by `factor`.

    Of rows in memory; nothing is known of the gap. An unpenalised coordinate is penalised as much
    as a feature of the size of a row would be.
    """
    rows, n, free = problem.design, problem.n, problem.free_index
    if not isinstance(rows, Rows) or len(free) > 1:
        raise InvalidInput("one epoch needs rows in memory, at most one unpenalised coordinate.")
    diagonal, square = problem.quadratic.diagonal.copy(), problem.norms**2
    if len(free):
        column = problem.free_columns[:, 0] ** 2
        diagonal[free] = max(float(column.sum()), 1e-300) / max(float(square.sum()), 1e-300)
        square += column / diagonal[free]
    root = 1.0 / np.sqrt(diagonal)
    v, theta = -problem.linear * root, np.zeros(n)
    terms = DescentTerms.of(square, problem.losses.scaled(factor))
    work = Work.of(np.arange(n), n, len(v), first_state(0))
    plan = Plan(
        target=0.0, relative=0.0, budget=np.inf, most=1, shrinking=False, free=-1, centre=0.0,
        constant=0.0, few=-1, near=0.0, enough=np.inf, stored=-1.0, rank=0, since=0.0, exact=False,
        beyond=0.0, series=False, block=BLOCK,
    )
    descend(DescentRows.of(rows, root), terms, theta, v, work, n, np.inf, plan)
    return v * root, theta


def first_state(seed: int) -> NDArray[np.uint64]:
    """The state of the random numbers of `shuffle` at the beginning."""
    return np.array([2 * seed + 1], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def extrapolated(problem: Problem, known: Sequence[tuple[float, Array, Array]]) -> Start | None:
    """Where C, x and theta of solutions at smaller values point to; None without any.

    On one face the slopes are affine in C, and constant where none of its terms depends on C.
    """
    if not known:
        return None
    last, x, theta = known[-1]
    f, growth = problem.losses, problem.C / last
    moves = growth * np.abs(theta) >= (1.0 - AT_END) * np.where(theta > 0.0, f.hi, -f.lo)
    moves |= f.q > 0.0
    if not (moves & (theta != 0.0)).any():
        return Start(x, theta)
    line = growth * theta
    if len(known) > 1:
        first, _, before = known[-2]
        line = theta + (problem.C - last) / (last - first) * (theta - before)
    return Start(x, np.clip(line, f.lo, f.hi))


class _Descent:
    """One call: the iterate, the active terms, and what the epochs have told."""

    def __init__(
        self, problem: Problem, rows: Rows, start: Start | None, target: float,
        solver: DualCoordinateDescent,
    ) -> None:
        self.solver, self.target, self.problem, self.design = solver, target, problem, rows
        self.iterate = iterate = DualIterate(problem, rows, start, np.inf)
        iterate.correction[:] = 0.0
        self.limits, self.n, self.value = solver.limits, problem.n, 0.0
        self.epochs, self.pivots, self.passes, self.slow = 0, 0, 0.0, False
        self.slack = np.inf
        self.active = np.arange(problem.n)
        self.random = first_state(solver.seed)
        square = problem.norms**2
        if len(iterate.free):
            square += (problem.free_columns[:, 0] * iterate.root[iterate.free[0]]) ** 2
        self.terms = DescentTerms.of(square, problem.losses)
        self.rows, self.seen = DescentRows.of(rows, iterate.root), Seen.of(problem)
        self.stored, self.rank = stored_entries(rows), rank_bound(problem)
        self.smooth = problem.losses.ends("q")[0] > 0.0
        self.block = SHORT_BLOCK if self.smooth and problem.n <= NEAR_ROWS else BLOCK
        self.faces, self.since = 0, 0.0  # failures, and visits since the last of them

    @property
    def aim(self) -> float:
        """The absolute gap that is enough."""
        return max(self.target, self.solver.tol * (self.value - self.iterate.gap))

    @property
    def budget(self) -> float:
        """Passes in all."""
        return self.solver.budget + (self.solver.further if self.pivots_help else 0.0)

    def goes_on(self) -> bool:
        """Whether the target is not reached, and there is time.

        A few epochs that promise the target each time, as beside an unpenalised coordinate that
        creeps, do not come to a forecast.
        """
        left = self.epochs < EPOCHS and not self.slow and not self.limits.spent()
        left = left and self.passes < self.budget
        return left and self.iterate.gap > self.aim

    def run(self) -> None:
        """Epochs, pivots and looks at all terms until there is nothing more to do."""
        with without_pivots(self.problem):
            while self.goes_on():
                if self.descend() == FACE:
                    self.finish_face()
                else:
                    self.look()
        if not self.epochs:  # there was no time: the start is what there is
            self.look()

    def descend(self) -> int:
        """Epochs until the gap seems small enough, or the budget is seen not to suffice.

        Returns why they ended.
        """
        iterate, solver = self.iterate, self.solver
        free = int(iterate.free[0]) if len(iterate.free) else -1
        centre = float(iterate.centre[0] / iterate.root[free]) if free >= 0 else 0.0
        part = Part.of(
            self.rows, self.terms, iterate.theta, self.active, len(iterate.v), self.random
        )
        ended, constant = COPY, self.problem.constant
        while ended == COPY:
            if len(part.theta) > SPREAD and part.count <= FEW * len(part.theta):
                part, without = part.copied()
                constant += without
            left = self.limits.iterations
            most = min(EPOCHS - self.epochs, EPOCHS if left is None else left)
            seconds = solver.limits.seconds
            if seconds is not None:
                visits = min(OF_TIME * seconds, TURN) / (UNIT * (self.stored + VISIT))
                most = min(most, max(WINDOW, int(visits / max(part.count, 1))))
            few = int(FEW * len(part.theta)) if len(part.theta) > SPREAD else -1
            plan = Plan(
                CLOSE * self.target, CLOSE * solver.tol, (self.budget - self.passes) * self.n,
                most, solver.shrinking, free, centre, constant, few, solver.near,
                (HALF * solver.budget - self.passes) * self.n,
                self.stored if self.pivots_help else -1.0, self.rank, self.since, solver.exact,
                OF_LOOK * self.n, self.smooth, self.block,
            )
            found = descend(
                part.rows, part.terms, part.theta, iterate.v, part.work, part.count, self.slack,
                plan,
            )
            epochs, visited, part.count, self.slack, centre, ended = found
            self.epochs += epochs
            self.passes += visited / max(self.n, 1)
            self.since += visited
            self.limits.spent(epochs)
            part.write_back(iterate.theta)
        self.slow, self.active = ended == SLOW, part.active
        if free >= 0:
            iterate.centre = np.array([centre * iterate.root[free]])
        return ended

    @property
    def pivots_help(self) -> bool:
        """Whether pivots may be tried."""
        return self.solver.shrinking and self.faces < FACES and PIVOT_CLOCK.bought

    def finish_face(self) -> None:
        """Pivots over the active terms, and over those that a look at all terms lets join them."""
        iterate, problem = self.iterate, self.problem
        rows, terms, root, v = self.rows, self.terms, iterate.root, iterate.v.copy()
        free, centre, before = -1, 0.0, 0.0
        if len(iterate.free):
            free, border = int(iterate.free[0]), problem.free_columns[:, 0]
            root = root.copy()
            root[free] /= np.sqrt(FREE_WEIGHT)
            rows = DescentRows.of(self.design, root)
            terms = DescentTerms.of(problem.norms**2 + (border * root[free]) ** 2, problem.losses)
            before = float(v[free] * iterate.root[free])
            centre = before / root[free]
            lacking = float(border @ iterate.theta) + float(problem.linear[free])
            v[free] = centre - lacking * root[free]
        level = float((iterate.centre / iterate.root[iterate.free]).sum())
        value = problem.constant
        value += dual_objective(self.terms, iterate.theta, iterate.v, level)
        least = self.solver.tol * abs(value)
        active, basis, held = self.active, Basis.of(problem, len(self.active)), 0
        for _ in range(JOINS):
            most = int(PIVOTS_EACH * len(active)) + PIVOTS_LEAST
            plan = PivotPlan(OF_AIM * max(self.aim, self.target, least), most, free)
            done, held, looks, _, centre = pivot(
                rows, terms, iterate.theta, v, active, basis, held, centre, plan
            )
            iterate.v[:] = v
            if free >= 0:
                level = float(v[free] * root[free])
                iterate.v[free] = level / iterate.root[free]
                iterate.centre = np.array([level])
            self.pivots += done
            work = looks * len(active) + done * pivot_price(held, self.stored)
            self.passes += work / self.n
            self.active = active
            self.look()
            if iterate.gap <= self.aim or self.limits.spent(1):
                return
            joining = iterate.gap_terms > 0.0
            joining[active] = False
            if done >= most or not joining.any():
                break
            active = np.append(active, np.flatnonzero(joining))
        self.faces, self.since = self.faces + 1, 0.0
        if free >= 0:  # where the coordinate has got to without a minimum is no centre
            lacking = float(border @ iterate.theta) + float(problem.linear[free])
            iterate.centre = np.array([before])
            iterate.v[free] = before / iterate.root[free] - lacking * iterate.root[free]

    def look(self) -> None:
        """Margins and gap on all terms; those that may still move are active again."""
        iterate, problem, seen = self.iterate, self.problem, self.seen
        v, free = iterate.v, iterate.free
        offset, place = (float(problem.linear[free[0]]), int(free[0])) if len(free) else (0.0, -1)
        ahead = v[free]
        v[free] = iterate.centre / iterate.root[free]
        iterate.gap, losses, lacking = look(
            self.rows, self.terms, iterate.theta, v, seen, offset, place
        )
        iterate.t, iterate.gap_terms, iterate.balanced = seen.margins, seen.gaps, seen.balanced
        iterate.passes += 1.5
        if lacking > BALANCED:
            iterate.balance()
        square = float(v @ v) - float(v[free] @ v[free])
        self.value = losses + 0.5 * square + float((problem.linear * iterate.root) @ v)
        self.value += problem.constant
        if iterate.gap <= self.aim:
            return
        v[free] = ahead
        self.active = self._may_move() if self.solver.shrinking else np.arange(self.n)
        self.slack = np.inf

    def _may_move(self) -> Index:
        """Terms that the midpoint ball of the pair leaves open."""
        iterate, f = self.iterate, self.problem.losses
        near = f.kink_distance(iterate.t) <= np.sqrt(iterate.gap) * self.problem.norms
        return np.flatnonzero(near | inside(f, iterate.theta) | (iterate.gap_terms > 0))

    def result(self) -> SubproblemResult:
        """The point, and how it was found."""
        iterate = self.iterate
        status = "optimal" if iterate.gap <= self.aim else "inaccurate"
        x = iterate.v * iterate.root
        x[iterate.free] = iterate.centre  # as the gap was looked at
        info = {
            "epochs": self.epochs, "steps": self.epochs, "pivots": self.pivots, "gap": iterate.gap,
            "relative_gap": iterate.gap / max(abs(self.value), 1e-300),
            "passes": round(self.passes + iterate.passes, 1), "kept": len(self.active),
        }
        known = None
        if not len(iterate.free):
            known = iterate.t, -(iterate.v / iterate.root + iterate.problem.linear)
        state = Start(x, iterate.balanced, passes=known, size=self.value - iterate.gap)
        return SubproblemResult(status, x, iterate.balanced, info=info, state=state)


# -- what the compiled loops read and write -------------------------------------------------------


class Work(NamedTuple):
    """What epochs change.

    Attributes
    ----------
    active : array of int, shape (n,)
        The active rows, in order.
    blocks : array of int
        In the order of visits.
    estimates : array
        Gaps that the last epochs told.
    random : array of uint64, shape (1,)
        The random state.
    past : array, shape (n, COMBINED + 1)
        Slopes after the last epochs.
    system : array, shape (COMBINED + 1, COMBINED)
        Room for what combines them.
    ahead : array, shape (d,)
        Room for v there.
    """

    active: Index
    blocks: Index
    estimates: Array
    random: NDArray[np.uint64]
    past: Array
    system: Array
    ahead: Array

    @classmethod
    def of(cls, active: Index, n: int, d: int, random: NDArray[np.uint64]) -> Work:
        """With the `active` ones of n rows, and a random state that goes on elsewhere."""
        room = np.empty(n, dtype=np.intp)
        room[: len(active)] = active
        blocks, past = np.empty(-(-n // SHORT_BLOCK), dtype=np.intp), np.empty((n, COMBINED + 1))
        system = np.empty((COMBINED + 1, COMBINED))
        return cls(room, blocks, np.zeros(WINDOW + 1), random, past, system, np.empty(d))


class Seen(NamedTuple):
    """What a look at all terms fills in.

    Attributes
    ----------
    margins, gaps : array, shape (n,)
        And what each term adds to the gap.
    balanced : array, shape (n,)
        The dual point that the gap belongs to.
    border : array, shape (n,)
        The column of the unpenalised coordinate, 0 without one.
    moved : array, shape (d,)
        Room for what balancing moves v by.
    """

    margins: Array
    gaps: Array
    balanced: Array
    border: Array
    moved: Array

    @classmethod
    def of(cls, problem: Problem) -> Seen:
        """Nothing seen yet."""
        free = problem.free_columns
        border = np.ascontiguousarray(free[:, 0]) if free.shape[1] else np.zeros(problem.n)
        margins, gaps, balanced = np.empty((3, problem.n))
        return cls(margins, gaps, balanced, border, np.empty(problem.d))


class Plan(NamedTuple):
    """When the epochs end.

    Attributes
    ----------
    target, relative : float
        Gap that is enough, and relative to the dual objective.
    budget : float
        Visits that are left.
    most : int
        Epochs at most.
    shrinking : bool
    free : int
        The unpenalised coordinate; -1 for none.
    centre : float
        In the metric of v.
    constant : float
        Of the dual objective, with what terms add to it that are not here.
    few : int
        So many active terms are to be copied.
    near : float
        Relative gap that forecasts are for, where it is larger.
    enough : float
        Visits after which such a gap ends the epochs.
    stored : float
        Entries of a row; negative where pivots do not come into question.
    rank : int
        Most terms of a basis.
    since : float
        Visits before these that count towards pivots.
    exact : bool
        Whether pivots pay though few epochs are to come.
    beyond : float
        Visits at most after the gap promises the target.
    series : bool
        Whether steps of the centre may be taken for those of a geometric series.
    block : int
        Rows that are visited together.
    """

    target: float
    relative: float
    budget: float
    most: int
    shrinking: bool
    free: int
    centre: float
    constant: float
    few: int
    near: float
    enough: float
    stored: float
    rank: int
    since: float
    exact: bool
    beyond: float
    series: bool
    block: int


@dataclass(eq=False)
class Part:
    """The rows that epochs go over: all of a problem, or a copy of some.

    Attributes
    ----------
    rows, terms, theta : as of the problem
        Of these rows.
    work : Work
    count : int
        How many of them are active.
    index : array of int, or None
        Which rows of the problem they are; None for all, whose theta is the problem's own.
    """

    rows: DescentRows
    terms: DescentTerms
    theta: Array
    work: Work
    count: int
    index: Index | None = None

    @classmethod
    def of(
        cls, rows: DescentRows, terms: DescentTerms, theta: Array, active: Index, d: int,
        random: NDArray[np.uint64],
    ) -> Part:
        """All rows of a problem of d coordinates."""
        return cls(rows, terms, theta, Work.of(active, len(theta), d, random), len(active))

    @property
    def active(self) -> Index:
        """The active rows of the problem."""
        here = self.work.active[: self.count]
        return here if self.index is None else self.index[here]

    def copied(self) -> tuple[Part, float]:
        """The active rows alone, and what the others add to the dual objective."""
        here, count = self.work.active[: self.count], self.count
        terms = DescentTerms(*read_only(*(values[here] for values in self.terms)))
        work = Work.of(np.arange(count), count, len(self.work.ahead), self.work.random)
        part = Part(self.rows.take(here), terms, self.theta[here], work, count, self.active)
        return part, part.conjugates - self.conjugates

    @property
    def conjugates(self) -> float:
        """What these terms take off the dual objective."""
        f, theta = self.terms, self.theta
        return float(f.b @ theta + f.e @ np.abs(theta) + 0.5 * (f.q * theta) @ theta)

    def write_back(self, theta: Array) -> None:
        """Take the slopes over into those of the problem."""
        if self.index is not None:
            theta[self.index] = self.theta


# -- compiled loops -------------------------------------------------------------------------------


@compiled(fastmath=CONTRACT, allocates=False)
def shuffle(values: Index, count: int, random: NDArray[np.uint64]) -> None:
    """A random order of the first `count` values (Fisher and Yates; xorshift numbers)."""
    state = random[0]
    for k in range(count - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        other = np.int64(state % np.uint64(k + 1))
        value = values[k]
        values[k] = values[other]
        values[other] = value
    random[0] = state


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def visit(
    i: int, rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, slack: float
) -> tuple[float, float]:
    """Minimise over ``theta_i``.

    Returns what the term added to the gap before (0 where it stays), and how far its margin was
    from where it should be, squared and relative to ``||a_i||``; that is -1 where theta is at an
    end of its box or at a kink, and the margin farther than `slack` from where it would move.
    """
    square, q, e, lo, hi = terms.square[i], terms.q[i], terms.e[i], terms.lo[i], terms.hi[i]
    now, curvature = theta[i], square + q
    away = row_product(i, rows, v) - terms.b[i]
    z = away + square * now
    z = max(z - e, 0.0) + min(z + e, 0.0)
    if curvature > 0.0:
        new = min(max(z / curvature, lo), hi)
    else:
        new = hi if z > 0.0 else (lo if z < 0.0 else 0.0)
    step = new - now
    if step == 0.0:
        r = away - q * now
        if now == hi and r > e:
            r -= e
        elif now == lo and r < -e:
            r += e
        elif e > 0.0 and now == 0.0:
            r = e - abs(r)
        else:
            return 0.0, 0.0
        return 0.0, -1.0 if r * r > slack * square else 0.0
    theta[i] = new
    subtract_multiple(i, step, rows, v)
    # The Fenchel-Young term of the pair before.
    gap = pair_gap(away, now, slope_at(away, q, e, lo, hi), q, e)
    worst = z - curvature * now
    return gap, worst * worst / square if square > 0.0 else 0.0


@compiled(fastmath=CONTRACT, allocates=False)
def epoch(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, work: Work, count: int,
    slack: float, block: int, ordered: int,
) -> tuple[float, float, int]:
    """Visit the active terms once, blocks of so many; those that are shrunk leave `work.active`.

    Where they make `ordered` blocks, these keep their order.

    Returns the gap that the steps tell, the worst violation squared, and the number left.
    """
    active, blocks = work.active, work.blocks
    number = (count + block - 1) // block
    if number != ordered:
        for k in range(number):
            blocks[k] = k
        shuffle(blocks, number, work.random)
    gap, worst = 0.0, 0.0
    for k in range(number):
        low = blocks[k] * block
        high = min(low + block, count)
        for place in range(low, high):
            added, violation = visit(active[place], rows, terms, theta, v, slack)
            gap += added
            if violation < 0.0:
                active[place] = -1 - active[place]
            elif violation > worst:
                worst = violation
    left = 0
    for k in range(count):
        if active[k] >= 0:
            active[left] = active[k]
            left += 1
    return gap, worst, left


@compiled(fastmath=CONTRACT, allocates=False)
def look(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, seen: Seen, offset: float,
    free: int,
) -> tuple[float, float, float]:
    """Margins of all terms at v, and the gap of the pair of it and theta, balanced.

    The terms inside their piece share what theta lacks to be orthogonal to the column of the
    unpenalised coordinate `free` (-1: none), beside `offset`; they pay least for it.

    Returns the gap, the losses, and what the balance still lacks relative to its parts.
    """
    margins, balanced, border, moved = seen.margins, seen.balanced, seen.border, seen.moved
    losses, gap, lacking, size = 0.0, 0.0, 0.0, 0.0
    for i in range(theta.size):
        margins[i] = row_product(i, rows, v)
        balanced[i] = theta[i]
    for _ in range(BALANCING_ROUNDS if free >= 0 else 0):
        lacking, square = offset, 0.0
        for i in range(theta.size):
            lacking += border[i] * balanced[i]
            if is_inside(i, terms, balanced[i]):
                square += border[i] * border[i]
        for i in range(theta.size if square > 0.0 else 0):
            if is_inside(i, terms, balanced[i]):
                new = balanced[i] - lacking / square * border[i]
                balanced[i] = min(max(new, terms.lo[i]), terms.hi[i])
    for j in range(v.size):
        moved[j] = 0.0
    lacking = offset
    for i in range(theta.size):
        q, e, lo, hi = terms.q[i], terms.e[i], terms.lo[i], terms.hi[i]
        away, now = margins[i] - terms.b[i], balanced[i]
        slope = slope_at(away, q, e, lo, hi)
        seen.gaps[i] = pair_gap(away, now, slope, q, e)
        gap += seen.gaps[i]
        if abs(slope) < HUGE:
            losses += slope * away - e * abs(slope) - 0.5 * q * slope * slope
        if now != theta[i]:
            subtract_multiple(i, now - theta[i], rows, moved)
        lacking += border[i] * now
        size += abs(border[i] * now)
    for j in range(v.size):
        if j != free:
            gap += 0.5 * moved[j] * moved[j]
    return gap, losses, abs(lacking) / size if size > 0.0 else abs(lacking)


@compiled(fastmath=SUMS, allocates=False)
def dual_objective(terms: DescentTerms, theta: Array, v: Array, centre: float) -> float:
    """Up to a constant, with an unpenalised coordinate held to `centre` (0 without one).

    Both are in the metric of v.
    """
    square, conjugates = -centre * centre, 0.0
    for j in range(v.size):
        square += v[j] * v[j]
    for i in range(theta.size):
        value = theta[i]
        conjugates += terms.b[i] * value + terms.e[i] * abs(value)
        conjugates += 0.5 * terms.q[i] * value * value
    return -0.5 * square - conjugates


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def extrapolate(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, work: Work, count: int
) -> float:
    """Move the active terms to where their `work.past` points, if the dual objective is higher.

    The combination ``sum_k c_k theta_k``, ``sum_k c_k = 1``, of the shortest
    ``sum_k c_k (theta_k - theta_{k-1})``, within the boxes; the centre of an unpenalised coordinate
    stays where it is. Wherever they end it is the first of what is past.

    Returns by how much the dual objective is higher there, whether they were moved or not.
    """
    past, system, ahead = work.past, work.system, work.ahead
    many = system.shape[1]  # no constant: loops of a known length are unrolled, at length
    for a in range(many + 1):
        for b in range(many):
            system[a, b] = 0.0
    for k in range(count):
        i = work.active[k]
        for a in range(many):
            move = past[i, a + 1] - past[i, a]
            for b in range(a + 1):
                system[a, b] += move * (past[i, b + 1] - past[i, b])
    total = 0.0
    for a in range(many):
        total += system[a, a]
    share, sums = system[many], 0.0
    for a in range(many):  # a factor of Cholesky's in its place, and forward with ones
        share[a] = 1.0
        for b in range(a + 1):
            entry = system[a, b] + (RIDGE * total if a == b else 0.0)
            for c in range(b):
                entry -= system[a, c] * system[b, c]
            if b < a:
                system[a, b] = entry / system[b, b]
                share[a] -= system[a, b] * share[b]
            else:
                system[a, a] = np.sqrt(entry)
        share[a] /= system[a, a]
    for a in range(many - 1, -1, -1):
        for c in range(a + 1, many):
            share[a] -= system[c, a] * share[c]
        share[a] /= system[a, a]
        sums += share[a]
    gain = 0.0  # not a number where the system is singular all the same
    for j in range(v.size):
        ahead[j] = v[j]
    for k in range(count):
        i = work.active[k]
        now, new = theta[i], 0.0
        for a in range(many):
            new += share[a] / sums * past[i, a + 1]
        new = min(max(new, terms.lo[i]), terms.hi[i])
        past[i, 0] = new
        if new != now:
            subtract_multiple(i, new - now, rows, ahead)
            gain -= terms.b[i] * (new - now) + terms.e[i] * (abs(new) - abs(now))
            gain -= 0.5 * terms.q[i] * (new * new - now * now)
    for j in range(v.size):
        gain += 0.5 * (v[j] - ahead[j]) * (v[j] + ahead[j])
    for k in range(count):
        i = work.active[k]
        if gain > 0.0:
            theta[i] = past[i, 0]
        else:
            past[i, 0] = theta[i]
    if gain > 0.0:
        for j in range(v.size):
            v[j] = ahead[j]
    return gain


@compiled(fastmath=CONTRACT, allocates=False)
def descend(
    rows: DescentRows, terms: DescentTerms, theta: Array, v: Array, work: Work, count: int,
    slack: float, plan: Plan,
) -> tuple[int, float, int, float, float, int]:
    """Epochs until the gap that they tell promises the target, or the budget will not do.

    Returns the epochs and the visits done, the number of active terms, their slack, the centre of
    the unpenalised coordinate, and why they ended: `DONE`, `SLOW`, `COPY` or `FACE`.
    """
    visited, done, centre, estimates = 0.0, 0, plan.centre, work.estimates
    beyond = 0.0  # visits since the gap promised the target
    known = np.inf  # the dual objective, a few epochs old: it grows
    settled, past, rest = False, 0, 0
    moved = 0.0  # by the centre, in the epoch before; 0 where that tells nothing
    ordered = count - count  # of a constant 0 `epoch` would be compiled a second time
    # The gap of an epoch between a quarter and a half of the way here (at first, of the first), and
    # that of a later one, which takes its place.
    old, old_gap, recent, recent_gap = 1, 0.0, WINDOW, 0.0
    while done < plan.most:
        visited += count
        gap, worst, left = epoch(
            rows, terms, theta, v, work, count, slack, plan.block, ordered
        )
        ordered = (count + plan.block - 1) // plan.block if past else 0
        done += 1
        if plan.free >= 0:
            move = v[plan.free] - centre
            along, before, moved = move * moved, moved * moved, move
            if plan.series and settled and QUICKEST * before < along < SLOWEST * before:
                move *= before / (before - along)  # the sum of what is to come
                moved = 0.0
            centre += move
            v[plan.free] += move
        if plan.shrinking:
            count, slack = left, worst
        else:
            for k in range(count):
                if work.active[k] < 0:
                    work.active[k] = -1 - work.active[k]
        span = min(done, WINDOW)
        for k in range(span, 0, -1):
            estimates[k] = estimates[k - 1]
        estimates[0] = gap
        if gap == 0.0 or count == 0:
            break
        if count <= plan.few:
            return done, visited, count, slack, centre, COPY
        if done == 1:
            old_gap = gap
            continue
        span = min(done - 1, WINDOW)
        fall = min((gap / estimates[span]) ** (1.0 / span), 0.999)
        aim = near = plan.target
        value = np.inf
        if plan.relative > 0.0:
            if done <= 2 * WINDOW or done % WINDOW == 0:
                known = plan.constant + dual_objective(terms, theta, v, centre)
            value = known
            aim = max(aim, plan.relative * value)
            near = max(aim, plan.near * value)
        if done == WINDOW:
            recent_gap = gap
        elif done == 2 * recent:
            old, old_gap, recent, recent_gap = recent, recent_gap, done, gap
        promised = gap * fall <= aim
        if promised:
            beyond += count
            if gap * fall <= FURTHER * aim or beyond >= plan.beyond:
                break
        settled = settled or gap <= SETTLED * value
        if settled and done >= rest:
            for k in range(count):
                i = work.active[k]
                work.past[i, past] = theta[i]
            past += 1
            if past > COMBINED:
                gain = extrapolate(rows, terms, theta, v, work, count)
                past = 1
                if rows.indices.size and not gain >= LITTLE * gap:
                    rest, past = done + REST, 0
        if promised or done < WINDOW:
            continue
        price, from_face = np.inf, 0.0
        if plan.stored >= 0.0:
            price, from_face = pivot_cost(count, plan.rank, plan.stored), ON_FACE * value
        # The gap falls unevenly: from a few epochs alone the forecast is off by up to ten times.
        trend = min((gap / old_gap) ** (1.0 / (done - old)), 0.999)
        left = np.log(aim / gap) / np.log(trend) if aim > 0.0 else np.inf
        on_face = gap <= from_face
        if on_face and plan.since + visited >= price and (plan.exact or left * count >= price):
            return done, visited, count, slack, centre, FACE
        if visited < FORECAST * plan.budget:
            continue
        ahead = np.log(near / gap) / np.log(trend) if near > 0.0 else np.inf
        enough = gap * fall <= near and visited > plan.enough
        enough = enough and visited + DOUBTED * left * count > plan.budget
        if enough or visited + max(ahead, 1.0) * count > plan.budget:
            if visited + price <= plan.budget:
                if on_face:
                    return done, visited, count, slack, centre, FACE
                ahead = np.log(from_face / gap) / np.log(trend) if from_face > 0.0 else np.inf
                if visited + ahead * count + price <= plan.budget:
                    continue
            return done, visited, count, slack, centre, SLOW
    return done, visited, count, slack, centre, DONE


CLOCK = CompileClock(4.0, descend)
"""Of `descend` and `look`. Measured on a fresh cache, loaded: 5.2 to 5.5 CPU seconds, without
`extrapolate` 4.4 (2.6 when the machine was quiet)."""
