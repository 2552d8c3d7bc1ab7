"""Decomposition for kernel problems: small dense blocks by pairs of coordinates, then Newton steps.

With ``c = -s theta`` the dual of a (reduced) kernel problem is

::

    minimise  1/2 w' w - sum_i s_i b_i c_i + sum_i (e_i |c_i| + q_i/2 c_i^2)
    over      lo_i <= c_i <= hi_i,   sum_i c_i = constant with an intercept

(``w = sum_i c_i z_i + w0``, ``w0`` from the terms that are fixed.) The values ``u_i = <z_i, w>``
are kept for every term, so one evaluation of the gap is O(n). Each round takes the terms strictly
inside their box and those that violate optimality most, solves for them on a dense block of the
kernel matrix, and updates u. As w is the one of the dual point, the gap is the sum of the
Fenchel-Young terms alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.gram import Gram
from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import InnerResult, Start, refuse_side
from cvxscreen.solvers.smo_block import Block
from cvxscreen.solvers.smo_state import State

Array = NDArray[np.float64]

DENSE = 1500
"""Up to so many terms are solved as one block."""
TIGHTER = 0.03
"""A block's violation is reduced by this factor, further where that brings no progress."""
CACHE_MARGIN = 8
"""Rows of the cache that a block leaves for others."""
_PATIENCE = 5


@dataclass(frozen=True)
class Smo:
    """The built-in solver of kernel problems.

    Parameters
    ----------
    max_rounds : int
        Blocks at most.
    block : int
        Terms of a block beyond those inside their box.
    limits : Limits
        Of the whole call.
    """

    max_rounds: int = 500
    block: int = 512
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

        Raises
        ------
        InvalidInput
            If the problem is no kernel problem.
        """
        gram = problem.design
        refuse_side(problem)
        if not isinstance(gram, Gram):
            raise InvalidInput("this solver takes kernel problems only.")
        state = State(problem, gram, start)
        best, best_gap = (state.point(), state.theta), float("inf")
        known = float("inf")
        status, idle, steps, rounds, tighter = "inaccurate", 0, 0, 0, TIGHTER
        rng = np.random.default_rng(0)
        while True:
            up, down = state.derivatives()
            state.settle_intercept(up, down)
            gap = state.gap()
            progress = gap < 0.9 * known  # since it was last seen, over several blocks maybe
            known = gap if progress else known
            if gap < best_gap:
                best, best_gap = (state.point(), state.theta), gap
            if best_gap <= target:
                status = "optimal"
                break
            if not gram.intercept:
                up, down = np.minimum(up, 0.0), np.maximum(down, 0.0)
            violation = float(down.max() - up.min()) if problem.n else 0.0
            if rounds >= self.max_rounds or idle > _PATIENCE or not violation > 0.0:
                break
            if self.limits.spent():
                break
            # Near the target the gap falls about as fast as the violation: no need for more.
            enough = min(0.3, 0.3 * target / gap)
            chosen = self._choose(state, up, down, rng)
            done, fell = _improve(state, chosen, max(tighter, enough) * violation)
            steps, rounds = steps + done, rounds + 1
            self.limits.spent(1)
            # Far from the optimum the gap jumps about, but the dual objective always improves.
            idle = 0 if progress or fell > 1e-3 * best_gap else idle + 1
            if idle:
                tighter = max(0.1 * tighter, 1e-6)
        x, theta = best
        info = {
            "steps": steps, "passes": rounds, "gap": best_gap,
            "evaluations": gram.kernel.evaluations,
        }
        return InnerResult(status, x, theta, info=info)

    def _choose(
        self, state: State, up: Array, down: Array, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Terms inside their box; of those that should grow or fall the worst, and some others."""
        n = len(up)
        if n <= DENSE:
            return np.arange(n)
        room = max(self.block, state.gram.kernel.slots - CACHE_MARGIN)
        inside = state.inside()
        held = np.flatnonzero(inside)
        middle = 0.5 * (float(up.min()) + float(down.max())) if state.gram.intercept else 0.0
        if len(held) > room // 2:
            worst = np.minimum(up - middle, middle - down)[held]
            held = held[np.argsort(worst)[: room // 2]]
        extra = max(min(max(self.block, len(held) // 2), room - len(held), n) // 4, 1)
        parts = [held]
        for key in (up - middle, middle - down):
            able = np.flatnonzero((key < 0) & ~inside)
            if len(able) > 2 * extra:
                # The worst alone would be a block of outliers; a random half keeps it fair.
                able = able[np.argsort(key[able] + 1e-9 * key.min() * rng.random(len(able)))]
                able = np.concatenate([able[:extra], rng.permutation(able[extra:])[:extra]])
            parts.append(able)
        return np.unique(np.concatenate(parts))


def _improve(state: State, chosen: NDArray[np.intp], eps: float) -> tuple[int, float]:
    """Solve for the `chosen` terms, the others held.

    Returns
    -------
    steps : int
    fell : float
        By how much the dual's negative fell.
    """
    kernel, points = state.gram.kernel, state.gram.index[chosen]
    if len(chosen) < len(state.c) or 3 * len(chosen) >= kernel.size:
        kernel.fetch(points)
    losses, before = state.losses, state.c[chosen]
    e, q = losses.e[chosen], losses.q[chosen]
    gradient = state.u[chosen] - state.bend[chosen]
    block = Block(
        kernel.block(points, points), gradient.copy(), before.copy(),
        state.lo[chosen], state.hi[chosen], e, q, state.gram.intercept,
    )
    steps = block.solve(eps)
    moved = block.c - before
    fell = -0.5 * float(moved @ (gradient + block.F))
    bend = 0.5 * q * (block.c**2 - before**2)
    fell -= float(np.sum(e * (np.abs(block.c) - np.abs(before)) + bend))
    state.c[chosen] = block.c
    if len(chosen) == len(state.c):
        state.u = block.F + state.bend
    else:
        change = np.zeros(len(state.c))
        change[chosen] = moved
        state.u = state.u + state.product(state.gram.spread(change))
    return steps, fell
