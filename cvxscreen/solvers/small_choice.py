"""Which terms the compiled path of `small_loops` fixes before a point, and the ball behind it."""

from __future__ import annotations

import numpy as np


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
    `cvxscreen.packed`. Returns how many are kept.
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
