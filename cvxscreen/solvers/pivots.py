"""From near the optimum of a sum of kinks to the optimum itself: pivots with an exact line search.

::

    minimise  <c, x> + sum_i max(lo_i z_i, hi_i z_i),    z = A x - b

At a vertex d terms, the basis, are at their kinks; the slopes of these that balance all others say
along which edge the objective falls. An edge is followed to where it ceases to fall, past the kinks
of as many terms as that takes (Barrodale and Roberts 1973), and the term there takes the place of
the one that left. From a point that is no vertex yet the first d searches go along the coordinates
that the basis leaves free. Close to the optimum one to two searches a coordinate lead to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST, AT_LEAST = 8, 40
"""Searches at most: so many a coordinate, and so many in any case. One to three are usual."""
LEVEL = 1e-11
"""A pivot, and a rate, relative to the largest, that may be rounding alone."""
IDLE = 10
"""Searches that lead nowhere, as where more terms than coordinates are at their kinks: of 15 fits
of counts, whole numbers, zeros and marks twelve had none, and three 27 to 157."""
OUTSIDE = 1e-12
"""How far a slope of the basis may be outside its interval by rounding, relative to the width."""


def vertex(
    rows: Array, b: Array, lo: Array, hi: Array, linear: Array, x: Array
) -> tuple[Array, Array] | None:
    """The optimum and slopes of all terms, at an end of their intervals for all but d.

    None where it was not reached, as where the minimum is none or its vertices are degenerate.

    Parameters
    ----------
    rows : array, shape (m, d)
    b, lo, hi : array, shape (m,)
        ``lo < hi``, finite.
    linear, x : array, shape (d,)
        A point near the optimum.
    """
    d = len(x)
    z = rows @ x - b
    # On which side each term is, 0 in the basis, and how far from its kink.
    side, slopes = np.where(z > 0.0, 1.0, -1.0), np.where(z > 0.0, hi, lo)
    away, jumps = np.abs(z), hi - lo
    table, pull = rows.copy(), linear.copy()  # by a unit of each edge
    basis, within = np.full(d, -1), np.zeros(d, dtype=bool)
    least, most = np.zeros(d), np.zeros(d)  # intervals of the basis' slopes
    idle, far = 0, float(away.max(initial=0.0))
    small = LEVEL * float(np.abs(rows).max(initial=0.0))
    for count in range(MOST * d + AT_LEAST):
        balance = pull + slopes @ table
        down, up = balance + least, balance + most
        fall = np.maximum(down, -up)
        if count < d:
            fall[within] = -1.0
        else:
            fall -= OUTSIDE * (most - least)
        k = int(fall.argmax())
        if count >= d and fall[k] <= 0.0:
            break
        way = 1.0 if -up[k] >= down[k] else -1.0
        rate = table[:, k] * side
        rate *= -way
        met = (rate > small).nonzero()[0]
        speed = rate[met]
        when = away[met] / speed
        order = when.argsort()
        rises = (jumps[met] * speed)[order].cumsum()
        last = int(rises.searchsorted(fall[k]))
        if last == len(order):
            return None
        entering, length = met[order[last]], when[order[last]]
        idle += bool(length * float(rate.max()) <= LEVEL * far)
        if idle > IDLE:
            return None
        away -= length * rate
        passed = met[order[:last]]
        side[passed] = -side[passed]
        away[passed] = -away[passed]
        slopes[passed] = np.where(side[passed] > 0.0, hi[passed], lo[passed])
        if within[k]:
            leaving = basis[k]
            side[leaving], away[leaving] = way, length
            slopes[leaving] = hi[leaving] if way > 0.0 else lo[leaving]
        side[entering] = away[entering] = slopes[entering] = 0.0
        basis[k], within[k], least[k], most[k] = entering, True, lo[entering], hi[entering]
        edge = table[:, k] / table[entering, k]
        share, other = pull[k] / table[entering, k], table[entering].copy()
        other[k] = 0.0
        table[:, k], pull[k] = edge, share
        table -= np.multiply.outer(edge, other)
        pull -= share * other
    else:
        return None
    return settled(rows, b, lo, hi, linear, basis, slopes)


def settled(
    rows: Array, b: Array, lo: Array, hi: Array, linear: Array, basis: NDArray[np.intp],
    theta: Array,
) -> tuple[Array, Array] | None:
    """The vertex of a basis and its slopes, from its equations; None where it is no optimum.

    The other terms have the slopes `theta`: of one that is at its kink by chance, as where a row is
    there twice, no margin tells which. That those are the slopes of their margins is not looked at.
    """
    own, kinks = rows[basis], b[basis]
    try:
        inverse = np.asarray(np.linalg.inv(own), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    x = inverse @ kinks
    x += inverse @ (kinks - own @ x)
    theta = theta.copy()
    theta[basis] = 0.0
    others = linear + theta @ rows
    slopes = -others @ inverse
    slopes -= (others + slopes @ own) @ inverse
    room = OUTSIDE * (hi - lo)[basis]
    if not ((slopes >= lo[basis] - room) & (slopes <= hi[basis] + room)).all():
        return None
    theta[basis] = np.clip(slopes, lo[basis], hi[basis])
    return x, theta
