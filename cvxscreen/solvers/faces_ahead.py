"""Where the solution at the next value of C should be: on the line through the last two.

On one face theta and x are affine in C. Terms change their piece where their margin crosses a kink,
so it is not theta that goes on along the line but ``||a_i||^2 theta_i + t_i``, which tells both:
what a step of coordinate descent makes of it is the theta looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Losses
from cvxscreen.problem import Problem
from cvxscreen.solvers.faces_block import inside
from cvxscreen.solvers.faces_rows import Sparse

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
