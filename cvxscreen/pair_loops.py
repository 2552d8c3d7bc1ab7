"""Loops over the pairs and triplets of metric learning, compiled on first use.

A *pair* is two rows of a matrix of points. A *term* is a difference of two squared distances (or
one of them). Without numba the same functions run interpreted: right, but slow.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from cvxscreen.compiling import Loop, together_or_plain

# -- pairs --------------------------------------------------------------------------------------


def _distances(left, right, z, out):  # type: ignore[no-untyped-def]
    """``out_p = |z_left - z_right|^2``, four pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 3 < left.size and left[p + 1] == i and left[p + 2] == i and left[p + 3] == i:
            b, c, e = right[p + 1], right[p + 2], right[p + 3]
            first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
            for k in range(z.shape[1]):
                here = z[i, k]
                u, v = here - z[a, k], here - z[b, k]
                w, t = here - z[c, k], here - z[e, k]
                first += u * u
                second += v * v
                third += w * w
                fourth += t * t
            out[p], out[p + 1], out[p + 2], out[p + 3] = first, second, third, fourth
            p += 4
        else:
            total = 0.0
            for k in range(z.shape[1]):
                u = z[i, k] - z[a, k]
                total += u * u
            out[p] = total
            p += 1


def _forms(left, right, x, y, out):  # type: ignore[no-untyped-def]
    """``out_p = <x_left - x_right, y_left - y_right>``, two pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 1 < left.size and left[p + 1] == i:
            b = right[p + 1]
            first, second = 0.0, 0.0
            for k in range(x.shape[1]):
                here, there = x[i, k], y[i, k]
                first += (here - x[a, k]) * (there - y[a, k])
                second += (here - x[b, k]) * (there - y[b, k])
            out[p], out[p + 1] = first, second
            p += 2
        else:
            total = 0.0
            for k in range(x.shape[1]):
                total += (x[i, k] - x[a, k]) * (y[i, k] - y[a, k])
            out[p] = total
            p += 1


def _scaled(left, right, x, weight, out):  # type: ignore[no-untyped-def]
    """``out_p = sum_k weight_k (x_left,k - x_right,k)^2``, two pairs of one point at a time."""
    p = 0
    while p < left.size:
        i, a = left[p], right[p]
        if p + 1 < left.size and left[p + 1] == i:
            b = right[p + 1]
            first, second = 0.0, 0.0
            for k in range(x.shape[1]):
                u, v = x[i, k] - x[a, k], x[i, k] - x[b, k]
                first += weight[k] * u * u
                second += weight[k] * v * v
            out[p], out[p + 1] = first, second
            p += 2
        else:
            total = 0.0
            for k in range(x.shape[1]):
                u = x[i, k] - x[a, k]
                total += weight[k] * u * u
            out[p] = total
            p += 1


def _half_laplacian(left, right, omega, x, out, held):  # type: ignore[no-untyped-def]
    """``out = F x`` with ``F + F' = L``, the Laplacian of the graph with edge weights `omega`.

    ``(F x)_i = (sum of the weights of i) / 2 x_i - sum of w x_right over the pairs with left i``:
    every pair is read once and from one end only. `held` is work space, shape (n,) or longer.
    """
    for i in range(x.shape[0]):
        held[i] = 0.0
    for p in range(left.size):
        held[left[p]] += omega[p]
        held[right[p]] += omega[p]
    for i in range(x.shape[0]):
        half = 0.5 * held[i]
        for k in range(x.shape[1]):
            out[i, k] = half * x[i, k]
    p = 0
    while p < left.size:
        i, a, first = left[p], right[p], omega[p]
        if p + 3 < left.size and left[p + 1] == i and left[p + 2] == i and left[p + 3] == i:
            b, c, e = right[p + 1], right[p + 2], right[p + 3]
            second, third, fourth = omega[p + 1], omega[p + 2], omega[p + 3]
            for k in range(x.shape[1]):
                near = first * x[a, k] + second * x[b, k]
                out[i, k] -= near + (third * x[c, k] + fourth * x[e, k])
            p += 4
        else:
            if first != 0.0:
                for k in range(x.shape[1]):
                    out[i, k] -= first * x[a, k]
            p += 1


def _squares(left, right, omega, x, out):  # type: ignore[no-untyped-def]
    """``out_k = sum_p omega_p (x_left,k - x_right,k)^2``; `out` starts at zero."""
    p = 0
    while p < left.size:
        i, a, first = left[p], right[p], omega[p]
        if p + 1 < left.size and left[p + 1] == i:
            b, second = right[p + 1], omega[p + 1]
            for k in range(x.shape[1]):
                u, v = x[i, k] - x[a, k], x[i, k] - x[b, k]
                out[k] += first * u * u + second * v * v
            p += 2
        else:
            for k in range(x.shape[1]):
                u = x[i, k] - x[a, k]
                out[k] += first * u * u
            p += 1


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
    half_laplacian: Loop
    squares: Loop
    indexed_pass: Loop
    cross: Loop
    cross_diagonal: Loop
    scatter: Loop


@lru_cache(maxsize=1)
def loops() -> Loops:
    """The loops; numba is imported here, not with the package."""
    exact, free = frozenset({"contract"}), frozenset({"contract", "reassoc", "nsz"})
    names = [(f"_{name}", exact if name == "scatter" else free) for name in Loops._fields]
    return Loops(*together_or_plain(globals(), names).values())
