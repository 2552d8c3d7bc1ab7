"""The papers' kind of solver: plain dual coordinate descent without shrinking, warm from C to C.

For ``1/2 ||x||^2 + sum_i f_i(<a_i, x>)``, f_i with slopes ``lo_i`` and ``hi_i`` on either side of
``b_i`` (hinge, absolute and quantile losses): theta_i is minimised over one after another, in
random order, over all terms, ``x = -A' theta`` following. A safe ball around the last solution
takes terms out before a value of C is solved; nothing else makes it faster. It stops at a relative
duality gap, so that both ways end equally accurate.

It is here to compare with what the papers report; `cvxscreen.path` is what to use.
"""

from __future__ import annotations

from time import process_time

import numba
import numpy as np

from cvxscreen import Problem

LOOK = 10
"""Sweeps between two looks at the gap, each of which costs about as much as a sweep."""
MOST = 100_000
"""Sweeps at most for one value of C."""


@numba.njit(cache=True)
def descend(a, square, b, lo, hi, theta, x, rows, fixed, tol):
    """Sweep over `rows` until the gap is `tol` of the objective; the sweeps and the last gap.

    `fixed` is what the terms that were taken out add to the objective, less ``<x, g>``'s part,
    which a gap does not need: their Fenchel-Young terms are 0.
    """
    order, d = rows.copy(), x.size
    gap, done, state = np.inf, 0, 1
    while True:
        if done % LOOK == 0:
            gap, size = 0.0, 0.0
            for r in rows:
                z = -b[r]
                for j in range(d):
                    z += a[r, j] * x[j]
                slope = hi[r] if z > 0.0 else lo[r]
                gap += slope * z - theta[r] * z
                size -= b[r] * theta[r]
            for j in range(d):
                size -= 0.5 * x[j] * x[j]
            if gap <= tol * abs(size + fixed) or done >= MOST:
                return done, gap
        for k in range(order.size - 1, 0, -1):
            state = (1103515245 * state + 12345) % 2147483648
            m = (state >> 8) % (k + 1)
            order[k], order[m] = order[m], order[k]
        for r in order:
            if square[r] > 0.0:
                z = -b[r]
                for j in range(d):
                    z += a[r, j] * x[j]
                new = min(max(theta[r] + z / square[r], lo[r]), hi[r])
                step = new - theta[r]
                if step != 0.0:
                    theta[r] = new
                    for j in range(d):
                        x[j] -= step * a[r, j]
        done += 1


def walk(problem: Problem, grid: np.ndarray, tol: float, screen: bool
         ) -> tuple[float, float, float, int]:
    """A path over C: CPU seconds, mean share taken out, largest gap on all terms, sweeps.

    The ball is that of `bound="dvi"` for a reference with ``x = x_theta``: centre ``(1 + s)/2 x0``,
    squared radius ``(1 - s)^2 / 4 |x0|^2 + s gap0``, with the gap on all terms.
    """
    matrix, scale = problem.design.matrix, problem.design.scale
    rows = np.asarray(matrix.toarray() if problem.design.sparse else matrix, dtype=float)
    a = np.ascontiguousarray(rows if scale is None else rows * np.asarray(scale)[:, None])
    square, base, n = np.einsum("ij,ij->i", a, a), problem.losses, len(a)
    norm, b = np.sqrt(square), base.b
    theta, x, t, gap = np.zeros(n), np.zeros(a.shape[1]), np.zeros(n), 0.0
    worst, taken, sweeps = 0.0, [], 0
    began, beside = process_time(), 0.0
    for k, value in enumerate(grid):
        factor = float(value) / problem.C
        lo, hi = factor * base.lo, factor * base.hi
        kept = np.arange(n)
        s = 1.0 if k == 0 else float(value / grid[k - 1])
        theta *= s
        if screen and k:
            middle = 0.5 * (1.0 + s) * t
            reach = np.sqrt(0.25 * (1.0 - s) ** 2 * float(x @ x) + s * gap) * norm
            low, high = middle + reach < b, middle - reach > b
            theta[low], theta[high] = lo[low], hi[high]
            kept = np.flatnonzero(~(low | high))
            taken.append(1.0 - len(kept) / n)
        x = -(theta @ a)
        out = np.ones(n, dtype=bool)
        out[kept] = False
        count, _ = descend(a, square, b, lo, hi, theta, x, kept, -float(b[out] @ theta[out]), tol)
        sweeps += count
        if screen:  # the reference of the next value of C: part of the rule's cost
            x = -(theta @ a)
            t = a @ x
            z = t - b
            gap = float(np.sum((np.where(z > 0, hi, lo) - theta) * z))
        mark = process_time()
        z = a @ x - b
        full = float(np.sum((np.where(z > 0, hi, lo) - theta) * z))
        worst = max(worst, full / abs(float(-b @ theta - 0.5 * x @ x)))
        beside += process_time() - mark
    seconds = process_time() - began - beside
    return seconds, float(np.mean(taken)) if taken else 0.0, worst, sweeps
