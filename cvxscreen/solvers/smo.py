"""Kernel problems: large ones by small dense blocks, one after another (SMO), small ones whole.

With ``c = -s theta`` the dual of a (reduced) kernel problem is

::

    minimise  1/2 w' w - sum_i s_i b_i c_i + sum_i (e_i |c_i| + q_i/2 c_i^2)
    over      lo_i <= c_i <= hi_i,   sum_i c_i = constant with an intercept

(``w = sum_i c_i z_i + w0``, ``w0`` from the terms that are fixed.) The values ``u_i = <z_i, w>``
are kept for every term, so one evaluation of the gap is O(n). Each round takes the terms strictly
inside their box and those that violate optimality most, solves for them on a dense block of the
kernel matrix (`cvxscreen.solvers.box_qp`), and updates u. As w is the one of the dual point, the
gap is the sum of the Fenchel-Young terms alone.

A few hundred steps of coordinate descent solve a problem of some hundred points in a twentieth of a
millisecond: as long as a dozen operations of numpy. So of small problems nothing is reduced, and
the descent, the best intercept and the gap that decides when to stop are one loop
(`descend_to_gap`). Where it gets stuck `box_qp` goes on. The answers of many such problems over one
Gram matrix are certified at once (`solve_parts`).

The same loop over all terms is how larger problems begin, with rows that are evaluated as it wants
them: as long as each step brings a support vector to its place that is the quickest there is. Where
steps come back to the same terms, the blocks go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CompileClock, compiled, read_only
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.certificates.kernels import Index, KernelParts, certify_parts
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram, GramForm, exact_sum
from cvxscreen.designs.rows_on_demand import RowsOnDemand
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.box_qp import BoxQp, BoxTerms, descend_pairs, descend_singles
from cvxscreen.solvers.interface import (
    SolverTraits,
    Start,
    SubproblemResult,
    SubproblemSolver,
    refuse_side,
)

Array = NDArray[np.float64]


class KernelIterate:
    """Coefficients of the terms, the values u, the intercept, and what never changes in one call.

    Attributes
    ----------
    c, u : arrays, shape (n,)
        Coefficients, and ``<z_i, w>``.
    b : float
        The intercept; 0 without one.
    lo, hi : arrays, shape (n,)
        The box of c.
    linear : array, shape (n,)
        ``s_i b_i``, the linear term of the dual.
    fixed : array, shape (points,)
        What terms that are fixed contribute to the coefficients of w.
    first : int
        Coefficients of the start that are not 0.
    """

    def __init__(self, problem: Problem, gram: Gram, start: Start | None) -> None:
        self.problem, self.gram = problem, gram
        self.losses, self.sign = problem.losses, gram.sign
        ends = -self.sign * self.losses.lo, -self.sign * self.losses.hi
        self.lo, self.hi = np.minimum(*ends), np.maximum(*ends)
        self.linear = self.sign * self.losses.b
        n_points = gram.kernel.size
        self.fixed = -problem.linear[:n_points]
        self.whole = problem.n == n_points and bool((gram.index == np.arange(n_points)).all())
        self.at_zero = float(self.losses.value(np.zeros(problem.n)).sum())
        self.b = 0.0
        self.moving: NDArray[np.intp] | None = None
        self.place(np.zeros(problem.n) if start is None else -self.sign * np.asarray(start.theta))
        if start is not None and not self.fixed.any():
            self.try_unscaled(start.x[gram.index])
        self.first = int(np.count_nonzero(self.c))

    def place(self, c: Array) -> None:
        """Start from a feasible point near `c`, moving few coefficients."""
        c = np.clip(c, self.lo, self.hi)
        if self.gram.intercept:
            c = self.balanced(c)
        self.c, self.u = c, np.zeros(0)
        self.u = self.product(self.coefficients())

    def begin(self, c: Array) -> None:
        """Start from coefficients whose rows are in the cache."""
        self.place(c)
        self.first = int(np.count_nonzero(self.c))

    def balanced(self, c: Array) -> Array:
        """`c` with the sum that the intercept asks for: what is inside its box moves first."""
        short = float(self.problem.linear[-1]) - exact_sum(c)
        inside = (c > self.lo) & (c < self.hi) & (c != 0)
        for group in (inside, c != 0, np.ones(len(c), dtype=bool)):
            ends = self.hi if short > 0 else self.lo
            room = np.where(group, np.clip(ends - c, -1e300, 1e300), 0.0)
            total = float(room.sum())
            if short == 0.0 or total == 0.0:
                continue
            c = np.clip(c + room * min(short / total, 1.0), self.lo, self.hi)
            short = float(self.problem.linear[-1]) - exact_sum(c)
            if abs(short) <= 1e-12 * float(np.abs(c).sum()):
                break
        return c

    def try_unscaled(self, old: Array) -> None:
        """After a change of C: bounds scale with C, what is between them hardly does.

        `old` are the coefficients of the primal point, from before the change. Of the scaled
        start, the old one and a mixture the one with the best dual objective is kept.
        """
        old = np.clip(old, self.lo, self.hi)
        if np.allclose(old, self.c, rtol=1e-6, atol=0.0):
            return
        bound = (self.c == self.lo) | (self.c == self.hi)
        tried = [(self.dual(), self.c, self.u)]
        for c in (old, np.where(bound, self.c, old)):
            self.place(c)
            tried.append((self.dual(), self.c, self.u))
        _, self.c, self.u = max(tried, key=lambda entry: entry[0])

    def aim(self, target: float) -> float:
        """The gap to end with where no start is known: as small beside the optimal value.

        A caller without any point may have made `target` a share of the objective at 0. The same
        share of the dual objective saves it a second call that goes on from here.
        """
        if self.fixed.any() or not self.at_zero > 0.0:
            return target
        return target * min(max(self.dual() / self.at_zero, 0.0), 1.0)

    def dual(self) -> float:
        """Dual objective where nothing is fixed."""
        f = self.losses
        smooth = (self.linear - 0.5 * (self.u + f.q * self.c)) @ self.c
        return float(smooth - f.e @ np.abs(self.c))

    def coefficients(self) -> Array:
        """Of w, over all points."""
        return self.fixed + self.gram.spread(self.c)

    def product(self, c: Array) -> Array:
        """``K c`` at the terms."""
        rows = None if self.whole else self.gram.index
        return self.gram.kernel.product(c, rows, remember=False)

    def point(self, c: Array, b: float) -> tuple[Array, Array]:
        """The primal point of `c` and the intercept `b`, and the slopes of the terms."""
        x = self.fixed + self.gram.spread(c)
        if self.gram.intercept:
            x = np.append(x, b + self.gram.offset(x))
        return x, -self.sign * c

    def derivatives(self) -> tuple[Array, Array]:
        """Of the dual objective when c_i grows (inf at hi) and when it falls (-inf at lo)."""
        e = self.losses.e
        g = self.u - self.linear + self.losses.q * self.c
        up = np.where(self.c < self.hi, g + np.where(self.c >= 0, e, -e), np.inf)
        down = np.where(self.c > self.lo, g + np.where(self.c > 0, e, -e), -np.inf)
        return up, down

    def choose_intercept(self, up: Array, down: Array) -> None:
        """The best b for the current w: a root of a monotone sum of slopes, by bisection."""
        if not self.gram.intercept or not len(self.c):
            return
        low, high = -float(up.min(initial=np.inf)), -float(down.max(initial=-np.inf))
        known = [end for end in (low, high) if np.isfinite(end)]
        middle = float(np.mean(known)) if known else 0.0
        width = abs(high - low) if len(known) == 2 else 1.0
        offset = float(self.problem.linear[-1])

        width = max(width, 1e-12 * (1.0 + abs(middle)))
        f = self.losses
        terms = SlopeTerms.of(self.sign, self.u, f)
        if self.moving is None:
            self.moving = np.empty(len(self.c), dtype=np.intp)
        self.b = best_level(terms, self.moving, offset, middle, width)

    def gap(self) -> float:
        """Duality gap up to rounding."""
        t = self.sign * (self.u + self.b)
        return float(self.losses.fenchel_young(t, -self.sign * self.c).sum())

    def inside(self) -> NDArray[np.bool_]:
        """Terms strictly inside their box and not held at a kink."""
        return (self.c > self.lo) & (self.c < self.hi) & ((self.losses.e == 0) | (self.c != 0))


class SlopeTerms(NamedTuple):
    """What the slopes depend on, shape (n,) each: signs, ``<z_i, w>`` and the losses' columns."""

    sign: Array
    u: Array
    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @classmethod
    def of(cls, sign: Array, u: Array, f: LossTerms) -> SlopeTerms:
        """The terms of the losses `f`."""
        return cls(sign, u, *read_only(f.b, f.e, f.q, f.lo, f.hi))


@compiled(allocates=False, alone=False)
def slope_at(level: float, terms: SlopeTerms, i: int) -> float:
    """``s_i f_i'(s_i (u_i + level))``, 0 at a kink and beyond the end of a hard term."""
    sign, u, b, e, q, lo, hi = terms
    z = sign[i] * (u[i] + level) - b[i]
    if z > e[i]:
        z -= e[i]
    elif z < -e[i]:
        z += e[i]
    else:
        return 0.0
    if q[i] > 0.0:
        slope = min(max(z / q[i], lo[i]), hi[i])
    else:
        slope = hi[i] if z > 0.0 else lo[i]
        if np.isinf(slope):
            slope = 0.0
    return sign[i] * slope


@compiled(allocates=False, alone=False)
def sum_of_slopes(level: float, terms: SlopeTerms, index: NDArray[np.intp]) -> float:
    """Over the terms in `index`."""
    total = 0.0
    for k in range(len(index)):
        total += slope_at(level, terms, index[k])
    return total


@compiled(allocates=False)
def best_level(
    terms: SlopeTerms, moving: NDArray[np.intp], offset: float, middle: float, width: float
) -> float:
    """Where `offset` and the slopes sum to 0, by bisection from ``middle -+ width``.

    `moving` is room for the terms whose slope is not the same at both ends.
    """
    n = len(moving)
    for i in range(n):
        moving[i] = i
    low, high = middle - width, middle + width
    for _ in range(60):
        if not offset + sum_of_slopes(low, terms, moving) > 0.0:
            break
        low -= high - low
    for _ in range(60):
        if offset + sum_of_slopes(high, terms, moving) > 0.0:
            break
        high += high - low
    decided, count = offset, 0
    for i in range(n):
        first, last = slope_at(low, terms, i), slope_at(high, terms, i)
        if first == last:
            decided += first
        else:
            moving[count] = i
            count += 1
    some, level = moving[:count], middle
    for _ in range(60):
        level = 0.5 * (low + high)
        if high - low <= 1e-9 * width + 1e-15 * abs(level):
            break
        if decided + sum_of_slopes(level, terms, some) > 0.0:
            high = level
        else:
            low = level
    return level


DENSE = 512
"""Up to so many terms are solved as one block, all of their rows being evaluated: more than that
costs more than it saves where a third of the terms have a row in the answer."""
WHOLE = 6
"""A block of this share of the terms (one in so many) is better all of them, where their matrix is
in the cache: it is then read in place, neither gathered nor multiplied to keep u up to date, and
fewer blocks end at the target. (3,000 x 20, noisy classes: half to a third of the time; shares of
a half to a quarter gain less.)"""
IN_PLACE = 4000
"""Most terms of which the whole matrix is read so (128 MB): a step reads a row of it from memory, a
block of a few hundred terms lies in the cache. (magic04, 6,000 x 10: 1.08 times the time.)"""
EVALUATED = 6
"""Coefficients that are not 0 (one in so many terms) from which on the whole matrix is evaluated:
their rows are needed anyway, and a row and its mirror image cost half of two."""
LARGEST = 1500
"""Terms at most that are added to a block: their kernel matrix takes 18 MB."""
TIGHTER = 0.1
"""A block's violation is reduced by this factor, further where that brings no progress."""
CACHE_MARGIN = 8
"""Rows of the cache that a block leaves for others."""
PATIENCE = 5
"""Blocks in a row that may bring no progress."""


@dataclass(frozen=True)
class Smo(SubproblemSolver):
    """The built-in solver of kernel problems.

    Parameters
    ----------
    max_rounds : int
        Blocks at most.
    block : int
        Terms of a block beyond those inside their box.
    limits : Limits
        Of the whole call.
    begun : array, shape (n,), optional
        Coefficients that a problem without a start is begun with.
    """

    max_rounds: int = 500
    block: int = 512
    name: str = "BUILTIN"
    limits: Limits = field(default=UNLIMITED, compare=False)
    begun: Array | None = field(default=None, compare=False, repr=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True, selects_terms=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Raises
        ------
        InvalidInput
            If the problem is no kernel problem.
        """
        gram = problem.design
        refuse_side(problem)
        if not isinstance(gram, Gram):
            raise InvalidInput("this solver takes kernel problems only.")
        iterate = KernelIterate(problem, gram, start)
        if start is None and self.begun is not None and len(self.begun) == problem.n:
            iterate.begin(self.begun)
        best, best_gap = (iterate.c.copy(), iterate.b), float("inf")
        known = float("inf")
        idle, steps, rounds, tighter = 0, 0, 0, TIGHTER
        rng = np.random.default_rng(0)
        while True:
            up, down = iterate.derivatives()
            iterate.choose_intercept(up, down)
            gap = iterate.gap()
            progress = gap < 0.9 * known  # since it was last seen, over several blocks maybe
            known = gap if progress else known
            if gap < best_gap:
                best, best_gap = (iterate.c.copy(), iterate.b), gap
            aim = target if start is not None else iterate.aim(target)
            if best_gap <= aim:
                break
            if not gram.intercept:
                up, down = np.minimum(up, 0.0), np.maximum(down, 0.0)
            violation = float(down.max() - up.min()) if problem.n else 0.0
            if rounds >= self.max_rounds or idle > PATIENCE or not violation > 0.0:
                break
            if self.limits.spent():
                break
            # Near the target the gap falls about as fast as the violation: no need for more.
            enough = min(0.3, 0.3 * aim / gap)
            chosen = self._choose(iterate, up, down, rng)
            done, fell = _improve(iterate, chosen, max(tighter, enough) * violation)
            steps, rounds = steps + done, rounds + 1
            self.limits.spent(1)
            # Far from the optimum the gap jumps about, but the dual objective always improves.
            idle = 0 if progress or fell > 1e-3 * best_gap else idle + 1
            if idle:
                tighter = max(0.1 * tighter, 1e-6)
        x, theta = iterate.point(*best)
        status = "optimal" if best_gap <= target else "inaccurate"
        info = {
            "steps": steps, "passes": rounds, "gap": best_gap,
            "evaluations": gram.kernel.evaluations,
        }
        return SubproblemResult(status, x, theta, info=info)

    def _choose(
        self, iterate: KernelIterate, up: Array, down: Array, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Terms inside their box; of those that should grow or fall the worst, and some others."""
        n = len(up)
        if n <= DENSE:
            return np.arange(n)
        room = max(self.block, iterate.gram.kernel.slots - CACHE_MARGIN)
        inside = iterate.inside()
        free = np.flatnonzero(inside)
        middle = 0.5 * (float(up.min()) + float(down.max())) if iterate.gram.intercept else 0.0
        if len(free) > room // 2:
            worst = np.minimum(up - middle, middle - down)[free]
            free = free[np.argsort(worst)[: room // 2]]
        keys = up - middle, middle - down
        ables = [np.flatnonzero((key < 0) & ~inside) for key in keys]
        many = 0
        if np.count_nonzero(~inside & (iterate.c != 0)) > 2 * len(free):
            many = min(sum(map(len, ables)), LARGEST)  # most go to their bound, and few steps do it
        extra = max(min(max(self.block, len(free) // 2, many), room - len(free), n) // 4, 1)
        parts = [free]
        for key, able in zip(keys, ables, strict=True):
            if len(able) > 2 * extra:
                # The worst alone would be a block of outliers; a random half keeps it fair.
                able = able[np.argsort(key[able] + 1e-9 * key.min() * rng.random(len(able)))]
                able = np.concatenate([able[:extra], rng.permutation(able[extra:])[:extra]])
            parts.append(able)
        chosen = np.unique(np.concatenate(parts))
        return np.arange(n) if WHOLE * len(chosen) >= n and _lies_whole(iterate) else chosen


def _lies_whole(iterate: KernelIterate) -> bool:
    """Whether the matrix of all terms is there, or is so now as most of its rows are needed."""
    kernel = iterate.gram.kernel
    if not iterate.whole or kernel.size > IN_PLACE:
        return False
    many = EVALUATED * (int(np.count_nonzero(iterate.c)) - iterate.first) >= kernel.size
    return kernel.filled or (many and kernel.fill())


def _improve(iterate: KernelIterate, chosen: NDArray[np.intp], eps: float) -> tuple[int, float]:
    """Solve for the `chosen` terms, the others held.

    Returns
    -------
    steps : int
    fell : float
        By how much the dual's negative fell.
    """
    kernel, points = iterate.gram.kernel, iterate.gram.index[chosen]
    all_terms = len(chosen) == len(iterate.c)
    matrix = None
    if all_terms and iterate.whole and (kernel.filled or kernel.fill()):
        matrix = kernel.matrix()
    elif all_terms and 3 * len(chosen) >= kernel.size:
        kernel.fetch(points)
    losses, before = iterate.losses, iterate.c[chosen]
    e, q = losses.e[chosen], losses.q[chosen]
    gradient = iterate.u[chosen] - iterate.linear[chosen]
    block = BoxQp(
        kernel.block(points, points) if matrix is None else matrix, gradient.copy(), before.copy(),
        iterate.lo[chosen], iterate.hi[chosen], e, q, iterate.gram.intercept,
    )
    steps = block.solve(eps)
    moved = block.c - before
    if matrix is None and (3 * len(chosen) >= kernel.size or not all_terms):
        kernel.fetch(points[moved != 0])
    fell = -0.5 * float(moved @ (gradient + block.F))
    curved = 0.5 * q * (block.c**2 - before**2)
    fell -= float(np.sum(e * (np.abs(block.c) - np.abs(before)) + curved))
    iterate.c[chosen] = block.c
    if all_terms:
        iterate.u = block.F + iterate.linear
    else:
        change = np.zeros(len(iterate.c))
        change[chosen] = moved
        iterate.u = iterate.u + iterate.product(iterate.gram.spread(change))
    return steps, fell


# -- small problems, whole ------------------------------------------------------------------------

AT_ONCE, OF_TWO_CLASSES = 1200, 2000
"""Most terms of a problem that is solved without screening; of one on a part of the points.
Measured at C = 100, where it is latest to pay, on six sets: one class against the rest takes 0.37
to 0.56 of the time at 700 samples, 0.46 to 0.78 at 1,000, 0.52 to 1.1 at 1,400; two classes 0.75 at
1,300."""
ON_DEMAND = 8000
"""Most terms of a problem that begins with all of them at once. (Of 38 fits to seven sets, 1,500 to
6,000 points, C = 1 and 100, 26 took less time than with blocks from the start; 0.33 to 1.3 times,
0.75 in the geometric mean. At 12,000 points the rows alone may take as long as the blocks.)"""
OF_TERMS = 8
"""So many terms for each step before it is asked whether more are worth it."""
FEW_ROWS = 16
"""Where at most one term in so many has moved, up to half as many steps as terms are taken: few
rows come, and a block costs more than some hundred steps (shuttle, 50 support vectors: half)."""
A_ROW, LEAST = 1.5, 50
"""Steps for each term that has moved, beside the first, while half of these are at an end of their
box; and fewer than so many are not begun. After the first steps it were 0.82 and more on seven sets
at C = 1, which were solved within 1.3 steps a term, and 0.04 to 0.36 at C = 100, which were not
within two."""
ALONE, OF_FEATURES = 1.75, 30.0
"""An entry of a row that a loop evaluates costs so much of what one does when all are evaluated at
once, and as much again for so many features: 1.6 to 1.9 at 5 features, 2.0 to 2.5 at 10, 3.0 to 3.9
at 40 (500 to 8,000 points)."""
AIM = 0.8
"""Share of the tolerance that the descent uses up; the certificate charges rounding."""
FIRST = 100.0
"""Violation, in tolerances, at which the gap is first looked at: at 3 of them it was a thirtieth of
what was asked for at C = 1 (ten sets of 500 to 4,000 points; up to a tenth of the time)."""
FALL = 0.05
"""The violation falls to this share at least before the gap is looked at again."""
TURN = 60
"""Coordinate steps before a Newton step where the descent has got stuck."""
TURNS = 4
"""How often `box_qp` goes on."""


@compiled(allocates=False)
def descend_to_gap(
    rows: RowsOnDemand, F: Array, c: Array, box: BoxTerms, terms: SlopeTerms, moving: Index | None,
    singles: bool | None, tol: float, limit: int,
) -> tuple[float, float, float]:
    """Coordinate descent until the relative gap is `tol`, or `limit` steps.

    c and ``F = K c - s b`` change in place, ``terms.u`` and `moving` are room. With an intercept
    `singles` is None, without one `moving`: of each type numba leaves out what belongs to the
    other, a fifth of what there is to compile, and more than half.

    Returns
    -------
    intercept, gap, violation : float
    """
    n, left, eps, level = len(c), limit, FIRST * tol, 0.0
    while True:
        done, violation = 0, 0.0
        if singles is not None:
            done, violation = descend_singles(rows, F, c, box, eps, left)
        elif moving is not None:
            done, violation = descend_pairs(rows, F, c, box, eps, left)
        left = left - done if violation <= eps else 0  # there may be no room for a row
        least, most = np.inf, -np.inf
        for i in range(n):
            terms.u[i] = F[i] + terms.sign[i] * terms.b[i]
            least, most = min(least, F[i] + box.rise[i]), max(most, F[i] + box.fall[i])
        if moving is not None:
            level = best_level(
                terms, moving, 0.0, -0.5 * (least + most), abs(most - least) + 1e-12
            )
        gap, primal = 0.0, 0.0
        for i in range(n):
            s, q, e = terms.sign[i], terms.q[i], terms.e[i]
            z, now = s * (terms.u[i] + level) - terms.b[i], -s * c[i]
            slope = s * slope_at(level, terms, i)
            primal += z * slope - e * abs(slope) - 0.5 * q * slope * slope
            primal += 0.5 * c[i] * terms.u[i]
            gap += (z - 0.5 * q * (slope + now)) * (slope - now) - e * (abs(slope) - abs(now))
        aim = tol * primal
        if gap <= aim or left <= 0 or not violation > 0.0:
            return level, gap / primal if primal > 0.0 else 0.0, violation
        eps = min(eps, violation) * min(max(0.5 * aim / gap, FALL), 0.5)


def solve_parts(
    parts: KernelParts, tol: float, each: Callable[..., Iterable[tuple[float, int]]] = map
) -> tuple[Array, Array, list[Certificate]]:
    """Coefficients of all terms, an intercept for each problem, and the certificates.

    Rows of the kernel are evaluated as they are wanted, until all at once are likely the cheaper.
    Where all at once are too many, problems do not depend on each other, and `each` may solve
    several at a time.
    """
    c, b, kernel = np.zeros(len(parts.index)), np.zeros(len(parts)), parts.gram.kernel
    source, entries = kernel.function.source, np.diff(parts.first).astype(float) ** 2
    wanted = 0

    def solve(k: int) -> tuple[float, int]:
        return _solve(parts, k, c[parts.terms(k)], AIM * tol), parts.evaluated()

    if kernel.size > IN_PLACE:
        b[:] = [level for level, _ in each(solve, range(len(parts)))]
        return c, b, certify_parts(parts, c, b, tol)
    for k in range(len(parts)):
        if k and not kernel.filled and source is not None:
            dear = ALONE + source.points.shape[1] / OF_FEATURES
            if dear * wanted * entries[k:].sum() > entries[:k].sum() * kernel.size**2:
                kernel.fill()
        b[k], now = solve(k)
        wanted = max(wanted, now)
    return c, b, certify_parts(parts, c, b, tol)


def alone(problem: Problem) -> KernelParts | None:
    """A problem over all points of its kernel, as the only part; None where it does not suit."""
    gram, plain = problem.design, problem.side is None and problem.penalty is None
    if not isinstance(gram, Gram) or not isinstance(problem.quadratic, GramForm):
        return None
    kernel = gram.kernel
    if problem.n > ON_DEMAND or not plain or problem.constant or problem.linear.any():
        return None
    if problem.n > AT_ONCE and (kernel.function.source is None or not DEMAND_CLOCK.bought):
        return None
    if not np.array_equal(gram.index, np.arange(kernel.size)):
        return None
    if problem.n <= AT_ONCE and not (kernel.filled or kernel.fill()):
        return None
    return KernelParts.of(problem, [gram.index], [gram.sign])


def _solve(parts: KernelParts, k: int, c: Array, tol: float) -> float:
    """Solve problem k, to a relative gap `tol`; returns the intercept, c changes in place."""
    own, kernel = parts.terms(k), parts.gram.kernel
    index, sign = parts.index[own], parts.sign[own]
    f, balanced = parts.whole.losses.take(index), parts.gram.intercept
    ends = -sign * f.lo, -sign * f.hi
    lo, hi = np.minimum(*ends), np.maximum(*ends)
    F = -sign * f.b
    if balanced and (not (hi > 0.0).any() or not (lo < 0.0).any()):
        # Of one class alone no coefficient balances another: all are 0, its label costs nothing.
        kinks = -F[lo < hi]
        return float(kinks.max() if (hi > 0.0).any() else kinks.min()) if len(kinks) else 0.0
    matrix = kernel.matrix()
    diagonal = kernel.function.diagonal if matrix is None else matrix.diagonal()
    box = BoxTerms.of(lo, hi, f.e, f.q, diagonal[index])
    terms = SlopeTerms.of(sign, np.empty(len(c)), f)
    moving, singles = (np.empty(len(c), dtype=np.intp), None) if balanced else (None, True)

    def descend(rows: RowsOnDemand, limit: int) -> tuple[float, float, float]:
        return descend_to_gap(rows, F, c, box, terms, moving, singles, tol, limit)

    large = len(c) > (OF_TWO_CLASSES if len(parts) > 1 else AT_ONCE)
    with parts.rows(k) as rows:
        if large:
            return _while_steps_pay(descend, rows, c, box, tol)
        level, gap, violation = descend(rows, 1000 + 10 * len(c))
    block: Array | None = None
    for _ in range(TURNS):
        if gap <= tol or not violation > 0.0:
            break
        block = kernel.block(index, index) if block is None else block
        BoxQp(block, F, c, lo, hi, f.e, f.q, balanced).solve(
            violation * min(max(0.5 * tol / gap, FALL), 0.5), TURN
        )
        with parts.rows(k) as rows:
            level, gap, violation = descend(rows, 0)
    return level


def _while_steps_pay(
    descend: Callable[[RowsOnDemand, int], tuple[float, float, float]], rows: RowsOnDemand,
    c: Array, box: BoxTerms, tol: float,
) -> float:
    """Descend over all terms as long as most steps bring one to its place; returns the intercept.

    The first steps of a problem move most of the terms that they choose to an end of their box, for
    good, or move few terms in all. Where they do neither the problem is hard, and steps that look
    at all terms are too dear for it.
    """
    n, left, done = len(c), len(c) // OF_TERMS, 0
    while True:
        level, gap, violation = descend(rows, left)
        done += left
        if gap <= tol or not violation > 0.0 or rows.full:
            return level
        moved = c != 0.0
        ended = (c[moved] <= box.lo[moved]) | (c[moved] >= box.hi[moved])
        if FEW_ROWS * len(ended) <= n:
            left = n // 2 - done
        elif 2 * np.count_nonzero(ended) >= len(ended):
            left = int(A_ROW * len(ended)) + n // OF_TERMS - done
        else:
            return level
        if left < LEAST:
            return level


DEMAND_CLOCK = CompileClock(2.0, descend_to_gap)
"""Of `descend_to_gap`, beside what blocks need as well: measured on a fresh cache, loaded."""
