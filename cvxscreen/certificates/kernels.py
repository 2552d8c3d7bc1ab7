"""Certificates of many answers over one kernel, all of them at once.

They are those of many small problems, a class against the rest each, or a class against another
(`certify_parts`), or of one problem without single terms (`LeftOutOfGram`).

With ``w = sum_i c_i z_i`` and ``theta = -s c`` the two points of a problem are the same w, whatever
the rounding of c: the duality gap is the sum of the Fenchel-Young terms alone. With an intercept
the coefficients must sum to 0. Their sum r is known exactly but for its last bit; the slope of one
term that has room for it is moved by r, which costs at most ``|r|`` times what its Fenchel-Young
term grows by, and ``r^2 / 2`` times its squared norm. The margins are recomputed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import TINY, UNIT, gamma
from cvxscreen.certificates.certificate import (
    EPS,
    Certificate,
    columns,
    endless_above,
    gap_above,
    steepness,
    value_above,
    verdict,
)
from cvxscreen.certificates.weightings import piece_of
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.designs.gram import Gram, exact_sum
from cvxscreen.designs.rows_on_demand import KernelPoints, RowsOnDemand, want_row

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class KernelParts(Immutable):
    """K problems ``1/2 ||w||^2 + sum_i f_i(s_i (<z_i, w> + b))``, their terms one after another.

    Attributes
    ----------
    whole : Problem
        Over all N points: losses are of points, the same in every problem that has them. Where its
        kernel is not `filled` loops must be able to evaluate rows of it.
    index : array of int, shape (m,)
        The point of each term; no point twice in one problem.
    sign : array, shape (m,)
    first : array of int, shape (K + 1,)
        Where the terms of each problem begin.
    """

    whole: Problem
    index: Index
    sign: Array
    first: Index

    @classmethod
    def of(
        cls, whole: Problem, rows: Sequence[Index], signs: Sequence[Array]
    ) -> KernelParts:
        """From the points and the signs of each problem."""
        first = np.cumsum([0, *map(len, rows)])
        return cls(whole, np.concatenate(rows), np.concatenate(signs), first)

    @property
    def gram(self) -> Gram:
        """The kernel matrix of all N points, that every problem takes its entries from."""
        return cast(Gram, self.whole.design)

    def __len__(self) -> int:
        return len(self.first) - 1

    @contextmanager
    def rows(self, k: int) -> Iterator[RowsOnDemand]:
        """The rows of the matrix of problem k.

        Where the kernel is `filled` they are read, or copied; else they are evaluated and kept, in
        the kernel's cache if they are those of all points.
        """
        kernel, index = self.gram.kernel, self.index[self.terms(k)]
        matrix, m = kernel.matrix(), len(index)
        if m == kernel.size and matrix is None:
            with kernel.on_demand() as rows:
                yield rows
        elif matrix is not None:
            whole = m == len(matrix)
            yield RowsOnDemand.of(matrix) if whole else RowsOnDemand.copied(
                matrix, index, self._room
            )
        else:
            own = self._own.get(k)
            if own is None:
                all_points = cast(KernelPoints, kernel.function.source)
                K, slot = np.empty((m, m)), np.full(m, -1)  # what nobody writes to takes no memory
                own = RowsOnDemand.evaluated(all_points.take(index), K, slot, 0)
                self._own[k] = own
            yield own

    def evaluated(self) -> int:
        """How many entries are kept of the problems on a part of the points.

        If they take more memory than the kernel's cache may, they are given up: who wants them
        again, as the certificate does, has them evaluated again.
        """
        kept = list(self._own.values())  # while other threads add theirs
        entries = sum(int(rows.arrived[0]) * len(rows.slot) for rows in kept)
        if 8 * entries > self.gram.kernel.cache_bytes:
            self._own.clear()
        return entries

    @cached_property
    def _own(self) -> dict[int, RowsOnDemand]:
        """Of problems on a part of the points, what has been evaluated."""
        return {}

    @cached_property
    def _room(self) -> Array:
        """For what is copied for one problem."""
        sizes = np.diff(self.first)
        return np.empty(int(sizes[sizes < self.gram.kernel.size].max(initial=0)) ** 2)

    def problem(self, k: int) -> Problem:
        """Problem k, its coordinates the coefficients of all N points."""
        own = self.terms(k)
        gram = Gram(self.gram.kernel, self.sign[own], self.gram.intercept, self.index[own])
        return replace(self.whole, design=gram, losses=self.whole.losses.take(self.index[own]))

    @cached_property
    def squares(self) -> Array:
        """Squared norms of all points, rounded up, shape (N,)."""
        return Gram(self.gram.kernel).squares

    def terms(self, k: int) -> slice:
        """Where the terms of problem k are."""
        return slice(int(self.first[k]), int(self.first[k + 1]))


@compiled(allocates=False)
def products(rows: RowsOnDemand, c: Array, out: Array) -> None:
    """``<z_i, w>`` at all points of `rows`, ``w = sum_j c_j z_j``; NaN if a row has no room."""
    for i in range(len(c)):
        out[i] = 0.0
    for j in range(len(c)):
        if c[j] != 0.0:
            place = want_row(j, rows)
            for i in range(len(c)):
                out[i] += c[j] * rows.K[place, i] if place >= 0 else np.nan


def margins(parts: KernelParts, c: Array, b: Array) -> tuple[Array, Array, Array]:
    """``<z_i, w>`` of every term, its margin, and how far that may be from the exact one."""
    index, sizes = parts.index, np.diff(parts.first)
    u = np.empty(len(c))
    for k in range(len(parts)):
        own = parts.terms(k)
        with parts.rows(k) as rows:
            products(rows, c[own], u[own])
        parts.evaluated()  # which gives up rows that take too much memory
    level = np.repeat(b, sizes)
    roots = np.sqrt(parts.squares)[index] * (1.0 + 4.0 * UNIT)
    near = parts.gram.kernel.function.errors[index]
    heavy = np.abs(c) * roots
    depth = gamma(int(sizes.max()) + 8)
    far, of_others = (
        np.repeat(np.add.reduceat(values, parts.first[:-1]), sizes) for values in (
            heavy, heavy * near,
        )
    )
    error = roots * ((depth + near) * far + of_others) * (1.0 + 2.0 * depth)
    return u, parts.sign * (u + level), error + 4.0 * UNIT * (np.abs(u) + np.abs(level))


def certify_parts(parts: KernelParts, c: Array, b: Array, tol: float) -> list[Certificate]:
    """Recompute the optimality of all K answers.

    Parameters
    ----------
    parts : KernelParts
    c : array, shape (m,)
        Coefficients of the terms.
    b : array, shape (K,)
        Intercepts.
    tol : float
        Relative gap asked for.
    """
    u, t, error = margins(parts, c, b)
    f = tuple(column[parts.index] for column in columns(parts.whole.losses))
    theta, (at, e, q, lo, hi) = -parts.sign * c, f
    values = np.asarray(value_above(t, at, e, q, lo, hi, steepness(q)))
    gaps = gap_above(t, theta, error, values, *f) + endless_above(values, error, q, lo, hi)
    gaps = np.where((theta < lo) | (theta > hi) | ~np.isfinite(gaps), np.inf, gaps)
    starts, longest = parts.first[:-1], int(np.diff(parts.first).max())
    gap = np.add.reduceat(gaps, starts) * (1.0 + longest * EPS)
    if parts.gram.intercept:
        gap = gap + _balance(parts, c, f, np.abs(t) + error)
    primal = np.add.reduceat(values + 0.5 * c * u, starts)
    return [verdict(float(g), float(p), tol) for g, p in zip(gap, primal, strict=True)]


def _balance(parts: KernelParts, c: Array, f: tuple[Array, ...], t: Array) -> Array:
    """What it costs each problem that its coefficients do not sum to 0; `t` are margins at most.

    Infinite where no term has room.
    """
    sizes, starts = np.diff(parts.first), parts.first[:-1]
    short = np.array([exact_sum(c[parts.terms(k)]) for k in range(len(parts))])
    need = np.abs(short) * (1.0 + 4.0 * UNIT)
    each = np.repeat(need, sizes)
    b, e, q, lo, hi = f
    # The slope -s c is to rise where the sum is above 0 and s is 1, or below and -1.
    theta = -parts.sign * c
    rises = (np.repeat(short, sizes) > 0.0) == (parts.sign > 0.0)
    room = np.where(rises, hi - theta, theta - lo)
    rate = t + np.abs(b) + e + q * (np.abs(theta) + each)
    cost = each * (rate + 0.5 * each * parts.squares[parts.index])
    cost = np.where(room * (1.0 - 4.0 * UNIT) >= each, cost, np.inf)
    return np.where(need > 0.0, np.minimum.reduceat(cost, starts), 0.0) * (1.0 + 16.0 * UNIT)


# -- one problem, each answer without a term of its own --------------------------------------------


def _away(problem: Problem, s: Array, t: Array) -> Array:
    """How far margins `t` provably are inside the linear piece of slope s; negative on none."""
    below, above = piece_of(problem, s)
    return np.asarray(np.minimum(t - below, above - t) - 16.0 * EPS * np.abs(t))


class LeftOutProofs(NamedTuple):
    """What is certified about a block of answers, each without a term of its own.

    Attributes
    ----------
    margins, error : array, shape (K,)
        Of the term that is left out, and how far its margin at the optimum may be from that.
    gap, relative_gap : array, shape (K,)
        As in `Certificates`; of a kernel the square of how far the optimum may be, where that is
        less (`LeftOutOfGram`).
    ok : mask, shape (K,)
        Which gaps are within the tolerance.
    moved : array of int
        Terms that one of the others takes to be on a piece on which they are not.
    answers : array, shape (K, d), optional
        The answers themselves, of rows.
    """

    margins: Array
    error: Array
    gap: Array
    relative_gap: Array
    ok: Mask
    moved: Index
    answers: Array | None = None


MOST_AT_KINKS = 2000
"""Most terms whose matrix is factored for how far an optimum may be: 0.2 s."""

SHARE = 0.1
"""Of the tolerance, from which on a gap is compared to such a distance: an interval of a third of
what was asked for is not worth the time, a fourth of a certificate's."""

LEAST = 1e-2, 1e-5, 1e-8
"""Bounds of a smallest eigenvalue that are tried, of a matrix with a unit diagonal: distances go
with the root, and the gap's root is thousands of times longer."""


def eigenvalues_above(least: float, matrix: Array, error: float) -> bool:
    """Whether those of any symmetric matrix within `error` of `matrix` an entry are proven to be.

    Of a diagonal of 1 at most. Where Cholesky's method goes through with a number less on the
    diagonal, the matrix is positive definite but for the rounding of its sums, ``gamma(m + 1)``
    times the trace (Rump, Verification of positive definiteness, BIT 2006).
    """
    m = len(matrix)
    less = matrix.copy()
    less[np.diag_indices(m)] -= least + m * (2.0 * gamma(m + 8) + error)
    try:
        np.linalg.cholesky(less)
    except np.linalg.LinAlgError:
        return False
    return True


class LeftOutOfGram:
    """Certificates of answers to a kernel problem without single terms.

    The primal point is that of the slopes, ``x = -A' theta``, so that the duality gap is the sum of
    the Fenchel-Young terms ``f_j(t_j) + f_j*(theta_j) - t_j theta_j``. The primal value exceeds the
    optimal one by at least ``1/2 |x - x*|^2``, the dual one falls short of it by as much, so the
    optimum is within ``sqrt(gap)`` of x. The margins of an answer are those at `theta` and the
    product of the Gram matrix with the slopes that changed. A term with its old slope whose margin
    stays inside the linear piece of that slope adds nothing: exactly, by Fenchel's equality.

    The margins at a kink are known up to rounding only, and each adds that times its slope: where
    slopes are large, the root of the gap is far longer than the way to the optimum. Let r be how
    far a margin may be from those that belong to its slope, s how far it is inside of them, B the
    terms with ``s <= c |a|``, D the change of the slopes and S any diagonal. The slopes of
    conjugate losses are monotone, growing by q at least, so that

    ::

        |x - x*|^2 + sum_B q D^2 + sum_others s |D|  <=  sum_B r |D|
        |x - x*| + sum_others |a| |D|  >=  |sum_B a D|,    G_BB + diag(q) >= l S
            ==>   |x - x*|  <=  sqrt(sum_B r^2 / S / l)    if that is c at most

    which is linear in the rounding. It is made where the gap is not enough. Terms of B at one point
    are one term, whose loss is the sum of theirs: as slopes of losses grow with the margin, one
    that belongs to the sum of their slopes is no further than the furthest of theirs.

    Parameters
    ----------
    problem : Problem
        With a kernel, no intercept, no linear part, a point of its own for every term.
    theta : array, shape (n,)
        Slopes that all answers are near.
    tol : float
        Relative gap asked for.

    Attributes
    ----------
    margins : array, shape (n,)
        At `theta`.
    """

    def __init__(self, problem: Problem, theta: Array, tol: float) -> None:
        design = cast(Gram, problem.design)
        x = -design.adjoint(theta)
        self.problem, self.theta, self.tol, self.design = problem, theta, tol, design
        self.margins = design.forward(x)
        self._error = design.forward_error(x, problem.sizes)
        self._away = _away(problem, theta, self.margins) - self._error
        b, e, q, _, _ = columns(problem.losses)
        self._conjugates = b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
        self._dual = -float(self._conjugates.sum()) - 0.5 * problem.quadratic.norm(x) ** 2
        self._proven = 0.0, np.zeros(problem.n, dtype=bool)  # see `_independent`

    def gram(self, rows: Index, others: Index) -> Array:
        """``<a_i, a_j>`` for i in `rows` and j in `others`."""
        return self.design.inner_products(rows, self.design, others)

    def times_gram(self, weights: Array, rows: Index) -> Array:
        """``weights`` (K, m) times `gram` of `rows` and all terms; signs round nothing."""
        design = self.design
        products = design.kernel.combined(weights * design.sign[rows], design.index[rows])
        return products[:, design.index] * design.sign

    def certify(
        self, index: Index, rows: Index, slopes: Array
    ) -> LeftOutProofs:
        """Recompute the optimality of K answers on all of the data.

        Parameters
        ----------
        index : array of int, shape (K,)
            The term that each leaves out.
        rows : array of int, shape (m,)
            Terms whose slopes are given, those of `index` among them; all others have `theta`.
        slopes : array, shape (K, m)
            Of weight 1; of the term that is left out 0.
        """
        f, n = columns(self.problem.losses), self.problem.n
        K = len(index)
        answers = np.arange(K)
        change = slopes - self.theta[rows]
        used = np.flatnonzero(change.any(axis=0))
        at, part = rows[used], change[:, used]
        t = self.margins - self.times_gram(part, at)
        most = np.zeros(n)
        most[at] = np.abs(part).max(axis=0, initial=0.0)
        spread = self.design.spread(most)
        # A product of so many coefficients in one sum, where the design's are in chunks.
        error = self._error + (1 + len(used) // 128) * self.design.product_error(spread)
        error = error * (1.0 + 64.0 * EPS) + 4.0 * EPS * np.abs(self.margins)
        moves = np.abs(t - self.margins)
        look = ~(moves * (1.0 + 8.0 * EPS) + error + 4.0 * EPS * np.abs(t) < self._away)
        look[:, at] = True
        look[answers, index] = False
        who, term = np.nonzero(look)
        theta = np.tile(self.theta, (K, 1))
        theta[:, rows] = slopes
        s, margin = theta[who, term], t[who, term]
        b, e, q, lo, hi = (column[term] for column in f)
        value = value_above(margin, b, e, q, lo, hi, steepness(q))
        t_error = error[term] + 4.0 * EPS * np.abs(margin)
        each = gap_above(margin, s, t_error, value, b, e, q, lo, hi)
        each = each + endless_above(value, t_error, q, lo, hi)
        outside = (s < lo) | (s > hi) | ~np.isfinite(each)
        gap = np.zeros(K)
        np.add.at(gap, who, np.where(outside, np.inf, each))
        gap *= 1.0 + n * EPS
        gap = np.where(theta[answers, index] != 0.0, np.inf, gap)
        new = f[0][rows] * slopes + f[1][rows] * np.abs(slopes)
        new = (new + 0.5 * f[2][rows] * slopes * slopes - self._conjugates[rows]).sum(axis=1)
        # |x|^2 changes by minus the product of the slopes' change with both margins.
        dual = self._dual - new + 0.5 * np.einsum("km,km->k", part, t[:, at] + self.margins[at])
        primal = dual + self.problem.constant + gap
        relative = relative_gap(gap, primal)
        far = np.flatnonzero((relative > SHARE * self.tol) & np.isfinite(gap))
        if len(far):
            most = np.sqrt(self.tol * gap[far] / relative[far])
            distances = self._distances(index[far], theta[far], t[far], error, most)
            gap[far] = np.minimum(gap[far], distances**2 * (1.0 + 4.0 * EPS))
            relative = relative_gap(gap, primal)
        away = self.problem.norms[index] * np.sqrt(gap) * (1.0 + 64.0 * EPS)
        given = np.zeros(n, dtype=bool)
        given[rows] = True
        moved = np.unique(term[(each > 0.0) & ~given[term]])
        own = t[answers, index]
        error = away + error[index] + 4.0 * EPS * np.abs(own)
        return LeftOutProofs(own, error, gap, relative, relative <= self.tol, moved)

    def _distances(
        self, index: Index, theta: Array, t: Array, error: Array, most: Array
    ) -> Array:
        """How far each optimum without its term of `index` may be: see the class.

        From slopes and margins of all terms, shape (K, n), the latter within `error`. Infinite
        where that is more than `most`, or not known.
        """
        b, e, q, lo, hi = columns(self.problem.losses)
        norms, every, steep = self.problem.norms, np.arange(len(index)), q * theta
        below = np.where(theta > lo, b + np.where(theta > 0.0, e, -e) + steep, -np.inf)
        above = np.where(theta < hi, b + np.where(theta < 0.0, -e, e) + steep, np.inf)
        inside = np.minimum(t - below, above - t)
        inside -= error + 8.0 * EPS * (np.abs(t) + np.abs(b) + e + np.abs(steep))
        inside[every, index] = np.inf
        scale = norms * norms + q + TINY
        off = np.sqrt((np.minimum(inside, 0.0) ** 2 / scale).sum(axis=1))
        off *= 1.0 + EPS * (self.problem.n + 16)
        found = np.full(len(index), np.inf)
        # The terms at a kink are nearly those of all answers; where they depend on each other, each
        # answer's own may not.
        for group in (every[None], every[:, None]):
            for least in LEAST:
                for some in group:
                    reach = off[some] / np.sqrt(least) * (1.0 + 8.0 * EPS)
                    wanted = np.isinf(found[some]) & (reach <= most[some])
                    some, reach = some[wanted], reach[wanted]
                    near = (inside[some] <= reach[:, None] * norms * (1.0 + 8.0 * EPS)).any(axis=0)
                    if len(some) and self._independent(self._apart(near), scale, least):
                        found[some] = reach
        return found

    def _apart(self, near: Mask) -> Index:
        """One term of those at each point, of `near` ones; with curvature every one."""
        kinks: dict[bytes | int, int] = {}
        rows = np.flatnonzero(near)
        points = self.design.kernel.function.identities(self.design.index[rows])
        curved = self.problem.losses.q[rows] > 0.0
        for i, point, bent in zip(rows.tolist(), points, curved.tolist(), strict=True):
            kinks.setdefault(i if bent else point, i)
        return np.array(list(kinks.values()), dtype=np.intp)

    def _independent(self, rows: Index, scale: Array, least: float) -> bool:
        """Whether ``G + diag(q)`` of the terms at `rows` is proven to exceed least times `scale`.

        As that of terms among which they are, such as those of the answers before.
        """
        proven, there = self._proven
        if least <= proven and there[rows].all():
            return True
        if len(rows) > MOST_AT_KINKS:
            return False
        matrix, roots = self.gram(rows, rows), np.sqrt(scale[rows])
        matrix[np.diag_indices(len(rows))] += self.problem.losses.q[rows]
        matrix /= roots
        matrix /= roots[:, None]
        errors = self.design.kernel.function.errors
        if not eigenvalues_above(least, matrix, 2.0 * float(errors.max()) + 16.0 * EPS):
            return False
        there = np.zeros(self.problem.n, dtype=bool)
        there[rows] = True
        self._proven = least, there
        return True
