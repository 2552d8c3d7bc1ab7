"""What a step under an L1 norm asks of the terms and of the point: slopes, rows that bend, gaps.

One loop where numpy would go through them a dozen times. Compiled on first use; without numba the
loops run as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.compiling import Loop, together_or_plain
from cvxscreen.losses import Losses

Array = NDArray[np.float64]


def _slope(t, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """A subgradient of one term."""
    z = t - b
    z = z - e if z > e else (z + e if z < -e else 0.0)
    if q > 0.0:
        return min(max(z / q, lo), hi)
    return hi if z > 0.0 else (lo if z < 0.0 else 0.0)


def _young(t, s, theta, b, e, q):  # type: ignore[no-untyped-def]
    """``f(t) + f*(theta) - t theta`` of one term without cancellation; s is a subgradient at t."""
    lean = t - b - 0.5 * q * (s + theta)
    return max(lean * (s - theta) - e * (abs(s) - abs(theta)), 0.0)


def _slopes(t, b, e, q, lo, hi, out):  # type: ignore[no-untyped-def]
    """A subgradient of every term."""
    for i in range(t.size):
        out[i] = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])


def _bending(theta, e, q, lo, hi, rows, factor):  # type: ignore[no-untyped-def]
    """The terms on a quadratic piece, with ``q^{-1/2}`` of each; their number."""
    count = 0
    for i in range(theta.size):
        factor[i] = 0.0
        inside = lo[i] < theta[i] < hi[i]
        if inside and (theta[i] != 0.0 or (e[i] == 0.0 and lo[i] < 0.0 < hi[i])):
            factor[i] = q[i] ** -0.5
            rows[count] = i
            count += 1
    return count


def _moving(x, slope, kappa, features):  # type: ignore[no-untyped-def]
    """The features that are not 0, or pull to leave it; their number."""
    count = 0
    for j in range(x.size):
        if x[j] != 0.0 or abs(slope[j]) > kappa[j]:
            features[count] = j
            count += 1
    return count


def _held_gap(x, kappa, pull, t, theta, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """The gap without a quadratic term, of the share of `theta` that is feasible."""
    largest, total = 1.0, 0.0
    for j in range(x.size):
        largest = max(largest, abs(pull[j]) / kappa[j])
    share = 1.0 / largest
    for j in range(x.size):
        total += kappa[j] * abs(x[j]) + share * pull[j] * x[j]
    for i in range(t.size):
        s = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += _young(t[i], s, share * theta[i], b[i], e[i], q[i])
    return total


def _bent_gap(x, kappa, weight, pull, t, theta, b, e, q, lo, hi):  # type: ignore[no-untyped-def]
    """The gap with a quadratic term: its distance, the norm's part and the terms'."""
    total = 0.0
    for j in range(x.size):
        s = min(max(-pull[j], -kappa[j]), kappa[j])
        away = x[j] + (pull[j] + s) / weight[j]
        total += 0.5 * weight[j] * away * away
        total += abs(x[j]) * (kappa[j] - s if x[j] >= 0.0 else kappa[j] + s)
    for i in range(t.size):
        s = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
        total += _young(t[i], s, theta[i], b[i], e[i], q[i])
    return total


def _change(  # type: ignore[no-untyped-def]
    x, d, kappa, weight, linear, t, dt, length, b, e, q, lo, hi
):
    """By how much ``x + length d`` changes the objective; not a difference of two large sums."""
    total = 0.0
    for j in range(x.size):
        step = length * d[j]
        here = x[j] + step
        total += (linear[j] + weight[j] * (x[j] + 0.5 * step)) * step
        if x[j] > 0.0 and here > 0.0:
            total += kappa[j] * step
        elif x[j] < 0.0 and here < 0.0:
            total -= kappa[j] * step
        else:
            total += kappa[j] * (abs(here) - abs(x[j]))
    for i in range(t.size):
        if dt[i] != 0.0:
            step = length * dt[i]
            old = _slope(t[i], b[i], e[i], q[i], lo[i], hi[i])
            new = _slope(t[i] + step, b[i], e[i], q[i], lo[i], hi[i])
            total += old * step + _young(t[i] + step, new, old, b[i], e[i], q[i])
    return total


class Terms(NamedTuple):
    """The loops of this module."""

    slopes: Loop
    bending: Loop
    moving: Loop
    held_gap: Loop
    bent_gap: Loop
    change: Loop


@lru_cache(maxsize=1)
def terms() -> Terms:
    """The loops, compiled where numba is installed."""
    names = [f"_{name}" for name in ("slope", "young", *Terms._fields)]
    free = frozenset({"contract", "reassoc", "nsz"})
    found = together_or_plain(globals(), [(name, free) for name in names])
    return Terms(*[found[name] for name in names[2:]])


def table(losses: Losses) -> tuple[Array, Array, Array, Array, Array]:
    """The five columns of the losses, as the loops take them."""
    return losses.b, losses.e, losses.q, losses.lo, losses.hi
