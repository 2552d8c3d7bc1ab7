"""One loss term in extended precision, and which decisions about it an optimum contradicts.

A term is five numbers: ``f*(theta) = b theta + e |theta| + q/2 theta^2`` on ``[lo, hi]``. Floats
are taken as the real numbers they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp
import numpy as np

from cvxscreen.core.losses import Losses, Piece

RIGHT, WRONG, OPEN = 0, 1, 2
"""What a reference says about a decision; OPEN where its own error forbids an answer."""

Real = mp.mpf


def real(value: float) -> Real:
    return mp.mpf(float(value))


@dataclass(frozen=True)
class Term:
    b: Real
    e: Real
    q: Real
    lo: Real
    hi: Real

    def slope(self, t: Real) -> Real:
        """A subgradient at `t`."""
        z = t - self.b
        soft = max(z - self.e, mp.mpf(0)) + min(z + self.e, mp.mpf(0))
        if self.q == 0:
            return mp.mpf(0) if soft == 0 else (self.lo if soft < 0 else self.hi)
        return min(max(soft / self.q, self.lo), self.hi)

    def fenchel_young(self, t: Real, theta: Real) -> Real:
        """``f(t) + f*(theta) - t theta`` for theta in the box."""
        s, lean = self.slope(t), t - self.b
        if self.q:  # otherwise s may be infinite
            lean -= self.q * (s + theta) / 2
        rest = lean * (s - theta) if s != theta else mp.mpf(0)
        return rest - self.e * (abs(s) - abs(theta)) if self.e else rest

    def knots(self) -> tuple[Real, Real, Real, Real]:
        """LOW|LEFT, LEFT|ZERO, ZERO|RIGHT, RIGHT|HIGH."""
        left, right = self.b - self.e, self.b + self.e
        if self.q == 0:
            return left, left, right, right
        return left + self.q * self.lo, left, right, right + self.q * self.hi

    def piece(self, t: Real) -> int:
        """The piece of `t`; one of the two at a knot."""
        k1, k2, k3, k4 = self.knots()
        if self.lo < 0 and t < k1:
            return Piece.LOW
        if self.hi > 0 and t > k4:
            return Piece.HIGH
        if self.q > 0 and self.lo < 0 and t < k2:
            return Piece.LEFT
        if self.q > 0 and self.hi > 0 and t > k3:
            return Piece.RIGHT
        return Piece.ZERO

    def range_of(self, piece: int) -> tuple[Real, Real]:
        """The interval of arguments of a piece."""
        k1, k2, k3, k4 = self.knots()
        bowl = self.q > 0 and self.e == 0 and self.lo < 0 < self.hi
        return {
            Piece.LOW: (-mp.inf, k1),
            Piece.LEFT: (k1, k4 if bowl else k2),
            Piece.ZERO: (k2 if self.lo < 0 else -mp.inf, k3 if self.hi > 0 else mp.inf),
            Piece.RIGHT: (k3, k4),
            Piece.HIGH: (k4, mp.inf),
        }[Piece(piece)]

    def states(self, t: Real, error: Real, fine: Real) -> list[int]:
        """For each of the five pieces whether an optimum within `error` of `t` is on it.

        At a kink (q = 0) a piece is open: a decision needs an interval of floats that keeps away
        from it, so a margin within `fine` (far below any float's rounding) of a kink is on none.
        """
        found = []
        for piece in range(5):
            if (piece in (Piece.LOW, Piece.LEFT) and self.lo == 0) or (
                piece in (Piece.RIGHT, Piece.HIGH) and self.hi == 0
            ) or (piece in (Piece.LEFT, Piece.RIGHT) and self.q == 0):
                found.append(WRONG)
                continue
            first, last = self.range_of(piece)
            if first + error < t < last - error:
                found.append(RIGHT)
            elif t < first - error or t > last + error:
                found.append(WRONG)
            elif error > fine:
                found.append(OPEN)
            else:
                found.append(WRONG if self.q == 0 else RIGHT)
        return found


def terms_of(losses: Losses) -> list[Term]:
    columns = zip(losses.b, losses.e, losses.q, losses.lo, losses.hi, strict=True)
    return [Term(*(real(value) for value in row)) for row in columns]


def states_of(terms: list[Term], t: list[Real], error: list[Real], fine: list[Real]) -> np.ndarray:
    """The table (n, 5) that a verdict's codes are looked up in."""
    rows = zip(terms, t, error, fine, strict=True)
    return np.array([f.states(*numbers) for f, *numbers in rows], dtype=np.int8).reshape(-1, 5)


def kept_states(states: np.ndarray) -> np.ndarray:
    """About "on no linear piece", (n,): wrong where a flat piece is certain."""
    flat = states[:, [Piece.LOW, Piece.ZERO, Piece.HIGH]]
    certain, none = (flat == RIGHT).any(axis=1), (flat == WRONG).all(axis=1)
    # At a smooth join both neighbours are right, and so is every answer.
    bent = (states[:, [Piece.LEFT, Piece.RIGHT]] == RIGHT).any(axis=1)
    return np.where(none | (certain & bent), RIGHT, np.where(certain, WRONG, OPEN)).astype(np.int8)
