"""The linear systems of a face: Newton directions with one equality."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def newton_direction(K: Array, q: Array, r: Array, defect: float) -> tuple[Array, float]:
    """``(K + diag q) step - 1 change = r`` with ``sum step = defect``; `K` is overwritten."""
    k = len(q)
    diagonal = K.ravel()[:: k + 1]
    diagonal += q
    ridge = 1e-14 * k * float(diagonal.max())
    right = np.empty((k, 2), order="F")
    while True:
        matrix = K.copy(order="F")
        matrix.ravel(order="F")[:: k + 1] += ridge
        right[:, 0], right[:, 1] = r, 1.0
        _, both, failed = dposv(matrix, right, lower=1, overwrite_a=1)
        if not failed:
            break
        ridge = max(100.0 * ridge, 1e-300)
    first, ones = both[:, 0], both[:, 1]
    change = (defect - float(first.sum())) / float(ones.sum())
    return first + change * ones, change


def held_direction(
    K: Array, q: Array, r: Array, defect: float, limits: tuple[Array, Array, Array]
) -> tuple[Array, Mask, float, int] | None:
    """The direction with all that would pass a bound held there, until nothing passes.

    Parameters
    ----------
    limits : three arrays
        How far each may fall and rise, and where those start that the plain direction takes beyond
        (0 for the others).

    Returns
    -------
    move, held, change, solves
        Or None where everything would be held.
    """
    low, high, move = limits[0], limits[1], limits[2].copy()
    held, solves = move != 0, 0
    while not held.all():
        inner, fixed = np.flatnonzero(~held), np.flatnonzero(held)
        solves += 1
        pushed = r[inner] - K[inner[:, None], fixed] @ move[fixed]
        left = defect - float(move[fixed].sum())
        step, change = newton_direction(K[inner[:, None], inner], q[inner], pushed, left)
        below, above = step < low[inner], step > high[inner]
        if not (below.any() or above.any()):
            move[inner] = step
            return move, held, change, solves
        for out, end in ((inner[below], low), (inner[above], high)):
            held[out] = True
            move[out] = end[out]
    return None
