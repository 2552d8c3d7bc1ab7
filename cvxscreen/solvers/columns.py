"""Coordinates that terms of their own hold at 0 are left out: columns let in as they are asked for.

Where an L1 norm or bounds beside losses are terms with unit rows, ``kappa |x_j|``, ``x_j >= 0``,
``x_j <= u``, these have a range of slopes at ``x_j = 0``. A coordinate that is 0 at the optimum of
the problem without its column stays there if that range holds the slope that balances the others,

::

    -(A' theta + q - F' mu)_j in sum_i a_i [low_i, high_i],

and otherwise is let in (column generation; Lubbecke and Desrosiers 2005). The problem in the other
columns is a restriction: its value bounds the optimum from above, and the certificate of the whole
problem judges the pair. What is left of it has few coordinates, however many the data have; of its
terms those are left out again that `cvxscreen.solvers.relaxation` leaves out.

Side constraints ``F x + f in K`` keep their rows and multipliers ``mu``. Where they do not hold
at 0 the first columns are those that bring them nearest to holding, and twice as many where the
restriction has no feasible point. Bounds that are side constraints are made terms for it
(`BoundsAsTerms`).

Blocks are held so by norms of theirs, ``c t_g`` with ``|D x_g| <= a t_g`` (the group lasso): where
``x_g = 0`` the cone's multiplier takes any slope of ``|D^-1 v_g| <= c / a`` on itself, after what
terms of the coordinates have taken. A block is in or out as a whole, with its head and its cone.
What a head costs may be the multiplier of a budget that it is in, ``sum_g t_g <= b``: each
restriction has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.cones import NormCones, SideConstraints
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem, with_terms
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection, with_features
from cvxscreen.solvers.interface import Start, SubproblemResult, call_checked
from cvxscreen.solvers.interior_point import InteriorPoint, able
from cvxscreen.solvers.relaxation import ScreenedRelaxation, few_terms
from cvxscreen.solvers.screened import ProblemInMemory, Times, run
from cvxscreen.solvers.solution import Answer, Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

AT_ONCE = 40
"""Columns that are let in at once, or one for each other row where these are more."""
WIDE = 2
"""Coordinates for each other term from which on columns are left out. Twelve problems each take
0.2 to 1.3 of the CPU seconds with all columns at 225 x 450, 0.2 to 0.8 at 150 x 600 and at
300 x 1,000, 0.1 to 0.5 at 200 x 1,000."""
ASKED = 1e-9
"""A column asks to be let in where its slope is outside of the range by more, relatively."""
INSIDE, PRUNED = 0.7, 10
"""Columns go out again whose slope is within such a share of the range, in so many first rounds."""
ACCURACY = 1e-11
"""Relative gap asked of restrictions, which costs a step or two more than a tolerance does."""
OF_NORMS = 1e-10
"""The same where norms of blocks are left: their faces are bent, and lead no further than the path
itself (Huber's, absolute and hinge losses, 150 x 500 in blocks of five: 0.4 to 0.5 s instead of 1.4
to 2.2, certified to 4e-10 both ways)."""
SHARE = 0.5
"""All columns are let in where more than this share of them would be."""
NEARLY = 1e-7
"""Relative gap from which on all columns would not lower it: at 300 x 5,000 absolute values ended
at 4e-10 with 343 columns after 0.8 s, and with all of them at 1e-7 after 92."""
VANISHED = 1e-13
"""Objective, relative to that at 0, from which on it is asked whether rounding is all that is left
of it: within a budget that is loose few columns fit as well as all (200 x 1,000 within twice what
the coefficients sum up to: 560 columns in three rounds, and further ones improve nothing)."""
MAX_ROUNDS = 40
"""Rounds after which all columns are let in; 3 to 10 are usual."""


class HeldColumns(Immutable):
    """Coordinates that are held at 0 by terms in one coordinate each, or by norms of blocks.

    Attributes
    ----------
    terms, coordinates : arrays of int, shape (k,)
    factors, low, high : arrays, shape (k,)
        ``a_i``, and the slopes that the terms may have at 0.
    held : mask, shape (d,)
        Heads of the norms among them.
    least, most : arrays, shape (d,)
        The ends of ``sum_i a_i [low_i, high_i]``; NaN where nothing is held.
    norms : NormCones
    """

    terms: Index
    coordinates: Index
    factors: Array
    low: Array
    high: Array
    held: Mask
    least: Array
    most: Array
    norms: NormCones

    @classmethod
    def of(cls, problem: Problem) -> HeldColumns | None:
        """Those of `problem`; None where they are less than half of it, or it is not wide."""
        design, f, d = problem.design, problem.losses, problem.d
        if not isinstance(design, Rows) or problem.penalty is not None:
            return None
        dims = () if problem.side is None else problem.side.dims
        if any(kind == "psd" for kind, _ in dims):
            return None
        terms, coordinates, factors = design.single
        none = SideConstraints(np.zeros((0, d)), np.zeros(0), ())
        side = none if problem.side is None else problem.side
        norms = side.norms
        possible = 2 * (len(terms) + len(norms) + len(norms.rows)) >= d
        if not possible or problem.quadratic.matrix is not None:
            return None
        b, lo, hi = f.b[terms], f.lo[terms], f.hi[terms]
        low, high = np.where(b < 0.0, hi, lo), np.where(b > 0.0, lo, hi)
        ends = np.sort([factors * low, factors * high], axis=0)
        bent = (f.e[terms] != 0.0) | (f.q[terms] != 0.0)
        bent |= np.isinf(ends[0]) & (ends[0] > 0.0) | np.isinf(ends[1]) & (ends[1] < 0.0)
        with np.errstate(invalid="ignore"):
            least, most = (np.bincount(coordinates, end, d) for end in ends)
        held = least < most
        if len(norms):
            bare = problem.linear > 0.0  # heads that cost something, and are in no loss
            bare[norms.heads[norms.limited]] |= problem.linear[norms.heads[norms.limited]] == 0.0
            bare &= (problem.column_sizes == 0.0) & (problem.quadratic.diagonal == 0.0)
            whole = np.ones(d, dtype=bool)
            whole[coordinates[bent]] = False
            whole &= least <= most
            broken = np.bincount(norms.owner, ~whole[norms.coordinates], len(norms)) > 0.0
            norms = norms.take(bare[norms.heads] & ~broken)
            norms.spread(np.ones(len(norms), dtype=bool), held)
        held[coordinates[bent]] = False
        others = problem.n - len(terms) + len(side.offset) - len(norms.rows) - len(norms)
        if 2 * int(held.sum()) < d or WIDE * others > d:
            return None
        mine = held[coordinates]
        return cls(
            terms[mine], coordinates[mine], factors[mine], low[mine], high[mine], held,
            np.where(held, least, np.nan), np.where(held, most, np.nan), norms,
        )

    @cached_property
    def width(self) -> Index:
        """How many coordinates come with each one: those of a block with its head, (d,)."""
        out = np.ones(len(self.held), dtype=np.intp)
        out[self.norms.heads] += np.bincount(self.norms.owner, minlength=len(self.norms))
        return out

    def costs(self, wanted: Array) -> Array:
        """Of each norm, c: the slope of everything else at its head, budgets with it; (c,)."""
        return np.maximum(-wanted[self.norms.heads], 0.0)

    def excess(self, wanted: Array, costs: Array | None = None) -> Array:
        """By how much the total slopes `wanted` are beyond what holds the coordinates, (d,).

        Of a block it is said at its head, in units of its cost, or of `costs`.
        """
        out, costs = self._beyond_terms(wanted), self.costs(wanted) if costs is None else costs
        over = self.norms.scales * self.norms.lengths(out) - costs
        out[self.norms.coordinates] = 0.0
        out[self.norms.heads] = np.maximum(over, 0.0)
        return out

    def _beyond_terms(self, wanted: Array) -> Array:
        """By how much they are beyond what the terms alone may have, (d,)."""
        beyond = np.maximum(np.maximum(self.least - wanted, wanted - self.most), 0.0)
        return np.where(self.held, beyond, 0.0)

    def reach(self, wanted: Array) -> Array:
        """The same where nothing but a bound holds a coordinate: how far `wanted` can move it."""
        no = np.zeros(len(wanted))
        free = replace(
            self, least=np.where(np.isinf(self.least), self.least, no),
            most=np.where(np.isinf(self.most), self.most, no),
        )
        return free.excess(wanted, np.zeros(len(self.norms)))

    def inside(self, wanted: Array) -> Mask:
        """Coordinates whose total slopes are well inside of a range that is finite, (d,)."""
        with np.errstate(invalid="ignore"):
            out = np.abs(2.0 * wanted - self.most - self.least) < INSIDE * (self.most - self.least)
        over = self.norms.scales * self.norms.lengths(self._beyond_terms(wanted))
        self.norms.spread(over < INSIDE * self.costs(wanted), out)
        return np.asarray(out)

    def whole(self, mask: Mask) -> Mask:
        """`mask` with all of a block of which it has any coordinate."""
        out = mask.copy()
        some = self.norms.any_of(mask)
        self.norms.take(some).spread(np.ones(int(some.sum()), dtype=bool), out)
        return out

    def shared(self, wanted: Array) -> Array:
        """Slopes of the terms whose totals are `wanted`, as near as they may be; shape (k,).

        Those that may have any slope take all that they may: then the others keep room to balance.
        """
        theta = np.clip(0.0, self.low, self.high)
        left = wanted.copy()
        np.subtract.at(left, self.coordinates, self.factors * theta)
        order = np.lexsort((self.low - self.high, self.coordinates))
        sorted_ones = self.coordinates[order]
        place = np.arange(len(order)) - np.searchsorted(sorted_ones, sorted_ones)
        for k in range(int(place.max(initial=-1)) + 1):
            some = order[place == k]
            share = theta[some] + left[self.coordinates[some]] / self.factors[some]
            share = np.clip(share, self.low[some], self.high[some])
            left[self.coordinates[some]] -= self.factors[some] * (share - theta[some])
            theta[some] = share
        return theta

    def multipliers(self, wanted: Array, theta: Array) -> tuple[Array, Array]:
        """Of the norms' cones, for what the terms' slopes leave of `wanted`: heads, and the others.

        As near as they may be; `theta` of all terms.
        """
        norms, heads = self.norms, self.costs(wanted) / self.norms.scales
        left = wanted.copy()
        np.subtract.at(left, self.coordinates, self.factors * theta[self.terms])
        lengths, share = norms.lengths(left), np.ones(len(heads))
        np.divide(heads, lengths, out=share, where=lengths > heads)
        return heads, -left[norms.coordinates] / norms.factors * share[norms.owner]


class BoundsAsTerms(NamedTuple):
    """A problem with a term for each bound: a `cvxscreen.solvers.reformulations.Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
        The terms of `equivalent` are those of `problem`, and then one for each bound; other side
        constraints are its own.
    bounds, others : arrays of int
        The rows of the side constraints that are bounds, and the others.
    """

    problem: Problem
    equivalent: Problem
    bounds: Index
    others: Index

    @property
    def lossy(self) -> bool:
        """No: nothing is rounded."""
        return False

    @classmethod
    def of(cls, problem: Problem) -> BoundsAsTerms | None:
        """`problem` so; None where it has none."""
        design, side = problem.design, problem.side
        if side is None or not isinstance(design, Rows):
            return None
        single = np.diff(side.matrix.indptr) == 1
        dims, bound = [], np.zeros(len(single), dtype=bool)
        for kind, size, rows in side.blocks():
            if kind == "nonneg":
                bound[rows] = single[rows]
                size -= int(single[rows].sum())
            dims += [(kind, size)] if size else []
        bounds, others = np.flatnonzero(bound), np.flatnonzero(~bound)
        if not len(bounds):
            return None
        no = np.zeros(len(bounds))
        hard = Losses(-side.offset[bounds], no, no, np.full(len(no), -np.inf), no)
        design, losses = with_terms(design, problem.losses, side.matrix[bounds], hard)
        rest = SideConstraints(side.matrix[others], side.offset[others], tuple(dims))
        equivalent = replace(
            problem, design=design, losses=losses, side=rest if dims else None, layout=None
        )
        return cls(problem, equivalent, bounds, others)

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        m = len(self.bounds) + len(self.others)
        mu = np.zeros(m) if start.multipliers is None else start.multipliers
        theta = np.concatenate([start.theta, -mu[self.bounds]])
        return Start(start.x, theta, multipliers=mu[self.others])

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`."""
        n, mu = self.problem.n, np.zeros(len(self.bounds) + len(self.others))
        if len(found.theta) == self.equivalent.n and len(found.multipliers) == len(self.others):
            mu[self.bounds], mu[self.others] = -found.theta[n:], found.multipliers
        return found.carried_to(self.problem, found.x, found.theta[:n], mu, tol)


def columns_can_go(problem: Problem) -> bool:
    """Whether terms of their own, or bounds, hold most of its coordinates at 0."""
    if HeldColumns.of(problem) is not None:
        return True
    other = BoundsAsTerms.of(problem)
    return other is not None and HeldColumns.of(other.equivalent) is not None


class Lifted(NamedTuple):
    """An answer for all coordinates and terms, and the total slopes that would balance it."""

    x: Array
    theta: Array
    multipliers: Array
    wanted: Array


class ScreenedColumns(
    ProblemInMemory[Selection, Problem, SubproblemResult, Lifted, Lifted]
):
    """A problem most of whose coordinates are held at 0 by terms of their own.

    Parameters as of `ProblemInMemory`; `bounds` prove nothing here.
    """

    narrows = True

    def set_up(self) -> None:
        """Nothing is let in yet but what no term holds."""
        units = HeldColumns.of(self.problem)
        if units is None:
            raise TypeError("no terms hold the coordinates of this problem at 0")
        self.units, self.bounds = units, ()
        norms = len(units.norms) > 0
        if self.inner.traits.reaches_target and (norms or not self.problem.without_curvature):
            # Of few columns beside squares, too, it is the one that ends at an optimum of kinks.
            self.inner = InteriorPoint(tol=OF_NORMS if norms else 0.0, limits=self.limits)
        self.working_set = ~units.held
        self.missing: Mask = np.zeros(self.problem.d, dtype=bool)
        self.last: Lifted | None = None
        origin = np.zeros(self.problem.d), np.zeros(self.problem.n)
        self.value, self.at_zero = np.inf, abs(self.problem.primal(*origin))
        rows = 0 if self.problem.side is None else len(self.problem.side.offset)
        rows -= len(units.norms) + len(units.norms.rows)
        self.others = self.problem.n - len(units.terms) + rows

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Let in what the start has, and what its slopes, or those at 0, ask for."""
        problem, self.whole_loop = self.problem, solve
        if start is None:
            start = Start(np.zeros(problem.d), problem.losses.slope(np.zeros(problem.n)))
        self.working_set |= start.x != 0.0
        self.working_set |= self.asking(self.wanted(start.x, start.theta, start.multipliers))
        if problem.side is not None:
            slack = problem.side.slack(start.x)
            outside = slack - problem.side.project(slack)
            self.moving = self.units.reach(-problem.side.adjoint(outside))
            self.working_set |= self.reaching(max(AT_ONCE, self.others))
        self.working_set = self.units.whole(self.working_set)

    def wanted(self, x: Array, theta: Array, multipliers: Array | None) -> Array:
        """The total slopes of the unit terms that balance all other slopes, shape (d,)."""
        problem, theta = self.problem, theta.copy()
        theta[self.units.terms] = 0.0
        slopes = problem.design.adjoint(theta) + problem.linear + problem.quadratic.apply(x)
        if problem.side is not None and multipliers is not None and len(multipliers):
            others, norms = multipliers.copy(), self.units.norms
            others[norms.head_rows] = others[norms.rows] = 0.0
            slopes -= problem.side.adjoint(others)
        return np.asarray(-slopes)

    def reaching(self, count: int) -> Mask:
        """So many more columns that bring the side constraints nearest to holding."""
        moving = np.where(self.working_set, 0.0, self.moving)
        return self.farthest(moving, np.flatnonzero(moving > 0.0), count)

    def farthest(self, excess: Array, among: Index, count: int) -> Mask:
        """About so many columns of the greatest excess, or heads of so many; shape (d,)."""
        out, width = np.zeros(len(excess), dtype=bool), self.units.width
        first = among[np.argsort(-excess[among], kind="stable")]
        out[first[np.cumsum(width[first]) - width[first] < count]] = True
        return out

    def asking(self, wanted: Array) -> Mask:
        """Columns that ask to be let in: those farthest beyond their ranges."""
        units = self.units
        excess = np.where(self.working_set, 0.0, units.excess(wanted))
        asked = np.flatnonzero(excess > ASKED * np.abs(wanted))
        return self.farthest(excess, asked, max(AT_ONCE, self.others))

    def select(self) -> Selection:
        """Columns outside of the working set are predicted 0; no term is left out here."""
        return Selection(np.full(self.problem.n, Piece.UNDECIDED, np.int8), ~self.working_set)

    def reduce(
        self, selection: Selection
    ) -> tuple[Problem, Callable[[SubproblemResult], Lifted]]:
        """The problem in the columns that stay, without the unit terms of the others."""
        problem, units, features = self.problem, self.units, selection.features(self.problem)
        out = ~self.working_set[units.coordinates]
        rows = np.setdiff1d(np.arange(problem.n), units.terms[out], assume_unique=True)
        narrow, norms, side = with_features(problem, features), units.norms, problem.side
        gone = norms.take(~self.working_set[norms.heads])
        places = np.zeros(0, dtype=np.intp)
        if narrow.side is not None and side is not None:
            out_rows = np.zeros(len(side.offset), dtype=bool)
            out_rows[gone.head_rows] = out_rows[gone.rows] = True
            left, places = narrow.side.without(out_rows)
            narrow = replace(narrow, side=left if left.dims else None)
        reduced = replace(
            narrow, design=narrow.design.take_rows(rows), losses=narrow.losses.take(rows),
            layout=None,
        )

        def lift(found: SubproblemResult) -> Lifted:
            x, theta = np.zeros(problem.d), np.zeros(problem.n)
            x[features], theta[rows] = found.x, found.theta
            mu = np.zeros(0 if side is None else len(side.offset))
            if len(found.multipliers) == len(places):
                mu[places] = found.multipliers
            wanted = self.wanted(x, theta, mu)
            theta[units.terms[out]] = units.shared(wanted)[out]
            norms.put(mu, *units.multipliers(wanted, theta))
            return Lifted(x, theta, mu, wanted)

        return reduced, lift

    def solve(self, reduced: Problem, selection: Selection) -> SubproblemResult | None:
        """Its optimum, by the loop that leaves out terms where that is to any purpose."""
        inner = able(self.inner, reduced, self.limits)
        if few_terms(reduced):
            value = abs(self.value)
            target = min(0.1 * self.tol, ACCURACY) * value if np.isfinite(value) else 0.0
            self.result = call_checked(inner, reduced, None, target)
            return self.result if self.result.usable else None
        rest = ScreenedRelaxation(reduced, inner, self.mode, 0.1 * self.tol, (), None)
        rest.begin(None, self.whole_loop)
        run(rest)
        found = rest.solution(0.0)
        word = "optimal" if found.status == "optimal" else "inaccurate"
        if not np.isfinite(found.x).all():
            word = found.status
        self.result = SubproblemResult(word, found.x, found.theta, found.multipliers)
        return self.result if self.result.usable else None

    def evaluate(self, lifted: Lifted, selection: Selection) -> Lifted:
        """Itself: the slopes of all columns are known. It is certified once none asks."""
        return lifted

    def put_back(self, selection: Selection, point: Lifted | None) -> int:
        """Let in the columns that the slopes ask for; all of them where there was no answer.

        A restriction may have none, as where constraints need what was left out: twice as many
        columns are let in then if they bring these nearer to holding.
        """
        everything = bool(self.working_set.all())
        if point is None:
            self.finished, self.missing = everything, ~self.working_set
            if self.problem.side is not None and self.result.status == "infeasible":
                more = self.reaching(int(self.working_set.sum()))
                few = np.count_nonzero(self.working_set | more) <= SHARE * self.problem.d
                self.missing = more if more.any() and few else self.missing
            return int(self.missing.sum())
        self.last, self.missing = point, self.asking(point.wanted)
        before, self.value = self.value, self.problem.primal(point.x)
        if not everything and abs(self.value) <= VANISHED * self.at_zero:
            f, no = self.problem.losses, np.zeros(len(point.multipliers))
            endless = np.isinf(f.lo) & np.isinf(f.hi)  # of squares rounding is their slopes'
            margins = self.problem.design.forward(point.x)
            slopes = np.where(endless, f.slope(margins), 0.0)
            exact = Answer.of(self.problem, point.x, slopes, no, self.tol)
            if exact.proof.ok:
                self.answer, self.finished = exact, True
                self.missing = np.zeros_like(self.missing)
                return 0
        if not everything:
            if len(self.rounds) < PRUNED and self.value < before:
                self.working_set &= ~self.units.inside(point.wanted)
            if np.count_nonzero(self.working_set | self.missing) > SHARE * self.problem.d:
                self.missing = ~self.working_set
        if not self.missing.any() or len(self.rounds) >= MAX_ROUNDS:
            self.answer = self.certified_pair(point)
            proof, out = self.answer.proof, ~self.working_set
            # At a small gap what is left of it are columns a rounding beyond their ranges.
            beyond = out & (self.units.excess(point.wanted) > 0.0)
            near = proof.relative_gap <= NEARLY and len(self.rounds) < MAX_ROUNDS
            self.finished = proof.ok or everything or (near and not beyond.any())
            self.missing = beyond if near else out
        return 0 if self.finished else int(self.missing.sum())

    def certified_pair(self, point: Lifted) -> Answer:
        """The point with the certificate of the whole problem."""
        return Answer.of(self.problem, point.x, point.theta, point.multipliers, self.tol)

    def close(self, selection: Selection, refuted: int, times: Times) -> None:
        """Record the round, and let in what asked for it."""
        proof = None if self.answer is None else self.answer.proof
        features = selection.features(self.problem)
        left_out = len(self.units.terms) - int(np.isin(self.units.coordinates, features).sum())
        larger = self.units.whole(self.working_set | self.missing)
        counts = (0, left_out, int(larger.sum()) - int(self.working_set.sum()) if refuted else 0)
        self.record(self.problem.n - left_out, proof, counts, times, len(features))
        self.working_set = larger

    def solution(self, began: float) -> Solution:
        """As of every problem; where a limit came first the last point is certified."""
        if self.answer is None and self.last is not None:
            self.answer = self.certified_pair(self.last)
        return super().solution(began)
