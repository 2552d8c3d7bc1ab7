"""A whole path over C as one compiled loop, for problems of few coordinates.

One point of the grid: classify every term by its margin at the point before, solve for the terms
near a kink by `newton`, evaluate all terms at the answer, and put back what was guessed wrong.

`newton` is the semismooth Newton method of `cvxscreen.solvers.newton.Newton` over arrays. Features
lie along the first axis (``A[j, i] = a_ij``), so that every loop over terms is contiguous. The
slope of a loss is written without branches, with ``inv = 1/q`` and a huge number where ``q = 0``.

Terms are fixed within a ball around the point before (`radius`), or around the margins that are
expected here: those of the last two points, carried on. That is guessed, and checked at the answer.

Every function is compiled by itself when it is first called, and can be called alone. `follow_path`
gets `newton` as an argument, by its type: numba would otherwise optimise all of it again within the
loop. Uncompiled (`follow_path.py_func`) it is the same loop, with the work in the compiled parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import SUMS, compiled

Array = NDArray[np.float64]

# -- what the loops work on -----------------------------------------------------------------------


class Terms(NamedTuple):
    """Losses as in `cvxscreen.core.losses`, with their rows.

    Attributes
    ----------
    A : array, shape (d, n)
        Rows of the data as columns.
    b, e, q, inv, lo, hi : array, shape (n,)
        ``inv = 1 / max(q, tiny)``.
    """

    A: Array
    b: Array
    e: Array
    q: Array
    inv: Array
    lo: Array
    hi: Array


class Data(NamedTuple):
    """What stays the same along a path.

    Attributes
    ----------
    terms : Terms
        All n, at factor 1.
    norms, knot_error : array, shape (n,)
        What a unit of a ball's radius moves a margin by; the rounding of the knots.
    knots : array, shape (4, n)
        The ends of the pieces, infinite where there is none.
    free : int
        The unpenalised coordinate; -1 without one.
    base : float
        ``sum a_free^2``.
    """

    terms: Terms
    norms: Array
    knot_error: Array
    knots: Array
    free: int
    base: float


class Workspace(NamedTuple):
    """Arrays of `newton`; only the first m numbers of those of length n are in use.

    Attributes
    ----------
    x, best_x : array, shape (d,)
        Where it stands, and the best it has seen.
    rho : array, shape (d,)
        ``sum a_i theta_i`` over the fixed terms.
    g, step, small : array, shape (d,)
        Gradient, Newton step, right-hand side of Woodbury's system.
    t, dt : array, shape (n,)
        Margins, and how they change along the step; before it is known, factors of the rows.
    theta, theta0, best_theta : array, shape (n,)
        Smoothed slopes, the proximal centre, the best dual point.
    inside : array of int64, shape (n + 1,)
        Terms on a curved piece.
    B : array, shape (max(d, 64), max(d, 128))
        A strip of scaled rows.
    H : array, shape (d, d)
    """

    x: Array
    best_x: Array
    rho: Array
    g: Array
    step: Array
    small: Array
    t: Array
    dt: Array
    theta: Array
    theta0: Array
    best_theta: Array
    inside: NDArray[np.int64]
    B: Array
    H: Array

    @classmethod
    def of_size(cls, d: int, n: int) -> Workspace:
        """For n terms of d coordinates."""
        vectors = [*np.zeros((6, d)), *np.zeros((5, n))]
        tables = [np.empty(n + 1, np.int64), np.empty((max(d, 64), max(d, 128))), np.empty((d, d))]
        return cls._make([*vectors, *tables])


class Margins(NamedTuple):
    """Vectors over all terms, shape (n,), from which one point follows another.

    Attributes
    ----------
    t, older : array
        Margins of the last point and of the one before it.
    theta : array
        Slopes of the last point.
    centre, now : array
        Margins that are expected, and those of the answer.
    new, slopes : array
        Slopes of the answer, and of the answer before in the same point.
    kept : array of int64, shape (n + 1,)
        Terms that are solved for.
    """

    t: Array
    older: Array
    theta: Array
    centre: Array
    now: Array
    new: Array
    slopes: Array
    kept: NDArray[np.int64]

    @classmethod
    def of_size(cls, n: int) -> Margins:
        """Arrays of zeros for n terms."""
        return cls._make([*np.zeros((7, n)), np.zeros(n + 1, np.int64)])


class PathOutput(NamedTuple):
    """The points of a stretch, K of them.

    The caller makes the arrays, and the loop fills them.

    Attributes
    ----------
    X : array, shape (K, d)
    codes : array of int8, shape (K, n)
    pool, first : arrays
        Dual points as in `cvxscreen.certificates.many.PackedSlopes`.
    record : array, shape (K, len(COLUMNS))
    """

    X: Array
    codes: NDArray[np.int8]
    pool: Array
    first: NDArray[np.int64]
    record: Array


class PathOptions(NamedTuple):
    """What is asked for.

    Attributes
    ----------
    factors : array, shape (K,)
        Values of C over that of the data, in the order to solve them.
    screen : int
        `OFF`, `SAFE` or `CERTIFIED`.
    tol : float
        Relative gap.
    begin : float
        Share of the proximal weight to begin the very first point with.
    rough : float
        Relative gap to which that is solved first, on all terms; not used where it is no more than
        `tol`.
    """

    factors: Array
    screen: int
    tol: float
    begin: float
    rough: float


KEPT, PREDICTED, REFUTED, ROUNDS, STEPS, PASSES, GAP, DONE = range(8)
COLUMNS = ("kept", "predicted", "refuted", "rounds", "steps", "passes", "gap", "done")
"""Of `PathOutput.record`, one row a point."""

STATE = np.dtype([
    ("factor", "f8"),  # C of the last point over that of the data; 0 before the first
    ("weight", "f8"),  # proximal weight times the factor
    ("share", "f8"),  # of the ball, that a guess reaches
    ("primal", "f8"),  # objective of the last point
    ("terms", "f8"),  # its sum of Fenchel-Young terms, from above when proving
    ("distance", "f8"),  # its ||x - x_theta||, from above when proving
    ("begin", "f8"),  # share of the weight to begin a solve with
    ("stride", "f8"),  # log of the last two factors' ratio; 0 with one point, inf with a sample's
    ("error", "f8"),  # how far margins were from what was expected, in norms of their rows
    ("follow", "f8"),  # share of the margins' last step that they are expected to make again
    ("unit", "f8"),  # weight whose band is as wide as the unit of margins, over the first
    ("steps", "f8"),  # Newton steps of the last point
])
"""The numbers that are carried from point to point."""
RECORD = np.dtype((np.record, STATE))
"""Of an array whose entries have them as attributes."""

OFF, SAFE, CERTIFIED = 0, 1, 2
"""What may be fixed before a solve: nothing, what is proven, what is guessed."""

# -- Newton's method on the kept terms ------------------------------------------------------------


@compiled(fastmath=SUMS, allocates=False)
def cholesky_solve(H: Any, v: Any, m: Any) -> None:
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


@compiled(fastmath=SUMS, allocates=False)
def margins(m: Any, A: Any, x: Any, t: Any) -> None:
    """Write ``sum_j x_j a_ij`` to `t`, four of the coordinates at a time that both have."""
    d = min(x.size, A.shape[0])
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


@compiled(fastmath=SUMS, allocates=False, alone=False)
def smoothed_slopes(m: Any, terms: Any, work: Any, weight: Any) -> Any:
    """Write the smoothed slopes `theta`; ``sum FY(t, theta)`` and ``sum (theta - theta0)^2``."""
    t, b, e, q, inv, lo, hi = work.t, terms.b, terms.e, terms.q, terms.inv, terms.lo, terms.hi
    theta, theta0 = work.theta, work.theta0
    fy, moved = 0.0, 0.0
    for i in range(m):
        # s minimises f*(s) - t s + weight/2 (s - theta0)^2 with f*(s) = b s + e|s| + q/2 s^2 on
        # [lo, hi]: the stationary point, soft-thresholded by e and clipped to the box.
        z = t[i] - b[i]
        y = z + weight * theta0[i]
        y -= min(max(y, -e[i]), e[i])
        s = min(max(y / (q[i] + weight), lo[i]), hi[i])
        theta[i] = s
        moved += (s - theta0[i]) ** 2
        # r is the slope of the loss itself, so f(t) = r z - e|r| - q/2 r^2, and the
        # Fenchel-Young term f(t) + f*(s) - t s is a difference of the two at r and s.
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i])
        fy += z * (r - s) - e[i] * (abs(r) - abs(s)) - 0.5 * q[i] * (r - s) * (r + s)
    return fy, moved


@compiled(fastmath=SUMS, allocates=False, alone=False)
def slope_along(m: Any, terms: Any, work: Any, weight: Any, size: Any) -> Any:
    """``sum dt_i theta_i`` with the smoothed slopes at ``t + size dt``."""
    t, dt, theta0 = work.t, work.dt, work.theta0
    b, e, q, lo, hi = terms.b, terms.e, terms.q, terms.lo, terms.hi
    total = 0.0
    for i in range(m):
        y = t[i] + size * dt[i] - b[i] + weight * theta0[i]
        y -= min(max(y, -e[i]), e[i])
        total += dt[i] * min(max(y / (q[i] + weight), lo[i]), hi[i])
    return total


@compiled(fastmath=SUMS, allocates=False, alone=False)
def line_search(
    m: Any, terms: Any, work: Any, weight: Any, start: Any, constant: Any, curvature: Any
) -> Any:
    """A root of the derivative along the step (Illinois method), to a tenth of `start`.

    That is its value at 0; ``constant + size curvature`` is the share in it of the quadratic and
    the fixed terms.
    """
    if start >= 0.0:
        return 0.0
    low, f_low, high, f_high = 0.0, start, 0.0, 0.0
    size, side, close = 1.0, 0, 0.1 * abs(start)
    for _ in range(100):
        value = constant + size * curvature
        value += slope_along(m, terms, work, weight, size)
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


@compiled(fastmath=SUMS, allocates=False, alone=False)
def add_products(B: Any, m: Any, width: Any, H: Any) -> None:
    """Add ``B B'`` to the lower triangle of `H`, of the first m rows and `width` columns of `B`.

    Two rows by two at a time: each number is loaded half as often. (8,000 x 80, half of the terms
    curved: 2.7 ms and 3.9; 240 of 256 coordinates: 0.43 and 2.3.)
    """
    for j in range(0, m - 1, 2):
        for k in range(0, j + 1, 2):
            here, right, below, across = 0.0, 0.0, 0.0, 0.0
            for p in range(width):
                here += B[j, p] * B[k, p]
                right += B[j, p] * B[k + 1, p]
                below += B[j + 1, p] * B[k, p]
                across += B[j + 1, p] * B[k + 1, p]
            H[j, k] += here
            H[j + 1, k] += below
            H[j + 1, k + 1] += across
            if k < j:
                H[j, k + 1] += right
    if m % 2:
        for k in range(m):
            total = 0.0
            for p in range(width):
                total += B[m - 1, p] * B[k, p]
            H[m - 1, k] += total


@compiled(fastmath=SUMS, allocates=False, alone=False)
def direction(m: Any, terms: Any, work: Any, free: Any, base: Any, weight: Any) -> Any:
    """The Newton step; returns how many terms have curvature. Woodbury where they are few."""
    A, q, e, lo, hi = terms.A, terms.q, terms.e, terms.lo, terms.hi
    theta, g, inside, B, H = work.theta, work.g, work.inside, work.B, work.H
    small, step, scale = work.small, work.step, work.dt
    d, count = A.shape[0], np.int64(0)
    for i in range(m):
        s = theta[i]
        inside[count] = i
        if (s > lo[i]) and (s < hi[i]) and (e[i] == 0.0 or s != 0.0):
            count += 1
    # The Hessian is I + sum_K a_i a_i' / (q_i + weight), K the terms inside their box. With fewer
    # of them than coordinates, Woodbury: (I + B'S B)^{-1} g = g - B'(S^{-1} + B B')^{-1} B g.
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
            for r in range(p):
                H[p, r] = 0.0
            H[p, p] = q[inside[p]] + weight
        add_products(B, count, d, H)
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
    if free >= 0:  # nothing penalises it: a small share of the largest curvature it can get
        H[free, free] = 1e-8 * base / weight + 1e-12
    # H gets its sum of outer products from strips that stay in the cache, as sums over terms.
    for p in range(count):
        scale[p] = 1.0 / np.sqrt(q[inside[p]] + weight)
    width = B.shape[1]
    for first in range(0, count, width):
        last = min(first + width, count)
        for j in range(d):
            for p in range(first, last):
                B[j, p - first] = A[j, inside[p]] * scale[p]
        add_products(B, d, last - first, H)
    cholesky_solve(H, step, d)
    return count


@compiled(fastmath=SUMS, allocates=False, alone=False)
def room_in_box(i: Any, terms: Any, theta: Any, free: Any) -> Any:
    """How far term i can move the imbalance either way."""
    return min(theta[i] - terms.lo[i], terms.hi[i] - theta[i]) * abs(terms.A[free, i])


@compiled(fastmath=SUMS, allocates=False, alone=False)
def balanced(m: Any, terms: Any, work: Any, free: Any, last: Any) -> Any:
    """The term that takes up the imbalance ``g_free``, its move, and what that adds to the terms.

    The one with most room; `last`, which had it before, where it still has much more than needed.
    Infinite cost where no single term has the room, unless the imbalance is mere rounding.
    """
    theta, imbalance = work.theta, work.g[free]
    best, need = last, abs(imbalance)
    if last < 0 or not room_in_box(last, terms, theta, free) >= 100.0 * need:
        best, room = np.int64(-1), 0.0
        for i in range(m):
            this = room_in_box(i, terms, theta, free)
            if this > room:
                best, room = i, this
        if best < 0 or room < need:
            load = 0.0
            for i in range(m):
                load += abs(theta[i] * terms.A[free, i])
            return best, 0.0, 0.0 if need <= 1e-15 * load else np.inf
    i = best
    move = -imbalance / terms.A[free, i]
    z, s = work.t[i] - terms.b[i], theta[i]
    new = s + move
    cost = terms.e[i] * (abs(new) - abs(s)) + 0.5 * terms.q[i] * (new - s) * (new + s) - z * move
    return i, move, cost


@compiled(fastmath=SUMS, allocates=False, passed=True)
def newton(
    m: Any, terms: Any, work: Any, free: Any, base: Any, weight: Any, target: Any, limit: Any
) -> Any:
    """Solve for the first m of `terms`, the others being fixed, to an absolute gap of `target`.

    From ``x, t, theta0`` of `work` in at most `limit` steps; `weight` is that of the proximal term.
    The best pair is left in `best_x` and `best_theta`. Returns its gap, the number of Newton steps
    and its ``||g||``.
    """
    A, q, lo, hi = terms.A, terms.q, terms.lo, terms.hi
    x, t, theta, g, step = work.x, work.t, work.theta, work.g, work.step
    d, best, best_g = A.shape[0], np.inf, np.inf
    steps, used, since, at = 0, 0, 0, np.int64(-1)
    least = 1e-20 * weight
    while True:
        # g = x + rho + A' theta is x - x_theta (M = I): with exact slopes its size is both
        # the gradient and, squared and halved, the regulariser's part of the gap.
        fy, moved = smoothed_slopes(m, terms, work, weight)
        square = 0.0
        for j in range(d):
            total = work.rho[j]
            if j != free:
                total += x[j]
            for i in range(m):
                total += A[j, i] * theta[i]
            g[j] = total
            if j != free:
                square += total * total
        stationarity, gap, move = square, fy + 0.5 * square, 0.0
        if free >= 0:
            # A dual point must have g_free = 0; one term is moved to make it so, at a cost.
            at, move, cost = balanced(m, terms, work, free, at)
            gap = np.inf
            if cost < np.inf:
                square = 0.0
                for j in range(d):
                    if j != free:
                        # Without a move `at` may be none, and what lies there any number.
                        square += (g[j] + (move * A[j, at] if move != 0.0 else 0.0)) ** 2
                gap = max(fy + cost, 0.0) + 0.5 * square
            curve = 1e-6 * base / weight + 1e-300
            for i in range(m):
                bent = (theta[i] > lo[i]) & (theta[i] < hi[i])
                curve += bent * A[free, i] ** 2 / (q[i] + weight)
            stationarity += g[free] ** 2 / curve
        if gap < best:
            since = 0 if gap < 0.999 * best else since + 1
            best, best_g = gap, np.sqrt(square)
            for j in range(d):
                work.best_x[j] = x[j]
            for i in range(m):
                work.best_theta[i] = theta[i]
            if move != 0.0:
                work.best_theta[at] = min(max(work.best_theta[at] + move, lo[at]), hi[at])
        else:
            since += 1
        if best <= target or steps >= limit or since > 60:
            return best, steps, best_g
        # The proximal step is solved well enough, in the sense of Rockafellar's criterion (error at
        # most 0.3 of the step): move its centre, and take a longer one the easier it was.
        if stationarity <= 0.09 * weight * moved or stationarity == 0.0:
            for i in range(m):
                work.theta0[i] = theta[i]
            weight /= 10.0 if used <= 4 else 4.0 if used <= 8 else 2.0
            weight = max(weight, least)
            used = 0
            continue
        if used >= 12:  # too hard: a heavier proximal term makes the slopes smoother
            weight *= 4.0
            used = 0
            continue
        count = direction(m, terms, work, free, base, weight)
        if count == 0 and used > 0:  # no term has curvature: the step would be a gradient step
            weight *= 4.0
            used = 0
            continue
        margins(m, A, step, work.dt)
        start, constant, curvature = 0.0, 0.0, 0.0
        for j in range(d):
            start += step[j] * g[j]
            constant += step[j] * work.rho[j]
            if j != free:
                constant += step[j] * x[j]
                curvature += step[j] * step[j]
        size = line_search(m, terms, work, weight, start, constant, curvature)
        for j in range(d):
            x[j] += size * step[j]
        for i in range(m):
            t[i] += size * work.dt[i]
        steps += 1
        used += 1
        if steps % 20 == 0:  # t is kept by updates; their rounding adds up
            margins(m, A, x, t)
        if size == 0.0:
            weight *= 2.0
            since += 5


# -- what may be fixed, and what the full data say ------------------------------------------------


@compiled(allocates=False)
def fenchel_young_above(t: Any, error: Any, norms: Any, theta: Any, terms: Any, factor: Any) -> Any:
    """Upper bound of ``sum FY(t, theta)`` for margins within ``error * norms`` of `t`.

    A term is convex in t, so it is largest at an end; its rounding is charged where it is not
    identically zero there.
    """
    b, e, q, inv, lo, hi = terms.b, terms.e, terms.q, terms.inv, terms.lo, terms.hi
    n, total = t.size, 0.0
    for i in range(n):
        s, worst, curve = theta[i], 0.0, 0.5 * q[i] / factor
        reach = error * norms[i] + 4.5e-16 * abs(t[i])
        if e[i] > 0.0:
            reach += 4.5e-16 * (abs(b[i]) + e[i])
        for side in (-1.0, 1.0):
            z = t[i] + side * reach - b[i]
            y = z - min(max(z, -e[i]), e[i])
            r = min(max(y * inv[i], lo[i]), hi[i]) * factor
            value = z * (r - s) - e[i] * (abs(r) - abs(s)) - curve * (r - s) * (r + s)
            size = (abs(z) + curve * abs(r + s)) * abs(r - s) + e[i] * abs(abs(r) - abs(s))
            worst = max(worst, max(value, 0.0) + 2e-15 * (size + curve * r * r))
        total += worst
    return total * (1.0 + 2.3e-16 * (n + 8))


@compiled(allocates=False)
def radius(fy: Any, ratio: Any, size: Any, gradient: Any) -> Any:
    """Radius of the ball around ``(1 + ratio)/2 x`` that holds the optimum at ``ratio C``.

    The midpoint ball of ``(x, ratio theta)``, moved from ``(x + ratio x_theta)/2``; `gradient` is
    ``||x - x_theta||`` and `fy` the sum of the Fenchel-Young terms, both from above.
    """
    apart = abs(1.0 - ratio) * size + ratio * gradient
    return (np.sqrt(ratio * fy + 0.25 * apart * apart) + 0.5 * ratio * gradient) * (1.0 + 2e-14)


@compiled(allocates=False)
def fix_terms(
    data: Any, centre: Any, reach: Any, factor: Any, new: Any, codes: Any, kept: Any
) -> Any:
    """Fix terms farther than their reach from every kink; the others go to `kept`.

    `new` gets the slopes at C (0 for kept terms: ``sum a_i theta_i`` of what is fixed is taken from
    it), `codes` those of `cvxscreen.certificates.many`. Returns how many are kept.
    """
    norms, knot_error, knots = data.norms, data.knot_error, data.knots
    lo, hi, n = data.terms.lo, data.terms.hi, centre.size
    for i in range(n):
        c, slack = centre[i], reach * norms[i] + knot_error[i]
        left, right = c - slack, c + slack
        low, high = right < knots[0, i], left > knots[3, i]
        zero = (left > knots[1, i]) & (right < knots[2, i])
        slope = lo[i] if low else 0.0
        slope = hi[i] if high else slope
        new[i] = slope * factor
        # Without branches, so that the loop is vectorised: ZERO 0, LOW 1, HIGH 2, OTHER 3.
        codes[i] = 3 - 3 * zero - 2 * low - high  # at most one of them holds
    m = 0
    for i in range(n):
        if codes[i] == 3:
            kept[m] = i
            m += 1
    return m


@compiled(fastmath=SUMS, allocates=False)
def fixed_sum(
    terms: Any, factor: Any, ratio: Any, codes: Any, last: Any, new: Any, work: Any, most: Any
) -> Any:
    """Bring `rho` to ``sum a_i new_i``; returns the share of a pass over the data that it took.

    Where at most `most` terms have another code than in `last`, from the same sum for those codes
    at ``C / ratio``, else afresh.
    """
    A, lo, hi, rho, changed = terms.A, terms.lo, terms.hi, work.rho, work.inside
    d, n = A.shape
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


@compiled(fastmath=SUMS, allocates=False)
def gather(
    m: Any, kept: Any, data: Any, reduced: Any, work: Any, at: Any, slopes: Any, old: Any,
    factor: Any,
) -> None:
    """Write the m `kept` terms at C to `reduced`, their start to `work`.

    From margins `at` and slopes at factor `old`: those at an end of their box stay there, the
    others are scaled.
    """
    terms, d = data.terms, data.terms.A.shape[0]
    scaling = factor / old if old > 0.0 else 1.0
    # Feature by feature: writes are contiguous and reads go forward, which costs no more than
    # gathering from a second copy of the data by rows.
    for j in range(d):
        for p in range(m):
            reduced.A[j, p] = terms.A[j, kept[p]]
    for p in range(m):
        i = kept[p]
        low, high, s = terms.lo[i] * factor, terms.hi[i] * factor, slopes[i]
        reduced.b[p], reduced.e[p] = terms.b[i], terms.e[i]
        reduced.q[p], reduced.inv[p] = terms.q[i] / factor, terms.inv[i] * factor
        reduced.lo[p], reduced.hi[p], work.t[p] = low, high, at[i]
        at_low, at_high = s == terms.lo[i] * old, s == terms.hi[i] * old
        s = low if at_low else high if at_high else min(max(s * scaling, low), high)
        work.theta0[p] = s
        work.best_theta[p] = s  # the answer where no pair can be balanced


@compiled(fastmath=SUMS, allocates=False)
def lifted(m: Any, kept: Any, work: Any, new: Any, free: Any) -> Any:
    """Write the answer of `newton` to `x` and, for the `kept` terms, to `new`; ``|x|^2 / 2``."""
    for p in range(m):
        new[kept[p]] = work.best_theta[p]
    half = 0.0
    for j in range(work.x.size):
        work.x[j] = work.best_x[j]
        if j != free:
            half += 0.5 * work.x[j] * work.x[j]
    return half


@compiled(fastmath=SUMS, allocates=False)
def evaluate(t: Any, theta: Any, terms: Any, factor: Any) -> Any:
    """``sum f(t)`` and ``sum FY(t, theta)`` over all terms at C."""
    b, e, q, inv, lo, hi = terms.b, terms.e, terms.q, terms.inv, terms.lo, terms.hi
    value, fy, inverse = 0.0, 0.0, 1.0 / factor
    for i in range(t.size):
        z, s, curve = t[i] - b[i], theta[i], 0.5 * q[i] * inverse
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i]) * factor
        value += z * r - e[i] * abs(r) - curve * r * r
        fy += z * (r - s) - e[i] * (abs(r) - abs(s)) - curve * (r - s) * (r + s)
    return value, max(fy, 0.0)


@compiled(allocates=False)
def refutations(t: Any, theta: Any, terms: Any, factor: Any, codes: Any) -> Any:
    """How many fixed terms are on another piece at the answer."""
    b, e, inv, lo, hi = terms.b, terms.e, terms.inv, terms.lo, terms.hi
    wrong = 0
    for i in range(t.size):
        z = t[i] - b[i]
        y = z - min(max(z, -e[i]), e[i])
        r = min(max(y * inv[i], lo[i]), hi[i]) * factor
        wrong += (r != theta[i]) & (codes[i] != 3)
    return wrong


# -- where the next point's margins are expected --------------------------------------------------

FOLLOW = 0.8
"""Share of the last step of the margins, in log C, that they are expected to make again, where the
steps before say nothing about it."""

FURTHEST = 1.5
"""Most of such a step, where the grid is uneven and the solution does not grow as C."""

LEAST, LOW = 0.1, 1e-3
"""A guess reaches at least so far: a share of the expected step, or of the ball."""

DECAY = 0.7
"""What is left, a point later, of the reach that a guess has needed."""

STRAY = 2.0
"""Width of the proximal band at the start, in root mean square errors of the expected margins."""


@compiled(fastmath=SUMS, allocates=False)
def band(state: Any, width: Any) -> Any:
    """The share of the weight whose band is so wide, in units of the margins."""
    return min(max(width * state.unit, 1e-9), 1.0)


@compiled(fastmath=SUMS, allocates=False)
def scaled(factor: Any, values: Any, out: Any) -> None:
    """Write ``factor * values`` to `out`; numba compiles assignments to slices for seconds."""
    for i in range(values.size):
        out[i] = factor * values[i]


@compiled(fastmath=SUMS, allocates=False, alone=False)
def extrapolate_margins(before: Any, older: Any, follow: Any, norms: Any, centre: Any) -> Any:
    """Write the expected margins to `centre`; the largest step to them, in norms of the rows."""
    far = 0.0
    for i in range(before.size):
        move = follow * (before[i] - older[i])
        centre[i] = before[i] + move
        far = max(far, abs(move) / max(norms[i], 1e-300))
    return far


@compiled(fastmath=SUMS, allocates=False)
def predict_margins(
    before: Any, older: Any, norms: Any, centre: Any, state: Any, stride: Any, low: Any
) -> Any:
    """Write the margins expected after a step `stride` in log C; how far off they may well be.

    At least `low`.
    """
    follow = stride / state.stride
    follow = min(max(state.follow * follow, 0.0), max(FURTHEST * abs(follow), np.exp(stride)))
    return max(low, state.error, LEAST * extrapolate_margins(before, older, follow, norms, centre))


@compiled(fastmath=SUMS, allocates=False)
def deviation(now: Any, centre: Any, norms: Any) -> Any:
    """How far the margins are from `centre`: at most, in norms of their rows, and on average."""
    most, square = 0.0, 0.0
    for i in range(now.size):
        off = now[i] - centre[i]
        most = max(most, abs(off) / max(norms[i], 1e-300))
        square += off * off
    return most, np.sqrt(square / now.size)


@compiled(fastmath=SUMS, allocates=False)
def update_prediction(
    now: Any, centre: Any, before: Any, older: Any, norms: Any, state: Any, stride: Any,
    worst: Any, off: Any,
) -> None:
    """Keep what a point with margins `now` says about the next; `before` becomes `older`.

    `worst` and `off` are what is known of the errors already (`deviation`).
    """
    most, wide = deviation(now, centre, norms)
    inner, first, second = 0.0, 1e-150, 1e-150  # their product is no zero
    for i in range(now.size):
        last, this = before[i] - older[i], now[i] - before[i]
        inner += this * last
        first += last * last
        second += this * this
        older[i] = before[i]
    same = inner * inner / (first * second)  # the last two steps count as far as they agree
    state.begin = band(state, STRAY * max(wide, off))
    state.error = max(most, worst, DECAY * state.error)
    state.follow = FOLLOW + same * (inner / first - FOLLOW)
    state.stride = stride


# -- the path -------------------------------------------------------------------------------------

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
solve is to a gap of 1e-3; the next keeps what is within a fifth of what that moved the margins,
also where it refutes a few of those left out (12 of 160,000, LAD: then 10,000 are kept, not
129,000)."""

FEWER = 64
"""The sum of the fixed terms is brought up to date where less than n/64 of them are other ones."""


@compiled(fastmath=SUMS, allocates=False)
def length(x: Any, left_out: Any) -> Any:
    """``||x||`` without one coordinate; -1 leaves out none."""
    square = 0.0
    for j in range(x.size):
        if j != left_out:
            square += x[j] * x[j]
    return np.sqrt(square)


@compiled(fastmath=SUMS, allocates=False)
def weighted(theta: Any, norms: Any) -> Any:
    """``sum |theta_i| norms_i``."""
    load = 0.0
    for i in range(theta.size):
        load += abs(theta[i]) * norms[i]
    return load


@compiled(fastmath=SUMS, allocates=False)
def append_slopes(m: Any, kept: Any, new: Any, pool: Any, count: Any) -> None:
    """Append the slopes of the `kept` terms to `pool`, of which `count` are in use."""
    for p in range(m):
        pool[count + p] = new[kept[p]]


@compiled(fastmath=SUMS, allocates=False)
def follow_path(
    newton: Any, data: Any, reduced: Any, work: Any, along: Any, state: Any, request: Any,
    found: Any, k: Any,
) -> Any:
    """Solve the points from number `k` on, each from the one before.

    Stops after a point that misses the tolerance, and before one that needs the margins of two
    points where only one is known; returns how many points are done.

    Parameters
    ----------
    newton : function
        `newton`, by its type.
    data : Data
    reduced : Terms
        Room for the kept terms.
    work : Workspace
        Its `x` is the primal part of the last point.
    along : Margins
    state : record
        Of `STATE`.
    request : PathOptions
    found : PathOutput
        Gets the points.
    """
    factors, screen, free = request.factors, request.screen, data.free
    terms, norms, n, d = data.terms, data.norms, data.norms.size, work.x.size
    x, before, now, last_theta, new = work.x, along.t, along.now, along.theta, along.new
    centre, none, limit = along.centre, np.int64(-1), np.int64(300)
    pilot = state.factor == 0.0 and screen == CERTIFIED and request.rough > request.tol
    aim = request.rough if pilot else request.tol
    count = found.first[k - 1] + np.int64(found.record[k - 1, KEPT]) if k > 0 else np.int64(0)
    while k < factors.size:
        # The very first point is solved roughly on all terms, and then, in steps, like any other.
        factor, known, record = factors[k], state.factor > 0.0, found.record[k]
        ratio = factor / state.factor if known else 1.0
        size = length(x, none if screen == CERTIFIED else free)
        middle, share = 0.5 * (1.0 + ratio), state.share if screen == CERTIFIED else 1.0
        ball = radius(state.terms, ratio, size, state.distance)
        rounding = 1.2e-16 * (d + 8) * (1.0 + ratio) * size
        weight, scale, precision = state.weight * state.begin / factor, state.primal, 0.2
        scale *= min(ratio, 1.0)
        if not known:
            scale, gap = evaluate(before, last_theta, terms, factor)
            weight = request.begin * state.weight / factor
        fixing = known and (screen == CERTIFIED or (screen == SAFE and free < 0))
        rounds, steps, passes, refuted, done, worst, off = 0, 0, 0.0, 0, 0.0, 0.0, 0.0
        stride = np.log(ratio)
        # An infinite stride stands for margins of a sample's solution, at the first value itself.
        guess = screen == CERTIFIED and (
            state.stride == np.inf or (stride != 0.0 and (abs(stride) > COARSE or n > FEW))
        )
        if guess and state.stride == 0.0:
            break
        if guess:
            ball = predict_margins(before, along.older, norms, centre, state, stride, LOW * ball)
            share = 1.0
        else:
            share *= AGAIN if screen == CERTIFIED and stride == 0.0 and n > FEW else 1.0
            scaled(middle, before, centre)
        gap, primal, fy, gradient, m = np.inf, 0.0, np.inf, np.inf, np.int64(n)
        staged = guess and aim < ROUGH and state.steps > 12.0
        at, slopes, old = before, last_theta, state.factor
        # fix_terms, gather, newton, lifted, evaluate on everything, put back: as in the loop of
        # screening: `refutations` are terms that were fixed on a piece they are not on.
        while rounds < 8 and done == 0.0:
            rounds += 1
            if rounds >= 7 or not fixing:
                share = np.inf
            reach = share * ball + rounding
            m = fix_terms(data, centre, reach, factor, new, found.codes[k], along.kept)
            passes += fixed_sum(
                terms, factor, ratio, found.codes[k], found.codes[k - 1], new, work,
                n // FEWER if rounds == 1 and k > 0 else 0,
            )
            scaled(1.0, x, work.best_x)
            gather(m, along.kept, data, reduced, work, at, slopes, old, factor)
            rough = staged and rounds == 1 and m > max(n // PART, MANY)
            target = precision * scale * (ROUGH if rough else aim)
            gap, used, gradient = newton(
                m, reduced, work, free, data.base, weight, target, limit
            )
            missed, steps = gap > target, steps + used
            passes += (2.0 * used + 1.0) * m / n + 1.0
            primal = lifted(m, along.kept, work, new, free)
            margins(n, terms.A, x, now)
            value, fy = evaluate(now, new, terms, factor)
            primal += value
            gap = fy + 0.5 * gradient * gradient
            # The gap of the full problem; 0.3 leaves the certificate room for its rounding.
            if gap <= 0.3 * aim * primal:
                done = 1.0
                break
            wrong = refutations(now, new, terms, factor, found.codes[k])
            refuted += wrong
            scale = min(scale, primal)
            if wrong > (m // PART if rough else 0):
                share *= WIDER if guess else 3.0
                weight = min(100.0 * state.begin, 1.0) * state.weight / factor
            elif rough:  # its answer says where margins go: guess again, around it and narrower
                worst, off = deviation(now, centre, norms)
                scaled(1.0, now, centre)
                ball = NARROW * worst
                weight = band(state, NARROW * off) * state.weight / factor
            else:
                precision *= 0.05
                share *= WIDER if missed else 1.0  # too few may be left to balance the others
                weight = state.weight / factor
            at, slopes, old = now, along.slopes, factor
            scaled(1.0, new, slopes)
        record[KEPT], record[PREDICTED] = m, n - m if screen == CERTIFIED else 0
        record[REFUTED] += refuted
        record[ROUNDS] += rounds
        record[STEPS] += steps
        record[PASSES] += passes
        record[GAP], record[DONE] = gap, done
        if guess:
            update_prediction(now, centre, before, along.older, norms, state, stride, worst, off)
            state.steps = steps
        elif known:  # the share of the ball shrinks while it holds, and grows when refuted
            many = m > max(4 * d, n // 8)
            if fixing and rounds == 1:
                state.share = max((0.93 if many else 0.99) * state.share, 0.01)
            elif fixing:
                state.share = min(1.5 * state.share, 1.0)
            state.stride = 0.0
            state.begin = max(state.begin / 3.0, 1e-7) if steps <= 12 else min(
                state.begin * 10.0, 1.0
            )
            if abs(stride) > 2.0 * COARSE:
                state.begin = FAR
        # Names are exchanged, not arrays copied; `along` gets its two back at the end.
        before, now, last_theta, new = now, before, new, last_theta
        state.factor, state.primal, state.terms, state.distance = factor, primal, fy, gradient
        if screen == SAFE:
            size = length(x, none)
            state.terms = fenchel_young_above(
                before, 1.2e-16 * (d + 8) * size, norms, last_theta, terms, factor
            )
            state.distance = gradient * (1.0 + 1e-14) + 4e-16 * size
            state.distance += 1.2e-16 * (n + 8) * weighted(last_theta, norms)
        if pilot:
            pilot, aim = n > FEW and aim * PILOT > request.tol, (
                max(aim * PILOT, request.tol) if n > FEW else request.tol
            )
            continue
        scaled(1.0, x, found.X[k])
        found.first[k] = count
        append_slopes(m, along.kept, last_theta, found.pool, count)
        count += m
        if done == 0.0:
            break
        k += 1
    scaled(1.0, last_theta, along.theta)
    scaled(1.0, before, along.t)
    return k
