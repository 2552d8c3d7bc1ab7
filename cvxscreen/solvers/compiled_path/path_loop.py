"""A whole path over C as one compiled loop, for problems of few coordinates.

Which terms the compiled path of `small_loops` fixes before a point, and the ball behind it.

Where the compiled path of `small_loops` expects the margins of the next point.

The margins of the last two points are carried on; where only one is known, the other is made up
from the path's tangent there. All of it is guessed: what is fixed on it is checked at the answer.

One point of the grid: classify every term by its margin at the point before, solve for the terms
near a kink with `newton`, evaluate all terms at the answer, and put back what was guessed wrong.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cvxscreen._support.compiled import Loop, together
from cvxscreen.solvers.compiled_path.newton import (  # noqa: F401 - called by name, compiled
    along,
    balanced,
    cholesky_solve,
    direction,
    line_search,
    margins,
    newton,
    prox,
    room_of,
)


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
    n, centre, reach, norms, slop, knots, lo, hi, factor, new, codes, kept
):
    """Fix terms farther than their reach from every kink; the others go to `kept`.

    `new` gets the slopes at C (0 for kept terms: what is fixed pulls on its own), `codes` those of
    `cvxscreen.certificates.path`. Returns how many are kept.
    """
    for i in range(n):
        c, slack = centre[i], reach * norms[i] + slop[i]
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


def fixed_pull(  # type: ignore[no-untyped-def]
    d, n, A, lo, hi, factor, ratio, codes, last, new, rho, changed, most
):
    """Bring `rho` to ``sum a_i new_i``; returns the share of a pass over the data that it took.

    Where at most `most` terms have another code than in `last`, from the same sum for those codes
    at ``C / ratio``, else afresh.
    """
    count = 0
    for i in range(n if most > 0 else 0):
        if codes[i] != last[i]:
            if count == most:
                most = 0
                break
            changed[count] = i
            count += 1
    if most > 0:
        for j in range(d):
            rho[j] *= ratio
        for p in range(count):
            i = changed[p]
            old = lo[i] if last[i] == 1 else hi[i] if last[i] == 2 else 0.0
            move = new[i] - old * factor
            if move != 0.0:
                for j in range(d):
                    rho[j] += move * A[j, i]
        return count / n
    for j in range(d):
        total = 0.0
        for i in range(n):
            total += A[j, i] * new[i]
        rho[j] = total
    return 1.0


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
    newton(
        d, m, AU, bU, eU, qU, iU, lU, hU, free, base / every, rho, weight / grown,
        aim * scale, np.int64(100), x, tU, th, th0, best_x, best_th, g, step, dt, inside, B, H,
        small,
    )
    for j in range(d):
        x[j] = best_x[j]
    margins(d, n, A, x, t)
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
    direction(
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


AGAIN = 0.2
"""How much less of the ball is kept where the point itself has been solved roughly."""

PILOT = 1e-3
"""Relative gap of the first point's rough solution; of many terms each next has so much less."""

COARSE = 0.1
"""Step in log C from which margins are carried on even where terms are few."""

FEW = 4000
"""Terms up to which, on a finer grid, the ball is the better guess: their margins move by jumps."""

FAR = 1e-2
"""Share of the weight to begin with after a larger step without such a guess."""

WIDER = 4.0
"""Growth of a guess's reach when the answer refutes it."""

PART, MANY, ROUGH, NARROW = 16, 2000, 1e-3, 0.2
"""Where more terms than n/16 and 2,000 are kept, and the point before took many steps, the first
solve is to a gap of 1e-3; the next keeps what is within a fifth of what that moved the margins."""

FEWER = 64
"""What fixed terms pull is brought up to date where less than n/64 of them are other ones."""

OFF, SAFE, CERTIFIED = 0, 1, 2
"""What may be fixed before a solve: nothing, what is proven, what is guessed."""

MEMORY = 12
"""Numbers carried from point to point: the last factor (0 at the start); the proximal weight times
the factor; the share of the ball that a guess reaches; the objective; the sum of Fenchel-Young
terms and ``||x - x_theta||`` (both from above when proving); the share of the weight to begin with;
the logarithm of the last two factors' ratio (0 where no margins of two points are known); how far
the margins were from what was expected, in norms of their rows; the share of their last step that
they are expected to make again; the weight whose band is as wide as the unit of margins, over the
first; the Newton steps of the last point.
"""

COLUMNS = ("kept", "predicted", "refuted", "rounds", "steps", "passes", "gap", "done")
"""Of the record that `run` fills, one row a point."""


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


def refutations(n, t, th, b, e, inv, lo, hi, factor, codes):  # type: ignore[no-untyped-def]
    """How many fixed terms are on another piece at the answer."""
    wrong = 0
    for i in range(n):
        z = t[i] - b[i]
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i]) * factor
        wrong += (r != th[i]) & (codes[i] != 3)
    return wrong


def run(  # type: ignore[no-untyped-def]
    A, R, b, e, q, inv, lo, hi, norms, slop, knots, free, base, factors, screen, tol, x, theta, t,
    older, memory, X, codes, pool, first, record,
):
    """Solve at ``C0 * factors[k]`` for every k, each point from the one before.

    `A` holds the features along its first axis, `R` the terms; ``base = sum a_free^2``; `knots` the
    ends of the pieces (infinite where there is none), `slop` their rounding. `x`, `theta`, `t` are
    the state: the last point with its margins; `older` gets the margins of the one before. `memory`
    is described by `MEMORY`. `X` gets the primal answers, `codes`, `pool` and `first` the dual ones
    (`cvxscreen.certificates.path`), `record` the `COLUMNS`.
    Stops after a point that misses `tol`; returns how many points are done.
    """
    d, n = A.shape
    kept, inside = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    AU, rows = np.empty((d, n)), np.empty((16, n))
    # numba takes what is unpacked from a slice for strided, and vectorises nothing.
    bU, eU, qU, iU, lU, hU = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    tU, th, th0, dt, best_th = rows[6], rows[7], rows[8], rows[9], rows[10]
    before, now, centre, last_theta, flip, count = t, rows[11], rows[15], theta, 0, 0
    B, H, vectors = np.empty((max(d, 64), 128)), np.empty((d, d)), np.empty((5, d))
    rho, g, step, best_x, small = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    k, begin, limit, pilot = 0, 1.0, np.int64(300), memory[0] == 0.0 and screen == CERTIFIED
    aim = max(tol, PILOT) if pilot else tol
    if pilot and n >= 4 * SAMPLE:
        begin = band(memory, sample(
            d, n, A, R, b, e, q, inv, lo, hi, free, base, factors[0], memory[1], aim,
            x, before, AU, bU, eU, qU, iU, lU, hU, tU, th, th0, best_x, best_th, rho, g, step, dt,
            inside, B, H, small,
        ))
    while k < factors.size:
        # The very first point is solved roughly on all terms, and then, in steps, like any other.
        factor, known, new = factors[k], memory[0] > 0.0, rows[12 + flip]
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
            weight = begin * memory[1] / factor
        fixing = known and (screen == CERTIFIED or (screen == SAFE and free < 0))
        rounds, steps, passes, refuted, done, worst, off = 0, 0, 0.0, 0, 0.0, 0.0, 0.0
        stride = np.log(ratio)
        guess = screen == CERTIFIED and stride != 0.0 and (abs(stride) > COARSE or n > FEW)
        if guess:
            if memory[7] == 0.0:
                tangent(
                    d, n, A, b, e, q, lo, hi, free, base, x, last_theta, memory, ratio, before,
                    older, AU, qU, eU, lU, hU, tU, inside, B, H, small, g, step,
                )
                memory[8] = OUT * ball
            ball, share = foresee(n, before, older, norms, centre, memory, stride, LOW * ball), 1.0
        else:
            share *= AGAIN if screen == CERTIFIED and stride == 0.0 and n > FEW else 1.0
            scaled(n, middle, before, centre)
        gap, primal, fy, gradient, m = np.inf, 0.0, np.inf, np.inf, n
        staged = guess and aim < ROUGH and memory[11] > 12.0
        at, slopes, old, scaling = before, last_theta, memory[0], ratio
        while rounds < 8 and done == 0.0:
            rounds += 1
            if rounds >= 7 or not fixing:
                share = np.inf
            reach = share * ball + rounding
            m = choose(n, centre, reach, norms, slop, knots, lo, hi, factor, new, codes[k], kept)
            passes += fixed_pull(
                d, n, A, lo, hi, factor, ratio, codes[k], codes[k - 1], new, rho, inside,
                n // FEWER if rounds == 1 and k > 0 else 0,
            )
            scaled(d, 1.0, x, best_x)
            for p in range(m):
                i = kept[p]
                for j in range(d):
                    AU[j, p] = R[i, j]
                low, high, s = lo[i] * factor, hi[i] * factor, slopes[i]
                bU[p], eU[p], qU[p], iU[p] = b[i], e[i], q[i] / factor, inv[i] * factor
                lU[p], hU[p], tU[p] = low, high, at[i]
                at_low, at_high = s == lo[i] * old, s == hi[i] * old
                s = low if at_low else high if at_high else min(max(s * scaling, low), high)
                th0[p], best_th[p] = s, s  # the answer where no pair can be balanced
            rough = staged and rounds == 1 and m > max(n // PART, MANY)
            target = precision * scale * (ROUGH if rough else aim)
            gap, used, gradient = newton(
                d, m, AU, bU, eU, qU, iU, lU, hU, free, base, rho, weight, target, limit,
                x, tU, th, th0, best_x, best_th, g, step, dt, inside, B, H, small,
            )
            missed, steps = gap > target, steps + used
            passes += (2.0 * used + 1.0) * m / n + 1.0
            for p in range(m):
                new[kept[p]] = best_th[p]
            primal = 0.0
            for j in range(d):
                x[j] = best_x[j]
                if j != free:
                    primal += 0.5 * x[j] * x[j]
            margins(d, n, A, x, now)
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
                share *= WIDER if guess else 3.0
                weight = min(100.0 * memory[6], 1.0) * memory[1] / factor
            elif rough:
                worst, off = deviation(n, now, centre, norms)
                scaled(n, 1.0, now, centre)
                ball = NARROW * worst
                weight = band(memory, NARROW * off) * memory[1] / factor
            else:
                precision *= 0.05
                share *= WIDER if missed else 1.0  # too few may be left to balance the others
                weight = memory[1] / factor
            at, slopes, old, scaling = now, rows[14], factor, 1.0
            for i in range(n):
                slopes[i] = new[i]
        record[k, 0], record[k, 1] = m, n - m if screen == CERTIFIED else 0
        record[k, 2] += refuted
        record[k, 3] += rounds
        record[k, 4] += steps
        record[k, 5] += passes
        record[k, 6], record[k, 7] = gap, done
        if guess:
            learn(n, now, centre, before, older, norms, memory, stride, steps, worst, off)
        elif known:
            many = m > max(4 * d, n // 8)
            if fixing and rounds == 1:
                memory[2] = max((0.93 if many else 0.99) * memory[2], 0.01)
            elif fixing:
                memory[2] = min(1.5 * memory[2], 1.0)
            memory[7] = 0.0
            memory[6] = max(memory[6] / 3.0, 1e-7) if steps <= 12 else min(memory[6] * 10.0, 1.0)
            if abs(stride) > 2.0 * COARSE:
                memory[6] = FAR
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
            pilot, aim = n > FEW and aim * PILOT > tol, max(aim * PILOT, tol) if n > FEW else tol
            continue
        scaled(d, 1.0, x, X[k])
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
        "margins", "cholesky_solve", "prox", "along", "line_search", "direction", "room_of",
        "balanced", "newton", "tangent", "expect", "deviation", "band", "foresee", "learn",
        "sample", "scaled", "evaluate", "fixed_pull",
    )
    kinds = [(name, SUMS) for name in names]
    kinds += [(name, STRICT) for name in ("charged", "radius", "choose", "refutations")]
    found = together(globals(), [*kinds, ("run", SUMS)])
    return None if found is None else found["run"]
