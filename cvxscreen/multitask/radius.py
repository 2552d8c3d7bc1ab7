"""The midpoint ball's radius at one metric, for all tasks at once, rounded outward."""

from __future__ import annotations

from math import fsum

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.metric import Metric
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.rounding import UNIT, gamma, up

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
