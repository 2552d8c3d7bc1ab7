"""The pieces of a loss, by increasing argument."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""A `Piece` a term, shape (n,)."""


class Piece(IntEnum):
    """The five possible pieces of a loss by increasing argument, and "not proven"."""

    UNDECIDED = -1
    LOW = 0  # linear, slope lo
    LEFT = 1  # quadratic left of the zero piece (or the whole bowl when there is no zero piece)
    ZERO = 2
    RIGHT = 3  # quadratic right of the zero piece
    HIGH = 4  # linear, slope hi


def locate(
    ends: tuple[Array, Array, Array],
    knots: tuple[Array, Array, Array, Array],
    error: Array,
    smooth: Mask,
    exists: Mask,
    flat: tuple[Mask, Mask],
) -> Codes:
    """The piece that contains each interval, or `Piece.UNDECIDED`; shape (n,).

    Parameters
    ----------
    ends : (low, bowl end, high)
        The intervals, and where the LEFT piece ends on its right.
    knots : four arrays, shape (n,)
        LOW|LEFT, LEFT|ZERO, ZERO|RIGHT, RIGHT|HIGH.
    error : array, shape (n,)
        Rounding of the knots, charged against the decision.
    smooth : mask, shape (n,)
        Rows whose pieces join smoothly: there a comparison may be non-strict, at a kink it is
        strict, since both neighbours are possible there.
    exists : mask, shape (n, 5)
        The pieces that a row has.
    flat : pair of masks
        Rows whose zero piece has no end on the left, on the right.
    """
    low, bowl_end, high = ends
    k1, k2, k3, k4 = knots
    mixed = bool(smooth.any())
    any_of = [bool(column.any()) for column in exists.T]

    def below(x: Array, knot: Array) -> Mask:
        strict = x < knot - error
        return np.where(smooth, x <= knot - error, strict) if mixed else strict

    def above(x: Array, knot: Array) -> Mask:
        strict = x > knot + error
        return np.where(smooth, x >= knot + error, strict) if mixed else strict

    codes = np.full(len(error), Piece.UNDECIDED, dtype=np.int8)
    if any_of[Piece.LEFT]:
        codes[exists[:, Piece.LEFT] & above(low, k1) & below(high, bowl_end)] = Piece.LEFT
    if any_of[Piece.RIGHT]:
        codes[exists[:, Piece.RIGHT] & above(low, k3) & below(high, k4)] = Piece.RIGHT
    if any_of[Piece.LOW]:
        codes[exists[:, Piece.LOW] & below(high, k1)] = Piece.LOW
    if any_of[Piece.HIGH]:
        codes[exists[:, Piece.HIGH] & above(low, k4)] = Piece.HIGH
    if any_of[Piece.ZERO]:
        inside = exists[:, Piece.ZERO] & (flat[0] | above(low, k2))
        if not flat[1].all():
            inside &= flat[1] | below(high, k3)
        codes[inside] = Piece.ZERO
    return codes


def kinked(q: Array, lo: Array, hi: Array) -> NDArray[np.bool_]:
    """Which terms have a kink: two slopes and no curvature between them."""
    return (q == 0) & (lo < hi)
