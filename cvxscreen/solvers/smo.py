"""Decomposition for kernel problems: small dense blocks by pairs of coordinates, then Newton steps.

With ``c = -s theta`` the dual of a (reduced) kernel problem is

::

    minimise  1/2 w' w - sum_i s_i b_i c_i + sum_i (e_i |c_i| + q_i/2 c_i^2),   w = sum_i c_i z_i + w0
    over      lo_i <= c_i <= hi_i,   sum_i c_i = constant with an intercept

(``w0``: the terms that are fixed.) The values ``u_i = <z_i, w>`` are kept for every term, so one
evaluation of the gap is O(n). Each round takes the terms strictly inside their box and those that
violate optimality most, solves for them on a dense block of the kernel matrix, and updates u. As w
is the one of the dual point, the gap is the sum of the Fenchel-Young terms alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.gram import Gram
from cvxscreen.duality import dual_feasible
from cvxscreen.errors import InvalidInput
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import InnerResult, Start
from cvxscreen.solvers.smo_block import Block

Array = NDArray[np.float64]

DENSE = 1500
"""Up to so many terms are solved as one block."""


class _State:
    """Coefficients of the terms, the values u, and what never changes during one call."""

    def __init__(self, problem: Problem, gram: Gram, start: Start | None) -> None:
        self.problem, self.gram = problem, gram
        self.losses, self.sign = problem.losses, gram.sign
        ends = -self.sign * self.losses.lo, -self.sign * self.losses.hi
        self.lo, self.hi = np.minimum(*ends), np.maximum(*ends)
        self.bend = self.sign * self.losses.b
        n_points = gram.kernel.size
        self.fixed = -problem.linear[:n_points]
        self.whole = problem.n == n_points and bool((gram.index == np.arange(n_points)).all())
        theta = np.zeros(problem.n) if start is None else np.asarray(start.theta)
        theta, _ = dual_feasible(problem, theta)
        self.c = np.clip(-self.sign * theta, self.lo, self.hi)
        self.b = 0.0
        self.u = self.product(self.coefficients())

    @property
    def theta(self) -> Array:
        """Slopes of the terms."""
        return -self.sign * self.c

    def coefficients(self) -> Array:
        """Of w, over all points."""
        return self.fixed + np.bincount(
            self.gram.index, weights=self.c, minlength=self.gram.kernel.size
        )

    def product(self, c: Array) -> Array:
        """``K c`` at the terms."""
        rows = None if self.whole else self.gram.index
        return self.gram.kernel.product(c, rows, remember=False)

    def point(self) -> Array:
        """The primal point (c, b) in the coordinates of the problem."""
        c = self.coefficients()
        if not self.gram.intercept:
            return c
        return np.append(c, self.b + float(self.gram.kernel.means @ c))

    def derivatives(self) -> tuple[Array, Array]:
        """Of the dual objective when c_i grows (inf at hi) and when it falls (-inf at lo)."""
        e = self.losses.e
        g = self.u - self.bend + self.losses.q * self.c
        up = np.where(self.c < self.hi, g + np.where(self.c >= 0, e, -e), np.inf)
        down = np.where(self.c > self.lo, g + np.where(self.c > 0, e, -e), -np.inf)
        return up, down

    def settle_intercept(self, up: Array, down: Array) -> None:
        """The best b for the current w: a root of a monotone sum of slopes, by bisection."""
        if not self.gram.intercept:
            return
        low, high = -float(up.min(initial=np.inf)), -float(down.max(initial=-np.inf))
        known = [end for end in (low, high) if np.isfinite(end)]
        middle = float(np.mean(known)) if known else 0.0
        width = abs(high - low) if len(known) == 2 else 1.0
        offset = float(self.problem.linear[-1])

        def rises(b: float) -> bool:
            slopes = self.losses.slope(self.sign * (self.u + b))
            return float(self.sign @ slopes) + offset > 0

        width = max(width, 1e-12 * (1.0 + abs(middle)))
        low, high = middle - width, middle + width
        for _ in range(60):
            if not rises(low):
                break
            low -= high - low
        for _ in range(60):
            if rises(high):
                break
            high += high - low
        for _ in range(60):
            self.b = 0.5 * (low + high)
            if high - low <= 1e-9 * width + 1e-15 * abs(self.b):
                break
            low, high = (low, self.b) if rises(self.b) else (self.b, high)

    def gap(self) -> float:
        """Duality gap up to rounding."""
        t = self.sign * (self.u + self.b)
        return float(self.losses.fenchel_young(t, self.theta).sum())

    def inside(self) -> NDArray[np.bool_]:
        """Terms strictly inside their box and not held at a kink."""
        return (self.c > self.lo) & (self.c < self.hi) & ((self.losses.e == 0) | (self.c != 0))


@dataclass(frozen=True)
class Smo:
    """The built-in solver of kernel problems.

    Parameters
    ----------
    max_rounds : int
        Blocks at most.
    block : int
        Terms of a block beyond those inside their box.
    """

    max_rounds: int = 300
    block: int = 512
    name: str = "BUILTIN"

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
            If the problem is no kernel problem, or has side constraints.
        """
        gram = problem.design
        if not isinstance(gram, Gram) or problem.side is not None:
            raise InvalidInput("this solver takes kernel problems without side constraints only.")
        state = _State(problem, gram, start)
        best, best_gap = (state.point(), state.theta), float("inf")
        status, since_best, steps, rounds, tighter = "inaccurate", 0, 0, 0, 0.1
        while True:
            up, down = state.derivatives()
            state.settle_intercept(up, down)
            gap = state.gap()
            since_best = 0 if gap < 0.9 * best_gap else since_best + 1
            if gap < best_gap:
                best, best_gap = (state.point(), state.theta), gap
            if best_gap <= target:
                status = "optimal"
                break
            if rounds >= self.max_rounds or since_best > 15:
                break
            violation = np.maximum(np.maximum(-(up + state.b), down + state.b), 0.0)
            chosen = self._choose(state, violation)
            if not len(chosen):
                break
            # Without progress the block was not solved well enough.
            tighter = tighter if since_best == 0 else max(0.1 * tighter, 1e-6)
            steps += self._improve(state, chosen, tighter * float(violation.max()))
            rounds += 1
        x, theta = best
        info = {
            "steps": steps, "passes": rounds, "gap": best_gap,
            "evaluations": gram.kernel.evaluations,
        }
        return InnerResult(status, x, theta, info=info)

    def _choose(self, state: _State, violation: Array) -> NDArray[np.intp]:
        n = len(violation)
        if n <= DENSE:
            return np.arange(n) if violation.any() else np.zeros(0, dtype=np.intp)
        inside = state.inside()
        room = max(self.block, state.gram.kernel.slots - CACHE_MARGIN)
        held = np.flatnonzero(inside)
        if len(held) > room // 2:
            held = held[np.argsort(-violation[held])[: room // 2]]
        # Equal violations (a cold start) are broken at random, so that a block is a fair sample.
        jitter = 1.0 + 0.2 * np.random.default_rng(0).random(n)
        order = np.where(inside, 0.0, violation) * jitter
        extra = int(min(max(self.block, len(held) // 2), room - len(held), n))
        top = np.argpartition(-order, extra - 1)[:extra]
        return np.sort(np.concatenate([held, top[order[top] > 0]]))

    @staticmethod
    def _improve(state: _State, chosen: NDArray[np.intp], eps: float) -> int:
        """Solve for the `chosen` terms, the others held; returns the number of steps."""
        kernel, points = state.gram.kernel, state.gram.index[chosen]
        if len(chosen) < len(state.c):
            kernel.fetch(points)
        losses = state.losses
        block = Block(
            kernel.block(points, points),
            state.u[chosen] - state.bend[chosen],
            state.c[chosen].copy(),
            state.lo[chosen], state.hi[chosen], losses.e[chosen], losses.q[chosen],
            state.gram.intercept,
        )
        steps = block.solve(eps)
        moved = block.c - state.c[chosen]
        state.c[chosen] = block.c
        if len(chosen) == len(state.c):
            state.u = block.F + state.bend
        else:
            change = np.bincount(points, weights=moved, minlength=kernel.size)
            state.u = state.u + state.product(change)
        return steps


CACHE_MARGIN = 8
"""Rows of the cache that a block leaves for others."""
