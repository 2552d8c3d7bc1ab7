"""Compiled loops over the rows of CSR matrices: sweeps, and products of conjugate gradients.

Compiled loops of `DualActiveSet` for conjugate gradients: products with what follows from them at
once.

Rows are those of `faces_loops`. Their inner product is written out in every loop: a function of its
own would be handed arrays whose references are counted, row by row.

Compiled loops of `DualActiveSet` over the rows of CSR matrices.

Row i holds the entries ``start[i] <= p < stop[i]`` of `indices` and `data`. Positions and indices
are unsigned, so that no access has to ask whether it counts from the end. Compiled on first use.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cvxscreen._support.compiled import Loop, together

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


def _widen(  # type: ignore[no-untyped-def]
    rows, start, stop, indices, data, extra, first, new_start, new_indices, new_data
):
    """Copy all rows, each behind its entries in further dense columns ``first, first + 1, ...``."""
    for k in range(rows.size):
        i = rows[k]
        a = new_start[k]
        for j in range(extra.shape[1]):
            new_indices[a] = first + j
            new_data[a] = extra[i, j]
            a += ONE
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = data[p]
            a += ONE


def _energy(rows, start, stop, indices, data, factor, squares, counts):  # type: ignore[no-untyped-def]
    """``squares_j += sum_i (factor_i a_ij)^2``, and the number of entries of each column."""
    for k in range(rows.size):
        i = rows[k]
        square = factor[i] * factor[i]
        for p in range(start[i], stop[i]):
            squares[indices[p]] += square * data[p] * data[p]
            counts[indices[p]] += 1.0


def _count(rows, start, stop, indices, rank, heavy, out):  # type: ignore[no-untyped-def]
    """Number of entries of each row in columns of rank < `heavy`."""
    for k in range(rows.size):
        i = rows[k]
        count = 0
        for p in range(start[i], stop[i]):
            count += rank[indices[p]] < heavy
        out[k] = count


def _split(  # type: ignore[no-untyped-def]
    rows, start, stop, indices, data, factor, root, rank, heavy,
    at, heavy_start, heavy_indices, heavy_data, light_start, light_indices, light_data, squares,
):
    """Copy rows, scaled by ``factor_i root_j``, into two matrices: rank < `heavy`, and the others.

    The k-th row becomes row ``at_k``, whose squared norms in the two parts `squares` gets.
    """
    for k in range(rows.size):
        i, row = rows[k], at[k]
        a, b = heavy_start[row], light_start[row]
        first, second = 0.0, 0.0
        for p in range(start[i], stop[i]):
            j = indices[p]
            value = factor[i] * data[p] * root[j]
            if rank[j] < heavy:
                heavy_indices[a] = rank[j]
                heavy_data[a] = value
                first += value * value
                a += ONE
            else:
                light_indices[b] = rank[j]
                light_data[b] = value
                second += value * value
                b += ONE
        squares[row, 0] = first
        squares[row, 1] = second


def _move(rows, start, stop, indices, data, at, new_start, new_indices, new_data):  # type: ignore[no-untyped-def]
    """Copy rows to other places: the k-th becomes row ``at_k``."""
    for k in range(rows.size):
        i = rows[k]
        a = new_start[at[k]]
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = data[p]
            a += ONE


def _gather(rows, start, stop, indices, data, v, out):  # type: ignore[no-untyped-def]
    """``out_k = <a_i, v>`` for the k-th row i of `rows`."""
    for k in range(rows.size):
        i = rows[k]
        even = start[i] + ((stop[i] - start[i]) // TWO) * TWO
        first, second = 0.0, 0.0  # two sums, so that an addition need not wait for the last
        for p in range(start[i], even, TWO):
            first += data[p] * v[indices[p]]
            second += data[p + ONE] * v[indices[p + ONE]]
        for p in range(even, stop[i]):
            first += data[p] * v[indices[p]]
        out[k] = first + second


def _scatter(rows, start, stop, indices, data, x, out):  # type: ignore[no-untyped-def]
    """``out += sum_k x_k a_i``."""
    for k in range(rows.size):
        i = rows[k]
        value = x[k]
        for p in range(start[i], stop[i]):
            out[indices[p]] += value * data[p]


def _gram(rows, weight, start, stop, indices, data, out):  # type: ignore[no-untyped-def]
    """Add half of ``sum_k weight_k a_i a_i'`` to `out`: with its transpose it is the whole."""
    for k in range(rows.size):
        i = rows[k]
        for p in range(start[i], stop[i]):
            value = weight[k] * data[p]
            j = indices[p]
            for s in range(start[i], p):
                out[j, indices[s]] += value * data[s]
            out[j, j] += 0.5 * value * data[p]


def _sweep(  # type: ignore[no-untyped-def]
    rows, start, stop, indices, data, light_start, light_stop, light_indices, light_data,
    square, bend, b, e, lo, hi, theta, v,
):
    """Exact minimisation over one dual coordinate after another; v follows theta.

    ``square`` is ``||a_i||^2`` and ``bend`` the inverse of ``||a_i||^2 + q_i``, 0 where that is 0.
    """
    for k in range(rows.size):
        i = rows[k]
        even = start[i] + ((stop[i] - start[i]) // TWO) * TWO
        first, second, third = 0.0, 0.0, 0.0
        for p in range(start[i], even, TWO):
            first += data[p] * v[indices[p]]
            second += data[p + ONE] * v[indices[p + ONE]]
        for p in range(even, stop[i]):
            first += data[p] * v[indices[p]]
        for p in range(light_start[i], light_stop[i]):
            third += light_data[p] * v[light_indices[p]]
        z = (first + second) + third - b[i] + square[i] * theta[i]
        z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
        if bend[i] > 0.0:
            new = min(max(z * bend[i], lo[i]), hi[i])
        else:
            new = hi[i] if z > 0.0 else (lo[i] if z < 0.0 else 0.0)
        step = new - theta[i]
        if step != 0.0:
            theta[i] = new
            for p in range(start[i], stop[i]):
                v[indices[p]] -= step * data[p]
            for p in range(light_start[i], light_stop[i]):
                v[light_indices[p]] -= step * light_data[p]


def _level(  # type: ignore[no-untyped-def]
    rows, start, stop, indices, data, root, new_start, new_indices, new_data, size
):
    """Copy rows, their columns scaled by `root` and then the rows to length 1 from `size`."""
    for k in range(rows.size):
        i = rows[k]
        a = new_start[k]
        square = 0.0
        for p in range(start[i], stop[i]):
            value = data[p] * root[indices[p]]
            square += value * value
        size[k] = np.sqrt(square)
        inverse = 1.0 / size[k] if square > 0.0 else 0.0
        for p in range(start[i], stop[i]):
            new_indices[a] = indices[p]
            new_data[a] = inverse * data[p] * root[indices[p]]
            a += ONE


class Loops(NamedTuple):
    """The loops of this module and of `faces_products`, compiled."""

    widen: Loop
    energy: Loop
    count: Loop
    split: Loop
    move: Loop
    gather: Loop
    scatter: Loop
    gram: Loop
    sweep: Loop
    level: Loop
    soften: Loop
    direct: Loop
    advance: Loop
    normal: Loop
    smooth: Loop
    blend: Loop
    turn: Loop


@lru_cache(maxsize=1)
def compiled() -> Loops | None:
    """The loops, compiled (numba is imported here, not with the package); None without numba."""
    products = compiled_products()
    if products is None:
        return None
    names = [(f"_{name}", frozenset({"contract"})) for name in Loops._fields[: -len(products)]]
    made = together(globals(), names)
    return None if made is None else Loops(*[*made.values(), *products])
