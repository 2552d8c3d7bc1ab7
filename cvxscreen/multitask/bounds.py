"""What a joint duality gap proves about the joint optimum and about every optimal intercept.

The joint objective is jointly convex but **not strongly convex** in U: along ``V = D A^{-1} U`` its
curvature vanishes, U* need not be unique, and a ball ``sum ||u_l - u_l*||^2 <= 2 gap / mu`` holds
only for the gap of the problem at a fixed M. It is easily refuted for the joint gap and is not
offered here. What is true, with ``G`` the joint gap of ``(U, b, M)`` and ``theta``:

* `dual_ball`: ``V* = -X' theta*`` is unique and within a ball; no condition;
* `eigengap`: every prediction within a computed distance, under the condition that the h-th and the
  next eigenvalue of ``VV'`` are apart by more than G explains.

Intercepts are not penalised: they are bounded for all tasks at once, from the terms that any
optimal one must leave in balance. `Screen` decides samples for one metric, all tasks at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.core.losses import Codes
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.task_solver import Fixed, Stacked, TaskPoint
from cvxscreen.screening.verdict import Verdict

Array = NDArray[np.float64]


class Intercepts:
    """The kinks of piecewise linear losses, task by task, ready to be moved and sorted.

    The optimality sum of a task, ``sum_i f_i'(t_i + b)`` with ``t_i`` within ``reach_i`` of
    ``middle_i``, is a step function of b whose steps are known. Where even the largest arguments
    leave it negative b is too small, where even the smallest make it positive b is too large. With
    equal steps (the hinge loss) the ends are two order statistics.
    """

    def __init__(self, problem: MultiTask) -> None:
        f, self.m = problem.losses, problem.m
        left, right = np.flatnonzero(f.lo < 0), np.flatnonzero(f.hi > 0)
        source = np.concatenate([left, right])
        kinks = np.concatenate([(f.b - f.e)[left], (f.b + f.e)[right]])
        jumps = np.concatenate([-f.lo[left], f.hi[right]])
        task = np.repeat(np.arange(self.m), problem.sizes)[source]
        order = np.argsort(task, kind="stable")
        self.source, self.kinks, self.jumps = source[order], kinks[order], jumps[order]
        self.size = np.abs(self.kinks)
        self.task = task[order]
        counts = np.bincount(self.task, minlength=self.m)
        starts = np.cumsum(counts) - counts
        self.place = np.arange(len(order)) - starts[self.task]
        self.shape = (self.m, int(counts.max(initial=1)))
        self.counts = counts
        total = np.bincount(self.task, self.jumps, self.m)
        self.noise = gamma(2 * self.shape[1] + 8) * total
        self.below = -np.array([float(losses.lo.sum()) for losses in problem.task_losses])
        table = self._rows(self.jumps, 0.0)
        filled = table > 0
        least = np.where(filled, table, np.inf).min(axis=1)
        self.equal = bool((table.max(axis=1) == least).all())
        if self.equal:
            # How many equal jumps make up for the slopes far to the left, up to rounding.
            need = self.below / least
            self.few = np.ceil(need - 1e-6).astype(int) - 1
            self.many = np.floor(need + 1e-6).astype(int)

    def _rows(self, values: Array, empty: float) -> Array:
        """One row a task, padded with `empty`."""
        out = np.full(self.shape, empty)
        out[self.task, self.place] = values
        return out

    def ranges(self, middle: Array, reach: Array) -> tuple[Array, Array]:
        """Lowest and highest intercept of every task, rounded outward, two arrays (m,)."""
        at, width = middle[self.source], reach[self.source]
        slack = width + 8.0 * UNIT * (self.size + np.abs(at) + width)
        place = self.kinks - at
        first, last = self._rows(place - slack, np.inf), self._rows(place + slack, np.inf)
        everyone = np.arange(self.m)
        if self.equal:
            first.sort(axis=1)
            last.sort(axis=1)
            few, many = self.few, np.minimum(self.many, self.shape[1] - 1)
            lowest = np.where(few >= 0, first[everyone, np.maximum(few, 0)], -np.inf)
            highest = np.where(self.many < self.counts, last[everyone, many], np.inf)
            return lowest, highest
        jumps = self._rows(self.jumps, 0.0)
        order, turned = np.argsort(first, axis=1), np.argsort(last, axis=1)
        sums = np.cumsum(np.take_along_axis(jumps, order, 1), axis=1)
        enough = sums >= (self.below - self.noise)[:, None]
        lowest = first[everyone, order[everyone, enough.argmax(axis=1)]]
        lowest = np.where((self.below > self.noise) & enough.any(axis=1), lowest, -np.inf)
        sums = np.cumsum(np.take_along_axis(jumps, turned, 1), axis=1)
        beyond = sums > (self.below + self.noise)[:, None]
        highest = last[everyone, turned[everyone, beyond.argmax(axis=1)]]
        return lowest, np.where(beyond.any(axis=1), highest, np.inf)


@dataclass(frozen=True, eq=False)
class DualBall:
    """``||V - centre||_F <= radius`` contains the one ``V*`` of the optimum."""

    centre: Array
    radius: float

    def contains(self, V: Array) -> bool:
        """Whether `V` is in the ball."""
        return float(np.linalg.norm(V - self.centre)) <= self.radius


def dual_ball(problem: MultiTask, U: Array, M: Array, theta: Array, gap: float) -> DualBall:
    """``||V* - (V + V_U)/2||^2 <= 2 c G / eta - ||V - V_U||^2 / 4``, ``V_U = 2 c A^{-1} U``.

    From ``c ||U - A V / 2c||^2`` in the metric of ``A^{-1}`` and the optimality of ``V*`` in the
    dual: ``||V_U - V*||^2 + ||V - V*||^2 <= 4 c G / eta``. Holds for every joint gap G.
    """
    A = problem.eta * np.eye(problem.d) + M
    V, V_U = problem.pull(theta), 2.0 * problem.c * np.linalg.solve(A, U)
    apart = float(np.linalg.norm(V - V_U))
    size = float(np.linalg.norm(V)) + float(np.linalg.norm(V_U))
    noise = 16.0 * gamma(problem.n + problem.d**2) * size * (1.0 + 1.0 / problem.eta)
    square = 2.0 * problem.c * up(gap) / problem.eta - 0.25 * max(apart - noise, 0.0) ** 2
    return DualBall(0.5 * (V + V_U), up(float(np.sqrt(max(square, 0.0)))) + noise)


def eigengap(problem: MultiTask, theta: Array, gap: float) -> Verdict:
    """Pieces proven for the joint optimum, permanently, where ``VV'`` has a gap at h.

    With ``P`` the projector on the first h eigenvectors of ``S = VV'`` and ``delta`` the gap of its
    eigenvalues there, ``tr(S (P - M*)) >= delta (h - tr(P M*))`` bounds how far ``M*`` is from P,
    and with it every ``x' u_l*`` around ``x' (eta I + P) v_l / 2c``. Says nothing where ``delta``
    is lost in G or in rounding (as it is whenever the optimal M is no projector: then the
    eigenvalues of ``V* V*'`` tie at h), or for losses that are not piecewise linear.
    """
    d, h, c, eta = problem.d, problem.h, problem.c, problem.eta
    f = problem.losses
    nothing = Verdict(
        f, np.full(problem.n, -1, dtype=np.int8), "eigengap", np.inf, gap, np.zeros(d, dtype=bool)
    )
    if f.q.any() or not np.isfinite(gap):
        return nothing
    V = problem.pull(theta)
    W, s, _ = np.linalg.svd(V, full_matrices=True)
    values = np.zeros(d)
    values[: len(s)] = s**2
    top = float(values[0])
    # Computed eigenvalues and the rounding of V itself.
    size = sum(
        float(np.abs(part) @ np.linalg.norm(X, axis=1))
        for X, part in zip(problem.X, problem.split(theta), strict=True)
    )
    lost = 32.0 * gamma(problem.n + d * d) * np.sqrt(max(top, 0.0)) * size + 1e-300
    delta = float(values[h - 1] - (values[h] if h < d else 0.0)) - 2.0 * lost
    gap = up(gap)
    if h == d:
        tilt = reach_t = 0.0
        delta = np.inf
    else:
        if delta <= 0:
            return nothing
        reach_t = 4.0 * c * gap / delta
        tilt = 4.0 * lost / delta  # of the computed projector
    P = W[:, :h]
    low, high = np.empty(problem.n), np.empty(problem.n)
    middle, reach = np.empty(problem.n), np.empty(problem.n)
    for k, part in enumerate(problem.parts):
        X, v = problem.X[k], V[:, k]
        inside = X @ P
        centre = (eta * (X @ v) + inside @ (P.T @ v)) / (2.0 * c)
        whole = np.linalg.norm(X, axis=1) * up(1.0, d + 8)
        along = np.minimum(np.linalg.norm(inside, axis=1), whole) + tilt * whole
        across = np.sqrt(np.maximum(whole**2 - (along - 2.0 * tilt * whole).clip(0.0) ** 2, 0.0))
        across = across + tilt * whole
        v_along, v_size = float(np.linalg.norm(P.T @ v)), float(np.linalg.norm(v))
        v_across = float(np.sqrt(max(v_size**2 - v_along**2, 0.0))) + (tilt + 1e-12) * v_size
        v_along = v_along + (tilt + 1e-12) * v_size
        metric = np.minimum(
            (1.0 + eta) * whole**2,
            eta * whole**2 + along**2 + whole**2 * min(1.0, np.sqrt(reach_t) + reach_t),
        )
        cross, straight = along * v_across + across * v_along, along * v_along + across * v_across
        away = np.sqrt(gap / c) * np.sqrt(metric + cross**2 / delta) + 2.0 * gap * straight / delta
        noise = (tilt + 64.0 * gamma(d + sum(problem.sizes))) * whole * (
            (1.0 + eta) * size / (2.0 * c)
        )
        middle[part], reach[part] = centre, up(1.0, 64) * away + noise
    left, right = Intercepts(problem).ranges(middle, reach)
    low = middle - reach + np.repeat(left, problem.sizes)
    high = middle + reach + np.repeat(right, problem.sizes)
    slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
    with np.errstate(invalid="ignore"):
        codes = f.piece_within(low - slack, high + slack)
    return Verdict(f, codes, "eigengap", float(np.max(reach)), gap, np.zeros(d, dtype=bool))


# -- the samples of every task at one metric ------------------------------------------------------
#
# For any (u, b) and dual feasible theta with u_theta = B v the task's optimum at the metric B
# satisfies
#
#     ||u* - (u + u_theta)/2||^2 <= sum FY + 1/4 ||u - u_theta||^2          (norms of B^{-1})
#
# (`cvxscreen.bounds.midpoint_ball`; here u is the optimum at the metric before, so the first sum is
# all but zero and the ball has the step from u to u_theta as its diameter). Decisions hold for this
# metric only: each is made anew for the next, since a term decided for one may well be decided
# otherwise at the joint optimum. Everything is rounded outward.
#
# It is there for what it shows, not for speed: the active sets of a U-step touch few samples
# between two metrics anyway. On landmine, school and synthetic tasks of 500 to 10,000 samples a run
# keeps 13 to 99 % of the samples and takes 1.05 to 1.7 times as long as without screening; with
# tests that served several metrics and the predictions of fixed samples left out it was 0.9 to 1.1
# times (examples/benchmarks/multitask.py).


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
        theta = Stacked.of(points).theta
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
        U, V, b, p, theta = Stacked.of(points)
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
