"""The minimum over a face of the dual: a step of the duals, or a move of x alone.

The step to the minimum of a face of the dual, by preconditioned conjugate gradients.

In the metric of M the dual of a problem with a diagonal M is

::

    minimise  1/2 ||v||^2 + sum_i (b_i theta_i + e_i |theta_i| + q_i/2 theta_i^2)
    over      lo_i <= theta_i <= hi_i,       v = v0 - sum_i theta_i a_i

where the rows are divided by ``M^{1/2}``. On the face of the free terms F it is the linear system
``(A_F A_F' + Q) x = r``. Its spectrum is that of a random matrix but for a few columns in which
almost every row has an entry (the frequent words of a text): with those columns split off as B,
the preconditioner ``D + B B'`` (D diagonal) leaves only the bulk. It is applied by the Woodbury
identity and costs no further pass: the ``B' z`` and ``B u`` it computes are what the next product
needs.

A move of x alone that closes most of the gap of a face whose duals are nearly right.

On a face of flat terms (q = 0) the duality gap at ``x = x_theta`` is linear in the residual r of
the free terms, and the dual objective is off by about ``r' K^{-1} r / 2`` only, thousands of times
less. What is left is to make the residual small, and that x alone can do: any move with
``A_F move = -r`` will do, at the price of ``||move||^2 / 2``. The least such move is what further
conjugate gradients on the dual find; a longer one is found much faster. Columns are weighted by
``1 / sum_F a_ij^2`` so that all count alike, which brings the spectrum together, the heavy columns
are left out, and rows are scaled to length one. Conjugate gradients on the normal equations of the
second kind then take one pass over the light entries a step, and the minimal residual of their
iterates (its weights are known without a product) is a third of their own.

Terms next to a kink that are not free take part, so that they stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv

from cvxscreen.solvers.dual_active_set.loops import Loops
from cvxscreen.solvers.dual_active_set.rows import Block, Index, empty

Array = NDArray[np.float64]

HUGE = 1e300
CUT = 0.1
"""Conjugate gradients stop when clipping takes away more than this share of the residual."""
STEPS = 150
"""Conjugate gradient steps at most."""
LENGTHS = tuple(0.5**k for k in range(9))
"""Shares of a step that are tried where clipping has spoilt the whole one: less is clipped then.
The last resort is the share at which nothing is."""


class Face:
    """The free rows of a block at one dual point.

    Attributes
    ----------
    rows : array of int
        Local indices.
    down, up : arrays
        Room of theta in the cell.
    flat : bool
        Whether no free term is on a parabola.
    gap : float
        After `move`: what the free terms add to the duality gap, about.
    steps : int
        After `move`: conjugate gradient steps.
    near : bool
        After `move`: whether it ended because little is lacking.
    """

    def __init__(self, block: Block, theta: Array, v: Array) -> None:
        f, self._block = block.losses, block
        self.rows = rows = block.free(theta)
        self._theta, self._q, self._weight = theta[rows], f.q[rows], block.weight[rows]
        kinked = f.e[rows] > 0
        self._lo = np.where(kinked & (self._theta > 0), 0.0, np.maximum(f.lo[rows], -HUGE))
        self._hi = np.where(kinked & (self._theta < 0), 0.0, np.minimum(f.hi[rows], HUGE))
        slope = f.b[rows] + f.e[rows] * np.sign(self._theta) + self._q * self._theta
        self._residual = block.margins(v, rows) - slope
        self.down, self.up = self._lo - self._theta, self._hi - self._theta
        self.flat = not self._q.any()
        self.gap, self.steps, self.near = 0.0, 0, False

    @property
    def residual(self) -> Array:
        """How far the margins are from where theta is a slope."""
        return self._residual

    @property
    def lacking(self) -> float:
        """What the dual objective lacks on the face, from below: ``r' D^{-1} r / 2``."""
        return 0.5 * float(self._residual @ (self._weight * self._residual))

    def move(
        self, theta: Array, v: Array, enough: float, loops: Loops, close: float = 0.0
    ) -> None:
        """Solve, clip, and go as far as the dual improves; theta and v change in place.

        Where the dual objective lacks no more than about `close`, nothing more is solved.
        """
        if not len(self.rows):
            return
        x, best, most = self._solve(enough, loops, close), None, 0.0
        if self.near and not self.steps:
            return
        for share in (*LENGTHS, 0.0):
            length = share or self._first(x)
            new = np.clip(self._theta + length * x, self._lo, self._hi)
            step = new - self._theta
            change = self._block.pull(step, self.rows)
            slope = float(self._residual @ step)
            bend = float(change @ change) + float((self._q * step) @ step)
            whole = slope > 0.5 * bend
            far = 1.0 if whole else slope / max(bend, 1e-300)
            gain = far * (slope - 0.5 * far * bend) if slope > 0 else 0.0
            if gain > most:
                best, most = (new if whole else self._theta + far * step, far * change), gain
            elif best is not None:
                break
            if whole:
                break
        if best is not None:
            theta[self.rows] = best[0]
            v -= best[1]

    def _first(self, x: Array) -> float:
        """The share of x at which the first free term reaches an end of its cell."""
        room = np.where(x > 0, self._hi - self._theta, self._theta - self._lo)
        return float((room / np.maximum(np.abs(x), 1e-300)).min(initial=1.0))

    def _solve(self, enough: float, loops: Loops, close: float) -> Array:
        """Approximate solution x of ``(A_F A_F' + Q) x = r``, r the residual at theta.

        Stops when the clipped point's duality gap on F is at most `enough`, when ``r' z / 2`` is
        at most `close`, or when clipping would undo more than is left to gain.
        """
        block, q, weight = self._block, self._q, self._weight
        heavy, light, k = (self.rows, *block.heavy), (self.rows, *block.light), block.k
        factor = block.factor(self.rows)
        r, z = self._residual.copy(), weight * self._residual  # z is D^{-1} r until u is known
        x, p, bp = np.zeros((3, len(r)))
        bu, kp = np.empty((2, len(r)))
        u, v, fresh = np.zeros(k), np.zeros(len(block.columns)), np.zeros(len(block.columns))
        before, first = 0.0, 0.0
        self.gap = np.inf
        while self.steps < STEPS:
            u[:] = 0.0
            loops.scatter(*heavy, z, u)
            if k:
                u[:] = dtrsv(factor, dtrsv(factor, u, lower=1), lower=1, trans=1)
            now = loops.soften(*heavy, u, weight, r, bu, z)
            first = first or now
            if 0.5 * now <= close:
                self.near = True
                break
            loops.scatter(*light, z, fresh)
            fresh[:k] = u  # B' z, by the Woodbury identity
            share = now / before if before > 0 else 0.0
            before = now
            loops.turn(share, fresh, v)
            bend, square = loops.direct(*light, v, share, z, bu, q, p, bp, kp)
            self.steps += 1
            if not (now > 1e-28 * first and bend > 1e-15 * square):
                break
            self.gap, cut, left = loops.advance(
                now / bend, p, kp, x, r, self._theta, q, self._lo, self._hi, weight, z
            )
            if self.gap <= enough or cut > CUT * left:
                break
        return x


MOVE_STEPS, LOOK = 60, 8
"""Steps at most; in so many the gap must halve."""
ENOUGH = 0.75
"""Share of the gap asked for at which a move is whole: terms left out add to it."""
DEAR = 0.8
"""Share of it that the length of the move may take."""
REACH = 5.0
"""Terms take part up to so many times the root mean square of the residual from a kink."""


@dataclass(frozen=True, eq=False)
class PrimalCorrection:
    """A move of x.

    Attributes
    ----------
    move : array
        In the block's columns and the metric of M.
    gap : float
        What the terms that took part add to the duality gap after it, with its own price.
    steps : int
    """

    move: Array
    gap: float
    steps: int


@dataclass(frozen=True, eq=False)
class Part:
    """Terms that take part: local rows, what their margins are off, and the room of their duals."""

    rows: Index
    residual: Array
    down: Array
    up: Array


def aside(
    block: Block, face: Face, theta: Array, v: Array, enough: float, loops: Loops
) -> PrimalCorrection:
    """Look for a move after which the gap is at most `enough`; the best found where it is not."""
    part = _part(block, face, theta, v)
    light, d, n = block.light, len(block.columns), len(part.rows)
    squares, counts = np.zeros((2, d))
    loops.energy(face.rows, *light, np.ones(len(block.rows)), squares, counts)
    root = np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    start, stop, indices, data = empty((light[1] - light[0])[part.rows].astype(np.int64), d)
    size = np.empty(n)
    loops.level(part.rows, *light, root, start, indices, data, size)
    some = size > 0
    rest = float(_price(part, np.where(some, 0.0, part.residual)).sum())
    r = np.where(some, part.residual / np.where(some, size, 1.0), 0.0)
    smooth, fresh, v, x, out = r.copy(), *np.zeros((4, d))
    now = tau = loops.normal(start, stop, indices, data, v, 0.0, r, fresh)
    turn, gap, price, before, steps = 0.0, np.inf, 0.0, np.inf, 0
    while steps < MOVE_STEPS and rest < ENOUGH * enough:
        bend = loops.turn(turn, fresh, v)
        if not bend > 0:
            break
        step = now / bend
        after = loops.normal(start, stop, indices, data, v, step, r, fresh)
        share = tau / (tau + after) if after > 0 else 1.0
        tau = share * after
        gap = loops.smooth(share, r, size, part.down, part.up, smooth) + rest
        price = 0.5 * loops.blend(step, share, v, root, x, out)
        steps, turn, now = steps + 1, after / now, after
        if gap + price <= ENOUGH * enough or price > DEAR * enough or not after > 0:
            break
        if steps % LOOK == 0:
            if gap > 0.5 * before:
                break
            before = gap
    return PrimalCorrection(-root * out, gap + price, steps)


def _part(block: Block, face: Face, theta: Array, v: Array) -> Part:
    """The free terms, and the others of the block that are next to a kink or on its wrong side."""
    f, free = block.losses, np.zeros(len(block.rows), dtype=bool)
    free[face.rows] = True
    rows = block.order[~free[block.order]]
    at, slope, e = theta[rows], f.b[rows] + f.q[rows] * theta[rows], f.e[rows]
    low = np.where(at <= f.lo[rows], -np.inf, slope + np.where(at > 0, e, -e))
    high = np.where(at >= f.hi[rows], np.inf, slope + np.where(at >= 0, e, -e))
    t = block.margins(v, rows)
    reach = REACH * float(np.sqrt(np.mean(face.residual**2)))
    near = (np.minimum(t - low, high - t) <= reach) & (f.q[rows] == 0)
    off, at, rows = (t - np.clip(t, low, high))[near], at[near], rows[near]
    return Part(
        np.concatenate([face.rows, rows]), np.concatenate([face.residual, off]),
        np.concatenate([face.down, np.maximum(f.lo[rows], -HUGE) - at]),
        np.concatenate([face.up, np.minimum(f.hi[rows], HUGE) - at]),
    )


def _price(part: Part, residual: Array) -> Array:
    """What residuals add to the gap."""
    return np.maximum(part.up * residual, part.down * residual)
