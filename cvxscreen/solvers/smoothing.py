"""Close to the optimum of a sum of kinks, without solving anything: Newton's method, smoothed.

The mean of a loss over an interval, ``f^h(t) = 1/2h int f(t + u) du, |u| <= h``, is smooth, with

::

    slope      (f(t + h) - f(t - h)) / 2h
    curvature  (f'(t + h) - f'(t - h)) / 2h

(convolution with a uniform kernel: Fernandes, Guerre and Horta 2021; He, Pan, Tan and Zhou 2023),
and differs from f within h of a kink alone. A step of Newton's method takes one matrix of the terms
there, and is kept if the objective itself falls. The interval shrinks to what a step takes across
their kinks: after three to five steps that are some dozens of a hundred thousand terms. The first
intervals hold half of a small sample; the optimum of a sample is where the steps over ten times as
many terms begin. Its error says which of these may change sides: all others are replaced by their
lines once (globbing: Portnoy and Koenker 1997, section 5), and the steps go through the few that
are left alone. Pivots lead from there to the vertex (`cvxscreen.solvers.vertices`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, entries
from cvxscreen.screening.reduction import KnownSlopes
from cvxscreen.solvers.vertices import vertex, vertices

Array = NDArray[np.float64]

WITHIN = 3.0
"""Terms that may change sides on the way from the optimum of a sample of s of n terms, in units of
``n sqrt(d / s)``. Margins of a quantile regression there are off by a normal variable with
deviation ``sqrt(d tau (1 - tau) / s)`` over the density at the kink (Koenker 2005, section 4.2), so
that three deviations hold at most this many; of 20 fits 8 had one to four terms beyond them, and 16
with two deviations, up to 173."""
# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.9 to 1.2 times the time, in up to
# 6 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
TIES = 1e-9
"""Terms that are all so much nearer to their kinks than others are tied there, and no density."""
STEPS = 20
"""Steps at most; three to five are usual."""
SHORTER = (1.0, 0.3, 0.1)
"""Shares of a step that are tried before the interval is made shorter."""
SETTLED, NARROWEST = 2, 4
"""Terms that the last step takes across their kinks, and least ones for a density, in units of the
coordinates."""
MANY = 0.25
"""Share of the first interval's terms up to which one is short although steps over it do not
settle; and of the terms that are gone through, up to which others are put beside them."""
BESIDE, NARROWER = 5, 8
"""Terms that are kept around the last point, in units of those that the last step took across, and
the share of its interval's terms that are kept, or go on, at least."""
LEAST, FEWEST, MORE = 10, 200, 4
"""Terms that pivots go through at least, in units of the coordinates, and in any case: of few terms
more cost next to nothing; and so many times more where these do not hold the vertex."""
ROUNDS = 4
"""How often terms are put back; once or twice are usual."""
FEW = 0.5
"""Share of the terms up to which different values are few."""
FLAT = 1e-9
"""What is added to the diagonal of the curvature, relatively: columns may depend on each other."""
PIVOTED = 24
"""Coordinates up to which pivots lead to a vertex; two to three times as many are needed."""
ALL = 2**18
"""Entries up to which pivots go through all terms where Newton's method does not settle."""
DENSE = 2**24
"""Entries of the terms near their kinks that are written out whatever the data take (128 MB)."""


class Kinks(Immutable):
    """``<c, x> + 1/2 <x, M x> + sum_i max(lo_i z_i, hi_i z_i)``, ``z = A x - b``, all written out.

    Attributes
    ----------
    terms : array of int, shape (m,)
        Of the problem; those with a dead zone are there twice, a kink at either end.
    rows : array, shape (m, d)
    b, lo, hi : array, shape (m,)
    linear : array, shape (d,)
    form : array, shape (d, d)
    """

    terms: NDArray[np.intp]
    rows: Array
    b: Array
    lo: Array
    hi: Array
    linear: Array
    form: Array

    @classmethod
    def of(cls, problem: Problem, terms: NDArray[np.intp], linear: Array) -> Kinks | None:
        """Some of a problem's terms beside a linear term; None where they fill the memory."""
        if len(terms) * problem.d > max(DENSE, entries(problem.design)):
            return None
        f, rows, form = problem.losses.take(terms), problem.design.dense(terms), problem.quadratic
        if not f.e.any():
            return cls(terms, rows, f.b, f.lo, f.hi, linear, form.dense())
        zero, twice = np.zeros(len(terms)), np.concatenate([terms, terms])
        b, rows = np.concatenate([f.b - f.e, f.b + f.e]), np.concatenate([rows, rows])
        lo, hi = np.concatenate([f.lo, zero]), np.concatenate([zero, f.hi])
        return cls(twice, rows, b, lo, hi, linear, form.dense())

    def value(self, x: Array, z: Array) -> float:
        """The objective at x, whose margins are z."""
        value = float(z @ np.where(z > 0.0, self.hi, self.lo))
        return value + float(self.linear @ x) + 0.5 * float(x @ (self.form @ x))

    def newton(self, x: Array, wide: int, settled: int) -> tuple[Array, int] | None:
        """Steps from x, the first one smoothed over its `wide` terms nearest to their kinks.

        They end with one that takes at most `settled` terms across, or where none descends. Returns
        the point, and among how many of the terms nearest to it those of the optimum are: all of
        them where the steps do not settle. None where terms are tied.
        """
        d, reach = len(x), len(self.b)
        least, wide = NARROWEST * d, min(wide, reach - 1)
        if wide <= least:
            return x, reach
        most = max(MANY * wide, 2 * least)
        z = self.rows @ x - self.b
        value, middle, half = self.value(x, z), 0.5 * (self.hi + self.lo), 0.5 * (self.hi - self.lo)
        size = float(np.abs(z + self.b).max(initial=0.0))
        for _ in range(STEPS):
            away = np.abs(z)
            edge = float(np.partition(away, wide)[wide])
            if not TIES * (float(away.max()) + size) < edge < np.inf:
                return None
            # Within the interval a kink is a parabola of that width: the curvature is then the
            # density of terms there, which a sum of kinks has from far enough.
            near = np.flatnonzero(away <= edge)
            slopes = middle + half * np.clip(z / edge, -1.0, 1.0)
            block = self.rows[near]
            H = block.T @ (block * (half[near] / edge)[:, None]) + self.form
            step = solved(H, slopes @ self.rows + self.linear + self.form @ x)
            if step is None:
                break
            moved = self.rows @ step
            for share in SHORTER:
                after, there = x - share * step, z - share * moved
                reached = self.value(after, there)
                if reached < value:
                    break
            else:
                if wide <= least:
                    break
                wide = max(wide // 2, least)
                continue
            crossed = int(np.count_nonzero((there > 0.0) != (z > 0.0)))
            x, z, value = after, there, reached
            reach = wide
            if share < 1.0:
                wide = max(wide // 2, least)
                continue
            # A whole step that takes few terms across was right about the density: as few are to
            # be looked at around the next point.
            reach = max(BESIDE * crossed, wide // NARROWER)
            if crossed <= settled:
                return x, reach
            if crossed < wide // 2:
                wide = max(2 * crossed, wide // NARROWER, least)
        return x, reach if reach <= most else len(self.b)

    def beside(self, other: Kinks) -> Kinks:
        """These and others, beside the linear term of the others."""
        joint = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("terms", "rows", "b", "lo", "hi")
        }
        return Kinks(**joint, linear=other.linear, form=self.form)

    def vertex(self, x: Array, reach: int) -> tuple[Array, Array, int] | None:
        """The optimum and its slopes from a point nearby, if it is a vertex; of how many terms.

        Pivots go through the `reach` terms that are nearest to their kinks, and those that turn out
        to be on another side than at x.
        """
        m, d = self.rows.shape
        if self.form.any():
            return None
        few, held = max(LEAST * d, FEWEST, reach), np.zeros(m, dtype=bool)
        most = min(m, (MORE + 1) * few)
        for _ in range(ROUNDS):
            z = self.rows @ x - self.b
            at, away = np.ones(m, dtype=bool), np.abs(z)
            if few < m:
                at = held | (away <= np.partition(away, few)[few])
            some, slopes = np.flatnonzero(at), np.where(z > 0.0, self.hi, self.lo)
            if len(some) > most:  # not near, or many of them are at their kinks
                return None
            slopes[some] = 0.0
            linear = self.linear + slopes @ self.rows
            part = self.rows[some], self.b[some], self.lo[some], self.hi[some], linear
            found = of_few(part, x)
            if found is None:
                if few >= most:
                    return None
                few *= MORE
                continue
            x, slopes[some] = found
            off = ~at & ((self.rows @ x > self.b) != (z > 0.0))
            if not off.any():
                return x, slopes, len(some)
            held |= off
        return None


def of_few(
    part: tuple[Array, Array, Array, Array, Array], x: Array
) -> tuple[Array, Array] | None:
    """The vertex by pivots, or where these are many by the steps of an interior point method.

    `part` as the first arguments of `pivots.vertex`. No more terms than coordinates are none of
    its programs.
    """
    if len(x) <= PIVOTED:
        return vertex(*part, x)
    if len(part[1]) <= len(x):
        return None
    rows, b, lo, hi, linear = (array[None] for array in part)
    got = vertices(rows, b, lo, hi, linear, x[None])
    return (got.x[0], got.theta[0]) if got.found[0] else None


class NearOptimum(Immutable):
    """A point near an optimum.

    Attributes
    ----------
    problem : Problem
    x : array, shape (d,)
    margins : array, shape (n,)
    near : Kinks
        The terms that may change sides on the way to the optimum.
    others : array, shape (n,)
        The slopes of all others, and 0.
    reach : int
        Terms nearest to their kinks among which those of the optimum are.
    found : tuple, optional
        What `Kinks.vertex` says, where x is the vertex already.
    """

    problem: Problem
    x: Array
    margins: Array
    near: Kinks
    others: Array
    reach: int
    found: tuple[Array, Array, int] | None = None

    @cached_property
    def value(self) -> float:
        """The objective at `x`."""
        return self.problem.primal(self.x, self.margins)

    @property
    def known(self) -> KnownSlopes:
        """The slopes of the others with their ``A' theta``."""
        return KnownSlopes(self.others, self.near.linear - self.problem.linear)

    def vertex(self) -> tuple[Array, Array, int] | None:
        """The optimum, if it is a vertex, for a certificate to judge.

        With slopes of all terms: those that are not near keep theirs; and as `Kinks.vertex` says
        with how many pivots have gone through.
        """
        found = self.found or self.near.vertex(self.x, self.reach)
        if found is None:
            return None
        theta = self.others.copy()
        np.add.at(theta, self.near.terms, found[1])
        return found[0], theta, found[2]


def applies(problem: Problem) -> bool:
    """Whether the terms are kinks in one unit, and nothing but a quadratic form is beside them."""
    own = problem.layout is not None and problem.layout.penalty_terms > 0
    bent = problem.losses.q.any() or problem.losses.any_hard
    alone = problem.side is None and problem.penalty is None
    return alone and not own and not bent and isinstance(problem.design, Rows)


def near_optimum(
    problem: Problem, x: Array, margins: Array, wide: int, settled: int | None = None
) -> NearOptimum | None:
    """Newton steps from x among its `wide` terms nearest to their kinks, or among all of few.

    See `Kinks.newton`; `settled` is a multiple of the coordinates where it is omitted. Terms that
    have changed sides although they were not near are put beside these. Where these are many the
    others were what held the steps back, as rows much longer than usual do: all are gone through.
    """
    settled = SETTLED * problem.d if settled is None else settled
    apart = np.zeros(problem.n, dtype=bool)
    if 2 * wide < problem.n:
        away = problem.losses.kink_distance(margins)
        apart = away > np.partition(away, wide)[wide]
    found = among(problem, x, margins, apart, settled)
    if found is None and apart.any() and problem.n * problem.d <= DENSE:
        return among(problem, x, margins, np.zeros_like(apart), settled, wide)
    return found


def among(
    problem: Problem, x: Array, margins: Array, apart: NDArray[np.bool_], settled: int,
    wide: int | None = None,
) -> NearOptimum | None:
    """The same with the lines of the terms `apart` in their place; that mask is changed."""
    f = problem.losses
    others, linear = np.zeros(problem.n), problem.linear
    if apart.any():
        others = np.where(apart, f.slope(margins), 0.0)
        linear = linear + problem.design.adjoint(others)
    near = Kinks.of(problem, np.flatnonzero(~apart), linear)
    if near is None:
        return None
    wide = len(near.terms) // (1 if apart.any() else 2) if wide is None else wide
    for _ in range(ROUNDS):
        found = near.newton(x, wide, settled)
        if found is None:
            return None
        (x, reach), every = found, None
        if reach >= len(near.b):
            every = near.vertex(x, reach) if near.rows.size <= ALL else None
            if every is None:
                return None
            x, reach = every[0], 0
        margins = problem.design.forward(x)
        off = np.flatnonzero(apart & (f.slope(margins) != others))
        if len(off) > MANY * len(near.b):
            return None
        if len(off):
            back = problem.design.take_rows(off).adjoint(others[off])
            more = Kinks.of(problem, off, near.linear - back)
            if more is None:
                return None
            near, others[off], apart[off] = near.beside(more), 0.0, False
        if len(off) <= settled:
            reach, every = max(reach, BESIDE * len(off)), None if len(off) else every
            return NearOptimum(problem, x, margins, near, others, reach, every)
        wide = max(reach, 2 * len(off))
    return None


def repeats(problem: Problem) -> bool:
    """Whether kinks and entries of rows take few values, as whole numbers do.

    An optimum then holds many more terms at their kinks than there are coordinates, and no density
    says how many terms are near them.
    """
    if not len(np.unique(problem.losses.b)) < FEW * problem.n:
        return False
    return len(np.unique(problem.design.dense())) < FEW * problem.n


def least_squares(problem: Problem) -> Array | None:
    """The point whose margins are nearest to the kinks, weighted by the jumps of the slopes."""
    f, everything = problem.losses, np.arange(problem.n)
    jumps = f.hi - f.lo
    H = problem.design.weighted_gram(everything, jumps)
    return solved(H, problem.design.adjoint(jumps * f.b))


def solved(H: Array, right: Array) -> Array | None:
    """The solution of ``H x = right``; None where H is not positive definite."""
    diagonal = H.diagonal()
    H.flat[:: len(H) + 1] += np.where(diagonal > 0, FLAT * diagonal, 1.0)
    _, x, failed = lapack.dposv(H, right)
    return None if failed or not np.isfinite(x).all() else np.asarray(x)
