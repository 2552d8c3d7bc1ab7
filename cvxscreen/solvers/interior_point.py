"""Primal-dual interior point method for many terms, few coordinates and side constraints.

The method of Frisch and Newton for quantile regression (Portnoy and Koenker 1997, section 4) with
the predictor-corrector of Mehrotra (1992), for every loss of the table. Each term has its slope in
an interval, ``lo <= theta <= hi``, with multipliers ``below, above >= 0`` of the two ends::

    M x + q + A' theta - E' y - G' z = 0        stationarity
    A x - b - Q theta + below - above = 0       Q = diag(q)
    E x + e = 0                                 equalities
    G x + g = s                                 s, z in second-order cones
    (theta - lo) below = (hi - theta) above = level -> 0,   s o z = level e

A loss with a dead zone is the sum of two one-sided losses that share their row; an inequality
``F_j x + f_j >= 0`` is the term ``-F_j x <= f_j`` with slopes in ``[0, inf)``; an L1 norm is one
absolute value a coordinate. Eliminating everything but x and y leaves the normal equations

::

    (A' D A + M + G' W^-2 G) dx - E' dy = right,    E dx = -(E x + e),
    D = 1 / (q + below/(theta - lo) + above/(hi - theta))

of the size of x: ``n d^2`` operations a step, made block by block at the speed of a matrix product,
and four passes over the data. Second-order cones, few and short ones, are scaled by W as Nesterov
and Todd do (`cvxscreen.solvers.second_order`).

From a start, pivots between faces come first where there are few terms (`Attempt.go_to_face`). The
path ends at a vertex, or on the face that holds the optimum (`optimum_on_face`): which slopes are
inside their intervals is read off, the linear equations of the optimum are solved with the others
held at their ends, and what violates a sign is exchanged. With a slack on the boundary of its cone
these equations are not linear, and a few steps of Newton's method solve them. The pair that comes
out is exact up to rounding; it is taken where its gap is smaller. From a start that is already on
the right face nothing else is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import UNLIMITED, Limits, blas_threads
from cvxscreen._support.rounding import UNIT
from cvxscreen.core.losses import falls_without_end
from cvxscreen.core.penalty import L1, NonNegative
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.cones import compact
from cvxscreen.solvers.interface import (
    WITHOUT_SOLUTION,
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
)
from cvxscreen.solvers.second_order import SecondOrderCones
from cvxscreen.solvers.vertices import Curves, Face, settled

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.93 to 1.12 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1). But for
# `PIVOTED`: half of it 1.3 times on one of two.
MOST_COORDINATES = 2000
"""Coordinates up to which the matrix of the normal equations is formed."""
LINEAR = ("zero", "nonneg")
"""Kinds of side constraints that become terms and equalities."""
CONE_ROWS = 4
"""Rows of second-order cones at most, in units of the coordinates."""
TO_BOUNDARY = 0.99
"""Share of the way to the boundary that a step may take."""
CENTRALITY, LONG = 3, 0.9
"""Correctors of centrality a step at most (Gondzio 1996; each costs two passes), and the length
from which on none is tried."""
FURTHER, LEAST_GAIN = (2.0, 0.1), 0.01
"""A corrector aims at so many times the step, and so much, further; a smaller gain is the last."""
CENTRAL = 10.0
"""How far products may lie from their level, as a factor, before they are corrected."""
ROUNDED = 16.0 * UNIT
"""A gap that is but rounding, relative to the sizes of what it is the sum of: at vertices with 50
coordinates 1 to 3 units are left, on faces of one-sided squares on a simplex 6."""
IDLE = 15
"""Steps in a row that bring no better estimate of the gap, after which the method stops."""
CLOSER = 0.98
"""Share of a violation to which a step that is not idle brings the constraints."""
SHORT = 1e-9
"""A step shorter than this is none."""
EXTRA = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)
"""What is added to the unit diagonal of a matrix that is not positive definite to rounding."""
FACE_FROM = 1e-3
"""Estimated gap, relative to ``sum |theta_i| |<a_i, x> - b_i|`` early on the path, from which on
the face of the optimum is looked for."""
NEAR_FACE = 2e-3
"""Gap of a start, relative to the sizes of its terms, up to which its face is looked at, as it is
where constraints do not quite hold. Over grids of C and of constraints, 18 sets: 33 of 66 looks at
smaller gaps found the optimum, none of 95 at larger ones, and each costs a step or two."""
AT_KINK = 1e-3
"""Share of the mean margin below which one says nothing of how large margins are: where an L1 norm
holds most coordinates at 0 most terms end at their kinks, and the median margin goes to 0."""
FACE_AGAIN = 0.03
"""The estimate falls by this factor between two such looks."""
EXCHANGES = 6
"""Rounds of exchanging terms between face and ends in one look."""
LARGE_FACE = 1000
"""Unknowns of a face from which on nothing is exchanged: its factorisation costs as much as a step
or more."""
PIVOTED = 8e4
"""Entries of the terms up to which pivots lead from a start to a vertex or face. Grids of ten
weights beside bounds, the simplex, sums, budgets and L1 norms, of the time of paths alone: LAD,
hinges and CVaR 0.1 to 0.8 at 8,000 x 12 and 20,000 x 30; with squares, one-sided ones and Huber's
loss 0.2 to 0.8 from 2,000 x 10 to 20,000 x 30, hinges on squares 1.0 at the latter; with ten times
as many entries cold calls take up to five times as long as by the path."""
SEARCHES = (1, 90)
"""Their searches at most: so many a coordinate, and so many more, with curves half as many. They
cost about as much as the path then: 15,000 x 18 and 3,000 x 40."""
STEEP, PASSED_ON = 10.0, 2
"""Slopes of constraints there, in units of the most that may be asked of one alone: an optimum that
asks for more is left to the path. Constraints ask it of others so many times over: a budget of
absolute values in epigraph form does of all, through the bounds that it is a sum of."""
CROWDED = 3
"""A face with more than so many terms a coordinate is not looked at."""
REGULAR = 1e-9
"""What makes the equations of a face regular, relative to its rows; refined away."""
PIVOT = 1e-3
"""Least curvature of a coordinate's own that it is eliminated by, relative to the largest entry of
its column: the inverse says how many digits that costs, which are refined."""
SINGULAR = 1e-12
"""Ratio of pivots below which the rows of a vertex count as dependent."""
CURVED = 12
"""Steps of Newton's method at most where the face has boundaries of second-order cones; four to six
are usual."""
REFINEMENTS = 4
"""Steps of iterative refinement of the equations of a face."""
ON_BOUND = 1e-14
"""Distance, relative to the largest coordinate, at which a coordinate is on its bound."""
PRESSURE = 0.3
"""First multiplier of a constraint that does not hold, in units of what balances all slopes: fits
whose coefficients all end at 0 take 11 steps, 14 at 0.1, and none is solved at 0.001."""
LEAST_SIZE = 1e-3
"""What a residual is charged with at least, in units of the natural size of its coordinate."""
REGULAR_STEP = 1e-11
"""Proximal term of a step, relative to the curvature that the terms have at the start."""
VIOLATED = 1e-9
"""Violation of a constraint, relative to its terms, beyond which a point is none."""
INSIDE_UNTIL = 1e-4
"""An iterate well inside the constraints is kept until the estimated gap has fallen so far."""
RAY, CLOSE_RAY = 1e-8, 1e-11
"""How well, relatively, a direction has to fit to prove unboundedness or infeasibility, and
infeasibility while there are steps left: slopes fit to 1e-14 a few steps later."""
GROWN, FAR = 10.0, 1e6
"""Growth of x, and of the slopes, from which on such directions are looked for."""
FLAT = 1e-13
"""Curvature along a direction, relative to M, that is its rounding."""
DENSE_OWN = 4e6
"""Multiplications of a Gram matrix up to which constraints are dense: 13 x 13 8 microseconds for
570, 200 x 100 140 for 570, 400 x 200 910 for 530."""
BUDGET_WIDTH = 4.0
"""Width of the parabolas whose minimiser is the start, in deviations of the margins: 1, 2 and 4
took 39, 33 and 27 steps for a conditional value at risk of 10,000 scenarios."""
BUDGET_LEVEL = 1.0
"""The first level of the products, in units of ``mean |margin| mean width``."""
BUDGET_MULTIPLIER = 0.3
"""The first multiplier, in units of the objective's size over the budget's: 24 steps, 39 at 1."""


def takes(problem: Problem) -> bool:
    """Whether `InteriorPoint` takes `problem`."""
    return not unfit(problem)


def able(inner: SubproblemSolver, problem: Problem, limits: Limits) -> SubproblemSolver:
    """`inner`, or Clarabel where that is the built-in method and does not take `problem`.

    More coordinates than that takes come to it where columns could not be left out after all.
    """
    ours = inner.traits.reaches_target and not problem.linear_program
    if not ours or takes(problem):
        return inner
    clarabel: SubproblemSolver = supplied("cvxpy.solver")("CLARABEL", limits)
    return clarabel


def unfit(problem: Problem) -> str:
    """Why `InteriorPoint` does not take `problem`; empty if it does."""
    if not isinstance(problem.design, Rows):
        return "its data are not rows in memory"
    whole = compact(problem)
    if whole is not None:
        problem = whole.problem
    if problem.d > MOST_COORDINATES:
        return f"it has {problem.d:,} coordinates; at most {MOST_COORDINATES:,} are taken"
    if not (problem.penalty is None or isinstance(problem.penalty, L1 | NonNegative)):
        return f"of its penalty ({problem.penalty.name})"
    dims = () if problem.side is None else problem.side.dims
    if any(kind == "psd" for kind, _ in dims):
        return "of its cone of matrices"
    rows = sum(size for kind, size in dims if kind == "soc")
    if rows > CONE_ROWS * (problem.d + 1):
        return f"its second-order cones have {rows:,} rows, more than {CONE_ROWS} a coordinate"
    return ""


@dataclass(frozen=True)
class InteriorPoint(SubproblemSolver):
    """The built-in solver for many terms in few coordinates, with side constraints or none.

    These may be linear, or few and short second-order cones.

    Parameters
    ----------
    max_steps : int
        Steps at most; 10 to 30 are usual.
    tol : float
        Relative gap that is enough, whatever the target: the objective is known here. The path
        itself comes so far, and no face is looked at but at an end that has not.
    limits : Limits
        Of the whole call.
    """

    max_steps: int = 150
    tol: float = 0.0
    name: str = "INTERIOR_POINT"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True, few_iterations=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Or until a direction proves that it is ``"infeasible"`` or ``"unbounded"``.

        Raises
        ------
        InvalidInput
            If the problem has a design, a penalty or a side constraint that this method does not
            take, or too many coordinates.
        """
        reason = unfit(problem)
        if reason:
            raise InvalidInput(
                f"`solver` is 'interior_point', which does not take this problem because {reason}."
            )
        whole = compact(problem)
        of_norms = None
        if whole is not None and start is not None:
            start, of_norms = whole.begun(start)
        terms = IntervalTerms.of(problem) if whole is None else (
            IntervalTerms.of(whole.problem, whole.norms))
        run = Attempt(terms, target, self.tol)
        # Of a perfect fit weights have no end; a multiplier may underflow.
        quiet = np.errstate(divide="ignore", over="ignore", invalid="ignore")
        with blas_threads(problem.n * problem.d), quiet:
            if terms.cones.costly and run.go_straight(start, of_norms):
                status = "optimal"
            else:
                status = self._follow(run, None if terms.cones.costly else start)
        info = {"steps": run.steps, "passes": run.terms.passes, "gap": run.gap, "face": run.on_face}
        if status in WITHOUT_SOLUTION:
            nothing = np.zeros(0)
            shown = (nothing, nothing, nothing) if run.shown is None or whole else run.shown
            return SubproblemResult(status, *shown, info)
        x, theta, multipliers = run.answer()
        if whole is not None and run.best is not None:
            x, multipliers = whole.lifted(x, multipliers, run.best.y[len(terms.e):])
        return SubproblemResult(status, x, theta, multipliers, info)

    def _follow(self, run: Attempt, start: Start | None) -> str:
        """Follow the central path until the target, a proof, or a limit; the status."""
        if run.terms.inconsistent:
            return "infeasible"
        if not len(run.terms) and not run.terms.cones:  # squares alone, nothing is on a piece
            run.solve_equations()
            return "optimal" if run.reached else "inaccurate"
        if start is not None and run.begin_on_face(start):
            return "optimal"
        if run.reached or self.limits.spent():
            return "optimal" if run.reached else "inaccurate"
        if start is not None and run.go_to_face(start.x):
            return "optimal"
        # From the middle whatever the start: entered near the boundary, the path took twice the
        # steps in relaxations around the last optimum of a grid, where it came to its end at all.
        status = self._along(run, PrimalDualPath(run.terms))
        if status == "inaccurate" and not self.limits.spent(1):
            # Constraints that begin far from holding get multipliers that are far too small.
            path = PrimalDualPath(run.terms)
            if path.raise_multipliers():
                run.reset_path()
                status = self._along(run, path)
        return status

    def _along(self, run: Attempt, path: PrimalDualPath) -> str:
        """The same for one path from where it is entered."""
        if path.endless:
            return "unbounded"
        while run.steps < self.max_steps and not self.limits.spent(1):
            length = path.advance()
            run.steps += 1
            run.examine(path)
            if run.reached:
                return "optimal"
            ends = not length > SHORT or run.idle > IDLE
            if path.far or ends:
                proven = self._proven(run, path, RAY if ends else CLOSE_RAY)
                if proven:
                    return proven
            if ends:
                break
        run.examine_last(path)
        return "optimal" if run.reached else self._proven(run, path, RAY) or "inaccurate"

    def _proven(self, run: Attempt, path: PrimalDualPath, tol: float) -> str:
        """What the iterates prove, up to `tol` where it is infeasibility; kept in `run`."""
        ray, word = None, path.unbounded()
        if not word:
            ray = path.separating(tol)
            word = "" if ray is None else "infeasible"
        if ray is not None:
            run.shown = path.x, *run.terms.constraints_as_given(ray, path.multipliers)
        return word


# -- every problem as terms on intervals -------------------------------------------------------


def _halves(f: Any, split: NDArray[np.intp]) -> tuple[Array, Array, Array, Array]:
    """``b, q, lo, hi`` of the terms without dead zones; the left halves of `split` at the end."""
    b, lo = f.b.copy(), f.lo.copy()
    right = (f.e > 0) & (f.hi > 0)
    b[right] += f.e[right]
    left = (f.e > 0) & ~right
    b[left] -= f.e[left]
    lo[split] = 0.0
    return (
        np.concatenate([b, (f.b - f.e)[split]]), np.concatenate([f.q, f.q[split]]),
        np.concatenate([lo, f.lo[split]]), np.concatenate([f.hi, np.zeros(len(split))]),
    )


@dataclass(eq=False)
class IntervalTerms:
    """A problem as terms ``theta in [lo, hi]`` without dead zones, and equalities.

    Terms come in this order: the rows of the design (of a loss with a dead zone the right half),
    the left halves, the rows of `own` (constraints, an L1 norm). `tied` are rows of the design that
    are equalities; their terms are idle, as are those with ``lo = hi``.

    Attributes
    ----------
    problem : Problem
    split : array of int
        Rows of the design with a left half.
    own : sparse matrix, shape (m, d)
    b, q, lo, hi : arrays, shape (N,)
    E, e : arrays, shape (k, d) and (k,)
        Equalities ``E x + e = 0``, linearly independent ones.
    chosen : array of int
        Which of the equalities these are.
    inconsistent : bool
        Whether the others contradict them.
    part : array of int, shape (N,)
        The budget that a term is in; -1 for those of the objective.
    linears, constants : arrays, shape (k, d) and (k,)
        What else is in the budgets.
    cones : SecondOrderCones or NormTerms
        Those among the side constraints, or norms in the objective. Where multipliers y are asked
        for, theirs come after those of the equalities.
    """

    problem: Problem
    split: NDArray[np.intp]
    own: Any
    b: Array
    q: Array
    lo: Array
    hi: Array
    E: Array
    e: Array
    chosen: NDArray[np.intp]
    tied: NDArray[np.intp]
    equal: int
    inconsistent: bool
    part: NDArray[np.intp]
    linears: Array
    constants: Array
    cones: Any
    passes: int = 0

    @classmethod
    def of(cls, problem: Problem, norms: SecondOrderCones | None = None) -> IntervalTerms:
        """Write the losses and constraints of `problem` in this form, with `norms` beside."""
        f, d = problem.losses, problem.d
        split = np.flatnonzero((f.e > 0) & (f.lo < 0) & (f.hi > 0))
        b, q, lo, hi = _halves(f, split)
        tied = np.flatnonzero((f.q == 0) & np.isinf(f.lo) & np.isinf(f.hi) & (f.e == 0))
        lo[tied], hi[tied] = 0.0, 0.0
        own, ends = [sp.csr_matrix((0, d))], [np.zeros((3, 0))]
        if isinstance(problem.penalty, L1):
            at = np.flatnonzero(problem.penalty.kappa)
            kappa = problem.penalty.kappa[at]
            own.append(sp.identity(d, format="csr")[at])
            ends.append(np.array([np.zeros(len(at)), -kappa, kappa]))
        elif problem.penalty is not None:
            own.append(-sp.identity(d, format="csr"))
            ends.append(np.array([np.zeros(d), np.zeros(d), np.full(d, np.inf)]))
        E, e = np.zeros((0, d)), np.zeros(0)
        if problem.side is not None:
            below, equal = linear_rows(problem)
            own.append(-problem.side.matrix[below])
            m = len(below)
            ends.append(np.array([problem.side.offset[below], np.zeros(m), np.full(m, np.inf)]))
            E, e = problem.side.matrix[equal].toarray(), problem.side.offset[equal]
        equal_rows = len(e)
        if len(tied):
            E = np.vstack([E, problem.design.dense(tied)])
            e = np.concatenate([e, -f.b[tied]])
        chosen, inconsistent = _independent(E, e)
        extra = np.hstack(ends)
        return cls(
            problem, split, sp.vstack(own, format="csr"),
            np.concatenate([b, extra[0]]), np.concatenate([q, np.zeros(extra.shape[1])]),
            np.concatenate([lo, extra[1]]), np.concatenate([hi, extra[2]]),
            E[chosen], e[chosen], chosen, tied, equal_rows, inconsistent,
            np.full(len(b) + extra.shape[1], -1), np.zeros((0, d)), np.zeros(0),
            SecondOrderCones.of(problem) if norms is None else norms,
        )

    def __len__(self) -> int:
        return len(self.b)

    @property
    def n(self) -> int:
        """Rows of the design: terms before any is split."""
        return self.problem.n

    @cached_property
    def counted(self) -> Mask:
        """Terms that are losses: no constraints, no L1 norm."""
        return np.arange(len(self)) < self.n + len(self.split)

    @cached_property
    def _multiplied(self) -> Any:
        """`own` as it is multiplied: dense where that takes less time than SciPy's checks."""
        m, d = self.own.shape
        return self.own.toarray() if m * d * d <= DENSE_OWN else self.own

    def forward(self, x: Array) -> Array:
        """``<a_i, x>`` of every term."""
        self.passes += 1
        t = self.problem.design.forward(x)
        if not len(self.split) and not self.own.shape[0]:
            return t
        return np.concatenate([t, t[self.split], self._multiplied @ x])

    def rows(self, values: Array) -> tuple[Array, Array]:
        """Sums of `values` by row of the design, and by row of `own`."""
        if len(values) == self.n:
            return values, values[:0]
        own = values[self.n + len(self.split):]
        if not len(self.split):
            return values[: self.n], own
        of_rows = values[: self.n].copy()
        of_rows[self.split] += values[self.n: self.n + len(self.split)]
        return of_rows, own

    def as_given(self, theta: Array, y: Array) -> tuple[Array, Array]:
        """Slopes of the problem's own terms, and multipliers of its side constraints."""
        of_rows, own = self.rows(theta)
        slopes = of_rows.copy() if of_rows is theta else of_rows
        equal = np.zeros(self.equal + len(self.tied))
        equal[self.chosen] = y[: len(self.e)]
        slopes[self.tied] = -equal[self.equal:]
        losses, side = self.problem.losses, self.problem.side
        slopes = np.clip(slopes, losses.lo, losses.hi)
        if side is None:
            return slopes, np.zeros(0)
        below, level = linear_rows(self.problem)
        multipliers = np.zeros(len(side.offset))
        multipliers[below] = own[len(own) - len(below):] if len(below) else 0.0
        multipliers[level] = equal[: self.equal]
        if not self.cones.costly:
            multipliers[self.cones.at] = y[len(self.e):]
        return slopes, multipliers

    def constraints_as_given(self, ray: Array, y: Array) -> tuple[Array, Array]:
        """The same of constraints alone: 0 for the objective's losses, which are none."""
        slopes, multipliers = self.as_given(ray, y)
        slopes[(self.part[: self.n] < 0) & ~self.problem.losses.hard] = 0.0
        return slopes, multipliers

    def adjoint(self, values: Array) -> Array:
        """``A' values``."""
        self.passes += 1
        of_rows, own = self.rows(values)
        out = self.problem.design.adjoint(of_rows)
        return out + self._multiplied.T @ own if len(own) else out

    def gram(self, weights: Array) -> Array:
        """``A' diag(weights) A``."""
        self.passes += 1
        of_rows, own = self.rows(weights)
        out = self.problem.design.weighted_gram(None, of_rows)
        if len(own) and isinstance(self._multiplied, np.ndarray):
            out += (self._multiplied.T * own) @ self._multiplied
        elif len(own):
            scaled = sp.diags(np.sqrt(own)) @ self.own
            out += (scaled.T @ scaled).toarray()
        return out

    def take(self, index: NDArray[np.intp]) -> Array:
        """The rows of some terms, dense."""
        if not len(index) or index.max() < self.n:
            return self.problem.design.dense(index)
        first = index < self.n
        second = ~first & (index < self.n + len(self.split))
        of_rows = np.where(second, 0, np.where(first, index, 0))
        of_rows[second] = self.split[index[second] - self.n]
        design = first | second
        out = np.empty((len(index), self.problem.d))
        out[design] = self.problem.design.dense(of_rows[design])
        own = index[~design] - self.n - len(self.split)
        out[~design] = self.own[own].toarray()
        return out

    def quadratic(self) -> Array:
        """M as a dense matrix, also where it is 0."""
        return self.problem.quadratic.dense()

    @cached_property
    def bounds(self) -> tuple[NDArray[np.intp], Array, Mask]:
        """Coordinates with a constraint of their own, where it binds, and whether from above."""
        single = np.flatnonzero(np.diff(self.own.indptr) == 1)
        own = single + self.n + len(self.split)
        single = single[(self.lo[own] == 0.0) & np.isinf(self.hi[own])]
        entries = self.own.data[self.own.indptr[single]]
        at = self.own.indices[self.own.indptr[single]]
        return at, self.b[single + self.n + len(self.split)] / entries, entries > 0

    def at_bounds(self, x: Array) -> Array:
        """`x` with coordinates that are a rounding error from a bound of their own put on it."""
        at, bound, _ = self.bounds
        x = np.where(np.abs(x) <= ON_BOUND * self.natural, 0.0, x)
        if not len(at):
            return x
        reach = ON_BOUND * (float(np.abs(x).max()) + np.abs(bound))
        close = np.abs(x[at] - bound) <= reach
        out = x.copy()
        out[at[close]] = bound[close]
        return out

    @cached_property
    def margins(self) -> float:
        """About how far margins are from 0.

        As the kinks are, or, where these are all at 0 (as those of a tail's losses), as far as the
        squared norm and the bounds let coordinates move them.
        """
        kinks = float(np.abs(self.b[: self.n]).mean()) if self.n else 0.0
        if self.cones.costly:
            kinks = max(kinks, self.cones.spread)
        return kinks or float(self._columns @ self._allowed)

    @cached_property
    def natural(self) -> Array:
        """Sizes of the coordinates that move margins as far, or that are allowed; shape (d,)."""
        sizes = self._columns
        seen = self.margins / np.where(sizes > 0, sizes, np.inf)
        return seen if sizes.all() else np.where(sizes > 0, seen, self._allowed)

    @property
    def _columns(self) -> Array:
        """The usual entry of each column."""
        rows = self.n + (len(self.cones) if self.cones.costly else 0)
        return self._column_sizes / np.sqrt(max(rows, 1))

    @cached_property
    def _column_sizes(self) -> Array:
        """Lengths of the columns of the losses, norms among them; shape (d,)."""
        sizes = self.problem.column_sizes
        return np.sqrt(sizes**2 + self.cones.column_squares) if self.cones.costly else sizes

    @cached_property
    def _allowed(self) -> Array:
        """What a squared norm leaves of coordinates against all slopes, what bounds reach to."""
        form = self.problem.quadratic
        curvature = form.diagonal + (0.0 if form.matrix is None else np.diag(form.matrix))
        ends = np.where(np.isfinite(self.lo) & np.isfinite(self.hi), self.hi - self.lo, 0.0)
        gradient = self.problem.column_sizes * float(np.linalg.norm(ends[: self.n]))
        gradient += np.abs(self.problem.linear)
        found = np.divide(gradient, curvature, out=np.zeros(len(gradient)), where=curvature > 0)
        at, bound, _ = self.bounds
        np.maximum.at(found, at, np.where(np.isfinite(bound), np.abs(bound), 0.0))
        return found

    def units_of_unseen(self, unit: Array) -> Array:
        """`unit`, but for coordinates that no loss sees: from those they share a constraint with.

        A helper of a norm, ``t_j >= |x_j|``, is about as large as what it bounds.
        """
        if not self.own.shape[0] and not self.cones:
            return unit
        unseen = (self._column_sizes == 0) & ~self.quadratic().any(axis=0)
        sizes = abs(self.own)
        if self.cones and not self.cones.costly:
            of_cones = self.cones.sums(self.cones.sizes)
            sizes = sp.vstack([sizes, sp.csr_matrix(of_cones)])
        sizes = sizes.tocoo()
        given, unit = unit, np.where(unseen, 0.0, unit)
        while unseen.any():  # a helper may bound another one
            known = np.bincount(sizes.row, sizes.data * unit[sizes.col], sizes.shape[0])
            at = unseen[sizes.col] & (sizes.data > 0) & (known[sizes.row] > 0)
            if not at.any():
                break
            least = np.full(len(unit), np.inf)
            np.minimum.at(least, sizes.col[at], known[sizes.row[at]] / sizes.data[at])
            found = np.isfinite(least)
            unit[found], unseen[found] = least[found], False
        return np.where(unseen, given, unit)

    def within_bounds(self, x: Array) -> Array:
        """`x` with coordinates beyond a bound of their own put on it."""
        at, bound, above = self.bounds
        out = x.copy()
        np.minimum.at(out, at[above], bound[above])
        np.maximum.at(out, at[~above], bound[~above])
        return out

    @cached_property
    def endless(self) -> NDArray[np.intp]:
        """Terms that are inequalities: an infinite slope without curvature."""
        ends = np.isinf(self.lo) | np.isinf(self.hi)
        return np.flatnonzero((self.q == 0) & ends)

    @property
    def bounded(self) -> bool:
        """Whether there are points where it is infinite, equalities apart."""
        return bool(len(self.endless) or (len(self.cones) and not self.cones.costly))

    def violation(self, x: Array, t: Array) -> float:
        """The largest violation of an inequality, relative to their sizes, or of a cone."""
        outside = self.cones.violation(x) if self.cones else 0.0
        if not len(self.endless):
            return outside
        z = (t - self.b)[self.endless]
        beyond = np.where(np.isinf(self.hi[self.endless]), z, -z)
        size = np.abs(t[self.endless]) + np.abs(self.b[self.endless])
        return max(outside, float(beyond.max() / max(float(size.max()), 1e-300)))

    def stationarity(self, x: Array, At_theta: Array, y: Array) -> Array:
        """``M x + q + A' theta - E' y``, and with multipliers of the cones ``- G' z``."""
        out = self.problem.quadratic.apply(x) + self.problem.linear + At_theta
        k = len(self.e)
        if len(y) > k:
            out = out - self.cones.adjoint(y[k:])
        return out - self.E.T @ y[:k] if k else out


def linear_rows(problem: Problem) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of the side constraints that are inequalities, and those that are equalities."""
    below, equal = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for kind, _, rows in problem.side.blocks() if problem.side is not None else ():
        if kind in LINEAR:
            (equal if kind == "zero" else below).append(np.arange(rows.start, rows.stop))
    return np.concatenate(below), np.concatenate(equal)


def _independent(E: Array, e: Array) -> tuple[NDArray[np.intp], bool]:
    """A largest set of independent rows of E, and whether the other equations contradict them."""
    if not len(e):
        return np.zeros(0, dtype=np.intp), False
    sizes = np.linalg.norm(E, axis=1)
    scaled = E / np.where(sizes > 0, sizes, 1.0)[:, None]
    triangle, order = sla.qr(scaled.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > 1e-11 * max(len(e), E.shape[1])).sum())
    chosen = np.sort(order[:rank]).astype(np.intp)
    x = np.linalg.lstsq(E[chosen], -e[chosen], rcond=None)[0] if rank else np.zeros(E.shape[1])
    room = 1e-9 * (np.abs(E) @ np.abs(x) + np.abs(e)) + 1e-300
    return chosen, bool((np.abs(E @ x + e) > room).any())


# -- the normal equations ----------------------------------------------------------------------


class _System:
    """``[[H, -B'], [B, diag(k)]]`` with H positive semidefinite and ``k >= 0``.

    Rows of B are equalities, with k = 0, and budgets. A multiple of ``B' B`` is added to H, which
    changes nothing as ``B dx + k dz`` is given (for a budget one below 1/k), and makes H definite
    where only the equalities see a coordinate. `regular` on the diagonal is a proximal term: it
    keeps x where no term says where to go.
    """

    def __init__(
        self, H: Array, B: Array, regular: Array | float = 0.0, k: Array | float = 0.0
    ) -> None:
        self.B = B
        self.whole = self.H = H.copy()
        self.H[np.diag_indices(len(H))] += regular
        diagonal = np.diag(self.H)
        if len(B):
            self.k = np.broadcast_to(np.asarray(k, dtype=np.float64), (len(B),))
            top = float(diagonal.max(initial=0.0))
            squares = np.maximum((B * B).sum(axis=1), 1e-300)
            self.added = np.minimum(
                (top if top > 0 else 1.0) / squares, 0.5 / np.maximum(self.k, 1e-300)
            )
            self.H = self.H + (B.T * self.added) @ B
            diagonal = np.diag(self.H)
        self.scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        matrix = self.H * self.scale[:, None]
        matrix *= self.scale
        matrix[np.diag_indices(len(matrix))] += (diagonal <= 0).astype(float)
        for extra in EXTRA:
            if extra:
                matrix[np.diag_indices(len(matrix))] += extra
            self.factor, failed = lapack.dpotrf(matrix, lower=1)
            self.exact = extra == 0.0
            if not failed and np.isfinite(self.factor[-1, -1]):
                break
        else:
            raise sla.LinAlgError("the normal equations are not positive definite")
        if len(B):
            self.inverse = self._inverse(np.ascontiguousarray(B.T))
            self.left = 1.0 - self.added * self.k
            schur = B @ self.inverse
            self.schur = _factor_of(0.5 * (schur + schur.T) + np.diag(self.k / self.left))

    def _inverse(self, right: Array) -> Array:
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        out = scale * lapack.dpotrs(self.factor, scale * right, lower=1)[0]
        for _ in range(1 if self.exact else 3):
            rest = right - self.H @ out
            out = out + scale * lapack.dpotrs(self.factor, scale * rest, lower=1)[0]
        return np.asarray(out)

    def solve(self, first: Array, second: Array) -> tuple[Array, Array]:
        """The steps dx and dz, refined once where there are budgets."""
        if not len(self.B):
            return self._inverse(first), second
        x, z = self._once(first, second)
        if not self.k.any():
            return x, z
        more = self._once(
            first - self.whole @ x + self.B.T @ z, second - self.B @ x - self.k * z
        )
        return x + more[0], z + more[1]

    def _once(self, first: Array, second: Array) -> tuple[Array, Array]:
        x = self._inverse(first + self.B.T @ (self.added * second))
        z = self.schur(second - self.B @ x)
        return x + self.inverse @ z, z / self.left


def _factor_of(matrix: Array) -> Any:
    """A function that multiplies by the inverse of a positive semidefinite matrix."""
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(matrix * scale[:, None] * scale)
    kept = values > 1e-15 * float(np.abs(values).max(initial=0.0))
    basis, inverse = scale[:, None] * vectors[:, kept], 1.0 / values[kept]
    return lambda right: basis @ (inverse * (basis.T @ right))


# -- the central path --------------------------------------------------------------------------


class SearchDirection(NamedTuple):
    """A step of everything that moves; `At` is ``A' dtheta``."""

    x: Array
    t: Array
    primal: Array
    theta: Array
    y: Array
    dual: Array
    At: Array
    s: Array
    z: Array


class PrimalDualPath:
    """An iterate, and the step to the next one.

    `primal` holds the multipliers below and above of the ends that are there, and the budgets'
    slacks; `dual` what they are complementary to: ``theta - lo``, ``hi - theta`` and the
    multipliers of the budgets. `t` is ``A x``, `At` is ``A' theta``; `s` and `z` are the cones'
    slacks and multipliers.
    """

    def __init__(self, terms: IntervalTerms) -> None:
        f = self.terms = terms
        self.live = f.lo < f.hi
        self.has_low, self.has_high = np.isfinite(f.lo) & self.live, np.isfinite(f.hi) & self.live
        # Slices in place of indices of everything: most problems have two ends everywhere.
        self.lower, self.upper = (
            slice(None) if has.all() else np.flatnonzero(has)
            for has in (self.has_low, self.has_high)
        )
        self.ends = (int(self.has_low.sum()), int(self.has_high.sum()))
        self.live_is = 1.0 if self.live.all() else self.live.astype(np.float64)
        self.budgets = len(f.constants)
        held = f.part >= 0
        self.lo, self.hi = np.where(held, f.lo, 0.0), np.where(held, f.hi, 0.0)
        self.y, self.s, self.z = np.zeros(len(f.e)), np.zeros(0), np.zeros(0)
        self.cone_width = np.zeros(len(f.cones))
        self.weights = np.zeros(self.budgets)
        self.dx = np.zeros(f.problem.d)
        self.M = terms.quadratic()
        self.linear_program = not (f.q.any() or self.M.any())
        self._begin_within() if self.budgets else self._begin()
        self.At = f.adjoint(self.theta)
        self.first = (
            float(np.abs(self.x).max(initial=0.0)) + 1e-300,
            float(self.width.max(initial=self.cone_width.max(initial=0.0))),
        )

    def of_terms(self, weights: Array) -> Array | float:
        """The budgets' `weights` at their terms, 0 elsewhere."""
        return np.append(weights, 0.0)[self.terms.part] if self.budgets else 0.0

    def by_end(self, values: Array) -> tuple[Array, Array, Array]:
        """`values`, stored like `primal`, at the lower and the upper ends of all terms, of budgets.

        0 where a term has no such end.
        """
        found = []
        first, second = self.ends
        for part, at in ((values[:first], self.lower),
                         (values[first: first + second], self.upper)):
            if not isinstance(at, slice):
                everywhere = np.zeros(len(self.terms))
                everywhere[at] = part
                part = everywhere
            found.append(part)
        return found[0], found[1], values[first + second:]

    # -- where it begins ------------------------------------------------------------------------

    def _begin(self) -> None:
        """At the optimum of a proximal problem, every term central for it."""
        f = self.terms
        width = np.where(self.has_low & self.has_high, f.hi - f.lo, np.inf)
        finite = np.isfinite(width) & (width > 0)
        usual = float(np.median(width[finite])) if finite.any() else 1.0
        spread = float(np.std(f.b[self.live])) if self.live.any() else 1.0
        size = float(np.abs(f.b).max(initial=0.0))
        if not spread > 1e-12 * size:
            spread = size if size > 0 else 1.0
        # A square that may slope without end slopes as far as its margin goes.
        open_ended = np.divide(spread, f.q, out=np.full(len(f), usual), where=f.q > 0)
        self.width = np.where(finite, width, open_ended)
        # Every loss a parabola about as wide as the losses' kinks lie.
        weight = self.live_is / (f.q + spread / self.width)
        both = self.has_low & self.has_high
        middle = np.zeros(len(f))
        middle[both] = 0.5 * (f.lo[both] + f.hi[both])
        one_sided = self.live & ~both & (f.q == 0)
        weight = np.where(one_sided, 0.01 * weight, weight)
        self.x = self._least(weight, middle, f.problem.linear, self.M)
        self.t = f.forward(self.x)
        away = np.abs(self.t - f.b)[self.live]
        reach = max(float(away.mean()) if len(away) else 1.0, 1e-3 * spread)
        usual = float(np.mean(self.width)) if len(f) else float(np.abs(f.problem.linear).max())
        if f.cones.costly:
            reach = max(float(f.cones.lengths(self.x).mean()), 1e-3 * f.cones.spread)
            usual = float(f.cones.costs.mean())
        self.level = 0.3 * reach * (usual if usual > 0.0 else 1.0)
        self.rescale_constraints()
        self.central(self.level)

    def _least(self, weight: Array, middle: Array, linear: Array, M: Array | float) -> Array:
        """The minimiser of parabolas with these weights and slopes at their kinks."""
        f = self.terms
        H = f.gram(weight) + M
        right = f.adjoint(weight * f.b - middle * self.live_is) - linear
        seen = float(weight[: f.n].sum())
        if f.cones.costly:
            of_norms, pull = f.cones.parabolas()
            H, right, seen = H + of_norms, right + pull, seen + f.cones.steepness
        diagonal = np.diag(H)
        self.unseen = (diagonal == 0.0) & ~f.E.any(axis=0)
        if f.cones and not f.cones.costly:
            # What a coordinate costs that a cone alone holds says nothing of its size.
            self.bounds = self.unseen & f.cones.matrix.any(axis=0)
            self.unseen &= ~self.bounds
            right = right + np.where(self.bounds, linear, 0.0)
        # Nor does it of one that no parabola holds, as of a level that budgets share.
        right[self.unseen] = 0.0
        top = float(diagonal.max(initial=0.0))
        usual = np.where(diagonal > 0, diagonal, top if top > 0 else 1.0)
        self.regular = REGULAR_STEP * usual
        # A move of a coordinate that changes a usual margin by 1.
        self.unit = np.sqrt(seen / usual) if seen else np.ones(len(usual))
        self.unit = f.units_of_unseen(self.unit)
        H[np.diag_indices(len(H))] += 1e-8 * usual
        return _System(H, f.E).solve(right, -f.e)[0]

    def _begin_within(self) -> None:
        """The same beside budgets, whose multipliers have to be guessed, too."""
        f = self.terms
        of_losses = f.counted
        width = np.where(self.has_low & self.has_high & of_losses, f.hi - f.lo, 0.0)
        for k in range(-1, self.budgets):
            at = (f.part == k) & of_losses
            endless = at & ~(self.has_low & self.has_high)
            top = float(width[at].max(initial=0.0))
            width[at] /= top if top > 0 else 1.0
            width[endless] = 1.0
        # The point of least squares of the margins tells how wide they are; then the minimiser of
        # the budgets with parabolas of that width. A linear objective has no say: without
        # curvature it has no size to begin with.
        self.x = self._least(width, np.zeros(len(f)), np.zeros(f.problem.d), 0.0)
        z = (f.forward(self.x) - f.b)[of_losses]
        wide = BUDGET_WIDTH * max(float(np.std(z)), 1e-3 * float(np.abs(z).mean()), 1e-300)
        width = np.where(of_losses, self.hi - self.lo, 0.0)
        if not z.any():  # no margin has a constant: as wide as where a budget is used up
            total = np.bincount(f.part[f.part >= 0], width[f.part >= 0], self.budgets)
            wide = float(np.max(np.abs(f.constants) / np.maximum(total, 1e-300)))
        self.x = self._least(
            width / wide, 0.5 * (self.lo + self.hi), f.linears.sum(axis=0), 0.0)
        # A level that budgets share, as of the largest of some sums, is theirs to follow; what it
        # costs is the sum of their multipliers.
        shared = self.unseen & (self.M.diagonal() == 0) & (f.linears < 0).any(axis=0)
        self.t = f.forward(self.x)
        z = self.t - f.b
        reach = max(float(np.abs(z[of_losses]).mean()), 1e-300)
        gradient = np.abs(f.problem.linear) + np.abs(self.M) @ np.abs(self.x)
        own = of_losses & (f.part < 0)
        if own.any():
            slopes = np.where(own, np.clip(np.where(f.q > 0, z / np.where(f.q > 0, f.q, 1.0),
                                                    np.sign(z) * np.inf), f.lo, f.hi), 0.0)
            gradient = gradient + np.abs(f.adjoint(np.where(np.isfinite(slopes), slopes, 0.0)))
        usual = np.abs(self.x) + 1e-3 * float(np.abs(self.x).mean())
        total = np.bincount(f.part[f.part >= 0], width[f.part >= 0], self.budgets)
        size = np.maximum(np.maximum(np.abs(f.constants), 1e-3 * reach * total), 1e-300)
        self.weights = np.maximum(BUDGET_MULTIPLIER * float(gradient @ usual) / size, 1e-300)
        for j in np.flatnonzero(shared & (f.problem.linear > 0)):
            falls = np.maximum(-f.linears[:, j], 0.0)
            self.weights[falls > 0] = float(f.problem.linear[j] / falls.sum())
        self.regular = self.regular * float(self.weights.max())
        width = np.where(self.has_low & self.has_high, f.hi - f.lo, np.inf)
        width = np.where(f.part >= 0, self.of_terms(self.weights) * width, width)
        finite = np.isfinite(width) & (width > 0)
        usual_width = float(np.mean(width[finite & of_losses]))
        self.width = np.where(finite, width, usual_width)
        self.level = BUDGET_LEVEL * reach * usual_width
        if f.cones:
            self.cone_width = np.full(len(f.cones), usual_width)
        self.central(self.level)

    def rescale_constraints(self) -> None:
        """Widths for constraints on coordinates, which are no margins and need not be as large.

        A slack that starts far above what its coordinate can be has to fall faster than the
        constraint comes to hold, and the steps shrink to nothing.
        """
        f = self.terms
        if f.cones.costly:
            self.cone_width = f.cones.costs.copy()
        elif f.cones:
            of_rows = f.cones.sizes @ self.unit
            size = np.sqrt(f.cones.sums(of_rows * of_rows))
            usual_slope = float((self.width * f.counted).sum())
            usual_slope += float(np.abs(f.problem.linear) @ self.unit)
            usual = PRESSURE * (usual_slope if usual_slope > 0.0 else 1.0)
            self.cone_width = usual / np.where((size > 0) & np.isfinite(size), size, 1.0)
        own = np.flatnonzero(~f.counted & ~(self.has_low & self.has_high))
        if not len(own):
            return
        size = np.asarray(abs(f.own[own - f.n - len(f.split)]) @ self.unit)
        self.width[own] /= np.where((size > 0) & np.isfinite(size), size, 1.0)

    def central(self, level: float) -> None:
        """Slopes and multipliers with all products at `level`, given x."""
        f = self.terms
        r = self.t - f.b
        half = np.abs(r)
        weight = self.of_terms(self.weights)
        lo, hi = f.lo, f.hi
        if self.budgets:
            lo, hi = (np.where(f.part >= 0, weight * end, end) for end in (lo, hi))
        both = self.has_low & self.has_high
        width = np.where(both, self.width, 1.0)
        # The root of r = level / (hi - theta) - level / (theta - lo), measured from the near end.
        near = 2.0 * level * width / (2.0 * level + half * width
                                      + np.sqrt(4.0 * level**2 + (half * width) ** 2))
        low = np.where(r > 0, width - near, near)
        high = np.where(r > 0, near, width - near)
        if not both.all():
            # One end only: as if the slope were some way inside; x need not fit yet.
            root = level / np.maximum(half, level / self.width)
            low, high = np.where(both, low, root), np.where(both, high, root)
        # A parabola in an interval so narrow that at this level its ends press more is but a line.
        bent = (f.q > 0) & self.live & ~(both & (f.q * width**2 < level))
        theta = np.zeros(len(f))
        if bent.any():  # near the parabola's slope, well inside the interval
            own = r[bent] / f.q[bent]
            margin = np.where(both[bent], 0.05 * self.width[bent], np.maximum(
                0.05 * np.abs(own), np.sqrt(level / f.q[bent])))
            own = np.clip(own, lo[bent] + margin, hi[bent] - margin)
            theta[bent], low[bent], high[bent] = own, own - lo[bent], hi[bent] - own
        # From the nearer end, so that small distances keep their digits.
        from_low = self.has_low & (~self.has_high | (low <= high))
        theta[from_low] = lo[from_low] + low[from_low]
        from_high = self.has_high & ~from_low
        theta[from_high] = hi[from_high] - high[from_high]
        self.theta = theta
        if f.cones.costly:
            self.s, self.z = f.cones.central(self.x, level)
        elif f.cones:
            at, cones, entries = f.cones.helpers(self.bounds & (f.problem.linear > 0.0))
            if len(at):
                cost = f.problem.linear[at] / entries
                self.cone_width[cones] = cost
                levels = f.cones.levels(self.x, level, self.cone_width)
                heads = f.cones.at_cost(self.x, cones, cost, levels[cones])
                self.x = self.x.copy()
                self.x[at] += (heads - f.cones.slack(self.x)[f.cones.heads[cones]]) / entries
            levels = f.cones.levels(self.x, level, self.cone_width)
            self.s, self.z = f.cones.first(self.x, levels, self.cone_width)
        self.dual = np.concatenate([low[self.lower], high[self.upper], self.weights])
        self.primal = level / self.dual
        if self.budgets:
            below, above, _ = self.by_end(self.primal)
            over = self._values(below, above)
            self.primal[len(self.primal) - self.budgets:] = np.maximum(
                np.maximum(-over, level / self.weights), 0.1 * np.abs(over)
            )

    def raise_multipliers(self) -> bool:
        """Multipliers near their usual size for constraints that do not hold; whether any.

        Such a multiplier balances the slopes of all terms together. One of the size of a single
        slope lets its slack fall long before the constraint holds.
        """
        f = self.terms
        apart = self.has_low & ~self.has_high & ~f.counted & (self.t > f.b)
        usual = PRESSURE * float((self.width * f.counted).sum())
        at, broken = np.flatnonzero(apart[self.has_low]), np.flatnonzero(apart)
        size = np.asarray(abs(f.own[broken - f.n - len(f.split)]) @ self.unit)
        values = np.maximum(self.dual[at], usual / np.where(size > 0, size, np.inf))
        self.theta[broken] += values - self.dual[at]
        self.dual[at] = values
        self.At = f.adjoint(self.theta)
        return len(at) > 0

    # -- the step --------------------------------------------------------------------------------

    def _sums(self, values: Array) -> Array:
        """Sums of `values` over the terms of each budget."""
        sums = np.bincount(self.terms.part + 1, values, self.budgets + 1)[1:]
        return np.asarray(sums, dtype=np.float64)

    def _values(self, below: Array, above: Array) -> Array:
        """The budgets' values for margins ``b + above - below``."""
        f = self.terms
        return f.linears @ self.x + f.constants + self._sums(self.hi * above - self.lo * below)

    @property
    def multipliers(self) -> Array:
        """Of the equalities, then of the cones."""
        return np.concatenate([self.y, self.z]) if len(self.z) else self.y

    def residuals(self) -> tuple[Array, Array, Array, Array]:
        """Of stationarity, of the margins (without multipliers), of budgets, of equalities."""
        f = self.terms
        of_x = f.stationarity(self.x, self.At, self.multipliers)
        short = self.t - f.b
        if f.q.any():
            short -= f.q * self.theta
        over, equal = np.zeros(0), f.E @ self.x + f.e if len(f.e) else f.e
        if self.budgets:
            of_x += self.weights @ f.linears
            below, above, slack = self.by_end(self.primal)
            over = self._values(below, above) + slack
        return of_x, short, over, equal

    def advance(self) -> float:
        """One step of predictor, corrector and correctors of centrality; its length (the shorter).

        0 where there is none.
        """
        f = self.terms
        ratio = self.primal / self.dual
        low_ratio, high_ratio, own_ratio = self.by_end(ratio)
        D = self.live_is / np.maximum(f.q + low_ratio + high_ratio, 1e-300)
        H = f.gram(D)
        H += self.M
        scaling = whole = None
        if f.cones:
            scaling = f.cones.scaling(self.s, self.z)
            whole = H + scaling.normal
        G, k, v = f.linears, np.zeros(len(f.e)), None
        if self.budgets:
            v = self.lo * low_ratio + self.hi * high_ratio
            Dv = D * v
            G = G + np.array([
                f.adjoint(np.where(f.part == budget, Dv, 0.0)) for budget in range(self.budgets)
            ])
            # lo^2 below/low + hi^2 above/high - D v^2, which would cancel.
            inner = self._sums(D * low_ratio * high_ratio * (self.hi - self.lo) ** 2)
            k = np.concatenate([k, own_ratio + inner])
        try:
            system = _System(H if whole is None else whole, np.vstack([f.E, G]), self.regular, k)
        except (sla.LinAlgError, ValueError):
            return 0.0
        of_x, short, over, equal = self.residuals()
        apart = f.cones.apart(self.x, self.s) if scaling is not None else self.s

        def towards(products: Array | None, of_cones: Array) -> SearchDirection:
            """The step to these products of primal and dual, straight to 0 without.

            `of_cones` is ``W dz + W^-1 ds``.
            """
            wanted = np.zeros(len(ratio)) if products is None else products / self.dual
            low, high, slack = self.by_end(wanted)
            rho = -short if products is None else high - low - short
            w = f.adjoint(D * rho)
            second = -equal
            if v is not None:
                below, above, _ = self.by_end(self.primal)
                rest = self._sums(self.lo * (low - below) - self.hi * (high - above) + Dv * rho)
                second = np.concatenate([second, rest - over - (slack - self.primal[-len(over):])])
            rest_of_x = of_x
            if scaling is not None:
                rest_of_cones = scaling.rest(of_cones, apart)
                rest_of_x = of_x - scaling.back(rest_of_cones)
            dx, z = system.solve(w - rest_of_x, second)
            y, weight = z[: len(f.e)], -z[len(f.e):]
            t = f.forward(dx)
            at_terms = self.of_terms(weight)
            dtheta = D * ((t if v is None else t + v * at_terms) - rho)
            ends = (dtheta[self.lower], -dtheta[self.upper])
            if v is not None:
                ends = ((dtheta - self.lo * at_terms)[self.lower],
                        (self.hi * at_terms - dtheta)[self.upper])
            dual = np.concatenate([*ends, weight])
            primal = ratio * dual
            primal += self.primal
            np.subtract(wanted, primal, out=primal)
            At = H @ dx - self.M @ dx - w
            if v is not None:
                At += weight @ (G - f.linears)
            ds = dz = self.s
            if scaling is not None:
                ds, dz = scaling.steps(dx, rest_of_cones, apart)
            return SearchDirection(dx, t, primal, dtheta, y, dual, At, ds, dz)

        # Predictor: straight to products of 0.
        product = self.product
        of_cones = self.s if scaling is None else -scaling.point
        step = towards(None, of_cones)
        dual, primal = self._lengths(step, 1.0)
        after = product + primal * float(step.primal @ self.dual)
        after += dual * float((self.primal + primal * step.primal) @ step.dual)
        if scaling is not None:
            after += primal * float(step.s @ self.z)
            after += dual * float((self.s + primal * step.s) @ step.z)
        share = min(max(after / product, 0.0), 1.0) if product > 0 else 0.0
        level = share**3 * product / max(len(ratio) + len(f.cones), 1)
        # Corrector: towards products at `level`, with what the predictor's products leave out.
        products = step.primal * step.dual
        np.subtract(level, products, out=products)
        if scaling is not None:
            second = f.cones.product(scaling.undone(step.s), scaling.times(step.z))
            wanted = level * f.cones.unit - second
            of_cones = f.cones.quotient(wanted, scaling.point) - scaling.point
        step = towards(products, of_cones)
        reach = self._lengths(step, TO_BOUNDARY)
        for _ in range(CENTRALITY):
            if min(reach) >= LONG:
                break
            dual, primal = (min(1.0, FURTHER[0] * size + FURTHER[1]) for size in reach)
            ahead = (self.primal + primal * step.primal) * (self.dual + dual * step.dual)
            wanted = np.clip(ahead, level / CENTRAL, CENTRAL * level) - ahead
            products = products + np.maximum(wanted, -CENTRAL * level)
            better = towards(products, of_cones)
            found = self._lengths(better, TO_BOUNDARY)
            gained = min(found) - min(reach)
            if gained > 0:
                step, reach = better, found
            if gained < LEAST_GAIN:
                break
        if not np.isfinite(step.x).all():
            return 0.0
        to_dual, to_primal = reach
        self.x = self.x + to_primal * step.x
        self.t = self.t + to_primal * step.t
        self.primal += to_primal * step.primal
        self.dual += to_dual * step.dual
        self.theta += to_dual * step.theta
        self.y = self.y + to_dual * step.y
        if scaling is not None:
            self.s = self.s + to_primal * step.s
            self.z = self.z + to_dual * step.z
        self.At = self.At + to_dual * step.At
        self.weights = self.dual[len(self.dual) - self.budgets:]
        self.dx = step.x
        self.level = level
        return min(to_dual, to_primal)

    def _lengths(self, step: SearchDirection, share: float) -> tuple[float, float]:
        """How far slopes and multipliers may go along `step`, of the way to the boundary."""
        dual = _longest_step(self.dual, step.dual)
        primal = _longest_step(self.primal, step.primal)
        if len(self.z):
            dual = min(dual, self.terms.cones.longest_step(self.z, step.z))
            primal = min(primal, self.terms.cones.longest_step(self.s, step.s))
        dual, primal = min(1.0, share * dual), min(1.0, share * primal)
        return (dual, primal) if self.linear_program else (min(dual, primal),) * 2

    # -- what is known of it ---------------------------------------------------------------------

    @property
    def product(self) -> float:
        """Of primal and dual, the cones' with them."""
        return float(self.primal @ self.dual) + (float(self.s @ self.z) if len(self.z) else 0.0)

    def on_face(self) -> Array:
        """The multipliers of the equalities and of the cones, on the face that is pointed at."""
        f = self.terms
        if not f.cones:
            return self.y
        usual = f.cones.reach(self.x)
        return np.concatenate([
            self.y, f.cones.rounded(self.s, self.z, usual, self.cone_width)
        ])

    def near_end(self) -> tuple[Mask, Mask]:
        """Which slopes the iterate points at their lower, and at their upper end."""
        f = self.terms
        away = np.abs(self.t - f.b)[self.live]
        away = away[away > AT_KINK * away.mean()] if len(away) else away
        usual = float(np.median(away)) if len(away) else 1.0
        low, high, _ = self.by_end(self.dual)
        below, above, _ = self.by_end(self.primal)
        with np.errstate(over="ignore"):
            return (self.has_low & (low * usual < below * self.width),
                    self.has_high & (high * usual < above * self.width))

    def estimate(self) -> float:
        """About the duality gap: the products, and what the residuals may hide."""
        below, above, _ = self.by_end(self.primal)
        of_x, short, over, equal = self.residuals()
        slope = np.maximum(np.abs(self.theta), self.width) * self.live_is
        size = np.abs(self.x) + float(np.abs(self.x).mean()) if len(self.x) else self.x
        total = self.product
        total += float(np.abs(short + below - above) @ slope) + float(np.abs(of_x) @ size)
        if len(self.z):
            total += float(np.abs(self.terms.cones.apart(self.x, self.s)) @ np.abs(self.z))
        total += float(np.abs(equal) @ np.abs(self.y)) + float(np.abs(over) @ self.weights)
        return total if np.isfinite(total) else np.inf

    def size(self) -> float:
        """The sum of the sizes of the objective's terms."""
        f = self.terms
        linear = float(np.abs(f.problem.linear @ self.x))
        own = f.part < 0
        losses = float(np.abs(self.theta[own]) @ np.abs((self.t - f.b)[own]))
        if f.cones.costly:
            losses += f.cones.value(self.x)
        return max(linear + 0.5 * float(self.x @ self.M @ self.x) + losses, 1e-300)

    @property
    def far(self) -> bool:
        """Whether the iterates have grown beyond anything that an optimum should be."""
        size = float(np.abs(self.x).max(initial=0.0))
        slope = float(np.abs(self.theta).max(initial=0.0))
        slope = max(slope, float(np.abs(self.multipliers).max(initial=0.0)))
        return size > GROWN * self.first[0] or slope > FAR * self.first[1]

    @property
    def endless(self) -> bool:
        """Whether the linear term pulls at a coordinate that nothing else sees."""
        return bool((self.terms.problem.linear[self.unseen] != 0).any())

    def unbounded(self) -> str:
        """``"unbounded"`` where a direction of the iterates shows it."""
        if self.endless or any(self._descends(p) for p in (self.x, self.dx)):
            return "unbounded"
        return ""

    def _descends(self, p: Array) -> bool:
        """Whether P falls without end along p: its recession function is negative there."""
        f = self.terms
        size = float(np.linalg.norm(p))
        if not (np.isfinite(size) and size > 0):
            return False
        p = p / size
        t = f.forward(p)
        scale = max(float(np.abs(self.M).max(initial=0.0)), 1e-300)
        if float(p @ (self.M @ p)) > FLAT * scale:
            return False
        if len(f.e) and float(np.abs(f.E @ p).max()) > RAY * float(np.abs(f.E).max()):
            return False
        if f.cones.costly and f.cones.grows(p, RAY):
            return False
        if f.cones and not f.cones.costly:
            along = f.cones.matrix @ p
            if f.cones.room(along).min() < -RAY * float(np.abs(f.cones.matrix).max()):
                return False
        t = np.where(np.abs(t) > RAY * float(np.abs(t).max(initial=0.0)), t, 0.0)
        return falls_without_end(t, f.lo, f.hi, f.problem.linear * p)

    def separating(self, tol: float) -> Array | None:
        """Slopes of the constraints which show that nothing satisfies them all; None where none do.

        By Farkas, up to `tol`: with them, and with the multipliers of equalities, cones and budgets
        (whose terms are among the constraints), a sum of what must not be positive is a positive
        constant.
        """
        f = self.terms
        one_sided = self.live & (f.q == 0) & ~(self.has_low & self.has_high)
        ray = np.where(one_sided | (f.part >= 0), self.theta, 0.0)
        z = np.zeros(0) if f.cones.costly else self.z
        offset = f.cones.offset[: len(z)]
        parts = (f.b * ray, f.e * self.y, offset * z, -f.constants * self.weights)
        value = sum(float(part.sum()) for part in parts)
        if not value < 0:
            return None
        left = f.adjoint(ray) - (f.E.T @ self.y if len(f.e) else 0.0)
        if len(z):
            left = left - f.cones.adjoint(z)
        if self.budgets:
            left = left + self.weights @ f.linears
        size = sum(float(np.abs(part).sum()) for part in parts)
        reach = 1.0 + float(np.abs(self.x).max(initial=0.0))
        fits = -value > 1e-9 * size and float(np.abs(left).sum()) * reach <= -tol * value
        return ray if fits else None


def _longest_step(value: Array, change: Array) -> float:
    """How far the values stay positive, a million at most."""
    smallest = np.maximum(value, 1e-300)
    np.divide(change, smallest, out=smallest)
    return 1.0 / max(1e-6, -float(np.min(smallest, initial=0.0)))


# -- the face of the optimum -------------------------------------------------------------------


@dataclass(eq=False)
class PrimalDualPair:
    """A primal and a dual point of the problem as terms, its gap, and what that is the sum of."""

    x: Array
    theta: Array
    y: Array
    gap: float
    size: float


class Attempt:
    """One call: the best pair so far, and when to look for the face of the optimum."""

    def __init__(self, terms: IntervalTerms, target: float, tol: float = 0.0) -> None:
        self.terms, self.target, self.asked, self.tol = terms, target, target, tol
        self.best: PrimalDualPair | None = None
        self.shown: tuple[Array, Array, Array] | None = None  # why nothing is feasible
        self.steps = 0
        self.on_face = False
        self.inside: Array | None = None
        self.reset_path()

    def reset_path(self) -> None:
        """Forget what belongs to one path; the best pair and a point inside are kept."""
        self.idle, self.least, self.most, self.violation = 0, np.inf, 0.0, np.inf
        self.nearest: tuple[Array, Array, Array] | None = None
        self.next_look = np.inf

    @property
    def gap(self) -> float:
        """Gap of the best pair so far, infinite where there is none."""
        return np.inf if self.best is None else self.best.gap

    @property
    def provable(self) -> bool:
        """Whether bounds can rest on a point that satisfies the side constraints for certain."""
        side, free = self.terms.problem.side, self.terms.problem.quadratic.free
        if side is None:
            return False
        return not (free.any() and side.has("zero"))

    @property
    def reached(self) -> bool:
        """Whether the target has been reached, or rounding is all that is left."""
        left = 0.0 if self.best is None else ROUNDED * self.best.size
        return self.gap <= max(self.target, left)

    def consider(self, x: Array, theta: Array, y: Array) -> bool:
        """Evaluate a pair and keep it if it is the best; whether it is."""
        x = self.terms.at_bounds(x)
        gap, size = self.gap_of(x, theta, y)
        if np.isinf(gap) and self.terms.bounded:
            # Where the optimum has nothing but zeros every rounding error is a large violation.
            x = self.terms.within_bounds(x)
            gap, size = self.gap_of(x, theta, y)
        better = self.best is None or gap < self.best.gap
        if better:
            self.best = PrimalDualPair(x.copy(), theta.copy(), y.copy(), gap, size)
        return better

    def gap_of(self, x: Array, theta: Array, y: Array) -> tuple[float, float]:
        """The Fenchel-Young terms and what the residuals cost; the sizes of what was summed."""
        f = self.terms
        t = f.forward(x)
        gap = float(fenchel_young(f, t - f.b, theta).sum())
        residual = f.stationarity(x, f.adjoint(theta), y)
        usual = float(np.abs(x).mean()) if len(x) else 0.0
        # Of the coordinates' own sizes, but where the optimum is 0 slopes have to balance, too.
        cost = np.abs(residual) * np.maximum(np.abs(x) + usual, LEAST_SIZE * f.natural)
        diagonal = f.problem.quadratic.diagonal
        if f.problem.quadratic.matrix is None:
            held = diagonal > 0
            cost[held] = np.minimum(cost[held], 0.5 * residual[held] ** 2 / diagonal[held])
        gap += float(cost.sum())
        k = len(f.e)
        if k:
            gap += float(np.abs(f.E @ x + f.e) @ np.abs(y[:k]))
        size = float(np.abs(theta) @ np.maximum(np.abs(t), LEAST_SIZE * f.margins))
        size += float(np.abs(f.problem.linear) @ np.abs(x))
        if f.cones:
            slack = f.cones.slack(x)
            gap += float(np.abs(f.cones.sums(slack * y[k:])).sum())
            size += float(np.abs(slack) @ np.abs(y[k:]))
        apart = f.bounded and f.violation(x, t) > VIOLATED
        if len(f.e) and not apart:
            reach = np.abs(f.E) @ np.abs(x) + np.abs(f.e)
            apart = bool((np.abs(f.E @ x + f.e) > VIOLATED * reach).any())
        return (gap, size) if np.isfinite(gap) and not apart else (np.inf, 0.0)

    def answer(self) -> tuple[Array, Array, Array]:
        """x, slopes of the problem's own terms, multipliers of its side constraints."""
        best = self.best
        if best is None:
            nothing = np.zeros(0)
            return nothing, nothing, nothing
        theta, multipliers = self.terms.as_given(best.theta, best.y)
        return self.moved_inside(best), theta, multipliers

    def moved_inside(self, best: PrimalDualPair) -> Array:
        """The best x, or a point beside it that satisfies the constraints for certain."""
        side = self.terms.problem.side
        if side is None or not self.provable:
            return best.x
        x = side.moved_inside(
            best.x, self.strictly_feasible_near(best.x) if self.inside is None else self.inside
        )
        if x is best.x or np.array_equal(x, best.x):
            return best.x
        gap, _ = self.gap_of(x, best.theta, best.y)
        return x if gap <= max(self.target, 2.0 * best.gap) else best.x

    def strictly_feasible_near(self, x: Array) -> Array:
        """A point beside x, by what is tight there; the path may end without one inside.

        The least move by which every tight inequality gets room in its own units and the equalities
        stay; x itself where there is none.
        """
        side = self.terms.problem.side
        if side is None:
            return x
        below, equal = linear_rows(self.terms.problem)
        units = abs(side.matrix) @ np.abs(x) + np.abs(side.offset)
        units = np.where(units > 0, units, 1.0)
        tight = below[side.slack(x)[below] <= VIOLATED * units[below]]
        rows = side.matrix[np.concatenate([tight, equal])].toarray()
        room = np.concatenate([units[tight], np.zeros(len(equal))])
        if self.terms.cones and not self.terms.cones.costly:
            normals, sizes = self.terms.cones.tight(x, VIOLATED)
            rows, room = np.vstack([normals, rows]), np.concatenate([sizes, room])
            tight = np.arange(len(sizes) + len(tight))
        move = np.linalg.lstsq(rows, room, rcond=None)[0] if len(room) else np.zeros(len(x))
        enough = rows[: len(tight)] @ move >= 0.5 * room[: len(tight)]
        return x + move if enough.all() else x

    # -- what is asked of every iterate of a path --------------------------------------------------

    def examine(self, path: PrimalDualPath) -> None:
        """Evaluate the iterate where its gap may be small enough; now and then its face as well."""
        estimate = path.estimate()
        self.most = max(self.most, estimate)
        if self.provable and (self.inside is None or estimate > INSIDE_UNTIL * self.most):
            side = self.terms.problem.side
            if side is not None and np.isfinite(side.nearness(path.x)):
                self.inside = path.x
        if estimate < self.least:
            self.nearest = (path.x, self.clipped(path), path.multipliers)
        violation = self.terms.violation(path.x, path.t) if self.terms.bounded else 0.0
        if estimate < 0.7 * self.least:
            self.least, self.idle = estimate, 0
        elif VIOLATED < violation < CLOSER * self.violation:
            self.idle = 0  # multipliers grow until the constraints hold, and with them the estimate
        else:
            self.idle += 1
        self.violation = min(self.violation, violation)
        if self.tol:
            value = self.terms.problem.primal(path.x, path.t[: self.terms.n])
            if self.terms.cones.costly:
                value += self.terms.cones.value(path.x)
            self.target = max(self.asked, self.tol * (value - estimate))
        if estimate <= self.target:
            if self.tol:
                self.consider(path.x, self.rounded(path)[0], path.multipliers)
            if not self.reached:
                self.consider(path.x, self.clipped(path), path.multipliers)
            if self.reached:
                if not self.tol:
                    self.consider_face(path)  # for slopes and multipliers that are 0, not nearly so
                return
        if self.tol:  # the path itself comes so far, at less cost than looks at faces
            return
        if self.next_look == np.inf:
            self.next_look = FACE_FROM * float(np.abs(path.theta) @ np.abs(path.t - self.terms.b))
            if self.terms.cones.costly:
                self.next_look += FACE_FROM * self.terms.cones.value(path.x)
        if estimate <= self.next_look:
            self.next_look = FACE_AGAIN * estimate
            self.consider_face(path)

    def examine_last(self, path: PrimalDualPath) -> None:
        """The same at the end of the path, whatever the estimate: the iterate, then its face."""
        self.consider(path.x, self.clipped(path), path.multipliers)
        if self.nearest is not None and not self.reached:
            self.consider(*self.nearest)
        if not self.reached:
            self.consider_face(path)

    def clipped(self, path: PrimalDualPath) -> Array:
        """The slopes within their intervals to the last bit."""
        f = self.terms
        return np.clip(path.theta, np.where(path.live, f.lo, 0.0), np.where(path.live, f.hi, 0.0))

    def rounded(self, path: PrimalDualPath) -> tuple[Array, Mask]:
        """The slopes, those at an end exactly there that the iterate points at it; the others."""
        f = self.terms
        at_low, at_high = path.near_end()
        theta = np.where(at_low, f.lo, np.where(at_high, f.hi, self.clipped(path)))
        return theta, path.live & ~at_low & ~at_high

    def consider_face(self, path: PrimalDualPath) -> None:
        """The optimum on the face that the iterate points at."""
        f = self.terms
        theta, inside = self.rounded(path)
        if self.reached and self.large(inside):
            return
        if not f.b.any():  # every term has its kink at 0, which may be the optimum
            self.consider(np.zeros_like(path.x), self.clipped(path), path.multipliers)
            if self.reached:
                return
        self.solve_face(path.M, path.x, theta, path.on_face(), inside)

    def solve_equations(self) -> None:
        """What there is to do for squares and equalities alone."""
        f = self.terms
        x, none = np.zeros(f.problem.d), np.zeros(0)
        self.solve_face(f.quadratic(), x, none, np.zeros(len(f.e)), np.zeros(0, dtype=bool))

    def begin_on_face(self, start: Start) -> bool:
        """Whether the start's face, if near enough, holds the optimum; the pair is kept anyway."""
        f = self.terms
        begun = self.begun(start)
        if begun is None:
            return False
        theta, y = begun
        self.consider(np.array(start.x, dtype=np.float64), theta, y)
        if self.reached:
            return True
        if self.best is None or NEAR_FACE * self.best.size < self.gap < np.inf:
            return False
        inside = (theta > f.lo) & (theta < f.hi)
        if not 0 < int((inside & (f.q == 0)).sum()) <= CROWDED * f.problem.d:
            return False
        self.solve_face(f.quadratic(), np.array(start.x), theta, y, inside)
        return self.reached

    def begun(self, start: Start) -> tuple[Array, Array] | None:
        """Slopes of all terms and multipliers of a start; None where it is odd.

        Multipliers of norms in the objective are 0.
        """
        f, n = self.terms, self.terms.n
        if len(start.x) != f.problem.d or len(start.theta) != n:
            return None
        if not (np.isfinite(start.x).all() and np.isfinite(start.theta).all()):
            return None
        theta = np.zeros(len(f))
        given = np.array(start.theta, dtype=np.float64)
        theta[:n] = given
        k = len(f.split)
        theta[n: n + k] = np.minimum(given[f.split], 0.0)
        theta[f.split] = np.maximum(given[f.split], 0.0)
        y = np.zeros(len(f.e) + len(f.cones.offset))
        side = f.problem.side
        if side is not None and start.multipliers is not None and len(start.multipliers):
            below, equal = linear_rows(f.problem)
            theta[len(f) - len(below):] = start.multipliers[below]
            both = np.concatenate([start.multipliers[equal], -given[f.tied]])
            y[: len(f.e)] = both[f.chosen]
            if not f.cones.costly:
                y[len(f.e):] = start.multipliers[f.cones.at]
        if isinstance(f.problem.penalty, L1):
            at = np.flatnonzero(f.problem.penalty.kappa)
            free = -(f.problem.design.adjoint(given) + f.problem.linear
                     + f.problem.quadratic.apply(start.x))[at]
            theta[n + k: n + k + len(at)] = free
        return np.clip(theta, f.lo, f.hi), y

    def go_straight(self, start: Start | None, of_norms: Array | None) -> bool:
        """Whether Newton's method leads to the optimum of norms in the objective.

        It does where none of them is 0 there, or those that are next to 0 where it stops, and no
        constraint holds the coordinates; and from a start with multipliers `of_norms`, where norms
        are 0 and constraints hold as they did.
        """
        f, M = self.terms, self.terms.quadratic()
        losses = f.counted | ~np.isinf(f.hi) | (f.lo < 0.0)
        smooth = not (losses & (f.lo < f.hi)).any()
        theta, y, x = np.zeros(len(f)), np.zeros(len(f.e) + len(f.cones.offset)), None
        begun = None if start is None or of_norms is None else self.begun(start)
        if begun is not None and start is not None:
            (theta, y), x = begun, np.array(start.x, dtype=np.float64)
            y[len(f.e):] = of_norms
            self.consider(x, theta, y)
            if self.reached:
                return True
            self.solve_face(M, x, theta, y, (theta > f.lo) & (theta < f.hi))
            if self.reached:
                return True
        if not smooth:
            return False
        x, ended = f.cones.lowest(M, f.problem.linear, (f.E, f.e), x)
        if x is None or not np.isfinite(x).all():
            return False
        theta, none = np.zeros(len(f)), np.zeros(len(f), dtype=bool)
        y[len(f.e):] = f.cones.steepest(x)
        if ended:
            self.solve_face(M, x, theta, y, none)
        if not self.reached:  # a median at one of its points, on which Newton's steps do not end
            y[len(f.e):][f.cones.vanishing(x)[f.cones.owner] & (f.cones.tail > 0.0)] = 0.0
            self.solve_face(M, x, theta, y, none)
        return self.reached

    def go_to_face(self, x: Array) -> bool:
        """Whether few terms and linear constraints lead from x to the optimum's vertex or face.

        A constraint is a kink with slopes that no objective should ask for; `consider` refuses a
        point where one is still broken.
        """
        f, d = self.terms, self.terms.problem.d
        live, M = f.lo < f.hi, f.quadratic()
        kinks, bent = (live & (f.q == 0)).nonzero()[0], (live & (f.q > 0)).nonzero()[0]
        flat, count = not (len(bent) or M.any()), len(kinks) + len(f.e) + len(bent)
        if f.cones or len(f.constants) or count > PIVOTED / d or (flat and count < d):
            return False
        if not np.isfinite(x).all():
            return False
        rows, b = np.vstack([f.take(kinks), f.E]), np.concatenate([f.b[kinks], -f.e])
        endless = np.full(len(f.e), np.inf)
        lo = np.concatenate([f.lo[kinks], -endless])
        hi = np.concatenate([f.hi[kinks], endless])
        curves, asked = None, np.abs(f.problem.linear)
        if not flat:
            of_bent = tuple(part[bent] for part in (f.b, f.q, f.lo, f.hi))
            try:
                curves = Curves.beside(M, f.take(bent), *of_bent)
            except np.linalg.LinAlgError:
                return False
            asked = asked + np.abs(curves.slopes(x)) @ np.abs(curves.rows)
        lo, hi = steep(rows, lo, hi, asked)
        face = Face(rows, b, lo, hi, f.problem.linear, x, curves)
        most = SEARCHES[0] * d + SEARCHES[1]
        if not face.descend(most if flat else most // 2):
            return False
        theta = np.zeros(len(f))
        if flat:
            found = settled(rows, b, lo, hi, f.problem.linear, face.basis, face.slopes)
            if found is None:
                return False
            x, slopes = found
            theta[kinks] = slopes[: len(kinks)]
            self.on_face |= self.consider(x, theta, -slopes[len(kinks):])
            return self.best is not None and self.gap <= VIOLATED * self.best.size
        theta[kinks], theta[bent] = face.slopes[: len(kinks)], face.bends[: len(bent)]
        held = face.basis[(face.basis >= 0) & (face.basis < len(kinks))]
        inside = np.zeros(len(f), dtype=bool)
        inside[kinks[held]], inside[bent] = True, face.bent[: len(bent)]
        self.solve_face(M, x, theta, np.zeros(len(f.e)), inside)
        return self.reached

    def large(self, inside: Mask) -> bool:
        """Whether the equations of a face cost as much as a step."""
        kinks = int((inside & (self.terms.q == 0)).sum())
        return self.terms.problem.d + kinks > LARGE_FACE

    def solve_face(self, M: Array, x: Array, theta: Array, y: Array, inside: Mask) -> None:
        """Solve the equations of a face; exchange what violates a sign, a few times."""
        f, violations = self.terms, len(self.terms) + 1
        for _ in range(1 if self.large(inside) else EXCHANGES):
            found = optimum_on_face(f, M, (x, theta, y), inside)
            if found is None:
                return
            x, theta, y = found
            if f.cones:
                y = np.concatenate([y[: len(f.e)], f.cones.project(y[len(f.e):])])
            low, high = theta < f.lo, theta > f.hi
            theta = np.clip(theta, f.lo, f.hi)
            self.on_face |= self.consider(x, theta, y)
            if self.reached:
                return
            z = f.forward(x) - f.b - f.q * theta
            room = 1e-12 * (np.abs(z) + np.abs(f.b)) + 1e-14 * float(np.abs(z).max(initial=0.0))
            wrong = ~inside & (f.lo < f.hi) & (
                ((theta == f.lo) & (z > room)) | ((theta == f.hi) & (z < -room)))
            leave = low | high
            before, violations = violations, int(wrong.sum() + leave.sum())
            if not 0 < violations < before:
                return
            inside = (inside & ~leave) | wrong


def steep(rows: Array, lo: Array, hi: Array, asked: Array) -> tuple[Array, Array]:
    """The slopes with ends for constraints: `STEEP` times the most that may be asked of each.

    By the kinks, which `asked` of each coordinate is for the rest of the objective, and by other
    constraints: what a sum of bounds takes up is asked of each bound.
    """
    hard = np.isinf(lo) | np.isinf(hi)
    if not hard.any():
        return lo, hi
    sizes = np.abs(rows)
    asked = asked + (hi - lo)[~hard] @ sizes[~hard]
    sizes = sizes[hard]
    seen, largest = sizes > 0.0, np.maximum(sizes.max(axis=1), 1e-300)
    for _ in range(PASSED_ON):
        taken = np.where(seen, asked, 0.0).max(axis=1) / largest
        asked = np.maximum(asked, (taken[:, None] * sizes).max(axis=0))
    most = np.full(len(hi), np.inf)
    most[hard] = STEEP * np.where(seen, asked / np.maximum(sizes, 1e-300), 0.0).max(axis=1)
    return np.maximum(lo, -most), np.minimum(hi, most)


def optimum_on_face(
    f: IntervalTerms, M: Array, near: tuple[Array, Array, Array], inside: Mask
) -> tuple[Array, Array, Array] | None:
    """The solution nearest to ``(x, theta, y)`` of the optimum's equations, slopes `inside` free.

    None where there is none. Terms inside with curvature are eliminated; those without give the
    equations ``<a_i, x> = b_i``, with their slopes as multipliers; where such a row has one entry,
    its coordinate is known and its slope follows last. A multiple of the identity makes the system
    regular where the optimum is not unique or the vertex degenerate, and is refined away.
    """
    (x, theta, y), d = near, f.problem.d
    bent, kinks = np.flatnonzero(inside & (f.q > 0)), np.flatnonzero(inside & (f.q == 0))
    if len(kinks) > CROWDED * d:
        return None
    H = M
    if len(bent):
        weights = np.zeros(len(f))
        weights[bent] = 1.0 / f.q[bent]
        H = H + f.gram(weights)
    B, k = f.take(kinks), len(kinks)
    held, by = _held_alone(B)
    factors = B[by, held]
    free, others = np.ones(d, dtype=bool), np.ones(k, dtype=bool)
    free[held], others[by] = False, False
    x, theta = x.copy(), theta.copy()
    x[held] = f.b[kinks[by]] / factors
    rest, H0, B0, e = kinks[others], H, np.vstack([B[others], f.E]), len(f.e)
    system, before = None, np.inf
    for turn in range(CURVED if f.cones else 2):  # once more for what rounding, and curves, left
        curved = f.cones.face(x, y[e:]) if f.cones else None
        if f.cones and curved is None:
            return None
        if system is None or curved is not None:
            H, B = (H0, B0) if curved is None else (H0 + curved[0], np.vstack([B0, curved[1]]))
            try:
                system = _FaceSystem(H[np.ix_(free, free)], B[:, free]) if free.any() else None
            except (sla.LinAlgError, ValueError):
                return None
        if system is None:  # x is known, and with it the norms' multipliers
            if f.cones:
                y = np.concatenate([y[:e], f.cones.moved(x, y[e:], np.zeros(len(y) - e))])
            break
        t = f.forward(x)
        slopes = theta.copy()
        slopes[bent] = (t[bent] - f.b[bent]) / f.q[bent]
        first = -f.stationarity(x, f.adjoint(slopes), y)
        second = np.concatenate([f.b[rest] - t[rest], -f.e - f.E @ x])
        if curved is not None:
            second = np.concatenate([second, curved[2]])
        step = system.solve(first[free], second)
        if step is None:
            return None
        theta[rest] += step[1][: len(rest)]
        of_side = -step[1][len(rest):]
        x = x.copy()
        x[free] += step[0]
        z = f.cones.moved(x, y[e:], of_side[e:]) if f.cones else y[e:]
        y = np.concatenate([y[:e] + of_side[:e], z])
        if curved is not None:
            length = float(np.abs(step[0]).max(initial=0.0))
            if turn > 1 and not length < 0.5 * before:
                break
            before = length
    if len(bent):
        theta[bent] = (f.forward(x)[bent] - f.b[bent]) / f.q[bent]
    if len(held):
        theta[kinks[by]] -= f.stationarity(x, f.adjoint(theta), y)[held] / factors
    return x, theta, y


def _held_alone(B: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Coordinates that one row of B, and only one, holds without any other; and these rows."""
    single = np.flatnonzero(np.count_nonzero(B, axis=1) == 1)
    held, first, count = np.unique(
        np.argmax(B[single] != 0.0, axis=1), return_index=True, return_counts=True
    )
    return held[count == 1], single[first[count == 1]]


class _Lu:
    """LU factors of a square matrix, which may be singular without a warning, or empty."""

    def __init__(self, matrix: Array) -> None:
        if len(matrix):  # LAPACK takes no empty one
            self.factors, self.pivots, _ = lapack.dgetrf(matrix)

    def solve(self, right: Array, transposed: bool = False) -> Array:
        """The inverse, or that of the transposed matrix, times `right`."""
        if not len(right):
            return right
        return np.asarray(lapack.dgetrs(self.factors, self.pivots, right, trans=transposed)[0])


class _FaceSystem:
    """``[[H, B'], [B, 0]] step = (first, second)``, scaled and made regular.

    Where H is 0 and B square, at the vertex of a linear program, B alone is factorised. Else
    coordinates with a curvature of their own alone, as a squared norm gives them, are eliminated:
    with 300 of them beside 300 rows a factor takes 3 ms for 7, 600 beside 500 12 for 38.
    """

    def __init__(self, H: Array, B: Array) -> None:
        d, k = H.shape[0], len(B)
        columns = np.sqrt(np.diag(H) + (B * B).max(axis=0, initial=0.0))
        self.columns = 1.0 / np.where(columns > 0, columns, 1.0)
        scaled = B * self.columns
        rows = np.linalg.norm(scaled, axis=1)
        self.rows = 1.0 / np.where(rows > 0, rows, 1.0)
        scaled *= self.rows[:, None]
        self.B = scaled
        self.vertex = d == k and not H.any()
        if self.vertex:
            self.factor = _Lu(scaled)
            pivots = np.abs(np.diag(self.factor.factors))
            self.vertex = bool(pivots.min() > SINGULAR * pivots.max())
        if self.vertex:
            return
        self.H = H * self.columns[:, None] * self.columns
        diagonal = np.diag(self.H)
        alone = (diagonal >= PIVOT) & (np.count_nonzero(self.H, axis=0) == 1)
        self.alone, self.others = np.flatnonzero(alone), np.flatnonzero(~alone)
        self.own = 1.0 / (diagonal[self.alone] + REGULAR)
        part = scaled[:, self.alone] * np.sqrt(self.own)
        r = len(self.others)
        regular = np.zeros((r + k, r + k))
        regular[:r, :r] = self.H[np.ix_(self.others, self.others)]
        regular[r:, :r] = scaled[:, self.others]
        regular[:r, r:] = regular[r:, :r].T
        regular[r:, r:] = -(part @ part.T)
        at = np.arange(r + k)
        regular[at, at] += np.where(at < r, REGULAR, -REGULAR)
        self.factor = _Lu(regular)

    def solve(self, first: Array, second: Array) -> tuple[Array, Array] | None:
        """The steps of x and of the multipliers; None where there is none."""
        first, second = self.columns * first, self.rows * second
        B = self.B
        if self.vertex:
            x = self.factor.solve(second)
            x += self.factor.solve(second - B @ x)
            slopes = self.factor.solve(first, True)
            slopes += self.factor.solve(first - B.T @ slopes, True)
        else:
            x, slopes = np.zeros(len(first)), np.zeros(len(second))
            for _ in range(REFINEMENTS):
                of_x, of_slopes = self._regular(
                    first - self.H @ x - B.T @ slopes, second - B @ x
                )
                x += of_x
                slopes += of_slopes
        if not (np.isfinite(x).all() and np.isfinite(slopes).all()):
            return None
        return self.columns * x, self.rows * slopes

    def _regular(self, first: Array, second: Array) -> tuple[Array, Array]:
        """The solution of the regular system, whose steps are refined."""
        own, r = self.own * first[self.alone], len(self.others)
        found = self.factor.solve(
            np.concatenate([first[self.others], second - self.B[:, self.alone] @ own])
        )
        x, slopes = np.empty(len(first)), found[r:]
        x[self.others] = found[:r]
        x[self.alone] = own - self.own * (self.B[:, self.alone].T @ slopes)
        return x, slopes


def fenchel_young(f: IntervalTerms, z: Array, theta: Array) -> Array:
    """The Fenchel-Young terms at ``t = z + b``; an infinite slope is charged as ``|theta|``."""
    low = np.where(np.isfinite(f.lo), f.lo, np.minimum(theta, 0.0))
    high = np.where(np.isfinite(f.hi), f.hi, np.maximum(theta, 0.0))
    flat = f.q == 0
    slope = np.where(z > 0, high, low)
    if not flat.all():
        curve = np.where(flat, 1.0, f.q)
        slope = np.where(flat, slope, np.clip(z / curve, f.lo, f.hi))
    return np.maximum((z - 0.5 * f.q * (slope + theta)) * (slope - theta), 0.0)
