"""Semismooth Newton on the dual proximal point: the built-in solver of dense or small problems.

Outer iteration: the proximal point method on the dual (an augmented Lagrangian method), which
smooths every loss by ``weight/2 (theta - theta0)^2``. Inner iteration: Newton's method on the
smooth primal ``g(x) + sum_i f_i^weight(<a_i, x>)``; its Hessian is ``M`` plus the rows J whose
slope lies strictly inside its box. Newton steps number 10 to 50 whatever C is, where coordinate
descent stalls. (Li, Sun and Toh 2018 for the scheme.)

The Newton system ``(M + diag(damping) + A_J' diag(curvature) A_J) step = right`` is solved by size
(`solve_newton_system`):

* few coordinates: the dense d x d matrix, scaled to a unit diagonal, and Cholesky;
* few rows in J: the |J| x |J| matrix of the Woodbury identity for the penalised coordinates, and a
  Schur complement for the unpenalised ones; where there are no more than `TALL` rows a coordinate
  the products of all rows are formed once, and a step only takes its part of them;
* otherwise: conjugate gradients on the rows J with a diagonal preconditioner, forming neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import dual_feasible, estimated_gap
from cvxscreen.core.losses import LossTerms, falls_without_end
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, column_squares, entries
from cvxscreen.solvers.interface import (
    SolverSnapshot,
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)

Array = NDArray[np.float64]

# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.89 to 1.09 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
DENSE_LIMIT = 1200
"""Largest side of a matrix that is formed and factorised."""
GRAM_LIMIT, TALL, NARROW = 6000, 2.0, 32
"""Most rows, most rows for each coordinate, and least coordinates for which all products of rows
are formed. The factor of a step has |J| rows then. Measured on 2,000 x 2,000, median loss:
3 s where conjugate gradients took over 100, as the system of a square design is ill-conditioned."""
FEW_ROWS, PATH_STEPS, ROUGH, AFTER_PATH = 100, 30, 1e-5, 1e-2
"""Least rows, most steps and accuracy (relative to the offsets) of the central path that Newton's
method may begin with, and by what the proximal weight is multiplied after it. Medians with an
intercept, 1,500 x 1,500, C = 0.01, 1 and 100: 0.9, 0.75 and 1.2 s; 1.8, 3.6 and 2.7 without."""
STALL, IDLE = 1e-3, 60
"""Relative fall of the gap below which a step counts as none; so many of them end the call."""
STATIONARY = 0.3**2
"""The inner problem is solved when its squared gradient is at most this share of the squared
proximal step (criterion B of Li, Sun and Toh 2018 with a constant)."""
GAP_EVERY, MARGINS_EVERY = 4, 20
"""Steps between two evaluations of the gap, where one costs a pass (unpenalised coordinates), and
between two of the margins afresh, which otherwise carry the rounding of every step."""
CARRIED_FROM, CARRIED, SAME = 64, 30, 1e-12
"""Coordinates from which on Newton's matrix is carried from step to step, steps after which it is
made afresh, as rounding adds up, and the change of a weight, as a share of the largest, that is
none. (By trial; no answer depends on them.)"""
SMOOTHED, MANY = 1e-6, 8
"""Proximal weight relative to the losses' own q where each has a parabola and there are at least so
many terms a coordinate: next to none, which can grow where rounding is in the way. Squared hinge
and Huber, C from 0.01 to 100, steps with it and with q itself: 48,000 x 300, 26,000 x 123 and 5,000
x 300 2 to 10 and 3 to 13; but 2,000 x 500 and 600 x 600 up to 93 and 58, where faces change long.
"""
SYSTEM = 600.0
"""Most ``d^2`` for each row and share of its entries that is stored, for the systems of sparse rows
to be cheap: a factor then costs at most some 200 passes over the data. Measured, squared hinge and
Huber, 20 values of C, of the time of coordinate descent: 16,000 x 100 to 48,000 x 300 and 16,000 x
500 (2 to 430) 0.15 to 1.1, 1,600 x 500 (5,200) 4."""
FAR, UNBEGUN, TALLER = 5500.0, 0.9, 16
"""The same from where coordinate descent is given up far from the optimum, as what goes on else,
`DualActiveSet`, is slow, too; and a relative gap of which it has hardly begun, or a number of terms
a coordinate, one of which is asked for. Measured, squared and smoothed hinge, C from 1 to 100, of
its time: 8,000 x 800 to 50,000 x 1,000 (1,800 to 5,000) 0.06 to 0.9, in the mean 0.2; 9,000 x 900
from gaps of 0.6 and 0.8 1.4 and 1.7; 10,000 x 1,100 and 12,000 x 1,180 (6,000 to 8,100) 0.4 to 1.5;
4,000 x 800 (8,200, less than `MANY` terms a coordinate) 0.3 to 6."""
SEVERAL, MOST = 1.25, 2000
"""Least rows a coordinate and most coordinates of a problem that the interior point method takes
over from coordinate descent. Measured, absolute, quantile and epsilon loss, C = 0.1 to 100, of the
time of what goes on else: dense, d = 300 to 1,500, 1.25 to 3 rows a coordinate, 0.15 to 1.0, and
with one 1.0 to 1.7."""
BEGUN, PLENTY = 0.025, 4
"""Share of the way that coordinate descent may have come over sparse rows, for each row a
coordinate, where they are fewer than the second number: `DualActiveSet` is quicker from farther on,
and with hinges. Measured, absolute, quantile and epsilon loss, d = 400 to 1,000, 1.25 to 3 rows a
coordinate, of its time: 0.05 to 1.1 below, 0.7 to 4 above; hinges 1 to 25."""
OF_CUBE, VECTORS, PASSES, BY_BLOCKS = 0.45, 130.0, 13.0, 40.0
"""Most products of one of its steps for each of ``d^3`` then: a dozen such steps beside the factors
that Newton's method makes; in products, what a step does with each term and each stored entry; and
how many more products of dense rows take the time of one. Measured, hinge and absolute loss, C = 1
to 100, time relative to the next best: 20,000 x 500 and x 1,000, 10 entries a row (0.1), 0.08 to
0.3; 8,000 x 300, 29 (0.42), 0.3 to 0.9; 30,000 x 300, 12 (0.52), 0.7 to 1.3; mnist, 10,000 x 784,
150 (0.51), 1.4; 10,000 x 400, 200 (7), 1.0 to 1.5; dense 8,000 x 640 (0.31) 0.6 to 0.8, 8,000 x 320
(0.62) 0.8 to 1.4."""
ONWARD = 100.0
"""Most ``d^2`` for each row and share of its entries that is stored, for the interior point method
to go on from a neighbour's optimum, on the terms that this leaves open, some ten a coordinate.
Measured, hinge, 20 values of C, of the time of coordinate descent with `DualActiveSet`: 16,000 x
200 to 48,000 x 300 (16 to 94) 0.45 to 0.95, 6,400 x 300 to 4,000 x 800 (140 to 3,800) 1.2 to 2.8.
"""
FAST, MEDIUM, SLOW = 4, 8, 12
"""Newton steps of an inner problem up to which the next proximal weight is a tenth or a quarter
(else half), and from which on it is four times as large. (By trial; no answer depends on it.)"""

FLAT = 1e-9
"""A change of a margin that is none beside the largest."""


@dataclass(frozen=True)
class Newton(SubproblemSolver):
    """The built-in solver for problems without side constraints.

    Parameters
    ----------
    max_steps : int
        Newton steps at most.
    limits : Limits
        Of the whole call.
    """

    max_steps: int = 500
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(
        reaches_target=True, interchangeable=True, descends_first=True
    )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Or until the objective is seen to fall without end, ``"unbounded"``.
        """
        refuse_side(problem)
        state = _NewtonIterate.at(problem, start)
        before = state.steps
        if start is None:
            state.follow_central_path(self.limits)
        return self.go_on(state, target, before)

    def go_on(self, state: _NewtonIterate, target: float, before: int) -> SubproblemResult:
        """The same from where `state` stands, and moves; its steps `before` do not count."""
        problem = state.problem
        best, best_gap = (state.x, state.theta), float("inf")
        since_best = 0
        status = "inaccurate"
        while True:
            rows = state.inside()
            stationarity = state.stationarity(rows)
            travelled = float(np.sum((state.theta - state.theta0) ** 2))
            stationary = stationarity <= STATIONARY * state.weight * travelled
            every = not state.smooth and state.steps % GAP_EVERY == 0
            near = state.smooth and stationarity <= 2.0 * target
            # Beside unpenalised coordinates a gap costs a pass, to balance the slopes: it is looked
            # at where it may be the last one. Without them it comes with the point.
            if stationary or not problem.quadratic.free.any() or every or near:
                gap, theta = state.gap(stationarity)
                if gap < best_gap:
                    since_best = 0 if gap < (1 - STALL) * best_gap else since_best + 1
                    best, best_gap = (state.x, theta), gap
                else:
                    since_best += 1
                if best_gap <= target:
                    status = "optimal"
                    break
            if state.steps - before >= self.max_steps or since_best > IDLE or self.limits.spent():
                break
            if stationary or stationarity == 0.0:
                # An inner problem is done: the proximal point moves on, the further the faster it
                # was.
                state.theta0 = state.theta
                shrink = 10.0 if state.used <= FAST else 4.0 if state.used <= MEDIUM else 2.0
                state.weight = max(state.weight / shrink, state.least)
                state.used = 0
                state.refresh()
                continue
            # Too light a proximal term makes the inner problem as hard as the outer one, or leaves
            # no term on its parabola, and so no curvature at all.
            if (not len(rows) and state.used) or state.used >= SLOW:
                if state.endless():
                    status = "unbounded"
                    break
                state.weight *= 4.0
                state.used = 0
                state.refresh()
                rows = state.inside()
            step = self._direction(state, rows)
            dt = problem.design.forward(step)
            state.passes += 1
            size = _line_search(state, step, dt)
            state.x = state.x + size * step
            state.t = state.t + size * dt
            state.steps += 1
            state.used += 1
            self.limits.spent(1)
            if state.steps % MARGINS_EVERY == 0:
                state.t = problem.design.forward(state.x)
                state.passes += 1
            state.refresh()
            if size == 0.0:  # rounding: no step descends
                state.weight *= 2.0
                since_best += 5
                state.refresh()
        x, theta = best
        info = {
            "steps": state.steps - before, "passes": state.passes, "weight": state.weight,
            "gap": best_gap,
        }
        snapshot = SolverSnapshot(problem, x, state.t, best_gap) if x is state.x else None
        return SubproblemResult(status, x, theta, info=info, state=state, snapshot=snapshot)

    @staticmethod
    def _direction(state: _NewtonIterate, rows: NDArray[np.intp]) -> Array:
        problem = state.problem
        curvature = 1.0 / (problem.losses.q[rows] + state.weight)
        damping = np.zeros(problem.d)
        free = problem.quadratic.free
        if free.any():
            damping[free] = 1e-8 * state.largest_curvature() + 1e-12
        products = state.products() if len(rows) <= problem.d else None  # no use to a larger system
        return solve_newton_system(
            problem, rows, curvature, damping, -state.gradient, products, state.gram
        )


def needs_no_smoothing(problem: Problem) -> bool:
    """Whether Newton's method is quickest on the losses as they are: parabolas, of many terms."""
    n, d = problem.design.shape
    return n >= max(MANY * d, 1) and bool((problem.losses.q > 0.0).all())


def systems_are_cheap(problem: Problem, most: float = SYSTEM) -> bool:
    """Whether a system of sparse rows costs less than the passes that it saves.

    That is some `most` ``d^2`` for each row and share of its entries that is stored.
    """
    (n, d), design = problem.design.shape, problem.design
    return (
        isinstance(design, Rows)
        and problem.quadratic.matrix is None
        and MANY * d <= n
        and d <= DENSE_LIMIT
        and d**2 <= most * n * design.filled
    )


def takes_over(problem: Problem, gap: float) -> bool:
    """Whether Newton's method is the quickest from nothing where coordinate descent is given up.

    That has come to a relative gap `gap`.
    """
    slow = gap > UNBEGUN or problem.n >= TALLER * problem.d
    return systems_are_cheap(problem, FAR if slow and needs_no_smoothing(problem) else SYSTEM)


def interior_point_outpaces(problem: Problem, gap: float = 0.0) -> bool:
    """Whether its dozen steps take less time than what is left where coordinate descent gives up.

    Beside kinks, of rows that are many a coordinate, and cost little beside the factor of a step.
    Over sparse rows fewer will do where the descent ends at a relative `gap` near 1, if slopes have
    both signs.
    """
    (n, d), design, f = problem.design.shape, problem.design, problem.losses
    if not isinstance(design, Rows) or not 0 < d <= MOST:
        return False
    begun = (1.0 - gap) * d > BEGUN * n or not ((f.lo < 0.0) & (f.hi > 0.0)).all()
    if n < (PLENTY if design.sparse and begun else SEVERAL) * d:
        return False
    if problem.quadratic.matrix is not None or not bool((f.q == 0.0).any()):
        return False
    stored = entries(design)
    products = stored**2 / n
    products = products + VECTORS * n + PASSES * stored if design.sparse else products / BY_BLOCKS
    return products <= OF_CUBE * d**3


def interior_point_goes_on(problem: Problem) -> bool:
    """Whether it is the quickest from a neighbour's optimum on, where coordinate descent is slow.

    Beside kinks, over sparse rows.
    """
    (n, d), design = problem.design.shape, problem.design
    if not (isinstance(design, Rows) and design.sparse and systems_are_cheap(problem)):
        return False
    return d**2 <= ONWARD * n * design.filled and problem.losses.ends("q")[0] == 0.0


def follows(problem: Problem) -> bool:
    """Whether `along` is the quickest over many values of C."""
    plain = problem.side is None and problem.penalty is None
    return plain and systems_are_cheap(problem) and needs_no_smoothing(problem)


def along(
    problem: Problem, values: Array, tol: float, known: Sequence[tuple[float, Array, Array]] = ()
) -> Iterator[tuple[float, Array, Array]]:
    """C, x and theta at values of C where every loss has a parabola, each from the one before.

    While no term changes its piece one Newton step is the whole way, and few do from one value to
    the next: two or three steps, which take the matrix over. To a relative gap `tol` by the
    method's own estimate; it ends before the first C for which that is not reached. `known` are C,
    x and theta of solutions at other values, the nearest last.
    """
    newton, state = Newton(), None
    for C in values:
        here = problem.with_(C=float(C))
        if state is not None:
            state.carried_to(here)
        elif known:
            last, x, theta = known[-1]
            state = _NewtonIterate(here, Start(x, theta * (C / last)))
        else:
            state = _NewtonIterate(here, None)
        above = here.primal(state.x, state.t)
        while True:
            # Of the optimum, not of P: a gap in between would be asked for again and again.
            found = newton.go_on(state, tol / (1.0 + 2.0 * abs(tol)) * above, state.steps)
            if found.status != "optimal":
                return
            above, gap = here.primal(state.x, state.t), found.info["gap"]
            if gap <= tol * (above - gap):
                break
        yield float(C), found.x, found.theta


# -- the iterate ------------------------------------------------------------------------------


def default_weight(losses: LossTerms, span: float | None) -> float:
    """A proximal weight whose smoothing band is about one typical margin wide.

    `span` is the losses' `typical_span`.
    """
    used, b = losses.hi > losses.lo, losses.b
    b = b if used.all() else b[used]
    if not len(b):
        return 1.0
    if span is None:
        return median(losses.q[used])
    low, high = float(b.min()), float(b.max())
    spread = float(np.std(b)) if high > low else 1.0
    return max(spread, 1e-12 * max(-low, high), 1e-300) / span


def typical_span(losses: LossTerms) -> float | None:
    """The median width of the boxes that have two ends and a width; None where there are none."""
    (low, least), (most, high) = losses.ends("lo"), losses.ends("hi")
    if low == least and most == high:  # the same for all
        return high - low if 0.0 < high - low < np.inf else None
    span = losses.hi - losses.lo
    some = (span > 0) & np.isfinite(span)
    if not some.all():
        span = span[some]
    return median(span) if len(span) else None


def median(values: Array) -> float:
    """The median of numbers that often are all the same, which takes less to see."""
    first = float(values[0])
    return first if (values == first).all() else float(np.median(values))


class _NewtonIterate:
    """Everything that moves; its arrays are replaced, never written to."""

    def __init__(self, problem: Problem, start: Start | None) -> None:
        self.problem, self.steps, self.used = problem, 0, 0
        q, self.smooth = problem.losses.q, needs_no_smoothing(problem)
        if self.smooth:
            self.weight = SMOOTHED * median(q)
        else:
            self.weight = default_weight(problem.losses, typical_span(problem.losses))
        self.least = 1e-20 * self.weight
        self._products: Array | None = None
        self.gram = CarriedGram(problem) if problem.d >= CARRIED_FROM else None
        if start is None:
            self.x = np.zeros(problem.d)
            self.theta0 = np.zeros(problem.n)
        else:
            self.x = np.array(start.x, dtype=np.float64)
            self.theta0 = np.clip(start.theta, problem.losses.lo, problem.losses.hi)
            if start.weight is not None:
                self.weight = start.weight
        known = None if start is None else start.point
        if known is not None and known.problem is problem and np.array_equal(known.x, self.x):
            self.t, self.passes = known.margins, 0
        else:
            self.t, self.passes = problem.design.forward(self.x), 1
        self.refresh()

    @classmethod
    def at(cls, problem: Problem, start: Start | None) -> _NewtonIterate:
        """Where to begin: where an earlier call stopped on the very problem, if at this start.

        It then goes on as if it had not stopped: the weight and the centre of the proximal term
        are kept as they were, and nothing is evaluated again.
        """
        left = None if start is None else start.state
        if start is None or not isinstance(left, cls) or left.problem is not problem:
            return cls(problem, start)
        if not np.array_equal(left.x, start.x):
            return cls(problem, start)
        state = copy(left)
        state.passes = 0
        return state

    def carried_to(self, problem: Problem) -> None:
        """Stand at the same x of `problem`, the same at another C."""
        self.theta0 = self.theta * (problem.C / self.problem.C)
        self.weight *= self.problem.C / problem.C
        self.least *= self.problem.C / problem.C
        self.problem, self.used = problem, 0
        self.refresh()

    def refresh(self) -> None:
        """Slopes and gradient at the current point: one pass."""
        problem = self.problem
        self.theta = problem.losses.proximal_slope(self.t, self.theta0, self.weight)
        self.gradient = (
            problem.quadratic.apply(self.x) + problem.linear + problem.design.adjoint(self.theta)
        )
        self.passes += 1

    def products(self) -> Array | None:
        """``B D^{-1} B'`` over all rows, B what M penalises of them and D its diagonal.

        Formed at the first call; None where that would not pay.
        """
        if self._products is None and products_pay(self.problem):
            quadratic = self.problem.quadratic
            kept, design = np.flatnonzero(~quadratic.free), self.problem.design
            every = np.arange(self.problem.n)
            rows: Any = design.rows_csr(every) if design.sparse else design.dense()
            rows = rows if len(kept) == rows.shape[1] else rows[:, kept]
            diagonal = quadratic.diagonal[kept]
            if (diagonal != 1.0).any():
                roots = 1.0 / np.sqrt(diagonal)
                rows = rows.multiply(roots).tocsr() if design.sparse else rows * roots
            products = rows @ rows.T
            self._products = products.toarray() if design.sparse else products
        return self._products

    def follow_central_path(self, limits: Limits) -> None:
        """Begin near the optimum where all terms have two sides, and most end between them.

        The faces of such duals have nearly all rows and change for ever; the path goes around them
        in some fifteen factorisations (`cvxscreen.solvers.box_qp`).
        """
        problem, f = self.problem, self.problem.losses
        if not has_central_path(problem):
            return
        border = problem.free_columns
        one = bool(border.size)
        products, sign = self.products(), border[:, 0] if one else np.ones(problem.n)
        if products is None:
            return
        from cvxscreen.solvers.box_qp import CentralPath

        lo, hi = np.minimum(sign * f.lo, sign * f.hi), np.maximum(sign * f.lo, sign * f.hi)
        fixed = np.where(problem.quadratic.free, 0.0, problem.linear)
        offset = f.b + problem.design.forward(problem.quadratic.solve(fixed))
        start = np.zeros(problem.n)
        if one:
            start += -float(problem.linear[problem.quadratic.free][0]) / problem.n
        path = CentralPath(
            products * np.outer(sign, sign), sign * offset, f.e, start.clip(lo, hi), lo, hi, one
        )
        accuracy = ROUGH * float(np.abs(offset).max(initial=0.0))
        for _ in range(PATH_STEPS):
            if path.ended(accuracy) or limits.spent() or not path.advance():
                break
            self.steps += 1
            limits.spent(1)
        c = path.rounded_to_bounds(lo, hi, accuracy)
        theta = np.clip(sign * (path.c if c is None else c), f.lo, f.hi)
        x = -problem.quadratic.solve(problem.design.adjoint(theta) + problem.linear)
        x[problem.quadratic.free] = path.level
        if not np.isfinite(x).all():
            return
        self.x, self.theta0, self.weight = x, theta, AFTER_PATH * self.weight
        self.t = problem.design.forward(x)
        self.passes += 3
        self.refresh()

    def inside(self) -> NDArray[np.intp]:
        """Rows with curvature: slope strictly inside its box and not held at 0 by a dead zone."""
        losses = self.problem.losses
        curved = (self.theta > losses.lo) & (self.theta < losses.hi)
        curved &= (losses.e == 0) | (self.theta != 0)
        return np.flatnonzero(curved)

    def stationarity(self, rows: NDArray[np.intp]) -> float:
        """Squared gradient norm in the metric of M^-1 (free coordinates: of their curvature)."""
        problem = self.problem
        free = problem.quadratic.free
        value = float(self.gradient @ problem.quadratic.solve(self.gradient))
        if free.any():
            second = 1.0 / (problem.losses.q[rows] + self.weight)
            curvature = (problem.free_columns[rows] ** 2).T @ second
            curvature += 1e-6 * self.largest_curvature() + 1e-300
            value += float(np.sum(self.gradient[free] ** 2 / curvature))
        return max(value, 0.0)

    def largest_curvature(self) -> Array:
        """Of each unpenalised coordinate, were every term inside its box, shape (m,)."""
        return (self.problem.free_columns**2).T @ (1.0 / (self.problem.losses.q + self.weight))

    def gap(self, stationarity: float) -> tuple[float, Array]:
        """The duality gap up to rounding, and the dual point (balanced) that has it."""
        problem = self.problem
        if not problem.quadratic.free.any():
            fy = problem.losses.fenchel_young(self.t, self.theta)
            return float(fy.sum()) + 0.5 * stationarity, self.theta
        theta = self.balanced()
        if theta is None:
            theta, _ = dual_feasible(problem, self.theta, None, self.t)
            self.passes += 1
        At_theta = problem.design.adjoint(theta)
        return estimated_gap(problem, self.x, theta, self.t, At_theta), theta

    def balanced(self) -> Array | None:
        """The slopes orthogonal to the unpenalised coordinates by those inside their boxes alone.

        Each moves as readily as it is curved; None where one would leave its box.
        """
        problem, rows = self.problem, self.inside()
        f, columns = problem.losses, problem.free_columns[rows]
        mobile = columns / (f.q[rows] + self.weight)[:, None]
        excess = self.gradient[problem.quadratic.free]
        try:
            theta = self.theta[rows] - mobile @ np.linalg.solve(columns.T @ mobile, excess)
        except np.linalg.LinAlgError:
            return None
        if not ((theta >= f.lo[rows]) & (theta <= f.hi[rows])).all():
            return None
        found = self.theta.copy()
        found[rows] = theta
        return found

    def endless(self) -> bool:
        """Whether the objective falls without end where the unpenalised coordinates are going.

        A reduced problem may do so: the slope far out is then negative, of all terms together.
        """
        problem, losses = self.problem, self.problem.losses
        p = np.where(problem.quadratic.free, self.x, 0.0)
        size = float(np.linalg.norm(p))
        if not 0.0 < size < np.inf:
            return False
        p = p / size
        t = problem.design.forward(p)
        self.passes += 1
        t = np.where(np.abs(t) <= FLAT * np.abs(t).max(initial=0.0), 0.0, t)
        return falls_without_end(t, losses.lo, losses.hi, problem.linear * p)

    def slope_along(self, step: Array, dt: Array, size: float) -> float:
        """Derivative of the smoothed objective along `step` at ``x + size * step``."""
        problem = self.problem
        theta = problem.losses.proximal_slope(self.t + size * dt, self.theta0, self.weight)
        smooth = problem.quadratic.apply(self.x + size * step) + problem.linear
        return float(step @ smooth) + float(dt @ theta)

    def rounding_along(self, step: Array, dt: Array) -> float:
        """About what rounding may change of that derivative, at ``x``."""
        smooth = self.problem.quadratic.apply(self.x) + self.problem.linear
        size = np.abs(step) @ np.abs(smooth) + np.abs(dt) @ np.abs(self.theta)
        return float(np.finfo(np.float64).eps * size)


def _line_search(state: _NewtonIterate, step: Array, dt: Array) -> float:
    """A root of the increasing derivative along `step` (Illinois method), to a tenth.

    0 where there is none ahead, or rounding hides it.
    """
    start = state.slope_along(step, dt, 0.0)
    if start >= 0.0:
        return 0.0
    low, f_low, high = 0.0, start, 1.0
    f_high = state.slope_along(step, dt, high)
    far = abs(f_high) > 0.1 * abs(start)
    if far and abs(f_high - start) <= state.rounding_along(step, dt):
        return 0.0
    for _ in range(60):
        if abs(f_high) <= 0.1 * abs(start):
            return high
        if f_high >= 0.0:
            break
        low, f_low, high = high, f_high, 4.0 * high
        f_high = state.slope_along(step, dt, high)
    else:
        return high
    side = 0
    for _ in range(40):
        size = (low * f_high - high * f_low) / (f_high - f_low)
        value = state.slope_along(step, dt, size)
        if abs(value) <= 0.1 * abs(start) or high - low <= 1e-14 * high:
            return size
        if value < 0:
            low, f_low = size, value
            f_high, side = (0.5 * f_high, -1) if side == -1 else (f_high, -1)
        else:
            high, f_high = size, value
            f_low, side = (0.5 * f_low, 1) if side == 1 else (f_low, 1)
    return low if low > 0 else size


def products_pay(problem: Problem) -> bool:
    """Whether the products of all rows of `problem` are to be formed."""
    n, d = problem.design.shape
    return (
        problem.quadratic.matrix is None
        and isinstance(problem.design, Rows)
        and d >= NARROW
        and n <= min(GRAM_LIMIT, TALL * d)
    )


def has_central_path(problem: Problem) -> bool:
    """Whether Newton's method from nothing begins with the central path.

    That is where all terms are kinks with two sides, beside one intercept at most.
    """
    f, border = problem.losses, problem.free_columns
    if not products_pay(problem) or problem.n < FEW_ROWS:
        return False
    if not ((f.q == 0) & (f.lo < 0) & (f.hi > 0)).all() or not np.isfinite(f.hi - f.lo).all():
        return False
    return not border.size or (border.shape[1] == 1 and bool((np.abs(border) == 1.0).all()))


# -- the Newton system ------------------------------------------------------------------------


class CarriedGram:
    """``A_J' diag(w) A_J`` of the rows J with curvature, carried from one step to the next.

    From step to step few rows come and go, and all others change their weight by one factor: what
    has changed is added and taken off. On 8,000 x 640 with hinges that is a ninth of the rows. The
    weights that the matrix really has are kept, so that only the rounding of sums adds up.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.design, self.age = problem.design, 0
        self.weights: Array | None = None
        self.matrix: Array | None = None

    def at(self, rows: NDArray[np.intp], weights: Array) -> Array:
        """The matrix for J = `rows` and their positive weights; the caller's to change."""
        new = np.zeros(self.design.shape[0])
        new[rows] = weights
        if not self._carried(rows, new) or self.matrix is None:
            self.matrix, self.weights = self.design.weighted_gram(rows, weights), new
            self.age = 0
        return self.matrix.copy()

    def _carried(self, rows: NDArray[np.intp], new: Array) -> bool:
        """Bring the matrix to the weights `new`, unless too much has changed."""
        if self.matrix is None or self.weights is None or self.age >= CARRIED:
            return False
        both = rows[self.weights[rows] > 0.0]
        if not len(both):
            return False
        factor = median(new[both] / self.weights[both])
        old: Array = factor * self.weights
        change = new - old
        changed = np.flatnonzero(np.abs(change) > SAME * new.max())
        if 2 * len(changed) > len(rows):
            return False
        matrix: Array = factor * self.matrix
        for sign in (1.0, -1.0):
            some = changed[sign * change[changed] > 0.0]
            if len(some):
                matrix += sign * self.design.weighted_gram(some, sign * change[some])
        old[changed] = new[changed]
        self.matrix, self.weights = matrix, old
        self.age += 1
        return True


def solve_newton_system(
    problem: Problem, rows: NDArray[np.intp], curvature: Array, damping: Array, right: Array,
    products: Array | None = None, gram: CarriedGram | None = None,
) -> Array:
    """Solve the Newton system; see the module's docstring.

    Parameters
    ----------
    rows : array of int, shape (k,)
        Indices J of the rows with curvature.
    curvature : array, shape (k,)
        Their second derivatives.
    damping : array, shape (d,)
        Added to the diagonal (0 on penalised coordinates).
    right : array, shape (d,)
    products : array, shape (n, n), optional
        Of all rows, in the metric of ``M^{-1}``; see `_NewtonIterate.products`.
    gram : CarriedGram, optional
        Of the steps before.

    Returns
    -------
    array, shape (d,)

    Raises
    ------
    scipy.linalg.LinAlgError
        If the matrix is not positive definite even with a little more on its diagonal.
    """
    quadratic, d = problem.quadratic, problem.d
    diagonal = quadratic.diagonal + damping
    if not len(rows) and quadratic.matrix is None and (diagonal > 0).all():
        return right / diagonal
    few = 2 * len(rows) < min(d, 2 * DENSE_LIMIT)
    if quadratic.matrix is None and (few or (products is not None and len(rows) <= d)):
        try:
            return _woodbury(problem, rows, curvature, diagonal, right, products)
        except sla.LinAlgError:
            if d > DENSE_LIMIT:
                raise
    if d <= DENSE_LIMIT or quadratic.matrix is not None:
        form = problem.design.weighted_gram if gram is None else gram.at
        matrix = form(rows, curvature)
        matrix[np.diag_indices(d)] += diagonal
        if quadratic.matrix is not None:
            matrix += quadratic.matrix
        return solve_positive(matrix, right)
    return _conjugate_gradients(problem, rows, curvature, diagonal, right)


def solve_positive(matrix: Array, right: Array) -> Array:
    """``matrix^{-1} right`` by Cholesky after scaling the diagonal to 1.

    Badly scaled coordinates do not matter to it; a matrix that is singular to rounding gets a
    little more on its diagonal, so the result is a descent direction in any case.
    """
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[:, None] * scale
    for extra in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        if extra:
            scaled[np.diag_indices(len(scaled))] += extra
        try:
            factor = sla.cho_factor(scaled, lower=True, check_finite=False)
        except sla.LinAlgError:
            continue
        weights = scale if right.ndim == 1 else scale[:, None]
        return np.asarray(weights * sla.cho_solve(factor, weights * right, check_finite=False))
    raise sla.LinAlgError("the Newton matrix is not positive definite")


def _woodbury(
    problem: Problem, rows: NDArray[np.intp], curvature: Array, diagonal: Array, right: Array,
    products: Array | None = None,
) -> Array:
    """The Newton step from a system with one equation a row, where there are few rows.

    With D the diagonal of the penalised coordinates, B and E the rows' entries there and on the
    unpenalised ones, W the curvature and ``S = W^{-1} + B D^{-1} B'``::

        (E' S^{-1} E + damping) o = r_o - E' S^{-1} B D^{-1} r
        x = D^{-1} (r - B' S^{-1} (B D^{-1} r + E o))

    (Sherman, Morrison, Woodbury). The matrix of o is a sum, not the Schur complement's difference:
    where W is large nothing would be left of that.
    """
    design, free = problem.design, problem.quadratic.free
    kept, own = np.flatnonzero(~free), np.flatnonzero(free)
    step = np.zeros_like(right)
    if products is not None:
        step[kept] = right[kept] / diagonal[kept]
        first, border = design.forward(step)[rows], problem.free_columns[rows]
        small = products[np.ix_(rows, rows)]
    else:
        block: Any = design.rows_csr(rows) if design.sparse else design.dense(rows)
        inner = block[:, kept] if len(own) else block
        border = block[:, own].toarray() if design.sparse else block[:, own]
        first = inner @ (right[kept] / diagonal[kept])
        if isinstance(inner, np.ndarray):
            small = (inner / diagonal[kept]) @ inner.T
        else:
            small = np.asarray((inner @ inner.multiply(1.0 / diagonal[kept]).tocsr().T).toarray())
    small[np.diag_indices(len(rows))] += 1.0 / curvature
    both = solve_positive(small, np.column_stack([first, border]))
    along = both[:, 0]
    if len(own):
        schur = border.T @ both[:, 1:] + np.diag(diagonal[own])
        step[own] = solve_positive(0.5 * (schur + schur.T), right[own] - border.T @ along)
        along = along + both[:, 1:] @ step[own]
    if products is not None:
        slopes = np.zeros(problem.n)
        slopes[rows] = along
        back = design.adjoint(slopes)[kept]
    else:
        back = inner.T @ along
    step[kept] = (right[kept] - back) / diagonal[kept]
    return step


def _conjugate_gradients(
    problem: Problem, rows: NDArray[np.intp], curvature: Array, diagonal: Array, right: Array
) -> Array:
    block = problem.design.take_rows(rows)
    preconditioner = 1.0 / (diagonal + column_squares(block, curvature))

    def apply(v: Array) -> Array:
        v = np.ravel(v)
        return diagonal * v + block.adjoint(curvature * block.forward(v))

    d = problem.d
    operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
    scale = LinearOperator((d, d), matvec=lambda v: preconditioner * np.ravel(v), dtype=np.float64)
    step, _ = cg(operator, right, rtol=1e-3, maxiter=200, M=scale)
    return np.asarray(step)
