"""Many second-order cones and few coordinates: cones are left out, or are norms without slacks.

A problem with many cones ``F_i x + f_i in K_i`` and few coordinates (the smallest enclosing ball
has one for each point) is bound by about as many of them as it has coordinates. Without the others
it is a relaxation; where its answer satisfies them it is an answer to the full problem, with their
multipliers 0. So few are kept, those that an answer violates most are put back, and the certificate
is made on all of them (`ScreenedCones`).

::

    minimise  sum_i c_i t_i + rest(x)   subject to   |A_i x + b_i| <= a_i t_i

with t_i in no other row is a sum of Euclidean norms of blocks (geometric medians, facilities,
regressions with several outputs). No block can be left out, every one is bent. But its cone's
multiplier has ``c_i / a_i`` for head on the whole path, and what its step adds to the normal
equations of the interior point method is, with ``W^-2 = (2 w w' - J)/eta^2`` as in `second_order`
and t_i eliminated from it, a matrix of the size of the block::

    A_i' H_i A_i,    H_i = (I - 2 w_1 w_1' / (2 w_0^2 - 1)) / eta^2

so a step costs n products of d^2 however many blocks there are, and no factorisation has more
unknowns than x. At the end norms that are not 0 are curved functions of x and those that are 0 are
equations: Newton's method ends on them as on any other face (`ScreenedNorms`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.cones import MANY_CONES, SideConstraints
from cvxscreen.core.duality import Point, balance_with_multipliers, linear_at, reference_point
from cvxscreen.core.norm_blocks import Blocks, NormFrame, norm_frame
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import Start, SubproblemResult, call_checked
from cvxscreen.solvers.screened import ProblemInMemory, Times
from cvxscreen.solvers.second_order import (
    NORMS_PER_COORDINATE,
    Scaling,
    SecondOrderCones,
)
from cvxscreen.solvers.solution import Answer, Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FIRST, AT_ONCE = 50, 50
"""How many cones are kept at first, and put back in a round, at least; and that many times the
coordinates (enclosing balls of 2,000 to 200,000 points in 2 to 50 dimensions: 3 to 6 rounds)."""
PER_COORDINATE = 4

MAX_ROUNDS = 12
"""After so many rounds all cones are kept."""

OUTSIDE = 1e-9
"""By how much, relative to its own size, a point may be outside of a cone that was left out."""


def has_cones_alone(problem: Problem) -> bool:
    """Whether `problem` has no losses, but second-order cones among its constraints."""
    side = problem.side
    return side is not None and not problem.n and bool(side.second_order.any())


def are_many(problem: Problem) -> bool:
    """Whether `problem` has many second-order cones, and no losses."""
    side = problem.side
    return side is not None and not problem.n and side.many_cones


def _side(problem: Problem) -> SideConstraints:
    """The constraints of a problem that has some."""
    if problem.side is None:
        raise InvalidInput("the problem has no side constraints.")
    return problem.side


class ScreenedCones(ProblemInMemory[Mask, Problem, SubproblemResult, SubproblemResult, Point]):
    """A problem in memory whose second-order cones are left out and put back."""

    piloted: ClassVar[bool] = False

    def set_up(self) -> None:
        """Every cone that is of another kind stays."""
        self.second = _side(self.problem).second_order
        self.kept = ~self.second | (self.mode == "safe")
        self.refuted = 0

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """The cones nearest to a start, or to 0, and some of all the others."""
        x = np.zeros(self.problem.d) if start is None else start.x
        room = self.room(x)
        count = max(FIRST, PER_COORDINATE * self.problem.d)
        self.keep(room, count)
        every = np.flatnonzero(self.second)
        self.kept[every[:: max(1, len(every) // count)]] = True

    def room(self, x: Array) -> Array:
        """How far inside of each second-order cone `x` is, relative to its size; infinite else."""
        side = _side(self.problem)
        slack, out = side.slack(x), []
        for kind, size, rows in side.runs:
            if kind == "soc":
                table = slack[rows].reshape(-1, size)
                head, norm = table[:, 0], np.linalg.norm(table[:, 1:], axis=1)
                out.append((head - norm) / np.maximum(np.abs(head) + norm, 1e-300))
            else:
                count = 1 if kind == "psd" else (rows.stop - rows.start) // size
                out.append(np.full(count, np.inf))
        return np.concatenate(out)

    def keep(self, room: Array, count: int) -> None:
        """Keep the `count` second-order cones with the least room besides those kept already."""
        left = np.where(self.kept, np.inf, room)
        count = min(count, int((~self.kept).sum()))
        if count:
            self.kept[np.argpartition(left, count - 1)[:count]] = True

    def select(self) -> Mask:
        """The cones that are kept; all of them where many rounds have not been enough."""
        if len(self.rounds) >= MAX_ROUNDS:
            self.kept[:] = True
        return self.kept.copy()

    def reduce(
        self, selection: Mask
    ) -> tuple[Problem, Callable[[SubproblemResult], SubproblemResult]]:
        """The problem with these cones only; the others' multipliers are 0."""
        side = _side(self.problem)
        left, rows = side.take(selection)

        reduced = replace(self.problem, side=left, layout=None)

        def lift(found: SubproblemResult) -> SubproblemResult:
            # A solver's multipliers balance to its tolerance only, which costs the gap far away.
            slope, near = linear_at(reduced, found.x), left.project_dual(found.multipliers)
            multipliers = np.zeros(len(side.offset))
            multipliers[rows] = balance_with_multipliers(reduced, found.theta, near, slope)[1]
            return replace(found, multipliers=multipliers)

        return reduced, lift

    def solve(self, reduced: Problem, selection: Mask) -> SubproblemResult | None:
        """Solve the problem with the kept cones; None where the solver has no point."""
        self.result = call_checked(self.inner, reduced)
        return self.result if self.result.usable else None

    def evaluate(self, lifted: SubproblemResult, selection: Mask) -> Point:
        """The answer on all cones."""
        return reference_point(self.problem, lifted.x, lifted.theta, lifted.multipliers)

    def put_back(self, selection: Mask, point: Point | None) -> int:
        """The cones that the answer violates most; many more where there is no answer."""
        count = max(AT_ONCE, PER_COORDINATE * self.problem.d)
        if point is None:  # a relaxation may be unbounded where the problem is not
            self.refuted = int((~selection).sum())
            if self.refuted:
                x = np.zeros(self.problem.d) if self.best is None else self.best.x
                self.keep(self.room(x), 8 * int(selection.sum()) + count)
            return self.refuted
        room = self.room(point.x)
        outside = ~selection & (room < -OUTSIDE)
        self.refuted = int(outside.sum())
        self.best = point
        if self.refuted:
            self.keep(room, min(self.refuted, count))
        return self.refuted

    def close(self, selection: Mask, refuted: int, times: Times) -> None:
        """Record the round; over where nothing was refuted."""
        kept, predicted = int((selection & self.second).sum()), int((~selection).sum())
        self.record(kept, self.best, (0, predicted, refuted), times)
        self.finished = refuted == 0
        if self.finished and self.best is not None:
            best = self.best
            self.answer = Answer.known(best, self.certified(best))


SHARE = 0.1
"""Share of the tolerance that the gap may have before the certificate charges rounding."""

NEWTON, CLOSE, LEAST_PART = 25, 1e-7, 1e-3
"""Steps of Newton's method at most, the relative fall from which on the face's equations are as
good, and the least part of a step: where none of the norms is going to be 0 three to nine whole
steps are enough (medians of 2,000 to 100,000 points, 10,000 x 8 in 3 outputs)."""

NEXT = 1e-9
"""By how much longer than the shortest norm, in units of what norms are, others are as short."""

CROWDED = 3
"""With more equations of norms that are 0 for each coordinate a face is not looked at."""

INSIDE = 1.0 - 4.0 * float(np.finfo(np.float64).eps)
"""What a multiplier on the boundary of its cone is drawn in by, so that rounding leaves it there.
"""


class Compact(NamedTuple):
    """A problem without the bounds of its norms, these norms, and the way back.

    Attributes
    ----------
    problem : Problem
        Of the other coordinates.
    norms : NormTerms
    size : int
        Coordinates of the whole.
    frame : NormFrame
        Of its side constraints.
    """

    problem: Problem
    norms: NormTerms
    size: int
    frame: NormFrame

    def lifted(self, x: Array, multipliers: Array, tails: Array) -> tuple[Array, Array]:
        """The whole x and all multipliers; `tails` are those of the norms, heads included."""
        frame = self.frame
        z, mu = np.zeros(self.size), np.zeros(len(frame.rows) + len(frame.kept))
        z[frame.others] = x
        z[frame.found.heads] = self.norms.lengths(x) / frame.found.scales
        mu[frame.kept] = multipliers
        mu[self.norms.rows_of] = tails
        return z, mu


    def begun(self, start: Start) -> tuple[Start, Array | None]:
        """A start without the bounds, and multipliers of the norms, at the present costs.

        A multiplier keeps its share of what its norm costs.
        """
        frame, mu = self.frame, start.multipliers
        count = len(frame.rows) + len(frame.kept)
        if len(start.x) != self.size or mu is None or len(mu) != count:
            return Start(start.x[: len(frame.others)], start.theta), None
        tails = np.array(mu[frame.rows], dtype=np.float64)
        before = tails[self.norms.heads]
        share = np.divide(self.norms.costs, before, out=np.zeros(len(before)), where=before > 0.0)
        tails = self.norms.project(tails * share[self.norms.owner])
        kept = Start(start.x[frame.others], start.theta, multipliers=mu[frame.kept])
        return kept, tails


_KNOWN: weakref.WeakKeyDictionary[Problem, Compact | None] = weakref.WeakKeyDictionary()


def compact(problem: Problem) -> Compact | None:
    """`problem` without the bounds of its norms; None where it is none for their sake.

    Nor where their blocks are sparse.
    """
    if problem.side is None or not problem.side.many_cones:
        return None
    if problem not in _KNOWN:
        _KNOWN[problem] = _compact(problem)
    return _KNOWN[problem]


def _compact(problem: Problem) -> Compact | None:
    form, side = problem.quadratic, problem.side
    if side is None or problem.penalty is not None or not isinstance(form, Quadratic):
        return None
    if not isinstance(problem.design, Rows) or side.has("psd"):
        return None
    heads = side.residual_norms.heads
    count, coordinates = len(heads), problem.d - len(heads)
    if count < MANY_CONES or not count >= NORMS_PER_COORDINATE * coordinates > 0:
        return None
    if int(side.second_order.sum()) > count or not (problem.linear[heads] > 0.0).all():
        return None
    if form.diagonal[heads].any() or (form.matrix is not None and form.matrix[heads].any()):
        return None
    if problem.n and problem.column_sizes[heads].any():
        return None
    frame = norm_frame(side)
    if frame is None or frame.blocks.groups is None:
        return None
    costs = problem.linear[heads] / frame.found.scales
    norms = NormTerms.made(frame.blocks, frame.found.sizes, frame.offset, frame.rows, costs)
    inner = replace(
        problem, design=problem.design.take_columns(frame.others),
        quadratic=form.take(frame.others), linear=problem.linear[frame.others],
        side=frame.rest, layout=None,
    )
    return Compact(inner, norms, problem.d, frame)


# -- in the interior point method ------------------------------------------------------------------


class NormTerms(SecondOrderCones):
    """``c_i |A_i x + b_i|`` as cones whose heads are eliminated; see the module's docstring.

    The head of a slack is the bound of the norm, that of a multiplier ``c_i``.
    """

    costly: ClassVar[bool] = True
    costs: Array
    blocks: Blocks
    rows_of: Index

    @classmethod
    def made(
        cls, blocks: Blocks, sizes: Index, offset: Array, rows: Index, costs: Array
    ) -> NormTerms:
        """Of cones of these sizes, which have these `rows` in the whole, at these costs."""
        heads = (np.cumsum(sizes) - sizes).astype(np.intp)
        matrix = np.zeros((0, blocks.matrix.shape[1]))
        out = cls(matrix, offset, heads, np.zeros(0, dtype=np.intp))
        out.costs, out.blocks, out.rows_of = costs, blocks, rows
        return out

    def slack(self, x: Array) -> Array:
        """``A x + b``, and the lengths in the heads."""
        out = np.asarray(self.blocks.matrix @ x) + self.offset
        out[self.heads] = 0.0
        out[self.heads] = np.sqrt(self.sums(out * out))
        return out

    def lengths(self, x: Array) -> Array:
        """``|A_i x + b_i|``, shape (c,)."""
        return self.slack(x)[self.heads]

    def adjoint(self, z: Array) -> Array:
        """``A' z``; what z has in the heads is what the bounds cost."""
        return np.asarray(self.blocks.matrix.T @ z)

    def apart(self, x: Array, s: Array) -> Array:
        """By how much the slacks s are not those of x; their heads are what they are."""
        return self.tail * (self.slack(x) - s)

    def violation(self, x: Array) -> float:
        """Nothing is violated by any x."""
        return 0.0

    @cached_property
    def column_squares(self) -> Array:
        """``sum A_ij^2`` of each column, shape (d,)."""
        return np.asarray(self.blocks.matrix.power(2).sum(axis=0)).ravel()

    @cached_property
    def spread(self) -> float:
        """About how long the norms are: how far the constants of the residuals lie apart."""
        b = self.offset[self.tail > 0.0]
        found = float(np.std(b))
        size = float(np.abs(b).max(initial=0.0))
        return found if found > 1e-12 * size else (size if size > 0.0 else 1.0)

    def parabolas(self) -> tuple[Array, Array]:
        """Matrix and right side of squares that are about as steep as the norms."""
        weight = self.tail * (self.costs / self.spread)[self.owner]
        return self.blocks.gram(weight), -self.adjoint(weight * self.offset)

    @property
    def steepness(self) -> float:
        """The sum of the squares' weights."""
        return float(self.tail @ (self.costs / self.spread)[self.owner])

    def grows(self, p: Array, share: float) -> bool:
        """Whether some norm grows along p, by more than such a share of what it may."""
        size = np.sqrt(self.column_squares) @ np.abs(p)
        return float(np.linalg.norm(self.blocks.matrix @ p)) > share * float(size)

    def reach(self, x: Array) -> Array:
        """Sizes of the norms, shape (c,)."""
        return np.maximum(self.lengths(x), self.spread)

    def value(self, x: Array) -> float:
        """``sum_i c_i |A_i x + b_i|``."""
        return float(self.costs @ self.lengths(x))

    def central(self, x: Array, level: float) -> tuple[Array, Array]:
        """Slacks of x and multipliers with all products at `level`."""
        s = self.slack(x)
        half = 0.5 * level / self.costs
        s[self.heads] = half + np.hypot(half, s[self.heads])
        share = (self.costs / s[self.heads])[self.owner]
        z = self.signs * s * share
        return s, z

    def scaling(self, s: Array, z: Array) -> NormScaling:
        """The scaling of a pair."""
        return NormScaling(self, s, z)

    def project(self, u: Array) -> Array:
        """Multipliers that are as long as their heads at most, which are the costs."""
        length = np.sqrt(self.sums(self.tail * u * u))
        share = np.minimum(1.0, INSIDE * self.costs / np.where(length > 0.0, length, 1.0))
        out = u * share[self.owner]
        out[self.heads] = self.costs
        return out

    def rounded(self, s: Array, z: Array, usual: Array, width: Array) -> Array:
        """Multipliers on the boundary as the slacks are; as they are, inside, where norms go to 0.

        A norm is 0 at the optimum if its multiplier stays inside by more than its slack does.
        """
        length = np.sqrt(self.sums(self.tail * s * s))
        inside = 1.0 - np.sqrt(self.sums(self.tail * z * z)) / self.costs
        zero = inside * self.spread > length
        return np.where(zero[self.owner], z, self._steepest(s, length))

    def _steepest(self, s: Array, length: Array) -> Array:
        share = INSIDE * self.costs / np.where(length > 0.0, length, 1.0)
        out = -s * share[self.owner]
        out[self.heads] = self.costs
        return out

    def steepest(self, x: Array) -> Array:
        """The multipliers at x, where no norm is 0."""
        s = self.slack(x)
        return self._steepest(s, s[self.heads])

    def vanishing(self, x: Array) -> Mask:
        """The norms that are next to 0 at x: the least one, and those that are as good as it."""
        length = self.lengths(x)
        return np.asarray(length <= length.min() + NEXT * self.spread)

    def lowest(
        self, M: Array, linear: Array, equal: tuple[Array, Array], x: Array | None
    ) -> tuple[Array | None, bool]:
        """The least of ``1/2 <x, M x> + <q, x> + value(x)`` under ``E x + e = 0``, nearly.

        By Newton's method with shorter steps where it needs them, from x or from the least of
        squares that are about as steep; and whether it has ended. It does not at a norm of 0.
        """
        E, e = equal
        if x is None:
            curvature, right = self.parabolas()
            x = _newton_step(M + curvature, E, right - linear, -e)
        else:
            x = _newton_step(np.eye(len(x)), E, x, -e)  # the nearest that satisfies the equations
        if x is None:
            return None, False
        value = self._objective(M, linear, x)
        for _ in range(NEWTON):
            s = self.slack(x)
            length = s[self.heads]
            if not (np.isfinite(value) and length.min() > 0.0):
                return x, False
            weight = (self.costs / length)[self.owner] * self.tail
            H = M + self.blocks.gram(weight, np.sqrt(weight) * s / length[self.owner])
            g = M @ x + linear - self.adjoint(self._steepest(s, length))
            step = _newton_step(H, E, -g, np.zeros(len(e)))
            if step is None:
                return x, False
            fall = -float(g @ step)
            if fall <= CLOSE * abs(value):
                return x + step, True
            part, before = 1.0, value
            while True:
                value = self._objective(M, linear, x + part * step)
                if value <= before - 0.1 * part * fall:
                    break
                part *= 0.5
                if part < LEAST_PART:
                    return x, False
            x = x + part * step
        return x, False

    def _objective(self, M: Array, linear: Array, x: Array) -> float:
        return 0.5 * float(x @ (M @ x)) + float(linear @ x) + self.value(x)

    def _at_zero(self, z: Array) -> Mask:
        """Norms whose multipliers are inside."""
        length = np.sqrt(self.sums(self.tail * z * z))
        return np.asarray(length < (1.0 - 1e-12) * self.costs)

    def face(self, x: Array, z: Array) -> tuple[Array, Array, Array] | None:
        """Curvature of the norms that are not 0, and the equations of those that are; at x."""
        s = self.slack(x)
        length, zero = s[self.heads], self._at_zero(z)
        if not (length[~zero] > 0.0).all():
            return None
        length = np.where(zero, 1.0, length)
        weight = np.where(zero, 0.0, self.costs / length)[self.owner] * self.tail
        along = np.sqrt(weight) * s / length[self.owner]
        curvature = self.blocks.gram(weight, along)
        rows = np.flatnonzero(zero[self.owner] & (self.tail > 0.0))
        if len(rows) > CROWDED * len(x):
            return None
        return curvature, self.blocks.matrix[rows].toarray(), -s[rows]

    def moved(self, x: Array, z: Array, step: Array) -> Array:
        """The multipliers after a step of those of norms that are 0; the others' as x has them."""
        s, zero = self.slack(x), self._at_zero(z)
        rows = np.flatnonzero(zero[self.owner] & (self.tail > 0.0))
        out = np.where(zero[self.owner], z, self._steepest(s, s[self.heads]))
        out[rows] += step[: len(rows)]
        return out


def _newton_step(H: Array, E: Array, first: Array, second: Array) -> Array | None:
    """The x with ``H x - E' y = first`` and ``E x = second``; None where the system is singular."""
    d, k = len(H), len(E)
    whole = np.zeros((d + k, d + k))
    whole[:d, :d], whole[:d, d:], whole[d:, :d] = H, -E.T, E
    try:
        found = np.linalg.solve(whole, np.concatenate([first, second]))[:d]
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


class NormScaling(Scaling):
    """The scaling of a pair whose multipliers have fixed heads, with these eliminated."""

    def __init__(self, cones: NormTerms, s: Array, z: Array) -> None:
        super().__init__(cones, s, z)
        self.norms = cones
        v0 = self.v[cones.heads][cones.owner]
        self.w = 2.0 * v0 * self.v - cones.unit
        self.w0 = self.w[cones.heads]
        self.curve = (2.0 * self.w0**2 - 1.0)[cones.owner]

    @cached_property
    def normal(self) -> Array:
        """What the normal equations get."""
        tail, root = self.norms.tail, np.sqrt(2.0 / self.curve)
        return self.norms.blocks.gram(tail / self.eta**2, tail * root * self.w / self.eta)

    def _curved(self, u: Array) -> Array:
        """``H u``, of the tails."""
        tail = self.norms.tail
        along = self.norms.sums(tail * self.w * u)[self.norms.owner]
        return tail * (u - (2.0 / self.curve) * along * self.w) / self.eta**2

    def rest(self, of_cones: Array, apart: Array) -> Array:
        """The step of the multipliers where x stays, for ``W dz + W^-1 ds = of_cones``."""
        owner = self.norms.owner
        self.wanted = self.undone(of_cones)
        first = self.wanted[self.norms.heads][owner]
        ratio = -2.0 * self.w0[owner] / self.curve * self.w
        return self.norms.tail * (self.wanted - ratio * first) - self._curved(apart)

    def back(self, rest: Array) -> Array:
        """``G'`` of a step of the multipliers."""
        return self.norms.adjoint(rest)

    def steps(self, dx: Array, rest: Array, apart: Array) -> tuple[Array, Array]:
        """The steps of slacks and multipliers, in this order, where x goes by `dx`."""
        norms, heads = self.norms, self.norms.heads
        moved = norms.tail * np.asarray(norms.blocks.matrix @ dx)
        ds, dz = moved + apart, rest - self._curved(moved)
        along = norms.sums(norms.tail * self.w * ds)
        first = self.wanted[heads] * self.eta[heads] ** 2 + 2.0 * self.w0 * along
        ds[heads] = first / self.curve[heads]
        return ds, dz


# -- in the loop -----------------------------------------------------------------------------------


class ScreenedNorms(ScreenedCones):
    """A problem of norms of residuals, of which none is left out."""

    def set_up(self) -> None:
        """All cones stay."""
        super().set_up()
        self.kept[:] = True
        self.start: Start | None = None

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Nothing is to be chosen."""
        self.start = start

    def reduce(
        self, selection: Mask
    ) -> tuple[Problem, Callable[[SubproblemResult], SubproblemResult]]:
        """The problem itself."""
        return self.problem, lambda found: found

    def solve(self, reduced: Problem, selection: Mask) -> SubproblemResult | None:
        """Solve it to a part of the tolerance: the certificate charges rounding as well."""
        target = 0.0 if self.best is None else SHARE * self.tol * abs(self.best.primal)
        self.result = call_checked(self.inner, reduced, self.start, target)
        return self.result if self.result.usable else None
