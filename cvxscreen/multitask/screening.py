"""What the midpoint ball proves about every task at one M, all tasks at once.

For any ``(u, b)`` and dual feasible ``theta`` with ``u_theta = B v`` the task's optimum at the
metric B satisfies

::

    ||u* - (u + u_theta)/2||^2 <= sum FY + 1/4 ||u - u_theta||^2          (norms of B^{-1})

(`cvxscreen.bounds.midpoint_ball`; here u is the optimum at the metric before, so the first sum is
all but zero and the ball has the step from u to ``u_theta`` as its diameter). Decisions hold for
this M only: each is tested anew for the next, since a term decided for one M may well be decided
otherwise at the joint optimum. Everything is rounded outward.
"""

from __future__ import annotations

from math import fsum

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Codes
from cvxscreen.multitask.intercepts import Intercepts
from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.ustep import Fixed, Index, TaskPoint
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]

LIGHT = 1.2
"""Directions within this factor of the least weight are not told apart."""
STALE = 1.3
"""Row norms of an earlier metric are stretched; beyond this factor they are computed anew."""


class Screen:
    """The rows around their task's mean with their norms, ready for one metric after another."""

    def __init__(self, problem: MultiTask) -> None:
        self.problem = problem
        means = [X.mean(axis=0) for X in problem.X]
        plain = [np.sqrt(np.einsum("ij,ij->i", X, X)) for X in problem.X]
        # Rows about as long as their distance from the mean are left where they are.
        for k, lengths in enumerate(plain):
            if means[k] @ means[k] <= 0.05 * float(lengths @ lengths) / len(lengths):
                means[k] = np.zeros(problem.d)
        self.rows = [
            X - mean if mean.any() else X for X, mean in zip(problem.X, means, strict=True)
        ]
        moved = [
            np.sqrt(np.einsum("ij,ij->i", X, X)) if mean.any() else lengths
            for X, mean, lengths in zip(self.rows, means, plain, strict=True)
        ]
        wide = up(1.0, problem.d + 8)
        self.plain = np.concatenate(plain) * wide
        # Subtracting the mean is rounded too.
        self.sizes = np.concatenate(moved) * wide + 4.0 * UNIT * self.plain
        self.sizes += 4.0 * UNIT * np.repeat(
            [float(np.linalg.norm(mean)) for mean in means], problem.sizes
        )
        self.intercepts = Intercepts(problem)
        self.taken: list[Fixed | None] = [None] * problem.m
        self.base: Metric | None = None
        self.norms = np.zeros(0)

    def decide(
        self, metric: Metric, points: list[TaskPoint]
    ) -> tuple[Codes, list[Fixed | None]]:
        """What is proven about every sample at the optimum for `metric`.

        Returns
        -------
        codes : array of int8, shape (n,)
            `Piece`, -1 where undecided.
        fixings : list
            What each task's solver need not look at. A decided sample is fixed only where its slope
            is there already, so that the sum of the slopes stays what it is.
        """
        problem, f = self.problem, self.problem.losses
        U = np.column_stack([point.u for point in points])
        V = np.column_stack([point.v for point in points])
        p = np.concatenate([point.p for point in points])
        theta = np.concatenate([point.theta for point in points])
        dual = metric.B @ V
        scores = [X @ dual[:, k] for k, X in enumerate(problem.X)]
        b = np.array([point.b for point in points])
        radius = self.radii(metric, U, V, dual, p, theta, b) * self.stretch(metric)
        lengths = gamma(2 * problem.d + 16) * (norms_of(U) + norms_of(dual) + np.abs(b))
        sizes = problem.sizes
        # <x, centre> relative to the task's mean: b + mean' centre is one unknown.
        middle = 0.5 * (p + np.concatenate(scores))
        reach = np.repeat(radius, sizes) * self.norms + np.repeat(lengths, sizes) * self.plain
        reach += 8.0 * UNIT * (np.abs(middle) + np.abs(f.b))
        left, right = self.intercepts.ranges(middle, reach)
        low = middle - reach + np.repeat(left, sizes)
        high = middle + reach + np.repeat(right, sizes)
        slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
        with np.errstate(invalid="ignore"):
            codes = f.piece_within(low - slack, high + slack)
        decided = (codes >= 0) & (f.piece_slope(codes) == theta)
        fixings: list[Fixed | None] = []
        for k, part in enumerate(problem.parts):
            fixings.append(self.fixing(k, np.flatnonzero(~decided[part]), scores[k]))
        return codes, fixings

    def fixing(self, k: int, kept: Index, scores: Array) -> Fixed | None:
        """All but the samples at `kept` of task `k` held; None where that is too little.

        The rows taken out for the metric before serve again where they cover `kept` and little
        else: fixing less than is proven is allowed.
        """
        last = self.taken[k]
        if last is not None and len(kept) <= len(last.kept) <= 1.25 * len(kept) + 8:
            inside = np.searchsorted(last.kept, kept)
            if inside.max(initial=0) < len(last.kept) and (last.kept[inside] == kept).all():
                self.taken[k] = Fixed(last.kept, last.rows, last.table, scores)
                return self.taken[k]
        if 4 * len(kept) >= 3 * self.problem.sizes[k]:
            self.taken[k] = None
            return None
        f = self.problem.task_losses[k]
        table = tuple(column[kept] for column in (f.b, f.e, f.q, f.lo, f.hi))
        self.taken[k] = Fixed(kept, self.problem.X[k][kept], table, scores)
        return self.taken[k]

    def radii(
        self,
        metric: Metric,
        U: Array,
        V: Array,
        dual: Array,
        p: Array,
        theta: Array,
        b: Array,
    ) -> Array:
        """The radius of every task's ball, shape (m,), all rounding charged outward.

        Infinite where the slopes do not provably have a balanced neighbour.
        """
        problem, f, d = self.problem, self.problem.losses, self.problem.d
        starts = [part.start for part in problem.parts]
        sizes = np.array(problem.sizes)
        noise = gamma(d + 4) * (norms_of(U) + np.abs(b))
        error = np.repeat(noise, sizes) * (self.plain + 1.0)
        # On its own piece a term is 0 whatever the rounding: few are left to evaluate.
        z, blur = p - f.b, error + 4.0 * UNIT * (np.abs(p) + np.abs(f.b) + f.e)
        settled = (theta == f.lo) & (z + blur < -f.e)
        settled |= (theta == f.hi) & (z - blur > f.e)
        still = ((f.lo == 0.0) | (z - blur > -f.e)) & ((f.hi == 0.0) | (z + blur < f.e))
        settled |= (theta == 0.0) & still
        left = np.flatnonzero(~settled)
        fy = np.zeros(problem.n)
        fy[left] = f.take(left).fenchel_young_above(p[left], error[left], theta[left])
        terms = np.add.reduceat(fy, starts) * up(1.0, int(sizes.max()) + 8)
        condition = metric.top() / metric.floor()
        weights = 2.0 * metric.c / (metric.eta + metric.g)
        shift = np.sqrt(weights @ (metric.P.T @ (U - dual)) ** 2)
        shift = shift * (1.0 + 64.0 * d * UNIT * condition)
        # v is rounded, and so is B v; both in the norm of B^-1.
        top, low = float(np.sqrt(metric.top())), float(np.sqrt(metric.floor()))
        size = np.abs(theta)
        moved = gamma(int(sizes.max()) + 8) * np.add.reduceat(size * self.plain, starts) * top
        moved += gamma(4 * d + 16) * np.sqrt(d) * metric.top() / low * norms_of(V)
        # The slopes sum to 0 only up to rounding: one of them could make up for it.
        off = np.abs(np.add.reduceat(theta, starts))
        off += gamma(int(sizes.max()) + 8) * np.add.reduceat(size, starts)
        room = np.maximum.reduceat(np.minimum(theta - f.lo, f.hi - theta), starts)
        longest = np.maximum.reduceat(self.plain, starts) * top
        widest = np.maximum.reduceat(np.abs(p) + np.abs(f.b) + f.e, starts)
        for k in np.flatnonzero(room < off):
            part = problem.parts[k]
            total = fsum(theta[part])  # correctly rounded: the sign says which way is needed
            way = f.hi[part] - theta[part] if total < 0 else theta[part] - f.lo[part]
            off[k] = up(abs(total)) if (way >= up(abs(total))).any() else np.inf
            off[k] = 0.0 if total == 0.0 else off[k]
        terms = terms + 2.0 * off * (widest + longest * (shift + moved))
        moved = moved + 2.0 * off * longest
        radius = np.sqrt(terms + 0.25 * (shift + moved) ** 2) + 0.5 * moved
        return np.asarray(up(1.0, 64) * radius)

    def stretch(self, metric: Metric) -> float:
        """A factor from the stored norms to those of `metric`, which are renewed when stale."""
        d = self.problem.d
        if self.base is not None:
            root = (self.base.P * (self.base.eta + self.base.g) ** -0.5).T
            ratio = 2.0 * metric.c * (root @ metric.B @ root.T)
            largest = 1.0 + float(np.linalg.norm(ratio - np.eye(d)))  # at least the top eigenvalue
            if largest > STALE**2:
                largest = float(np.linalg.eigvalsh(ratio).max())
            factor = float(np.sqrt(max(largest, 0.0)))
            factor *= 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)
            if factor <= STALE:
                return factor
        self.base = metric
        # Directions of little weight all get the largest weight among them.
        weights = (metric.eta + metric.g) / (2.0 * metric.c)
        light = weights <= LIGHT * weights.min()
        rest = float(weights[light].max())
        heavy = np.flatnonzero(~light)
        turn = metric.P[:, heavy] * np.sqrt(weights[heavy] - rest)
        turned = np.concatenate([X @ turn for X in self.rows])
        squares = np.einsum("ij,ij->i", turned, turned) + rest * self.sizes**2
        error = 8.0 * gamma(4 * d + 16) * np.sqrt(metric.top()) * self.sizes
        self.norms = up(1.0, d + 8) * np.sqrt(squares) + error
        return 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)


def norms_of(columns: Array) -> Array:
    """Upper bounds of the Euclidean norms of the columns."""
    squares = np.einsum("ij,ij->j", columns, columns)
    return np.sqrt(squares) * up(1.0, len(columns) + 8)
