"""Certificates of many answers over the same rows, each under weights of its own.

A bootstrap asks for the same terms with other counts, again and again; leaving out one term gives
it weight 0. Around a common point x0 most terms stay on one piece for all of the answers: linear,
or a parabola with the slope ``s + (t - t0) / q`` at margin t. There the Fenchel-Young term is 0,
and ``A' theta`` and the value follow from sums that are linear in the weights, matrix products for
a block of weightings: of rows times slopes, and of the ``a a' / q`` of parabolas. Which terms these
are is proven here, from margins at x0 made anew and the distance of the answers from it; every
other term is looked at under each weighting (`certify_weightings`).

With one weight that is 0 the sums over all others are those of all terms but for one, and each
answer is looked at by itself (`LeftOutOfRows`): terms come in the order in which a ball around the
point reaches their kinks, so that only those are looked at that *this* answer may have moved.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled, read_only
from cvxscreen._support.immutable import Immutable
from cvxscreen.certificates.certificate import (
    EPS,
    columns,
    compiled_endless_above,
    compiled_gap_above,
    compiled_steepness,
    compiled_value_above,
)
from cvxscreen.certificates.many import Certificates, gaps_of_sums
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class LeftOut(Immutable):
    """Weightings of n terms that leave out one each, and count the others once.

    They do what is asked of an array of weights, shape (K, n), without its K n numbers.

    Attributes
    ----------
    index : array of int, shape (K,)
    n : int
    """

    index: NDArray[np.intp]
    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, n)``: weightings and terms."""
        return len(self.index), self.n

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, chosen: Any) -> LeftOut:
        return LeftOut(self.index[chosen], self.n)

    def take(self, rows: NDArray[np.intp], axis: int = 1) -> Array:
        """The weights of the terms at `rows`, shape (K, m)."""
        return np.asarray(self.index[:, None] != rows, dtype=np.float64)

    def min(self, axis: int = 1) -> Array:
        """The smallest weight of each."""
        return np.zeros(len(self))


class Around(NamedTuple):
    """A point that many answers are near, and the pieces that the terms are on there.

    Attributes
    ----------
    x : array, shape (d,)
    slopes, rates : array, shape (n,)
        The slope of a term's piece at `x`, and how fast it grows with the margin: 0 on a linear
        piece, 1 / q on a parabola. Any slope in the box of the term; only those that prove to
        belong to a piece count.
    margins : array, shape (n,)
        At `x`.
    rows : array, shape (n, d)
        The data.
    into, back : arrays, shape (d, d)
        A factor L of the curvature, and about ``L^{-T}``: distances are ``|L' v|``.
    room : array, shape (n,)
        How far from `x` (see `distance`) a term provably stays on its piece; negative where it is
        on none.
    below, above : array, shape (n,)
        Between which margins that is (`piece_of`).
    parts : array, shape (n, d + 5)
        The rows, each times its slope, then ``|slope| norm``, ``|slope a_free|``, ``f*(slope)``,
        which is minus the value where the line of the slope meets margin 0, and of parabolas
        ``rate |a|^2`` and how far the Fenchel-Young term may be from 0 by rounding.
    total : array, shape (d + 5,)
        The sums over all terms.
    place : array of int, shape (n,)
        Of a term on a parabola, its row in `hessians`; -1 elsewhere.
    hessians : array, shape (c, d (d + 1) / 2)
        ``rate a a'`` of the terms on a parabola, its lower triangle; no columns without any.
    hessian : array, shape (d (d + 1) / 2,)
        Their sum.
    """

    x: Array
    slopes: Array
    rates: Array
    margins: Array
    rows: Array
    into: Array
    back: Array
    room: Array
    below: Array
    above: Array
    parts: Array
    total: Array
    place: NDArray[np.intp]
    hessians: Array
    hessian: Array

    @classmethod
    def at(
        cls, problem: Problem, x: Array, slopes: Array, curvature: Array | None = None,
        rows: Array | None = None,
    ) -> Around:
        """Of dense rows, which may be at hand.

        Distances are measured by the `curvature` of the objective, shape (d, d), positive definite:
        where features are correlated an optimum moves far along what the margins hardly feel, and
        Euclidean balls around it would reach most kinks. They are Euclidean where it is omitted, or
        has no Cholesky factor. On a parabola the slope is that at the margin, not that of `slopes`.
        """
        A = cast(Rows, problem.design).dense() if rows is None else rows
        losses, d = problem.losses, problem.d
        t, rates, curved, size = A @ x, np.zeros(problem.n), None, d * (d + 1) // 2
        slopes = np.asarray(slopes, dtype=np.float64)
        if losses.ends("q")[1] > 0.0:
            there, q = losses.slope(t), losses.q
            curved = (q > 0.0) & (there > losses.lo) & (there < losses.hi)
            curved &= (losses.e == 0.0) | (there != 0.0)
            if curved.sum() * size > MOST_ENTRIES:
                curved[:] = False
            slopes = np.where(curved, there, slopes)
            rates = np.where(curved, 1.0 / np.where(curved, q, 1.0), 0.0)
        into, back = _factor(curvature, d)
        below, above = piece_of(problem, slopes, curved)
        room, parts, total = np.empty(problem.n), np.empty((problem.n, d + 5)), np.zeros(d + 5)
        free = int(problem.free_index[0]) if len(problem.free_index) else -1
        own = (*columns(losses)[:3], problem.sizes, problem.norms, slopes, rates, t, below, above)
        unit_error = problem.design.forward_factor * float(np.linalg.norm(x)) * (1.0 + 8.0 * EPS)
        spare = (_share(d) + EPS * (d + 8)) * float(np.linalg.norm(back))
        turned = A if curvature is None else A @ back
        look_around(tuple(read_only(*own)), A, turned, free, unit_error, spare, room, parts, total)
        which = np.zeros(0, dtype=np.intp) if curved is None else np.flatnonzero(curved)
        place = np.full(problem.n, -1)
        place[which] = np.arange(len(which))
        hessians, B = np.empty((len(which), size if len(which) else 0)), A[which]
        for j in range(d if len(which) else 0):
            column = (rates[which] * B[:, j])[:, None]
            np.multiply(B[:, :j + 1], column, out=hessians[:, j * (j + 1) // 2:][:, :j + 1])
        return cls(x, slopes, rates, t, A, into, back, room, below, above, parts, total, place,
                   hessians, hessians.sum(axis=0))

    def as_columns(self, terms: Index) -> Array:
        """The rows of some terms as columns, shape (d, m)."""
        return np.ascontiguousarray(self.rows[terms].T)

    def slopes_at(self, rows: NDArray[np.intp], t: Array) -> Array:
        """The slopes that the pieces of some terms have at margins `t`, shape (K, m)."""
        return np.asarray(self.slopes[rows] + self.rates[rows] * (t - self.margins[rows]))

    def square(self, hessian: Array) -> Array:
        """Symmetric matrices, (K, d, d), whose lower triangles are the rows of `hessian`."""
        i, j = np.indices((self.x.size, self.x.size))
        low, high = np.minimum(i, j), np.maximum(i, j)
        return np.asarray(hessian[:, high * (high + 1) // 2 + low])

    def times_hessian(self, hessian: Array, V: Array) -> Array:
        """The matrix of each row of `hessian` times that of `V`, (K, d); 0 without columns."""
        if not hessian.shape[1]:
            return np.zeros_like(V)
        return np.asarray(np.einsum("kij,kj->ki", self.square(hessian), V))

    def distance(self, X: Array) -> float:
        """How far from `x` the farthest of `X`, shape (K, d), is at most.

        With ``u = L' v`` and P for `back`, ``|a' v| <= |P' a| |u| + |a| |v - P u|`` whatever P is.
        The last length is rounding; `room` leaves a share of ``|a|`` for it.
        """
        d = self.x.size
        v = X - self.x
        u = v @ self.into
        length, size = np.linalg.norm(u, axis=1), np.linalg.norm(self.back)
        rest = np.linalg.norm(v - u @ self.back.T, axis=1)
        rest += 2.0 * EPS * (d + 8) * (np.linalg.norm(v, axis=1) + size * length)
        far = np.maximum(length, rest / (_share(d) * size))
        return float(far.max(initial=0.0)) * (1.0 + EPS * (d + 16))

    def weighed(self, W: NDArray[Any] | LeftOut) -> Weighed:
        """`W` with the sums of `parts` and `hessians` under them.

        Of what one leaves out the sums that stand for rounding are no less: subtracting from a
        total has that of all terms.
        """
        d, curved = self.x.size, np.flatnonzero(self.place >= 0)
        if not isinstance(W, LeftOut):
            sums, hessian = np.zeros((len(W), d + 5)), np.zeros((len(W), self.hessians.shape[1]))
            for i in range(0, W.shape[1], COUNTED):  # counts are small numbers until they are used
                some = slice(i, i + COUNTED)
                sums += np.asarray(W[:, some], dtype=np.float64) @ self.parts[some]
            for i in range(0, len(curved), COUNTED):
                some = slice(i, i + COUNTED)
                own = np.asarray(W.take(curved[some], axis=1), dtype=np.float64)
                hessian += own @ self.hessians[some]
            return Weighed(W, sums[:, :d], sums[:, d:], hessian)
        sums, hessian = np.tile(self.total[d:], (len(W), 1)), np.tile(self.hessian, (len(W), 1))
        sums[:, 2] -= self.parts[W.index, d + 2]
        parabolic = np.flatnonzero(self.place[W.index] >= 0)
        hessian[parabolic] -= self.hessians[self.place[W.index[parabolic]]]
        return Weighed(W, self.total[:d] - self.parts[W.index, :d], sums, hessian)


COUNTED = 2048
"""Terms whose weights are made numbers of 8 bytes at a time: a block's stay in the cache."""

MOST_ENTRIES = 2**24
"""Most numbers of all ``rate a a'``, 128 MB; beyond, every term on a parabola is looked at."""


class Weighed(NamedTuple):
    """K weightings of n terms, and what these sum up to at the slopes of an `Around`.

    Attributes
    ----------
    weights : array, shape (K, n), or LeftOut
    At_theta : array, shape (K, d)
        ``A' theta`` with these slopes times the weights.
    sums : array, shape (K, 5)
        Of the last five columns of `Around.parts`.
    hessian : array, shape (K, d (d + 1) / 2)
        Of `Around.hessians`.
    """

    weights: NDArray[Any] | LeftOut
    At_theta: Array
    sums: Array
    hessian: Array

    def take(self, chosen: NDArray[np.intp]) -> Weighed:
        """Some of them; all are not copied."""
        if len(chosen) == len(self.weights):
            return self
        return Weighed(
            self.weights[chosen], self.At_theta[chosen], self.sums[chosen], self.hessian[chosen]
        )

    def looked_at(
        self, around: Around, rows: NDArray[np.intp], W: Array | None = None,
        A: Array | None = None,
    ) -> LookedAt:
        """The terms at `rows` by themselves, and the sums without them.

        `W` are their weights and `A` their rows as columns, where these are at hand.
        """
        if W is None or A is None:
            W = np.asarray(self.weights.take(rows, axis=1), dtype=np.float64)
            A = around.as_columns(rows)
        parts, d = around.parts[rows], around.x.size
        own, place, hessian = W @ parts, around.place[rows], self.hessian
        curved = np.flatnonzero(place >= 0)
        if len(curved):
            hessian = hessian - W[:, curved] @ around.hessians[place[curved]]
        return LookedAt(
            rows, W, A, self.At_theta - own[:, :d], self.sums[:, 2] - own[:, d + 2], hessian,
        )


class LookedAt(NamedTuple):
    """Some terms, and the sums of all others on the pieces of an `Around`, under K weightings.

    Attributes
    ----------
    rows : array of int, shape (m,)
    W : array, shape (K, m)
    A : array, shape (d, m)
        Their rows as columns.
    At_theta, others : array, shape (K, d) and (K,)
        Of the other terms ``A' theta``, and the sum of the conjugate losses.
    hessian : array, shape (K, d (d + 1) / 2)
        Of the other terms.
    """

    rows: NDArray[np.intp]
    W: Array
    A: Array
    At_theta: Array
    others: Array
    hessian: Array


def piece_of(problem: Problem, s: Array, curved: Mask | None = None) -> tuple[Array, Array]:
    """Between which margins slope s is that of a linear piece, rounded inward.

    From infinity to minus infinity where it is on none; of `curved` terms the ends of the parabola
    on which they have slope s.
    """
    f = problem.losses
    (first, left, right, last), flat, low, high = f.knots, s == 0.0, s == f.lo, s == f.hi
    below = np.where(low, -np.inf, np.where(high, last, np.inf))
    below = np.where(flat, np.where(f.lo == 0.0, -np.inf, left), below)
    above = np.where(low, first, np.where(high, np.inf, -np.inf))
    above = np.where(flat, np.where(f.hi == 0.0, np.inf, right), above)
    if curved is not None and curved.any():
        whole = f.e == 0.0  # without a flat piece between two parabolas they are one
        below = np.where(curved, np.where(whole | (s < 0.0), first, right), below)
        above = np.where(curved, np.where(whole | (s > 0.0), last, left), above)
    slack = 16.0 * (f.knot_error + EPS * np.abs(f.b))
    return below + slack, above - slack


def _share(d: int) -> float:
    """Of ``|P| |a|``, that a row's length has room for: several times the rounding of ``P u``."""
    return 64.0 * EPS * (d + 8)


def _factor(curvature: Array | None, d: int) -> tuple[Array, Array]:
    """L with ``L L'`` the curvature, and about ``L^{-T}``; the identity where there is none."""
    if curvature is not None:
        # The routines themselves: what numpy does around them takes longer than they do.
        into, failed = sla.lapack.dpotrf(curvature, lower=1, clean=1)
        inverse, singular = sla.lapack.dtrtri(into, lower=1)
        if not (failed or singular) and np.isfinite(into).all() and np.isfinite(inverse).all():
            return np.ascontiguousarray(into), np.ascontiguousarray(inverse.T)
    return np.eye(d), np.eye(d)


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def look_around(  # type: ignore[no-untyped-def]
    own, A, turned, free, unit_error, spare, room, parts, total
):
    """Fill `room`, `parts` and `total` of an `Around`; `own` are columns of the terms.

    The length of a row as distances are measured is ``|P' a|``, of the rows that `turned` has, and
    `spare` times ``|a|`` for what `Around.distance` rounds.
    """
    b, e, q, sizes, norms, slopes, rates, margins, below, above = own
    d = A.shape[1]
    for i in range(room.size):
        t, s, steep, error = margins[i], slopes[i], abs(slopes[i]), 2.0 * unit_error * sizes[i]
        square = 0.0
        for j in range(d):
            square += turned[i, j] * turned[i, j]
            parts[i, j] = s * A[i, j]
        length = np.sqrt(square) + spare * sizes[i]
        away = np.minimum(t - below[i], above[i] - t) - 16.0 * EPS * abs(t) - error
        far = np.inf if away > 0.0 else -1.0
        if length > 0.0:
            far = away / length
        # A negative distance is not made less so by the factor, and none is taken for a proof.
        room[i] = far * (1.0 - EPS * (d + 40))
        parts[i, d] = steep * norms[i]
        parts[i, d + 1] = abs(parts[i, free]) if free >= 0 else 0.0
        parts[i, d + 2] = b[i] * s + e[i] * steep + 0.5 * q[i] * s * s
        off = error + 32.0 * EPS * (abs(t) + abs(b[i]) + e[i] + q[i] * steep)
        parts[i, d + 3] = rates[i] * sizes[i] * sizes[i]
        parts[i, d + 4] = rates[i] * off * off
        for j in range(d + 5):
            total[j] += parts[i, j]


def stays_around(around: Around, distance: float) -> Mask:
    """Terms that are on their piece at all x with ``around.distance(x)`` so small; proven."""
    return np.asarray((around.room >= distance * (1.0 + 8.0 * EPS)) & (around.room > 0.0))


SIZE, NORM, B, E, Q, LO, HI, SLOPE, BELOW, ABOVE, CONJUGATE = range(11)
"""Rows of `Weighted.own`."""


class Weighted(NamedTuple):
    """The terms that are looked at, and the weightings.

    Attributes
    ----------
    A : array, shape (d, m)
        Their rows as columns.
    own : array, shape (11, m)
        The lengths of their rows, Euclidean and in the metric of ``M^{-1}``; b, e, q, lo, hi of
        their losses at weight 1; the slopes around, between which margins they are those of a
        linear piece (`piece_of`; of a parabola none is), and the conjugate loss of them.
    W, theta : array, shape (K, m)
        Weights, and slopes under them.
    """

    A: Array
    own: Array
    W: Array
    theta: Array


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def weighted_sums(block, margins, unit_errors, free, out):  # type: ignore[no-untyped-def]
    """Sums over the terms of a block, one row of `out` a weighting.

    Value, gap, ``sum |theta| norm``, ``sum |theta a_free|``, the count of slopes outside their box.
    `unit_errors`, shape (K,), are the rounding of a margin of a row of length 1. On the linear
    piece of its slope a term adds nothing to the gap, by Fenchel's equality; most are there still,
    and are not looked at any closer.
    """
    A, own = block.A, block.own
    for k in range(unit_errors.size):
        t, unit_error = margins[k], unit_errors[k]
        values, gap, load, size, outside = 0.0, 0.0, 0.0, 0.0, 0
        for i in range(own.shape[1]):
            w, theta = block.W[k, i], block.theta[k, i]
            if w == 0.0:  # without its loss a term has no slope
                outside += theta != 0.0
                continue
            load += abs(theta) * own[NORM, i]
            if free >= 0:
                size += abs(theta * A[free, i])
            error = unit_error * own[SIZE, i]
            tiny = error + 16.0 * EPS * abs(t[i])
            inside = (t[i] - tiny >= own[BELOW, i]) & (t[i] + tiny <= own[ABOVE, i])
            if inside & (theta == w * own[SLOPE, i]):
                values += theta * t[i] - w * own[CONJUGATE, i]
                continue
            low, high, q = own[LO, i] * w, own[HI, i] * w, own[Q, i] / w
            b, e = own[B, i], own[E, i]
            value = compiled_value_above(t[i], b, e, q, low, high, compiled_steepness(q))
            values += value
            gap += compiled_gap_above(t[i], theta, error, value, b, e, q, low, high)
            gap += compiled_endless_above(value, error, q, low, high)
            outside += not ((theta >= low) & (theta <= high))
        out[k, 0], out[k, 1], out[k, 2], out[k, 3] = values, gap, load, size
        out[k, 4] = outside


@compiled(allocates=False)
def weighted_takers(  # type: ignore[no-untyped-def]
    block, margins, unit_error, needed, distance, free, out
):
    """What it costs to balance each dual point by the cheapest single term of a block.

    A slope s that moves by h adds ``(b + e sign(s) + q s - t) h + q h^2 / 2`` to its Fenchel-Young
    term, t the margin at the dual point's own x: next to nothing where t is at the kink.
    """
    A, own, m = block.A, block.own, block.A.shape[1]
    for k in range(out.size):
        up, down = np.inf, np.inf
        for both in (True, False):  # those with room both ways are few, and mostly enough
            for i in range(m):
                w, s = block.W[k, i], block.theta[k, i]
                rise, fall = own[HI, i] * w - s, s - own[LO, i] * w
                if both and not (rise > 0.0 and fall > 0.0):
                    continue
                size = abs(A[free, i])
                if A[free, i] < 0.0:
                    rise, fall = fall, rise
                fits_up, fits_down = rise * size >= needed[k], fall * size >= needed[k]
                if w == 0.0 or size == 0.0 or not (fits_up or fits_down):
                    continue
                step, q, t = needed[k] / size, own[Q, i] / w, margins[k, i]
                b, e = own[B, i], own[E, i]
                if abs(s) > step:
                    off = abs(b + e * np.sign(s) + q * s - t)
                else:  # its sign may change, and the kink of the conjugate be passed
                    off = abs(b + q * s - t) + e
                off += unit_error[k] * own[SIZE, i]
                off += 8.0 * EPS * (abs(b) + e + abs(q * s) + abs(t))
                rate = off + own[NORM, i] * distance[k] + 0.5 * q * step
                if fits_up:
                    up = min(up, rate / size)
                if fits_down:
                    down = min(down, rate / size)
            if max(up, down) < np.inf:
                break
        out[k] = needed[k] * max(up, down) if needed[k] > 0.0 else 0.0


@compiled(allocates=False)
def shifts(block, margins, unit_error, needed, distance, loose, free, out):  # type: ignore[no-untyped-def]
    """How far the unpenalised coordinate of an optimum may be from that of each answer, (K,).

    For slopes theta anywhere in their boxes, balanced or not, and ``s = sum_i a_i,free theta_i``

    ::

        (b* - b) s  <=  sum_i FY_i + 1/2 |x - x_theta|^2

    as the optimal value lies above ``D(theta) + b* s`` and below the value at x. So a dual point
    with s > 0 bounds b* from above, one with s < 0 from below: that of the answer, with one more
    term moved by about the root of the gap. The best term is chosen for either side.

    Parameters
    ----------
    unit_error, needed, distance, loose : array, shape (K,)
        Rounding of a margin of a row of length 1, bounds of ``|s|`` and of ``|x - x_theta|``, and
        of the right side, at the dual point as it is.
    """
    A, own, up = block.A, block.own, 1.0 + 64.0 * EPS
    for k in range(out.size):
        rises, falls = np.inf, np.inf
        for i in range(own.shape[1]):
            w, a, s, t = block.W[k, i], A[free, i], block.theta[k, i], margins[k, i]
            size, norm, b, e = abs(a), own[NORM, i], own[B, i], own[E, i]
            if w <= 0.0 or size == 0.0:
                continue
            q = own[Q, i] / w
            growth = norm * norm + q
            for sign in (1.0, -1.0):
                end = w * (own[HI, i] if sign > 0.0 else own[LO, i])
                if e > 0.0 and sign * s < 0.0:  # the conjugate has a kink at 0: no further
                    end = 0.0
                room = min(sign * (end - s) * (1.0 - 8.0 * EPS), 1e300)
                if not room > 0.0:
                    continue
                knot = b + e * (sign if s == 0.0 else np.sign(s)) + q * s
                off = abs(knot - t) + unit_error[k] * own[SIZE, i]
                off += 8.0 * EPS * (abs(b) + e + abs(q * s) + abs(t))
                step = room
                if growth > 0.0:
                    step = min(np.sqrt(2.0 * loose[k] / growth) + 2.0 * needed[k] / size, room)
                moved = size * step * (1.0 - 8.0 * EPS) - needed[k]
                if not moved > 0.0:
                    continue
                bound = (loose[k] + step * (off + distance[k] * norm + 0.5 * step * growth)) / moved
                if sign * a > 0.0:
                    rises = min(rises, bound)
                else:
                    falls = min(falls, bound)
        out[k] = up * max(rises, falls)


class Rest(NamedTuple):
    """All other terms, on the pieces of an `Around`, under K weightings.

    Attributes
    ----------
    At_theta, others : array, shape (K, d) and (K,)
        ``A' theta`` at the slopes around, and the sum of the conjugate losses of these.
    sums : array, shape (K, 5)
        As in `Weighed`: of all terms, which is no less.
    hessian : array, shape (K, d (d + 1) / 2)
        Of the terms on parabolas; no columns without any.
    """

    At_theta: Array
    others: Array
    sums: Array
    hessian: Array


def gaps_of_answers(
    problem: Problem, around: Around, block: Weighted, rest: Rest, X: Array,
    shift: Array | None = None,
) -> tuple[Array, Array]:
    """``(gap, primal)`` of each of the answers X, shape (K,), infinite where it is no number.

    `shift` is filled as by `certify_weightings`.
    """
    n, d, A, theta = problem.n, problem.d, block.A, block.theta
    free = int(problem.free_index[0]) if len(problem.free_index) else -1
    unit_error = margin_rounding(problem) * np.sqrt(np.square(X).sum(axis=1))
    out, margins = np.zeros((len(X), 5)), X @ A
    weighted_sums(block, margins, unit_error, free, out)
    # All other terms at the slopes of their pieces.
    At_theta = rest.At_theta + theta @ A.T
    out[:, 0] += np.einsum("kj,kj->k", rest.At_theta, X) - rest.others
    out[:, 2:4] += 3.0 * rest.sums[:, :2]
    if rest.hessian.shape[1]:
        # On a parabola the rounding of a slope counts with its square; that of the sum of products
        # is no more than of the sum of |theta| |a| with theta = rate |a| |v|.
        V = X - around.x
        of_parabolas = around.times_hessian(rest.hessian, V)
        At_theta = At_theta + of_parabolas
        away, stiff = np.linalg.norm(V, axis=1) * (1.0 + EPS * (d + 8)), rest.sums[:, 3]
        out[:, 0] += 0.5 * np.einsum("kj,kj->k", of_parabolas, V)
        out[:, 1] += 2.0 * (rest.sums[:, 4] + stiff * (16.0 * EPS * away) ** 2)
        load = (4.0 + 2.0 * (d + 8) / (n + 16)) * stiff * away
        out[:, 2] += load * float((problem.norms / np.maximum(problem.sizes, 1e-300)).max())
        out[:, 3] += load

    def moves(needed: Array, distance: Array) -> Array:
        if shift is not None:
            loose = out[:, 1] * (1 + n * EPS) + 0.5 * distance**2
            shifts(block, margins, unit_error, needed, distance, loose, free, shift)
        cost = np.empty(len(X))
        weighted_takers(block, margins, unit_error, needed, distance, free, cost)
        return cost

    return gaps_of_sums(problem, out, X, At_theta, EPS * (n + 16), moves)


def margin_rounding(problem: Problem) -> float:
    """Relative rounding of a margin of dense rows."""
    return EPS * (problem.d + 4) if problem.design.sparse else float(problem.design.forward_factor)


def certify_weightings(
    problem: Problem,
    around: Around,
    W: NDArray[Any] | LeftOut | Weighed,
    X: Array,
    rows: NDArray[np.intp] | LookedAt,
    theta: Array,
    *,
    tol: float,
    shift: Array | None = None,
) -> Certificates:
    """Recompute the optimality of K answers, each under weights of its own, on all of the data.

    Parameters
    ----------
    problem : Problem
        Dense rows, a diagonal M, at most one unpenalised coordinate.
    around : Around
    W : array, shape (K, n), LeftOut, or what ``around.weighed`` makes of them
        Weights, not negative.
    X : array, shape (K, d)
    rows : array of int, shape (m,), or what ``Weighed.looked_at`` makes of it
        The terms whose slopes are given; every other one has that of its piece times its weight.
    theta : array, shape (K, m)
        Slopes under the weights.
    tol : float
        Relative gap asked for.
    shift : array, shape (K,), optional
        Filled with how far the unpenalised coordinate may be from that of an optimum (`shifts`).

    Returns
    -------
    Certificates
        As those of `certify` on each weighted problem, by the same formulas; no margin is computed
        in extended precision.
    """
    whole = W if isinstance(W, Weighed) else around.weighed(W)
    here = rows if isinstance(rows, LookedAt) else whole.looked_at(around, rows)
    look = ~stays_around(around, around.distance(X))
    look[here.rows] = False
    more = np.flatnonzero(look)
    if len(more):  # few of them have left their piece
        t = X @ around.as_columns(more)
        least, most = t.min(axis=0), t.max(axis=0)
        lengths = np.linalg.norm(X, axis=1).max() + np.linalg.norm(around.x)
        tiny = margin_rounding(problem) * lengths * problem.sizes[more]
        tiny += 16.0 * EPS * np.maximum(np.abs(least), np.abs(most))
        left = (least - tiny < around.below[more]) | (most + tiny > around.above[more])
        more, t = more[left], t[:, left]
    if len(more):
        f = problem.losses
        slopes = np.clip(around.slopes_at(more, t), f.lo[more], f.hi[more])
        slopes *= np.asarray(whole.weights.take(more, axis=1))
        theta = np.hstack([theta, slopes])
        here = whole.looked_at(around, np.concatenate([here.rows, more]))
    theta = np.ascontiguousarray(theta)
    block = Weighted(here.A, looked_at_closer(problem, around, here.rows), here.W, theta)
    rest = Rest(here.At_theta, here.others, whole.sums, here.hessian)
    gap, primal = gaps_of_answers(problem, around, block, rest, X, shift)
    gap = np.where(whole.weights.min(axis=1) < 0, np.inf, gap)
    return Certificates(gap, relative_gap(gap, primal), primal, tol)


def looked_at_closer(problem: Problem, around: Around, rows: NDArray[np.intp]) -> Array:
    """`Weighted.own` of the terms at `rows`."""
    own = (column[rows] for column in (problem.sizes, problem.norms, *columns(problem.losses)))
    begins = np.where(around.rates[rows] > 0.0, np.inf, around.below[rows])
    pieces = around.slopes[rows], begins, around.above[rows], around.parts[rows, problem.d + 2]
    return np.array([*own, *pieces])


# -- each without one term, looked at by itself ---------------------------------------------------


class Beyond(NamedTuple):
    """The terms that are not looked at first, and what all of them sum up to.

    Attributes
    ----------
    A : array, shape (n, d)
        The rows of all terms.
    order : array of int, shape (f,)
        These terms, the nearest to their kinks first.
    room : array, shape (f,)
        How far they provably stay on their pieces, in that order (`Around.room`).
    below, above, sizes : array, shape (n,)
        As in `Around`, and the Euclidean lengths of the rows.
    into, back : array, shape (d, d)
        As in `Around`.
    width, length : float
        The norm of `back` and of the point.
    room_for_u : array, shape (d,)
        To work in.
    At_theta, hessian : array, shape (d,) and (d (d + 1) / 2,)
        ``A' theta`` at the slopes around, and the sum over those on parabolas.
    others : float
        The sum of the conjugate losses.
    sums : array, shape (5,)
        As in `Rest`.
    """

    A: Array
    order: Index
    room: Array
    below: Array
    above: Array
    sizes: Array
    into: Array
    back: Array
    width: float
    length: float
    room_for_u: Array
    At_theta: Array
    hessian: Array
    others: float
    sums: Array

    @classmethod
    def of(cls, problem: Problem, around: Around, near: Index, nearest: Index) -> Beyond:
        """All but the terms at `near`, of all in the order `nearest` (`by_room`)."""
        d, parts = problem.d, around.parts[near]
        far = np.ones(problem.n, dtype=bool)
        far[near] = False
        order = nearest[far[nearest]]
        total = around.total - parts.sum(axis=0)
        bent = around.place[near]
        hessian = around.hessian - around.hessians[bent[bent >= 0]].sum(axis=0)
        below, above, sizes = read_only(around.below, around.above, problem.sizes)
        return cls(
            around.rows, order, around.room[order], below, above, sizes, around.into, around.back,
            float(np.linalg.norm(around.back)), float(np.linalg.norm(around.x)),
            np.empty(d), total[:d].copy(), hessian, float(total[d + 2]), around.total[d:].copy(),
        )


@compiled(fastmath=frozenset({"reassoc"}), allocates=False)
def left_their_piece(beyond, X, x, forward, terms, distance, out):  # type: ignore[no-untyped-def]
    """Fill how far each answer is from x, and whether a term beyond those near left its piece.

    The distances as `Around.distance` says; `terms` are those that are left out.
    """
    d, into, back = x.size, beyond.into, beyond.back
    for k in range(len(X)):
        length, size, left, whole, answer = 0.0, 0.0, 0.0, 0.0, X[k]
        for j in range(d):
            u = 0.0
            for i in range(d):
                u += (answer[i] - x[i]) * into[i, j]
            beyond.room_for_u[j] = u
            length += u * u
        for i in range(d):
            v = answer[i] - x[i]
            size += v * v
            whole += answer[i] * answer[i]
            for j in range(d):
                v -= back[i, j] * beyond.room_for_u[j]
            left += v * v
        length, size = np.sqrt(length), np.sqrt(size)
        left = np.sqrt(left) + 2.0 * EPS * (d + 8) * (size + beyond.width * length)
        length = max(length, left / (64.0 * EPS * (d + 8) * beyond.width)) * (1.0 + EPS * (d + 16))
        distance[k], out[k] = length, False
        unit_error = forward * (np.sqrt(whole) + beyond.length)
        for p in range(beyond.order.size):
            if beyond.room[p] >= length * (1.0 + 8.0 * EPS):
                break
            i = beyond.order[p]
            t = 0.0
            for j in range(d):
                t += answer[j] * beyond.A[i, j]
            tiny = unit_error * beyond.sizes[i] + 16.0 * EPS * abs(t)
            stays = t - tiny >= beyond.below[i] and t + tiny <= beyond.above[i]
            if not stays and i != terms[k]:
                out[k] = True
                break


def by_room(around: Around) -> Index:
    """All terms, those that may leave their piece first in front."""
    return np.argsort(around.room)


class LeftOutOfRows:
    """Certificates of answers to one problem of rows without single terms.

    Parameters
    ----------
    problem : Problem
        As `certify_weightings` takes.
    around : Around
    near : array of int, shape (m,)
        The terms whose slopes are given; every other one has that of its piece.
    nearest : array of int, shape (n,)
        What `by_room` returns.
    """

    def __init__(self, problem: Problem, around: Around, near: Index, nearest: Index) -> None:
        self.problem, self.around = problem, around
        self.beyond = Beyond.of(problem, around, near, nearest)
        self.columns = around.as_columns(near)
        self.own = looked_at_closer(problem, around, near)

    def certify(
        self, index: Index, own: Index, X: Array, theta: Array, shift: Array | None
    ) -> tuple[Array, Array, Array]:
        """The gap of each answer, the relative one, and how far each has moved.

        Parameters
        ----------
        index, own : array of int, shape (K,)
            The terms that are left out, and where among those near they are; -1 where not.
        X, theta : array, shape (K, d) and (K, m)
            The answers, and the slopes of the terms near.
        shift : array, shape (K,), optional
            As in `certify_weightings`.
        """
        around, beyond, (K, m), d = self.around, self.beyond, theta.shape, self.problem.d
        here, far = np.flatnonzero(own >= 0), np.flatnonzero(own < 0)
        W = np.ones((K, m))
        W[here, own[here]] = 0.0
        sums = np.tile(beyond.sums, (K, 1))
        At_theta, hessian = np.tile(beyond.At_theta, (K, 1)), np.tile(beyond.hessian, (K, 1))
        others = np.full(K, beyond.others)
        if len(far):
            parts, place = around.parts[index[far]], around.place[index[far]]
            At_theta[far] -= parts[:, :d]
            others[far] -= parts[:, d + 2]
            hessian[far[place >= 0]] -= around.hessians[place[place >= 0]]
        rest = Rest(At_theta, others, sums, hessian)
        block = Weighted(self.columns, self.own, W, theta)
        gap, primal = gaps_of_answers(self.problem, around, block, rest, X, shift)
        distance, left = np.empty(K), np.empty(K, dtype=bool)
        forward = margin_rounding(self.problem)
        left_their_piece(beyond, X, around.x, forward, index, distance, left)
        gap[left] = np.inf
        return gap, relative_gap(gap, primal), distance
