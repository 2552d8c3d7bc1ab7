"""Loops over the pairs and triplets of metric learning, compiled on first use.

A *pair* is two rows of a matrix of points. A *term* is a difference of two squared distances (or
one of them). Without numba the same functions run interpreted: right, but slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

Loop = Callable[..., Any]


# -- pairs --------------------------------------------------------------------------------------


def _distances(left, right, z, out):  # type: ignore[no-untyped-def]
    """``out_p = |z_left - z_right|^2``."""
    for p in range(left.size):
        a, b = left[p], right[p]
        total = 0.0
        for k in range(z.shape[1]):
            step = z[a, k] - z[b, k]
            total += step * step
        out[p] = total


def _forms(left, right, x, y, out):  # type: ignore[no-untyped-def]
    """``out_p = <x_left - x_right, y_left - y_right>``."""
    for p in range(left.size):
        a, b = left[p], right[p]
        total = 0.0
        for k in range(x.shape[1]):
            total += (x[a, k] - x[b, k]) * (y[a, k] - y[b, k])
        out[p] = total


def _scaled(left, right, x, weight, out):  # type: ignore[no-untyped-def]
    """``out_p = sum_k weight_k (x_left,k - x_right,k)^2``."""
    for p in range(left.size):
        a, b = left[p], right[p]
        total = 0.0
        for k in range(x.shape[1]):
            step = x[a, k] - x[b, k]
            total += weight[k] * step * step
        out[p] = total


def _laplacian(left, right, omega, x, out):  # type: ignore[no-untyped-def]
    """``out = L x`` for the graph with edge weights `omega`; `out` starts at zero."""
    for p in range(left.size):
        w = omega[p]
        if w != 0.0:
            a, b = left[p], right[p]
            for k in range(x.shape[1]):
                step = w * (x[a, k] - x[b, k])
                out[a, k] += step
                out[b, k] -= step


def _squares(left, right, omega, x, out):  # type: ignore[no-untyped-def]
    """``out_k = sum_p omega_p (x_left,k - x_right,k)^2``; `out` starts at zero."""
    for p in range(left.size):
        w = omega[p]
        if w != 0.0:
            a, b = left[p], right[p]
            for k in range(x.shape[1]):
                step = x[a, k] - x[b, k]
                out[k] += w * step * step


# -- terms given by two indices ------------------------------------------------------------------


def _indexed_pass(plus, minus, q, b, bend, weight, omega):  # type: ignore[no-untyped-def]
    """Sum of the losses at pair values `q` (the last one is 0), and their pull on every pair.

    The loss is ``weight (z tau - g/2 tau^2)``, ``tau = clip(z / g, 0, 1)``, ``z = b - margin``;
    `bend` is g. `b`, `bend` and `weight` have one entry a term, or one for all.
    """
    total = 0.0
    one = 0 if b.size == 1 else 1
    for t in range(plus.size):
        g, w = bend[one * t], weight[one * t]
        z = b[one * t] - (q[plus[t]] - q[minus[t]])
        if z > 0.0:
            tau = 1.0 if z >= g else z / g
            total += w * tau * (z - 0.5 * g * tau)
            omega[plus[t]] += w * tau
            omega[minus[t]] -= w * tau
    return total


def _scatter(plus, minus, theta, omega):  # type: ignore[no-untyped-def]
    """``omega += theta`` on the plus pair of every term, ``-= theta`` on its minus pair."""
    for t in range(plus.size):
        v = theta[t]
        if v != 0.0:
            omega[plus[t]] += v
            omega[minus[t]] -= v


def _cross(plus, minus, left, right, x, out):  # type: ignore[no-untyped-def]
    """``|H_t|`` for ``H = a a' - b b'``, a and b the differences of the term's two pairs.

    With ``p = a - b`` and ``s = a + b``: ``|H|^2 = (|p|^2 |s|^2 + (p's)^2) / 2``, all terms
    non-negative. Pair number ``left.size`` is the zero pair. The sign of a difference does not
    matter to H, but it does to p and s: the nearer choice of signs is as good as the other.
    """
    d = x.shape[1]
    for t in range(plus.size):
        pp, ss, ps = 0.0, 0.0, 0.0
        for k in range(d):
            a = 0.0 if plus[t] == left.size else x[left[plus[t]], k] - x[right[plus[t]], k]
            b = 0.0 if minus[t] == left.size else x[left[minus[t]], k] - x[right[minus[t]], k]
            p, s = a - b, a + b
            pp += p * p
            ss += s * s
            ps += p * s
        out[t] = math.sqrt(0.5 * (pp * ss + ps * ps))


def _cross_diagonal(plus, minus, left, right, x, out):  # type: ignore[no-untyped-def]
    """The norm of ``h = a^2 - b^2``, entry by entry ``(|a| - |b|)(|a| + |b|)``."""
    for t in range(plus.size):
        total = 0.0
        for k in range(x.shape[1]):
            a = 0.0 if plus[t] == left.size else abs(x[left[plus[t]], k] - x[right[plus[t]], k])
            b = 0.0 if minus[t] == left.size else abs(x[left[minus[t]], k] - x[right[minus[t]], k])
            h = (a - b) * (a + b)
            total += h * h
        out[t] = math.sqrt(total)


class Loops(NamedTuple):
    """The loops of this module, compiled where numba is installed."""

    distances: Loop
    forms: Loop
    scaled: Loop
    laplacian: Loop
    squares: Loop
    indexed_pass: Loop
    cross: Loop
    cross_diagonal: Loop
    scatter: Loop


@lru_cache(maxsize=1)
def loops() -> Loops:
    """The loops; numba is imported here, not with the package."""
    free = (
        _distances, _forms, _scaled, _laplacian, _squares, _indexed_pass, _cross, _cross_diagonal,
    )
    try:
        import numba
    except ImportError:
        return Loops(*free, _scatter)
    exact = numba.njit(cache=True, fastmath={"contract"})
    sums = numba.njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
    return Loops(*[*[sums(loop) for loop in free], exact(_scatter)])
