"""Coordinate descent on the dual and conjugate gradients on its faces: for large sparse data.

Sweeps of coordinate descent find out which terms are free (strictly inside a piece of the dual);
conjugate gradients then solve for all of them at once (`faces_step`), the step is clipped, and both
alternate. They see only a block: the free terms and those nearest to a kink. The duality gap on all
terms decides, at ``x = x_theta``; terms outside the block that turn out wrong are let in. (The
alternation is that of More and Toraldo 1991, with coordinate descent for projected gradients.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.rows import Rows
from cvxscreen.duality import Point, dual_feasible
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.problem import Problem
from cvxscreen.solvers.faces_block import Block, Sparse, inside
from cvxscreen.solvers.faces_loops import Loops, compiled
from cvxscreen.solvers.faces_step import Face
from cvxscreen.solvers.inner import InnerResult, Start, refuse_side
from cvxscreen.solvers.newton import Newton

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SHARE = 0.15
"""Share of all terms that a block holds besides the urgent ones."""
HEAVY = (16, 512, 28)
"""Columns to split off: at least, at most, and one for so many free terms."""
SWEEPS = (12, 3, 1)
"""Sweeps of coordinate descent: over all terms at a cold start, on a new block, in each round."""
TETHER = 100.0
"""Weight of the proximal term of an unpenalised coordinate, relative to its typical entry."""
SLACK = 0.1
"""A block's gap may be so much of that term before its centre moves."""
PATIENCE = 20
"""Rounds without progress after which a block is given up."""


def suits(problem: Problem) -> bool:
    """Whether `Faces` takes `problem` itself: CSR, M diagonal and 0 on one coordinate at most."""
    quadratic = problem.quadratic
    return (
        problem.side is None
        and isinstance(problem.design, Rows)
        and problem.design.sparse
        and quadratic.matrix is None
        and int(quadratic.free.sum()) <= 1
    )


class _State:
    """A dual point on all terms, with its ``v = -M^{-1/2} (A' theta + q)``, margins and gap.

    A free (unpenalised) coordinate is held to a centre by a proximal term, M being positive there;
    the centre follows the solution. The gap is the one without that term, theta balanced.
    """

    def __init__(
        self, problem: Problem, rows: Rows, start: Start | None, target: float, loops: Loops
    ) -> None:
        self.problem, self.target, self.loops = problem, target, loops
        diagonal = problem.quadratic.diagonal.copy()
        self.free = np.flatnonzero(problem.quadratic.free)
        self.centre = np.zeros(len(self.free)) if start is None else start.x[self.free]
        if len(self.free):
            sizes = float(np.sum(problem.free_columns**2)), float(np.sum(problem.norms**2))
            diagonal[self.free] = TETHER * sizes[0] / sizes[1] if min(sizes) > 0 else 1.0
        self.root = 1.0 / np.sqrt(diagonal)
        self.source = Sparse.of(rows, self.root, loops)
        theta = np.zeros(problem.n) if start is None else np.asarray(start.theta, dtype=np.float64)
        self.theta = self._snapped(theta)
        known = None if start is None else start.point
        margins: Array | None = None
        if known is not None and known.problem is problem and (known.theta == self.theta).all():
            pull, self.passes = known.pull * self.root, 0.0
            margins = _known_margins(known) if not len(self.free) else None
        else:
            pull, self.passes = self.source.pull(self.theta), 1.0
        self.v = -pull - problem.linear * self.root
        self.v[self.free] += self.centre / self.root[self.free]
        self.renew(margins)

    def _snapped(self, theta: Array) -> Array:
        """`theta` in its box, and at an end of it where only rounding keeps it away."""
        f = self.problem.losses
        near = 1e-12 * np.maximum(-f.lo, f.hi)
        with np.errstate(invalid="ignore"):
            theta = np.where(theta <= f.lo + near, f.lo, theta)
            return np.where(theta >= f.hi - near, f.hi, theta)

    def renew(self, margins: Array | None = None) -> None:
        """Margins and gap at ``x = x_theta``: one pass, unless the margins are known."""
        self.t = self.source.margins(self.v) if margins is None else margins
        self.fy = self.problem.losses.fenchel_young(self.t, self.theta)
        self.gap, self.balanced = float(self.fy.sum()), self.theta
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
        lean = self.source.pull(self.balanced - self.theta)
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
            near = np.sort(np.argpartition(key, more)[:more])
        heavy = int(np.clip(np.count_nonzero(free) // HEAVY[2], HEAVY[0], HEAVY[1]))
        return Block(self.source, np.flatnonzero(urgent), near, losses, heavy)

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


@dataclass(frozen=True)
class Faces:
    """The built-in solver for sparse data.

    What it does not take (see `suits`), and what it has not finished when its rounds are used up or
    no longer help, goes to `Newton`.

    Parameters
    ----------
    max_rounds : int
        Rounds of coordinate descent and conjugate gradients at most.
    max_steps : int
        Newton steps at most, should it come to that.
    limits : Limits
        Of the whole call.
    """

    max_rounds: int = 500
    max_steps: int = 500
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> InnerResult:
        """Solve until the duality gap is at most `target` (absolute).

        Returns
        -------
        InnerResult
            Status ``"optimal"`` when the target was reached, ``"inaccurate"`` otherwise.
        """
        refuse_side(problem)
        newton = Newton(self.max_steps, limits=self.limits)
        loops, rows = compiled(), problem.design
        if loops is None or not isinstance(rows, Rows) or not suits(problem):
            return newton(problem, start, target)
        work = _Work(_State(problem, rows, start, target, loops), self.max_rounds, self.limits)
        work.run(cold=start is None)
        x, theta = work.best[0] * work.state.root, work.best[1]
        info = {
            "rounds": work.rounds, "steps": work.steps, "passes": round(work.state.passes, 1),
            "kept": work.kept, "gap": work.best_gap,
        }
        if work.best_gap <= target:
            return InnerResult("optimal", x, theta, info=info)
        if self.limits.spent():
            return InnerResult("inaccurate", x, theta, info=info)
        found = newton(problem, Start(x, theta), target)
        found.info["faces"] = info
        if found.info["gap"] < work.best_gap:
            return found
        return InnerResult("inaccurate", x, theta, info={**found.info, "gap": work.best_gap})


class _Work:
    """Rounds on blocks until the gap on all terms is small enough or stops falling."""

    def __init__(self, state: _State, limit: int, limits: Limits) -> None:
        self.state, self.target, self.limit = state, state.target, limit
        self.limits = limits
        self.best_gap = np.inf
        self.rounds = self.steps = self.kept = 0
        self.keep()

    def keep(self) -> None:
        """Remember the state's point if it is the best so far."""
        state = self.state
        if not self.rounds or state.gap < self.best_gap:
            self.best, self.best_gap = (state.v.copy(), state.balanced.copy()), state.gap

    def run(self, cold: bool) -> None:
        """Choose a block, descend, look at all terms, let in what is wrong; again."""
        state, failures, least = self.state, 0, self.state.left
        block: Block | None = None
        while self.best_gap > self.target and self.rounds < self.limit and failures < 3:
            if self.limits.spent():
                break
            if block is None:
                block, sweeps = state.block(), SWEEPS[0 if cold else 1]
            else:
                block, sweeps = state.extend(block), SWEEPS[2]
            self.kept = len(block.rows)
            if cold:  # only to find out which terms matter
                cold = False
                self.descend(block, sweeps, 1)
                block = None
            else:
                self.descend(block, sweeps, self.limit)
            failures = 0 if state.left < 0.9 * least else failures + 1
            least = min(least, state.left)
            self.keep()
            state.recentre()
        if not np.isfinite(self.best_gap):
            state.balance()
            self.keep()

    def descend(self, block: Block, sweeps: int, rounds: int) -> None:
        """Rounds on `block` until its gap is small enough; then the gap on all terms."""
        state, f, most = self.state, block.losses, min(self.limit, self.rounds + rounds)
        theta, v = state.theta[block.rows], state.v[block.columns]
        fixed = v + block.pull(theta)
        lowest, since, gap = np.inf, 0, np.inf
        free = np.flatnonzero(np.isin(block.columns, state.free))
        aim = 0.9 * self.target
        while gap > aim and self.rounds < most and since < PATIENCE and not self.limits.spent(1):
            block.sweep(theta, v, sweeps)
            face = Face(block, theta, v)
            if len(free):
                aim = max(0.3 * self.target, SLACK * state.tension(v[free]))
            face.move(theta, v, 0.9 * aim, state.loops)
            gap = face.gap
            if gap <= aim:
                gap = float(f.fenchel_young(block.margins(v), theta).sum())
            since = 0 if gap < 0.9 * lowest else since + 1
            lowest = min(lowest, gap)
            rows = 2.0 * (face.steps + 1) * len(face.rows) + 2.0 * sweeps * len(block.rows)
            state.passes += rows / state.problem.n
            self.rounds, self.steps, sweeps = self.rounds + 1, self.steps + face.steps, SWEEPS[2]
        state.theta[block.rows] = theta
        state.v[block.columns] = fixed - block.pull(theta)
        state.renew()
