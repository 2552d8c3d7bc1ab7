"""What the midpoint ball proves about every task at one M, all tasks at once.

The midpoint ball's radius at one metric, for all tasks at once, rounded outward.

Upper bounds of the norms of all samples in one metric after another.

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

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.core.losses import Codes
from cvxscreen.multitask.bounds import Intercepts
from cvxscreen.multitask.gap import Predictions, complete
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.task_solver import Fixed, Index, TaskPoint

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def radii(
    problem: MultiTask,
    plain: Array,
    metric: Metric,
    point: tuple[Array, Array, Array, Array],
    terms: tuple[Array, Array, Mask | None],
) -> Array:
    """The radius of every task's ball, shape (m,), all rounding charged outward.

    Infinite where the slopes do not provably have a balanced neighbour.

    Parameters
    ----------
    problem : MultiTask
    plain : array, shape (n,)
        Upper bounds of the rows' norms.
    metric : Metric
    point : four arrays
        ``U``, ``V``, ``B V`` and the intercepts.
    terms : three arrays
        Predictions, slopes, and which terms provably lie on the piece of their slope: their
        predictions are not looked at.
    """
    (U, V, dual, b), (p, theta, held), f, d = point, terms, problem.losses, problem.d
    starts = [part.start for part in problem.parts]
    sizes = np.array(problem.sizes)
    rows = np.arange(problem.n) if held is None else np.flatnonzero(~held)
    g, at, slope = (f, p, theta) if held is None else (f.take(rows), p[rows], theta[rows])
    noise = gamma(d + 4) * (norms_of(U) + np.abs(b))
    error = np.repeat(noise, sizes)[rows] * (plain[rows] + 1.0)
    # On its own piece a term is 0 whatever the rounding: few are left to evaluate.
    z, blur = at - g.b, error + 4.0 * UNIT * (np.abs(at) + np.abs(g.b) + g.e)
    settled = (slope == g.lo) & (z + blur < -g.e)
    settled |= (slope == g.hi) & (z - blur > g.e)
    still = ((g.lo == 0.0) | (z - blur > -g.e)) & ((g.hi == 0.0) | (z + blur < g.e))
    settled |= (slope == 0.0) & still
    left = np.flatnonzero(~settled)
    fy = np.zeros(problem.n)
    fy[rows[left]] = g.take(left).fenchel_young_above(at[left], error[left], slope[left])
    total_fy = np.add.reduceat(fy, starts) * up(1.0, int(sizes.max()) + 8)
    shift = between(metric, U, dual)
    # v is rounded, and so is B v; both in the norm of B^-1.
    top, low = float(np.sqrt(metric.top())), float(np.sqrt(metric.floor()))
    size = np.abs(theta)
    moved = gamma(int(sizes.max()) + 8) * np.add.reduceat(size * plain, starts) * top
    moved += gamma(4 * d + 16) * np.sqrt(d) * metric.top() / low * norms_of(V)
    # The slopes sum to 0 only up to rounding: one of them, not held, could make up for it.
    off = np.abs(np.add.reduceat(theta, starts))
    off += gamma(int(sizes.max()) + 8) * np.add.reduceat(size, starts)
    room, widest = np.zeros(problem.n), np.zeros(problem.n)
    room[rows] = np.minimum(slope - g.lo, g.hi - slope)
    room = np.maximum.reduceat(room, starts)
    widest[rows] = np.abs(at) + np.abs(g.b) + g.e
    widest = np.maximum.reduceat(widest, starts)
    longest = np.maximum.reduceat(plain, starts) * top
    for k in np.flatnonzero(room < off):
        part = problem.parts[k]
        total = fsum(theta[part])  # correctly rounded: the sign says which way is needed
        way = f.hi[part] - theta[part] if total < 0 else theta[part] - f.lo[part]
        if held is not None:
            way = way[~held[part]]
        off[k] = up(abs(total)) if (way >= up(abs(total))).any() else np.inf
        off[k] = 0.0 if total == 0.0 else off[k]
    total_fy = total_fy + 2.0 * off * (widest + longest * (shift + moved))
    moved = moved + 2.0 * off * longest
    radius = np.sqrt(total_fy + 0.25 * (shift + moved) ** 2) + 0.5 * moved
    return np.asarray(up(1.0, 64) * radius)


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


LIGHT = 1.2
"""Directions within this factor of the least weight are not told apart."""
STALE = 1.3
"""Row norms of an earlier metric are stretched; beyond this factor they are computed anew."""


class RowNorms:
    """The rows around their task's mean with their norms.

    Attributes
    ----------
    rows : list of arrays
    means : array, shape (d, m)
        What was subtracted.
    plain, sizes : array, shape (n,)
        Upper bounds of the Euclidean norms of the samples and of `rows`.
    norms : array, shape (n,)
        Upper bounds of the norms of `rows` in the metric `base`.
    """

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
        shifts = np.repeat([float(np.linalg.norm(mean)) for mean in means], problem.sizes)
        self.sizes += 4.0 * UNIT * shifts
        self.means = np.column_stack(means)
        self.base: Metric | None = None
        self.norms = np.zeros(0)
        self.stretched: tuple[Metric, float] | None = None

    def stretch(self, metric: Metric) -> float:
        """A factor from the stored norms to those of `metric`, which are renewed when stale."""
        d = self.problem.d
        if self.stretched is not None and self.stretched[0] is metric:
            return self.stretched[1]
        if self.base is not None:
            root = (self.base.P * (self.base.eta + self.base.g) ** -0.5).T
            ratio = 2.0 * metric.c * (root @ metric.B @ root.T)
            largest = 1.0 + float(np.linalg.norm(ratio - np.eye(d)))  # at least the top eigenvalue
            if largest > STALE**2:
                largest = float(np.linalg.eigvalsh(ratio).max())
            factor = float(np.sqrt(max(largest, 0.0)))
            factor *= 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)
            if factor <= STALE:
                self.stretched = metric, factor
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
        self.stretched = metric, 1.0 + 64.0 * d * UNIT * (1.0 + 1.0 / metric.eta)
        return self.stretched[1]


GAIN = 0.2
"""Predictions are renewed where that is expected to fix this share of a task's samples more."""


WIDE = 1.25
"""Tests look this much further than they need to, so that they hold for some metrics more."""
FEW = 0.12
"""Tests that decide all but this share serve the following metrics too, and cost nothing there."""
SPARE = 0.2
"""A test is repeated where it is expected to fix this share of the samples more."""


@dataclass(frozen=True, eq=False)
class Place:
    """A point ``(U, b)`` of all tasks with its predictions ``p``."""

    U: Array
    b: Array
    p: Array


@dataclass(frozen=True, eq=False)
class Test:
    """Decisions for all metrics whose optima are within `away` of the place.

    Attributes
    ----------
    base : Metric
        Of the norms.
    away, size : array, shape (m,)
        Distance of the optima, and the size of the vectors that are rounded, at most.
    intercepts : two arrays (m,)
        Range of what is added to every prediction of a task.
    codes, fixings
        See `Screen.decide`.
    share : array, shape (m,)
        Of the samples that are undecided.
    held : array of bool, shape (n,)
        The samples that are fixed.
    dropped : int
        Tasks that left the region since; nothing is decided for them.
    """

    __test__ = False  # for pytest

    base: Metric | None
    away: Array
    size: Array
    intercepts: tuple[Array, Array]
    codes: Codes
    fixings: list[Fixed | None]
    share: Array
    held: Mask
    dropped: int = 0

    def without(self, tasks: NDArray[np.intp], parts: tuple[slice, ...]) -> Test:
        """The same for the other tasks, and nothing for these until the next test."""
        codes, held, fixings = self.codes.copy(), self.held.copy(), list(self.fixings)
        away, size = self.away.copy(), self.size.copy()
        away[tasks] = size[tasks] = np.inf
        for k in tasks:
            codes[parts[k]], held[parts[k]], fixings[k] = -1, False, None
        return replace(
            self, codes=codes, held=held, fixings=fixings, away=away, size=size,
            dropped=self.dropped + len(tasks),
        )


class Screen:
    """Where predictions are known, and what was last proven from there.

    `eager`: test whether that is expected to pay or not.
    """

    def __init__(self, problem: MultiTask, *, eager: bool = False) -> None:
        self.problem, self.eager = problem, eager
        self.lengths = RowNorms(problem)
        self.intercepts = Intercepts(problem)
        self.taken: list[Fixed | None] = [None] * problem.m
        self.usual = np.zeros(problem.m)
        self.few = problem.m // 8
        self.at = Place(np.zeros((0, 0)), np.zeros(0), np.zeros(0))
        self.test: Test | None = None
        self.starts = [part.start for part in problem.parts]

    def decide(
        self, metric: Metric, points: list[TaskPoint], known: Predictions
    ) -> tuple[Codes, list[Fixed | None]] | None:
        """What is proven about every sample at the optimum for `metric`.

        None where the step of M is too long for the test to be expected to pay.

        Parameters
        ----------
        metric : Metric
        points : list of TaskPoint
            Optima at the metric before.
        known : Predictions
            Theirs.

        Returns
        -------
        codes : array of int8, shape (n,)
            `Piece`, -1 where undecided.
        fixings : list
            What each task's solver need not look at. A decided sample is fixed only where its slope
            is there already, so that the sum of the slopes stays what it is.
        """
        U, V, b = columns(points)
        dual = metric.B @ V
        if known.held is None:
            self.usual = self.typical(metric, known.p)
            short = np.count_nonzero(between(metric, U, dual) <= self.usual)
            if 10 * short < 9 * self.problem.m and not self.eager:
                return None
        centre = 0.5 * (U + dual)
        radius = self.radii(metric, U, V, dual, known.p, known.theta, b, known.held)
        factor, base = self.lengths.stretch(metric), self.lengths.base
        fresh = (radius + between(metric, centre, U)) * factor
        size = norms_of(U) + norms_of(dual) + np.abs(b)
        last = self.test
        if known.held is None or last is None:
            self.at, away = Place(U, b, known.p), fresh
        else:
            away = (radius + between(metric, centre, self.at.U)) * factor
            with np.errstate(invalid="ignore"):
                reached = np.maximum(WIDE * fresh, self.usual)
                spare = float(np.mean(last.share * (1.0 - reached / last.away)))
            # Where all that the last test used has shrunk since, it would decide the same and more.
            out = np.flatnonzero(~((away <= last.away) & (size <= last.size)))
            if last.base is base and spare <= SPARE and len(out) + last.dropped <= self.few:
                if len(out):
                    self.test = last = last.without(out, self.problem.parts)
                return last.codes, last.fixings
            away = np.where(self.renew(last, U, b, away, fresh), fresh, away)
        self.test = self.tested(known.theta, np.maximum(WIDE * away, self.usual), WIDE * size)
        return self.test.codes, self.test.fixings

    def renew(self, last: Test, U: Array, b: Array, away: Array, fresh: Array) -> Mask:
        """Move the place where predictions are known to `U`, `b`, for the tasks that gain.

        It costs a product with the task's data, while a U-step costs about five products with what
        it keeps; and about as much is kept as the ball, seen from that place, is wide.
        """
        with np.errstate(invalid="ignore"):
            near = last.share * (away - fresh) / last.away > GAIN
        if near.any():
            at = Place(self.at.U.copy(), self.at.b.copy(), self.at.p.copy())
            for k in np.flatnonzero(near):
                at.U[:, k], at.b[k] = U[:, k], b[k]
                at.p[self.problem.parts[k]] = self.problem.X[k] @ U[:, k] + b[k]
            self.at = at
        return np.asarray(near)

    def typical(self, metric: Metric, p: Array) -> Array:
        """About how far optima may be for `FEW` of the samples to be undecided (a guess)."""
        problem = self.problem
        trace = float(np.sum(metric.eta + metric.g)) / (2.0 * metric.c)
        keys = problem.losses.kink_distance(p) / self.lengths.sizes * np.sqrt(problem.d / trace)
        parts = problem.split(keys)
        at = [int(FEW * len(part)) for part in parts]
        return np.array([np.partition(part, k)[k] for part, k in zip(parts, at, strict=True)])

    def tested(self, theta: Array, away: Array, size: Array) -> Test:
        """What holds wherever within `away` of the place, in the metric of the stored norms."""
        problem, f, at = self.problem, self.problem.losses, self.at
        sizes = np.array(problem.sizes)
        lengths = gamma(2 * problem.d + 16) * (size + norms_of(at.U) + np.abs(at.b))
        # Relative to the task's mean: what the intercept and x' of the mean add is one unknown.
        middle = at.p
        reach = np.repeat(away, sizes) * self.lengths.norms
        reach += np.repeat(lengths, sizes) * self.lengths.plain
        reach += 8.0 * UNIT * (np.abs(middle) + np.abs(f.b))
        left, right = self.intercepts.ranges(middle, reach)
        low = middle - reach + np.repeat(left, sizes)
        high = middle + reach + np.repeat(right, sizes)
        slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
        with np.errstate(invalid="ignore"):
            codes = f.piece_within(low - slack, high + slack)
        undecided = (codes < 0) | (f.piece_slope(codes) != theta)
        share = np.add.reduceat(undecided.astype(float), self.starts) / sizes
        fixings = [
            self.fixing(k, np.flatnonzero(undecided[part])) for k, part in enumerate(problem.parts)
        ]
        held = np.zeros(problem.n, dtype=bool)
        for fixed, part in zip(fixings, problem.parts, strict=True):
            if fixed is not None:
                held[part] = True
                held[part][fixed.kept] = False
        return Test(self.lengths.base, away, size, (left, right), codes, fixings, share, held)

    def predictions(self, metric: Metric, points: list[TaskPoint]) -> Predictions:
        """What is known at the optima for `metric`, found with the last test's fixings.

        Held terms are on their pieces there if the computed point is where the test looked.
        """
        problem, at, test = self.problem, self.at, self.test
        if test is None:
            raise RuntimeError("nothing was tested")
        U, _, b = columns(points)
        theta = np.concatenate([point.theta for point in points])
        step = np.sum(self.lengths.means * (U - at.U), axis=0) + (b - at.b)
        noise = norms_of(self.lengths.means) * (norms_of(U) + norms_of(at.U))
        noise = gamma(2 * problem.d + 16) * (noise + np.abs(b) + np.abs(at.b))
        left, right = test.intercepts
        inside = between(metric, U, at.U) * self.lengths.stretch(metric) <= test.away
        inside &= (norms_of(U) + np.abs(b) <= test.size)
        inside &= (step - noise >= left) & (step + noise <= right)
        p, held = at.p.copy(), test.held
        for point, part in zip(points, problem.parts, strict=True):
            p[part][slice(None) if point.kept is None else point.kept] = point.p
        if not inside.all():
            missing = held & ~np.repeat(inside, problem.sizes)
            p = complete(problem, U, b, p, missing, np.flatnonzero(missing))
            held = held & ~missing
        return Predictions(p, theta, held)

    def fixing(self, k: int, kept: Index) -> Fixed | None:
        """All but the samples at `kept` of task `k` held; None where that is too little.

        The rows taken out for the metric before serve again where they cover `kept` and little
        else: fixing less than is proven is allowed.
        """
        last = self.taken[k]
        if last is not None and len(kept) <= len(last.kept) <= 1.25 * len(kept) + 8:
            inside = np.searchsorted(last.kept, kept)
            if inside.max(initial=0) < len(last.kept) and (last.kept[inside] == kept).all():
                return last
        if 4 * len(kept) >= 3 * self.problem.sizes[k]:
            self.taken[k] = None
            return None
        f = self.problem.task_losses[k]
        table = tuple(column[kept] for column in (f.b, f.e, f.q, f.lo, f.hi))
        self.taken[k] = Fixed(kept, self.problem.X[k][kept], table)
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
        held: Mask | None = None,
    ) -> Array:
        """`cvxscreen.multitask.screening.radii` with the stored row norms."""
        return radii(self.problem, self.lengths.plain, metric, (U, V, dual, b), (p, theta, held))


def columns(points: list[TaskPoint]) -> tuple[Array, Array, Array]:
    """``U``, ``V`` and ``b`` of all tasks."""
    U = np.column_stack([point.u for point in points])
    V = np.column_stack([point.v for point in points])
    return U, V, np.array([point.b for point in points])
