"""A certificate of linear programs: of a point and multipliers, from the data alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.problem import relative_gap

Array = NDArray[np.float64]


class LinearProof(NamedTuple):
    """What a point and multipliers prove of ``min <q, x>`` with ``A x + s = b``, ``s >= 0``.

    Attributes
    ----------
    value : float
        ``<q, x>``.
    gap : float
        Of `value` and of what the multipliers bound the optimum from below by, with what the
        violations of either may hide: see `proven`.
    relative_gap : float
        In units of `value`, or of ``value - gap`` where that is larger.
    violation : float
        The largest violation of a row or of a sign, relative to the largest number of its kind.
    """

    value: float
    gap: float
    relative_gap: float
    violation: float


def proven(q: Array, rows: tuple[Any, Array, int], x: Array, z: Array) -> LinearProof:
    """The certificate of a point x and multipliers z.

    For every feasible point, ``<q, x*> >= -<b, z> + <q + A' z, x*>`` where ``z >= 0`` at the
    inequalities. What is left of stationarity is charged with twice the size of each coordinate,
    which an optimum that is no larger than so asks for, and a violated row with its multiplier.

    Parameters
    ----------
    rows : (sparse matrix, array, int)
        A, b, and how many rows, the first ones, are equalities (``s = 0``).
    """
    A, b, equal = rows
    s = b - A @ x
    over = np.abs(s)
    over[equal:] = np.maximum(-s[equal:], 0.0)
    signs = np.maximum(-z[equal:], 0.0)
    left = q + A.T @ z
    value, bound = float(q @ x), -float(b @ z)
    gap = abs(value - bound) + 2.0 * float(np.abs(left) @ np.abs(x))
    gap += float(over @ np.abs(z)) + float(signs @ np.abs(s[equal:]))

    def size(*parts: Array) -> float:
        return max((float(np.abs(part).max(initial=0.0)) for part in parts), default=0.0)

    primal = size(over) / max(size(b), size(x), 1e-300)
    dual = size(left, signs) / max(size(q), size(z), 1e-300)
    return LinearProof(value, gap, float(relative_gap(gap, value)), max(primal, dual))
