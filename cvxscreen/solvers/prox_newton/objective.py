"""What a step asks of the objective: slopes, terms with curvature, the gap, and a line search.

Compiled loops, one where numpy would go through the terms a dozen times. The gaps direct the method
and tell it when to stop; nothing is proven from them, so they bound no rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen.core.losses import Losses

Array = NDArray[np.float64]


class Terms(NamedTuple):
    """The five columns of `Losses`, shape (n,) each, as compiled loops take them."""

    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, losses: Losses) -> Terms:
        """Those of a table of losses."""
        return cls(losses.b, losses.e, losses.q, losses.lo, losses.hi)


class Step(NamedTuple):
    """A step d on some coordinates at x, and their weights in the objective, shape (d,) each."""

    x: Array
    d: Array
    kappa: Array
    weight: Array
    linear: Array


# -- one term -----------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def slope(t, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """A subgradient of one term at t."""
    z = t - b
    z = z - e if z > e else (z + e if z < -e else 0.0)
    if q > 0.0:
        return min(max(z / q, lo), hi)
    return hi if z > 0.0 else (lo if z < 0.0 else 0.0)


@compiled(fastmath=SUMS)
def fenchel_young(t, s, theta, b, e, q):  # type: ignore[no-untyped-def]
    """``f(t) + f*(theta) - t theta`` of one term without cancellation; s is a subgradient at t."""
    away = t - b - 0.5 * q * (s + theta)
    return max(away * (s - theta) - e * (abs(s) - abs(theta)), 0.0)


# -- all terms ----------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def subgradients(t, terms, out):  # type: ignore[no-untyped-def]
    """A subgradient of every term, to `out`."""
    b, e, q, lo, hi = terms
    for i in range(t.size):
        out[i] = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])


@compiled(fastmath=SUMS)
def curved_terms(theta, terms, rows, factor):  # type: ignore[no-untyped-def]
    """The terms on a quadratic piece, to `rows`, and ``q^{-1/2}`` of each; returns their number.

    A slope within its bounds says so, except 0 where an insensitive zone has that slope as well.
    """
    _, e, q, lo, hi = terms
    count = 0
    for i in range(theta.size):
        factor[i] = 0.0
        inside = lo[i] < theta[i] < hi[i]
        if inside and (theta[i] != 0.0 or (e[i] == 0.0 and lo[i] < 0.0 < hi[i])):
            factor[i] = q[i] ** -0.5
            rows[count] = i
            count += 1
    return count


@compiled(fastmath=SUMS)
def moving_features(x, dual_residual, kappa, features):  # type: ignore[no-untyped-def]
    """The features that are not 0, or whose dual residual lets them leave it; their number."""
    count = 0
    for j in range(x.size):
        if x[j] != 0.0 or abs(dual_residual[j]) > kappa[j]:
            features[count] = j
            count += 1
    return count


@compiled(fastmath=SUMS)
def gap_with_quadratic(x, kappa, weight, dual_residual, t, theta, terms):  # type: ignore[no-untyped-def]
    """The gap of (x, theta): ``1/2 |x - x_theta|_M^2``, the norm's Fenchel gap and the terms'.

    `dual_residual` is ``A' theta + q``.
    """
    b, e, q, lo, hi = terms
    total = 0.0
    for j in range(x.size):
        s = min(max(-dual_residual[j], -kappa[j]), kappa[j])
        distance = x[j] + (dual_residual[j] + s) / weight[j]
        total += 0.5 * weight[j] * distance * distance
        total += abs(x[j]) * (kappa[j] - s if x[j] >= 0.0 else kappa[j] + s)
    for i in range(t.size):
        s = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += fenchel_young(t[i], s, theta[i], b[i], e[i], q[i])
    return total


@compiled(fastmath=SUMS)
def gap_pure_l1(x, kappa, dual_residual, t, theta, terms):  # type: ignore[no-untyped-def]
    """The gap without a quadratic term: of x and the largest feasible share of `theta`."""
    b, e, q, lo, hi = terms
    largest, total = 1.0, 0.0
    for j in range(x.size):
        largest = max(largest, abs(dual_residual[j]) / kappa[j])
    share = 1.0 / largest
    for j in range(x.size):
        total += kappa[j] * abs(x[j]) + share * dual_residual[j] * x[j]
    for i in range(t.size):
        s = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += fenchel_young(t[i], s, share * theta[i], b[i], e[i], q[i])
    return total


# -- line search --------------------------------------------------------------------------------


@compiled(fastmath=SUMS)
def objective_change(step, length, t, dt, terms):  # type: ignore[no-untyped-def]
    """By how much ``x + length d`` changes the objective; not a difference of two large sums.

    `dt` is ``A d``.
    """
    x, d, kappa, weight, linear = step
    b, e, q, lo, hi = terms
    total = 0.0
    for j in range(x.size):
        move = length * d[j]
        here = x[j] + move
        total += (linear[j] + weight[j] * (x[j] + 0.5 * move)) * move
        if x[j] > 0.0 and here > 0.0:
            total += kappa[j] * move
        elif x[j] < 0.0 and here < 0.0:
            total -= kappa[j] * move
        else:
            total += kappa[j] * (abs(here) - abs(x[j]))
    for i in range(t.size):
        if dt[i] != 0.0:
            move = length * dt[i]
            old = slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
            new = slope(t[i] + move, b[i], e[i], q[i], lo[i], hi[i])
            total += old * move + fenchel_young(t[i] + move, new, old, b[i], e[i], q[i])
    return total


LONGEST, HALVINGS = 8.0, 12
"""The largest length that `best_length` tries, and the halvings of its bracket."""
FLAT = 0.3
"""Share of the first slope along a step that is left where a whole step is good enough."""


@compiled(fastmath=SUMS)
def slope_along(length, x, kappa, t, terms, d, dt):  # type: ignore[no-untyped-def]
    """The derivative of ``sum_i f_i(t + s dt) + kappa'|x + s d|`` at ``s = length``.

    It increases with s. Terms without a quadratic piece are left out.
    """
    b, e, q, lo, hi = terms
    total = 0.0
    for i in range(t.size):
        if dt[i] != 0.0 and q[i] > 0.0:
            z = t[i] + length * dt[i] - b[i]
            z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
            total += min(max(z / q[i], lo[i]), hi[i]) * dt[i]
    for j in range(x.size):
        here = x[j] + length * d[j]
        if here > 0.0:
            total += kappa[j] * d[j]
        elif here < 0.0:
            total -= kappa[j] * d[j]
    return total


@compiled(fastmath=SUMS)
def best_length(x, kappa, t, terms, d, dt):  # type: ignore[no-untyped-def]
    """About where ``sum_i f_i(t_i + s dt_i) + kappa'|x + s d|`` is smallest, ``s > 0``.

    Newton steps for a squared hinge need it: without a quadratic term rows change their piece far
    from the model's minimum. Every loss has ``q > 0`` or is 0. A whole step that is good enough
    stays one: it keeps at 0 what the model put there.
    """
    first = slope_along(0.0, x, kappa, t, terms, d, dt)
    low, high = 0.0, 1.0
    last = slope_along(high, x, kappa, t, terms, d, dt)
    if abs(last) <= FLAT * abs(first):
        return 1.0
    while last < 0.0 and high < LONGEST:
        low, high = high, 2.0 * high
        last = slope_along(high, x, kappa, t, terms, d, dt)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if slope_along(middle, x, kappa, t, terms, d, dt) < 0.0:
            low = middle
        else:
            high = middle
    return high if low == 0.0 else low
