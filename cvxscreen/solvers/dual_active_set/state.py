"""A dual point on all terms, the next block, and what one value of C leaves to the next.

Where the solution at the next value of C should be: on the line through the last two.

On one face theta and x are affine in C. Terms change their piece where their margin crosses a kink,
so it is not theta that goes on along the line but ``||a_i||^2 theta_i + t_i``, which tells both:
what a step of coordinate descent makes of it is the theta looked for.

What `DualActiveSet` keeps from one value of C for the next: the rows it has copied, where it ended.

A dual point of `DualActiveSet` on all terms, and which of them the next block holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.duality import Point, dual_feasible
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.loops import Loops
from cvxscreen.solvers.dual_active_set.rows import Block, Sparse, inside
from cvxscreen.solvers.interface import Start

Array = NDArray[np.float64]

FAR = 3.0
"""C may go on by so many times its last step."""
ROUNDING = 1e-12
"""Of the largest theta: what theta may be off the line without being looked at."""


@dataclass(frozen=True, eq=False)
class Place:
    """A point of a `State`: C, theta, v, ``M^{1/2} x``, its margins, and the proximal centre."""

    C: float
    theta: Array
    v: Array
    x: Array
    t: Array
    centre: Array

    def dual(self, losses: Losses) -> float:
        """The dual objective, up to a constant."""
        theta = self.theta
        bent = losses.b @ theta + losses.e @ np.abs(theta) + 0.5 * (losses.q * theta) @ theta
        return -0.5 * float(self.v @ self.v) - float(bent)


class Line:
    """Two points of one design, linear term and metric, at two values of C.

    Parameters
    ----------
    problem : Problem
        That of `place`.
    place : Place
        Where a call ended.
    before : Line, optional
        The line that ended at the call before.
    """

    def __init__(self, problem: Problem, place: Place, before: Line | None = None) -> None:
        f, theta = problem.losses, place.theta
        self.linear, self.last = problem.linear, place
        slope = f.q * theta + f.e * np.sign(theta)
        free = inside(f, theta)  # without what these are off
        self._key = problem.norms**2 * theta + np.where(free, slope, place.t - f.b)
        self._first: tuple[Place, Array] | None = None
        if before is not None and np.array_equal(before.linear, problem.linear):
            # A second call at the same C replaces the first.
            self._first = before._first if before.last.C == place.C else (before.last, before._key)

    def ahead(self, problem: Problem, source: Sparse) -> Place | None:
        """The point at the C of `problem`; None where the last one, scaled, is better."""
        if self._first is None or not np.array_equal(self.linear, problem.linear):
            return None
        f, last, (first, key) = problem.losses, self.last, self._first
        far = (problem.C - last.C) / (last.C - first.C)
        if not 0.0 < far <= FAR:
            return None

        def on(now: Array, then: Array) -> Array:
            return now + far * (now - then)

        bend = problem.norms**2 + f.q
        z = on(self._key, key)
        z = np.maximum(z - f.e, 0.0) + np.minimum(z + f.e, 0.0)
        line = on(last.theta, first.theta)
        theta = np.clip(np.where(bend > 0, z / np.where(bend > 0, bend, 1.0), line), f.lo, f.hi)
        off = theta - line
        off[np.abs(off) <= ROUNDING * np.abs(theta).max(initial=0.0)] = 0.0
        v = on(last.v, first.v) - source.pull(off)
        x, t, centre = on(last.x, first.x), on(last.t, first.t), on(last.centre, first.centre)
        found = Place(problem.C, theta, v, x, t, centre)
        return found if found.dual(f) > self._scaled(problem, source).dual(f) else None

    def _scaled(self, problem: Problem, source: Sparse) -> Place:
        """The last point with theta scaled to the C of `problem`."""
        f, last = problem.losses, self.last
        factor, lean = problem.C / last.C, self.linear * source.root
        theta = np.clip(factor * last.theta, f.lo, f.hi)
        v = factor * (last.v + lean) - lean
        return Place(problem.C, theta, v, last.x, last.t, last.centre)


Index = NDArray[np.intp]

GROWTH = 1.5
"""The columns to split off may have become so many times more."""


class PathCache:
    """The copied rows of one design and its last points, for problems that differ in losses only.

    One path owns one; nothing else may use it at the same time.
    """

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._source: Sparse | None = None
        self._block: Block | None = None
        self._line: Line | None = None
        self.misses = 0

    def source(self, rows: Rows, root: Array, loops: Loops) -> Sparse:
        """The rows as the loops read them; what was kept of others is forgotten."""
        known = self._source
        if known is None or self._rows is not rows or not np.array_equal(known.root, root):
            self._rows, self._block, self._line = rows, None, None
            self._source = known = Sparse.of(rows, root, loops)
        return known

    def keep(self, block: Block) -> None:
        """Remember `block`, which nobody else will change."""
        self._block = block if block.source is self._source else None

    def leave(self, problem: Problem, place: Place) -> None:
        """Remember where a call for `problem` ended."""
        self._line = Line(problem, place, self._line)

    def ahead(self, problem: Problem) -> Place | None:
        """Where the last two calls point to."""
        if self._line is None or self._source is None:
            return None
        return self._line.ahead(problem, self._source)

    def held(self, urgent: Index, near: Index, losses: Losses, heavy: int) -> Block | None:
        """The block kept, if it suits as it is and has all these rows."""
        block = self._block
        if block is None or block.partial or heavy > GROWTH * block.asked:
            return None
        missing = np.ones(len(losses), dtype=bool)
        missing[block.rows] = False
        if missing[urgent].any() or missing[near].any():
            return None
        self._block = None
        block.renew(losses)
        return block

    def block(self, urgent: Index, near: Index, losses: Losses, heavy: int) -> Block:
        """A block of `urgent` and `near` rows."""
        source, before = self._source, self._block
        if source is None:
            raise ValueError("no rows yet")
        self._block = None
        if before is not None and (before.partial or heavy > GROWTH * before.asked):
            before = None
        return Block(source, urgent, near, losses, heavy, before)


SHARE = 0.15
"""Share of all terms that a block holds besides the urgent ones."""
HEAVY = (64, 512, 24)
"""Columns to split off: at least, at most, and one for so many free terms."""
INNER = 0.6
"""Share of these that a block from before must hold to be used as it is."""
TETHER = 100.0
"""Weight of the proximal term of an unpenalised coordinate, relative to its typical entry."""


class State:
    """A dual point on all terms, with its ``v = -M^{-1/2} (A' theta + q)``, margins and gap.

    Margins and gap are those at ``M^{1/2} x = v + aside``: `aside` is a move of x alone.

    A free (unpenalised) coordinate is held to a centre by a proximal term, M being positive there;
    the centre follows the solution. The gap is the one without that term, theta balanced.
    `ahead` says whether it begins where the calls before pointed to.
    """

    def __init__(
        self, problem: Problem, rows: Rows, start: Start | None, target: float, loops: Loops,
        memory: PathCache,
    ) -> None:
        self.problem, self.target, self.loops, self.memory = problem, target, loops, memory
        diagonal = problem.quadratic.diagonal.copy()
        self.free = np.flatnonzero(problem.quadratic.free)
        self.centre = np.zeros(len(self.free)) if start is None else start.x[self.free]
        if len(self.free):
            sizes = float(np.sum(problem.free_columns**2)), float(np.sum(problem.norms**2))
            diagonal[self.free] = TETHER * sizes[0] / sizes[1] if min(sizes) > 0 else 1.0
        self.root = 1.0 / np.sqrt(diagonal)
        self.source = memory.source(rows, self.root, loops)
        place = None if start is None else memory.ahead(problem)
        self.ahead = place is not None
        if place is not None:
            self._stand(place)
            return
        theta = self._cold() if start is None else np.asarray(start.theta, dtype=np.float64)
        self.theta, self.aside = self._snapped(theta), np.zeros(len(self.root))
        known = None if start is None else start.point
        margins: Array | None = None
        at: Array | None = None
        if known is not None and known.problem is problem and (known.theta == self.theta).all():
            pull, self.passes = known.At_theta * self.root, 0.0
            margins = _known_margins(known) if not len(self.free) else None
        elif start is not None and start.passes is not None and not len(self.free):
            margins, pull, self.passes = start.passes[0], start.passes[1] * self.root, 0.0
            at = start.x / self.root
        else:
            pull, self.passes = self.source.pull(self.theta), 1.0
        self.v = -pull - problem.linear * self.root
        self.v[self.free] += self.centre / self.root[self.free]
        if at is not None:
            self.aside = at - self.v
        self.renew(margins)

    def _stand(self, place: Place) -> None:
        """Begin at `place`."""
        self.theta, self.v, self.centre = place.theta, place.v, place.centre
        self.aside, self.passes = place.x - place.v, 0.0
        self.renew(place.t)

    def leave(self) -> None:
        """Tell the memory where this call has ended."""
        x = self.v + self.aside
        place = Place(self.problem.C, self.theta, self.v, x, self.t, self.centre)
        self.memory.leave(self.problem, place)

    def _cold(self) -> Array:
        """The slopes at x = 0, the solution where C is small, unless a share of them is better."""
        f = self.problem.losses
        theta = f.slope(np.zeros(self.problem.n))
        pull = self.source.pull(theta)
        slope = -float(f.b @ theta + f.e @ np.abs(theta) + pull @ (self.problem.linear * self.root))
        bend = float(pull @ pull + (f.q * theta) @ theta)
        return theta if slope >= bend else np.zeros(self.problem.n)

    def _snapped(self, theta: Array) -> Array:
        """`theta` in its box, and at an end of it where only rounding keeps it away."""
        f = self.problem.losses
        near = 1e-12 * np.maximum(-f.lo, f.hi)
        with np.errstate(invalid="ignore"):
            theta = np.where(theta <= f.lo + near, f.lo, theta)
            return np.where(theta >= f.hi - near, f.hi, theta)

    def renew(self, margins: Array | None = None) -> None:
        """Margins and gap at x: one pass, unless the margins are known."""
        self.t = self.source.margins(self.v + self.aside) if margins is None else margins
        self.fy = self.problem.losses.fenchel_young(self.t, self.theta)
        self.balanced = self.theta
        self.gap = float(self.fy.sum()) + 0.5 * float(self.aside @ self.aside)
        self.left = self.gap + self.tension(self.v[self.free])
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
        for _ in range(3):
            rows = np.flatnonzero(inside(f, theta) & (e != 0))
            if len(rows):
                share = (float(e @ theta) + offset) / float(e[rows] @ e[rows])
                theta[rows] = np.clip(theta[rows] - share * e[rows], f.lo[rows], f.hi[rows])
        self.balanced, _ = dual_feasible(self.problem, theta, None, self.t)
        lean = self.source.pull(self.balanced - self.theta) + self.aside
        lean[self.free] = 0.0
        self.gap = float(self.problem.losses.fenchel_young(self.t, self.balanced).sum())
        self.gap += 0.5 * float(lean @ lean)
        self.passes += 1

    def tension(self, v: Array) -> float:
        """What the proximal term of the free coordinate adds to the objective at v."""
        away = v - self.centre / self.root[self.free]
        return 0.5 * float(away @ away)

    def recentre(self) -> None:
        """A step of the proximal point method in the free coordinate."""
        root = self.root[self.free]
        before, self.centre = self.centre, self.v[self.free] * root
        self.v[self.free] += (self.centre - before) / root

    def block(self) -> Block:
        """The free terms, those that are on the wrong piece, and the nearest others."""
        problem, losses = self.problem, self.problem.losses
        free = inside(losses, self.theta)
        urgent = free | (self.fy > 0)
        near, more = np.flatnonzero(~urgent), int(SHARE * problem.n) + 1
        if len(near) > more:
            key = losses.kink_distance(self.t) / np.maximum(problem.norms, 1e-300)
            key[urgent] = np.inf
            near = np.argpartition(key, (int(INNER * more), more))[:more]
        heavy = int(np.clip(np.count_nonzero(free) // HEAVY[2], HEAVY[0], HEAVY[1]))
        first = np.flatnonzero(urgent)
        held = self.memory.held(first, near[: int(INNER * len(near))], losses, heavy)
        return self.memory.block(first, np.sort(near), losses, heavy) if held is None else held

    def extend(self, block: Block) -> Block:
        """`block` with the terms outside it that are on the wrong piece."""
        outside = self.fy > 0
        outside[block.rows] = False
        wrong = np.flatnonzero(outside)
        return block.extended(wrong, self.problem.losses) if len(wrong) else block


def _known_margins(point: Point) -> Array | None:
    """Margins at ``x_theta`` where the point tells them: up to 1e-9 of x."""
    near = 1e-9 * point.problem.quadratic.norm(point.x_theta)
    if point.primal_dual_distance <= near:
        return point.margins
    if point.centre is not None and point.centre.error <= near:
        return 2.0 * point.centre.margins - point.margins
    return None
