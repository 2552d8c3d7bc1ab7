"""Compiled loops of `Smo` over a dense block of the kernel matrix.

Both minimise ``1/2 c' K c + ... + sum_k (e_k |c_k| + q_k/2 c_k^2)`` over ``lo <= c <= hi``, given
the gradient F of its smooth part without q; c and F are changed in place. Compiled on first use.
"""

from __future__ import annotations

from functools import lru_cache

from cvxscreen.compiling import Loop, together_or_plain


def _pairs(K, F, c, lo, hi, e, q, eps, limit):  # type: ignore[no-untyped-def]
    """Two coordinates at a time, their sum kept; partners by the largest predicted decrease.

    (Fan, Chen and Lin 2005, the rule of LIBSVM.) Returns the steps taken and the last violation.
    """
    m = len(c)
    violation = 0.0
    for step in range(limit + 1):
        best, worst, i = 1e300, -1e300, -1
        for k in range(m):
            g = F[k] + q[k] * c[k]
            if c[k] < hi[k]:
                p = g + e[k] if c[k] >= 0.0 else g - e[k]
                if p < best:
                    best, i = p, k
            if c[k] > lo[k]:
                d = g + e[k] if c[k] > 0.0 else g - e[k]
                if d > worst:
                    worst = d
        violation = worst - best
        if i < 0 or violation <= eps or step == limit:
            return step, max(violation, 0.0)
        row = K[i]
        own, gain, j, bend, need = row[i] + q[i], 0.0, -1, 1.0, 0.0
        for k in range(m):
            if c[k] > lo[k]:
                g = F[k] + q[k] * c[k]
                d = (g + e[k] if c[k] > 0.0 else g - e[k]) - best
                if d > 0.0 and k != i:
                    a = own + K[k, k] + q[k] - 2.0 * row[k]
                    a = max(a, 1e-12 * (own + K[k, k]) + 1e-300)
                    if d * d > gain * a:
                        gain, j, bend, need = d * d / a, k, a, d
        if j < 0:
            return step, violation
        up = hi[i] - c[i]
        if e[i] > 0.0 and c[i] < 0.0:
            up = min(up, -c[i])
        down = c[j] - lo[j]
        if e[j] > 0.0 and c[j] > 0.0:
            down = min(down, c[j])
        size = min(need / bend, up, down)
        first, second = c[i], c[j]
        if size == up:
            c[i] = 0.0 if (e[i] > 0.0 and first < 0.0) else hi[i]
        else:
            c[i] = first + size
        if size == down:
            c[j] = 0.0 if (e[j] > 0.0 and second > 0.0) else lo[j]
        else:
            c[j] = second - size
        a, b = c[i] - first, c[j] - second
        other = K[j]
        for k in range(m):
            F[k] += a * row[k] + b * other[k]
    return limit, violation


def _singles(K, F, c, lo, hi, e, q, eps, limit):  # type: ignore[no-untyped-def]
    """One coordinate at a time, the one with the largest predicted decrease."""
    m = len(c)
    violation = 0.0
    for step in range(limit + 1):
        gain, i, rate, violation = 0.0, -1, 0.0, 0.0
        for k in range(m):
            g = F[k] + q[k] * c[k]
            v = 0.0
            if c[k] < hi[k]:
                p = g + e[k] if c[k] >= 0.0 else g - e[k]
                if p < 0.0:
                    v = p
            if c[k] > lo[k]:
                d = g + e[k] if c[k] > 0.0 else g - e[k]
                if d > -v:
                    v = d
            if v != 0.0:
                violation = max(violation, abs(v))
                a = K[k, k] + q[k] + 1e-300
                if v * v > gain * a:
                    gain, i, rate = v * v / a, k, v
        if i < 0 or violation <= eps or step == limit:
            return step, violation
        old = c[i]
        new = old - rate / (K[i, i] + q[i] + 1e-300)
        if e[i] > 0.0 and old * new < 0.0:
            new = 0.0
        c[i] = min(max(new, lo[i]), hi[i])
        a = c[i] - old
        row = K[i]
        for k in range(m):
            F[k] += a * row[k]
    return limit, violation


@lru_cache(maxsize=1)
def compiled() -> tuple[Loop, Loop]:
    """``(pairs, singles)``; numba is imported here, not with the package."""
    strict = frozenset[str]()
    found = together_or_plain(globals(), [("_pairs", strict), ("_singles", strict)])
    return found["_pairs"], found["_singles"]
