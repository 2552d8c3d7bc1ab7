"""A whole path over C as one compiled loop, for problems of few coordinates.

One point of the grid: classify every term by its margin at the point before, solve for the terms
near a kink with `newton`, evaluate all terms at the answer, and put back what was guessed wrong.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cvxscreen.compiling import Loop, together
from cvxscreen.solvers.small_newton import (  # noqa: F401 - called by name in the namespace below
    along,
    balanced,
    cholesky_solve,
    direction,
    line_search,
    newton,
    prox,
)

PILOT = 1e-3
"""Relative gap of the rough solution that the first point starts from."""

OFF, SAFE, CERTIFIED = 0, 1, 2
"""What may be fixed before a solve: nothing, what is proven, what is guessed."""

MEMORY = 7
"""Numbers carried from point to point: the last factor (0 at the start); the proximal weight times
the factor; the share of the ball that a guess reaches; the objective; the sum of Fenchel-Young
terms and ``||x - x_theta||`` (both from above when proving); the share of the weight to begin with.
"""

COLUMNS = ("kept", "predicted", "refuted", "rounds", "steps", "passes", "gap", "done")
"""Of the record that `run` fills, one row a point."""


def charged(  # type: ignore[no-untyped-def]
    n, t, error, norms, th, b, e, q, inv, lo, hi, factor
):
    """Upper bound of ``sum FY(t, th)`` for margins within ``error * norms`` of `t`.

    A term is convex in t, so it is largest at an end; its rounding is charged where it is not
    identically zero there.
    """
    total = 0.0
    for i in range(n):
        s, worst, bend = th[i], 0.0, 0.5 * q[i] / factor
        reach = error * norms[i] + 4.5e-16 * abs(t[i])
        if e[i] > 0.0:
            reach += 4.5e-16 * (abs(b[i]) + e[i])
        for side in (-1.0, 1.0):
            z = t[i] + side * reach - b[i]
            y = z - min(max(z, -e[i]), e[i])
            r = min(max(y * inv[i], lo[i]), hi[i]) * factor
            value = z * (r - s) - e[i] * (abs(r) - abs(s)) - bend * (r - s) * (r + s)
            size = (abs(z) + bend * abs(r + s)) * abs(r - s) + e[i] * abs(abs(r) - abs(s))
            worst = max(worst, max(value, 0.0) + 2e-15 * (size + bend * r * r))
        total += worst
    return total * (1.0 + 2.3e-16 * (n + 8))


def radius(fy, ratio, size, gradient):  # type: ignore[no-untyped-def]
    """Radius of the ball around ``(1 + ratio)/2 x`` that holds the optimum at ``ratio C``.

    The midpoint ball of ``(x, ratio theta)``, moved from ``(x + ratio x_theta)/2``; `gradient` is
    ``||x - x_theta||`` and `fy` the sum of the Fenchel-Young terms, both from above.
    """
    apart = abs(1.0 - ratio) * size + ratio * gradient
    return (np.sqrt(ratio * fy + 0.25 * apart * apart) + 0.5 * ratio * gradient) * (1.0 + 2e-14)


def choose(  # type: ignore[no-untyped-def]
    n, middle, t, reach, norms, slop, knots, lo, hi, factor, new, codes, kept
):
    """Fix terms farther than their reach from every kink; the others go to `kept`.

    `new` gets the slopes at C (0 for kept terms: what is fixed pulls on its own), `codes` those of
    `cvxscreen.packed`. Returns how many are kept.
    """
    for i in range(n):
        c, slack = middle * t[i], reach * norms[i] + slop[i]
        left, right = c - slack, c + slack
        low, high = right < knots[0, i], left > knots[3, i]
        zero = (left > knots[1, i]) & (right < knots[2, i])
        slope = lo[i] if low else 0.0
        slope = hi[i] if high else slope
        new[i] = slope * factor
        codes[i] = 3 - 3 * zero - 2 * low - high  # at most one of them holds
    m = 0
    for i in range(n):
        if codes[i] == 3:
            kept[m] = i
            m += 1
    return m


def evaluate(n, t, th, b, e, q, inv, lo, hi, factor):  # type: ignore[no-untyped-def]
    """``sum f(t)`` and ``sum FY(t, th)`` over all terms at C."""
    value, fy, inverse = 0.0, 0.0, 1.0 / factor
    for i in range(n):
        z, s, bend = t[i] - b[i], th[i], 0.5 * q[i] * inverse
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i]) * factor
        value += z * r - e[i] * abs(r) - bend * r * r
        fy += z * (r - s) - e[i] * (abs(r) - abs(s)) - bend * (r - s) * (r + s)
    return value, max(fy, 0.0)


def refutations(  # type: ignore[no-untyped-def]
    n, t, th, b, e, inv, lo, hi, factor, codes
):
    """How many fixed terms are on another piece at the answer."""
    wrong = 0
    for i in range(n):
        z = t[i] - b[i]
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i]) * factor
        wrong += (r != th[i]) & (codes[i] != 3)
    return wrong


def run(  # type: ignore[no-untyped-def]
    A, b, e, q, inv, lo, hi, norms, slop, knots, free, base, factors, screen, tol, x, theta, t,
    memory, X, codes, pool, first, record,
):
    """Solve at ``C0 * factors[k]`` for every k, each point from the one before.

    `A` holds the features along its first axis, ``base = sum a_free^2``; `knots` the ends of the
    pieces (infinite where there is none), `slop` their rounding. `x`, `theta`, `t` are the state:
    the last point with its margins. `memory` is described by `MEMORY`. `X` gets the primal
    answers, `codes`, `pool` and `first` the dual ones (`cvxscreen.packed`), `record` the `COLUMNS`.
    Stops after a point that misses `tol`; returns how many points are done.
    """
    d, n = A.shape
    kept, inside = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    AU, rows = np.empty((d, n)), np.empty((15, n))
    bU, eU, qU, iU, lU, hU, tU, th, th0, dt, best_th = rows[:11]
    before, now, last_theta, flip, count = t, rows[11], theta, 0, 0
    B, H, vectors = np.empty((max(d, 64), d)), np.empty((d, d)), np.empty((5, d))
    rho, g, step, best_x, small = vectors
    k, pilot = 0, memory[0] == 0.0 and screen == CERTIFIED
    while k < factors.size:
        # The very first point is solved roughly on all terms, and then like any other.
        factor, known, new = factors[k], memory[0] > 0.0, rows[12 + flip]
        aim = max(tol, PILOT) if pilot else tol
        ratio = factor / memory[0] if known else 1.0
        size = 0.0
        for j in range(d):
            if j != free or screen == CERTIFIED:
                size += x[j] * x[j]
        size = np.sqrt(size)
        middle, share = 0.5 * (1.0 + ratio), memory[2] if screen == CERTIFIED else 1.0
        ball = radius(memory[4], ratio, size, memory[5])
        rounding = 1.2e-16 * (d + 8) * (1.0 + ratio) * size
        weight, scale, precision = memory[1] * memory[6] / factor, memory[3] * min(ratio, 1.0), 0.2
        if not known:
            scale, gap = evaluate(n, before, last_theta, b, e, q, inv, lo, hi, factor)
            weight = memory[1] / factor
        fixing = known and (screen == CERTIFIED or (screen == SAFE and free < 0))
        rounds, steps, passes, refuted, done = 0, 0, 0.0, 0, 0.0
        gap, primal, fy, gradient, m = np.inf, 0.0, np.inf, np.inf, n
        slopes, old, scaling = last_theta, memory[0], ratio
        while rounds < 8 and done == 0.0:
            rounds += 1
            if rounds >= 7 or not fixing:
                share = np.inf
            reach = share * ball + rounding
            m = choose(
                n, middle, before, reach, norms, slop, knots, lo, hi, factor, new, codes[k], kept
            )
            for j in range(d):
                total = 0.0
                for i in range(n):
                    total += A[j, i] * new[i]
                rho[j] = total
                best_x[j] = x[j]
                for p in range(m):
                    AU[j, p] = A[j, kept[p]]
            for p in range(m):
                i = kept[p]
                low, high, s = lo[i] * factor, hi[i] * factor, slopes[i]
                bU[p], eU[p], qU[p], iU[p] = b[i], e[i], q[i] / factor, inv[i] * factor
                lU[p], hU[p], tU[p] = low, high, before[i]
                at_low, at_high = s == lo[i] * old, s == hi[i] * old
                s = low if at_low else high if at_high else min(max(s * scaling, low), high)
                th0[p] = s
            if rounds > 1:
                for p in range(m):
                    tU[p] = now[kept[p]]
            gap, used, gradient = newton(
                d, m, AU, bU, eU, qU, iU, lU, hU, free, base, rho, weight,
                precision * aim * scale, 300, x, tU, th, th0, best_x, best_th, g, step, dt, inside,
                B, H, small,
            )
            steps += used
            passes += (2.0 * used + 1.0) * m / n + 2.0
            for p in range(m):
                new[kept[p]] = best_th[p]
            for i in range(n):
                now[i] = 0.0
            primal = 0.0
            for j in range(d):
                value = best_x[j]
                x[j] = value
                if j != free:
                    primal += 0.5 * value * value
                for i in range(n):
                    now[i] += value * A[j, i]
            value, fy = evaluate(n, now, new, b, e, q, inv, lo, hi, factor)
            primal += value
            gap = fy + 0.5 * gradient * gradient
            if gap <= 0.3 * aim * primal:
                done = 1.0
                break
            wrong = refutations(n, now, new, b, e, inv, lo, hi, factor, codes[k])
            refuted += wrong
            scale = min(scale, primal)
            if wrong > 0:
                share *= 3.0
                weight = min(100.0 * memory[6], 1.0) * memory[1] / factor
            else:
                precision *= 0.05
                weight = memory[1] / factor
            slopes, old, scaling = rows[14], factor, 1.0
            for i in range(n):
                slopes[i] = new[i]
        record[k, 0], record[k, 1] = m, n - m if screen == CERTIFIED else 0
        record[k, 2] += refuted
        record[k, 3] += rounds
        record[k, 4] += steps
        record[k, 5] += passes
        record[k, 6], record[k, 7] = gap, done
        if fixing and rounds == 1:
            many = m > max(4 * d, n // 8)
            memory[2] = max((0.93 if many else 0.99) * memory[2], 0.01)
        elif fixing:
            memory[2] = min(1.5 * memory[2], 1.0)
        if known:
            memory[6] = max(memory[6] / 3.0, 1e-7) if steps <= 12 else min(memory[6] * 10.0, 1.0)
        before, now, last_theta, flip = now, before, new, 1 - flip
        memory[0], memory[3], memory[4], memory[5] = factor, primal, fy, gradient
        if screen == SAFE:
            size, load = 0.0, 0.0
            for j in range(d):
                size += x[j] * x[j]
            size = np.sqrt(size)
            for i in range(n):
                load += abs(new[i]) * norms[i]
            memory[4] = charged(
                n, before, 1.2e-16 * (d + 8) * size, norms, new, b, e, q, inv, lo, hi, factor
            )
            memory[5] = gradient * (1.0 + 1e-14) + 1.2e-16 * (n + 8) * load + 4e-16 * size
        if pilot:
            pilot = False
            continue
        for j in range(d):
            X[k, j] = x[j]
        first[k] = count
        for p in range(m):
            pool[count + p] = new[kept[p]]
        count += m
        if done == 0.0:
            break
        k += 1
    for i in range(n):
        theta[i], t[i] = last_theta[i], before[i]
    return k


STRICT = frozenset[str]()
SUMS = frozenset({"contract", "reassoc", "nsz"})
"""Sums may be taken in any order: no bound here depends on it."""


@lru_cache(maxsize=1)
def compiled() -> Loop | None:
    """`run`, compiled; None without numba."""
    names = (
        "cholesky_solve", "prox", "along", "line_search", "direction", "balanced", "newton",
    )
    found = together(
        globals(),
        [(name, SUMS) for name in names]
        + [("charged", STRICT), ("radius", STRICT), ("choose", STRICT), ("evaluate", SUMS),
           ("refutations", STRICT),
           ("run", SUMS)],
    )
    return None if found is None else found["run"]
