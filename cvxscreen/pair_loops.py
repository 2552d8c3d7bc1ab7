"""Loops over the pairs and triplets of metric learning, compiled on first use.

A *pair* is two rows of a matrix of points. A *term* is a difference of two squared distances (or
one of them). Product sets hold, for every anchor, a list of near and a list of far pairs; each near
pair (a *row*) is combined with a window ``lo <= l < hi`` of the anchor's far list, so that no index
of a triplet is ever stored. Without numba the same functions run interpreted: right, but slow.
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


# -- products -------------------------------------------------------------------------------------


def _product_pass(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, q, threshold, bend, weight, omega, held, pull
):
    """The sum of the losses of a product set and their pull on every pair.

    `held` and `pull` are work space as long as the longest far list.
    """
    inverse = 1e300 if bend == 0.0 else 1.0 / bend
    half = 0.5 * bend
    total = 0.0
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        for j in range(mine.size):
            held[j] = q[mine[j]]
            pull[j] = 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            top = threshold + q[near[r]]
            row, part = 0.0, 0.0
            # Slices start at 0, so that no access asks whether it counts from the end.
            away, back = held[lo[r]:hi[r]], pull[lo[r]:hi[r]]
            for j in range(away.size):
                z = top - away[j]
                tau = min(max(z * inverse, 0.0), 1.0)
                part += tau * (z - half * tau)
                back[j] += tau
                row += tau
            total += part
            omega[near[r]] -= weight * row
        for j in range(mine.size):
            omega[mine[j]] += weight * pull[j]
    return weight * total


def _product_margins(near_ptr, near, far_ptr, far, lo, hi, q, out):  # type: ignore[no-untyped-def]
    """``q_far - q_near`` of every term, row by row."""
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base = q[near[r]]
            for j in range(lo[r], hi[r]):
                out[t] = q[far[first + j]] - base
                t += 1


def _product_scatter(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, theta, omega
):
    """``omega += theta`` on the far pair of every term, ``-= theta`` on its near pair."""
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            row = 0.0
            for j in range(lo[r], hi[r]):
                omega[far[first + j]] += theta[t]
                row += theta[t]
                t += 1
            omega[near[r]] -= row


def _product_index(near_ptr, near, far_ptr, far, lo, hi, plus, minus):  # type: ignore[no-untyped-def]
    """The far and the near pair of every term."""
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            for j in range(lo[r], hi[r]):
                plus[t] = far[first + j]
                minus[t] = near[r]
                t += 1


def _shrink(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, q, error, squares, radius, above, below, fixed, counts
):
    """Close the window of every row from both ends while the end terms are decided.

    A margin lies within ``radius |H| + error`` of ``q_far - q_near``, and ``|H|^2 <= a^4 + b^4``
    for the squared lengths `squares` of the two pairs. Terms surely above `above` are dropped,
    terms surely below `below` are added to ``fixed``, the number of them by pair. All four
    additions are rounded outward by the caller's `error`, which includes them.
    """
    unit = 2.0**-51
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base, off = q[near[r]], error[near[r]]
            square = squares[near[r]] * squares[near[r]]
            i, j = lo[r], hi[r]
            while j > i:
                f = far[first + j - 1]
                reach = radius * math.sqrt(square + squares[f] * squares[f]) + off + error[f]
                reach += unit * (reach + abs(base) + abs(q[f]))
                if q[f] - base - reach > above:
                    j -= 1
                else:
                    break
            start = i
            while i < j:
                f = far[first + i]
                reach = radius * math.sqrt(square + squares[f] * squares[f]) + off + error[f]
                reach += unit * (reach + abs(base) + abs(q[f]))
                if q[f] - base + reach < below:
                    fixed[f] += 1.0
                    i += 1
                else:
                    break
            fixed[near[r]] -= i - start
            counts[0] += hi[r] - j
            counts[1] += i - start
            lo[r], hi[r] = i, j


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
    scatter: Loop
    product_pass: Loop
    product_margins: Loop
    product_scatter: Loop
    product_index: Loop
    shrink: Loop
    cross: Loop
    cross_diagonal: Loop


@lru_cache(maxsize=1)
def loops() -> Loops:
    """The loops; numba is imported here, not with the package."""
    plain = (_product_margins, _product_scatter, _product_index, _shrink)
    free = (
        _distances, _forms, _scaled, _laplacian, _squares, _indexed_pass, _scatter, _product_pass,
    )
    try:
        import numba
    except ImportError:
        return Loops(*free, *plain, _cross, _cross_diagonal)
    exact = numba.njit(cache=True, fastmath={"contract"})
    sums = numba.njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
    rest = (sums(_cross), sums(_cross_diagonal))
    made = [*[sums(loop) for loop in free], *[exact(loop) for loop in plain], *rest]
    return Loops(*made)
