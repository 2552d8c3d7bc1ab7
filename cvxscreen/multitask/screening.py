"""What the midpoint ball proves about every task at one metric, all tasks at once.

For any ``(u, b)`` and dual feasible ``theta`` with ``u_theta = B v`` the task's optimum at the
metric B satisfies

::

    ||u* - (u + u_theta)/2||^2 <= sum FY + 1/4 ||u - u_theta||^2          (norms of B^{-1})

(`cvxscreen.bounds.midpoint_ball`; here u is the optimum at the metric before, so the first sum is
all but zero and the ball has the step from u to ``u_theta`` as its diameter). Decisions hold for
this metric only: each is made anew for the next, since a term decided for one may well be decided
otherwise at the joint optimum. Everything is rounded outward.

It is there for what it shows, not for speed: the active sets of a U-step touch few samples between
two metrics anyway. On landmine, school and synthetic tasks of 500 to 10,000 samples a run keeps 13
to 99 % of the samples and takes 1.05 to 1.7 times as long as without screening; with tests that
served several metrics and the predictions of fixed samples left out it was 0.9 to 1.1 times
(``examples/benchmarks/multitask.py``).
"""

from __future__ import annotations

from math import fsum

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.core.losses import Codes
from cvxscreen.multitask.bounds import Intercepts
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.task_solver import Fixed, TaskPoint

Array = NDArray[np.float64]

LEAST = 0.25
"""A task's samples are fixed only if they are at least this share of it: to take out the rows of
the others costs about as much as it saves below."""


class Screen:
    """The rows of all tasks around their means, with the means' part left to the intercepts.

    Attributes
    ----------
    rows : list of arrays, shapes (n_l, d)
    lengths, sizes : array, shape (n,)
        Upper bounds of the Euclidean norms of the samples and of `rows`.
    """

    def __init__(self, problem: MultiTask) -> None:
        self.problem, self.intercepts = problem, Intercepts(problem)
        self.rows = [X - X.mean(axis=0) for X in problem.X]
        self.lengths = np.concatenate([norms_of(X.T) for X in problem.X])
        # Subtracting the mean is rounded, too.
        self.sizes = np.concatenate([norms_of(X.T) for X in self.rows]) + 8.0 * UNIT * self.lengths
        means = [float(np.linalg.norm(X.mean(axis=0))) for X in problem.X]
        self.sizes += 8.0 * UNIT * np.repeat(means, problem.sizes)

    def decide(
        self, metric: Metric, points: list[TaskPoint]
    ) -> tuple[Codes, list[Fixed | None]]:
        """What is proven about every sample at the optimum for `metric`.

        Parameters
        ----------
        metric : Metric
        points : list of TaskPoint
            Of every task; optima at the metric before are the best to have.

        Returns
        -------
        codes : array of int8, shape (n,)
            `Piece`, -1 where undecided.
        fixings : list
            What each task's solver need not look at. A decided sample is fixed only where its slope
            is there already, so that the sum of the slopes stays what it is.
        """
        problem = self.problem
        radius, centre = self.radii(metric, points)
        codes = self.pieces(metric, centre, radius)
        theta = np.concatenate([point.theta for point in points])
        undecided = (codes < 0) | (problem.losses.piece_slope(codes) != theta)
        return codes, [
            self.fixing(k, np.flatnonzero(undecided[part]))
            for k, part in enumerate(problem.parts)
        ]

    def pieces(self, metric: Metric, centre: Array, radius: Array) -> Codes:
        """The piece of every sample for all ``u_l`` within ``radius_l`` of ``centre[:, l]``."""
        problem, f = self.problem, self.problem.losses
        sizes = np.array(problem.sizes)
        middle = np.concatenate([X @ centre[:, k] for k, X in enumerate(self.rows)])
        reach = np.repeat(radius, sizes) * self.norms(metric)
        reach += np.repeat(gamma(2 * problem.d + 16) * norms_of(centre), sizes) * self.lengths
        reach += 8.0 * UNIT * (np.abs(middle) + np.abs(f.b))
        left, right = self.intercepts.ranges(middle, reach)
        low = middle - reach + np.repeat(left, sizes)
        high = middle + reach + np.repeat(right, sizes)
        slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
        with np.errstate(invalid="ignore"):
            return f.piece_within(low - slack, high + slack)

    def norms(self, metric: Metric) -> Array:
        """Upper bounds of ``sqrt(x' B x)`` of the rows, shape (n,)."""
        d = self.problem.d
        exact = np.concatenate([norms_of((X @ metric.root).T) for X in self.rows])
        return exact + 8.0 * gamma(4 * d + 16) * float(np.sqrt(metric.top())) * self.sizes

    def fixing(self, k: int, kept: NDArray[np.intp]) -> Fixed | None:
        """All but the samples at `kept` of task `k`; None where that is too little."""
        if len(kept) > (1.0 - LEAST) * self.problem.sizes[k]:
            return None
        f = self.problem.task_losses[k]
        table = tuple(column[kept] for column in (f.b, f.e, f.q, f.lo, f.hi))
        return Fixed(kept, self.problem.X[k][kept], table)

    def radii(self, metric: Metric, points: list[TaskPoint]) -> tuple[Array, Array]:
        """Radius (m,) and centre (d, m) of every task's ball, all rounding charged outward.

        The radius is infinite where the slopes do not provably have a balanced neighbour.
        """
        problem, f, d = self.problem, self.problem.losses, self.problem.d
        starts = [part.start for part in problem.parts]
        sizes = np.array(problem.sizes)
        U = np.column_stack([point.u for point in points])
        V = np.column_stack([point.v for point in points])
        b = np.array([point.b for point in points])
        p = np.concatenate([point.p for point in points])
        theta = np.concatenate([point.theta for point in points])
        dual = metric.B @ V
        error = np.repeat(gamma(d + 4) * (norms_of(U) + np.abs(b)), sizes) * (self.lengths + 1.0)
        fy = np.add.reduceat(_fenchel_young_above(problem, p, theta, error), starts)
        fy *= up(1.0, int(sizes.max()) + 8)
        distance = between(metric, U, dual)
        # v is rounded, and so is B v; both in the norm of B^-1.
        top, low = float(np.sqrt(metric.top())), float(np.sqrt(metric.floor()))
        size = np.abs(theta)
        moved = gamma(int(sizes.max()) + 8) * np.add.reduceat(size * self.lengths, starts) * top
        moved += gamma(4 * d + 16) * np.sqrt(d) * metric.top() / low * norms_of(V)
        # The slopes sum to 0 only up to rounding: one of them could make up for it.
        off = np.abs(np.add.reduceat(theta, starts))
        off += gamma(int(sizes.max()) + 8) * np.add.reduceat(size, starts)
        room = np.maximum.reduceat(np.minimum(theta - f.lo, f.hi - theta), starts)
        widest = np.maximum.reduceat(np.abs(p) + np.abs(f.b) + f.e, starts)
        longest = np.maximum.reduceat(self.lengths, starts) * top
        for k in np.flatnonzero(room < off):
            part = problem.parts[k]
            total = fsum(theta[part])  # correctly rounded: the sign says which way is needed
            way = f.hi[part] - theta[part] if total < 0 else theta[part] - f.lo[part]
            off[k] = up(abs(total)) if (way >= up(abs(total))).any() else np.inf
            off[k] = 0.0 if total == 0.0 else off[k]
        fy = fy + 2.0 * off * (widest + longest * (distance + moved))
        moved = moved + 2.0 * off * longest
        radius = np.sqrt(fy + 0.25 * (distance + moved) ** 2) + 0.5 * moved
        return np.asarray(up(1.0, 64) * radius), 0.5 * (U + dual)


def _fenchel_young_above(problem: MultiTask, p: Array, theta: Array, error: Array) -> Array:
    """Upper bounds of the Fenchel-Young terms of predictions known up to `error`, shape (n,)."""
    f = problem.losses
    # On its own piece a term is 0 whatever the rounding: few are left to evaluate.
    z, error_z = p - f.b, error + 4.0 * UNIT * (np.abs(p) + np.abs(f.b) + f.e)
    still = ((f.lo == 0.0) | (z - error_z > -f.e)) & ((f.hi == 0.0) | (z + error_z < f.e))
    own = ((theta == f.lo) & (z + error_z < -f.e)) | ((theta == f.hi) & (z - error_z > f.e))
    left = np.flatnonzero(~(own | ((theta == 0.0) & still)))
    terms = np.zeros(problem.n)
    terms[left] = f.take(left).fenchel_young_above(p[left], error[left], theta[left])
    return terms


def between(metric: Metric, first: Array, second: Array) -> Array:
    """Upper bounds of the distances of the columns in the norm of ``B^{-1}``."""
    weights = 2.0 * metric.c / (metric.eta + metric.g)
    square = weights @ (metric.P.T @ (first - second)) ** 2
    condition = metric.top() / metric.floor()
    return np.asarray(np.sqrt(square) * (1.0 + 64.0 * len(first) * UNIT * condition))


def norms_of(columns: Array) -> Array:
    """Upper bounds of the Euclidean norms of the columns."""
    squares = np.einsum("ij,ij->j", columns, columns)
    return np.asarray(np.sqrt(squares) * up(1.0, len(columns) + 8))
