"""Dual active set method: coordinate descent finds the free duals, conjugate gradients solve them.

For sparse data. The problem (see `cvxscreen.core.problem`), M diagonal, is written in the metric of
M: rows are divided by ``M^{1/2}`` and ``x`` stands for ``M^{1/2} x``. Its dual is then

::

    minimise  1/2 ||v||^2 + sum_i (b_i theta_i + e_i |theta_i| + q_i/2 theta_i^2)
    over      lo_i <= theta_i <= hi_i,       v = -M^{-1/2} linear - sum_i theta_i a_i

and ``x_theta = v`` is the primal point of theta: at a solution it is the minimiser. The duality gap
of a pair ``(v + s, theta)`` is a sum over terms, plus the price of s:

::

    gap = sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i) + 1/2 ||s||^2,       t = A (v + s)

**Working set** (`working_set.WorkingSet`). Most duals stay at an end of their box (or at the kink
of ``|theta_i|``). Only a working set of rows is worked on: the free terms (strictly inside a
piece), those on the wrong piece, and those whose margin is nearest to a kink. It is a copy of these
rows, so that what is read often lies together. The gap on all terms decides whether the answer is
good enough; terms outside the working set that turn out to be on the wrong piece are added.

**Coordinate descent** (`WorkingSet.sweep`). One sweep minimises over one dual after another, v
following:

::

    z         = <a_i, v> - b_i + ||a_i||^2 theta_i
    theta_i  <- clip(soft(z, e_i) / (||a_i||^2 + q_i), lo_i, hi_i),       soft: towards 0 by e_i

That finds out quickly which duals are free, and is slow at their values.

**Face step** (`working_set.Face`). On the face F of the free duals the dual is a quadratic whose
minimum solves ``(A_F A_F' + Q) step = r``, with ``r_i = t_i - b_i - e_i sign(theta_i) - q_i
theta_i`` the residual of the margins. Preconditioned conjugate gradients solve it roughly, the step
is clipped to the box, and a sweep follows. (The alternation is that of Moré and Toraldo 1991, who
take projected gradients where we take coordinate descent.)

**Primal correction** (`working_set.correct_primal`). On a face of terms with ``q = 0`` the gap at
``x = v`` is linear in r, the error of the dual objective quadratic (``r' (A_F A_F')^{-1} r / 2``):
once the duals are nearly right, almost all of the gap is due to x alone. A move s of x with ``A_F s
= -r`` then closes it at the price of ``||s||^2 / 2``, far below what more steps on the dual would
cost.

**Unpenalised coordinate** (`DualIterate`). Where M is 0 on a coordinate, such as an intercept, a
proximal term ``tau/2 (x_j - centre)^2`` takes its place, and the centre follows the solution
(proximal point method). The gap is the one without that term, at a dual point balanced first so
that the coordinate's column is orthogonal to it.

**Extrapolation along a path** (`PathCache`). On one face theta and x are affine in C. What is
continued on the line through the solutions at the last two values of C is therefore not theta but
``||a_i||^2 theta_i + t_i``, of which one coordinate step gives theta, terms that change their piece
included. It is used where its dual objective beats that of the last point scaled to the new C.

The entry is `DualActiveSet`, whose `__call__` is the method: `_Run` counts and keeps the best
point, `_LocalSolve` works on one working set, `DualIterate` is the point on all terms.

Source of the parts: Moré, Toraldo: On the solution of large quadratic programming problems with
bound constraints, SIAM J. Optim. 1, 93-113 (1991); Hsieh et al.: A dual coordinate descent method
for large-scale linear SVM, ICML 2008.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvxscreen._support.compiled import CompileClock
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import Point, dual_feasible
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, entries
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)
from cvxscreen.solvers.newton import Newton, has_central_path
from cvxscreen.solvers.working_set import (
    CUBE,
    Array,
    Face,
    Index,
    ScaledDesign,
    ScaledRows,
    WorkingSet,
    correct_primal,
    inside,
    sweep_rows,
)

# -- what one value of C leaves to the next -------------------------------------------------------
#
# Copied rows, and the line through the last solutions. On one face theta and x are affine in C.
# Terms change their piece where their margin crosses a kink, so what is continued along the line is
# not theta but the *key* ||a_i||^2 theta_i + t_i, which tells both: one step of coordinate descent
# from it gives the theta looked for.


FARTHEST = 3.0
"""C may go on by so many times its last step. By trial (`examples/benchmarks/sparse_path.py`); a
point too far off is refused anyway, being worse than the last one scaled."""
ROUNDING = 1e-12
"""Of the largest theta: what theta may be off the line without being looked at, some thousand
units of rounding. It saves work only: v is then that of the line, as it was."""
GROWTH = 1.5
"""The columns to split off may have become so many times more before they are chosen afresh."""


class PathCache:
    """The copied rows of one design and its last solutions, for problems that differ in losses.

    One path owns one; nothing else may use it at the same time.

    Attributes
    ----------
    failed_corrections : int
        Calls in a row in which no primal correction has paid.
    """

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._source: ScaledRows | None = None
        self._working_set: WorkingSet | None = None
        self._line: Extrapolation | None = None
        self.failed_corrections = 0

    def scaled_rows(self, rows: Rows, root: Array) -> ScaledRows:
        """The rows as the loops read them; what was kept of others is forgotten."""
        known = self._source
        if known is None or self._rows is not rows or not np.array_equal(known.root, root):
            self._rows, self._working_set, self._line = rows, None, None
            self._source = known = ScaledRows.of(rows, root)
        return known

    def keep(self, working_set: WorkingSet) -> None:
        """Remember `working_set`, which nobody else will change."""
        self._working_set = working_set if working_set.source is self._source else None

    def remember(self, problem: Problem, place: SavedIterate) -> None:
        """Remember where a call for `problem` ended."""
        self._line = Extrapolation(problem, place, self._line)

    def extrapolate(self, problem: Problem) -> SavedIterate | None:
        """Where the last two calls point to; None where the last one, scaled, is better."""
        if self._line is None or self._source is None:
            return None
        return self._line.at(problem, self._source)

    def reuse(
        self, urgent: Index, near: Index, losses: LossTerms, heavy: int
    ) -> WorkingSet | None:
        """The working set kept, if it suits as it is and has all these rows."""
        known = self._working_set
        if known is None or known.partial or heavy > GROWTH * known.heavy_asked:
            return None
        missing = np.ones(len(losses), dtype=bool)
        missing[known.rows] = False
        if missing[urgent].any() or missing[near].any():
            return None
        self._working_set = None
        known.renew(losses)
        return known

    def build(self, urgent: Index, near: Index, losses: LossTerms, heavy: int) -> WorkingSet:
        """A working set of `urgent` and `near` rows."""
        source, before = self._source, self._working_set
        if source is None:
            raise ValueError("no rows yet")
        self._working_set = None
        if before is not None and (before.partial or heavy > GROWTH * before.heavy_asked):
            before = None
        return WorkingSet(source, urgent, near, losses, heavy, before)


class SavedIterate(Immutable):
    """A dual point at one C: theta, v, ``M^{1/2} x``, its margins t, and the proximal centre."""

    C: float
    theta: Array
    v: Array
    x: Array
    t: Array
    centre: Array

    def dual(self, losses: LossTerms) -> float:
        """The dual objective, up to a constant."""
        theta = self.theta
        conjugates = (
            losses.b @ theta + losses.e @ np.abs(theta) + 0.5 * (losses.q * theta) @ theta
        )
        return -0.5 * float(self.v @ self.v) - float(conjugates)


class Extrapolation:
    """The line through the solutions of one design, linear term and metric at two values of C.

    Parameters
    ----------
    problem : Problem
        That of `place`.
    place : SavedIterate
        Where a call ended.
    before : Extrapolation, optional
        The line that ended at the call before.
    """

    def __init__(
        self, problem: Problem, place: SavedIterate, before: Extrapolation | None = None
    ) -> None:
        f, theta = problem.losses, place.theta
        self.linear, self.last = problem.linear, place
        slope = f.q * theta + f.e * np.sign(theta)
        free = inside(f, theta)  # whose margins are replaced by what they would be at the optimum
        self._key = problem.norms**2 * theta + np.where(free, slope, place.t - f.b)
        self._first: tuple[SavedIterate, Array] | None = None
        if before is not None and np.array_equal(before.linear, problem.linear):
            # A second call at the same C replaces the first.
            self._first = before._first if before.last.C == place.C else (before.last, before._key)

    def at(self, problem: Problem, source: ScaledRows) -> SavedIterate | None:
        """The point at the C of `problem`; None where the last one, scaled, is better."""
        if self._first is None or not np.array_equal(self.linear, problem.linear):
            return None
        f, last, (first, key) = problem.losses, self.last, self._first
        far = (problem.C - last.C) / (last.C - first.C)
        if not 0.0 < far <= FARTHEST:
            return None

        def on(now: Array, then: Array) -> Array:
            return now + far * (now - then)

        curvature = problem.norms**2 + f.q
        z = on(self._key, key)
        z = np.maximum(z - f.e, 0.0) + np.minimum(z + f.e, 0.0)
        line = on(last.theta, first.theta)
        curved = curvature > 0
        theta = np.where(curved, z / np.where(curved, curvature, 1.0), line)
        theta = np.clip(theta, f.lo, f.hi)
        off = theta - line
        off[np.abs(off) <= ROUNDING * np.abs(theta).max(initial=0.0)] = 0.0
        v = on(last.v, first.v) - source.adjoint(off)
        x, t, centre = on(last.x, first.x), on(last.t, first.t), on(last.centre, first.centre)
        found = SavedIterate(problem.C, theta, v, x, t, centre)
        return found if found.dual(f) > self._scaled(problem, source).dual(f) else None

    def _scaled(self, problem: Problem, source: ScaledRows) -> SavedIterate:
        """The last point with theta scaled to the C of `problem`."""
        f, last = problem.losses, self.last
        factor, linear = problem.C / last.C, self.linear * source.root
        theta = np.clip(factor * last.theta, f.lo, f.hi)
        v = factor * (last.v + linear) - linear
        return SavedIterate(problem.C, theta, v, last.x, last.t, last.centre)


# -- the dual point on all terms ------------------------------------------------------------------


# Numbers that decide which rows are copied, by trial (CPU seconds of
# examples/benchmarks/sparse_path.py); no answer depends on them.
SHARE = 0.15
"""Share of all terms that a working set holds besides the urgent ones."""
KEPT_SHARE = 0.6
"""Share of these that a working set from before must hold to be used as it is."""
HEAVY_LEAST, HEAVY_MOST, FREE_PER_HEAVY = 64, 512, 24
"""Columns to split off: at least, at most, and one for so many free terms."""
PROXIMAL_WEIGHT, OF_PARABOLAS, LEAST_WEIGHT = 100.0, 50.0, 5.0
"""Weight of the proximal term of an unpenalised coordinate, relative to its typical entry: large
enough that the other coordinates' Hessian hardly notices it; less, so many times ``||a||^2 / q``
down to the third number, where the parabolas of the losses are most of it: a centre that is held
tightly creeps. Passes of coordinate descent, squared hinge, C = 0.01, with 100 and so: dna 47 and
12, mushrooms 187 and 23, categories in 20 columns 50 and 13, in 40 columns 125 and 18, generated
text 12 and 6; at C = 1 it is as it was."""
PUSH = 0.1
"""Share of a typical margin by which the proximal term lets that coordinate move in one step, if
every slope pushed the same way."""
BALANCING_ROUNDS = 3
"""Times that what is missing is shared among the terms inside their piece: those that reach an end
of it in one round leave something for the next."""
LEVEL_HALVINGS = 12
"""How often the range is halved in which an unpenalised coordinate begins; its first steps do the
rest. (Hinge, squared hinge and absolute losses, C from 0.001 to 0.1, five sparse sets: with 25 as
many passes, and up to a fifth more time; with 8 up to a sixth more passes.)"""
STEEP = 1e-100
"""The parabola of a kink there: its slope is at an end of its box everywhere but at the kink."""
BALANCED = 1e-14
"""What is missing, relative to what is there, at which a dual point counts as balanced: rounding of
the sum, for which every certificate pays anyway."""
AT_END = 1e-12
"""Share of its box by which a dual may be off an end that it is taken to be at: rounding, after a
start was scaled."""
SAME = 1e-9
"""Relative distance of two primal points below which margins of one serve for the other: far below
what the gaps asked for can tell."""


class DualIterate:
    """A dual point on all terms, with its ``v = -M^{-1/2} (A' theta + linear)``, margins and gap.

    Parameters
    ----------
    problem : Problem
    rows : Rows
        Its design.
    start : Start or None
    target : float
        The gap asked for.
    cache : PathCache, optional
        Where its solutions point to takes the place of a start that is no better. Without one the
        rows are read as they are, and nothing is evaluated at the start.

    Attributes
    ----------
    theta, v : arrays
    correction : array
        A move of x alone: margins and gap are those at ``M^{1/2} x = v + correction``.
    t : array
        Margins.
    gap_terms : array
        What each term adds to the gap.
    balanced : array
        The dual point that `gap` belongs to: theta, balanced for the unpenalised coordinate.
    gap : float
        Without the proximal term; infinite where that has not been looked at.
    proximal_gap : float
        With it.
    free : array of int
        The unpenalised coordinate, if any.
    centre : array
        Where it is held to.
    root : array
        ``M^{-1/2}``, the proximal term included.
    extrapolated : bool
        Whether it began where the calls before pointed to.
    passes : float
        Passes over the data so far.
    """

    @staticmethod
    def takes(problem: Problem) -> bool:
        """Whether it is for `problem`: rows in memory, M diagonal, 0 on one coordinate at most."""
        quadratic = problem.quadratic
        return (
            problem.side is None
            and problem.penalty is None
            and isinstance(problem.design, Rows)
            and quadratic.matrix is None
            and int(quadratic.free.sum()) <= 1
        )

    def __init__(
        self, problem: Problem, rows: Rows, start: Start | None, target: float,
        cache: PathCache | None = None,
    ) -> None:
        self.problem, self.target = problem, target
        self.cache = PathCache() if cache is None else cache
        diagonal = problem.quadratic.diagonal.copy()
        self.free = problem.free_index
        self.centre = np.zeros(len(self.free)) if start is None else start.x[self.free]
        if len(self.free):
            diagonal[self.free] = min(self._held_weight(), self._most_weight())
        self.root = 1.0 / np.sqrt(diagonal)
        self.source: ScaledDesign | ScaledRows
        if cache is None:
            self.source = ScaledDesign(rows, self.root)
            self.gap, self.extrapolated = np.inf, False
            self._begin(start)
            return
        self.source = cache.scaled_rows(rows, self.root)
        place = None if start is None else cache.extrapolate(problem)
        self.extrapolated = place is not None
        if place is not None:
            self._begin_at(place)
        else:
            self.evaluate(self._begin(start))

    def _held_weight(self) -> float:
        """The proximal weight that the Hessian of the other coordinates hardly notices."""
        problem = self.problem
        size, rows = float(np.sum(problem.free_columns**2)), float(np.sum(problem.norms**2))
        parabolas = float(np.sum(problem.losses.q))
        typical = size / rows if min(size, rows) > 0 else 1.0
        share = OF_PARABOLAS * rows / parabolas if parabolas > 0 else np.inf
        return typical * min(max(share, LEAST_WEIGHT), PROXIMAL_WEIGHT)

    def _most_weight(self) -> float:
        """The proximal weight at which slopes off balance still move the coordinate as needed.

        Where C is small their sum is: the coordinate would creep.
        """
        f, e = self.problem.losses, np.abs(self.problem.free_columns[:, 0])
        push = float(e @ np.abs(f.slope(np.zeros(len(f)))))
        typical = float(np.sqrt(np.mean(f.b**2 + f.e**2)))
        return PUSH * push / typical if min(push, typical) > 0 else np.inf

    def _begin(self, start: Start | None) -> Array | None:
        """Begin at `start`, with the products that it knows; margins where they are known."""
        problem = self.problem
        At_theta: Array | None = None  # where it has been computed
        if start is None:
            theta, At_theta = self._cold_start()
        else:
            theta = np.asarray(start.theta, dtype=np.float64)
        self.theta, self.correction = self._snapped(theta), np.zeros(len(self.root))
        known = None if start is None else start.point
        margins: Array | None = None
        at: Array | None = None
        if known is not None and known.problem is problem and (known.theta == self.theta).all():
            At_theta, self.passes = known.At_theta * self.root, 0.0
            margins = known_margins(known) if not len(self.free) else None
        elif start is not None and start.passes is not None and not len(self.free):
            margins, At_theta = start.passes[0], start.passes[1] * self.root
            at, self.passes = start.x / self.root, 0.0
        else:
            if At_theta is None or (self.theta != theta).any():
                At_theta = self.source.adjoint(self.theta)
            self.passes = 1.0
        self.v = -At_theta - problem.linear * self.root
        # With every slope at an end no kink holds the level of the start: it may be far off.
        unheld = start is None or not inside(problem.losses, self.theta).any()
        if unheld and len(self.free) and self.theta.any():
            self.centre[:] = self._level(self._without_level(self.v))
            self.passes += 5.0
        self.v[self.free] += self.centre / self.root[self.free]
        if at is not None:
            self.correction = at - self.v
        return margins

    def _begin_at(self, place: SavedIterate) -> None:
        self.theta, self.v, self.centre = place.theta, place.v, place.centre
        self.correction, self.passes = place.x - place.v, 0.0
        self.evaluate(place.t)

    def _cold_start(self) -> tuple[Array, Array]:
        """The slopes at x = 0, the solution where C is small, unless a share of them is better.

        With their sum of rows.
        """
        theta = self.problem.losses.slope(np.zeros(self.problem.n))
        At_theta = self.source.adjoint(theta)
        slope, curvature = self._along(theta, At_theta)
        if slope < curvature:
            return np.zeros(self.problem.n), np.zeros(len(self.root))
        return self._at_rest(theta, At_theta) if len(self.free) else (theta, At_theta)

    def _along(self, theta: Array, At_theta: Array) -> tuple[float, float]:
        """The dual objective of ``s theta`` is ``slope s - curvature s^2/2``: both, for s <= 1."""
        f = self.problem.losses
        slope = f.b @ theta + f.e @ np.abs(theta) + At_theta @ (self.problem.linear * self.root)
        return -float(slope), float(At_theta @ At_theta + (f.q * theta) @ theta)

    def _at_rest(self, theta: Array, At_theta: Array) -> tuple[Array, Array]:
        """Slopes near `theta` that hardly push the unpenalised coordinate, and their sum of rows.

        Those that push it the stronger way are all made smaller, or they become 0 where the margin
        is largest; whichever has the better dual objective.
        """
        f, e = self.problem.losses, self.problem.free_columns[:, 0]
        push = theta * e
        one, other = push > 0, push < 0
        sums = float(push[one].sum()), -float(push[other].sum())
        if not min(sums) > 0:
            return theta, At_theta
        even = theta.copy()
        even[one if sums[0] > sums[1] else other] *= min(sums) / max(sums)
        rows = self.source.adjoint(even)
        margins = self._without_level(-rows - self.problem.linear * self.root)
        sharp = f.slope(margins + self._level(margins) * e)
        starts = (even, rows), (sharp, self.source.adjoint(sharp))
        values = [slope - 0.5 * curvature for slope, curvature in
                  (self._along(*start) for start in starts)]
        return starts[0] if values[0] >= values[1] else starts[1]

    def _without_level(self, v: Array) -> Array:
        """Margins of v with the unpenalised coordinate at 0."""
        others = v.copy()
        others[self.free] = 0.0
        return self.source.forward(others)

    def _level(self, margins: Array) -> float:
        """About the best value of the unpenalised coordinate beside what gives `margins`.

        By bisection of ``e_i`` times the slopes: what is above 0 of one and what is below are
        ``weight clip(at + growth level, least, most)`` each, which is all that is evaluated again.
        """
        f, e = self.problem.losses, self.problem.free_columns[:, 0]
        if not e.any():
            return 0.0
        high = float(np.abs(f.b - margins).max() + f.e.max()) / float(np.abs(e).max())
        low, rate, away = -high, 1.0 / np.maximum(f.q, STEEP), margins - f.b
        halves = []
        for sign, least, most in ((1.0, f.lo, f.hi), (-1.0, -f.hi, -f.lo)):
            here: Any = most > 0.0
            if here.all():  # a copy of all takes as long as a halving
                here = slice(None)
            weight, steep = sign * e[here], rate[here]
            at = (sign * away[here] - f.e[here]) * steep
            halves.append((weight, at, weight * steep, np.maximum(least[here], 0.0), most[here]))
        weight, at, growth, least, most = map(np.concatenate, zip(*halves, strict=True))
        slopes = np.empty(len(at))
        for _ in range(LEVEL_HALVINGS):
            middle = 0.5 * (low + high)
            np.multiply(growth, middle, out=slopes)
            slopes += at
            np.maximum(slopes, least, out=slopes)
            np.minimum(slopes, most, out=slopes)
            if float(weight @ slopes) > 0.0:
                high = middle
            else:
                low = middle
        return 0.5 * (low + high)

    def _snapped(self, theta: Array) -> Array:
        """`theta` in its box, and at an end of it where only rounding keeps it away."""
        f = self.problem.losses
        size = np.maximum(-f.lo, f.hi)
        near = AT_END * np.where(np.isfinite(size), size, 0.0)  # an endless box has one end, at 0
        theta = np.where(theta <= f.lo + near, f.lo, theta)
        return np.where(theta >= f.hi - near, f.hi, theta)

    # -- where it stands ----------------------------------------------------------------------

    def evaluate(self, margins: Array | None = None) -> None:
        """Margins and gap at x: one pass, unless the margins are known."""
        self.t = self.source.forward(self.v + self.correction) if margins is None else margins
        self.gap_terms = self.problem.losses.fenchel_young(self.t, self.theta)
        self.balanced = self.theta
        self.gap = float(self.gap_terms.sum()) + 0.5 * float(self.correction @ self.correction)
        self.proximal_gap = self.gap + self.proximal_value(self.v[self.free])
        self.passes += margins is None
        if len(self.free):
            small, self.gap = self.gap <= self.target, np.inf
            if small:
                self.balance()

    def balance(self) -> None:
        """The gap of the dual point nearby that satisfies the free coordinate's equation.

        Terms inside their piece share what is missing; they pay least for it.
        """
        f, theta = self.problem.losses, self.theta.copy()
        e, offset = self.problem.free_columns[:, 0], float(self.problem.linear[self.free[0]])
        for _ in range(BALANCING_ROUNDS):
            rows = np.flatnonzero(inside(f, theta) & (e != 0))
            if len(rows):
                share = (float(e @ theta) + offset) / float(e[rows] @ e[rows])
                theta[rows] = np.clip(theta[rows] - share * e[rows], f.lo[rows], f.hi[rows])
        left = float(e @ theta) + offset
        if abs(left) > BALANCED * float(np.abs(e) @ np.abs(theta)):
            theta, _ = dual_feasible(self.problem, theta, None, self.t)
        self.balanced = theta
        apart = self.source.adjoint(self.balanced - self.theta) + self.correction
        apart[self.free] = 0.0
        self.gap = float(self.problem.losses.fenchel_young(self.t, self.balanced).sum())
        self.gap += 0.5 * float(apart @ apart)
        self.passes += 1

    def proximal_value(self, v: Array) -> float:
        """What the proximal term of the free coordinate adds to the objective at v."""
        away = v - self.centre / self.root[self.free]
        return 0.5 * float(away @ away)

    def recentre(self) -> None:
        """A step of the proximal point method in the free coordinate."""
        root = self.root[self.free]
        before, self.centre = self.centre, self.v[self.free] * root
        self.v[self.free] += (self.centre - before) / root

    def remember(self) -> None:
        """Tell the cache where this call has ended."""
        x = self.v + self.correction
        place = SavedIterate(self.problem.C, self.theta, self.v, x, self.t, self.centre)
        self.cache.remember(self.problem, place)

    # -- which terms come next ----------------------------------------------------------------

    def working_set(self) -> WorkingSet:
        """The free terms, those that are on the wrong piece, and the nearest others."""
        problem, losses = self.problem, self.problem.losses
        free = inside(losses, self.theta)
        urgent = free | (self.gap_terms > 0)
        near, more = np.flatnonzero(~urgent), int(SHARE * problem.n) + 1
        if len(near) > more:
            distance = losses.kink_distance(self.t) / np.maximum(problem.norms, 1e-300)
            distance[urgent] = np.inf
            near = np.argpartition(distance, (int(KEPT_SHARE * more), more))[:more]
        heavy = int(np.clip(np.count_nonzero(free) // FREE_PER_HEAVY, HEAVY_LEAST, HEAVY_MOST))
        first, nearest = np.flatnonzero(urgent), near[: int(KEPT_SHARE * len(near))]
        kept = self.cache.reuse(first, nearest, losses, heavy)
        return self.cache.build(first, np.sort(near), losses, heavy) if kept is None else kept

    def extend(self, working_set: WorkingSet) -> WorkingSet:
        """`working_set` with the terms outside it that are on the wrong piece."""
        outside = self.gap_terms > 0
        outside[working_set.rows] = False
        wrong = np.flatnonzero(outside)
        return working_set.extended(wrong, self.problem.losses) if len(wrong) else working_set


def known_margins(point: Point) -> Array | None:
    """Margins at `Point.x_theta` where the point tells them, up to `SAME` of x."""
    near = SAME * point.problem.quadratic.norm(point.x_theta)
    if point.primal_dual_distance <= near:
        return point.margins
    if point.centre is not None and point.centre.error <= near:
        return 2.0 * point.centre.margins - point.margins
    return None


# -- the method: rounds on working sets -----------------------------------------------------------


# The numbers below steer the work; no answer depends on them. They were found by trial: CPU seconds
# of examples/benchmarks/sparse_path.py, and of paths over C on farmads.

COLD_SWEEPS, NEW_SWEEPS, ROUND_SWEEPS = 12, 3, 1
"""Sweeps of coordinate descent: at a cold start, on a new working set, in each round."""
GAP_SHARE = 0.95
"""Share of the gap allowed to all terms that is asked of a working set."""
FACE_GAP, LEAST_FACE_GAP = 2.0, 0.25
"""Conjugate gradients stop at so many times the aim: a sweep over the face does the rest. Where it
does not, they go on to half of it, down to the second."""
PROXIMAL_SHARE, LEAST_GAP_SHARE = 0.1, 0.3
"""A working set's gap may be so much of the value of an unpenalised coordinate's proximal term
before the centre moves, but need not be below this share of the gap allowed."""
PROGRESS, PATIENCE, FAILURES = 0.9, 20, 3
"""A gap has fallen if it is at most so many times the least before; so many rounds without that end
the work on a working set, so many working sets without it the whole."""

LEAST_FREE = 1000
"""Free terms from which on a primal correction can pay."""
CORRECTION_COST = 6.0
"""A correction costs about so many times what the dual objective lacks (2 to 7 were met)."""
CORRECTION_SHARE, RETRY = 0.5, 0.3
"""Share of the aim that a correction may be expected to cost when it is tried, and what becomes of
it when one has failed; after a second failure none is tried on this working set."""
EARLY = 1.5
"""Conjugate gradients end at so many times that cost: a sweep comes before the correction."""
FAILED_CORRECTIONS = 3
"""Working sets in a row on which both corrections have failed; after them none is tried again."""


def suits(problem: Problem) -> bool:
    """Whether `DualActiveSet` takes `problem`: what `DualIterate` takes, its rows in CSR."""
    return DualIterate.takes(problem) and problem.design.sparse


FACTORS = 18.0
"""Factors of the products of all rows that the central path of `Newton` takes, about."""


def passes_for_path(problem: Problem) -> float:
    """Passes over the data that take as long as the central path; endless where there is none.

    After so many without an end that is followed instead: little more than twice the shorter of the
    two is then lost whichever that is.
    """
    if not has_central_path(problem):
        return np.inf
    return FACTORS * CUBE * problem.n**3 / entries(problem.design)


SIDE = 500
"""Problems whose shorter side is at most this do not wait for a compiler: `Newton` takes up to a
second for them (2,000 x 500 to 50,000 x 500, 2 and 10 % filled, C from 0.01 to 100)."""

CLOCK = CompileClock(4.5, sweep_rows)
"""Of the loops, against `Newton`. Measured on a fresh cache: 2.2 CPU seconds, and as much for
coordinate descent, which is bought first: not in the same call."""


def ready(problem: Problem) -> bool:
    """Whether `problem` need not wait for a compiler, is worth it, or has waited long enough."""
    return CLOCK.bought or min(problem.n, problem.d) > SIDE


@dataclass(frozen=True)
class DualActiveSet(SubproblemSolver):
    """The built-in solver for sparse data.

    What it does not take (see `suits`), what is small while nothing is compiled (see `ready`), and
    what it has not finished when its rounds are used up or no longer help, goes to `Newton`.

    Parameters
    ----------
    max_rounds : int
        Rounds of coordinate descent and conjugate gradients at most.
    max_steps : int
        Newton steps at most, should it come to that.
    limits : Limits
        Of the whole call.
    path_cache : PathCache, optional
        Of the calls before this one, where there are several on the same data. Where they point to
        takes the place of a start that is no better.
    """

    max_rounds: int = 1000
    max_steps: int = 500
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    path_cache: PathCache | None = field(default=None, compare=False)

    @property
    def traits(self) -> SolverTraits:
        """Where it follows a path it begins where its last solutions point to."""
        return SolverTraits(
            reaches_target=True, stops_right_below=True, selects_terms=True,
            descends_first=self.path_cache is None,
        )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Where `Newton` has taken over, ``info["dual_active_set"]`` tells what was done before.
        """
        refuse_side(problem)
        newton, rows = Newton(self.max_steps, limits=self.limits), problem.design
        if not isinstance(rows, Rows) or not suits(problem):
            return newton(problem, start, target)
        if not ready(problem):
            with CLOCK.rent():
                return newton(problem, start, target)
        iterate = DualIterate(problem, rows, start, target, self.path_cache or PathCache())
        run = _Run(iterate, self.max_rounds, self.limits)
        if start is None and run.goes_on():  # only to find out which terms matter
            run.solve_on(iterate.working_set(), COLD_SWEEPS, 1)
        working_set: WorkingSet | None = None
        while run.goes_on():
            if working_set is None:
                working_set = iterate.working_set()
                sweeps = ROUND_SWEEPS if iterate.extrapolated else NEW_SWEEPS
            else:
                working_set, sweeps = iterate.extend(working_set), ROUND_SWEEPS
            run.solve_on(working_set, sweeps, self.max_rounds)
        run.finish(working_set)
        if run.gap <= target:
            return SubproblemResult("optimal", run.x, run.theta, info=run.info)
        if self.limits.spent():
            return SubproblemResult("inaccurate", run.x, run.theta, info=run.info)
        begun = None if has_central_path(problem) else Start(run.x, run.theta)
        found = newton(problem, begun, target)
        found.info["dual_active_set"] = run.info
        if found.info["gap"] < run.gap:
            return found
        info = {**found.info, "gap": run.gap}
        return SubproblemResult("inaccurate", run.x, run.theta, info=info)


class _Run:
    """The best point so far, whether to go on, and the counts of one call.

    Attributes
    ----------
    gap : float
        Of the best point, on all terms.
    """

    def __init__(self, iterate: DualIterate, max_rounds: int, limits: Limits) -> None:
        self.iterate, self.target, self.limits = iterate, iterate.target, limits
        self.max_rounds, self.most_passes = max_rounds, passes_for_path(iterate.problem)
        self.rounds = self.steps = self.correction_steps = self.kept = self.failures = 0
        self.gap, self.least = np.inf, iterate.proximal_gap
        self._keep_best()

    def goes_on(self) -> bool:
        """Whether the target is not reached, there is time, and the work still helps."""
        wanted = self.gap > self.target and self.rounds < self.max_rounds
        helps = self.failures < FAILURES and self.iterate.passes < self.most_passes
        return wanted and helps and not self.limits.spent()

    def solve_on(self, working_set: WorkingSet, sweeps: int, rounds: int) -> None:
        """Rounds on `working_set` until its gap is small enough; then the gap on all terms."""
        iterate, self.kept = self.iterate, len(working_set.rows)
        local = _LocalSolve(iterate, working_set)
        most = min(self.max_rounds, self.rounds + rounds)
        while local.goes_on() and self.rounds < most and not self.limits.spent(1):
            if iterate.passes >= self.most_passes:
                break
            local.round(sweeps)
            sweeps = ROUND_SWEEPS
            self.rounds += 1
        self.steps += local.steps
        self.correction_steps += local.correction_steps
        local.write_back()
        iterate.evaluate()
        self.failures = 0 if iterate.proximal_gap < PROGRESS * self.least else self.failures + 1
        self.least = min(self.least, iterate.proximal_gap)
        self._keep_best()
        if self.gap > self.target:
            iterate.recentre()

    def finish(self, working_set: WorkingSet | None) -> None:
        """Leave to the next value of C what may help it."""
        iterate = self.iterate
        if working_set is not None:
            iterate.cache.keep(working_set)
        if not np.isfinite(self.gap):
            iterate.balance()
            self._keep_best()
        if iterate.gap <= self.target:
            iterate.remember()

    def _keep_best(self) -> None:
        iterate = self.iterate
        if not self.rounds or iterate.gap < self.gap:
            self.gap = iterate.gap
            self._x, self.theta = iterate.v + iterate.correction, iterate.balanced.copy()

    @property
    def x(self) -> Array:
        """The best point's x, in the coordinates of the problem."""
        return self._x * self.iterate.root

    @property
    def info(self) -> dict[str, object]:
        """What the call has done."""
        return {
            "rounds": self.rounds, "steps": self.steps, "correction_steps": self.correction_steps,
            "passes": round(self.iterate.passes, 1), "kept": self.kept, "gap": self.gap,
        }


class _LocalSolve:
    """Sweeps, face steps and primal corrections on one working set.

    Attributes
    ----------
    theta, v : arrays
        Of the working set's rows and columns.
    gap : float
        On the working set, about.
    aim : float
        What it has to be.
    """

    def __init__(self, iterate: DualIterate, working_set: WorkingSet) -> None:
        self.iterate, self.working_set = iterate, working_set
        self.theta, self.v = iterate.theta[working_set.rows], iterate.v[working_set.columns]
        self._theta_before, self._v_before = self.theta.copy(), self.v.copy()
        self._free = np.flatnonzero(np.isin(working_set.columns, iterate.free))
        self.gap, self.aim = np.inf, GAP_SHARE * iterate.target
        self._face_gap, self._least, self._idle = FACE_GAP, np.inf, 0
        failed = iterate.cache.failed_corrections >= FAILED_CORRECTIONS
        self._share, self._near = 0.0 if failed else CORRECTION_SHARE, False
        self.steps = self.correction_steps = 0
        self._solved = False
        iterate.correction = np.zeros(len(iterate.v))

    def goes_on(self) -> bool:
        """Whether the gap is too large and still falls."""
        return not self._solved and self.gap > self.aim and self._idle < PATIENCE

    def round(self, sweeps: int) -> None:
        """Coordinate descent, then a step to the minimum of the face or a move of x alone."""
        working_set, theta, v = self.working_set, self.theta, self.v
        working_set.sweep(theta, v, sweeps)
        face = Face(working_set, theta, v)
        if len(self._free):
            proximal = self.iterate.proximal_value(v[self._free])
            self.aim = max(LEAST_GAP_SHARE * self.iterate.target, PROXIMAL_SHARE * proximal)
        if self._step_or_correct(face):
            self._solved = True
            return
        self.gap, self._near = face.gap, face.near
        if self.gap <= self._face_gap * self.aim:
            working_set.sweep(theta, v, 1, face.rows)
            margins = working_set.forward(v)
            self.gap = float(working_set.losses.fenchel_young(margins, theta).sum())
            # Where the sweep was not enough, the next face is solved more closely.
            self._face_gap = max(0.5 * self._face_gap, LEAST_FACE_GAP)
        self._idle = 0 if self.gap < PROGRESS * self._least else self._idle + 1
        self._least = min(self._least, self.gap)
        self.steps += face.steps
        read = 2.0 * (face.steps + 1) * len(face.rows) + 2.0 * sweeps * len(working_set.rows)
        self.iterate.passes += read / self.iterate.problem.n

    def write_back(self) -> None:
        """Take the working set's duals over into the iterate."""
        iterate, working_set = self.iterate, self.working_set
        moved = np.flatnonzero(self.theta != self._theta_before)
        change = (self.theta - self._theta_before)[moved]
        iterate.theta[working_set.rows] = self.theta
        # Not the v at hand, in which the rounding of many small steps has added up.
        iterate.v[working_set.columns] = self._v_before - working_set.adjoint(change, moved)

    def _step_or_correct(self, face: Face) -> bool:
        """Move the duals to the face's minimum, or x alone where that may do; whether it did."""
        may = face.flat and not len(self._free) and len(face.rows) >= LEAST_FREE
        close = self._share * self.aim / CORRECTION_COST if may else 0.0
        near_enough = close > 0 and (self._near or face.lacking < close)
        if not near_enough:
            face.move(self.theta, self.v, self._face_gap * self.aim, EARLY * close)
            near_enough = close > 0 and face.near and not face.steps
        if not near_enough:
            return False
        if self._correct(face):
            return True
        self._share = RETRY * self._share if self._share == CORRECTION_SHARE else 0.0
        close = self._share * self.aim / CORRECTION_COST
        self.iterate.cache.failed_corrections += self._share == 0.0
        face.move(self.theta, self.v, self._face_gap * self.aim, EARLY * close)
        return False

    def _correct(self, face: Face) -> bool:
        """Try to close the gap by a move of x alone; whether it succeeded."""
        iterate = self.iterate
        found = correct_primal(self.working_set, face, self.theta, self.v, self.aim)
        self.correction_steps += found.steps
        iterate.passes += found.steps * len(face.rows) / iterate.problem.n
        if found.gap > self.aim:
            return False
        iterate.correction[self.working_set.columns] = found.move
        iterate.cache.failed_corrections = 0
        return True
