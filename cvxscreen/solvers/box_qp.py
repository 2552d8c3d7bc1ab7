"""A dense convex quadratic program over a box, with kinks at 0 and, if asked, a fixed sum.

::

    minimise  1/2 c' K c + f' c + sum_k (e_k |c_k| + q_k/2 c_k^2)
    over      lo <= c <= hi,    sum_k c_k as at the start (with an intercept)

This is what a block of a kernel machine's dual is (`cvxscreen.solvers.smo`), and a task of rASO far
from its optimum. `BoxQp.solve` goes through three methods, each where the one before gets stuck:

* coordinate descent, two at a time where the sum is kept (Fan, Chen and Lin 2005, the rule of
  LIBSVM), compiled;
* a Newton step on the terms strictly inside their box, which ends at the first bound it meets;
* the central path (`interior`): where K is nearly singular and C large, coordinate descent is busy
  for ever, and a Newton step runs into a bound after a hair's breadth. The path goes around all of
  that: some fifteen Cholesky factorisations whatever the conditioning is (predictor and corrector,
  Mehrotra 1992).

(The Newton steps of `cvxscreen.multitask.task_solver`, which finish a task, are its own: there K
has the rank of the features, the rows of a face enter it one by one, and K is never formed for all
terms; here it lies there whole, and its gradient is kept for all terms.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen._support.compiled import compiled

Array = NDArray[np.float64]

NEWTON_LIMIT = 3000
"""Largest number of terms inside their box for which a Newton step is taken."""
INTERIOR_LIMIT = 2000
"""Largest block for which the central path is followed where steps get stuck."""
CYCLES, IDLE, FACES = 30, 2, 6
"""Turns of coordinate descent and Newton steps; turns in a row that may fail to halve the violation
before the central path is followed; bounds that one Newton step may run into."""
FIRST_RIDGE, RIDGE_GROWTH, RIDGE_TRIALS = 1e-13, 1e3, 3
"""Added to the diagonal of a face's matrix, relative to its largest entry and times its size (some
hundred units of rounding a row); how it grows where the factorisation fails, and how often."""


@dataclass(eq=False)
class BoxQp:
    """The program of the module, with the point that it is solved from.

    Parameters
    ----------
    K : array, shape (m, m)
    F : array, shape (m,)
        ``K c + f`` at the start; kept up to date.
    c, lo, hi, e, q : arrays, shape (m,)
        `c` and `F` belong to the block, which changes them.
    balanced : bool
        Whether the sum of c is kept.
    """

    K: Array
    F: Array
    c: Array
    lo: Array
    hi: Array
    e: Array
    q: Array
    balanced: bool

    def solve(self, eps: float, turn: int | None = None) -> int:
        """Reduce the violation of optimality to `eps`; returns the number of coordinate steps.

        `turn` is how many of them are taken before a Newton step; few where the start is close.
        """
        descend = descend_pairs if self.balanced else descend_singles
        terms = BoxTerms(self.lo, self.hi, self.e, self.q, self.K.diagonal() + self.q)
        m, steps, before, idle, followed = len(self.c), 0, float("inf"), 0, False
        turn = 1000 + 10 * m if turn is None else turn
        for _ in range(CYCLES):
            done, violation = descend(self.K, self.F, self.c, terms, eps, turn)
            steps += done
            idle = idle + 1 if violation > 0.5 * before else 0
            before = min(before, violation)
            if violation <= eps:
                break
            if idle > IDLE or not self._newton():
                if followed or not self._interior(0.5 * eps):
                    break
                followed, before, idle = True, float("inf"), 0
        return steps

    def _interior(self, accuracy: float) -> bool:
        """The minimiser by the central path; whether it is better than what is there."""
        c, e = self.c, self.e
        if len(c) > INTERIOR_LIMIT or not (np.isfinite(self.lo) & np.isfinite(self.hi)).all():
            return False
        moves = np.flatnonzero(self.lo < self.hi)
        before, e = c[moves], e[moves]
        K = self.K[np.ix_(moves, moves)]
        f = self.F[moves] - K @ before
        K[np.diag_indices_from(K)] += self.q[moves]
        found = interior(
            K, f, e, before, self.lo[moves], self.hi[moves], self.balanced, accuracy
        )
        if found is None:
            return False
        move = found - before
        fall = float(move @ (f + K @ (before + 0.5 * move)))
        if not fall + float(e @ (np.abs(found) - np.abs(before))) < 0.0:
            return False
        self.F += move @ self.K[moves]
        c[moves] = found
        return True

    def _newton(self) -> bool:
        """Newton steps on the terms inside their box; those it would push out are then held."""
        c, e = self.c, self.e
        inside = np.flatnonzero((c > self.lo) & (c < self.hi) & ((e == 0) | (c != 0)))
        moved = False
        for _ in range(FACES):
            if not 0 < len(inside) <= NEWTON_LIMIT:
                break
            step = self._direction(inside)
            if step is None or not np.isfinite(step).all():
                break
            at = c[inside]
            kink = e[inside] > 0
            low = np.where(kink & (at > 0), np.maximum(self.lo[inside], 0.0), self.lo[inside])
            high = np.where(kink & (at < 0), np.minimum(self.hi[inside], 0.0), self.hi[inside])
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(step > 0, (high - at) / step, (low - at) / step)
            room = np.where(step == 0, np.inf, room)
            size = min(1.0, float(room.min()))
            after = np.clip(at + size * step, low, high)
            hit = room <= size
            after[hit] = np.where(step > 0, high, low)[hit]
            c[inside] = after
            self.F += (after - at) @ self.K[inside]
            moved = True
            if size == 1.0:
                break
            inside = inside[room > 1.0]
        return moved

    def _direction(self, inside: NDArray[np.intp]) -> Array | None:
        """Minimiser over the face through the current point (less a tiny ridge), relative to it."""
        matrix = self.K[np.ix_(inside, inside)]
        diagonal = matrix.diagonal() + self.q[inside]
        ridge = FIRST_RIDGE * len(inside) * float(diagonal.max())
        c = self.c[inside]
        gradient = self.F[inside] + self.q[inside] * c + self.e[inside] * np.sign(c)
        for _ in range(RIDGE_TRIALS):
            np.fill_diagonal(matrix, diagonal + ridge)
            # LAPACK's own: of small systems scipy's checks take more time than the solution.
            factor, failed = lapack.dpotrf(matrix.T, lower=1, clean=0)
            if failed:
                ridge *= RIDGE_GROWTH
                continue
            step = lapack.dpotrs(factor, gradient, lower=1)[0]
            if self.balanced:
                ones = lapack.dpotrs(factor, np.ones(len(inside)), lower=1)[0]
                step = step - (step.sum() / ones.sum()) * ones
            return -step
        return None


# -- coordinate descent ------------------------------------------------------------------------


class BoxTerms(NamedTuple):
    """What each coordinate has beside K and f: its box, kink and curvature, shape (m,) each.

    `own` is ``K_kk + q_k``: read from K itself it would be a miss of the cache a coordinate.
    """

    lo: Array
    hi: Array
    e: Array
    q: Array
    own: Array


@compiled(allocates=False)
def descend_pairs(
    K: Array, F: Array, c: Array, terms: BoxTerms, eps: float, limit: int
) -> tuple[int, float]:
    """Two coordinates at a time, their sum kept; partners by the largest predicted decrease.

    (Fan, Chen and Lin 2005, the rule of LIBSVM.) c and ``F = K c + f`` change in place. Ends at a
    violation of `eps` or after `limit` steps; returns the steps taken and the last violation.
    """
    lo, hi, e, q, owns = terms
    m = len(c)
    if m == 0:
        return 0, 0.0
    violation, a, b = 0.0, 0.0, 0.0
    row, other = K[0], K[0]
    for step in range(limit + 1):
        best, worst, i = 1e300, -1e300, -1
        for k in range(m):
            F[k] += a * row[k] + b * other[k]  # of the step before
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
        a, b = 0.0, 0.0
        if i < 0 or violation <= eps or step == limit:
            return step, max(violation, 0.0)
        row = K[i]
        own, gain, j, curvature, need = owns[i], 0.0, -1, 1.0, 0.0
        for k in range(m):
            if c[k] > lo[k]:
                g = F[k] + q[k] * c[k]
                d = (g + e[k] if c[k] > 0.0 else g - e[k]) - best
                if d > 0.0 and k != i:
                    pair = own + owns[k]
                    bend = max(pair - 2.0 * row[k], 1e-12 * pair + 1e-300)
                    if d * d > gain * bend:
                        gain, j, curvature, need = d * d / bend, k, bend, d
        if j < 0:
            return step, violation
        up = hi[i] - c[i]
        if e[i] > 0.0 and c[i] < 0.0:
            up = min(up, -c[i])
        down = c[j] - lo[j]
        if e[j] > 0.0 and c[j] > 0.0:
            down = min(down, c[j])
        size = min(need / curvature, up, down)
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
    return limit, violation


@compiled(allocates=False)
def descend_singles(
    K: Array, F: Array, c: Array, terms: BoxTerms, eps: float, limit: int
) -> tuple[int, float]:
    """One coordinate at a time, the one with the largest predicted decrease; as `descend_pairs`."""
    lo, hi, e, q, owns = terms
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
                a = owns[k] + 1e-300
                if v * v > gain * a:
                    gain, i, rate = v * v / a, k, v
        if i < 0 or violation <= eps or step == limit:
            return step, violation
        old = c[i]
        new = old - rate / (owns[i] + 1e-300)
        if e[i] > 0.0 and old * new < 0.0:
            new = 0.0
        c[i] = min(max(new, lo[i]), hi[i])
        a = c[i] - old
        row = K[i]
        for k in range(m):
            F[k] += a * row[k]
    return limit, violation


# -- interior point method ---------------------------------------------------------------------

STEPS = 60
"""Steps at most; some fifteen are usual."""
TO_BOUNDARY = 0.995
"""Share of the way to the boundary that a step may take."""
NEAR = 1e-3
"""A variable this close to its bound (in widths) is at it if its multiplier says so, too."""


def interior(
    K: Array, f: Array, e: Array, c: Array, lo: Array, hi: Array, balanced: bool, accuracy: float
) -> Array | None:
    """A minimiser of ``1/2 c' K c + f' c + sum_k e_k |c_k|`` over ``lo <= c <= hi``.

    Parameters
    ----------
    K : array, shape (m, m)
        Positive semidefinite up to rounding.
    f, e, c, lo, hi : arrays, shape (m,)
        Finite bounds, ``lo < hi``, ``e >= 0``; `c` within its bounds.
    balanced : bool
        Whether the sum of `c` is kept.
    accuracy : float
        Wanted size of the violation of optimality of every term inside its box.

    Returns
    -------
    array, shape (m,), or None
        Within the box and with the sum of `c` up to rounding, terms that belong at a bound or at 0
        exactly there; None where the factorisation fails or the sum cannot be kept.
    """
    if not (np.isfinite(K).all() and np.isfinite(f).all()):
        return None
    path = CentralPath(K, f, e, c, lo, hi, balanced)
    for _ in range(STEPS):
        if path.ended(accuracy) or not path.advance():
            break
    return path.rounded_to_bounds(lo, hi, accuracy)


@dataclass(frozen=True)
class _Direction:
    """A direction: coefficients, variables, their multipliers, the multiplier of the sum."""

    c: Array
    v: Array
    z_low: Array
    z_high: Array
    level: float


class CentralPath:
    """The point on the central path: ``c = base + v[:m] - v'``, ``0 <= v <= width``.

    A kink is two variables, ``c = v - v'`` with ``v, v' >= 0``; as they share their row of K, the
    system to factorise stays one row a term. `z_low` and `z_high` are the multipliers of ``v >= 0``
    and of ``v <= width``, `room` is ``width - v``, `level` the multiplier of the sum.
    """

    def __init__(
        self, K: Array, f: Array, e: Array, c: Array, lo: Array, hi: Array, balanced: bool
    ) -> None:
        m = len(c)
        self.K, self.f, self.balanced, self.total = K, f, balanced, float(c.sum())
        self.kinked = np.flatnonzero((e > 0) & (lo < 0) & (hi > 0))
        self.base = lo.copy()
        self.base[self.kinked] = 0.0
        self.width = np.concatenate([hi - self.base, -lo[self.kinked]])
        self.cost = np.concatenate([np.where(lo >= 0, e, -e), e[self.kinked]])
        self.cost[self.kinked] = e[self.kinked]
        start = np.concatenate([np.maximum(c - self.base, 0.0), np.maximum(-c[self.kinked], 0.0)])
        self.v = np.clip(start, 0.05 * self.width, 0.95 * self.width)
        self.room = self.width - self.v
        self.c = self.base + self.combined(self.v)
        slope = K @ self.c + f
        self.level = float(np.median(slope)) if balanced else 0.0
        size = float(np.abs(slope - self.level).max()) + float(self.cost.max(initial=0.0)) + 1e-300
        self.z_low, self.z_high = np.full(len(self.v), size), np.full(len(self.v), size)
        self.m = m

    def combined(self, v: Array) -> Array:
        """What the variables `v` add up to at each term."""
        m = len(self.base)
        out = v[:m].copy()
        out[self.kinked] -= v[m:]
        return out

    def combined_adjoint(self, h: Array) -> Array:
        """The slopes `h` of the terms, as those of their variables."""
        return np.concatenate([h, -h[self.kinked]])

    def residual(self) -> Array:
        """By how much the Lagrangian is not stationary."""
        slope = self.K @ self.c + self.f - self.level
        return self.combined_adjoint(slope) + self.cost - self.z_low + self.z_high

    def ended(self, accuracy: float) -> bool:
        """Whether the point is accurate enough to tell who is at a bound."""
        products = np.maximum(self.z_low * self.v, self.z_high * self.room) / self.width
        done = float(products.max()) <= 0.1 * NEAR * accuracy
        return done and float(np.abs(self.residual()).max()) <= 0.1 * accuracy

    def advance(self) -> bool:
        """One step of predictor and corrector; whether it could be taken."""
        barrier = self.z_low / self.v + self.z_high / self.room
        weight = 1.0 / barrier[: self.m]
        weight[self.kinked] += 1.0 / barrier[self.m:]
        matrix = self.K.copy()
        matrix[np.diag_indices_from(matrix)] += 1.0 / weight
        try:
            factor = sla.cho_factor(matrix, lower=True, overwrite_a=True)
        except (sla.LinAlgError, ValueError):
            return False
        ones = np.asarray(sla.cho_solve(factor, np.ones(self.m))) if self.balanced else None
        residual, zero = self.residual(), np.zeros(len(self.v))
        affine = self.direction(factor, ones, barrier, weight, residual, zero, zero)
        reach = self.reach(affine)
        mean = float(self.z_low @ self.v + self.z_high @ self.room) / (2 * len(self.v))
        predicted = float(
            (self.z_low + reach * affine.z_low) @ (self.v + reach * affine.v)
            + (self.z_high + reach * affine.z_high) @ (self.room - reach * affine.v)
        ) / (2 * len(self.v))
        center = (predicted / mean) ** 3 * mean
        step = self.direction(
            factor, ones, barrier, weight, residual,
            center - affine.v * affine.z_low, center + affine.v * affine.z_high,
        )
        reach = min(1.0, TO_BOUNDARY * self.reach(step))
        if not reach > 1e-10:
            return False
        self.c = self.c + reach * step.c
        self.v, self.room = self.v + reach * step.v, self.room - reach * step.v
        self.z_low, self.z_high = self.z_low + reach * step.z_low, self.z_high + reach * step.z_high
        self.level += reach * step.level
        return True

    def direction(
        self, factor: tuple[Array, bool], ones: Array | None, barrier: Array, weight: Array,
        residual: Array, low: Array, high: Array,
    ) -> _Direction:
        """The Newton direction that aims at the products `low` and `high` of the two bounds."""
        right = -residual + (low / self.v - self.z_low) - (high / self.room - self.z_high)
        c = np.asarray(sla.cho_solve(factor, self.combined(right / barrier) / weight))
        level = 0.0
        if ones is not None:
            short = self.total - float(self.c.sum())
            level = (short - float(c.sum())) / float(ones.sum())
            c = c + level * ones
        v = (right - self.combined_adjoint(self.K @ c - level)) / barrier
        return _Direction(
            c, v, low / self.v - self.z_low - self.z_low / self.v * v,
            high / self.room - self.z_high + self.z_high / self.room * v, level,
        )

    def reach(self, step: _Direction) -> float:
        """How far along `step` everything stays positive, 1 at most."""
        most = 1.0
        pairs = ((self.v, step.v), (self.room, -step.v), (self.z_low, step.z_low),
                 (self.z_high, step.z_high))
        for value, change in pairs:
            falls = change < 0
            if falls.any():
                most = min(most, float((-value[falls] / change[falls]).min()))
        return most

    def rounded_to_bounds(self, lo: Array, hi: Array, accuracy: float) -> Array | None:
        """The point with terms at their bounds exactly, the sum restored by those inside."""
        zero = (self.v <= NEAR * self.width) & (self.z_low > accuracy)
        full = (self.room <= NEAR * self.width) & (self.z_high > accuracy)
        v = np.where(zero, 0.0, np.where(full, self.width, self.v))
        c = np.clip(self.base + self.combined(v), lo, hi)
        c[full[: self.m]] = hi[full[: self.m]]  # base + width may round
        if not self.balanced:
            return c
        still = (zero | full)[: self.m]
        still[self.kinked] &= (zero | full)[self.m:]
        short = self.total - float(c.sum())
        # Of a kinked term the side it is on is what may move, not past 0.
        above, below = hi.copy(), lo.copy()
        above[self.kinked] = np.where(c[self.kinked] < 0, 0.0, hi[self.kinked])
        below[self.kinked] = np.where(c[self.kinked] > 0, 0.0, lo[self.kinked])
        room = np.where(still, 0.0, (above - c) if short > 0 else (c - below))
        free = float(room.sum())
        if abs(short) > free:
            return None
        return np.asarray(c + (short / free) * room) if free > 0 else c
