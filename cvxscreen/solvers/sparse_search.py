"""How far to go along a step under an L1 norm: of the quadratic model, and of the objective.

Compiled on first use; without numba the loops run as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.compiling import Loop, together_or_plain
from cvxscreen.losses import Losses
from cvxscreen.solvers.sparse_terms import table

Array = NDArray[np.float64]

LENGTHS = np.array([1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.0])
"""Shares of a step over zero that are tried; 0 stands for the first zero on the way."""
LONGEST, HALVINGS, FLAT = 8.0, 12, 0.3
"""The largest length, the halvings of the search, and the share of the first slope along the step
that is left where a whole step is good enough."""


def best_length(x: Array, kappa: Array, t: Array, losses: Losses, d: Array, dt: Array) -> float:
    """About where ``sum_i f_i(t + s dt) + kappa'|x + s d|`` is smallest, ``s > 0``.

    It is the root of a derivative that increases. Newton steps for a squared hinge need it: without
    a quadratic term rows change their piece far from the model's minimum. Every loss has ``q > 0``
    or is 0.
    """
    limits = LONGEST, HALVINGS, FLAT
    return float(searches().root(x, kappa, t, *table(losses), d, dt, *limits))


def _root(  # type: ignore[no-untyped-def]
    x, kappa, t, b, e, q, lo, hi, d, dt, longest, halvings, flat
):
    """The search of `best_length`; an exact 1 keeps at 0 what the model put there."""
    low, high, state, done = 0.0, 0.0, 0, 0
    first = 0.0
    while True:
        length = high if state < 2 else 0.5 * (low + high)
        slope = 0.0
        for i in range(t.size):
            if dt[i] != 0.0 and q[i] > 0.0:
                z = t[i] + length * dt[i] - b[i]
                z = max(z - e[i], 0.0) + min(z + e[i], 0.0)
                slope += min(max(z / q[i], lo[i]), hi[i]) * dt[i]
        for j in range(x.size):
            here = x[j] + length * d[j]
            if here > 0.0:
                slope += kappa[j] * d[j]
            elif here < 0.0:
                slope -= kappa[j] * d[j]
        if state == 0:  # the slope at the start
            first, high, state = slope, 1.0, 1
        elif state == 1:  # forwards, until the slope is positive
            if high == 1.0 and abs(slope) <= flat * abs(first):
                return 1.0
            if slope < 0.0 and high < longest:
                low, high = high, 2.0 * high
            else:
                state = 2
        else:
            if slope < 0.0:
                low = 0.5 * (low + high)
            else:
                high = 0.5 * (low + high)
            done += 1
        if done == halvings:
            return high if low == 0.0 else low


def _shortened(  # type: ignore[no-untyped-def]
    chosen, indptr, indices, data, weight, kappa, slope, x, step, lengths, d, u
):
    """Go the share of `step` on the chosen columns that lowers the model most; by how much.

    What would step over zero stops there. The model is that of `descend`; d and ``u = B d`` follow,
    and stay as they are where no share lowers it.
    """
    first, crossed = 1.0, False
    for k in range(chosen.size):
        here = x[chosen[k]] + d[chosen[k]]
        if (here + step[k]) * here < 0.0:
            crossed = True
            first = min(first, -here / step[k])
    lowest, picked = 0.0, -1.0
    trial, kept = np.empty_like(u), np.empty_like(u)
    for m in range(lengths.size):
        length = max(lengths[m], first)
        trial[:] = u
        change = 0.0
        for k in range(chosen.size):
            j = chosen[k]
            here = x[j] + d[j]
            place = here + length * step[k]
            if place * here <= 0.0:
                place = 0.0
            move = place - x[j] - d[j]
            for p in range(indptr[j], indptr[j + 1]):
                trial[indices[p]] += move * data[p]
            bend = weight[j] * (d[j] + 0.5 * move)
            change += (slope[j] + bend) * move + kappa[j] * (abs(place) - abs(here))
        for i in range(u.size):
            change += 0.5 * (trial[i] - u[i]) * (trial[i] + u[i])
        if change < lowest:
            lowest, picked = change, length
            kept[:] = trial
        elif picked >= 0.0:
            break
        if length <= first or not crossed:
            break
    if picked >= 0.0:
        u[:] = kept
        for k in range(chosen.size):
            j = chosen[k]
            here = x[j] + d[j]
            place = here + picked * step[k]
            d[j] = (0.0 if place * here <= 0.0 else place) - x[j]
    return -lowest


class Searches(NamedTuple):
    """The loops of this module."""

    root: Loop
    shortened: Loop


@lru_cache(maxsize=1)
def searches() -> Searches:
    """The loops, compiled where numba is installed."""
    free = frozenset({"contract", "reassoc", "nsz"})
    return Searches(*together_or_plain(globals(), [("_root", free), ("_shortened", free)]).values())
