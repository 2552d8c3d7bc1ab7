"""Newton's method with conjugate gradients, on losses that all have a parabola.

The objective, in the metric of a diagonal M (``v = M^{1/2} x``, rows divided by ``M^{1/2}``),

::

    1/2 ||v||^2 + <linear, v> + sum_i f_i(<a_i, v>),        f_i'' = 1 / q_i or 0

is once differentiable, and its second derivative at v is ``I + A_J' Q_J^{-1} A_J`` with J the rows
whose slope ``theta_i = f_i'(t_i)`` is strictly inside its piece. Conjugate gradients solve Newton's
system roughly, forming nothing: a product reads each row of J once, where it lies. Steps are as
long as the derivative along them says. A dozen steps and some dozens of products do where dual
coordinate descent, whose epochs cost about as much, slows down.

**The gap** of ``(v, theta)`` is half the squared gradient, as every ``f_i`` meets its conjugate at
``theta_i``: nothing is computed for it.

**An unpenalised coordinate** is eliminated from every system: its row and column of the second
derivative are kept up to date, and a product takes them off. As one more coordinate without a
square it makes a system nearly singular where features add up to a constant, as those of categories
do (products of conjugate gradients, squared hinge, C = 0.1, so and eliminated: dna 106 and 42,
mushrooms 639 and 108, categories in 20 columns 313 and 20, text-like 21 and 12). The rows J, which
pay least for it, share what is missing of its equation.

**How exactly** a system is solved: to a share of the gradient, and never further than the target.

**Preconditioner.** ``M`` and a share of the whole diagonal: with all of it rows of text took twice
as many steps, with nothing columns of very different sizes did ten times.

**The gradient** is affine along a step but for the rows that change their piece, and what conjugate
gradients have left of a system says how: only those rows are read again, fewer with each step. What
the steps tell of the gap is taken as it is where rounding is nothing to what was asked for; the
certificate is computed afresh in any case.

**Hard systems.** Where one takes as many products as making and factorising its matrix would cost,
or those to come are foreseen to, that is done with all that follow (`newton.solve_newton_system`);
of many columns they are left to another solver.

Source: Dembo, Steihaug, Mathematical Programming 26, 190-212 (1983); Lin, Weng, Keerthi, JMLR 9,
627-650 (2008) and Hsia, Zhu, Lin, ACML 2017, of the same on linear classifiers, with a trust
region where we search along the line; Hsia, Chiang, Lin, ACML 2018, for the preconditioner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from cvxscreen._support.compiled import CONTRACT, SUMS, CompileClock, compiled
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import dual_feasible, estimated_gap
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_terms import (
    DescentRows,
    DescentTerms,
    is_inside,
    row_product,
    subtract_multiple,
)
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)
from cvxscreen.solvers.newton import DENSE_LIMIT, CarriedGram, Newton, solve_newton_system
from cvxscreen.solvers.working_set import Array, Index, inside

# The numbers below steer the work; no answer depends on them. They were found by trial: CPU seconds
# and products on nine sparse sets, C from 0.01 to 100.

FORCING = 0.15
"""Share of the gradient that conjugate gradients leave of a system."""
OF_AIM = 0.25
"""Share of the gap asked for below which nothing is to be gained by solving a system further."""
DIAGONAL = 0.1
"""Share of the second derivative's diagonal in the preconditioner."""
ALONG, SEARCHES = 0.1, 40
"""Share of the derivative along a step that may be left at its end; trials for it at most."""
STEPS, LEAST = 50, 1e-4
"""Steps at most, and the share of the gap asked for at which they end for good where it is not what
it was expected to be."""
DAMPING = 1e-8
"""Of the largest curvature of an unpenalised coordinate, added to it: there may be none."""
ROW, OUTER, SQUARE, CUBE, CALLS = 10.0, 0.9, 6.0, 0.013, 1e5
"""Costs in the time of one stored entry in a product, some 1.5 ns: a row of it beside its entries;
a product of two entries of a row in the matrix of a system, each of its d^2 entries, each of
``d^3`` in its factor, and the calls for both. Measured, 3,000 x 180 to 50,000 x 300, within a
factor of three."""
CHANGED = 0.2
"""Share of the matrix's rows that come or go from one system to the next, about."""
TRUSTED = 1e-10
"""Relative gap asked for from which on what the steps tell of it is taken as it is: rounding in
margins and gradient is nothing to it."""


@dataclass(frozen=True)
class TruncatedNewton(SubproblemSolver):
    """The primal Newton method on rows of a problem whose losses all have a parabola.

    What it does not take goes to `Newton`.

    Parameters
    ----------
    tol : float
        Relative gap that is enough, whatever the target.
    budget : float
        Passes over the data after which the work is given up.
    limits : Limits
        Of the whole call.
    """

    tol: float = 0.0
    budget: float = np.inf
    name: str = "TRUNCATED_NEWTON"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True, selects_terms=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute)."""
        refuse_side(problem)
        rows = problem.design
        if not isinstance(rows, Rows) or not takes(problem):
            return Newton(limits=self.limits)(problem, start, target)
        run = _Run(problem, rows, start, target, self)
        run.run()
        return run.result()


def takes(problem: Problem) -> bool:
    """Whether it is for `problem`: sparse rows in memory, M diagonal, parabolas everywhere.

    And none with lines on both sides that slope to one, as of a hinge with a round corner: where C
    is large few rows have curvature on the way, and steps help little.
    """
    if not (isinstance(problem.design, Rows) and problem.design.sparse and problem.n):
        return False
    if problem.side is not None or problem.penalty is not None:
        return False
    if problem.quadratic.matrix is not None or int(problem.quadratic.free.sum()) > 1:
        return False
    f = problem.losses
    if not f.ends("q")[0] > 0.0:
        return False
    return bool((((f.lo < 0.0) & (f.hi > 0.0)) | np.isinf(f.lo) | np.isinf(f.hi)).all())


def along(
    problem: Problem, values: Array, tol: float, known: Sequence[tuple[float, Array, Array]] = ()
) -> Iterator[tuple[float, Array, Array]]:
    """C, x and theta at values of C, each from where the two before point to.

    That is linear in ``log C``; the matrix of a system is taken over from value to value. To a
    relative gap `tol` by the method's own estimate; it ends before the first C for which that is
    not reached. `known` are C, x and theta of solutions at other values, the nearest last.

    Five folds of 20 values of C from 1e-3 to 10, squared hinge, an intercept or none, CPU ms of
    `newton.along` or the compiled path and of this: dna 690 and 370, mushrooms 860 and 500,
    categories of 200 columns 800 and 370, of 1,500 760 and 700, a9a 1,300 and 1,500.
    """
    rows = problem.design
    if not isinstance(rows, Rows):
        return
    solver, gram = TruncatedNewton(tol=tol), CarriedGram(problem)
    found = [(C, x, rows.forward(x)) for C, x, _ in known[-2:]]
    for C in values:
        run = _Run(problem.with_(C=float(C)), rows, towards(float(C), found), 0.0, solver, gram)
        run.run()
        if run.gap > run.aim:
            return
        x = run.columns.v * run.root
        found = [*found[-1:], (float(C), x, run.at.margins)]
        yield float(C), x, run.theta


def towards(C: float, found: Sequence[tuple[float, Array, Array]]) -> Start | None:
    """Where C, x and margins of solutions at other values point to; None without any."""
    if not found:
        return None
    last, x, t = found[-1]
    if len(found) > 1 and found[0][0] != last:
        first, before, margins = found[0]
        share = float(np.log(C / last) / np.log(last / first))
        x, t = x + share * (x - before), t + share * (t - margins)
    return Start(x, np.zeros(0), passes=(t, np.zeros(0)))


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def products_for_a_system(rows: float, stored: float, d: int) -> tuple[float, float]:
    """In how many products a system of so many rows and entries costs as much by its matrix.

    The first is for the matrix, once; the second for what comes with each system: its factor, and
    the rows that have changed. Endless where that is too large.
    """
    if d > DENSE_LIMIT or rows == 0.0:
        return np.inf, np.inf
    product = stored + ROW * rows
    matrix = 0.5 * OUTER * stored * stored / rows
    each = CHANGED * matrix + SQUARE * d**2 + CUBE * d**3 + CALLS
    return matrix / product, each / product


class _Run:
    """One call: the point, and what has been spent."""

    def __init__(
        self, problem: Problem, rows: Rows, start: Start | None, target: float,
        solver: TruncatedNewton, gram: CarriedGram | None = None,
    ) -> None:
        self.problem, self.solver, self.target = problem, solver, target
        n, d = problem.design.shape
        free = problem.free_index
        self.free = int(free[0]) if len(free) else -1
        diagonal = problem.quadratic.diagonal.copy()
        diagonal[free] = 1.0
        self.root = 1.0 / np.sqrt(diagonal)
        self.rows = DescentRows.of(rows, self.root)
        self.terms = DescentTerms.of(problem.norms, problem.losses)
        self.columns = Columns.of(d, problem.linear * self.root)
        margins, before, moves, level = np.zeros((4, n))
        if self.free >= 0:
            level[:] = problem.free_columns[:, 0]
        theta, curved = np.full(n, np.nan), np.empty(n, dtype=np.intp)
        self.at = Terms(margins, theta, before, 1.0 / problem.losses.q, moves, curved, level)
        self.gap, self.value, self.steps, self.products, self.passes = np.inf, np.inf, 0, 0, 0.0
        self.theta, self.gram = np.zeros(n), CarriedGram(problem) if gram is None else gram
        if start is not None:
            self.begin(start)

    def begin(self, start: Start) -> None:
        """At a start, unless nothing at all is better."""
        problem = self.problem
        t = start.passes[0] if start.passes is not None else problem.design.forward(start.x)
        if problem.primal(start.x, t) < problem.primal(np.zeros(problem.d), np.zeros(problem.n)):
            self.columns.v[:] = start.x / self.root
            self.at.margins[:] = t

    @property
    def aim(self) -> float:
        """The absolute gap that is enough."""
        return max(self.target, self.solver.tol * (self.value - self.gap))

    def run(self) -> None:
        """Steps until the gap, computed afresh, is small enough."""
        solver, share, count, directly = self.solver, 1.0, 0, False
        size = max(self.rows.data.size, 1)
        while True:
            left = solver.limits.iterations
            most = STEPS - self.steps if left is None else min(STEPS - self.steps, left)
            if directly:
                self.solve_directly(count)
            if directly or solver.limits.seconds is not None:
                most = min(most, 1)
            plan = NewtonPlan(
                share * self.target, share * solver.tol, most, directly,
                (solver.budget - self.passes) * size, self.free, self.problem.constant,
            )
            steps, products, read, count, value, gap, ended = newton_steps(
                self.rows, self.terms, self.at, self.columns, plan
            )
            self.steps, self.products = self.steps + steps, self.products + products
            self.passes += read / size
            over = solver.limits.spent(steps) or self.steps >= STEPS or ended == SPENT
            if ended == REACHED and self.told(value, gap) and self.aim >= TRUSTED * abs(value):
                return
            if ended in (REACHED, STUCK) or over:
                self.look()
                share *= 0.1
                if self.gap <= self.aim or ended == STUCK or over or share < LEAST:
                    return
            directly = directly or ended == HARD

    def solve_directly(self, count: int) -> None:
        """The step for the `count` rows with curvature by the matrix of the system."""
        problem, columns = self.problem, self.columns
        rows, damping = self.at.curved[:count], np.zeros(problem.d)
        if self.free >= 0:
            damping[self.free] = DAMPING * float(self.at.second @ problem.free_columns[:, 0] ** 2)
        step = solve_newton_system(
            problem, rows, self.at.second[rows], damping, -columns.gradient / self.root,
            gram=self.gram,
        )
        columns.step[:] = step / self.root

    def told(self, value: float, gap: float) -> bool:
        """Take over what the steps tell; False where the slopes cannot be balanced as they do."""
        theta = self.at.theta
        if self.free >= 0:
            theta = theta.copy()
            if not self.share(theta):
                return False
        self.theta, self.value, self.gap = theta, value, gap
        return True

    def share(self, theta: Array) -> bool:
        """Let the rows J share what is missing of an unpenalised coordinate's equation.

        False where one of them would leave its piece; nothing is changed then.
        """
        f, level = self.problem.losses, self.at.level
        rows = np.flatnonzero(inside(f, theta))
        border = level[rows]
        mobile = border * self.at.second[rows]
        size = float(border @ mobile)
        if not size > 0.0:
            return False
        excess = float(level @ theta + self.problem.linear[self.free])
        moved = theta[rows] - mobile * (excess / size)
        if not ((moved >= f.lo[rows]) & (moved <= f.hi[rows])).all():
            return False
        theta[rows] = moved
        return True

    def look(self) -> None:
        """Margins and gap afresh, the slopes balanced for an unpenalised coordinate."""
        problem, f = self.problem, self.problem.losses
        x = self.columns.v * self.root
        t = problem.design.forward(x)
        theta = f.slope(t)
        if self.free >= 0 and not self.share(theta):
            theta, _ = dual_feasible(problem, theta, None, t)
        At_theta = problem.design.adjoint(theta)
        self.passes += 2.0
        self.theta, self.at.margins[:] = theta, t
        self.value = problem.primal(x, t)
        self.gap = estimated_gap(problem, x, theta, t, At_theta)

    def result(self) -> SubproblemResult:
        """The point, and how it was found."""
        x = self.columns.v * self.root
        status = "optimal" if self.gap <= self.aim else "inaccurate"
        info = {
            "steps": self.steps, "products": self.products, "gap": self.gap,
            "relative_gap": self.gap / max(abs(self.value - self.gap), 1e-300),
            "passes": round(self.passes, 1),
        }
        return SubproblemResult(status, x, self.theta, info=info)


# -- what the compiled loops read and write -------------------------------------------------------


class Terms(NamedTuple):
    """Of all terms.

    Attributes
    ----------
    margins, theta, before : array, shape (n,)
        Slopes are NaN where nothing is known; and those before the last step.
    second : array, shape (n,)
        ``1 / q``.
    moves : array, shape (n,)
        Of the margins along a step.
    curved : array of int
        The rows J.
    level : array, shape (n,)
        The column of the unpenalised coordinate, 0 without one.
    """

    margins: Array
    theta: Array
    before: Array
    second: Array
    moves: Array
    curved: Index
    level: Array


class Columns(NamedTuple):
    """The point, and vectors of its length.

    Attributes
    ----------
    v, linear : array, shape (d,)
    gradient, squares, border : array, shape (d,)
        ``sum_J a_ij^2 / q_i`` is the second; the third is the second derivative's column of the
        unpenalised coordinate.
    step, residual, direction, product, scale : array, shape (d,)
        Of conjugate gradients; the last is the preconditioner.
    """

    v: Array
    linear: Array
    gradient: Array
    squares: Array
    border: Array
    step: Array
    residual: Array
    direction: Array
    product: Array
    scale: Array

    @classmethod
    def of(cls, d: int, linear: Array) -> Columns:
        """At 0."""
        v, gradient, squares, border, step, residual, direction, product, scale = np.zeros((9, d))
        return cls(v, linear, gradient, squares, border, step, residual, direction, product, scale)


class NewtonPlan(NamedTuple):
    """When steps end.

    Attributes
    ----------
    target, relative : float
        Gap that is enough, and relative to the objective less it.
    most : int
        Steps at most.
    given : bool
        Whether the first step is there already.
    budget : float
        Entries that may still be read.
    free : int
        The unpenalised coordinate; -1 for none.
    constant : float
        Of the objective.
    """

    target: float
    relative: float
    most: int
    given: bool
    budget: float
    free: int
    constant: float


REACHED, HARD, STUCK, MOST, SPENT = range(5)
"""Why steps end: the gap seems small enough; a system took too long; no step helps, for rounding;
there have been as many as may be; the budget is spent."""


# -- compiled loops -------------------------------------------------------------------------------


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def add_squares(i: int, weight: float, rows: DescentRows, out: Array) -> None:
    """``out_j += weight a_ij^2``."""
    start, stop = rows.start[i], rows.stop[i]
    weight = weight * rows.factor[i] * rows.factor[i]
    if rows.indices.size:
        for p in range(start, stop):
            out[rows.indices[p]] += weight * rows.data[p] * rows.data[p]
    else:
        for j in range(stop - start):
            out[j] += weight * rows.data[start + j] * rows.data[start + j]
    first = out.size - rows.extra.shape[1]
    for k in range(rows.extra.shape[1]):
        out[first + k] += weight * rows.extra[i, k] * rows.extra[i, k]


@compiled(fastmath=SUMS, allocates=False, inline=True)
def slope_of(i: int, away: float, terms: DescentTerms, at: Terms) -> float:
    """The slope of a loss with a parabola at the margin ``b + away``.

    Without a branch, so that loops of it take several terms at once.
    """
    shrunk = max(away - terms.e[i], 0.0) + min(away + terms.e[i], 0.0)
    return min(max(shrunk * at.second[i], terms.lo[i]), terms.hi[i])


@compiled(fastmath=SUMS, allocates=False, alone=False)
def renew_slopes(terms: DescentTerms, at: Terms) -> float:
    """Slopes at the margins, those before them aside; the sum of the losses."""
    value = 0.0
    for i in range(at.theta.size):
        away = at.margins[i] - terms.b[i]
        slope = slope_of(i, away, terms, at)
        at.before[i], at.theta[i] = at.theta[i], slope
        value += slope * away - terms.e[i] * abs(slope) - 0.5 * terms.q[i] * slope * slope
    return value


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def differentiate(
    rows: DescentRows, terms: DescentTerms, at: Terms, columns: Columns, free: int, length: float,
    damping: float,
) -> tuple[float, int, float]:
    """Slopes, gradient, the rows J and the diagonal of the second derivative.

    After so much of a step whose system has left `columns.residual`, only rows are read whose slope
    is not on the line that it was on; with a `length` of 0 the gradient is summed afresh.

    Returns the objective without its constant, how many rows J has, and the entries read.
    """
    v, linear, gradient, squares = columns.v, columns.linear, columns.gradient, columns.squares
    value, count, read = 0.0, 0, 0.0
    for j in range(v.size):
        if length == 0.0:
            gradient[j] = linear[j] + v[j] if j != free else linear[j]
        else:
            gradient[j] -= length * (gradient[j] + columns.residual[j])
        value += linear[j] * v[j]
        if j != free:
            value += 0.5 * v[j] * v[j]
    if length != 0.0 and free >= 0:  # the damping is the system's, not the objective's
        gradient[free] -= length * damping * columns.step[free]
    value += renew_slopes(terms, at)
    for i in range(at.theta.size):
        before, slope, e = at.before[i], at.theta[i], terms.e[i]
        was, now = is_inside(i, terms, before), is_inside(i, terms, slope)
        at.curved[count] = i
        count += now
        if length == 0.0:
            expected = 0.0
        elif was & now & ((e == 0.0) | (slope * before > 0.0)):
            expected = slope
        else:
            expected = before + length * at.second[i] * at.moves[i] if was else before
        if slope != expected:
            subtract_multiple(i, expected - slope, rows, gradient)
            read += rows.stop[i] - rows.start[i]
        if now != was:
            second = at.second[i] if now else -at.second[i]
            add_squares(i, second, rows, squares)
            if free >= 0:
                subtract_multiple(i, -second * at.level[i], rows, columns.border)
    return value, count, read


@compiled(fastmath=SUMS, allocates=False, alone=False)
def squared_size(vector: Array, border: Array, free: int, curvature: float) -> float:
    """Of a gradient: twice what the objective may fall by, at most; ``||r||^2`` without `free`.

    With it, of what is left once the rows J share what is missing of its equation.
    """
    size, share = 0.0, vector[free] / curvature if free >= 0 else 0.0
    for j in range(vector.size):
        left = vector[j] - share * border[j]
        size += left * left
    if free >= 0:
        left = vector[free] - share * border[free]
        size += share * vector[free] - left * left
    return size


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def multiply(
    rows: DescentRows, at: Terms, count: int, columns: Columns, free: int, weight: float
) -> float:
    """The second derivative times the direction, to `product`; their inner product.

    Without the unpenalised coordinate, of curvature `weight`: the direction is 0 there.
    """
    direction, product = columns.direction, columns.product
    for j in range(product.size):
        product[j] = direction[j]
    for k in range(count):
        i = at.curved[k]
        slope = row_product(i, rows, direction) * at.second[i]
        subtract_multiple(i, -slope, rows, product)
    if free >= 0:
        share = product[free] / weight
        for j in range(product.size):
            product[j] -= share * columns.border[j]
        product[free] = 0.0
    curvature = 0.0
    for j in range(product.size):
        curvature += product[j] * direction[j]
    return curvature


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def solve_system(
    rows: DescentRows, at: Terms, count: int, columns: Columns, enough: float, most: float,
    free: int, damping: float,
) -> int:
    """Newton's step, by conjugate gradients until the squared residual is `enough`; products.

    That number is larger than `most` where they do not suffice. The unpenalised coordinate is
    eliminated: beside features that add up to a constant the system with it is nearly singular.
    """
    step, residual, direction, scale = (
        columns.step, columns.residual, columns.direction, columns.scale
    )
    product, squares, border = columns.product, columns.squares, columns.border
    weight = damping + squares[free] if free >= 0 else 1.0
    share = columns.gradient[free] / weight if free >= 0 else 0.0
    rz = 0.0
    for j in range(step.size):
        scale[j] = 1.0 / (1.0 + DIAGONAL * squares[j])
        step[j], residual[j] = 0.0, share * border[j] - columns.gradient[j]
        if j == free:
            residual[j] = 0.0
        direction[j] = scale[j] * residual[j]
        rz += direction[j] * residual[j]
    done, going = 0, True
    while going and done < most:
        curvature = multiply(rows, at, count, columns, free, weight)
        done += 1
        if not curvature > 0.0:
            going = False
            break
        length, size = rz / curvature, 0.0
        for j in range(step.size):
            step[j] += length * direction[j]
            residual[j] -= length * product[j]
            size += residual[j] * residual[j]
        going = size > enough
        before, rz = rz, 0.0
        for j in range(step.size):
            product[j] = scale[j] * residual[j]
            rz += product[j] * residual[j]
        for j in range(step.size):
            direction[j] = product[j] + rz / before * direction[j]
    if free >= 0:
        along = 0.0
        for j in range(step.size):
            along += border[j] * step[j]
        step[free] = -(columns.gradient[free] + along) / weight
    return done + going


@compiled(fastmath=SUMS, allocates=False, alone=False)
def derivative_along(
    terms: DescentTerms, at: Terms, size: float, first: float, second: float
) -> float:
    """Of the objective at so much of the step: `first` and `second` are those of the square."""
    total = 0.0
    for i in range(at.theta.size):
        away = at.margins[i] + size * at.moves[i] - terms.b[i]
        total += at.moves[i] * slope_of(i, away, terms, at)
    return first + size * second + total


@compiled(fastmath=CONTRACT, allocates=False, alone=False)
def length_of_step(
    terms: DescentTerms, at: Terms, begin: float, first: float, second: float
) -> float:
    """A root of the derivative along the step, up to a share (Illinois method).

    It increases, and is `begin` at 0, which is below 0 unless rounding is all that is left: the
    length is 0 then.
    """
    if not begin < 0.0:
        return 0.0
    low, below, high, above, side, size = 0.0, begin, np.inf, 0.0, 0, 1.0
    for _ in range(SEARCHES):
        value = derivative_along(terms, at, size, first, second)
        if abs(value) <= ALONG * abs(begin):
            return size
        if value < 0.0:
            low, below = size, value
            if side == -1:
                above *= 0.5
            side = -1
        else:
            high, above = size, value
            if side == 1:
                below *= 0.5
            side = 1
        size = 2.0 * low if high == np.inf else (low * above - high * below) / (above - below)
    return low


@compiled(fastmath=CONTRACT, allocates=False)
def newton_steps(
    rows: DescentRows, terms: DescentTerms, at: Terms, columns: Columns, plan: NewtonPlan
) -> tuple[int, int, float, int, float, float, int]:
    """Steps from `columns.v`, whose margins are in `at`, until the gap seems small enough.

    Returns the steps, the products, the entries read, how many rows have curvature, the objective
    and the gap before the last system, and why they ended.
    """
    v, step, free = columns.v, columns.step, plan.free
    done, products, read, count = 0, 0, 0.0, 0
    given, hard, value, gap = plan.given, False, np.inf, np.inf
    damping = length = 0.0
    if free >= 0:
        for i in range(at.theta.size):
            damping += at.level[i] * at.level[i] * at.second[i]
        damping *= DAMPING
    while True:
        if not given:
            value, count, seen = differentiate(rows, terms, at, columns, free, length, damping)
            read += seen
            value += plan.constant
            weight = damping + columns.squares[free] if free >= 0 else 1.0
            size = squared_size(columns.gradient, columns.border, free, weight)
            aim = max(plan.target, plan.relative * (value - 0.5 * size))
            gap = 0.5 * size
            if gap <= aim:
                return done, products, read, count, value, gap, REACHED
            if done >= plan.most:
                return done, products, read, count, value, gap, MOST
            if hard:
                return done, products, read, count, value, gap, HARD
            stored = 0.0
            for k in range(count):
                stored += rows.stop[at.curved[k]] - rows.start[at.curved[k]]
            matrix, each = products_for_a_system(count, stored, v.size)
            price = matrix + each
            left = (plan.budget - read) / max(stored, 1.0)
            if left < 1.0:
                return done, products, read, count, value, gap, SPENT
            enough = max(FORCING * FORCING * size, 2.0 * OF_AIM * aim)
            used = solve_system(
                rows, at, count, columns, enough, min(price, left), free, damping
            )
            products += used
            read += used * stored
            coming = np.log(max(gap / aim, 1.0)) / np.log(1.0 / FORCING**2)
            hard = used > price or coming * (used - each) > matrix
        begin, first, second = 0.0, 0.0, 0.0
        for j in range(v.size):
            begin += step[j] * columns.gradient[j]
            first += step[j] * columns.linear[j]
            if j != free:
                first += step[j] * v[j]
                second += step[j] * step[j]
        for i in range(at.theta.size):
            at.moves[i] = row_product(i, rows, step)
        read += rows.data.size
        length = length_of_step(terms, at, begin, first, second)
        if length == 0.0:
            return done, products, read, count, value, gap, STUCK
        for j in range(v.size):
            v[j] += length * step[j]
        for i in range(at.theta.size):
            at.margins[i] += length * at.moves[i]
        if given:  # nothing is known of what that system has left
            given, length = False, 0.0
        done += 1


CLOCK = CompileClock(2.5, newton_steps)
"""Of `newton_steps`: as long as those of coordinate descent, measured on a fresh cache."""


def without_newton_steps(problem: Problem) -> AbstractContextManager[None]:
    """Count what is done within as done for want of the steps, where they are not compiled yet."""
    missed = takes(problem) and not CLOCK.bought
    return CLOCK.rent() if missed else nullcontext()
