"""Problems of few terms, or of few that are undecided, by numpy alone: nothing is compiled.

Few terms wait for no compiler: numpy takes about a millisecond. Every loss is the sum of at most
two one-sided ones, ``max_{0 <= s <= u} s z - q/2 s^2`` with ``z = +-(t - b) - e``. With their rows
G (plus or minus the rows of the design) and offsets beta the optimum is where

    M x + G' s = 0,    G x - beta - q s + low - high = 0,
    low s = 0,    high (u - s) = 0,    s, u - s, low, high >= 0.

Newton's method with the right-hand sides of the last two lines on the way to 0, a predictor and a
corrector (Mehrotra 1992): ten to fifteen systems of size d whatever C is (`solve_few`).

Of data that were solved before at other costs, most terms are where they were (`Continuation`):
only those whose margins may pass a knot on the way are left to that method, the others are the
affine or quadratic piece that they lie on. It is a prediction; whoever asks certifies the answer on
all data.

`cvxscreen.solvers.interior_point` is the method in full, with constraints, data by blocks and exact
faces; on 100 x 5 it takes 3.5 ms where this one takes 0.7 (hinge, CPU), and `Newton` 4 to 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

TERMS, ENTRIES = 2000, 40_000
"""Most terms, and most numbers in their rows: about where `Newton`, in numpy too, is as fast."""

FEW_CALL = 1e-3
"""CPU seconds of such a call, about; `segments.charge` counts them."""

SHARE_OF_NEARBY = 0.02
"""Of what `Newton` costs, for a solve that goes on from near. It takes a tenth of that longer than
a compiled one (20,000 x 20, loaded machine: hinge 11 ms for 6, quantile 15 for 7, Huber 15 for 10),
but loading takes 0.5 to 0.7 s, two or three times its price, which some 70 of these are worth."""

STEPS = 60
"""Most steps; a dozen is usual."""

NEARLY = 1e-9
"""Share of its interval that a slope is put to the end by: few numbers of the answer are left that
are no end, and whose margins a certificate has to know to the last digit."""

UNBALANCED = 1e-11
"""Share of the value up to which `dual` may cost: what is left of it on an intercept costs a
certificate that much, and rounding leaves 1e-12 (2,000 x 20)."""

BACK = 0.995
"""Share of the way to the boundary that a step goes."""

STUCK = 8
"""Steps without a smaller sum of products that end the search."""

CHANGES, LEFT = 40, 1e-3
"""Changes of a sum before it is summed anew, and the share of it that at least stays in each."""


class Smooth(NamedTuple):
    """``1/2 x' matrix x + slope' x + level``.

    Attributes
    ----------
    matrix : array, shape (d, d)
    slope : array, shape (d,)
    level : float
    """

    matrix: Array
    slope: Array
    level: float


class Sides(NamedTuple):
    """One-sided losses, m of them.

    Attributes
    ----------
    data : array, shape (n, d)
        The rows of the terms; those of falling sides are minus theirs.
    terms : array of int, shape (m,)
        The terms that they belong to: those that rise, then those that fall.
    cut : int
        How many rise.
    beta, q, u : array, shape (m,)
        `u` is 1 where there is no end.
    ended : array, shape (m,)
        1 where there is one, else 0.
    """

    data: Array
    terms: Index
    cut: int
    beta: Array
    q: Array
    u: Array
    ended: Array

    @classmethod
    def of(cls, problem: Problem) -> Sides:
        """The two sides of every loss of `problem`."""
        f, none = problem.losses, np.zeros(0)
        right, left = np.flatnonzero(f.hi > 0.0), np.flatnonzero(f.lo < 0.0)
        beta = np.concatenate([f.b[right] + f.e[right], f.e[left] - f.b[left]])
        terms = np.concatenate([right, left])
        return cls(problem.design.dense(), terms, len(right), beta, none, none, none).at(f)

    def at(self, losses: LossTerms) -> Sides:
        """The sides of a multiple of the losses, to the last bit."""
        u = np.concatenate([losses.hi[self.terms[:self.cut]], -losses.lo[self.terms[self.cut:]]])
        ended = np.isfinite(u)
        return self._replace(
            q=losses.q[self.terms], u=np.where(ended, u, 1.0), ended=ended.astype(np.float64)
        )

    def part(self, chosen: Index) -> Sides:
        """The sides at the positions `chosen`."""
        beta, q, u, ended = (field[chosen] for field in self[3:])
        cut = int(np.searchsorted(chosen, self.cut))
        return Sides(self.data, self.terms[chosen], cut, beta, q, u, ended)

    @property
    def rows(self) -> Array:
        """G, shape (m, d): the row of each side, turned so that its loss rises along it."""
        rows = self.data[self.terms]
        np.negative(rows[self.cut:], out=rows[self.cut:])
        return rows

    def forward(self, x: Array) -> Array:
        """``G x``; a term with two sides is multiplied once."""
        z = (self.data @ x)[self.terms]
        np.negative(z[self.cut:], out=z[self.cut:])
        return z

    def adjoint(self, s: Array) -> Array:
        """``G' s``, as `forward`."""
        return self.slopes(s, len(self.data)) @ self.data

    @property
    def knot(self) -> Array:
        """Where the curved piece ends, as it begins at 0: ``z = q u``."""
        return np.where(self.ended > 0.0, self.q * self.u, np.inf)

    def reach(self, z: Array) -> Array:
        """How far `z` is from the next knot."""
        return np.minimum(np.abs(z), np.abs(z - self.knot))

    def pieces(self, z: Array) -> NDArray[np.int8]:
        """0 where the losses are 0, 1 where they are curved, 2 where they are straight."""
        return (z > 0.0).astype(np.int8) + (z >= self.knot) * (z > 0.0)

    def slopes_on(self, pieces: NDArray[np.int8], z: Array) -> Array:
        """Slopes s on these pieces."""
        curved = np.divide(z, self.q, out=np.zeros(len(z)), where=pieces == 1)
        return np.where(pieces == 2, self.u, curved)

    def smooth(self, pieces: NDArray[np.int8], matrix: Array) -> Smooth:
        """The losses on these pieces, -1 for none, that leave `matrix`."""
        bent = np.flatnonzero(pieces == 1)
        s = np.where(pieces == 2, self.u, 0.0)
        s[bent] = -self.beta[bent] / self.q[bent]
        return Smooth(matrix, self.adjoint(s), -float(s @ (self.beta + 0.5 * self.q * s)))

    def ended_at(self, s: Array, z: Array) -> Array:
        """Slopes s put to an end of their intervals where they nearly are, beside the kink."""
        kink, near = self.q == 0.0, NEARLY * self.u
        s = np.where(kink & (s <= near) & (z < 0.0), 0.0, s)
        return np.where(kink & (s >= self.u - near) & (z > 0.0), self.u, s)

    def gram(self, some: Index, weights: Array) -> Array:
        """``G' diag(weights) G`` of the sides `some`."""
        rows = self.data[self.terms[some]]
        return np.asarray((rows * weights[:, None]).T @ rows)

    def slopes(self, s: Array, n: int) -> Array:
        """The slopes of the losses themselves, shape (n,)."""
        theta = np.zeros(n)
        theta[self.terms[:self.cut]] = s[:self.cut]
        theta[self.terms[self.cut:]] -= s[self.cut:]
        return theta


class Curvature:
    """``sum_i a_i a_i' / q_i`` over the sides that are curved: from the last one, what has changed.

    From one solve to the next few sides do. Where many have, or most of the sum has gone, it is
    summed anew: rounding is not to add up.
    """

    def __init__(self) -> None:
        self.q = self.matrix = np.zeros(0)
        self.curved: Mask = np.zeros(0, dtype=bool)
        self.changes = CHANGES

    def of(self, sides: Sides, curved: Mask) -> Array:
        """The sum over these of `sides`, all of whose q have changed by one factor."""
        known = self._changed(sides, curved) if self.changes < CHANGES else None
        self.changes = 0 if known is None else self.changes + 1
        if known is None:
            some = np.flatnonzero(curved)
            known = sides.gram(some, 1.0 / sides.q[some])
        self.q, self.curved, self.matrix = sides.q, curved, known
        return known

    def _changed(self, sides: Sides, curved: Mask) -> Array | None:
        change = np.flatnonzero(curved != self.curved)
        if not 2 * len(change) < np.count_nonzero(self.curved):
            return None
        one = int(self.curved.argmax())
        before = (self.q[one] / sides.q[one]) * self.matrix
        signs = np.where(curved[change], 1.0, -1.0)
        now = before + sides.gram(change, signs / sides.q[change])
        return now if (now.diagonal() >= LEFT * before.diagonal()).all() else None


def few(problem: Problem) -> bool:
    """Whether `problem` has so few terms that `solve_few` is the quickest without a compiler."""
    return problem.n <= TERMS and problem.n * problem.d <= ENTRIES


def solve_few(problem: Problem, tol: float) -> tuple[Array, Array, int]:
    """``(x, theta, steps)`` to a relative gap of about `tol`, by its own numbers.

    For rows in memory and a diagonal M without a linear term; theta lies within its boxes.
    """
    sides = Sides.of(problem)
    smooth = Smooth(np.diag(problem.quadratic.diagonal), np.zeros(problem.d), 0.0)
    x, s, steps = interior_point(sides, smooth, np.zeros(problem.d), tol)
    return x, _within(problem, sides.slopes(s, problem.n)), steps


def _within(problem: Problem, theta: Array) -> Array:
    return np.clip(theta, problem.losses.lo, problem.losses.hi)


def interior_point(
    sides: Sides, smooth: Smooth, x: Array, tol: float
) -> tuple[Array, Array, int]:
    """``(x, s, steps)`` of one-sided losses beside a smooth part, from `x` on."""
    rows, (beta, q, u, ended) = sides.rows, sides[3:]
    matrix_of, slope, level = smooth
    start = beta - rows @ x
    typical = np.abs(start) / np.maximum(q, 1e-12) + 1.0  # only where there is no end: q > 0
    s = np.where(ended > 0.0, 0.5 * u, typical)
    excess = start + q * s
    middle = (float(np.abs(excess).mean()) if len(s) else 0.0) + 1e-300
    # All that stays positive: s, u - s, low and high; 1 where there is no end.
    room = ended * (u - s) + (1.0 - ended)
    high = ended * (np.maximum(-excess, 0.0) + middle) + (1.0 - ended)
    positive = np.stack([s, room, np.maximum(excess, 0.0) + middle, high])
    change = np.zeros_like(positive)
    count = len(s) + float(ended.sum())
    best, kept, waited, step = np.inf, (x, s), 0, 0
    while step < STEPS and len(s):
        s, room, low, high = positive
        curved = matrix_of @ x
        dual = curved + slope + s @ rows
        z = rows @ x - beta
        upper = ended * high
        slack = z - q * s + low - upper
        value = level + float(x @ (0.5 * curved + slope)) + float(s @ (z - 0.5 * q * s))
        first, second = low * s, upper * room
        total = float(first.sum() + second.sum())
        gap = total + float(np.square(np.abs(dual).max())) + float(np.abs(slack) @ s)
        gap += max(float(np.abs(dual) @ np.abs(x)) - UNBALANCED * abs(value), 0.0)
        waited += 1
        if gap < best:
            waited = 0 if gap < 0.5 * best else waited
            best, kept = gap, (x, s)
        done = best <= tol * abs(value) or waited > STUCK
        if done or not (np.isfinite(gap) and total > 0.0):  # all targets 0: nothing is left to do
            break
        over, under = low / s, upper / room
        weight = 1.0 / (q + over + under)
        matrix = matrix_of + (rows.T * weight) @ rows
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            break
        for corrector in (False, True):
            if corrector:
                ahead = positive + _length(positive, change) * change
                left = float(ahead[2] @ ahead[0]) + float((ended * ahead[3]) @ ahead[1])
                aim = total / count * (max(left, 0.0) / total) ** 3
                first = first + change[2] * change[0] - aim
                second = second + ended * (change[3] * change[1] - aim)
            right = first / s - second / room - slack
            pull_x = (weight * right) @ rows - dual
            dx = inverse @ pull_x
            dx += inverse @ (pull_x - matrix @ dx)  # or the residual grows with the weights
            ds = weight * (rows @ dx - right)
            change[0], change[1], change[2] = ds, -ended * ds, -first / s - over * ds
            change[3] = under * ds - second / room
        length = BACK * _length(positive, change)
        length = min(length / BACK, 1.0) if length >= BACK else length
        x, positive = x + length * dx, positive + length * change
        step += 1
    x, s = kept
    return x, sides.ended_at(s, rows @ x - beta), step


def _length(positive: Array, change: Array) -> float:
    """The longest step, at most 1, that leaves everything positive."""
    most = float((-change / positive).max())
    return 1.0 / most if most > 1.0 else 1.0


# -- near the last solve --------------------------------------------------------------------------

FAR = 0.7
"""Step in log C up to which most terms are likely to be where they were."""

BAND = 2.0
"""Times by which the interval of margins left open is wider than what was seen of predictions."""

COVERED = 0.99
"""Share of the terms whose margins were predicted so closely."""

MOST = 0.5
"""Share of the one-sided losses from which on leaving some out does not pay."""

FIRST = 0.1
"""Step in log C that the first one is taken for."""

SAME = 1e-3
"""Step in log C below which what margins did tells nothing."""

LEAST = 1e-12
"""Share of the largest entry of a matrix that is added to its diagonal."""

PIECES = 8
"""Most steps of Newton's method from near; three or four are usual."""

Found = tuple[Array, Array, Array, int]
"""``(x, z, s, steps)``."""

ROUNDS = 4
"""Most rounds; the second opens what the first has moved past a knot, and mostly is the last."""


@dataclass(eq=False)
class Continuation:
    """Where the last solve of some data has ended, for the next one at other costs.

    Attributes
    ----------
    problem : Problem
        The solved one.
    sides : Sides
        Of its losses.
    x : array, shape (d,)
    z : array, shape (m,)
        ``G x - beta``.
    pace, error : float
        How far `z` went, and predictions of it were off, for a step of 1 in log C.
    curvature : Curvature
    """

    problem: Problem
    sides: Sides
    x: Array
    z: Array
    pace: float
    error: float
    curvature: Curvature = field(default_factory=Curvature)

    @classmethod
    def of(cls, problem: Problem, x: Array) -> Continuation:
        """After a solve from scratch; as nothing was predicted, little is expected."""
        sides = Sides.of(problem)
        moved = sides.forward(x)
        near = cls(problem, sides, x, moved - sides.beta, float(np.abs(moved).mean()), 0.0)
        for _ in range(2):
            near.pace = float(np.abs(near.change(sides, FIRST * near.pace)).mean())
        near.error = near.pace
        return near

    def change(self, sides: Sides, wide: float) -> Array:
        """Derivative of `z` by log C at the optimum, about, for moves of z by `wide`.

        ``(M + G' W G) dx = M x`` with the curvature W of the losses of `sides`: that of a kink, and
        of what passes a knot, is the mean one over so wide an interval.
        """
        diagonal, low, high = self.problem.quadratic.diagonal, self.z - wide, self.z + wide
        before, after = sides.pieces(low), sides.pieces(high)
        passing = np.flatnonzero(before != after)
        matrix = np.diag(diagonal) + self.curvature.of(sides, (before == 1) & (after == 1))
        part = sides.part(passing)
        rise = part.slopes_on(after[passing], high[passing])
        rise -= part.slopes_on(before[passing], low[passing])
        matrix += sides.gram(passing, rise / (2.0 * wide))
        matrix[np.diag_indices_from(matrix)] += LEAST * float(matrix.max())
        try:
            move = np.linalg.solve(matrix, diagonal * self.x).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:  # nothing is bent, or numbers are none
            return np.zeros(len(self.z))
        return sides.forward(move)

    def factor(self, problem: Problem) -> float | None:
        """By how much the losses of `problem` are larger; None where it is too far, or another."""
        if self.problem.design is not problem.design:
            return None
        if not np.array_equal(self.problem.quadratic.diagonal, problem.quadratic.diagonal):
            return None
        factor = problem.losses.factor_of(self.problem.losses)
        return factor if factor is not None and abs(np.log(factor)) <= FAR else None

    def solve(self, problem: Problem, factor: float, tol: float) -> tuple[Array, Array, int] | None:
        """``(x, theta, steps)`` as `solve_few` gives them; None where too much is undecided.

        Parameters
        ----------
        problem : Problem
            The same data, the losses times `factor`.
        factor : float
        tol : float
        """
        step = float(np.log(factor))
        sides = self.sides.at(problem.losses)
        wide = max(abs(step), SAME) * self.pace
        predicted = self.z + step * self.change(sides, wide)
        curved = bool((sides.q > 0.0).all())
        found = self._by_pieces(sides, predicted) if curved else None
        if found is None:
            found = self._by_undecided(sides, predicted, step, tol)
        if found is None:
            return None
        x, z, s, steps = found
        if abs(step) > SAME:
            rank, missed = int(COVERED * (len(z) - 1)), np.abs(z - predicted)
            self.error = float(np.partition(missed, rank)[rank]) / abs(step)
            self.pace = float(np.abs(z - self.z).mean()) / abs(step)
        self.problem, self.sides, self.x, self.z = problem, sides, x, z
        return x, _within(problem, sides.slopes(s, problem.n)), steps

    def _by_pieces(self, sides: Sides, predicted: Array) -> Found | None:
        """Newton's method where no loss has a kink; None where the pieces do not settle.

        Every step solves for the pieces that the last one has led to. From nearby two or three do,
        and one more takes their rounding away.
        """
        diagonal, x, z = self.problem.quadratic.diagonal, self.x, self.z
        pieces, settled = sides.pieces(predicted), False
        for step in range(1, PIECES + 1):
            matrix = np.diag(diagonal) + self.curvature.of(sides, pieces == 1)
            slope = diagonal * x + sides.adjoint(sides.slopes_on(pieces, z))
            try:
                x = x - np.linalg.solve(matrix, slope)
            except np.linalg.LinAlgError:
                return None
            z = sides.forward(x) - sides.beta
            now = sides.pieces(z)
            same = bool((now == pieces).all())
            if same and settled:
                return x, z, sides.slopes_on(pieces, z), step
            pieces, settled = now, same
        return None

    def _by_undecided(
        self, sides: Sides, z: Array, step: float, tol: float
    ) -> Found | None:
        """Only what may pass a knot is open, from margins z on; None where that is too much."""
        reach, pieces = sides.reach(z), sides.pieces(z)
        least = min(self.problem.d, len(z) - 1)  # so many are at a knot
        wide = max(BAND * self.error * abs(step), float(np.partition(reach, least)[least]))
        left, x, steps = reach <= wide, self.x, 0
        for _ in range(ROUNDS):
            chosen = np.flatnonzero(left)
            if len(chosen) > MOST * len(z):
                return None
            matrix = np.diag(self.problem.quadratic.diagonal)
            matrix += self.curvature.of(sides, (pieces == 1) & ~left)
            rest = sides.smooth(np.where(left, -1, pieces), matrix)
            x, found, more = interior_point(sides.part(chosen), rest, x, tol)
            steps, z = steps + more, sides.forward(x) - sides.beta
            past = (sides.pieces(z) != pieces) & ~left
            if not past.any():
                break
            left |= past | (sides.reach(z) <= wide)
        else:
            return None
        s = sides.slopes_on(pieces, z)
        s[chosen] = found
        return x, z, s, steps
