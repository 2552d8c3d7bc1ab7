"""Vertices and faces of sums of kinks: of one program from nearby, by pivots; of many together.

::

    minimise  <c, x> + sum_i max(lo_i z_i, hi_i z_i),    z = A x - b

At a vertex d terms, the basis, are at their kinks. It is the optimum where slopes of these inside
their intervals balance all others.

*Pivots* (`Face`), also beside terms that are curved (``sum_i q_i theta_i^2 / 2 + ...``, a quadratic
form), where the optimum has fewer than d terms at their kinks: it is on a face. A primal active set
method. From the point the coordinates that the basis leaves free lead by Newton's step to the
minimum over them, or, where nothing is curved, down. The step is followed to where the objective
ceases to fall, past the kinks of as many terms as that takes (Barrodale and Roberts 1973) and with
the curves' changes of piece; if that is at a kink, its term enters the basis. At a minimum the
slopes of the basis that balance all others say which term leaves it, and to which side. What the
terms and the curves change along the edges is kept in a table, of which a pivot changes a multiple
of rank one. Kinks at which the point already is are the first basis, so that from the optimum of a
neighbour one search for each term that enters or leaves is about all there is to do; from other
points close by there are one to two a coordinate.

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
from scipy.linalg import blas, lapack

from cvxscreen._support.immutable import Immutable

Array = NDArray[np.float64]

# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.94 to 1.03 times the time, in up
# to 7 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
MOST, AT_LEAST = 8, 40
"""Searches at most: so many a coordinate, and so many in any case. One to three are usual."""
LEVEL = 1e-11
"""A pivot, and a rate, relative to the largest, that may be rounding alone."""
IDLE = 10
"""Searches that lead nowhere, as where more terms than coordinates are at their kinks: of 15 fits
of counts, whole numbers, zeros and marks twelve had none, and three 27 to 157."""
ON_KINK, INDEPENDENT = 1e-12, 1e-7
"""Distance, relative to the largest, at which a point is on a kink; the least pivot, relative to
the largest entry, for such a kink to be in the first basis."""
FLAT = 1e-11
"""What is added to the unit diagonal of the curvature over free edges, which may be singular: of an
edge without any the step is long enough to end at a kink."""
ROOT = 1e-14
"""What is added to the diagonal of a quadratic form, relatively, so that it has a triangular root:
faces, not points, are taken from it."""
EACH = 2
"""Searches that a slope outside its interval stands for: one to four. Where that is more than are
left, none is spent."""
RUNAWAY = 1e6
"""Growth of the largest margin that is none of a neighbour's optimum: without a minimum, or with
one that a proximal term alone makes, nothing else tells a face far out from one that is none."""
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


class Curves(Immutable):
    """Terms with slopes ``clip(z / q, lo, hi)``, ``z = A x - b``, beside kinks.

    Attributes
    ----------
    rows : array, shape (k, d)
    b, q, lo, hi : array, shape (k,)
        ``q > 0``; ends may be infinite.
    """

    rows: Array
    b: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def beside(
        cls, form: Array, rows: Array, b: Array, q: Array, lo: Array, hi: Array
    ) -> Curves:
        """These and ``1/2 <x, form x>``, as squares without ends.

        Raises
        ------
        LinAlgError
            If `form` is not positive semidefinite.
        """
        at = np.diag(form).nonzero()[0]
        k, matrix = len(at), form[np.ix_(at, at)]
        matrix[np.diag_indices(k)] *= 1.0 + ROOT
        root, ends = np.zeros((k, len(form))), np.full(k, np.inf)
        root[:, at] = np.linalg.cholesky(matrix).T
        return cls(
            np.vstack([rows, root]), np.concatenate([b, np.zeros(k)]),
            np.concatenate([q, np.ones(k)]), np.concatenate([lo, -ends]),
            np.concatenate([hi, ends]),
        )

    def slopes(self, x: Array) -> Array:
        """Slopes of all terms at x."""
        return np.clip((self.rows @ x - self.b) / self.q, self.lo, self.hi)


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
    face = Face(rows, b, lo, hi, linear, x)
    if not face.descend(MOST * len(x) + AT_LEAST):
        return None
    return settled(rows, b, lo, hi, linear, face.basis, face.slopes)


class Face:
    """The kinks that hold a point, and how the objective changes along the edges from there.

    Each edge moves one of these kinks alone, or none: it is free.

    Parameters
    ----------
    rows, b, lo, hi, linear, x : arrays
        As of `vertex`.
    curves : Curves, optional

    Attributes
    ----------
    basis : array of int, shape (d,)
        The kinks, -1 at free edges.
    free : mask, shape (d,)
    slopes : array, shape (m,)
        Of the kinks, 0 in the basis.
    bends, bent : array and mask, shape (k,)
        Slopes of the curves, and which of them are between their ends.
    """

    def __init__(
        self, rows: Array, b: Array, lo: Array, hi: Array, linear: Array, x: Array,
        curves: Curves | None = None,
    ) -> None:
        (m, d), z = rows.shape, rows @ x - b
        # On which side each kink is, 0 in the basis, and how far away.
        self.side, self.away = np.where(z > 0.0, 1.0, -1.0), np.abs(z)
        self.slopes, self.lo, self.hi = np.where(z > 0.0, hi, lo), lo, hi
        self.basis, self.free = np.full(d, -1), np.ones(d, dtype=bool)
        self.least, self.most = np.zeros(d), np.zeros(d)  # intervals of the basis' slopes
        nothing = np.zeros(0)
        self.curves = curves or Curves(rows[:0], nothing, nothing, nothing, nothing)
        self.z = self.curves.rows @ x - self.curves.b
        self.low, self.high = self.curves.q * self.curves.lo, self.curves.q * self.curves.hi
        self.ended = (np.isfinite(self.low) | np.isfinite(self.high)).nonzero()[0]
        self._bend()
        self.far = self._farthest()
        # All by a unit of each edge, which are the coordinates at first.
        self.costs, self.all = linear.copy(), np.array(rows, order="F")
        if curves is not None:
            self.all = np.asfortranarray(np.vstack([rows, curves.rows]))
        self.kinks, self.curved = self.all[:m], self.all[m:]
        least = INDEPENDENT * float(np.abs(rows).max(initial=0.0))
        for i in (self.away <= ON_KINK * self.far).nonzero()[0]:
            reach = np.abs(self.kinks[i]) * self.free
            if reach.max() > least:
                self._enter(int(i), int(reach.argmax()))

    def descend(self, most: int) -> bool:
        """Go to the optimum by so many searches at most; whether it was reached, and is near."""
        idle, at_minimum = 0, False  # over the free edges
        for count in range(most):
            balance = self.costs + self.slopes @ self.kinks
            if len(self.bends):
                balance += self.bends @ self.curved
            leaving = -1
            if at_minimum or not self.free.any():
                k, way, wrong = self._wrong(balance)
                if not wrong:
                    return self._farthest() <= RUNAWAY * self.far
                if EACH * wrong > most - count:
                    return False
                leaving = self._leave(k, way)
                balance[k] += self.slopes[leaving]
            step = self._newton(balance)
            if not step.any():
                at_minimum = True
                continue
            rates = self.all @ step
            found = self._search(rates, max(-float(step @ balance), 0.0))
            if found is None:
                return False
            length, entering, passed = found
            was, rate = self.bent, rates[: len(self.lo)]
            if len(was):
                self.z += length * rates[len(rate):]
                self._bend()
            self.away += length * self.side * rate
            self.away[passed] *= -1.0
            self.side[passed] *= -1.0
            right = self.side[passed] > 0.0
            self.slopes[passed] = np.where(right, self.hi[passed], self.lo[passed])
            at_minimum = entering < 0 and not len(passed) and bool((was == self.bent).all())
            if entering >= 0:
                if leaving >= 0:
                    idle += length * float(np.abs(rate).max()) <= LEVEL * self.far
                    if idle > IDLE:
                        return False
                reach = np.abs(self.kinks[entering]) * (step != 0.0)
                self._enter(entering, int(reach.argmax()))
        return False

    def _farthest(self) -> float:
        """The largest margin."""
        return max(float(self.away.max(initial=0.0)), float(np.abs(self.z).max(initial=0.0)))

    def _bend(self) -> None:
        """The slopes of the curves where they are now."""
        self.bent = (self.z > self.low) & (self.z < self.high)
        self.bends = np.clip(self.z / self.curves.q, self.curves.lo, self.curves.hi)

    def _wrong(self, balance: Array) -> tuple[int, float, int]:
        """The edge with the slope farthest outside, the side its kink goes to, how many are so."""
        down, up = balance + self.least, balance + self.most
        fall = np.maximum(down, -up) - OUTSIDE * (self.most - self.least)
        fall[self.free] = -1.0
        k = int(fall.argmax())
        return k, 1.0 if -up[k] >= down[k] else -1.0, int(np.count_nonzero(fall > 0.0))

    def _newton(self, balance: Array) -> Array:
        """The step to the minimum over the free edges, were curves to stay on their pieces.

        Where there is no curvature it only is a way down.
        """
        step, at, bent = np.zeros(len(balance)), self.free.nonzero()[0], self.bent
        if not len(bent):
            step[at] = -balance[at]
            if len(at) > 1:
                step[at] /= np.square(self.kinks[:, at]).sum(axis=0) + 1e-300
            if not step.any():
                step[at[0]] = 1.0
            return step
        rows = self.curved[:, at] if bent.all() else self.curved[bent][:, at]
        H = (rows.T / self.curves.q[bent]) @ rows
        own = np.diag(H)
        scale = 1.0 / np.sqrt(np.where(own > 0.0, own, own.max(initial=0.0) or 1.0))
        H *= scale[:, None] * scale
        H[np.diag_indices(len(at))] += FLAT
        step[at] = -scale * lapack.dposv(H, scale * balance[at], overwrite_a=1)[1]
        return step

    def _search(
        self, rates: Array, falls: float
    ) -> tuple[float, int, NDArray[np.intp]] | None:
        """How far the objective falls, the kink there, if any (-1), and those passed before.

        None where it falls without end.
        """
        m = len(self.lo)
        towards = -self.side * rates[:m]
        met = (towards > LEVEL * float(np.abs(rates).max())).nonzero()[0]
        speed = towards[met]
        events, rises = self.away[met] / speed, (self.hi[met] - self.lo[met]) * speed
        curvature, changes = 0.0, None
        if m < len(rates):
            bending = rates[m:] ** 2 / self.curves.q
            curvature = float(bending @ self.bent)
        if len(self.ended):  # a curve bends from one of its ends to the other
            at = self.ended[rates[m:][self.ended] != 0.0]
            z, r, bending = self.z[at], rates[m:][at], bending[at]
            ends = (self.low[at] - z) / r, (self.high[at] - z) / r
            first, last = np.minimum(*ends), np.maximum(*ends)
            starts, stops = first > 0.0, (last > 0.0) & (last < np.inf)
            events = np.concatenate([events, first[starts], last[stops]])
            changes = np.concatenate([np.zeros(len(met)), bending[starts], -bending[stops]])
            rises = np.concatenate([rises, np.zeros(len(events) - len(met))])
        order = events.argsort()
        times, after = events[order], rises[order].cumsum()
        if curvature > 0.0 or changes is not None:
            curved = np.full(len(order) + 1, curvature)
            if changes is not None:
                curved[1:] += changes[order].cumsum()
                curved[curved <= LEVEL * curved.max()] = 0.0
            gained = np.diff(times, prepend=0.0) * curved[:-1]
            after += gained.cumsum()
        last = int(after.searchsorted(falls))
        passed = order[:last]
        if changes is not None:
            passed = passed[passed < len(met)]
        if curvature > 0.0 or changes is not None:
            rest = falls - (after[last - 1] if last else 0.0)
            if last == len(order) or rest <= gained[last]:
                if not curved[last] > 0.0:
                    return None
                began = times[last - 1] if last else 0.0
                return float(began + rest / curved[last]), -1, met[passed]
        elif last == len(order):
            return None
        return float(times[last]), int(met[order[last]]), met[passed]

    def _leave(self, k: int, way: float) -> int:
        """Let the kink of an edge go to a side; which one it was."""
        leaving = int(self.basis[k])
        self.side[leaving] = way
        self.slopes[leaving] = self.hi[leaving] if way > 0.0 else self.lo[leaving]
        self.basis[k], self.free[k], self.least[k], self.most[k] = -1, True, 0.0, 0.0
        return leaving

    def _enter(self, entering: int, k: int) -> None:
        """Hold a kink, which edge k moves, and no other edge from now on."""
        self.side[entering] = self.away[entering] = self.slopes[entering] = 0.0
        self.basis[k], self.free[k] = entering, False
        self.least[k], self.most[k] = self.lo[entering], self.hi[entering]
        other = self.kinks[entering].copy()
        edge = self.all[:, k]
        edge /= other[k]
        self.costs[k] /= other[k]
        other[k] = 0.0
        self.all = blas.dger(-1.0, edge, other, a=self.all, overwrite_a=1)
        self.costs -= self.costs[k] * other


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
