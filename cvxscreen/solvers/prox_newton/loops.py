"""Loops over the columns and rows of sparse matrices for the solvers under an L1 term.

Compiled on first use; without numba they run as they are. They are fastest where `indptr` and
`indices` are unsigned.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from cvxscreen._support.compiled import Loop, together_or_plain


def _descend(  # type: ignore[no-untyped-def]
    order, indptr, indices, data, curve, weight, kappa, slope, x, d, u, times=1
):
    """Sweeps of exact coordinate steps on ``slope'd + 1/2 |B d|^2 + 1/2 d'M d + kappa|x+d|``.

    ``u = B d`` follows; `curve` is ``|B_j|^2 + M_j``. Returns the decrease of the model.
    """
    gained = 0.0
    for _ in range(times):
        for k in range(order.size):
            j = order[k]
            first, last = indptr[j], indptr[j + 1]
            pull = slope[j] + weight[j] * d[j]
            for p in range(first, last):
                pull += data[p] * u[indices[p]]
            h = curve[j]
            old = x[j] + d[j]
            z = old - pull / h
            room = kappa[j] / h
            new = z - room if z > room else (z + room if z < -room else 0.0)
            step = new - old
            if step != 0.0:
                d[j] = new - x[j]
                for p in range(first, last):
                    u[indices[p]] += step * data[p]
                gained -= step * pull + 0.5 * h * step * step
                gained -= kappa[j] * (abs(new) - abs(old))
    return gained


def _chosen_rows(  # type: ignore[no-untyped-def]
    columns, indptr, indices, data, rank, factor, new_indptr, new_indices, new_data
):
    """Copy the entries of some columns in rows of rank >= 0, times ``factor_i``; their number."""
    count = 0
    for k in range(columns.size):
        j = columns[k]
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            if rank[i] >= 0:
                new_indices[count] = rank[i]
                new_data[count] = data[p] * factor[i]
                count += 1
        new_indptr[k + 1] = count
    return count


def _add_columns(columns, indptr, indices, data, step, out):  # type: ignore[no-untyped-def]
    """``out += sum_k step_k B_j``, ``j = columns_k``; columns without a step are not looked at."""
    for k in range(columns.size):
        size = step[k]
        if size != 0.0:
            for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
                out[indices[p]] += size * data[p]


def _pull_columns(columns, indptr, indices, data, u, out):  # type: ignore[no-untyped-def]
    """``out_k = <B_j, u>``, ``j = columns_k``."""
    for k in range(columns.size):
        total = 0.0
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            total += data[p] * u[indices[p]]
        out[k] = total


def _pair_sums(columns, indptr, indices, data, scale, out):  # type: ignore[no-untyped-def]
    """The lower half of ``out += sum_k scale_k B_j B_j'``; row numbers rise within a column."""
    for k in range(columns.size):
        first, last = indptr[columns[k]], indptr[columns[k] + 1]
        for p in range(first, last):
            size = scale[k] * data[p]
            for r in range(first, last):
                if indices[r] > indices[p]:
                    break
                out[indices[p], indices[r]] += size * data[r]


def _turned(columns, indptr, indices, data, starts, new_indices, new_data):  # type: ignore[no-untyped-def]
    """Some columns by rows: row i lies at ``starts_i``, with the positions k for columns."""
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            starts[indices[p] + 2] += 1
    for i in range(2, starts.size):
        starts[i] += starts[i - 1]
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            place = starts[indices[p] + 1]
            new_indices[place] = k
            new_data[place] = data[p]
            starts[indices[p] + 1] = place + 1


def _inner_sums(  # type: ignore[no-untyped-def]
    columns, indptr, indices, data, scale, starts, turned, values, out
):
    """The lower half of ``out_kl += scale_k scale_l <B_j, B_i>``, ``j = columns_k``, i of l.

    `starts`, `turned` and `values` are these columns by rows. One row of `out` stays in the cache.
    """
    for k in range(columns.size):
        for p in range(indptr[columns[k]], indptr[columns[k] + 1]):
            size = scale[k] * data[p]
            for r in range(starts[indices[p]], starts[indices[p] + 1]):
                column = turned[r]
                if column > k:
                    break
                out[k, column] += size * (scale[column] * values[r])


def _ascend(  # type: ignore[no-untyped-def]
    order, indptr, indices, data, square, weight, kappa, b, e, q, lo, hi, theta, v
):
    """One sweep of proximal stochastic dual coordinate ascent; v follows theta.

    The dual is bounded below by its quadratic model with ``||a_i||^2_{M^-1}`` (`square`).
    """
    for k in range(order.size):
        i = order[k]
        t = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            z = v[j]
            if z > kappa[j]:
                t += data[p] * (z - kappa[j]) / weight[j]
            elif z < -kappa[j]:
                t += data[p] * (z + kappa[j]) / weight[j]
        bend = square[i] + q[i]
        z = t - b[i] + square[i] * theta[i]
        z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
        if bend > 0.0:
            new = min(max(z / bend, lo[i]), hi[i])
        else:
            new = hi[i] if z > 0.0 else (lo[i] if z < 0.0 else 0.0)
        step = new - theta[i]
        if step != 0.0:
            theta[i] = new
            for p in range(indptr[i], indptr[i + 1]):
                v[indices[p]] -= step * data[p]


def _alternate(  # type: ignore[no-untyped-def]
    order, batch, indptr, indices, data, weight, kappa, linear, b, e, q, lo, hi,
    sigma, tau, momentum, theta, x, bar, pull, fresh,
):
    """One epoch of the stochastic primal-dual method (SPDC) in batches of rows.

    ``pull = A' theta`` follows theta; `bar` is the extrapolated primal point, `fresh` work space.
    """
    n = order.size
    for start in range(0, n, batch):
        stop = min(start + batch, n)
        share = n / (stop - start)
        fresh[:] = 0.0
        for k in range(start, stop):
            i = order[k]
            t = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                t += data[p] * bar[indices[p]]
            z = t - b[i] + theta[i] / sigma
            z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
            new = min(max(z / (q[i] + 1.0 / sigma), lo[i]), hi[i])
            step = new - theta[i]
            if step != 0.0:
                theta[i] = new
                for p in range(indptr[i], indptr[i + 1]):
                    fresh[indices[p]] += step * data[p]
        for j in range(x.size):
            force = pull[j] + share * fresh[j] + linear[j]
            z = x[j] / tau - force
            room = kappa[j]
            z = z - room if z > room else (z + room if z < -room else 0.0)
            new = z / (weight[j] + 1.0 / tau)
            bar[j] = new + momentum * (new - x[j])
            x[j] = new
            pull[j] += fresh[j]


class Loops(NamedTuple):
    """The loops of this module."""

    descend: Loop
    chosen_rows: Loop
    add_columns: Loop
    pull_columns: Loop
    pair_sums: Loop
    turned: Loop
    inner_sums: Loop
    ascend: Loop
    alternate: Loop


@lru_cache(maxsize=1)
def loops() -> Loops:
    """The loops, compiled where numba is installed (it is imported here, not with the package)."""
    free = frozenset({"contract", "reassoc", "nsz"})
    names = [(f"_{name}", free) for name in Loops._fields]
    return Loops(*together_or_plain(globals(), names).values())
