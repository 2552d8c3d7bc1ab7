"""What moves while `Smo` works: coefficients, the values of w at every term, and the intercept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.gram import Gram
from cvxscreen.kernel_rows import exact_sum
from cvxscreen.problem import Problem
from cvxscreen.solvers.inner import Start

Array = NDArray[np.float64]


class State:
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
        self.b = 0.0
        self.place(np.zeros(problem.n) if start is None else -self.sign * np.asarray(start.theta))
        if start is not None and not self.fixed.any():
            self.try_unscaled(start.x[gram.index])

    def place(self, c: Array) -> None:
        """Start from a feasible point near `c`, moving few coefficients."""
        c = np.clip(c, self.lo, self.hi)
        if self.gram.intercept:
            c = self.balanced(c)
        self.c, self.u = c, np.zeros(0)
        self.u = self.product(self.coefficients())

    def balanced(self, c: Array) -> Array:
        """`c` with the sum that the intercept asks for: what is inside its box moves first."""
        short = float(self.problem.linear[-1]) - exact_sum(c)
        inside = (c > self.lo) & (c < self.hi) & (c != 0)
        for group in (inside, c != 0, np.ones(len(c), dtype=bool)):
            ends = self.hi if short > 0 else self.lo
            room = np.where(group, np.clip(ends - c, -1e300, 1e300), 0.0)
            total = float(room.sum())
            if short == 0.0 or total == 0.0:
                continue
            c = np.clip(c + room * min(short / total, 1.0), self.lo, self.hi)
            short = float(self.problem.linear[-1]) - exact_sum(c)
            if abs(short) <= 1e-12 * float(np.abs(c).sum()):
                break
        return c

    def try_unscaled(self, old: Array) -> None:
        """After a change of C: bounds scale with C, what is between them hardly does.

        `old` are the coefficients of the primal point, from before the change. Of the scaled
        start, the old one and a mixture the one with the best dual objective is kept.
        """
        old = np.clip(old, self.lo, self.hi)
        if np.allclose(old, self.c, rtol=1e-6, atol=0.0):
            return
        bound = (self.c == self.lo) | (self.c == self.hi)
        tried = [(self.dual(), self.c, self.u)]
        for c in (old, np.where(bound, self.c, old)):
            self.place(c)
            tried.append((self.dual(), self.c, self.u))
        _, self.c, self.u = max(tried, key=lambda entry: entry[0])

    def dual(self) -> float:
        """Dual objective where nothing is fixed."""
        f = self.losses
        smooth = (self.bend - 0.5 * (self.u + f.q * self.c)) @ self.c
        return float(smooth - f.e @ np.abs(self.c))

    @property
    def theta(self) -> Array:
        """Slopes of the terms."""
        return -self.sign * self.c

    def coefficients(self) -> Array:
        """Of w, over all points."""
        return self.fixed + self.gram.spread(self.c)

    def product(self, c: Array) -> Array:
        """``K c`` at the terms."""
        rows = None if self.whole else self.gram.index
        return self.gram.kernel.product(c, rows, remember=False)

    def point(self) -> Array:
        """The primal point (c, b) in the coordinates of the problem."""
        c = self.coefficients()
        if not self.gram.intercept:
            return c
        return np.append(c, self.b + self.gram.offset(c))

    def derivatives(self) -> tuple[Array, Array]:
        """Of the dual objective when c_i grows (inf at hi) and when it falls (-inf at lo)."""
        e = self.losses.e
        g = self.u - self.bend + self.losses.q * self.c
        up = np.where(self.c < self.hi, g + np.where(self.c >= 0, e, -e), np.inf)
        down = np.where(self.c > self.lo, g + np.where(self.c > 0, e, -e), -np.inf)
        return up, down

    def settle_intercept(self, up: Array, down: Array) -> None:
        """The best b for the current w: a root of a monotone sum of slopes, by bisection."""
        if not self.gram.intercept or not len(self.c):
            return
        low, high = -float(up.min(initial=np.inf)), -float(down.max(initial=-np.inf))
        known = [end for end in (low, high) if np.isfinite(end)]
        middle = float(np.mean(known)) if known else 0.0
        width = abs(high - low) if len(known) == 2 else 1.0
        offset = float(self.problem.linear[-1])

        losses, sign, u, settled = self.losses, self.sign, self.u, offset

        def pull(b: float) -> Array:
            return np.asarray(sign * losses.slope(sign * (u + b)))

        def rises(b: float) -> bool:
            return float(pull(b).sum()) + settled > 0

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
        # What agrees at both ends is settled in between.
        ends = pull(low), pull(high)
        moving = np.flatnonzero(ends[0] != ends[1])
        settled += float(ends[0][ends[0] == ends[1]].sum())
        losses, sign, u = losses.take(moving), sign[moving], u[moving]
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
