"""The step to the minimum of a face of the dual, by preconditioned conjugate gradients.

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
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv

from cvxscreen.solvers.faces_block import Block
from cvxscreen.solvers.faces_loops import Loops

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
