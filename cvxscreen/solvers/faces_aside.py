"""A move of x alone that closes most of the gap of a face whose duals are nearly right.

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

from cvxscreen.solvers.faces_block import Block
from cvxscreen.solvers.faces_loops import Loops
from cvxscreen.solvers.faces_rows import Index, empty
from cvxscreen.solvers.faces_step import HUGE, Face

Array = NDArray[np.float64]

MOVE_STEPS, LOOK = 60, 8
"""Steps at most; in so many the gap must halve."""
ENOUGH = 0.75
"""Share of the gap asked for at which a move is whole: terms left out add to it."""
DEAR = 0.8
"""Share of it that the length of the move may take."""
REACH = 5.0
"""Terms take part up to so many times the root mean square of the residual from a kink."""


@dataclass(frozen=True, eq=False)
class Aside:
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


def aside(block: Block, face: Face, theta: Array, v: Array, enough: float, loops: Loops) -> Aside:
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
    return Aside(-root * out, gap + price, steps)


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
