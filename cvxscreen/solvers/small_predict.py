"""Where the compiled path of `small_loops` expects the margins of the next point.

The margins of the last two points are carried on; where only one is known, the other is made up
from the path's tangent there. All of it is guessed: what is fixed on it is checked at the answer.
"""

from __future__ import annotations

import numpy as np

FOLLOW = 0.8
"""Share of the last step of the margins, in log C, that they are expected to make again, where the
steps before say nothing about it."""

FURTHEST = 1.5
"""Most of such a step, where the grid is uneven and the solution does not grow as C."""

LEAST, LOW, OUT = 0.1, 1e-3, 0.03
"""A guess reaches at least so far: a share of the expected step, or of the ball; the third is the
share of the ball beside a tangent."""

DECAY = 0.7
"""What is left, a point later, of the reach that a guess has needed."""

TANGENT = 1e-6
"""Share of the weight with which terms at a kink bend in a tangent."""

STRAY = 2.0
"""Width of the proximal band at the start, in root mean square errors of the expected margins."""

SAMPLE = 2500
"""Terms of the sample that a cold start looks at first, about."""

NEAR = 16
"""The band after it holds one term in so many."""


def band(memory, width):  # type: ignore[no-untyped-def]
    """The share of the weight whose band is so wide, in units of the margins."""
    return min(max(width * memory[10], 1e-9), 1.0)


def scaled(m, factor, values, out):  # type: ignore[no-untyped-def]
    """Write ``factor * values`` to `out`; numba compiles assignments to slices for seconds."""
    for i in range(m):
        out[i] = factor * values[i]


def sample(  # type: ignore[no-untyped-def]
    d, n, A, R, b, e, q, inv, lo, hi, free, base, factor, weight, aim, x, t,
    AU, bU, eU, qU, iU, lU, hU, tU, th, th0, best_x, best_th, rho, g, step, dt, inside, B, H, small,
):
    """Solve roughly for one term in so many, each in place of them all; `x` and `t` are the answer.

    A small part of the cost of a solve begins it near its end. Returns how far from their kink the
    nearest terms are then, one in `NEAR`.
    """
    # np.int64 as elsewhere: for each literal 0, -1 or 100 numba compiles the callees once more.
    every = max(n // SAMPLE, 1)
    m, scale, grown = np.int64(0), 0.0, factor * every
    for i in range(0, n, every):
        bU[m], eU[m], qU[m], iU[m] = b[i], e[i], q[i] / grown, inv[i] * grown
        lU[m], hU[m], tU[m], th0[m] = lo[i] * grown, hi[i] * grown, 0.0, 0.0
        y = -b[i] - min(max(-b[i], -e[i]), e[i])
        r = min(max(y * iU[m], lU[m]), hU[m])
        scale += -b[i] * r - e[i] * abs(r) - 0.5 * qU[m] * r * r  # the loss at x = 0
        for j in range(d):
            AU[j, m] = R[i, j]
        m += 1
    for j in range(d):
        rho[j], x[j] = 0.0, 0.0
    newton(  # type: ignore[name-defined] # noqa: F821 - compiled beside it
        d, m, AU, bU, eU, qU, iU, lU, hU, free, base / every, rho, weight / grown,
        aim * scale, np.int64(100), x, tU, th, th0, best_x, best_th, g, step, dt, inside, B, H,
        small,
    )
    for j in range(d):
        x[j] = best_x[j]
    margins(d, n, A, x, t)  # type: ignore[name-defined] # noqa: F821
    for p in range(m):
        dt[p] = abs(abs(t[p * every] - b[p * every]) - e[p * every])
    return np.sort(dt[:m])[m // NEAR]


def tangent(  # type: ignore[no-untyped-def]
    d, n, A, b, e, q, lo, hi, free, base, x, theta, memory, ratio, before, older,
    AU, qU, eU, lU, hU, sU, inside, B, H, small, g, step,
):
    """Write to `older` the margins one step back, had the last step to C been along the tangent.

    While no term changes its piece, the slopes of linear pieces grow as C and ``dx/dlog C`` solves
    ``(M + sum_K a_i a_i' / q_i) dx = M x``, K the terms that bend (at a kink with `TANGENT`).
    """
    m, factor = np.int64(0), memory[0]
    for i in range(n):
        s, low, high = theta[i], lo[i] * factor, hi[i] * factor
        if (s > low) and (s < high) and (e[i] == 0.0 or s != 0.0):
            qU[m], eU[m], lU[m], hU[m], sU[m] = q[i] / factor, e[i], low, high, s
            for j in range(d):
                AU[j, m] = A[j, i]
            m += 1
    for j in range(d):
        g[j] = 0.0 if j == free else -x[j]
    direction(  # type: ignore[name-defined] # noqa: F821 - compiled beside it
        d, m, AU, qU, eU, lU, hU, sU, g, free, TANGENT * memory[1] / factor, base, inside, B, H,
        small, step,
    )
    for i in range(n):
        older[i] = before[i]
    for j in range(d):
        value = (1.0 - 1.0 / ratio) * step[j]
        for i in range(n):
            older[i] -= value * A[j, i]
    memory[7], memory[9] = np.log(ratio), ratio


def expect(n, before, older, follow, norms, centre):  # type: ignore[no-untyped-def]
    """Write the expected margins to `centre`; the largest step to them, in norms of the rows."""
    far = 0.0
    for i in range(n):
        move = follow * (before[i] - older[i])
        centre[i] = before[i] + move
        far = max(far, abs(move) / max(norms[i], 1e-300))
    return far


def foresee(  # type: ignore[no-untyped-def]
    n, before, older, norms, centre, memory, stride, low
):
    """Write the margins expected after a step `stride` in log C; how far off they may well be.

    At least `low`.
    """
    follow = stride / memory[7]
    follow = min(max(memory[9] * follow, 0.0), max(FURTHEST * abs(follow), np.exp(stride)))
    return max(low, memory[8], LEAST * expect(n, before, older, follow, norms, centre))


def deviation(n, now, centre, norms):  # type: ignore[no-untyped-def]
    """How far the margins are from `centre`: at most, in norms of their rows, and on average."""
    most, square = 0.0, 0.0
    for i in range(n):
        off = now[i] - centre[i]
        most = max(most, abs(off) / max(norms[i], 1e-300))
        square += off * off
    return most, np.sqrt(square / n)


def learn(  # type: ignore[no-untyped-def]
    n, now, centre, before, older, norms, memory, stride, steps, worst, off
):
    """Keep what a point with margins `now` says about the next; `before` becomes `older`.

    `worst` and `off` are what is known of the errors already (`deviation`).
    """
    most, wide = deviation(n, now, centre, norms)
    inner, first, second = 0.0, 1e-150, 1e-150  # their product is no zero
    for i in range(n):
        last, this = before[i] - older[i], now[i] - before[i]
        inner += this * last
        first += last * last
        second += this * this
        older[i] = before[i]
    same = inner * inner / (first * second)  # the last two steps count as far as they agree
    memory[6] = band(memory, STRAY * max(wide, off))
    memory[8] = max(most, worst, DECAY * memory[8])
    memory[9] = FOLLOW + same * (inner / first - FOLLOW)
    memory[7], memory[11] = stride, steps
