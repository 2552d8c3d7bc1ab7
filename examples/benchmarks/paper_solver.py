"""The papers' kind of solver: plain dual coordinate descent without shrinking, warm from C to C.

For ``1/2 ||x||^2 + sum_i f_i(<a_i, x>)``, f_i with slopes ``lo_i`` and ``hi_i`` on either side of
``b_i`` (hinge, absolute and quantile losses): theta_i is minimised over one after another, in
random order, over all terms, ``x = -A' theta`` following. A safe ball around the last solution
takes terms out before a value of C is solved; nothing else makes it faster. It stops at a relative
duality gap, so that both ways end equally accurate.

`greedy` is LIBSVM's kind: no sweeps, the one term whose step gains most, on a kernel matrix.

They are here to compare with what the papers report; `cvxscreen.path` is what to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

import numba
import numpy as np

from cvxscreen import Problem
from cvxscreen.core.losses import Piece

LOOK = 10
"""Sweeps between two looks at the gap, each of which costs about as much as a sweep."""
MOST = 100_000
"""Sweeps at most for one value of C."""


@numba.njit(cache=True)
def descend(a, square, b, lo, hi, theta, x, rows, fixed, tol, most):
    """Sweep over `rows` until the gap is `tol` of the objective, or `most` times; sweeps and gap.

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
            if gap <= tol * abs(size + fixed) or done >= most:
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


@numba.njit(cache=True)
def take_out(a, norm, b, lo, hi, theta, x, t, s, radius, screen):
    """Scale the last dual point by `s` and fix what the ball proves; the rest, and what that adds.

    The ball has centre ``(1 + s)/2 x`` and `radius`; `t` are the margins at `x`, which becomes
    ``-A' theta`` of the new dual point.
    """
    n, d = a.shape
    kept, many, fixed = np.empty(n, np.int64), 0, 0.0
    x[:] = 0.0
    for r in range(n):
        theta[r] *= s
        middle, reach = 0.5 * (1.0 + s) * t[r], radius * norm[r]
        if screen and (middle + reach < b[r] or middle - reach > b[r]):
            theta[r] = lo[r] if middle < b[r] else hi[r]
            fixed -= b[r] * theta[r]
        else:
            kept[many] = r
            many += 1
        if theta[r] != 0.0:
            for j in range(d):
                x[j] -= theta[r] * a[r, j]
    return kept[:many], fixed


@numba.njit(cache=True)
def look(a, b, lo, hi, theta, x, t):
    """Margins at ``x = -A' theta``, written to `t`; the gap on all terms and the dual value."""
    n, d = a.shape
    gap, value = 0.0, 0.0
    for r in range(n):
        t[r] = 0.0
        for j in range(d):
            t[r] += a[r, j] * x[j]
        z = t[r] - b[r]
        gap += ((hi[r] if z > 0.0 else lo[r]) - theta[r]) * z
        value -= b[r] * theta[r]
    for j in range(d):
        value -= 0.5 * x[j] * x[j]
    return gap, value


def radius_of(s: float, square: float, gap: float) -> float:
    """Radius of the ball of `walk`, for a reference of squared length `square` and its gap."""
    return float(np.sqrt(0.25 * (1.0 - s) ** 2 * square + s * max(gap, 0.0)))


def walk(problem: Problem, grid: np.ndarray, tol: float, screen: bool
         ) -> tuple[float, float, float, int]:
    """A path over C: CPU seconds, mean share taken out, largest gap on all terms, sweeps.

    The ball is that of `bound="dvi"` for a reference with ``x = x_theta``: centre ``(1 + s)/2 x0``,
    squared radius ``(1 - s)^2 / 4 |x0|^2 + s gap0``, with the gap on all terms. The seconds hold
    what either way needs: the two passes of the rule over all terms only where it is used.
    """
    a = np.ascontiguousarray(problem.design.dense())
    square, base, n = np.einsum("ij,ij->i", a, a), problem.losses, len(a)
    norm, b = np.sqrt(square), base.b
    theta, x, t, gap = np.zeros(n), np.zeros(a.shape[1]), np.zeros(n), 0.0
    worst, taken, sweeps = 0.0, [], 0
    began, beside = process_time(), 0.0
    for k, value in enumerate(grid):
        factor = float(value) / problem.C
        lo, hi = factor * base.lo, factor * base.hi
        s = 1.0 if k == 0 else float(value / grid[k - 1])
        radius = radius_of(s, float(x @ x), gap)
        kept, fixed = take_out(a, norm, b, lo, hi, theta, x, t, s, radius, screen and k > 0)
        if screen and k:
            taken.append(1.0 - len(kept) / n)
        sweeps += descend(a, square, b, lo, hi, theta, x, kept, fixed, tol, MOST)[0]
        mark = process_time()
        gap, size = look(a, b, lo, hi, theta, x, t)
        if not screen:  # the reference of the next value of C is part of the rule's cost
            beside += process_time() - mark
        worst = max(worst, gap / abs(size))
    seconds = process_time() - began - beside
    return seconds, float(np.mean(taken)) if taken else 0.0, worst, sweeps


@numba.njit(cache=True)
def greedy(Q, C, alpha, g, rows, tol):
    """Steps of LIBSVM's kind on ``1/2 alpha' Q alpha - sum alpha`` over [0, C]; how many.

    Each on the term of `rows` that gains most, until none violates its condition by `tol`; the
    gradient `g` follows on `rows`. Search and gradient cost the number of rows.
    """
    steps = 0
    while True:
        best, most, worst = -1, 0.0, 0.0
        for i in rows:
            step = min(max(alpha[i] - g[i] / Q[i, i], 0.0), C) - alpha[i]
            if step != 0.0:
                worst = max(worst, abs(g[i]))
                gain = -step * (g[i] + 0.5 * step * Q[i, i])
                if gain > most:
                    best, most = i, gain
        if best < 0 or worst <= tol:
            return steps
        step = min(max(alpha[best] - g[best] / Q[best, best], 0.0), C) - alpha[best]
        alpha[best] += step
        for i in rows:
            g[i] += step * Q[i, best]
        steps += 1


def greedy_work(Q: np.ndarray, grid: np.ndarray, codes: Sequence[np.ndarray], tol: float) -> int:
    """Steps times terms left along a path of the hinge loss, each C from the alpha before it.

    `codes` are the pieces that a rule proves at every C but the first.
    """
    alpha, work = np.full(len(Q), grid[0]), 0
    for C, known in zip(grid[1:], codes, strict=True):
        alpha[known == Piece.ZERO], alpha[known == Piece.LOW] = 0.0, C
        rows = np.flatnonzero(known < 0)
        work += greedy(Q, C, alpha, Q @ alpha - 1.0, rows, tol) * len(rows)
    return work


def same_sweeps(problem: Problem, grid: np.ndarray, duals: Sequence[np.ndarray], sweeps: int
                ) -> tuple[float, float]:
    """CPU seconds of a path with so many sweeps at every value, without and with the rule.

    The first value has all terms both times. `duals` are dual solutions along `grid`, for the
    rule's references: sweeps in a number that is given leave references of any accuracy.
    """
    a = np.ascontiguousarray(problem.design.dense())
    square, base, n = np.einsum("ij,ij->i", a, a), problem.losses, len(a)
    norm, b, t = np.sqrt(square), base.b, np.empty(n)
    seconds = [0.0, 0.0]
    for k, value in enumerate(grid):
        factor, before = float(value) / problem.C, max(k - 1, 0)
        lo, hi = factor * base.lo, factor * base.hi
        for screen in (False, True):
            theta = duals[before].copy()
            x = -(theta @ a)
            s, near = float(value / grid[before]), float(grid[before]) / problem.C
            gap, _ = look(a, b, near * base.lo, near * base.hi, theta, x, t)
            radius = radius_of(s, float(x @ x), gap)
            began = process_time()
            kept, fixed = take_out(a, norm, b, lo, hi, theta, x, t, s, radius, screen and k > 0)
            descend(a, square, b, lo, hi, theta, x, kept, fixed, -1.0, sweeps)
            seconds[screen] += process_time() - began
    return seconds[0], seconds[1]
