"""Coordinate descent on the dual and conjugate gradients on its faces: for large sparse data.

Sweeps of coordinate descent find out which terms are free (strictly inside a piece of the dual);
conjugate gradients then solve for all of them at once (`faces_step`), the step is clipped, and both
alternate. They see only a block: the free terms and those nearest to a kink. The duality gap on all
terms decides; terms outside the block that turn out wrong are let in. It is taken at
``x = x_theta`` or, on faces of flat terms whose duals are nearly right, next to it: there x
alone is moved, which closes most of the gap for a fraction of the work (`faces_aside`). (The
alternation is that of More and Toraldo 1991, with coordinate descent for projected gradients.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.face import Face, aside
from cvxscreen.solvers.dual_active_set.loops import compiled
from cvxscreen.solvers.dual_active_set.rows import Block
from cvxscreen.solvers.dual_active_set.state import PathCache, State
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)
from cvxscreen.solvers.newton import Newton

Array = NDArray[np.float64]

SWEEPS = (12, 3, 1)
"""Sweeps of coordinate descent: over all terms at a cold start, on a new block, in each round."""
NEARLY = 0.95
"""Share of the gap allowed to all terms that is asked of a block, and of that asked of a face."""
RELAX, LEAST = 2.0, 0.25
"""Conjugate gradients stop at so many times the aim: a sweep over the face does the rest. Where it
does not, they go on to half of it, down to the second."""
ASIDE, AHEAD, AGAIN = 0.5, 1.5, 0.3
"""Share of the aim that a move of x may be expected to cost when it is tried; of that, where the
face is left for it: a sweep comes between; what becomes of the first when it has failed."""
MANY, MISSES = 1000, 3
"""Free terms from which on it can pay; blocks in a row on which it has failed twice, after which it
is not tried again."""
DEARER = 6.0
"""Such a move costs so many times what the dual objective is known to lack (2 to 7 were met)."""
SLACK = 0.1
"""A block's gap may be so much of that term before its centre moves."""
PATIENCE = 20
"""Rounds without progress after which a block is given up."""


def suits(problem: Problem) -> bool:
    """Whether `DualActiveSet` takes `problem`: CSR, M diagonal, 0 on one coordinate at most."""
    quadratic = problem.quadratic
    return (
        problem.side is None
        and isinstance(problem.design, Rows)
        and problem.design.sparse
        and quadratic.matrix is None
        and int(quadratic.free.sum()) <= 1
    )


@dataclass(frozen=True)
class DualActiveSet(SubproblemSolver):
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
    memory : Memory, optional
        Of the calls before this one, where there are several on the same data. Where they point to
        takes the place of a start that is no better.
    """

    max_rounds: int = 500
    max_steps: int = 500
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    memory: PathCache | None = field(default=None, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(
        reaches_target=True, stops_right_below=True, selects_terms=True
    )

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
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
        memory = self.memory or PathCache()
        work = _Work(
            State(problem, rows, start, target, loops, memory), self.max_rounds, self.limits
        )
        work.run(cold=start is None)
        x, theta = work.best[0] * work.state.root, work.best[1]
        info = {
            "rounds": work.rounds, "steps": work.steps, "asides": work.asides,
            "passes": round(work.state.passes, 1), "kept": work.kept, "gap": work.best_gap,
        }
        if work.best_gap <= target:
            return SubproblemResult("optimal", x, theta, info=info)
        if self.limits.spent():
            return SubproblemResult("inaccurate", x, theta, info=info)
        found = newton(problem, Start(x, theta), target)
        found.info["faces"] = info
        if found.info["gap"] < work.best_gap:
            return found
        return SubproblemResult("inaccurate", x, theta, info={**found.info, "gap": work.best_gap})


class _Work:
    """Rounds on blocks until the gap on all terms is small enough or stops falling."""

    def __init__(self, state: State, limit: int, limits: Limits) -> None:
        self.state, self.target, self.limit = state, state.target, limit
        self.limits = limits
        self.best_gap = np.inf
        self.rounds = self.steps = self.asides = self.kept = 0
        self.keep()

    def keep(self) -> None:
        """Remember the state's point if it is the best so far."""
        state = self.state
        if not self.rounds or state.gap < self.best_gap:
            self.best, self.best_gap = (state.v + state.aside, state.balanced.copy()), state.gap

    def run(self, cold: bool) -> None:
        """Choose a block, descend, look at all terms, let in what is wrong; again."""
        state, failures, least = self.state, 0, self.state.left
        block: Block | None = None
        while self.best_gap > self.target and self.rounds < self.limit and failures < 3:
            if self.limits.spent():
                break
            if block is None:
                block, sweeps = state.block(), SWEEPS[0 if cold else 2 if state.ahead else 1]
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
            if self.best_gap > self.target:
                state.recentre()
        if block is not None:
            state.memory.keep(block)
        if not np.isfinite(self.best_gap):
            state.balance()
            self.keep()
        if state.gap <= self.target:
            state.leave()

    def descend(self, block: Block, sweeps: int, rounds: int) -> None:
        """Rounds on `block` until its gap is small enough; then the gap on all terms."""
        state, f, most = self.state, block.losses, min(self.limit, self.rounds + rounds)
        theta, v = state.theta[block.rows], state.v[block.columns]
        before, fixed = theta.copy(), v.copy()
        lowest, since, gap, relax = np.inf, 0, np.inf, RELAX
        free = np.flatnonzero(np.isin(block.columns, state.free))
        aim, near = NEARLY * self.target, False
        share = ASIDE if state.memory.misses < MISSES else 0.0
        state.aside = np.zeros(len(state.v))
        while gap > aim and self.rounds < most and since < PATIENCE and not self.limits.spent(1):
            block.sweep(theta, v, sweeps)
            face = Face(block, theta, v)
            if len(free):
                aim = max(0.3 * self.target, SLACK * state.tension(v[free]))
            suited = face.flat and not len(free) and len(face.rows) >= MANY
            close = share * aim / DEARER if suited else 0.0
            there = close > 0 and (near or face.lacking < close)
            if not there:
                face.move(theta, v, relax * aim, state.loops, AHEAD * close)
                there = close > 0 and face.near and not face.steps
            if there:
                found = aside(block, face, theta, v, aim, state.loops)
                self.asides += found.steps
                state.passes += found.steps * len(face.rows) / state.problem.n
                if found.gap <= aim:
                    state.aside[block.columns] = found.move
                    state.memory.misses = 0
                    self.rounds += 1
                    break
                share = AGAIN * share if share == ASIDE else 0.0
                close = share * aim / DEARER
                state.memory.misses += share == 0.0
                face.move(theta, v, relax * aim, state.loops, AHEAD * close)
            gap, near = face.gap, face.near
            if gap <= relax * aim:
                block.sweep(theta, v, 1, face.rows)
                gap = float(f.fenchel_young(block.margins(v), theta).sum())
                relax = max(0.5 * relax, LEAST)  # the sweep was not enough: solve more closely
            since = 0 if gap < 0.9 * lowest else since + 1
            lowest = min(lowest, gap)
            rows = 2.0 * (face.steps + 1) * len(face.rows) + 2.0 * sweeps * len(block.rows)
            state.passes += rows / state.problem.n
            self.rounds, self.steps, sweeps = self.rounds + 1, self.steps + face.steps, SWEEPS[2]
        moved = np.flatnonzero(theta != before)
        state.theta[block.rows] = theta
        state.v[block.columns] = fixed - block.pull((theta - before)[moved], moved)
        state.renew()
