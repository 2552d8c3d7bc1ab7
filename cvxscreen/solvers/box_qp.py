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
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen._support.compiled import CONTRACT, compiled, read_only
from cvxscreen.designs.rows_on_demand import RowsOnDemand, want_row

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
        terms = BoxTerms.of(self.lo, self.hi, self.e, self.q, self.K.diagonal())
        rows = RowsOnDemand.of(self.K)
        m, steps, before, idle, followed = len(self.c), 0, float("inf"), 0, False
        turn = 1000 + 10 * m if turn is None else turn
        for _ in range(CYCLES):
            done, violation = descend(rows, self.F, self.c, terms, eps, turn)
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
#
# The slope of the objective at k is F_k + rise_k where c_k grows and F_k + fall_k where it falls;
# at an end of its box these are NEVER and -NEVER. A step changes both for what it moves alone, so
# what looks at all terms has no branch, and processors do several terms at a time: 0.6 ns a term
# and step for 2 to 3 with branches. The least of many floating-point numbers LLVM looks for one by
# one (one may be NaN), but not that of whole numbers in the same order. Which term it was is found
# again by its value. These loops are written into those that call them: left to LLVM, which calls
# them as soon as a row may have to be copied, a step takes 1.4 times as long.

NEVER = 1e300
"""A slope that nothing reaches, and whose sum with another one is no infinity yet."""
LAST = np.int64(2**63 - 1)
"""The largest whole number, and the mask of all bits but the sign's."""


class BoxTerms(NamedTuple):
    """What each coordinate has beside K and f: its box, kink and curvature, shape (m,) each.

    `own` is ``K_kk + q_k``: read from K itself it would be a miss of the cache a coordinate. The
    others are room to work in.
    """

    lo: Array
    hi: Array
    e: Array
    q: Array
    own: Array
    rise: Array
    fall: Array
    score: Array

    @classmethod
    def of(cls, lo: Array, hi: Array, e: Array, q: Array, diagonal: Array) -> BoxTerms:
        """The terms of a matrix with this diagonal."""
        e, q = read_only(e, q)
        return cls(lo, hi, e, q, diagonal + q, *np.empty((3, len(lo))))


@compiled(allocates=False, alone=False)
def place(k: int, value: float, c: Array, terms: BoxTerms) -> float:
    """Let ``c_k`` be `value`; returns by how much it has changed."""
    e, slope, change = terms.e[k], terms.q[k] * value, value - c[k]
    c[k] = value
    terms.rise[k] = slope + (e if value >= 0.0 else -e) if value < terms.hi[k] else NEVER
    terms.fall[k] = slope + (e if value > 0.0 else -e) if value > terms.lo[k] else -NEVER
    return change


@compiled(allocates=False, alone=False)
def towards(value: float, step: float, k: int, terms: BoxTerms) -> float:
    """``value + step``, no farther than the end of the box, nor than a kink at 0 on the way."""
    end = terms.hi[k] if step > 0.0 else terms.lo[k]
    if terms.e[k] > 0.0 and (value < 0.0 < end or end < 0.0 < value):
        end = 0.0
    after = value + step
    return min(after, end) if step > 0.0 else max(after, end)


@compiled(allocates=False)
def first_of(value: float, values: Array) -> int:
    """Where `value` first stands among `values`; -1 if nowhere (NaN)."""
    for k in range(values.size):
        if values[k] == value:
            return k
    return -1


@compiled(allocates=False, alone=False)
def ranked(value: float) -> int:
    """A whole number that is larger for a larger `value`."""
    bits: Any = np.float64(value).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & LAST)


@compiled(allocates=False, alone=False)
def unranked(rank: int) -> float:
    """The number that `ranked` makes `rank` of."""
    bits = np.int64(rank)
    return np.int64(bits ^ ((bits >> np.int64(63)) & LAST)).view(np.float64)


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def advance(
    F: Array, a: float, row: Array, b: float, other: Array, terms: BoxTerms
) -> tuple[float, float]:
    """``F += a row + b other``; the least slope upwards then (`score`), the largest downwards."""
    rise, fall, score = terms.rise, terms.fall, terms.score
    least, most = LAST, -LAST
    for k in range(F.size):
        slope = F[k] + (a * row[k] + b * other[k])
        F[k] = slope
        up, down = slope + rise[k], slope + fall[k]
        score[k] = up
        least, most = min(least, ranked(up)), max(most, ranked(down))
    return unranked(least), unranked(most)


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def score_partners(F: Array, least: float, own: float, row: Array, terms: BoxTerms) -> float:
    """What each term would gain twice as the partner of one with slope `least`; the most."""
    fall, owns, score = terms.fall, terms.own, terms.score
    top = np.int64(0)
    for k in range(F.size):
        need = F[k] + fall[k] - least
        need = need if need > 0.0 else 0.0
        pair = own + owns[k]
        curvature, floor = pair - 2.0 * row[k], 1e-12 * pair + 1e-300
        gain = need * need / (curvature if curvature > floor else floor)
        score[k] = gain
        top = max(top, ranked(gain))
    return unranked(top)


@compiled(fastmath=CONTRACT, allocates=False)
def descend_pairs(
    rows: RowsOnDemand, F: Array, c: Array, terms: BoxTerms, eps: float, limit: int
) -> tuple[int, float]:
    """Two coordinates at a time, their sum kept; partners by the largest predicted decrease.

    (Fan, Chen and Lin 2005, the rule of LIBSVM.) c and ``F = K c + f`` change in place. Ends at a
    violation of `eps`, after `limit` steps, or where there is no room for a row that is wanted;
    returns the steps taken and the last violation.
    """
    m = len(c)
    if m == 0:
        return 0, 0.0
    for k in range(m):
        place(k, c[k], c, terms)
    violation, a, b, row, other = 0.0, 0.0, 0.0, rows.K[0], rows.K[0]
    for step in range(limit + 1):
        least, most = advance(F, a, row, b, other, terms)
        violation = most - least
        if not violation > eps or step == limit:
            return step, max(violation, 0.0)
        i = first_of(least, terms.score)
        if i < 0:
            return step, violation
        at = want_row(i, rows)
        if at < 0:
            return step, violation
        row = rows.K[at]
        top = score_partners(F, least, terms.own[i], row, terms)
        j = first_of(top, terms.score)
        if j < 0 or not top > 0.0:
            return step, violation
        at = want_row(j, rows)
        if at < 0:
            return step, violation
        size = top / (F[j] + terms.fall[j] - least)
        first, second = c[i], c[j]
        up, down = towards(first, size, i, terms), towards(second, -size, j, terms)
        if up - first < second - down:
            down = second - (up - first)
        elif up - first > second - down:
            up = first + (second - down)
        a, b = place(i, up, c, terms), place(j, down, c, terms)
        other = rows.K[at]
    return limit, violation


@compiled(fastmath=CONTRACT, allocates=False, inline=True)
def advance_single(F: Array, a: float, row: Array, terms: BoxTerms) -> tuple[float, float]:
    """``F += a row``; the largest violation then, and twice the most that a term would gain."""
    rise, fall, own, score = terms.rise, terms.fall, terms.own, terms.score
    worst, top = np.int64(0), np.int64(0)
    for k in range(F.size):
        slope = F[k] + a * row[k]
        F[k] = slope
        up, down = -(slope + rise[k]), slope + fall[k]
        need = up if up > down else down
        need = need if need > 0.0 else 0.0
        gain = need * need / (own[k] + 1e-300)
        score[k] = gain
        worst, top = max(worst, ranked(need)), max(top, ranked(gain))
    return unranked(worst), unranked(top)


@compiled(fastmath=CONTRACT, allocates=False)
def descend_singles(
    rows: RowsOnDemand, F: Array, c: Array, terms: BoxTerms, eps: float, limit: int
) -> tuple[int, float]:
    """One coordinate at a time, the one with the largest predicted decrease; as `descend_pairs`."""
    m = len(c)
    if m == 0:
        return 0, 0.0
    for k in range(m):
        place(k, c[k], c, terms)
    violation, a, row = 0.0, 0.0, rows.K[0]
    for step in range(limit + 1):
        violation, top = advance_single(F, a, row, terms)
        if not violation > eps or step == limit:
            return step, violation
        i = first_of(top, terms.score)
        if i < 0 or not top > 0.0:
            return step, violation
        at = want_row(i, rows)
        if at < 0:
            return step, violation
        row, up = rows.K[at], F[i] + terms.rise[i]
        slope = up if up < 0.0 else F[i] + terms.fall[i]
        a = place(i, towards(c[i], -slope / (terms.own[i] + 1e-300), i, terms), c, terms)
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
