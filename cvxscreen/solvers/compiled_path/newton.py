"""The inner solver of `small_loops`: semismooth Newton on the dual proximal point, compiled.

The method of `Newton` over arrays: features lie along the first axis (``A[j, i] = a_ij``), so that
every loop over terms is contiguous. A loss is ``b, e, q, lo, hi`` as in `cvxscreen.core.losses`;
its slope is written without branches, with ``inv = 1/q`` and a huge number where ``q = 0``.
"""

from __future__ import annotations

import numpy as np


def cholesky_solve(H, v, m):  # type: ignore[no-untyped-def]
    """Overwrite `v` by ``H^{-1} v`` and the lower triangle of `H` by its factor; size m."""
    for i in range(m):
        size = abs(H[i, i])
        for j in range(i):
            total = H[i, j]
            for k in range(j):
                total -= H[i, k] * H[j, k]
            H[i, j] = total / H[j, j]
        total = H[i, i]
        for k in range(i):
            total -= H[i, k] * H[i, k]
        H[i, i] = np.sqrt(max(total, 1e-15 * size + 1e-300))
    for i in range(m):
        total = v[i]
        for k in range(i):
            total -= H[i, k] * v[k]
        v[i] = total / H[i, i]
    for i in range(m - 1, -1, -1):
        v[i] /= H[i, i]
        for k in range(i):
            v[k] -= H[i, k] * v[i]


def margins(d, m, A, x, t):  # type: ignore[no-untyped-def]
    """Write ``sum_j x_j a_ij`` to `t`, four coordinates at a time."""
    for i in range(m):
        t[i] = 0.0
    j = 0
    while j + 4 <= d:
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(m):
            t[i] += x0 * A[j, i] + x1 * A[j + 1, i] + x2 * A[j + 2, i] + x3 * A[j + 3, i]
        j += 4
    while j < d:
        value = x[j]
        for i in range(m):
            t[i] += value * A[j, i]
        j += 1


def prox(m, t, b, e, q, inv, lo, hi, th0, weight, th):  # type: ignore[no-untyped-def]
    """The smoothed slopes `th`; returns ``sum FY(t, th)`` and ``sum (th - th0)^2``."""
    fy, moved = 0.0, 0.0
    for i in range(m):
        z = t[i] - b[i]
        y = z + weight * th0[i]
        y -= min(max(y, -e[i]), e[i])
        s = min(max(y / (q[i] + weight), lo[i]), hi[i])
        th[i] = s
        moved += (s - th0[i]) ** 2
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i])
        fy += z * (r - s) - e[i] * (abs(r) - abs(s)) - 0.5 * q[i] * (r - s) * (r + s)
    return fy, moved


def along(m, t, dt, b, e, q, lo, hi, th0, weight, size):  # type: ignore[no-untyped-def]
    """``sum dt_i th_i`` with the smoothed slopes at ``t + size dt``."""
    total = 0.0
    for i in range(m):
        y = t[i] + size * dt[i] - b[i] + weight * th0[i]
        y -= min(max(y, -e[i]), e[i])
        total += dt[i] * min(max(y / (q[i] + weight), lo[i]), hi[i])
    return total


def line_search(  # type: ignore[no-untyped-def]
    m, t, dt, b, e, q, lo, hi, th0, weight, start, constant, curvature
):
    """A root of the derivative along a direction (Illinois method), to a tenth; `start` is at 0."""
    if start >= 0.0:
        return 0.0
    low, f_low, high, f_high = 0.0, start, 0.0, 0.0
    size, side, close = 1.0, 0, 0.1 * abs(start)
    for _ in range(100):
        value = constant + size * curvature
        value += along(m, t, dt, b, e, q, lo, hi, th0, weight, size)
        if abs(value) <= close:
            return size
        if value < 0.0:
            low, f_low = size, value
            if high == 0.0:
                size *= 4.0
                continue
            if side == -1:
                f_high *= 0.5
            side = -1
        else:
            high, f_high = size, value
            if side == 1:
                f_low *= 0.5
            side = 1
        if high - low <= 1e-14 * high:
            return size
        size = (low * f_high - high * f_low) / (f_high - f_low)
    return low if low > 0.0 else size


def direction(  # type: ignore[no-untyped-def]
    d, m, A, q, e, lo, hi, th, g, free, weight, base, inside, B, H, small, step
):
    """The Newton step; returns the number of terms that bend. Woodbury where they are few."""
    count = np.int64(0)
    for i in range(m):
        s = th[i]
        inside[count] = i
        if (s > lo[i]) and (s < hi[i]) and (e[i] == 0.0 or s != 0.0):
            count += 1
    if free < 0 and count < d:
        for p in range(count):
            i = inside[p]
            for j in range(d):
                B[p, j] = A[j, i]
        for p in range(count):
            total = 0.0
            for j in range(d):
                total += B[p, j] * g[j]
            small[p] = total
            for r in range(p + 1):
                total = 0.0
                for j in range(d):
                    total += B[p, j] * B[r, j]
                H[p, r] = total
            H[p, p] += q[inside[p]] + weight
        cholesky_solve(H, small, count)
        for j in range(d):
            step[j] = -g[j]
        for p in range(count):
            for j in range(d):
                step[j] += B[p, j] * small[p]
        return count
    for j in range(d):
        for k in range(j + 1):
            H[j, k] = 0.0
        H[j, j] = 1.0
        step[j] = -g[j]
    if free >= 0:
        H[free, free] = 1e-8 * base / weight + 1e-12
    width = B.shape[1]
    for first in range(0, count, width):
        last = min(first + width, count)
        for p in range(first, last):
            i = inside[p]
            scale = 1.0 / np.sqrt(q[i] + weight)
            for j in range(d):
                B[j, p - first] = A[j, i] * scale
        for j in range(d):
            for k in range(j + 1):
                total = 0.0
                for p in range(last - first):
                    total += B[j, p] * B[k, p]
                H[j, k] += total
    cholesky_solve(H, step, d)
    return count


def room_of(i, A, free, lo, hi, th):  # type: ignore[no-untyped-def]
    """How far term i can move the imbalance either way."""
    return min(th[i] - lo[i], hi[i] - th[i]) * abs(A[free, i])


def balanced(m, A, free, g, t, b, e, q, lo, hi, th, last):  # type: ignore[no-untyped-def]
    """The term that takes up the imbalance ``g_free``, its move, and what that adds to the terms.

    The one with most room; `last`, which had it before, where it still has much more than needed.
    Infinite cost where no single term has the room, unless the imbalance is mere rounding.
    """
    best, need = last, abs(g[free])
    if last < 0 or not room_of(last, A, free, lo, hi, th) >= 100.0 * need:
        best, room = np.int64(-1), 0.0
        for i in range(m):
            this = room_of(i, A, free, lo, hi, th)
            if this > room:
                best, room = i, this
        if best < 0 or room < need:
            load = 0.0
            for i in range(m):
                load += abs(th[i] * A[free, i])
            return best, 0.0, 0.0 if need <= 1e-15 * load else np.inf
    i = best
    move = -g[free] / A[free, i]
    z = t[i] - b[i]
    new = th[i] + move
    cost = e[i] * (abs(new) - abs(th[i])) + 0.5 * q[i] * (new - th[i]) * (new + th[i]) - z * move
    return i, move, cost


def newton(  # type: ignore[no-untyped-def]
    d, m, A, b, e, q, inv, lo, hi, free, base, rho, weight, target, limit,
    x, t, th, th0, best_x, best_th, g, step, dt, inside, B, H, small,
):
    """Solve the kept problem from ``(x, t, th0)`` to an absolute gap of `target`.

    The best pair is left in `best_x`, `best_th`. Returns its gap, the number of Newton steps and
    its ``||g||``.
    """
    best, best_g = np.inf, np.inf
    steps, used, since, at = 0, 0, 0, np.int64(-1)
    least = 1e-20 * weight
    while True:
        fy, moved = prox(m, t, b, e, q, inv, lo, hi, th0, weight, th)
        square = 0.0
        for j in range(d):
            total = rho[j]
            if j != free:
                total += x[j]
            for i in range(m):
                total += A[j, i] * th[i]
            g[j] = total
            if j != free:
                square += total * total
        stationarity, gap, move = square, fy + 0.5 * square, 0.0
        if free >= 0:
            at, move, cost = balanced(m, A, free, g, t, b, e, q, lo, hi, th, at)
            gap = np.inf
            if cost < np.inf:
                square = 0.0
                for j in range(d):
                    if j != free:
                        square += (g[j] + move * A[j, at]) ** 2
                gap = max(fy + cost, 0.0) + 0.5 * square
            bend = 1e-6 * base / weight + 1e-300
            for i in range(m):
                bent = (th[i] > lo[i]) & (th[i] < hi[i])
                bend += bent * A[free, i] ** 2 / (q[i] + weight)
            stationarity += g[free] ** 2 / bend
        if gap < best:
            since = 0 if gap < 0.999 * best else since + 1
            best, best_g = gap, np.sqrt(square)
            for j in range(d):
                best_x[j] = x[j]
            for i in range(m):
                best_th[i] = th[i]
            if move != 0.0:
                best_th[at] = min(max(best_th[at] + move, lo[at]), hi[at])
        else:
            since += 1
        if best <= target or steps >= limit or since > 60:
            return best, steps, best_g
        if stationarity <= 0.09 * weight * moved or stationarity == 0.0:
            for i in range(m):
                th0[i] = th[i]
            weight /= 10.0 if used <= 4 else 4.0 if used <= 8 else 2.0
            weight = max(weight, least)
            used = 0
            continue
        if used >= 12:
            weight *= 4.0
            used = 0
            continue
        count = direction(
            d, m, A, q, e, lo, hi, th, g, free, weight, base, inside, B, H, small, step
        )
        if count == 0 and used > 0:
            weight *= 4.0
            used = 0
            continue
        margins(d, m, A, step, dt)
        start, constant, curvature = 0.0, 0.0, 0.0
        for j in range(d):
            start += step[j] * g[j]
            constant += step[j] * rho[j]
            if j != free:
                constant += step[j] * x[j]
                curvature += step[j] * step[j]
        size = line_search(
            m, t, dt, b, e, q, lo, hi, th0, weight, start, constant, curvature
        )
        for j in range(d):
            x[j] += size * step[j]
        for i in range(m):
            t[i] += size * dt[i]
        steps += 1
        used += 1
        if steps % 20 == 0:
            margins(d, m, A, x, t)
        if size == 0.0:
            weight *= 2.0
            since += 5
