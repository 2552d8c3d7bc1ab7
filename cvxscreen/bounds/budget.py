"""Features through terms without curvature: a box and a budget for the dual optimum.

Of ``P(x) - P* <= G`` the Fenchel-Young terms at x against the dual optimum remain,
``sum_i FY_i(<a_i, x>, theta_i*) <= G``, and each is at least ``rho_i |theta_i* - theta_i|`` with
``theta_i`` the slope at x and ``rho_i`` the margin's distance from the next kink. With an interval
for every ``theta_i*`` (from the primal ball) the largest ``-A_j' theta*`` is a fractional knapsack;
by duality every multiplier ``mu >= 0`` gives an upper bound of it::

    mu G + sum_i max over theta_i in its interval of  -a_ij (theta_i - theta_i(x)) - mu rho_i |...|
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.columns import by_columns
from cvxscreen.duality import Point
from cvxscreen.problem import Problem
from cvxscreen.rounding import UNIT, gamma, up

Array = NDArray[np.float64]

HALVINGS = 24


def pulls_within_budget(
    problem: Problem, point: Point, slopes: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Intervals of ``v_j* = -A_j' theta* - q_j`` for slopes in boxes and within the budget."""
    losses = problem.losses
    at_x = np.clip(losses.slope(point.margins), *slopes)
    noise = point.margin_error + losses.knot_error
    exact = losses.slope(point.margins)
    # A slope moved into its interval no longer is the one at x: no charge is claimed for it.
    claim = np.maximum(losses.kink_distance(point.margins) * (1 - 4 * UNIT) - noise, 0.0)
    claim = np.where((at_x == exact) & (losses.q == 0), claim, 0.0)
    claim = np.where(np.isfinite(claim), claim, 0.0)
    up_room = np.maximum(slopes[1] - at_x, 0.0) * (1.0 + 4.0 * UNIT)
    down_room = np.maximum(at_x - slopes[0], 0.0) * (1.0 + 4.0 * UNIT)
    matrix = by_columns(problem.design)
    pull = -(problem.design.adjoint(at_x) + problem.linear)
    size = np.asarray(abs(matrix).T @ (np.abs(at_x) + up_room + down_room))
    with np.errstate(invalid="ignore"):
        error = (problem.design.adjoint_factor + gamma(problem.n + 16)) * size
    error = error + 4.0 * UNIT * np.abs(problem.linear)
    open_rows = np.flatnonzero((up_room > 0) | (down_room > 0))
    part = sp.csc_matrix(matrix.tocsr()[open_rows])
    rooms = up_room[open_rows], down_room[open_rows], claim[open_rows]
    more = _knapsack(part, *rooms, point.gap, -1.0)
    less = _knapsack(part, *rooms, point.gap, 1.0)
    return pull - less - error, pull + more + error


def _knapsack(
    matrix: sp.csc_matrix, up_room: Array, down_room: Array, claim: Array, gap: float, sign: float
) -> Array:
    """The largest ``sign A_j' delta`` with ``-down <= delta <= up``, ``claim' |delta| <= gap``.

    Upper bounds for all columns at once: bisection for the multiplier of each, any of which is
    valid.
    """
    d = matrix.shape[1]
    lengths = np.diff(matrix.indptr)
    rows, value = matrix.indices, sign * matrix.data
    room = np.where(value > 0, up_room[rows], down_room[rows])
    cost, gain = claim[rows], np.abs(value)
    column = np.repeat(np.arange(d), lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(cost > 0, gain / np.where(cost > 0, cost, 1.0), 0.0)
    high = np.zeros(d)
    np.maximum.at(high, column, ratio)
    low = np.zeros(d)
    best = np.full(d, np.inf)
    gap = up(gap)

    def bound(mu: Array) -> tuple[Array, Array]:
        rest = gain - mu[column] * cost
        chosen = rest > 0
        with np.errstate(invalid="ignore"):
            total = np.bincount(column, np.where(chosen, rest * room, 0.0), minlength=d)
            spent = np.bincount(column, np.where(chosen, cost * room, 0.0), minlength=d)
        return mu * gap + total * (1.0 + gamma(matrix.shape[0] + 8)), np.asarray(spent, float)

    for mu in (low, high):
        best = np.minimum(best, bound(mu)[0])
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        value_here, spent = bound(middle)
        best = np.minimum(best, np.where(np.isnan(value_here), np.inf, value_here))
        over = spent > gap
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return best * (1.0 + 8.0 * UNIT)
