"""A convex quadratic program over a box and one sum, with kinks at 0, by an interior point method.

Blocks of a nearly singular kernel matrix with a large C keep coordinate descent busy for ever, and
a Newton step on a face runs into a bound after a hair's breadth. The central path goes around all
of that: some fifteen Cholesky factorisations whatever the conditioning is (predictor and corrector,
Mehrotra 1992). A kink is two variables, ``c = v - v'`` with ``v, v' >= 0``; as they share their row
of K, the system to factorise stays one row a term.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEPS = 60
_BACK = 0.995
"""Share of the way to the boundary that a step may take."""
_NEAR = 1e-3
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
    path = _Path(K, f, e, c, lo, hi, balanced)
    for _ in range(_STEPS):
        if path.ended(accuracy) or not path.advance():
            break
    return path.settled(lo, hi, accuracy)


@dataclass(frozen=True)
class _Step:
    """A direction: coefficients, variables, multipliers of 0 and of the bound, level."""

    c: Array
    v: Array
    pull: Array
    push: Array
    level: float


class _Path:
    """The point on the central path: ``c = base + v[:m] - v'``, ``0 <= v <= width``."""

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
        self.c = self.base + self.joined(self.v)
        slope = K @ self.c + f
        self.level = float(np.median(slope)) if balanced else 0.0
        size = float(np.abs(slope - self.level).max()) + float(self.cost.max(initial=0.0)) + 1e-300
        self.pull, self.push = np.full(len(self.v), size), np.full(len(self.v), size)
        self.m = m

    def joined(self, v: Array) -> Array:
        """What the variables `v` add up to at each term."""
        m = len(self.base)
        out = v[:m].copy()
        out[self.kinked] -= v[m:]
        return out

    def shared(self, h: Array) -> Array:
        """The slopes `h` of the terms, as those of their variables."""
        return np.concatenate([h, -h[self.kinked]])

    def residual(self) -> Array:
        """By how much the Lagrangian is not stationary."""
        slope = self.K @ self.c + self.f - self.level
        return self.shared(slope) + self.cost - self.pull + self.push

    def ended(self, accuracy: float) -> bool:
        """Whether the point is accurate enough to tell who is at a bound."""
        products = np.maximum(self.pull * self.v, self.push * self.room) / self.width
        done = float(products.max()) <= 0.1 * _NEAR * accuracy
        return done and float(np.abs(self.residual()).max()) <= 0.1 * accuracy

    def advance(self) -> bool:
        """One step of predictor and corrector; whether it could be taken."""
        stiff = self.pull / self.v + self.push / self.room
        weight = 1.0 / stiff[: self.m]
        weight[self.kinked] += 1.0 / stiff[self.m:]
        matrix = self.K.copy()
        matrix[np.diag_indices_from(matrix)] += 1.0 / weight
        try:
            factor = sla.cho_factor(matrix, lower=True, overwrite_a=True)
        except (sla.LinAlgError, ValueError):
            return False
        ones = np.asarray(sla.cho_solve(factor, np.ones(self.m))) if self.balanced else None
        residual, zero = self.residual(), np.zeros(len(self.v))
        guess = self.direction(factor, ones, stiff, weight, residual, zero, zero)
        reach = self.reach(guess)
        mean = float(self.pull @ self.v + self.push @ self.room) / (2 * len(self.v))
        ahead = float(
            (self.pull + reach * guess.pull) @ (self.v + reach * guess.v)
            + (self.push + reach * guess.push) @ (self.room - reach * guess.v)
        ) / (2 * len(self.v))
        center = (ahead / mean) ** 3 * mean
        step = self.direction(
            factor, ones, stiff, weight, residual,
            center - guess.v * guess.pull, center + guess.v * guess.push,
        )
        reach = min(1.0, _BACK * self.reach(step))
        if not reach > 1e-10:
            return False
        self.c = self.c + reach * step.c
        self.v, self.room = self.v + reach * step.v, self.room - reach * step.v
        self.pull, self.push = self.pull + reach * step.pull, self.push + reach * step.push
        self.level += reach * step.level
        return True

    def direction(
        self, factor: tuple[Array, bool], ones: Array | None, stiff: Array, weight: Array,
        residual: Array, low: Array, high: Array,
    ) -> _Step:
        """The Newton direction that aims at the products `low` and `high` of the two bounds."""
        right = -residual + (low / self.v - self.pull) - (high / self.room - self.push)
        c = np.asarray(sla.cho_solve(factor, self.joined(right / stiff) / weight))
        level = 0.0
        if ones is not None:
            short = self.total - float(self.c.sum())
            level = (short - float(c.sum())) / float(ones.sum())
            c = c + level * ones
        v = (right - self.shared(self.K @ c - level)) / stiff
        return _Step(
            c, v, low / self.v - self.pull - self.pull / self.v * v,
            high / self.room - self.push + self.push / self.room * v, level,
        )

    def reach(self, step: _Step) -> float:
        """How far along `step` everything stays positive, 1 at most."""
        most = 1.0
        pairs = ((self.v, step.v), (self.room, -step.v), (self.pull, step.pull),
                 (self.push, step.push))
        for value, change in pairs:
            falls = change < 0
            if falls.any():
                most = min(most, float((-value[falls] / change[falls]).min()))
        return most

    def settled(self, lo: Array, hi: Array, accuracy: float) -> Array | None:
        """The point with terms at their bounds exactly, the sum restored by those inside."""
        zero = (self.v <= _NEAR * self.width) & (self.pull > accuracy)
        full = (self.room <= _NEAR * self.width) & (self.push > accuracy)
        v = np.where(zero, 0.0, np.where(full, self.width, self.v))
        c = np.clip(self.base + self.joined(v), lo, hi)
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
