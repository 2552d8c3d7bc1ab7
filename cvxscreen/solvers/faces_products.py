"""Compiled loops of `Faces` for conjugate gradients: products with what follows from them at once.

Rows are those of `faces_loops`. Their inner product is written out in every loop: a function of its
own would be handed arrays whose references are counted, row by row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cvxscreen.compiling import Loop, together

ONE, TWO = np.uint64(1), np.uint64(2)


def _soften(rows, start, stop, indices, data, u, weight, r, bu, z):  # type: ignore[no-untyped-def]
    """``bu_k = <b_i, u>`` for the k-th row i of `rows`, ``z -= weight bu``; returns ``r' z``."""
    product = 0.0
    for k in range(rows.size):
        i = rows[k]
        even = start[i] + ((stop[i] - start[i]) // TWO) * TWO
        first, second = 0.0, 0.0
        for s in range(start[i], even, TWO):
            first += data[s] * u[indices[s]]
            second += data[s + ONE] * u[indices[s + ONE]]
        for s in range(even, stop[i]):
            first += data[s] * u[indices[s]]
        bu[k] = first + second
        z[k] -= weight[k] * bu[k]
        product += r[k] * z[k]
    return product


def _direct(  # type: ignore[no-untyped-def]
    rows, start, stop, indices, data, v, share, z, bu, q, p, bp, kp
):
    """The next direction ``p = z + share p``, ``bp = bu + share bp``, and ``kp = A v + bp + q p``.

    Returns ``p' kp`` and ``p' p``.
    """
    bend, square = 0.0, 0.0
    for k in range(rows.size):
        i = rows[k]
        even = start[i] + ((stop[i] - start[i]) // TWO) * TWO
        first, second = 0.0, 0.0
        for s in range(start[i], even, TWO):
            first += data[s] * v[indices[s]]
            second += data[s + ONE] * v[indices[s + ONE]]
        for s in range(even, stop[i]):
            first += data[s] * v[indices[s]]
        p[k] = z[k] + share * p[k]
        bp[k] = bu[k] + share * bp[k]
        kp[k] = first + second + bp[k] + q[k] * p[k]
        bend += p[k] * kp[k]
        square += p[k] * p[k]
    return bend, square


def _advance(size, p, kp, x, r, theta, q, lo, hi, weight, out):  # type: ignore[no-untyped-def]
    """``x += size p``, ``r -= size kp``, ``out = weight r``, and what is known of the new point.

    Returns a bound of the duality gap of ``theta + x`` clipped to its cells (finite numbers), how
    much the clipping takes away, and the sum of ``|r|``.
    """
    gap, cut, left = 0.0, 0.0, 0.0
    for k in range(p.size):
        moved = x[k] + size * p[k]
        x[k] = moved
        residual = r[k] - size * kp[k]
        r[k] = residual
        out[k] = weight[k] * residual
        moved += theta[k]
        inside = min(max(moved, lo[k]), hi[k])
        room = max((hi[k] - inside) * residual, (lo[k] - inside) * residual)
        if q[k] > 0.0:
            room = min(room, 0.5 * residual * residual / q[k])
        gap += room
        cut += abs(moved - inside)
        left += abs(residual)
    return gap, cut, left


def _normal(start, stop, indices, data, v, step, r, out):  # type: ignore[no-untyped-def]
    """``r -= step A v`` and ``out += A' r``, row by row; returns ``r' r``."""
    square = 0.0
    for i in range(r.size):
        even = start[i] + ((stop[i] - start[i]) // TWO) * TWO
        first, second = 0.0, 0.0
        for p in range(start[i], even, TWO):
            first += data[p] * v[indices[p]]
            second += data[p + ONE] * v[indices[p + ONE]]
        for p in range(even, stop[i]):
            first += data[p] * v[indices[p]]
        value = r[i] - step * (first + second)
        r[i] = value
        square += value * value
        for p in range(start[i], stop[i]):
            out[indices[p]] += value * data[p]
    return square


def _smooth(share, r, size, down, up, out):  # type: ignore[no-untyped-def]
    """``out += share (r - out)``; returns what residuals ``size out`` add to the gap."""
    gap = 0.0
    for k in range(r.size):
        value = out[k] + share * (r[k] - out[k])
        out[k] = value
        value *= size[k]
        gap += max(up[k] * value, down[k] * value)
    return gap


def _blend(step, share, v, root, u, out):  # type: ignore[no-untyped-def]
    """``u += step v``, ``out += share (u - out)``; returns ``||root out||^2``."""
    square = 0.0
    for j in range(v.size):
        moved = u[j] + step * v[j]
        u[j] = moved
        value = out[j] + share * (moved - out[j])
        out[j] = value
        value *= root[j]
        square += value * value
    return square


def _turn(share, fresh, v):  # type: ignore[no-untyped-def]
    """``v = fresh + share v`` and fresh = 0; returns ``v' v``."""
    square = 0.0
    for j in range(v.size):
        value = fresh[j] + share * v[j]
        fresh[j] = 0.0
        v[j] = value
        square += value * value
    return square


class Products(NamedTuple):
    """The loops of this module, compiled."""

    soften: Loop
    direct: Loop
    advance: Loop
    normal: Loop
    smooth: Loop
    blend: Loop
    turn: Loop


@lru_cache(maxsize=1)
def compiled_products() -> Products | None:
    """The loops, compiled; None without numba."""
    # Sums in any order, but over entries of rows: vector loads from scattered places are slow.
    exact, free = frozenset({"contract"}), frozenset({"contract", "reassoc", "nsz"})
    rows = ("soften", "direct", "normal")
    names = [(f"_{name}", exact if name in rows else free) for name in Products._fields]
    made = together(globals(), names)
    return None if made is None else Products(*made.values())
