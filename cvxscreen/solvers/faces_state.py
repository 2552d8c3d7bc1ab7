"""A dual point of `Faces` on all terms, and which of them the next block holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.rows import Rows
from cvxscreen.duality import Point, dual_feasible
from cvxscreen.problem import Problem
from cvxscreen.solvers.faces_ahead import Place
from cvxscreen.solvers.faces_block import Block, inside
from cvxscreen.solvers.faces_loops import Loops
from cvxscreen.solvers.faces_memory import Memory
from cvxscreen.solvers.inner import Start

Array = NDArray[np.float64]
Index = NDArray[np.intp]

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
        memory: Memory,
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
            pull, self.passes = known.pull * self.root, 0.0
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
    near = 1e-9 * point.problem.quadratic.norm(point.x_dual)
    if point.shift <= near:
        return point.margins
    if point.centre is not None and point.centre.slack <= near:
        return 2.0 * point.centre.margins - point.margins
    return None
