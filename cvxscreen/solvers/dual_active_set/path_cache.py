"""What one value of C leaves to the next: copied rows, and the line through the last solutions.

On one face theta and x are affine in C. Terms change their piece where their margin crosses a kink,
so what is continued along the line is not theta but the *key* ``||a_i||^2 theta_i + t_i``, which
tells both: one step of coordinate descent from it gives the theta looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.csr import Array, Index, ScaledRows
from cvxscreen.solvers.dual_active_set.working_set import WorkingSet, inside

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
        self, urgent: Index, near: Index, losses: Losses, heavy: int
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

    def build(self, urgent: Index, near: Index, losses: Losses, heavy: int) -> WorkingSet:
        """A working set of `urgent` and `near` rows."""
        source, before = self._source, self._working_set
        if source is None:
            raise ValueError("no rows yet")
        self._working_set = None
        if before is not None and (before.partial or heavy > GROWTH * before.heavy_asked):
            before = None
        return WorkingSet(source, urgent, near, losses, heavy, before)


@dataclass(frozen=True, eq=False)
class SavedIterate:
    """A dual point at one C: theta, v, ``M^{1/2} x``, its margins t, and the proximal centre."""

    C: float
    theta: Array
    v: Array
    x: Array
    t: Array
    centre: Array

    def dual(self, losses: Losses) -> float:
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
