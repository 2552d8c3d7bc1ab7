"""Vertices of sums of kinks: of one program from nearby, by pivots; of many small ones together.

::

    minimise  <c, x> + sum_i max(lo_i z_i, hi_i z_i),    z = A x - b

At a vertex d terms, the basis, are at their kinks. It is the optimum where slopes of these inside
their intervals balance all others.

*Pivots* (`vertex`). The slopes of the basis that balance all others say along which edge the
objective falls. An edge is followed to where it ceases to fall, past the kinks of as many terms as
that takes (Barrodale and Roberts 1973), and the term there takes the place of the one that left.
From a point that is no vertex yet the first d searches go along the coordinates that the basis
leaves free. Close to the optimum one to two searches a coordinate lead to it.

*Many programs of one shape* (`vertices`), of a few hundred terms each, for which NumPy's calls cost
more than their arithmetic: K of them share the calls. The method is the one of
`cvxscreen.solvers.interior_point` (Frisch and Newton, Mehrotra's corrector) for this form alone;
after each step the d terms that it points at as a vertex are tried: the equations of the vertex are
solved, and slopes and signs tell whether it is optimal. What is not solved so, as where a vertex is
degenerate, is left to a method that can do more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable

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

STEPS, UNTRIED, SETTLED = 30, 3, 2
"""Steps at most: 6 to 12 are usual; after the first three no vertex was found yet. Then one is
tried where the last step has changed so many of its terms at most: 111 of 117 were found so, and
half as many are tried."""
EXHAUSTED, RISING = 1e-11, (6, 0.5)
"""Share of the first level below which a program without a vertex is degenerate, and the step from
which on one that is still above the second has no minimum nearby."""
FIRST_LEVEL = 0.3
"""The first products, in units of a usual margin times a usual width: 8 steps at 500 x 51, as at 1;
9 at 0.1, 13 at 0.03."""
TO_BOUNDARY = 0.995
"""Share of the way to the boundary that a step may take."""
REGULAR = 1e-11
"""What is added to the diagonals of the normal equations, relatively."""


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
    table, costs = rows.copy(), linear.copy()  # by a unit of each edge
    basis, within = np.full(d, -1), np.zeros(d, dtype=bool)
    least, most = np.zeros(d), np.zeros(d)  # intervals of the basis' slopes
    idle, far = 0, float(away.max(initial=0.0))
    small = LEVEL * float(np.abs(rows).max(initial=0.0))
    for count in range(MOST * d + AT_LEAST):
        balance = costs + slopes @ table
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
        idle += count >= d and bool(length * float(rate.max()) <= LEVEL * far)
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
        share, other = costs[k] / table[entering, k], table[entering].copy()
        other[k] = 0.0
        table[:, k], costs[k] = edge, share
        table -= np.multiply.outer(edge, other)
        costs -= share * other
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


class Vertices(Immutable):
    """Optima of K programs.

    Attributes
    ----------
    x : array, shape (K, d)
    theta : array, shape (K, m)
        Slopes of the terms, at an end for all but d of each program.
    found : mask, shape (K,)
        Which of them are optimal; what the others hold is no answer.
    """

    x: Array
    theta: Array
    found: NDArray[np.bool_]


def times(A: Array, x: Array) -> Array:
    """``A_k x_k`` for each k."""
    return np.asarray(np.matmul(A, x[:, :, None])[:, :, 0])


def adjoint(A: Array, theta: Array) -> Array:
    """``A_k' theta_k`` for each k."""
    return np.asarray(np.matmul(theta[:, None, :], A)[:, 0, :])


def length(pairs: tuple[tuple[Array, Array], ...]) -> Array:
    """How far the values of each row stay positive along their changes, at most 1; shape (K, 1)."""
    least = np.min([(change / value).min(axis=1) for value, change in pairs], axis=0)
    return np.asarray(1.0 / np.maximum(1.0, -least / TO_BOUNDARY))[:, None]


def vertices(A: Array, b: Array, lo: Array, hi: Array, c: Array, x: Array) -> Vertices:
    """Solve all programs from points nearby.

    Parameters
    ----------
    A : array, shape (K, m, d)
    b, lo, hi : array, shape (K, m)
        ``lo < hi``, finite.
    c, x : array, shape (K, d)
    """
    (K, m, d), width = A.shape, hi - lo
    out = Vertices(x.copy(), np.zeros((K, m)), np.zeros(K, dtype=bool))
    # Every term central for its margin, so that ``A x - b = above - below`` now and ever after.
    z = times(A, x) - b
    size = np.abs(z)
    level = first_level = (FIRST_LEVEL * size.mean(axis=1) * width.mean(axis=1))[:, None]
    near = 2.0 * level * width
    near /= 2.0 * level + size * width + np.sqrt(4.0 * level**2 + (size * width) ** 2)
    low, high = np.where(z > 0.0, width - near, near), np.where(z > 0.0, near, width - near)
    theta = np.where(z > 0.0, hi - high, lo + low)
    below, above = level / low, level / high
    at = np.arange(K)
    basis, asked = np.zeros((K, m), dtype=bool), np.zeros(K, dtype=bool)
    for step in range(STEPS):
        low_ratio, high_ratio = below / low, above / high
        D = 1.0 / (low_ratio + high_ratio)
        H = np.matmul(A.transpose(0, 2, 1), A * D[:, :, None])
        np.einsum("kii->ki", H)[:] *= 1.0 + REGULAR
        try:
            inverse = np.asarray(np.linalg.inv(H), dtype=np.float64)
        except np.linalg.LinAlgError:
            break
        of_x = c + adjoint(A, theta)
        first = second = np.zeros_like(low)
        for corrected in (False, True):
            rho = first - second + above - below
            dx = -times(inverse, of_x + adjoint(A, D * rho))
            dtheta = D * (times(A, dx) + rho)
            dbelow = first - below - low_ratio * dtheta
            dabove = second - above + high_ratio * dtheta
            dual = length(((low, dtheta), (high, -dtheta)))
            primal = length(((below, dbelow), (above, dabove)))
            if corrected:
                break
            product = (low * below + high * above).sum(axis=1)
            after = (low + dual * dtheta) * (below + primal * dbelow)
            after += (high - dual * dtheta) * (above + primal * dabove)
            level = ((after.sum(axis=1) / product) ** 3 * product / (2 * m))[:, None]
            first, second = (level - dtheta * dbelow) / low, (level + dtheta * dabove) / high
        x = x + primal * dx
        low, high, theta = low + dual * dtheta, high - dual * dtheta, theta + dual * dtheta
        below, above = below + primal * dbelow, above + primal * dabove
        if step < UNTRIED - 1:
            continue
        curvature = low_ratio + high_ratio
        before, basis = basis, curvature <= np.partition(curvature, d - 1, axis=1)[:, d - 1: d]
        changed = np.count_nonzero(basis & ~before, axis=1)
        asked &= changed == 0
        if step < UNTRIED:
            continue
        waiting = np.ones(len(at), dtype=bool)
        ask = np.flatnonzero((changed <= SETTLED) & ~asked)
        if len(ask):
            some = slice(None) if len(ask) == len(at) else ask
            programs = tuple(part[some] for part in (A, b, lo, hi, c))
            waiting[ask] = ~tried(out, at[ask], programs, curvature[some])
            asked[ask] = True
        share = (level / first_level)[:, 0]
        waiting &= (share > EXHAUSTED) & ((share < RISING[1]) | (step < RISING[0]))
        if not waiting.any():
            break
        if not waiting.all():
            at, basis, asked = at[waiting], basis[waiting], asked[waiting]
            A, b, lo, hi, c, x, low, high, theta, below, above, level, first_level = (
                values[waiting] for values in (
                    A, b, lo, hi, c, x, low, high, theta, below, above, level, first_level)
            )
    return out


def tried(
    out: Vertices, at: NDArray[np.intp], programs: tuple[Array, ...], curvature: Array
) -> NDArray[np.bool_]:
    """Whether the d terms where the barrier has least `curvature` are vertices; fills these in.

    The other terms have the slopes of their margins there, so that an optimum is one whatever the
    steps were.
    """
    A, b, lo, hi, c = programs
    d = A.shape[2]
    basis = np.argpartition(curvature, d, axis=1)[:, :d]
    rows = np.take_along_axis(A, basis[:, :, None], axis=1)
    try:
        inverse = np.asarray(np.linalg.inv(rows), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.zeros(len(A), dtype=bool)
    kinks, least, most = (np.take_along_axis(part, basis, axis=1) for part in (b, lo, hi))
    x = times(inverse, kinks)
    x += times(inverse, kinks - times(rows, x))
    theta = np.where(times(A, x) > b, hi, lo)
    np.put_along_axis(theta, basis, 0.0, axis=1)
    others = c + adjoint(A, theta)
    slopes = -adjoint(inverse, others)
    slopes -= adjoint(inverse, others + adjoint(rows, slopes))
    ok = np.asarray(((slopes >= least) & (slopes <= most)).all(axis=1))
    np.put_along_axis(theta, basis, slopes, axis=1)
    out.x[at[ok]], out.theta[at[ok]], out.found[at[ok]] = x[ok], theta[ok], True
    return ok
